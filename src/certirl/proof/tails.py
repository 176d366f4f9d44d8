"""Where the tail τ comes from: bounds on derivatives, or the law of additive noise and the slope of the drift.

τ ≥ sup over actions and functions |f| ≤ 1 of the distance, in the sup norm, from P_a f to the span of the columns: how
far the dynamics reach beyond them. No data can show that; it must be declared.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product, takewhile
from typing import Any, NamedTuple

import numpy as np

from certirl.functions.bases import Basis, fewest
from certirl.ground.domain import Array
from certirl.ground.doors import as_count, as_flag, as_number, as_reals, by_door, call, setting, shown, takes
from certirl.ground.records import Record, internal

_EXPLICIT = 400  # coefficients that are summed up one by one; the rest is a geometric series
_LEAST = 1e-8  # the least ratio of drift to noise that is computed with; smaller ones count as this
_LARGEST = 700.0  # the logarithm of numbers that are computed with
_NARROWEST, _STEEPEST = 1e-100, 1e100  # noise, and drift in units of it
_BEYOND = 40  # degrees beyond the columns' highest whose coefficients are bounded each by the best weights
_WEIGHTS = np.linspace(-4, 4, 17)  # logarithms
_FARTHEST = 30.0  # into the complex plane
_ANALYTIC, _FARTHEST_TRUNCATED = 0.45, 2.7  # of v: from where to where |χ| of truncated noise is evaluated
_SHARES = (1.0, 0.95, 0.91, 0.86, 0.8, 0.73, 0.6, 0.4, 0.0)  # of the mesh of v, for the ends v₁ that are tried
_STEP_V, _STEP_MEAN, _OUTSIDE, _INSIDE = 0.004, 0.01, 4.0, 6.0  # the meshes of v and of the mean
_REACHES = np.geomspace(1e-3, 10, 60)  # of rate × distance into the complex plane, for drifts that are not affine


@internal
class LeastNoise(NamedTuple):
    """Noise with a density that is symmetric and falls on both sides of 0."""

    scale: float  # a unit of length, about a standard deviation
    beyond: Callable[[Array], Array]  # P(ξ > x) for x ≥ 0, of an array
    words: str  # the law

    def within_interval(self, middle: Array, length: float) -> Array:
        """The probabilities of intervals of a length with these middles, from 0 on; at 0 it is largest."""
        before, after = middle - length / 2, middle + length / 2
        below = np.where(before < 0, 1 - self.beyond(np.maximum(-before, 0.0)), self.beyond(np.maximum(before, 0.0)))
        return np.asarray(below - self.beyond(after))


class Tail(Record, ABC):
    """A declared property of the dynamics that bounds τ for any columns.

    Example:
        >>> noise = certirl.dynamics.GaussianNoise(0.5, slope=0.9)
        >>> [round(noise.number(certirl.Legendre(size)), 4) for size in (5, 7, 9)]
        [0.0817, 0.0083, 0.0007]
    """

    @abstractmethod
    def number(self, columns: Basis, coordinates: Sequence[int] | None = None) -> float:
        """τ for these columns; infinite where the declaration is not for such columns.

        Args:
            columns: functions of the state, or of one of its components.
            coordinates: of the component; None for all.

        Example:
            >>> round(certirl.dynamics.Smooth(order=2, bound=0.1).number(certirl.Legendre(7)), 4)
            0.0059
        """

    @abstractmethod
    def change(self, differences: Array) -> float:
        """A bound on |P_a f(s) − P_a f(t)|, |f| ≤ 1; 2 says nothing.

        Args:
            differences: bounds on |s − t|, one for each coordinate.

        Example:
            >>> round(certirl.dynamics.GaussianNoise(std=1.5, slope=0.9).change([1.0]), 2)
            0.47
        """

    @internal
    def least_noise(self, dimension: int, coordinates: Sequence[int] | None = None) -> list[LeastNoise]:
        """Noise that each coordinate of the next state has at least; empty if none is declared.

        ``dimension`` is that of the state, or of a component with these ``coordinates``; None for all.
        """
        return []

    @internal
    def remedy(self, columns: Basis, limit: float) -> str:
        """What to change where no number of columns makes τ small enough, in words.

        With the columns τ comes nearest to the limit, which it must be below.
        """
        return f"what is declared must be smoother, or {setting('discount')} smaller"


@dataclass(frozen=True)
class Smooth(Tail):
    """``∫|∂^p_s p_a(s'|s)| ds' ≤ bound`` for every action and state: the order-p derivative in s, in total variation.

    For p = 1 this is a Lipschitz constant of s ↦ P_a(·|s) in total variation (counting ∫|·|, so at most twice the
    probabilist's distance). On a circle the derivatives must be periodic too.

    Attributes:
        order: p, at least 1.
        bound: in units of the state to the power −p.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> bound = certirl.dynamics.Smooth(order=2, bound=0.2)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(13), "tail": bound}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=9_000, rng=1, **asked)
        >>> certificate.tail == bound.number(certirl.Legendre(13, interval=(15, 25)))
        True
    """

    order: int
    bound: float

    def __post_init__(self) -> None:
        order = as_count(self.order, "Smooth(order, bound): order")
        bound = as_number(self.bound, "Smooth(order, bound): bound", least=0)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "bound", bound)

    def number(self, columns: Basis, coordinates: Sequence[int] | None = None) -> float:
        """τ by the theorems of Jackson (polynomials) and Favard (circle); at most 1, by the function 0.

        Example:
            >>> round(certirl.dynamics.Smooth(order=2, bound=0.1).number(certirl.Legendre(7, interval=(15, 25))), 4)
            0.1469
        """
        _check_interval(columns)
        ((low, high),) = columns.domain
        half, p, top = (high - low) / 2, int(self.order), columns.degree
        if self.bound == 0 and (columns.periodic_axes or top >= p - 1):
            return 0.0
        if columns.periodic_axes:
            top = (columns.size - 1) // 2  # a frequency counts only with both its sine and its cosine
            factors = [math.pi / 2, *[half / math.pi / (top + 1)] * p]
        elif top < p - 1:
            return 1.0
        elif top == p - 1:  # interpolation at Chebyshev points
            factors = [2.0, *(half / 2 / n for n in range(1, p + 1))]
        else:
            factors = [math.pi / 2 * half / n for n in range(top + 2 - p, top + 2)]  # (d + 1) d … (d − p + 2)
        logarithm = math.fsum(map(math.log, [self.bound, *factors]))  # the product may be too large, or too small
        return max(math.exp(min(logarithm, 0.0)), sys.float_info.min)  # 0 would say that P_a f is in the span

    def change(self, differences: Array) -> float:
        """A bound on |P_a f(s) − P_a f(t)| for states at this distance; says nothing if the order is not 1.

        Example:
            >>> certirl.dynamics.Smooth(order=1, bound=0.5).change([1.0])
            0.5
        """
        apart = float(np.sum(differences))
        return min(2.0, self.bound * apart) if self.order == 1 or apart == 0 else 2.0

    def __str__(self) -> str:
        return f"∫|∂^{self.order}_s p_a(s'|s)| ds' ≤ {self.bound:g} for every action and state"


@dataclass(frozen=True)
class AdditiveNoise(Tail):
    """``s' = place(m_a(s) + ξ)`` in one coordinate, where the density of ξ has few derivatives.

    ``place`` clips, mirrors or wraps next states into the box and leaves those inside where they are. `LaplaceNoise`
    and `UniformNoise` make such records; for other noise of bounded variation write
    ``AdditiveNoise("noise of variation 3", norms=(3.0,), derivatives=(0.9,))``.

    Attributes:
        law: the law of ξ, in words.
        norms: bounds on ∫|p'|, ∫|p''|, … of the density of ξ, in units of the state to the power −1, −2, …; a jump or a
            kink counts with its height.
        derivatives: bounds on |m_a'|, |m_a''|, … for every action and state.
        noise: the law of ξ for comparisons with data; None if it is known in words alone.

    Example:
        >>> triangular = certirl.dynamics.AdditiveNoise("triangular on ±1", norms=(2.0, 4.0), derivatives=(0.9, 0.0))
        >>> round(triangular.number(certirl.Legendre(41)), 4)
        0.0049
    """

    law: str
    norms: tuple[float, ...]
    derivatives: tuple[float, ...]
    noise: LeastNoise | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("norms", "derivatives"):
            object.__setattr__(self, name, _as_bounds(getattr(self, name), f"{name} of additive noise"))

    def number(self, columns: Basis, coordinates: Sequence[int] | None = None) -> float:
        """τ: the least that `Smooth` gives for the orders that noise and drift have.

        Example:
            >>> noise = certirl.dynamics.UniformNoise(0.5, slope=0.9)
            >>> noise.number(certirl.Legendre(41)) < noise.number(certirl.Legendre(21))
            True
        """
        _check_interval(columns)
        bounds = enumerate(self._bounds(min(len(self.norms), len(self.derivatives))), 1)
        return min((Smooth(order, bound).number(columns) for order, bound in bounds if bound < math.inf), default=1.0)

    def change(self, differences: Array) -> float:
        """A bound on |P_a f(s) − P_a f(t)| for states at this distance.

        Example:
            >>> certirl.dynamics.UniformNoise(1.0, slope=0.5).change([1.0])
            0.5
        """
        return min(2.0, self.norms[0] * self.derivatives[0] * float(np.sum(differences)))

    @internal
    def least_noise(self, dimension: int, coordinates: Sequence[int] | None = None) -> list[LeastNoise]:
        """That of the only coordinate."""
        return [] if self.noise is None else [self.noise]

    def _bounds(self, orders: int) -> list[float]:
        """∫|∂^n_s p(y − m(s))|dy by the formula of Faà di Bruno, as sums over partial Bell polynomials, for n ≤ orders.

        Infinite where double precision does not hold them.
        """
        from scipy.special import binom

        bell = np.zeros((orders + 1, orders + 1))
        bell[0, 0] = 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            for n in range(1, orders + 1):
                for i in range(1, n + 1):
                    if self.derivatives[i - 1]:
                        bell[n, 1:] += binom(n - 1, i - 1) * self.derivatives[i - 1] * bell[n - i, :-1]
            sums = [float(bell[n, 1 : n + 1] @ np.array(self.norms[:n])) for n in range(1, orders + 1)]
        return [bound if math.isfinite(bound) else math.inf for bound in sums]

    def __str__(self) -> str:
        return f"s' = place(m_a(s) + ξ), ξ {self.law} and independent of s, {_drift(self.derivatives)}"


def LaplaceNoise(
    scale: float, *, slope: float | None = None, derivatives: Sequence[float] | None = None
) -> AdditiveNoise:
    """Laplace noise of density exp(−|x|/scale)/(2·scale): two derivatives, so τ falls like 1/columns².

    Args:
        scale: of the density; the standard deviation divided by √2. Larger noise of the same law has a smaller tail.
        slope: a bound on |m_a'| for drifts that are affine.
        derivatives: for other drifts, bounds on |m_a'| and |m_a''|.

    Example:
        >>> round(certirl.dynamics.LaplaceNoise(1.5, slope=0.9).number(certirl.Legendre(41, (15, 25))), 3)
        0.027
    """
    b = as_number(scale, "scale", least=_NARROWEST)
    words = f"Laplace of scale {b:g}"
    noise = LeastNoise(math.sqrt(2) * b, partial(_beyond_laplace, b), words)
    return AdditiveNoise(words, (1 / b, 2 / b**2), _declared(slope, derivatives, 2), noise)


def UniformNoise(
    half_width: float, *, slope: float | None = None, derivatives: Sequence[float] | None = None
) -> AdditiveNoise:
    """Noise that is uniform on [−half_width, half_width]: one derivative, so τ falls like 1/columns only.

    Args:
        half_width: of the interval.
        slope: a bound on |m_a'|.
        derivatives: the same as a list of one.

    Example:
        >>> round(certirl.dynamics.UniformNoise(1.5, slope=0.9).number(certirl.Legendre(41, (15, 25))), 2)
        0.11
    """
    b = as_number(half_width, "half_width", least=_NARROWEST)
    words = f"uniform on ±{b:g}"
    noise = LeastNoise(b / math.sqrt(3), partial(_beyond_uniform, b), words)
    return AdditiveNoise(words, (1 / b,), _declared(slope, derivatives, 1), noise)


@dataclass(frozen=True)
class GaussianNoise(Tail):
    """``s' = place(m_a(s) + ξ)`` with Gaussian ξ: τ falls faster than geometrically with the columns.

    ``place`` clips, mirrors or wraps next states into the box and leaves those inside where they are. The noise of each
    coordinate is independent of the state and of the others' and has at least the standard deviation ``std``; more
    noise, of any law that does not depend on the state and independent of this, may come on top (so for correlated
    noise ``std`` is the root of the least eigenvalue of its covariance). A standard deviation that changes with the
    state is none of this, however large. In periodic columns the drift must be a map of the circle, and ``place``
    wraps. With ``truncated`` nothing is placed: each coordinate of the next state has the law of m_a(s) + ξ given that
    it lies in the box, and ``std`` is exact.

    Attributes:
        std: the standard deviation of ξ, one number or one for each coordinate.
        slope: on an interval a bound on |m_a'|. On a box a number is a Lipschitz constant of m_a in Euclidean distance,
            a matrix ``[d, d]`` has bounds on |∂m_i/∂s_j|.
        rate: 0 if every m_a is affine. Otherwise |m_a'| ≤ slope, |m_a''| ≤ slope·rate, |m_a'''| ≤ slope·rate², and so
            on for all orders; on a box, with a matrix, all derivatives of order n of m_i that contain s_j are at most
            slope_ij·rateⁿ⁻¹.
        derivatives: in place of slope, on an interval: bounds on |m_a'|, |m_a''|, … as far as they are known. τ then
            falls like a power of the columns.
        truncated: the noise is cut off at the box and its density renormalised.

    Example:
        >>> noise = certirl.dynamics.GaussianNoise(std=1.5, slope=0.9)
        >>> print([f"{noise.number(certirl.Legendre(k, (15, 25))):.0e}" for k in (9, 13, 17)])
        ['3e-02', '8e-04', '1e-05']
        >>> certirl.dynamics.GaussianNoise(std=(1.0, 2.0), slope=((0.9, 0.1), (0.0, 0.8))).std
        (1.0, 2.0)
        >>> cut = certirl.dynamics.GaussianNoise(std=1.5, slope=0.9, truncated=True)  # as problems.thermostat()
        >>> print([f"{cut.number(certirl.Legendre(k, (15, 25))):.0e}" for k in (9, 13, 17)])
        ['5e-02', '3e-03', '1e-04']
    """

    std: float | tuple[float, ...]
    slope: float | tuple[tuple[float, ...], ...] | None = None
    rate: float = 0.0
    derivatives: tuple[float, ...] | None = None
    truncated: bool = False

    def __post_init__(self) -> None:
        as_flag(self.truncated, "truncated")
        std = as_reals(self.std, "std")
        if std.ndim > 1 or not std.size or not (np.isfinite(std) & (std > 0)).all():
            raise ValueError(f"std must be a positive number, or one for each coordinate, got {shown(self.std)}")
        if (self.slope is None) == (self.derivatives is None):
            raise ValueError(_ONE_OF)
        rate = as_number(self.rate, "rate", least=0)
        if self.derivatives is not None:
            object.__setattr__(self, "derivatives", _as_bounds(self.derivatives, "derivatives"))
        else:
            slope = as_reals(self.slope, "slope")
            square = slope.ndim == 2 and slope.shape[0] == slope.shape[1] > 0
            if not (slope.ndim == 0 or square) or not (np.isfinite(slope) & (slope >= 0)).all():
                raise ValueError(
                    f"slope must be a number from 0 on, or a matrix [d, d] of them, got {shown(self.slope)}"
                )
            object.__setattr__(self, "slope", _as_tuples(slope))
        for name, asked in (("rate", rate), ("truncated", self.truncated)):
            if asked and self.slope is None:
                raise ValueError(f"{name} goes with slope: leave it out where derivatives are declared")
        object.__setattr__(self, "std", _as_tuples(std))
        object.__setattr__(self, "rate", rate)

    def number(self, columns: Basis, coordinates: Sequence[int] | None = None) -> float:
        """τ: the sum of the bounds on all coefficients of p(y − m(s)) that the columns do not hold.

        Example:
            >>> box = certirl.product(certirl.Legendre(13), certirl.Legendre(13))
            >>> certirl.dynamics.GaussianNoise(std=0.5, slope=0.6).number(box) < 1e-5
            True
        """
        box = np.array(columns.domain)
        half, d = (box[:, 1] - box[:, 0]) / 2, len(box)
        std = _of_coordinates(np.asarray(self.std), d, coordinates, "std")
        if self.derivatives is not None:
            least = float(std.min())
            orders = (_hermite_norm(n, least) for n in range(1, len(self.derivatives) + 1))
            norms = tuple(takewhile(math.isfinite, orders))
            return AdditiveNoise("", norms, self.derivatives).number(columns) if norms else 1.0
        if self.truncated and columns.periodic_axes:
            return math.inf  # noise on a circle is not cut off anywhere
        slope = _of_coordinates(np.asarray(self.slope), d, coordinates, "slope")
        if slope.ndim == 0 and d > 1 and self.rate:
            raise ValueError("on a box a drift that is not affine needs slope as a matrix of bounds on |∂m_i/∂s_j|")
        with np.errstate(over="ignore"):  # τ is 1 long before _STEEPEST
            scaled = np.diag(slope * half / std.min()) if slope.ndim == 0 else slope * half / std[:, None]
        scaled = np.minimum(scaled, _STEEPEST)
        growth, norm = scaled.T @ scaled, 2 if slope.ndim == 0 else np.inf
        drifts = [(1.0, np.full(d, np.inf))]  # factors of Im m, and how far into the complex plane they hold
        if self.rate:
            reaches = _REACHES[:: 5 if self.truncated else 1]
            drifts = [(math.expm1(reach) / reach, np.full(d, reach / self.rate / half.sum())) for reach in reaches]
        bounds = [(growth * factor**2, most) for factor, most in drifts]
        if self.truncated:
            bounds = [
                (growth * factor**2 * kappa, np.minimum(most, limit * along))
                for factor, most in drifts
                for farthest, kappa in _truncated(tuple(2 * half / std))
                for along in _directions(d)
                for limit in [farthest / max(float(np.linalg.norm(scaled @ along, norm)), _LEAST) / factor]
            ]
        return _sum_outside(columns, bounds, is_affine=not self.rate)

    def change(self, differences: Array) -> float:
        """∫|p(y − m_a(s)) − p(y − m_a(t))|dy at most, for states whose coordinates differ by these at most.

        Example:
            >>> round(certirl.dynamics.GaussianNoise(std=(1.0, 2.0), slope=1.0).change([0.3, 0.4]), 2)
            0.39
        """
        moved = np.asarray(differences)
        std = _of_coordinates(np.asarray(self.std), len(moved), None, "std")
        bound = self.slope if self.derivatives is None else self.derivatives[0]
        slope = _of_coordinates(np.asarray(bound), len(moved), None, "slope")
        with np.errstate(over="ignore"):
            if slope.ndim == 0:
                shift = float(slope * np.linalg.norm(moved) / std.min())
            else:
                shift = float(np.linalg.norm(slope @ moved / std))
        return min(2.0, shift) if self.truncated else 2 * math.erf(shift / math.sqrt(8))

    @internal
    def least_noise(self, dimension: int, coordinates: Sequence[int] | None = None) -> list[LeastNoise]:
        """Gaussian noise of every coordinate; of truncated noise nothing is known next to the ends."""
        each = [] if self.truncated else _of_coordinates(np.asarray(self.std), dimension, coordinates, "std").tolist()
        words = "Gaussian of standard deviation at least {:g}"
        return [LeastNoise(std, partial(_beyond, std), words.format(std)) for std in each]

    def __str__(self) -> str:
        std = f"{self.std:g}" if isinstance(self.std, float) else f"{list(self.std)}"
        if self.derivatives is not None:
            drift = _drift(self.derivatives)
        else:
            slope = f"{self.slope:g}" if isinstance(self.slope, float) else f"{[list(row) for row in self.slope or ()]}"
            drift = f"drift m_a affine with slope at most {slope}"
            if self.rate:
                drift = f"drift m_a of slope at most {slope}, |m_a^(n)| ≤ slope·{self.rate:g}^(n − 1) for all n"
        if self.truncated:
            law = f"Gaussian of standard deviation {std}, independent of s"
            return f"the noise ξ is {law}, and the {drift}: s' = m_a(s) + ξ given that it lies in the box"
        law = f"Gaussian of standard deviation at least {std}, independent of s"
        return f"the noise ξ is {law}, and the {drift}: s' = place(m_a(s) + ξ)"


def _beyond(std: float, x: Array) -> Array:
    """P(ξ > x) of Gaussian noise."""
    from scipy.special import ndtr

    return np.asarray(ndtr(-x / std))


def _beyond_laplace(scale: float, x: Array) -> Array:
    return np.asarray(np.exp(-x / scale) / 2)


def _beyond_uniform(half_width: float, x: Array) -> Array:
    return np.asarray(np.maximum(1 - x / half_width, 0) / 2)


_ONE_OF = "declare either slope, for drifts that are affine, or derivatives, bounds on |m_a'|, |m_a''|, …"


def _check_interval(columns: Basis) -> None:
    """Refuse, with a sentence, columns on a box, for which bounds on derivatives give no tail."""
    if columns.dimension > 1:
        raise ValueError(
            f"a tail from derivatives is for one coordinate, and the columns have {columns.dimension}: declare "
            "GaussianNoise(std, slope), tail_from_density(…), or components that move independently"
        )


def _declared(slope: Any, derivatives: Any, orders: int) -> tuple[float, ...]:
    """The bounds on derivatives; all but the first are zero where the drift is affine."""
    if (slope is None) == (derivatives is None):
        raise ValueError(_ONE_OF)
    if derivatives is not None:
        return _as_bounds(derivatives, "derivatives")
    return (as_number(slope, "slope", least=0), *[0.0] * (orders - 1))


def _as_bounds(values: Any, name: str) -> tuple[float, ...]:
    bounds = as_reals(values, name)
    if bounds.ndim != 1 or not bounds.size or not (np.isfinite(bounds) & (bounds >= 0)).all():
        raise ValueError(f"{name} must be a list of bounds from 0 on, one for each order, got {shown(values)}")
    return tuple(float(bound) for bound in bounds)


def _as_tuples(values: Array) -> Any:
    """A number as a float, an array as tuples of floats."""
    return float(values) if values.ndim == 0 else tuple(_as_tuples(row) for row in values)


def _of_coordinates(values: Array, dimension: int, coordinates: Sequence[int] | None, name: str) -> Array:
    """A number as it is (``std``: for each coordinate); of arrays the entries of a component's coordinates."""
    if values.ndim == 0:
        return np.full(dimension, float(values)) if name == "std" else values
    axes = list(range(dimension)) if coordinates is None else list(coordinates)
    if len(values) <= max(axes) or (coordinates is None and len(values) != dimension):
        raise ValueError(f"{name} has entries for {len(values)} coordinates, and the state has {dimension}")
    return values[axes] if values.ndim == 1 else values[np.ix_(axes, axes)]


