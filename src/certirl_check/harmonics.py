"""Functions of the state on an interval or a box, in harmonics, with proved bounds between the points of a mesh.

Products h of ``1, cos θ, cos 2θ, …`` with t = cos θ, or of ``1, sin θ, cos θ, …`` with θ = πt on a circle, one factor
for each coordinate; an interval is a box with one. The notation is that of docs/notes/certificate.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl_check.enclosures import PI, Enclosure, Floats, enclosed, joined, stacked, turn

_ROWS = 4096  # places at which harmonics are computed at once
_MOVES, _MOST_CELLS = (0.006, 0.06), 1_000_000  # how far an expansion of size 1 may move within a cell of an interval
# and of a box, and the most cells
_MOST_VALUES = 1 << 20  # function values of one minimum
_TOLERANCE = {1: 1e-9, 2: 1e-7}  # of the range of values: how far below the least value its bound may be
_PARTS = (8, 2)  # into which an interval is divided, where a round takes as long as many parts, and a side of a box
_WIDER = 1 + 1e-12  # covers the rounding of the few operations that it multiplies


@dataclass
class Grid:
    """The functions that are multilinear in equal cells of a box, by their values at the corners."""

    counts: tuple[int, ...]  # points along each coordinate; of one that is periodic the first stands for the last too
    periodic: tuple[bool, ...]  # whether each coordinate is
    box: tuple[tuple[float, float], ...]  # (low, high) for each coordinate

    def __post_init__(self) -> None:
        self.size, self.dimension, self.domain = math.prod(self.counts), len(self.counts), in_words(self.box)
        self.shape = tuple(n - (not wraps) for n, wraps in zip(self.counts, self.periodic, strict=True))  # cells
        ends = np.array(self.box)
        self.low, self.sides = ends[:, 0], np.ptp(ends, axis=1) / self.shape  # the first corner; of a cell
        # N: the largest coordinate of a state in sides of cells, plus the most cells along a coordinate.
        self.reach = float((np.abs(ends).max(axis=1) / self.sides).max()) + max(self.shape)

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.counts))} points, piecewise linear"

    def closed(self, values: Floats) -> Floats:
        """Values at the points, the first ones repeated at the end of periodic coordinates ``[n_1 + 1, …]``."""
        table = values.reshape(self.counts)
        for axis, wraps in enumerate(self.periodic):
            if wraps:
                table = np.concatenate([table, table.take([0], axis=axis)], axis=axis)
        return table

    def at(self, table: Floats, places: Floats) -> Floats:
        """The function with a table of values, at places in sides of cells ``[n, d]``."""
        before, shares, total = [], [], np.zeros(len(places))
        for place, steps, wraps in zip(places.T, self.shape, self.periodic, strict=True):
            place = place % steps if wraps else place
            before.append(np.clip(np.floor(place).astype(np.int64), 0, steps - 1))
            shares.append(place - before[-1])
        for bits in combinations((0, 1), repeat=len(before)):
            weight = np.prod([share if bit else 1 - share for bit, share in zip(bits, shares, strict=True)], axis=0)
            total += weight * table[tuple(cell + bit for bit, cell in zip(bits, before, strict=True))]
        return total

    def on_axes(self, values: Floats, axes: list[Floats]) -> Floats:
        """The function with these values at the points, at all combinations of one number from each axis."""
        table = self.closed(values)
        for j, (numbers, low, side, steps) in enumerate(zip(axes, self.low, self.sides, self.shape, strict=True)):
            place = (numbers - low) / side
            before = np.clip(np.floor(place).astype(np.int64), 0, steps - 1)
            share = (place - before).reshape([-1 if i == j else 1 for i in range(self.dimension)])
            table = table.take(before, axis=j) * (1 - share) + table.take(before + 1, axis=j) * share
        return table

    def steepest(self, rows: Floats) -> Floats:
        """How fast differences of two of the functions with these values ``[A, k]`` change at most ``[d]``."""
        tables = np.stack([self.closed(row) for row in rows])
        steps = [np.ptp(np.diff(tables, axis=1 + j), axis=0).max() for j in range(self.dimension)]
        return np.asarray(steps / self.sides)

    @property
    def points(self) -> Floats:
        """Its points ``[k, d]``, the last coordinate varying fastest."""
        return self.low + self.sides * np.indices(self.counts).reshape(self.dimension, -1).T

    def range(self, coefficients: Floats) -> tuple[float, float] | None:
        """Bounds on the function with these values at the points."""
        return float(coefficients.min()), float(coefficients.max())

    def values(self, coefficients: Floats, states: Floats) -> Floats:
        """The function with these values at the points, at states ``[n, d]``."""
        return self.at(self.closed(coefficients), (states - self.low) / self.sides)


def in_words(box: Iterable[Iterable[float]]) -> str:
    """A box as text."""
    return " × ".join(f"[{low:g}, {high:g}]" for low, high in box)


def frequency(index: Any, periodic: bool) -> Any:
    """The degree of harmonics by number, the frequency on a circle."""
    return (index + 1) // 2 if periodic else index


def ordered(
    families: tuple[str, ...], highest: tuple[int, ...], index: str, size: int
) -> tuple[tuple[int, ...], ...] | None:
    """The first products by degree, in units of the highest of each coordinate; None if there are too many."""
    periodic, reach = [family == "Fourier" for family in families], 1.0
    while True:
        caps = [(top + 1) ** reach - 1 if index == "hyperbolic" else top * reach for top in highest]
        counts = [int(cap + 1e-9) * (2 if c else 1) + 1 for cap, c in zip(caps, periodic, strict=True)]
        if math.prod(counts) > 1 << 20:
            return None
        products = []
        for numbers in combinations(*(range(n) for n in counts)):
            degrees = [frequency(n, c) for n, c in zip(numbers, periodic, strict=True)]
            if index == "hyperbolic":
                terms = [math.log1p(k) / math.log1p(top) for k, top in zip(degrees, highest, strict=True)]
            else:
                terms = [k / max(top, 1) for k, top in zip(degrees, highest, strict=True)]
            level = round(max(terms) if index == "full" else math.fsum(terms), 9)
            if level <= reach + 1e-9:
                products.append((level, tuple(-n for n in numbers)))
        if len(products) >= size:
            return tuple(tuple(-n for n in numbers) for _, numbers in sorted(products)[:size])
        reach *= 1.1


@lru_cache(maxsize=64)
def _in_harmonics(family: str, size: int) -> Enclosure:
    """The functions of a family in its harmonics ``[size, size]``.

    P_n(cos θ) = Σ_i a_i a_(n−i) cos (n − 2i)θ with a_i = (2i choose i)/4^i, times √(n + ½); √(1/π) and √(2/π) times the
    cosines; √½, sines and cosines.
    """
    matrix = np.eye(size)
    if family == "Legendre":
        a = [Fraction(math.comb(2 * i, i), 4**i) for i in range(size)]
        rows = [[Fraction(0)] * size for _ in range(size)]
        for n in range(size):
            for i in range(n + 1):
                rows[n][abs(n - 2 * i)] += a[i] * a[n - i]
        matrix = np.array([[float(x) for x in row] for row in rows])
        peaks = (Enclosure(np.arange(size)) + 0.5).root()
    elif family == "Chebyshev":
        peaks = (Enclosure(np.where(np.arange(size) == 0, 1.0, 2.0)) / PI).root()
    else:
        peaks = Enclosure(np.where(np.arange(size) == 0, 0.5, 1.0)).root()
    return Enclosure(matrix, np.abs(matrix) * 2.0**-52) * peaks[:, None]


@lru_cache(maxsize=1024)
def _cosine_below(angle: Fraction) -> float:
    """A number that is no larger than cos π·angle, for angles up to ½; 0 beyond."""
    if not 0 <= angle < Fraction(1, 2):
        return 0.0
    return max(float(turn(Enclosure(float(angle), 2.0**-53))[1].below), 0.0)


@dataclass(frozen=True)
class Axis:
    """The harmonics of one coordinate."""

    family: str  # of the functions that they stand for
    top: int  # the highest degree, frequency on a circle
    low: float  # the ends of the coordinate
    high: float

    @property
    def periodic(self) -> bool:
        """Whether the coordinate is a circle."""
        return self.family == "Fourier"

    def harmonics(self, factors: int) -> int:
        """How many harmonics products of some functions need."""
        return (2 if self.periodic else 1) * factors * self.top + 1

    def count(self, density: float, least: int) -> int:
        """Points of a mesh, by how many there are for each degree; twice as many on a circle."""
        return max(math.ceil(density * self.top * (2 if self.periodic else 1)), least)

    def step(self, count: int) -> Fraction:
        """Half the distance of the points of a mesh, in angles divided by π."""
        return Fraction(1, count if self.periodic else 2 * count)

    @lru_cache(maxsize=256)  # noqa: B019
    def spread(self, count: int) -> Enclosure:
        """t of the points of a mesh ``[N]``."""
        return self.points(count, np.arange(count))

    def points(self, count: int, numbers: NDArray[np.intp]) -> Enclosure:
        """t of points of a mesh of this size: −cos π(j + ½)/N, or evenly spaced on the circle."""
        if self.periodic:
            return Enclosure(2.0 * numbers + 1 - count) / float(count)
        return -turn(Enclosure(2.0 * numbers + 1) / (2.0 * count))[1]

    def place(self, x: Floats) -> Enclosure:
        """t ∈ [−1, 1] of numbers between the ends."""
        t = (Enclosure(x) * 2.0 - self.low - self.high) / (enclosed(self.high) - self.low)
        return Enclosure(np.clip(t.middle, -1.0, 1.0), t.radius)

    def waves(self, count: int, t: Enclosure) -> Enclosure:
        """The first harmonics at t ``[n]``: ``[count, n]``, by formulas for the sum of two angles of half the size."""
        if not self.periodic:
            rows = [Enclosure(np.ones(t.shape)), t]
            for n in range(2, count):
                rows.append(2.0 * rows[n // 2] * rows[n - n // 2] - rows[n - 2 * (n // 2)])
            return stacked(rows[:count])
        sine, cosine = turn(t)
        sines, cosines = [Enclosure(np.zeros(t.shape)), sine], [Enclosure(np.ones(t.shape)), cosine]
        for n in range(2, count // 2 + 1):
            a, b = n // 2, n - n // 2
            sines.append(sines[a] * cosines[b] + cosines[a] * sines[b])
            cosines.append(cosines[a] * cosines[b] - sines[a] * sines[b])
        rows = [wave for pair in zip(sines, cosines, strict=True) for wave in pair]
        return stacked(rows[1 : count + 1])

    def product(self, index: int, other: int) -> tuple[tuple[int, float], tuple[int, float]]:
        """h_i h_j as two shares of harmonics, by number."""
        if not self.periodic:
            return (index + other, 0.5), (abs(index - other), 0.5)
        m, n = (index + 1) // 2, (other + 1) // 2
        sine, too = index % 2 == 1, other % 2 == 1
        if sine == too:  # cos·cos and sin·sin are cosines
            return (2 * (m + n), -0.5 if sine else 0.5), (2 * abs(m - n), 0.5)
        ahead = m - n if sine else n - m  # sin m cos n = ½ sin(m + n) + ½ sin(m − n)
        return (2 * (m + n) - 1, 0.5), (max(2 * abs(ahead) - 1, 0), 0.5 * np.sign(ahead))

    def derivative(self, count: int) -> Enclosure:
        """D with dh/ds = D h for the first harmonics ``[count, count]``: T_n' = 2n Σ T_j over odd n − j, T_0 halved."""
        matrix = np.zeros((count, count))
        for n in range(1, count // 2 + 1 if self.periodic else count):
            if self.periodic:
                matrix[2 * n - 1, 2 * n], matrix[2 * n, 2 * n - 1] = n, -n
            else:
                matrix[n, n - 1 :: -2] = 2.0 * n
                matrix[n, 0] /= 2
        by_t = Enclosure(matrix) * PI if self.periodic else Enclosure(matrix)
        return by_t * 2.0 / (enclosed(self.high) - self.low)

    def edges(self, move: float, most: float, cuts: Floats) -> Floats:
        """Edges of cells that are even in angle, cut further at some numbers; any would be sound."""
        low, high, periodic = self.low, self.high, self.periodic
        count = int(min(math.ceil(self.top * math.pi * (1 + periodic) / move), most)) + 1
        even = np.linspace(-1.0, 1.0, count) if periodic else -np.cos(np.linspace(0.0, np.pi, count))
        even = (low + high) / 2 + (high - low) / 2 * even[1:-1]
        after = np.clip(np.searchsorted(cuts, even), 1, len(cuts) - 1)
        nearest = np.minimum(np.abs(even - cuts[after - 1]), np.abs(even - cuts[after]))
        ends = np.unique(np.concatenate([even[nearest > 1e-12 * (high - low)], cuts]))  # cuts are kept as they are
        ends[0], ends[-1] = low, high
        return ends

    def drift(self, edges: Floats, middles: Floats, halves: Floats) -> Floats:
        """How far an expansion that nowhere exceeds 1 can move from the middles of cells ``[n]``.

        In the angle its slope is at most its degree (Bernstein).
        """
        if self.top == 0:
            return np.zeros(len(middles))
        if self.periodic:
            return (Enclosure(halves) * PI * (2.0 * self.top) / (enclosed(self.high) - self.low)).above
        sides = [self._angle(ends, middles).size for ends in (edges[:-1], edges[1:])]
        return (Enclosure(np.maximum(*sides)) * float(self.top)).above

    def _angle(self, numbers: Floats, others: Floats) -> Enclosure:
        """No smaller in size than the difference of the angles of numbers, if they are near each other.

        sin(θ − θ') = sin θ cos θ' − cos θ sin θ' =: x, and |arcsin x| ≤ |x|(1 + x²/6 + 3x⁴/40 + x⁶/10) for |x| ≤ ½.
        """
        width = enclosed(self.high) - self.low
        s, s2 = (
            (4.0 * (Enclosure(y) - self.low) * (self.high - Enclosure(y)) / (width * width)).positive().root()
            for y in (numbers, others)
        )
        x = (s * self.place(others) - self.place(numbers) * s2).absolute()
        square = x * x
        arc = x * (1.0 + square / 6.0 + square * square * 3.0 / 40.0 + square * square * square / 10.0)
        return Enclosure(np.where(x.above <= 0.5, arc.above, np.pi * (1 + 1e-15)))

    def weights(self, count: int, places: Enclosure) -> Enclosure:
        """ℓ_i with f(t) = Σ_i ℓ_i(t) f(t_i) for expansions f, t_i the points of a mesh ``[n, count]`` (Lemma 8)."""
        k, end = self.top, (count if self.periodic else 2 * count) - self.top
        if end <= k:
            raise ZeroDivisionError(f"{count} points do not tell expansions of degree {k} apart")
        orders = np.arange(end)
        shares = np.where(orders <= k, 1.0, (end - orders) / (end - k)) * np.where(orders == 0, 1.0, 2.0)
        if self.periodic:
            shares = np.repeat(shares, 2)[1:]
        waves, points = (self.waves(len(shares), t) for t in (places, self.spread(count)))
        return (waves.T * Enclosure(shares, shares * 2.0**-50)) @ points / float(count)


@dataclass
class Functions:
    """The first functions of a family, or products of one for each coordinate; their harmonics h, and bounds."""

    families: tuple[str, ...]  # "Legendre", "Chebyshev" or "Fourier" for each coordinate
    indices: tuple[tuple[int, ...], ...]  # the number of the function of each coordinate [k][d]
    box: tuple[tuple[float, float], ...]  # (low, high) for each coordinate
    order: tuple[Any, ...] = ()  # what decides the order of the products

    def __post_init__(self) -> None:
        self.size, self.dimension, self.domain = len(self.indices), len(self.families), in_words(self.box)  # k, d
        self.columns = np.array(self.indices, dtype=int).T  # the harmonic of each coordinate [d, k]
        sides = list(zip(self.columns, self.families, self.box, strict=True))
        degrees = [frequency(column, family == "Fourier") for column, family, _ in sides]
        self.degrees = np.stack(degrees, axis=1)  # frequencies on a circle [k, d]
        self.axes = [Axis(family, int(k.max()), *ends) for (_, family, ends), k in zip(sides, degrees, strict=True)]
        # How many harmonics of each coordinate the functions need, and products of two and four of them.
        self.narrow, self.wide, self.wider = (tuple(axis.harmonics(n) for axis in self.axes) for n in (1, 2, 4))

    def __str__(self) -> str:
        if self.dimension == 1:
            return f"{self.families[0]}({self.size})"
        sizes = [max(column) + 1 for column in zip(*self.indices, strict=True)]
        names = " × ".join(f"{family}({n})" for family, n in zip(self.families, sizes, strict=True))
        return f"{names}, {self.size} functions"

    def kin(self, other: Functions) -> bool:
        """Whether one of the two holds the first functions of the other."""
        same = (self.families, self.box, self.order) == (other.families, other.box, other.order)
        return same and all(a == b for a, b in zip(self.indices, other.indices, strict=False))

    @cached_property
    def closed(self) -> bool:
        """Whether every simpler product is there: then the span does not depend on the families."""
        degrees = {tuple(row) for row in self.degrees.tolist()}
        lower = ((*k[:j], k[j] - 1, *k[j + 1 :]) for k in degrees for j in range(len(k)) if k[j])
        return degrees.issuperset(lower)

    @cached_property
    def change(self) -> Enclosure:
        """B with φ = B h over the harmonics of the same indices ``[k, k]``; of sets that hold every simpler product."""
        matrix = Enclosure(np.ones((self.size, self.size)))
        for family, column in zip(self.families, self.columns, strict=True):
            matrix = matrix * _in_harmonics(family, int(column.max()) + 1)[np.ix_(column, column)]
        return matrix

    def range(self, coefficients: Floats) -> tuple[float, float] | None:
        """Bounds on a combination of the functions; None if some simpler product is missing."""
        return self.bounds(Enclosure(coefficients) @ self.change) if self.closed else None

    def values(self, coefficients: Floats, states: Floats) -> Floats:
        """A combination of the functions at states ``[n, d]``, to about the digits of the file."""
        return np.asarray(self.at(states).middle @ (coefficients @ self.change.middle))

    def at_places(self, places: list[Enclosure], along: int | None = None) -> Enclosure:
        """h at places, t of each coordinate ``[n]``, or its derivative along one: ``[n, k]``."""
        tables = []
        for j, (axis, t, column) in enumerate(zip(self.axes, places, self.columns, strict=True)):
            waves = axis.waves(count := axis.harmonics(1), t)
            tables.append((axis.derivative(count) @ waves if j == along else waves)[column])
        return math.prod(tables[1:], start=tables[0]).T

    def at(self, states: Floats, along: int | None = None) -> Enclosure:
        """h at states ``[n, d]``, or its derivative along a coordinate: ``[n, k]``."""
        places = [axis.place(x) for axis, x in zip(self.axes, np.asarray(states).T, strict=True)]
        return self.at_places(places, along)

    # Meshes.

    def counts(self, density: float, least: int = 2) -> tuple[int, ...]:
        """Points along each coordinate, by how many there are for each degree."""
        return tuple(axis.count(density, least) for axis in self.axes)

    def _points(self, density: float, least: float = 0.0, most: float = math.inf) -> tuple[int, ...]:
        while math.prod(self.counts(density, 1)) > most and density > least:
            density -= 0.25
        return self.counts(density)

    @cached_property
    def dense(self) -> tuple[int, ...]:
        """Points for suprema of products of two expansions."""
        return self._points(20.0, 3.0, 4_000)

    @cached_property
    def fine(self) -> tuple[int, ...]:
        """More of them, for suprema that are taken once."""
        return self._points(20.0, 3.0, 40_000)

    @cached_property
    def visited(self) -> tuple[int, ...]:
        """Few, for bounds that need not be sharp."""
        return self._points(4.0)

    @cached_property
    def coarse(self) -> tuple[int, ...]:
        """Few as well, fewer where there are many functions."""
        return self._points(4.0, 2.5, 8_000)

    def blocks(self, counts: tuple[int, ...], length: int) -> Iterator[Enclosure]:
        """h at the points of a mesh, ``length`` of them at once."""
        for start in range(0, math.prod(counts), length):
            yield self.mesh(counts, rows=slice(start, start + length))

    def mesh(self, counts: tuple[int, ...], *, harmonics: bool = True, rows: slice = slice(None)) -> Enclosure:
        """h at the points of a mesh ``[N, k]``, the last coordinate varying fastest; or the functions themselves."""
        tables, numbers = [], np.indices(counts).reshape(len(counts), -1)[:, rows]
        for axis, n, column, number in zip(self.axes, counts, self.columns, numbers, strict=True):
            table = axis.waves(axis.harmonics(1), axis.spread(n))
            if not harmonics:
                table = _in_harmonics(axis.family, axis.harmonics(1)) @ table
            tables.append(table[np.ix_(column, number)])
        return math.prod(tables[1:], start=tables[0]).T

    @cached_property
    def dense_values(self) -> Enclosure:
        """h at the dense mesh ``[q, k]``."""
        return self.mesh(self.dense)

    def inflation(self, counts: tuple[int, ...], times: int = 1) -> float:
        """sup|f| ≤ this · max over the mesh, for products of ``times`` expansions; infinite with too few points."""
        steps = [times * axis.step(n) for axis, n in zip(self.axes, counts, strict=True)]
        each = [_cosine_below(axis.top * step) for axis, step in zip(self.axes, steps, strict=True)]
        bound = max(_cosine_below(self._farthest(steps)), math.prod(each) * (1 - 1e-15))
        return float(np.nextafter(1 / bound, np.inf)) if bound > 0 else math.inf

    def _farthest(self, steps: list[Fraction]) -> Fraction:
        """The largest Σ_j k_j h_j over the degrees that occur."""
        rows = self.degrees.tolist()
        return max(sum((k * h for k, h in zip(row, steps, strict=True)), Fraction(0)) for row in rows)

    # Expansions Σ c_i h_i.

    def lifted(self, sums: Floats) -> Enclosure:
        """Σ h hᵀ f ``[…, k, k]`` from the sums Σ χ f ``[…, *wide]``."""
        flat = sums.reshape(*sums.shape[: sums.ndim - len(self.wide)], math.prod(self.wide))  # … may be 0
        terms = [Enclosure(flat[..., places]) * shares for places, shares in self._lifting]
        return sum(terms[1:], terms[0])

    @cached_property
    def _lifting(self) -> list[tuple[NDArray[np.intp], Floats]]:
        """Places in the sums and shares, 2^d of each for every pair of functions ``[k, k]``."""
        size, lifting = self.size, []
        for terms in combinations((0, 1), repeat=len(self.axes)):
            places, shares = np.zeros((size, size), dtype=np.intp), np.ones((size, size))
            for term, column, axis in zip(terms, self.columns.tolist(), self.axes, strict=True):
                table = np.array([[axis.product(i, j)[term] for j in column] for i in column])  # [k, k, 2]
                places, shares = places * axis.harmonics(2) + table[..., 0].astype(np.intp), shares * table[..., 1]
            lifting.append((places, shares))
        return lifting

    @cached_property
    def nodes(self) -> Enclosure:
        """h ``[q, k]`` at as many points of a mesh as products of four functions need harmonics."""
        return self.mesh(self.wider)

    def at_nodes(self, sums: Floats) -> Enclosure:
        """Weights ``[…, q]`` of these points from Σ χ f ``[…, *wider]``: Σ g(s_r)f_r is Σ weight_q g(point q).

        For products g of four functions: c_0 = Σ g/N and c_m = 2Σ g h_m/N over the N points of each coordinate.
        """
        tables = []
        for axis, count in zip(self.axes, self.wider, strict=True):
            shares = np.where(np.arange(count) == 0, 1.0, 2.0)[:, None] / count
            tables.append(axis.waves(count, axis.spread(count)) * Enclosure(shares, shares * 2.0**-53))
        return stacked([contracted(Enclosure(tensor), tables).reshape(-1) for tensor in sums])

    def tensor(self, curve: Enclosure) -> Enclosure:
        """An expansion as coefficients of all products of harmonics ``[*narrow]``."""
        middle, radius = np.zeros(self.narrow), np.zeros(self.narrow)
        place = tuple(self.columns)
        middle[place], radius[place] = curve.middle, curve.radius
        return Enclosure(middle, radius)

    def on_axes(self, tensor: Enclosure, places: list[Enclosure]) -> Enclosure:
        """The values of a tensor at all combinations of one t of each coordinate ``[n_1, …, n_d]``."""
        sides = zip(self.axes, tensor.shape, places, strict=True)
        return contracted(tensor, [axis.waves(count, t) for axis, count, t in sides])

    def slope(self, tensor: Enclosure, j: int) -> Enclosure:
        """The derivative of a tensor along one coordinate."""
        return (tensor.swapped(j, -1) @ self.axes[j].derivative(tensor.shape[j])).swapped(j, -1)

    def cells(self, cuts: list[Floats] | None = None) -> Cells:
        """Cells that are even in angle, cut further at given numbers of each coordinate; any would be sound."""
        most, ends = _MOST_CELLS ** (1 / len(self.axes)), [np.array(side) for side in self.box]
        move = _MOVES[len(self.axes) > 1]
        return Cells([axis.edges(move, most, own) for axis, own in zip(self.axes, cuts or ends, strict=True)])

    def places(self, cells: Cells) -> list[Enclosure]:
        """t of the middles of cells along each coordinate."""
        return [axis.place(middles) for axis, middles in zip(self.axes, cells.middles, strict=True)]

    def fall(self, curve: Enclosure, cells: Cells) -> Floats:
        """How far an expansion can be below its values at the middles of cells, within them ``[n_1, …, n_d]``."""
        tensor, places = self.tensor(curve), self.places(cells)
        dense = [axis.spread(n) for axis, n in zip(self.axes, self.dense, strict=True)]
        halves = [Enclosure(half) for half in np.ix_(*cells.halves)]
        total = Enclosure(np.zeros(tuple(len(middles) for middles in cells.middles)))
        for j, half in enumerate(halves):
            slope = self.slope(tensor, j)
            total = total + self.on_axes(slope, places).absolute() * half
            for i, other in enumerate(halves):
                bend = float(self.on_axes(self.slope(slope, i), dense).size.max())
                total = total + half * other * (enclosed(bend) * self.inflation(self.dense) * 0.5)
        return total.above

    def drift(self, cells: Cells) -> Floats:
        """How far an expansion that nowhere exceeds 1 can move within a cell from its middle ``[n_1, …, n_d]``."""
        sides = zip(self.axes, cells.edges, cells.middles, cells.halves, strict=True)
        moved = [axis.drift(edges, middles, halves) for axis, edges, middles, halves in sides]
        return np.asarray(sum(np.ix_(*moved))) * (1 + 1e-15)

    def weights(self, counts: tuple[int, ...], places: list[Enclosure]) -> list[Enclosure]:
        """ℓ_i along each coordinate, from points of a mesh to one t of each."""
        return [axis.weights(n, t).T for axis, n, t in zip(self.axes, counts, places, strict=True)]

    def peak(self, curve: Enclosure) -> float:
        """No smaller than the largest value of an expansion, from the dense mesh."""
        values = self.dense_values @ curve
        low, high = float(values.below.min()), float(values.above.max())
        return float(((enclosed(high) + low) * 0.5 + (enclosed(high) - low) * 0.5 * self.inflation(self.dense)).above)

    def bounds(self, curve: Enclosure) -> tuple[float, float]:
        """Bounds on the values of an expansion."""
        return self.least(curve)[0], -self.least(-curve)[0]

    def least(self, curve: Enclosure) -> tuple[float, float]:
        """Bounds on the least value of an expansion from below and above, by branch and bound in the angles.

        Along a line f is a sum of waves of frequencies up to σ, and if it is within M of a middle then f'² + σ²f² ≤
        σ²M² (Duffin and Schaeffer) and |f''| ≤ σ²M: from the centre of a box f falls by σ√(M² − f²) + σ²M/2 at most.
        """
        counts, rest, parts = self.counts(8.0, 1), curve[1:], _PARTS[len(self.axes) > 1]
        if not len(rest):
            return float(curve.below[0]), float(curve.above[0])
        spread = [axis.spread(n) for axis, n in zip(self.axes, counts, strict=True)]
        wave = Enclosure(np.append(0.0, rest.middle), np.append(0.0, rest.radius))
        values = self.on_axes(self.tensor(wave), spread).reshape(-1)
        low, high = float(values.below.min()), float(values.above.max())
        swing = (high - low) / 2 * self.inflation(counts) * _WIDER
        floor, ceiling, best = (high + low) / 2 - swing, (high + low) / 2 + swing, float(values.above.min())
        slack = _TOLERANCE[min(len(counts), 2)] * (high - low) + 4 * float(values.radius.max())
        steps = [axis.step(n) for axis, n in zip(self.axes, counts, strict=True)]
        sigma, size = math.pi * _WIDER * float(self._farthest(steps)), len(values)
        numbers, within = (np.indices(n).reshape(len(counts), -1) for n in (counts, (parts,) * len(counts)))
        while True:  # box j of n along a coordinate is divided into p parts: pj, pj + 1, … of pn
            below = values.below - 1e-15 * (high - low)
            floors, floor = _floors(below, sigma, floor, ceiling, best - slack)
            divided = floors < best - slack
            size += int(divided.sum()) * within.shape[1]
            if not divided.any() or size > _MOST_VALUES:
                return float((curve[0] + (floor - 1e-14 * (high - low))).below), float((curve[0] + best).above)
            numbers = (parts * numbers[:, divided, None] + within[:, None]).reshape(len(counts), -1)
            sigma, counts = sigma / parts * _WIDER, tuple(parts * n for n in counts)
            places = [axis.points(n, number) for axis, n, number in zip(self.axes, counts, numbers, strict=True)]
            blocks = range(0, len(places[0]), _ROWS)
            values = joined([self.at_places([t[i : i + _ROWS] for t in places])[:, 1:] @ rest for i in blocks])
            best = min(best, float(values.above.min()))


def _floors(below: Floats, sigma: float, floor: float, ceiling: float, enough: float) -> tuple[Floats, float]:
    """Bounds from below in boxes and of everything, repeated as the last improves the range."""
    while True:
        middle, swing = (floor + ceiling) / 2, (ceiling - floor) / 2 * _WIDER
        away = np.clip(below - middle, -swing, swing)
        falls = sigma * np.sqrt(np.maximum((swing - away) * (swing + away), 0.0)) + sigma**2 * swing / 2
        floors = below - falls * _WIDER
        better = max(floor, min(enough, float(floors.min())))
        if not better > floor + 0.01 * max(enough - floor, 0.0):  # what is no number is no better
            return floors, better
        floor = better


def contracted(tensor: Enclosure, tables: list[Enclosure]) -> Enclosure:
    """Σ over every axis of a tensor with a table ``[count, n]`` of its own ``[n_1, …, n_d]``."""
    for table in tables:  # the first axis becomes the last
        first, *rest = tensor.shape
        tensor = (tensor.reshape(first, -1).T @ table).reshape(*rest, table.shape[1])
    return tensor


@dataclass(eq=False)
class Cells:
    """Cells of a box."""

    edges: list[Floats]  # of the cells along each coordinate, the ends of the box first and last

    def __post_init__(self) -> None:
        self.middles = [(ends[1:] + ends[:-1]) / 2 for ends in self.edges]
        sides = zip(self.edges, self.middles, strict=True)  # half of them, rounded up: how far a cell reaches
        self.halves = [np.nextafter(np.maximum(ends[1:] - m, m - ends[:-1]), np.inf) for ends, m in sides]
