"""Arithmetic on tags in the ring of integers mod 2^64: a test of polynomial identity.

Each cell of an input gets a tag that looks random; sums, products and matrix products are the
ring's own, so that any order of summation and any split gives the same tag; other functions hash
their operand. Two expressions that differ get equal tags with a probability of about 2^-64 times
their degree. Copies keep tags, and so do casts that only round: that is outside of what tags tell.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from ditron.plan.dtypes import DTYPES, Kind

Tags = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(x: Tags) -> Tags:
    """A bijection on 64 bits that looks random.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    """
    with np.errstate(over="ignore"):  # numpy warns of it for scalars
        x = x + _GOLDEN
        x = (x ^ (x >> np.uint64(30))) * _MIX_1
        x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def word(text: str) -> Tags:
    """A tag for a name."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return np.array(int.from_bytes(digest, "little"), np.uint64)


def input_tags(name: str, edges: list[npt.NDArray[np.int64]]) -> Tags:
    """Tags of the cells of an input, from its name and the coordinates where each cell begins."""
    tags = word(name).reshape((1,) * len(edges))
    for dim, cuts in enumerate(edges):
        at = cuts[:-1].astype(np.uint64).reshape([-1 if d == dim else 1 for d in range(len(edges))])
        tags = mix(tags ^ mix(at ^ word(f"dim {dim}")))
    return tags


def constant(number: float) -> Tags:
    """A number: integers are the ring's own, about others nothing is known but their digits."""
    if float(number).is_integer():
        return np.array(int(number) % 2**64, np.uint64)
    return word(f"constant {float(number)!r}")


def function(name: str) -> Callable[[Tags], Tags]:
    """A function of one operand about which nothing is known but its name."""
    salt = word(name)
    return lambda x: mix(x ^ salt)


def cast(tags: Tags, source: str, target: str) -> Tags:
    """From one dtype to another, by name: what only rounds keeps tags, what cuts off does not."""
    old, new = DTYPES[source].kind, DTYPES[target].kind
    if new in (old, Kind.FLOAT) or old is Kind.BOOL:
        return tags
    return function(f"cast to {new}")(tags)


def dot(a: Tags, b: Tags, *, transpose_b: bool = False) -> Tags:
    """Products of cells [.., M, K] and [.., K, N] (or [.., N, K]), summed over K."""
    if transpose_b:
        b = np.swapaxes(b, -1, -2)
    if a.shape[-1] == b.shape[-2] == 1:
        return a * b
    return np.matmul(a, b)


BINARY: dict[str, Callable[[Tags, Tags], Tags]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
}
