"""Problems with known truth: polynomial, truncated normal and wrapped normal densities, and what is made of them.

A problem is a simulator that also has its transition densities. Its operators and the true margin of any reward are
computed without a basis, by the Nyström method on Gauss points of the box, so that they can contradict the rest of the
library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from certirl.data.simulator import as_generator
from certirl.fit.bellman import Operators, alternatives_of, exact_operators
from certirl.functions.bases import Basis, gauss_legendre
from certirl.functions.functions import of_actions
from certirl.functions.reward import Reward, RewardLike, values_of
from certirl.ground.domain import Array, Box, as_domain, as_rows, as_states, mesh
from certirl.ground.doors import as_count, as_listed, as_number, shown, typed
from certirl.ground.records import Record, internal
from certirl.proof.densities import DensityTail, tail_from_density

# By the number of coordinates, along each of them: Gauss points of the next state; states where the least margin is
# looked for, and states of each closer look.
NODES = {1: 400, 2: 32, 3: 12}
_MESH, _ZOOM = {1: 2001, 2: 61, 3: 17}, {1: 201, 2: 9, 3: 9}
_ROUNDS = 3  # of closer looks
MOST_RANDOM = 100  # actions, coordinates, and degree of a random problem
_BLOCK = 1 << 21  # numbers of a kernel at once


class Problem(Record):
    """An MDP without its reward on a box of one to three coordinates, with its densities.

    States are ``[n, d]``, or ``[n]`` in one coordinate.

    Attributes:
        name: what to call it.
        domain: one (low, high) pair for each coordinate.

    Example:
        >>> problem = certirl.problems.thermostat()
        >>> print(problem)
        thermostat: 3 actions on [15, 25]
        >>> problem.true_margin(lambda states: states[:, 0], discount=0.9) > 0
        True
    """

    name: str
    domain: Box
    thread_safe: ClassVar[bool] = True

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        raise NotImplementedError

    def _chosen(self, action: Any) -> int:
        return as_count(action, "action", least=0, most=self.n_actions - 1)

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair of a state and one of m next states: ``[n, m]``.

        Example:
            >>> problem.density([20.0, 21.0, 22.0], [18.0], action=0).shape
            (1, 3)
        """
        raise NotImplementedError

    @typed
    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Draw s' ~ p_a(· | s) for each state: an array of the same shape.

        Example:
            >>> problem.sample(np.full(5, 20.0), 0, np.random.default_rng(0)).shape
            (5,)
        """
        raise NotImplementedError

    def __str__(self) -> str:
        box = self.domain.words if len(self.domain) <= 4 else f"{len(self.domain)} coordinates"
        return f"{self.name}: {self.n_actions} actions on {box}"

    @typed
    def operators(self, basis: Basis, columns: int | None = None) -> Operators:
        """The exact Z^a in a basis, by Gauss quadrature: ``Z_ij = ∫ (P_a φ_i)(s) φ_j(s) μ(s) ds``.

        Example:
            >>> operators = certirl.problems.random_polynomial(seed=7).operators(certirl.Legendre(5), columns=3)
            >>> operators.Z.shape, operators.form
            ((3, 5, 3), 'exact')
        """
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

    @property
    def tail(self) -> DensityTail:
        """τ of a certificate as a function of the columns, from the density: accurate, not a proof.

        Example:
            >>> problem = certirl.problems.thermostat()
            >>> round(problem.tail(certirl.Legendre(9)), 2)
            0.01
            >>> certirl.problems.random_polynomial(seed=7).tail(certirl.Legendre(3))
            0.0
        """
        return tail_from_density(self.density, self.domain, n_actions=self.n_actions)

    def values(self, reward: RewardLike, *, discount: float, expert: int = 0, steps: int | None = None) -> Array:
        """The value V = (I − γP_π)⁻¹R at the Gauss points ``[q]`` of an expert who always takes one action.

        With ``steps`` only the rewards of the first steps count, as in a rollout.

        Example:
            >>> problem.values(lambda states: np.ones(len(states)), discount=0.9).round(6)[:2]
            array([10., 10.])
        """
        y, _ = self._quadrature()
        gained = values_of(reward, y, expert)
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

        Of a reward of actions (R_π − R_a)(s)/γ is added. With
        ``steps``, V is cut off: only the rewards of the first steps count, as in a rollout.

        Example:
            >>> problem.margins(lambda states: states[:, 0], [18.0, 22.0], discount=0.9).shape
            (2, 2)
        """
        value = self.values(reward, discount=discount, expert=expert, steps=steps)
        rows = as_states(states, self.domain)
        return self._advantages(rows, value, expert) + self._paid(reward, rows, discount, expert)

    @internal
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

        Example:
            >>> problem.true_margins(lambda states: states[:, 0], discount=0.9).round(2)
            array([0.94, 2.74])
        """
        value = self.values(reward, discount=discount, expert=expert)
        low, high = self.domain.ends
        states, zoom = self.domain.mesh(self._along(_MESH)), self._along(_ZOOM)
        advantages = self._advantages(states, value, expert) + self._paid(reward, states, discount, expert)
        least, others = advantages.min(axis=1), alternatives_of(expert, self.n_actions)
        for index, lowest in enumerate(advantages.argmin(axis=1)):
            centre, step = states[lowest], (high - low) / (self._along(_MESH) - 1)
            for _ in range(_ROUNDS):
                near = np.clip(centre + mesh([np.linspace(-width, width, zoom) for width in step]), low, high)
                other = others[index : index + 1]
                advantage = self._advantages(near, value, expert, other)[0]
                advantage = advantage + np.ravel(self._paid(reward, near, discount, expert, other))
                least[index] = min(least[index], advantage.min())
                centre, step = near[advantage.argmin()], 2 * step / (zoom - 1)
        return least

    def true_margin(self, reward: RewardLike, *, discount: float, expert: int = 0) -> float:
        """min over states and actions of the true D_a(s): positive exactly when the expert is strictly optimal.

        Example:
            >>> problem.true_margin(lambda states: states[:, 0], discount=0.9) > 0
            True
            >>> problem.true_margin(lambda states: -states[:, 0], discount=0.9) > 0
            False
        """
        return float(self.true_margins(reward, discount=discount, expert=expert).min())

    def _advantages(self, states: Array, value: Array, expert: int, others: Sequence[int] | None = None) -> Array:
        """((P_π − P_a)V)(s) from values at the Gauss points, ``[A − 1, n]``, or ``[A − 1, n, k]`` for k functions."""
        others = alternatives_of(expert, self.n_actions) if others is None else others
        first, *ahead = (
            np.concatenate([kernel @ value for kernel in self._kernels(states, a)]) for a in (expert, *others)
        )
        return first - np.array(ahead)

    def _paid(
        self, reward: RewardLike, states: Array, discount: float, expert: int, others: Sequence[int] | None = None
    ) -> Array | float:
        """(R_π − R_a)(s)/γ ``[A − 1, n]``; 0 for a reward of states."""
        if not of_actions(reward):
            return 0.0
        others = alternatives_of(expert, self.n_actions) if others is None else others
        first, *rest = (values_of(reward, states, action) for action in (expert, *others))
        return (first - np.array(rest)) / discount

    def _along(self, counts: dict[int, int]) -> int:
        """The number of points along each coordinate that a table has for this many coordinates."""
        if len(self.domain) not in counts:
            raise ValueError(
                f"{self.name}: the truth is computed for one to three coordinates at once, not {len(self.domain)}; "
                "for a sum of rewards of independent components it is the sum of theirs"
            )
        return counts[len(self.domain)]

    def _quadrature(self) -> tuple[Array, Array]:
        """Gauss points ``[q, d]`` and weights ``[q]`` for integrals over next states."""
        t, w = gauss_legendre(self._along(NODES))
        weights = mesh([(high - low) / 2 * w for low, high in self.domain]).prod(axis=1)
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


_CIRCLE = 2 * np.pi

# sup|F_drawn − F|: a thousandth of what a hundred million draws could distinguish from zero.
TOLERANCE = 1e-7
# Steps of u that are found by multiplication, each cut further where it needs to be.
STEPS = 2048
# Places of the interval where the need for chords is looked up.
_PLACES = 4096


@dataclass(frozen=True, eq=False)
class PolynomialProblem(Problem):
    """The paper's appendix: ``p(s'|s) = (1 − s²) A(s') + s² B(s')`` with A and B polynomial densities on [-1, 1].

    Attributes:
        name: what to call it.
        centre, edge: power coefficients of A and B, one row per action ``[actions, degree + 1]``.
        bits: precision of the inverse transform: the paper draws with eight; None is exact to `TOLERANCE`.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7, actions=2, degree=4)
        >>> problem.domain, problem.n_actions, problem.centre.shape
        (((-1.0, 1.0),), 2, (2, 5))
    """

    name: str
    centre: Array
    edge: Array
    bits: int | None = None
    domain: Box = field(default=as_domain((-1, 1)), init=False)

    @property
    def n_actions(self) -> int:
        """One per density."""
        return len(self.centre)

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        y, square = as_rows(next_states, 1)[:, 0], as_rows(states, 1) ** 2
        action = self._chosen(action)
        a, b = (polynomial.polyval(y, coefficients[action]) for coefficients in (self.centre, self.edge))
        return (1 - square) * a + square * b

    @typed
    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Pick one of the two densities by s², then invert its distribution function, with one random number for both.

        Given u < s² the ratio u/s² is uniform again, and so is (u − s²)/(1 − s²) given u ≥ s².
        """
        square, action = np.minimum(as_rows(states, 1)[:, 0] ** 2, 1.0), self._chosen(action)
        uniform = rng.random(len(square))
        at_edge = uniform < square
        uniform -= np.where(at_edge, 0.0, square)
        uniform /= np.where(at_edge, square, 1 - square)
        if self.bits is None:
            return chords(self.centre[action], self.edge[action]).draw(uniform, at_edge).reshape(np.shape(states))
        drawn = np.empty(len(square))
        for chosen, density in ((~at_edge, self.centre[action]), (at_edge, self.edge[action])):
            drawn[chosen] = bisect(density, uniform[chosen], self.bits)
        return drawn.reshape(np.shape(states))


