"""Affine drifts of systems ``s' = clip(m_a(s) + ξ)`` with Gaussian noise of a known standard deviation.

Rows inside the interval count by their sums, rows at its two ends by their states. All states are in units in which
the interval is [−1, 1], and x(s) = (1, s). The proof is section 2 of docs/notes/known-noise.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, pi, sqrt
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaincc, log_ndtr

from certirl.ground import archive
from certirl.ground.archive import Shape, Words
from certirl.ground.domain import Array, Box
from certirl.ground.records import Record, internal

COEFFICIENTS = 2  # of each drift
PEAK = 1 / sqrt(2 * pi)  # of the normal density
RIDGES = tuple(4.0 * 16**j for j in range(6))  # ν of Lemma 1'
_NEAR = 4 * 2.0**-24  # four roundings of single precision: next states so near an end, relative to it, count as there
_FARTHEST = 1e-3  # of half the interval, however far from 0 that is
_ROUNDS = 20  # in which the weights of rows at the ends are improved
_STEPS = 100  # of Newton's method at most


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class DriftSums(Record):
    """What the proof uses of the rows, states and next states in units in which the interval is [−1, 1]."""

    # of the rows of each action whose next states are inside: n, Σs, Σs², Σs', Σss' ``[A, 5]``
    inside: Annotated[Array, Shape("A 5")]
    walls: Annotated[Array, Shape("m 3")]  # action, next state (−1 or 1) and state of every row at an end ``[m, 3]``
    # "independent" of each other; "paired", where those of different actions may share random numbers; or "dependent",
    # each on those before it
    rows: Annotated[str, Words("independent", "paired", "dependent")]

    @classmethod
    def of(cls, states: Array, actions: NDArray[np.intp], next_states: Array, n_actions: int, rows: str) -> DriftSums:
        """The sums of rows ``[n]``."""
        at_wall = np.abs(next_states) >= 1
        sums = []
        for action in range(n_actions):
            chosen = (actions == action) & ~at_wall
            s, after = states[chosen], next_states[chosen]
            sums.append([chosen.sum(), s.sum(), s @ s, after.sum(), s @ after])
        walls = np.stack([actions[at_wall], np.sign(next_states[at_wall]), states[at_wall]], axis=1)
        return cls(np.array(sums, dtype=float), walls, rows)

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.inside)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each action ``[A]``."""
        at_walls = np.bincount(self.walls[:, 0].astype(int), minlength=self.n_actions)
        return self.inside[:, 0].astype(np.int64) + at_walls

    def at_wall(self, action: int) -> tuple[Array, Array]:
        """x ``[m, 2]`` and next states ``[m]`` of the rows of an action at the ends."""
        rows = self.walls[self.walls[:, 0] == action]
        return np.stack([np.ones(len(rows)), rows[:, 2]], axis=1), rows[:, 1]


class Drift(NamedTuple):
    """A set that holds the coefficients θ of all drifts, but for a probability."""

    coefficients: Array  # θ̂ of each action ``[A, 2]``
    shape: Array  # K of the bound |Σ_a v_a·(θ_a − θ̂_a)| ≤ (Σ_a v_aᵀK_av_a)^½ for all v ``[A, 2, 2]``
    std: float  # σ, in units in which the interval is [−1, 1]
    wall: float = 1.0  # next states count as at an end from this on, and from −this

    def size(self, functionals: Array) -> Array:
        """The bound (K1) for functionals v ``[…, A, 2]``."""
        return np.asarray(np.sqrt(np.einsum("...ai,aij,...aj->...", functionals, self.shape, functionals)))

    def spread(self, states: Array) -> Array:
        """ε_a(s) ≥ |m_a(s) − m̂_a(s)| of every action ``[A, n]``."""
        x = np.stack([np.ones_like(states), states])
        return np.asarray(np.sqrt(np.einsum("in,aij,jn->an", x, self.shape, x)))


def radius(coefficients: int, delta: float) -> float:
    """r of Lemma 1: the stacked scores have SᵀG⁻¹S ≥ r² with probability δ at most."""

    def excess(level: float) -> float:
        upper, mean = gammaincc(coefficients / 2, level / 2), gammaincc(coefficients / 2 + 1, level / 2)
        return float(coefficients * mean - level * upper)

    def chance(square: float) -> float:
        least = minimize_scalar(lambda level: excess(level) / (square - level), (0.0, square - 1e-6), method="bounded",
                                bounds=(0.0, square - 1e-6))  # fmt: skip
        return float(least.fun)

    high = coefficients + 4.0
    while chance(high) > delta:
        high *= 2
    return sqrt(brentq(lambda square: chance(square) - delta, coefficients + 1.0, high)) if high < inf else inf


def wall_of(domain: Box) -> float:
    """From where on next states count as at an end, in units in which the interval is [−1, 1]."""
    ((low, high),) = domain
    return 1 - min(2 * _NEAR * max(abs(low), abs(high)) / (high - low), _FARTHEST)


def _score(at: Array, after: Array, std: float, wall: float) -> tuple[Array, Array]:
    """e and w of rows at the ends whose drift leads to ``at``."""
    c = (wall - after * at) / std  # the end is this far away in units of the noise, in its own direction
    ratio = PEAK * np.exp(-(c**2) / 2 - log_ndtr(-c))
    return after * ratio, np.clip(ratio * (ratio - c), 0.0, 1.0)


