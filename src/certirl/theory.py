"""The theorems of the paper as calculators, as printed and corrected: guarantees before any data are drawn.

- Definition 2, the separability β: `separability`, and all constants of a problem: `constants`.
- Theorem 3, samples for an error of Ẑ: `theorem3_samples`, `theorem3_error`; corrected: `theorem3_samples_corrected`,
  `theorem3_error_corrected`.
- Lemma 4, the error of F̂: `lemma4_error`; sharpened: `lemma4_error_sharp`.
- Lemma 5 and Algorithm 2, covers: `lemma5_tolerance`, `cover_limit`, `cover_size`, `program_rows`.
- Theorem 6, samples for a correct reward: `theorem6`; deflated: `theorem6_deflated`; side by side: `requirements`.
- Lemma 7, smooth dynamics: `lemma10_lipschitz` and `lemma10_size`; corrected: `lemma7_corrected`.
- Lemma 10, truncation: `lemma10_tail`, `lemma10_size`, `lemma10_lipschitz`; corrected: `lemma10_tail_corrected`,
  `lemma10_size_corrected`.
- Lemma 11, decay of Z: `lemma11_coefficients`, `lemma11_norm`; corrected: `lemma11_coefficients_corrected`.
- Corollary 12, samples for smooth dynamics: `corollary12`; corrected: `corollary12_corrected`.

The corrected forms never estimate the first row of Z, which is (1, 0, 0, …), and contain the sizes of the basis
functions; docs/notes/theorem6.md proves them, docs/notes/errata.md says why they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from certirl.fit.bellman import Bellman, Operators, bellman
from certirl.fit.recover import recover
from certirl.functions.bases import Basis, Fourier, as_basis
from certirl.functions.extrema import minimum
from certirl.ground.domain import Array, as_domain, one_coordinate
from certirl.ground.doors import as_count, as_number, as_probability, setting, shown, typed
from certirl.ground.records import Record

__all__ = [
    "Condition",
    "Constants",
    "Lemma7Corrected",
    "Requirement",
    "Requirements",
    "constants",
    "corollary12",
    "corollary12_corrected",
    "cover_limit",
    "cover_size",
    "lemma4_error",
    "lemma4_error_sharp",
    "lemma5_tolerance",
    "lemma7_corrected",
    "lemma10_lipschitz",
    "lemma10_size",
    "lemma10_size_corrected",
    "lemma10_tail",
    "lemma10_tail_corrected",
    "lemma11_coefficients",
    "lemma11_coefficients_corrected",
    "lemma11_norm",
    "program_rows",
    "requirements",
    "separability",
    "theorem3_error",
    "theorem3_error_corrected",
    "theorem3_samples",
    "theorem3_samples_corrected",
    "theorem6",
    "theorem6_deflated",
]

_PROBABILITIES = ("delta", "discount")
_POSITIVE = ("epsilon", "beta", "sup")
_LEAST = {"k": 1, "columns": 1, "samples": 1, "n_actions": 2, "actions": 2, "size": 2}

_MOST = {"k": 10**6, "columns": 10**6, "size": 10**6}  # functions
_MOST_ENTRIES = 10_000  # rows of a matrix of bounds

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def __dir__() -> list[str]:
    return __all__


def _check(**arguments: Any) -> None:
    """Refuse, with a sentence, an argument outside the range its name has in every theorem here."""
    for name, value in arguments.items():
        if name in _LEAST:
            as_count(value, name, least=_LEAST[name], most=_MOST.get(name, 10**18))
        elif name in _PROBABILITIES:
            as_probability(value, name)
        else:
            as_number(value, name, least=0, strict=name in _POSITIVE)


def _countable(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Wrap a calculator: a sentence where the number that its theorem asks for exceeds double precision."""

    @wraps(function)
    def counted(*arguments: _Arguments.args, **settings: _Arguments.kwargs) -> _Result:
        try:
            return function(*arguments, **settings)
        except (OverflowError, ZeroDivisionError):
            raise ValueError(
                "these numbers are too extreme: the theorem would ask for more than 1e308 transitions or rows"
            ) from None

    return counted


@_countable
def theorem3_samples(epsilon: float, delta: float, k: int) -> int:
    """Transitions per action for an error below ε of Ẑ, with probability 1 − δ (Theorem 3, as printed).

    ``n ≥ (8k²/ε²) log(2k²/δ)`` gives ‖Ẑ − [Z]_k‖_∞ < ε.

    With a tail of at most ε this is ‖Ẑ − Z‖_∞ < 2ε. The printed constant needs |φ_iφ_j| ≤ 1 and ∫μ = 2.

    Example:
        >>> certirl.theory.theorem3_samples(0.1, delta=0.05, k=5)
        138156
    """
    _check(epsilon=epsilon, delta=delta, k=k)
    return _whole(8 * k**2 / epsilon**2 * math.log(2 * k**2 / delta))


