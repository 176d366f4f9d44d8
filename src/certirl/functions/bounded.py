"""Rewards with a known range: proved for expansions, else declared or looked up, and compared with every value seen.

Certificates and scenarios rest on bounds of R. They square numbers of the size of R as well, so R is first divided by
a power of two that brings its range near 1: nothing underflows or overflows, and no digit changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from certirl.functions.bases import Basis
from certirl.functions.box_products import on_box
from certirl.functions.cells import Cells
from certirl.functions.extrema import value_range
from certirl.functions.reward import Reward, RewardLike, values_of
from certirl.ground.domain import Array, Domain, describe
from certirl.ground.doors import as_number, shown, some_rows

# States along each coordinate where the range of a plain function is looked up.
_LOOKED_UP = {1: 4001, 2: 301, 3: 61}
_DRAWN = 100_000  # states at which it is looked up on boxes of more coordinates
_ROUNDING = 1e-12  # of the largest |R|: how far values may pass a declared end; less than what certificates allow for
_ALIKE = 1e-4  # of the range: how far the answers of two calls may differ, in single precision for example
_SMALLEST, _LARGEST = 1e-250, 1e250  # ranges that can be normalised, with room for margins far below them


@dataclass(frozen=True, eq=False)
class BoundedReward:
    """``R(s)/unit`` with ``low ≤ R/unit ≤ high``, callable on states ``[n, d]``; every value is compared.

    Attributes:
        function: R, as the user gave it.
        low: the lower bound, in units.
        high: the upper bound, in units.
        unit: a power of two.
        source: "proved", "declared" or "looked up".
        domain: the box of states.
    """

    thread_safe: ClassVar[bool] = True  # the function is not asked by several threads at once unless it is
    function: RewardLike
    low: float
    high: float
    unit: float
    source: str
    domain: Domain

    def __call__(self, states: Array) -> Array:
        """R at states ``[n]``, in units."""
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
    def basis(self) -> Basis | Cells | None:
        """The functions that R is an expansion in; None if it is none."""
        return self.function.basis if self.source == "proved" else None  # type: ignore[attr-defined]

    @property
    def coefficients(self) -> Array:
        """Those of R in its basis, in units."""
        return np.asarray(self.function.coefficients / self.unit)  # type: ignore[attr-defined]

    @property
    def range(self) -> tuple[float, float]:
        """The bounds on R itself."""
        return self.low * self.unit, self.high * self.unit

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be believed of the range, in words; nothing if it is proved."""
        if self.source == "proved":
            return ()
        low, high = self.range
        return (f"the reward stays within [{low:.4g}, {high:.4g}] on {describe(self.domain)} ({self.source})",)

    def normalised(self) -> BoundedReward:
        """The same in a unit in which its range is between 1 and 2."""
        unit = unit_of(self.high - self.low, max(abs(self.low), abs(self.high)))
        return replace(self, low=self.low / unit, high=self.high / unit, unit=unit)


def bounded(reward: RewardLike, domain: Domain, declared: Any = None) -> BoundedReward:
    """A reward with its range: proved if it is an expansion or piecewise linear, else declared, else looked up.

    Args:
        reward: any function of states ``[n, d]``.
        domain: the box of states.
        declared: ``(low, high)``, or None.
    """
    known = proved_range(reward)
    if declared is None:
        low, high = known or _looked_up(reward, domain)
        return BoundedReward(reward, low, high, 1.0, "proved" if known else "looked up", domain)
    low, high = as_range(declared)
    found = BoundedReward(reward, low, high, 1.0, "declared", domain)
    _tried(found, domain)
    return found if known is None else replace(found, low=known[0], high=known[1], source="proved")


def as_range(declared: Any) -> tuple[float, float]:
    """Two finite numbers, the lower one first."""
    try:
        low, high = (as_number(end, "an end of reward_range") for end in declared)
    except (TypeError, ValueError):
        raise ValueError(f"reward_range must be two finite numbers (low, high), got {shown(declared)}") from None
    if not low <= high:
        raise ValueError(f"reward_range must be (low, high) with low ≤ high, got {shown(declared)}")
    return low, high


def unit_of(spread: float, largest: float) -> float:
    """The power of two nearest below the range of a reward, 1 for a constant one.

    Args:
        spread: how far the reward reaches from its lowest to its highest value, roughly.
        largest: its largest absolute value.
    """
    if spread == 0:
        return 1.0
    if not _SMALLEST <= spread <= _LARGEST or not largest <= _LARGEST:
        raise ValueError(
            f"the reward reaches over {spread:.3g} and up to {largest:.3g} in size, which double precision cannot "
            "square: multiply it by a positive constant, which changes no policy"
        )
    return math.ldexp(1.0, math.frexp(spread)[1] - 1)


def scaled_expansion(reward: Reward) -> tuple[Reward, float]:
    """An expansion divided by a power of two near its size, the constant apart, and that power."""
    sizes = np.abs(reward.coefficients)
    unit = unit_of(float(sizes[1:].max(initial=0.0)), float(sizes.max()))
    return Reward(reward.basis, reward.coefficients / unit), unit


def proved_range(reward: RewardLike) -> tuple[float, float] | None:
    """Bounds that need no assumption: of expansions, and of functions that are linear between grid points."""
    basis, coefficients = getattr(reward, "basis", None), getattr(reward, "coefficients", None)
    if coefficients is None or getattr(reward, "ended", None) is not None:
        return None
    if isinstance(basis, Cells):  # between its grid points, at which it is its coefficients
        return float(coefficients.min()), float(coefficients.max())
    if isinstance(basis, Basis):
        return value_range(basis, coefficients)
    return None


def _looked_up(reward: RewardLike, domain: Domain) -> tuple[float, float]:
    """The range over many states, a twentieth added."""
    values = _tried(reward, domain)
    low, high = float(values.min()), float(values.max())
    room = 0.05 * (high - low) + 1e-12 * max(abs(low), abs(high))
    return low - room, high + room


def _tried(reward: RewardLike, domain: Domain) -> Array:
    """R at the trial states ``[n]``; some of them are asked about again, since R must depend on one state alone."""
    states = trial_states(domain)
    values, again = values_of(reward, states), some_rows(len(states))
    parts = [again, *np.split(again[:67], [1, 7])]  # many states, and calls of 1, 6 and 60 of them
    some = np.concatenate(parts)
    apart = np.abs(np.concatenate([values_of(reward, states[part]) for part in parts if len(part)]) - values[some])
    low, high = float(values.min()), float(values.max())
    if apart.max() > _ALIKE * (high - low) + 1e-6 * max(abs(low), abs(high)):
        place = ", ".join(f"{x:.6g}" for x in states[some][apart.argmax()])
        raise ValueError(
            f"the reward at s = {place} changes by {apart.max():.3g} with the other states of the call: it must depend "
            "on one state alone, without means, maxima or ranks over the states"
        )
    return values


def trial_states(domain: Domain) -> Array:
    """States at which a reward is tried out: a mesh, or drawn on boxes of more than three coordinates ``[n, d]``."""
    if len(domain) in _LOOKED_UP:
        return on_box(domain, _LOOKED_UP)
    low, high = np.array(domain).T
    return np.asarray(low + (high - low) * np.random.default_rng(0).random((_DRAWN, len(domain))))
