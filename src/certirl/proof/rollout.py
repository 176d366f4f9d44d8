"""The paper's own check of a reward: play the dynamics and count, without basis, matrix or program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.simulator import Simulator, as_generator, ask, check_rollouts, check_simulator, terminal_of
from certirl.fit.bellman import check_problem, rivals_of
from certirl.functions.bounded import proved_range, trial_states, unit_of
from certirl.functions.reward import known_expert, paid_at_an_end, unpack, values_of
from certirl.ground.domain import Array, Domain, as_domain, as_states, describe, freeze
from certirl.ground.doors import as_count

# Rollouts played at once: memory stays flat however many are asked for.
ROWS = 65_536
MOST_STATES = 1_000_000  # to start from
# The probability of a contradiction, shared by all comparisons, where the expert is right over these steps.
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class RolloutCheck:
    """``Σ_{t=1}^{steps} γ^{t−1} E[R(s_t) | π first] − E[R(s_t) | a first]``, the expert afterwards: D_a(s), truncated.

    Attributes:
        states: where the rollouts start ``[n, d]``.
        advantage: the estimated differences, rivals in order ``[A − 1, n]``.
        standard_error: of each ``[A − 1, n]``.
        rivals: the actions compared with the expert's.
        steps: how long a rollout is.
        samples: rollouts per start state and first action.
        truncation: γ^steps·span(R)/(1 − γ), which the steps left out cannot exceed; the span is exact for an expansion,
            otherwise that of the rewards seen.
        domain: the box of states.
    """

    states: Array
    advantage: Array
    standard_error: Array
    rivals: tuple[int, ...]
    steps: int
    samples: int
    truncation: float
    domain: Domain

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def agrees(self) -> bool:
        """The expert's action came out ahead of every rival at every start state."""
        return bool((self.advantage > 0).all())

    @property
    def doubtful(self) -> int:
        """How many differences lie within two standard errors of zero."""
        return int((np.abs(self.advantage) <= 2 * self.standard_error).sum())

    @property
    def contradicted(self) -> int:
        """How many differences over these steps are negative beyond chance: level 5 % shared by all (Bonferroni)."""
        return self._below(0.0)

    def _below(self, limit: float) -> int:
        """How many differences lie below a limit beyond chance: one-sided, by the normal law."""
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
                f"at s = {place} against action {self.rivals[row]}",
                f"  {self.samples:,} rollouts of {self.steps} steps from each of {len(self.states)} states "
                f"of {describe(self.domain)}",
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
    """Estimate D_a(s) = Σ γ^{t−1}E[R(s_t | π first) − R(s_t | a first)] by playing (the paper's check, appendix).

    Evidence at the start states only, and of a truncated sum: a test that a wrong reward fails, not a proof. All first
    actions are played with the same random numbers, so that noise they share cancels.

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
    """
    check_simulator(simulator)
    function, discount, expert = unpack(reward, discount, known_expert(reward, expert))
    if discount is None:
        raise ValueError("a reward alone does not know the problem: pass discount, say discount=0.9")
    discount = check_problem(discount, expert, simulator.n_actions, of_states=False)
    steps, samples = as_count(steps, "steps"), as_count(samples, "samples", least=2)
    generator, domain = as_generator(rng, "rollout_check", plain=True), as_domain(simulator.domain)
    start = _start_states(states, domain, generator)
    check_rollouts(len(start), samples, steps)
    rivals = rivals_of(expert, simulator.n_actions)
    play = _Play(simulator, function, domain, discount, expert, steps)
    first, second = np.zeros((2, len(rivals), len(start)))
    for begin in range(0, len(start) * samples, ROWS):
        which = np.arange(begin, min(begin + ROWS, len(start) * samples)) % len(start)
        (stream,) = generator.spawn(1)
        own = play.returns(start[which], expert, copy.deepcopy(stream))
        for row, rival in enumerate(rivals):
            gap = own - play.returns(start[which], rival, copy.deepcopy(stream))
            first[row] += np.bincount(which, gap, minlength=len(start))
            second[row] += np.bincount(which, gap**2, minlength=len(start))
    mean = first / samples
    variance = np.maximum(second / samples - mean**2, 0.0) * samples / (samples - 1)
    span = play.unit * (play.high - play.low) if (proved := proved_range(function)) is None else proved[1] - proved[0]
    return RolloutCheck(
        states=start,
        advantage=play.unit * mean,
        standard_error=play.unit * np.sqrt(variance / samples),
        rivals=rivals,
        steps=steps,
        samples=samples,
        truncation=discount**steps * span / (1 - discount),
        domain=domain,
    )


class _Play:
    """Discounted rewards of rollouts, with the least and the largest reward met so far."""

    def __init__(
        self, simulator: Simulator, reward: Callable[..., Any], domain: Domain, discount: float, expert: int, steps: int
    ) -> None:
        self.simulator, self.reward, self.domain = simulator, reward, domain
        self.discount, self.expert, self.steps = discount, expert, steps
        self.low, self.high = np.inf, -np.inf
        # In a power of two near their range, so that squares of differences of rewards do not underflow.
        seen = values_of(reward, trial_states(domain))
        self.unit = unit_of(float(np.ptp(seen)), float(np.abs(seen).max()))

    def returns(self, states: Array, first: int, rng: np.random.Generator) -> Array:
        """Σ γ^{t−1} R(s_t) over one rollout from each state, the expert acting after the first step: ``[n]``."""
        total, weight, over = np.zeros(len(states)), 1.0, self._ended(states)
        for step in range(self.steps):
            moved = ask(self.simulator, states, first if step == 0 else self.expert, rng, self.domain)
            states = np.where(over[:, None], states, moved)  # terminal states are absorbing
            over = over | self._ended(states)
            total += weight * self._rewards(states, over)
            weight *= self.discount
        return total

    def _ended(self, states: Array) -> NDArray[np.bool_]:
        ended = terminal_of(self.simulator)
        return np.zeros(len(states), dtype=bool) if ended is None else ended(states)

    def _rewards(self, states: Array, over: NDArray[np.bool_]) -> Array:
        values = values_of(self.reward, states) / self.unit
        if over.any():
            values[over] = paid_at_an_end(self.reward, states[over]) / self.unit
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        return values


def _start_states(states: Any, domain: Domain, rng: np.random.Generator) -> Array:
    if np.ndim(states) > 0:
        start = as_states(states, domain)
        if len(start) == 0:
            raise ValueError("states must hold at least one start state, got none")
        return start
    states = as_count(states, "states", most=MOST_STATES, meaning="states [n, d], or how many to start from")
    low, high = np.array(domain).T
    if len(domain) == 1:
        return np.linspace(low, high, int(states)) if states > 1 else np.array([(low + high) / 2])
    return np.asarray(low + (high - low) * rng.random((int(states), len(domain))))
