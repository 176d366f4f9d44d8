"""Problems whose truth is known: densities, exact operators, and the true margin of any reward.

A problem is a simulator that also knows its transition densities. Its truth is computed without any basis, by the
Nyström method on Gauss points of the interval, so that it can contradict the rest of the library.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from certirl.data.simulator import as_generator
from certirl.fit.estimate import Operators, exact_operators
from certirl.functions.bases import Basis, gauss_legendre
from certirl.functions.inequalities import spread_points
from certirl.functions.reward import RewardLike, values_of
from certirl.ground.domain import Array, Domain, as_rows, as_states, describe
from certirl.problems.components import Factorised
from certirl.problems.densities import DeviceChords, bisect, chords


class Problem:
    """An MDP without its reward on an interval, with its densities.

    Attributes:
        name: what to call it.
        n_actions: the number of actions.
        domain: one (low, high) pair.
        nodes: Gauss points for integrals over next states.
    """

    name: str
    nodes: ClassVar[int] = 400
    thread_safe: ClassVar[bool] = True

    domain: Domain

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        raise NotImplementedError

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair: ``[n, m]`` from states ``[n]`` and next states ``[m]``."""
        raise NotImplementedError

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw s' ~ p_a(· | s) for each state."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.name}: {self.n_actions} actions on {describe(self.domain)}"

    def operators(self, basis: Basis, columns: int | None = None) -> Operators:
        """The exact Z^a in a basis, by Gauss quadrature: ``Z_ij = ∫ (P_a φ_i)(s) φ_j(s) μ(s) ds``."""
        rows = basis.on(self.domain)
        return exact_operators(
            rows, columns, self._quadrature()[0], rows.quadrature(self.nodes), self._moved, self.n_actions
        )

    def _moved(self, s: Array, weights: Array, action: int, phi: Array) -> tuple[Array, Array]:
        """P_a of functions with values phi at the quadrature's next states, at s, and what s of such weights visit."""
        kernel = self._kernel(s, action)
        return kernel @ phi, weights @ kernel

    def tail(self, columns: Basis) -> float:
        """τ of a certificate: the largest ∫|p_a(s'|s) − approximation by the columns| ds' over states and actions.

        The approximation interpolates at Chebyshev points (evenly spaced ones on a circle); any one gives an upper
        bound. The largest value over a fine grid of states is taken, with one part in a hundred added.
        """
        columns = columns.on(self.domain)
        nodes, fine = spread_points(columns, columns.size), np.linspace(*self.domain[0], 801)[:, None]
        blend = columns.values(fine) @ np.linalg.inv(columns.values(nodes))
        missed = 0.0
        for action in range(self.n_actions):
            gap = self._kernel(fine, action) - blend @ self._kernel(nodes, action)
            missed = max(missed, float(np.abs(gap).sum(axis=1).max()))
        return 0.0 if missed < 1e-10 else 1.01 * missed

    def values(self, reward: RewardLike, *, discount: float, expert: int = 0) -> Array:
        """The expert's value function at the Gauss points: V = (I − γP_π)⁻¹R."""
        y, _ = self._quadrature()
        system = np.eye(len(y)) - discount * self._kernel(y, expert)
        return np.linalg.solve(system, values_of(reward, y))

    def margins(
        self, reward: RewardLike, states: Array, *, discount: float, expert: int = 0, steps: int | None = None
    ) -> Array:
        """The true D_a(s) = ((P_π − P_a)V)(s) for the rivals in order: ``[A − 1, n]``.

        With ``steps``, V is cut off: only the rewards of that many steps count, as in a rollout.
        """
        if steps is None:
            value = self.values(reward, discount=discount, expert=expert)
        else:
            y, _ = self._quadrature()
            kernel, gained = self._kernel(y, expert), values_of(reward, y)
            value = gained
            for _ in range(steps - 1):
                value = gained + discount * kernel @ value
        s = as_states(states, self.domain)
        own = self._kernel(s, expert) @ value
        return np.array([own - self._kernel(s, a) @ value for a in range(self.n_actions) if a != expert])

    def margin_rows(self, basis: Basis, states: Array, *, discount: float, expert: int = 0) -> Array:
        """The true margins of every basis function as a reward: ``[A − 1, n, k]``, to be multiplied with coefficients.

        Margins are linear in the reward, so that many rewards of one basis are judged by one product.
        """
        y, _ = self._quadrature()
        values = np.linalg.solve(np.eye(len(y)) - discount * self._kernel(y, expert), basis.on(self.domain).values(y))
        s = as_states(states, self.domain)
        own = self._kernel(s, expert) @ values
        return np.array([own - self._kernel(s, a) @ values for a in range(self.n_actions) if a != expert])

    def true_margins(self, reward: RewardLike, *, discount: float, expert: int = 0) -> Array:
        """min over states of the true D_a(s) for the rivals in order: ``[A − 1]``.

        A fine grid, then two zooms around its lowest point for each rival.
        """
        ((low, high),) = self.domain
        value = self.values(reward, discount=discount, expert=expert)

        def curve(s: Array, rival: int) -> Array:
            return np.asarray((self._kernel(s[:, None], expert) - self._kernel(s[:, None], rival)) @ value)

        found = []
        for rival in (a for a in range(self.n_actions) if a != expert):
            grid, lowest = np.linspace(low, high, 2001), np.inf
            for _ in range(3):
                at = int(curve(grid, rival).argmin())
                lowest = min(lowest, float(curve(grid[at : at + 1], rival)[0]))
                grid = np.linspace(grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)], 201)
            found.append(lowest)
        return np.array(found)

    def true_margin(self, reward: RewardLike, *, discount: float, expert: int = 0) -> float:
        """min over states and rivals of the true D_a(s): positive exactly when the expert is strictly optimal."""
        return float(self.true_margins(reward, discount=discount, expert=expert).min())

    def _quadrature(self) -> tuple[Array, Array]:
        ((low, high),) = self.domain
        t, w = gauss_legendre(self.nodes)
        return ((low + high) / 2 + (high - low) / 2 * t)[:, None], (high - low) / 2 * w

    def _kernel(self, states: Array, action: int) -> Array:
        """p_a(y_q | s) w_q: applied to values at the Gauss points it gives (P_a f)(s) ``[n, nodes]``."""
        y, wy = self._quadrature()
        kernel = self.density(y[:, 0], as_rows(states, 1)[:, 0], action) * wy
        if not np.abs(kernel.sum(axis=1) - 1).max() < 1e-7:
            raise ValueError(f"{self.name}: the density of action {action} is too narrow for {self.nodes} Gauss points")
        return kernel


