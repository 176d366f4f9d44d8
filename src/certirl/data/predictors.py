"""What predicts the actions of a log: the state, the step before, and columns of the table that are no coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.dependence import sampling
from certirl.data.memory import links
from certirl.data.tables import read
from certirl.data.transitions import Transitions
from certirl.ground.domain import Array
from certirl.ground.records import Record
from certirl.ground.work import watched

NEIGHBOURS = (1, 3, 9, 27, 81)  # whose votes are tried
PARTS, BLOCKS = 5, 40  # held out in turn; and of a recording without episodes, parts that are held out as wholes
MOST = 20_000  # rows that are looked at
SURE = 4.0  # standard errors by which a prediction is better
MATERIAL = 0.02  # of the decisions, and of log-likelihood: less is no matter
OFTEN = 0.05  # mistakes, of an expert who may be a soft one
COPY = 0.01  # mistakes of a column without the state, which is taken for the action by another name
LASTING = 2.0  # how much more than a column the step before must say to be named in its place
COLUMNS = 4  # shown


@dataclass(frozen=True)
class Prediction(Record):
    """How well actions are predicted by the nearest held-in rows.

    Attributes:
        by: from what, in words.
        wrong: the share of held-out actions that are predicted wrongly.
        likelihood: the mean logarithm of the predicted probability of a held-out action.
        better: how much better it is than by the state, or by nothing, in standard errors, in one of the two.

    Example:
        >>> walk = certirl.problems.soft_walk().log(episodes=40, steps=50, rng=0)
        >>> nothing, by_state = certirl.diagnose.predictors(walk).predictions[:2]
        >>> by_state.by, by_state.likelihood > nothing.likelihood
        ('the state', True)
    """

    by: str
    wrong: float
    likelihood: float
    better: float


@dataclass(frozen=True, eq=False)
class Predictors(Record):
    """What predicts the actions of a log.

    Attributes:
        predictions: by nothing, by the state, and by the state and one thing more, the columns by their likelihood.
        rows: held out in all.
        kind: what was held out as a whole, in words.
        advice: what to do, in a sentence.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> frame = {"state": rng.uniform(-1, 1, 2_001), "wind": rng.uniform(-1, 1, 2_001), "t": np.arange(2_001)}
        >>> frame["action"] = (frame["state"] > frame["wind"]).astype(int)  # the expert feels the wind
        >>> found = certirl.diagnose.predictors(frame, step="t")
        >>> found.predictions[-1].by, found.predictions[1].wrong > 0.2, found.predictions[-1].wrong < 0.1
        ('the state and wind', True, True)
        >>> print(found.advice)
        add wind to state (and to exogenous, if no action moves it)
    """

    predictions: tuple[Prediction, ...]
    rows: int
    kind: str
    advice: str

    def __str__(self) -> str:
        shown, hidden = self.predictions[: 4 + COLUMNS], len(self.predictions[4 + COLUMNS :])
        lines = [f"What predicts {self.rows:,} actions, held out by {self.kind}: mistakes and mean log-likelihood"]
        lines += [
            f"  {each.by:<34} {each.wrong:6.1%} {each.likelihood:8.3f}{'  better' * (each.better > SURE)}"
            for each in shown
        ]
        more = f"{hidden} more columns do not say more; " if hidden else ""
        return "\n".join([*lines, f"  {more}{self.advice}"])


def diagnose_predictors(log: Any, **settings: Any) -> Predictors:
    """Say what predicts the actions: the state, also the step before, also each further column of a table.

    Held-out actions are predicted by the nearest other rows. What helps clearly is missing in the state. If nothing
    does and mistakes remain, the expert may err: `SoftExpert`.

    Args:
        log: a table, as in `certirl.logs.read`, whose other columns are tried, too; or `Transitions`.
        **settings: as in `certirl.logs.read`.

    Example:
        >>> walk = certirl.problems.soft_walk().log(episodes=40, steps=50, rng=0)
        >>> print(certirl.diagnose.predictors(walk).advice)
        the rest is not predicted by anything here: an expert who errs is expert=certirl.SoftExpert(…)
    """
    further: dict[str, Array] = {}
    if not isinstance(log, Transitions):
        log = read(log, **settings)
        further = log.further()
    elif settings:
        raise TypeError(f"{next(iter(settings))} is for tables: transitions say it themselves")
    first, second = links(log)
    before = np.full(len(log), -1)
    before[second[first < second]] = first[first < second]
    rows = np.flatnonzero((before >= 0) & log.in_episodes if len(second) else log.in_episodes)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST)).astype(int)]
    places, older = log.domain.chart(log.states, log.periodic), before[rows]
    tried = {"the state": places[rows]}
    if len(second):
        taken = np.eye(log.n_actions)[log.actions[older]]
        tried |= {"the state and the action before": np.hstack([places[rows], taken])}
        tried |= {"the state and the state before": np.hstack([places[rows], places[older]])}
    tried |= {f"the state and {name}": np.hstack([places[rows], column[rows]]) for name, column in further.items()}
    groups, kind = _groups(log)
    held = _Held(log.actions[rows], groups[rows], log.n_actions)
    done = watched(
        ((name, held.scores(tried[name])) for name in tried), len(tried), lambda one: 1, None, unit="predictions"
    )
    scores = dict(done)
    guesses = held.guesses()
    base = max(guesses, scores["the state"], key=lambda score: float(score[1].mean()))
    each = [held.prediction("nothing", guesses, base)]
    each += [held.prediction(name, score, base) for name, score in scores.items()]
    fixed, columns = each[: -len(further) or None], each[len(each) - len(further) :]
    each = [*fixed, *sorted(columns, key=lambda one: -one.likelihood)]
    return Predictors(tuple(each), len(rows), kind, _advice(each, held, further, rows))


def _advice(each: list[Prediction], held: _Held, further: dict[str, Array], rows: NDArray[np.intp]) -> str:
    """What to add to the state, or that the expert may err."""
    nothing, state, *others = each
    base = max(nothing, state, key=lambda one: one.likelihood)
    soft = "an expert who errs is expert=certirl.SoftExpert(…)"
    gains = {}
    for one in others:
        gain = max(base.wrong - one.wrong, 0.0) + max(one.likelihood - base.likelihood, 0.0)
        if one.better <= SURE or gain <= MATERIAL:
            continue
        what = one.by.removeprefix("the state and ")
        copies = what in further and held.scores(further[what][rows])[0].mean() < COPY
        # What was done before follows from an input that lasts: such a column is the better explanation.
        gains[what] = 0.0 if copies else gain * (LASTING if what in further else 1.0)
    what = max(gains, key=gains.__getitem__, default="")
    if gains.get(what, 0.0) > 0:
        wrong = next(one.wrong for one in others if one.by == f"the state and {what}")
        rest = f"; {wrong:.0%} of mistakes remain: {soft}" if wrong > OFTEN else ""
        if what not in further:
            return f'add {what}, lag="{what.split()[1]}"{rest}'
        return f"add {what} to state (and to exogenous, if no action moves it){rest}"
    if nothing.better > -SURE:
        return "the state says nothing of the actions: log what the expert sees"
    if state.wrong > OFTEN:
        return f"the rest is not predicted by anything here: {soft}"
    return "the state says what the expert does"


def _groups(log: Transitions) -> tuple[NDArray[np.intp], str]:
    """What is held out as a whole ``[n]``, and this in words."""
    if log.episodes is None and sampling(log) == "order":
        return np.arange(len(log)) * BLOCKS // len(log), "parts of the time"
    groups = log.groups()[0]
    if log.episodes is not None and len(np.unique(groups[log.in_episodes])) < PARTS:
        return np.arange(len(log)) * BLOCKS // len(log), "parts of few episodes"
    return groups, "episodes" if log.episodes is not None else "states" if log.paired else "rows"


class _Held:
    """Actions of which every fifth part of the groups is held out in turn."""

    def __init__(self, actions: NDArray[np.intp], groups: NDArray[np.intp], n_actions: int) -> None:
        self.actions, self.n_actions = actions, n_actions
        self.groups = np.unique(groups, return_inverse=True)[1].reshape(-1)
        count = int(self.groups.max()) + 1
        parts = np.random.default_rng(0).permutation(count) * PARTS // count
        self.folds = [np.flatnonzero(parts[self.groups] == part) for part in range(PARTS)]

    def scores(self, values: Array) -> tuple[Array, Array]:
        """Mistakes and log-likelihoods of all rows ``[n]``, by as many neighbours as are best for other parts."""
        from scipy.spatial import KDTree

        wrong, likelihood = (np.zeros((len(NEIGHBOURS), len(self.actions))) for _ in range(2))
        for test in self.folds:
            fit = np.setdiff1d(np.arange(len(self.actions)), test)
            most = min(NEIGHBOURS[-1], len(fit))
            near = KDTree(values[fit]).query(values[test], k=range(1, most + 1))[1]
            taken = self.actions[fit][near]
            votes = np.cumsum(taken[:, :, None] == np.arange(self.n_actions), axis=1, dtype=np.int32)
            for number, k in enumerate(NEIGHBOURS):
                counts = votes[:, min(k, most) - 1] + 0.5
                chances = counts / counts.sum(axis=1, keepdims=True)
                likelihood[number, test] = np.log(chances[np.arange(len(test)), self.actions[test]])
                counts[np.arange(len(test)), taken[:, 0]] += 0.1  # on a tie the nearest decides
                wrong[number, test] = counts.argmax(axis=1) != self.actions[test]
        totals = np.stack([likelihood[:, test].sum(axis=1) for test in self.folds])
        chosen = (totals.sum(axis=0) - totals).argmax(axis=1)
        best = np.empty(len(self.actions), dtype=np.intp)
        for fold, test in enumerate(self.folds):
            best[test] = chosen[fold]
        rows = np.arange(len(self.actions))
        return wrong[best, rows], likelihood[best, rows]

    def guesses(self) -> tuple[Array, Array]:
        """The same by how frequent actions are."""
        wrong, likelihood = np.zeros(len(self.actions)), np.zeros(len(self.actions))
        for test in self.folds:
            counts = np.bincount(np.delete(self.actions, test), minlength=self.n_actions) + 0.5
            likelihood[test] = np.log(counts / counts.sum())[self.actions[test]]
            wrong[test] = self.actions[test] != counts.argmax()
        return wrong, likelihood

    def prediction(self, by: str, scores: tuple[Array, Array], base: tuple[Array, Array]) -> Prediction:
        """The means, and how much better than by the state or nothing, the groups being independent of each other."""
        better = []
        for gain in (base[0] - scores[0], scores[1] - base[1]):
            gains = np.bincount(self.groups, gain)
            better.append(float(gains.sum() / max(np.sqrt(((gains - gains.mean()) ** 2).sum()), 1e-12)))
        wrong, likelihood = (float(each.mean()) for each in scores)
        return Prediction(by, wrong, likelihood, max(better))
