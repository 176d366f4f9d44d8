"""How time and memory of every step grow with n, k, k_s and |A|.

    OMP_NUM_THREADS=1 python benchmarks/cost.py [--rows 1000000] [--repeats 3] [--out benchmarks/results/cost.json]

CPU seconds of one thread, the best of several turns, for logs of the paper's random problem in memory: Legendre
functions, kernels as `certirl` chooses them. Memory is what a pass over drawn data allocates at its peak.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import certirl
import harness
from certirl.data.moments import accumulate
from certirl.data.simulator import draw
from certirl.fit.recover import Recovery
from certirl.ground.work import on


def log_of(rows: int, actions: int = 3) -> certirl.Transitions:
    """A log of this many transitions in all, the same number of each action."""
    problem = certirl.problems.random_polynomial(seed=7, actions=actions)
    return certirl.steps.sample(problem, basis=certirl.Legendre(11), samples=rows // actions, rng=0)


def moments_of(log: certirl.Transitions, k: int, columns: int) -> certirl.steps.Moments:
    return certirl.steps.measure(log, basis=certirl.Legendre(k), columns=columns, map=1)


def reward_of(moments: certirl.steps.Moments) -> Recovery:
    return certirl.steps.recover(certirl.steps.bellman(certirl.steps.estimate(moments), discount=0.7))


def proof_of(log: certirl.Transitions, reward: Any, columns: int) -> certirl.Certificate:
    asked: dict[str, Any] = {"discount": 0.7, "expert": 0, "delta": 0.05, "tail": 0}
    return certirl.certify(reward, log, columns=certirl.Legendre(columns), map=1, **asked)


def peak_megabytes(rows: int, k: int) -> float:
    """What a pass over draws allocates at most, beside what is there."""
    problem, basis = certirl.problems.random_polynomial(seed=7), certirl.Legendre(k)
    tracemalloc.start()
    with on(1):
        accumulate(draw(problem, basis, rows // 3, 0), [(basis, basis)], n_actions=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def steps(rows: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Everything that is timed: by what it shows, then by the value that changes."""
    log = log_of(rows)
    reward = reward_of(moments_of(log, 11, 3)).reward
    sizes = (5, 11, 25, 51, 101, 201)
    measured = {k: moments_of(log, k, 3) for k in (11, 25, 51, 101)}
    logs = {n: log_of(n) for n in (rows, 4 * rows, 16 * rows)}
    choices = {actions: log_of(rows, actions) for actions in (2, 3, 6, 12)}
    return {
        "moments, k rows and k columns": {f"k = {k}": partial(moments_of, log, k, k) for k in sizes},
        "moments, k rows and 3 columns": {f"k = {k}": partial(moments_of, log, k, 3) for k in sizes},
        "reward from moments, 3 columns": {f"k = {k}": partial(reward_of, part) for k, part in measured.items()},
        "certificate": {f"k_s = {c}": partial(proof_of, log, reward, c) for c in (3, 7, 11, 15)},
        "moments, k = 11, n transitions": {f"n = {n:,}": partial(moments_of, part, 11, 11) for n, part in logs.items()},
        "certificate, k_s = 3, n transitions": {
            f"n = {n:,}": partial(proof_of, part, reward, 3) for n, part in logs.items()
        },
        "moments, k = 11, |A| actions": {
            f"|A| = {a}": partial(moments_of, part, 11, 11) for a, part in choices.items()
        },
    }


def run(*, rows: int = 1_000_000, repeats: int = 3) -> dict[str, Any]:
    """CPU seconds of every step, and the peak memory of a pass."""
    seconds = {}
    for name, row in steps(rows).items():
        for step in row.values():
            step()  # compiled and loaded
        best = harness.best_of(row, repeats, harness.cpu_seconds)
        seconds[name] = {value: round(time, 4) for value, time in best.items()}
        print(f"{name}: " + ", ".join(f"{value}: {time:.3g} s" for value, time in best.items()), flush=True)
    memory = {f"n = {n:,}, k = {k}": round(peak_megabytes(n, k), 1) for n in (rows, 4 * rows) for k in (11, 101)}
    print(f"peak memory: {memory}")
    return {"CPU seconds": seconds, "peak memory of a pass, MB": memory}


if __name__ == "__main__":
    harness.main(run, "numba")
