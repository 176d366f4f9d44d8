"""The answer of the independent checker as a record: the checker itself shares no code with the rest."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import certirl_check
from certirl.ground.archive import as_path
from certirl.ground.records import Record
from certirl.ground.status import Claim
from certirl.proof.soft import Band
from certirl.solver.answer import Answer


class Verdict(Record, certirl_check.Verdict):
    """What the second derivation says about a file; attributes as in `certirl_check.Verdict`.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> certirl.check(certificate.save("proof")).to_dict()["verdict"]
        'confirmed'
    """


def check(claim: str | os.PathLike[str] | Answer | Claim | Band) -> Verdict:
    """Derive what a certificate, a refutation or a band claims again from its sums, and say whether it follows.

    Args:
        claim: a solution, its certificate, refutation or band, or the path of a file that one of these was saved to.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> verdict = certirl.check(certificate)
        >>> certirl.check(certificate.save("proof")) == verdict
        True
        >>> verdict.verdict, 0 < verdict.margin <= certificate.margin
        ('confirmed', True)
    """
    if isinstance(claim, Answer | Claim | Band):
        with TemporaryDirectory() as folder:
            return check(claim.save(Path(folder, "claim.npz")))
    return Verdict(**vars(certirl_check.check(as_path(claim))))
