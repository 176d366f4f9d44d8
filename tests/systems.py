"""Simulators that many tests use: steps with normal noise, and coins, whose two columns are exact."""

import numpy as np


class Moving:
    """s' = keep·s + a step of the action + std·ξ with normal ξ, clipped to a box; without noise if std is 0.

    Further members of a simulator, such as a tail, are keywords.
    """

    def __init__(self, domain, steps, *, keep=1.0, std=0.0, **more):
        self.domain, self.n_actions = domain, len(steps)
        self.steps, self.keep, self.std = steps, keep, std
        vars(self).update(more)

    def sample(self, states, action, rng):
        noise = self.std * rng.standard_normal(states.shape) if np.any(self.std) else 0.0
        return np.clip(self.keep * states + self.steps[action] + noise, *np.transpose(self.domain))


class Coins:
    """Every coordinate goes to ±0.8, to the right with a probability that is linear in it: two columns, tail 0."""

    def __init__(self, shares, slopes, dimension=1):
        self.shares, self.slopes = np.array(shares, dtype=float), np.array(slopes, dtype=float)
        self.n_actions, self.domain = len(shares), ((-1.0, 1.0),) * dimension

    def sample(self, states, action, rng):
        return np.where(rng.random(states.shape) < self.shares[action] + self.slopes[action] * states, 0.8, -0.8)
