"""How many transitions a device takes in, sampling included, and whether the sums are right.

    python benchmarks/gpu.py [--device cuda] [--pairs 1e10] [--out benchmarks/results/gpu.json]

- throughput: pairs per second of the paper's random problem for several k, sampling and sums, and sums alone.
- large: all pairs at k = 11 in one pass; the error of Ẑ in units of its own standard deviation, which is 1 if nothing
  but chance is left of it.
- theorem: the deflated Theorem 6 of one problem at its own n, solved by the method the theorem speaks of.

Without a GPU, --device cpu --pairs 1e6 runs the same path.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np

import certirl
import harness
from certirl import paper, steps
from certirl.data.moments import accumulate
from certirl.data.simulator import draw
from certirl.functions.bases import Basis
from certirl.kernels import tensors
from certirl.problems import PolynomialProblem, random_polynomial
from certirl.problems.dynamics import NODES
from devices import on_device


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of the second of two calls: the first compiles. A result on the host is finished."""
    work()
    times, result = harness.clock(work)
    return times["wall"], result


def repeated(work: Callable[[], Any], times: int = 9) -> tuple[dict[str, float], Any]:
    """Seconds of the first call, which may load and compile, and of the following ones; and the last result."""
    seconds = []
    for _ in range(1 + times):
        taken, result = harness.clock(work)
        seconds.append(taken["wall"])
    later = sorted(seconds[1:])
    durations = {"seconds, first call": seconds[0], "seconds, median of later calls": later[times // 2]}
    return durations | {"seconds, fastest": later[0], "seconds, slowest": later[-1], "later calls": times}, result


def throughput(device: str, pairs: int) -> list[dict[str, Any]]:
    """Pairs per second by k and family."""
    problem = on_device(random_polynomial(seed=0, actions=2), device)
    rows = []
    for family in (certirl.Fourier, certirl.Legendre):
        for k in (5, 11, 25, 51, 101):
            basis = family(k).on(problem.domain)
            n = max(pairs // (1 if k <= 16 else 10), 2**16)
            whole, _ = clock(lambda b=basis, n=n: accumulate(draw(problem, b, n // 2, 0), [(b, b)], n_actions=2))
            piece = next(iter(draw(problem, basis, min(n, tensors.PIECE), 0)))

            def sums_alone(basis: Basis = basis, piece: Any = piece) -> Any:
                sums = tensors.TensorSums([basis, basis], piece.states.device)
                sums.add(piece.next_states[0], piece.states)
                return sums.blocks(), sums.kernels

            alone, (_, kernels) = clock(sums_alone)
            rows.append(
                {
                    "family": family.kind,
                    "k": k,
                    "kernel": "".join(kernels),
                    "pairs": n // 2 * 2,
                    "billion pairs/s": n / whole / 1e9,
                    "billion pairs/s without sampling": len(piece.states) / alone / 1e9,
                }
            )
            print(rows[-1], flush=True)
    return rows


def deviations(problem: PolynomialProblem, basis: Basis, action: int) -> tuple[np.ndarray, np.ndarray]:
    """Z and the standard deviation of one term of the mean form: both ``[k, k]``, by quadrature."""
    s, w = basis.quadrature(NODES[1])
    y, wy = np.polynomial.legendre.leggauss(NODES[1])
    squares = problem.density(y, s, action) * wy @ basis.values(y[:, None]) ** 2
    second = basis.mass * squares.T @ (w[:, None] * basis.values(s) ** 2)
    Z = problem.operators(basis).Z[action]
    return Z, np.sqrt(np.maximum(second - Z**2, 1e-300))


def large(device: str, pairs: int) -> dict[str, Any]:
    """All pairs at k = 11, and the error over the statistical one."""
    problem = random_polynomial(seed=0, actions=2)
    basis = certirl.Legendre(11).on(problem.domain)
    n = pairs // 2
    there = on_device(problem, device)
    timing, ((moments,),) = repeated(lambda: accumulate(draw(there, basis, n, 1), [(basis, basis)], n_actions=2), 3)
    estimated, scores = steps.estimate(moments, form="mean", deflate=False).Z, []
    for action in range(2):
        Z, sd = deviations(problem, basis, action)
        scores.append((estimated[action] - Z)[1:] / (sd[1:] / np.sqrt(n)))
    result = {
        "pairs": 2 * n,
        **timing,
        "billion pairs/s": 2 * n / timing["seconds, median of later calls"] / 1e9,
        "root mean square error over the statistical error": float(np.sqrt(np.mean(np.square(scores)))),
        "largest": float(np.max(np.abs(scores))),
    }
    print(result, flush=True)
    return result


def theorem(device: str, most: int) -> dict[str, Any]:
    """Theorem 6, deflated and sharpened, at the n it asks for (or at ``most``)."""
    problem, basis = random_polynomial(seed=0), certirl.Legendre(11)
    facts = paper.constants(problem.operators(basis, 3), discount=0.7)
    asked = paper.theorem6_deflated(
        beta=facts.beta,
        discount=0.7,
        delta=0.05,
        k=11,
        n_actions=3,
        inner_norm=facts.inner_norm,
        difference=facts.difference,
        basis=basis,
        columns=3,
    )
    n = min(asked.samples, most)
    method = certirl.Program(form="mean", objective="l1")
    asks = {"discount": 0.7, "basis": basis, "columns": 3, "method": method, "samples": n, "rng": 0}
    timing, solution = repeated(lambda: certirl.solve(on_device(problem, device), expert=0, **asks))
    result = {
        "the theorem asks for": asked.samples,
        "drawn per action": n,
        **timing,
        "true margin": problem.true_margin(solution.reward, discount=0.7),
    }
    print(result, flush=True)
    return result


def run(*, device: str = "cuda", pairs: float = 1e10) -> dict[str, Any]:
    """All three parts."""
    count = int(pairs)
    name = tensors.torch().cuda.get_device_name() if device.startswith("cuda") else platform.processor() or "CPU"
    return {
        "device": name,
        "theorem": theorem(device, most=count),  # first, so that its first call is that of a new process
        "throughput": throughput(device, count // 10),
        "large": large(device, count),
    }


if __name__ == "__main__":
    harness.main(run, "torch")
