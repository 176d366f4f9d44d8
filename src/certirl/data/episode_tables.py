"""Tables with a column that says which episode a row is from: into memory, or as a stream of any length.

A table without next states has a row for each state of an episode, the last one without an action: a pair of rows makes
a step, and a step may reach over the border of two batches, two row groups or two chunks, never of two episodes. So
whoever reads a part also looks at the two rows after it: one that the last step leads to, one that tells whether it
ended there.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.episode_readers import Columns, Rows, columns_of, join, refuse_copies, row_batches, sections
from certirl.data.episodes import Steps, from_episodes, no_circle, split
from certirl.data.readers import Paths, find_files, row_groups
from certirl.data.simulator import CHUNK
from certirl.data.transitions import Piece, Transitions, by_action
from certirl.ground.domain import Array, Domain, as_actions, as_domain, as_n_actions, count_actions, no_box
from certirl.ground.doors import by_door, setting

AHEAD = 2  # rows to look at after the last
_ROWS = 2**18


def read_episodes(paths: Paths, *, episode_column: str | None = None, **settings: Any) -> Transitions:
    """Load logged episodes into memory.

    A table without next states ends each episode with a row for its last state, which has no action. Episodes may come
    mixed, but never go on in another file.

    Args:
        paths: a CSV or Parquet file, a folder, a glob pattern, or a list of these.
        episode_column: which episode a row is from; ``episode`` or another usual name if left out.
        **settings: what to make of the steps, as in `from_episodes`: domain, n_actions, actions, state, periodic,
            outside, absorb.
    """
    parts, first, files = [], 0, find_files(paths)
    refuse_copies(files)
    for file in files:
        try:
            part = _steps(file, columns_of(file, episode_column=episode_column), settings)
        except ValueError as problem:
            raise ValueError(f"{file}: {problem}") from None
        parts.append(replace(part, episodes=part.episodes + first))
        first = int(parts[-1].episodes.max(initial=first - 1)) + 1
    if len({part.states.shape[1] for part in parts}) > 1:
        raise ValueError("the files differ in the number of coordinates of a state")
    names = ("states", "actions", "next_states", "terminal", "episodes")
    whole: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    try:
        return from_episodes(Steps(**whole, notes=tuple(note for part in parts for note in part.notes)), **settings)
    except ValueError as problem:
        raise ValueError(f"{files[0]}{' …' * (len(files) > 1)}: {problem}") from None


def read_demonstrations(
    paths: Paths, *, episode_column: str | None = None
) -> tuple[Array, NDArray[np.float64], NDArray[np.intp] | None]:
    """States ``[n, d]`` where an expert was seen, what it did ``[n]``, and episodes ``[n]`` if every file tells them.

    Args:
        paths: CSV or Parquet with columns state (or state_0, …) and action, or npz with arrays states and actions, and
            perhaps episodes; rows without an action are left out, and other columns do not matter.
        episode_column: which episode a row is from; ``episode`` or another usual name if left out.
    """
    found, first, files = [], 0, find_files(paths)
    refuse_copies(files)
    for file in files:
        try:
            rows = _demonstrations(file, episode_column)
        except ValueError as problem:
            raise ValueError(f"{file}: {problem}") from None
        rows = rows.part(np.flatnonzero(np.isfinite(rows.actions) & (rows.actions >= 0)))
        if not len(rows):
            raise ValueError(f"{file}: there are no demonstrations in it")
        numbers = None if rows.episodes is None else np.unique(rows.episodes, return_inverse=True)[1] + first
        first = first if numbers is None else int(numbers.max()) + 1
        found.append((rows.states, rows.actions, numbers))
    if len({states.shape[1] for states, _, _ in found}) > 1:
        raise ValueError("the files differ in the number of coordinates of a state")
    states, actions, episodes = zip(*found, strict=True)
    told = None if any(one is None for one in episodes) else np.concatenate(episodes)
    return np.concatenate(states), np.concatenate(actions), told


def _demonstrations(file: Path, episode_column: str | None) -> Rows:
    if file.suffix.lower() != ".npz":
        return _loaded(file, columns_of(file, episode_column=episode_column, needed=False))
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            held = {name: stored[name] for name in ("states", "actions", "episodes") if name in stored.files}
            inside = ", ".join(stored.files) or "nothing"
    except (OSError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile):
        raise ValueError("it is not an npz file of plain arrays, or it is damaged or cut short") from None
    if "states" not in held or "actions" not in held:
        raise ValueError(f"demonstrations need the arrays states and actions; it holds {inside}")
    states, actions = (np.asarray(held[name], dtype=np.float64) for name in ("states", "actions"))
    states = states[:, None] if states.ndim == 1 else states
    if states.ndim != 2 or actions.shape != states.shape[:1]:
        raise ValueError(
            f"states [n, d] and actions [n] must be equally long, got shapes {list(states.shape)} and "
            f"{list(actions.shape)}"
        )
    return Rows(0, held.get("episodes"), states, actions)


def _loaded(file: Path, columns: Columns) -> Rows:
    parts = list(row_batches(file, columns, _ROWS))
    if not parts:
        raise ValueError("there are no rows in it")
    return join(parts)


def _steps(file: Path, columns: Columns, settings: dict[str, Any]) -> Steps:
    rows = _loaded(file, columns)
    _check_actions(rows, settings.get("actions"), settings.get("n_actions"))
    if rows.steps is not None:
        rows = rows.part(np.argsort(rows.steps, kind="stable"))
    return _split(rows)


def _check_actions(rows: Rows, controls: Any, n_actions: int | None) -> None:
    """Refuse, by its row in the file, what is neither missing nor an action."""
    if controls is None:
        given = np.isfinite(rows.actions) & (rows.actions >= 0)
        declared = None if n_actions is None else as_n_actions(n_actions)
        as_actions(np.where(given, rows.actions, 0.0), n_actions=declared, first=rows.first)


def _split(rows: Rows, own: int | None = None) -> Steps:
    assert rows.episodes is not None
    more: dict[str, Any] = {"terminated": rows.terminated, "next_states": rows.next_states}
    return split(rows.states, rows.actions, rows.episodes, own=own, **more)


@dataclass(frozen=True)
class EpisodeChunk:
    """A part of a table of episodes that can be sent elsewhere and read there: it names its rows and holds none.

    Attributes:
        file: where they are.
        domain: the box their states must lie in.
        n_actions: the number of actions they must keep to.
        rows: how many are in memory at a time, at most.
        first: the number of the first row.
        groups: the row groups (Parquet), from the first up to but not including the second; None for the whole file.
        episode_column: which episode a row is from.
        settings: what else to tell `from_episodes`.
        folder: from where the name of the file was given: a worker elsewhere starts there.
    """

    file: str
    domain: Domain
    n_actions: int
    rows: int
    first: int = 0
    groups: tuple[int, int] | None = None
    episode_column: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    folder: str = field(default_factory=os.getcwd, repr=False)

    def pieces(self) -> Iterator[Piece]:
        """Its steps, checked, one action at a time, with the rows that keep terminal states where they are."""
        for first, steps in self.steps():
            try:
                log = from_episodes(steps, domain=self.domain, n_actions=self.n_actions, **self.settings)
            except ValueError as problem:
                raise ValueError(f"{self.file}, rows from {first:,} on: {problem}") from None
            yield from by_action(log.states, log.actions, log.next_states, CHUNK)

    def steps(self) -> Iterator[tuple[int, Steps]]:
        """The steps that start in its rows, with the number of the first row of each batch."""
        file = Path(self.file) if self.folder == os.getcwd() else Path(self.folder, self.file)
        try:
            for rows, own in self._windows(file, columns_of(file, episode_column=self.episode_column)):
                _check_order(rows)
                _check_actions(rows.part(slice(0, own)), self.settings.get("actions"), self.n_actions or None)
                steps = _split(rows, own)
                if len(steps.actions):
                    yield rows.first, steps
        except ValueError as problem:
            raise ValueError(f"{self.file}: {problem}") from None

    def _windows(self, file: Path, columns: Columns) -> Iterator[tuple[Rows, int]]:
        """Its rows, each batch with the two that follow it and the number of those that are its own."""
        held: list[Rows] = []
        groups = None if self.groups is None else range(*self.groups)
        for batch in row_batches(file, columns, self.rows, groups, self.first):
            joined = join([*held, batch])
            own = max(len(joined) - AHEAD, 0)
            if own:
                yield joined, own
            held = [joined.part(slice(own, None))]
        if held:
            yield join([*held, *self._rows_ahead(file, columns)]), len(held[0])

    def _rows_ahead(self, file: Path, columns: Columns) -> list[Rows]:
        """The first rows after the chunk, at most two."""
        found: list[Rows] = []
        if self.groups is None:
            return found
        counts, missing = row_groups(file), AHEAD
        after, first = range(self.groups[1], len(counts)), sum(counts[: self.groups[1]])
        for batch in row_batches(file, columns, AHEAD, after, first):
            found.append(batch.part(slice(0, missing)))
            missing -= len(found[-1])
            if not missing:
                break
        return found


def episode_chunks(
    paths: Paths,
    *,
    domain: Any,
    n_actions: int | None,
    rows: int,
    episode_column: str | None,
    **settings: Any,
) -> list[EpisodeChunk]:
    """Cut tables of episodes into parts that can be read independently; see `certirl.tables.stream_episodes`."""
    if settings.get("outside") == "drop":
        other = by_door("use read_episodes", "remove those rows before")
        raise ValueError(f"a stream cannot say what it dropped: write {setting('outside', repr('clip'))}, or {other}")
    count = None if n_actions is None else as_n_actions(n_actions)
    if settings.get("actions") is not None:
        count = as_n_actions(len(settings["actions"]))
    parts = []
    for file in find_files(paths):
        try:
            columns = columns_of(file, episode_column=episode_column)
        except ValueError as problem:
            raise ValueError(f"{file}: {problem}") from None
        for first, run in sections(file, columns, rows):
            parts.append(EpisodeChunk(str(file), (), count or 0, rows, first, run, columns.episode, settings))
    if domain is None or count is None:
        if domain is None and settings.get("periodic"):
            raise ValueError(no_circle())
        if settings.get("state") is not None:
            raise ValueError("with state= the domain and n_actions must be given: pass domain=((low, high), …)")
        box, seen = _extent(parts)
        domain, count = box if domain is None else domain, count_actions(seen) if count is None else count
    return [replace(part, domain=as_domain(domain), n_actions=count) for part in parts]


def _extent(parts: list[EpisodeChunk]) -> tuple[Array, NDArray[np.intp]]:
    """The smallest box around all states ``[d, 2]`` and the actions that occur, by reading everything once."""
    low: Any = np.inf
    high: Any = -np.inf
    seen: set[float] = set()
    for _, steps in (found for part in parts for found in part.steps()):
        ends = (steps.states, steps.next_states)
        if np.ndim(low) and len(low) != ends[0].shape[1]:
            raise ValueError("the files differ in the number of coordinates of a state")
        low = np.minimum(low, np.minimum(*(states.min(axis=0) for states in ends)))
        high = np.maximum(high, np.maximum(*(states.max(axis=0) for states in ends)))
        seen |= set(np.unique(steps.actions).tolist())
    if not seen:
        raise ValueError(f"{parts[0].file}{' …' * (len(parts) > 1)}: there are no steps in these episodes")
    if (low >= high).any():
        raise ValueError(no_box())
    return np.stack([low, high], axis=1), np.array(sorted(seen)).astype(np.intp)


def _check_order(rows: Rows) -> None:
    """Refuse episodes that come back, and steps out of order: only all rows together could mend that."""
    assert rows.episodes is not None
    back = rows.episodes[1:] < rows.episodes[:-1]
    if rows.steps is not None:
        back |= (rows.episodes[1:] == rows.episodes[:-1]) & (rows.steps[1:] <= rows.steps[:-1])
    if back.any():
        row = rows.first + int(back.argmax()) + 1
        raise ValueError(
            f"row {row} belongs before the row above it, and a stream takes episodes as they come: sort the table by "
            f"episode and step{by_door(', or load it with certirl.tables.read_episodes', '')}"
        )
