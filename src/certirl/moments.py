"""Moments: all that estimation keeps of the data, and a monoid, so that streams, shards and rounds simply add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certirl.bases import Basis
from certirl.domain import Array
from certirl.simulator import CHUNK
from certirl.transitions import Transitions, chunks

Piece = tuple[int, Array, Array]


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over the transitions of each action, with y = φ(s') in the row basis and x = φ(s) in the column basis.

    Attributes:
        rows: the functions of the next state, k of them: the class of rewards and values.
        columns: the functions of the state, k_s of them: how finely P_a(·|s) may depend on s.
        counts: transitions per action ``[A]``.
        gram: Σ x xᵀ ``[A, k_s, k_s]``.
        cross: Σ y xᵀ ``[A, k, k_s]``.
        outer: Σ y yᵀ ``[A, k, k]``.
    """

    rows: Basis
    columns: Basis
    counts: NDArray[np.int64]
    gram: Array
    cross: Array
    outer: Array

    def __add__(self, other: Moments) -> Moments:
        if (self.rows, self.columns, len(self.counts)) != (other.rows, other.columns, len(other.counts)):
            raise ValueError("moments add up only for the same bases and the same number of actions")
        return Moments(
            self.rows,
            self.columns,
            self.counts + other.counts,
            self.gram + other.gram,
            self.cross + other.cross,
            self.outer + other.outer,
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
            self.outer[:, :rows, :rows],
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
    return accumulate(chunks(transitions, CHUNK), rows=basis, columns=narrow, n_actions=transitions.n_actions)[0]


def accumulate(
    pieces: Iterable[Piece], *, rows: Basis, columns: Basis, n_actions: int, folds: int = 1
) -> tuple[Moments, ...]:
    """Fold a stream of pieces into ``folds`` disjoint moments; memory does not grow with the length of the stream.

    Row r of a piece goes to fold ``r mod folds``: every fold sees every stretch of the data.
    """
    k, ks = rows.size, columns.size
    counts = np.zeros((folds, n_actions), dtype=np.int64)
    gram = np.zeros((folds, n_actions, ks, ks))
    cross = np.zeros((folds, n_actions, k, ks))
    outer = np.zeros((folds, n_actions, k, k))
    for action, states, next_states in pieces:
        for fold in range(folds):
            x = columns.values(states[fold::folds]).T
            y = rows.values(next_states[fold::folds]).T
            counts[fold, action] += x.shape[1]
            gram[fold, action] += x @ x.T
            cross[fold, action] += y @ x.T
            outer[fold, action] += y @ y.T
    return tuple(Moments(rows, columns, counts[f], gram[f], cross[f], outer[f]) for f in range(folds))
