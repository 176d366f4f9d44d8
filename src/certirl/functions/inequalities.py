"""Deviation bounds, one function per statement; proofs in docs/notes/certificate.md."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from certirl.functions.bases import Basis
from certirl.ground.domain import Array

# Failures, each of probability e^−L, that one `empirical_bernstein` pays for: the second moment, above, below.
EVENTS = 3


def log_term(events: float, delta: float) -> float:
    """L with events·e^−L = δ."""
    return float(np.log(events / delta))


def bernstein(second_moment: Any, bound: Any, log_term: float) -> Any:
    """Σ(Z − EZ) < √(2vL) + bL/3 for independent Z ≤ b with ΣE Z² ≤ v, but for probability e^−L (Bennett, Bernstein)."""
    return np.sqrt(2 * second_moment * log_term) + bound * log_term / 3


def second_moment(observed: Any, bound: Any, log_term: float) -> Any:
    """ΣE Z² < (b√(L/2) + √(ΣZ² + b²L/2))² for independent |Z| ≤ b, but for probability e^−L.

    The lower tail of a sum of non-negative W = Z² has no range term: ΣW > ΣE W − √(2LΣE W²), and ΣE W² ≤ b²ΣE W.
    """
    half = bound * np.sqrt(log_term / 2)
    return (half + np.sqrt(np.maximum(observed, 0.0) + half**2)) ** 2


def empirical_bernstein(observed: Any, bound: Any, log_term: float) -> Any:
    """|Σ(Z − EZ)| < this for independent |Z| ≤ b with observed ΣZ², but for probability 3e^−L: both bounds together."""
    return bernstein(second_moment(observed, bound, log_term), bound, log_term)


# Slopes λ tried by `self_bounded`, each at its cost in probability; below the last, `empirical_bernstein` is as good.
SLOPES = (0.9, 0.6, 0.3, 0.15, 0.075)
SELF_EVENTS = 2 * len(SLOPES) + EVENTS


def self_bounded(observed: Any, bound: Any, log_term: float) -> Any:
    """|Σ(Z − EZ)| < min_λ (ψ(λ)ΣZ²/b + bL)/λ for independent |Z| ≤ b, ψ(λ) = −log(1 − λ) − λ (Fan, Grama and Liu).

    But for probability 13e^−L, `empirical_bernstein` being tried too. The observed second moment enters as it is: no
    bound of the true one, in which the range would count again. Where all Z are small this is little more than bL.
    """
    slopes = np.array(SLOPES).reshape(-1, *[1] * np.ndim(observed))
    cost, floor = -np.log1p(-slopes) - slopes, np.maximum(bound, 1e-300)
    straight = ((cost * np.maximum(observed, 0.0) / floor + bound * log_term) / slopes).min(axis=0)
    return np.minimum(straight, empirical_bernstein(observed, bound, log_term))


def sloped(observed: Any, bound: Any, log_term: Any, slope: Any) -> Any:
    """Σ(Z − EZ) < μ g(μb) ΣZ² + L/μ for independent |Z| ≤ b, but for probability e^−L; g(λ) = (−log(1 − λ) − λ)/λ².

    Fan, Grama and Liu. The observed second moment enters as it is. The slope μ must be fixed before the Z are seen;
    the bound grows with b, so that any upper bound of b will do. Infinite where μb ≥ 1.
    """
    share = np.minimum(slope * bound, 1.0)
    small, safe = share < 1e-4, np.clip(share, 1e-4, 1 - 1e-12)
    growth = np.where(small, 0.5 + share / 3 + share**2 / 4, (-np.log1p(-safe) - safe) / safe**2)
    return np.where(share < 1, slope * growth * np.maximum(observed, 0.0) + log_term / slope, np.inf)


def best_slope(expected: Any, bound: Any, log_term: Any) -> Any:
    """The slope μ of `sloped` for which it is least if ΣZ² is as expected; at most 0.9/b.

    With y = μb/(1 − μb) it is the solution of y − log(1 + y) = Lb²/ΣZ², by Newton's method.
    """
    moment = np.maximum(expected, 1e-300)
    ratio = log_term * np.asarray(bound) ** 2 / moment
    y = np.sqrt(2 * ratio) + ratio
    for _ in range(4):
        y = y - (y - np.log1p(y) - ratio) * (1 + y) / np.maximum(y, 1e-300)
    small = ratio < 1e-10  # there y = √(2 ratio), up to rounding
    share = np.where(small, np.sqrt(2 * ratio), np.maximum(y, 0.0) / (1 + np.maximum(y, 0.0)))
    return np.where(share > 0, np.minimum(share, 0.9) / np.maximum(bound, 1e-300), np.sqrt(2 * log_term / moment))


def empirical_vector_bernstein(observed: Any, bound: Any, log_term: float) -> Any:
    """‖Σ(Z − EZ)‖ < this for independent vectors ‖Z‖ ≤ b with observed Σ‖Z‖², but for probability 3e^−L (Pinelis).

    The same number as for scalars but for the range, which centring may double; the dimension does not enter.
    """
    return bernstein(second_moment(observed, bound, log_term), 2 * bound, log_term)


# Failures that one `empirical_norm_bernstein` pays for: the trace, the largest eigenvalue, the norm itself.
NORM_EVENTS = 3


def empirical_norm_bernstein(trace: Any, largest: Any, bound: Any, log_term: float) -> Any:
    """‖Σ(Z − EZ)‖ < this for independent vectors ‖Z‖ ≤ b, but for probability 3e^−L (Klein and Rio).

    Where no direction has much of the variance it is little more than the root of the trace: L multiplies the largest
    eigenvalue only.

    Args:
        trace: the observed Σ‖Z‖².
        largest: the largest eigenvalue of the observed ΣZZᵀ.
        bound: b.
        log_term: L.
    """
    mean = np.sqrt(second_moment(trace, bound, log_term))
    range_ = 2 * bound  # centring may double it
    variance = second_moment(largest, bound, log_term) + 2 * range_ * mean
    step = 3 * range_ * log_term
    return mean + (step + np.sqrt(step**2 + 8 * log_term * variance)) / 2


# Failures that one `mixed_norm` pays for: the trace, the largest eigenvalue, the norm itself.
MIXED_EVENTS = 3


def mixed_norm(trace: Any, largest: Any, bound: Any, log_term: float, size: int, scale: Any) -> Any:
    """‖Σ(Z − EZ)‖ < this for independent vectors ‖Z‖ ≤ b of ``size`` entries, but for probability 3e^−L (Delyon).

    As e^(x − x²/6) ≤ 1 + x + x²/3, E exp(λ·Σ(Z − EZ) − ½λᵀHλ) ≤ 1 for every λ, with H = (ΣZZᵀ + 2ΣE ZZᵀ)/3; λ is
    drawn from N(0, τ²I). No range enters but through the expected second moments.

    Args:
        trace: the observed Σ‖Z‖², or an upper bound.
        largest: the largest eigenvalue of the observed ΣZZᵀ, or an upper bound.
        bound: b.
        log_term: L.
        size: the number of entries.
        scale: τ², fixed before the Z are seen; see `best_scale`.
    """
    top = (largest + 2 * second_moment(largest, bound, log_term)) / 3
    total = (trace + 2 * second_moment(trace, bound, log_term)) / 3
    return np.sqrt((top + 1 / scale) * (2 * log_term + size * np.log1p(scale * total / size)))


def best_scale(trace: float, largest: float, bound: float, log_term: float, size: int) -> float:
    """The scale τ² of `mixed_norm` for which it is least if second moments are as expected."""
    scales = np.geomspace(0.05, 50.0, 121) / max(largest, 1e-300)
    return float(scales[np.argmin(mixed_norm(trace, largest, bound, log_term, size, scales))])


def empirical_matrix_bernstein(left: Any, right: Any, bound: Any, log_term: float) -> Any:
    """‖Σ(Z − EZ)‖ < this for independent matrices Z = a hᵀ ``[m, k]``, but for probability (2 + m + k)e^−L (Tropp).

    Args:
        left: the largest eigenvalue of the observed Σ‖h‖² a aᵀ.
        right: that of Σ‖a‖² h hᵀ, or a bound of it.
        bound: ‖a‖‖h‖ ≤ b.
        log_term: L.
    """
    size = np.maximum(second_moment(left, bound, log_term), second_moment(right, bound, log_term))
    return np.sqrt(2 * size * log_term) + 4 * bound * log_term / 3


def degree(basis: Basis) -> int:
    """The degree of expansions in this basis: algebraic, or trigonometric for Fourier."""
    return basis.size // 2 if basis.kind == "Fourier" else basis.size - 1


def inflation(kind: str, degree: int, count: int) -> float:
    """sup|p| ≤ this · max_j|p(s_j)| for every polynomial p of the degree and ``count`` spread points.

    Ehlich and Zeller: 1/cos(πd/2N) for polynomials of degree d at N Chebyshev points; 1/cos(πM/N) for trigonometric
    polynomials of degree M at N evenly spaced points of the circle.
    """
    angle = np.pi * degree / (count if kind == "Fourier" else 2 * count)
    return float(1 / np.cos(angle)) if angle < np.pi / 2 else float("inf")


def spread_points(basis: Basis, count: int) -> Array:
    """The states ``[count, 1]`` that `inflation` speaks of."""
    ((low, high),) = basis.domain
    places = (np.arange(count) + 0.5) / count
    t = 2 * places - 1 if basis.kind == "Fourier" else -np.cos(np.pi * places)
    return ((low + high) / 2 + (high - low) / 2 * t)[:, None]


def blending(basis: Basis, count: int, states: Array) -> Array:
    """Weights ``[n, count]`` that give every expansion at the states from its values at the spread points.

    Of the many such weights these (de la Vallée Poussin's) are small away from a state and add up, in absolute value,
    to little more than 1: what is known better at some points than at others stays so between them.
    """
    return _blending(basis, count, np.ascontiguousarray(states, dtype=np.float64).tobytes())


@lru_cache(maxsize=4)  # the cells of a tube are asked about again and again
def _blending(basis: Basis, count: int, places_asked: bytes) -> Array:
    states = np.frombuffer(places_asked)[:, None]
    top, around = degree(basis), basis.kind == "Fourier"
    t, places = (basis.to_reference(x) for x in (states, spread_points(basis, count)))
    own, other = (np.pi * x if around else np.arccos(np.clip(x, -1.0, 1.0)) for x in (t, places))
    end = (count if around else 2 * count) - top  # frequencies from here on are taken for lower ones
    if end <= top:
        raise ValueError(f"expansions of degree {top} are not told apart by {count} points")
    k = np.arange(1, end)
    shares = np.minimum(1.0, (end - k) / (end - top))
    waves = (2 * shares * np.cos(np.outer(own, k))) @ np.cos(np.outer(k, other))
    if around:
        waves += (2 * shares * np.sin(np.outer(own, k))) @ np.sin(np.outer(k, other))
    weights = np.asarray((1 + waves) / count)
    weights.flags.writeable = False
    return weights


def steepest(basis: Basis, states: Array, reach: float = 0.0) -> Array:
    """sup of the slope, within reach of each state ``[n]``, of any expansion that nowhere exceeds 1.

    The inequalities of Bernstein and Markov.
    """
    ((low, high),) = basis.domain
    top, scale = degree(basis), 2 / (high - low)
    if basis.kind == "Fourier":
        return np.full(len(states), np.pi * scale * top)
    t = np.minimum(np.abs(basis.to_reference(states)) + scale * reach, 1.0)
    return np.asarray(scale * top * np.minimum(top, 1 / np.sqrt(np.maximum(1 - t**2, 1e-12))))


def binomial_interval(count: int, n: int) -> tuple[float, float]:
    """The exact 95 % interval of Clopper and Pearson for a probability, from ``count`` of ``n``."""
    from scipy.special import betaincinv  # scipy.stats takes seconds to import

    low = float(betaincinv(count, n - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 0.975)) if count < n else 1.0
    return low, high
