"""The answer of the independent checker as a record: the checker itself shares no code with the rest."""

from __future__ import annotations

import os

from certirl import checker
from certirl.ground.records import Record


class Verdict(Record, checker.Verdict):
    """What the second derivation says about a file; attributes as in `certirl.checker.Verdict`."""


def check(path: str | os.PathLike[str]) -> Verdict:
    """Derive what a saved certificate or refutation claims again from its sums, and say whether it follows.

    Args:
        path: a file written by ``save`` of a solution, of a certificate or of a refutation.
    """
    return Verdict(**vars(checker.check(path)))
