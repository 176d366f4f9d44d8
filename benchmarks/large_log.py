"""A log larger than memory through the command line, on threads and on a local cluster that loses a worker; and text.

    python benchmarks/make_parquet.py FOLDER
    python benchmarks/large_log.py FOLDER [--out benchmarks/results/large_log.json]

`certirl moments` is run as a command. On the cluster the busiest worker is killed once it has worked for a
while; the moments must be the same to the last bit. A table of text, with episodes and actions by their names, is read
in turn by `certirl.logs.read` and by `pandas.read_csv`, which knows nothing of episodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

import harness
from certirl import logs
from certirl.data.moments import load

BUSY = 5.0  # CPU seconds after which a worker is in the middle of its work


def timed(folder: Path, output: Path, *arguments: str, kill: bool = False) -> dict[str, Any]:
    """Seconds and the most memory of the command and each of its children; with ``kill``, one of these dies."""
    command = [sys.executable, "-m", "certirl", "moments", str(folder), "--domain", "-1", "1", "-o", str(output)]
    started, peaks, killed = time.perf_counter(), dict[int, int](), 0
    with subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            usage = {member.pid: look for member in family if (look := _look(member)) is not None}
            peaks |= {pid: max(peaks.get(pid, 0), memory) for pid, (memory, _) in usage.items()}
            busiest = max((pid for pid in usage if pid != process.pid), key=lambda pid: usage[pid][1], default=None)
            if kill and not killed and busiest is not None and usage[busiest][1] > BUSY:
                os.kill(busiest, 9)
                killed += 1
            time.sleep(0.2)
    if process.returncode or (kill and not killed):
        raise SystemExit(f"certirl ended with {process.returncode}, workers killed: {killed}")
    return {
        "command": "certirl moments FOLDER --domain -1 1 " + " ".join(arguments),
        "seconds": time.perf_counter() - started,
        "peak memory of any process, MB": max(peaks.values()) / 1e6,
        "workers killed": killed,
    }


def _look(member: psutil.Process) -> tuple[int, float] | None:
    """Memory and CPU seconds; None if it has ended meanwhile."""
    try:
        times = member.cpu_times()
        return member.memory_info().rss, times.user + times.system
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return None


def read_text(file: Path, rows: int, repeats: int = 3) -> dict[str, Any]:
    """CPU seconds to read a table of text, as a log and as columns alone."""
    rng, steps = np.random.default_rng(0), np.arange(rows)
    table = {"run": np.char.add("run ", (steps // 100).astype(str)), "step": steps % 100}
    table |= {"state": rng.uniform(-1, 1, rows), "action": rng.choice(["coast", "left", "right"], rows)}
    pd.DataFrame(table).to_csv(file, index=False)
    readers = {"certirl.logs.read": lambda: logs.read(file, episode="run"), "pandas": lambda: pd.read_csv(file)}
    seconds = harness.best_of(readers, repeats, harness.cpu_seconds)
    ratio = seconds["certirl.logs.read"] / seconds["pandas"]
    return {"rows": rows, "MB": file.stat().st_size / 1e6, "CPU seconds": seconds, "times pandas": ratio}


def run(folder: Path, text_rows: int = 10**6) -> dict[str, Any]:
    """The same log by one thread, by all cores, and by a cluster that loses a worker; a table of text."""
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch, f"{name}.npz") for name in ("one", "all", "cluster")]
        runs = [
            timed(folder, files[0], "--workers", "1"),
            timed(folder, files[1]),
            timed(folder, files[2], "--scheduler", "local", kill=True),
        ]
        one, *others = map(load, files)
        text = read_text(Path(scratch, "log.csv"), text_rows)
        names = ("counts", "gram", "cross", "outer")
        alike = [all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names) for other in others]
    record = {"rows": int(one.counts.sum()), "runs": runs, "same to the last bit": all(alike), "text": text}
    print(record)
    return record


if __name__ == "__main__":
    harness.main(run, "numba", "pyarrow", "pandas", "distributed")
