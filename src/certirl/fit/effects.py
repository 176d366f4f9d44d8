"""The effects of the actions on a basis: (P_aφ)(s) at many states, observed, drawn or regressed on the state.

The square matrix of the paper asks the same few functions to describe the value and its expectation after an action;
where actions differ little, its error exceeds their effect. Here the functions of V are evaluated at next states: at
the observed ones if nothing is random, else through a regression on the state, of these functions or of the next state
itself, whichever predicts the data better. Terminal states are absorbing and worth 0: every function is 0 there.

Next states or the weights of a regression are stored, and functions are evaluated where they are needed, in blocks of
rows: memory does not grow with the number of rows times the number of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from certirl.data.simulator import Simulator, Terminal, ask, described, periodic_of, terminal_of
from certirl.data.transitions import Transitions
from certirl.functions.bases import Basis, Fourier, Legendre, of_degree
from certirl.functions.cells import MOST_COORDINATES
from certirl.functions.sigmoids import Sigmoids
from certirl.ground.domain import Array, Box, as_domain
from certirl.ground.records import Record

MOST_FUNCTIONS = 220  # of V
SIGMOIDS = 400  # of V, beyond four coordinates
SIGMOID_DEGREE = 3  # of polynomials beside random sigmoids
MOST_ALONE = 25  # of V, for one coordinate
MOST_COLUMNS = 600  # functions of the state in a regression
EDGES = 0.25  # of the states of noisy simulators by the design of V's functions, towards the edges
MOST_STORED = 32_000_000  # numbers (P_aφ_i)(s) that are kept: a quarter of a gigabyte
BLOCK = 1 << 10  # rows at which functions are evaluated at once: their tables stay in the cache
GOOD, DISTRUST = 0.1, 0.7  # error of estimated effects over the effect of an action

Rows = slice | NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Effects(Record):
    """The functions of V before and after each action, at n states that are not terminal.

    Attributes:
        basis: the functions φ of V.
        states: ``[n, d]``.
        periodic: coordinates that are periodic.
    """

    basis: Basis
    states: Array
    periodic: tuple[int, ...]

    @property
    def n_actions(self) -> int:
        """A."""
        raise NotImplementedError

    @property
    def noiseless(self) -> bool:
        """Whether next states were observed without noise, so that they have no error."""
        return False

    @property
    def noise(self) -> Array | float:
        """The mean squared error ``[k, k]`` of a difference of two actions' rows, as far as it is known."""
        return 0.0

    @property
    def size(self) -> int:
        """The number of functions, k."""
        return self.basis.size

    @property
    def degrees(self) -> NDArray[np.intp]:
        """The degrees of the functions ``[k, d]``, by which roughness is priced."""
        return self.basis.degrees

    @property
    def words(self) -> str:
        """What V is made of."""
        return str(self.basis)

    def after(self, actions: int | NDArray[np.intp], rows: Rows) -> Array:
        """(P_aφ)(s) ``[r, k]`` at some of the states, for one action or for one action of each row."""
        raise NotImplementedError

    def ahead(self, w: Array) -> Array:
        """(P_aV)(s) for each action ``[A, n]``."""
        raise NotImplementedError

    def at(self, kept: NDArray[np.bool_]) -> Self:
        """The effects at some of the states."""
        raise NotImplementedError

    def stored(self) -> Effects:
        """The same with numbers kept that would be computed often, where they are at most `MOST_STORED`."""
        return self

    def __len__(self) -> int:
        return len(self.states)

    def blocks(self) -> Iterator[slice]:
        """Consecutive rows."""
        return blocks(len(self))

    def before(self, rows: Rows) -> Array:
        """φ(s) at some of the states ``[r, k]``."""
        return self.basis.values(self.states[rows])

    def after_each(self, rows: Rows) -> Array:
        """(P_aφ)(s) of every action ``[A, r, k]`` at some of the states."""
        return np.stack([self.after(action, rows) for action in range(self.n_actions)])

    def of_policy(self, probabilities: Array, rows: Rows) -> Array:
        """(P_πφ)(s) ``[r, k]`` at some of the states, for probabilities of the actions at all of them ``[n, A]``."""
        chances = probabilities[rows]
        if (chances.max(axis=1) == 1).all():
            return self.after(chances.argmax(axis=1), rows)
        return np.einsum("ra,ark->rk", chances, self.after_each(rows))

    def value(self, w: Array) -> Array:
        """V(s) ``[n]`` for the coefficients w ``[k]``."""
        return self.basis.combined(self.states, w)

    @property
    def constant(self) -> float:
        """The value of the first function, which is constant, at states that are not terminal."""
        return float(self.before(slice(1))[0, 0])

    @property
    def continuing(self) -> Array:
        """The probability that a walk continues after each action ``[A, n]``; estimates may leave [0, 1]."""
        return self.ahead(np.eye(1, self.size)[0]) / self.constant


