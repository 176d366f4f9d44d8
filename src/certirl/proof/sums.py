"""Sums over fresh transitions from which certificates and refutations follow. They add up over pieces of data.

With x = h(s) and χ the products of two harmonics (`functions.frame`), the residual of action c is Y_c = V̂(s') −
P̂_cV̂(s), and that of a function f is E_c(f) = f(s') − P̂_cf(s).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import kernel_for
from certirl.data.transitions import CHUNK, Chunk, Piece, chunks_of
from certirl.fit.bellman import MAX_CONDITION, indistinct
from certirl.functions.bases import Basis
from certirl.functions.frame import frame
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array
from certirl.ground.records import Record, internal
from certirl.ground.work import fold
from certirl.kernels.sums import LONGEST, compiled_module
from certirl.kernels.tensors import on_host
from certirl.proof.surrogate import Surrogate
from certirl.proof.value_cones import Cover

_SumsOf = TypeVar("_SumsOf", bound="Sums")
# Numbers worked on at once, few enough to stay in cache, and the least rows of a block.
_WORKSPACE, SHORTEST = 2**18, 512


@dataclass(frozen=True, eq=False)
class Sums(Record):
    """Sums over transitions, added field by field."""

    counts: Annotated[NDArray[np.int64], Shape("A")]  # transitions per action ``[A]``
    gram: Annotated[Array, Shape("A …")]  # Σ χ ``[A, *wide]``, from which Σ x xᵀ follows
    paired: bool  # every state was tried with every action

    def __add__(self, other: Self) -> Self:
        if self.paired != other.paired:
            raise ValueError("paired and unpaired data must be certified separately")
        names = [field.name for field in fields(self) if field.name != "paired"]
        both = {name: (getattr(self, name), getattr(other, name)) for name in names}
        if any(np.shape(one) != np.shape(two) for one, two in both.values()):
            raise ValueError("sums add up only where the same was fixed before the data")
        sums: dict[str, Any] = {name: None if one is None else one + two for name, (one, two) in both.items()}
        return type(self)(**sums, paired=self.paired)

    def determine(self, columns: Basis) -> bool:
        """Whether the states are enough, and spread enough, to tell the columns apart."""
        return not self._undetermined(columns).any()

    def _undetermined(self, columns: Basis) -> NDArray[np.bool_]:
        """The actions whose states do not tell the columns apart ``[A]``."""
        gram = frame(columns).lifted(self.gram)
        return np.asarray((self.counts < columns.size) | ~(np.linalg.cond(gram) <= MAX_CONDITION))

    def check_determine(self, columns: Basis, name: str = "", *, kind: str = "fresh") -> None:
        """Refuse states of this ``kind`` that cannot tell the columns, of a component with this name, apart."""
        few = self._undetermined(columns)
        if few.any():
            action = int(few.argmax())
            sentence = indistinct(action, columns.size, int(self.counts[action]), kind)
            raise ValueError(f"{name}: {sentence}" if name else sentence)


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class Evidence(Sums):
    """Sums over fresh transitions for one surrogate, with P pairs of actions (`Surrogate.pairs`)."""

    residuals: Annotated[Array, Shape("A k")]  # Σ x Y_c ``[A, k]``
    residual_moments: Annotated[Array, Shape("P …")]  # Σ χ Y_cY_d ``[P, *wide]``
    # Σ χ (Y_cE_d(f_i) + E_c(f_i)Y_d)/2 for i = 1, …, r ``[P, r, *wide]``
    cross_moments: Annotated[Array, Shape("P r …")]
    # Σ χ Y_bY_cY_d and Σ χ Y_aY_bY_cY_d for the actions of `Surrogate.tuples`, χ the products of four harmonics ``[H,
    # *wider]``; None unless `Surrogate.powers`
    powers: Annotated[Array | None, Shape("H …")]
    operator_residuals: Annotated[Array, Shape("A m k")]  # Σ E_c(π_d h_j) x ``[A, m, k]``
    # Σ χ Σ_i E_c(f_i)E_d(f_i) over i ≥ 1 ``[P, *wide]``; none for a pointwise surrogate
    operator_moments: Annotated[Array, Shape("O …")]
    visits: Annotated[Array, Shape("A w k")]  # Σ x O_cw, O_cw the residual of a tent ``[A, w, k]``
    visit_moments: Annotated[Array, Shape("A w …")]  # Σ χ O_cw² ``[A, w, *wide]``
    # Σ ψ_i(s') for the functions ψ of a reward that is an expansion ``[A, k_R]``, else empty: no bound needs them, but
    # with them ΣY follows from R, which ties R to the sums
    reached: Annotated[Array, Shape("A K")]


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class ResidualSums(Sums):
    """Sums over fresh transitions for one cover; p = K − 1 functions ψ_2 … ψ_K, k columns."""

    residuals: Array  # Σ E_c(ψ_i) x ``[A, p, k]``
    moments: Array  # Σ χ E_c(ψ_i)E_d(ψ_j) for the pairs of `row_pairs` ``[G, *wide]``


def row_pairs(n_actions: int, functions: int, paired: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The pairs I ≤ J of rows (c, i) of E ``[A·p]`` whose products are summed; of one action only unless paired."""
    first, second = np.triu_indices(n_actions * functions)
    kept = (first // functions == second // functions) | paired
    return first[kept], second[kept]


def gather(surrogates: Sequence[Surrogate], stream: Iterable[Piece]) -> tuple[Evidence, ...]:
    """Walk through data once for all surrogates, each of which looks at its own coordinates."""
    chunks = chunks_of(stream)
    compiled = kernel_for(chunks, 3 * max(surrogate.columns.size for surrogate in surrogates)) is None
    return _walked(chunks, [partial(_EvidenceTotals, surrogate, compiled=compiled) for surrogate in surrogates])


def gather_residuals(covers: Sequence[Cover], stream: Iterable[Piece]) -> tuple[ResidualSums, ...]:
    """Walk through data once for the covers of all components."""
    return _walked(chunks_of(stream), [partial(_ResidualTotals, cover) for cover in covers])


def _walked(chunks: Sequence[Chunk], start: Sequence[Callable[[], _Totals[_SumsOf]]]) -> tuple[_SumsOf, ...]:
    """Sums of all chunks, which are worked on side by side; memory does not grow with the length of the stream."""
    sums: tuple[_SumsOf, ...] = fold(partial(_of_chunk, tuple(start)), chunks, _added)
    if (sums[0].counts == 0).any():
        raise ValueError(f"action {int(sums[0].counts.argmin())} was never tried: nothing can be said about it")
    return sums


def _of_chunk(start: tuple[Callable[[], _Totals[_SumsOf]], ...], chunk: Chunk) -> tuple[_SumsOf, ...]:
    totals = [empty() for empty in start]
    for piece in chunk.pieces():
        for total in totals:
            view = piece if total.coordinates is None else piece.view(total.coordinates)
            for held in on_host([view], total.domain, total.length):
                total.take(held)
    return tuple(total.sums() for total in totals)


def _added(first: tuple[_SumsOf, ...], second: tuple[_SumsOf, ...]) -> tuple[_SumsOf, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))


