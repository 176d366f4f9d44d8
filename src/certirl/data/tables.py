"""Transitions from tables that need not fit into memory: streamed, cut into chunks, surveyed, or loaded.

    paths = "log/*.parquet"                                    # a file, a folder, a pattern, or a list of these
    moments = certirl.tables.measure(paths, basis=certirl.Legendre(11))

Parquet, CSV and npz are read (see `readers` for their columns). Files are taken in sorted order, so that results do not
depend on the file system. Every row is checked; a bad one is an error that names its file and its row, counted from 0.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.episode_readers import marks, refuse_copies, refuse_two_formats
from certirl.data.episode_tables import EpisodeChunk, episode_chunks, read_demonstrations, read_episodes
from certirl.data.moments import Moments, Source, check_repeats, of_chunk
from certirl.data.readers import Batch, Paths, batches, count_rows, extremes, find_files, fingerprint, layout, runs
from certirl.data.simulator import CHUNK
from certirl.data.transitions import Piece, Transitions, as_episode_numbers, by_action, join_episodes, join_terminal
from certirl.functions.bases import Basis, as_basis
from certirl.ground.domain import (
    MOST_ACTIONS,
    Array,
    Domain,
    as_actions,
    as_domain,
    as_n_actions,
    as_rows,
    as_states,
    describe,
    no_box,
)
from certirl.ground.doors import as_count, as_flag, as_flags, setting
from certirl.ground.progress import Report, watched_stream
from certirl.ground.work import fold, on

__all__ = [
    "chunks",
    "measure",
    "read_demonstrations",
    "read_episodes",
    "read_transitions",
    "stream",
    "stream_episodes",
    "survey",
]

ROWS = 2**18  # of a batch: some ten megabytes, however large the files are
EPISODE_ROWS = 2**16  # more is kept of a row until it is a step


@dataclass(frozen=True)
class Chunk:
    """A part of the data that can be sent elsewhere and read there: it names its rows and holds none of them.

    Attributes:
        file: where they are.
        domain: the box they must lie in.
        n_actions: the number of actions they must keep to.
        rows: how many are in memory at a time, at most (a whole file for npz).
        first: the number of the first row.
        groups: the row groups (Parquet), from the first up to but not including the second; None for the whole file.
        folder: from where the name of the file was given: a worker elsewhere starts there.
    """

    file: str
    domain: Domain
    n_actions: int
    rows: int = ROWS
    first: int = 0
    groups: tuple[int, int] | None = None
    folder: str = field(default_factory=os.getcwd, repr=False)

    def pieces(self) -> Iterator[Piece]:
        """Its rows, checked, one action at a time: those of a batch are sorted by action, in order otherwise."""
        file = Path(self.file) if self.folder == os.getcwd() else Path(self.folder, self.file)
        groups = None if self.groups is None else range(*self.groups)
        for batch in batches(file, self.rows, groups, self.first):
            states, actions, next_states = _checked(batch, file, self.domain, self.n_actions)
            yield from by_action(states, actions, next_states, CHUNK)


@dataclass(frozen=True)
class Survey:
    """What a first look at the files tells.

    Attributes:
        files: in the order they are read.
        counts: rows of each file.
        low, high: the smallest and largest value of each coordinate, over states and next states.
        largest_action: that was taken.
    """

    files: tuple[str, ...]
    counts: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    largest_action: int

    @property
    def rows(self) -> int:
        """The number of transitions in all files."""
        return sum(self.counts)

    @property
    def _named(self) -> str:
        return f"{self.files[0]}{' …' * (len(self.files) > 1)}: "

    @property
    def domain(self) -> Domain:
        """The smallest box that holds the data."""
        if any(low >= high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(no_box())
        return as_domain(list(zip(self.low, self.high, strict=True)))

    @property
    def n_actions(self) -> int:
        """The largest action seen plus one."""
        if self.largest_action >= MOST_ACTIONS:
            raise ValueError(
                f"{self._named}action {self.largest_action} is above {MOST_ACTIONS - 1}, the largest possible: "
                "number the actions 0, 1, …"
            )
        if self.largest_action >= self.rows:
            raise ValueError(
                f"{self._named}there is an action {self.largest_action} in only {self.rows} transitions: number the "
                "actions 0, 1, …"
            )
        return self.largest_action + 1

    def __str__(self) -> str:
        box = describe(tuple(zip(self.low, self.high, strict=True)))
        files = f"{len(self.files)} file{'s' * (len(self.files) != 1)}"
        return f"{self.rows:,} transitions in {files}, states in {box}, actions 0 … {self.largest_action}"


def survey(paths: Paths, *, rows: int = ROWS) -> Survey:
    """Find the bounding box, the largest action and the number of rows.

    Parquet files usually keep the smallest and largest value of each row group, and then this takes no time; other
    files are read through once, in batches.

    Args:
        paths: a file, a folder, a glob pattern, or a list of these.
        rows: how many to hold in memory at a time.
    """
    files = find_files(paths)
    _check_alike(files)
    counts: list[int] = []
    lows: list[Array] = []
    highs: list[Array] = []
    for file in files:
        count, low, high = _extent(file, as_count(rows, "rows", meaning="a positive whole number"))
        if lows and len(low) != len(lows[0]):  # npz tells only now
            raise ValueError(_unlike(files[0], len(lows[0]) // 2, file, len(low) // 2))
        counts.append(count)
        lows.append(low)
        highs.append(high)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    d = len(low) // 2
    return Survey(
        files=tuple(map(str, files)),
        counts=tuple(counts),
        low=tuple(np.minimum(low[:d], low[d + 1 :]).tolist()),
        high=tuple(np.maximum(high[:d], high[d + 1 :]).tolist()),
        largest_action=int(high[d]),
    )


def chunks(paths: Paths, *, domain: Any = None, n_actions: int | None = None, rows: int = ROWS) -> list[Chunk]:
    """Cut the data into parts that can be read independently; one after the other they are the stream.

    A Parquet file is cut at its row groups, as few as make up ``rows`` rows; CSV and npz files are one chunk each. A
    batch of Parquet or CSV has at most ``rows`` rows, however large the chunk; npz files can neither be read in parts
    nor mapped into memory, being archives, so that each must fit.

    Args:
        paths: a file, a folder, a glob pattern, or a list of these.
        domain: the box the states live in; the smallest box around the data, by `survey`, if left out.
        n_actions: the number of actions; the largest seen plus one, by `survey`, if left out.
        rows: of a batch.
    """
    files, rows = find_files(paths), as_count(rows, "rows", meaning="a positive whole number")
    if domain is None or n_actions is None:
        seen = survey(files, rows=rows)
        domain = seen.domain if domain is None else domain
        n_actions = seen.n_actions if n_actions is None else n_actions
    domain, n_actions = as_domain(domain), as_n_actions(n_actions)
    found = []
    for file, groups in zip(files, _check_alike(files, domain), strict=True):
        found += [Chunk(str(file), domain, n_actions, rows, first, run) for first, run in runs(groups, rows)]
    return found


@dataclass(frozen=True)
class Chunks:
    """Chunks one after the other, as a stream."""

    parts: tuple[Chunk | EpisodeChunk, ...]

    def __iter__(self) -> Iterator[Piece]:
        return (piece for chunk in self.parts for piece in chunk.pieces())

    def chunks(self) -> tuple[Chunk | EpisodeChunk, ...]:
        """Themselves."""
        return self.parts


def stream(paths: Paths, *, domain: Any = None, n_actions: int | None = None, rows: int = ROWS) -> Chunks:
    """Tables as pieces of one action each; walking through them never holds more than a batch (see `chunks`)."""
    return Chunks(tuple(chunks(paths, domain=domain, n_actions=n_actions, rows=rows)))


def stream_episodes(
    paths: Paths,
    *,
    domain: Any = None,
    n_actions: int | None = None,
    rows: int = EPISODE_ROWS,
    episode_column: str | None = None,
    **settings: Any,
) -> Chunks:
    """Tables of episodes as pieces of one action each, never more in memory than a batch; `measure` takes it.

    Pairs of states are found across batches and row groups, never across episodes. The rows must be sorted: one episode
    after the other, with ascending numbers or with names that do not come back, and by step within each.

    Args:
        paths: a CSV or Parquet file, a folder, a glob pattern, or a list of these.
        domain: the box the states live in; the smallest box around the data, found by reading it once, if left out.
        n_actions: the number of actions; the largest seen plus one, found likewise, if left out.
        rows: of a batch.
        episode_column: which episode a row is from; ``episode`` or another usual name if left out.
        **settings: what to make of the steps, as in `from_episodes`: actions, state, periodic, outside, absorb. Nobody
            counts what a stream clips, nor last actions that led nowhere known.
    """
    box: dict[str, Any] = {"domain": domain, "n_actions": n_actions}
    return Chunks(
        tuple(
            episode_chunks(
                paths,
                **box,
                rows=as_count(rows, "rows", meaning="a positive whole number"),
                episode_column=episode_column,
                **settings,
            )
        )
    )


def measure(
    paths: Paths | Chunks,
    *,
    basis: Basis,
    columns: int | None = None,
    domain: Any = None,
    n_actions: int | None = None,
    rows: int = ROWS,
    allow_repeats: bool = False,
    progress: bool | Report | None = None,
    map: Any = None,
) -> Moments:
    """Sum the products of basis functions over tables (Algorithm 1, step 4), in memory that does not grow with them.

    Args:
        paths: a file, a folder, a glob pattern, or a list of these; or what `stream` or `stream_episodes` gave.
        basis: the row basis φ; placed on the domain.
        columns: how many of its functions describe the state, k_s; all of them if left out.
        domain: the box the states live in; the smallest box around the data if left out.
        n_actions: the number of actions; the largest seen plus one if left out.
        rows: how many to hold in memory at a time.
        allow_repeats: let a file and its copy both count.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
        map: where to work: a number of threads, a Dask client, an executor; threads on all cores if left out.
    """
    if isinstance(paths, Chunks) and not (domain is n_actions is None):
        raise ValueError("a stream knows its domain and its actions: leave domain and n_actions out here")
    box: dict[str, Any] = {"domain": domain, "n_actions": n_actions}
    plan = paths.parts if isinstance(paths, Chunks) else chunks(paths, **box, rows=rows)
    basis, repeats = as_basis(basis).on(plan[0].domain), as_flag(allow_repeats, "allow_repeats")
    narrow = basis.resized(basis.size if columns is None else as_count(columns, "columns"))
    if narrow.size > basis.size:
        most = f"the {basis.size} functions of the basis"
        raise ValueError(f"{setting('columns')} must lie between 1 and {most}, got {columns}")
    files = list(dict.fromkeys(chunk.file for chunk in plan))
    fingerprints = {file: fingerprint(Path(file)) for file in files}
    if not repeats:
        check_repeats(fingerprints.items())
        refuse_two_formats([Path(file) for file in files])
    shown = sys.stderr.isatty() if progress is None else progress is not False
    total = sum(count_rows(Path(file)) for file in files) if shown else 0
    data = watched_stream(Chunks(tuple(plan)), total, progress if shown else False)
    with on(map):
        moments = fold(partial(_measured, basis, narrow, fingerprints), data.chunks())
    rows_of: Counter[tuple[str, str]] = Counter()
    for source in moments.sources:
        rows_of[source.name, source.mark] += source.rows
    return replace(moments, sources=tuple(Source(name, count, mark) for (name, mark), count in rows_of.items()))


def _measured(rows: Basis, columns: Basis, marks: dict[str, str], chunk: Chunk | EpisodeChunk) -> Moments:
    """The moments of one chunk, which say where they are from."""
    moments = of_chunk(rows, columns, chunk.n_actions, chunk)
    source = Source(Path(chunk.file).name, int(moments.counts.sum()), marks[chunk.file])
    return replace(moments, sources=(source,))


def read_transitions(paths: Paths, *, domain: Any = None, n_actions: int | None = None) -> Transitions:
    """Load logged transitions into memory, from Parquet, CSV or npz.

    Where the files say which episode a row is from and which next states are terminal (see `episode_readers`), that is
    kept: no proof rests on the steps of an episode. `read_episodes` makes more of it.

    Args:
        paths: a file, a folder, a glob pattern, or a list of these.
        domain: the box the states live in; the smallest box around the data if left out.
        n_actions: the number of actions; the largest seen plus one if left out.
    """
    files, box = find_files(paths), None if domain is None else as_domain(domain)
    count = None if n_actions is None else as_n_actions(n_actions)
    refuse_copies(files)
    _check_alike(files, box)
    parts, lengths = [], []
    for file in files:
        found = [_checked(batch, file, box, count) for batch in batches(file, ROWS)]
        parts += found
        lengths.append(sum(len(actions) for _, actions, _ in found))
    if len({states.shape[1] for states, _, _ in parts}) > 1:
        raise ValueError(f"{files[0]} and the files after it differ in the number of coordinates of a state")
    states, actions, next_states = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = [_marks(file, length) for file, length in zip(files, lengths, strict=True)]
    try:
        return Transitions(
            states,
            actions,
            next_states,
            domain=domain,
            n_actions=count,  # type: ignore[arg-type]
            episodes=join_episodes([episodes for episodes, _ in known], lengths),
            terminal=join_terminal([terminal for _, terminal in known]),
        )
    except ValueError as problem:
        raise ValueError(f"{files[0]}{' …' * (len(files) > 1)}: {problem}") from None


def _marks(file: Path, length: int) -> tuple[NDArray[np.intp] | None, NDArray[np.bool_] | None]:
    """What a file says about episodes and terminal states, checked."""
    try:
        episodes, terminal = marks(file, ROWS)
        if episodes is not None:
            episodes = as_episode_numbers(episodes)
            if len(episodes) != length:
                raise ValueError(f"episodes must be {length} numbers, one for each row, got {len(episodes)}")
        return episodes, None if terminal is None else as_flags(terminal, length, "terminal")
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}") from None


def _check_alike(files: Sequence[Path], domain: Domain | None = None) -> list[tuple[int, ...]]:
    """Look at the head or foot of every file before reading any; the rows of their row groups."""
    layouts = [layout(file) for file in files]
    known = [(file, one.coordinates) for file, one in zip(files, layouts, strict=True) if one.coordinates]
    for file, coordinates in known:
        if coordinates != known[0][1]:
            raise ValueError(_unlike(*known[0], file, coordinates))
        if domain is not None and coordinates != len(domain):
            raise ValueError(
                f"{file}: states have {coordinates} coordinates but the domain {describe(domain)} has {len(domain)}"
            )
    return [one.groups for one in layouts]


def _unlike(first: Path, its: int, second: Path, other: int) -> str:
    return f"states have {its} coordinate{'s' * (its != 1)} in {first} but {other} in {second}"


def _extent(file: Path, rows: int) -> tuple[int, Array, Array]:
    """Rows of a file, and the smallest and largest value of each column: states, action, next states."""
    known = extremes(file)
    if known is not None:
        return count_rows(file), *known
    count, lows, highs = 0, [], []
    for batch in batches(file, rows):
        states, actions, next_states = _checked(batch, file, None, None)
        table = (states, actions[:, None], next_states)
        lows.append(np.concatenate([column.min(axis=0) for column in table]))
        highs.append(np.concatenate([column.max(axis=0) for column in table]))
        count += len(actions)
    return count, np.min(lows, axis=0), np.max(highs, axis=0)


def _checked(
    batch: Batch, file: Path, domain: Domain | None, n_actions: int | None
) -> tuple[Array, NDArray[np.intp], Array]:
    """States ``[n, d]``, actions ``[n]`` and next states ``[n, d]``, or a sentence that names the file and the row."""
    first, tables = batch.first, {"states": batch.states, "next_states": batch.next_states}
    shape = np.shape(batch.states)
    d = len(domain) if domain is not None else shape[1] if len(shape) == 2 else 1
    try:
        actions = as_actions(batch.actions, n_actions=n_actions, first=first)
        rows = {name: as_rows(values, d, name=name, first=first) for name, values in tables.items()}
        if not len(rows["states"]) == len(actions) == len(rows["next_states"]):
            raise ValueError(
                "states, actions and next_states must be equally long, "
                f"got {len(rows['states'])}, {len(actions)} and {len(rows['next_states'])}"
            )
        if domain is not None:
            for name, values in rows.items():
                rows[name] = as_states(_widened_back(values, tables[name], domain), domain, name=name, first=first)
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}") from None
    return rows["states"], actions, rows["next_states"]


def _widened_back(values: Array, stored: Array, domain: Domain) -> Array:
    """Put states that were rounded over the edge of the domain when they were stored in single precision back on it."""
    if stored.dtype != np.float32:
        return values
    low, high = np.array(domain).T
    beyond_low = (values < low) & (values >= low.astype(np.float32))
    beyond_high = (values > high) & (values <= high.astype(np.float32))
    return np.where(beyond_low, low, np.where(beyond_high, high, values))
