"""The effects of the actions on a basis: (P_aφ)(s) at many states, observed, drawn or regressed on the state.

The square matrix of the paper asks the same few functions to describe the value and its expectation after an action;
where actions differ little, its error exceeds their effect. Here the functions of V are evaluated at next states: at
the observed ones if nothing is random, else through a regression on the state, of these functions or of the next state
itself, whichever predicts the data better. Terminal states are absorbing and worth 0: every function is 0 there.

Next states or the weights of a regression are stored, and functions are evaluated where they are needed, in blocks of
rows: memory does not grow with the number of rows times the number of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.coverage import EXTRAPOLATED
from certirl.data.dependence import can_pair, originals
from certirl.data.policy import Policy
from certirl.data.simulator import Simulator, Terminal, ask, counted_as, periodic_of, terminal_of
from certirl.data.source import Logged, Source
from certirl.data.terminal import TerminalBoxes
from certirl.data.transitions import Transitions, action_in_words
from certirl.functions.bases import Basis, Fourier, Legendre, of_degree
from certirl.functions.cells import MOST_COORDINATES
from certirl.functions.ends import EndBasis
from certirl.functions.sigmoids import Sigmoids
from certirl.ground.domain import Array, Box, as_domain, as_rows, number_of
from certirl.ground.records import Record

MOST_FUNCTIONS = 220  # of V
SIGMOIDS = 400  # of V, beyond four coordinates
SIGMOID_DEGREE = 3  # of polynomials beside random sigmoids
MOST_ALONE = 25  # of V, for one coordinate
MOST_COLUMNS = 600  # functions of the state in a regression
DEGREES = (0.4, 0.6, 1.0, 1.6, 2.3)  # of the columns of a regression of V's functions, in units of the degree of V
NEXT_STATE_DEGREES = (0.2, 0.4, 0.6, 1.0)  # of the columns of a regression of the next state, in the same units
RIDGE = 1e-9  # of the mean square of a function, which keeps directions without data at zero
MOST_STATES = 30_000  # at which the expert is compared: more cost time and change nothing
FEWEST = 100  # states, or transitions of an action, that a regression needs
FAINT = 0.1  # noise over effects, both squared, up to which drawn next states are used without a regression
EDGES = 0.25  # of the states of noisy simulators by the design of V's functions, towards the edges
DRAWS = 8  # residuals that stand for the noise at a state
MOST_DRAWS = 32  # next states of an action at one state that are used without a regression
MOST_STORED = 32_000_000  # numbers (P_aφ_i)(s) that are kept: a quarter of a gigabyte
BLOCK = 1 << 10  # rows at which functions are evaluated at once: their tables stay in the cache
MOST_RESIDUALS = 4096  # that a model of the next state keeps
FOLDS = 5  # of the rows or episodes, one of which is held out
NOISELESS = 1e-6  # of the box: smaller noise is none
JUMP, MOST_JUMPS = 20.0, 0.02  # errors of the next state, in units of their median, and the largest share of such rows
SCORED = 4000  # rows on which two regressions are compared
NEGLIGIBLE = 0.01  # of the mean square of a step: an error of a model that is no matter
GOOD, DISTRUST = 0.1, 0.7  # error of estimated effects over the effect of an action
CLEARLY = 0.8  # of the other's error
NEIGHBOURS = {1: 64, 2: 16}  # drawn states whose next states stand for those of a state, by coordinates; else 8
SIMPLER = 1.1  # of the least error: with many coordinates, what fewer columns may miss of the next state


class ValueProblem(NamedTuple):
    """The dynamics, the expert and the discount.

    Attributes:
        source: a simulator or a log.
        policy: the expert.
        discount: γ.
        periodic: coordinates that are periodic.
        is_terminal: states to whether they are terminal; None if none is.
        terminal_boxes: the terminal states in boxes; None without any.
    """

    source: Source
    policy: Policy
    discount: float
    periodic: tuple[int, ...]
    is_terminal: Terminal | None = None
    terminal_boxes: TerminalBoxes | None = None

    @property
    def domain(self) -> Box:
        """The box of states."""
        return self.source.domain


@dataclass(frozen=True, eq=False)
class Effects(Record):
    """The functions of V before and after each action, at n states that are not terminal.

    Attributes:
        basis: the functions φ of V.
        states: ``[n, d]``.
        periodic: coordinates that are periodic.
        next_states: J next states of each action and state ``[J, A, n, d]``; None with a regression.
        terminal: which of these are terminal ``[J, A, n]``; None if none is.
        regression: of (P_aφ)(s) on the state; None with next states.
        rows: (P_aφ)(s) itself ``[A, n, k]``, in place of next states; None unless `stored`.
        values: the columns of the regression at the states ``[n, m]``; None unless `stored`.
        noiseless: next states were observed without noise, so that they have no error.
    """

    basis: Basis
    states: Array
    periodic: tuple[int, ...] = ()
    next_states: Any = None
    terminal: NDArray[np.bool_] | None = None
    regression: Regression | None = None
    rows: Array | None = None
    values: Array | None = None
    noiseless: bool = False

    @classmethod
    def at_next_states(
        cls,
        basis: Basis,
        states: Array,
        next_states: Array,
        is_terminal: Terminal | None,
        periodic: tuple[int, ...],
        *,
        noiseless: bool = False,
    ) -> Effects:
        """The effects that are means over these next states ``[J, A, n, d]``."""
        over = None
        if is_terminal is not None:
            over = np.stack([[is_terminal(rows) for rows in actions] for actions in next_states])
        return cls(basis, states, periodic, next_states, over, noiseless=noiseless)

    @property
    def n_actions(self) -> int:
        """A."""
        if self.rows is not None:
            return len(self.rows)
        return self.next_states.shape[1] if self.regression is None else len(self.regression.weights)

    @property
    def columns(self) -> Basis | None:
        """The functions of the state of the regression; None without one."""
        return None if self.regression is None else self.regression.columns

    def __len__(self) -> int:
        return len(self.states)

    def blocks(self) -> Iterator[slice]:
        """Consecutive rows."""
        return blocks(len(self))

    def before(self, rows: Rows) -> Array:
        """φ(s) at some of the states ``[r, k]``."""
        return self.basis.values(self.states[rows])

    def after(self, actions: int | NDArray[np.intp], rows: Rows) -> Array:
        """(P_aφ)(s) ``[r, k]`` at some of the states, for one action or for one action of each row."""
        rows = np.arange(len(self))[rows]
        if self.rows is not None:
            return self.rows[actions, rows]
        if self.regression is None:
            total = np.zeros((len(rows), self.basis.size))
            for draw in range(len(self.next_states)):
                over = None if self.terminal is None else self.terminal[draw, actions, rows]
                total += features(self.basis, self.next_states[draw, actions, rows], None, over)
            return total / len(self.next_states)
        values, weights = self._columns(rows), self.regression.weights
        if isinstance(actions, int):
            return values @ weights[actions]
        total = np.empty((len(values), self.basis.size))
        for action in np.unique(actions):
            total[actions == action] = values[actions == action] @ weights[action]
        return total

    def _columns(self, rows: Rows) -> Array:
        assert self.regression is not None
        return self.regression.columns.values(self.states[rows]) if self.values is None else self.values[rows]

    def after_each(self, rows: Rows) -> Array:
        """(P_aφ)(s) of every action ``[A, r, k]`` at some of the states."""
        if self.regression is not None:
            return self._columns(rows) @ self.regression.weights
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

    def ahead(self, w: Array) -> Array:
        """(P_aV)(s) for each action ``[A, n]``."""
        if self.rows is not None:
            return self.rows @ w
        if self.regression is not None:
            of_actions = self.regression.weights @ w
            if self.values is not None:
                return of_actions @ self.values.T
            return self.regression.columns.combined(self.states, of_actions.T).T
        draws, A, n, d = self.next_states.shape
        values = self.basis.combined(self.next_states.reshape(-1, d), w).reshape(draws, A, n)
        if self.terminal is not None:
            values[self.terminal] = self.basis._at_ends(self.next_states[self.terminal]) @ w
        return np.asarray(values.mean(axis=0))

    def at(self, kept: NDArray[np.bool_]) -> Effects:
        """The effects at some of the states."""
        over = None if self.terminal is None else self.terminal[:, :, kept]
        moved = None if self.next_states is None else self.next_states[:, :, kept]
        rows, values = (
            None if self.rows is None else self.rows[:, kept],
            None if self.values is None else self.values[kept],
        )
        return replace(self, states=self.states[kept], next_states=moved, terminal=over, rows=rows, values=values)

    def stored(self) -> Effects:
        """The same with numbers kept that would be computed often, where they are at most `MOST_STORED`.

        These are (P_aφ)(s), if it is a mean over several next states, or the columns of a regression.
        """
        A, n, k = self.n_actions, len(self), self.basis.size
        if self.regression is not None:
            columns = self.regression.columns
            if 4 * n * columns.size > MOST_STORED:
                return self
            values = np.empty((n, columns.size))
            for block in self.blocks():
                values[block] = columns.values(self.states[block])
            return replace(self, values=values)
        if self.next_states is None or len(self.next_states) == 1 or A * n * k > MOST_STORED:
            return self
        rows = np.empty((A, n, k))
        for block in self.blocks():
            rows[:, block] = self.after_each(block)
        return replace(self, next_states=None, terminal=None, rows=rows)


Rows = slice | NDArray[np.intp]


def blocks(n: int) -> Iterator[slice]:
    """Consecutive parts of n rows."""
    return (slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def value_basis(
    domain: Box, periodic: tuple[int, ...] = (), most: int | None = None, states: Array | None = None
) -> Basis:
    """The functions of V: random sigmoids beyond four coordinates, else polynomials of a total degree.

    Args:
        domain: the box.
        periodic: coordinates that are periodic, with frequencies in place of polynomials.
        most: functions, at most.
        states: of a log ``[n, d]``, the units of random sigmoids; None for those of the box.
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


