"""Element types, as plain objects: a user writes `dt.bf16`, tables and IR carry its name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ditron.errors import DTypeError


class Kind(StrEnum):
    FLOAT = "float"
    INT = "int"
    BOOL = "bool"


@dataclass(frozen=True)
class DType:
    """An element type: its name in tables and messages, its size, and its torch name."""

    name: str
    bytes: int
    kind: Kind
    torch_name: str

    def __repr__(self) -> str:
        return f"dt.{self.name}"

    def __str__(self) -> str:
        return self.name


f32 = DType("f32", 4, Kind.FLOAT, "float32")
bf16 = DType("bf16", 2, Kind.FLOAT, "bfloat16")
f16 = DType("f16", 2, Kind.FLOAT, "float16")
f64 = DType("f64", 8, Kind.FLOAT, "float64")  # references compute in it; programs do not use it
i32 = DType("i32", 4, Kind.INT, "int32")
i64 = DType("i64", 8, Kind.INT, "int64")
bool_ = DType("bool", 1, Kind.BOOL, "bool")

DTYPES = {d.name: d for d in (f32, bf16, f16, f64, i32, i64, bool_)}
USABLE = tuple(d for d in DTYPES.values() if d is not f64)


def as_dtype(dtype: object) -> DType:
    """A ditron dtype from itself or from torch's of the same name (torch is not imported).

    Raises:
        DTypeError: anything else.
    """
    for known in USABLE:
        if dtype is known or repr(dtype) == f"torch.{known.torch_name}":
            return known
    names = ", ".join(map(repr, USABLE))
    message = f"{dtype!r} is no dtype of a program; expected one of {names}"
    raise DTypeError(message)
