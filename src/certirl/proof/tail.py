"""The tail: how far the dynamics reach beyond the chosen functions of the state. No data can tell; it must be declared.

τ ≥ sup over actions and functions |f| ≤ 1 of the distance, in the sup norm, from P_a f to the span of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from certirl.functions.bases import Basis
from certirl.ground.domain import one_coordinate
from certirl.ground.doors import alone, as_count, as_number, by_door, shown, takes


@dataclass(frozen=True)
class Smooth:
    """``∫|∂^p_s p_a(s'|s)| ds' ≤ bound`` for every action and state: the order-p derivative in s, in total variation.

    For p = 1 this is a Lipschitz constant of s ↦ P_a(·|s) in total variation (counting ∫|·|, so at most twice the
    probabilist's distance). On a circle the derivatives must be periodic too.

    Attributes:
        order: p, at least 1.
        bound: in units of the state to the power −p.
    """

    order: int
    bound: float

    def __post_init__(self) -> None:
        order = as_count(self.order, "Smooth(order, bound): order")
        bound = as_number(self.bound, "Smooth(order, bound): bound", least=0)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "bound", bound)

    def number(self, columns: Basis) -> float:
        """τ by the theorems of Jackson (polynomials) and Favard (circle); infinite where they do not apply."""
        one_coordinate(columns.domain, "a tail from derivatives is")
        ((low, high),) = columns.domain
        half, p, top = (high - low) / 2, int(self.order), columns.degree
        if columns.periodic_axes:
            top = (columns.size - 1) // 2  # a frequency counts only with both its sine and its cosine
            return math.pi / 2 * self.bound * (half / math.pi / (top + 1)) ** p
        if top < p - 1:
            return math.inf
        if top == p - 1:  # interpolation at Chebyshev points
            return self.bound * half**p / (2 ** (p - 1) * math.factorial(p))
        falling = math.prod(range(top + 2 - p, top + 2))  # (d + 1) d … (d − p + 2)
        return (math.pi / 2) ** p * self.bound * half**p / falling

    def __str__(self) -> str:
        return f"∫|∂^{self.order}_s p_a(s'|s)| ds' ≤ {self.bound:g} for every action and state"


# A number, a bound on derivatives, a function of the columns, or nothing.
TailLike = float | Smooth | Callable[[Basis], float] | None


def check_tail(tail: Any) -> None:
    """Refuse, with a sentence, what is no tail."""
    if isinstance(tail, type):
        raise TypeError(f"tail must be a number, Smooth(order, bound) or a function, got the class {tail.__name__}")
    if tail is None or isinstance(tail, Smooth):
        return
    if not callable(tail):
        meaning = by_door("a number, Smooth(order, bound) or a function of the columns", "a number")
        as_number(tail, "tail", least=0, meaning=meaning)
    elif not takes(tail, None):
        raise TypeError(f"tail must be a function of the columns alone, tail(columns), got {shown(tail)}")


def is_number(tail: TailLike) -> bool:
    """Whether a tail is one number, which belongs to the columns it was computed for."""
    check_tail(tail)
    return tail is not None and not callable(tail) and not isinstance(tail, Smooth)


def tail_number(tail: TailLike, columns: Basis) -> float | None:
    """τ for these columns; None where nothing is declared."""
    check_tail(tail)
    if tail is None:
        return None
    if isinstance(tail, Smooth):
        return tail.number(columns)
    if not callable(tail):
        return as_number(tail, "tail", least=0)
    with alone(tail):
        value = tail(columns)
    if isinstance(value, float) and value == math.inf:  # a bound that says nothing about these columns
        return math.inf
    return as_number(value, f"tail(columns) for {columns}", least=0)


def largest_tail(tails: Iterable[float | None]) -> float | None:
    """The largest of several τ; None if one of them is not declared."""
    numbers = list(tails)
    return None if None in numbers else max(number for number in numbers if number is not None)


def tail_in_words(tail: TailLike, number: float | None, columns: Basis) -> str:
    """The assumption that a tail makes, or that one is missing, as a certificate prints it."""
    family = columns.family
    if number is None:
        return f"NOT DECLARED: how far P_a f lies outside the {columns.size} functions of the state ({family})"
    if number == 0:
        return f"every P_a f is exactly a combination of the first {columns.size} {family} functions of the state"
    source = f", since {tail}" if isinstance(tail, Smooth) else ""
    return f"every P_a f, |f| ≤ 1, lies within {number:.3g} of the first {columns.size} {family} functions{source}"
