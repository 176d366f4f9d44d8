"""Do the components move independently of each other? What data can say, and groups of coordinates found from data.

Sums of rewards need one thing: given the action, a component's next state depends on its own state alone. Under that
hypothesis the residuals r = f(s'_j) − E[f(s'_j) | s_j] have mean zero whatever the other components' states are, and
every z = Σ rg / √(Σ r²g²) is nearly normal, where g is a function of another component's state less its regression on
s_j. The largest |z| of all, with Bonferroni's correction, is the test. The paper asks more, a product of densities:
then residuals of two components are uncorrelated too. Sums do not need that, so it is reported beside the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from certirl.data.simulator import Simulator, as_generator, as_samples, check_simulator, draw
from certirl.data.transitions import Transitions
from certirl.functions.bases import Legendre
from certirl.functions.components import Component, SumBasis, as_groups
from certirl.ground.domain import Array, Domain, as_domain, freeze
from certirl.ground.doors import as_flag, as_probability
from certirl.kernels.tensors import on_host

TARGETS = 3  # functions of each next coordinate that are compared
SAMPLES = 4_000  # transitions per action: a dependence that these do not show can still be there, but is weak
LEVEL = 1e-3
MOST_SAMPLES = 1_000_000  # transitions per action, all of which are kept
FEWEST = 180  # transitions per action below which z is far from normal
# The total degree in which a component's own state is taken out, by its number of coordinates.
OWN_DEGREES = {1: 8, 2: 5}
MOST_COORDINATES = 3


@dataclass(frozen=True, eq=False)
class Independence:
    """Whether every component's next state depends on its own state and the action alone, as far as data tell.

    Attributes:
        names: of the components.
        p_value: of the largest |z|, corrected for the number of comparisons.
        z: the largest |z| with which component j's next state hangs on component k's state ``[J, J]``.
        noise_p_value: the same for noise that components share, to which sums of rewards are indifferent.
        noise: the largest |z| of products of residuals ``[J, J]``.
        comparisons: how many z were looked at for the first test.
        samples: transitions per action.
        level: below which p-value the hypothesis is rejected.
    """

    names: tuple[str, ...]
    p_value: float
    z: Array
    noise_p_value: float
    noise: Array
    comparisons: int
    samples: int
    level: float

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def holds(self) -> bool:
        """Nothing speaks against it at this level."""
        return self.p_value >= self.level

    def __str__(self) -> str:
        if self.holds:
            noise = "" if self.noise_p_value >= self.level else "; they share noise, which sums of rewards can bear"
            return f"components independent as far as {self.samples:,} transitions tell (p = {self.p_value:.2g}){noise}"
        j, k = np.unravel_index(int(self.z.argmax()), self.z.shape)
        return (
            f"components NOT independent: the next {self.names[j]} depends on {self.names[k]} "
            f"(|z| = {self.z[j, k]:.3g}, p = {self.p_value:.1g} after {self.comparisons:,} comparisons)"
        )


def independent(
    source: Simulator | Transitions, components: Any, *, samples: int = SAMPLES, rng: Any = None, level: float = LEVEL
) -> Independence:
    """Test that ``p_a(s'_j | s) = p_a(s'_j | s_j)`` for every component j and action a.

    Args:
        source: a simulator or logged transitions.
        components: lists of coordinates, as for `solve`.
        samples: transitions per action to look at, at most.
        rng: a seed or Generator; needed with a simulator.
        level: the probability of a false alarm.
    """
    level, samples = as_probability(level, "level"), as_samples(samples, least=FEWEST, most=MOST_SAMPLES)
    if not isinstance(source, Transitions):
        check_simulator(source)
    domain = as_domain(source.domain)
    groups = as_groups(components, len(domain))
    largest = max(len(group) for group in groups.values())
    if largest > MOST_COORDINATES:
        raise ValueError(f"the test is for components of {MOST_COORDINATES} coordinates at most, got one of {largest}")
    z, noise = np.zeros((len(groups), len(groups))), np.zeros((len(groups), len(groups)))
    comparisons = products = 0
    rows = samples
    for states, next_states in _by_action(source, domain, samples, rng):
        found = _Comparison(states, next_states, list(groups.values()))
        z, noise = np.maximum(z, found.z), np.maximum(noise, found.noise)
        comparisons, products = comparisons + found.comparisons, products + found.products
        rows = min(rows, len(states))
    return Independence(
        names=tuple(groups),
        p_value=_corrected(z, comparisons),
        z=z,
        noise_p_value=_corrected(noise, products),
        noise=noise,
        comparisons=comparisons,
        samples=rows,
        level=level,
    )


def find_components(
    source: Simulator | Transitions,
    *,
    samples: int = SAMPLES,
    rng: Any = None,
    level: float = LEVEL,
    join_noise: bool = False,
) -> list[list[int]]:
    """The finest groups of coordinates between which data show no dependence: what `solve(components=…)` wants.

    Coordinates are joined where the next value of one depends significantly on the present value of the other; groups
    are what hangs together. A dependence too weak for the data is missed, so look at `independent` afterwards.

    Args:
        source: a simulator or logged transitions.
        samples: transitions per action to look at, at most.
        rng: a seed or Generator; needed with a simulator.
        level: the probability of joining anything that is independent.
        join_noise: join coordinates with common noise as well, as the paper's product of densities asks.
    """
    as_flag(join_noise, "join_noise")
    if not isinstance(source, Transitions):
        check_simulator(source)
    dimension = len(as_domain(source.domain))
    found = independent(source, [[c] for c in range(dimension)], samples=samples, rng=rng, level=level)
    strength = np.maximum(found.z, found.noise) if join_noise else found.z
    comparisons = 2 * found.comparisons if join_noise else found.comparisons
    joined = np.array([[_corrected(value, comparisons) < level for value in row] for row in strength])
    return _connected(joined | joined.T)


def _connected(joined: Array) -> list[list[int]]:
    """The connected components of a graph, in order of their first members."""
    label = np.arange(len(joined))
    for _ in range(len(joined)):
        label = np.array([min(label[j], label[joined[j]].min(initial=label[j])) for j in range(len(joined))])
    return [np.flatnonzero(label == first).tolist() for first in sorted(set(label.tolist()))]


def _corrected(z: Any, comparisons: int) -> float:
    """Bonferroni's p-value of the largest |z|."""
    from scipy.special import ndtr

    return float(min(1.0, max(comparisons, 1) * 2 * ndtr(-float(np.max(z)))))


