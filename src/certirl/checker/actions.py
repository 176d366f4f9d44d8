"""Certificates of experts who always take one action, derived again: D_a(s) ≥ margin at every state, alone or summed.

The notation is that of docs/notes/certificate.md. A sum over components is the sum of its components' bounds, each at
its own part of δ (section 13). Nothing here is shared with the code that made the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, zip_longest
from typing import Any

from certirl.checker import rational, records
from certirl.checker.rational import Grid, Table, eliminate, identity
from certirl.checker.records import (
    DRAWS,
    EVENTS,
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
    short,
)

LEVEL = 1  # remainders to all orders, the only kind that is derived here
PLACE = Fraction(1, 10**5)  # of the terms of a curve: of minima that tie, to a share of 1e-6, one is named
_STRETCH = 8192  # the sums were taken over blocks of at most this length


@dataclass(frozen=True, eq=False)
class Problem:
    """What a solution says it is about."""

    actions: int
    expert: int
    discount: Fraction
    status: str

    @classmethod
    def of(cls, header: dict[str, Any]) -> Problem:
        """Read it."""
        actions, expert = records.whole(header, "n_actions", 2), records.whole(header, "expert")
        discount, status = records.number(header, "discount"), records.status_of(header)
        if not expert < actions:
            raise DamagedError(f"expert should be one of {actions} actions, got {expert}")
        if not 0 < discount < 1:
            raise DamagedError(f"discount should lie between 0 and 1, got {float(discount):g}")
        return cls(actions, expert, discount, status)

    @property
    def rivals(self) -> list[int]:
        """The other actions."""
        return [a for a in range(self.actions) if a != self.expert]

    def contradictions(self, words: dict[str, Any]) -> list[str]:
        """Where what a certificate rests on is about something else."""
        wrong = []
        if records.whole(words, "expert") != self.expert:
            wrong.append(f"the certificate is about expert {words['expert']}, the solution about {self.expert}")
        if records.number(words, "discount") != self.discount:
            wrong.append(f"the certificate has discount {words['discount']:g}, the solution {float(self.discount):g}")
        return wrong


@dataclass(frozen=True, eq=False)
class Record:
    """What a bound rests on, every number exact, V in units of about its own span.

    Attributes:
        unit: a power of two; V, its fits and sums are multiples of it.
        terms: the size of the terms of V times their number.
    """

    columns: Functions
    problem: Problem
    paired: bool
    first: Fraction
    second: Fraction
    tail: Fraction
    unit: Fraction
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
    reached: list[Numbers]

    @property
    def kind(self) -> str:
        """Of the columns."""
        return self.columns.kind

    @property
    def size(self) -> int:
        """How many columns."""
        return self.columns.size

    @property
    def degree(self) -> int:
        """Of expansions in the columns."""
        return rational.frequency(self.kind, self.size - 1)


@dataclass(frozen=True)
class Bound:
    """The margin against one rival, with the curve, in units of V's span, whose minimum it starts from."""

    rival: int
    parts: Parts
    curve: Table


