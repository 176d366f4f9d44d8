"""Solve until it is proved: draw, recover, forecast, certify; more data until the certificate holds or the budget ends.

Every draw goes for good to one of two pools. Rewards are found on the training pool, certificates rest on the fresh
pool alone, so each attempt is valid by itself. Attempt i may fail with probability δ/2^i: together at most δ, whenever
we stop. An attempt is made only when the training pool forecasts success, which costs nothing: the first mostly
succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from certirl.data.moments import Moments, accumulate
from certirl.data.simulator import Design, Draws, Simulator, as_generator, draw
from certirl.data.transitions import Piece
from certirl.data.trials import can_pair
from certirl.fit.bellman import Bellman, bellman
from certirl.fit.estimate import Operators, estimate
from certirl.fit.recover import Recovery, recover
from certirl.functions.bases import Basis
from certirl.ground.domain import as_domain
from certirl.ground.doors import setting
from certirl.ground.progress import Watch
from certirl.ground.status import Claim
from certirl.proof.certify import Certificate, conclude, least_enough
from certirl.proof.evidence import surrogate_of
from certirl.proof.tail import TailLike, tail_number
from certirl.proof.weigh import check_columns, forecast_bounds, gather

TRAINING_SHARE = 0.3
FORECAST = 65_536  # training transitions per action that a forecast looks at again, at most
AFTER_FAILURE = 1.6  # the least growth after an attempt that failed


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

    def __init__(
        self,
        simulator: Simulator,
        basis: Basis,
        rng: np.random.Generator,
        paired: bool,
        design: bool | Design = True,
    ) -> None:
        self._draw = partial(draw, simulator, basis, rng=rng, design=design, paired=paired, refuse_terminal=True)
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


class Quest(Protocol):
    """What a search for a certificate needs to know how to do; whatever it certifies.

    Attributes:
        training, fresh: the two pools.
        status: of the program, after `learn`.
    """

    training: Pool
    fresh: Pool
    status: str

    def learn(self) -> None:
        """Take the newest training draws in and find a reward."""
        ...

    def forecast(self, fresh: int, delta: float) -> float:
        """The margin a certificate from so many fresh transitions should leave, as a share of the estimated one."""
        ...

    def certify(self, delta: float, others: dict[str, float]) -> Any:
        """The certificate that all fresh draws give."""
        ...

    def is_enough(self, certificate: Any) -> bool:
        """Whether it proves what was asked for."""
        ...

    def needed(self, n: int, most: int, delta: float) -> int:
        """The next n for which the forecast leaves what we aim for; ``most`` if none does."""
        ...


class Pace(NamedTuple):
    """How a search goes on.

    Attributes:
        first: transitions per action in the first round.
        least, most: what n may grow by from round to round: forecasts from little data are rough.
        confident: the share of the margin that a forecast must leave for an attempt: fresh data surprise both ways.
        aim: what the next round is sized to leave.
    """

    first: int = 4_000
    least: float = 1.15
    most: float = 2.5
    confident: float = 0.10
    aim: float = 0.15


USUAL = Pace()


class Ended(NamedTuple):
    """How a search ended: the certificate of the last round, transitions per action drawn, attempts made."""

    certificate: Any
    samples: int
    attempts: int


def left_for_refutation(max_samples: int, drawn: int, columns: int) -> int:
    """Transitions per action for a proof that there is no reward: half of the budget, or what the search left of it.

    0 if that is too little for the estimates that such a proof starts from: the conflict then stays undecided.
    """
    rest = min(max_samples - max_samples // 2, max_samples - drawn)
    return rest if 2 * rest >= least_budget(columns) else 0


def pursue(
    quest: Quest, *, delta: float, fewest: int, max_samples: int, watch: Watch | None, pace: Pace = USUAL
) -> Ended:
    """Rounds of learning and forecasting, with an attempt whenever one should succeed, until one does or n is spent.

    Args:
        quest: what is searched for.
        delta: of all attempts together.
        fewest: training draws that `learn` cannot do without.
        max_samples: transitions per action, training and fresh.
        watch: receives a line about every round.
        pace: how n grows.
    """
    spent, failed, n = 0, 0, min(pace.first, max_samples // 2)
    while True:
        quest.training.grow(max(int(TRAINING_SHARE * n), fewest))
        quest.learn()
        certificate = None  # an earlier attempt was about an earlier reward
        allowed, forecast = delta / 2 ** (spent + 1), float("nan")
        if quest.status == "solved":
            fresh = n - quest.training.size
            forecast = quest.forecast(fresh, allowed)
            if forecast > pace.confident or n >= max_samples:
                spent += 1
                quest.fresh.grow(fresh)
                certificate = quest.certify(allowed, _other_attempts(delta, spent))
        if watch is not None:
            watch(_line(n, forecast, certificate), n, max_samples)
        # A conflict is for `refute` to settle, on the other half of the budget.
        most = max_samples // 2 if quest.status == "infeasible" else max_samples
        if n >= most or (certificate is not None and quest.is_enough(certificate)):
            return Ended(certificate, quest.training.size + quest.fresh.size, spent)
        needed = quest.needed(n, max_samples, allowed / 2) if quest.status == "solved" else int(pace.most * n)
        least = AFTER_FAILURE if spent > failed else pace.least
        failed, n = spent, min(int(np.clip(needed, least * n, pace.most * n)) + 1, most)


def least_budget(columns: int) -> int:
    """Transitions per action below which no search is worth starting."""
    return 20 * columns + 100


def check_budget(max_samples: int, columns: int, least: int) -> None:
    """Refuse a budget that no certificate could come of."""
    if max_samples < least:
        raise ValueError(f"{setting('max_samples')} must be at least {least} for {columns} columns, got {max_samples}")


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
    check_budget(max_samples, columns, least_budget(columns))
    generator = as_generator(rng)
    paired = can_pair(simulator, basis, generator, asked=paired)
    training, fresh = (Pool(simulator, basis, stream, paired) for stream in generator.spawn(2))
    check_columns(basis.resized(columns).on(as_domain(simulator.domain)))
    problem = {"discount": discount, "expert": expert}
    quest = _Single(training, fresh, basis, columns, simulator.n_actions, problem, objective, tail)
    ended = pursue(quest, delta=delta, fewest=columns + 2, max_samples=max_samples, watch=watch)
    return Proof(quest.operators, quest.criterion, quest.recovery, *ended)


class _Single:
    """The quest for a certificate of one reward; see `Quest`."""

    operators: Operators
    criterion: Bellman
    recovery: Recovery

    def __init__(
        self,
        training: Pool,
        fresh: Pool,
        basis: Basis,
        columns: int,
        n_actions: int,
        problem: dict[str, Any],
        objective: str,
        tail: TailLike,
    ) -> None:
        self.training, self.fresh, self.status = training, fresh, "undetermined"
        self._basis, self._columns, self._n_actions = basis, basis.resized(columns), n_actions
        self._problem, self._objective, self._tail = problem, objective, tail
        self._number = tail_number(tail, self._columns) or 0.0
        self._moments: Moments | None = None

    def learn(self) -> None:
        """Estimate and recover."""
        ((new,),) = accumulate(self.training.parts[-1], [(self._basis, self._columns)], n_actions=self._n_actions)
        self._moments = new if self._moments is None else self._moments + new
        self.operators = estimate(self._moments)
        self.criterion = bellman(self.operators, **self._problem)
        self.recovery = recover(self.criterion, objective=self._objective)
        self.status = self.recovery.status

    def forecast(self, fresh: int, delta: float) -> float:
        """From some of the training draws, seen again."""
        assert self.recovery.reward is not None and self._moments is not None
        self._surrogate = surrogate_of(self.recovery.reward, self._moments, **self._problem)
        self._seen = gather(self._surrogate, self.training.leading(FORECAST))
        return self._left(fresh, delta)

    def _left(self, fresh: int, delta: float) -> float:
        factor = fresh / int(self._seen.counts.min())
        bounds = forecast_bounds(self._surrogate, self._seen, factor, delta=delta, tail=self._number)
        return min(bound.margin / max(bound.estimated, 1e-300) for bound in bounds)

    def certify(self, delta: float, others: dict[str, float]) -> Certificate:
        """From all fresh draws."""
        evidence = gather(self._surrogate, self.fresh)
        return conclude(self._surrogate, evidence, delta=delta, tail=self._tail, others=others)

    def is_enough(self, certificate: Certificate) -> bool:
        """A positive margin is."""
        return certificate.margin > 0

    def needed(self, n: int, most: int, delta: float) -> int:
        """By forecasts for other n."""

        def enough(n: int) -> bool:
            return self._left(int((1 - TRAINING_SHARE) * n), delta) > USUAL.aim

        return least_enough(enough, n, most) or most


def _other_attempts(delta: float, attempt: int) -> dict[str, float]:
    """The parts of δ that belong to attempts before this one and to those that may never be made."""
    earlier = {f"attempt {i}": delta / 2**i for i in range(1, attempt)}
    return earlier | {"later attempts": delta / 2**attempt}


def _line(n: int, forecast: float, certificate: Claim | None) -> str:
    if certificate is not None:
        losses = sum(certificate.losses.values())
        return f"{n:,} per action: margin {certificate.estimated:.3g}, band {losses:.3g}, {certificate.word}"
    if np.isnan(forecast):
        return f"{n:,} per action: no reward yet"
    if forecast == -np.inf:
        return f"{n:,} per action: too few for any bound"
    if forecast <= 0:
        return f"{n:,} per action: the bounds on the errors are still wider than the margin"
    return f"{n:,} per action: a certificate would leave {forecast:.0%} of the margin"
