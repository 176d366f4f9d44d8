"""Formulas: what a reward is made of, as records from which every writer goes (LaTeX, Python, ONNX).

A formula is a sum of terms. Nearly all are expansions ``Σ c_i Π_j φ_{i_j}(t_j)`` in products of functions of one
coordinate, ``t = (s − centre)/scale``; a basis states its terms by its method ``terms``. The functions are those of
textbooks, without norms: these are in the coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array, Box

if TYPE_CHECKING:
    from certirl.functions.ends import Ends

REACH = 3.0  # of a saturated coordinate

# The functions of one coordinate, numbered from 0, of t: [n] to [n, size].
LEGENDRE = "Legendre"  # P_0, P_1, …
CHEBYSHEV = "Chebyshev"  # T_0, T_1, …
FOURIER = "Fourier"  # 1, sin πt, cos πt, sin 2πt, …
SATURATION = "saturation"  # 1, 3 tanh t
HAT = "hat"  # max(0, 1 − |t − i|)
PERIODIC_HAT = "periodic hat"  # the same, with the distance on a circle of as many points as functions


class Axis(NamedTuple):
    """Functions φ_0 … φ_{size − 1} of t = (s − centre)/scale, for one coordinate s of the state."""

    coordinate: int  # its column of the states
    kind: str  # of the functions: LEGENDRE, CHEBYSHEV, FOURIER, SATURATION, HAT or PERIODIC_HAT
    centre: float  # the state with t = 0
    scale: float  # the unit of t
    size: int  # the number of functions


@dataclass(frozen=True, eq=False)
class Expansion:
    """Σ c_i Π_j φ_{i_j}(t_j); without axes a constant."""

    axes: tuple[Axis, ...]  # the functions of each coordinate
    coefficients: Array  # c ``[k]``
    # the numbers of the functions ``[k, d]``; None for all combinations, the last axis varying fastest, of functions of
    # which two at most are not zero (hats)
    indices: NDArray[np.intp] | None = None

    def scaled(self, factor: float) -> Self:
        """The term times a number."""
        return replace(self, coefficients=factor * self.coefficients)


@dataclass(frozen=True, eq=False)
class Ridges:
    """Σ w_i tanh(ω_i·u + b_i), with u_j the last functions of the axes: saturated coordinates, sines and cosines."""

    axes: tuple[Axis, ...]  # the functions of each coordinate
    inputs: tuple[tuple[int, int], ...]  # the axis and the number of the function that is u_j, for each j
    directions: Array  # ω ``[p, m]``
    offsets: Array  # b ``[m]``
    weights: Array  # w ``[m]``

    def scaled(self, factor: float) -> Self:
        """The term times a number."""
        return replace(self, weights=factor * self.weights)


@dataclass(frozen=True, eq=False)
class Named:
    """w f(s), or w f(s, a), with a Python function f, which no text can hold."""

    name: str
    weight: float
    acts: bool = False

    def scaled(self, factor: float) -> Self:
        """The term times a number."""
        return replace(self, weight=factor * self.weight)


Term = Expansion | Ridges | Named


class Group(NamedTuple):
    """A name, the columns of some coordinates of the states, and the terms whose sum is R_j."""

    name: str
    coordinates: tuple[int, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Formula:
    """R(s), the sum of all terms on a box, and other numbers at terminal states; such a sum for each action."""

    domain: Box  # the box of the states
    # the groups of the sum of each action, one sum alone if it is of all actions. The groups are the components of a
    # sum, or one with all coordinates
    cases: tuple[tuple[Group, ...], ...]
    zero_at_terminal: bool  # whether R is not the sum at terminal states
    boxes: Array | None  # of the terminal states, low < s ≤ high ``[b, 2, d]``; None if they are not known as boxes
    ends: Ends | None  # R at terminal states; None if it is 0 at all of them
    title: str  # what it is, in words

    @property
    def terms(self) -> tuple[Term, ...]:
        """Those of all cases and groups."""
        return tuple(term for groups in self.cases for group in groups for term in group.terms)

    @property
    def arguments(self) -> str:
        """Of R: "s" or "s, a"."""
        acts = len(self.cases) > 1 or any(isinstance(term, Named) and term.acts for term in self.terms)
        return "s, a" if acts else "s"

    @property
    def paid(self) -> tuple[tuple[Array, float], ...]:
        """The boxes of the terminal states ``[2, d]`` and R in each; where they overlap, that of the last."""
        boxes, paid = (np.zeros((0, 2, len(self.domain))) if self.boxes is None else self.boxes), None
        if self.ends is not None:
            boxes, paid = self.ends.within(boxes)
        return tuple(zip(boxes, np.zeros(len(boxes)).tolist() if paid is None else paid.tolist(), strict=True))

    def check_writable(self) -> None:
        """Refuse a formula with a part that is a Python function."""
        for term in self.terms:
            if isinstance(term, Named):
                raise ValueError(
                    f"the feature {term.name!r} is a Python function, which cannot be written to a file: to_latex() "
                    "names it; keep the function beside the weights"
                )
        if self.zero_at_terminal and self.boxes is None:
            raise ValueError(
                "which states are terminal is a Python function, which cannot be written to a file: save the solution, "
                "and write the reward of certirl.load(…), whose terminal states are boxes where these describe them"
            )


def shifted(term: Term, coordinates: tuple[int, ...]) -> Term:
    """A term of the states of a component as one of whole states."""
    if isinstance(term, Named):
        return term
    return replace(term, axes=tuple(axis._replace(coordinate=coordinates[axis.coordinate]) for axis in term.axes))
