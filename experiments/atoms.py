"""Problems whose truth is exact: the next state is one of a few atoms, and its chances are polynomials of the state.

For atoms x_1, …, x_m with chances w_aj(s), P_a f(s) = Σ_j w_aj(s) f(x_j) for every f. The expert's value at the atoms
solves m linear equations, P_aV is an expansion with known coefficients, and the best policy is that of a finite MDP:
no quadrature and no grid of next states. The functions of the state are written here without the library's bases.

Values V are chosen first and rewards follow, R = V − γP_πV at the atoms, so that the expert's advantage can be given
any shape: D = −κ at one state and positive elsewhere, for example. Between the atoms a reward may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
from scipy.optimize import linprog

import certirl
from certirl.functions.bases import Basis
from certirl.ground.domain import mesh

ALONG = {1: 1601, 2: 65, 3: 21}  # states along each coordinate where a least value is looked for
SAFE = 0.98  # chances are kept away from zero by this factor, since their least values are looked for on a grid


def table(kind: str, t: np.ndarray, size: int) -> np.ndarray:
    """Functions of t ∈ [−1, 1] ``[n, size]``: Chebyshev polynomials, or 1, sin πt, cos πt, sin 2πt, …."""
    if kind != "Fourier":
        return np.polynomial.chebyshev.chebvander(t, size - 1)
    order = np.arange(size)
    phase = np.outer(np.pi * t, (order + 1) // 2)
    return np.where(order % 2 == 1, np.sin(phase), np.cos(phase))


def features(columns: Basis, states: Any) -> np.ndarray:
    """A basis of the span of the columns, the first function 1, without the library's own functions ``[n, k]``."""
    rows = np.asarray(states, dtype=float).reshape(-1, columns.dimension)
    low, high = np.array(columns.domain).T
    t = (2 * rows - low - high) / (high - low)
    if columns.dimension == 1:
        return table(columns.kind, t[:, 0], columns.size)
    kinds, indices = [factor.kind for factor in columns.factors], columns.indices
    tables = [table(kind, own, top + 1) for kind, own, top in zip(kinds, t.T, indices.max(axis=0), strict=True)]
    return np.prod([own[:, index] for own, index in zip(tables, indices.T, strict=True)], axis=0)


