"""Do data contradict a declared tail? A test for lack of fit, for every kind of tail and of columns.

A tail τ says that some combination p of the columns is within τ of P_a f, for every |f| ≤ 1. Weights w that depend on
the states alone, and for which Σ w_r φ(s_r) = 0, remove p: |Σ w_r f(s'_r)| ≤ τ Σ|w_r| + noise, and by Hoeffding's
inequality the noise is at most (2 Σw_r² log(2/η))^½ but for probability η.

Noise that is declared has a largest probability q of falling into any interval of a given length. Intervals around
predictions from earlier rows must not hold next states more often, whatever the drift. docs/notes/certificate.md,
section 19.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from typing import NamedTuple

import numpy as np

from certirl.data.transitions import Piece
from certirl.functions.bases import Basis
from certirl.ground.domain import Array
from certirl.kernels.tensors import on_host
from certirl.proof.case import Case
from certirl.proof.tails import LeastNoise, Tail

_MISTAKEN = 0.5e-6  # the probability that a true declaration is refused by either test
_MORE = 6  # functions beyond the columns, from which the weights are made
_MOST_COLUMNS = 150
_DEGREES, _PLACES = 4, (-0.5, 0.0, 0.5)  # of the functions of each coordinate of the next state
_ROWS = 65_536  # of a piece that are held at once
_SLACK = 1e-7  # for rounding
_HALVES = (0.5, 0.8, 1.2)  # half the lengths of intervals, in standard deviations of declared noise
_RATIO, _MOST_RATE = 0.7, 3.0  # of true and declared noise for which λ is chosen, and the largest λ
_MOST_CHANCE = 0.95  # of an interval that is compared
_PARTS = 8  # of the distances of the drift from an interval


def check_fit(case: Case, data: Sequence[Piece]) -> None:
    """Refuse a declared tail, or noise behind it, that the rows contradict.

    Args:
        case: what is to be proved.
        data: the rows, or the first of them; those of an action in order.
    """
    n_actions = case.policy.n_actions
    for part in case.parts:
        if part.tail is None or part.columns.size > _MOST_COLUMNS:
            continue
        columns, d = part.columns, part.columns.dimension
        comparisons = len(case.parts) * n_actions * _MORE * d * (_DEGREES + len(_PLACES))
        views = (piece if part.coordinates is None else piece.view(part.coordinates) for piece in data)
        held = list(on_host(views, columns.domain, _ROWS))
        noises = case.tail.least_noise(d, part.coordinates) if isinstance(case.tail, Tail) else []
        level = log(len(case.parts) * n_actions * max(len(noises), 1) * len(_HALVES) / _MISTAKEN)
        for action in range(n_actions):
            states, ends = _rows(held, action, d)
            for axis, noise in enumerate(noises):
                found = excess(columns, states, ends[:, axis], noise, columns.domain[axis], level)
                if found is not None:
                    where = f" in coordinate {axis}" if d > 1 else ""
                    raise ValueError(
                        f"the data contradict the declared noise: if it is {noise.words}, at most {found.allowed:.0%} "
                        f"of the next states under action {action}{where} can be within {found.half:.2g} of a "
                        f"prediction from earlier rows, and {found.seen:.0%} of {found.n:,} are; their distance from "
                        f"it has standard deviation {found.std:.2g}: declare less noise"
                    )
            if case.sampling != "independent":
                continue  # given all states nothing is random
            least = distance_from(part.columns, states, ends, log(2 * comparisons / _MISTAKEN))
            if least > part.tail + _SLACK:
                name = f" of {part.name}" if part.name else ""
                raise ValueError(
                    f"the data contradict the declared tail{name}: under action {action} the mean of a function f of "
                    f"the next state, |f| ≤ 1, differs from all combinations of {part.columns.size} "
                    f"{part.columns.kind} functions of the state by at least {least:.2g} somewhere, and "
                    f"τ = {part.tail:.2g} is declared: use more columns, or declare a larger tail"
                )


def distance_from(columns: Basis, states: Array, ends: Array, level: float) -> float:
    """A lower bound on the distance of some P f, |f| ≤ 1, from all combinations of the columns; 0 if none is seen.

    Args:
        columns: the functions of the state.
        states: of the rows of one action ``[n, d]``.
        ends: their next states ``[n, d]``.
        level: log(2/η) of each comparison.
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
    """Next states that are nearer to predictions than noise allows.

    Attributes:
        half: half the length of the intervals around predictions.
        allowed, seen: the share of next states within them, by the declaration at most and in the data.
        n: the rows compared.
        std: the standard deviation of next states around predictions.
    """

    half: float
    allowed: float
    seen: float
    n: int
    std: float


def excess(
    columns: Basis, states: Array, ends: Array, noise: LeastNoise, side: tuple[float, float], level: float
) -> Excess | None:
    """A contradiction of declared noise in one coordinate of the next states of an action; None if there is none.

    Rows from 2^j to 2^(j + 1) are predicted by a regression on the columns over those before: rows may depend on
    earlier ones. With λ fixed, Σ(λ·hit − log(1 + q(e^λ − 1))) exceeds the level with probability e^−level at most.

    Args:
        columns: the functions of the state.
        states: of the rows of one action, in order ``[n, d]``.
        ends: a coordinate of their next states ``[n]``.
        noise: declared for this coordinate.
        side: the ends of the coordinate.
        level: log(1/η) of each length of intervals.
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
        more, most = (float(noise.within_interval(np.zeros(1), length)[0]) for length in (2 * half / _RATIO, 2 * half))
        rate = min(log(more * (1 - most) / (most * max(1 - more, 1e-9))), _MOST_RATE)  # fixed, as are the rows asked
        asked = np.flatnonzero(gaps > 2.02 * half)
        asked = asked[_chances(noise, gaps[asked], 2 * half) < _MOST_CHANCE]
        chances, hits = _chances(noise, gaps[asked], 2 * half + step), (inside & (apart <= half))[asked]
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
