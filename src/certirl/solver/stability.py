"""How far an answer from a log would move with other episodes or people: halves of the log are solved again.

Half of the groups of a log, drawn without replacement, give an answer that differs from that of the whole log by about
one standard error of the latter. No row counts twice, as it would in bootstrap copies, which regressions on nearest
neighbours and held-out rows take for evidence.
"""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.demonstrations import policy_from
from certirl.data.formats import is_table
from certirl.data.simulator import as_generator
from certirl.data.source import Logged
from certirl.data.tables import read
from certirl.data.transitions import Transitions
from certirl.functions.reward import Reward, values_of
from certirl.ground.domain import Array, Box
from certirl.ground.doors import as_count, as_labels, shown
from certirl.ground.records import Record
from certirl.ground.work import Report, cores, fold, on, single_threaded, watched
from certirl.solver.solve import solve

OBSERVED = "observed"  # the word for an expert who made the log
BLOCKS = 40  # consecutive parts of rows in the order of time, which are drawn as wholes
FEWEST = 4  # groups
COMPARED = 400  # states of the log at which rewards are compared
MIDDLE = 0.9  # of the halves lie in the band of the picture


@dataclass(frozen=True, eq=False)
class Half(Record):
    """The answer from a half of the log.

    Example:
        >>> from certirl.solver.stability import Half
        >>> Half("refused", "action 1 has no transitions", None).status
        'refused'
    """

    status: str  # of the answer, or "refused"
    sentence: str  # the reason
    reward: Reward | None


@dataclass(frozen=True, eq=False)
class Stability(Record):
    """The answers from halves of a log, beside that from all of it.

    Attributes:
        whole: the answer from the whole log.
        halves: the answers from halves.
        groups: how many groups there are, of which each half has one in two.
        kind: what a group is, in words.
        states: of the log, at which rewards are compared ``[n, d]``.
        domain: the box.
        coordinate_names, action_names: of the log, if it has them.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> states, actions = rng.uniform(0, 10, 4_000), rng.integers(2, size=4_000)
        >>> after = np.clip(0.5 * states + np.where(actions == 0, 4.0, 1.0) + 2 * rng.normal(size=4_000), 0, 10)
        >>> runs = certirl.Transitions(states, actions, after, domain=(0, 10), episodes=np.arange(4_000) // 100)
        >>> found = certirl.stability(runs, discount=0.9, expert=0, columns=5, repeats=4, rng=0)
        >>> found.statuses, found.spread < 0.5
        ({'solved': 4}, True)
    """

    _derived = ("statuses", "spread")
    whole: Half
    halves: tuple[Half, ...]
    groups: int
    kind: str
    states: Array
    domain: Box
    coordinate_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()

    @property
    def statuses(self) -> dict[str, int]:
        """How many halves have each status, the most frequent first; "refused" where `solve` refused the half.

        Example:
            >>> found.statuses
            {'solved': 4}
        """
        return dict(Counter(half.status for half in self.halves).most_common())

    def rewards(self, states: ArrayLike) -> Array:
        """R of every half that has one ``[h, n]``, or ``[h, A · n]`` for rewards of state and action.

        Rewards of an expert who always takes the best action have no scale and no zero: there R is moved and scaled to
        mean 0 and standard deviation 1 at the compared states. Those of soft experts are in units of the noise.

        Example:
            >>> found.rewards([2.0, 5.0, 8.0]).shape
            (4, 3)
        """
        return np.array([self._comparable(half, states) for half in self.halves if half.reward is not None])

    def _comparable(self, half: Half, states: ArrayLike) -> Array:
        there = _values(half.reward, states)
        if half.status in ("estimated", "bounded"):
            return there
        known = _values(half.reward, self.states)
        return (there - known.mean()) / max(float(known.std()), 1e-300)

    @property
    def spread(self) -> float:
        """How far R from a half is from that of the whole log: the root mean square over halves, in the median state.

        It is in units of the standard deviation of the whole log's R over the compared states, so that 1 says that
        little is known; NaN without rewards.

        Example:
            >>> found.spread < 0.5
            True
        """
        each = self.rewards(self.states)
        if self.whole.reward is None or not len(each):
            return nan
        whole = self._comparable(self.whole, self.states)
        moved = np.sqrt(np.mean((each - whole) ** 2, axis=0))
        return float(np.median(moved[moved > 0])) / max(float(whole.std()), 1e-300) if moved.any() else 0.0

    def peaks(self) -> Array:
        """The compared state at which R of each half is largest ``[h, d]``, whatever the action.

        Example:
            >>> found.peaks().shape
            (4, 1)
        """
        each = self.rewards(self.states)
        return self.states[each.argmax(axis=1) % len(self.states)] if len(each) else np.empty((0, len(self.domain)))

    def band(self, states: ArrayLike) -> tuple[Array, Array, Array]:
        """R of the whole log ``[n]``, and between which numbers nine in ten halves have it, as `rewards` gives it.

        Example:
            >>> middle, low, high = found.band([5.0])
            >>> bool(low[0] <= high[0])
            True
        """
        low, high = np.quantile(self.rewards(states), [(1 - MIDDLE) / 2, (1 + MIDDLE) / 2], axis=0)
        return self._comparable(self.whole, states), low, high

    def __str__(self) -> str:
        said = ", ".join(f"{status} {count}" for status, count in self.statuses.items())
        lines = [
            f"{len(self.halves)} halves of {self.groups:,} {self.kind}: {said}; the whole log: {self.whole.status}"
        ]
        if self.whole.reward is not None and any(half.reward is not None for half in self.halves):
            lines.append(f"  R        moves by {self.spread:.0%} of its own variation, in the median state of the log")
            lines.append(f"  peak     {'; '.join(self._peak(axis) for axis in range(len(self.domain)))}")
        refused = next((half.sentence for half in self.halves if half.status == "refused"), "")
        return "\n".join([*lines, *([f"  refused  {refused}"] if refused else [])])

    def _peak(self, axis: int) -> str:
        """Where R of the whole log and of the halves is largest, along a coordinate."""
        whole = self._comparable(self.whole, self.states)
        top = self.states[int(whole.argmax()) % len(self.states), axis]
        low, high = np.quantile(self.peaks()[:, axis], [(1 - MIDDLE) / 2, (1 + MIDDLE) / 2])
        name = self.coordinate_names[axis] if self.coordinate_names else f"s[{axis}]" if len(self.domain) > 1 else "s"
        return f"{name} = {top:.4g}, in nine of ten halves {low:.4g} to {high:.4g}"


