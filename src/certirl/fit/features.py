"""Rewards that are sums of few features: weights by linear programs, and the path from one feature to all of them.

The value of ``R = Σ θ_i f_i`` under the expert is ``Σ θ_i ψ_i``, with the values ψ_i of the features under the expert
(successor features). So the expert's advantage over action a is linear in θ, ``D_a(s) = Σ θ_i ((P_π − P_a)ψ_i)(s)``,
for features of the action with ``(f_i,π − f_i,a)(s)/γ`` added, and these numbers at many states, the gains, are all
that is needed. With a mean advantage of 1 the weights minimise

    mean max(0, 0.03 m(s) − D_a(s)) + λ Σ |θ_i|·size_i,

nearly the mean regret of the expert under R (m(s) is 1, or less beside a switch), and a price on weights. As λ falls,
features enter. For each set of features that occurs, and for the best ones with one feature left out, the weights are
found again without the price. With a guess of a designer, θ = t·guess + changes with t ≥ 0, and the price is on the
changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy, as_policy, simulate
from certirl.data.transitions import Transitions
from certirl.fit.effects import ended
from certirl.fit.estimates import EffectModel, RegressionModel
from certirl.fit.problem import ValueProblem
from certirl.fit.program import SolverFailed, numbers_of
from certirl.fit.projections import Projections
from certirl.fit.ranges import WeightRanges, as_ratios, weight_ranges
from certirl.fit.regression import DEGREES, best_columns, choices_of, held_out_rows
from certirl.fit.value_program import Comparisons
from certirl.functions.features import Features
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array
from certirl.ground.doors import as_number, closest, shown, typed
from certirl.ground.records import Record, internal

STATES, REGRESSED = 500, 2_000  # at which the expert is compared: by walks, and where effects are regressed
DRAWS = 8  # walks of every action from a state, where next states are random
FORGOTTEN = 0.01  # γ^T: walks have T steps
LONGEST = 1_000  # steps of a walk, at most
PRICES = (*np.geomspace(10.0, 1e-4, 16).tolist(), 0.0)  # λ
MARGIN = 0.03  # of the mean D_a: asked for, so that of many weights without regret none is at the edge
TIE = 1e-6  # of the mean |D_a|: smaller advantages are ties
FEASIBLE = 1e-5  # by which an answer of the solver may miss a row, relative to its largest number
_INFEASIBLE = 2  # the status of scipy's solver
NONE = 1e-7  # of the largest change: smaller ones are none
TOLERANCE = 0.02  # of the states: more features must explain more than that
SMALLEST = 1e-120  # the largest value of a feature lies between this number and its reciprocal
SAME = 1e-6  # of a feature's size: what is left of it beside constants and the other features


class Preference(NamedTuple):
    """What is asked of the weights."""

    signs: Array  # −1, 0 (any) or 1 for each feature ``[p]``
    guess: Array  # a designer's weights ``[p]``, up to a positive factor; zeros without any

    @classmethod
    def of(cls, names: Sequence[str], signs: Mapping[str, Any] | None, guess: Mapping[str, Any] | None) -> Preference:
        """Signs and a guess by name; features that are not named have any sign, and the guess 0."""
        each = []
        for what, numbers in (("signs", signs), ("guess", guess)):
            if numbers is not None and not isinstance(numbers, Mapping):
                raise TypeError(f"{what} must be numbers by the name of the feature, got {shown(numbers)}")
            for name in numbers or {}:
                if name not in names:
                    near, listed = closest(name, names), ", ".join(map(repr, names))
                    raise ValueError(f"{what} names {shown(name)}{near}; the features are {listed}")
            each.append(np.array([as_number((numbers or {}).get(name, 0), f"{what} of {name!r}") for name in names]))
        if not np.isin(each[0], (-1, 0, 1)).all():
            raise ValueError(f"signs must be −1 or 1, got {shown(signs)}")
        if guess is not None and not each[1].any():
            raise ValueError("guess must have a weight that is not 0, or be left out")
        if (each[0] * each[1] < 0).any():
            name = names[int((each[0] * each[1]).argmin())]
            raise ValueError(f"guess and signs contradict each other for the feature {name!r}")
        return cls(*each)


@archive.record
@dataclass(frozen=True, eq=False)
class FeaturePath(Record):
    """Rewards from one feature to all of them: the trade between simplicity and what is explained.

    ``print`` gives a table; `Solution.at` gives the reward of a row.

    Attributes:
        names: of the features.
        weights: θ, a row for each reward ``[m, p]``; fewest features, or changes of the guess, first.
        counts: features, or changes of the guess ``[m]``.
        unexplained: the share of states at which some other action looks better than the expert's ``[m]``.
        ties: the share of the other states at which some other action looks as good ``[m]``.
        regret: mean of max(0, −D_a(s)), in units of the mean D_a(s) ``[m]``.
        margin: the least D_a(s) outside the switching tube, in the same unit ``[m]``.
        chosen: the row of the solution's reward.
        formulas: the rewards as they are read.
        guessed: weights are changes of a designer's guess.
        gains: what each feature adds to D_a(s) for a weight of 1, at the comparisons outside the switching tube
            ``[r, p]``; None in files of earlier versions.
        signs: that were asked for: −1, 0 (any) or 1 ``[p]``.

    Example:
        >>> room = certirl.problems.comfort()
        >>> log = certirl.steps.sample(room.dynamics, basis=certirl.Legendre(5), samples=200, rng=0)
        >>> method = certirl.FeatureForm({"s²": lambda states: states[:, 0] ** 2})
        >>> solution = certirl.solve(log, discount=0.9, expert=room.expert, method=method)
        >>> solution.path.names, solution.path.counts.tolist(), solution.path.chosen
        (('s²',), [1], 0)
    """

    names: tuple[str, ...]
    weights: Annotated[Array, Shape("m p")]
    counts: Annotated[NDArray[np.intp], Shape("m")]
    unexplained: Annotated[Array, Shape("m")]
    ties: Annotated[Array, Shape("m")]
    regret: Annotated[Array, Shape("m")]
    margin: Annotated[Array, Shape("m")]
    chosen: int
    formulas: tuple[str, ...]
    guessed: bool = False
    gains: Annotated[Array, Shape("r p")] | None = field(default=None, repr=False)
    signs: Annotated[Array, Shape("p")] | None = None

    @internal
    def as_read(self, file: str) -> FeaturePath:
        """Refuse rows that are none."""
        if not len(self.names) == self.weights.shape[1] or not len(self.formulas) == len(self) > self.chosen >= 0:
            raise ValueError("a path must have a row for each formula, and choose one of them")
        return self

    def __len__(self) -> int:
        return len(self.weights)

    @typed
    def row(self, count: int) -> int:
        """The row with this number of features, or of changes of the guess.

        Example:
            >>> solution.path.row(1)
            0
        """
        rows = np.flatnonzero(self.counts == count)
        if not len(rows):
            raise ValueError(f"the path has rewards of {', '.join(map(str, self.counts))} {self._what}, got {count!r}")
        return int(rows[0])

    @internal
    def ranges(self, ratios: Any = ()) -> WeightRanges:
        """The ranges of the weights over all rewards that explain the expert as well as the chosen one."""
        if self.gains is None or self.signs is None:
            raise ValueError("a file of an earlier version keeps no comparisons: solve again for the ranges of weights")
        pairs = as_ratios(ratios, self.names)
        return weight_ranges(self.names, self.gains, self.signs, self.weights[self.chosen], pairs)

    @property
    def _what(self) -> str:
        return "changes" if self.guessed else "features"

    @property
    def summary(self) -> str:
        """The chosen row among the others, in words."""
        what = f"{self.counts[self.chosen]} {self._what[: -1 if self.counts[self.chosen] == 1 else None]}"
        of = " of the guess" if self.guessed else f" of {len(self.names)}"
        share = self.ties[self.chosen]
        ties = f", with ties at {share:.0%} of the states" if share > TOLERANCE else ""
        return f"{what}{of}, the simplest that explains nearly as many states as any{ties}; print(solution.path)"

    def _headline(self) -> str:
        return self.summary

    def __str__(self) -> str:
        lines = [f"  {self._what:>8}  unexplained   ties  regret  margin  R(s)"]
        for row, formula in enumerate(self.formulas):
            numbers = f"{self.unexplained[row]:>11.1%} {self.ties[row]:>6.1%} {self.regret[row]:>7.1%}"
            mark = "→" if row == self.chosen else " "
            lines.append(f"{mark} {self.counts[row]:>8}  {numbers} {round(self.margin[row], 2) + 0.0:>7.2f}  {formula}")
        return "\n".join(lines)

    def plot(self, *, ax: Any = None, path: Any = None) -> Any:
        """Draw what is not explained and the regret by the number of features; write it to ``path`` if given.

        Example:
            >>> axes = solution.path.plot(path="features.png")
        """
        from certirl import plots

        return plots.feature_path(self, ax=ax, path=path)


class Gains(NamedTuple):
    """(P_π − P_a)ψ_i at states and alternative actions."""

    values: Array  # ``[m, p]``
    margins: Array  # m(s), the weight of a row ``[m]``
    which: NDArray[np.intp]  # the number of the state ``[m]``


def feature_path(
    problem: ValueProblem,
    model: EffectModel,
    rows: Comparisons,
    features: Features,
    preference: Preference,
) -> FeaturePath | None:
    """The path of rewards, a row for each number of features; None if no weights favour the expert."""
    _check_different(features, model.effects.states, model.effects.n_actions)
    if not isinstance(model, RegressionModel):
        return _path_of(_walked_gains(problem, model, rows, features), features, preference)
    found = _path_of(_regressed_gains(problem, model, rows, features), features, preference)
    if not any(features.acting) or not model.errors.is_model:
        return found
    # What actions pay jumps where the expert switches. Errors of an estimate explain nothing: the other may have fewer.
    walked = _path_of(_walked_gains(problem, model, rows, features), features, preference)
    paths = [path for path in (found, walked) if path is not None]
    return min(paths, key=lambda path: float(path.unexplained.min()), default=None)


def _path_of(gains: Gains, features: Features, preference: Preference) -> FeaturePath | None:
    """The same from gains."""
    if not len(gains.values):
        return None
    best: dict[int, _Weights] = {}
    tried = set[frozenset[int]]()

    failures = list[SolverFailed]()

    def weighed(allowed: NDArray[np.bool_], price: float) -> _Weights | None:
        try:
            return _weights(gains, preference, allowed, price)
        except SolverFailed as failure:  # at other prices there may be an answer
            failures.append(failure)
            return None

    def refit(chosen: frozenset[int]) -> None:
        """The weights of a set of features without the price; kept if they are the best of their number."""
        if chosen in tried:
            return
        tried.add(chosen)
        solved = weighed(np.isin(np.arange(features.size), list(chosen)), 0.0)
        if solved is not None:
            count = len(solved.chosen)
            best[count] = min(best.get(count, solved), solved, key=lambda answer: answer.loss)

    for price in PRICES:
        priced = weighed(np.ones(features.size, dtype=bool), price)
        if priced is not None:
            refit(priced.chosen)
    for count in range(features.size, 0, -1):  # a price may pass a smaller set by
        if count in best:
            chosen = best[count].chosen
            for index in chosen:
                refit(chosen - {index})
    if not best and failures:
        raise failures[0]
    return _path(gains, features, best, preference) if best else None


def cost_differences(
    rows: Comparisons, features: Features, discount: float, chosen: NDArray[np.intp] | slice = slice(None)
) -> Array:
    """(f_π − f_a)(s)/γ of some comparisons ``[r, p]``: what features of the action add to (P_π − P_a)ψ."""
    which, alternatives, signs = rows.which[chosen], rows.alternatives[chosen], rows.signs[chosen]
    if not any(features.acting):
        return np.zeros((len(which), features.size))
    states = rows.effects.states[which]
    expert = _of_policy(features, states, rows.chances[which])
    return np.asarray(signs[:, None] * (expert - features.values(states, alternatives)) / discount)


def _of_policy(features: Features, states: Array, chances: Array) -> Array:
    """f_i(s) under the expert ``[n, p]``: means over its actions, with their probabilities ``[n, A]``."""
    if not any(features.acting):
        return features.values(states)
    return np.sum([chances[:, [a]] * features.values(states, a) for a in range(chances.shape[1])], axis=0)


def _check_different(features: Features, states: Array, n_actions: int) -> None:
    """Refuse a feature that is constant, too small or large, or a combination of those before it and constants."""
    actions = range(n_actions if any(features.acting) else 1)
    values = np.concatenate([features.values(states, action) for action in actions])
    earlier = np.ones((len(values), 1))
    for index, name in enumerate(features.names):
        column = values[:, index]
        if features.functions[index] == "terminal":
            continue
        if np.ptp(column) <= SAME * np.abs(column).max():
            raise ValueError(
                f"the feature {name!r} is {column[0]:.6g} at every state, and a constant changes no policy: leave it "
                "out; what a step before termination costs is the built-in feature 'terminal'"
            )
        largest = float(np.abs(column).max())
        if not SMALLEST <= largest <= 1 / SMALLEST:
            raise ValueError(
                f"the feature {name!r} is as large as {largest:.3g}, which double precision cannot square: multiply it "
                "by a constant, which changes its weight alone"
            )
        rest = column - earlier @ np.linalg.lstsq(earlier, column, rcond=None)[0]
        if np.sqrt(np.mean(rest**2)) <= SAME * column.std():
            raise ValueError(
                f"the feature {name!r} is a combination of constants and the features before it: leave one of them out"
            )
        earlier = np.column_stack([earlier, column / column.std()])


def _regressed_gains(problem: ValueProblem, model: RegressionModel, rows: Comparisons, features: Features) -> Gains:
    """From ψ = Σ π_c(f_c + γP_cψ), each P_aψ by least squares of its own: ψ may jump where the expert switches."""
    declared, log, policy, A = model.declared, model.log, problem.policy, problem.policy.n_actions
    if declared.moves.keys() - declared.resets.moves.keys():
        assert isinstance(problem.source.data, Transitions)
        log = declared.resets.without(declared.made(problem.source.data))
    over = ended(log.next_states, problem.is_terminal, log.terminal if problem.source.is_log else None)

    def paid(states: Array, chances: Array) -> Array:
        return _of_policy(features, states, chances)

    def goals(of: NDArray[np.intp]) -> Array:
        """What jumps where the expert switches: π, and what it is paid in units of its size ``[n, A + p]``."""
        chances = policy.probabilities(log.next_states[of])
        return np.column_stack([chances, paid(log.next_states[of], chances) / sizes])

    sizes = np.maximum(np.std(paid(log.states, policy.probabilities(log.states)), axis=0), 1e-300)
    choices = choices_of(model.regression.basis, DEGREES, DEGREES[0])
    columns, *_ = best_columns(log, held_out_rows(log), choices, goals)
    regressed, k = Projections.of(log, columns, over, declared.resets), columns.size

    def sources(states: Array) -> Array:
        """π_c x for all c, and Σ π_c f_c ``[n, A·k + p]``."""
        chances = policy.probabilities(states)
        onward = chances[:, :, None] * columns.values(states)[:, None]
        return np.column_stack([onward.reshape(len(states), -1), paid(states, chances)])

    ahead = regressed.expected(sources).reshape(A * k, -1)
    solved = np.linalg.solve(np.eye(A * k) - problem.discount * ahead[:, : A * k], ahead[:, A * k :])
    kept = np.flatnonzero((rows.which < REGRESSED) & (rows.margins > 0))
    which, alternatives = rows.which[kept], rows.alternatives[kept]
    each = np.einsum("nk,akp->nap", columns.values(rows.effects.states[which]), solved.reshape(A, k, -1))
    expert = np.einsum("na,nap->np", rows.chances[which], each)
    gains = rows.signs[kept, None] * (expert - each[np.arange(len(kept)), alternatives])
    return Gains(gains + cost_differences(rows, features, problem.discount, kept), rows.margins[kept], which)


def _walked_gains(problem: ValueProblem, model: EffectModel, rows: Comparisons, features: Features) -> Gains:
    """By walks of the expert after each action, with the same random numbers for every action."""
    effects = model.effects
    chosen = np.unique(np.linspace(0, len(effects) - 1, STATES).astype(np.intp))
    draws = 1 if model.dynamics.noiseless else DRAWS
    ahead = np.stack([
        _walked(problem, model.dynamics, effects.states[chosen], action, draws, features)
        for action in range(effects.n_actions)
    ])  # fmt: skip
    expert = np.einsum("na,anp->np", rows.chances[chosen], ahead)
    place = np.full(len(effects), -1)
    place[chosen] = np.arange(len(chosen))
    kept = (place[rows.which] >= 0) & (rows.margins > 0)
    at = place[rows.which[kept]]
    return Gains(expert[at] - ahead[rows.alternatives[kept], at], rows.margins[kept], at)


def _walked(problem: ValueProblem, dynamics: Any, states: Array, action: int, draws: int, features: Features) -> Array:
    """(P_aψ_i)(s) ``[n, p]``: means of discounted sums over walks that take the action first, then the expert's.

    Of features of the action with f_i(s, a)/γ, so that differences are those of the action values.
    """
    steps = min(ceil(log(FORGOTTEN) / log(problem.discount)), LONGEST)
    policies: list[Policy] = [as_policy(action, problem.policy.n_actions), *[problem.policy] * steps]
    starts, total = np.repeat(states, draws, axis=0), np.zeros((len(states) * draws, features.size))
    for number, step in enumerate(simulate(dynamics, starts, policies, np.random.default_rng(0))):
        paid = features.values(step.states, step.actions)
        # At the state itself only what depends on the action differs between actions.
        paid = paid * np.array(features.acting) if number == 0 else paid
        total[step.rows] += problem.discount ** (number - 1) * paid
    return total.reshape(len(states), draws, -1).mean(axis=1)


class _Weights(NamedTuple):
    """The answer of the linear program."""

    theta: Array  # θ ``[p]``
    chosen: frozenset[int]  # the features whose weights differ from the guess
    loss: float  # mean max(0, 0.03 m(s) − D_a(s))


def _weights(gains: Gains, preference: Preference, allowed: NDArray[np.bool_], price: float) -> _Weights | None:
    """The weights of least loss at a price; None if no weights favour the expert on average."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack, vstack

    size = np.sqrt(np.mean(gains.values**2, axis=0))
    allowed = allowed & (size > 0)
    unit = np.where(size > 0, 1 / np.maximum(size, 1e-300), 0.0)
    changes = np.diag(unit)[:, allowed]
    guess = preference.guess / max(float(np.sqrt(np.mean((gains.values @ preference.guess) ** 2))), 1e-300)
    columns = np.column_stack([guess, changes, -changes])  # θ = columns @ x, x ≥ 0
    weights, p = gains.margins / gains.margins.sum(), int(allowed.sum())
    values, signed = gains.values @ columns, preference.signs[:, None] * columns
    scale = max(float(np.abs(values).max(initial=0.0)), 1e-300)
    m = len(values)
    if not np.abs(weights @ values).max(initial=0.0) > TIE * scale:
        return None
    upper = vstack([
        hstack([csr_array(-values), -eye_array(m)]),
        hstack([csr_array(-signed), csr_array((len(signed), m))]),
    ]).tocsr()  # fmt: skip
    most, average = np.concatenate([-MARGIN * gains.margins, np.zeros(len(signed))]), weights @ values
    answer = linprog(
        np.concatenate([[0.0], np.full(2 * p, price), weights]),
        A_ub=upper,
        b_ub=most,
        A_eq=np.concatenate([average, np.zeros(m)])[None],
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
    )
    if answer.status == _INFEASIBLE:
        return None
    solved = numbers_of(answer.x, 1 + 2 * p + m) if answer.status == 0 else None
    if solved is None or not _is_feasible(solved, upper, most, average):
        raise SolverFailed
    x = solved[: 1 + 2 * p]
    change = np.zeros(len(size))
    change[allowed] = x[1 : 1 + p] - x[1 + p :]
    changed = np.abs(change) > NONE * max(float(np.abs(x).max()), 1e-300)
    theta = guess * x[0] + np.where(changed, change * unit, 0.0)
    loss = float(weights @ np.maximum(MARGIN * gains.margins - gains.values @ theta, 0.0))
    return _Weights(theta, frozenset(np.flatnonzero(changed).tolist()), loss)


