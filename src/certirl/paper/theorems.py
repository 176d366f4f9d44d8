"""What each theorem asks for or promises, as printed and corrected, and Theorem 6 in both forms side by side.

The corrected forms never estimate the first row of Z, which is (1, 0, 0, …), and contain the sizes of the basis
functions; docs/notes/theorem6.md proves them, docs/notes/errata.md says why they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

from certirl.functions.bases import Basis, as_basis
from certirl.ground.domain import as_domain, one_coordinate
from certirl.ground.doors import as_count, as_number, as_probability, setting, typed
from certirl.ground.records import Record

__all__ = [
    "Condition",
    "Requirement",
    "Requirements",
    "cover_limit",
    "cover_size",
    "lemma4_error",
    "lemma4_error_sharp",
    "lemma5_tolerance",
    "program_rows",
    "requirements",
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

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def check(**arguments: Any) -> None:
    """Refuse, with a sentence, an argument outside the range its name has in every theorem here."""
    for name, value in arguments.items():
        if name in _LEAST:
            as_count(value, name, least=_LEAST[name], most=_MOST.get(name, 10**18))
        elif name in _PROBABILITIES:
            as_probability(value, name)
        else:
            as_number(value, name, least=0, strict=name in _POSITIVE)


def countable(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
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


@countable
def theorem3_samples(epsilon: float, delta: float, k: int) -> int:
    """Transitions per action for an error below ε of Ẑ, with probability 1 − δ (Theorem 3, as printed).

    ``n ≥ (8k²/ε²) log(2k²/δ)`` gives ‖Ẑ − [Z]_k‖_∞ < ε.

    With a tail of at most ε this is ‖Ẑ − Z‖_∞ < 2ε. The printed constant needs |φ_iφ_j| ≤ 1 and ∫μ = 2.

    Example:
        >>> certirl.paper.theorem3_samples(0.1, delta=0.05, k=5)
        138156
    """
    check(epsilon=epsilon, delta=delta, k=k)
    return _whole(8 * k**2 / epsilon**2 * math.log(2 * k**2 / delta))


def theorem3_error(samples: int, delta: float, k: int) -> float:
    """The error of Ẑ from n transitions per action: the inverse of `theorem3_samples`.

    ``ε = √(8k² log(2k²/δ)/n)`` (Theorem 3, as printed).

    Example:
        >>> round(certirl.paper.theorem3_error(100_000, delta=0.05, k=5), 3)
        0.118
    """
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
        >>> certirl.paper.theorem3_samples_corrected(0.1, delta=0.05, k=5, basis=certirl.Legendre(5))
        1355490
    """
    check(epsilon=epsilon, delta=delta, k=k)
    entries, reach = _entries(k, basis, columns, deflate)
    return _whole(2 * (reach / epsilon) ** 2 * math.log(2 * entries / delta))


def theorem3_error_corrected(
    samples: int, delta: float, k: int, *, basis: Basis | None = None, columns: int | None = None, deflate: bool = True
) -> float:
    """The error of Ẑ from n transitions per action: the inverse of `theorem3_samples_corrected`.

    ``ε = ∫μ·max_i u_i·Σ_j v_j·√(2 log(2·rows·columns/δ)/n)``.

    Example:
        >>> round(certirl.paper.theorem3_error_corrected(100_000, delta=0.05, k=5, basis=certirl.Legendre(5)), 3)
        0.368
    """
    check(samples=samples, delta=delta, k=k)
    entries, reach = _entries(k, basis, columns, deflate)
    return reach * math.sqrt(2 / samples * math.log(2 * entries / delta))


