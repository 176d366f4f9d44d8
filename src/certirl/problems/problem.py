"""A problem whose truth is known: a simulator that also has its transition densities.

Its operators and the true margin of any reward are computed without a basis, by the Nyström method on Gauss points of
the box, so that they can contradict the rest of the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from certirl.fit.estimate import Operators, exact_operators
from certirl.functions.bases import Basis, gauss_legendre
from certirl.functions.reward import RewardLike, values_of
from certirl.ground.domain import Array, Domain, as_states, describe, mesh

# By the number of coordinates, along each of them: Gauss points of the next state; states where the least margin is
# looked for, and states of each closer look; states where a tail is evaluated, and points of the projection behind it.
NODES = {1: 400, 2: 32, 3: 12}
_MESH, _ZOOM = {1: 2001, 2: 61, 3: 17}, {1: 201, 2: 9, 3: 9}
_TAIL_MESH, _PROJECTION = {1: 801, 2: 41, 3: 13}, {2: 28, 3: 14}
_ROUNDS = 3  # of closer looks
_BLOCK = 1 << 21  # numbers of a kernel at once


class Problem:
    """An MDP without its reward on a box of one to three coordinates, with its densities.

    States are ``[n, d]``, or ``[n]`` in one coordinate.

    Attributes:
        name: what to call it.
        domain: one (low, high) pair for each coordinate.
        n_actions: the number of actions.
    """

    name: str
    domain: Domain
    thread_safe: ClassVar[bool] = True

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        raise NotImplementedError

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair of a state and one of m next states: ``[n, m]``."""
        raise NotImplementedError

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Draw s' ~ p_a(· | s) for each state: an array of the same shape."""
        raise NotImplementedError

    def __str__(self) -> str:
        box = describe(self.domain) if len(self.domain) <= 4 else f"{len(self.domain)} coordinates"
        return f"{self.name}: {self.n_actions} actions on {box}"

    def operators(self, basis: Basis, columns: int | None = None) -> Operators:
        """The exact Z^a in a basis, by Gauss quadrature: ``Z_ij = ∫ (P_a φ_i)(s) φ_j(s) μ(s) ds``."""
        rows = basis.on(self.domain)
        rule = rows.quadrature(self._along(NODES))
        return exact_operators(rows, columns, self._quadrature()[0], rule, self._moved, self.n_actions)

    def _moved(self, states: Array, weights: Array, action: int, values: Array) -> tuple[Array, Array]:
        """(P_a f)(s) of functions with these values at the Gauss points, and the weight that reaches each of these."""
        expected, visits, start = [], np.zeros(len(values)), 0
        for kernel in self._kernels(states, action):
            expected.append(kernel @ values)
            visits += weights[start : start + len(kernel)] @ kernel
            start += len(kernel)
        return np.concatenate(expected), visits

    def tail(self, columns: Basis) -> float:
        """τ of a certificate: the largest ∫|p_a(s'|s) − approximation by the columns| ds' over states and actions.

        The approximation interpolates at the spread points of the columns on an interval and is the best one in the
        mean over many of them on a box; any one gives an upper bound. The largest value over a mesh of states is taken,
        with one part in a hundred added: accurate, not a proof.
        """
        columns, dimension = columns.on(self.domain), len(self.domain)
        along = columns.size if dimension == 1 else self._along(_PROJECTION)
        nodes, states = columns.spread_points(*[along] * dimension), self._mesh(_TAIL_MESH)
        approximation = columns.values(states) @ np.linalg.pinv(columns.values(nodes))
        largest = 0.0
        for action in range(self.n_actions):
            at_nodes, start = self._kernel(nodes, action), 0
            for kernel in self._kernels(states, action):
                missed = kernel - approximation[start : start + len(kernel)] @ at_nodes
                largest, start = max(largest, float(np.abs(missed).sum(axis=1).max())), start + len(kernel)
        return 0.0 if largest < 1e-10 else 1.01 * largest

    def values(self, reward: RewardLike, *, discount: float, expert: int = 0, steps: int | None = None) -> Array:
        """The value V = (I − γP_π)⁻¹R at the Gauss points ``[q]`` of an expert who always takes one action.

        With ``steps`` only the rewards of the first steps count, as in a rollout.
        """
        y, _ = self._quadrature()
        gained = values_of(reward, y)
        kernel = self._kernel(y, expert)
        if steps is None:
            return np.linalg.solve(np.eye(len(y)) - discount * kernel, gained)
        value = gained
        for _ in range(steps - 1):
            value = gained + discount * kernel @ value
        return value

    def margins(
        self, reward: RewardLike, states: Array, *, discount: float, expert: int = 0, steps: int | None = None
    ) -> Array:
        """The true D_a(s) = ((P_π − P_a)V)(s) for the alternative actions in order: ``[A − 1, n]``.

        With ``steps``, V is cut off: only the rewards of the first steps count, as in a rollout.
        """
        value = self.values(reward, discount=discount, expert=expert, steps=steps)
        return self._advantages(as_states(states, self.domain), value, expert)

    def margin_rows(self, basis: Basis, states: Array, *, discount: float, expert: int = 0) -> Array:
        """The true margins of every basis function as a reward: ``[A − 1, n, k]``.

        Margins are linear in the reward, so that many rewards of one basis are judged by one product.
        """
        y, _ = self._quadrature()
        kernel = self._kernel(y, expert)
        values = np.linalg.solve(np.eye(len(y)) - discount * kernel, basis.on(self.domain).values(y))
        return self._advantages(as_states(states, self.domain), values, expert)

    def true_margins(self, reward: RewardLike, *, discount: float, expert: int = 0) -> Array:
        """min over states of the true D_a(s) for the alternative actions in order: ``[A − 1]``.

        A mesh of states, then closer and closer looks around its lowest point for each action.
        """
        value = self.values(reward, discount=discount, expert=expert)
        low, high = np.array(self.domain).T
        states, zoom = self._mesh(_MESH), self._along(_ZOOM)
        advantages = self._advantages(states, value, expert)
        least = advantages.min(axis=1)
        for index, lowest in enumerate(advantages.argmin(axis=1)):
            centre, step = states[lowest], (high - low) / (self._along(_MESH) - 1)
            for _ in range(_ROUNDS):
                near = np.clip(centre + mesh([np.linspace(-width, width, zoom) for width in step]), low, high)
                advantage = self._advantages(near, value, expert)[index]
                least[index] = min(least[index], advantage.min())
                centre, step = near[advantage.argmin()], 2 * step / (zoom - 1)
        return least

    def true_margin(self, reward: RewardLike, *, discount: float, expert: int = 0) -> float:
        """min over states and actions of the true D_a(s): positive exactly when the expert is strictly optimal."""
        return float(self.true_margins(reward, discount=discount, expert=expert).min())

    def _advantages(self, states: Array, value: Array, expert: int) -> Array:
        """((P_π − P_a)V)(s) from values at the Gauss points, ``[A − 1, n]``, or ``[A − 1, n, k]`` for k functions."""
        actions = range(self.n_actions)
        ahead = [np.concatenate([kernel @ value for kernel in self._kernels(states, a)]) for a in actions]
        return np.array([ahead[expert] - ahead[action] for action in actions if action != expert])

    def _along(self, counts: dict[int, int]) -> int:
        """The number of points along each coordinate that a table has for this many coordinates."""
        if len(self.domain) not in counts:
            raise ValueError(
                f"{self.name}: the truth is computed for one to three coordinates at once, not {len(self.domain)}; "
                "for a sum of rewards of independent components it is the sum of theirs"
            )
        return counts[len(self.domain)]

    def _mesh(self, counts: dict[int, int]) -> Array:
        return mesh([np.linspace(low, high, self._along(counts)) for low, high in self.domain])

    def _quadrature(self) -> tuple[Array, Array]:
        """Gauss points ``[q, d]`` and weights ``[q]`` for integrals over next states."""
        t, w = gauss_legendre(self._along(NODES))
        weights = np.ones(1)
        for low, high in self.domain:
            weights = np.multiply.outer(weights, (high - low) / 2 * w).ravel()
        return mesh([(low + high) / 2 + (high - low) / 2 * t for low, high in self.domain]), weights

    def _kernel(self, states: Array, action: int) -> Array:
        """p_a(y_q | s) w_q for all states at once ``[n, q]``."""
        return np.concatenate(list(self._kernels(states, action)))

    def _kernels(self, states: Array, action: int) -> Iterator[Array]:
        """p_a(y_q | s) w_q ``[n, q]`` for blocks of states: a product with values at the Gauss points is (P_a f)(s)."""
        y, weights = self._quadrature()
        length = max(_BLOCK // len(y), 1)
        for start in range(0, len(states), length):
            kernel = self.density(y, states[start : start + length], action) * weights
            if not np.abs(kernel.sum(axis=1) - 1).max() < 1e-7:
                raise ValueError(f"{self.name}: the density of action {action} is too narrow for {len(y)} Gauss points")
            yield kernel
