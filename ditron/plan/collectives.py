"""The algorithms of each collective, by name.

An algorithm says who talks to whom; a transfer says who moves the bytes: `push` (the owner writes
them to its peer), `pull` (the peer fetches them), `in-place` (nobody: tasks read the owner's memory
where it lies, which takes shared memory or peer pointers).
"""

from __future__ import annotations

from ditron.errors import OptionError

TRANSFERS = ("push", "pull", "in-place")

ALGORITHMS: dict[str, dict[str, tuple[str, ...]]] = {
    "all_gather": {
        "mesh": ("push", "pull", "in-place"),
        "ring": ("push",),
        "bruck": ("push",),
        "hierarchical": ("push",),
    },
    "reduce_scatter": {"mesh": ("push", "in-place"), "ring": ("push",)},
    "all_reduce": {
        "one-shot": ("push", "in-place"),
        "two-shot": ("push", "in-place"),
        "ring": ("push",),
    },
    "all_to_all": {"mesh": ("push",), "pairwise-xor": ("push",)},
    "broadcast": {"flat": ("push",), "tree": ("push",), "chain": ("push",)},
    "shift": {"mesh": ("push",)},
}


def parse_algorithm(text: str) -> tuple[str, str]:
    """("mesh", "push") of "mesh-push"; the transfer is "" where none is named.

    Raises:
        OptionError: no collective has such an algorithm.
    """
    for transfer in TRANSFERS:
        name = text.removesuffix(f"-{transfer}")
        if name != text:
            break
    else:
        name, transfer = text, ""
    if not any(knows(kind, name, transfer) for kind in ALGORITHMS):
        known = sorted({a for kind in ALGORITHMS.values() for a in kind})
        raise OptionError(
            f"no collective has an algorithm {text!r}; there are {', '.join(known)}, each with"
            f" an optional -push, -pull or -in-place"
        )
    return name, transfer


def knows(kind: str, algorithm: str, transfer: str = "") -> bool:
    """Whether a collective has an algorithm, and that with this transfer ("" is any)."""
    transfers = ALGORITHMS[kind].get(algorithm, ())
    return transfer in transfers or (not transfer and bool(transfers))