@dataclass(frozen=True, eq=False)
class MeanEffects(Effects):
    """Effects that are means over next states: observed ones, several draws, or those of a model.

    Attributes:
        next_states: J of each action and state ``[J, A, n, d]``.
        terminal: which of these are terminal ``[J, A, n]``.
        observed: without noise.
    """

    next_states: Array
    terminal: NDArray[np.bool_]
    observed: bool

    @classmethod
    def of(
        cls,
        basis: Basis,
        states: Array,
        next_states: Array,
        is_terminal: Terminal | None,
        periodic: tuple[int, ...],
        *,
        observed: bool = False,
    ) -> MeanEffects:
        """The effects that are means over these next states ``[J, A, n, d]``."""
        over = np.zeros(next_states.shape[:3], dtype=bool)
        if is_terminal is not None:
            over[:] = [[is_terminal(rows) for rows in actions] for actions in next_states]
        return cls(basis, states, periodic, next_states, over, observed)

    @property
    def n_actions(self) -> int:
        """A."""
        return self.next_states.shape[1]

    @property
    def noiseless(self) -> bool:
        """Whether next states were observed without noise, so that they have no error."""
        return self.observed

    def after(self, actions: int | NDArray[np.intp], rows: Rows) -> Array:
        """(P_aφ)(s) ``[r, k]`` at some of the states, for one action or for one action of each row."""
        rows = np.arange(len(self))[rows]
        total = np.zeros((len(rows), self.basis.size))
        for moved, over in zip(self.next_states, self.terminal, strict=True):
            total += features(self.basis, moved[actions, rows], None, over[actions, rows])
        return total / len(self.next_states)

    def ahead(self, w: Array) -> Array:
        """(P_aV)(s) for each action ``[A, n]``."""
        places = self.next_states.reshape(-1, self.states.shape[1])
        values = value_at(self.basis, w, places, None, self.terminal.ravel())
        return np.asarray(values.reshape(self.terminal.shape).mean(axis=0))

    def at(self, kept: NDArray[np.bool_]) -> Self:
        """The effects at some of the states."""
        moved, over = self.next_states[:, :, kept], self.terminal[:, :, kept]
        return replace(self, states=self.states[kept], next_states=moved, terminal=over)

    def stored(self) -> Effects:
        """The means themselves, if they are of several next states."""
        A, n, k = self.n_actions, len(self), self.basis.size
        if len(self.next_states) == 1 or A * n * k > MOST_STORED:
            return self
        rows = np.empty((A, n, k))
        for block in self.blocks():
            rows[:, block] = self.after_each(block)
        return KnownEffects(self.basis, self.states, self.periodic, rows)


@dataclass(frozen=True, eq=False)
class KnownEffects(Effects):
    """Effects as numbers.

    Attributes:
        rows: (P_aφ)(s) ``[A, n, k]``.
    """

    rows: Array

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.rows)

    def after(self, actions: int | NDArray[np.intp], rows: Rows) -> Array:
        """(P_aφ)(s) ``[r, k]`` at some of the states, for one action or for one action of each row."""
        return self.rows[actions, np.arange(len(self))[rows]]

    def ahead(self, w: Array) -> Array:
        """(P_aV)(s) for each action ``[A, n]``."""
        return self.rows @ w

    def at(self, kept: NDArray[np.bool_]) -> Self:
        """The effects at some of the states."""
        return replace(self, states=self.states[kept], rows=self.rows[:, kept])


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Consecutive parts of n rows."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def value_basis(
    domain: Box, periodic: tuple[int, ...] = (), most: int | None = None, states: Array | None = None
) -> Basis:
    """The functions of V: random sigmoids beyond four coordinates, else polynomials of a total degree.

    There are ``most`` functions at most; random sigmoids are placed at states of a log, if these are given.
    """
    if len(domain) > MOST_COORDINATES:
        data = np.array(domain).T if states is None else states
        most = SIGMOIDS if most is None else most
        return Sigmoids.of_data(most, data, domain, periodic)
    most = MOST_FUNCTIONS if most is None else most
    if len(domain) == 1:
        return (Fourier(MOST_ALONE) if periodic else Legendre(MOST_ALONE)).on(domain)
    return of_degree(domain, max(d for d in range(1, most) if _count(len(domain), periodic, d) <= most), periodic)


