"""Reading bands: where the expert is proved strictly best, by how much, and what it can lose elsewhere.

An expert of one action is compared with every other action over the whole box. For any other the box is cut into cells
(`ExpertGrid`): the *tube* is where it is not proved strictly best, and regret is bounded by what is lost there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import ExpertGrid
from certirl.functions.bases import Basis
from certirl.functions.frame import CellAxes, frame
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, freeze
from certirl.ground.doors import setting
from certirl.proof.bands import Band, Bands


@archive.record
@dataclass(frozen=True, eq=False)
class Tube:
    """Where an expert that switches is not proved strictly best.

    Attributes:
        allowed: the half-width that was asked for.
        undecided: the boxes around its connected pieces ``[t, d, 2]``.
        decided: the cells of the grid in which the expert is proved strictly best ``[cells]``.
        half_width: the farthest an undecided state is from a switch; 0 without any.
        share: of the domain that is undecided.
        shortfall: how much better than the expert's another action can be at worst, divided by γ.
        settled: farther than this from a switch every best policy takes only actions that the expert takes; infinite if
            that is proved nowhere. Elsewhere actions are compared as if the expert were followed afterwards.
        ties: how far actions that the expert mixes can differ; 0 if it never mixes.
        grid: the expert on the grid.
    """

    allowed: float
    undecided: Annotated[Array, Shape("t d 2")]
    decided: Annotated[NDArray[np.bool_], Shape("n")]
    half_width: float
    share: float
    shortfall: float
    settled: float
    ties: float
    grid: ExpertGrid

    def __post_init__(self) -> None:
        freeze(self)

    def times(self, unit: float) -> Tube:
        """The same for a reward that is ``unit`` times as large."""
        return replace(self, shortfall=unit * self.shortfall, ties=unit * self.ties)


class Margin(NamedTuple):
    """A lower bound on D_ba over states: ``estimated`` less the losses.

    Attributes:
        pair: (b, a): b is taken, a is not.
        value: the bound.
        estimated: the estimate that the losses are subtracted from.
        losses: by name.
        state: where that is ``[d]``.
    """

    pair: tuple[int, int]
    value: float
    estimated: float
    losses: dict[str, float]
    state: Array


class Reading(NamedTuple):
    """What bands say about the expert.

    Attributes:
        margins: one for each alternative action of a constant expert, ascending; else the least of all.
        regret: the value lost at worst by following the expert instead of the best policy.
        tube: None for an expert of one action.
    """

    margins: list[Margin]
    regret: float
    tube: Tube | None


def read(
    bands: Bands, grid: ExpertGrid | None, *, expert: int, allowed: float, widths: Array, discount: float
) -> Reading:
    """What bands say about the expert.

    Args:
        bands: around (P_b − P_a)V for every pair of actions.
        grid: the expert on a grid; None if it takes one action everywhere.
        expert: that action.
        allowed: the half-width outside which everything must be proved.
        widths: of the tents whose visits the bands bound ``[w]``.
        discount: γ.
    """
    if grid is not None:
        return _read_cells(bands, grid, allowed, widths, discount)
    margins = []
    for band in bands.pairs:
        b, a = band.pair
        margins.append(_everywhere(band, (b, a), 1.0) if b == expert else _everywhere(band, (a, b), -1.0))
    least = min(margin.value for margin in margins)
    return Reading(margins, discount / (1 - discount) * max(0.0, -least), None)


def _everywhere(band: Band, pair: tuple[int, int], sign: float) -> Margin:
    """The better of two bounds over all states: the least of the curve less the largest radius, or cell by cell."""
    harmonics, side = frame(band.columns), 0 if sign > 0 else 1
    state, estimated = harmonics.minimum(sign * band.curve)
    losses = band.everywhere(side)
    whole = Margin(pair, estimated - sum(losses.values()), estimated, losses, state)
    if not np.isfinite(whole.value):
        return whole
    cells = harmonics.cells()
    values = harmonics.on_axes(harmonics.tensor(sign * band.curve), cells.axes)
    falls, parts = harmonics.fall(band.curve, cells), band.losses_in_cells(cells, side)
    lower = values - falls - sum(parts.values())
    worst = np.unravel_index(int(lower.argmin()), lower.shape)
    if lower[worst] <= whole.value:
        return whole
    return _margin(pair, worst, cells, values, falls, parts)


def _margin(
    pair: tuple[int, int],
    worst: tuple[Any, ...],
    cells: CellAxes,
    values: Array,
    falls: Array,
    parts: dict[str, Array],
) -> Margin:
    """The bound in one cell."""
    losses = {name: float(lost[worst]) for name, lost in parts.items()}
    losses["grid"] += float(falls[worst])
    place = np.array([_without_rounding(axis, axis[i]) for axis, i in zip(cells.axes, worst, strict=True)])
    estimated = float(values[worst])
    return Margin(pair, estimated - sum(losses.values()), estimated, losses, place)


def _without_rounding(axis: Array, place: float) -> float:
    """A place on an axis, 0 where it differs from 0 by rounding only."""
    return 0.0 if abs(place) < 1e-12 * float(np.abs(axis).max()) else float(place)


class _Refined:
    """Cells of the expert's grid, cut into smaller ones where expansions can change fast."""

    def __init__(self, columns: Basis, grid: ExpertGrid) -> None:
        sides = zip(grid.domain, grid.shape, strict=True)
        edges = [np.linspace(low, high, count + 1) for (low, high), count in sides]
        self.cells, self._shape = frame(columns).cells(edges), grid.shape
        pairs = zip(self.cells.axes, edges, strict=True)
        self._cell = [np.searchsorted(ends, axis, side="right") - 1 for axis, ends in pairs]
        self._first = [
            np.searchsorted(numbers, np.arange(count)) for numbers, count in zip(self._cell, grid.shape, strict=True)
        ]

    def spread(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """What holds on the cells of the grid ``[cells]``, on the smaller ones ``[n_1, …, n_d]``."""
        return numbers.reshape(self._shape)[np.ix_(*self._cell)]

    def least(self, numbers: Array) -> Array:
        """The least of the smaller cells in each cell of the grid ``[cells]``."""
        for axis, first in enumerate(self._first):
            numbers = np.minimum.reduceat(numbers, first, axis=axis)
        return numbers.ravel()


def _read_cells(bands: Bands, grid: ExpertGrid, allowed: float, widths: Array, discount: float) -> Reading:
    if allowed < grid.reach:
        raise ValueError(
            f"{setting('tube')} must be at least {grid.reach:.3g}, the size of the cells in which the expert was "
            f"looked up, got {allowed:g}"
        )
    away, taken = grid.away, grid.taken
    outside = away + grid.reach > allowed
    if not outside.any():
        raise ValueError(
            f"every state is within {allowed:g} of a state where the expert switches: write a smaller "
            f"{setting('tube')}, or name an expert that does not switch so often"
        )
    refined = _Refined(bands.pairs[0].columns, grid)
    least, worst = np.full(len(grid.steady), np.inf), Margin((0, 1), np.inf, np.inf, {}, grid.states[0])
    short, ties = np.zeros(len(grid.steady)), 0.0
    for band in bands.pairs:
        harmonics = frame(band.columns)
        values = harmonics.on_axes(harmonics.tensor(band.curve), refined.cells.axes)
        falls = harmonics.fall(band.curve, refined.cells)
        for side, ((b, a), sign) in enumerate(((band.pair, 1.0), (band.pair[::-1], -1.0))):
            parts = band.losses_in_cells(refined.cells, side)
            lower = sign * values - np.asarray(sum(parts.values())) - falls
            bound, strict = refined.least(lower), taken[b] & ~taken[a]
            least = np.minimum(least, np.where(strict, bound, np.inf))
            short = np.maximum(short, np.where(taken[b], -bound, 0.0))
            ties = max(ties, float(np.where(taken[b] & taken[a] & grid.steady, -bound, 0.0).max()))
            if (strict & outside).any() and bound[strict & outside].min() < worst.value:
                asked = np.where(refined.spread(strict & outside), lower, np.inf)
                place = np.unravel_index(int(asked.argmin()), asked.shape)
                worst = _margin((b, a), place, refined.cells, sign * values, falls, parts)
    decided = grid.steady & (least > 0)
    regret = _regret(grid, short, bands.visits, widths, discount)
    # The best policy's value exceeds the expert's by the regret at most, so a margin above it survives the exchange.
    disputed = ~grid.steady | (least <= regret)
    tube = Tube(
        allowed=allowed,
        undecided=grid.pieces(~decided),
        decided=decided,
        half_width=float(np.max(away[~decided] + grid.reach, initial=0.0)),
        share=float(np.mean(~decided)),
        shortfall=float(short.max()),
        settled=float(np.max(away[disputed] + grid.reach, initial=0.0)),
        ties=ties,
        grid=grid,
    )
    return Reading([worst], regret, tube)


def _regret(grid: ExpertGrid, short: Array, visits: Array, widths: Array, discount: float) -> float:
    """The performance difference: γ times the shortfall now, and γ²/(1 − γ) of what is met of it later.

    A tent that covers all shortfall, stretched to do so, is met no more often than its visits.
    """
    now = later = float(short.max())
    if len(widths) and np.isfinite(now):
        for cover, visit in zip(grid.tents(widths), visits, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                stretch = np.where(short > 0, short / cover, 0.0).max()
            if np.isfinite(stretch):
                later = min(later, float(stretch * visit))
    return discount * (now + discount / (1 - discount) * later)
