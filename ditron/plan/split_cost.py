"""Into how many parts it pays to cut what a few tasks sum by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ditron.plan.cost import stream_us
from ditron.plan.machine import Machine

LEAST_PART = 16
"""Elements of a part: as many as a matrix unit sums at once."""


@dataclass(frozen=True)
class LongSum:
    """A grid whose tasks read much and make little, on one rank.

    Attributes:
        tasks: how many there are.
        length: elements that each sums over.
        read_bytes: of memory, for one of those.
        dtype: of what is read.
        joins: tasks that add up the parts, if there are several.
        part_bytes: that each of those reads of a part.
        sizes: that parts can have; powers of two where none are given, as blocks of kernels are.
    """

    tasks: int
    length: int
    read_bytes: int
    dtype: str
    joins: int
    part_bytes: int
    sizes: Sequence[int] = ()


def split_answer(machine: Machine, one: LongSum) -> tuple[tuple[int, float], ...]:
    """Elements of a part and what they would cost, in us, the cheapest first.

    A task that only reads has its worker's share of the memory's rate; those of the join start
    when the last part is done.
    """
    sizes = one.sizes or [one.length, *_powers(one.length)]
    return tuple(sorted(((size, _us(machine, one, size)) for size in sizes), key=lambda f: f[1]))


def _powers(length: int) -> Iterator[int]:
    part = LEAST_PART
    while part < length:
        yield part
        part *= 2


def _us(machine: Machine, one: LongSum, part: int) -> float:
    parts = -(-one.length // part)
    each = stream_us(machine, one.dtype, float(part * one.read_bytes))
    us = -(-one.tasks * parts // machine.workers) * each
    if parts > 1:
        join = stream_us(machine, "f32", float(parts * one.part_bytes))
        us += machine.costs.next_us + -(-one.joins // machine.workers) * join
    return us
