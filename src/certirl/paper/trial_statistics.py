"""Statistics of repeated trials: straight lines and power laws with their uncertainty, bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from certirl.ground.domain import Array


@dataclass(frozen=True)
class Line:
    """``y ≈ intercept + slope·x``, fitted by least squares."""

    # slope, intercept: the line
    slope: float
    intercept: float
    # low, high: a 95 % interval for the slope by Student's t, for points that scatter independently
    low: float
    high: float
    r2: float  # the share of the variance of y that the line explains
    points: int  # how many points it rests on


def fit_line(x: ArrayLike, y: ArrayLike) -> Line:
    """Fit a straight line; its interval assumes even, independent scatter."""
    from scipy.stats import linregress
    from scipy.stats import t as student

    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if xs.shape != ys.shape or xs.ndim != 1 or len(xs) < 3:
        raise ValueError(f"a line needs at least three points [n] and [n], got {list(xs.shape)} and {list(ys.shape)}")
    fit = linregress(xs, ys)
    reach = float(student.ppf(0.975, len(xs) - 2) * fit.stderr)
    slope = float(fit.slope)
    return Line(slope, float(fit.intercept), slope - reach, slope + reach, float(fit.rvalue**2), len(xs))


def fit_power_law(x: ArrayLike, y: ArrayLike) -> Line:
    """Fit ``y ≈ C·x^p``: a line through the logarithms, whose slope is p."""
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if (xs <= 0).any() or (ys <= 0).any():
        raise ValueError("a power law needs positive numbers")
    return fit_line(np.log(xs), np.log(ys))


def bootstrap(
    outcomes: ArrayLike, statistic: Callable[[Any], Any] = np.mean, *, rng: np.random.Generator, draws: int = 2000
) -> tuple[float, float]:
    """A 95 % percentile interval of a statistic of trials ``[trials, …]``, by drawing trials with replacement."""
    values = np.asarray(outcomes)
    count = len(values)
    if statistic is np.mean and values.dtype == bool:  # redrawing yes and no is a binomial draw
        redrawn: Array = rng.binomial(count, values.mean(), draws) / count
    else:
        redrawn = np.array([statistic(values[rng.integers(count, size=count)]) for _ in range(draws)])
    low, high = np.percentile(redrawn, [2.5, 97.5], method="inverted_cdf")  # which takes infinities as they are
    return float(low), float(high)


def crossing(x: ArrayLike, shares: ArrayLike, level: float) -> float:
    """The smallest x beyond which every share reaches the level, between two points by the logarithm of x.

    Infinite if the last share is below the level; the first x if none is.
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    below = np.flatnonzero(ys < level)
    if not len(below):
        return float(xs[0])
    last = int(below[-1])
    if last + 1 == len(xs):
        return float("inf")
    share = (level - ys[last]) / (ys[last + 1] - ys[last])
    return float(np.exp(np.log(xs[last]) + share * np.log(xs[last + 1] / xs[last])))
