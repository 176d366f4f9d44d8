"""Tables with a column that says which episode a row is from: CSV and Parquet.

Columns: ``episode``; ``state``, or ``state_0``, ``state_1``, …; ``action``; where they exist, ``step`` (the order in
an episode, else that of the rows), ``terminated``, ``next_state`` or ``next_state_0``, …. Others are ignored.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.domain import Array
from certirl.episodes import Steps, finish, split
from certirl.readers import Paths, coordinates, find_files, open_parquet
from certirl.transitions import Transitions


def read_episodes(
    paths: Paths,
    *,
    domain: Any = None,
    n_actions: int | None = None,
    actions: Sequence[Any] | None = None,
    state: Callable[[Array], Any] | None = None,
    periodic: Sequence[int] = (),
    outside: str = "refuse",
    absorb: bool = True,
) -> Transitions:
    """Load logged episodes into memory; what is done with them is as in `from_episodes`.

    A table without next states ends each episode with a row for its last state, which has no action. An episode never
    goes on in another file.

    Args:
        paths: a CSV or Parquet file, a folder, a glob pattern, or a list of these.
        domain: the box the states live in; left out, the smallest box that holds the data.
        n_actions: the number of actions; left out, the largest one seen plus one.
        actions: the controls behind actions 0, 1, …, if the column holds controls.
        state: observations ``[n, m]`` to states ``[n, d]``, if they differ.
        periodic: coordinates that go around the domain.
        outside: "refuse", "clip" or "drop" what lies beyond the domain.
        absorb: add rows that lead from each terminal state to itself.
    """
    parts, first = [], 0
    for file in find_files(paths):
        try:
            part = _steps(_columns(file), file)
        except ValueError as problem:
            raise ValueError(f"{file}: {problem}") from None
        parts.append(replace(part, episodes=part.episodes + first))
        first = int(parts[-1].episodes.max(initial=first - 1)) + 1
    if len({part.states.shape[1] for part in parts}) > 1:
        raise ValueError("the files differ in the number of coordinates of a state")
    names = ("states", "actions", "next_states", "terminal", "episodes")
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    notes = tuple(note for part in parts for note in part.notes)
    asked = {"actions": actions, "state": state, "periodic": periodic, "outside": outside, "absorb": absorb}
    return finish(Steps(**whole, notes=notes), domain=domain, n_actions=n_actions, **asked)  # type: ignore[arg-type]


def _steps(columns: dict[str, NDArray[Any]], file: Path) -> Steps:
    names = list(columns)
    states, after = coordinates(names, "state"), coordinates(names, "next_state")
    if "episode" not in names or "action" not in names or not states or len(after) not in (0, len(states)):
        raise ValueError(
            "a table of episodes needs the columns episode, state (or state_0, …) and action, and may have step, "
            f"terminated and next_state; it has {', '.join(names) or 'no header'}"
        )
    unclear = sorted({"done", "dones"} & set(names))
    if unclear and "terminated" not in names:
        raise ValueError(
            f"the column {unclear[0]} does not say whether an episode was terminated or cut off: call it terminated, "
            "or leave it out if no state is terminal"
        )
    if len(columns["episode"]) == 0:
        raise ValueError("there are no rows in it")
    order = np.arange(len(columns["episode"]))
    if "step" in names:
        order = np.argsort(_numbers(columns["step"], "step"), kind="stable")
    flat = {name: _numbers(columns[name], name)[order] for name in [*states, "action", *after]}
    over = _numbers(columns["terminated"], "terminated")[order] if "terminated" in names else None
    return split(
        np.stack([flat[name] for name in states], axis=1),
        flat["action"],
        columns["episode"][order],
        terminated=over,
        next_states=np.stack([flat[name] for name in after], axis=1) if after else None,
    )


def _columns(file: Path) -> dict[str, NDArray[Any]]:
    if file.suffix.lower() == ".parquet":
        with open_parquet(file) as stored:
            table = stored.read()
        return {name: _unboxed(table.column(name)) for name in table.column_names}
    if file.suffix.lower() != ".csv":
        raise ValueError("episodes are read from CSV and Parquet; make certirl.Episode records of other data")
    with file.open(newline="", encoding="utf-8-sig") as stream:
        rows = [row for row in csv.reader(stream) if row]
    header = [name.strip() for name in rows[0]] if rows else []
    uneven = [number for number, row in enumerate(rows[1:]) if len(row) != len(header)]
    if uneven:
        raise ValueError(f"row {uneven[0]} has {len(rows[uneven[0] + 1])} fields, the header {len(header)}")
    cells = np.array(rows[1:], dtype=str).reshape(-1, len(header))
    return {name: np.char.strip(cells[:, place]) for place, name in enumerate(header)}


def _unboxed(column: Any) -> NDArray[Any]:
    arrow = importlib.import_module("pyarrow")
    if arrow.types.is_boolean(column.type):
        column = column.cast(arrow.int8())
    return np.asarray(column.to_numpy())


def _numbers(cells: NDArray[Any], name: str) -> Array:
    """Numbers; missing ones, which only the last action of an episode may be, are nan."""
    if cells.dtype.kind == "U":
        words = {"": "nan", "true": "1", "false": "0"}
        lowered = np.char.lower(cells)
        for word, number in words.items():
            lowered = np.where(lowered == word, number, lowered)
        cells = lowered
    try:
        found = np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"the column {name} holds {str(cells[0])!r}, …, not numbers") from None
    if name not in ("action", "terminated") and not np.isfinite(found).all():
        raise ValueError(f"{name} is missing or not finite in row {int((~np.isfinite(found)).argmax())}")
    return found
