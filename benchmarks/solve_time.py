"""Ten million transitions for each of three actions, solved and certified, end to end.

    python benchmarks/solve_time.py [--samples 10000000] [--out benchmarks/results/solve_time.json]

The paper's random problem, 11 functions of both states, sampling included, threads on all cores: `solve` on so many
transitions, then `certify` on as many fresh ones. Seconds of wall clock and of CPU, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certirl
from certirl.studies import study


def clock(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Wall and CPU seconds, and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "solve_time.json")
    options = parser.parse_args()
    problem, n = certirl.problems.random_polynomial(seed=7), options.samples
    asked = {"discount": 0.7, "basis": certirl.Legendre(11), "columns": 11}
    certirl.solve(problem, samples=10**6, rng=0, **asked)  # kernels compiled and loaded
    solving, solution = clock(lambda: certirl.solve(problem, samples=n, rng=0, **asked))
    proving, certificate = clock(lambda: certirl.certify(solution, problem, delta=0.05, tail=0, samples=n, rng=1))
    record = {
        "samples per action": n,
        "solve": solving,
        "certify": proving,
        "together, wall": solving["wall"] + proving["wall"],
        "certified margin": certificate.margin,
        "true margin": problem.true_margin(solution.reward, discount=0.7),
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "versions": study.versions(),
    }
    print(json.dumps(record, indent=1))
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
