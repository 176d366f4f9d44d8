"""What claims rest on: functions, guesses and sums over fresh data, and what none of these can be.

The notation is that of docs/notes/certificate.md, sections 1 to 9. Nothing here is shared with the code that made them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from certirl_check.claims import SEPARATE, LikelyClaim, failed, short
from certirl_check.enclosures import (
    Enclosure,
    Floats,
    enclosed,
    inverse,
    joined,
    least_eigenvalue,
    stacked,
    top_eigenvalue,
)
from certirl_check.harmonics import Cells, Functions, Grid
from certirl_check.reading import Expert
from certirl_check.records import RELATIVE, TIGHT, DamagedError, ImpossibleError, Record, TooLittleError, reward_of

# How δ is spent on the statements of the theorem, by whether the expert takes one action.
SHARES = {
    True: {"band": 0.85, "size of the error": 0.15},
    False: {"band": 0.8, "size of the error": 0.15, "regret": 0.05},
}
_STRETCH, _BLOCK = 8192, 512  # no sum over data had more additions within a block, or smaller blocks


class Paid(NamedTuple):
    """(R_b − R_a)/γ for a pair of actions, which is known: an expansion, and values at the points of a grid."""

    functions: Functions  # of the expansion; they hold the columns
    curve: Enclosure  # in their harmonics [K]
    table: Grid
    values: Enclosure  # at the points of the table
    slopes: Floats  # how fast what the table stands for changes at most along each coordinate [d]

    @classmethod
    def nothing(cls, columns: Functions) -> Paid:
        """Of a reward that all actions share."""
        d, zeros = columns.dimension, np.zeros(2**columns.dimension)
        table = Grid((2,) * d, (False,) * d, columns.box)
        return cls(columns, enclosed(np.zeros(columns.size)), table, enclosed(zeros), np.zeros(d))

    @property
    def between(self) -> float:
        """How far the table is from what it stands for at most, and its rounding."""
        rounded = 2.0**-44 * float(self.values.size.max()) + float(self.values.radius.max())
        return float(self.slopes @ self.table.sides) / 2 * (1 + 1e-12) + rounded

    def least(self, sign: float) -> float:
        """The least of ± the table."""
        return float((self.values * sign).below.min())

    def on_cells(self, cells: Cells) -> tuple[Floats, Floats]:
        """What the table says at the middles of cells, and how far from that it can be in them ``[n_1, …, n_d]``."""
        moved = sum(np.ix_(*(slope * half for slope, half in zip(self.slopes, cells.halves, strict=True))))
        return self.table.on_axes(self.values.middle, cells.middles), self.between + np.asarray(moved) * (1 + 1e-12)


class Sums:
    """Sums over fresh transitions for one component of the state; names as in a file."""

    ordered = False

    def __init__(self, record: Record, name: str, fixed: Record, sums: Record) -> None:
        self.name, self.columns, self.tail = name, fixed.functions("columns"), record.tail()
        self.coordinates = None if fixed.entry("coordinates") is None else fixed.wholes("coordinates")
        if self.columns.dimension > 3 or not self.columns.closed:
            raise ImpossibleError(f"{self.columns} are no functions that bounds can rest on")
        self.counts = sums.array("counts", (None,), "iu").astype(float)
        if len(self.counts) < 2:
            raise DamagedError(f"counts should be of two actions or more, got {len(self.counts)}")
        self.actions, self.paired = len(self.counts), sums.flag("paired")
        self.gram = self.design = sums.array("gram", (self.actions, *self.columns.wide))

    @cached_property
    def grams(self) -> Enclosure:
        """Σ h hᵀ of each action ``[A, k, k]``."""
        return self.columns.lifted(self.gram)

    @cached_property
    def precision(self) -> Enclosure:
        """The inverses of the Gram matrices ``[A, k, k]``."""
        return stacked([inverse(self.grams[c]) for c in range(self.actions)])

    @cached_property
    def expected_grams(self) -> Enclosure:
        """Σ h hᵀ from which the weights of bounds come: as fixed beforehand, or observed ``[A, k, k]``."""
        return self.columns.lifted(self.design) if self.ordered else self.grams

    @cached_property
    def expected_precision(self) -> Enclosure:
        """Their inverses ``[A, k, k]``."""
        return (
            stacked([inverse(self.expected_grams[c]) for c in range(self.actions)]) if self.ordered else self.precision
        )

    @cached_property
    def condition(self) -> float:
        """The largest condition number of a Gram matrix; TooLittleError if one may be singular."""
        every = joined([self.grams, *[self.expected_grams] * self.ordered])
        ends = [(least_eigenvalue(every[c]), top_eigenvalue(every[c])) for c in range(len(every))]
        if min(low for low, _ in ends) <= 0:
            raise TooLittleError("a Gram matrix is not positive definite: the states cannot tell the functions apart")
        return max(high / low for low, high in ends)

    @property
    def rounding(self) -> float:
        """What floating point can have done to a sum over data, as a share of its terms (section 15)."""
        return float((_STRETCH + self.counts.max() / _BLOCK + 2 * max(self.columns.wide) ** 2) * 2.0**-52)

    def contradictions(self) -> list[str]:
        """What sums over data cannot be."""
        flat, n = self.gram.reshape(self.actions, -1), self.counts[:, None]
        bounded = (np.abs(flat[:, :1] - n) <= TIGHT * n).all() and (np.abs(flat) <= n * (1 + TIGHT)).all()
        same = (flat == flat[0]).all() and (n == n[0]).all()
        return failed(
            (bounded, "the Gram matrix of an action is not one of as many states"),
            (same or not self.paired, "paired actions have different states"),
        )

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


class SumsClaim(LikelyClaim):
    """A claim that rests on the sums of its components, its parts."""

    def __init__(self, record: Record, solution: Record | None, parts: Sequence[Sums]) -> None:
        super().__init__(record, solution)
        self.parts = parts
        if not parts or any(part.actions != parts[0].actions for part in parts):
            raise DamagedError("grounds should be those of one component or more, with the same actions")

    def contradictions(self) -> list[str]:
        """What neither δ nor the sums of the components can be, each by itself and together."""
        parts, wrong = self.parts, super().contradictions()
        for part in parts:
            prefix = f"component {part.name}: " if len(parts) > 1 else ""
            wrong += [prefix + sentence for sentence in part.contradictions()]
        coordinates = [c for part in parts for c in part.coordinates or ()]
        fits = all(len(part.coordinates or ()) == part.columns.dimension for part in parts)
        apart = fits and len(set(coordinates)) == len(coordinates)
        alike = [part.paired == parts[0].paired and (part.counts == parts[0].counts).all() for part in parts]
        alone = [part.coordinates for part in parts] == [None]
        return wrong + failed(
            (alone or apart, "the components are not groups of different coordinates"),
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


class Ground(Sums):
    """What was fixed beforehand and the sums over fresh data of one component of a certificate; names as in a file."""

    def __init__(self, record: Record) -> None:
        s, e = record.record("surrogate", "Surrogate"), record.record("evidence", "Evidence")
        super().__init__(record, record.text("name"), s, e)
        A, k, wide, d = self.actions, self.columns.size, self.columns.wide, self.columns.dimension
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
        self.powers, self.ordered = s.flag("powers"), s.entry("design") is not None
        self.constant = len(self.used) == 1  # the expert takes one action everywhere
        self.expert = Expert.of_action(self.columns.box, self.used[0], A)  # who takes the first of the used actions
        self.pointwise = self.noise.shape[1] == 1  # the error of V̂ is bounded at points, without moments of the f_i
        self.compared = [(b, a) for b, a in self.pairs(True) if b != a]  # of which the expert uses one
        self.tau = self.tail or 0.0
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
        self.higher = e.array("powers", (len(self.tuples), *self.columns.wider)) if self.powers else np.zeros((0, 1))
        if (e.entry("powers") is not None) != self.powers:
            raise DamagedError("higher powers are summed if they were asked for, and only then")
        self.operator_residuals = e.array("operator_residuals", (A, m, k))
        self.operator_moments = e.array("operator_moments", (0 if self.pointwise else observed, *wide))
        self.visits, self.visit_moments = e.array("visits", (A, w, k)), e.array("visit_moments", (A, w, *wide))
        self.reached = e.array("reached", (A, self.reward.coefficients.shape[-1]))
        apart = self.reward.apart
        told = [self.reward.coefficients] * (self.reward.coefficients.ndim == 2)
        told += [] if apart is None else [apart.coefficients]
        if any(np.shape(rows)[:-1] != (A,) for rows in told):
            raise DamagedError(f"the reward should be that of {A} actions")
        if apart is not None and apart.basis is not None and apart.basis.box != self.columns.box:
            raise DamagedError(f"the reward of actions should be told apart on {self.columns.domain}")
        self.low, self.high = self._value_range(s.number("low"), s.number("high"))

    @property
    def expected_counts(self) -> Floats:
        """How many transitions of each action were expected ``[A]``: the sum of the constant harmonic."""
        return np.asarray(self.design.reshape(self.actions, -1)[:, 0]) if self.ordered else self.counts

    def _tuples(self) -> list[tuple[int, ...]]:
        """Threes, then fours, of actions whose residuals are multiplied: of one, or of used ones and one other."""
        every = [t for n in (3, 4) for t in combinations_with_replacement(range(self.actions), n)]
        return [t for t in every if len({*t} - {*self.used}) <= 1 and (self.paired or len({*t}) == 1)]

    def pairs(self, paired: bool) -> list[tuple[int, int]]:
        """c ≤ d whose residuals are multiplied."""
        every = [(c, d) for c in range(self.actions) for d in range(c, self.actions)]
        return [(c, d) for c, d in every if c == d or (paired and (c in self.used or d in self.used))]

    def part(self, name: str) -> float:
        """A part of δ, rounded down."""
        return SHARES[self.constant][name] * self.delta * (1 - 1e-15)

    def _value_range(self, low: float, high: float) -> tuple[float, float]:
        """Bounds on V̂, at least as wide as those in the file; ImpossibleError if the file has others."""
        least, most = self._derived_range()
        room = RELATIVE * (most - least) + 2.0**-46 * max(abs(least), abs(most))  # sums of dozens of roundings
        room += 1e-290  # and of underflow, where V is 0: actions differ by what they pay alone
        if not (abs(least - low) <= room and abs(most - high) <= room):
            derived = f"from {short(self.unit * least, 6)} to {short(self.unit * most, 6)}"
            stated = f"from {short(self.unit * low, 6)} to {short(self.unit * high, 6)}"
            values = f"the reward and the guesses of the file have values V {derived}"
            raise ImpossibleError(f"{values}, but the sums were made with a V {stated}")
        return min(least, low), max(most, high)

    def _derived_range(self) -> tuple[float, float]:
        """Bounds on V̂ = Σ π_d (R_d + γ fits_d·h): of the sum where R is an expansion like the fits, else of each."""
        gamma = enclosed(self.discount)
        if (expansion := self._expansion) is not None:
            wide = expansion if expansion.size >= self.columns.size else self.columns
            if wide.closed:
                R, fit = np.zeros(wide.size), np.zeros(wide.size)
                R[: expansion.size] = self.reward.row(self.used[0])
                fit[: self.columns.size] = self.fits[self.used[0]]
                return wide.bounds(Enclosure(R) @ wide.change + gamma * fit)
        low, high = self.reward.range(self.used)
        ends = [self.columns.bounds(enclosed(self.fits[d])) for d in self.used]
        least, most = min(end for end, _ in ends), max(end for _, end in ends)
        return float((enclosed(low) + gamma * least).below), float((enclosed(high) + gamma * most).above)

    @property
    def _expansion(self) -> Functions | None:
        """The reward's functions where V̂ is one expansion: those of an expert of one action, in the columns' order."""
        basis = self.reward.basis
        return basis if self.constant and isinstance(basis, Functions) and basis.kin(self.columns) else None

    def paid(self, b: int, a: int) -> Paid:
        """(R_b − R_a)/γ."""
        columns, reward, nothing = self.columns, self.reward, Paid.nothing(self.columns)
        gamma = enclosed(self.discount)
        if reward.apart is not None:
            grid, values = reward.apart.basis, reward.apart.coefficients
            assert isinstance(grid, Grid)
            difference = (Enclosure(values[b]) - values[a]) / gamma
            return nothing._replace(table=grid, values=difference, slopes=(reward.slopes / gamma).above)
        if reward.coefficients.ndim == 1:
            return nothing
        basis = reward.basis
        if not isinstance(basis, Functions):
            raise ImpossibleError("what the actions pay is neither an expansion nor told apart at the points of a grid")
        alpha = reward.row(b) - reward.row(a)
        size = max(int(np.flatnonzero(alpha).max(initial=-1)) + 1, columns.size)
        functions = columns if size == columns.size else basis
        if not basis.kin(columns) or not functions.closed:
            raise ImpossibleError(f"what the actions pay is no expansion in the family of {columns}")
        alpha = np.pad(alpha, (0, max(functions.size - len(alpha), 0)))[: functions.size]
        of_rounding = np.pad(np.abs(reward.row(b)), (0, max(functions.size - basis.size, 0)))[: functions.size]
        coefficients = Enclosure(alpha, of_rounding * 2.0**-52) @ functions.change / gamma
        return nothing._replace(functions=functions, curve=coefficients)

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
        first = (slice(None),) + (0,) * len(self.columns.wide)
        square = self.residual_moments[diagonal][first]
        # Σ x_i f is at most √(n Σ f²), as no x_i exceeds 1, but for rounding: of a next state that is always the same
        # all residuals are of that size.
        rounding = (2.0**-44 * self.counts * (abs(self.low) + abs(self.high))) ** 2
        sizes = [((self.residuals**2).max(axis=1) - rounding, square)]
        if not self.pointwise:
            mixed = ((self.mix[1:] @ self.operator_residuals) ** 2).sum(axis=1).max(axis=1, initial=0.0)
            rounding = (2.0**-44 * self.counts * np.abs(self.mix).sum(axis=1).max()) ** 2
            sizes.append((mixed - rounding, self.operator_moments[diagonal][first]))
        for w in range(len(self.widths)):
            rounding = (2.0**-44 * self.counts) ** 2
            sizes.append(((self.visits[:, w] ** 2).max(axis=1) - rounding, self.visit_moments[:, w][first]))
        if self.powers:
            cubes, fourths = (self._of_one(n) for n in (3, 4))
            sizes += [(cubes**2 / self.counts, square * fourths / self.counts), (square**2 / self.counts, fourths)]
        small = [(square <= self.counts * moment * (1 + TIGHT) + 1e-290).all() for square, moment in sizes]
        constant = np.zeros(self.Z.shape[1])
        constant[::k] = 1.0
        moved = np.abs(self.Z[:, ::k].sum(axis=1) - np.eye(k)[0]).max()
        kept = np.abs(self.operator_residuals[:, ::k].sum(axis=1)).max()
        most = TIGHT * self.counts.max() * (1 + np.abs(self.Z).sum(axis=2).max())
        right = self.low <= self.high and (self.widths > 0).all()
        whole = (self.shares >= 0).all() and shares <= 1 + TIGHT
        wrong = super().contradictions() + failed(
            (not (self.ordered and self.paired), "rows that depend on each other are paired"),
            (all(small), "the residuals of an action are larger than their second moments allow"),
            (moved <= TIGHT * (1 + np.abs(self.Z).max()), "an operator moves constants"),
            (kept <= most, "constants have residuals"),
            ((self.mix[0] == constant).all(), "the first of the functions of which the error is made is not constant"),
            (whole, f"the shares of the points add up to {short(shares, 6)}, not to 1 at most"),
            (right, "V's bounds are the wrong way round, or a tent has no width"),
        )
        return wrong + self._other_reward()

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
        wrong = self._other_apart()
        x, fits = self.grams.middle[:, 0], self.fits[list(self.used)].ravel()
        pieces = self.operator_residuals[:, :, 0] + np.einsum("cmk,ck->cm", self.Z, x)  # Σ π_d h_j over next states
        first, paid = reward.row(self.used[0]), [self.paid(d, self.used[0]) for d in self.used]
        beyond = reward.apart is not None or any(own.functions.size > self.columns.size for own in paid)
        if beyond and len(paid) > 1:
            return wrong  # what is paid at next states does not follow from the sums
        fits = fits + np.concatenate([own.curve.middle for own in paid])
        guessed = self.discount * pieces @ fits - np.einsum("ck,ck->c", self.fits, x)
        sums = self.reached @ first + guessed
        size = np.abs(self.reached) @ np.abs(first)
        size += self.counts * (np.abs(fits).sum() + np.abs(self.fits).sum(axis=1))
        follows = np.abs(sums - self.residuals[:, 0]) <= TIGHT * size
        wrong += [f"the sums of action {c} were made with another reward" for c in np.flatnonzero(~follows)]
        if self._expansion is not None:
            same, change = min(self.columns.size, basis.size), self.columns.change
            apart = np.abs((pieces @ change.middle.T)[:, :same] - self.reached[:, :same]).max()
            agree = apart <= TIGHT * self.counts.max() * change.size.sum()
            wrong += failed((agree, "the sums over next states contradict each other"))
        return wrong

    def _other_apart(self) -> list[str]:
        """Whether the table of what actions pay is another than that of a reward in the file."""
        reward, basis = self.reward, self.reward.basis
        if reward.apart is None or basis is None:
            return []
        grid, values = reward.apart.basis, reward.apart.coefficients
        assert isinstance(grid, Grid)
        rows = np.stack([basis.values(reward.row(c), grid.points) for c in range(self.actions)])
        room = TIGHT * float(np.abs(rows).max())
        same = np.abs(rows - rows[0] - (values - values[0])).max() <= room
        steep = basis.steepest(reward.coefficients) if isinstance(basis, Grid) else grid.steepest(rows)
        return failed(
            (same, "actions pay otherwise than by the reward of the file"),
            ((reward.slopes >= steep - room / grid.sides).all(), "differences of the reward change faster than stated"),
        )
