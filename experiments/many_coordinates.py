"""Policies of five to ten coordinates from logs: what is explained, what planning on R alone does, what it costs.

    python experiments/many_coordinates.py [--fast] [--workers N] [--seed S] [--out DIR]

- linear 5, 6, 8, 10: linear dynamics with quadratic costs; the expert looks one step ahead with the value of the
  regulator; 3 actions, 4 in eight coordinates.
- carts: two carts in three coordinates each, which move independently; four actions.
- three of eight: only three of eight coordinates matter to the expert.
- lunar lander: LunarLander-v3 of Gymnasium (`pip install swig`, then `pip install "gymnasium[box2d]"`) with its
  heuristic; 100 episodes of the heuristic, 100 random ones and 100 in which two actions of five are random.

`certirl.solve` has its defaults. Returns are the task's own: random play is 0 %, the expert 100 %.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_discrete_are

import certirl
import study
from tasks import earned, moved

Array = Any
EPISODES = 20  # of the lander, by which a policy is judged


@dataclass(frozen=True)
class Linear:
    """s' = As + Bu_a + noise, with a cost |s|²; the expert looks one step ahead with the value of the regulator."""

    dimension: int
    n_actions: int

    @property
    def domain(self) -> tuple[tuple[float, float], ...]:
        """The box of states."""
        return ((-1.0, 1.0),) * self.dimension

    def _means(self, states: Array) -> tuple[Array, Array]:
        rng, d = np.random.default_rng(0), self.dimension
        turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
        drift, push = 0.95 * (0.8 * np.eye(d) + 0.2 * turn), 0.3 * rng.normal(size=(d, self.n_actions - 1))
        controls = np.concatenate([np.zeros((1, self.n_actions - 1)), np.eye(self.n_actions - 1)])
        if self.n_actions == 3:
            controls = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
        cost = solve_discrete_are(drift, push, np.eye(d), 0.1 * np.eye(self.n_actions - 1))
        return np.stack([states @ drift.T + push @ control for control in controls]), cost

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """One next state for each state."""
        mean = self._means(states)[0][action]
        return np.clip(mean + 0.02 * rng.standard_normal(mean.shape), -1, 1)

    def expert(self, states: Array) -> Array:
        """The action after which the regulator's value is best."""
        means, cost = self._means(states)
        return np.einsum("ani,ij,anj->an", means, cost, means).argmin(axis=0)


