"""Machines as data: what passes and cost models ask instead of names.

A machine is a YAML file under `ditron/machines/`; `docs/machines.md` tells how to add one. Times
are in us, sizes in bytes, rates in GB/s (10^9 bytes a second, one way) and TFLOP/s.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ditron.errors import MachineError

Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]
Time = Annotated[float, Meta(ge=0)]
Sizes = tuple[Count, Count]


class LinkKind(StrEnum):
    """How ranks are joined: what `Topology.gbytes_s` is the rate of."""

    MEMORY = "shared-memory"  # one memory: a copy by one core
    SWITCH = "switch"  # a rank's port; any peer at full rate
    MESH = "full-mesh"  # each of a rank's links, one a peer, all at once
    PCIE = "pcie"  # a rank's port, and what all ports share
    GRID = "grid"  # each link between neighbours of a grid; along the row, then the column


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What joins nodes: a NIC a rank.

    Attributes:
        ranks_a_node: how many ranks share a node.
        gbytes_s: a rank's NIC, each way.
        latency_us: from one rank's memory to another's, the least.
        fence_us: added to a signal that must come after the data.
    """

    ranks_a_node: Count
    gbytes_s: Positive
    latency_us: Time
    fence_us: Time


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How ranks are joined.

    Attributes:
        kind: what the rate is of.
        gbytes_s: see `LinkKind`.
        latency_us: the least time from one rank's memory to another's; on a grid, for each hop.
        shared_gbytes_s: of PCIe: what all ranks together can move, 0 for no limit.
        columns: of a grid: how many ranks a row of it has, row-major.
        network: between nodes, where there is more than one.
    """

    kind: LinkKind
    gbytes_s: Positive
    latency_us: Time
    shared_gbytes_s: Time = 0.0
    columns: Annotated[int, Meta(ge=0)] = 0
    network: Network | None = None

    def __post_init__(self) -> None:
        if (self.kind is LinkKind.GRID) != (self.columns > 0):
            raise ValueError("columns go with the kind `grid`")


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of engine of a device.

    Attributes:
        lanes: how many there are on a device; of "sm": workers that can be resident at once.
        remote_add: whether it can add to a signal word (else it can only set one).
        gbytes_s: what one lane moves between ranks, 0 for whatever the link carries.
        start_us: before each of its transfers.
        resident: lanes of a persistent kernel that can be resident at once, where it is small; 0 is
            `lanes`. The compiled kernel decides: a launch that does not fit is refused.
    """

    lanes: Count
    remote_add: bool
    gbytes_s: Time = 0.0
    start_us: Time = 0.0
    resident: Annotated[int, Meta(ge=0)] = 0


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a device computes.

    Attributes:
        matrix_tflops: of large products, by dtype. A dtype that is missing multiplies in float32.
        memory_gbytes_s: of one device's memory, reads and writes counted.
        operand_gbytes_s: at which the operands of products reach all workers together. A core
            packs them before it multiplies, a GPU loads them meanwhile.
        convert_gelements_s: elements widened to float32 or rounded from it, 0 where that is free.
    """

    matrix_tflops: dict[str, Positive]
    memory_gbytes_s: Positive
    operand_gbytes_s: Positive
    convert_gelements_s: Time = 0.0


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What does not grow with sizes, in us.

    Attributes:
        launch_us: from the call until all ranks run, and back.
        task_us: of one task besides its work.
        signal_us: from a notify to the waiter's next step.
        fence_us: of a fence before a signal within a node.
        sync_us: what a tile of a product takes longer that waits or notifies.
        next_us: from the end of a grid to the start of one that waits for it, in a captured graph.
    """

    launch_us: Time
    task_us: Time
    signal_us: Time
    fence_us: Time
    sync_us: Time = 0.0
    next_us: Time = 0.0


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last-level cache of a device, and what tiles that do not start together lose by it.

    `group_rows` rows of tiles run side by side, so that those which run together share operands; 0
    where tiles run row by row. Where tiles wait for their data g rows at a time, and the other
    operand is larger than the cache, a product takes `1 + spread_loss * g ** -spread_power` times
    as long: workers that started at different times no longer share what they read.
    """

    bytes: Count
    spread_loss: Time = 0.0
    spread_power: Time = 1.0
    group_rows: Annotated[int, Meta(ge=0)] = 0


class SignalKind(StrEnum):
    SET = "set"
    ADD = "add"


class Capabilities(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can be done at all; passes ask these and never a machine's name.

    Attributes:
        signals: how some engine can change a peer's signal word.
        stream_waits: a stream (or copy engine) can wait for a word.
        remote_add: some engine can add to a peer's word.
        put_with_signal: a transfer can raise a word as it lands.
        fifo_depth: transfers that a lane may have on their way (begun and not landed) before it
            blocks, 0 for no limit.
        dispatch_in_order: blocks of a grid start in block order.
        peer_pointers: tasks can read and write peers' memory in place.
        transitive_visibility: who sees a signal sees all that its sender had seen.
        graph_capturable: a launch can be captured once and replayed.
    """

    signals: tuple[SignalKind, ...]
    stream_waits: bool
    remote_add: bool
    put_with_signal: bool
    fifo_depth: Annotated[int, Meta(ge=0)]
    dispatch_in_order: bool
    peer_pointers: bool
    transitive_visibility: bool
    graph_capturable: bool

    def __post_init__(self) -> None:
        if self.remote_add != (SignalKind.ADD in self.signals):
            raise ValueError("remote_add goes with the signal kind `add`")


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, eq=False):
    """A machine file.

    Attributes:
        name: the file's name.
        target: the backend that runs on it.
        max_ranks: the most ranks it can hold.
        topology: how ranks are joined.
        engines: by engine name: "sm" computes, "copy" moves, "host" hands buffers over; "library",
            where there is one, multiplies and adds as the host calls it.
        rates: what a rank's device computes.
        costs: what does not grow with sizes.
        cache: the device's last-level cache.
        capabilities: what can be done at all.
        tile: rows and columns of a compute task when nobody says otherwise, in elements.
        tiles: those that are worth trying, `tile` among them.
        thin_tile: the same of products of so few rows that they only read memory, if there is one.
        reduce_tile: rows and columns of a task that adds contributions.
        reduce_tiles: those that are worth trying.
        chunk_bytes: the most one transfer moves when nobody says otherwise.
        chunks: those that are worth trying, in bytes.
        cores: where ranks are processes: the cores that all of them share; 0 where each rank has
            a device of its own. All lanes of a rank then take turns on one core.
    """

    name: str
    target: str
    max_ranks: Count
    topology: Topology
    engines: dict[str, Engine]
    rates: Rates
    costs: Costs
    cache: Cache
    capabilities: Capabilities
    tile: Sizes
    tiles: tuple[Sizes, ...]
    reduce_tile: Sizes
    reduce_tiles: tuple[Sizes, ...]
    chunk_bytes: Count
    chunks: tuple[Count, ...]
    cores: Annotated[int, Meta(ge=0)] = 0
    thin_tile: Sizes | None = None

    def __post_init__(self) -> None:
        missing = [name for name in ("sm", "copy", "host") if name not in self.engines]
        if missing:
            raise ValueError(f"engines: expected sm, copy and host, {', '.join(missing)} missing")
        if "f32" not in self.rates.matrix_tflops:
            raise ValueError("rates.matrix_tflops: expected at least f32")

    @property
    def peer_pointers(self) -> bool:
        """Tasks can read and write peers' memory in place."""
        return self.capabilities.peer_pointers

    @property
    def workers(self) -> int:
        """Compute tasks that a device runs at once."""
        return self.engines["sm"].lanes

    @property
    def resident(self) -> int:
        """Lanes of a persistent kernel that fit on a device."""
        return self.engines["sm"].resident or self.workers

    @property
    def ranks_a_node(self) -> int:
        """Ranks that reach each other without a network."""
        network = self.topology.network
        return self.max_ranks if network is None else network.ranks_a_node


