"""What the experiments with Gymnasium share: an expert that plans on the environment's own reward, and mean returns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import certirl

TORQUES = {"Pendulum-v1": [-2.0, 0.0, 2.0]}


class Setting(NamedTuple):
    """An environment: its simulator, its expert, and the mean returns of the expert and of random play."""

    simulator: Any
    expert: Any
    best: float
    random: float

    def share(self, earned: float) -> float:
        """A return on the scale where random play is 0 and the expert 1."""
        return (earned - self.random) / (self.best - self.random)


@lru_cache(maxsize=8)
def setting(name: str, discount: float, episodes: int) -> Setting:
    """The setting of an environment, without noise."""
    simulator = certirl.gym.simulator(name, actions=TORQUES.get(name))
    expert = certirl.planning.plan(simulator, discount=discount)
    best, random = (float(returns(name, policy, episodes).mean()) for policy in (expert, None))
    return Setting(simulator, expert, best, random)


def returns(name: str, policy: Any, episodes: int) -> Any:
    """Returns under the environment's own reward ``[episodes]``, from the same first states for every policy."""
    return certirl.gym.episode_returns(name, policy, episodes=episodes, rng=0, actions=TORQUES.get(name))
