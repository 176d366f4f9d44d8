"""Solve until it is proved, for experts who switch: a reward by the value form, then a certificate from fresh data.

As in `prove`, every draw goes for good to training or to the proof, attempt i may fail with probability δ/2^i, and an
attempt is made only when training data forecast success.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from certirl.bases import Basis, Fourier, Legendre
from certirl.boxes import of_degree
from certirl.certify import check_declared, check_delta, divide, least_enough
from certirl.certify_policies import SwitchingCase
from certirl.domain import Domain, as_domain
from certirl.policies import as_policy
from certirl.policy_bounds import bands
from certirl.policy_certificate import PolicyCertificate, read
from certirl.policy_evidence import gather
from certirl.policy_solution import PolicySolution
from certirl.prove import FORECAST, TRAINING_SHARE, Pace, Pool, pursue
from certirl.simulator import CHUNK, Draws, as_generator, can_pair, check_simulator
from certirl.solve_policy import FEWEST, solve_policy
from certirl.tail import TailLike, tail_number
from certirl.transitions import Transitions, concatenate, pieces
from certirl.weigh import check_box

FIRST = 4_000  # transitions per action and column in the first round: with fewer the second order has no bound
PACE = Pace(least=1.3, most=3.0, confident=0.2, aim=0.3)  # forecasts think too well of the second order
MOST_FOR_A_REWARD = 300_000  # transitions per action that the value form looks at
COLUMNS, MOST_COLUMNS = {1: 15, 2: 21, 3: 20}, 40
TOLERABLE = 1e-3  # of the value's span: what a tail may cost


def prove_policy(
    simulator: Any,
    expert: Any,
    *,
    discount: float,
    delta: float,
    tail: TailLike = None,
    columns: Basis | int | None = None,
    tube: float | None = None,
    regret: float | None = None,
    max_samples: int = 1_000_000,
    rng: Any = None,
    paired: bool | None = None,
    watch: Callable[[str], None] | None = None,
    **form: Any,
) -> PolicySolution:
    """Find a reward for an expert who switches and certify it, with at most ``max_samples`` transitions per action.

    Args:
        simulator: the dynamics.
        expert: a function of states.
        discount: γ.
        delta: the probability of a false certificate, over all attempts.
        tail: as in `certify`.
        columns: functions of the state for the proof; as many polynomials as make the tail small if left out.
        tube: the half-width asked for.
        regret: what may be lost at worst by following the expert, as a share of the value's span; whatever comes out if
            left out.
        max_samples: transitions per action to stop at.
        rng: a seed or Generator.
        paired: as in `certify`.
        watch: told about every round.
        **form: of the value form: basis, reward_basis, margin and price.
    """
    check_delta(delta)
    check_simulator(simulator)
    domain = as_domain(simulator.domain)
    check_box(domain)
    policy = as_policy(expert, simulator.n_actions)
    chosen = _columns(columns, tail, domain, discount, simulator)
    if max_samples < 40 * chosen.size:
        raise ValueError(
            f"max_samples must be at least {40 * chosen.size} for {chosen.size} columns, got {max_samples}"
        )
    if regret is not None and not 0 < regret < 1:
        raise ValueError(f"regret must be a share of the value's span, between 0 and 1, got {regret}")
    generator = as_generator(rng, "prove_policy")
    paired = can_pair(simulator, chosen, generator, asked=paired)
    case = SwitchingCase.of(policy, chosen, tube, discount, tail)
    training, fresh = (Pool(simulator, chosen, stream, paired, case.design) for stream in generator.spawn(2))
    quest = _Switching(training, fresh, case, form, regret)
    fewest, pace = max(chosen.size + 2, FEWEST), PACE._replace(first=FIRST * chosen.size)
    found = pursue(quest, delta=delta, fewest=fewest, max_samples=max_samples, watch=watch, pace=pace)
    status = "certified" if found.certificate is not None and found.certificate.holds else quest.solution.status
    return replace(quest.solution, status=status, samples=found.samples, certificate=found.certificate)


class _Switching:
    """The quest for a certificate of an expert who switches; see `prove.Quest`."""

    solution: PolicySolution

    def __init__(
        self, training: Pool, fresh: Pool, case: SwitchingCase, form: dict[str, Any], regret: float | None
    ) -> None:
        self.training, self.fresh, self.status = training, fresh, "undetermined"
        self._case, self._form, self._regret = case, form, regret
        self._number = tail_number(case.tail, case.columns) or 0.0

    def learn(self) -> None:
        """A reward by the value form."""
        log = _log(self.training)
        self.solution = solve_policy(log, self._case.policy, discount=self._case.discount, rng=0, **self._form)
        self.status = "solved"  # whatever it explains, a certificate says what of it is true

    def forecast(self, fresh: int, delta: float) -> float:
        """From some of the training draws, seen again."""
        self._surrogate = self._case.surrogate(self.solution.reward, self.training)
        self._seen = gather(self._surrogate, self.training.leading(FORECAST))
        return self._left(fresh, delta)

    def _left(self, fresh: int, delta: float) -> float:
        """Of the margin, or of the regret that is allowed, whichever is less."""
        growth, s = fresh / int(self._seen.counts.min()), self._surrogate
        found = bands(s, self._seen, delta=delta, tail=self._number, growth=growth)
        tube = read(s, found, self._case.lookup, self._case.allowed)
        left = tube.margin / max(tube.estimated, 1e-300)
        return left if self._regret is None else min(left, 1 - tube.regret / max(self._regret * found.span, 1e-300))

    def certify(self, delta: float, others: dict[str, float]) -> PolicyCertificate:
        """From all fresh draws."""
        return self._case.conclude(self._surrogate, self.fresh, delta, others=others)

    def is_enough(self, certificate: PolicyCertificate) -> bool:
        """A positive margin, and no more regret than is allowed."""
        return certificate.margin > 0 and (self._regret is None or certificate.relative_regret <= self._regret)

    def needed(self, n: int, most: int, delta: float) -> int:
        """By forecasts for other n."""

        def enough(n: int) -> bool:
            return self._left(int((1 - TRAINING_SHARE) * n), delta) > PACE.aim

        return least_enough(enough, n, most) or most


def prove_policy_by_log(
    log: Transitions,
    expert: Any,
    *,
    discount: float,
    delta: float,
    tail: TailLike = None,
    columns: Basis | int | None = None,
    tube: float | None = None,
    rng: Any = None,
    **form: Any,
) -> PolicySolution:
    """The same from a log, which is divided once: one part finds the reward, the other proves it."""
    check_delta(delta)
    check_declared(log)
    check_box(log.domain)
    policy = as_policy(expert, log.n_actions)
    chosen = _columns(columns, tail, log.domain, discount, log)
    training, fresh = divide(log, TRAINING_SHARE, as_generator(0 if rng is None else rng))
    solution = solve_policy(training, policy, discount=discount, rng=0, **form)
    case = SwitchingCase.of(policy, chosen, tube, discount, tail)
    surrogate = case.surrogate(solution.reward, pieces(training, CHUNK))
    certificate = case.conclude(surrogate, pieces(fresh, CHUNK), delta)
    status = "certified" if certificate.holds else solution.status
    return replace(solution, status=status, samples=int(log.counts.min()), certificate=certificate)


def _columns(asked: Basis | int | None, tail: TailLike, domain: Domain, discount: float, simulator: Any) -> Basis:
    """What was asked for; else as few functions as make the tail cost little of the value's span."""
    if isinstance(asked, Basis):
        return asked.on(domain)
    choices = _choices(domain, tuple(getattr(simulator, "periodic", ())))
    if asked is not None or tail is None:
        size = COLUMNS[len(domain)] if asked is None else int(asked)
        return next((own for own in choices if own.size >= size), choices[-1]).resized(size)
    if isinstance(tail, int | float):
        like = "Legendre(15)" if len(domain) == 1 else f"product({', '.join(['Legendre(6)'] * len(domain))})"
        raise ValueError(f"the tail {tail} belongs to the columns it was computed for: pass columns, say {like}")
    for own in choices:
        number = tail_number(tail, own) or 0.0
        if number * (1 + (2 ** len(domain) * own.size) ** 0.5) / (1 - discount) < TOLERABLE:
            return own
    return choices[-1]


def _choices(domain: Domain, periodic: tuple[int, ...]) -> list[Basis]:
    """Columns to choose from, fewest first: of one coordinate any odd number, on a box all of a total degree."""
    if len(domain) > 1:
        found = [of_degree(domain, degree, periodic) for degree in range(1, MOST_COLUMNS)]
        return [own for own in found if own.size <= MOST_COLUMNS]
    family = Fourier if periodic else Legendre
    return [family(size).on(domain) for size in (*range(3, MOST_COLUMNS, 2), MOST_COLUMNS)]


def _log(pool: Pool) -> Transitions:
    """The first draws of a pool as a record."""
    simulator, parts, left = pool.parts[0].simulator, [], MOST_FOR_A_REWARD
    for part in pool.parts:
        piece: Draws = replace(part, n=min(part.n, left))
        left -= piece.n
        for found in piece if piece.n else ():
            parts.append(
                Transitions(
                    np.tile(found.states, (len(found.actions), 1)),
                    np.repeat(found.actions, len(found.states)),
                    found.next_states.reshape(-1, found.states.shape[1]),
                    domain=as_domain(simulator.domain),
                    n_actions=simulator.n_actions,
                    paired=part.paired,
                )
            )
    return concatenate(parts)
