"""What is best under a reward, when the dynamics can be asked: planning on a fine grid.

It makes experts (from an environment's own reward) and it is the independent check of a learned one: plan on the
learned reward alone, then see what the plan earns. No basis, matrix or program of the rest of the library is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.policy import Policy, as_policy
from certirl.data.simulator import Simulator, as_generator, ask, check_simulator, periodic_of, terminal_of
from certirl.fit.bellman import check_problem
from certirl.functions.boxes import mesh
from certirl.functions.reward import RewardLike, paid_at_an_end, unpack, values_of
from certirl.ground.domain import Array, Domain, as_domain, as_rows, describe, freeze, like_input
from certirl.ground.doors import alone, as_count, as_number, as_reals, lend, shown

StepReward = Callable[[Array, int, Array], Any]

# Grid points along each coordinate: as many as take a second or two.
POINTS = {1: 2001, 2: 201, 3: 61, 4: 21}
MOST_POINTS = 1_000_000  # of the whole grid: two minutes and six gigabytes
# Of a comparison, which must not take longer than the solution that it is about.
COMPARED_POINTS = {1: 2001, 2: 201, 3: 45, 4: 17}
# The same where next states are drawn: a plan on few draws would take their chance for the dynamics.
DRAWN_POINTS, DRAWN = {1: 501, 2: 101, 3: 45, 4: 17}, {1: 256, 2: 64, 3: 8, 4: 8}
MOST_ENTRIES = 20_000_000  # of the matrices of a comparison: some seconds and a gigabyte
ACCURATE = 1e-3  # error of a value in a comparison, as a share of the span of V*
FINE = 2  # coordinates up to which values on the grid are those of the dynamics; beyond them policies are played
PLAYS, LONGEST = 200, 150  # states that are played from, and steps
_ROUNDS = 10_000  # of policy iteration, at most: it ends after ten to thirty
MOST_MEMORY = 16  # GB, for the matrices of all actions
_SWEEPS = 200  # of substitution in a round, at most
_BLOCK = 1 << 16  # states looked at at once
_SMALL = 1 << 12  # the same for V, which may have hundreds of functions


@dataclass(frozen=True)
class Grid:
    """Points on a box and multilinear interpolation between them.

    Attributes:
        domain: one (low, high) per coordinate.
        counts: points along each coordinate.
        periodic: coordinates whose ends are the same place.
    """

    domain: Domain
    counts: tuple[int, ...]
    periodic: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The number of points."""
        return prod(self.counts)

    def points(self) -> Array:
        """All points, the last coordinate varying fastest: ``[N, d]``."""
        axes = [
            np.linspace(low, high, count, endpoint=axis not in self.periodic)
            for axis, ((low, high), count) in enumerate(zip(self.domain, self.counts, strict=True))
        ]
        return mesh(axes)

    def place(self, states: ArrayLike) -> Array:
        """States put into the box ``[n, d]``: periodic coordinates go around, others stop at the edge."""
        rows = np.array(as_rows(states, len(self.domain)))
        for axis, (low, high) in enumerate(self.domain):
            turned = low + (rows[:, axis] - low) % (high - low)
            rows[:, axis] = turned if axis in self.periodic else np.clip(rows[:, axis], low, high)
        return rows

    def weights(self, states: ArrayLike) -> tuple[NDArray[np.intp], Array]:
        """The corners of the cell of each state ``[n, 2ᵈ]`` and their weights ``[n, 2ᵈ]``, which add up to 1."""
        rows = self.place(states)
        index, weight = np.zeros((len(rows), 1), dtype=np.intp), np.ones((len(rows), 1))
        for axis, ((low, high), count) in enumerate(zip(self.domain, self.counts, strict=True)):
            cells = count if axis in self.periodic else count - 1
            place = (rows[:, axis] - low) / (high - low) * cells
            left = np.clip(place.astype(np.intp), 0, cells - 1)
            share = np.clip(place - left, 0.0, 1.0)
            ends = np.stack([left, (left + 1) % count], axis=1)
            parts = np.stack([1 - share, share], axis=1)
            index = (index[:, :, None] * count + ends[:, None, :]).reshape(len(rows), -1)
            weight = (weight[:, :, None] * parts[:, None, :]).reshape(len(rows), -1)
        return index, weight

    def interpolate(self, values: Array, states: ArrayLike) -> Array:
        """The function with these values ``[N]`` at the points, at other states: ``[n]``."""
        index, weight = self.weights(states)
        return np.einsum("nc,nc->n", values[index], weight)


