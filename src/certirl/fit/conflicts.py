"""Where an expert contradicts itself: states and actions at which no value function of a class can agree with it.

For V = wᵀφ the expert asks for ``w·ρ_i > 0`` with ``ρ_i = ((P_π − P_{a_i})φ)(s_i)``, at every state away from its
switches and for every rival. By Farkas either some w obeys, or weights λ ≥ 0 with sum 1 have ``Σ λ_iρ_i = 0``: whatever
V is gained in some of these rows is lost in the others. Few rows are enough, one more than there are functions.
"""

from __future__ import annotations

import numpy as np

from certirl.data.policy import Policy
from certirl.fit.effects import Effects
from certirl.fit.program import least_norm
from certirl.fit.value_program import Comparisons
from certirl.fit.witness import Witness
from certirl.ground.domain import Array

NEGLIGIBLE = 1e-6  # of the longest row: a V with less advantage everywhere would have to be a million times the margin
BESIDE = (1.001, 1.5, 2.5)  # states beside a switch at which the expert is asked, in units of the tube
ROUNDS, AT_ONCE = 30, 150  # of the search for a conflict, and rows that one adds
MOST_BESIDE = 200  # states beside switches, of an expert who switches all the time


def find_conflict(effects: Effects, policy: Policy, rows: Comparisons, shortfall: Array) -> Witness | None:
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
    return Witness(
        states=states[at],
        taken=policy.actions(states[at]),
        actions=rows.rivals[outside[held]],
        weights=found,
        residual=float(np.linalg.norm(found @ gains[held])),
        functions=str(effects.basis),
        noiseless=effects.seen,
    )
