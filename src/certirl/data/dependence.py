"""Signs that rows of a log are not independent: episodes, copies, steps of a walk.

A proof counts independent draws, and files lose what was known of them. docs/notes/attacks.md says what is noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array

if TYPE_CHECKING:
    from certirl.data.transitions import Transitions

INDEPENDENT = "a certificate needs transitions that are independent of each other"
_DECLARE = "write Transitions(…, independent=True) if each of them was drawn by itself"
_COINCIDENCE = 1e-6  # probabilities below this are not taken for chance
_FEWEST = 20  # different rows that must all be repeated to show copies
_NEARER = 30  # neighbouring states share a next state at most this many times as often as any two states


class Sign(NamedTuple):
    """A sign of dependence.

    Attributes:
        finding: what shows it.
        remedy: what to do.
        declaration: what to write in Python where the sign is wrong; empty where it cannot be.
    """

    finding: str
    remedy: str
    declaration: str = ""

    def __str__(self) -> str:
        return f"{INDEPENDENT}, and {self.finding}: {self.remedy}"


def dependence(log: Transitions) -> Sign | None:
    """The first sign that the rows of a log are not independent; None if there is none."""
    if log.episodes is not None and _has_repeats(log.episodes[log.episodes >= 0]):
        return Sign("the steps of an episode follow from each other", "keep one step of every episode")
    if log.independent is not None:
        return None if log.independent else Sign("these are declared not to be", "draw others")
    repeated = repeated_rows(log)
    if repeated:
        finding = f"{repeated:,} of {len(log):,} rows repeat the state, action and next state of another, as copies do"
        return Sign(finding, "keep one of each", _DECLARE)
    continued = continued_rows(log)
    if continued:
        finding = (
            f"{continued:,} of {len(log):,} rows start in the very state in which another ends, as steps of a walk do"
        )
        return Sign(finding, "keep single steps from far apart", _DECLARE)
    return None


def repeated_rows(log: Transitions) -> int:
    """The number of rows that repeat an earlier row, if they look like copies; else 0.

    Independent draws repeat a row only where states repeat (a grid) and next states do (points of positive probability,
    edges at which states are clipped, rounded data). Three signs tell copies from them:

    - more rows are repeated than would be if next states agreed after equal states no more than 30 times as often as
      after different ones; a single repeated row is too many where next states never agree after different states;
    - every row is repeated a multiple of the same number of times;
    - of the states tried more than once with an action, more lead to one and the same next state than of pairs of
      neighbouring states do.
    """
    keys = _keys(*log.states.T, log.actions)
    if not _has_repeats(keys):
        return 0
    order = np.argsort(keys, kind="stable")
    keys, actions, after = keys[order], log.actions[order], _keys(*log.next_states.T)[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))  # of groups of rows with one state and action
    _, distinct, counts = np.unique(_keys(keys, after), return_index=True, return_counts=True)
    repeated = len(log) - len(distinct)
    if not repeated:
        return 0
    sizes = np.diff(np.append(starts, len(log)))
    _, same_end = np.unique(_keys(actions, after)[distinct], return_inverse=True)
    # Of pairs of rows with one action and different states, the share with one next state; copies do not change it.
    agreeing_pairs = _pairs(np.bincount(same_end.reshape(-1), counts)) - _pairs(counts)
    rate = agreeing_pairs / max(_pairs(np.bincount(actions)) - _pairs(sizes), 1)
    expected = min(_NEARER * rate, 1.0) * (_pairs(sizes) - len(log) / 2)
    if _poisson_tail(repeated, expected) <= _COINCIDENCE:
        return repeated
    if len(counts) >= _FEWEST and int(np.gcd.reduce(counts)) > 1:
        return repeated
    several = sizes > 1
    one_end = np.minimum.reduceat(after, starts) == np.maximum.reduceat(after, starts)
    chance = _neighbours_agree(log.states[order[starts]], actions[starts], after[starts])
    # Where no state ever led to two next states, each repeated row is one more coincidence.
    tail = chance**repeated if one_end.all() else _binomial_tail(int((several & one_end).sum()), several.sum(), chance)
    return repeated if tail <= _COINCIDENCE else 0


def continued_rows(log: Transitions) -> int:
    """The number of rows that continue another row, if they look like a walk; else 0.

    A row continues another if it starts in the very state in which that one, and no other, ends. Such rows look like a
    walk if most rows are such, or if the row that follows comes later in the log much more often than earlier.
    """
    after, states = _keys(*log.next_states.T), _keys(*log.states.T)
    sorted_after, sorted_states = np.sort(after), np.sort(states)
    if not (sorted_after[np.searchsorted(sorted_after[:-1], sorted_states)] == sorted_states).any():
        return 0
    (ends, end_rows, end_counts), (starts, start_rows, start_counts) = (
        np.unique(keys, return_index=True, return_counts=True) for keys in (after, states)
    )
    ends, end_rows = ends[end_counts == 1], end_rows[end_counts == 1]
    starts, start_rows = starts[start_counts == 1], start_rows[start_counts == 1]
    _, first, second = np.intersect1d(ends, starts, assume_unique=True, return_indices=True)
    lag = start_rows[second] - end_rows[first]
    later, links = int((lag > 0).sum()), int((lag != 0).sum())
    return links if links > len(log) / 2 or _binomial_tail(later, links, 0.5) <= _COINCIDENCE else 0


def _keys(*columns: NDArray[Any]) -> NDArray[np.uint64]:
    """Hashes of the rows of these columns ``[n]``, different for different rows but for 2⁻⁶⁴."""
    keys = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        bits = (column + 0.0).view(np.uint64) if column.dtype.kind == "f" else column.astype(np.uint64)  # -0.0 is 0.0
        keys = (keys ^ bits) + np.uint64(0x9E3779B97F4A7C15)
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
    return keys


def _has_repeats(keys: NDArray[Any]) -> bool:
    """Whether some number occurs more than once."""
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


def _neighbours_agree(states: Array, actions: NDArray[np.intp], after: NDArray[np.uint64]) -> float:
    """The share of neighbouring states of one action that have one next state."""
    order = np.lexsort((*states.T[::-1], actions))
    actions, after = actions[order], after[order]
    agree = (after[1:] == after[:-1])[actions[1:] == actions[:-1]]
    return (int(agree.sum()) + 1) / (len(agree) + 1)


def _pairs(counts: NDArray[Any]) -> float:
    """The number of pairs within groups of m rows, each row with itself included: Σ m²/2."""
    return float((counts.astype(np.float64) ** 2).sum() / 2)


def _poisson_tail(count: int, mean: float) -> float:
    """The probability that a Poisson number with this mean is at least ``count``."""
    from scipy.special import gammainc

    return float(gammainc(count, mean))


def _binomial_tail(count: int, trials: int, chance: float) -> float:
    """The probability that at least ``count`` of ``trials`` independent trials succeed."""
    from scipy.special import betainc

    return 1.0 if count == 0 else float(betainc(count, trials - count + 1, chance))
