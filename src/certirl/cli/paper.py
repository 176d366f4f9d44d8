"""The commands about the paper: theorems and reproduce."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from certirl.cli.options import STUDIES, place
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


def study_options(out: str) -> dict[str, str]:
    """The options of every study; ``out`` is the folder for its results."""
    return {
        "--fast": "a small version, for a first look",
        **place("processes"),
        "--trials N": "repetitions, where there are any (default: the paper's)",
        "--seed N": "seed of all draws (default 0)",
        "--out FOLDER": f"folder for the results (default {out})",
    }


VERBS = (
    Verb(
        "theorems",
        "print the samples that the theorems ask for",
        "--discount γ --beta β [options]",
        [("certirl theorems --discount 0.7 --beta 0.0377", "Theorem 6 as printed and corrected")],
        {
            "problem": {
                "--discount GAMMA": "γ",
                "--beta BETA": "β-separability: the best margin with ‖α‖₁ = 1",
                "--delta DELTA": "probability of failure (default 0.05)",
                "--size N": "functions in the basis, k (default 11)",
                "--actions N": "number of actions (default 3)",
                "--cover RADIUS": "cover radius c (default 0.05)",
                "--rho RHO": "Lipschitz constant ρ of the criterion (default β/(2c))",
                "--norm NORM": "Δ, bound on the norm of every Z (default 1.45)",
                "--inner-norm NORM": "Δ₂, the same without the constant function (default 0.1)",
                "--difference NORM": "bound on the norm of T − Z without the constant function (default 0.3)",
                "--columns N": "functions of the state, k_s (default: k)",
                "--tail NORM": "norm of what truncation leaves out (default 0)",
            }
        },
        theorems,
        required=("discount", "beta"),
    ),
    Verb(
        "reproduce",
        "run the paper's experiments and draw its figures",
        "STUDY [options]",
        [
            ("certirl reproduce figure1 --fast", "one figure, at a small size"),
            ("certirl reproduce all", "every figure; what is finished is not computed again"),
        ],
        {
            "": {
                "study STUDY": f"{', '.join(STUDIES)} (beyond the paper), or all",
                **study_options("certirl-reproduced"),
                "--again": "compute what is finished again, too",
            }
        },
        reproduce,
        clocked=False,
        defaults={"seed": 0, "out": Path("certirl-reproduced")},
    ),
)