def _random_density(rng: np.random.Generator, degree: int) -> Array:
    """Σ_r a_r (x − b_r)^{2r} with a, b uniform on (0, 1), scaled to integrate to one over [-1, 1]."""
    total = np.zeros(degree + 1)
    for power in range(2, degree + 1, 2):
        a, b = rng.random(2)
        total[: power + 1] += a * polynomial.polypow([-b, 1.0], power)
    integral = polynomial.polyint(total)
    return total / (polynomial.polyval(1.0, integral) - polynomial.polyval(-1.0, integral))


@typed
def random_polynomial(*, seed: int, actions: int = 3, degree: int = 10, bits: int | None = None) -> PolynomialProblem:
    """The paper's random problem: each action mixes two random polynomial densities by s² (Appendix, experiments).

    Args:
        seed: which one.
        actions: the number of actions.
        degree: of the densities, even.
        bits: draw with this many bits of precision, as the paper does with eight; to `TOLERANCE` if left out.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7, actions=3, degree=10)
        >>> certirl.solve(problem, expert=0, discount=0.7, columns=3, samples=2_000, rng=0).status
        'solved'
    """
    as_count(actions, "actions", least=2, most=MOST_RANDOM)
    if not 2 <= degree <= MOST_RANDOM or degree % 2:
        raise ValueError(f"degree must be an even number, at least 2 and at most {MOST_RANDOM}, got {degree}")
    if bits is not None and not 1 <= bits <= 30:
        raise ValueError(f"bits must lie between 1 and 30, got {bits}")
    rng = as_generator(seed)
    densities = np.array([[_random_density(rng, degree) for _ in range(2)] for _ in range(actions)])
    return PolynomialProblem(f"random polynomial {seed}", densities[:, 0], densities[:, 1], bits)


