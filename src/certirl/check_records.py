"""What a file says of a certificate of an expert who switches, every number exact, and what of it cannot be.

Read with numpy and kept as fractions; `check_bands` and `check_tubes` work on nothing else. Nothing is shared with the
code that wrote the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from certirl import check, rational
from certirl.check import SLACK
from certirl.enclosures import Nodes

KINDS = ("policy certificate", "policy solution")  # of files
POINTS = 8  # for every degree

Numbers = list[Fraction]


class ImpossibleError(Exception):
    """Something in the file cannot be, or proves nothing, in a sentence."""


@dataclass(frozen=True, eq=False)
class Record:
    """The certificate of a file, every number exact; names as in `policy_evidence`, rows of functions flattened."""

    kind: str
    size: int
    actions: int
    discount: Fraction
    paired: bool
    first: Fraction
    second: Fraction
    rest: Fraction
    tail: Fraction
    low: Fraction
    high: Fraction
    dropped: Fraction
    drop: Numbers
    counts: list[int]
    gram: list[list[Numbers]]
    fits: list[Numbers]
    Z: list[list[Numbers]]
    mix: list[Numbers]
    surprise: list[Numbers]
    spread: list[list[Numbers]]
    drift: list[list[Numbers]]
    wobble: list[list[list[Numbers]]]
    tent_fits: list[list[Numbers]]
    visits: list[list[Numbers]]
    visit_spread: list[list[Numbers]]

    @property
    def degree(self) -> int:
        """Of expansions in the columns."""
        return rational.frequency(self.kind, self.size - 1)

    @property
    def points(self) -> int:
        """At which the bands are worked out."""
        return POINTS * max(self.degree, 1)

    @property
    def couples(self) -> list[tuple[int, int]]:
        """Actions whose errors have common sums."""
        every = range(self.actions)
        return [(c, d) for c in every for d in range(c, self.actions) if self.paired or c == d]


@dataclass(frozen=True, eq=False)
class Expert:
    """What it does at the ends of equal cells.

    Attributes:
        low, high: the ends of the interval.
        support: the actions that it takes at each end ``[cells + 1]``.
    """

    low: Fraction
    high: Fraction
    support: list[frozenset[int]]

    @property
    def cells(self) -> int:
        """Their number."""
        return len(self.support) - 1

    @property
    def width(self) -> Fraction:
        """Of a cell."""
        return (self.high - self.low) / self.cells

    @cached_property
    def steady(self) -> list[bool]:
        """Whether the ends of a cell agree."""
        return [one == other for one, other in zip(self.support, self.support[1:], strict=False)]

    def middle(self, cell: int) -> Fraction:
        """Of a cell."""
        return self.low + self.width * (2 * cell + 1) / 2

    @property
    def switches(self) -> Numbers:
        """The middles of cells whose ends do not agree."""
        return [self.middle(cell) for cell, steady in enumerate(self.steady) if not steady]

    @cached_property
    def away(self) -> list[Fraction] | None:
        """From every middle to the nearest switch; None if there is none."""
        switching = [cell for cell, steady in enumerate(self.steady) if not steady]
        if not switching:
            return None
        return [self.width * min(abs(cell - other) for other in switching) for cell in range(self.cells)]


@dataclass(frozen=True)
class Tents:
    """max(0, 1 − distance/width), the distance to the nearest switch: how often they are met was counted."""

    switches: Numbers
    widths: Numbers

    def away(self, state: Fraction) -> Fraction:
        """The distance."""
        return min(abs(state - switch) for switch in self.switches)


def stored(header: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The certificate's own words and numbers, alone in its file or in that of a solution."""
    if header["kind"] == KINDS[0]:
        return header, arrays
    return header.get("certificate"), {name[12:]: x for name, x in arrays.items() if name.startswith("certificate_")}


def record_of(claim: dict[str, Any], arrays: dict[str, Any]) -> Record:
    """The numbers that the derivation rests on; KeyError, TypeError or ValueError where they are damaged."""
    kind, k, A = claim["columns"]["kind"], int(claim["columns"]["size"]), len(arrays["counts"])
    discount, tail, m = Fraction(claim["discount"]), claim["tail"], A * k
    if kind not in check.KINDS or k < 1 or A < 2 or not 0 < discount < 1:
        raise ValueError("the header describes no problem that certificates speak of")
    if tail == math.inf:
        raise ImpossibleError("the tail is infinite")
    wide, tents = (4 if kind == "Fourier" else 2) * rational.frequency(kind, k - 1) + 1, len(arrays["widths"])
    shapes = {"counts": (A,), "gram": (A, k, k), "fits": (A, k), "surprise": (A, k), "Z": (A, m, k), "mix": (m, m)}
    shapes |= {"spread": (A, A, wide), "drift": (A, m, k), "wobble": (A, A, m, wide), "drop": (m,)}
    shapes |= {"tent_fits": (A, tents, k), "visits": (A, tents, k), "visit_spread": (A, tents, wide)}
    sums = {name: check.exact(np.asarray(arrays[name]), name, shape) for name, shape in shapes.items()}
    sums = check.in_rewards_units(claim, sums)
    return Record(
        **{**sums, "counts": [int(n) for n in sums["counts"]]},
        first=Fraction(claim["spending"]["first order"]),
        second=Fraction(claim["spending"]["second order"]),
        rest=Fraction(claim["spending"]["regret"]),
        tail=Fraction(tail or 0),
        kind=kind,
        size=k,
        actions=A,
        discount=discount,
        paired=bool(claim["paired"]),
    )


