"""Deviation bounds, one function per statement; proofs in docs/notes/certificate.md."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from certirl.functions.bases import Family
from certirl.functions.spread import spread_points
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


def conditional_moment(observed: Any, bound: Any, log_term: float, rate: Any) -> Any:
    """ΣE[Z² | past] < (yΣZ² + b²L)/(1 − e^−y) for |Z| ≤ b that may depend on the past, but for probability e^−L.

    So is the largest eigenvalue of ΣE[ZZᵀ | past] for vectors of q entries, from that of ΣZZᵀ, with L + log q for L.
    The rate y must be fixed before the Z are read.
    """
    return (rate * np.maximum(observed, 0.0) + bound**2 * log_term) / -np.expm1(-rate)


def best_rate(expected: Any, bound: Any, log_term: float) -> Any:
    """The rate y of `conditional_moment` for which it is least if ΣZ² is as expected: e^y − 1 − y = Lb²/ΣZ²."""
    ratio = log_term * np.asarray(bound) ** 2 / np.maximum(expected, 1e-12 * np.asarray(bound) ** 2 + 1e-300)
    ratio = np.maximum(ratio, 1e-12)
    y = np.minimum(np.sqrt(2 * ratio), np.log1p(ratio + np.sqrt(2 * ratio)))  # above the solution: Newton goes down
    for _ in range(5):
        y = y - (np.expm1(y) - y - ratio) / np.expm1(y)
    return np.clip(y, 1e-6, 50.0)


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

    Fan, Grama and Liu. The observed second moment enters as it is. The slope μ must be fixed before the Z are read;
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
    moment = np.maximum(expected, 1e-30 * np.asarray(bound) ** 2 + 1e-300)
    ratio = log_term * np.asarray(bound) ** 2 / moment
    y = np.sqrt(2 * ratio) + ratio
    for _ in range(4):
        y = y - (y - np.log1p(y) - ratio) * (1 + y) / np.maximum(y, 1e-300)
    small = ratio < 1e-10  # there y = √(2 ratio), up to rounding
    share = np.where(small, np.sqrt(2 * ratio), np.maximum(y, 0.0) / (1 + np.maximum(y, 0.0)))
    return np.where(share > 0, np.minimum(share, 0.9) / np.maximum(bound, 1e-300), np.sqrt(2 * log_term / moment))


def quartic(square: Any, cube: Any, fourth: Any, bound: Any, log_term: Any, slope: Any) -> Any:
    """Σ(Z − EZ) < L/μ + μΣZ²/2 − μ²ΣZ³/3 + μ³ g₄(μb) ΣZ⁴ on the same event as `sloped`: more terms of one logarithm.

    g₄(λ) = Σ λ^j/(j + 4). The bound grows with b, the square and the fourth powers, and falls with the cubes, so that
    bounds of each will do. Infinite where μb ≥ 1.
    """
    share = np.minimum(slope * bound, 1.0)
    small, safe = share < 0.02, np.clip(share, 0.02, 1 - 1e-12)
    growth = np.where(
        small,
        0.25 + share / 5 + share**2 / 6 + share**3 / 7,
        (-np.log1p(-safe) - safe - safe**2 / 2 - safe**3 / 3) / safe**4,
    )
    total = log_term / slope + slope * (square / 2 - slope * (cube / 3 - slope * growth * fourth))
    return np.where(share < 1, total, np.inf)


def plain_slope(expected: Any, bound: Any, log_term: Any) -> Any:
    """The slope μ of `quartic` for which L/μ + μΣZ²/2 is least if ΣZ² is as expected, up to 0.8/b; or `best_slope`."""
    moment = np.maximum(expected, 1e-30 * np.asarray(bound) ** 2 + 1e-300)
    plain = np.minimum(np.sqrt(2 * log_term / moment), 0.8 / np.maximum(bound, 1e-300))
    return np.maximum(plain, best_slope(expected, bound, log_term))


# Failures that one `mixed_norm` pays for: the trace, the largest eigenvalue, the norm itself.
MIXED_EVENTS = 3


def mixed_norm(
    trace: Any, largest: Any, bound: Any, log_term: float, size: int, scale: Any, rates: tuple[Any, Any] | None = None
) -> Any:
    """‖Σ(Z − EZ)‖ < this for independent vectors ‖Z‖ ≤ b of ``size`` entries, but for probability 3e^−L (Delyon).

    As e^(x − x²/6) ≤ 1 + x + x²/3, E exp(λ·Σ(Z − EZ) − ½λᵀHλ) ≤ 1 for every λ, with H = (ΣZZᵀ + 2ΣE ZZᵀ)/3; λ is
    drawn from N(0, τ²I). No range enters but through the expected second moments.

    ``trace`` is the observed Σ‖Z‖² and ``largest`` the largest eigenvalue of the observed ΣZZᵀ, or upper bounds;
    ``bound`` is b, ``log_term`` L, ``size`` the number of entries. ``scale`` is τ², fixed before the Z are read; see
    `best_scale`. Where Z may depend on the past and EZ is the expectation given it, ``rates`` are those of
    `conditional_moment` for trace and largest eigenvalue; None for independent Z.
    """
    if rates is None:
        total, top = (second_moment(moment, bound, log_term) for moment in (trace, largest))
    else:
        total = conditional_moment(trace, bound, log_term, rates[0])
        top = conditional_moment(largest, bound, log_term + np.log(size), rates[1])
    top, total = (largest + 2 * top) / 3, (trace + 2 * total) / 3
    return np.sqrt((top + 1 / scale) * (2 * log_term + size * np.log1p(scale * total / size)))


def hoeffding_norm(trace: Any, largest: Any, log_term: float) -> Any:
    """‖X‖ < √(T + 2√(TtL) + 2tL) for a sum X of independent vectors of mean 0, but for probability e^−L (Hoeffding).

    Along every λ the terms λ·X_r lie in intervals with half-lengths whose squares add up to λᵀHλ at most; T and t are
    trace and largest eigenvalue of H, known beforehand.

    ``trace`` is T and ``largest`` t, or upper bounds; ``log_term`` is L.
    """
    return np.sqrt(trace + 2 * np.sqrt(trace * largest * log_term) + 2 * largest * log_term)


def best_scale(
    trace: float, largest: float, bound: float, log_term: float, size: int, rates: tuple[Any, Any] | None = None
) -> float:
    """The scale τ² of `mixed_norm` for which it is least if second moments are as expected."""
    scales = np.geomspace(0.05, 50.0, 121) / max(largest, 1e-300)
    return float(scales[np.argmin(mixed_norm(trace, largest, bound, log_term, size, scales, rates))])


def blending(basis: Family, count: int, states: Array) -> Array:
    """Weights ``[n, count]`` that give every expansion at the states from its values at the spread points.

    Of the many such weights these (de la Vallée Poussin's) are small away from a state and add up, in absolute value,
    to little more than 1: bounds that are smaller at some points than at others stay so between them.
    """
    return _blending(basis, count, np.ascontiguousarray(states, dtype=np.float64).tobytes())


@lru_cache(maxsize=4)  # the cells of a tube occur in many calls
def _blending(basis: Family, count: int, at_states: bytes) -> Array:
    states = np.frombuffer(at_states)[:, None]
    top = basis.degree
    angles, at_points = (basis._to_angle(x) for x in (states, spread_points(basis, count)))
    end = (count if basis.periodic else 2 * count) - top  # frequencies from here on are taken for lower ones
    if end <= top:
        raise ValueError(f"expansions of degree {top} are not determined by {count} points")
    k = np.arange(1, end)
    shares = np.minimum(1.0, (end - k) / (end - top))
    waves = (2 * shares * np.cos(np.outer(angles, k))) @ np.cos(np.outer(k, at_points))
    if basis.periodic:
        waves += (2 * shares * np.sin(np.outer(angles, k))) @ np.sin(np.outer(k, at_points))
    weights = np.asarray((1 + waves) / count)
    weights.flags.writeable = False
    return weights


def binomial_interval(count: int, n: int) -> tuple[float, float]:
    """The exact 95 % interval of Clopper and Pearson for a probability, from ``count`` of ``n``."""
    from scipy.special import betaincinv  # scipy.stats takes seconds to import

    low = float(betaincinv(count, n - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 0.975)) if count < n else 1.0
    return low, high
