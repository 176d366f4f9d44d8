"""The independent checker reads every claim that a test makes: a second derivation is what sees a small mistake.

A claim is what a call of the test itself returns; what the library tries on the way there is not one.
"""

import functools
import hashlib
import importlib
import re
import sys
import threading
from unittest.mock import patch

import certirl_check

# Where claims are made, in the order in which the modules import each other.
VERBS = {
    "certirl.proof.certificate": ("conclude",),
    "certirl.proof.certify": ("certify", "refute"),
    "certirl.proof.soft": ("prove_band",),
    "certirl.solver.solve": ("solve",),
}
_made = []
_inside = threading.local()
_verdicts = {}


def watch():
    """Have every verb keep what it returns to a test."""
    for name, verbs in VERBS.items():
        module = importlib.import_module(name)
        for verb in verbs:
            plain = getattr(module, verb)
            watched = _watched(plain)
            for other in [one for key, one in sys.modules.items() if key.partition(".")[0] == "certirl"]:
                if vars(other).get(verb) is plain:
                    setattr(other, verb, watched)
    attempt = importlib.import_module("certirl.proof.refutation").Attempt
    attempt.conclude = _watched(attempt.conclude)


def _watched(verb):
    @functools.wraps(verb)
    def watched(*values, **settings):
        if getattr(_inside, "verb", False):
            return verb(*values, **settings)
        _inside.verb = True
        try:
            made = verb(*values, **settings)
        finally:
            _inside.verb = False
        _made.append(made)
        return made

    return watched


def made():
    """What tests have made since this was last asked for, each record once."""
    records = list({id(record): record for record in _made}.values())
    _made.clear()
    return records


def fault(record, folder):
    """Why the checker does not agree with a record; empty if it does. Equal files are checked once."""
    claims = [record]
    if type(record).__name__ == "SoftSolution":
        claims = [record.proof] if record.proof is not None else []
        if not claims and record.status != "bounded":
            return ""
    if type(record).__name__ == "Solution":
        claims = [claim for claim in (record.certificate, record.refutation) if claim is not None]
        if not claims and record.status != "certified":
            return ""
    with patch("os.fsync"):  # nobody waits for the disk
        path = record.save(folder / "claim.npz")
    contents = hashlib.sha256(path.read_bytes()).digest()
    if contents not in _verdicts:
        _verdicts[contents] = certirl_check.check(path)
    verdict = _verdicts[contents]
    if verdict.verdict == "rejected" or (verdict.verdict != "confirmed" and any(claim.holds for claim in claims)):
        return f"{type(record).__name__}: {verdict}"
    for claim in claims:  # the checker refuses what is too much; here it must not find more than the library either
        if type(claim).__name__.endswith("Certificate") and claim.losses and claim.holds:
            room = 1e-5 * (abs(claim.estimated) + sum(claim.losses.values())) + 2 * claim.losses["floating point"]
            if not abs(verdict.margin - claim.margin) <= room:
                return f"a margin of {claim.margin}, where the checker finds {verdict.margin}"
        if type(claim).__name__ == "Band" and claim.holds:
            derived, stated = map(float, re.findall(r"±([-+.e0-9]+)", dict(verdict.lines)["band"]))
            if not abs(derived - stated) <= 2e-3 * stated:  # of four digits
                return f"a band ±{stated} wide, where the checker finds ±{derived}"
    return ""
