"""Terminal states that are only estimated: the round trips of `environments.py` with noise, and from logged episodes.

    python experiments/ends.py [--only trips|kinds] [--fast] [--workers N] [--seed S] [--out DIR]

- trips: CartPole-v1 with process noise, asked as a simulator; planning on the learned reward in the noisy dynamics. And
  CartPole-v1 and MountainCar-v0 from logged episodes alone (random play, the expert interrupted by chance half of the
  time, and the expert), which mark their terminal states; the simulator only plans on the reward.
- kinds: docking, a tank and a corridor, whose experts seek some ends and avoid others; how often planning on the
  learned reward alone reaches bad ends, from far starts and from even states, and what the first line says.

Returns are the environment's own, without noise; random play is 0 %, the expert 100 %.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import certirl
import study
from played import round_trip, setting, summary_of, without_text

EPISODES = {"CartPole-v1": (1500, 375, 75), "MountainCar-v0": (200, 50, 10)}  # random, interrupted, the expert's
OUTSIDE = "clip"  # a pole beyond the box has fallen either way


class Docking:
    """Distance and speed of a ship: it has docked softly if its speed is at most 0.25, and crashed otherwise."""

    n_actions, domain = 3, ((-0.2, 2.0), (-1.0, 1.0))
    starts = ((1.0, 1.9), (-0.3, 0.3))

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """One step."""
        speed = np.clip(states[:, 1] + 0.12 * (action - 1) + 0.03 * rng.standard_normal(len(states)), -1, 1)
        return np.stack([np.clip(states[:, 0] + 0.15 * speed, -0.2, 2), speed], axis=1)

    def terminal(self, states: Any) -> Any:
        """Where it ends."""
        return states[:, 0] <= 0

    def good(self, states: Any) -> Any:
        """Which ends are good."""
        return np.abs(states[:, 1]) <= 0.25

    def reward(self, states: Any, action: int, after: Any) -> Any:
        """A step costs 0.1, a good end pays 10, a bad one costs 20."""
        return np.where(self.terminal(after), np.where(self.good(after), 10.0, -20.0), 0.0) - 0.1


class Tank(Docking):
    """Level and inflow of a tank: filling ends at a level of 0.9, and above 0.96 it has run over."""

    domain = ((0.0, 1.1), (0.0, 0.12))
    starts = ((0.0, 0.4), (0.0, 0.06))

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """One step."""
        inflow = np.clip(states[:, 1] + 0.02 * (action - 1) + 0.005 * rng.standard_normal(len(states)), 0, 0.12)
        return np.stack([np.clip(states[:, 0] + inflow, 0, 1.1), inflow], axis=1)

    def terminal(self, states: Any) -> Any:
        """Where it ends."""
        return states[:, 0] >= 0.9

    def good(self, states: Any) -> Any:
        """Which ends are good."""
        return states[:, 0] <= 0.96


class Corridor(Docking):
    """A way past a cliff, towards which wind blows, to a gate of half-width 0.3; beside the gate are posts."""

    domain = ((0.0, 1.1), (-0.8, 0.8))
    starts = ((0.0, 0.3), (-0.5, 0.6))

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """One step."""
        noise = rng.standard_normal(states.shape)
        moved = states + np.array([0.05, 0.08 * (action - 1) - 0.02]) + noise * (0.01, 0.03)
        return np.clip(moved, *np.array(self.domain).T)

    def terminal(self, states: Any) -> Any:
        """Where it ends."""
        return (states[:, 0] >= 1) | (states[:, 1] <= -0.6)

    def good(self, states: Any) -> Any:
        """Which ends are good."""
        return (states[:, 0] >= 1) & (np.abs(states[:, 1]) <= 0.3)

    def reward(self, states: Any, action: int, after: Any) -> Any:
        """The same, and what a step beside the middle costs."""
        return super().reward(states, action, after) - 0.2 * np.abs(after[:, 1])


TASKS = {"docking": Docking, "tank": Tank, "corridor": Corridor}
FEATURES = {
    "distance": lambda states: states[:, 0],
    "speed": lambda states: states[:, 1],
    "speed²": lambda states: states[:, 1] ** 2,
    "terminal": "terminal",
}
LAST_STEP = 300


def shares(task: Any, policy: Any, episodes: int, *, even: bool) -> dict[str, float]:
    """How often a policy has a bad end, and none, and its mean steps: from even states, or from far starts."""
    rng, count = np.random.default_rng(1), 0 * episodes
    low, high = np.array(task.domain if even else task.starts).T
    states = low + (high - low) * rng.random((4 * episodes, len(low)))
    states = states[~task.terminal(states)][:episodes]
    running = np.arange(len(states))
    for _ in range(LAST_STEP):
        actions = policy(states[running])
        for action in np.unique(actions).tolist():
            chosen = running[actions == action]
            states[chosen] = task.sample(states[chosen], action, rng)
        count += len(running)
        running = running[~task.terminal(states[running])]
        if not len(running):
            break
    over = task.terminal(states)
    return {
        "bad": float((over & ~task.good(states)).mean()),
        "none": float((~over).mean()),
        "steps": count / len(states),
    }


def kinds(task: list[Any]) -> dict[str, Any]:
    """Learn a reward of one task with one seed, plan on it alone, and count the ends."""
    name, features, discount, episodes, seed = task
    simulator = TASKS[name]()
    expert = certirl.planning.plan(simulator, discount=discount, rng=0)
    method = certirl.FeatureForm(FEATURES) if features else None
    solution = certirl.solve(simulator, expert=expert, discount=discount, method=method, rng=seed)
    row = {"kind": "kinds", "task": name + (", features" if features else ""), "seed": seed, "status": solution.status}
    row["reason"] = solution.reason
    for even in (False, True):
        of = "even states" if even else "far starts"
        row |= {f"expert, {of}, {what}": x for what, x in shares(simulator, expert, episodes, even=even).items()}
        if solution.reward is not None:
            planned = certirl.planning.plan(simulator, solution, rng=5)
            row |= {f"plan, {of}, {what}": x for what, x in shares(simulator, planned, episodes, even=even).items()}
    return row


def summary_of_kinds(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the runs of one task: how many are validated, and bad ends of the plan beyond the expert's."""
    made = [run for run in runs if "plan, far starts, bad" in run]
    beyond = [
        max(run[f"plan, {of}, bad"] - run[f"expert, {of}, bad"] for of in ("far starts", "even states")) for run in made
    ]
    validated = [more for more, run in zip(beyond, made, strict=True) if run["status"] == "validated"]
    return {
        "runs": len(runs),
        "validated": len(validated),
        "bad ends beyond the expert's, median and worst": [float(np.median(beyond)), max(beyond)] if beyond else None,
        "the same of validated ones, worst": max(validated, default=None),
    }


