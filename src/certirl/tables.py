"""Transitions from files: npz and CSV.

CSV files have a header line with the columns ``state``, ``action``, ``next_state``; with several coordinates
``state_0, state_1, …`` and ``next_state_0, next_state_1, …``. Other columns are ignored. npz files hold the arrays
``states``, ``actions``, ``next_states``.
"""

from __future__ import annotations

import csv
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from certirl.domain import Array
from certirl.transitions import Transitions


def read_transitions(path: str | os.PathLike[str], *, domain: Any = None, n_actions: int | None = None) -> Transitions:
    """Read logged transitions from ``.npz`` or ``.csv``.

    Args:
        path: the file.
        domain: the box the states live in; the smallest box around the data if left out.
        n_actions: the number of actions; the largest seen plus one if left out.
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"there is no file {source}")
    readers = {".npz": _read_npz, ".csv": _read_csv}
    if source.suffix.lower() not in readers:
        raise ValueError(f"cannot read {source.name}: transitions come as {' or '.join(readers)}")
    states, actions, next_states = readers[source.suffix.lower()](source)
    try:
        return Transitions(states, actions, next_states, domain=domain, n_actions=n_actions)  # type: ignore[arg-type]
    except ValueError as problem:
        raise ValueError(f"{source.name}: {problem}") from None


def _read_npz(source: Path) -> tuple[Any, Any, Any]:
    names = ("states", "actions", "next_states")
    try:
        with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            missing = [name for name in names if name not in stored.files]
            if missing:
                raise KeyError(
                    f"{source.name} has no {', '.join(missing)}; it holds {', '.join(stored.files) or 'nothing'}"
                )
            states, actions, next_states = (stored[name] for name in names)
    except KeyError as problem:
        raise ValueError(problem.args[0]) from None
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"{source.name} is not an npz file of plain arrays, or it is damaged or cut short") from None
    return states, actions, next_states


def _read_csv(source: Path) -> tuple[Array, Array, Array]:
    try:
        with source.open(newline="", encoding="utf-8-sig") as stream:
            header = [name.strip() for name in next(csv.reader(stream), [])]
    except UnicodeDecodeError:
        raise ValueError(f"{source.name} is not a text file in UTF-8") from None
    states, next_states = _coordinates(header, "state"), _coordinates(header, "next_state")
    if "action" not in header or not states or len(states) != len(next_states):
        raise ValueError(
            f"{source.name} needs the columns state, action, next_state (or state_0, …, next_state_0, …); "
            f"it has {', '.join(header) or 'no header'}"
        )
    wanted = [*states, header.index("action"), *next_states]
    try:
        with source.open(encoding="utf-8-sig") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty table is reported below, in our words
            values = np.loadtxt(stream, delimiter=",", skiprows=1, usecols=wanted, ndmin=2, quotechar='"')
    except (ValueError, IndexError, UnicodeDecodeError) as problem:
        raise ValueError(f"{source.name} has a line that is not all numbers or is cut short: {problem}") from None
    values = values.reshape(-1, len(wanted))
    d = len(states)
    return values[:, :d], values[:, d], values[:, d + 1 :]


def _coordinates(header: list[str], name: str) -> list[int]:
    """The positions of ``name``, or of ``name_0, name_1, …`` in order."""
    if name in header:
        return [header.index(name)]
    found: list[int] = []
    while f"{name}_{len(found)}" in header:
        found.append(header.index(f"{name}_{len(found)}"))
    return found
