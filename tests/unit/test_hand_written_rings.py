"""The rings written by hand; and with one thing broken: each is refused, for the right reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import interleaved
import pytest
import torch
from xdsl.context import Context

import ditron as dt
from ditron.analysis.expand import expand
from ditron.analysis.report import ProofReport, prove
from ditron.analysis.symbols import find_task_program, kernels
from ditron.errors import (
    DeadlockError,
    DeliveryError,
    DitronError,
    ProgramError,
    ProofError,
    RaceError,
)
from ditron.passes.plan_memory import PlanMemoryPass
from ditron.plan.tables import Role

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GATHER = EXAMPLES / "10_ring_all_gather.py"
SCATTER = EXAMPLES / "11_double_buffered_reduce_scatter.py"


def program(path: Path, text: str, **sizes: int) -> dt.DeviceProgram:
    """What an example's text makes, under the example's name."""
    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), scope)
    return scope["program"](**sizes)


def proved(d: dt.DeviceProgram) -> ProofReport:
    module = d.ir
    PlanMemoryPass(reuse=False).apply(Context(), module)
    return prove(expand(module), kernels(module), find_task_program(module))


@pytest.mark.parametrize("path", [GATHER, SCATTER], ids=lambda p: p.stem)
@pytest.mark.parametrize("ranks", range(1, 9))
def test_the_rings_are_proved(path: Path, ranks: int):
    for m, k in ((1, 1), (ranks, 3), (4 * ranks, 8), (13, 5), (0, 2), (ranks + 1, 0)):
        report = proved(program(path, path.read_text(), m=m, k=k, tp=ranks))
        assert report.delivery is not None


@pytest.mark.parametrize("path", [GATHER, SCATTER], ids=lambda p: p.stem)
@pytest.mark.parametrize(("m", "ranks"), [(7, 3), (3, 4), (0, 2)])
def test_the_rings_give_what_torch_gives_in_any_order(path: Path, m: int, ranks: int):
    d = program(path, path.read_text(), m=m, k=5, tp=ranks)
    generator = torch.Generator().manual_seed(0)
    with dt.compile(d) as exe:
        inputs = {
            name: torch.randint(-1, 2, spec.shape, generator=generator).bfloat16()
            for name, spec in exe.tensors(Role.INPUT).items()
        }
        expected = d.reference(inputs)["y"]
        for seed in range(12):
            for outputs in interleaved.run(exe, d.mesh, inputs, seed=seed, launches=3):
                assert torch.equal(outputs["y"], expected)


def dropped(path: Path) -> list[Any]:
    """(line number, what it does) of each line that waits or notifies."""
    lines = enumerate(path.read_text().splitlines(), 1)
    found = [(n, line.strip()) for n, line in lines if re.match(r"\s+g\.(wait|notify)\(", line)]
    return [pytest.param(path, n, id=f"{path.stem[:2]} {text[2:40]}") for n, text in found]


@pytest.mark.parametrize(("path", "line"), [*dropped(GATHER), *dropped(SCATTER)])
def test_without_a_wait_or_notify_they_are_refused(path: Path, line: int):
    lines = path.read_text().splitlines()
    waits = "g.wait(" in lines[line - 1]
    indent = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    lines[line - 1] = " " * indent + "pass"
    with pytest.raises(ProofError) as caught:
        proved(program(path, "\n".join(lines), tp=5))
    # What nobody waits for races; what nobody tells is waited for in vain.
    assert type(caught.value) is (RaceError if waits else DeadlockError)
    file, _, at = (caught.value.where or "").rpartition(":")
    assert file == str(path)
    if not waits:
        assert "g.wait(" in lines[int(at) - 1]


MUTANTS: list[tuple[Path, str, str, type[DitronError], str]] = [
    (GATHER, '- g["s"]) % tp', '+ g["s"]) % tp', DeadlockError, "no task notifies it"),
    (GATHER, "g.acquire(y)", "g.release(y)", ProgramError, "g.acquire(y)"),
    (GATHER, "y, (d.rank * rows, 0)", "y, (0, 0)", RaceError, "nothing orders two"),
    (GATHER, "left = (d.rank + 1)", "left = (d.rank + 2)", DeadlockError, "no task notifies it"),
    (GATHER, "here, owner, at=right", "here, owner", DeadlockError, "no task notifies it"),
    (GATHER, "slots=tp", "slots=tp - 1", RaceError, "%y["),
    (SCATTER, "d.rank - 1 - step", "d.rank - step", DeliveryError, "output 'y'"),
    (SCATTER, "load(part) + k.load(a) @", "load(a) @", DeliveryError, "only the term of rank 0"),
    (SCATTER, "k.load(part) + ", "k.load(part) - ", DeliveryError, "output 'y'"),
    (SCATTER, "load(part) + ", "load(part) + k.load(part) + ", DeliveryError, "output 'y'"),
    (SCATTER, "(s - 1) // 2 + 1)", "s // 2 + 1)", DeadlockError, "tasks wait for each other"),
    (SCATTER, "(tp - s) // 2, lag=1", "(tp - s) // 2 - 1, lag=1", RaceError, "next launch"),
    (SCATTER, "lag=1, when=s < 2", "lag=2, when=s < 2", RaceError, "next launch"),
    (SCATTER, "step % 2 * rows", "step * 0", RaceError, "%out["),
    (SCATTER, "s % 2, at=right)", 's % 2, at=right, after="end")', RaceError, "%arrived["),
]


@pytest.mark.parametrize(
    ("path", "old", "new", "kind", "message"), MUTANTS, ids=[m[2][:40] for m in MUTANTS]
)
def test_with_something_else_they_are_refused(
    path: Path, old: str, new: str, kind: type[DitronError], message: str
):
    text = path.read_text()
    assert old in text
    with pytest.raises(kind) as caught:
        proved(program(path, text.replace(old, new), tp=5))
    assert message in caught.value.message
    assert (caught.value.where or "").startswith(str(path))
