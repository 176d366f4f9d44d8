"""The commands about the paper: theorems and reproduce."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from certirl.cli.options import add_place
from certirl.cli.output import Answer
from certirl.cli.parsing import Verb

STUDIES = ("figure1", "figure2", "figure3", "figure4", "rollouts", "samples")  # modules of certirl.paper.figures


def theorems(options: argparse.Namespace) -> Answer:
    """Print the samples that the theorems ask for."""
    from certirl.paper.theorems import ASSUMED, requirements

    names = ("discount", "beta", *ASSUMED, "rho", "columns")
    asked = requirements(**{name: getattr(options, name) for name in names})
    print(asked)
    return Answer(asked)


def reproduce(options: argparse.Namespace) -> Answer:
    """Run the paper's experiments."""
    from certirl.paper import study

    given = {"--trials": options.trials, "--seed": options.seed or None}
    words = ["--fast"] * options.fast
    words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    names, studies = STUDIES if options.study == "all" else [options.study], []
    for name in names:
        experiment = importlib.import_module(f"certirl.paper.figures.{name}")
        arguments = study.chosen(experiment, fast=options.fast, seed=options.seed, trials=options.trials)
        studies.append((name, experiment, arguments, " ".join(["certirl reproduce", name, *words])))
    places = {"workers": options.workers, "scheduler": options.scheduler}
    records = study.carry_out(studies, out=options.out, again=options.again, **places)
    print(f"Pictures (.png) and numbers (.csv, .json) of {' '.join(names)} are in {options.out}")
    return Answer(records)


def _add_theorems(command: argparse.ArgumentParser) -> None:
    command.add_argument("--discount", type=float, metavar="GAMMA", required=True, help="γ")
    command.add_argument("--beta", type=float, required=True, help="β-separability: the best margin with ‖α‖₁ = 1")
    command.add_argument("--delta", type=float, help="probability of failure (default 0.05)")
    command.add_argument("--size", type=int, metavar="N", help="functions in the basis, k (default 11)")
    command.add_argument("--actions", type=int, metavar="N", help="number of actions (default 3)")
    command.add_argument("--cover", type=float, metavar="RADIUS", help="cover radius c (default 0.05)")
    command.add_argument("--rho", type=float, help="Lipschitz constant ρ of the criterion (default β/(2c))")
    command.add_argument("--norm", type=float, help="Δ, bound on the norm of every Z (default 1.45)")
    command.add_argument("--inner-norm", type=float, help="Δ₂, the same without the constant function (default 0.1)")
    command.add_argument(
        "--difference", type=float, help="bound on the norm of T − Z without the constant function (default 0.3)"
    )
    command.add_argument("--columns", type=int, metavar="N", help="functions of the state, k_s (default: k)")
    command.add_argument("--tail", type=float, help="norm of what truncation leaves out (default 0)")


def _add_reproduce(command: argparse.ArgumentParser) -> None:
    studies = f"{', '.join(STUDIES)} (beyond the paper), or all"
    command.add_argument("study", metavar="STUDY", choices=[*STUDIES, "all"], help=studies)
    add_study_options(command, "certirl-reproduced")
    command.add_argument("--again", action="store_true", help="compute what is finished again, too")


def add_study_options(parser: Any, out: str) -> None:
    """Add the options of every study; ``out`` is the folder for its results."""
    parser.add_argument("--fast", action="store_true", help="a small version, for a first look")
    add_place(parser, "processes")
    parser.add_argument("--trials", type=int, help="repetitions, where there are any (default: the paper's)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws (default 0)")
    parser.add_argument("--out", type=_folder, default=Path(out), help=f"folder for the results (default {out})")


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


VERBS = (
    Verb(
        "theorems",
        "print the samples that the theorems ask for",
        "--discount γ --beta β [options]",
        [("certirl theorems --discount 0.7 --beta 0.0377", "Theorem 6 as printed and corrected")],
        _add_theorems,
        theorems,
    ),
    Verb(
        "reproduce",
        "run the paper's experiments and draw its figures",
        "STUDY [options]",
        [
            ("certirl reproduce figure1 --fast", "one figure, at a small size"),
            ("certirl reproduce all", "every figure; what is finished is not computed again"),
        ],
        _add_reproduce,
        reproduce,
        clocked=False,
    ),
)
