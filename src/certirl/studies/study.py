"""A study: independent trials, each remembered when it is done, and results written with what produced them.

An experiment is a file with a frozen dataclass ``Arguments`` (the paper's numbers as defaults), a smaller ``FAST`` one,
and ``run(arguments, walk) -> Findings``. Here is what they share: the walk over trials and the writing.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from certirl.data.moments import Moments, accumulate
from certirl.data.simulator import Simulator, draw
from certirl.functions.bases import Basis
from certirl.ground.archive import folder_of, replacing
from certirl.ground.doors import as_count
from certirl.ground.progress import Report, watched
from certirl.ground.scheduler import place
from certirl.ground.work import check_workers, on, processes

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


class Experiment(Protocol):
    """The members of an experiment's module."""

    Arguments: type[Any]
    FAST: Any

    @staticmethod
    def run(arguments: Any, walk: Walk) -> Findings:
        """Do it."""
        ...


@dataclass(frozen=True)
class Walk:
    """How trials are walked through: on how many processes, remembered where.

    Attributes:
        memory: a file to which every finished trial is added; a walk that was interrupted goes on from it.
        workers: processes; all cores if None. Inside `_map.on` a Dask client, trials are sent to its cluster instead.
        progress: as in `solve`.
    """

    memory: Path | None = None
    workers: int | None = None
    progress: bool | Report | None = None

    def __call__(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, unit: str = "trials") -> list[Any]:
        """Results in the order of the tasks, whoever worked on them.

        Args:
            function: importable (a cluster is sent its file), of one task, whose result is plain data (numbers,
                strings, lists, dictionaries).
            tasks: plain data too; they carry their own seeds.
            unit: what to call them in the progress line.
        """
        names = [json.dumps([f"{function.__module__.rpartition('.')[2]}.{function.__name__}", task]) for task in tasks]
        known = _recall(self.memory)
        missing = [index for index, name in enumerate(names) if name not in known]
        results = processes(function, [tasks[index] for index in missing], workers=self.workers)
        for done, result in watched(results, len(missing), lambda _: 1, self.progress, unit=unit):
            name = names[missing[done]]
            known[name] = json.loads(json.dumps(plain(result)))  # what a later run would recall
            _remember(self.memory, name, known[name])
        return [known[name] for name in names]


def _recall(memory: Path | None) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if memory is not None and memory.exists():
        for text in memory.read_text(encoding="utf-8").splitlines():
            try:
                name, result = json.loads(text)
            except ValueError:  # the last line of a killed run
                continue
            known[name] = result
    return known


def _remember(memory: Path | None, name: str, result: Any) -> None:
    if memory is not None:
        with memory.open("a", encoding="utf-8") as stream:
            stream.write("\n" + json.dumps([name, result]))  # the newline first: what a killed run left stays alone


def growing_moments(
    simulator: Simulator,
    rows: Basis,
    columns: Basis,
    samples: Sequence[int],
    rng: np.random.Generator,
    *,
    folds: int = 1,
    **way: bool,
) -> Iterator[tuple[Moments, ...]]:
    """The moments of the first n transitions per action for every n in turn: one data set serves them all.

    Args:
        simulator: the dynamics.
        rows: the basis of the next state; leading blocks serve all smaller ones.
        columns: the basis of the state.
        samples: increasing numbers n.
        rng: the Generator.
        folds: disjoint parts, as in `accumulate`.
        way: ``design`` and ``paired``, as in `draw`.
    """
    so_far: tuple[Moments, ...] | None = None
    for more in np.diff([0, *samples]):
        stream = draw(simulator, columns, int(more), rng, **way)
        (part,) = accumulate(stream, [(rows, columns)], n_actions=simulator.n_actions, folds=folds)
        so_far = part if so_far is None else tuple(old + new for old, new in zip(so_far, part, strict=True))
        yield so_far


