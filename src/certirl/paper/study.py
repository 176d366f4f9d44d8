"""What studies share: independent trials, each saved when it is done, and results with what produced them.

An experiment is a module with a frozen dataclass ``Arguments`` (the paper's numbers as defaults), a smaller ``FAST``
one, and ``run(arguments, runner) -> Findings``. ``REPEATED`` names the arguments that ``--trials`` sets,
``("trials",)`` if it is left out.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import certirl
from certirl.ground.archive import check_writable, replacing
from certirl.ground.doors import as_count
from certirl.ground.work import Report, check_workers, on, place, watched
from certirl.paper.processes import processes

VERSIONED = ("certirl", "numpy", "scipy", "highspy", "clarabel")


@dataclass(frozen=True, eq=False)
class Findings:
    """What an experiment found."""

    summary: dict[str, Any]  # the numbers that a reader quotes, for JSON
    table: Sequence[dict[str, Any]]  # every point of the picture, one dictionary each, for CSV
    figure: Any  # the picture, or None
    sentence: str  # what it shows, in one sentence with numbers


@dataclass(frozen=True)
class Runner:
    """How trials are run: on how many processes, and where finished ones are saved."""

    saved: Path | None = None  # a file to which every finished trial is added; an interrupted run continues from it
    # processes; all cores if None. Inside `work.on` a Dask client, trials are sent to its cluster instead
    workers: int | None = None
    progress: bool | Report | None = None  # as in `solve`

    def __call__(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, unit: str = "trials") -> list[Any]:
        """Results in the order of the tasks, whatever the number of workers.

        The function is importable (a cluster is sent its file). Tasks and results are plain data: numbers, strings,
        lists, dictionaries; tasks carry their own seeds.
        """
        names = [json.dumps([f"{function.__module__.rpartition('.')[2]}.{function.__name__}", task]) for task in tasks]
        results = _read_trials(self.saved)
        missing = [index for index, name in enumerate(names) if name not in results]
        done = processes(function, [tasks[index] for index in missing], workers=self.workers)
        for number, result in watched(done, len(missing), lambda _: 1, self.progress, unit=unit):
            name = names[missing[number]]
            results[name] = json.loads(json.dumps(plain(result)))  # what a later run would read
            _save_trial(self.saved, name, results[name])
        return [results[name] for name in names]


def _read_trials(saved: Path | None) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if saved is not None and saved.exists():
        for text in saved.read_text(encoding="utf-8").splitlines():
            try:
                name, result = json.loads(text)
            except ValueError:  # the last line of a killed run
                continue
            results[name] = result
    return results


def _save_trial(saved: Path | None, name: str, result: Any) -> None:
    if saved is not None:
        with saved.open("a", encoding="utf-8") as stream:
            stream.write("\n" + json.dumps([name, result]))  # newline first: an incomplete line stays separate


def plain(value: Any) -> Any:
    """The same value for JSON: NumPy's numbers and arrays as Python's, null for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def conduct(
    experiment: Any,
    arguments: Any,
    *,
    name: str,
    out: Path,
    command: str,
    workers: int | None = None,
    progress: bool | Report | None = None,
) -> Path:
    """Run an experiment and write its picture, table and numbers; give the file of its trials, to be deleted.

    ``command`` is written down as what does it again. Results do not depend on the number of workers.
    """
    check_workers(workers)
    if hasattr(experiment, "plots"):
        experiment.plots.panels(1, 1)  # says before the work, not after it, that matplotlib is missing
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out / f"{name}.json", (".json",))
    fingerprint = _fingerprint(experiment, arguments)
    saved = out / f".{name}-{fingerprint}.trials"
    start = time.perf_counter()
    findings = experiment.run(arguments, Runner(saved, workers, progress))
    record = {
        "what it shows": findings.sentence,
        "command": command,
        "arguments": asdict(arguments),
        "fingerprint": fingerprint,
        "seconds": round(time.perf_counter() - start, 1),
        "versions": versions(),
        "result": findings.summary,
    }
    with replacing(out / f"{name}.json") as path:
        path.write_text(json.dumps(plain(record), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if findings.table:
        with replacing(out / f"{name}.csv") as path:
            _write_table(path, findings.table)
    if findings.figure is not None:
        with replacing(out / f"{name}.png") as path:
            findings.figure.savefig(path, format="png", dpi=160)
    return saved


def is_finished(experiment: Any, arguments: Any, *, name: str, out: Path) -> bool:
    """Whether the results of exactly these arguments and this code are in a folder, with table and picture."""
    try:
        record = _record(out, name)
    except (OSError, ValueError):
        return False
    files = (out / f"{name}.{suffix}" for suffix in ("csv", "png"))
    return record.get("fingerprint") == _fingerprint(experiment, arguments) and all(file.exists() for file in files)


def _fingerprint(experiment: Any, arguments: Any) -> str:
    """A name for exactly these arguments and exactly this code, so that saved trials of others are not read."""
    digest = hashlib.sha256(json.dumps(plain([asdict(arguments), versions()]), sort_keys=True).encode())
    file = getattr(experiment, "__file__", None)
    for folder in (Path(certirl.__file__).parent, *([Path(file).parent] if file else [])):
        for source in sorted(folder.rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def versions(packages: Sequence[str] = VERSIONED) -> dict[str, str]:
    """The versions of Python, the machine and these packages."""
    numbers = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for package in packages:
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            numbers[package] = "unknown"
    return numbers


def _write_table(path: Path, table: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in table for key in row)))
        writer.writeheader()
        writer.writerows(table)


def chosen(experiment: Any, *, fast: bool, seed: int, trials: int | None) -> Any:
    """The arguments of an experiment that the options of its command ask for."""
    arguments = experiment.FAST if fast else experiment.Arguments()
    changed = {"seed": as_count(seed, "seed", least=0)}
    if trials is not None:
        changed |= dict.fromkeys(getattr(experiment, "REPEATED", ("trials",)), as_count(trials, "trials", least=2))
    return replace(arguments, **{name: value for name, value in changed.items() if hasattr(arguments, name)})


def carry_out(
    studies: Iterable[tuple[str, Any, Any, str]],
    *,
    out: Path,
    workers: int | None = None,
    scheduler: str | None = None,
    again: bool = False,
) -> dict[str, Any]:
    """Run studies one after the other, print what they show, and give their records by name.

    Interrupted, the same call continues where it stopped; a study that is finished is not computed again. A study is a
    name of files, an experiment, its arguments and its command; trials are sent to Dask if a scheduler is named.
    """
    records = {}
    with place(workers, scheduler) as where, on(where if scheduler else None):
        for name, experiment, arguments, command in studies:
            start, took = time.perf_counter(), "finished before; --again computes it again"
            if again or not is_finished(experiment, arguments, name=name, out=out):
                saved = conduct(experiment, arguments, name=name, out=out, command=command, workers=workers)
                saved.unlink(missing_ok=True)
                took = f"{time.perf_counter() - start:.0f} s"
            records[name] = _record(out, name)
            print(f"{name} ({took}): {records[name]['what it shows']}", flush=True)
    return records


def _record(out: Path, name: str) -> Any:
    return json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
