"""Certified infeasibility of sums: from fresh data, that no sum of rewards makes the expert strictly optimal.

Fix shares ν_a ≥ 0 of the rivals, Σ ν_a = 1. If Σ_a ν_a min D_ja < 0 for every component j and every V_j of its class
but constants, then Σ_a ν_a Σ_j min D_ja < 0 for every sum, and some rival a has Σ_j min D_ja < 0: the expert is not
optimal. So components are refuted one by one, each with cones of its own and with mixtures in which rival a has the
share ν_a: the work grows as the number of components. docs/notes/refutation.md has statement and proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.data.moments import accumulate
from certirl.data.policy import as_policy
from certirl.data.simulator import Simulator
from certirl.data.transitions import Transitions, counted
from certirl.fit.bellman import check_expert, rivals_of
from certirl.fit.conflicts import contests
from certirl.fit.estimate import Operators, estimate
from certirl.fit.program import Rows, least_norm_of_sums
from certirl.functions.bases import Basis
from certirl.functions.components import Component, SideBySide, as_columns, as_components
from certirl.ground.domain import Array, as_domain, freeze, one_coordinate
from certirl.ground.progress import Report
from certirl.ground.work import on
from certirl.proof.certify import FIT_SHARE, check_delta, check_endless, check_enough, check_settings, split
from certirl.proof.certify_components import SEPARATE
from certirl.proof.refute import Plan, Refutation, choose, conclude
from certirl.proof.surprises import Expected, gather
from certirl.proof.tail import TailLike, tail_number


@dataclass(frozen=True, eq=False)
class AdditiveRefutation:
    """With probability at least 1 − δ, min over states and rivals of D_a(s) ≤ ceiling·‖w‖₁ for every sum V = Σ_j V_j.

    Where it holds, no sum of rewards whose values lie in the components' classes makes the expert optimal, unless all
    are constant; whatever the discount.

    Attributes:
        names: of the components.
        shares: ν_a of the rivals, in order ``[A − 1]``.
        parts: for every component, that Σ_a ν_a min D_ja < 0 for all its values; its kappa and ceiling are of this sum.
        delta: the probability of a false statement, all together.
        assumptions: what must be true besides, in words.
    """

    names: tuple[str, ...]
    shares: Array
    parts: tuple[Refutation, ...]
    delta: float
    assumptions: tuple[str, ...]

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def holds(self) -> bool:
        """Every component is refuted and the tail was declared."""
        return all(part.holds for part in self.parts)

    @property
    def refuted(self) -> bool:
        """Every component is, by the estimates and their errors; it is proved if the tail was declared."""
        return all(part.refuted for part in self.parts)

    @property
    def ceiling(self) -> float:
        """No sum has a margin above this times ‖w‖₁; 0 if all are refuted."""
        return max(part.ceiling for part in self.parts)

    @property
    def samples_needed(self) -> int | None:
        """An estimate of how many fresh transitions per action would refute; None if perhaps no number would."""
        each = [part.samples_needed for part in self.parts]
        return None if None in each else max(n for n in each if n is not None)

    def __str__(self) -> str:
        least = max(range(len(self.parts)), key=lambda j: self.parts[j].error / max(self.parts[j].kappa, 1e-300))
        part = self.parts[least]
        chance = f"with probability {1 - self.delta:g}" + ("" if part.tail is not None else " (if the tail is zero)")
        classes = ", ".join(sorted({str(own.plan.rows) for own in self.parts}))
        who = f"no sum of rewards whose values lie in {classes} of each component"
        if self.refuted:
            word = "Certified infeasible" if self.holds else "Not certified, but infeasible"
            first = f"{word} {chance}: {who} makes action {part.plan.expert} strictly optimal"
            more = f", in {sum(len(own.plan.mixtures) - 1 for own in self.parts)} cones of values"
        else:
            first = f"Undetermined: {chance} {who} has a margin above {self.ceiling:.3g} per unit of ‖w‖₁"
            needed = "perhaps no number" if self.samples_needed is None else f"about {self.samples_needed:,}"
            more = f"; {needed} would show that none has any"
        losses = ", ".join(f"{name} {value:.2g}" for name, value in part.losses.items() if value >= 1e-3 * part.error)
        assert part.plan.expert is not None
        rivals = rivals_of(part.plan.expert, len(part.plan.fits))
        shares = ", ".join(f"{share:.2g} of action {a}" for a, share in zip(rivals, self.shares, strict=True) if share)
        lines = [
            first,
            f"  least clear in {self.names[least]}: margin {-part.kappa:.3g}, ± {part.error:.3g}: {losses}",
            f"  against {shares}, from {counted((part.samples, part.most_samples))} fresh transitions per action{more}",
        ]
        return "\n".join([*lines, *(f"  assumed: {assumption}" for assumption in self.assumptions)])


def refute_sum(
    source: Simulator | Transitions,
    components: Any,
    *,
    expert: int,
    basis: Basis | Sequence[Basis],
    columns: int | Sequence[int] | None = None,
    delta: float = 0.05,
    tail: TailLike = None,
    samples: int | None = None,
    rng: Any = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
) -> AdditiveRefutation:
    """Prove that no V = Σ_j w_jᵀφ_j(s_j) has (P_π − P_a)V > 0 at all states for all rivals a, or bound its margin.

    Args:
        source: a simulator, or transitions, which are divided at random.
        components: lists of coordinates, one in each, as for `solve`.
        expert: the action π that the expert always takes.
        basis: the functions of each V_j, the first constant: one for all components or one for each.
        columns: how many functions of the same family describe the state: one number, one for each, or all.
        delta: the probability of a false statement.
        tail: how far P_a f, |f| ≤ 1, can lie outside the span of a component's columns, as in `certify`.
        samples: transitions per action to draw, those for choosing the cones included, 100,000 if left out; for
            simulators only.
        rng: a seed or Generator; needed with a simulator.
        paired: as in `refute`.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
        map: where to work through data, as in `refute`.
    """
    delta = check_delta(delta)
    samples = check_settings(source, samples, tail=tail, paired=paired, progress=progress)
    check_expert(expert, source.n_actions, of_states=False)
    parts = as_components(components, basis, as_domain(source.domain))
    check_endless(source)
    narrow = _narrow(parts, columns)
    check_enough(source, samples, max(own.size for own in narrow))
    places: Any = SideBySide(parts)
    training, fresh = split(source, places, samples, rng, FIT_SHARE, progress, role="refute", paired=paired)
    with on(map):
        wide = [own.basis.resized(max(own.basis.size, few.size)) for own, few in zip(parts, narrow, strict=True)]
        views = [own.coordinates for own in parts]
        pairs = list(zip(wide, narrow, strict=True))
        measured = accumulate(training, pairs, n_actions=source.n_actions, views=views)
        shares, plans = _plans([estimate(own) for (own,) in measured], parts, expert, delta, tail)
        expected = [Expected(p.rows, p.columns, p.fits, view) for p, view in zip(plans, views, strict=True)]
        seen = gather(expected, fresh)
    numbers = sum(len(plan.which) for plan in plans)
    concluded = [
        conclude(plan, sums, numbers=numbers, delta=delta, tail=tail) for plan, sums in zip(plans, seen, strict=True)
    ]
    widest = max(concluded, key=lambda part: part.plan.columns.size)
    assumed = (SEPARATE, f"in each component {widest.assumptions[0]}", *widest.assumptions[1:])
    return AdditiveRefutation(tuple(own.name for own in parts), shares, tuple(concluded), delta, assumed)


def _narrow(components: Sequence[Component], columns: int | Sequence[int] | None) -> list[Basis]:
    """The columns of every component; more than rows are welcome."""
    for own in components:
        one_coordinate(own.basis.domain, "a refutation is")
        if own.basis.size < 2:
            raise ValueError(f"{own.basis} holds constants only, which explain nothing: use at least two functions")
    sizes = [own.basis.size for own in components] if columns is None else as_columns(columns, components)
    return [own.basis.resized(size) for own, size in zip(components, sizes, strict=True)]


def _plans(
    operators: Sequence[Operators], components: Sequence[Component], expert: int, delta: float, tail: TailLike
) -> tuple[Array, list[Plan]]:
    """The rivals' shares, and what is to be measured in every component."""
    shares, plans = _shares(operators, components, expert), []
    most = 1 if shares is None else None  # training data without a conflict: fresh ones will hardly prove one
    if shares is None:
        shares = np.full(operators[0].n_actions - 1, 1 / (operators[0].n_actions - 1))
    for own, component in zip(operators, components, strict=True):
        number = tail_number(tail, component.basis.resized(own.columns)) or 0.0
        asked: dict[str, Any] = {"delta": delta / len(operators), "tail": number}
        rivalry = contests(as_policy(expert, own.n_actions), component.basis.resized(own.columns))
        plans.append(choose(own, rows=component.basis, rivalry=rivalry, shares=shares, most=most, **asked))
    return shares, plans


def _shares(operators: Sequence[Operators], components: Sequence[Component], expert: int) -> Array | None:
    """Those of the conflict in the training data; None where there is none."""
    rivals = rivals_of(expert, operators[0].n_actions)
    rows = Rows.empty(max(component.basis.size for component in components) - 1)
    for j, (own, component) in enumerate(zip(operators, components, strict=True)):
        columns = own.basis.resized(own.columns)
        x, fits = columns.values(columns.grid(4 * columns.size + 1)), own.Z[:, 1 : component.basis.size]
        for i, a in enumerate(rivals):
            rows = rows.with_rows(j, i, x @ (fits[expert] - fits[a]).T)
    status, _, weights = least_norm_of_sums(rows)
    if status != "infeasible":
        return None
    first = rows.component == 0
    shares = np.bincount(rows.alternative[first], weights[first], minlength=len(rivals))
    return np.asarray(shares / shares.sum())
