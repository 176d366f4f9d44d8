"""Speed of the kernels, of their peers, of the limits that the machine sets, and of whole passes over data.

    python benchmarks/bench.py
    python benchmarks/bench.py --pairs 50000 --sizes 5 11 51 --transitions 150000 --repeats 2    # a first look

Everything that is compared runs in turn in one process, several times, and the best CPU time counts. Only ratios carry
over to another machine. "naive" is the plain way: np.sin and np.cos for every frequency (the textbook
recurrence for polynomials), all rows at once, then one matrix product. Writes results/bench.json and bench.png.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import harness
from certirl.data.moments import measure
from certirl.data.simulator import draw, sample
from certirl.data.transitions import CHUNK
from certirl.fit.bellman import bellman, estimate
from certirl.fit.recover import recover
from certirl.functions.bases import FAMILIES, Legendre
from certirl.ground.domain import Array
from certirl.ground.work import cores, one_blas_thread, watched
from certirl.kernels.sums import KERNELS, ProductSums, StackedSums
from certirl.problems import random_polynomial
from certirl.proof.certify import certify
from harness import best_of, cpu_seconds, wall_seconds

ENOUGH_SECONDS = 10.0  # a contender that needs more for all pairs is timed on a tenth or less of them
SLOW_SECONDS = 3.0  # and one that needs more than this only once
PACKAGES = ("numba", "finufft", "deeptime")
DGEMM, MEMORY = "dgemm limit", "memory limit"
# The order of a matrix that keeps BLAS busy, and numbers that no cache holds.
_ORDER, _NUMBERS = 1000, 16_000_000

Contender = Callable[[Array, Array], object]


def run(
    *,
    pairs: int = 1_000_000,
    sizes: tuple[int, ...] = (5, 11, 25, 51, 101, 201, 401),
    families: tuple[str, ...] = tuple(FAMILIES),
    transitions: int = 1_000_000,
    repeats: int = 3,
) -> dict[str, Any]:
    """Measure everything and print tables.

    Args:
        pairs: (y, x) that a kernel sums over.
        sizes: numbers of functions k.
        families: of bases.
        transitions: of each of three actions, for whole passes.
        repeats: turns, of which the best counts.
    """
    found = kernels(pairs, sizes, families, repeats)
    whole, threads = passes(transitions, repeats), two_threads(transitions, repeats)
    print("\n" + _passes_in_words(whole, threads))
    return {**found, "whole passes": whole, "two threads": threads}


# Kernels -------------------------------------------------------------------------------------------------------------


def kernels(pairs: int, sizes: Sequence[int], families: Sequence[str], repeats: int) -> dict[str, Any]:
    """Million pairs per CPU second for Σ φ(y) φ(x)ᵀ: every kernel, its peers and the limits, every family and k."""
    y, x = np.random.default_rng(0).uniform(-1, 1, (2, pairs))
    for name, peer in (("finufft", _finufft(5)), ("deeptime", _deeptime(5))):
        if peer is None:
            print(f"{name} is not installed and left out.")
    if not _compiled():
        print('numba is not installed: the kernels "fused" and "gridding" are left out (pip install "certirl[fast]").')
    machine, results = _Machine(), {family: dict[int, dict[str, float]]() for family in families}
    points = [(family, k) for family in families for k in sizes]
    with one_blas_thread:
        for family, k in watched(iter(points), len(points), lambda _: 1, None, unit="kernel sizes"):
            results[family][k] = _speeds_of(family, k, y, x, repeats, machine)
    for family, k in points:  # only now are the limits known
        results[family][k] |= {DGEMM: machine.flops / (2 * k * k) / 1e6, MEMORY: machine.reads / 2 / 1e6}
    for family in families:
        print("\n" + table(family, results[family]))
    return {
        "machine": {"processor": platform.machine(), "cores": cores(), **machine.words()},
        "pairs": pairs,
        "million pairs per CPU second": results,
    }


def _speeds_of(family: str, k: int, y: Array, x: Array, repeats: int, machine: _Machine) -> dict[str, float]:
    contenders = {"naive": naive(family, k)} | {kernel: _ours(family, k, kernel) for kernel in _kernels()}
    if _compiled():
        contenders["self_sums"] = _alone(family, k)
    if family == "Fourier":
        peers = {"finufft, eps 1e-9": _finufft(k), "deeptime": _deeptime(k)}
        contenders |= {name: peer for name, peer in peers.items() if peer is not None}
    found = speeds(contenders, y, x, repeats, machine)
    basis = FAMILIES[family](k)
    found["automatic"] = found[ProductSums(basis, basis).kernel if _compiled() else "numpy"]
    return found


def naive(family: str, k: int) -> Contender:
    """The sums as one would first write them."""
    return lambda y, x: _naive_values(family, k, y) @ _naive_values(family, k, x).T


def _naive_values(family: str, k: int, t: Array) -> Array:
    if family != "Fourier":
        return FAMILIES[family](k)._reference_values(t)
    rows = [np.full_like(t, np.sqrt(0.5))]
    rows += [(np.cos if i % 2 == 0 else np.sin)(np.pi * ((i + 1) // 2) * t) for i in range(1, k)]
    return np.array(rows)


def _compiled() -> bool:
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def _kernels() -> tuple[str, ...]:
    return KERNELS if _compiled() else KERNELS[:1]


def _ours(family: str, k: int, kernel: str) -> Contender:
    def total(y: Array, x: Array) -> Array:
        basis = FAMILIES[family](k)
        sums: Any = StackedSums([basis, basis]) if kernel == "numpy" else ProductSums(basis, basis, kernel=kernel)
        for start in range(0, y.size, CHUNK):
            sums.add(y[start : start + CHUNK], x[start : start + CHUNK])
        return sums.blocks()[0, 1] if kernel == "numpy" else sums.sums()

    return total


def _alone(family: str, k: int) -> Contender:
    def total(y: Array, x: Array) -> Array:
        sums = ProductSums(FAMILIES[family](k))
        for start in range(0, x.size, CHUNK):
            sums.add(x[start : start + CHUNK])
        return sums.sums()

    return total


def _finufft(k: int) -> Contender | None:
    try:
        import finufft
    except ImportError:
        return None
    modes = 2 * (k // 2) + 1
    return lambda y, x: finufft.nufft2d1(
        np.pi * y, np.pi * x, np.ones(y.size, dtype=complex), (modes, modes), eps=1e-9, nthreads=1
    )


def _deeptime(k: int) -> Contender | None:
    try:
        from deeptime.covariance import Covariance
    except ImportError:
        return None

    def total(y: Array, x: Array) -> object:
        values = [np.ascontiguousarray(_naive_values("Fourier", k, t).T) for t in (x, y)]
        return Covariance(compute_c00=False, compute_c0t=True, compute_ctt=False).fit(tuple(values)).fetch_model()

    return total


class _Machine:
    """What one core can do at best: floating-point operations of a large matrix product, numbers read from memory."""

    def __init__(self) -> None:
        self._matrix, self._long = np.ones((_ORDER, _ORDER)), np.ones(_NUMBERS)
        self.flops = self.reads = 0.0

    def measure(self) -> None:
        """Measure once more, in turn with what is compared to it."""
        self.flops = max(self.flops, 2.0 * _ORDER**3 / cpu_seconds(lambda: self._matrix @ self._matrix))
        self.reads = max(self.reads, _NUMBERS / cpu_seconds(self._long.sum))

    def words(self) -> dict[str, float]:
        return {"dgemm GFLOP/s": self.flops / 1e9, "memory reads, million pairs/s": self.reads / 2e6}


def speeds(
    contenders: dict[str, Contender], y: Array, x: Array, repeats: int, machine: _Machine | None = None
) -> dict[str, float]:
    """Million pairs per CPU second, the best of interleaved runs; the first run compiles and sizes the others."""
    sizes, slow, best = {}, set(), dict.fromkeys(contenders, np.inf)
    few = slice(max(1, y.size // 50))
    for name, contender in contenders.items():
        contender(y[few], x[few])
        whole = _seconds_for(contender, y[few], x[few]) * y.size / y[few].size
        sizes[name] = y.size if whole < ENOUGH_SECONDS else max(y[few].size, int(y.size / whole))
        if whole > SLOW_SECONDS:
            slow.add(name)
    for turn in range(repeats):
        if machine is not None:
            machine.measure()
        for name, contender in contenders.items():
            if turn and name in slow:
                continue
            n = sizes[name]
            best[name] = min(best[name], _seconds_for(contender, y[:n], x[:n]) / n)
    return {name: 1e-6 / seconds for name, seconds in best.items()}


def _seconds_for(contender: Contender, y: Array, x: Array) -> float:
    return cpu_seconds(lambda: contender(y, x))


# Whole passes --------------------------------------------------------------------------------------------------------


def passes(transitions: int, repeats: int) -> dict[str, Any]:
    """CPU seconds of each step of a solution, one thread, k = 11: per million transitions where it grows with them."""
    problem, basis, n = random_polynomial(seed=7), Legendre(11), transitions
    log = sample(problem, basis=basis, samples=n, rng=0)
    moments = measure(log, basis=basis, columns=3, map=1)
    reward = recover(bellman(estimate(moments), discount=0.7)).reward
    asked: dict[str, Any] = {"discount": 0.7, "expert": 0, "columns": Legendre(3), "tail": 0, "delta": 0.05}
    steps: dict[str, Callable[[], object]] = {
        "sampling": lambda: _exhaust(draw(problem, basis, n, 0)),
        "estimation": lambda: estimate(measure(log, basis=basis, columns=3, map=1)),
        "certificate": lambda: certify(reward, log, map=1, **asked),
        "recover": lambda: recover(bellman(estimate(moments), discount=0.7)),
    }
    with one_blas_thread:
        best = best_of(steps, repeats, cpu_seconds)
    once = best.pop("recover")
    million = log.n_actions * n / 1e6
    return {
        "transitions": log.n_actions * n,
        "CPU seconds per million transitions": {name: seconds / million for name, seconds in best.items()},
        "CPU seconds, whatever their number": {"recover": once},
    }


def two_threads(transitions: int, repeats: int) -> dict[str, float]:
    """Moments of a log by one thread and by two: seconds on the clock, and CPU time for CPU time.

    Beside them something that two threads could share perfectly: on a busy machine even that is not twice as fast.
    """
    basis = Legendre(11)
    log = sample(random_polynomial(seed=7), basis=basis, samples=transitions, rng=0)
    steps: dict[Any, Callable[[], object]] = {n: partial(measure, log, basis=basis, map=n) for n in (1, 2)}
    ideal: dict[Any, Callable[[], object]] = {f"ideal {n}": partial(_sines, n) for n in (1, 2)}
    clock = best_of(steps | ideal, repeats + 1, wall_seconds)
    cpu = best_of(steps, repeats, cpu_seconds)
    return {
        "one thread, seconds": clock[1],
        "two threads, seconds": clock[2],
        "times faster": clock[1] / clock[2],
        "times faster at best": clock["ideal 1"] / clock["ideal 2"],
        "times the CPU time": cpu[2] / cpu[1],
    }


def _sines(threads: int) -> None:
    values = np.ones(10_000)  # in cache, so that threads have only the cores to share
    with ThreadPoolExecutor(threads) as pool:
        _exhaust(pool.map(lambda _: [np.sin(values) for _ in range(200)], range(4)))


def _exhaust(stream: Iterable[Any]) -> None:
    for _ in stream:
        pass


# Words and pictures --------------------------------------------------------------------------------------------------


def table(family: str, results: dict[int, dict[str, float]]) -> str:
    """Speeds of one family, and how many times the naive one they are."""
    names, head = list(next(iter(results.values()))), "".join(f"{f'k = {k}':>15}" for k in results)
    lines = [f"{family}: million pairs per CPU second (times naive)", f"{'':<18}{head}"]
    for name in names:
        cells = [f"{row[name]:.3g} ({row[name] / row['naive']:.1f}×)" for row in results.values()]
        lines.append(f"{name:<18}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def _passes_in_words(whole: dict[str, Any], threads: dict[str, float]) -> str:
    lines = [f"Whole passes over {whole['transitions']:,} transitions, Legendre(11), 3 columns, one thread:"]
    for name, seconds in whole["CPU seconds per million transitions"].items():
        lines.append(f"  {name:<12}{seconds:8.3f} CPU seconds per million transitions")
    for name, seconds in whole["CPU seconds, whatever their number"].items():
        lines.append(f"  {name:<12}{seconds:8.3f} CPU seconds, whatever their number")
    lines.append(
        f"Two threads are {threads['times faster']:.2f} times as fast as one with "
        f"{threads['times the CPU time']:.2f} times the CPU time; "
        f"now, at best, {threads['times faster at best']:.2f} times."
    )
    return "\n".join(lines)


def picture(record: dict[str, Any], path: Path) -> None:
    """Draw throughput over k for every family, with the machine's limits, and write it."""
    from certirl.show.plots import COLOURS, panels, written

    results = record["million pairs per CPU second"]
    figure, axes = panels(1, len(results), sharey=True, size=(4.4 * len(results), 4.2))
    names = list(dict.fromkeys(name for rows in results.values() for row in rows.values() for name in row))
    drawn = [name for name in names if name not in (DGEMM, MEMORY, "automatic")]
    for ax, (family, rows) in zip(axes[0], results.items(), strict=True):
        for number, name in enumerate(drawn):
            ks: Sequence[int] = [k for k, row in rows.items() if name in row]
            look = {"color": (*COLOURS, "black")[number % 7], "marker": "osD^vPX"[number % 7], "markersize": 5}
            ax.loglog(ks, [rows[k][name] for k in ks], linewidth=1.6, label=name, **look)
        for name, style in ((DGEMM, "--"), (MEMORY, ":")):
            ax.loglog(list(rows), [row[name] for row in rows.values()], style, color="0.35", label=name)
        ax.set_title(family, fontsize="medium")
        ax.set_xlabel("functions k")
        ax.set_xticks(list(rows), [str(k) for k in rows])
        ax.minorticks_off()
    axes[0, 0].set_ylabel("million pairs per CPU second")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize="small", frameon=False)
    written(figure, axes, path)


if __name__ == "__main__":
    record, path = harness.main(run, *PACKAGES)
    picture(record, path.with_suffix(".png"))
