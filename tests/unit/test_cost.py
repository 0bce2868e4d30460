"""Closed forms: how costs move with sizes and machines, and what is chosen by them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ditron.plan.candidates import (
    Fixed,
    Question,
    answer,
    price,
    runner_up,
    tile_answer,
    ways,
)
from ditron.plan.collective_cost import RULES, traffic_of
from ditron.plan.collectives import ALGORITHMS
from ditron.plan.cost import (
    GemmShape,
    core_share,
    cut,
    dot_us,
    gemm_cost,
    spread_factor,
    stream_us,
    sum_cost,
)
from ditron.plan.machine import Machine, load_machine
from ditron.plan.traffic import Message
from ditron.plan.what_if import until

CPU, H200, H800 = (load_machine(name) for name in ("cpu", "h200", "h800x8"))
MACHINES = [load_machine(n) for n in ("cpu", "h800x8", "mi300x8", "l20x8-pcie", "h800x8x2")]


def ag_gemm(m: int = 8192, n: int = 3584, k: int = 8192, ranks: int = 8) -> Question:
    return Question(
        "all_gather", (m // ranks, k), "bf16", ranks, ranks, (GemmShape(m, n, k, "bf16"),)
    )


def gemm_rs(kind: str = "reduce_scatter", m: int = 2048, ranks: int = 4) -> Question:
    products = (GemmShape(m, 2048, 256, "f32"),)
    return Question(kind, (m // ranks, 2048), "f32", ranks, ranks, products)


def test_a_tile_costs_what_was_measured():
    # torch.mm of 128x512x1024 f32 took 1300 us, of bf16 widened 1335 us.
    flops, elements = 2.0 * 128 * 512 * 1024, 128 * 1024 + 1024 * 512 + 128 * 512
    assert dot_us(CPU, "f32", flops, 4.0 * elements) == pytest.approx(1300, rel=0.05)
    assert dot_us(CPU, "bf16", flops, 2.0 * elements) == pytest.approx(1335, rel=0.05)
    # Adding four contributions of 2048x2048 took 3.0 ms; packing decides 8 rows: 131 us.
    assert stream_us(CPU, "f32", 5 * 2048 * 2048 * 4.0) == pytest.approx(3000, rel=0.1)
    few = 8 * 1024 + 1024 * 512 + 8 * 512
    assert dot_us(CPU, "f32", 2.0 * 8 * 512 * 1024, 4.0 * few) == pytest.approx(131, rel=0.1)


def test_a_large_product_runs_at_the_machines_rate():
    shape = GemmShape(8192, 8192, 8192, "bf16")
    cost = gemm_cost(H200, shape, (128, 256))
    assert cost.tasks == 64 * 32
    ideal = 2 * 8192**3 / 769e6
    assert ideal < cost.us < 1.06 * ideal
    # One wave that is nearly empty takes as long as a full one.
    small = gemm_cost(H200, GemmShape(128, 256, 8192, "bf16"), (128, 256))
    assert small.us == pytest.approx(small.tile_us)


@pytest.mark.parametrize(
    ("m", "n", "k", "product_us", "in_turn_us"),
    [
        (8192, 5504, 4096, 532, 678),
        (8192, 7168, 4096, 701, 841),
        (8192, 14336, 8192, 2553, 2864),
        (8192, 14720, 8192, 2668, 3169),
        (2048, 14336, 8192, 715, 794),
    ],
)
def test_two_h200_take_what_was_measured(
    m: int, n: int, k: int, product_us: float, in_turn_us: float
):
    # cuBLAS, and an all-gather before it.
    best = answer(H200, ag_gemm(m, n, k, ranks=2))[0].price
    assert best.compute_us == pytest.approx(product_us, rel=0.1)
    assert best.in_turn_us == pytest.approx(in_turn_us, rel=0.1)


@pytest.mark.parametrize(
    ("n", "k", "us"),
    [
        (6144, 4096, 14),
        (4096, 4096, 10.5),
        (24576, 4096, 47),
        (4096, 12288, 25),
        (151936, 4096, 274),
    ],
)
def test_a_product_of_one_row_reads_its_weight_once(n: int, k: int, us: float):
    # Qwen3-8B's products as kernels of a captured graph on an H200, launch and all.
    assert gemm_cost(H200, GemmShape(1, n, k, "bf16"), (1, 16)).us == pytest.approx(us, 0.1, 3)


def test_cores_are_shared():
    assert core_share(CPU, 1) == core_share(CPU, 2) == 1.0
    assert core_share(CPU, 4) == 0.5
    assert core_share(H800, 8) == 1.0


def test_tiles_cover_everything():
    assert cut(10, 4) == [(4, 2), (2, 1)]
    assert cut(8, 4) == [(4, 2)]
    assert cut(3, 4) == [(3, 1)]
    assert cut(0, 4) == []
    assert gemm_cost(CPU, GemmShape(0, 8, 8, "f32"), (4, 4)).tasks == 0
    assert sum_cost(CPU, "f32", (10, 10), (4, 4), 2).tasks == 9
    # Three shards of 4 rows, cut where they meet: 2 tiles each.
    assert gemm_cost(CPU, GemmShape(12, 4, 4, "f32", shards=3), (3, 4)).tasks == 6


def test_chunks_finer_than_an_l2_group_cost_rate():
    weight = 2.0 * 8192 * 28672
    # Measured: 64 tile rows in 8, 16, 32, 64 chunks took 5.6, 5.8, 6.3, 8.1 ms, else 5.5.
    for rows, ms in ((8, 5.6), (4, 5.8), (2, 6.3), (1, 8.1)):
        assert 5.5 * spread_factor(H200, weight, rows) == pytest.approx(ms, rel=0.02)
    assert spread_factor(H200, H200.cache.bytes, 1) == 1.0


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
@pytest.mark.parametrize("kind", list(ALGORITHMS))
def test_every_algorithm_has_a_price(machine: Machine, kind: str):
    for algorithm, transfers in ALGORITHMS[kind].items():
        for transfer in transfers:
            previous = 0.0
            for rows in (0, 1, 16, 256):
                message = Message(kind, (rows, 1024), "bf16", 8, 64)
                traffic = traffic_of(machine, message, algorithm, transfer)
                assert traffic is not None, (kind, algorithm, transfer)
                total = traffic.wire_us + traffic.adds.us
                assert total >= previous
                previous = total
            one = traffic_of(machine, Message(kind, (8, 8), "f32", 1, 4), algorithm, transfer)
            assert one is not None
            assert one.wire_us == 0


def test_no_rule_is_for_what_does_not_exist():
    for kind, algorithm, transfer in RULES:
        assert transfer in ALGORITHMS[kind][algorithm]


def test_topology_decides_the_algorithm():
    def best(machine: str) -> str:
        ranks = load_machine(machine).max_ranks
        question = ag_gemm(ranks=ranks, n=28672 // ranks)
        return answer(load_machine(machine), question)[0].candidate.way

    assert best("h800x8") == "mesh push"
    assert best("mi300x8") == "mesh push"
    assert best("h800x8x2") == "hierarchical push"
    shared = replace(ag_gemm(ranks=4, m=2048, n=512, k=1024), dtype="f32")
    assert answer(CPU, shared)[0].candidate.way == "mesh in-place"


def test_overlap_is_between_the_greater_and_the_sum():
    for machine in (H800, H200):
        for one in answer(machine, ag_gemm()):
            found = one.price
            if one.candidate.transfer == "in-place":
                continue
            assert found.overlapped_us >= max(found.compute_us, found.transfer_us) * 0.9
            assert found.overlapped_us < found.in_turn_us


def test_answers_are_sorted_and_repeat():
    for question in (ag_gemm(), gemm_rs(), gemm_rs("all_reduce")):
        for machine in MACHINES:
            found = answer(machine, question)
            assert list(found) == sorted(found, key=lambda p: round(p.us, 6))
            answer.cache_clear()
            assert answer(machine, question) == found
            second = runner_up(found)
            assert second is not None
            assert second.candidate.way != found[0].candidate.way


def test_what_is_fixed_stays():
    fixed = Fixed("two-shot", "push", 7, (8, 9), (10, 11))
    question = replace(gemm_rs("all_reduce"), fixed=fixed)
    (only,) = answer(CPU, question)
    one = only.candidate
    assert (one.algorithm, one.transfer, one.chunk) == ("two-shot", "push", 7)
    assert (one.reduce_tile, one.tile) == ((8, 9), (10, 11))
    assert runner_up((only,)) is None


def test_ways_ask_the_machine_and_the_program():
    assert ("mesh", "in-place") in ways(CPU, ag_gemm())
    assert ("mesh", "in-place") not in ways(CPU, replace(ag_gemm(), in_place=False))
    capabilities = msgspec.structs.replace(CPU.capabilities, peer_pointers=False)
    far = msgspec.structs.replace(CPU, capabilities=capabilities)
    assert all(transfer != "in-place" for _, transfer in ways(far, ag_gemm()))


def test_small_all_reduces_take_one_shot():
    def best(m: int) -> str:
        question = Question("all_reduce", (max(m // 8, 1), 8192), "bf16", 8, 8)
        return answer(H800, question)[0].candidate.algorithm

    assert best(8) == "one-shot"
    assert best(8192) == "two-shot"


def test_the_change_that_is_named_changes_the_order():
    question = Question("all_reduce", (1, 8192), "bf16", 8, 8)
    found = answer(H800, question)
    second = runner_up(found)
    assert second is not None
    assert until(H800, question, found[0].candidate, second.candidate) == "4x the rows"
    more = replace(question, shape=(4, 8192))
    before = price(H800, more, replace(found[0].candidate, chunk=4))
    after = price(H800, more, replace(second.candidate, chunk=4))
    assert before is not None
    assert after is not None
    assert after.overlapped_us < before.overlapped_us


def test_tiles_of_products_that_stand_alone():
    found = tile_answer(H200, (GemmShape(8192, 8192, 8192, "bf16"),), 8)
    assert found[0][0] == (128, 256)
    assert [us for _, us in found] == sorted(us for _, us in found)
