"""A statement about almost all states, where no proof reaches every one: boxes of many coordinates.

States are drawn from a stated law and each is put to a test that a wrong reward passes with probability β at most. If
D(s), the smallest true D_a(s), lay below m at more than a share ε of states, a test would say "at least m" with
probability 1 − ε(1 − β) at most; so many tests in agreement would be luck. Nothing is assumed of bases, columns or
tails: the tests play the dynamics. Nothing is said about the states that are left out.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.data.simulator import Simulator, as_generator, ask, can_pair, check_rollouts, check_simulator
from certirl.data.transitions import Transitions
from certirl.fit.bellman import check_problem
from certirl.functions.bases import Legendre
from certirl.functions.bounded import BoundedReward, bounded
from certirl.functions.boxes import product
from certirl.functions.inequalities import SELF_EVENTS, log_term, self_bounded
from certirl.functions.reward import Reward, known_expert, unpack
from certirl.ground.domain import Array, Domain, as_domain, describe, freeze
from certirl.ground.doors import as_count, as_probability
from certirl.ground.progress import Report, check_progress, watched
from certirl.proof.certify import check_delta, check_endless, check_noise

ROWS = 65_536  # rollouts played at once
TEST_LEVEL = 0.1  # β: a single test may be wrong this often; the number of states pays for it
CUT = 1e-3  # of the range of the value: what the steps left out may amount to


@dataclass(frozen=True, eq=False)
class Scenario:
    """With probability 1 − δ, D_a(s) ≥ ``margin`` for all rivals a at all but a share ε of the states of a law.

    This is no certificate: it does not say which states are the exceptions, nor how wrong the reward is there.

    Attributes:
        margin: m, the largest that the tests support; not positive if they support nothing.
        share: ε.
        delta: the probability that the statement is false.
        law: from which the states are drawn, in words.
        states: where the tests were made ``[N, d]``.
        bounds: their lower confidence bounds on D(s), each wrong with probability β at most ``[N]``.
        spared: how many of the lowest bounds may lie below the margin.
        level: β.
        samples: rollouts per state and first action.
        steps: how long a rollout is.
        truncation: γ^steps·span(R)/(1 − γ), taken off every bound.
        expert: the expert's action.
        assumptions: what must be true besides, in words.
    """

    margin: float
    share: float
    delta: float
    law: str
    states: Array
    bounds: Array
    spared: int
    level: float
    samples: int
    steps: int
    truncation: float
    expert: int
    assumptions: tuple[str, ...]

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def holds(self) -> bool:
        """Whether the margin is positive."""
        return self.margin > 0

    def __str__(self) -> str:
        most = f"all but a share {self.share:g} of the states drawn from {self.law}"
        if self.holds:
            first = f"With probability {1 - self.delta:g}, at {most}, action {self.expert} is better than every rival"
            first += f" by at least {self.margin:.4g}."
        else:
            first = f"Nothing is shown about {most}: the margin that the tests support is {self.margin:.4g}."
        tests = f"{len(self.states):,} states, {self.samples:,} rollouts of {self.steps} steps for each action"
        lowest = f"the lowest bound is {self.bounds.min():.4g}, the median {np.median(self.bounds):.4g}"
        return "\n".join(
            [
                first,
                f"  tested at {tests}; {lowest}",
                "  not said: which states are exceptions, and how wrong the reward is there; this is no certificate",
                *(f"  assumed: {assumption}" for assumption in self.assumptions),
            ]
        )


def scenario(
    reward: Any,
    simulator: Simulator,
    *,
    share: float = 0.01,
    delta: float = 0.05,
    discount: float | None = None,
    expert: int | None = None,
    states: int | None = None,
    samples: int = 1_000,
    rng: Any = None,
    reward_range: tuple[float, float] | None = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
) -> Scenario:
    """Show, by playing at random states, that the expert's action is better at all but a small share of the states.

    For states drawn uniformly from the box. At each, rollouts that begin with the expert's action and with a rival, and
    go on with the expert's, bound D_a(s) from below; `Scenario` says what follows from all of them together.

    Args:
        reward: a `Solution`, a `Reward`, or any bounded function of states ``[n, d]``.
        simulator: the dynamics.
        share: ε, the share of states that may be exceptions.
        delta: the probability that the statement is false.
        discount: γ; known from a solution.
        expert: the expert's action; known from a solution, otherwise 0.
        states: how many states to test; left out, as few as can do. More forgive some low bounds.
        samples: rollouts per state and first action.
        rng: a seed or Generator.
        reward_range: bounds on the reward; needed for a plain function.
        paired: play all first actions with the same random numbers; left out, where a trial shows that rows keep them.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
    """
    if isinstance(simulator, Transitions):
        raise TypeError("a scenario plays the dynamics: pass a simulator, since logged transitions cannot be asked")
    check_progress(progress)
    check_simulator(simulator)
    function, discount, expert = unpack(reward, discount, known_expert(reward, expert))
    if discount is None:
        raise ValueError("a reward alone does not know the problem: pass discount, say discount=0.9")
    discount = check_problem(discount, expert, simulator.n_actions, of_states=False)
    share, delta = as_probability(share, "share"), check_delta(delta)
    samples = as_count(samples, "samples", least=2, meaning="a whole number of rollouts")
    check_endless(simulator)
    check_noise(simulator)
    steps = max(int(np.ceil(np.log(CUT) / np.log(discount))), 1)
    count, spared = _how_many(share, delta, states, samples, steps)
    domain, generator = as_domain(simulator.domain), as_generator(rng, "scenario")
    if reward_range is None and not isinstance(function, Reward):
        raise ValueError("a reward that is a plain function needs reward_range=(low, high)")
    known = bounded(function, domain, reward_range).normalised()
    span = known.high - known.low
    low_ends, high_ends = np.array(domain).T
    start = low_ends + (high_ends - low_ends) * generator.random((count, len(domain)))
    paired = can_pair(simulator, _places(domain), generator, asked=paired)
    play = _Play(simulator, known, domain, discount, expert, steps, paired)
    sums = play.sums(start, samples, generator, progress)
    L = log_term(SELF_EVENTS * (simulator.n_actions - 1), TEST_LEVEL)
    truncation = discount**steps * span / (1 - discount)
    radius = self_bounded(sums[1], span * (1 - discount**steps) / (1 - discount), L)
    bounds = known.unit * (((sums[0] - radius) / samples).min(axis=0) - truncation)
    return Scenario(
        margin=float(np.sort(bounds)[spared]),
        share=share,
        delta=delta,
        law=f"the uniform law on {describe(domain)}",
        states=start,
        bounds=bounds,
        spared=spared,
        level=TEST_LEVEL,
        samples=samples,
        steps=steps,
        truncation=known.unit * truncation,
        expert=expert,
        assumptions=(_independence(paired=paired), *known.assumptions),
    )


def _how_many(share: float, delta: float, states: Any, samples: int, steps: int) -> tuple[int, int]:
    """How many states to test, and how many of the lowest bounds may be spared: Binomial(N, ε(1 − β)) ≤ k rarely."""
    from scipy.stats import binom

    chance = share * (1 - TEST_LEVEL)
    least = int(np.ceil(np.log(delta) / np.log1p(-chance)))
    count = least if states is None else as_count(states, "states")
    if count < least:
        raise ValueError(f"a share of {share:g} at delta={delta:g} needs at least {least:,} states, got {states}")
    check_rollouts(count, samples, steps)
    return count, int(np.searchsorted(binom.cdf(np.arange(count), count, chance), delta, side="right")) - 1


def _independence(*, paired: bool) -> str:
    rows = " (rows do not share random numbers)" if paired else ""
    return f"the simulator is the dynamics, and its draws at different rows are independent{rows}"


def _places(domain: Domain) -> Any:
    """A basis whose design says where to try whether rows keep their random numbers."""
    return Legendre(2) if len(domain) == 1 else product(*[Legendre(2)] * len(domain))


@dataclass(frozen=True, eq=False)
class _Play:
    """Rollouts from start states: one first action, then the expert's."""

    simulator: Simulator
    reward: BoundedReward
    domain: Domain
    discount: float
    expert: int
    steps: int
    paired: bool

    def sums(self, start: Array, samples: int, rng: np.random.Generator, progress: Any) -> Array:
        """Σ X and Σ X² of the differences X between the expert's returns and a rival's ``[2, A − 1, N]``."""
        rivals = [a for a in range(self.simulator.n_actions) if a != self.expert]
        total, rows = np.zeros((2, len(rivals), len(start))), len(start) * samples
        blocks = (np.arange(begin, min(begin + ROWS, rows)) // samples for begin in range(0, rows, ROWS))
        for which in watched(blocks, rows, len, progress, unit="rollouts"):
            streams = rng.spawn(1 if self.paired else 1 + len(rivals))
            own = self._returns(start[which], self.expert, copy.deepcopy(streams[0]))
            for row, rival in enumerate(rivals):
                stream = copy.deepcopy(streams[0]) if self.paired else streams[1 + row]
                gap = own - self._returns(start[which], rival, stream)
                for power in (1, 2):
                    total[power - 1, row] += np.bincount(which, gap**power, minlength=len(start))
        return total

    def _returns(self, states: Array, first: int, rng: np.random.Generator) -> Array:
        """Σ γ^{t−1} R(s_t) of one rollout from each state ``[n]``, less the middle of R's range, which costs digits."""
        total, weight, middle = np.zeros(len(states)), 1.0, (self.reward.low + self.reward.high) / 2
        for step in range(self.steps):
            states = ask(self.simulator, states, self.expert if step else first, rng, self.domain)
            total += weight * (self.reward(states) - middle)
            weight *= self.discount
        return total
