"""Tables of transitions or episodes, in files or data frames: streamed or loaded into memory.

    log = certirl.logs.read(frame, state=("x", "v"), action="a", episode="run", step="time")
    moments = certirl.steps.measure(certirl.logs.stream("log/*.parquet"), basis=certirl.Legendre(11))

A table is a file, a data frame of pandas or polars, anything with the Arrow C interface, or a mapping of arrays. It has
the columns ``state`` (or ``state_0``, ``state_1``, …) and ``action``, or those that are named in their place. It is a
table of transitions if it also has ``next_state`` (or ``next_state_0``, …), and every row is taken by itself. It is a
table of episodes if it has a column ``episode``, or ``terminated`` or ``truncated`` beside next states: then ``step``
orders the rows, ``terminated`` marks terminal states, and next states are in columns or in the rows that follow. Other
columns are ignored.

Files are read in sorted order, so that results do not depend on the file system. Every row is checked; an error names
its file and its row, counted from 0.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.episodes import Conversion, Steps, flat, has_action, numbered
from certirl.data.formats import (
    WHOLE,
    Cells,
    Columns,
    Section,
    Table,
    check_repeats,
    find_tables,
    in_table,
    is_name,
    is_table,
    name_of,
    open_table,
)
from certirl.data.transitions import Piece, Rows, Stream, Transitions, join_episodes, join_terminal
from certirl.ground.domain import (
    MOST_ACTIONS,
    Array,
    Box,
    as_actions,
    bounding_box,
    check_coordinates,
    count_actions,
    names_among,
    number_of,
)
from certirl.ground.doors import as_count, as_number, by_door, closest, is_number, printable, setting, shown
from certirl.ground.records import Record, freeze, internal
from certirl.ground.work import watched

ROWS = 2**18  # of a batch: some ten megabytes
EPISODE_ROWS = 2**16  # of a batch of episodes, which takes more memory for each row
# The usual names of columns; the names of arrays come last.
STATE, NEXT_STATE, ACTION = ("state", "states"), ("next_state", "next_states"), ("action", "actions")
EPISODE = ("episode", "episode_id", "episode_index", "trajectory", "trajectory_id", "episodes")
TERMINATED = ("terminated", "terminal")
_AHEAD = 2  # rows after a batch: the state that its last step leads to, and whether the episode ended there
_HEAD = 64  # rows that are compared to recognise the same data in two formats
_THINNED = 4096  # controls of a batch, from which levels are found
MISSING = ("refuse", "drop")
_NO_COLUMNS = ("delimiter", "missing", "longest_step")  # settings of `Names` that name no column; the last ones
_FEW_ACTIONS = 100  # up to which the largest action is the number of actions, whichever of them occur


@dataclass(frozen=True)
class Names(Record):
    """How a table is to be read: its columns, None for those with a usual name, and where episodes end."""

    state: str | Sequence[str] | None = None  # the column of the state, or a sequence of columns
    action: str | None = None  # the column of the action
    next_state: str | Sequence[str] | None = None  # like ``state``
    # the column that says which episode a row is from. With "" every row is taken by itself: episodes and terminal
    # states that the table knows of are kept, since no proof can rest on two steps of an episode, but no absorbing rows
    # are added
    episode: str | None = None
    # the column that orders the rows of an episode, by numbers or times. If it is named and there is neither a column
    # for the episode nor for the next state, all rows are one episode
    step: str | None = None
    terminated: str | None = None  # the column that marks terminal states
    delimiter: str | None = None  # what separates the columns of a text file; recognised by its header if None
    missing: str = MISSING[0]  # rows without a value: "refuse", or "drop", which ends their episodes
    # a longer step ends its episode; in units of the column that orders rows, seconds of times, or a timedelta
    longest_step: Any = None

    def __post_init__(self) -> None:
        for name in (column.name for column in fields(self)[: -len(_NO_COLUMNS)]):
            value, is_several = getattr(self, name), name in ("state", "next_state")
            columns = (value,) if isinstance(value, str) or not is_several else value
            is_list = isinstance(columns, Sequence) and len(columns) > 0
            if value is not None and not (
                is_list and all(isinstance(column, str) and (column or name == "episode") for column in columns)
            ):
                raise TypeError(
                    f"{setting(name)} must name {'one or more columns' * is_several or 'a column'}, got {shown(value)}"
                )
            freeze(self, **{name: tuple(columns) if is_several and value is not None else value})
        delimiter = {"tab": "\t", "\\t": "\t"}.get(str(self.delimiter), self.delimiter)
        if delimiter is not None and not (isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()):
            raise ValueError(f"{setting('delimiter')} must be a single character of ASCII, got {shown(delimiter)}")
        if self.missing not in MISSING:
            words = " or ".join(map(repr, MISSING))
            raise ValueError(f"{setting('missing')} must be {words}, got {shown(self.missing)}")
        longest = self.longest_step.total_seconds() if isinstance(self.longest_step, timedelta) else self.longest_step
        if longest is not None:
            longest = as_number(
                longest, "longest_step", least=0, strict=True, meaning="a length in units of the column step"
            )
        freeze(self, delimiter=delimiter, longest_step=longest)

    def check(self, columns: Sequence[str], *roles: str) -> None:
        """Refuse columns in these roles that a table does not have."""
        for role in roles:
            value = getattr(self, role)
            absent = [name for name in ((value,) if isinstance(value, str) else value or ()) if name not in columns]
            if absent and absent != [""]:
                has = ", ".join(columns) or "no header"
                near = closest(absent[0], columns)
                raise ValueError(f"{setting(role, repr(absent[0]))} names no column{near}; it has {has}")


def recognise(table: Table, names: Names, *, demonstrations: bool = False) -> Columns:
    """Tell by their names what the columns of a table mean; for ``demonstrations`` states and actions are enough."""
    there = table.names

    def usual(given: str | None, *others: str) -> str | None:
        return next((name for name in (given, *others) if name in there), None)

    # The first line of a file may hold numbers; the columns of a data frame may be numbered.
    if table.unit == "file" and there and all(map(is_number, there)):
        header = "state,action" if demonstrations else "state,action,next_state"
        raise ValueError(f"the first row holds numbers: add a header line such as {header} (or state_0,state_1,…)")
    names.check(there, "state", "action", *(() if demonstrations else ("next_state", "episode", "step", "terminated")))
    states, action = _coordinates(there, names.state, STATE), usual(names.action, *ACTION)
    after = () if demonstrations else _coordinates(there, names.next_state, NEXT_STATE)
    episode, terminated = usual(names.episode, *EPISODE), usual(names.terminated, *TERMINATED)
    truncated, is_one = usual(None, "truncated"), names.step is not None and not episode and not after
    by_episode = not demonstrations and names.episode != "" and bool(episode or terminated or truncated or is_one)
    needs_after = not demonstrations and not (by_episode and (episode or is_one))
    if action is None or not states or (needs_after and not after) or len(after) not in (0, len(states)):
        raise ValueError(_incomplete(table, names, by_episode, demonstrations))
    roles = [*states, action, *after]
    for name in roles:
        if roles.count(name) > 1:
            raise ValueError(f"the column {name} is named twice: state, action and next_state are different columns")
    unclear = sorted({"done", "dones"} & set(there))
    if by_episode and unclear and terminated is None:
        raise ValueError(
            f"the column {unclear[0]} does not say whether an episode was terminated or cut off: write "
            f"{setting('terminated', repr(unclear[0]))} if it was, or leave the column out if no state is terminal"
        )
    for name in filter(None, (*roles, episode, terminated, truncated)):
        if there.count(name) > 1:
            raise ValueError(f"it has more than one column {name}")
    step, dimension = usual(names.step, "step"), table.coordinates(states)
    if after and table.coordinates(after) != dimension:
        raise ValueError(f"states have {number_of(dimension, 'coordinate')}, next states {table.coordinates(after)}")
    ends = (terminated, truncated)
    longest = None if demonstrations else names.longest_step
    if longest is not None and not (by_episode and step):
        needs = "the column that orders the rows of an episode" if by_episode else "rows of episodes, in their order"
        example = by_door(f"{setting('step', repr('time'))}", "--step time")
        raise ValueError(f"{setting('longest_step')} needs {needs}: write {example}, or leave it out")
    what = (states, after, action, episode, *ends, step, by_episode, dimension, (), table.delimiter)
    return Columns(*what, drops=names.missing == "drop", longest=longest)


def _coordinates(names: Sequence[str], given: Any, usual: Sequence[str]) -> tuple[str, ...]:
    """The columns that are named; else one of the usual names, or all of ``name_0, name_1, …``."""
    if given:
        return tuple(given)
    name = usual[0]
    numbers = sorted(int(other[len(name) + 1 :]) for other in names if re.fullmatch(rf"{name}_[0-9]+", other))
    single = next((other for other in usual if other in names), None)
    if single is not None:
        if numbers:
            raise ValueError(f"it has both a column {single} and a column {name}_{numbers[0]}: remove or rename one")
        return (single,)
    absent = next((number for number in range(len(numbers)) if number not in numbers), None)
    if absent is not None:
        raise ValueError(f"it has a column {name}_{numbers[-1]} but none {name}_{absent}")
    return tuple(f"{name}_{number}" for number in range(len(numbers)))


def _incomplete(table: Table, names: Names, by_episode: bool, demonstrations: bool) -> str:
    """What is missing, in a sentence."""
    columns = "state (or state_0, …) and action"
    if by_episode:
        needs = f"a table of episodes needs the columns {names.episode or EPISODE[0]}, {columns}"
    elif demonstrations:
        needs = f"demonstrations need the columns {columns}"
    else:
        needs = (
            "it needs the columns state, action, next_state (or state_0, …, next_state_0, …); where the next state is "
            f"that of the next row, a column episode or, for one trajectory, {setting('step', repr('t'))}"
        )
    needs += ", in npz files arrays states, actions, next_states, episodes" * (table.kind == ".npz")
    reader = "policy_from" if demonstrations else "logs.read"
    after = ("", "") if by_episode or demonstrations else (", next_state=…", " --next-state …")
    example = by_door(
        f'certirl.{reader}(…, state=("x", "v"), action="a"{after[0]})', f"--state x v --action a{after[1]}"
    )
    return f"{needs}; it has {', '.join(table.names) or 'no header'}; name others by {example}"


@dataclass(frozen=True)
@internal
class Chunk(Record):
    """Rows of a table as a record that can be sent elsewhere and read there; small if they are in a file."""

    source: Any  # the file, or the data frame
    columns: Columns  # what its columns mean
    conversion: Conversion  # how the rows become transitions
    rows: int = ROWS  # how many are in memory at a time, at most (all of an npz file)
    section: Section = WHOLE  # which rows
    fingerprint: str = ""  # of the table
    folder: str = field(default_factory=os.getcwd, repr=False)  # the folder that the name of the file is relative to

    @property
    def name(self) -> str:
        """The name of the table, for errors."""
        return name_of(self.source)

    @property
    def origin(self) -> tuple[str, str]:
        """Name and fingerprint of the table."""
        return printable(Path(self.name).name), self.fingerprint

    def table(self) -> Table:
        """The table that holds its rows."""
        is_elsewhere = isinstance(self.source, str) and self.folder != os.getcwd()
        return open_table(Path(self.folder, self.source) if is_elsewhere else self.source, self.columns.delimiter)

    def cut(self) -> list[Chunk]:
        """The whole table in parts that can be read independently."""
        columns = self.columns
        if not columns.by_episode:
            columns = columns._replace(episode=None, terminated=None, truncated=None)
        return [replace(self, columns=columns, section=part) for part in self.table().sections(columns, self.rows)]

    def pieces(self) -> Iterator[Piece]:
        """The transitions that begin in its rows, in each batch sorted by action."""
        with in_table(self.name):
            for steps in self.steps():
                if not len(steps):
                    continue
                converted = self.conversion.apply(steps)
                yield from Rows(converted.states, converted.actions, converted.next_states).pieces()

    def steps(self) -> Iterator[Steps]:
        """The steps that begin in its rows, in batches and before conversion."""
        table = self.table()
        batches = self.batches(table, self.rows, self.section)
        if not self.columns.by_episode:
            yield from batches
            return
        for window, begun in self._windows(table, batches):
            rows = window.placed()
            _check_order(rows)
            steps = self._paired(rows, begun=begun)
            if len(steps) or steps.left_out:
                yield steps

    def loaded(self) -> Steps:
        """All steps of the table, before conversion."""
        table = self.table()
        rows = next(self.batches(table)).noted(*table.notes)
        if rows.left_out[""] == (len(rows) if self.columns.by_episode else len(rows) + rows.left_out[""]) > 0:
            raise ValueError("every row of it lacks a value")
        if not self.columns.by_episode:
            return replace(rows, episodes=None if rows.episodes is None else numbered(rows.episodes)).told()
        unit = self.unit(table)
        return self._paired(rows.placed(), unit=unit).told(self.columns.longest, unit)

    def unit(self, table: Table) -> str:
        """The unit of the column that orders rows, in words."""
        step = self.columns.step
        if step is None:
            return ""
        return f"{'' if is_number(str(table.first_value(step))) else 'seconds in '}{step}"

    def _paired(self, rows: Steps, **settings: Any) -> Steps:
        """The steps of rows of a table of episodes."""
        columns, controls = self.columns, self.conversion.takes_controls
        return rows.by_episode(controls=controls, drops=columns.drops, longest=columns.longest, **settings)

    def batches(self, table: Table, rows: int | None = None, section: Section = WHOLE) -> Iterator[Steps]:
        """Its rows in batches, all in one without ``rows``, before they are paired to steps.

        Values that are missing and actions that are none are refused by their rows.
        """
        columns, first, ended = self.columns, section[0], 0
        for cells in self._whole(table) if rows is None else table.batches(columns, rows, section):
            lacking = self._lacking(cells)
            if not columns.drops:
                self._check_present(cells, lacking, first, table, ordered=rows is None)
            gone = np.any([*lacking.values()], axis=0) if columns.drops else None
            ends = [_flags(cells[name], name, first) for name in columns.flags]
            actions = flat(cells[columns.action])
            episodes = None if columns.episode is None else cells[columns.episode]
            if columns.by_ends:
                over = np.any(ends, axis=0)
                episodes = ended + np.cumsum(over) - over
                ended += int(over.sum())
            elif columns.by_episode and episodes is None:
                episodes = np.zeros(len(actions), dtype=np.intp)
            if not self.conversion.takes_controls:
                may_miss = (not columns.next_states or columns.drops) and actions.ndim == 1
                logged = np.where(has_action(actions), actions, 0) if may_miss else actions
                as_actions(logged, n_actions=self.conversion.n_actions, first=first)
            counts = {name: int(rows.sum()) for name, rows in lacking.items() if rows.any()}
            batch = Steps(
                _side_by_side(cells, columns.states),
                actions,
                _side_by_side(cells, columns.next_states) if columns.next_states else None,
                ends[0] if columns.terminated else None,
                episodes,
                cells[columns.step] if columns.by_episode and columns.step else None,
                np.arange(first, first + len(actions)),
                gone,
                left_out=Counter(counts if gone is None else {**counts, "": int(gone.sum())}),
            )
            yield batch if columns.by_episode or gone is None else batch.where(~gone)
            first += len(actions)
        if first == 0:
            raise ValueError("there are no rows in it; leave it out")

    def _whole(self, table: Table) -> list[Cells]:
        """All rows in one batch; none if there are no rows."""
        columns, action = self.columns, self.columns.action
        batches = table.batches(columns, self.rows)
        parts = list(watched(batches, table.count, lambda cells: len(cells[action]), None, unit="rows"))
        return [{name: np.concatenate([part[name] for part in parts]) for name in columns.names}] if parts else []

    def _lacking(self, cells: Cells) -> dict[str, NDArray[np.bool_]]:
        """Which rows lack a value of each column that must have one ``[n]``."""
        columns = self.columns
        needed = (*columns.required, *((columns.action,) if columns.next_states else ()))
        return {name: ~_is_there(cells[name]) for name in needed}

    def _check_present(self, cells: Cells, lacking: dict[str, Any], first: int, table: Table, *, ordered: bool) -> None:
        """Refuse rows without a value, and name those outside the domain beside them; ends are known in their order."""
        columns, conversion = self.columns, self.conversion
        wrong = {f"{name} is missing or not finite": rows for name, rows in lacking.items()}
        actions, controls = flat(cells[columns.action]), conversion.takes_controls
        acted = has_action(actions, controls=controls)
        if ordered and columns.by_episode and not columns.next_states and not columns.by_ends:
            wrong[f"{columns.action} is missing before the end of an episode"] = ~acted & ~_is_last(cells, columns)
        if not any(rows.any() for rows in wrong.values()):
            return
        if not controls and actions.ndim == 1:
            most = MOST_ACTIONS if conversion.n_actions is None else conversion.n_actions
            wrong[f"{columns.action} is no action"] = acted & ((np.floor(actions) != actions) | (actions >= most))
        if conversion.domain is not None and conversion.state is None and conversion.outside == "refuse":
            low, high = conversion.domain.ends
            ends = [_side_by_side(cells, names) for names in (columns.states, columns.next_states) if names]
            beyond = np.any([(values < low) | (values > high) for values in ends], axis=0)
            beyond[:, list(conversion.periodic)] = False
            wrong["a state lies outside the domain"] = beyond.any(axis=1)
        told = [
            _counted(what, first + np.flatnonzero(rows), table, columns) for what, rows in wrong.items() if rows.any()
        ]
        drop = setting("missing", repr("drop"))
        raise ValueError(f"{'; '.join(told)}: correct these rows, remove them, or write {drop}")

    def _windows(self, table: Table, batches: Iterator[Steps]) -> Iterator[tuple[Steps, int]]:
        """Its rows in batches with the two rows after each, and their number without these."""
        held: list[Steps] = []
        for batch in batches:
            window = Steps.joined([*held, batch])
            begun = max(len(window) - _AHEAD, 0)
            if begun:
                yield window, begun
            held = [replace(window.where(slice(begun, None)), left_out=Counter())]
        if held:
            begun, end = len(held[0]), self.section[1]
            for batch in () if end is None else self.batches(table, _AHEAD, (end, None)):
                held.append(replace(batch, left_out=Counter()))
                if sum(map(len, held)) >= begun + _AHEAD:
                    break
            yield Steps.joined(held), begun


def _side_by_side(cells: Cells, names: tuple[str, ...]) -> Array:
    return np.column_stack([cells[name] for name in names])


def _flags(values: NDArray[Any], name: str, first: int) -> NDArray[np.bool_]:
    """Truth values ``[n]``; what is missing is False."""
    flags = np.nan_to_num(values)
    other = (flags != 0) & (flags != 1)
    if other.any():
        row = int(other.argmax())
        raise ValueError(f"{name} must be True or False, got {flags[row]:g} in row {first + row}")
    return flags != 0


def _check_order(rows: Steps) -> None:
    """Refuse episodes that come back, and steps out of order: a stream cannot sort them."""
    episodes = np.asarray(rows.episodes)
    back = episodes[1:] < episodes[:-1]
    if rows.step is not None:
        back |= (episodes[1:] == episodes[:-1]) & (rows.step[1:] <= rows.step[:-1])
    if back.any():
        raise ValueError(
            f"{rows.place(int(back.argmax()) + 1)} belongs before the row above it, and a stream takes episodes in the "
            "order of the table: sort the table by episode and step"
            + by_door(", or load it with certirl.logs.read", "")
        )


@dataclass(frozen=True)
class TableStream(Stream):
    """The transitions of tables as a stream, from one chunk after the other.

    Attributes:
        domain: the box of states.
        n_actions: the number of actions.

    Example:
        >>> table = {"state": [0.0, 0.5, 1.0], "action": [0, 1, 0], "next_state": [0.5, 1.0, 0.5]}
        >>> stream = certirl.logs.stream(table)
        >>> stream.total, stream.n_actions, stream.domain
        (3, 2, ((0.0, 1.0),))
    """

    parts: tuple[Chunk, ...]
    domain: Box
    n_actions: int
    notes: tuple[str, ...] = ()  # what was left out, in sentences

    @internal
    def chunks(self) -> tuple[Chunk, ...]:
        """Parts that can be read independently."""
        return self.parts

    @property
    @internal
    def conversion(self) -> Conversion:
        """How the rows become transitions."""
        return self.parts[0].conversion

    @property
    def periodic(self) -> tuple[int, ...]:
        """The periodic coordinates."""
        return self.conversion.periodic

    @property
    def exogenous(self) -> tuple[int, ...]:
        """The coordinates that no action moves."""
        return self.conversion.exogenous

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions; empty if they have none."""
        return self.conversion.action_names

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the tables, in the order in which they are read."""
        return tuple(dict.fromkeys(chunk.name for chunk in self.parts))

    @property
    def _tables(self) -> list[Table]:
        return [chunk.table() for chunk in {(part.name, part.fingerprint): part for part in self.parts}.values()]

    @property
    def total(self) -> int:
        """The number of rows in all tables."""
        return sum(table.count() for table in self._tables)

    def __str__(self) -> str:
        tables, names = self._tables, self.action_names
        count = number_of(len(tables), tables[0].unit)
        actions = ", ".join(names) if names else f"0 … {self.n_actions - 1}"
        line = f"{number_of(self.total, 'row')} in {count}, states in {self.domain.words}, actions {actions}"
        return "\n  ".join([line, *(note for table in tables for note in table.notes), *self.notes])


def stream(sources: Any, *, rows: int | None = None, **settings: Any) -> TableStream:
    """Tables as a stream, of which a batch is in memory at a time; `certirl.steps.measure` takes it.

    A Parquet file is cut into chunks at its row groups, as few as make up ``rows`` rows, and a data frame anywhere;
    other files are one chunk. Batches have at most ``rows`` rows, but an npz file cannot be read in parts. The steps of
    episodes continue across batches and row groups. A table of episodes must be sorted: one episode after the other,
    with ascending numbers or with names that do not come back, and by step within each.

    Args:
        sources: a file, a folder, a glob pattern, a data frame, or a list of these.
        rows: of a batch; 2¹⁸ if left out, 2¹⁶ of episodes.
        **settings: as in `read`. A domain, a number of actions, their names or levels of controls that are left out are
            those of the data, by the statistics of Parquet files or by reading all rows once; so are rows that
            ``missing`` or ``longest_step`` leave out. A stream does not count the states that it clips, nor last
            actions without a next state, nor does it compare the times between steps.

    Example:
        >>> table = {"state": [0.0, 0.5, 1.0], "action": [0, 1, 0], "next_state": [0.5, 1.0, 0.5]}
        >>> np.savez("log.npz", **table)
        >>> stream = certirl.logs.stream("log.npz")
        >>> print(certirl.steps.measure(stream, basis=certirl.Legendre(2)))
        3 transitions: Legendre(2) on [0, 1], 2 columns, 2 actions
    """
    names, conversion = _split(settings)
    if conversion.outside == "drop":
        other = by_door("use read", "remove those rows before")
        raise ValueError(f"a stream cannot say what it dropped: write {setting('outside', repr('clip'))}, or {other}")
    size = None if rows is None else as_count(rows, "rows", meaning="a positive whole number")
    if conversion.lag:
        raise ValueError(f"a stream has no steps before: leave {setting('lag')} out{by_door(', or use read', '')}")
    chunks, levels = _with_levels(_opened(sources, names, conversion, rows=size))
    parts = [part for chunk in chunks for part in chunk.cut()]
    return replace(_with_extent(parts), notes=(*levels, *_left_out(parts)))


def read(sources: Any, **settings: Any) -> Transitions:
    """Load tables of transitions or episodes into memory.

    Args:
        sources: a file, a folder, a glob pattern, a data frame, or a list of these. Episodes may come mixed, and never
            continue in another table.
        **settings: which columns to read, as in `Names`: state, action, next_state, episode, step, terminated; the
            delimiter of text files; where episodes end: ``missing="drop"`` leaves out rows without a value, and
            ``longest_step=`` is the longest step, in units of the column step, seconds of times; and what to make of
            the rows, as in `from_episodes`: domain, n_actions, actions, state (a function), periodic, exogenous,
            outside, absorb, lag. ``periodic`` and ``exogenous`` name coordinates of the state, by numbers or columns.
            Actions that are names are numbered in sorted order, or in the order of ``actions``.

    Example:
        >>> table = {"x": [0.0, 0.5, 1.0], "move": ["right", "right", "left"], "x2": [0.5, 1.0, 0.5]}
        >>> print(certirl.logs.read(table, state="x", action="move", next_state="x2"))
        3 transitions on [0, 1]; per action: left 1, right 2
    """
    names, conversion = _split(settings)
    if names.episode == "":
        conversion = replace(conversion, absorb=False)
    chunks, parts = _opened(sources, names, conversion), []
    conversion = chunks[0].conversion
    for chunk in chunks:
        with in_table(chunk.name):
            parts.append(chunk.loaded())
    try:
        columns = chunks[0].columns
        is_named = names.state is not None and len(columns.states) == columns.dimension
        log = conversion.transitions(_joined(parts), columns.states if is_named else ())
        freeze(log, further=partial(_further_columns, chunks, len(log)))
        return log
    except ValueError as problem:
        for chunk, steps in zip(chunks, parts, strict=True):
            with in_table(chunk.name):
                if len(steps):
                    conversion.apply(steps)  # finds the table, if the fault is in one of them
        raise ValueError(f"{chunks[0].name}{' …' * (len(chunks) > 1)}: {problem}") from None


def _with_levels(chunks: list[Chunk]) -> tuple[list[Chunk], list[str]]:
    """The chunks with levels of controls where only their number is known, from rows all over the tables; and notes."""
    conversion, seen = chunks[0].conversion, []
    if not conversion.needs_levels:
        return chunks, []
    for chunk in chunks:
        with in_table(chunk.name):
            for rows in chunk.batches(chunk.table(), chunk.rows):
                controls = rows.actions[has_action(rows.actions, controls=True)]
                signs = np.unique(np.sign(controls), axis=0, return_index=True)[1]
                seen += [controls[signs], controls[:: len(controls) // _THINNED + 1]]
    levelled = conversion.with_levels(np.concatenate(seen))
    return [replace(chunk, conversion=levelled) for chunk in chunks], levelled.choices(np.concatenate(seen))[1]


def _further_columns(chunks: Sequence[Chunk], count: int) -> dict[str, Array]:
    """What the other columns say of each transition, by name, if all tables have them; 0 of absorbing rows."""
    parts, found, start = [], dict[str, list[Any]](), 0
    for chunk in chunks:
        with in_table(chunk.name):
            table, steps = chunk.table(), chunk.loaded()
            parts.append(replace(steps, rows=start + np.asarray(steps.rows)))
            start += table.count()
            columns = chunk.columns
            known = {*columns.states, *columns.next_states, columns.action, *columns.ends, columns.episode}
            for name in table.names:
                is_time = name == columns.step and is_number(str(table.first_value(name)))
                described = None if name in known or is_time else table.described(name)
                if described is not None:
                    found.setdefault(described[0], []).append(described[1])
    rows = np.asarray(replace(chunks[0].conversion, absorb=False).apply(_joined(parts)).rows)
    rows = np.append(rows, np.full(count - len(rows), start))
    alike = {name: each for name, each in found.items() if len({values.shape[1] for values in each}) == 1}
    whole = {name: each for name, each in alike.items() if len(each) == len(chunks)}
    return {name: np.concatenate([*each, 0 * each[0][:1]])[rows] for name, each in whole.items()}


def _left_out(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    """Notes on rows without a value and on long steps, which are counted in one pass if they are to end episodes."""
    columns = chunks[0].columns
    if not columns.drops and columns.longest is None:
        return ()
    counts: Counter[str] = Counter()
    for chunk in chunks:
        with in_table(chunk.name):
            for steps in chunk.steps():
                counts += steps.left_out
    rows = replace(next(chunks[0].steps()), notes=(), left_out=counts)
    return rows.told(columns.longest, chunks[0].unit(chunks[0].table())).notes


def _counted(what: str, rows: NDArray[np.intp], table: Table, columns: Columns) -> str:
    """What is wrong in which row first, by its episode and step in the table, and in how many more."""
    first, named = int(rows[0]), [name for name in (columns.episode, columns.step) if name is not None]
    named = [name for name in named if not what.startswith(name)]
    rows_of = (zip(*(cells[name].to_pylist() for name in named), strict=True) for cells in table.raw(named, ROWS))
    place = next(islice(chain.from_iterable(rows_of), first, None)) if named else ()
    which = ", ".join(f"{name} {value}" for name, value in zip(named, place, strict=True))
    more = f" and {number_of(len(rows) - 1, 'further row')}" if len(rows) > 1 else ""
    return f"{what} in row {first}{f' ({which})' * bool(which)}{more}"


def _is_there(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows hold finite numbers, or anything else but numbers ``[n]``."""
    if values.dtype.kind != "f":
        return np.ones(len(values), dtype=bool)
    return np.asarray(np.isfinite(values).reshape(len(values), -1).all(axis=1))


