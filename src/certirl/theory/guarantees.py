"""Theorems 3 and 6 and Lemmas 4 and 5 as calculators: which errors of the matrices suffice, and how many samples.

Each statement comes as printed and corrected. The corrected forms never estimate the first row of Z, which is
(1, 0, 0, …), and carry the size of the basis functions; docs/notes/theorem6.md proves them, docs/notes/errata.md says
why they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from certirl.functions.bases import Basis, as_basis
from certirl.ground.domain import as_domain, one_coordinate
from certirl.ground.doors import as_count, as_number, as_probability, setting

_PROBABILITIES = ("delta", "discount")
_POSITIVE = ("epsilon", "beta", "sup", "mass", "slope")
_LEAST = {"k": 1, "columns": 1, "samples": 1, "n_actions": 2, "actions": 2, "size": 2}

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def check(**arguments: Any) -> None:
    """Refuse, with a sentence, an argument outside the range its name has in every theorem here."""
    for name, value in arguments.items():
        if name in _LEAST:
            as_count(value, name, least=_LEAST[name])
        elif name in _PROBABILITIES:
            as_probability(value, name)
        else:
            as_number(value, name, least=0, strict=name in _POSITIVE)


def countable(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Wrap a calculator: a sentence where the number that its theorem asks for exceeds double precision."""

    @wraps(function)
    def counted(*arguments: Arguments.args, **settings: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **settings)
        except (OverflowError, ZeroDivisionError):
            raise ValueError(
                "these numbers are too extreme: the theorem would ask for more than 1e308 transitions or rows"
            ) from None

    return counted


@countable
def theorem3_samples(epsilon: float, delta: float, k: int) -> int:
    """``n ≥ (8k²/ε²) log(2k²/δ)`` gives ‖Ẑ − [Z]_k‖_∞ < ε with probability 1 − δ (Theorem 3, as printed).

    With a tail of at most ε this is ‖Ẑ − Z‖_∞ < 2ε. The printed constant needs |φ_iφ_j| ≤ 1 and ∫μ = 2.
    """
    check(epsilon=epsilon, delta=delta, k=k)
    return _whole(8 * k**2 / epsilon**2 * math.log(2 * k**2 / delta))


def theorem3_error(samples: int, delta: float, k: int) -> float:
    """``ε = √(8k² log(2k²/δ)/n)``: the inverse of `theorem3_samples` (Theorem 3, as printed)."""
    check(samples=samples, delta=delta, k=k)
    return math.sqrt(8 * k**2 / samples * math.log(2 * k**2 / delta))


@countable
def theorem3_samples_corrected(
    epsilon: float,
    delta: float,
    k: int,
    *,
    basis: Basis | None = None,
    columns: int | None = None,
    sup: float = 1.0,
    mass: float = 2.0,
    deflate: bool = True,
) -> int:
    """``n ≥ (2/ε²)(∫μ·max_i u_i·Σ_j v_j)² log(2·rows·columns/δ)`` for |φ_i| ≤ u_i, |φ_j| ≤ v_j (Theorem 3, corrected).

    For the mean form of the estimate. One term of entry (i, j) lies within ±∫μ·u_i·v_j; Hoeffding's inequality bounds
    each entry by its own multiple of that, a union bound makes them hold together, and the bounds of a row add up.

    Args:
        epsilon: the error of ‖Ẑ − [Z]‖_∞ to allow.
        delta: the probability of reaching it.
        k: the functions of the next state.
        basis: gives every sup|φ_i| and ∫μ.
        columns: k_s, the functions of the state; k if left out.
        sup: without a basis, a bound on every |φ_i|.
        mass: without a basis, ∫μ.
        deflate: the first row is known, and k − 1 rows are estimated.
    """
    check(epsilon=epsilon, delta=delta, k=k)
    entries, reach = _entries(k, basis, columns, sup, mass, deflate)
    return _whole(2 * (reach / epsilon) ** 2 * math.log(2 * entries / delta))


