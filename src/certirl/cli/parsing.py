"""How the words of a command are read: verbs with examples and exit codes, options that are given once, numbers."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from certirl.ground.doors import is_number

# The exit codes of all commands.
DONE, BAD_INPUT, NOT_PROVED, INFEASIBLE, UNDETERMINED, INTERRUPTED = 0, 2, 3, 4, 5, 130
CODES = {
    DONE: "what was asked for is there",
    BAD_INPUT: "bad input, or code of yours that fails; one sentence says where",
    NOT_PROVED: "no proof, though one was asked for",
    INFEASIBLE: "infeasible: no reward of the class explains the expert",
    UNDETERMINED: "undetermined, or refuted by a check",
    INTERRUPTED: "interrupted",
}
ALWAYS = (DONE, BAD_INPUT, INTERRUPTED)  # codes of every command
WIDEST = 100  # characters of a line of help
# Keywords that a command writes otherwise than with two dashes before them, and the form of values unlike Python's.
_RENAMED = {
    "n_actions": "actions",
    "rng": "seed",
    "map": "workers",
    "price": "slack",
    "k": "size",
    "std": "known_noise",
}
_FORMS = {"domain": " LOW HIGH", "periodic": " AXIS"}
_POSITIONAL = ("data", "environment", "file", "files", "study", "shell", "reward", "verb", "given")


class Verb(NamedTuple):
    """One command.

    Attributes:
        name: the word after ``certirl``.
        summary: what it does, as a phrase.
        form: what follows the name in the usage line.
        examples: commands with their meaning.
        add: adds its options to a parser.
        run: does it: from options to an `output.Answer`.
        codes: its exit codes beside those of every command.
        clocked: whether a line says for how long it has worked; not where processes are started, which a thread of
            the clock could disturb.
    """

    name: str
    summary: str
    form: str
    examples: Sequence[tuple[str, str]]
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Any]
    codes: tuple[int, ...] = ()
    clocked: bool = True

    @property
    def every_code(self) -> list[int]:
        """Its exit codes, ascending."""
        return sorted({*ALWAYS, *self.codes})


class UsageError(ValueError):
    """Words that are no command, no option or no value of one."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help of at most `WIDEST` columns; examples keep their lines."""

    def __init__(self, prog: str, **settings: Any) -> None:
        width = min(shutil.get_terminal_size().columns, WIDEST) - 2
        super().__init__(prog, **{"width": width, "max_help_position": 23} | settings)

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        return "".join(super(_Help, self)._format_action(verb) for verb in action._get_subactions())

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """One short and one long name, then the values: "-o, --output FILE", "--state NAME …", "--basis NAME"."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        values = "NAME" if action.choices else self._format_args(action, action.dest.upper())
        names = [name for name in action.option_strings if name[1] != "-"]
        names.append(next(name for name in action.option_strings if name[1] == "-"))
        return f"{', '.join(names)} {values.partition(' [')[0]}{' …' * (action.nargs == '+')}"

    def _expand_help(self, action: argparse.Action) -> str:
        """The help, with the choices of an option before it."""
        text = super()._expand_help(action)
        return f"{', '.join(action.choices)}; {text}" if action.choices and action.option_strings else text


class Parser(argparse.ArgumentParser):
    """Mistakes in options are one sentence, too; an option is given once, unless it takes several values.

    Attributes:
        commands: the parsers of the commands, by name.
    """

    commands: dict[str, Parser]

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": _Help} | settings)
        for kind, key, what in (("action", None, Once), ("type", int, whole), ("type", float, number)):
            self.register(kind, key, what)

    def error(self, message: str) -> NoReturn:
        """Raise the sentence."""
        choice = re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
        if choice:
            what, text, listed = choice.groups()
            choices = [word.strip(" '") for word in listed.split(",")]
            meant = f" (is {near[0]} meant?)" if (near := get_close_matches(text, choices, 1)) else ""
            message = f"{what} must be one of {', '.join(choices)}, got {text!r}{meant}"
        sentence = re.sub(r"^argument (?:-o/)?(\S+?): (?=must |is )", r"\1 ", message).removeprefix("argument ")
        raise UsageError(f"{' '.join(sentence.split())}; {self.prog} --help explains")


def build(verbs: Iterable[Verb], version: str) -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="certirl",
        usage="certirl COMMAND …",
        description="Inverse reinforcement learning in continuous state spaces, with proofs.\n\n" + _examples(_FIRST),
        epilog=_in_words() + "\ncertirl COMMAND --help explains one command.",
    )
    parser.add_argument("--version", action="version", version=f"certirl {version}")
    commands = parser.add_subparsers(required=True, metavar="command", title="commands", parser_class=Parser)
    for verb in verbs:
        command = commands.add_parser(
            verb.name,
            help=verb.summary,
            prog=f"certirl {verb.name}",
            usage=f"certirl {verb.name} {verb.form}".rstrip(),
            description=f"{verb.summary[0].upper()}{verb.summary[1:]}.\n\n{_examples(verb.examples)}",
            epilog=f"exit codes: {', '.join(map(str, verb.every_code))} (certirl --help says what they mean)",
            add_help=False,
        )
        verb.add(command)
        add_output(command)
        command.set_defaults(verb=verb)
    parser.commands = dict(commands.choices)
    return parser


_FIRST = (
    ("certirl demo", "a problem with known truth, solved and certified"),
    ("certirl coverage log.csv", "what a log can tell, and what it cannot"),
    ("certirl solve log.csv --discount 0.9 --expert 0", "the expert always takes action 0"),
    ("certirl solve log.csv --discount 0.9 --expert seen.csv", "it depends on the state: demonstrations in seen.csv"),
    ("certirl solve log.csv --discount 0.9 --expert observed", "the expert made the log"),
    ("certirl show reward.npz --plot again.png", "print and draw what was saved"),
)


def _examples(examples: Sequence[tuple[str, str]]) -> str:
    """Commands and their meaning, below each other where they do not fit side by side."""
    lines = []
    longest = max((len(command) for command, _ in examples), default=0)
    for command, meaning in examples:
        beside = longest + 6 + max(len(text) for _, text in examples) <= WIDEST
        lines += [f"  {command:<{longest}}  {meaning}"] if beside else [f"  # {meaning}", f"  {command}"]
    return "\n".join(["examples:", *lines])


def _in_words() -> str:
    return "\n".join(["exit codes:", *(f"  {code:<4} {words}" for code, words in CODES.items())])


def add_output(command: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    group = next((group for group in command._action_groups if group.title == "output"), None)
    group = command.add_argument_group("output") if group is None else group
    group.add_argument("-h", "--help", action="help", help="print this and end")
    group.add_argument("--json", action="store_true", help="the result as one JSON document; other lines on stderr")
    group.add_argument("--quiet", action="store_true", help="print errors only, and with --json the result")


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """The options of a command; words that are left over are refused, with the option that was probably meant."""
    options, left_over = parser.parse_known_args(as_argparse_reads(words))
    if left_over:
        names = [f"--{name.replace('_', '-')}" for name in vars(options) if name not in _POSITIONAL]
        meant = get_close_matches(left_over[0].partition("=")[0], names, 1)
        instead = f" (is {meant[0]} meant?)" if meant else ""
        parser.commands[options.verb.name].error(f"unrecognized arguments: {' '.join(left_over)}{instead}")
    return options


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
        several = word in ("--state", "--next-state")
        columns = takewhile(lambda other: other[:1] != "-", words[place + 1 :]) if several else ()
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
