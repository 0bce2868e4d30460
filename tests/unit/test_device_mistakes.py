"""Mistakes in device programs: each is named at its own line, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistakes import Given, Mistake, Mistakes, check, wrong

import ditron as dt
from ditron.errors import DeadlockError, DitronError, MeshError, ProgramError, ShapeError

mistake = Mistakes()


@dt.kernel
def relu(k: Any, x: Any, y: Any):
    k.store(y, k.relu(k.load(x)))


@mistake(ProgramError, "a slot of signals s of 4 slots is 4 at rank 0, i = 4, expected 0 to 3")
def slot_out_of_range(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy", i=5) as g:
        g.wait(o.s, g["i"])  # here


@mistake(ProgramError, "a slot of signals s of 4 slots is -1 at rank 0, expected 0 to 3")
def negative_slot(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.notify(o.s, d.rank - 1)  # here


@mistake(ProgramError, "a slot of signals s of 4 slots is 4 at rank 1, expected 0 to 3")
def slots_out_of_range(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.wait(o.s, d.rank, slots=4)  # here


@mistake(ProgramError, "wait for all 4, or give each producer lane a slot of its own")
def inexact_wait(d: dt.DeviceProgram, o: Given):
    with d.grid("tell", engine="copy") as g:
        g.copy(o.all(g, o.x), o.all(g, o.near))
        g.notify(o.s, 0, at=0)
    with d.grid("g", engine="sm") as g:
        g.wait(o.s, 0, ge=2, when=d.rank == 0)  # here
        g.call(relu, o.all(g, o.near), o.all(g, o.near))


@mistake(
    DeadlockError, "waits for %s[1] at rank 0 >= 2, which counts 1 a launch, but its 1 notifies"
)
def wait_for_more_than_comes(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.copy(o.all(g, o.x), o.all(g, o.near))
        g.notify(o.s, 1)
        g.wait(o.s, 1, ge=2, lag=1)  # here


@mistake(DeadlockError, "no task notifies it")
def wait_for_nobody(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.wait(o.s, 2)  # here
        g.copy(o.all(g, o.x), o.all(g, o.near))


@mistake(ProgramError, "grid g: no engine 'dma'; there is sm, copy, host, library")
def unknown_engine(d: dt.DeviceProgram, o: Given):
    d.grid("g", engine="dma")  # here


@mistake(ProgramError, "the rank of a notify is -1 at rank 0, expected 0 to 3; wrap it by %")
def no_such_rank_to_notify(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.notify(o.s, 0, at=d.rank - 1)  # here


@mistake(ProgramError, "coordinates hold in their own grid only")
def coordinate_of_another_grid(d: dt.DeviceProgram, o: Given):
    with d.grid("first", engine="copy", i=2) as first:
        first.copy(o.all(first, o.x), o.all(first, o.near))
    with d.grid("g", engine="copy") as g:
        g.view(o.x, (first["i"], 0), (1, 6))  # here


@mistake(ProgramError, "a program uses its own indices only")
def index_of_another_program(d: dt.DeviceProgram, o: Given):
    other = dt.DeviceProgram("other", dt.Mesh(tp=4))
    with d.grid("g", engine="copy") as g:
        g.view(o.x, (other.rank, 0), (1, 6))  # here


@mistake(
    ProgramError, "which is of device program other; a program uses its own buffers and signals"
)
def buffer_of_another_program(d: dt.DeviceProgram, o: Given):
    with dt.DeviceProgram("other", dt.Mesh(tp=4)) as other:
        theirs = Given(other)
    with d.grid("g", engine="copy") as g:
        g.view(theirs.x, (0, 0), (1, 6))  # here


@mistake(ProgramError, "made in grid first: make one here")
def view_of_another_grid(d: dt.DeviceProgram, o: Given):
    with d.grid("first", engine="copy") as first:
        view = o.all(first, o.x)
        first.copy(view, o.all(first, o.near))
    with d.grid("g", engine="copy") as g:
        g.copy(view, o.all(g, o.near))  # here


@mistake(ProgramError, "view takes buffers, signals and views of the program, got 3")
def no_buffer(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.view(wrong(3), (0, 0), (1, 6))  # here


@mistake(ProgramError, "so it is neither true nor false here: combine conditions with & | ~")
def index_as_a_condition(d: dt.DeviceProgram, o: Given):
    max(d.rank, 3)  # here


@mistake(ProgramError, "the divisor of % is 0 at rank 0")
def division_by_zero(d: dt.DeviceProgram, o: Given):
    _ = 4 % d.rank  # here


@mistake(ProgramError, "index 0 of a table of shape (2,) is 2 at rank 2")
def table_too_short(d: dt.DeviceProgram, o: Given):
    d.table([1, 0])[d.rank]  # here


@mistake(ProgramError, "a table holds integers in rows of one length")
def ragged_table(d: dt.DeviceProgram, o: Given):
    d.table([[1, 0], [1]])  # here


@mistake(ProgramError, "a notify adds or sets, not both")
def add_and_set(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.notify(o.s, 0, add=1, set=1)  # here


@mistake(ProgramError, "after is end, put, fence or quiet, got 'done'")
def after_what(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.notify(o.s, 0, after="done")  # here


@mistake(ProgramError, "a wait's lag counts launches back, got -1")
def negative_lag(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.wait(o.s, 0, lag=-1)  # here


@mistake(ProgramError, "ge of a wait is -2 at rank 2, expected 0 or more")
def negative_value(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.wait(o.s, 0, ge=-(d.rank // 2) * 2)  # here


@mistake(ProgramError, "grids stand one after another")
def nested_grids(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy"), d.grid("inner", engine="copy"):  # here
        pass


@mistake(ProgramError, "device program p has a grid called copy already")
def two_grids_of_one_name(d: dt.DeviceProgram, o: Given):
    d.grid("copy", engine="copy")  # here


@mistake(ProgramError, "device program p has a buffer called x already")
def two_buffers_of_one_name(d: dt.DeviceProgram, o: Given):
    d.scratch("x", (2, 2), dt.f32)  # here


@mistake(
    ProgramError, 'input "z" needs shape, dtype and placements, or implements=... that says them'
)
def input_of_what(d: dt.DeviceProgram, o: Given):
    d.input("z")  # here


@mistake(ShapeError, "buffer z is 2x2 at most, but has an extent of 2x3 on rank 3")
def extent_over_capacity(d: dt.DeviceProgram, o: Given):
    d.scratch("z", (2, 2), dt.f32, extent=(2, d.rank))  # here


@mistake(ProgramError, "the host has no part in scratch memory")
def hand_over_of_scratch(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="host") as g:
        g.acquire(o.far)  # here


@mistake(
    ProgramError, "peers touch buffer z 2x6 f32, which the host fills or reads between launches"
)
def output_that_peers_write(d: dt.DeviceProgram, o: Given):
    z = d.output("z", (8, 6), dt.f32, dt.Shard(0), symmetric=True)  # here
    with d.grid("g", engine="copy") as g:
        g.put(o.all(g, o.x), o.all(g, z, at=(d.rank + 1) % 4))


@mistake.test()
def test_mistakes_are_named_at_their_line(kind: type[DitronError], message: str, body: Mistake):
    check(kind, message, body)


def gather(tp: int = 4) -> dt.Program:
    with dt.Program("gather", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (8, 6), dt.f32, dt.Shard(0))
        p.output("y", dt.all_gather(x, dim=0))
    return p


UNLIKE: list[tuple[str, Callable[[dt.DeviceProgram], object]]] = [
    ("has no buffer for output 'y' of what it implements: d.output('y')", lambda d: d.input("x")),
    (
        'input "z": <Program "gather" on Mesh(tp=4)> has no such input; it has x',
        lambda d: d.input("z"),
    ),
    (
        'input "x" is 8x6 f32 [shard(1)], but 8x6 f32 [shard(0)] in <Program "gather"',
        lambda d: d.input("x", (8, 6), dt.f32, dt.Shard(1)),
    ),
]


@pytest.mark.parametrize(("message", "body"), UNLIKE, ids=[m[0][:20] for m in UNLIKE])
def test_what_is_implemented_has_to_be_there(
    message: str, body: Callable[[dt.DeviceProgram], object]
):
    d = dt.DeviceProgram("p", dt.Mesh(tp=4), implements=gather())
    with pytest.raises(ProgramError) as caught, d:
        body(d)
    assert message in caught.value.message
    assert (caught.value.where or "").startswith(__file__)


def test_meshes_and_outputs():
    with pytest.raises(MeshError, match=r"is on Mesh\(tp=2\), but implements a program on Mesh"):
        dt.DeviceProgram("p", dt.Mesh(tp=2), implements=gather())
    with (
        pytest.raises(ProgramError, match=r'has no output: d.output\("y", ...\)'),
        dt.DeviceProgram("p", dt.Mesh(tp=4)),
    ):
        pass


def test_a_program_is_written_in_its_block():
    d = dt.DeviceProgram("p", dt.Mesh(tp=4))
    with pytest.raises(ProgramError, match="has not been opened: use `with`"):
        d.signals("s", 1)
    with pytest.raises(ProgramError, match="its IR is complete when its `with` block has ended"):
        _ = d.ir
    with d:
        given = Given(d)
        grid = d.grid("g", engine="copy")
        with pytest.raises(ProgramError, match="a view belongs inside its `with` block"):
            given.all(grid, given.x)
    with pytest.raises(ProgramError, match="is closed: its `with` block has ended"):
        d.signals("t", 1)
    with pytest.raises(ProgramError, match="a program is opened once"), d:
        pass
