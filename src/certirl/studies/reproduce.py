"""The paper's figures, and those that go beyond it, by name: the files of `experiments/` as one command."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certirl.studies import study

STUDIES = ("figure1", "figure2", "figure3", "figure4", "rollouts", "samples")


def folder() -> Path:
    """Where the experiments are: beside the package in a checkout, inside it when installed."""
    here = Path(__file__).resolve().parents[1]
    for place in (here / "experiments", here.parent.parent / "experiments"):
        if (place / f"{STUDIES[0]}.py").exists():
            return place
    raise FileNotFoundError("the files of the experiments are missing; install certirl again")


def load(name: str) -> Any:
    """The module of one experiment; its folder joins the path, so that other processes find it too."""
    if name not in STUDIES:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(STUDIES)}")
    place = str(folder())
    if place not in sys.path:
        sys.path.insert(0, place)
    return importlib.import_module(name)


def reproduce(names: Sequence[str], options: argparse.Namespace) -> None:
    """Run experiments one after the other; interrupted, the same command goes on where it was."""
    memories, asked = [], " ".join(names)
    given = {"--trials": options.trials, "--seed": options.seed or None}
    words = ["--fast"] if options.fast else []
    words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    for name in names:
        experiment, start = load(name), time.perf_counter()
        memories.append(
            study.conduct(
                experiment,
                study.chosen(experiment, options),
                name=name,
                out=options.out,
                command=" ".join(["certirl reproduce", name, *words]),
                workers=options.workers,
            )
        )
        found = json.loads((options.out / f"{name}.json").read_text(encoding="utf-8"))["what it shows"]
        print(f"{name} ({time.perf_counter() - start:.0f} s): {found}", flush=True)
    for memory in memories:  # only now: whatever comes of `all`, a finished part is not done twice
        memory.unlink(missing_ok=True)
    print(f"Pictures (.png, .pdf) and numbers (.csv, .json) of {asked} are in {options.out}")
