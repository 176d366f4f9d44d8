"""Coverage of the state space by a log: where the effect of an action is extrapolated.

The variance of a least-squares prediction of action a at s is σ² times the leverage ``h_a(s) = φ(s)ᵀ(Σφφᵀ)⁻¹φ(s)``, the
sum over the states from which a was taken. Where it exceeds 1, the prediction is worse than a single transition from
there: it is extrapolated, and a statement about the expert there rests on the basis alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.tables import as_log
from certirl.data.transitions import Transitions, action_in_words
from certirl.functions.bases import MOST_COLUMNS, Basis, Fourier, Legendre, as_basis, product
from certirl.ground.domain import Array, Box, as_states, mesh, number_of
from certirl.ground.doors import as_count
from certirl.ground.records import Record

CELLS = {1: 50, 2: 25, 3: 10, 4: 6}  # along each coordinate
USUAL_CELLS = 1_300  # in all, in more coordinates
MOST_CELLS = 10_000_000
MESH = 10_000  # states of a mesh with two along each side of a cell, up to which leverage is computed at all of them
SAMPLED = 4_096  # states that are spread evenly over the box where a mesh would have more
NEGLIGIBLE = 1e-6  # the share of a state near an edge beside that of others
CORNERS = 10  # coordinates up to which all corners of the box are looked at
MOST_FUNCTIONS = 220  # of the basis that is used if none is given
FEW = 5  # transitions of an action in a cell
EXTRAPOLATED = 1.0  # the leverage above which a prediction is extrapolated
MOSTLY = 0.5  # of the states: where some action is extrapolated at more of them, no answer is given
_BLOCK = 1 << 11
_SINGULAR = 1e-12


@dataclass(frozen=True, eq=False)
class Coverage(Record):
    """How well the states of each action cover the domain.

    Attributes:
        basis: the functions of the state that leverage is about.
        domain: the box.
        counts: transitions of each action ``[A]``.
        effective: at half of all states a prediction is as good as from at least this many transitions drawn evenly,
            that is from the basis's weight ``[A]``.
        least: the same at the worst state ``[A]``.
        condition: of the Gram matrix, infinite if it is singular ``[A]``.
        cells: transitions of each action in each cell of the box ``[A, c, …, c]``.
        low, high: the least and largest state of each action ``[A, d]``; nan for one that was never taken.
        extrapolated_share: the part of the box, by volume, where each action is extrapolated ``[A]``.
        worst: the state where the leverage of each action is largest ``[A, d]``.
        roots: matrices W with h_a(s) = |φ(s)W|², ``[A, k, k]``.
        action_names, coordinate_names: those of the log.

    Example:
        >>> states = np.random.default_rng(0).uniform(0, 5, 1000)
        >>> log = certirl.Transitions(states, np.arange(1000) % 2, states, domain=(0, 10))
        >>> coverage = certirl.diagnose.coverage(log, basis=certirl.Legendre(9))
        >>> coverage.counts.tolist(), coverage.unvisited, coverage.complete
        ([500, 500], 0.5, False)
    """

    basis: Basis
    domain: Box
    counts: NDArray[np.intp]
    effective: Array
    least: Array
    condition: Array
    cells: NDArray[np.intp]
    low: Array
    high: Array
    extrapolated_share: Array
    worst: Array
    roots: Array
    action_names: tuple[str, ...] = ()
    coordinate_names: tuple[str, ...] = ()
    _derived: ClassVar[tuple[str, ...]] = ("complete", "never_taken", "unvisited", "sentences")

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.counts)

    def leverage(self, states: ArrayLike) -> Array:
        """h_a(s), the variance of a prediction in units of that of one transition: ``[A, n]``.

        Example:
            >>> leverage = coverage.leverage([2.0, 8.0])
            >>> leverage.shape, bool((leverage[:, 1] > 10 * leverage[:, 0]).all())
            ((2, 2), True)
        """
        phi = self.basis.values(as_states(states, self.domain))
        return np.stack([((phi @ root) ** 2).sum(axis=1) for root in self.roots])

    def extrapolated(self, states: ArrayLike) -> NDArray[np.bool_]:
        """Where some action is extrapolated ``[n]``: statements there do not rest on data.

        Example:
            >>> coverage.extrapolated([2.0, 8.0])
            array([False,  True])
        """
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
        """Every action occurs, and none is extrapolated at any state that was tried."""
        return not self.never_taken and not self.extrapolated_share.any()

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is missing and what to do about it; empty where nothing is."""
        sentences = [
            f"{self._name(action)} was never taken, so that nothing can be said about it: log it, or leave it out "
            "of the actions the expert is compared with"
            for action in self.never_taken
        ]
        if self.unvisited:
            sentences.append(
                f"{_percent(self.unvisited)} of the state space was never visited: narrow the domain, or log there"
            )
        for action in np.flatnonzero(self.counts):
            sentences += self._about(int(action))
        return tuple(sentences)

    def _name(self, action: int) -> str:
        return action_in_words(action, self.action_names)

    def _about(self, action: int) -> list[str]:
        sentences, place = [], ", ".join(f"{x:.3g}" for x in self.worst[action])
        name = self._name(action)
        if not np.isfinite(self.condition[action]):
            sentences.append(
                f"{name} was not taken in enough different states to tell the {self.basis.size} functions "
                "apart: use fewer functions, or log it elsewhere"
            )
        elif self.extrapolated_share[action]:
            share = _percent(self.extrapolated_share[action])
            sentences.append(
                f"{name} is extrapolated over {share} of the state space, most of all at s = {place}: "
                "a certificate there would rest on the basis, not on data"
            )
        for axis, (low, high) in enumerate(self.domain):
            least, largest = self.low[action, axis], self.high[action, axis]
            coordinate = self.coordinate_names[axis] if self.coordinate_names else f"coordinate {axis}"
            if largest - least < 0.8 * (high - low):
                sentences.append(
                    f"{name} was taken only with {coordinate} in [{least:.3g}, {largest:.3g}] "
                    f"of [{low:.3g}, {high:.3g}]"
                )
        return sentences

    def __str__(self) -> str:
        sentences, few = self.sentences, (self.cells < FEW).reshape(self.n_actions, -1)
        thin = [f"; fewer than {FEW} in {row.sum():,} of {len(row):,} cells" if sentences else "" for row in few]
        rows = [
            f"  {self._name(a)}: {number_of(int(n), 'transition')}, as good as {self.effective[a]:,.0f} drawn "
            f"evenly in the median state, {self.least[a]:,.0f} in the worst; κ = {self.condition[a]:.3g}{thin[a]}"
            for a, n in enumerate(self.counts)
        ]
        total = number_of(int(self.counts.sum()), "transition")
        head = f"Coverage of {self.domain.words} by {total}, {self.basis}"
        tail = sentences or ("nothing is missing: every action was taken all over the state space",)
        # A name is printed as it is; other sentences begin with a capital.
        lines = [s if s.startswith(self.action_names) else s[0].upper() + s[1:] for s in tail]
        return "\n".join([head, *rows, *(f"  {line}." for line in lines)])