def _is_feasible(x: Array, upper: Any, most: Array, average: Array) -> bool:
    """Whether x ≥ 0 keeps the rows below their ends and has a mean of 1, to what the solver was allowed to miss."""
    size = 1 + float(np.abs(x).max(initial=0.0))
    missed = max(-x.min(), (upper @ x - most).max(), abs(average @ x[: len(average)] - 1))
    return bool(missed <= FEASIBLE * size)


def _path(gains: Gains, features: Features, best: dict[int, _Weights], preference: Preference) -> FeaturePath:
    """The rewards with what they explain, and the simplest that explains nearly as much as any."""
    counts = sorted(best)
    weights = np.stack([best[count].theta for count in counts])
    advantages = gains.values @ weights.T
    tie, states = TIE * np.abs(advantages).mean(axis=0), int(gains.which.max()) + 1
    worse, tied = np.zeros((states, len(counts)), dtype=bool), np.zeros((states, len(counts)), dtype=bool)
    np.logical_or.at(worse, gains.which, advantages < -tie)
    np.logical_or.at(tied, gains.which, np.abs(advantages) <= tie)
    compared = np.unique(gains.which)
    unexplained, ties = worse[compared].mean(axis=0), (tied & ~worse)[compared].mean(axis=0)
    error = np.sqrt(unexplained * (1 - unexplained) / len(compared))
    least = int(unexplained.argmin())
    outside = gains.margins >= 1
    outside = outside if outside.any() else np.ones(len(outside), dtype=bool)
    return FeaturePath(
        names=features.names,
        weights=weights,
        counts=np.array(counts, dtype=np.intp),
        unexplained=unexplained,
        ties=ties,
        regret=gains.margins @ np.maximum(-advantages, 0.0) / gains.margins.sum(),
        margin=advantages[outside].min(axis=0),
        chosen=int((unexplained <= unexplained[least] + max(TOLERANCE, error[least])).argmax()),
        formulas=tuple(features._in_words(row) for row in weights),
        guessed=bool(preference.guess.any()),
        gains=gains.values[outside],
        signs=preference.signs,
    )
