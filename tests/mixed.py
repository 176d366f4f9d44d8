"""A problem that no reward explains, made of any other problem."""

from dataclasses import dataclass, field

import numpy as np

from certirl.ground.domain import Array, Box
from certirl.problems import Problem


@dataclass(frozen=True, eq=False)
class Mixed(Problem):
    """No reward explains action 0: it is the even mixture of actions 1 and 2, so it can beat at most one of them.

    Attributes:
        others: the problem whose first two actions become actions 1 and 2.
    """

    others: Problem
    name: str = field(init=False)
    domain: Box = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"unsolvable {self.others.name}")
        object.__setattr__(self, "domain", self.others.domain)

    @property
    def n_actions(self) -> int:
        """Three."""
        return 3

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        if action:
            return self.others.density(next_states, states, action - 1)
        return np.asarray(sum(self.others.density(next_states, states, a) for a in (0, 1)) / 2)

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """One of the two other actions with probability ½ each, or the one asked for."""
        if action:
            return self.others.sample(states, action - 1, rng)
        heads = rng.random((len(states), *[1] * (np.ndim(states) - 1))) < 0.5
        return np.where(heads, self.others.sample(states, 0, rng), self.others.sample(states, 1, rng))
