"""Logged data: checked once, read-only ever after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from certirl import tensors
from certirl.domain import Array, Domain, as_domain, as_rows, as_states, bounding_box, describe, freeze
from certirl.domain import as_actions as as_actions  # others look for it here


@dataclass(frozen=True, eq=False)
class Transitions:
    """Observed steps (s, a, s'): from state s, action a led to s'.

    Attributes:
        states: ``[n]`` or ``[n, d]``; kept as ``[n, d]``.
        actions: whole numbers 0, 1, …, ``[n]``.
        next_states: like ``states``.
        domain: the box the states live in; left out, the smallest box that holds the data.
        n_actions: the number of actions; left out, the largest one seen plus one.
        paired: row i of every action has the same state and was drawn with the same random numbers, so that differences
            between actions can be estimated row by row; checked as far as it can be.
        domain_from_data: nobody declared the domain.
        terminal: which next states end an episode ``[n]``; None if nobody knows.
        episodes: the number of the episode each row is from ``[n]``, -1 for rows of none; None if nobody knows.
        notes: what was done to the data before, in sentences.
    """

    states: Array
    actions: NDArray[np.intp]
    next_states: Array
    domain: Domain = None  # type: ignore[assignment]  # always a box once built
    n_actions: int = None  # type: ignore[assignment]
    paired: bool = False
    domain_from_data: bool = field(default=False, init=False)
    terminal: NDArray[np.bool_] | None = field(default=None, kw_only=True)
    episodes: NDArray[np.intp] | None = field(default=None, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        shape = np.shape(self.states)
        dimension = shape[1] if len(shape) == 2 else 1
        states = as_rows(self.states, dimension, name="states")
        next_states = as_rows(self.next_states, dimension, name="next_states")
        actions = as_actions(self.actions, n_actions=None if self.n_actions is None else int(self.n_actions))
        if not len(states) == len(actions) == len(next_states):
            raise ValueError(
                "states, actions and next_states must be equally long, "
                f"got {len(states)}, {len(actions)} and {len(next_states)}"
            )
        if len(states) == 0:
            raise ValueError("there are no transitions: states, actions and next_states are empty")
        domain = bounding_box(states, next_states) if self.domain is None else as_domain(self.domain)
        if len(domain) != dimension:
            raise ValueError(f"states have {dimension} coordinates but the domain {describe(domain)} has {len(domain)}")
        n_actions = int(actions.max()) + 1 if self.n_actions is None else int(self.n_actions)
        self._keep(
            states=as_states(states, domain, name="states"),
            actions=actions,
            next_states=as_states(next_states, domain, name="next_states"),
            domain=domain,
            n_actions=n_actions,
            domain_from_data=self.domain is None,
        )
        for name, kind in (("terminal", np.bool_), ("episodes", np.intp)):
            column = getattr(self, name)
            if column is not None and np.shape(column) != (len(states),):
                raise ValueError(f"{name} must have one entry for each of {len(states)} rows, got {np.shape(column)}")
            self._keep(**{name: None if column is None else np.asarray(column, dtype=kind)})
        if self.paired:
            self._check_pairs()

    def _check_pairs(self) -> None:
        first, _ = self.of_action(0)
        if any(not np.array_equal(first, self.of_action(action)[0]) for action in range(1, self.n_actions)):
            raise ValueError("paired transitions need the same states, in the same order, for every action")

    def _keep(self, **checked: Any) -> None:
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        freeze(self)

    def __len__(self) -> int:
        return len(self.states)

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,}" for count in self.counts)
        line = f"{len(self):,} transitions on {describe(self.domain)}; per action: {counts}"
        return "\n  ".join([line, *self.notes])

    @property
    def counts(self) -> NDArray[np.intp]:
        """How often each action was taken: ``[A]``."""
        return np.bincount(self.actions, minlength=self.n_actions)

    def where(self, chosen: NDArray[np.bool_]) -> Transitions:
        """The transitions for which ``chosen`` is true, on the same domain."""
        rows = np.flatnonzero(chosen)
        if len(chosen) != len(self) or not rows.size:
            raise ValueError(f"chosen must be true for some of the {len(self)} transitions, got {rows.size}")
        part = object.__new__(Transitions)  # what was checked once stays right
        names = ("states", "actions", "next_states", "terminal", "episodes")
        columns = {name: None if getattr(self, name) is None else getattr(self, name)[rows] for name in names}
        kept = {name: getattr(self, name) for name in ("domain", "n_actions", "paired", "domain_from_data", "notes")}
        part._keep(**columns, **kept)
        if part.paired:
            part._check_pairs()
        return part

    def of_action(self, action: int) -> tuple[Array, Array]:
        """The states ``[m, d]`` and next states ``[m, d]`` of one action, in order."""
        chosen = self.actions == action
        return self.states[chosen], self.next_states[chosen]


@dataclass(frozen=True, eq=False)
class TensorTransitions:
    """Observed steps (s, a, s') as torch tensors; they stay on their device, and `measure` brings back only sums.

    Attributes:
        states: ``[n]`` or ``[n, d]``.
        actions: whole numbers 0, 1, …, ``[n]``.
        next_states: like ``states``.
        domain: the box the states live in.
        n_actions: the number of actions.
    """

    states: Any
    actions: Any
    next_states: Any
    domain: Domain
    n_actions: int
    on_device: ClassVar[bool] = True

    def __post_init__(self) -> None:
        domain = as_domain(self.domain)
        states = tensors.as_tensor_states(self.states, domain, name="states")
        next_states = tensors.as_tensor_states(self.next_states, domain, name="next_states")
        if not len(states) == len(self.actions) == len(next_states):
            raise ValueError(
                "states, actions and next_states must be equally long, "
                f"got {len(states)}, {len(self.actions)} and {len(next_states)}"
            )
        if len(states) == 0:
            raise ValueError("there are no transitions: states, actions and next_states are empty")
        low, high = int(self.actions.min()), int(self.actions.max())
        if self.actions.is_floating_point() or low < 0 or high >= self.n_actions:
            raise ValueError(f"actions must be whole numbers 0 … {self.n_actions - 1}, got {low} to {high}")
        for name, value in {"states": states, "next_states": next_states, "domain": domain}.items():
            object.__setattr__(self, name, value)

    def chunks(self) -> list[TensorTransitions]:
        """Itself: a device is kept busy by one."""
        return [self]

    def pieces(self) -> Iterator[Piece]:
        """One for each action."""
        for action in range(self.n_actions):
            chosen = self.actions == action
            yield Piece((action,), self.states[chosen], self.next_states[chosen][None])


def concatenate(parts: Iterable[Transitions]) -> Transitions:
    """Put several records on one domain together, in order."""
    parts = list(parts)
    if not parts:
        raise ValueError("there are no transitions to put together")
    if len({(part.domain, part.n_actions, part.paired) for part in parts}) > 1:
        raise ValueError("transitions can be put together only on the same domain and with the same actions")
    return Transitions(
        np.concatenate([part.states for part in parts]),
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.next_states for part in parts]),
        domain=parts[0].domain,
        n_actions=parts[0].n_actions,
        paired=parts[0].paired,
        terminal=_joined([part.terminal for part in parts]),
        # The same number in two records is not the same episode.
        episodes=parts[0].episodes if len(parts) == 1 else None,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _joined(columns: list[Any]) -> Any:
    return None if any(column is None for column in columns) else np.concatenate(columns)


class Piece(NamedTuple):
    """A stretch of data: the same states under one action, or under several with common random numbers.

    Attributes:
        actions: which actions, m of them.
        states: ``[n, d]``.
        next_states: ``[m, n, d]``.
    """

    actions: tuple[int, ...]
    states: Array
    next_states: Array

    @property
    def size(self) -> int:
        """How many transitions it holds."""
        return len(self.actions) * len(self.states)

    def view(self, coordinates: Sequence[int]) -> Piece:
        """The same with some coordinates of the states only."""
        chosen = list(coordinates)
        return Piece(self.actions, self.states[:, chosen], self.next_states[:, :, chosen])


class Chunk(Protocol):
    """A part of the data that can be walked through by itself; small when it is sent to another machine."""

    def pieces(self) -> Iterator[Piece]:
        """Its pieces, in order; the same every time."""
        ...


class Stream(Protocol):
    """Data to be walked through: piece by piece, or chunk by chunk by several workers."""

    def __iter__(self) -> Iterator[Piece]: ...

    def chunks(self) -> Sequence[Chunk]:
        """Parts that together are the whole, in order; how they are cut depends on the data alone."""
        ...


def chunks_of(stream: Iterable[Piece]) -> Sequence[Chunk]:
    """The chunks of a stream; a plain iterable of pieces is one, to be walked through once."""
    return stream.chunks() if hasattr(stream, "chunks") else [_Plain(stream)]


@dataclass(frozen=True, eq=False)
class _Plain:
    stream: Iterable[Piece]

    def pieces(self) -> Iterator[Piece]:
        return iter(self.stream)


def pieces_per_chunk(pieces: int) -> int:
    """How many pieces make a chunk: enough chunks for every core, and enough in each to be worth sending."""
    return min(max(-(-pieces // 8), 1), 64)


@dataclass(frozen=True, eq=False)
class Stretch:
    """Consecutive rows of a record, as a chunk: all actions share the states ``[n, d]``, next states ``[m, n, d]``."""

    actions: tuple[int, ...]
    states: Array
    next_states: Array
    size: int

    @property
    def n(self) -> int:
        """How many states."""
        return len(self.states)

    def pieces(self) -> Iterator[Piece]:
        """Pieces of at most ``size`` states."""
        for start in range(0, len(self.states), self.size):
            part = slice(start, start + self.size)
            yield Piece(self.actions, self.states[part], self.next_states[:, part])


@dataclass(frozen=True, eq=False)
class Rows:
    """Consecutive rows of a log as they come, as a chunk: whoever works on it sorts them by action.

    Attributes:
        states: ``[n, d]``.
        actions: ``[n]``.
        next_states: ``[n, d]``.
        size: states in a piece, at most.
    """

    states: Array
    actions: NDArray[np.intp]
    next_states: Array
    size: int

    @property
    def n(self) -> int:
        """How many transitions."""
        return len(self.actions)

    def pieces(self) -> Iterator[Piece]:
        """One action after the other."""
        return by_action(self.states, self.actions, self.next_states, self.size)


def by_action(states: Array, actions: NDArray[np.intp], next_states: Array, size: int) -> Iterator[Piece]:
    """Sort rows by action, otherwise in their order, and cut them into pieces of at most ``size`` states."""
    if (actions == actions[0]).all():  # a log that is sorted already needs no copies
        order, counts = None, {int(actions[0]): len(actions)}
    else:
        # Sixteen bits are sorted digit by digit, many times as fast as by comparison.
        keys = actions.astype(np.uint16) if actions.max() < 2**16 else actions
        order = np.argsort(keys, kind="stable")
        counts = {action: int(count) for action, count in enumerate(np.bincount(actions)) if count}
    start = 0
    for action, count in counts.items():
        end = start + count
        for place in range(start, end, size):
            part = slice(place, min(place + size, end))
            rows = part if order is None else order[part]
            yield Piece((action,), states[rows], next_states[rows][None])
        start = end


@dataclass(frozen=True, eq=False)
class Paired:
    """Some rows of a paired log, as a chunk: they are looked up by whoever works on it, and only then copied.

    Attributes:
        transitions: the record.
        rows: where the rows of each action are: ``[A, n]``.
        size: states in a piece, at most.
    """

    transitions: Transitions
    rows: NDArray[np.intp]
    size: int

    @property
    def n(self) -> int:
        """How many states."""
        return self.rows.shape[1]

    def pieces(self) -> Iterator[Piece]:
        """Pieces of at most ``size`` states."""
        for start in range(0, self.n, self.size):
            yield Piece(self._actions, *self._looked_up(slice(start, start + self.size)))

    @property
    def _actions(self) -> tuple[int, ...]:
        return tuple(range(len(self.rows)))

    def _looked_up(self, part: slice) -> tuple[Array, Array]:
        log, rows = self.transitions, self.rows[:, part]
        return log.states[rows[0]], log.next_states[rows]

    def __reduce__(self) -> Any:  # only these rows travel, not the record
        return Stretch, (self._actions, *self._looked_up(slice(None)), self.size)


@dataclass(frozen=True, eq=False)
class Record:
    """A record as a stream: all actions together if paired, else rows in their order.

    Attributes:
        transitions: the record.
        size: states in a piece, at most.
    """

    transitions: Transitions
    size: int

    def __iter__(self) -> Iterator[Piece]:
        for chunk in self.chunks():
            yield from chunk.pieces()

    def chunks(self) -> Sequence[Rows | Paired]:
        """Rows that follow each other."""
        log = self.transitions
        states = int(log.counts[0]) if log.paired else len(log)
        step = self.size * pieces_per_chunk(states // self.size)
        parts = [slice(start, start + step) for start in range(0, states, step)]
        if not log.paired:
            return [Rows(log.states[part], log.actions[part], log.next_states[part], self.size) for part in parts]
        rows = np.stack([np.flatnonzero(log.actions == action) for action in range(log.n_actions)])
        return [Paired(log, rows[:, part], self.size) for part in parts]


def pieces(transitions: Transitions, size: int) -> Record:
    """Walk a record in pieces of at most ``size`` states."""
    return Record(transitions, size)
