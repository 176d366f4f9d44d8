"""Rewards with a range: proved for expansions, otherwise declared or estimated on a grid.

Certificates and scenarios need bounds of R. They also square numbers of the size of R, so that R is divided by a power
of two that brings its range near 1 first: nothing underflows or overflows, and no digit changes. A range that is not
proved is compared with every value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.functions.components import SumBasis
from certirl.functions.reward import Reward, RewardLike, values_of
from certirl.ground import archive
from certirl.ground.domain import Array, Domain, describe, mesh, uniform_states
from certirl.ground.doors import as_number, shown, some_rows

# States along each coordinate at which the range of a plain function is estimated, by the number of coordinates.
_ALONG = {1: 4001, 2: 301, 3: 61}
_DRAWN = 100_000  # states drawn for more coordinates
_ROUNDING = (
    1e-12  # of the largest |R|: excess over a declared end that counts as rounding, less than certificates allow
)
_ALIKE = 1e-4  # of the range: the largest difference of the answers of two calls, as in single precision
_SMALLEST, _LARGEST = 1e-250, 1e250  # ranges that can be normalised; margins may be far below them
_NOT_SQUARED = "which double precision cannot square: multiply it by a positive constant, which changes no policy"


@archive.record
@dataclass(frozen=True, eq=False)
class BoundedReward:
    """``R(s)/unit`` with ``low ≤ R/unit ≤ high``, callable on states ``[n, d]``.

    Attributes:
        function: R; None in a file, unless it is an expansion.
        low: the lower bound, in units.
        high: the upper bound, in units.
        unit: a power of two.
        source: of the range: "proved", "declared" or "looked up".
        domain: the box of states.
    """

    thread_safe: ClassVar[bool] = True  # `values_of` calls the function
    function: RewardLike | None
    low: float
    high: float
    unit: float
    source: str
    domain: Domain

    def as_read(self, file: str) -> BoundedReward:
        """Refuse a range or a unit that is none."""
        as_range((self.low, self.high))
        as_number(self.unit, "unit", least=0, strict=True)
        if self.source not in ("proved", "declared", "looked up") or (self.source == "proved") != (
            self.basis is not None
        ):
            raise ValueError(f"the range of a reward must be proved, declared or looked up, got {shown(self.source)}")
        return self

    def __call__(self, states: Array) -> Array:
        """R at states ``[n]``, in units."""
        if self.function is None:
            raise ValueError("the reward is not in the file: certify it again, or keep the reward beside the file")
        values = values_of(self.function, states) / self.unit
        if self.source != "proved" and len(values):
            slack = _ROUNDING * max(abs(self.low), abs(self.high))
            outside = ~((values >= self.low - slack) & (values <= self.high + slack))
            if outside.any():
                row = int(outside.argmax())
                place = ", ".join(f"{x:.6g}" for x in np.asarray(states, dtype=float).reshape(len(values), -1)[row])
                low, high = self.range
                instead = "correct" if self.source == "declared" else "declare it: pass"
                raise ValueError(
                    f"the reward is {values[row] * self.unit:.6g} at s = {place}, outside its {self.source} range "
                    f"[{low:.6g}, {high:.6g}]: {instead} reward_range=(low, high)"
                )
        return values

    @property
    def basis(self) -> Basis | Cells | SumBasis | None:
        """The functions of which R is an expansion; None if it is none."""
        return getattr(self.function, "basis", None) if self.source == "proved" else None

    @property
    def coefficients(self) -> Array:
        """The coefficients of R in its basis, in units."""
        return np.asarray(self.function.coefficients / self.unit)  # type: ignore[union-attr]

    @property
    def range(self) -> tuple[float, float]:
        """The bounds of R."""
        return self.low * self.unit, self.high * self.unit

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumption about the range, in words; none if it is proved."""
        if self.source == "proved":
            return ()
        low, high = self.range
        return (f"the reward stays within [{low:.4g}, {high:.4g}] on {describe(self.domain)} ({self.source})",)

    def normalised(self) -> BoundedReward:
        """The same in a unit in which its range is between 1 and 2."""
        unit = unit_of(self.high - self.low, max(abs(self.low), abs(self.high)))
        return replace(self, low=self.low / unit, high=self.high / unit, unit=unit * self.unit)