def theorem3_error(samples: int, delta: float, k: int) -> float:
    """The error of Ẑ from n transitions per action: the inverse of `theorem3_samples`.

    ``ε = √(8k² log(2k²/δ)/n)`` (Theorem 3, as printed).

    Example:
        >>> round(certirl.theory.theorem3_error(100_000, delta=0.05, k=5), 3)
        0.118
    """
    _check(samples=samples, delta=delta, k=k)
    return math.sqrt(8 * k**2 / samples * math.log(2 * k**2 / delta))


@_countable
def theorem3_samples_corrected(
    epsilon: float,
    delta: float,
    k: int,
    *,
    basis: Basis | None = None,
    columns: int | None = None,
    deflate: bool = True,
) -> int:
    """Transitions per action for an error below ε of Ẑ, with probability 1 − δ (Theorem 3, corrected).

    ``n ≥ (2/ε²)(∫μ·max_i u_i·Σ_j v_j)² log(2·rows·columns/δ)`` for |φ_i| ≤ u_i, |φ_j| ≤ v_j.

    For the mean form of the estimate. One term of entry (i, j) lies within ±∫μ·u_i·v_j; Hoeffding's inequality bounds
    each entry by its own multiple of that, a union bound makes them hold together, and the bounds of a row add up.

    Args:
        epsilon: the error of ‖Ẑ − [Z]‖_∞ to allow.
        delta: the probability of a larger error.
        k: the functions of the next state.
        basis: gives every sup|φ_i| and ∫μ; 1 and 2 if left out.
        columns: k_s, the functions of the state; k if left out.
        deflate: the first row is known, so that only k − 1 rows are estimated.

    Example:
        >>> certirl.theory.theorem3_samples_corrected(0.1, delta=0.05, k=5, basis=certirl.Legendre(5))
        1355490
    """
    _check(epsilon=epsilon, delta=delta, k=k)
    entries, reach = _entries(k, basis, columns, deflate)
    return _whole(2 * (reach / epsilon) ** 2 * math.log(2 * entries / delta))


def theorem3_error_corrected(
    samples: int, delta: float, k: int, *, basis: Basis | None = None, columns: int | None = None, deflate: bool = True
) -> float:
    """The error of Ẑ from n transitions per action: the inverse of `theorem3_samples_corrected`.

    ``ε = ∫μ·max_i u_i·Σ_j v_j·√(2 log(2·rows·columns/δ)/n)``.

    Example:
        >>> round(certirl.theory.theorem3_error_corrected(100_000, delta=0.05, k=5, basis=certirl.Legendre(5)), 3)
        0.368
    """
    _check(samples=samples, delta=delta, k=k)
    entries, reach = _entries(k, basis, columns, deflate)
    return reach * math.sqrt(2 / samples * math.log(2 * entries / delta))


def _entries(k: int, basis: Basis | None, columns: int | None, deflate: bool) -> tuple[int, float]:
    """The number of estimated entries, and ∫μ · max_i u_i · Σ_j v_j."""
    columns = k if columns is None else columns
    _check(columns=columns)
    if columns > k:
        raise ValueError(f"{setting('columns')} must be at most {setting('k')} = {k}, got {columns}")
    if deflate and k < 2:
        raise ValueError(
            f"{setting('k')} must be at least 2 when the row of the constant function is not estimated, got {k}"
        )
    first = 1 if deflate else 0
    if basis is None:
        return (k - first) * columns, 2.0 * columns
    sups = _resized(basis, k).sup()
    return (k - first) * columns, float(basis.mass * sups[first:].max() * sups[:columns].sum())


def _resized(basis: Any, k: int) -> Basis:
    basis = as_basis(basis, most=math.inf)
    return basis if basis.size == k else basis.resized(k)


def lemma4_error(epsilon: float, discount: float, norm: float) -> float:
    """A bound on the error of F̂ from that of Ẑ (Lemma 4, as printed).

    ``‖F̂ − F‖_∞ ≤ 2ε/(1 − γΔ)²`` when every ‖Z‖, ‖Ẑ‖ ≤ Δ < 1/γ and every ‖Ẑ − Z‖ ≤ ε.

    Example:
        >>> round(certirl.theory.lemma4_error(0.01, discount=0.5, norm=1.2), 3)
        0.125
    """
    _check(epsilon=epsilon, discount=discount, norm=norm)
    return 2 * epsilon / _contraction(discount, norm) ** 2


