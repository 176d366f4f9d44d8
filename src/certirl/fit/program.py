"""Programs behind a reward: rows of one or of several components in, coefficients and row weights out.

    x_j·g_r ≥ m_ja for every row r of component j and alternative action a,      Σ_j m_ja ≥ 1 for every a.

A program seeks the coefficients x_j that are least in some sense. With one component m_a = 1, and rows read x·g_r ≥ 1.
Rows can be added between solves. Every answer carries weights λ_r ≥ 0, one for each row: of the rows that are active at
the solution or, if there is none, of a combination Σ_r λ_r g_r = 0 in every component that proves it (Farkas).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array
from certirl.ground.records import Record

# Rows are scaled to length about 1 before solving; a positive combination shorter than this is called zero.
VANISHING = 1e-9
GAP = 1e-11  # at which the program over components stops, for solutions of length about 1
CLOSEST = 1e-6  # slopes at the answer of a least-squares problem, relative to the lengths of column and goal
ACCURATE = 1e-7  # the duality gap that is called optimal, relative to the objective


@dataclass(frozen=True, eq=False)
class Rows(Record):
    """Rows of all components, in the order of adding.

    Attributes:
        values: g_r, padded with zeros to the size of the largest component ``[m, k]``.
        component, alternative: to which each row belongs ``[m]``.
    """

    values: Array
    component: NDArray[np.intp]
    alternative: NDArray[np.intp]

    @classmethod
    def empty(cls, size: int) -> Rows:
        """No rows yet."""
        nothing = np.zeros(0, dtype=np.intp)
        return cls(np.zeros((0, size)), nothing, nothing)

    def with_rows(self, component: int, alternative: int, values: Array) -> Rows:
        """The same and rows ``[m, k_j]`` of one component and alternative action."""
        padded = np.pad(values, ((0, 0), (0, self.values.shape[1] - values.shape[1])))
        places = [np.full(len(values), index, dtype=np.intp) for index in (component, alternative)]
        return Rows(
            np.concatenate([self.values, padded]),
            np.concatenate([self.component, places[0]]),
            np.concatenate([self.alternative, places[1]]),
        )

    @property
    def components(self) -> int:
        """J."""
        return int(self.component.max()) + 1

    @property
    def alternatives(self) -> int:
        """A − 1."""
        return int(self.alternative.max()) + 1

    def products(self, x: Array) -> Array:
        """x_j·g_r for ``x [J, k]``: ``[m]``."""
        return np.einsum("mk,mk->m", self.values, x[self.component])

    def lowest(self, products: Array) -> Array:
        """The least of numbers ``[m]`` for every component and alternative action ``[J, A − 1]``."""
        least = np.full((self.components, self.alternatives), np.inf)
        np.minimum.at(least, (self.component, self.alternative), products)
        return least

    def combined(self, weights: Array) -> Array:
        """Σ_r λ_r g_r in every component: ``[J, k]``."""
        sums = np.zeros((self.components, self.values.shape[1]))
        np.add.at(sums, self.component, weights[:, None] * self.values)
        return sums


@dataclass(frozen=True, eq=False)
class Answer(Record):
    """The answer of a program.

    Attributes:
        status: "optimal", "infeasible" or "failed" (the solver gave up; nothing is known).
        x: the coefficients of every component ``[k_j]``; None unless optimal.
        weights: λ ``[m]``, one for each row in the order of adding.
        slack: by how much each row falls short ``[m]``; zeros in a hard program.
    """

    status: str
    x: tuple[Array, ...] | None
    weights: Array
    slack: Array


class LinearProgram:
    """``min Σ_j‖x_j‖₁`` by HiGHS; new rows start from the last basis.

    Args:
        sizes: the number of coefficients of each component.
        alternatives: A − 1.
        slack: with one component, the price per unit by which a row may fall short; None forbids it.
    """

    def __init__(self, sizes: Sequence[int], alternatives: int = 1, *, slack: float | None = None) -> None:
        import highspy

        self.rows = Rows.empty(max(sizes))
        self._sizes, self._alternatives, self._slack = list(sizes), alternatives, slack
        self._scale, self._infinity, self._joint = 0.0, highspy.kHighsInf, len(sizes) > 1
        margins = alternatives if self._joint else 0  # with one component m_a = 1 is no unknown
        self._first = np.concatenate([[0], np.cumsum([2 * size + margins for size in sizes])])
        self._solver = solver = highspy.Highs()  # type: ignore[no-untyped-call]
        options: dict[str, Any] = {
            "output_flag": False,
            "presolve": "off",  # keeps the basis for the next round
            "primal_feasibility_tolerance": 1e-9,
            "dual_feasibility_tolerance": 1e-9,
            "threads": 1,
        }
        for option, value in options.items():
            solver.setOptionValue(option, value)
        for size in sizes:
            for _ in range(2 * size):  # x = x⁺ − x⁻
                solver.addCol(1.0, 0.0, self._infinity, 0, [], [])
            for _ in range(margins):
                solver.addCol(0.0, -self._infinity, self._infinity, 0, [], [])
        for alternative in range(margins):
            columns = self._first[:-1] + 2 * np.array(sizes) + alternative
            solver.addRow(1.0, self._infinity, len(columns), columns.astype(np.int32), np.ones(len(columns)))

    def add(self, component: int, alternative: int, rows: Array) -> None:
        """Add rows ``[m, k_j]`` of one component and alternative action."""
        self._scale = self._scale or float(np.abs(rows).max(initial=0.0)) or 1.0
        size, first = self._sizes[component], int(self._first[component])
        columns, bound = np.arange(first, first + 2 * size, dtype=np.int32), 1.0
        ends = np.zeros((len(rows), 0))
        if self._joint:
            columns, bound = np.append(columns, np.int32(first + 2 * size + alternative)), 0.0
            ends = np.full((len(rows), 1), -1.0)
        for row, end in zip(rows / self._scale, ends, strict=True):
            values, places = np.concatenate([row, -row, end]), columns
            if self._slack is not None:
                price = self._slack * self._scale  # the coefficients are in units of 1/scale, and so is their cost
                self._solver.addCol(price, 0.0, self._infinity, 0, [], [])
                values, places = np.append(values, 1.0), np.append(columns, self._solver.getNumCol() - 1)
            self._solver.addRow(bound, self._infinity, len(places), places, values)
        self.rows = self.rows.with_rows(component, alternative, rows)

    def solve(self) -> Answer:
        """Solve from the last basis."""
        self._solver.run()
        status = self._solver.modelStatusToString(self._solver.getModelStatus())
        zeros = np.zeros(len(self.rows.values))
        if status == "Infeasible":
            weights = vanishing_weights(self.rows)
            return Answer("infeasible" if weights.any() else "failed", None, weights, zeros)
        if status != "Optimal":
            return Answer("failed", None, zeros, zeros)
        solution = self._solver.getSolution()
        columns = numbers_of(solution.col_value, self._solver.getNumCol())
        duals = numbers_of(solution.row_dual, self._solver.getNumRow())
        if columns is None or duals is None:
            return Answer("failed", None, zeros, zeros)
        duals = duals[-len(zeros) :]
        x = tuple(
            (columns[first : first + size] - columns[first + size : first + 2 * size]) / self._scale
            for first, size in zip(self._first, self._sizes, strict=False)
        )
        slack = zeros if self._slack is None else columns[self._first[-1] :]
        return Answer("optimal", x, np.maximum(duals, 0.0), slack)


class LeastVariance:
    """``min Σ_j w_jᵀC_jw_j``: the value functions that vary least, as a least-distance problem.

    With C = LLᵀ and u = Lᵀw this asks for the shortest u with A u ≥ 1. For one component its dual is a non-negative
    least-squares problem (Lawson and Hanson, chapter 23), whose active-set solver ends in finitely many steps with
    exact weights; several components are solved by Clarabel.

    Args:
        spreads: C_j ``[k_j, k_j]``; directions without noise count as having a little.
        slack: with one component, the price per unit squared by which a row may fall short; None forbids it.
    """

    def __init__(self, spreads: Sequence[Array], *, slack: float | None = None) -> None:
        self.rows = self._whitened = Rows.empty(max(map(len, spreads)))
        self._factors, self._slack = [whitening(spread) for spread in spreads], slack
        self._active = np.zeros(0, dtype=bool)  # rows in use: the others were met with room to spare
        self._length: float | None = None  # ‖u‖ of the last solve, where the next one starts

    def add(self, component: int, alternative: int, rows: Array) -> None:
        """Add rows ``[m, k_j]`` of one component and alternative action."""
        from scipy.linalg import solve_triangular

        whitened = solve_triangular(self._factors[component], rows.T, lower=True).T
        self.rows = self.rows.with_rows(component, alternative, rows)
        self._whitened = self._whitened.with_rows(component, alternative, whitened)
        self._active = np.concatenate([self._active, np.ones(len(rows), dtype=bool)])

    def solve(self) -> Answer:
        """Solve for all rows."""
        from scipy.linalg import solve_triangular

        status, u, weights = self._alone() if len(self._factors) == 1 else self._jointly()
        zeros = np.zeros(len(weights))
        if u is None:
            return Answer(status, None, weights, zeros)
        w = tuple(
            solve_triangular(factor.T, u_j[: len(factor)], lower=False)
            for factor, u_j in zip(self._factors, u, strict=True)
        )
        slack = zeros if self._slack is None else np.maximum(1.0 - self.rows.values @ w[0], 0.0)
        return Answer(status, w, weights, slack)

    def _jointly(self) -> tuple[str, Array | None, Array]:
        status, u, weights = least_norm_of_sums(self._whitened, self._length)
        self._length = self._length if u is None else float(np.linalg.norm(u))
        return status, u, weights

    def _alone(self) -> tuple[str, Array | None, Array]:
        """Use only the rows that were active in the last solution or were added since, as long as the others hold."""
        scale = float(np.linalg.norm(self._whitened.values, axis=1).max()) or 1.0
        rows = self._whitened.values / scale
        if self._slack is not None:  # a slack variable is one more coordinate of u, in its own units
            rows = np.hstack([rows, np.eye(len(rows)) / (scale * np.sqrt(self._slack))])
        weights = np.zeros(len(rows))
        while True:
            u, weights[self._active] = least_norm(rows[self._active], self._length and 1 / self._length)
            if u is None:
                return "infeasible" if weights.any() else "failed", None, weights
            self._length = float(np.linalg.norm(u))
            missed = ~self._active & (rows @ u < 1.0 - 1e-9)
            if not missed.any():
                break
            self._active |= missed
            weights = np.zeros(len(rows))
        self._active = weights > 0
        return "optimal", u[None, : self.rows.values.shape[1]] / scale, weights


def most_preferred(rows: Array, spanned: Array, least: float) -> Array | None:
    """The x for which the mean of ``rows @ x`` is largest, all of it at least ``least`` and ``spanned @ x`` within ±½.

    None if the solver gave up.
    """
    from scipy.optimize import linprog

    system = np.concatenate([-rows, spanned, -spanned])
    ends = np.concatenate([np.full(len(rows), -least), np.full(2 * len(spanned), 0.5)])
    answer = linprog(-rows.mean(axis=0), A_ub=system, b_ub=ends, bounds=(None, None), method="highs")
    return numbers_of(answer.x, rows.shape[1]) if answer.status == 0 else None


def whitening(spread: Array) -> Array:
    """L with C = LLᵀ ``[k, k]``, where directions without noise count as having a little."""
    eigenvalues, vectors = np.linalg.eigh(spread)
    top = float(eigenvalues.max(initial=0.0))
    if top < 1e-12:  # deterministic dynamics: no noise to weigh, only rounding
        eigenvalues, top = np.ones(len(spread)), 1.0
    floored = (vectors * np.maximum(eigenvalues, 1e-9 * top)) @ vectors.T
    return np.linalg.cholesky((floored + floored.T) / 2)


class SolverFailed(ArithmeticError):
    """An outside solver stopped without an answer, or its answer failed the check that follows."""


def numbers_of(answer: Any, size: int) -> Array | None:
    """Numbers ``[size]`` from an outside solver; None if there are more, or fewer, or some are not finite."""
    try:
        values = np.asarray(answer, dtype=float)
    except (TypeError, ValueError):
        return None
    return values if values.shape == (size,) and np.isfinite(values).all() else None


def non_negative(system: Array, goal: Array) -> Array | None:
    """The λ ≥ 0 that brings system @ λ closest to the goal; None if the solver gave up, or its answer is not that λ.

    At the closest point no column leads nearer: their slopes are zero where λ > 0, and not above zero elsewhere.
    """
    from scipy.optimize import nnls

    try:
        answer = nnls(system, goal, maxiter=30 * sum(system.shape))[0]
    except (RuntimeError, LookupError):
        return None
    weights = numbers_of(answer, system.shape[1])
    if weights is None or (weights < 0).any():
        return None
    slopes = system.T @ (goal - system @ weights)
    most = CLOSEST * np.linalg.norm(system, axis=0) * np.linalg.norm(goal)
    return weights if (np.where(weights > 0, np.abs(slopes), slopes) <= most).all() else None


def least_norm(rows: Array, guess: float | None = None) -> tuple[Array | None, Array]:
    """The shortest u with ``rows @ u ≥ 1``, and weights λ ≥ 0 with ``u ∝ λ @ rows``; u is None if there is no such u.

    The dual asks for the λ ≥ 0 that brings (λ @ rows, Σλ·b) closest to (0, 1). With b near 1/‖u‖ both parts are of the
    same size, which keeps all digits; a second pass sets it so, unless a guess of 1/‖u‖ did already. All-zero weights
    mean that the solver gave up.
    """
    height, u, weights = guess or 1.0, None, np.zeros(len(rows))
    goal = np.zeros(rows.shape[1] + 1)
    goal[-1] = 1.0
    for _ in range(2):
        solved = non_negative(np.vstack([rows.T, np.full(len(rows), height)]), goal)
        if solved is None:
            return None, np.zeros(len(rows))
        weights = solved
        hull = weights @ rows
        distance = float(np.linalg.norm(hull)) / (float(weights.sum()) or 1.0)
        if distance < VANISHING:
            return None, weights / (weights.sum() or 1.0)
        u = hull / (distance * np.linalg.norm(hull))
        if 0.01 < height / distance < 100:
            break
        height = distance
    return u, weights / weights.sum()


def vanishing_weights(rows: Rows) -> Array:
    """Weights λ whose combinations of rows vanish in every component ``[m]``; zeros if there are none after all."""
    nothing = np.zeros(len(rows.values))
    if rows.components > 1:
        status, _, weights = least_norm_of_sums(rows)
        return weights if status == "infeasible" else nothing
    u, weights = least_norm(rows.values / (float(np.linalg.norm(rows.values, axis=1).max()) or 1.0))
    return weights if u is None else nothing


def least_norm_of_sums(rows: Rows, guess: float | None = None) -> tuple[str, Array | None, Array]:
    """The x ``[J, k]`` that minimises Σ_j‖x_j‖² with all sums at least 1: status, x if optimal, weights ``[m]``.

    One more unknown t makes it a problem that always has a solution: Σ_j m_ja + t ≥ 1 at the price Ct²/2. Everything
    but t scales with the margin, so the direction of x is the same for every C > 0, and x vanishes exactly when there
    is no solution (the trick of Lawson and Hanson's chapter 23). In units where ‖x‖ is about 1, C = 1 keeps all digits;
    these units are found on the way.
    """
    scale = guess or float(np.sqrt(rows.components)) / (float(np.linalg.norm(rows.values, axis=1).max()) or 1.0)
    first, nothing = scale, np.zeros(len(rows.values))
    for _ in range(6):
        solved = _soft_sums(rows, scale)
        if solved is None:
            break
        weights = _balanced(rows, solved)
        x = rows.combined(weights)  # at the solution x is a multiple of this
        hull, margin = float(np.linalg.norm(x)), float(rows.lowest(rows.products(x)).sum(axis=0).min())
        if hull * first < VANISHING:
            return "infeasible", None, weights
        # For every solution 1 ≤ x·(Σλg) ≤ ‖x‖·hull: weights bound the objective from below, x from above.
        if hull * hull < (1 + ACCURATE) * margin:
            return "optimal", x / margin, weights
        scale = 1 / hull
    return "failed", None, nothing


def _soft_sums(rows: Rows, scale: float) -> Array | None:
    """Weights of the rows ``[m]`` of min ½Σ‖x_j‖² + ½t² s.t. x_j·g_r·scale ≥ m_ja and Σ_j m_ja + t ≥ 1, by Clarabel.

    None if it gave up. x_j is the combination of the rows with these weights.
    """
    import clarabel
    from scipy import sparse

    (m, k), J, B = rows.values.shape, rows.components, rows.alternatives
    t = J * (k + B)  # the unknowns: x, the margins m_ja, t
    margins = J * k + np.arange(J * B).reshape(J, B)
    entries = np.hstack([-scale * rows.values, np.ones((m, 1))])
    places = np.hstack([rows.component[:, None] * k + np.arange(k), margins[rows.component, rows.alternative, None]])
    each = sparse.csc_matrix((entries.ravel(), (np.repeat(np.arange(m), k + 1), places.ravel())), shape=(m, t + 1))
    sums = sparse.csc_matrix((-np.ones(J * B), (np.tile(np.arange(B), J), margins.ravel())), shape=(B, t))
    system = sparse.vstack([each, sparse.hstack([sums, -np.ones((B, 1))])], format="csc")
    prices = sparse.diags(np.concatenate([np.ones(J * k), np.zeros(J * B), [1.0]]), format="csc")
    settings = clarabel.DefaultSettings()
    options = {"verbose": False, "presolve_enable": False, "equilibrate_enable": False, "direct_solve_method": "qdldl"}
    for option, value in (options | dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), GAP)).items():
        setattr(settings, option, value)
    bounds, cones = np.concatenate([np.zeros(m), -np.ones(B)]), [clarabel.NonnegativeConeT(m + B)]
    answer = clarabel.DefaultSolver(prices, np.zeros(t + 1), system, bounds, cones, settings).solve()
    weights = numbers_of(answer.z, m + B)
    return None if weights is None or not (weights[:m] > 0).any() else np.maximum(weights[:m], 0.0)


def _balanced(rows: Rows, weights: Array) -> Array:
    """Weights that add up to the same ν_a in every component, to rounding, and to 1 over the alternative actions."""
    sums = np.zeros((rows.components, rows.alternatives))
    np.add.at(sums, (rows.component, rows.alternative), weights)
    shares = sums.mean(axis=0) / sums.mean(axis=0).sum()
    return weights * (shares / np.maximum(sums, 1e-300))[rows.component, rows.alternative]
