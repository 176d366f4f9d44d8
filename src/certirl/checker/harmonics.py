"""Functions of the state on an interval or a box, in harmonics, with proved bounds between the points of a mesh.

Products h of ``1, cos θ, cos 2θ, …`` with t = cos θ, or of ``1, sin θ, cos θ, …`` with θ = πt on a circle, one factor
for each coordinate; an interval is a box with one. The notation is that of docs/notes/certificate.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.checker.enclosures import PI, Enclosure, Floats, enclosed, stacked, turn

_DENSE, _LEAST_DENSE, _MOST_DENSE, _MOST_FINE = 20.0, 3.0, 4_000, 40_000
_VISITED = 4.0
_MOVE, _MOST_CELLS = 0.06, 1_000_000  # how far an expansion of size 1 may move within a cell, and the most cells
_MOST_VALUES = 1 << 20  # function values of one minimum
_TOLERANCE = {1: 1e-9, 2: 1e-7}  # of the range of values: how far below the least value its bound may be
_WIDER = 1 + 1e-12  # covers the rounding of the few operations that it multiplies


@dataclass(frozen=True)
class Functions:
    """The first functions of a family, or the first products of one function of each coordinate.

    Attributes:
        families: "Legendre", "Chebyshev" or "Fourier" for each coordinate.
        indices: the number of the function of each coordinate ``[k][d]``.
        box: (low, high) for each coordinate.
        order: what decides the order of the products.
    """

    families: tuple[str, ...]
    indices: tuple[tuple[int, ...], ...]
    box: tuple[tuple[float, float], ...]
    order: tuple[Any, ...] = ()

    @property
    def size(self) -> int:
        """How many, k."""
        return len(self.indices)

    @property
    def dimension(self) -> int:
        """The number of coordinates, d."""
        return len(self.families)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Which coordinates are circles."""
        return tuple(family == "Fourier" for family in self.families)

    def __str__(self) -> str:
        if self.dimension == 1:
            return f"{self.families[0]}({self.size})"
        sizes = [max(column) + 1 for column in zip(*self.indices, strict=True)]
        names = " × ".join(f"{family}({n})" for family, n in zip(self.families, sizes, strict=True))
        return f"{names}, {self.size} functions"

    @property
    def domain(self) -> str:
        """The box in words."""
        return in_words(self.box)

    def kin(self, other: Functions) -> bool:
        """Whether one of the two holds the first functions of the other."""
        same = (self.families, self.box, self.order) == (other.families, other.box, other.order)
        return same and all(a == b for a, b in zip(self.indices, other.indices, strict=False))

    @cached_property
    def change(self) -> Enclosure:
        """B with φ = B h over the harmonics of the same indices ``[k, k]``; of sets that hold every simpler product."""
        matrix = Enclosure(np.ones((self.size, self.size)))
        for family, column in zip(self.families, np.array(self.indices).T, strict=True):
            matrix = matrix * _in_harmonics(family, int(column.max()) + 1)[np.ix_(column, column)]
        return matrix

    @property
    def closed(self) -> bool:
        """Whether every simpler product is there: then the span does not depend on the families."""
        degrees = {tuple(row) for row in Box.of(self).degrees.tolist()}
        lower = ((*k[:j], k[j] - 1, *k[j + 1 :]) for k in degrees for j in range(len(k)) if k[j])
        return degrees.issuperset(lower)

    def range(self, coefficients: Floats) -> tuple[float, float] | None:
        """Bounds on a combination of the functions; None if some simpler product is missing."""
        return Box.of(self).range(Enclosure(coefficients) @ self.change) if self.closed else None

    def values(self, coefficients: Floats, states: Floats) -> Floats:
        """A combination of the functions at states ``[n, d]``, to about the digits of the file."""
        return np.asarray(Box.of(self).at(states).middle @ (coefficients @ self.change.middle))


