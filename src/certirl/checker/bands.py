"""Bands around (P_b − P_a)V for an expert who switches, derived again from the sums of a file in exact arithmetic.

The inequalities of docs/notes/switching.md, written anew on `certirl.rational` and `certirl.enclosures`: nothing is
shared with the code that made the certificate. Every number is rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from operator import add, mul

from certirl.checker import enclosures, rational
from certirl.checker.enclosures import SHORT, Nodes, Short, lengths_above, roots_above, short_above, shortened
from certirl.checker.rational import BITS, ONE, Grid, Table, eliminate, identity
from certirl.checker.records import EVENTS, ImpossibleError, Numbers

POINTS = 8  # for every degree
BALL_EVENTS = 2 * EVENTS  # of û, and of what noise does to Ku
_STRETCH, _PIECE = 8192, 2048  # no sum went through more than so many additions at once, and then by such pieces


@dataclass(frozen=True, eq=False)
class Record:
    """What a certificate rests on, every number exact, V in units of about its own span; rows of functions flattened.

    Attributes:
        unit: a power of two: V, its fits and sums are multiples of it. The functions f_i may have any size.
    """

    kind: str
    size: int
    actions: int
    discount: Fraction
    paired: bool
    first: Fraction
    second: Fraction
    rest: Fraction
    tail: Fraction
    unit: Fraction
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
    reached: list[Numbers]
    places: list[Fraction]

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
class Band:
    """|(P_b − P_a)V − curve| is at most this at the points and, by the tail and by rounding, more everywhere."""

    pair: tuple[int, int]
    curve: Table
    estimation: Numbers
    second: Numbers
    tail: Fraction
    rounding: Fraction


@dataclass(frozen=True, eq=False)
class _Functionals:
    """Weights of the errors of every action's regression, times G⁻¹ ``[A]`` tables ``[n][k]``.

    Attributes:
        weights: themselves.
        at: w_c·φ at the nodes.
        products: (w_c·φ)(w_d·φ) there, couple by couple, those of two actions twice ``[n][couples·M]``.
        swings: |w_c·φ| at the dense states, functional by functional ``[n][A][q]``.
    """

    weights: list[Table]
    at: list[Table]
    products: Table
    swings: list[list[Short]]

    def applied(self, sums: Sequence[Table]) -> Table:
        """Σ_c ⟨w_c, sums_c⟩ for every functional and every row of the sums ``[n][rows]``."""
        return _total([own @ rows.T for own, rows in zip(self.weights, sums, strict=True)])


@dataclass(frozen=True, eq=False)
class _Seen:
    """Sums for every functional and every f_i: seen, their root second moments and largest terms ``[n][m]``."""

    found: Table
    squares: Table
    largest: Table


class Derivation:
    """The inequalities, with the quantities shared by all pairs."""

    def __init__(self, record: Record) -> None:
        self.r, k, A, gamma = record, record.size, record.actions, record.discount
        self.grid, self.nodes = Grid(record.kind, k), Nodes(record.kind, k, record.degree)
        self.factor = short_above(self.grid.sup(Table([[ONE]]))[0])
        self.precision: list[Table] = []
        for action, gram in enumerate(record.gram):
            solved = eliminate(gram, identity(k))
            if solved is None or not solved[1]:
                raise ImpossibleError(f"the Gram matrix of action {action} is not positive definite")
            self.precision.append(solved[0])
        self.Z = [Table.of(z) for z in record.Z]
        resolvent = enclosures.inverse(Table.of(identity(A * k)) - _beside(self.Z).scaled(gamma))
        unmixed = enclosures.inverse(Table.of(record.mix))
        if resolvent is None or unmixed is None:
            raise ImpossibleError("the surrogate cannot be inverted")
        self.resolvent, self.unmixed, self.later = resolvent, unmixed, 2 * gamma / (1 - gamma)
        self.drift, self.surprise = list(map(Table.of, record.drift)), [Table.of([row]) for row in record.surprise]
        dense = self.grid.across.T
        self.leverage = [self.grid.sup((dense @ G).times(dense).sums())[0] for G in self.precision]
        self.lebesgue = [1 + rational.root_above(n * x) for n, x in zip(record.counts, self.leverage, strict=True)]
        self.ranges, self.reach_of_functions = self._functions()
        self.reach_of_value = [
            shortened(self.grid.reach(record.low, record.high, Table.of([fit])))[0] for fit in record.fits
        ]

    def _functions(self) -> tuple[list[tuple[int, int]], list[list[Short]]]:
        """Between what every f_i lies, and how far it can be from its fits ``[m][A][q]``."""
        r, k, across, ranges, reaches = self.r, self.r.size, self.grid.across, [], []
        mixes = Table.of([row[c * k : (c + 1) * k] for row in r.mix for c in range(r.actions)]) @ across
        mix = Table.of(r.mix)
        fits = [(mix @ z) @ across for z in self.Z]
        for i in range(len(r.mix)):
            parts = mixes.rows[i * r.actions : (i + 1) * r.actions]
            low, high = min(map(min, parts)) - mixes.error, max(map(max, parts)) + mixes.error
            # At every state f_i is an average of its parts: polynomials, bounded between the points up to the factor.
            half = ((high - low) * self.factor >> SHORT + 1) + 1
            low, high = (low + high) // 2 - half, (low + high) // 2 + half + 1
            ranges.append((low, high))
            each = ([max(high - x, x - low) for x in fit.rows[i]] for fit in fits)
            reaches.append(shortened(Table(list(each), max(fit.error for fit in fits))))
        return ranges, reaches

    def bands(self) -> list[Band]:
        """One for every pair of actions."""
        r, pairs, found = self.r, list(combinations(range(self.r.actions), 2)), []
        phi = rational.values(r.kind, r.size, rational.spread_places(r.points))
        events = EVENTS * len(pairs) * r.points
        first, second = (rational.log_above(events / delta) for delta in (r.first, r.second / 2))
        longest = max(self.lebesgue) * self.later
        for b, a in pairs:
            functionals = self._of_pair(b, a, phi)
            band = self._radii(functionals, first)
            slipped = self.lebesgue[b] + self.lebesgue[a] + longest
            far = r.tail * self.ball.weighed(self._half_ranges)[0]
            rest = [x + far * slipped for x in self.ball.moved(self._of_functions(functionals), second)]
            tail = r.tail * (r.high - r.low) / 2 * slipped
            rounding = self.missed[b] + self.missed[a] + self.later * max(self.missed)
            rounding += self.share * max(map(add, band, rest))
            found.append(Band((b, a), self._curve(b, a), band, rest, tail, rounding))
        return found

    def _of_pair(self, b: int, a: int, phi: Table) -> _Functionals:
        """What (P_b − P_a)V depends on at points."""
        parts = self._parts(phi @ (self.resolvent @ (self.Z[b] - self.Z[a])).scaled(self.r.discount).T)
        parts[b], parts[a] = parts[b] + phi, parts[a] - phi
        return self._functionals(parts)

    def _parts(self, rows: Table) -> list[Table]:
        """Action by action."""
        k = self.r.size
        return [Table([row[c * k : (c + 1) * k] for row in rows.rows], rows.error) for c in range(self.r.actions)]

    def _functionals(self, parts: list[Table]) -> _Functionals:
        weights = [part @ G for part, G in zip(parts, self.precision, strict=True)]
        at = [own @ self.nodes.phi for own in weights]
        each = [at[c].times(at[d]).scaled(Fraction(1 if c == d else 2)) for c, d in self.r.couples]
        swings = zip(*(shortened(self.grid.swing(own)) for own in weights), strict=True)
        return _Functionals(weights, at, _beside(each), list(map(list, swings)))

    def _curve(self, b: int, a: int) -> Table:
        """(P̂_b − P̂_a)V̂ and what the surprises correct, one row."""
        r = self.r
        seen = [x @ G for x, G in zip(self.surprise, self.precision, strict=True)]
        lift = ((_beside(seen) @ self.resolvent) @ (self.Z[b] - self.Z[a])).scaled(r.discount)
        return Table.of([r.fits[b]]) - Table.of([r.fits[a]]) + seen[b] - seen[a] + lift

    @cached_property
    def _value_sums(self) -> Table:
        """Σ Y_cY_d as weights of the nodes ``[couples][M]``."""
        return self.nodes.weights(Table.of([self.r.spread[c][d] for c, d in self.r.couples]))

    @cached_property
    def _function_sums(self) -> Table:
        """Σ E_ciE_di as weights of the nodes, couple by couple ``[m][couples·M]``."""
        return _beside([self.nodes.weights(Table.of(self.r.wobble[c][d])) for c, d in self.r.couples])

    @cached_property
    def _half_ranges(self) -> Table:
        return Table([[(high - low + 1) // 2 for low, high in self.ranges]])

    def _terms(self, swing: list[Short], reach: list[Short]) -> Short:
        """What one fresh state can add; the actions of a pair add up, separate draws do not."""
        return enclosures.terms(swing, reach, together=self.r.paired)

    def _units(self, short: int) -> int:
        """The largest term between the dense states too, in the units of tables."""
        return short * self.factor << BITS - 3 * SHORT

    def _longest(self, every: Sequence[Short]) -> int:
        """The same for the terms of all functionals as one vector."""
        squares = [0] * len(every[0])
        for own in every:
            squares = list(map(add, squares, map(mul, own, own)))
        return self._units(math.isqrt(max(squares)) + 1)

    def _radii(self, functionals: _Functionals, L: Fraction) -> Numbers:
        """How far Σ_c ⟨w_c, Σ xY_c⟩ can be from its mean."""
        flat = Table([[x for row in self._value_sums.rows for x in row]], self._value_sums.error)
        observed = (functionals.products @ flat.T).T
        tops = [self._units(max(self._terms(swing, self.reach_of_value))) for swing in functionals.swings]
        return rational.radii_above(observed, [Fraction(x, ONE) for x in tops], L)

    def _of_functions(self, functionals: _Functionals) -> _Seen:
        """The same sums for every f_i instead of V."""
        tops = [
            [self._units(max(self._terms(swing, reach))) for reach in self.reach_of_functions]
            for swing in functionals.swings
        ]
        squares = functionals.products @ self._function_sums.T
        return _Seen(functionals.applied(self.drift), squares, Table(tops))

    @cached_property
    def ball(self) -> Ball:
        """What is known of u, the error of V̂ in the functions f_i."""
        r, L = self.r, rational.log_above(BALL_EVENTS / (self.r.second / 2))
        if r.discount * (1 + r.tail * max(self.lebesgue)) >= 1:
            raise ImpossibleError("the tail is so large that what regression aims at need not contract")
        rows = (self.unmixed.T @ self.resolvent.T).scaled(r.discount)
        functionals = self._functionals(self._parts(rows))
        centre, found = functionals.applied(self.surprise).T, functionals.applied(self.drift)
        swings, covariance = functionals.swings, self._covariance(functionals.at)
        own = Fraction(self._longest([self._terms(swing, self.reach_of_value) for swing in swings]), ONE)
        trace = sum((row[i] for i, row in enumerate(covariance.above())), Fraction(0))
        radius = enclosures.norm_radius_above(trace, enclosures.top_eigenvalue_above(covariance), own, L)
        moments = functionals.products @ self._function_sums.T
        columns = [sum(max(x + moments.error, 0) for x in column) for column in zip(*moments.rows, strict=True)]
        spread = roots_above(Table([columns]))
        tops = [self._longest([self._terms(swing, reach) for swing in swings]) for reach in self.reach_of_functions]
        longest, sizes = Table([tops]), centre.absolute().T
        shaken = [(x @ sizes).above()[0][0] for x in (spread, longest)]
        radius += enclosures.vector_radius_above(shaken[0] ** 2, shaken[1], L) + lengths_above(centre @ found.T)[0]
        each = enclosures.vector_radius_above(Fraction(sum(columns), ONE), lengths_above(longest)[0], L)
        growth = rational.root_above(enclosures.top_eigenvalue_above(found @ found.T)) + each
        if growth >= 1:
            raise ImpossibleError("there is too little data: errors of the operators may grow from step to step")
        return Ball(centre, rational.rounded_up(radius / (1 - growth)))

    def _covariance(self, at: list[Table]) -> Table:
        """The observed second moments of û's estimate ``[m][m]``, from functionals at the nodes."""
        parts = []
        for (c, d), row in zip(self.r.couples, self._value_sums.rows, strict=True):
            part = at[c].times(Table([row], self._value_sums.error)) @ at[d].T
            parts += [part] if c == d else [part, part.T]
        return _total(parts)

    def span(self) -> Fraction:
        """V at one state less V at another, from below; zero at least."""
        r, L = self.r, rational.log_above(2 * EVENTS / (self.r.rest / 2))
        functionals = self._functionals(self._parts(Table.of([r.drop]) @ self.resolvent.T.scaled(r.discount)))
        found = functionals.applied(self.surprise)
        lost = self._radii(functionals, L)[0] + self.ball.moved(self._of_functions(functionals), L)[0]
        half = (r.high - r.low) / 2 + self.ball.weighed(self._half_ranges)[0]
        rounding = self.later * max(self.missed) + self.share * lost + self._terms_of_value / 2**49
        lost += self.later * r.tail * max(self.lebesgue) * half + rounding
        return max(Fraction(0), r.dropped - (-found).above()[0][0] - lost)

    def visits(self) -> Numbers:
        """sup over states and actions of P_c of every tent, from above."""
        r, count = self.r, 4 * self.r.size
        phi = rational.values(r.kind, r.size, rational.spread_places(count))
        wider = rational.inflation_above(r.kind, r.degree, count)
        L = rational.log_above(EVENTS * r.actions * count * max(len(r.visits[0]), 1) / (r.rest / 2))
        most = [Fraction(0)] * len(r.visits[0])
        for c, G in enumerate(self.precision):
            weights = phi @ G
            swing, at = self.grid.swing(weights), weights @ self.nodes.phi
            sums = self.nodes.weights(Table.of(r.visit_spread[c])) if most else Table([])
            for w in range(len(most)):
                fit = Table.of([r.tent_fits[c][w]])
                reach = self.grid.reach(Fraction(0), Fraction(1), fit)
                observed = (at.times(at) @ Table([sums.rows[w]], sums.error).T).T
                radius = wider * max(rational.radii_above(observed, self.grid.sup(swing.times(reach)), L))
                curve = fit + Table.of([r.visits[c][w]]) @ G
                missed = self._missed(c, 2, r.tent_fits[c][w], r.visits[c][w], r.visit_spread[c][w][0])
                reached = radius * (1 + self.share) + r.tail * self.lebesgue[c] / 2 + missed
                most[w] = max(most[w], reached - rational.minimum_below(r.kind, -curve))
        return [min(x, Fraction(1)) for x in most]

    @cached_property
    def _terms_of_value(self) -> Fraction:
        """The size of the terms of V times their number."""
        added = max(rational.size_of_terms(self.r.kind, fit) for fit in self.r.fits)
        return max(abs(self.r.low), abs(self.r.high)) + 2 * self.r.discount * self.r.actions * added

    @cached_property
    def missed(self) -> Numbers:
        """What floating point can have done to each regression of V; it enters as a tail does."""
        r = self.r
        return [
            self._missed(c, self._terms_of_value, r.fits[c], r.surprise[c], r.spread[c][c][0]) for c in range(r.actions)
        ]

    def _missed(self, c: int, size: Fraction | int, fit: Numbers, sums: Numbers, squares: Fraction) -> Fraction:
        """Values are off in their last places, and each sum by at most u of its terms' sizes.

        With κ = tr G·tr G⁻¹ a projection is then off by u√(κ·leverage·ΣY²), and by uκ√leverage of the length of what
        is projected, for G itself; twice that allows for higher orders.
        """
        r, G = self.r, self.precision[c]
        constant = rational.PI_ABOVE if r.kind == "Chebyshev" else Fraction(2)  # 1/φ_1²
        length = (Table.of([sums]) @ G).times(Table.of([sums])).sums().above()[0][0]
        total = squares * rational.root_above(constant)
        off = rational.root_above(self._condition[c] * total) + self._condition[c] * rational.root_above(length)
        values = (size + rational.size_of_terms(r.kind, fit)) / 2**50 * self.lebesgue[c]
        return values + 2 * self._unit[c] * off * rational.root_above(self.leverage[c])

    @cached_property
    def _unit(self) -> Numbers:
        return [(_STRETCH + Fraction(n, _PIECE)) / 2**52 for n in self.r.counts]

    @cached_property
    def _condition(self) -> Numbers:
        both = zip(self.r.gram, self.precision, strict=True)
        traces = ((gram, G.above()) for gram, G in both)
        return [
            sum((row[i] for i, row in enumerate(gram)), Fraction(0)) * sum(row[i] for i, row in enumerate(G))
            for gram, G in traces
        ]

    @cached_property
    def share(self) -> Fraction:
        """Of a radius that floating point can have cost; docs/notes/certificate.md, section 9."""
        each = zip(self._unit, self._condition, self.r.counts, self.leverage, strict=True)
        return max(u * (kappa + (2 * self.r.size - 1) * n * top) for u, kappa, n, top in each)


