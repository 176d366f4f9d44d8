"""What every certificate says about itself in words, whatever it is a certificate of."""

from __future__ import annotations


class Claim:
    """A lower bound on a margin: ``margin`` = ``estimated`` − the sum of ``losses``.

    Attributes:
        holds: the margin is positive and the tail was declared.
        margin, estimated: the bound, and what it was before anything was taken off.
        losses: what was taken off, by name.
        tail: τ, or None if none was declared; then the word is "validated", never "certified".
        samples_needed: fresh transitions per action that should do; None if no such number is known.
    """

    holds: bool
    margin: float
    estimated: float
    losses: dict[str, float]
    tail: float | None
    samples_needed: int | None

    @property
    def word(self) -> str:
        """One of "certified", "validated" (no tail declared) and "not certified"."""
        return "not certified" if not self.margin > 0 else "certified" if self.tail is not None else "validated"

    @property
    def missing(self) -> str:
        """What keeps it from being certified, in words; empty if it is."""
        if self.holds:
            return ""
        if self.margin > 0:
            return "validated only: declare a tail to make it a certificate"
        if self.samples_needed is not None:
            return f"about {self.samples_needed:,} fresh transitions per action should do"
        if self.estimated <= self.losses["truncation tail"]:
            return "no number of samples would do: the estimated margin is not positive or the tail is too large"
        return "so many more samples are needed that their number cannot be told"

    @property
    def taken(self) -> str:
        """The losses worth telling, in words."""
        telling = 5e-4 * abs(self.estimated)
        return ", ".join(f"{name} {value:.2g}" for name, value in self.losses.items() if value > telling) or "nothing"

    @property
    def proved(self) -> str:
        """The margin and how it came about, in a line."""
        more = "" if self.holds else f" ({self.missing})"
        return f"at least {self.margin:.3g}: estimated {self.estimated:.3g}, less {self.taken}{more}"