def _drift(derivatives: Sequence[float]) -> str:
    named = ", ".join(f"|m_a{chr(39) * order}| ≤ {bound:g}" for order, bound in enumerate(derivatives, 1))
    return f"drift {named}"


def _hermite_norm(order: int, std: float) -> float:
    """A bound on ∫|p^(n)| of the normal density: E|He_n|/stdⁿ, exact for n ≤ 2 and √n!/stdⁿ after; may be infinite."""
    exact = {1: math.sqrt(2 / math.pi), 2: 2 * math.sqrt(2 / (math.pi * math.e))}
    logarithm = math.log(exact[order]) if order in exact else math.lgamma(order + 1) / 2
    logarithm -= order * math.log(std)
    return math.exp(logarithm) if logarithm < _LARGEST else math.inf


def _directions(dimension: int) -> list[Array]:
    """How the coordinates may share the distance into the complex plane: more for some, less for others."""
    shares = product((1.0, 0.4, 0.05) if dimension == 2 else (1.0, 0.2), repeat=dimension)
    return [np.array(share) for share in shares if max(share) == 1.0]


def _sum_outside(columns: Basis, bounds: Sequence[tuple[Array, Array]], *, is_affine: bool) -> float:
    """The sum of bounds on all coefficients of p(y − m(s)) whose degrees the columns do not hold completely, 1 at most.

    ``columns`` have the degrees that are held. ``bounds`` are pairs of G in the bound exp(½ΣG_ij|v_iv_j|) on ∫|p(y −
    m)|dy, v the imaginary parts in units of half of the box, and of how far into the complex plane each coordinate may
    go, in the same units. For each coefficient the best pair counts.
    """
    degrees, held = np.unique(columns.degrees, axis=0, return_counts=True)
    periodic = np.isin(np.arange(columns.dimension), columns.periodic_axes)
    complete = held == np.prod(np.where(periodic & (degrees > 0), 2, 1), axis=1)
    top = degrees.max(axis=0) + (_BEYOND if columns.dimension > 1 or len(bounds) > 1 else 0)
    outside = np.ones(top + 1, dtype=bool)
    outside[tuple(degrees[complete].T)] = False
    sizes, beyond = np.full(top + 1, np.inf), np.inf
    weights = _WEIGHTS if len(bounds) == 1 or columns.dimension < 3 else _WEIGHTS[::4]
    for ratios, most in ((ratios, most) for growth, most in bounds for ratios in _ratios(growth, weights)):
        series = [_coefficients(*each, is_affine) for each in zip(top, ratios, periodic, most, strict=True)]
        box = np.ones(())
        for along, _ in series:
            box = np.multiply.outer(box, along)
        sizes = np.minimum(sizes, box)
        sums = [(float(along.sum()), rest) for along, rest in series]
        parts = (
            math.prod(inner for inner, _ in sums[:i])
            * rest
            * math.prod(inner + outer for inner, outer in sums[i + 1 :])
            for i, (_, rest) in enumerate(sums)
        )
        beyond = min(beyond, sum(parts))
    return min(float(sizes[outside].sum()) + beyond, 1.0)


