"""What a command is given: its options, and the logs and bases behind them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from certirl.bases import FAMILIES, Basis, Fourier
from certirl.boxes import product
from certirl.domain import describe
from certirl.episode_readers import ENDS, EPISODE, Columns, columns_of, names_of
from certirl.episodes import OUTSIDE
from certirl.readers import find_files
from certirl.transitions import Transitions

DATA = (
    "files, folders or patterns: .parquet or .csv with columns state (or state_0, state_1, …), action and next_state, "
    "or with a column episode and the next state in the next row; or .npz with arrays states, actions, next_states"
)
_INTERVALS: dict[str, Any] = {"type": float, "nargs": 2, "metavar": ("LOW", "HIGH"), "action": "append"}


def add_states(group: Any) -> None:
    """The options that say where the states live."""
    group.add_argument("--domain", help="the interval of states; once for each coordinate", **_INTERVALS)
    group.add_argument("--actions", type=int, metavar="N", help="number of actions (default: largest seen plus one)")
    group.add_argument(
        "--periodic", type=int, metavar="AXIS", action="append", default=[],
        help="a coordinate that goes around, 0 being the first; once for each",
    )  # fmt: skip


def add_episodes(group: Any) -> None:
    """The options of logs with episodes."""
    group.add_argument(
        "--episode-column", metavar="NAME",
        help=f"the column that says which episode a row is from (default: {EPISODE[0]} or another usual name, if there "
        "is one; '' to take every row by itself)",
    )  # fmt: skip
    group.add_argument(
        "--outside", choices=OUTSIDE, default=OUTSIDE[0],
        help="what to do with episodes that leave the domain (default refuse)",
    )  # fmt: skip


def add_basis(group: Any, told: str, *, default: str | None = None) -> None:
    """The options that choose functions of the state; ``told`` says which they are if none are asked for."""
    names = [name.lower() for name in FAMILIES]
    group.add_argument("--basis", choices=names, default=default, help=f"default: {told}; Fourier for --periodic")
    group.add_argument("--size", type=int, metavar="N", help="functions in the basis, with --basis (default 11)")


def basis_of(options: argparse.Namespace, coordinates: int) -> Basis | None:
    """The family asked for, Fourier where it goes around; with several coordinates, its products by total degree."""
    check_axes(options.periodic, coordinates)
    if options.basis is None:
        if options.size is not None:
            raise ValueError("--size goes with --basis; without a basis both are chosen from the data")
        return None
    size, family = 11 if options.size is None else options.size, FAMILIES[options.basis.capitalize()]
    parts = [Fourier(size) if axis in options.periodic else family(size) for axis in range(coordinates)]
    return parts[0] if coordinates == 1 else product(*parts)


def recognised(options: argparse.Namespace) -> Columns | None:
    """How a table is divided into episodes; None if every row stands by itself."""
    file, asked = find_files(options.data)[0], options.episode_column
    if asked == "" or (file.suffix.lower() == ".npz" and asked is None):
        return None
    try:
        if asked is None and not {*EPISODE, *ENDS} & set(names_of(file)):
            return None
        return columns_of(file, episode_column=asked)
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}") from None


def told_about(columns: Columns) -> str:
    """What was recognised, and how to have it otherwise."""
    other = "; --episode-column '' takes every row by itself" if columns.next_states else ""
    return f"Read as episodes: {columns}{other}."


def read_log(options: argparse.Namespace) -> Transitions:
    """The transitions of the files, and a sentence about what was recognised or guessed."""
    from certirl.tables import read_episodes, read_transitions

    columns, given = recognised(options), {"domain": options.domain, "n_actions": options.actions}
    if columns is None:
        log = read_transitions(options.data, **given)
    else:
        print(told_about(columns))
        given |= {"periodic": options.periodic, "outside": options.outside, "episode_column": columns.episode}
        log = read_episodes(options.data, **given)
    check_axes(options.periodic, len(log.domain))
    print(log)
    if options.domain is None:
        print(f"The domain {describe(log.domain)} was taken from the data; --domain LOW HIGH sets it.")
    return log


def check_axes(periodic: Sequence[int], coordinates: int) -> None:
    """Refuse coordinates that go around and are not there."""
    wrong = [axis for axis in periodic if axis not in range(coordinates)]
    if wrong:
        there = "coordinate 0" if coordinates == 1 else f"coordinates 0 … {coordinates - 1}"
        raise ValueError(f"--periodic {wrong[0]} names no coordinate: the states have {there}")
