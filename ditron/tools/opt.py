"""`ditron-opt IR.mlir -p 'pass{option=value},...'`: any pass on IR text, readable errors.

xDSL's optimizer driver, with ditron's dialects and passes, positions in every message, dumps
around passes, and a dominance check wherever xDSL verifies.

Exit codes: 0 done, 1 the IR is wrong or a pass refused it, 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import IO, NoReturn

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass, PassPipeline, get_pass_option_infos
from xdsl.printer import Printer
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ParseError
from xdsl.xdsl_opt_main import xDSLOptMain

from ditron.errors import DitronError, InputError, OptionError
from ditron.ir.frontend import LocFrontend, describe_fault, located_diagnostics, verify_module
from ditron.universe import DITRON_UNIVERSE


class DitronOpt(xDSLOptMain):
    """One run of the tool: arguments in, IR out."""

    version_format = "ditron-opt (xdsl {xdsl_version})"
    _dumped: str = ""
    _started: float = 0.0

    def register_all_dialects(self) -> None:
        super().register_all_dialects()
        # Not installed, only on the path: no entry point names ditron.
        for name, load in DITRON_UNIVERSE.all_dialects.items():
            if name not in self.ctx.registered_dialect_names:
                self.ctx.register_dialect(name, load)

    def register_all_passes(self) -> None:
        super().register_all_passes()
        self.available_passes |= DITRON_UNIVERSE.all_passes

    def register_all_frontends(self) -> None:
        super().register_all_frontends()
        self.available_frontends["mlir"] = lambda: LocFrontend

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        arg_parser.prog = "ditron-opt"
        arg_parser.error = _usage_error
        for when in ("before-all", "after-all", "after-change"):
            arg_parser.add_argument(
                f"--print-ir-{when}",
                action="store_true",
                help=f"Print the IR on stderr {when.replace('-', ' ')} passes",
            )

    def prepare_input(self) -> tuple[list[tuple[IO[bytes], int]], str]:
        try:
            return super().prepare_input()
        except OSError as error:
            msg = f"cannot read {self.get_input_name()}: {error.strerror}"
            raise InputError(msg) from error
        except ValueError as error:  # an unknown file extension
            msg = f"{self.get_input_name()}: {error}"
            raise InputError(msg) from error

    def prepare_output(self) -> IO[str]:
        try:
            return super().prepare_output()
        except OSError as error:
            msg = f"cannot write {self.args.output_file}: {error.strerror}"
            raise OptionError(msg) from error

    def parse_chunk(
        self, chunk: IO[bytes], file_extension: str, start_offset: int = 0
    ) -> ModuleOp | None:
        if (self.args.frontend or file_extension) != "mlir":
            return super().parse_chunk(chunk, file_extension, start_offset)
        # Ops of a later chunk of a split file count lines from the file's start.
        frontend = LocFrontend(self.args.no_implicit_module, start_offset)
        return frontend.parse(self.ctx, chunk, self.get_input_name())

    def setup_pipeline(self) -> None:
        try:
            specs = tuple(parse_pipeline(self.args.passes))
        except ArgSpecParseError as error:
            msg = f"cannot read -p {self.args.passes!r}: {_last_line(error)}"
            raise OptionError(msg) from error
        passes = tuple(self._make_pass(spec) for spec in specs)
        self.pipeline = PassPipeline(passes, self._between_passes)

    def _make_pass(self, spec: ArgSpec) -> ModulePass:
        load = self.available_passes.get(spec.name)
        if load is None:
            near = get_close_matches(spec.name, self.available_passes, n=1)
            hint = f", did you mean {near[0]!r}?" if near else "; --help lists them"
            msg = f"no pass is named {spec.name!r}{hint}"
            raise OptionError(msg)
        kind = load()
        try:
            return kind.from_pass_spec(spec)
        except ValueError as error:
            options = (f"{o.name}: {o.expected_type}" for o in get_pass_option_infos(kind))
            takes = ", ".join(options).replace("_", "-").replace("'", "") or "no options"
            msg = f"pass {spec.name!r}: {str(error).replace('typing.', '')}; it takes {takes}"
            raise OptionError(msg) from error

    def _between_passes(
        self, done: ModulePass | None, module: ModuleOp, coming: ModulePass | None
    ) -> None:
        """Called before the first, between, and after the last pass: verify, dump, time."""
        args = self.args
        if done is not None and args.time_passes:
            self._print(f"Pass {done.name} took {time.perf_counter() - self._started:.6f} seconds")
        if done is not None and args.print_ir_after_all:
            self._dump(f"After {done.spec()}", module)
        if args.print_ir_after_change:
            now = str(module)
            if done is not None and now != self._dumped:
                self._dump(f"After {done.spec()}", module)
            self._dumped = now
        if not args.disable_verify:
            verify_module(module)
        if coming is not None and (
            args.print_ir_before_all or (done and args.print_between_passes)
        ):
            self._dump(f"Before {coming.spec()}", module)
        self._started = time.perf_counter()

    def _dump(self, title: str, module: ModuleOp) -> None:
        self._print(f"// -----// IR Dump {title} //----- //")
        Printer(sys.stderr, print_debuginfo=self.args.print_debuginfo).print_op(module)
        self._print("\n")

    @staticmethod
    def _print(text: str) -> None:
        sys.stderr.write(text + "\n")


def _usage_error(message: str) -> NoReturn:
    raise OptionError(message)


def _last_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1].strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code; `--help` and `--version` exit by themselves."""
    stock_post_init = Attribute.__post_init__  # --disable-verify replaces it for the whole process
    tool: DitronOpt | None = None
    try:
        tool = DitronOpt("Ditron's optimizer driver: runs passes on IR text", argv)
        with located_diagnostics():
            tool.run()
    except KeyboardInterrupt:
        return 130
    except (ParseError, DiagnosticException) as error:
        name = tool.get_input_name() if tool else "<text>"
        return _fail(1, describe_fault(error, name))
    except DitronError as error:
        usage = isinstance(error, OptionError | InputError)
        return _fail(2 if usage else 1, f"{error.where or 'ditron-opt'}: error: {error.message}")
    finally:
        Attribute.__post_init__ = stock_post_init
    return 0


def _fail(code: int, message: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(message.rstrip() + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
