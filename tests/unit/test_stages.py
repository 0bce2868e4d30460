"""Every stage of every example prints, parses back to the same text, verifies, and stays small."""

from __future__ import annotations

import itertools
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import ditron as dt
from ditron.analysis.symbols import find_task_program
from ditron.tools.execute import LEVELS, chosen, emit, level_of
from ditron.tools.loading import load, parse_dump

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("[0-9][0-9]_*.py"))
MAX_OPS = 200
OPS_OF_AN_OP = 12
"""A whole layer or model has more, but not more than so many for each op that its user wrote."""

pytestmark = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


@pytest.fixture
def executable(path: Path):
    source = load(path)
    with dt.compile(source.to_compile(), target="cpu") as exe:
        yield exe


def test_stages_round_trip(executable: dt.Executable):
    names = list(executable.stages)
    assert [name[:2] for name in names] == [f"{i:02d}" for i in range(len(names))]
    first = parse_dump(next(iter(executable.stages.values())), "input")
    written = find_task_program(first)
    limit = max(MAX_OPS, OPS_OF_AN_OP * len(list(written.body.block.ops)) if written else 0)
    for name, text in executable.stages.items():
        module = parse_dump(text, name)
        assert str(module).strip() == text.strip(), name
        assert sum(1 for _ in module.walk()) <= limit, name


def test_a_level_is_emitted_as_its_last_stage(executable: dt.Executable):
    levels = [level_of(name, text) for name, text in executable.stages.items()]
    assert levels == sorted(levels, key=LEVELS.index)
    for level in dict.fromkeys(levels):
        text = emit(executable, level)
        last = len(levels) - 1 - levels[::-1].index(level)
        assert text == list(executable.stages.values())[last]
    kernels = emit(executable, "core")
    has_kernels = any(op.kind == "call" for op in executable.plan.ops)
    assert kernels.startswith("core.func") == has_kernels
    parse_dump(f"builtin.module {{\n{kernels}\n}}", "core")
    found = re.search(r"^def ", emit(executable, "host"), re.MULTILINE)
    assert (found is not None) == has_kernels


def test_decisions_name_the_users_line(executable: dt.Executable, path: Path):
    source = load(path)
    found = chosen(source, executable)
    if isinstance(source.program, dt.DeviceProgram):  # it says itself how it runs
        assert not found
        return
    assert found
    lines = path.read_text().splitlines()
    for decision in found:
        file, _, line = decision.where.rpartition(":")
        assert file == str(path)
        assert "dt." in lines[int(line) - 1]
        if decision.op == "task.matmul":
            assert re.search(r"dt\.(matmul|models)", lines[int(line) - 1])


def test_a_dump_goes_on_where_it_stopped(executable: dt.Executable, path: Path, tmp_path: Path):
    stages = [name for name in executable.stages if name.endswith(("fuse-tiles", "elide-waits"))]
    assert len(stages) == (0 if isinstance(load(path).program, dt.DeviceProgram) else 2)
    for name in stages:
        dump = tmp_path / f"mine.{name}.mlir"
        dump.write_text(executable.stages[name])
        source = load(dump)
        with dt.compile(source.to_compile(), after=source.stage) as rest:
            assert len(rest.stages) < len(executable.stages)
            for table in ("tasks", "accesses", "waits", "notifies", "slots"):
                mine, theirs = getattr(rest.plan, table), getattr(executable.plan, table)
                for column in fields(mine):
                    values = getattr(mine, column.name), getattr(theirs, column.name)
                    assert np.array_equal(*values), (table, column.name)


def test_compiling_twice_gives_the_same_bytes(executable: dt.Executable, path: Path):
    with dt.compile(load(path).to_compile(), target="cpu") as other:
        pairs = itertools.zip_longest(executable.stages.items(), other.stages.items())
        assert all(a == b for a, b in pairs)
        assert emit(executable, "host") == emit(other, "host")
