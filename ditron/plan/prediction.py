"""What a choice was expected to cost, as it stands on the op that it was made for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """Of a choice, with the neighbours that it overlaps with; 0 and "" where nothing is known.

    Attributes:
        cost_ns: of a launch of these ops alone, in ns.
        over: the next best way.
        over_ns: what that would cost, in ns.
        until: a change by which it would win.
    """

    cost_ns: int = 0
    over: str = ""
    over_ns: int = 0
    until: str = ""

    def __str__(self) -> str:
        """`cost_ns 812400 over "mesh push" 901200 until "4x the rows"`."""
        words = [f"cost_ns {self.cost_ns}"] if self.cost_ns else []
        words += [f'over "{self.over}" {self.over_ns}'] if self.over else []
        words += [f'until "{self.until}"'] if self.until else []
        return " ".join(words)


NO_PREDICTION = Prediction()
