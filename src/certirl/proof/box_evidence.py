"""What fresh data say about one fixed reward on a box: the sums that a certificate needs, mergeable like moments.

As `evidence`, but in level functions p (`box_products`), and with the surprises of all functions taken together as one
vector: a certificate with k columns then needs a handful of k × k sums, not k of them for every function.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import CHUNK, Chunk, Piece, chunks_of
from certirl.functions.box_products import Level, closed, level, tensor_sums
from certirl.functions.boxes import ProductBasis
from certirl.functions.reward import values_of
from certirl.ground import archive
from certirl.ground.domain import Array
from certirl.ground.work import fold
from certirl.kernels.tensors import on_host
from certirl.proof.evidence import Surrogate, split_value
from certirl.proof.tallies import Tally

# Numbers worked on at once: few enough for functions and residuals of the same states to meet in cache.
_WORKSPACE, SHORTEST, LONGEST = 2**19, 512, 4096


@archive.record
@dataclass(frozen=True, eq=False)
class BoxEvidence(Tally):
    """Sums over fresh transitions, with x = p(s) and the products χ of level functions.

    The surprise of action c is Y_c = V(s') − P̂_cV(s); that of the functions is the vector h_c = p(s') − P̂_c p(s), whose
    first entry is zero.

    Attributes:
        counts: transitions per action ``[A]``.
        gram: Σ χ ``[A, M_1, …, M_d]``, from which Σ x xᵀ follows.
        surprise: Σ x Y_c ``[A, k_s]``.
        spread: Σ χ Y_c Y_d ``[A, A, M_1, …, M_d]``; zero for c ≠ d unless paired.
        drift: Σ h_c xᵀ ``[A, k_s, k_s]``.
        wobble: Σ χ h_c·h_d ``[A, A, M_1, …, M_d]``; zero for c ≠ d unless paired.
        noise: Σ h hᵀ of the expert's action ``[k_s, k_s]``.
        paired: every state was tried with every action.
    """

    firsts: ClassVar = ("surprise", "drift")
    seconds: ClassVar = ("gram", "spread", "wobble", "noise")
    counts: NDArray[np.int64]
    gram: Array
    surprise: Array
    spread: Array
    drift: Array
    wobble: Array
    noise: Array
    paired: bool


BOX_SUMS = BoxEvidence.names()


def gather_on_box(surrogate: Surrogate, stream: Iterable[Piece]) -> BoxEvidence:
    """Walk through fresh data once, chunks side by side; memory does not grow with its length."""
    return fold(partial(_of_chunk, surrogate), chunks_of(stream))


def _of_chunk(surrogate: Surrogate, chunk: Chunk) -> BoxEvidence:
    sums = _Sums(surrogate)
    for piece in chunk.pieces():
        for held in on_host([piece], surrogate.columns.domain, CHUNK):
            sums.take(held)
    return sums.evidence()


class _Sums:
    """Evidence in the making."""

    def __init__(self, surrogate: Surrogate) -> None:
        assert isinstance(surrogate.columns, ProductBasis)
        self.s, self.level = surrogate, level(surrogate.columns)
        self.Z, self.fits = self.level.matrix(surrogate.Z), self.level.coefficients(surrogate.fits)
        rows, weights, self.rest = split_value(surrogate)
        assert isinstance(rows, ProductBasis)
        # One evaluation serves V and the columns, which come first among the rows.
        self.rows = level(closed(rows))
        self.value = self.rows.coefficients(np.pad(weights, (0, self.rows.columns.size - rows.size)))
        A, ks, wide = len(surrogate.Z), surrogate.columns.size, self.level.doubled
        self.counts, self.together = np.zeros(A, dtype=np.int64), set[bool]()
        self.gram, self.spread, self.wobble = np.zeros((A, *wide)), np.zeros((A, A, *wide)), np.zeros((A, A, *wide))
        self.surprise, self.drift, self.noise = np.zeros((A, ks)), np.zeros((A, ks, ks)), np.zeros((ks, ks))
        numbers = (A + 2) * (ks + self.value.size)
        self._length = int(np.clip(_WORKSPACE // numbers, SHORTEST, LONGEST))

    def take(self, piece: Piece) -> None:
        """Add a piece that holds one action, or all of them in order."""
        group = list(piece.actions)
        if len(group) > 1 and group != list(range(len(self.counts))):
            raise ValueError("a piece of data holds one action, or all of them in order")
        self.together.add(len(group) == len(self.counts))
        for start in range(0, len(piece.states), self._length):
            block = slice(start, start + self._length)
            self._add(group, piece.states[block], piece.next_states[:, block])
        self.counts[group] += len(piece.states)

    def _add(self, group: list[int], states: Array, ends: Array) -> None:
        tables = self.level.tables(states)
        x = self.level.of_tables(tables)
        Y, H = zip(*(self._surprises(c, x, own) for c, own in zip(group, ends, strict=True)), strict=True)
        pairs = [(i, j) for i in range(len(group)) for j in range(i, len(group))]
        weights = np.empty((1 + 2 * len(pairs), len(states)))
        weights[0] = 1.0
        for row, (i, j) in enumerate(pairs):
            np.multiply(Y[i], Y[j], out=weights[1 + row])
            np.einsum("kn,kn->n", H[i], H[j], out=weights[1 + len(pairs) + row])
        sums = tensor_sums(tables, weights)
        self.gram[group] += sums[0]
        for row, (i, j) in enumerate(pairs):
            c, d = group[i], group[j]
            for total, own in ((self.spread, sums[1 + row]), (self.wobble, sums[1 + len(pairs) + row])):
                total[c, d] += own
                if c != d:
                    total[d, c] += own
        for c, y, h in zip(group, Y, H, strict=True):
            self.surprise[c] += x @ y
            self.drift[c, 1:] += h @ x.T
            if c == self.s.expert:
                self.noise[1:, 1:] += h @ h.T

    def _surprises(self, action: int, x: Array, ends: Array) -> tuple[Array, Array]:
        """Y ``[n]`` and h but for its first entry ``[k_s − 1, n]``."""
        p = self.rows.values(ends).T
        value = self.value @ p
        if self.rest is not None:
            value += values_of(self.rest, ends)
        if not np.isfinite(value).all():
            raise ValueError("the reward must be finite at every state of the domain")
        h = self.Z[action, 1:] @ x
        np.subtract(p[1 : len(x)], h, out=h)
        return value - self.fits[action] @ x, h

    def evidence(self) -> BoxEvidence:
        if len(self.together) > 1:
            raise ValueError("paired and unpaired data must be weighed separately")
        sums = (self.gram, self.surprise, self.spread, self.drift, self.wobble, self.noise)
        return BoxEvidence(self.counts, *sums, paired=self.together == {True})


def lifted_all(frame: Level, sums: Array) -> Array:
    """Σ p pᵀ f for every leading index of Σ χ f."""
    flat = sums.reshape(-1, *frame.doubled)
    lifted = [frame.lifted(own) if own.any() else np.zeros((frame.columns.size,) * 2) for own in flat]
    return np.array(lifted).reshape(*sums.shape[: sums.ndim - len(frame.doubled)], *lifted[0].shape)
