"""Certificates of experts who switch, derived again: bands, tube, regret and span, in exact arithmetic.

The notation is that of docs/notes/switching.md. A solution holds its reward, and what V lies between is derived from
it; a certificate alone holds none. Nothing here is shared with the code that made the certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from certirl.checker import bands as check_bands
from certirl.checker import enclosures, rational, records
from certirl.checker import tubes as check_tubes
from certirl.checker.bands import Record
from certirl.checker.enclosures import Nodes
from certirl.checker.rational import Table
from certirl.checker.records import (
    ALIKE,
    DRAWS,
    FIXED_BEFORE,
    RELATIVE,
    TIGHT,
    Claim,
    DamagedError,
    Finding,
    Functions,
    ImpossibleError,
    Numbers,
    Parts,
    at_least,
    at_most,
    short,
)
from certirl.checker.tubes import Expert, Tents, Tube

CELLS, AROUND = "Cells", "cells on a circle"  # piecewise linear rewards
_NAMED = 4  # switches that are listed


def derive(header: dict[str, Any], arrays: dict[str, Any]) -> Finding:
    """What follows for a certificate, alone in its file or in that of a solution."""
    alone = header["type"] != "Solution"
    words = header if alone else records.entry(header, "certificate")
    inner = arrays if alone else records.below(arrays, "certificate")
    fields, own = records.grounds(words, inner, "")
    claim, columns = Claim.of(words), records.functions(fields, "columns")
    numbers = _record(fields, own, claim, columns)
    expert, tents = _expert(own | records.below(inner, "lookup"), columns, numbers.actions)
    (low, high) = records.interval(records.entry(records.entry(words, "lookup"), "domain"))
    if (low, high) != (columns.low, columns.high):
        raise ImpossibleError(f"the expert lives on [{float(low):g}, {float(high):g}], the columns on {columns.domain}")
    allowed = records.number(words, "allowed")
    wrong = claim.contradictions(numbers.counts, numbers.first, numbers.second, numbers.rest)
    wrong += _contradictions(numbers, expert, tents) + _other_drop(numbers, expert, columns)
    if not expert.width * (1 - TIGHT) <= allowed < columns.high - columns.low:
        wrong.append(f"a tube of half-width {short(allowed)} is none between a cell and the domain {columns.domain}")
    about = Finding(wrong, lines=_about(numbers, columns, expert, claim))
    about.trusted = [DRAWS, records.tail_in_words(numbers.tail, columns), FIXED_BEFORE]
    about.trusted.append(
        f"the expert takes what the file says at {expert.cells + 1} evenly spaced states, and between two neighbours "
        "only what it takes at one of them"
    )
    if alone:
        low, high = (x * numbers.unit for x in (numbers.low, numbers.high))
        about.lines.insert(1, ("reward", "not in the file"))
        about.trusted.append(
            f"the certificate is about your reward: neither it nor V is in the file, which says that V stays within "
            f"[{short(low)}, {short(high)}] and differs by {short(numbers.dropped * numbers.unit)} between two states"
        )
    else:
        wrong += _of_solution(header, claim, numbers)
        reward = _Reward.of(header, arrays, numbers.unit)
        norm = short(numbers.unit * sum(map(abs, reward.coefficients)))
        about.lines.insert(1, ("reward", f"{reward}, ‖α‖₁ = {norm}"))
        wrong += _other_reward(numbers, reward, columns)
    if wrong:
        return about
    try:
        work = check_bands.Derivation(numbers)
        subtracted = claim.lost("floating point")
        generous = Fraction(subtracted) / numbers.unit if math.isfinite(subtracted) else Fraction(0)
        tube = check_tubes.read_tube(numbers, work.bands(), work.visits(), expert, tents, allowed, generous)
        _conclude(about, words, claim, tube.times(numbers.unit), work.span() * numbers.unit, numbers, expert, columns)
    except ImpossibleError as problem:
        wrong.append(str(problem))
    return about


def _record(words: dict[str, Any], arrays: dict[str, Any], claim: Claim, columns: Functions) -> Record:
    """The numbers that the derivation rests on, V in units of its span."""
    kind, k, discount = columns.kind, columns.size, records.number(words, "discount")
    counts = records.counted(arrays, "counts", None)
    A, m = len(counts), len(counts) * k
    if A < 2 or not 0 < discount < 1:
        raise DamagedError("there should be two actions or more, and a discount between 0 and 1")
    tents = len(records.exact(arrays, "widths", (None,)))
    wide = (4 if kind == "Fourier" else 2) * rational.frequency(kind, k - 1) + 1
    shapes: dict[str, tuple[int | None, ...]] = {
        "gram": (A, k, k),
        "fits": (A, k),
        "surprise": (A, k),
        "Z": (A, m, k),
        "mix": (m, m),
    }
    shapes |= {"spread": (A, A, wide), "drift": (A, m, k), "wobble": (A, A, m, wide), "drop": (m,)}
    shapes |= {"tent_fits": (A, tents, k), "visits": (A, tents, k), "visit_spread": (A, tents, wide)}
    shapes |= {"reached": (A, None), "places": (2, 1)}
    sums: dict[str, Any] = {name: records.exact(arrays, name, shape) for name, shape in shapes.items()}
    sums["places"] = [place for (place,) in sums["places"]]
    given = records.unit_of(words)
    value: dict[str, Any] = {name: given * records.number(words, name) for name in ("low", "high", "dropped")}
    unit = records.power_of_two(value["high"] - value["low"])
    by, root = given / unit, 1 / records.power_of_two(max(abs(x) for row in sums["mix"] for x in row))
    factors = {"fits": by, "surprise": by, "spread": by**2, "mix": root, "drift": root, "wobble": root**2}
    sums |= {name: records.scaled(sums[name], factor) for name, factor in factors.items()}
    return Record(
        **sums,
        **{name: x / unit for name, x in value.items()},
        counts=counts,
        first=records.share_of(claim.spending, "first order"),
        second=records.share_of(claim.spending, "second order"),
        rest=records.share_of(claim.spending, "regret"),
        tail=claim.tail or Fraction(0),
        unit=unit,
        kind=kind,
        size=k,
        actions=A,
        discount=discount,
        paired=records.flag(words, "paired"),
    )


def _expert(arrays: dict[str, Any], columns: Functions, actions: int) -> tuple[Expert, Tents]:
    """What the expert does, and the tents whose visits were counted."""
    support = np.asarray(arrays.get("support"))
    if support.ndim != 2 or support.shape[1] != actions or len(support) < 2 or support.dtype.kind != "b":
        raise DamagedError(f"support should say of {actions} actions whether they are taken")
    taken = [frozenset(c for c, does in enumerate(row) if does) for row in support.tolist()]
    places = [records.exact(arrays, name, (None,)) for name in ("switches", "widths")]
    return Expert(columns.low, columns.high, taken), Tents(*places)


def _contradictions(r: Record, expert: Expert, tents: Tents) -> list[str]:
    """What neither sums over data, nor values, nor an expert can be."""
    wrong = records.sums_in_doubt(r.kind, r.counts, r.gram, paired=r.paired, size=r.size)
    nodes = Nodes(r.kind, r.size, r.degree)
    squares = nodes.phi.times(nodes.phi)
    for c, n in enumerate(r.counts):
        firsts = [r.surprise[c], *r.drift[c], *r.visits[c]]
        spreads = rational.Table.of([r.spread[c][c], *r.wobble[c][c], *r.visit_spread[c]])
        most = (nodes.weights(spreads) @ squares.T).above()  # Σ x_i²Y², for Cauchy and Schwarz
        sizes = [max(row) for row in most]
        pairs = (
            (x, y, top)
            for one, own, top in zip(firsts, most, sizes, strict=True)
            for x, y in zip(one, own, strict=True)
        )
        if any(x * x > n * (y + TIGHT * top) for x, y, top in pairs):
            wrong.append(f"the surprises of action {c} are larger than their spread allows")
    apart = [(c, d) for c in range(r.actions) for d in range(r.actions) if c != d]
    if not r.paired and any(any(r.spread[c][d]) or any(map(any, r.wobble[c][d])) for c, d in apart):
        wrong.append("actions that were not paired have common sums")
    if r.low > r.high or not 0 <= r.dropped <= (r.high - r.low) * (1 + TIGHT):
        wrong.append("V's bounds are the wrong way round, or V differs by more than they allow")
    if not all(expert.support):
        wrong.append("the expert takes no action at some state")
    if min(tents.widths, default=Fraction(1)) <= 0 or not _same_places(expert, tents):
        wrong.append("the tents do not stand where the expert switches")
    return wrong


def _same_places(expert: Expert, tents: Tents) -> bool:
    own, slack = expert.switches, RELATIVE * expert.width
    return len(own) == len(tents.switches) and all(
        abs(x - y) <= slack for x, y in zip(own, tents.switches, strict=True)
    )


def _of_solution(header: dict[str, Any], claim: Claim, r: Record) -> list[str]:
    """Where a solution is about something else than its certificate."""
    wrong, status = [], records.status_of(header)
    if claim.holds != (status == "certified"):
        wrong.append(f"the solution says {status!r:.60}, its certificate {'holds' if claim.holds else 'does not hold'}")
    if records.number(header, "discount") != r.discount:
        wrong.append(f"the certificate has discount {float(r.discount):g}, the solution {header['discount']:g}")
    if records.whole(header, "n_actions") != r.actions:
        wrong.append(f"the certificate has {r.actions} actions, the solution {header['n_actions']}")
    terminal = records.entry(records.entry(header, "stats"), "terminal")
    if records.flag(records.entry(header, "reward"), "zero_at_terminal") or terminal is not None:
        wrong.append("the solution has terminal states, and no certificate is for problems with any")
    return wrong


@dataclass(frozen=True)
class _Reward:
    """R of a solution, in units: an expansion, or linear between evenly spaced points."""

    basis: Functions
    coefficients: Numbers

    @classmethod
    def of(cls, header: dict[str, Any], arrays: dict[str, Any], unit: Fraction) -> _Reward:
        """Read it."""
        reward = records.entry(header, "reward")
        spec = records.entry(reward, "basis")
        if isinstance(spec, dict) and spec.get("type") == CELLS:
            counts = [records.whole({"counts": n}, "counts", 2) for n in records.listed(spec, "counts")]
            if len(counts) != 1:
                raise DamagedError(f"counts should be one number, got {counts}")
            around = bool(records.listed(spec, "periodic"))
            basis = Functions(AROUND if around else CELLS, counts[0], *records.interval(records.entry(spec, "box")))
        else:
            basis = records.functions(reward, "basis")
        return cls(basis, records.scaled(records.exact(arrays, "reward.coefficients", (basis.size,)), 1 / unit))

    @property
    def linear(self) -> bool:
        """Linear between points."""
        return self.basis.kind in (CELLS, AROUND)

    @property
    def range(self) -> tuple[Fraction, Fraction]:
        """Its least and largest value."""
        if self.linear:
            return min(self.coefficients), max(self.coefficients)
        return rational.range_around(self.basis.kind, self.coefficients)

    @property
    def terms(self) -> Fraction:
        """The size of its terms."""
        if self.linear:
            return max(map(abs, self.coefficients))
        return rational.size_of_terms(self.basis.kind, self.coefficients)

    def at(self, state: Fraction) -> Fraction:
        """Its value at a state, to far more digits than the file has."""
        if not self.linear:
            phi = rational.at(self.basis.kind, self.basis.size, [self.basis.place(state)])
            return (phi @ Table.of([self.coefficients]).T).above()[0][0]
        steps = self.basis.size - (self.basis.kind == CELLS)
        place = (state - self.basis.low) / (self.basis.high - self.basis.low) * steps
        left = min(math.floor(place), steps - 1)
        ends = self.coefficients[left], self.coefficients[(left + 1) % self.basis.size]
        return ends[0] + (place - left) * (ends[1] - ends[0])

    def __str__(self) -> str:
        kind = f"{self.basis.size} points, piecewise linear" if self.linear else str(self.basis)
        return f"{kind} on {self.basis.domain}"


def _other_reward(r: Record, reward: _Reward, columns: Functions) -> list[str]:
    """Where V = R + γ Σ_c π_c·(P̂_cV) is not the V that the sums were made with."""
    if (reward.basis.low, reward.basis.high) != (columns.low, columns.high):
        return [f"the reward lives on {reward.basis.domain}, the columns on {columns.domain}"]
    ends = [rational.range_around(r.kind, fit) for fit in r.fits]
    terms = reward.terms + r.discount * max(rational.size_of_terms(r.kind, fit) for fit in r.fits)
    least, most = reward.range
    derived = least + r.discount * min(low for low, _ in ends), most + r.discount * max(high for _, high in ends)
    if wrong := records.other_range(derived, (r.low, r.high), terms, r.unit):
        return wrong
    fits = [x for fit in r.fits for x in fit]
    between = reward.at(r.places[0]) - reward.at(r.places[1]) + r.discount * rational.dot(fits, r.drop)
    if abs(between - r.dropped) > TIGHT * terms:
        wrong.append(f"V differs by {short(r.unit * between, 6)} between the two states that its span is taken from")
    unmixed, constant = enclosures.inverse(Table.of(r.mix)), 1 / rational.root_above(records.constant_squared(r.kind))
    if unmixed is None or any(len(reached) != reward.basis.size for reached in r.reached):
        return [*wrong, "the sums over next states are not those of the functions of the reward"]
    for c, (n, reached) in enumerate(zip(r.counts, r.reached, strict=True)):
        gram = r.gram[c][0]
        moved = (unmixed @ Table.of([[row[0]] for row in r.drift[c]])).above()
        pieces = [own + rational.dot(z, gram) for (own,), z in zip(moved, r.Z[c], strict=True)]
        found = constant * rational.dot(reward.coefficients, reached) + r.discount * rational.dot(fits, pieces)
        if abs(found - rational.dot(r.fits[c], gram) - r.surprise[c][0]) > TIGHT * n * terms:
            wrong.append(f"the sums of action {c} were made with another reward")
    return wrong


def _other_drop(r: Record, expert: Expert, columns: Functions) -> list[str]:
    """Where the functions π_dφ_j do not differ as stated between the two states that the span of V is taken from."""
    if not all(columns.low <= place <= columns.high for place in r.places):
        return [f"the states that the span of V is taken from lie outside {columns.domain}"]
    high, low = rational.at(r.kind, r.size, [columns.place(place) for place in r.places]).above()
    first, second = (expert.at(place) for place in r.places)
    told = [r.drop[d * r.size : (d + 1) * r.size] for d in range(r.actions)]
    if len(first) == len(second) == 1:
        each = [
            [a * (d in first) - b * (d in second) for a, b in zip(high, low, strict=True)] for d in range(r.actions)
        ]
    else:  # where the expert mixes its probabilities are not in the file, but they add up to one
        told, each = (
            [[sum(column) for column in zip(*told, strict=True)]],
            [[a - b for a, b in zip(high, low, strict=True)]],
        )
    size = TIGHT * max(map(abs, (*high, *low)))
    if any(abs(x - y) > size for own, row in zip(told, each, strict=True) for x, y in zip(own, row, strict=True)):
        return ["the functions of the expert differ otherwise between the two states that the span of V is taken from"]
    return []


def _about(r: Record, columns: Functions, expert: Expert, claim: Claim) -> list[tuple[str, str]]:
    """What is claimed of which problem, from how much."""
    places = [short(x) for x in expert.switches[:_NAMED]] + ["…"] * (len(expert.switches) > _NAMED)
    count = len(expert.switches)
    switches = f"switches at {', '.join(places)} ({count} in all)" if count else "never switches"
    return [
        ("problem", f"{r.actions} actions, discount {float(r.discount):g}; states in {columns.domain}"),
        ("expert", f"looked up at {expert.cells + 1} states; {switches}"),
        ("data", records.transitions(r.counts, paired=r.paired)),
        ("spent", records.spent(claim)),
    ]


def _conclude(
    about: Finding,
    words: dict[str, Any],
    claim: Claim,
    tube: Tube,
    span: Fraction,
    r: Record,
    expert: Expert,
    columns: Functions,
) -> None:
    """The tube and all that follows from it, and the statement if the claim follows."""
    about.margin, parts = tube.margin(claim.margin)
    told = {name: records.bound(words, name) for name in ("half_width", "share", "regret", "settled", "ties")}
    told["value_span"] = records.bound(words, "value_span")
    if claim.holds:
        about.wrong += records.objections(parts, about.margin, claim)
        about.wrong += _objections(told, tube, span, parts[0], r, expert, claim)
    derived = {name: math.inf if (x := getattr(tube, name)) is None else x for name in told if name != "value_span"}
    weaker = {name: told[name] if claim.holds and told[name] > x * (1 + TIGHT) else x for name, x in derived.items()}
    at_span = min(span, told["value_span"]) if claim.holds else span
    share = (
        f", {at_most(weaker['regret'] / at_span, 3)} of the span of V, at least {at_least(at_span)}" if at_span else ""
    )
    away = f"farther than {at_most(weaker['settled'])} from a switch " if expert.switches else ""
    beyond = f"; {away}every best policy takes an action that the expert takes"
    about.lines[2:2] = [
        ("margin", f"{parts[0]} = {short(about.margin)}; the file says {short(claim.margin)}"),
        (
            "tube",
            f"half-width at most {at_most(weaker['half_width'])}, {at_most(weaker['share'] * 100, 3)} % of the domain",
        ),
        ("regret", f"at most {at_most(weaker['regret'])}{share}{beyond * (weaker['settled'] < math.inf)}"),
    ]
    if weaker["ties"] > 0:
        about.lines.insert(5, ("ties", f"actions that the expert mixes differ by {at_most(weaker['ties'])} at most"))
    if claim.holds:
        count = len(expert.switches)
        each = "its switch" if count == 1 else f"each of its {count} switches"
        where = f"farther than {short(words['allowed'])} from {each}"
        about.statement = (
            f"with probability at least {records.probability(claim.delta)}, at every state of {columns.domain}"
            f"{f' {where}' if count else ''}, every action that the expert takes is strictly better than every action "
            f"that it does not take, if it is followed afterwards: (P_b − P_a)V(s) ≥ "
            f"{at_least(min(about.margin, claim.margin))}"
        )


def _objections(
    told: dict[str, Any], tube: Tube, span: Fraction, parts: Parts, r: Record, expert: Expert, claim: Claim
) -> list[str]:
    """Why what is claimed of the tube does not follow, if it does not; the tube may be off by a cell."""
    wrong, cell, steps = [], (1 + RELATIVE) * expert.width, 1 / (1 - r.discount)
    allowed = (RELATIVE * parts.scale + parts.rounding) * steps
    # A generous allowance for rounding in the file makes a claim weaker than what follows, but not by more than this.
    generous = allowed + 10 * claim.lost("floating point") * steps
    for name, follows in (("regret", tube.regret), ("value_span", span)):
        if not abs(follows - told[name]) <= ALIKE * follows + generous:
            wrong.append(f"{name.replace('_', ' ')} is not what follows from the sums: {short(follows, 6)}")
    if told["value_span"] > span + RELATIVE * span + allowed:
        wrong.append(f"the claimed value span is larger than what follows from the sums, {short(span, 6)}")
    least = {
        "regret": (tube.regret, allowed),
        "ties": (tube.ties, allowed),
        "half_width": (tube.half_width, cell),
        "share": (tube.share, cell / (expert.high - expert.low)),
        "settled": (tube.settled, cell),
    }
    for name, (own, slack) in least.items():
        # Infinity claims nothing, and is all that can be claimed where there is no bound.
        if told[name] != math.inf and (own is None or told[name] < own - slack):
            known = "infinite" if own is None else short(own, 6)
            wrong.append(f"{name.replace('_', ' ')} may be {known}, more than is claimed")
    return wrong
