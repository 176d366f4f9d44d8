"""Programs over many components: rows for each component alone, and one sum over components for each rival.

    x_j·g_r ≥ m_ja for every row r of component j and rival a,      Σ_j m_ja ≥ 1 for every rival a.

Components meet in the A − 1 sums alone, so that one step of a solver costs as much as all components by themselves. As
in `program`, answers carry a weight λ_r ≥ 0 for every row; for every rival they add up to the same ν_a in each
component, and Σ_r λ_r g_r = 0 in every component proves that there is no solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.fit.program import VANISHING
from certirl.ground.domain import Array

STEPS = 80  # of the interior-point method; it takes about fifteen
GAP = 1e-10  # at which it stops, for solutions of length about 1
STEADY = 1e-13  # added to the diagonal: a rival that decides nothing leaves its m_ja undetermined
ACCURATE = 1e-7  # the duality gap that is called optimal, relative to the objective


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of all components, those of a component together.

    Attributes:
        values: g_r, with zeros up to the largest component's size ``[m, k]``.
        component, rival: whose they are ``[m]``; components ascend, and every pair has a row.
    """

    values: Array
    component: NDArray[np.intp]
    rival: NDArray[np.intp]

    @property
    def components(self) -> int:
        """J."""
        return int(self.component[-1]) + 1

    @property
    def rivals(self) -> int:
        """A − 1."""
        return int(self.rival.max()) + 1

    def products(self, x: Array) -> Array:
        """x_j·g_r for ``x [J, k]``: ``[m]``."""
        return np.einsum("mk,mk->m", self.values, x[self.component])

    def lowest(self, x: Array) -> Array:
        """The least x_j·g_r of every component and rival ``[J, A − 1]``."""
        found = np.full((self.components, self.rivals), np.inf)
        np.minimum.at(found, (self.component, self.rival), self.products(x))
        return found

    def combined(self, weights: Array) -> Array:
        """Σ_r λ_r g_r in every component: ``[J, k]``."""
        return np.add.reduceat(weights[:, None] * self.values, self.starts, axis=0)

    @property
    def starts(self) -> NDArray[np.intp]:
        """Where each component begins."""
        return np.searchsorted(self.component, np.arange(self.components))


@dataclass(frozen=True, eq=False)
class BlockAnswer:
    """What a program says.

    Attributes:
        status: "optimal", "infeasible" or "failed".
        x: ``[J, k]``, scaled so that the sums are at least 1; None unless optimal.
        weights: λ ``[m]``, Σ_a ν_a = 1; zeros if failed.
    """

    status: str
    x: Array | None
    weights: Array


def least_norm(rows: Rows, guess: float | None = None) -> BlockAnswer:
    """The x that minimises Σ_j‖x_j‖² with all sums at least 1.

    One more unknown t makes it a problem that always has a solution: Σ_j m_ja + t ≥ 1 at the price Ct²/2. Everything
    but t scales with the margin, so the direction of x is the same for every C > 0, and x vanishes exactly when there
    is no solution (the trick of Lawson and Hanson's chapter 23). In units where ‖x‖ is about 1, C = 1 keeps all digits;
    these units are found on the way.

    Args:
        rows: the constraints.
        guess: ‖x‖ of a similar program.
    """
    scale = guess or float(np.sqrt(rows.components)) / (float(np.linalg.norm(rows.values, axis=1).max()) or 1.0)
    first, nothing = scale, np.zeros(len(rows.values))
    for _ in range(6):
        weights = _balanced(rows, _interior_point(Rows(rows.values * scale, rows.component, rows.rival)))
        x = rows.combined(weights)  # at the solution x is a multiple of this
        hull, margin = float(np.linalg.norm(x)), float(rows.lowest(x).sum(axis=0).min())
        if hull * first < VANISHING:
            return BlockAnswer("infeasible", None, weights)
        # For every solution 1 ≤ x·(Σλg) ≤ ‖x‖·hull: weights bound the objective from below, x from above.
        if hull * hull < (1 + ACCURATE) * margin:
            return BlockAnswer("optimal", x / margin, weights)
        scale = 1 / hull
    return BlockAnswer("failed", None, nothing)


def _balanced(rows: Rows, weights: Array) -> Array:
    """Weights that add up to the same ν_a in every component, to rounding, and to 1 over the rivals."""
    sums = np.zeros((rows.components, rows.rivals))
    np.add.at(sums, (rows.component, rows.rival), weights)
    shares = sums.mean(axis=0) / sums.mean(axis=0).sum()
    return weights * (shares / np.maximum(sums, 1e-300))[rows.component, rows.rival]


