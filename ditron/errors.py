"""Every error that ditron raises on purpose.

An error says what was expected, what came, where, and what to do. `where` is the user's own
`file:line` when it is known. Faults in IR derive from xDSL's exceptions in `ditron.ir`, since
xDSL's driver reports those; everything else is in this tree.
"""

from __future__ import annotations

from dataclasses import dataclass


class DitronError(Exception):
    """Base class: a message and, where known, the user's `file:line` it is about."""

    def __init__(self, message: str, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class ProgramError(DitronError):
    """The program as written is wrong; raised at the user's own line."""


class ShapeError(ProgramError):
    """Shapes that do not fit an operation."""


class PlacementError(ProgramError):
    """Placements that do not fit an operation, with the collective that would mend it."""


class DTypeError(ProgramError):
    """Dtypes that do not fit an operation."""


class MeshError(ProgramError):
    """A mesh axis that does not exist, or a mesh that cannot be."""


class OptionError(DitronError):
    """An option, pass or target that does not exist or does not fit."""


class MachineError(DitronError):
    """A machine file that cannot be read or does not describe a machine."""


class InputError(DitronError):
    """Tensors or files given to an executable that do not fit its program."""


class ModelError(DitronError):
    """A model whose config or weights ditron cannot take, or that the ranks do not divide."""


class PlanError(DitronError):
    """A plan that cannot be made or read."""


@dataclass(frozen=True)
class Counterexample:
    """What a proof found wrong, as plain data; `ditron.analysis.counterexample` has its kinds."""


class CompileError(DitronError):
    """A kernel whose compiled text does not do what its source says, or takes too much."""


class ProofError(DitronError):
    """A proof that failed; the message tells what `counterexample` holds as data."""

    def __init__(
        self, message: str, where: str | None = None, counterexample: Counterexample | None = None
    ) -> None:
        super().__init__(message, where)
        self.counterexample = counterexample


class DeliveryError(ProofError):
    """An output would not hold what the program says."""


class RaceError(ProofError):
    """Two accesses to the same bytes that nothing orders."""


class DeadlockError(ProofError):
    """A wait that can never be satisfied."""


class LaunchError(DitronError):
    """A launch that did not finish: a dead rank, or an executable that cannot be used."""


class HangError(LaunchError):
    """A wait that ran out of its bound; the message is the hang report."""
