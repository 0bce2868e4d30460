"""The property tests of whole programs, at full counts."""

from __future__ import annotations

import pytest
from hypothesis import given, note, seed, settings
from hypothesis import strategies as st

from tests.property.programs import Case, cases, layered, walks
from tests.property.test_programs import check_case, check_mutants, check_stages, drawn

pytestmark = pytest.mark.exhaustive

SEEDS = range(2)


@pytest.mark.parametrize("number", SEEDS)
def test_tensor_parallel_layers(number: int) -> None:
    @seed(number)
    @settings(drawn, max_examples=1000, derandomize=False)
    @given(layered())
    def check(case: Case) -> None:
        note(str(case))
        check_case(case, seeds=5, launches=4)

    check()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("number", SEEDS)
def test_any_ops_in_any_order(number: int, wide: bool) -> None:
    @seed(number)
    @settings(drawn, max_examples=1500, derandomize=False)
    @given(walks(wide=wide))
    def check(case: Case) -> None:
        note(str(case))
        check_case(case, seeds=5, launches=4)

    check()


@pytest.mark.parametrize("number", SEEDS)
def test_stages(number: int) -> None:
    @seed(number)
    @settings(drawn, max_examples=100, derandomize=False)
    @given(cases())
    def check(case: Case) -> None:
        note(str(case))
        check_stages(case)

    check()


@pytest.mark.parametrize("number", SEEDS)
def test_mutants(number: int) -> None:
    @seed(number)
    @settings(drawn, max_examples=200, derandomize=False)
    @given(cases(), st.integers(0, 1 << 32))
    def check(case: Case, pick: int) -> None:
        check_mutants(case, pick, most=40, seeds=40)

    check()
