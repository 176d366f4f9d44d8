"""Deviation bounds (section 6 of docs/notes/certificate.md), from above, with proved errors.

Slopes, scales and rates may be any numbers that are chosen before the fresh data: they are made in floating point.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certirl_check.enclosures import Enclosure, Floats, enclosed, logarithm, reciprocal


def growth_above(share: Floats, order: int = 2) -> Floats:
    """No smaller than g(λ) = (−log(1 − λ) − Σ λ^i/i over i < order)/λ^order = Σ λ^j/(j + order) for 0 ≤ λ < 1."""
    small = share < 0.1
    few, many = Enclosure(np.where(small, share, 0.0)), Enclosure(np.where(small, 0.5, share))
    series, rest, power = Enclosure(np.zeros(share.shape)), -logarithm(1.0 - many), enclosed(1.0)
    for j in reversed(range(20)):
        series = series * few + reciprocal(j + order)
    for i in range(1, order):
        power = power * many
        rest = rest - power / float(i)
    return np.where(small, series.above + 1e-20, (rest / (power * many)).above)  # the terms left out are below 0.1^20


def _inside(slope: Floats, bound: Floats) -> tuple[Floats, Any]:
    """μb, ½ instead of what is not below 1, and where it is."""
    share = (enclosed(slope) * bound).above
    inside = share < 1 - 1e-12
    return np.where(inside, share, 0.5), inside


def sloped(observed: Enclosure, bound: Floats, log_terms: Enclosure, slope: Floats) -> Floats:
    """Lemma 3: μ g(μb) ΣZ² + L/μ from above; infinite where μb ≥ 1."""
    share, inside = _inside(slope, bound)
    total = enclosed(slope) * growth_above(share) * observed + log_terms / enclosed(slope)
    return np.where(inside, total.above, np.inf)


def quartic(
    square: Enclosure, less: Enclosure, fourth: Enclosure, bound: Floats, log_terms: Enclosure, slope: Floats
) -> Floats:
    """Lemma 3 with higher powers, L/μ + μΣZ²/2 − μ²ΣZ³/3 + μ³g₄(μb)ΣZ⁴ from above; ``less`` is −ΣZ³ at most."""
    (share, inside), mu = _inside(slope, bound), enclosed(slope)
    cubed = (less / 3.0 + mu * (growth_above(share, 4) * fourth)) * mu
    total = log_terms / mu + mu * (square * 0.5 + cubed)
    return np.where(inside, total.above, np.inf)


def best_slope(expected: Floats, bound: Floats, log_terms: Floats, *, powers: bool = False) -> Floats:
    """A good slope for `sloped`, or for `quartic` with its powers, in plain floating point.

    y − log(1 + y) = Lb²/ΣZ² with y = μb/(1 − μb), by Newton's method; with powers L/μ + μΣZ²/2 is least.
    """
    moment, reach = np.maximum(expected, 1e-30 * bound**2 + 1e-300), np.maximum(bound, 1e-300)
    ratio, plain = log_terms * bound**2 / moment, np.sqrt(2 * log_terms / moment)
    y = np.sqrt(2 * ratio) + ratio
    for _ in range(4):
        y = np.maximum(y - (y - np.log1p(y) - ratio) * (1 + y) / np.maximum(y, 1e-300), 0.0)
    share = np.where(ratio < 1e-10, np.sqrt(2 * ratio), y / (1 + y))
    slope = np.where(share > 0, np.minimum(share, 0.9) / reach, plain)
    return np.clip(np.maximum(slope, np.minimum(plain, 0.8 / reach)) if powers else slope, 1e-250, 1e250)


def _true_moment(observed: Enclosure, bound: Enclosure, log_term: Enclosure) -> Enclosure:
    """Lemma 4: the root of ΣE Z² from the observed ΣZ²."""
    half = bound * (log_term * 0.5).root()
    return half + (observed.positive() + half * half).root()


def bernstein(observed: Enclosure, bound: Floats, log_term: Enclosure) -> Enclosure:
    """Lemma 5."""
    return _true_moment(observed, enclosed(bound), log_term) * (2.0 * log_term).root() + log_term * bound / 3.0


def decay(rate: float) -> Enclosure:
    """e^−y − 1 for a number y above 0 and at most 50: Taylor's series of a part of y, which is then doubled."""
    halvings = max(0, math.ceil(math.log2(rate))) + 1
    y, total = enclosed(rate) * 0.5**halvings, Enclosure(np.zeros(()))
    for n in reversed(range(1, 20)):
        total = -y / float(n) * (1.0 + total)
    total = total * (1.0 + Enclosure(np.zeros(()), 1e-18))  # what the series leaves out is below y^19/20!
    for _ in range(halvings):
        total = total * (total + 2.0)
    return total


