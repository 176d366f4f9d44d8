"""How a call of Python is written as a command: the words of the command that is running, with other options."""

from __future__ import annotations

import argparse
import ast
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from certirl.cli.parsing import Parser, option_names

METHODS = ("Program", "ValueForm", "FeatureForm")
CLEARED = {  # the options that leaving a setting out leaves out
    "method": "objective cover slack margin smoothness",
    "dynamics": "shared_drift known_noise",
    "basis": "basis size",
}
VERBS = {"solve": "certirl.solve", "certify": "certirl.certify", "cells": "certirl.certify"}  # what they call


class Again:
    """Writes calls as commands; see `doors.options`."""

    def __init__(self, parser: Parser, options: argparse.Namespace, words: Sequence[str]) -> None:
        self.parser, self.options, self.words = parser.commands[options.verb.name], options, list(words)

    def __call__(self, text: str) -> str:
        """The command for a call; the call itself where no command does that."""
        code, mark, note = text.partition("  # ")
        try:
            asked = ast.parse(code.replace("…", "..."), mode="eval").body
            if not isinstance(asked, ast.Call):
                raise ValueError("what a file says is next is no call")
            function = ast.unparse(asked.func)
            if function.endswith("certificate.with_tube") and hasattr(self.options, "output"):
                tube = shlex.quote(ast.unparse(asked.args[0]))
                return f"certirl show {shlex.quote(self.options.output)} --tube {tube}{mark}{note}"
            if VERBS.get(self.options.verb.name) != function:
                raise ValueError(f"{self.options.verb.name} does not call {function}")
            words = self.words
            for name, values in (pair for setting in asked.keywords for pair in _options(setting)):
                words = self._with(words, name, values)
        except (ValueError, LookupError, SyntaxError, RecursionError, MemoryError):  # the text may be from a file
            return f"in Python: {text}"
        return f"{shlex.join(['certirl', *words])}{mark}{note}"

    def _with(self, words: Sequence[str], setting: str, values: list[str] | None) -> list[str]:
        """Words in which an option has other values, or is left out for None."""
        option = option_names(self.options)[setting].split()[0]
        of_option = self.parser._option_string_actions[option]
        kept, rest = list[str](), list(words)
        while rest:
            word = rest.pop(0)
            if not self._is(word.partition("=")[0], of_option):
                kept.append(word)
            elif "=" not in word:
                count = of_option.nargs if isinstance(of_option.nargs, int) else 1
                while rest and (count > 0 or (of_option.nargs == "+" and rest[0][:1] != "-")):
                    rest.pop(0)
                    count -= 1
        return kept if values is None else [*kept, option, *values]

    def _is(self, word: str, option: Any) -> bool:
        """Whether a word names an option, by one of its names or their beginning."""
        known = self.parser._option_string_actions
        if word[:2] != "--" or word in known:
            return word in option.option_strings
        return any(name.startswith(word) for name in option.option_strings)


def _options(setting: ast.keyword) -> Iterator[tuple[str, list[str] | None]]:
    """The options that a setting of a call stands for, by the keywords of `option_names`; None leaves one out."""
    name, value = str(setting.arg), setting.value
    if isinstance(value, ast.Constant) and value.value is None:
        yield from ((option, None) for option in CLEARED.get(name, name).split())
    elif isinstance(value, ast.Call):
        yield from _of_record(name, value)
    else:
        written = ast.literal_eval(value)
        yield name, [str(each) for each in (written if isinstance(written, list | tuple) else [written])]


def _of_record(name: str, value: ast.Call) -> Iterator[tuple[str, list[str] | None]]:
    """The options that a record stands for."""
    from certirl.cli.options import TAILS  # which imports most of the library

    kind = ast.unparse(value.func).rpartition(".")[2]
    given = [each for each in value.args if ast.unparse(each) != "..."]
    texts = [ast.unparse(each) for each in (*given, *(each.value for each in value.keywords))]
    known = {type(make(1.0, 1.0)).__name__: form for form, (_, make) in TAILS.items() if form != "truncated"}
    if kind in known and "truncated" in [each.arg for each in value.keywords]:
        yield name, [":".join(["truncated", *texts[:-1]])]
    elif kind in known:
        yield name, [":".join([known[kind], *texts])]
    elif kind == "SharedDrift":
        yield "shared_drift", texts or ["0"]
    elif kind == "AffineGaussian" and len(texts) == 1:
        yield "known_noise", texts
    elif kind == "Deterministic" or kind in METHODS:
        for each in value.keywords:
            yield from _options(each)
    elif kind in ("Legendre", "Fourier") and name == "basis":
        yield from (("basis", [kind.lower()]), ("size", texts))
    else:
        raise ValueError(f"no option of a command is for {kind}")
