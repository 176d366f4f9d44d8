"""The kernels at full size: million pairs per CPU second for Σ φ(y) φ(x)ᵀ, each kernel and its peers, one thread.

    python benchmarks/kernels.py [--pairs 1000000] [--repeats 5] [--sizes 5 11 25 51 101 201 401]

`certirl bench` measures the same, smaller, and whole passes; see bench.py for how. Prints tables and writes
benchmarks/results/kernels.json.
"""

from __future__ import annotations

from typing import Any

import bench
import harness


def run(
    *, pairs: int = 1_000_000, repeats: int = 5, sizes: tuple[int, ...] = (5, 11, 25, 51, 101, 201, 401)
) -> dict[str, Any]:
    """Every kernel, its peers and the limits of the machine."""
    extent = bench.Extent(pairs=pairs, repeats=repeats, sizes=tuple(sizes))
    return bench.kernels(extent, lambda text: print(text, flush=True))


if __name__ == "__main__":
    harness.main(run, *bench.PACKAGES)
