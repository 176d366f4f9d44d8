"""Options of the commands, and what they stand for: logs, bases, experts, and calls of `solve`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from certirl.data import moments
from certirl.data.coverage import coverage
from certirl.data.demonstrations import policy_from
from certirl.data.dependence import dependence
from certirl.data.episodes import OUTSIDE
from certirl.data.formats import Columns, find_tables, in_table, open_table
from certirl.data.policy import Policy
from certirl.data.tables import EPISODE, Names, read, read_demonstrations, recognise
from certirl.data.transitions import Transitions
from certirl.fit.effects import value_basis
from certirl.functions.bases import FAMILIES, MOST_FUNCTIONS, Basis, Fourier, product
from certirl.ground import archive, doors
from certirl.ground.domain import describe
from certirl.ground.doors import as_count, is_number
from certirl.solver.settings import NO_PROOF_FROM_MOMENTS, Settings
from certirl.solver.solve import solve

DATA = (
    "files, folders or patterns: .parquet, .csv or .tsv (also .gz) with columns state (or state_0, state_1, …), action "
    "and next_state, or with a column episode and the next state in the next row; or .npz with arrays states, actions, "
    "next_states; the options below name other columns; write files before options"
)
# Keywords that a command writes otherwise than with two dashes before them, and the form of values unlike Python's.
_RENAMED = {
    "n_actions": "actions", "next_state": "next", "rng": "seed", "map": "workers", "price": "slack", "k": "size",
}  # fmt: skip
COLUMNS = ("state", "action", "next", "episode", "step", "terminated", "delimiter")  # options about tables
_FORMS = {"domain": " LOW HIGH", "periodic": " AXIS"}
_POSITIONAL = ("data", "file", "files", "study", "run", "given")
OBSERVED = "observed"  # the word for an expert who made the log
MOSTLY = 0.5  # of the states: where some action is extrapolated at more of them, no answer is given
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

    A file whose name begins with a dash is refused, since argparse would take it for an option, too; a third number
    after --domain; and a file after names of columns.
    """
    read: list[str] = []
    for place, word in enumerate(words):
        numbers = list(takewhile(is_number, words[place + 1 :])) if word == "--domain" else []
        if len(numbers) > 2 and not Path(numbers[2]).exists():
            raise ValueError(
                f"--domain takes two numbers, got {' '.join(numbers)}: write --domain once for each coordinate, say "
                "--domain -1 1 --domain 0 2"
            )
        columns = takewhile(lambda other: other[:1] != "-", words[place + 1 :]) if word in ("--state", "--next") else ()
        swallowed = next((name for name in columns if Path(name).is_file()), None)
        if swallowed is not None:
            raise ValueError(f"{word} takes names of columns, and {swallowed} is a file: write files before options")
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


def add_log(command: Any, *, also: str = "") -> None:
    """Add the files of a log and the options that say what to make of their rows."""
    command.add_argument("data", nargs="+", help=DATA + also)
    command.add_argument(
        "--domain", type=float, nargs=2, metavar=("LOW", "HIGH"), action="append",
        help="the interval of states; once for each coordinate",
    )  # fmt: skip
    command.add_argument(
        "--actions", type=_actions, metavar="N",
        help="number of actions (default: largest seen plus one), or names in order: left,right (default: sorted)",
    )  # fmt: skip
    command.add_argument(
        "--periodic", type=int, metavar="AXIS", action="append", default=[],
        help="a periodic coordinate, 0 being the first; once for each",
    )  # fmt: skip
    command.add_argument(
        "--state", nargs="+", metavar="NAME", help="the columns of the state (default: by their names)"
    )
    command.add_argument("--next", nargs="+", metavar="NAME", help="the columns of the next state, in the same order")
    command.add_argument("--action", metavar="NAME", help="the column of the action, numbers or names")
    command.add_argument(
        "--episode", metavar="NAME",
        help=f"the column that says which episode a row is from (default: {EPISODE[0]} or another usual name, if there "
        "is one; '' to take every row by itself)",
    )  # fmt: skip
    command.add_argument("--step", metavar="NAME", help="the column that orders the rows of an episode: numbers, times")
    command.add_argument("--terminated", metavar="NAME", help="the column that marks terminal states")
    command.add_argument("--delimiter", metavar="MARK", help="what separates columns of text (default: by the header)")
    command.add_argument(
        "--outside", choices=OUTSIDE,
        help="what to do with transitions that leave the domain (default refuse)",
    )  # fmt: skip


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


