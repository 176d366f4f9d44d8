"""Evidence: sums over fresh transitions that say how wrong a surrogate is. They add up over pieces of data.

With x = h(s) and χ the products of two harmonics (`functions.frame`), the residual of action c is Y_c = V̂(s') −
P̂_cV̂(s), and that of a function f is E_c(f) = f(s') − P̂_cf(s).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import worthwhile
from certirl.data.transitions import CHUNK, Chunk, Piece, chunks_of
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, freeze
from certirl.ground.work import fold
from certirl.kernels.sums import compiled_module
from certirl.kernels.tensors import on_host
from certirl.proof.surrogate import Surrogate

# Numbers worked on at once, few enough to stay in cache, and the least and the most rows of a block.
_WORKSPACE, SHORTEST, LONGEST = 2**18, 512, 8192


@archive.record
@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums over fresh transitions for one surrogate, with P pairs of actions (`Surrogate.pairs`).

    Attributes:
        counts: transitions per action ``[A]``.
        gram: Σ χ ``[A, *wide]``, from which Σ x xᵀ follows.
        residuals: Σ x Y_c ``[A, k]``.
        residual_moments: Σ χ Y_cY_d ``[P, *wide]``.
        cross_moments: Σ χ (Y_cE_d(f_i) + E_c(f_i)Y_d)/2 for i = 1, …, r ``[P, r, *wide]``.
        operator_residuals: Σ E_c(π_d h_j) x ``[A, m, k]``.
        operator_moments: Σ χ Σ_i E_c(f_i)E_d(f_i) over i ≥ 1 ``[P, *wide]``.
        visits: Σ x O_cw, O_cw the residual of a tent ``[A, w, k]``.
        visit_moments: Σ χ O_cw² ``[A, w, *wide]``.
        reached: Σ ψ_i(s') for the functions ψ of a reward that is an expansion ``[A, k_R]``, else empty: no bound needs
            them, but with them ΣY follows from R, which ties R to the sums.
        paired: every state was tried with every action.
    """

    counts: Annotated[NDArray[np.int64], Shape("A")]
    gram: Annotated[Array, Shape("A …")]
    residuals: Annotated[Array, Shape("A k")]
    residual_moments: Annotated[Array, Shape("P …")]
    cross_moments: Annotated[Array, Shape("P r …")]
    operator_residuals: Annotated[Array, Shape("A m k")]
    operator_moments: Annotated[Array, Shape("P …")]
    visits: Annotated[Array, Shape("A w k")]
    visit_moments: Annotated[Array, Shape("A w …")]
    reached: Annotated[Array, Shape("A K")]
    paired: bool

    def __post_init__(self) -> None:
        freeze(self)

    def __add__(self, other: Evidence) -> Evidence:
        if self.paired != other.paired:
            raise ValueError("paired and unpaired data must be certified separately")
        names = [field.name for field in fields(self) if field.name != "paired"]
        if any(getattr(self, name).shape != getattr(other, name).shape for name in names):
            raise ValueError("evidence adds up only for the same surrogate")
        return Evidence(**{name: getattr(self, name) + getattr(other, name) for name in names}, paired=self.paired)


def gather(surrogates: Sequence[Surrogate], stream: Iterable[Piece]) -> tuple[Evidence, ...]:
    """Walk through fresh data once for several surrogates, each of which looks at its own coordinates.

    Memory does not grow with the length of the stream; chunks are worked on side by side.
    """
    chunks = chunks_of(stream)
    compiled = worthwhile(chunks, 3 * max(surrogate.columns.size for surrogate in surrogates)) is None
    evidence = fold(partial(_of_chunk, tuple(surrogates), compiled), chunks, _added)
    counts = evidence[0].counts
    if (counts == 0).any():
        raise ValueError(f"action {int(counts.argmin())} was never tried: nothing can be said about it")
    return evidence