class _Totals(Generic[_SumsOf]):
    """Sums in the making, of the coordinates of one component.

    Attributes:
        coordinates: of whole states; None for all.
        domain: their box.
        length: the most rows to take at once.
    """

    length: int

    def __init__(self, fixed: Surrogate | Cover, n_actions: int) -> None:
        self.coordinates, self.domain, self.frame = fixed.coordinates, fixed.columns.domain, frame(fixed.columns)
        self._counts, self._groups = np.zeros(n_actions, dtype=np.int64), set[int]()
        self._gram = np.zeros((n_actions, *self.frame.wide))

    def take(self, piece: Piece) -> None:
        """Add a piece that holds one action, or all of them in order."""
        group, A = list(piece.actions), len(self._counts)
        if len(group) > 1 and group != list(range(A)):
            raise ValueError(f"a state must be tried with one action or with all {A} in order, got {group}")
        self._groups.add(len(group))
        if len(self._groups) > 1:
            raise ValueError("paired and unpaired data must be certified separately")
        self._counts[group] += len(piece.states)
        self._add(group, piece.states, piece.next_states)

    def _add(self, group: list[int], states: Array, next_states: Array) -> None:
        raise NotImplementedError

    def sums(self) -> _SumsOf:
        """What has been added."""
        raise NotImplementedError

    @property
    def _paired(self) -> bool:
        return self._groups == {len(self._counts)}


