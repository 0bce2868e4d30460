"""choose-algorithms: what the options say is done, or refused at the user's line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.context import Context

import ditron as dt
from ditron.errors import DitronError, OptionError
from ditron.ir import task
from ditron.ir.attrs import ChoiceAttr
from ditron.passes.choose_algorithms import ChooseAlgorithmsPass
from ditron.plan.collectives import ALGORITHMS, knows
from ditron.plan.machine import load_machine
from tests.unit.lowered import PROGRAMS, ag_gemm, gemm_ar, gemm_rs, mlp

CPU = Path(__file__).resolve().parents[2] / "ditron/machines/cpu.yaml"


def choices(
    program: dt.Program, options: dt.Options | None = None, machine: str = "cpu"
) -> dict[str, ChoiceAttr]:
    """The choice of each op, by its label (of ops with one label, the last one's)."""
    module = program.ir.clone()
    ChooseAlgorithmsPass.of(options or dt.Options(), machine).apply(Context(), module)
    module.verify()
    ops = [op for op in module.walk() if isinstance(op, task.ComputeOp)]
    assert all(op.choice is not None for op in ops)
    return {op.label(): op.choice for op in ops if op.choice is not None}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_op_has_a_choice_that_can_be_carried_out(name: str):
    for label, choice in choices(PROGRAMS[name](3)).items():
        kind = next((k for k in ALGORITHMS if label.startswith(k)), None)
        if kind is None:
            assert len(choice.tile) == 2, label
            continue
        assert knows(kind, choice.algorithm, choice.transfer)
        assert choice.transfer
        assert choice.chunk >= 1


MAKERS: dict[str, Callable[[int], dt.Program]] = {
    "all_gather": ag_gemm,
    "reduce_scatter": gemm_rs,
    "all_reduce": gemm_ar,
}


@pytest.mark.parametrize(
    ("kind", "algorithm", "transfer"),
    [(k, a, t) for k in MAKERS for a, ts in ALGORITHMS[k].items() for t in ts],
)
def test_an_algorithm_that_is_asked_for_is_taken(kind: str, algorithm: str, transfer: str):
    options = dt.Options(algorithm=f"{algorithm}-{transfer}")
    choice = choices(MAKERS[kind](4), options)[kind]
    assert (choice.algorithm, choice.transfer) == (algorithm, transfer)


def test_a_collective_that_does_not_know_the_algorithm_takes_its_own():
    found = choices(mlp(2), dt.Options(algorithm="mesh-pull"))
    assert (found["all_gather"].algorithm, found["all_gather"].transfer) == ("mesh", "pull")
    reduce = found["reduce_scatter"]
    assert knows("reduce_scatter", reduce.algorithm, reduce.transfer)


@pytest.mark.parametrize(
    ("chunk_bytes", "rows"),
    [(1, 1), (16, 1), (31, 1), (32, 2), (63, 3), (64, 4), (1 << 30, 4)],
)
def test_chunks_are_whole_rows_of_a_shard(chunk_bytes: int, rows: int):
    # Shards of x are 4 rows of 4 float32, 16 bytes each.
    options = dt.Options(algorithm="mesh-push", chunk_bytes=chunk_bytes)
    assert choices(ag_gemm(2), options)["all_gather"].chunk == rows


@pytest.mark.parametrize(("m", "k"), [(0, 4), (1, 4), (8, 0)])
def test_chunks_of_nothing(m: int, k: int):
    options = dt.Options(algorithm="mesh-push", chunk_bytes=64)
    assert choices(ag_gemm(2, m=m, k=k), options)["all_gather"].chunk >= 1


def test_tiles_that_are_given():
    own = {"matmul*": dt.OpOptions(tile=(3, 5))}
    found = choices(mlp(2), dt.Options(tile=(7, 9), per_op=own))
    assert found["matmul"].tile == (3, 5)
    assert found["silu"].tile == (7, 9)
    assert found["reduce_scatter"].tile == (7, 9)
    assert found["all_gather"].tile == ()


def test_per_op_says_what_one_collective_does():
    own = {
        "reduce_scatter": dt.OpOptions(algorithm="mesh-in-place"),
        "all_gather": dt.OpOptions(algorithm="ring", chunk_bytes=16),
    }
    found = choices(mlp(2), dt.Options(algorithm="mesh-push", per_op=own))
    assert found["reduce_scatter"].transfer == "in-place"
    assert (found["all_gather"].algorithm, found["all_gather"].chunk) == ("ring", 1)


def test_what_stands_there_is_kept():
    module = ag_gemm(2).ir.clone()
    (gather,) = [op for op in module.walk() if isinstance(op, task.AllGatherOp)]
    gather.choice = ChoiceAttr.get("mesh", "pull", 3)
    ChooseAlgorithmsPass(algorithm="ring").apply(Context(), module)
    assert gather.choice == ChoiceAttr.get("mesh", "pull", 3)


def gathered_output() -> dt.Program:
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        p.output("y", dt.all_gather(p.input("x", (8, 4), dt.f32, dt.Shard(0)), dim=0))
    return p


def summed_over() -> dt.Program:
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (8, 4), dt.f32, dt.Shard(1))
        w = p.input("w", (4, 6), dt.f32, dt.Replicate())
        p.output("y", dt.matmul(dt.all_gather(x, dim=1), w))
    return p


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (gathered_output, "it is the output y"),
        (summed_over, "matmul sums over the gathered dimension"),
    ],
)
def test_in_place_is_refused_where_users_cannot_read_shards(
    program: Callable[[], dt.Program], why: str
):
    with pytest.raises(OptionError) as caught:
        choices(program(), dt.Options(algorithm="mesh-in-place"))
    message = f"all_gather cannot be done in place: {why}; choose a push instead"
    assert caught.value.message == message
    assert caught.value.where is not None
    assert "test_choose.py:" in caught.value.where
    # Nobody asked for it: then it is not chosen.
    assert choices(program())["all_gather"].transfer != "in-place"


