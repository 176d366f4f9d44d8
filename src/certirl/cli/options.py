"""Options that several commands share: of data, experts, functions, proofs, draws and places to work."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certirl.cli.parsing import number, whole
from certirl.data.episodes import OUTSIDE
from certirl.data.tables import EPISODE
from certirl.functions.bases import FAMILIES
from certirl.proof.tails import GaussianNoise, LaplaceNoise, Smooth, Tail, UniformNoise

DATA = (
    "files, folders or patterns: .parquet, .csv or .tsv (also .gz) with columns state (or state_0, state_1, …), action "
    "and next_state, or with a column episode and the next state in the next row; or .npz with arrays states, actions, "
    "next_states; the options below name other columns; write files before options"
)
SIMULATOR = "or a simulator, FILE.py:NAME or MODULE:NAME, which is imported"
OBSERVED = "observed"  # the word for an expert who made the log
# Tails beside a number, as --tail NAME:VALUE:…, the values being the fields of the record.
TAILS: dict[str, tuple[str, Any]] = {
    "gaussian": ("STD:SLOPE[:RATE]", lambda std, slope, rate=0.0: GaussianNoise(std, slope=slope, rate=rate)),
    "laplace": ("SCALE:SLOPE", lambda scale, slope: LaplaceNoise(scale, slope=slope)),
    "uniform": ("HALF_WIDTH:SLOPE", lambda half_width, slope: UniformNoise(half_width, slope=slope)),
    "smooth": ("ORDER:BOUND", lambda order, bound: Smooth(int(order) if order == int(order) else order, bound)),
}
# What `certirl reproduce` runs: files of experiments/.
STUDIES = ("figure1", "figure2", "figure3", "figure4", "rollouts", "samples")


def add_log(command: argparse.ArgumentParser, *, also: Sequence[str] = ()) -> None:
    """Add the files of a log and the options that say what to make of their rows; ``also`` are other sources."""
    data = command.add_argument_group("data")
    data.add_argument("data", metavar="DATA", nargs="+", help="; ".join([DATA, *also]))
    data.add_argument(
        "--domain", type=float, nargs=2, metavar=("LOW", "HIGH"), action="append",
        help="the interval of states; once for each coordinate",
    )  # fmt: skip
    data.add_argument(
        "--actions", type=_actions, metavar="N",
        help="number of actions (default: largest seen plus one), or names in order: left,right (default: sorted)",
    )  # fmt: skip
    data.add_argument(
        "--periodic", type=int, metavar="AXIS", action="append", default=[],
        help="a periodic coordinate, 0 being the first; once for each",
    )  # fmt: skip
    data.add_argument("--state", nargs="+", metavar="NAME", help="the columns of the state (default: by their names)")
    data.add_argument("--next-state", nargs="+", metavar="NAME", help="those of the next state, in the same order")
    data.add_argument("--action", metavar="NAME", help="the column of the action, numbers or names")
    data.add_argument(
        "--episode", metavar="NAME",
        help=f"the column that says which episode a row is from (default: {EPISODE[0]} or another usual name, if there "
        "is one; '' to take every row by itself)",
    )  # fmt: skip
    data.add_argument("--step", metavar="NAME", help="the column that orders the rows of an episode: numbers, times")
    data.add_argument("--terminated", metavar="NAME", help="the column that marks terminal states")
    data.add_argument("--delimiter", metavar="MARK", help="what separates columns of text (default: by the header)")
    data.add_argument(
        "--outside", choices=OUTSIDE, help="what to do with transitions that leave the domain (default refuse)"
    )


def add_draws(group: Any, usual: str) -> None:
    """Add the options about draws; ``usual`` says how many are made by default."""
    group.add_argument(
        "--samples", "--max-samples", type=int, metavar="N",
        help=f"of a simulator: transitions of every action to draw, with a proof at most ({usual})",
    )  # fmt: skip
    group.add_argument("--seed", type=int, metavar="N", help="of all draws, and of the division of a log (default 0)")


def add_expert(command: argparse.ArgumentParser, discount: str, default: str, **settings: Any) -> None:
    """Add the options about the expert; ``settings`` are those of ``--discount``."""
    expert = command.add_argument_group("expert")
    expert.add_argument("--discount", type=float, metavar="GAMMA", help=discount, **settings)
    expert.add_argument(
        "--expert", metavar="WHO",
        help=f"the action it always takes ({default}); or a file of its demonstrations, with columns state, action "
        "(and episode, if they come in episodes) or .npz with arrays states, actions; or the word "
        f"{OBSERVED}: the expert made the log, and its policy is learned from the actions there; or a function of "
        "states, FILE.py:NAME",
    )  # fmt: skip
    expert.add_argument(
        "--errors", type=float, metavar="SHARE",
        help="up to this share of the expert's demonstrated actions may be mistakes (default: none is declared)",
    )  # fmt: skip


def add_proof(proof: Any) -> None:
    """Add the options of every proof."""
    forms = ", ".join(f"or {name}:{form}" for name, (form, _) in TAILS.items())
    proof.add_argument(
        "--tail", type=tail, metavar="TAIL",
        help=f"how far the dynamics reach beyond --columns: a number (0: not at all), {forms}",
    )  # fmt: skip
    proof.add_argument(
        "--tube", type=float, metavar="WIDTH",
        help="for experts who depend on the state: nearer than this to a switch nothing need be proved",
    )  # fmt: skip


def tail(text: str) -> float | Tail:
    """A tail, as the value of an option: a number, or NAME:VALUE:… with a name of `TAILS`."""
    name, *values = text.strip().split(":")
    try:
        return TAILS[name][1](*map(number, values)) if name in TAILS else number(text)
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        forms = [f"{name}:{form}" for name, (form, _) in TAILS.items()]
        raise argparse.ArgumentTypeError(f"must be a number, or {' or '.join(forms)}, got {text.strip()!r}") from None


def _actions(text: str) -> Any:
    """The number of actions, or their names."""
    return tuple(text.split(",")) if "," in text else whole(text)


def add_basis(group: Any, usual: str, *, default: str | None = None) -> None:
    """Add the options that choose functions of the state; ``usual`` names the default."""
    names = [name.lower() for name in FAMILIES]
    group.add_argument("--basis", choices=names, default=default, help=f"default: {usual}; Fourier for --periodic")
    group.add_argument("--size", type=int, metavar="N", help="functions in the basis, with --basis (default 11)")


def add_place(parser: Any, workers: str) -> None:
    """Add the options that say where to work; ``workers`` in words without a scheduler."""
    parser.add_argument(
        "--workers", type=int, metavar="N", help=f"{workers} (default: all cores); results do not depend on it"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="a Dask scheduler, tcp://host:8786; or local, to start one of processes"
    )


def add_folder(parser: Any, name: str) -> None:
    """Add the option that says into which folder results are written, this one by default."""
    parser.add_argument("--out", type=_folder, default=Path(name), help=f"folder for the results (default {name})")


def add_study_options(parser: Any, out: str) -> None:
    """Add the options of every experiment; ``out`` is the folder for its results."""
    parser.add_argument("--fast", action="store_true", help="a small version, for a first look")
    add_place(parser, "processes")
    parser.add_argument("--trials", type=int, help="repetitions, where there are any (default: the paper's)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws (default 0)")
    add_folder(parser, out)


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)
