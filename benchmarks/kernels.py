"""The kernels at full size: million pairs per CPU second for Σ φ(y) φ(x)ᵀ, each kernel and its peers, one thread.

    python benchmarks/kernels.py [--pairs 1000000] [--repeats 5] [--sizes 5 11 25 51 101 201 401]

`certirl bench` measures the same, smaller, and whole passes; see `certirl.bench` for how. Prints tables and writes
benchmarks/results/kernels.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from certirl.studies import bench, study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 11, 25, 51, 101, 201, 401])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "kernels.json")
    options = parser.parse_args()
    extent = bench.Extent(pairs=options.pairs, repeats=options.repeats, sizes=tuple(options.sizes))
    found = bench.kernels(extent, lambda text: print(text, flush=True))
    command = " ".join(["python", "benchmarks/kernels.py", *sys.argv[1:]])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    record = {"command": command, "versions": study.versions(bench.VERSIONED), **found}
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
