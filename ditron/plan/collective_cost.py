"""What each algorithm of each collective costs by itself.

Closed forms on top of `plan/cost.py`; times in us. Letters: n ranks, s the bytes of one rank's
shard, c those of a chunk, r the ranks of a node.

| collective | algorithm | a rank sends | in how many steps | and adds |
|---|---|---|---|---|
| all_gather | mesh | (n - 1) s | 1 | |
| | ring | (n - 1) s | n - 1 | |
| | bruck | (n - 1) s | ceil(log2 n) | |
| | hierarchical | (n / r - 1) s to other nodes, (n - n / r) s in its own | 2 | |
| reduce_scatter | mesh | (n - 1) s | 1 | n shards |
| | ring, in float32 | (n - 1) s | n - 1 | n - 1 times 2 shards |
| all_reduce | one-shot | (n - 1) n s | 1 | n tensors |
| | two-shot | 2 (n - 1) s | 2 | n shards |
| | ring, in float32 | 2 (n - 1) s | 2 (n - 1) | n - 1 times 2 shards |
| all_to_all, parts of s | mesh | (n - 1) s | 1 | |
| | pairwise-xor | (n - 1) s to one peer at a time | 1 | |
| broadcast of s | flat | (n - 1) s by the root | 1 | |
| | tree | ceil(log2 n) s by the root | ceil(log2 n) | |
| | chain | s, chunk by chunk | n - 1 | |
| shift | mesh | s | 1 | |

In place, nothing is sent: tiles read peers' memory, at the link's rate unless memory is shared.

Source: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ditron.plan.cost import (
    TiledCost,
    arrival_us,
    chunk_us,
    core_share,
    far_link,
    is_serial,
    local_copy_us,
    near_link,
)
from ditron.plan.machine import Machine
from ditron.plan.traffic import (
    Message,
    Traffic,
    additions,
    in_steps,
    remote_us,
    spread,
    with_own,
)

Rule = Callable[[Machine, Message], Traffic]


def traffic_of(machine: Machine, message: Message, algorithm: str, transfer: str) -> Traffic | None:
    """The price of an algorithm; None where no closed form is known."""
    rule = RULES.get((message.kind, algorithm, transfer))
    if rule is None:
        return None
    if message.ranks == 1 or message.shard_bytes == 0:
        return Traffic(0.0, 0.0, 0.0)
    return rule(machine, message)


def _gather_mesh(machine: Machine, this: Message) -> Traffic:
    return with_own(machine, this, spread(machine, this))


def _gather_ring(machine: Machine, this: Message) -> Traffic:
    n = this.ranks
    return with_own(machine, this, in_steps(machine, this, n - 1, n - 1))


def _gather_bruck(machine: Machine, this: Message) -> Traffic:
    n = this.ranks
    return with_own(machine, this, in_steps(machine, this, math.ceil(math.log2(n)), n - 1))


def _gather_hierarchical(machine: Machine, this: Message) -> Traffic:
    n, r = this.ranks, min(this.ranks, machine.ranks_a_node)
    nodes = -(-n // r)
    across = (nodes - 1) * this.chunks
    within = (r - 1) * nodes * this.chunks
    link = near_link(machine, n, r - 1)
    far_us = across * chunk_us(machine, this.chunk_bytes, far_link(machine)) if across else 0.0
    near_us = within * chunk_us(machine, this.chunk_bytes, link)
    wire = far_us + near_us if is_serial(machine) else max(far_us, near_us)
    edge = arrival_us(machine, this.chunk_bytes, link)
    hop = arrival_us(machine, this.chunk_bytes, far_link(machine)) if across else 0.0
    return with_own(machine, this, Traffic(wire, hop, edge, transfers=across + within))


def _gather_in_place(machine: Machine, this: Message) -> Traffic:
    read = (this.ranks - 1) * this.shard_bytes * this.reads
    remote = remote_us(machine, this.ranks, read)
    return Traffic(remote, _handed_over_us(machine), machine.costs.signal_us)


def _handed_over_us(machine: Machine) -> float:
    """Until peers may read a rank's memory, and until it may be written again."""
    return 0.0 if is_serial(machine) else 2 * machine.costs.signal_us


def _scatter_mesh(machine: Machine, this: Message) -> Traffic:
    return replace(spread(machine, this), adds=additions(machine, this, this.ranks))


def _scatter_in_place(machine: Machine, this: Message) -> Traffic:
    remote = remote_us(machine, this.ranks, (this.ranks - 1) * this.shard_bytes)
    adds = additions(machine, this, this.ranks)
    return Traffic(remote, _handed_over_us(machine), machine.costs.signal_us, adds)


def _wide(this: Message) -> Message:
    """The same with float32 on the wire."""
    return replace(this, dtype="f32")


