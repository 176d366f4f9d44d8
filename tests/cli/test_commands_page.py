"""The page of commands lists what the parser has: run this file to write its last part again."""

import re
from pathlib import Path

import shtab

from certirl.cli import parser, verbs
from certirl.cli.parsing import CODES, build

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
MARK = "<!-- commands -->\n"
EVERYWHERE = ("help", "json", "quiet")


def reference():
    """Every command with its options, from the parser."""
    parser, lines = build(verbs(), "0"), []
    for verb in verbs():
        command = parser.commands[verb.name]
        codes = ", ".join(map(str, verb.every_code))
        lines += ["", f"### certirl {verb.name}", "", f"{verb.summary[0].upper()}{verb.summary[1:]}."]
        lines += [f"Exit codes {codes}.", "", f"    {command.usage}", ""]
        actions = [action for action in command._actions if action.dest not in EVERYWHERE]
        if actions:
            lines += ["| option | meaning |", "|---|---|"]
            lines += [f"| `{form(action)}` | {meaning(action)} |" for action in actions]
    return "\n".join(lines[1:]) + "\n"


def form(action):
    """An option and its values."""
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    shown = action.metavar if action.metavar is not None else action.dest.upper()
    values = " ".join(shown) if isinstance(shown, tuple) else shown
    if action.choices is not None and action.option_strings:
        values = ", ".join(map(str, action.choices))
    return f"{names} {values}{' …' if action.nargs == '+' else ''}".strip()


def meaning(action):
    return action.help.replace("%%", "%").replace("|", "\\|")


def test_the_page_lists_every_command_and_option():
    before, listed = PAGE.read_text(encoding="utf-8").split(MARK)
    assert listed == f"\n{reference()}", "run python tests/cli/test_commands_page.py"
    for code, words in CODES.items():
        assert re.search(rf"^\| {code} \| {re.escape(words)}", before, re.M), code
    assert all(verb.name in shtab.complete(parser(), shell="bash") for verb in verbs())


def test_every_option_is_explained():
    for command in build(verbs(), "0").commands.values():
        assert all(action.help for action in command._actions), command.prog


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8").split(MARK)[0]
    PAGE.write_text(f"{text}{MARK}\n{reference()}", encoding="utf-8")
