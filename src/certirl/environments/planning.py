"""Planning: the optimal policy for a reward in a simulator, on a fine grid.

It makes experts from an environment's own reward, and it is the independent check of a learned reward: the policy that
is optimal under the learned reward alone is compared with the expert. No basis, matrix or program of the rest of the
library is used. The parts, in order: `plan` and `Plan`; the decision process (dynamics, reward, terminal states); the
same process on a grid (transition matrices, policy iteration, values of a policy); `compare`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.policy import Policy, as_policy, returns, simulate, terminal_states, uniform_policy
from certirl.data.simulator import Simulator, as_generator, ask, check_simulator, periodic_of
from certirl.fit.bellman import check_problem
from certirl.functions.cells import Cells
from certirl.functions.reward import RewardLike, reward_at_terminal, rewards_of, unpack, values_of
from certirl.ground.domain import (
    Array,
    Domain,
    as_domain,
    as_rows,
    describe,
    freeze,
    into_domain,
    like_input,
    uniform_states,
)
from certirl.ground.doors import alone, as_count, as_number, as_reals, lend, shown

StepReward = Callable[[Array, int, Array], Any]

# Grid points along each coordinate: as many as take a second or two.
POINTS = {1: 2001, 2: 201, 3: 61, 4: 21}
MOST_POINTS = 1_000_000  # of the whole grid: two minutes and six gigabytes
# Of a comparison, which must not take longer than the solution that it is about.
COMPARED_POINTS = {1: 2001, 2: 201, 3: 45, 4: 17}
# The same where next states are drawn: planning on few draws would take their noise for the dynamics.
DRAWN_POINTS, DRAWN = {1: 501, 2: 101, 3: 45, 4: 17}, {1: 256, 2: 64, 3: 8, 4: 8}
MOST_ENTRIES = 20_000_000  # of the matrices of a comparison: some seconds and a gigabyte
ACCURATE = 1e-3  # error of a value in a comparison, as a share of the span of V*
FINE = 2  # coordinates up to which values on the grid are those of the dynamics; beyond them rollouts are used
STARTS, LONGEST = 200, 150  # rollouts of a comparison, and their most steps
MOST_MEMORY = 16  # GB, for the matrices of all actions
_ROUNDS = 10_000  # of policy iteration, at most: it ends after ten to thirty
_SWEEPS = 200  # of substitution in a round, at most
_BLOCK = 1 << 16  # states at once
_SMALL = 1 << 12  # the same for V, which may have hundreds of functions


def plan(
    simulator: Simulator,
    reward: RewardLike | None = None,
    *,
    discount: float | None = None,
    step_reward: StepReward | None = None,
    points: int | tuple[int, ...] | None = None,
    draws: int | None = None,
    tolerance: float = 1e-5,
    rng: Any = 0,
) -> Plan:
    """Find the optimal policy: V* = max_a R + γP_aV* on a grid, by policy iteration.

    Between the points V* is multilinear. Terminal states (``simulator.terminal(states)``, if it has that) are
    absorbing: under a reward of states they pay R(s) at every step, so V(s) = R(s)/(1 − γ), under a reward of steps
    nothing more. Their values are not interpolated.

    Args:
        simulator: the dynamics, up to four coordinates; its attribute ``periodic`` names the periodic ones. One with
            ``outcomes(states, action)`` gives next states ``[m, n, d]`` and weights ``[m]`` for expectations; of any
            other one, or if it answers None, ``draws`` next states are drawn with common random numbers.
        reward: R(s), a function of states ``[n, d]``; or a `Solution`.
        discount: γ; known from a solution.
        step_reward: instead, a function of states, an action and next states; if neither is given, the simulator's own
            ``reward``.
        points: along each coordinate, one number for all or one each.
        draws: how many next states stand for the distribution. Left out, the simulator is asked twice about the same
            states: one if it answers alike, else 32, or 8 in three and four coordinates.
        tolerance: of V*, as a share of its span.
        rng: a seed or Generator, for the draws.
    """
    check_simulator(simulator)
    reward, step_reward, discount = _chosen_reward(simulator, reward, step_reward, discount)
    discount = check_problem(discount, 0, simulator.n_actions)
    tolerance = as_number(tolerance, "tolerance", least=0, strict=True)
    generator, domain = as_generator(rng, "plan"), as_domain(simulator.domain)
    grid = Cells(_counts(points, len(domain)), periodic_of(simulator), domain)
    _check_memory(grid, simulator.n_actions, 1 if draws is None else as_count(draws, "draws"))
    number = _number_of_draws(simulator, domain, draws, generator)
    _check_memory(grid, simulator.n_actions, number)
    return _Model.of(_Process(simulator, reward, step_reward, discount, number, generator), grid).plan(tolerance)


def _chosen_reward(
    simulator: Any, reward: Any, step_reward: Any, discount: float | None
) -> tuple[RewardLike | None, StepReward | None, float]:
    if reward is not None and step_reward is not None:
        raise ValueError("give reward, a function of states, or step_reward, a function of steps, not both")
    if reward is not None:
        reward, discount = unpack(reward, discount)
    else:
        step_reward = getattr(simulator, "reward", None) if step_reward is None else step_reward
        if not callable(step_reward):
            raise ValueError(f"{type(simulator).__name__} has no reward of its own: pass one, a function of states")
    if discount is None:
        raise ValueError("a reward alone has no discount: pass discount, say discount=0.9")
    return reward, step_reward, discount


def _counts(points: Any, dimension: int) -> tuple[int, ...]:
    if dimension not in POINTS:
        raise ValueError(f"a grid serves one to four coordinates, these states have {dimension}")
    chosen = np.asarray(POINTS[dimension] if points is None else points)
    if chosen.shape not in {(), (dimension,)} or chosen.dtype.kind != "i" or (chosen < 3).any():
        raise ValueError(f"points must be whole numbers of at least 3, one or {dimension} of them, got {shown(points)}")
    counts = tuple(np.broadcast_to(chosen, dimension).tolist())
    if prod(counts) > MOST_POINTS:
        raise ValueError(f"points must make a grid of at most {MOST_POINTS:,}, got {prod(counts):,}: use fewer of them")
    return counts


def _check_memory(grid: Cells, n_actions: int, draws: int) -> None:
    """Refuse, with a sentence, grids whose matrices would not fit."""
    entries = n_actions * grid.size * draws * 2**grid.dimension
    size = 2 * entries * 12 / 1e9  # eight bytes for a number and four for its column, and all matrices once more
    if size > MOST_MEMORY:
        raise ValueError(
            f"{grid.size:,} points with {draws} next state{'s' * (draws != 1)} of {n_actions} actions take about "
            f"{size:,.0f} GB of memory, more than {MOST_MEMORY}: ask for fewer points or draws"
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """The optimal value function on a grid, and the policy that looks one step ahead with it.

    A plan is a policy: called with states it returns actions, so that it can be passed as ``expert=``.

    Attributes:
        grid: the points where the values are known, which are multilinear between them.
        values: V* at the points ``[N]``; in a terminal state what it pays from then on (0 under a reward of steps).
        discount: γ.
        residual: the largest change one more improvement would make to V at a point; V is exact on the grid up to
            residual/(1 − γ). What interpolation adds is not in it: compare two numbers of points.
        rounds: of policy iteration.
    """

    grid: Cells
    values: Array
    discount: float
    residual: float
    rounds: int
    _process: _Process
    _on_grid: Array | None = None
    thread_safe: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self._process.simulator.n_actions

    def __call__(self, states: ArrayLike) -> NDArray[np.intp]:
        """The best action at each state ``[n]``."""
        return self.policy(states)

    def value(self, states: ArrayLike) -> Any:
        """V*(s): interpolated, exact in terminal states; a float for one state, ``[n]`` for many."""
        values = self._process.continued(self.grid, self.values, self._rows(states))
        return like_input(values, states, self.grid.dimension)

    def action_values(self, states: ArrayLike) -> Array:
        """Q*(s, a) ``[n, A]``, one step ahead through the simulator.

        States beyond the box are moved to its edge. Where next states were drawn Q* is interpolated between the points
        instead: with new draws a policy would not be a function of the state.
        """
        rows = self._rows(states)
        if self._on_grid is not None:
            return np.stack([self.grid.combined(rows, values) for values in self._on_grid], axis=1)
        ahead = np.empty((len(rows), self.n_actions))
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            for action in range(self.n_actions):
                ahead[start : start + _BLOCK, action] = self._ahead(block, action)
        return ahead

    def policy(self, states: ArrayLike) -> NDArray[np.intp]:
        """The best action at each state ``[n]``; the first of those that tie."""
        return self.action_values(states).argmax(axis=1)

    def _rows(self, states: ArrayLike) -> Array:
        return into_domain(as_rows(states, self.grid.dimension), self.grid.domain, self.grid.periodic)

    def _ahead(self, states: Array, action: int) -> Array:
        branches, weights = self._process.outcomes(states, action)
        total = self._process.rewards(states, action, branches, weights)
        for after, weight in zip(branches, weights, strict=True):
            total = total + self.discount * weight * self._process.continued(self.grid, self.values, after)
        return total

    def __str__(self) -> str:
        counts = " × ".join(map(str, self.grid.counts))
        return (
            f"Plan on {counts} points of {describe(self.grid.domain)}, γ = {self.discount:g}: "
            f"{self.rounds} rounds, residual {self.residual:.2g}"
        )


# The decision process: dynamics, reward, terminal states --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Process:
    """The decision process that is planned in: dynamics, reward, terminal states."""

    simulator: Any
    reward: RewardLike | None
    step_reward: StepReward | None
    discount: float
    draws: int
    rng: np.random.Generator

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        return terminal_states(self.simulator, states)

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        """Next states ``[m, n, d]`` and weights ``[m]``."""
        declared = _outcomes(self.simulator, states, action)
        if declared is not None:
            return declared
        domain = as_domain(self.simulator.domain)
        seed = self.rng.bit_generator.seed_seq
        assert isinstance(seed, np.random.SeedSequence)
        branches = []
        for number in range(self.draws):
            stream = np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number)))
            branches.append(ask(self.simulator, states, action, stream, domain))
        return np.stack(branches), np.full(self.draws, 1 / self.draws)

    def expected(self, value: RewardLike, states: Array, action: int) -> Array:
        """(P_aV)(s) ``[n]``."""
        branches, weights = self.outcomes(states, action)
        return np.asarray(weights @ np.stack([values_of(value, after) for after in branches]))

    def rewards(self, states: Array, action: int, branches: Array, weights: Array) -> Array:
        """R(s), or the mean reward of the step ``[n]``."""
        if self.reward is not None:
            return rewards_of(self.reward, states, action)
        assert self.step_reward is not None
        paid = [self._paid(self.step_reward, states, action, after) for after in branches]
        return np.where(self.terminal(states), 0.0, np.tensordot(weights, np.stack(paid), axes=1))

    @staticmethod
    def _paid(step_reward: StepReward, states: Array, action: int, after: Array) -> Array:
        return values_of(lambda rows: step_reward(rows, action, lend(after)), states, name="step_reward")

    def terminal_values(self, states: Array, terminal: NDArray[np.bool_]) -> Array:
        """What terminal states pay from now on ``[n]``; 0 for the others."""
        values = np.zeros(len(states))
        if self.reward is not None and terminal.any():
            values[terminal] = reward_at_terminal(self.reward, states[terminal]) / (1 - self.discount)
        return values

    def continued(self, grid: Cells, values: Array, states: Array) -> Array:
        """V at states ``[n]``: interpolated, or what a terminal state pays."""
        terminal = self.terminal(states)
        return np.where(terminal, self.terminal_values(states, terminal), grid.combined(states, values))


def _outcomes(simulator: Any, states: Array, action: int) -> tuple[Array, Array] | None:
    """A simulator's next states ``[m, n, d]`` and weights ``[m]``; None if it has none."""
    if not hasattr(simulator, "outcomes"):
        return None
    with alone(simulator):
        answer = simulator.outcomes(lend(states), action)
        if answer is None:
            return None
        after, weights = (as_reals(array, "the simulator's outcomes(states, action)") for array in answer)
    fits = after.shape[1:] == states.shape and weights.shape == after.shape[:1] and np.isfinite(after).all()
    if not fits or (weights < 0).any() or not abs(weights.sum() - 1) < 1e-6:
        raise ValueError(
            f"the simulator's outcomes(states, action) must be finite next states [m, {len(states)}, "
            f"{states.shape[1]}] and weights [m] that add up to 1, got {list(after.shape)} and {list(weights.shape)}"
        )
    return after, weights