@lru_cache(maxsize=64)
def looked_at(columns: Basis) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A mesh dense where expansions swing, as angles and as states, and the features there."""
    low, high = _angles(columns)
    angles = mesh([np.linspace(a, b, ALONG[columns.dimension]) for a, b in zip(low, high, strict=True)])
    states = _states(columns, angles)
    return angles, states, features(columns, states)


def least(columns: Basis, curves: np.ndarray) -> tuple[float, np.ndarray]:
    """The least value of several expansions ``[r, k]`` and its state ``[d]``, by a mesh and closer looks.

    It is a value at a state, so it is never below the true minimum: a lower bound above it is false.
    """
    angles, _, phi = looked_at(columns)
    values = phi @ curves.T
    at, which = np.unravel_index(values.argmin(), values.shape)
    curve, place, lowest = curves[which], angles[at], float(values[at, which])
    low, high = _angles(columns)
    step = (high - low) / (ALONG[columns.dimension] - 1)
    for _ in range(12):
        steps = [np.linspace(-own, own, 9) for own in step]
        around = np.clip(place + mesh(steps), low, high)
        found = features(columns, _states(columns, around)) @ curve
        if found.min() < lowest:
            lowest, place = float(found.min()), around[found.argmin()]
        step = step / 3
    return lowest, _states(columns, place[None])[0]


def _angles(columns: Basis) -> tuple[np.ndarray, np.ndarray]:
    around = np.array([kind == "Fourier" for kind in kinds_of(columns)])
    return np.where(around, -np.pi, 0.0), np.full(len(around), np.pi)


def _states(columns: Basis, angles: np.ndarray) -> np.ndarray:
    around = np.array([kind == "Fourier" for kind in kinds_of(columns)])
    low, high = np.array(columns.domain).T
    t = np.where(around, angles / np.pi, -np.cos(angles))
    return np.clip((low + high) / 2 + (high - low) / 2 * t, low, high)


def kinds_of(columns: Basis) -> list[str]:
    """The family of each coordinate."""
    return [columns.kind] if columns.dimension == 1 else [factor.kind for factor in columns.factors]


@dataclass(frozen=True, eq=False)
class Mixture:
    """A simulator whose next states are atoms.

    Attributes:
        space: the functions in which the chances are expansions.
        atoms: ``[m, d]``.
        weights: coefficients of the chances in `features` ``[A, k, m]``.
        mirrored: every second action reads its random number from the other end: pairs of draws then have other joint
            laws, each action keeps its own.
    """

    space: Basis
    atoms: np.ndarray
    weights: np.ndarray
    mirrored: bool = False
    thread_safe = True

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.weights)

    @property
    def domain(self) -> Any:
        """The box."""
        return self.space.domain

    def chances(self, states: Any, action: int) -> np.ndarray:
        """Of every atom ``[n, m]``."""
        return features(self.space, states) @ self.weights[action]

    def sample(self, states: np.ndarray, action: int, rng: np.random.Generator) -> np.ndarray:
        """Draw s' for each state: one random number a row, whatever the action."""
        return self.led(states, action, rng.random(len(states)))

    def led(self, states: np.ndarray, action: int, u: np.ndarray) -> np.ndarray:
        """The next states for given random numbers from [0, 1) ``[n]``."""
        if self.mirrored and action % 2:
            u = 1 - u
        reached = self.chances(states, action)[:, :-1].cumsum(axis=1)
        return self.atoms[(u[:, None] >= reached).sum(axis=1)]

    def tail(self, columns: int) -> float:
        """τ for the first columns, where at most one function of one coordinate lies beyond them.

        The next Chebyshev polynomial, or the next wave, has distance 1 from the span of those before it.
        """
        beyond = self.weights[:, columns:]
        assert beyond.shape[1] <= 1
        return float(np.abs(beyond).sum(axis=(1, 2)).max()) * (1 + 1e-12)


@dataclass(frozen=True, eq=False)
class Truth:
    """What is true of a reward and an expert, exactly up to rounding; all numbers are in the reward's own units.

    Attributes:
        mixture: the dynamics.
        outcomes: coefficients of P_aV less a constant, V the expert's value ``[A, k]``.
        best: the same for the best policy ``[A, k]``.
        span: of V over the atoms.
        scale: of rewards, by which the numbers below were divided to keep them from overflow.
    """

    mixture: Mixture
    outcomes: np.ndarray
    best: np.ndarray
    span: float
    scale: float

    def advantage(self, states: Any, *, best: bool = False) -> np.ndarray:
        """(P_aV)(s) of every action, less a constant, divided by the scale ``[n, A]``."""
        return features(self.mixture.space, states) @ (self.best if best else self.outcomes).T

    def margin(self, expert: int) -> float:
        """min over states and alternatives of D_a(s), for an expert of one action."""
        alternatives = [a for a in range(len(self.outcomes)) if a != expert]
        curves = self.outcomes[expert] - self.outcomes[alternatives]
        return least(self.mixture.space, curves)[0] * self.scale


def truth(mixture: Mixture, reward: Any, expert: Any, discount: float) -> Truth:
    """Solve for the values at the atoms.

    Args:
        mixture: the dynamics.
        reward: R, any function of states.
        expert: an action, or a function of states to probabilities ``[n, A]``.
        discount: γ.
    """
    gained = np.asarray(reward(mixture.atoms), dtype=float).reshape(len(mixture.atoms))
    gained = gained - gained[0]  # a constant changes no advantage
    scale = float(np.abs(gained).max()) or 1.0
    gained = gained / scale
    kernels = np.array([mixture.chances(mixture.atoms, a) for a in range(mixture.n_actions)])
    own = kernels[expert] if isinstance(expert, int) else np.einsum("ia,aij->ij", expert(mixture.atoms), kernels)
    value = np.linalg.solve(np.eye(len(gained)) - discount * own, gained)
    best = _best_value(kernels, gained, discount)
    return Truth(
        mixture,
        np.einsum("akj,j->ak", mixture.weights, value),
        np.einsum("akj,j->ak", mixture.weights, best),
        float(np.ptp(value)) * scale,
        scale,
    )


