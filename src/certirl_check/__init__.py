"""The independent checker of saved certificates, refutations and bands: their claims derived again from their sums.

The checker shares no code with what made the file and rounds only to the safe side, but for bands, which it
confirms up to one millionth. What it confirms is spelled out, with every number that the statement depends on and with
what had to be trusted.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from certirl_check.cells import CellCertificate
from certirl_check.certificates import Certificate
from certirl_check.claims import Claim
from certirl_check.known_noise import GaussianCertificate
from certirl_check.records import DamagedError, ImpossibleError, Record, TooLittleError, read
from certirl_check.refutations import Refutation
from certirl_check.soft import BandClaim

KINDS: dict[str, type[Claim]] = {
    "Certificate": Certificate,
    "GaussianCertificate": GaussianCertificate,
    "CellCertificate": CellCertificate,
    "Refutation": Refutation,
    "Band": BandClaim,
}
# What solutions hold, by field and kinds; the proof of their status first.
PROOFS: dict[str, list[tuple[str, ...]]] = {
    "Solution": [
        ("certificate", "Certificate", "GaussianCertificate", "CellCertificate"),
        ("refutation", "Refutation"),
    ],
    "SoftSolution": [("proof", "Band")],
}
PROVED = ("certified", "bounded")
# Of files that were changed.
_UNREADABLE = (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError, RecursionError)


@dataclass(frozen=True)
class Verdict:
    """What the second derivation says about a file.

    Attributes:
        verdict: "confirmed", "rejected" or "nothing claimed".
        statement: what is confirmed, in a sentence; empty if nothing is.
        margin: the margin derived here, rounded down; −∞ if none can be, NaN without a certificate.
        claimed: the margin in the file; NaN without a certificate.
        reasons: why it is rejected or claims nothing, in sentences.
        lines: the problem, the data and the derivation, by name.
        trusted: what no file can show, in sentences.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> from certirl_check import check
        >>> verdict = check(certificate.save("proof"))
        >>> print(verdict.statement)
        with probability at least 0.95 action 0 is strictly optimal at every state of [15, 25]: ...
        >>> verdict.reasons
        ()
    """

    verdict: str
    statement: str
    margin: float
    claimed: float
    reasons: tuple[str, ...]
    lines: tuple[tuple[str, str], ...] = ()
    trusted: tuple[str, ...] = ()

    def __str__(self) -> str:
        first, *more = [self.statement] if self.verdict == "confirmed" else self.reasons
        lines = [*(("", reason) for reason in more), *self.lines]
        if self.verdict == "confirmed":
            lines += [("trusted", sentence) for sentence in self.trusted]
        return "\n".join([f"{self.verdict.capitalize()}: {first}.", *(f"  {name:<9}{line}" for name, line in lines)])


def check(path: str | os.PathLike[str]) -> Verdict:
    """Derive what a saved certificate, refutation or band claims again from its sums, and say whether it follows.

    Args:
        path: a file written by ``save`` of a solution, of a certificate or of a refutation.
    """
    record = read(path)
    solution = record if record.kind in PROOFS else None
    try:
        claims = [record]
        if solution is not None:
            parts = PROOFS[record.kind]
            held, lacking = (
                [solution.optional(*part) for part in parts],
                [f"no {kind.lower()}" for _, kind, *_ in parts],
            )
            claims = [claim for claim in held if claim is not None]
            if solution.status in PROVED and held[0] is None:
                return _nothing("rejected", f"the file says that it is {solution.status}, and holds {lacking[0]}")
            if not claims:
                return _nothing("nothing claimed", f"the file holds {' and '.join(lacking)}")
        if all(claim.kind in KINDS for claim in claims):
            verdicts = [_verdict(claim, solution) for claim in claims]
            return next((verdict for verdict in verdicts if verdict.verdict == "rejected"), verdicts[0])
    except DamagedError as problem:
        raise ValueError(f"{path} is damaged: {problem}") from None
    except _UNREADABLE as problem:
        words = " ".join(str(problem).split())
        raise ValueError(f"{path} is damaged: something in it is missing or wrong ({words})") from None
    raise ValueError(f"{path} holds a certirl {record.kind!r:.60}, which has no certificate to check")


def _verdict(record: Record, solution: Record | None) -> Verdict:
    kind = KINDS[record.kind]
    claimed, nothing = kind.claimed(record)
    asserted = not nothing or (solution is not None and solution.status in PROVED)
    claim: Claim | None = None
    rejected = True
    try:
        with np.errstate(all="ignore"):  # a file that was changed can lead to anything
            claim = kind(record, solution)
            wrong = claim.contradictions() or claim.conclude()
    except ImpossibleError as problem:
        wrong = [str(problem)]
    except (TooLittleError, ZeroDivisionError) as problem:  # which contradicts no bound that is not positive
        rejected, wrong = asserted or 0 < claimed < math.inf, [f"nothing can be derived from the sums: {problem}"]
    reasons = tuple(wrong or [nothing] * bool(nothing))
    verdict = "rejected" if wrong and rejected else "nothing claimed" if reasons else "confirmed"
    if claim is None:
        return Verdict(verdict, "", -math.inf, claimed, reasons)
    statement = claim.statement if verdict == "confirmed" else ""
    return Verdict(verdict, statement, claim.derived, claimed, reasons, tuple(claim.lines()), tuple(claim.trusted()))


def _nothing(verdict: str, reason: str) -> Verdict:
    return Verdict(verdict, "", math.nan, math.nan, (reason,))
