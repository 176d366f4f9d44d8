"""What every certificate says about itself in words, whatever it is a certificate of."""

from __future__ import annotations

from math import inf, isfinite


class Claim:
    """A lower bound on a margin: ``margin`` = ``estimated`` − the sum of ``losses``.

    Attributes:
        holds: the margin is positive and the tail was declared.
        margin, estimated: the bound, and the estimate that the losses are subtracted from.
        losses: by name.
        tail: τ, or None if none was declared; then the word is "conditional", never "certified".
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
        """One of "certified", "conditional" (on a tail of zero, as none was declared) and "not certified"."""
        proved = 0 < self.margin < inf
        return "not certified" if not proved else "certified" if self.tail is not None else "conditional"

    @property
    def condition(self) -> str:
        """What the bound rests on besides the printed assumptions, for a sentence; empty with a declared tail."""
        return "" if self.tail is not None else ", if the tail is zero,"

    @property
    def missing(self) -> str:
        """What keeps it from being certified, in words; empty if it is."""
        if self.holds:
            return ""
        if self.margin == inf:
            return "no action is left to compare with those that the expert takes"
        if self.margin > 0:
            return "conditional on a tail of zero: declare a tail to make it a certificate"
        if self.samples_needed is not None:
            return f"about {self.samples_needed:,} fresh transitions per action should do"
        if not isfinite(self.margin):
            return "too few transitions for any bound"
        if self.estimated <= self.losses["truncation tail"]:
            return "no number of samples would do: the estimated margin is not positive or the tail is too large"
        return "many more samples are needed; their number cannot be estimated"

    def account(self, where: str = "", digits: int = 3) -> str:
        """The estimate and the losses that matter, as a difference: "0.944 estimated − 0.53 estimation − 0.016 grid".

        Args:
            where: the place of the estimate, in words.
            digits: of the estimate.
        """
        matter = 5e-4 * abs(self.estimated)
        losses = [f" − {value:.2g} {name}" for name, value in self.losses.items() if value > matter]
        return f"{self.estimated:.{digits}g} estimated{where}" + "".join(losses if isfinite(self.margin) else ())

    @property
    def proved(self) -> str:
        """The margin and its account, in a line."""
        more = "" if self.holds else f" ({self.missing})"
        least = f"at least {self.margin:.3g}" if isfinite(self.margin) else "no bound yet"
        return f"{least}: {self.account()}{more}"