def _number_of_draws(simulator: Any, domain: Domain, draws: Any, rng: np.random.Generator) -> int:
    if draws is not None:
        return as_count(draws, "draws")
    states = uniform_states(domain, 64, rng)
    if _outcomes(simulator, states, 0) is not None:
        return 1
    for action in range(simulator.n_actions):
        first, second = (ask(simulator, states, action, stream, domain) for stream in rng.spawn(2))
        if not np.array_equal(first, second):
            return 32 if len(domain) <= 2 else 8
    return 1


# The same on a grid: transition matrices, policy iteration, values of a policy ----------------------------------------


@dataclass(frozen=True, eq=False)
class _Model:
    """A decision process on the points of a grid.

    Attributes:
        process: the process.
        grid: the points ``[N, d]``.
        stacked: γP_a of all actions, one below the other, sparse ``[A·N, N]``, without terminal states.
        rewards: of each action, with what terminal next states pay ``[A, N]``.
    """

    process: _Process
    grid: Cells
    stacked: Any
    rewards: Array

    @classmethod
    def of(cls, process: _Process, grid: Cells) -> _Model:
        """Ask the simulator about all points."""
        from scipy.sparse import vstack

        nodes, blocks = grid.points(), []
        terminal = process.terminal(nodes)
        rewards = np.empty((process.simulator.n_actions, grid.size))
        for action in range(process.simulator.n_actions):
            for start in range(0, grid.size, _BLOCK):
                block = slice(start, start + _BLOCK)
                rows, rewards[action, block] = _transitions(process, grid, nodes[block], ~terminal[block], action)
                blocks += rows
            rewards[action, terminal] = process.terminal_values(nodes, terminal)[terminal]
        return cls(process, grid, vstack(blocks, format="csr"), rewards)

    def ahead(self, values: Array) -> Array:
        """γP_aV at the points ``[A, N]``, from V there."""
        return np.asarray(self.stacked @ values).reshape(self.rewards.shape)

    def action_values(self, values: Array) -> Array:
        """Q(s, a) at the points ``[A, N]``, from V there."""
        return self.rewards + self.ahead(values)

    def plan(self, tolerance: float) -> Plan:
        """Solve V* = max_a r_a + γP_aV* up to a share of its span: modified policy iteration."""
        discount, every = self.process.discount, np.arange(self.grid.size)
        values, rounds, settled = self.rewards.max(axis=0), 0, False
        while not settled and rounds < _ROUNDS:
            rounds, ahead = rounds + 1, self.action_values(values)
            best, policy = ahead.max(axis=0), ahead.argmax(axis=0)
            change = float(np.abs(best - values).max())
            settled = change <= tolerance * (1 - discount) * max(float(np.ptp(best)), 1e-300)
            values = best
            if not settled:
                values = _evaluated(
                    self.stacked[policy * every.size + every], self.rewards[policy, every], best, discount
                )
        ahead = self.action_values(values)
        residual = float(np.abs(ahead.max(axis=0) - values).max())
        on_grid = ahead if self.process.draws > 1 else None
        return Plan(self.grid, values, discount, residual, rounds, self.process, on_grid)

    def policy_values(self, probabilities: Array, paid: Array, start: Array, tolerance: float) -> Array:
        """V = Σ_a π_a(r_a + γP_aV) ``[N]``, for probabilities ``[N, A]``, rewards ``[A, N]``."""
        from scipy.sparse import csr_array

        N, A = probabilities.shape
        states, actions = np.nonzero(probabilities)
        starts = np.searchsorted(states, np.arange(N + 1))
        P = csr_array((probabilities[states, actions], actions * N + states, starts), shape=(N, A * N)) @ self.stacked
        reward, values = (probabilities.T * paid).sum(axis=0), start
        for _ in range(_ROUNDS):
            if np.abs(reward + P @ values - values).max() <= tolerance:
                break
            values = _evaluated(P, reward, values, self.process.discount)
        return values