def next_states(simulator: Simulator, states: Array, rng: np.random.Generator) -> Array:
    """One next state of every action for each state ``[A, n, d]``."""
    domain = as_domain(simulator.domain)
    return np.stack([ask(simulator, states, action, rng, domain) for action in range(simulator.n_actions)])


def observed_effects(simulator: Simulator, basis: Basis, states: Array, rng: np.random.Generator) -> Effects:
    """V's functions at the next states of each action, for dynamics without noise."""
    moved, of = next_states(simulator, states, rng)[None], (terminal_of(simulator), periodic_of(simulator))
    return Effects.at_next_states(basis, states, moved, *of, noiseless=True)


def drawn_effects(simulator: Simulator, basis: Basis, states: Array, draws: int, rng: np.random.Generator) -> Effects:
    """V's functions at next states, a mean over draws with the same random numbers for all actions."""
    moved = several_next_states(simulator, states, draws, rng)
    return Effects.at_next_states(basis, states, moved, terminal_of(simulator), periodic_of(simulator))


def several_next_states(simulator: Simulator, states: Array, draws: int, rng: np.random.Generator) -> Array:
    """Next states of each action and state ``[draws, A, n, d]``, with the same random numbers for all actions."""
    domain, moved = as_domain(simulator.domain), np.empty((draws, simulator.n_actions, *states.shape))
    seeds = rng.bit_generator.seed_seq.spawn(draws)  # type: ignore[attr-defined]
    for of_draw, seed in zip(moved, seeds, strict=True):
        for action in range(simulator.n_actions):
            of_draw[action] = ask(simulator, states, action, np.random.default_rng(seed), domain)
    return moved


