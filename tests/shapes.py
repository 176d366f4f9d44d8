"""Shapes of rewards along an interval."""

import numpy as np


def extrema(reward):
    """How often a reward of one coordinate, under action 0, turns from rising to falling or back in its interval."""
    steps = np.diff(reward.for_action(0)(np.linspace(*reward.domain[0], 2_001)))
    rising = steps[np.abs(steps) > 1e-9 * np.abs(steps).max()] > 0  # rounding turns nowhere
    return int((rising[1:] != rising[:-1]).sum())
