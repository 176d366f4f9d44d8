"""Boxes of terminal states, learned from states that are marked as such.

A log marks the next states in which its episodes were terminated; no function says which other states are terminal.
Mostly it is a coordinate beyond a threshold: `learn_terminal_boxes` finds such boxes by greedy splits along the
coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.functions.ends import in_words, inside
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array
from certirl.ground.doors import as_count, as_number
from certirl.ground.records import Record, internal

FEWEST = 5  # states on either side of a split
FOLDS = 5  # of the states, held out in turn
ENOUGH = 200  # terminal states held out: further folds would tell little more
DEEPEST = 10  # splits one below the other
RELIABLE = 0.05  # the largest share of terminal states outside the boxes, and of other states inside


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class TerminalBoxes(Record):
    """Boxes of terminal states: a function of states ``[n, d]`` to truth values ``[n]``."""

    # low and high ends ``[b, 2, d]``, infinite where a coordinate does not matter
    boxes: Annotated[Array, Shape("b 2 d", infinite=True)]
    missed: float  # the share of held-out terminal states that lie in no box
    mistaken: float  # the share of other held-out states that lie in one
    n: int  # states that it was learned from

    def as_read(self, file: str) -> TerminalBoxes:
        """Check that the shares are shares and the count is one."""
        for share in (self.missed, self.mistaken):
            as_number(share, "a share of terminal states", least=0, most=1)
        as_count(self.n, "the states that terminal ones were learned from")
        return self

    @property
    def reliable(self) -> bool:
        """Both kinds of errors are rare."""
        return max(self.missed, self.mistaken) <= RELIABLE

    def __call__(self, states: ArrayLike) -> NDArray[np.bool_]:
        """Which states lie in a box ``[n]``."""
        return inside(self.boxes, states)

    def __str__(self) -> str:
        return in_words(self.boxes)


def learn_terminal_boxes(states: Array, terminal: NDArray[np.bool_]) -> TerminalBoxes:
    """Find boxes that hold the terminal of the states ``[n, d]`` and few others, by splits along coordinates."""
    fold, predicted, truth = np.arange(len(states)) % FOLDS, np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
    for number in range(FOLDS):  # a log may have few terminal states: then each is held out once
        held_out = fold == number
        trial = TerminalBoxes(boxes_of(states[~held_out], terminal[~held_out]), 0.0, 0.0, 0)
        predicted = np.concatenate([predicted, trial(states[held_out])])
        truth = np.concatenate([truth, terminal[held_out]])
        if truth.sum() >= ENOUGH:
            break
    missed, mistaken = (float(e.mean()) if e.size else 0.0 for e in (~predicted[truth], predicted[~truth]))
    return TerminalBoxes(boxes_of(states, terminal), missed, mistaken, len(states))


def boxes_of(states: Array, marked: NDArray[np.bool_], *, deepest: int = DEEPEST, fewest: int = FEWEST) -> Array:
    """Boxes in which most states ``[n, d]`` are marked ``[b, 2, d]``, by splits where both sides are purest (Gini).

    Splits are at most ``deepest`` one below the other, with at least the ``fewest`` states on either side.
    """
    d = states.shape[1]

    def split(rows: NDArray[np.bool_], box: Array, depth: int) -> list[Array]:
        share = marked[rows].mean() if rows.any() else 0.0
        cut = _best_cut(states[rows], marked[rows], fewest) if 0 < share < 1 and depth else None
        if cut is None:
            return [box] if share > 0.5 else []
        (axis, place), boxes, whole = cut, list[Array](), 0
        for side, end in ((states[:, axis] <= place, 1), (states[:, axis] > place, 0)):
            smaller = box.copy()
            smaller[end, axis] = place
            found = split(rows & side, smaller, depth - 1)
            boxes, whole = boxes + found, whole + (len(found) == 1 and found[0] is smaller)
        return [box] if whole == 2 else boxes  # both sides belong to it as a whole

    boxes = split(np.ones(len(states), dtype=bool), np.stack([np.full(d, -np.inf), np.full(d, np.inf)]), deepest)
    return np.array(boxes).reshape(-1, 2, d)


def _best_cut(states: Array, terminal: NDArray[np.bool_], fewest: int) -> tuple[int, float] | None:
    """Coordinate and place of the cut with the largest gain; None if none gains."""
    n, total, best = len(states), int(terminal.sum()), (0.0, 0, 0.0)
    left = np.arange(1, n)
    right = n - left
    for axis in range(states.shape[1] if n > 1 else 0):
        order = np.argsort(states[:, axis], kind="stable")
        along, hits = states[order, axis], np.cumsum(terminal[order])[:-1]
        impurity = hits * (left - hits) / left + (total - hits) * (right - total + hits) / right
        gain = total * (n - total) / n - impurity
        gain[(along[1:] == along[:-1]) | (left < fewest) | (right < fewest)] = 0.0
        at = int(gain.argmax())
        if gain[at] > best[0] * (1 + 1e-9):
            best = (float(gain[at]), axis, float((along[at] + along[at + 1]) / 2))
    return (best[1], best[2]) if best[0] > 1e-9 * n else None
