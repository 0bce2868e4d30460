"""Machines as data: what passes and cost models ask instead of names."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from ditron.errors import MachineError


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of engine of a device.

    Attributes:
        lanes: how many there are on a device.
        remote_add: whether it can add to a signal word (else it can only set one).
    """

    lanes: int
    remote_add: bool


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine file.

    Attributes:
        name: the file's name.
        target: the backend that runs on it.
        max_ranks: the most ranks it can hold.
        peer_pointers: tasks can read and write peers' memory in place.
        engines: by engine name: "sm" computes, "copy" moves, "host" hands buffers over.
        tile: rows and columns of a compute task when nobody says otherwise, in elements.
        reduce_tile: the same for a task that adds contributions.
        chunk_bytes: the most one transfer moves when nobody says otherwise.
    """

    name: str
    target: str
    max_ranks: int
    peer_pointers: bool
    engines: dict[str, Engine]
    tile: tuple[int, int]
    reduce_tile: tuple[int, int]
    chunk_bytes: int


def load_machine(name_or_path: str) -> Machine:
    """A machine by the name of a file that ships with ditron, or by path.

    Raises:
        MachineError: no such file, or it does not describe a machine.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise MachineError(f"cannot read machine file {path}: {error.strerror}") from error
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
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise MachineError(f"not a machine file: {error}", where) from error
