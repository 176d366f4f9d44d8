"""Solve until it is proved: draw, recover, forecast, certify; more data until the certificate holds or the budget ends.

Every draw goes for good to one of two pools. Rewards are found on the training pool, certificates rest on the fresh
pool alone, so each attempt is valid by itself. Attempt i may fail with probability δ/2^i: together at most δ, whenever
we stop. An attempt is made only when the training pool forecasts success, which costs nothing: the first mostly
succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from certirl.bases import Basis
from certirl.bellman import Bellman, bellman
from certirl.certify import Certificate, conclude, least_enough
from certirl.domain import as_domain
from certirl.estimate import Operators, estimate
from certirl.evidence import Surrogate, surrogate_of
from certirl.moments import Moments, accumulate
from certirl.recover import Recovery, recover
from certirl.simulator import Draws, Simulator, as_generator, can_pair, draw
from certirl.tail import TailLike, tail_number
from certirl.transitions import Piece
from certirl.weigh import AnyEvidence, check_columns, forecast_bounds, gather

FIRST = 4_000  # transitions per action in the first round
TRAINING_SHARE = 0.3
FORECAST = 65_536  # training transitions per action that a forecast looks at again, at most
# Fresh data surprise both ways: an attempt is made when the forecast leaves this share of the margin, and the next
# round is sized to leave a little more. Forecasts from little data are rough, so n grows by bounded steps.
CONFIDENT, AIM = 0.10, 0.15
STEPS, AFTER_FAILURE = (1.15, 2.5), 1.6

Watch = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Proof:
    """What the search for a certificate ended with.

    Attributes:
        operators, criterion, recovery: of the training pool.
        certificate: of the last attempt; None if none was worth making.
        samples: transitions per action drawn in all.
        attempts: how many certificates were tried.
    """

    operators: Operators
    criterion: Bellman
    recovery: Recovery
    certificate: Certificate | None
    samples: int
    attempts: int


class Pool:
    """Draws that can be walked through again: only seeds and sizes are kept."""

    def __init__(self, simulator: Simulator, basis: Basis, rng: np.random.Generator, paired: bool) -> None:
        self._draw = partial(draw, simulator, basis, rng=rng, design=True, paired=paired)
        self.parts: list[Draws] = []

    @property
    def size(self) -> int:
        """Transitions per action."""
        return sum(part.n for part in self.parts)

    def grow(self, size: int) -> None:
        """Enlarge to this size; nothing is drawn until someone walks through."""
        if size > self.size:
            self.parts.append(self._draw(n=size - self.size))

    def leading(self, size: int) -> Draws:
        """The first draws, at most so many."""
        return replace(self.parts[0], n=min(self.parts[0].n, size))

    def __iter__(self) -> Iterator[Piece]:
        return (piece for part in self.parts for piece in part)

    def chunks(self) -> list[Draws]:
        """Those of all parts, in order."""
        return [chunk for part in self.parts for chunk in part.chunks()]


def prove(
    simulator: Simulator,
    *,
    basis: Basis,
    columns: int,
    discount: float,
    expert: int,
    delta: float,
    tail: TailLike,
    max_samples: int,
    rng: Any,
    objective: str = "least-variance",
    paired: bool | None = None,
    watch: Watch | None = None,
) -> Proof:
    """Find a reward and certify it with as few transitions as it takes, at most ``max_samples`` per action."""
    if max_samples < 20 * columns + 100:
        raise ValueError(f"max_samples must be at least {20 * columns + 100} for {columns} columns, got {max_samples}")
    generator = as_generator(rng)
    paired = can_pair(simulator, basis, generator, asked=paired)
    training, fresh = (Pool(simulator, basis, stream, paired) for stream in generator.spawn(2))
    narrow, n_actions = basis.resized(columns), simulator.n_actions
    check_columns(narrow.on(as_domain(simulator.domain)))
    number = tail_number(tail, narrow) or 0.0
    moments: Moments | None = None
    certificate, spent, failed, n = None, 0, 0, min(FIRST, max_samples)
    while True:
        training.grow(max(int(TRAINING_SHARE * n), columns + 2))
        ((new,),) = accumulate(training.parts[-1], [(basis, narrow)], n_actions=n_actions)
        moments = new if moments is None else moments + new
        operators = estimate(moments)
        criterion = bellman(operators, discount=discount, expert=expert)
        recovery = recover(criterion, objective=objective)
        certificate = None  # an earlier attempt was about an earlier reward
        needed, forecast = int(STEPS[1] * n), float("nan")
        if recovery.reward is not None and recovery.status == "solved":
            surrogate = surrogate_of(recovery.reward, moments, discount=discount, expert=expert)
            allowed = delta / 2 ** (spent + 1)
            seen = gather(surrogate, training.leading(FORECAST))
            forecast = _forecast(surrogate, seen, n - training.size, allowed, number)
            if forecast > CONFIDENT or n >= max_samples:
                spent += 1
                fresh.grow(n - training.size)
                evidence = gather(surrogate, fresh)
                certificate = conclude(
                    surrogate, evidence, delta=allowed, tail=tail, others=_other_attempts(delta, spent)
                )
            needed = _needed(surrogate, seen, n, max_samples, allowed / 2, number)
        if watch is not None:
            watch(_line(n, forecast, certificate))
        # A conflict is for `refute` to settle, on the other half of the budget.
        most = max_samples // 2 if recovery.status == "infeasible" else max_samples
        if n >= most or (certificate is not None and certificate.margin > 0):
            return Proof(operators, criterion, recovery, certificate, n, spent)
        least = AFTER_FAILURE if spent > failed else STEPS[0]
        failed, n = spent, min(int(np.clip(needed, least * n, STEPS[1] * n)) + 1, most)


def _forecast(surrogate: Surrogate, seen: AnyEvidence, fresh: int, delta: float, tail: float) -> float:
    """The margin a certificate from ``fresh`` transitions should leave, as a share of the estimated one."""
    bounds = forecast_bounds(surrogate, seen, fresh / int(seen.counts.min()), delta=delta, tail=tail)
    return min(bound.margin / max(bound.estimated, 1e-300) for bound in bounds)


def _needed(surrogate: Surrogate, seen: AnyEvidence, n: int, most: int, delta: float, tail: float) -> int:
    """The next n for which the forecast leaves what we aim for; ``most`` if none does."""

    def enough(n: int) -> bool:
        return _forecast(surrogate, seen, int((1 - TRAINING_SHARE) * n), delta, tail) > AIM

    return least_enough(enough, n, most) or most


def _other_attempts(delta: float, attempt: int) -> dict[str, float]:
    """The parts of δ that belong to attempts before this one and to those that may never be made."""
    earlier = {f"attempt {i}": delta / 2**i for i in range(1, attempt)}
    return earlier | {"later attempts": delta / 2**attempt}


def _line(n: int, forecast: float, certificate: Certificate | None) -> str:
    if certificate is not None:
        losses = sum(certificate.losses.values())
        return f"{n:,} per action: margin {certificate.estimated:.3g}, band {losses:.3g}, {certificate.word}"
    if np.isnan(forecast):
        return f"{n:,} per action: no reward yet"
    return f"{n:,} per action: a certificate would leave {forecast:.0%} of the margin"
