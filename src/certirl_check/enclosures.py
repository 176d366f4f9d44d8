"""Numbers with proved error bounds: floating-point midpoints and radii, always rounded to the safe side.

An `Enclosure` is an array of midpoints m and radii r that stands for numbers x with |x − m| ≤ r. Every operation
returns an enclosure of its exact result. The error of one operation is at most U = 2^−53 of its result, and that of a
sum of n products at most n·U/(1 − n·U) of the sum of their sizes, in whichever order they are added (Higham, Accuracy
and Stability of Numerical Algorithms, section 3.1); radii are computed in floating point as well, and enlarged for
that. Inverses and eigenvalues are approximated first, and their error is then proved by residuals. Sine, cosine and
logarithm are sums of their series. Nothing of the rest of the library is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

U = 2.0**-53
_MORE = 1 + 2.0**-48  # radii are computed in fewer than 30 roundings
_TINY = 2.0**-1000  # more than all underflow


class Enclosure:
    """Numbers x with |x − middle| ≤ radius, an array of them.

    Attributes:
        middle: the midpoints.
        radius: the radii, of the same shape.
    """

    __slots__ = ("middle", "radius")
    __array_ufunc__ = None  # an array on the left leaves the operation to this class

    def __init__(self, middle: Any, radius: Any = 0.0) -> None:
        self.middle = np.asarray(middle, dtype=np.float64)
        radii = np.asarray(radius, dtype=np.float64)
        self.radius = radii if radii.shape == self.middle.shape else radii + np.zeros(self.middle.shape)

    @property
    def above(self) -> Floats:
        """Numbers that are no smaller."""
        return np.nextafter(self.middle + self.radius, np.inf)

    @property
    def below(self) -> Floats:
        """Numbers that are no larger."""
        return np.nextafter(self.middle - self.radius, -np.inf)

    @property
    def size(self) -> Floats:
        """Numbers that are no smaller than |x|."""
        return np.nextafter(np.abs(self.middle) + self.radius, np.inf)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.middle.shape

    @property
    def T(self) -> Enclosure:
        """Transposed, the last two axes."""
        return self.swapped(-1, -2)

    def __len__(self) -> int:
        return len(self.middle)

    def __getitem__(self, place: Any) -> Enclosure:
        return Enclosure(self.middle[place], self.radius[place])

    def reshape(self, *shape: int) -> Enclosure:
        """The same numbers in another shape."""
        return Enclosure(self.middle.reshape(*shape), self.radius.reshape(*shape))

    def swapped(self, i: int, j: int) -> Enclosure:
        """Two axes exchanged."""
        return Enclosure(np.swapaxes(self.middle, i, j), np.swapaxes(self.radius, i, j))

    def __neg__(self) -> Enclosure:
        return Enclosure(-self.middle, self.radius)

    def __add__(self, other: Any) -> Enclosure:
        y = enclosed(other)
        middle = self.middle + y.middle
        return Enclosure(middle, (self.radius + y.radius + U * np.abs(middle)) * _MORE + _TINY)

    def __sub__(self, other: Any) -> Enclosure:
        return self + (-enclosed(other))

    def __rsub__(self, other: Any) -> Enclosure:
        return -self + other

    def __mul__(self, other: Any) -> Enclosure:
        if isinstance(other, Enclosure):
            middle = self.middle * other.middle
            error = np.abs(self.middle) * other.radius + self.radius * (np.abs(other.middle) + other.radius)
        else:
            middle, error = self.middle * other, self.radius * np.abs(other)
        return Enclosure(middle, (error + U * np.abs(middle)) * _MORE + _TINY)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Enclosure:
        y = enclosed(other)
        least = (np.abs(y.middle) - y.radius) * (1 - 4 * U)
        if not (least > 0).all():
            raise ZeroDivisionError("a divisor cannot be distinguished from zero")
        middle = self.middle / y.middle
        error = (self.radius + np.abs(middle) * y.radius) / least
        return Enclosure(middle, (error + 2 * U * np.abs(middle)) * _MORE + _TINY)

    def __rtruediv__(self, other: Any) -> Enclosure:
        return enclosed(other) / self

    def __matmul__(self, other: Any) -> Enclosure:
        y = enclosed(other)
        count = self.middle.shape[-1]
        share, size = 1.01 * (count + 2) * U, np.abs(y.middle)
        radius = np.abs(self.middle) @ (y.radius + share * size)
        if self.radius.any():
            radius = radius + self.radius @ (size + y.radius)
        return Enclosure(self.middle @ y.middle, radius * (1 + 4 * share) * _MORE + count * _TINY)

    def __rmatmul__(self, other: Any) -> Enclosure:
        return enclosed(other) @ self

    def sum(self, axis: int = -1) -> Enclosure:
        """Σ over one axis."""
        share = 1.01 * (self.middle.shape[axis] + 2) * U
        radius = self.radius.sum(axis=axis) + share * np.abs(self.middle).sum(axis=axis)
        return Enclosure(self.middle.sum(axis=axis), radius * (1 + 4 * share) * _MORE + _TINY)

    def absolute(self) -> Enclosure:
        """|x|."""
        return Enclosure(np.abs(self.middle), self.radius)

    def positive(self) -> Enclosure:
        """max(x, 0)."""
        return Enclosure(np.maximum(self.middle, 0.0), self.radius)

    def root(self) -> Enclosure:
        """√x; of numbers below zero, which only rounding makes, 0."""
        high = np.sqrt(np.maximum(self.above, 0.0)) * (1 + 4 * U)
        low = np.sqrt(np.maximum(self.below, 0.0)) * (1 - 4 * U)
        return between(low, high)

    def length(self, axis: int = -1) -> Enclosure:
        """The Euclidean length along an axis."""
        return (self * self).sum(axis).root()


def enclosed(x: Any) -> Enclosure:
    """Exact numbers, or an enclosure as it is."""
    return x if isinstance(x, Enclosure) else Enclosure(x)


@cache
def reciprocal(n: int) -> Enclosure:
    """1/n."""
    return 1.0 / enclosed(float(n))


def between(low: Floats, high: Floats) -> Enclosure:
    """Numbers between two others."""
    middle = low + (high - low) / 2
    return Enclosure(middle, np.maximum(high - middle, middle - low) * _MORE + _TINY)


def stacked(arrays: Sequence[Enclosure]) -> Enclosure:
    """Several arrays of one shape as one."""
    return Enclosure(np.stack([array.middle for array in arrays]), np.stack([array.radius for array in arrays]))


def joined(arrays: Sequence[Any]) -> Any:
    """Arrays, or enclosures, one after the other along their first axis."""
    if not isinstance(arrays[0], Enclosure):
        return np.concatenate(arrays)
    return Enclosure(*(np.concatenate([getattr(x, name) for x in arrays]) for name in ("middle", "radius")))


def placed(x: Enclosure, shape: tuple[int, ...], place: Any) -> Enclosure:
    """Zeros, but for some numbers at a place."""
    middle, radius = np.zeros(shape), np.zeros(shape)
    middle[place], radius[place] = x.middle, x.radius
    return Enclosure(middle, radius)


def smaller(x: Enclosure, y: Enclosure) -> Enclosure:
    """min(x, y)."""
    return between(np.minimum(x.below, y.below), np.minimum(x.above, y.above))


# Elementary functions.

PI = Enclosure(np.pi, 2.0**-52)
_LN2 = Enclosure(0.6931471805599453, 2.0**-53)
_TERMS = 9  # of the series for angles up to π/8: the next is below 1e-20


def turn(t: Enclosure) -> tuple[Enclosure, Enclosure]:
    """sin πt and cos πt for |t| ≤ 1: Taylor's series of an eighth of the angle, which is doubled three times."""
    angle = PI * t * 0.125
    square = angle * angle
    both, first = np.zeros((2, *t.shape)), np.array([3.0, 2.0]).reshape(2, *[1] * len(t.shape))
    for n in reversed(range(_TERMS)):
        both = 1.0 - both * square.middle / ((2 * n + first) * (2 * n + first - 1.0))
    # A term multiplies earlier errors by less than 0.08 and adds less than 1.2 U; slopes by the square are below 1/2.
    radius = 2 * U + square.radius + 1e-19  # the last for what the series leave out
    sine, cosine = Enclosure(both[0], radius) * angle, Enclosure(both[1], radius)
    for _ in range(3):
        sine, cosine = 2.0 * sine * cosine, 1.0 - 2.0 * sine * sine
    return sine, cosine


