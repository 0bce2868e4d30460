"""Options: what is refused, and which choice holds for an op."""

from __future__ import annotations

from typing import Any

import pytest

import ditron as dt
from ditron.errors import OptionError
from ditron.plan.collectives import ALGORITHMS, knows, parse_algorithm


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "star"}, "no collective has an algorithm 'star'; there are "),
        ({"algorithm": "ring-pull"}, "no collective has an algorithm 'ring-pull'"),
        ({"algorithm": ""}, "no collective has an algorithm ''"),
        ({"chunk_bytes": 0}, "chunk_bytes is at least 1, got 0"),
        ({"tile": (0, 4)}, "tile is two positive sizes such as (128, 256), got (0, 4)"),
        ({"tile": (4,)}, "tile is two positive sizes such as (128, 256), got (4,)"),
        ({"tile": (4, 4, 4)}, "tile is two positive sizes such as (128, 256), got (4, 4, 4)"),
        ({"order": "random"}, 'order is "natural" or "arrival", got \'random\''),
        ({"workers": 0}, "workers is at least 1, got 0"),
        ({"copy_lanes": -1}, "copy_lanes is at least 1, got -1"),
        ({"wait_bound_s": 0.0}, "wait_bound_s is positive, got 0.0"),
        ({"deterministic": False}, "deterministic=False is not supported yet"),
    ],
)
def test_refused(options: dict[str, Any], message: str):
    with pytest.raises(OptionError) as caught:
        dt.Options(**options)
    assert str(caught.value).startswith(message)


def test_the_first_pattern_that_matches_counts():
    own = {
        "layers.*.up": dt.OpOptions(tile=(64, 64)),
        "layers.*": dt.OpOptions(algorithm="ring", chunk_bytes=8),
    }
    options = dt.Options(algorithm="mesh", tile=(128, 256), per_op=own)
    assert options.for_op("layers.3.up") == dt.OpOptions("mesh", None, (64, 64))
    assert options.for_op("layers.3.down") == dt.OpOptions("ring", 8, (128, 256))
    assert options.for_op("head") == dt.OpOptions("mesh", None, (128, 256))
    assert options.for_op("Layers.3.up") == dt.OpOptions("mesh", None, (128, 256))


def test_none_means_that_ditron_chooses():
    assert dt.Options().for_op("x") == dt.OpOptions(None, None, None)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_algorithm_parses_with_each_of_its_transfers(kind: str):
    for name, transfers in ALGORITHMS[kind].items():
        assert parse_algorithm(name) == (name, "")
        assert knows(kind, name)
        for transfer in transfers:
            assert parse_algorithm(f"{name}-{transfer}") == (name, transfer)
            assert knows(kind, name, transfer)


def test_what_a_collective_does_not_know():
    assert not knows("all_gather", "one-shot")
    assert not knows("all_gather", "ring", "in-place")
    assert not knows("reduce_scatter", "mesh", "pull")