@typed
def unsolvable(*, seed: int, degree: int = 10) -> PolynomialProblem:
    """No reward explains action 0: it is the even mixture of actions 1 and 2, so it can beat at most one of them.

    Example:
        >>> problem = certirl.problems.unsolvable(seed=1)
        >>> certirl.paper.separability(problem.operators(certirl.Legendre(7)), discount=0.7)
        0.0
    """
    others = random_polynomial(seed=seed, actions=2, degree=degree)
    centre = np.concatenate([others.centre.mean(axis=0, keepdims=True), others.centre])
    edge = np.concatenate([others.edge.mean(axis=0, keepdims=True), others.edge])
    return PolynomialProblem(f"unsolvable {seed}", centre, edge)


class _TruncatedNormal(Problem):
    """``s' ~ N(mean_a(s), noise²)`` in every coordinate, truncated to the domain."""

    noise: float

    def _means(self, states: Array, action: int) -> Array:
        """Mean of the next state before truncation ``[n, d]``."""
        raise NotImplementedError

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        from scipy.special import ndtr

        d = len(self.domain)
        means, next_rows = self._means(as_rows(states, d), action), as_rows(next_states, d)
        squares, scale = np.zeros((len(means), len(next_rows))), np.ones(len(means))
        for (low, high), mean, y in zip(self.domain, means.T, next_rows.T, strict=True):
            squares += ((y - mean[:, None]) / self.noise) ** 2
            scale *= np.sqrt(2 * np.pi) * self.noise
            scale *= ndtr((high - mean) / self.noise) - ndtr((low - mean) / self.noise)
        return np.exp(-0.5 * squares) / scale[:, None]

    @typed
    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Inverse transform of the truncated normal, coordinate by coordinate."""
        from scipy.special import ndtr, ndtri

        low, high = self.domain.ends
        means = self._means(as_rows(states, len(low)), action)
        start, end = ndtr((low - means) / self.noise), ndtr((high - means) / self.noise)
        drawn = np.clip(means + self.noise * ndtri(start + (end - start) * rng.random(means.shape)), low, high)
        return drawn.reshape(np.shape(states))


@typed
@dataclass(frozen=True, eq=False)
class Thermostat(_TruncatedNormal):
    """A room's temperature: ``s' ~ N(s + leak·(ambient − s) + power_a, noise²)``, truncated to the domain.

    Smooth but not polynomial. Action 0 heats most, so an expert who always heats is explained by any reward for warmth.

    Attributes:
        power: by how much each action changes the temperature.
        ambient, leak: the temperature outside, and the share of the difference that is lost in a step.
        noise: standard deviation of a step.

    Example:
        >>> problem = certirl.problems.thermostat(noise=3.0)
        >>> problem.power, problem.domain
        ((1.5, 0.0, -1.5), ((15.0, 25.0),))
    """

    power: tuple[float, ...] = (1.5, 0.0, -1.5)
    ambient: float = 18.0
    leak: float = 0.1
    noise: float = 1.5
    domain: Box = field(default=as_domain((15, 25)))
    name: str = "thermostat"

    def __post_init__(self) -> None:
        object.__setattr__(self, "domain", as_domain(self.domain))
        if len(self.domain) != 1:
            raise ValueError(f"domain must be one (low, high), of the temperature, got {self.domain.words}")
        ((low, high),) = self.domain
        means = [self._means(np.array([[low], [high]]), action) for action in range(self.n_actions)]
        if not self.noise > 0 or np.min(means) < low - 5 * self.noise or np.max(means) > high + 5 * self.noise:
            raise ValueError(
                f"power and noise must keep the next temperature within five noises of {self.domain.words}, "
                f"got power {self.power} and noise {self.noise}"
            )

    @property
    def n_actions(self) -> int:
        """One per power."""
        return len(self.power)

    def _means(self, states: Array, action: int) -> Array:
        return states + self.leak * (self.ambient - states) + self.power[self._chosen(action)]


def thermostat(**settings: Any) -> Thermostat:
    """A room's temperature (settings: see `Thermostat`); action 0, heating, can be explained.

    Example:
        >>> print(certirl.problems.thermostat(power=(2.0, 0.0), noise=3.0))
        thermostat: 2 actions on [15, 25]
    """
    return Thermostat(**settings)


@typed
@dataclass(frozen=True, eq=False)
class Whirl(_TruncatedNormal):
    """Rotation and drift: ``s' ~ N(shrink·Q s + drift_a, noise²)``, truncated to the box [-1, 1]ᵈ, Q a rotation.

    The rotation of the first two coordinates couples them; it is smooth but not polynomial. Action 0 drifts to the
    corner (1, 1, …), the others away from it: a reward for that corner explains an expert who always takes action 0.

    Attributes:
        drift: where each action leads, one row per action.
        angle: of the rotation of the first two coordinates.
        shrink: the factor of the state.
        noise: of every coordinate.
        name: what to call it.

    Example:
        >>> problem = certirl.problems.whirl()
        >>> problem.drift[0], problem.domain
        ((0.35, 0.35), ((-1.0, 1.0), (-1.0, 1.0)))
    """

    drift: tuple[tuple[float, ...], ...] = ((0.35, 0.35), (-0.35, 0.1), (0.1, -0.35))
    angle: float = 0.6
    shrink: float = 0.6
    noise: float = 0.5
    name: str = "whirl"
    domain: Box = field(init=False)

    def __post_init__(self) -> None:
        lengths = {len(row) for row in self.drift}
        if len(lengths) != 1 or not 2 <= min(lengths) <= 3 or not self.noise > 0:
            raise ValueError(f"drift needs two or three numbers for each action, noise above 0; got {self.drift}")
        object.__setattr__(self, "domain", as_domain(((-1.0, 1.0),) * min(lengths)))

    @property
    def n_actions(self) -> int:
        """One per drift."""
        return len(self.drift)

    def _means(self, states: Array, action: int) -> Array:
        turned = np.array(states, dtype=np.float64)
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        turned[:, 0], turned[:, 1] = cos * states[:, 0] - sin * states[:, 1], sin * states[:, 0] + cos * states[:, 1]
        return self.shrink * turned + np.array(self.drift[self._chosen(action)])


@typed
def whirl(*, dimension: int = 2, **settings: Any) -> Whirl:
    """Rotation and drift in two or three coordinates (settings: see `Whirl`); action 0 can be explained.

    Example:
        >>> print(certirl.problems.whirl(dimension=3))
        whirl: 3 actions on [-1, 1] × [-1, 1] × [-1, 1]
    """
    if as_count(dimension, "dimension", least=2, most=3) == 2:
        return Whirl(**settings)
    return Whirl(drift=((0.35, 0.35, 0.2), (-0.35, 0.1, 0.0), (0.1, -0.35, -0.2)), **settings)


@typed
@dataclass(frozen=True, eq=False)
class Circle(Problem):
    """An angle: ``s' ~ c_a + pull·sin(s − c_a) + noise`` on the circle; action a leads to its home c_a.

    Periodic in both variables, as the trigonometric basis is. A reward for being near the first home explains an expert
    who always goes there, action 0.

    Attributes:
        homes: c_a of each action.
        pull: how much of the distance to the home remains.
        noise: standard deviation of a step.

    Example:
        >>> problem = certirl.problems.circle(homes=(0.0, 1.0))
        >>> problem.n_actions, problem.noise
        (2, 0.6)
    """

    homes: tuple[float, ...] = (0.0, 2.0, -2.0)
    pull: float = 0.5
    noise: float = 0.6
    name: str = "circle"
    domain: Box = field(default=as_domain((-np.pi, np.pi)), init=False)

    def __post_init__(self) -> None:
        as_number(self.noise, "noise", least=1e-3, most=1e3)

    @property
    def n_actions(self) -> int:
        """One per home."""
        return len(self.homes)

    def _means(self, states: Array, action: int) -> Array:
        home = self.homes[self._chosen(action)]
        return home + self.pull * np.sin(states - home)

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``: the normal density summed over turns of the circle."""
        y, means = as_rows(next_states, 1)[:, 0], self._means(as_rows(states, 1), action)
        distance = np.mod(y - means + np.pi, _CIRCLE) - np.pi
        turns = int(np.ceil(9 * self.noise / _CIRCLE)) + 1
        total = sum(np.exp(-0.5 * ((distance + _CIRCLE * turn) / self.noise) ** 2) for turn in range(-turns, turns + 1))
        return np.asarray(total / (np.sqrt(2 * np.pi) * self.noise))

    @typed
    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """A normal step, modulo 2π."""
        means = self._means(as_rows(states, 1)[:, 0], action)
        drawn = np.mod(means + self.noise * rng.standard_normal(len(means)) + np.pi, _CIRCLE) - np.pi
        return drawn.reshape(np.shape(states))


