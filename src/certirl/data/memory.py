"""Memory: whether the next state depends on the step before, once state and action are given.

Every method here assumes that it does not. A hidden disturbance, a delay or a coordinate that is missing make what
state and action leave open of one step say something about the next step. Both are compared between neighbouring states
at which the same action was taken, so that errors of a regression, which neighbours share, are no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.tables import as_log
from certirl.data.transitions import Transitions, coordinates_in_words
from certirl.functions.bases import of_degree
from certirl.ground.domain import Array
from certirl.ground.doors import as_probability, by_door, shown
from certirl.ground.records import Record

LEVEL = 1e-3  # of false alarms, unless another is asked for
DEGREES = {1: 8, 2: 5}  # total degree of a regression on the state, by its coordinates; 3 for more
REMEMBERED = "add what the system remembers as a coordinate, such as the state or the action of the step before"
FEWEST = 100  # pairs of neighbouring steps, below which nothing is said
MOST = 20_000  # steps that are looked at
MATERIAL = 0.02  # of the variance of what state and action leave open: less memory is no matter
APART = 5  # steps of a recording: states that are no farther from each other are not compared
MIDDLE = 1.4826  # the standard deviation of Gaussian noise whose size is 1 in the median
TIE = 1e-9  # of the box: by how much states are told apart that are the same
NOISELESS = 1e-3  # of the variance of a step: what is left open beside it is an error of the regression


@dataclass(frozen=True, eq=False)
class Memory(Record):
    """What the step before says about a step, beyond state and action.

    Attributes:
        pairs: of neighbouring steps that were compared; 0 if there are too few, and nothing is known.
        correlation: of what state and action leave open of each coordinate with the same one step before ``[d]``.
        share: of the variance of what they leave open, the part that the step before explains ``[d]``.
        p_value: of the largest |z|, corrected for the number of comparisons.
        level: memory is found if its p-value is smaller.
        coordinate_names: of the log, if it has them.
        column: of the table that the log was read from, which explains most of what is left open; empty if none does.
        column_share: how much of its variance.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> wind = np.convolve(rng.normal(size=3_009), np.ones(10) / 3, "valid")  # nobody recorded it
        >>> states = np.cumsum(wind) % 10
        >>> settings = {"domain": (0, 10), "periodic": (0,)}
        >>> log = certirl.Transitions(states[:-1], rng.integers(2, size=2_999), states[1:], **settings)
        >>> found = certirl.diagnose.memory(log)
        >>> found.found, bool(found.correlation[0] > 0.8)
        (True, True)
    """

    pairs: int
    correlation: Array
    share: Array
    p_value: float
    level: float
    coordinate_names: tuple[str, ...] = ()
    column: str = ""
    column_share: float = 0.0

    @property
    def cure(self) -> str:
        """What to add to the state."""
        if self.column:
            return f"add {self.column} of the table to the state, which explains {self.column_share:.0%} of it"
        return f"{REMEMBERED} ({by_door('lag= of readers', '--lag')})"

    @property
    def found(self) -> bool:
        """Whether there is memory, beyond chance and not too little to matter."""
        return self.p_value < self.level and float(self.share.max()) > MATERIAL

    def __str__(self) -> str:
        if not self.pairs:
            return "memory is not known: too few neighbouring steps continue another"
        most = int(np.argmax(self.share))
        name = self.coordinate_names[most] if self.coordinate_names else f"s[{most}]"
        says = (
            f"the step before explains {self.share[most]:.0%} of what state and action leave open of {name}, "
            f"correlation {self.correlation[most]:.2f}"
        )
        return says if self.found else f"no memory found ({says})"


def diagnose_memory(log: Any, *, level: float = LEVEL) -> Memory:
    """Test whether the next state depends on the step before, once state and action are given.

    Args:
        log: `Transitions` in the order of time, with or without episodes; or a table, as in `certirl.logs.read`.
        level: the probability of finding memory where there is none.

    Example:
        >>> drawn = certirl.steps.sample(certirl.problems.thermostat(), basis=certirl.Legendre(3), samples=500, rng=0)
        >>> print(certirl.diagnose.memory(drawn))
        memory is not known: too few neighbouring steps continue another
    """
    rows = as_log(log)
    if not isinstance(rows, Transitions):
        raise TypeError(f"log must be certirl.Transitions, in the order of time, got {shown(log)}")
    return find_memory(rows, as_probability(level, "level"))


def find_memory(log: Transitions, level: float = LEVEL) -> Memory:
    """The memory of a log."""
    d, names = len(log.domain), log.coordinate_names
    first, second = linked = links(log)
    chosen = np.linspace(0, len(first) - 1, min(len(first), MOST)).astype(int)
    first, second = first[chosen], second[chosen]
    left = _left_open(log, np.union1d(first, second))
    known = np.isfinite(left[first]).all(axis=1) & np.isfinite(left[second]).all(axis=1)
    first, second = first[known], second[known]
    before = np.concatenate([left[first], log.actions[first][:, None] == np.arange(1, log.n_actions)], axis=1)
    one, other = neighbours(log, second, linked, same=True)
    if len(one) < FEWEST:
        return Memory(0, np.zeros(d), np.zeros(d), 1.0, level, names)
    y, x = left[second[one]] - left[second[other]], before[one] - before[other]
    steps = log.domain.displacement(log.states[second], log.next_states[second], log.periodic) / log.domain.width
    y[:, (y**2).mean(axis=0) / 2 < NOISELESS * steps.var(axis=0) + 1e-20] = 0.0
    products, squares = y.T @ x, (y**2).T @ x**2
    z = np.abs(products) / np.sqrt(np.maximum(squares, 1e-300))
    fitted = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    total = np.maximum((y**2).sum(axis=0), 1e-300)
    own = np.sqrt(np.maximum(total * (x[:, :d] ** 2).sum(axis=0), 1e-300))
    share, correlation = (fitted**2).sum(axis=0) / total, np.diag(products[:, :d]) / own
    memory = Memory(len(one), correlation, share, corrected(z, z.size), level, names)
    if log.further is None or not memory.found:
        return memory
    best, left_open = ("", MATERIAL), y[:, [int(np.argmax(share))]]
    columns = {name: values[second[one]] - values[second[other]] for name, values in log.further().items()}
    for name, x in columns.items():
        z = np.abs(left_open.T @ x) / np.sqrt(np.maximum((left_open**2).T @ x**2, 1e-300))
        explained = ((x @ np.linalg.lstsq(x, left_open, rcond=None)[0]) ** 2).sum() / total[int(np.argmax(share))]
        if explained > best[1] and corrected(z, z.size * len(columns)) < level:
            best = name, float(explained)
    return replace(memory, column=best[0], column_share=best[1]) if best[0] else memory


def residual_deviations(log: Transitions) -> Array:
    """The standard deviation of what polynomials of the state leave open of each coordinate, by action ``[A, d]``.

    It is that of Gaussian noise with the same median size where the ends of the box are farther away than that, so that
    next states that are placed there do not count; NaN where there are too few.
    """
    rows = np.linspace(0, len(log) - 1, min(len(log), MOST)).astype(int)
    left = _left_open(log, rows) * log.domain.width
    means = log.next_states - left
    gaps = np.minimum(means - log.domain.low, log.domain.high - means)
    gaps[:, list(log.periodic)] = np.inf
    deviations = np.full((log.n_actions, len(log.domain)), np.nan)
    for action, axis in np.ndindex(*deviations.shape):
        own = np.isfinite(left[:, axis]) & (log.actions == action)
        if own.any():
            size, gap = np.abs(left[own, axis]), gaps[own, axis]
            far = size[gap > np.median(size) * MIDDLE]
            deviations[action, axis] = np.median(far if len(far) else size) * MIDDLE
    return deviations


def beside_declared(log: Transitions, declared: ArrayLike) -> str:
    """Residual standard deviations by action beside declared ones of the noise, in words."""
    names, each = log.action_names, residual_deviations(log).T
    told = []
    for axis, (std, seen) in enumerate(zip(np.broadcast_to(declared, len(each)), each, strict=True)):
        by_action = ", ".join(f"{names[a]} {value:.3g}" if names else f"{value:.3g}" for a, value in enumerate(seen))
        of = f" of {coordinates_in_words([axis], log.coordinate_names)}" if len(each) > 1 else ""
        told.append(f"residuals{of} are like noise of standard deviation {by_action} where {std:.3g} is declared")
    return "; ".join(told)


def _left_open(log: Transitions, rows: NDArray[np.intp]) -> Array:
    """What polynomials of the state leave open of the steps of each action, in widths of the box; else NaN."""
    left, d = np.full(log.states.shape, np.nan), len(log.domain)
    columns = of_degree(log.domain, DEGREES.get(d, 3), log.periodic)
    for action in range(log.n_actions):
        own = rows[log.actions[rows] == action]
        if len(own) > 4 * columns.size:
            step = log.domain.displacement(log.states[own], log.next_states[own], log.periodic) / log.domain.width
            regressors, _ = np.linalg.qr(columns.values(log.states[own]))
            left[own] = step - regressors @ (regressors.T @ step)
    return left


def neighbours(
    log: Transitions, rows: NDArray[np.intp], links: tuple[NDArray[np.intp], NDArray[np.intp]], *, same: bool
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs among some rows, of the ``same`` action or of two, each of whose states is the other's nearest such.

    The two are more than `APART` steps of a recording from each other: what one leaves open moves those that follow it.
    """
    from scipy.spatial import KDTree

    places, actions = log.domain.chart(log.states[rows], log.periodic), log.actions[rows]
    # Of states that are the same, as rounded ones are, each has one nearest.
    places = places + TIE * np.random.default_rng(0).uniform(size=places.shape)
    ways = np.full((2, len(log) + 1), -1)
    ways[0, links[0]], ways[1, links[1]] = links[1], links[0]
    nearest = np.full(len(rows), -1)
    for action in np.unique(actions):
        own = np.flatnonzero(actions == action)
        others = own if same else np.flatnonzero(actions != action)
        k = min(2 * APART + 1 + same, len(others))
        if not k:
            continue
        near = others[KDTree(places[others]).query(places[own], k=range(1, k + 1))[1]]
        far = rows[near] != rows[own][:, None]
        for way in ways:
            beside = rows[own]
            for _ in range(APART):
                beside = way[beside]  # that of none is none, -1
                far &= rows[near] != beside[:, None]
        nearest[own] = np.where(far.any(axis=1), near[np.arange(len(own)), far.argmax(axis=1)], -1)
    one = np.arange(len(rows))
    mutual = (nearest > one) & (nearest[nearest] == one)
    return one[mutual], nearest[mutual]