@dataclass(frozen=True, eq=False)
class Ball:
    """u lies within ``radius`` of ``centre``, one row, in Euclidean length."""

    centre: Table
    radius: Fraction

    def weighed(self, sizes: Table) -> Numbers:
        """Σ_i |u_i| sizes_i at most, row by row."""
        straight = (sizes @ self.centre.absolute().T).above()
        return [x + self.radius * length for (x,), length in zip(straight, lengths_above(sizes), strict=True)]

    def moved(self, seen: _Seen, L: Fraction) -> Numbers:
        """|Σ_i u_i ⟨functional, P f_i − P̂ f_i⟩| at most, for every functional."""
        known = (seen.found @ self.centre.T).absolute().above()
        squares = Table.of([[x * x for x in self.weighed(roots_above(seen.squares))]])
        noise = rational.radii_above(squares, self.weighed(seen.largest), L)
        lengths = lengths_above(seen.found)
        return [x + self.radius * length + y for (x,), length, y in zip(known, lengths, noise, strict=True)]


def _beside(tables: Sequence[Table]) -> Table:
    """One long row for the rows of all of them."""
    rows = [[x for row in rows for x in row] for rows in zip(*(table.rows for table in tables), strict=True)]
    return Table(rows, max(table.error for table in tables))


def _total(tables: Sequence[Table]) -> Table:
    total = tables[0]
    for table in tables[1:]:
        total = total + table
    return total
