"""Who replaces the engines of buses, as in Rust (1987): a soft expert whose reward is known, and the original files.

Its policy is computed on a fine grid of mileages, without any basis of the library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from certirl.data.simulator import as_generator
from certirl.data.transitions import Transitions
from certirl.ground.domain import Array, Box, as_domain, as_states
from certirl.ground.doors import as_count, as_listed, as_number, as_probability, shown, typed
from certirl.ground.records import Record

MOST_MILEAGE, POINTS = 110.0, 1101  # of the grid
_USED, _SHAPE = 2.0, (3.3, 6.7)  # usage of a month: the largest, and the shape of a beta distribution
_QUANTILES = 400  # that stand for this distribution in the equation of the value
_ROUNDS = 100  # of Newton's method
# The original files by name, group by group: rows of each bus, and buses.
_FILES = {"g870": (36, 15), "rt50": (60, 4), "t8h203": (81, 48), "a530875": (128, 37)}
_HEADER, _REPLACED = 11, (5, 8)  # rows of a bus before its readings, and those of the mileages at replacements
_MILES = 5_000.0  # of a unit of mileage


@dataclass(frozen=True, eq=False)
class Buses(Record):
    """Buses whose engines are replaced by a soft expert: the state is the mileage of an engine, in 5,000 miles.

    Every month action 0 keeps the engine, for ``R = −0.001·cost·mileage``, and action 1 replaces it, for
    ``R = −replacement``. Then the bus is used: 0 to 10,000 miles, 3,300 on average, independent of everything before.

    Attributes:
        cost: of a month of maintenance, in thousandths for each 5,000 miles (θ₁₁ of the literature).
        replacement: the cost of a new engine (RC).
        discount: γ of a month.

    Example:
        >>> buses = certirl.problems.buses()
        >>> buses.chances([0.0, 40.0, 80.0])[:, 1].round(4)
        array([0.    , 0.0121, 0.0754])
        >>> print(buses.log(buses=3, months=12, rng=0))
        36 transitions on [0, 110]; per action: 36, 0
    """

    cost: float = 2.5
    replacement: float = 10.0
    discount: float = 0.9999
    n_actions: ClassVar[int] = 2
    domain: ClassVar[Box] = as_domain((0, MOST_MILEAGE))
    thread_safe: ClassVar[bool] = True

    def __post_init__(self) -> None:
        as_number(self.cost, "cost", least=0)
        as_number(self.replacement, "replacement")
        as_probability(self.discount, "discount")

    def __str__(self) -> str:
        return f"buses: cost {self.cost:g}, replacement {self.replacement:g}, discount {self.discount:g}"

    def reward(self, states: ArrayLike, action: int) -> Array:
        """R(s, a) ``[n]``.

        Example:
            >>> buses.reward([0.0, 40.0], 0)
            array([-0. , -0.1])
        """
        mileage = as_states(states, self.domain)[:, 0]
        return np.full(len(mileage), -self.replacement) if action else -0.001 * self.cost * mileage

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """Next states ``[n, 1]``.

        Example:
            >>> bool(buses.sample(np.array([[0.0], [40.0]]), 1, np.random.default_rng(0)).max() < 2)
            True
        """
        start = np.zeros(np.shape(states)) if action else np.asarray(states, dtype=float)
        return np.minimum(start + _USED * as_generator(rng).beta(*_SHAPE, size=start.shape), MOST_MILEAGE)

    def chances(self, states: ArrayLike) -> Array:
        """The probabilities of keeping and of replacing an engine ``[n, 2]``.

        Example:
            >>> float(buses.chances([40.0]).sum())
            1.0
        """
        from scipy.special import expit

        kept = expit(np.interp(as_states(states, self.domain)[:, 0], *self._log_odds))
        return np.stack([kept, 1 - kept], axis=1)

    @typed
    def log(self, *, buses: int = 104, months: int = 78, rng: Any = None) -> Transitions:
        """The decisions of some months, an episode for each bus, which begins with a new engine.

        Example:
            >>> buses.log(buses=50, months=60, rng=0).counts.tolist()
            [2993, 7]
        """
        generator = as_generator(rng)
        as_count(buses, "buses")
        as_count(months, "months")
        mileage, rows = np.zeros((buses, 1)), []
        for _ in range(months):
            actions = (generator.random(buses) < self.chances(mileage)[:, 1]).astype(np.intp)
            after = self.sample(np.where(actions[:, None], 0.0, mileage), 0, generator)
            rows.append((mileage, actions, after))
            mileage = after
        states, chosen, ahead = (np.stack(part, axis=1).reshape(buses * months, -1) for part in zip(*rows, strict=True))
        numbers = np.repeat(np.arange(buses), months)
        return Transitions(states, chosen[:, 0], ahead, self.domain, 2, episodes=numbers, independent=True)

    @cached_property
    def _log_odds(self) -> tuple[Array, Array]:
        """The mileages of the grid and log(π_0/π_1) there."""
        from scipy.linalg import solve_triangular
        from scipy.special import expit
        from scipy.stats import beta

        mileage = np.linspace(0.0, MOST_MILEAGE, POINTS)
        used = _USED * beta.ppf((np.arange(_QUANTILES) + 0.5) / _QUANTILES, *_SHAPE)
        places = np.minimum(mileage[:, None] + used, MOST_MILEAGE) / mileage[1]
        left = np.minimum(places.astype(np.intp), POINTS - 2)
        ahead, rows = np.zeros((POINTS, POINTS)), np.arange(POINTS)[:, None]
        np.add.at(ahead, (rows, left), (1 - places + left) / _QUANTILES)
        np.add.at(ahead, (rows, left + 1), (places - left) / _QUANTILES)
        odds = np.full(POINTS, self.replacement)
        for _ in range(_ROUNDS):
            kept = expit(odds)
            surprise = -np.log(kept) + (1 - kept) * odds  # the entropy of the policy
            paid = -0.001 * self.cost * mileage * kept - self.replacement * (1 - kept) + surprise
            # As mileage grows, the equation is triangular but for the value of a new engine.
            kept_on = np.eye(POINTS) - self.discount * kept[:, None] * ahead
            alone, renewed = solve_triangular(kept_on, np.stack([paid, self.discount * (1 - kept)], axis=1)).T
            new = ahead[0] @ alone / (1 - ahead[0] @ renewed)
            value = alone + (renewed - 1) * new  # less that of a new engine
            last, odds = odds, self.replacement - 0.001 * self.cost * mileage + self.discount * (ahead @ value)
            if np.abs(odds - last).max() < 1e-9:
                break
        return mileage, odds


@typed
def buses(*, cost: float = 2.5, replacement: float = 10.0, discount: float = 0.9999) -> Buses:
    """A simulated twin of the buses of Rust (1987), with a cost of replacing and a cost of maintenance: see `Buses`.

    Example:
        >>> print(certirl.problems.buses(cost=2.0))
        buses: cost 2, replacement 10, discount 0.9999
    """
    return Buses(cost, replacement, discount)


def read_buses(folder: str | os.PathLike[str], files: Sequence[str] = tuple(_FILES)) -> Transitions:
    """The buses of Rust (1987) from the original files: mileages in 5,000 miles, and whether an engine was replaced.

    Args:
        folder: with files ``g870.asc``, ``rt50.asc``, ``t8h203.asc`` and ``a530875.asc``, those of groups 1 to 4, which
            are not part of the library.
        files: names of the files to read.

    Returns:
        Decisions as `Buses.log` gives them, an episode for each bus.

    Example:
        >>> np.savetxt("rt50.asc", np.tile([0] * 11 + list(range(0, 147_000, 3_000)), 4))
        >>> print(certirl.problems.read_buses(".", ["rt50"]))
        192 transitions on [0, 110]; per action: 192, 0
    """
    states, actions, after, numbers = list[Array](), list[Array](), list[Array](), list[Array]()
    for name in as_listed(files, "files"):
        if name not in _FILES:
            raise ValueError(f"files must be some of {', '.join(map(repr, _FILES))}, got {shown(name)}")
        for bus in _rows_of(Path(folder) / f"{name}.asc", *_FILES[name]):
            reading, replaced = bus[_HEADER:], [mileage for mileage in bus[list(_REPLACED)] if mileage > 0]
            begun = np.zeros(len(reading))
            for mileage in replaced:
                begun[reading > mileage] = mileage
            decided = np.zeros(len(reading), dtype=np.intp)
            decided[[np.flatnonzero(reading < mileage).max() for mileage in replaced]] = 1
            since = (reading - begun) / _MILES
            states.append(since[:-1])
            actions.append(decided[:-1])
            after.append(since[1:])
            numbers.append(np.full(len(since) - 1, len(numbers)))
    if not states:
        raise ValueError("files must name one file at least")
    kept, taken, then, episodes = (np.concatenate(column) for column in (states, actions, after, numbers))
    return Transitions(kept, taken, then, Buses.domain, 2, episodes=episodes, independent=True)


def _rows_of(path: Path, rows: int, buses: int) -> Array:
    """The numbers of each bus of a file ``[buses, rows]``."""
    try:
        numbers = np.loadtxt(path).ravel()
    except ValueError as problem:
        raise ValueError(f"{path} has what is no number: {problem}") from None
    if numbers.size != rows * buses or not np.isfinite(numbers).all():
        raise ValueError(f"{path} must have {rows} numbers of each of {buses} buses, got {numbers.size:,} numbers")
    return numbers.reshape(buses, rows)
