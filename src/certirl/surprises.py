"""How far next states fall from their prediction, with all their covariances: what a refutation needs of fresh data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from certirl._blocked import LONGEST
from certirl._map import fold
from certirl.bases import Basis
from certirl.domain import Array
from certirl.estimate import MAX_CONDITION
from certirl.tensors import on_host
from certirl.transitions import Chunk, Piece, chunks_of


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


def gather(rows: Basis, columns: Basis, fits: Array, stream: Iterable[Piece]) -> Surprises:
    """Walk through fresh data once, chunks side by side; memory does not grow with its length.

    Args:
        rows: the functions of the next state.
        columns: the functions of the state.
        fits: P̂_cφ, the constant left out ``[A, k − 1, k_s]``, fixed before these data.
        stream: the fresh data.
    """
    sums = fold(partial(_of_chunk, rows, columns, fits), chunks_of(stream))
    if (sums.counts <= columns.size).any() or (np.linalg.cond(sums.gram) > MAX_CONDITION).any():
        raise ValueError("the fresh states cannot tell the columns apart: use more data or fewer columns")
    return sums


def _of_chunk(rows: Basis, columns: Basis, fits: Array, chunk: Chunk) -> Surprises:
    A, p, ks = fits.shape
    counts, gram, paired = np.zeros(A, dtype=np.int64), np.zeros((A, ks, ks)), True
    first, second = np.zeros((A, ks, p)), np.zeros((A, ks * p, A, ks * p))
    for piece in on_host(chunk.pieces(), columns.domain, LONGEST):
        chosen = list(piece.actions)
        x = columns.values(piece.states).T
        surprise = np.array([rows.values(s).T[1:] for s in piece.next_states]) - fits[chosen] @ x
        z = (x[:, None] * surprise[:, None]).reshape(len(chosen) * ks * p, -1)
        counts[chosen] += x.shape[1]
        gram[chosen] += x @ x.T
        first[chosen] += z.sum(axis=1).reshape(-1, ks, p)
        products = (z @ z.T).reshape(len(chosen), ks * p, len(chosen), ks * p)
        for i, c in enumerate(chosen):
            second[c][:, chosen] += products[i]
        paired &= len(chosen) == A
    return Surprises(counts, gram, first, second, bool(paired))