def noise_ratio(simulator: Simulator, basis: Basis, rng: np.random.Generator, count: int = 500) -> float:
    """The variance that one draw leaves in a difference of two actions, over the mean square of the difference itself.

    The difference is what two draws at the same state have in common; the rest is noise. 0 if both draws are equal.
    """
    states = live_states(simulator, count, rng)
    pair = [drawn_effects(simulator, basis, states, 1, rng) for _ in range(2)]
    if np.array_equal(*(one.next_states for one in pair)):
        return 0.0
    first, second = (one.after_each(slice(None))[1:] - one.after(0, slice(None)) for one in pair)
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
    return Transitions(*rows, domain, simulator.n_actions, paired, periodic=periodic_of(simulator))


@dataclass(frozen=True, eq=False)
class Regression(Record):
    """P̂_aφ as functions of the state, by least squares: ``(P̂_aφ_i)(s) = Σ_j B_aji χ_j(s)``.

    Attributes:
        basis: φ, of V.
        columns: χ, of the state.
        weights: B ``[A, m, k]``.
        noise: the covariance ``[k, k]`` of a difference of two actions' rows, on average over the states.
        trial: B from the rows that are not held out; see `held_out_rows`.
    """

    basis: Basis
    columns: Basis
    weights: Array
    noise: Array
    trial: Array

    def effects(self, states: Array, periodic: tuple[int, ...] = ()) -> Effects:
        """The effects at some states."""
        return Effects(self.basis, states, periodic, regression=self)


def regress(
    log: Transitions,
    basis: Basis,
    *,
    is_terminal: Terminal | None = None,
    marked: NDArray[np.bool_] | None = None,
    degrees: Sequence[float] = DEGREES,
) -> Regression:
    """Fit (P_aφ)(s) by least squares, with the columns that predict held-out rows best.

    Args:
        log: the transitions.
        basis: φ, of V.
        is_terminal: which states are terminal.
        marked: which transitions lead to a terminal state ``[n]``, if the log knows better.
        degrees: of the columns to compare, in units of the degree of V.
    """

    def goals(rows: NDArray[np.intp]) -> Array:
        return features(basis, log.next_states[rows], is_terminal, None if marked is None else marked[rows])

    columns, sums, trial = _best_columns(log, held_out_rows(log), basis, degrees, 0.5, goals)
    weights = [group.solve() for group in sums]
    return Regression(basis, columns, np.concatenate(weights), _difference_noise(log, sums, weights), trial)


Goals = Callable[[NDArray[np.intp]], Array]  # rows of a log to what is predicted there [n, q]


class LeastSquaresSums(NamedTuple):
    """Sums over n states, at each of which g actions were tried, for least squares of goals y on columns χ.

    Attributes:
        n: the number of states.
        gram: Σ χχᵀ ``[m, m]``.
        cross: Σ χyᵀ ``[g, m, q]``.
        squares: Σ |y|² ``[g]``.
        scatter: Σ zzᵀ ``[q, q]`` with z = y of every action, or its difference from that of the first if paired.
    """

    n: int
    gram: Array
    cross: Array
    squares: Array
    scatter: Array

    @classmethod
    def of(cls, log: Transitions, columns: Basis, goals: Goals, rows: NDArray[np.intp]) -> LeastSquaresSums:
        """Sums over some rows ``[g, n]`` of a log, those of one column from the same state."""
        (g, n), m, q = rows.shape, columns.size, goals(np.zeros(1, dtype=np.intp)).shape[1]
        gram, cross, squares, scatter = np.zeros((m, m)), np.zeros((g, m, q)), np.zeros(g), np.zeros((q, q))
        for block in blocks(n):
            values, first = columns.values(log.states[rows[0, block]]), None
            gram += values.T @ values
            for action, of_action in enumerate(rows[:, block]):
                y = goals(of_action)
                cross[action] += values.T @ y
                squares[action] += np.einsum("nq,nq->", y, y)
                if log.paired:
                    first = y if first is None else first
                    y = y - first
                scatter += y.T @ y
        return cls(n, gram, cross, squares, scatter)

    def __add__(self, other: LeastSquaresSums) -> LeastSquaresSums:  # type: ignore[override]
        return LeastSquaresSums(
            self.n + other.n,
            self.gram + other.gram,
            self.cross + other.cross,
            self.squares + other.squares,
            self.scatter + other.scatter,
        )

    def leading(self, size: int) -> LeastSquaresSums:
        """The sums of the first columns."""
        return self._replace(gram=self.gram[:size, :size], cross=self.cross[:, :size])

    def solve(self) -> Array:
        """The weights ``[g, m, q]`` with which the columns come closest to the goals."""
        g, m, q = self.cross.shape
        weights = solve_normal(self.gram, self.cross.swapaxes(0, 1).reshape(m, g * q))
        return weights.reshape(m, g, q).swapaxes(0, 1)

    def error(self, weights: Array) -> float:
        """Σ |y − Bᵀχ|² over all actions for weights B ``[g, m, q]``."""
        explained = np.sum(weights * (2 * self.cross - self.gram @ weights))
        return max(float(self.squares.sum() - explained), 0.0)


def solve_normal(gram: Array, cross: Array) -> Array:
    """Coefficients ``[m, …]`` of least squares from Σ χχᵀ ``[m, m]`` and Σ χy ``[m, …]``."""
    ridged = np.array(gram)
    ridged[np.diag_indices(len(gram))] += RIDGE * np.trace(gram) / len(gram) + 1e-300
    return np.linalg.solve(ridged, cross)


