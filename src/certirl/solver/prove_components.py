"""Solve until a sum is proved: the loop of `prove`, with the joint program and the certificate of sums.

Which objective gives the reward that is easiest to prove depends on the problem. Bounds of components add up, so that
few components with a reward lose less; within a component a value that varies little loses less. Both programs are
cheap next to the data: both are solved, and the training data forecast which proof should leave more. Fresh data have
no part in the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.data.moments import Moments, accumulate
from certirl.data.simulator import Simulator, as_generator
from certirl.data.transitions import Piece
from certirl.data.trials import can_pair
from certirl.fit.bellman import Bellman, bellman
from certirl.fit.estimate import Operators, estimate
from certirl.fit.recover import Recovery, recover
from certirl.functions.components import Component, SumBasis
from certirl.ground.progress import Watch
from certirl.proof.certify_components import FALL, AdditiveCertificate, Case, certify_sum, gather_all
from certirl.proof.tail import TailLike
from certirl.solver.prove import USUAL, Pool, check_budget, least_budget, pursue

FORECAST = 16_384  # training transitions per action that a forecast looks at again, at most
TRIED = ("least-variance", "l1")  # objectives, if none is asked for


@dataclass(frozen=True, eq=False)
class AdditiveProof:
    """What the search for a certificate ended with.

    Attributes:
        operators, criteria: of every component, from the training pool.
        recovery: the joint program's.
        certificate: of the last attempt; None if none was worth making.
        samples: transitions per action drawn in all.
        attempts: how many certificates were tried.
    """

    operators: tuple[Operators, ...]
    criteria: tuple[Bellman, ...]
    recovery: Recovery
    certificate: AdditiveCertificate | None
    samples: int
    attempts: int


def measure_components(
    stream: Iterable[Piece], components: Sequence[Component], columns: Sequence[int], *, n_actions: int
) -> list[Moments]:
    """The moments of every component, in one walk through whole transitions."""
    pairs = [(c.basis, c.basis.resized(size)) for c, size in zip(components, columns, strict=True)]
    views = [component.coordinates for component in components]
    return [own for (own,) in accumulate(stream, pairs, n_actions=n_actions, views=views)]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A reward that one objective found, and what is needed to judge it.

    Attributes:
        recovery: the joint program's.
        case: None without a reward.
        left: the share of the margin that a certificate should leave; −∞ without a reward.
    """

    recovery: Recovery
    case: Case | None = None
    left: float = -np.inf


def candidates(
    components: Sequence[Component],
    criteria: Sequence[Bellman],
    moments: Sequence[Moments],
    objective: str | None,
    **problem: Any,
) -> list[Candidate]:
    """What the objective finds, or those that are tried if none is asked for."""
    found = []
    for name in TRIED if objective is None else (objective,):
        recovery = recover(criteria, components=components, objective=name)
        if recovery.reward is None:
            return [Candidate(recovery)]  # there is none for any objective
        found.append(Candidate(recovery, Case(components, recovery.reward, moments, **problem)))
    return found


def best_of(found: Sequence[Candidate], seen: Iterable[Piece], fresh: int, delta: float, tail: TailLike) -> Candidate:
    """The candidate whose certificate should leave most of the margin, judged by training data, in one walk."""
    pairs = [(one.recovery, one.case) for one in found if one.case is not None]
    if not pairs:
        return found[0]
    surrogates = [own for _, case in pairs for own in case.surrogates]
    walked, judged = iter(gather_all(surrogates, [own for _, case in pairs for own in case.views], seen)), []
    for recovery, case in pairs:
        own = [next(walked) for _ in case.active]
        judged.append(Candidate(recovery, case, case.left(own, fresh, delta, tail)))
    return max(judged, key=lambda one: one.left)


def prove_sum(
    simulator: Simulator,
    components: Sequence[Component],
    *,
    columns: Sequence[int],
    discount: float,
    expert: int,
    delta: float,
    tail: TailLike,
    max_samples: int,
    rng: Any,
    objective: str | None,
    paired: bool | None,
    watch: Watch,
) -> AdditiveProof:
    """Draw, recover, certify; more data until the certificate holds or ``max_samples`` per action are used up."""
    check_budget(max_samples, max(columns), least_budget(max(columns)))
    generator = as_generator(rng)
    places: Any = SumBasis(tuple(components))
    paired = can_pair(simulator, places, generator, asked=paired)
    training, fresh = (Pool(simulator, places, stream, paired) for stream in generator.spawn(2))
    problem = {"discount": discount, "expert": expert}
    quest = _Sum(training, fresh, components, columns, simulator.n_actions, problem, objective, tail)
    ended = pursue(quest, delta=delta, fewest=max(columns) + 2, max_samples=max_samples, watch=watch)
    return AdditiveProof(quest.operators, quest.criteria, quest.best.recovery, *ended)


class _Sum:
    """The quest for a certificate of a sum of rewards; see `prove.Quest`."""

    operators: tuple[Operators, ...]
    criteria: tuple[Bellman, ...]
    best: Candidate

    def __init__(
        self,
        training: Pool,
        fresh: Pool,
        components: Sequence[Component],
        columns: Sequence[int],
        n_actions: int,
        problem: dict[str, Any],
        objective: str | None,
        tail: TailLike,
    ) -> None:
        self.training, self.fresh, self.status = training, fresh, "undetermined"
        self._components, self._columns, self._n_actions = components, columns, n_actions
        self._problem, self._objective, self._tail = problem, objective, tail
        self._moments: list[Moments] | None = None

    def learn(self) -> None:
        """Estimate every component and solve the joint program."""
        newest = self.training.parts[-1]
        new = measure_components(newest, self._components, self._columns, n_actions=self._n_actions)
        so_far = self._moments
        self._moments = new if so_far is None else [one + other for one, other in zip(so_far, new, strict=True)]
        self.operators = tuple(map(estimate, self._moments))
        self.criteria = tuple(bellman(own, **self._problem) for own in self.operators)
        self._found = candidates(self._components, self.criteria, self._moments, self._objective, **self._problem)
        self.best = self._found[0]
        self.status = self.best.recovery.status

    def forecast(self, fresh: int, delta: float) -> float:
        """Of the best candidate."""
        self.best = best_of(self._found, self.training.leading(FORECAST), fresh, delta, self._tail)
        return self.best.left

    def certify(self, delta: float, others: dict[str, float]) -> AdditiveCertificate:
        """From all fresh draws."""
        assert self.best.case is not None
        return certify_sum(self.best.case, self.fresh, delta=delta, tail=self._tail, others=others)

    def is_enough(self, certificate: AdditiveCertificate) -> bool:
        """A positive margin is."""
        return certificate.margin > 0

    def needed(self, n: int, most: int, delta: float) -> int:
        """As losses fall: forecasts for other n would cost as much again for every component."""
        lost = 1 - self.best.left
        return int(min(n * (lost / (1 - USUAL.aim)) ** (1 / FALL), most)) if np.isfinite(lost) else most