def _entries(k: int, basis: Basis | None, columns: int | None, deflate: bool) -> tuple[int, float]:
    """The number of estimated entries, and ∫μ · max_i u_i · Σ_j v_j."""
    columns = k if columns is None else columns
    check(columns=columns)
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
        >>> round(certirl.paper.lemma4_error(0.01, discount=0.5, norm=1.2), 3)
        0.125
    """
    check(epsilon=epsilon, discount=discount, norm=norm)
    return 2 * epsilon / _contraction(discount, norm) ** 2


def lemma4_error_sharp(epsilon: float, discount: float, norm_T_hat: float, norm_F: float) -> float:
    """A bound on the error of F̂ from that of Ẑ (Lemma 4, sharpened).

    ``‖F̂ − F‖_∞ ≤ ε(2 + γ‖F‖)/(1 − γ‖T̂‖)``.

    Taking norms in F̂ − F = (I − γT̂)⁻¹[(T̂−T) − (Ẑ−Z) + γ(T̂−T)F]. The printed lemma follows with ‖F‖ ≤ 2Δ/(1 − γΔ).
    After deflation all four matrices lose their first row, and T̂ also its first column.

    Example:
        >>> round(certirl.paper.lemma4_error_sharp(0.01, discount=0.9, norm_T_hat=0.1, norm_F=0.5), 4)
        0.0269
    """
    check(epsilon=epsilon, discount=discount, norm=norm_T_hat, F_norm=norm_F)
    return epsilon * (2 + discount * norm_F) / _contraction(discount, norm_T_hat)


def lemma5_tolerance(beta: float, cover: float, rho: float, *, sup: float = 1.0) -> float:
    """The error of F̂ below which the reward is correct (Lemma 5); not positive where β ≤ cρ.

    ``‖F̂ − F‖_∞ < (β − cρ)/(2 sup|φ|)``.

    The printed lemma has sup|φ| = 1; in general ‖(F̂ − F)φ(s)‖_∞ ≤ ‖F̂ − F‖_∞ sup|φ|. On the whole interval c = 0.

    Example:
        >>> round(certirl.paper.lemma5_tolerance(0.1, cover=0.05, rho=1.0), 3)
        0.025
    """
    check(beta=beta, cover=cover, rho=rho, sup=sup)
    return (beta - cover * rho) / (2 * sup)


def cover_limit(beta: float, rho: float) -> float:
    """The bound that the radius of a cover must stay below, ``c < β/ρ`` (Lemma 5); infinite for ρ = 0.

    Example:
        >>> round(certirl.paper.cover_limit(0.1, rho=2.0), 3)
        0.05
    """
    check(beta=beta, rho=rho)
    return float(beta / rho) if rho > 0 else math.inf


@countable
@typed
def cover_size(domain: Any, radius: float, *, literal: bool = False) -> int:
    """The number of states of a cover with radius c (Algorithm 2, step 3).

    ``⌈width/(2c)⌉`` midpoints put every state within c of one of them; as printed it is ⌈width/c⌉.

    Example:
        >>> certirl.paper.cover_size((-1, 1), 0.05), certirl.paper.cover_size((-1, 1), 0.05, literal=True)
        (20, 40)
    """
    one_coordinate(as_domain(domain), "the count is")
    ((low, high),) = as_domain(domain)
    as_number(radius, "radius", least=0, strict=True)
    return max(1, _whole((high - low) / (radius if literal else 2 * radius)))


def program_rows(domain: Any, radius: float, *, n_actions: int, literal: bool = False) -> int:
    """The constraints of the program on a cover: ``(|A| − 1)·size`` (Theorem 6).

    Example:
        >>> certirl.paper.program_rows((-1, 1), 0.05, n_actions=3)
        40
    """
    check(n_actions=n_actions)
    return (n_actions - 1) * cover_size(domain, radius, literal=literal)


@dataclass(frozen=True)
class Condition(Record):
    """``value < bound`` (or ≤, as the statement says): one hypothesis of a theorem, and whether it holds.

    Example:
        >>> conditions = certirl.paper.requirements(discount=0.7, beta=0.1).literal.conditions
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
        >>> needed = certirl.paper.requirements(discount=0.7, beta=0.1).exact
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
        >>> printed = certirl.paper.theorem6(
        ...     beta=0.1, discount=0.3, delta=0.05, k=11, n_actions=3, cover=0.05, rho=1.0, norm=1.0
        ... )
        >>> printed.applies, f"{printed.samples:.1e}"
        (True, '1.5e+11')
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
        factor = max(32.0, 8**3 / (separation**2 * contraction**4))
        samples = _whole(factor * k**2 * math.log(2 * k**2 * n_actions / delta))
    rows = program_rows((-1, 1), cover, n_actions=n_actions, literal=True) if cover > 0 else None
    limit = cover_limit(beta, rho)
    return Requirement("Theorem 6 as printed", conditions, samples, float(epsilon), int(k), cover, limit, rows)


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
        >>> deflated = certirl.paper.theorem6_deflated(
        ...     beta=0.1, discount=0.7, delta=0.05, k=11, n_actions=3, inner_norm=0.1, difference=0.3
        ... )
        >>> deflated.applies, f"{deflated.samples:.1e}"
        (True, '2.2e+07')
    """
    check(beta=beta, discount=discount, delta=delta, k=k, n_actions=n_actions, cover=cover, rho=rho, tail=tail)
    check(inner_norm=inner_norm, difference=difference)
    sup = 1.0 if basis is None else float(_resized(basis, k).sup()[:columns].max())
    separation, contraction = beta - cover * rho, 1 - discount * inner_norm
    epsilon = math.nan
    if separation > 0 and contraction > 0:
        b = separation / 2
        epsilon = b * contraction / (sup * (2 + discount * difference / contraction) + discount * b)
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
    limit = cover_limit(beta, rho)
    return Requirement("Theorem 6 deflated", conditions, samples, float(epsilon), int(k), cover, limit, rows)


def _condition(name: str, statement: str, value: float, bound: float, holds: bool) -> Condition:
    """A condition with Python's numbers, also where NumPy's came in."""
    return Condition(name, statement, float(value), float(bound), bool(holds))


def _contraction(discount: float, norm: float) -> float:
    """1 − γΔ, which must be positive for the series of F to converge in norm."""
    if not discount * norm < 1:
        raise ValueError(f"the norm must stay below 1/γ = {1 / discount:.4g}, got {norm}")
    return 1 - discount * norm


def _grouped(count: int | None, without: str = "") -> str:
    """A count as 12,345,678, and as 1.23e+18 from 10¹⁵ on."""
    if count is None:
        return without
    return f"{count:,}" if count < 10**15 else f"{count:.3g}"


def _whole(number: float) -> int:
    """Round up, but for the last few bits, so that a sample size and its error invert each other."""
    return math.ceil(number * (1 - 1e-14))


# What `requirements` assumes of arguments left out: the setting of the paper's third figure, and the norms without the
# constant function as measured on its random problems.
ASSUMED: dict[str, float] = {"delta": 0.05, "size": 11, "actions": 3, "cover": 0.05}
ASSUMED |= {"norm": 1.45, "inner_norm": 0.1, "difference": 0.3, "tail": 0.0}


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
        >>> needed = certirl.paper.requirements(discount=0.7, beta=0.1)
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
        table.append(["samples per action", *(_grouped(x.samples, "no guarantee") for x in sides)])
        table.append(["rows of the program", *(_grouped(x.rows, "as needed") for x in sides)])
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
        >>> needed = certirl.paper.requirements(discount=0.7, beta=0.1, actions=2)
        >>> print(str(needed).splitlines()[0])
        Samples that Theorem 6 asks for at γ = 0.7, β = 0.1
    """
    passed: dict[str, float | None] = {
        "delta": delta,
        "size": size,
        "actions": actions,
        "cover": cover,
        "norm": norm,
        "inner_norm": inner_norm,
    }
    passed |= {"difference": difference, "tail": tail}
    values = {name: ASSUMED[name] if value is None else value for name, value in passed.items()}
    assumed = [f"{name} = {value:g}" for name, value in ASSUMED.items() if passed[name] is None]
    check(beta=beta, **values)
    if rho is None:
        rho = beta / (2 * values["cover"]) if values["cover"] > 0 else 0.0
        if not math.isfinite(rho):
            raise ValueError(f"{setting('rho')} is needed: β/(2·{setting('cover')}) is beyond double precision")
        assumed += [f"rho = β/(2·cover) = {rho:.3g}"] if rho else []
    if basis is None:
        assumed.append("|φ_i| ≤ 1 and ∫μ = 2, as in the trigonometric basis")
    common: dict[str, Any] = {"delta": values["delta"], "rho": rho, "tail": values["tail"]}
    common |= {"beta": beta, "discount": discount, "k": values["size"], "n_actions": values["actions"]}
    inner: dict[str, Any] = {name: values[name] for name in ("inner_norm", "difference")}
    inner |= {"basis": basis, "columns": columns}
    return Requirements(
        literal=theorem6(cover=values["cover"], norm=values["norm"], **common),
        deflated=theorem6_deflated(cover=values["cover"], **inner, **common),
        exact=theorem6_deflated(cover=0.0, **inner, **common),
        discount=discount,
        beta=beta,
        assumed=tuple(assumed),
    )
