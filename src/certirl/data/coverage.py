"""Where a log can speak and where it is blind: how each action's states are spread over the state space.

The variance of a least-squares prediction of action a at s is σ² times the leverage ``h_a(s) = φ(s)ᵀ(Σφφᵀ)⁻¹φ(s)``, the
sum over the states from which a was taken. Where it exceeds 1 the prediction is worse than a single transition seen
there: it is extrapolated, and a statement about the expert there rests on the basis alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.transitions import Transitions
from certirl.functions.bases import Basis, Fourier, Legendre, as_basis
from certirl.functions.boxes import mesh, product
from certirl.ground.domain import Array, Domain, as_axes, as_domain, as_states, describe, freeze
from certirl.ground.doors import as_count

CELLS = {1: 50, 2: 25, 3: 10, 4: 6}  # along each coordinate
MOST_LOOKS = 10_000_000  # states at which leverage is looked at
FEW = 5  # transitions of an action in a cell that are not many
EXTRAPOLATED = 1.0
_BLOCK = 1 << 15
_SINGULAR = 1e-12


@dataclass(frozen=True, eq=False)
class Coverage:
    """How well the states of each action cover the domain.

    Attributes:
        basis: the functions of the state that leverage is about.
        domain: the box.
        counts: transitions of each action ``[A]``.
        effective: at half of all states a prediction is as good as from at least so many transitions drawn evenly, that
            is from the basis's weight ``[A]``.
        least: the same at the worst state ``[A]``.
        condition: of the Gram matrix, infinite if it is singular ``[A]``.
        cells: transitions of each action in each cell of the box ``[A, c, …, c]``.
        low, high: the least and largest state of each action ``[A, d]``; nan for one that was never taken.
        blind_share: the part of the box, by volume, where each action is extrapolated ``[A]``.
        worst: where the leverage of each action was found largest ``[A, d]``.
        roots: matrices W with h_a(s) = |φ(s)W|², ``[A, k, k]``.
    """

    basis: Basis
    domain: Domain
    counts: NDArray[np.intp]
    effective: Array
    least: Array
    condition: Array
    cells: NDArray[np.intp]
    low: Array
    high: Array
    blind_share: Array
    worst: Array
    roots: Array

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.counts)

    def leverage(self, states: ArrayLike) -> Array:
        """h_a(s), the variance of a prediction in units of that of one transition: ``[A, n]``."""
        phi = self.basis.values(as_states(states, self.domain))
        return np.stack([((phi @ root) ** 2).sum(axis=1) for root in self.roots])

    def blind(self, states: ArrayLike) -> NDArray[np.bool_]:
        """Where some action is extrapolated ``[n]``: no statement about the expert there rests on data."""
        return np.asarray((self.leverage(states) > EXTRAPOLATED).any(axis=0))

    @property
    def never_taken(self) -> tuple[int, ...]:
        """Actions that do not occur."""
        return tuple(np.flatnonzero(self.counts == 0).tolist())

    @property
    def unvisited(self) -> float:
        """The share of cells in which no transition of any action starts."""
        return float((self.cells.sum(axis=0) == 0).mean())

    @property
    def complete(self) -> bool:
        """Every action was seen, and none is extrapolated anywhere that was looked at."""
        return not self.never_taken and not self.blind_share.any()

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is missing, and what to do about it; empty where nothing is."""
        found = [
            f"action {action} was never taken, so that nothing can be said about it: log it, or leave it out of the "
            "actions the expert is compared with"
            for action in self.never_taken
        ]
        if self.unvisited:
            found.append(f"{self.unvisited:.0%} of the state space was never visited: narrow the domain, or log there")
        for action in np.flatnonzero(self.counts):
            found += self._about(int(action))
        return tuple(found)

    def _about(self, action: int) -> list[str]:
        found, place = [], ", ".join(f"{x:.3g}" for x in self.worst[action])
        if not np.isfinite(self.condition[action]):
            found.append(
                f"action {action} was not seen in enough different states to tell the {self.basis.size} functions "
                "apart: use fewer functions, or log it elsewhere"
            )
        elif self.blind_share[action]:
            found.append(
                f"action {action} is extrapolated over {self.blind_share[action]:.0%} of the state space, most of all "
                f"at s = {place}: a certificate there would rest on the basis, not on data"
            )
        for axis, (low, high) in enumerate(self.domain):
            seen = self.low[action, axis], self.high[action, axis]
            if seen[1] - seen[0] < 0.8 * (high - low):
                found.append(
                    f"action {action} was taken only with coordinate {axis} in [{seen[0]:.3g}, {seen[1]:.3g}] "
                    f"of [{low:.3g}, {high:.3g}]"
                )
        return found

    def __str__(self) -> str:
        few = (self.cells < FEW).reshape(self.n_actions, -1).mean(axis=1)
        rows = [
            f"  action {a}: {n:,} transitions, as good as {self.effective[a]:,.0f} drawn evenly in the median state, "
            f"{self.least[a]:,.0f} in the worst; κ = {self.condition[a]:.3g}; fewer than {FEW} in {few[a]:.0%} of cells"
            for a, n in enumerate(self.counts)
        ]
        head = f"Coverage of {describe(self.domain)} by {int(self.counts.sum()):,} transitions, {self.basis}"
        tail = self.sentences or ("nothing is missing: every action was seen all over the state space",)
        return "\n".join([head, *rows, *(f"  {sentence[0].upper()}{sentence[1:]}." for sentence in tail)])


