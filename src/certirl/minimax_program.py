"""The value form as a linear program: the smallest largest residual of R instead of the smallest mean square.

``min price·mean ξ + ε/(1 − γ) + small·‖w‖₁`` subject to ``(P_π − P_a)V(s) ≥ m(s) − ξ`` and ``|R − (V − γP_πV)| ≤ ε`` at
every state. The advantage under R is then at least the margin less 2ε/(1 − γ), which is what a proof can use; for
planning the mean-square form of `value_program` does better and is faster. HiGHS is given few rows, those that bind at
the mean-square solution, and gets the violated ones round by round, warm; its answer is checked by plain arithmetic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.bases import Basis
from certirl.cells import Cells, expanded
from certirl.domain import Array
from certirl.effects import Effects
from certirl.value_program import Comparisons, ValueFit, fit_value

PRICE = 100.0  # of the mean shortfall
SMALL = 1e-4  # of ‖w‖₁
TOLERANCE = 1e-6
MOST_ROWS = 1500  # of each kind, added in a round
_ROUNDS = 60


def minimax_value(
    effects: Effects, rows: Comparisons, *, discount: float, reward_basis: Basis | Cells, price: float = PRICE
) -> ValueFit:
    """Solve the linear program; arguments as for `fit_value`. ``residual`` of the answer is ε.

    A solver that gives up leaves the mean-square answer in place, with ``follow="expert"`` and 0 ``steps``.
    """
    start = fit_value(effects, rows, discount=discount, reward_basis=reward_basis, follow="expert")
    target = effects.now - discount * rows.expert
    hats = reward_basis.matrix(effects.states).toarray() if isinstance(reward_basis, Cells) else None
    features = reward_basis.values(effects.states) if hats is None else hats
    program = _Program(effects.basis.size, reward_basis.size, 1 / (1 - discount))
    away = rows.margins - rows.gains @ start.value
    asked = _worst(away, np.ones(len(rows), dtype=bool))
    upper = _worst(start.residuals, np.ones(len(target), dtype=bool))
    lower = _worst(-start.residuals, np.ones(len(target), dtype=bool))
    waiting = [np.ones(len(rows), dtype=bool), *(np.ones(len(target), dtype=bool) for _ in range(2))]
    for turn in range(1, _ROUNDS + 1):
        program.demand(rows.gains[asked], rows.margins[asked], price / max(len(rows), 1))
        for sign, chosen in ((1.0, upper), (-1.0, lower)):
            program.bound(sign * target[chosen], sign * features[chosen])
        for mask, chosen in zip(waiting, (asked, upper, lower), strict=True):
            mask[chosen] = False
        found = program.solve()
        if found is None:
            return replace(start, steps=0)
        w, rho, epsilon = found
        short, missed = rows.margins - rows.gains @ w, features @ rho - target @ w
        asked = _worst(short - TOLERANCE, waiting[0] & (short > TOLERANCE))
        room = epsilon * (1 + TOLERANCE) + TOLERANCE
        upper, lower = (_worst(s * missed, m & (s * missed > room)) for s, m in zip((1, -1), waiting[1:], strict=True))
        if not (len(asked) or len(upper) or len(lower)):
            residuals = expanded(reward_basis, effects.states, rho) - target @ w
            return ValueFit(w, rho, reward_basis, np.maximum(short, 0.0), residuals, turn, "expert")
    return replace(start, steps=0)


def _worst(values: Array, among: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The places of the largest values among some, at most so many."""
    places = np.flatnonzero(among)
    return places[np.argsort(-values[places], kind="stable")[:MOST_ROWS]]


class _Program:
    """Rows come in; w = x⁺ − x⁻, ρ and ε go out."""

    def __init__(self, k: int, m: int, cost: float) -> None:
        import highspy

        self.k, self.m, self.inf = k, m, highspy.kHighsInf
        self.solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in {"output_flag": False, "threads": 1}.items():
            self.solver.setOptionValue(option, value)
        costs = np.concatenate([np.full(2 * k, SMALL), np.zeros(m), [cost]])
        lower = np.concatenate([np.zeros(2 * k), np.full(m, -self.inf), [0.0]])
        self._columns(costs, lower)

    def _columns(self, costs: Array, lower: Array) -> int:
        first, count = self.solver.getNumCol(), len(costs)
        self.solver.addVars(count, lower, np.full(count, self.inf))
        self.solver.changeColsCost(count, np.arange(first, first + count, dtype=np.int32), costs)
        return int(first)

    def _rows(self, values: Array, columns: Array, low: Array, high: Array) -> None:
        starts = np.arange(len(values), dtype=np.int32) * values.shape[1]
        flat = columns.astype(np.int32).ravel()
        self.solver.addRows(len(values), low, high, values.size, starts, flat, values.ravel())

    def demand(self, gains: Array, margins: Array, price: float) -> None:
        """``gains·w + ξ ≥ margins``, each with a ξ of its own."""
        n = len(gains)
        if not n:
            return
        own = self._columns(np.full(n, price), np.zeros(n)) + np.arange(n)
        columns = np.hstack([np.tile(np.arange(2 * self.k), (n, 1)), own[:, None]])
        self._rows(np.hstack([gains, -gains, np.ones((n, 1))]), columns, margins, np.full(n, self.inf))

    def bound(self, target: Array, features: Array) -> None:
        """``features·ρ − target·w ≤ ε``."""
        n = len(target)
        if not n:
            return
        values = np.hstack([-target, target, features, -np.ones((n, 1))])
        columns = np.tile(np.arange(2 * self.k + self.m + 1), (n, 1))
        self._rows(values, columns, np.full(n, -self.inf), np.zeros(n))

    def solve(self) -> tuple[Array, Array, float] | None:
        """The last basis is where it starts; None if the solver gives up."""
        self.solver.run()
        status: Any = self.solver.modelStatusToString(self.solver.getModelStatus())
        if status != "Optimal":
            return None
        x = np.array(self.solver.getSolution().col_value)
        k, m = self.k, self.m
        return x[:k] - x[k : 2 * k], x[2 * k : 2 * k + m], float(x[2 * k + m])