@lru_cache(maxsize=32)
def _truncated(widths: tuple[float, ...]) -> list[tuple[float, float]]:
    """Pairs (v₁, κ) with |E e^{ivη}| ≥ exp(−κv²/2) for |v| ≤ v₁, η normal about any mean given that it is in a box.

    The widths are those of the sides of the box in standard deviations; κ holds for all.
    """
    from scipy.special import erf, ndtr

    v = np.arange(_ANALYTIC, _FARTHEST_TRUNCATED, _STEP_V) + _STEP_V / 2
    step = np.minimum(1.0, v + _STEP_V / 2) * (_STEP_V + _STEP_MEAN) / 2
    exponents = np.zeros(len(v))
    for width in widths:
        means = np.arange(-_OUTSIDE, min(_INSIDE, width / 2) + _STEP_MEAN, _STEP_MEAN)  # 0: the lower end
        ends = np.array([0.0, width])[:, None, None] - means[:, None]
        real, imaginary = (np.diff(erf((ends - 1j * w) / math.sqrt(2)), axis=0)[0] for w in (0 * v[:1], v))
        least = (np.abs(imaginary) * np.exp(-(v**2) / 2) / real.real).min(axis=0) - step
        beyond = 1 - ((v + _STEP_V / 2) / _OUTSIDE) ** 2
        within = np.exp(-((v + _STEP_V / 2) ** 2) / 2) - 2 * ndtr(-_INSIDE)
        least = np.minimum(np.minimum(least, beyond), within) - 1e-9  # for rounding
        with np.errstate(invalid="ignore", divide="ignore"):
            exponent = np.where(least > 0, -2 * np.log(least) / (v - _STEP_V / 2) ** 2, np.inf)
        exponents = np.maximum(exponents, exponent)
    exponents = np.maximum.accumulate(np.maximum(exponents, -2 * math.log(1 - _ANALYTIC**2 / 2) / _ANALYTIC**2))
    pairs = zip((v + _STEP_V / 2).tolist(), exponents.tolist(), strict=True)
    chosen = list(pairs)
    return [chosen[int(share * (len(v) - 1))] for share in _SHARES if chosen[int(share * (len(v) - 1))][1] < np.inf]