def load_machine(name_or_path: str) -> Machine:
    """A machine by the name of a file that ships with ditron, or by path.

    Raises:
        MachineError: no such file, or it does not describe a machine; one line that names the
            file, the field and what was expected.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise MachineError(f"cannot read machine file {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise MachineError(f"machine file {path} is no UTF-8 text") from error
        return _decode(text, str(path))
    if name_or_path not in machine_names():
        known = ", ".join(machine_names())
        raise MachineError(f"no machine {name_or_path!r}; there are {known}, or give a .yaml file")
    return _shipped(name_or_path)


def machine_names() -> tuple[str, ...]:
    """The machines that ship with ditron."""
    folder = resources.files("ditron") / "machines"
    names = (f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))
    return tuple(sorted(names))


@cache
def _shipped(name: str) -> Machine:
    path = resources.files("ditron") / "machines" / f"{name}.yaml"
    return _decode(path.read_text(encoding="utf-8"), str(path))


def _decode(text: str, where: str) -> Machine:
    try:
        return msgspec.yaml.decode(text, type=Machine)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.engines.sm.lanes`"
        message, _, at = str(error).partition(" - at `")
        field = re.sub(r"^\$\.?", "", at.rstrip("`"))
        raise MachineError(f"{field}: {message}" if field else message, where) from error
    except msgspec.DecodeError as error:
        problem = re.sub(r"\s+", " ", str(error))
        raise MachineError(f"no YAML: {problem}", where) from error
