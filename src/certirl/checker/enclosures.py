"""Matrices and cells in exact arithmetic: inverses, largest eigenvalues and interpolation weights with proved bounds.

Built on `certirl.rational` alone, for `certirl.check_policies`. Functions called above return what is no smaller than
the truth. Where only that matters and much has to be multiplied, numbers are whole multiples of 2^−SHORT, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from operator import add, mul

from certirl.checker.rational import (
    BITS,
    ONE,
    PI,
    PI_ABOVE,
    Table,
    at,
    circle,
    identity,
    inflation_above,
    peaks,
    root_above,
    rounded_up,
    spread_places,
    values,
)

SHORT = 64
_ROUNDS = 26  # of squaring; the root of a trace is then too large by a factor m^(2^−26) at most
_WORKING = 112  # bits of the kernel between cells and points
_CLOSE = 40  # an angle α is taken for 0 if 1 − cos α < 2^−40

_SQUARE = 1 << 2 * _WORKING

Short = list[int]


def inverse(matrix: Table) -> Table | None:
    """The inverse of a square matrix, enclosed; None if it cannot be told from a singular one.

    Gauss and Jordan with rounding give some X. With R = I − AX and ‖R‖ ≤ ½ in the row-sum norm A⁻¹ − X = XR(I − R)⁻¹,
    every entry of which is at most the norm of X times twice the largest entry of R.
    """
    size = len(matrix.rows)
    rows = [[*row, *(ONE * (i == j) for j in range(size))] for i, row in enumerate(matrix.rows)]
    for k in range(size):
        best = max(range(k, size), key=lambda i: abs(rows[i][k]))
        rows[k], rows[best] = rows[best], rows[k]
        if not (pivot := rows[k][k]):
            return None
        chosen = rows[k] = [(x << BITS) // pivot for x in rows[k]]
        for i in range(size):
            if i != k and (factor := rows[i][k]):
                rows[i] = [x - (factor * y >> BITS) for x, y in zip(rows[i], chosen, strict=True)]
    found = Table([row[size:] for row in rows])
    worst = (Table.of(identity(size)) - matrix @ found).peak()
    if 2 * size * worst >= ONE:
        return None
    norm = max(sum(map(abs, row)) for row in found.rows)
    return Table(found.rows, (2 * norm * worst >> BITS) + 1)


def top_eigenvalue_above(matrix: Table) -> Fraction:
    """A fraction ≥ the largest eigenvalue of a symmetric matrix without negative ones: (tr M^(2^p))^(2^−p)."""
    shifts = []
    for _ in range(_ROUNDS):
        shifts.append(_trace(matrix).bit_length() - BITS)
        # Powers of two keep the trace near 1, so that no digits are lost.
        scaled = matrix.scaled(Fraction(2) ** -shifts[-1])
        matrix = _squared(scaled)
    bound = Fraction(_trace(matrix), ONE)
    for shift in reversed(shifts):
        bound = root_above(bound) * Fraction(2) ** shift
    return bound


def _squared(matrix: Table) -> Table:
    """M² of a symmetric matrix, half of it multiplied out."""
    rows, size = matrix.rows, len(matrix.rows)
    half = [[sum(map(mul, rows[i], rows[j])) >> BITS for j in range(i + 1)] for i in range(size)]
    full = [[half[max(i, j)][min(i, j)] for j in range(size)] for i in range(size)]
    return Table(full, (2 * matrix.peak() * matrix.error * size >> BITS) + 2)


def _trace(matrix: Table) -> int:
    return max(1, sum(row[i] + matrix.error for i, row in enumerate(matrix.rows)))


def roots_above(squares: Table) -> Table:
    """√x_ij from above, exact numbers; negative x, which only rounding makes, count as zero."""
    return Table([[math.isqrt(max(x + squares.error, 0) << BITS) + 1 for x in row] for row in squares.rows])


def lengths_above(rows: Table) -> list[Fraction]:
    """The Euclidean length of every row, from above."""
    slack = rows.error
    return [Fraction(math.isqrt(sum((abs(x) + slack) ** 2 for x in row)) + 1, ONE) for row in rows.rows]


def vector_radius_above(squares: Fraction, bound: Fraction, log_term: Fraction) -> Fraction:
    """√(2vL) + 2bL/3 with v ≥ ΣE‖Z‖²: more than ‖Σ(Z − EZ)‖, ‖Z‖ ≤ b, but for probability 3e^−L (Pinelis)."""
    return rounded_up(_deviation(squares, bound, log_term) * root_above(2 * log_term) + 2 * bound * log_term / 3)


def norm_radius_above(trace: Fraction, largest: Fraction, bound: Fraction, log_term: Fraction) -> Fraction:
    """m + t with m² ≥ ΣE‖Z‖² and t² = L(2v + 6bt), v = λ + 4bm, λ that of ΣE ZZᵀ: the same (Klein and Rio)."""
    mean = _deviation(trace, bound, log_term)
    variance = _deviation(largest, bound, log_term) ** 2 + 4 * bound * mean
    step = 6 * bound * log_term
    return rounded_up(mean + (step + root_above(step**2 + 8 * log_term * variance)) / 2)


def _deviation(squares: Fraction, bound: Fraction, log_term: Fraction) -> Fraction:
    """√(ΣE Z²) from above, from the observed ΣZ², but for probability e^−L."""
    half = bound**2 * log_term / 2
    return rounded_up(root_above(half) + root_above(max(squares, Fraction(0)) + half))


def shortened(table: Table) -> list[Short]:
    """Entries that are not negative in units of 2^−SHORT, rounded up."""
    return [[(max(x + table.error, 0) >> BITS - SHORT) + 1 for x in row] for row in table.rows]


def short_above(x: Fraction) -> int:
    """One number in these units, rounded up."""
    return -((-x.numerator << SHORT) // x.denominator)


def terms(one: Sequence[Short], other: Sequence[Short], *, together: bool) -> Short:
    """Σ_c x_cq y_cq, or the largest of them if they do not come together, for every q; in units of 2^−2·SHORT."""
    products = (map(mul, x, y) for x, y in zip(one, other, strict=True))
    return list(reduce(lambda a, b: map(add if together else max, a, b), products))


class Nodes:
    """As many points as products of two functions need: sums over data of such products are sums over these points.

    Attributes:
        phi: the functions at the points ``[k][M]``.
    """

    def __init__(self, kind: str, size: int, degree: int) -> None:
        count = (4 if kind == "Fourier" else 2) * degree + 1
        places = spread_places(count)
        self.phi = values(kind, size, places).T
        wide = inverse(values(kind, count, places))
        assert wide is not None
        self._inverse = wide

    def weights(self, sums: Table) -> Table:
        """ω with Σ_r g(s_r)f_r = Σ_p g_p ω_p for every product g, from sums Σ χ f, row by row."""
        return sums @ self._inverse


def _turned(cosine: Table, sine: Table, times: int) -> tuple[Table, Table]:
    """cos nθ and sin nθ from cos θ and sin θ, by squaring: errors grow with the number of digits of n only."""
    own = Table([[ONE] * len(cosine.rows[0])]), Table([[0] * len(cosine.rows[0])])
    for digit in f"{times:b}" if times else "":
        c, s = own
        c, s = c.times(c) - s.times(s), s.times(c).scaled(Fraction(2))
        own = (c.times(cosine) - s.times(sine), s.times(cosine) + c.times(sine)) if digit == "1" else (c, s)
    return own


def middles(cells: int) -> list[Fraction]:
    """t of the middles of equal cells of [−1, 1]."""
    return [Fraction(2 * c + 1 - cells, cells) for c in range(cells)]


def at_middles(kind: str, size: int, cells: int) -> Table:
    """φ_n at the middles ``[size][cells]``."""
    return at(kind, size, middles(cells)).T


def slope_above(kind: str, degree: int, coefficients: Table) -> Fraction:
    """sup|f'| over [−1, 1], f = Σ c_n φ_n, from above: as much as 20 points for every function show of it."""
    size = len(coefficients.rows[0])
    # A cosine is the slope of a sine: on the circle one more function may be needed.
    phi = values(kind, size + 1, spread_places(20 * size))
    found = (coefficients @ _derivatives(kind, size)) @ phi.T
    return inflation_above(kind, degree, 20 * size) * found.absolute().tops()[0]


