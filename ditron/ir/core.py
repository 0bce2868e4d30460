"""core: kernels on one tile, straight-line code on static shapes.

A `core.func` gets views (boxes of buffers, clipped at run time to what is really there) and loads,
computes on and stores tiles. It can touch nothing but its views, which is what the proofs rest on.

    core.func @matmul(%a: !core.view<128x64xbf16>, %b: !core.view<64x256xbf16>, ...) {
      %0 = core.load %a : !core.view<128x64xbf16>
      ...
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FunctionType, IndexType, StringAttr, SymbolNameConstraint
from xdsl.ir import Block, Dialect, Region, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from ditron.ir.core_compute import AddOp as AddOp
from ditron.ir.core_compute import ArgmaxOp as ArgmaxOp
from ditron.ir.core_compute import BinaryOp as BinaryOp
from ditron.ir.core_compute import CastOp as CastOp
from ditron.ir.core_compute import ConstantOp as ConstantOp
from ditron.ir.core_compute import DivOp as DivOp
from ditron.ir.core_compute import DotOp as DotOp
from ditron.ir.core_compute import ExpOp as ExpOp
from ditron.ir.core_compute import GeluOp as GeluOp
from ditron.ir.core_compute import IndexOp as IndexOp
from ditron.ir.core_compute import IotaOp as IotaOp
from ditron.ir.core_compute import LeOp as LeOp
from ditron.ir.core_compute import MaxOp as MaxOp
from ditron.ir.core_compute import MulOp as MulOp
from ditron.ir.core_compute import ReduceOp as ReduceOp
from ditron.ir.core_compute import ReluOp as ReluOp
from ditron.ir.core_compute import RsqrtOp as RsqrtOp
from ditron.ir.core_compute import SiluOp as SiluOp
from ditron.ir.core_compute import SubOp as SubOp
from ditron.ir.core_compute import SumOp as SumOp
from ditron.ir.core_compute import UnaryOp as UnaryOp
from ditron.ir.core_compute import WhereOp as WhereOp
from ditron.ir.core_moves import ExpandDimsOp as ExpandDimsOp
from ditron.ir.core_moves import SwapHalvesOp as SwapHalvesOp
from ditron.ir.core_moves import TransposeOp as TransposeOp
from ditron.ir.core_tiles import AlongDim as AlongDim
from ditron.ir.core_tiles import AtOp as AtOp
from ditron.ir.core_tiles import GatherOp as GatherOp
from ditron.ir.core_tiles import LoadAtOp as LoadAtOp
from ditron.ir.core_tiles import LoadOp as LoadOp
from ditron.ir.core_tiles import Shaped as Shaped
from ditron.ir.core_tiles import StoreAtOp as StoreAtOp
from ditron.ir.core_tiles import StoreOp as StoreOp
from ditron.ir.core_tiles import TileType as TileType
from ditron.ir.core_tiles import ViewType as ViewType
from ditron.ir.core_tiles import tile_type as tile_type


@irdl_op_definition
class FuncOp(IRDLOperation):
    """A kernel: one program a tile. Its arguments are views, then indices."""

    name = "core.func"
    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    def __init__(self, name: str, body: Region) -> None:
        super().__init__(properties={"sym_name": StringAttr(name)}, regions=[body])

    @staticmethod
    def empty(name: str, views: Sequence[ViewType], indices: int = 0) -> FuncOp:
        """A kernel with its arguments and no code yet."""
        return FuncOp(name, Region(Block(arg_types=[*views, *[IndexType()] * indices])))

    @property
    def kernel_name(self) -> str:
        return self.sym_name.data

    @property
    def view_types(self) -> tuple[ViewType, ...]:
        types = self.body.block.arg_types
        return tuple(t for t in types if isinstance(t, ViewType))

    @property
    def views(self) -> Sequence[SSAValue]:
        """The arguments that are views."""
        return self.body.block.args[: len(self.view_types)]

    @property
    def indices(self) -> Sequence[SSAValue]:
        """The arguments that are indices."""
        return self.body.block.args[len(self.view_types) :]

    @property
    def function_type(self) -> FunctionType:
        return FunctionType.from_lists(list(self.body.block.arg_types), [])

    def reads(self, arg: int) -> bool:
        """Whether argument `arg` is loaded from, or keeps part of what it held."""
        return any(not isinstance(u.operation, StoreOp) for u in self.body.block.args[arg].uses)

    def writes(self, arg: int) -> bool:
        """Whether argument `arg` is stored to."""
        uses = self.body.block.args[arg].uses
        return any(isinstance(u.operation, StoreOp | StoreAtOp) for u in uses)

    def verify_(self) -> None:
        for arg in self.body.block.args:
            index = isinstance(arg.type, IndexType) and arg in self.indices
            if not index and not isinstance(arg.type, ViewType):
                raise VerifyException(f"a kernel's arguments are views, got {arg.type}")
        for op in self.body.block.ops:
            if not isinstance(op, KERNEL_OPS):
                raise VerifyException(f"{op.name} cannot stand in a core.func")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.kernel_name)
        with printer.in_parens():
            printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)

    @classmethod
    def parse(cls, parser: Parser) -> FuncOp:
        name = parser.parse_symbol_name()
        args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
        return cls(name.data, parser.parse_region(args))


KERNEL_OPS = (
    LoadOp,
    StoreOp,
    GatherOp,
    LoadAtOp,
    StoreAtOp,
    ConstantOp,
    IndexOp,
    IotaOp,
    ExpandDimsOp,
    TransposeOp,
    SwapHalvesOp,
    DotOp,
    CastOp,
    SumOp,
    MaxOp,
    ArgmaxOp,
    AddOp,
    SubOp,
    MulOp,
    DivOp,
    LeOp,
    WhereOp,
    SiluOp,
    GeluOp,
    ReluOp,
    ExpOp,
    RsqrtOp,
)

Core = Dialect("core", [FuncOp, *KERNEL_OPS], [ViewType, TileType])
