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
from ditron.plan.tables import Longs

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


LARGEST_OWN = 16
"""Beyond, products of a few numbers would come to a multiple of 2^64, which is nothing."""


def constant(number: float, kind: Kind) -> Tags:
    """A number: integers and small whole ones are the ring's own.

    About others nothing is known but their digits.
    """
    if kind is not Kind.FLOAT or (float(number).is_integer() and abs(number) <= LARGEST_OWN):
        return np.array(int(number) % 2**64, np.uint64)
    return word(f"constant {float(number)!r}")


def weights(edges: Longs) -> Tags:
    """What the cells [.., C] of a dimension count for in a sum, from their edges [.., C + 1].

    A cell of many elements has one tag, and a term that does not depend on the element is added
    once for each. How many that are is not reckoned with but in that cells of other lengths count
    for something else: lengths are often even, and products of them soon come to nothing.
    """
    lengths = np.diff(edges)
    return np.where(lengths == 1, np.uint64(1), mix(lengths.astype(np.uint64)) | np.uint64(1))


def function(name: str) -> Callable[[Tags], Tags]:
    """A function of one operand about which nothing is known but its name."""
    salt = word(name)
    return lambda x: mix(x ^ salt)


def cast(tags: Tags, source: str, target: str) -> Tags:
    """From one dtype to another, by name: what only rounds keeps tags, what cuts off does not."""
    old, new = DTYPES[source], DTYPES[target]
    narrower = new.kind is Kind.INT and new.bytes < old.bytes
    if old.kind is Kind.BOOL or new.kind is Kind.FLOAT or (new.kind is old.kind and not narrower):
        return tags
    return function(f"cast to {new}")(tags)


def dot(a: Tags, b: Tags, by: Tags, *, transpose_b: bool = False) -> Tags:
    """Products of cells [.., M, K] and [.., K, N] (or [.., N, K]), summed over K.

    `by` are the weights of the cells of K, which broadcast with `a`.
    """
    if transpose_b:
        b = np.swapaxes(b, -1, -2)
    a = a * by
    if a.shape[-1] == b.shape[-2] == 1:
        return a * b
    return np.matmul(a, b)


def total(x: Tags, by: Tags, axis: int) -> Tags:
    """The sum along an axis, which stays; `by` are the weights of its cells, along it."""
    return (x * by).sum(axis, np.uint64, keepdims=True)


def divide(a: Tags, b: Tags) -> Tags:
    """Times a reciprocal about which nothing is known."""
    return np.multiply(a, function("reciprocal")(b))


def less_or_equal(a: Tags, b: Tags) -> Tags:
    """A function of the difference alone, so that both may be counted from anywhere."""
    return function("less or equal")(a - b)


def where(condition: Tags, a: Tags, b: Tags) -> Tags:
    """One of two: `a` times what the condition is, plus `b` times what it is not."""
    return condition * a + function("not")(condition) * b


def maximum(x: Tags, axis: int) -> Tags:
    """The largest along an axis, which stays: a function of all in whatever order."""
    return mix(mix(x ^ word("max")).sum(axis, np.uint64, keepdims=True))


def argmax(x: Tags, labels: Tags, axis: int) -> Tags:
    """The label of the largest along an axis: a function of all that stand beside their labels."""
    return mix(mix(mix(x ^ word("argmax")) + labels).sum(axis, np.uint64, keepdims=True))


def gather(table: Tags, ids: Tags, starts: Longs, ndim: int) -> Tags:
    """Rows of a table [.., V, D] by ids [.., *ndim]: a product with where each id is.

    A function of the id less the row alone, so that both may be counted from anywhere; a table's
    parts add up to the whole. `starts` [.., V] is where the rows' cells begin.
    """
    many, dims = ids.shape[: ids.ndim - ndim], ids.shape[ids.ndim - ndim :]
    flat = ids.reshape(*many, -1, 1)
    chosen = mix((flat - starts.astype(np.uint64)[..., None, :]) ^ word("row"))
    rows = np.matmul(chosen, table)
    return rows.reshape(*rows.shape[:-2], *dims, rows.shape[-1])


def part_at(x: Tags, at: Tags, whole: Longs, part: Longs, axis: int) -> Tags:
    """The part along an axis that begins at `at` [.., 1], from where its cells begin in it.

    Where it begins is not known, so each cell is a sum over all that it may be.
    """
    rows = np.moveaxis(x, axis, -1)[..., None, :]
    found = np.matmul(rows, _among(_chosen(at, whole, part), rows))
    return np.moveaxis(found[..., 0, :], -1, axis)


def with_part_at(x: Tags, value: Tags, at: Tags, whole: Longs, part: Longs, axis: int) -> Tags:
    """All of `x`, with a value over what `part_at` would have."""
    chosen = np.swapaxes(_chosen(at, whole, part), -1, -2)
    kept = mix((at - whole.astype(np.uint64)) ^ word("kept"))
    rows, values = (np.moveaxis(y, axis, -1)[..., None, :] for y in (x, value))
    written = np.matmul(values, _among(chosen, values))
    written = written + rows * _among(kept[..., None, :], rows)
    return np.moveaxis(written[..., 0, :], -1, axis)


def _chosen(at: Tags, whole: Longs, part: Longs) -> Tags:
    """Which cell of the whole [.., C] each cell of a part [.., S] is: [.., C, S]."""
    here, there = whole.astype(np.uint64)[..., :, None], part.astype(np.uint64)[..., None, :]
    return mix((here - there - at[..., None]) ^ word("part"))


def _among(matrices: Tags, rows: Tags) -> Tags:
    """Matrices [.., A, B] as such of rows [.., *dims, A]."""
    many = matrices.shape[:-2]
    return matrices.reshape(*many, *[1] * (rows.ndim - 2 - len(many)), *matrices.shape[-2:])


BINARY: dict[str, Callable[[Tags, Tags], Tags]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": divide,
    "le": less_or_equal,
}
