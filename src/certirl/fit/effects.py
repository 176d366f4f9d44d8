"""What each action does to a basis: the rows (P_aφ)(s) at many states, seen directly or regressed on the state.

The square matrix of the paper asks the same few functions to describe the value and how it is moved; where actions
differ little its error exceeds their effect. Here V's functions are looked at where the actions lead: at the observed
next states themselves if nothing is random, else through a regression with functions of the state chosen for that.
Terminal states are absorbing and worth nothing: every function is 0 there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.simulator import Simulator, Terminal, ask, periodic_of, terminal_of
from certirl.data.transitions import Transitions
from certirl.functions.bases import Basis, Fourier, Legendre, of_degree
from certirl.ground.domain import Array, Domain, as_domain, freeze

MOST_FUNCTIONS = 220  # in V
MOST_ALONE = 25  # in V, of one coordinate
MOST_COLUMNS = 600  # functions of the state in a regression
RICHER = (0.4, 0.6, 1.0, 1.6, 2.3)  # degrees of these, in units of that of V
RIDGE = 1e-9  # of the mean square of a function, so that unseen directions stay at rest


@dataclass(frozen=True, eq=False)
class Effects:
    """The functions of V before and after each action, at n states.

    Attributes:
        basis: the functions φ of V.
        states: ``[n, d]``.
        now: φ(s) ``[n, k]``.
        after: (P_aφ)(s) for each action ``[A, n, k]``.
        periodic: coordinates that go around.
        seen: next states were looked at directly, so that ``after`` has no error; False if it was regressed.
        columns: the functions of the state of the regression; None if it was not needed.
        noise: the covariance ``[k, k]`` that sampling leaves in a difference of two actions' rows; None if none.
    """

    basis: Basis
    states: Array
    now: Array
    after: Array
    periodic: tuple[int, ...] = ()
    seen: bool = True
    columns: Basis | None = None
    noise: Array | None = None

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.after)

    def of_policy(self, probabilities: Array) -> Array:
        """(P_πφ)(s) ``[n, k]`` for the probabilities of the actions ``[n, A]``."""
        return np.einsum("na,ank->nk", probabilities, self.after)

    def __len__(self) -> int:
        return len(self.states)


def value_basis(domain: Domain, periodic: tuple[int, ...] = (), most: int = MOST_FUNCTIONS) -> Basis:
    """Polynomials of the largest total degree with at most so many functions, frequencies for angles."""
    if len(domain) == 1:
        return (Fourier(MOST_ALONE) if periodic else Legendre(MOST_ALONE)).on(domain)
    return of_degree(domain, max(d for d in range(1, most) if _count(len(domain), periodic, d) <= most), periodic)


def circular_axes(basis: Basis) -> tuple[int, ...]:
    """The coordinates that a basis takes for angles."""
    return basis.periodic_axes


def richer(basis: Basis, factor: float) -> Basis:
    """The same kind of basis with degrees larger by a factor, within what a regression can bear."""
    around = basis.periodic_axes
    highest = [family.degree for family in basis.factors] if basis.dimension > 1 or around else [basis.size]
    degree = max(round(factor * max(highest)), 1)
    if basis.dimension == 1:
        return basis.resized(2 * degree + 1 if around else degree)
    while degree > 1 and _count(basis.dimension, around, degree) > MOST_COLUMNS:
        degree -= 1
    return of_degree(basis.domain, degree, around)


def _count(dimension: int, periodic: tuple[int, ...], degree: int) -> int:
    """The number of products of total degree at most ``degree``: coordinate by coordinate."""
    counts = np.ones(1, dtype=int)
    for axis in range(dimension):
        own = np.where(np.arange(degree + 1) > 0, 2, 1) if axis in periodic else np.ones(degree + 1, dtype=int)
        counts = np.convolve(counts, own)[: degree + 1]
    return int(counts.sum())


def features(basis: Basis, states: Array, ended: Terminal | None, over: NDArray[np.bool_] | None = None) -> Array:
    """φ(s) ``[n, k]``, zero in terminal states: where ``ended`` says so, or where ``over`` marked them."""
    values = basis.values(states)
    if ended is not None:
        values[ended(states)] = 0.0
    if over is not None:
        values[over] = 0.0
    return values


def live_states(source: Any, n: int, rng: np.random.Generator) -> Array:
    """n states drawn evenly from the box, none of them terminal ``[n, d]``."""
    low, high = np.array(as_domain(source.domain)).T
    ended, found, kept = terminal_of(source), [], 0
    for _ in range(100):
        states = low + (high - low) * rng.random((n, len(low)))
        states = states if ended is None else states[~ended(states)]
        found.append(states)
        kept += len(states)
        if kept >= n:
            return np.concatenate(found)[:n]
    raise ValueError(f"fewer than 1 in 100 states of the box go on: only {kept} of {100 * n} drawn were not terminal")


def placed_states(source: Any, basis: Basis, n: int, rng: np.random.Generator) -> Array:
    """n states that are not terminal ``[n, d]``: half drawn evenly, half where polynomials swing fastest, at the edges.

    Even states alone leave the corners to extrapolation; edge states alone leave the middle thin.
    """
    even, ended, found, kept = live_states(source, n - n // 2, rng), terminal_of(source), [], 0
    for _ in range(100):
        states = basis.design(max(n // 2, 1), rng)
        found.append(states if ended is None else states[~ended(states)])
        kept += len(found[-1])
        if kept >= n // 2:
            break
    return np.concatenate([even, *found])[:n]


def is_deterministic(simulator: Simulator, rng: np.random.Generator, count: int = 256) -> bool:
    """Whether two different streams of random numbers give the same next states, for every action."""
    states, domain = live_states(simulator, count, rng), as_domain(simulator.domain)
    first, second = rng.spawn(2)
    return all(
        np.array_equal(ask(simulator, states, action, first, domain), ask(simulator, states, action, second, domain))
        for action in range(simulator.n_actions)
    )


def next_states(simulator: Simulator, states: Array, rng: np.random.Generator) -> Array:
    """One next state of every action for each state ``[A, n, d]``."""
    domain = as_domain(simulator.domain)
    return np.stack([ask(simulator, states, action, rng, domain) for action in range(simulator.n_actions)])


def seen_effects(simulator: Simulator, basis: Basis, states: Array, rng: np.random.Generator) -> Effects:
    """V's functions at the very states that each action leads to, for dynamics without noise."""
    ended, periodic = terminal_of(simulator), periodic_of(simulator)
    after = np.stack([features(basis, moved, ended) for moved in next_states(simulator, states, rng)])
    return Effects(basis, states, features(basis, states, ended), after, periodic)