def logarithm(x: Any) -> Enclosure:
    """log x for positive numbers: k log 2 + 2 artanh((m − 1)/(m + 1)) with x = 2^k m, m near 1."""
    y = enclosed(x)
    if not (y.below > 0).all():
        raise ZeroDivisionError("a logarithm of a number that cannot be distinguished from zero")
    m, k = np.frexp(y.middle)
    m, k = np.where(m < 0.7, 2 * m, m), np.where(m < 0.7, k - 1, k)
    z = (Enclosure(m) - 1.0) / (Enclosure(m) + 1.0)
    square, total = z * z, Enclosure(np.zeros(y.shape))
    for n in reversed(range(14)):
        total = total * square + reciprocal(2 * n + 1)
    exact = Enclosure(k.astype(float)) * _LN2 + 2.0 * z * total
    # The terms left out are below 0.18^29; what is near the middle has a logarithm that is no farther than this.
    return exact + Enclosure(np.zeros(y.shape), (1e-20 + y.radius / y.below) * _MORE)


# Matrices.


def inverse(matrix: Enclosure) -> Enclosure:
    """The inverse of a square matrix; ZeroDivisionError if it cannot be distinguished from a singular one.

    With an approximation X and R = I − AX, r = ‖R‖ < 1 in the row-sum norm, A⁻¹ − X = XR + XR·R(I − R)⁻¹: no entry of
    row i exceeds that of |X||R| by more than the sum of its row of |X||R| times r/(1 − r).
    """
    count = len(matrix)
    try:
        guess = np.linalg.inv(matrix.middle)
    except np.linalg.LinAlgError:
        raise ZeroDivisionError("a matrix has no inverse") from None
    if not np.isfinite(guess).all():
        raise ZeroDivisionError("a matrix has no inverse")
    residual = (np.eye(count) - matrix @ guess).size
    rest = float(residual.sum(axis=1).max(initial=0.0)) * (1 + count * 4 * U)
    if not rest < 0.5:
        raise ZeroDivisionError("a matrix has no inverse that could be proved")
    first = np.abs(guess) @ residual * (1 + count * 4 * U)
    more = first.sum(axis=1, keepdims=True) * (1 + count * 4 * U) * rest / (1 - rest)
    return Enclosure(guess, (first + more) * _MORE + (count + 1) * _TINY)