def circle(**settings: Any) -> Circle:
    """An angle on a circle (settings: see `Circle`); action 0 can be explained.

    Example:
        >>> problem = certirl.problems.circle()
        >>> problem.true_margin(lambda states: np.cos(states[:, 0]), discount=0.9) > 0
        True
    """
    return Circle(**settings)


@dataclass(frozen=True, eq=False)
class Independent(Problem):
    """``p_a(s'|s) = Π_j p_ja(s'_j|s_j)``: problems side by side that share the action (Theorem 8).

    For a reward of all coordinates together the truth is that of any problem, for up to three coordinates. For a
    `Reward` over the parts it is a sum over them, for any number of them.

    Attributes:
        parts: the problem of each component, all with the same number of actions.
        name: what to call it.

    Example:
        >>> problem = certirl.problems.random_independent(seed=1, dimension=3)
        >>> problem.components, len(problem.parts)
        ([[0], [1], [2]], 3)
    """

    parts: tuple[Problem, ...]
    name: str = "independent components"
    domain: Box = field(init=False)

    def __post_init__(self) -> None:
        for part in as_listed(self.parts, "parts"):
            if not isinstance(part, Problem):
                raise TypeError(f"independent problems must be problems of certirl.problems, got {shown(part)}")
        if len({problem.n_actions for problem in self.parts}) != 1:
            counts = [problem.n_actions for problem in self.parts]
            raise ValueError(f"independent problems must have the same number of actions, got {counts}")
        object.__setattr__(self, "domain", as_domain(tuple(side for problem in self.parts for side in problem.domain)))

    @property
    def n_actions(self) -> int:
        """That of every part."""
        return self.parts[0].n_actions

    @property
    def components(self) -> list[list[int]]:
        """The coordinates of each part, as `certirl.solve` takes them."""
        ends = np.cumsum([len(problem.domain) for problem in self.parts]).tolist()
        return [list(range(end - len(problem.domain), end)) for problem, end in zip(self.parts, ends, strict=True)]

    def _split(self, states: Array) -> list[Array]:
        rows = as_rows(states, len(self.domain))
        return [rows[:, coordinates] for coordinates in self.components]

    def density(self, next_states: Array, states: Array, action: int) -> Array:
        """p_a(s' | s) for every pair ``[n, m]``."""
        triples = zip(self.parts, self._split(next_states), self._split(states), strict=True)
        return reduce(np.multiply, (problem.density(y, s, action) for problem, y, s in triples))

    @typed
    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Draw s'_j ~ p_ja(· | s_j), one component after the other."""
        drawn = [
            problem.sample(rows, action, rng) for problem, rows in zip(self.parts, self._split(states), strict=True)
        ]
        return np.concatenate(drawn, axis=1).reshape(np.shape(states))

    @property
    def tail(self) -> DensityTail:
        """τ of a certificate: for columns of all coordinates, or the largest over the components that they fit."""
        return replace(super().tail, components=tuple(problem.tail for problem in self.parts))

    def true_margins(self, reward: RewardLike, *, discount: float, expert: int = 0) -> Array:
        """min_s of the true D_a(s), alternative actions in order ``[A − 1]``.

        For a `Reward` that is a sum over the parts it is the sum of their minima.
        """
        settings: dict[str, Any] = {"discount": discount, "expert": expert}
        if not isinstance(reward, Reward) or len(reward.components) == 1:
            return super().true_margins(reward, **settings)
        groups = [list(component.coordinates) for component in reward.components]
        if groups != self.components:
            raise ValueError(f"the reward's components must be {self.components}, got {groups}")
        pairs = zip(self.parts, reward.parts, strict=True)
        return np.sum([problem.true_margins(component, **settings) for problem, component in pairs], axis=0)