def solve_least_squares(values: Array, goals: Array) -> Array:
    """Coefficients ``[m, …]`` with which the values ``[n, m]`` come closest to the goals ``[n, …]``."""
    return solve_normal(values.T @ values, values.T @ goals)


def held_out_rows(log: Transitions) -> NDArray[np.bool_]:
    """The rows to test a fit on ``[n]``: every fifth of each action, or whole episodes, a fifth of them.

    Few episodes are divided into parts of consecutive rows.
    """
    held_out = np.zeros(len(log), dtype=bool)
    if log.episodes is None:
        for action in range(log.n_actions):
            held_out[np.flatnonzero(log.actions == action)[::FOLDS]] = True
        return held_out
    first = originals(log.groups()[0], *log.states.T, log.actions)  # a copy is no test
    groups = np.unique(first, return_inverse=True)[1].reshape(-1)
    if groups.max() + 1 < 2 * FOLDS:
        groups = np.arange(len(log)) * FOLDS**2 // len(log)
    return (np.random.default_rng(0).permutation(int(groups.max()) + 1) % FOLDS == 0)[groups]


def _best_columns(
    log: Transitions,
    held_out: NDArray[np.bool_],
    basis: Basis,
    degrees: Sequence[float],
    fallback: float,
    goals: Goals,
    tolerance: float = 1.0,
) -> tuple[Basis, list[LeastSquaresSums], Array]:
    """The columns with which held-out rows are predicted best, the sums of all rows, and weights without held-out rows.

    Smaller sets are the first functions of larger ones, so that the sums of the largest hold those of all.

    Args:
        log: the transitions.
        held_out: the rows to predict from the others ``[n]``.
        basis: of V.
        degrees: of the columns, in units of that of the basis.
        fallback: the degree where there are too few transitions for all of these.
        goals: what to predict, in units in which errors are to be compared.
        tolerance: fewer columns are preferred whose error is at most this many times the least.
    """
    candidates = sorted({richer(basis, degree) for degree in degrees}, key=lambda columns: columns.size)
    affordable = [columns for columns in candidates if columns.size * 3 <= log.counts.min()]
    affordable = affordable or [richer(basis, fallback)]
    largest = affordable[-1]
    fitted, tested = list[LeastSquaresSums](), list[LeastSquaresSums]()
    for rows in rows_of_actions(log):
        is_tested = held_out[rows[0]]
        for sums, part in ((tested, rows[:, is_tested]), (fitted, rows[:, ~is_tested])):
            sums.append(LeastSquaresSums.of(log, largest, goals, part))
    best, errors = affordable[0], []
    if len(affordable) > 1:
        for size in (columns.size for columns in affordable):
            pairs = zip(fitted, tested, strict=True)
            errors.append(sum(test.leading(size).error(fit.leading(size).solve()) for fit, test in pairs))
        best = next(c for c, error in zip(affordable, errors, strict=True) if error <= tolerance * min(errors))
    trial = np.concatenate([fit.leading(best.size).solve() for fit in fitted])
    return best, [(fit + test).leading(best.size) for fit, test in zip(fitted, tested, strict=True)], trial


def _difference_noise(log: Transitions, sums: Sequence[LeastSquaresSums], weights: Sequence[Array]) -> Array:
    """The covariance of the error of a difference of two actions ``[k, k]``: of each m/n of its residual covariance.

    Common random numbers affect all actions alike, and what they share cancels.
    """
    total = np.zeros_like(sums[0].scatter)
    for group, B in zip(sums, weights, strict=True):
        scatter, m, shared = np.array(group.scatter), len(group.gram), int(log.paired)
        for fit, cross in zip(B[shared:] - shared * B[0], group.cross[shared:] - shared * group.cross[0], strict=True):
            explained = cross.T @ fit
            scatter += fit.T @ group.gram @ fit - explained - explained.T
        total += scatter * (m / group.n**2)
    return total / max(log.n_actions - 1, 1) if log.paired else 2 * total / log.n_actions


def rows_of_actions(log: Transitions) -> list[NDArray[np.intp]]:
    """The rows of all actions ``[A, n]`` if they were tried in the same states, else of each alone ``[1, n]``."""
    rows = [np.flatnonzero(log.actions == action) for action in range(log.n_actions)]
    same = all(
        len(own) == len(rows[0]) and (log.paired or np.array_equal(log.states[own], log.states[rows[0]]))
        for own in rows
    )
    return [np.stack(rows)] if same else [own[None] for own in rows]


