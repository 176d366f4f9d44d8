"""How far next states fall from their prediction, with all their covariances: what a refutation needs of fresh data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import Chunk, Piece, chunks_of
from certirl.fit.estimate import MAX_CONDITION
from certirl.functions.bases import Basis
from certirl.ground.domain import Array
from certirl.ground.work import fold
from certirl.kernels.blocked import LONGEST
from certirl.kernels.tensors import on_host


@dataclass(frozen=True, eq=False)
class Surprises:
    """Sums over fresh data, with x = φ(s) and z_c = x ⊗ (φ(s') − P̂_cφ(s)), the constant left out of φ(s').

    Attributes:
        counts: transitions per action ``[A]``.
        gram: Σ x xᵀ ``[A, k_s, k_s]``.
        first: Σ z ``[A, k_s, k − 1]``.
        second: Σ z zᵀ ``[A, k_s(k − 1), A, k_s(k − 1)]``.
        paired: every state was tried with every action.
    """

    counts: NDArray[np.int64]
    gram: Array
    first: Array
    second: Array
    paired: bool

    def __add__(self, other: Surprises) -> Surprises:
        return Surprises(
            self.counts + other.counts,
            self.gram + other.gram,
            self.first + other.first,
            self.second + other.second,
            self.paired and other.paired,
        )


class Expected(NamedTuple):
    """What is expected of next states.

    Attributes:
        rows: the functions of the next state.
        columns: the functions of the state.
        fits: P̂_cφ, the constant left out ``[A, k − 1, k_s]``.
        view: the coordinates of the states that it is about; None for all.
    """

    rows: Basis
    columns: Basis
    fits: Array
    view: tuple[int, ...] | None = None


def gather(expected: Sequence[Expected], stream: Iterable[Piece]) -> list[Surprises]:
    """Walk through fresh data once, chunks side by side; memory does not grow with its length.

    Args:
        expected: fixed before these data; one for each component, or a single one.
        stream: the fresh data.
    """
    found = fold(partial(_of_chunk, tuple(expected)), chunks_of(stream), _side_by_side)
    for own, sums in zip(expected, found, strict=True):
        if (sums.counts <= own.columns.size).any() or (np.linalg.cond(sums.gram) > MAX_CONDITION).any():
            raise ValueError("the fresh states cannot tell the columns apart: use more data or fewer columns")
    return found


def _side_by_side(one: list[Surprises], other: list[Surprises]) -> list[Surprises]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _of_chunk(expected: tuple[Expected, ...], chunk: Chunk) -> list[Surprises]:
    found: list[Surprises] | None = None
    for piece in chunk.pieces():
        new = [_of_piece(own, piece if own.view is None else piece.view(own.view)) for own in expected]
        found = new if found is None else _side_by_side(found, new)
    assert found is not None  # a chunk holds something
    return found


def _of_piece(expected: Expected, whole: Piece) -> Surprises:
    rows, columns, fits, _ = expected
    A, p, ks = fits.shape
    counts, gram = np.zeros(A, dtype=np.int64), np.zeros((A, ks, ks))
    first, second = np.zeros((A, ks, p)), np.zeros((A, ks * p, A, ks * p))
    chosen = list(whole.actions)
    for piece in on_host([whole], columns.domain, LONGEST):
        x = columns.values(piece.states).T
        surprise = np.array([rows.values(s).T[1:] for s in piece.next_states]) - fits[chosen] @ x
        z = (x[:, None] * surprise[:, None]).reshape(len(chosen) * ks * p, -1)
        counts[chosen] += x.shape[1]
        gram[chosen] += x @ x.T
        first[chosen] += z.sum(axis=1).reshape(-1, ks, p)
        products = (z @ z.T).reshape(len(chosen), ks * p, len(chosen), ks * p)
        for i, c in enumerate(chosen):
            second[c][:, chosen] += products[i]
    return Surprises(counts, gram, first, second, len(chosen) == A)