@dataclass(frozen=True)
class Grid:
    """The functions that are linear between the points of a grid, by their values there.

    Attributes:
        counts: points along each coordinate.
        circles: the coordinates that are circles.
        box: (low, high) for each coordinate.
    """

    counts: tuple[int, ...]
    circles: tuple[int, ...]
    box: tuple[tuple[float, float], ...]

    @property
    def size(self) -> int:
        """How many points."""
        return math.prod(self.counts)

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.counts))} points, piecewise linear"

    @property
    def domain(self) -> str:
        """The box in words."""
        return in_words(self.box)

    def range(self, coefficients: Floats) -> tuple[float, float] | None:
        """Bounds on the function with these values at the points."""
        return float(coefficients.min()), float(coefficients.max())

    def values(self, coefficients: Floats, states: Floats) -> Floats:
        """The function with these values at the points, at states ``[n, d]``."""
        index, shares = np.zeros((len(states), 1), dtype=int), np.ones((len(states), 1))
        for axis, (x, n, (low, high)) in enumerate(zip(states.T, self.counts, self.box, strict=True)):
            steps = n if axis in self.circles else n - 1
            along = (x - low) / (high - low) * steps
            left = np.clip(along.astype(int), 0, steps - 1)
            ends, weights = np.stack([left, (left + 1) % n], 1), np.stack([1 - (along - left), along - left], 1)
            index = (index[:, :, None] * n + ends[:, None]).reshape(len(states), -1)
            shares = (shares[:, :, None] * weights[:, None]).reshape(len(states), -1)
        return np.asarray((coefficients[index] * shares).sum(axis=1))


def in_words(box: tuple[tuple[float, float], ...]) -> str:
    """A box as text."""
    return " × ".join(f"[{low:g}, {high:g}]" for low, high in box)


def frequency(index: Any, around: bool) -> Any:
    """The degree of harmonics by number, the frequency on a circle."""
    return (index + 1) // 2 if around else index


def ordered(
    families: tuple[str, ...], highest: tuple[int, ...], index: str, size: int
) -> tuple[tuple[int, ...], ...] | None:
    """The first products by degree, in units of the highest of each coordinate; None if there are too many."""
    around, reach = [family == "Fourier" for family in families], 1.0
    while True:
        caps = [(top + 1) ** reach - 1 if index == "hyperbolic" else top * reach for top in highest]
        counts = [int(cap + 1e-9) * (2 if c else 1) + 1 for cap, c in zip(caps, around, strict=True)]
        if math.prod(counts) > 1 << 20:
            return None
        found = []
        for numbers in combinations(*(range(n) for n in counts)):
            degrees = [frequency(n, c) for n, c in zip(numbers, around, strict=True)]
            if index == "hyperbolic":
                terms = [math.log1p(k) / math.log1p(top) for k, top in zip(degrees, highest, strict=True)]
            else:
                terms = [k / max(top, 1) for k, top in zip(degrees, highest, strict=True)]
            level = round(max(terms) if index == "full" else math.fsum(terms), 9)
            if level <= reach + 1e-9:
                found.append((level, tuple(-n for n in numbers)))
        if len(found) >= size:
            return tuple(tuple(-n for n in numbers) for _, numbers in sorted(found)[:size])
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


