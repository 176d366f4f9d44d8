"""Problems in several coordinates whose truth is known: densities, exact operators, the true margin of any reward.

As in `problems`, the truth is computed without any basis: by the Nyström method on a mesh of Gauss points, so that it
can contradict the rest of the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from certirl.fit.estimate import Operators, exact_operators
from certirl.functions.bases import Basis, gauss_legendre
from certirl.functions.box_products import level, on_box
from certirl.functions.boxes import mesh
from certirl.functions.inequalities import spread_points
from certirl.functions.reward import RewardLike, values_of
from certirl.ground.domain import Array, Domain, as_rows, as_states, describe
from certirl.problems.components import Factorised
from certirl.problems.intervals import Problem, random_polynomial

_NODES = {1: 200, 2: 32, 3: 12}  # Gauss points along each coordinate
_MESH = {1: 801, 2: 61, 3: 17}  # states along each coordinate, where the true margin is looked for
_PROJECTION, _TAIL_MESH = {2: 28, 3: 14}, {2: 41, 3: 13}  # nodes of the projection behind a tail, states it is tried at
_BLOCK = 1 << 21  # numbers of a kernel at once


class BoxProblem:
    """An MDP without its reward on a box of one to three coordinates, with its densities.

    Attributes:
        name: what to call it.
        n_actions: the number of actions.
        domain: one (low, high) pair for each coordinate.
    """

    name: str
    domain: Domain
    thread_safe: ClassVar[bool] = True

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        raise NotImplementedError

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair: ``[n, m]`` from states ``[n, d]`` and next states ``[m, d]``."""
        raise NotImplementedError

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Draw s' ~ p_a(· | s) for each state: ``[n, d]``."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.name}: {self.n_actions} actions on {describe(self.domain)}"

    def operators(self, basis: Basis, columns: int | None = None) -> Operators:
        """The exact Z^a in a basis, by Gauss quadrature: ``Z_ij = ∫ (P_a φ_i)(s) φ_j(s) μ(s) ds``."""
        rows = basis.on(self.domain)
        return exact_operators(
            rows, columns, self._quadrature()[0], rows.quadrature(_NODES[len(self.domain)]), self._moved, self.n_actions
        )

    def _moved(self, s: Array, weights: Array, action: int, phi: Array) -> tuple[Array, Array]:
        """P_a of functions with values phi at the quadrature's next states, at s, and what s of such weights visit."""
        return self._apply(s, action, phi), self._visits(s, weights, action)

    def tail(self, columns: Basis) -> float:
        """τ of a certificate: the largest ∫|p_a(s'|s) − approximation by the columns| ds' over states and actions.

        The approximation is the projection for the law of `Basis.design`; any one gives an upper bound. The largest
        value over a mesh of states is taken, with one part in a hundred added: accurate, not a proof.
        """
        frame, d = level(columns.on(self.domain)), len(self.domain)
        # Chebyshev points for polynomials and even ones for waves, all of one weight: exact far beyond the columns.
        nodes = mesh([spread_points(part, _PROJECTION[d])[:, 0] for part in frame.basis.parts])
        fine, missed = on_box(self.domain, _TAIL_MESH), 0.0
        blend = frame.values(fine) @ frame.values(nodes).T / len(nodes)
        for action in range(self.n_actions):
            kernel = np.concatenate(self._kernels(nodes, action))
            start = 0
            for own in self._kernels(fine, action):
                gap = own - blend[start : start + len(own)] @ kernel
                missed, start = max(missed, float(np.abs(gap).sum(axis=1).max())), start + len(own)
        return 0.0 if missed < 1e-10 else 1.01 * missed

    def values(self, reward: RewardLike, *, discount: float, expert: int = 0) -> Array:
        """The expert's value function at the Gauss points: V = (I − γP_π)⁻¹R."""
        y, _ = self._quadrature()
        system = np.eye(len(y)) - discount * self._apply(y, expert, np.eye(len(y)))
        return np.linalg.solve(system, values_of(reward, y))

    def margins(self, reward: RewardLike, states: Array, *, discount: float, expert: int = 0) -> Array:
        """The true D_a(s) = ((P_π − P_a)V)(s) for the rivals in order: ``[A − 1, n]``."""
        value = self.values(reward, discount=discount, expert=expert)
        return self._gaps(as_states(states, self.domain), value, expert)

    def true_margins(self, reward: RewardLike, *, discount: float, expert: int = 0) -> Array:
        """min over states of the true D_a(s) for the rivals in order: ``[A − 1]``.

        A mesh of states, then three zooms around its lowest point for each rival.
        """
        value = self.values(reward, discount=discount, expert=expert)
        low, high = np.array(self.domain).T
        along = _MESH[len(self.domain)]
        whole = on_box(self.domain, _MESH)
        everywhere = self._gaps(whole, value, expert)
        found = everywhere.min(axis=1)
        for rival, gaps in enumerate(everywhere):
            place, reach = whole[gaps.argmin()], (high - low) / (along - 1)
            for _ in range(3):
                around = mesh([np.linspace(-r, r, 9) for r in reach]) + place
                around = np.clip(around, low, high)
                near = self._gaps(around, value, expert)[rival]
                found[rival], place, reach = min(found[rival], near.min()), around[near.argmin()], reach / 4
        return found

    def true_margin(self, reward: RewardLike, *, discount: float, expert: int = 0) -> float:
        """min over states and rivals of the true D_a(s): positive exactly when the expert is strictly optimal."""
        return float(self.true_margins(reward, discount=discount, expert=expert).min())

    def _gaps(self, states: Array, value: Array, expert: int) -> Array:
        own = self._apply(states, expert, value)
        return np.array([own - self._apply(states, a, value) for a in range(self.n_actions) if a != expert])

    def _quadrature(self) -> tuple[Array, Array]:
        """Nodes ``[q, d]`` and weights ``[q]`` for integrals over next states."""
        t, w = gauss_legendre(_NODES[len(self.domain)])
        nodes = mesh([(low + high) / 2 + (high - low) / 2 * t for low, high in self.domain])
        weights = np.ones(1)
        for low, high in self.domain:
            weights = np.multiply.outer(weights, (high - low) / 2 * w).ravel()
        return nodes, weights

    def _kernels(self, states: Array, action: int) -> list[Array]:
        """p_a(y_q | s) w_q for blocks of states: applied to values at the Gauss points each gives (P_a f)(s)."""
        y, wy = self._quadrature()
        length, found = max(_BLOCK // len(y), 1), []
        for start in range(0, len(states), length):
            kernel = self.density(y, states[start : start + length], action) * wy
            if not np.abs(kernel.sum(axis=1) - 1).max() < 1e-7:
                raise ValueError(f"{self.name}: the density of action {action} is too narrow for its Gauss points")
            found.append(kernel)
        return found

    def _apply(self, states: Array, action: int, values: Array) -> Array:
        """(P_a f)(s) from values of f at the Gauss points: ``[n]`` or ``[n, k]``."""
        return np.concatenate([kernel @ values for kernel in self._kernels(states, action)])

    def _visits(self, states: Array, weights: Array, action: int) -> Array:
        """Σ_s w_s p_a(y_q | s) w_q: where the next states lie, at the Gauss points."""
        kernels = self._kernels(states, action)
        ends = np.cumsum([len(kernel) for kernel in kernels])[:-1]
        parts = zip(kernels, np.split(weights, ends), strict=True)
        return np.asarray(sum(own @ kernel for kernel, own in parts))


@dataclass(frozen=True, eq=False)
class Independent(BoxProblem):
    """Each coordinate moves on its own: ``p_a(s'|s) = Π_j p_a^j(s_j'|s_j)`` (the setting of the paper's Theorem 8).

    Attributes:
        components: a problem of one coordinate for each, all with the same number of actions.
        name: what to call it.
    """

    components: tuple[Problem, ...]
    name: str = "independent coordinates"

    def __post_init__(self) -> None:
        actions = {component.n_actions for component in self.components}
        if len(actions) != 1 or not 1 <= len(self.components) <= 3:
            raise ValueError("independent needs one to three problems with the same number of actions")

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """The intervals of the components, side by side."""
        return tuple(component.domain[0] for component in self.components)

    @property
    def n_actions(self) -> int:
        """That of every component."""
        return self.components[0].n_actions

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        parts = zip(self.components, next_states.T, states.T, strict=True)
        return np.prod([component.density(y, s, action) for component, y, s in parts], axis=0)

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Each coordinate with a generator of its own, so that a row keeps its random numbers whoever comes with it."""
        rows = as_rows(states, len(self.components))
        seeds = rng.integers(2**63, size=len(self.components))
        parts = zip(self.components, rows.T, map(np.random.default_rng, seeds), strict=True)
        drawn = [component.sample(s[:, None], action, own) for component, s, own in parts]
        return np.column_stack([np.reshape(own, len(rows)) for own in drawn])


@dataclass(frozen=True, eq=False)
class Whirl(BoxProblem):
    """Turning and drifting: ``s' ~ N(shrink·Q s + drift_a, noise²)``, truncated to the box [-1, 1]ᵈ, Q a rotation.

    The rotation of the first two coordinates couples them; it is smooth but not polynomial. Action 0 drifts to the
    corner (1, 1, …), the others away from it: a reward for that corner explains an expert who always takes action 0.

    Attributes:
        drift: where each action leads, one row per action.
        angle: by which the first two coordinates turn.
        shrink: how much is left of the state.
        noise: of every coordinate.
        name: what to call it.
    """

    drift: tuple[tuple[float, ...], ...] = ((0.35, 0.35), (-0.35, 0.1), (0.1, -0.35))
    angle: float = 0.6
    shrink: float = 0.6
    noise: float = 0.5
    name: str = "whirl"

    def __post_init__(self) -> None:
        lengths = {len(row) for row in self.drift}
        if len(lengths) != 1 or not 2 <= min(lengths) <= 3 or not self.noise > 0:
            raise ValueError(f"drift needs two or three numbers for each action, noise above 0; got {self.drift}")

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """[-1, 1] for each coordinate."""
        return ((-1.0, 1.0),) * len(self.drift[0])

    @property
    def n_actions(self) -> int:
        """One per drift."""
        return len(self.drift)

    def _means(self, states: Array, action: int) -> Array:
        turned = np.array(states, dtype=np.float64)
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        turned[:, 0], turned[:, 1] = cos * states[:, 0] - sin * states[:, 1], sin * states[:, 0] + cos * states[:, 1]
        return self.shrink * turned + np.array(self.drift[action])

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        from scipy.special import ndtr

        means, total = self._means(states, action), np.ones((len(states), len(next_states)))
        for mean, y in zip(means.T, next_states.T, strict=True):
            mass = ndtr((1.0 - mean) / self.noise) - ndtr((-1.0 - mean) / self.noise)
            scale = np.sqrt(2 * np.pi) * self.noise * mass
            total *= np.exp(-0.5 * ((y - mean[:, None]) / self.noise) ** 2) / scale[:, None]
        return total

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Inverse transform of the truncated normal, coordinate by coordinate."""
        from scipy.special import ndtr, ndtri

        means = self._means(as_rows(states, len(self.domain)), action)
        start, end = ndtr((-1.0 - means) / self.noise), ndtr((1.0 - means) / self.noise)
        return np.clip(means + self.noise * ndtri(start + (end - start) * rng.random(means.shape)), -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Mixed(BoxProblem):
    """No reward explains action 0: it is the even mixture of actions 1 and 2, so it can beat at most one of them.

    Attributes:
        rivals: the problem whose first two actions become actions 1 and 2.
    """

    rivals: BoxProblem

    @property
    def name(self) -> str:  # type: ignore[override]
        """After the rivals."""
        return f"unsolvable {self.rivals.name}"

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """That of the rivals."""
        return self.rivals.domain

    @property
    def n_actions(self) -> int:
        """Three."""
        return 3

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        if action:
            return self.rivals.density(next_states, states, action - 1)
        return np.asarray(sum(self.rivals.density(next_states, states, a) for a in (0, 1)) / 2)

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """One of the two rivals by the toss of a coin, or the one asked for."""
        if action:
            return self.rivals.sample(states, action - 1, rng)
        heads = rng.random((len(states), 1)) < 0.5
        return np.where(heads, self.rivals.sample(states, 0, rng), self.rivals.sample(states, 1, rng))


def independent(*components: Problem) -> Independent:
    """Problems of one coordinate side by side, moved by the same action; solvable if each of them is."""
    return Independent(components)


def side_by_side(*parts: BoxProblem | Problem) -> Factorised:
    """Problems of any number of coordinates next to each other, moved by the same action: components of one problem."""
    if len({part.n_actions for part in parts}) != 1:
        raise ValueError("side_by_side needs problems with the same number of actions")
    return Factorised("side by side", parts)


def random_independent(*, seed: int, dimension: int = 2, actions: int = 3, degree: int = 4) -> Independent:
    """The paper's random polynomial problem in each coordinate."""
    seeds = np.random.SeedSequence(seed).generate_state(dimension)
    return independent(*(random_polynomial(seed=int(own), actions=actions, degree=degree) for own in seeds))


def whirl(*, dimension: int = 2, **settings: float) -> Whirl:
    """Turning and drifting in two or three coordinates (settings: see `Whirl`); action 0 can be explained."""
    if dimension == 2:
        return Whirl(**settings)  # type: ignore[arg-type]
    drift = ((0.35, 0.35, 0.2), (-0.35, 0.1, 0.0), (0.1, -0.35, -0.2))
    return Whirl(drift=drift, **settings)  # type: ignore[arg-type]


def unsolvable(rivals: BoxProblem) -> Mixed:
    """A problem that has no solution, made of the first two actions of another."""
    return Mixed(rivals)