def top_eigenvalue(matrix: Enclosure) -> float:
    """A number that is no smaller than the largest eigenvalue of a symmetric matrix.

    With s a little above the approximate eigenvalue, sI − M = LLᵀ + E for some L, so that λ ≤ s + ‖E‖.
    """
    if not len(matrix):
        return 0.0
    if not np.isfinite(matrix.middle).all():
        return float("inf")
    middle = (matrix.middle + matrix.middle.T) / 2
    values = np.linalg.eigvalsh(middle)
    bound = float(values[-1] + 1e-10 * np.abs(values).max() + _TINY)
    left = bound * np.eye(len(middle)) - middle
    try:
        factor = Enclosure(np.linalg.cholesky(left))
    except np.linalg.LinAlgError:
        return float(matrix.reshape(-1).length().above)
    rest = (Enclosure(np.eye(len(middle))) * bound - matrix - factor @ factor.T).reshape(-1)
    return float((rest.length() + bound).above)


def norm(matrix: Enclosure) -> float:
    """A number that is no smaller than the spectral norm."""
    return float(enclosed(top_eigenvalue(matrix.T @ matrix)).root().above)


def least_eigenvalue(matrix: Enclosure) -> float:
    """A number that is no larger than the least eigenvalue of a symmetric matrix."""
    return -top_eigenvalue(-matrix)


def whitening(matrix: Floats) -> Floats:
    """The inverse root of a symmetric matrix, its least eigenvalues raised, in plain floating point."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-9 * max(float(values[-1]), 1e-300))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