def lemma4_error_sharp(epsilon: float, discount: float, norm_T_hat: float, norm_F: float) -> float:
    """A bound on the error of F̂ from that of Ẑ (Lemma 4, sharpened).

    ``‖F̂ − F‖_∞ ≤ ε(2 + γ‖F‖)/(1 − γ‖T̂‖)``.

    Taking norms in F̂ − F = (I − γT̂)⁻¹[(T̂−T) − (Ẑ−Z) + γ(T̂−T)F]. The printed lemma follows with ‖F‖ ≤ 2Δ/(1 − γΔ).
    After deflation all four matrices lose their first row, and T̂ also its first column.

    Example:
        >>> round(certirl.theory.lemma4_error_sharp(0.01, discount=0.9, norm_T_hat=0.1, norm_F=0.5), 4)
        0.0269
    """
    _check(epsilon=epsilon, discount=discount, norm=norm_T_hat, F_norm=norm_F)
    return epsilon * (2 + discount * norm_F) / _contraction(discount, norm_T_hat)


def lemma5_tolerance(beta: float, cover: float, rho: float, *, sup: float = 1.0) -> float:
    """The error of F̂ below which the reward is correct (Lemma 5); not positive where β ≤ cρ.

    ``‖F̂ − F‖_∞ < (β − cρ)/(2 sup|φ|)``.

    The printed lemma has sup|φ| = 1; in general ‖(F̂ − F)φ(s)‖_∞ ≤ ‖F̂ − F‖_∞ sup|φ|. On the whole interval c = 0.

    Example:
        >>> round(certirl.theory.lemma5_tolerance(0.1, cover=0.05, rho=1.0), 3)
        0.025
    """
    _check(beta=beta, cover=cover, rho=rho, sup=sup)
    return (beta - cover * rho) / (2 * sup)


def cover_limit(beta: float, rho: float) -> float:
    """The bound that the radius of a cover must stay below, ``c < β/ρ`` (Lemma 5); infinite for ρ = 0.

    Example:
        >>> round(certirl.theory.cover_limit(0.1, rho=2.0), 3)
        0.05
    """
    _check(beta=beta, rho=rho)
    return float(beta / rho) if rho > 0 else math.inf


@_countable
@typed
def cover_size(domain: Any, radius: float, *, literal: bool = False) -> int:
    """The number of states of a cover with radius c (Algorithm 2, step 3).

    ``⌈width/(2c)⌉`` midpoints put every state within c of one of them; as printed it is ⌈width/c⌉.

    Example:
        >>> certirl.theory.cover_size((-1, 1), 0.05), certirl.theory.cover_size((-1, 1), 0.05, literal=True)
        (20, 40)
    """
    one_coordinate(as_domain(domain), "the count is")
    ((low, high),) = as_domain(domain)
    as_number(radius, "radius", least=0, strict=True)
    return max(1, _whole((high - low) / (radius if literal else 2 * radius)))


def program_rows(domain: Any, radius: float, *, n_actions: int, literal: bool = False) -> int:
    """The constraints of the program on a cover: ``(|A| − 1)·size`` (Theorem 6).

    Example:
        >>> certirl.theory.program_rows((-1, 1), 0.05, n_actions=3)
        40
    """
    _check(n_actions=n_actions)
    return (n_actions - 1) * cover_size(domain, radius, literal=literal)


@dataclass(frozen=True)
class Condition(Record):
    """``value < bound`` (or ≤, as the statement says): one hypothesis of a theorem, and whether it holds.

    Example:
        >>> conditions = certirl.theory.requirements(discount=0.7, beta=0.1).literal.conditions
        >>> [(condition.name, condition.holds) for condition in conditions]
        [('separation', True), ('contraction', False), ('truncation', False)]
    """

    name: str
    statement: str
    value: float
    bound: float
    holds: bool

    def __str__(self) -> str:
        bound = "no bound" if math.isnan(self.bound) else f"{self.bound:.4g}"
        return f"{self.statement}: {self.value:.4g} against {bound}, {'holds' if self.holds else 'FAILS'}"


