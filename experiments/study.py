"""What the experiments share: independent trials, each saved when it is done, and results with what produced them.

An experiment is a file with a frozen dataclass ``Arguments`` (the paper's numbers as defaults), a smaller ``FAST`` one,
and ``run(arguments, runner) -> Findings``; or, in place of ``run``, ``PARTS``: functions ``(arguments, runner) ->
numbers`` by name, each written to a file of its own, and ``SENTENCE``, what they show. ``REPEATED`` names the arguments
that ``--trials`` sets, ``("trials",)`` if it is left out.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import certirl
from certirl.cli.options import STUDIES, add_study_options
from certirl.data.moments import Moments, accumulate
from certirl.data.simulator import Simulator, draw
from certirl.functions.bases import Basis
from certirl.ground.archive import check_writable, replacing
from certirl.ground.doors import as_count
from certirl.ground.work import Report, check_workers, on, place, watched
from processes import processes

VERSIONED = ("certirl", "numpy", "scipy", "highspy")


@dataclass(frozen=True, eq=False)
class Findings:
    """What an experiment found.

    Attributes:
        summary: the numbers that a reader quotes, for JSON.
        table: every point of the picture, one dictionary each, for CSV.
        figure: the picture, or None.
        sentence: what it shows, in one sentence with numbers.
    """

    summary: dict[str, Any]
    table: Sequence[dict[str, Any]]
    figure: Any
    sentence: str


@dataclass(frozen=True)
class Runner:
    """How trials are run: on how many processes, and where finished ones are saved.

    Attributes:
        saved: a file to which every finished trial is added; an interrupted run continues from it.
        workers: processes; all cores if None. Inside `work.on` a Dask client, trials are sent to its cluster instead.
        progress: as in `solve`.
    """

    saved: Path | None = None
    workers: int | None = None
    progress: bool | Report | None = None

    def __call__(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, unit: str = "trials") -> list[Any]:
        """Results in the order of the tasks, whatever the number of workers.

        Args:
            function: importable (a cluster is sent its file), of one task, whose result is plain data (numbers,
                strings, lists, dictionaries).
            tasks: plain data too; they carry their own seeds.
            unit: what to call them in the progress line.
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


def growing_moments(
    simulator: Simulator,
    rows: Basis,
    columns: Basis,
    samples: Sequence[int],
    rng: np.random.Generator,
    *,
    folds: int = 1,
    **sampling: bool,
) -> Iterator[tuple[Moments, ...]]:
    """The moments of the first n transitions per action for every n in turn, all from one data set.

    Args:
        simulator: the dynamics.
        rows: the basis of the next state; leading blocks serve all smaller ones.
        columns: the basis of the state.
        samples: increasing numbers n.
        rng: the Generator.
        folds: disjoint parts, as in `accumulate`.
        sampling: ``design`` and ``paired``, as in `draw`.
    """
    total: tuple[Moments, ...] | None = None
    for more in np.diff([0, *samples]):
        stream = draw(simulator, columns, int(more), rng, **sampling)
        (added,) = accumulate(stream, [(rows, columns)], n_actions=simulator.n_actions, folds=folds)
        total = added if total is None else tuple(old + new for old, new in zip(total, added, strict=True))
        yield total


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

    Args:
        experiment: its module, with ``run``.
        arguments: its arguments.
        name: of the files.
        out: a folder, made if it is not there.
        command: what to write down as the command that does it again.
        workers: processes; results do not depend on it.
        progress: as in `solve`.
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


def chosen(experiment: Any, options: argparse.Namespace) -> Any:
    """The arguments that the options ask for."""
    arguments = experiment.FAST if options.fast else experiment.Arguments()
    changed = {"seed": as_count(options.seed, "seed", least=0)}
    if options.trials is not None:
        count = as_count(options.trials, "trials", least=2)
        changed |= dict.fromkeys(getattr(experiment, "REPEATED", ("trials",)), count)
    return replace(arguments, **{name: value for name, value in changed.items() if hasattr(arguments, name)})


def load(name: str) -> Any:
    """The module of one study of `certirl reproduce`."""
    if name not in STUDIES:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(STUDIES)}")
    return importlib.import_module(name)


def reproduce(names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Run studies one after the other, and give their records by name.

    Interrupted, the same command continues where it stopped; a study that is finished is not computed again.
    """
    given = {"--trials": options.trials, "--seed": options.seed or None}
    words = ["--fast"] if options.fast else []
    words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    with place(options.workers, options.scheduler) as where, on(where if options.scheduler else None):
        for name in names:
            experiment, start = load(name), time.perf_counter()
            arguments = chosen(experiment, options)
            if not options.again and is_finished(experiment, arguments, name=name, out=options.out):
                print(f"{name} (finished before; --again computes it again): {_shown(options.out, name)}", flush=True)
                continue
            command = " ".join(["certirl reproduce", name, *words])
            settings = {"name": name, "out": options.out, "command": command, "workers": options.workers}
            conduct(experiment, arguments, **settings).unlink(missing_ok=True)
            print(f"{name} ({time.perf_counter() - start:.0f} s): {_shown(options.out, name)}", flush=True)
    print(f"Pictures (.png) and numbers (.csv, .json) of {' '.join(names)} are in {options.out}")
    return {name: _record(options.out, name) for name in names}


def main(experiment: Any, words: Sequence[str] | None = None) -> int:
    """Run the file of an experiment as a command."""
    name, parts = Path(experiment.__file__).stem, getattr(experiment, "PARTS", {})
    parser = argparse.ArgumentParser(description=experiment.__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_study_options(parser, "experiments/results")
    if parts:
        parser.add_argument("--only", choices=parts, help="this part alone")
    options = parser.parse_args(words)
    command = " ".join([f"python experiments/{name}.py", *(sys.argv[1:] if words is None else words)])
    studies = (
        {name: experiment}
        if not parts
        else {f"{name}_{part}": _part(experiment, parts[part]) for part in ([options.only] if options.only else parts)}
    )
    with place(options.workers, options.scheduler) as where, on(where if options.scheduler else None):
        for file, study in studies.items():
            settings = {"name": file, "out": options.out, "command": command, "workers": options.workers}
            conduct(study, chosen(experiment, options), **settings).unlink(missing_ok=True)
            record = _record(options.out, file)
            print(json.dumps(record["result"], indent=1, ensure_ascii=False) if parts else record["what it shows"])
            print(f"Written: {', '.join(sorted(str(path) for path in options.out.glob(f'{file}.*')))}", flush=True)
    return 0


def _part(experiment: Any, numbers: Callable[[Any, Runner], dict[str, Any]]) -> Any:
    """One part of an experiment as `conduct` wants it."""

    def run(arguments: Any, runner: Runner) -> Findings:
        return Findings(numbers(arguments, runner), [], None, experiment.SENTENCE)

    return SimpleNamespace(__file__=experiment.__file__, run=run)


def _shown(out: Path, name: str) -> str:
    return str(_record(out, name)["what it shows"])


def _record(out: Path, name: str) -> Any:
    return json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