class Derivation:
    """The inequalities, with the quantities shared by all rivals."""

    def __init__(self, record: Record) -> None:
        self.r, ks, self.pi, self.gamma = record, record.size, record.problem.expert, record.problem.discount
        pi, gamma, self.rivals = self.pi, self.gamma, record.problem.rivals
        self.grid = Grid(record.kind, ks)
        self.precision: list[Table] = []
        for action, gram in enumerate(record.gram):
            solved = eliminate(gram, identity(ks))
            if solved is None or not solved[1]:
                raise ImpossibleError(f"the Gram matrix of action {action} is not positive definite")
            self.precision.append(solved[0])
        rows = zip(identity(ks), record.Z[pi], strict=True)
        solved = eliminate([[one - gamma * z for one, z in zip(*pair, strict=True)] for pair in rows], identity(ks))
        if solved is None:
            raise ImpossibleError("I − γT of the surrogate has no inverse")
        self.resolvent = solved[0]
        self.T, self.fits = Table.of(record.Z[pi]), [Table.of([fit]) for fit in record.fits]
        self.F = {a: self.resolvent @ (self.T - Table.of(record.Z[a])) for a in self.rivals}
        self.later = 2 * gamma / (1 - gamma)  # what an error of the residual can add up to over all later steps
        dense = self.grid.across.T
        self.leverage = [self.grid.sup((dense @ G).times(dense).sums())[0] for G in self.precision]
        self.lebesgue = [1 + rational.root_above(n * x) for n, x in zip(record.counts, self.leverage, strict=True)]

    def bounds(self) -> list[Bound]:
        """D_a(s) ≥ estimated − band − second − tail − rounding for every state; one for every rival a."""
        r, events, second, found = self.r, EVENTS * len(self.rivals) / self.r.first, self._second_order(), []
        count = rational.good_count(r.kind, r.degree, float(events), 20 * r.size + 1)
        (phi, wider), L = self._points(count), rational.log_above(events * count)
        for rival in self.rivals:
            band = wider * max(self._band(rival, phi, L))
            own, other = (r.tail * (r.high - r.low) / 2 * self.lebesgue[c] for c in (self.pi, rival))
            rounding, curve = self._rounding(rival, band + second[rival]), self._curve(rival)
            estimated = rational.minimum_below(r.kind, curve)
            parts = Parts(estimated, band, second[rival], own * (1 + self.later) + other, rounding)
            found.append(Bound(rival, parts.times(r.unit), curve))
        return found

    def _points(self, count: int) -> tuple[Table, Fraction]:
        """φ at the spread points, and what an expansion can be larger by in between."""
        phi = rational.values(self.r.kind, self.r.size, rational.spread_places(count))
        return phi, rational.inflation_above(self.r.kind, self.r.degree, count)

    def _band(self, rival: int, phi: Table, L: Fraction) -> Numbers:
        """The radius at each point of the mean of p·x Y_π − q·x Y_a."""
        r, pi, grid = self.r, self.pi, self.grid
        p = (phi + (phi @ self.F[rival].T).scaled(self.gamma)) @ self.precision[pi]
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
        pi = self.pi
        own, other = (Table.of([self.r.surprise[c]]) @ self.precision[c] for c in (pi, rival))
        return self.fits[pi] - self.fits[rival] + own - other + (own @ self.F[rival]).scaled(self.gamma)

    def _second_order(self) -> dict[int, Fraction]:
        """What the errors of the operators do to û, to the error of that, and so on."""
        r, ks, pi, gamma = self.r, self.r.size, self.pi, self.gamma
        if ks == 1:
            return dict.fromkeys(self.rivals, Fraction(0))
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
            raise ImpossibleError("there is too little data: errors of the operators may grow from step to step")
        far = [Fraction(0), *(r.tail * (high - low) / 2 for low, high in self.ranges[1:])]
        own = [Fraction(0)] * ks
        if not r.paired:
            own = [wider * max(row) for row in self._operator_errors(pi, phi, L, contrast=False)]
        result = {}
        for rival in self.rivals:
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
            drift, Z = Table.of(r.drift[self.pi]) - drift, self.T - Z
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
        r, pi, worst = self.r, self.pi, Fraction(0)
        square = records.constant_squared(r.kind)
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


