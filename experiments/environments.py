"""Round trips: expert → data → learned reward → plan on that reward alone → return under the environment's own.

    python experiments/environments.py [--fast] [--workers N] [--seed S] [--out DIR]

MountainCar-v0, Pendulum-v1 with three torques and CartPole-v1 of gymnasium. The expert plans on the environment's own
reward on a fine grid; `certirl.solve` sees the simulator and the expert's actions, with its defaults and no setting of
any environment; then the same planner is given nothing but the learned reward. Returns are on the scale random = 0 %,
expert = 100 %; agreement with the expert is counted on the inner 60 % of the box.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import study
from certirl import plots
from played import round_trip, setting, summary_of, without_text

SAMPLES = {"MountainCar-v0": 10_000, "Pendulum-v1": 100_000, "CartPole-v1": 100_000}
INNER = 0.6


@dataclass(frozen=True)
class Arguments:
    """Fresh seeds: these were not looked at when defaults were chosen."""

    environments: tuple[str, ...] = ("MountainCar-v0", "Pendulum-v1", "CartPole-v1")
    discounts: tuple[float, ...] = (0.9, 0.99)
    seeds: int = 5
    first: int = 1000
    episodes: int = 100
    seed: int = 0


FAST = Arguments(environments=("MountainCar-v0",), discounts=(0.9,), seeds=1, episodes=20)


def trip(task: list[Any]) -> dict[str, Any]:
    """Learn a reward with one seed, plan on it, and compare the returns."""
    name, discount, episodes, seed = task
    environment = setting(name, discount, episodes)
    simulator, expert = environment.simulator, environment.expert
    settings = {"discount": discount, "episodes": episodes, "seed": seed}
    solution, planned, numbers = round_trip(name, simulator, simulator, samples=SAMPLES[name], **settings)
    low, high = np.array(simulator.domain).T
    rng = np.random.default_rng([seed, 7])
    states = (low + high) / 2 + INNER * (high - low) * (rng.random((20_000, len(low))) - 0.5)
    states = states[~simulator.terminal(states)]
    stats, outside = solution.stats, solution.stats.outside_share
    return numbers | {
        "agreement": float((planned(states) == expert(states)).mean()),
        "greedy share": [stats.greedy_share.count, stats.greedy_share.n],
        "outside share": [outside.count, outside.n],
        "growth": stats.growth,
        "unexplained": stats.unexplained,
        "ties": stats.ties,
    }


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All environments, discounts and seeds."""
    tasks = [
        [name, discount, arguments.episodes, arguments.first + arguments.seed + number]
        for name in arguments.environments
        for discount in arguments.discounts
        for number in range(arguments.seeds)
    ]
    runs, summary = runner(trip, tasks, unit="round trips"), {}
    for name in arguments.environments:
        for discount in arguments.discounts:
            trips = [run for run in runs if run["environment"] == name and run["discount"] == discount]
            summary[f"{name}, γ = {discount:g}"] = summary_of(trips, "agreement")
    sentence = "; ".join(
        f"{name}: worst of {arguments.seeds} seeds at {row['share, mean and worst'][1]:.1%} of the expert, "
        f"agreement at least {row['agreement, worst']:.3f}"
        for name, row in summary.items()
    )
    return study.Findings(summary, without_text(runs), draw(runs, arguments), sentence + ".")


def draw(runs: list[dict[str, Any]], arguments: Arguments) -> Any:
    """The share of the expert's return on the left, agreement on the right: one dot for each seed."""
    figure, axes = plots.panels(1, 2, size=(12, 3.8))
    names = [
        f"{name.partition('-')[0]}\nγ = {discount:g}"
        for name in arguments.environments
        for discount in arguments.discounts
    ]
    kinds = [(name, discount) for name in arguments.environments for discount in arguments.discounts]
    for ax, key in zip(axes[0], ("share", "agreement"), strict=True):
        for place, (name, discount) in enumerate(kinds):
            shown = [run[key] for run in runs if run["environment"] == name and run["discount"] == discount]
            spread = place + np.linspace(-0.15, 0.15, len(shown))
            ax.plot(spread, shown, "o", color=plots.COLOURS[arguments.discounts.index(discount)], ms=5)
        ax.set_xticks(range(len(kinds)), names, fontsize="x-small")
    axes[0, 0].axhline(1.0, color="0.2", lw=1)
    axes[0, 0].axhline(0.97, color="0.2", lw=1, ls=":")
    axes[0, 0].set_ylabel("return of planning on R alone\n(random 0, expert 1)")
    axes[0, 1].set_ylabel("agreement with the expert\n(inner 60 % of the box)")
    return figure


REPEATED = ("seeds",)


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