def _best_value(kernels: np.ndarray, gained: np.ndarray, discount: float) -> np.ndarray:
    """Of the finite MDP at the atoms, by policy iteration."""
    rows, chosen = np.arange(len(gained)), np.zeros(len(gained), dtype=int)
    for _ in range(100):
        value = np.linalg.solve(np.eye(len(gained)) - discount * kernels[chosen, rows], gained)
        ahead = kernels @ value
        better = ahead.max(axis=0) > ahead[chosen, rows] + 1e-13 * (1 + np.abs(value).max())
        if not better.any():
            break
        chosen = np.where(better, ahead.argmax(axis=0), chosen)
    return np.asarray(value)


# --- dynamics with given advantages ----------------------------------------------------------------------------------


def some_atoms(rng: np.random.Generator, domain: Any, count: int) -> np.ndarray:
    """Places anywhere in the box, one coordinate in four at an end of it."""
    low, high = np.array(domain).T
    t = rng.random((count, len(low)))
    ends = rng.random(t.shape) < 0.25
    return low + (high - low) * np.where(ends, t.round(), t)


def shape(rng: np.random.Generator, columns: Basis) -> np.ndarray:
    """An expansion with least value 0 and largest value 1: at random, of the highest degree alone, or a narrow dip."""
    k = columns.size
    if k == 1:
        return np.zeros(1)
    kind = rng.integers(4)
    if kind == 0:
        found = rng.normal(size=k)
    elif kind == 1:
        found = rng.normal(size=k) * 0.7 ** np.arange(k)
    elif kind == 2:
        found = np.eye(k)[-1] * rng.choice([-1, 1])
    else:
        _, states, phi = looked_at(columns)
        gram = phi.T @ phi / len(phi)
        found = -np.linalg.solve(gram, phi[rng.integers(len(states))])
    lowest, highest = least(columns, found[None])[0], -least(columns, -found[None])[0]
    if highest - lowest < 1e-9:
        return np.eye(k)[0] * 0.5
    found = found / (highest - lowest)
    found[0] -= lowest / (highest - lowest)
    return found


@dataclass(frozen=True, eq=False)
class Ground:
    """Atoms, the chances around which actions differ, and the expert's values there.

    Attributes:
        atoms: ``[m, d]``.
        chances: q ``[m]``.
        value: v ``[m]``.
        staying: coefficients of chances that all actions share, of atoms near the state ``[k, m]``; None for q.
        share: of these; the rest of the chances is q and what actions change of it.
    """

    atoms: np.ndarray
    chances: np.ndarray
    value: np.ndarray
    staying: np.ndarray | None = None
    share: float = 0.0


def some_ground(rng: np.random.Generator, domain: Any, *, rare: bool = False) -> Ground:
    """A few atoms with random chances and values; with ``rare`` one is hardly ever met and worth as much as all others.

    Args:
        rng: the Generator.
        domain: the box.
        rare: heavy tails.
    """
    count = int(rng.integers(2, 8)) + rare
    chances, value = rng.dirichlet(np.full(count, 0.8)) + 0.02, rng.normal(size=count)
    if rng.random() < 0.2:
        value = np.where(value > 0, 1.0, -1.0) + 1e-3 * value  # two kinds of atoms: nothing between the ends
    if rare:
        value *= rng.choice([0.01, 1.0])
        chances[-1] = 10 ** rng.uniform(-4.5, -2) * chances[:-1].sum()
        value[-1] = rng.choice([-1, 1]) * rng.uniform(0.3, 3) / chances[-1]
    chances = chances / chances.sum()
    value[0] += 1e-3 + 0.1 * (np.ptp(value) == 0)
    return Ground(some_atoms(rng, domain, count), chances, value)


