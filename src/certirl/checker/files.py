"""A second opinion on a saved certificate or refutation: what it claims, derived again from its sums.

A program of its own: it shares no code with what made the file and rounds only to the safe side. What it confirms is
spelled out, with every number that the statement depends on and with what had to be trusted.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from certirl.checker import certificates, refutations
from certirl.checker.records import DamagedError, Finding, ImpossibleError, Record, read

# By the kind of record: what it claims, and what follows.
DERIVATIONS: dict[str, tuple[Callable[[Record], tuple[float, str]], Callable[[Record, Record | None], Finding]]] = {
    "Certificate": (certificates.claimed, certificates.derive),
    "Refutation": (refutations.claimed, refutations.derive),
}
_BEYOND = (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError)  # of files no one wrote


@dataclass(frozen=True)
class Verdict:
    """What the second derivation says about a file.

    Attributes:
        verdict: "confirmed", "refuted" or "nothing claimed".
        statement: what is confirmed, in a sentence; empty if nothing is.
        margin: the margin derived here, rounded down; −∞ if none can be, NaN without a certificate.
        claimed: the margin in the file; NaN without a certificate.
        reasons: why it is refuted or claims nothing, in sentences.
        lines: the problem, the data and the derivation, by name.
        trusted: what no file can show, in sentences.
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
        told = [*(("", reason) for reason in more), *self.lines]
        if self.verdict == "confirmed":
            told += [("trusted", sentence) for sentence in self.trusted]
        return "\n".join([f"{self.verdict.capitalize()}: {first}.", *(f"  {name:<9}{line}" for name, line in told)])


def check(path: str | os.PathLike[str]) -> Verdict:
    """Derive what a saved certificate or refutation claims again from its sums, and say whether it follows.

    Args:
        path: a file written by ``save`` of a solution, of a certificate or of a refutation.
    """
    record = read(path)
    try:
        return _checked(record, path)
    except DamagedError as problem:
        raise ValueError(f"{path} is damaged: {problem}") from None
    except _BEYOND as problem:
        if str(problem).startswith(f"{path} holds"):
            raise
        words = " ".join(str(problem).split())
        raise ValueError(f"{path} is damaged: something in it is missing or wrong ({words})") from None


def _checked(record: Record, path: str | os.PathLike[str]) -> Verdict:
    solution = record if record.kind == "Solution" else None
    status = "" if solution is None else solution.status
    inner = [record]
    if solution is not None:
        inner = [solution.record(name) for name in ("certificate", "refutation") if solution.entry(name) is not None]
    if status == "certified" and not any(own.kind == "Certificate" for own in inner):
        return _nothing("refuted", "the file says that it is certified, and holds no certificate")
    if not inner:
        return _nothing("nothing claimed", "the file holds no certificate")
    if any(own.kind not in DERIVATIONS for own in inner):
        raise ValueError(f"{path} holds a certirl {record.kind!r:.60}, which has no certificate to check")
    found = [_verdict(own, solution) for own in inner]
    return next((own for own in found if own.verdict == "refuted"), found[0])


def _verdict(record: Record, solution: Record | None) -> Verdict:
    read_claim, derive = DERIVATIONS[record.kind]
    claimed, nothing = read_claim(record)
    try:
        with np.errstate(all="ignore"):  # a file that was changed can lead to anything
            finding = derive(record, solution)
    except ImpossibleError as problem:
        finding = Finding([str(problem)])
    asserted = not nothing or (solution is not None and solution.status == "certified")
    reasons = finding.wrong or [nothing] * bool(nothing)
    verdict = "nothing claimed" if not asserted else "refuted" if reasons else "confirmed"
    statement = finding.statement if verdict == "confirmed" else ""
    margin = -math.inf if finding.margin is None else finding.margin
    return Verdict(verdict, statement, margin, claimed, tuple(reasons), tuple(finding.lines), tuple(finding.trusted))


def _nothing(verdict: str, reason: str) -> Verdict:
    return Verdict(verdict, "", math.nan, math.nan, (reason,))


def main(path: str | os.PathLike[str]) -> int:
    """Print the verdict: 1 if something is claimed and does not follow, else 0."""
    print(verdict := check(path))
    return int(verdict.verdict == "refuted")
