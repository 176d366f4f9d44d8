"""Test of independent components, and groups of coordinates found by it.

A sum of rewards needs one thing: given the action, a component's next state depends on its own state alone. Under that
hypothesis the residuals r = f(s'_j) − E[f(s'_j) | s_j] have mean zero whatever the states of the other components are,
and every z = Σ rg / √(Σ r²g²) is nearly normal, where g is a function of another component's state minus its regression
on s_j. The test is the largest |z|, with Bonferroni's correction. The paper assumes more, a product of densities: then
residuals of two components are uncorrelated as well. Sums do not need that, so it is reported beside the test.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np

from certirl.data.memory import DEGREES, LEVEL, corrected
from certirl.data.simulator import Simulator, as_samples
from certirl.data.source import Source, as_source
from certirl.data.transitions import Transitions
from certirl.functions.bases import Legendre
from certirl.functions.components import Component, SumBasis, as_groups
from certirl.ground.domain import Array
from certirl.ground.doors import as_flag, as_probability
from certirl.ground.records import Record

TARGETS = 3  # functions of each next coordinate that are compared
SAMPLES = 4_000  # transitions per action: a dependence that these do not show is weak
MOST_SAMPLES = 1_000_000  # transitions per action, all of which are kept
FEWEST = 180  # transitions per action below which z is far from normal
MOST_COORDINATES = 3


@dataclass(frozen=True, eq=False)
class Independence(Record):
    """The test that the next state of a component depends on its own state alone.

    Attributes:
        names: of the components.
        p_value: of the largest |z|, corrected for the number of comparisons.
        z: the largest |z| for a dependence of component j's next state on component k's state ``[J, J]``.
        noise_p_value: the same for noise that components share, which does not matter to sums of rewards.
        noise: the largest |z| of products of residuals ``[J, J]``.
        comparisons: the number of z in the first test.
        samples: transitions per action.
        level: the hypothesis is rejected if its p-value is smaller.

    Example:
        >>> test = certirl.diagnose.independent(certirl.problems.whirl(), [[0], [1]], samples=500, rng=0)
        >>> test.holds, test.p_value < 0.001, test.z.shape
        (False, True, (2, 2))
    """

    names: tuple[str, ...]
    p_value: float
    z: Array
    noise_p_value: float
    noise: Array
    comparisons: int
    samples: int
    level: float
    _derived: ClassVar[tuple[str, ...]] = ("holds",)

    @property
    def holds(self) -> bool:
        """Whether the hypothesis is not rejected."""
        return self.p_value >= self.level

    def __str__(self) -> str:
        if self.holds:
            noise = "" if self.noise_p_value >= self.level else "; they share noise, which does not matter to sums"
            return f"components independent as far as {self.samples:,} transitions tell (p = {self.p_value:.2g}){noise}"
        j, k = np.unravel_index(int(self.z.argmax()), self.z.shape)
        return (
            f"components NOT independent: the next {self.names[j]} depends on {self.names[k]} "
            f"(|z| = {self.z[j, k]:.3g}, p = {self.p_value:.1g} after {self.comparisons:,} comparisons)"
        )


def independent(
    source: Simulator | Transitions | Source,
    components: Any,
    *,
    samples: int = SAMPLES,
    rng: Any = None,
    level: float = LEVEL,
) -> Independence:
    """Test that ``p_a(s'_j | s) = p_a(s'_j | s_j)`` for every component j and action a.

    Args:
        source: a simulator or logged transitions.
        components: lists of coordinates, as for `solve`.
        samples: transitions per action, at most.
        rng: a seed or Generator; needed with a simulator.
        level: the probability of rejecting components that are independent.

    Example:
        >>> problem = certirl.problems.random_independent(seed=1, dimension=2)
        >>> certirl.diagnose.independent(problem, [[0], [1]], samples=500, rng=0).holds
        True
        >>> certirl.diagnose.independent(certirl.problems.whirl(), [[0], [1]], samples=500, rng=0).holds
        False
    """
    level, samples = as_probability(level, "level"), as_samples(samples, least=FEWEST, most=MOST_SAMPLES)
    data = as_source(source)
    groups = as_groups(components, len(data.domain))
    largest = max(len(group) for group in groups.values())
    if largest > MOST_COORDINATES:
        raise ValueError(f"the test is for components of {MOST_COORDINATES} coordinates at most, got one of {largest}")
    tests = [_Comparison(*rows, list(groups.values())) for rows in _rows(data, samples, rng)]
    z, noise = (np.max([getattr(test, name) for test in tests], axis=0) for name in ("z", "noise"))
    comparisons = sum(test.comparisons for test in tests)
    return Independence(
        names=tuple(groups),
        p_value=corrected(z, comparisons),
        z=z,
        noise_p_value=corrected(noise, sum(test.products for test in tests)),
        noise=noise,
        comparisons=comparisons,
        samples=min(test.n for test in tests),
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
    """Find the smallest groups of coordinates between which data show no dependence.

    Two coordinates are joined where the next value of one depends significantly on the present value of the other. A
    dependence too weak for the data is missed, so look at `independent` afterwards.

    Args:
        source: a simulator or logged transitions.
        samples: transitions per action, at most.
        rng: a seed or Generator; needed with a simulator.
        level: the probability of joining anything that is independent.
        join_noise: join coordinates with common noise as well, as the paper's product of densities needs.

    Example:
        >>> problem = certirl.problems.random_independent(seed=1, dimension=2)
        >>> certirl.diagnose.components(problem, samples=500, rng=0)
        [[0], [1]]
        >>> certirl.diagnose.components(certirl.problems.whirl(), samples=500, rng=0)
        [[0, 1]]
    """
    as_flag(join_noise, "join_noise")
    data = as_source(source)
    single = [[coordinate] for coordinate in range(len(data.domain))]
    test = independent(data, single, samples=samples, rng=rng, level=level)
    strength = np.maximum(test.z, test.noise) if join_noise else test.z
    comparisons = (1 + join_noise) * test.comparisons
    joined = np.array([[corrected(value, comparisons) < level for value in row] for row in strength])
    return _connected(joined | joined.T)


def _connected(joined: Array) -> list[list[int]]:
    """The connected components of a graph, in order of their first members."""
    label = np.arange(len(joined))
    for _ in range(len(joined)):
        label = np.array([min(label[j], label[joined[j]].min(initial=label[j])) for j in range(len(joined))])
    return [np.flatnonzero(label == first).tolist() for first in sorted(set(label.tolist()))]


def _rows(source: Source, samples: int, rng: Any) -> list[tuple[Array, Array]]:
    """States and next states of each action, in coordinates from −1 to 1: ``[n, d]`` each."""
    generator = source.generator(rng, "independent", plain=True)
    coordinates = tuple(Component(f"s{c}", (c,), Legendre(1).on((side,))) for c, side in enumerate(source.domain))
    design: Any = SumBasis(coordinates)
    log, pairs = source.stream(samples, design, generator, paired=False).record(), []
    for action in range(log.n_actions):
        rows = log.of_action(action)
        n = len(rows[0])
        if n < FEWEST:
            raise ValueError(f"a test of independence needs {FEWEST} transitions of every action, got {n}")
        chosen = np.linspace(0, n - 1, min(samples, n)).astype(int)  # from all parts of a log
        states, next_states = (2 * source.domain.shares(values[chosen]) - 1 for values in rows)
        pairs.append((states, next_states))
    return pairs


class _Comparison:
    """The z of one action's transitions, in coordinates from −1 to 1."""

    def __init__(self, states: Array, next_states: Array, groups: list[tuple[int, ...]]) -> None:
        J, self.n = len(groups), len(states)
        before, after = _functions(states), _functions(next_states)
        self.z, self.noise = np.zeros((J, J)), np.zeros((J, J))
        self.comparisons = self.products = 0
        residuals = []
        for j, group in enumerate(groups):
            regressors, _ = np.linalg.qr(_regressors(states, group))
            targets = after[:, list(group)].reshape(self.n, -1)
            r = targets - regressors @ (regressors.T @ targets)
            r[:, (r**2).mean(axis=0) < 1e-20] = 0.0  # predicted exactly: the rest is rounding
            residuals.append(r)
            for k, other in enumerate(groups):
                if k != j:
                    g = _other_functions(before, group, other)
                    g -= regressors @ (regressors.T @ g)
                    self.z[j, k] = _largest(r, g)
                    self.comparisons += r.shape[1] * g.shape[1]
        for j in range(J):
            for k in range(j):
                self.noise[j, k] = self.noise[k, j] = _largest(residuals[j], residuals[k])
                self.products += residuals[j].shape[1] * residuals[k].shape[1]


