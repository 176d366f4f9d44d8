"""A second opinion on a saved certificate: what it claims, derived again from its sums in exact arithmetic.

A program of its own: it shares no code with the certificate's, solves no program and rounds only to the safe side.
What it confirms is spelled out, with every number that the statement depends on and with what had to be trusted.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any

from certirl.checker import actions as check_actions
from certirl.checker import policies as check_policies
from certirl.checker.records import DamagedError, Finding, ImpossibleError, entry, flag, read, status_of

DERIVATIONS = {
    "Certificate": check_actions.derive,
    "AdditiveCertificate": check_actions.derive_sum,
    "PolicyCertificate": check_policies.derive,
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
    """Derive what a saved certificate claims again from its sums, exactly, and say whether it follows.

    Args:
        path: a file written by ``save`` of a solution or of a certificate.
    """
    record, arrays = read(path)
    alone = record.get("type") in DERIVATIONS
    words = record if alone else record.get("certificate")
    try:
        certified = not alone and record.get("type") == "Solution" and status_of(record) == "certified"
    except DamagedError as problem:
        raise ValueError(f"{path} is damaged: {problem}") from None
    if words is None:
        return _without_certificate(record, certified=certified)
    if not isinstance(words, dict):
        raise ValueError(f"{path} is damaged: certificate should be fields by name, got {words!r:.60}")
    if (derive := DERIVATIONS.get(str(words.get("type")))) is None:
        raise ValueError(f"{path} holds a certirl {record.get('type')!r:.60}, which has no certificate to check")
    if '"ProductBasis"' in json.dumps(words):
        raise ValueError(f"{path} certifies a box of states: certirl check derives certificates of one coordinate only")
    try:
        holds, claimed, finding = flag(words, "holds"), float(entry(words, "margin")), _derived(derive, record, arrays)
    except DamagedError as problem:
        raise ValueError(f"{path} is damaged: {problem}") from None
    except _BEYOND as problem:
        raise ValueError(f"{path} is damaged: something in its certificate is missing or wrong ({problem})") from None
    reasons = list(finding.wrong)
    margin = -math.inf if finding.margin is None else math.nextafter(float(finding.margin), -math.inf)
    if not holds and not reasons:
        reasons = ["no tail was declared" if words["tail"] is None else "the margin is not positive"]
    verdict = "nothing claimed" if not holds and not certified else "refuted" if reasons else "confirmed"
    statement = finding.statement if verdict == "confirmed" else ""
    return Verdict(verdict, statement, margin, claimed, tuple(reasons), tuple(finding.lines), tuple(finding.trusted))


def _derived(derive: Any, record: dict[str, Any], arrays: dict[str, Any]) -> Finding:
    try:
        found: Finding = derive(record, arrays)
    except ImpossibleError as problem:
        return Finding([str(problem)])
    return found


def _without_certificate(record: dict[str, Any], *, certified: bool) -> Verdict:
    if certified:
        reason = "the file says that it is certified, and holds no certificate"
        return Verdict("refuted", "", math.nan, math.nan, (reason,))
    reason = "the file holds no certificate"
    if record.get("refutation"):
        reason += "; what it says about the absence of a reward cannot be checked, since it keeps no sums of that"
    return Verdict("nothing claimed", "", math.nan, math.nan, (reason,))


def main(path: str | os.PathLike[str]) -> int:
    """Print the verdict: 1 if something is claimed and does not follow, else 0."""
    print(verdict := check(path))
    return int(verdict.verdict == "refuted")
