"""How long does the program take? Time of `recover` against k, exact on the continuum, for each basis and objective.

    python benchmarks/recover_time.py [--samples 100000] [--sizes 11 25 51 101 201]

Full matrices (k_s = k) estimated from noisy data are the hard case: every curve swings as fast as it can. The full
cover with as many points per function solves the same program without cutting planes, for the ratio.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import certirl
import harness
from certirl.fit.recover import OBJECTIVES

POINTS_PER_FUNCTION = 20


def run(
    *, samples: int = 100_000, sizes: tuple[int, ...] = (11, 25, 51, 101, 201), largest_cover: int = 101
) -> dict[str, Any]:
    """Seconds of `recover` for every family, size and objective; of the full cover as well up to ``largest_cover``."""
    problem = certirl.problems.random_polynomial(seed=7)
    rows = []
    print(
        f"{'basis':<10} {'k':>4} {'objective':<15} {'seconds':>8} {'rounds':>7} {'rows':>6} {'full cover / exact':>19}"
    )
    for family in (certirl.Legendre, certirl.Chebyshev, certirl.Fourier):
        largest = family(max(sizes))
        data = certirl.steps.sample(problem, basis=largest, samples=samples, rng=0)
        moments = certirl.steps.measure(data, basis=largest)
        for k in sizes:
            criterion = certirl.steps.bellman(certirl.steps.estimate(moments.leading(k, k)), discount=0.7)
            for objective in OBJECTIVES:
                recover, ratio = partial(certirl.steps.recover, criterion, objective=objective), math.nan
                times, answer = harness.clock(recover)
                seconds = times["wall"]
                if objective == "l1" and k <= largest_cover:
                    ratio = harness.wall_seconds(partial(recover, cover=2 / (POINTS_PER_FUNCTION * k))) / seconds
                print(
                    f"{family.kind:<10} {k:>4} {objective:<15} {seconds:>8.3f} {answer.rounds:>7} "
                    f"{len(answer.states):>6} {'' if math.isnan(ratio) else f'{ratio:.1f}':>19}  {answer.status}",
                    flush=True,
                )
                rows.append([family.kind, k, objective, seconds, answer.rounds, len(answer.states), answer.status])
    return {"rows": rows}


if __name__ == "__main__":
    harness.main(run)