def independent(*parts: Problem) -> Independent:
    """Problems side by side, moved by the same action: components of one problem, of any number of coordinates.

    Example:
        >>> room = certirl.problems.thermostat()
        >>> print(certirl.problems.independent(room, room))
        independent components: 3 actions on [15, 25] × [15, 25]
    """
    return Independent(parts)


@typed
def random_independent(*, seed: int, dimension: int = 2, actions: int = 3, degree: int = 4) -> Independent:
    """The paper's random polynomial problem in each coordinate.

    Example:
        >>> print(certirl.problems.random_independent(seed=1, dimension=2))
        independent components: 3 actions on [-1, 1] × [-1, 1]
    """
    seeds = np.random.SeedSequence(seed).generate_state(as_count(dimension, "dimension", most=MOST_RANDOM))
    return independent(*(random_polynomial(seed=int(number), actions=actions, degree=degree) for number in seeds))


@typed
def factorised(
    *, seed: int, components: int = 3, actions: int = 3, unaffected: float = 0.3, solvable: bool = True
) -> Independent:
    """Random polynomial components; an action acts on each as action 0 does with probability ``unaffected``.

    With ``solvable=False`` there are three actions, of which 0 is the even mixture of the others in every component.

    Example:
        >>> problem = certirl.problems.factorised(seed=1, components=3)
        >>> print(problem)
        factorised 1: 3 actions on [-1, 1] × [-1, 1] × [-1, 1]
        >>> problem.components
        [[0], [1], [2]]
    """
    as_number(unaffected, "unaffected", least=0, most=1)
    as_count(actions, "actions", least=2, most=MOST_RANDOM)
    rng, parts = np.random.default_rng([seed, as_count(components, "components", most=MOST_RANDOM)]), []
    for _ in range(components):
        number, same = int(rng.integers(2**62)), rng.random(actions) < unaffected
        problem = random_polynomial(seed=number, actions=actions) if solvable else unsolvable(seed=number)
        acts = np.where(same, 0, np.arange(actions))
        parts.append(replace(problem, centre=problem.centre[acts], edge=problem.edge[acts]) if solvable else problem)
    return Independent(tuple(parts), f"{'' if solvable else 'unsolvable '}factorised {seed}")


