"""Terminal states that are only estimated: the round trips of `environments.py` with noise, and from logged episodes.

    python experiments/ends.py [--fast] [--workers N] [--seed S] [--out DIR]

- noise: CartPole-v1 with process noise, asked as a simulator; planning on the learned reward in the noisy dynamics.
- logs: CartPole-v1 and MountainCar-v0 from logged episodes alone (random play, the expert interrupted by chance half
  of the time, and the expert), which mark their terminal states; the simulator only plans on the reward.

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


@dataclass(frozen=True)
class Arguments:
    """Environments, discounts, noise as a share of the box, and seeds that were not looked at before."""

    noisy: tuple[str, ...] = ("CartPole-v1",)
    logged: tuple[str, ...] = ("CartPole-v1", "MountainCar-v0")
    discounts: tuple[float, ...] = (0.9, 0.99)
    noise: float = 0.005
    samples: int = 30_000
    seeds: int = 5
    first: int = 3000
    episodes: int = 50
    seed: int = 0


FAST = Arguments(noisy=(), logged=("MountainCar-v0",), discounts=(0.9,), seeds=1, episodes=10)


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
    return certirl.from_episodes(played, domain=simulator.domain, n_actions=simulator.n_actions, outside=OUTSIDE)


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


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All kinds of data, environments, discounts and seeds."""
    kinds = [("logs", name) for name in arguments.logged] + [("noise", name) for name in arguments.noisy]
    sizes = [arguments.noise, arguments.samples, arguments.episodes]
    tasks = [
        [kind, name, discount, *sizes, arguments.first + arguments.seed + number]
        for number in range(arguments.seeds)
        for kind, name in kinds
        for discount in arguments.discounts
    ]
    runs, summary = runner(trip, tasks, unit="round trips"), {}
    for kind, name in kinds:
        for discount in arguments.discounts:
            trips = [r for r in runs if (r["kind"], r["environment"], r["discount"]) == (kind, name, discount)]
            summary[f"{name}, {kind}, γ = {discount:g}"] = summary_of(trips, "agreement at the states of the data")
    sentence = "; ".join(
        f"{name}: {row['share, mean and worst'][1]:.1%} of the expert at worst" for name, row in summary.items()
    )
    return study.Findings(summary, without_text(runs), None, sentence + ".")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