@dataclass(frozen=True, eq=False)
class NextStateModel(Record):
    """A simulator learned from a log: ``s' = s + f_a(s) + noise``, where residuals of the regression are the noise.

    Functions of the next state are steep, and at terminal states they jump to 0, which no regression of them on s can
    follow. Where s' itself depends smoothly on s and noise is small, s' is better regressed, and the functions are
    evaluated there. Noise is taken to be the same everywhere, so the two are compared on held-out data.

    Attributes:
        columns: functions χ of the state.
        weights: of f_a ``[A, m, d]``.
        residuals: of the regression ``[J, d]``.
        steps: the least and the largest step s' − s of the log along each coordinate ``[2, d]``; where the fit is
            extrapolated it is clipped to these.
        domain: the box.
        periodic: coordinates that are periodic.
        is_terminal: which states are terminal; None if none is.
        inverses: of the matrices Σχχᵀ over the states from which each action was taken ``[A, m, m]``.
        trial: the weights from the rows that are not held out; see `held_out_rows`.
        jumps: the share of the log's rows that were left out of the fit; see `regress_next_states`.
        error: the standard error of the mean next state over the effect of an action, both as root mean squares over
            states of the log; from 0.7 on the data hardly distinguish the actions.
    """

    columns: Basis
    weights: Array
    residuals: Array
    steps: Array
    domain: Box
    periodic: tuple[int, ...]
    is_terminal: Terminal | None
    inverses: Array
    trial: Array
    jumps: float = 0.0
    error: float = float("nan")

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.weights)

    @property
    def noiseless(self) -> bool:
        """Whether the residuals are as small as rounding."""
        return bool(np.sqrt(np.mean((self.residuals / self.domain.width) ** 2)) < NOISELESS)

    def _into_box(self, states: Array) -> Array:
        return self.domain.moved_into(states, self.periodic)

    def _mean(self, states: Array, action: int) -> Array:
        """s + f_a(s) ``[n, d]``, which may lie outside the box."""
        rows = as_rows(states, len(self.domain))
        return rows + np.clip(self.columns.combined(rows, self.weights[action]), *self.steps)

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Next states ``[n, d]``."""
        mean = self._mean(states, action)
        return self._into_box(mean + self.residuals[rng.integers(len(self.residuals), size=len(mean))])

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        """Next states ``[m, n, d]`` with weights ``[m]``: the mean plus some residuals, the same everywhere."""
        mean = self._mean(states, action)
        noise = np.zeros((1, len(self.domain))) if self.noiseless else self.residuals[:DRAWS]
        return self._into_box(mean + noise[:, None]), np.full(len(noise), 1 / len(noise))

    def extrapolated(self, states: Array, action: int) -> NDArray[np.bool_]:
        """Where the next state of an action is extrapolated ``[n]``: its leverage exceeds 1."""
        return self._leverage(states, action) > EXTRAPOLATED

    def _leverage(self, states: Array, action: int) -> Array:
        """χᵀ(Σχχᵀ)⁻¹χ ``[n]``: the variance of the mean next state, in units of the noise."""
        leverage = np.empty(len(states))
        for block in blocks(len(states)):
            values = self.columns.values(states[block])
            leverage[block] = np.einsum("nm,nm->n", values @ self.inverses[action], values)
        return leverage

    def with_error(self, states: Array, units: Array) -> NextStateModel:
        """With its error at some states; ``units`` make coordinates comparable."""
        actions = range(self.n_actions)
        means = np.stack([self._mean(states, action) / units for action in actions])
        effect = np.mean((means - means.mean(axis=0)) ** 2)
        noise = np.mean((self.residuals / units) ** 2)
        variance = noise * np.mean([self._leverage(states, action) for action in actions])
        return replace(self, error=float(np.sqrt(variance / max(effect, 1e-300))))

    def terminal(self, states: Array) -> Any:
        """Which states are terminal ``[n]``."""
        return np.zeros(len(states), dtype=bool) if self.is_terminal is None else self.is_terminal(states)

    def effects(self, basis: Basis, states: Array, rng: np.random.Generator) -> Effects:
        """The effects of the actions on a basis: means over residuals, the same ones for every action.

        Beyond four coordinates the mean next state stands for all of them: noise that is the same for every action
        hardly changes which is best, and residuals of contacts, which occur at few states, would be added everywhere.
        """
        alone = self.noiseless or len(self.domain) > MOST_COORDINATES
        means = np.stack([self._mean(states, action) for action in range(self.n_actions)])
        moved = np.empty((1 if alone else DRAWS, *means.shape))
        for of_draw in moved:
            noise = 0.0 if alone else self.residuals[rng.integers(len(self.residuals), size=len(states))]
            of_draw[:] = [self._into_box(mean + noise) for mean in means]
        return Effects.at_next_states(basis, states, moved, self.is_terminal, self.periodic)


@dataclass(frozen=True, eq=False)
class Nearby(Record):
    """A simulator made of drawn transitions: a state moves as drawn states near it did.

    Where the number of draws is limited, walks and plans are made here: they cost none. With noise, the next states of
    a state are those of its nearest drawn states, moved along with them; without noise the step is interpolated
    linearly between them.

    Attributes:
        states: from which all actions were drawn ``[n, d]``.
        next_states: of each action ``[A, n, d]``.
        domain: the box.
        periodic: coordinates that are periodic.
        is_terminal: which states are terminal; None if none is.
        noiseless: whether next states are a function of state and action.
    """

    states: Array
    next_states: Array
    domain: Box
    periodic: tuple[int, ...]
    is_terminal: Terminal | None
    noiseless: bool
    thread_safe: ClassVar[bool] = True

    @classmethod
    def of(cls, states: Array, next_states: Array, problem: Any, *, noiseless: bool) -> Nearby:
        """From J next states of every action and state ``[J, A, n, d]``; domain and so on are those of the problem."""
        J, A, n, d = next_states.shape
        after = next_states.swapaxes(0, 1).reshape(A, J * n, d)
        places = (problem.domain, problem.periodic, problem.is_terminal)
        return cls(np.tile(states, (J, 1)), after, *places, noiseless)

    def __add__(self, other: Nearby) -> Nearby:
        states = np.concatenate([self.states, other.states])
        return replace(self, states=states, next_states=np.concatenate([self.next_states, other.next_states], axis=1))

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.next_states)

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import KDTree

        return KDTree(unit_chart(self.states, self.domain, self.periodic))

    @cached_property
    def _steps(self) -> Array:
        moved = [self.domain.displacement(self.states, after, self.periodic) for after in self.next_states]
        return np.stack(moved)

    def _near(self, states: Array) -> tuple[NDArray[np.intp], Array]:
        """The nearest drawn states of each state and their weights ``[n, k]``."""
        dimension = len(self.domain)
        k = 2 * dimension + 2 if self.noiseless else NEIGHBOURS.get(dimension, 8)
        k = min(k, len(self.states))
        distances, index = self._tree.query(unit_chart(states, self.domain, self.periodic), k=k)
        distances, index = distances.reshape(len(states), k), index.reshape(len(states), k)
        if not self.noiseless:
            return index, np.full(index.shape, 1 / k)
        flat = np.repeat(states, k, axis=0)
        away = self.domain.displacement(flat, self.states[index].reshape(flat.shape), self.periodic)
        away /= self.domain.width
        unit = distances[:, -1:] + 1e-300
        design = np.concatenate([np.ones((len(states), k, 1)), away.reshape(len(states), k, -1) / unit[:, :, None]], 2)
        weighted = design / ((distances / unit) ** 2 + 1e-6)[:, :, None]
        gram = weighted.swapaxes(1, 2) @ design
        gram[:, range(1, dimension + 1), range(1, dimension + 1)] += 1e-3
        shares = np.linalg.solve(gram, np.eye(dimension + 1)[:1].T[None])[:, :, 0]
        return index, np.einsum("nkc,nc->nk", weighted, shares)

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        """Next states ``[m, n, d]`` with weights ``[m]``."""
        index, weights = self._near(states)
        steps = self._steps[action][index]  # [n, k, d]
        if self.noiseless:
            moved = states + np.einsum("nk,nkd->nd", weights, steps)
            return self.domain.moved_into(moved, self.periodic)[None], np.ones(1)
        after = self.domain.moved_into(states[None] + steps.swapaxes(0, 1), self.periodic)
        return after, np.full(len(after), 1 / len(after))

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Next states ``[n, d]``."""
        branches, _ = self.outcomes(states, action)
        chosen = rng.integers(len(branches), size=len(states))
        return np.asarray(branches[chosen, np.arange(len(states))])

    def terminal(self, states: Array) -> Any:
        """Which states are terminal ``[n]``."""
        return np.zeros(len(states), dtype=bool) if self.is_terminal is None else self.is_terminal(states)

    def error(self, states: Array, after: Array) -> float:
        """The median error of next states without noise ``[A, n, d]``, over the effect of an action."""
        width = self.domain.width
        missed = [
            self.domain.displacement(self.outcomes(states, action)[0][0], observed, self.periodic) / width
            for action, observed in enumerate(after)
        ]
        moved = np.stack([self.domain.displacement(states, observed, self.periodic) / width for observed in after])
        effect = np.sqrt(2 * np.mean((moved - moved.mean(axis=0)) ** 2))
        return float(np.median(np.abs(missed)) / max(effect, 1e-300))

    def effects(self, basis: Basis, states: Array) -> Effects:
        """The effects of the actions on a basis."""
        moved = np.stack([self.outcomes(states, action)[0] for action in range(self.n_actions)], axis=1)
        return Effects.at_next_states(basis, states, moved, self.is_terminal, self.periodic, noiseless=self.noiseless)


