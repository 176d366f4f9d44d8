"""The constants of a problem that the theorems ask for, and Theorem 6 as printed and deflated side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.fit.bellman import Bellman, bellman
from certirl.fit.estimate import Operators
from certirl.fit.recover import recover
from certirl.functions.bases import Basis
from certirl.functions.extrema import minimum
from certirl.ground.domain import Array
from certirl.ground.doors import setting, shown
from certirl.theory.guarantees import Condition, Requirement, check, grouped, theorem6, theorem6_deflated


@dataclass(frozen=True)
class Constants:
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
        problem: operators, or the criterion formed from them (which knows its discount and expert).
        discount: γ; needed with operators.
        expert: the action the expert always takes; read with operators only.
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
    """``β = max_α min_{s,a} αᵀF^aφ(s)`` over ‖α‖₁ = 1 (Definition 2): 0 if no reward exists, NaN if undetermined."""
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
class Requirements:
    """Theorem 6 as printed and deflated, side by side.

    Attributes:
        literal: the printed theorem.
        deflated: the corrected one, with the same cover.
        exact: the corrected one on the whole interval, without a cover.
        discount: γ.
        beta: β.
        assumed: the values assumed for arguments left out, one phrase each.
    """

    literal: Requirement
    deflated: Requirement
    exact: Requirement
    discount: float
    beta: float
    assumed: tuple[str, ...]

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
            count = grouped(self.exact.samples)
            lines.append(f"Without a cover (cover 0), on the whole interval: {count} samples per action.")
        lines.append(
            "These are worst cases, guaranteed before any data are drawn; the method usually succeeds with far fewer."
        )
        return tuple(lines)

    def __str__(self) -> str:
        conditions = zip(self.literal.conditions, self.deflated.conditions, strict=True)
        table = [["", "as printed", "deflated"], *([one.name, _cell(one), _cell(two)] for one, two in conditions)]
        sides = (self.literal, self.deflated)
        table.append(["error allowed in Z", *("-" if math.isnan(x.epsilon) else f"{x.epsilon:.3g}" for x in sides)])
        table.append(
            ["samples per action", *("no guarantee" if x.samples is None else grouped(x.samples) for x in sides)]
        )
        table.append(["rows of the program", *("as needed" if x.rows is None else grouped(x.rows) for x in sides)])
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
    check(beta=beta, **values)
    if rho is None:
        rho = beta / (2 * values["cover"]) if values["cover"] > 0 else 0.0
        if not math.isfinite(rho):
            raise ValueError(f"{setting('rho')} is needed: β/(2·{setting('cover')}) is beyond double precision")
        assumed += [f"rho = β/(2·cover) = {rho:.3g}"] if rho else []
    return values | {"rho": rho}, assumed