def coverage(transitions: Transitions, *, basis: Basis | None = None, cells: int | None = None) -> Coverage:
    """Find where in the state space a log, from any behaviour, can support a statement.

    Args:
        transitions: the log, or a table as in `certirl.logs.read`.
        basis: the functions of the state to be distinguished; moderate ones for the number of coordinates if left out,
            with frequencies for periodic coordinates of the log.
        cells: along each coordinate, for counting.

    Example:
        >>> states = np.random.default_rng(0).uniform(0, 5, 1000)
        >>> log = certirl.Transitions(states, np.arange(1000) % 2, states, domain=(0, 10))
        >>> coverage = certirl.diagnose.coverage(log, basis=certirl.Legendre(9))
        >>> coverage.extrapolated([2.0, 8.0])
        array([False,  True])
    """
    transitions = as_log(transitions)
    if not isinstance(transitions, Transitions):
        raise TypeError(f"coverage is about logged Transitions, got {type(transitions).__name__}")
    domain = transitions.domain
    d = len(domain)
    chosen = _moderate(d, transitions.periodic) if basis is None else basis
    basis = as_basis(chosen, domain, most=MOST_COLUMNS)
    usual = CELLS.get(d, max(int(USUAL_CELLS ** (1 / d)), 2))
    along = usual if cells is None else as_count(cells, "cells", least=2)
    if (count := along**d) > MOST_CELLS:
        raise ValueError(
            f"{along} cells along each of {d} coordinates are {count:,}, and {MOST_CELLS:,} are the most: pass fewer "
            "cells, or look at a few coordinates alone"
        )
    probes = _Probes.meshed(basis, 2 * along + 1) if (2 * along + 1) ** d <= MESH else _Probes.spread(basis)
    states = [transitions.states[transitions.actions == action] for action in range(transitions.n_actions)]
    actions = [probes.compared(rows, along) for rows in states]
    columns: dict[str, Any] = {name: np.array([action[name] for action in actions]) for name in actions[0]}
    names = {name: getattr(transitions, name) for name in ("action_names", "coordinate_names")}
    return Coverage(basis=basis, domain=domain, counts=transitions.counts, **columns, **names)


