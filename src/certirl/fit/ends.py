"""Ends: where episodes of two policies end, and which ends an expert avoids.

R, V and averages over a box say little about ends: a few states decide whether a landing is soft. So episodes are
followed, of the expert, of random actions and of the plan on R alone, and their last states are compared. A kind of
end is avoided if the expert reaches it more rarely than random actions do from the same states; boxes of such ends are
found by splits along coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy, choose, terminal_states, uniform_policy
from certirl.data.simulator import Counted, Simulator, ask, terminal_of
from certirl.data.source import TerminalBoxes, boxes_of
from certirl.functions.reward import values_of
from certirl.ground import archive
from certirl.ground.domain import Array, as_domain
from certirl.ground.doors import as_count, lend
from certirl.ground.records import Record

ROUND = 25  # start states of a round of episodes
FEWEST_STEPS, LONGEST = 10, 300  # of an episode that is followed to its end
PAIRS = 150  # of episodes, that the rows must suffice for
MOST_STARTS = 1_000
DEEPEST, LEAST = 4, 0.04  # splits one below the other, and the least share of the ends on either side of one
CLEARLY = 2.0  # standard errors of a difference of two counts
SURE = 1.645  # standard errors: one end of an interval, which is wrong with probability 0.05


class Episodes(NamedTuple):
    """One episode from each of n states.

    Attributes:
        last: the last states ``[n, d]``.
        over: which of them are terminal ``[n]``.
        steps: of each episode ``[n]``.
        earned: discounted returns by the simulator's own reward ``[n]``; 0 if it has none.
        midway: the state of each episode at a step asked for ``[n, d]``.
        alive: which of these are not terminal ``[n]``.
    """

    last: Array
    over: NDArray[np.bool_]
    steps: NDArray[np.intp]
    earned: Array
    midway: Array
    alive: NDArray[np.bool_]


def follow(
    simulator: Simulator,
    policy: Policy,
    starts: Array,
    limits: NDArray[np.intp],
    rng: np.random.Generator,
    *,
    at: NDArray[np.intp] | None = None,
    discount: float = 1.0,
) -> Episodes:
    """One episode of a policy from each state; the simulator is asked about those alone that have not ended.

    Args:
        simulator: the dynamics.
        policy: what is followed.
        starts: ``[n, d]``.
        limits: the most steps of each episode ``[n]``.
        rng: the generator.
        at: the step after which the state of each episode is kept as `Episodes.midway` ``[n]``; 0 if left out.
        discount: γ, of returns.
    """
    domain, paid = as_domain(simulator.domain), getattr(simulator, "reward", None)
    places, steps, earned = np.array(starts, dtype=float), np.zeros(len(starts), dtype=np.intp), np.zeros(len(starts))
    over, at = terminal_states(simulator, places), np.zeros(len(starts), dtype=np.intp) if at is None else at
    midway, alive = places.copy(), ~over & (at == 0)
    for number in range(int(limits.max(initial=0))):
        rows = np.flatnonzero(~over & (limits > number))
        if not len(rows):
            break
        actions = choose(policy, places[rows], rng.random(len(rows)))
        for action in np.unique(actions).tolist():
            chosen = rows[actions == action]
            before, after = places[chosen], np.asarray(ask(simulator, places[chosen], action, rng, domain))
            if callable(paid):
                earned[chosen] += discount**number * _paid(paid, before, action, after)
            places[chosen] = after
        steps[rows] += 1
        over[rows] = terminal_states(simulator, places[rows])
        here = rows[at[rows] == number + 1]
        midway[here], alive[here] = places[here], ~over[here]
    return Episodes(places, over, steps, earned, midway, alive)


def _paid(reward: Any, before: Array, action: int, after: Array) -> Array:
    return values_of(lambda rows: reward(rows, action, lend(after)), before, name="the simulator's reward")


def avoided_ends(expert: Episodes, random: Episodes) -> TerminalBoxes:
    """Boxes of the ends that the expert reaches clearly more rarely than random actions, from the same states."""
    counts = [int(episodes.over.sum()) for episodes in (expert, random)]
    states = np.concatenate([episodes.last[episodes.over] for episodes in (expert, random)])
    by_chance = np.arange(len(states)) >= counts[0]
    found = boxes_of(states, by_chance, deepest=DEEPEST, fewest=max(ceil(LEAST * len(states)), 5))
    boxes = [TerminalBoxes(box[None], 0.0, 0.0, max(len(states), 1)) for box in found]
    hits = [(int(box(states[by_chance]).sum()), int(box(states[~by_chance]).sum())) for box in boxes]
    clear = [more - fewer > CLEARLY * sqrt(more + fewer) for more, fewer in hits]
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

    def as_read(self, file: str) -> Reached:
        """Refuse counts that are none.

        :meta private:
        """
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


class Starts(NamedTuple):
    """Episodes of the expert and of random actions, from the same even states.

    Attributes:
        states: where they start ``[n, d]``.
        steps: the most of an episode.
        at: the step after which a state of the expert's own was kept ``[n]``.
        expert, random: the episodes.
    """

    states: Array
    steps: int
    at: NDArray[np.intp]
    expert: Episodes
    random: Episodes

    @property
    def own(self) -> Array:
        """The expert's own states, at random steps of its episodes ``[m, d]``."""
        return self.expert.midway[self.expert.alive]


