"""The answer of the independent checker as a record: the checker itself shares no code with the rest."""

from __future__ import annotations

import os

import certirl_check
from certirl.ground.archive import as_path
from certirl.ground.records import Record


class Verdict(Record, certirl_check.Verdict):
    """What the second derivation says about a file; attributes as in `certirl_check.Verdict`.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> certirl.check(certificate.save("proof")).to_dict()["verdict"]
        'confirmed'
    """


def check(path: str | os.PathLike[str]) -> Verdict:
    """Derive what a saved certificate or refutation claims again from its sums, and say whether it follows.

    Args:
        path: a file written by ``save`` of a solution, of a certificate or of a refutation.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> verdict = certirl.check(certificate.save("proof"))
        >>> verdict.verdict, 0 < verdict.margin <= certificate.margin
        ('confirmed', True)
    """
    return Verdict(**vars(certirl_check.check(as_path(path))))
