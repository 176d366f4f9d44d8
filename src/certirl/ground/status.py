"""What an answer may be called: the words of certificates, and the status that all findings about an answer allow."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from typing import Any, NamedTuple

SAME = 1e-6  # of all parts of a margin together: what other processors and libraries can make of the same sums
# From the weakest to the strongest: an answer has the weakest status of its findings.
STATUSES = ("undetermined", "infeasible", "solved", "validated", "certified")


class Finding(NamedTuple):
    """One thing that is known about an answer.

    Attributes:
        status: the strongest status that an answer with this finding can have, one of `STATUSES`.
        sentence: what was found, without a capital and without a full stop.
    """

    status: str
    sentence: str


def weakest(findings: Iterable[Finding]) -> Finding:
    """The status that all findings allow, and the sentences of those that allow no more."""
    known = tuple(findings)
    unknown = [finding.status for finding in known if finding.status not in STATUSES]
    if unknown or not known:
        raise ValueError(f"a status must be one of {', '.join(STATUSES)}, got {', '.join(unknown) or 'none'}")
    least = min((finding.status for finding in known), key=STATUSES.index)
    return Finding(least, "; ".join(finding.sentence for finding in known if finding.status == least))


class Claim:
    """A lower bound on a margin: ``margin`` = ``estimated`` − the sum of ``losses``.

    Attributes:
        holds: the margin is positive and the tail was declared.
        margin, estimated: the bound, and the estimate that the losses are subtracted from.
        losses: by name.
        tail: τ, or None if none was declared; then the word is "conditional", never "certified".
        samples_needed: fresh transitions per action that should do; None if no such number is known.
        file: where it was read from; None if it was made here.
        verified: it was made here, or `certirl.check` confirmed its file.
    """

    holds: bool
    margin: float
    estimated: float
    losses: dict[str, float]
    tail: float | None
    samples_needed: int | None
    file: str | None
    verified: bool

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

    def sums_lead_to(self, told: dict[str, Any]) -> None:
        """Refuse the numbers of a file that differ from this claim, which was derived from its sums.

        Args:
            told: what the file says, by name: holds, margin, estimated and losses.
        """
        parts = [abs(self.estimated), *map(abs, self.losses.values())]
        slack = SAME * sum(part for part in parts if isfinite(part))
        pairs = {name: (told[name], getattr(self, name)) for name in ("margin", "estimated")}
        if told["losses"].keys() != self.losses.keys():
            raise ValueError(f"losses must be {', '.join(self.losses)}, got {', '.join(told['losses'])}")
        pairs |= {f"loss for {name}": (told["losses"][name], own) for name, own in self.losses.items()}
        for name, (claimed, own) in pairs.items():
            if not (claimed == own or abs(claimed - own) <= slack):
                raise ValueError(f"the certificate claims the {name} {claimed:.6g}, its sums lead to {own:.6g}")
        if told["holds"] != (0 < told["margin"] < inf and self.tail is not None):
            word = "holds" if told["holds"] else "does not hold"
            raise ValueError(f"the certificate says that it {word}, with the margin {told['margin']:.6g}")


def word_of(record: Any) -> str:
    """The status of a solution for a title: what a file claims is called a claim until it is verified."""
    claimed = record.status == "certified" and not record.verified
    return "claims to be certified, not verified" if claimed else str(record.status)


def chance(delta: float) -> str:
    """1 − δ for a sentence; never 1."""
    return f"{1 - delta:.6g}" if delta >= 1e-4 else f"1 − {delta:.3g}"


def unverified(headline: str, file: str | None, how: str = "certirl check") -> str:
    """The headline of a record that was read from a file and not checked: what the file claims.

    Args:
        headline: of the record if it were verified, "Certified with probability 0.95: …".
        file: where it was read from.
        how: the command that would verify it, or why none can.
    """
    head, colon, rest = headline.partition(": ")
    note = f"(not verified: {how} {file})" if how.startswith("certirl") else f"(not verified: {how})"
    if not head.startswith("Certified"):
        return f"{headline} {note}"
    return f"Claims to be {head[0].lower()}{head[1:]} {note}{colon}{rest}"


NO_SUMS = "a file keeps no sums of it"  # why what is said of the absence of a reward cannot be verified
