"""A second opinion on a saved certificate: D_a(s) ≥ margin for all s, derived again from its sums in exact arithmetic.

A program of its own: it shares no code with the certificate's, solves no program and rounds only to the safe side.
Given the declared assumptions (the tail, independent draws), and sums that are what they say up to the rounding of
floating point, its margin is a proof. The notation is that of docs/notes/certificate.md.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from certirl import rational
from certirl.rational import Grid, Table, eliminate, identity

EVENTS = 3  # of probability e^−L each: the second moment, above, below
SLACK, ALIKE = Fraction(1, 10**6), Fraction(1, 10**4)  # how far off claims in floating point may be, and their parts
KINDS = ("Legendre", "Chebyshev", "Fourier")
_STRETCH = 8192  # the sums were taken over blocks of at most this length

Numbers = list[Fraction]
Derive = Callable[[dict[str, Any], dict[str, Any]], "tuple[list[Parts], list[str]]"]


class _ImpossibleError(Exception):
    """Something in the file cannot be, in a sentence."""


@dataclass(frozen=True)
class Verdict:
    """What the second derivation says about the claim that D_a(s) ≥ margin for all states and rivals.

    Attributes:
        verdict: "confirmed", "refuted" or "nothing claimed".
        margin: the margin derived here, rounded down; −∞ if none can be, NaN without a certificate.
        claimed: the margin in the file; NaN without a certificate.
        reasons: why, in sentences.
    """

    verdict: str
    margin: float
    claimed: float
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        if math.isnan(self.claimed):
            return f"{self.verdict.capitalize()}: {'; '.join(self.reasons)}."
        first = f"{self.verdict.capitalize()}: margin at least {self.margin:.4g} by exact arithmetic, "
        return "\n".join([f"{first}{self.claimed:.4g} in the file", *(f"  {reason}" for reason in self.reasons)])


@dataclass(frozen=True, eq=False)
class _Record:
    """The certificate of a file, every number exact; ``terms`` is the size of the terms of V times their number."""

    kind: str
    size: int
    discount: Fraction
    expert: int
    paired: bool
    first: Fraction
    second: Fraction
    tail: Fraction
    low: Fraction
    high: Fraction
    terms: Fraction
    counts: list[int]
    gram: list[list[Numbers]]
    Z: list[list[Numbers]]
    fits: list[Numbers]
    g: Numbers
    surprise: list[Numbers]
    drift: list[list[Numbers]]
    spread: list[list[list[Numbers]]]
    wobble: list[list[list[Numbers]]]

    @property
    def rivals(self) -> list[int]:
        return [a for a in range(len(self.Z)) if a != self.expert]

    @property
    def degree(self) -> int:
        return rational.frequency(self.kind, self.size - 1)


@dataclass(frozen=True)
class Parts:
    """The margin against one rival: what is estimated, and what is taken off."""

    estimated: Fraction
    band: Fraction
    second: Fraction
    tail: Fraction
    rounding: Fraction

    @property
    def margin(self) -> Fraction:
        """What is left."""
        return self.estimated - self.band - self.second - self.tail - self.rounding

    def __str__(self) -> str:
        losses = f"{float(self.band):.2g} band − {float(self.second):.2g} second order − {float(self.tail):.2g} tail"
        return f"{float(self.estimated):.4g} estimated − {losses} − {float(self.rounding):.2g} rounding"


class _Derivation:
    """The inequalities, with the quantities shared by all rivals."""

    def __init__(self, record: _Record) -> None:
        self.r, ks, pi, gamma = record, record.size, record.expert, record.discount
        self.grid = Grid(record.kind, ks)
        self.precision: list[Table] = []
        for action, gram in enumerate(record.gram):
            solved = eliminate(gram, identity(ks))
            if solved is None or not solved[1]:
                raise _ImpossibleError(f"the Gram matrix of action {action} is not positive definite")
            self.precision.append(solved[0])
        rows = zip(identity(ks), record.Z[pi], strict=True)
        solved = eliminate([[one - gamma * z for one, z in zip(*pair, strict=True)] for pair in rows], identity(ks))
        if solved is None:
            raise _ImpossibleError("I − γT of the surrogate has no inverse")
        self.resolvent = solved[0]
        self.T, self.fits = Table.of(record.Z[pi]), [Table.of([fit]) for fit in record.fits]
        self.F = {a: self.resolvent @ (self.T - Table.of(record.Z[a])) for a in record.rivals}
        self.later = 2 * gamma / (1 - gamma)  # what an error of the residual can add up to over all later steps
        dense = self.grid.across.T
        self.leverage = [self.grid.sup((dense @ G).times(dense).sums())[0] for G in self.precision]
        self.lebesgue = [1 + rational.root_above(n * x) for n, x in zip(record.counts, self.leverage, strict=True)]

    def parts(self) -> list[Parts]:
        """D_a(s) ≥ estimated − band − second − tail − rounding for every state; one for every rival a."""
        r, events, second, found = self.r, EVENTS * len(self.r.rivals) / self.r.first, self._second_order(), []
        count = rational.good_count(r.kind, r.degree, float(events), 20 * r.size + 1)
        (phi, wider), L = self._points(count), rational.log_above(events * count)
        for rival in r.rivals:
            band = wider * max(self._band(rival, phi, L))
            own, other = (r.tail * (r.high - r.low) / 2 * self.lebesgue[c] for c in (r.expert, rival))
            rounding = self._rounding(rival, band + second[rival])
            estimated = rational.minimum_below(r.kind, self._curve(rival))
            found.append(Parts(estimated, band, second[rival], own * (1 + self.later) + other, rounding))
        return found

    def _points(self, count: int) -> tuple[Table, Fraction]:
        """φ at the spread points, and what an expansion can be larger by in between."""
        phi = rational.values(self.r.kind, self.r.size, rational.spread_places(count))
        return phi, rational.inflation_above(self.r.kind, self.r.degree, count)

    def _band(self, rival: int, phi: Table, L: Fraction) -> Numbers:
        """The radius at each point of the mean of p·x Y_π − q·x Y_a."""
        r, pi, grid = self.r, self.r.expert, self.grid
        p = (phi + (phi @ self.F[rival].T).scaled(r.discount)) @ self.precision[pi]
        q = phi @ self.precision[rival]
        observed = p.form(r.spread[pi][pi], p) + q.form(r.spread[rival][rival], q)
        own, other = (grid.reach(r.low, r.high, self.fits[c]) for c in (pi, rival))
        if r.paired:
            observed = observed - p.form(r.spread[pi][rival], q).scaled(Fraction(2))
            both = grid.swing(self.fits[pi] - self.fits[rival]) + grid.level(r.high - r.low)
            bounds = grid.sup(grid.swing(q).times(both) + grid.swing(p - q).times(own))
        else:
            each = grid.sup(grid.swing(p).times(own)), grid.sup(grid.swing(q).times(other))
            bounds = [max(pair) for pair in zip(*each, strict=True)]
        return rational.radii_above(observed, bounds, L)

    def _curve(self, rival: int) -> Table:
        """D̂_a and the correction that the surprises ask for."""
        pi = self.r.expert
        own, other = (Table.of([self.r.surprise[c]]) @ self.precision[c] for c in (pi, rival))
        return self.fits[pi] - self.fits[rival] + own - other + (own @ self.F[rival]).scaled(self.r.discount)

    def _second_order(self) -> dict[int, Fraction]:
        """What the errors of the operators do to û, to the error of that, and so on."""
        r, ks, pi, gamma = self.r, self.r.size, self.r.expert, self.r.discount
        if ks == 1:
            return dict.fromkeys(r.rivals, Fraction(0))
        phi, wider = self._points(4 * ks)
        L = rational.log_above(EVENTS * (ks + (ks - 1) * ks + len(r.Z) * (ks - 1) * 4 * ks) / r.second)
        self.ranges = [rational.column_range(r.kind, n) for n in range(ks)]
        weights = (self.resolvent.T @ self.precision[pi]).scaled(gamma)
        bounds = self.grid.sup(self.grid.swing(weights).times(self.grid.reach(r.low, r.high, self.fits[pi])))
        radii = rational.radii_above(weights.form(r.spread[pi][pi], weights), bounds, L)
        seen = (Table.of([r.surprise[pi]]) @ weights.T).absolute().above()[0]
        entries = self._operator_errors(pi, Table.of(identity(ks)), L, contrast=False)
        lifted = (self.resolvent.T.absolute() @ Table.of(entries).T).scaled(gamma).above()
        total = rational.series_above(lifted, [a + b for a, b in zip(seen, radii, strict=True)])
        if total is None:
            raise _ImpossibleError("there is too little data: errors of the operators may grow from step to step")
        far = [Fraction(0), *(r.tail * (high - low) / 2 for low, high in self.ranges[1:])]
        own = [Fraction(0)] * ks
        if not r.paired:
            own = [wider * max(row) for row in self._operator_errors(pi, phi, L, contrast=False)]
        result = {}
        for rival in r.rivals:
            errors = self._operator_errors(rival, phi, L, contrast=r.paired)
            steep = self.grid.sup(self.grid.swing(self.F[rival]))
            tails = (1 + self.later) * self.lebesgue[pi] + self.lebesgue[rival]
            ahead = [own[i] + tails * far[i] + gamma * rational.dot(entries[i], steep) for i in range(ks)]
            result[rival] = rational.dot(total, [wider * max(errors[i]) + ahead[i] for i in range(ks)])
        return result

    def _operator_errors(self, action: int, phi: Table, L: Fraction, *, contrast: bool) -> list[Numbers]:
        """|((P_c − P̂_c)φ_i)·phi_n| ≤ these ``[k_s][n]``; a contrast is the expert's operator less the rival's."""
        r, grid, drift, Z = self.r, self.grid, Table.of(self.r.drift[action]), Table.of(self.r.Z[action])
        weights = phi @ self.precision[action]
        swing = grid.swing(weights)
        if contrast:
            drift, Z = Table.of(r.drift[r.expert]) - drift, self.T - Z
        seen = (drift @ weights.T).absolute().above()
        errors = [[Fraction(0)] * len(phi.rows)]
        for i in range(1, r.size):
            (low, high), fit = self.ranges[i], Table([Z.rows[i]], Z.error)
            reach = grid.swing(fit) + grid.level(high - low) if contrast else grid.reach(low, high, fit)
            radii = rational.radii_above(weights.form(r.wobble[action][i], weights), grid.sup(swing.times(reach)), L)
            errors.append([a + b for a, b in zip(seen[i], radii, strict=True)])
        return errors

    def _rounding(self, rival: int, radii: Fraction) -> Fraction:
        """What floating point can have done to V and to the sums, to first order; it enters as a tail does.

        Each sum is off by at most u of its terms' sizes; then a projection is off by 2uκ√(leverage·ΣY²), and all radii
        by uκ of themselves, with κ = tr G·tr G⁻¹, and by u(2k − 1)·n·leverage more, since their second moments are
        images of sums of 2k − 1 functions.
        """
        r, pi, worst = self.r, self.r.expert, Fraction(0)
        square = rational.PI_ABOVE if r.kind == "Chebyshev" else Fraction(2)  # 1/φ_1²
        missed = {}
        for c in (pi, rival):
            unit = (_STRETCH + Fraction(r.counts[c], _STRETCH)) / 2**52
            loss = unit * sum(row[i] for i, row in enumerate(self.precision[c].above()))
            loss *= sum(row[i] for i, row in enumerate(r.gram[c]))
            worst = max(worst, loss + unit * (2 * r.size - 1) * r.counts[c] * self.leverage[c])
            projected = 2 * loss * rational.root_above(self.leverage[c] * r.spread[c][c][0][0] * square)
            missed[c] = (r.terms + rational.size_of_terms(r.kind, r.fits[c])) / 2**50 * self.lebesgue[c] + projected
        apart = rational.size_of_terms(r.kind, (a - b for a, b in zip(r.fits[pi], r.g, strict=True)))
        return missed[pi] * (1 + self.later) + missed[rival] + self.later * apart + worst * radii


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of a file; nothing in it is run."""
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"there is no file {source}")
    try:
        with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(str(arrays.pop("header")))
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, AttributeError):
        raise ValueError(f"{source} is not a certirl file, or it is damaged or cut short") from None
    if not isinstance(header, dict) or header.get("format") != "certirl" or header.get("version") != 1:
        raise ValueError(f"{source} is not a certirl file of version 1")
    return header, arrays


