"""What lower bounds on cells say of the expert: the margin, the tube and the regret, however the bounds were found.

An expert of one action is compared with every other action. For any other the *tube* is where it is not proved strictly
best, and regret is bounded by what is lost there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import ExpertGrid
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array
from certirl.ground.doors import setting
from certirl.ground.records import Record, internal


@archive.record
@dataclass(frozen=True, eq=False)
class Tube(Record):
    """Where an expert that switches is not proved strictly best, or as good as an inexact one must be.

    Attributes:
        allowed: the half-width that was asked for; 0 for all states.
        undecided: the boxes around its connected pieces ``[t, d, 2]``.
        decided: the cells of the grid in which that is proved of the expert ``[cells]``.
        half_width: the farthest an undecided state is from a switch; 0 without any.
        share: of the domain that is undecided.
        shortfall: how much better than the expert's another action can be at worst, divided by γ.
        settled: farther than this from a switch every best policy takes only actions that the expert takes; infinite if
            that is proved nowhere. Elsewhere actions are compared as if the expert were followed afterwards.
        ties: how far actions that the expert mixes can differ; 0 if it never mixes.
        grid: the expert on the grid.

    Example:
        >>> room = certirl.problems.comfort(noise=0.6)
        >>> asked = {"discount": 0.9, "expert": room.expert, "columns": certirl.Legendre(7), "rng": 1}
        >>> certificate = certirl.certify(room.reward, room.dynamics, tail=room.dynamics.tail, samples=20_000, **asked)
        >>> tube = certificate.tube
        >>> tube.half_width > 0, 0 < tube.share <= 1, tube.undecided.shape[1:]
        (True, True, (1, 2))
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

    @internal
    def times(self, unit: float) -> Tube:
        """The same for a reward that is ``unit`` times as large."""
        return replace(self, shortfall=unit * self.shortfall, ties=unit * self.ties)


class Margin(NamedTuple):
    """A lower bound on D_ba over states: ``estimated`` less the losses."""

    pair: tuple[int, int]  # (b, a): b is taken, a is not
    value: float  # the bound
    estimated: float  # the estimate that the losses are subtracted from
    losses: dict[str, float]  # by name
    state: Array  # where that is ``[d]``


class Reading(NamedTuple):
    """What bounds say of the expert."""

    margins: list[Margin]  # one for each alternative action of a constant expert, ascending; else the least of all
    regret: float  # the value lost at worst by following the expert instead of the best policy
    tube: Tube | None  # None for an expert of one action


class PairBounds(NamedTuple):
    """Lower bounds on D_ba, the advantage of action b over action a."""

    pair: tuple[int, int]  # (b, a)
    lower: Array  # in every cell of the expert's grid ``[cells]``
    worst: Callable[[NDArray[np.bool_]], Margin]  # the least of them among some cells, with its parts


def read_cells(
    bounds: Iterable[PairBounds],
    grid: ExpertGrid,
    *,
    allowed: float,
    discount: float,
    later: Callable[[Array], float],
    required: float = 0.0,
) -> Reading:
    """What lower bounds on cells say of the expert: section 10 of docs/notes/certificate.md, and (11).

    The bounds are those of every ordered pair of actions. Of an expert of several actions everything must be proved
    outside a tube of half-width ``allowed``. ``later`` is how much of a shortfall on the cells ``[cells]`` is met in a
    later step at most, infinite if unknown. Bounds must exceed ``required``: 0, or less of an inexact expert, whose
    actions are compared with each other too where it may take several, also beside switches.
    """
    is_constant, taken, cells = len(grid.used) == 1, grid.taken, len(grid.steady)
    outside = np.ones(cells, dtype=bool) if is_constant else outside_of(grid, allowed)
    best, least, short, ties = np.full(cells, np.inf), np.full(cells, np.inf), np.zeros(cells), 0.0
    margins: dict[int, Margin] = {}
    for (b, a), lower, worst in bounds:
        strict = taken[b] & ~taken[a]
        asked = taken[b] if required < 0 else strict
        best = np.minimum(best, np.where(strict, lower, np.inf))
        least = np.minimum(least, np.where(asked, lower, np.inf))
        short = np.maximum(short, np.where(taken[b], -lower, 0.0))
        ties = max(ties, float(np.where(taken[b] & taken[a] & grid.steady, -lower, 0.0).max()))
        if (asked & outside).any():
            margins[a] = min((*filter(None, [margins.get(a)]), worst(asked & outside)), key=_first_least)
    # (8), the performance difference: γ times the shortfall now, and γ²/(1 − γ) of what is met of it later.
    now, regret = float(short.max()), np.inf
    if np.isfinite(now):
        regret = discount * (now + discount / (1 - discount) * min(now, later(short)))
    if is_constant:
        return Reading([margins[a] for a in sorted(margins)], regret, None)
    none = Margin((0, 1), np.inf, np.inf, {}, grid.states[0])  # the expert takes every action
    decided = least > required if required < 0 else grid.steady & (least > 0)
    # The best policy's value exceeds the expert's by the regret at most, so a margin above it survives the exchange.
    disputed = ~grid.steady | (best <= regret)
    tube = Tube(
        allowed=allowed,
        undecided=grid.pieces(~decided),
        decided=decided,
        half_width=float(np.max(grid.away[~decided] + grid.reach, initial=0.0)),
        share=float(np.mean(~decided)),
        shortfall=now,
        settled=float(np.max(grid.away[disputed] + grid.reach, initial=0.0)),
        ties=ties,
        grid=grid,
    )
    return Reading([min(margins.values(), key=_first_least, default=none)], regret, tube)


def _first_least(margin: Margin) -> tuple[float, float]:
    """The order of margins: by bounds, and by estimates where nothing is bounded."""
    return margin.value, margin.estimated


def least_by_action(
    taken: NDArray[np.bool_], pairs: Iterable[tuple[tuple[int, int], tuple[Array, ...]]], kinds: int = 2
) -> Array:
    """The least of what several kinds of numbers on D_ba say of each action a at states, over actions b that are taken.

    ``taken`` are the expert's actions there ``[A, n]``, ``pairs`` the numbers of every ordered pair (b, a), ``[n]`` of
    each kind. The result is ``[kinds, A, n]``, NaN for actions that are taken.
    """
    least = np.full((kinds, *taken.shape), np.inf)
    for (b, a), numbers in pairs:
        for bound, value in zip(least, numbers, strict=True):
            bound[a] = np.where(taken[b], np.minimum(bound[a], value), bound[a])
    least[:, taken] = np.nan
    return least


def outside_of(grid: ExpertGrid, allowed: float) -> NDArray[np.bool_]:
    """The cells with states farther than a half-width from the switches ``[cells]``; refused if there are none.

    All of them for a half-width of 0, of an inexact expert.
    """
    if 0 < allowed < grid.reach:
        raise ValueError(
            f"{setting('tube')} must be at least {grid.reach:.3g}, the size of the cells in which the expert was "
            f"looked up, got {allowed:g}"
        )
    outside = np.asarray(grid.away + grid.reach > allowed)
    if not outside.any():
        raise ValueError(
            f"every state is within {allowed:g} of a state where the expert switches: write a smaller "
            f"{setting('tube')}, or name an expert that does not switch so often"
        )
    return outside