def _largest(r: Array, g: Array) -> float:
    """The largest |Σ rg| / √(Σ r²g²) over columns of r and g."""
    sums, squares = r.T @ g, (r**2).T @ g**2
    return float((np.abs(sums) / np.sqrt(np.maximum(squares, 1e-300))).max(initial=0.0))


def _functions(states: Array) -> Array:
    """The first Legendre functions of every coordinate but the constant ``[n, d, TARGETS]``."""
    basis = Legendre(TARGETS + 1)
    return np.stack([basis.values(column)[:, 1:] for column in states.T], axis=1)


def _regressors(states: Array, group: tuple[int, ...]) -> Array:
    """All products of the component's coordinates up to a total degree ``[n, m]``."""
    degree = DEGREES.get(len(group), 3)
    if len(group) == 1:
        return Legendre(degree + 1).values(states[:, group[0]])
    powers = [p for total in range(degree + 1) for p in combinations_with_replacement(group, total)]
    return np.stack([states[:, list(p)].prod(axis=1) for p in powers], axis=1)


def _other_functions(before: Array, group: tuple[int, ...], other: tuple[int, ...]) -> Array:
    """Functions of another component, alone and times a coordinate of this one ``[n, m]``."""
    functions = before[:, list(other)]
    crossed = [functions[:, :, :2] * before[:, [c], :1] for c in group]
    return np.concatenate([values.reshape(len(before), -1) for values in (functions, *crossed)], axis=1)