def fit_drift(sums: DriftSums, std: float, delta: float, wall: float) -> Drift:
    """The coefficients of greatest likelihood, and the set around them: (K1).

    ``std`` is σ, in units in which the interval is [−1, 1], ``delta`` the probability that the set does not hold the
    true coefficients, ``wall`` that of `wall_of`.
    """
    fits = [_fit(sums, action, std, wall) for action in range(sums.n_actions)]
    drifts = []
    for ridge, square in _radii(sums, delta):
        rest = sum(float(score @ np.linalg.solve(_gram(sums, a, ridge), score)) for a, (_, score) in enumerate(fits))
        rho = std * (sqrt(square) + sqrt(max(rest, 0.0)))
        shapes = [_shape(sums, action, theta, (std, wall), rho, ridge) for action, (theta, _) in enumerate(fits)]
        drifts.append(Drift(np.array([theta for theta, _ in fits]), np.array(shapes), std, wall))
    return min(drifts, key=lambda drift: float(np.trace(drift.shape.sum(axis=0))))


def _radii(sums: DriftSums, delta: float) -> list[tuple[float, float]]:
    """ν and r² of Lemma 1, or of Lemma 1' for rows that depend on each other."""
    if sums.rows == "dependent":
        grams = [_gram(sums, action) for action in range(sums.n_actions)]
        return [
            (ridge, 2 * log(len(RIDGES) / delta) + sum(log(np.linalg.det(np.eye(2) + gram / ridge)) for gram in grams))
            for ridge in RIDGES
        ]
    if sums.rows == "paired":
        return [(0.0, sums.n_actions * radius(COEFFICIENTS, delta / sums.n_actions) ** 2)]
    return [(0.0, radius(COEFFICIENTS * sums.n_actions, delta) ** 2)]


def _inside(sums: DriftSums, action: int) -> tuple[Array, Array]:
    """Σxxᵀ and Σxs' of the rows inside."""
    n, s, ss, after, crossed = sums.inside[action]
    return np.array([[n, s], [s, ss]]), np.array([after, crossed])


def _gram(sums: DriftSums, action: int, ridge: float = 0.0) -> Array:
    x, _ = sums.at_wall(action)
    return np.asarray(_inside(sums, action)[0] + x.T @ x + ridge * np.eye(COEFFICIENTS))


def _fit(sums: DriftSums, action: int, std: float, wall: float) -> tuple[Array, Array]:
    """θ̂ by Newton's method, and S(θ̂)."""
    gram, crossed = _inside(sums, action)
    x, after = sums.at_wall(action)
    if not sums.counts[action]:
        raise ValueError(
            f"action {action} was never taken, so that its drift cannot be estimated: add transitions of it"
        )
    if np.linalg.matrix_rank(gram) < COEFFICIENTS:
        raise ValueError(
            f"the drift of action {action} cannot be estimated: of {int(sums.counts[action]):,} transitions "
            f"{int(gram[0, 0]):,} end inside the interval; more are needed, from different states"
        )
    theta = np.linalg.solve(gram, crossed)
    for _ in range(_STEPS):
        e, w = _score(x @ theta, after, std, wall)
        score = (crossed - gram @ theta) / std + x.T @ e
        step = std * np.linalg.solve(gram + (x * w[:, None]).T @ x, score)
        theta = theta + step
        if np.abs(step).max() <= 1e-14:
            break
    e, _ = _score(x @ theta, after, std, wall)
    return theta, np.asarray((crossed - gram @ theta) / std + x.T @ e)


def _shape(sums: DriftSums, action: int, theta: Array, noise: tuple[float, float], rho: float, ridge: float) -> Array:
    """ρ²λM⁻¹: first with the rows inside alone, then with weights of those at the ends."""
    inside, full = _inside(sums, action)[0], _gram(sums, action, ridge)
    x, after = sums.at_wall(action)
    shape = _ellipse(inside, full, rho)
    for _ in range(_ROUNDS):
        spread = np.sqrt(np.einsum("ni,ij,nj->n", x, shape, x))
        _, w = _score(x @ theta + after * spread, after, *noise)  # w is least where the end is nearest
        shape = _ellipse(inside + (x * w[:, None]).T @ x, full, rho)
    return shape


def _ellipse(lower: Array, full: Array, rho: float) -> Array:
    largest = float(np.linalg.eigvals(np.linalg.solve(lower, full)).real.max())
    return np.asarray(rho**2 * largest * np.linalg.inv(lower))


Rows = tuple[Array, NDArray[np.intp], Array]


def rows_of(log: Any) -> Rows:
    """States, actions and next states ``[n]`` of a log of one coordinate, in units in which the interval is [−1, 1]."""
    (low, high), = log.domain  # fmt: skip
    middle, half = (low + high) / 2, (high - low) / 2
    after = (log.next_states[:, 0] - middle) / half
    at_wall = np.abs(after) >= wall_of(log.domain)
    return (log.states[:, 0] - middle) / half, log.actions, np.where(at_wall, np.sign(after), after)
