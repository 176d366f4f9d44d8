"""A long log of episodes in Parquet, solved by the command: CPU seconds and the most memory, for two kinds of experts.

    python benchmarks/episode_log.py [--rows 10000000] [--out benchmarks/results/episode_log.json]

A row has its episode, step, state and action; the next state is that of the next row.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import harness

STEPS = 1_000  # of an episode
EXPERTS = {"one action": "0", "a policy": "expert.py:rule"}
RULE = "def rule(states):\n    return (states[:, 0] > 5).astype(int)\n"


def write(file: Path, rows: int) -> None:
    """Episodes of a walk between 0 and 10 whose actions are drawn."""
    rng, count = np.random.default_rng(0), rows // STEPS
    states, actions = np.empty((count, STEPS)), rng.integers(2, size=(count, STEPS)).astype(np.int8)
    now = rng.uniform(0, 10, count)
    for step in range(STEPS):
        states[:, step] = now
        now = np.clip(0.5 * now + np.where(actions[:, step] == 0, 4.0, 1.0) + 2 * rng.normal(size=count), 0, 10)
    numbers, steps = np.repeat(np.arange(count), STEPS), np.tile(np.arange(STEPS), count)
    table = {"episode": numbers, "step": steps, "state": states.ravel(), "action": actions.ravel()}
    pq.write_table(pa.table(table), file, row_group_size=2**20)


def solved(folder: Path, expert: str) -> dict[str, float]:
    """CPU seconds of all threads and the largest memory of the command, in a process of its own."""
    command = ["-m", "certirl", "solve", "log.parquet", "--domain", "0", "10", "--discount", "0.9", "--expert", expert]
    code = (
        f"import resource, subprocess, sys; subprocess.run([sys.executable, *{[*command, '--plot', '']}], check=True, "
        "stdout=sys.stderr); used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    cpu, memory = map(float, done.stdout.split())
    return {"CPU seconds": cpu, "peak memory, MB": memory * 1024 / 1e6}


def run(rows: int = 10_000_000) -> dict[str, Any]:
    """One answer for each kind of expert."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder / "log.parquet", rows)
        (folder / "expert.py").write_text(RULE)
        size = (folder / "log.parquet").stat().st_size / 1e6
        answers = {who: solved(folder, expert) for who, expert in EXPERTS.items()}
    record = {"rows": rows, "MB": size, "answers": answers}
    print(record)
    return record


if __name__ == "__main__":
    harness.main(run, "pyarrow")
