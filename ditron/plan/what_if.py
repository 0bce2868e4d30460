"""By which change would another choice have won?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import msgspec

from ditron.plan.candidates import Candidate, Question, price
from ditron.plan.machine import Machine

FACTORS = (2, 4, 8)


@lru_cache(maxsize=512)
def until(machine: Machine, question: Question, first: Candidate, second: Candidate) -> str:
    """The smallest change tried by which the second candidate is cheaper; "" for none.

    Tried are 2, 4 and 8 times, and a half to an eighth, of the rows, of the links' rate and of the
    rate of products. Chunks and tiles stay as they are, whole shards stay whole.
    """
    for factor in FACTORS:
        for what, there, asked in _changes(machine, question, factor):
            before = price(there, asked, _adapted(first, question, asked))
            after = price(there, asked, _adapted(second, question, asked))
            if before and after and after.overlapped_us < before.overlapped_us:
                return what
    return ""


def _adapted(one: Candidate, question: Question, changed: Question) -> Candidate:
    whole = one.chunk >= question.shape[0]
    return replace(one, chunk=changed.shape[0]) if whole else one


def _changes(
    machine: Machine, question: Question, factor: int
) -> Iterator[tuple[str, Machine, Question]]:
    for times, say in ((float(factor), f"{factor}x"), (1 / factor, f"1/{factor}")):
        yield f"{say} the rows", machine, _with_rows(question, times)
        yield f"links at {say} the rate", _with_links(machine, times), question
        yield f"products at {say} the rate", _with_products(machine, times), question


def _with_rows(question: Question, times: float) -> Question:
    rows, columns = question.shape
    products = tuple(replace(p, m=max(1, round(p.m * times))) for p in question.products)
    return replace(question, shape=(max(1, round(rows * times)), columns), products=products)


def _with_links(machine: Machine, times: float) -> Machine:
    engines = {
        name: msgspec.structs.replace(e, gbytes_s=e.gbytes_s * times)
        for name, e in machine.engines.items()
    }
    topology = msgspec.structs.replace(machine.topology, gbytes_s=machine.topology.gbytes_s * times)
    return msgspec.structs.replace(machine, topology=topology, engines=engines)


def _with_products(machine: Machine, times: float) -> Machine:
    rates = {dtype: rate * times for dtype, rate in machine.rates.matrix_tflops.items()}
    changed = msgspec.structs.replace(machine.rates, matrix_tflops=rates)
    return msgspec.structs.replace(machine, rates=changed)
