"""Data for a proof: a simulator or a log, refused where no proof can rest on it, in two independent parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from certirl.data.simulator import (
    CHUNK,
    NO_ENDS,
    Placing,
    Simulator,
    as_generator,
    as_samples,
    can_pair,
    check_simulator,
    draw,
    noise_fault,
    terminal_of,
)
from certirl.data.transitions import Piece, Transitions, continued_rows, has_repeats, pieces, repeated_rows
from certirl.functions.bases import Basis
from certirl.functions.box_products import on_box
from certirl.ground.domain import as_domain
from certirl.ground.doors import as_flag, as_probability
from certirl.ground.progress import Report, check_progress, watched_stream
from certirl.proof.tail import check_tail

# The surrogate only takes out what is predictable; the proof rests on the other data.
FIT_SHARE = 0.2
SAMPLES = 100_000  # transitions per action that are drawn for a proof, where no number is given
_ENDS_SOUGHT = {1: 401, 2: 101, 3: 25}  # states along each coordinate among which terminal ones are looked for


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
    if not isinstance(source, Transitions):
        check_simulator(source)
        if paired is not None:
            as_flag(paired, "paired")
        count = SAMPLES if samples is None else as_samples(samples)
        check_noise(source)
        return count
    for name, value in {"samples": samples, "paired": paired}.items():
        if value is not None:
            raise ValueError(f"{name} is for simulators: a log is used as it is, leave {name} out")
    return 0


def check_noise(simulator: Any) -> None:
    """Refuse, with a sentence, simulators whose random numbers no proof can rest on."""
    fault = noise_fault(simulator)
    if fault:
        raise ValueError(fault)


def check_enough(source: Any, samples: int, columns: int) -> None:
    """Refuse so few draws that the fresh ones cannot determine the columns."""
    least = next(n for n in range(columns + 1, 2 * columns + 2) if n - max(int(FIT_SHARE * n), 1) >= columns)
    if not isinstance(source, Transitions) and samples < least:
        raise ValueError(f"samples must be at least {least:,} for {columns} columns, got {samples:,}")


def has_ends(source: Any) -> bool:
    """Whether there are terminal states: marked in a log, or some of those at which a simulator is asked."""
    if isinstance(source, Transitions):
        return source.terminal is not None and bool(source.terminal.any())
    ended = terminal_of(source)
    if ended is None:
        return False
    domain = as_domain(source.domain)
    if len(domain) in _ENDS_SOUGHT:
        return bool(ended(on_box(domain, _ENDS_SOUGHT)).any())
    low, high = np.array(domain).T
    return bool(ended(low + (high - low) * np.random.default_rng(0).random((20_000, len(domain)))).any())


def check_endless(source: Any) -> None:
    """Refuse problems with terminal states."""
    if has_ends(source):
        raise ValueError(NO_ENDS)


def check_declared(transitions: Transitions) -> None:
    """Refuse logs that no proof can rest on.

    Fresh data would have placed the basis on a domain read off them, and new states may lie outside.
    """
    if transitions.domain_from_data:
        raise ValueError("a certificate needs a declared domain: write Transitions(…, domain=(low, high))")
    if has_ends(transitions):
        raise ValueError(NO_ENDS)
    sign = dependence(transitions)
    if sign is not None:
        finding, remedy, declaration = sign
        raise ValueError(f"{INDEPENDENT}, and {finding}: {remedy}, or {declaration or 'solve without delta'}")


INDEPENDENT = "a certificate needs transitions that are independent of each other"
_DECLARE = "write Transitions(…, independent=True) if each of them was drawn by itself"


def dependence(log: Transitions) -> tuple[str, str, str] | None:
    """What shows that the rows of a log are not independent of each other, and the remedy; None if nothing does.

    The third is what to write in Python where the sign can be wrong, empty where it cannot.
    """
    if log.episodes is not None and has_repeats(log.episodes[log.episodes >= 0]):
        return "the steps of an episode follow from each other", "keep one step of every episode", ""
    if log.independent is not None:
        return None if log.independent else ("these are declared not to be", "draw others", "")
    repeated = repeated_rows(log)
    if repeated:
        finding = f"{repeated:,} of {len(log):,} rows repeat the state, action and next state of another, as copies do"
        return finding, "keep one of each", _DECLARE
    continued = continued_rows(log)
    if continued:
        finding = (
            f"{continued:,} of {len(log):,} rows start in the very state in which another ends, as steps of a walk do"
        )
        return finding, "keep single steps from far apart", _DECLARE
    return None


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
    design: bool | Placing = True,
) -> tuple[Iterable[Piece], Iterable[Piece]]:
    """Independent data for training and for the proof: two streams of draws, or a random division of a log."""
    if isinstance(source, Transitions):
        first, second = divide(source, share, as_generator(0 if rng is None else rng))
        return pieces(first, CHUNK), watched_stream(pieces(second, CHUNK), len(second), progress)
    generator = as_generator(rng, role)
    paired = can_pair(source, columns, generator, asked=paired)
    training, fresh = generator.spawn(2)
    few = max(int(share * samples), 1)
    rest = max(samples - few, 1)
    stream = draw(source, columns, rest, fresh, design=design, paired=paired, endless=True)
    total = rest * source.n_actions
    return (
        draw(source, columns, few, training, design=design, paired=paired, endless=True),
        watched_stream(stream, total, progress),
    )


def divide(transitions: Transitions, share: float, rng: np.random.Generator) -> tuple[Transitions, Transitions]:
    """Two disjoint random parts of a log that a proof can rest on, whole pairs together."""
    check_declared(transitions)
    n = int(transitions.counts[0]) if transitions.paired else len(transitions)
    chosen = np.zeros(n, dtype=bool)
    chosen[rng.choice(n, max(int(share * n), 1), replace=False, shuffle=False)] = True
    if transitions.paired:
        rank = np.empty(len(transitions), dtype=np.intp)
        for action in range(transitions.n_actions):
            rank[transitions.actions == action] = np.arange(n)
        chosen = chosen[rank]
    if chosen.all() or not chosen.any():
        raise ValueError(f"{len(transitions)} transitions are too few to set some aside for a certificate")
    return transitions.where(chosen), transitions.where(~chosen)
