"""Piecewise-linear functions on a box: one hat for each point of a grid, multilinear between the points.

They follow kinks and steep places that polynomials smear, which is what a reward needs where the expert switches. They
are not orthonormal and the constant is none of them, so they describe rewards, never the dynamics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.functions import boxes
from certirl.functions.bases import REFERENCE, Basis
from certirl.functions.boxes import mesh
from certirl.ground.domain import Array, Domain, as_domain, as_rows, describe

KIND = "cells"
MOST_COORDINATES = 4


@dataclass(frozen=True)
class Cells:
    """Hats ψ_i on a grid: ψ_i is 1 at the i-th point, 0 at all others, and linear along every coordinate in between.

    Attributes:
        counts: points along each coordinate, two or more; three or more where it goes around.
        periodic: coordinates whose two ends are the same place.
        box: where the grid lies; left out, [-1, 1] along each coordinate until it is placed on a domain.
    """

    counts: tuple[int, ...]
    periodic: tuple[int, ...] = ()
    box: Any = None

    def __post_init__(self) -> None:
        counts = np.atleast_1d(np.asarray(self.counts))
        if counts.ndim != 1 or not np.issubdtype(counts.dtype, np.integer) or not 1 <= counts.size <= MOST_COORDINATES:
            raise ValueError(f"counts must be whole numbers, one for each of 1 to 4 coordinates, got {self.counts!r}")
        around = tuple(sorted({int(axis) for axis in self.periodic}))
        if any(axis not in range(counts.size) for axis in around):
            raise ValueError(f"periodic must name coordinates among 0 … {counts.size - 1}, got {self.periodic!r}")
        for axis, count in enumerate(counts.tolist()):
            if count < (3 if axis in around else 2):
                raise ValueError(f"coordinate {axis} needs at least {3 if axis in around else 2} points, got {count}")
        if self.box is not None:
            object.__setattr__(self, "box", as_domain(self.box))
            if len(self.box) != counts.size:
                raise ValueError(f"cells of {counts.size} coordinates do not fit on {describe(self.box)}")
        object.__setattr__(self, "counts", tuple(counts.tolist()))
        object.__setattr__(self, "periodic", around)

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.counts))} piecewise linear"

    @property
    def size(self) -> int:
        """The number of hats."""
        return prod(self.counts)

    @property
    def dimension(self) -> int:
        """The number of coordinates of a state, d."""
        return len(self.counts)

    @property
    def domain(self) -> Domain:
        """The box it lives on."""
        return REFERENCE * self.dimension if self.box is None else self.box

    def on(self, domain: Domain) -> Cells:
        """The same grid on a domain; one that has a box must agree."""
        if self.box is not None and not np.allclose(self.box, domain, rtol=1e-12, atol=0):
            raise ValueError(f"the cells live on {describe(self.box)} but the problem on {describe(domain)}")
        return self if self.box is not None else replace(self, box=domain)

    def points(self) -> Array:
        """The points of the grid ``[k, d]``, the last coordinate varying fastest."""
        axes = [
            np.linspace(low, high, count, endpoint=axis not in self.periodic)
            for axis, ((low, high), count) in enumerate(zip(self.domain, self.counts, strict=True))
        ]
        return mesh(axes)

    def corners(self, states: ArrayLike) -> tuple[NDArray[np.intp], Array]:
        """The hats that are not zero at each state ``[n, 2ᵈ]``, and their values, which add up to 1."""
        rows = as_rows(states, self.dimension)
        index, value = np.zeros((len(rows), 1), dtype=np.intp), np.ones((len(rows), 1))
        for axis, ((low, high), count) in enumerate(zip(self.domain, self.counts, strict=True)):
            steps = count if axis in self.periodic else count - 1
            place = (rows[:, axis] - low) / (high - low) * steps
            place = place % steps if axis in self.periodic else np.clip(place, 0, steps)
            left = np.minimum(place.astype(np.intp), steps - 1)
            share = (place - left)[:, None]
            ends = np.stack([left, (left + 1) % count], axis=1)
            index = (index[:, :, None] * count + ends[:, None, :]).reshape(len(rows), 2 ** (axis + 1))
            value = (value[:, :, None] * np.hstack([1 - share, share])[:, None, :]).reshape(len(rows), 2 ** (axis + 1))
        return index, value

    def matrix(self, states: ArrayLike) -> Any:
        """ψ_i(s) for each state, as a sparse matrix ``[n, k]``."""
        from scipy.sparse import csr_array

        index, value = self.corners(states)
        starts = np.arange(0, index.size + 1, index.shape[1])
        return csr_array((value.ravel(), index.ravel(), starts), shape=(len(index), self.size))

    def values(self, states: ArrayLike) -> Array:
        """The same with all its zeros: ``[n, k]``."""
        return np.asarray(self.matrix(states).toarray())

    def combined(self, states: ArrayLike, coefficients: Array) -> Array:
        """Σ c_i ψ_i(s) for each state ``[n]``, looking only at the hats that are not zero."""
        index, value = self.corners(states)
        return np.einsum("nc,nc->n", np.asarray(coefficients)[index], value)

    def roughness(self) -> Any:
        """The matrix ``[k, k]`` of Σ (second differences of the coefficients along each coordinate)², sparse."""
        from scipy.sparse import csr_array, diags_array, eye_array, kron

        total = csr_array((self.size, self.size))
        for axis, count in enumerate(self.counts):
            second = diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(max(count - 2, 0), count)).tocsr()
            if axis in self.periodic:
                own = np.arange(count)
                ones = (np.ones(2 * count), (np.tile(own, 2), np.concatenate([(own + 1) % count, (own - 1) % count])))
                second = csr_array(ones, shape=(count, count)) - 2.0 * eye_array(count)
            before, behind = eye_array(prod(self.counts[:axis])), eye_array(prod(self.counts[axis + 1 :]))
            total = total + kron(kron(before, second.T @ second), behind)
        return total.tocsc()

    def spec(self) -> dict[str, Any]:
        """What `from_spec` needs to build it again; goes into saved files."""
        domain = [list(pair) for pair in self.domain]
        return {"kind": KIND, "counts": list(self.counts), "periodic": list(self.periodic), "domain": domain}


def from_spec(spec: dict[str, Any]) -> Basis | Cells:
    """Build the cells, or the basis, that ``spec`` described."""
    if not isinstance(spec, dict) or spec.get("kind") != KIND:
        return boxes.from_spec(spec)
    try:
        return Cells(tuple(spec["counts"]), tuple(spec["periodic"]), spec["domain"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"these are no cells: {spec!r}") from None


def summed(basis: Basis | Cells, states: Array) -> Array:
    """Σ_n φ_i(s_n) over states, for every function ``[k]``."""
    if isinstance(basis, Cells):
        index, value = basis.corners(states)
        return np.bincount(index.ravel(), weights=value.ravel(), minlength=basis.size)
    return np.asarray(basis.values(states).sum(axis=0))


def expanded(basis: Basis | Cells, states: Array, coefficients: Array) -> Array:
    """Σ c_i φ_i(s) for each state: ``[n]``."""
    if isinstance(basis, Cells):
        return basis.combined(states, coefficients)
    return np.asarray(basis.values(states) @ coefficients)
