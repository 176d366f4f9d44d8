"""The optimal policy of a decision process: dynamics, a reward and terminal states.

Up to four coordinates V* is computed on a fine grid, and no basis, matrix or program of the rest of the library is
used; beyond that V is fitted to rollouts. The parts, in order: what is found; the decision process; the same process on
a grid (transition matrices, policy iteration, values of a policy); policy iteration with a fitted value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.policy import Policy, as_policy, simulate, terminal_states, uniform_policy
from certirl.data.simulator import ask, periodic_of
from certirl.fit.effects import error_in_words, value_basis
from certirl.fit.next_states import NextStateModel
from certirl.fit.regression import solve_least_squares
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.functions.reward import RewardLike, reward_at_terminal, values_of
from certirl.ground.domain import Array, Box, as_domain, as_rows, like_input, number_of
from certirl.ground.doors import as_count, as_reals, call, lend, shown
from certirl.ground.records import Record

StepReward = Callable[[Array, int, Array], Any]

# Grid points along each coordinate: as many as take a second or two.
POINTS = {1: 2001, 2: 401, 3: 61, 4: 21}
STARTS = 200  # rollouts by which policies are compared
POOL = 20_000  # states that a fitted V takes states from
ROWS_PER_FUNCTION = 20  # in the fit of a round
DECISIVE, FAINTEST = 2.0, 0.1  # weight of differences between actions, and their least size as a share of the mean
BESIDE = 0.3  # the deviation of states beside those visited, in units of their own
LONGEST_ESTIMATE = 300  # steps of a rollout by which plans are compared
_ROUNDS = 10_000  # of policy iteration, at most: it ends after ten to thirty
_SWEEPS = 200  # of substitution in a round, at most
_BLOCK = 1 << 16  # states at once
SMALL = 1 << 12  # the same for V, which may have hundreds of functions


def spread(states: Array, most: int) -> Array:
    """At most this many of the states, evenly spread over their order."""
    return states[:: max(-(-len(states) // most), 1)]


@dataclass(frozen=True)
class Returns(Record):
    """The discounted return of a policy, estimated by rollouts.

    Attributes:
        mean: over the start states.
        error: the standard error of the mean; nan of one start state.
        starts: how many start states.
        steps: of each rollout, at most.
        extrapolated: the share of the rollouts that end because the dynamics of the chosen action are extrapolated.

    Example:
        >>> room = certirl.problems.comfort()
        >>> asked = {"discount": 0.9, "points": 101, "starts": [[-0.8], [0.8]]}
        >>> returns = certirl.planning.plan(room.dynamics, room.reward, **asked).returns
        >>> returns.starts, returns.steps, returns.mean < 0
        (2, 31, True)
    """

    mean: float
    error: float
    starts: int
    steps: int
    extrapolated: float = 0.0

    def __str__(self) -> str:
        error = f" ± {self.error:.2g}" if self.starts > 1 else ""  # one rollout says nothing of its error
        states, steps = number_of(self.starts, "state"), number_of(self.steps, "step")
        text = f"{self.mean:.4g}{error} from {states} in {steps}"
        return f"{text}; {self.extrapolated:.0%} of them leave the data" if self.extrapolated else text


@dataclass(frozen=True, eq=False)
class Plan(Record):
    """A value function, and the policy that looks one step ahead with it.

    A plan is a policy: called with states it returns actions, so that it can be passed as ``expert=``.

    Attributes:
        basis: the functions of V: a grid, between whose points V is multilinear, polynomials or random sigmoids.
        values: the coefficients of V ``[k]``. On a grid V* at the points; in a terminal state what it pays from then on
            (0 under a reward of steps).
        discount: γ.
        residual: on a grid the largest change one more improvement would make to V at a point; V is exact on the grid
            up to residual/(1 − γ). What interpolation adds is not in it: compare two numbers of points. Of a fitted V
            the root mean square error of the fit, as a share of the standard deviation of the returns.
        rounds: of policy iteration.
        converged: on a grid the residual is within the tolerance; of a fitted V the last round's policy is not worse
            than the best one, by more than two standard errors.
        returns: the estimated return of the policy, from states that had no part in choosing it if there are enough;
            None on a grid without start states.
        span: the least and largest V that is possible; a fitted V is kept between them.

    Example:
        >>> room = certirl.problems.comfort()
        >>> plan = certirl.planning.plan(room.dynamics, room.reward, discount=0.9, points=101)
        >>> plan([-0.8, 0.1, 0.8]).tolist(), plan.converged, plan.values.shape
        ([0, 1, 2], True, (101,))
        >>> bool(plan.value(0.1) > plan.value(0.9))
        True
    """

    basis: Cells | Basis
    values: Array
    discount: float
    residual: float
    rounds: int
    converged: bool
    _process: Process
    returns: Returns | None = None
    span: tuple[float, float] = (-np.inf, np.inf)
    _action_values: Array | None = None
    thread_safe: ClassVar[bool] = True

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self._process.simulator.n_actions

    def __call__(self, states: ArrayLike) -> NDArray[np.intp]:
        """The best action at each state ``[n]``."""
        return self.policy(states)

    def value(self, states: ArrayLike) -> Any:
        """V(s), exact in terminal states; a float for one state, ``[n]`` for many.

        Example:
            >>> bool(plan.value(0.1) > plan.value(0.9)), plan.value([0.1, 0.9]).shape
            (True, (2,))
        """
        return like_input(self._values(self._rows(states)), states, self.basis.dimension)

    def action_values(self, states: ArrayLike) -> Array:
        """Q(s, a) ``[n, A]``, one step ahead through the dynamics.

        States beyond the box are moved to its edge. Where next states were drawn Q is a function of the state in the
        basis instead: with new draws a policy would not be a function of the state. So it is with a fitted V and noise.

        Example:
            >>> plan.action_values([-0.8, 0.1, 0.8]).argmax(axis=1).tolist()
            [0, 1, 2]
        """
        rows = self._rows(states)
        ahead = self._all_ahead(rows)
        for action in range(self.n_actions):
            far = self._process.extrapolated(rows, np.full(len(rows), action))
            ahead[far, action] = self._process.lowest
        return ahead

    def policy(self, states: ArrayLike) -> NDArray[np.intp]:
        """The best action at each state ``[n]``; the first of those that tie.

        Example:
            >>> plan.policy([-0.8, 0.1, 0.8]).tolist()
            [0, 1, 2]
        """
        rows = self._rows(states)
        ahead, unchecked = self._all_ahead(rows), np.arange(len(rows))
        for _ in range(self.n_actions):  # only the best action is looked at: the others need not be lowered
            best = ahead[unchecked].argmax(axis=1)
            far = self._process.extrapolated(rows[unchecked], best)
            ahead[unchecked[far], best[far]] = self._process.lowest
            unchecked = unchecked[far]
        return ahead.argmax(axis=1)

    def _all_ahead(self, rows: Array) -> Array:
        size = _BLOCK if self._action_values is None else SMALL
        return np.concatenate([self._ahead(rows[start : start + size]) for start in range(0, max(len(rows), 1), size)])

    def _rows(self, states: ArrayLike) -> Array:
        simulator = self._process.simulator
        return as_domain(simulator.domain).moved_into(as_rows(states, self.basis.dimension), periodic_of(simulator))

    def _values(self, rows: Array) -> Array:
        terminal = self._process.terminal(rows)
        values = np.clip(self.basis.combined(rows, self.values), *self.span)
        return np.where(terminal, self._process.terminal_values(rows, terminal), values)

    def _ahead(self, states: Array) -> Array:
        """Q(s, a) ``[n, A]``, also where an action is extrapolated."""
        if self._action_values is not None:
            functions = getattr(self.basis, "matrix", self.basis.values)
            return np.asarray(functions(states) @ self._action_values.T)
        ahead = []
        for action in range(self.n_actions):
            branches, weights = self._process.outcomes(states, action)
            total = self._process.rewards(states, action, branches, weights)
            for after, weight in zip(branches, weights, strict=True):
                total = total + self.discount * weight * self._values(after)
            ahead.append(total)
        return np.stack(ahead, axis=1)

    def __str__(self) -> str:
        domain = as_domain(self._process.simulator.domain).words
        where, word = f"with {self.basis.size} functions", "error of the fit"
        if isinstance(self.basis, Cells):
            where, word = f"on {' × '.join(map(str, self.basis.counts))} points", "residual"
        lines = [
            f"Plan {where} of {domain}, γ = {self.discount:g}: {number_of(self.rounds, 'round')}, "
            f"{word} {self.residual:.2g}{'' if self.converged else ', not converged'}"
        ]
        if isinstance(self._process.simulator, NextStateModel):
            model = self._process.simulator
            lines.append(
                f"  model  of the next state, {model.columns.size} columns: error {error_in_words(model.error)}"
            )
        return "\n".join([*lines, *([] if self.returns is None else [f"  return {self.returns}"])])


# The decision process: dynamics, reward, terminal states --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Process:
    """The decision process that is planned in: dynamics, reward, terminal states."""

    simulator: Any
    reward: RewardLike | None
    step_reward: StepReward | None
    discount: float
    draws: int
    rng: np.random.Generator
    lowest: float = -np.inf

    def limited(self, states: Array) -> Process:
        """With the lowest value of an action where it is extrapolated: the least reward at some states, for ever."""
        if not hasattr(self.simulator, "extrapolated"):
            return self
        least = min(self.rewards(states, a, *self.outcomes(states, a)).min() for a in range(self.simulator.n_actions))
        return replace(self, lowest=float(least) / (1 - self.discount))

    def extrapolated(self, states: Array, actions: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Where the dynamics of the action are extrapolated ``[n]``: nowhere unless the simulator says so."""
        far = np.zeros(len(states), dtype=bool)
        for action in np.unique(actions).tolist() if self.lowest > -np.inf else ():
            chosen = np.flatnonzero(actions == action)
            far[chosen] = self.simulator.extrapolated(states[chosen], action)
        return far

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """Which states are terminal ``[n]``."""
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
            return values_of(self.reward, states, action)
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