def _scatter_ring(machine: Machine, this: Message) -> Traffic:
    wide, steps = _wide(this), this.ranks - 1
    moved = in_steps(machine, wide, steps, steps)
    each = additions(machine, wide, 2)
    adds = TiledCost(each.us * steps, each.tile_us, each.tasks * steps)
    return replace(moved, adds=adds)


def _reduce_one_shot(machine: Machine, this: Message) -> Traffic:
    moved = spread(machine, this, shards=this.ranks)
    own = local_copy_us(machine, this.shard_bytes * this.ranks)
    adds = additions(machine, this, this.ranks, shards=this.ranks)
    return replace(moved, wire_us=moved.wire_us + own, adds=adds, transfers=moved.transfers + 1)


def _reduce_one_shot_in_place(machine: Machine, this: Message) -> Traffic:
    remote = remote_us(machine, this.ranks, (this.ranks - 1) * this.shard_bytes * this.ranks)
    adds = additions(machine, this, this.ranks, shards=this.ranks)
    return Traffic(remote, _handed_over_us(machine), machine.costs.signal_us, adds)


def _both(machine: Machine, first: Traffic, second: Traffic) -> Traffic:
    """A reduce-scatter, then an all-gather of the parts, chunk by chunk."""
    return Traffic(
        first.wire_us + second.wire_us,
        first.steps_us + second.steps_us + second.edge_us,
        first.edge_us,
        first.adds + second.adds,
        first.transfers + second.transfers,
    )


def _reduce_two_shot(machine: Machine, this: Message) -> Traffic:
    return _both(machine, _scatter_mesh(machine, this), spread(machine, this))


def _reduce_two_shot_in_place(machine: Machine, this: Message) -> Traffic:
    return _both(machine, _scatter_in_place(machine, this), spread(machine, this))


def _reduce_ring(machine: Machine, this: Message) -> Traffic:
    steps = this.ranks - 1
    return _both(machine, _scatter_ring(machine, this), in_steps(machine, this, steps, steps))


def _exchange_mesh(machine: Machine, this: Message) -> Traffic:
    return with_own(machine, this, spread(machine, this))


def _exchange_xor(machine: Machine, this: Message) -> Traffic:
    return with_own(machine, this, in_steps(machine, this, 1, this.ranks - 1))


def _of_root(machine: Machine, this: Message, traffic: Traffic) -> Traffic:
    """Only one rank at a time is at work: on shared cores it need not share its own."""
    if not is_serial(machine):
        return traffic
    return replace(traffic, wire_us=traffic.wire_us * core_share(machine, this.processes))


def _broadcast_flat(machine: Machine, this: Message) -> Traffic:
    return _of_root(machine, this, spread(machine, this))


def _broadcast_tree(machine: Machine, this: Message) -> Traffic:
    steps = math.ceil(math.log2(this.ranks))
    return _of_root(machine, this, in_steps(machine, this, steps, steps))


def _broadcast_chain(machine: Machine, this: Message) -> Traffic:
    hops = this.ranks - 1
    moved = in_steps(machine, this, hops, 1)
    if is_serial(machine):
        return _of_root(machine, this, in_steps(machine, this, hops, hops))
    # The last chunk still goes through every rank.
    rest = (hops - 1) * (moved.edge_us - moved.steps_us / max(hops - 1, 1))
    return replace(moved, steps_us=moved.steps_us + rest)


def _shift(machine: Machine, this: Message) -> Traffic:
    return in_steps(machine, this, 1, 1)


RULES: dict[tuple[str, str, str], Rule] = {
    ("all_gather", "mesh", "push"): _gather_mesh,
    ("all_gather", "mesh", "pull"): _gather_mesh,
    ("all_gather", "mesh", "in-place"): _gather_in_place,
    ("all_gather", "ring", "push"): _gather_ring,
    ("all_gather", "bruck", "push"): _gather_bruck,
    ("all_gather", "hierarchical", "push"): _gather_hierarchical,
    ("reduce_scatter", "mesh", "push"): _scatter_mesh,
    ("reduce_scatter", "mesh", "in-place"): _scatter_in_place,
    ("reduce_scatter", "ring", "push"): _scatter_ring,
    ("all_reduce", "one-shot", "push"): _reduce_one_shot,
    ("all_reduce", "one-shot", "in-place"): _reduce_one_shot_in_place,
    ("all_reduce", "two-shot", "push"): _reduce_two_shot,
    ("all_reduce", "two-shot", "in-place"): _reduce_two_shot_in_place,
    ("all_reduce", "ring", "push"): _reduce_ring,
    ("all_to_all", "mesh", "push"): _exchange_mesh,
    ("all_to_all", "pairwise-xor", "push"): _exchange_xor,
    ("broadcast", "flat", "push"): _broadcast_flat,
    ("broadcast", "tree", "push"): _broadcast_tree,
    ("broadcast", "chain", "push"): _broadcast_chain,
    ("shift", "mesh", "push"): _shift,
}