def without_peer_pointers(tmp_path: Path) -> str:
    text = CPU.read_text().replace("peer_pointers: true", "peer_pointers: false")
    assert "peer_pointers: false" in text
    file = tmp_path / "far.yaml"
    file.write_text(text)
    return str(file)


def test_in_place_takes_peer_pointers(tmp_path: Path):
    machine = without_peer_pointers(tmp_path)
    for make in MAKERS.values():
        for choice in choices(make(2), machine=machine).values():
            assert choice.transfer != "in-place"
    with pytest.raises(OptionError, match="has no peer pointers; choose a push instead"):
        choices(gemm_rs(2), dt.Options(algorithm="mesh-in-place"), machine)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("up", "per-op takes pattern:key=value"),
        (":tile=2x2", "per-op takes pattern:key=value"),
        ("up:tile", "per-op takes pattern:key=value"),
        ("up:speed=3", "per-op takes pattern:key=value"),
        ("up:tile=axb", "per-op sizes are whole numbers"),
        ("up:tile=2", "tile is two sizes, got 1"),
        ("up:tile=2x0", "tile is two positive sizes"),
        ("up:chunk-bytes=few", "per-op sizes are whole numbers"),
        ("up:algorithm=star", "no collective has an algorithm 'star'"),
    ],
)
def test_per_op_items_that_cannot_be_read(item: str, message: str):
    with pytest.raises(DitronError) as caught:
        ChooseAlgorithmsPass(per_op=(item,)).apply(Context(), ag_gemm(2).ir.clone())
    assert message in caught.value.message


def test_options_survive_the_way_through_the_pass():
    own = {"a:b*": dt.OpOptions("ring", 7, (3, 4)), "*": dt.OpOptions(tile=(5, 6))}
    made = ChooseAlgorithmsPass.of(dt.Options("mesh", 9, (1, 2), per_op=own), "cpu")
    assert made.per_op == (
        "a:b*:algorithm=ring",
        "a:b*:chunk-bytes=7",
        "a:b*:tile=3x4",
        "*:tile=5x6",
    )
    assert (made.algorithm, made.chunk_bytes, made.tile) == ("mesh", 9, (1, 2))


def test_a_product_and_what_fuses_with_it_have_one_tile():
    found = choices(mlp(4, m=512, hidden=256, inner=512))
    assert found["silu"].tile == found["mul"].tile
    assert found["silu"].tile in load_machine("cpu").tiles
    assert "tile" in found["matmul"].prediction.over


def test_a_choice_says_what_it_costs_and_what_comes_next():
    for program in (
        ag_gemm(4, 512, 256, 128),
        gemm_rs(4, 512, 256, 128),
        gemm_ar(4, 512, 256, 128),
    ):
        (choice,) = (c for label, c in choices(program).items() if "matmul" not in label)
        said = choice.prediction
        assert 0 < said.cost_ns <= said.over_ns
        assert said.over
        assert choice.plain.prediction.cost_ns == 0
        assert ChoiceAttr.get("mesh", "push", 3) == ChoiceAttr.get("mesh", "push", 3).plain


def test_near_ties_on_devices_are_played():
    module = ag_gemm(4, 2048, 2048, 1024, dt.bf16).ir
    decided: list[str] = []
    for play in (False, True):
        copy = module.clone()
        ChooseAlgorithmsPass("h800x8", play=play).apply(Context(), copy)
        copy.verify()
        gather = next(op for op in copy.walk() if isinstance(op, task.AllGatherOp))
        assert gather.choice is not None
        decided.append(gather.choice.transfer)
    # Closed forms find push and pull equal; with the lanes as they are, a pull is faster.
    assert decided == ["push", "pull"]