def slow_ground(rng: np.random.Generator, space: Basis) -> Ground:
    """Atoms that the state hardly leaves, so that values last and errors add up over many steps; one coordinate.

    On an interval the chances are Bernstein's polynomials, whose operator keeps linear functions as they are; on a
    circle Fejér's kernels around evenly spaced atoms.
    """
    ((low, high),) = space.domain
    if space.kind == "Fourier":
        top = (space.size - 1) // 2
        count = top + 1 + int(rng.integers(1, 4))
        places = 2 * np.arange(count) / count - 1
        order = np.arange(space.size)
        shares = np.where(order == 0, 1.0, 2 * (1 - (order + 1) // 2 / (top + 1))) * (order < 2 * top + 1)
        staying = shares[:, None] * table("Fourier", places, space.size).T / count
    else:
        count = space.size
        places = np.linspace(-1, 1, count)
        t = np.cos(np.pi * (np.arange(count) + 0.5) / count)
        up = (1 + t[:, None]) / 2
        ways = np.array([comb(count - 1, j) for j in range(count)])
        bernstein = ways * up ** np.arange(count) * (1 - up) ** np.arange(count - 1, -1, -1)
        staying = np.linalg.solve(table("Chebyshev", t, count), bernstein)
    q = rng.dirichlet(np.full(count, 2.0)) + 0.1
    states = low + (high - low) * (places[:, None] + 1) / 2
    return Ground(states, q / q.sum(), rng.normal(size=count), staying, float(rng.choice([0.5, 0.9, 0.99, 0.999])))


def planned(rng: np.random.Generator, ground: Ground, curves: np.ndarray, space: Basis) -> tuple[Mixture, float]:
    """Dynamics in which P_aV is ``size·curves_a`` but for a constant, and that size: as large as chances allow.

    Actions tilt the chances towards valuable atoms, w_j = q_j(1 + ε(s)(v_j − mean)), and away from others in directions
    that leave the value as it is.

    Args:
        rng: the Generator.
        ground: atoms, chances and values.
        curves: one expansion for every action ``[A, k]``.
        space: the functions of the expansions.
    """
    q, v = (1 - ground.share) * ground.chances, ground.value
    around = v - q @ v / q.sum()
    tilt = q * around / (q @ around**2)
    A, k = curves.shape
    changes = np.einsum("ak,j->akj", curves, tilt)
    if len(q) > 2:
        noise = rng.normal(size=(len(q), int(rng.integers(0, 3))))
        for fixed in (np.ones(len(q)), around):
            noise -= np.outer(fixed, (q * fixed) @ noise / ((q * fixed) @ fixed))
        common, own = rng.normal(size=(1, k, noise.shape[1])), rng.normal(size=(A, k, noise.shape[1]))
        loud = rng.choice([0.0, 0.3, 1.0]) * np.abs(changes).max()
        changes = changes + loud / k * np.einsum(
            "akn,jn->akj", common + own * rng.choice([0.0, 1.0]), q[:, None] * noise
        )
    _, _, phi = looked_at(space)
    lowest = np.einsum("nk,akj->anj", phi, changes).min(axis=(0, 1))
    size = SAFE * float((q / np.maximum(-lowest, 1e-300)).min())
    weights = size * changes
    weights[:, 0] += q
    if ground.staying is not None:
        weights = weights + ground.share * ground.staying
    return Mixture(space, ground.atoms, weights, bool(rng.random() < 0.2)), size


def against_one(
    rng: np.random.Generator, ground: Ground, space: Basis, *, actions: int, expert: int, lowest: float
) -> tuple[Mixture, np.ndarray]:
    """Dynamics in which the least advantage of one action is ``lowest`` of the largest, and V at the atoms.

    One alternative decides; the others come near it or stay away.
    """
    own, curves = 0.3 * shape(rng, space) * rng.choice([0, 1]), np.zeros((actions, space.size))
    alternatives = [a for a in range(actions) if a != expert]
    decisive = int(rng.choice(alternatives))
    for a in alternatives:
        gap = shape(rng, space)
        gap[0] += lowest if a == decisive else lowest + rng.choice([0.0, 0.01, 0.5])
        curves[a] = own - gap
    curves[expert] = own
    return planned(rng, ground, curves, space)[0], ground.value


def by_program(
    rng: np.random.Generator, space: Basis, *, actions: int, expert: int, lowest: float
) -> tuple[Mixture, np.ndarray]:
    """Random chances, and V by a linear program: the largest least advantage, then spoiled until it is ``lowest``.

    Nothing in these dynamics was made for V, and the best V meets its margin at several states and actions at once.
    """
    count = int(rng.integers(3, 9))
    q = rng.dirichlet(np.full(count, 2.0)) + 0.05
    q = q / q.sum()
    lean = rng.normal(size=count)
    lean -= q @ lean
    changes = rng.normal(size=(actions, space.size, count)) * rng.uniform(0.1, 1.0) / space.size
    changes[expert, 0] += rng.uniform(0.5, 2.0) * lean
    changes -= changes @ q[:, None]
    changes = changes * q
    _, _, phi = looked_at(space)
    low = np.einsum("nk,akj->anj", phi, changes).min(axis=(0, 1))
    weights = SAFE * float((q / np.maximum(-low, 1e-300)).min()) * changes
    weights[:, 0] += q
    mixture = Mixture(space, some_atoms(rng, space.domain, count), weights, bool(rng.random() < 0.2))
    few = phi[:: max(len(phi) // 150, 1)]
    rows = np.concatenate([few @ (weights[expert] - weights[a]) for a in range(actions) if a != expert])
    bounds = [(0, 0)] + [(-1, 1)] * (count - 1) + [(None, None)]
    program = linprog(
        -np.eye(count + 1)[-1], np.hstack([-rows, np.ones((len(rows), 1))]), np.zeros(len(rows)), bounds=bounds
    )
    value = program.x[:-1] if program.status == 0 else rng.normal(size=count)
    gaps = rows @ value
    if gaps.min() < 1e-6:
        return mixture, value + 1e-3 * rng.normal(size=count)
    other = rng.normal(size=count)
    theirs = rows @ other
    if theirs.min() > 0:
        other, theirs = -other, -theirs
    low, high = 0.0, 1.0
    for _ in range(40):  # the mixture at which the least gap is the share asked for of the largest
        share = (low + high) / 2
        mixed = (1 - share) * gaps + share * theirs
        low, high = (share, high) if mixed.min() > lowest * mixed.max() else (low, share)
    return mixture, (1 - high) * value + high * other


# --- experts who switch ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pieces:
    """An expert of one coordinate: fixed probabilities of the actions between neighbouring switches.

    Attributes:
        switches: in order ``[z]``.
        shares: ``[z + 1, A]``.
    """

    switches: np.ndarray
    shares: np.ndarray

    def __call__(self, states: Any) -> np.ndarray:
        """Probabilities ``[n, A]``."""
        return self.shares[np.searchsorted(self.switches, np.asarray(states, dtype=float).reshape(-1), side="right")]

    def away(self, states: Any) -> np.ndarray:
        """The distance to the nearest switch ``[n]``."""
        return np.abs(np.asarray(states).reshape(-1, 1) - self.switches).min(axis=1, initial=np.inf)


def greedy(space: Basis, curves: np.ndarray) -> Pieces:
    """The expert who takes the action whose curve is highest, its switches found by bisection."""
    ((low, high),) = space.domain
    grid = np.linspace(low, high, 2001)
    chosen = (features(space, grid) @ curves.T).argmax(axis=1)
    at = np.flatnonzero(chosen[1:] != chosen[:-1])
    switches = []
    for i in at:
        left, right = grid[i], grid[i + 1]
        for _ in range(50):
            middle = (left + right) / 2
            same = (features(space, [middle]) @ curves.T)[0].argmax() == chosen[i]
            left, right = (middle, right) if same else (left, middle)
        switches.append(right)
    order = [int(chosen[0]), *(int(chosen[i + 1]) for i in at)]
    return Pieces(np.array(switches, dtype=float), np.eye(len(curves))[order])


class Line:
    """An expert of two coordinates: one action on each side of a line, or of each of two parallel lines.

    Attributes:
        normal: of length 1 ``[2]``.
        places: where the lines are along it, in order ``[z]``.
        actions: one more than there are lines.
    """

    def __init__(self, normal: np.ndarray, places: np.ndarray, actions: Sequence[int], domain: Any, A: int) -> None:
        self.normal, self.places, self.actions, self.A = normal, places, np.array(actions), A
        low, high = np.array(domain).T
        along, self.ends = np.array([-normal[1], normal[0]]), []
        for place in places:  # the part of the line in the box
            first, last = -np.inf, np.inf
            for j in range(2):
                if abs(along[j]) > 1e-12:
                    hits = (np.array([low[j], high[j]]) - place * normal[j]) / along[j]
                    first, last = max(first, hits.min()), min(last, hits.max())
            if first < last:
                self.ends.append((place * normal + first * along, place * normal + last * along))

    def __call__(self, states: Any) -> np.ndarray:
        """Probabilities ``[n, A]``."""
        return np.eye(self.A)[
            self.actions[np.searchsorted(self.places, np.asarray(states) @ self.normal, side="right")]
        ]

    def away(self, states: Any) -> np.ndarray:
        """The distance to the nearest switch in the box ``[n]``."""
        found = np.full(len(states), np.inf)
        for a, b in self.ends:
            share = np.clip((states - a) @ (b - a) / ((b - a) @ (b - a)), 0.0, 1.0)
            found = np.minimum(found, np.linalg.norm(states - a - share[:, None] * (b - a), axis=1))
        return found


class Disc:
    """An expert of two coordinates: one action within a disc that lies in the box, another outside."""

    def __init__(self, centre: np.ndarray, radius: float, actions: Sequence[int], A: int) -> None:
        self.centre, self.radius, self.actions, self.A = centre, radius, np.array(actions), A

    def __call__(self, states: Any) -> np.ndarray:
        """Probabilities ``[n, A]``."""
        inside = np.linalg.norm(np.asarray(states) - self.centre, axis=1) < self.radius
        return np.eye(self.A)[self.actions[inside.astype(int)]]

    def away(self, states: Any) -> np.ndarray:
        """The distance to the circle ``[n]``."""
        return np.abs(np.linalg.norm(states - self.centre, axis=1) - self.radius)


def fitted(space: Basis, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The coefficients of a function that lies in the space."""
    _, states, phi = looked_at(space)
    return np.linalg.lstsq(phi, function(states), rcond=None)[0]


# --- rewards with given values at the atoms --------------------------------------------------------------------------


def rewards_at(mixture: Mixture, value: np.ndarray, expert: Any, discount: float) -> np.ndarray:
    """R = V − γP_πV at the atoms."""
    kernels = np.array([mixture.chances(mixture.atoms, a) for a in range(mixture.n_actions)])
    own = kernels[expert] if isinstance(expert, int) else np.einsum("ia,aij->ij", expert(mixture.atoms), kernels)
    return value - discount * own @ value


def by_nearest(atoms: np.ndarray, values: np.ndarray, domain: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The value of the nearest atom: constant in pieces, with jumps."""
    width = np.ptp(np.array(domain), axis=1)

    def reward(states: np.ndarray) -> np.ndarray:
        rows = np.asarray(states, dtype=float).reshape(-1, len(width)) / width
        apart = ((rows[:, None] - atoms / width) ** 2).sum(axis=2)
        return values[apart.argmin(axis=1)]

    return reward


def as_expansion(basis: Basis, atoms: np.ndarray, values: np.ndarray) -> certirl.Reward:
    """The shortest expansion with these values at the atoms."""
    return certirl.Reward(basis, np.linalg.lstsq(basis.values(atoms), values, rcond=None)[0])
