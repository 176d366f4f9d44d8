"""Ends: where episodes of two policies end, and which ends an expert avoids.

R, V and averages over a box say little about ends: a few states decide whether a landing is soft. So episodes are
followed, of the plan on R alone and of the expert, and their last states are compared. An end is avoided if the expert
reaches it clearly more rarely than it would with every second action left to chance, from the same states; boxes of
such ends are found by splits along coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy, choose, terminal_states, uniform_policy
from certirl.data.simulator import Counted, Simulator, ask, terminal_of
from certirl.data.terminal import TerminalBoxes, boxes_of
from certirl.fit.effects import live_states
from certirl.functions.ends import inside
from certirl.functions.reward import values_of
from certirl.ground import archive
from certirl.ground.domain import Array, as_domain
from certirl.ground.doors import as_count, lend
from certirl.ground.records import Record, internal

WALKS = 200  # of the expert and of random actions, which tell whether it seeks or avoids ends
MANY_WALKS = 1_000  # of the expert and of the disturbed one, from which boxes of avoided ends are learned
OFTEN = 3  # times as often the disturbed expert ends, at least, in boxes that V has a number for
OTHERS = 100  # start states from which random actions and a disturbed expert are followed
SOME = 0.05  # of these: ends that the expert does not avoid
ROUND = 25  # start states of a round of episodes, at least
SPARE = 1.25  # times the rows that a start of the costliest round took are kept for a start of the next one
FEWEST_STEPS, LONGEST = 10, 300  # of an episode that is followed to its end
PAIRS = 150  # of episodes, that the rows must suffice for
MOST_STARTS = 1_000
DEEPEST, LEAST = 4, 0.04  # splits one below the other, and the least share of the ends on either side of one
CLEARLY = 2.0  # standard errors of a difference of two counts
SURE = 1.645  # standard errors: one end of an interval, which is wrong with probability 0.05


class Episodes(NamedTuple):
    """One episode from each of n states."""

    last: Array  # the last states ``[n, d]``
    over: NDArray[np.bool_]  # which of them are terminal ``[n]``
    steps: NDArray[np.intp]  # of each episode ``[n]``
    earned: Array  # discounted returns by the simulator's own reward ``[n]``; 0 if it has none
    midway: Array  # the state of each episode at a step asked for ``[n, d]``
    alive: NDArray[np.bool_]  # which of these are not terminal ``[n]``


def follow(
    simulator: Simulator,
    policies: Sequence[Policy],
    starts: Array,
    limits: NDArray[np.intp],
    rng: np.random.Generator,
    *,
    at: NDArray[np.intp] | None = None,
    discount: float = 1.0,
) -> list[Episodes]:
    """Episodes of some policies from the same states; the simulator is asked about those alone that have not ended.

    Policies meet the same noise, and are asked about once as long as they do the same: the ends of two policies that
    are nearly the same then differ in few episodes, and few episodes tell how often.

    ``limits`` are the most steps of each episode ``[n]``. ``at`` is the step after which its state is kept as
    `Episodes.midway` ``[n]``; 0 if left out.
    """
    domain, paid, n = as_domain(simulator.domain), getattr(simulator, "reward", None), len(starts)
    at = np.zeros(n, dtype=np.intp) if at is None else at
    each = [_started(simulator, starts, at) for _ in policies]
    for number in range(int(limits.max(initial=0))):
        actions = np.full((len(policies), n), -1)
        uniform = rng.random(n)
        for taken, policy, episodes in zip(actions, policies, each, strict=True):
            rows = np.flatnonzero(~episodes.over & (limits > number))
            if len(rows):
                taken[rows] = choose(policy, episodes.last[rows], uniform[rows])
        if (actions < 0).all():
            break
        before = np.stack([episodes.last for episodes in each])
        together = (actions == actions[0]).all(axis=0) & (before == before[0]).all(axis=(0, 2))
        kinds, kind = np.unique(np.concatenate([actions, together[None]]), axis=1, return_inverse=True)
        for index, (*chosen, alike) in enumerate(kinds.T.tolist()):
            rows, seed = np.flatnonzero(kind.ravel() == index), int(rng.integers(2**31))
            for action, episodes, places in zip(chosen, each, before, strict=True):
                if action < 0:
                    continue
                if episodes is each[0] or not alike:
                    after = np.asarray(ask(simulator, places[rows], action, np.random.default_rng(seed), domain))
                    if callable(paid):
                        earned = discount**number * _paid(paid, places[rows], action, after)
                if callable(paid):
                    episodes.earned[rows] += earned
                episodes.last[rows] = after
        for taken, episodes in zip(actions, each, strict=True):
            rows = np.flatnonzero(taken >= 0)
            episodes.steps[rows] += 1
            episodes.over[rows] = terminal_states(simulator, episodes.last[rows])
            here = rows[at[rows] == number + 1]
            episodes.midway[here], episodes.alive[here] = episodes.last[here], ~episodes.over[here]
    return each


def _started(simulator: Simulator, starts: Array, at: NDArray[np.intp]) -> Episodes:
    """Episodes of no step."""
    places, n = np.array(starts, dtype=float), len(starts)
    over = np.array(terminal_states(simulator, places))
    return Episodes(places, over, np.zeros(n, dtype=np.intp), np.zeros(n), places.copy(), ~over & (at == 0))


def _paid(reward: Any, before: Array, action: int, after: Array) -> Array:
    return values_of(lambda rows: reward(rows, action, lend(after)), before, name="the simulator's reward")


def avoided_ends(expert: Episodes, others: Episodes, often: int = 1) -> TerminalBoxes:
    """Boxes of the ends that the expert reaches clearly more rarely than it does disturbed, from the same states.

    The disturbed expert must end there ``often`` times as often, at least.
    """
    states = np.concatenate([episodes.last[episodes.over] for episodes in (*[expert] * often, others)])
    by_chance = np.arange(len(states)) >= often * expert.over.sum()
    found = boxes_of(states, by_chance, deepest=DEEPEST, fewest=max(ceil(LEAST * len(states)), 5))
    boxes = [TerminalBoxes(box[None], 0.0, 0.0, max(len(states), 1)) for box in found]
    hits = [(int(box(states[by_chance]).sum()), int(box(states[~by_chance]).sum())) for box in boxes]
    clear = [more - fewer > CLEARLY * sqrt(more + often * fewer) for more, fewer in hits]
    return TerminalBoxes(found[np.array(clear, dtype=bool)], 0.0, 0.0, max(len(states), 1))


@archive.record
@dataclass(frozen=True)
class Reached(Record):
    """What the plan on R alone reaches, and what the expert reaches from the same states, half of them its own.

    Attributes:
        episodes: of each of the two.
        steps: the most of an episode.
        plan, expert: episodes with an end that the expert avoids.
        more, fewer: episodes in which only the plan, and in which only the expert, has such an end.
        unfinished: episodes of the plan and of the expert without an end.
        idle: by how much more often the plan has no end, surely (95 %), where the expert makes for one.
        lengths: mean steps of the plan and of the expert.
        returns: mean discounted returns by the simulator's own reward, of the plan, the expert and random actions;
            None if it declares none.
        loss: of these returns, by how much the plan's are below the expert's, surely (95 %), in units of what random
            actions lose.
        avoided: the ends that the expert avoids, in words; empty if it avoids none.

    Example:
        >>> from certirl.fit.ends import Reached
        >>> reached = Reached(
        ...     episodes=500,
        ...     steps=30,
        ...     plan=6,
        ...     expert=2,
        ...     more=5,
        ...     fewer=1,
        ...     unfinished=(0, 0),
        ...     idle=0.0,
        ...     lengths=(12.1, 12.0),
        ...     returns=None,
        ...     loss=0.0,
        ...     avoided="s > 0.9",
        ... )
        >>> reached.excess, round(reached.most, 3)
        (0.008, 0.018)
        >>> print(reached)
        in 500 episodes of at most 30 steps each; the plan on R alone reaches ends that the expert avoids in 1.2%, the \
