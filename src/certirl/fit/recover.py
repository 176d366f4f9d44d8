"""Algorithm 2: from the Bellman criterion to a reward, exactly on the continuum or on the paper's cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.fit import program
from certirl.fit.bellman import Bellman
from certirl.fit.witness import USED, Witness, whole_rows
from certirl.functions.components import Component
from certirl.functions.extrema import first_of_least, local_minima, minimum
from certirl.functions.reward import Reward
from certirl.ground.domain import Array, Box, mesh
from certirl.ground.doors import as_count, as_listed, as_number, setting, shown
from certirl.ground.records import Record
from certirl.ground.status import Finding, Reason, change

WEIGHED = ("smoothest", "least-variance")  # by the errors of the operators
OBJECTIVES = (*WEIGHED, "l1", "max-margin")
BETWEEN = "least-variance and l1"  # a reward between the two
SHARE = 0.8  # of the best margin, in standard deviations of V: what the smoothest reward keeps
PRICES, HALVED = (-4.0, 6.0), 9  # powers of ten between which its price of roughness is sought, and the halvings
BALANCED = "balanced variance"  # least variance, each comparison in units of its own noise
BALANCINGS = 3  # solves, each with the noise under the answer before
MOST_POINTS = 1_000_000  # of a cover
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # of the span of R, within which an expert may be optimal
PARTS = (0.25, 0.5, 0.75)  # of what an inexact expert may lack, that a reward is asked to leave
_MESH = 4  # points of the mesh for each function, where an inexact expert is compared
NEGLIGIBLE = 1e-9  # share of the largest margins below which a component gets no reward
SAME_DIGITS = 1e-12  # of the operators: a smaller difference of two actions is rounding


@dataclass(frozen=True, eq=False)
class Recovery(Record):
    """The answer of Algorithm 2, for one component or for several whose rewards add up.

    Attributes:
        finding: the status with its reason: "solved" (the margin is positive), "infeasible" or "undetermined".
        components: names, coordinates and functions of the components.
        objective: what was minimised.
        rounds: solves of the program.
        states: of the rows of the last program ``[m, d]``; NaN in the coordinates of other components.
        actions: the alternative action of each row ``[m]``.
        weights: λ of each row ``[m]``.
        slack: how far each row falls short ``[m]``; zeros in the hard form.
        reward: R, if one was found: solved, or a soft or cover answer whose margin is not positive.
        values: w_j with V_j = w_jᵀφ the expert's value in every component ``[k_j]``; empty without a reward.
        margin: the smallest D_a(s) over all states and alternative actions; on boxes a proved lower bound of it; NaN
            without a reward.
        worst_state, worst_action: where it is attained.
        cover: the radius of the cover, if one stood in for the continuum.
        witness: the conflict, if infeasible.

    Example:
        >>> operators = certirl.problems.random_polynomial(seed=7).operators(certirl.Legendre(7))
        >>> criterion = certirl.steps.bellman(operators, discount=0.7, expert=0)
        >>> recovery = certirl.steps.recover(criterion)
        >>> recovery.status, recovery.value.shape, recovery.worst_action in (1, 2)
        ('solved', (7,), True)
    """

    finding: Finding
    components: tuple[Component, ...]
    objective: str
    rounds: int
    states: Array
    actions: NDArray[np.intp]
    weights: Array
    slack: Array
    reward: Any = None
    values: tuple[Array, ...] = ()
    margin: float = float("nan")
    worst_state: Array | None = None
    worst_action: int | None = None
    cover: float | None = None
    witness: Witness | None = None

    @property
    def status(self) -> str:
        """One of "solved", "infeasible" and "undetermined"."""
        return self.finding.status

    @property
    def reason(self) -> str:
        """The cause of the status in a sentence, and what to change."""
        return self.finding.sentence

    @property
    def value(self) -> Array | None:
        """w of the only component ``[k]``; None without a reward."""
        return self.values[0] if self.values else None


def cover_points(domain: Box, radius: float) -> Array:
    """The paper's cover: ⌈√d·width/c⌉ even states along each axis ``[m, d]``, every state within c of one.

    Algorithm 2, step 3, with the Euclidean distance of Section 6 in d coordinates.
    """
    radius = as_radius(radius, domain)
    counts = np.ceil(len(domain) ** 0.5 * domain.width / radius - 1e-9)
    if counts.prod() > MOST_POINTS:
        raise ValueError(
            f"a cover of radius {radius:g} has {counts.prod():.3g} points, more than {MOST_POINTS:,}: "
            f"leave {setting('cover')} out to solve on the whole box"
        )
    pairs = zip(domain, counts.astype(int), strict=True)
    return mesh([low + (high - low) * (np.arange(n) + 0.5) / n for (low, high), n in pairs])


def as_radius(cover: Any, domain: Box) -> float:
    """The radius of a cover of the domain."""
    widest = float(np.linalg.norm(domain.width))
    what = f"the width {widest:g}" if len(domain) == 1 else f"the diagonal {widest:g}"
    radius = as_number(cover, "cover", least=0, strict=True, meaning="a radius")
    if radius > widest:
        raise ValueError(f"cover must be a radius not above {what} of the domain, got {shown(cover)}")
    return radius


def _coarse_radius(domain: Box) -> float:
    """The radius of a cover of about a hundred points for one coordinate, a few hundred for more."""
    along = 100 if len(domain) == 1 else max(round(400 ** (1 / len(domain))), 3)
    return float(np.linalg.norm(domain.width) / along)


def recover(
    criteria: Bellman | Sequence[Bellman],
    *,
    components: Sequence[Component] = (),
    objective: str = "least-variance",
    cover: float | None = None,
    slack: float | None = None,
    tolerance: float = 1e-7,
    max_rounds: int = 200,
) -> Recovery:
    """Find a reward with ``D_a(s) ≥ 1`` for all states s and alternative actions a (Algorithm 2).

    On the continuum this is a semi-infinite program: solve for a few states, find the exact minimum of every D_a by
    the roots of its derivative (on boxes, by branch and bound), add the violated minima as rows, repeat. The answer is
    scaled to a margin of exactly 1; on boxes, to a proved lower bound of 1.

    With several components R = Σ_j R_j and D_a(s) = Σ_j D_ja(s_j), whose minimum is the sum of the minima. Rows say
    m_ja ≤ D_ja(s_j) at a few states of one component, sums Σ_j m_ja ≥ 1 join them. No component needs to be solvable by
    itself: an alternative action may do in some components exactly what the expert's does.

    Args:
        criteria: the Bellman criterion, or one for each component.
        components: their names, coordinates and bases, if there are several.
        objective: "least-variance" (the value function that the data determine best: the largest margin in standard
            deviations of V), "smoothest" (the least integral of squared second derivatives of R among rewards with 0.8
            of this margin), "l1" (the paper's ‖α‖₁) or "max-margin" (the largest margin with ‖α‖₁ = 1, which is β).
        cover: the paper's cover radius c instead of the continuum; for one component.
        slack: soft form: the price of falling short of the margin, summed over the cover (c = width/100 if left out);
            by the unit for "l1", by the unit squared for "least-variance"; for one component.
        tolerance: how far below the target a minimum may lie before it becomes a row.
        max_rounds: solves before giving up.

    Example:
        >>> operators = certirl.problems.random_polynomial(seed=7).operators(certirl.Legendre(7))
        >>> criterion = certirl.steps.bellman(operators, discount=0.7, expert=0)
        >>> recovery = certirl.steps.recover(criterion, objective="l1")
        >>> recovery.status, round(recovery.margin, 6)
        ('solved', 1.0)
    """
    criteria, components = _as_criteria(criteria, components)
    _check(objective, slack, tolerance, max_rounds)
    if objective in WEIGHED and any(np.isnan(criterion.noise).any() for criterion in criteria):
        raise ValueError(
            f"objective={objective!r} weighs the errors of the operators, which are not known of given ones: write "
            "objective='l1' or 'max-margin'"
        )
    if len(criteria) > 1 and (cover is not None or slack is not None):
        raise ValueError("several components are solved with all constraints at all states: leave cover and slack out")
    return _solved(_Task(criteria, components, objective), slack, cover, tolerance, max_rounds)


def _solved(
    task: _Task, slack: float | None = None, cover: float | None = None, tolerance: float = 1e-7, max_rounds: int = 200
) -> Recovery:
    """The answer to a task; arguments as for `recover`."""
    criteria, components = task.criteria, task.components
    for component, criterion in zip(components, criteria, strict=True):
        if criterion.spectral_radius >= 1:
            which = f"component {component.name}: " if len(components) > 1 else ""
            columns = change(columns=max(criterion.columns.size // 2, 2))
            return task.recovery(Reason.DIVERGES.finding(columns, which=which), 0)
    if slack is not None and cover is None:
        cover = _coarse_radius(criteria[0].basis.domain)
    task.start(slack, cover)
    settings: dict[str, Any] = {"cover": cover, "tolerance": tolerance, "max_rounds": max_rounds}
    answer = task.solve(proved=task.objective != "smoothest", **settings)
    if task.objective == "smoothest" and answer is not None and answer.x is not None:
        answer = task.smoothest(answer.x, **settings)
    if answer is None:
        return task.recovery(Reason.ROUNDS.finding(), task.solves)
    if answer.status == "infeasible" and answer.weights.any():
        return task.infeasible(answer, task.solves)
    if answer.x is None:
        return task.recovery(task.failed, task.solves)
    return task.finished(answer, task.solves, soft=slack is not None, cover=cover, tolerance=tolerance)


def _as_criteria(criteria: Any, components: Any) -> tuple[list[Bellman], tuple[Component, ...]]:
    """The criteria, one for each component, with the components."""
    criteria = [criteria] if isinstance(criteria, Bellman) else list(as_listed(criteria, "criteria"))
    if not criteria or not all(isinstance(criterion, Bellman) for criterion in criteria):
        raise TypeError(f"criteria must be what certirl.steps.bellman returns, one or several, got {shown(criteria)}")
    if not all(isinstance(component, Component) for component in as_listed(components, "components")):
        raise TypeError(f"components must be those of a basis, basis.components, got {shown(components)}")
    components = tuple(components) or criteria[0].basis.components
    if len(components) != len(criteria):
        raise ValueError(f"there are {len(components)} components but {len(criteria)} criteria")
    return criteria, components


def distinct(criterion: Bellman) -> NDArray[np.bool_]:
    """Which alternative actions differ in effect from the expert's by more than rounding ``[A − 1]``."""
    return np.asarray(np.abs(criterion.advantage).max(axis=(1, 2)) > SAME_DIGITS * np.abs(criterion.T).max())


def alike(criteria: Sequence[Bellman]) -> int | None:
    """The first alternative action with the expert's effect in every component; None if all of them differ."""
    same = ~np.any([distinct(criterion) for criterion in criteria], axis=0)
    return criteria[0].alternatives[int(same.argmax())] if same.any() else None


class _Task:
    """The program of a recovery and the state and action of every row, in the objective's coordinates."""

    solver: program.LinearProgram | program.LeastVariance

    def __init__(
        self,
        criteria: Sequence[Bellman],
        components: tuple[Component, ...],
        objective: str,
        units: Array | None = None,
    ) -> None:
        """``units`` of the margins of each alternative action ``[A − 1]``; all alike if left out."""
        self.criteria, self.components, self.objective = criteria, components, objective
        self.units = np.ones(len(criteria[0].alternatives)) if units is None else units
        # Least variance uses value coordinates, where the constant is free; the others use reward coordinates.
        self.in_values = objective in WEIGHED
        self.first = 1 if self.in_values else 0
        self.matrices = [
            (distinct(c) / self.units)[:, None, None] * (c.advantage if self.in_values else c.F)[:, self.first :, :]
            for c in criteria
        ]
        self.alternatives = criteria[0].alternatives
        self.states: dict[tuple[int, int], Array] = {}
        self._order: list[tuple[int, int, Array]] = []  # of adding
        self.solves = 0

    def start(self, slack: float | None, cover: float | None) -> None:
        """The program with its first rows."""
        shares = 1 / self.units**2 / len(self.units)
        self.spreads = [np.tensordot(shares, criterion.spreads, axes=1)[1:, 1:] for criterion in self.criteria]
        if self.in_values:
            self.solver = program.LeastVariance(self.spreads, slack=slack)
        else:
            sizes = [matrices.shape[1] for matrices in self.matrices]
            self.solver = program.LinearProgram(sizes, len(self.alternatives), slack=slack)
        for j, criterion in enumerate(self.criteria):
            columns = criterion.columns
            points = columns.grid(columns.size + 1) if cover is None else cover_points(columns.domain, cover)
            for alternative in range(len(self.alternatives)):
                self.add(j, alternative, points)

    def add(self, j: int, alternative: int, states: Array) -> None:
        """Add rows at states ``[m, d_j]`` of one component."""
        before = self.states.get((j, alternative), np.zeros((0, states.shape[1])))
        self.states[j, alternative] = np.concatenate([before, states])
        self._order.append((j, alternative, states))
        self._add(j, alternative, states)

    def _add(self, j: int, alternative: int, states: Array) -> None:
        self.solver.add(j, alternative, self.criteria[j].columns.values(states) @ self.matrices[j][alternative].T)

    def solve(
        self, *, cover: float | None, tolerance: float, max_rounds: int, proved: bool = True
    ) -> program.Answer | None:
        """The answer that no state violates, on boxes proved or by a search alone; None after too many rounds."""
        # On boxes a proved minimum costs much more than a search, so that every round begins with the search there.
        roots = all(criterion.basis.dimension == 1 for criterion in self.criteria)
        exact = False
        for _ in range(max_rounds):
            self.solves += 1
            answer = self.solver.solve()
            if answer.x is None or cover is not None:
                return answer
            violated = self.violated(answer.x, tolerance, exact=exact)
            if not violated and not exact and (roots or proved):
                exact = roots
                violated = self.violated(answer.x, tolerance, exact=True)
            if not violated:
                return answer
            for j, alternative, states in violated:
                self.add(j, alternative, states)
        return None

    def smoothest(self, best: tuple[Array, ...], **settings: Any) -> program.Answer | None:
        """The smoothest answer with `SHARE` of the margin of the best one, both in standard deviations of V.

        A price of roughness is sought at which the least variance with it is as large as that allows.
        """
        known = [factor @ factor.T for factor in map(program.whitening, self.spreads)]
        rough = [criterion.roughness[1:, 1:] for criterion in self.criteria]

        def form(matrices: Sequence[Array], x: tuple[Array, ...]) -> float:
            return sum(float(x_j @ matrix @ x_j) for x_j, matrix in zip(x, matrices, strict=True))

        def at(power: float, *, proved: bool) -> program.Answer | None:
            prices = [spread + 10**power * unit * each for spread, each in zip(known, rough, strict=True)]
            self.solver = program.LeastVariance(prices)
            for row in self._order:
                self._add(*row)
            return self.solve(proved=proved, **settings)

        least, roughness = form(known, best), form(rough, best)
        unit, (low, high) = least / (roughness or 1.0), PRICES
        for _ in range(HALVED if roughness else 0):
            middle = (low + high) / 2
            answer = at(middle, proved=False)
            is_enough = answer is not None and answer.x is not None and form(known, answer.x) * SHARE**2 <= least
            low, high = (middle, high) if is_enough else (low, middle)
        answer = at(low, proved=True)
        return at(-np.inf, proved=True) if answer is None or answer.x is None else answer

    def violated(self, x: tuple[Array, ...], tolerance: float, *, exact: bool) -> list[tuple[int, int, Array]]:
        """States below the rows, by component and alternative action, where a sum of minima is below the target."""
        sums, lower = np.zeros(len(self.alternatives)), []
        room, target = tolerance / (2 * len(x)), 1.0 - tolerance
        for (j, alternative), rows in self.states.items():
            curve = x[j] @ self.matrices[j][alternative]
            if not curve.any():
                continue
            columns = self.criteria[j].columns
            states, values = local_minima(columns, curve, exact=exact, below=target if len(x) == 1 else None)
            lowest = float((columns.values(rows) @ curve).min())
            sums[alternative] += min(float(values.min()), lowest)
            lower.append((j, alternative, _unlisted(states[values < lowest - room], rows, columns.domain)))
        missing = sums < target
        return [entry for entry in lower if missing[entry[1]] and len(entry[2])]

    @property
    def failed(self) -> Finding:
        """That the solver stopped, and which other objective to try."""
        other = "least-variance" if self.objective == "l1" else "l1"
        return Reason.SOLVER.finding(f"method=certirl.Program(…, objective={other!r})")

    def _whole(self, j: int, states: Array) -> Array:
        """States of one component as states of the whole space, NaN elsewhere ``[m, d]``."""
        whole = np.full((len(states), sum(len(component.coordinates) for component in self.components)), np.nan)
        whole[:, list(self.components[j].coordinates)] = states
        return whole

    def recovery(self, finding: Finding, rounds: int, **more: Any) -> Recovery:
        """What is known at the end: the rows in the order of adding, and ``more``."""
        nowhere = np.zeros((0, sum(criterion.basis.dimension for criterion in self.criteria)))
        states = np.concatenate([nowhere, *(self._whole(j, states) for j, _, states in self._order)])
        actions = np.repeat(
            np.array([self.alternatives[a] for _, a, _ in self._order], dtype=np.intp),
            [len(states) for _, _, states in self._order],
        )
        zeros = np.zeros(len(states))
        rows = {"states": states, "actions": actions, "weights": zeros, "slack": zeros}
        return Recovery(finding, self.components, self.objective, rounds, **(rows | more))

    def infeasible(self, answer: program.Answer, rounds: int) -> Recovery:
        """Keep the rows with weight, and measure how nearly they cancel in every component."""
        rows = self.solver.rows
        weights = answer.weights / answer.weights[rows.component == 0].sum()  # equal sums in all components
        longest = float(np.linalg.norm(rows.values, axis=1).max()) or 1.0
        residual = float(np.linalg.norm(rows.combined(weights))) / longest
        recovery = self.recovery(Reason.CONFLICT.finding(), rounds, weights=weights, slack=answer.slack)
        parts = []
        for j, component in enumerate(self.components):
            of = rows.component == j
            parts.append((component.coordinates, component.of(recovery.states[of]), recovery.actions[of], weights[of]))
        states, actions, shares = whole_rows(parts)
        used, functions = shares > USED, sorted({str(criterion.basis) for criterion in self.criteria})
        witness = Witness(
            states=states[used],
            taken=np.full(int(used.sum()), self.criteria[0].expert, dtype=np.intp),
            actions=actions[used],
            weights=shares[used] / shares[used].sum(),
            residual=residual,
            functions=functions[0] if len(parts) == 1 else f"sums of {', '.join(functions)} of each component",
        )
        return replace(recovery, witness=witness)

    def finished(
        self, answer: program.Answer, rounds: int, *, soft: bool, cover: float | None, tolerance: float
    ) -> Recovery:
        """Check rows and exact minima in double precision; scale to a margin of 1, or to ‖α‖₁ = 1 for the largest."""
        assert answer.x is not None
        rows, width = self.solver.rows, self.solver.rows.values.shape[1]
        x = np.array([np.pad(x_j, (0, width - len(x_j))) for x_j in answer.x])
        if rows.lowest(rows.products(x) + answer.slack).sum(axis=0).min() < 1.0 - 10 * tolerance:
            return self.recovery(self.failed, rounds)
        sizes = [float(np.abs(x_j @ matrices).max()) for x_j, matrices in zip(answer.x, self.matrices, strict=True)]
        coefficients = []
        for criterion, x_j, size in zip(self.criteria, answer.x, sizes, strict=True):
            # A component that hardly counts gets no reward.
            padded = np.concatenate([np.zeros(self.first), x_j]) * (size > NEGLIGIBLE * max(sizes))
            coefficients.append(criterion.reward_of(padded) if self.in_values else padded)
        judged = self.judged(coefficients, cover)
        if cover is None and judged.margin < 0.5:  # the rows hold, the continuum does not: oracle and solver disagree
            return self.recovery(self.failed, rounds)
        return self.recovery(
            (Reason.SOLVED if judged.margin > 0 else Reason.SOFT if soft else Reason.COVER).finding(),
            rounds,
            weights=answer.weights,
            slack=answer.slack,
            cover=cover,
            **judged.fields,
        )

    def judged(self, coefficients: Sequence[Array], cover: float | None = None, unit: float | None = None) -> _Judged:
        """The exact margin of rewards α_j of all components, and the rewards scaled to a margin of 1, or by a unit.

        For the best margin to ‖α‖₁ = 1, since min ‖α‖₁ at margin 1 is 1/β; with a cover they stay as they are.
        """
        each = zip(self.criteria, coefficients, strict=True)
        exact = [[minimum(criterion.columns, curve) for curve in criterion.margins(alpha)] for criterion, alpha in each]
        minima = np.sum([[value for _, value in pairs] for pairs in exact], axis=0)
        margin, worst = float(minima.min()), first_of_least(minima)
        norm = sum(float(np.abs(alpha).sum()) for alpha in coefficients)
        if unit is None:
            unit = norm if self.objective == "max-margin" else margin if cover is None else 1.0
        rewards = [Reward(c.basis, alpha / unit) for c, alpha in zip(self.criteria, coefficients, strict=True)]
        place = np.nansum([self._whole(j, pairs[worst][0][None])[0] for j, pairs in enumerate(exact)], axis=0)
        fields = {
            "reward": joined(self.components, rewards),
            "values": tuple(c.value_of(reward.coefficients) for c, reward in zip(self.criteria, rewards, strict=True)),
            "margin": margin / unit,
            "worst_state": place,
            "worst_action": self.alternatives[worst],
        }
        return _Judged(margin, fields)


class _Judged(NamedTuple):
    """The margin of a reward as it was found, and the fields of a recovery once it is scaled."""

    margin: float
    fields: dict[str, Any]


def between(criteria: Sequence[Bellman], first: Recovery, second: Recovery, share: float) -> Recovery:
    """The reward that lies this share of the way from one solution of the program to another.

    Margins are concave in the reward, so that it is a solution, too; it may be easier to prove than either.
    """
    task = _Task(list(criteria), first.components, BETWEEN)
    pairs = zip(criteria, first.values, second.values, strict=True)
    coefficients = [c.reward_of((1 - share) * value + share * other) for c, value, other in pairs]
    return replace(first, objective=BETWEEN, **task.judged(coefficients).fields)


def inexact(criterion: Bellman, share: float) -> list[Recovery]:
    """Rewards that span about 1 and prefer the expert's action most on average, though some state is an exception.

    Where the constraints of a strictly optimal action contradict each other, another right-hand side is asked for:
    D_a(s) ≥ −ρ/γ at the states of a mesh, for several ρ up to the share ξ of the span. Found are the rewards that keep
    to ξ at all states; the first allows least.

    Args:
        criterion: of the only component.
        share: ξ.
    """
    task = _Task([criterion], criterion.basis.components, "l1")
    states = criterion.columns.grid(_MESH * criterion.columns.size)
    values = criterion.columns.values(states)
    rows = np.concatenate([values @ task.matrices[0][a].T for a in range(len(task.alternatives))])
    spanned = criterion.basis.values(np.concatenate([states, criterion.basis.grid(_MESH * criterion.basis.size)]))
    found = []
    for part in PARTS:
        alpha = program.most_preferred(rows, spanned, -part * share / criterion.discount)
        if alpha is None:
            continue
        judged = task.judged([alpha], unit=1.0)
        least = share_needed(criterion, judged.margin, spanned @ alpha)
        if least <= share:
            found.append(task.recovery(Reason.WITHIN.finding(share=least), 1, **judged.fields))
    return found


def share_allowed(criterion: Bellman, above: float = 0.0) -> float | None:
    """The least of some shares ξ above another for which `inexact` finds a reward; None if it does for none."""
    return next((share for share in SHARES if share > above and inexact(criterion, share)), None)


def share_needed(criterion: Bellman, margin: float, values: Array) -> float:
    """The ξ that a margin asks for, by the values of the reward at many states."""
    span = float(np.ptp(values))
    return criterion.discount * max(-margin, 0.0) / span if span > 0 else np.inf


def balanced(criteria: Sequence[Bellman], first: Recovery) -> Recovery:
    """The reward of least variance where the margin of each comparison is in units of its own noise.

    With margins alike in all comparisons, the noisiest decides what a proof takes. ``first`` is that of least variance.
    """
    found = first
    for _ in range(BALANCINGS):
        each = zip(criteria, found.values, strict=True)
        noise = np.sum([np.einsum("i,aij,j->a", w, c.spreads, w) for c, w in each], axis=0) ** 0.5
        units = noise / noise.mean() if noise.min() > 0 else np.ones(len(noise))
        answer = _solved(_Task(list(criteria), first.components, "least-variance", units))
        if answer.status != "solved":
            break
        found = answer
    return replace(between(criteria, found, found, 0.0), objective=BALANCED)


def joined(components: Sequence[Component], functions: Sequence[Reward]) -> Reward:
    """The sum of functions of the components."""
    names, coordinates = zip(*((component.name, component.coordinates) for component in components), strict=True)
    return Reward.sum(functions, coordinates, names)


def _unlisted(states: Array, rows: Array, domain: Box) -> Array:
    """Those of the states that are not yet rows, to rounding ``[m, d]``."""
    from scipy.spatial import KDTree

    if not len(states):
        return states
    distances, _ = KDTree(domain.shares(rows)).query(domain.shares(states), p=np.inf)
    return states[np.asarray(distances) > 1e-9]


def _check(objective: str, slack: float | None, tolerance: float, max_rounds: int) -> None:
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {shown(objective)}")
    if slack is not None and objective in ("smoothest", "max-margin"):
        raise ValueError("the soft form is for 'least-variance' and 'l1'")
    check_slack(slack)
    as_number(tolerance, "tolerance", least=0, strict=True)
    as_count(max_rounds, "max_rounds")


def check_slack(slack: Any) -> None:
    """Refuse, with a sentence, what is no price of a shortfall."""
    if slack is not None:
        as_number(slack, "slack", least=0, strict=True, meaning="a price")