def _derivatives(kind: str, size: int) -> Table:
    """φ_n' in the functions φ_j ``[n][j]``: P_n' = Σ (2j + 1)P_j, T_n' = 2n Σ T_j, T_0 halved, over odd n − j > 0."""
    if kind == "Legendre":
        top = peaks(kind, size + 1)
        both = (top.T @ top).scaled(Fraction(2))
        rows = [[x if j < n and (n - j) % 2 else 0 for j, x in enumerate(both.rows[n])] for n in range(size)]
        return Table(rows, both.error)
    rows = [[0] * (size + 1) for _ in range(size)]
    for n in range(1, size):
        if kind == "Chebyshev":
            rows[n] = [2 * n * ONE if j < n and (n - j) % 2 else 0 for j in range(size + 1)]
            rows[n][0] = n * math.isqrt(2 << 2 * BITS) * (n % 2)
        else:
            rows[n][n + 1 if n % 2 else n - 1] = (n + 1) // 2 * PI * (1 if n % 2 else -1)
    return Table(rows, size)


def steepness_above(kind: str, degree: int, cells: int) -> list[Fraction]:
    """sup|f'| on every cell for any expansion with |f| ≤ 1 on [−1, 1]: the inequalities of Bernstein and Markov."""
    if kind == "Fourier":
        return [PI_ABOVE * degree] * cells
    markov, ends = Fraction(degree**2), (abs(t) + Fraction(1, cells) for t in middles(cells))
    return [min(markov, degree * root_above(1 / (1 - t * t))) if t < 1 else markov for t in ends]