def _values(reward: Any, states: ArrayLike) -> Array:
    actions = range(reward.n_actions) if reward.of_actions else [0]
    return np.concatenate([np.asarray(values_of(reward, np.asarray(states), action)) for action in actions])


def stability(
    log: Any,
    *,
    discount: float,
    expert: Any = OBSERVED,
    by: Any = "episode",
    repeats: int = 20,
    rng: Any = None,
    progress: bool | Report | None = None,
    map: Any = None,
    **settings: Any,
) -> Stability:
    """Solve halves of a log, to see how far the answer would move with other episodes, days or people.

    Args:
        log: `Transitions`, or a data frame with the columns that `certirl.logs.read` expects.
        discount: as in `solve`.
        expert: as in `solve`; "observed", the default, for a policy estimated from each half itself.
        by: what is drawn as a whole: "episode"; a label for each row ``[n]``, such as the column of the person; or the
            name of that column for a data frame each of whose rows is a transition. In a log without episodes rows are
            drawn, or fortieths of a log whose rows are in the order of time.
        repeats: how many halves.
        rng: a seed or Generator.
        progress: as in `solve`, of halves.
        map: a number of threads, a Dask client or an executor, to which halves go; threads on all cores if left out.
            Results do not depend on it.
        **settings: of `solve`.

    Example:
        >>> log = certirl.problems.soft_walk().log(episodes=40, steps=50, rng=0)
        >>> found = certirl.stability(log, discount=0.9, expert=certirl.SoftExpert(reference=0), repeats=4, rng=0)
        >>> print(str(found).splitlines()[0])
        4 halves of 40 episodes: estimated 4; the whole log: estimated
    """
    rows = read(log) if is_table(log) else log
    if not isinstance(rows, Transitions):
        raise TypeError(f"log must be certirl.Transitions or a table, got {shown(log)}")
    count = as_count(repeats, "repeats", least=2, most=10_000)
    if rows is not log and isinstance(by, str) and by != "episode" and hasattr(log, "__getitem__"):
        by = np.asarray(log[by])
    groups, kind = groups_of(rows, by)
    number = int(groups.max()) + 1
    if number < FEWEST:
        raise ValueError(f"{number} {kind} are too few to draw halves of: at least {FEWEST} are needed")
    seeds = as_generator(rng).integers(2**62, size=(count, 2)).tolist()
    asked = {**settings, "discount": discount, "expert": expert}
    whole = _answer(rows, {**asked, "rng": seeds[0][1]}, must=True)
    task = partial(single_threaded, partial(_halved, rows, groups, asked))
    batches = [seeds[start : start + 2 * cores()] for start in range(0, count, 2 * cores())]
    with on(map):
        done = watched((fold(task, batch, operator.add) for batch in batches), count, len, progress, unit="halves")
        halves = tuple(half for batch in done for half in batch)
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), COMPARED)).astype(int)
    names = rows.coordinate_names, rows.action_names
    return Stability(whole, halves, number, kind, rows.states[chosen], rows.domain, *names)


def groups_of(log: Transitions, by: Any = "episode") -> tuple[NDArray[np.intp], str]:
    """The group of each row, and what a group is."""
    if not isinstance(by, str):
        given = np.asarray(by)
        labels = as_labels(given.astype(str) if given.dtype == object else given, "by")
        if labels.shape != (len(log),):
            raise ValueError(f'by must be "episode" or {len(log)} labels, one for each row, got {shown(by)}')
        return np.unique(labels, return_inverse=True)[1], "groups"
    if by != "episode":
        raise ValueError(f'by must be "episode" or a label for each row, such as the column itself, got {shown(by)}')
    if log.episodes is None and not log.paired and Logged(log).sampling == "order":
        return np.arange(len(log)) * BLOCKS // len(log), "parts of the time"
    kind = "episodes" if log.episodes is not None else "states" if log.paired else "rows"
    return log.groups()[0], kind


def _halved(log: Transitions, groups: NDArray[np.intp], asked: dict[str, Any], seeds: list[int]) -> tuple[Half, ...]:
    """The answer from half of the groups."""
    number = int(groups.max()) + 1
    drawn = np.zeros(number, dtype=bool)
    drawn[np.random.default_rng(seeds[0]).permutation(number)[: number // 2]] = True
    return (_answer(log.where(drawn[groups]), {**asked, "rng": seeds[1]}),)


def _answer(log: Transitions, asked: dict[str, Any], *, must: bool = False) -> Half:
    """The answer from a log; ``must``: a refusal is raised."""
    expert = asked["expert"]
    try:
        if isinstance(expert, str) and expert == OBSERVED:
            expert = policy_from(log)
        answer = solve(log, **{"progress": False, **asked, "expert": expert})
    except ValueError as refusal:
        if must:
            raise
        return Half("refused", str(refusal), None)
    return Half(answer.status, answer.reason, answer.reward)
