"""Evidence for a certificate from a log: millions of transitions that one CPU second sums up.

    OMP_NUM_THREADS=1 python benchmarks/evidence.py [--columns 3 9 15] [--samples N] [--repeats N] [--out FILE]

A random reward of a random polynomial problem with three actions. Surrogates of the value are fitted to fresh
transitions, then a log of ``samples`` transitions of each action is read once and everything is summed that the
certificate of this reward needs; that pass is timed, in CPU seconds of all threads. Best of ``repeats``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import certirl
import harness
from certirl.data.simulator import draw
from certirl.proof.case import Case
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates

DISCOUNT, TRAINING, LEAST = 0.7, 20_000, 11  # transitions of each action for surrogates; fewest functions of the value


def run(*, columns: tuple[int, ...] = (3, 9, 15), samples: int = 1_000_000, repeats: int = 4) -> dict[str, Any]:
    """Time one pass over the log for each number of columns."""
    problem, steps, found = certirl.problems.random_polynomial(seed=7), dict[int, Any](), dict[int, int]()
    for k in columns:
        basis = certirl.Legendre(max(LEAST, k)).on(problem.domain)
        case = Case.of(0, basis.resized(k), n_actions=problem.n_actions, discount=DISCOUNT, tail=0.0)
        reward = certirl.Reward(basis, np.random.default_rng(0).normal(size=basis.size))
        ((surrogate,), _) = fit_surrogates(case, reward, draw(problem, basis, TRAINING, 0, paired=True))
        log = certirl.steps.sample(problem, basis=basis, samples=samples, rng=0)
        steps[k], found[k] = partial(gather, [surrogate], log), len(log)
    seconds = harness.best_of(steps, repeats, harness.cpu_seconds)
    speed = {str(k): found[k] / seconds[k] / 1e6 for k in columns}
    for k, millions in speed.items():
        print(f"{k} columns: {millions:.1f} million transitions in a CPU second")
    return {"transitions": found[columns[0]], "million transitions per CPU second, by columns": speed}


if __name__ == "__main__":
    harness.main(run, "numba")
