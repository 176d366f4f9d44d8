"""Spread points of a basis: what the values of an expansion there say about all states between them."""

from __future__ import annotations

import numpy as np

from certirl.functions.bases import Basis
from certirl.ground.domain import Array, mesh


def spread_counts(basis: Basis, share: float) -> tuple[int, ...]:
    """Numbers of spread points: ``share`` times the degree, twice that if periodic; or 1."""
    return tuple(max(int(np.ceil(share * part.degree * (2 if part.periodic else 1))), 1) for part in basis.parts)


def spread_points(basis: Basis, *counts: int) -> Array:
    """A mesh of states ``[Π counts, d]``, the last coordinate varying fastest.

    In each coordinate these are the Chebyshev points, or evenly spaced points of the circle.
    """
    pairs = zip(basis.parts, counts, strict=True)
    return mesh([part._from_reference(part._reference_points(n)) for part, n in pairs])


def inflation(basis: Basis, *counts: int, times: int = 1) -> float:
    """The factor c with sup|f| ≤ c · max|f| over the spread points, f a product of ``times`` expansions.

    Every state has a spread point within half a step h_j in the angle of each coordinate. Along the line between them f
    is of exponential type σ = max_k Σ k_j h_j over degrees k and falls no faster than cos σ (Duffin and Schaeffer);
    coordinate by coordinate the factor is Π 1/cos(k_j h_j) (Ehlich and Zeller). The better of the two is returned,
    infinity where neither applies; in one coordinate they are the same.
    """
    pairs = zip(basis.parts, counts, strict=True)
    steps = np.array([(np.pi if part.periodic else np.pi / 2) / n for part, n in pairs])
    degrees = times * basis.degrees
    each, along = degrees.max(axis=0) * steps, float((degrees @ steps).max())
    factors = [1 / np.cos(along)] if along < np.pi / 2 else []
    factors += [float(np.prod(1 / np.cos(each)))] if (each < np.pi / 2).all() else []
    return float(min(factors, default=np.inf))
