"""The command line of the files here; their trials, results and options are those of `certirl reproduce`.

An experiment is a module as `certirl.paper.study` describes it, or has, in place of ``run``, ``PARTS``: functions
``(arguments, runner)`` by name that give numbers, or Findings with a picture, each written to files of its own, and
``SENTENCE``, what they show. With ``FILES``, what they are, its arguments have the ``path`` of files that are not in
the project.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from certirl.cli.paper import study_options
from certirl.cli.parsing import add
from certirl.paper.study import Findings, Runner, carry_out, chosen

__all__ = ["Findings", "Runner", "main", "seeds"]


def seeds(arguments: Any, count: int) -> list[int]:
    """As many numbers as asked for, each the seed of a trial, from the seed of the study on."""
    return list(range(arguments.seed, arguments.seed + count))


def main(experiment: Any, words: Sequence[str] | None = None) -> int:
    """Run the file of an experiment as a command."""
    name, parts = Path(experiment.__file__).stem, getattr(experiment, "PARTS", {})
    parser = argparse.ArgumentParser(description=experiment.__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for form, meaning in study_options("experiments/results").items():
        add(parser, form, meaning)
    parser.set_defaults(seed=0, out=Path("experiments/results"))
    if parts:
        parser.add_argument("--only", choices=parts, help="this part alone")
    if hasattr(experiment, "FILES"):
        parser.add_argument("path", nargs="?", default="", help=experiment.FILES)
    options = parser.parse_args(words)
    if options.trials is not None and not hasattr(experiment, "REPEATED"):
        parser.error("this study has no --trials; its Arguments say what it repeats")
    command = " ".join([f"python experiments/{name}.py", *(sys.argv[1:] if words is None else words)])
    arguments = chosen(experiment, fast=options.fast, seed=options.seed, trials=options.trials)
    if hasattr(experiment, "FILES"):
        arguments = replace(arguments, path=options.path)
    asked = [options.only] if parts and options.only else parts
    studies = {f"{name}_{part}": _part(experiment, parts[part]) for part in asked} or {name: experiment}
    records = carry_out(
        [(file, study, arguments, command) for file, study in studies.items()],
        out=options.out, workers=options.workers, scheduler=options.scheduler, again=True,
    )  # fmt: skip
    for file, record in records.items():
        if parts:
            print(json.dumps(record["result"], indent=1, ensure_ascii=False))
        print(f"Written: {', '.join(sorted(str(path) for path in options.out.glob(f'{file}.*')))}", flush=True)
    return 0


def _part(experiment: Any, numbers: Callable[[Any, Runner], dict[str, Any] | Findings]) -> Any:
    """One part of an experiment as `carry_out` wants it."""

    def run(arguments: Any, runner: Runner) -> Findings:
        found = numbers(arguments, runner)
        return found if isinstance(found, Findings) else Findings(found, [], None, experiment.SENTENCE)

    return SimpleNamespace(__file__=experiment.__file__, run=run)
