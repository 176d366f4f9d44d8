"""Experts who pay for what they do: what planning on a learned reward earns, with and without costs of actions.

    python experiments/costs.py [--only PART] [--fast] [--workers N] [--seed S] [--out DIR]

- queue: jobs join one of two queues or are rejected at a price (`certirl.problems.queue`).
- harvest: a stock of fish is added to at a price, left alone, or caught and sold (`certirl.problems.harvest`).

Each from the simulator without its reward and from a log, with a reward of the state alone, with what `certirl.solve`
chooses by itself (costs of actions where they close a gap), and with named features of states and actions. Then the
planner is given the learned reward alone, in the true dynamics. Returns are the problem's own, from the expert's own
states after 60 steps: random play is 0 %, the expert 100 %.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil, log
from typing import Any

import numpy as np

import certirl
import study

PROBLEMS = {"queue": certirl.problems.queue, "harvest": certirl.problems.harvest}
FEATURES: dict[str, dict[str, Any]] = {
    "queue": {
        "work": lambda states: states.sum(axis=1),
        "rejection": lambda states, action: (action == 2) * np.ones(len(states)),
    },
    "harvest": {
        "catch": lambda states, action: (action == 2) * states[:, 0],
        "release": lambda states, action: (action == 0) * np.ones(len(states)),
    },
}
STATE, CHOSEN, NAMED = "R(s)", "chosen", "features"
POINTS = {1: 401, 2: 101}  # of the plan's grid along each coordinate
BEFORE = 60  # steps of the expert until its states are its own
FORGOTTEN = 1e-3  # γ^T: returns are sums over T steps


@dataclass(frozen=True)
class Arguments:
    """Sources, rewards, and seeds that were not looked at before."""

    sources: tuple[str, ...] = ("simulator", "log")
    rewards: tuple[str, ...] = (STATE, CHOSEN, NAMED)
    rows: int = 9_000  # of a log; a simulator is asked for as many as by default
    episodes: int = 2_000
    seeds: int = 5
    first: int = 3000
    seed: int = 0


FAST = Arguments(sources=("log",), rewards=(STATE, CHOSEN), rows=3_000, episodes=200, seeds=1)


class Dynamics:
    """A problem without its reward: what `certirl.solve` is given."""

    def __init__(self, problem: Any) -> None:
        self.domain, self.n_actions, self.sample = problem.domain, problem.n_actions, problem.sample
        self.action_names = problem.action_names


def even_states(problem: Any, count: int, rng: np.random.Generator) -> Any:
    """States drawn evenly ``[n, d]``."""
    low, high = np.array(problem.domain).T
    return low + (high - low) * rng.random((count, len(low)))


def stepped(problem: Any, states: Any, actions: Any, seed: int) -> Any:
    """Next states ``[n, d]``, with the same noise whatever the actions are."""
    every = [problem.sample(states, action, np.random.default_rng(seed)) for action in range(problem.n_actions)]
    return np.stack(every)[actions, np.arange(len(states))]


def followed(problem: Any, policy: Any, states: Any, steps: int, seed: int) -> tuple[Any, float]:
    """The last states, and the mean discounted return; None plays at random."""
    rng, total = np.random.default_rng(seed), np.zeros(len(states))
    for step in range(steps):
        noise, chance = int(rng.integers(2**31)), rng.integers(problem.n_actions, size=len(states))
        actions = chance if policy is None else np.asarray(policy(states))
        total += problem.discount**step * problem.reward(states, actions)
        states = stepped(problem, states, actions, noise)
    return states, float(total.mean())


@lru_cache(maxsize=4)
def setting(name: str, episodes: int) -> tuple[Any, Any, float, float]:
    """The problem, the expert's own states, and the returns of the expert and of random play from them."""
    problem = PROBLEMS[name]()
    steps = ceil(log(FORGOTTEN) / log(problem.discount))
    even = even_states(problem, episodes, np.random.default_rng(1))
    own, _ = followed(problem, problem.expert, even, BEFORE, 2)
    best, random = (followed(problem, policy, own, steps, 3)[1] for policy in (problem.expert, None))
    return problem, own, best, random


def logged(problem: Any, rows: int, seed: int) -> certirl.Transitions:
    """Random actions at even states."""
    rng = np.random.default_rng(seed)
    states, actions = even_states(problem, rows, rng), rng.integers(problem.n_actions, size=rows)
    after = stepped(problem, states, actions, int(rng.integers(2**31)))
    of = {"domain": problem.domain, "n_actions": problem.n_actions, "action_names": problem.action_names}
    return certirl.Transitions(states, actions, after, **of)


def trip(task: list[Any]) -> dict[str, Any]:
    """Learn a reward with one seed, plan on it alone, and compare the returns."""
    name, source, form, rows, episodes, seed = task
    problem, own, best, random = setting(name, episodes)
    data = Dynamics(problem) if source == "simulator" else logged(problem, rows, seed)
    method = certirl.FeatureForm(FEATURES[name]) if form == NAMED else certirl.ValueForm(costs=form == CHOSEN)
    start = time.perf_counter()
    solution = certirl.solve(data, expert=problem.expert, discount=problem.discount, method=method, rng=seed)
    seconds = time.perf_counter() - start
    row = {"problem": name, "source": source, "form": form, "seed": seed, "seconds": seconds}
    row |= {"status": solution.status, "share": float("nan"), "of actions": False}
    if solution.reward is None:
        return row
    dynamics: Any = problem  # as the expert plans: with the same outcomes
    plan = certirl.planning.plan(dynamics, solution.reward, discount=problem.discount, points=POINTS[own.shape[1]])
    steps = ceil(log(FORGOTTEN) / log(problem.discount))
    earned = followed(problem, plan, own, steps, 3)[1]
    row |= {"share": (earned - random) / (best - random), "earned": earned, "expert": best, "random": random}
    costs = solution.reward.costs
    return row | {"of actions": solution.reward.of_actions, "costs": None if costs is None else costs.tolist()}


def numbers(name: str, arguments: Arguments, runner: study.Runner) -> study.Findings:
    """One problem: all sources, rewards and seeds."""
    sizes = [arguments.rows, arguments.episodes]
    cases = [(name, source, form) for source in arguments.sources for form in arguments.rewards]
    seeds = range(arguments.first + arguments.seed, arguments.first + arguments.seed + arguments.seeds)
    runs, summary = runner(trip, [[*case, *sizes, seed] for seed in seeds for case in cases], unit="rewards"), {}
    for case in cases:
        of_case = [row for row in runs if (row["problem"], row["source"], row["form"]) == case]
        shares = [row["share"] for row in of_case]
        summary[", ".join(case[1:])] = {
            "share, mean and worst": [float(np.mean(shares)), min(shares)],
            "of actions": sum(row["of actions"] for row in of_case),
            "validated": sum(row["status"] == "validated" for row in of_case),
            "runs": len(of_case),
        }
    worst = [f"{form}: {row['share, mean and worst'][1]:.1%} at worst" for form, row in summary.items()]
    return study.Findings(summary, runs, None, "; ".join(worst) + ".")


PARTS = {name: partial(numbers, name) for name in PROBLEMS}


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
