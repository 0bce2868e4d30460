"""How a kernel sees a box of a buffer whose dimensions it splits, or takes in another order."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fold:
    """Dimension d of a view is a part of dimension `axes[d]` of its box.

    Those of one axis are row-major: a row of 256 elements as 2 x 128 has axes (0, 0). `dims` is the
    view's capacity. Of the dimensions of one axis the first that can be larger than 1 may hold
    fewer; those after it are whole. A dimension of the box that none is part of has size 1.
    """

    axes: tuple[int, ...]
    dims: tuple[int, ...]

    def parts(self, axis: int) -> list[int]:
        """The view's dimensions that are part of one of the box."""
        return [d for d, a in enumerate(self.axes) if a == axis]

    def steps(self) -> list[int]:
        """How far apart neighbours along each dimension are, in elements along its axis."""
        return [prod(self.dims[i] for i in self.parts(a) if i > d) for d, a in enumerate(self.axes)]

    def leading(self, axis: int) -> int:
        """The view's dimension that is cut where the box is."""
        parts = self.parts(axis)
        return next((d for d in parts if self.dims[d] != 1), parts[0])

    def sizes(self, box: Sizes) -> Sizes:
        """Sizes of views [N, view's D] of boxes of some sizes [N, box's D]."""
        sizes = np.tile(np.array(self.dims, np.int64), (len(box), 1))
        steps = self.steps()
        for axis in set(self.axes):
            d = self.leading(axis)
            sizes[:, d] = box[:, axis] // steps[d]
        return sizes

    def holds(self, box: Sizes) -> bool:
        """Whether boxes of some sizes [N, box's D] are views of this kind."""
        sizes = self.sizes(box)
        own = np.delete(box, list(set(self.axes)), axis=1)
        fits = (sizes <= np.array(self.dims)).all() and (own == 1).all()
        return bool(fits and np.array_equal(self.box(sizes, box), box))

    def box(self, sizes: Sizes, box: Sizes) -> Sizes:
        """Sizes of boxes [N, box's D] that views of some sizes have; `box` are those they may."""
        box = box.copy()
        for axis in set(self.axes):
            box[:, axis] = sizes[:, self.parts(axis)].prod(axis=1)
        return box
