"""Residuals of the functions of a class: sums over fresh transitions from which a refutation follows.

With x = h(s) the harmonics of the columns and χ the products of two of them (`functions.frame`), the residual of the
function ψ_i under action c is E_ci = ψ_i(s') − P̂_cψ_i(s), i = 2 … K. The sums add up over pieces of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import Chunk, Piece, chunks_of
from certirl.fit.estimate import MAX_CONDITION
from certirl.functions.frame import frame
from certirl.ground import archive
from certirl.ground.domain import Array, freeze
from certirl.ground.work import fold
from certirl.kernels.sums import LONGEST
from certirl.kernels.tensors import on_host
from certirl.proof.value_cones import Cover

_WORKSPACE, _SHORTEST = 2**19, 512  # numbers worked on at once, and the least rows of a block


@archive.record
@dataclass(frozen=True, eq=False)
class ResidualSums:
    """Sums over fresh transitions for one cover; p = K − 1 functions, k columns.

    Attributes:
        counts: transitions per action ``[A]``.
        gram: Σ χ ``[A, *wide]``, from which Σ x xᵀ follows.
        residuals: Σ E_ci x ``[A, p, k]``.
        moments: Σ χ E_ci E_dj for the pairs of `pairs_of` ``[G, *wide]``.
        paired: every state was tried with every action.
    """

    counts: NDArray[np.int64]
    gram: Array
    residuals: Array
    moments: Array
    paired: bool

    def __post_init__(self) -> None:
        freeze(self)

    def __add__(self, other: ResidualSums) -> ResidualSums:
        if self.paired != other.paired:
            raise ValueError("paired and unpaired data must be used separately")
        names = [field.name for field in fields(self) if field.name != "paired"]
        return ResidualSums(**{name: getattr(self, name) + getattr(other, name) for name in names}, paired=self.paired)


def check_sums(cover: Cover, sums: ResidualSums) -> None:
    """Refuse sums of other functions than those of a cover, and states that cannot tell the columns apart."""
    (A, p, k), wide = cover.fits.shape, frame(cover.columns).wide
    pairs = len(pairs_of(A, p, sums.paired)[0])
    shapes = {"counts": (A,), "gram": (A, *wide), "residuals": (A, p, k), "moments": (pairs, *wide)}
    for name, shape in shapes.items():
        if getattr(sums, name).shape != shape:
            raise ValueError(f"{name} must have the shape {list(shape)}, got {list(getattr(sums, name).shape)}")
    gram = frame(cover.columns).lifted(sums.gram)
    if (sums.counts <= k).any() or not (np.linalg.cond(gram) <= MAX_CONDITION).all():
        raise ValueError("the fresh states cannot tell the columns apart: use more data or fewer columns")


def pairs_of(n_actions: int, functions: int, paired: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The pairs I ≤ J of rows (c, i) of E ``[A·p]`` whose products are summed; of one action only unless paired."""
    first, second = np.triu_indices(n_actions * functions)
    kept = (first // functions == second // functions) | paired
    return first[kept], second[kept]


def gather(covers: Sequence[Cover], stream: Iterable[Piece]) -> tuple[ResidualSums, ...]:
    """Walk through data once for the covers of all components; memory does not grow with the length of the stream."""
    total = fold(partial(_of_chunk, tuple(covers)), chunks_of(stream), _added)
    for cover, sums in zip(covers, total, strict=True):
        check_sums(cover, sums)
    return total


def _added(first: tuple[ResidualSums, ...], second: tuple[ResidualSums, ...]) -> tuple[ResidualSums, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _of_chunk(covers: tuple[Cover, ...], chunk: Chunk) -> tuple[ResidualSums, ...]:
    totals: tuple[ResidualSums, ...] | None = None
    for piece in chunk.pieces():
        new = tuple(_of_piece(cover, piece) for cover in covers)
        totals = new if totals is None else _added(totals, new)
    assert totals is not None  # a chunk is never empty
    return totals


def _of_piece(cover: Cover, whole: Piece) -> ResidualSums:
    """The sums of a piece that holds one action, or all of them in order."""
    own, (A, p, k), group = frame(cover.columns), cover.fits.shape, list(whole.actions)
    if len(group) > 1 and group != list(range(A)):
        raise ValueError(f"a state must be tried with one action or with all {A} in order, got {group}")
    paired = len(group) == A
    first, second = pairs_of(A, p, paired)
    if not paired:  # a single action has residuals of its own only
        chosen = np.flatnonzero(first // p == group[0])
        first, second = first[chosen] - group[0] * p, second[chosen] - group[0] * p
    else:
        chosen = np.arange(len(first))
    counts, gram = np.zeros(A, dtype=np.int64), np.zeros((A, *own.wide))
    residuals, moments = np.zeros((A, p, k)), np.zeros((len(pairs_of(A, p, paired)[0]), *own.wide))
    width = own.wide[-1] if len(own.wide) > 1 else 1  # numbers that `Frame.sums` makes of each weight
    length = int(np.clip(_WORKSPACE // (len(first) * width) // 64 * 64, _SHORTEST, LONGEST))
    batch = max(_WORKSPACE // (length * width), 1)
    view = whole if cover.coordinates is None else whole.view(cover.coordinates)
    for piece in on_host([view], cover.columns.domain, length):
        n, tables = len(piece.states), own.tables(piece.states)
        x = own.of_tables(tables)
        values = cover.functions.values(piece.next_states.reshape(len(group) * n, -1)).T[1:]
        E = values.reshape(p, len(group), n).swapaxes(0, 1) - cover.fits[group] @ x
        counts[group] += n
        gram[group] += own.sums(tables, np.ones((1, n)))[0]
        residuals[group] += E @ x.T
        rows = E.reshape(-1, n)
        for start in range(0, len(first), batch):
            part = slice(start, start + batch)
            moments[chosen[part]] += own.sums(tables, rows[first[part]] * rows[second[part]])
    return ResidualSums(counts, gram, residuals, moments, paired)
