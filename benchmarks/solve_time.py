"""Ten million transitions for each of three actions, solved and certified, end to end.

    python benchmarks/solve_time.py [--samples 10000000] [--out benchmarks/results/solve_time.json]

The paper's random problem, 11 functions of both states, sampling included, threads on all cores: `solve` on ten million
transitions, then `certify` on as many fresh ones. Seconds of wall clock and of CPU, and the peak memory of the process.
"""

from __future__ import annotations

import resource
from typing import Any

import certirl
import harness


def run(*, samples: int = 10_000_000) -> dict[str, Any]:
    """Solve on this number of transitions of each action, then certify on as many fresh ones."""
    problem = certirl.problems.random_polynomial(seed=7)
    asked = {"discount": 0.7, "basis": certirl.Legendre(11), "columns": 11}
    certirl.solve(problem, expert=0, samples=10**6, rng=0, **asked)  # kernels compiled and loaded
    solving, solution = harness.clock(lambda: certirl.solve(problem, expert=0, samples=samples, rng=0, **asked))
    proving, certificate = harness.clock(
        lambda: certirl.certify(solution, problem, delta=0.05, tail=0, samples=samples, rng=1)
    )
    record = {
        "samples per action": samples,
        "solve": solving,
        "certify": proving,
        "together, wall": solving["wall"] + proving["wall"],
        "certified margin": certificate.margin,
        "true margin": problem.true_margin(solution.reward, discount=0.7),
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    print(record)
    return record


if __name__ == "__main__":
    harness.main(run)