def theorem3_error_corrected(
    samples: int,
    delta: float,
    k: int,
    *,
    basis: Basis | None = None,
    columns: int | None = None,
    sup: float = 1.0,
    mass: float = 2.0,
    deflate: bool = True,
) -> float:
    """``ε = ∫μ·max_i u_i·Σ_j v_j·√(2 log(2·rows·columns/δ)/n)``: the inverse of `theorem3_samples_corrected`."""
    check(samples=samples, delta=delta, k=k)
    entries, reach = _entries(k, basis, columns, sup, mass, deflate)
    return reach * math.sqrt(2 / samples * math.log(2 * entries / delta))


def _entries(
    k: int, basis: Basis | None, columns: int | None, sup: float, mass: float, deflate: bool
) -> tuple[int, float]:
    """The number of estimated entries, and ∫μ · max_i u_i · Σ_j v_j."""
    columns = k if columns is None else columns
    check(columns=columns, sup=sup, mass=mass)
    if columns > k:
        raise ValueError(f"{setting('columns')} must be at most {setting('k')} = {k}, got {columns}")
    if deflate and k < 2:
        raise ValueError(
            f"{setting('k')} must be at least 2 when the row of the constant function is not estimated, got {k}"
        )
    first = 1 if deflate else 0
    if basis is None:
        return (k - first) * columns, float(mass * sup * sup * columns)
    sups = _resized(basis, k).sup()
    return (k - first) * columns, float(basis.mass * sups[first:].max() * sups[:columns].sum())


def _resized(basis: Any, k: int) -> Basis:
    basis = as_basis(basis, most=math.inf)
    return basis if basis.size == k else basis.resized(k)


def lemma4_error(epsilon: float, discount: float, norm: float) -> float:
    """``‖F̂ − F‖_∞ ≤ 2ε/(1 − γΔ)²`` when every ‖Z‖, ‖Ẑ‖ ≤ Δ < 1/γ and every ‖Ẑ − Z‖ ≤ ε (Lemma 4, as printed)."""
    check(epsilon=epsilon, discount=discount, norm=norm)
    return 2 * epsilon / _contraction(discount, norm) ** 2


def lemma4_error_sharp(epsilon: float, discount: float, norm_T_hat: float, norm_F: float) -> float:
    """``‖F̂ − F‖_∞ ≤ ε(2 + γ‖F‖)/(1 − γ‖T̂‖)`` (Lemma 4, sharpened).

    Taking norms in F̂ − F = (I − γT̂)⁻¹[(T̂−T) − (Ẑ−Z) + γ(T̂−T)F]. The printed lemma follows with ‖F‖ ≤ 2Δ/(1 − γΔ).
    After deflation all four matrices lose their first row, and T̂ also its first column.
    """
    check(epsilon=epsilon, discount=discount, norm=norm_T_hat, F_norm=norm_F)
    return epsilon * (2 + discount * norm_F) / _contraction(discount, norm_T_hat)


def lemma5_tolerance(beta: float, cover: float, rho: float, *, sup: float = 1.0) -> float:
    """``‖F̂ − F‖_∞ < (β − cρ)/(2 sup|φ|)`` makes the reward correct (Lemma 5); not positive where β ≤ cρ.

    The printed lemma has sup|φ| = 1; in general ‖(F̂ − F)φ(s)‖_∞ ≤ ‖F̂ − F‖_∞ sup|φ|. On the whole interval c = 0.
    """
    check(beta=beta, cover=cover, rho=rho, sup=sup)
    return (beta - cover * rho) / (2 * sup)


def cover_limit(beta: float, rho: float) -> float:
    """``c < β/ρ``: the cover radius that Lemma 5 must stay below; infinite for ρ = 0."""
    check(beta=beta, rho=rho)
    return float(beta / rho) if rho > 0 else math.inf


@countable
def cover_size(domain: Any, radius: float, *, literal: bool = False) -> int:
    """``⌈width/(2c)⌉`` midpoints put every state within c of one of them (Algorithm 2, step 3); printed: ⌈width/c⌉."""
    one_coordinate(as_domain(domain), "the count is")
    ((low, high),) = as_domain(domain)
    if not radius > 0:
        raise ValueError(f"the cover radius must be positive, got {radius}")
    return max(1, _whole((high - low) / (radius if literal else 2 * radius)))


