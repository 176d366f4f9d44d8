"""Rewards for independent components: the joint additive program, exact on the continuum, and the paper's Theorem 8.

D_a(s) = Σ_j D_ja(s_j) for additive rewards, and the minimum of a sum over a product of domains is the sum of minima: it
is enough that Σ_j min D_ja ≥ 1 for every rival. No component needs to be solvable by itself, as Theorem 8 asks; a rival
may act on some components exactly as the expert does, as long as it can be told apart in others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certirl.fit import blocks
from certirl.fit.bellman import Bellman
from certirl.fit.program import whitening
from certirl.fit.recover import OBJECTIVES, Reason, recover
from certirl.functions.components import AdditiveReward, Component
from certirl.functions.extrema import first_of_least, local_minima, minimum, ranked
from certirl.functions.reward import Reward
from certirl.ground.domain import Array, freeze

ROUNDING = 1e-12  # of the operators, which sums over data carry


@dataclass(frozen=True, eq=False)
class Conflict:
    """A row of a witness: the state of one component, a rival, a weight.

    Attributes:
        component: its name.
        state: of this component ``[d_j]``.
        action: the rival.
        weight: λ.
    """

    component: str
    state: Array
    action: int
    weight: float


@dataclass(frozen=True, eq=False)
class AdditiveWitness:
    """Why there is no additive reward: weights λ_r ≥ 0 with Σ λ_r (T_j − Z_j^{a_r})φ(s_r) = 0 in every component j.

    For every rival the weights add up to the same number ν_a in each component, so that they are weights of whole
    states too: any additive value function would need Σ_a ν_a times a positive advantage there, but has zero.

    Attributes:
        shares: ν_a of every rival, by action; they add up to 1.
        rows: with their weights, in the order of components, rivals and states.
        residual: length of the weighted sums relative to the longest row: zero but for rounding.
    """

    shares: dict[int, float]
    rows: tuple[Conflict, ...]
    residual: float

    def __str__(self) -> str:
        telling = {action: share for action, share in self.shares.items() if share > 1e-6}
        if len(telling) == 1:
            (action,) = telling
            return f"action {action} cannot be told from the expert's: its advantages cancel within every component"
        shares = ", ".join(f"action {action} ({share:.2g})" for action, share in telling.items())
        order = ranked(np.array([row.weight for row in self.rows]), np.arange(len(self.rows)))
        clearest = self.rows[order[0]].component
        first = [self.rows[r] for r in order if self.rows[r].component == clearest][:4]
        places = ", ".join(f"{row.action} at {_place(row.state)} ({row.weight:.2g})" for row in first)
        return f"{shares} cancel out in every component, as in {clearest}: {places} (weights in brackets)"


@dataclass(frozen=True, eq=False)
class AdditiveRecovery:
    """What was found for the components together.

    Attributes:
        status: "solved", "infeasible" or "undetermined".
        reason: the sentence that goes with it.
        objective: what was minimised.
        rounds, rows: solves of the program, and rows in the last one.
        reward: R = Σ_j R_j, if one was found.
        minima: min D_ja of every component and rival ``[J, A − 1]``; empty without a reward.
        states: where they are reached, components in order, one entry ``[A − 1, d_j]`` for each.
        margin: min over rivals of the sums of minima: the smallest D_a(s) over all states; NaN without a reward.
        worst_action: the rival that reaches it.
        witness: the conflict, if infeasible.
    """

    status: str
    reason: str
    objective: str
    rounds: int
    rows: int
    reward: AdditiveReward | None = None
    minima: Array = None  # type: ignore[assignment]
    states: tuple[Array, ...] = ()
    margin: float = float("nan")
    worst_action: int | None = None
    witness: AdditiveWitness | None = None

    def __post_init__(self) -> None:
        if self.minima is None:
            object.__setattr__(self, "minima", np.zeros((0, 0)))
        freeze(self)


def recover_jointly(
    components: Sequence[Component],
    criteria: Sequence[Bellman],
    *,
    objective: str = "least-variance",
    tolerance: float = 1e-7,
    max_rounds: int = 200,
) -> AdditiveRecovery:
    """Find rewards R_j with ``Σ_j min_{s_j} D_ja(s_j) ≥ 1`` for every rival a: one program for all components.

    Rows say m_ja ≤ D_ja(s_j) at a few states of one component, sums Σ_j m_ja ≥ 1 join them; the exact minima of every
    D_ja become rows where they lie below those at hand, until the sums of exact minima reach the target.

    Args:
        components: their names, coordinates and bases.
        criteria: the Bellman criterion of each.
        objective: "least-variance" (Σ_j of the noise of V_j, which the data pin down best), "l1" (Σ_j‖α_j‖₁) or
            "max-margin" (the same with Σ_j‖α_j‖₁ = 1).
        tolerance: how far below the target the sums of exact minima may lie.
        max_rounds: solves before giving up.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}")
    if len(components) != len(criteria):
        raise ValueError(f"there are {len(components)} components but {len(criteria)} criteria")
    for component, criterion in zip(components, criteria, strict=True):
        if criterion.spectral_radius >= 1:
            return AdditiveRecovery("undetermined", f"component {component.name}: {Reason.DIVERGES}", objective, 0, 0)
    rows = _Rows(criteria, in_values=objective == "least-variance")
    solver = _LeastVariance(rows) if rows.in_values else _LeastSum(rows)
    exact = False
    for solves in range(1, max_rounds + 1):
        status, x, weights = solver.solve()
        if status == "infeasible":
            witness = _witness(components, criteria, rows, weights)
            return AdditiveRecovery("infeasible", Reason.CONFLICT, objective, solves, rows.count, witness=witness)
        if status != "optimal":
            return AdditiveRecovery("undetermined", Reason.SOLVER, objective, solves, rows.count)
        reached, found = rows.violated(x, tolerance, exact=exact)
        if reached and not exact:  # the quick look found nothing more: from here on, look at every root
            exact = True
            reached, found = rows.violated(x, tolerance, exact=True)
        if reached or not found:
            return _finished(components, criteria, objective, rows, x, solves)
        for j, rival, states in found:
            solver.add(j, rival, states)
    return AdditiveRecovery("undetermined", Reason.ROUNDS, objective, max_rounds, rows.count)