@dataclass(frozen=True, eq=False)
class PolynomialProblem(Problem):
    """The paper's appendix: ``p(s'|s) = (1 − s²) A(s') + s² B(s')`` with A and B polynomial densities on [-1, 1].

    Attributes:
        name: what to call it.
        centre, edge: power coefficients of A and B, one row per action ``[actions, degree + 1]``.
        bits: precision of the inverse transform: the paper draws with eight; None is exact but for `inverse.TOLERANCE`.
    """

    name: str
    centre: Array
    edge: Array
    bits: int | None = None

    domain: Domain = field(default=((-1.0, 1.0),), init=False)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.centre)

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        square = states[:, None] ** 2
        a = polynomial.polyval(next_states, self.centre[action])
        b = polynomial.polyval(next_states, self.edge[action])
        return (1 - square) * a + square * b

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Pick one of the two densities by s², then invert its distribution function, with one random number for both.

        Given u < s² the ratio u/s² is uniform again, and so is (u − s²)/(1 − s²) given u ≥ s².
        """
        square = np.minimum(as_rows(states, 1)[:, 0] ** 2, 1.0)
        uniform = rng.random(len(square))
        at_edge = uniform < square
        uniform -= np.where(at_edge, 0.0, square)
        uniform /= np.where(at_edge, square, 1 - square)
        if self.bits is None:
            return chords(self.centre[action], self.edge[action]).draw(uniform, at_edge)
        drawn = np.empty(len(square))
        for chosen, density in ((~at_edge, self.centre[action]), (at_edge, self.edge[action])):
            drawn[chosen] = bisect(density, uniform[chosen], self.bits)
        return drawn

    def to(self, device: Any) -> DevicePolynomial:
        """The same problem as a simulator of torch tensors on a device, say "cuda"."""
        if self.bits is not None:
            raise ValueError("a device draws exactly: leave bits out")
        return DevicePolynomial(self, device)


class DevicePolynomial:
    """A polynomial problem whose states are torch tensors on a device; draws in single precision, tables in the same.

    Attributes:
        problem: the problem, which knows the truth.
        device: where tensors live.
    """

    thread_safe = True

    def __init__(self, problem: PolynomialProblem, device: Any) -> None:
        self.problem, self.device = problem, device
        self.n_actions, self.domain = problem.n_actions, problem.domain
        pairs = zip(problem.centre, problem.edge, strict=True)
        self._tables = [DeviceChords(chords(*pair), device) for pair in pairs]

    def __str__(self) -> str:
        return f"{self.problem} on {self.device}"

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """As `PolynomialProblem.sample`, with a torch Generator."""
        return self._tables[action].draw(states[:, 0], rng)


def _random_density(rng: np.random.Generator, degree: int) -> Array:
    """Σ_r a_r (x − b_r)^{2r} with a, b uniform on (0, 1), scaled to integrate to one over [-1, 1]."""
    total = np.zeros(degree + 1)
    for power in range(2, degree + 1, 2):
        a, b = rng.random(2)
        total[: power + 1] += a * polynomial.polypow([-b, 1.0], power)
    integral = polynomial.polyint(total)
    return total / (polynomial.polyval(1.0, integral) - polynomial.polyval(-1.0, integral))


def random_polynomial(*, seed: int, actions: int = 3, degree: int = 10, bits: int | None = None) -> PolynomialProblem:
    """The paper's random problem: each action mixes two random polynomial densities by s² (Appendix, experiments).

    Args:
        seed: which one.
        actions: how many actions.
        degree: of the densities, even.
        bits: draw with this many bits of precision, as the paper does with eight; to `inverse.TOLERANCE` if left out.
    """
    if actions < 2:
        raise ValueError(f"a problem needs at least two actions, got {actions}")
    if degree < 2 or degree % 2:
        raise ValueError(f"degree must be an even number, at least 2, got {degree}")
    if bits is not None and not 1 <= bits <= 30:
        raise ValueError(f"bits must lie between 1 and 30, got {bits}")
    rng = as_generator(seed)
    densities = np.array([[_random_density(rng, degree) for _ in range(2)] for _ in range(actions)])
    return PolynomialProblem(f"random polynomial {seed}", densities[:, 0], densities[:, 1], bits)


def unsolvable(*, seed: int, degree: int = 10) -> PolynomialProblem:
    """No reward explains action 0: it is the even mixture of actions 1 and 2, so it can beat at most one of them."""
    rivals = random_polynomial(seed=seed, actions=2, degree=degree)
    centre = np.concatenate([rivals.centre.mean(axis=0, keepdims=True), rivals.centre])
    edge = np.concatenate([rivals.edge.mean(axis=0, keepdims=True), rivals.edge])
    return PolynomialProblem(f"unsolvable {seed}", centre, edge)


def factorised(
    *, seed: int, components: int = 3, actions: int = 3, unaffected: float = 0.3, solvable: bool = True
) -> Factorised:
    """Random polynomial problems side by side; a rival acts on a component as action 0 with probability ``unaffected``.

    With ``solvable=False`` there are three actions, of which 0 is the even mixture of the others in every component.
    """
    rng, parts = np.random.default_rng([seed, components]), []
    for _ in range(components):
        own, acts = int(rng.integers(2**62)), np.where(rng.random(actions) < unaffected, 0, np.arange(actions))
        part = random_polynomial(seed=own, actions=actions) if solvable else unsolvable(seed=own)
        parts.append(replace(part, centre=part.centre[acts], edge=part.edge[acts]) if solvable else part)
    return Factorised(f"{'' if solvable else 'unsolvable '}factorised {seed}", tuple(parts))


@dataclass(frozen=True, eq=False)
class Thermostat(Problem):
    """A room's temperature: ``s' ~ N(s + leak·(ambient − s) + power_a, noise²)``, truncated to the domain.

    Smooth but not polynomial. Action 0 heats most, so an expert who always heats is explained by any reward for warmth.
    """

    power: tuple[float, ...] = (1.5, 0.0, -1.5)
    ambient: float = 18.0
    leak: float = 0.1
    noise: float = 1.5
    domain: Domain = ((15.0, 25.0),)
    name: str = "thermostat"

    def __post_init__(self) -> None:
        ((low, high),) = self.domain
        reach = [self._mean(np.array([low, high]), action) for action in range(self.n_actions)]
        if not self.noise > 0 or np.min(reach) < low - 5 * self.noise or np.max(reach) > high + 5 * self.noise:
            raise ValueError(
                f"power and noise must keep the next temperature within five noises of {describe(self.domain)}, "
                f"got power {self.power} and noise {self.noise}"
            )

    @property
    def n_actions(self) -> int:
        """One per power."""
        return len(self.power)

    def _mean(self, states: Array, action: int) -> Array:
        return states + self.leak * (self.ambient - states) + self.power[action]

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        from scipy.special import ndtr

        ((low, high),) = self.domain
        mean = self._mean(states, action)[:, None]
        mass = ndtr((high - mean) / self.noise) - ndtr((low - mean) / self.noise)
        return np.exp(-0.5 * ((next_states - mean) / self.noise) ** 2) / (np.sqrt(2 * np.pi) * self.noise * mass)

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Inverse transform of the truncated normal."""
        from scipy.special import ndtr, ndtri

        ((low, high),) = self.domain
        mean = self._mean(as_rows(states, 1)[:, 0], action)
        start, end = ndtr((low - mean) / self.noise), ndtr((high - mean) / self.noise)
        return np.clip(mean + self.noise * ndtri(start + (end - start) * rng.random(len(mean))), low, high)