@dataclass(frozen=True)
class Requirement(Record):
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

    Example:
        >>> needed = certirl.theory.requirements(discount=0.7, beta=0.1).exact
        >>> needed.applies, f"{needed.samples:.1e}", needed.rows
        (True, '2.2e+07', None)
    """

    title: str
    conditions: tuple[Condition, ...]
    samples: int | None
    epsilon: float
    size: int
    cover: float
    cover_limit: float
    rows: int | None
    _derived: ClassVar[tuple[str, ...]] = ("applies",)

    @property
    def applies(self) -> bool:
        """Whether every condition holds."""
        return all(condition.holds for condition in self.conditions)

    def __str__(self) -> str:
        need = f"{_grouped(self.samples)} transitions per action" if self.samples is not None else "does not apply"
        rows = "rows added as needed" if self.rows is None else f"{_grouped(self.rows)} rows"
        lines = [f"{self.title}: {need}; {self.size} variables, {rows}", *(f"  {c}" for c in self.conditions)]
        return "\n".join(lines)


@_countable
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
    """Transitions per action for a correct reward with probability 1 − δ (Theorem 6, as printed).

    ``n ≥ max{32, 8³/((β−cρ)²(½−γΔ)⁴)} k² log(2k²|A|/δ)``.

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

    Example:
        >>> printed = certirl.theory.theorem6(
        ...     beta=0.1, discount=0.3, delta=0.05, k=11, n_actions=3, cover=0.05, rho=1.0, norm=1.0
        ... )
        >>> printed.applies, f"{printed.samples:.1e}"
        (True, '1.5e+11')
    """
    _check(
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


@_countable
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
    """Transitions per action for a correct reward with probability 1 − δ (Theorem 6, deflated).

    ``ε* = b(1−γΔ₂)/(S(2+γ‖F‖) + γb)``, b = (β−cρ)/2, and n from Theorem 3 for ε* − tail.

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

    Example:
        >>> deflated = certirl.theory.theorem6_deflated(
        ...     beta=0.1, discount=0.7, delta=0.05, k=11, n_actions=3, inner_norm=0.1, difference=0.3
        ... )
        >>> deflated.applies, f"{deflated.samples:.1e}"
        (True, '2.2e+07')
    """
    _check(beta=beta, discount=discount, delta=delta, k=k, n_actions=n_actions, cover=cover, rho=rho, tail=tail)
    _check(inner_norm=inner_norm, difference=difference)
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


def _grouped(count: int) -> str:
    """A count as 12,345,678, and as 1.23e+18 from 10¹⁵ on."""
    return f"{count:,}" if count < 10**15 else f"{count:.3g}"


def _whole(number: float) -> int:
    """Round up, but for the last few bits, so that a sample size and its error invert each other."""
    return math.ceil(number * (1 - 1e-14))


# The constants of a problem, and Theorem 6 in both forms --------------------------------------------------------------


@dataclass(frozen=True)
class Constants(Record):
    """The constants of a problem in the hypotheses of the theorems, from its k × k_s matrices.

    Attributes:
        norm: Δ = max_a ‖Z^a‖_∞; at least 1, the first row.
        inner_norm: Δ₂ = ‖T_{2:,2:}‖_∞ of the expert.
        row_norm: max_a ‖Z^a_{2:,:}‖_∞.
        difference: max_a ‖(T − Z^a)_{2:,:}‖_∞.
        F_norm: max_a ‖F^a‖_∞.
        rho: max_a sup_s ‖F^aφ'(s)‖_∞, by the roots of each second derivative: exact to rounding.
        beta: the separability of Definition 2; 0 if no reward exists, NaN if the program did not decide that.
        beta_sup: 1/‖α̂‖_∞ of the reward with the least ‖α‖₁, which the appendix calls β; 0 and NaN likewise.

    Example:
        >>> operators = certirl.problems.random_polynomial(seed=1).operators(certirl.Legendre(7))
        >>> constants = certirl.theory.constants(operators, discount=0.7)
        >>> constants.norm >= 1 > constants.inner_norm, constants.beta > 0
        (True, True)
    """

    norm: float
    inner_norm: float
    row_norm: float
    difference: float
    F_norm: float
    rho: float
    beta: float
    beta_sup: float


def constants(problem: Operators | Bellman, *, discount: float | None = None, expert: int = 0) -> Constants:
    """Δ, Δ₂, ρ, ‖F‖ and β from a problem's matrices (the hypotheses of Theorem 6).

    Args:
        problem: operators, or the criterion formed from them (which contains its discount and expert).
        discount: γ; needed with operators.
        expert: the action the expert always takes; read with operators only.

    Example:
        >>> operators = certirl.problems.random_polynomial(seed=1).operators(certirl.Legendre(7))
        >>> round(certirl.theory.constants(operators, discount=0.7).beta, 4)
        0.0422
    """
    criterion = _criterion(problem, discount, expert)
    T, gaps = criterion.T, criterion.advantage
    return Constants(
        norm=_norm(np.concatenate([T[None], T - gaps])),
        inner_norm=_norm(T[1:, 1:]),
        row_norm=_norm(np.concatenate([T[None], T - gaps])[:, 1:]),
        difference=_norm(gaps[:, 1:]),
        F_norm=_norm(criterion.F),
        rho=_steepest(criterion),
        beta=separability(criterion),
        beta_sup=_separability_sup(criterion),
    )


def separability(problem: Operators | Bellman, *, discount: float | None = None, expert: int = 0) -> float:
    """The separability β of a problem (Definition 2); 0 if no reward exists, NaN if undetermined.

    ``β = max_α min_{s,a} αᵀF^aφ(s)`` over ‖α‖₁ = 1.

    Example:
        >>> exact = certirl.problems.random_polynomial(seed=1).operators(certirl.Legendre(7))
        >>> round(certirl.theory.separability(exact, discount=0.7), 4)
        0.0422
        >>> none = certirl.problems.unsolvable(seed=1).operators(certirl.Legendre(7))
        >>> certirl.theory.separability(none, discount=0.7)
        0.0
    """
    recovery = recover(_criterion(problem, discount, expert), objective="max-margin")
    return recovery.margin if recovery.status == "solved" else 0.0 if recovery.status == "infeasible" else math.nan


def _separability_sup(criterion: Bellman) -> float:
    recovery = recover(criterion, objective="l1")
    if recovery.reward is None:
        return 0.0 if recovery.status == "infeasible" else math.nan
    return float(1 / np.abs(recovery.reward.coefficients).max())


def _criterion(problem: Operators | Bellman, discount: float | None, expert: int) -> Bellman:
    if isinstance(problem, Bellman):
        return problem
    if not isinstance(problem, Operators):
        raise TypeError(f"constants need operators, or the criterion made of them, got {shown(problem)}")
    if discount is None:
        raise ValueError("operators do not contain γ: pass discount as well")
    return bellman(problem, discount=discount, expert=expert)


def _norm(matrices: Array) -> float:
    """‖·‖_∞, the largest row sum, over a stack of matrices."""
    return float(np.abs(matrices).sum(axis=-1).max(initial=0.0))


def _steepest(criterion: Bellman) -> float:
    """ρ = max_{a,i} sup_s |(F^aφ')_i(s)|; slopes are expansions too, so the oracle for exact minima finds it."""
    columns = criterion.columns.resized(criterion.columns.size | 1)  # a last sine needs its cosine
    nodes, weights = columns.quadrature(4 * columns.size + 40)
    narrow = criterion.columns.derivative(nodes)
    derivative = narrow.T @ (weights[:, None] * columns.values(nodes))
    slopes = (criterion.F @ derivative).reshape(-1, columns.size)
    return max(
        (-minimum(columns, sign * slope)[1] for slope in slopes if slope.any() for sign in (1.0, -1.0)), default=0.0
    )


# What `requirements` assumes of arguments left out: the setting of the paper's third figure, and the norms without the
# constant function as measured on its random problems.
ASSUMED: dict[str, float] = {
    "delta": 0.05,
    "size": 11,
    "actions": 3,
    "cover": 0.05,
    "norm": 1.45,
    "inner_norm": 0.1,
    "difference": 0.3,
    "tail": 0.0,
}


@dataclass(frozen=True)
class Requirements(Record):
    """Theorem 6 as printed and deflated, side by side.

    Attributes:
        literal: the printed theorem.
        deflated: the corrected one, with the same cover.
        exact: the corrected one on the whole interval, without a cover.
        discount: γ.
        beta: β.
        assumed: the values assumed for arguments left out, one phrase each.

    Example:
        >>> needed = certirl.theory.requirements(discount=0.7, beta=0.1)
        >>> needed.literal.applies, needed.deflated.applies
        (False, True)
        >>> print(needed.advice[-1])
        These are worst cases, guaranteed before any data are drawn; the method usually succeeds with far fewer.
    """

    literal: Requirement
    deflated: Requirement
    exact: Requirement
    discount: float
    beta: float
    assumed: tuple[str, ...]
    _derived: ClassVar[tuple[str, ...]] = ("advice",)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to change so that the theorem applies, one sentence each."""
        failing = {condition.name for condition in self.deflated.conditions if not condition.holds}
        lines = []
        if not self.literal.conditions[1].holds:
            lines.append(
                "The printed theorem needs Δ < 1/(2γ); the constant function alone makes Δ ≥ 1, so it applies to "
                "γ < ½ only. The deflated theorem has no such limit."
            )
        if "separation" in failing:
            lines.append(f"The cover is too coarse: take cover < β/ρ = {self.deflated.cover_limit:.4g}, or 0.")
        if "contraction" in failing:
            lines.append(f"Δ₂ must stay below 1/γ = {1 / self.discount:.4g}: a smaller discount or another basis.")
        elif "separation" not in failing and "truncation" in failing:
            lines.append(f"The tail must stay below ε* = {self.deflated.epsilon:.4g}: take more functions or columns.")
        if self.deflated.cover > 0 and self.exact.samples is not None:
            count = _grouped(self.exact.samples)
            lines.append(f"Without a cover (cover 0), on the whole interval: {count} samples per action.")
        lines.append(
            "These are worst cases, guaranteed before any data are drawn; the method usually succeeds with far fewer."
        )
        return tuple(lines)

    def __str__(self) -> str:
        conditions = zip(self.literal.conditions, self.deflated.conditions, strict=True)
        table = [
            ["", "as printed", "deflated"],
            *([printed.name, _cell(printed), _cell(deflated)] for printed, deflated in conditions),
        ]
        sides = (self.literal, self.deflated)
        table.append(["error allowed in Z", *("-" if math.isnan(x.epsilon) else f"{x.epsilon:.3g}" for x in sides)])
        table.append(
            ["samples per action", *("no guarantee" if x.samples is None else _grouped(x.samples) for x in sides)]
        )
        table.append(["rows of the program", *("as needed" if x.rows is None else _grouped(x.rows) for x in sides)])
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        lines = [f"Samples that Theorem 6 asks for at γ = {self.discount:g}, β = {self.beta:.4g}", ""]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        lines += ["", f"Assumed: {'; '.join(self.assumed) or 'nothing'}.", "", *self.advice]
        return "\n".join(lines)


def _cell(condition: Condition) -> str:
    verdict = "yes" if condition.holds else "NO"
    bound = "none" if math.isnan(condition.bound) else f"{condition.bound:.3g}"
    return f"{verdict:<3}  {condition.statement}  ({condition.value:.3g} | {bound})"


def requirements(
    *,
    discount: float,
    beta: float,
    delta: float | None = None,
    size: int | None = None,
    actions: int | None = None,
    cover: float | None = None,
    rho: float | None = None,
    norm: float | None = None,
    inner_norm: float | None = None,
    difference: float | None = None,
    tail: float | None = None,
    basis: Basis | None = None,
    columns: int | None = None,
) -> Requirements:
    """Compare Theorem 6 as printed and deflated; values assumed for arguments left out are listed in the result.

    Args:
        discount: γ.
        beta: β, the separability.
        delta: the probability of failure; 0.05.
        size: k; 11.
        actions: |A|; 3.
        cover: c; 0.05. Zero asks about the whole interval.
        rho: ρ ≥ ‖F^aφ'(s)‖_∞; β/(2c), which leaves half of β.
        norm: Δ ≥ ‖Z^a‖_∞; 1.45.
        inner_norm: Δ₂ ≥ ‖T_{2:,2:}‖_∞; 0.1.
        difference: ≥ ‖(T − Z^a)_{2:,:}‖_∞; 0.3.
        tail: ‖Z^a − [Z^a]_k‖_∞; 0.
        basis: gives sup|φ_i| and ∫μ to the deflated form; 1 and 2.
        columns: k_s of the deflated form; k.

    Example:
        >>> needed = certirl.theory.requirements(discount=0.7, beta=0.1, actions=2)
        >>> print(str(needed).splitlines()[0])
        Samples that Theorem 6 asks for at γ = 0.7, β = 0.1
    """
    passed = {"delta": delta, "size": size, "actions": actions, "cover": cover, "norm": norm, "inner_norm": inner_norm}
    values, assumed = _completed(passed | {"difference": difference, "tail": tail}, beta=beta, rho=rho)
    if basis is None:
        assumed.append("|φ_i| ≤ 1 and ∫μ = 2, as in the trigonometric basis")
    common: dict[str, Any] = {name: values[name] for name in ("delta", "rho", "tail")}
    common |= {"beta": beta, "discount": discount, "k": values["size"], "n_actions": values["actions"]}
    inner: dict[str, Any] = {
        "inner_norm": values["inner_norm"],
        "difference": values["difference"],
        "basis": basis,
        "columns": columns,
    }
    return Requirements(
        literal=theorem6(cover=values["cover"], norm=values["norm"], **common),
        deflated=theorem6_deflated(cover=values["cover"], **inner, **common),
        exact=theorem6_deflated(cover=0.0, **inner, **common),
        discount=discount,
        beta=beta,
        assumed=tuple(assumed),
    )


def _completed(
    passed: dict[str, float | None], *, beta: float, rho: float | None
) -> tuple[dict[str, float], list[str]]:
    """The arguments with those left out filled in, and a phrase for each of these."""
    values = {name: ASSUMED[name] if value is None else value for name, value in passed.items()}
    assumed = [f"{name} = {value:g}" for name, value in ASSUMED.items() if passed[name] is None]
    _check(beta=beta, **values)
    if rho is None:
        rho = beta / (2 * values["cover"]) if values["cover"] > 0 else 0.0
        if not math.isfinite(rho):
            raise ValueError(f"{setting('rho')} is needed: β/(2·{setting('cover')}) is beyond double precision")
        assumed += [f"rho = β/(2·cover) = {rho:.3g}"] if rho else []
    return values | {"rho": rho}, assumed


# Smooth dynamics ------------------------------------------------------------------------------------------------------

# Lemmas 7, 10, 11 and Corollary 12 bound the matrices of smooth, periodic dynamics in the trigonometric basis. As
# printed they use the paper's Δ. The corrected forms use two numbers that bound every action's transition density
# p(t'|t) on [-1, 1], periodic with its first two derivatives in both variables:
#
#     b33 ≥ sup |∂³_{t'} ∂³_t p|   and   b30 ≥ sup |∂³_{t'} p|.
#
# On an interval of half-width h take the derivatives in t: h⁷ and h⁴ times those in the state s. The corrected forms
# rest on three facts. Integrating by parts three times divides the coefficient of frequency m by (πm)³. The integral of
# a function g against sin(πmt + θ) is at most (4/π) sup|g| for every θ. And a sine and a cosine of the same frequency,
# with coefficients a and b, are one such wave: √(a² + b²) ≤ (4/π) sup|g|, hence |a| + |b| ≤ √2 (4/π) sup|g|. Row 1 is
# exactly (1, 0, 0, …), because probabilities sum to one. The derivations are in docs/notes/theorem6.md.

ZETA2 = math.pi**2 / 6
ZETA3 = 1.2020569031595942

# ∫|sin πmt| dt over [-1, 1]: the factor of one integration against a wave.
_WAVE = 4 / math.pi


def _frequencies(k: int) -> Array:
    """0, 1, 1, 2, 2, …: the frequency of each of the first k trigonometric functions ``[k]``."""
    _check(k=k)
    return ((np.arange(k) + 1) // 2).astype(np.float64)


def lemma11_norm(b33: float) -> float:
    """The smallest Δ for which dynamics this smooth meet Lemma 11, as printed: ``Δ = ζ(3) b33/π⁶``.

    Example:
        >>> round(certirl.theory.lemma11_norm(1000.0), 3)
        1.25
    """
    _check(b33=b33)
    return ZETA3 * b33 / math.pi**6


def lemma11_coefficients(k: int, *, norm: float) -> Array:
    """Bounds on the entries of Z, ``|Z_ij| < Δ/(ζ(3) i³j³)`` (Lemma 11, as printed): ``[k, k]``.

    Not true: it counts functions where it should count frequencies, and it bounds Z_11, which is 1, by a derivative.

    Example:
        >>> certirl.theory.lemma11_coefficients(3, norm=1.0).round(3)
        array([[0.832, 0.104, 0.031],
               [0.104, 0.013, 0.004],
               [0.031, 0.004, 0.001]])
    """
    _check(k=as_count(k, "k", most=_MOST_ENTRIES), norm=norm)
    i = np.arange(1, k + 1, dtype=np.float64)
    return norm / ZETA3 / np.outer(i, i) ** 3


def lemma11_coefficients_corrected(k: int, *, b33: float, b30: float) -> Array:
    """Bounds on the entries of Z (Lemma 11, corrected): ``[k, k]``.

    ``|Z_ij| ≤ (4/π)² b33/(π⁶m_i³m_j³)`` and ``|Z_i1| ≤ √2 (4/π) b30/(π³m_i³)``.

    Example:
        >>> certirl.theory.lemma11_coefficients_corrected(3, b33=100.0, b30=1.0).round(3)
        array([[1.   , 0.   , 0.   ],
               [0.058, 0.169, 0.169],
               [0.058, 0.169, 0.169]])
    """
    _check(k=as_count(k, "k", most=_MOST_ENTRIES), b33=b33, b30=b30)
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
        >>> round(certirl.theory.lemma10_tail(11, norm=1.0), 5)
        0.00785
    """
    _check(k=k, norm=norm)
    return max(math.e * norm / (2 * ZETA3 * (k + 1) ** 2), norm / (k + 1) ** 3)


def lemma10_tail_corrected(k: int, *, b33: float, b30: float) -> float:
    """A bound on what k functions miss of Z (Lemma 10, corrected).

    ``‖(Z − [Z]_k)_{2:,:}‖_∞ ≤ max{√2 (4/π)² b33 ζ(3, m)/π⁶, ‖Z_{2:,:}‖/m³}``.

    m = ⌊(k+1)/2⌋ is the first frequency that is not whole among the k functions and ζ(3, m) = Σ_{n≥m} n⁻³. The first
    term bounds what a kept row loses on the right, the second a row that is lost altogether.

    Example:
        >>> round(certirl.theory.lemma10_tail_corrected(11, b33=100.0, b30=1.0), 5)
        0.00391
    """
    from scipy.special import zeta

    _check(k=k, b33=b33, b30=b30)
    m = (k + 1) // 2
    right = math.sqrt(2) * _WAVE**2 * b33 / math.pi**6 * float(zeta(3.0, float(m)))
    return max(right, _row_norm(b33, b30) * (1 / m) ** 3)


@_countable
def lemma10_size(epsilon: float, *, norm: float) -> int:
    """The smallest k whose tail is at most ε, of order √(Δ/ε) (Lemma 10, as printed).

    Example:
        >>> certirl.theory.lemma10_size(0.01, norm=1.0)
        10
    """
    _check(epsilon=epsilon, norm=norm)
    return _smallest(lambda k: lemma10_tail(k, norm=norm) <= epsilon)


@_countable
def lemma10_size_corrected(epsilon: float, *, b33: float, b30: float) -> int:
    """The smallest k whose tail is at most ε, still of order ε^(−½) (Lemma 10, corrected).

    Example:
        >>> certirl.theory.lemma10_size_corrected(0.01, b33=100.0, b30=1.0)
        7
    """
    _check(epsilon=epsilon, b33=b33, b30=b30)
    return _smallest(lambda k: lemma10_tail_corrected(k, b33=b33, b30=b30) <= epsilon)


def lemma10_lipschitz(norm: float, *, discount: float | None = None) -> float:
    """The Lipschitz constant ρ of Fφ (Lemmas 7 and 10, as printed).

    ``‖Fφ'(s)‖_∞ < 4πΔζ(2)/ζ(3)``, since |φ_n'| ≤ πn.

    Args:
        norm: Δ.
        discount: γ, for the last line of the printed proof, which also divides by γ; the statement does not.

    Example:
        >>> round(certirl.theory.lemma10_lipschitz(0.25), 2)
        4.3
    """
    _check(norm=norm)
    rho = 4 * math.pi * norm * ZETA2 / ZETA3
    if discount is None:
        return rho
    _check(discount=discount)
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
        >>> smooth = certirl.theory.lemma7_corrected(b33=100.0, b30=1.0, discount=0.7)
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
        >>> smooth = certirl.theory.lemma7_corrected(b33=100.0, b30=1.0, discount=0.7)
        >>> round(smooth.inner_norm, 3), round(smooth.rho, 2)
        (0.287, 2.18)
    """
    _check(b33=b33, b30=b30, discount=discount)
    inner, rows = _inner_norm(b33), _row_norm(b33, b30)
    contraction = 1 - discount * inner
    slope = 2 * _WAVE**2 * ZETA2 * b33 / math.pi**5
    rho = slope / contraction if contraction > 0 else math.inf
    return Lemma7Corrected(inner_norm=inner, row_norm=rows, difference=2 * rows, rho=rho)


def corollary12(*, beta: float, delta: float, discount: float, n_actions: int) -> Requirement:
    """Transitions per action for smooth dynamics (Corollary 12, as printed).

    ``|∂⁶p| < π⁶/(4γζ(3))`` gives Δ = 1/(4γ), with cρ = β/2, ε = β/256 and k of order ε^(−½).

    Example:
        >>> needed = certirl.theory.corollary12(beta=0.1, delta=0.05, discount=0.9, n_actions=3)
        >>> needed.applies, needed.size, f"{needed.samples:.1e}"
        (True, 28, '4.7e+11')
    """
    _check(beta=beta, delta=delta, discount=discount, n_actions=n_actions)
    norm = 1 / (4 * discount)
    rho, k = lemma10_lipschitz(norm), lemma10_size(beta / 256, norm=norm)
    return theorem6(
        beta=beta,
        discount=discount,
        delta=delta,
        k=k,
        n_actions=n_actions,
        cover=beta / (2 * rho),
        rho=rho,
        norm=norm,
        tail=lemma10_tail(k, norm=norm),
    )


def corollary12_corrected(
    *, beta: float, delta: float, discount: float, n_actions: int, b33: float, b30: float, cover: float = 0.0
) -> Requirement:
    """Transitions per action for smooth dynamics (Corollary 12, corrected and deflated).

    ``n`` is of order β⁻³ log(1/(βδ)), from the two bounds on derivatives alone.

    The tail falls as k⁻² and n grows as k²/(ε* − tail)², so that a third of ε* for the tail is the best share.

    Example:
        >>> needed = certirl.theory.corollary12_corrected(
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
