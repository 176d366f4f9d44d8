"""Logged data: checked once, read-only ever after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import (
    Array,
    Domain,
    as_actions,
    as_domain,
    as_n_actions,
    as_rows,
    as_states,
    bounding_box,
    count_actions,
    describe,
    freeze,
)
from certirl.ground.doors import as_array, as_flag, as_flags, shown
from certirl.kernels import tensors


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
        domain_from_data: the domain was not declared.
        terminal: which next states end an episode ``[n]``; None if unknown.
        episodes: the number of the episode each row is from ``[n]``, -1 for rows of none; None if unknown.
        independent: whether the rows are draws independent of each other. None, the default: a proof looks for rows
            that are copies of others and for rows that continue others, and refuses them. True: they are, whatever the
            rows look like. False: they are not, and no proof rests on them.
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
    independent: bool | None = field(default=None, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    # The same in all parts of a log: there, and only there, the same number is the same episode.
    _origin: str = field(default_factory=lambda: uuid4().hex, init=False, repr=False)

    def __post_init__(self) -> None:
        declared = None if self.n_actions is None else as_n_actions(self.n_actions)
        states = as_array(self.states, "states")
        dimension = states.shape[1] if states.ndim == 2 else 1
        states = as_rows(states, dimension, name="states")
        next_states = as_rows(self.next_states, dimension, name="next_states")
        actions = as_actions(self.actions, n_actions=declared)
        if not len(states) == len(actions) == len(next_states):
            raise ValueError(
                "states, actions and next_states must be equally long, "
                f"got {len(states)}, {len(actions)} and {len(next_states)}"
            )
        if len(states) == 0:
            raise ValueError("there are no transitions: states, actions and next_states are empty")
        if dimension == 0:
            raise ValueError(f"states need at least one coordinate, got shape {list(states.shape)}")
        domain = bounding_box(states, next_states) if self.domain is None else as_domain(self.domain)
        if len(domain) != dimension:
            raise ValueError(f"states have {dimension} coordinates but the domain {describe(domain)} has {len(domain)}")
        terminal = None if self.terminal is None else as_flags(self.terminal, len(states), "terminal")
        episodes = None if self.episodes is None else as_episode_numbers(self.episodes)
        if episodes is not None and episodes.shape != (len(states),):
            raise ValueError(
                f"episodes must be {len(states)} numbers, one for each row, got shape {list(episodes.shape)}"
            )
        self._keep(
            states=as_states(states, domain, name="states"),  # an own array, like every other
            actions=actions,
            next_states=as_states(next_states, domain, name="next_states"),
            domain=domain,
            n_actions=count_actions(actions) if declared is None else declared,
            domain_from_data=self.domain is None,
            paired=as_flag(self.paired, "paired"),
            terminal=terminal,
            episodes=episodes,
            independent=None if self.independent is None else as_flag(self.independent, "independent"),
            notes=(self.notes,) if isinstance(self.notes, str) else tuple(map(str, self.notes)),
        )
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
        flags = np.asarray(chosen)
        if flags.dtype != np.bool_ or flags.shape != (len(self),) or not flags.any():
            raise ValueError(
                f"chosen must be {len(self)} booleans, one for each transition and true for some, got {shown(chosen)}"
            )
        rows = np.flatnonzero(flags)
        part = object.__new__(Transitions)  # what was checked once stays right
        names = ("states", "actions", "next_states", "terminal", "episodes")
        columns = {name: None if getattr(self, name) is None else getattr(self, name)[rows] for name in names}
        same = ("domain", "n_actions", "paired", "domain_from_data", "independent", "notes", "_origin")
        part._keep(**columns, **{name: getattr(self, name) for name in same})
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
        for name in ("states", "actions", "next_states"):
            if not tensors.is_tensor(getattr(self, name)):
                given = type(getattr(self, name)).__name__
                raise TypeError(
                    f"{name} must be a torch tensor, got {given}; certirl.Transitions takes arrays and lists"
                )
        states = tensors.as_tensor_states(self.states, domain, name="states")
        next_states = tensors.as_tensor_states(self.next_states, domain, name="next_states")
        if not len(states) == len(self.actions) == len(next_states):
            raise ValueError(
                "states, actions and next_states must be equally long, "
                f"got {len(states)}, {len(self.actions)} and {len(next_states)}"
            )
        if len(states) == 0:
            raise ValueError("there are no transitions: states, actions and next_states are empty")
        count = as_n_actions(self.n_actions)
        low, high = int(self.actions.min()), int(self.actions.max())
        if self.actions.is_floating_point() or low < 0 or high >= self.n_actions:
            raise ValueError(f"actions must be whole numbers 0 … {self.n_actions - 1}, got {low} to {high}")
        kept = {"states": states, "next_states": next_states, "domain": domain, "n_actions": count}
        kept["actions"] = self.actions.clone()  # like the states an own tensor
        for name, value in kept.items():
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
    """Put several records on one domain together, in order; episodes of different logs stay different."""
    parts = list(parts)
    if not parts:
        raise ValueError("there are no transitions to put together")
    if len({(part.domain, part.n_actions, part.paired) for part in parts}) > 1:
        raise ValueError("transitions can be put together only on the same domain and with the same actions")
    declared = {part.independent for part in parts}
    whole = Transitions(
        np.concatenate([part.states for part in parts]),
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.next_states for part in parts]),
        domain=parts[0].domain,
        n_actions=parts[0].n_actions,
        paired=parts[0].paired,
        terminal=join_terminal([part.terminal for part in parts]),
        episodes=join_episodes(
            [part.episodes for part in parts], [len(part) for part in parts], [part._origin for part in parts]
        ),
        independent=False if False in declared else None if None in declared else True,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )
    whole._keep(domain_from_data=any(part.domain_from_data for part in parts))
    return whole


def join_terminal(columns: Sequence[NDArray[np.bool_] | None]) -> NDArray[np.bool_] | None:
    """Which next states are terminal, of several logs one after the other; None if unknown."""
    known = [column for column in columns if column is not None]
    if len(known) == len(columns):
        return np.concatenate(known)
    if any(column.any() for column in known):
        raise ValueError(
            "some of these transitions say which next states are terminal and others do not: let all say it, False "
            "where an episode goes on"
        )
    return None


def join_episodes(
    columns: Sequence[NDArray[np.intp] | None], lengths: Sequence[int], origins: Sequence[str] | None = None
) -> NDArray[np.intp] | None:
    """Numbers 0, 1, … of the episodes of several logs one after the other; None if all are unknown.

    Args:
        columns: the numbers of each, or None; a row without number is one by itself.
        lengths: how many rows each has.
        origins: where two are the same, the same number is the same episode; all different if left out.
    """
    if all(column is None for column in columns):
        return None
    logs: dict[Any, list[int]] = {}
    for part, column in enumerate(columns):
        log = part if origins is None or column is None else origins[part]
        logs.setdefault(log, []).append(part)
    joined = [np.arange(n) if column is None else column for column, n in zip(columns, lengths, strict=True)]
    start = 0
    for parts in logs.values():
        numbers = np.concatenate([joined[part] for part in parts])
        in_episode = numbers >= 0
        names, which = np.unique(numbers[in_episode], return_inverse=True)
        numbers[in_episode] = start + which.reshape(-1)
        start += len(names)
        ends = np.cumsum([lengths[part] for part in parts])[:-1]
        for part, renumbered in zip(parts, np.split(numbers, ends), strict=True):
            joined[part] = renumbered
    return np.concatenate(joined)


def as_episode_numbers(episodes: Any, *, first: int = 0) -> NDArray[np.intp]:
    """Whole numbers, -1 for rows of no episode; rows are counted from ``first``."""
    number = "number names with np.unique(names, return_inverse=True)[1]"
    raw = as_array(episodes, "episodes", first=first, instead=number)
    whole = np.isfinite(raw) & (raw == np.round(raw)) & (raw >= -1) & (raw < 2**62)
    if not whole.all():
        place = tuple(np.argwhere(~whole)[0])
        raise ValueError(
            f"episodes must be whole numbers, -1 for rows of no episode, got {float(raw[place]):.12g} in row "
            f"{first + int(place[0]) if place else first}"
        )
    return raw.astype(np.intp)


_COINCIDENCE = 1e-6  # a chance below which something is not taken for one
_FEWEST = 20  # different rows that must be repeated alike to show copies
_NEARER = 30  # neighbouring states share a next state at most so many times as often as any two states


def repeated_rows(log: Transitions) -> int:
    """How many rows have the state, action and next state of an earlier row, if they look like copies; else 0.

    Independent draws repeat a row only where states repeat (a grid) and next states do (points of positive probability,
    edges at which states are clipped, rounded data). Three signs tell copies from them:

    - more rows are repeated than would be if next states agreed after equal states no more than 30 times as often as
      after different ones; a single repeated row is too many where next states never agree after different states;
    - every row is repeated a multiple of the same number of times;
    - of the states tried more than once with an action, more lead to one and the same next state than of pairs of
      neighbouring states do.
    """
    keys = _keys(*log.states.T, log.actions)
    if not has_repeats(keys):
        return 0
    order = np.argsort(keys, kind="stable")
    keys, actions, after = keys[order], log.actions[order], _keys(*log.next_states.T)[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))  # of rows with one state and action
    _, first, counts = np.unique(_keys(keys, after), return_index=True, return_counts=True)
    repeated = len(log) - len(first)
    if not repeated:
        return 0
    sizes = np.diff(np.append(starts, len(log)))
    _, which = np.unique(_keys(actions, after)[first], return_inverse=True)
    # Of pairs of rows with one action and different states, the share with one next state; copies do not change it.
    alike = _pairs(np.bincount(which.reshape(-1), counts)) - _pairs(counts)
    agreeing = alike / max(_pairs(np.bincount(actions)) - _pairs(sizes), 1)
    by_chance = _at_least_poisson(repeated, min(_NEARER * agreeing, 1.0) * (_pairs(sizes) - len(log) / 2))
    if by_chance > _COINCIDENCE and not (len(counts) >= _FEWEST and int(np.gcd.reduce(counts)) > 1):
        again = sizes > 1
        settled = np.minimum.reduceat(after, starts) == np.maximum.reduceat(after, starts)
        chance = _alike_beside(log.states[order[starts]], actions[starts], after[starts])
        # Where no state ever led to two next states each repeated row is one more coincidence.
        agreed = int((again & settled).sum())
        as_one = chance**repeated if settled.all() else _at_least(agreed, int(again.sum()), chance)
        if as_one > _COINCIDENCE:
            return 0
    return repeated


def continued_rows(log: Transitions) -> int:
    """How many rows start in the very state in which one other row ended, if they look like steps of a walk; else 0.

    They do if most rows are such, or if the row that follows comes later in the log much more often than earlier.
    """
    after, states = _keys(*log.next_states.T), _keys(*log.states.T)
    ordered, asked = np.sort(after), np.sort(states)
    if not (ordered[np.searchsorted(ordered[:-1], asked)] == asked).any():  # no state is a next state
        return 0
    (ends, ended, many), (begins, begun, often) = (
        np.unique(keys, return_index=True, return_counts=True) for keys in (after, states)
    )
    _, one, other = np.intersect1d(ends[many == 1], begins[often == 1], assume_unique=True, return_indices=True)
    lag = begun[often == 1][other] - ended[many == 1][one]
    later, links = int((lag > 0).sum()), int((lag != 0).sum())
    return links if links > len(log) / 2 or _at_least(later, links, 0.5) <= _COINCIDENCE else 0


def _keys(*columns: NDArray[Any]) -> NDArray[np.uint64]:
    """A number of 64 bits for every row of these columns, equal for equal rows and, but for 2⁻⁶⁴, for no others."""
    found = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        bits = (column + 0.0).view(np.uint64) if column.dtype.kind == "f" else column.astype(np.uint64)  # -0.0 is 0.0
        found = (found ^ bits) + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(31)
    return found


def has_repeats(keys: NDArray[Any]) -> bool:
    """Whether some number occurs more than once."""
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


def _alike_beside(states: Array, actions: NDArray[np.intp], after: NDArray[np.uint64]) -> float:
    """The share of neighbouring states, of one action and in the order of their coordinates, with one next state."""
    order = np.lexsort((*states.T[::-1], actions))
    actions, after = actions[order], after[order]
    beside = actions[1:] == actions[:-1]
    alike = (after[1:] == after[:-1])[beside]
    return (int(alike.sum()) + 1) / (len(alike) + 1)


def _pairs(counts: NDArray[Any]) -> float:
    """The number of pairs within groups of so many, each with itself included: Σ m²/2."""
    return float((counts.astype(np.float64) ** 2).sum() / 2)


def _at_least_poisson(count: int, mean: float) -> float:
    """The probability that a Poisson number with this mean is at least ``count``."""
    from scipy.special import gammainc

    return float(gammainc(count, mean))


def _at_least(count: int, trials: int, chance: float) -> float:
    """The probability that at least ``count`` of so many independent trials succeed."""
    from scipy.special import betainc

    return 1.0 if count == 0 else float(betainc(count, trials - count + 1, chance))


def counted(counts: Iterable[int]) -> str:
    """Numbers of transitions per action, in words: one number if all are equal, else the least and the largest."""
    numbers = [int(count) for count in counts]
    return f"{min(numbers):,}" + (f" to {max(numbers):,}" if max(numbers) > min(numbers) else "")


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