@dataclass(frozen=True, eq=False)
class Ground:
    """What the bound of one component rests on, as a file tells it.

    Attributes:
        words: of the header: paired, columns, low, high, unit, discount, expert.
        arrays: the sums and guesses by name.
        spending: its own parts of δ.
        basis, reward: the functions of its reward, and their coefficients.
    """

    words: dict[str, Any]
    arrays: dict[str, Any]
    spending: dict[str, Fraction]
    tail: Fraction | None
    basis: Functions
    reward: Numbers

    def record(self, problem: Problem) -> tuple[Record, list[str]]:
        """Every number exact, and what of it cannot be."""
        columns, actions = records.functions(self.words, "columns"), problem.actions
        ks, wrong = columns.size, problem.contradictions(self.words)
        shapes: dict[str, tuple[int, ...]] = {"surprise": (ks,), "fits": (ks,), "gram": (ks, ks), "drift": (ks, ks)}
        shapes |= {"Z": (ks, ks), "spread": (actions, ks, ks), "wobble": (ks, ks, ks)}
        shapes |= {"reached": (max(ks, self.basis.size),)}
        sums = {name: records.exact(self.arrays, name, (actions, *shape)) for name, shape in shapes.items()}
        sums["g"] = records.exact(self.arrays, "g", (ks,))
        counts = records.counted(self.arrays, "counts", actions)
        if (self.basis.kind, self.basis.low, self.basis.high) != (columns.kind, columns.low, columns.high):
            wrong.append(
                f"the columns, {columns} on {columns.domain}, are not of the family of the reward, {self.basis} on "
                f"{self.basis.domain}"
            )
        own, span = records.unit_of(self.words), records.number(self.words, "high") - records.number(self.words, "low")
        unit = own * records.power_of_two(span)
        scaled = {name: records.scaled(sums[name], own / unit) for name in ("surprise", "fits", "g")}
        scaled["spread"] = records.scaled(sums["spread"], (own / unit) ** 2)
        total, (low, high), terms, problems = self._value(columns, problem.discount, scaled["g"], own, unit)
        record = Record(
            **(sums | scaled),
            counts=counts,
            columns=columns,
            problem=problem,
            paired=records.flag(self.words, "paired"),
            first=records.share_of(self.spending, "first order"),
            second=records.share_of(self.spending, "second order"),
            tail=self.tail or Fraction(0),
            unit=unit,
            low=low,
            high=high,
            terms=terms,
        )
        if not wrong:
            problems += _other_reward(record, total)
        return record, wrong + problems + _contradictions(record)

    def _value(
        self, columns: Functions, discount: Fraction, g: Numbers, own: Fraction, unit: Fraction
    ) -> tuple[Numbers, tuple[Fraction, Fraction], Fraction, list[str]]:
        """V = R + γ Σ g_jφ_j in units, its range, the size of its terms, and whether the file has the same range."""
        low, high = (own / unit * records.number(self.words, name) for name in ("low", "high"))
        reward, added = records.scaled(self.reward, 1 / unit), records.scaled(g, discount)
        total = [a + b for a, b in zip_longest(reward, added, fillvalue=Fraction(0))]
        least, most = rational.range_around(columns.kind, total)
        terms = sum((rational.size_of_terms(columns.kind, part) for part in (reward, added)), Fraction(0))
        wrong = records.other_range((least, most), (low, high), terms, unit)
        return total, (min(low, least), max(high, most)), terms, wrong


def _other_reward(r: Record, value: Numbers) -> list[str]:
    """Whether Σ Y_c and Σ E_ci are not those of this V and of the columns, whose sums over next states are known."""
    wrong, constant = [], 1 / rational.root_above(records.constant_squared(r.kind))
    peaks = rational.peaks(r.kind, len(value)).above()[0]
    size = constant * (rational.dot(list(map(abs, value)), peaks) + r.terms)
    for c, (n, reached) in enumerate(zip(r.counts, r.reached, strict=True)):
        found = constant * rational.dot(value, reached) - rational.dot(r.fits[c], r.gram[c][0])
        if abs(found - r.surprise[c][0]) > TIGHT * n * size:
            wrong.append(f"the sums of action {c} were made with another reward")
        for i in range(r.size):
            found = constant * reached[i] - rational.dot(r.Z[c][i], r.gram[c][0])
            if abs(found - r.drift[c][i][0]) > TIGHT * n * (1 + sum(map(abs, r.Z[c][i]))) * constant * max(peaks):
                wrong.append(f"the sums of action {c} over next states contradict each other")
                break
    return wrong


