"""Kernels that wait for each other must be on a GPU at once."""

from __future__ import annotations

import pytest

from ditron.errors import LaunchError
from ditron.runtime.gpu_fit import check_beside
from ditron.runtime.gpu_program import Launch

SMALL = {"registers": 32, "shared_bytes": 0}
LARGE = {"registers": 255, "shared_bytes": 200 << 10}


def launches(compute: int, copy: int, waits: tuple[int, ...] = (0,)) -> list[Launch]:
    def one(name: str, *, copies: bool, programs: int, waits: tuple[int, ...]) -> Launch:
        return Launch(name, 0, copies, programs, 8, 3, (), waits, ())

    return [
        one("push", copies=True, programs=copy, waits=()),
        one("product", copies=False, programs=compute, waits=waits),
    ]


def test_a_product_leaves_room_for_what_it_waits_for():
    facts = {"push": SMALL, "product": LARGE}
    check_beside(launches(130, 2), facts, 132)
    with pytest.raises(LaunchError, match=r"132 SMs hold 130 of them.*workers=130"):
        check_beside(launches(132, 2), facts, 132)


def test_small_programs_share_an_sm():
    check_beside(launches(264, 2), {"push": SMALL, "product": SMALL}, 132)


def test_what_does_not_wait_needs_no_room():
    check_beside(launches(132, 2, waits=()), {"push": SMALL, "product": LARGE}, 132)