def program_rows(domain: Any, radius: float, *, n_actions: int, literal: bool = False) -> int:
    """``(|A| − 1)·size``: the constraints of the program on a cover of that size (Theorem 6)."""
    check(n_actions=n_actions)
    return (n_actions - 1) * cover_size(domain, radius, literal=literal)


@dataclass(frozen=True)
class Condition:
    """``value < bound`` (or ≤, as the statement says): one hypothesis of a theorem, and whether it holds."""

    name: str
    statement: str
    value: float
    bound: float
    holds: bool

    def __str__(self) -> str:
        bound = "no bound" if math.isnan(self.bound) else f"{self.bound:.4g}"
        return f"{self.statement}: {self.value:.4g} against {bound}, {'holds' if self.holds else 'FAILS'}"


@dataclass(frozen=True)
class Requirement:
    """What a theorem requires for its guarantee of a correct reward.

    Attributes:
        title: which theorem.
        conditions: its hypotheses on the problem.
        samples: transitions per action; None where a condition fails and the theorem says nothing.
        epsilon: the error ‖Ẑ − Z‖_∞ that it allows, the tail included; NaN where none is small enough.
        size: k, the variables of the program.
        cover: c; zero for the whole interval.
        cover_limit: what c must stay below.
        rows: constraints of the program; None on the whole interval, where the solver adds them one by one.
    """

    title: str
    conditions: tuple[Condition, ...]
    samples: int | None
    epsilon: float
    size: int
    cover: float
    cover_limit: float
    rows: int | None

    @property
    def applies(self) -> bool:
        """Whether every condition holds."""
        return all(condition.holds for condition in self.conditions)

    def __str__(self) -> str:
        need = f"{grouped(self.samples)} transitions per action" if self.samples is not None else "does not apply"
        rows = "rows added as needed" if self.rows is None else f"{grouped(self.rows)} rows"
        lines = [f"{self.title}: {need}; {self.size} variables, {rows}", *(f"  {c}" for c in self.conditions)]
        return "\n".join(lines)


@countable
def theorem6(
    *,
    beta: float,
    discount: float,
    delta: float,
    k: int,
    n_actions: int,
    cover: float,
    rho: float,
    norm: float,
    tail: float = 0.0,
) -> Requirement:
    """``n ≥ max{32, 8³/((β−cρ)²(½−γΔ)⁴)} k² log(2k²|A|/δ)`` (Theorem 6, as printed).

    Args:
        beta: β, the separability.
        discount: γ.
        delta: the probability of failure.
        k: the number of functions.
        n_actions: |A|.
        cover: c.
        rho: ρ ≥ ‖F^aφ'(s)‖_∞.
        norm: Δ ≥ ‖Z^a‖_∞ for every action; never below 1 where the first function is constant.
        tail: ‖Z^a − [Z^a]_k‖_∞.
    """
    check(
        beta=beta, discount=discount, delta=delta, k=k, n_actions=n_actions, cover=cover, rho=rho, norm=norm, tail=tail
    )
    separation, contraction = beta - cover * rho, 0.5 - discount * norm
    epsilon = separation / 4 * contraction**2 if separation > 0 and contraction > 0 else math.nan
    conditions = (
        _condition("separation", "cρ < β", cover * rho, beta, separation > 0),
        _condition("contraction", "Δ < 1/(2γ)", norm, 1 / (2 * discount), contraction > 0),
        _condition("truncation", "tail ≤ (β − cρ)(½ − γΔ)²/8", tail, epsilon / 2, tail <= epsilon / 2),
    )
    samples = None
    if all(condition.holds for condition in conditions):
        samples = _whole(
            max(32.0, 8**3 / (separation**2 * contraction**4)) * k**2 * math.log(2 * k**2 * n_actions / delta)
        )
    rows = program_rows((-1, 1), cover, n_actions=n_actions, literal=True) if cover > 0 else None
    return Requirement(
        "Theorem 6 as printed", conditions, samples, float(epsilon), int(k), cover, cover_limit(beta, rho), rows
    )