class _EvidenceTotals(_Totals[Evidence]):
    """Evidence in the making."""

    def __init__(self, surrogate: Surrogate, *, compiled: bool) -> None:
        s = self.s = surrogate
        super().__init__(s, s.n_actions)
        self._kernel = _kernel() if compiled and s.evaluation.alone is not None else None
        self._fused: dict[tuple[int, ...], Any] = {}
        self.evaluation = s.evaluation
        A, k, r, m, w, wide = s.n_actions, s.columns.size, s.directions, s.Z.shape[1], len(s.widths), s.frame.wide
        fits = s.fits[:, None]  # of f_1, …, f_{m−1} and V̂ [A, m, k], or of V̂ alone
        lean = s.pointwise and self._kernel is None
        self._fits = fits if lean else np.concatenate([s.mix[1:] @ s.Z, fits], axis=1)
        self._pairs, self._tuples = s.pairs(True), s.tuples(True)
        self._residuals, self._cross = np.zeros((A, k)), np.zeros((A, m, k))
        self._moments = np.zeros((len(self._pairs), r + 2, *wide))  # those of V̂, of the f_i together, cross moments
        self._powers = np.zeros((len(self._tuples), *s.frame.wider))
        self._visits, self._visit_moments = np.zeros((A, w, k)), np.zeros((A, w, *wide))
        self._reached = np.zeros((A, self.evaluation.reached))
        rows = 1 + len(self._pairs) * (r + 2) + A * w + len(self._powers)
        numbers = sum(wide) + 3 * A * m + rows * (1 if len(wide) == 1 else wide[-1])
        cached = int(np.clip(_WORKSPACE // numbers // 64 * 64, SHORTEST, LONGEST))
        self.length = cached if self._kernel is None else CHUNK  # the compiled kernel cuts blocks itself

    def _add(self, group: list[int], states: Array, next_states: Array) -> None:
        (self._add_blocks if self._kernel is None else self._add_fused)(group, states, next_states)

    def _add_fused(self, group: list[int], states: Array, next_states: Array) -> None:
        """Add to the sums of the compiled kernel, which takes one coordinate, one action and a reward of the family."""
        (part,), places = self.frame.parts, self._places(group, self._pairs)
        if tuple(group) not in self._fused:
            assert self.s.evaluation.alone is not None
            rows, count = self.s.evaluation.alone
            pairs = np.array([[group.index(c) for c in self._pairs[place]] for place in places])
            chosen = [[group.index(c) for c in self._tuples[place]] for place in self._places(group, self._tuples)]
            tuples = np.array([(*each, -1)[:4] for each in chosen]).reshape(-1, 4)
            counts = self.frame.wide[0], count, self.frame.wider[0]
            fits, crossed = self._fits[group], self.s.directions > 0
            self._fused[tuple(group)] = _kernel().Residuals(counts, part.periodic, rows, fits, pairs, crossed, tuples)
        points = part._to_reference(np.concatenate([states[None], next_states])[:, :, 0])
        self._fused[tuple(group)].add(points.clip(-1.0, 1.0, out=points))

    def _places(self, group: list[int], tuples: Sequence[tuple[int, ...]]) -> list[int]:
        """The pairs or tuples of actions within a group, by their numbers."""
        return [place for place, actions in enumerate(tuples) if set(actions) <= set(group)]

    def _collect(self) -> None:
        """Move what the compiled kernel has summed up to the sums of this object."""
        k = self.s.columns.size
        for key, fused in self._fused.items():
            group = list(key)
            chi, products, values, reached, cross, powers = fused.sums()
            self._gram[group] += chi
            self._moments[self._places(group, self._pairs)] += products
            if self._tuples:
                self._powers[self._places(group, self._tuples)] += powers
            self._residuals[group] += values[:, :k]
            self._reached[group] += self.s.evaluation.totals_of(reached.T)
            self._cross[group] += cross
        self._fused.clear()

    def _add_blocks(self, group: list[int], states: Array, next_states: Array) -> None:
        s, r, n, g = self.s, self.s.directions, len(states), len(group)
        wide = self.frame.wide
        wider = self.frame.tables(states, self.frame.wider if len(self._tuples) else wide)
        tables = [table[:count] for table, count in zip(wider, wide, strict=True)]
        x = self.frame.of_tables(tables)
        ends = next_states.reshape(g * n, -1)
        values, pieces, h = self.evaluation(ends)
        residuals = values.reshape(-1, g, n).swapaxes(0, 1) - self._fits[group] @ x  # [g, m, n]
        places, tuples = self._places(group, self._pairs), self._places(group, self._tuples)
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
        if tuples:
            of_value = [residuals[[group.index(c) for c in self._tuples[place]], -1].prod(axis=0) for place in tuples]
            self._powers[tuples] += self.frame.sums(wider, np.stack(of_value))
        self._moments[places] += sums[1 : 1 + len(places) * (r + 2)].reshape(len(places), r + 2, *wide)
        self._visit_moments[group] += sums[1 + len(places) * (r + 2) :].reshape(g, -1, *wide)

    def sums(self) -> Evidence:
        """What has been added."""
        self._collect()
        s, paired = self.s, self._paired
        moments = self._moments[[self._pairs.index(pair) for pair in s.pairs(paired)]]
        different, kept = [c != d for c, d in s.pairs(paired)], s.tuples(paired)
        moments[different, 2:] /= 2
        return Evidence(
            counts=self._counts,
            gram=self._gram,
            residuals=self._residuals,
            residual_moments=moments[:, 0],
            cross_moments=moments[:, 2:],
            powers=self._powers[[self._tuples.index(actions) for actions in kept]] if s.powers else None,
            operator_residuals=self._cross - s.Z @ s.frame.lifted(self._gram),
            operator_moments=moments[: 0 if s.pointwise else None, 1],
            visits=self._visits,
            visit_moments=self._visit_moments,
            reached=self._reached,
            paired=paired,
        )


class _ResidualTotals(_Totals[ResidualSums]):
    """The sums of a refutation in the making."""

    def __init__(self, cover: Cover) -> None:
        A, p, k = cover.fits.shape
        super().__init__(cover, A)
        self._cover, self._residuals = cover, np.zeros((A, p, k))
        self._moments = np.zeros((0, *self.frame.wide))
        # Numbers that `Frame.sums` makes of each weight, and pairs whose products are made at once.
        width = self.frame.wide[-1] if len(self.frame.wide) > 1 else 1
        self._products = 2 * _WORKSPACE // width
        self.length = int(np.clip(self._products // (p * (p + 1) // 2) // 64 * 64, SHORTEST, LONGEST))

    def _add(self, group: list[int], states: Array, next_states: Array) -> None:
        cover, (A, p, _), n = self._cover, self._cover.fits.shape, len(states)
        first, second = row_pairs(A, p, self._paired)
        if not len(self._moments):
            self._moments = np.zeros((len(first), *self.frame.wide))
        chosen = np.flatnonzero(np.isin(first // p, group))
        tables = self.frame.tables(states)
        x = self.frame.of_tables(tables)
        values = cover.functions.values(next_states.reshape(len(group) * n, -1)).T[1:]
        residuals = np.zeros((A, p, n))
        residuals[group] = values.reshape(p, len(group), n).swapaxes(0, 1) - cover.fits[group] @ x
        self._gram[group] += self.frame.sums(tables, np.ones((1, n)))[0]
        self._residuals[group] += residuals[group] @ x.T
        rows, batch = residuals.reshape(A * p, n), max(self._products // n, 1)
        for pairs in np.split(chosen, range(batch, len(chosen), batch)):
            self._moments[pairs] += self.frame.sums(tables, rows[first[pairs]] * rows[second[pairs]])

    def sums(self) -> ResidualSums:
        """What has been added."""
        return ResidualSums(
            counts=self._counts,
            gram=self._gram,
            residuals=self._residuals,
            moments=self._moments,
            paired=self._paired,
        )


def sum_error(count: float, harmonics: int) -> float:
    """The error of Σ χ f over ``count`` transitions, relative to sup|χ| Σ|f|.

    No number goes through more than LONGEST additions within a block and one for each block. M harmonics come by
    recurrences and are off by 2M² roundings at most before they are added.
    """
    return float((LONGEST + count / SHORTEST + 2 * harmonics**2) * np.finfo(float).eps)


def _kernel() -> Any:
    """The compiled kernel, or None where there is none; asked again each time, as numba can be installed meanwhile."""
    try:
        return compiled_module("fused")
    except ImportError:
        return None