@dataclass(frozen=True)
class Arguments:
    """Environments, discounts, noise as a share of the box, and seeds that were not looked at before."""

    tasks: tuple[str, ...] = ("docking", "docking, features", "tank", "corridor")
    task_seeds: int = 20
    task_discount: float = 0.97
    task_episodes: int = 5_000

    noisy: tuple[str, ...] = ("CartPole-v1",)
    logged: tuple[str, ...] = ("CartPole-v1", "MountainCar-v0")
    discounts: tuple[float, ...] = (0.9, 0.99)
    noise: float = 0.005
    samples: int = 30_000
    seeds: int = 5
    first: int = 3000
    episodes: int = 50
    seed: int = 0


FAST = Arguments(
    tasks=("corridor",),
    task_seeds=1,
    task_episodes=500,
    noisy=(),
    logged=("MountainCar-v0",),
    discounts=(0.9,),
    seeds=1,
    episodes=10,
)


def logged(name: str, simulator: Any, expert: Any, seed: int) -> certirl.Transitions:
    """Episodes of chance, of the expert interrupted by chance, and of the expert."""
    rng = np.random.default_rng([seed, 1])

    def interrupted(states: Any) -> Any:
        actions, chance = expert(states), rng.integers(simulator.n_actions, size=len(states))
        return np.where(rng.random(len(states)) < 0.5, actions, chance)

    played = [
        episode
        for number, (policy, count) in enumerate(zip((None, interrupted, expert), EPISODES[name], strict=True))
        for episode in certirl.gym.rollouts(name, policy, episodes=count, rng=10 * seed + number)
    ]
    return certirl.logs.from_episodes(played, domain=simulator.domain, n_actions=simulator.n_actions, outside=OUTSIDE)


