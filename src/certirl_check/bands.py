"""The theorem, derived again: bands around (P_b − P_a)V, the span of V and visits of tents, with proved errors.

The notation is that of docs/notes/certificate.md, sections 4 to 9 and, for rows that may depend on earlier ones, 18.
What may be chosen freely before the fresh data, slopes and scales among it, is computed in plain floating point: any
number is sound. Everything else is an enclosure, or a bound on the safe side. Nothing here is shared with the code
that made the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from certirl_check.enclosures import (
    Enclosure,
    Floats,
    enclosed,
    inverse,
    joined,
    least_eigenvalue,
    logarithm,
    norm,
    smaller,
    stacked,
    top_eigenvalue,
)
from certirl_check.harmonics import Box, Functions
from certirl_check.records import (
    RELATIVE,
    SEPARATE,
    TIGHT,
    DamagedError,
    ImpossibleError,
    Record,
    TooLittleError,
    failed,
    reward_of,
    short,
)

# How δ is spent on the statements of the theorem, by whether the expert takes one action.
SHARES = {
    True: {"band": 0.85, "size of the error": 0.15},
    False: {"band": 0.8, "size of the error": 0.15, "regret": 0.05},
}
_MOST_DELTA = 0.5  # beyond it a statement may fail more often than it holds
_NORM_EVENTS, _VISIT_EVENTS = 6, 3
_POINT_EVENTS = 8  # over half of a part of δ: four of the noise of u as a vector, and four at each point
_CAUTION, _CAUTION_OF_LENGTH = 1.1, 1.5  # times what training data let us expect: for slopes alone
_MOST_GROWTH = 0.95
_OBSERVED = 2.5  # the observed error of V̂ at points, in standard deviations of its noise: for slopes alone
_MOST_CLOSE = 250_000  # numbers up to which ranges are looked for state by state
_POINTS = 1024  # worked on at once
_STRETCH, _BLOCK = 8192, 512  # no sum over data had more additions within a block, or smaller blocks


class Sums:
    """Sums over fresh transitions for one component of the state.

    Attributes:
        name: of the component.
        coordinates: of the state that it consists of; None if it is the only one.
        columns, box: the functions of the state, and their harmonics.
        tail: τ; None if none was declared.
        counts: transitions of each action ``[A]``.
        gram: Σ χ(s) of each action ``[A, *wide]``.
        paired: whether every state was tried with every action.
        ordered: whether rows may depend on earlier ones.
    """

    ordered = False

    def __init__(self, record: Record, name: str, fixed: Record, sums: Record) -> None:
        self.name, self.columns, self.tail = name, fixed.functions("columns"), record.tail()
        self.coordinates = None if fixed.entry("coordinates") is None else fixed.wholes("coordinates")
        if self.columns.dimension > 3 or not self.columns.closed:
            raise ImpossibleError(f"{self.columns} are no functions that bounds can rest on")
        self.box = Box.of(self.columns)
        self.counts = sums.array("counts", (None,), "iu").astype(float)
        if len(self.counts) < 2:
            raise DamagedError(f"counts should be of two actions or more, got {len(self.counts)}")
        self.gram, self.paired = sums.array("gram", (self.actions, *self.box.wide)), sums.flag("paired")

    @property
    def actions(self) -> int:
        """How many, A."""
        return len(self.counts)

    @cached_property
    def grams(self) -> Enclosure:
        """Σ h hᵀ of each action ``[A, k, k]``."""
        return self.box.lifted(self.gram)

    @cached_property
    def precision(self) -> Enclosure:
        """The inverses of the Gram matrices ``[A, k, k]``."""
        return stacked([inverse(self.grams[c]) for c in range(self.actions)])

    @cached_property
    def condition(self) -> float:
        """The largest condition number of a Gram matrix; TooLittleError if one may be singular."""
        ends = [(least_eigenvalue(self.grams[c]), top_eigenvalue(self.grams[c])) for c in range(self.actions)]
        if min(low for low, _ in ends) <= 0:
            raise TooLittleError("a Gram matrix is not positive definite: the states cannot tell the functions apart")
        return max(high / low for low, high in ends)

    @property
    def rounding(self) -> float:
        """What floating point can have done to a sum over data, as a share of its terms (section 15)."""
        return float((_STRETCH + self.counts.max() / _BLOCK + 2 * max(self.box.wide) ** 2) * 2.0**-52)

    def contradictions(self) -> list[str]:
        """What sums over data cannot be."""
        wrong, k = [], self.columns.size
        for c, (n, gram) in enumerate(zip(self.counts, self.gram, strict=True)):
            bounded = abs(gram.flat[0] - n) <= TIGHT * n and np.abs(gram).max() <= n * (1 + TIGHT)
            wrong += failed(
                (n >= k, f"action {c} has {int(n)} transitions, too few for {k} functions"),
                (bounded, f"the Gram matrix of action {c} is not one of {int(n)} states"),
            )
        same = (self.gram == self.gram[0]).all() and (self.counts == self.counts[0]).all()
        return wrong + failed((same or not self.paired, "paired actions have different states"))

    @property
    def assumption(self) -> str:
        """What the tail says of the dynamics, in words."""
        size = self.columns.size
        families = " × ".join(self.columns.families)
        which = f"a combination of the first {size} {families} functions of the state" if size > 1 else "a constant"
        if not self.tail:
            return f"every P_a f is exactly {which}"
        return f"every P_a f, |f| ≤ 1, lies within {short(self.tail)} of {which}"

    @property
    def data(self) -> str:
        """How many transitions there are, in words."""
        least, most = int(self.counts.min()), int(self.counts.max())
        how = "every state tried with every action" if self.paired else "drawn separately for each action"
        how = "in the order of time" if self.ordered else how
        return f"{least:,}{f' to {most:,}' * (most > least)} fresh transitions of each action, {how}"


class Claim:
    """What a file claims of the sums of its components, and what follows from them.

    Attributes:
        solution: that it belongs to; None if it is alone in its file.
        parts: the sums of the components.
        margin: the bound.
        delta, spending: the probability of a false statement, and its parts by name.
        derived: the margin that follows; None if none does.
        statement: what is confirmed, spelled out.
        account: how the margin was derived, in lines by name.
    """

    def __init__(self, record: Record, solution: Record | None, parts: Sequence[Sums]) -> None:
        self.record, self.solution, self.parts = record, solution, parts
        self.margin = record.bound("margin")
        self.delta, self.spending = record.number("delta"), record.named("spending")
        if not self.parts or any(part.actions != self.parts[0].actions for part in self.parts):
            raise DamagedError("grounds should be those of one component or more, with the same actions")
        if not self.spending:
            raise DamagedError("spending should be numbers by name, got none")
        self.derived: float | None = None
        self.statement, self.account = "", list[tuple[str, str]]()

    def contradictions(self) -> list[str]:
        """What neither δ nor the sums of the components can be, each by itself and together."""
        parts, delta, total = self.parts, self.delta, math.fsum(self.spending.values())
        spent = min(self.spending.values()) >= 0 and abs(total - delta) <= TIGHT * abs(delta)
        meaning = "a statement that may fail with that probability is no certificate"
        wrong = failed(
            (spent, "the parts of δ are not probabilities that add up to δ"),
            (0 < delta < 1, f"δ = {delta:g} is no probability between 0 and 1"),
            (not _MOST_DELTA < delta < 1, f"δ = {delta:g}: {meaning}"),
        )
        for part in parts:
            prefix = f"component {part.name}: " if len(parts) > 1 else ""
            wrong += [prefix + sentence for sentence in part.contradictions()]
        groups = [part.coordinates or () for part in parts]
        coordinates = [c for group in groups for c in group]
        fits = [len(group) == part.columns.dimension for group, part in zip(groups, parts, strict=True)]
        apart = (all(fits) and len(set(coordinates)) == len(coordinates)) or [part.coordinates for part in parts] == [
            None
        ]
        alike = [part.paired == parts[0].paired and (part.counts == parts[0].counts).all() for part in parts]
        return wrong + failed(
            (apart, "the components are not groups of different coordinates"),
            (all(alike), "the components were not looked at in the same transitions"),
        )

    def assumptions(self) -> list[str]:
        """What is assumed of the dynamics of all components, in sentences."""
        if self.parts[0].coordinates is None:
            return [self.parts[0].assumption]
        return [SEPARATE, *(f"in {part.name} {part.assumption}" for part in self.parts)]

    @property
    def domain(self) -> str:
        """The states in words."""
        return " × ".join(part.columns.domain for part in self.parts)

    @property
    def spent(self) -> str:
        """δ and its parts in words."""
        return f"δ = {self.delta:.6g}: " + ", ".join(f"{short(x)} {name}" for name, x in self.spending.items())

    @property
    def probability(self) -> str:
        """1 − δ in words that never say 1."""
        return f"{1 - self.delta:.6g}" if self.delta >= 1e-4 else f"1 − {self.delta:.3g}"


class Ground(Sums):
    """What was fixed beforehand and the sums over fresh data of one component of a certificate; names as in a file."""

    def __init__(self, record: Record) -> None:
        s, e = record.record("surrogate", "Surrogate"), record.record("evidence", "Evidence")
        super().__init__(record, record.text("name"), s, e)
        A, k, wide, d = self.actions, self.columns.size, self.box.wide, self.columns.dimension
        self.used, self.component = s.wholes("used"), s.whole("component")
        if not self.used or list(self.used) != sorted({*self.used} & {*range(A)}):
            raise DamagedError(f"used should name some of {A} actions in order, got {self.used!r:.60}")
        self.delta, self.discount, self.unit = record.number("delta"), s.number("discount"), s.number("unit")
        if not 0 < self.discount < 1:
            raise DamagedError(f"discount should lie between 0 and 1, got {self.discount:g}")
        if not self.unit > 0 or s.record("reward", "BoundedReward").number("unit") != self.unit:
            raise DamagedError(f"unit should be positive, and that of the reward, got {self.unit:g}")
        self.reward = reward_of(s.record("reward"), self.unit)
        m, r, self.widths = k * len(self.used), s.whole("directions"), s.array("widths", (None,))
        if r not in (0, m - 1):
            raise DamagedError(f"directions should be 0 or {m - 1}, got {r}")
        w, pairs, observed = len(self.widths), len(self.pairs(True)), len(self.pairs(self.paired))
        # Fixed before the fresh data.
        self.fits, self.Z = s.array("fits", (A, k)), s.array("Z", (A, m, k))
        self.mix, self.noise = s.array("mix", (m, m)), s.array("noise", (pairs, None, *wide))
        self.shares = s.array("shares", (pairs - A, 2, *[None] * d))
        self.tent_fits = s.array("tent_fits", (A, w, k))
        self.marks = s.array("marks", (None,) * (d if w else 1), finite=False)
        self.places, self.drop, self.dropped = s.array("places", (2, d)), s.array("drop", (m,)), s.number("dropped")
        self.powers, self.ordered = s.flag("powers"), s.has("design")
        if self.noise.shape[1] not in (1, 2) or (self.pointwise and (r or self.ordered)):
            raise DamagedError(f"noise should be of V, and of {m} functions where rows depend on each other")
        self.design = s.array("design", (A, *wide)) if self.ordered else self.gram
        # Sums over the fresh data.
        self.residuals, self.residual_moments = (
            e.array("residuals", (A, k)),
            e.array("residual_moments", (observed, *wide)),
        )
        self.cross_moments = e.array("cross_moments", (observed, r, *wide))
        self.tuples = self._tuples() if self.powers else []
        self.higher = e.array("powers", (len(self.tuples), *self.box.wider)) if self.powers else np.zeros((0, 1))
        if e.has("powers") != self.powers:
            raise DamagedError("higher powers are summed if they were asked for, and only then")
        self.operator_residuals = e.array("operator_residuals", (A, m, k))
        self.operator_moments = e.array("operator_moments", (0 if self.pointwise else observed, *wide))
        self.visits, self.visit_moments = e.array("visits", (A, w, k)), e.array("visit_moments", (A, w, *wide))
        self.reached = e.array("reached", (A, len(self.reward.coefficients)))
        self.low, self.high = self._value_range(s.number("low"), s.number("high"))

    @cached_property
    def expected_grams(self) -> Enclosure:
        """Σ h hᵀ from which the weights of bounds come: as fixed beforehand, or observed ``[A, k, k]``."""
        return self.box.lifted(self.design) if self.ordered else self.grams

    @cached_property
    def expected_precision(self) -> Enclosure:
        """Their inverses ``[A, k, k]``; ImpossibleError if one may not be positive definite."""
        if not self.ordered:
            return self.precision
        if min(least_eigenvalue(self.expected_grams[c]) for c in range(self.actions)) <= 0:
            raise ImpossibleError("a Gram matrix that was expected is not positive definite")
        return stacked([inverse(self.expected_grams[c]) for c in range(self.actions)])

    @property
    def expected_counts(self) -> Floats:
        """How many transitions of each action were expected ``[A]``: the sum of the constant harmonic."""
        return np.asarray(self.design.reshape(self.actions, -1)[:, 0]) if self.ordered else self.counts

    @property
    def constant(self) -> bool:
        """Whether the expert takes one action everywhere."""
        return len(self.used) == 1

    @property
    def pointwise(self) -> bool:
        """Whether the error of V̂ is bounded at points, without second moments of the f_i."""
        return self.noise.shape[1] == 1

    @property
    def tau(self) -> float:
        """τ, 0 if none was declared."""
        return self.tail or 0.0

    def _tuples(self) -> list[tuple[int, ...]]:
        """Threes, then fours, of actions whose residuals are multiplied: of one, or of used ones and one other."""
        every = [t for n in (3, 4) for t in combinations_with_replacement(range(self.actions), n)]
        return [t for t in every if len({*t} - {*self.used}) <= 1 and (self.paired or len({*t}) == 1)]

    def pairs(self, paired: bool) -> list[tuple[int, int]]:
        """c ≤ d whose residuals are multiplied."""
        every = [(c, d) for c in range(self.actions) for d in range(c, self.actions)]
        return [(c, d) for c, d in every if c == d or (paired and (c in self.used or d in self.used))]

    @property
    def compared(self) -> list[tuple[int, int]]:
        """b < a of which the expert uses one."""
        return [(b, a) for b, a in self.pairs(True) if b != a]

    def part(self, name: str) -> float:
        """A part of δ, rounded down."""
        return SHARES[self.constant][name] * self.delta * (1 - 1e-15)

    def _value_range(self, low: float, high: float) -> tuple[float, float]:
        """Bounds on V̂, at least as wide as those in the file; ImpossibleError if the file has others."""
        least, most = self._derived_range()
        room = RELATIVE * (most - least) + 2.0**-46 * max(abs(least), abs(most))  # sums of dozens of roundings
        if not (abs(least - low) <= room and abs(most - high) <= room):
            derived = f"from {short(self.unit * least, 6)} to {short(self.unit * most, 6)}"
            stated = f"from {short(self.unit * low, 6)} to {short(self.unit * high, 6)}"
            values = f"the reward and the guesses of the file have values V {derived}"
            raise ImpossibleError(f"{values}, but the sums were made with a V {stated}")
        return min(least, low), max(most, high)

    def _derived_range(self) -> tuple[float, float]:
        """Bounds on V̂ = R + γ Σ π_d (fits_d·h): of the sum where R is an expansion like the fits, else of each term."""
        gamma = enclosed(self.discount)
        if (expansion := self._expansion) is not None:
            wide = expansion if expansion.size >= self.columns.size else self.columns
            if wide.closed:
                R, fit = np.zeros(wide.size), np.zeros(wide.size)
                R[: len(self.reward.coefficients)] = self.reward.coefficients
                fit[: self.columns.size] = self.fits[self.used[0]]
                return Box.of(wide).range(Enclosure(R) @ wide.change + gamma * fit)
        low, high = self.reward.range
        ends = [self.box.range(enclosed(self.fits[d])) for d in self.used]
        least, most = min(end for end, _ in ends), max(end for _, end in ends)
        return float((enclosed(low) + gamma * least).below), float((enclosed(high) + gamma * most).above)

    @property
    def _expansion(self) -> Functions | None:
        """The reward's functions where V̂ is one expansion: those of an expert of one action, in the columns' order."""
        basis = self.reward.basis
        return basis if self.constant and isinstance(basis, Functions) and basis.kin(self.columns) else None

    @property
    def described(self) -> str:
        """The reward in words."""
        if self.reward.basis is None:
            return str(self.reward)
        return f"{self.reward}, ‖α‖₁ = {short(self.unit * float(np.abs(self.reward.coefficients).sum()))}"

    def contradictions(self) -> list[str]:
        """What neither sums over data nor guesses can be, and what contradicts the reward."""
        k, shares = self.columns.size, float(self.shares.sum())
        diagonal = [self.pairs(self.paired).index((c, c)) for c in range(self.actions)]
        first = (slice(None),) + (0,) * len(self.box.wide)
        mixed = (
            []
            if self.pointwise
            else [((self.mix[1:] @ self.operator_residuals) ** 2).sum(axis=1).max(axis=1, initial=0.0)]
        )
        sizes = [  # Σ x_i f is at most √(n Σ f²), as no x_i exceeds 1
            ((self.residuals**2).max(axis=1), self.residual_moments[diagonal][first]),
            *((squares, self.operator_moments[diagonal][first]) for squares in mixed),
            *(((self.visits[:, w] ** 2).max(axis=1), self.visit_moments[:, w][first]) for w in range(len(self.widths))),
        ]
        if self.powers:
            cubes, fourths = (self._of_one(n) for n in (3, 4))
            square = self.residual_moments[diagonal][first]
            sizes += [(cubes**2 / self.counts, square * fourths / self.counts), (square**2 / self.counts, fourths)]
        small = [(square <= self.counts * moment * (1 + TIGHT) + 1e-290).all() for square, moment in sizes]
        moved = np.abs(self.Z[:, ::k].sum(axis=1) - np.eye(k)[0]).max()
        kept = np.abs(self.operator_residuals[:, ::k].sum(axis=1)).max()
        constant = np.zeros(self.Z.shape[1])
        constant[::k] = 1.0
        return [
            *super().contradictions(),
            *failed(
                (not (self.ordered and self.paired), "rows that depend on each other are paired"),
                (all(small), "the residuals of an action are larger than their second moments allow"),
                (moved <= TIGHT * (1 + np.abs(self.Z).max()), "an operator moves constants"),
                (
                    kept <= TIGHT * self.counts.max() * (1 + np.abs(self.Z).sum(axis=2).max()),
                    "constants have residuals",
                ),
                (
                    (self.mix[0] == constant).all(),
                    "the first of the functions that the error is made of is not constant",
                ),
                (
                    (self.shares >= 0).all() and shares <= 1 + TIGHT,
                    f"the shares of the points add up to {short(shares, 6)}, not to 1 at most",
                ),
                (
                    self.low <= self.high and (self.widths > 0).all(),
                    "V's bounds are the wrong way round, or a tent has no width",
                ),
            ),
            *self._other_reward(),
        ]

    def _of_one(self, order: int) -> Floats:
        """Σ Y_c³ or Σ Y_c⁴ of each action ``[A]``."""
        places = [self.tuples.index((c,) * order) for c in range(self.actions)]
        return np.asarray(self.higher.reshape(len(self.tuples), -1)[places, 0])

    def _other_reward(self) -> list[str]:
        """Whether Σ Y_c and the sums of the reward's functions over next states contradict each other."""
        reward, basis = self.reward, self.reward.basis
        if basis is None:
            return []
        if basis.box != self.columns.box:
            return [f"the reward is {reward}, the columns are on {self.columns.domain}"]
        x, fits = self.grams.middle[:, 0], self.fits[list(self.used)].ravel()
        pieces = self.operator_residuals[:, :, 0] + np.einsum("cmk,ck->cm", self.Z, x)  # Σ π_d h_j over next states
        guessed = self.discount * pieces @ fits - np.einsum("ck,ck->c", self.fits, x)
        sums = self.reached @ reward.coefficients + guessed
        size = np.abs(self.reached) @ np.abs(reward.coefficients)
        size += self.counts * (np.abs(fits).sum() + np.abs(self.fits).sum(axis=1))
        follows = np.abs(sums - self.residuals[:, 0]) <= TIGHT * size
        wrong = [f"the sums of action {c} were made with another reward" for c in np.flatnonzero(~follows)]
        if self._expansion is not None:
            same, change = min(self.columns.size, basis.size), self.columns.change
            apart = np.abs((pieces @ change.middle.T)[:, :same] - self.reached[:, :same]).max()
            agree = apart <= TIGHT * self.counts.max() * change.size.sum()
            wrong += failed((agree, "the sums over next states contradict each other"))
        return wrong


