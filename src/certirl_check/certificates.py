"""Certificates derived again: of experts of one action and of policies, on intervals and boxes, alone and as sums.

One derivation: an interval is a box with one coordinate, a single reward is a sum of one component, and an expert of
one action is a policy whose grid has one cell. Nothing here is shared with the code that made the certificate. The
notation is that of docs/notes/certificate.md, sections 9 and 10. All bounds are rounded to the safe side.
"""

from __future__ import annotations

import math

import numpy as np

from certirl_check.bands import Band, Derivation
from certirl_check.claims import (
    DIFFERENCE,
    DRAWS,
    FIXED_BEFORE,
    IN_ORDER,
    Within,
    at_least,
    claimed_within,
    failed,
    short,
    within_of,
)
from certirl_check.enclosures import Enclosure, Floats, enclosed, smaller
from certirl_check.grounds import SHARES, Ground, SumsClaim
from certirl_check.harmonics import Cells, Functions, contracted
from certirl_check.reading import Expert, Pair, Reading, compare_tube
from certirl_check.records import ALIKE, RELATIVE, TIGHT, DamagedError, Record, Reward, TooLittleError, components_of

Bound = tuple[float, float, float]  # a lower bound, the estimate that it is below, and what rounding may do to it


class Side:
    """One side of a band: D_ba from below, or D_ab; b is the better action of its pair."""

    def __init__(self, band: Band, side: int, columns: Functions) -> None:
        self.band, self.side, self.columns = band, side, columns
        self.sign, self.functions = 1.0 - 2.0 * side, band.paid.functions
        self.pair = band.pair if side == 0 else band.pair[::-1]
        self.curve = band.curve if side == 0 else -band.curve
        self.total = (enclosed(band.estimation) + band.second).above
        if not (np.isfinite(self.total).all() and np.isfinite(self.curve.size).all()):
            raise TooLittleError("there is too little data: some bounds are infinite")
        below, above = float(self.total[side].max()), float(self.total[1 - side].max())
        factor = columns.inflation(self.total.shape[1:])
        self.swing = float(((enclosed(below) + above) * 0.5 * factor).above)
        self.most = float(((enclosed(below) - above) * 0.5 + self.swing).above)

    def everywhere(self) -> Bound:
        """The least of the curve less the largest radius; how far the least is not known counts as rounding."""
        low, high = self.functions.least(self.curve)
        paid, between = self.band.paid.least(self.sign), self.band.paid.between
        low, high = float((enclosed(low) + paid - between).below), high + paid
        radius = max(self.most, float(self.total[self.side].max()))
        lower = enclosed(low) - radius - self.band.tail - self.band.rounding
        return float(lower.below), high, float((enclosed(high) - low + self.band.rounding).above)

    def in_cells(self, cells: Cells) -> tuple[Floats, Floats]:
        """Lower bounds within cells, and the estimates at their middles ``[n_1, …, n_d]``."""
        axes = self.columns.places(cells)
        here, there = self.total[self.side], self.total[1 - self.side]
        weights = self.columns.weights(here.shape, axes)
        sizes, apart = [table.absolute() for table in weights], contracted(Enclosure(here - there), weights)
        weight, own, both = (contracted(Enclosure(x), sizes) for x in (np.ones_like(here), here, here + there))
        slack = 4e-16 * float((here + there).max()) * float(weight.above.max())  # of the sum and the difference above
        radius = smaller((both + apart) * 0.5 + slack, Enclosure(np.full(weight.shape, self.most)))
        radius = radius + enclosed(self.columns.drift(cells)) * self.swing
        between = np.maximum(radius.above, (own / weight).above)
        functions, (table, moved) = self.functions, self.band.paid.on_cells(cells)
        values = functions.on_axes(functions.tensor(self.curve), functions.places(cells)) + self.sign * table
        lost = enclosed(between) + functions.fall(self.curve, cells) + moved + self.band.tail + self.band.rounding
        return (values - lost).below, values.middle