@dataclass(frozen=True, eq=False)
class Plan:
    """The best value function on a grid, and the policy that looks one step ahead with it.

    A plan is a policy: called with states it returns actions, so that it can be passed as ``expert=``.

    Attributes:
        grid: where the values are known.
        values: V* at the points ``[N]``; in a terminal state what it pays for ever (0 under a reward of steps).
        discount: γ.
        residual: the largest change one more improvement would make to V at a point; V is exact on the grid up to
            residual/(1 − γ). What interpolation adds is not in it: compare two numbers of points.
        rounds: of policy iteration.
    """

    grid: Grid
    values: Array
    discount: float
    residual: float
    rounds: int
    _world: _World
    _on_grid: Array | None = None
    thread_safe: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self._world.simulator.n_actions

    def __call__(self, states: ArrayLike) -> NDArray[np.intp]:
        """The best action at each state ``[n]``."""
        return self.policy(states)

    def value(self, states: ArrayLike) -> Any:
        """V*(s): interpolated, exact in terminal states; a float for one state, ``[n]`` for many."""
        rows = self.grid.place(states)
        return like_input(self._world.continued(self.grid, self.values, rows), states, len(self.grid.domain))

    def action_values(self, states: ArrayLike) -> Array:
        """Q*(s, a), one step ahead through the simulator: ``[n, A]``. States beyond the box are put on its edge.

        Where next states were drawn it is interpolated between the points instead: drawn again, a policy would not be a
        function of the state.
        """
        rows = self.grid.place(states)
        if self._on_grid is not None:
            return np.stack([self.grid.interpolate(values, rows) for values in self._on_grid], axis=1)
        found = np.empty((len(rows), self.n_actions))
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            for action in range(self.n_actions):
                found[start : start + _BLOCK, action] = self._ahead(part, action)
        return found

    def policy(self, states: ArrayLike) -> NDArray[np.intp]:
        """The best action at each state ``[n]``; the first of those that tie."""
        return self.action_values(states).argmax(axis=1)

    def _ahead(self, states: Array, action: int) -> Array:
        after, weights = self._world.outcomes(states, action)
        total = self._world.rewards(states, action, after, weights)
        for one, weight in zip(after, weights, strict=True):
            total = total + self.discount * weight * self._world.continued(self.grid, self.values, one)
        return total

    def __str__(self) -> str:
        counts = " × ".join(map(str, self.grid.counts))
        return (
            f"Plan on {counts} points of {describe(self.grid.domain)}, γ = {self.discount:g}: "
            f"{self.rounds} rounds, residual {self.residual:.2g}"
        )


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
    """Find V* = max_a R + γP_aV* on a grid by policy iteration, with multilinear interpolation between the points.

    Terminal states (``simulator.terminal(states)``, if it has that) are absorbing: under a reward of states they pay
    R(s) for ever, so V(s) = R(s)/(1 − γ), under a reward of steps nothing any more. Their values are not interpolated.

    Args:
        simulator: the dynamics, up to four coordinates. Coordinates in its attribute ``periodic`` go around. One with
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
    own, of_steps, discount = _chosen_reward(simulator, reward, step_reward, discount)
    discount = check_problem(discount, 0, simulator.n_actions)
    tolerance = as_number(tolerance, "tolerance", least=0, strict=True)
    return _solved(simulator, own, of_steps, discount, points, draws, tolerance, rng).plan


@dataclass(frozen=True)
class Comparison:
    """A policy beside the plan on a reward R alone, from the same states in the same dynamics.

    Attributes:
        agreed: states at which the plan takes an action that the policy takes, too.
        judged: states that this was counted at.
        regret: by how much less the policy earns under R than the plan, on average over the states. If R explains the
            policy it is about 0.
        loss: by how much less the plan earns than the policy under the reward ``V − γP_πV``, of which V is the policy's
            value, on average over the states.
        chance: by how much less actions at random earn under R than the plan: the unit of both shares.
    """

    agreed: int
    judged: int
    regret: float
    loss: float
    chance: float

    @property
    def shares(self) -> tuple[float, float]:
        """Regret and loss, neither below 0, as shares of what acting at random loses; infinite if that is nothing."""
        both = (max(self.regret, 0.0), max(self.loss, 0.0))
        regret, loss = (own / self.chance if self.chance > 0 else float("inf") if own else 0.0 for own in both)
        return regret, loss


class _Size(NamedTuple):
    """Points along each coordinate and draws of a comparison, and how many entries its matrices have."""

    points: int
    draws: int
    entries: int


def size_of(simulator: Simulator) -> _Size:
    """What a `Comparison` in this simulator takes."""
    domain = as_domain(simulator.domain)
    dimension, rng = len(domain), np.random.default_rng(0)
    known = _outcomes(simulator, np.array(domain).mean(axis=1)[None], 0)
    still = known is not None or _number_of_draws(simulator, domain, None, rng) == 1
    points, draws = (COMPARED_POINTS[dimension], 1) if still else (DRAWN_POINTS[dimension], DRAWN[dimension])
    branches = draws if known is None else len(known[1])
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
    """Plan on R alone, and value the plan, a policy and chance: on the same grid, or played from the same states.

    Args:
        simulator: the dynamics, as for `plan`.
        reward: R.
        value: V, the policy's value under a reward near R; 0 in terminal states.
        policy: what is compared with the plan.
        states: over which regret and loss are averaged ``[n, d]``.
        discount: γ.
        judged: at which of the states agreement is counted ``[n]``; all of them if left out.
    """
    size = size_of(simulator)
    found = _solved(simulator, reward, None, discount, size.points, size.draws, ACCURATE / 100, 0)
    counted = states if judged is None else states[judged]
    agrees = policy.support(counted)[np.arange(len(counted)), found.plan(counted)] if len(counted) else np.zeros(0)
    values = _on_the_grid if len(found.plan.grid.domain) <= FINE else _played
    return Comparison(int(agrees.sum()), len(counted), *values(found, value, policy, states))


def _on_the_grid(found: _Solved, value: RewardLike, policy: Policy, states: Array) -> tuple[float, float, float]:
    """Regret, loss and what chance loses, all from the model on the grid."""
    grid, matrices, rewards, best = found.plan.grid, found.matrices, found.rewards, found.plan.values
    nodes, discount = grid.points(), found.plan.discount
    tolerance = ACCURATE * (1 - discount) * float(np.ptp(best))
    expert = policy.probabilities(nodes)
    planned = np.eye(expert.shape[1])[_improved(matrices, rewards, best).argmax(axis=0)]
    own = np.concatenate([values_of(value, part) for part in np.array_split(nodes, len(nodes) // _SMALL + 1)])
    ahead = np.stack([P @ own for P in matrices])  # γP_aV at the points
    costs = (expert.T * ahead).sum(axis=0) - ahead

    def mean(chances: Array, paid: Array, start: Array) -> float:
        values = _policy_value(matrices, chances, paid, start, discount, tolerance)
        return float(grid.interpolate(values, states).mean())

    most, none, even = float(grid.interpolate(best, states).mean()), np.zeros(grid.size), np.ones_like(expert)
    chance = most - mean(even / even.shape[1], rewards, best)
    return most - mean(expert, rewards, best), mean(planned, costs, none), chance


def _played(found: _Solved, value: RewardLike, policy: Policy, states: Array) -> tuple[float, float, float]:
    """The same by playing from some of the states, with the same random numbers, for as long as γ looks ahead."""
    plan, starts = found.plan, states[:: max(len(states) // PLAYS, 1)][:PLAYS]
    even = Policy(plan.n_actions, lambda rows: np.full((len(rows), plan.n_actions), 1 / plan.n_actions))
    world, planned = plan._world, as_policy(plan, plan.n_actions)
    earned, lost = _earned(world, planned, starts, policy, value)
    least, _ = _earned(world, even, starts, None, None)
    own, _ = _earned(world, policy, starts, None, None)
    return float((earned - own).mean()), float(lost.mean()), float((earned - least).mean())


def _earned(
    world: _World, policy: Policy, states: Array, expert: Policy | None, value: RewardLike | None
) -> tuple[Array, Array]:
    """What a policy earns under R from each state, and what it loses against an expert by V: two ``[n]``."""
    earned, lost, weight = np.zeros(len(states)), np.zeros(len(states)), 1.0
    rng, domain, on, rows = np.random.default_rng(0), as_domain(world.simulator.domain), np.arange(len(states)), states
    assert world.reward is not None
    for _ in range(min(ceil(1.5 / (1 - world.discount)), LONGEST)):
        uniform, seed = rng.random((len(states), 1))[on], int(rng.integers(2**31))
        taken = (uniform > policy.probabilities(rows).cumsum(axis=1)[:, :-1]).sum(axis=1)
        actions = range(policy.n_actions) if expert is not None else np.unique(taken).tolist()
        moved = {a: ask(world.simulator, rows, a, np.random.default_rng(seed), domain) for a in actions}
        earned[on] += weight * values_of(world.reward, rows)
        if expert is not None and value is not None:
            ahead = np.stack([values_of(value, moved[a]) for a in actions], axis=1)
            better = (expert.probabilities(rows) * ahead).sum(axis=1) - ahead[np.arange(len(rows)), taken]
            lost[on] += weight * world.discount * better
        rows = np.stack([moved[a][row] for row, a in enumerate(taken.tolist())])
        weight, over = weight * world.discount, world.ended(rows)
        earned[on[over]] += weight * world.end_values(rows[over])
        rows, on = rows[~over], on[~over]
        if not len(on):
            break
    return earned, lost


@dataclass(frozen=True, eq=False)
class _Solved:
    """A plan and the model on the grid that it comes from."""

    plan: Plan
    matrices: list[Any]
    rewards: Array


def _solved(
    simulator: Simulator,
    reward: RewardLike | None,
    step_reward: StepReward | None,
    discount: float,
    points: Any,
    draws: Any,
    tolerance: float,
    rng: Any,
) -> _Solved:
    domain = as_domain(simulator.domain)
    grid = Grid(domain, _counts(points, len(domain)), periodic_of(simulator))
    generator = as_generator(rng, "plan")
    _check_memory(grid, simulator.n_actions, 1 if draws is None else as_count(draws, "draws"))
    number = _number_of_draws(simulator, domain, draws, generator)
    _check_memory(grid, simulator.n_actions, number)
    world = _World(simulator, reward, step_reward, discount, number, generator)
    matrices, rewards = _model(world, grid)
    values, rounds = _policy_iteration(matrices, rewards, tolerance * (1 - discount), discount)
    ahead = _improved(matrices, rewards, values)
    residual = float(np.abs(ahead.max(axis=0) - values).max())
    plan = Plan(grid, values, discount, residual, rounds, world, ahead if number > 1 else None)
    return _Solved(plan, matrices, rewards)


def _policy_value(
    matrices: list[Any], chances: Array, paid: Array, start: Array, discount: float, tolerance: float
) -> Array:
    """V with V = Σ_a π_a(r_a + γP_aV) at the points ``[N]``, for probabilities ``[N, A]`` and payments ``[A, N]``."""
    from scipy.sparse import diags_array

    P = sum(diags_array(own) @ matrix for own, matrix in zip(chances.T, matrices, strict=True)).tocsr()
    reward, values = (chances.T * paid).sum(axis=0), start
    for _ in range(_ROUNDS):
        if np.abs(reward + P @ values - values).max() <= tolerance:
            break
        values = _evaluated(P, reward, values, discount)
    return values


@dataclass(frozen=True, eq=False)
class _World:
    """The MDP that is planned in: dynamics, reward, terminal states."""

    simulator: Any
    reward: RewardLike | None
    step_reward: StepReward | None
    discount: float
    draws: int
    rng: np.random.Generator

    def ended(self, states: Array) -> NDArray[np.bool_]:
        ended = terminal_of(self.simulator)
        return np.zeros(len(states), dtype=bool) if ended is None else ended(states)

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        known = _outcomes(self.simulator, states, action)
        if known is not None:
            return known
        domain = as_domain(self.simulator.domain)
        seeds = self.rng.bit_generator.seed_seq.entropy, self.rng.bit_generator.seed_seq.spawn_key  # type: ignore[attr-defined]
        found = []
        for number in range(self.draws):
            stream = np.random.default_rng(np.random.SeedSequence(seeds[0], spawn_key=(*seeds[1], number)))
            found.append(ask(self.simulator, states, action, stream, domain))
        return np.stack(found), np.full(self.draws, 1 / self.draws)

    def rewards(self, states: Array, action: int, after: Array, weights: Array) -> Array:
        if self.reward is not None:
            return values_of(self.reward, states)
        assert self.step_reward is not None
        paid = [self._paid(self.step_reward, states, action, one) for one in after]
        return np.where(self.ended(states), 0.0, np.tensordot(weights, np.stack(paid), axes=1))

    @staticmethod
    def _paid(step_reward: StepReward, states: Array, action: int, after: Array) -> Array:
        return values_of(lambda own: step_reward(own, action, lend(after)), states, name="step_reward")

    def end_values(self, states: Array) -> Array:
        """What terminal states pay from now on."""
        if self.reward is None or not len(states):
            return np.zeros(len(states))
        return paid_at_an_end(self.reward, states) / (1 - self.discount)

    def continued(self, grid: Grid, values: Array, states: Array) -> Array:
        """V at states: interpolated, or what a terminal state pays."""
        ended, found = self.ended(states), grid.interpolate(values, states)
        found[ended] = self.end_values(states[ended])
        return found


def _chosen_reward(
    simulator: Any, reward: Any, step_reward: Any, discount: float | None
) -> tuple[RewardLike | None, StepReward | None, float]:
    if reward is not None and step_reward is not None:
        raise ValueError("give reward, a function of states, or step_reward, a function of steps, not both")
    if reward is not None:
        reward, discount, _ = unpack(reward, discount, None)
    else:
        step_reward = getattr(simulator, "reward", None) if step_reward is None else step_reward
        if not callable(step_reward):
            raise ValueError(f"{type(simulator).__name__} has no reward of its own: pass one, a function of states")
    if discount is None:
        raise ValueError("a reward alone does not know the problem: pass discount, say discount=0.9")
    return reward, step_reward, discount


def _number_of_draws(simulator: Any, domain: Domain, draws: Any, rng: np.random.Generator) -> int:
    if draws is not None:
        return as_count(draws, "draws")
    low, high = np.array(domain).T
    states = low + (high - low) * rng.random((64, len(domain)))
    if _outcomes(simulator, states, 0) is not None:
        return 1
    for action in range(simulator.n_actions):
        one, other = (ask(simulator, states, action, stream, domain) for stream in rng.spawn(2))
        if not np.array_equal(one, other):
            return 32 if len(domain) <= 2 else 8
    return 1


def _outcomes(simulator: Any, states: Array, action: int) -> tuple[Array, Array] | None:
    """Next states ``[m, n, d]`` and weights ``[m]`` that a simulator knows; None if it can only be asked for draws."""
    if not hasattr(simulator, "outcomes"):
        return None
    with alone(simulator):
        found = simulator.outcomes(lend(states), action)
        if found is None:
            return None
        after, weights = (as_reals(part, "the simulator's outcomes(states, action)") for part in found)
    right = after.shape[1:] == states.shape and weights.shape == after.shape[:1] and np.isfinite(after).all()
    if not right or (weights < 0).any() or not abs(weights.sum() - 1) < 1e-6:
        raise ValueError(
            f"the simulator's outcomes(states, action) must be finite next states [m, {len(states)}, "
            f"{states.shape[1]}] and weights [m] that add up to 1, got {list(after.shape)} and {list(weights.shape)}"
        )
    return after, weights


def _check_memory(grid: Grid, n_actions: int, draws: int) -> None:
    """Refuse, with a sentence, grids whose matrices would not fit."""
    entries = n_actions * grid.size * draws * 2 ** len(grid.counts)
    size = 2 * entries * 12 / 1e9  # eight bytes for a number and four for its column, and all matrices once more
    if size > MOST_MEMORY:
        raise ValueError(
            f"{grid.size:,} points with {draws} next state{'s' * (draws != 1)} of {n_actions} actions take about "
            f"{size:,.0f} GB of memory, more than {MOST_MEMORY}: ask for fewer points or draws"
        )


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


def _model(world: _World, grid: Grid) -> tuple[list[Any], Array]:
    """For each action γP_a on the points ``[N, N]``, without terminal states, and what is paid besides ``[A, N]``."""
    from scipy.sparse import csr_array, vstack

    nodes, matrices = grid.points(), []
    ended = world.ended(nodes)
    rewards = np.empty((world.simulator.n_actions, grid.size))
    for action in range(world.simulator.n_actions):
        blocks = []
        for start in range(0, grid.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            after, weights = world.outcomes(nodes[part], action)
            rewards[action, part] = world.rewards(nodes[part], action, after, weights)
            columns, shares = [], []
            for one, weight in zip(after, world.discount * weights, strict=True):
                over = world.ended(one)
                live = ~over & ~ended[part]
                index, share = grid.weights(one)
                columns.append(index)
                shares.append(weight * share * live[:, None])
                rewards[action, part] += weight * np.where(over, _at(world.end_values, one, over), 0.0)
            index, share = np.concatenate(columns, axis=1), np.concatenate(shares, axis=1)
            ends = np.arange(0, index.size + 1, index.shape[1])
            # Half as wide indices, and no zeros, take half the time.
            small = (share.ravel(), index.ravel().astype(np.int32), ends.astype(np.int32))
            block = csr_array(small, shape=(len(index), grid.size))
            block.eliminate_zeros()
            blocks.append(block)
        matrices.append(vstack(blocks, format="csr"))
        rewards[action, ended] = world.end_values(nodes[ended])
    return matrices, rewards


def _at(function: Callable[[Array], Array], states: Array, chosen: NDArray[np.bool_]) -> Array:
    values = np.zeros(len(states))
    values[chosen] = function(states[chosen])
    return values


def _improved(matrices: list[Any], rewards: Array, values: Array) -> Array:
    """Q(s, a) at the points ``[A, N]``."""
    return np.stack([own + P @ values for P, own in zip(matrices, rewards, strict=True)])


def _policy_iteration(matrices: list[Any], rewards: Array, tolerance: float, discount: float) -> tuple[Array, int]:
    """V* with V* = max_a r_a + γP_aV* at the points ``[N]``, and the rounds it took: modified policy iteration."""
    from scipy.sparse import vstack

    stacked, own = vstack(matrices, format="csr"), np.arange(rewards.shape[1])
    values = rewards.max(axis=0)
    for turn in range(1, _ROUNDS + 1):
        ahead = _improved(matrices, rewards, values)
        best = ahead.max(axis=0)
        if np.abs(best - values).max() <= tolerance * max(float(np.ptp(best)), 1e-300):
            return best, turn
        policy = ahead.argmax(axis=0)
        values = _evaluated(stacked[policy * own.size + own], rewards[policy, own], best, discount)
    return values, _ROUNDS


def _evaluated(P: Any, reward: Array, values: Array, discount: float) -> Array:
    """Closer to V = r + γPV, by a factor of five: substitution, with a jump along the error where it is steady."""
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
