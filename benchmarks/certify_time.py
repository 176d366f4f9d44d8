"""What does a certificate cost? CPU seconds per million pairs: its pass over data, the estimation pass, sampling.

    OMP_NUM_THREADS=1 python benchmarks/certify_time.py [--pairs 300000] [--repeats 9]

Both passes walk through the same pieces in memory, three actions, with compiled kernels (`certirl[fast]`) and with
NumPy alone; all four take turns, and the best CPU time of each counts. Only ratios carry over to another machine.
Prints a table and writes benchmarks/results/certify_time.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

import certirl
import harness
from certirl.data.moments import LITTLE, accumulate
from certirl.data.simulator import draw
from certirl.data.transitions import Piece
from certirl.functions.bases import Basis
from certirl.ground.work import on
from certirl.proof.case import Case
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates

FAMILIES = (certirl.Legendre, certirl.Chebyshev, certirl.Fourier)
SIZES = ((11, 11), (11, 3), (21, 7))


@dataclass(frozen=True)
class InMemory:
    """Pieces as one chunk; how many states it says it has decides on the kernel."""

    held: list[Piece]
    n: int

    def chunks(self) -> list[InMemory]:
        """Itself."""
        return [self]

    def pieces(self) -> Iterator[Piece]:
        """All of them."""
        return iter(self.held)


def measure(basis: Basis, columns: int, paired: bool, pairs: int, repeats: int) -> dict[str, float]:
    """The best CPU seconds per million pairs of everything, taken in turn."""
    problem = certirl.problems.random_polynomial(seed=7)
    basis = basis.on(problem.domain)
    narrow, held = basis.resized(columns), []
    sampling = harness.cpu_seconds(lambda: held.extend(draw(problem, basis, pairs // 3, 0, design=True, paired=paired)))
    reward = certirl.Reward(basis, np.random.default_rng(0).normal(size=basis.size))
    case = Case.of(0, narrow, n_actions=3, discount=0.7, tail=0)
    surrogates = fit_surrogates(case, reward, held[:3]).surrogates
    kinds = {"numpy": InMemory(held, 0)}
    if find_spec("numba"):
        kinds["fast"] = InMemory(held, LITTLE)
    passes = {}
    for kind, data in kinds.items():
        passes[f"estimate {kind}"] = lambda data=data: accumulate(data, [(basis, narrow)], n_actions=3)
        passes[f"certify {kind}"] = lambda data=data: gather(surrogates, data)
    for work in passes.values():
        work()  # compiled, and in memory
    millions = sum(piece.size for piece in held) / 1e6
    best = harness.best_of(passes, repeats, harness.cpu_seconds)
    return {name: taken / millions for name, taken in best.items()} | {"sampling": sampling / millions}


def run(*, pairs: int = 300_000, repeats: int = 9) -> dict[str, Any]:
    """Every family and size, with common random numbers and without."""
    rows = []
    print("CPU seconds per million pairs, three actions" + " " * 18 + "[fast]" + " " * 22 + "NumPy")
    print(f"{'family':<10} {'k':>3} {'k_s':>4} {'data':<9} {'sampling':>8}", end="")
    print(f" {'estimate':>9} {'certify':>8} {'ratio':>6}" * 2)
    with on(1):
        for paired, (k, ks), family in product((True, False), SIZES, FAMILIES):
            times = measure(family(k), ks, paired, pairs, repeats)
            data = "paired" if paired else "unpaired"
            print(f"{family.kind:<10} {k:>3} {ks:>4} {data:<9} {times['sampling']:>8.3f}", end="")
            for kind in ("fast", "numpy"):
                if f"certify {kind}" in times:
                    estimate, certify = times[f"estimate {kind}"], times[f"certify {kind}"]
                    times[f"ratio {kind}"] = certify / estimate
                    print(f" {estimate:>9.3f} {certify:>8.3f} {certify / estimate:>6.2f}", end="")
                else:
                    print(f" {'–':>9} {'–':>8} {'–':>6}", end="")
            print(flush=True)
            rows.append(
                {"family": family.kind, "k": k, "k_s": ks, "data": data} | {n: round(t, 4) for n, t in times.items()}
            )
    return {"rows": rows}


if __name__ == "__main__":
    harness.main(run, "numba")
