"""How often is the reward right? Share of the paper's random problems solved correctly, against the true dynamics.

    python benchmarks/accuracy.py [--seeds 120] [--workers 2] [--most 100000]

Prints a table and writes it to benchmarks/results/accuracy.json. "Correct" means that the expert is strictly optimal at
every state under the true dynamics (quadrature and a fine grid), not under the estimate. The peer is what a careful
user writes today: 20 bins and the tabular linear program.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linprog

import certirl
import harness
from certirl.problems import Problem

DISCOUNT = 0.7
SAMPLES = (1_000, 10_000, 100_000)


def library(problem: Problem, n: int, rng: int, **settings: object) -> certirl.Reward | None:
    return certirl.solve(problem, expert=0, discount=DISCOUNT, samples=n, rng=rng, progress=False, **settings).reward


def bins(problem: Problem, n: int, rng: int, count: int = 20) -> certirl.Reward | None:
    """20 bins and min ‖R‖₁ s.t. (P_π − P_a)(I − γP_π)⁻¹R ≥ 1, returned as its projection onto polynomials.

    The densities are polynomials of degree 10 in s', so only that projection enters any margin (Proposition 1).
    """
    data = certirl.steps.sample(problem, basis=certirl.Legendre(1), samples=n, rng=rng)
    edges = np.linspace(-1, 1, count + 1)
    P = []
    for action in range(problem.n_actions):
        s, t = (np.clip(np.digitize(x[:, 0], edges) - 1, 0, count - 1) for x in data.of_action(action))
        counts = np.zeros((count, count))
        np.add.at(counts, (s, t), 1.0)
        P.append((counts + 1e-9) / (counts + 1e-9).sum(axis=1, keepdims=True))
    inverse = np.linalg.inv(np.eye(count) - DISCOUNT * P[0])
    rows = np.concatenate([(P[0] - other) @ inverse for other in P[1:]])
    answer = linprog(np.ones(2 * count), A_ub=np.hstack([-rows, rows]), b_ub=-np.ones(len(rows)), bounds=(0, None))
    if answer.status != 0:
        return None
    levels = answer.x[:count] - answer.x[count:]
    basis = certirl.Legendre(11, (-1, 1))
    t, w = np.polynomial.legendre.leggauss(8)
    nodes = (edges[:-1, None] + edges[1:, None]) / 2 + t / count
    coefficients = np.einsum("bqk,q,b->k", basis.values(nodes.ravel()).reshape(count, 8, 11), w / count, levels)
    return certirl.Reward(basis, coefficients)


def log(problem: Problem, n: int, rng: int, **way: bool) -> certirl.Reward | None:
    """The defaults of `solve` on data drawn in a given way."""
    data = certirl.steps.sample(problem, basis=LEGENDRE, samples=n, rng=rng, **way)
    return certirl.solve(data, expert=0, basis=LEGENDRE, discount=DISCOUNT, progress=False).reward


LEGENDRE, FOURIER = certirl.Legendre(11), certirl.Fourier(11)
METHODS = {
    "20 bins + tabular L1 program": bins,
    "the paper: Fourier(11), mean, L1, cover 0.05": partial(
        library, basis=FOURIER, method=certirl.Program(form="mean", objective="l1", cover=0.05)
    ),
    "Legendre(11), mean, L1": partial(library, basis=LEGENDRE, method=certirl.Program(form="mean", objective="l1")),
    "Legendre(11), least squares, least variance": log,
    "  and well-placed states": partial(log, design=True),
    "  and common random numbers (defaults of solve)": partial(library, basis=LEGENDRE),
    "  with L1 instead of least variance": partial(library, basis=LEGENDRE, method=certirl.Program(objective="l1")),
    "nothing given, defaults of solve": library,
}


def trial(arguments: tuple[int, int]) -> list[bool]:
    seed, n = arguments
    problem = certirl.problems.random_polynomial(seed=seed, actions=3, degree=10)
    outcomes = []
    for method in METHODS.values():
        reward = method(problem, n, 1_000_000 + seed)
        outcomes.append(reward is not None and problem.true_margin(reward, discount=DISCOUNT) > 0)
    return outcomes


def run(*, seeds: int = 120, workers: int = 2, most: int = max(SAMPLES)) -> dict[str, Any]:
    """The share of problems that each method solves correctly, by the number of transitions up to ``most``."""
    sizes = [n for n in SAMPLES if n <= most]
    shares: dict[str, dict[int, float]] = {name: {} for name in METHODS}
    start = time.perf_counter()
    with ProcessPoolExecutor(workers) as pool:
        for n in sizes:
            outcomes = list(pool.map(trial, [(seed, n) for seed in range(seeds)]))
            for name, share in zip(METHODS, np.mean(outcomes, axis=0), strict=True):
                shares[name][n] = float(share)
    width = max(map(len, METHODS))
    print(f"{'solved correctly, ' + str(seeds) + ' problems':<{width}}" + "".join(f"{n:>10,}" for n in sizes))
    for name, row in shares.items():
        print(f"{name:<{width}}" + "".join(f"{row[n]:>10.0%}" for n in sizes))
    print(f"{time.perf_counter() - start:.0f} s; standard error about {0.5 / seeds**0.5:.0%}")
    return {"seeds": seeds, "discount": DISCOUNT, "shares": shares}


if __name__ == "__main__":
    harness.main(run)
