"""What is kept of fresh data: sums that add up, and can be imagined larger."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import freeze


class Tally:
    """Sums over fresh transitions, each an array by its name, for one surrogate.

    Attributes:
        firsts: the names of sums that stay near zero if nothing surprises.
        seconds: the names of sums that grow with the data.
        counts: transitions per action ``[A]``.
        paired: every state was tried with every action.
    """

    firsts: ClassVar[tuple[str, ...]]
    seconds: ClassVar[tuple[str, ...]]
    counts: NDArray[np.int64]
    paired: bool

    def __post_init__(self) -> None:
        freeze(self)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all sums."""
        return ("counts", *cls.seconds, *cls.firsts)

    def __add__(self, other: Self) -> Self:
        if any(getattr(self, name).shape != getattr(other, name).shape for name in self.names()):
            raise ValueError("evidence adds up only for the same surrogate")
        if self.paired != other.paired:
            raise ValueError("paired and unpaired data must be weighed separately")
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.names()}
        return type(self)(**sums, paired=self.paired)  # type: ignore[call-arg]  # every kind is a record of its sums

    def forecast(self, factor: float) -> Self:
        """What ``factor`` times as much data might say, if nothing surprised: for planning, never for certificates."""
        grown = {name: getattr(self, name) * factor for name in self.seconds}
        quiet = {name: 0.0 * getattr(self, name) for name in self.firsts}
        counts = (self.counts * factor).astype(np.int64)
        return type(self)(counts=counts, **grown, **quiet, paired=self.paired)  # type: ignore[call-arg]