def exact(array: Any, name: str, shape: tuple[int, ...]) -> Any:
    """Floats of this shape as the fractions that they are."""
    if array.shape != shape or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise ValueError(f"{name} should be numbers of shape {list(shape)}")
    return rational.exactly(array.tolist())


def in_rewards_units(claim: dict[str, Any], sums: dict[str, Any]) -> dict[str, Any]:
    """Sums of a reward that was divided by a unit, as those of the reward itself, and with them V's bounds."""
    unit = Fraction(claim["unit"])
    if unit <= 0:
        raise ValueError("the unit of the sums should be positive")
    factors = {"g": unit, "fits": unit, "surprise": unit, "spread": unit**2}
    scaled = {name: _times(factors[name], values) for name, values in sums.items() if name in factors}
    ends = {name: unit * Fraction(claim[name]) for name in ("low", "high", "dropped") if name in claim}
    return sums | scaled | ends


def _times(factor: Fraction, values: Any) -> Any:
    return [_times(factor, row) for row in values] if isinstance(values, list) else factor * values


def _record(header: dict[str, Any], arrays: dict[str, Any]) -> tuple[_Record, list[str]]:
    """The certificate of a file, and what is wrong with it; KeyError, TypeError or ValueError where it is damaged."""
    claim, columns = header["certificate"], header["certificate"]["columns"]
    kind, ks, actions = columns["kind"], int(columns["size"]), int(header["n_actions"])
    discount, expert, tail = Fraction(header["discount"]), int(header["expert"]), claim["tail"]
    if kind not in KINDS or ks < 1 or not 0 <= expert < actions or actions < 2 or not 0 < discount < 1:
        raise ValueError("the header describes no problem that certificates speak of")
    if tail == math.inf:
        raise _ImpossibleError("the tail is infinite")
    shapes = {"counts": (), "surprise": (ks,), "fits": (ks,), "gram": (ks, ks), "drift": (ks, ks), "Z": (ks, ks)}
    shapes |= {"spread": (actions, ks, ks), "wobble": (ks, ks, ks)}
    names = {"g": (ks,), **{name: (actions, *shape) for name, shape in shapes.items()}}
    sums = {name: exact(np.asarray(arrays[f"certificate_{name}"]), name, shape) for name, shape in names.items()}
    sums, wrong = in_rewards_units(claim, sums), list[str]()
    low, high = sums.pop("low"), sums.pop("high")
    added = [discount * x for x in sums["g"]]
    terms = max(abs(low), abs(high)) + rational.size_of_terms(kind, added)
    if "reward" in arrays and all(header["basis"][name] == columns[name] for name in ("kind", "domain")):
        reward = exact(arrays["reward"], "reward", (int(header["basis"]["size"]),))
        total = [a + b for a, b in zip_longest(reward, added, fillvalue=Fraction(0))]
        least, most = rational.range_around(kind, total)
        if min(least - low, high - most) < -SLACK * (1 + high - low):
            wrong.append(f"V reaches from {float(least):.6g} to {float(most):.6g}, beyond its bounds in the file")
        low, high = min(low, least), max(high, most)
        terms = rational.size_of_terms(kind, reward) + rational.size_of_terms(kind, added)
    record = _Record(
        **{**sums, "counts": [int(n) for n in sums["counts"]]},
        kind=kind,
        size=ks,
        discount=discount,
        expert=expert,
        paired=bool(claim["paired"]),
        first=Fraction(claim["spending"]["first order"]),
        second=Fraction(claim["spending"]["second order"]),
        tail=Fraction(tail or 0),
        low=low,
        high=high,
        terms=terms,
    )
    return record, wrong + _contradictions(record, claim)


