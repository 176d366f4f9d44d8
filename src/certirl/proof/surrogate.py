"""What is fixed before fresh data are read: the reward, a guess of its value, and guesses of what every action does.

With π the expert's policy, `used` the actions it takes somewhere, φ the columns and h their harmonics
(`functions.frame`), a surrogate holds P̂_cV̂ and P̂_c(π_d h_j) in the h, and V̂ = Σ_c π_c·(R_c + γ P̂_cV̂). Guesses may be as
poor as they like: fresh data measure their errors. docs/notes/certificate.md has the statement and the proof.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Annotated, NamedTuple

import numpy as np

from certirl.data.policy import Policy
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.functions.frame import CellAxes, Frame, Mesh, frame
from certirl.functions.inequalities import log_term
from certirl.functions.reward import BoundedReward, values_of
from certirl.ground import archive
from certirl.ground.archive import UNSAVED, Shape
from certirl.ground.domain import Array
from certirl.ground.records import Record, internal


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class Surrogate(Record):
    """Everything that is fixed before the fresh data are read; A actions, k columns, m = k·len(used) functions."""

    columns: Basis  # φ; all arrays below are in their harmonics h
    reward: BoundedReward  # R in units
    used: tuple[int, ...]  # the actions that π takes with positive probability somewhere, in order
    discount: float  # γ
    fits: Annotated[Array, Shape("A columns.size")]  # P̂_cV̂ ``[A, k]``
    # P̂_c(π_d h_j) ``[A, m, k]``, functions ordered by d in `used`, then j
    Z: Annotated[Array, Shape("A m columns.size")]
    # functions f_i = Σ mix_i,dj π_d h_j ``[m, m]``, invertible; f_0 = 1, the others by importance
    mix: Annotated[Array, Shape("m m")]
    directions: int  # r, the number of functions whose residuals are multiplied with those of V̂: all but f_0, or none
    # Σ χ Y_cY_d and, unless `pointwise`, Σ χ Σ_i E_c(f_i)E_d(f_i) of training data, per transition, for all pairs of
    # `pairs_of` ``[P, 2 or 1, *wide]``
    noise: Annotated[Array, Shape("P q …")]
    # how the part of δ for the bands is divided among the compared pairs (b, a), the sides of their curves and the
    # points of `mesh`: below the curve, then above it ``[C, 2, N_1, …, N_d]``; they add up to 1
    shares: Annotated[Array, Shape("C 2 …")]
    # low, high: V̂ lies between them
    low: float
    high: float
    # distances to the nearest switch at the points of a grid ``[g_1, …, g_d]``; empty without switches
    marks: Annotated[Array, Shape("…", infinite=True)]
    widths: Annotated[Array, Shape("w")]  # half-widths of the tents 1 − distance/width around the switches ``[w]``
    tent_fits: Annotated[Array, Shape("A w columns.size")]  # P̂_c of the tents ``[A, w, k]``
    # the states where V̂ is highest and lowest on a grid ``[2, d]``
    places: Annotated[Array, Shape("2 columns.dimension")]
    drop: Annotated[Array, Shape("m")]  # π_d h_j at the first of them less at the second ``[m]``
    dropped: float  # the difference of V̂ there
    powers: bool = False  # whether third and fourth powers of the residuals of V̂ are summed, too
    unit: float = 1.0  # a power of two; R and V̂ are those of the user divided by it
    # Σ χ that is expected of the fresh data ``[A, *wide]``, where their rows may depend on each other: it gives the
    # weights of all bounds. None where rows are independent and the fresh states give them
    design: Annotated[Array | None, Shape("A …")] = None
    component: int = 0  # the number of the component that it looks at
    coordinates: tuple[int, ...] | None = None  # of whole states, which it looks at; None for all
    policy: Policy | None = field(default=None, metadata=UNSAVED)  # π; None once read from a file

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.fits)

    @property
    def constant(self) -> bool:
        """Whether the expert takes one action at every state."""
        return len(self.used) == 1

    @property
    def pointwise(self) -> bool:
        """Whether the error of V̂ is bounded at points, which needs no second moments of the f_i; else by its length."""
        return self.noise.shape[1] == 1

    @property
    def frame(self) -> Frame:
        """The harmonics of the columns."""
        return frame(self.columns)

    def pairs(self, paired: bool) -> list[tuple[int, int]]:
        """The pairs of actions c ≤ d whose residuals are multiplied: with itself, or with one that the expert uses."""
        return pairs_of(self.n_actions, self.used, paired)

    def tuples(self, paired: bool) -> list[tuple[int, ...]]:
        """The threes and fours of actions whose residuals of V̂ are multiplied; none unless `powers`."""
        return tuples_of(self.n_actions, self.used, paired) if self.powers else []

    @property
    def compared(self) -> list[tuple[int, int]]:
        """The pairs b < a of actions of which the expert uses one."""
        return [(c, d) for c, d in self.pairs(True) if c != d]

    @property
    def mesh(self) -> Mesh:
        """The points at which bands are computed."""
        return mesh_of(self.columns, len(self.compared))

    @cached_property
    def evaluation(self) -> Evaluation:
        """Evaluates V̂, f_1, …, f_{m−1} and π_d h_j at states."""
        return Evaluation(self)

    def value(self, states: Array) -> Array:
        """V̂ at states ``[n, d]``."""
        return self.evaluation(states)[0][-1]

    def pieces(self, states: Array) -> Array:
        """π_d h_j at states ``[n, d]``: ``[n, m]``."""
        return self.evaluation(states)[1].T

    def expansion(self, fit: Array, action: int) -> tuple[Frame, Array]:
        """R(·, action) + γ·(fit in the harmonics ``[k]``) as one expansion: its harmonics and coefficients.

        For a reward that is an expansion in the family of the columns.
        """
        harmonics, coefficients = self._in_harmonics(self.reward.coefficients(action))
        coefficients[: self.columns.size] += self.discount * fit
        return harmonics, coefficients

    def _in_harmonics(self, alpha: Array) -> tuple[Frame, Array]:
        harmonics = frame(self.columns.resized(max(len(alpha), self.columns.size))._closed())
        return harmonics, harmonics.coefficients(np.pad(alpha, (0, harmonics.size - len(alpha))))

    def paid(self, b: int, a: int) -> Paid:
        """(R_b − R_a)/γ, which is no part of the dynamics and known."""
        reward, columns = self.reward, self.columns
        nothing = Paid.nothing(columns)
        if not reward.of_actions:
            return nothing
        if reward.apart is None:
            alpha = (reward.coefficients(b) - reward.coefficients(a)) / self.discount
            alpha = alpha if alpha[columns.size :].any() else alpha[: columns.size]
            harmonics, coefficients = self._in_harmonics(alpha)
            return nothing._replace(functions=harmonics.columns, curve=coefficients)
        assert reward.slopes is not None
        table = (reward.apart.coefficients[b] - reward.apart.coefficients[a]) / self.discount
        grid = reward.apart.basis
        assert isinstance(grid, Cells)
        return nothing._replace(grid=grid, table=table, slopes=reward.slopes / self.discount)

    def tents(self, states: Array) -> Array:
        """1 at a switch, falling to 0 at each half-width from it ``[w, n]``."""
        if not self.widths.size:
            return np.zeros((0, len(states)))
        return np.maximum(0.0, 1 - self.distances(states) / self.widths[:, None])

    def distances(self, states: Array) -> Array:
        """From the nearest switch, 0 in its cell ``[n]``."""
        return Cells(self.marks.shape).on(self.columns.domain).combined(states, self.marks.ravel())


class Paid(NamedTuple):
    """(R_b − R_a)/γ for a pair of actions: an expansion, and values at the points of a grid."""

    functions: Basis  # of the expansion; they hold the columns
    curve: Array  # its coefficients in their harmonics ``[K]``
    grid: Cells
    table: Array  # the values at its points
    slopes: Array  # how fast what the table stands for changes at most along each coordinate ``[d]``

    @classmethod
    def nothing(cls, columns: Basis) -> Paid:
        """Of a reward that all actions share."""
        grid = Cells((2,) * columns.dimension, (), columns.domain)
        return cls(columns, np.zeros(columns.size), grid, np.zeros(grid.size), np.zeros(columns.dimension))

    @property
    def between(self) -> float:
        """How far the table is from what it stands for at most: half a side of its cells along each coordinate."""
        return float(self.slopes @ self.grid.sides) / 2

    @property
    def size(self) -> float:
        """No smaller than its values."""
        return float(np.abs(self.curve).sum() + np.abs(self.table).max())

    def at(self, states: Array) -> Array:
        """What the table says at states ``[n]``."""
        return self.grid.combined(states, self.table)

    def least(self, sign: float) -> float:
        """The least of ± the table."""
        return float((sign * self.table).min())

    def on_cells(self, cells: CellAxes) -> tuple[Array, Array]:
        """What the table says at the middles of cells, and how far from that it can be within them ``[n_1, …]``."""
        moved = sum(np.ix_(*(slope * half for slope, half in zip(self.slopes, cells.half, strict=True))))
        return self.grid._on_axes(self.table, cells.axes), np.asarray(self.between + moved)


def pairs_of(n_actions: int, used: tuple[int, ...], paired: bool) -> list[tuple[int, int]]:
    """The pairs of actions c ≤ d whose residuals are multiplied; c = d unless states are tried with all actions."""
    every = [(c, d) for c in range(n_actions) for d in range(c, n_actions)]
    return [(c, d) for c, d in every if c == d or (paired and (c in used or d in used))]


def tuples_of(n_actions: int, used: tuple[int, ...], paired: bool) -> list[tuple[int, ...]]:
    """Threes, then fours, of actions in order: of one unless paired, else of used ones and at most one other."""
    every = [chosen for order in (3, 4) for chosen in combinations_with_replacement(range(n_actions), order)]
    return [chosen for chosen in every if len({*chosen} - {*used}) <= 1 and (paired or len({*chosen}) == 1)]


def mesh_of(columns: Basis, compared: int) -> Mesh:
    """The points at which the bands of ``compared`` pairs of actions are computed."""
    return frame(columns).band(log_term(2 * compared, 0.05))


@internal
class Evaluation:
    """Values of f_1, …, f_{m−1} and V̂, and of the functions π_d h_j that they are made of, at states.

    A reward that is an expansion in the family of the columns is evaluated along with their harmonics. Of a pointwise
    surrogate V̂ is evaluated without the f_i.

    Attributes:
        basis: the functions that the reward is an expansion in; None if it is none.
        reached: how many sums of them `totals` returns.
        alone: the f_i and V̂ in harmonics of one coordinate ``[m, K]``, and the number of harmonics, where nothing else
            is needed; else None.
    """

    def __init__(self, surrogate: Surrogate) -> None:
        assert surrogate.policy is not None
        self._reward, self._policy, self._used = surrogate.reward, surrogate.policy, list(surrogate.used)
        self.basis, self._frame, k = surrogate.reward.basis, surrogate.frame, surrogate.columns.size
        self.reached = 0 if self.basis is None else self.basis.size
        self._gain: Array | None = None  # R of each used action in harmonics, one row if all are alike
        self._size = k
        if in_family(surrogate.reward, surrogate.columns):
            differ = self._used if surrogate.reward.of_actions else self._used[:1]
            frames, gains = zip(*(surrogate.expansion(np.zeros(k), action) for action in differ), strict=True)
            self._frame, self._gain = frames[0], np.stack(gains)
        functions = np.vstack([surrogate.mix[1:], surrogate.discount * surrogate.fits[self._used].reshape(1, -1)])
        self.alone: tuple[Array, int] | None = None
        first = -1 if surrogate.pointwise else 0
        if surrogate.constant and self._gain is not None:  # one product serves V̂ and the f_i
            whole = np.zeros((len(functions), self._frame.size))
            whole[:, :k] = functions
            whole[-1] += self._gain[0]
            if self._frame.dimension == 1 and self._policy.constant is not None:
                self.alone = whole, self._frame.narrow[0]
            self._whole = whole[first:]
        self._functions = functions[first:]

    def __call__(self, states: Array) -> tuple[Array, Array, Array]:
        """f_i and V̂ ``[m, n]`` (or V̂ ``[1, n]``), π_d h_j ``[m, n]`` and harmonics ``[K, n]`` at states ``[n, d]``."""
        h = self._frame.of_tables(self._frame.tables(states, self._frame.narrow))
        pieces = h[: self._size]
        if self._policy.constant is None:
            shares = self._policy.probabilities(states)  # compared with the expert's grid, even if one action is used
        if len(self._used) > 1:
            pieces = (shares[:, self._used].T[:, None] * pieces).reshape(-1, len(states))
        if len(self._used) == 1 and self._gain is not None:
            return self._whole @ h, pieces, h
        values = self._functions @ pieces
        if self._gain is not None:
            paid = self._gain @ h
        else:
            differ = self._used if self._reward.of_actions else self._used[:1]
            paid = np.stack([values_of(self._reward, states, action) for action in differ])
        values[-1] += paid[0] if len(paid) == 1 else np.einsum("un,nu->n", paid, shares[:, self._used])
        return values, pieces, h

    def totals(self, states: Array, h: Array) -> Array:
        """Σ ψ_i(s) over each of several sets of states ``[g, n, d]`` for the functions of the reward: ``[g, k_R]``."""
        if self.basis is None:
            return np.zeros((len(states), 0))
        if self._gain is None:
            return np.stack([self.basis._summed(rows) for rows in states])
        return self.totals_of(h.reshape(len(h), len(states), -1).sum(axis=2))

    def totals_of(self, sums: Array) -> Array:
        """The same from sums of harmonics ``[K, g]``, for a reward of the columns' family: ``[g, k_R]``."""
        return np.asarray((self._frame.change @ sums[: self._frame.size])[: self.reached].T)


def expands(reward: BoundedReward, columns: Basis) -> bool:
    """Whether differences of R between actions are expansions in functions that bounds can rest on."""
    if not in_family(reward, columns):
        return False
    alpha = reward.function.coefficients  # type: ignore[union-attr]
    size = int(np.flatnonzero(np.ptp(alpha, axis=0)).max(initial=-1)) + 1
    return size <= columns.size or columns.resized(alpha.shape[-1])._closed().size == alpha.shape[-1]


def in_family(reward: BoundedReward, columns: Basis) -> bool:
    """Whether R is an expansion in the family of the columns, on their domain."""
    basis = reward.basis
    return basis is not None and columns.resized(basis.size) == basis
