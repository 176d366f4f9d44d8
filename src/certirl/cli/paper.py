"""The commands about the paper and about speed: theorems, reproduce, bench."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from certirl.cli import options as shared
from certirl.cli.output import Answer
from certirl.cli.parsing import Verb


def theorems(options: argparse.Namespace) -> Answer:
    """Print the samples that the theorems ask for."""
    from certirl.paper.theorems import ASSUMED, requirements

    names = ("discount", "beta", *ASSUMED, "rho", "columns")
    asked = requirements(**{name: getattr(options, name) for name in names})
    print(asked)
    return Answer(asked)


def reproduce(options: argparse.Namespace) -> Answer:
    """Run the paper's experiments."""
    names = shared.STUDIES if options.study == "all" else [options.study]
    return Answer(_imported("experiments", "study").reproduce(names, options))


def bench(options: argparse.Namespace) -> Answer:
    """Measure the speed of the kernels and of whole passes on this machine, beside its limits."""
    return Answer(_imported("benchmarks", "bench").run(options.out, fast=options.fast))


def _imported(folder: str, name: str) -> Any:
    """A file of experiments/ or benchmarks/: beside src/ in a checkout, inside the package in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for place_of_files in (package / folder, package.parents[1] / folder):
        if (place_of_files / f"{name}.py").exists():
            sys.path.insert(0, str(place_of_files))  # other processes import from there as well
            return importlib.import_module(name)
    raise FileNotFoundError(f"{folder}/{name}.py is missing: install certirl again, or run certirl from a checkout")


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
    studies = f"{', '.join(shared.STUDIES)} (beyond the paper), or all"
    command.add_argument("study", metavar="STUDY", choices=[*shared.STUDIES, "all"], help=studies)
    shared.add_study_options(command, "certirl-reproduced")
    command.add_argument("--again", action="store_true", help="compute what is finished again, too")


def _add_bench(command: argparse.ArgumentParser) -> None:
    command.add_argument("--fast", action="store_true", help="a first look, in less than 20 seconds")
    shared.add_folder(command, "certirl-bench")


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
    Verb(
        "bench",
        "measure the kernels and whole passes against peers and limits",
        "[options]",
        [("certirl bench --fast", "a first look, in less than 20 seconds")],
        _add_bench,
        bench,
        clocked=False,
    ),
)