class BandReading(Reading):
    """What the bands of one component say of all actions b that the expert takes."""

    def __init__(self, work: Derivation, expert: Expert, required: float = 0.0) -> None:
        # The cells of the expert's grid are cut into smaller ones, for which there are bounds and estimates by pair.
        used, bands = np.asarray(expert.taken.reshape(-1, expert.taken.shape[-1]).any(axis=0)), work.bands()
        finest = max((band.paid.functions for band in bands), key=lambda functions: functions.size)
        self.g, self.cells, self.edges = work.g, finest.cells(expert.edges), expert.edges
        pairs = [(band, side) for band in bands for side in (0, 1) if used[band.pair[side]]]
        self.sides = {side.pair: side for side in (Side(band, i, work.columns) for band, i in pairs)}
        self.bounds = {pair: side.in_cells(self.cells) for pair, side in self.sides.items()}
        super().__init__(expert, {pair: self._least(lower) for pair, (lower, _) in self.bounds.items()}, required)
        whole = max(expert.shape) == 1
        self.everywhere = {pair: side.everywhere() for pair, side in self.sides.items() if whole}

    def _least(self, lower: Floats) -> Floats:
        """The least of the smaller cells in each cell of the grid; one on an edge counts for both sides."""
        for axis, (small, large) in enumerate(zip(self.cells.edges, self.edges, strict=True)):
            first = np.searchsorted(small, large[:-1], side="right") - 1
            last = np.searchsorted(small, large[1:], side="left")
            runs = np.stack([first, np.minimum(last, len(small) - 1)], axis=1).ravel()
            padded = np.concatenate([lower, np.take(lower, [-1], axis=axis)], axis=axis)
            lower = np.take(np.minimum.reduceat(padded, runs, axis=axis), np.arange(0, len(runs), 2), axis=axis)
        return lower

    def margins(self, allowed: float) -> dict[Pair, Bound]:
        """The least of D_ba farther than ``allowed`` from the switches, by pair."""
        outside, margins = self.outside(allowed), dict[Pair, Bound]()
        for pair, grid in self.lower.items():
            if (asked := self.asked(pair) & outside).any():
                (lower, values), least = self.bounds[pair], float(grid[asked].min())
                estimate = float(values[lower == least].max(initial=-np.inf))
                margins[pair] = (least, estimate, self.sides[pair].band.rounding)
                if pair in self.everywhere:
                    margins[pair] = max(margins[pair], self.everywhere[pair])
        return margins

    def later(self, visits: Floats) -> float:
        """How much of the shortfall is met in a later step at most, by the visits of the tents that cover it."""
        short_by, later = self.shortfall, math.inf
        for cover, visit in zip(self.expert.tents(self.g.marks, self.g.widths), visits, strict=True):
            lacking = short_by > 0
            if (cover[lacking] > 0).all():
                stretch = float((short_by[lacking] / cover[lacking]).max(initial=0.0)) * (1 + 1e-15)
                later = min(later, stretch * float(visit) * (1 + 1e-15))
        return later


# The certificate.


