"""Rewards of three named features under other dynamics than they were learned in.

    python experiments/transfer.py [--fast] [--workers N] [--seed S] [--out DIR]

An expert plans on the own reward of MountainCar-v0 or CartPole-v1, γ = 0.99. `certirl.solve` sees the simulator and the
expert's actions, once with three named features and once with its defaults. Then the dynamics change: gravity × 1.2 or
force × 0.8 in MountainCar, pushes to the other side in CartPole. Played there: a plan on the reward of features, a plan
on the reward of the defaults, and the old expert. Returns are on the scale random = 0 %, an expert planned in the new
dynamics = 100 %.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import certirl
import study
from certirl import plots
from played import Setting, expert_of

FEATURES: dict[str, dict[str, Any]] = {
    "MountainCar-v0": {
        "goal": "terminal",
        "speed²": lambda states: (states[:, 1] / 0.07) ** 2,
        "height": lambda states: np.sin(3 * states[:, 0]),
    },
    "CartPole-v1": {
        "fallen": "terminal",
        "angle²": lambda states: (states[:, 2] / 0.21) ** 2,
        "position²": lambda states: (states[:, 0] / 2.4) ** 2,
    },
}
CHANGES: dict[str, list[Any]] = {
    "gravity × 1.2": ["MountainCar-v0", {"gravity": 1.2}],
    "force × 0.8": ["MountainCar-v0", {"force": 0.8}],
    "reversed pushes": ["CartPole-v1", {"force_mag": -1.0}],
}
SAMPLES = {"MountainCar-v0": 10_000, "CartPole-v1": 30_000}
PLAYERS = ("features", "defaults", "old expert")


@dataclass(frozen=True)
class Arguments:
    """Fresh seeds: these were not looked at when defaults were chosen."""

    changes: tuple[str, ...] = tuple(CHANGES)
    discount: float = 0.99
    seeds: int = 5
    first: int = 1000
    episodes: int = 50
    seed: int = 0


FAST = Arguments(changes=("gravity × 1.2",), seeds=1, episodes=10)


def environment(name: str, factors: tuple[tuple[str, float], ...] = ()) -> Any:
    """An environment with some constants multiplied."""
    import gymnasium

    env = gymnasium.make(name)
    for constant, factor in factors:
        setattr(env.unwrapped, constant, factor * getattr(env.unwrapped, constant))
    return env


def returns(env: Any, policy: Any, episodes: int) -> float:
    """The mean return under the environment's own reward, from the same first states for every policy."""
    return float(certirl.gym.episode_returns(env, policy, episodes=episodes, rng=0).mean())


@lru_cache(maxsize=8)
def setting(name: str, factors: tuple[tuple[str, float], ...], discount: float, episodes: int) -> Setting:
    """The simulator of an environment, an expert planned in it, and the returns of the expert and of random play."""
    domain = None if not factors else setting(name, (), discount, episodes).simulator.domain
    env = environment(name, factors)
    simulator = certirl.gym.simulator(env, domain=domain)
    expert = expert_of(simulator, discount)
    return Setting(simulator, expert, returns(env, expert, episodes), returns(env, None, episodes))


@lru_cache(maxsize=16)
def learned(name: str, discount: float, episodes: int, seed: int, *, named: bool) -> Any:
    """The solution from the original dynamics, with named features or with the defaults."""
    original = setting(name, (), discount, episodes)
    asked = certirl.FeatureForm(FEATURES[name]) if named else None
    size = {"samples": SAMPLES[name], "method": asked}
    return certirl.solve(original.simulator, expert=original.expert, discount=discount, rng=seed, **size)


def trip(task: list[Any]) -> dict[str, Any]:
    """Learn with one seed, change the dynamics, and play."""
    change, discount, episodes, seed = task
    name, constants = CHANGES[change]
    factors = tuple(constants.items())
    new, env = setting(name, factors, discount, episodes), environment(name, factors)
    numbers: dict[str, Any] = {"change": change, "environment": name, "seed": seed, "best": new.best}
    policies = {"old expert": setting(name, (), discount, episodes).expert}
    for player, named in (("features", True), ("defaults", False)):
        solution = learned(name, discount, episodes, seed, named=named)
        policies[player] = certirl.planning.plan(new.simulator, solution)
        numbers |= {f"{player}, reward": str(solution.reward), f"{player}, status": solution.status}
    return numbers | {player: new.share(returns(env, policies[player], episodes)) for player in PLAYERS}


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All changes and seeds."""
    tasks = [
        [change, arguments.discount, arguments.episodes, arguments.first + arguments.seed + number]
        for change in arguments.changes
        for number in range(arguments.seeds)
    ]
    runs, summary = runner(trip, tasks, unit="round trips"), {}
    for change in arguments.changes:
        trips = [run for run in runs if run["change"] == change]
        summary[change] = {
            player: {"mean": float(np.mean([run[player] for run in trips])), "worst": min(run[player] for run in trips)}
            for player in PLAYERS
        } | {"rewards": sorted({run["features, reward"] for run in trips})}
    sentence = "; ".join(
        f"{change}: planning on three named features earns {row['features']['worst']:.0%} in the worst of "
        f"{arguments.seeds} seeds, the old expert {row['old expert']['worst']:.0%}"
        for change, row in summary.items()
    )
    return study.Findings(summary, runs, draw(runs, arguments), sentence + ".")


def draw(runs: list[dict[str, Any]], arguments: Arguments) -> Any:
    """The share of the new expert's return, for each change and player: one dot for each seed."""
    figure, axes = plots.panels(1, 1, size=(7, 3.6))
    ax = axes[0, 0]
    for place, change in enumerate(arguments.changes):
        for number, player in enumerate(PLAYERS):
            shares = [100 * run[player] for run in runs if run["change"] == change]
            at = place + 0.2 * (number - 1) + np.linspace(-0.05, 0.05, len(shares))
            ax.plot(at, shares, "o", color=plots.COLOURS[number], ms=4, label=None if place else player)
    ax.set_xticks(range(len(arguments.changes)), arguments.changes)
    ax.set_ylabel("return in the new dynamics\n(random 0 %, its expert 100 %)")
    ax.legend(fontsize="small")
    return figure


REPEATED = ("seeds",)


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
