"""Problems of several independent components, with their truth: sums of the components' own minima."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from certirl.fit.estimate import Operators
from certirl.functions.bases import Basis
from certirl.functions.components import AdditiveReward, as_components
from certirl.functions.reward import RewardLike
from certirl.ground.domain import Array, Domain, describe
from certirl.kernels.tensors import torch


class _Part(Protocol):
    """A problem in one component, as `problems.Problem` and `box_problems.BoxProblem` are."""

    @property
    def n_actions(self) -> int: ...

    @property
    def domain(self) -> Domain: ...

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array: ...

    def operators(self, basis: Basis, columns: int | None = None) -> Operators: ...

    def true_margins(self, reward: RewardLike, *, discount: float, expert: int = 0) -> Array: ...


@dataclass(frozen=True, eq=False)
class Factorised:
    """``p_a(s'|s) = Π_j p_ja(s'_j|s_j)``: problems side by side that share the action, each with its coordinates.

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
        """Those of the parts, one after the other."""
        return tuple(side for part in self.parts for side in part.domain)

    @property
    def components(self) -> list[list[int]]:
        """What `certirl.solve` wants to hear: the coordinates of each part."""
        ends = np.cumsum([len(part.domain) for part in self.parts]).tolist()
        return [list(range(end - len(part.domain), end)) for part, end in zip(self.parts, ends, strict=True)]

    def __str__(self) -> str:
        box = describe(self.domain) if len(self.domain) <= 4 else f"{len(self.domain)} coordinates"
        return f"{self.name}: {self.n_actions} actions on {box}"

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Draw s'_j ~ p_ja(· | s_j), one component after the other."""
        pairs = zip(self.parts, self.components, strict=True)
        drawn = [part.sample(states[:, own], action, rng).reshape(-1, len(own)) for part, own in pairs]
        return np.concatenate(drawn, axis=1)

    def to(self, device: Any) -> DeviceFactorised:
        """The same problem as a simulator of torch tensors on a device, if its parts can be."""
        parts: list[Any] = list(self.parts)
        return DeviceFactorised(self, [part.to(device) for part in parts], device)

    def operators(
        self, basis: Basis | Sequence[Basis] | None, columns: int | Sequence[int] | None = None
    ) -> list[Operators]:
        """The exact operators of every component; bases and columns are one for all or one for each."""
        placed = as_components(self.components, basis, self.domain)
        sizes = columns if isinstance(columns, Sequence) else [columns] * len(self.parts)
        found = zip(self.parts, placed, sizes, strict=True)
        return [part.operators(component.basis, size) for part, component, size in found]

    def tail(self, columns: Basis) -> float:
        """τ of a certificate, the same for every component that the columns fit."""
        parts: list[Any] = [part for part in self.parts if len(part.domain) == columns.dimension]
        return max(part.tail(columns) for part in parts)

    def true_margins(self, reward: AdditiveReward, *, discount: float, expert: int = 0) -> Array:
        """min_s of the true D_a(s), rivals in order ``[A − 1]``: the minimum of a sum over a box is the sum of minima.

        Nothing is used of how the reward was found; each component's minimum is found without any basis.
        """
        if not isinstance(reward, AdditiveReward):
            raise TypeError(f"the truth is known for an AdditiveReward, got {type(reward).__name__}")
        if list(map(list, reward.coordinates)) != self.components:
            raise ValueError(f"the reward's components must be {self.components}, got {list(reward.coordinates)}")
        asked: dict[str, Any] = {"discount": discount, "expert": expert}
        pairs = zip(self.parts, reward.parts, strict=True)
        return np.sum([part.true_margins(own, **asked) for part, own in pairs], axis=0)

    def true_margin(self, reward: AdditiveReward, *, discount: float, expert: int = 0) -> float:
        """min over states and rivals of the true D_a(s): positive exactly when the expert is strictly optimal."""
        return float(self.true_margins(reward, discount=discount, expert=expert).min())


class DeviceFactorised:
    """Problems side by side whose states are torch tensors on a device.

    Attributes:
        problem: the problem, which knows the truth.
        device: where tensors live.
    """

    thread_safe = True

    def __init__(self, problem: Factorised, parts: Sequence[Any], device: Any) -> None:
        self.problem, self.device, self._parts = problem, device, parts
        self.n_actions, self.domain = problem.n_actions, problem.domain

    def __str__(self) -> str:
        return f"{self.problem} on {self.device}"

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """As `Factorised.sample`, with a torch Generator."""
        pairs = zip(self._parts, self.problem.components, strict=True)
        drawn = [part.sample(states[:, own], action, rng).reshape(-1, len(own)) for part, own in pairs]
        return torch().cat(drawn, dim=1)