def _interior_point(rows: Rows) -> Array:
    """min ½Σ‖x_j‖² + ½t² s.t. x_j·g_r ≥ m_ja and Σ_j m_ja + t ≥ 1, by Mehrotra's predictor and corrector.

    Returns the weights of the rows ``[m]``; x_j is their combination.
    """
    wide, real = _side_by_side(rows)
    J, M, q = wide.shape
    B, k = rows.rivals, q - rows.rivals
    own, t = np.zeros((J, q)), 3.0
    own[:, k:] = -1 / J
    slack, sums = np.full((J, M), 1 / J), np.ones(B)
    per_pair = np.einsum("jmb,jm->jb", -wide[:, :, k:], real)
    dual = real * np.einsum("jmb,jb->jm", -wide[:, :, k:], 3.0 / B / per_pair)
    nu, hessian = np.full(B, 3.0 / B), np.append(np.ones(k), np.zeros(B))
    slack[~real], dual[~real] = 1.0, 0.0
    best, count = (np.inf, dual), int(real.sum()) + B
    for _ in range(STEPS):
        stationary = hessian * own - np.einsum("jm,jmq->jq", dual, wide)
        stationary[:, k:] -= nu
        primal = np.where(real, np.einsum("jmq,jq->jm", wide, own) - slack, 0.0)
        residual = _Residual(stationary, primal, t - nu.sum(), own[:, k:].sum(axis=0) + t - 1 - sums)
        gap = float((slack * dual).sum() + sums @ nu)
        error = max(gap, residual.size)
        if error < best[0]:
            best = (error, dual)
        if error < GAP or gap < 1e-3 * GAP or error > 10 * best[0]:  # solved, or rounding has taken over
            break
        system = _System(wide, real, hessian, slack, dual, sums, nu)
        ahead = system.step(residual, slack * dual, sums * nu)
        reach = _length((slack, dual, sums, nu), ahead[2:])
        after = [value + reach * move for value, move in zip((slack, dual, sums, nu), ahead[2:], strict=True)]
        centre = (float((after[0] * after[1]).sum() + after[2] @ after[3]) / gap) ** 3 * gap / count
        aim = np.where(real, slack * dual + ahead[2] * ahead[3] - centre, 0.0)
        step = system.step(residual, aim, sums * nu + ahead[4] * ahead[5] - centre)
        reach = 0.995 * _length((slack, dual, sums, nu), step[2:])
        own, t, slack, dual, sums, nu = (
            value + reach * move for value, move in zip((own, t, slack, dual, sums, nu), step, strict=True)
        )
    return best[1][real]


def _side_by_side(rows: Rows) -> tuple[Array, NDArray[np.bool_]]:
    """The rows in the unknowns (x_j, m_j), equally many of each component ``[J, M, k + A − 1]``; which are real."""
    place = np.arange(len(rows.values)) - rows.starts[rows.component]
    shape = (rows.components, int(place.max()) + 1)
    wide, real = np.zeros((*shape, rows.values.shape[1] + rows.rivals)), np.zeros(shape, dtype=bool)
    wide[rows.component, place] = np.hstack([rows.values, -np.eye(rows.rivals)[rows.rival]])
    real[rows.component, place] = True
    return wide, real


def _length(values: tuple[Array, ...], moves: tuple[Array, ...]) -> float:
    """The longest step, at most 1 after shortening, that leaves all of them positive."""
    longest = 1 / 0.995
    for value, move in zip(values, moves, strict=True):
        falling = move < 0
        longest = min(longest, float((value[falling] / -move[falling]).min(initial=longest)))
    return longest


@dataclass(frozen=True, eq=False)
class _Residual:
    """By how much the conditions of optimality are missed: slopes in (x, m), rows, the slope in t, sums."""

    stationary: Array
    primal: Array
    slope: float
    sums: Array

    @property
    def size(self) -> float:
        parts = (self.stationary, self.primal, self.sums, self.slope)
        return max(float(np.abs(part).max()) for part in parts)


