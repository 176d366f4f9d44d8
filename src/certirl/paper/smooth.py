"""Smooth, periodic dynamics: the lemmas that bound their matrices in the trigonometric basis, and Corollary 12.

As printed they use the paper's Δ. The corrected forms use two numbers that bound every action's transition density
p(t'|t) on [-1, 1], periodic with its first two derivatives in both variables:

    b33 ≥ sup |∂³_{t'} ∂³_t p|   and   b30 ≥ sup |∂³_{t'} p|.

On an interval of half-width h take the derivatives in t: h⁷ and h⁴ times those in the state s. The corrected forms
rest on three facts. Integrating by parts three times divides the coefficient of frequency m by (πm)³. The integral of
a function g against sin(πmt + θ) is at most (4/π) sup|g| for every θ. And a sine and a cosine of the same frequency,
with coefficients a and b, are one such wave: √(a² + b²) ≤ (4/π) sup|g|, hence |a| + |b| ≤ √2 (4/π) sup|g|. Row 1 is
exactly (1, 0, 0, …), because probabilities sum to one. The derivations are in docs/notes/theorem6.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.functions.bases import Fourier
from certirl.ground.domain import Array
from certirl.ground.doors import as_count
from certirl.ground.records import Record
from certirl.paper.theorems import Requirement, check, countable, theorem6, theorem6_deflated

__all__ = [
    "Lemma7Corrected",
    "corollary12",
    "corollary12_corrected",
    "lemma7_corrected",
    "lemma10_lipschitz",
    "lemma10_size",
    "lemma10_size_corrected",
    "lemma10_tail",
    "lemma10_tail_corrected",
    "lemma11_coefficients",
    "lemma11_coefficients_corrected",
    "lemma11_norm",
]

_MOST_ENTRIES = 10_000  # rows of a matrix of bounds
ZETA2 = math.pi**2 / 6
ZETA3 = 1.2020569031595942

# ∫|sin πmt| dt over [-1, 1]: the factor of one integration against a wave.
_WAVE = 4 / math.pi


def _frequencies(k: int) -> Array:
    """0, 1, 1, 2, 2, …: the frequency of each of the first k trigonometric functions ``[k]``."""
    check(k=k)
    return ((np.arange(k) + 1) // 2).astype(np.float64)


def lemma11_norm(b33: float) -> float:
    """The smallest Δ for which dynamics this smooth meet Lemma 11, as printed: ``Δ = ζ(3) b33/π⁶``.

    Example:
        >>> round(certirl.paper.lemma11_norm(1000.0), 3)
        1.25
    """
    check(b33=b33)
    return ZETA3 * b33 / math.pi**6


def lemma11_coefficients(k: int, *, norm: float) -> Array:
    """Bounds on the entries of Z, ``|Z_ij| < Δ/(ζ(3) i³j³)`` (Lemma 11, as printed): ``[k, k]``.

    Not true: it counts functions where it should count frequencies, and it bounds Z_11, which is 1, by a derivative.

    Example:
        >>> certirl.paper.lemma11_coefficients(3, norm=1.0).round(3)
        array([[0.832, 0.104, 0.031],
               [0.104, 0.013, 0.004],
               [0.031, 0.004, 0.001]])
    """
    check(k=as_count(k, "k", most=_MOST_ENTRIES), norm=norm)
    i = np.arange(1, k + 1, dtype=np.float64)
    return norm / ZETA3 / np.outer(i, i) ** 3


def lemma11_coefficients_corrected(k: int, *, b33: float, b30: float) -> Array:
    """Bounds on the entries of Z (Lemma 11, corrected): ``[k, k]``.

    ``|Z_ij| ≤ (4/π)² b33/(π⁶m_i³m_j³)`` and ``|Z_i1| ≤ √2 (4/π) b30/(π³m_i³)``.

    Example:
        >>> certirl.paper.lemma11_coefficients_corrected(3, b33=100.0, b30=1.0).round(3)
        array([[1.   , 0.   , 0.   ],
               [0.058, 0.169, 0.169],
               [0.058, 0.169, 0.169]])
    """
    check(k=as_count(k, "k", most=_MOST_ENTRIES), b33=b33, b30=b30)
    cubes = np.maximum(_frequencies(k), 1.0) ** 3
    bounds = _WAVE**2 * b33 / math.pi**6 / np.outer(cubes, cubes)
    # ∫|φ_1| = √2 takes the place of one of the two waves.
    bounds[:, 0] = math.sqrt(2) * _WAVE * b30 / math.pi**3 / cubes
    bounds[0] = np.eye(k)[0]
    return bounds


def lemma10_tail(k: int, *, norm: float) -> float:
    """A bound on what k functions miss of Z (Lemma 10, as printed).

    ``‖Z − [Z]_k‖_∞ ≤ max{eΔ/(2ζ(3)(k+1)²), Δ/(k+1)³}``.

    Example:
        >>> round(certirl.paper.lemma10_tail(11, norm=1.0), 5)
        0.00785
    """
    check(k=k, norm=norm)
    return max(math.e * norm / (2 * ZETA3 * (k + 1) ** 2), norm / (k + 1) ** 3)


def lemma10_tail_corrected(k: int, *, b33: float, b30: float) -> float:
    """A bound on what k functions miss of Z (Lemma 10, corrected).

    ``‖(Z − [Z]_k)_{2:,:}‖_∞ ≤ max{√2 (4/π)² b33 ζ(3, m)/π⁶, ‖Z_{2:,:}‖/m³}``.

    m = ⌊(k+1)/2⌋ is the first frequency that is not whole among the k functions and ζ(3, m) = Σ_{n≥m} n⁻³. The first
    term bounds what a kept row loses on the right, the second a row that is lost altogether.

    Example:
        >>> round(certirl.paper.lemma10_tail_corrected(11, b33=100.0, b30=1.0), 5)
        0.00391
    """
    from scipy.special import zeta

    check(k=k, b33=b33, b30=b30)
    m = (k + 1) // 2
    right = math.sqrt(2) * _WAVE**2 * b33 / math.pi**6 * float(zeta(3.0, float(m)))
    return max(right, _row_norm(b33, b30) * (1 / m) ** 3)


@countable
def lemma10_size(epsilon: float, *, norm: float) -> int:
    """The smallest k whose tail is at most ε, of order √(Δ/ε) (Lemma 10, as printed).

    Example:
        >>> certirl.paper.lemma10_size(0.01, norm=1.0)
        10
    """
    check(epsilon=epsilon, norm=norm)
    return _smallest(lambda k: lemma10_tail(k, norm=norm) <= epsilon)


@countable
def lemma10_size_corrected(epsilon: float, *, b33: float, b30: float) -> int:
    """The smallest k whose tail is at most ε, still of order ε^(−½) (Lemma 10, corrected).

    Example:
        >>> certirl.paper.lemma10_size_corrected(0.01, b33=100.0, b30=1.0)
        7
    """
    check(epsilon=epsilon, b33=b33, b30=b30)
    return _smallest(lambda k: lemma10_tail_corrected(k, b33=b33, b30=b30) <= epsilon)


def lemma10_lipschitz(norm: float, *, discount: float | None = None) -> float:
    """The Lipschitz constant ρ of Fφ (Lemmas 7 and 10, as printed).

    ``‖Fφ'(s)‖_∞ < 4πΔζ(2)/ζ(3)``, since |φ_n'| ≤ πn.

    Args:
        norm: Δ.
        discount: γ, for the last line of the printed proof, which also divides by γ; the statement does not.

    Example:
        >>> round(certirl.paper.lemma10_lipschitz(0.25), 2)
        4.3
    """
    check(norm=norm)
    rho = 4 * math.pi * norm * ZETA2 / ZETA3
    if discount is None:
        return rho
    check(discount=discount)
    return rho / discount


@dataclass(frozen=True)
class Lemma7Corrected(Record):
    """Bounds on the matrices of all actions from bounds on the derivatives (Lemma 7, corrected).

    Attributes:
        inner_norm: Δ₂ ≥ ‖Z_{2:,2:}‖_∞.
        row_norm: ≥ ‖Z_{2:,:}‖_∞, the first column included.
        difference: ≥ ‖(T − Z^a)_{2:,:}‖_∞.
        rho: ≥ ‖F^a φ'(s)‖_∞ for all s; infinite if γΔ₂ ≥ 1.

    Example:
        >>> smooth = certirl.paper.lemma7_corrected(b33=100.0, b30=1.0, discount=0.7)
        >>> smooth.inner_norm < 1, smooth.difference == 2 * smooth.row_norm
        (True, True)
    """

    inner_norm: float
    row_norm: float
    difference: float
    rho: float


def lemma7_corrected(*, b33: float, b30: float, discount: float) -> Lemma7Corrected:
    """Bounds on the matrices of all actions from bounds on derivatives (Lemma 7, corrected).

    ``Δ₂ ≤ √2 (4/π)² ζ(3) b33/π⁶`` and ``ρ ≤ 2 (4/π)² ζ(2) b33/(π⁵(1 − γΔ₂))``.

    Two waves of the same frequency m in the derivative Zφ'(s) add up to at most πm times √(a² + b²), so ρ needs no √2.

    Example:
        >>> smooth = certirl.paper.lemma7_corrected(b33=100.0, b30=1.0, discount=0.7)
        >>> round(smooth.inner_norm, 3), round(smooth.rho, 2)
        (0.287, 2.18)
    """
    check(b33=b33, b30=b30, discount=discount)
    inner, rows = _inner_norm(b33), _row_norm(b33, b30)
    contraction = 1 - discount * inner
    slope = 2 * _WAVE**2 * ZETA2 * b33 / math.pi**5
    rho = slope / contraction if contraction > 0 else math.inf
    return Lemma7Corrected(inner_norm=inner, row_norm=rows, difference=2 * rows, rho=rho)


def corollary12(*, beta: float, delta: float, discount: float, n_actions: int) -> Requirement:
    """Transitions per action for smooth dynamics (Corollary 12, as printed).

    ``|∂⁶p| < π⁶/(4γζ(3))`` gives Δ = 1/(4γ), with cρ = β/2, ε = β/256 and k of order ε^(−½).

    Example:
        >>> needed = certirl.paper.corollary12(beta=0.1, delta=0.05, discount=0.9, n_actions=3)
        >>> needed.applies, needed.size, f"{needed.samples:.1e}"
        (True, 28, '4.7e+11')
    """
    check(beta=beta, delta=delta, discount=discount, n_actions=n_actions)
    norm = 1 / (4 * discount)
    rho, k = lemma10_lipschitz(norm), lemma10_size(beta / 256, norm=norm)
    asked = {"beta": beta, "discount": discount, "delta": delta}
    cover, tail = beta / (2 * rho), lemma10_tail(k, norm=norm)
    return theorem6(k=k, n_actions=n_actions, cover=cover, rho=rho, norm=norm, tail=tail, **asked)


def corollary12_corrected(
    *, beta: float, delta: float, discount: float, n_actions: int, b33: float, b30: float, cover: float = 0.0
) -> Requirement:
    """Transitions per action for smooth dynamics (Corollary 12, corrected and deflated).

    ``n`` is of order β⁻³ log(1/(βδ)), from the two bounds on derivatives alone.

    The tail falls as k⁻² and n grows as k²/(ε* − tail)², so that a third of ε* for the tail is the best share.

    Example:
        >>> needed = certirl.paper.corollary12_corrected(
        ...     beta=0.1, delta=0.05, discount=0.9, n_actions=3, b33=100.0, b30=1.0
        ... )
        >>> needed.applies, needed.size, f"{needed.samples:.1e}"
        (True, 11, '1.1e+08')
    """
    smooth = lemma7_corrected(b33=b33, b30=b30, discount=discount)
    constants: dict[str, Any] = {
        "beta": beta,
        "discount": discount,
        "delta": delta,
        "n_actions": n_actions,
        "inner_norm": smooth.inner_norm,
        "difference": smooth.difference,
        "cover": cover,
        "rho": smooth.rho if cover > 0 and math.isfinite(smooth.rho) else 0.0,
    }
    epsilon = theorem6_deflated(k=2, **constants).epsilon
    if not epsilon > 0:  # for no size does the theorem apply: the record says which condition fails
        return theorem6_deflated(k=2, basis=Fourier(2), **constants)
    k = max(2, lemma10_size_corrected(epsilon / 3, b33=b33, b30=b30))
    return theorem6_deflated(k=k, basis=Fourier(k), tail=lemma10_tail_corrected(k, b33=b33, b30=b30), **constants)


def _inner_norm(b33: float) -> float:
    return math.sqrt(2) * _WAVE**2 * ZETA3 * b33 / math.pi**6


def _row_norm(b33: float, b30: float) -> float:
    return _inner_norm(b33) + math.sqrt(2) * _WAVE * b30 / math.pi**3


def _smallest(enough: Callable[[int], bool]) -> int:
    """The first k ≥ 1 for which a condition that stays true holds."""
    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
