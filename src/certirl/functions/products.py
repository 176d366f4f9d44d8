"""Products of two functions of a family lie in the span of about twice as many: φ_i φ_j = Σ_m J_mij χ_m.

Sums over data of φ_i φ_j f, one for each of k(k + 1)/2 pairs, are then a fixed image of 2k − 1 sums of χ_m f.
docs/notes/certificate.md, section 9, says what this does to rounding: nothing worse than adding up the products would.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from certirl.functions.bases import Basis
from certirl.functions.inequalities import degree, spread_points
from certirl.ground.domain import Array


@lru_cache
def product_basis(basis: Basis) -> Basis:
    """χ: as many functions of the family as it takes to hold every φ_i φ_j; degrees add up."""
    twice = 2 * degree(basis)
    # On the circle an even size ends with a sine, whose square is a cosine: the last frequency is needed whole.
    return basis.resized(2 * twice + 1 if basis.kind == "Fourier" else twice + 1)


@lru_cache
def linearisation(basis: Basis) -> Array:
    """J in φ_i φ_j = Σ_m J_mij χ_m, by interpolation at the spread points ``[m, k, k]``; read-only."""
    wide = product_basis(basis)
    points = spread_points(wide, wide.size)
    phi = basis.values(points)
    products = (phi[:, :, None] * phi[:, None, :]).reshape(wide.size, -1)
    tensor = np.linalg.solve(wide.values(points), products).reshape(wide.size, basis.size, basis.size)
    tensor.flags.writeable = False
    return tensor


def lifted(sums: Array, basis: Basis) -> Array:
    """Σ φ φᵀ f ``[…, k, k]`` from sums Σ χ f ``[…, m]``."""
    image = np.tensordot(sums, linearisation(basis), axes=1)
    return np.asarray((image + image.swapaxes(-1, -2)) / 2)  # symmetric to the last bit