def blending_above(kind: str, degree: int, count: int, cells: int) -> list[Short]:
    """|w_p|, row by row: f(s) = Σ_p w_p f(s_p) for expansions f, at the middle s of a cell, from the spread points s_p.

    De la Vallée Poussin's kernel of the angle α between the two is (cos dα − cos eα)/((e − d)N(1 − cos α)) ≤ (d + e)/N;
    on an interval it is the mean of two, for the sum and the difference of angles. Cosines are worked out with
    ``_WORKING`` bits and errors below 64 of the last; what these do to the kernel is the slack.
    """
    around = kind == "Fourier"
    end = (count if around else 2 * count) - degree
    half = (cells + 1) // 2
    angles = _angles_of_middles(kind, cells, half), _angles_of_points(kind, count)
    own, others = ([_working(*_turned(*angle, times)) for times in (1, degree, end)] for angle in angles)
    scale, most = (end - degree) * count * (1 if around else 2), Fraction(degree + end, count * (1 if around else 2))
    top, slack = short_above(most), 4 + (64 * (1 + end * end) >> _WORKING - _CLOSE - SHORT)
    points = list(zip(*(row for turned in others for row in turned), strict=True))
    rows = [
        [_kernel(cell, point, around, scale, top) + slack for point in points]
        for cell in zip(*(row for turned in own for row in turned), strict=True)
    ]
    # Cells and points lie the same way from either end.
    return rows + [row[::-1] for row in rows[cells - half - 1 :: -1]] if cells > 1 else rows


def _kernel(cell: Sequence[int], point: Sequence[int], around: bool, scale: int, most: int) -> int:
    """|w| in short units, up to the slack that `blending_above` adds."""
    (c, s, cd, sd, ce, se), (c2, s2, cd2, sd2, ce2, se2) = cell, point
    straight, crossed = c * c2, s * s2
    even, odd = cd * cd2 - ce * ce2, sd * sd2 - se * se2
    total = extra = 0
    for sign in (1,) if around else (1, -1):
        below = _SQUARE - straight - sign * crossed
        if below >> 2 * _WORKING - _CLOSE > 0:
            total += (even + sign * odd << SHORT) // (below * scale)
        else:
            extra += most
    return abs(total) + extra


def _working(*tables: Table) -> list[list[int]]:
    """Rows with fewer bits."""
    assert max(table.error for table in tables) < 1 << BITS - _WORKING
    return [[x >> BITS - _WORKING for x in table.rows[0]] for table in tables]


def _angles_of_middles(kind: str, cells: int, first: int) -> tuple[Table, Table]:
    """cos θ and sin θ with t = cos θ, or θ = πt on the circle, of the first cells."""
    ts = middles(cells)[:first]
    if kind == "Fourier":
        sine, cosine = circle(ts)
        return cosine, sine
    squares = ((1 - t * t) for t in ts)
    return Table.of([ts]), Table([[math.isqrt((x.numerator << 2 * BITS) // x.denominator) for x in squares]], 1)


def _angles_of_points(kind: str, count: int) -> tuple[Table, Table]:
    """The same for the spread points."""
    sine, cosine = circle([2 * v - 1 if kind == "Fourier" else v for v in spread_places(count)])
    return (cosine, sine) if kind == "Fourier" else (-cosine, sine)
