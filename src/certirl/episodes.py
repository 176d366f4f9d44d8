"""Episodes: a walk through states, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certirl.domain import Array, as_rows, freeze
from certirl.transitions import as_actions


@dataclass(frozen=True, eq=False)
class Episode:
    """One walk ``s_0, a_0, s_1, …, s_T``.

    Attributes:
        states: ``[T + 1, d]``, the last one included.
        actions: ``[T]``.
        terminated: the last state is terminal; False if the walk was merely cut off (truncated).
        rewards: the environment's own, ``[T]``; None if they were not kept.
    """

    states: Array
    actions: NDArray[np.intp]
    terminated: bool = False
    rewards: Array | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.states)
        states = as_rows(self.states, shape[1] if len(shape) == 2 else 1, name="states of an episode")
        actions = as_actions(self.actions)
        if len(states) != len(actions) + 1:
            raise ValueError(
                f"an episode of {len(actions)} actions has {len(actions) + 1} states, the last one included; "
                f"got {len(states)}"
            )
        if self.rewards is not None and np.shape(self.rewards) != (len(actions),):
            raise ValueError(f"an episode of {len(actions)} actions has as many rewards, got {np.shape(self.rewards)}")
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "terminated", bool(self.terminated))
        freeze(self)

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def total(self) -> float:
        """The undiscounted sum of the rewards."""
        if self.rewards is None:
            raise ValueError("this episode was kept without its rewards")
        return float(np.sum(self.rewards))
