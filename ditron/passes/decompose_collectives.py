"""decompose-collectives: each collective becomes grids of chunk transfers and reductions.

    device.collective all_gather %x -> %xg dim 0 size 512 choice #task.choice<mesh push chunk 64>
    ... -> device.grid @xg_own engine copy in (%c = 2) { ... device.copy ... } device.grid @xg_push
    engine copy in (%p = 3, %c = 2) {
      %peer = device.index (%me + %p + 1) mod 4
      %src = device.view %x[%c * 64, 0] [64, 256] : ...
      %dst = device.view %xg[%me * 128 + %c * 64, 0] [64, 256] at %peer : ...
      device.put %src -> %dst
    }

Needs: device IR with `device.collective`. Ensures: none is left; buffers that the host fills or
reads and that peers touch are handed over by `device.acquire` at the start of a launch and
`device.release` at its end. Kernels that say the same are one (`share_kernels`).

In place, an all_gather moves nothing: the views of its users turn to the owner's shard (`at` the
owner), and the gathered buffer disappears. A reduction adds float32 in the order owner + 1, ...,
owner where one rank owns the result, and 0, ..., n - 1 where every rank adds for itself (one-shot),
so that all replicas hold the same bits.

Source: the algorithms are the mesh and ring collectives of Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH" (2005); the order of addition is
ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from ditron.analysis.symbols import device_program
from ditron.errors import PlanError
from ditron.ir import device
from ditron.ir.locations import op_location
from ditron.passes.collective_gathers import GATHERS
from ditron.passes.collective_grids import Collective, Rule
from ditron.passes.collective_moves import MOVES
from ditron.passes.collective_sums import SUMS
from ditron.passes.grids import GridBuilder, Names, names_in
from ditron.passes.share_kernels import share_kernels
from ditron.plan.tables import Role


@dataclass(frozen=True)
class DecomposeCollectivesPass(ModulePass):
    """See the module's docstring.

    `chunk` > 0 overrides every choice (rows of a transfer); `node_ranks` is how many ranks share a
    node, for hierarchical algorithms (0: all of them).
    """

    name = "decompose-collectives"

    chunk: int = 0
    node_ranks: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = device_program(op)
        names = names_in(program)
        for child in list(program.body.block.ops):
            if isinstance(child, device.CollectiveOp):
                decompose(Collective(child, program, op, names, self.chunk, self.node_ranks))
        _hand_over_shared_buffers(program, names)
        share_kernels(op)


def decompose(this: Collective) -> None:
    """Replace one collective by its grids."""
    choice = this.op.choice
    key = (this.op.kind.data, choice.algorithm, choice.transfer)
    rule = DECOMPOSITIONS.get(key)
    if rule is None:
        raise PlanError(f"no way to decompose {' '.join(key)}", op_location(this.op))
    rule(this)
    this.op.detach()
    this.op.erase()


DECOMPOSITIONS: Mapping[tuple[str, str, str], Rule] = {**GATHERS, **SUMS, **MOVES}


def _hand_over_shared_buffers(program: device.ProgramOp, names: Names) -> None:
    """Acquire and release the host's buffers that peers touch."""
    block = program.body.block
    for buffer in [op for op in block.ops if isinstance(op, device.BufferOp)]:
        views = (use.operation for use in buffer.result.uses)
        touched = any(isinstance(v, device.ViewOp) and v.at is not None for v in views)
        if buffer.role.data == Role.SCRATCH or not touched:
            continue
        first_grid = next(op for op in block.ops if isinstance(op, device.GridOp))
        for verb, op in (("acquire", device.AcquireOp), ("release", device.ReleaseOp)):
            name = names.fresh(f"{verb}_{buffer.buffer_name.data}")
            grid = GridBuilder(name, "host", {}, buffer.location)
            grid.add(op(buffer.result))
            if verb == "acquire" and _stands_before(buffer, first_grid):
                block.insert_op_before(grid.finish(), first_grid)
            elif verb == "acquire":
                block.insert_op_after(grid.finish(), buffer)
            else:
                block.add_op(grid.finish())


def _stands_before(op: Operation, other: Operation) -> bool:
    at = op.next_op
    while at is not None and at is not other:
        at = at.next_op
    return at is other