def _contradictions(r: Record) -> list[str]:
    """What sums over data and guesses cannot be."""
    wrong = records.sums_in_doubt(r.kind, r.counts, r.gram, paired=r.paired, size=r.size)
    for c, n in enumerate(r.counts):
        if any(x * x > n * r.spread[c][c][i][i] * (1 + TIGHT) for i, x in enumerate(r.surprise[c])):
            wrong.append(f"the surprises of action {c} are larger than their spread allows")
        if r.Z[c][0] != identity(r.size)[0]:
            wrong.append(f"the operator of action {c} moves constants")
    if r.fits[r.problem.expert] != r.g:
        wrong.append("the guess of the expert's value is not the one that its action is fitted with")
    actions = range(r.problem.actions)
    if not r.paired and any(any(map(any, r.spread[c][d])) for c in actions for d in actions if c != d):
        wrong.append("actions that were not paired have common sums")
    return wrong


def derive(header: dict[str, Any], arrays: dict[str, Any]) -> Finding:
    """What follows for the certificate of one reward."""
    words, problem = records.entry(header, "certificate"), Problem.of(header)
    claim, basis = Claim.of(words), records.functions(records.entry(header, "reward"), "basis")
    fields, sums = records.grounds(words, arrays, "certificate")
    reward = records.exact(arrays, "reward.coefficients", (basis.size,))
    record, wrong = Ground(fields, sums, claim.spending, claim.tail, basis, reward).record(problem)
    wrong += claim.contradictions(record.counts, record.first, record.second) + _status(problem, claim)
    (component,) = _estimates(header, 1)
    if (columns := records.functions(component, "columns")) != record.columns:
        wrong.append(f"the certificate has the columns {record.columns}, the solution {columns}")
    if (own := records.functions(component, "basis")) != basis:
        wrong.append(f"the reward has the functions {basis} on {basis.domain}, the solution {own} on {own.domain}")
    if records.whole(words, "level") != LEVEL:
        wrong.append(f"level {words['level']} is not what was derived: {LEVEL}")
    about = Finding(wrong, lines=_about(problem, basis.domain, claim, record.counts, paired=record.paired))
    about.lines.insert(1, ("reward", f"{basis} on {basis.domain}, ‖α‖₁ = {short(sum(map(abs, reward)))}"))
    about.trusted = [DRAWS, records.tail_in_words(record.tail, record.columns), FIXED_BEFORE]
    if wrong:
        return about
    try:
        bounds = Derivation(record).bounds()
    except ImpossibleError as impossible:
        wrong.append(str(impossible))
        return about
    _conclude(about, problem, claim, [own.parts for own in bounds], f"at every state of {basis.domain}")
    if claim.holds:
        about.wrong += _place(bounds, words, records.below(arrays, "certificate"), record, claim)
    return about


