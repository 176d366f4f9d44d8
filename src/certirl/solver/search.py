"""The search for a proof: learn from training data, forecast, prove or refute from fresh data, draw more.

Every transition belongs to one of two pools, permanently. Rewards are found on the training pool, proofs rest on the
fresh pool alone, so each attempt is valid by itself. The statement of attempt i is false with probability at most
δ/2^i, that of the last with at most what remains of δ: together at most δ, whenever the search stops. An attempt is
made only when the training pool forecasts success, which costs none of δ: the first usually succeeds. A log is divided
into the two pools once, for one attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from certirl.data.moments import Moments
from certirl.data.source import Pool
from certirl.functions.bases import Basis
from certirl.ground.work import Watch
from certirl.proof.case import Case
from certirl.proof.certificate import UNLIMITED, Certificate, Forecast, conclude, forecast, least_enough
from certirl.proof.certify import Attempt, attempt
from certirl.proof.refutation import Refutation
from certirl.proof.sums import gather
from certirl.proof.training import FORECAST, Fit, fit_surrogates

TRAINING_SHARE = 0.3
CERTAIN = 0.25  # of the tail: drawing stops if even this leaves no margin; rewards from more data can be better
AFTER_FAILURE = 1.6  # the least growth after an attempt that failed


class Candidate(NamedTuple):
    """A reward that was learned, to be certified.

    Attributes:
        reward: R.
        moments: of all training data, one for each component, where they were measured.
        answer: what the learner needs to name the solution again.
    """

    reward: Any
    moments: Sequence[Moments] | None
    answer: Any


class Learner(Protocol):
    """How rewards are found.

    Attributes:
        case: what is to be proved.
        classes: the functions of V of every component, for a proof that there is no reward; empty if none is tried.
        fewest: training transitions per action that `learn` needs.
        is_alike: an alternative action has exactly the expert's effect in the estimates, so that no number of samples
            leads to a proof.
    """

    case: Case
    classes: Sequence[Basis]
    fewest: int
    is_alike: bool

    def learn(self, training: Pool) -> Sequence[Candidate]:
        """Find rewards from all training transitions; none if the constraints conflict."""
        ...

    def moments(self) -> Sequence[Moments] | None:
        """The moments of all training data, where they were measured."""
        ...


class Schedule(NamedTuple):
    """How a search draws.

    Attributes:
        first: transitions per action in the first round.
        least, most: factors by which n may grow from round to round: forecasts from little data are rough.
        confident: the share of the margin that a forecast must leave for an attempt: fresh data vary both ways.
        aim: the share that the next round is sized to leave.
    """

    first: int = 4_000
    least: float = 1.15
    most: float = 2.5
    confident: float = 0.10
    aim: float = 0.15


class Proof(NamedTuple):
    """What an attempt gave: a certificate, a refutation, or neither if none was made.

    Attributes:
        certificate: of a reward.
        refutation: of all rewards.
        is_enough: it proves what was asked for.
    """

    certificate: Certificate | None = None
    refutation: Refutation | None = None
    is_enough: bool = False


class Outcome(NamedTuple):
    """The end of a search.

    Attributes:
        proof: of the last round.
        candidate: what the proof is about, or the last reward learned; None without any.
        samples: transitions per action drawn in all.
    """

    proof: Proof
    candidate: Candidate | None
    samples: int


class _Certifying:
    """An attempt to certify a reward.

    Args:
        case: what is to be proved.
        candidate: the reward.
        fit: of training data.
        regret: that may be lost at most, as a share of the value's span; None if any may.
    """

    def __init__(
        self,
        case: Case,
        candidate: Candidate,
        fit: Fit,
        regret: float | None,
    ) -> None:
        self.candidate, self._case, self._fit, self._regret = candidate, case, fit, regret

    def share(self, samples: int, delta: float) -> float:
        """Forecast which share of the margin, or of the regret allowed, a proof leaves; the smaller of the two."""
        expected = self._forecast(samples, delta)
        if self._regret is None:
            return expected.share
        return min(expected.share, 1 - expected.regret / max(self._regret * expected.value_span, 1e-300))

    def tail_is_too_large(self, samples: int, delta: float) -> bool:
        """Whether no amount of data gives a bound, by a forecast with a quarter of the tail: rewards still improve."""
        counts, parts = self._fit.evidence[0].counts, self._case.parts
        if not any(part.tail for part in parts) or counts.min() < 10 * max(part.columns.size for part in parts):
            return False
        limit = self._forecast(UNLIMITED, delta, tails=CERTAIN).margin
        if limit == -np.inf:  # under every reward
            return True
        return limit <= 0 < self._forecast(samples, delta, tails=0.0).margin

    def _forecast(self, samples: int, delta: float, tails: float = 1.0) -> Forecast:
        return forecast(self._case, *self._fit, samples=samples, delta=delta, tails=tails)

    def conclude(self, fresh: Pool, delta: float, others: dict[str, float]) -> Proof:
        """The certificate that the fresh data give."""
        surrogates, regret = self._fit.surrogates, self._regret
        evidence = gather(surrogates, fresh)
        proof = conclude(self._case, surrogates, evidence, delta=delta, others=others, goal=regret)
        return Proof(proof, None, proof.margin > 0 and (regret is None or proof.relative_regret <= regret))


class _Refuting:
    """An attempt to prove that there is no reward; as `_Certifying`."""

    candidate = None

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def share(self, samples: int, delta: float) -> float:
        """Forecast which share of the conflict a proof leaves."""
        return self._attempt.forecast(samples, delta)

    def tail_is_too_large(self, samples: int, delta: float) -> bool:
        """False: more training data may lead to a reward instead."""
        return False

    def conclude(self, fresh: Pool, delta: float, others: dict[str, float]) -> Proof:
        """The refutation that the fresh data give."""
        proof = self._attempt.conclude(fresh, delta=delta, others=others)
        return Proof(None, proof, proof.refuted)


def least_budget(columns: int) -> int:
    """Transitions per action below which no search is worth starting."""
    return 20 * columns + 100


def search(
    learner: Learner,
    training: Pool,
    fresh: Pool,
    *,
    delta: float,
    budget: int,
    schedule: Schedule,
    regret: float | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Rounds of learning and forecasting, with an attempt whenever one should succeed, until one does or n is spent.

    A tail that is too large for any amount of data ends the search with an attempt at once.

    Args:
        learner: finds rewards.
        training: the pool in which rewards are found.
        fresh: the pool that proofs rest on.
        delta: of all attempts together.
        budget: transitions per action, training and fresh.
        schedule: how n grows.
        regret: that a certificate may leave at most, as a share of the value's span; None if any will do.
        watch: receives a line about every round.
    """
    attempts, failed, n = 0, 0, min(schedule.first, budget)
    while True:
        is_last = n >= budget
        training.grow(max(int(TRAINING_SHARE * n), learner.fewest))
        candidates = learner.learn(training)
        if learner.is_alike:
            return Outcome(Proof(), None, training.size + fresh.size)
        samples = max(fresh.size, n - training.size)
        allowed = delta / 2**attempts if is_last else delta / 2 ** (attempts + 1)
        options = _options(learner, candidates, training, samples, allowed, regret)
        if options and not is_last and all(option.tail_is_too_large(samples, allowed) for option in options):
            is_last, allowed = True, delta / 2**attempts  # the certificate says that more data will not help
        shares = [option.share(samples, allowed) for option in options]
        proof, best = Proof(), int(np.argmax(shares)) if options else None
        candidate = candidates[0] if candidates else None
        if best is not None:
            candidate = options[best].candidate or candidate
            if shares[best] > schedule.confident or is_last:
                attempts += 1
                fresh.grow(samples)
                proof = options[best].conclude(fresh, allowed, _other_attempts(delta, attempts, is_last=is_last))
        if watch is not None:
            watch(_line(n, None if best is None else shares[best], proof), n, budget)
        if is_last or proof.is_enough:
            return Outcome(proof, candidate, training.size + fresh.size)
        needed = int(schedule.most * n)
        if best is not None:
            needed = _needed(options[best], n, budget, allowed / 2, schedule.aim)
        least = AFTER_FAILURE if attempts > failed else schedule.least
        failed, n = attempts, min(int(np.clip(needed, least * n, schedule.most * n)) + 1, budget)