class Carts:
    """Two carts whose engines lag: position, speed and thrust of each; every action pushes both, either way."""

    n_actions, domain = 4, ((-1.0, 1.0),) * 6

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """One next state for each state."""
        after = np.array(states)
        for first, push in ((0, 1 - 2 * (action // 2)), (3, 1 - 2 * (action % 2))):
            x, v, w = states[:, first : first + 3].T
            after[:, first : first + 3] = np.stack([x + 0.2 * v, v + 0.2 * w, 0.9 * w + 0.3 * push], axis=1)
        return np.clip(after + 0.01 * rng.standard_normal(after.shape), -1, 1)

    def expert(self, states: Array) -> Array:
        """Push each cart towards the middle."""
        left, right = (states[:, j] + 1.2 * states[:, j + 1] + 0.6 * states[:, j + 2] > 0 for j in (0, 3))
        return 2 * left + right


class ThreeOfEight:
    """A pendulum-like system in the first three coordinates; the other five drift by themselves."""

    n_actions, domain = 3, ((-1.0, 1.0),) * 8

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """One next state for each state."""
        x, v, w = states[:, :3].T
        swung = np.stack([x + 0.2 * v, v + 0.2 * w - 0.2 * np.sin(3 * x), 0.8 * w + 0.3 * (action - 1)], axis=1)
        after = np.hstack([swung, 0.6 * states[:, 3:] + 0.3 * np.roll(states[:, 3:], 1, axis=1)])
        return np.clip(after + 0.01 * rng.standard_normal(after.shape), -1, 1)

    def expert(self, states: Array) -> Array:
        """Push against a mixture of the first three coordinates, rest where it is small."""
        x, v, w = states[:, :3].T
        wanted = 0.3 * np.sin(3 * x) - x - v - 0.5 * w
        return np.where(wanted > 0.09, 2, np.where(wanted < -0.09, 0, 1))


def heuristic(states: Array) -> Array:
    """`heuristic` of Gymnasium's lunar lander, for many states ``[n, 8]`` at once."""
    x, y, vx, vy, angle, turn, left, right = np.asarray(states, dtype=float).T
    down = (left > 0.5) | (right > 0.5)
    tilt = np.where(down, 0.0, 0.5 * (np.clip(0.5 * x + vx, -0.4, 0.4) - angle) - turn)
    lift = np.where(down, -0.5 * vy, 0.5 * (0.55 * np.abs(x) - y) - 0.5 * vy)
    aside = np.where(tilt < -0.05, 3, np.where(tilt > 0.05, 1, 0))
    return np.where((lift > np.abs(tilt)) & (lift > 0.05), 2, aside)


def landings(policy: Any, seeds: list[int], *, errors: float = 0.0, rng: Any = None) -> list[Any]:
    """Episodes of the lander, all at once; ``errors`` is the share of random actions."""
    import gymnasium

    from certirl.data.episodes import Episode

    worlds = [gymnasium.make("LunarLander-v3") for _ in seeds]
    states = [[world.reset(seed=seed)[0].astype(float)] for world, seed in zip(worlds, seeds, strict=True)]
    actions, rewards, ended = [[] for _ in seeds], [[] for _ in seeds], [False] * len(seeds)
    live = list(range(len(seeds)))
    while live:
        wanted = np.asarray(policy(np.array([states[i][-1] for i in live])))
        if errors:
            wanted = np.where(rng.random(len(live)) < errors, rng.integers(4, size=len(live)), wanted)
        alive = []
        for i, action in zip(live, wanted.tolist(), strict=True):
            after, reward, ended[i], cut, _ = worlds[i].step(action)
            states[i].append(after.astype(float))
            actions[i].append(action)
            rewards[i].append(float(reward))
            alive += [] if ended[i] or cut else [i]
        live = alive
    rows = zip(states, actions, ended, rewards, strict=True)
    return [Episode(np.array(s), np.array(a), bool(e), np.array(r)) for s, a, e, r in rows]


def landed(policy: Any) -> float:
    """The mean return of a policy of the lander."""
    return float(np.mean([episode.total for episode in landings(policy, [777 + i for i in range(EPISODES)])]))


def lander_log(seed: int) -> Any:
    """100 episodes of the heuristic, 100 random ones, 100 with two random actions of five."""
    rng, every = np.random.default_rng([seed, 8]), []
    for errors in (0.0, 1.0, 0.4):
        every += landings(heuristic, rng.integers(2**31, size=100).tolist(), errors=errors, rng=rng)
    return certirl.logs.from_episodes(every, n_actions=4)


TASKS: dict[str, Any] = {
    "linear 5": Linear(5, 3),
    "linear 6": Linear(6, 3),
    "linear 8": Linear(8, 4),
    "linear 10": Linear(10, 3),
    "carts": Carts(),
    "three of eight": ThreeOfEight(),
}
LANDER = "lunar lander"


@dataclass(frozen=True)
class Arguments:
    """Which tasks, how many seeds of each and of the lander, and the transitions of all actions of the others."""

    tasks: tuple[str, ...] = (*TASKS, LANDER)
    seeds: int = 1
    landers: int = 3
    transitions: int = 20_000
    seed: int = 0


FAST = Arguments(tasks=("linear 5",), transitions=1_500)


def uniform_log(simulator: Any, n: int, seed: int) -> certirl.Transitions:
    """Transitions of random actions from uniform states."""
    rng, d = np.random.default_rng([seed, 9]), len(simulator.domain)
    states, actions = rng.uniform(-1, 1, (n, d)), rng.integers(simulator.n_actions, size=n)
    after = moved(simulator, states, actions, rng)
    return certirl.Transitions(states, actions, after, simulator.domain, simulator.n_actions)


def trial(task: Sequence[Any]) -> dict[str, Any]:
    """Solve one task from a log, and judge the answer."""
    name, seed, transitions = task
    if name == LANDER:
        expert, discount, returns, log = heuristic, 0.99, landed, lander_log(seed)
        rng = np.random.default_rng(5)
        random = returns(lambda states: rng.integers(4, size=len(states)))
    else:
        simulator, discount = TASKS[name], 0.9
        expert, log = simulator.expert, uniform_log(simulator, transitions, seed)
        first = np.random.default_rng(7).uniform(-1, 1, (500, len(simulator.domain)))

        def returns(policy: Any) -> float:
            paid = lambda states, *_: -(states**2).sum(axis=1)  # noqa: E731
            return earned(simulator, paid, policy, first, steps=40, discount=discount)

        random = returns(None)
    start, used = time.perf_counter(), time.process_time()
    solution = certirl.solve(log, expert=expert, discount=discount, rng=seed)
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    best, stats = returns(expert), solution.stats
    return {
        "task": name,
        "seed": seed,
        "coordinates": len(log.domain),
        "transitions": len(log),
        "greedy for V": (returns(solution.greedy) - random) / (best - random),
        "expert and random": [best, random],
        "status": solution.status,
        "functions": stats.choice,
        "unexplained": stats.unexplained,
        "model error": stats.model_error,
        "planned regret": stats.planned_regret,
        "planned loss": stats.planned_loss,
        "seconds": seconds,
        "processor seconds": processor,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "printed": str(solution),
    }


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All tasks and seeds."""
    tasks = [
        [name, arguments.seed + number, arguments.transitions]
        for name in arguments.tasks
        for number in range(arguments.landers if name == LANDER else arguments.seeds)
    ]
    runs, summary = runner(trial, tasks, unit="solutions"), {}
    for name in arguments.tasks:
        trials = [run for run in runs if run["task"] == name]
        summary[name] = {
            "seeds": len(trials),
            "greedy for V, worst": min(t["greedy for V"] for t in trials),
            "planned loss, worst": max((t["planned loss"] or 0.0) for t in trials),
            "planned regret, worst": max((t["planned regret"] or 0.0) for t in trials),
            "statuses": {
                status: sum(t["status"] == status for t in trials) for status in {t["status"] for t in trials}
            },
            "functions, first seed": trials[0]["functions"],
            "processor seconds, most": max(t["processor seconds"] for t in trials),
            "gigabytes, most": max(t["gigabytes"] for t in trials),
            "printed, first seed": trials[0]["printed"].splitlines(),
        }
    sentence = "; ".join(f"{name}: {row['greedy for V, worst']:.1%}" for name, row in summary.items())
    table = [{key: value for key, value in run.items() if key != "printed"} for run in runs]
    return study.Findings(summary, table, None, f"Return of the policy greedy for V, worst seed: {sentence}.")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
