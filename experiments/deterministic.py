"""Systems without noise, proved by cells with δ = 0: what is decided in MountainCar and Pendulum, and what it costs.

    python experiments/deterministic.py [--fast] [--workers N] [--seed S] [--out DIR]

The expert is planned on the environment's own reward; Pendulum has the torques −2, 0 and 2. Two rewards
R = V̂ − γ max_a V̂∘f_a are certified: with the planned V̂, and with the V̂ that `certirl.solve` learns from the expert's
actions. Cells are those of the grid of V̂, each divided into `refine` parts along each coordinate.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import certirl
import study
from certirl.ground.status import percent_up

SYSTEMS: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "mountain car": ("MountainCar-v0", {}, (181, 141)),
    "pendulum": ("Pendulum-v1", {"actions": 3}, (100, 101)),
}
REWARDS = ("planned", "learned")


@dataclass(frozen=True)
class Arguments:
    """Which systems, and into how many parts each side of a cell of the grid is divided."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    refine: tuple[int, ...] = (4, 8)
    discount: float = 0.9
    seed: int = 0


FAST = Arguments(systems=("pendulum",), refine=(1,))


def trial(task: Sequence[Any]) -> dict[str, Any]:
    """Plan, learn if asked, prove, check the file, and say how much is decided."""
    name, kind, refine, discount, seed = task
    environment, settings, points = SYSTEMS[name]
    simulator = certirl.gym.simulator(environment, **settings)
    expert = certirl.planning.plan(simulator, discount=discount, points=points)
    value = expert
    if kind == "learned":
        value = certirl.solve(simulator, expert=expert, discount=discount, rng=seed, progress=False)
    start, used = time.perf_counter(), time.process_time()
    declared = certirl.dynamics.Deterministic(points=points, refine=refine)
    proof = certirl.certify(value, simulator, expert=expert, dynamics=declared, rng=seed)
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    with TemporaryDirectory() as folder:
        path = proof.save(Path(folder) / "proof.npz")
        start, size = time.process_time(), path.stat().st_size
        verdict = certirl.check(path).verdict
        checking = time.process_time() - start
    count = int(proof.live.sum())
    return {
        "system": name,
        "reward": kind,
        "refine": refine,
        "cells": count,
        "decided": proof.decided_share,
        "beside a switch": float(proof.beside.sum() / count),
        "undecided elsewhere": float((proof.live & ~proof.beside & ~proof.decided).sum() / count),
        "regret, of the span": proof.relative_regret,
        "mean regret, of the span": float(proof.regrets[proof.live].mean() / proof.value_span),
        "seconds": seconds,
        "processor seconds": processor,
        "file, MB": size / 1e6,
        "check": verdict,
        "processor seconds of the check": checking,
        "printed": str(proof),
    }


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All systems, rewards and sizes of cells."""
    tasks = [
        [name, kind, refine, arguments.discount, arguments.seed]
        for name in arguments.systems
        for kind in REWARDS
        for refine in arguments.refine
    ]
    runs = runner(trial, tasks, unit="proofs")
    summary = {
        f"{run['system']}, {run['reward']}, refine {run['refine']}": {
            key: value for key, value in run.items() if key not in ("system", "reward", "refine")
        }
        for run in runs
    }
    finest = [run for run in runs if run["refine"] == max(arguments.refine)]
    sentence = "; ".join(
        f"{run['system']}, {run['reward']} V: {floor(1000 * run['decided']) / 1000:.1%} of {run['cells']:,} cells, "
        f"regret at most {percent_up(run['regret, of the span'])} of the span"
        for run in finest
    )
    table = [{key: value for key, value in run.items() if key != "printed"} for run in runs]
    return study.Findings(summary, table, None, f"Decided without any probability of error: {sentence}.")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
