"""Tasks that no default was tuned for: what planning on the learned reward alone earns, and what the print says of it.

    python experiments/tasks.py [--fast] [--workers N] [--seed S] [--out DIR]

- navigation: a point on the unit square steps in four directions, with noise, past an obstacle to a goal; from the
  simulator, and from logs (40 demonstrations and 200 random episodes of 50 steps each).
- inventory: stock for exponential demand that is lost where it exceeds the stock, so that next states are 0 with
  positive probability; the expert orders by two thresholds.
- mountain car: from logs alone (40 demonstrations and 200 random episodes that start in the valley), γ = 0.9 and 0.99.
- acrobot: four coordinates, from the simulator, γ = 0.99; learned in a smaller box of speeds than that of the episodes.

Every expert but the inventory's plans on the task's own reward. `certirl.solve` has its defaults; then the planner is
given the learned reward alone, in the true dynamics. Returns are the task's own: random play is 0 %, the expert 100 %.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import certirl
import study
from played import expert_of
from played import returns as environment_returns

Array = Any
Policy = Callable[[Array], Any] | None  # None plays at random
Steps = tuple[Array, Array, Array, Array]  # states, actions, next states, episodes


class Task(NamedTuple):
    """A task.

    Attributes:
        simulator: the true dynamics, in which every reward is planned on.
        expert: states to actions.
        discount: γ.
        returns: the mean return of a policy under the task's own reward.
        data: a seed to what `solve` is given, a simulator or a log, and the expert as it knows it.
    """

    simulator: Any
    expert: Any
    discount: float
    returns: Callable[[Policy], float]
    data: Callable[[int], tuple[Any, Any]]


def moved(simulator: Any, states: Array, actions: Array, rng: Any) -> Array:
    """The next state of every row, each with its own action."""
    after = np.empty_like(states)
    for action in np.unique(actions):
        rows = actions == action
        after[rows] = simulator.sample(states[rows], int(action), rng)
    return after


def chosen(policy: Policy, states: Array, n_actions: int, rng: Any) -> Array:
    """The action of every row."""
    return rng.integers(n_actions, size=len(states)) if policy is None else np.asarray(policy(states))


def earned(
    simulator: Any,
    paid: Callable[[Array, Array, Array], Array],
    policy: Policy,
    states: Array,
    *,
    steps: int,
    discount: float,
    over: Callable[[Array], Array] | None = None,
    seed: int = 0,
) -> float:
    """The mean discounted return of one episode from each state."""
    rng, total, weight = np.random.default_rng(seed), 0.0, 1.0 / len(states)
    for _ in range(steps):
        actions = chosen(policy, states, simulator.n_actions, rng)
        after = moved(simulator, states, actions, rng)
        total += weight * float(paid(states, actions, after).sum())
        states, weight = after if over is None else after[~over(after)], weight * discount
        if not len(states):
            break
    return total


def episodes(simulator: Any, policy: Policy, states: Array, *, steps: int, rng: Any, over: Any = None) -> Steps:
    """Episodes from these states, until a terminal state or for a number of steps."""
    number, rows = np.arange(len(states)), list[tuple[Array, Array, Array, Array]]()
    for _ in range(steps):
        actions = chosen(policy, states, simulator.n_actions, rng)
        after = moved(simulator, states, actions, rng)
        rows.append((states, actions, after, number))
        alive = np.ones(len(after), dtype=bool) if over is None else ~over(after)
        states, number = after[alive], number[alive]
        if not len(states):
            break
    first, second, third, last = (np.concatenate(column) for column in zip(*rows, strict=True))
    return first, second, third, last


def logged(simulator: Any, expert: Any, start: Callable[[int, Any], Array], seed: int, *, steps: int) -> Any:
    """A log of 40 demonstrations and 200 random episodes, and the expert estimated from the demonstrations."""
    rng, over = np.random.default_rng([seed, 11]), getattr(simulator, "terminal", None)
    shown = episodes(simulator, expert, start(40, rng), steps=steps, rng=rng, over=over)
    random = episodes(simulator, None, start(200, rng), steps=steps, rng=rng, over=over)
    states, actions, after, number = (np.concatenate(pair) for pair in zip(shown, random, strict=True))
    number[len(shown[3]) :] += 40
    settings = {"domain": simulator.domain, "n_actions": simulator.n_actions}
    more = {} if over is None else {"terminal": np.asarray(over(after))}
    log = certirl.Transitions(states, actions, after, episodes=number, **settings, **more)
    return log, certirl.policy_from(shown[0], shown[1], episodes=shown[3], **settings)


class Navigation:
    """A point on the unit square: stay, or step in one of four directions."""

    n_actions, domain = 5, ((0.0, 1.0), (0.0, 1.0))
    STEPS = 0.08 * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """One next state for each state."""
        return np.clip(states + self.STEPS[action] + rng.normal(0, 0.02, states.shape), 0, 1)

    @staticmethod
    def reward(states: Array, *_: Any) -> Array:
        """A goal near one corner, an obstacle in the middle."""
        goal, obstacle = (((states - place) ** 2).sum(axis=1) for place in (0.85, 0.5))
        return np.exp(-goal / (2 * 0.08**2)) - 2 * np.exp(-obstacle / (2 * 0.1**2)) - 0.02


class Inventory:
    """Stock of at most 20; orders of 0, 4 or 8 arrive before demand, which is lost where it exceeds the stock."""

    n_actions, domain = 3, ((0.0, 20.0),)
    ORDERS = np.array([0.0, 4.0, 8.0])

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """One next state for each state."""
        stock = np.minimum(states + self.ORDERS[action], 20)
        return np.clip(stock - rng.exponential(4, states.shape), 0, 20)

    @staticmethod
    def expert(states: Array) -> Array:
        """Order 8 below 4, 4 below 5, else nothing."""
        return np.where(states[:, 0] < 4, 2, np.where(states[:, 0] < 5, 1, 0))

    def returns(self, policy: Policy) -> float:
        """What is earned is negative: storage, lost sales and orders cost."""
        rng, total, weight = np.random.default_rng(0), 0.0, 1.0
        stock = rng.uniform(0, 20, (2000, 1))
        for _ in range(60):
            ordered = self.ORDERS[chosen(policy, stock, 3, rng)][:, None]
            demand, held = rng.exponential(4, stock.shape), np.minimum(stock + ordered, 20)
            stock = np.maximum(held - demand, 0)
            cost = 0.2 * stock + 3 * np.maximum(demand - held, 0) + 0.5 * ordered
            total, weight = total - weight * float(cost.mean()), 0.95 * weight
        return total


@dataclass(frozen=True)
class Acrobot:
    """Acrobot-v1 of Gymnasium for many states at once: two links, torques −1, 0 and 1 at the second joint.

    Attributes:
        speeds: the largest speeds of the box; the environment's are 4π and 9π.
    """

    speeds: tuple[float, float] = (4 * np.pi, 9 * np.pi)
    n_actions: int = 3
    periodic: tuple[int, ...] = (0, 1)

    @property
    def domain(self) -> tuple[tuple[float, float], ...]:
        """The box of states: two angles, two speeds."""
        return tuple((-most, most) for most in (np.pi, np.pi, *self.speeds))

    @staticmethod
    def terminal(states: Array) -> Array:
        """The tip is one link above the axis."""
        return -np.cos(states[:, 0]) - np.cos(states[:, 0] + states[:, 1]) > 1

    @staticmethod
    def _rates(states: Array, torque: float) -> Array:
        first, second, speed, turn = states.T
        d1, d2 = 3.5 + np.cos(second), 1.25 + 0.5 * np.cos(second)
        phi2 = 4.9 * np.cos(first + second - np.pi / 2)
        phi1 = -0.5 * turn**2 * np.sin(second) - turn * speed * np.sin(second)
        phi1 += 14.7 * np.cos(first - np.pi / 2) + phi2
        faster = (torque + d2 / d1 * phi1 - 0.5 * speed**2 * np.sin(second) - phi2) / (1.25 - d2**2 / d1)
        return np.stack([speed, turn, -(d2 * faster + phi1) / d1, faster], axis=1)

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """One next state for each state: a step of Runge and Kutta over 0.2 s."""
        torque, h = float(action) - 1, 0.2
        k1 = self._rates(states, torque)
        k2 = self._rates(states + h / 2 * k1, torque)
        k3 = self._rates(states + h / 2 * k2, torque)
        after = states + h / 6 * (k1 + 2 * k2 + 2 * k3 + self._rates(states + h * k3, torque))
        after[:, :2] = (after[:, :2] + np.pi) % (2 * np.pi) - np.pi
        after[:, 2:] = np.clip(after[:, 2:], -np.array(self.speeds), self.speeds)
        return np.where(self.terminal(states)[:, None], states, after)

    def reward(self, states: Array, action: int, after: Array) -> Array:
        """−1 for every step that does not end the episode."""
        return np.where(self.terminal(states) | self.terminal(after), 0.0, -1.0)

    def returns(self, policy: Policy) -> float:
        """Episodes of the environment, whose speeds a policy sees within its own box."""
        low, high = np.array(self.domain).T
        within = None if policy is None else lambda states: policy(np.clip(states, low, high))
        free, states = Acrobot(), np.random.default_rng(3).uniform(-0.1, 0.1, (300, 4))
        paid = lambda states, actions, after: free.reward(states, 0, after)  # noqa: E731
        return earned(free, paid, within, states, steps=500, discount=1.0, over=free.terminal)


def _navigation(logs: bool) -> Task:
    simulator = Navigation()
    expert = certirl.planning.plan(simulator, Navigation.reward, discount=0.95)
    first = np.random.default_rng(5).uniform(0, 1, (2000, 2))

    def returns(policy: Policy) -> float:
        return earned(simulator, Navigation.reward, policy, first, steps=80, discount=0.95)

    def data(seed: int) -> tuple[Any, Any]:
        return logged(simulator, expert, lambda n, rng: rng.uniform(0, 1, (n, 2)), seed, steps=50)

    return Task(simulator, expert, 0.95, returns, data if logs else lambda seed: (simulator, expert))


def _inventory() -> Task:
    simulator = Inventory()
    return Task(simulator, simulator.expert, 0.95, simulator.returns, lambda seed: (simulator, simulator.expert))


def _mountain_car(discount: float) -> Task:
    simulator = certirl.gym.simulator("MountainCar-v0")
    expert = expert_of(simulator, discount)

    def valley(n: int, rng: Any) -> Array:
        return np.stack([rng.uniform(-0.6, -0.4, n), np.zeros(n)], axis=1)

    def returns(policy: Policy) -> float:
        return float(environment_returns("MountainCar-v0", policy, 50).mean())

    def data(seed: int) -> tuple[Any, Any]:
        return logged(simulator, expert, valley, seed, steps=200)

    return Task(simulator, expert, discount, returns, data)


def _acrobot() -> Task:
    simulator = Acrobot(speeds=(6.0, 12.0))  # a fifth more than random play reaches
    expert = certirl.planning.plan(simulator, discount=0.99)
    return Task(simulator, expert, 0.99, simulator.returns, lambda seed: (simulator, expert))


TASKS: dict[str, Callable[[], Task]] = {
    "navigation": lambda: _navigation(logs=False),
    "navigation, logs": lambda: _navigation(logs=True),
    "inventory": _inventory,
    "mountain car, logs, γ = 0.9": lambda: _mountain_car(0.9),
    "mountain car, logs, γ = 0.99": lambda: _mountain_car(0.99),
    "acrobot": _acrobot,
}


@lru_cache(maxsize=2)
def task_of(name: str) -> tuple[Task, float, float]:
    """A task with the mean returns of its expert and of random play."""
    task = TASKS[name]()
    return task, task.returns(task.expert), task.returns(None)


@dataclass(frozen=True)
class Arguments:
    """Tasks, and seeds that were not looked at before; the inventory has seeds of its own."""

    tasks: tuple[str, ...] = tuple(TASKS)
    seeds: int = 5
    inventories: int = 20
    first: int = 7000
    seed: int = 0


FAST = Arguments(tasks=("inventory",), inventories=1)


def trip(task: Sequence[Any]) -> dict[str, Any]:
    """Learn a reward with one seed, plan on it, and compare the returns."""
    name, seed = task
    setting, best, random = task_of(name)
    source, expert = setting.data(seed)
    start = time.perf_counter()
    solution = certirl.solve(source, expert=expert, discount=setting.discount, rng=seed)
    seconds = time.perf_counter() - start
    planned = certirl.planning.plan(setting.simulator, solution.reward, discount=setting.discount)
    share = {
        label: (setting.returns(policy) - random) / (best - random)
        for label, policy in (("plan", planned), ("greedy", solution.greedy), ("copy", expert))
    }
    stats = solution.stats
    return {
        "task": name,
        "seed": seed,
        "share": share["plan"],
        "greedy for V": share["greedy"],
        "copy of the expert": share["copy"],
        "status": solution.status,
        "planned regret": stats.planned_regret,
        "planned loss": stats.planned_loss,
        "extrapolated": stats.extrapolated,
        "largest residual": stats.largest_residual,
        "seconds": seconds,
        "printed": str(solution),
    }


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All tasks and seeds."""
    first = arguments.first + arguments.seed
    tasks = [
        [name, first + number]
        for name in arguments.tasks
        for number in range(arguments.inventories if name == "inventory" else arguments.seeds)
    ]
    runs, summary = runner(trip, tasks, unit="round trips"), {}
    for name in arguments.tasks:
        trips = [run for run in runs if run["task"] == name]
        _, best, random = task_of(name)
        summary[name] = {
            "seeds": len(trips),
            "expert and random": [best, random],
            "share, mean and worst": [float(np.mean([t["share"] for t in trips])), min(t["share"] for t in trips)],
            "greedy for V, worst": min(t["greedy for V"] for t in trips),
            "copy of the expert, worst": min(t["copy of the expert"] for t in trips),
            "statuses": {status: sum(t["status"] == status for t in trips) for status in {t["status"] for t in trips}},
            "seconds of solve, median": float(np.median([t["seconds"] for t in trips])),
            "printed, first seed": trips[0]["printed"].splitlines(),
        }
    sentence = "; ".join(f"{name}: {row['share, mean and worst'][1]:.1%} at worst" for name, row in summary.items())
    table = [{key: value for key, value in run.items() if key != "printed"} for run in runs]
    return study.Findings(summary, table, None, sentence + ".")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
