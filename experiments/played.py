"""Shared by the experiments with Gymnasium: expert → data → learned reward → plan on that reward alone → its return.

The expert plans on the environment's own reward. Returns are the environment's own; shares are on the scale where
random play is 0 and the expert 1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import certirl

EXPERT_POINTS = 201  # of an expert's grid along each of two coordinates: demonstrations do not follow the default
TORQUES = {"Pendulum-v1": [-2.0, 0.0, 2.0]}


class Setting(NamedTuple):
    """An environment: its simulator, its expert, and the mean returns of the expert and of random play."""

    simulator: Any
    expert: Any
    best: float
    random: float

    def share(self, earned: float) -> float:
        """A return on the scale where random play is 0 and the expert 1."""
        return (earned - self.random) / (self.best - self.random)


def expert_of(simulator: Any, discount: float) -> Any:
    """The expert of an environment, who plans on the environment's own reward."""
    points = EXPERT_POINTS if len(simulator.domain) == 2 else None
    return certirl.planning.plan(simulator, discount=discount, points=points)


@lru_cache(maxsize=8)
def setting(name: str, discount: float, episodes: int) -> Setting:
    """The setting of an environment, without noise."""
    simulator = certirl.gym.simulator(name, actions=TORQUES.get(name))
    expert = expert_of(simulator, discount)
    best, random = (float(returns(name, policy, episodes).mean()) for policy in (expert, None))
    return Setting(simulator, expert, best, random)


def returns(name: str, policy: Any, episodes: int) -> Any:
    """Returns under the environment's own reward ``[episodes]``, from the same first states for every policy."""
    return certirl.gym.episode_returns(name, policy, episodes=episodes, rng=0, actions=TORQUES.get(name))


def round_trip(
    name: str, source: Any, simulator: Any, *, discount: float, episodes: int, seed: int, **size: int
) -> tuple[Any, Any, dict[str, Any]]:
    """Learn a reward from a source, plan on it alone in a simulator; the solution, the plan, and numbers about both."""
    environment, start = setting(name, discount, episodes), time.perf_counter()
    solution = certirl.solve(source, expert=environment.expert, discount=discount, rng=seed, **size)
    seconds = time.perf_counter() - start
    planned = certirl.planning.plan(simulator, solution.reward, discount=discount)
    earned = returns(name, planned, episodes)
    numbers = {
        "environment": name,
        "discount": discount,
        "seed": seed,
        "return": float(earned.mean()),
        "worst episode": float(earned.min()),
        "expert": environment.best,
        "random": environment.random,
        "share": environment.share(float(earned.mean())),
        "model error": solution.stats.model_error,
        "seconds": seconds,
        "printed": str(solution),
    }
    return solution, planned, numbers


def summary_of(runs: Sequence[dict[str, Any]], agreement: str) -> dict[str, Any]:
    """What a reader quotes of round trips that differ by their seed; ``agreement`` names the flag that is reported."""
    earned, shares = [run["return"] for run in runs], [run["share"] for run in runs]
    return {
        "expert": runs[0]["expert"],
        "random": runs[0]["random"],
        "return, mean and worst": [float(np.mean(earned)), min(earned)],
        "share, mean and worst": [float(np.mean(shares)), min(shares)],
        f"{agreement}, worst": min(run[agreement] for run in runs),
        "seconds of solve, median": float(np.median([run["seconds"] for run in runs])),
        "printed, first seed": runs[0]["printed"].splitlines(),
    }


def without_text(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs as rows of a table, without what the solutions print."""
    return [{key: value for key, value in run.items() if key != "printed"} for run in runs]
