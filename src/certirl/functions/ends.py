"""What ends are worth: a number in some boxes of terminal states, and functions of V that know these boxes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.functions.bases import Basis, Family
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, as_rows
from certirl.ground.records import Record, internal

MOST_PRINTED = 6  # boxes


def in_words(boxes: Array) -> str:
    """Where boxes low < s ≤ high ``[b, 2, d]`` are, as text."""
    if not len(boxes):
        return "nowhere"
    more = len(boxes) - MOST_PRINTED
    words = [_conditions(low, high) for low, high in boxes[:MOST_PRINTED]]
    return "; or ".join([*words, *([f"{more} boxes more"] if more > 0 else [])])


def _conditions(low: Array, high: Array) -> str:
    conditions = []
    for axis, (start, end) in enumerate(zip(low, high, strict=True)):
        if np.isfinite(start) and np.isfinite(end):
            conditions.append(f"{start:.4g} < s[{axis}] ≤ {end:.4g}")
        elif np.isfinite(start):
            conditions.append(f"s[{axis}] > {start:.4g}")
        elif np.isfinite(end):
            conditions.append(f"s[{axis}] ≤ {end:.4g}")
    return " and ".join(conditions) or "everywhere"


def inside(boxes: Array, states: ArrayLike) -> NDArray[np.bool_]:
    """Which states lie in one of the boxes low < s ≤ high ``[b, 2, d]``: ``[n]``."""
    rows = as_rows(states, boxes.shape[2])
    found = np.zeros(len(rows), dtype=bool)
    for low, high in boxes:
        found |= ((rows > low) & (rows <= high)).all(axis=1)
    return found


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class Ends(Record):
    """A function of terminal states: one number in some boxes, 0 at all others."""

    # low < s ≤ high ``[b, 2, d]``, infinite where a coordinate does not matter
    boxes: Annotated[Array, Shape("b 2 d", infinite=True)]
    worth: float  # the number

    def __call__(self, states: ArrayLike) -> Array:
        """The number of each terminal state ``[n]``."""
        return np.where(inside(self.boxes, states), self.worth, 0.0)

    def __str__(self) -> str:
        return f"{self.worth:.4g} at terminal states with {in_words(self.boxes)}, 0 at all others"

    def within(self, boxes: Array) -> tuple[Array, Array]:
        """Boxes of all terminal states ``[c, 2, d]`` from given ones, and its number ``[c]``; the last counts."""
        low, high = np.maximum(boxes[:, None, 0], self.boxes[:, 0]), np.minimum(boxes[:, None, 1], self.boxes[:, 1])
        both = np.stack([low, high], axis=2)[(low < high).all(axis=2)]
        return np.concatenate([boxes, both]), np.append(np.zeros(len(boxes)), np.full(len(both), self.worth))


@dataclass(frozen=True, eq=False)
class EndBasis(Basis):
    """The functions of a basis at states that are not terminal, and one that is 1 at the terminal states of some boxes.

    Whether a state is terminal is for the caller to say: `values` are those of states that are not, `_at_ends` those of
    terminal ones.

    Attributes:
        size: the number of functions, one more than of the basis.
        interval: the domain.
        base: the basis.
        boxes: low < s ≤ high ``[b, 2, d]``.
    """

    base: Basis = field(kw_only=True)
    boxes: Array = field(kw_only=True)

    kind: ClassVar[str] = "functions with ends"
    has_ends: ClassVar[bool] = True

    @classmethod
    def of(cls, base: Basis, boxes: Array) -> EndBasis:
        """The functions of a basis, and one of the ends in some boxes."""
        return cls(base.size + 1, base.interval, base=base, boxes=boxes)

    def _identity(self) -> tuple[object, ...]:
        return self.size, self.base, self.boxes.tobytes()

    def __str__(self) -> str:
        return str(self.base)

    @property
    def factors(self) -> tuple[Family, ...]:
        """Those of the basis."""
        return self.base.factors

    @property
    def degrees(self) -> NDArray[np.intp]:
        """The degrees of the functions, 0 of that of the ends ``[k, d]``."""
        return np.concatenate([self.base.degrees, np.zeros((1, self.dimension), dtype=np.intp)])

    @property
    def periodic_axes(self) -> tuple[int, ...]:
        """The coordinates in which the functions are periodic."""
        return self.base.periodic_axes

    def values(self, states: ArrayLike) -> Array:
        """The functions at states that are not terminal ``[n, k]``."""
        values = self.base.values(states)
        return np.concatenate([values, np.zeros((len(values), 1))], axis=1)

    def combined(self, states: ArrayLike, coefficients: Array) -> Array:
        """Σ c_i φ_i at states that are not terminal ``[n]``, or ``[n, q]`` for coefficients ``[k, q]``."""
        return self.base.combined(states, np.asarray(coefficients)[:-1])

    def design(self, n: int, rng: np.random.Generator) -> Array:
        """The states of the basis's design ``[n, d]``."""
        return self.base.design(n, rng)

    @property
    def _without_ends(self) -> Basis:
        return self.base

    def _at_ends(self, states: Array) -> Array:
        values = np.zeros((len(states), self.size))
        values[:, -1] = inside(self.boxes, states)
        return values

    def _ends(self, coefficients: Array) -> Ends:
        return Ends(self.boxes, float(coefficients[-1]))
