"""How time and memory of a solution for an expert that depends on the state grow with states, coordinates and actions.

    OMP_NUM_THREADS=1 python benchmarks/policy_cost.py [--states 3000 10000] [--coordinates 1 2] [--out FILE]

Stochastic navigation in a unit box of d coordinates: 2d + 1 actions move by a step along one coordinate or not at all,
with noise, and the expert moves along the coordinate in which it is farthest from a goal. `solve` runs with its
defaults, trials by planning included, on one thread of a fresh process for each size. CPU seconds, and the peak memory
of the process above that after importing certirl, which includes the libraries that `solve` imports later.

`limits` compares the two sizes with limits, five actions in two coordinates, with what is asked of them: 10,000 states
in 5 seconds and 300 MB, 30,000 states in 15 seconds and 500 MB. Seconds on a busy core are longer.
"""

from __future__ import annotations

import multiprocessing
import resource
from typing import Any

import numpy as np

import certirl
import harness

STEP, NOISE, DISCOUNT = 0.08, 0.02, 0.95
LIMITS = {"10000": {"cpu": 5.0, "MB": 300.0}, "30000": {"cpu": 15.0, "MB": 500.0}}  # in two coordinates


class Navigation:
    """Steps along one coordinate of a unit box, with noise."""

    def __init__(self, coordinates: int) -> None:
        self.domain, self.n_actions = ((0.0, 1.0),) * coordinates, 2 * coordinates + 1
        unit = np.eye(coordinates)
        self.steps = STEP * np.concatenate([np.zeros((1, coordinates)), unit, -unit])

    def sample(self, states: Any, action: int, rng: np.random.Generator) -> Any:
        """Next states ``[n, d]``, stopped at the edges."""
        return np.clip(states + self.steps[action] + rng.normal(0, NOISE, states.shape), 0, 1)


def towards_the_goal(states: Any) -> Any:
    """The action along the coordinate that is farthest from 0.7; none within half a step of it."""
    missing = 0.7 - states
    axis = np.abs(missing).argmax(axis=1)
    along = missing[np.arange(len(states)), axis]
    return np.where(np.abs(along) < STEP / 2, 0, 1 + axis + states.shape[1] * (along < 0))


def megabytes() -> float:
    """The peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measured(states: int, coordinates: int) -> dict[str, Any]:
    """One solution: time, memory and what came of it."""
    before = megabytes()
    asked: dict[str, Any] = {"expert": towards_the_goal, "discount": DISCOUNT, "samples": states, "rng": 0, "map": 1}
    times, solution = harness.clock(lambda: certirl.solve(Navigation(coordinates), **asked))
    share = solution.stats.greedy_share
    return {
        **times,
        "MB": megabytes() - before,
        "functions of V": solution.basis.size,
        "V prefers the expert's action": None if share is None else share.count / share.n,
        "status": solution.status,
    }


def run(
    *, states: tuple[int, ...] = (3_000, 10_000, 30_000, 100_000), coordinates: tuple[int, ...] = (1, 2, 3, 4)
) -> Any:
    """Measure every size in a process of its own."""
    found: dict[str, dict[str, Any]] = {}
    for d in coordinates:
        for n in states:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                row = found.setdefault(f"{d} coordinates", {})[str(n)] = pool.apply(measured, (n, d))
            size = f"{d} coordinates, {2 * d + 1} actions, {n:,} states"
            print(f"{size}: {row['cpu']:.1f} s, {row['MB']:.0f} MB, {row['status']}")
    plane = found.get("2 coordinates", {})
    limits = {
        n: {key: plane[n][key] / most for key, most in limit.items()} for n, limit in LIMITS.items() if n in plane
    }
    return {"policy solves": found, "limits": {"asked": LIMITS, "used, as a share": limits}}


if __name__ == "__main__":
    harness.main(run)
