"""The command that prints the script with which a shell completes commands, options and names of files."""

from __future__ import annotations

import argparse

from certirl import __version__
from certirl.cli.output import Answer
from certirl.cli.parsing import Parser, Verb, build

# How each shell reads the script when it starts, and from which file.
SHELLS = {
    "bash": ('eval "$(certirl completion bash)"', "~/.bashrc"),
    "zsh": ('eval "$(certirl completion zsh)"', "~/.zshrc, after compinit"),
    "fish": ("certirl completion fish | source", "~/.config/fish/config.fish"),
}
FILES, FOLDERS = ("data", "file", "files", "reward", "output", "plot", "expert"), ("out",)  # what options name


def complete(options: argparse.Namespace) -> Answer:
    """Print the script of a shell."""
    from certirl.cli import verbs

    shell = options.shell
    text = script(build(verbs(), __version__), shell)
    print(text)
    return Answer({"shell": shell, "script": text})


def script(parser: Parser, shell: str) -> str:
    """What a shell has to read to complete the words of a parser."""
    try:
        import shtab
    except ImportError:
        raise ImportError('scripts for completion are written by shtab: pip install "certirl[completion]"') from None
    for command in (parser, *parser.commands.values()):
        for action in command._actions:
            kind = shtab.FILE if action.dest in FILES else shtab.DIRECTORY if action.dest in FOLDERS else None
            if kind is not None:
                action.complete = kind  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell=shell))


def _add(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS), help=", ".join(SHELLS))


VERBS = (
    Verb(
        "completion",
        "print a script with which a shell completes commands, options and files",
        "SHELL",
        [(line, f"in {file}") for line, file in SHELLS.values()],
        _add,
        complete,
    ),
)
