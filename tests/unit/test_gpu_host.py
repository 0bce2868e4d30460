"""A rank's host program on streams that only write down what they are given."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

import ditron as dt
from ditron.plan.launches import LaunchKind, plan_launches
from ditron.plan.tables import Plan
from ditron.runtime.gpu_host import HostProgram, StreamWait
from ditron.runtime.gpu_memory import RankMemory
from ditron.runtime.gpu_program import TritonProgram
from tests.unit.lowered import ag_gemm

DRIVEN = ("copy", "host")


class Stream:
    made = 0

    def __init__(self, priority: int = 0) -> None:
        Stream.made += 1
        self.cuda_stream = Stream.made

    def wait_stream(self, other: Stream) -> None:
        LOG.append(("event", self.cuda_stream, other.cuda_stream))


class Calls:
    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        LOG.append(("copy", stream, target, source, size_bytes))

    def copy_lines(
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        stream: int,
    ) -> None:
        LOG.append(("lines", stream, target, target_pitch, source, source_pitch, width, height))

    def wait(self, word: int, value: int, stream: int) -> None:
        LOG.append(("wait", stream, word, value))


LOG: list[tuple[object, ...]] = []


def _stream(_: object) -> AbstractContextManager[None]:
    return nullcontext()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostProgram:
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", _stream)
    LOG.clear()
    Stream.made = 0
    options = dt.Options(algorithm="mesh-push", transport="copy-engine", tile=(2, 4), workers=2)
    plan = dt.compile(ag_gemm(2), target="sm_90", options=options).plan
    return bound(plan)


def bound(plan: Plan) -> HostProgram:
    launches = plan_launches(plan, DRIVEN)
    program = TritonProgram("", (), launches)
    bytes_ = torch.zeros(1 << 16, dtype=torch.uint8)
    memory = RankMemory(plan, program, 0, bytes_, [1 << 20, 1 << 24])
    kernels = {op: lambda op=op: LOG.append(("kernel", op)) for op in range(len(plan.ops))}

    def wait_kernel(wait: StreamWait) -> None:
        LOG.append(("wait kernel", wait.row.value, wait.row.lag))

    return HostProgram(plan, launches.of_rank(0), memory, kernels, Calls(), wait_kernel)


def enqueued(host: HostProgram, done: int | None) -> list[tuple[object, ...]]:
    LOG.clear()
    host.enqueue(Stream(), done)  # pyright: ignore[reportArgumentType] - as good as one
    return list(LOG)


def test_calls_come_in_the_order_of_the_rows(host: HostProgram):
    kinds = [call[0] for call in enqueued(host, 0)]
    named = {
        LaunchKind.EVENT: "event",
        LaunchKind.COPY: "copy",
        LaunchKind.FLAG: "copy",
        LaunchKind.KERNEL: "kernel",
    }
    # The first launch waits for no credit of one before it.
    assert kinds == [named[r.kind] for r in host.rows if r.kind is not LaunchKind.STREAM_WAIT]


@pytest.mark.parametrize("done", [1, 7, (1 << 31) - 1, (1 << 32) + 5])
def test_streams_wait_for_the_launch_before(host: HostProgram, done: int):
    (wait,) = host.waits.values()
    assert wait.row.lag == 1
    calls = [call for call in enqueued(host, done) if call[0] == "wait"]
    assert calls == [("wait", calls[0][1], wait.word, (done - 1) * wait.count + wait.row.value)]
    assert (1 << 20) < wait.word < (1 << 24), "a rank waits for its own words"


def test_a_captured_launch_waits_by_kernels(host: HostProgram):
    calls = enqueued(host, None)
    assert [c for c in calls if c[0] == "wait kernel"] == [("wait kernel", 2, 1)]
    assert not [c for c in calls if c[0] == "wait"]


def test_flags_copy_the_word_of_the_next_launch(host: HostProgram):
    flags = [call for call in enqueued(host, 3) if call[0] == "copy" and call[-1] == 4]
    rows = [row for row in host.rows if row.kind is LaunchKind.FLAG]
    assert len(flags) == len(rows)
    assert {call[3] for call in flags} == {host.memory.control_address(4)}
    wanted = [host.memory.slot_address(row.slot) for row in rows]
    assert [call[2] for call in flags] == wanted
    assert any(isinstance(w, int) and w >= 1 << 24 for w in wanted), "one goes to the peer"