def drawn_effects(simulator: Simulator, basis: Basis, states: Array, draws: int, rng: np.random.Generator) -> Effects:
    """V's functions where each action leads, a mean over draws that are as far as possible the same for all actions."""
    ended, periodic = terminal_of(simulator), periodic_of(simulator)
    domain, after = as_domain(simulator.domain), np.zeros((simulator.n_actions, len(states), basis.size))
    for seed in rng.bit_generator.seed_seq.spawn(draws):  # type: ignore[attr-defined]
        for action in range(simulator.n_actions):
            moved = ask(simulator, states, action, np.random.default_rng(seed), domain)
            after[action] += features(basis, moved, ended) / draws
    return Effects(basis, states, features(basis, states, ended), after, periodic, seen=False)


def noise_beside_effects(simulator: Simulator, basis: Basis, rng: np.random.Generator, count: int = 1000) -> float:
    """The variance that one draw leaves in a difference of two actions, over the mean square of the difference itself.

    What two draws at the same state share is the difference, what they do not is noise.
    """
    states = live_states(simulator, count, rng)
    one, other = (drawn_effects(simulator, basis, states, 1, rng).after for _ in range(2))
    first, second = one[1:] - one[:1], other[1:] - other[:1]
    shared = float(np.mean(first * second))
    return float(np.mean((first - second) ** 2)) / 2 / shared if shared > 0 else np.inf


def drawn(simulator: Simulator, n: int, rng: np.random.Generator, *, paired: bool) -> Transitions:
    """n transitions of every action from the same even states, none of them terminal; paired with the same noise too.

    Even states: where least squares would want them, at the edges, fewer are left for the switches, which lie inside
    and move with the noise around them. No terminal states: nothing is compared there, and what the actions do jumps.
    """
    states, (seed,) = live_states(simulator, n, rng), rng.bit_generator.seed_seq.spawn(1)  # type: ignore[attr-defined]
    streams = [seed] * simulator.n_actions if paired else seed.spawn(simulator.n_actions)
    domain = as_domain(simulator.domain)
    moved = [ask(simulator, states, a, np.random.default_rng(own), domain) for a, own in enumerate(streams)]
    actions = np.repeat(np.arange(simulator.n_actions), n)
    start = np.tile(states, (simulator.n_actions, 1))
    return Transitions(start, actions, np.concatenate(moved), domain, simulator.n_actions, paired)