def first_episodes(
    simulator: Any, policy: Policy, states: Array, *, rows: int, discount: float, rng: np.random.Generator
) -> Starts | None:
    """Episodes of the expert and of random actions; None if there is nothing to compare, or the rows are too few.

    Args:
        simulator: the dynamics.
        policy: the expert.
        states: even ones, from which the first ones are taken ``[n, d]``.
        rows: of one action that the simulator may be asked about, for these episodes and those of a plan.
        discount: γ.
        rng: the generator.
    """
    steps = min(ceil(3 / (1 - discount)), LONGEST, rows // PAIRS)
    if steps < FEWEST_STEPS or (terminal_of(simulator) is None and not callable(getattr(simulator, "reward", None))):
        return None
    states = states[: min(len(states), MOST_STARTS)]
    at = rng.integers(1, steps, size=len(states))  # chosen beforehand: what follows does not depend on it
    followed: list[list[Episodes]] = [[], []]
    spent, taken = [0, 0], 0
    for start in range(0, len(states), ROUND):
        part = slice(start, start + ROUND)
        limits = np.full(len(states[part]), steps)
        for number, each in enumerate((policy, uniform_policy(simulator.n_actions))):
            already = _asked(simulator)
            found = follow(simulator, each, states[part], limits, rng, at=at[part], discount=discount)
            followed[number].append(found)
            spent[number] += _asked(simulator) - already
        taken = start + len(limits)
        # Two episodes of the plan are to follow each of the expert, and a round more.
        if (3 * spent[0] + spent[1]) * (1 + ROUND / taken) > rows:
            break
    expert, random = (_joined(each) for each in followed)
    return Starts(states[:taken], steps, at[:taken], expert, random)


def compare_ends(
    simulator: Any,
    plan: Policy,
    starts: Starts,
    avoided: TerminalBoxes | None,
    *,
    rows: int,
    discount: float,
    rng: np.random.Generator,
) -> Reached:
    """What a plan reaches from the states of the expert's episodes: from their starts, and from states on their way.

    Args:
        simulator: the dynamics.
        plan: the policy.
        starts: the expert's episodes.
        avoided: ends that the expert avoids; None if it avoids none.
        rows: of one action that the simulator may be asked about.
        discount: γ.
        rng: the generator.
    """
    first = _asked(simulator)
    parts: list[tuple[Episodes, Episodes]] = []
    for start in range(0, len(starts.states), ROUND):
        part = slice(start, start + ROUND)
        own = starts.expert.alive[part]
        rest = starts.steps - starts.at[part][own]
        whole = np.full(len(own), starts.steps)
        settings: dict[str, Any] = {"rng": rng, "discount": discount}
        parts.append((
            follow(simulator, plan, starts.states[part], whole, **settings),
            follow(simulator, plan, starts.expert.midway[part][own], rest, **settings),
        ))  # fmt: skip
        if (_asked(simulator) - first) * (1 + ROUND / (start + ROUND)) > rows:
            break
    even, on_way = (_joined(list(each)) for each in zip(*parts, strict=True))
    n = len(even.over)
    # From a state on its way the expert's episode goes on as it did: the step was chosen beforehand.
    expert, random = _some(starts.expert, slice(n)), _some(starts.random, slice(n))
    later = _some(expert, expert.alive)
    later = later._replace(steps=later.steps - starts.at[:n][expert.alive])
    made, shown = _joined([even, on_way]), _joined([expert, later])
    bad, wanted = (each.over & (False if avoided is None else avoided(each.last)) for each in (made, shown))
    unfinished = int((~made.over).sum()), int((~shown.over).sum())
    idle = 0.0
    if expert.over.mean() > random.over.mean():  # the expert makes for an end
        idle = (unfinished[0] - unfinished[1] - SURE * sqrt(sum(unfinished))) / len(made.over)
    returns, loss = None, 0.0
    if callable(getattr(simulator, "reward", None)):
        of_plan, of_expert, of_chance = (float(each.earned.mean()) for each in (even, expert, random))
        returns, lost, unit = (of_plan, of_expert, of_chance), expert.earned - even.earned, of_expert - of_chance
        loss = (float(lost.mean()) - SURE * float(lost.std()) / sqrt(n)) / unit if unit > 0 else 0.0
    return Reached(
        episodes=len(made.over),
        steps=starts.steps,
        plan=int(bad.sum()),
        expert=int(wanted.sum()),
        more=int((bad & ~wanted).sum()),
        fewer=int((wanted & ~bad).sum()),
        unfinished=unfinished,
        idle=idle,
        lengths=(float(made.steps.mean()), float(shown.steps.mean())),
        returns=returns,
        loss=loss,
        avoided="" if avoided is None else str(avoided),
    )


def _asked(simulator: Any) -> int:
    """The rows that a simulator was asked about in trials, of the action with most; 0 if they are not counted."""
    return simulator.counts.most(simulator.purpose) if isinstance(simulator, Counted) else 0


def _joined(parts: list[Episodes]) -> Episodes:
    arrays: Any = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Episodes(*arrays)


def _some(episodes: Episodes, rows: NDArray[np.bool_] | slice) -> Episodes:
    arrays: Any = (each[rows] for each in episodes)
    return Episodes(*arrays)