def richer(basis: Basis, factor: float) -> Basis:
    """Polynomials of the degree of a basis times a factor, and at most `MOST_COLUMNS` functions on a box."""
    basis = basis._without_ends
    periodic = basis.periodic_axes
    if isinstance(basis, Sigmoids):
        highest = [SIGMOID_DEGREE]
    else:
        highest = [family.degree for family in basis.factors] if basis.dimension > 1 or periodic else [basis.size]
    degree = max(round(factor * max(highest)), 1)
    if basis.dimension == 1:
        return basis.resized(2 * degree + 1 if periodic else degree)
    while degree > 1 and _count(basis.dimension, periodic, degree) > MOST_COLUMNS:
        degree -= 1
    return of_degree(basis.domain, degree, periodic)


def _count(dimension: int, periodic: tuple[int, ...], degree: int) -> int:
    """The number of products of total degree at most ``degree``: coordinate by coordinate."""
    counts = np.ones(1, dtype=int)
    for axis in range(dimension):
        of_axis = np.where(np.arange(degree + 1) > 0, 2, 1) if axis in periodic else np.ones(degree + 1, dtype=int)
        counts = np.convolve(counts, of_axis)[: degree + 1]
    return int(counts.sum())


def ended(
    states: Array, is_terminal: Terminal | None, marked: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_] | None:
    """Terminal states ``[n]``: where ``is_terminal`` says so, and where they are marked; None if none can be."""
    if is_terminal is None or marked is None:
        return marked if is_terminal is None else is_terminal(states)
    return np.asarray(marked | is_terminal(states))


def features(
    basis: Basis, states: Array, is_terminal: Terminal | None, marked: NDArray[np.bool_] | None = None
) -> Array:
    """φ(s) ``[n, k]``, in terminal states (see `ended`) as `_at_ends`."""
    values, over = basis.values(states), ended(states, is_terminal, marked)
    if over is not None:
        values[over] = basis._at_ends(states[over])
    return values


def value_at(
    basis: Basis, w: Array, states: Array, is_terminal: Terminal | None, marked: NDArray[np.bool_] | None = None
) -> Array:
    """V(s) ``[n]`` for the coefficients w ``[k]``, in terminal states (see `ended`) by `_at_ends`."""
    values, over = basis.combined(states, w), ended(states, is_terminal, marked)
    if over is not None:
        values[over] = basis._at_ends(states[over]) @ w
    return values


def live_states(simulator: Simulator, n: int, rng: np.random.Generator) -> Array:
    """n states drawn uniformly from the box, none of them terminal ``[n, d]``."""
    low, high = np.array(as_domain(simulator.domain)).T
    states = _live(simulator, n, lambda: low + (high - low) * rng.random((n, len(low))))
    if len(states) < n:
        drawn = f"only {len(states)} of {100 * n} drawn were not terminal"
        raise ValueError(f"fewer than 1 in 100 states of the box are not terminal: {drawn}")
    return states


def placed_states(simulator: Simulator, basis: Basis, n: int, rng: np.random.Generator, *, share: float = 0.5) -> Array:
    """n states that are not terminal ``[n, d]``: uniform ones, and a share by the basis's design, towards the edges.

    Uniform states alone leave the corners to extrapolation; states of the design alone are few in the middle.
    """
    designed = int(share * n)
    uniform = live_states(simulator, n - designed, rng)
    states = np.concatenate([uniform, _live(simulator, designed, lambda: basis.design(max(designed, 1), rng))])
    return states[rng.permutation(len(states))]


