"""Collects `*.mlir` files: each RUN line is a test, run in this process.

A `ditron-opt` run costs some 30 ms here instead of half a second and more in a process of its own.
`test_lit.py` runs a few of the same files under true lit.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from run_lines import Command, RunLine, parse_run_lines

from ditron.tools import opt


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".mlir":
        return None
    return MlirFile.from_parent(parent, path=file_path)


class MlirFile(pytest.File):
    def collect(self) -> Iterable[pytest.Item]:
        for run in parse_run_lines(self.path):
            name = f"line {run.line}"
            yield RunItem.from_parent(self, name=name, run_line=run)


class RunFailedError(AssertionError):
    """A command of a RUN line did not end as the line says."""


class RunItem(pytest.Item):
    def __init__(self, *, run_line: RunLine, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run_line = run_line

    def runtest(self) -> None:
        text = ""
        for command in self.run_line.commands:
            code, out, err = run_command(command, text)
            if (code == 0) == command.negated:
                words = " ".join([command.program, *command.arguments])
                msg = f"{words}\nended with {code}\n{err}\n--- standard output\n{out}"
                if command.program == "filecheck":
                    msg += f"--- filecheck's input\n{text}"
                raise RunFailedError(msg)
            text = out

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, RunFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.run_line.line - 1, f"{self.path.name}:{self.run_line.line}"


def run_command(command: Command, stdin: str) -> tuple[int, str, str]:
    """Run one command in this process: its exit code, standard output and standard error.

    With `2>&1` standard output has both, in the order they were written.
    """
    programs = {"ditron-opt": opt.main, "filecheck": _filecheck}
    if command.program not in programs:
        msg = f"RUN lines know {sorted(programs)}, not {command.program!r}"
        raise RunFailedError(msg)
    if "--disable-verify" in command.arguments:
        # It edits xDSL's Attribute class: other tests of this process would not verify either.
        msg = "--disable-verify cannot be tested in process"
        raise RunFailedError(msg)
    out = io.StringIO()
    err = out if command.merged else io.StringIO()
    stock_stdin = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = programs[command.program](command.arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.stdin = stock_stdin
    return code, out.getvalue(), "" if command.merged else err.getvalue()


def _filecheck(arguments: Sequence[str]) -> int:
    return Matcher.from_opts(parse_argv_options(["filecheck", *arguments])).run()
