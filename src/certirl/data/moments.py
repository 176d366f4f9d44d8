"""Moments: the sums of the data that estimation needs. Sums of different data are added."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.formats import check_repeats, is_table
from certirl.data.tables import stream
from certirl.data.transitions import CHUNK, Chunk, Piece, chunks_of
from certirl.functions.bases import Basis, as_basis
from certirl.ground import archive
from certirl.ground.domain import Array, number_of
from certirl.ground.doors import as_array, as_count, as_flag, setting, shown
from certirl.ground.records import Record, freeze, internal
from certirl.ground.work import Report, fold, on, watched_stream
from certirl.kernels.sums import JointSums, StackedSums, joint_sums
from certirl.kernels.tensors import TensorSums, is_tensor, on_host

# Function values below which loading compiled kernels (about a second) takes longer than they save.
LITTLE = 8_000_000
MOST_MARKS = 256  # of data in memory that moments tell apart
IN_MEMORY = "transitions in memory"
_SUMS = ("counts", "gram", "cross", "outer")
_NAMES = ("action_names", "coordinate_names")


@archive.record
@dataclass(frozen=True)
class File(Record):
    """A file, or data in memory, whose transitions are in moments.

    Attributes:
        name: without its folder; "transitions in memory" for data from no file.
        rows: its transitions.
        fingerprint: tells its content apart from that of other files.

    Example:
        >>> table = {"state": [0.0, 0.5, 1.0], "action": [0, 1, 0], "next_state": [0.5, 1.0, 0.5]}
        >>> np.savez("log.npz", **table)
        >>> moments = certirl.steps.measure(certirl.logs.stream("log.npz"), basis=certirl.Legendre(2))
        >>> moments.files[0].name, moments.files[0].rows
        ('log.npz', 3)
    """

    name: str
    rows: int
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.name}, {number_of(self.rows, 'row')}"


@archive.record
@dataclass(frozen=True, eq=False)
class Moments(archive.Saved):
    """Sums over transitions, with y_a = φ(s') in the row basis and x = φ(s) in the columns.

    Attributes:
        rows: the functions of the next state, k of them: the class of rewards and values.
        columns: the functions of the state, k_s of them: how finely P_a(·|s) may depend on s.
        counts: transitions per action ``[A]``.
        gram: Σ x xᵀ ``[A, k_s, k_s]``.
        cross: Σ y_a xᵀ ``[A, k, k_s]``.
        outer: Σ y_a y_bᵀ ``[A, A, k, k]``; only the diagonal blocks unless paired.
        paired: every state was tried with every action, with common random numbers.
        files: the files of the data, and marks of data in memory, so that the same data cannot be added twice.
        action_names, coordinate_names: those of the data, if they have any.

    Example:
        >>> log = certirl.Transitions([0.0, 0.5, 1.0, 0.2], [0, 1, 0, 1], [0.5, 1.0, 0.0, 0.1])
        >>> moments = certirl.steps.measure(log, basis=certirl.Legendre(3))
        >>> moments.counts.tolist(), moments.cross.shape
        ([2, 2], (2, 3, 3))
        >>> later = certirl.Transitions([0.1, 0.9], [0, 1], [0.3, 0.7], domain=(0, 1))
        >>> print(moments + certirl.steps.measure(later, basis=certirl.Legendre(3)))
        6 transitions: Legendre(3) on [0, 1], 3 columns, 2 actions
    """

    rows: Basis
    columns: Basis
    counts: NDArray[np.int64]
    gram: Array
    cross: Array
    outer: Array
    paired: bool = False
    files: tuple[File, ...] = ()
    action_names: tuple[str, ...] = ()
    coordinate_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze(self, **{name: np.array(as_array(getattr(self, name), name)) for name in _SUMS})
        A, k, ks = self.counts.size, self.rows.size, self.columns.size
        shapes = dict(zip(_SUMS, [(A,), (A, ks, ks), (A, k, ks), (A, A, k, k)], strict=True))
        for name, shape in shapes.items():
            values = getattr(self, name)
            if A == 0 or values.shape != shape or not np.isfinite(values).all():
                raise ValueError(
                    f"these sums do not fit the bases: {name} must be finite of shape {list(shape)}, got "
                    f"shape {list(values.shape)}"
                )
        if self.counts.dtype.kind not in "iu" or (self.counts < 0).any():
            raise ValueError(f"counts must be whole numbers of transitions, got {shown(self.counts)}")
        freeze(self, paired=as_flag(self.paired, "paired"))

    def __str__(self) -> str:
        return f"{number_of(int(self.counts.sum()), 'transition')}: {self._shape()}"

    def _shape(self) -> str:
        columns, actions = number_of(self.columns.size, "column"), number_of(self.n_actions, "action")
        return f"{self.rows} on {self.rows.domain.words}, {columns}, {actions}"

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            raise TypeError(f"moments add up with moments, got {shown(other)}")
        both = self.plus(other)
        _check_apart(self, other)
        return replace(both, files=_joined(both.files))

    @internal
    def plus(self, other: Moments) -> Moments:
        """The sums of both, whose data may be parts of the same file."""
        if (self.rows, self.columns, len(self.counts)) != (other.rows, other.columns, len(other.counts)):
            raise ValueError(
                "moments add up only for the same bases and the same number of actions, "
                f"not {self._shape()} and {other._shape()}"
            )
        names = {name: getattr(self, name) or getattr(other, name) for name in _NAMES}
        for name, first in names.items():
            second = getattr(other, name) or first
            if first != second:
                both = f"{', '.join(first)} and {', '.join(second)}"
                raise ValueError(f"moments add up only with the same {name.replace('_', ' ')}, got {both}")
        outer, paired = self.outer + other.outer, self.paired and other.paired
        if not paired:  # rows without their pairs: covariances between actions mean nothing
            outer = outer * np.eye(self.n_actions)[:, :, None, None]
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("counts", "gram", "cross", "files")}
        return replace(self, outer=outer, paired=paired, **sums, **names)

    @property
    def n_actions(self) -> int:
        """The number of actions, A."""
        return len(self.counts)

    def leading(self, rows: int, columns: int) -> Moments:
        """The moments of the first functions only, as if measured with the smaller bases.

        Example:
            >>> moments.leading(2, 2).cross.shape
            (2, 2, 2)
        """
        rows, columns = as_count(rows, "rows"), as_count(columns, "columns")
        if rows > self.rows.size or columns > self.columns.size:
            raise ValueError(
                f"these moments hold {self.rows.size} rows and {self.columns.size} columns, not {rows} and {columns}"
            )
        return replace(
            self,
            rows=self.rows.resized(rows),
            columns=self.columns.resized(columns),
            gram=self.gram[:, :columns, :columns],
            cross=self.cross[:, :rows, :columns],
            outer=self.outer[:, :, :rows, :rows],
        )

    @internal
    def as_read(self, file: str) -> Moments:
        """Refuse columns of another family than the rows, and counts that contradict the files."""
        if self.columns != self.rows.resized(self.columns.size):
            raise ValueError(f"columns must be the first of {self.rows}, got {self.columns}")
        if self.files and sum(file.rows for file in self.files) > self.counts.sum():
            raise ValueError("its counts do not add up")
        return self


def load(path: str | os.PathLike[str]) -> Moments:
    """Read moments; a file of certirl that holds something else is refused."""
    record = archive.load(path)
    if not isinstance(record, Moments):
        raise ValueError(f"{path} holds a certirl {type(record).__name__}, not moments")
    return record


def total(parts: Iterable[Moments]) -> Moments:
    """Add moments in the order given."""
    first, *rest = parts
    for moments in rest:
        first = first.plus(moments)
    return first


def merge(parts: Iterable[Moments]) -> Moments:
    """Add moments of different data, in the order given; a file that counts twice is refused."""
    if isinstance(parts, Moments) or not isinstance(parts, Iterable):
        raise TypeError(f"merge takes a list of moments, got {shown(parts)}")
    merged: Moments | None = None
    for moments in parts:  # one at a time: there may be many
        if not isinstance(moments, Moments):
            raise TypeError(f"merge takes a list of moments, got {shown(moments)} in it")
        merged = moments if merged is None else merged + moments
    if merged is None:
        raise ValueError("there are no moments to merge")
    return merged


def measure(
    data: Any,
    *,
    basis: Basis,
    columns: int | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
) -> Moments:
    """Sum products of basis functions over transitions (Algorithm 1, step 4).

    Memory does not grow with the length of a stream of files.

    Args:
        data: `Transitions`, `TensorTransitions`, a table, or a stream of tables:
            ``certirl.logs.stream("*.parquet", domain=(-1, 1))``.
        basis: the row basis φ; placed on the domain of the data.
        columns: how many of its functions describe the state, k_s; all of them if left out.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
        map: where to work: a number of threads, a Dask client, an executor; threads on all cores if left out.

    Example:
        >>> log = certirl.Transitions([0.0, 0.5, 1.0, 0.2], [0, 1, 0, 1], [0.5, 1.0, 0.0, 0.1])
        >>> print(certirl.steps.measure(log, basis=certirl.Legendre(3)))
        4 transitions: Legendre(3) on [0, 1], 3 columns, 2 actions
    """
    data = stream(data) if is_table(data) else data
    if not all(hasattr(data, name) for name in ("chunks", "domain", "n_actions")):
        raise TypeError(f"measure takes logged Transitions or certirl.logs.stream(files), got {shown(data)}")
    rows = as_basis(basis).on(data.domain)
    narrow = rows.resized(rows.size if columns is None else as_count(columns, "columns"))
    if narrow.size > rows.size:
        most = f"the {rows.size} functions of the basis"
        raise ValueError(f"{setting('columns')} must lie between 1 and {most}, got {columns}")
    with on(map):
        watched = watched_stream(data, None, progress)
        ((moments,),) = accumulate(watched, [(rows, narrow)], n_actions=data.n_actions)
    counts: Counter[tuple[str, str]] = Counter()
    for file in moments.files:  # one for each chunk
        counts[file.name, file.fingerprint] += file.rows
    if not counts and moments.counts.any():
        sums = hashlib.sha256(b"".join(np.ascontiguousarray(getattr(moments, name)).tobytes() for name in _SUMS))
        counts[IN_MEMORY, sums.hexdigest()[:16]] = int(moments.counts.sum())
    names: dict[str, Any] = {name: getattr(data, name, ()) for name in _NAMES}
    return replace(moments, files=tuple(File(name, count, mark) for (name, mark), count in counts.items()), **names)


def _check_apart(*parts: Moments) -> None:
    """Refuse moments of the same data."""
    each = [dict.fromkeys((file.name, file.fingerprint) for file in moments.files) for moments in parts]
    check_repeats(mark for marks in each for mark in marks)


def _joined(files: tuple[File, ...]) -> tuple[File, ...]:
    """The same with one mark in place of those of data in memory, if these are many: a stream may be added in parts."""
    marks = [file for file in files if file.name == IN_MEMORY]
    if len(marks) <= MOST_MARKS:
        return files
    every = hashlib.sha256("".join(mark.fingerprint for mark in marks).encode()).hexdigest()[:16]
    rows = sum(mark.rows for mark in marks)
    return (*(file for file in files if file.name != IN_MEMORY), File(IN_MEMORY, rows, every))


def accumulate(
    stream: Iterable[Piece],
    pairs: Sequence[tuple[Basis, Basis]],
    *,
    n_actions: int,
    folds: int = 1,
    views: Sequence[Sequence[int]] | None = None,
) -> list[tuple[Moments, ...]]:
    """The moments of several (rows, columns) pairs by reading a stream once.

    Memory does not grow with the length of the stream. Chunks are worked on in parallel (`certirl.ground.work`).

    Pairs are functions of next states and functions of states; ``views`` are the coordinates that each is about, all of
    them if left out. Row r of a piece goes to fold ``r mod folds``, so that every fold has rows from all parts of the
    data.
    """
    chunks, coordinates = chunks_of(stream), None if views is None else tuple(map(tuple, views))
    kernel = kernel_for(chunks, max(rows.size + columns.size for rows, columns in pairs))
    return fold(partial(_of_chunk, tuple(pairs), n_actions, folds, kernel, coordinates), chunks, _added)


def kernel_for(chunks: Sequence[Chunk], functions: int) -> str | None:
    """The kernel for this amount of data: "numpy" if it is small, else None, the fastest."""
    rows = sum(getattr(chunk, "n", LITTLE) for chunk in chunks)
    return "numpy" if rows * functions < LITTLE else None


def _of_chunk(
    pairs: tuple[tuple[Basis, Basis], ...],
    n_actions: int,
    folds: int,
    kernel: str | None,
    views: tuple[tuple[int, ...], ...] | None,
    chunk: Chunk,
) -> list[tuple[Moments, ...]]:
    sums = [[_Sums(rows, columns, n_actions, kernel) for _ in range(folds)] for rows, columns in pairs]
    for piece in chunk.pieces():
        for index, parts in enumerate(sums):
            view = piece if views is None else piece.view(views[index])
            for number, part in enumerate(parts):
                part.add(Piece(view.actions, view.states[number::folds], view.next_states[:, number::folds]))
    return [tuple(part.moments(getattr(chunk, "origin", None)) for part in parts) for parts in sums]


def _added(first: list[tuple[Moments, ...]], second: list[tuple[Moments, ...]]) -> list[tuple[Moments, ...]]:
    return [tuple(map(Moments.plus, a, b)) for a, b in zip(first, second, strict=True)]


class _Sums:
    """Sums to which pieces are added."""

    def __init__(self, rows: Basis, columns: Basis, n_actions: int, kernel: str | None) -> None:
        self.rows, self.columns, self.kernel, self.paired = rows, columns, kernel, True
        self.counts = np.zeros(n_actions, dtype=np.int64)
        self._sums: dict[tuple[int, ...], JointSums | StackedSums | TensorSums] = {}

    def add(self, piece: Piece) -> None:
        group, boxes = tuple(piece.actions), self.columns.dimension > 1
        if is_tensor(piece.states) and boxes:  # the device has no kernel for products of functions
            for part in on_host([piece], self.columns.domain, CHUNK):
                self.add(part)
            return
        if group not in self._sums:
            bases = [self.rows] * len(group) + [self.columns]
            if is_tensor(piece.states):
                self._sums[group] = TensorSums(bases, piece.states.device)
            else:
                self._sums[group] = joint_sums(bases, kernel=self.kernel)
        self._sums[group].add(*piece.next_states, piece.states)
        self.counts[list(group)] += len(piece.states)
        self.paired &= len(group) == len(self.counts)

    def moments(self, origin: tuple[str, str] | None) -> Moments:
        A, k, ks = len(self.counts), self.rows.size, self.columns.size
        gram, cross, outer = np.zeros((A, ks, ks)), np.zeros((A, k, ks)), np.zeros((A, A, k, k))
        for group, sums in self._sums.items():
            blocks, last = sums.blocks(), len(group)
            for i, a in enumerate(group):
                gram[a] += blocks[last, last]
                cross[a] += blocks[i, last]
                for j, b in enumerate(group[i:], start=i):
                    outer[a, b] += blocks[i, j]
                    outer[b, a] = outer[a, b].T
        files = () if origin is None else (File(origin[0], int(self.counts.sum()), origin[1]),)
        return Moments(self.rows, self.columns, self.counts, gram, cross, outer, self.paired, files)
