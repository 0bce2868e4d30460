"""Assembly as the gate reads it: basic blocks of the instructions that matter, PTX or AMD's ISA."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    POLL = "poll"
    RELEASE = "release"
    BARRIER = "barrier"
    DRAIN = "drain"
    LOAD = "load"
    STORE = "store"
    # Through tensor descriptors, PTX's async proxy: such stores are out after a completion wait,
    # and only a proxy fence orders either with plain loads and stores.
    TILE_LOAD = "tile load"
    TILE_STORE = "tile store"
    COMPLETE = "complete"
    PROXY = "proxy fence"
    WAIT = "wait"
    NOTIFY = "notify"
    ENTER = "enter"  # the code of a task kind begins


@dataclass(frozen=True)
class Event:
    """One instruction that matters: its kind, a scope or the number of a site, and its text."""

    kind: Kind
    detail: str
    text: str

    @property
    def instruction(self) -> str:
        """The text without its comment."""
        return self.text.split("//")[0].strip()


@dataclass
class Block:
    """Instructions in a row, and where they may lead."""

    label: str
    events: list[Event] = field(default_factory=list[Event])
    targets: list[str] = field(default_factory=list[str])
    falls: bool = True


@dataclass(frozen=True)
class Dialect:
    """How an assembly is read: what a pattern matches is of its kind; group 1 is the detail."""

    patterns: tuple[tuple[Kind, str], ...]
    label: str
    branch: str
    ends: str
    jumps: str
    scopes: Mapping[str, str]
    drains: bool = False  # stores of other threads are only out after a drain and a barrier


PTX = Dialect(
    patterns=(
        (Kind.WAIT, r"mov\.b32 .*// wait (\d+)$"),
        (Kind.ENTER, r"mov\.b32 .*// enter (\d+)$"),
        (Kind.NOTIFY, r"mov\.b32 .*// notify (\d+)$"),
        (Kind.POLL, r"(?:@\S+ )?ld\.global\.(sys|gpu)\.acquire"),
        (Kind.RELEASE, r"(?:@\S+ )?(?:red|atom)\.global\.(sys|gpu)\.release"),
        (Kind.BARRIER, r"()(?:bar\.sync|barrier\.sync)"),
        (Kind.STORE, r"()(?:@\S+ )?st\.global"),
        (Kind.LOAD, r"()(?:@\S+ )?(?:cp\.async\.c[ag]|ld\.global\.(?:v\d|b16|b8))"),
        (Kind.TILE_STORE, r"()(?:@\S+ )?cp\.async\.bulk\.tensor\.\dd\.global"),
        (Kind.TILE_LOAD, r"()(?:@\S+ )?cp\.async\.bulk\.tensor"),
        (Kind.COMPLETE, r"()cp\.async\.bulk\.wait_group\s+0;"),
        (Kind.PROXY, r"()fence\.proxy\.async(?:\.global)?;"),
    ),
    label=r"(\$L__BB\S+):",
    branch=r"(?:@\S+ )?bra(?:\.uni)?\s+(\$L__BB[^;]+);",
    ends=r"(?:ret|exit|trap);",
    jumps=r"bra",
    scopes={"sys": "sys", "gpu": "gpu"},
)

GCN = Dialect(
    patterns=(
        (Kind.WAIT, r"v_mov_b32.*; wait (\d+)$"),
        (Kind.ENTER, r"v_mov_b32.*; enter (\d+)$"),
        (Kind.NOTIFY, r"v_mov_b32.*; notify (\d+)$"),
        (Kind.POLL, r"buffer_inv( sc0)? sc1"),
        (Kind.RELEASE, r"buffer_wbl2( sc0)? sc1"),
        (Kind.BARRIER, r"()s_barrier"),
        (Kind.DRAIN, r"()v_mov_b32.*; drain$"),
        (Kind.STORE, r"()(?:global|buffer|flat)_store_(?:short|byte|dword)"),
        (Kind.LOAD, r"()(?:global|buffer|flat)_load_(?:ushort|dwordx|short|ubyte)"),
    ),
    label=r"(\.LBB\S+):",
    # A wave with no thread to run skips what one thread does: that is no path of the program.
    branch=r"s_(?:branch|cbranch_(?!execz)\w+)\s+(\.LBB\S+)",
    ends=r"s_endpgm",
    jumps=r"s_branch",
    scopes={" sc0": "sys", "": "gpu"},
    drains=True,
)


def parse(text: str, dialect: Dialect) -> list[Block]:
    """Basic blocks of an assembly text, in its order."""
    blocks = [Block("entry")]
    for raw in text.splitlines():
        line = raw.strip()
        label = re.match(dialect.label, line)
        if label:
            blocks.append(Block(label[1]))
            continue
        branch = re.match(dialect.branch, line)
        if branch:
            blocks[-1].targets.append(branch[1])
            blocks[-1].falls = not re.match(dialect.jumps, line)
            blocks.append(Block(""))
        elif re.match(dialect.ends, line):
            blocks[-1].falls = False
            blocks.append(Block(""))
        else:
            blocks[-1].events += _events(line, dialect)
    return blocks


def _events(line: str, dialect: Dialect) -> Iterator[Event]:
    for kind, pattern in dialect.patterns:
        found = re.match(pattern, line)
        if found:
            yield Event(kind, found[1] or "", line)
            return