def recover_separately(
    components: Sequence[Component], criteria: Sequence[Bellman], *, objective: str = "least-variance"
) -> AdditiveRecovery:
    """Solve every component by itself and add the rewards up (Theorem 8); all of them must be solvable."""
    parts = [recover(criterion, objective=objective) for criterion in criteria]
    rounds, count = sum(part.rounds for part in parts), sum(len(part.states) for part in parts)
    for component, part in zip(components, parts, strict=True):
        if part.status != "solved":
            reason = f"component {component.name} cannot be solved by itself, as Theorem 8 asks: {part.reason}"
            return AdditiveRecovery("undetermined", reason, objective, rounds, count)
    coefficients = [part.reward.coefficients for part in parts if part.reward is not None]
    return _judged(components, criteria, objective, coefficients, rounds, count)


class _Rows:
    """The rows of all components so far, in value or reward coordinates."""

    def __init__(self, criteria: Sequence[Bellman], *, in_values: bool) -> None:
        self.in_values, self.first = in_values, 1 if in_values else 0  # in values the constant is free
        self.criteria, self.rivals = criteria, len(criteria[0].rivals)
        self.matrices = [_told_apart(c, c.advantage if in_values else c.F)[:, self.first :, :] for c in criteria]
        self.states = {
            (j, rival): criterion.columns.grid(criterion.columns.size + 1)
            for j, criterion in enumerate(criteria)
            for rival in range(self.rivals)
        }

    @property
    def count(self) -> int:
        return sum(len(states) for states in self.states.values())

    def values(self, j: int, rival: int, states: Array) -> Array:
        """The rows g of some states ``[m, k_j]``."""
        return self.criteria[j].columns.values(states) @ self.matrices[j][rival].T

    def violated(self, x: list[Array], tolerance: float, *, exact: bool) -> tuple[bool, list[tuple[int, int, Array]]]:
        """Whether all sums of minima reach 1, and the states, by component and rival, that lie below the rows."""
        sums, found = np.zeros(self.rivals), []
        room = tolerance / (2 * len(self.criteria))
        for (j, rival), known in self.states.items():
            curve = x[j] @ self.matrices[j][rival]
            if not curve.any():
                continue
            columns = self.criteria[j].columns
            states, values = local_minima(columns, curve, exact=exact)
            lowest = float((columns.values(known) @ curve).min())
            sums[rival] += min(float(values.min()), lowest)
            new = _unseen(states[values < lowest - room], known)
            if len(new):
                found.append((j, rival, new))
        return bool(sums.min() >= 1 - tolerance), found

    def add(self, j: int, rival: int, states: Array) -> None:
        self.states[j, rival] = np.concatenate([self.states[j, rival], states])


