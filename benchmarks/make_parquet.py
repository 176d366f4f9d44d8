"""A log larger than memory: transitions of the paper's random polynomial problem as a folder of Parquet files.

    python benchmarks/make_parquet.py FOLDER [--rows 100000000] [--files 10] [--seed 7] [--single]
    certirl moments FOLDER --domain -1 1 -o moments.npz

States and actions are uniform and independent. The same seed, rows and files give the same data; one row group of 2^20
rows is in memory at a time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import certirl

ROWS_PER_GROUP = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7, help="of the draws; the problem is always number 7")
    parser.add_argument("--single", action="store_true", help="store states as float32")
    options = parser.parse_args()
    problem = certirl.problems.random_polynomial(seed=7)
    options.folder.mkdir(parents=True, exist_ok=True)
    ends = np.linspace(0, options.rows, options.files + 1).astype(int)
    for part, rng in enumerate(np.random.default_rng(options.seed).spawn(options.files)):
        file = options.folder / f"part-{part:04}.parquet"
        write(file, problem, int(ends[part + 1] - ends[part]), rng, pa.float32() if options.single else pa.float64())
        print(f"{file}: {ends[part + 1] - ends[part]:,} rows, {file.stat().st_size / 1e6:,.0f} MB", flush=True)


def write(
    file: Path, problem: certirl.problems.Problem, rows: int, rng: np.random.Generator, real: pa.DataType
) -> None:
    schema = pa.schema([("state", real), ("action", pa.int8()), ("next_state", real)])
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, rows, ROWS_PER_GROUP):
            columns = draw(problem, min(ROWS_PER_GROUP, rows - start), rng)
            writer.write_table(
                pa.table([pa.array(c).cast(f.type) for c, f in zip(columns, schema, strict=True)], schema)
            )


def draw(
    problem: certirl.problems.Problem, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ((low, high),) = problem.domain
    states, actions = rng.uniform(low, high, n), rng.integers(problem.n_actions, size=n)
    next_states = np.empty(n)
    for action in range(problem.n_actions):
        chosen = actions == action
        next_states[chosen] = problem.sample(states[chosen], action, rng)
    return states, actions, next_states


if __name__ == "__main__":
    main()
