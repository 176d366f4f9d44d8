"""How the words of a command are read: tables of verbs and options, which argparse reads, and their help."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
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
WIDEST, BESIDE = 100, 22  # characters of a line of help, and of an option beside its meaning
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


# Options by their headings in the help, "" for files: the form of each, and its meaning. A form is its names and what
# follows, words of `options.VALUES`: "--size N", "-o --output FILE", "--state NAME …"; names alone are a switch.
Table = Mapping[str, Mapping[str, str]]


class Verb(NamedTuple):
    """One command."""

    name: str  # the word after ``certirl``
    summary: str  # what it does, as a phrase
    form: str  # what follows the name in the usage line
    examples: Sequence[tuple[str, str]]  # commands with their meaning
    options: Table  # by their headings
    run: Callable[[argparse.Namespace], Any]  # does it: from options to an `output.Answer`
    codes: tuple[int, ...] = ()  # its exit codes beside those of every command
    # whether a line says for how long it has worked; not where processes are started, which a thread of the clock could
    # disturb
    clocked: bool = True
    defaults: Mapping[str, Any] = {}  # of options that have one; the others are None or False
    required: tuple[str, ...] = ()  # options that must be given

    @property
    def every_code(self) -> list[int]:
        """Its exit codes, ascending."""
        return sorted({*ALWAYS, *self.codes})


EVERYWHERE = {
    "-h --help": "print this and end",
    "--json": "the result as one JSON document; other lines on stderr",
    "--quiet": "print errors only, and with --json the result",
}


class UsageError(ValueError):
    """Words that are no command, no option or no value of one."""


def not_one_of(text: str, words: Sequence[str]) -> str:
    """That a word is none of those that are known, and which one was probably meant."""
    meant = f" (is {near[0]} meant?)" if (near := get_close_matches(text, words, 1)) else ""
    return f"must be one of {', '.join(words)}, got {text!r}{meant}"


class Parser(argparse.ArgumentParser):
    """Mistakes in options are one sentence, too; an option is given once, unless it takes several values.

    Attributes:
        commands: the parsers of the commands, by name.
        help: what is printed for --help.
    """

    commands: Mapping[str, Parser] = {}
    help = ""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for kind, key, what in (("action", None, Once), ("type", int, whole), ("type", float, number)):
            self.register(kind, key, what)

    def error(self, message: str) -> NoReturn:
        """Raise the sentence."""
        sentence = re.sub(r"^argument (?:-o/)?(\S+?): (?=must |is )", r"\1 ", message).removeprefix("argument ")
        raise UsageError(f"{' '.join(sentence.split())}; {self.prog} --help explains")

    def format_help(self) -> str:
        """The help, with examples before the options."""
        return self.help


def build(verbs: Iterable[Verb], version: str) -> Parser:
    """The parser of all commands."""
    parser, every = Parser(prog="certirl"), tuple(verbs)
    parser.add_argument("--version", action="version", version=f"certirl {version}")
    commands = parser.add_subparsers(required=True, metavar="command", title="commands", parser_class=Parser)
    for verb in every:
        usage = f"certirl {verb.name} {verb.form}".rstrip()
        command = commands.add_parser(
            verb.name, help=verb.summary, prog=f"certirl {verb.name}", usage=usage, add_help=False
        )
        listed = dict[str, list[tuple[str, str]]]()
        output = {"output": {**verb.options.get("output", {}), **EVERYWHERE}}
        for title, options in {**verb.options, **output}.items():
            listed[title] = [add(command, form, meaning, verb.required) for form, meaning in options.items()]
        command.set_defaults(verb=verb, **verb.defaults)
        codes = f"exit codes: {', '.join(map(str, verb.every_code))} (certirl --help says what they mean)"
        command.help = _help(usage, f"{verb.summary[0].upper()}{verb.summary[1:]}.", verb.examples, listed, codes)
    parser.commands = commands.choices
    what = "Inverse reinforcement learning in continuous state spaces, with proofs."
    listed = {"commands": [(verb.name, verb.summary) for verb in every]}
    listed["options"] = [("-h, --help", "print this and end"), ("--version", "print the version and end")]
    listed["exit codes"] = [(f"{code}", words) for code, words in CODES.items()]
    parser.help = _help("certirl COMMAND …", what, _FIRST, listed, "certirl COMMAND --help explains one command.")
    return parser


def add(command: Any, form: str, meaning: str, required: Sequence[str] = ()) -> tuple[str, str]:
    """Add an option; what the help says of it: one short and one long name with its values, and the meaning."""
    from certirl.cli.options import VALUES

    words = form.split()
    names = [word for word in words if word.startswith("-")] or words[:1]
    values, settings = words[len(names) :], dict[str, Any]()
    if values:
        settings = {"metavar": values[0], **VALUES.get(values[0], {})} | ({"nargs": "+"} if "…" in values else {})
    elif names[0].startswith("-"):
        settings = {"action": "help" if "--help" in names else "store_true"}
    choices = settings.get("choices", ())
    if choices:
        settings["type"] = partial(_chosen, tuple(choices))
    if names[-1].lstrip("-") in required:
        settings["required"] = True
    command.add_argument(*names, help=meaning.replace("%", "%%"), **settings)
    if choices and names[0].startswith("-"):
        values, meaning = ["NAME"], f"{', '.join(choices)}; {meaning}"
    short = [name for name in names if name[:2] != "--"]
    long = [name for name in names if name[:2] == "--"][:1]
    return " ".join([", ".join([*short, *long]) if names[0].startswith("-") else "", *values]).strip(), meaning


def _chosen(choices: Sequence[str], text: str) -> str:
    if text not in choices:
        raise argparse.ArgumentTypeError(not_one_of(text, choices))
    return text


def _help(
    usage: str,
    what: str,
    examples: Sequence[tuple[str, str]],
    groups: Mapping[str, Iterable[tuple[str, str]]],
    last: str,
) -> str:
    width = min(shutil.get_terminal_size().columns, WIDEST) - 2
    parts = [f"usage: {usage}", textwrap.fill(what, width), _examples(examples)]
    for title, rows in groups.items():
        beside = 7 if title == "exit codes" else BESIDE
        lines = [line for row in rows for line in _lines(*row, beside, width)]
        parts.append("\n".join([f"{title or 'files'}:", *lines]))
    return "\n\n".join([*parts, textwrap.fill(last, width)]) + "\n"


def _lines(name: str, meaning: str, beside: int, width: int) -> Iterator[str]:
    """A name with its meaning beside it, from the next line on if the name is long."""
    first, *more = textwrap.wrap(meaning, width - beside) or [""]
    if len(name) + 3 > beside:
        yield f"  {name}"
        yield f"{'':{beside}}{first}"
    else:
        yield f"  {name:<{beside - 2}}{first}"
    yield from (f"{'':{beside}}{line}" for line in more)


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


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """The options of a command; words that are left over are refused, with the option that was probably meant."""
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in parser.commands:
        parser.error(f"command {not_one_of(command, list(parser.commands))}")
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