def coverage(
    transitions: Transitions,
    *,
    basis: Basis | None = None,
    cells: int | None = None,
    periodic: tuple[int, ...] = (),
) -> Coverage:
    """Diagnose where in the state space logged transitions, from any behaviour, can support a statement.

    Args:
        transitions: the log.
        basis: the functions of the state to be told apart; moderate ones for the number of coordinates if left out.
        cells: along each coordinate, for counting.
        periodic: coordinates that go around, for the basis that is taken if none is given.
    """
    if not isinstance(transitions, Transitions):
        raise TypeError(f"coverage is about logged Transitions, got {type(transitions).__name__}")
    domain = as_domain(transitions.domain)
    around = as_axes(periodic, len(domain))
    placed = _moderate(len(domain), around).on(domain) if basis is None else as_basis(basis, domain)
    along = CELLS.get(len(domain), 4) if cells is None else as_count(cells, "cells", least=2)
    if (looks := (2 * along + 1) ** len(domain)) > MOST_LOOKS:
        raise ValueError(
            f"{along} cells along each of {len(domain)} coordinates mean looking at {looks:,} states, and "
            f"{MOST_LOOKS:,} are the most: pass fewer cells, or look at a few coordinates alone"
        )
    A, d = transitions.n_actions, len(domain)
    low, high = np.array(domain).T
    probes = mesh([np.linspace(a, b, 2 * along + 1) for a, b in domain])
    looks = _Looks(placed, probes)
    found: dict[str, list[Any]] = {
        name: [] for name in ("effective", "least", "condition", "cells", "blind", "worst", "roots")
    }
    extent = np.full((2, A, d), np.nan)
    for action in range(A):
        states = transitions.states[transitions.actions == action]
        if len(states):
            extent[:, action] = states.min(axis=0), states.max(axis=0)
        root, condition = _root(_gram(placed, states))
        leverage = looks.leverage(root) if len(states) else np.full(len(probes), np.inf)
        worth = looks.even / leverage
        found["effective"].append(_weighted_median(worth, looks.weights))
        found["least"].append(float(worth.min()))
        found["condition"].append(condition)
        place = np.minimum(((states - low) / (high - low) * along).astype(int), along - 1)
        found["cells"].append(np.histogramdd(place, bins=[np.arange(along + 1) - 0.5] * d)[0].astype(np.intp))
        found["blind"].append(looks.weights @ (leverage > EXTRAPOLATED))
        found["worst"].append(probes[leverage.argmax()])
        found["roots"].append(root)
    return Coverage(
        basis=placed,
        domain=domain,
        counts=transitions.counts,
        effective=np.array(found["effective"]),
        least=np.array(found["least"]),
        condition=np.array(found["condition"]),
        cells=np.array(found["cells"]),
        low=extent[0],
        high=extent[1],
        blind_share=np.array(found["blind"]),
        worst=np.array(found["worst"]),
        roots=np.array(found["roots"]),
    )


class _Looks:
    """A mesh of states and their share of the volume, those at the edge half as much."""

    def __init__(self, basis: Basis, probes: Array) -> None:
        self.phi = basis.values(probes)
        self.even = basis.mass * (self.phi**2).sum(axis=1)  # n times the leverage of n states drawn evenly
        edge = sum((probes[:, axis] == end).astype(int) for axis, pair in enumerate(basis.domain) for end in pair)
        weights = 0.5 ** np.asarray(edge)
        self.weights = weights / weights.sum()

    def leverage(self, root: Array) -> Array:
        return np.asarray(((self.phi @ root) ** 2).sum(axis=1))


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), 0.5)])


def _moderate(dimension: int, periodic: tuple[int, ...]) -> Basis:
    size = {1: 11, 2: 9, 3: 7}.get(dimension, 5)
    return product(*(Fourier(size) if axis in periodic else Legendre(size) for axis in range(dimension)))


def _gram(basis: Basis, states: Array) -> Array:
    gram = np.zeros((basis.size, basis.size))
    for start in range(0, len(states), _BLOCK):
        phi = basis.values(states[start : start + _BLOCK])
        gram += phi.T @ phi
    return gram


def _root(gram: Array) -> tuple[Array, float]:
    """W with WWᵀ = Gram⁻¹, and the condition number; directions never seen count as if seen hardly at all."""
    values, vectors = np.linalg.eigh(gram)
    largest = float(values[-1])
    if largest <= 0:
        return np.full_like(gram, 1e150) * np.eye(len(gram)), np.inf
    floor = _SINGULAR * largest
    singular = bool(values[0] <= floor)
    condition = np.inf if singular else largest / float(values[0])
    return vectors / np.sqrt(np.maximum(values, floor)), condition
