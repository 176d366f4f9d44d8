"""Which states end an episode, learned from states that did and states that did not: a few boxes, or a warning.

A log marks the states in which its episodes ended and no function says which others would have. Mostly it is a
coordinate beyond a threshold; greedy splits along the coordinates find such boxes. They are numbers, so that a file can
keep them and a person can read them.
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
TRUSTED = 0.05  # of the ended states that boxes may miss, or of the others that they may hold
MOST_WORDS = 6  # boxes that are read out


@archive.record
@dataclass(frozen=True, eq=False)
class Ends:
    """Boxes of terminal states; called with states ``[n, d]`` it says which lie in one of them ``[n]``.

    Attributes:
        boxes: low and high ends ``[b, 2, d]``, infinite where a coordinate does not matter.
        missed: the share of held-out states that ended and lie in no box.
        mistaken: the share of held-out states that went on and lie in one.
        n: states that it was learned from.
    """

    boxes: Annotated[Array, Shape("b 2 d", infinite=True)]
    missed: float
    mistaken: float
    n: int

    def __post_init__(self) -> None:
        freeze(self)

    def as_read(self, file: str) -> Ends:
        """Refuse shares and counts that are none."""
        for share in (self.missed, self.mistaken):
            as_number(share, "a share of terminal states", least=0, most=1)
        as_count(self.n, "the states that terminal ones were learned from")
        return self

    @property
    def trusted(self) -> bool:
        """Both kinds of errors are rare."""
        return max(self.missed, self.mistaken) <= TRUSTED

    def __call__(self, states: ArrayLike) -> NDArray[np.bool_]:
        """Which states lie in a box ``[n]``."""
        rows = as_rows(states, self.boxes.shape[2])
        found = np.zeros(len(rows), dtype=bool)
        for low, high in self.boxes:
            found |= ((rows > low) & (rows <= high)).all(axis=1)
        return found

    def __str__(self) -> str:
        if not len(self.boxes):
            return "nowhere"
        told = [_words(low, high) for low, high in self.boxes[:MOST_WORDS]]
        more = [f"{len(self.boxes) - MOST_WORDS} boxes more"] if len(self.boxes) > MOST_WORDS else []
        return "; or ".join([*told, *more])


def _words(low: Array, high: Array) -> str:
    parts = []
    for axis, (start, end) in enumerate(zip(low, high, strict=True)):
        if np.isfinite(start) and np.isfinite(end):
            parts.append(f"{start:.4g} < s[{axis}] ≤ {end:.4g}")
        elif np.isfinite(start):
            parts.append(f"s[{axis}] > {start:.4g}")
        elif np.isfinite(end):
            parts.append(f"s[{axis}] ≤ {end:.4g}")
    return " and ".join(parts) or "everywhere"


def learn_ends(states: Array, ended: NDArray[np.bool_]) -> Ends:
    """Boxes that hold the states that ended and no others, as far as splits along the coordinates find them.

    Args:
        states: ``[n, d]``.
        ended: whether each of them is terminal ``[n]``.
    """
    held_out = np.arange(len(states)) % 5 == 0
    trial, truth = _boxes(states[~held_out], ended[~held_out]), ended[held_out]
    told = Ends(trial, 0.0, 0.0, 0)(states[held_out])
    missed, mistaken = (float(wrong.mean()) if wrong.size else 0.0 for wrong in (~told[truth], told[~truth]))
    return Ends(_boxes(states, ended), missed, mistaken, len(states))


def _boxes(states: Array, ended: NDArray[np.bool_]) -> Array:
    d = states.shape[1]
    found: list[Array] = []
    _split(states, ended, np.stack([np.full(d, -np.inf), np.full(d, np.inf)]), DEEPEST, found)
    return np.array(found).reshape(-1, 2, d)


def _split(states: Array, ended: NDArray[np.bool_], box: Array, left: int, found: list[Array]) -> None:
    """Cut where the two sides are purest (Gini), until they are pure or too few; keep those that ended."""
    share = ended.mean() if len(ended) else 0.0
    cut = _best_cut(states, ended) if 0 < share < 1 and left else None
    if cut is None:
        found += [box] if share > 0.5 else []
        return
    axis, place = cut
    below = states[:, axis] <= place
    for side, end in ((below, 1), (~below, 0)):
        part = box.copy()
        part[end, axis] = place
        _split(states[side], ended[side], part, left - 1, found)


def _best_cut(states: Array, ended: NDArray[np.bool_]) -> tuple[int, float] | None:
    n, total, best = len(states), int(ended.sum()), (0.0, 0, 0.0)
    for axis in range(states.shape[1]):
        order = np.argsort(states[:, axis], kind="stable")
        along, hits = states[order, axis], np.cumsum(ended[order])
        size = np.arange(1, n)
        mixed = hits[:-1] * (size - hits[:-1]) / size + (total - hits[:-1]) * (n - size - total + hits[:-1]) / (
            n - size
        )
        gain = total * (n - total) / n - mixed
        gain[(along[1:] == along[:-1]) | (size < FEWEST) | (n - size < FEWEST)] = 0.0
        at = int(gain.argmax()) if n > 1 else 0
        if n > 1 and gain[at] > best[0] * (1 + 1e-9):
            best = (float(gain[at]), axis, float((along[at] + along[at + 1]) / 2))
    return (best[1], best[2]) if best[0] > 1e-9 * n else None