def _ratios(growth: Array, logarithms: Array) -> Iterator[Array]:
    """Numbers r_i with ΣG_ij|v_iv_j| ≤ Σr_i²v_i²: r_i² = Σ_jG_ijw_j/w_i, for several weights w."""
    d = len(growth)
    coupled = bool((growth - np.diag(np.diag(growth))).any())
    for exponents in product(logarithms if coupled else [0.0], repeat=d - 1):
        weights = np.exp([0.0, *exponents])
        yield np.sqrt(growth @ weights / weights)


def _coefficients(top: int, ratio: float, periodic: bool, most: float, is_affine: bool) -> tuple[Array, float]:
    """Bounds on the coefficients of degrees 0 … top of p(y − m(s)) in one coordinate, and on the sum of the rest.

    That of degree j is at most 2·M(t)·exp(−jt) for every t > 0, M(t) the mean of ∫|p(y − m)|dy over the ellipse, or the
    line, t away from the states: exp(r²sin²θ·sinh²t/2) for affine drifts on an interval, exp(r²t²/(2π²)) on a circle.
    """
    from scipy.special import ive

    j, r = np.arange(1, top + _EXPLICIT + 1), max(float(ratio), _LEAST)
    if periodic:
        t = np.minimum(j * (math.pi / r) ** 2, min(math.pi * most, _FARTHEST))
        growth = (r * t / math.pi) ** 2 / 2
    else:
        t = np.minimum(np.arcsinh(2 * (j + 1) / r**2) / 2, min(math.asinh(most), _FARTHEST))
        growth = (r * np.sinh(t)) ** 2 / 2
        if is_affine:
            growth += np.log(ive(0, growth / 2))
    sizes = 2 * np.exp(growth - j * t)
    rest = float(sizes[top:].sum() + sizes[-1] / math.expm1(t[-1]))
    return np.concatenate([[1.0], sizes[:top]]), rest


