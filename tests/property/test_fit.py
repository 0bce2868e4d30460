"""Whatever `fit` and `fit_mask` find, form or table, says what the table said."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ditron.plan.expr import Arg, Expr, evaluate
from ditron.plan.order import Feature, Table, fit, fit_mask
from ditron.plan.tables import Bools, Longs

Case = tuple[list[Longs], Longs, Bools, list[Feature]]
"""Axes, values, mask and features."""


@st.composite
def grids(draw: st.DrawFn) -> list[Longs]:
    """Ranks and coordinates, each spread over the whole grid."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    return [np.broadcast_to(np.indices(shape)[d], shape) for d in range(len(shape))]


@st.composite
def closed_forms(draw: st.DrawFn, axes: list[Longs]) -> Longs:
    """What passes ask to be fitted: sums, rotations, quotients, keys."""
    terms = np.full(axes[0].shape, draw(st.integers(-5, 5)), np.int64)
    for axis in axes:
        terms = terms + draw(st.integers(-3, 3)) * axis
    kind = draw(st.sampled_from(["affine", "rotation", "quotient", "product"]))
    if kind == "rotation":
        return terms % draw(st.integers(1, 5))
    if kind == "quotient":
        return terms // draw(st.integers(1, 4))
    return terms * axes[0] if kind == "product" else terms


@st.composite
def tables(draw: st.DrawFn, axes: list[Longs]) -> Longs:
    """A closed form, or anything."""
    if draw(st.booleans()):
        return draw(closed_forms(axes))
    size = axes[0].size
    numbers = st.integers(-4, 40) if draw(st.booleans()) else st.integers(0, 1)
    cells = draw(st.lists(numbers, min_size=size, max_size=size))
    return np.array(cells, np.int64).reshape(axes[0].shape)


@st.composite
def features(draw: st.DrawFn, axes: list[Longs]) -> list[Feature]:
    """The axes, and perhaps a named index such as a peer."""
    found = [Feature(Arg(i), axis) for i, axis in enumerate(axes)]
    if draw(st.booleans()):
        n = draw(st.integers(2, 5))
        expr = (Arg(0) + Arg(len(axes) - 1) + 1) % n
        found.append(Feature(expr, evaluate(expr, axes)))
    return found


def spread(found: Expr | Table, axes: list[Longs]) -> Longs:
    """What a form or a table says at every entry."""
    if isinstance(found, Expr):
        return np.broadcast_to(evaluate(found, axes), axes[0].shape)
    return found.values[tuple(axes[a] for a in found.axes)]


@st.composite
def tasks(draw: st.DrawFn) -> Case:
    axes = draw(grids())
    mask = draw(tables(axes)) % draw(st.integers(1, 3)) == 0
    return axes, draw(tables(axes)), mask, draw(features(axes))


@given(tasks())
@settings(max_examples=300, deadline=None)
def test_fit_says_what_the_table_says_on_the_mask(case: Case):
    axes, values, mask, known = case
    found = fit(values, mask, known)
    assert (spread(found, axes)[mask] == values[mask]).all()


@given(tasks())
@settings(max_examples=300, deadline=None)
def test_fit_mask_holds_exactly_on_the_mask(case: Case):
    axes, _, mask, known = case
    found = fit_mask(mask, known)
    assert ((spread(found, axes) != 0) == mask).all()


@given(tasks())
@settings(max_examples=100, deadline=None)
def test_a_table_has_no_axis_too_many(case: Case):
    axes, values, mask, known = case
    found = fit(values, mask, known)
    if not isinstance(found, Table):
        return
    assert found.values.shape == tuple(axes[0].shape[a] for a in found.axes)
    rest = tuple(a for a in range(len(axes)) if a not in found.axes)
    for axis in found.axes:
        # Along it something changes, whatever the axes that are gone.
        low = np.where(mask, values, 1 << 40).min(axis=(*rest, axis))
        high = np.where(mask, values, -(1 << 40)).max(axis=(*rest, axis))
        assert (low < high).any()


@given(grids(), st.integers(-3, 3), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_affine_tables_get_forms(axes: list[Longs], factor: int, shift: int):
    values = np.full(axes[0].shape, shift, np.int64)
    for i, axis in enumerate(axes[:3]):
        values = values + (factor + i) * axis
    known = [Feature(Arg(i), axis) for i, axis in enumerate(axes)]
    assert isinstance(fit(values, np.ones(values.shape, np.bool_), known), Expr)