@dataclass(frozen=True, eq=False)
class Regression:
    """P̂_aφ as functions of the state, by least squares: ``(P̂_aφ_i)(s) = Σ_j B_aji χ_j(s)``.

    Attributes:
        basis: φ, of V.
        columns: χ, of the state.
        weights: B ``[A, m, k]``.
        held_out: for each candidate number of columns its mean square error on held-out data, in units of the spread.
        noise: the covariance ``[k, k]`` of a difference of two actions' rows, on average over the states.
    """

    basis: Basis
    columns: Basis
    weights: Array
    held_out: dict[int, float]
    noise: Array

    def at(self, states: Array) -> Array:
        """(P̂_aφ)(s) ``[A, n, k]``."""
        return np.einsum("nm,amk->ank", self.columns.values(states), self.weights, optimize=True)


def regress(
    log: Transitions,
    basis: Basis,
    *,
    ended: Terminal | None = None,
    over: NDArray[np.bool_] | None = None,
    factor: Any = None,
) -> Regression:
    """Fit (P_aφ)(s) by least squares; the columns that predict every fifth row best from the others are taken.

    Args:
        log: the transitions.
        basis: φ, of V.
        ended: which states are terminal.
        over: which transitions ended in a terminal state ``[n]``, if the log knows better.
        factor: degree of the columns in units of that of V; by held-out data if left out.
    """
    moved = features(basis, log.next_states, ended, over)
    fold = np.arange(len(log)) % 5 == 0
    candidates = [richer(basis, one) for one in (RICHER if factor is None else (factor,))]
    candidates = [one for number, one in enumerate(candidates) if one.size not in {c.size for c in candidates[:number]}]
    fewest = int(log.counts.min())
    affordable = [one for one in candidates if one.size * 3 <= fewest] or [richer(basis, 0.5)]
    errors = {}
    for columns in affordable if len(affordable) > 1 else ():
        values = columns.values(log.states)
        fitted = [solve_least_squares(values[rows & ~fold], moved[rows & ~fold]) for rows in rows_of(log)]
        missed = [moved[rows & fold] - values[rows & fold] @ B for rows, B in zip(rows_of(log), fitted, strict=True)]
        errors[columns.size] = float(np.mean(np.concatenate(missed) ** 2) / max(moved.var(axis=0).mean(), 1e-300))
    best = min(affordable, key=lambda one: errors.get(one.size, 0.0))
    values = best.values(log.states)
    weights = np.stack([solve_least_squares(values[rows], moved[rows]) for rows in rows_of(log)])
    return Regression(basis, best, weights, errors, _row_noise(log, values, moved, weights))


def _row_noise(log: Transitions, values: Array, moved: Array, weights: Array) -> Array:
    """What is left in a difference of two actions: at a state, m/n of the covariance of the misses of each.

    Common random numbers move all actions alike, and what they share cancels.
    """
    missed = [moved[rows] - values[rows] @ B for rows, B in zip(rows_of(log), weights, strict=True)]
    m = values.shape[1]
    if log.paired:
        pairs = [(missed[a] - missed[0]) for a in range(1, len(missed))]
        return np.asarray(sum(d.T @ d * (m / len(d) ** 2) for d in pairs) / max(len(pairs), 1))
    return np.asarray(2 * sum(own.T @ own * (m / len(own) ** 2) for own in missed) / len(missed))


def rows_of(log: Transitions) -> list[NDArray[np.bool_]]:
    """The rows of each action."""
    return [log.actions == action for action in range(log.n_actions)]


def solve_least_squares(values: Array, goals: Array) -> Array:
    """Coefficients ``[m, …]`` with which the values ``[n, m]`` come closest to the goals ``[n, …]``."""
    gram = values.T @ values
    gram[np.diag_indices(len(gram))] += RIDGE * np.trace(gram) / len(gram) + 1e-300
    return np.linalg.solve(gram, values.T @ goals)


def regressed_effects(
    regression: Regression, states: Array, ended: Terminal | None, periodic: tuple[int, ...]
) -> Effects:
    """The regression at some states, as effects."""
    now = features(regression.basis, states, ended)
    after, columns = regression.at(states), regression.columns
    return Effects(regression.basis, states, now, after, periodic, False, columns, regression.noise)


def unit_chart(states: Array, domain: Domain, periodic: tuple[int, ...]) -> Array:
    """States in units of the box's widths, angles on a circle of length 1: what distances are measured in."""
    low, high = np.array(domain).T
    shares = (states - low) / (high - low)
    parts = []
    for axis, share in enumerate(shares.T):
        turn = 2 * np.pi * share
        parts += [np.sin(turn) / (2 * np.pi), np.cos(turn) / (2 * np.pi)] if axis in periodic else [share]
    return np.stack(parts, axis=1)