def _by_action(source: Any, domain: Domain, samples: int, rng: Any) -> Iterator[tuple[Array, Array]]:
    """States and next states of each action in turn, in coordinates from −1 to 1: ``[n, d]`` each."""
    low, high = np.array(domain).T
    for states, next_states in _rows(source, domain, samples, rng):
        if len(states) < FEWEST:
            raise ValueError(f"a test of independence needs {FEWEST} transitions of every action, got {len(states)}")
        yield 2 * (states - low) / (high - low) - 1, 2 * (next_states - low) / (high - low) - 1


def _rows(source: Any, domain: Domain, samples: int, rng: Any) -> Iterator[tuple[Array, Array]]:
    if isinstance(source, Transitions):
        for action in range(source.n_actions):
            states, next_states = source.of_action(action)
            chosen = np.linspace(0, len(states) - 1, min(samples, len(states))).astype(int)  # from every stretch
            yield states[chosen], next_states[chosen]
        return
    each = tuple(Component(f"s{c}", (c,), Legendre(1).on((side,))) for c, side in enumerate(domain))
    places: Any = SumBasis(each)
    stream = list(
        on_host(
            draw(source, places, samples, as_generator(rng, "independent", plain=True), design=True), domain, samples
        )
    )
    for action in range(source.n_actions):
        mine = [piece for piece in stream if piece.actions == (action,)]
        yield np.concatenate([p.states for p in mine]), np.concatenate([p.next_states[0] for p in mine])


class _Comparison:
    """The z of one action's transitions, in coordinates from −1 to 1."""

    def __init__(self, states: Array, next_states: Array, groups: list[tuple[int, ...]]) -> None:
        J, n = len(groups), len(states)
        before, after = _functions(states), _functions(next_states)
        self.z, self.noise = np.zeros((J, J)), np.zeros((J, J))
        self.comparisons = self.products = 0
        residuals = []
        for j, own in enumerate(groups):
            taken, _ = np.linalg.qr(_own_functions(states, own))
            targets = after[:, list(own)].reshape(n, -1)
            rest = targets - taken @ (taken.T @ targets)
            rest[:, (rest**2).mean(axis=0) < 1e-20] = 0.0  # known exactly: what is left is rounding
            residuals.append(rest)
            for k, other in enumerate(groups):
                if k != j:
                    seen = _others(before, own, other)
                    seen -= taken @ (taken.T @ seen)
                    self.z[j, k] = _largest(rest.T @ seen, (rest**2).T @ seen**2)
                    self.comparisons += rest.shape[1] * seen.shape[1]
        for j in range(J):
            for k in range(j):
                one, other = residuals[j], residuals[k]
                self.noise[j, k] = self.noise[k, j] = _largest(one.T @ other, (one**2).T @ other**2)
                self.products += one.shape[1] * other.shape[1]


def _largest(sums: Array, squares: Array) -> float:
    """max |Σ w| / √(Σ w²)."""
    return float((np.abs(sums) / np.sqrt(np.maximum(squares, 1e-300))).max(initial=0.0))


def _functions(states: Array) -> Array:
    """The first Legendre functions of every coordinate, without the constant: ``[n, d, TARGETS]``."""
    basis = Legendre(TARGETS + 1)
    return np.stack([basis.values(column)[:, 1:] for column in states.T], axis=1)


def _own_functions(states: Array, own: tuple[int, ...]) -> Array:
    """All products of the component's coordinates up to a total degree ``[n, m]``."""
    top = OWN_DEGREES.get(len(own), 3)
    if len(own) == 1:
        return Legendre(top + 1).values(states[:, own[0]])
    powers = [p for total in range(top + 1) for p in combinations_with_replacement(own, total)]
    return np.stack([states[:, list(p)].prod(axis=1) for p in powers], axis=1)


def _others(before: Array, own: tuple[int, ...], other: tuple[int, ...]) -> Array:
    """Functions of another component's state, alone and times a coordinate of one's own ``[n, m]``."""
    theirs = before[:, list(other)]
    crossed = [theirs[:, :, :2] * before[:, [c], :1] for c in own]
    return np.concatenate([part.reshape(len(before), -1) for part in (theirs, *crossed)], axis=1)
