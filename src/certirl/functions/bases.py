"""Orthonormal bases on an interval or a box: Fourier, Legendre, Chebyshev, and products.

A function of one coordinate is ``φ_i(s) = ψ_i(t)`` with ``t ∈ [-1, 1]`` the affine image of the state and ``ψ_i``
orthonormal for the family's weight on [-1, 1]. The weight is transformed along with the state, so that Ẑ, ‖α‖₁ and β
do not depend on the units of the state. The first function is constant in every basis: deflation (`fit.bellman`)
needs that.

On a box the functions are products of one function of each coordinate, orthonormal for the product of the weights; an
interval is a box with one coordinate. A full set of indices grows as the power of the dimension; total degree and the
hyperbolic cross leave out products of high degrees. Functions are always ordered by degree, so that the first functions
form a smaller set of the same kind: fewer columns than rows mean lower degrees.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count
from math import gcd, prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray

from certirl.functions.formulas import CHEBYSHEV, FOURIER, LEGENDRE, Axis, Expansion, Term
from certirl.functions.functions import Functions
from certirl.functions.harmonics import legendre_in_harmonics, slopes_of_harmonics
from certirl.ground import archive
from certirl.ground.domain import Array, Box, Domain, as_domain, as_rows, mesh
from certirl.ground.doors import as_count, by_door, setting, shown, typed

if TYPE_CHECKING:
    from certirl.functions.ends import Ends

REFERENCE = as_domain((-1, 1))
INDEX_SETS = ("total", "full", "hyperbolic")
_MOST_INDICES = 1 << 22  # candidates for indices: a box of degrees with more is a mistake
_BLOCK = 1 << 11  # states at once, so that tables of functions stay in the cache
MOST_DRAWN = 10**9  # states in one call
MOST_NODES = 10_000  # of a Gauss rule, along each coordinate
MOST_FUNCTIONS = 500  # in a program: the time to solve it grows with their third power, seconds at this size
MOST_COLUMNS = 1_300  # functions of the state in least squares and in a proof, which take minutes at this size

Families = tuple["type[Family]", ...]


@dataclass(frozen=True, eq=False)
class Basis(Functions):
    """The first ``size`` functions, ordered by degree and orthonormal for a weight on a box.

    A basis has one family for each coordinate (`parts`) and a set of products of their functions (`indices`).

    Attributes:
        size: the number of functions, k.
        interval: the domain, ``(low, high)`` or one such pair for each coordinate; if omitted, [-1, 1] until the basis
            is placed on the domain of a problem.

    Example:
        >>> basis = certirl.product(certirl.Fourier(5), certirl.Legendre(4))
        >>> print(basis, basis.size, basis.dimension, basis.degree)
        Fourier(5) × Legendre(4) (total, 10 functions) 10 2 3
        >>> basis.values([[0.5, -0.2]]).shape
        (1, 10)
    """

    size: int
    interval: Any = None

    kind: ClassVar[str]
    has_derivatives: ClassVar[bool] = True
    has_ends: ClassVar[bool] = False  # values of its own at some terminal states; other functions of V are 0 there

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_count(self.size, f"{self.kind}(size): size"))
        if self.interval is not None:
            domain = as_domain(self.interval)
            if len(domain) != self.dimension:
                wanted = "one interval" if self.dimension == 1 else f"{self.dimension} intervals"
                raise ValueError(f"{self.kind} is defined on {wanted}, got the domain {domain.words}")
            object.__setattr__(self, "interval", domain[0] if len(domain) == 1 else domain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Basis) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        """What equality compares."""
        # The order of the functions depends on the ratios of the highest degrees alone.
        families, degrees = self._families, self._highest
        if self.index != "hyperbolic" or len(set(degrees)) == 1:
            degrees = tuple(degree // (gcd(*degrees) or 1) for degree in degrees)
        return self.size, self.interval, self.index, families, degrees if len(degrees) > 1 else ()

    @property
    def factors(self) -> tuple[Family, ...]:
        """The family of each coordinate, with its number of functions if the others are constant."""
        raise NotImplementedError

    @property
    def index(self) -> str:
        """The kind of set of indices, one of `INDEX_SETS`."""
        return "total"

    @property
    def _families(self) -> Families:
        return tuple(type(factor) for factor in self.factors)

    @property
    def _highest(self) -> tuple[int, ...]:
        return tuple(factor.degree for factor in self.factors)

    @property
    def indices(self) -> NDArray[np.intp]:
        """Numbers of the functions of each coordinate with product φ_i: ``[k, d]``, from 0 on."""
        return _ordered_indices(self._families, self._highest, self.index, self.size)

    @cached_property
    def parts(self) -> tuple[Family, ...]:
        """The family of each coordinate, with the functions that occur in `indices`."""
        sizes = (self.indices.max(axis=0) + 1).tolist()
        placed = zip(self._families, sizes, self.domain, strict=True)
        return tuple(family(size, interval) for family, size, interval in placed)

    @property
    def dimension(self) -> int:
        """The number of coordinates of a state, d."""
        return len(self.factors)

    @property
    def domain(self) -> Box:
        """The box on which the functions are defined, one (low, high) for each coordinate."""
        if self.interval is None:
            return as_domain(tuple(REFERENCE) * self.dimension)
        return as_domain(self.interval)

    @property
    def family(self) -> str:
        """The names of the families, "Fourier × Legendre"."""
        return " × ".join(part.kind for part in self.parts)

    @property
    def mass(self) -> float:
        """∫μ, the same on every domain."""
        return prod(part.mass for part in self.parts)

    @property
    def periodic_axes(self) -> tuple[int, ...]:
        """The coordinates in which the functions are periodic."""
        return tuple(axis for axis, part in enumerate(self.parts) if part.periodic)

    @property
    def _level(self) -> Basis:
        """The basis with the same span that is orthonormal for the distribution of `design`.

        Chebyshev polynomials in place of other polynomials; up to constant factors its functions are harmonics.
        """
        raise NotImplementedError

    @property
    def degrees(self) -> NDArray[np.intp]:
        """The degree, in periodic coordinates the frequency, of φ_i: ``[k, d]``."""
        columns = zip(self.parts, self.indices.T, strict=True)
        return np.stack([part._degree_of(index) for part, index in columns], axis=1)

    @property
    def degree(self) -> int:
        """The highest total degree of a function."""
        return int(self.degrees.sum(axis=1).max())

    def complete_sizes(self) -> list[int]:
        """The numbers of functions, up to all, that are complete up to some degree.

        Example:
            >>> certirl.product(certirl.Legendre(4), certirl.Legendre(4)).complete_sizes()
            [1, 3, 6, 10]
        """
        levels = _levels(self.degrees, self._highest, self.index)
        return [*(np.flatnonzero(np.diff(levels)) + 1).tolist(), self.size]

    @property
    def _is_closed(self) -> bool:
        """Whether every product of lower degrees is included; the span is then that of `level`."""
        held = set(map(tuple, self.degrees.tolist()))
        simpler = ((*k[:j], k[j] - 1, *k[j + 1 :]) for k in held for j in range(len(k)) if k[j])
        return held.issuperset(simpler)

    def _closed(self) -> Self:
        """The smallest larger basis of the same kind that `_is_closed`."""
        basis = self
        while not basis._is_closed:
            basis = basis.resized(basis.size + 1)
        return basis

    def on(self, domain: Domain) -> Self:
        """The basis on this domain; a basis that has an interval must agree with it.

        Example:
            >>> certirl.Legendre(5).on(((0.0, 10.0),)).domain
            ((0.0, 10.0),)
        """
        box = as_domain(domain)
        if len(box) != self.dimension:
            coordinates = "one coordinate" if self.dimension == 1 else f"{self.dimension} coordinates"
            raise ValueError(
                f"{self} is for {coordinates}, but the domain {box.words} has {len(box)}; "
                f"{by_door('certirl.product(…) takes one family for each coordinate', 'name --domain for each')}"
            )
        if self.interval is not None and not np.allclose(self.domain, box, rtol=1e-12, atol=0):
            raise ValueError(
                f"the basis is defined on {self.domain.words} but the problem on {box.words}; "
                f"write {self} without an interval and it is placed on the problem's domain"
            )
        return self if self.interval is not None else replace(self, interval=box)

    def resized(self, size: int) -> Self:
        """The same families on the same domain with another number of functions.

        Example:
            >>> certirl.Legendre(5, interval=(0, 10)).resized(9).size
            9
        """
        return replace(self, size=size)

    def values(self, states: ArrayLike) -> Array:
        """φ_i(s) for each state: ``[n, k]``.

        Example:
            >>> certirl.Legendre(3).values([-1.0, 0.5]).round(3)
            array([[ 0.707, -1.225,  1.581],
                   [ 0.707,  0.612, -0.198]])
        """
        rows = as_rows(states, self.dimension)
        return self._products([p._reference_values(p._to_reference(s)) for p, s in self._columns(rows)]).T

    def combined(self, states: ArrayLike, coefficients: Array) -> Array:
        """Σ c_i φ_i(s) for each state, summed over one coordinate after the other.

        Args:
            states: ``[n, d]``.
            coefficients: c ``[k]``, or those of several functions ``[k, q]``.

        Returns:
            ``[n]``, or ``[n, q]``.

        Example:
            >>> certirl.Legendre(3).combined([0.0, 1.0], np.array([1.0, 2.0, 0.0])).round(3)
            array([0.707, 3.157])
        """
        rows, coefficients = as_rows(states, self.dimension), np.asarray(coefficients)
        matrix = np.zeros((*coefficients.shape[1:], *self._sums.shape))
        matrix[..., self._sums.first, self.indices[:, -1]] = coefficients.T
        totals = [self._summed_up(matrix, rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)]
        return np.concatenate(totals, axis=-1).T if totals else np.zeros((0, *coefficients.shape[1:]))

    def _summed_up(self, matrix: Array, rows: Array) -> Array:
        tables = [p._reference_values(p._to_reference(s)) for p, s in self._columns(rows)]
        total = matrix @ tables[-1]
        for table, (functions, starts) in zip(tables[-2::-1], self._sums.further, strict=True):
            total *= table[functions]
            total = np.add.reduceat(total, starts, axis=-2)
        return np.asarray(total[..., 0, :])

    @cached_property
    def _sums(self) -> _Sums:
        return _Sums.of(self.indices, self.parts[-1].size)

    def _terms(self, coefficients: Array) -> tuple[Term, ...]:
        """Σ c_i φ_i for writers: an expansion in functions without norms."""
        own = [part.kind not in FAMILIES for part in self.parts]  # polynomials of a user: written in Chebyshev's
        axes = tuple(
            Axis(axis, CHEBYSHEV if own[axis] else part.kind, (low + high) / 2, (high - low) / 2, part.size)
            for axis, (part, (low, high)) in enumerate(zip(self.parts, self.domain, strict=True))
        )
        if not any(own):
            nonzero = np.flatnonzero(coefficients)
            return (Expansion(axes, (coefficients * self.sup())[nonzero], self.indices[nonzero]),)
        series = np.zeros([part.size for part in self.parts])
        series[tuple(self.indices.T)] = coefficients
        for axis, part in enumerate(self.parts):
            change = part._in_chebyshev() if own[axis] else np.diag(part.sup())
            series = np.moveaxis(np.tensordot(change, series, axes=(0, axis)), 0, axis)
        return (Expansion(axes, series[series != 0], np.argwhere(series)),)

    def _constant(self) -> Array:
        """The first function is constant."""
        return np.append(1 / self.sup()[0], np.zeros(self.size - 1))

    @property
    def _without_ends(self) -> Basis:
        """The functions of the states that are not terminal."""
        return self

    def _at_ends(self, states: Array) -> Array:
        """The functions at terminal states ``[n, k]``."""
        return np.zeros((len(states), self.size))

    def _ends(self, coefficients: Array) -> Ends | None:
        """Σ c_i φ_i at terminal states; None where it is 0 at all of them."""
        return None

    def value_range(self, coefficients: Array) -> tuple[float, float]:
        """Bounds of all values of Σ c_i φ_i, exact up to rounding in one coordinate.

        Example:
            >>> low, high = certirl.Legendre(3).value_range(np.array([0.0, 1.0, 0.0]))
            >>> round(low, 3), round(high, 3)
            (-1.225, 1.225)
        """
        from certirl.functions.extrema import value_range

        return value_range(self, coefficients)

    def derivative(self, states: ArrayLike, axis: int = 0) -> Array:
        """∂φ_i/∂s for each state, along one coordinate: ``[n, k]``.

        Example:
            >>> certirl.Legendre(3).derivative([0.5, 1.0]).round(3)
            array([[0.   , 1.225, 2.372],
                   [0.   , 1.225, 4.743]])
        """
        if axis not in range(self.dimension):
            raise ValueError(f"{self} has the axes 0 … {self.dimension - 1}; got axis {axis}")
        rows, tables = as_rows(states, self.dimension), []
        for number, (part, s) in enumerate(self._columns(rows)):
            t = part._to_reference(s)
            tables.append(
                part._reference_derivative(t) / part._half_width if number == axis else part._reference_values(t)
            )
        return self._products(tables).T

    def weight(self, states: ArrayLike) -> Array:
        """μ(s), the density for which the basis is orthonormal: ``[n]``.

        Example:
            >>> certirl.Legendre(3).weight([0.0, 0.5]), certirl.Chebyshev(3).weight([0.0, 0.6])
            (array([1., 1.]), array([1.  , 1.25]))
        """
        rows = as_rows(states, self.dimension)
        weights = [p._reference_weight(p._to_reference(s)) / p._half_width for p, s in self._columns(rows)]
        return np.prod(weights, axis=0)

    @typed
    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states from μ/∫μ: ``[n, d]``.

        Example:
            >>> certirl.Legendre(3, interval=(0, 10)).sample(100, np.random.default_rng(0)).shape
            (100, 1)
        """
        return self._drawn(n, rng, design=False)

    @typed
    def design(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n states from the distribution that suits least squares best: ``[n, d]``.

        Fitting k polynomials to uniform states leaves an error at the ends k times that of the average; the arcsine
        distribution makes it even, for every k. In a periodic coordinate uniform states are best already.

        Example:
            >>> states = certirl.Legendre(3).design(10_000, np.random.default_rng(0))
            >>> states.shape, bool((abs(states) > 0.9).mean() > 0.2)
            ((10000, 1), True)
        """
        return self._drawn(n, rng, design=True)

    def _drawn(self, n: int, rng: np.random.Generator, *, design: bool) -> Array:
        columns = []
        for part in self.parts:
            u = rng.random(as_count(n, "n", least=0, most=MOST_DRAWN))
            columns.append(part._from_reference(np.cos(np.pi * u) if part._arcsine(design=design) else 2 * u - 1))
        return np.stack(columns, axis=1)

    def quadrature(self, n: int) -> tuple[Array, Array]:
        """Nodes ``[nᵈ, d]`` and weights ``[nᵈ]`` of a product of Gauss rules for ∫ f(s) μ(s) ds.

        Example:
            >>> nodes, weights = certirl.Legendre(3).quadrature(5)
            >>> nodes.shape, round(float(weights @ nodes[:, 0] ** 2), 6)
            ((5, 1), 0.666667)
        """
        n = as_count(n, "n", most=MOST_NODES)
        rules = [part._reference_quadrature(n) for part in self.parts]
        nodes = mesh([part._from_reference(t) for part, (t, _) in zip(self.parts, rules, strict=True)])
        return nodes, mesh([weights for _, weights in rules]).prod(axis=1)

    def grid(self, count: int) -> Array:
        """At least ``count`` states on a mesh, exactly ``count`` in one coordinate: ``[n, d]``.

        The corners are included; a coordinate with more functions gets more points, and polynomials more at the ends.

        Example:
            >>> certirl.Legendre(3).grid(4)[:, 0].round(3)
            array([-1. , -0.5,  0.5,  1. ])
        """
        sizes, count = np.array([part.size for part in self.parts]), as_count(count, "count", most=MOST_DRAWN)
        share = (count / sizes.prod()) ** (1 / self.dimension)
        counts = np.maximum(np.ceil(share * sizes - 1e-9), 2).astype(int)
        while counts.prod() < count:
            share *= 1.02
            counts = np.maximum(np.ceil(share * sizes - 1e-9), 2).astype(int)
        return mesh([p._from_reference(p._reference_grid(n)) for p, n in zip(self.parts, counts.tolist(), strict=True)])

    def sup(self) -> Array:
        """sup_s |φ_i(s)| for each function: ``[k]``.

        Example:
            >>> certirl.Legendre(3).sup().round(3)
            array([0.707, 1.225, 1.581])
        """
        return self._products([part.sup()[:, None] for part in self.parts])[:, 0]

    def _columns(self, rows: Array) -> list[tuple[Family, Array]]:
        """The family and the coordinates ``[n]`` of every column of states ``[n, d]``."""
        return list(zip(self.parts, rows.T, strict=True))

    def _roughness(self) -> Array:
        """The matrix ``[k, k]`` of ∫Σ_j(∂²f/∂s_j²)² for f = cᵀφ, with the half of the box as the unit of each s_j."""
        total = np.zeros((self.size, self.size))
        for axis, part in enumerate(self.parts):
            others, own = np.delete(self.indices, axis, axis=1), self.indices[:, axis]
            same = (others[:, None] == others).all(axis=2)
            total += same * part._second_derivatives()[np.ix_(own, own)]
        return total

    def _products(self, tables: list[Array]) -> Array:
        """Π_j of rows of the tables ``[n_j, n]``, row i_j of each for function i: ``[k, n]``."""
        if len(tables) == 1:
            return tables[0]
        columns = self.indices.T
        total = tables[0][columns[0]]
        for table, column in zip(tables[1:], columns[1:], strict=True):
            total *= table[column]
        return total


class _Sums(NamedTuple):
    """The sums of an expansion over one coordinate after the other, the last one first."""

    # of the matrix of coefficients: products of functions of the other coordinates, functions of the last
    shape: tuple[int, int]
    first: NDArray[np.intp]  # the row of each function in that matrix ``[k]``
    # for every other coordinate, the function of each remaining product and where sums over it start
    further: tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]

    @classmethod
    def of(cls, indices: NDArray[np.intp], last: int) -> _Sums:
        """Those of a set of indices ``[k, d]``; ``last`` is the number of functions of the last coordinate."""
        if indices.shape[1] == 1:
            return cls((1, last), np.zeros(len(indices), dtype=np.intp), ())
        products, first = np.unique(indices[:, :-1], axis=0, return_inverse=True)
        shape, further = (len(products), last), []
        while products.shape[1] > 1:
            shorter, starts = np.unique(products[:, :-1], axis=0, return_index=True)
            further.append((products[:, -1], starts))
            products = shorter
        further.append((products[:, -1], np.zeros(1, dtype=np.intp)))
        return cls(shape, first.ravel(), tuple(further))


# Sets of indices: which products of functions belong to a basis, and in which order.


def _levels(degrees: NDArray[np.intp], highest: tuple[int, ...], index: str) -> Array:
    """Levels of products ``[m]`` from their degrees ``[m, d]``; 1 for a highest degree alone."""
    if index == "hyperbolic":
        return (np.log1p(degrees) / np.log1p(highest)).sum(axis=1).round(9)
    shares = degrees / np.maximum(highest, 1)
    return np.asarray(shares.max(axis=1) if index == "full" else shares.sum(axis=1)).round(9)


def _within(families: Families, highest: tuple[int, ...], index: str, reach: float) -> tuple[Array, Array]:
    """All indices up to a level, and their levels."""
    caps = np.array(highest) * reach if index != "hyperbolic" else (np.array(highest) + 1.0) ** reach - 1
    degrees = (caps + 1e-9).astype(int).tolist()
    sizes = [family._size_of_degree(degree) for family, degree in zip(families, degrees, strict=True)]
    indices = np.zeros((1, 0), dtype=np.intp)
    for number, size in enumerate(sizes, start=1):  # with 0 in the coordinates to come a level is lowest
        if len(indices) * size > _MOST_INDICES:
            raise ValueError(
                f"{' × '.join(map(str, sizes))} indices are too many: use fewer functions in each coordinate"
            )
        indices = np.hstack([np.repeat(indices, size, axis=0), np.tile(np.arange(size), len(indices))[:, None]])
        columns = [family._degree_of(column) for family, column in zip(families, indices.T, strict=False)]
        levels = _levels(np.stack(columns, axis=1), highest[:number], index)
        indices, levels = indices[levels <= reach + 1e-9], levels[levels <= reach + 1e-9]
    return indices, levels


@lru_cache(maxsize=128)
def _ordered_indices(families: Families, highest: tuple[int, ...], index: str, size: int) -> NDArray[np.intp]:
    """The first indices by level, then by the first coordinate, …: ``[size, d]``, read-only."""
    reach = 1.0
    indices, levels = _within(families, highest, index, reach)
    while len(indices) < size:
        reach *= 1.1
        indices, levels = _within(families, highest, index, reach)
    order = np.lexsort([*(-indices.T[::-1]), levels])
    chosen = indices[order[:size]]
    chosen.flags.writeable = False
    return chosen


class Family(Basis):
    """The first ``size`` functions of one coordinate.

    A subclass states the facts about its functions on [-1, 1].

    Every function is a short sum of *harmonics*: sines and cosines of πt for Fourier functions, cosines of arccos t
    for polynomials. Kernels sum up harmonics, and sums of the functions follow from these without loss.

    Example:
        >>> family = certirl.Fourier(5)
        >>> family.size, family.degree, family.periodic_axes
        (5, 2, (0,))
    """

    periodic: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"{self.kind}({self.size})"

    @property
    def factors(self) -> tuple[Family, ...]:
        """The family itself."""
        return (self,)

    @property
    def parts(self) -> tuple[Family, ...]:
        """The family itself."""
        return (self,)

    @property
    def indices(self) -> NDArray[np.intp]:
        """0, 1, …: ``[k, 1]``."""
        return np.arange(self.size)[:, None]

    @property
    def degree(self) -> int:
        """The highest degree; for periodic functions the highest frequency."""
        return int(self._degree_of(self.size - 1))

    @staticmethod
    def _degree_of(index: Any) -> Any:
        """The degree of the functions with these numbers, counted from 0."""
        return index

    @staticmethod
    def _size_of_degree(degree: int) -> int:
        """The number of functions up to a degree."""
        return degree + 1

    @property
    def _level(self) -> Family:
        """The family with the same span that is orthonormal for the distribution of `design`."""
        return self

    def _arcsine(self, *, design: bool) -> bool:
        """Whether states are drawn from the arcsine distribution, t = cos πu, or are uniform."""
        return design

    # Harmonics.

    @property
    def _harmonics(self) -> int:
        """The number of harmonics that span the functions; a sine never occurs without its cosine."""
        return self._size_of_degree(self.degree)

    def _doubled(self) -> Self:
        """As many functions of the family as span the products φ_i φ_j of two functions."""
        return self.resized(self._size_of_degree(2 * self.degree))

    def _from_harmonics(self, sums: Array) -> Array:
        """Σ φ(t) from Σ h(t), along the first axis: ``[k, …]`` from ``[harmonics, …]``."""
        return sums[: self.size] * self.sup().reshape(-1, *[1] * (sums.ndim - 1))

    def _in_chebyshev(self) -> Array:
        """The coefficients of φ_i in T_0, T_1, …, ``[k, k]``; functions that are no polynomials are refused."""
        nodes, between = chebyshev.chebpts1(self.size), np.linspace(-1.0, 1.0, 2 * self.size + 1)
        table = chebyshev.chebvander(nodes, self.size - 1)
        series = np.linalg.solve(table, self._reference_values(nodes).T).T
        missed = series @ chebyshev.chebvander(between, self.size - 1).T - self._reference_values(between)
        if np.abs(missed / self.sup()[:, None]).max() > 1e-9:
            raise ValueError(
                f"functions of {type(self).__name__} are no polynomials, and no formula of them is known: save the "
                "reward with solution.save, or solve with Legendre, Chebyshev or Fourier functions"
            )
        return series

    def _clipped(self, states: ArrayLike) -> Array:
        """The coordinates t ∈ [-1, 1] of states of the domain: ``[n]``."""
        return np.clip(self._to_reference(as_rows(states, 1)[:, 0]), -1.0, 1.0)  # rounding may go past an end

    def _to_angle(self, states: ArrayLike) -> Array:
        """The angles θ of states, with t = cos θ; t = θ/π for periodic functions: ``[n]``."""
        return np.arccos(self._clipped(states))

    def _from_angle(self, angles: Array) -> Array:
        """The states at angles: ``[n]``."""
        return self._from_reference(np.cos(angles))

    def _stationary_points(self, coefficients: ArrayLike) -> Array:
        """The states, in order, at which Σ c_i φ_i has slope zero, and perhaps a few more."""
        t = self._reference_stationary_points(np.asarray(coefficients, dtype=np.float64))
        return self._from_reference(np.sort(np.clip(t, -1.0, 1.0)))

    @property
    def _half_width(self) -> float:
        ((low, high),) = self.domain
        return (high - low) / 2

    def _to_reference(self, s: Array) -> Array:
        ((low, high),) = self.domain
        return (s - (low + high) / 2) / ((high - low) / 2)

    def _from_reference(self, t: Array) -> Array:
        ((low, high),) = self.domain
        return np.clip((low + high) / 2 + (high - low) / 2 * t, low, high)

    # Facts about the functions on [-1, 1]; values and derivatives are [k, n].

    @staticmethod
    def _recurrence(n: int) -> tuple[float, float]:
        """a and b of P_n(t) = a t P_{n−1}(t) − b P_{n−2}(t), for polynomials."""
        raise NotImplementedError

    def _reference_values(self, t: Array) -> Array:
        # The error grows with the degree; that of the harmonics, which come by doubling, with its square.
        rows = np.empty((self.size, t.size))
        rows[0] = 1.0
        if self.size > 1:
            rows[1] = t
        for n in range(2, self.size):
            a, b = self._recurrence(n)
            np.multiply(t, rows[n - 1], out=rows[n])
            rows[n] *= a
            rows[n] -= rows[n - 2] * b
        rows *= self.sup()[:, None]
        return rows

    def _reference_derivative(self, t: Array) -> Array:
        level = self._level.resized(self._harmonics)
        values = level._reference_values(t) / level.sup()[:, None]
        return self._from_harmonics(slopes_of_harmonics(self._harmonics, self.periodic) @ values)

    def _second_derivatives(self) -> Array:
        """The integrals of φ_i''φ_j'' over the reference interval ``[k, k]``."""
        t, weights = gauss_legendre(2 * self.size + 2)
        level, slopes = self._level.resized(self._harmonics), slopes_of_harmonics(self._harmonics, self.periodic)
        bent = self._from_harmonics(slopes @ slopes @ (level._reference_values(t) / level.sup()[:, None]))
        return np.asarray((bent * weights) @ bent.T)

    def _reference_weight(self, t: Array) -> Array:
        return np.ones_like(t)

    def _reference_quadrature(self, n: int) -> tuple[Array, Array]:
        return gauss_legendre(n)

    def _reference_grid(self, count: int) -> Array:
        return -np.cos(np.pi * np.arange(count) / (count - 1))  # polynomials change fastest at the ends

    def _reference_points(self, count: int) -> Array:
        return -np.cos(np.pi * ((np.arange(count) + 0.5) / count))

    def _reference_stationary_points(self, coefficients: Array) -> Array:
        # A polynomial: interpolate it in Chebyshev form, whose derivative has well-conditioned roots.
        degree = len(coefficients) - 1
        if degree < 2:
            return np.empty(0)
        nodes = chebyshev.chebpts1(degree + 1)
        values = coefficients @ self.resized(degree + 1)._reference_values(nodes)
        series = chebyshev.chebinterpolate(lambda _: values, degree)  # type: ignore[type-var]
        return _real_roots(chebyshev.chebder(series))


@archive.record
class Legendre(Family):
    """Legendre polynomials, orthonormal for the uniform weight: ``φ_i = √(i − ½) P_{i−1}(t)``.

    The natural choice for smooth dynamics on an interval; exact for polynomial transition densities.

    Example:
        >>> basis = certirl.Legendre(3, interval=(0, 10))
        >>> basis.domain, basis.degree
        (((0.0, 10.0),), 2)
        >>> nodes, weights = basis.quadrature(5)
        >>> values = basis.values(nodes)
        >>> np.allclose(values.T @ (weights[:, None] * values), np.eye(3))  # orthonormal
        True
    """

    kind = LEGENDRE
    mass = 2.0

    @staticmethod
    def _recurrence(n: int) -> tuple[float, float]:
        return (2 * n - 1) / n, (n - 1) / n

    def sup(self) -> Array:
        """√(i − ½), reached at the ends."""
        return np.sqrt(np.arange(self.size) + 0.5)

    @property
    def _level(self) -> Family:
        """Chebyshev polynomials."""
        return Chebyshev(self.size, self.interval)

    def _from_harmonics(self, sums: Array) -> Array:
        """Σ φ(t) from Σ T(t): a Legendre polynomial is an average of Chebyshev polynomials."""
        return super()._from_harmonics(np.tensordot(legendre_in_harmonics(self.size), sums[: self.size], axes=1))


@archive.record
class Chebyshev(Family):
    """Chebyshev polynomials, orthonormal for the arcsine distribution ``(1 − t²)^(−½)``.

    They span the same polynomials as Legendre's; the weight is larger at the ends of the interval.

    Example:
        >>> basis = certirl.Chebyshev(3)
        >>> bool(np.isclose(basis.mass, np.pi)), basis.sup().round(3)
        (True, array([0.564, 0.798, 0.798]))
    """

    kind = CHEBYSHEV
    mass = float(np.pi)

    @staticmethod
    def _recurrence(n: int) -> tuple[float, float]:
        return 2.0, 1.0

    def _reference_weight(self, t: Array) -> Array:
        with np.errstate(divide="ignore"):
            return 1.0 / np.sqrt(np.maximum(1.0 - t * t, 0.0))

    def _arcsine(self, *, design: bool) -> bool:
        """Always: the weight is that of the arcsine distribution."""
        return True

    def _reference_quadrature(self, n: int) -> tuple[Array, Array]:
        return chebyshev.chebgauss(n)

    def sup(self) -> Array:
        """√(2/π), and √(1/π) for the constant."""
        return np.sqrt(np.where(np.arange(self.size) == 0, 1.0, 2.0) / np.pi)


@archive.record
class Fourier(Family):
    """The trigonometric basis ``1/√2, sin πt, cos πt, sin 2πt, cos 2πt, …``.

    Orthonormal for the uniform weight. The choice for periodic states (angles). The paper's basis with its first
    function corrected (docs/notes/errata.md).

    Example:
        >>> basis = certirl.Fourier(3, interval=(0, 360))
        >>> basis.values([45.0, 225.0]).round(3)
        array([[ 0.707, -0.707, -0.707],
               [ 0.707,  0.707,  0.707]])
    """

    kind = FOURIER
    mass = 2.0
    periodic = True

    @staticmethod
    def _degree_of(index: Any) -> Any:
        """The frequency of the functions with these numbers, counted from 0."""
        return (index + 1) // 2

    @staticmethod
    def _size_of_degree(degree: int) -> int:
        """The number of functions up to a frequency."""
        return 2 * degree + 1

    def _arcsine(self, *, design: bool) -> bool:
        """Never: uniform states are best on a circle."""
        return False

    def _reference_values(self, t: Array) -> Array:
        rows = np.empty((self.size, t.size))
        rows[0] = np.sqrt(0.5)
        if self.size > 1:
            sin, cos = np.sin(np.pi * t), np.cos(np.pi * t)
            s, c = sin, cos
            for row in range(1, self.size, 2):
                rows[row] = s
                if row + 1 < self.size:
                    rows[row + 1] = c
                s, c = s * cos + c * sin, c * cos - s * sin  # the next frequency by angle addition
        return rows

    def sup(self) -> Array:
        """1, and √½ for the constant."""
        return np.where(np.arange(self.size) == 0, np.sqrt(0.5), 1.0)

    def _to_angle(self, states: ArrayLike) -> Array:
        """θ = πt: ``[n]``."""
        return np.pi * self._clipped(states)

    def _from_angle(self, angles: Array) -> Array:
        """The states at angles, of any number of turns: ``[n]``."""
        return self._from_reference(np.mod(angles + np.pi, 2 * np.pi) / np.pi - 1)

    def _reference_grid(self, count: int) -> Array:
        return np.linspace(-1.0, 1.0, count)

    def _reference_points(self, count: int) -> Array:
        return 2 * (np.arange(count) + 0.5) / count - 1

    def _reference_stationary_points(self, coefficients: Array) -> Array:
        # With z = exp(iπt) the slope times z^M is an ordinary polynomial of degree 2M; roots on the circle are kept.
        top = len(coefficients) // 2
        if top == 0:
            return np.empty(0)
        sines, cosines = np.zeros(top), np.zeros(top)
        sines[:] = coefficients[1::2]
        cosines[: len(coefficients[2::2])] = coefficients[2::2]
        half = np.arange(1, top + 1) * (sines + 1j * cosines)
        keep = np.flatnonzero(np.abs(half) > 1e-15 * np.abs(half).max(initial=0.0))
        if keep.size == 0:
            return np.empty(0)
        half = half[: keep[-1] + 1]
        z = np.roots(np.concatenate([half[::-1], [0.0], half.conj()]))
        return np.angle(z[np.abs(np.log(np.abs(z) + 1e-300)) < 1e-2]) / np.pi


@archive.record
@dataclass(frozen=True, eq=False)
class ProductBasis(Basis):
    """The first ``size`` products of one function of each coordinate, ordered by degree.

    Made by `product`. The degree of a product is measured in units of the highest degree of each factor, so that a
    coordinate with a larger factor gets more functions.

    Attributes:
        size: the number of functions, k.
        interval: the domain, one (low, high) for each coordinate; None until it is placed on the domain of a problem.
        factors: the family of each coordinate, with its number of functions if the others are constant.
        index: "total" (the sum of the degrees counts), "full" (the largest) or "hyperbolic" (their product).
    """

    factors: tuple[Family, ...] = ()
    index: str = "total"

    kind = "product"

    def __str__(self) -> str:
        names = " × ".join(map(str, self.parts))
        return f"{names} ({self.index}, {self.size} function{'s' * (self.size != 1)})"

    @property
    def _level(self) -> ProductBasis:
        """The products with the same span that are orthonormal for the distribution of `design`."""
        return ProductBasis(self.size, self.interval, tuple(factor._level for factor in self.factors), self.index)

    def as_read(self, file: str) -> Basis:
        """Refuse factors that `product` refuses."""
        if len(self.factors) < 2:
            raise ValueError(f"a product of bases needs two factors or more, got {len(self.factors)}")
        return replace(product(*self.factors, index=self.index).resized(self.size), interval=self.interval)


def product(*factors: Family, index: str = "total") -> Basis:
    """Products of one function of each coordinate, ``φ_i(s) = Π_j φ_{i_j}(s_j)``.

    ``product(Fourier(9), Legendre(7))`` is a basis for an angle and a speed: frequencies up to 4 without the speed,
    degrees up to 6 without the angle, and products in between. The product of one family is the family.

    Args:
        factors: a family for each coordinate, either all with an interval or all without.
        index: which products: "total" (degrees, in units of each factor's highest, with a sum of at most one), "full"
            (all) or "hyperbolic" (degrees plus one, on a logarithmic scale, with a sum of at most one).

    Example:
        >>> basis = certirl.product(certirl.Fourier(9), certirl.Legendre(7))
        >>> basis.size, certirl.product(certirl.Fourier(9), certirl.Legendre(7), index="full").size
        (31, 63)
    """
    for factor in factors:
        if not isinstance(factor, Family):
            raise TypeError(f"product takes families such as certirl.Legendre(7), one per coordinate, got {factor!r}")
    if index not in INDEX_SETS:
        raise ValueError(f"index must be one of {', '.join(map(repr, INDEX_SETS))}, got {index!r}")
    if len(factors) == 1:
        return factors[0]
    if not factors:
        raise ValueError("product needs a family for each coordinate, such as certirl.Legendre(7); got none")
    for factor in factors:
        if factor.size < 2:
            raise ValueError(f"every coordinate needs at least two functions, got {factor}")
        if factor.size != factor._harmonics:
            raise ValueError(f"the sine and cosine of a frequency belong together: {factor} needs an odd number")
    placed = [factor.interval is not None for factor in factors]
    if any(placed) and not all(placed):
        bare = factors[placed.index(False)]
        raise ValueError(f"give every factor an interval or none: coordinate {placed.index(False)}, {bare}, has none")
    plain = tuple(type(factor)(factor.size) for factor in factors)
    interval = tuple(factor.interval for factor in factors) if all(placed) else None
    smallest = ProductBasis(1, interval, plain, index)
    indices, _ = _within(smallest._families, smallest._highest, index, 1.0)  # to the highest degree of each alone
    return smallest.resized(len(indices))


def first_functions(size: int, domain: Box, periodic: Sequence[int] = ()) -> Basis:
    """The first functions of the usual family: on a box those of the least total degree come first."""
    if len(domain) == 1:
        return (Fourier if periodic else Legendre)(size).on(domain)
    degrees = (of_degree(domain, degree, tuple(periodic)) for degree in count(1))
    return next(basis for basis in degrees if basis.size >= size).resized(size)


def of_degree(domain: Box, degree: int, periodic: Sequence[int] = ()) -> Basis:
    """Functions up to a total degree on a box: polynomials, Fourier in periodic coordinates."""
    families = [Fourier if axis in periodic else Legendre for axis in range(len(domain))]
    return product(*(family(family._size_of_degree(degree)) for family in families)).on(domain)


def fewest(choices: Sequence[Basis], cost: Callable[[Basis], float]) -> tuple[Basis, bool]:
    """The first basis that costs less than 1, with True; if there is none, the cheapest of those tried, with False.

    Few are tried: larger and larger steps to one that is enough, and halves of the last step.

    The choices have fewest functions first; with more of them the cost falls, and may rise after that.
    """
    costs: dict[int, float] = {}

    def enough(at: int) -> bool:
        costs[at] = costs[at] if at in costs else cost(choices[at])
        return costs[at] < 1

    last = len(choices) - 1
    steps = [*(2**n - 1 for n in range(last.bit_length()) if 2**n - 1 < last), last]
    found = next((n for n, at in enumerate(steps) if enough(at)), None)
    if found is None:
        return choices[min(costs, key=costs.__getitem__)], False
    between = range(steps[found - 1] + 1 if found else 0, steps[found] + 1)
    return choices[between[bisect_left(between, True, key=enough)]], True


@lru_cache
def gauss_legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights ``[n]`` of the Gauss rule on [-1, 1], accurate for large n."""
    from scipy.special import roots_legendre

    t, w = roots_legendre(n)
    return t, w


def _real_roots(series: Array) -> Array:
    """Roots of a Chebyshev series that are real, or nearly so, and in or next to [-1, 1]."""
    keep = np.flatnonzero(np.abs(series) > 1e-15 * np.abs(series).max(initial=0.0))
    if keep.size == 0:
        return np.empty(0)
    roots = chebyshev.chebroots(series[: keep[-1] + 1])
    near = (np.abs(roots.imag) < 1e-2) & (np.abs(roots.real) <= 1.0 + 1e-2)
    return np.asarray(roots.real[near], dtype=np.float64)


def as_basis(
    basis: Any,
    domain: Domain | None = None,
    *,
    name: str = "basis",
    like: str = "certirl.Legendre(11)",
    most: float = MOST_FUNCTIONS,
) -> Basis:
    """Check that an argument is a basis of at most ``most`` functions; place it on a domain."""
    if not isinstance(basis, Basis):
        raise TypeError(f"{setting(name)} must be a basis such as {like}, got {shown(basis)}")
    if basis.size > most:
        raise ValueError(f"{setting(name)} must have at most {most} functions, got {basis} with {basis.size:,}")
    return basis if domain is None else basis.on(domain)


FAMILIES: dict[str, type[Family]] = {family.kind: family for family in (Fourier, Legendre, Chebyshev)}
