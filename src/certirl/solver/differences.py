"""Several people in one log: a reward for all of them, one for each, and what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import erfc, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.demonstrations import FOLDS, PARTS, Demonstrated, policy_from
from certirl.data.simulator import as_generator
from certirl.data.tables import as_log
from certirl.data.transitions import Transitions, action_in_words
from certirl.fit.witness import place_of
from certirl.functions.reward import values_of
from certirl.ground.domain import Array
from certirl.ground.doors import as_delta, as_labels, shown
from certirl.ground.records import Record
from certirl.ground.work import Report, watched
from certirl.solver.methods import SoftExpert
from certirl.solver.solve import solve
from certirl.solver.stability import OBSERVED, groups_of

MOST = 50  # people
COMPARED, PLACES = 400, 25  # states of the log at which actions and rewards are compared
ROWS = 2_000  # of two people, of which it is asked whether others would have acted the same
VOTES, NEAR = 9, 400  # nearest actions of a person that predict one, among as many of both people
MIXED = 20  # times that episodes of two people are exchanged by chance
LEAST = 1e-3  # chance that is told from smaller ones by as many exchanges
RARE = 0.05  # chance below which a difference of soft experts is one


@dataclass(frozen=True, eq=False)
class Pair(Record):
    """What differs between two people.

    Example:
        >>> from certirl.solver.differences import Pair
        >>> Pair(("ann", "ben"), True, 0.3, 0.02, None, None).differs
        True
    """

    names: tuple[str, str]
    differs: bool  # beyond chance
    size: float  # the share of states at which they act differently; of soft experts the most that R differs, in errors
    beside: float  # the chance that each person's policy predicts the other as badly, or that R differs by as much
    state: Array | None  # the median of these states; of soft experts the state where R differs by that
    action: int | None  # whose R differs by that; None where actions are compared, or rewards of the state


@dataclass(frozen=True, eq=False)
class Differences(Record):
    """One reward for all people of a log, one for each, and what differs.

    Attributes:
        together: the answer for all of them: one reward, whose comparisons are those of every person.
        each: the answer for each person by name; None where `solve` refused.
        refused: why, by name.
        rows: transitions of each person.
        pairs: what differs between any two, those that differ first.
        experts: the policies of the people by name, where they were estimated; empty for soft experts.
        action_names: of the log, if it has them.

    Example:
        >>> walk = certirl.problems.soft_walk()
        >>> log, person = walk.log(episodes=80, steps=50, rng=0), np.repeat(["ann", "ben"], 2_000)
        >>> found = certirl.compare(log, by=person, discount=0.9, expert=certirl.SoftExpert(reference=0), rng=0)
        >>> list(found.each), [pair.differs for pair in found.pairs]
        (['ann', 'ben'], [False])
    """

    _derived = ("pairs",)
    together: Any
    each: dict[str, Any]
    refused: dict[str, str]
    rows: dict[str, int]
    pairs: tuple[Pair, ...]
    experts: dict[str, Demonstrated]
    action_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        count, what = sum(pair.differs for pair in self.pairs), "actions" if self.experts else "rewards"
        yield f"{len(self.rows)} people; {what} of {count} of {len(self.pairs)} pairs differ beyond chance"
        yield f"  together {sum(self.rows.values()):,} transitions: {self.together.status}{self._peak(self.together)}"
        for name, answer in self.each.items():
            said = f"refused: {self.refused[name]}" if answer is None else f"{answer.status}{self._peak(answer)}"
            policy = self.experts.get(name)
            errs = "" if policy is None else f"; the policy errs at {policy.errors:.1%}"
            yield f"  {name}  {self.rows[name]:,} transitions{errs}: {said}"
        for pair in self.pairs:
            yield f"  {' and '.join(pair.names)}: {self._said(pair)}"
        if self.experts:
            yield "  assumed  actions do the same for everyone"

    def _peak(self, answer: Any) -> str:
        """Where the reward of one state is largest."""
        if answer.reward is None or answer.reward.of_actions:
            return ""
        states = _states_of(answer)
        return f", R is largest at {place_of(states[int(values_of(answer.reward, states).argmax())])}"

    def _said(self, pair: Pair) -> str:
        if self.experts:
            where = "" if pair.state is None else f", around {place_of(pair.state)}"
            chance = f"p = {pair.beside:.2g}" if pair.beside >= LEAST else f"p < {LEAST:g}"
            held = f"{'beyond' if pair.differs else 'not beyond'} chance, {chance}"
            return f"act differently at {pair.size:.1%} of the states{where}; {held}"
        assert pair.state is not None
        of = "" if pair.action is None else f" of {action_in_words(pair.action, self.action_names)}"
        verdict = "differ" if pair.differs else "do not differ beyond chance"
        by = f"by {pair.size:.1f} standard errors at {place_of(pair.state)}, p = {pair.beside:.2g}"
        return f"rewards {verdict}: R{of} {by}"


def compare(
    log: Any,
    *,
    by: ArrayLike,
    discount: float,
    expert: Any = OBSERVED,
    rng: Any = None,
    progress: bool | Report | None = None,
    **settings: Any,
) -> Differences:
    """Solve for every person in a log, and for all together, and say what differs.

    Of experts who always act as they think best, the effects of the actions are estimated from all rows (with a shared
    drift from their own), and actions are compared; of soft experts, each with its own rows, rewards.

    Args:
        log: `Transitions`, or a data frame with the columns that `certirl.logs.read` expects.
        by: a label for each row ``[n]``, such as the column of the person; the name of that column for a data frame
            each of whose rows is a transition.
        discount: as in `solve`.
        expert: "observed", the default, for policies estimated from the rows of each person; or a `SoftExpert`.
        rng: a seed or Generator.
        progress: as in `solve`, of people.
        **settings: of `solve`. ``delta`` is divided among all answers, so that all that is proved is true together.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> states, person = rng.uniform(-1, 1, 4_000), np.repeat(["ann", "ben"], 2_000)
        >>> actions = (states > np.where(person == "ann", 0.0, 0.5)).astype(int)
        >>> actions = np.where(rng.random(4_000) < 0.02, 1 - actions, actions)
        >>> after = np.clip(0.8 * states + np.where(actions, -0.2, 0.2) + 0.2 * rng.normal(size=4_000), -1, 1)
        >>> people = certirl.Transitions(states, actions, after, domain=(-1, 1))
        >>> found = certirl.compare(people, by=person, discount=0.5, rng=0)
        >>> found.pairs[0].differs, 0.15 < found.pairs[0].size < 0.35
        (True, True)
    """
    labels = by
    if isinstance(by, str):
        if isinstance(log, Transitions) or not hasattr(log, "__getitem__"):
            raise ValueError(f"by must be a label for each row: transitions keep no column {shown(by)}")
        labels = np.asarray(log[by])
    rows = as_log(log)
    if not isinstance(rows, Transitions):
        raise TypeError(f"log must be certirl.Transitions or a table, got {shown(log)}")
    given = np.asarray(labels)
    given = as_labels(given.astype(str) if given.dtype == object else given, "by")
    if given.shape != (len(rows),):
        left_out = "" if len(given) < len(rows) else "; rows of a table that have no next state are no transitions"
        raise ValueError(f"by must be {len(rows)} labels, one for each transition, got {len(given)}{left_out}")
    people = {str(label): given == label for label in np.unique(given)}
    if not 2 <= len(people) <= MOST:
        raise ValueError(f"by must name 2 to {MOST} people, got {len(people)}")
    is_soft = isinstance(expert, SoftExpert)
    if not is_soft and not (isinstance(expert, str) and expert == OBSERVED):
        known = 'expert must be "observed" or a certirl.SoftExpert, as what people do is compared'
        raise ValueError(f"{known}, got {shown(expert)}")
    asked = {"progress": False, **settings, "discount": discount, "rng": int(as_generator(rng).integers(2**62))}
    if asked.get("delta") is not None:  # all proofs together, that for everyone included
        asked["delta"] = as_delta(asked["delta"]) / (len(people) + 1)
    parts = {name: rows.where(chosen) for name, chosen in people.items()}
    policies = {} if is_soft else {name: policy_from(part) for name, part in parts.items()}
    by_itself = is_soft or getattr(asked.get("dynamics"), "are_shared", False)  # few rows tell what actions do
    solved = (_answer(parts[name] if by_itself else rows, policies.get(name, expert), asked) for name in people)
    outcomes = dict(zip(people, watched(solved, len(people), lambda answer: 1, progress, unit="people"), strict=True))
    each = {name: None if isinstance(outcome, str) else outcome for name, outcome in outcomes.items()}
    compared = rows.states[_spread(len(rows), min(len(rows), COMPARED))]
    if is_soft:
        solutions = {name: answer for name, answer in each.items() if answer is not None}
        pairs = _of_rewards(solutions, compared)
    else:
        pairs = _of_actions(policies, rows, people, compared)
    return Differences(
        together=solve(rows, **asked, expert=expert if is_soft else list(policies.values())),
        each=each,
        refused={name: outcome for name, outcome in outcomes.items() if isinstance(outcome, str)},
        rows={name: len(part) for name, part in parts.items()},
        pairs=tuple(sorted(pairs, key=lambda pair: (not pair.differs, -pair.size))),
        experts=policies,
        action_names=rows.action_names,
    )


def _answer(log: Transitions, expert: Any, asked: dict[str, Any]) -> Any:
    """The answer, or why there is none."""
    try:
        return solve(log, **asked, expert=expert)
    except ValueError as refusal:
        return str(refusal)


def _states_of(answer: Any) -> Array:
    """States of the box on a mesh, or drawn, but for those without data."""
    domain = answer.domain
    states = np.asarray(domain.mesh(201) if len(domain) == 1 else domain.uniform(2_000, np.random.default_rng(0)))
    return states[~answer.reward.extrapolated(states)]


def _of_rewards(solutions: dict[str, Any], states: Array) -> list[Pair]:
    """The largest difference of any two rewards in standard errors, and the chance of any so large (Bonferroni)."""
    if len(solutions) < 2:
        return []
    first = next(iter(solutions.values()))
    actions: list[int | None] = list(range(first.n_actions)) if first.reward.of_actions else [None]
    states = states[_spread(len(states), min(len(states), PLACES))]
    values, errors = (
        {name: np.stack([ask(answer, action) for action in actions]) for name, answer in solutions.items()}
        for ask in (
            lambda answer, action: values_of(answer.reward, states, action),
            lambda answer, action: answer.standard_error(states, action),
        )
    )
    pairs, tried = [], len(solutions) * (len(solutions) - 1) // 2 * len(states)
    for names in combinations(solutions, 2):
        apart, error = values[names[0]] - values[names[1]], np.hypot(errors[names[0]], errors[names[1]])
        ratios = np.abs(np.divide(apart, error, out=np.zeros_like(apart), where=error > 0))
        row, place = np.unravel_index(int(ratios.argmax()), ratios.shape)
        size, free = float(ratios.max()), int((error > 0).any(axis=1).sum())
        chance = min(1.0, tried * free * erfc(size / sqrt(2)))
        pairs.append(Pair(names, chance < RARE, size, chance, states[place], actions[int(row)]))
    return pairs


def _of_actions(
    policies: dict[str, Demonstrated], rows: Transitions, people: dict[str, NDArray[np.bool_]], states: Array
) -> list[Pair]:
    """At which share of the states two policies differ, and the chance that the two act as one (Bonferroni)."""
    from scipy.special import stdtr

    pairs, tried = [], len(people) * (len(people) - 1) // 2
    for names in combinations(people, 2):
        one, other = (policies[name].actions(states) for name in names)
        state = np.median(states[one != other], axis=0) if (one != other).any() else None
        either = people[names[0]] | people[names[1]]
        seen, *mixed = _missed(rows.where(either), people[names[0]][either])
        spread = float(np.std(mixed, ddof=1)) * sqrt(1 + 1 / MIXED)
        chance = min(1.0, tried * float(stdtr(MIXED - 1, -(seen - np.mean(mixed)) / max(spread, 1e-12))))
        pairs.append(Pair(names, chance < RARE, float((one != other).mean()), chance, state, None))
    return pairs


def _missed(rows: Transitions, first: NDArray[np.bool_]) -> list[float]:
    """How much oftener nearby actions of the other fail to predict one's actions than one's own do in other episodes.

    Of two people, then of mixtures, between which whole episodes are exchanged by chance. Places at which only one of
    the two was tell nothing.
    """
    from scipy.spatial import KDTree

    if len(rows) > ROWS:
        chosen = np.isin(np.arange(len(rows)), _spread(len(rows), ROWS))
        rows, first = rows.where(chosen), first[chosen]
    rng, groups = np.random.default_rng(0), groups_of(rows)[0]
    if groups.max() + 1 < 2 * FOLDS:  # parts of few episodes
        groups = np.arange(len(rows)) * PARTS // len(rows)
    _, unit = np.unique(2 * groups + first, return_inverse=True)
    places = rows.domain.chart(rows.states, rows.periodic)
    near = KDTree(places).query(places, k=range(1, min(NEAR, len(rows)) + 1))[1]
    elsewhere, taken = unit[near] != unit[:, None], rows.actions[near]

    def wrong(of: NDArray[np.bool_]) -> Array:
        """Whether the majority of the nearest of these is wrong ``[n]``; NaN where there are too few."""
        voting = of & elsewhere
        voting &= np.cumsum(voting, axis=1) <= VOTES
        votes = np.stack([(voting & (taken == action)).sum(axis=1) for action in range(rows.n_actions)], axis=1)
        return np.where(votes.sum(axis=1) == VOTES, votes.argmax(axis=1) != rows.actions, np.nan)

    of_first = np.zeros(unit.max() + 1, dtype=bool)
    of_first[unit[first]] = True
    mixtures = [of_first, *(rng.permutation(of_first) for _ in range(MIXED))]
    alike = [mixture[unit][near] == mixture[unit][:, None] for mixture in mixtures]
    each = np.array([wrong(~own) - wrong(own) for own in alike])
    both = np.isfinite(each[0])  # in mixtures these rows alone count, as they vary as much
    return [float(np.nanmean(row[both])) for row in each] if both.any() else [0.0] * len(each)


def _spread(count: int, most: int) -> NDArray[np.intp]:
    """Rows at even distances, without the ends."""
    return np.asarray((np.arange(most) + 0.5) / most * count, dtype=np.intp)
