"""The record that shows why there is no reward: rows of the criterion whose weighted sum is zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from certirl.functions.extrema import ranked
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, freeze

EXACT = 1e-8  # a residual below this is zero but for rounding
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


def place_of(state: Array) -> str:
    """A state in words, "s = 0.3" or "s = (0.3, 0.1)"."""
    entries = ", ".join(f"{x:.4g}" for x in state[:SHOWN])
    if len(state) == 1:
        return f"s = {entries}"
    return f"s = ({entries}{', …' if len(state) > SHOWN else ''})"
