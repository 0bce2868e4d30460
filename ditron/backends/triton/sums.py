"""Products, sums and greatest ones: blocks over whose axis a kernel sums, as Triton code.

One block where it holds all; else a loop that adds up blocks and sums those at its end. A product
of one row multiplies and adds in the plain way, since a matrix unit wants sixteen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Operation, SSAValue

from ditron.analysis.kernel_work import is_part, multiplies
from ditron.backends.triton.origins import origin
from ditron.backends.triton.parameters import TYPES
from ditron.backends.triton.views import Axes, Axis, Frame, turned
from ditron.ir import core
from ditron.ir.attrs import dtype_name

if TYPE_CHECKING:
    from ditron.backends.triton.values import KernelValues, Needed

# Rows and columns that a matrix unit takes at least.
LEAST = 16
# What is 0 where a view that is loaded ends, or nothing else is.
KEEPS_ZEROS = (core.CastOp, core.TransposeOp, core.ExpandDimsOp)


class Sums:
    """Writes them for the values of a kernel."""

    def __init__(self, values: KernelValues) -> None:
        self.values = values
        self.code, self.names = values.code, values.names

    def operands(self, op: Operation, axes: Axes, frame: Frame) -> list[Needed]:
        """The blocks that a block of the result is made of, along the axis that is summed."""
        match op:
            case core.DotOp() if _is_matrix(axes, frame):
                return self._matrices(op, axes, frame)
            case core.DotOp():
                return self._rows(op, axes, frame)
            case _:
                assert isinstance(op, core.ReduceOp | core.ArgmaxOp)
                if _has_one(op):
                    return [(operand, axes, frame) for operand in op.operands]
                axis, inner = self._reduced(op, axes, frame)
                along = (*axes[: op.dim_index], axis, *axes[op.dim_index + 1 :])
                return [(operand, along, inner) for operand in op.operands]

    def code_of(self, op: Operation, axes: Axes, frame: Frame) -> str:
        """Write what a block of the result takes; returns the block."""
        match op:
            case core.DotOp() if _is_matrix(axes, frame):
                return self._matrix_product(op, axes, frame)
            case core.DotOp():
                return self._row_product(op, axes, frame)
            case core.ReduceOp() | core.ArgmaxOp() if _has_one(op):
                return self.values.tile(op.operands[-1], axes, frame)
            case core.ArgmaxOp():
                return self._argmax(op, axes, frame)
            case _:
                assert isinstance(op, core.ReduceOp)
                return self._reduce(op, axes, frame)

    # Products of matrices, by the unit for them.

    def _matrices(self, op: core.DotOp, axes: Axes, frame: Frame) -> list[Needed]:
        rows, cols = (_full(axis) for axis in axes[-2:])
        ks = _full(self._depth(op, axes, frame, LEAST))
        stack, turned_ = axes[:-2], op.transpose_b is not None
        second = (cols, ks) if turned_ else (ks, cols)
        return [
            (op.lhs, (*stack, rows, ks), (rows, ks)),
            (op.rhs, (*stack, *second), second),
        ]

    def _depth(self, op: core.DotOp, axes: Axes, frame: Frame, least: int) -> Axis:
        last = len(core.tile_type(op.lhs).dims) - 1
        extent = self.values.extent(op.lhs, last)
        return self.values.inner(op, axes, extent, frame, None, least)

    def _matrix_product(self, op: core.DotOp, axes: Axes, frame: Frame) -> str:
        lhs, rhs = needed = self._matrices(op, axes, frame)
        ks = lhs[1][-1]
        rows, cols = axes[-2:]
        if not ks.looped:
            sums = self._multiply(op, needed, ks, "")
        else:
            sums = self.names.fresh("sums")
            self.code(f"{sums} = tl.zeros(({rows.block}, {cols.block}), tl.float32)")
            beside = self._sums_beside(op)
            added = self.names.fresh("added") if beside else ""
            if beside:
                self.code(f"{added} = tl.zeros(({rows.block}, {ks.block}), tl.float32)")
            ahead = self.values.blocks.stages if self.values.tiles.staged else 0
            with self.values.loop(replace(ks, full=False), needed, ahead):
                self.code(f"{sums} = {self._multiply(op, (lhs, rhs), ks, sums)}")
                if beside:
                    self.code(f"{added} += {self._whole(*lhs, ks)}")
            for one in beside:
                self.values.learn(one.result, axes, frame, f"tl.sum({added}, 1, keep_dims=True)")
        return sums if frame[0].index == rows.index else f"tl.trans({sums})"

    @staticmethod
    def _sums_beside(op: core.DotOp) -> list[core.SumOp]:
        """Sums of what a product sums, too, which its loop makes as well."""
        users = [use.operation for use in op.lhs.uses]
        last = len(core.tile_type(op.lhs).dims) - 1
        return [u for u in users if isinstance(u, core.SumOp) and u.dim_index == last]

    def _multiply(self, op: core.DotOp, needed: Sequence[Needed], ks: Axis, sums: str) -> str:
        """A product of two blocks, added to `sums` if there are any."""
        turn = ".T" if op.transpose_b is not None else ""
        a, b = (self._whole(*one, ks) for one in needed)
        if turn and not b.isidentifier():
            b = f"({b})"
        element = dtype_name(core.tile_type(op.lhs).element_type)
        added = f", {sums}" if sums else ""
        if element != "f32":
            return f"tl.dot({a}, {b}{turn}{added})"
        if not is_narrow(op.rhs):
            return f'tl.dot({a}, {b}{turn}{added}, input_precision="ieee")'
        # What was bfloat16 is that again without loss, and the other factor is two of it.
        high, low, narrow = (self.names.fresh(n) for n in ("high", "low", "narrow"))
        self.code(f"{high} = {a}.to(tl.bfloat16)")
        self.code(f"{low} = ({a} - {high}.to(tl.float32)).to(tl.bfloat16)")
        self.code(f"{narrow} = {b}.to(tl.bfloat16){turn}")
        return f"tl.dot({low}, {narrow}, tl.dot({high}, {narrow}{added}))"

    def _whole(self, value: SSAValue, axes: Axes, frame: Frame, ks: Axis) -> str:
        """An operand, 0 beyond what is summed over."""
        tile = self.values.tile(value, axes, frame)
        return tile if _keeps_zeros(value) else self.values.inside(ks, frame, tile, "0.0")

    # Products of a row, by multiplying and adding.

    def _rows(self, op: core.DotOp, axes: Axes, frame: Frame) -> list[Needed]:
        ks = self._depth(op, axes, frame, 1)
        *stack, rows, cols = axes
        second = (cols, ks) if op.transpose_b is not None else (ks, cols)
        inner = (*frame, ks)
        return [(op.lhs, (*stack, rows, ks), inner), (op.rhs, (*stack, *second), inner)]

    def _row_product(self, op: core.DotOp, axes: Axes, frame: Frame) -> str:
        needed = self._rows(op, axes, frame)
        inner = needed[0][2]
        ks = inner[-1]
        if not ks.looped:
            return f"tl.sum({self._scaled(op, needed, ks)}, {len(frame)})"
        sums = self.names.fresh("sums")
        self.code(f"{sums} = tl.zeros({_shape(inner)}, tl.float32)")
        along = needed[0][1]
        beside = {
            one: (one.operand, along, inner) for one in self._row_sums_beside(op, axes, frame)
        }
        added = {one: self.names.fresh("added") for one in beside}
        for name in added.values():
            self.code(f"{name} = tl.zeros({_shape((*_ones(frame), ks))}, tl.float32)")
        with self.values.loop(ks, [*needed, *beside.values()], self.values.blocks.stages):
            self.code(f"{sums} += {self._scaled(op, needed, ks)}")
            for one, block in beside.items():
                tile = self.values.inside(ks, inner, self.values.tile(*block), "0.0")
                self.code(f"{added[one]} += {tile}")
        for one, name in added.items():
            self.values.learn(one.result, axes, frame, f"tl.sum({name})")
        return f"tl.sum({sums}, {len(frame)})"

    def _row_sums_beside(self, op: core.DotOp, axes: Axes, frame: Frame) -> list[core.SumOp]:
        """Sums over what a product of one row sums over, too, which its loop makes as well."""
        func, last = self.values.func, len(core.tile_type(op.lhs).dims) - 1
        far = origin(func, op.lhs, last)
        return [
            one
            for one in func.body.block.ops
            if isinstance(one, core.SumOp)
            and set(core.tile_type(one.result).dims) == {1}
            and one.dim_index == last == len(core.tile_type(one.operand).dims) - 1
            and origin(func, one.operand, last) == far
            and isinstance(core.tile_type(one.operand).element_type, Float32Type)
            and not multiplies(one.operand)
            and not any(is_part(one.result, operand) for operand in op.operands)
            and not self.values.knows(one.result, axes, frame)
        ]

    def _scaled(self, op: core.DotOp, needed: Sequence[Needed], ks: Axis) -> str:
        wide = dtype_name(core.tile_type(op.lhs).element_type) == "f32"
        factors = [self._whole(*one, ks) for one in needed]
        return " * ".join(factors if wide else [f"{f}.to(tl.float32)" for f in factors])

    # Sums and greatest ones.

    def _reduced(
        self, op: core.ReduceOp | core.ArgmaxOp, axes: Axes, frame: Frame
    ) -> tuple[Axis, Frame]:
        """The axis that is summed over, and the frame of what is summed."""
        dim = op.dim_index
        extent = self.values.extent(op.operand, dim)
        axis = self.values.inner(op, axes, extent, frame, self._in(axes[dim], frame), 1)
        at = self._position(axes[dim], frame)
        if at is None:
            return axis, (*frame, axis)
        return axis, (*frame[:at], axis, *frame[at + 1 :])

    @staticmethod
    def _in(axis: Axis, frame: Frame) -> Axis | None:
        """An axis as the frame has it, if that has it."""
        return next((a for a in frame if axis.vector and a.index == axis.index), None)

    @staticmethod
    def _position(axis: Axis, frame: Frame) -> int | None:
        found = [i for i, a in enumerate(frame) if axis.vector and a.index == axis.index]
        return found[0] if found else None

    def _reduce(self, op: core.ReduceOp, axes: Axes, frame: Frame) -> str:
        axis, inner = self._reduced(op, axes, frame)
        (needed,) = self.operands(op, axes, frame)
        name = dtype_name(core.tile_type(op.operand).element_type)
        adds = isinstance(op, core.SumOp)
        nothing = _number(0 if adds else None, name)
        if not axis.looped:
            tile = self.values.inside(axis, inner, self.values.tile(*needed), nothing)
        else:
            tile = self.names.fresh("sums" if adds else "most")
            self.code(f"{tile} = tl.full({_shape(inner)}, {nothing}, {TYPES[name]})")
            with self.values.loop(axis, [needed], self.values.blocks.stages):
                block = self.values.inside(axis, inner, self.values.tile(*needed), nothing)
                both = f"{tile} + {block}" if adds else f"larger({tile}, {block})"
                self.code(f"{tile} = {both}")
        along, keep = self._along(axes[op.dim_index], frame)
        if adds:
            return f"tl.sum({tile}, {along}, keep_dims={keep})"
        return f"largest({tile}, {along}, {keep})"

    def _along(self, axis: Axis, frame: Frame) -> tuple[int, bool]:
        """The dimension of a block to sum over, and whether it stays."""
        at = self._position(axis, frame)
        return (len(frame), False) if at is None else (at, True)

    def _argmax(self, op: core.ArgmaxOp, axes: Axes, frame: Frame) -> str:
        """The label of the first of the greatest; in a loop, of each place in a block at first."""
        axis, inner = self._reduced(op, axes, frame)
        needed = self.operands(op, axes, frame)
        name, label = (dtype_name(core.tile_type(o).element_type) for o in op.operands)
        least = _number(None, name)
        where = f"{axis.index}{turned(axis, inner)}"
        if not axis.looped:
            tile, labels = (self.values.tile(*one) for one in needed)
            held = [self.values.inside(axis, inner, tile, least), labels, where]
        else:
            held = [self.names.fresh(wish) for wish in ("best", "label", "place")]
            shape = _shape(inner)
            for one, start, type_ in zip(
                held, (least, "0", "0"), (name, label, "i32"), strict=True
            ):
                self.code(f"{one} = tl.full({shape}, {start}, {TYPES[type_]})")
            with self.values.loop(axis, needed, self.values.blocks.stages):
                tile, labels = (self.values.tile(*one) for one in needed)
                tile = self.values.inside(axis, inner, tile, least)
                better = self.names.fresh("better")
                self.code(f"{better} = exceeds({tile}, {held[0]}) | ({axis.start} == 0)")
                for one, new in zip(held, (tile, labels, where), strict=True):
                    self.code(f"{one} = tl.where({better}, {new}, {one})")
        along, keep = self._along(axes[op.dim_index], frame)
        return f"first_largest({', '.join(held)}, {along}, {keep})"


def _is_matrix(axes: Axes, frame: Frame) -> bool:
    """Whether rows and columns of a product are vectors, so that the matrix unit makes it."""
    found = [axis.index for axis in axes[-2:] if axis.vector]
    return len(found) == len(frame) == 2 and sorted(found) == sorted(a.index for a in frame)


def _has_one(op: core.ReduceOp | core.ArgmaxOp) -> bool:
    """Whether there is one element along what it sums, which then is the sum; or its label."""
    return core.tile_type(op.operand).dims[op.dim_index] == 1


def _full(axis: Axis) -> Axis:
    """An axis along which an operand has whole blocks, as the matrix unit wants them."""
    return replace(axis, full=axis.total == 1)


def _shape(frame: Frame) -> str:
    """A block's shape in a frame."""
    sizes = [axis.block for axis in frame]
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _ones(frame: Frame) -> Frame:
    """A frame of blocks of one element."""
    return tuple(replace(axis, block=1) for axis in frame)


def _number(value: int | None, name: str) -> str:
    """A number of a dtype; None for the least."""
    if name == "f32":
        return 'float("-inf")' if value is None else "0.0"
    bits = {"i32": 31, "i64": 63}[name]
    return str(-(1 << bits) if value is None else value)


def _keeps_zeros(value: SSAValue) -> bool:
    op = value.owner
    if isinstance(op, core.LoadOp):
        return True
    return isinstance(op, KEEPS_ZEROS) and _keeps_zeros(op.operands[0])


def is_narrow(value: SSAValue) -> bool:
    """Whether float32 elements are bfloat16 widened, or 0."""
    op = value.owner
    match op:
        case core.CastOp():
            return dtype_name(core.tile_type(op.operand).element_type) == "bf16"
        case core.TransposeOp() | core.ExpandDimsOp():
            return is_narrow(op.operand)
        case core.WhereOp():
            return is_narrow(op.lhs) and is_narrow(op.rhs)
        case core.ConstantOp():
            return op.number == 0
        case _:
            return False
