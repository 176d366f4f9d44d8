"""The programs behind a reward: rows come in, coefficients and row weights go out.

Each program holds rows g_r and seeks the x with ``x·g_r ≥ 1`` that is least in some sense. Rows can be added between
solves. Every answer carries weights λ_r ≥ 0, one per row: the rows that hold the solution up, or, when there
is none, the combination Σ λ_r g_r = 0 that proves it (Farkas).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from certirl.ground.domain import Array

# Rows are scaled to length about 1 before solving; a positive combination shorter than this is called zero.
VANISHING = 1e-9


@dataclass(frozen=True, eq=False)
class Answer:
    """What a program says.

    Attributes:
        status: "optimal", "infeasible" or "failed" (the solver gave up; nothing is known).
        x: the coefficients ``[k]``; None unless optimal.
        weights: λ ``[m]``, one per row in the order of adding.
        slack: by how much each row falls short ``[m]``; zeros in a hard program.
    """

    status: str
    x: Array | None
    weights: Array
    slack: Array


class Program(Protocol):
    """A set of rows and an objective."""

    def add(self, rows: Array) -> None:
        """Add rows ``[m, k]``."""

    def solve(self) -> Answer:
        """Solve for all rows added so far."""
        ...


class LinearProgram:
    """``min ‖x‖₁ s.t. x·g_r ≥ 1`` in HiGHS; new rows start from the last basis.

    Args:
        size: the number of coefficients, k.
        slack: allow each row to fall short at this price per unit; None forbids it.
    """

    def __init__(self, size: int, *, slack: float | None = None) -> None:
        import highspy

        self._size, self._slack, self._rows = size, slack, np.zeros((0, size))
        self._scale, self._inf = 0.0, highspy.kHighsInf
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
        for _ in range(2 * size):  # x = x⁺ − x⁻
            solver.addCol(1.0, 0.0, self._inf, 0, [], [])

    def add(self, rows: Array) -> None:
        """Add rows ``[m, k]``."""
        self._scale = self._scale or float(np.abs(rows).max()) or 1.0
        columns = np.arange(2 * self._size)
        for row in rows / self._scale:
            values = np.concatenate([row, -row])
            if self._slack is None:
                self._solver.addRow(1.0, self._inf, len(columns), columns, values)
            else:
                price = self._slack * self._scale  # the coefficients are in units of 1/scale, and so is their cost
                self._solver.addCol(price, 0.0, self._inf, 0, [], [])
                own = np.append(columns, self._solver.getNumCol() - 1)
                self._solver.addRow(1.0, self._inf, len(own), own, np.append(values, 1.0))
        self._rows = np.concatenate([self._rows, rows])

    def solve(self) -> Answer:
        """Solve from the last basis."""
        self._solver.run()
        status = self._solver.modelStatusToString(self._solver.getModelStatus())
        zeros = np.zeros(len(self._rows))
        if status == "Infeasible":
            return Answer("infeasible", None, _vanishing_weights(self._rows), zeros)
        if status != "Optimal":
            return Answer("failed", None, zeros, zeros)
        solution = self._solver.getSolution()
        columns, duals = np.array(solution.col_value), np.array(solution.row_dual)
        x = (columns[: self._size] - columns[self._size : 2 * self._size]) / self._scale
        slack = zeros if self._slack is None else columns[2 * self._size :]
        return Answer("optimal", x, np.maximum(duals, 0.0), slack)


class LeastVariance:
    """``min wᵀCw s.t. w·g_r ≥ 1``: the value function that varies least, as a least-distance problem.

    With C = LLᵀ and u = Lᵀw this asks for the shortest u with A u ≥ 1, whose dual is a non-negative least-squares
    problem (Lawson and Hanson, chapter 23). Its active-set solver ends in finitely many steps with exact weights, and
    a vanishing residual is itself the proof of infeasibility.

    Args:
        spread: C ``[k, k]``; directions without noise count as having a little.
        slack: allow each row to fall short, at this price per unit squared; None forbids it.
    """

    def __init__(self, spread: Array, *, slack: float | None = None) -> None:
        self._factor, size = whitening(spread), len(spread)
        self._rows, self._slack = np.zeros((0, size)), slack
        self._working = np.zeros(0, dtype=bool)  # rows in play: the others were met with room to spare
        self._distance: float | None = None  # 1/‖u‖ of the last solve: where the next one starts

    def add(self, rows: Array) -> None:
        """Add rows ``[m, k]``."""
        self._rows = np.concatenate([self._rows, rows])
        self._working = np.concatenate([self._working, np.ones(len(rows), dtype=bool)])

    def solve(self) -> Answer:
        """Solve for all rows, keeping in play only those that held the last solution up or came since."""
        from scipy.linalg import solve_triangular

        whitened = solve_triangular(self._factor, self._rows.T, lower=True).T
        scale = float(np.linalg.norm(whitened, axis=1).max()) or 1.0
        wide = whitened / scale
        if self._slack is not None:  # a slack variable is one more coordinate of u, in its own units
            wide = np.hstack([wide, np.eye(len(wide)) / (scale * np.sqrt(self._slack))])
        weights, zeros = np.zeros(len(wide)), np.zeros(len(wide))
        while True:
            u, weights[self._working] = least_norm(wide[self._working], self._distance)
            if u is None:
                return Answer("infeasible" if weights.any() else "failed", None, weights, zeros)
            self._distance = 1.0 / float(np.linalg.norm(u))
            missed = ~self._working & (wide @ u < 1.0 - 1e-9)
            if not missed.any():
                break
            self._working |= missed
            weights = zeros.copy()
        self._working = weights > 0
        w = solve_triangular(self._factor.T, u[: len(self._factor)] / scale, lower=False)
        return Answer("optimal", w, weights, zeros if self._slack is None else np.maximum(1.0 - self._rows @ w, 0.0))


def whitening(spread: Array) -> Array:
    """L with C = LLᵀ ``[k, k]``, where directions without noise count as having a little."""
    eigenvalues, vectors = np.linalg.eigh(spread)
    top = float(eigenvalues.max(initial=0.0))
    if top < 1e-12:  # deterministic dynamics: no noise to weigh, only rounding
        eigenvalues, top = np.ones(len(spread)), 1.0
    floored = (vectors * np.maximum(eigenvalues, 1e-9 * top)) @ vectors.T
    return np.linalg.cholesky((floored + floored.T) / 2)


def least_norm(rows: Array, guess: float | None = None) -> tuple[Array | None, Array]:
    """The shortest u with ``rows @ u ≥ 1``, and weights λ ≥ 0 with ``u ∝ λ @ rows``; u is None if there is no such u.

    The dual asks for the λ ≥ 0 that brings (λ @ rows, Σλ·b) closest to (0, 1). With b near 1/‖u‖ both parts are of the
    same size, which keeps all digits; a second pass sets it so, unless a guess of 1/‖u‖ did already. All-zero weights
    mean that the solver gave up.
    """
    from scipy.optimize import nnls

    height, u, weights = guess or 1.0, None, np.zeros(len(rows))
    goal = np.zeros(rows.shape[1] + 1)
    goal[-1] = 1.0
    for _ in range(2):
        try:
            weights, _ = nnls(np.vstack([rows.T, np.full(len(rows), height)]), goal, maxiter=30 * sum(rows.shape))
        except RuntimeError:
            return None, np.zeros(len(rows))
        hull = weights @ rows
        distance = float(np.linalg.norm(hull)) / (float(weights.sum()) or 1.0)
        if distance < VANISHING:
            return None, weights / (weights.sum() or 1.0)
        u = hull / (distance * np.linalg.norm(hull))
        if 0.01 < height / distance < 100:
            break
        height = distance
    return u, weights / weights.sum()


def _vanishing_weights(rows: Array) -> Array:
    """Weights λ with λ @ rows ≈ 0; zeros if there are none after all."""
    u, weights = least_norm(rows / (float(np.linalg.norm(rows, axis=1).max()) or 1.0))
    return weights if u is None else np.zeros(len(rows))
