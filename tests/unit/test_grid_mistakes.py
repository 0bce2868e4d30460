"""Mistakes in grids: each is named at its own line, with what to do."""

from __future__ import annotations

from typing import Any

from mistakes import Given, Mistake, Mistakes, check, wrong

import ditron as dt
from ditron.errors import DitronError, DTypeError, ProgramError, ShapeError

mistake = Mistakes()


@dt.kernel
def relu(k: Any, x: Any, y: Any):
    k.store(y, k.relu(k.load(x)))


@dt.kernel
def tiled(k: Any, x: Any, y: Any):
    k.store(y, k.tile(y, (1, 1)), k.load(x))


@mistake(ProgramError, "box 4:6 of dim 0 lies outside buffer x 2x6 f32 at rank 0, i = 2; wrap its")
def box_behind_its_buffer(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy", i=3) as g:
        source = g.view(o.x, (g["i"] * 2, 0), (2, 6))  # here
        g.copy(source, o.all(g, o.near))


@mistake(ProgramError, "box -1:1 of dim 1 lies outside buffer near 2x6 f32 at rank 0")
def box_before_its_buffer(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        target = g.view(o.near, (0, d.rank - 1), (2, 2))  # here
        g.copy(g.view(o.x, (0, 0), (2, 2)), target)


@mistake(ProgramError, "copy loses 1 of 2 elements of dim 0 at rank 0: its target lies outside")
def target_too_small(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.copy(o.all(g, o.x), g.view(o.near, (1, 0), (2, 6)))  # here


@mistake(ProgramError, "a grid does one thing: put in a grid of its own")
def two_bodies(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.copy(o.all(g, o.x), o.all(g, o.near))
        g.put(o.all(g, o.near), o.all(g, o.far, at=0))  # here


@mistake(ProgramError, "its tasks do nothing: it needs a put, get, copy or call")
def no_body(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:  # here
        g.notify(o.s, 0)


@mistake(ProgramError, "the source of put is this rank's own memory, got view 2x6 of far at a peer")
def put_from_afar(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.put(o.all(g, o.far, at=0), o.all(g, o.far, at=1))  # here


@mistake(ProgramError, "the target of put lies on this rank: view it at=peer, or g.copy")
def put_to_itself(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.put(o.all(g, o.x), o.all(g, o.near))  # here


@mistake(ProgramError, "the target of get is this rank's own memory")
def get_to_afar(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.get(o.all(g, o.far, at=0), o.all(g, o.far, at=1))  # here


@mistake(ProgramError, "g.put and g.get reach peers")
def copy_to_afar(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.copy(o.all(g, o.x), o.all(g, o.far, at=0))  # here


@mistake(ProgramError, "engine copy cannot call: use sm")
def call_on_a_copy_engine(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.call(relu, o.all(g, o.x), o.all(g, o.near))  # here


@mistake(ProgramError, "engine host cannot copy: use sm or copy")
def copy_by_the_host(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="host") as g:
        g.copy(o.all(g, o.x), o.all(g, o.near))  # here


@mistake(
    ProgramError, "buffer near 2x6 f32 is local: make it with symmetric=True to view it at a peer"
)
def local_at_a_peer(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.view(o.near, (0, 0), (2, 6), at=1)  # here


@mistake(
    ProgramError, "the rank of a view of buffer far 2x6 f32 is 4 at rank 3, expected 0 to 3; wrap"
)
def no_such_peer(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        far = g.view(o.far, (0, 0), (2, 6), at=d.rank + 1)  # here
        g.put(o.all(g, o.x), far)


@mistake(ShapeError, "buffer x 2x6 f32 takes 2 offsets and 2 sizes, got 1 and 2")
def too_few_offsets(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.view(o.x, (0,), (2, 6))  # here


@mistake(ShapeError, "copy of 1x6 to 2x6: both ends have one shape")
def ends_of_two_shapes(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.copy(g.view(o.x, (0, 0), (1, 6)), o.all(g, o.near))  # here


@mistake(DTypeError, "a transfer does not convert; call a kernel that casts")
def ends_of_two_dtypes(d: dt.DeviceProgram, o: Given):
    half = d.scratch("half", (2, 6), dt.bf16)
    with d.grid("g", engine="copy") as g:
        g.copy(o.all(g, o.x), o.all(g, half))  # here


@mistake(ProgramError, "a size is an index or an integer, got 2.0")
def size_that_is_no_integer(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.view(o.x, (0, 0), (wrong(2.0), 6))  # here


@mistake(ProgramError, "no coordinate 'k'; there is i, j")
def no_such_coordinate(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy", i=2, j=3) as g:
        g["k"]  # here


@mistake(ProgramError, "g.where says twice what it says once")
def two_masks(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="copy") as g:
        g.where(d.rank > 0)
        g.where(d.rank < 3)  # here


@mistake(ProgramError, "a grid gives its kernel views that are tiles: k.load(x) is all")
def tiles_of_a_tile(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="sm") as g:
        g.call(tiled, o.all(g, o.x), o.all(g, o.near))


@mistake(ProgramError, "kernel relu takes 2 tensors, x, y")
def too_few_views(d: dt.DeviceProgram, o: Given):
    with d.grid("g", engine="sm") as g:
        g.call(relu, o.all(g, o.x))  # here


@mistake.test()
def test_mistakes_are_named_at_their_line(kind: type[DitronError], message: str, body: Mistake):
    check(kind, message, body)
