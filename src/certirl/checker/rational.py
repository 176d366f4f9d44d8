"""Exact arithmetic with bounds: |x − m·2^−BITS| ≤ e·2^−BITS for whole numbers m and e, and nothing is ever dropped.

A `Table` keeps one e for all its entries; with so many bits that costs nothing. Where only one side matters, functions
called above and below return fractions on that side. No bound here passes through floating point, and nothing of the
rest of the library is used: `certirl.check` builds its second opinion on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import mul
from typing import Any

BITS = 320
ONE = 1 << BITS
# The bits that one-sided fractions are rounded to: few enough to stay quick, far more than is ever needed.
_SIDE = 160


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers x_ij with |x_ij − rows_ij·2^−BITS| ≤ error·2^−BITS.

    Attributes:
        rows: whole numbers ``[n][m]``.
        error: one for all of them.
    """

    rows: Sequence[Sequence[int]]
    error: int = 0

    @classmethod
    def of(cls, numbers: Iterable[Iterable[Fraction | float]]) -> Table:
        """Enclose given numbers; floats are the fractions that they are."""
        return cls([[_units(x) for x in row] for row in numbers], 1)

    @property
    def T(self) -> Table:
        """x_ji."""
        return Table(list(zip(*self.rows, strict=True)), self.error)

    def peak(self) -> int:
        """max|x_ij|, in units, rounded up."""
        return max((max(map(abs, row), default=0) for row in self.rows), default=0) + self.error

    def __add__(self, other: Table) -> Table:
        rows = [[a + b for a, b in zip(x, y, strict=True)] for x, y in self._paired(other)]
        return Table(rows, self.error + other.error)

    def __neg__(self) -> Table:
        return Table([[-a for a in row] for row in self.rows], self.error)

    def __sub__(self, other: Table) -> Table:
        return self + (-other)

    def __matmul__(self, other: Table) -> Table:
        columns = list(zip(*other.rows, strict=True))
        rows = [[sum(map(mul, row, column)) >> BITS for column in columns] for row in self.rows]
        return Table(rows, self._product_error(other, len(other.rows)))

    def times(self, other: Table) -> Table:
        """x_ij y_ij; a single row stands for all."""
        rows = [[a * b >> BITS for a, b in zip(x, y, strict=True)] for x, y in self._paired(other)]
        return Table(rows, self._product_error(other, 1))

    def scaled(self, factor: Fraction) -> Table:
        """x_ij times an exact number."""
        top, bottom = factor.numerator, factor.denominator
        rows = [[a * top // bottom for a in row] for row in self.rows]
        return Table(rows, self.error * abs(top) // bottom + 2)

    def absolute(self) -> Table:
        """|x_ij|."""
        return Table([list(map(abs, row)) for row in self.rows], self.error)

    def larger(self, other: Table) -> Table:
        """max(x_ij, y_ij)."""
        rows = [list(map(max, x, y)) for x, y in self._paired(other)]
        return Table(rows, max(self.error, other.error))

    def sums(self) -> Table:
        """Σ_j x_ij, one row of them."""
        width = max(map(len, self.rows), default=0)
        return Table([[sum(row) for row in self.rows]], self.error * width)

    def form(self, middle: list[list[Fraction]], other: Table) -> Table:
        """The diagonal of x·middle·yᵀ, one row."""
        return (self @ Table.of(middle)).times(other).sums()

    def tops(self) -> list[Fraction]:
        """max_j x_ij for every row, from above."""
        return [Fraction(max(row) + self.error, ONE) for row in self.rows]

    def above(self) -> list[list[Fraction]]:
        """x_ij from above."""
        return [[Fraction(a + self.error, ONE) for a in row] for row in self.rows]

    def _paired(self, other: Table) -> Iterable[tuple[Sequence[int], Sequence[int]]]:
        if len(other.rows) == 1:
            return ((row, other.rows[0]) for row in self.rows)
        return zip(self.rows, other.rows, strict=True)

    def _product_error(self, other: Table, terms: int) -> int:
        a, b = self.peak(), other.peak()  # |xy − mn| ≤ |x||y − n| + |n||x − m|
        return ((a * other.error + b * self.error) * terms >> BITS) + 2


def stacked(tables: Sequence[Table]) -> Table:
    """The rows of all of them, one below the other."""
    return Table([row for table in tables for row in table.rows], max(table.error for table in tables))


def exactly(value: Any) -> Any:
    """Floats, in lists of lists or alone, as the fractions that they are."""
    return [exactly(item) for item in value] if isinstance(value, list) else Fraction(value)


def dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    """Σ a_i b_i."""
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def identity(size: int) -> list[list[Fraction]]:
    """1 on the diagonal, 0 elsewhere."""
    return [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]


def eliminate(left: list[list[Fraction]], right: list[list[Fraction]]) -> tuple[Table, bool] | None:
    """X with left·X = right, rounded down at the end, and whether all leading minors are positive; None if singular.

    Gauss and Jordan without fractions (Bareiss): every division of whole numbers on the way comes out even.
    """
    size = len(left)
    common = math.lcm(*(x.denominator for rows in (left, right) for row in rows for x in row))
    rows = [[int(x * common) for x in (*a, *b)] for a, b in zip(left, right, strict=True)]
    last, positive = 1, True
    for k in range(size):
        best = next((i for i in range(k, size) if rows[i][k]), None)
        if best is None:
            return None
        positive &= best == k and rows[k][k] > 0
        rows[k], rows[best] = rows[best], rows[k]
        pivot, chosen = rows[k][k], rows[k]
        for i in range(size):
            if i != k:
                factor = rows[i][k]
                rows[i] = [(pivot * x - factor * y) // last for x, y in zip(rows[i], chosen, strict=True)]
        last = pivot
    return Table([[(x << BITS) // last for x in row[size:]] for row in rows], 1), positive


def series_above(K: list[list[Fraction]], u: list[Fraction]) -> list[Fraction] | None:
    """x ≥ Σ_k K^k u for K, u ≥ 0: whatever solves x = Kx + u with x ≥ 0; None if nothing does.

    From x = Kx + u with x ≥ 0 follows x ≥ u + Ku + … + K^k u for every k: no eigenvalue is needed to know that the
    series converges. K and u are rounded up first, to stay quick.
    """
    rows = zip(identity(len(u)), K, strict=True)
    left = [[one - rounded_up(k) for one, k in zip(*pair, strict=True)] for pair in rows]
    solved = eliminate(left, [[rounded_up(x)] for x in u])
    if solved is None or any(x < 0 for (x,) in solved[0].rows):
        return None
    return [x for (x,) in solved[0].above()]


def root_above(x: Fraction) -> Fraction:
    """A fraction ≥ √x, for x ≥ 0; negative x, which only rounding makes, count as zero."""
    if x <= 0:
        return Fraction(0)
    # Even shifts keep the relative error small for numbers of any size.
    shift = 2 * max(_SIDE - (x.numerator.bit_length() - x.denominator.bit_length()) // 2, 0)
    return Fraction(math.isqrt((x.numerator << shift) // x.denominator) + 1, 1 << shift // 2)


def log_above(x: Fraction) -> Fraction:
    """A fraction ≥ ln x, for x ≥ 1: k ln 2 + ln(x/2^k), each by 2·artanh and its geometric remainder."""
    k = max(x.numerator.bit_length() - x.denominator.bit_length() - 1, 0)
    return rounded_up(k * _log_series(Fraction(1, 3)) + _log_series((x / 2**k - 1) / (x / 2**k + 1)))


def _log_series(z: Fraction) -> Fraction:
    """2·artanh z from above for 0 ≤ z ≤ 3/5: 2 Σ z^(2i+1)/(2i+1), the terms left out at most the last/(1 − z²)."""
    z, total = rounded_up(z), Fraction(0)
    power = z
    for i in range(_SIDE):
        total += rounded_up(power / (2 * i + 1))
        power = rounded_up(power * z * z)
    return 2 * (total + power / (1 - z * z))


def rounded_up(x: Fraction) -> Fraction:
    """A fraction ≥ x with few digits."""
    return Fraction(-((-x.numerator << _SIDE) // x.denominator), 1 << _SIDE)


def _arctangent_of_inverse(n: int, scale: int) -> int:
    """scale·arctan(1/n), too small or too large by less than one for every term."""
    total, power, i = 0, scale // n, 0
    while power:
        total += (-1) ** i * (power // (2 * i + 1))
        power //= n * n
        i += 1
    return total


# Machin: π = 16 arctan 1/5 − 4 arctan 1/239; 64 bits more swallow the rounding of some two hundred terms.
PI = (16 * _arctangent_of_inverse(5, ONE << 64) - 4 * _arctangent_of_inverse(239, ONE << 64)) >> 64  # error 1
PI_ABOVE = Fraction(PI + 1, ONE)


def circle(places: Sequence[Fraction]) -> tuple[Table, Table]:
    """sin πx and cos πx for −1 ≤ x ≤ 1: one row each."""
    found = [_turn(x.numerator, x.denominator) for x in places]
    return Table([[sine for sine, _ in found]], 1024), Table([[cosine for _, cosine in found]], 1024)


@lru_cache(maxsize=1 << 15)
def _turn(numerator: int, denominator: int) -> tuple[int, int]:
    """sin πx and cos πx in units, each off by less than 1024 of them.

    Taylor's series of an angle below 3.2: the error e_k of term k obeys e_k ≤ 10.3 e_{k−1}/((2k)(2k ± 1)) + 2, hence
    e_k < 8, and there are fewer than a hundred terms; what is left out alternates, falls, and is below a few units.
    """
    angle = PI * numerator // denominator
    square, k = angle * angle >> BITS, 0
    sine = cosine = 0
    odd, even = angle, ONE
    while odd or even:
        sine, cosine = sine + odd, cosine + even
        k += 2
        even = -(even * square >> BITS) // ((k - 1) * k)
        odd = -(odd * square >> BITS) // (k * (k + 1))
        even, odd = (0 if abs(term) < 2 else term for term in (even, odd))
    return sine, cosine


def cos_below(x: Fraction) -> Fraction:
    """A fraction ≤ cos πx, for −1 ≤ x ≤ 1."""
    _, cosine = circle([x])
    return Fraction(cosine.rows[0][0] - cosine.error, ONE)


def _units(x: Fraction | float) -> int:
    exact = Fraction(x)
    return (exact.numerator << BITS) // exact.denominator


def frequency(kind: str, n: int) -> int:
    """The degree of function n, counted from 0: algebraic, or trigonometric for Fourier."""
    return (n + 1) // 2 if kind == "Fourier" else n


def peaks(kind: str, size: int) -> Table:
    """sup|φ_n| for every function, one row: √(n + ½), or √(1/π) and √(2/π), or √½ and 1."""
    if kind == "Chebyshev":
        return Table([[math.isqrt((min(n, 1) + 1 << 3 * BITS) // PI) for n in range(size)]], 4)
    halves = [1 if n == 0 else 2 for n in range(size)] if kind == "Fourier" else range(1, 2 * size, 2)
    return Table([[math.isqrt(half << 2 * BITS - 1) for half in halves]], 1)


def size_of_terms(kind: str, coefficients: Iterable[Fraction]) -> Fraction:
    """k Σ|c_n|sup|φ_n| over k functions: in units of the last place, what adding them up can cost."""
    sizes = [abs(c) for c in coefficients]
    return len(sizes) * dot(sizes, peaks(kind, len(sizes)).above()[0])


def values(kind: str, size: int, places: Sequence[Fraction]) -> Table:
    """φ_n at places v in [0, 1] of the interval ``[points][size]``: at t = −cos πv, or t = 2v − 1 for Fourier."""
    if kind != "Fourier":
        return _polynomials(kind, size, -circle(places)[1])
    sine, cosine = s, c = circle([2 * v - 1 for v in places])
    rows = [Table([[ONE] * len(places)])]
    while len(rows) < size:
        rows += [s, c]
        s, c = s.times(cosine) + c.times(sine), c.times(cosine) - s.times(sine)
    return stacked(rows[:size]).T.times(peaks(kind, size))


def at(kind: str, size: int, ts: Sequence[Fraction]) -> Table:
    """φ_n at points t of [−1, 1] ``[points][size]``."""
    if kind == "Fourier":
        return values(kind, size, [(t + 1) / 2 for t in ts])
    t = Table.of([ts])
    return _polynomials(kind, size, t)


def _polynomials(kind: str, size: int, t: Table) -> Table:
    """Those of a family at points t, one row ``[points][size]``."""
    rows = [Table([[ONE] * len(t.rows[0])]), t]
    for n in range(2, size):
        less = Fraction(0 if kind == "Chebyshev" else 1, n)
        rows.append(t.times(rows[-1]).scaled(2 - less) - rows[-2].scaled(1 - less))
    return stacked(rows[:size]).T.times(peaks(kind, size))


def spread_places(count: int) -> list[Fraction]:
    """v = (j + ½)/N: Chebyshev points, or evenly spaced ones on the circle."""
    return [Fraction(2 * j + 1, 2 * count) for j in range(count)]


def inflation_above(kind: str, degree: int, count: int) -> Fraction:
    """sup|p| ≤ this·max_j|p(v_j)| at the spread places: 1/cos(πd/2N), 1/cos(πd/N) on the circle (Ehlich and Zeller)."""
    return 1 / cos_below(Fraction(degree, count if kind == "Fourier" else 2 * count))


def good_count(kind: str, degree: int, events: float, most: int) -> int:
    """The N ≤ most with inflation·√ln(N·events) least. Any N is sound that is not chosen by looking at the data."""

    def width(n: int) -> float:
        angle = math.pi * degree / (n if kind == "Fourier" else 2 * n)
        return math.sqrt(math.log(n * events)) / math.cos(angle) if angle < 1.57 else math.inf

    return min(range(degree + 1, most + 1), key=width)


def minimum_below(kind: str, coefficients: Table) -> Fraction:
    """A fraction ≤ min Σ c_n φ_n over the interval, by cutting it in halves where the minimum may lie.

    Between two places w apart f is at least the lower of its two values less w² sup|f''|/8, and f is a trigonometric
    polynomial of the angle, so that Bernstein's inequality bounds f''.
    """
    (row,), size = coefficients.absolute().above(), len(coefficients.rows[0])
    sizes = [c * peak for c, peak in zip(row, peaks(kind, size).above()[0], strict=True)]
    turn = PI_ABOVE * (2 if kind == "Fourier" else 1)
    bend = sum((x * (turn * frequency(kind, n)) ** 2 for n, x in enumerate(sizes)), Fraction(0))
    tolerance = sum(sizes[1:], Fraction(1, 2**_SIDE)) / 2**40  # the first function is constant
    width = Fraction(1, 8 * size)
    known: dict[Fraction, Fraction] = {}

    def look(places: list[Fraction]) -> Fraction:
        found = coefficients @ values(kind, size, places).T
        known.update((v, Fraction(m - found.error, ONE)) for v, m in zip(places, found.rows[0], strict=True))
        return min(known[v] for v in places)

    starts = [j * width for j in range(8 * size)]
    best = look([*starts, Fraction(1)])
    for _ in range(48):
        loss = bend * width**2 / 8
        starts = [v for v in starts if min(known[v], known[v + width]) - loss < best - tolerance]
        if not starts:
            return best - tolerance
        if len(starts) > 20_000:
            break
        width /= 2
        middles = [v + width for v in starts]
        best = min(best, look(middles))
        starts += middles
    return min(best - tolerance, min(min(known[v], known[v + width]) for v in starts) - bend * width**2 / 8)


def column_range(kind: str, n: int) -> tuple[Fraction, Fraction]:
    """Bounds on φ_n: ∓ its peak, but for Legendre polynomials of even degree, whose minimum is higher."""
    high = peaks(kind, n + 1).above()[0][n]
    even = kind == "Legendre" and n % 2 == 0
    return minimum_below(kind, Table.of(identity(n + 1)[n:])) if even else -high, high


def range_around(kind: str, coefficients: list[Fraction]) -> tuple[Fraction, Fraction]:
    """Bounds on Σ c_n φ_n over the interval, from below and from above."""
    table = Table.of([coefficients])
    return minimum_below(kind, table), -minimum_below(kind, -table)


class Grid:
    """sup over all states of products of two expansions, or of sums of such, from points enough for twice the degree.

    That absolute values, and the larger of two signs, may stand in the products is seen at the state where the supremum
    is: there they have certain signs, with these the product is an expansion, and at the points it is no larger.
    """

    def __init__(self, kind: str, size: int) -> None:
        count = 20 * size
        self.across = values(kind, size, spread_places(count)).T
        self._factor = inflation_above(kind, 2 * frequency(kind, size - 1), count)

    def level(self, x: Fraction) -> Table:
        """The constant x, one row."""
        return Table.of([[x] * len(self.across.rows[0])])

    def swing(self, weights: Table) -> Table:
        """|weights·φ|, row by row."""
        return (weights @ self.across).absolute()

    def reach(self, low: Fraction, high: Fraction, fit: Table) -> Table:
        """max(high − fit·φ, fit·φ − low), one row: as far as something between low and high can be from the fit."""
        at = fit @ self.across
        return (self.level(high) - at).larger(at - self.level(low))

    def sup(self, products: Table) -> list[Fraction]:
        """The supremum of every row, from above."""
        return [self._factor * top for top in products.tops()]


def radii_above(observed: Table, bounds: list[Fraction], log_term: Fraction) -> list[Fraction]:
    """√(2vL) + bL/3 with √v = b√(L/2) + √(ΣZ² + b²L/2): more than |Σ(Z − EZ)|, |Z| ≤ b, but for probability 3e^−L.

    Bennett and Bernstein need only ΣE Z² ≤ v and Z ≤ b; and ΣE Z² ≤ v for the v above because the lower tail of a sum
    of non-negative W = Z² has no range term: ΣW > ΣE W − √(2LΣE W²) but for probability e^−L, and E W² ≤ b²E W.
    """
    radii, root = [], root_above(2 * log_term)
    for squares, bound in zip(observed.above()[0], bounds, strict=True):
        half = bound**2 * log_term / 2
        deviation = root_above(half) + root_above(max(squares, Fraction(0)) + half)
        radii.append(rounded_up(deviation * root + bound * log_term / 3))
    return radii