def _of_chunk(surrogates: tuple[Surrogate, ...], compiled: bool, chunk: Chunk) -> tuple[Evidence, ...]:
    sums = [_Sums(surrogate, compiled=compiled) for surrogate in surrogates]
    for piece in chunk.pieces():
        for total in sums:
            view = piece if total.s.coordinates is None else piece.view(total.s.coordinates)
            for held in on_host([view], total.s.columns.domain, total.length if total.blocked else CHUNK):
                total.take(held)
    return tuple(total.evidence() for total in sums)


def _added(one: tuple[Evidence, ...], other: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


class _Sums:
    """Evidence in the making."""

    def __init__(self, surrogate: Surrogate, *, compiled: bool) -> None:
        s = self.s = surrogate
        self._kernel = _kernel() if compiled and s.evaluation.alone is not None else None
        self._fused: dict[tuple[int, ...], Any] = {}
        self.frame, self.evaluation = s.frame, s.evaluation
        A, k, r, m, w, wide = s.n_actions, s.columns.size, s.directions, s.Z.shape[1], len(s.widths), s.frame.wide
        self._fits = np.concatenate([s.mix[1:] @ s.Z, s.fits[:, None]], axis=1)  # of f_1, …, f_{m−1} and V̂ [A, m, k]
        self._pairs = s.pairs(True)
        self._counts, self._groups = np.zeros(A, dtype=np.int64), set[int]()
        self._gram, self._residuals, self._cross = np.zeros((A, *wide)), np.zeros((A, k)), np.zeros((A, m, k))
        self._moments = np.zeros((len(self._pairs), r + 2, *wide))  # those of V̂, of the f_i together, cross moments
        self._visits, self._visit_moments = np.zeros((A, w, k)), np.zeros((A, w, *wide))
        self._reached = np.zeros((A, self.evaluation.reached))
        rows = 1 + len(self._pairs) * (r + 2) + A * w
        numbers = sum(wide) + 3 * A * m + rows * (1 if len(wide) == 1 else wide[-1])
        self.length = int(np.clip(_WORKSPACE // numbers // 64 * 64, SHORTEST, LONGEST))

    @property
    def blocked(self) -> bool:
        """Whether pieces should be cut to blocks that stay in the cache."""
        return self._kernel is None

    def take(self, piece: Piece) -> None:
        """Add a piece that holds one action, or all of them in order."""
        group, A = list(piece.actions), len(self._counts)
        if len(group) > 1 and group != list(range(A)):
            raise ValueError(f"a state must be tried with one action or with all {A} in order, got {group}")
        self._groups.add(len(group))
        if len(self._groups) > 1:
            raise ValueError("paired and unpaired data must be certified separately")
        self._counts[group] += len(piece.states)
        (self._add if self._kernel is None else self._add_fused)(group, piece.states, piece.next_states)

    def _add_fused(self, group: list[int], states: Array, next_states: Array) -> None:
        """Add to the sums of the compiled kernel, which takes one coordinate, one action and a reward of the family."""
        (part,), places = self.frame.parts, self._places(group)
        if tuple(group) not in self._fused:
            assert self.s.evaluation.alone is not None
            rows, count = self.s.evaluation.alone
            pairs = np.array([[group.index(c) for c in self._pairs[place]] for place in places])
            counts = self.frame.wide[0], count
            fits, crossed = self._fits[group], self.s.directions > 0
            self._fused[tuple(group)] = _kernel().Residuals(counts, part.periodic, rows, fits, pairs, crossed)
        points = np.concatenate([states[None], next_states])[:, :, 0]
        self._fused[tuple(group)].add(np.clip(part._to_reference(points), -1.0, 1.0))

    def _places(self, group: list[int]) -> list[int]:
        """The pairs of actions within a group, by their numbers."""
        return [place for place, pair in enumerate(self._pairs) if set(pair) <= set(group)]

    def _collect(self) -> None:
        """Move what the compiled kernel has summed up to the sums of this object."""
        k = self.s.columns.size
        for key, fused in self._fused.items():
            group = list(key)
            chi, products, values, reached, cross = fused.sums()
            self._gram[group] += chi
            self._moments[self._places(group)] += products
            self._residuals[group] += values[:, :k]
            self._reached[group] += self.s.evaluation.totals_of(reached.T)
            self._cross[group] += cross
        self._fused.clear()

    def _add(self, group: list[int], states: Array, next_states: Array) -> None:
        s, r, n, g = self.s, self.s.directions, len(states), len(group)
        tables = self.frame.tables(states)
        x = self.frame.of_tables(tables)
        ends = next_states.reshape(g * n, -1)
        values, pieces, h = self.evaluation(ends)
        residuals = values.reshape(-1, g, n).swapaxes(0, 1) - self._fits[group] @ x  # [g, m, n]
        places = self._places(group)
        weights = np.empty((1 + len(places) * (r + 2) + g * len(s.widths), n))
        weights[0] = 1.0
        products = weights[1 : 1 + len(places) * (r + 2)].reshape(len(places), r + 2, n)
        for out, place in zip(products, places, strict=True):
            c, d = (group.index(action) for action in self._pairs[place])
            np.multiply(residuals[c, -1], residuals[d, -1], out=out[0])
            np.einsum("in,in->n", residuals[c, :-1], residuals[d, :-1], out=out[1])
            if r:
                np.multiply(residuals[c, :-1], residuals[d, -1], out=out[2:])
                if c != d:
                    out[2:] += residuals[c, -1] * residuals[d, :-1]
        if s.widths.size:
            visits = s.tents(ends).reshape(-1, g, n).swapaxes(0, 1) - s.tent_fits[group] @ x
            np.multiply(visits, visits, out=weights[1 + len(places) * (r + 2) :].reshape(visits.shape))
            self._visits[group] += visits @ x.T
        sums = self.frame.sums(tables, weights)
        self._gram[group] += sums[0]
        self._residuals[group] += residuals[:, -1] @ x.T
        self._cross[group] += pieces.reshape(-1, g, n).swapaxes(0, 1) @ x.T
        self._reached[group] += self.evaluation.totals(next_states, h)
        wide = self.frame.wide
        self._moments[places] += sums[1 : 1 + len(places) * (r + 2)].reshape(len(places), r + 2, *wide)
        self._visit_moments[group] += sums[1 + len(places) * (r + 2) :].reshape(g, -1, *wide)

    def evidence(self) -> Evidence:
        """What has been added."""
        self._collect()
        s, paired = self.s, self._groups == {len(self._counts)}
        moments = self._moments[[self._pairs.index(pair) for pair in s.pairs(paired)]]
        different = [c != d for c, d in s.pairs(paired)]
        moments[different, 2:] /= 2
        return Evidence(
            counts=self._counts,
            gram=self._gram,
            residuals=self._residuals,
            residual_moments=moments[:, 0],
            cross_moments=moments[:, 2:],
            operator_residuals=self._cross - s.Z @ s.frame.lifted(self._gram),
            operator_moments=moments[:, 1],
            visits=self._visits,
            visit_moments=self._visit_moments,
            reached=self._reached,
            paired=paired,
        )


def sum_error(counts: Array, columns: int) -> float:
    """The error of Σ χ f taken in blocks, relative to sup|χ| Σ|f|.

    No number goes through more than LONGEST additions within a block and one for each block. Products with 2k − 1
    harmonics, which come by recurrences, are off by 2(2k − 1)² roundings at most before they are added.
    """
    return float((LONGEST + float(counts.max()) / SHORTEST + 2 * (2 * columns - 1) ** 2) * np.finfo(float).eps)


def summation_error(counts: Array, gram: Array) -> float:
    """The relative error of a least-squares answer from sums taken in blocks: generous, not a proof."""
    columns = gram.shape[-1]
    return float(sum_error(counts, columns) * columns**2 * np.linalg.cond(gram).max())


def _kernel() -> Any:
    """The compiled kernel, or None where there is none; asked again each time, as numba can be installed meanwhile."""
    try:
        return compiled_module("fused")
    except ImportError:
        return None
