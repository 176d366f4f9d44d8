"""What a command is given: its options, and the logs and bases behind them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certirl.data.episodes import OUTSIDE
from certirl.data.formats import find_files, in_file, open_table
from certirl.data.tables import EPISODE, Columns, read, recognise
from certirl.data.transitions import Transitions
from certirl.functions.bases import FAMILIES, MOST_FUNCTIONS, Basis, Fourier, product
from certirl.ground import archive
from certirl.ground.domain import describe
from certirl.ground.doors import as_count

DATA = (
    "files, folders or patterns: .parquet or .csv with columns state (or state_0, state_1, …), action and next_state, "
    "or with a column episode and the next state in the next row; or .npz with arrays states, actions, next_states"
)
# Keywords that a command writes otherwise than with two dashes before them, and the form of values unlike Python's.
_RENAMED = {"n_actions": "actions", "rng": "seed", "map": "workers", "price": "slack", "k": "size"}
_FORMS = {"domain": " LOW HIGH", "periodic": " AXIS"}
_POSITIONAL = ("data", "file", "files", "study", "run", "given")
# What `certirl reproduce` runs: files of experiments/.
STUDIES = ("figure1", "figure2", "figure3", "figure4", "rollouts", "samples")


def number(text: str) -> float:
    """A number, as the value of an option."""
    try:
        return float(text)
    except ValueError:
        comma = ": write a decimal point" if re.fullmatch(r"\s*[+-]?\d*,\d+\s*", text) else ""
        raise argparse.ArgumentTypeError(f"must be a number, got {text.strip()!r}{comma}") from None


def whole(text: str) -> int:
    """A whole number, as the value of an option."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text.strip()[:40]!r}") from None


class Once(argparse.Action):
    """Store the value of an option, and refuse a second one."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store it."""
        given: frozenset[str] = getattr(namespace, "given", frozenset())
        if option_string is not None and self.dest in given:
            raise argparse.ArgumentError(self, "is given twice")
        namespace.given = given | {self.dest}
        setattr(namespace, self.dest, values)


def as_argparse_reads(words: Sequence[str]) -> list[str]:
    """The same words, with negative numbers such as -1e-3 marked as values for argparse.

    A file whose name begins with a dash is refused, since argparse would take it for an option, too.
    """
    read: list[str] = []
    for place, word in enumerate(words):
        if word == "--":
            return [*read, *words[place:]]
        if re.fullmatch(r"-(\d|[.,]\d|inf|nan).*", word, re.IGNORECASE):
            word = f" {word}"  # with a space it can be no option, and float does not mind
        elif re.match(r"-[^-]", word) and Path(word).exists():
            raise ValueError(f"{word} begins with a dash and would be taken for an option: write ./{word}")
        read.append(word)
    return read


def option_names(options: argparse.Namespace) -> dict[str, str]:
    """The options that stand for settings of Python calls (see `doors.setting`)."""
    names = {name: name for name in vars(options) if name not in _POSITIONAL}
    names |= {keyword: name for keyword, name in _RENAMED.items() if name in names}
    return {keyword: f"--{name.replace('_', '-')}{_FORMS.get(name, '')}" for keyword, name in names.items()}


_INTERVALS: dict[str, Any] = {"type": float, "nargs": 2, "metavar": ("LOW", "HIGH"), "action": "append"}


def add_states(group: Any) -> None:
    """The options that say where the states live."""
    group.add_argument("--domain", help="the interval of states; once for each coordinate", **_INTERVALS)
    group.add_argument("--actions", type=int, metavar="N", help="number of actions (default: largest seen plus one)")
    group.add_argument(
        "--periodic", type=int, metavar="AXIS", action="append", default=[],
        help="a periodic coordinate, 0 being the first; once for each",
    )  # fmt: skip


def add_episodes(group: Any) -> None:
    """The options that say what to make of the rows of a table."""
    group.add_argument(
        "--episode-column", metavar="NAME",
        help=f"the column that says which episode a row is from (default: {EPISODE[0]} or another usual name, if there "
        "is one; '' to take every row by itself)",
    )  # fmt: skip
    group.add_argument(
        "--outside", choices=OUTSIDE,
        help="what to do with transitions that leave the domain (default refuse)",
    )  # fmt: skip


def add_basis(group: Any, usual: str, *, default: str | None = None) -> None:
    """Add the options that choose functions of the state; ``usual`` names the default."""
    names = [name.lower() for name in FAMILIES]
    group.add_argument("--basis", choices=names, default=default, help=f"default: {usual}; Fourier for --periodic")
    group.add_argument("--size", type=int, metavar="N", help="functions in the basis, with --basis (default 11)")


def basis_of(options: argparse.Namespace, coordinates: int) -> Basis | None:
    """The basis asked for: one family, Fourier for periodic coordinates, or products."""
    check_axes(options.periodic, coordinates)
    if options.basis is None:
        if options.size is not None:
            raise ValueError("--size goes with --basis; without a basis both are chosen from the data")
        return None
    size = 11 if options.size is None else as_count(options.size, "size", most=MOST_FUNCTIONS)
    family = FAMILIES[options.basis.capitalize()]
    parts = [Fourier(size) if axis in options.periodic else family(size) for axis in range(coordinates)]
    return parts[0] if coordinates == 1 else product(*parts)


def columns_of(options: argparse.Namespace) -> Columns:
    """What the columns of the first file mean; tables of episodes are announced."""
    file = find_files(options.data)[0]
    kind = archive.kind_of(file)
    if kind is not None:
        raise ValueError(f"{file} is a file of certirl ({kind}), not a table of transitions")
    with in_file(file):
        columns = recognise(open_table(file), episode_column=options.episode_column)
    if columns.by_episode:
        other = "; --episode-column '' takes every row by itself" if columns.next_states else ""
        print(f"Read as episodes: {columns}{other}.")
    check_axes(options.periodic, columns.dimension)
    return columns


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of `certirl.tables.read` and `stream` behind the options."""
    return {
        "domain": options.domain,
        "n_actions": options.actions,
        "periodic": options.periodic,
        "outside": options.outside or OUTSIDE[0],
        "episode_column": options.episode_column,
    }


def read_log(options: argparse.Namespace) -> Transitions:
    """The transitions of the files; what was recognised or chosen is printed."""
    columns_of(options)
    log = read(options.data, **reading(options))
    print(log)
    if options.domain is None:
        print(f"The domain {describe(log.domain)} was taken from the data; --domain LOW HIGH sets it.")
    return log


def check_axes(periodic: Sequence[int], coordinates: int) -> None:
    """Refuse periodic coordinates that do not exist."""
    wrong = [axis for axis in periodic if axis not in range(coordinates)]
    if wrong:
        there = "coordinate 0" if coordinates == 1 else f"coordinates 0 … {coordinates - 1}"
        raise ValueError(f"--periodic {wrong[0]} names no coordinate: the states have {there}")


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
