"""Core kernels as torch code: one plain Python function a kernel, to be read as well as run.

`core.func @mm(%a: !core.view<128x64xbf16>, ...)` with load, load, dot, cast, store becomes

    def mm(a, b, y):
        \"\"\"a: 128x64xbf16, b: 64x256xbf16, y: 128x256xbf16\"\"\"
        v0 = torch.mm(a.float(), b.float())
        y.copy_(v0)

Torch multiplies bf16 and f16 about 60 times slower than f32 on a CPU, so dots widen first; a
result goes straight to its view (`out=`) and temporaries are reused where nobody can tell.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, Operation, SSAValue

from ditron.errors import PlanError
from ditron.ir import core
from ditron.ir.attrs import dtype_name
from ditron.plan.dtypes import DTYPES
from ditron.runtime.kernels import compile_kernels

__all__ = ["compile_kernels", "emit_kernels"]


def emit_kernels(funcs: Iterable[core.FuncOp]) -> str:
    """Python source that defines all kernels and a table `KERNELS` of them by symbol name."""
    functions: dict[str, str] = {}
    texts = ["import torch\n"]
    for func in funcs:
        name = _fresh(func.kernel_name, set(functions.values()))
        functions[func.kernel_name] = name
        texts.append(_Kernel(func, name).text())
    rows = "".join(f"    {symbol!r}: {name},\n" for symbol, name in functions.items())
    texts.append(f"KERNELS = {{\n{rows}}}\n")
    return "\n\n".join(texts)


def _fresh(wish: str, taken: set[str]) -> str:
    """A Python name like `wish` that is not taken."""
    name = re.sub(r"\W", "_", wish, flags=re.ASCII)
    if not name.isidentifier() or keyword.iskeyword(name) or name in ("torch", "KERNELS"):
        name = f"k_{name}"
    while name in taken:
        name += "_"
    return name


@dataclass(frozen=True)
class _Rule:
    """Code of an op: a new tensor; written to `out`; or over its own first operand."""

    fresh: str
    into: str = ""
    in_place: str = ""


_RULES: dict[type[Operation], _Rule] = {
    core.DotOp: _Rule("torch.mm({0}, {1})", "torch.mm({0}, {1}, out={out})"),
    core.AddOp: _Rule("torch.add({0}, {1})", "torch.add({0}, {1}, out={out})", "{0}.add_({1})"),
    core.SubOp: _Rule("torch.sub({0}, {1})", "torch.sub({0}, {1}, out={out})", "{0}.sub_({1})"),
    core.MulOp: _Rule("torch.mul({0}, {1})", "torch.mul({0}, {1}, out={out})", "{0}.mul_({1})"),
    core.DivOp: _Rule("torch.div({0}, {1})", "torch.div({0}, {1}, out={out})", "{0}.div_({1})"),
    core.LeOp: _Rule("torch.le({0}, {1})"),
    core.WhereOp: _Rule("torch.where({0}, {1}, {2})"),
    core.SumOp: _Rule("{0}.sum({dim}, keepdim=True)"),
    core.MaxOp: _Rule("{0}.amax({dim}, keepdim=True)"),
    core.ArgmaxOp: _Rule("{1}.expand({0}.shape).gather({dim}, {0}.argmax({dim}, keepdim=True))"),
    core.RsqrtOp: _Rule("torch.rsqrt({0})", in_place="{0}.rsqrt_()"),
    core.SiluOp: _Rule("torch.nn.functional.silu({0})"),
    core.GeluOp: _Rule("torch.nn.functional.gelu({0})"),
    core.ReluOp: _Rule("torch.relu({0})", in_place="{0}.relu_()"),
    core.ExpOp: _Rule("torch.exp({0})", "torch.exp({0}, out={out})", "{0}.exp_()"),
    core.ConstantOp: _Rule("torch.full({shape}, {number}, dtype={dtype})"),
    core.IndexOp: _Rule("torch.full({shape}, {0}, dtype={dtype})"),
    core.IotaOp: _Rule("torch.arange({0}.shape[{dim}], dtype={dtype}){index}"),
    core.ExpandDimsOp: _Rule("{0}{index}"),
    core.TransposeOp: _Rule("{0}.transpose({dims})"),
    core.SwapHalvesOp: _Rule("{0}.roll({0}.shape[{dim}] // 2, {dim})"),
    core.GatherOp: _Rule("gather({1}, {0})"),
    core.LoadAtOp: _Rule("{0}.narrow({dim}, int({1}), {size})"),
    core.CastOp: _Rule("{0}.to({dtype})", "{out}.copy_({0})"),  # copy_ rounds as `to` does
}


SEEN_OTHERWISE = (core.ExpandDimsOp, core.TransposeOp, core.LoadAtOp)
"""What makes no tile of its own: the same memory, seen otherwise."""


class _Kernel:
    """Emits one kernel."""

    def __init__(self, func: core.FuncOp, name: str) -> None:
        self.name = name
        self.ops = list(func.body.block.ops)
        self.args = func.body.block.args
        self.lines: list[str] = []
        self.names: dict[SSAValue, str] = {}
        self.temporaries: set[SSAValue] = set()  # tiles that are no view of anything
        self.defined = 0
        for arg in self.args:
            self.names[arg] = _fresh(arg.name_hint or f"a{arg.index}", set(self.names.values()))

    def text(self) -> str:
        for op in self.ops:
            if isinstance(op, core.StoreOp):
                self._store(op)
            elif isinstance(op, core.StoreAtOp):
                tile, view, at = (self.names[o] for o in op.operands)
                self.lines.append(f"store_at({view}, {tile}, int({at}), {op.dim_index})")
            elif isinstance(op, core.LoadOp):
                self._load(op)
            elif _absorbing_store(op) is None:
                self._assign(op)
        views = ", ".join(f"{self.names[arg]}: {_view_text(arg)}" for arg in self.args)
        lines = [f"def {self.name}({', '.join(self.names[arg] for arg in self.args)}):"]
        lines += [f"    {line}" for line in (f'"""{views}"""', *self.lines)]
        return "\n".join(lines) + "\n"

    def _load(self, op: core.LoadOp) -> None:
        """A tile is its view itself, unless a store may change that before the last use."""
        last = max((self._position(user) for user in _users(op.result)), default=0)
        if any(isinstance(earlier, core.StoreOp) for earlier in self.ops[:last]):
            self._define(op.result, f"{self.names[op.view]}.clone()")
        else:
            self.names[op.result] = self.names[op.view]

    def _position(self, op: Operation) -> int:
        """Where an op's code stands: with the store that absorbs it, if one does."""
        return self.ops.index(_absorbing_store(op) or op)

    def _store(self, op: core.StoreOp) -> None:
        view, maker = self.names[op.view], op.tile.owner
        if isinstance(maker, Operation) and _absorbing_store(maker) is op:
            self.lines.append(_rule(maker).into.format(*self._operands(maker), out=view))
        else:
            self.lines.append(f"{view}.copy_({self.names[op.tile]})")

    def _assign(self, op: Operation) -> None:
        (result,) = op.results
        rule = _rule(op)
        overwrites = rule.in_place and self._may_overwrite(op.operands[0], result)
        pattern = rule.in_place if overwrites else rule.fresh
        self._define(result, pattern.format(*self._operands(op), **_words(op)))
        if isinstance(op, SEEN_OTHERWISE):
            self.temporaries.discard(result)  # it is its operand, seen otherwise

    def _may_overwrite(self, operand: SSAValue, result: SSAValue) -> bool:
        fits = operand.type == result.type and _used_once(operand)
        return operand in self.temporaries and fits

    def _define(self, value: SSAValue, expression: str) -> None:
        name = _fresh(f"v{self.defined}", set(self.names.values()))
        self.defined += 1
        self.names[value] = name
        self.temporaries.add(value)
        self.lines.append(f"{name} = {expression}")

    def _operands(self, op: Operation) -> list[str]:
        names = [self.names[operand] for operand in op.operands]
        if isinstance(op, core.DotOp):
            wide = [isinstance(core.tile_type(o).element_type, Float32Type) for o in op.operands]
            names = [n if w else f"{n}.float()" for n, w in zip(names, wide, strict=True)]
            turn = ".t()" if len(core.tile_type(op.result).dims) == MATRIX else ".mT"
            names[1] += turn if op.transpose_b is not None else ""
        return names