def regress_next_states(
    log: Transitions,
    basis: Basis,
    *,
    is_terminal: Terminal | None,
    periodic: tuple[int, ...],
    rng: np.random.Generator,
) -> NextStateModel:
    """Fit s' − s by least squares, with the columns that predict held-out rows best; arguments as for `regress`.

    Next states jump at walls and contacts, and least squares would spread a jump over all states. So, if the dynamics
    are without noise but for few rows, these are left out.
    """
    settings: dict[str, Any] = {"is_terminal": is_terminal, "periodic": periodic}
    held_out = held_out_rows(log)
    model = _fitted_next_states(log, held_out, basis, **settings, rng=rng)
    if model.noiseless:
        return model
    log = replace(log, paired=False)  # rows are left out one by one
    trimmed, generator = model, np.random.default_rng(0)
    for _ in range(3):  # the first fit is spoiled by jumps
        sizes = _missed(log, trimmed)
        limit = JUMP * max(float(np.median(sizes)), NOISELESS)
        chosen = sizes <= max(limit, float(np.quantile(sizes, 1 - MOST_JUMPS)))
        kept = log.where(chosen)
        if sizes.max() <= limit or kept.counts.min() < FEWEST:
            break
        trimmed = _fitted_next_states(kept, held_out[chosen], basis, **settings, rng=generator)
    jumps = 1 - float(_steady(log, trimmed).mean())
    return replace(trimmed, jumps=jumps) if trimmed.noiseless and jumps <= MOST_JUMPS else model


def _missed(log: Transitions, model: NextStateModel) -> Array:
    """By how much a model misses the next states, as a share of the box ``[n]``."""
    expected = np.empty_like(log.states)
    for action in range(log.n_actions):
        rows = log.actions == action
        expected[rows] = model._into_box(model._mean(log.states[rows], action))
    missed = log.domain.displacement(expected, log.next_states, model.periodic)
    return np.asarray(np.abs(missed / log.domain.width).max(axis=1))


def _steady(log: Transitions, model: NextStateModel) -> NDArray[np.bool_]:
    """The rows of a log that a model of the next state without noise predicts ``[n]``."""
    sizes = _missed(log, model)
    return np.asarray(sizes <= JUMP * max(float(np.median(sizes)), NOISELESS))


