"""Where an expert is proved strictly best, where not, and what that can cost: bands read off cell by cell.

The states are cut into cells (`ExpertGrid`). On each, every band is bounded below over the whole cell by its middle and
by how far it can fall from there; what the expert does is known at the corners.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from certirl.data.expert_grid import ExpertGrid
from certirl.functions.frames import frame
from certirl.ground.domain import Array
from certirl.ground.doors import setting
from certirl.proof.policy_bounds import Bands


@dataclass(frozen=True, eq=False)
class Tube:
    """What the bands say, cell by cell.

    Attributes:
        margin: the least D_a(s) farther than ``allowed`` from all switches, a lower bound.
        allowed: the half-width that was asked for.
        estimated, state, action, losses: where that is: the estimate, the state, the rival, and what is taken off.
        undecided: the tube: intervals in which the expert is not proved strictly best ``[t, 2]``; on a box the boxes
            around its connected pieces ``[t, d, 2]``.
        decided: the cells in which it is ``[cells]``.
        half_width: the farthest an undecided state is from a switch; 0 without any.
        share: of the domain that is undecided.
        shortfall: how much better than the expert's another action can be at worst, divided by γ.
        regret: the value lost at worst by following the expert instead of the best policy.
        settled: farther than this from a switch every best policy takes only actions that the expert takes; infinite if
            that is nowhere known. Elsewhere they are compared on the premise that the expert is followed afterwards.
        ties: how far actions that the expert mixes can differ; 0 if it never mixes.
    """

    margin: float
    allowed: float
    estimated: float
    state: Array
    action: int
    losses: dict[str, float]
    undecided: Array
    decided: NDArray[np.bool_]
    half_width: float
    share: float
    shortfall: float
    regret: float
    settled: float
    ties: float

    def times(self, unit: float) -> Tube:
        """The same for a reward that is ``unit`` times as large."""
        losses = {name: unit * value for name, value in self.losses.items()}
        names = ("margin", "estimated", "shortfall", "regret", "ties")
        return replace(self, losses=losses, **{name: unit * getattr(self, name) for name in names})


def read_tube(bands: Bands, lookup: ExpertGrid, *, allowed: float, widths: Array, discount: float) -> Tube:
    """Where the expert is proved strictly best, and what it can lose elsewhere.

    Args:
        bands: around (P_b − P_a)V for every pair of actions.
        lookup: the expert.
        allowed: the half-width outside which everything must be proved.
        widths: of the tents whose visits the bands bound ``[w]``.
        discount: γ.
    """
    A, cells = lookup.support.shape[-1], len(lookup.states)
    centre, lower, by_pair = np.zeros((A, A, cells)), np.full((A, A, cells), np.inf), {}
    for band in bands.pairs:
        (b, a), falls = band.pair, frame(band.columns).variation(band.curve, lookup.states, lookup.half)
        radius = band.radius(lookup.states, lookup.half) + falls
        centre[b, a] = band.estimate(lookup.states)
        centre[a, b] = -centre[b, a]
        for pair in ((b, a), (a, b)):
            by_pair[pair] = band, falls
            lower[pair] = centre[pair] - radius
    if allowed < lookup.reach:
        raise ValueError(
            f"{setting('tube')} must be at least {lookup.reach:.3g}, the size of the cells in which the expert was "
            f"looked up, got {allowed:g}"
        )
    away, taken = lookup.away, lookup.taken
    strict = taken[:, None] & ~taken[None]  # b is taken, a is not
    proved = np.where(strict, lower, np.inf)
    decided = lookup.steady & (proved.min(axis=(0, 1)) > 0)
    outside = away + lookup.reach > allowed
    if not outside.any():
        raise ValueError(
            f"every state is within {allowed:g} of a state where the expert switches: write a smaller "
            f"{setting('tube')}, or name an expert that does not switch so often"
        )
    first, second, cell = np.unravel_index(np.where(outside, proved, np.inf).argmin(), lower.shape)
    worst = (int(first), int(second)) if first != second else (0, 1)
    band, falls = by_pair[worst]
    losses = {name: float(lost[0]) for name, lost in band.losses(lookup.states[[cell]], lookup.half).items()}
    losses["grid"] += float(falls[cell])
    short = np.maximum(0.0, np.where(taken[:, None], -lower, -np.inf).max(axis=(0, 1)))
    mixed = np.where(taken[:, None] & taken[None] & lookup.steady & ~np.eye(A, dtype=bool)[:, :, None], -lower, 0.0)
    lost = _regret(lookup, short, bands.visits, widths, discount)
    # The best policy's value exceeds the expert's by the regret at most, so a margin above it survives the exchange.
    pieces, disputed = lookup.pieces(~decided), ~lookup.steady | (proved.min(axis=(0, 1)) <= lost)
    return Tube(
        margin=float(np.where(outside, proved, np.inf).min()),
        allowed=allowed,
        estimated=float(centre[*worst, cell]),
        state=lookup.states[cell],
        action=worst[1],
        losses=losses,
        undecided=pieces[:, 0] if len(lookup.domain) == 1 else pieces,
        decided=decided,
        half_width=float(np.max(away[~decided] + lookup.reach, initial=0.0)),
        share=float(np.mean(~decided)),
        shortfall=float(short.max()),
        regret=lost,
        settled=float(np.max(away[disputed] + lookup.reach, initial=0.0)),
        ties=float(mixed.max()),
    )


def _regret(lookup: ExpertGrid, short: Array, visits: Array, widths: Array, discount: float) -> float:
    """The performance difference: γ times the shortfall now, and γ²/(1 − γ) of what is met of it later.

    A tent that covers all shortfall, stretched to do so, is met no more often than its visits.
    """
    now, later = float(short.max()), float(short.max())
    if len(widths) and len(lookup.switches) and np.isfinite(now):
        for cover, visit in zip(_tents(lookup, widths), visits, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                stretch = np.where(short > 0, short / cover, 0.0).max()
            if np.isfinite(stretch):
                later = min(later, float(stretch * visit))
    return discount * (now + discount / (1 - discount) * later)


def tent_marks(lookup: ExpertGrid) -> Array:
    """What `Frame.away` measures distances from: on an interval the switches ``[z]``, on a box its grid's marks."""
    return lookup.switches[:, 0] if len(lookup.domain) == 1 else lookup.marks


def _tents(lookup: ExpertGrid, widths: Array) -> Array:
    """A lower bound of every tent on every cell ``[w, cells]``; on an interval its slope times half a cell is lost."""
    if len(lookup.domain) > 1:
        return lookup.tents(widths)
    return np.maximum(0.0, 1 - (lookup.away + lookup.half) / widths[:, None])
