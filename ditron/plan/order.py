"""Fit tables by closed forms.

Passes decide orders, slots and predicates on tables, one entry a task. IR should say them as a
person would: `(%me + %p + 1) mod 4`, `%n eq 3`. `fit` finds such a form and checks it on the whole
table; where none fits, the table itself stays, without the axes that it does not depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from ditron.plan.expr import Const, Expr, as_expr, binary

Values = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Term = tuple[Expr, Values]

SMALL_DIVISORS = (2, 3, 4, 8)
SAMPLE = 256
MAX_CONJUNCTS = 4


@dataclass(frozen=True)
class Feature:
    """Something that a form may be made of: an expression, and its value at every entry."""

    expr: Expr
    values: Values

    @cached_property
    def own(self) -> tuple[Values, tuple[int, ...]]:
        """The values over the axes that they depend on, and these axes."""
        values, _, axes = _drop_axes(self.values, np.ones(self.values.shape, np.bool_))
        return values, axes


@dataclass(frozen=True)
class Table:
    """What no form fits: values over some axes of the original table."""

    values: Values
    axes: tuple[int, ...]


def fit(values: Values, mask: Mask, features: Sequence[Feature]) -> Expr | Table:
    """A form for the entries where `mask` holds; the others may come out anyhow.

    `values`, `mask` and the features' values have one shape, or broadcast to it.
    """
    values, mask, axes = _drop_axes(values, mask)
    known = _known_features(features, axes, values.shape)
    want = values[mask]
    if want.size == 0:
        return Const(0)
    for expr, got in _forms(want, [(f.expr, f.values[mask]) for f in known]):
        if (got == want).all():
            return expr
    return Table(np.where(mask, values, 0), axes)


def fit_mask(mask: Mask, features: Sequence[Feature]) -> Expr | Table:
    """A predicate that holds exactly where `mask` does; a constant where that is all or nothing."""
    if mask.all() or not mask.any():
        return Const(int(mask.all()))
    everywhere = np.ones(mask.shape, np.bool_)
    values, _, axes = _drop_axes(mask.astype(np.int64), everywhere)
    known = _known_features(features, axes, values.shape)
    found = _conjunction(values != 0, known)
    return Table(values, axes) if found is None else found


def _drop_axes(values: Values, mask: Mask) -> tuple[Values, Mask, tuple[int, ...]]:
    """Drop each axis along which the masked values do not change."""
    axes: list[int] = []
    for axis in range(values.ndim):
        at = len(axes)
        low = np.where(mask, values, np.iinfo(np.int64).max).min(axis=at, initial=1 << 62)
        high = np.where(mask, values, np.iinfo(np.int64).min).max(axis=at, initial=-(1 << 62))
        some = np.any(mask, axis=at)
        if (low[some] == high[some]).all():
            values, mask = np.where(some, low, 0), some
        else:
            axes.append(axis)
    return values, mask, tuple(axes)


def _known_features(
    features: Sequence[Feature], axes: tuple[int, ...], shape: tuple[int, ...]
) -> list[Feature]:
    """The features that depend on no axis but these, over these alone."""
    known: list[Feature] = []
    for feature in features:
        values, own = feature.own
        if set(own) <= set(axes):
            spread = values.reshape([values.shape[own.index(a)] if a in own else 1 for a in axes])
            known.append(Feature(feature.expr, np.broadcast_to(spread, shape)))
    return known


def _forms(want: Values, features: Sequence[Term]) -> Iterator[Term]:
    """Candidate forms, the simplest first."""
    first = int(want[0])
    yield Const(first), np.full_like(want, first)
    for expr, values in features:
        shift = first - int(values[0])
        yield expr + shift, values + shift
        yield as_expr(first + int(values[0])) - expr, first + int(values[0]) - values
    yield from _modular(want, features)
    plain = [*features, *_distances(features)]
    terms = [*plain, *_quotients(features)]
    yield from _affine(want, terms, 1)
    yield from _affine(want, terms, 2)
    yield from _affine(want, plain, 3)


def _quotients(features: Sequence[Term]) -> Iterator[Term]:
    """`x floordiv k`: for the steps that a feature takes, and for small k."""
    for expr, values in features:
        seen = np.unique(values)
        steps = {int(s) for s in np.diff(seen)} if len(seen) <= SAMPLE else set[int]()
        for step in sorted({*steps, *SMALL_DIVISORS} - {1}):
            if step <= int(seen[-1]) - int(seen[0]) + 1:
                yield expr // step, values // step


def _distances(features: Sequence[Term]) -> Iterator[Term]:
    """`(x - y) mod n` of features that count ranks or the like, 0 to n - 1 both."""
    tops = [int(values.max()) for _, values in features]
    for (i, (a, x)), (j, (b, y)) in combinations(enumerate(features), 2):
        if tops[i] == tops[j] > 0 and min(int(x.min()), int(y.min())) >= 0:
            n = tops[i] + 1
            yield (a - b) % n, (x - y) % n
            yield (b - a) % n, (y - x) % n


def _affine(want: Values, terms: Sequence[Term], number: int) -> Iterator[Term]:
    """`a * x + b * y + c` in a number of terms, with whole coefficients.

    All choices of terms are solved at once, by least squares on a sample of the entries.
    """
    if len(terms) < number:
        return
    columns = np.stack([*(v for _, v in terms), np.ones_like(want)], axis=1)
    sample = np.linspace(0, len(want) - 1, min(len(want), SAMPLE)).astype(np.int64)
    some, wanted = columns[sample], want[sample]
    chosen = np.array(list(combinations(range(len(terms)), number)))
    chosen = np.concatenate([chosen, np.full((len(chosen), 1), len(terms))], axis=1)
    gram = (some.T @ some).astype(np.float64)
    inverse = np.linalg.pinv(gram[chosen[:, :, None], chosen[:, None, :]], hermitian=True)
    solution = np.einsum("cij,cj->ci", inverse, (some.T @ wanted)[chosen].astype(np.float64))
    whole = np.rint(solution).astype(np.int64)
    exact = np.einsum("scj,cj->sc", some[:, chosen], whole) == wanted[:, None]
    for row in np.flatnonzero(exact.all(axis=0)):
        numbers = [int(factor) for factor in whole[row]]
        exprs = [terms[int(term)][0] for term in chosen[row][:-1]]
        expr = _weighted(exprs, numbers[:-1], numbers[-1])
        yield expr, columns[:, chosen[row]] @ whole[row]


def _weighted(exprs: Sequence[Expr], factors: Sequence[int], constant: int) -> Expr:
    """`a * x + c - b * y`: what is taken away comes last."""
    total: Expr = Const(0)
    for expr, factor in zip(exprs, factors, strict=True):
        total = total + expr * max(factor, 0)
    if total == Const(0):
        total, constant = Const(constant), 0
    for expr, factor in zip(exprs, factors, strict=True):
        total = total - expr * -min(factor, 0)
    return total + constant


def _modular(want: Values, features: Sequence[Term]) -> Iterator[Term]:
    """`(x + c) mod n`, `(x + y + c) mod n` and so on, n the number of values from 0 on."""
    n = int(want.max()) + 1
    if int(want.min()) < 0 or n < 2:  # mod 1 is the constant 0
        return
    for expr, values in features:
        for sign in (1, -1):
            shift = int(want[0] - sign * values[0]) % n
            left = expr + shift if sign > 0 else as_expr(shift) - expr
            yield left % n, (sign * values + shift) % n
    for (a, x), (b, y) in combinations(features, 2):
        for sign_a, sign_b in product((1, -1), repeat=2):
            left = sign_a * x + sign_b * y
            shift = int(want[0] - left[0]) % n
            yield _signed(a, b, sign_a, sign_b, shift) % n, (left + shift) % n


def _signed(a: Expr, b: Expr, sign_a: int, sign_b: int, shift: int) -> Expr:
    if sign_a == sign_b:
        return a + b + shift if sign_a > 0 else as_expr(shift) - (a + b)
    return (a - b if sign_a > 0 else b - a) + shift


def _conjunction(mask: Mask, features: Sequence[Feature]) -> Expr | None:
    """Comparisons that all hold on the mask and together nowhere else."""
    candidates = [
        (expr, holds) for expr, holds in _comparisons(mask, features) if holds[mask].all()
    ]
    rest, chosen = ~mask, list[Expr]()
    while rest.any() and len(chosen) < MAX_CONJUNCTS:
        cut = [int(np.count_nonzero(rest & ~holds)) for _, holds in candidates]
        if not any(cut):
            return None
        best = candidates[int(np.argmax(cut))]
        chosen.append(best[0])
        rest = np.logical_and(rest, best[1])
    if rest.any() or not chosen:
        return None
    result = chosen[0]
    for other in chosen[1:]:
        result = binary("and", result, other)
    return result


def _comparisons(mask: Mask, features: Sequence[Feature]) -> Iterator[tuple[Expr, Mask]]:
    for feature in features:
        inside = np.unique(feature.values[mask])
        low, high = int(inside[0]), int(inside[-1])
        if len(inside) == 1:
            yield binary("eq", feature.expr, low), feature.values == low
        for value in np.setdiff1d(np.unique(feature.values[~mask]), inside)[:8]:
            yield binary("ne", feature.expr, int(value)), feature.values != value
        yield binary("le", feature.expr, high), feature.values <= high
        yield binary("le", low, feature.expr), feature.values >= low
    for a, b in combinations(features, 2):
        yield binary("eq", a.expr, b.expr), a.values == b.values
        yield binary("ne", a.expr, b.expr), a.values != b.values
        yield binary("lt", a.expr, b.expr), a.values < b.values
        yield binary("lt", b.expr, a.expr), b.values < a.values