def _outcomes(simulator: Any, states: Array, action: int) -> tuple[Array, Array] | None:
    """A simulator's next states ``[m, n, d]`` and weights ``[m]``; None if it has none."""
    if not hasattr(simulator, "outcomes"):
        return None
    answer = call(simulator.outcomes, states, action, what="the simulator's outcomes", read=_read_outcomes)
    if answer is None:
        return None
    after, weights = answer
    fits = after.shape[1:] == states.shape and weights.shape == after.shape[:1] and np.isfinite(after).all()
    if not fits or (weights < 0).any() or not abs(weights.sum() - 1) < 1e-6:
        raise ValueError(
            f"the simulator's outcomes(states, action) must be finite next states [m, {len(states)}, "
            f"{states.shape[1]}] and weights [m] that add up to 1, got {list(after.shape)} and {list(weights.shape)}"
        )
    return after, weights


def _read_outcomes(answer: Any) -> tuple[Array, ...] | None:
    """Copies of what a simulator's ``outcomes`` returns."""
    what = "the simulator's outcomes(states, action)"
    if answer is not None and (not isinstance(answer, tuple | list) or len(answer) != 2):
        raise ValueError(f"{what} must be next states and weights, got {shown(answer)}")
    return None if answer is None else tuple(as_reals(array, what) for array in answer)


