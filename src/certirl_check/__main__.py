"""`python -m certirl_check FILE` and `certirl-check FILE`: check saved files without certirl."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from certirl_check import check

CODES = {"confirmed": 0, "nothing claimed": 3, "rejected": 5}
BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is confirmed of each file; the exit code is the largest of theirs, as `certirl check` has it."""
    parser = argparse.ArgumentParser(
        prog="certirl-check",
        description="Derive saved certificates, refutations and bands again from their sums.",
        epilog="exit codes: 0 confirmed, 2 no file that can be read, 3 nothing claimed, 5 rejected",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="written by save of a solution or a certificate")
    codes = []
    for path in parser.parse_args(arguments).files:
        try:
            verdict = check(path)
        except (OSError, ValueError) as problem:
            print(f"certirl-check: {problem}", file=sys.stderr)
            codes.append(BAD_INPUT)
        else:
            print(verdict)
            codes.append(CODES[verdict.verdict])
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
