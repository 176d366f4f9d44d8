"""Algorithm 2: from the Bellman criterion to a reward, exactly on the continuum or on the paper's cover."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.fit import program
from certirl.fit.bellman import Bellman
from certirl.functions.boxes import mesh
from certirl.functions.extrema import first_of_least, local_minima, minimum, ranked
from certirl.functions.reward import Reward
from certirl.ground.domain import Array, Domain, freeze
from certirl.ground.doors import as_count, as_number, setting, shown
from certirl.ground.status import Claim, Finding

OBJECTIVES = ("least-variance", "l1", "max-margin")
MOST_POINTS = 1_000_000  # of a cover


SAME_DIGITS = 1e-12  # of the operators: a smaller difference of two actions is rounding


class Reason(StrEnum):
    """Why a program ended as it did: what happened, what it usually means, what to change."""

    SOLVED = "the expert is strictly optimal under these operators"
    SOFT = "the expert is explained up to the slack shown; where slack is used it is not optimal under this reward"
    COVER = (
        "the margin is 1 at the cover points but falls to zero or below between them: the cover is too coarse; "
        "leave cover out to solve on the whole domain"
    )
    CONFLICT_IN_DOUBT = (
        "the estimated constraints contradict each other, but not beyond the sampling error: neither a reward nor its "
        "absence is proved; allow more samples"
    )
    CONFLICT_WITHOUT_TAIL = (
        "the estimated constraints contradict each other beyond the sampling error, but no tail was declared: neither "
        "a reward nor its absence is proved; declare a tail"
    )
    CONFLICT_WITHOUT_DATA = (
        "the estimated constraints of the last round contradict each other, and too few transitions were left to prove "
        "it: neither a reward nor its absence is proved; allow more samples"
    )
    CONFLICT_ON_A_BOX = (
        "the estimated constraints contradict each other, and in several coordinates there is no proof that the true "
        "ones do: neither a reward nor its absence is proved"
    )
    CONFLICT = "no reward in this class makes the expert strictly optimal: the constraints named here cancel each other"
    DIVERGES = (
        "γT has spectral radius 1 or more on non-constant functions, so the value series diverges: the operators are "
        "too noisy; use more samples, fewer columns or a smaller discount"
    )
    SAME = "some action does what the expert's does, to the last digits: no reward tells the two apart"
    SOLVER = "the solver gave up or its answer failed our own check; try another objective or fewer functions"
    ROUNDS = "the rounds ran out before the margin was uniform; allow more rounds or a larger tolerance"


def findings_of(
    recovery: Any, certificate: Claim | None, refutation: Any, *, asked: bool, several: bool
) -> list[Finding]:
    """What a program and the proofs tried after it allow an answer to be called.

    Args:
        recovery: of the program, with ``status`` and ``reason``.
        certificate: the proof of its reward, or the attempt; None if there was none.
        refutation: the proof that there is no reward, or the attempt, with ``holds`` and ``refuted``; or None.
        asked: a proof was asked for.
        several: the state, or a component of it, has several coordinates.
    """
    reason = str(recovery.reason)
    if recovery.status == "infeasible" and asked:
        return [Finding("infeasible", reason), *_undecided(refutation, several)]
    if recovery.status != "solved":
        return [Finding(recovery.status, reason)]
    if certificate is None:
        return [Finding("solved", reason)]
    if certificate.estimated <= 0:
        estimate = f"fresh data put the margin of the reward at {certificate.estimated:.3g}"
        found = f"{estimate}, where training data put it at {recovery.margin:.3g}: allow more samples"
        return [Finding("undetermined", found)]
    return [
        Finding("certified", reason) if certificate.holds else Finding("solved", f"{reason}; {certificate.missing}")
    ]


def _undecided(refutation: Any, several: bool) -> list[Finding]:
    """Why an estimated conflict settles nothing where a proof was asked for; nothing if the conflict is proved."""
    if refutation is None:
        why = Reason.CONFLICT_ON_A_BOX if several else Reason.CONFLICT_WITHOUT_DATA
    elif refutation.holds:
        return []
    else:
        why = Reason.CONFLICT_WITHOUT_TAIL if refutation.refuted else Reason.CONFLICT_IN_DOUBT
    return [Finding("undetermined", str(why))]


@dataclass(frozen=True, eq=False)
class Witness:
    """Why there is no reward: weights λ_r ≥ 0 with Σ λ_r (T − Z^{a_r})φ(s_r) = 0.

    Any value function would need a positive advantage in each of these rows, but their weighted sum is zero.

    Attributes:
        states: ``[m, d]``.
        actions: the rival in each row ``[m]``.
        weights: λ ``[m]``, summing to 1.
        residual: length of the weighted sum relative to the longest row: zero but for rounding.
    """

    states: Array
    actions: NDArray[np.intp]
    weights: Array
    residual: float

    def __str__(self) -> str:
        if len(self.weights) == 1:
            return f"at {_state(self.states[0])} action {self.actions[0]} acts exactly like the expert's"
        order = ranked(self.weights, self.actions, self.states)[:4]
        named = ", ".join(
            f"action {self.actions[r]} at {_state(self.states[r])} ({self.weights[r]:.2g})" for r in order
        )
        return f"{named}{' …' if len(self.weights) > 4 else ''} cancel out (weights in brackets)"


@dataclass(frozen=True, eq=False)
class Recovery:
    """What Algorithm 2 found.

    Attributes:
        status: "solved" (the margin is positive), "infeasible" or "undetermined".
        reason: the sentence that goes with it.
        reward: R = αᵀφ, if one was found: solved, or a soft or cover answer whose margin is not positive.
        value: w with V = wᵀφ the expert's value ``[k]``; None without a reward.
        margin: min over rivals and all states of D_a(s); on boxes a proved lower bound of it; NaN without a reward.
        worst_state, worst_action: where it is reached.
        objective: what was minimised.
        states, actions, weights: the rows of the last program ``[m, d]``, ``[m]`` and their weights ``[m]``.
        slack: how far each row falls short ``[m]``; zeros in the hard form.
        rounds: solves of the program.
        cover: the radius of the cover, if one stood in for the continuum.
        witness: the conflict, if infeasible.
    """

    status: str
    reason: Reason
    objective: str
    states: Array
    actions: NDArray[np.intp]
    weights: Array
    slack: Array
    rounds: int
    reward: Reward | None = None
    value: Array | None = None
    margin: float = float("nan")
    worst_state: Array | None = None
    worst_action: int | None = None
    cover: float | None = None
    witness: Witness | None = None

    def __post_init__(self) -> None:
        freeze(self)


def cover_points(domain: Domain, radius: float) -> Array:
    """The paper's cover: ⌈√d·width/c⌉ even states along each axis ``[m, d]``, every state within c of one.

    Algorithm 2, step 3, with the Euclidean distance of Section 6 in d coordinates.
    """
    radius = as_radius(radius, domain)
    low, high = np.array(domain).T
    counts = np.ceil(len(domain) ** 0.5 * (high - low) / radius - 1e-9)
    if counts.prod() > MOST_POINTS:
        raise ValueError(
            f"a cover of radius {radius:g} has {counts.prod():.3g} points, more than {MOST_POINTS:,}: "
            f"leave {setting('cover')} out to solve on the whole box"
        )
    axes = [a + (b - a) * (np.arange(n) + 0.5) / n for a, b, n in zip(low, high, counts.astype(int), strict=True)]
    return mesh(axes)


def as_radius(cover: Any, domain: Domain) -> float:
    """The radius of a cover of the domain."""
    low, high = np.array(domain).T
    widest = float(np.linalg.norm(high - low))
    what = f"the width {widest:g}" if len(domain) == 1 else f"the diagonal {widest:g}"
    radius = as_number(cover, "cover", least=0, strict=True, meaning="a radius")
    if radius > widest:
        raise ValueError(f"cover must be a radius not above {what} of the domain, got {shown(cover)}")
    return radius


def _coarse_radius(domain: Domain) -> float:
    """The radius of a cover of about a hundred points for one coordinate, a few hundred for more."""
    low, high = np.array(domain).T
    along = 100 if len(domain) == 1 else max(round(400 ** (1 / len(domain))), 3)
    return float(np.linalg.norm(high - low) / along)


def recover(
    bellman: Bellman,
    *,
    objective: str = "least-variance",
    cover: float | None = None,
    slack: float | None = None,
    tolerance: float = 1e-7,
    max_rounds: int = 200,
) -> Recovery:
    """Find a reward with ``D_a(s) ≥ 1`` for all states s and rivals a (Algorithm 2).

    On the continuum this is a semi-infinite program: solve for a few states, find the exact minimum of every D_a by
    the roots of its derivative (on boxes, by branch and bound), add the violated minima as rows, repeat. The answer is
    scaled to a margin of exactly 1; on boxes, to a proved lower bound of 1.

    Args:
        bellman: the criterion.
        objective: "least-variance" (the value function that the data pin down best), "l1" (the paper's ‖α‖₁) or
            "max-margin" (the largest margin with ‖α‖₁ = 1, which is β).
        cover: the paper's cover radius c instead of the continuum.
        slack: soft form: the price of falling short of the margin, summed over the cover (c = width/100 if left out);
            by the unit for "l1", by the unit squared for "least-variance".
        tolerance: how far below the target a minimum may lie before it becomes a row.
        max_rounds: solves before giving up.
    """
    _check(objective, slack, tolerance, max_rounds)
    rows = _Rows(bellman, objective)
    if bellman.spectral_radius >= 1:
        return _without_reward("undetermined", Reason.DIVERGES, objective, rows, 0)
    differences = np.abs(bellman.advantage).max(axis=(1, 2))
    if (differences > 0).all() and differences.min() <= SAME_DIGITS * np.abs(bellman.T).max():
        return _without_reward("undetermined", Reason.SAME, objective, rows, 0)
    if slack is not None and cover is None:
        cover = _coarse_radius(bellman.basis.domain)
    points = _first_points(bellman) if cover is None else cover_points(bellman.basis.domain, cover)
    solver = rows.program(slack)
    for rival in range(len(bellman.rivals)):
        solver.add(rows.add(points, rival))
    exact = False
    for solves in range(1, max_rounds + 1):
        answer = solver.solve()
        if answer.status == "infeasible" and answer.weights.any():
            return _infeasible(objective, rows, answer, solves)
        if answer.x is None:
            return _without_reward("undetermined", Reason.SOLVER, objective, rows, solves)
        if cover is not None:
            break
        violated = rows.violated(answer.x, 1.0 - tolerance, exact=exact)
        if not violated and not exact:  # the quick look found nothing more: from here on, look at every root
            exact = bellman.basis.dimension == 1  # on boxes a proof costs much more than a look
            violated = rows.violated(answer.x, 1.0 - tolerance, exact=True)
        if not violated:
            break
        for rival, states in violated:
            solver.add(rows.add(states, rival))
    else:
        return _without_reward("undetermined", Reason.ROUNDS, objective, rows, max_rounds)
    return _finished(bellman, objective, rows, answer, solves, soft=slack is not None, cover=cover, tolerance=tolerance)


def _first_points(bellman: Bellman) -> Array:
    return bellman.columns.grid(bellman.columns.size + 1)


class _Rows:
    """The rows of the program so far: which state and rival each belongs to, in the objective's own coordinates."""

    def __init__(self, bellman: Bellman, objective: str) -> None:
        # Least variance lives in value coordinates, where the constant is free; the others in reward coordinates.
        self.in_values = objective == "least-variance"
        self.first = 1 if self.in_values else 0
        self.matrices = bellman.advantage if self.in_values else bellman.F
        self.matrices = self.matrices[:, self.first :, :]
        self.size = self.matrices.shape[1]
        self.columns = bellman.columns
        self.rivals, self.spread = bellman.rivals, bellman.spread
        self.states = np.zeros((0, bellman.basis.dimension))
        self.which = np.zeros(0, dtype=np.intp)

    def program(self, slack: float | None) -> program.Program:
        """The empty program of the objective."""
        if self.in_values:
            return program.LeastVariance(self.spread[1:, 1:], slack=slack)
        return program.LinearProgram(self.size, slack=slack)

    def add(self, states: Array, rival: int) -> Array:
        """Note the states of one rival and return their rows ``[m, k]``."""
        self.states = np.concatenate([self.states, states])
        self.which = np.concatenate([self.which, np.full(len(states), rival)])
        return self.columns.values(states) @ self.matrices[rival].T

    def of(self, rival: int) -> Array:
        """The states of one rival's rows so far ``[m, d]``."""
        return self.states[self.which == rival]

    def unseen(self, states: Array, rival: int) -> Array:
        """Those of the states that are not yet rows of this rival, to rounding."""
        if self.columns.dimension > 1:
            low, high = np.array(self.columns.domain).T
            return states[_distances((states - low) / (high - low), (self.of(rival) - low) / (high - low)) > 1e-9]
        known = np.sort(self.of(rival)[:, 0])
        place = np.clip(np.searchsorted(known, states[:, 0]), 1, len(known) - 1)
        ((low, high),) = self.columns.domain
        gap = np.minimum(np.abs(states[:, 0] - known[place - 1]), np.abs(states[:, 0] - known[place]))
        return states[gap > 1e-9 * (high - low)]

    def all(self) -> Array:
        """Every row again, computed afresh: ``[m, k]``."""
        features, rows = self.columns.values(self.states), np.empty((len(self.states), self.size))
        for rival, matrix in enumerate(self.matrices):
            rows[self.which == rival] = features[self.which == rival] @ matrix.T
        return rows

    def curves(self, x: Array) -> Array:
        """The coefficients of each D_a for this solution ``[A − 1, k_s]``."""
        return np.einsum("i,aij->aj", x, self.matrices)

    def violated(self, x: Array, bound: float, *, exact: bool) -> list[tuple[int, Array]]:
        """The states, by rival, where a curve dips below the bound and that are not rows already."""
        found = []
        for rival, curve in enumerate(self.curves(x)):
            states, values = local_minima(self.columns, curve, exact=exact, below=bound)
            states = self.unseen(states[values < bound], rival)
            if len(states):
                found.append((rival, states))
        return found

    @property
    def actions(self) -> NDArray[np.intp]:
        """The rival of each row, by its number among all actions."""
        return np.array(self.rivals, dtype=np.intp)[self.which]


def _distances(points: Array, known: Array) -> Array:
    """How far each point is from the nearest known one, in the coordinate that tells them apart best: ``[n]``."""
    from scipy.spatial import KDTree

    return np.asarray(KDTree(known).query(points, p=np.inf)[0])


def _check(objective: str, slack: float | None, tolerance: float, max_rounds: int) -> None:
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}")
    if slack is not None and objective == "max-margin":
        raise ValueError("the soft form is for 'least-variance' and 'l1'; the best margin is never infeasible")
    check_slack(slack)
    as_number(tolerance, "tolerance", least=0, strict=True)
    as_count(max_rounds, "max_rounds")