class Points(NamedTuple):
    """Functionals at n points: observed sums, second moments, largest terms and what was to be expected.

    Attributes:
        value, shift: ΣZ(V̂) and Σ_i c̃_iΣZ(f_i) ``[n]``.
        turned: the length of Mᵀ(ΣZ(f_i))_i ``[n]``.
        square, squares: ΣZ(V̂)² and Σ_iΣZ(f_i)², or S₁ if u is bounded at points ``[n]``.
        cross: ΣZ(V̂)Z(f_i) ``[n, r]``.
        largest: bounds on |Z(V̂)| and ‖Z(f)‖, or on |Z(u)| for |u| ≤ 1 ``[n, 2]``.
        powers: ΣZ(V̂)³ and ΣZ(V̂)⁴ ``[n, 2]``; ``[n, 0]`` where they were not summed.
        expected: ΣZ(V̂)² by training data ``[n]``.
        mismatch: ‖B_c⁻ᵀ(G_c⁻¹ − G0_c⁻¹)ω_c‖ for every action ``[n, A]``; ``[n, 0]`` for independent rows.
        magnified: Ω, by how much the tail is magnified ``[n]``.
    """

    value: Enclosure
    shift: Enclosure
    turned: Enclosure
    square: Enclosure
    squares: Enclosure
    cross: Enclosure
    largest: Floats
    powers: Enclosure
    expected: Floats
    mismatch: Enclosure
    magnified: Enclosure