def _is_last(cells: Cells, columns: Columns) -> NDArray[np.bool_]:
    """Which rows are the last of their episode ``[n]``."""
    n = len(cells[columns.action])
    episodes = np.zeros(n) if columns.episode is None else cells[columns.episode]
    order = np.lexsort([cells[columns.step], episodes] if columns.step else [np.arange(n), episodes])
    last = np.empty(n, dtype=bool)
    last[order] = np.append(episodes[order][1:] != episodes[order][:-1], True)
    return last


def read_demonstrations(sources: Any, **settings: Any) -> tuple[tuple[Any, Any, Any], tuple[str, ...]]:
    """States ``[n, d]``, the expert's actions ``[n]``, and episodes ``[n]`` or None; and names of the actions, if any.

    Sources and settings are as in `read`; rows without an action are left out.
    """
    names, conversion = _split(settings)
    parts, chunks = [], _opened(sources, names, conversion, demonstrations=True)
    for chunk in chunks:
        with in_table(chunk.name):
            rows = next(chunk.batches(chunk.table()))
            rows = rows.where(has_action(rows.actions) & (True if rows.gone is None else ~rows.gone))
            if not len(rows):
                raise ValueError("there are no demonstrations in it")
            parts.append(rows)
    unknown = any(rows.episodes is None for rows in parts)
    numbers = [None if unknown or rows.episodes is None else numbered(rows.episodes) for rows in parts]
    demonstrations = (
        np.concatenate([rows.states for rows in parts]).astype(np.float64),
        np.concatenate([rows.actions for rows in parts]).astype(np.float64),
        join_episodes(numbers, [len(rows) for rows in parts]),
    )
    return demonstrations, chunks[0].conversion.action_names