def trip(task: list[Any]) -> dict[str, Any]:
    """Learn a reward with one seed, plan on it, and compare the returns."""
    kind, name, discount, noise, samples, episodes, seed = task
    environment = setting(name, discount, episodes)
    expert, settings = environment.expert, {"discount": discount, "episodes": episodes, "seed": seed}
    if kind == "noise":
        simulator = certirl.gym.simulator(name, noise=noise)
        solution, planned, numbers = round_trip(name, simulator, simulator, samples=samples, **settings)
    else:
        simulator = environment.simulator
        log = logged(name, simulator, expert, seed)
        solution, planned, numbers = round_trip(name, log, simulator, **settings)
    stats, states = solution.stats, solution.compared.states
    return (
        {"kind": kind}
        | numbers
        | {
            "agreement at the states of the data": float((planned(states) == expert(states)).mean()),
            "greedy agreement there": float((solution.greedy(states) == expert(states)).mean()),
            "going on": stats.continuation,
            "uncovered": stats.uncovered,
        }
    )


def trips(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All kinds of data, environments, discounts and seeds."""
    sources = [("logs", name) for name in arguments.logged] + [("noise", name) for name in arguments.noisy]
    sizes = [arguments.noise, arguments.samples, arguments.episodes]
    tasks = [
        [kind, name, discount, *sizes, arguments.first + seed]
        for seed in study.seeds(arguments, arguments.seeds)
        for kind, name in sources
        for discount in arguments.discounts
    ]
    runs, summary = runner(trip, tasks, unit="round trips"), {}
    for kind, name in sources:
        for discount in arguments.discounts:
            chosen = [r for r in runs if (r["kind"], r["environment"], r["discount"]) == (kind, name, discount)]
            summary[f"{name}, {kind}, γ = {discount:g}"] = summary_of(chosen, "agreement at the states of the data")
    sentences = [
        f"{name}: {row['share, mean and worst'][1]:.1%} of the expert at worst" for name, row in summary.items()
    ]
    return study.Findings(summary, without_text(runs), None, "; ".join(sentences) + ".")


def good_and_bad(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All tasks with good and bad ends, and seeds."""
    asked = [
        [name.partition(",")[0], "features" in name, arguments.task_discount, arguments.task_episodes, seed]
        for name in arguments.tasks
        for seed in [arguments.first + number for number in study.seeds(arguments, arguments.task_seeds)]
    ]
    runs = runner(kinds, asked, unit="tasks")
    summary = {name: summary_of_kinds([run for run in runs if run["task"] == name]) for name in arguments.tasks}
    sentence = "; ".join(f"{name}: {row['validated']} of {row['runs']} validated" for name, row in summary.items())
    reasons = {name: [run["reason"] for run in runs if run["task"] == name] for name in arguments.tasks}
    table = [{key: value for key, value in run.items() if key != "reason"} for run in runs]
    return study.Findings(summary | {"reasons": reasons}, table, None, sentence + ".")


PARTS = {"trips": trips, "kinds": good_and_bad}
REPEATED = ("seeds", "task_seeds")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
