"""Rows of tables of episodes in batches, CSV or Parquet: actions may be missing, episodes have numbers or names.

Columns: ``episode``; ``state``, or ``state_0``, ``state_1``, …; ``action``; where they exist, ``step`` (the order in
an episode, else that of the rows), ``terminated``, ``truncated``, ``next_state`` or ``next_state_0``, …. Others are
ignored. With next states, ``terminated`` or ``truncated`` do for ``episode``: the next one begins in the row after.
"""

from __future__ import annotations

import csv
import importlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import check_repeats
from certirl.data.readers import (
    as_cell,
    coordinates,
    csv_rows,
    decimal_commas,
    fingerprint,
    open_parquet,
    row_groups,
    runs,
    separated,
)
from certirl.ground.domain import Array

EPISODE = ("episode", "episode_id", "episode_index", "trajectory", "trajectory_id")  # what others call it
ENDS = ("terminated", "truncated")
MAY_BE_MISSING = ("action", *ENDS)
_MORE = "step, terminated, truncated and next_state"
_HEAD = 64  # rows by which two formats of the same data are known
_WORDS = {"": np.nan, "true": 1.0, "false": 0.0}


class Columns(NamedTuple):
    """Which columns of a table say what; None or empty for those that it does not have."""

    episode: str | None
    states: tuple[str, ...]
    action: str
    next_states: tuple[str, ...]
    terminated: str | None
    step: str | None
    truncated: str | None = None

    @property
    def names(self) -> list[str]:
        """Those to read."""
        flat = [self.episode, *self.states, self.action, *self.next_states, self.terminated, self.step]
        flat += [self.truncated] if self.by_ends else []
        return list(dict.fromkeys(name for name in flat if name is not None))

    @property
    def by_ends(self) -> bool:
        """Nothing but the ends of episodes tells them apart."""
        return self.episode is None and bool(self.terminated or self.truncated)

    def __str__(self) -> str:
        after = "next states in columns of their own" if self.next_states else "next states from the rows that follow"
        ends = "terminal where terminated says so" if self.terminated else "no state known to be terminal"
        by_ends = f"a new episode after each row with {' or '.join(name for name in ENDS if getattr(self, name))}"
        which = by_ends if self.by_ends else f"one episode for each value of the column {self.episode}"
        return f"{which}; {after}; {ends}"


class Rows(NamedTuple):
    """Consecutive rows of a file.

    Attributes:
        first: the number of the first.
        episodes: a number for each ``[n]``; names are numbered as they appear.
        states: ``[n, d]``.
        actions: nan where missing ``[n]``.
        next_states: ``[n, d]``, or None.
        terminated: nan where missing ``[n]``, or None.
        steps: the order in the episode ``[n]``, or None.
    """

    first: int
    episodes: NDArray[Any] | None
    states: Array
    actions: Array
    next_states: Array | None = None
    terminated: Array | None = None
    steps: Array | None = None

    def __len__(self) -> int:
        return len(self.actions)

    def part(self, chosen: Any) -> Rows:
        """Some of them; ``chosen`` is a slice or an order."""
        first = self.first + (chosen.start or 0 if isinstance(chosen, slice) else 0)
        return Rows(first, *(None if column is None else column[chosen] for column in self[1:]))  # type: ignore[arg-type]


def join(parts: list[Rows]) -> Rows:
    """Rows that follow each other."""
    columns = zip(*(part[1:] for part in parts), strict=True)
    joined = [None if column[0] is None else np.concatenate(column) for column in columns]
    return Rows(parts[0].first, *joined)  # type: ignore[arg-type]


def names_of(file: Path) -> list[str]:
    """The columns of a table, from its head or foot."""
    if file.suffix.lower() == ".parquet":
        with open_parquet(file) as stored:
            return list(stored.schema_arrow.names)
    if file.suffix.lower() != ".csv":
        raise ValueError("episodes are read from CSV and Parquet; make certirl.Episode records of other data")
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            return [name.strip() for name in next(csv.reader([stream.readline()]), [])]
    except UnicodeDecodeError:
        raise ValueError("it is not a text file in UTF-8") from None


