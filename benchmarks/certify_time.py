"""What does a certificate cost? CPU time of the certificate's pass over a million pairs, against the estimation pass.

    python benchmarks/certify_time.py [--pairs 1000000]

Sampling is left out: both passes walk through the same pieces in memory, in turn, three times; medians are compared.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from pathlib import Path

import numpy as np

import certirl
from certirl.certify import conclude
from certirl.evidence import fit_surrogate, gather
from certirl.moments import accumulate
from certirl.simulator import draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "certify_time.json")
    options = parser.parse_args()
    problem, rows = certirl.problems.random_polynomial(seed=7), []
    per_action = options.pairs // problem.n_actions
    print(f"{options.pairs:,} pairs, CPU seconds")
    print(f"{'k':>4} {'k_s':>4} {'estimate':>9} {'certify':>9} {'ratio':>6} {'MB':>6}")
    for k, ks in ((11, 3), (11, 11), (21, 7), (51, 11)):
        basis = certirl.Legendre(k).on(problem.domain)
        narrow = basis.resized(ks)
        pieces = list(draw(problem, basis, per_action, 0, design=True, paired=True))
        reward = certirl.Reward(basis, np.random.default_rng(0).normal(size=k))
        surrogate = fit_surrogate(reward, pieces[:3], columns=narrow, n_actions=3, discount=0.7, expert=0)
        times = []
        for _ in range(3):
            start = time.process_time()
            accumulate(pieces, [(basis, narrow)], n_actions=3)
            middle = time.process_time()
            conclude(surrogate, gather(surrogate, pieces), delta=0.05, tail=0)
            times.append((middle - start, time.process_time() - middle))
        estimate, certify = np.median(times, axis=0)
        tracemalloc.start()
        gather(surrogate, pieces)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        print(f"{k:>4} {ks:>4} {estimate:>9.2f} {certify:>9.2f} {certify / estimate:>6.1f} {peak:>6.1f}", flush=True)
        rows.append({"k": k, "k_s": ks, "estimate": estimate, "certify": certify, "extra MB": peak})
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
