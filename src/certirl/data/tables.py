"""Tables of transitions or episodes: streamed or loaded into memory.

    log = certirl.tables.stream("log/*.parquet")               # a file, a folder, a pattern, or a list of these
    moments = certirl.measure(log, basis=certirl.Legendre(11))

A table has the columns ``state`` (or ``state_0``, ``state_1``, …) and ``action``. It is a table of transitions if it
also has ``next_state`` (or ``next_state_0``, …), and every row is taken by itself. It is a table of episodes if it has
a column ``episode``, or ``terminated`` or ``truncated`` beside next states: then ``step`` orders the rows,
``terminated`` marks terminal states, and next states are in columns or in the rows that follow. Other columns are
ignored. In npz files the columns are arrays ``states``, ``actions``, ``next_states``, ``episodes``, ``terminal``.

Files are read in sorted order, so that results do not depend on the file system. Every row is checked; an error names
its file and its row, counted from 0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.episodes import Conversion, Steps, flat, has_action, numbered
from certirl.data.formats import (
    ENDS,
    WHOLE,
    Columns,
    ColumnValues,
    Paths,
    Section,
    Table,
    find_files,
    fingerprint,
    in_file,
    missing,
    open_table,
    separator_hint,
)
from certirl.data.moments import check_repeats
from certirl.data.transitions import Piece, Rows, Stream, Transitions, join_episodes, join_terminal
from certirl.ground.domain import (
    Array,
    Domain,
    as_actions,
    bounding_box,
    check_coordinates,
    count_actions,
    describe,
)
from certirl.ground.doors import as_count, as_flag, by_door, is_number, setting

__all__ = ["read", "read_demonstrations", "stream"]

ROWS = 2**18  # of a batch: some ten megabytes
EPISODE_ROWS = 2**16  # of a batch of episodes, which takes more memory for each row
EPISODE = ("episode", "episode_id", "episode_index", "trajectory", "trajectory_id")  # usual names of the column
_AHEAD = 2  # rows after a batch: the state that its last step leads to, and whether the episode ended there
_FEW_ACTIONS = 100  # up to which the largest action is the number of actions, whichever of them occur
_HEAD = 64  # rows that are compared to recognise the same data in two formats


def recognise(table: Table, *, episode_column: str | None = None, demonstrations: bool = False) -> Columns:
    """Tell by their names what the columns of a table mean.

    Args:
        table: the table.
        episode_column: the column that says which episode a row is from; a usual name if None; "" to take every row by
            itself, although episodes are known.
        demonstrations: only states and actions are needed.
    """
    names = table.names
    states, after = _coordinates(names, "state"), _coordinates(names, "next_state")
    episode = episode_column or next((name for name in EPISODE if name in names), None)
    ends = tuple(name for name in ENDS if name in names)
    by_episode = not demonstrations and episode_column != "" and bool(episode or ends)
    needs_after = not (by_episode and episode) and not demonstrations
    if (
        not {"action", *([episode_column] if episode_column else [])} <= set(names)
        or not states
        or (needs_after and not after)
        or (len(after) not in (0, len(states)) and not demonstrations)
    ):
        raise ValueError(_incomplete(table, episode_column, by_episode, demonstrations))
    unclear = sorted({"done", "dones"} & set(names))
    if by_episode and unclear and ENDS[0] not in ends:
        raise ValueError(
            f"the column {unclear[0]} does not say whether an episode was terminated or cut off: call it terminated, "
            "or leave it out if no state is terminal"
        )
    after = () if demonstrations else after
    columns = Columns(states, after, episode, ends, "step" in names, by_episode, table.coordinates(states))
    for name in columns.names:
        if names.count(name) > 1:
            raise ValueError(f"it has more than one column {name}")
    return columns


def _coordinates(names: Sequence[str], name: str) -> tuple[str, ...]:
    """``name`` if there is such a column, else all of ``name_0, name_1, …``."""
    numbers = sorted(int(other[len(name) + 1 :]) for other in names if re.fullmatch(rf"{name}_[0-9]+", other))
    if name in names:
        if numbers:
            raise ValueError(f"it has both a column {name} and a column {name}_{numbers[0]}: remove or rename one")
        return (name,)
    absent = next((number for number in range(len(numbers)) if number not in numbers), None)
    if absent is not None:
        raise ValueError(f"it has a column {name}_{numbers[-1]} but none {name}_{absent}")
    return tuple(f"{name}_{number}" for number in range(len(numbers)))


def _incomplete(table: Table, episode_column: str | None, by_episode: bool, demonstrations: bool) -> str:
    """What is missing, in a sentence."""
    if table.names and all(map(is_number, table.names)):
        header = "state,action" if demonstrations else "state,action,next_state"
        return f"the first row holds numbers: add a header line such as {header} (or state_0,state_1,…)"
    columns = "state (or state_0, …) and action"
    if by_episode:
        needs = f"a table of episodes needs the columns {episode_column or EPISODE[0]}, {columns}"
    elif demonstrations:
        needs = f"demonstrations need the columns {columns}"
    else:
        needs = (
            "it needs the columns state, action, next_state (or state_0, …, next_state_0, …), or a column episode and "
            "the next state in the next row"
        )
    needs += ", in npz files arrays states, actions, next_states, episodes" * (table.file.suffix.lower() == ".npz")
    return f"{needs}; it has {', '.join(table.names) or 'no header'}{separator_hint(table.names)}"


def _rows(
    table: Table, columns: Columns, rows: int, section: Section = WHOLE, conversion: Conversion | None = None
) -> Iterator[Steps]:
    """Read a section of a table in batches of at most ``rows`` rows.

    With a conversion, actions that it cannot take are refused by their rows.
    """
    first, ended = section.first, 0
    for cells in table.batches(columns, rows, section):
        for name in (*columns.numbers, *filter(None, [columns.episode])):
            _check_present(cells[name], name, first)
        ends = {name: _flags(cells[name], name, first) for name in ENDS if name in cells}
        episodes = None if columns.episode is None else cells[columns.episode]
        if columns.by_ends:
            over = np.any(list(ends.values()), axis=0)
            episodes = ended + np.cumsum(over) - over
            ended += int(over.sum())
        actions = flat(cells["action"])
        if conversion is not None and conversion.actions is None:
            may_miss = not columns.next_states and actions.ndim == 1 and actions.dtype.kind in "if"
            logged = np.where(has_action(actions), actions, 0) if may_miss else actions
            as_actions(logged, n_actions=conversion.n_actions, first=first)
        yield Steps(
            _side_by_side(cells, columns.states),
            actions,
            _side_by_side(cells, columns.next_states) if columns.next_states else None,
            ends.get(ENDS[0]),
            episodes,
            cells.get("step"),
            np.arange(first, first + len(actions)),
        )
        first += len(actions)
    if first == 0:
        raise ValueError("there are no rows in it; leave it out")


def _side_by_side(cells: ColumnValues, names: tuple[str, ...]) -> Array:
    values = np.stack([cells[name] for name in names], axis=1) if len(names) > 1 else cells[names[0]]
    return values[:, None] if values.ndim == 1 else values


def _check_present(values: NDArray[Any], name: str, first: int) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        rows = np.isfinite(values).reshape(len(values), -1).all(axis=1)
        raise ValueError(missing(name, first + int(rows.argmin())))


def _flags(values: NDArray[Any], name: str, first: int) -> NDArray[np.bool_]:
    """Truth values ``[n]``; what is missing is False."""
    flags = np.nan_to_num(values)
    other = (flags != 0) & (flags != 1)
    if other.any():
        row = int(other.argmax())
        raise ValueError(f"{name} must be True or False, got {flags[row]:g} in row {first + row}")
    return flags != 0


@dataclass(frozen=True)
class Chunk:
    """Rows of a table as a small record that can be sent elsewhere and read there.

    Attributes:
        file: where the rows are.
        columns: what its columns mean.
        conversion: how the rows become transitions.
        rows: how many are in memory at a time, at most (all of an npz file).
        section: which rows.
        fingerprint: of the file.
        folder: the folder that the name of the file is relative to.
    """

    file: str
    columns: Columns
    conversion: Conversion
    rows: int = ROWS
    section: Section = WHOLE
    fingerprint: str = ""
    folder: str = field(default_factory=os.getcwd, repr=False)

    @property
    def origin(self) -> tuple[str, str]:
        """Name and fingerprint of the file."""
        return Path(self.file).name, self.fingerprint

    def table(self) -> Table:
        """The table that holds its rows."""
        return open_table(Path(self.file) if self.folder == os.getcwd() else Path(self.folder, self.file))

    def pieces(self) -> Iterator[Piece]:
        """The transitions that begin in its rows, in each batch sorted by action."""
        with in_file(self.file):
            for steps in self.steps():
                converted = self.conversion.apply(steps)
                yield from Rows(converted.states, converted.actions, converted.next_states).pieces()

    def steps(self) -> Iterator[Steps]:
        """The steps that begin in its rows, in batches and before conversion."""
        table = self.table()
        batches = _rows(table, self.columns, self.rows, self.section, self.conversion)
        if not self.columns.by_episode:
            yield from batches
            return
        for rows, begun in self._windows(table, batches):
            _check_order(rows)
            steps = rows.by_episode(begun=begun, controls=self.conversion.actions is not None)
            if len(steps):
                yield steps

    def _windows(self, table: Table, batches: Iterator[Steps]) -> Iterator[tuple[Steps, int]]:
        """Its rows in batches with the two rows after each, and their number without these."""
        held: list[Steps] = []
        for batch in batches:
            window = Steps.joined([*held, batch])
            begun = max(len(window) - _AHEAD, 0)
            if begun:
                yield window, begun
            held = [window.where(slice(begun, None))]
        if held:
            begun, following = len(held[0]), table.following(self.section)
            for batch in () if following is None else _rows(table, self.columns, _AHEAD, following):
                held.append(batch)
                if sum(map(len, held)) >= begun + _AHEAD:
                    break
            yield Steps.joined(held), begun


def _check_order(rows: Steps) -> None:
    """Refuse episodes that come back, and steps out of order: a stream cannot sort them."""
    assert rows.episodes is not None and rows.rows is not None
    same = rows.episodes[1:] == rows.episodes[:-1]
    back = rows.episodes[1:] < rows.episodes[:-1]
    if rows.step is not None:
        back |= same & (rows.step[1:] <= rows.step[:-1])
    if back.any():
        row = rows.rows[int(back.argmax()) + 1]
        raise ValueError(
            f"row {row} belongs before the row above it, and a stream takes episodes in the order of the table: sort "
            f"the table by episode and step{by_door(', or load it with certirl.tables.read', '')}"
        )


@dataclass(frozen=True)
class FileStream(Stream):
    """The transitions of tables as a stream, from one chunk after the other."""

    parts: tuple[Chunk, ...]

    def chunks(self) -> tuple[Chunk, ...]:
        """Parts that can be read independently."""
        return self.parts

    @property
    def domain(self) -> Domain:
        """The box of states."""
        assert self.parts[0].conversion.domain is not None
        return self.parts[0].conversion.domain

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        assert self.parts[0].conversion.n_actions is not None
        return self.parts[0].conversion.n_actions

    @property
    def files(self) -> tuple[str, ...]:
        """The files, in the order in which they are read."""
        return tuple(dict.fromkeys(chunk.file for chunk in self.parts))

    @property
    def total(self) -> int:
        """The number of rows in all files."""
        return sum(table.count() for table in {chunk.file: chunk.table() for chunk in self.parts}.values())

    def __str__(self) -> str:
        files = f"{len(self.files)} file{'s' * (len(self.files) != 1)}"
        return f"{self.total:,} rows in {files}, states in {describe(self.domain)}, actions 0 … {self.n_actions - 1}"


def stream(
    paths: Paths,
    *,
    episode_column: str | None = None,
    rows: int | None = None,
    allow_repeats: bool = False,
    **settings: Any,
) -> FileStream:
    """Tables as a stream, of which a batch is in memory at a time; `certirl.measure` takes it.

    A Parquet file is cut into chunks at its row groups, as few as make up ``rows`` rows; other files are one chunk.
    Batches have at most ``rows`` rows, but an npz file cannot be read in parts. The steps of episodes continue across
    batches and row groups. A table of episodes must be sorted: one episode after the other, with ascending numbers or
    with names that do not come back, and by step within each.

    Args:
        paths: a file, a folder, a glob pattern, or a list of these.
        episode_column: as in `read`.
        rows: of a batch; 2¹⁸ if left out, 2¹⁶ of episodes.
        allow_repeats: count a file and its copy both.
        **settings: what to make of the rows, as in `from_episodes`: domain, n_actions, actions, state, periodic,
            outside, absorb. A domain or a number of actions that is left out is that of the data, by the statistics
            of Parquet files or by reading all rows once. A stream does not count the states that it clips, nor last
            actions without a next state.
    """
    conversion = Conversion(**settings)
    if conversion.outside == "drop":
        other = by_door("use read", "remove those rows before")
        raise ValueError(f"a stream cannot say what it dropped: write {setting('outside', repr('clip'))}, or {other}")
    size = None if rows is None else as_count(rows, "rows", meaning="a positive whole number")
    repeats = as_flag(allow_repeats, "allow_repeats")
    inputs = _opened(paths, conversion, episode_column=episode_column, allow_repeats=repeats)
    return FileStream(_with_extent([chunk for opened in inputs for chunk in _chunks(opened, conversion, size)]))


def read(paths: Paths, *, episode_column: str | None = None, **settings: Any) -> Transitions:
    """Load tables of transitions or episodes into memory.

    Args:
        paths: a file, a folder, a glob pattern, or a list of these.
        episode_column: the column that says which episode a row is from; ``episode`` or another usual name if left out.
            With "" every row is taken by itself: episodes and terminal states that the table knows of are kept, since
            no proof can rest on two steps of an episode, but no absorbing rows are added. Otherwise episodes may come
            mixed, and never continue in another file.
        **settings: what to make of the rows, as in `from_episodes`: domain, n_actions, actions, state, periodic,
            outside, absorb.
    """
    conversion = Conversion(**settings)
    if episode_column == "":
        conversion = replace(conversion, absorb=False)
    inputs, parts = _opened(paths, conversion, episode_column=episode_column), []
    for file, table, columns, _ in inputs:
        with in_file(file):
            parts.append(_loaded(table, columns, conversion))
    try:
        return conversion.transitions(_joined(parts))
    except ValueError as problem:
        for (file, *_), steps in zip(inputs, parts, strict=True):
            with in_file(file):
                if len(steps):
                    conversion.apply(steps)  # finds the file, if the fault is in one of them
        raise ValueError(f"{inputs[0].file}{' …' * (len(inputs) > 1)}: {problem}") from None


def read_demonstrations(
    paths: Paths, *, episode_column: str | None = None
) -> tuple[Array, NDArray[np.float64], NDArray[np.intp] | None]:
    """States ``[n, d]``, the expert's actions ``[n]``, and episodes ``[n]`` or None.

    Args:
        paths: tables with the columns state (or state_0, …) and action; rows without an action are left out.
        episode_column: the column that says which episode a row is from; ``episode`` or another usual name if left out.
    """
    parts = []
    for file, table, columns, _ in _opened(paths, Conversion(), episode_column=episode_column, demonstrations=True):
        with in_file(file):
            rows = Steps.joined(list(_rows(table, columns, ROWS)))
            rows = rows.where(has_action(rows.actions))
            if not len(rows):
                raise ValueError("there are no demonstrations in it")
            parts.append(rows)
    unknown = any(rows.episodes is None for rows in parts)
    numbers = [None if unknown or rows.episodes is None else numbered(rows.episodes) for rows in parts]
    return (
        np.concatenate([rows.states for rows in parts]).astype(np.float64),
        np.concatenate([rows.actions for rows in parts]).astype(np.float64),
        join_episodes(numbers, [len(rows) for rows in parts]),
    )


def _fingerprints(files: Sequence[Path], allow_repeats: bool | None) -> dict[Path, str]:
    """The fingerprints of files; the same data, copied or in two formats, are refused.

    Args:
        files: the files.
        allow_repeats: True to accept copies; None where the caller has no such setting.
    """
    fingerprints = {file: fingerprint(file) for file in files}
    if allow_repeats:
        return fingerprints
    check_repeats(((str(file), mark) for file, mark in fingerprints.items()), can_allow=allow_repeats is not None)
    if len({file.suffix.lower() for file in files}) > 1:
        heads: dict[Any, Path] = {}
        for file in files:
            other = heads.setdefault(_head(file), file)
            if other.suffix.lower() != file.suffix.lower():
                raise ValueError(
                    f"the same data would count twice: {other} and {file} begin with the same rows; leave one out"
                )
    return fingerprints


def _head(file: Path) -> Any:
    """States and actions of the first rows to six digits; the name if it cannot be read."""
    try:
        table = open_table(file)
        rows = next(_rows(table, recognise(table, demonstrations=True), _HEAD)).where(slice(0, _HEAD))
        numbers = np.concatenate([rows.states.reshape(-1), rows.actions.reshape(-1)])
        return tuple(f"{number:.6g}" for number in numbers.astype(np.float64))
    except (OSError, ValueError, TypeError):
        return str(file)  # reading it says what is wrong


class _Input(NamedTuple):
    """A table to read: its file, what its columns mean, and the fingerprint of the file."""

    file: Path
    table: Table
    columns: Columns
    fingerprint: str


def _opened(
    paths: Paths,
    conversion: Conversion,
    *,
    episode_column: str | None,
    demonstrations: bool = False,
    allow_repeats: bool | None = None,
) -> list[_Input]:
    """Open tables and look at the columns of all of them before reading any row.

    Args:
        paths: a file, a folder, a glob pattern, or a list of these.
        conversion: its domain, if it has one, must have as many coordinates as the states.
        episode_column: as in `read`.
        demonstrations: only states and actions are needed.
        allow_repeats: True to accept copies; None where the caller has no such setting.
    """
    inputs: list[_Input] = []
    for file, mark in _fingerprints(find_files(paths), allow_repeats).items():
        with in_file(file):
            table = open_table(file)
            columns = recognise(table, episode_column=episode_column, demonstrations=demonstrations)
            domain = conversion.domain if conversion.state is None else None
            if domain is not None:
                check_coordinates(columns.dimension, domain)
        inputs.append(_Input(file, table, columns, mark))
        dimension = inputs[0].columns.dimension
        if columns.dimension != dimension:
            s = "s" * (dimension != 1)
            raise ValueError(
                f"states have {dimension} coordinate{s} in {inputs[0].file} but {columns.dimension} in {file}"
            )
    return inputs


def _chunks(opened: _Input, conversion: Conversion, rows: int | None) -> list[Chunk]:
    """Parts of a table that can be read independently, in batches of ``rows`` rows."""
    file, table, columns, mark = opened
    columns = columns if columns.by_episode else columns._replace(episode=None, ends=())
    batch = rows or (EPISODE_ROWS if columns.by_episode else ROWS)
    sections = [WHOLE] if columns.by_ends else table.sections(columns, batch)
    return [Chunk(str(file), columns, conversion, batch, section, mark) for section in sections]


class _Extent(NamedTuple):
    """The number of some transitions, their box ``[d]`` and ``[d]``, and their actions."""

    rows: int
    low: Array
    high: Array
    actions: set[int]


def _with_extent(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The chunks; a domain or a number of actions that is left out is that of their data."""
    conversion, files = chunks[0].conversion, dict.fromkeys(chunk.file for chunk in chunks)
    if conversion.domain is not None and conversion.n_actions is not None:
        return tuple(chunks)
    if conversion.state is not None:
        raise ValueError("with state= the domain and n_actions must be given: pass domain=((low, high), …)")
    extents = [extent for _, parts in groupby(chunks, lambda chunk: chunk.file) for extent in _extents(list(parts))]
    with in_file(*files):
        if not extents:
            raise ValueError("there are no steps in these episodes: each of them has a single state")
        domain, count = conversion.domain, conversion.n_actions
        if domain is None:
            domain = bounding_box(*(np.array([getattr(extent, end) for extent in extents]) for end in ("low", "high")))
        if count is None:
            actions = sorted(set[int]().union(*(extent.actions for extent in extents)))
            total = sum(extent.rows for extent in extents)
            if actions[-1] >= total:
                raise ValueError(
                    f"there is an action {actions[-1]} in only {total} transitions: number the actions 0, 1, …"
                )
            count = count_actions(np.array(actions))
    conversion = replace(conversion, domain=domain, n_actions=count)
    return tuple(replace(chunk, conversion=conversion) for chunk in chunks)


