"""Boxes of terminal states, learned from states that are terminal and states that are not.

A log marks the next states in which its episodes were terminated; no function says which other states are terminal.
Mostly it is a coordinate beyond a threshold: greedy splits along the coordinates find such boxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, as_rows, freeze
from certirl.ground.doors import as_count, as_number

FEWEST = 5  # states on either side of a split
DEEPEST = 10  # splits one below the other
RELIABLE = 0.05  # the largest share of terminal states outside the boxes, and of other states inside
MOST_PRINTED = 6  # boxes


@archive.record
@dataclass(frozen=True, eq=False)
class TerminalBoxes:
    """Boxes of terminal states: a function of states ``[n, d]`` to truth values ``[n]``.

    Attributes:
        boxes: low and high ends ``[b, 2, d]``, infinite where a coordinate does not matter.
        missed: the share of held-out terminal states that lie in no box.
        mistaken: the share of other held-out states that lie in one.
        n: states that it was learned from.
    """

    boxes: Annotated[Array, Shape("b 2 d", infinite=True)]
    missed: float
    mistaken: float
    n: int

    def __post_init__(self) -> None:
        freeze(self)

    def as_read(self, file: str) -> TerminalBoxes:
        """Refuse shares and counts that are none."""
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
        rows = as_rows(states, self.boxes.shape[2])
        inside = np.zeros(len(rows), dtype=bool)
        for low, high in self.boxes:
            inside |= ((rows > low) & (rows <= high)).all(axis=1)
        return inside

    def __str__(self) -> str:
        if not len(self.boxes):
            return "nowhere"
        more = len(self.boxes) - MOST_PRINTED
        boxes = [_in_words(low, high) for low, high in self.boxes[:MOST_PRINTED]]
        return "; or ".join([*boxes, *([f"{more} boxes more"] if more > 0 else [])])


def _in_words(low: Array, high: Array) -> str:
    conditions = []
    for axis, (start, end) in enumerate(zip(low, high, strict=True)):
        if np.isfinite(start) and np.isfinite(end):
            conditions.append(f"{start:.4g} < s[{axis}] ≤ {end:.4g}")
        elif np.isfinite(start):
            conditions.append(f"s[{axis}] > {start:.4g}")
        elif np.isfinite(end):
            conditions.append(f"s[{axis}] ≤ {end:.4g}")
    return " and ".join(conditions) or "everywhere"


def learn_terminal_boxes(states: Array, terminal: NDArray[np.bool_]) -> TerminalBoxes:
    """Find boxes that hold the terminal states and few others, by splits along coordinates.

    Args:
        states: ``[n, d]``.
        terminal: which of them are terminal ``[n]``.
    """
    held_out = np.arange(len(states)) % 5 == 0
    trial = TerminalBoxes(_boxes(states[~held_out], terminal[~held_out]), 0.0, 0.0, 0)
    predicted, truth = trial(states[held_out]), terminal[held_out]
    missed, mistaken = (float(e.mean()) if e.size else 0.0 for e in (~predicted[truth], predicted[~truth]))
    return TerminalBoxes(_boxes(states, terminal), missed, mistaken, len(states))


def _boxes(states: Array, terminal: NDArray[np.bool_]) -> Array:
    """The boxes of terminal states, by splits where both sides are purest (Gini)."""
    d = states.shape[1]
    boxes: list[Array] = []

    def split(rows: NDArray[np.bool_], box: Array, depth: int) -> None:
        share = terminal[rows].mean() if rows.any() else 0.0
        cut = _best_cut(states[rows], terminal[rows]) if 0 < share < 1 and depth else None
        if cut is None:
            boxes.extend([box] if share > 0.5 else [])
            return
        axis, place = cut
        for side, end in ((states[:, axis] <= place, 1), (states[:, axis] > place, 0)):
            smaller = box.copy()
            smaller[end, axis] = place
            split(rows & side, smaller, depth - 1)

    split(np.ones(len(states), dtype=bool), np.stack([np.full(d, -np.inf), np.full(d, np.inf)]), DEEPEST)
    return np.array(boxes).reshape(-1, 2, d)


def _best_cut(states: Array, terminal: NDArray[np.bool_]) -> tuple[int, float] | None:
    """Coordinate and place of the cut with the largest gain; None if none gains."""
    n, total, best = len(states), int(terminal.sum()), (0.0, 0, 0.0)
    left = np.arange(1, n)
    right = n - left
    for axis in range(states.shape[1] if n > 1 else 0):
        order = np.argsort(states[:, axis], kind="stable")
        along, hits = states[order, axis], np.cumsum(terminal[order])[:-1]
        impurity = hits * (left - hits) / left + (total - hits) * (right - total + hits) / right
        gain = total * (n - total) / n - impurity
        gain[(along[1:] == along[:-1]) | (left < FEWEST) | (right < FEWEST)] = 0.0
        at = int(gain.argmax())
        if gain[at] > best[0] * (1 + 1e-9):
            best = (float(gain[at]), axis, float((along[at] + along[at + 1]) / 2))
    return (best[1], best[2]) if best[0] > 1e-9 * n else None
