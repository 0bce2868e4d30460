"""Task kinds: the code that grids share which differ in nothing but the memory that they work on.

A kind is a function of the persistent kernel, made as `backends/triton` makes a grid's kernel. What
a grid has of its own (where its buffers, slots and tables lie) are arguments, which come from the
grid's record in the queue. So the layers of a model share their kinds: two grids are of one kind if
their code is the same but for names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ditron.backends.triton.expressions import number
from ditron.backends.triton.grid import GridKernel
from ditron.backends.triton.names import RESERVED, nameless
from ditron.backends.triton.signals import Module
from ditron.ir import device
from ditron.plan.expr import Expr
from ditron.runtime.gpu_program import Argument, Launch, Site, What

# Bytes that places in a rank's memory are counted in: buffers and slots begin at such.
LINE_BYTES = 128
# What every kind is given, before what comes from the record.
GIVEN = ("lane", "first", "done", "age", "bases", "stamps", "control", "me")


class TaskKind(GridKernel):
    """Writes a grid as a function of the persistent kernel."""

    lane = "lane"
    staged = True

    def task_number(self, task: str) -> str:
        """Its row in the plan: `first` is that of the op's first task."""
        if self.plan.ranks == 1:
            return f"first + {task}" if self.order.tasks > 1 else "first"
        me = self.values.use(self.rank_value())
        return f"first + {me} * {self.order.tasks} + {task}"

    def site_number(self, site: int) -> str:
        """Counted from the kind's first."""
        return f"SITE + {site}"

    def peer_pointer(self, table: str, rank: Expr, type_: str) -> str:
        """A place in a peer's memory: what stands for a table is that place."""
        at = number(rank, self.values)
        base = "bases" if at == "0" else f"bases + {at}"
        return f"(tl.load({base}) + {table} * {LINE_BYTES}).to(tl.pointer_type({type_}))"

    def write_launches(self) -> None:
        """Given already."""

    def header(self, launch: Launch) -> str:
        """The function's head."""
        names = ", ".join((*GIVEN, *(a.name for a in record_fields(launch))))
        head = f"@triton.jit\ndef {self.name}({names}, SITE: tl.constexpr):\n"
        return f'{head}    """{self.summary()}"""\n    enter(lane, SITE)\n'.replace("'", '"')


def record_fields(launch: Launch) -> list[Argument]:
    """What a kind is given from its record."""
    return [a for a in launch.arguments if a.what not in (What.CONTROL, What.RANK, What.STAMPS)]


@dataclass(frozen=True)
class Kind:
    """Code, how it wants to be launched, its waits and notifies, the names that it chose itself.

    `first` is the first of the lanes that run it.
    """

    text: str
    launch: Launch
    sites: tuple[Site, ...]
    names: frozenset[str]
    first: int

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The same for grids of one kind: the code with its names numbered as they come."""
        return (
            nameless(self.text, self.names),
            *(f"{a.what} {a.type}" for a in record_fields(self.launch)),
            *(s.scope for s in self.sites),
        )


def kind_of(module: Module, grid: device.GridOp, op: int) -> Kind:
    """A grid's code as a kind of its own.

    Raises:
        PlanError: something that Triton code cannot do yet.
    """
    own = replace(module, sites=[])
    writer = TaskKind(own, grid, op)
    text, launch = writer.emit()
    names = frozenset({*writer.names.taken, writer.name} - RESERVED)
    return Kind(text, launch, tuple(own.sites), names, writer.order.first)
