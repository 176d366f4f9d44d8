"""The record that shows why there is no reward: rows of the criterion whose weighted sum is zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from certirl.functions.extrema import ranked
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, freeze

EXACT = 1e-8  # a residual below this is zero but for rounding
USED = 1e-9  # of all weights: rows with less are left out
SHOWN = 4  # rows, and coordinates of a state, that are printed


@archive.record
@dataclass(frozen=True, eq=False)
class Witness:
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
    """

    states: Annotated[Array, Shape("m d")]
    taken: Annotated[NDArray[np.intp], Shape("m")]
    actions: Annotated[NDArray[np.intp], Shape("m")]
    weights: Annotated[Array, Shape("m")]
    residual: float
    functions: str
    noiseless: bool = False

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def shares(self) -> dict[int, float]:
        """The sum of the weights of each alternative action."""
        return {int(a): float(self.weights[self.actions == a].sum()) for a in np.unique(self.actions)}

    def __str__(self) -> str:
        if len(self) == 1:
            acts = f"action {self.actions[0]} has exactly the effect of action {self.taken[0]}, which the expert takes"
            return f"at {place_of(self.states[0])} {acts}"
        order = ranked(self.weights, self.actions, self.states)[:SHOWN]
        rows = [
            f"{self.taken[r]} over {self.actions[r]} at {place_of(self.states[r])} ({self.weights[r]:.2g})"
            for r in order
        ]
        more = " …" if len(self) > SHOWN else ""
        exact = "" if self.residual < EXACT else f" to {self.residual:.2g}"
        class_of = f"whatever V in {self.functions}"
        return f"the advantages of action {', '.join(rows)}{more} cancel{exact} (weights in brackets), {class_of}"


def whole_rows(
    parts: Sequence[tuple[Sequence[int] | None, Array, NDArray[np.intp], Array]],
) -> tuple[Array, NDArray[np.intp], Array]:
    """Rows of whole states ``[m, d]``, their actions ``[m]`` and weights ``[m]``, from those of the components.

    For every action the weights add up to the same number in each component, so that they are the marginals of weights
    of whole states: take the states of each component in order, every one as long as its weight lasts.

    Args:
        parts: coordinates, states, actions and weights of the rows of each component; one component is returned as is.
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
        ends = [np.cumsum(own) / own.sum() for own in sums]
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


def place_of(state: Array) -> str:
    """A state in words, "s = 0.3" or "s = (0.3, 0.1)"."""
    entries = ", ".join(f"{x:.4g}" for x in state[:SHOWN])
    if len(state) == 1:
        return f"s = {entries}"
    return f"s = ({entries}{', …' if len(state) > SHOWN else ''})"