def _fitted_next_states(
    log: Transitions,
    held_out: NDArray[np.bool_],
    basis: Basis,
    *,
    is_terminal: Terminal | None,
    periodic: tuple[int, ...],
    rng: np.random.Generator,
) -> NextStateModel:
    """The model of the next state, fitted to all rows."""
    step, width = log.domain.displacement(log.states, log.next_states, periodic), log.domain.width
    # A coordinate that moves alike in every row (a clock, a constant) has no unit of its own.
    units = np.where(step.std(axis=0) > NOISELESS * width, step.std(axis=0), width)
    tolerance = SIMPLER if len(log.domain) > MOST_COORDINATES else 1.0
    degrees, fewest = NEXT_STATE_DEGREES, NEXT_STATE_DEGREES[0]
    columns, sums, trial = _best_columns(
        log, held_out, basis, degrees, fewest, lambda rows: step[rows] / units, tolerance
    )
    weights = np.concatenate([group.solve() for group in sums]) * units
    inverses = np.concatenate([[solve_normal(group.gram, np.eye(columns.size))] * len(group.cross) for group in sums])
    steps, none = np.stack([step.min(axis=0), step.max(axis=0)]), np.zeros((1, len(units)))
    model = NextStateModel(columns, weights, none, steps, log.domain, periodic, is_terminal, inverses, trial * units)
    kept = rng.permutation(len(log))[:MOST_RESIDUALS]
    residuals = np.empty((len(kept), len(units)))
    for action, count in enumerate(log.counts):
        of_action = log.actions[kept] == action
        rows = kept[of_action]
        # Residuals of the fitted rows are too small, by the functions that were fitted to them.
        inflation = np.sqrt(max(1 - columns.size / count, 0.1))
        residuals[of_action] = (step[rows] + log.states[rows] - model._mean(log.states[rows], action)) / inflation
    return replace(model, residuals=residuals).with_error(log.states[kept], units)


def error_in_words(error: float) -> str:
    """An error, as a share of an action's effect, and how far that can be trusted."""
    trust = "good" if error < GOOD else "not usable" if error > DISTRUST else "usable"
    return f"{error:.2g} of an action's effect ({trust})"


class HeldOutErrors(NamedTuple):
    """Errors of a next-state model at held-out rows, as it is fitted to the other rows.

    Attributes:
        relative: the mean square error in φ at the next states, over that of a regression; below `CLEARLY` the model is
            better.
        misfit: the mean square error in a few polynomials of the next state, over what the noise and an error of a
            tenth of a step would leave: about 1 for the true dynamics. Above 1/`CLEARLY` these are not a drift plus
            noise that is the same everywhere.
    """

    relative: float
    misfit: float

    @property
    def is_model(self) -> bool:
        """Whether the model describes the dynamics."""
        return self.misfit * CLEARLY < 1


def held_out_errors(
    model: NextStateModel,
    regression: Regression,
    log: Transitions,
    held_out: NDArray[np.bool_],
    rng: np.random.Generator,
) -> HeldOutErrors:
    """Judge a model of the next state, and compare it with a regression, on some of the held-out rows ``[n]``.

    Errors at neighbouring states share what the model misses and not the noise: this is what remains of the mean square
    without their mean product.
    """
    basis, chosen = regression.basis, rng.permutation(np.flatnonzero(held_out))[:SCORED]
    states, actions, rows = log.states[chosen], log.actions[chosen], np.arange(len(chosen))
    marked = None if log.terminal is None else log.terminal[chosen]
    few = richer(basis, NEXT_STATE_DEGREES[0])  # steep functions are all noise
    truth, moments = (features(f, log.next_states[chosen], model.is_terminal, marked) for f in (basis, few))
    effects = replace(model, weights=model.trial).effects(basis, states, rng)
    other = replace(regression, weights=regression.trial).effects(states)
    by_model, by_regression = (float(np.mean((e.after(actions, rows) - truth) ** 2)) for e in (effects, other))
    missed = replace(effects, basis=few).after(actions, rows) - moments
    square, places = float(np.mean(missed**2)), unit_chart(states, log.domain, model.periodic)
    shared = neighbour_products(missed, places, actions)
    step = float(
        np.mean((moments - features(few, states, model.is_terminal, None)) ** 2)
    )  # where there is hardly noise, no fit is as exact as that
    misfit = square / max(square - max(shared, 0.0) + NEGLIGIBLE * step, 1e-300) if square > 0 else 1.0
    return HeldOutErrors(by_model / max(by_regression, 1e-300), misfit)


def neighbour_products(errors: Array, places: Array, actions: NDArray[np.intp] | int = 0) -> float:
    """The mean product of errors ``[n, q]`` at neighbouring places ``[n, d]`` of one action ``[n]``.

    Errors of a fit at two neighbouring states share the fit's error and not the noise of the two next states, so that
    the mean product estimates the squared error without the noise.
    """
    from scipy.spatial import KDTree

    total, count, actions = 0.0, 0, np.broadcast_to(actions, len(places))
    for action in np.unique(actions):
        rows = np.flatnonzero(actions == action)
        if len(rows) > 1:
            near = KDTree(places[rows]).query(places[rows], k=2)[1][:, 1]
            total, count = total + float(np.sum(errors[rows] * errors[rows[near]])), count + errors[rows].size
    return total / max(count, 1)


class EffectModel(NamedTuple):
    """The estimated effects of the actions, with the data and models behind them.

    Attributes:
        effects: of every action on the functions of V.
        counts: states, or transitions of each action.
        log: the transitions behind the effects; None if a simulator was asked at every state.
        regression: of V's functions on the state, if the effects are from it.
        next_states: the model of the next state; None without a log.
        errors: of that model.
        nearby: the transitions drawn from a simulator; None for a log.
    """

    effects: Effects
    counts: tuple[int, ...]
    log: Transitions | None = None
    regression: Regression | None = None
    next_states: NextStateModel | None = None
    errors: HeldOutErrors = HeldOutErrors(float("inf"), float("inf"))
    nearby: Nearby | None = None

    @property
    def by_next_states(self) -> bool:
        """Whether the effects are from the model of the next state."""
        return self.next_states is not None and self.regression is None


