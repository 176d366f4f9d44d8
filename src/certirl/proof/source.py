"""Data for a proof: settings checked before any work, and a simulator or a log in two independent parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from certirl.data.simulator import Design, Simulator
from certirl.data.source import as_source
from certirl.data.transitions import Piece, Transitions
from certirl.functions.bases import Basis
from certirl.ground.doors import as_probability
from certirl.ground.progress import Report, check_progress, watched_stream
from certirl.proof.tail import check_tail

# The surrogate only takes out what is predictable; the proof rests on the other data.
FIT_SHARE = 0.2
SAMPLES = 100_000  # transitions per action that are drawn for a proof, where no number is given


def check_delta(delta: Any) -> float:
    """A probability of failure."""
    return as_probability(delta, "delta")


def check_settings(source: Any, samples: Any, *, tail: Any, paired: Any, progress: Any) -> int:
    """How many transitions per action to draw for a proof; refuse, before any work, settings without effect or sense.

    Args:
        source: a simulator, or a log, of which nothing is drawn.
        samples: as asked for; None for the usual number.
        tail: as in `certify`.
        paired: as in `certify`.
        progress: as in `certify`.
    """
    check_progress(progress)
    check_tail(tail)
    checked = as_source(source)
    checked.check_settings(samples=samples, paired=paired)
    checked.check_noise()
    return 0 if checked.log is not None else SAMPLES if samples is None else int(samples)


def check_enough(source: Any, samples: int, columns: int) -> None:
    """Refuse so few draws that the fresh ones cannot determine the columns."""
    least = next(n for n in range(columns + 1, 2 * columns + 2) if n - max(int(FIT_SHARE * n), 1) >= columns)
    if as_source(source).log is None and samples < least:
        raise ValueError(f"samples must be at least {least:,} for {columns} columns, got {samples:,}")


def split(
    source: Simulator | Transitions,
    columns: Basis,
    samples: int,
    rng: Any,
    share: float,
    progress: bool | Report | None,
    *,
    role: str,
    paired: bool | None,
    design: bool | Design = True,
) -> tuple[Iterable[Piece], Iterable[Piece]]:
    """Independent data for training and for the proof: two streams of draws, or a random division of a log."""
    whole = as_source(source)
    training, fresh = whole.divided(share, samples, columns, whole.generator(rng, role), design=design, paired=paired)
    return training, watched_stream(fresh, fresh.total, progress)