def thermostat(**settings: Any) -> Thermostat:
    """A heated room (see `Thermostat` for the settings); the expert who always heats, action 0, can be explained."""
    return Thermostat(**settings)


@dataclass(frozen=True, eq=False)
class Circle(Problem):
    """An angle: ``s' ~ c_a + pull·sin(s − c_a) + noise`` wrapped around the circle; action a leads to its home c_a.

    Periodic in both variables: the home of the trigonometric basis. A reward for being near the first home explains
    an expert who always goes there, action 0.
    """

    homes: tuple[float, ...] = (0.0, 2.0, -2.0)
    pull: float = 0.5
    noise: float = 0.6
    name: str = "circle"

    domain: Domain = field(default=((-np.pi, np.pi),), init=False)

    @property
    def n_actions(self) -> int:
        """One per home."""
        return len(self.homes)

    def _mean(self, states: Array, action: int) -> Array:
        return self.homes[action] + self.pull * np.sin(states - self.homes[action])

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``: the normal density summed over turns of the circle."""
        away = np.mod(next_states - self._mean(states, action)[:, None] + np.pi, 2 * np.pi) - np.pi
        turns = int(np.ceil(9 * self.noise / (2 * np.pi))) + 1
        total = sum(np.exp(-0.5 * ((away + 2 * np.pi * turn) / self.noise) ** 2) for turn in range(-turns, turns + 1))
        return np.asarray(total / (np.sqrt(2 * np.pi) * self.noise))

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """A normal step, wrapped."""
        mean = self._mean(as_rows(states, 1)[:, 0], action)
        return np.mod(mean + self.noise * rng.standard_normal(len(mean)) + np.pi, 2 * np.pi) - np.pi


def circle(**settings: Any) -> Circle:
    """Homing on a circle (settings: see `Circle`); the expert who always goes to the first home can be explained."""
    return Circle(**settings)
