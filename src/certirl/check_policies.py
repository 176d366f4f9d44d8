"""A second opinion on the certificate of an expert who switches: bands, tube, regret and span derived again, exactly.

What the file must be believed for: that its sums are those of independent fresh draws, that the tail is as declared,
that the expert does at the ends of the cells what `support` says and does not change between two ends that agree, that
the tents stood at `switches` when they were counted, and that V lies between `low` and `high`. Neither reward nor
policy is in a certificate, so none of this can be seen from it; a solution holds its reward, and there V's range is
derived too, unless states are terminal. All else is worked out anew, without any of the code that made the certificate.
"""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from typing import Any

from certirl import check, check_bands, check_tubes
from certirl.check import ALIKE, SLACK, Verdict
from certirl.check_records import (
    KINDS,
    Expert,
    ImpossibleError,
    contradictions,
    expert_of,
    knows_reward,
    range_of_value,
    record_of,
    stored,
)
from certirl.check_tubes import Tube


def derive(header: dict[str, Any], arrays: dict[str, Any]) -> tuple[tuple[Tube, Fraction, Expert] | None, list[str]]:
    """The tube and the span of the value that follow, and the expert they speak of; or why nothing does."""
    claim, own = stored(header, arrays)
    assert claim is not None
    try:
        numbers = record_of(claim, own)
        expert, tents = expert_of(claim, own, numbers.actions)
        if wrong := contradictions(numbers, claim, expert, tents) + range_of_value(numbers, header, arrays):
            return None, wrong
        work = check_bands.Derivation(numbers)
        tube = check_tubes.read_tube(numbers, work.bands(), work.visits(), expert, tents, Fraction(claim["allowed"]))
        return (tube, work.span(), expert), []
    except ImpossibleError as problem:
        return None, [str(problem)]


def objections(tube: Tube, span: Fraction, expert: Expert, claim: dict[str, Any]) -> list[str]:
    """Why the claim does not follow, if it does not; the tube may be off by a cell."""
    margin, parts = tube.margin(claim["margin"])
    wrong, cell = check.objections(parts, margin, claim), (1 + SLACK) * expert.width
    # A generous allowance for rounding in the file makes a claim weaker than what follows, but not by more than this.
    allowed = SLACK + 10 * Fraction(claim["losses"]["floating point"]) / (1 - Fraction(claim["discount"]))
    for name, follows in (("regret", tube.regret), ("value_span", span)):
        if not abs(follows - Fraction(claim[name])) <= ALIKE * follows + allowed:
            wrong.append(f"{name.replace('_', ' ')} is not what follows from the sums: {float(follows):.6g}")
    if Fraction(claim["value_span"]) > span + SLACK * (1 + span):
        wrong.append("the claimed value span is larger than what follows")
    least = {
        "regret": (tube.regret, SLACK * (1 + tube.regret)),
        "ties": (tube.ties, SLACK * (1 + tube.ties)),
        "half_width": (tube.half_width, cell),
        "share": (tube.share, cell / (expert.high - expert.low)),
        "settled": (tube.settled, cell),
    }
    for name, (own, slack) in least.items():
        # Infinity claims nothing, and is all that can be claimed where there is no bound.
        if claim[name] != math.inf and (own is None or Fraction(claim[name]) < own - slack):
            known = "infinite" if own is None else f"{float(own):.6g}"
            wrong.append(f"{name.replace('_', ' ')} may be {known}, more than is claimed")
    return wrong


def check_policy(path: str | os.PathLike[str]) -> Verdict:
    """Derive a saved certificate again, and see whether what it claims of margin, tube, regret and span follows.

    Args:
        path: a file written by `PolicyCertificate.save` or `PolicySolution.save`.
    """
    header, arrays = check.read(path)
    if header.get("kind") not in KINDS:
        raise ValueError(f"{path} holds a certirl {header.get('kind')}, and nothing of an expert who switches")
    if (claim := stored(header, arrays)[0]) is None:
        return Verdict("nothing claimed", math.nan, math.nan, ("the file holds no certificate",))
    if '"product"' in json.dumps(claim):
        raise ValueError(f"{path} certifies a box of states: certirl check derives certificates of one coordinate only")
    try:
        holds, claimed = bool(claim["holds"]), float(claim["margin"])
        found, reasons = derive(header, arrays)
        if found is not None and holds:
            reasons += objections(*found, claim)
        elif found is not None:
            reasons.append("no tail was declared" if claim["tail"] is None else "the margin is not positive")
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as problem:
        raise ValueError(f"{path} is damaged: something in its certificate is missing or wrong ({problem})") from None
    verdict = "nothing claimed" if not holds else "refuted" if reasons else "confirmed"
    if found is None:
        return Verdict(verdict, -math.inf, claimed, tuple(reasons))
    least, parts = found[0].margin(claimed)
    bounds = "" if knows_reward(header) else "; between what V lies"
    words = (*reasons, str(parts[0]), *_in_words(*found, bounds))
    return Verdict(verdict, math.nextafter(float(least), -math.inf), claimed, words)


def _in_words(tube: Tube, span: Fraction, expert: Expert, bounds: str) -> list[str]:
    """What was derived, and what was believed."""
    half, settled = (math.inf if x is None else float(x) for x in (tube.half_width, tube.settled))
    where = f"tube around {len(expert.switches)} switches: half-width {half:.4g}, {float(tube.share):.2%} of the domain"
    lost = f"regret at most {float(tube.regret):.4g}, the value's span at least {float(span):.4g}"
    believed = f"independent draws; the tail; what the expert does at {expert.cells + 1} states{bounds}"
    return [where, f"{lost}; settled farther than {settled:.4g} from a switch", f"taken as stated: {believed}"]


def main(path: str | os.PathLike[str]) -> int:
    """Print the verdict: 1 if something is claimed and does not follow, else 0."""
    print(verdict := check_policy(path))
    return int(verdict.verdict == "refuted")
