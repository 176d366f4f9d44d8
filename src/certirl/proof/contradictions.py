"""What data say against a declaration: one sentence, or nothing.

All that is declared of the dynamics and that data can contradict is compared with them here: a tail and the noise
behind it, the two ends of a circle, known noise with an affine drift, densities, images of cells.
Each test returns a sentence or an empty one; `refuse` raises it. A true declaration is refused by one test with
probability `MISTAKEN` at most, where rows are what they are said to be; images, terminal boxes and densities are
compared without probability. Tests that pass prove nothing. docs/notes/certificate.md, section 19.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import e, log, pi, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.dependence import Sampling, answers
from certirl.data.simulator import ask, terminal_of
from certirl.data.source import Simulated, Source
from certirl.data.transitions import Piece
from certirl.fit.witness import place_of
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.ground.domain import Array, as_domain, mesh
from certirl.ground.doors import by_door, setting
from certirl.ground.status import distinct_digits, rounded_down
from certirl.kernels.tensors import on_host
from certirl.proof.tails import LeastNoise, Tail, TailLike

if TYPE_CHECKING:
    from certirl.proof.case import Part
    from certirl.proof.cells import Image
    from certirl.proof.densities import DensityTail
    from certirl.proof.drift import Drift

MISTAKEN = 1e-6  # the probability that one of these tests refuses a true declaration

# A declared property, at pairs of states: of a log, with the states to choose from, and of a simulator.
_PAIRS, _ROWS, _CANDIDATES = 12, 2_000, 40
_ASKED_PAIRS, _ASKED_ROWS = 6, 6_000
_CHANGE = 1.2  # the change between two states, by the declaration, at which the data are compared with it
# A fit of the columns, and predictions.
_MORE = 6  # functions beyond the columns, from which the weights are made
_MOST_COLUMNS = 150
_DEGREES, _PLACES = 4, (-0.5, 0.0, 0.5)  # of the functions of each coordinate of the next state
_HELD = 65_536  # rows of a piece that are held at once
_SLACK = 1e-7  # for rounding
_HALVES = (0.5, 0.8, 1.2)  # half the lengths of intervals, in standard deviations of declared noise
_RATIOS, _MOST_RATE = (0.5, 0.7, 0.85, 0.95, 0.99), 3.0  # of true and declared noise for which λ is chosen; largest λ
_MOST_CHANCE = 0.95  # of an interval that is compared
_PARTS = 8  # of the distances of the drift from an interval
# Known noise.
_QUARTERS = 4
_FEWEST = 20  # rows of a group that is compared
# Images of cells.
INFLATION = 1e-9  # of a side, by which cells and boxes are enlarged: rounding of places
PROBES = 2000  # next states that are compared with the declared constants, for each action
# Densities.
_LINES = 5  # states from which declared derivatives are compared with differences
_ROUNDING = 1e-11


def refuse(fault: str) -> None:
    """Raise a sentence, if there is one."""
    if fault:
        raise ValueError(fault)


# A declared property of the dynamics, at pairs of states ------------------------------------------------------------

Group = tuple[Array, Array]  # states and next states of rows whose next states are compared with those of others


def of_tail(tail: TailLike, source: Source) -> str:
    """What the data say against a declared tail; nothing where nothing in it can be tested.

    At pairs of states, of a log at the nearest rows of pairs of its states, the distributions of each coordinate of the
    next state are compared: their distribution functions differ by half of `Tail.change` at most, up to the errors of
    two empirical ones (Dvoretzky, Kiefer and Wolfowitz; Bretagnolle's constant for rows of different states). If
    rows are independent, all comparisons together contradict a true declaration with probability 10⁻⁶ at most.
    """
    d, rng = len(source.domain), np.random.default_rng(0)
    pairs = range(_pairs(source) * d)
    cases = product(range(source.n_actions), pairs)
    groups = (((action,), _two_groups(tail, source, action, rng, number)) for action, number in cases)
    found = _apart(tail, source, groups, len(pairs))
    if found is None:
        return ""
    (action,), places, allowed, least = found
    return (
        f"the declared tail contradicts the data: if {tail}, the distributions of the next state under action {action} "
        f"from {places} differ by {allowed:.2g} at most (∫|difference of densities|), but they differ by at least "
        f"{least:.2g}; declare less noise or a larger slope"
    )


def of_circle(tail: TailLike, source: Source, axes: Sequence[int]) -> str:
    """What the data say against coordinates whose two ends are one state, as periodic columns require.

    The next states from both ends are compared as in `of_tail`, at the same level.

    Only declared properties are tested. ``axes`` are coordinates in which the columns are periodic.
    """
    rng, pairs = np.random.default_rng(0), _pairs(source)
    cases = product(range(source.n_actions), axes, range(pairs))
    groups = (((action, axis), _two_ends(source, action, rng, axis)) for action, axis, _ in cases)
    found = _apart(tail, source, groups, pairs * len(axes))
    if found is None:
        return ""
    (action, axis), _, allowed, least = found
    return (
        f"columns that are periodic in coordinate {axis} take its two ends for one state, but under action {action} "
        f"the distributions of the next state from them differ by at least {least:.2g} (∫|difference of densities|), "
        f"where the declared tail allows {allowed:.2g}: use polynomials, say certirl.Legendre"
    )


def _apart(
    tail: Any, source: Source, groups: Iterable[tuple[Any, Any]], pairs: int
) -> tuple[Any, str, float, float] | None:
    """The first two groups whose next states differ by more than is declared: which, where, what is declared and seen.

    Each of ``groups`` is what is compared, and the two groups, None where a log has too few rows; there are ``pairs``
    of them for each action.
    """
    d = len(source.domain)
    if not isinstance(tail, Tail) or tail.change(np.zeros(d)) > 0:  # what says nothing of two states
        return None
    comparisons = pairs * d * source.n_actions
    for which, both in groups:
        if both is None:
            return None
        (one, one_next), (other, other_next) = both
        radius = sqrt(log(2 * e / MISTAKEN * 2 * comparisons) / (2 * len(one)))
        differences = np.maximum(one.max(axis=0) - other.min(axis=0), other.max(axis=0) - one.min(axis=0))
        statistics = (_largest_gap(*pair) for pair in zip(one_next.T, other_next.T, strict=True))
        allowed, least = tail.change(differences), 2 * (max(statistics) - 2 * radius)
        if least > allowed:
            places = " and ".join(np.array2string(states.mean(axis=0), precision=3) for states in (one, other))
            return which, places, allowed, least
    return None


def _largest_gap(one: Array, other: Array) -> float:
    """The largest difference between the distribution functions of two samples (Kolmogorov and Smirnov)."""
    both = np.concatenate([one, other])
    shares = [np.searchsorted(np.sort(sample), both, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def _pairs(source: Source) -> int:
    return _PAIRS if source.is_log else _ASKED_PAIRS


def _two_groups(
    tail: Any, source: Source, action: int, rng: np.random.Generator, number: int
) -> tuple[Group, Group] | None:
    """Two groups of rows whose next states must have similar distributions; None if a log has too few rows."""
    domain = source.domain
    low, high = domain.ends
    if isinstance(source, Simulated):
        first = rng.uniform(low, high)
        step = np.zeros(len(domain))
        axis = number % len(domain)
        step[axis] = (high - low)[axis]
        shares = np.geomspace(1e-3, 0.5, 40)
        share = next((share for share in shares if tail.change(share * step) > _CHANGE), 0.5)
        forward = share * step if first[axis] <= (low + high)[axis] / 2 else -share * step
        return _asked(source, action, first, 2 * number), _asked(source, action, first + forward, 2 * number + 1)
    states, next_states = source.data.of_action(action)
    if len(states) < 2 * _ROWS:
        return None
    centres = states[rng.integers(len(states), size=_CANDIDATES)]
    changes = np.array([tail.change(np.abs(centre - centres[0])) for centre in centres])
    chosen = int(np.abs(changes[1:] - _CHANGE).argmin()) + 1
    return _nearest(states, next_states, centres[0], high - low), _nearest(
        states, next_states, centres[chosen], high - low
    )


def _two_ends(source: Source, action: int, rng: np.random.Generator, axis: int) -> tuple[Group, Group] | None:
    """Two groups of rows, from both ends of a coordinate; the states of the first are moved by its period."""
    low, high = source.domain.ends
    first = rng.uniform(low, high)
    first[axis] = low[axis]
    period = np.where(np.arange(len(low)) == axis, high - low, 0.0)
    if isinstance(source, Simulated):
        number = int(rng.integers(1 << 30))
        states, next_states = _asked(source, action, first, number)
        return (states + period, next_states), _asked(source, action, first + period, number + 1)
    states, next_states = source.data.of_action(action)
    if len(states) < 2 * _ROWS:
        return None
    near, near_next = _nearest(states, next_states, first, high - low)
    return (near + period, near_next), _nearest(states, next_states, first + period, high - low)


def _asked(source: Simulated, action: int, state: Array, number: int) -> Group:
    """Rows of one state, asked of a simulator with a generator of its own."""
    states = np.tile(state, (_ASKED_ROWS, 1))
    return states, answers(source.data, states, action, number + 10_000)


def _nearest(states: Array, next_states: Array, centre: Array, width: Array) -> Group:
    """The rows whose states are nearest to a state."""
    rows = np.argpartition(np.abs((states - centre) / width).max(axis=1), _ROWS)[:_ROWS]
    return states[rows], next_states[rows]


# Columns and noise, by regressions ------------------------------------------------------------------------------------


def of_fit(
    parts: Sequence[Part], tail: TailLike, data: Sequence[Piece], *, actions: Sequence[int], sampling: Sampling
) -> str:
    """What rows say against a tail, or the noise behind it: tests for lack of fit, for every kind of tail and columns.

    A tail τ says that some combination p of the columns is within τ of P_a f, for every |f| ≤ 1. Weights w that depend
    on the states alone, and for which Σ w_r φ(s_r) = 0, remove p: |Σ w_r f(s'_r)| ≤ τ Σ|w_r| + noise, and by
    Hoeffding's inequality the noise is at most (2 Σw_r² log(2/η))^½ but for probability η.

    Noise that is declared has a largest probability q of falling into any interval of a given length. Intervals around
    predictions from earlier rows must not hold next states more often, whatever the drift.

    ``parts`` are the components of the state, with their columns and τ. The data are the rows, or the first of them,
    those of an action in order, and ``actions`` those that were observed; ``sampling`` is how rows depend on others.
    """
    mistaken = MISTAKEN / 2  # of either test
    for part in parts:
        if part.tail is None or part.columns.size > _MOST_COLUMNS:
            continue
        columns, d = part.columns, part.columns.dimension
        comparisons = len(parts) * len(actions) * _MORE * d * (_DEGREES + len(_PLACES))
        views = (piece if part.coordinates is None else piece.view(part.coordinates) for piece in data)
        held = list(on_host(views, columns.domain, _HELD))
        noises = tail.least_noise(d, part.coordinates) if isinstance(tail, Tail) else []
        level = log(len(parts) * len(actions) * max(len(noises), 1) * len(_HALVES) * len(_RATIOS) / mistaken)
        for action in actions:
            states, ends = _rows(held, action, d)
            for axis, noise in enumerate(noises):
                found = excess(columns, states, ends[:, axis], noise, columns.domain[axis], level)
                if found is not None:
                    where = f" in coordinate {axis}" if d > 1 else ""
                    return (
                        f"the data contradict the declared noise: if it is {noise.words}, at most {found.allowed:.0%} "
                        f"of the next states under action {action}{where} can be within {found.half:.2g} of a "
                        f"prediction from earlier rows, and {found.seen:.0%} of {found.n:,} are; their distance from "
                        f"it has standard deviation {found.std:.2g}: declare less noise"
                    )
            if sampling != "independent":
                continue  # given all states nothing is random
            least = distance_from(columns, states, ends, log(2 * comparisons / mistaken))
            if least > part.tail + _SLACK:
                name = f" of {part.name}" if part.name else ""
                return (
                    f"the data contradict the declared tail{name}: under action {action} the mean of a function f of "
                    f"the next state, |f| ≤ 1, differs from all combinations of {columns.size} {columns.kind} "
                    f"functions of the state by at least {least:.2g} somewhere, and τ = {part.tail:.2g} is declared: "
                    "use more columns, or declare a larger tail"
                )
    return ""


def distance_from(columns: Basis, states: Array, ends: Array, level: float) -> float:
    """A lower bound on the distance of some P f, |f| ≤ 1, from all combinations of the columns; 0 if none is seen.

    States and ``ends``, their next states ``[n, d]``, are of the rows of one action; ``level`` is log(2/η) of each
    comparison.
    """
    if len(states) <= 2 * columns.size:
        return 0.0
    x, more = columns.values(states), columns.resized(columns.size + _MORE).values(states)[:, -_MORE:]
    gram, weights = x.T @ x, more
    for _ in range(2):  # once more for what rounding left
        weights = weights - x @ np.linalg.lstsq(gram, x.T @ weights, rcond=1e-12)[0]
    left = columns.size * np.abs(x.T @ weights).max(axis=0) / np.maximum(np.abs(weights).sum(axis=0), 1e-300)
    weights = weights[:, ((weights**2).mean(axis=0) > 1e-6) & (left < _SLACK)]
    low, high = columns.domain.ends
    places = np.clip((2 * ends - low - high) / (high - low), -1.0, 1.0)
    waves = [np.cos(degree * np.arccos(places)) for degree in range(1, _DEGREES + 1)]
    functions = np.hstack([*waves, *(np.where(places > place, 1.0, -1.0) for place in _PLACES)])
    seen = np.abs(weights.T @ functions) - np.sqrt(2 * level * (weights**2).sum(axis=0))[:, None]
    return float((seen / np.abs(weights).sum(axis=0)[:, None]).max(initial=0.0))


class Excess(NamedTuple):
    """Next states that are nearer to predictions than noise allows."""

    half: float  # half the length of the intervals around predictions
    # allowed, seen: the share of next states within them, by the declaration at most and in the data
    allowed: float
    seen: float
    n: int  # the rows compared
    std: float  # the standard deviation of next states around predictions


def excess(
    columns: Basis, states: Array, ends: Array, noise: LeastNoise, side: tuple[float, float], level: float
) -> Excess | None:
    """A contradiction of declared noise in one coordinate of the next states of an action; None if there is none.

    Rows from 2^j to 2^(j + 1) are predicted by a regression on the columns over those before: rows may depend on
    earlier ones. With λ fixed, Σ(λ·hit − log(1 + q(e^λ − 1))) exceeds the level with probability e^−level at most.

    States ``[n, d]`` are of the rows of one action, in order, ``ends`` a coordinate of their next states ``[n]``; the
    noise is declared for this coordinate, whose ends are ``side``. ``level`` is log(1/η) of each length of intervals.
    """
    n, first = len(ends), 1 << (4 * columns.size).bit_length()
    if n < 2 * first:
        return None
    x, centres = columns.values(states), np.full(n, np.nan)
    gram, moment, start = x[:first].T @ x[:first], x[:first].T @ ends[:first], first
    while start < n:
        block = slice(start, 2 * start)
        centres[block] = x[block] @ np.linalg.lstsq(gram, moment, rcond=1e-10)[0]
        gram, moment, start = gram + x[block].T @ x[block], moment + x[block].T @ ends[block], 2 * start
    low, high = side
    inside = (ends > low) & (ends < high)
    distinct = np.unique(ends[inside])
    step = float(np.diff(distinct).min(initial=np.inf)) if len(distinct) > 1 else np.inf  # of rounded data
    apart, gaps = np.abs(ends - centres), 2 * np.minimum(centres - low, high - centres)
    for half in (share * noise.scale for share in _HALVES):
        most = float(noise.within_interval(np.zeros(1), 2 * half)[0])
        asked = np.flatnonzero(gaps > 2.02 * half)
        asked = asked[_chances(noise, gaps[asked], 2 * half) < _MOST_CHANCE]
        chances, hits = _chances(noise, gaps[asked], 2 * half + step), (inside & (apart <= half))[asked]
        for ratio in _RATIOS:
            more = float(noise.within_interval(np.zeros(1), 2 * half / ratio)[0])
            rate = min(
                log(more * (1 - most) / (most * max(1 - more, 1e-9))), _MOST_RATE
            )  # fixed, as are the rows asked
            if rate * hits.sum() - np.log1p(chances * np.expm1(rate)).sum() > level + _SLACK * n:
                spread = float(np.sqrt(np.mean((ends - centres)[asked] ** 2)))
                return Excess(half, float(chances.mean()), float(hits.mean()), len(hits), spread)
    return None


def _chances(noise: LeastNoise, gaps: Array, length: float) -> Array:
    """The largest probability of intervals and of their copies, by mirrors and turns, that are gaps apart ``[n]``.

    The drift is at some distance from the nearest of them, at most half a gap; the distances are taken part by part.
    """
    largest = np.zeros(len(gaps))
    for part in range(_PARTS):
        near, far = (gaps / 2 * edge / _PARTS for edge in (part, part + 1))
        right, left = (noise.beyond(np.maximum(gaps - length / 2 + t, 0.0)) for t in (-far, near))
        largest = np.maximum(largest, noise.within_interval(near, length) + right + left)
    return np.minimum(largest, 1.0)


def _rows(held: Iterable[Piece], action: int, dimension: int) -> tuple[Array, Array]:
    """States and next states of an action ``[n, d]``."""
    own = [(piece.states, piece.next_states[piece.actions.index(action)]) for piece in held if action in piece.actions]
    states, ends = zip(*own, strict=True) if own else ((np.zeros((0, dimension)),),) * 2
    return np.concatenate(states), np.concatenate(ends)


# Known noise with affine drifts ---------------------------------------------------------------------------------------


def of_drift(
    drift: Drift,
    states: Array,
    actions: NDArray[np.intp],
    next_states: Array,
    rng: np.random.Generator,
    *,
    dependent: bool = False,
) -> str:
    """What rows say against affine drifts and Gaussian noise of this standard deviation.

    States and next states ``[n]`` are in units in which the interval is [−1, 1]. Random numbers spread rows at the ends
    over the probability that they have there. ``dependent``: how many rows a group has may depend on where earlier rows
    led.
    """
    from scipy.special import ndtr

    groups = [
        (action, f"of all states under action {action}" if quarter < 0 else f"from states in quarter {quarter + 1} of "
         f"the interval under action {action}", quarter)
        for action in range(len(drift.coefficients)) for quarter in range(-1, _QUARTERS)
    ]  # fmt: skip
    quarters = np.minimum(((states + 1) / 2 * _QUARTERS).astype(int), _QUARTERS - 1)
    spread, comparisons = drift.spread(states), len(groups) * (len(states) if dependent else 1)
    for action, where, quarter in groups:
        rows = (actions == action) & ((quarters == quarter) | (quarter < 0))
        n = int(rows.sum())
        if n < _FEWEST:
            continue
        theta, after = drift.coefficients[action], next_states[rows]
        place = ndtr((np.clip(after, -drift.wall, drift.wall) - theta[0] - theta[1] * states[rows]) / drift.std)
        chance = rng.uniform(size=n)
        place = np.where(after >= 1, place + chance * (1 - place), np.where(after <= -1, chance * place, place))
        if quarter < 0:
            line, shifts = theta[0] + theta[1] * states[rows], spread[action, rows] / drift.std
            fault = _spread_fault(place, shifts, comparisons) or _ends_fault(after, line, shifts, drift, comparisons)
            if fault:
                return f"{_of_known_noise()}: under action {action}, {fault}"
        ordered, steps = np.sort(place), np.arange(n + 1) / n
        distance = float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
        allowed = sqrt(log(4 * comparisons / MISTAKEN) / (2 * n)) + float(
            spread[action, rows].max()
        ) / drift.std / sqrt(2 * pi)
        if distance > allowed:
            found, possible = distinct_digits(distance, allowed)
            return (
                f"{_of_known_noise()}: the noise of {n:,} transitions {where} has a distribution function that differs "
                f"from the declared one by {found}, where {possible} is possible"
            )
    return ""


def _of_known_noise() -> str:
    instead = by_door("use certirl.certify", "write --tail gaussian:STD:SLOPE in its place")
    return (
        "the data contradict s' = clip(m_a(s) + ξ) with affine drifts m_a and Gaussian noise ξ of this standard "
        f"deviation (declare another {setting('std')}, or {instead})"
    )


def _spread_fault(place: Array, shifts: Array, comparisons: int) -> str:
    """Whether Σz² is no sum of squares of normal numbers, each of which may be off by its shift."""
    from scipy.special import ndtri

    n, level = len(place), log(4 * comparisons / MISTAKEN)
    length = float(np.linalg.norm(ndtri(np.clip(place, 1e-300, 1 - 1e-16))))
    most = sqrt(n + 2 * sqrt(n * level) + 2 * level) + float(np.linalg.norm(shifts))
    least = sqrt(max(n - 2 * sqrt(n * level), 0.0)) - float(np.linalg.norm(shifts))
    if least <= length <= most:
        return ""
    size, low, high = distinct_digits(*(number / sqrt(n) for number in (length, least, most)))
    return f"the noise of {n:,} transitions is {size} times as large as declared, where {low} to {high} is possible"


def _ends_fault(after: Array, line: Array, shifts: Array, drift: Drift, comparisons: int) -> str:
    """Whether fewer or more rows are at an end than can be, by Chernoff's inequality."""
    from scipy.special import ndtr

    level = log(8 * comparisons / MISTAKEN)
    for side, name in ((-1, "lower"), (1, "upper")):
        away = (drift.wall - side * line) / drift.std
        least, most = (float(ndtr(-away + sign * shifts).sum()) for sign in (-1, 1))
        count = int((side * after >= 1).sum())
        mean = max(min(max(count, least), most), 1e-300)  # nearest to what was counted
        if mean - count + (count * log(count / mean) if count else 0.0) > level:
            return (
                f"{count:,} of {len(after):,} next states are at the {name} end of the interval, where about "
                f"{mean:,.0f} should be"
            )
    return ""


# Images of cells, without noise --------------------------------------------------------------------------------------


def next_states(simulator: Any, states: Array, action: int, seed: int = 0) -> Array:
    """Those of a simulator without noise ``[n, d]``."""
    rng = np.random.default_rng(seed)
    return np.asarray(ask(simulator, states, action, rng, as_domain(simulator.domain)), dtype=float)


def noise_in_words() -> str:
    """What to declare in place of no noise."""
    return by_door(
        "with noise, pass a tail to certirl.solve, say tail=certirl.dynamics.GaussianNoise(…)",
        "with noise, use certirl solve with --delta and --tail gaussian:STD:SLOPE, say",
    )


def numbers_in_words(values: Array) -> str:
    """Some numbers in words, "0.3" or "(0.3, 0.1)"."""
    return place_of(values).removeprefix("s = ")


def _drawn(grid: Cells, cells: NDArray[np.intp], generator: Any, count: int) -> tuple[NDArray[np.intp], Array, Array]:
    """Cells among these, and states in them: rows, distances from the middles, states; half of them near corners."""
    rows = generator.integers(len(cells), size=count)
    shares = generator.random((count, grid.dimension))
    shares[: count // 2] = np.round(shares[: count // 2])  # where the deviation is largest
    apart = (shares - 0.5) * (1 - 2e-9) * grid.sides
    places = np.stack(np.unravel_index(cells[rows], grid.shape), axis=1) + 0.5
    return rows, apart, grid.domain.low + places * grid.sides + apart


def of_terminal_cells(simulator: Any, grid: Cells, cells: NDArray[np.intp], generator: Any) -> str:
    """What states drawn in terminal cells say against the terminal boxes."""
    terminal = terminal_of(simulator)
    if terminal is None or not len(cells):
        return ""
    _, _, states = _drawn(grid, cells, generator, PROBES)
    wrong = ~np.asarray(terminal(states))
    if not wrong.any():
        return ""
    return (
        f"terminal_boxes are contradicted: {place_of(states[int(wrong.argmax())])} is in one of them and not terminal"
    )


def of_images(
    simulator: Any,
    grid: Cells,
    live: NDArray[np.intp],
    images: Sequence[Image],
    action: int,
    generator: Any,
    probes: int,
    constants: Array | None,
) -> str:
    """What next states of states drawn in live cells say against the images of these.

    The images together hold all next states of the cells ``live`` under the action; ``probes`` states are drawn.
    ``constants`` are declared Lipschitz constants ``[A, d, d]``; None for built-in derivatives.
    """
    terminal, ends = terminal_of(simulator), np.array(grid.domain)
    rows, apart, states = _drawn(grid, live, generator, probes)
    if terminal is not None and terminal(states).any():
        return (
            f"terminal_boxes are contradicted: {place_of(states[int(terminal(states).argmax())])} is outside of them "
            "and terminal"
        )
    after, width = next_states(simulator, states, action), ends[:, 1] - ends[:, 0]
    again = next_states(simulator, states[::-1], action, seed=1)[::-1]
    different = np.abs(after - again)
    for axis in grid.periodic:
        different[:, axis] = np.minimum(different[:, axis], width[axis] - different[:, axis])
    if (different > INFLATION * grid.sides).any():
        row = int((different > INFLATION * grid.sides).any(axis=1).argmax())
        return (
            f"the simulator is not a function of state and action: action {action} led from {place_of(states[row])} to "
            f"{numbers_in_words(after[row])}, and when asked again, in another order, to a state that differs by "
            f"{numbers_in_words(different[row])}; {noise_in_words()}"
        )
    allowed = np.zeros(probes, dtype=bool)
    for image in (each.at(rows) for each in images):
        middle = image.after + np.einsum("nij,nj->ni", image.slopes, apart)
        reach = np.einsum("nij,nj->ni", image.spreads, np.abs(apart)) + INFLATION * grid.sides
        for axis in grid.periodic:
            middle[:, axis] += np.round((after[:, axis] - middle[:, axis]) / width[axis]) * width[axis]
        low, high = middle - reach, middle + reach
        for axis in set(range(grid.dimension)) - set(grid.periodic):
            low[:, axis], high[:, axis] = np.clip(low[:, axis], *ends[axis]), np.clip(high[:, axis], *ends[axis])
        allowed |= ((after >= low) & (after <= high)).all(axis=1)
    if allowed.all():
        return ""
    row = int((~allowed).argmax())
    found = f"action {action} leads from {place_of(states[row])} to {numbers_in_words(after[row])}"
    if constants is None:
        return f"the built-in derivatives are contradicted: {found}; declare {setting('lipschitz')} for this simulator"
    small = _too_small(simulator, grid, states - apart, apart, constants)
    return (
        f"the declared Lipschitz constants are contradicted: "
        f"{small or f'{found}, farther from the next state of the middle of its cell than they allow'}; "
        f"declare bounds on the derivatives at all states by {setting('lipschitz')}"
    )


def _too_small(simulator: Any, grid: Cells, middles: Array, apart: Array, bounds: Array) -> str:
    """The declared constants ``[A, d, d]`` that states show to be too small, and how large they must be at least.

    From the middle of a cell to a state one coordinate is changed after the other. If the next states are farther
    apart than the constants allow, then by one of these changes, too.
    """
    least, width = np.zeros_like(bounds), grid.domain.width
    for action in range(len(bounds)):
        states = middles.copy()
        before = next_states(simulator, states, action)
        for axis in range(grid.dimension):
            states[:, axis] += apart[:, axis]
            after = next_states(simulator, states, action)
            change = np.abs(after - before)
            for other in grid.periodic:
                change[:, other] = np.minimum(change[:, other], width[other] - change[:, other])
            steps, before = np.abs(apart[:, axis]), after
            far = steps > 1e-3 * grid.sides[axis]  # not rounding
            least[action, :, axis] = (change[far] / steps[far, None]).max(axis=0, initial=0.0)
    shared = bool((bounds == bounds[0]).all())
    least, bounds = (least.max(axis=0)[None], bounds[:1]) if shared else (least, bounds)
    small = np.argwhere(least > bounds * (1 + 1e-6))
    words = []
    for entry in small:
        name = "L" + "".join(f"[{number}]" for number in (entry[1:] if shared else entry))
        needed = -rounded_down(-least[tuple(entry)] * (1 - 1e-9))
        words.append(f"{name} must be at least {needed:.3g}, not {bounds[tuple(entry)]:.3g}")
    return ", ".join(words)


# Densities ------------------------------------------------------------------------------------------------------------


def of_density(tail: DensityTail) -> str:
    """What a density says against declared bounds, which are means of its differences.

    Integrals are those of interpolants, from below: the mean over the corners of each cell.
    """
    d, count = len(tail.domain), tail._count
    low, high = tail.domain.ends
    places = low + (high - low) * (np.arange(_LINES)[:, None] + 0.5) / _LINES
    y = mesh([np.linspace(*ends, count) for ends in tail.next_domain])
    steps = np.array([(last - first) / (count - 1) for first, last in tail.next_domain])
    errors = steps**2 * np.array(tail.curvature) / 8
    linear = float(np.prod(1 + errors)) - 1
    for action in range(tail.n_actions):
        weights = np.ones(1)
        for step in steps:
            weights = np.multiply.outer(weights, step * np.r_[0.5, np.ones(count - 2), 0.5]).ravel()
        slack = min(linear, 0.1) + 1e-6  # the declared bounds are still to be tested
        table = np.concatenate(list(tail._kernels(places, action, y, weights, slack))) / weights
        table = table.reshape(-1, *[count] * d)
        for axis in range(d):
            others = [other for other in range(d) if other != axis]
            bent = np.abs(_in_cells(np.diff(table, 2, axis=axis + 1), others)).sum(axis=tuple(range(1, d + 1)))
            found = float(bent.max()) / steps[axis] * float(np.prod(steps[others]))
            allowed = tail.curvature[axis] * float(np.prod(1 + errors[others]))
            if found > 1.001 * allowed + _ROUNDING * count**d / steps[axis] * float(np.prod(steps[others])):
                return (
                    f"curvature {tail.curvature[axis]:g} is contradicted by the density of action {action}: "
                    f"∫|∂²p_a/∂s'²| ds' in coordinate {axis} of the next state is at least {found:.3g} somewhere; "
                    "a kink counts with its change of slope, and of a density that jumps leave smooth and "
                    "curvature out"
                )
            order, bound = tail.smooth[axis].order, tail.smooth[axis].bound
            step = (high - low)[axis] / (2 * order)
            line = np.tile((low + high) / 2, (2 * order + 1, 1))
            line[:, axis] = low[axis] + step * np.arange(2 * order + 1)
            moved = np.diff(tail._values(y, line, action), order, axis=0).reshape(-1, *[count] * d)
            moved = np.abs(_in_cells(moved, range(d))).sum(axis=tuple(range(1, d + 1))) * float(np.prod(steps))
            found = (float(moved.max()) - 2**order * linear) / step**order
            if found > 1.001 * bound:
                return (
                    f"{tail.smooth[axis]} is contradicted by the density of action {action}: in coordinate {axis} "
                    f"it is at least {found:.3g} somewhere"
                )
    return ""


def _in_cells(table: Array, axes: Sequence[int]) -> Array:
    """The means over the two ends of each step along axes of next states, which follow the first one."""
    for axis in axes:
        ends = np.moveaxis(table, axis + 1, 0)
        table = np.moveaxis((ends[1:] + ends[:-1]) / 2, 0, axis + 1)
    return table