@countable
def theorem6_deflated(
    *,
    beta: float,
    discount: float,
    delta: float,
    k: int,
    n_actions: int,
    inner_norm: float,
    difference: float,
    cover: float = 0.0,
    rho: float = 0.0,
    tail: float = 0.0,
    basis: Basis | None = None,
    columns: int | None = None,
) -> Requirement:
    """``ε* = b(1−γΔ₂)/(S(2+γ‖F‖) + γb)``, b = (β−cρ)/2, and n from Theorem 3 for ε* − tail (Theorem 6, deflated).

    With every ‖(Ẑ−Z)_{2:,:}‖_∞ < ε the sharpened Lemma 4 gives ‖F̂−F‖_∞ < ε(2+γ‖F‖)/(1−γ(Δ₂+ε)); ε* makes S = sup|φ|
    times this equal to b, which is what Lemma 5 asks for. Proof: docs/notes/theorem6.md.

    Args:
        beta: β, the separability; by rewards in the span of the k functions, or else see ``tail``.
        discount: γ.
        delta: the probability of failure.
        k: the functions of rewards and values.
        n_actions: |A|.
        inner_norm: Δ₂ ≥ ‖T_{2:,2:}‖_∞, of the expert's operator only.
        difference: ≥ ‖(T − Z^a)_{2:,:}‖_∞ for every other action; ‖F‖_∞ ≤ difference/(1 − γΔ₂).
        cover: c; zero when the program is solved on the whole interval.
        rho: ρ ≥ ‖F^aφ'(s)‖_∞; needed with a cover only.
        tail: the largest sum Σ_{j>k_s} |Z^a_ij| of a row 2 … k; with β over all rewards, also of whole rows beyond k.
            Where sup|φ_j| exceeds S beyond the last column (Legendre), weigh those entries by sup|φ_j|/S, here and in
            ``difference``.
        basis: gives sup|φ_i| and ∫μ; left out, 1 and 2.
        columns: k_s, the functions of the state; k if left out.
    """
    check(beta=beta, discount=discount, delta=delta, k=k, n_actions=n_actions, cover=cover, rho=rho, tail=tail)
    check(inner_norm=inner_norm, difference=difference)
    sup = 1.0 if basis is None else float(_resized(basis, k).sup()[:columns].max())
    separation, contraction = beta - cover * rho, 1 - discount * inner_norm
    epsilon = math.nan
    if separation > 0 and contraction > 0:
        epsilon = (
            separation / 2 * contraction / (sup * (2 + discount * difference / contraction) + discount * separation / 2)
        )
    conditions = (
        _condition("separation", "cρ < β", cover * rho, beta, separation > 0),
        _condition("contraction", "Δ₂ < 1/γ", inner_norm, 1 / discount, contraction > 0),
        _condition("truncation", "tail < ε*", tail, epsilon, tail < epsilon),
    )
    samples = None
    if all(condition.holds for condition in conditions):
        samples = theorem3_samples_corrected(epsilon - tail, delta / n_actions, k, basis=basis, columns=columns)
    domain = (-1, 1) if basis is None else basis.domain
    rows = program_rows(domain, cover, n_actions=n_actions) if cover > 0 else None
    return Requirement(
        "Theorem 6 deflated", conditions, samples, float(epsilon), int(k), cover, cover_limit(beta, rho), rows
    )


def _condition(name: str, statement: str, value: float, bound: float, holds: bool) -> Condition:
    """A condition with Python's numbers, also where NumPy's came in."""
    return Condition(name, statement, float(value), float(bound), bool(holds))


def _contraction(discount: float, norm: float) -> float:
    """1 − γΔ, which must be positive for the series of F to converge in norm."""
    if not discount * norm < 1:
        raise ValueError(f"the norm must stay below 1/γ = {1 / discount:.4g}, got {norm}")
    return 1 - discount * norm


def grouped(count: int) -> str:
    """A count as 12,345,678, and as 1.23e+18 from 10¹⁵ on."""
    return f"{count:,}" if count < 10**15 else f"{count:.3g}"


def _whole(number: float) -> int:
    """Round up, but for the last few bits, so that a sample size and its error invert each other."""
    return math.ceil(number * (1 - 1e-14))