# What the options stand for ------------------------------------------------------------------------------------------


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
    file = find_tables(options.data)[0]
    kind = archive.kind_of(file)
    if kind is not None:
        raise ValueError(f"{file} is a file of certirl ({kind}), not a table of transitions")
    names = Names(**names_of(options))
    with in_table(file):
        columns = recognise(open_table(file, names.delimiter), names)
    if columns.by_episode:
        other = "; --episode '' takes every row by itself" if columns.next_states else ""
        print(f"Read as episodes: {columns}{other}.")
    check_axes(options.periodic, columns.dimension)
    return columns


def names_of(options: argparse.Namespace) -> dict[str, Any]:
    """The columns that are named, as settings of `certirl.tables.read`."""
    names = {name: getattr(options, name) for name in COLUMNS}
    names["next_state"] = names.pop("next")
    return {name: value for name, value in names.items() if value is not None}


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of `certirl.tables.read` and `stream` behind the options."""
    return {
        "domain": options.domain,
        "actions" if isinstance(options.actions, tuple) else "n_actions": options.actions,
        "periodic": options.periodic,
        "outside": options.outside or OUTSIDE[0],
        **names_of(options),
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


def solved(options: argparse.Namespace, where: Any) -> Any:
    """The answer of `solve` to the options of a command; ``where`` is its map."""
    kinds = [archive.kind_of(path) for path in options.data]
    return (_from_moments if any(kinds) else _from_log)(options, {**_asked(options), "map": where})


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of `solve` that do not depend on the data; None where none is asked for."""
    asked = {name: getattr(options, name) for name in ("discount", "columns", "delta", "tail")}
    names = ("objective", "cover", "slack", "margin", "smoothness", "tube")
    return asked | {"settings": Settings(**{name: getattr(options, name) for name in names})}


def _from_log(options: argparse.Namespace, asked: dict[str, Any]) -> Any:
    expert = expert_of(options)
    if options.delta is not None and options.domain is None:
        raise ValueError("a certificate needs a declared domain: write --domain LOW HIGH, once for each coordinate")
    if expert.action is not None and options.errors is not None:
        raise ValueError("--errors is for experts who are known by demonstrations: leave it out")
    log = read_log(options)
    sentence = dependence(log) if options.delta is not None else ""
    if sentence:
        raise ValueError(sentence)
    if expert.action is None:
        policy = policy_of(expert, log, options)
        return solve(log, expert=policy, basis=_value_functions(options, log), **asked)
    basis = basis_of(options, len(log.domain))
    if options.periodic and basis is None:
        raise ValueError("--periodic needs --basis with an expert who always takes one action, say --basis legendre")
    return solve(log, expert=expert.action, basis=basis, **asked)


def _from_moments(options: argparse.Namespace, asked: dict[str, Any]) -> Any:
    if len(options.data) > 1:
        raise ValueError(
            "one moments file can be solved, and no other file with it: certirl merge puts several together"
        )
    for name in ("domain", "actions", "periodic", "outside", *COLUMNS):
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} belongs to transitions, and moments were measured with theirs: leave it out")
    with doors.options({}):  # what is wrong in the file was no option
        measured = moments.load(options.data[0])
    expert = expert_of(options)
    if expert.action is None:
        raise ValueError("an expert who depends on the state needs transitions: moments keep no states")
    print(measured)
    basis = basis_of(options, measured.rows.dimension)
    solution = solve(measured, expert=expert.action, basis=basis, **asked)
    print(f"{NO_PROOF_FROM_MOMENTS.capitalize()}.")
    return solution


