"""Rollouts as evidence for a reward, without basis, matrix or program.

`rollout_check` is the paper's own check at some states: a test that a wrong reward fails, not a proof. `scenario` makes
a statement about almost all states of a box, for boxes of many coordinates, where no certificate reaches every state.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from certirl.data.dependence import can_pair
from certirl.data.policy import as_policy, returns
from certirl.data.simulator import Simulator, as_generator, check_rollouts, check_simulator
from certirl.data.source import as_source
from certirl.data.transitions import Transitions
from certirl.fit.bellman import alternatives_of, check_problem
from certirl.functions.bases import Legendre, product
from certirl.functions.inequalities import SELF_EVENTS, log_term, self_bounded
from certirl.functions.reward import (
    RewardLike,
    bounded,
    check_known,
    proved_range,
    reward_at_terminal,
    trial_states,
    unit_of,
    unpack,
    values_of,
)
from certirl.ground.domain import Array, Box, as_domain, as_states
from certirl.ground.doors import as_count, as_delta, as_probability
from certirl.ground.records import Record
from certirl.ground.status import rounded_down
from certirl.ground.work import Report, check_progress, watched

ROWS = 65_536  # rollouts at once: memory stays flat however many are asked for
MOST_STATES = 1_000_000  # start states
LEVEL = 0.05  # probability that any comparison contradicts an expert who is right over these steps
TEST_LEVEL = 0.1  # β: probability that the test of one state is wrong; the number of states makes up for it
CUT = 1e-3  # share of the range of the value that the steps beyond the horizon may amount to


@dataclass(frozen=True, eq=False)
class RolloutCheck(Record):
    """D_a(s) estimated by rollouts, truncated after some steps.

    ``Σ_{t=1}^{steps} γ^{t−1} (E[R(s_t) | π first] − E[R(s_t) | a first])``, the expert acting after the first step.

    Attributes:
        states: where the rollouts start ``[n, d]``.
        advantage: the estimated differences, alternative actions in order ``[A − 1, n]``.
        standard_error: of each ``[A − 1, n]``.
        alternatives: the actions compared with the expert's ``[A − 1]``.
        steps: the length of a rollout.
        samples: rollouts per start state and first action.
        truncation: γ^steps·span(R)/(1 − γ), a bound on the steps beyond; the span is exact for an expansion, otherwise
            that of the rewards in the rollouts.
        domain: the box of states.

    Example:
        >>> room = certirl.problems.thermostat()
        >>> checked = certirl.trials.rollout_check(lambda s: -s[:, 0], room, discount=0.9, states=5, samples=400, rng=0)
        >>> checked.agrees, checked.contradicted, checked.advantage.shape
        (False, 10, (2, 5))
    """

    states: Array
    advantage: Array
    standard_error: Array
    alternatives: tuple[int, ...]
    steps: int
    samples: int
    truncation: float
    domain: Box
    _derived: ClassVar[tuple[str, ...]] = ("agrees", "doubtful", "contradicted")

    @property
    def agrees(self) -> bool:
        """Whether the expert's action came out ahead of every alternative at every start state."""
        return bool((self.advantage > 0).all())

    @property
    def doubtful(self) -> int:
        """How many differences lie within two standard errors of zero."""
        return int((np.abs(self.advantage) <= 2 * self.standard_error).sum())

    @property
    def contradicted(self) -> int:
        """How many differences are negative beyond chance, at level 5 % for all together."""
        return self._below(0.0)

    def _below(self, limit: float) -> int:
        """How many differences lie below a limit beyond chance (normal, Bonferroni)."""
        beyond = NormalDist().inv_cdf(1 - LEVEL / self.advantage.size)
        return int((self.advantage < limit - beyond * self.standard_error).sum())

    def __str__(self) -> str:
        row, column = np.unravel_index(int(self.advantage.argmin()), self.advantage.shape)
        place = ", ".join(f"{x:.4g}" for x in self.states[column])
        surely = self._below(-self.truncation)
        within = "" if surely == self.contradicted else f" over {self.steps} steps, {surely} of them whatever follows"
        verdict = (
            f"{self.contradicted} contradict the reward{within}"
            if self.contradicted
            else "all favour the expert"
            if self.agrees
            else f"{int((self.advantage <= 0).sum())} do not favour the expert, none beyond chance"
        )
        return "\n".join(
            [
                f"Rollouts: of {self.advantage.size} comparisons {verdict}; {self.doubtful} within two standard errors",
                f"  smallest difference {self.advantage[row, column]:.4g} ± {self.standard_error[row, column]:.2g} "
                f"at s = {place} against action {self.alternatives[row]}",
                f"  {self.samples:,} rollouts of {self.steps} steps from each of {len(self.states)} states "
                f"of {self.domain.words}",
                f"  cut off after {self.steps} steps: what follows is at most γ^{self.steps}·span(R)/(1 − γ) = "
                f"{self.truncation:.2g}, and far less where the dynamics mix",
            ]
        )