class Lengths(NamedTuple):
    """What bounds the length of the noise of a vector, for V̂ and for the f_i.

    Attributes:
        size: its entries.
        observed, expected: trace and largest eigenvalue of its second moments, and its longest term.
    """

    size: int
    observed: list[tuple[Any, float, float]]
    expected: list[tuple[Any, float, float]]


Pair = tuple[int, int] | None


class Size(NamedTuple):
    """ρ ≥ ‖ζ + Nθ‖, κ ≥ ‖u‖, or half its span, and, for rows that depend on earlier ones, α_c and β_c ``[A, 2]``."""

    noise: float
    length: float
    white: Enclosure


@dataclass(frozen=True, eq=False)
class Band:
    """−below ≤ D_ba − curve ≤ above at the points of the mesh; tail and rounding come on top.

    Attributes:
        pair: (b, a).
        curve: in the harmonics ``[k]``.
        estimation, second: the radius at the points, below and above ``[2, N_1, …, N_d]``, without u and what u adds.
        tail, rounding: everywhere.
    """

    pair: tuple[int, int]
    curve: Enclosure
    estimation: Floats
    second: Floats
    tail: float
    rounding: float


class Derivation:
    """The inequalities for one ground."""

    def __init__(self, ground: Ground) -> None:
        g = self.g = ground
        self.box, self.gamma = g.box, enclosed(g.discount)
        self.k, self.m = g.columns.size, g.Z.shape[1]
        self.condition = g.condition
        blocks = np.concatenate([g.Z[c] for c in g.used], axis=1)
        self.resolvent = inverse(np.eye(self.m) - self.gamma * blocks)
        self.rows = g.mix[1:]
        self.operators = enclosed(self.rows) @ g.operator_residuals  # Σ x E_c(f_i) [A, m − 1, k]
        kinds = [g.residual_moments] if g.pointwise else [g.residual_moments, g.operator_moments]
        self._moments = self.box.lifted(np.concatenate([np.stack(kinds, axis=1), g.cross_moments], axis=1))
        every = g.pairs(True)
        likely = g.noise[[every.index(pair) for pair in g.pairs(g.paired)]] * float(g.expected_counts.min())
        self._likely = self.box.lifted(likely).middle
        self._at_nodes = self.box.at_nodes(g.higher) if g.powers else Enclosure(np.zeros((0, 1)))
        self._ranges()
        if g.ordered:
            likely_moments = dict(zip(g.pairs(False), self._likely[:, 0], strict=True))
            self._whitening = [whitening(likely_moments[c, c]) for c in range(g.actions)]

    def _ranges(self) -> None:
        """Suprema over all states: leverages, V̂ and f about their middles, and the fits."""
        g, box = self.g, self.box
        dense = box.dense_values.T

        def leverages(precision: Enclosure) -> Floats:
            most = np.zeros(g.actions)
            for fine in box.blocks(box.fine, _POINTS):
                most = np.maximum(most, ((fine @ precision) * fine).sum().above.max(axis=1))
            return box.inflation(box.fine, 2) * most

        self.leverage = leverages(g.precision)
        self.lebesgue = 1.0 + (enclosed(g.counts) * self.leverage).root()
        self.expected_leverage, self.spread = self.leverage, float(self.lebesgue.above.max() - 1) ** 2
        if g.ordered:
            self.expected_leverage = leverages(g.expected_precision)
            self.spread = max(self.spread, float((g.expected_counts * self.expected_leverage).max()))
            ends = [
                (least_eigenvalue(gram), top_eigenvalue(gram))
                for gram in (g.expected_grams[c] for c in range(g.actions))
            ]
            self.condition = max(self.condition, *(high / low for low, high in ends))
        level = g.low + (g.high - g.low) / 2
        fits = (enclosed(g.fits) @ dense - level)[:, None]
        reach = float(np.maximum((enclosed(g.high) - level).above, (enclosed(level) - g.low).above))
        if g.pointwise:  # u is compared with the middle of its range
            self.radius, self._fits = [reach, 1.0], fits[:, 0]
            self._lengths = np.stack([self._fits.size, np.zeros(self._fits.shape)])
            gaps = {(b, a): (self._fits[b] - self._fits[a]).size for b, a in g.compared}
            self._gaps = {pair: np.stack([gap, np.zeros_like(gap)]) for pair, gap in gaps.items()}
            return
        functions = enclosed(self.rows.reshape(-1, len(g.used), self.k)) @ dense  # [m − 1, U, q]
        values = functions.middle
        middle = (values.min(axis=(1, 2), initial=np.inf) + values.max(axis=(1, 2), initial=-np.inf)) / 2
        guesses = (fits, (enclosed(self.rows) @ g.Z) @ dense - middle[:, None])  # of P_cV̂ and of the P_cf_i
        self.radius = [
            reach,
            box.inflation(box.dense) * float((functions - middle[:, None, None]).length(0).above.max(initial=0.0)),
        ]
        self._fits = fits[:, 0]
        self._lengths = np.stack([guess.length(1).above for guess in guesses])  # [2, A, q]
        self._gaps = {
            (b, a): np.stack([(guess[b] - guess[a]).length(0).above for guess in guesses]) for b, a in g.compared
        }

    # Functionals ω of the errors of the regressions ``[A, n, k]``.

    def functionals(self, pair: tuple[int, int], values: Enclosure) -> Enclosure:
        """Those of D_ba at points."""
        b, a = pair
        signs = np.eye(self.g.actions)[b] - np.eye(self.g.actions)[a]
        later = self._through_error(values @ (enclosed(self.g.Z[b]) - self.g.Z[a]).T)
        return later + values * signs[:, None, None]

    def _through_error(self, rows: Enclosure) -> Enclosure:
        """Those of combinations of the coefficients of u."""
        used, weights = list(self.g.used), np.zeros((2, self.g.actions, len(rows), self.k))
        lifted = (self.gamma * (rows @ self.resolvent.T)).reshape(len(rows), len(used), self.k).swapped(0, 1)
        weights[0, used], weights[1, used] = lifted.middle, lifted.radius
        return Enclosure(*weights)

    def at(self, counts: tuple[int, ...], functionals: Callable[[Enclosure], Enclosure], pair: Pair = None) -> Points:
        """What the sums say of functionals at the points of a mesh, a block of them after the other."""
        close = math.prod(counts) * len(self.box.dense_values) <= _MOST_CLOSE
        blocks = [self.points(functionals(values), pair, close) for values in self.box.blocks(counts, _POINTS)]
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
        moments = positive[0], squares, forms[2:].T
        powers = self._powers(weights)
        return Points(value, shift, turned, *moments, largest, powers, likely, mismatch.T, magnified.sum(0))

    def _powers(self, weights: Enclosure) -> Enclosure:
        """ΣZ(V̂)³ and ΣZ(V̂)⁴ of functionals with these weights ``[n, 2]``, by their values at the nodes."""
        g = self.g
        if not g.powers:
            return Enclosure(np.zeros((weights.shape[1], 0)))
        swings, total = weights @ self.box.nodes.T, [Enclosure(np.zeros(weights.shape[1])) for _ in range(2)]
        for place, actions in enumerate(g.tuples):
            product, sums = swings[actions[0]], self._at_nodes[place]
            for c in actions[1:]:
                product = product * swings[c]
            times = math.factorial(len(actions)) // math.prod(math.factorial(actions.count(c)) for c in {*actions})
            total[len(actions) - 3] = total[len(actions) - 3] + (product @ sums) * float(times)
        return stacked(total).T

    def _plain(self, weights: Enclosure) -> Enclosure:
        """S₁ of functionals ``[n]``: ΣZ(u)² is no larger for |u| ≤ 1."""
        squares = [self._square(weights[c], c) for c in range(self.g.actions)]
        if not self.g.paired:
            return sum(squares[1:], squares[0])
        roots = [square.root() for square in squares]
        total = sum(roots[1:], roots[0])
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
        g, factor, dense = self.g, self.box.inflation(self.box.dense), self.box.dense_values

        def reach(rows: Enclosure, c: int) -> Floats:  # |p·x|² ≤ (pᵀGp)·(the largest leverage)
            return (self._square(rows, c) * self.expected_leverage[c]).root().above[:, None]

        sizes = np.stack([reach(weights[c], c) for c in range(g.actions)])
        both = None if pair is None else reach(weights[pair[0]] + weights[pair[1]], pair[0])
        lengths = factor * self._lengths.max(axis=2, keepdims=True)
        gaps = {compared: factor * gap.max(axis=1, keepdims=True) for compared, gap in self._gaps.items()}
        largest = self._terms(sizes, both, pair, lengths, gaps)[:, :, 0]
        if not close:
            return largest
        swings = weights @ dense.T
        both = None if pair is None else (swings[pair[0]] + swings[pair[1]]).size
        terms = self._terms(swings.size, both, pair, self._lengths, self._gaps)
        if g.paired:  # of V̂ the supremum is known
            exact = self.radius[0] * swings.size.sum(axis=0) + (swings * self._fits[:, None]).sum(0).size
            terms[0] = np.minimum(terms[0], exact * (1 + 1e-14))
        return np.minimum(largest, self.box.inflation(self.box.dense, 2) * terms.max(axis=2) * (1 + 1e-14))

    def _terms(
        self,
        sizes: Floats,
        both: Floats | None,
        pair: tuple[int, int] | None,
        lengths: Floats,
        gaps: dict[tuple[int, int], Floats],
    ) -> Floats:
        """The largest term at states, of V̂ and of the f_i ``[2, n, q]``, rounded up.

        Args:
            sizes: of the weights of all actions at states ``[A, n, q]``.
            both: of the sum of the weights of b and a ``[n, q]``.
            pair: (b, a); None for other functionals.
            lengths: of the fits of all actions ``[2, A, q]``.
            gaps: between the fits of b and a ``[2, q]``.
        """
        radius, each = np.array(self.radius)[:, None, None], sizes * lengths[:, :, None]
        if not self.g.paired:
            return np.asarray((radius[:, None] * sizes + each).max(axis=1)) * (1 + 1e-14)
        fits = each.sum(axis=1)
        if pair is not None and both is not None:
            others = each[:, [c for c in range(self.g.actions) if c not in pair]].sum(axis=1)
            for nearer, farther in (pair, pair[::-1]):
                apart = sizes[farther] * gaps[pair][:, None] + both * lengths[:, nearer, None]
                fits = np.minimum(fits, apart + others)
        return np.asarray(radius * sizes.sum(axis=0) + fits) * (1 + 1e-14)

    # The size of u.

    def _lengths_of(self, weights: dict[int, Enclosure]) -> Lengths:
        """What bounds the noise of a vector of functionals with these weights ``[q, k]`` of some actions."""
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
            plain = [rows @ self.g.grams[c] @ rows.T for c, rows in weights.items()]
            bound = sum(plain[1:], plain[0]) * float(len(plain) if self.g.paired else 1)
            forms, likely = stacked([forms[0], bound]), np.stack([likely[0], bound.middle])
        dense = self.box.dense_values
        sizes = np.zeros((self.g.actions, 1, len(dense)))
        for c, rows in weights.items():
            for start in range(0, len(dense), _POINTS):
                place = slice(start, start + _POINTS)
                sizes[c, 0, place] = (rows @ dense[place].T).length(0).above
        terms = self._terms(sizes, None, None, self._lengths, self._gaps).max(axis=(1, 2))
        longest = (self.box.inflation(self.box.dense, 2) * terms * (1 + 1e-14)).tolist()
        diagonal, lengths = np.arange(size), Lengths(size, [], [])
        for kind, guess in enumerate(likely):
            top = max(float(np.linalg.eigvalsh(guess)[-1]), 0.0) if size else 0.0
            trace = forms[kind, diagonal, diagonal].sum().positive()
            lengths.observed.append((trace, max(top_eigenvalue(forms[kind]), 0.0), longest[kind]))
            lengths.expected.append((float(np.trace(guess)), top, longest[kind]))
        return lengths

    @cached_property
    def _error(self) -> tuple[Enclosure, Lengths]:
        """The functionals N of all coefficients of u as one vector, and what bounds its noise."""
        functionals = self._through_error(inverse(enclosed(self.g.mix)).T[1:])
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
        if self.g.pointwise:
            return self._expected_at_points
        (trace, _, _), (_, top, _) = self._error[1].expected
        alpha, beta = norms(self._error[1], self._log_term, self.g.ordered)[1]
        stretch = 1 / (1 - min(2 * top**0.5, _MOST_GROWTH))
        start = stretch * max(trace, 0.0) ** 0.5
        noise = (alpha + beta * start) / (1 - beta * stretch) if beta * stretch < _MOST_GROWTH else alpha
        return float(_CAUTION_OF_LENGTH * (start + stretch * noise))

    @cached_property
    def size(self) -> Size:
        """Bounds on u; TooLittleError where there are none."""
        g, m = self.g, self.m - 1
        if not float((self.gamma * g.tau).above) < 1:
            raise TooLittleError("the tail is too large: V may be anything")
        white = Enclosure(np.zeros((0, 2)))
        if g.ordered:
            each = [self._lengths_of({c: enclosed(matrix)}) for c, matrix in enumerate(self._whitening)]
            white = stacked([stacked(norms(lengths, self._log_term, ordered=True)[0]) for lengths in each])
        if m == 0:
            return Size(0.0, 0.0, white)
        functionals, lengths = self._error
        if g.pointwise:
            return self._size_at_points
        alpha, beta = norms(lengths, self._log_term, g.ordered)[0]
        added = self._outside_vector * np.array(self.radius)
        if g.ordered:
            mismatch = np.array([norm(self._apart(functionals[c], c)) for c in g.used])
            added = (white[list(g.used)] * mismatch[:, None]).sum(0) + added
        alpha, beta = alpha + added[0], beta + added[1]
        centre, inverted = self.solved
        start, stretch = centre.length(), norm(inverted)
        growth = beta * stretch
        if not float(growth.above) < _MOST_GROWTH:
            raise TooLittleError("there is too little data: errors of the operators may grow from step to step")
        noise = float(((alpha + beta * start) / (1.0 - growth)).above)
        return Size(noise, float((start + enclosed(stretch) * noise).above), white)

    @cached_property
    def solved(self) -> tuple[Enclosure, Enclosure]:
        """c̃ and M = (I − K̂)⁻¹; TooLittleError where there is none."""
        value, matrix = self._observed(self._error[0] @ self.g.precision)
        try:
            inverted = inverse(np.eye(self.m - 1) - matrix)
        except ZeroDivisionError:
            raise TooLittleError(
                "there is too little data: I − K̂ cannot be distinguished from a singular matrix"
            ) from None
        return inverted @ value, inverted

    @cached_property
    def _outside_vector(self) -> Enclosure:
        """What the tail adds to the length of N(ν + θ), for V with values between −1 and 1."""
        g, functionals = self.g, self._error[0]
        squares = [norm(functionals[c] @ g.precision[c] @ functionals[c].T) * g.counts[c] for c in g.used]
        return self._outside(0.0, enclosed(np.array(squares)).root().sum())

    def _polynomial(self, place: int, values: Enclosure) -> Enclosure:
        """The functionals of the polynomial of one used action in u, at points with these harmonics ``[n, k]``."""
        rows = np.zeros((2, len(values), len(self.g.used), self.k))
        rows[0, :, place], rows[1, :, place] = values.middle, values.radius
        return self._through_error(Enclosure(*rows.reshape(2, len(values), -1)))

    @cached_property
    def _at_points(self) -> tuple[Points, Enclosure, Floats]:
        """û at the points of a mesh, the polynomials of the used actions in turn; L; slopes for the noise of V̂."""
        parts = [self.at(self.box.coarse, partial(self._polynomial, place)) for place in range(len(self.g.used))]
        points = Points(*(joined(arrays) for arrays in zip(*parts, strict=True)))
        L = logarithm(float(_POINT_EVENTS * len(points.value)) / enclosed(self.g.part("size of the error")))
        return points, L, self._slope(points.expected, points.largest[:, 0], L)

    def _slope(self, expected: Floats, bounds: Floats, log_terms: Enclosure) -> Floats:
        """Good slopes by what was expected."""
        choose = plain_slope if self.g.powers else best_slope
        return choose(_CAUTION * expected, bounds, log_terms.middle)

    def _radius(
        self,
        points: Points,
        log_terms: Enclosure,
        slope: Floats,
        length: float = 0.0,
        square: Enclosure | None = None,
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

    @property
    def _size_at_points(self) -> Size:
        """(4'): half the span of u by its values at points."""
        (points, L, slope), factor = self._at_points, self.box.inflation(self.box.coarse)
        lengths = self._error[1]
        alpha = norms(Lengths(lengths.size, lengths.observed[:1], lengths.expected[:1]), self._log_term, False)[0][0]
        beta = hoeffding_norm(*lengths.observed[1][:2], self._log_term) + self._outside_vector
        alpha, tails = alpha + self._outside_vector * self.radius[0], self._outside(0.0, points.magnified)
        total = points.value + points.shift
        offset = (enclosed(float(total.above.max())) - float(total.below.min())) * 0.5
        noise = self._radius(points, L, slope).max(axis=0)
        first = (noise + alpha * points.turned + tails * self.radius[0]).above
        shares = ((2.0 * L * points.squares).root() + beta * points.turned + tails).above
        share = enclosed(float(shares.max())) * factor
        if not float(share.above) < _MOST_GROWTH:
            raise TooLittleError("there is too little data: the error of the value may grow from step to step")
        size = float(((offset + float(first.max())) * factor / (1.0 - share)).above)
        return Size(float((alpha + beta * size).above), size, Enclosure(np.zeros((0, 2))))

    @property
    def _expected_at_points(self) -> float:
        """The same as training data let us expect it, in plain floating point."""
        (points, L, slope), factor = self._at_points, self.box.inflation(self.box.coarse)
        lengths, plain = self._error[1], np.sqrt(points.squares.middle)
        (_, alpha), (trace, top, _) = (
            norms(Lengths(lengths.size, lengths.observed[:1], lengths.expected[:1]), self._log_term, False),
            lengths.expected[1],
        )
        beta = float(hoeffding_norm(enclosed(trace), top, self._log_term).middle)
        turned = plain / (1 - min(2 * top**0.5, _MOST_GROWTH))
        likely = points._replace(square=enclosed(points.expected), powers=points.powers[:, :0])
        first = self._radius(likely, L, slope).max(axis=0) + alpha[0] * turned
        share = factor * float(((2 * L.middle) ** 0.5 * plain + beta * turned).max())
        if share >= _MOST_GROWTH:
            return 0.0
        offset = _OBSERVED * float(np.sqrt(points.expected.max()))
        return float(_CAUTION_OF_LENGTH * factor * (offset + float(first.max())) / (1 - share))

    # Bands.

    def radii(self, points: Points, log_terms: Enclosure) -> tuple[Floats, Floats]:
        """The radius at points without u, and what u adds ``[s, n]``."""
        size = self.size
        most = points.largest.T
        bounds = most[0] + self.expected_length * most[1]
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
            outside = self._outside(2.0, enclosed(self.box.inflation(counts)) * float(points.magnified.above.max()))
            second = (enclosed(second) + outside * self.size.length * self.radius[1]).above
            tail, rounding = float((outside * self.radius[0]).above), self.rounding(float((first + second).max()))
            first, second = first.reshape(2, *counts), second.reshape(2, *counts)
            bands.append(Band((b, a), self._curve(b, a), first, second, tail, rounding))
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
        points = self.points(self._through_error(enclosed(g.drop[None])))
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
        g, box, most = self.g, self.box, np.zeros(len(self.g.widths))
        values, factor = box.mesh(box.visited), box.inflation(box.visited)
        moments, dense = box.lifted(g.visit_moments), box.dense_values
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
                largest = box.inflation(box.dense, 2) * np.concatenate(most_of) * (1 + 1e-15)
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
                most[w] = max(most[w], float((beyond + box.peak(curve) + above).above))
        return np.clip(most, 0.0, 1.0)

    def _mismatched_visits(
        self, values: Enclosure, c: int, moments: Enclosure, reach: Enclosure, likely: float, log_term: Enclosure
    ) -> Enclosure:
        """What the weights of the regression add to those fixed beforehand, for the visits of one tent ``[n]``."""
        g, box, diagonal = self.g, self.box, np.arange(self.k)
        root = enclosed(whitening(g.expected_grams[c].middle))
        forms, lengths = root @ moments @ root.T, (root @ box.dense_values.T).length(0)
        longest = float((lengths * reach).above.max()) * box.inflation(box.dense, 2) * (1 + 1e-15)
        observed = (forms[diagonal, diagonal].sum().positive(), max(top_eigenvalue(forms), 0.0), longest)
        ((length,), _) = norms(
            Lengths(self.k, [observed], [(self.k * likely, likely, longest)]), log_term, ordered=True
        )
        return (values @ (g.precision[c] - g.expected_precision[c]) @ inverse(root)).length() * length

    def rounding(self, radius: float, scale: float | None = None) -> float:
        """What floating point can have done to the sums over data, as section 15 allows for it."""
        g = self.g
        unit = g.rounding
        if scale is None:
            size = g.high - g.low + max(abs(g.low), abs(g.high))
            scale = size * float(self.resolvent.size.sum(axis=1).max())
        solved = unit * self.k**2 * self.condition * scale
        lifted = unit * self.k * 2 ** len(self.box.wide) * self.spread
        if g.powers:
            lifted *= 1 + 2 * self.spread
        return float(solved + lifted * radius) * (1 + 1e-12) if np.isfinite(radius) else float(solved)


# Deviation bounds (section 6).


def growth_above(share: Floats) -> Floats:
    """No smaller than g(λ) = (−log(1 − λ) − λ)/λ² = Σ λ^j/(j + 2) for 0 ≤ λ < 1."""
    small = share < 0.1
    few = Enclosure(np.where(small, share, 0.0))
    series = Enclosure(np.zeros(share.shape))
    for j in reversed(range(20)):
        series = series * few + 1.0 / enclosed(j + 2.0)
    many = Enclosure(np.where(small, 0.5, share))
    closed = (-logarithm(1.0 - many) - many) / (many * many)
    return np.where(small, series.above + 1e-20, closed.above)  # the terms left out are below 0.1^20


def sloped(observed: Enclosure, bound: Floats, log_terms: Enclosure, slope: Floats) -> Floats:
    """Lemma 3: μ g(μb) ΣZ² + L/μ from above; infinite where μb ≥ 1."""
    share = (enclosed(slope) * bound).above
    inside = share < 1 - 1e-12
    growth = growth_above(np.where(inside, share, 0.5))
    total = enclosed(slope) * growth * observed + log_terms / enclosed(slope)
    return np.where(inside, total.above, np.inf)


def quartic_growth_above(share: Floats) -> Floats:
    """No smaller than g₄(λ) = (−log(1 − λ) − λ − λ²/2 − λ³/3)/λ⁴ = Σ λ^j/(j + 4) for 0 ≤ λ < 1."""
    small = share < 0.1
    few, many = Enclosure(np.where(small, share, 0.0)), Enclosure(np.where(small, 0.5, share))
    series = Enclosure(np.zeros(share.shape))
    for j in reversed(range(20)):
        series = series * few + 1.0 / enclosed(j + 4.0)
    square = many * many
    closed = (-logarithm(1.0 - many) - many - square * 0.5 - square * many / 3.0) / (square * square)
    return np.where(small, series.above + 1e-20, closed.above)


def quartic(
    square: Enclosure, less: Enclosure, fourth: Enclosure, bound: Floats, log_terms: Enclosure, slope: Floats
) -> Floats:
    """Lemma 3 with higher powers, L/μ + μΣZ²/2 − μ²ΣZ³/3 + μ³g₄(μb)ΣZ⁴ from above; ``less`` is −ΣZ³ at most."""
    share = (enclosed(slope) * bound).above
    inside, mu = share < 1 - 1e-12, enclosed(slope)
    growth = quartic_growth_above(np.where(inside, share, 0.5))
    cubed = (less / 3.0 + mu * (growth * fourth)) * mu
    total = log_terms / mu + mu * (square * 0.5 + cubed)
    return np.where(inside, total.above, np.inf)


def plain_slope(expected: Floats, bound: Floats, log_terms: Floats) -> Floats:
    """A good slope for `quartic`, in plain floating point: L/μ + μΣZ²/2 is least."""
    moment = np.maximum(expected, 1e-30 * bound**2 + 1e-300)
    slope = np.minimum(np.sqrt(2 * log_terms / moment), 0.8 / np.maximum(bound, 1e-300))
    return np.clip(np.maximum(slope, best_slope(expected, bound, log_terms)), 1e-250, 1e250)


def best_slope(expected: Floats, bound: Floats, log_terms: Floats) -> Floats:
    """A good slope, in plain floating point: y − log(1 + y) = Lb²/ΣZ² with y = μb/(1 − μb), by Newton's method."""
    moment = np.maximum(expected, 1e-30 * bound**2 + 1e-300)
    ratio = log_terms * bound**2 / moment
    y = np.sqrt(2 * ratio) + ratio
    for _ in range(4):
        y = y - (y - np.log1p(y) - ratio) * (1 + y) / np.maximum(y, 1e-300)
    share = np.where(ratio < 1e-10, np.sqrt(2 * ratio), np.maximum(y, 0.0) / (1 + np.maximum(y, 0.0)))
    slope = np.where(share > 0, np.minimum(share, 0.9) / np.maximum(bound, 1e-300), np.sqrt(2 * log_terms / moment))
    return np.clip(slope, 1e-250, 1e250)


def _true_moment(observed: Enclosure, bound: Enclosure, log_term: Enclosure) -> Enclosure:
    """Lemma 4: the root of ΣE Z² from the observed ΣZ²."""
    half = bound * (log_term * 0.5).root()
    return half + (observed.positive() + half * half).root()


def bernstein(observed: Enclosure, bound: Floats, log_term: Enclosure) -> Enclosure:
    """Lemma 5."""
    return _true_moment(observed, enclosed(bound), log_term) * (2.0 * log_term).root() + log_term * bound / 3.0


def decay(rate: float) -> Enclosure:
    """e^−y − 1 for a number y above 0 and at most 50: Taylor's series of a part of y, which is then doubled."""
    halvings = max(0, math.ceil(math.log2(rate))) + 1
    y, total = enclosed(rate) * 0.5**halvings, Enclosure(np.zeros(()))
    for n in reversed(range(1, 20)):
        total = -y / float(n) * (1.0 + total)
    total = total * (1.0 + Enclosure(np.zeros(()), 1e-18))  # what the series leaves out is below y^19/20!
    for _ in range(halvings):
        total = total * (total + 2.0)
    return total


def conditional_moment(observed: Enclosure, bound: Enclosure, log_term: Enclosure, rate: float) -> Enclosure:
    """Lemma 4′: ΣE[Z² | past] from the observed ΣZ², or a largest eigenvalue, with y = ``rate``."""
    share = -decay(rate)
    return (observed.positive() * rate + bound * bound * log_term) / share


def best_rate(expected: float, bound: float, log_term: float) -> float:
    """A good rate, in plain floating point: e^y − 1 − y = Lb²/ΣZ², by Newton's method from above."""
    ratio = max(log_term * bound**2 / max(expected, 1e-12 * bound**2 + 1e-300), 1e-12)
    y = min((2 * ratio) ** 0.5, math.log1p(ratio + (2 * ratio) ** 0.5))
    for _ in range(5):
        y -= (math.expm1(y) - y - ratio) / math.expm1(y)
    return min(max(y, 1e-6), 50.0)


def hoeffding_norm(trace: Enclosure, top: float, log_term: Enclosure) -> Enclosure:
    """Lemma 9."""
    return (trace + 2.0 * (trace * top * log_term).root() + 2.0 * log_term * top).root()


Rates = tuple[float, float] | None


def mixed_norm(
    trace: Enclosure, top: float, bound: float, log_term: Enclosure, size: int, scale: Floats, rates: Rates = None
) -> Enclosure:
    """Lemma 6, and 6′ with rates for trace and top."""
    observed = (trace, enclosed(top))
    if rates is None:
        roots = [_true_moment(moment, enclosed(bound), log_term) for moment in observed]
        means = [root * root for root in roots]
    else:
        terms = log_term, log_term + logarithm(float(size))
        each = zip(observed, terms, rates, strict=True)
        means = [conditional_moment(moment, enclosed(bound), term, rate) for moment, term, rate in each]
    total, largest = ((moment + 2.0 * mean) / 3.0 for moment, mean in zip(observed, means, strict=True))
    spread = logarithm(total * scale / float(size) + 1.0)
    return ((largest + 1.0 / enclosed(scale)) * (2.0 * log_term + float(size) * spread)).root()


def norms(lengths: Lengths, log_term: Enclosure, ordered: bool) -> tuple[list[Enclosure], list[float]]:
    """Bounds on the length of a vector's noise, for V̂ and for a fixed function of length 1: observed, and expected.

    Scales and rates are chosen by what was expected.
    """
    observed, expected, L = [], [], float(log_term.middle)
    for (trace, top, longest), moments in zip(lengths.expected, lengths.observed, strict=True):
        rates = None
        if ordered:
            rates = best_rate(trace, longest, L), best_rate(top, longest, L + math.log(lengths.size))
        tried = np.geomspace(0.05, 50.0, 121) / max(top, 1e-300)
        bounds = mixed_norm(enclosed(trace), top, longest, enclosed(L), lengths.size, tried, rates).middle
        best = int(np.argmin(bounds))
        expected.append(float(bounds[best]))
        observed.append(mixed_norm(*moments, log_term, lengths.size, np.array(tried[best]), rates))
    return observed, expected


def whitening(matrix: Floats) -> Floats:
    """The inverse root of a symmetric matrix, its least eigenvalues raised, in plain floating point."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-9 * max(float(values[-1]), 1e-300))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
