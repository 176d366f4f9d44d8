"""Options that several commands share: of data, experts, functions, proofs, draws and places to work."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, cast

from certirl.cli.parsing import number, whole
from certirl.data.episodes import OUTSIDE
from certirl.functions.bases import FAMILIES
from certirl.proof.tails import GaussianNoise, LaplaceNoise, Smooth, Tail, UniformNoise

DATA = (
    "transitions: files, folders or patterns of .parquet, .csv, .tsv (also .gz) with columns state (or state_0, …), "
    "action and next_state, or episode and the next state in the next row; .npz with states, actions, next_states"
)
SIMULATOR = "or a simulator, FILE.py:NAME or MODULE:NAME"
OBSERVED = "observed"  # the word for an expert who made the log
# Tails beside a number, as --tail NAME:VALUE:…, the values being the fields of the record.
TAILS: dict[str, tuple[str, Any]] = {
    "gaussian": ("STD:SLOPE[:RATE]", lambda std, slope, rate=0.0: GaussianNoise(std, slope=slope, rate=rate)),
    "truncated": (
        "STD:SLOPE[:RATE]",
        lambda std, slope, rate=0.0: GaussianNoise(std, slope=slope, rate=rate, truncated=True),
    ),
    "laplace": ("SCALE:SLOPE", lambda scale, slope: LaplaceNoise(scale, slope=slope)),
    "uniform": ("HALF_WIDTH:SLOPE", lambda half_width, slope: UniformNoise(half_width, slope=slope)),
    "smooth": ("ORDER:BOUND", lambda order, bound: Smooth(int(order) if order == int(order) else order, bound)),
}


def add_log(command: argparse.ArgumentParser, *, also: Sequence[str] = ()) -> None:
    """Add the files of a log and the options that say what to make of their rows; ``also`` are other sources."""
    data = command.add_argument_group("data")
    data.add_argument("data", metavar="DATA", nargs="+", help="; ".join([DATA, *also]))
    data.add_argument(
        "--domain", type=float, nargs=2, metavar=("LOW", "HIGH"), action="append",
        help="interval of the states, once for each coordinate",
    )  # fmt: skip
    data.add_argument(
        "--actions", type=_actions, metavar="N", help="number, or names: left,right (default: from the data)"
    )
    data.add_argument(
        "--periodic", type=int, metavar="AXIS", action="append", default=[],
        help="number of a periodic coordinate, 0 for the first",
    )  # fmt: skip
    data.add_argument("--outside", choices=OUTSIDE, help="what leaves the domain (default refuse)")
    names = command.add_argument_group("columns of tables, if they have other names")
    names.add_argument("--state", nargs="+", metavar="NAME", help="columns of the state")
    names.add_argument("--next-state", nargs="+", metavar="NAME", help="columns of the next state, in that order")
    names.add_argument("--action", metavar="NAME", help="column of the action, numbers or names")
    names.add_argument("--episode", metavar="NAME", help="column of the episode; '' for rows without episodes")
    names.add_argument("--step", metavar="NAME", help="column that orders an episode: numbers, times")
    names.add_argument("--terminated", metavar="NAME", help="column that marks terminal states")
    names.add_argument("--delimiter", metavar="MARK", help="between columns of text")


def add_draws(group: Any, usual: str) -> None:
    """Add the options about draws; ``usual`` says how many are made by default."""
    group.add_argument(
        "--samples", "--max-samples", type=int, metavar="N",
        help=f"transitions of each action to draw ({usual})",
    )  # fmt: skip
    group.add_argument("--seed", type=int, metavar="N", help="of draws and of the division of a log (default 0)")


def add_expert(command: argparse.ArgumentParser, discount: str, default: str, **settings: Any) -> None:
    """Add the options about the expert; ``settings`` are those of ``--discount``."""
    expert = command.add_argument_group("expert")
    expert.add_argument("--discount", type=float, metavar="GAMMA", help=discount, **settings)
    expert.add_argument(
        "--expert", metavar="WHO",
        help=f"the action that it always takes ({default}); a file of demonstrations with columns state, action "
        f"(and episode), or .npz; the word {OBSERVED}, if the expert made the log; or a function, FILE.py:NAME",
    )  # fmt: skip
    expert.add_argument("--errors", type=float, metavar="SHARE", help="of demonstrated actions that may be mistakes")


def add_proof(proof: Any) -> None:
    """Add the options of every proof."""
    forms = ", ".join(f"or {name}:{form}" for name, (form, _) in TAILS.items())
    proof.add_argument(
        "--tail", type=tail, metavar="TAIL",
        help=f"what the columns miss of the dynamics: a number (0: nothing), {forms}, or FILE.py:NAME in Python",
    )  # fmt: skip
    proof.add_argument(
        "--known-noise", type=float, metavar="STD",
        help="in place of columns and a tail: s' is an affine drift plus Gaussian noise, clipped, of one coordinate; "
        "this is the standard deviation of the noise, exactly",
    )  # fmt: skip
    proof.add_argument(
        "--tube", type=float, metavar="WIDTH",
        help="for policies: nearer than this to a switch nothing need be proved",
    )  # fmt: skip


def tail(text: str) -> float | Tail:
    """A tail, as the value of an option: a number, NAME:VALUE:… with a name of `TAILS`, or an object in a file."""
    name, *values = text.strip().split(":")
    if name.endswith(".py") and len(values) == 1:
        from certirl.cli.inputs import imported

        try:
            return cast(Tail, imported(text.strip()))
        except (ValueError, FileNotFoundError) as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None
    try:
        return TAILS[name][1](*map(number, values)) if name in TAILS else number(text)
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        forms = [*(f"{name}:{form}" for name, (form, _) in TAILS.items()), "FILE.py:NAME"]
        raise argparse.ArgumentTypeError(f"must be a number, or {' or '.join(forms)}, got {text.strip()!r}") from None


def _actions(text: str) -> Any:
    """The number of actions, or their names."""
    return tuple(text.split(",")) if "," in text else whole(text)


def add_basis(group: Any, usual: str, *, default: str | None = None) -> None:
    """Add the options that choose functions of the state; ``usual`` names the default."""
    names = [name.lower() for name in FAMILIES]
    group.add_argument("--basis", choices=names, default=default, help=f"default: {usual}")
    group.add_argument("--size", type=int, metavar="N", help="functions in --basis (default 11)")


def add_place(parser: Any, workers: str) -> None:
    """Add the options that say where to work; ``workers`` in words without a scheduler."""
    parser.add_argument("--workers", type=int, metavar="N", help=f"{workers} (default: all cores)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of Dask, tcp://host:8786; or local, to start one")