# Draws from polynomial densities on [-1, 1] by x = F⁻¹(u) ------------------------------------------------------------

# Exactly, in a few bits, or fast through a table of chords. A chord of F that is h wide misses F by h² max|f'|/8 at
# most, and by no more than its probability. The table has as many chords as keep the one or, where F⁻¹ is steep, the
# other below `TOLERANCE`.


@dataclass(frozen=True, eq=False)
class Chords(Record):
    """Distribution functions F_0, F_1, …, each replaced by chords; one after the other, with a last point each."""

    # scale, offset: step i of u in density d holds chords from scale·u + offset on, at d·(STEPS + 1) + i
    scale: Array
    offset: Array
    # low, width: where a chord begins, and how far it reaches
    low: Array
    width: Array

    def draw(self, uniform: Array, which: NDArray[np.bool_]) -> Array:
        """F_w⁻¹(u) for every u in [0, 1), w = 1 where ``which`` and else 0: four lookups and no search."""
        step = (uniform * STEPS).astype(np.intp)
        step += which * np.intp(STEPS + 1)
        along = self.scale.take(step)
        along *= uniform
        along += self.offset.take(step)
        chord = along.astype(np.intp)
        along -= chord
        along *= self.width.take(chord)
        along += self.low.take(chord)
        return along