def as_log(source: Any) -> Any:
    """The transitions of a table; anything else as it is."""
    return read(source) if is_table(source) else source


def _split(settings: dict[str, Any]) -> tuple[Names, Conversion]:
    """The settings that name columns, and those that say what to make of the rows."""
    columns = {column.name for column in fields(Names)} & set(settings)
    if callable(settings.get("state")):  # a function of observations
        columns.remove("state")
    known = [column.name for column in (*fields(Names), *fields(Conversion))]
    for name in settings:
        if name not in known:
            raise TypeError(f"tables have no setting {name!r}{closest(name, known)}; they have {', '.join(known)}")
    names = Names(**{name: settings[name] for name in columns})
    return names, Conversion(**{name: value for name, value in settings.items() if name not in columns})


def _opened(
    sources: Any, names: Names, conversion: Conversion, *, rows: int | None = None, demonstrations: bool = False
) -> list[Chunk]:
    """Open tables and look at the columns of all of them before reading any row."""
    chunks: list[Chunk] = []
    for source in find_tables(sources):
        with in_table(name_of(source)):
            table = open_table(source, names.delimiter)
            columns = recognise(table, names, demonstrations=demonstrations)
            located = conversion
            if conversion.state is None:
                if conversion.domain is not None:
                    check_coordinates(columns.dimension, conversion.domain)
                located = _located(conversion, columns, table)
            batch = rows or (EPISODE_ROWS if columns.by_episode else ROWS)
            place = str(source) if isinstance(source, Path) else source
            chunks.append(Chunk(place, columns, located, batch, WHOLE, table.fingerprint(columns)))
        dimension = chunks[0].columns.dimension
        if columns.dimension != dimension:
            other = f"but {columns.dimension} in {table.name}"
            raise ValueError(f"states have {number_of(dimension, 'coordinate')} in {chunks[0].name} {other}")
    check_repeats((chunk.name, chunk.fingerprint) for chunk in chunks)
    _check_formats(chunks)
    return _with_action_names(chunks)


