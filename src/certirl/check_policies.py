"""A second opinion on the certificate of an expert who switches: bands, tube, regret and span derived again, exactly.

What the file must be believed for: that its sums are those of independent fresh draws, that the tail is as declared,
that the expert does at the ends of the cells what `support` says and does not change between two ends that agree, that
the tents stood at `switches` when they were counted, and that V lies between `low` and `high`. Neither reward nor
policy is in a certificate, so none of this can be seen from it; a solution holds its reward, and there V's range is
derived too. All else is worked out anew, without any of the code that made the certificate.
"""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from typing import Any

import numpy as np

from certirl import check, check_bands, check_tubes, rational
from certirl.check import SLACK, Verdict
from certirl.check_bands import ImpossibleError, Record
from certirl.check_tubes import Expert, Tents, Tube
from certirl.enclosures import Nodes

KINDS = ("policy certificate", "policy solution")  # of files
BELIEVED = "taken as stated: the tail, independent draws, what the expert does, between what V lies"


def _stored(header: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The certificate's own words and numbers, alone in its file or in that of a solution."""
    if header["kind"] == KINDS[0]:
        return header, arrays
    return header.get("certificate"), {name[12:]: x for name, x in arrays.items() if name.startswith("certificate_")}


def _record(claim: dict[str, Any], arrays: dict[str, Any]) -> Record:
    """The numbers that the derivation rests on; KeyError, TypeError or ValueError where they are damaged."""
    kind, k, A = claim["columns"]["kind"], int(claim["columns"]["size"]), len(arrays["counts"])
    discount, tail, m = Fraction(claim["discount"]), claim["tail"], A * k
    if kind not in check.KINDS or k < 1 or A < 2 or not 0 < discount < 1:
        raise ValueError("the header describes no problem that certificates speak of")
    if tail == math.inf:
        raise ImpossibleError("the tail is infinite")
    wide, tents = (4 if kind == "Fourier" else 2) * rational.frequency(kind, k - 1) + 1, len(arrays["widths"])
    shapes = {"counts": (A,), "gram": (A, k, k), "fits": (A, k), "surprise": (A, k), "Z": (A, m, k), "mix": (m, m)}
    shapes |= {"spread": (A, A, wide), "drift": (A, m, k), "wobble": (A, A, m, wide), "drop": (m,)}
    shapes |= {"tent_fits": (A, tents, k), "visits": (A, tents, k), "visit_spread": (A, tents, wide)}
    sums = {name: check.exact(np.asarray(arrays[name]), name, shape) for name, shape in shapes.items()}
    return Record(
        **{**sums, "counts": [int(n) for n in sums["counts"]]},
        low=Fraction(claim["low"]),
        high=Fraction(claim["high"]),
        dropped=Fraction(claim["dropped"]),
        first=Fraction(claim["spending"]["first order"]),
        second=Fraction(claim["spending"]["second order"]),
        rest=Fraction(claim["spending"]["regret"]),
        tail=Fraction(tail or 0),
        kind=kind,
        size=k,
        actions=A,
        discount=discount,
        paired=bool(claim["paired"]),
    )


def _expert(claim: dict[str, Any], arrays: dict[str, Any], actions: int) -> tuple[Expert, Tents]:
    """What the expert does, and the tents whose visits were counted."""
    ((low, high),) = claim["columns"]["domain"]
    support = np.asarray(arrays["support"])
    if support.ndim != 2 or support.shape[1] != actions or len(support) < 2 or support.dtype.kind not in "bi":
        raise ValueError(f"support should say of {actions} actions whether they are taken")
    taken = [frozenset(c for c, does in enumerate(row) if does) for row in support.tolist()]
    lengths = {name: np.asarray(arrays[name]) for name in ("switches", "widths")}
    places = [check.exact(array, name, (array.size,)) for name, array in lengths.items()]
    return Expert(Fraction(low), Fraction(high), taken), Tents(*places)


def _contradictions(r: Record, claim: dict[str, Any], expert: Expert, tents: Tents) -> list[str]:
    """What neither sums over data, nor parts of a probability, nor an expert can be."""
    wrong, squared = [], rational.PI_ABOVE if r.kind == "Chebyshev" else Fraction(2)
    nodes = Nodes(r.kind, r.size, r.degree)
    squares = nodes.phi.times(nodes.phi)
    for c, (n, gram) in enumerate(zip(r.counts, r.gram, strict=True)):
        if n < r.size:
            wrong.append(f"action {c} has {n} transitions, too few for {r.size} functions")
        if any(gram[i][j] != gram[j][i] for i in range(r.size) for j in range(i)):
            wrong.append(f"the Gram matrix of action {c} is not symmetric")
        if abs(gram[0][0] * squared - n) > SLACK * n:
            wrong.append(f"the Gram matrix of action {c} is not one of {n} states")
        firsts = [r.surprise[c], *r.drift[c], *r.visits[c]]
        spreads = rational.Table.of([r.spread[c][c], *r.wobble[c][c], *r.visit_spread[c]])
        most = (nodes.weights(spreads) @ squares.T).above()  # Σ x_i²Y², for Cauchy and Schwarz
        pairs = ((x, y) for one, own in zip(firsts, most, strict=True) for x, y in zip(one, own, strict=True))
        if any(x * x > n * y * (1 + SLACK) for x, y in pairs):
            wrong.append(f"the surprises of action {c} are larger than their spread allows")
    if r.paired and any(gram != r.gram[0] for gram in r.gram):
        wrong.append("paired actions have different states")
    apart = [(c, d) for c in range(r.actions) for d in range(r.actions) if c != d]
    if not r.paired and any(any(r.spread[c][d]) or any(map(any, r.wobble[c][d])) for c, d in apart):
        wrong.append("actions that were not paired have common sums")
    spending, delta = [Fraction(x) for x in claim["spending"].values()], Fraction(claim["delta"])
    own = min(r.first, r.second, r.rest)
    if min(spending) < 0 or own <= 0 or not 0 < delta < 1 or abs(sum(spending) - delta) > SLACK * delta:
        wrong.append("the parts of δ are not probabilities that add up to δ")
    if r.tail < 0 or r.low > r.high:
        wrong.append("the tail is negative, or V's bounds are the wrong way round")
    if not all(expert.support):
        wrong.append("the expert takes no action at some state")
    if min(tents.widths, default=Fraction(1)) <= 0 or not _same_places(expert, tents):
        wrong.append("the tents do not stand where the expert switches")
    return wrong


def _same_places(expert: Expert, tents: Tents) -> bool:
    own, slack = expert.switches, SLACK * expert.width
    return len(own) == len(tents.switches) and all(
        abs(x - y) <= slack for x, y in zip(own, tents.switches, strict=True)
    )


def _range_of_value(r: Record, header: dict[str, Any], arrays: dict[str, Any]) -> list[str]:
    """V = R + γ Σ_c π_c·(P̂_cV) of a solution, whose reward is in the file; of a certificate alone nothing is known."""
    if header["kind"] == KINDS[0]:
        return []
    basis, reward = header["reward_basis"], np.asarray(arrays["reward"])
    coefficients = check.exact(reward, "reward", (reward.size,))
    if basis["kind"] in check.KINDS:
        least, most = rational.range_around(basis["kind"], coefficients)
    else:  # piecewise linear: its coefficients are its values
        least, most = min(coefficients), max(coefficients)
    ends = [rational.range_around(r.kind, fit) for fit in r.fits]
    least += r.discount * min(low for low, _ in ends)
    most += r.discount * max(high for _, high in ends)
    if min(least - r.low, r.high - most) < -SLACK * (1 + r.high - r.low):
        return [f"V may reach from {float(least):.6g} to {float(most):.6g}, beyond its bounds in the file"]
    return []


def derive(header: dict[str, Any], arrays: dict[str, Any]) -> tuple[tuple[Tube, Fraction, Expert] | None, list[str]]:
    """The tube and the span of the value that follow, and the expert they speak of; or why nothing does."""
    claim, own = _stored(header, arrays)
    assert claim is not None
    try:
        record = _record(claim, own)
        expert, tents = _expert(claim, own, record.actions)
        if wrong := _contradictions(record, claim, expert, tents) + _range_of_value(record, header, arrays):
            return None, wrong
        work = check_bands.Derivation(record)
        tube = check_tubes.read_tube(record, work.bands(), work.visits(), expert, tents, Fraction(claim["allowed"]))
        return (tube, work.span(), expert), []
    except ImpossibleError as problem:
        return None, [str(problem)]


def objections(tube: Tube, span: Fraction, expert: Expert, claim: dict[str, Any]) -> list[str]:
    """Why the claim does not follow, if it does not; the tube may be off by a cell."""
    margin, parts = tube.margin(claim["margin"])
    wrong, cell = check.objections(parts, margin, claim), (1 + SLACK) * expert.width
    if Fraction(claim["value_span"]) > span + SLACK * (1 + span):
        wrong.append(f"the value's span is only known to be {float(span):.6g}, less than is claimed")
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
            wrong.append(f"{name.replace('_', '-')} may be {known}, more than is claimed")
    return wrong


def check_policy(path: str | os.PathLike[str]) -> Verdict:
    """Derive a saved certificate again, and see whether what it claims of margin, tube, regret and span follows.

    Args:
        path: a file written by `PolicyCertificate.save` or `PolicySolution.save`.
    """
    header, arrays = check.read(path)
    if header.get("kind") not in KINDS or (claim := _stored(header, arrays)[0]) is None:
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
        return Verdict(verdict, -math.inf, claimed, (*reasons, BELIEVED))
    least, parts = found[0].margin(claimed)
    words = (*reasons, str(parts[0]), *_in_words(*found), BELIEVED)
    return Verdict(verdict, math.nextafter(float(least), -math.inf), claimed, words)


def _in_words(tube: Tube, span: Fraction, expert: Expert) -> list[str]:
    """What was derived."""
    half, settled = (math.inf if x is None else float(x) for x in (tube.half_width, tube.settled))
    where = f"tube around {len(expert.switches)} switches: half-width {half:.4g}, {float(tube.share):.2%} of the domain"
    lost = f"regret at most {float(tube.regret):.4g}, the value's span at least {float(span):.4g}"
    return [where, f"{lost}; settled farther than {settled:.4g} from a switch"]


def main(path: str | os.PathLike[str]) -> int:
    """Print the verdict: 1 if something is claimed and does not follow, else 0."""
    print(verdict := check_policy(path))
    return int(verdict.verdict == "refuted")
