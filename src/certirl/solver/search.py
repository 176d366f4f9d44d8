"""The search for a proof: learn from training data, forecast, prove or refute from fresh data, draw more.

Every transition belongs to one of two pools, permanently. Rewards are found on the training pool, proofs rest on the
fresh pool alone, so each attempt is valid by itself. Each spends three quarters of what is left of δ, the last all of
it: the statements are false with probability at most δ together, whenever the search stops. An attempt is made only
when the training pool forecasts success, which costs none of δ: the first usually succeeds. A log is divided
into the two pools once, for one attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from typing import Any, NamedTuple, Protocol

import numpy as np

from certirl.data.moments import Moments
from certirl.data.source import Pool
from certirl.functions.bases import Basis
from certirl.ground import archive
from certirl.ground.records import Record
from certirl.ground.status import rounded_down
from certirl.ground.work import Watch
from certirl.proof.case import Case
from certirl.proof.certificate import UNLIMITED, Certificate, Forecast, conclude, forecast, least_enough
from certirl.proof.cost import cost
from certirl.proof.refutation import Attempt, Refutation, attempt
from certirl.proof.sums import gather
from certirl.proof.tails import tail_in_numbers
from certirl.proof.training import FORECAST, Fit, fit_surrogates

TRAINING_SHARE = 0.3
CERTAIN = 0.25  # of the tail: drawing stops if even this leaves no margin; rewards from more data can be better
FIRST = 4_000  # transitions per action in the first round of draws
LEAST, MOST = 1.15, 2.5  # factors by which n may grow from round to round: forecasts from little data are rough
SPENT = 0.75  # the share of what is left of δ that an attempt spends
AFTER_FAILURE = 1.6  # the least growth after an attempt that failed
CONFIDENT = 0.10  # the share of the margin that a forecast must leave for an attempt: fresh data vary both ways
AIM = 0.15  # the share that the next round is sized to leave


class Learned(NamedTuple):
    """What a learner found in the training data.

    Attributes:
        candidates: records with a ``reward``; none if the constraints conflict.
        answer: what the learner's solution is made of, with candidates and without.
        moments: of all training data, one for each component; None where they were not measured.
        classes: the functions of V of every component, for a proof that there is no reward; empty if none is tried.
        is_alike: an alternative action has exactly the expert's effect in the estimates, so that no number of samples
            leads to a proof.
    """

    candidates: Sequence[Any]
    answer: Any
    moments: Sequence[Moments] | None = None
    classes: Sequence[Basis] = ()
    is_alike: bool = False


class Learner(Protocol):
    """How rewards are found.

    Attributes:
        fewest: training transitions per action that `learn` needs.
    """

    fewest: int

    def learn(self, training: Pool) -> Learned:
        """Rewards from all training transitions."""


class Plan(Protocol):
    """How a reward is proved: fixed by training data."""

    def forecast(self, samples: int, delta: float) -> Forecast:
        """What this many fresh transitions per action should prove with a part of δ."""

    def conclude(self, fresh: Pool, *, delta: float, others: dict[str, float], goal: float | None) -> Certificate:
        """What the fresh data prove."""

    def is_never_bounded(self, samples: int, delta: float) -> bool:
        """Whether no amount of data gives a bound."""

    def note(self, samples: int, delta: float) -> str:
        """What the forecast says of the tail; empty where it costs little."""


class Theorem(Protocol):
    """By which rewards are proved: what is declared of the dynamics chooses it."""

    def plan(self, reward: Any, training: Pool, *, moments: Any, samples: int, delta: float) -> Plan:
        """How a reward is proved."""

    def refuting(
        self, classes: Sequence[Basis], training: Pool, *, moments: Any, samples: int, delta: float
    ) -> Attempt | None:
        """How it is proved that there is no reward; None where that is not tried."""

    def cost(self, training: Pool, budget: int) -> Any:
        """What a proof costs, in words; empty if little."""


class ByColumns(NamedTuple):
    """The theorem for columns and a tail.

    Attributes:
        case: what is to be proved.
    """

    case: Case

    def plan(self, reward: Any, training: Pool, **settings: Any) -> _ColumnsPlan:
        """As of a `Theorem`."""
        again = training.leading(FORECAST)
        return _ColumnsPlan(self.case, fit_surrogates(self.case, reward, training, again=again, **settings))

    def refuting(self, classes: Sequence[Basis], training: Pool, **settings: Any) -> Attempt | None:
        """As of a `Theorem`; it rests on independent rows, and there are none in a log in the order of time."""
        if self.case.sampling == "order":
            return None
        return attempt(self.case, classes, training.leading(FORECAST), **settings)

    def cost(self, training: Pool, budget: int) -> Any:
        """As of a `Theorem`."""
        return cost(self.case, training, budget, TRAINING_SHARE)


class _ColumnsPlan(NamedTuple):
    case: Case
    fit: Fit

    def forecast(self, samples: int, delta: float, tails: float = 1.0) -> Forecast:
        return forecast(self.case, *self.fit, samples=samples, delta=delta, tails=tails)

    def conclude(self, fresh: Pool, **settings: Any) -> Certificate:
        return conclude(self.case, self.fit.surrogates, gather(self.fit.surrogates, fresh), **settings)

    def is_never_bounded(self, samples: int, delta: float) -> bool:
        """By a forecast with a quarter of the tail: rewards still improve."""
        columns = max(part.columns.size for part in self.case.parts)
        if not any(part.tail for part in self.case.parts) or self.fit.evidence[0].counts.min() < 10 * columns:
            return False
        limit = self.forecast(UNLIMITED, delta, CERTAIN).margin
        if limit == -np.inf:  # under every reward
            return True
        return limit <= 0 < self.forecast(samples, delta, 0.0).margin

    def note(self, samples: int, delta: float) -> str:
        """The columns, their τ and the τ that the forecast margin needs, where the tail costs a quarter or more."""
        expected = self.forecast(samples, delta)
        if not max(expected.estimated / 4, 0.0) < expected.tail < np.inf:
            return ""
        parts = (self.case.parts[surrogate.component] for surrogate in self.fit.surrogates)
        part = max(parts, key=lambda part: part.tail or 0.0)
        needed = (part.tail or 0.0) * max(expected.margin + expected.tail, 0.0) / expected.tail
        said = f"this margin needs τ < {rounded_down(needed, 2):.2g}" if needed else "and no τ leaves a margin yet"
        return f"; {tail_in_numbers(part.tail or 0.0, part.columns, part.name)}, {said}"


@archive.record
@dataclass(frozen=True)
class Round(Record):
    """A round of a search: shares are of the estimated margin, NaN where there are none.

    Attributes:
        samples: transitions per action, training and fresh.
        forecast: the share that a proof was expected to leave.
        proved: the share that an attempt at a proof left; negative if it failed.
        delta: the part of δ that the attempt spent; 0 without one.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> asked = {"basis": certirl.Legendre(7), "columns": 3, "delta": 0.05, "tail": 0}
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, rng=0, **asked)
        >>> last = solution.stats.search[-1]
        >>> last.samples == solution.samples, last.proved > 0, 0 < last.delta <= 0.05
        (True, True, True)
    """

    samples: int
    forecast: float = nan
    proved: float = nan
    delta: float = 0.0


class Outcome(NamedTuple):
    """The end of a search.

    Attributes:
        learned: from the last training data.
        candidate: what the proof is about, or the last one learned; None without any.
        certificate: of the candidate, if that was the last attempt.
        refutation: of all rewards, if that was the last attempt.
        samples: transitions per action drawn in all.
        rounds: in order.
    """

    learned: Learned
    candidate: Any
    certificate: Certificate | None
    refutation: Refutation | None
    samples: int
    rounds: tuple[Round, ...] = ()


class _Option(NamedTuple):
    """An attempt that could be made.

    Attributes:
        candidate: whose reward is to be certified; None to prove that there is none.
        share: forecasts, from fresh transitions per action and δ, which share of the margin a proof leaves.
        conclude: what fresh data prove, of ``(fresh, delta=…, others=…)``.
        is_never_bounded: whether no amount of data gives a bound, of the arguments of ``share``.
        note: what the forecast says of the tail, of the same arguments; empty where the tail costs little.
    """

    candidate: Any
    share: Callable[[int, float], float]
    conclude: Callable[..., Certificate | Refutation]
    is_never_bounded: Callable[[int, float], bool]
    note: Callable[[int, float], str] = lambda samples, delta: ""


def _share(plan: Plan, regret: float | None, samples: int, delta: float) -> float:
    """Forecast which share of the margin, or of the regret allowed, a certificate leaves; the smaller of the two."""
    expected = plan.forecast(samples, delta)
    if regret is None:
        return expected.share
    return min(expected.share, 1 - expected.regret / max(regret * expected.value_span, 1e-300))


def _refuting_share(refuting: Attempt, single: float, samples: int, delta: float) -> float:
    return refuting.forecast(max(int(single * samples), 1), delta)


def _refutation(refuting: Attempt, fresh: Pool, **settings: Any) -> Refutation:
    return refuting.conclude(fresh.independent(), **settings)


def least_budget(columns: int) -> int:
    """Transitions per action below which no search is worth starting."""
    return 20 * columns + 100


def search(
    theorem: Theorem,
    learner: Learner,
    training: Pool,
    fresh: Pool,
    *,
    delta: float,
    budget: int,
    regret: float | None = None,
    watch: Watch | None = None,
    say: Callable[[Any], None] | None = None,
) -> Outcome:
    """Rounds of learning and forecasting, with an attempt whenever one should succeed, until one does or n is spent.

    A tail that is too large for any amount of data ends the search with an attempt at once.

    Args:
        theorem: proves them.
        learner: finds rewards.
        training: the pool in which rewards are found.
        fresh: the pool that proofs rest on.
        delta: of all attempts together.
        budget: transitions per action, training and fresh; all of them in one round if the pools do not grow.
        regret: that a certificate may leave at most, as a share of the value's span; None if any will do.
        watch: receives a line about every round.
        say: receives, before the first round, what a proof from the whole budget costs.
    """
    attempts, failed, n = 0, 0, min(FIRST, budget) if training.grows else budget
    rounds = list[Round]()
    while True:
        is_last = n >= budget
        training.grow(max(int(TRAINING_SHARE * n), learner.fewest))
        if say is not None:
            if words := theorem.cost(training, budget):
                say(words)
            say = None
        learned = learner.learn(training)
        if learned.is_alike:
            return Outcome(learned, None, None, None, training.size + fresh.size)
        samples = max(fresh.expected, n - training.size)
        left = delta * (1 - SPENT) ** attempts
        allowed = left if is_last else SPENT * left
        options = _options(theorem, learned, training, samples, allowed, regret, fresh.single_share)
        if options and not is_last and all(option.is_never_bounded(samples, allowed) for option in options):
            is_last, allowed = True, left  # the certificate says that more data will not help
        shares = [option.share(samples, allowed) for option in options]
        proof, best = None, int(np.argmax(shares)) if options else None
        candidate = learned.candidates[0] if learned.candidates else None
        if best is not None:
            candidate = options[best].candidate or candidate
            if shares[best] > CONFIDENT or is_last:
                attempts += 1
                fresh.grow(samples)
                others = _other_attempts(delta, attempts, is_last=is_last)
                proof = options[best].conclude(fresh, delta=allowed, others=others)
        rounds.append(_round(n, None if best is None else shares[best], proof, allowed))
        if watch is not None:
            note = "" if best is None or proof is not None else options[best].note(samples, allowed)
            watch(_line(n, None if best is None else shares[best], proof) + note, n, budget)
        if is_last or (proof is not None and _is_enough(proof, regret)):
            certificate = proof if isinstance(proof, Certificate) else None
            refutation = proof if isinstance(proof, Refutation) else None
            return Outcome(learned, candidate, certificate, refutation, training.size + fresh.size, tuple(rounds))
        needed = int(MOST * n)
        if best is not None:
            needed = _needed(options[best], n, budget, SPENT * delta * (1 - SPENT) ** attempts)
        least = AFTER_FAILURE if attempts > failed else LEAST
        failed, n = attempts, min(int(np.clip(needed, least * n, MOST * n)) + 1, budget)


def _is_enough(proof: Certificate | Refutation, regret: float | None) -> bool:
    """Whether the attempt proves what was asked for."""
    return proof.spare > 0 and (regret is None or getattr(proof, "relative_regret", 0.0) <= regret)


def _options(
    theorem: Theorem,
    learned: Learned,
    training: Pool,
    samples: int,
    delta: float,
    regret: float | None,
    single: float,
) -> list[_Option]:
    """The attempts to choose from: to certify each reward learned, or to refute the class; from training data.

    A refutation is planned where no reward is forecast to keep a margin and comparisons of training data cancel. It
    rests on independent rows, ``single`` of all.
    """
    options = list[_Option]()
    settings: dict[str, Any] = {"moments": learned.moments, "delta": delta}
    for candidate in learned.candidates:
        plan = theorem.plan(candidate.reward, training, samples=samples, **settings)
        prove = partial(plan.conclude, goal=regret)
        options.append(_Option(candidate, partial(_share, plan, regret), prove, plan.is_never_bounded, plan.note))
    hopeless = all(option.share(samples, delta) <= 0 for option in options)
    if learned.classes and hopeless:
        rows = max(int(single * samples), 1)
        refuting = theorem.refuting(learned.classes, training, samples=rows, **settings)
        if refuting is not None:  # more training data may always lead to a reward instead
            share, refute = partial(_refuting_share, refuting, single), partial(_refutation, refuting)
            options.insert(0, _Option(None, share, refute, lambda samples, delta: False))
    return options


def _needed(option: _Option, n: int, most: int, delta: float) -> int:
    """The next n for which the forecast leaves what is aimed for; ``most`` if none does."""
    return least_enough(lambda n: option.share(int((1 - TRAINING_SHARE) * n), delta) > AIM, n, most) or most


def _other_attempts(delta: float, attempt: int, *, is_last: bool) -> dict[str, float]:
    """The parts of δ of earlier attempts and of those that may never be made."""
    left = [delta * (1 - SPENT) ** i for i in range(attempt + 1)]
    earlier = {f"attempt {i}": SPENT * left[i - 1] for i in range(1, attempt)}
    return earlier if is_last else earlier | {"later attempts": left[attempt]}


def _round(samples: int, share: float | None, proof: Certificate | Refutation | None, delta: float) -> Round:
    """A round as it is kept."""
    expected = nan if share is None or not isfinite(share) else share
    if proof is None:
        return Round(samples, expected)
    estimated = proof.estimated - proof.required
    is_share = isfinite(proof.margin) and estimated > 0
    return Round(samples, expected, proof.spare / estimated if is_share else nan, delta)


def _line(n: int, share: float | None, proof: Certificate | Refutation | None) -> str:
    """A round in words."""
    if proof is not None:
        losses = sum(proof.losses.values())
        return f"{n:,} per action: margin {proof.estimated:.3g}, losses {losses:.3g}, {proof.word}"
    if share is None:
        return f"{n:,} per action: no reward yet"
    if share == -np.inf:
        return f"{n:,} per action: too few for any bound"
    if share <= 0:
        return f"{n:,} per action: the bounds on the errors are still wider than the margin"
    return f"{n:,} per action: a proof would leave {share:.0%} of the margin"
