"""The command tour: a notebook with sliders, opened in a browser or written to a file."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from certirl.cli.output import Answer
from certirl.cli.parsing import Verb
from certirl.ground import archive

NOTEBOOK = Path(__file__).resolve().parents[1] / "show" / "tour.py"


def tour(options: argparse.Namespace) -> Answer:
    """Open the notebook, or write it to a file."""
    if options.copy is not None:
        target = archive.check_writable(options.copy, (".py",))
        is_replaced = target.exists()
        with archive.replacing(target) as temporary:
            temporary.write_bytes(NOTEBOOK.read_bytes())
        print(f"Notebook: {target}{' (replaced)' * is_replaced}   (marimo edit {target} opens it)")
        return Answer({"type": "Tour", "path": str(target)})
    if find_spec("marimo") is None:
        raise ImportError('the tour is a marimo notebook: pip install "certirl[tour]"')
    words = ["--headless"] * options.no_browser + ([] if options.port is None else ["--port", str(options.port)])
    print("Starting the tour; Ctrl-C ends it.", flush=True)
    code = subprocess.call(
        [sys.executable, "-m", "marimo", "run", *words, "--include-code", str(NOTEBOOK)],
        stdout=subprocess.DEVNULL if options.quiet else sys.__stderr__ if options.json else None,
    )
    if code:
        raise OSError(f"marimo ended with exit code {code}: its lines say why")
    return Answer({"type": "Tour", "path": str(NOTEBOOK)})


def _add_tour(command: argparse.ArgumentParser) -> None:
    command.add_argument("--copy", metavar="FILE", help="write the notebook to a file instead (.py), to change it")
    command.add_argument("--port", type=int, metavar="N", help="of the page on this computer (default: a free one)")
    command.add_argument("--no-browser", action="store_true", help="print the address and open nothing")


VERBS = (
    Verb(
        "tour",
        "open a notebook with sliders: what is estimated, what a margin is, what is proved",
        "[options]",
        [
            ("certirl tour", "in a browser; needs marimo"),
            ("certirl tour --copy tour.py", "to read and to change it: marimo edit tour.py"),
        ],
        _add_tour,
        tour,
    ),
)
