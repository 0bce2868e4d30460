"""`task.call`: a user's tile kernel as an op of a task program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from xdsl.dialects.builtin import FlatSymbolRefAttrConstr, SymbolRefAttr
from xdsl.ir import Data, SSAValue
from xdsl.irdl import irdl_attr_definition, irdl_op_definition, prop_def, var_operand_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import SymbolTable
from xdsl.utils.exceptions import VerifyException

from ditron.ir import core
from ditron.ir.attrs import TensorType
from ditron.ir.task_program import TAIL, CommonArgs, PureOp, build, scope_of, spec_of
from ditron.plan import calls
from ditron.plan.calls import Cuts
from ditron.plan.placement import Scope
from ditron.plan.placement_rules import Rule
from ditron.plan.spec import TensorSpec


@irdl_attr_definition
class CutsAttr(Data[tuple[Cuts, ...]]):
    """`#task.cuts<[0, 1], [1], [0, *]>`: the result's dim that each operand's dim is cut along.

    One list an operand; `*` is a dimension that every tile reads whole.
    """

    name = "task.cuts"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Cuts, ...]:
        def dim() -> int | None:
            if parser.parse_optional_punctuation("*") is not None:
                return None
            return parser.parse_integer(allow_boolean=False, allow_negative=False)

        def cuts() -> Cuts:
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, dim))

        return tuple(parser.parse_comma_separated_list(parser.Delimiter.ANGLE, cuts))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            lists = (", ".join("*" if d is None else str(d) for d in cut) for cut in self.data)
            printer.print_string(", ".join(f"[{text}]" for text in lists))


@irdl_op_definition
class CallOp(PureOp):
    """Run a `core.func` on each tile of the result; its last view is the result's tile.

    `%h = task.call @bias_gelu(%x, %b) cuts <[0, 1], [1]> : ...`: operand i is the kernel's view i,
    cut as `cuts` says into tiles of that view's sizes.
    """

    name = "task.call"

    kernel = prop_def(FlatSymbolRefAttrConstr)
    args = var_operand_def(TensorType)
    cuts_attr = prop_def(CutsAttr, prop_name="cuts")

    assembly_format = f"$kernel `(` $args `)` `cuts` $cuts {TAIL} type($args) `->` type($result)"

    def __init__(
        self,
        kernel: str,
        args: Sequence[SSAValue],
        cuts: Sequence[Cuts],
        result: TensorSpec,
        **common: Unpack[CommonArgs],
    ) -> None:
        scope = scope_of(args, common)
        spec = calls.call(kernel, [spec_of(arg) for arg in args], result, cuts, scope)
        props = {"kernel": SymbolRefAttr(kernel), "cuts": CutsAttr(tuple(cuts))}
        build(self, [args], spec, common, **props)

    @property
    def kernel_name(self) -> str:
        return self.kernel.string_value()

    @property
    def cuts(self) -> tuple[Cuts, ...]:
        return self.cuts_attr.data

    def label(self) -> str:
        return self.op_name.data if self.op_name else self.kernel_name

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return calls.call(self.kernel_name, operands, spec_of(self.result), self.cuts, scope)

    def placement_rule(self) -> Rule:
        return calls.call_rule(self.kernel_name, self.cuts)

    def function(self) -> core.FuncOp:
        """The kernel, which stands beside the task program.

        Raises:
            VerifyException: it does not.
        """
        program = self.parent_op()
        found = SymbolTable.lookup_symbol(program, self.kernel) if program else None
        if not isinstance(found, core.FuncOp):
            raise VerifyException(f"task.call: no core.func @{self.kernel_name} to call")
        return found

    def verify_(self) -> None:
        if len(self.cuts) != len(self.args):
            raise VerifyException(f"task.call cuts {len(self.args)} operands, got {self.cuts_attr}")
        super().verify_()
        program = self.parent_op()
        if program is not None and program.parent_op() is not None:
            self._verify_kernel(self.function())

    def _verify_kernel(self, kernel: core.FuncOp) -> None:
        views = kernel.view_types
        specs = [spec_of(value) for value in (*self.args, self.result)]
        tile = views[-1].dims if views else ()
        if len(views) != len(specs) or len(tile) != len(specs[-1].shape):
            raise VerifyException(
                f"task.call: @{self.kernel_name} takes {len(views)} views, the last of"
                f" {len(tile)} dimensions, got {len(specs)} tensors"
            )
        cuts: tuple[Cuts, ...] = (*self.cuts, tuple(range(len(tile))))
        for i, (view, spec, cut) in enumerate(zip(views, specs, cuts, strict=True)):
            sizes = zip(spec.shape, cut, strict=True)
            dims = [max(size, 1) if d is None else tile[d] for size, d in sizes]
            if view != core.ViewType.get(dims, TensorType.of(spec).element_type):
                raise VerifyException(
                    f"task.call: view {i} of @{self.kernel_name} is {view}, which is no tile of"
                    f" {TensorType.of(spec)}"
                )
            result = i == len(views) - 1
            if kernel.writes(i) != result or kernel.reads(i) == result:
                raise VerifyException(
                    f"task.call: @{self.kernel_name} loads all views but the last, and stores that"
                )
