"""The reference of commands lists what the parser has: run this file to write it again."""

import re
from collections import Counter
from pathlib import Path

import shtab

from certirl.cli import parser, verbs
from certirl.cli.parsing import CODES, build

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "api" / "commands.md"
MARK = "<!-- commands -->\n"
EVERYWHERE = ("help", "json", "quiet")


def reference():
    """Every command with its options, from the parser; options of several commands stand once."""
    parser, rows = build(verbs(), "0"), {}
    for verb in verbs():
        actions = [action for action in parser.commands[verb.name]._actions if action.dest not in EVERYWHERE]
        rows[verb.name] = {(form(action), meaning(action)): action for action in actions}
    counts = Counter(row for own in rows.values() for row in own)
    often = {option: (option, words) for (option, words), count in reversed(counts.most_common()) if count > 1}
    common = [row for row in counts if row in often.values()]  # of each option one meaning
    lines = ["## Options of several commands", "", *table(common)]
    for verb in verbs():
        lines += ["", f"## certirl {verb.name}", "", f"{verb.summary[0].upper()}{verb.summary[1:]}."]
        lines += [f"Exit codes {', '.join(map(str, verb.every_code))}.", ""]
        lines += [f"    {parser.commands[verb.name].usage}", ""]
        own = rows[verb.name]
        lines += table(row for row in own if row not in common)
        shared = [action for row, action in own.items() if row in common]
        if shared:
            names = [action.option_strings[-1] if action.option_strings else form(action) for action in shared]
            lines += ["", f"Of several commands: {', '.join(f'`{name}`' for name in names)}."]
    return "\n".join(lines) + "\n"


def table(rows):
    lines = [f"| `{option}` | {words} |" for option, words in rows]
    return ["| option | meaning |", "|---|---|", *lines] if lines else []


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
    listed = PAGE.read_text(encoding="utf-8").split(MARK)[1]
    assert listed == f"\n{reference()}", "run python tests/cli/test_commands_page.py"
    guide = (DOCS / "commands.md").read_text(encoding="utf-8")
    for code, words in CODES.items():
        assert re.search(rf"^\| {code} \| {re.escape(words)}", guide, re.M), code
    assert all(verb.name in shtab.complete(parser(), shell="bash") for verb in verbs())


def test_every_option_is_explained():
    for command in build(verbs(), "0").commands.values():
        assert all(action.help for action in command._actions), command.prog


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8").split(MARK)[0]
    PAGE.write_text(f"{text}{MARK}\n{reference()}", encoding="utf-8")