def number_of_draws(simulator: Any, domain: Box, draws: Any, rng: np.random.Generator) -> tuple[int, int]:
    """How many next states are drawn, and how many there are of every state and action."""
    number = 1 if draws is None else as_count(draws, "draws")
    states = domain.uniform(64, rng)
    declared = _outcomes(simulator, states, 0)
    if declared is not None:
        return number, len(declared[1])
    for action in range(simulator.n_actions if draws is None else 0):
        first, second = (ask(simulator, states, action, stream, domain) for stream in rng.spawn(2))
        if not np.array_equal(first, second):
            number = 32 if len(domain) <= 2 else 8
    return number, number


# The same on a grid: transition matrices, policy iteration, values of a policy ----------------------------------------


@dataclass(frozen=True, eq=False)
class GridModel:
    """A decision process on the points of a grid."""

    process: Process  # the process
    grid: Cells  # the points ``[N, d]``
    stacked: Any  # γP_a of all actions, one below the other, sparse ``[A·N, N]``, without terminal states
    rewards: Array  # of each action, with what terminal next states pay ``[A, N]``

    @classmethod
    def of(cls, process: Process, grid: Cells) -> GridModel:
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
        drawn = ahead if self.process.draws > 1 else None
        return Plan(self.grid, values, discount, residual, rounds, settled, self.process, _action_values=drawn)

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
    process: Process, grid: Cells, states: Array, alive: NDArray[np.bool_], action: int
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
    far = process.extrapolated(states, np.full(len(states), action))
    rewards, shares = np.where(far, process.lowest, rewards), shares * ~far
    rows, m = [], len(weights)
    for start in range(0, len(states), step := max(_BLOCK // m, 1)):
        after, kept = branches[:, start : start + step].swapaxes(0, 1), shares[:, start : start + step].T
        index, corners = grid._corners(after.reshape(-1, grid.dimension))
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


# Policy iteration with a fitted value ---------------------------------------------------------------------------------


class Setting(NamedTuple):
    """Of a fitted V: its most functions, the steps of a rollout in a round, and the rounds."""

    functions: int
    steps: int
    rounds: int


def fitted_plan(
    process: Process, pool: Array, starts: Array | None, settings: Sequence[Setting], rng: np.random.Generator
) -> Plan:
    """The best plan of all rounds and settings, by rollouts from start states that no fit has used.

    Its return is estimated by others: among many the best one is also the luckiest. Few start states are used for both,
    with other random numbers.

    The pool has states all over the box, or those of the log ``[n, d]``; some are in the fit of every round. From the
    ``starts`` the plan should do well; states of the pool if left out. The settings of V are compared.
    """
    pool = pool[~process.terminal(pool)]
    fitted, tried = (pool[::2], pool[1::2]) if starts is None else (starts[::2], starts[len(starts) > 1 :: 2])
    tried, steps = spread(tried, 2 * STARTS), steps_of(process.discount)
    tried, fresh = (tried[::2], tried[1::2]) if len(tried) >= STARTS else (tried, tried)
    trials = [
        [(made, walked(process, made, tried, steps)) for made in _improved(process, pool[::2], fitted, setting, rng)]
        for setting in settings
    ]
    (best, walks), (_, last) = max(
        ((max(rounds, key=lambda trial: trial[1].earned.mean()), rounds[-1]) for rounds in trials),
        key=lambda pair: pair[0][1].earned.mean(),
    )
    lost = walks.earned - last.earned
    settled = bool(lost.mean() <= 2 * lost.std() / np.sqrt(len(lost)))
    return replace(best, converged=settled, returns=walked(process, best, fresh, steps, seed=1).summary(steps))


def _improved(
    process: Process, pool: Array, starts: Array, setting: Setting, rng: np.random.Generator
) -> Iterator[Plan]:
    """The plan of each round: V is fitted to returns of the policy of the round before, at first of random actions.

    The returns are those of short rollouts from the next states of every action; V of the round before continues them.
    """
    simulator, discount = process.simulator, process.discount
    domain, periodic, n_actions = as_domain(simulator.domain), periodic_of(simulator), simulator.n_actions
    basis = value_basis(domain, periodic, setting.functions, pool)
    branches = len(process.outcomes(pool[:1], 0)[1])
    n = ceil(ROWS_PER_FUNCTION * basis.size / n_actions)
    policy: Policy | Plan = uniform_policy(n_actions)
    visited, made = starts, None
    for number in range(setting.rounds):
        near = visited[rng.integers(len(visited), size=n // 2)]
        near = domain.moved_into(near + BESIDE * visited.std(axis=0) * rng.standard_normal(near.shape), periodic)
        states = np.concatenate([pool[rng.integers(len(pool), size=n - n // 2)], near])
        states = states[~process.terminal(states)]
        seed = int(rng.integers(2**31))
        after = np.stack([ask(simulator, states, a, np.random.default_rng(seed), domain) for a in range(n_actions)])
        walks = [walked(process, policy, rows, setting.steps, seed, made) for rows in after]
        goals = np.stack([rollouts.earned for rollouts in walks])
        over = np.stack([process.terminal(rows) for rows in after])
        values, error = _fit(basis, after, goals, over)
        visited = np.concatenate([rollouts.visited for rollouts in walks])
        span = (float(goals.min()), float(goals.max()))
        made = Plan(basis, values, discount, error, number + 1, False, process, span=span)
        if branches > 1:
            made = replace(made, _action_values=solve_least_squares(basis.values(states), made._ahead(states)).T)
        policy = made
        yield made


def _fit(basis: Basis, after: Array, goals: Array, over: NDArray[np.bool_]) -> tuple[Array, float]:
    """Coefficients of V ``[k]``, and the relative error of the fit.

    Differences between actions decide the policy and are much smaller than V: those at each state are fitted in units
    of their own, with `DECISIVE` times the weight of V itself.
    """
    values = np.stack([basis.values(rows) for rows in after])
    level, target, compared = values[~over], goals[~over], ~over.any(axis=0)
    spread = float(target.std()) + 1e-300
    difference, effect = ((array - array.mean(axis=0))[:, compared] for array in (values, goals))
    sizes = np.sqrt(np.mean(effect**2, axis=0))
    weights = DECISIVE * spread / (sizes + FAINTEST * sizes.mean() + 1e-12 * spread) if sizes.size else sizes
    rows = (difference * weights[:, None]).reshape(-1, basis.size)
    coefficients = solve_least_squares(
        np.concatenate([level, rows]), np.concatenate([target, (effect * weights).ravel()])
    )
    return coefficients, float(np.sqrt(np.mean((level @ coefficients - target) ** 2))) / spread


def steps_of(discount: float) -> int:
    """Of a rollout by which plans are compared: what follows is worth less than a twentieth."""
    return min(ceil(3 / (1 - discount)), LONGEST_ESTIMATE)


class Rollouts(NamedTuple):
    """One rollout from each of n states."""

    earned: Array  # the discounted rewards ``[n]``
    visited: Array  # the states ``[m, d]``
    left: NDArray[np.bool_]  # which of them took an action that is extrapolated ``[n]``

    def summary(self, steps: int) -> Returns:
        """The mean return, of rollouts of this number of steps."""
        n = len(self.earned)
        error = float(self.earned.std() / np.sqrt(n)) if n > 1 else np.nan
        return Returns(float(self.earned.mean()), error, n, steps, float(self.left.mean()))


def walked(
    process: Process, policy: Any, starts: Array, steps: int, seed: int = 0, value: Plan | None = None
) -> Rollouts:
    """One rollout of a policy from each state.

    An extrapolated action ends a rollout, with the lowest value; V, if given, stands for what follows the last step.
    """
    discount, total, running = process.discount, np.zeros(len(starts)), np.ones(len(starts), dtype=bool)
    over = process.terminal(starts)
    total[over] = process.terminal_values(starts, over)[over]
    visited = [starts[~over]]
    followed = [as_policy(policy, process.simulator.n_actions)] * steps
    for number, step in enumerate(simulate(process.simulator, starts, followed, np.random.default_rng(seed))):
        paid, far = np.empty(len(step.rows)), process.extrapolated(step.states, step.actions)
        for action in np.unique(step.actions).tolist():
            chosen = step.actions == action
            after = step.next_states[chosen]
            paid[chosen] = process.rewards(step.states[chosen], action, after[None], np.ones(1))
        later = process.terminal_values(step.next_states, step.over)
        if value is not None and number == steps - 1:
            later = np.where(step.over, later, value._values(step.next_states))
        gained = np.where(far, process.lowest, paid + discount * later)
        total[step.rows] += discount**number * np.where(running[step.rows], gained, 0.0)
        running[step.rows] &= ~far
        visited.append(step.next_states[running[step.rows] & ~step.over])
    return Rollouts(total, np.concatenate(visited), ~running)
