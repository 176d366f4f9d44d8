"""How long does the program take? Time of `recover` against k, exact on the continuum, for each basis and objective.

    python benchmarks/recover_time.py [--samples 100000] [--sizes 11 25 51 101 201]

Full matrices (k_s = k) estimated from noisy data are the hard case: every curve swings as fast as it can. The full
cover with as many points per function solves the same program without cutting planes, for the ratio.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import certirl
from certirl.fit.recover import OBJECTIVES

POINTS_PER_FUNCTION = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[11, 25, 51, 101, 201])
    parser.add_argument(
        "--largest-cover", type=int, default=101, help="largest k at which the full cover is solved too"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "recover_time.json")
    options = parser.parse_args()
    problem = certirl.problems.random_polynomial(seed=7)
    rows = []
    print(
        f"{'basis':<10} {'k':>4} {'objective':<15} {'seconds':>8} {'rounds':>7} {'rows':>6} {'full cover / exact':>19}"
    )
    for family in (certirl.Legendre, certirl.Chebyshev, certirl.Fourier):
        largest = family(max(options.sizes))
        data = certirl.sample(problem, basis=largest, samples=options.samples, rng=0)
        moments = certirl.measure(data, basis=largest)
        for k in options.sizes:
            criterion = certirl.bellman(certirl.estimate(moments.leading(k, k)), discount=0.7)
            for objective in OBJECTIVES:
                start = time.perf_counter()
                found = certirl.recover(criterion, objective=objective)
                seconds = time.perf_counter() - start
                ratio = float("nan")
                if objective == "l1" and k <= options.largest_cover:
                    start = time.perf_counter()
                    certirl.recover(criterion, objective=objective, cover=2 / (POINTS_PER_FUNCTION * k))
                    ratio = (time.perf_counter() - start) / seconds
                print(
                    f"{family.kind:<10} {k:>4} {objective:<15} {seconds:>8.3f} {found.rounds:>7} "
                    f"{len(found.states):>6} {'' if ratio != ratio else f'{ratio:.1f}':>19}  {found.status}",
                    flush=True,
                )
                rows.append([family.kind, k, objective, seconds, found.rounds, len(found.states), found.status])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