def _contradictions(r: _Record, claim: dict[str, Any]) -> list[str]:
    """What neither sums over data nor parts of a probability can be."""
    wrong, squared = [], rational.PI_ABOVE if r.kind == "Chebyshev" else Fraction(2)
    for c, (n, gram) in enumerate(zip(r.counts, r.gram, strict=True)):
        if n < r.size:
            wrong.append(f"action {c} has {n} transitions, too few for {r.size} functions")
        if any(gram[i][j] != gram[j][i] for i in range(r.size) for j in range(i)):
            wrong.append(f"the Gram matrix of action {c} is not symmetric")
        if abs(gram[0][0] * squared - n) > SLACK * n:
            wrong.append(f"the Gram matrix of action {c} is not one of {n} states")
        if any(x * x > n * r.spread[c][c][i][i] * (1 + SLACK) for i, x in enumerate(r.surprise[c])):
            wrong.append(f"the surprises of action {c} are larger than their spread allows")
        if r.Z[c][0] != identity(r.size)[0]:
            wrong.append(f"the operator of action {c} moves constants")
    if r.paired and any(gram != r.gram[0] for gram in r.gram):
        wrong.append("paired actions have different states")
    if not r.paired and any(any(map(any, r.spread[c][d])) for c in range(len(r.Z)) for d in range(len(r.Z)) if c != d):
        wrong.append("actions that were not paired have common sums")
    spending, delta = [Fraction(x) for x in claim["spending"].values()], Fraction(claim["delta"])
    if min(spending) < 0 or min(r.first, r.second) <= 0 or delta >= 1 or abs(sum(spending) - delta) > SLACK * delta:
        wrong.append("the parts of δ are not probabilities that add up to δ")
    if r.tail < 0 or r.low > r.high:
        wrong.append("the tail is negative, or V's bounds are the wrong way round")
    return wrong