def _transitions(
    process: _Process, grid: Cells, states: Array, alive: NDArray[np.bool_], action: int
) -> tuple[list[Any], Array]:
    """Rows of γP_a for some states, sparse parts of ``[n, N]``, and r_a with what terminal next states pay ``[n]``."""
    from scipy.sparse import csr_array

    branches, weights = process.outcomes(states, action)
    rewards = process.rewards(states, action, branches, weights)
    shares = np.empty(branches.shape[:2])
    for after, weight, kept in zip(branches, process.discount * weights, shares, strict=True):
        over = process.terminal(after)
        kept[:] = weight * (~over & alive)
        rewards = rewards + weight * process.terminal_values(after, over)
    rows, m = [], len(weights)
    for start in range(0, len(states), step := max(_BLOCK // m, 1)):
        after, kept = branches[:, start : start + step].swapaxes(0, 1), shares[:, start : start + step].T
        index, corners = grid.corners(after.reshape(-1, grid.dimension))
        entries = (kept.reshape(-1, 1) * corners).ravel(), index.ravel().astype(np.int32)  # half as wide: half the time
        starts = np.arange(0, index.size + 1, index.shape[1], dtype=np.int32)
        product = csr_array((*entries, starts), shape=(len(index), grid.size))
        if m > 1:  # the sum over branches, many of which share grid points
            each = np.arange(kept.size, dtype=np.int32), np.arange(0, kept.size + 1, m, dtype=np.int32)
            product = csr_array((np.ones(kept.size), *each), shape=(len(kept), kept.size)) @ product
        product.eliminate_zeros()
        rows.append(product)
    return rows, rewards


def _evaluated(P: Any, reward: Array, values: Array, discount: float) -> Array:
    """V with a fifth of the error in V = r + γPV, by substitution and extrapolation."""
    first, last = np.inf, values
    for sweep in range(_SWEEPS):
        change = reward + P @ values - values
        size = float(np.abs(change).max())
        values, first = values + change, first if sweep else size
        if size <= 0.2 * first or size == 0:
            break
        if sweep % 8 == 7:
            # Shrinking steadily by ρ, all changes to come add up to ρ/(1 − ρ) times this one (Aitken).
            ratio = float(change @ last) / float(last @ last)
            if 0 < ratio < 1:
                jumped = values + change * min(ratio / (1 - ratio), discount / (1 - discount))
                if np.abs(reward + P @ jumped - jumped).max() < ratio * size:
                    values = jumped
        last = change
    return values


# A policy compared with the plan on a reward --------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """A policy compared with the optimal policy for a reward R, from the same states.

    Attributes:
        agreed: states at which the optimal policy takes an action that the policy takes, too.
        judged: states at which this was counted.
        regret: by how much less the policy earns under R than the optimal one, on average over the states. If R
            explains the policy it is about 0.
        loss: by how much less the optimal policy earns than the policy under the reward ``V − γP_πV``, of which V is
            the policy's value, on average over the states.
        chance: by how much less actions at random earn under R than the optimal policy: the unit of both shares.
    """

    agreed: int
    judged: int
    regret: float
    loss: float
    chance: float

    @property
    def shares(self) -> tuple[float, float]:
        """Regret and loss, not below 0, as shares of what random actions lose; or infinite."""
        both = (max(self.regret, 0.0), max(self.loss, 0.0))
        regret, loss = (lost / self.chance if self.chance > 0 else float("inf") if lost else 0.0 for lost in both)
        return regret, loss


class _Size(NamedTuple):
    """Points along each coordinate, draws, and matrix entries of a comparison."""

    points: int
    draws: int
    entries: int


def size_of(simulator: Simulator) -> _Size:
    """The size of a `Comparison` in this simulator."""
    domain = as_domain(simulator.domain)
    dimension, rng = len(domain), np.random.default_rng(0)
    declared = _outcomes(simulator, np.array(domain).mean(axis=1)[None], 0)
    drawn = declared is None and _number_of_draws(simulator, domain, None, rng) > 1
    points, draws = (DRAWN_POINTS[dimension], DRAWN[dimension]) if drawn else (COMPARED_POINTS[dimension], 1)
    branches = draws if declared is None else len(declared[1])
    return _Size(points, draws, points**dimension * branches * simulator.n_actions * 2**dimension)


def compare(
    simulator: Simulator,
    reward: RewardLike,
    value: RewardLike,
    policy: Policy,
    states: Array,
    *,
    discount: float,
    judged: NDArray[np.bool_] | None = None,
) -> Comparison:
    """Compare a policy with the plan on R alone, on the same grid or by rollouts.

    Args:
        simulator: the dynamics, as for `plan`.
        reward: R.
        value: V, the policy's value under a reward near R; 0 in terminal states.
        policy: what is compared with the plan.
        states: over which regret and loss are averaged ``[n, d]``.
        discount: γ.
        judged: at which of the states agreement is counted ``[n]``; all of them if left out.
    """
    size, domain = size_of(simulator), as_domain(simulator.domain)
    grid = Cells((size.points,) * len(domain), periodic_of(simulator), domain)
    model = _Model.of(_Process(simulator, reward, None, discount, size.draws, as_generator(0, "plan")), grid)
    best = model.plan(ACCURATE / 100)
    counted = states if judged is None else states[judged]
    agrees = policy.support(counted)[np.arange(len(counted)), best(counted)] if len(counted) else np.zeros(0)
    losses = _losses_on_the_grid if grid.dimension <= FINE else _losses_of_rollouts
    return Comparison(int(agrees.sum()), len(counted), *losses(model, best, value, policy, states))


def _losses_on_the_grid(
    model: _Model, best: Plan, value: RewardLike, policy: Policy, states: Array
) -> tuple[float, float, float]:
    """Regret, loss and what random actions lose, all from the model on the grid."""
    nodes, values = model.grid.points(), best.values
    tolerance = ACCURATE * (1 - best.discount) * float(np.ptp(values))
    expert = policy.probabilities(nodes)
    planned = np.eye(expert.shape[1])[model.action_values(values).argmax(axis=0)]
    at_nodes = np.concatenate([values_of(value, block) for block in np.array_split(nodes, len(nodes) // _SMALL + 1)])
    ahead = model.ahead(at_nodes)
    if getattr(model.process.reward, "of_actions", False):
        assert model.process.reward is not None
        ahead = ahead + np.stack([rewards_of(model.process.reward, nodes, action) for action in range(len(ahead))])
    costs = (expert.T * ahead).sum(axis=0) - ahead

    def mean(probabilities: Array, paid: Array, start: Array) -> float:
        return float(model.grid.combined(states, model.policy_values(probabilities, paid, start, tolerance)).mean())

    most, random = float(model.grid.combined(states, values).mean()), np.full_like(expert, 1 / expert.shape[1])
    loss = mean(planned, costs, np.zeros(model.grid.size))
    return most - mean(expert, model.rewards, values), loss, most - mean(random, model.rewards, values)


def _losses_of_rollouts(
    model: _Model, best: Plan, value: RewardLike, policy: Policy, states: Array
) -> tuple[float, float, float]:
    """Regret, loss and what random actions lose, by rollouts with the same random numbers."""
    process, starts = model.process, states[:: max(len(states) // STARTS, 1)][:STARTS]
    simulator, discount, planned = process.simulator, process.discount, as_policy(best, best.n_actions)
    steps, reward = min(ceil(1.5 / (1 - discount)), LONGEST), process.reward
    assert reward is not None

    def paid(rows: Array, terminal: bool) -> Array:
        return (reward_at_terminal if terminal else values_of)(reward, rows)

    def earned(followed: Policy) -> Array:  # without R(s_0), which all policies have in common
        rng = np.random.default_rng(0)
        return discount * returns(simulator, starts, [followed] * (steps - 1), paid, discount=discount, rng=rng)

    lost = np.zeros(len(starts))
    for number, step in enumerate(simulate(simulator, starts, [planned] * steps, np.random.default_rng(0))):
        ahead = np.stack([process.expected(value, step.states, a) for a in range(best.n_actions)], axis=1)
        better = (policy.probabilities(step.states) * ahead).sum(axis=1) - ahead[np.arange(len(ahead)), step.actions]
        lost[step.rows] += discount ** (number + 1) * better
    most, others = earned(planned), [earned(other) for other in (policy, uniform_policy(best.n_actions))]
    regret, chance = (float((most - other).mean()) for other in others)
    return regret, float(lost.mean()), chance
