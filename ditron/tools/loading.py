"""From a FILE on the command line to a program: Python with `program(...)`, or an IR dump."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from xdsl.context import Context
from xdsl.dialects import builtin
from xdsl.dialects.builtin import ModuleOp

from ditron.analysis.symbols import find_task_program
from ditron.builder.device import DeviceProgram
from ditron.builder.task import Program
from ditron.errors import DitronError, OptionError, ProgramError
from ditron.ir import device
from ditron.ir.frontend import parse_module
from ditron.pipelines import NAMES
from ditron.tools.arguments import parse_settings
from ditron.universe import DIALECTS

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A program to compile, and where it is from."""

    path: Path
    program: Program | DeviceProgram | ModuleOp

    @property
    def module(self) -> ModuleOp:
        """Its IR."""
        return self.program if isinstance(self.program, ModuleOp) else self.program.ir

    @property
    def lowered(self) -> bool:
        """Whether it is a dump of a stage that has a device program already."""
        if not isinstance(self.program, ModuleOp):
            return False
        return any(isinstance(op, device.ProgramOp) for op in self.program.ops)

    @property
    def stage(self) -> str | None:
        """The pass that a dump of a lowered stage has gone through, by its name."""
        if not self.lowered:
            return None
        for name in NAMES:
            if re.search(rf"(?:^|[^a-z-]|[0-9]-){name}$", self.path.stem):
                return name
        msg = (
            f"{self.path} is a dump of a lowered stage: name it after the last pass that it has"
            " gone through, such as mine.04-fuse-tiles.mlir, and later ones run; or prove it as it"
            " is with `ditron verify`"
        )
        raise OptionError(msg)

    def to_compile(self) -> Program | DeviceProgram | ModuleOp:
        """What `dt.compile` takes.

        Raises:
            OptionError: a dump without a task program.
        """
        if isinstance(self.program, ModuleOp) and find_task_program(self.program) is None:
            msg = f"{self.path} holds no task.program"
            raise OptionError(msg)
        return self.program


def load(path: Path, settings: Sequence[str] = ()) -> Source:
    """Read FILE and build its program.

    Args:
        path: a `.py` file that defines `program(**kwargs)`, or a `.mlir` dump.
        settings: `name=value`, arguments of `program`.

    Raises:
        OptionError: FILE cannot be read, or a setting does not fit.
        ProgramError: the program is wrong, or its code raised.
        ParseError, VerifyException: a dump is no valid IR.
    """
    if not path.is_file():
        msg = f"cannot read {path}: {'it is a folder' if path.is_dir() else 'no such file'}"
        raise OptionError(msg)
    if path.suffix == ".mlir":
        if settings:
            msg = f"--set gives arguments to program(), and {path} is an IR dump"
            raise OptionError(msg)
        return Source(path, _load_dump(path))
    if path.suffix == ".py":
        return Source(path, _load_python(path, settings))
    msg = f"{path} is neither a .py file with program() nor a .mlir dump"
    raise OptionError(msg)


def _load_dump(path: Path) -> ModuleOp:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read {path}: {error}"
        raise OptionError(msg) from error
    return parse_dump(text, str(path))


def parse_dump(text: str, name: str) -> ModuleOp:
    """A module from the text of any stage.

    Raises:
        ParseError, VerifyException: it is no valid IR.
        ProgramError: it is nested deeper than Python's stack.
    """
    ctx = Context()
    ctx.register_dialect("builtin", lambda: builtin.Builtin)
    for dialect, load_dialect in DIALECTS.items():
        ctx.register_dialect(dialect, load_dialect)
    try:
        return parse_module(ctx, text, name)
    except RecursionError as error:
        msg = "regions are nested too deeply"
        raise ProgramError(msg, name) from error


def _load_python(path: Path, settings: Sequence[str]) -> Program | DeviceProgram:
    function = getattr(_run(lambda: _import(path), path), "program", None)
    if not callable(function):
        msg = f"{path} defines no program() that returns a dt.Program"
        raise OptionError(msg)
    arguments = parse_settings(settings, inspect.signature(function))
    program = _run(lambda: function(**arguments), path)
    if not isinstance(program, Program | DeviceProgram):
        came = type(program).__name__
        msg = f"program() of {path} returned {came}, expected a dt.Program or dt.DeviceProgram"
        raise OptionError(msg)
    return program


def _import(path: Path) -> ModuleType:
    # Example files may start with digits, so no import statement can name them.
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        msg = f"{path} cannot be imported"
        raise OptionError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _run(code: Callable[[], T], path: Path) -> T:
    """Run the user's own code; whatever it raises becomes one line with its position."""
    try:
        return code()
    except DitronError:
        raise
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}" if error.filename else str(path)
        raise ProgramError(error.msg, where) from error
    except Exception as error:  # the user's own code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        here = path.resolve()
        own = [frame.lineno for frame in frames if Path(frame.filename).resolve() == here]
        where = f"{path}:{own[-1]}" if own else str(path)
        msg = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ProgramError(msg, where) from error