def plain(value: Any) -> Any:
    """The same in the words of JSON: NumPy's numbers and arrays as Python's, null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def conduct(
    experiment: Experiment,
    arguments: Any,
    *,
    name: str,
    out: Path,
    command: str,
    workers: int | None = None,
    progress: bool | Report | None = None,
) -> Path:
    """Run one experiment and write NAME.png, .pdf, .csv and .json; returns the memory of its trials.

    The memory outlives this call, so that a longer command that is interrupted later need not do it again.
    """
    check_workers(workers)
    out = folder_of(out)
    memory = out / f".{name}-{_fingerprint(experiment, arguments)}.trials"
    start = time.perf_counter()
    findings = experiment.run(arguments, Walk(memory, workers, progress))
    record = {
        "what it shows": findings.sentence,
        "command": command,
        "arguments": asdict(arguments),
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
        _write_picture(out / name, findings.figure)
    return memory


def _fingerprint(experiment: Experiment, arguments: Any) -> str:
    """A name for exactly these arguments and exactly this code, so that no trials of others are taken for ours."""
    digest = hashlib.sha256(json.dumps(plain([asdict(arguments), versions()]), sort_keys=True).encode())
    own = getattr(experiment, "__file__", None)
    for folder in (Path(__file__).parents[1], *([Path(own).parent] if own else [])):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def versions(packages: Sequence[str] = VERSIONED) -> dict[str, str]:
    """Of Python, the machine and these packages, for whoever wants to repeat it."""
    known = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for package in packages:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            known[package] = "unknown"
    return known


def _write_table(path: Path, table: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in table for key in row)))
        writer.writeheader()
        writer.writerows(table)


def _write_picture(stem: Path, figure: Any) -> None:
    for suffix, settings in ((".png", {"dpi": 160}), (".pdf", {"metadata": {"CreationDate": None}})):
        with replacing(stem.with_suffix(suffix)) as path:
            figure.savefig(path, format=suffix[1:], **settings)


def add_options(parser: argparse.ArgumentParser, out: str) -> None:
    """The options that every experiment takes."""
    parser.add_argument("--fast", action="store_true", help="a small version, for a first look")
    add_place(parser, "processes")
    parser.add_argument("--trials", type=int, help="repetitions, where there are any (default: the paper's)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws (default 0)")
    parser.add_argument("--out", type=folder_name, default=Path(out), help=f"folder for the results (default {out})")


def folder_name(text: str) -> Path:
    """The name of a folder on the command line."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


def add_place(parser: Any, workers: str) -> None:
    """The options that say where to work; ``workers`` says what they are without a scheduler."""
    parser.add_argument(
        "--workers", type=int, metavar="N", help=f"{workers} (default: all cores); results do not depend on it"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="a Dask scheduler, tcp://host:8786; or local, to start one of processes"
    )


def chosen(experiment: Experiment, options: argparse.Namespace) -> Any:
    """The arguments that the options ask for."""
    seed = as_count(options.seed, "seed", least=0)
    arguments = replace(experiment.FAST if options.fast else experiment.Arguments(), seed=seed)
    if options.trials is None:
        return arguments
    trials = as_count(options.trials, "trials", least=2)
    return replace(arguments, trials=trials) if hasattr(arguments, "trials") else arguments


def main(experiment: Experiment, words: Sequence[str] | None = None) -> int:
    """Run one experiment's file as a command."""
    name = Path(str(getattr(experiment, "__file__", "experiment"))).stem
    parser = argparse.ArgumentParser(description=experiment.__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_options(parser, "experiments/results")
    options = parser.parse_args(words)
    command = f"python experiments/{name}.py " + " ".join(sys.argv[1:] if words is None else words)
    with place(options.workers, options.scheduler) as where, on(where if options.scheduler else None):
        memory = conduct(
            experiment,
            chosen(experiment, options),
            name=name,
            out=options.out,
            command=command.strip(),
            workers=options.workers,
        )
    memory.unlink(missing_ok=True)
    print(f"{json.loads((options.out / f'{name}.json').read_text(encoding='utf-8'))['what it shows']}")
    print(f"Written: {options.out / name}.png, .pdf, .csv, .json")
    return 0


def main_of_parts(
    experiment: Experiment,
    parts: Mapping[str, Callable[[Any, Walk], dict[str, Any]]],
    sentence: str,
    *,
    repeated: str | None = None,
) -> int:
    """Run a file whose parts give numbers alone, each written as NAME_PART.json; ``--only PART`` runs one.

    Args:
        experiment: the file, with its ``Arguments`` and ``FAST``.
        parts: by name.
        sentence: what they show.
        repeated: the argument that ``--trials`` sets.
    """
    name = Path(str(getattr(experiment, "__file__", "experiment"))).stem
    parser = argparse.ArgumentParser(description=experiment.__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_options(parser, "experiments/results")
    parser.add_argument("--only", choices=parts, help="this part alone")
    options = parser.parse_args()
    arguments = experiment.FAST if options.fast else experiment.Arguments()
    if options.trials is not None and repeated is not None:
        arguments = replace(arguments, **{repeated: options.trials})
    with place(options.workers, options.scheduler) as where, on(where if options.scheduler else None):
        for part in parts if options.only is None else (options.only,):
            written = options.out / f"{name}_{part}.json"
            conduct(
                _Part(str(getattr(experiment, "__file__", "")), parts[part], sentence),  # type: ignore[arg-type]
                arguments,
                name=written.stem,
                out=options.out,
                command=f"python experiments/{name}.py --only {part}{' --fast' * options.fast}",
                workers=options.workers,
            ).unlink(missing_ok=True)
            print(written.read_text(encoding="utf-8"), flush=True)
    return 0


@dataclass(frozen=True)
class _Part:
    """One part of an experiment, as `conduct` wants it."""

    __file__: str
    numbers: Callable[[Any, Walk], dict[str, Any]]
    sentence: str

    def run(self, arguments: Any, walk: Walk) -> Findings:
        return Findings(self.numbers(arguments, walk), [], None, self.sentence)