def corrected(z: Any, comparisons: int) -> float:
    """Bonferroni's p-value of the largest |z|."""
    from scipy.special import ndtr

    return float(min(1.0, max(comparisons, 1) * 2 * ndtr(-float(np.max(z)))))


def links(log: Transitions) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows, and those that continue them: the next of the episode, if most rows start where the one before ends."""
    follows = (log.states[1:] == log.next_states[:-1]).all(axis=1)
    if log.episodes is not None:
        follows &= log.episodes[1:] == log.episodes[:-1]
    first = np.flatnonzero(follows)
    return (first, first + 1) if 2 * len(first) > len(log) else continuations(log)


def continuations(log: Transitions) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows, and those that continue them: that alone start in the state in which the first alone ends."""
    after, states = keys_of(*log.next_states.T), keys_of(*log.states.T)
    sorted_after, sorted_states = np.sort(after), np.sort(states)
    if not (sorted_after[np.searchsorted(sorted_after[:-1], sorted_states)] == sorted_states).any():
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    (ends, end_rows, end_counts), (starts, start_rows, start_counts) = (
        np.unique(keys, return_index=True, return_counts=True) for keys in (after, states)
    )
    ends, end_rows = ends[end_counts == 1], end_rows[end_counts == 1]
    starts, start_rows = starts[start_counts == 1], start_rows[start_counts == 1]
    _, first, second = np.intersect1d(ends, starts, assume_unique=True, return_indices=True)
    return end_rows[first], start_rows[second]


def keys_of(*columns: NDArray[Any]) -> NDArray[np.uint64]:
    """Hashes of the rows of these columns ``[n]``, different for different rows but for 2⁻⁶⁴."""
    keys = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        bits = (column + 0.0).view(np.uint64) if column.dtype.kind == "f" else column.astype(np.uint64)  # -0.0 is 0.0
        keys = (keys ^ bits) + np.uint64(0x9E3779B97F4A7C15)
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
    return keys