def columns_of(file: Path, *, episode_column: str | None = None, needed: bool = True) -> Columns:
    """Tell the columns of a table apart by their names.

    Args:
        file: the table.
        episode_column: the name of the column that says which episode a row is from; a usual one if left out.
        needed: it must have such a column.
    """
    names = names_of(file)
    usual = [name for name in EPISODE if name in names]
    episode = episode_column or (usual[0] if usual else None)
    states, after = coordinates(names, "state"), coordinates(names, "next_state")
    ends = [name if name in names else None for name in ENDS]
    told = episode in names if episode_column else bool(episode or (after and any(ends)) or not needed)
    if not told or "action" not in names or not states or len(after) not in (0, len(states)):
        which = f"a table of episodes needs the columns {episode_column or EPISODE[0]}, "
        which = which if needed or episode_column else "demonstrations need the columns "
        has = (", ".join(names) or "no header") + separated(names)
        raise ValueError(f"{which}state (or state_0, …) and action, and may have {_MORE}; it has {has}")
    unclear = sorted({"done", "dones"} & set(names))
    if needed and unclear and "terminated" not in names:
        raise ValueError(
            f"the column {unclear[0]} does not say whether an episode was terminated or cut off: call it terminated, "
            "or leave it out if no state is terminal"
        )
    found = Columns(
        episode, tuple(states), "action", tuple(after), ends[0], "step" if "step" in names else None, ends[1]
    )
    twice = [name for name in found.names if names.count(name) > 1]
    if twice:
        raise ValueError(f"it has more than one column {twice[0]}")
    return found


def sections(file: Path, columns: Columns, rows: int) -> list[tuple[int, tuple[int, int] | None]]:
    """Parts of at least ``rows`` rows that can be read by themselves: first row, and row groups or None for the whole.

    Names of episodes are numbered as they appear, and ends counted, so that such a table is one.
    """
    if columns.by_ends:
        return [(0, None)]
    if columns.episode is not None and file.suffix.lower() == ".parquet":
        with open_parquet(file) as stored:
            if not _is_number(stored.schema_arrow.field(columns.episode).type):
                return [(0, None)]
    return runs(row_groups(file), rows)


def row_batches(file: Path, columns: Columns, rows: int, groups: range | None = None, first: int = 0) -> Iterator[Rows]:
    """Walk a table in batches of at most ``rows`` rows.

    Args:
        file: the table.
        columns: as `columns_of` found them.
        rows: of a batch, at most.
        groups: only these row groups (Parquet).
        first: the number of the first row in them.
    """
    parquet, ended = file.suffix.lower() == ".parquet", 0
    for cells in _parquet(file, columns, rows, groups, first) if parquet else _csv(file, columns, rows):
        found = {name: _finite(values, name, first) for name, values in cells.items()}
        numbers = None if columns.episode is None else found[columns.episode]
        if columns.by_ends:
            over = np.any([np.nan_to_num(found[name]) != 0 for name in ENDS if name in found], axis=0)
            numbers = ended + np.cumsum(over) - over
            ended += int(over.sum())
        yield Rows(
            first,
            numbers,
            np.stack([found[name] for name in columns.states], axis=1),
            found[columns.action],
            np.stack([found[name] for name in columns.next_states], axis=1) if columns.next_states else None,
            None if columns.terminated is None else found[columns.terminated],
            None if columns.step is None else found[columns.step],
        )
        first += len(found[columns.action])


def _finite(values: NDArray[Any], name: str, first: int) -> NDArray[Any]:
    if name not in MAY_BE_MISSING and values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{name} is missing or not finite in row {first + int((~np.isfinite(values)).argmax())}")
    return values


def marks(file: Path, rows: int) -> tuple[NDArray[Any] | None, NDArray[np.bool_] | None]:
    """The episode of each row of a table of transitions, and which next states are terminal; None if it is silent.

    Args:
        file: CSV or Parquet with these columns, or npz with arrays ``episodes`` and ``terminal``.
        rows: to read at a time.
    """
    if file.suffix.lower() == ".npz":
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            found = {name: stored[name] if name in stored.files else None for name in ("episodes", "terminal")}
        return found["episodes"], found["terminal"]
    if not {*EPISODE, *ENDS} & set(names_of(file)):
        return None, None
    read = list(row_batches(file, columns_of(file, needed=False), rows))
    if not read:
        return None, None
    whole = join(read)
    assert whole.episodes is not None
    numbers = np.unique(whole.episodes, return_inverse=True)[1].reshape(-1)
    return numbers, None if whole.terminated is None else np.nan_to_num(whole.terminated) != 0


def refuse_copies(files: Sequence[Path]) -> None:
    """Refuse files that hold the same data, byte for byte or in two formats."""
    check_repeats(((str(file), fingerprint(file)) for file in files), can_allow=False)
    refuse_two_formats(files)


def refuse_two_formats(files: Sequence[Path]) -> None:
    """Refuse files of different formats that begin with the same rows."""
    if len({file.suffix.lower() for file in files}) > 1:
        seen: dict[Any, Path] = {}
        for file in files:
            other = seen.setdefault(_head(file), file)
            if other.suffix.lower() != file.suffix.lower():
                raise ValueError(
                    f"the same data would count twice: {other} and {file} begin with the same rows; leave one out"
                )


