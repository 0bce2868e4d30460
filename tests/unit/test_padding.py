"""Which programs may run on less than their bucket, and what is said of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ditron as dt
from ditron.analysis.padding import Open, Sized, open_dims
from ditron.analysis.symbols import task_program
from ditron.errors import OptionError, ProgramError

Body = Callable[[dt.Program, dt.Value], dt.Value]


def program(m: int, body: Body) -> dt.Program:
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (m, 8), dt.f32, dt.Shard(0))
        p.output("y", body(p, x))
    return p


def found(body: Body) -> dict[str, Open]:
    large, small = (Sized(task_program(program(m, body).ir), {"m": m}) for m in (8, 1))
    return open_dims(large, [small])


def weight(p: dt.Program) -> dt.Value:
    return p.weight("w", (8, 8), dt.f32, dt.Replicate())


def whole(x: dt.Value) -> dt.Value:
    return dt.all_gather(x, dim=0)


@dt.kernel
def twice(k: Any, x: Any, y: Any, *, block: tuple[int, int] = (4, 8)):
    i, j = k.tile(y, block)
    k.store(y, (i, j), k.load(x, (i, j), block) * 2.0)


def product(p: dt.Program, x: dt.Value) -> dt.Value:
    return dt.relu(dt.matmul(whole(x), weight(p)))


def normed(p: dt.Program, x: dt.Value) -> dt.Value:
    return dt.rms_norm(x, p.input("gain", (8,), dt.f32, dt.Replicate())) + x


def exchanged(_: dt.Program, x: dt.Value) -> dt.Value:
    return dt.softmax(dt.all_to_all(dt.all_to_all(x, 1, 0), 0, 1))


def own_kernel(_: dt.Program, x: dt.Value) -> dt.Value:
    return dt.call(twice, x, out=x)


@pytest.mark.parametrize("body", [product, normed, exchanged, own_kernel])
def test_rows_apart(body: Body):
    dims = found(body)
    assert (dims["x"], dims["y"]) == (("m", None),) * 2


def test_a_size_goes_where_dimensions_go():
    def body(_: dt.Program, x: dt.Value) -> dt.Value:
        return dt.transpose(dt.reshape(whole(x), (x.shape[0], 2, 4)), 0, 2)

    assert found(body)["y"] == (None, None, "m")


def attends(causal: bool) -> Body:
    def body(_: dt.Program, x: dt.Value) -> dt.Value:
        heads = dt.reshape(whole(x), (1, x.shape[0], 2, 4))
        return dt.attention(heads, heads, heads, causal=causal)

    return body


def test_tokens_that_see_none_behind_them():
    assert found(attends(causal=True))["y"] == (None, "m", None, None)


def shifted(_: dt.Program, x: dt.Value) -> dt.Value:
    return dt.shift(x, 0)


def over_rows(_: dt.Program, x: dt.Value) -> dt.Value:
    return dt.softmax(whole(x), dim=0)


def gram(_: dt.Program, x: dt.Value) -> dt.Value:
    return dt.matmul(dt.transpose(whole(x), 0, 1), whole(x))


def flat(_: dt.Program, x: dt.Value) -> dt.Value:
    return dt.reshape(whole(x), (x.shape[0] * 8,))


def last_row(_: dt.Program, x: dt.Value) -> dt.Value:
    return dt.slice(whole(x), 0, x.shape[0] - 1, 1)


def other_start(p: dt.Program, x: dt.Value) -> dt.Value:
    return x + dt.slice(weight(p), 0, x.shape[0] - 1, 1)


def other_wiring(p: dt.Program, x: dt.Value) -> dt.Value:
    one, two = (p.input(name, (1, 8), dt.f32, dt.Replicate()) for name in "ab")
    return dt.add(x, one if x.shape[0] > 4 else two)


def more_ops(_: dt.Program, x: dt.Value) -> dt.Value:
    return dt.relu(dt.relu(x)) if x.shape[0] > 4 else dt.relu(x)


def a_weight(p: dt.Program, x: dt.Value) -> dt.Value:
    return x + p.weight("w", x.shape, dt.f32, dt.Shard(0))


def a_state(p: dt.Program, x: dt.Value) -> dt.Value:
    p.state("s", (8, 8), dt.f32, dt.Replicate())
    return dt.relu(x)


def derived(p: dt.Program, x: dt.Value) -> dt.Value:
    other = p.input("z", (2 * x.shape[0], 8), dt.f32, dt.Replicate())
    return dt.relu(x) + dt.slice(other, 0, 0, 1)


def cut_by_size(p: dt.Program, x: dt.Value) -> dt.Value:
    parts = dt.softmax(dt.reshape(weight(p), (x.shape[0], 64 // x.shape[0])))
    return x + dt.slice(dt.reshape(parts, (8, 8)), 0, 0, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (over_rows, "softmax mixes the elements of a dimension that is m"),
        (gram, "matmul mixes"),
        (flat, "reshape mixes"),
        (attends(causal=False), "attention mixes"),
        (last_row, "differs at m = 8 and at m = 1 in more than sizes"),
        (other_start, "in more than sizes"),
        (other_wiring, "in more than sizes"),
        (more_ops, "in more than sizes"),
        (a_weight, "w: plans of several sizes cannot share a state, nor a weight of that size"),
        (a_state, "s: plans of several sizes cannot share a state"),
        (derived, r"z is 16x8 at m = 8, expected 8x8"),
        (cut_by_size, r"reshape is 1x64 at m = 1, expected 8x8"),
    ],
)
def test_what_is_refused_at_its_line(body: Body, message: str):
    with pytest.raises(ProgramError, match=message) as error:
        found(body)
    assert "test_padding.py:" in str(error.value.where)


def test_a_shift_is_refused():
    def body(_: dt.Program, x: dt.Value) -> dt.Value:
        return dt.shift(x, 1)

    large, small = (Sized(task_program(program(m, body).ir), {"m": m}) for m in (8, 4))
    with pytest.raises(ProgramError, match="shift mixes"):
        open_dims(large, [small])


def rows(m: int) -> dt.Program:
    return program(m, product)


def number(m: int) -> int:
    return m


NONE: list[tuple[Any, dict[str, tuple[int, ...]], type[Exception], str]] = [
    (rows, {}, OptionError, "names at least one size"),
    (rows, {"m": ()}, OptionError, "one or more positive sizes"),
    (rows, {"m": (0, 4)}, OptionError, "one or more positive sizes"),
    (rows(4), {"m": (4,)}, ProgramError, "takes the function that makes the program"),
    (number, {"m": (4,)}, ProgramError, "returned 4, expected a dt.Program"),
]


@pytest.mark.parametrize(("made", "dims", "error", "message"), NONE)
def test_what_makes_no_buckets(
    made: Any, dims: dict[str, tuple[int, ...]], error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        dt.compile(made, dims=dims)