def derive_sum(header: dict[str, Any], arrays: dict[str, Any]) -> Finding:
    """What follows for the certificate of a sum: bounds of the components add up, rival by rival."""
    words, problem = records.entry(header, "certificate"), Problem.of(header)
    claim, names, bases, columns = Claim.of(words), *_components(header)
    ends = list(accumulate(basis.size for basis in bases))
    together = records.exact(arrays, "reward.coefficients", (ends[-1],))
    rewards = [together[end - basis.size : end] for basis, end in zip(bases, ends, strict=True)]
    listed = records.listed(words, "grounds")
    told = {records.whole(own, "component"): (i, own) for i, own in enumerate(listed)}
    if len(told) != len(listed) or not told or max(told) >= len(bases):
        raise ImpossibleError("the bounds are not those of different components")
    wrong, found = _status(problem, claim), {}
    if any(any(reward) for j, reward in enumerate(rewards) if j not in told):
        wrong.append("a component with a reward has no bound")
    for j, (i, own) in told.items():
        fields, sums = records.grounds(own, arrays, f"certificate.grounds.{i}")
        spending, tail = records.named_numbers(own, "spending"), records.tail_of(own)
        found[j], problems = Ground(fields, sums, spending, tail, bases[j], rewards[j]).record(problem)
        if (tail is None) != (claim.tail is None) or (tail or 0) > (claim.tail or 0):
            problems.append("its tail is not what is claimed of all")
        if columns[j] != found[j].columns:
            problems.append(f"the certificate has the columns {found[j].columns}, the solution {columns[j]}")
        wrong += [f"component {names[j]}: {text}" for text in problems]
    parts = [x for _, own in told.values() for x in records.named_numbers(own, "spending").values()]
    others = sum((x for name, x in claim.spending.items() if not name.endswith("evenly)")), Fraction(0))
    if sum(parts) + others > claim.delta * (1 + TIGHT):
        wrong.append("the components spend more of δ than they were given")
    first, *rest = found.values()
    wrong += claim.contradictions(first.counts, *parts)
    if any((own.paired, own.counts) != (first.paired, first.counts) for own in rest):
        wrong.append("the components were not looked at in the same transitions")
    where = " × ".join(basis.domain for basis in bases)
    about = Finding(wrong, lines=_about(problem, where, claim, first.counts, paired=first.paired))
    every = zip(names, bases, rewards, strict=True)
    described = [f"{name} {basis}, ‖α‖₁ = {short(sum(map(abs, reward)))}" for name, basis, reward in every]
    about.lines.insert(1, ("reward", f"a sum over components: {'; '.join(described)}"))
    separate = "given the action, each component's next state depends on its own state alone"
    tails = [f"in {names[j]} {records.tail_in_words(own.tail, own.columns)}" for j, own in found.items()]
    about.trusted = [DRAWS, separate, *tails, FIXED_BEFORE]
    if wrong:
        return about
    try:
        bounds = {j: Derivation(own).bounds() for j, own in found.items()}
    except ImpossibleError as impossible:
        wrong.append(str(impossible))
        return about
    total = [sum((own.parts for own in same[1:]), same[0].parts) for same in zip(*bounds.values(), strict=True)]
    _conclude(about, problem, claim, total, f"at every state of {where}")
    if claim.holds:
        about.wrong += _worst(dict(zip(problem.rivals, total, strict=True)), records.whole(words, "worst_action"))
        about.wrong += _shown(records.exact(arrays, "certificate.bounds", (len(bases), len(problem.rivals))), bounds)
    return about


def _estimates(header: dict[str, Any], count: int) -> list[Any]:
    """What the solution says of its components."""
    found = records.listed(header, "components")
    if len(found) != count:
        raise ImpossibleError(f"the solution has {len(found)} components, its reward {count}")
    return found


def _components(header: dict[str, Any]) -> tuple[list[str], list[Functions], list[Functions]]:
    """Names, functions and columns of all components, which hold every coordinate once."""
    reward = records.entry(header, "reward")
    basis = records.entry(reward, "basis")
    if "components" in basis:
        listed = records.listed(basis, "components")
    else:  # a sum of one component
        (own,) = _estimates(header, 1)
        listed = [{name: records.entry(own, name) for name in ("name", "coordinates")} | {"basis": basis}]
    names = [records.entry(own, "name") for own in listed]
    bases = [records.functions(own, "basis") for own in listed]
    groups = [records.listed(own, "coordinates") for own in listed]
    coordinates = [records.whole({"a coordinate": c}, "a coordinate") for own in groups for c in own]
    if not len(names) == len(bases) == len(groups) or not all(isinstance(name, str) for name in names):
        raise DamagedError("names, bases and coordinates should be those of the same components")
    if sorted(coordinates) != list(range(len(coordinates))) or any(len(own) != 1 for own in groups):
        raise ImpossibleError("the components do not hold every coordinate once, one each")
    estimates = _estimates(header, len(names))
    told = [(records.entry(own, "name"), records.entry(own, "coordinates")) for own in estimates]
    if told != list(zip(names, groups, strict=True)) or len(set(names)) != len(names):
        raise ImpossibleError("the components of the solution are not those of its reward")
    if [records.functions(own, "basis") for own in estimates] != bases:
        raise ImpossibleError("the functions of the solution are not those of its reward")
    return names, bases, [records.functions(own, "columns") for own in estimates]