def expert_of(claim: dict[str, Any], arrays: dict[str, Any], actions: int) -> tuple[Expert, Tents]:
    """What the expert does, and the tents whose visits were counted."""
    ((low, high),) = claim["columns"]["domain"]
    support = np.asarray(arrays["support"])
    if support.ndim != 2 or support.shape[1] != actions or len(support) < 2 or support.dtype.kind not in "bi":
        raise ValueError(f"support should say of {actions} actions whether they are taken")
    taken = [frozenset(c for c, does in enumerate(row) if does) for row in support.tolist()]
    lengths = {name: np.asarray(arrays[name]) for name in ("switches", "widths")}
    places = [check.exact(array, name, (array.size,)) for name, array in lengths.items()]
    return Expert(Fraction(low), Fraction(high), taken), Tents(*places)


def contradictions(r: Record, claim: dict[str, Any], expert: Expert, tents: Tents) -> list[str]:
    """What neither sums over data, nor parts of a probability, nor an expert can be."""
    wrong, squared = [], rational.PI_ABOVE if r.kind == "Chebyshev" else Fraction(2)
    nodes = Nodes(r.kind, r.size, r.degree)
    squares = nodes.phi.times(nodes.phi)
    for c, (n, gram) in enumerate(zip(r.counts, r.gram, strict=True)):
        if n < r.size:
            wrong.append(f"action {c} has {n} transitions, too few for {r.size} functions")
        if any(gram[i][j] != gram[j][i] for i in range(r.size) for j in range(i)):
            wrong.append(f"the Gram matrix of action {c} is not symmetric")
        if abs(gram[0][0] * squared - n) > SLACK * n:
            wrong.append(f"the Gram matrix of action {c} is not one of {n} states")
        firsts = [r.surprise[c], *r.drift[c], *r.visits[c]]
        spreads = rational.Table.of([r.spread[c][c], *r.wobble[c][c], *r.visit_spread[c]])
        most = (nodes.weights(spreads) @ squares.T).above()  # Σ x_i²Y², for Cauchy and Schwarz
        pairs = ((x, y) for one, own in zip(firsts, most, strict=True) for x, y in zip(one, own, strict=True))
        if any(x * x > n * y * (1 + SLACK) for x, y in pairs):
            wrong.append(f"the surprises of action {c} are larger than their spread allows")
    if r.paired and any(gram != r.gram[0] for gram in r.gram):
        wrong.append("paired actions have different states")
    apart = [(c, d) for c in range(r.actions) for d in range(r.actions) if c != d]
    if not r.paired and any(any(r.spread[c][d]) or any(map(any, r.wobble[c][d])) for c, d in apart):
        wrong.append("actions that were not paired have common sums")
    spending, delta = [Fraction(x) for x in claim["spending"].values()], Fraction(claim["delta"])
    own = min(r.first, r.second, r.rest)
    if min(spending) < 0 or own <= 0 or not 0 < delta < 1 or abs(sum(spending) - delta) > SLACK * delta:
        wrong.append("the parts of δ are not probabilities that add up to δ")
    if r.tail < 0 or r.low > r.high:
        wrong.append("the tail is negative, or V's bounds are the wrong way round")
    if not all(expert.support):
        wrong.append("the expert takes no action at some state")
    if min(tents.widths, default=Fraction(1)) <= 0 or not _same_places(expert, tents):
        wrong.append("the tents do not stand where the expert switches")
    return wrong


def _same_places(expert: Expert, tents: Tents) -> bool:
    own, slack = expert.switches, SLACK * expert.width
    return len(own) == len(tents.switches) and all(
        abs(x - y) <= slack for x, y in zip(own, tents.switches, strict=True)
    )


def knows_reward(header: dict[str, Any]) -> bool:
    """Whether a file tells R: a certificate alone does not, and where states are terminal R is not its expansion."""
    return header["kind"] != KINDS[0] and not header.get("zero_at_ends")


def range_of_value(r: Record, header: dict[str, Any], arrays: dict[str, Any]) -> list[str]:
    """V = R + γ Σ_c π_c·(P̂_cV) of a solution, whose reward is in the file."""
    if not knows_reward(header):
        return []
    basis, reward = header["reward_basis"], np.asarray(arrays["reward"])
    coefficients = check.exact(reward, "reward", (reward.size,))
    if basis["kind"] in check.KINDS:
        least, most = rational.range_around(basis["kind"], coefficients)
    else:  # piecewise linear: its coefficients are its values
        least, most = min(coefficients), max(coefficients)
    ends = [rational.range_around(r.kind, fit) for fit in r.fits]
    least += r.discount * min(low for low, _ in ends)
    most += r.discount * max(high for _, high in ends)
    if min(least - r.low, r.high - most) < -SLACK * (1 + r.high - r.low):
        return [f"V may reach from {float(least):.6g} to {float(most):.6g}, beyond its bounds in the file"]
    return []