def conditional_moment(observed: Enclosure, bound: Enclosure, log_term: Enclosure, rate: float) -> Enclosure:
    """Lemma 4′: ΣE[Z² | past] from the observed ΣZ², or a largest eigenvalue, with y = ``rate``."""
    share = -decay(rate)
    return (observed.positive() * rate + bound * bound * log_term) / share


def best_rate(expected: float, bound: float, log_term: float) -> float:
    """A good rate, in plain floating point: e^y − 1 − y = Lb²/ΣZ², by Newton's method from above."""
    ratio = max(log_term * bound**2 / max(expected, 1e-12 * bound**2 + 1e-300), 1e-12)
    y = min((2 * ratio) ** 0.5, math.log1p(ratio + (2 * ratio) ** 0.5))
    for _ in range(5):
        y -= (math.expm1(y) - y - ratio) / math.expm1(y)
    return min(max(y, 1e-6), 50.0)


def hoeffding_norm(trace: Enclosure, top: float, log_term: Enclosure) -> Enclosure:
    """Lemma 9."""
    return (trace + 2.0 * (trace * top * log_term).root() + 2.0 * log_term * top).root()


class Length(NamedTuple):
    """What bounds the length of the noise of a vector."""

    size: int  # its entries
    longest: float  # its longest term
    observed: tuple[Enclosure, float]  # trace and largest eigenvalue of its second moments
    expected: tuple[float, float]  # the same, by training data


Rates = tuple[float, float] | None


def mixed_norm(
    moments: tuple[Enclosure, float], size: int, bound: float, log_term: Enclosure, scale: Floats, rates: Rates = None
) -> Enclosure:
    """Lemma 6, and 6′ with rates for trace and top."""
    observed = (moments[0], enclosed(moments[1]))
    if rates is None:
        roots = [_true_moment(moment, enclosed(bound), log_term) for moment in observed]
        means = [root * root for root in roots]
    else:
        each = zip(observed, (log_term, log_term + logarithm(float(size))), rates, strict=True)
        means = [conditional_moment(moment, enclosed(bound), term, rate) for moment, term, rate in each]
    total, largest = ((moment + 2.0 * mean) / 3.0 for moment, mean in zip(observed, means, strict=True))
    spread = logarithm(total * scale / float(size) + 1.0)
    return ((largest + 1.0 / enclosed(scale)) * (2.0 * log_term + float(size) * spread)).root()


def noise_length(of: Length, log_term: Enclosure, *, ordered: bool) -> tuple[Enclosure, float]:
    """A bound on the length of a vector's noise, and what was expected, by which scale and rates are chosen."""
    (trace, top), L, rates = of.expected, float(log_term.middle), None
    if ordered:
        rates = best_rate(trace, of.longest, L), best_rate(top, of.longest, L + math.log(of.size))
    tried = np.geomspace(0.05, 50.0, 121) / max(top, 1e-200)  # of no noise any scale will do
    expected = mixed_norm((enclosed(trace), top), of.size, of.longest, enclosed(L), tried, rates).middle
    best = int(np.argmin(expected))
    scale = np.array(tried[best])
    return mixed_norm(of.observed, of.size, of.longest, log_term, scale, rates), float(expected[best])
