"""Where an expert contradicts itself: states and actions at which no value function of a class can agree with it.

For V = wᵀφ the expert asks for ``w·ρ_i > 0`` with ``ρ_i = ((P_π − P_{a_i})φ)(s_i)``, at every state away from its
switches and for every rival. By Farkas either some w obeys, or weights λ ≥ 0 with sum 1 have ``Σ λ_iρ_i = 0``: whatever
V is gained in some of these rows is lost in the others. Few rows are enough, one more than there are functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.expert_grid import expert_grid
from certirl.data.policy import Policy
from certirl.fit.effects import Effects
from certirl.fit.program import least_norm
from certirl.fit.value_program import Comparisons
from certirl.functions.bases import Basis
from certirl.functions.extrema import ranked
from certirl.ground.domain import Array, freeze, one_coordinate

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


class Contests(NamedTuple):
    """States, rivals and the expert: the rows of the criterion, rival by rival.

    Attributes:
        policy: the expert.
        states, actions: ``[m, 1]``, ``[m]``.
        contrast: π_c(s_i) − 1_{c=a_i}, how much of P_c is in row i ``[m, A]``.
        tube: all states are farther than this from a switch.
        notes: what must be believed of the expert, in words.
    """

    policy: Policy
    states: Array
    actions: NDArray[np.intp]
    contrast: Array
    tube: float = 0.0
    notes: tuple[str, ...] = ()


def contests(policy: Policy, columns: Basis, *, tube: float = 0.0) -> Contests:
    """What the expert does against what it could do, at states that the columns tell apart, none within the tube."""
    states, notes = columns.grid(4 * columns.size + 1), tuple[str, ...]()
    if policy.constant is None:
        one_coordinate(columns.domain, "a refutation is", switching=True)
        grid, ((low, high),) = expert_grid(policy, columns.domain), columns.domain
        switches = grid.switches[:, 0]
        tube = tube if len(switches) else 0.0
        known = tube + float(grid.half[0])  # a switch is somewhere in its cell
        near = (switches[:, None] + known * np.multiply.outer(BESIDE, (-1, 1)).ravel()).ravel()[:MOST_BESIDE]
        states = np.append(states.ravel(), near[(near > low) & (near < high)])[:, None]
        states = states[np.abs(states - switches).min(axis=1, initial=np.inf) > known]
        notes = (str(grid), *([policy.assumption] if policy.assumption else []))
    if not len(states):
        raise ValueError(f"a tube of half-width {tube:g} around the expert's switches leaves no state to speak of")
    chances = policy.probabilities(states)
    actions, at = np.nonzero(chances.T < 1)
    return Contests(policy, states[at], actions, chances[at] - np.eye(policy.n_actions)[actions], tube, notes)
