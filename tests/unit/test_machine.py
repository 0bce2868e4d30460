from pathlib import Path

import pytest

from ditron.errors import MachineError
from ditron.plan.machine import load_machine, machine_names

CPU = Path(__file__).parents[2] / "ditron" / "machines" / "cpu.yaml"


def test_the_machines_that_ship():
    assert machine_names() == (
        "cpu",
        "h100x8",
        "h200",
        "h800x8",
        "h800x8x128",
        "h800x8x2",
        "l20x8-pcie",
        "mi300x8",
        "mtia-like",
    )
    for name in machine_names():
        machine = load_machine(name)
        assert machine.name == name
        assert machine.tile in machine.tiles
        assert machine.reduce_tile in machine.reduce_tiles
        assert machine.chunk_bytes in machine.chunks


def test_what_passes_ask():
    cpu, gpu = load_machine("cpu"), load_machine("h800x8")
    assert cpu.peer_pointers
    assert cpu.cores > 0
    assert cpu.workers == 1
    assert gpu.workers == 132
    assert gpu.cores == 0
    assert not gpu.engines["copy"].remote_add
    assert load_machine("h800x8x2").ranks_a_node == 8


def test_a_machine_by_path(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(CPU.read_text().replace("name: cpu", "name: mine"))
    assert load_machine(str(path)).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_ranks: 256", "max_ranks: many", "max_ranks: Expected `int`, got `str`"),
        ("max_ranks: 256", "max_ranks: 0", "max_ranks: Expected `int` >= 1"),
        ("max_ranks: 256\n", "", "Object missing required field `max_ranks`"),
        ("max_ranks:", "max_rank:", "Object contains unknown field `max_rank`"),
        ("kind: shared-memory", "kind: torus", "topology.kind: Invalid enum value 'torus'"),
        ("signal_us: 1", "signal_us: -1", "costs.signal_us: Expected `float` >= 0.0"),
        ("  sm: {lanes: 1,", "  sm: {lanes: 0,", "engines[...].lanes: Expected `int` >= 1"),
        ("  copy: {lanes: 1,", "  dma: {lanes: 1,", "expected sm, copy and host, copy missing"),
        ("{f32: 0.108}", "{bf16: 1}", "rates.matrix_tflops: expected at least f32"),
        ("remote_add: true\n  put", "remote_add: false\n  put", "capabilities: remote_add goes"),
        ("tile: [512, 1024]", "tile: [512]", "tile: Expected `array` of length 2, got 1"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, old: str, new: str, message: str):
    path = tmp_path / "bad.yaml"
    text = CPU.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(MachineError) as caught:
        load_machine(str(path))
    report = str(caught.value)
    assert "\n" not in report
    assert report.startswith(str(path))
    assert message in report


def test_text_that_is_no_yaml(tmp_path: Path):
    path = tmp_path / "bad.yaml"
    path.write_text("name: [unclosed\ntarget: cpu\n")
    with pytest.raises(MachineError, match="no YAML") as caught:
        load_machine(str(path))
    assert "\n" not in str(caught.value)


def test_machines_that_are_not_there(tmp_path: Path):
    with pytest.raises(MachineError, match="there are cpu, h100x8"):
        load_machine("gpu")
    with pytest.raises(MachineError, match="No such file"):
        load_machine(str(tmp_path / "none.yaml"))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(MachineError, match="UTF-8"):
        load_machine(str(binary))


def test_the_machine_of_the_docs(tmp_path: Path):
    docs = (CPU.parents[2] / "docs" / "machines.md").read_text()
    path = tmp_path / "my-machine.yaml"
    path.write_text(docs.partition("```yaml\n")[2].partition("```")[0])
    machine = load_machine(str(path))
    assert machine.name == "my-machine"
    for name in machine_names():
        assert f"`{name}`" in docs
