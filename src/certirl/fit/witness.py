"""Why there is no reward: rows of the criterion whose weighted sum is zero.

For V = wᵀφ the expert asks for ``w·ρ_i > 0`` with ``ρ_i = ((P_π − P_{a_i})φ)(s_i)``, at every state away from its
switches and for every alternative action. By Farkas either some w does, or weights λ ≥ 0 with sum 1 have
``Σ λ_iρ_i = 0``: advantages in some of these rows are disadvantages in the others. One row more than there are
functions is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy
from certirl.data.transitions import action_in_words
from certirl.fit.effects import blocks
from certirl.fit.program import least_norm
from certirl.fit.value_program import Comparisons
from certirl.functions.extrema import ranked
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array
from certirl.ground.records import Record

EXACT = 1e-8  # a residual below this is zero but for rounding
USED = 1e-9  # of all weights: rows with less are left out
SHOWN = 4  # rows, and coordinates of a state, that are printed
NEGLIGIBLE = 1e-6  # of the longest row: a V with less advantage everywhere would have to be a million times the margin
ROUNDS, AT_ONCE = 30, 150  # of the search for a conflict, and rows that one adds


@archive.record
@dataclass(frozen=True, eq=False)
class Witness(Record):
    """Weights λ_r ≥ 0 with sum 1 and Σ_r λ_r ((P_π − P_{a_r})φ)(s_r) = 0.

    A value function V of the class would need a positive advantage in each of these rows, and their weighted sum is
    zero. For a sum over components the states are whole states and V is any sum of functions of the components.

    Attributes:
        states: s_r ``[m, d]``.
        taken: the expert's action at each state ``[m]``; the most likely one where it mixes.
        actions: the alternative action a_r ``[m]``.
        weights: λ ``[m]``.
        residual: length of the weighted sum: relative to the longest row for estimates, per unit of ‖w‖₁ for proofs.
        functions: the class of V, in words.
        noiseless: next states were observed without noise, so that the rows are not estimates.

    Example:
        >>> problem = certirl.problems.unsolvable(seed=1)
        >>> criterion = certirl.steps.bellman(problem.operators(certirl.Legendre(7)), discount=0.7, expert=0)
        >>> witness = certirl.steps.recover(criterion).witness
        >>> sorted(witness.shares), round(float(witness.weights.sum()), 6)
        ([1, 2], 1.0)
    """

    states: Annotated[Array, Shape("m d")]
    taken: Annotated[NDArray[np.intp], Shape("m")]
    actions: Annotated[NDArray[np.intp], Shape("m")]
    weights: Annotated[Array, Shape("m")]
    residual: float
    functions: str
    noiseless: bool = False

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def shares(self) -> dict[int, float]:
        """The sum of the weights of each alternative action."""
        return {int(a): float(self.weights[self.actions == a].sum()) for a in np.unique(self.actions)}

    def __str__(self) -> str:
        return self.in_words()

    def in_words(self, names: Sequence[str] = ()) -> str:
        """The conflict in a sentence.

        Args:
            names: of the actions.

        Example:
            >>> words = certirl.steps.recover(criterion).witness.in_words(["stay", "left", "right"])
            >>> "left" in words and "right" in words
            True
        """
        if len(self) == 1:
            action, taken = (action_in_words(int(rows[0]), names) for rows in (self.actions, self.taken))
            return f"at {place_of(self.states[0])} {action} has exactly the effect of {taken}, which the expert takes"
        first, rows = "" if names else "action ", []
        for r in ranked(self.weights, self.actions, self.states)[:SHOWN]:
            taken, other = (names[action] if names else action for action in (self.taken[r], self.actions[r]))
            rows.append(f"{taken} over {other} at {place_of(self.states[r])} ({self.weights[r]:.2g})")
        more = " …" if len(self) > SHOWN else ""
        exact = "" if self.residual < EXACT else f" to {self.residual:.2g}"
        class_of = f"whatever V in {self.functions}"
        return f"the advantages of {first}{', '.join(rows)}{more} cancel{exact} (weights in brackets), {class_of}"


def whole_rows(
    parts: Sequence[tuple[Sequence[int] | None, Array, NDArray[np.intp], Array]],
) -> tuple[Array, NDArray[np.intp], Array]:
    """Rows of whole states ``[m, d]``, their actions ``[m]`` and weights ``[m]``, from those of the components.

    For every action the weights add up to the same number in each component, so that they are the marginals of weights
    of whole states: take the states of each component in order, every one as long as its weight lasts.

    Parts are coordinates, states, actions and weights of the rows of each component; one is returned as it is.
    """
    if len(parts) == 1:
        return parts[0][1:]
    whole, alternatives, shares = list[Array](), list[int](), list[float]()
    for action in np.unique(parts[0][2]):
        chosen = []
        for _, states, actions, weights in parts:
            rows = np.flatnonzero((actions == action) & (weights > USED))
            chosen.append(rows[np.lexsort(states[rows].T[::-1])])
        if not all(map(len, chosen)):
            continue
        sums = [weights[rows] for (_, _, _, weights), rows in zip(parts, chosen, strict=True)]
        ends = [np.cumsum(shares) / shares.sum() for shares in sums]
        cuts = np.unique(np.concatenate(ends).round(12))
        for low, high in zip(np.append(0.0, cuts[:-1]), cuts, strict=True):
            state = np.zeros(sum(states.shape[1] for _, states, _, _ in parts))
            for (coordinates, states, _, _), rows, end in zip(parts, chosen, ends, strict=True):
                at = min(int(np.searchsorted(end, (low + high) / 2)), len(rows) - 1)
                state[list(coordinates or ())] = states[rows[at]]
            whole.append(state)
            alternatives.append(int(action))
            shares.append(float(sums[0].sum()) * (high - low))
    return np.array(whole), np.array(alternatives, dtype=np.intp), np.array(shares)


def find_conflict(policy: Policy, rows: Comparisons, shortfall: Array) -> Witness | None:
    """Rows outside the tube that cancel, if the soft answer left any of them unexplained; None if V explains them all.

    Rows are added where the shortest answer so far fails, until they cancel up to `NEGLIGIBLE`, or it fails nowhere.
    The length of their sum is the largest advantage that a V can have, per unit of its coefficients.
    """
    outside = np.flatnonzero(rows.margins >= 1.0)
    missed = shortfall[outside] >= rows.margins[outside]
    if not missed.any():
        return None
    effects, unit = rows.effects, np.zeros(rows.effects.size)
    for block in effects.blocks():
        unit += np.sum(effects.before(block) ** 2, axis=0)
    unit = np.where(unit > 0, np.sqrt(unit / len(effects)), 1.0)

    def scaled(index: NDArray[np.intp]) -> Array:
        return rows.gains(outside[index]) / unit

    unit = unit * max(
        float(np.linalg.norm(scaled(np.arange(len(outside))[b]), axis=1).max()) for b in blocks(len(outside))
    )
    rank = np.argsort(-shortfall[outside], kind="stable")
    working = np.union1d(rank[:AT_ONCE], rank[:: max(len(rank) // AT_ONCE, 1)])
    length = 1.0
    for _ in range(ROUNDS):
        u, weights = least_norm(scaled(working), 1 / length)
        if u is None or (length := float(np.linalg.norm(u))) * NEGLIGIBLE > 1:
            break
        ahead = rows.advantages(u / unit)[outside]
        failing = np.flatnonzero(ahead < 1.0 - 1e-6)
        new = np.setdiff1d(failing[np.argsort(ahead[failing], kind="stable")[:AT_ONCE]], working)
        if not len(new):
            return None
        working = np.union1d(working[weights > 0], new)
    else:
        return None  # not settled
    if not weights.any():  # the solver gave up
        return None
    used, shares = working[weights > 0], weights[weights > 0] / weights.sum()
    states = effects.states[rows.which[outside[used]]]
    return Witness(
        states=states,
        taken=policy.actions(states),
        actions=rows.alternatives[outside[used]],
        weights=shares,
        residual=float(np.linalg.norm(shares @ scaled(used))),
        functions=effects.words,
        noiseless=effects.noiseless,
    )


def place_of(state: Array) -> str:
    """A state in words, "s = 0.3" or "s = (0.3, 0.1)"."""
    entries = ", ".join(f"{x:.4g}" for x in state[:SHOWN])
    if len(state) == 1:
        return f"s = {entries}"
    return f"s = ({entries}{', …' if len(state) > SHOWN else ''})"
