"""lower-to-shmem: put, get, wait and notify become calls of a transport's library, one to one.

    device.put %src -> %dst
    device.notify %ready[%me] at %peer add 1 after put
    ->
    shmem.putmem %src -> %dst
    shmem.signal %ready[%me] at %peer add 1 after put

Needs: verified device IR. Ensures: the same plan; copies within a rank, kernels and hand-overs stay
as they are. A transport is a row of a capability table; what it lacks is refused here, with the op.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from ditron.analysis.symbols import device_program
from ditron.errors import OptionError
from ditron.ir import device, shmem
from ditron.ir.locations import op_location
from ditron.plan.tables import LIBRARY

TransportName = Literal["posix", "peer", "nvshmem", "rocshmem", "copy-engine"]


@dataclass(frozen=True)
class Transport:
    """What a transport can do: transfers, notify verbs, what they follow, access in place.

    `driven` are the engines whose tasks the host carries out itself, by calls on streams: these run
    one after another, so that a signal comes after whatever it is to follow, and can only set.
    `verbs` and `after` are those of kernels.
    """

    transfers: frozenset[str]
    verbs: frozenset[str]
    after: frozenset[str]
    in_place: bool
    driven: frozenset[str] = frozenset()


_BOTH, _VERBS = frozenset({"put", "get"}), frozenset({"add", "set"})
_ORDERED = frozenset({"end", "put", "fence", "quiet"})

TRANSPORTS: dict[TransportName, Transport] = {
    "posix": Transport(_BOTH, _VERBS, _ORDERED, in_place=True),
    "peer": Transport(
        _BOTH, _VERBS, frozenset({"end", "put"}), in_place=True, driven=frozenset({LIBRARY})
    ),
    "nvshmem": Transport(_BOTH, _VERBS, _ORDERED, in_place=True),
    "rocshmem": Transport(_BOTH, _VERBS, _ORDERED, in_place=True),
    "copy-engine": Transport(
        _BOTH,
        _VERBS,
        frozenset({"end", "put"}),
        in_place=False,
        driven=frozenset({"copy", "host", LIBRARY}),
    ),
}

# What to do about a lack, by its first word.
REMEDIES = {
    "put": "choose an algorithm that pulls",
    "get": "choose an algorithm that pushes",
    "signal": "let the kernel that computes raise it, give each transfer a slot of its own that it"
    " sets to 1, or choose another transport",
    "access": "choose an algorithm that pushes or pulls, or transport peer",
}

COUNTERPARTS: dict[type[Operation], type[Operation]] = {
    device.PutOp: shmem.PutmemOp,
    device.GetOp: shmem.GetmemOp,
    device.WaitOp: shmem.SignalWaitUntilOp,
    device.NotifyOp: shmem.SignalOp,
}


@dataclass(frozen=True)
class LowerToShmemPass(ModulePass):
    """See the module's docstring."""

    name = "lower-to-shmem"

    transport: TransportName = "posix"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        transport = TRANSPORTS[self.transport]
        for child in list(device_program(op).walk()):
            lack = _lack(child, transport)
            if lack is not None:
                raise OptionError(
                    f"transport {self.transport} has no {lack}: {REMEDIES[lack.split()[0]]}",
                    op_location(child),
                )
            counterpart = COUNTERPARTS.get(type(child))
            if counterpart is not None:
                _replace(child, counterpart)


def _lack(op: Operation, transport: Transport) -> str | None:
    match op:
        case device.PutOp() | device.GetOp():
            kind = op.name.removeprefix("device.")
            return None if kind in transport.transfers else kind
        case device.NotifyOp():
            return _lacking_signal(op, transport)
        case device.CallOp():
            remote = any(isinstance(v.owner, device.ViewOp) and v.owner.peer for v in op.views)
            return "access in place" if remote and not transport.in_place else None
        case _:
            return None


def _lacking_signal(op: device.NotifyOp, transport: Transport) -> str | None:
    grid = op.parent_op()
    assert isinstance(grid, device.GridOp)
    if grid.engine.data in transport.driven:
        amount = op.amount.value.data
        lack = "" if amount == 1 else f" {amount}"
        return f"signal {op.op.data}{lack}" if lack or op.op.data != "set" else None
    if op.op.data not in transport.verbs:
        return f"signal {op.op.data}"
    return None if op.after.data in transport.after else f"signal after {op.after.data}"


def _replace(op: Operation, counterpart: type[Operation]) -> None:
    new = counterpart.create(operands=list(op.operands), properties=dict(op.properties))
    new.location = op.location
    block = op.parent_block()
    assert block is not None
    block.insert_op_before(new, op)
    op.detach()
    op.erase()