def chords(*densities: Array) -> Chords:
    """The table of some densities, given by power coefficients; the most recent tables are cached."""
    return _chords(tuple(np.asarray(density, dtype=np.float64).tobytes() for density in densities))


@lru_cache(maxsize=512)  # a problem of many components needs one for each and every action
def _chords(keys: tuple[bytes, ...]) -> Chords:
    scale, offset, nodes = [], [], []
    start = 0
    for key in keys:
        density = np.frombuffer(key)
        cuts = _cuts(density)
        first = start + np.concatenate([[0], np.cumsum(cuts)])
        steps = np.repeat(np.arange(STEPS), cuts)
        within = np.arange(len(steps)) - np.repeat(first[:-1] - start, cuts)
        x = np.append(invert(density, (steps + within / np.repeat(cuts, cuts)) / STEPS), 1.0)
        scale.append(np.append(cuts * float(STEPS), 0.0))
        offset.append(first - np.append(cuts * np.arange(STEPS), 0.0))
        nodes.append(np.maximum.accumulate(x))
        start += len(x)
    low = np.concatenate(nodes)
    width = np.concatenate([np.append(np.diff(x), 0.0) for x in nodes])
    return Chords(np.concatenate(scale), np.concatenate(offset), low, width)


def _cuts(density: Array) -> NDArray[np.intp]:
    """The number of chords that each step of u needs so that h² max|f'|/8, or else their probability, is small."""
    # Evenly spaced places, and the middle of every step, so that each has one and all of it lies next to one.
    middles = invert(density, (np.arange(STEPS) + 0.5) / STEPS)
    x = np.sort(np.concatenate([np.linspace(-1.0, 1.0, _PLACES), middles]))
    slope = np.abs(polynomial.polyval(x, polynomial.polyder(density)))
    wide = np.sqrt(8 * TOLERANCE / np.maximum(_over_neighbours(np.maximum, slope), 1e-6))  # how wide a chord may be
    f = _over_neighbours(np.minimum, np.maximum(polynomial.polyval(x, density), 0.0))
    # Half the probability of a chord that wide, as f may fall along it; narrower chords are correct, too.
    probability = np.maximum(f * wide / 2, TOLERANCE)
    step = np.clip((distribution(density, x) * STEPS).astype(np.intp), 0, STEPS - 1)
    cuts = np.ones(STEPS, dtype=np.intp)
    np.maximum.at(cuts, step, np.ceil(1 / (STEPS * probability)).astype(np.intp))
    return cuts