expert in 0.4%; mean steps 12.1 and 12.0 (avoided: s > 0.9)
    """

    episodes: int
    steps: int
    plan: int
    expert: int
    more: int
    fewer: int
    unfinished: tuple[int, int]
    idle: float
    lengths: tuple[float, float]
    returns: tuple[float, float, float] | None
    loss: float
    avoided: str
    _derived: ClassVar[tuple[str, ...]] = ("excess", "most")

    @internal
    def as_read(self, file: str) -> Reached:
        """These counts, each checked to be a whole number in its range."""
        for count in (self.plan, self.expert, self.more, self.fewer, *self.unfinished):
            as_count(count, "a count of episodes", least=0, most=self.episodes)
        return self

    @property
    def excess(self) -> float:
        """How much more often the plan has an end that the expert avoids, as a share of the episodes."""
        return (self.more - self.fewer) / max(self.episodes, 1)

    @property
    def most(self) -> float:
        """The upper end of its interval: with probability 0.95 it is no more."""
        # The score interval of a difference of two shares in pairs; without any difference 2.7/n, nearly the exact 3/n.
        differ = self.more + self.fewer
        return (self.more - self.fewer + SURE * sqrt(differ + SURE**2)) / max(self.episodes, 1)

    def __str__(self) -> str:
        shares = [count / max(self.episodes, 1) for count in (self.plan, self.expert)]
        words = [f"in {self.episodes:,} episodes of at most {self.steps} steps each"]
        if self.avoided:
            words.append(
                "the plan on R alone reaches ends that the expert avoids in {:.1%}, the expert in {:.1%}".format(
                    *shares
                )
            )
        if any(self.unfinished):
            left = [count / max(self.episodes, 1) for count in self.unfinished]
            words.append("{:.1%} and {:.1%} have not ended".format(*left))
        words.append("mean steps {:.1f} and {:.1f}".format(*self.lengths))
        if self.returns is not None:
            words.append("returns {:.4g} and {:.4g}, of random actions {:.4g}".format(*self.returns))
        where = f" (avoided: {self.avoided})" if self.avoided else ""
        return "; ".join(words) + where


def disturbed(policy: Policy) -> Policy:
    """The expert with every second action left to chance."""
    A = policy.n_actions
    return Policy(A, lambda states: (policy.probabilities(states) + 1 / A) / 2)


def walked_ends(
    simulator: Any, policy: Policy, other: Policy, discount: float, walks: int = WALKS
) -> tuple[Episodes, Episodes]:
    """Episodes of the expert and of another policy from the same uniform states, for three times the horizon."""
    rng = np.random.default_rng(0)
    states = live_states(simulator, walks, rng)
    limits = np.full(walks, min(ceil(3 / (1 - discount)), LONGEST))
    (expert,), (others,) = (follow(simulator, [each], states, limits, rng) for each in (policy, other))
    return expert, others


def some_avoided(expert: Episodes, others: Episodes) -> Array | None:
    """Boxes of the ends that the expert avoids ``[b, 2, d]``; None if it avoids all or none of them."""
    avoided = avoided_ends(expert, others, OFTEN)
    reached = expert.over & ~avoided(expert.last)
    return avoided.boxes if len(avoided.boxes) and reached.sum() > SOME * len(reached) else None


def compare_ends(
    simulator: Any,
    plan: Policy,
    policy: Policy,
    states: Array,
    *,
    avoided: Array | None,
    rows: int,
    discount: float,
    rng: np.random.Generator,
) -> Reached | None:
    """What a plan and the expert reach from the same states: even ones, and states of the expert's own.

    Of the states, even ones ``[n, d]``, the first are taken. ``avoided`` are boxes of ends that the expert avoids ``[b,
    2, d]``, None if they are to be found; ``rows`` those of one action that the simulator may be asked about.

    Returns:
        None if the rows are too few, or there are no ends and no returns to compare.
    """
    steps = min(ceil(3 / (1 - discount)), LONGEST, rows // PAIRS)
    pays = callable(getattr(simulator, "reward", None))
    if steps < FEWEST_STEPS or (terminal_of(simulator) is None and not pays):
        return None
    states, left, costliest = states[:MOST_STARTS], rows, 0.0
    at = rng.integers(1, steps, size=len(states))  # chosen beforehand: what follows does not depend on it
    rounds: list[list[Episodes]] = []
    start, size = 0, ROUND
    while start < len(states) and size >= ROUND:
        before, part, most = _asked(simulator), states[start : start + size], at[start : start + size]
        limits, asked = np.full(len(part), steps), dict[str, Any](rng=rng, discount=discount)
        even = follow(simulator, [plan, policy], part, limits, at=most, **asked)
        few = limits * (start + np.arange(len(part)) < OTHERS)
        chance = follow(simulator, [uniform_policy(simulator.n_actions)], part, few, **asked)
        rough = follow(simulator, [disturbed(policy)], part, few * (avoided is None), **asked)
        own = even[1].alive
        later = follow(simulator, [plan, policy], even[1].midway[own], limits[own], **asked)
        rounds.append([*even, *chance, *rough, *later])
        start, left = start + len(part), left - (_asked(simulator) - before)
        costliest = max(costliest, (_asked(simulator) - before) / len(part))
        size = min(2 * size, int(left / max(SPARE * costliest, 1e-9)))  # few calls of many states are fast
    made, expert, random, others, *own_ones = (_joined(list(each)) for each in zip(*rounds, strict=True))
    first = slice(OTHERS)
    if avoided is None:
        avoided = avoided_ends(_some(expert, first), _some(others, first)).boxes
    both = _joined([made, own_ones[0]]), _joined([expert, own_ones[1]])
    bad, shown = (each.over & inside(avoided, each.last) for each in both)
    of_plan, of_expert = (int((~each.over).sum()) for each in both)
    idle = 0.0
    if not len(avoided) and expert.over[first].mean() > random.over[first].mean():  # the expert makes for an end
        differ = int((both[0].over != both[1].over).sum())
        idle = (of_plan - of_expert - SURE * sqrt(differ)) / len(bad)
    returns, loss = None, 0.0
    if pays:
        returns = float(made.earned.mean()), float(expert.earned.mean()), float(random.earned[first].mean())
        lost, unit = expert.earned - made.earned, returns[1] - returns[2]
        loss = (float(lost.mean()) - SURE * float(lost.std()) / sqrt(len(lost))) / unit if unit > 0 else 0.0
    return Reached(
        episodes=len(bad),
        steps=steps,
        plan=int(bad.sum()),
        expert=int(shown.sum()),
        more=int((bad & ~shown).sum()),
        fewer=int((shown & ~bad).sum()),
        unfinished=(of_plan, of_expert),
        idle=idle,
        lengths=(float(both[0].steps.mean()), float(both[1].steps.mean())),
        returns=returns,
        loss=loss,
        avoided=str(TerminalBoxes(avoided, 0.0, 0.0, 1)) if len(avoided) else "",
    )


def _asked(simulator: Any) -> int:
    """The rows that a simulator was asked about in trials, of the action with most; 0 if they are not counted."""
    return simulator.counts.most(simulator.purpose) if isinstance(simulator, Counted) else 0


def _joined(parts: list[Episodes]) -> Episodes:
    arrays: Any = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Episodes(*arrays)


def _some(episodes: Episodes, rows: slice) -> Episodes:
    arrays: Any = (each[rows] for each in episodes)
    return Episodes(*arrays)
