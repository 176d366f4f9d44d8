"""Where an expert is proved strictly best, where not, and what that can cost: bands read off cell by cell.

The interval is cut into cells. On each the expert's actions are looked up at both ends, and every band is bounded below
over the whole cell by its middle and its steepest slope. A cell whose ends disagree holds a switching state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certirl.concentration import degree, inflation, spread_points
from certirl.domain import Array, Domain, describe
from certirl.policies import Policy
from certirl.policy_bounds import Band, Bands
from certirl.policy_evidence import tents

CELLS = 4000


@dataclass(frozen=True, eq=False)
class Lookup:
    """The expert at the ends of all cells.

    Attributes:
        domain: one (low, high) pair.
        support: which actions it takes at each end ``[cells + 1, A]``.
    """

    domain: Domain
    support: NDArray[np.bool_]

    @property
    def width(self) -> float:
        """Of a cell."""
        ((low, high),) = self.domain
        return (high - low) / (len(self.support) - 1)

    @property
    def middles(self) -> Array:
        """Of the cells ``[cells]``."""
        ((low, _),) = self.domain
        return low + self.width * (np.arange(len(self.support) - 1) + 0.5)

    @property
    def steady(self) -> NDArray[np.bool_]:
        """The cells whose ends agree ``[cells]``."""
        return np.asarray((self.support[1:] == self.support[:-1]).all(axis=1))

    @property
    def taken(self) -> NDArray[np.bool_]:
        """Which actions it takes at an end of each cell ``[A, cells]``."""
        return np.asarray((self.support[1:] | self.support[:-1]).T)

    def taken_at(self, states: Array) -> NDArray[np.bool_]:
        """The same for the cells of some states ``[n, 1]``: ``[A, n]``."""
        ((low, _),) = self.domain
        cells = ((states[:, 0] - low) / self.width).astype(np.intp)
        return self.taken[:, np.clip(cells, 0, len(self.support) - 2)]

    @property
    def switches(self) -> Array:
        """The middles of the cells whose ends do not agree ``[z]``."""
        return self.middles[~self.steady]

    @property
    def away(self) -> Array:
        """From the middle of every cell to the nearest switch ``[cells]``; infinite if the expert never switches."""
        found = np.full(len(self.middles), np.inf)
        for switch in self.switches:
            np.minimum(found, np.abs(self.middles - switch), out=found)
        return found

    def __str__(self) -> str:
        steps = len(self.support)
        return f"the expert does not change between neighbours of {steps} states of {describe(self.domain)} that agree"


def look_up(policy: Policy, domain: Domain) -> Lookup:
    """Ask the expert about the ends of all cells."""
    ((low, high),) = domain
    return Lookup(domain, policy.support(np.linspace(low, high, CELLS + 1)[:, None]))


@dataclass(frozen=True, eq=False)
class Tube:
    """What the bands say, cell by cell.

    Attributes:
        margin: the least D_a(s) farther than ``allowed`` from all switches, a lower bound.
        allowed: the half-width that was asked for.
        estimated, state, action, losses: where that is: the estimate, the state, the rival, and what is taken off.
        undecided: the tube: intervals in which the expert is not proved strictly best ``[t, 2]``.
        half_width: the farthest an undecided state is from a switch; 0 without any.
        share: of the domain that is undecided.
        shortfall: how much better than the expert's another action can be at worst, divided by γ.
        regret: the value lost at worst by following the expert instead of the best policy.
        settled: farther than this from a switch the expert does what every best policy does; infinite if that is
            nowhere known. Elsewhere its action is compared with others on the premise that it is followed afterwards.
        ties: how far actions that the expert mixes can differ; 0 if it never mixes.
    """

    margin: float
    allowed: float
    estimated: float
    state: float
    action: int
    losses: dict[str, float]
    undecided: Array
    half_width: float
    share: float
    shortfall: float
    regret: float
    settled: float
    ties: float


def read_tube(bands: Bands, lookup: Lookup, *, allowed: float, widths: Array, discount: float) -> Tube:
    """Where the expert is proved strictly best, and what it can lose elsewhere.

    Args:
        bands: around (P_b − P_a)V for every pair of actions.
        lookup: the expert.
        allowed: the half-width outside which everything must be proved.
        widths: of the tents whose visits the bands bound ``[w]``.
        discount: γ.
    """
    A, cells = lookup.support.shape[1], len(lookup.middles)
    centre, lower, by_pair = np.zeros((A, A, cells)), np.full((A, A, cells), np.inf), {}
    middles, half = lookup.middles[:, None], lookup.width / 2
    for band in bands.pairs:
        (b, a), radius = band.pair, band.radius(middles, half) + half * _slope(band)
        centre[b, a] = band.estimate(middles)
        centre[a, b] = -centre[b, a]
        for pair in ((b, a), (a, b)):
            by_pair[pair] = band
            lower[pair] = centre[pair] - radius
    taken = lookup.taken
    strict = taken[:, None] & ~taken[None]  # b is taken, a is not
    proved = np.where(strict, lower, np.inf)
    decided = lookup.steady & (proved.min(axis=(0, 1)) > 0)
    outside = lookup.away + lookup.width > allowed
    if not outside.any():
        raise ValueError(
            f"every state is within {allowed:g} of a state where the expert switches: pass a smaller tube, or an "
            "expert that does not switch so often"
        )
    first, second, cell = np.unravel_index(np.where(outside, proved, np.inf).argmin(), lower.shape)
    worst = (int(first), int(second)) if first != second else (0, 1)
    losses = {name: float(lost[0]) for name, lost in by_pair[worst].losses(middles[[cell]], half).items()}
    losses["grid"] += half * _slope(by_pair[worst])
    short = np.maximum(0.0, np.where(taken[:, None], -lower, -np.inf).max(axis=(0, 1)))
    mixed = np.where(taken[:, None] & taken[None] & lookup.steady & ~np.eye(A, dtype=bool)[:, :, None], -lower, 0.0)
    lost = _regret(lookup, short, bands.visits, widths, discount)
    # The best policy's value exceeds the expert's by the regret at most, so a margin above it survives the exchange.
    disputed = ~lookup.steady | (proved.min(axis=(0, 1)) <= lost)
    return Tube(
        margin=float(np.where(outside, proved, np.inf).min()),
        allowed=allowed,
        estimated=float(centre[*worst, cell]),
        state=float(lookup.middles[cell]),
        action=worst[1],
        losses=losses,
        undecided=_intervals(lookup, ~decided),
        half_width=float(np.max(lookup.away[~decided] + lookup.width, initial=0.0)),
        share=float(np.mean(~decided)),
        shortfall=float(short.max()),
        regret=lost,
        settled=float(np.max(lookup.away[disputed] + lookup.width, initial=0.0)),
        ties=float(mixed.max()),
    )


def _regret(lookup: Lookup, short: Array, visits: Array, widths: Array, discount: float) -> float:
    """The performance difference: γ times the shortfall now, and γ²/(1 − γ) of what is met of it later.

    A tent that covers all shortfall, stretched to do so, is met no more often than its visits.
    """
    now, later = float(short.max()), float(short.max())
    if len(widths) and len(lookup.switches) and np.isfinite(now):
        covers = tents_on_cells(lookup, widths)
        for cover, visit in zip(covers, visits, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                stretch = np.where(short > 0, short / cover, 0.0).max()
            later = min(later, float(stretch * visit))
    return discount * (now + discount / (1 - discount) * later)


def tents_on_cells(lookup: Lookup, widths: Array) -> Array:
    """What every tent is at least on every cell ``[w, cells]``: its middle less its slope times half a cell."""
    return np.maximum(0.0, tents(lookup.middles, lookup.switches, widths) - lookup.width / 2 / widths[:, None])


def _slope(band: Band) -> float:
    """The steepest that an estimate gets."""
    columns, count = band.columns, 20 * band.columns.size
    factor = inflation(columns.kind, degree(columns), count)
    return float(factor * np.abs(columns.derivative(spread_points(columns, count)) @ band.curve).max())


def _intervals(lookup: Lookup, chosen: NDArray[np.bool_]) -> Array:
    """Neighbouring cells as intervals ``[t, 2]``."""
    ((low, _),) = lookup.domain
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    return np.asarray(low + lookup.width * edges.reshape(-1, 2), dtype=float)