def _located(conversion: Conversion, columns: Columns, table: Table) -> Conversion:
    """The conversion with the numbers of coordinates for the names of their columns."""
    names = columns.states if len(columns.states) == columns.dimension else ()
    for argument in ("periodic", "exogenous"):
        other = [name for name in names_among(getattr(conversion, argument)) if name in {*table.names} - {*names}]
        if other:
            after = f", and its next value to {setting('next_state')}" if columns.next_states else ""
            raise ValueError(
                f"{setting(argument, repr(other[0]))} names a column that is no coordinate of the state: add it to "
                f"{setting('state')}{after}"
            )
    return conversion.located(columns.dimension, names)


def _check_formats(chunks: Sequence[Chunk]) -> None:
    """Refuse the same data in two formats: tables whose first states agree to six digits."""
    kinds, heads = [chunk.table().kind for chunk in chunks], dict[Any, int]()
    for index, chunk in enumerate(chunks if len(set(kinds)) > 1 else ()):
        head: Any = chunk.name  # if states cannot be read: reading all of it says what is wrong
        with suppress(OSError, ValueError, TypeError, StopIteration):
            cells = next(chunk.table().batches(chunk.columns._replace(action=chunk.columns.states[0]), _HEAD))
            states = _side_by_side(cells, chunk.columns.states)[:_HEAD]
            head = tuple(f"{number:.6g}" for number in states.astype(np.float64).reshape(-1))
        other = heads.setdefault(head, index)
        if kinds[other] != kinds[index]:
            both = f"{chunks[other].name} and {chunk.name} begin with the same rows"
            raise ValueError(f"the same data would count twice: {both}; leave one out")