def _over_neighbours(extreme: np.ufunc, values: Array) -> Array:
    """The largest, or least, of each value and those next to it."""
    result = values.copy()
    extreme(result[1:], values[:-1], out=result[1:])
    extreme(result[:-1], values[1:], out=result[:-1])
    return result


def distribution(density: Array, x: Array) -> Array:
    """F(x) = ∫ from −1 to x of the density."""
    integral = polynomial.polyint(density)
    integral[0] -= polynomial.polyval(-1.0, integral)
    return np.asarray(polynomial.polyval(x, integral))


def invert(density: Array, uniform: Array) -> Array:
    """x with F(x) = u to rounding: a table brackets the root, Newton's method finishes."""
    table, heights, cell = _bracket(density, uniform, 1024)
    low, high = table[cell - 1], table[cell]
    x = low + (high - low) * (uniform - heights[cell - 1]) / np.maximum(heights[cell] - heights[cell - 1], 1e-300)
    for _ in range(3):
        x = x - (distribution(density, x) - uniform) / np.maximum(polynomial.polyval(x, density), 1e-12)
        x = np.clip(x, low, high)
    return np.asarray(x)


def bisect(density: Array, uniform: Array, bits: int) -> Array:
    """The middle of the cell, of 2^bits equal ones, that holds F⁻¹(u): bisection, all at once."""
    table, _, cell = _bracket(density, uniform, 2**bits)
    return np.asarray((table[cell - 1] + table[cell]) / 2)


def _bracket(density: Array, uniform: Array, cells: int) -> tuple[Array, Array, NDArray[np.intp]]:
    table = np.linspace(-1.0, 1.0, cells + 1)
    heights = distribution(density, table)
    return table, heights, np.clip(np.searchsorted(heights, uniform, side="right"), 1, cells)