def rollout_check(
    reward: Any,
    simulator: Simulator,
    *,
    discount: float | None = None,
    expert: int | None = None,
    states: int | ArrayLike = 100,
    steps: int = 6,
    samples: int = 6000,
    rng: Any,
) -> RolloutCheck:
    """Estimate D_a(s) by rollouts for an expert of one action, the check in the paper's appendix.

    D_a(s) = Σ γ^{t−1}E[R(s_t | π first) − R(s_t | a first)], the expert acting after the first step. Evidence at the
    start states only, and of a truncated sum: a test that a wrong reward fails, not a proof. All first actions get the
    same random numbers, so that noise they share cancels.

    Args:
        reward: a `Solution`, a `Reward`, or any function of states ``[n, d]``.
        simulator: the dynamics.
        discount: γ; known from a solution.
        expert: the expert's action; known from a solution, otherwise 0.
        states: how many start states, evenly spaced over an interval and drawn uniformly from a larger box; or the
            states themselves, ``[n]`` or ``[n, d]``.
        steps: the length of a rollout.
        samples: rollouts per start state and first action.
        rng: a seed or Generator.

    Example:
        >>> room = certirl.problems.thermostat()
        >>> checked = certirl.trials.rollout_check(lambda s: s[:, 0], room, discount=0.9, states=5, samples=400, rng=0)
        >>> checked.agrees, checked.contradicted
        (True, 0)
    """
    function, discount, expert = _problem(reward, simulator, discount, expert, "rollout_check")
    steps, samples = as_count(steps, "steps"), as_count(samples, "samples", least=2)
    generator, domain = as_generator(rng, "rollout_check", plain=True), as_domain(simulator.domain)
    start = _start_states(states, domain, generator)
    check_rollouts(len(start), samples, steps)
    # In a power of two near their range, so that squares of differences of rewards do not underflow.
    trial = values_of(function, trial_states(domain))
    unit, ends = unit_of(float(np.ptp(trial)), float(np.abs(trial).max())), [np.inf, -np.inf]

    def paid(rows: Array, terminal: bool) -> Array:
        values = (reward_at_terminal if terminal else values_of)(function, rows) / unit
        ends[:] = min(ends[0], float(values.min())), max(ends[1], float(values.max()))
        return values

    first, second = _differences(
        simulator, start, paid, discount=discount, expert=expert, steps=steps, samples=samples, rng=generator
    )
    mean = first / samples
    variance = np.maximum(second / samples - mean**2, 0.0) * samples / (samples - 1)
    low, high = proved_range(function) or (unit * ends[0], unit * ends[1])
    return RolloutCheck(
        states=start,
        advantage=unit * mean,
        standard_error=unit * np.sqrt(variance / samples),
        alternatives=alternatives_of(expert, simulator.n_actions),
        steps=steps,
        samples=samples,
        truncation=discount**steps * (high - low) / (1 - discount),
        domain=domain,
    )


def _problem(
    reward: Any, simulator: Simulator, discount: float | None, expert: int | None, call: str
) -> tuple[RewardLike, float, int]:
    """R as a function, γ and the expert's action: from a solution where not given."""
    if isinstance(simulator, Transitions):
        raise TypeError("rollouts need a simulator, since logged transitions cannot be continued: pass a simulator")
    check_simulator(simulator)
    depends_on_state = callable(expert) or hasattr(expert, "predict")
    if depends_on_state or (expert is None and getattr(reward, "expert", 0) is None):
        raise ValueError(
            f"{call} is for experts of one action, say expert=0; certirl.certify takes one that depends on the state"
        )
    function, discount = unpack(reward, discount)
    expert = getattr(reward, "expert", 0) if expert is None else expert
    check_known(discount=discount)
    assert discount is not None
    return function, check_problem(discount, expert, simulator.n_actions, of_states=False), expert