# A number, a declared property, a function of the columns, or nothing.
TailLike = float | Tail | Callable[[Basis], float] | None


def check_tail(tail: Any) -> None:
    """Refuse, with a sentence, what is no tail."""
    kinds = "a number, GaussianNoise(std, slope), Smooth(order, bound) or a function"
    if isinstance(tail, type):
        raise TypeError(f"tail must be {kinds}, got the class {tail.__name__}")
    if tail is None or isinstance(tail, Tail):
        return
    if not callable(tail):
        meaning = by_door(
            "GaussianNoise(std, slope), Smooth(order, bound), a function of the columns or a number", "a number"
        )
        as_number(tail, "tail", least=0, meaning=meaning)
    elif not takes(tail, None):
        raise TypeError(f"tail must be a function of the columns alone, tail(columns), got {shown(tail)}")


def is_number(tail: TailLike) -> bool:
    """Whether a tail is one number, which belongs to the columns it was computed for."""
    check_tail(tail)
    return tail is not None and not callable(tail) and not isinstance(tail, Tail)


def tail_number(tail: TailLike, columns: Basis, coordinates: Sequence[int] | None = None) -> float | None:
    """τ for these columns, of a component for its coordinates; None where nothing is declared."""
    check_tail(tail)
    if tail is None:
        return None
    if isinstance(tail, Tail):
        return tail.number(columns, coordinates)
    if not callable(tail):
        return as_number(tail, "tail", least=0)
    value = call(tail, columns, what="tail")
    if isinstance(value, float) and value == math.inf:  # a bound that says nothing about these columns
        return math.inf
    return as_number(value, f"tail(columns) for {columns}", least=0)


