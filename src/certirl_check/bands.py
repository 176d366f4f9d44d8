"""The theorem, derived again: bands around D_ba, the span of V and visits of tents, with proved errors.

The notation is that of docs/notes/certificate.md, sections 4 to 9 and, for rows that may depend on earlier ones, 18.
What may be chosen freely before the fresh data, slopes and scales among it, is computed in plain floating point: any
number is sound. Everything else is an enclosure, or a bound on the safe side. Nothing here is shared with the code
that made the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from certirl_check.deviations import Length, bernstein, best_slope, hoeffding_norm, noise_length, quartic, sloped
from certirl_check.enclosures import (
    Enclosure,
    Floats,
    enclosed,
    inverse,
    joined,
    logarithm,
    norm,
    placed,
    smaller,
    stacked,
    top_eigenvalue,
    whitening,
)
from certirl_check.grounds import Ground, Paid
from certirl_check.records import RELATIVE, ImpossibleError, TooLittleError

_NORM_EVENTS, _VISIT_EVENTS = 6, 3
_POINT_EVENTS = 8  # over half of a part of δ: four of the noise of u as a vector, and four at each point
_CAUTION, _CAUTION_OF_LENGTH = 1.1, 1.5  # times what training data let us expect: for slopes alone
_MOST_GROWTH = 0.95
_OBSERVED = 2.5  # the observed error of V̂ at points, in standard deviations of its noise: for slopes alone
_MOST_CLOSE = 250_000  # numbers up to which ranges are looked for state by state
_POINTS = 1024  # worked on at once


class Points(NamedTuple):
    """Functionals at n points: observed sums, second moments, largest terms and what was to be expected."""

    value: Enclosure  # ΣZ(V̂) [n]
    shift: Enclosure  # Σ_i c̃_iΣZ(f_i) [n]
    turned: Enclosure  # the length of Mᵀ(ΣZ(f_i))_i [n]
    square: Enclosure  # ΣZ(V̂)² [n]
    squares: Enclosure  # Σ_iΣZ(f_i)², or S₁ if u is bounded at points [n]
    cross: Enclosure  # ΣZ(V̂)Z(f_i) [n, r]
    largest: Floats  # bounds on |Z(V̂)| and ‖Z(f)‖, or on |Z(u)| for |u| ≤ 1 [n, 2]
    powers: Enclosure  # ΣZ(V̂)³ and ΣZ(V̂)⁴ [n, 2]; [n, 0] where they were not summed
    expected: Floats  # ΣZ(V̂)² by training data [n]
    mismatch: Enclosure  # ‖B_c⁻ᵀ(G_c⁻¹ − G0_c⁻¹)ω_c‖ for every action [n, A]; [n, 0] for independent rows
    magnified: Enclosure  # Ω, by how much the tail is magnified [n]


Pair = tuple[int, int] | None


class Size(NamedTuple):
    """ρ ≥ ‖ζ + Nθ‖, κ ≥ ‖u‖, or half its span, and, for rows that depend on earlier ones, α_c and β_c ``[A, 2]``."""

    noise: float
    length: float
    white: Enclosure


@dataclass(frozen=True, eq=False)
class Band:
    """−below ≤ D_ba − curve ≤ above at the points of the mesh; tail and rounding come on top."""

    pair: tuple[int, int]  # (b, a)
    curve: Enclosure  # in the harmonics of what is paid [K], without its table
    estimation: Floats  # the radius at the points without u, below and above [2, N_1, …, N_d]
    second: Floats  # what u adds to it
    tail: float  # everywhere
    rounding: float  # everywhere
    paid: Paid  # (R_b − R_a)/γ


class Derivation:
    """The inequalities for one ground."""

    def __init__(self, ground: Ground) -> None:
        g = self.g = ground
        self.columns, self.gamma = g.columns, enclosed(g.discount)
        self.k, self.m = g.columns.size, g.Z.shape[1]
        blocks = np.concatenate([g.Z[c] for c in g.used], axis=1)
        self.resolvent = inverse(np.eye(self.m) - self.gamma * blocks)
        self.rows = g.mix[1:]
        self.operators = enclosed(self.rows) @ g.operator_residuals  # Σ x E_c(f_i) [A, m − 1, k]
        kinds = [g.residual_moments] if g.pointwise else [g.residual_moments, g.operator_moments]
        self._moments = self.columns.lifted(np.concatenate([np.stack(kinds, axis=1), g.cross_moments], axis=1))
        every = g.pairs(True)
        likely = g.noise[[every.index(pair) for pair in g.pairs(g.paired)]] * float(g.expected_counts.min())
        self._likely = self.columns.lifted(likely).middle
        self._at_nodes = self.columns.at_nodes(g.higher) if g.powers else Enclosure(np.zeros((0, 1)))
        self._ranges()
        self.leverage = self._leverages(g.precision)
        self.lebesgue = 1.0 + (enclosed(g.counts) * self.leverage).root()
        self.expected_leverage = self._leverages(g.expected_precision) if g.ordered else self.leverage
        expected = float((g.expected_counts * self.expected_leverage).max())
        self.spread = max(float(self.lebesgue.above.max() - 1) ** 2, expected)
        if g.ordered:
            self._whitening = [whitening(likely) for likely in self._likely[:, 0]]  # rows in order are not paired

    def _leverages(self, precision: Enclosure) -> Floats:
        """sup hᵀG⁻¹h over all states for every action ``[A]``."""
        blocks = self.columns.blocks(self.columns.fine, _POINTS)
        most = [((fine @ precision) * fine).sum().above.max(axis=1) for fine in blocks]
        return self.columns.inflation(self.columns.fine, 2) * np.max(most, axis=0)

    def _ranges(self) -> None:
        """Suprema over all states: V̂ and f about their middles, and the fits; of u at points, no f."""
        g, columns, dense = self.g, self.columns, self.columns.dense_values.T
        rows = self.rows[:0] if g.pointwise else self.rows
        functions = enclosed(rows.reshape(len(rows), len(g.used), self.k)) @ dense  # [m − 1, U, q]
        values = functions.middle
        middle = (values.min(axis=(1, 2), initial=np.inf) + values.max(axis=(1, 2), initial=-np.inf)) / 2
        longest = float((functions - middle[:, None, None]).length(0).above.max(initial=0.0))
        level = g.low + (g.high - g.low) / 2
        reach = float(np.maximum((enclosed(g.high) - level).above, (enclosed(level) - g.low).above))
        # u is compared with the middle of its range where it is bounded at points.
        self.radius = [reach, 1.0 if g.pointwise else columns.inflation(columns.dense) * longest]
        self._fits = enclosed(g.fits) @ dense - level
        guesses = (self._fits[:, None], (enclosed(rows) @ g.Z) @ dense - middle[:, None])  # of P_cV̂ and of the P_cf_i
        self._lengths = np.stack([guess.length(1).above for guess in guesses])  # [2, A, q]
        self._gaps = {
            (b, a): np.stack([(guess[b] - guess[a]).length(0).above for guess in guesses]) for b, a in g.compared
        }

    # Functionals ω of the errors of the regressions ``[A, n, k]``.

    def functionals(self, pair: tuple[int, int], values: Enclosure) -> Enclosure:
        """Those of D_ba at points."""
        b, a = pair
        signs = np.eye(self.g.actions)[b] - np.eye(self.g.actions)[a]
        later = self.through_error(values @ (enclosed(self.g.Z[b]) - self.g.Z[a]).T)
        return later + values * signs[:, None, None]

    def through_error(self, rows: Enclosure) -> Enclosure:
        """Those of combinations of the coefficients of u."""
        g = self.g
        lifted = (self.gamma * (rows @ self.resolvent.T)).reshape(len(rows), len(g.used), self.k).swapped(0, 1)
        return placed(lifted, (g.actions, len(rows), self.k), list(g.used))

    def at(self, counts: tuple[int, ...], functionals: Callable[[Enclosure], Enclosure], pair: Pair = None) -> Points:
        """What the sums say of functionals at the points of a mesh, a block of them after the other."""
        close = math.prod(counts) * len(self.columns.dense_values) <= _MOST_CLOSE
        blocks = [self.points(functionals(values), pair, close) for values in self.columns.blocks(counts, _POINTS)]
        return Points(*(joined(arrays) for arrays in zip(*blocks, strict=True)))

    def points(self, functionals: Enclosure, pair: Pair = None, close: bool = True) -> Points:
        """What the sums say of functionals; ``pair`` if they are those of D_ba."""
        g = self.g
        regression = functionals @ g.precision
        weights = functionals @ g.expected_precision if g.ordered else regression
        forms, expected = Enclosure(np.zeros((self._moments.shape[1], weights.shape[1]))), 0.0
        for i, (c, d) in enumerate(g.pairs(g.paired)):
            twice = 1.0 if c == d else 2.0
            forms = forms + ((weights[c] @ self._moments[i]) * weights[d]).sum() * twice
            likely = (weights[c].middle @ self._likely[i, 0]) * weights[d].middle
            expected = expected + twice * likely.sum(axis=1)
        mismatch = Enclosure(np.zeros((0, weights.shape[1])))
        if g.ordered:
            mismatch = stacked([self._apart(functionals[c], c).length() for c in range(g.actions)])
        magnified = (((regression @ g.grams) * regression).sum().positive() * g.counts[:, None]).root()
        (value, observed), positive = self._observed(regression), forms.positive()
        squares = self._plain(weights) if g.pointwise else positive[1]
        centre, inverted = self.solved
        shift, turned = (observed * centre).sum(), (observed @ inverted).length()
        largest, likely = self._largest(weights, pair, close).T, np.maximum(expected, 0.0)
        powers, cross = self._powers(weights), forms[2:].T
        weighted = self._observed(weights)[0] if g.ordered else value
        self._compare_sums(weighted, forms[0], squares, cross, powers, largest)
        return Points(
            value, shift, turned, positive[0], squares, cross, largest, powers, likely, mismatch.T, magnified.sum(0)
        )

    def _compare_sums(
        self, value: Enclosure, square: Enclosure, squares: Enclosure, cross: Enclosure, powers: Enclosure, most: Floats
    ) -> None:
        """ImpossibleError unless some numbers Z(V̂) and Z(f), up to these bounds, have sums and products like these."""
        count, (b, c) = float(self.g.counts.sum()), most.T
        room = RELATIVE * count * b + 1e-290  # for rounding, times a bound for each further factor
        second, more = np.maximum(square.middle, 0.0), 1 + RELATIVE
        possible = [square.middle >= -room * b, value.middle**2 <= count * second * more + (count * room) * b]
        if cross.shape[1]:
            possible.append((cross.middle**2).sum(axis=1) <= second * squares.middle * more + (room * c) ** 2)
        if powers.shape[1]:
            cube, fourth = powers.middle.T
            possible.append(fourth <= b**2 * second * more + room * b**3)
            possible.append(second**2 <= count * fourth * more + (count * room) * b**3)
            possible.append(cube**2 <= second * np.maximum(fourth, 0.0) * more + (room * b**2) ** 2)
        if not np.all(possible):
            raise ImpossibleError("no residuals have sums, second moments, products and powers like these")

    def _powers(self, weights: Enclosure) -> Enclosure:
        """ΣZ(V̂)³ and ΣZ(V̂)⁴ of functionals with these weights ``[n, 2]``, by their values at the nodes."""
        g = self.g
        if not g.powers:
            return Enclosure(np.zeros((weights.shape[1], 0)))
        swings, total = weights @ self.columns.nodes.T, {n: Enclosure(np.zeros(weights.shape[1])) for n in (3, 4)}
        for place, actions in enumerate(g.tuples):
            n, product = len(actions), math.prod((swings[c] for c in actions[1:]), start=swings[actions[0]])
            times = math.factorial(n) // math.prod(math.factorial(actions.count(c)) for c in {*actions})
            total[n] = total[n] + (product @ self._at_nodes[place]) * float(times)
        return stacked([total[3], total[4]]).T

    def _plain(self, weights: Enclosure) -> Enclosure:
        """S₁ of functionals ``[n]``: ΣZ(u)² is no larger for |u| ≤ 1."""
        squares = stacked([self._square(weights[c], c) for c in range(self.g.actions)])
        if not self.g.paired:
            return squares.sum(0)
        total = squares.root().sum(0)
        return total * total

    def _square(self, rows: Enclosure, c: int) -> Enclosure:
        """pᵀGp of weights p of an action ``[n]``."""
        return ((rows @ self.g.expected_grams[c]) * rows).sum().positive()

    def _apart(self, functionals: Enclosure, c: int) -> Enclosure:
        """ω_c(G_c⁻¹ − G0_c⁻¹)B_c⁻¹ of functionals ``[n, k]``: what multiplies the whitened noise of an action."""
        apart = self.g.precision[c] - self.g.expected_precision[c]
        return functionals @ apart @ inverse(enclosed(self._whitening[c]))

    def _observed(self, weights: Enclosure) -> tuple[Enclosure, Enclosure]:
        """ΣZ(V̂) ``[n]`` and ΣZ(f_i) ``[n, m − 1]``."""
        value = (weights @ self.g.residuals[:, :, None]).sum(0)[:, 0]
        return value, (weights @ self.operators.T).sum(0)

    def _largest(self, weights: Enclosure, pair: Pair, close: bool) -> Floats:
        """Bounds on one fresh state's term for V̂ and for the f_i ``[2, n]``: by leverage, and by states if few."""
        rows, actions = weights, list(range(self.g.actions))
        if pair is not None:  # and the sum of the weights of b and a
            rows = joined([weights, (weights[pair[0]] + weights[pair[1]])[None]])
            actions.append(pair[0])
        squares = [self._square(rows[i], c) * self.expected_leverage[c] for i, c in enumerate(actions)]
        largest = self._terms(stacked(squares).root().above[:, :, None], pair, everywhere=True)[:, :, 0]
        if not close:  # |p·x|² ≤ (pᵀGp)·(the largest leverage)
            return largest
        swings = rows @ self.columns.dense_values.T
        terms = self._terms(swings.size, pair)
        if self.g.paired:  # of V̂ the supremum is known
            each = swings[: self.g.actions]
            exact = self.radius[0] * each.size.sum(axis=0) + (each * self._fits[:, None]).sum(0).size
            terms[0] = np.minimum(terms[0], exact * (1 + 1e-14))
        return np.minimum(largest, self.columns.inflation(self.columns.dense, 2) * terms.max(axis=2) * (1 + 1e-14))

    def _terms(self, sizes: Floats, pair: Pair = None, *, everywhere: bool = False) -> Floats:
        """The largest terms of V̂ and of the f_i ``[2, n, q]``, rounded up, at the dense states or everywhere at once.

        Args:
            sizes: of the weights of all actions ``[A, n, q]``, and of the sum of those of b and a ``[A + 1, n, q]``.
            pair: (b, a); None for functionals that are not those of D_ba.
            everywhere: the sizes are suprema over all states, and so are the fits.
        """
        radius, lengths = np.array(self.radius)[:, None, None], self._lengths  # of the fits [2, A, q]
        if everywhere:
            lengths = self.columns.inflation(self.columns.dense) * lengths.max(axis=2, keepdims=True)
        each = sizes[: self.g.actions] * lengths[:, :, None]
        if not self.g.paired:
            return np.asarray((radius[:, None] * sizes[: self.g.actions] + each).max(axis=1)) * (1 + 1e-14)
        fits = each.sum(axis=1)
        if pair is not None:
            gap = self._gaps[pair]  # between the fits of b and a [2, q]
            if everywhere:
                gap = self.columns.inflation(self.columns.dense) * gap.max(axis=1, keepdims=True)
            others = each[:, [c for c in range(self.g.actions) if c not in pair]].sum(axis=1)
            for nearer, farther in (pair, pair[::-1]):
                apart = sizes[farther] * gap[:, None] + sizes[-1] * lengths[:, nearer, None]
                fits = np.minimum(fits, apart + others)
        return np.asarray(radius * sizes[: self.g.actions].sum(axis=0) + fits) * (1 + 1e-14)

    # The size of u.

    def _lengths_of(self, weights: dict[int, Enclosure]) -> list[Length]:
        """What bounds the noise of V̂ and of the f_i in functionals with these weights ``[q, k]`` of some actions."""
        size, kinds = len(next(iter(weights.values()))), len(self._likely[0])
        forms, likely = Enclosure(np.zeros((kinds, size, size))), np.zeros((kinds, size, size))
        for i, (c, d) in enumerate(self.g.pairs(self.g.paired)):
            if c not in weights or d not in weights:
                continue
            form = weights[c] @ self._moments[i, :kinds] @ weights[d].T
            guess = weights[c].middle @ self._likely[i] @ weights[d].middle.T
            forms = forms + (form if c == d else form + form.T)
            likely += guess if c == d else guess + np.swapaxes(guess, 1, 2)
        if self.g.pointwise:
            plain = stacked([rows @ self.g.grams[c] @ rows.T for c, rows in weights.items()])
            bound = plain.sum(0) * float(len(plain) if self.g.paired else 1)
            forms, likely = stacked([forms[0], bound]), np.stack([likely[0], bound.middle])
        dense = self.columns.dense_values
        sizes = np.zeros((self.g.actions, 1, len(dense)))
        for c, rows in weights.items():
            for start in range(0, len(dense), _POINTS):
                place = slice(start, start + _POINTS)
                sizes[c, 0, place] = (rows @ dense[place].T).length(0).above
        longest = self.columns.inflation(self.columns.dense, 2) * self._terms(sizes).max(axis=(1, 2)) * (1 + 1e-14)
        diagonal, lengths = np.arange(size), list[Length]()
        for form, guess, most in zip((forms[i] for i in range(len(likely))), likely, longest, strict=True):
            observed = form[diagonal, diagonal].sum().positive(), max(top_eigenvalue(form), 0.0)
            top = max(float(np.linalg.eigvalsh(guess)[-1]), 0.0) if size else 0.0
            lengths.append(Length(size, float(most), observed, (float(np.trace(guess)), top)))
        return lengths

    @cached_property
    def error(self) -> tuple[Enclosure, list[Length]]:
        """The functionals N of all coefficients of u as one vector, and what bounds its noise."""
        functionals = self.through_error(inverse(enclosed(self.g.mix)).T[1:])
        weights = functionals @ self.g.expected_precision
        return functionals, self._lengths_of({c: weights[c] for c in self.g.used})

    @property
    def _log_term(self) -> Enclosure:
        """L of the events about lengths of vectors: that of u and, of rows in order, those of every action."""
        events = _POINT_EVENTS if self.g.pointwise else _NORM_EVENTS * (1 + self.g.actions * self.g.ordered)
        return logarithm(events / enclosed(self.g.part("size of the error")))

    @cached_property
    def expected_length(self) -> float:
        """κ as training data and the fresh states let us expect it: for slopes."""
        if self.m == 1:
            return 0.0
        (_, alpha), (_, beta) = self._noise
        (trace, _), (_, top) = (length.expected for length in self.error[1])
        stretch = 1 / (1 - min(2 * top**0.5, _MOST_GROWTH))
        if self.g.pointwise:
            points = self._at_points[0]
            likely = points._replace(square=enclosed(points.expected), powers=points.powers[:, :0])
            offset = enclosed(_OBSERVED * float(np.sqrt(points.expected.max())))
            turned = enclosed(np.sqrt(points.squares.middle) * stretch)
            found = self._length_at_points(likely, enclosed(alpha), enclosed(beta), turned, 0.0, offset)
            return _CAUTION_OF_LENGTH * found if np.isfinite(found) else 0.0
        start = stretch * max(trace, 0.0) ** 0.5
        noise = (alpha + beta * start) / (1 - beta * stretch) if beta * stretch < _MOST_GROWTH else alpha
        return float(_CAUTION_OF_LENGTH * (start + stretch * noise))

    @cached_property
    def _noise(self) -> list[tuple[Enclosure, float]]:
        """Bounds on the noise of V̂ and of the f_i in all coefficients of u, and what they were expected to be."""
        kinds, L = self.error[1], self._log_term
        if not self.g.pointwise:
            return [noise_length(kind, L, ordered=self.g.ordered) for kind in kinds]
        (trace, top), observed = kinds[1].expected, kinds[1].observed
        likely = float(hoeffding_norm(enclosed(trace), top, L).middle)
        return [noise_length(kinds[0], L, ordered=False), (hoeffding_norm(*observed, L), likely)]

    @cached_property
    def size(self) -> Size:
        """Bounds on u; TooLittleError where there are none."""
        g, m = self.g, self.m - 1
        if not float((self.gamma * g.tau).above) < 1:
            raise TooLittleError("the tail is too large: V may be anything")
        white = Enclosure(np.zeros((0, 2)))
        if g.ordered:
            kinds = [self._lengths_of({c: enclosed(matrix)}) for c, matrix in enumerate(self._whitening)]
            each = [[noise_length(kind, self._log_term, ordered=True)[0] for kind in own] for own in kinds]
            white = stacked([stacked(own) for own in each])
        if m == 0:
            return Size(0.0, 0.0, white)
        functionals, added = self.error[0], self._outside_vector * np.array(self.radius)
        if g.ordered:
            mismatch = np.array([norm(self._apart(functionals[c], c)) for c in g.used])
            added = (white[list(g.used)] * mismatch[:, None]).sum(0) + added
        alpha, beta = (noise + added[i] for i, (noise, _) in enumerate(self._noise))
        centre, inverted = self.solved
        if g.pointwise:
            points = self._at_points[0]
            tails, total = self._outside(0.0, points.magnified), points.value + points.shift
            offset = (enclosed(float(total.above.max())) - float(total.below.min())) * 0.5
            length = self._length_at_points(points, alpha, beta, points.turned, tails, offset)
            if not length < math.inf:
                raise TooLittleError("there is too little data: the error of the value may grow from step to step")
            return Size(float((alpha + beta * length).above), length, white)
        start, stretch = centre.length(), norm(inverted)
        growth = beta * stretch
        if not float(growth.above) < _MOST_GROWTH:
            raise TooLittleError("there is too little data: errors of the operators may grow from step to step")
        noise = float(((alpha + beta * start) / (1.0 - growth)).above)
        return Size(noise, float((start + enclosed(stretch) * noise).above), white)

    @cached_property
    def solved(self) -> tuple[Enclosure, Enclosure]:
        """c̃ and M = (I − K̂)⁻¹; TooLittleError where there is none."""
        value, matrix = self._observed(self.error[0] @ self.g.precision)
        try:
            inverted = inverse(np.eye(self.m - 1) - matrix)
        except ZeroDivisionError:
            why = "there is too little data: I − K̂ cannot be distinguished from a singular matrix"
            raise TooLittleError(why) from None
        return inverted @ value, inverted

    @cached_property
    def _outside_vector(self) -> Enclosure:
        """What the tail adds to the length of N(ν + θ), for V with values between −1 and 1."""
        g, functionals = self.g, self.error[0]
        squares = [norm(functionals[c] @ g.precision[c] @ functionals[c].T) * g.counts[c] for c in g.used]
        return self._outside(0.0, enclosed(np.array(squares)).root().sum())

    def _polynomial(self, place: int, values: Enclosure) -> Enclosure:
        """The functionals of the polynomial of one used action in u, at points with these harmonics ``[n, k]``."""
        rows = placed(values, (len(values), len(self.g.used), self.k), (slice(None), place))
        return self.through_error(rows.reshape(len(values), -1))

    @cached_property
    def _at_points(self) -> tuple[Points, Enclosure, Floats]:
        """û at the points of a mesh, the polynomials of the used actions in turn; L; slopes for the noise of V̂."""
        parts = [self.at(self.columns.coarse, partial(self._polynomial, place)) for place in range(len(self.g.used))]
        points = Points(*(joined(arrays) for arrays in zip(*parts, strict=True)))
        L = logarithm(float(_POINT_EVENTS * len(points.value)) / enclosed(self.g.part("size of the error")))
        return points, L, self._slope(points.expected, points.largest[:, 0], L)

    def _slope(self, expected: Floats, bounds: Floats, log_terms: Enclosure) -> Floats:
        """Good slopes by what was expected."""
        return best_slope(_CAUTION * expected, bounds, log_terms.middle, powers=self.g.powers)

    def _radius(
        self, points: Points, log_terms: Enclosure, slope: Floats, length: float = 0.0, square: Enclosure | None = None
    ) -> Floats:
        """Lemma 3 on either side ``[2, n]``, for a size κ of u; with higher powers the better of both sums."""
        square, most = points.square if square is None else square, points.largest.T
        bound = (enclosed(length) * most[1] + most[0]).above
        radius = np.broadcast_to(sloped(square, bound, log_terms, slope), (2, len(bound)))
        if not points.powers.shape[1]:
            return radius
        signs = np.array([[1.0], [-1.0]])
        cube, fourth = points.powers[:, 0], points.powers[:, 1].positive()
        largest, apart = length * enclosed(most[1]), points.squares * length * length
        less = (fourth * apart).root() * 3.0 + (3.0 * enclosed(most[0]) + largest) * apart
        whole = fourth.root().root() + (largest * largest * apart).root().root()
        whole = whole * whole * (whole * whole)
        return np.minimum(radius, quartic(square, less - cube * signs, whole, bound, log_terms, slope))

    def _length_at_points(
        self, points: Points, alpha: Enclosure, beta: Enclosure, turned: Enclosure, tails: Any, offset: Enclosure
    ) -> float:
        """(4'): half the span of u by its values at points, whose middle is an offset; infinite where it may grow."""
        (_, L, slope), factor = self._at_points, self.columns.inflation(self.columns.coarse)
        first = (alpha * turned + self._radius(points, L, slope).max(axis=0) + tails * self.radius[0]).above
        shares = ((2.0 * L * points.squares).root() + beta * turned + tails).above
        share = enclosed(float(shares.max())) * factor
        if not float(share.above) < _MOST_GROWTH:
            return math.inf
        return float(((offset + float(first.max())) * factor / (1.0 - share)).above)

    # Bands.

    def radii(self, points: Points, log_terms: Enclosure) -> tuple[Floats, Floats]:
        """The radius at points without u, and what u adds ``[s, n]``."""
        size = self.size
        most = points.largest.T
        bounds = most[0] + max(self.expected_length, 1e-60) * most[1]  # where V is 0 rounding alone is left
        slope = self._slope(points.expected, bounds, log_terms)
        first = self._radius(points, log_terms, slope)[: len(log_terms)]
        length = enclosed(size.length)
        squares = length * length * points.squares
        roots = points.square.root() + squares.root()
        moment = roots * roots
        if points.cross.shape[1]:
            centre, inverted = self.solved
            turned = (points.cross @ inverted).length()
            together = points.square + 2.0 * (points.cross @ centre + size.noise * turned) + squares
            moment = smaller(moment, together.positive())
        total = self._radius(points, log_terms, slope, size.length, moment)[: len(log_terms)]
        first = np.minimum(first, total)
        turned = points.turned * size.noise
        with np.errstate(invalid="ignore"):
            second = np.where(np.isfinite(total), (enclosed(total) - first + turned).above, np.inf)
        if self.g.ordered:
            added = points.mismatch @ size.white
            first = (added[:, 0] + first).above
            second = (added[:, 1] * size.length + second).above
        return first, second

    def bands(self) -> list[Band]:
        """One for every pair of actions of which the expert uses one."""
        g, bands = self.g, []
        counts = g.shares.shape[2:]
        total = float(enclosed(g.shares.reshape(-1)).sum().above)
        for (b, a), shares in zip(g.compared, g.shares, strict=True):
            events = enclosed(shares.reshape(2, -1)) * (g.part("band") / max(total, 1.0))
            points = self.at(counts, partial(self.functionals, (b, a)), (b, a))
            first, second = self.radii(points, -logarithm(events))
            outside = self._outside(2.0, enclosed(self.columns.inflation(counts)) * float(points.magnified.above.max()))
            second = (enclosed(second) + outside * self.size.length * self.radius[1]).above
            tail, rounding = float((outside * self.radius[0]).above), self.rounding(float((first + second).max()))
            first, second = first.reshape(2, *counts), second.reshape(2, *counts)
            paid, curve = g.paid(b, a), self._curve(b, a)
            curve = paid.curve + placed(curve, (len(paid.curve),), (slice(self.k),))
            bands.append(Band((b, a), curve, first, second, tail, rounding, paid))
        return bands

    def _curve(self, b: int, a: int) -> Enclosure:
        g, (centre, _) = self.g, self.solved
        sums = enclosed(g.residuals) + (centre @ self.operators if len(centre) else 0.0)
        errors = (g.precision @ sums[:, :, None])[:, :, 0]
        ahead = self.resolvent.T @ errors[list(g.used)].reshape(-1)
        lift = self.gamma * ((enclosed(g.Z[b]) - g.Z[a]).T @ ahead)
        return enclosed(g.fits[b]) - g.fits[a] + errors[b] - errors[a] + lift

    def _outside(self, direct: float, magnified: Enclosure) -> Enclosure:
        """What the tail adds to functionals of a V with values between −1 and 1: section 4 of the note."""
        tau = enclosed(self.g.tau)
        return tau * ((1.0 + self.gamma) * magnified + direct) / (1.0 - self.gamma * tau)

    def span(self) -> float:
        """V at one state less V at another, at least; 0 if it is not bounded."""
        g, size = self.g, self.size
        points = self.points(self.through_error(enclosed(g.drop[None])))
        log_terms = -logarithm(enclosed(np.full((1, 1), g.part("regret") / 2)))
        first, second = self.radii(points, log_terms)
        outside = self._outside(2 * g.discount * (1 + 1e-15), points.magnified[0])
        outside = outside * (enclosed(self.radius[0]) + enclosed(size.length) * self.radius[1])
        lost = float((enclosed(first[0, 0]) + second[0, 0] + outside).above)
        if not np.isfinite(lost):
            return 0.0
        corrected = points.value[0] + g.dropped + points.shift[0] - lost - self.rounding(lost)
        return max(0.0, float(corrected.below))

    def visits(self) -> Floats:
        """sup over states and actions of P_c of every tent, at most ``[w]``."""
        g, columns, most = self.g, self.columns, np.zeros(len(self.g.widths))
        values, factor = columns.mesh(columns.visited), columns.inflation(columns.visited)
        moments, dense = columns.lifted(g.visit_moments), columns.dense_values
        functions = g.actions * max(len(most), 1)
        events = functions * (2 * len(values) + _VISIT_EVENTS) if g.ordered else _VISIT_EVENTS * functions * len(values)
        L = logarithm(events / enclosed(g.part("regret") / 2))
        for c in range(g.actions):
            weights = values @ g.expected_precision[c]
            for w, guess in enumerate(g.tent_fits[c]):
                fit = dense @ guess
                reach = (fit - 0.5).absolute() + 0.5  # max(1 − fit, fit)
                blocks = [weights[start : start + _POINTS // 4] for start in range(0, len(weights), _POINTS // 4)]
                most_of = [((rows @ dense.T).absolute() * reach).above.max(axis=1) for rows in blocks]
                largest = columns.inflation(columns.dense, 2) * np.concatenate(most_of) * (1 + 1e-15)
                observed = ((weights @ moments[c, w]) * weights).sum().positive()
                if g.ordered:
                    likely = max(float(fit.middle.max()), 1e-6)
                    expected = likely * ((weights @ g.expected_grams[c]) * weights).sum().middle
                    radius = enclosed(sloped(observed, largest, L, best_slope(_CAUTION * expected, largest, L.middle)))
                    radius = radius + self._mismatched_visits(values, c, moments[c, w], reach, likely, L)
                else:
                    radius = bernstein(observed, largest, L)
                above = factor * float(radius.above.max()) * (1 + 1e-15)
                curve = enclosed(guess) + g.precision[c] @ g.visits[c, w]
                beyond = self.lebesgue[c] * g.tau * 0.5 + self.rounding(above, scale=2.0)
                most[w] = max(most[w], float((beyond + columns.peak(curve) + above).above))
        return np.clip(most, 0.0, 1.0)

    def _mismatched_visits(
        self, values: Enclosure, c: int, moments: Enclosure, reach: Enclosure, likely: float, log_term: Enclosure
    ) -> Enclosure:
        """What the weights of the regression add to those fixed beforehand, for the visits of one tent ``[n]``."""
        g, columns, diagonal = self.g, self.columns, np.arange(self.k)
        root = enclosed(whitening(g.expected_grams[c].middle))
        forms, lengths = root @ moments @ root.T, (root @ columns.dense_values.T).length(0)
        longest = float((lengths * reach).above.max()) * columns.inflation(columns.dense, 2) * (1 + 1e-15)
        observed = forms[diagonal, diagonal].sum().positive(), max(top_eigenvalue(forms), 0.0)
        noise, _ = noise_length(Length(self.k, longest, observed, (self.k * likely, likely)), log_term, ordered=True)
        return (values @ (g.precision[c] - g.expected_precision[c]) @ inverse(root)).length() * noise

    def rounding(self, radius: float, scale: float | None = None) -> float:
        """What floating point can have done to the sums over data, as section 15 allows for it."""
        g = self.g
        unit = g.rounding
        if scale is None:
            size = g.high - g.low + max(abs(g.low), abs(g.high))
            scale = size * float(self.resolvent.size.sum(axis=1).max())
        solved = unit * self.k**2 * g.condition * scale
        lifted = unit * self.k * 2 ** len(self.columns.wide) * self.spread
        if g.powers:
            lifted *= 1 + 2 * self.spread
        return float(solved + lifted * radius) * (1 + 1e-12) if np.isfinite(radius) else float(solved)