def _start_states(states: Any, domain: Box, rng: np.random.Generator) -> Array:
    if np.ndim(states) > 0:
        start = as_states(states, domain)
        if len(start) == 0:
            raise ValueError("states must hold at least one start state, got none")
        return start
    count = as_count(states, "states", most=MOST_STATES, meaning="states [n, d], or how many to start from")
    if len(domain) > 1:
        return domain.uniform(count, rng)
    low, high = domain.ends
    return np.linspace(low, high, count) if count > 1 else np.array([(low + high) / 2])


def _differences(
    simulator: Simulator,
    start: Array,
    reward: Callable[[Array, bool], Array],
    *,
    discount: float,
    expert: int,
    steps: int,
    samples: int,
    rng: np.random.Generator,
    paired: bool = True,
    progress: bool | Report | None = False,
) -> Array:
    """Σ X and Σ X² of the differences X of returns, expert less other ``[2, A − 1, n]``."""
    A = simulator.n_actions
    actions = [as_policy(action, A) for action in (expert, *alternatives_of(expert, A))]
    total, rows = np.zeros((2, A - 1, len(start))), len(start) * samples
    blocks = (np.arange(begin, min(begin + ROWS, rows)) % len(start) for begin in range(0, rows, ROWS))
    for which in watched(blocks, rows, len, progress, unit="rollouts"):
        streams = [copy.deepcopy(stream) for stream in (rng.spawn(1) * A if paired else rng.spawn(A))]
        policies = [[action, *actions[:1] * (steps - 1)] for action in actions]
        best, *others = (
            returns(simulator, start[which], each, reward, discount=discount, rng=stream)
            for each, stream in zip(policies, streams, strict=True)
        )
        for row, sums in enumerate(others):
            for power in (1, 2):
                total[power - 1, row] += np.bincount(which, (best - sums) ** power, minlength=len(start))
    return total


