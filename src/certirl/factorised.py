"""Problems of several independent components, with their truth: sums of the components' own minima."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from certirl.bases import Basis
from certirl.components import AdditiveReward
from certirl.domain import Array, Domain, describe
from certirl.estimate import Operators
from certirl.reward import RewardLike


class _Part(Protocol):
    """A problem in one component, as `problems.Problem` is."""

    @property
    def n_actions(self) -> int: ...

    @property
    def domain(self) -> Domain: ...

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array: ...

    def operators(self, basis: Basis, columns: int | None = None) -> Operators: ...

    def tail(self, columns: Basis) -> float: ...

    def true_margins(self, reward: RewardLike, *, discount: float, expert: int = 0) -> Array: ...


@dataclass(frozen=True, eq=False)
class Factorised:
    """``p_a(s'|s) = Π_j p_ja(s'_j|s_j)``: problems side by side that share the action, one coordinate each.

    Attributes:
        name: what to call it.
        parts: the problem of each component.
    """

    name: str
    parts: tuple[_Part, ...]
    thread_safe: ClassVar[bool] = True

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self.parts[0].n_actions

    @property
    def domain(self) -> Domain:
        """One pair for each component."""
        return tuple(part.domain[0] for part in self.parts)

    @property
    def components(self) -> list[list[int]]:
        """What `certirl.solve` wants to hear: one coordinate each."""
        return [[j] for j in range(len(self.parts))]

    def __str__(self) -> str:
        box = describe(self.domain) if len(self.parts) <= 4 else f"{len(self.parts)} coordinates"
        return f"{self.name}: {self.n_actions} actions on {box}"

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Draw s'_j ~ p_ja(· | s_j), one component after the other."""
        drawn = [np.ravel(part.sample(states[:, [j]], action, rng)) for j, part in enumerate(self.parts)]
        return np.stack(drawn, axis=1)

    def operators(self, basis: Basis, columns: int | None = None) -> list[Operators]:
        """The exact operators of every component."""
        return [part.operators(basis, columns) for part in self.parts]

    def tail(self, columns: Basis) -> float:
        """τ of a certificate, the same for every component."""
        return max(part.tail(columns) for part in self.parts)

    def true_margins(self, reward: AdditiveReward, *, discount: float, expert: int = 0) -> Array:
        """min_s of the true D_a(s), rivals in order ``[A − 1]``: the minimum of a sum over a box is the sum of minima.

        Nothing is used of how the reward was found; each component's minimum is found without any basis.
        """
        if not isinstance(reward, AdditiveReward):
            raise TypeError(f"the truth is known for an AdditiveReward, got {type(reward).__name__}")
        if list(reward.coordinates) != [(j,) for j in range(len(self.parts))]:
            raise ValueError(f"the reward's components must be {self.components}, got {list(reward.coordinates)}")
        asked: dict[str, Any] = {"discount": discount, "expert": expert}
        pairs = zip(self.parts, reward.parts, strict=True)
        return np.sum([part.true_margins(own, **asked) for part, own in pairs], axis=0)

    def true_margin(self, reward: AdditiveReward, *, discount: float, expert: int = 0) -> float:
        """min over states and rivals of the true D_a(s): positive exactly when the expert is strictly optimal."""
        return float(self.true_margins(reward, discount=discount, expert=expert).min())