def _unlike(parts: Parts, claim: dict[str, Any]) -> list[str]:
    """Names of the parts that are not those in the file."""
    losses = claim["losses"]
    pairs = {
        "estimate": (parts.estimated, claim["estimated"]),
        "band": (parts.band, losses["estimation"] + losses["grid"]),
        "second order": (parts.second, losses["second order"]),
        "tail": (parts.tail, losses["truncation tail"]),
    }
    return [name for name, (own, told) in pairs.items() if not abs(own - Fraction(told)) <= ALIKE * abs(own) + SLACK]


def derive(header: dict[str, Any], arrays: dict[str, Any]) -> tuple[list[Parts], list[str]]:
    """The margin against every rival, or why there is none."""
    try:
        record, wrong = _record(header, arrays)
        return ([] if wrong else _Derivation(record).parts()), wrong
    except _ImpossibleError as problem:
        return [], [str(problem)]


def objections(parts: list[Parts], own: Fraction, claim: dict[str, Any]) -> list[str]:
    """Why the claim does not follow, if it does not."""
    unlike = min((_unlike(part, claim) for part in parts), key=len)
    found = {
        "no tail was declared": claim["tail"] is None,
        "the margin that follows from the sums is not positive": own <= 0,
        "the claimed margin is larger than what follows": Fraction(claim["margin"]) > own + SLACK * (1 + abs(own)),
        f"these parts of the margin are not what follows from the sums: {', '.join(unlike)}": bool(unlike),
    }
    return [sentence for sentence, true in found.items() if true]