class _Probes(NamedTuple):
    """States of the box and their shares of its volume."""

    basis: Basis  # the functions of the state
    states: Array  # ``[n, d]``
    weights: Array  # their shares ``[n]``

    @classmethod
    def meshed(cls, basis: Basis, along: int) -> _Probes:
        """An even mesh; states at an edge have half the share of others."""
        states = basis.domain.mesh(along)
        edges = sum((states[:, axis] == end).astype(int) for axis, pair in enumerate(basis.domain) for end in pair)
        weights = 0.5 ** np.asarray(edges)
        return cls(basis, states, weights / weights.sum())

    @classmethod
    def spread(cls, basis: Basis) -> _Probes:
        """States spread evenly; and, with hardly a share, states near edges and at corners, where leverage is largest.

        Multiples of the powers of 1/g modulo 1, with g^(d+1) = g + 1, fill a box more evenly than random states.
        """
        (low, high), d = np.array(basis.domain).T, basis.dimension
        g = 2.0
        for _ in range(60):
            g = (1 + g) ** (1 / (d + 1))
        even = (0.5 + np.arange(1, SAMPLED + 1)[:, None] * g ** -np.arange(1.0, d + 1)) % 1.0
        places = [even, (1 - np.cos(np.pi * even)) / 2]
        places += [mesh([np.array([0.0, 1.0])] * d)] if d <= CORNERS else []
        shares = np.concatenate(places)
        weights = np.where(np.arange(len(shares)) < SAMPLED, 1.0, NEGLIGIBLE)
        return cls(basis, low + (high - low) * shares, weights / weights.sum())

    def compared(self, states: Array, along: int) -> dict[str, Any]:
        """The coverage of the probes by the states of one action ``[n, d]``: fields of `Coverage`."""
        low, high = self.basis.domain.ends
        root, condition = _root(_gram(self.basis, states))
        leverage, even = np.full(len(self.states), np.inf), np.empty(len(self.states))
        for start in range(0, len(self.states), _BLOCK):
            block = slice(start, start + _BLOCK)
            phi = self.basis.values(self.states[block])
            even[block] = self.basis.mass * (phi**2).sum(axis=1)  # n times the leverage of n states drawn evenly
            if len(states):
                leverage[block] = ((phi @ root) ** 2).sum(axis=1)
        worth = even / leverage
        order = np.argsort(worth)
        median = worth[order][np.searchsorted(np.cumsum(self.weights[order]), 0.5)]
        place = np.minimum(((states - low) / (high - low) * along).astype(int), along - 1)
        shape = (along,) * len(low)
        cells = np.bincount(np.ravel_multi_index(tuple(place.T), shape), minlength=along ** len(low)).reshape(shape)
        least, largest = (states.min(axis=0), states.max(axis=0)) if len(states) else (np.full(len(low), np.nan),) * 2
        return {
            "effective": float(median),
            "least": float(worth.min()),
            "condition": condition,
            "cells": cells,
            "low": least,
            "high": largest,
            "extrapolated_share": float(self.weights @ (leverage > EXTRAPOLATED)),
            "worst": self.states[leverage.argmax()],
            "roots": root,
        }


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "less than 1%"


def _moderate(dimension: int, periodic: tuple[int, ...]) -> Basis:
    """A basis of a moderate number of functions."""
    usual = {1: 11, 2: 9, 3: 7}.get(dimension, 5)
    size = next((n for n in range(usual, 3, -1) if comb(dimension + n - 1, dimension) <= MOST_FUNCTIONS), 3)
    parts = [Fourier(size + 1 - size % 2) if axis in periodic else Legendre(size) for axis in range(dimension)]
    return parts[0] if dimension == 1 else product(*parts)


def _gram(basis: Basis, states: Array) -> Array:
    gram = np.zeros((basis.size, basis.size))
    for start in range(0, len(states), _BLOCK):
        phi = basis.values(states[start : start + _BLOCK])
        gram += phi.T @ phi
    return gram


def _root(gram: Array) -> tuple[Array, float]:
    """W with WWᵀ = Gram⁻¹, and the condition number; tiny eigenvalues are raised."""
    values, vectors = np.linalg.eigh(gram)
    largest = float(values[-1])
    if largest <= 0:
        return np.full_like(gram, 1e150) * np.eye(len(gram)), np.inf
    floor = _SINGULAR * largest
    condition = np.inf if values[0] <= floor else largest / float(values[0])
    return vectors / np.sqrt(np.maximum(values, floor)), condition