def _status(problem: Problem, claim: Claim) -> list[str]:
    if claim.holds == (problem.status == "certified"):
        return []
    return [f"the solution says {problem.status!r}, its certificate {'holds' if claim.holds else 'does not hold'}"]


def _about(problem: Problem, domain: str, claim: Claim, counts: list[int], *, paired: bool) -> list[tuple[str, str]]:
    """What is claimed of which problem, from how much."""
    asked = f"{problem.actions} actions, the expert always takes {problem.expert}; discount {float(problem.discount):g}"
    return [
        ("problem", f"{asked}; states in {domain}"),
        ("data", records.transitions(counts, paired=paired)),
        ("spent", records.spent(claim)),
    ]


def _conclude(about: Finding, problem: Problem, claim: Claim, margins: list[Parts], where: str) -> None:
    """The margin, and the statement if the claim follows."""
    worst = min(margins, key=lambda parts: parts.margin)
    about.margin = worst.margin
    about.lines.insert(2, ("margin", f"{worst} = {short(worst.margin)}; the file says {short(claim.margin)}"))
    if claim.holds:
        lowest = [own for own in margins if own.margin <= worst.margin + RELATIVE * worst.scale]
        about.wrong += records.objections(lowest, worst.margin, claim)
        proved = records.at_least(min(worst.margin, claim.margin))
        about.statement = (
            f"with probability at least {records.probability(claim.delta)} action {problem.expert} is strictly optimal "
            f"{where}: D_a(s) ≥ {proved} for every other action a, D_a being its advantage over a divided by the "
            "discount"
        )


def _place(
    bounds: list[Bound], words: dict[str, Any], arrays: dict[str, Any], record: Record, claim: Claim
) -> list[str]:
    """Whether the bound is lowest where the file says."""
    rival, columns = records.whole(words, "worst_action"), record.columns
    if wrong := _worst({own.rival: own.parts for own in bounds}, rival):
        return wrong
    (state,) = records.exact(arrays, "worst_state", (1,))
    if not columns.low <= state <= columns.high:
        return [f"the worst state {short(state)} lies outside {columns.domain}"]
    curve = next(own.curve for own in bounds if own.rival == rival)
    size = sum(curve.absolute().times(rational.peaks(columns.kind, columns.size)).above()[0])
    reached = (curve @ rational.at(columns.kind, columns.size, [columns.place(state)]).T).above()[0][0]
    if not -PLACE * size * record.unit <= record.unit * reached - claim.estimated <= PLACE * size * record.unit:
        return [f"the estimate is not {short(claim.estimated)} at the worst state {short(state)}"]
    return []


def _worst(margins: dict[int, Parts], rival: int) -> list[str]:
    least = min(own.margin for own in margins.values())
    if rival in margins and margins[rival].margin <= least + RELATIVE * margins[rival].scale:
        return []
    return [f"the bound is not lowest against action {rival}"]


def _shown(shown: list[Numbers], found: dict[int, list[Bound]]) -> list[str]:
    """Whether a file shows larger bounds for its components than follow."""
    for j, row in enumerate(shown):
        own = [bound.parts for bound in found[j]] if j in found else [Parts(*[Fraction(0)] * 5)] * len(row)
        if any(told > parts.margin + RELATIVE * parts.scale for told, parts in zip(row, own, strict=True)):
            return ["the bounds of the components are larger than what follows from their sums"]
    return []
