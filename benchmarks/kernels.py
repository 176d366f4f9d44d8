"""How fast are the sums? Million pairs per CPU second for Σ φ(y) φ(x)ᵀ, each kernel and its peers, one thread.

    OMP_NUM_THREADS=1 python benchmarks/kernels.py [--pairs 1000000] [--repeats 5] [--sizes 5 11 25 51 101 201 401]

Everything runs in turn, several times, and the best CPU time counts; a slow contender gets fewer pairs. "naive" is what
one writes first: np.sin and np.cos for every frequency (the textbook recurrence for polynomials), all rows at once,
then one matrix product. Only ratios carry over to another machine. Prints tables and writes
benchmarks/results/kernels.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import certirl
from certirl.sums import KERNELS, pair_sums, self_sums

FAMILIES = {"Fourier": certirl.Fourier, "Legendre": certirl.Legendre, "Chebyshev": certirl.Chebyshev}
PIECE = 1 << 15  # rows added at a time, as a stream brings them: checked and summed up while in cache
ENOUGH_SECONDS = 10.0  # a contender that needs more for all pairs is timed on a tenth or less of them
SLOW_SECONDS = 3.0  # and one that needs more than this only once
Contender = Callable[[np.ndarray, np.ndarray], object]


def naive_values(family: str, k: int, t: np.ndarray) -> np.ndarray:
    if family != "Fourier":
        return FAMILIES[family](k)._reference_values(t)
    rows = [np.full_like(t, np.sqrt(0.5))]
    rows += [(np.cos if i % 2 == 0 else np.sin)(np.pi * ((i + 1) // 2) * t) for i in range(1, k)]
    return np.array(rows)


def naive(family: str, k: int) -> Contender:
    return lambda y, x: naive_values(family, k, y) @ naive_values(family, k, x).T


def ours(family: str, k: int, kernel: str | None) -> Contender:
    def run(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        sums = pair_sums(FAMILIES[family](k), FAMILIES[family](k), kernel=kernel)
        for start in range(0, y.size, PIECE):
            sums.add(y[start : start + PIECE], x[start : start + PIECE])
        return sums.sums()

    return run


def alone(family: str, k: int) -> Contender:
    def run(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        sums = self_sums(FAMILIES[family](k))
        for start in range(0, x.size, PIECE):
            sums.add(x[start : start + PIECE])
        return sums.sums()

    return run


def finufft_sums(k: int) -> Contender | None:
    try:
        import finufft
    except ImportError:
        return None
    modes = 2 * (k // 2) + 1
    return lambda y, x: finufft.nufft2d1(
        np.pi * y, np.pi * x, np.ones(y.size, dtype=complex), (modes, modes), eps=1e-9, nthreads=1
    )


def deeptime_covariance(k: int) -> Contender | None:
    try:
        from deeptime.covariance import Covariance
    except ImportError:
        return None

    def run(y: np.ndarray, x: np.ndarray) -> object:
        values = (
            np.ascontiguousarray(naive_values("Fourier", k, x).T),
            np.ascontiguousarray(naive_values("Fourier", k, y).T),
        )
        return Covariance(compute_c00=False, compute_c0t=True, compute_ctt=False).fit(values).fetch_model()

    return run


def cpu_seconds(run: Contender, y: np.ndarray, x: np.ndarray) -> float:
    start = time.process_time()
    run(y, x)
    return time.process_time() - start


def speeds(contenders: dict[str, Contender], y: np.ndarray, x: np.ndarray, repeats: int) -> dict[str, float]:
    """Million pairs per CPU second, the best of interleaved runs; the first run compiles and sizes the others."""
    sizes, slow, best = {}, set(), dict.fromkeys(contenders, np.inf)
    few = slice(max(1, y.size // 50))
    for name, run in contenders.items():
        run(y[few], x[few])
        whole = cpu_seconds(run, y[few], x[few]) * y.size / y[few].size
        sizes[name] = y.size if whole < ENOUGH_SECONDS else max(y[few].size, int(y.size / whole))
        if whole > SLOW_SECONDS:
            slow.add(name)
    for turn in range(repeats):
        for name, run in contenders.items():
            if turn and name in slow:
                continue
            n = sizes[name]
            best[name] = min(best[name], cpu_seconds(run, y[:n], x[:n]) / n)
    return {name: 1e-6 / seconds for name, seconds in best.items()}


def limits(repeats: int) -> dict[str, float]:
    """What one core can do: products per second of a large matrix product, and numbers read per second from memory."""
    a, long = np.ones((1200, 1200)), np.ones(30_000_000)
    products = max(2 * 1200**3 / cpu_seconds(lambda y, x: y @ x, a, a) for _ in range(repeats))
    reads = max(long.size / cpu_seconds(lambda y, x: y.sum(), long, long) for _ in range(repeats))
    return {"dgemm GFLOP/s": products / 1e9, "memory reads, million pairs/s": reads / 2e6}


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def table(family: str, results: dict[int, dict[str, float]]) -> str:
    names, head = list(next(iter(results.values()))), "".join(f"{k:>15}" for k in results)
    lines = [f"{family}: million pairs per CPU second (times naive)", f"{'':<18}{head}"]
    for name in names:
        cells = [f"{row[name]:.3g} ({row[name] / row['naive']:.1f}×)" for row in results.values()]
        lines.append(f"{name:<18}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 11, 25, 51, 101, 201, 401])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "kernels.json")
    options = parser.parse_args()
    y, x = np.random.default_rng(0).uniform(-1, 1, (2, options.pairs))
    for name, run in (("finufft", finufft_sums(5)), ("deeptime", deeptime_covariance(5))):
        if run is None:
            print(f"{name} is not installed and left out")
    machine, results = limits(options.repeats), {}
    print("  ".join(f"{name}: {value:.3g}" for name, value in machine.items()), flush=True)
    for family in FAMILIES:
        results[family] = {}
        for k in options.sizes:
            contenders = {"naive": naive(family, k)} | {kernel: ours(family, k, kernel) for kernel in KERNELS}
            chosen = pair_sums(FAMILIES[family](k), FAMILIES[family](k)).kernel
            contenders |= {"self_sums": alone(family, k)}
            if family == "Fourier":
                peers = {"finufft, eps 1e-9": finufft_sums(k), "deeptime": deeptime_covariance(k)}
                contenders |= {name: run for name, run in peers.items() if run is not None}
            found = speeds(contenders, y, x, options.repeats)
            found["automatic"] = found[chosen]
            found["dgemm ceiling"] = machine["dgemm GFLOP/s"] * 1e3 / (2 * k * k)
            results[family][k] = found
        print("\n" + table(family, results[family]), flush=True)
    versions = {name: installed(name) for name in ("numpy", "scipy", "numba", "finufft", "deeptime")}
    record = {
        "command": " ".join(["python", "benchmarks/kernels.py", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "certirl": certirl.__version__, **versions},
        "machine": {"processor": platform.machine(), **machine},
        "pairs": options.pairs,
        "million pairs per CPU second": results,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
