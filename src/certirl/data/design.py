"""Sampling designs of fresh states, of which any is sound: proofs are conditional on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.functions.bases import Basis
from certirl.ground.domain import Array, freeze
from certirl.kernels.tensors import torch

# The share of states next to the ends of a coordinate, times degree + 2, by the number of coordinates that have ends.
_ENDS = (0.9, 1.5, 1.8)


@dataclass(frozen=True, eq=False)
class Even:
    """States for which least squares is about equally accurate everywhere.

    The largest φᵀG⁻¹φ, the variance of a fit of k functions at a state, is at least k/n. For polynomials and uniform
    states it is k²/n, for the arcsine distribution (`Basis.design`) 2k/n, on boxes up to 4.5k/n at the corners. Here
    some of the states are next to the ends of each coordinate instead, and it is about 1.3k/n.

    Attributes:
        bases: one, or one for each component of the state.
        coordinates: those of each component; None for a single basis.
    """

    bases: tuple[Basis, ...]
    coordinates: tuple[tuple[int, ...], ...] | None = None

    def __call__(self, count: int, rng: Any) -> Any:
        """States ``[count, d]``, tensors if ``rng`` is a generator of a device."""
        size = sum(basis.dimension for basis in self.bases)
        places = self.coordinates or (tuple(range(size)),)
        on_host = isinstance(rng, np.random.Generator)
        columns: list[Any] = [None] * size
        uniform = rng.random((size, count)) if on_host else torch().rand(size, count, generator=rng, device=rng.device)
        cosine = np.cos if on_host else torch().cos
        for basis, own in zip(self.bases, places, strict=True):
            with_ends = basis.dimension - len(basis.periodic_axes)
            for part, place in zip(basis.parts, own, strict=True):
                u, ((low, high),) = uniform[place], part.domain
                t = 2 * u - 1 if part.periodic else cosine(toward_ends(u, part.degree, with_ends))
                columns[place] = ((low + high) / 2 + (high - low) / 2 * t).clip(low, high)
        return np.stack(columns, axis=1) if on_host else torch().stack(columns, dim=1)


def toward_ends(uniform: Any, degree: int, coordinates: int) -> Any:
    """Angles θ from uniform numbers: even on [0, π], but for a share next to its ends.

    Args:
        uniform: numbers between 0 and 1.
        degree: of the functions in this coordinate.
        coordinates: how many of the box have ends.
    """
    if degree == 0:
        return np.pi * uniform
    width, share = 0.5 / degree, _ENDS[min(coordinates, len(_ENDS)) - 1] / (degree + 2)
    end = share / 2 + (1 - share) * width / np.pi  # the probability of angles within the width of an end
    outer, inner = width / end, (np.pi - 2 * width) / (1 - 2 * end)
    middle, last = (uniform - end).clip(0.0, 1 - 2 * end), (uniform - (1 - end)).clip(0.0, end)
    return outer * (uniform.clip(0.0, end) + last) + inner * middle


@dataclass(frozen=True, eq=False)
class Near:
    """A basis's even design, with a share of the states near given places instead.

    With three in ten of the states near two places, the variance of a polynomial fit halves there, and grows by less
    than a half elsewhere.

    Attributes:
        basis: its design gives the other states.
        places: the given states ``[z, d]``.
        widths: the largest distance from a place along each coordinate ``[d]``.
        share: the share of states near a place.
    """

    basis: Basis
    places: Array
    widths: Array
    share: float

    def __post_init__(self) -> None:
        freeze(self)

    def __call__(self, count: int, rng: np.random.Generator) -> Array:
        """States ``[count, d]``."""
        states: Array = Even((self.basis,))(count, rng)
        chosen = rng.random(count) < self.share
        centres = self.places[rng.integers(len(self.places), size=count)]
        moved = centres + self.widths * rng.uniform(-1.0, 1.0, states.shape)
        low, high = np.array(self.basis.domain).T
        return np.where(chosen[:, None], np.clip(moved, low, high), states)


def even(bases: Sequence[Basis], coordinates: Sequence[tuple[int, ...] | None]) -> Even:
    """The even design of the components of a state."""
    if coordinates[0] is None:
        return Even(tuple(bases))
    return Even(tuple(bases), tuple(own for own in coordinates if own is not None))