def waves(count: int, t: Enclosure, around: bool) -> Enclosure:
    """The first harmonics at t ``[n]``: ``[count, n]``, by formulas for the sum of two angles of half the size."""
    if not around:
        rows = [Enclosure(np.ones(t.shape)), t]
        for n in range(2, count):
            rows.append(2.0 * rows[n // 2] * rows[n - n // 2] - rows[n - 2 * (n // 2)])
        return stacked(rows[:count])
    sines, cosines = [Enclosure(np.zeros(t.shape))], [Enclosure(np.ones(t.shape))]
    sine, cosine = turn(t)
    sines.append(sine)
    cosines.append(cosine)
    for n in range(2, count // 2 + 1):
        a, b = n // 2, n - n // 2
        sines.append(sines[a] * cosines[b] + cosines[a] * sines[b])
        cosines.append(cosines[a] * cosines[b] - sines[a] * sines[b])
    rows = [own for pair in zip(sines, cosines, strict=True) for own in pair][1:]
    return stacked(rows[:count])


@lru_cache(maxsize=256)
def spread(count: int, around: bool) -> Enclosure:
    """t of the points of a mesh along one coordinate: −cos π(j + ½)/N, or evenly spaced on the circle ``[N]``."""
    if around:
        return Enclosure(2.0 * np.arange(count) + 1 - count) / float(count)
    return -turn(Enclosure(2.0 * np.arange(count) + 1) / (2.0 * count))[1]


@lru_cache(maxsize=1024)
def _cosine_below(angle: Fraction) -> float:
    """A number that is no larger than cos π·angle, for angles up to ½; 0 beyond."""
    if not 0 <= angle < Fraction(1, 2):
        return 0.0
    return max(float(turn(Enclosure(float(angle), 2.0**-53))[1].below), 0.0)


@lru_cache(maxsize=64)
def _product(index: int, other: int, around: bool) -> tuple[tuple[int, float], tuple[int, float]]:
    """h_i h_j as two shares of harmonics, by number."""
    if not around:
        return (index + other, 0.5), (abs(index - other), 0.5)
    m, n = (index + 1) // 2, (other + 1) // 2
    sine, too = index % 2 == 1, other % 2 == 1
    if sine == too:  # cos·cos and sin·sin are cosines
        return (2 * (m + n), -0.5 if sine else 0.5), (2 * abs(m - n), 0.5)
    ahead = m - n if sine else n - m  # sin m cos n = ½ sin(m + n) + ½ sin(m − n)
    return (2 * (m + n) - 1, 0.5), (max(2 * abs(ahead) - 1, 0), 0.5 * np.sign(ahead))


class Box:
    """The harmonics of some functions, and what is known of expansions in them.

    Attributes:
        functions: whose harmonics they are.
        indices: the harmonic of each coordinate ``[k, d]``.
        degrees: their degrees, frequencies on a circle ``[k, d]``.
        top: the highest in each coordinate.
        narrow, wide: how many harmonics of each coordinate the functions need, and products of two of them.
    """

    def __init__(self, functions: Functions) -> None:
        self.functions, self.around = functions, functions.periodic
        self.indices = np.array(functions.indices, dtype=int)
        columns = zip(self.indices.T, self.around, strict=True)
        self.degrees = np.stack([frequency(column, c) for column, c in columns], axis=1)
        self.top = tuple(self.degrees.max(axis=0).tolist())
        self.narrow = tuple((2 if c else 1) * k + 1 for k, c in zip(self.top, self.around, strict=True))
        self.wide = tuple((4 if c else 2) * k + 1 for k, c in zip(self.top, self.around, strict=True))

    @staticmethod
    @lru_cache(maxsize=32)
    def of(functions: Functions) -> Box:
        """The box of some functions, made once."""
        return Box(functions)

    def values(self, places: list[Enclosure]) -> Enclosure:
        """h at places, t of each coordinate ``[n]``: ``[n, k]``."""
        total = None
        for t, count, c, column in zip(places, self.narrow, self.around, self.indices.T, strict=True):
            table = waves(count, t, c)[column]
            total = table if total is None else total * table
        assert total is not None
        return total.T

    def at(self, states: Floats) -> Enclosure:
        """h at states ``[n, d]``: ``[n, k]``."""
        columns = zip(np.asarray(states).T, self.functions.box, strict=True)
        return self.values([_place(column, *ends) for column, ends in columns])

    # Meshes.

    def counts(self, share: float, least: int = 2) -> tuple[int, ...]:
        """Points along each coordinate: so many for each degree, twice that on a circle."""
        pairs = zip(self.top, self.around, strict=True)
        return tuple(max(math.ceil(share * k * (2 if c else 1)), least) for k, c in pairs)

    def _dense(self, most: int) -> tuple[int, ...]:
        share = _DENSE
        while math.prod(self.counts(share, 1)) > most and share > _LEAST_DENSE:
            share -= 0.25
        return self.counts(share)

    @cached_property
    def dense(self) -> tuple[int, ...]:
        """Points for suprema of products of two expansions."""
        return self._dense(_MOST_DENSE)

    @cached_property
    def fine(self) -> tuple[int, ...]:
        """More of them, for suprema that are taken once."""
        return self._dense(_MOST_FINE)

    @cached_property
    def visited(self) -> tuple[int, ...]:
        """Few, for bounds that need not be sharp."""
        return self.counts(_VISITED)

    def mesh(self, counts: tuple[int, ...], *, harmonics: bool = True) -> Enclosure:
        """h at all points of a mesh ``[N, k]``, the last coordinate varying fastest; or the functions themselves."""
        total, grids = None, np.meshgrid(*(np.arange(n) for n in counts), indexing="ij")
        for axis, (n, c, count) in enumerate(zip(counts, self.around, self.narrow, strict=True)):
            table, column = waves(count, spread(n, c), c), self.indices[:, axis]
            if not harmonics:
                table = _in_harmonics(self.functions.families[axis], count) @ table
            own = table[np.ix_(column, grids[axis].ravel())]
            total = own if total is None else total * own
        assert total is not None
        return total.T

    @cached_property
    def dense_values(self) -> Enclosure:
        """h at the dense mesh ``[q, k]``."""
        return self.mesh(self.dense)

    def inflation(self, counts: tuple[int, ...], times: int = 1) -> float:
        """sup|f| ≤ this · max over the mesh, for products of so many expansions; infinite if it has too few points."""
        steps = [times * Fraction(1, n if c else 2 * n) for n, c in zip(counts, self.around, strict=True)]
        each = [_cosine_below(k * h) for k, h in zip(self.top, steps, strict=True)]
        bounds = [_cosine_below(_farthest(self.degrees, steps)), math.prod(each) * (1 - 1e-15)]
        return float(np.nextafter(1 / max(bounds), np.inf)) if max(bounds) > 0 else math.inf

    # Expansions Σ c_i h_i.

    def lifted(self, sums: Floats) -> Enclosure:
        """Σ h hᵀ f ``[…, k, k]`` from the sums Σ χ f ``[…, *wide]``."""
        lead, total = sums.shape[: sums.ndim - len(self.wide)], None
        flat = sums.reshape(*lead, -1)
        for places, shares in self._lifting:
            own = Enclosure(flat[..., places]) * shares
            total = own if total is None else total + own
        assert total is not None
        return total

    @cached_property
    def _lifting(self) -> list[tuple[NDArray[np.intp], Floats]]:
        """Places in the sums and shares, 2^d of each for every pair of functions ``[k, k]``."""
        size, found = len(self.indices), []
        for terms in combinations((0, 1), repeat=len(self.wide)):
            places, shares = np.zeros((size, size), dtype=np.intp), np.ones((size, size))
            for term, column, count, c in zip(terms, self.indices.T, self.wide, self.around, strict=True):
                table = [[_product(int(i), int(j), c)[term] for j in column] for i in column]
                places = places * count + np.array([[own[0] for own in row] for row in table], dtype=np.intp)
                shares = shares * np.array([[own[1] for own in row] for row in table], dtype=float)
            found.append((places, shares))
        return found

    def tensor(self, curve: Enclosure) -> Enclosure:
        """An expansion as coefficients of all products of harmonics ``[*narrow]``."""
        middle, radius = np.zeros(self.narrow), np.zeros(self.narrow)
        middle[tuple(self.indices.T)], radius[tuple(self.indices.T)] = curve.middle, curve.radius
        return Enclosure(middle, radius)

    def on_axes(self, tensor: Enclosure, axes: list[Enclosure]) -> Enclosure:
        """The values of a tensor at all combinations of one t of each axis ``[n_1, …, n_d]``."""
        for count, axis, c in zip(tensor.shape, axes, self.around, strict=True):
            tensor = _contracted(tensor, waves(count, axis, c))
        return tensor

    def slope(self, tensor: Enclosure, axis: int) -> Enclosure:
        """The derivative of a tensor along one coordinate."""
        count, (low, high) = tensor.shape[axis], self.functions.box[axis]
        matrix = _derivative(count, self.around[axis]) * 2.0 / (enclosed(high) - low)
        return (tensor.swapped(axis, -1) @ matrix).swapped(axis, -1)

    def cells(self, edges: list[Floats] | None = None) -> Cells:
        """Cells that are even in angle, cut further at given edges along each coordinate; any would be sound."""
        most, found = _MOST_CELLS ** (1 / len(self.wide)), []
        for axis, ((low, high), k, c) in enumerate(zip(self.functions.box, self.top, self.around, strict=True)):
            count = int(min(math.ceil(k * math.pi * (1 + c) / _MOVE), most)) + 1
            even = np.linspace(-1.0, 1.0, count) if c else -np.cos(np.linspace(0.0, np.pi, count))
            cuts = [low, high] if edges is None else edges[axis]
            ends = np.unique(np.concatenate([(low + high) / 2 + (high - low) / 2 * even[1:-1], cuts]))
            ends = ends[np.append(True, np.diff(ends) > 1e-12 * (high - low))]
            ends[0], ends[-1] = low, high
            found.append(ends)
        return Cells(found)

    def places(self, cells: Cells) -> list[Enclosure]:
        """t of the middles of cells along each coordinate."""
        middles, box = cells.middles, self.functions.box
        return [_place(own, *ends) for own, ends in zip(middles, box, strict=True)]

    def fall(self, curve: Enclosure, cells: Cells) -> Floats:
        """How far an expansion can be below its values at the middles of cells, within them ``[n_1, …, n_d]``."""
        tensor, axes, total, d = self.tensor(curve), self.places(cells), None, len(self.wide)
        dense = [spread(n, c) for n, c in zip(self.dense, self.around, strict=True)]
        half = [Enclosure(_along(own, axis, d)) for axis, own in enumerate(cells.halves)]
        for j, own in enumerate(half):
            slope = self.slope(tensor, j)
            fall = self.on_axes(slope, axes).absolute() * own
            for i, other in enumerate(half):
                bend = float(self.on_axes(self.slope(slope, i), dense).size.max())
                fall = fall + own * other * (enclosed(bend) * self.inflation(self.dense) * 0.5)
            total = fall if total is None else total + fall
        assert total is not None
        return total.above

    def drift(self, cells: Cells) -> Floats:
        """How far an expansion that nowhere exceeds 1 can move from the middle of a cell within it ``[n_1, …, n_d]``.

        In the angle of each coordinate its slope is at most its degree (Bernstein).
        """
        total: Any = 0.0
        for axis, (k, c, (low, high)) in enumerate(zip(self.top, self.around, self.functions.box, strict=True)):
            middle, ends = cells.middles[axis], cells.edges[axis]
            if k == 0:
                moved = Enclosure(np.zeros(len(middle)))
            elif c:
                moved = Enclosure(cells.halves[axis]) * PI * (2.0 * k) / (enclosed(high) - low)
            else:
                sides = [_angle(own, middle, low, high) for own in (ends[:-1], ends[1:])]
                moved = Enclosure(np.maximum(*(own.size for own in sides))) * float(k)
            total = np.add.outer(total, moved.above)
        return np.asarray(total) * (1 + 1e-15)

    def weights(self, axis: int, count: int, places: Enclosure) -> Enclosure:
        """ℓ_i with f(t) = Σ_i ℓ_i(t) f(t_i) for every expansion f, t_i the spread points ``[n, count]`` (Lemma 8)."""
        k, c = self.top[axis], self.around[axis]
        end = (count if c else 2 * count) - k
        if end <= k:
            raise ZeroDivisionError(f"{count} points do not tell expansions of degree {k} apart")
        orders = np.arange(end)
        shares = np.where(orders <= k, 1.0, (end - orders) / (end - k)) * np.where(orders == 0, 1.0, 2.0)
        if c:
            shares = np.repeat(shares, 2)[1:]
        own, points = (waves(len(shares), t, c) for t in (places, spread(count, c)))
        return (own.T * Enclosure(shares, shares * 2.0**-50)) @ points / float(count)

    def blended(self, numbers: list[Floats], axes: list[Enclosure]) -> list[tuple[Enclosure, Enclosure]]:
        """Σ_i |ℓ_i| v_i and Σ_i ℓ_i v_i at all combinations, for several arrays of v at the points of a mesh."""
        each = [self.weights(axis, n, t) for axis, (n, t) in enumerate(zip(numbers[0].shape, axes, strict=True))]
        found = []
        for own in numbers:
            absolute = plain = Enclosure(own)
            for weights in each:
                absolute, plain = _contracted(absolute, weights.absolute().T), _contracted(plain, weights.T)
            found.append((absolute, plain))
        return found

    def peak(self, curve: Enclosure) -> float:
        """No smaller than the largest value of an expansion, from the dense mesh."""
        values = self.dense_values @ curve
        low, high = float(values.below.min()), float(values.above.max())
        return float(((enclosed(high) + low) * 0.5 + (enclosed(high) - low) * 0.5 * self.inflation(self.dense)).above)

    def range(self, curve: Enclosure) -> tuple[float, float]:
        """Bounds on the values of an expansion."""
        return self.minimum(curve), -self.minimum(-curve)

    def minimum(self, curve: Enclosure) -> float:
        """No larger than the least value of an expansion, by branch and bound in the angles.

        Along a line f is a sum of waves of frequencies up to σ, and if it is within M of a middle then f'² + σ²f² ≤
        σ²M² (Duffin and Schaeffer) and |f''| ≤ σ²M: from the centre of a box f falls by σ√(M² − f²) + σ²M/2 at most.
        """
        counts, rest = self.counts(8.0, 1), curve[1:]
        if not len(rest):
            return float(curve.below[0])
        values = self.mesh(counts)[:, 1:] @ rest
        low, high = float(values.below.min()), float(values.above.max())
        swing = (high - low) / 2 * self.inflation(counts) * _WIDER
        floor, ceiling, best = (high + low) / 2 - swing, (high + low) / 2 + swing, float(values.above.min())
        slack = _TOLERANCE[min(len(counts), 2)] * (high - low) + 4 * float(values.radius.max())
        steps = [Fraction(1, n if c else 2 * n) for n, c in zip(counts, self.around, strict=True)]
        sigma = math.pi * _WIDER * float(_farthest(self.degrees, steps))
        grids, part, count = np.meshgrid(*(np.arange(n) + 0.5 for n in counts), indexing="ij"), 0.5, len(values)
        angles, signs = [grid.ravel() for grid in grids], np.array(list(combinations((-1.0, 1.0), repeat=len(counts))))
        while True:
            below = values.below - 1e-15 * (high - low)
            floors, floor = _floors(below, sigma, floor, ceiling, best - slack)
            left = floors < best - slack
            count += int(left.sum()) << len(counts)
            if not left.any() or count > _MOST_VALUES:
                return float((curve[0] + (floor - 1e-14 * (high - low))).below)
            part, sigma = part / 2, sigma / 2
            angles = [(own[left][:, None] + part * side).ravel() for own, side in zip(angles, signs.T, strict=True)]
            turns = [Enclosure(own) / float(n) for own, n in zip(angles, counts, strict=True)]
            places = [2.0 * own - 1.0 if c else -turn(own)[1] for own, c in zip(turns, self.around, strict=True)]
            values = self.values(places)[:, 1:] @ rest
            best = min(best, float(values.above.min()))


def _floors(below: Floats, sigma: float, floor: float, ceiling: float, enough: float) -> tuple[Floats, float]:
    """Bounds from below in boxes and of everything, repeated as the last improves the range."""
    while True:
        middle, swing = (floor + ceiling) / 2, (ceiling - floor) / 2 * _WIDER
        away = np.clip(below - middle, -swing, swing)
        falls = sigma * np.sqrt(np.maximum((swing - away) * (swing + away), 0.0)) + sigma**2 * swing / 2
        floors = below - falls * _WIDER
        better = max(floor, min(enough, float(floors.min())))
        if better <= floor + 0.01 * max(enough - floor, 0.0):
            return floors, better
        floor = better


def _farthest(degrees: NDArray[np.intp], steps: list[Fraction]) -> Fraction:
    """The largest Σ_j k_j h_j over the degrees that occur."""
    return max(sum((k * h for k, h in zip(row, steps, strict=True)), Fraction(0)) for row in degrees.tolist())


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of a box.

    Attributes:
        edges: of the cells along each coordinate, the ends of the box first and last.
    """

    edges: list[Floats]

    @property
    def middles(self) -> list[Floats]:
        """Of the cells along each coordinate."""
        return [(own[1:] + own[:-1]) / 2 for own in self.edges]

    @property
    def halves(self) -> list[Floats]:
        """Half the sides, rounded up: how far a cell reaches from its middle."""
        ends = zip(self.edges, self.middles, strict=True)
        return [np.nextafter(np.maximum(own[1:] - m, m - own[:-1]), np.inf) for own, m in ends]

    def at(self, state: Floats) -> tuple[int, ...]:
        """The cell of a state."""
        pairs = zip(self.edges, state, strict=True)
        return tuple(int(np.clip(np.searchsorted(own, x, side="right") - 1, 0, len(own) - 2)) for own, x in pairs)


def _along(numbers: Floats, axis: int, dimension: int) -> Floats:
    """Numbers along one coordinate, shaped for a product with arrays over all coordinates."""
    return numbers.reshape([-1 if j == axis else 1 for j in range(dimension)])


def _place(column: Floats, low: float, high: float) -> Enclosure:
    """t ∈ [−1, 1] of numbers of one coordinate."""
    t = (Enclosure(column) * 2.0 - low - high) / (enclosed(high) - low)
    return Enclosure(np.clip(t.middle, -1.0, 1.0), t.radius)


def _angle(one: Floats, other: Floats, low: float, high: float) -> Enclosure:
    """No smaller in size than the difference of the angles of numbers of an interval, if they are near each other.

    sin(θ − θ') = sin θ cos θ' − cos θ sin θ' =: x, and |arcsin x| ≤ |x|(1 + x²/6 + 3x⁴/40 + x⁶/10) for |x| ≤ ½.
    """
    width = enclosed(high) - low
    waves_of = []
    for own in (one, other):
        sine = (4.0 * (Enclosure(own) - low) * (high - Enclosure(own)) / (width * width)).positive().root()
        waves_of.append((sine, _place(own, low, high)))
    (s, c), (s2, c2) = waves_of
    x = (s * c2 - c * s2).absolute()
    square = x * x
    arc = x * (1.0 + square / 6.0 + square * square * 3.0 / 40.0 + square * square * square / 10.0)
    return Enclosure(np.where(x.above <= 0.5, arc.above, np.pi * (1 + 1e-15)))


def _contracted(tensor: Enclosure, table: Enclosure) -> Enclosure:
    """Σ over the first axis of a tensor with a table ``[count, n]``; the points come last."""
    first, *rest = tensor.shape
    flat = tensor.reshape(first, -1)
    return (flat.T @ table).reshape(*rest, table.shape[1])


def _derivative(count: int, around: bool) -> Enclosure:
    """D with dh/dt = D h for the first harmonics ``[count, count]``: T_n' = 2n Σ T_j over odd n − j, T_0 halved."""
    matrix = np.zeros((count, count))
    for n in range(1, count // 2 + 1 if around else count):
        if around:
            matrix[2 * n - 1, 2 * n], matrix[2 * n, 2 * n - 1] = n, -n
        else:
            matrix[n, n - 1 :: -2] = 2.0 * n
            matrix[n, 0] /= 2
    return Enclosure(matrix) * PI if around else Enclosure(matrix)