def _told_apart(criterion: Bellman, matrices: Array) -> Array:
    """The matrices, without those of rivals that differ from the expert by no more than rounding."""
    apart = np.abs(criterion.advantage).max(axis=(1, 2)) > ROUNDING * np.abs(criterion.T).max()
    return matrices * apart[:, None, None]


def _unseen(states: Array, known: Array) -> Array:
    """Those of the states that are not known, to rounding."""
    width = np.ptp(known, axis=0)
    gaps = (np.abs(states[:, None] - known[None]) / width).max(axis=2).min(axis=1)
    return states[gaps > 1e-9]


class _LeastVariance:
    """min Σ_j w_jᵀC_jw_j, in coordinates where each C_j is the identity."""

    def __init__(self, rows: _Rows) -> None:
        self.rows = rows
        self._guess: float | None = None
        self._factors = [whitening(criterion.spread[1:, 1:]) for criterion in rows.criteria]
        self._values = {key: self._whitened(*key, states) for key, states in rows.states.items()}

    def _whitened(self, j: int, rival: int, states: Array) -> Array:
        from scipy.linalg import solve_triangular

        return solve_triangular(self._factors[j], self.rows.values(j, rival, states).T, lower=True).T

    def add(self, j: int, rival: int, states: Array) -> None:
        self.rows.add(j, rival, states)
        more = self._whitened(j, rival, states)
        self._values[j, rival] = np.concatenate([self._values[j, rival], more])

    def solve(self) -> tuple[str, list[Array], Array]:
        """The status, w_j of every component, and the weights of the rows."""
        from scipy.linalg import solve_triangular

        answer = blocks.least_norm(stacked(self._values), self._guess)
        if answer.x is None:
            return answer.status, [], answer.weights
        self._guess = float(np.linalg.norm(answer.x))
        x = [
            solve_triangular(factor.T, own[: len(factor)], lower=False)
            for factor, own in zip(self._factors, answer.x, strict=True)
        ]
        return answer.status, x, answer.weights


class _LeastSum:
    """min Σ_j‖α_j‖₁."""

    def __init__(self, rows: _Rows) -> None:
        values = {key: rows.values(*key, states) for key, states in rows.states.items()}
        scale = max(float(np.abs(own).max()) for own in values.values())
        self.rows = rows
        self._program = blocks.BlockLinearProgram([m.shape[1] for m in rows.matrices], rows.rivals, scale)
        for (j, rival), own in values.items():
            self._program.add(j, rival, own)

    def add(self, j: int, rival: int, states: Array) -> None:
        self.rows.add(j, rival, states)
        self._program.add(j, rival, self.rows.values(j, rival, states))

    def solve(self) -> tuple[str, list[Array], Array]:
        """The status, α_j of every component, and the weights of the rows if there is no solution."""
        status, x = self._program.solve()
        if status != "infeasible":
            return status, x, np.zeros(self.rows.count)
        values = {key: self.rows.values(*key, states) for key, states in self.rows.states.items()}
        answer = blocks.least_norm(stacked(values))
        return "infeasible" if answer.status == "infeasible" else "failed", [], answer.weights