class Certificate(SumsClaim):
    """A certificate as a file holds it, alone or within a solution."""

    def __init__(self, record: Record, solution: Record | None) -> None:
        self.grounds = [Ground(ground) for ground in record.records("grounds")]
        super().__init__(record, solution, self.grounds)
        self.first, self.tail, self.expert = self.grounds[0], record.tail(), None
        self.within = within_of(record)  # of an inexact expert
        self.required = 0.0 if self.within is None else self.within.required(self.first.discount)
        self.holds = self.required < self.margin < math.inf and self.tail is not None  # a margin is claimed
        self.tube = record.optional("tube", "Tube")  # of an expert of several actions
        if self.tube is not None:
            grid = self.tube.record("grid", "ExpertGrid")
            shape = (*[None] * self.first.columns.dimension, self.first.actions)
            self.expert = Expert(grid.box("domain"), grid.array("support", shape, "b"))
            if min(self.expert.shape) < 1:
                raise DamagedError("support should say what the expert does at the corners of cells")

    @staticmethod
    def claimed(record: Record) -> tuple[float, str]:
        """The margin that a file claims, and why it claims nothing if it does not."""
        grounds = record.records("grounds")
        discount = grounds[0].record("surrogate", "Surrogate").number("discount") if grounds else math.nan
        margin, nothing = claimed_within(record, discount)
        return margin, "no tail was declared" if record.entry("tail") is None else nothing

    # What cannot be.

    def contradictions(self) -> list[str]:
        """What cannot be in the certificate, or contradicts its solution."""
        grounds, first = self.grounds, self.first
        samples, counted = self.record.whole("samples"), int(first.counts.min())
        shares, total = SHARES[first.constant], math.fsum(ground.delta for ground in grounds)
        split = [abs(self.spending.get(name, 0.0) - share * total) <= TIGHT * total for name, share in shares.items()]
        split.append(min(ground.delta for ground in grounds) > 0)
        alike = all((ground.used, ground.discount) == (first.used, first.discount) for ground in grounds)
        whole = first.coordinates is None or (first.constant and self.tube is None)
        largest = max(ground.tail or 0.0 for ground in grounds)
        wrong = super().contradictions() + failed(
            (samples == counted, f"{samples:,} fresh transitions per action are claimed, the sums are of {counted:,}"),
            (all(split), "the parts of δ are not those of the components"),
            (alike, "the components are not of one problem"),
            (len({ground.component for ground in grounds}) == len(grounds), "two components have the same number"),
            (whole, "the expert of a sum of components takes several actions"),
            (self.tail in (None, largest), "the tail is not the largest of the components"),
            (first.constant or self.tube is not None, "the expert takes several actions, and there is no tube"),
        )
        if self.within is not None:
            wrong += self._other_span(self.within)
        if self.expert is not None:
            wrong += self._other_expert(self.expert) or self._other_drop(self.expert)
        return wrong + ([] if self.solution is None else self._other_solution(self.solution))

    def _other_expert(self, expert: Expert) -> list[str]:
        """Where the expert on its grid contradicts what the sums were made with."""
        g, taken = self.first, expert.support.reshape(-1, self.first.actions)
        used, marks = tuple(np.flatnonzero(taken.any(axis=0)).tolist()), expert.marks
        same = g.marks.shape == marks.shape and np.allclose(g.marks, marks, rtol=TIGHT, atol=0)
        return failed(
            (expert.box == g.columns.box, f"the expert is on {expert.box!r:.60}, the columns on {g.columns.domain}"),
            (taken.any(axis=1).all(), "the expert takes no action at some state"),
            (used == g.used, f"the expert takes other actions somewhere than {', '.join(map(str, g.used))}"),
            (same, "the tents do not stand where the expert switches"),
            (len(marks) or not len(g.widths), "there are tents, and the expert never switches"),
        )

    def _other_drop(self, expert: Expert) -> list[str]:
        """Whether V̂ and the functions π_dh_j do not differ as stated between the two places."""
        g, used = self.first, list(self.first.used)
        if not all(expert.contains(place) for place in g.places):
            return [f"the states that the span of V is taken from lie outside {g.columns.domain}"]
        high, low = g.columns.at(g.places).middle
        stated, taken = g.drop.reshape(len(used), -1), [expert.at(place)[used] for place in g.places]
        if all(actions.sum() == 1 for actions in taken):
            derived = np.outer(taken[0], high) - np.outer(taken[1], low)
        else:  # where the expert mixes its probabilities are not in the file, but they add up to one
            stated, derived = stated.sum(axis=0, keepdims=True), (high - low)[None]
        between, room, known = g.dropped, 0.0, [expert.at(place).sum() == 1 for place in g.places]
        if g.reward.basis is not None and (all(known) or not g.reward.of_actions):
            rows = [g.reward.row(int(expert.at(place).argmax())) for place in g.places]
            each = zip(rows, g.places, strict=True)
            values = np.concatenate([g.reward.basis.values(row, place[None]) for row, place in each])
            between = float(values[0] - values[1] + g.discount * (g.fits[used].ravel() @ g.drop))
            room = TIGHT * float(abs(g.low) + abs(g.high) + np.abs(values).sum())
        otherwise = "the functions of the expert differ otherwise between the states that the span of V is taken from"
        differs = f"V differs by {short(g.unit * between, 6)} between the states that its span is taken from"
        return failed(
            (np.abs(stated - derived).max() <= TIGHT, otherwise),
            (0 <= g.dropped <= (g.high - g.low) * (1 + TIGHT), "V differs by more than its bounds allow"),
            (abs(between - g.dropped) <= room, differs),
        )

    def _other_span(self, within: Within) -> list[str]:
        """Whether the reward differs by less than stated between the two places that its span is taken from."""
        if not all(action in self.first.used for action in within.actions):
            return ["the span of the reward is that of actions which the expert does not take"]
        sums, sizes = list[float](), list[float]()
        for g in self.grounds:
            box = np.array(g.columns.box)
            own = list(g.coordinates or range(len(box)))
            if max(own) >= within.places.shape[1] or (g.coordinates is None and within.places.shape[1] != len(own)):
                return ["the places that the span of the reward is taken from are no states"]
            places = within.places[:, own]
            if not ((places >= box[:, 0]) & (places <= box[:, 1])).all():
                return [f"the places that the span of the reward is taken from lie outside {g.columns.domain}"]
            if g.reward.basis is None:
                widest = (g.reward.high - g.reward.low) * g.unit * (1 + TIGHT)
                alone = len(self.grounds) == 1
                return failed((alone and within.span <= widest, "the reward spans more than its range"))
            rows = [g.reward.row(action) for action in within.actions]
            ends = [float(g.reward.basis.values(r, place[None])[0]) for r, place in zip(rows, places, strict=True)]
            sums.append(g.unit * (ends[0] - ends[1]))
            sizes.append(g.unit * (abs(ends[0]) + abs(ends[1])))
        total = math.fsum(sums)
        less = f"the reward differs by {short(total, 6)} between the places that its span is taken from"
        return failed((within.span <= total + TIGHT * math.fsum(sizes), less))

    def _other_solution(self, solution: Record) -> list[str]:
        """Where a solution has another reward or expert than its certificate, or another problem."""
        g, reward = self.first, solution.record("reward", "Reward")
        listed = components_of(reward)
        terms = {term.coordinates: term for term in listed}
        grounds = {ground.coordinates or tuple(range(g.columns.dimension)): ground for ground in self.grounds}
        same = all(_is_reward_of(terms[place], grounds[place]) for place in terms.keys() & grounds.keys())
        named = all(terms[place].name in ("", grounds[place].name) for place in terms.keys() & grounds.keys())
        others = [term for place, term in terms.items() if place not in grounds]
        coordinates = sorted(c for term in listed for c in term.coordinates)
        terminal = solution.record("stats").entry("terminal") is not None or reward.has_terminal
        expert = g.used[0] if len(g.used) == 1 and self.tube is None else None
        return self.other_problem(solution, (g.discount, g.actions), expert, self.holds) + failed(
            (not terminal, "the solution has terminal states, and no certificate is for problems with any"),
            (same, "the certificate is about another reward than its solution"),
            (named, "the components have other names than those of the solution"),
            (not any(term.coefficients.any() for term in others), "a component with a reward has no bound"),
            (grounds.keys() <= terms.keys(), "the certificate has components that the solution does not have"),
            (coordinates == list(range(len(coordinates))), "the components do not hold every coordinate once"),
        )

    # What is printed.

    @property
    def domain(self) -> str:
        """The states in words."""
        terms = [] if self.solution is None else components_of(self.solution.record("reward", "Reward"))
        domains = [term.basis.domain for term in terms if term.basis is not None]
        return " × ".join(domains) if len(domains) > 1 else super().domain

    def lines(self) -> list[tuple[str, str]]:
        """What is claimed of which problem, from how much."""
        g = self.first
        expert = f", the expert always takes {g.used[0]};" if self.tube is None else ","
        reward = "a sum over components: " + "; ".join(f"{part.name} {part.described}" for part in self.grounds)
        return [
            ("problem", f"{g.actions} actions{expert} discount {g.discount:g}; states in {self.domain}"),
            ("reward", g.described if g.coordinates is None else reward),
            *self.account,
            *([] if self.expert is None else [("expert", str(self.expert))]),
            ("data", g.data),
            ("spent", self.spent),
        ]

    def trusted(self) -> list[str]:
        """What no file can show."""
        rows = IN_ORDER if self.first.ordered else DRAWS
        trusted = [rows.format(", valued with this reward"), *self.notes, *self.assumptions()]
        trusted.append(FIXED_BEFORE.format("the reward, the guesses"))
        trusted += [] if self.expert is None else [self.expert.assumption]
        for ground in [ground for ground in self.grounds if ground.reward.basis is None]:
            own = ground.reward
            low, high, dropped = (short(ground.unit * x) for x in (own.low, own.high, ground.dropped))
            about = "the certificate is about your reward, which is not in the file and stays within"
            under = " under the actions that the expert takes" if own.of_actions else ""
            trusted.append(f"{about} [{low}, {high}]{under}")
            if self.within is not None:
                trusted.append(f"it differs by {short(self.within.span)} between two states of the file")
            if self.expert is not None:
                trusted.append(f"the value that was guessed for it differs by {dropped} between two states of the file")
        for ground in [ground for ground in self.grounds if ground.reward.trusted]:
            slopes = [short(ground.unit * slope) for slope in ground.reward.slopes]
            moved = f"change by at most {', '.join(slopes)} per unit of each coordinate"
            change = moved if ground.reward.slopes.any() else "do not change"
            about = "differences R(s, b) − R(s, a) are those of the file at the points of its grid"
            trusted.append(f"{about}, and {change} between them")
        return trusted

    # What follows.

    def conclude(self) -> list[str]:
        """Derive the margin, minima over components added up pair by pair, and say what of the file does not follow."""
        allowed = 0.0 if self.tube is None else self.tube.number("allowed")
        own = self.expert
        everywhere = allowed == 0 and self.within is not None
        if own is not None and not everywhere and not own.reach * (1 - TIGHT) <= allowed < own.width * (1 + TIGHT):
            return [f"a tube of half-width {short(allowed)} is none between a cell and the domain {self.domain}"]
        work = [Derivation(ground) for ground in self.grounds]
        level = self.required / self.first.unit if self.expert is not None else 0.0  # of a constant expert by the sums
        readings = [BandReading(own, self.expert or own.g.expert, level) for own in work]
        each = [reading.margins(allowed) for reading in readings]
        units = np.array([ground.unit for ground in self.grounds])
        bounds = {pair: units[:, None] * [own[pair] for own in each] for pair in each[0]}
        if not bounds:
            return failed((self.margin == math.inf, "no state is left outside the tube at which actions are compared"))
        worst = min(bounds.values(), key=lambda own: math.fsum(own[:, 0]))
        self.derived = margin = float(np.nextafter(math.fsum(worst[:, 0]), -np.inf))
        estimate, lost = float(worst[:, 1].sum()), float((worst[:, 1] - worst[:, 0]).sum())
        scale = abs(estimate) + lost
        slack = RELATIVE * scale + 2 * float(worst[:, 2].sum())
        self.statement = self._statement(min(margin, self.margin), allowed)
        wrong = self.compare_margin(estimate, slack, holds=self.holds, required=self.required)
        if self.tube is not None:
            return wrong + self._compare_tube(self.tube, work[0], readings[0], scale)
        shown = self.record.array("bounds", (None, self.first.actions - 1), finite=False)
        derived, numbers = np.zeros(shown.shape), [ground.component for ground in self.grounds]
        if len(shown) <= max(numbers):
            raise DamagedError("bounds should be those of all components")
        derived[numbers] = np.array([bounds[pair][:, 0] for pair in sorted(bounds)]).T
        regret = self.first.discount / (1 - self.first.discount) * max(0.0, -margin - slack)
        return wrong + failed(
            ((shown <= derived + slack).all(), "the bounds of the components are larger than what follows"),
            (self.record.bound("regret") >= regret, f"the regret that follows is {short(regret, 6)}"),
        )

    def _compare_tube(self, tube: Record, work: Derivation, reading: BandReading, scale: float) -> list[str]:
        """Compare the tube with what follows."""
        g, span = work.g, work.g.unit * work.span()
        regret = g.unit * reading.regret(g.discount, reading.later(work.visits()))
        rounding = max(side.band.rounding for side in reading.sides.values())
        room = 10 * (RELATIVE * (scale + span) + g.unit * rounding) / (1 - g.discount)
        slack = RELATIVE * (scale + span) / g.unit + 2 * rounding
        self.record.array("bounds", (0, g.actions - 1))  # of a policy there are none
        ends = (regret, regret * (1 - ALIKE) - room), (span, span * (1 + ALIKE) + room)
        return compare_tube(self, tube, reading, *ends, unit=g.unit, slack=slack, room=room)

    def _statement(self, margin: float, allowed: float) -> str:
        """What is confirmed, in a sentence."""
        sure = f"with probability at least {self.probability}"
        if self.within is not None:
            where = f" farther than {short(allowed)} from the states where it switches" if allowed else ""
            least = f"{DIFFERENCE[self.first.reward.of_actions]} ≥ {at_least(margin)}"
            return f"{sure}, at every state of {self.domain}{where}, {self.within}; so {least}"
        if self.expert is None:
            return (
                f"{sure} action {self.first.used[0]} is strictly optimal at every state of {self.domain}: "
                f"D_a(s) ≥ {at_least(margin)} for every other action a, D_a being its advantage over a divided by the "
                "discount"
            )
        count = int((~self.expert.steady).sum())
        switches = "its switch" if count == 1 else f"each of its {count} switches"
        if count > 1 and len(self.expert.shape) > 1:
            switches = "where it switches"
        where = f" farther than {short(allowed)} from {switches}" if count else ""
        return (
            f"{sure}, at every state of {self.domain}{where}, every action that the expert takes is strictly better "
            "than every action that it does not take, if it is followed afterwards: "
            f"{DIFFERENCE[self.first.reward.of_actions]} ≥ {at_least(margin)}"
        )


def _is_reward_of(term: Reward, ground: Ground) -> bool:
    """Whether a component of a reward is what the sums of a ground are about."""
    same = np.array_equal(term.coefficients / ground.unit, ground.reward.coefficients)
    return term.basis == ground.reward.basis and same