def check(path: str | os.PathLike[str], *, by: Derive = derive) -> Verdict:
    """Derive the margin of a saved certificate again, and see whether the claim D_a(s) ≥ margin > 0 follows from it.

    Args:
        path: a file written by `Solution.save`.
        by: how to derive the parts of the margin against every rival, or why there are none.
    """
    header, arrays = read(path)
    if (claim := header.get("certificate")) is None:
        return Verdict("nothing claimed", math.nan, math.nan, ("the file holds no certificate",))
    if '"product"' in json.dumps(claim):
        raise ValueError(f"{path} certifies a box of states: certirl check derives certificates of one coordinate only")
    try:
        holds, claimed = bool(claim["holds"]), float(claim["margin"])
        parts, reasons = by(header, arrays)
        worst = min(parts, key=lambda part: part.margin, default=None)
        if holds and worst is not None:
            reasons += objections(parts, worst.margin, claim)
        elif worst is not None:
            reasons.append("no tail was declared" if claim["tail"] is None else "the margin is not positive")
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as problem:
        raise ValueError(f"{path} is damaged: something in its certificate is missing or wrong ({problem})") from None
    verdict = "nothing claimed" if not holds else "refuted" if reasons else "confirmed"
    margin = -math.inf if worst is None else math.nextafter(float(worst.margin), -math.inf)
    return Verdict(verdict, margin, claimed, (*reasons, *([] if worst is None else [str(worst)])))


def main(path: str | os.PathLike[str], *, by: Derive = derive) -> int:
    """Print the verdict: 1 if D_a(s) ≥ margin is claimed and does not follow, else 0."""
    print(verdict := check(path, by=by))
    return int(verdict.verdict == "refuted")
