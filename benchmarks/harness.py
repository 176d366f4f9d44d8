"""What the benchmarks share: options from the keywords of a function, clocks, one JSON file for each benchmark."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from certirl.paper.study import VERSIONED, versions

RESULTS = Path(__file__).resolve().parent / "results"


def main(run: Callable[..., Any], *packages: str) -> tuple[dict[str, Any], Path]:
    """Run a benchmark as a command and write its numbers to results/NAME.json, or where ``--out`` says; give both.

    Every keyword of the function is an option with the keyword's default; a tuple takes several values. A parameter
    without a default is positional, a path.

    Args:
        run: gives the numbers, as a dictionary; prints what it likes on the way.
        packages: whose versions are written down, besides those of certirl and what it needs.
    """
    file, words = Path(inspect.getfile(run)), inspect.getdoc(inspect.getmodule(run))
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, parameter in inspect.signature(run).parameters.items():
        default, option = parameter.default, f"--{name.replace('_', '-')}"
        if default is inspect.Parameter.empty:
            parser.add_argument(name, type=Path)
        elif isinstance(default, tuple):
            parser.add_argument(option, type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(option, type=type(default), default=default, help=f"default {default}")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{file.stem}.json")
    options = vars(parser.parse_args())
    out = options.pop("out")
    command = " ".join(["python", f"benchmarks/{file.name}", *sys.argv[1:]])
    record = {"command": command, "versions": versions((*VERSIONED, *packages)), **run(**options)}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"Written: {out}")
    return record, out


def cpu_seconds(action: Callable[[], object]) -> float:
    """CPU time of this process for one call, all threads together."""
    return max(clock(action)[0]["cpu"], 1e-9)  # a clock that did not advance


def clock(action: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Wall-clock and CPU seconds of one call, and its result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}, result


def wall_seconds(action: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    return max(clock(action)[0]["wall"], 1e-9)


def best_of(steps: dict[Any, Callable[[], object]], repeats: int, clock: Callable[..., float]) -> dict[Any, float]:
    """The least time of each step over several rounds, all steps in every round."""
    rounds = [{name: clock(step) for name, step in steps.items()} for _ in range(repeats)]
    return {name: min(times[name] for times in rounds) for name in steps}