def _users(value: SSAValue) -> Iterator[Operation]:
    """The ops that read a tile, or what is the tile seen otherwise."""
    for use in value.uses:
        yield use.operation
        if isinstance(use.operation, SEEN_OTHERWISE):
            yield from _users(use.operation.result)


def _words(op: Operation) -> dict[str, str]:
    """What a rule may say of an op besides its operands."""
    tile = core.tile_type(op.results[0])
    words = {"dtype": f"torch.{_torch_name(tile.element_type)}", "shape": repr(tile.dims)}
    if isinstance(op, core.ConstantOp):
        number = op.number
        words["number"] = repr(number) if math.isfinite(number) else f'float("{number}")'
    if isinstance(op, core.ExpandDimsOp):
        words["index"] = f"[{', '.join(['None'] * op.added)}]"
    if isinstance(op, core.AlongDim):
        words["dim"] = str(op.dim_index)
    if isinstance(op, core.IotaOp):
        parts = [":" if d == op.dim_index else "None" for d in range(len(tile.dims))]
        words["index"] = f"[{', '.join(parts)}]"
    if isinstance(op, core.LoadAtOp):
        words["size"] = str(tile.dims[op.dim_index])
    if isinstance(op, core.TransposeOp):
        words["dims"] = ", ".join(map(str, op.dims))
    return words


_STACKS = _Rule("torch.matmul({0}, {1})", "torch.matmul({0}, {1}, out={out})")
MATRIX = 2


def _rule(op: Operation) -> _Rule:
    if isinstance(op, core.DotOp) and len(core.tile_type(op.result).dims) > MATRIX:
        return _STACKS
    rule = _RULES.get(type(op))
    if rule is None:
        msg = f"the CPU has no code for {op.name}"
        raise PlanError(msg)
    return rule


def _used_once(value: SSAValue) -> bool:
    return sum(1 for _ in value.uses) == 1


def _absorbing_store(op: Operation) -> core.StoreOp | None:
    """The store, and only use, that has `op` write its result straight to the view.

    Not to a view that the kernel also loads: torch.mm would read what it writes.
    """
    rule = _RULES.get(type(op))
    if rule is None or not rule.into or not _used_once(op.results[0]):
        return None
    (use,) = op.results[0].uses
    store = use.operation
    if not isinstance(store, core.StoreOp):
        return None
    loaded = any(isinstance(other.operation, core.LoadOp) for other in store.view.uses)
    return None if loaded else store


def _torch_name(element: Attribute) -> str:
    return DTYPES[dtype_name(element)].torch_name


def _view_text(arg: SSAValue) -> str:
    if not isinstance(arg.type, core.ViewType):
        return "index"
    return "x".join([*map(str, arg.type.dims), dtype_name(arg.type.element_type)])