def _options(
    learner: Learner,
    candidates: Sequence[Candidate],
    training: Pool,
    samples: int,
    delta: float,
    regret: float | None,
) -> list[Any]:
    """The attempts to choose from: to certify each reward learned, or to refute the class; from training data."""
    options: list[Any] = []
    if learner.classes:
        refuting = attempt(
            learner.case,
            learner.classes,
            training.leading(FORECAST),
            samples=samples,
            delta=delta,
            moments=learner.moments(),
        )
        options += [] if refuting is None else [_Refuting(refuting)]
    for candidate in candidates:
        fit = fit_surrogates(
            learner.case,
            candidate.reward,
            training,
            moments=candidate.moments,
            again=training.leading(FORECAST),
            samples=samples,
            delta=delta,
        )
        options.append(_Certifying(learner.case, candidate, fit, regret))
    return options


def _needed(option: Any, n: int, most: int, delta: float, aim: float) -> int:
    """The next n for which the forecast leaves what is aimed for; ``most`` if none does."""
    return least_enough(lambda n: option.share(int((1 - TRAINING_SHARE) * n), delta) > aim, n, most) or most


def _other_attempts(delta: float, attempt: int, *, is_last: bool) -> dict[str, float]:
    """The parts of δ of earlier attempts and of those that may never be made."""
    earlier = {f"attempt {i}": delta / 2**i for i in range(1, attempt)}
    return earlier if is_last else earlier | {"later attempts": delta / 2**attempt}


def _line(n: int, share: float | None, proof: Proof) -> str:
    """A round in words."""
    claim = proof.certificate or proof.refutation
    if claim is not None:
        losses = sum(claim.losses.values())
        return f"{n:,} per action: margin {claim.estimated:.3g}, losses {losses:.3g}, {claim.word}"
    if share is None:
        return f"{n:,} per action: no reward yet"
    if share == -np.inf:
        return f"{n:,} per action: too few for any bound"
    if share <= 0:
        return f"{n:,} per action: the bounds on the errors are still wider than the margin"
    return f"{n:,} per action: a proof would leave {share:.0%} of the margin"