@dataclass(frozen=True)
class Expert:
    """The expert that ``--expert`` names.

    Attributes:
        action: the action it always takes; None if it depends on the state.
        file: of demonstrations; None if the log was made by the expert.
    """

    action: int | None
    file: str | None = None


def expert_of(options: argparse.Namespace) -> Expert:
    """An action, the word "observed", or a file."""
    word = str(options.expert).strip()
    if word.lstrip("+-").isdecimal():
        return Expert(int(word))
    if isinstance(options.actions, tuple) and word in options.actions:
        return Expert(options.actions.index(word))
    if word == OBSERVED:
        if options.delta is not None:
            raise ValueError(
                "a certificate must rest on data that had no part in saying who the expert is: give the expert's "
                "demonstrations in a file of their own, --expert FILE, or leave --delta out"
            )
        return Expert(None)
    if not word or not Path(word).exists():
        raise ValueError(
            f"--expert must be an action (a whole number, or a name with --actions left,right), the word {OBSERVED}, "
            f"or a file of demonstrations; {f'there is no file {word}' if word else 'it is empty'}"
        )
    kind = archive.kind_of(word)
    if kind is not None:
        raise ValueError(f"--expert must be a file of demonstrations, and {word} is a file of certirl ({kind})")
    if Path(word).resolve() in {file.resolve() for file in find_tables(options.data)}:
        raise ValueError(f"{word} is the log itself: write --expert {OBSERVED} if the expert made it")
    return Expert(None, word)


def demonstrations_of(options: argparse.Namespace) -> tuple[Path, ...]:
    """The files that ``--expert`` names."""
    expert = expert_of(options)
    return () if expert.file is None else find_tables(expert.file)


def policy_of(expert: Expert, log: Transitions, options: argparse.Namespace) -> Policy:
    """The policy of an expert that depends on the state, estimated from its actions."""
    if expert.file is None:
        _check_alternatives(log, options.periodic)
        return policy_from(log, periodic=options.periodic, errors=options.errors)
    names = {"actions": log.action_names or None, **names_of(options)}
    states, actions, episodes = read_demonstrations(expert.file, **names)
    try:
        if states.shape[1] != len(log.domain):
            raise ValueError(f"states have {states.shape[1]} coordinates, those of the log {len(log.domain)}")
        settings: dict[str, Any] = {"domain": log.domain, "n_actions": log.n_actions, "periodic": options.periodic}
        return policy_from(states, actions, episodes=episodes, errors=options.errors, **settings)
    except ValueError as problem:
        raise ValueError(f"{expert.file}: {problem}") from None


def _value_functions(options: argparse.Namespace, log: Transitions) -> Basis | None:
    """The functions of V that were asked for, or the usual ones for periodic coordinates."""
    basis = basis_of(options, len(log.domain))
    usual = basis is None and options.periodic
    return value_basis(log.domain, tuple(options.periodic), states=log.states) if usual else basis


def _check_alternatives(log: Transitions, periodic: Sequence[int]) -> None:
    """Refuse a log of the expert in which other actions were hardly ever tried."""
    covered = coverage(log, periodic=tuple(periodic))
    if covered.never_taken:
        raise ValueError(
            f"action {', '.join(map(str, covered.never_taken))} was never taken in the log, so that nothing tells what "
            "the expert avoided: add transitions in which it is tried, or lower --actions"
        )
    share = float(covered.extrapolated(log.states).mean())
    if share > MOSTLY:
        where = [sentence for sentence in covered.sentences if "taken only" in sentence] or covered.sentences
        raise ValueError(
            f"the log does not show what the actions do that the expert avoids: at {share:.0%} of its states some "
            f"action was never tried nearby ({'; '.join(where)}); add transitions in which every action is tried"
        )
    if not covered.complete:
        lines = (f"  {sentence[0].upper()}{sentence[1:]}." for sentence in covered.sentences)
        print("\n".join(["What the log does not show:", *lines]))
