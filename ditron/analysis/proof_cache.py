"""Proofs that have been made before, by what they were made of.

A proof is found again by the hash of the plan, its kernels and its program, within the process and,
where a folder is given, on disk. An entry on disk also names the source of the verifier, so that no
other version's proof is taken over. What cannot be read, or is not what was written, is ignored.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ditron.ir import core, task
from ditron.plan.storage import plan_hash
from ditron.plan.tables import Plan

FOLDER = "DITRON_PROOF_CACHE"
"""The environment variable that names the folder on disk; without it there is none."""

KEPT = 256  # proofs in the process

Report = TypeVar("Report")


def proof_key(
    plan: Plan, kernels: Mapping[str, core.FuncOp], program: task.ProgramOp | None
) -> str:
    """A hash that two proofs share only if they are of the same plan, kernels and program."""
    called = {op.kernel for op in plan.ops}
    parts = [plan_hash(plan), str(program)]
    parts += [f"{name}: {kernels[name]}" for name in sorted(called & kernels.keys())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class ProofCache(Generic[Report]):
    """Reports of one type by key; the last `KEPT` in memory, all of them in the folder."""

    def __init__(self, kind: type[Report]) -> None:
        self._kind = kind
        self._reports: OrderedDict[str, Report] = OrderedDict()

    def get(self, key: str) -> Report | None:
        """The report of a proof made before."""
        found = self._reports.get(key) or self._read(key)
        if found is not None:
            self._keep(key, found)
        return found

    def put(self, key: str, report: Report) -> None:
        """Remember a proof that holds."""
        self._keep(key, report)
        path = _path(key)
        if path is None:
            return
        body = msgspec.json.encode(report)
        temporary = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_checksum(body) + b"\n" + body)
            temporary.replace(path)
        except OSError:
            return  # a full or read-only disk costs the next proof, no more

    def clear(self) -> None:
        """Forget what the process holds."""
        self._reports.clear()

    def _keep(self, key: str, report: Report) -> None:
        self._reports[key] = report
        self._reports.move_to_end(key)
        while len(self._reports) > KEPT:
            self._reports.popitem(last=False)

    def _read(self, key: str) -> Report | None:
        path = _path(key)
        if path is None:
            return None
        try:
            check, _, body = path.read_bytes().partition(b"\n")
            if check != _checksum(body):
                return None
            return msgspec.json.decode(body, type=self._kind)
        except (OSError, msgspec.DecodeError):
            return None


def _path(key: str) -> Path | None:
    folder = os.environ.get(FOLDER)
    return Path(folder) / f"{key}-{_verifier()[:16]}.proof" if folder else None


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


@cache
def _verifier() -> str:
    """A hash of the source that proves: the analyses, and what the plan's tables mean."""
    here = Path(__file__).parent
    files = [*sorted(here.glob("*.py")), here.parent / "plan" / "tables.py"]
    return hashlib.sha256(b"\0".join(f.read_bytes() for f in files)).hexdigest()
