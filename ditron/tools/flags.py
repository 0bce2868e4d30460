"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Level(StrEnum):
    TASK = "task"
    DEVICE = "device"
    PLAN = "plan"
    SHMEM = "shmem"
    CORE = "core"
    HOST = "host"
    TRITON = "triton"
    PTX = "ptx"
    AMDGCN = "amdgcn"


File = Annotated[Path, typer.Argument(help="a .py file with program(), or a .mlir dump")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="an argument of program()")
]
Json = Annotated[bool, typer.Option("--json", help="print data for programs, not for reading")]
Target = Annotated[str, typer.Option(help="what to compile for")]
Machine = Annotated[str | None, typer.Option(help="a machine's name or YAML file")]
Algorithm = Annotated[str | None, typer.Option(help="of every collective, such as mesh-in-place")]
ChunkBytes = Annotated[int | None, typer.Option(help="the most that one transfer moves")]
Tile = Annotated[str | None, typer.Option(metavar="MxN", help="what one compute task makes")]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-O", metavar="[OP:]NAME=VALUE", help="any other of dt.Options, or of one op"
    ),
]