def _live(simulator: Simulator, n: int, draw: Callable[[], Array]) -> Array:
    """The first n states that are not terminal of a hundred draws; fewer if there are not as many."""
    is_terminal, kept, count = terminal_of(simulator), list[Array](), 0
    for _ in range(100):
        states = draw()
        kept.append(states if is_terminal is None else states[~is_terminal(states)])
        count += len(kept[-1])
        if count >= n:
            break
    return np.concatenate(kept)[:n]


def several_next_states(simulator: Simulator, states: Array, draws: int, rng: np.random.Generator) -> Array:
    """Next states of each action and state ``[draws, A, n, d]``, with the same random numbers for all actions."""
    domain, moved = as_domain(simulator.domain), np.empty((draws, simulator.n_actions, *states.shape))
    seeds = rng.bit_generator.seed_seq.spawn(draws)  # type: ignore[attr-defined]
    for of_draw, seed in zip(moved, seeds, strict=True):
        for action in range(simulator.n_actions):
            of_draw[action] = ask(simulator, states, action, np.random.default_rng(seed), domain)
    return moved


def observed_effects(simulator: Simulator, basis: Basis, states: Array, rng: np.random.Generator) -> MeanEffects:
    """V's functions at the next states of each action, for dynamics without noise."""
    domain = as_domain(simulator.domain)
    moved = np.stack([ask(simulator, states, action, rng, domain) for action in range(simulator.n_actions)])
    return MeanEffects.of(basis, states, moved[None], terminal_of(simulator), periodic_of(simulator), observed=True)


def drawn_effects(
    simulator: Simulator, basis: Basis, states: Array, draws: int, rng: np.random.Generator
) -> MeanEffects:
    """V's functions at next states, a mean over draws with the same random numbers for all actions."""
    moved = several_next_states(simulator, states, draws, rng)
    return MeanEffects.of(basis, states, moved, terminal_of(simulator), periodic_of(simulator))


def noise_ratio(simulator: Simulator, basis: Basis, rng: np.random.Generator, count: int = 500) -> float:
    """The variance that one draw leaves in a difference of two actions, over the mean square of the difference itself.

    The difference is what two draws at the same state have in common; the rest is noise. 0 if both draws are equal.
    """
    states = live_states(simulator, count, rng)
    one, other = (drawn_effects(simulator, basis, states, 1, rng) for _ in range(2))
    if np.array_equal(one.next_states, other.next_states):
        return 0.0
    first, second = (each.after_each(slice(None))[1:] - each.after(0, slice(None)) for each in (one, other))
    common = float(np.mean(first * second))
    return max(float(np.mean((first - second) ** 2)) / 2 / common, 1e-300) if common > 0 else np.inf


def drawn_log(
    simulator: Simulator, n: int, rng: np.random.Generator, *, paired: bool, basis: Basis | None = None
) -> Transitions:
    """n transitions of every action from the same states, none of them terminal.

    Paired, they have the same noise too. Most states are uniform, all of them without a basis: its design would take
    states from the switches, which lie inside and move with the noise around them. At terminal states nothing is
    compared, and effects jump.
    """
    states = live_states(simulator, n, rng) if basis is None else placed_states(simulator, basis, n, rng, share=EDGES)
    (seed,) = rng.bit_generator.seed_seq.spawn(1)  # type: ignore[attr-defined]
    seeds = [seed] * simulator.n_actions if paired else seed.spawn(simulator.n_actions)
    domain = as_domain(simulator.domain)
    ahead = [ask(simulator, states, a, np.random.default_rng(child), domain) for a, child in enumerate(seeds)]
    actions = np.repeat(np.arange(simulator.n_actions), n)
    start = np.tile(states, (simulator.n_actions, 1))
    rows = (start, actions, np.concatenate(ahead))
    return Transitions(*rows, domain, simulator.n_actions, paired, **described(simulator))


def error_in_words(error: float) -> str:
    """An error, as a share of an action's effect, and how far that can be trusted."""
    trust = "good" if error < GOOD else "not usable" if error > DISTRUST else "usable"
    return f"{error:.2g} of an action's effect ({trust})"