class _System:
    """The Newton equations: a small system for each component, and one that joins them for the sums.

    Slopes and weights are both kept as unknowns: eliminating either would lose the digits that the last steps need.
    """

    def __init__(
        self,
        wide: Array,
        real: NDArray[np.bool_],
        hessian: Array,
        slack: Array,
        dual: Array,
        sums: Array,
        nu: Array,
    ) -> None:
        (J, M, q), B = wide.shape, len(nu)
        self.real, self.slack, self.sums, self.nu, self.q, self.k = real, slack, sums, nu, q, q - B
        self.dual = np.where(real, dual, 1.0)
        self.matrix = np.zeros((J, q + M, q + M))
        self.matrix[:, :q, :q] = np.diag(hessian + STEADY)
        self.matrix[:, :q, q:] = -wide.transpose(0, 2, 1)
        self.matrix[:, q:, :q] = wide
        places = np.arange(q, q + M)
        self.matrix[:, places, places] = slack / self.dual
        self.wide = wide

    def step(self, residual: _Residual, aim: Array, aim_sums: Array) -> tuple[Any, ...]:
        """The changes of (x, m), t, slacks, weights, the sums' slacks and ν that bring products to products − aim."""
        q, k, B = self.q, self.k, len(self.nu)
        right = np.zeros((*self.matrix.shape[:2], 1 + B))
        right[:, :q, 0] = -residual.stationary
        right[:, q:, 0] = -aim / self.dual - residual.primal
        right[:, k:q, 1:] = np.eye(B)
        found = np.linalg.solve(self.matrix, right)
        margins = found[:, k:q].sum(axis=0)
        joint = np.diag(self.sums / self.nu) + margins[:, 1:] + 1.0
        nu = np.linalg.solve(joint, -aim_sums / self.nu - residual.sums - margins[:, 0] + residual.slope)
        both = found[:, :, 0] + found[:, :, 1:] @ nu
        own, dual, t = both[:, :q], np.where(self.real, both[:, q:], 0.0), float(nu.sum() - residual.slope)
        slack = np.where(self.real, np.einsum("jmq,jq->jm", self.wide, own) + residual.primal, 0.0)
        return own, t, slack, dual, own[:, k:].sum(axis=0) + t + residual.sums, nu


class BlockLinearProgram:
    """``min Σ_j‖x_j‖₁`` with all sums at least 1, in HiGHS; new rows start from the last basis.

    Args:
        sizes: the number of unknowns of each component.
        rivals: A − 1.
        scale: a typical size of the rows.
    """

    def __init__(self, sizes: Sequence[int], rivals: int, scale: float) -> None:
        import highspy

        self._sizes, self._rivals, self._scale, self._inf = list(sizes), rivals, scale or 1.0, highspy.kHighsInf
        self._first = np.concatenate([[0], np.cumsum([2 * size + rivals for size in sizes])])
        self._solver = solver = highspy.Highs()  # type: ignore[no-untyped-call]
        options: dict[str, Any] = {"output_flag": False, "presolve": "off", "threads": 1}
        for option, value in options.items():
            solver.setOptionValue(option, value)
        for option in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            solver.setOptionValue(option, 1e-9)
        for size in sizes:
            for _ in range(2 * size):  # x = x⁺ − x⁻
                solver.addCol(1.0, 0.0, self._inf, 0, [], [])
            for _ in range(rivals):
                solver.addCol(0.0, -self._inf, self._inf, 0, [], [])
        for rival in range(rivals):
            columns = self._first[:-1] + 2 * np.array(sizes) + rival
            solver.addRow(1.0, self._inf, len(columns), columns.astype(np.int32), np.ones(len(columns)))

    def add(self, component: int, rival: int, rows: Array) -> None:
        """Add rows ``[m, k_j]`` of one component and rival."""
        size, first = self._sizes[component], int(self._first[component])
        columns = np.append(np.arange(first, first + 2 * size), first + 2 * size + rival).astype(np.int32)
        for row in rows / self._scale:
            self._solver.addRow(0.0, self._inf, len(columns), columns, np.concatenate([row, -row, [-1.0]]))

    def solve(self) -> tuple[str, list[Array]]:
        """The status and x_j of every component."""
        self._solver.run()
        status = self._solver.modelStatusToString(self._solver.getModelStatus())
        if status != "Optimal":
            return ("infeasible" if status == "Infeasible" else "failed"), []
        values = np.array(self._solver.getSolution().col_value)
        parts = zip(self._first, self._sizes, strict=False)
        return "optimal", [
            (values[first : first + size] - values[first + size : first + 2 * size]) / self._scale
            for first, size in parts
        ]
