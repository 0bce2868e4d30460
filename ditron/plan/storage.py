"""Plans as plain data and as files: the same plan gives the same bytes.

A file is msgpack: the plan's records and tables by field name, arrays as (dtype, shape, bytes) in
little-endian order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from ditron.errors import PlanError
from ditron.plan.integrity import check_integrity
from ditron.plan.tables import Plan

FORMAT = "ditron-plan-3"
Array = np.ndarray[Any, np.dtype[Any]]
_T = TypeVar("_T")


def to_data(value: Any, array: Callable[[Array], object] = Array.tolist) -> Any:  # noqa: ANN401 - plain data
    """Records as dicts, enums as their values, arrays by `array` (lists by default)."""
    if isinstance(value, np.ndarray):
        return array(cast("Array", value))
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_data(getattr(value, f.name), array) for f in fields(value)}
    if isinstance(value, tuple):
        return [to_data(item, array) for item in cast("tuple[Any, ...]", value)]
    return value.value if isinstance(value, Enum) else value


def to_bytes(plan: Plan) -> bytes:
    """The plan as a file's contents."""
    return msgspec.msgpack.encode({"format": FORMAT, "plan": to_data(plan, _pack)})


def plan_hash(plan: Plan) -> str:
    """A hash that two plans share only if they are the same."""
    return hashlib.sha256(to_bytes(plan)).hexdigest()


def from_bytes(data: bytes) -> Plan:
    """The plan that `to_bytes` made the data from.

    Raises:
        PlanError: the data is no plan, or one of another version.
    """
    try:
        read = msgspec.msgpack.decode(data)
        if read["format"] != FORMAT:
            raise PlanError(f"expected a file of format {FORMAT}, got {read['format']}")
        plan = _build(Plan, read["plan"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"not a plan: {error}") from error
    check_integrity(plan)
    return plan


def save(plan: Plan, path: str | Path) -> None:
    """Write a plan to a file."""
    Path(path).write_bytes(to_bytes(plan))


def load(path: str | Path) -> Plan:
    """Read a plan from a file.

    Raises:
        PlanError: the file cannot be read or is no plan.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise PlanError(f"cannot read plan {path}: {error.strerror}") from error
    return from_bytes(data)


def _pack(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    little = array.astype(array.dtype.newbyteorder("<"))
    return little.dtype.str, array.shape, little.tobytes()


def _build(kind: type[_T], data: Any) -> _T:  # noqa: ANN401 - plain data
    """A record of a dataclass from its dict, by the types of its fields."""
    hints = get_type_hints(kind)
    return kind(**{name: _value(hint, data[name]) for name, hint in hints.items()})


def _value(hint: Any, data: Any) -> Any:  # noqa: ANN401 - plain data
    if get_origin(hint) is np.ndarray:
        dtype, shape, raw = data
        wanted = np.dtype(get_args(get_args(hint)[1])[0])
        if dtype != wanted.newbyteorder("<").str:
            raise TypeError(f"expected an array of {wanted}, got {dtype!r}")
        return np.frombuffer(raw, dtype).astype(wanted).reshape(shape)
    if get_origin(hint) is UnionType:
        return None if data is None else _value(get_args(hint)[0], data)
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], item) for item in data)
    if is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, data)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    return msgspec.convert(data, hint)
