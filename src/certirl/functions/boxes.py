"""Bases on boxes: products of one-coordinate families, taken over a set of indices.

``φ_i(s) = Π_j φ_{i_j}(s_j)`` is orthonormal for the product of the weights. A full set of indices grows as the power of
the dimension; total degree and the hyperbolic cross leave out products of high degrees. Whatever the set, functions are
ordered by degree, so that the first so many of them are the same kind of set, only smaller: fewer columns than rows
mean lower degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.functions import bases
from certirl.functions.bases import FAMILIES, Basis, Fourier, Legendre
from certirl.ground.domain import Array, Domain, as_rows

INDEX_SETS = ("total", "full", "hyperbolic")
_MOST = 1 << 22  # indices tried before giving up: a box of degrees with more is not meant


@dataclass(frozen=True, eq=False)
class ProductBasis(Basis):
    """The first ``size`` products of one function of each coordinate, ordered by degree.

    Made by `product`. The degree of a product is measured in units of the highest degree of each factor, so that a
    coordinate with a larger factor gets more functions.

    Attributes:
        size: the number of functions, k.
        interval: the box it lives on, one (low, high) for each coordinate; None until it is placed on a domain.
        factors: the family of each coordinate, with as many functions as it has alone.
        index: "total" (degrees add up), "full" (the largest degree counts) or "hyperbolic" (they multiply).
    """

    factors: tuple[Basis, ...] = ()
    index: str = "total"

    kind = "product"

    def __str__(self) -> str:
        names = " × ".join(map(str, self.parts))
        return f"{names} ({self.index}, {self.size} function{'s' * (self.size != 1)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProductBasis) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        """What tells it apart: the order of the functions depends on the proportions of the factors, not their size."""
        kinds, degrees = tuple(factor.kind for factor in self.factors), self._degrees
        if self.index != "hyperbolic" or len(set(degrees)) == 1:
            degrees = tuple(degree // gcd(*degrees) for degree in degrees)
        return self.size, self.interval, self.index, kinds, degrees

    @property
    def mass(self) -> float:
        """∫μ: the product of those of the factors."""
        return prod(factor.mass for factor in self.factors)

    @property
    def dimension(self) -> int:
        """The number of coordinates of a state, d."""
        return len(self.factors)

    @property
    def domain(self) -> Domain:
        """The box it lives on."""
        return bases.REFERENCE * self.dimension if self.interval is None else self.interval

    def _as_interval(self, domain: Domain) -> Any:
        return domain

    @property
    def indices(self) -> NDArray[np.intp]:
        """Which function of each coordinate is a factor of φ_i: ``[k, d]``, the first row all zeros."""
        return _ordered(self._circular, self._degrees, self.index, self.size)

    @property
    def degrees(self) -> NDArray[np.intp]:
        """The degree (on a circle, the frequency) of φ_i in each coordinate: ``[k, d]``."""
        return np.where(self._circular, (self.indices + 1) // 2, self.indices)

    @property
    def parts(self) -> tuple[Basis, ...]:
        """The family of each coordinate, on its interval, with just the functions that occur."""
        sizes = self.indices.max(axis=0) + 1
        placed = zip(self.factors, sizes, self.domain, strict=True)
        return tuple(type(factor)(int(size), interval) for factor, size, interval in placed)

    def complete_sizes(self) -> list[int]:
        """The numbers of functions, up to all, at which no function of the highest degree is left out."""
        levels = _levels(self.degrees, self._degrees, self.index)
        return [*(np.flatnonzero(np.diff(levels)) + 1).tolist(), self.size]

    def values(self, states: ArrayLike) -> Array:
        """φ_i(s) for each state: ``[n, k]``."""
        rows = as_rows(states, self.dimension)
        return self._products([part.values(s).T for part, s in zip(self.parts, rows.T, strict=True)]).T

    def derivative(self, states: ArrayLike, axis: int = 0) -> Array:
        """∂φ_i/∂s for each state, along one coordinate: ``[n, k]``."""
        self._check_axis(axis)
        rows = as_rows(states, self.dimension)
        tables = [part.values(s).T for part, s in zip(self.parts, rows.T, strict=True)]
        tables[axis] = self.parts[axis].derivative(rows[:, axis]).T
        return self._products(tables).T

    def weight(self, states: ArrayLike) -> Array:
        """μ(s), the density for which the basis is orthonormal: ``[n]``."""
        rows = as_rows(states, self.dimension)
        return np.prod([part.weight(s) for part, s in zip(self.parts, rows.T, strict=True)], axis=0)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states from μ/∫μ: ``[n, d]``."""
        return np.hstack([part.sample(n, rng) for part in self.parts])

    def design(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states where least squares wants them, coordinate by coordinate: ``[n, d]``."""
        return np.hstack([part.design(n, rng) for part in self.parts])

    def quadrature(self, n: int) -> tuple[Array, Array]:
        """Nodes ``[nᵈ, d]`` and weights ``[nᵈ]`` of a product of Gauss rules, n nodes for each coordinate."""
        rules = [part.quadrature(n) for part in self.parts]
        weights = np.ones(1)
        for _, own in rules:
            weights = np.multiply.outer(weights, own).ravel()
        return mesh([nodes[:, 0] for nodes, _ in rules]), weights

    def grid(self, count: int) -> Array:
        """At least ``count`` states on a mesh, the corners included, finer where a coordinate has more functions."""
        sizes = np.array([part.size for part in self.parts])
        share = (count / sizes.prod()) ** (1 / self.dimension)
        while np.maximum(np.ceil(share * sizes), 2).prod() < count:
            share *= 1.02
        counts = np.maximum(np.ceil(share * sizes), 2).astype(int)
        return mesh([part.grid(int(own))[:, 0] for part, own in zip(self.parts, counts, strict=True)])

    def sup(self) -> Array:
        """sup_s |φ_i(s)|: the product of those of the factors."""
        return self._products([part.sup()[:, None] for part in self.parts])[:, 0]

    def lipschitz(self, axis: int = 0) -> Array:
        """sup_s |∂φ_i/∂s| along one coordinate: ``[k]``."""
        self._check_axis(axis)
        tables = [part.sup()[:, None] for part in self.parts]
        tables[axis] = self.parts[axis].lipschitz()[:, None]
        return self._products(tables)[:, 0]

    def to_reference(self, states: ArrayLike) -> Array:
        """The coordinates t ∈ [-1, 1]ᵈ of states of the domain: ``[n, d]``."""
        rows = as_rows(states, self.dimension)
        return np.column_stack([part.to_reference(s) for part, s in zip(self.parts, rows.T, strict=True)])

    def stationary_points(self, coefficients: ArrayLike) -> Array:
        """Of one coordinate only: `extrema` finds minima on boxes in another way."""
        raise ValueError(f"{self} has no list of stationary points; functions.extrema.minimum finds its minimum")

    def spec(self) -> dict[str, Any]:
        """What `from_spec` needs to build it again; goes into saved files."""
        factors = [[factor.kind, factor.size] for factor in self.factors]
        return super().spec() | {"factors": factors, "index": self.index}

    @property
    def _circular(self) -> tuple[bool, ...]:
        return tuple(factor.kind == "Fourier" for factor in self.factors)

    @property
    def _degrees(self) -> tuple[int, ...]:
        return tuple(factor.size // 2 if factor.kind == "Fourier" else factor.size - 1 for factor in self.factors)

    def _products(self, tables: list[Array]) -> Array:
        """Π_j of rows of the tables ``[n_j, n]``, row i_j of each for function i: ``[k, n]``."""
        columns = self.indices.T
        total = tables[0][columns[0]]
        for table, column in zip(tables[1:], columns[1:], strict=True):
            total *= table[column]
        return total


def product(*factors: Basis, index: str = "total") -> ProductBasis:
    """Products of one function of each coordinate: ``φ_i(s) = Π_j φ_{i_j}(s_j)`` over a set of indices.

    ``product(Fourier(9), Legendre(7))`` is a basis for an angle and a speed: frequencies up to 4 without the speed,
    degrees up to 6 without the angle, and products in between.

    Args:
        factors: a family for each coordinate, either all with an interval or all without.
        index: which products: "total" (degrees, in units of each factor's highest, add up to at most one), "full"
            (all) or "hyperbolic" (degrees plus one, on a logarithmic scale, add up to at most one).
    """
    for factor in factors:
        if not isinstance(factor, Basis) or factor.kind not in FAMILIES:
            raise TypeError(f"product takes families such as certirl.Legendre(7), one per coordinate, got {factor!r}")
        if factor.size < 2:
            raise ValueError(f"every coordinate needs at least two functions, got {factor}")
        if factor.kind == "Fourier" and factor.size % 2 == 0:
            raise ValueError(f"the sine and cosine of a frequency go together: {factor} needs an odd number")
    if len(factors) < 2:
        raise ValueError("product needs two families or more; for one coordinate use the family itself")
    if index not in INDEX_SETS:
        raise ValueError(f"index must be one of {', '.join(map(repr, INDEX_SETS))}, got {index!r}")
    placed = [factor.interval is not None for factor in factors]
    if any(placed) and not all(placed):
        bare = factors[placed.index(False)]
        raise ValueError(f"give every factor an interval or none: coordinate {placed.index(False)}, {bare}, has none")
    plain = tuple(type(factor)(factor.size) for factor in factors)
    interval = tuple(factor.interval for factor in factors) if all(placed) else None
    smallest = ProductBasis(1, interval, plain, index)
    return smallest.resized(_count(smallest._circular, smallest._degrees, index))


def of_degree(domain: Domain, degree: int, periodic: Sequence[int] = ()) -> ProductBasis:
    """Polynomials up to a total degree on a box; for coordinates that go around, frequencies in their place."""
    factors = [Fourier(2 * degree + 1) if axis in periodic else Legendre(degree + 1) for axis in range(len(domain))]
    return product(*factors).on(domain)


def from_spec(spec: dict[str, Any]) -> Basis:
    """Build the basis that `Basis.spec` described."""
    if not isinstance(spec, dict) or spec.get("kind") != ProductBasis.kind:
        return bases.from_spec(spec)
    try:
        factors = [
            FAMILIES[kind](size, pair) for (kind, size), pair in zip(spec["factors"], spec["domain"], strict=True)
        ]
        return product(*factors, index=spec["index"]).resized(spec["size"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"this is no product of bases: {spec!r}") from None


def mesh(axes: list[Array]) -> Array:
    """All combinations of one number from each axis, the last varying fastest: ``[Π n_j, d]``."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _levels(degrees: NDArray[np.intp], highest: tuple[int, ...], index: str) -> Array:
    """The degree of each product ``[m]`` from that in each coordinate ``[m, d]``; 1 for the highest degree alone."""
    if index == "hyperbolic":
        return (np.log1p(degrees) / np.log1p(highest)).sum(axis=1).round(9)
    shares = degrees / np.array(highest)
    return np.asarray(shares.max(axis=1) if index == "full" else shares.sum(axis=1)).round(9)


def _within(circular: tuple[bool, ...], highest: tuple[int, ...], index: str, reach: float) -> tuple[Array, Array]:
    """All indices up to a level, and their levels."""
    caps = np.array(highest) * reach if index != "hyperbolic" else (np.array(highest) + 1.0) ** reach - 1
    sizes = [
        2 * cap + 1 if around else cap + 1 for cap, around in zip((caps + 1e-9).astype(int), circular, strict=True)
    ]
    if prod(map(int, sizes)) > _MOST:
        raise ValueError(f"{' × '.join(map(str, sizes))} indices are too many: use fewer functions in each coordinate")
    indices = mesh([np.arange(size) for size in sizes])
    levels = _levels(np.where(circular, (indices + 1) // 2, indices), highest, index)
    return indices[levels <= reach + 1e-9], levels[levels <= reach + 1e-9]


def _count(circular: tuple[bool, ...], highest: tuple[int, ...], index: str) -> int:
    return len(_within(circular, highest, index, 1.0)[0])


@lru_cache(maxsize=128)
def _ordered(circular: tuple[bool, ...], highest: tuple[int, ...], index: str, size: int) -> NDArray[np.intp]:
    """The first indices by level, then from the first coordinate to the last: ``[size, d]``, read-only."""
    reach = 1.0
    indices, levels = _within(circular, highest, index, reach)
    while len(indices) < size:
        reach *= 1.1
        indices, levels = _within(circular, highest, index, reach)
    order = np.lexsort([*(-indices.T[::-1]), levels])
    chosen = indices[order[:size]]
    chosen.flags.writeable = False
    return chosen