def _head(file: Path) -> Any:
    """The first rows, states and actions to six digits; the name of the file where they cannot be read."""
    try:
        if file.suffix.lower() == ".npz":
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                states, actions = (np.asarray(stored[name][:_HEAD], dtype=np.float64) for name in ("states", "actions"))
        else:
            rows = next(row_batches(file, columns_of(file, needed=False), _HEAD))
            states, actions = rows.states, rows.actions
        return tuple(f"{number:.6g}" for number in (*states.reshape(-1), *actions.reshape(-1)))
    except (OSError, ValueError, TypeError, KeyError, EOFError, StopIteration, zipfile.BadZipFile):
        return str(file)  # reading it says what is wrong


class _Labels:
    """Names of episodes as numbers, in the order in which they appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        if not name.strip():
            raise ValueError("an episode without a name")
        return self._numbers.setdefault(name.strip(), len(self._numbers))


def _is_number(kind: Any) -> bool:
    types = importlib.import_module("pyarrow").types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _parquet(
    file: Path, columns: Columns, rows: int, groups: range | None, first: int
) -> Iterator[dict[str, NDArray[Any]]]:
    chosen, labels = range(len(row_groups(file))) if groups is None else groups, _Labels()
    with open_parquet(file) as stored:
        found = stored.iter_batches(batch_size=rows, row_groups=list(chosen), columns=columns.names)
        while True:
            try:
                part = next(found, None)
            except (OSError, ValueError, RuntimeError):
                raise ValueError("it is not a Parquet file, or it is damaged or cut short") from None
            if part is None:
                return
            if part.num_rows:
                yield {name: _unboxed(part.column(name), name, first, columns, labels) for name in columns.names}
                first += part.num_rows


def _unboxed(column: Any, name: str, first: int, columns: Columns, labels: _Labels) -> NDArray[Any]:
    arrow = importlib.import_module("pyarrow")
    if column.null_count and name not in MAY_BE_MISSING:
        raise ValueError(f"{name} is missing or not finite in row {first + int(np.argmax(column.is_null()))}")
    if name == columns.episode and not _is_number(column.type):
        return np.array([labels(str(value)) for value in column.to_pylist()], dtype=np.float64)
    if not (_is_number(column.type) or arrow.types.is_boolean(column.type)):
        if column.null_count == len(column):  # a column of nothing has no type
            return np.full(len(column), np.nan)
        raise ValueError(f"the column {name} holds {str(column[0])!r}, …, not numbers")
    if name == columns.episode and arrow.types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if arrow.types.is_boolean(column.type):
        column = column.cast(arrow.int8())
    return np.asarray(column.cast(arrow.float64()).to_numpy(zero_copy_only=False))


def _csv(file: Path, columns: Columns, rows: int) -> Iterator[dict[str, NDArray[Any]]]:
    header, converters = names_of(file), None
    places = {name: header.index(name) for name in columns.names}
    with file.open(newline=None, encoding="utf-8-sig") as stream:
        stream.readline()
        for first, lines in csv_rows(stream, rows, len(header)):
            if converters is None:
                converters = _converters(lines, places, columns)
            try:
                kept: dict[str, Any] = {"usecols": list(places.values()), "converters": converters, "comments": None}
                cells = np.loadtxt(lines, delimiter=",", quotechar='"', ndmin=2, encoding=None, **kept)
            except (ValueError, IndexError) as problem:
                raise ValueError(_what_is_wrong(lines, places, converters, first) or problem) from None
            del lines
            yield dict(zip(places, cells.T, strict=True))


def _converters(lines: list[str], places: dict[str, int], columns: Columns) -> dict[int, Any]:
    """How to read cells that need not be numbers; episodes have names if the first one is no number."""
    found: dict[int, Any] = {places[name]: _number for name in MAY_BE_MISSING if name in places}
    cells = next(csv.reader(lines), [])
    if columns.episode is not None and len(cells) > (place := places[columns.episode]):
        try:
            float(cells[place])
        except ValueError:
            if cells[place].strip():
                found[place] = _Labels()
    return found


def _number(cell: str) -> float:
    found = _WORDS.get(cell)
    if found is None:
        found = _WORDS.get(cell.strip().lower())
    return as_cell(cell) if found is None else found


def _what_is_wrong(lines: list[str], places: dict[str, int], converters: dict[int, Any], first: int) -> str | None:
    for row, line in enumerate(lines, start=first):
        cells = next(csv.reader([line]), [])
        for name, place in places.items():
            try:
                converters.get(place, as_cell)(cells[place])
            except ValueError:
                missing = f"{name} is missing or not finite in row {row}"
                wrong = f"the column {name} holds {cells[place]!r}, …, not numbers (row {row})"
                return wrong + decimal_commas(cells) if cells[place].strip() else missing
    return None