@dataclass(frozen=True, eq=False)
class Scenario(Record):
    """A statement about all but a share ε of the states, with probability 1 − δ.

    There D_a(s) ≥ ``margin`` for all actions a but the expert's. This is no certificate: it does not say which states
    are the exceptions, nor how wrong the reward is there.

    Attributes:
        margin: m, the largest that the tests support; not positive if they support nothing.
        share: ε.
        delta: the probability that the statement is false.
        distribution: from which the states are drawn, in words.
        states: where the tests were made ``[N, d]``.
        bounds: their lower confidence bounds on D(s) = min_a D_a(s), each wrong with probability β at most ``[N]``.
        ignored: how many of the lowest bounds may lie below the margin.
        level: β.
        samples: rollouts per state and first action.
        steps: the length of a rollout.
        truncation: γ^steps·span(R)/(1 − γ), subtracted from every bound.
        expert: the expert's action.
        assumptions: what must be true besides, in words.

    Example:
        >>> room = certirl.problems.thermostat()
        >>> asked = {"discount": 0.5, "reward_range": (15, 25), "share": 0.1, "rng": 0}
        >>> statement = certirl.trials.scenario(lambda states: states[:, 0], room, samples=2_000, **asked)
        >>> statement.margin > 0, statement.share, statement.delta, statement.states.shape[1]
        (True, 0.1, 0.05, 1)
    """

    margin: float
    share: float
    delta: float
    distribution: str
    states: Array
    bounds: Array
    ignored: int
    level: float
    samples: int
    steps: int
    truncation: float
    expert: int
    assumptions: tuple[str, ...]
    _derived: ClassVar[tuple[str, ...]] = ("holds",)

    @property
    def holds(self) -> bool:
        """Whether the margin is positive."""
        return self.margin > 0

    def __str__(self) -> str:
        most = f"all but a share {self.share:g} of the states drawn from {self.distribution}"
        if self.holds:
            first = f"With probability {1 - self.delta:g}, at {most}, action {self.expert} is better than every other"
            first += f" by at least {rounded_down(self.margin, 4):.4g}."
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
    """Show that the one action of an expert is better at all but a small share of the states.

    States are drawn uniformly from the box and each is put to a test: rollouts that begin with the expert's action and
    with another, and continue with the expert's, bound D(s) = min_a D_a(s) from below. A wrong bound has probability β
    at most, so if D(s) < m at more than a share ε of the states, a test would say "at least m" with probability
    1 − ε(1 − β) at most, and agreement in all tests would be improbable. Nothing is assumed of bases, columns or
    tails, and nothing is said about which states are exceptions.

    Args:
        reward: a `Solution`, a `Reward`, or any bounded function of states ``[n, d]``.
        simulator: the dynamics.
        share: ε, the share of states that may be exceptions.
        delta: the probability that the statement is false.
        discount: γ; known from a solution.
        expert: the expert's action; known from a solution, otherwise 0.
        states: how many states to test; left out, the fewest that suffice. With more, some bounds may be low.
        samples: rollouts per state and first action.
        rng: a seed or Generator.
        reward_range: bounds on the reward; needed for a plain function.
        paired: the same random numbers for all first actions; left out, where a trial shows that rows keep them.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.

    Example:
        >>> room = certirl.problems.thermostat()
        >>> asked = {"discount": 0.5, "reward_range": (15, 25), "share": 0.1, "rng": 0}
        >>> statement = certirl.trials.scenario(lambda states: states[:, 0], room, samples=2_000, **asked)
        >>> statement.holds
        True
    """
    check_progress(progress)
    function, discount, expert = _problem(reward, simulator, discount, expert, "scenario")
    share, delta = as_probability(share, "share"), as_delta(delta)
    samples = as_count(samples, "samples", least=2, meaning="a whole number of rollouts")
    as_source(simulator).check_without_terminal()
    as_source(simulator).check_noise()
    steps = max(int(np.ceil(np.log(CUT) / np.log(discount))), 1)
    count, ignored = _how_many(share, delta, states, samples, steps)
    domain, generator = as_domain(simulator.domain), as_generator(rng, "scenario")
    if reward_range is None and proved_range(function) is None:
        raise ValueError("a reward that is a plain function needs reward_range=(low, high)")
    ranged = bounded(function, domain, reward_range).normalised()
    span, middle = ranged.high - ranged.low, (ranged.low + ranged.high) / 2
    start = domain.uniform(count, generator)
    trial = Legendre(2) if len(domain) == 1 else product(*[Legendre(2)] * len(domain))
    paired = can_pair(simulator, trial, generator, asked=paired)
    sums = _differences(
        simulator,
        start,
        lambda rows, _: np.asarray(ranged(rows) - middle),  # a large constant would cost digits
        discount=discount,
        expert=expert,
        steps=steps,
        samples=samples,
        rng=generator,
        paired=paired,
        progress=progress,
    )
    L = log_term(SELF_EVENTS * (simulator.n_actions - 1), TEST_LEVEL)
    truncation = discount**steps * span / (1 - discount)
    radius = self_bounded(sums[1], span * (1 - discount**steps) / (1 - discount), L)
    bounds = ranged.unit * (((sums[0] - radius) / samples).min(axis=0) - truncation)
    rows = "; within a row all actions may share random numbers" if paired else ""
    independence = f"the simulator is the dynamics, and its draws at different rows are independent{rows}"
    return Scenario(
        margin=float(np.sort(bounds)[ignored]),
        share=share,
        delta=delta,
        distribution=f"the uniform distribution on {domain.words}",
        states=start,
        bounds=bounds,
        ignored=ignored,
        level=TEST_LEVEL,
        samples=samples,
        steps=steps,
        truncation=ranged.unit * truncation,
        expert=expert,
        assumptions=(independence, *ranged.assumptions),
    )


def _how_many(share: float, delta: float, states: Any, samples: int, steps: int) -> tuple[int, int]:
    """Numbers of states N and ignored bounds k: P(Binomial(N, ε(1 − β)) ≤ k) ≤ δ."""
    from scipy.stats import binom

    chance = share * (1 - TEST_LEVEL)
    least = int(np.ceil(np.log(delta) / np.log1p(-chance)))
    count = least if states is None else as_count(states, "states")
    if count < least:
        raise ValueError(f"a share of {share:g} at delta={delta:g} needs at least {least:,} states, got {states}")
    check_rollouts(count, samples, steps)
    return count, int(np.searchsorted(binom.cdf(np.arange(count), count, chance), delta, side="right")) - 1
