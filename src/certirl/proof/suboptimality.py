"""Inexact experts: how far from the best an action of theirs may be, as a share of what the reward spans.

docs/notes/certificate.md, (11) in section 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np

from certirl.functions.reward import BoundedReward, trial_states
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array
from certirl.ground.doors import as_number
from certirl.ground.records import Record, internal
from certirl.ground.status import rounded_down
from certirl.proof.surrogate import Surrogate


@archive.record
@dataclass(frozen=True, eq=False)
class Suboptimality(Record):
    """How much less than the best an action of the expert may be worth: a share of what the reward spans.

    Attributes:
        share: ξ, of the span.
        span: the difference of R at two places, the largest and the least of many: what R spans at least.
        places: these states ``[2, d]``.
        actions: the expert's actions there.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail, "rng": 1}
        >>> asked |= {"samples": 20_000, "suboptimality": 0.1}
        >>> declared = certirl.certify(lambda states: states[:, 0], room, **asked).suboptimality
        >>> declared.share, declared.span, round(declared.amount, 9)
        (0.1, 10.0, 1.0)
    """

    share: float
    span: float
    places: Annotated[Array, Shape("2 d")]
    actions: tuple[int, ...]

    @internal
    def as_read(self, file: str) -> Suboptimality:
        """The same, if it can be."""
        as_share(self.share)
        if not self.span >= 0 or len(self.actions) != 2:
            raise ValueError("span must be the difference of the reward at two places, under one action each")
        return self

    @property
    def amount(self) -> float:
        """How much less than the best an action may be worth, in units of R."""
        return self.share * self.span

    def __str__(self) -> str:
        least = rounded_down(self.span)
        return f"within {-rounded_down(-self.amount):.3g} ({self.share:g} of the {least:.3g} that R spans)"


def required(suboptimality: Suboptimality | None, discount: float) -> float:
    """What a margin must exceed: 0, or −ξS/γ for an inexact expert."""
    return 0.0 if suboptimality is None else -suboptimality.amount / discount


def as_share(suboptimality: Any) -> float | None:
    """The share asked for; None where every action must be strictly best."""
    if suboptimality is None:
        return None
    return as_number(
        suboptimality, "suboptimality", least=0, most=1, strict=True, meaning="a share of what the reward spans"
    )


def declared(
    share: float | None, surrogates: Sequence[Surrogate], whole: Callable[[list[Array]], Array]
) -> Suboptimality | None:
    """What is declared, in units of the reward, from the share ξ; None where nothing is.

    Surrogates are those of the components with a reward, and ``whole`` joins states of these ``[d]`` to a whole one.
    """
    if share is None:
        return None
    each = [_extremes(surrogate.reward, surrogate.used) for surrogate in surrogates]
    places = np.stack([whole([states[end] for states, _, _ in each]) for end in (0, 1)])
    span = sum(surrogate.unit * height for surrogate, (_, _, height) in zip(surrogates, each, strict=True))
    return Suboptimality(share, span, places, tuple(each[0][1]))


def declared_at(share: float | None, states: Array, values: Array, used: Sequence[int]) -> Suboptimality | None:
    """The same for a reward that is linear between these states, from its values under actions ``[u, n]``."""
    if share is None:
        return None
    places, actions, height = _ends(states, values, used)
    return Suboptimality(share, height, places, tuple(actions))


@lru_cache(maxsize=16)
def _extremes(reward: BoundedReward, used: tuple[int, ...]) -> tuple[Array, list[int], float]:
    """Where a reward is about largest and least under these actions ``[2, d]``, under which, and the difference."""
    states = trial_states(reward.domain)
    return _ends(states, np.stack([reward(states, action if reward.of_actions else None) for action in used]), used)


def _ends(states: Array, values: Array, used: Sequence[int]) -> tuple[Array, list[int], float]:
    """The same of values at states ``[u, n]``, a row for each action."""
    ends = np.array([np.unravel_index(values.argmax(), values.shape), np.unravel_index(values.argmin(), values.shape)])
    return states[ends[:, 1]], [int(used[index]) for index in ends[:, 0]], float(values.max() - values.min())
