"""The witness that no sum of rewards explains an expert."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from certirl.functions.extrema import ranked
from certirl.ground.domain import Array


@dataclass(frozen=True, eq=False)
class Conflict:
    """A row of a witness: the state of one component, a rival, a weight.

    Attributes:
        component: its name.
        state: of this component ``[d_j]``.
        action: the rival.
        weight: λ.
    """

    component: str
    state: Array
    action: int
    weight: float


@dataclass(frozen=True, eq=False)
class AdditiveWitness:
    """Why there is no additive reward: weights λ_r ≥ 0 with Σ λ_r (T_j − Z_j^{a_r})φ(s_r) = 0 in every component j.

    For every rival the weights add up to the same number ν_a in each component, so that they are weights of whole
    states too: any additive value function would need Σ_a ν_a times a positive advantage there, but has zero.

    Attributes:
        shares: ν_a of every rival, by action; they add up to 1.
        rows: with their weights, in the order of components, rivals and states.
        residual: length of the weighted sums relative to the longest row: zero but for rounding.
    """

    shares: dict[int, float]
    rows: tuple[Conflict, ...]
    residual: float

    def __str__(self) -> str:
        telling = {action: share for action, share in self.shares.items() if share > 1e-6}
        if len(telling) == 1:
            (action,) = telling
            return f"action {action} cannot be told from the expert's: its advantages cancel within every component"
        shares = ", ".join(f"action {action} ({share:.2g})" for action, share in telling.items())
        order = ranked(np.array([row.weight for row in self.rows]), np.arange(len(self.rows)))
        clearest = self.rows[order[0]].component
        first = [self.rows[r] for r in order if self.rows[r].component == clearest][:4]
        places = ", ".join(f"{row.action} at {_place(row.state)} ({row.weight:.2g})" for row in first)
        return f"{shares} cancel out in every component, as in {clearest}: {places} (weights in brackets)"


def _place(state: Array) -> str:
    return f"({', '.join(f'{x:.4g}' for x in state)})" if len(state) > 1 else f"{state[0]:.4g}"
