"""The tail: how far the dynamics reach beyond the chosen functions of the state. No data can tell; it must be declared.

τ ≥ sup over actions and functions |f| ≤ 1 of the distance, in the sup norm, from P_a f to the span of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from certirl.bases import Basis
from certirl.concentration import degree
from certirl.domain import one_coordinate


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
        if self.order < 1 or self.order != int(self.order):
            raise ValueError(f"order must be a whole number, at least 1, got {self.order}")
        if not 0 <= self.bound < math.inf:
            raise ValueError(f"bound must be finite and not negative, got {self.bound}")

    def number(self, columns: Basis) -> float:
        """τ by the theorems of Jackson (polynomials) and Favard (circle); infinite where they do not apply."""
        one_coordinate(columns.domain, "a tail from derivatives is")
        ((low, high),) = columns.domain
        half, p, top = (high - low) / 2, int(self.order), degree(columns)
        if columns.kind == "Fourier":
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


def tail_number(tail: TailLike, columns: Basis) -> float | None:
    """τ for these columns; None where nothing is declared."""
    if tail is None:
        return None
    value = tail.number(columns) if isinstance(tail, Smooth) else tail(columns) if callable(tail) else float(tail)
    if not value >= 0:
        raise ValueError(f"the tail must not be negative, got {value}")
    return float(value)


def tail_in_words(tail: TailLike, number: float | None, columns: Basis) -> str:
    """The assumption that a tail makes, or that one is missing, as a certificate prints it."""
    family = columns.kind if len(columns.domain) == 1 else " × ".join(part.kind for part in columns.parts)  # type: ignore[attr-defined]
    if number is None:
        return f"NOT DECLARED: how far P_a f lies outside the {columns.size} functions of the state ({family})"
    if number == 0:
        return f"every P_a f is exactly a combination of the first {columns.size} {family} functions of the state"
    source = f", since {tail}" if isinstance(tail, Smooth) else ""
    return f"every P_a f, |f| ≤ 1, lies within {number:.3g} of the first {columns.size} {family} functions{source}"
