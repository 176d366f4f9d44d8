"""Systems without noise, proved by cells with δ = 0: what is decided in MountainCar and Pendulum, and what it costs.

    python experiments/deterministic.py [--fast] [--workers N] [--seed S] [--out DIR]

The expert is greedy for a planned value V̂, and the reward R = V̂ − γ max_a V̂∘f_a; Pendulum has the torques −2, 0 and 2.
Cells are those of the plan, each divided into `refine` parts along each coordinate.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import certirl
import study

SYSTEMS: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "mountain car": ("MountainCar-v0", {}, (181, 141)),
    "pendulum": ("Pendulum-v1", {"actions": 3}, (100, 101)),
}


@dataclass(frozen=True)
class Arguments:
    """Which systems, and into how many parts each side of a cell of the plan is divided."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    refine: int = 8
    discount: float = 0.9
    seed: int = 0


FAST = Arguments(systems=("pendulum",), refine=1)


def trial(task: Sequence[Any]) -> dict[str, Any]:
    """Plan, prove, and say how much is decided."""
    name, refine, discount, seed = task
    environment, settings, points = SYSTEMS[name]
    simulator = certirl.gym.simulator(environment, **settings)
    plan = certirl.planning.plan(simulator, discount=discount, points=points)
    start, used = time.perf_counter(), time.process_time()
    proof = certirl.certify_deterministic(simulator, plan, refine=refine, rng=seed)
    return {
        "system": name,
        "cells": len(proof.margins),
        "decided": proof.decided,
        "regret, of the span": proof.regret,
        "mean regret, of the span": float(proof.regrets[proof.live].mean() / proof.span),
        "seconds": time.perf_counter() - start,
        "processor seconds": time.process_time() - used,
        "printed": str(proof),
    }


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All systems."""
    tasks = [[name, arguments.refine, arguments.discount, arguments.seed] for name in arguments.systems]
    runs = runner(trial, tasks, unit="proofs")
    summary = {run["system"]: {key: value for key, value in run.items() if key != "system"} for run in runs}
    sentence = "; ".join(f"{run['system']}: {run['decided']:.1%} of {run['cells']:,} cells" for run in runs)
    table = [{key: value for key, value in run.items() if key != "printed"} for run in runs]
    return study.Findings(summary, table, None, f"Decided without any probability of error: {sentence}.")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