def stacked(values: dict[tuple[int, int], Array]) -> blocks.Rows:
    """Rows by component and rival as one block, with zeros up to the largest component's size."""
    width = max(own.shape[1] for own in values.values())
    rows = np.concatenate([np.pad(own, ((0, 0), (0, width - own.shape[1]))) for own in values.values()])
    keys: NDArray[np.intp] = np.repeat(np.array(list(values)), [len(own) for own in values.values()], axis=0)
    return blocks.Rows(rows, keys[:, 0], keys[:, 1])


def _finished(
    components: Sequence[Component],
    criteria: Sequence[Bellman],
    objective: str,
    rows: _Rows,
    x: list[Array],
    rounds: int,
) -> AdditiveRecovery:
    """From the program's coordinates to rewards; a component that hardly counts gets none."""
    sizes = [float(np.abs(own @ matrices).max()) for own, matrices in zip(x, rows.matrices, strict=True)]
    coefficients = []
    for criterion, own, size in zip(criteria, x, sizes, strict=True):
        padded = np.concatenate([np.zeros(rows.first), own]) * (size > 1e-9 * max(sizes))
        coefficients.append(criterion.reward_of(padded) if rows.in_values else padded)
    return _judged(components, criteria, objective, coefficients, rounds, rows.count)


def _judged(
    components: Sequence[Component],
    criteria: Sequence[Bellman],
    objective: str,
    coefficients: list[Array],
    rounds: int,
    count: int,
) -> AdditiveRecovery:
    """Find every exact minimum with our own arithmetic, and scale to a margin of 1, or to Σ‖α_j‖₁ = 1."""
    found = [
        [minimum(criterion.columns, curve) for curve in criterion.margins(alpha)]
        for criterion, alpha in zip(criteria, coefficients, strict=True)
    ]
    minima = np.array([[value for _, value in own] for own in found])
    margin = float(minima.sum(axis=0).min())
    if not margin > 0.0:
        return AdditiveRecovery("undetermined", Reason.SOLVER, objective, rounds, count)
    unit = sum(float(np.abs(own).sum()) for own in coefficients) if objective == "max-margin" else margin
    rewards = tuple(Reward(c.basis, own / unit) for c, own in zip(criteria, coefficients, strict=True))
    return AdditiveRecovery(
        status="solved",
        reason=Reason.SOLVED,
        objective=objective,
        rounds=rounds,
        rows=count,
        reward=AdditiveReward(tuple(c.name for c in components), tuple(c.coordinates for c in components), rewards),
        minima=minima / unit,
        states=tuple(np.array([state for state, _ in own]) for own in found),
        margin=margin / unit,
        worst_action=criteria[0].rivals[first_of_least(minima.sum(axis=0))],
    )


def _witness(
    components: Sequence[Component], criteria: Sequence[Bellman], rows: _Rows, weights: Array
) -> AdditiveWitness:
    """Keep the rows with weight, and measure how nearly they cancel in every component."""
    whole = stacked({key: rows.values(*key, states) for key, states in rows.states.items()})
    longest = float(np.linalg.norm(whole.values, axis=1).max()) or 1.0
    residual = float(np.linalg.norm(whole.combined(weights))) / longest
    shares = {
        a: float(weights[(whole.component == 0) & (whole.rival == i)].sum()) for i, a in enumerate(criteria[0].rivals)
    }
    states = [state for own in rows.states.values() for state in own]
    used = sorted(np.flatnonzero(weights > 1e-9), key=lambda r: (whole.component[r], whole.rival[r], *states[r]))
    kept = [
        Conflict(components[whole.component[r]].name, states[r], criteria[0].rivals[whole.rival[r]], float(weights[r]))
        for r in used
    ]
    return AdditiveWitness(shares, tuple(kept), residual)


def _place(state: Array) -> str:
    return f"({', '.join(f'{x:.4g}' for x in state)})" if len(state) > 1 else f"{state[0]:.4g}"
