"""Where fresh states are best drawn: most where least squares wants them, some where little is left to spare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from certirl.functions.bases import Basis
from certirl.ground.domain import Array, freeze


@dataclass(frozen=True, eq=False)
class Near:
    """A basis's design, with a share of the states drawn evenly around given places instead.

    A polynomial is known best where it was looked at: with three in ten of the states beside two places its variance
    there halves, and elsewhere grows by less than a half.

    Attributes:
        basis: whose design the others follow.
        places: states ``[z, d]``.
        widths: how far from a place along each coordinate ``[d]``.
        share: of the states.
    """

    basis: Basis
    places: Array
    widths: Array
    share: float

    def __post_init__(self) -> None:
        freeze(self)

    def __call__(self, count: int, rng: np.random.Generator) -> Array:
        """States ``[count, d]``."""
        states = self.basis.design(count, rng)
        chosen = rng.random(count) < self.share
        centres = self.places[rng.integers(len(self.places), size=count)]
        moved = centres + self.widths * rng.uniform(-1.0, 1.0, states.shape)
        low, high = np.array(self.basis.domain).T
        return np.where(chosen[:, None], np.clip(moved, low, high), states)
