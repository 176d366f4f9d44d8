"""Moments: all that estimation keeps of the data, and a monoid, so that streams, shards and rounds simply add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certirl.bases import Basis
from certirl.domain import Array, freeze
from certirl.simulator import CHUNK
from certirl.transitions import Piece, Transitions, pieces


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over the transitions of each action, with y_a = φ(s') in the row basis and x = φ(s) in the column basis.

    Attributes:
        rows: the functions of the next state, k of them: the class of rewards and values.
        columns: the functions of the state, k_s of them: how finely P_a(·|s) may depend on s.
        counts: transitions per action ``[A]``.
        gram: Σ x xᵀ ``[A, k_s, k_s]``.
        cross: Σ y_a xᵀ ``[A, k, k_s]``.
        outer: Σ y_a y_bᵀ ``[A, A, k, k]``; only the diagonal blocks unless paired.
        paired: every state was tried with every action, with common random numbers.
    """

    rows: Basis
    columns: Basis
    counts: NDArray[np.int64]
    gram: Array
    cross: Array
    outer: Array
    paired: bool = False

    def __post_init__(self) -> None:
        freeze(self)

    def __add__(self, other: Moments) -> Moments:
        if (self.rows, self.columns, len(self.counts)) != (other.rows, other.columns, len(other.counts)):
            raise ValueError("moments add up only for the same bases and the same number of actions")
        outer, paired = self.outer + other.outer, self.paired and other.paired
        if not paired:  # without the mates of some rows, covariances between actions mean nothing
            outer = outer * np.eye(self.n_actions)[:, :, None, None]
        return Moments(
            self.rows,
            self.columns,
            self.counts + other.counts,
            self.gram + other.gram,
            self.cross + other.cross,
            outer,
            paired,
        )

    @property
    def n_actions(self) -> int:
        """The number of actions, A."""
        return len(self.counts)

    def leading(self, rows: int, columns: int) -> Moments:
        """The moments of the first functions only: what measuring with the smaller bases would have given."""
        if rows > self.rows.size or columns > self.columns.size:
            raise ValueError(
                f"these moments hold {self.rows.size} rows and {self.columns.size} columns, not {rows} and {columns}"
            )
        return Moments(
            self.rows.resized(rows),
            self.columns.resized(columns),
            self.counts,
            self.gram[:, :columns, :columns],
            self.cross[:, :rows, :columns],
            self.outer[:, :, :rows, :rows],
            self.paired,
        )


def total(parts: Iterable[Moments]) -> Moments:
    """Add moments in the order given."""
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


def measure(transitions: Transitions, *, basis: Basis, columns: int | None = None) -> Moments:
    """Sum the products of basis functions over logged transitions (Algorithm 1, step 4, before dividing by n).

    Args:
        transitions: the data.
        basis: the row basis φ; placed on the data's domain.
        columns: how many of its functions describe the state, k_s; all of them if left out.
    """
    basis = basis.on(transitions.domain)
    narrow = basis.resized(basis.size if columns is None else columns)
    ((moments,),) = accumulate(pieces(transitions, CHUNK), [(basis, narrow)], n_actions=transitions.n_actions)
    return moments


def accumulate(
    stream: Iterable[Piece], pairs: Sequence[tuple[Basis, Basis]], *, n_actions: int, folds: int = 1
) -> list[tuple[Moments, ...]]:
    """Walk a stream once and sum up the moments of several (rows, columns) pairs, each in ``folds`` disjoint parts.

    Row r of a piece goes to fold ``r mod folds``: every fold sees every stretch of the data. Memory does not grow with
    the length of the stream.
    """
    sums = [[_Sums(rows, columns, n_actions) for _ in range(folds)] for rows, columns in pairs]
    for piece in stream:
        for parts in sums:
            for fold, part in enumerate(parts):
                part.take(Piece(piece.actions, piece.states[fold::folds], piece.next_states[:, fold::folds]))
    return [tuple(part.moments() for part in parts) for parts in sums]


class _Sums:
    """Moments in the making."""

    def __init__(self, rows: Basis, columns: Basis, n_actions: int) -> None:
        self.rows, self.columns, self.paired = rows, columns, True
        self.counts = np.zeros(n_actions, dtype=np.int64)
        self.gram = np.zeros((n_actions, columns.size, columns.size))
        self.cross = np.zeros((n_actions, rows.size, columns.size))
        self.outer = np.zeros((n_actions, n_actions, rows.size, rows.size))

    def take(self, piece: Piece) -> None:
        chosen, k = list(piece.actions), self.rows.size
        x = self.columns.values(piece.states).T
        y = np.concatenate([self.rows.values(ends).T for ends in piece.next_states])  # [m·k, n]: one product for all
        self.counts[chosen] += x.shape[1]
        self.gram[chosen] += x @ x.T
        self.cross[chosen] += (y @ x.T).reshape(len(chosen), k, -1)
        self.outer[np.ix_(chosen, chosen)] += (y @ y.T).reshape(len(chosen), k, len(chosen), k).transpose(0, 2, 1, 3)
        self.paired &= len(chosen) == len(self.counts)

    def moments(self) -> Moments:
        return Moments(self.rows, self.columns, self.counts, self.gram, self.cross, self.outer, self.paired)