def _extents(chunks: Sequence[Chunk]) -> Iterator[_Extent]:
    """Of the chunks of one file: from its statistics, or by reading its rows in batches."""
    statistics = _statistics(chunks[0])
    if statistics is not None:
        yield statistics
        return
    with in_file(chunks[0].file):
        for steps in (steps for chunk in chunks for steps in chunk.steps()):
            ends = np.concatenate([steps.states, steps.next_states])
            actions = set() if chunks[0].conversion.actions else set(np.unique(steps.actions).astype(int).tolist())
            yield _Extent(len(steps), ends.min(axis=0), ends.max(axis=0), actions)


def _statistics(chunk: Chunk) -> _Extent | None:
    """The extent of a whole file by its statistics; None if its rows must be read."""
    columns, d = chunk.columns, len(chunk.columns.states)
    table = chunk.table()
    extremes = table.extremes([*columns.states, "action", *columns.next_states])
    if columns.by_episode or extremes is None:
        return None
    low, high = extremes
    if high[d] not in range(_FEW_ACTIONS):
        return None  # reading the rows finds the actions that occur, and a row that has none
    box = np.minimum(low[:d], low[d + 1 :]), np.maximum(high[:d], high[d + 1 :])
    return _Extent(table.count(), *box, {int(high[d])})


def _loaded(table: Table, columns: Columns, conversion: Conversion) -> Steps:
    """All steps of a table."""
    rows = Steps.joined(list(_rows(table, columns, ROWS, conversion=conversion)))
    if columns.by_episode:
        return rows.by_episode(controls=conversion.actions is not None)
    return replace(rows, episodes=None if rows.episodes is None else numbered(rows.episodes))


def _joined(parts: Sequence[Steps]) -> Steps:
    """The steps of several tables, whose episodes are different."""
    parts = [steps for steps in parts if len(steps)] or list(parts[:1])
    terminal = join_terminal([steps.terminal for steps in parts])
    episodes = join_episodes([steps.episodes for steps in parts], [len(steps) for steps in parts])
    return replace(Steps.joined(parts), terminal=terminal, episodes=episodes)
