"""Where an expert contradicts itself: states and actions at which no value function of a class can agree with it.

For V = wᵀφ the expert asks for ``w·ρ_i > 0`` with ``ρ_i = ((P_π − P_{a_i})φ)(s_i)``, at every state away from its
switches and for every rival. By Farkas either some w obeys, or weights λ ≥ 0 with sum 1 have ``Σ λ_iρ_i = 0``: whatever
V is gained in some of these rows is lost in the others. Few rows are enough, one more than there are functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy
from certirl.fit.effects import Effects
from certirl.fit.program import least_norm
from certirl.fit.value_program import Comparisons
from certirl.functions.extrema import ranked
from certirl.ground.domain import Array, freeze

EXACT = 1e-8  # a sum of rows below this is zero but for rounding
NEGLIGIBLE = 1e-6  # of the longest row: a V with less advantage everywhere would have to be a million times the margin
SHOWN = 4  # rows of a conflict that are printed
BESIDE = (1.001, 1.5, 2.5)  # states beside a switch at which the expert is asked, in units of the tube
ROUNDS, AT_ONCE = 30, 150  # of the search for a conflict, and rows that one adds
MOST_BESIDE = 200  # states beside switches, of an expert who switches all the time


@dataclass(frozen=True, eq=False)
class Conflict:
    """Weights λ_i ≥ 0 with Σ λ_i ((P_π − P_{a_i})φ)(s_i) = 0: no V = wᵀφ has a positive advantage in all these rows.

    Attributes:
        states: ``[m, d]``.
        taken: what the expert does there ``[m]``; the likeliest where it mixes.
        actions: the rival a_i ``[m]``.
        weights: λ ``[m]``, with sum 1.
        residual: how far the weighted sum is from zero, at most: in units of the longest row where it was searched for,
            per unit of ‖w‖₁ where fresh data proved it.
        functions: the class, in words.
        seen: the rows were looked at without noise, so that this is no estimate.
    """

    states: Array
    taken: NDArray[np.intp]
    actions: NDArray[np.intp]
    weights: Array
    residual: float
    functions: str
    seen: bool = False

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.weights)

    def __str__(self) -> str:
        order = ranked(self.weights, self.states, self.actions)[:SHOWN]
        named = ", ".join(
            f"{self.taken[r]} rather than {self.actions[r]} at s = {_place(self.states[r])} ({self.weights[r]:.2g})"
            for r in order
        )
        more, exact = " …" if len(self) > SHOWN else "", "" if self.residual < EXACT else f" to {self.residual:.2g}"
        return f"action {named}{more} cancel out{exact} (weights in brackets), whatever V in {self.functions}"

    def packed(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Words for a JSON header and numbers for arrays."""
        words = {name: getattr(self, name) for name in ("residual", "functions", "seen")}
        return words, {name: getattr(self, name) for name in ("states", "taken", "actions", "weights")}


def _place(state: Array) -> str:
    place = ", ".join(f"{x:.4g}" for x in state)
    return place if len(state) == 1 else f"({place})"


def find_conflict(effects: Effects, policy: Policy, rows: Comparisons, shortfall: Array) -> Conflict | None:
    """Rows outside the tube that cancel out, if the soft answer left any of them unexplained; None if V obeys them all.

    Rows are added where the shortest answer so far fails, until they cancel out, or all but, or it fails
    nowhere. The length of their sum is how much advantage a V has at most, per unit of its coefficients.

    Args:
        effects: what the actions do.
        policy: the expert.
        rows: all comparisons.
        shortfall: by how much the soft answer stays below their margins ``[m]``.
    """
    outside = np.flatnonzero(rows.margins >= 1.0)
    missed = shortfall[outside] >= rows.margins[outside]
    if not missed.any():
        return None
    gains = rows.gains[outside] / np.sqrt(np.mean(effects.now**2, axis=0) + 1e-300)
    gains = gains / float(np.linalg.norm(gains, axis=1).max())
    rank = np.argsort(-shortfall[outside], kind="stable")
    working = np.union1d(rank[:AT_ONCE], rank[:: max(len(rank) // AT_ONCE, 1)])
    for _ in range(ROUNDS):
        u, weights = least_norm(gains[working])
        if u is None or np.linalg.norm(u) * NEGLIGIBLE > 1:
            break
        ahead = gains @ u
        failing = np.flatnonzero(ahead < 1.0 - 1e-6)
        new = np.setdiff1d(failing[np.argsort(ahead[failing], kind="stable")[:AT_ONCE]], working)
        if not len(new):
            return None
        working = np.union1d(working[weights > 0], new)
    else:
        return None  # not settled
    if not weights.any():  # the solver gave up
        return None
    held, states = working[weights > 0], effects.states
    found = weights[weights > 0] / weights.sum()
    at = rows.which[outside[held]]
    return Conflict(
        states=states[at],
        taken=policy.actions(states[at]),
        actions=rows.rivals[outside[held]],
        weights=found,
        residual=float(np.linalg.norm(found @ gains[held])),
        functions=str(effects.basis),
        seen=effects.seen,
    )