def check_slack(slack: Any) -> None:
    """Refuse, with a sentence, what is no price of a shortfall."""
    if slack is not None:
        as_number(slack, "slack", least=0, strict=True, meaning="a price")


def _worst(bellman: Bellman, alpha: Array) -> tuple[float, Array, int]:
    """The exact minimum of D_a over states and rivals, with its place."""
    minima = [minimum(bellman.columns, curve) for curve in bellman.margins(alpha)]
    values = np.array([value for _, value in minima])
    rival = first_of_least(values)
    return float(values.min()), minima[rival][0], bellman.rivals[rival]


def _finished(
    bellman: Bellman,
    objective: str,
    rows: _Rows,
    answer: program.Answer,
    rounds: int,
    *,
    soft: bool,
    cover: float | None,
    tolerance: float,
) -> Recovery:
    """Check the answer with our own arithmetic, scale it, and name its worst place."""
    assert answer.x is not None
    x = answer.x
    if (rows.all() @ x + answer.slack).min() < 1.0 - 10 * tolerance:
        return _without_reward("undetermined", Reason.SOLVER, objective, rows, rounds)
    coefficients = np.concatenate([np.zeros(rows.first), x])
    alpha = bellman.reward_of(coefficients) if rows.in_values else coefficients
    margin, state, action = _worst(bellman, alpha)
    if cover is None and margin < 0.5:  # the rows hold but the continuum does not: the oracle and the solver disagree
        return _without_reward("undetermined", Reason.SOLVER, objective, rows, rounds)
    # Margins scale with the reward: to 1, or for the best margin to ‖α‖₁ = 1, since min ‖α‖₁ at margin 1 is 1/β.
    unit = float(np.abs(alpha).sum()) if objective == "max-margin" else margin if cover is None else 1.0
    alpha, margin = alpha / unit, margin / unit
    reason = Reason.SOLVED if margin > 0 else Reason.SOFT if soft else Reason.COVER
    return Recovery(
        status="solved" if margin > 0 else "undetermined",
        reason=reason,
        objective=objective,
        states=rows.states,
        actions=rows.actions,
        weights=answer.weights,
        slack=answer.slack,
        rounds=rounds,
        reward=Reward(bellman.basis, alpha),
        value=bellman.value_of(alpha),
        margin=margin,
        worst_state=state,
        worst_action=action,
        cover=cover,
    )


def _infeasible(objective: str, rows: _Rows, answer: program.Answer, rounds: int) -> Recovery:
    """Keep the rows with weight, and measure how nearly they cancel."""
    weights = answer.weights / answer.weights.sum()
    used = weights > 1e-12
    all_rows = rows.all()
    residual = float(np.linalg.norm(weights @ all_rows) / (np.linalg.norm(all_rows, axis=1).max() or 1.0))
    witness = Witness(rows.states[used], rows.actions[used], weights[used], residual)
    return Recovery(
        "infeasible",
        Reason.CONFLICT,
        objective,
        rows.states,
        rows.actions,
        weights,
        answer.slack,
        rounds,
        witness=witness,
    )


def _without_reward(status: str, reason: Reason, objective: str, rows: _Rows, rounds: int) -> Recovery:
    zeros = np.zeros(len(rows.states))
    return Recovery(status, reason, objective, rows.states, rows.actions, zeros, zeros, rounds)


def _state(state: Array) -> str:
    return f"s = {state[0]:.4g}" if len(state) == 1 else f"s = ({', '.join(f'{x:.4g}' for x in state)})"
