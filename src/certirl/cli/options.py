"""The options of all commands as tables: of data, experts, functions, proofs, draws, places to work and results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, cast

from certirl.cli.parsing import Table, number, whole
from certirl.data.episodes import LAGS, OUTSIDE, SIGN
from certirl.data.tables import MISSING
from certirl.fit.recover import OBJECTIVES
from certirl.functions.bases import FAMILIES
from certirl.proof.tails import GaussianNoise, LaplaceNoise, Smooth, Tail, UniformNoise

DATA = (
    "transitions: files, folders or patterns of .parquet, .csv, .tsv (also .gz) with columns state (or state_0, …), "
    "action and next_state, or episode and the next state in the next row; .npz with such arrays"
)
SIMULATOR = "or a simulator, FILE.py:NAME or MODULE:NAME"
STUDIES = ("figure1", "figure2", "figure3", "figure4", "rollouts", "samples")  # modules of certirl.paper.figures
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


def actions(text: str) -> Any:
    """The number of actions; their names; or for controls what readers are told of them, ``{"actions": 3}``."""
    kind, _, levels = text.partition(":")
    if kind == "levels" and levels:
        return {"actions": [number(level) for level in levels.split(",")] if "," in levels else whole(levels)}
    if text == SIGN:
        return {"actions": SIGN}
    return tuple(text.split(",")) if "," in text else whole(text)


def folder(text: str) -> Path:
    """A folder, which has a name."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


# What argparse is told of the words in capitals that stand for values; of all others that they are texts.
VALUES: dict[str, dict[str, Any]] = {
    **{word: {"type": float} for word in ("BETA", "DELTA", "GAMMA", "L", "NORM", "PRICE", "RADIUS", "RHO", "SHARE")},
    **{word: {"type": float} for word in ("STD", "WIDTH")},
    "N": {"type": int},
    "LOW": {"type": float, "metavar": ("LOW", "HIGH"), "nargs": 2, "action": "append"},
    "AXIS": {"type": int, "action": "append", "default": []},
    "ACTIONS": {"type": actions},
    "TAIL": {"type": tail},
    "FOLDER": {"type": folder},
    "FAMILY": {"choices": [name.lower() for name in FAMILIES]},
    "OUTSIDE": {"choices": OUTSIDE},
    "LAG": {"choices": LAGS},
    "MISSING": {"choices": MISSING},
    "TIME": {"type": float},
    "OBJECTIVE": {"choices": OBJECTIVES},
    "STUDY": {"choices": [*STUDIES, "all"]},
}

SAVED = {"file FILE": "what certirl saved (.npz)"}
PLOT = {"--plot PICTURE": "where a picture goes (default: none)"}
COLUMNS = "functions of the state that describe what actions do (default: {})"


def log(*also: str) -> dict[str, dict[str, str]]:
    """The files of a log and what to make of their rows; ``also`` are other sources."""
    return {
        "data": {
            "data DATA …": "; ".join([DATA, *also]),
            "--domain LOW HIGH": "interval of the states, once for each coordinate",
            "--actions ACTIONS": "number, names left,right, or of controls levels:3, sign",
            "--periodic AXIS": "number of a periodic coordinate, 0 for the first",
            "--exogenous NAME …": "columns of the state that no action moves",
            "--outside OUTSIDE": "states outside (default refuse)",
            "--lag LAG …": "of the step before, as a coordinate",
        },
        "columns of tables, if they have other names": {
            "--state NAME …": "columns of the state",
            "--next-state NAME …": "columns of the next state, in that order",
            "--action NAME": "column of the action, numbers or names",
            "--episode NAME": "column of the episode; '' for rows without episodes",
            "--step NAME": "column that orders an episode: numbers, times",
            "--terminated NAME": "column that marks terminal states",
            "--delimiter MARK": "between columns of text",
            "--missing MISSING": "rows without a value (default refuse)",
            "--longest-step TIME": "longer ones end episodes; units of --step, or seconds",
        },
    }


def expert(discount: str, default: str) -> dict[str, dict[str, str]]:
    """Who the expert is, and its discount; words about these."""
    who = (
        f"the action that it always takes ({default}); a file of demonstrations with columns state, action "
        f"(and episode), or .npz; the word {OBSERVED}, if the expert made the log; or a function, FILE.py:NAME"
    )
    errors = "of demonstrated actions that may be mistakes"
    return {"expert": {"--discount GAMMA": discount, "--expert WHO": who, "--errors SHARE": errors}}


def basis(usual: str) -> dict[str, str]:
    """Functions of the state; ``usual`` names the default."""
    return {"--basis FAMILY": f"default: {usual}", "--size N": "functions in --basis (default 11)"}


def proof(delta: str, more: dict[str, str], samples: str) -> dict[str, dict[str, str]]:
    """What every proof is asked for; ``samples`` says how many draws are usual."""
    forms = ", ".join(f"or {name}:{form}" for name, (form, _) in TAILS.items())
    return {
        "proof": {
            "--delta DELTA": delta,
            "--tail TAIL": f"what the columns miss of the dynamics: a number (0: nothing), {forms}, or FILE.py:NAME "
            "in Python",
            "--known-noise STD": "in place of columns and a tail, for one coordinate: s' is an affine drift plus "
            "Gaussian noise of exactly this standard deviation, clipped",
            "--tube WIDTH": "for policies: nothing need be proved so near a switch",
            "--suboptimality SHARE": "by how much actions of an inexact expert may be worse than the best: a share of "
            "the reward's span",
            **more,
            "--samples --max-samples N": f"draws of each action ({samples})",
            "--seed N": "of draws and of the division of a log (default 0)",
        }
    }


def place(workers: str) -> dict[str, str]:
    """Where to work; ``workers`` in words without a scheduler."""
    scheduler = "of Dask, tcp://host:8786; or local, to start one"
    return {"--workers N": f"{workers} (default: all cores)", "--scheduler WHERE": scheduler}


def result(what: str, picture: str = "") -> dict[str, dict[str, str]]:
    """Where a result and its picture go; ``picture`` says what is drawn by default."""
    drawn = {"--plot PICTURE": f"the picture (default: {picture})"} if picture else {}
    return {"output": {"-o --output FILE": f"where the {what}", **drawn}}


THREADS: Table = {"work": place("threads")}
BESIDE = "beside the solution; '' for none"