def _with_action_names(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks; if their actions are names, these are numbered as asked for, or in sorted order."""
    conversion, texts = chunks[0].conversion, set[str]()
    if conversion.takes_controls:
        return list(chunks)
    named = []
    for chunk in chunks:
        with in_table(chunk.name):
            named.append(is_name(chunk.table().first_value(chunk.columns.action)))
            if named[-1] and not conversion.action_names:
                texts |= chunk.table().names_in(chunk.columns.action)
    if not any(named):
        return list(chunks)
    if not all(named):
        with_names, without = (chunks[named.index(answer)].name for answer in (True, False))
        raise ValueError(f"actions are names in {with_names} but numbers in {without}: write the same in both")
    actions = conversion.action_names or tuple(sorted(texts))
    if conversion.n_actions not in (None, len(actions)):
        column, listed = chunks[0].columns.action, ", ".join(actions[:6]) + " …" * (len(actions) > 6)
        raise ValueError(
            f"{chunks[0].name}: the column {column} holds {len(actions)} names of actions, {listed}, and "
            f"{setting('n_actions')} is {conversion.n_actions}: list all names in {setting('actions')} instead"
        )
    conversion = replace(conversion, actions=actions)
    return [replace(chunk, conversion=conversion, columns=chunk.columns._replace(actions=actions)) for chunk in chunks]


def _with_extent(chunks: Sequence[Chunk]) -> TableStream:
    """The stream of chunks; a domain or a number of actions that is left out is that of their data."""
    conversion = chunks[0].conversion
    if conversion.domain is not None and conversion.n_actions is not None:
        return TableStream(tuple(chunks), conversion.domain, conversion.n_actions)
    if conversion.state is not None:
        raise ValueError("with state= the domain and n_actions must be given: pass domain=((low, high), …)")
    by_table = [list(parts) for _, parts in groupby(chunks, lambda chunk: chunk.fingerprint)]
    extents = [extent for parts in by_table for extent in _extents(parts)]
    with in_table(*(parts[0].name for parts in by_table)):
        if not extents:
            raise ValueError("there are no steps in these episodes: each of them has a single state")
        totals, ends, actions = zip(*extents, strict=True)
        domain, count = conversion.domain or bounding_box(*np.stack(ends, axis=1)), conversion.n_actions
        if count is None:
            taken, total = np.unique(np.concatenate(actions)).astype(int), sum(totals)
            if taken[-1] >= total:
                raise ValueError(
                    f"there is an action {taken[-1]} in only {total} transitions: number the actions 0, 1, …"
                )
            count = count_actions(taken)
    conversion = replace(conversion, domain=domain, n_actions=count)
    return TableStream(tuple(replace(chunk, conversion=conversion) for chunk in chunks), domain, count)


def _extents(chunks: Sequence[Chunk]) -> Iterator[tuple[int, Array, NDArray[Any]]]:
    """The number of transitions, their box ``[2, d]`` and their actions: of one table, whole or in batches."""
    columns, d, table = chunks[0].columns, len(chunks[0].columns.states), chunks[0].table()
    extremes = table.extremes([*columns.states, columns.action, *columns.next_states])
    # A larger action may be one of few: reading the rows finds those that occur, and a row that has none.
    if extremes is not None and not columns.by_episode and extremes[1][d] in range(_FEW_ACTIONS):
        (low, high), after = (values[:d] for values in extremes), [values[d + 1 :] for values in extremes]
        yield table.count(), np.stack([np.minimum(low, after[0]), np.maximum(high, after[1])]), extremes[1][d : d + 1]
        return
    with in_table(chunks[0].name):
        for steps in (steps for chunk in chunks for steps in chunk.steps() if len(steps)):
            ends = np.concatenate([steps.states, steps.next_states])
            yield len(steps), np.stack([ends.min(axis=0), ends.max(axis=0)]), np.unique(steps.actions)


def _joined(parts: Sequence[Steps]) -> Steps:
    """The steps of several tables, whose episodes are different."""
    parts = [steps for steps in parts if len(steps)] or list(parts[:1])
    terminal = join_terminal([steps.terminal for steps in parts])
    episodes = join_episodes([steps.episodes for steps in parts], [len(steps) for steps in parts])
    return replace(Steps.joined(parts), terminal=terminal, episodes=episodes)