def least_columns(
    tail: TailLike,
    columns: Basis,
    limit: Callable[[Basis], float],
    coordinates: Sequence[int] | None = None,
    *,
    most: int,
) -> tuple[Basis, float, bool]:
    """The fewest columns of a family, complete up to a degree, whose τ is below a limit; this τ, and True.

    If there are none: those tried that come nearest, and False.

    The search begins with ``columns`` and ends with ``most``; ``limit`` is what τ must be below, for any columns;
    ``coordinates`` are those of a component, None for all.
    """
    numbers: dict[int, float] = {}

    def cost(basis: Basis) -> float:
        numbers[basis.size] = tail_number(tail, basis, coordinates) or 0.0
        return numbers[basis.size] / limit(basis)

    sizes = [size for size in columns.resized(most).complete_sizes()[:-1] if size >= columns.size]
    basis, is_enough = fewest([columns.resized(size) for size in sizes or [columns.size]], cost)
    return basis, numbers[basis.size], is_enough


def tail_in_numbers(number: float, columns: Basis, name: str = "") -> str:
    """What τ is for columns, of a component by its name: the first half of sentences that say what τ is needed."""
    return f"{columns.size} columns{name and f' of {name}'} give τ = {number:.2g}"


def largest_tail(tails: Iterable[float | None]) -> float | None:
    """The largest of several τ; None if one of them is not declared."""
    numbers = list(tails)
    return None if None in numbers else max(number for number in numbers if number is not None)


def tail_in_words(tail: TailLike, number: float | None, columns: Basis) -> str:
    """The assumption that a tail makes, or that one is missing, as a certificate prints it."""
    family = columns.family
    if number is None:
        return f"NOT DECLARED: how far P_a f lies outside the {columns.size} functions of the state ({family})"
    source = f", since {tail}" if isinstance(tail, Tail) else ""
    if number == 0:
        exactly = f"every P_a f is exactly a combination of the first {columns.size} {family} functions of the state"
        return exactly + source
    if source and columns.periodic_axes:
        axes = ", ".join(map(str, columns.periodic_axes))
        source += f"; P_a f and its derivatives are periodic in coordinate {axes}"
    return f"every P_a f, |f| ≤ 1, lies within {number:.3g} of the first {columns.size} {family} functions{source}"