def estimate_effects(
    problem: ValueProblem, basis: Basis, samples: int, rng: np.random.Generator, paired: bool | None
) -> EffectModel:
    """The effects of the actions on a basis: observed or drawn where noise is small beside them, else regressed.

    Args:
        problem: with the source; a log is used as it is.
        basis: the functions of V.
        samples: states to ask a simulator about, or transitions of every action if it is noisy.
        rng: the generator.
        paired: draw with the same random numbers for every action; by a trial if None.
    """
    source = problem.source
    if isinstance(source, Logged):
        log = _without_absorbed(source.data)
        states = _live_rows(problem, log)
        same = len(states) // log.n_actions  # every action of pairs was tried at the same states
        places = np.arange(same) if log.paired else rng.permutation(len(states))
        return _from_log(problem, log, states[places], basis, rng)
    simulator = source.data
    ratio = noise_ratio(counted_as(simulator, "checks"), basis, rng, count=_share(samples, 32, 500))
    paired = can_pair(simulator, basis, rng.spawn(1)[0], asked=paired, count=_share(samples, 32, 128))
    left = samples - simulator.counts.most("checks")
    count = min(left, MOST_STATES)
    if ratio == 0:
        states = placed_states(simulator, basis, count, rng)
        effects = observed_effects(simulator, basis, states, rng)
    elif ratio < FAINT * min(left // count, MOST_DRAWS):
        states = live_states(simulator, count, rng)
        effects = drawn_effects(simulator, basis, states, min(left // count, MOST_DRAWS), rng)
    else:
        drawn = drawn_log(simulator, left, rng.spawn(1)[0], paired=paired, basis=basis)
        states = _live_rows(problem, drawn)
        model = _from_log(problem, drawn, states[: len(states) // drawn.n_actions], basis, rng)
        after = np.stack([drawn.of_action(action)[1] for action in range(drawn.n_actions)])
        return model._replace(nearby=Nearby.of(drawn.of_action(0)[0], after[None], problem, noiseless=False))
    nearby = Nearby.of(states, effects.next_states, problem, noiseless=effects.noiseless)
    return EffectModel(effects, (len(nearby.states),), nearby=nearby)


def _share(samples: int, part: int, most: int) -> int:
    """Rows for a check: a part of the samples, within limits."""
    return int(np.clip(samples // part, 4, most))


def _live_rows(problem: ValueProblem, log: Transitions) -> Array:
    """The states of a log that are not terminal ``[m, d]``."""
    return log.states if problem.is_terminal is None else log.states[~problem.is_terminal(log.states)]


def _from_log(
    problem: ValueProblem, log: Transitions, states: Array, basis: Basis, rng: np.random.Generator
) -> EffectModel:
    """Effects at some states, by least squares: of V's functions, or of the state where that predicts better."""
    counts, is_terminal = tuple(log.counts.tolist()), problem.is_terminal
    fewest, names = min(counts), log.action_names
    if fewest == 0:
        missing = ", ".join(action_in_words(a, names) for a, count in enumerate(counts) if not count)
        counted = "" if names else "; actions are counted from 0"
        raise ValueError(f"{missing} was never taken in the log, so that its effect is unknown{counted}")
    if fewest < FEWEST:
        raise ValueError(
            f"{action_in_words(counts.index(fewest), names)} has {number_of(fewest, 'transition')}: too few to "
            f"estimate its effect, at least {FEWEST} of every action are needed"
        )
    marked = log.terminal if is_terminal is None else None  # boxes that hold the marked states replace the marks
    states = states[:MOST_STATES]
    model = regress_next_states(log, basis, is_terminal=is_terminal, periodic=problem.periodic, rng=rng)
    regression = regress(log, basis, is_terminal=is_terminal, marked=marked)
    held_out = held_out_rows(log)
    errors = held_out_errors(model, regression, log, held_out & _steady(log, model) if model.jumps else held_out, rng)
    # With many coordinates a few thousand transitions determine the next state, but hardly hundreds of functions of it.
    # Ends are jumps, which no regression of them on the state can follow: a model that describes the data is enough.
    several = len(log.domain) > MOST_COORDINATES
    most = np.inf if basis.has_ends else 1 / CLEARLY if several else CLEARLY
    if (errors.is_model or several) and errors.relative < most:
        return EffectModel(model.effects(basis, states, rng), counts, log, None, model, errors)
    return EffectModel(regression.effects(states, problem.periodic), counts, log, regression, model, errors)


def with_ends(problem: ValueProblem, model: EffectModel, boxes: Array, rng: np.random.Generator) -> EffectModel:
    """The effects of the same transitions, with one more function of V: of the ends in some boxes ``[b, 2, d]``."""
    basis = EndBasis.of(model.effects.basis, boxes)
    if model.log is not None:
        states = model.effects.states
        return _from_log(problem, model.log, states, basis, rng)._replace(nearby=model.nearby)
    return model._replace(effects=replace(model.effects, basis=basis))


def _without_absorbed(log: Transitions) -> Transitions:
    """Without the rows that lead from terminal states to themselves: V is 0 there, whatever the action."""
    if log.terminal is None:
        return log
    return log.where(~(log.terminal & (log.states == log.next_states).all(axis=1)))


def unit_chart(states: Array, domain: Box, periodic: tuple[int, ...]) -> Array:
    """States in units of the box's widths, periodic coordinates on a circle of length 1; distances are taken there."""
    parts = []
    for axis, share in enumerate(domain.shares(states).T):
        turn = 2 * np.pi * share
        parts += [np.sin(turn) / (2 * np.pi), np.cos(turn) / (2 * np.pi)] if axis in periodic else [share]
    return np.stack(parts, axis=1)
