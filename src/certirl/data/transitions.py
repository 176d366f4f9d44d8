"""Logged transitions, checked once and read-only, and streams of transitions in pieces."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import (
    WIDEN_OR_REMOVE,
    Array,
    Box,
    as_actions,
    as_axes,
    as_domain,
    as_exogenous,
    as_n_actions,
    as_rows,
    as_states,
    bounding_box,
    check_coordinates,
    count_actions,
    number_of,
)
from certirl.ground.doors import as_array, as_flag, as_flags, as_listed, as_text, printable, shown
from certirl.ground.records import Record, freeze, internal
from certirl.kernels import tensors

# States in a piece: kernels cut it into blocks that stay in cache; between two of their calls a thread waits for its
# turn in the interpreter, so that shorter pieces would keep several threads from working at the same time.
CHUNK = 1 << 16


@internal
class Bias(str):
    """A note on rows that are missing, or were changed, because of where they lead: no proof can rest on the others."""

    cure: str  # what to do instead, in words

    def __new__(cls, text: str, cure: str = "") -> Bias:
        """The note."""
        note = super().__new__(cls, text)
        note.cure = cure
        return note


@internal
class Piece(NamedTuple):
    """Transitions from some states, under one action or under several with common noise."""

    actions: tuple[int, ...]  # which actions, m of them
    states: Array  # ``[n, d]``
    next_states: Array  # ``[m, n, d]``

    @property
    def size(self) -> int:
        """The number of transitions."""
        return len(self.actions) * len(self.states)

    def view(self, coordinates: Sequence[int]) -> Piece:
        """The same with some coordinates of the states only."""
        chosen = list(coordinates)
        return Piece(self.actions, self.states[:, chosen], self.next_states[:, :, chosen])


@internal
class Chunk(Protocol):
    """A part of the data that can be read by itself; small when it is sent to another machine."""

    def pieces(self) -> Iterator[Piece]:
        """Its pieces, in order; the same every time."""
        ...


@internal
class Stream(Record, ABC):
    """Data in pieces, to be read in order, or chunk by chunk by several workers."""

    @abstractmethod
    def chunks(self) -> Sequence[Chunk]:
        """Parts that together are the whole, in order; how they are cut depends on the data alone."""

    def __iter__(self) -> Iterator[Piece]:
        return (piece for chunk in self.chunks() for piece in chunk.pieces())


def chunks_of(stream: Iterable[Piece]) -> Sequence[Chunk]:
    """The chunks of a stream; a plain iterable of pieces is one chunk, to be read once."""
    return stream.chunks() if hasattr(stream, "chunks") else [_Plain(stream)]


class _Plain(NamedTuple):
    stream: Iterable[Piece]

    def pieces(self) -> Iterator[Piece]:
        return iter(self.stream)


def pieces_per_chunk(pieces: int) -> int:
    """How many pieces make a chunk: few enough for all cores, enough to be worth sending."""
    return min(max(-(-pieces // 8), 1), 64)


@dataclass(frozen=True, eq=False)
class Transitions(Stream):
    """Observed steps (s, a, s'): in state s, action a led to the next state s'.

    Attributes:
        states: ``[n]`` or ``[n, d]``; kept as ``[n, d]``.
        actions: whole numbers 0, 1, …, ``[n]``.
        next_states: like ``states``.
        domain: the box of states; left out, the smallest box around the data.
        n_actions: the number of actions; left out, the largest in the data plus one.
        paired: row i of every action has the same state and was drawn with the same random numbers, so that differences
            between actions can be estimated row by row; checked as far as it can be.
        domain_from_data: the domain was not declared.
        terminal: which next states are terminal ``[n]``; None if unknown.
        episodes: the number of the episode each row is from ``[n]``, -1 for rows of none; None if unknown. The rows of
            an episode are in their order.
        independent: whether the rows, or the episodes, are independent of each other. None, the default: a proof looks
            for rows that are copies of others, which it refuses, and for rows that continue others, which it takes in
            the order of time. True: they are, whatever the rows look like. False: they depend on each other and are in
            the order of time; a certificate can rest on them, a refutation cannot.
        periodic: the periodic coordinates, whose period is the width of the domain; their values are mapped into it.
        exogenous: the coordinates that no action moves, such as weather or the hour, by number or by name.
        action_names: the name of each action, for prints and pictures; empty if they have none.
        coordinate_names: the name of each coordinate of the state, for pictures; those of the columns if ``states`` is
            a data frame, else empty if left out. ``periodic`` may use them, too.
        notes: what was done to the data before, sentences or one text; they are printed with every proof from them.

    Example:
        >>> log = certirl.Transitions([0.0, 0.5, 1.0, 0.2], [0, 1, 0, 1], [0.5, 1.0, 0.0, 0.1])
        >>> print(log)
        4 transitions on [0, 1]; per action: 2, 2
        >>> log.states.shape, log.counts.tolist(), log.domain
        ((4, 1), [2, 2], ((0.0, 1.0),))
    """

    states: Array
    actions: NDArray[np.intp]
    next_states: Array
    domain: Box = None  # type: ignore[assignment]  # always a box once built
    n_actions: int = None  # type: ignore[assignment]
    paired: bool = False
    domain_from_data: bool = field(default=False, init=False)
    terminal: NDArray[np.bool_] | None = field(default=None, kw_only=True)
    episodes: NDArray[np.intp] | None = field(default=None, kw_only=True)
    independent: bool | None = field(default=None, kw_only=True)
    periodic: tuple[int, ...] = field(default=(), kw_only=True)
    exogenous: tuple[int, ...] = field(default=(), kw_only=True)
    action_names: tuple[str, ...] = field(default=(), kw_only=True)
    coordinate_names: tuple[str, ...] = field(default=(), kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    _derived: ClassVar[tuple[str, ...]] = ("counts",)
    # Actions whose rows were made from what is declared of them, so that nothing about their noise can be tested.
    made: tuple[int, ...] = field(default=(), init=False, repr=False)
    # What other columns of its table say of each row, by name ``[n, m]``, read when it is asked for; None for others.
    further: Callable[[], dict[str, Array]] | None = field(default=None, init=False, repr=False)
    # The same in all parts of a log: only there the same number is the same episode.
    _origin: str = field(default_factory=lambda: uuid4().hex, init=False, repr=False)

    def __post_init__(self) -> None:
        declared = None if self.n_actions is None else as_n_actions(self.n_actions)
        states = as_array(self.states, "states")
        dimension = states.shape[1] if states.ndim == 2 else 1
        states = as_rows(states, dimension, name="states")
        next_states = as_rows(self.next_states, dimension, name="next_states")
        actions = as_actions(self.actions, n_actions=declared)
        _check_lengths(states, actions, next_states)
        if dimension == 0:
            raise ValueError(f"states need at least one coordinate, got shape {list(states.shape)}")
        names = as_names(self.coordinate_names or _columns_of(self.states), dimension, "coordinates")
        periodic = as_axes(self.periodic, dimension, names=names)
        if periodic and self.domain is None:
            raise ValueError("a periodic coordinate needs a domain, whose width is its period: write domain=…")
        domain = bounding_box(states, next_states) if self.domain is None else as_domain(self.domain)
        check_coordinates(dimension, domain)
        states, next_states = (domain.wrapped(rows, periodic) for rows in (states, next_states))
        terminal = None if self.terminal is None else as_flags(self.terminal, len(states), "terminal")
        episodes = None if self.episodes is None else _as_episode_numbers(self.episodes, len(states))
        n_actions = count_actions(actions) if declared is None else declared
        freeze(  # copies, like all arrays of the record
            self,
            states=as_states(states, domain, name="states", instead=WIDEN_OR_REMOVE),
            actions=actions,
            next_states=as_states(next_states, domain, name="next_states", instead=WIDEN_OR_REMOVE),
            domain=domain,
            n_actions=n_actions,
            domain_from_data=self.domain is None,
            paired=as_flag(self.paired, "paired"),
            terminal=terminal,
            episodes=episodes,
            independent=None if self.independent is None else as_flag(self.independent, "independent"),
            periodic=periodic,
            exogenous=as_exogenous(self.exogenous, dimension, names=names),
            action_names=as_names(self.action_names, n_actions, "actions"),
            coordinate_names=names,
            notes=_as_notes(self.notes),
        )
        if self.paired:
            self._check_pairs()

    def _check_pairs(self) -> None:
        first, _ = self.of_action(0)
        if any(not np.array_equal(first, self.of_action(action)[0]) for action in range(1, self.n_actions)):
            raise ValueError("paired transitions need the same states, in the same order, for every action")

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        return f"<Transitions: {len(self):,} of {self.n_actions} actions on {self.domain.words}>"

    def __str__(self) -> str:
        names = [f"{name} " for name in self.action_names] or [""] * self.n_actions
        counts = ", ".join(f"{name}{count:,}" for name, count in zip(names, self.counts, strict=True))
        line = f"{number_of(len(self), 'transition')} on {self.domain.words}"
        for word in ("periodic", "exogenous"):
            axes = getattr(self, word)
            line += f", {word} in coordinate {coordinates_in_words(axes, self.coordinate_names)}" if axes else ""
        line += f"; per action: {counts}"
        return "\n  ".join([line, *self.notes])

    @property
    def counts(self) -> NDArray[np.intp]:
        """How often each action was taken: ``[A]``."""
        return np.bincount(self.actions, minlength=self.n_actions)

    @property
    @internal
    def digest(self) -> str:
        """The SHA-256 of states, actions and next states, one array after the other, as 8-byte numbers."""
        rows = sha256(np.ascontiguousarray(self.states, dtype="<f8"))
        rows.update(np.ascontiguousarray(self.actions, dtype="<i8"))
        rows.update(np.ascontiguousarray(self.next_states, dtype="<f8"))
        return rows.hexdigest()

    @property
    @internal
    def in_episodes(self) -> NDArray[np.bool_]:
        """Which rows belong to an episode; those that keep terminal states where they are do not ``[n]``."""
        return np.ones(len(self), dtype=bool) if self.episodes is None else self.episodes >= 0

    def where(self, chosen: NDArray[np.bool_]) -> Transitions:
        """The transitions for which ``chosen`` is true, on the same domain.

        Example:
            >>> len(log.where(log.actions == 0).states)
            2
        """
        flags = np.asarray(chosen)
        if flags.dtype != np.bool_ or flags.shape != (len(self),) or not flags.any():
            raise ValueError(
                f"chosen must be {len(self)} booleans, one for each transition and true for some, got {shown(chosen)}"
            )
        rows = np.flatnonzero(flags)
        chosen_rows = copy.copy(self)  # the checks of the log hold for its rows
        names = ("states", "actions", "next_states", "terminal", "episodes")
        freeze(chosen_rows, **{name: getattr(self, name)[rows] for name in names if getattr(self, name) is not None})
        freeze(chosen_rows, further=None)
        if chosen_rows.paired:
            chosen_rows._check_pairs()
        return chosen_rows

    def of_action(self, action: int) -> tuple[Array, Array]:
        """The states ``[m, d]`` and next states ``[m, d]`` of one action, in order.

        Example:
            >>> states, next_states = log.of_action(1)
            >>> states[:, 0], next_states[:, 0]
            (array([0.5, 0.2]), array([1. , 0.1]))
        """
        chosen = self.actions == action
        return self.states[chosen], self.next_states[chosen]

    @property
    def total(self) -> int:
        """The number of transitions."""
        return len(self)

    @property
    def per_action(self) -> int:
        """Transitions of the action with fewest."""
        return int(self.counts.min())

    @internal
    def leading(self, size: int) -> Transitions:
        """All of it: a log is used as it is."""
        return self

    @internal
    def record(self) -> Transitions:
        """The log itself."""
        return self

    @internal
    def chunks(self) -> list[Rows]:
        """Consecutive rows: all actions together if they are paired."""
        states = int(self.counts[0]) if self.paired else len(self)
        step = CHUNK * pieces_per_chunk(states // CHUNK)
        parts = [slice(start, start + step) for start in range(0, states, step)]
        if not self.paired:
            return [Rows(self.states[part], self.actions[part], self.next_states[part]) for part in parts]
        pairs = np.stack([np.flatnonzero(self.actions == action) for action in range(self.n_actions)])
        return [Rows(self.states, self.actions, self.next_states, pairs[:, part]) for part in parts]

    @internal
    def groups(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Numbers of the pair or episode of each row ``[n]``, and of the row in it ``[n]``; other rows are single."""
        if self.paired:
            groups = np.empty(len(self), dtype=np.intp)
            for action in range(self.n_actions):
                groups[self.actions == action] = np.arange(self.counts[action])
        elif self.episodes is None:
            return np.arange(len(self)), np.zeros(len(self), dtype=np.intp)
        else:
            single = ~self.in_episodes
            labels = np.where(single, self.episodes.max() + 1 + np.cumsum(single), self.episodes)
            groups = np.unique(labels, return_inverse=True)[1].reshape(-1)
        return groups, steps_within(groups)

    def divided(self, share: float, rng: np.random.Generator) -> tuple[Transitions, Transitions]:
        """Two disjoint random parts, the first with this share of the rows; pairs and episodes are kept together.

        Example:
            >>> first, second = log.divided(0.5, np.random.default_rng(0))
            >>> first.total, second.total
            (2, 2)
        """
        groups, _ = self.groups()
        n = int(groups.max()) + 1
        together = np.zeros(n, dtype=bool)
        together[rng.choice(n, max(int(share * n), 1), replace=False, shuffle=False)] = True
        chosen = together[groups]
        if chosen.all() or not chosen.any():
            of = "" if n == len(self) or self.paired else f" of {n} episode{'s' * (n != 1)}"
            raise ValueError(f"{len(self)} transitions{of} are too few to set some aside for a certificate")
        return self.where(chosen), self.where(~chosen)


def steps_within(groups: NDArray[np.intp]) -> NDArray[np.intp]:
    """The number of each row among those of its group, 0, 1, … ``[n]``."""
    order, sizes = np.argsort(groups, kind="stable"), np.bincount(groups)
    steps = np.empty(len(groups), dtype=np.intp)
    steps[order] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return steps


def _check_lengths(states: Any, actions: Any, next_states: Any) -> None:
    first, *others = len(states), len(actions), len(next_states)
    if {first, *others} != {first}:
        listed = f"{first}, {others[0]} and {others[1]}"
        raise ValueError(f"states, actions and next_states must be equally long, got {listed}")
    if not first:
        raise ValueError("there are no transitions: states, actions and next_states are empty")


def concatenate(logs: Iterable[Transitions]) -> Transitions:
    """Join several records on one domain, in order; episodes of different logs stay different."""
    logs = list(logs)
    if not logs:
        raise ValueError("there are no transitions to join")
    if len(logs) == 1:
        return logs[0]
    if (
        len({(log.domain, log.periodic, log.exogenous, log.n_actions, log.paired, log.action_names) for log in logs})
        > 1
    ):
        raise ValueError("transitions can be joined only on the same domain and with the same actions")
    declared = {log.independent for log in logs}
    rows: dict[str, Any] = {
        name: np.concatenate([getattr(log, name) for log in logs]) for name in ("states", "actions", "next_states")
    }
    joined = replace(
        logs[0],
        **rows,
        terminal=join_terminal([log.terminal for log in logs]),
        episodes=join_episodes([log.episodes for log in logs], list(map(len, logs)), [log._origin for log in logs]),
        independent=False if False in declared else None if None in declared else True,
        notes=tuple(dict.fromkeys(note for log in logs for note in log.notes)),
    )
    freeze(joined, domain_from_data=any(log.domain_from_data for log in logs))
    return joined


def join_terminal(columns: Sequence[NDArray[np.bool_] | None]) -> NDArray[np.bool_] | None:
    """Which next states are terminal, of several logs one after the other; None if unknown."""
    marked = [column for column in columns if column is not None]
    if len(marked) == len(columns):
        return np.concatenate(marked)
    if any(column.any() for column in marked):
        raise ValueError(
            "some of these transitions say which next states are terminal and others do not: mark them in all, "
            "with False where an episode continues"
        )
    return None


def join_episodes(
    columns: Sequence[NDArray[np.intp] | None], lengths: Sequence[int], origins: Sequence[str] | None = None
) -> NDArray[np.intp] | None:
    """Numbers 0, 1, … of the episodes of several joined logs of these lengths; None if all are unknown.

    A row without number is one by itself. The same number in two logs of the same origin is the same episode.
    """
    if all(column is None for column in columns):
        return None
    names = [index if origins is None or column is None else origins[index] for index, column in enumerate(columns)]
    log = np.repeat([names.index(name) for name in names], lengths)
    of_logs = zip(columns, lengths, strict=True)
    numbers = np.concatenate([np.arange(n) if column is None else column for column, n in of_logs])
    in_episode, joined = numbers >= 0, np.full(len(numbers), -1)
    labels, which = np.unique(numbers[in_episode], return_inverse=True)
    keys = log[in_episode] * len(labels) + which.reshape(-1)
    joined[in_episode] = np.unique(keys, return_inverse=True)[1].reshape(-1)
    return joined


def _as_episode_numbers(episodes: Any, count: int) -> NDArray[np.intp]:
    """Whole numbers ``[count]``, -1 for rows of no episode."""
    raw = as_array(episodes, "episodes", instead="number names with np.unique(names, return_inverse=True)[1]")
    if raw.shape != (count,):
        raise ValueError(f"episodes must be {count} numbers, one for each row, got shape {list(raw.shape)}")
    valid = np.isfinite(raw) & (raw == np.round(raw)) & (raw >= -1) & (raw < 2**62)
    if not valid.all():
        row = int(valid.argmin())
        raise ValueError(
            f"episodes must be whole numbers, -1 for rows of no episode, got {float(raw[row]):.12g} in row {row}"
        )
    return raw.astype(np.intp)


def as_names(names: Any, count: int, what: str) -> tuple[str, ...]:
    """The names of ``count`` actions or coordinates, all different; none if there are none."""
    given = (names,) if isinstance(names, str) else as_listed(names, f"the names of {what}")
    texts = tuple(as_text(name, f"the name of one of the {what}") for name in given)
    if texts and not len({*texts}) == len(texts) == count:
        raise ValueError(f"{what} must have {count} different names, one for each, got {shown(names)}")
    return texts


def _as_notes(notes: Any) -> tuple[str, ...]:
    """Sentences on the data; one alone is a sentence, too."""
    listed = [notes] if isinstance(notes, str) else as_listed(notes, "notes")
    lines = [printable(note) if isinstance(note, str) and not isinstance(note, Bias) else note for note in listed]
    return tuple(line if isinstance(line, Bias) else as_text(line, "a note", most=2000) for line in lines)


def action_in_words(action: int, names: Sequence[str] = ()) -> str:
    """The name of an action, or "action" and its number if actions have no names."""
    return names[action] if names else f"action {action}"


def coordinates_in_words(axes: Iterable[int], names: Sequence[str] = ()) -> str:
    """The names of some coordinates, or their numbers if coordinates have no names."""
    return " and ".join(names[axis] if names else str(axis) for axis in axes)


def _columns_of(states: Any) -> tuple[str, ...]:
    """The columns of a data frame, if all of them have different names; none for arrays."""
    columns = tuple(getattr(states, "columns", ()))
    is_named = all(isinstance(name, str) and name.strip() for name in columns) and len({*columns}) == len(columns)
    return columns if is_named else ()


def counted(counts: Iterable[int]) -> str:
    """Transitions per action in words: one number, or the least and the largest."""
    numbers = [int(count) for count in counts]
    return f"{min(numbers):,}" + (f" to {max(numbers):,}" if max(numbers) > min(numbers) else "")


@dataclass(frozen=True, eq=False)
@internal
class Rows(Record):
    """Rows of a log as a chunk, copied and sorted by action only when it is read or sent."""

    states: Array  # ``[n, d]``
    actions: NDArray[np.intp]  # ``[n]``
    next_states: Array  # ``[n, d]``
    # the rows of each action in a paired log, which are the chunk ``[A, m]``; None for all rows, one by one
    pairs: NDArray[np.intp] | None = None

    @property
    def n(self) -> int:
        """The number of states."""
        return len(self.actions) if self.pairs is None else self.pairs.shape[1]

    def pieces(self) -> Iterator[Piece]:
        """Pieces of all actions if they are paired, else of one action after the other."""
        for actions, rows in self._groups():
            for start in range(0, rows.shape[1], CHUNK):
                part = rows[:, start : start + CHUNK]
                yield Piece(actions, self.states.take(part[0], axis=0), self.next_states.take(part, axis=0))

    def _groups(self) -> Iterator[tuple[tuple[int, ...], NDArray[np.intp]]]:
        """Actions, and the rows of each ``[m, n]``."""
        if self.pairs is not None:
            yield tuple(range(len(self.pairs))), self.pairs
            return
        codes = self.actions.astype(np.uint16)  # a quarter of the memory is read for every action
        for action in np.flatnonzero(np.bincount(codes)).tolist():
            yield (action,), np.flatnonzero(codes == action)[None]

    def __reduce__(self) -> Any:  # of a paired log only these rows are sent
        if self.pairs is None:
            return Rows, (self.states, self.actions, self.next_states)
        rows = self.pairs.ravel()
        places = np.arange(len(rows)).reshape(self.pairs.shape)
        return Rows, (self.states[rows], self.actions[rows], self.next_states[rows], places)


@dataclass(frozen=True, eq=False)
class TensorTransitions(Stream):
    """Observed steps (s, a, s') as torch tensors, which stay on their device: a stream of one chunk."""

    states: Any  # ``[n]`` or ``[n, d]``
    actions: Any  # whole numbers 0, 1, …, ``[n]``
    next_states: Any  # like ``states``
    domain: Box  # the box of states
    n_actions: int  # the number of actions
    on_device: ClassVar[bool] = True

    def __post_init__(self) -> None:
        domain = as_domain(self.domain)
        for name in ("states", "actions", "next_states"):
            if not tensors.is_tensor(getattr(self, name)):
                kind = type(getattr(self, name)).__name__
                raise TypeError(
                    f"{name} must be a torch tensor, got {kind}; certirl.Transitions takes arrays and lists"
                )
        states = tensors.as_tensor_states(self.states, domain, name="states")
        next_states = tensors.as_tensor_states(self.next_states, domain, name="next_states")
        _check_lengths(states, self.actions, next_states)
        count = as_n_actions(self.n_actions)
        low, high = int(self.actions.min()), int(self.actions.max())
        if self.actions.is_floating_point() or low < 0 or high >= self.n_actions:
            raise ValueError(f"actions must be whole numbers 0 … {self.n_actions - 1}, got {low} to {high}")
        actions = self.actions.clone()  # a copy, like the states
        freeze(self, states=states, actions=actions, next_states=next_states, domain=domain, n_actions=count)

    @property
    def total(self) -> int:
        """The number of transitions."""
        return len(self.states)

    def chunks(self) -> list[TensorTransitions]:
        """The record itself."""
        return [self]

    def pieces(self) -> Iterator[Piece]:
        """One for each action."""
        for action in range(self.n_actions):
            chosen = self.actions == action
            yield Piece((action,), self.states[chosen], self.next_states[chosen][None])
