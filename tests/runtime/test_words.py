"""Where things lie in memory, and thresholds from launch to launch."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from handmade import KERNELS, AgGemm, Maker

from ditron.errors import PlanError
from ditron.plan import tables as t
from ditron.runtime.heap import Heap, Layout
from ditron.runtime.kernels import compile_kernels
from ditron.runtime.lanes import Binder, rank_lanes
from ditron.runtime.rank import Rank
from ditron.runtime.words import notify_words, wait_words


def one_wait(copies: int, count: int, value: int, lag: int) -> tuple[t.Plan, Layout]:
    mk = Maker(1)
    mk.buffer("a", [(1,)])
    task = mk.task(mk.op("op", t.OpKind.ACQUIRE), 0, mk.lane(0, "sm"))
    slot = mk.slot("s", 0, 0, count, copies)
    task.waits.append((slot, value, lag))
    task.notifies.append((slot, 1, t.NotifyOp.SET, t.After.END))
    plan = mk.plan()
    return plan, Layout.of(plan)


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_thresholds_follow_the_definition(copies: int, lag: int) -> None:
    count, value = 5, 3
    plan, layout = one_wait(copies, count, value, lag)
    row = np.zeros(1, np.int64)
    for epoch in range(1, 12):
        words = wait_words(plan, layout, row, epoch)
        assert words.absent[0] == (epoch <= lag)
        if epoch > lag:
            assert words.want[0] == (epoch - lag - 1) // copies * count + value
            assert words.word[0] == layout.slot_word[0] + (epoch - lag - 1) % copies * 16
        sent = notify_words(plan, layout, row, epoch)
        assert sent.value[0] == (epoch - 1) // copies * count + 1
        assert sent.word[0] == layout.slot_word[0] + (epoch - 1) % copies * 16


@pytest.mark.parametrize(
    "shape", [AgGemm(ranks=1), AgGemm(ranks=1, copies=2, tiles=3)], ids=["single", "doubled"]
)
@pytest.mark.parametrize("before", [0, 2**31 - 4, 2**32 - 4, (2**31 - 1) // 3 - 2])
def test_counters_may_wrap(shape: AgGemm, before: int) -> None:
    """One rank in this process, as if it had made `before` launches."""
    plan = shape.plan()
    heap = Heap.private(plan)
    rank = Rank(plan, heap, compile_kernels(KERNELS), 0, os.getppid())
    rank.epoch = before
    for slot in range(len(plan.slots)):
        for copy in range(shape.copies):
            uses = (before + shape.copies - 1 - copy) // shape.copies
            total = np.int64(uses * int(plan.slots.count[slot])).astype(np.int32)
            heap.words[heap.layout.slot_word[slot] + copy * 16] = total
    _, w = shape.data()
    heap.local(1, 0).copy_(w)
    for seed in range(8):
        x, _ = shape.data(seed)
        for copy in range(shape.copies):
            heap.local(0, 0, copy).copy_(x)
        rank.launch()
        y = heap.local(3, 0, rank.epoch - 1)
        torch.testing.assert_close(y, x @ w, rtol=1e-4, atol=1e-5)


def test_segments_do_not_overlap_and_words_have_lines_of_their_own() -> None:
    plan = AgGemm(ranks=3, m=7, copies=2).plan()
    layout = Layout.of(plan)
    assert all(offset % 64 == 0 for offset in layout.buffer_bytes)
    ends = [
        o + b.copies * b.size_bytes for o, b in zip(layout.buffer_bytes, plan.buffers, strict=True)
    ]
    starts = [*layout.buffer_bytes[1:], layout.heap_bytes]
    assert all(e <= o for e, o in zip(ends, starts, strict=True))
    lines = [
        (int(word) // 16) + copy
        for word, copies in zip(layout.slot_word, plan.slots.copies, strict=True)
        for copy in range(copies)
    ]
    assert len(set(lines)) == len(lines)
    segment = layout.segment_bytes // 4
    assert all(
        word // segment == r for word, r in zip(layout.slot_word, plan.slots.rank, strict=True)
    )


def test_planned_offsets_are_kept_and_may_alias() -> None:
    plan = AgGemm(ranks=2).plan()
    x, w, xg, y = plan.buffers
    buffers = (x, replace(w, offset_bytes=256), replace(xg, offset_bytes=256), y)
    plan = replace(plan, buffers=buffers, heap_bytes=4096)
    heap = Heap.private(plan)
    assert heap.layout.buffer_bytes[1:3] == (256, 256)
    assert heap.layout.buffer_bytes[0] >= 4096
    heap.local(1, 1).fill_(3)
    assert (heap.local(2, 1).flatten()[: 8 * 16] == 3).all()
    assert (heap.local(2, 0) == 0).all()


def test_a_buffer_that_lies_askew_is_refused() -> None:
    plan = AgGemm(ranks=2).plan()
    buffers = (replace(plan.buffers[0], offset_bytes=2), *plan.buffers[1:])
    with pytest.raises(PlanError, match=r"buffer x \(f32\) lies at byte 2"):
        Layout.of(replace(plan, buffers=buffers))


def test_a_box_outside_its_buffer_is_refused() -> None:
    plan = AgGemm(ranks=4, m=5).plan()
    hi = plan.accesses.hi.copy()
    row = plan.accesses_of(12)[0]  # rank 2 holds one row, not two
    hi[row] = [2, 16]
    plan = replace(plan, accesses=replace(plan.accesses, hi=hi))
    with pytest.raises(PlanError, match=r"@gather.* touches x at rank .* from .* to \[2, 16\]"):
        Binder(plan, Heap.private(plan), compile_kernels(KERNELS))


def test_a_rank_looks_at_transfers_first() -> None:
    plan = AgGemm(ranks=2).plan()
    assert [plan.lanes.engine[lane] for lane in rank_lanes(plan, 1)] == ["copy", "sm"]
