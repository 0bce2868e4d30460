"""Closed forms that passes rely on, said as a person would."""

from __future__ import annotations

import numpy as np
import pytest

from ditron.plan.expr import Arg, Const, Expr, evaluate, to_text
from ditron.plan.order import Feature, Table, fit, fit_mask
from ditron.plan.tables import Bools, Longs

NAMES = ("%me", "%p", "%m")
ME, P, M = np.meshgrid(np.arange(4), np.arange(4), np.arange(3), indexing="ij")
FEATURES = [Feature(Arg(i), axis) for i, axis in enumerate((ME, P, M))]
EVERYWHERE = np.ones(ME.shape, np.bool_)


def said(found: Expr | Table) -> str:
    assert not isinstance(found, Table), found
    return to_text(found, NAMES)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (0 * ME + 7, "7"),
        (P, "%p"),
        (P + 2, "%p + 2"),
        (P * 3 + M, "%p * 3 + %m"),
        (ME * 12 + P * 3 + M, "%me * 12 + %p * 3 + %m"),
        ((P + 1) % 4, "(%p + 1) mod 4"),
        ((ME + P + 1) % 4, "(%me + %p + 1) mod 4"),
        ((ME - P) % 4, "(%me - %p) mod 4"),
        ((P - ME + 3) % 4, "(%p - %me + 3) mod 4"),
        (3 - P, "3 - %p"),
        ((3 - P) * 2 + M, "%m - %p * 2 + 6"),
        ((7 - ME - P) % 4, "(3 - (%me + %p)) mod 4"),
        ((2 - P) % 4, "(2 - %p) mod 4"),
    ],
)
def test_closed_forms(values: Longs, text: str):
    found = fit(values, EVERYWHERE, FEATURES)
    assert isinstance(found, Expr)
    assert (evaluate(found, [ME, P, M]) == values).all()
    assert said(found) == text


def test_only_the_mask_counts():
    values = np.where(M == 0, P, 99)
    assert said(fit(values, M == 0, FEATURES)) == "%p"
    assert fit(values, np.zeros(ME.shape, np.bool_), FEATURES) == Const(0)


def test_a_named_index_is_used():
    peer = (ME + P + 1) % 4
    named = [*FEATURES, Feature(Arg(3), peer)]
    found = fit(peer * 2, EVERYWHERE, named)
    assert isinstance(found, Expr)
    assert to_text(found, (*NAMES, "%peer")) == "%peer * 2"


def test_what_no_form_fits_is_a_table_over_the_axes_that_matter():
    squares = P * P * P
    found = fit(squares, EVERYWHERE, FEATURES)
    assert isinstance(found, Table)
    assert found.axes == (1,)
    assert found.values.tolist() == [0, 1, 8, 27]


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (EVERYWHERE, "1"),
        (~EVERYWHERE, "0"),
        (M == 0, "%m eq 0"),
        (M != 1, "%m ne 1"),
        (P <= 1, "%p le 1"),
        (P == ME, "%me eq %p"),
        (P != ME, "%me ne %p"),
        ((P == ME) & (M == 2), "%me eq %p and %m eq 2"),
    ],
)
def test_masks(mask: Bools, text: str):
    assert said(fit_mask(mask, FEATURES)) == text


def test_a_mask_that_no_comparisons_make_is_a_table():
    found = fit_mask((P + M) % 2 == 0, FEATURES)
    assert isinstance(found, Table)
    assert found.axes == (1, 2)


def test_nothing_to_fit():
    none = np.zeros((4, 0), np.int64)
    assert fit(none, none == 0, []) == Const(0)
    assert fit_mask(none == 0, []) == Const(1)