def bounded(reward: RewardLike, domain: Domain, declared: Any = None) -> BoundedReward:
    """A reward with its range, proved if it is an expansion.

    Args:
        reward: any function of states ``[n, d]``.
        domain: the box of states.
        declared: ``(low, high)``; if None and the range is not proved, it is estimated on a grid.
    """
    proved = proved_range(reward)
    if declared is None:
        low, high = proved or _looked_up(reward, domain)
        return BoundedReward(reward, low, high, 1.0, "proved" if proved else "looked up", domain)
    low, high = as_range(declared)
    result = BoundedReward(reward, low, high, 1.0, "declared", domain)
    _trial_values(result, domain)
    return result if proved is None else replace(result, low=proved[0], high=proved[1], source="proved")


def as_range(declared: Any) -> tuple[float, float]:
    """Check a declared range: two finite numbers, the lower one first."""
    try:
        low, high = (as_number(end, "an end of reward_range") for end in declared)
    except (TypeError, ValueError):
        raise ValueError(f"reward_range must be two finite numbers (low, high), got {shown(declared)}") from None
    if not low <= high:
        raise ValueError(f"reward_range must be (low, high) with low ≤ high, got {shown(declared)}")
    return low, high


def unit_of(span: float, largest: float) -> float:
    """The largest power of two up to the range of a reward; 1 for a constant one.

    Args:
        span: the highest value of the reward less its lowest, roughly.
        largest: its largest absolute value.
    """
    if span == 0:
        return 1.0
    if not _SMALLEST <= span <= _LARGEST or not largest <= _LARGEST:
        raise ValueError(f"the reward has a range of {span:.3g} and values up to {largest:.3g}, {_NOT_SQUARED}")
    return math.ldexp(1.0, math.frexp(span)[1] - 1)


def proved_range(reward: RewardLike) -> tuple[float, float] | None:
    """Bounds of an expansion that need no assumption; None for any other function."""
    if not isinstance(reward, Reward):
        return None
    largest = float(np.abs(reward.coefficients).max(initial=0.0))
    if largest > _LARGEST:
        raise ValueError(f"the reward has coefficients up to {largest:.3g}, {_NOT_SQUARED}")
    return reward.range


def _looked_up(reward: RewardLike, domain: Domain) -> tuple[float, float]:
    """The range over many states, enlarged by a twentieth on both sides."""
    values = _trial_values(reward, domain)
    low, high = float(values.min()), float(values.max())
    more = 0.05 * (high - low) + 1e-12 * max(abs(low), abs(high))
    return low - more, high + more


def _trial_values(reward: RewardLike, domain: Domain) -> Array:
    """R at the trial states ``[n]``, checked to depend on one state alone by further calls."""
    states = trial_states(domain)
    values, rows = values_of(reward, states), some_rows(len(states))
    calls = [rows, *np.split(rows[:67], [1, 7])]  # of many states, and of 1, 6 and 60
    again = np.concatenate([values_of(reward, states[call]) for call in calls if len(call)])
    rows = np.concatenate(calls)
    change = np.abs(again - values[rows])
    low, high = float(values.min()), float(values.max())
    if change.max() > _ALIKE * (high - low) + 1e-6 * max(abs(low), abs(high)):
        place = ", ".join(f"{x:.6g}" for x in states[rows][change.argmax()])
        raise ValueError(
            f"the reward at s = {place} changes by {change.max():.3g} with the other states of the call: it must "
            "depend on one state alone, without means, maxima or ranks over the states"
        )
    return values


def trial_states(domain: Domain) -> Array:
    """States ``[n, d]`` for a trial: a mesh; random for more than three coordinates."""
    if len(domain) in _ALONG:
        return mesh([np.linspace(low, high, _ALONG[len(domain)]) for low, high in domain])
    return uniform_states(domain, _DRAWN, np.random.default_rng(0))
