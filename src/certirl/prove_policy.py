"""Solve until it is proved, for experts who switch: a reward by the value form, then a certificate from fresh data.

As in `prove`, every draw goes for good to training or to the proof, attempt i may fail with probability δ/2^i, and an
attempt is made only when training data forecast success. Where training data conflict instead, the attempt is to prove
that no value function of the class explains the expert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certirl.bases import Basis, Fourier, Legendre
from certirl.certify import check_declared, check_delta, divide, least_enough
from certirl.certify_policies import WIDTHS, allowed_tube, reward_bounds
from certirl.conflicts import Contests, contests
from certirl.domain import Domain, as_domain, one_coordinate
from certirl.policies import Policy, as_policy
from certirl.policy_bounds import bands
from certirl.policy_certificate import PolicyCertificate, conclude_policy
from certirl.policy_evidence import PolicyEvidence, PolicySurrogate, fit_policy_surrogate, gather
from certirl.policy_solution import PolicySolution
from certirl.prove import TRAINING_SHARE, Pool
from certirl.refute import Plan, Refutation, conclude, settle
from certirl.simulator import CHUNK, Draws, as_generator, can_pair, check_simulator
from certirl.solve_policy import solve_policy
from certirl.surprises import Expected
from certirl.surprises import gather as surprises
from certirl.tail import TailLike, tail_number
from certirl.transitions import Piece, Transitions, concatenate, pieces
from certirl.tubes import Lookup, look_up, read_tube

FIRST = 60_000  # transitions per action in the first round: with fewer the second order decides, and has no bound
STEPS, AFTER_FAILURE = (1.3, 3.0), 1.6
ENOUGH = 1.5  # times what a refutation is forecast to need, for an attempt
CONFIDENT = 0.15  # of the estimated margin: what a forecast must leave for an attempt
MOST_FOR_A_REWARD = 100_000  # transitions per action that the value form looks at
FORECAST = 65_536  # training transitions per action that a forecast looks at again
COLUMNS, MOST_COLUMNS = 15, 40
MOST_REFUTED = 9  # functions of V up to which cones have a chance
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
        columns: functions of the state for the proof; as many Legendre functions as make the tail small if left out.
        tube: the half-width asked for.
        max_samples: transitions per action to stop at.
        rng: a seed or Generator.
        paired: as in `certify`.
        watch: told about every round.
        **form: of the value form: basis, reward_basis, margin and price.
    """
    check_delta(delta)
    check_simulator(simulator)
    domain = as_domain(simulator.domain)
    one_coordinate(domain, "a certificate is")
    policy = as_policy(expert, simulator.n_actions)
    chosen = _columns(columns, tail, domain, discount, simulator)
    _check_budget(max_samples, chosen.size)
    generator = as_generator(rng, "prove_policy")
    paired = can_pair(simulator, chosen, generator, asked=paired)
    training, fresh = (Pool(simulator, chosen, stream, paired) for stream in generator.spawn(2))
    lookup, allowed, spent = look_up(policy, domain), allowed_tube(tube, domain), 0
    number, n = tail_number(tail, chosen) or 0.0, min(FIRST, max_samples)
    absence = _Absence(policy, chosen, allowed, tail)
    while True:
        training.grow(int(TRAINING_SHARE * n))
        solution = solve_policy(_log(training), policy, discount=discount, rng=0, **form)
        surrogate = _surrogate(solution, policy, training, chosen, lookup, allowed)
        seen = gather(surrogate, training.leading(FORECAST))
        own, more = delta / 2 ** (spent + 1), (n - training.size) / seen.counts.min()
        left = share_left(surrogate, seen.forecast(more), lookup, allowed, own, number)
        certificate = None
        if left > CONFIDENT or n >= max_samples:
            spent += 1
            fresh.grow(n - training.size)
            settings: dict[str, Any] = {"allowed": allowed, "tail": tail, **_spending(delta, spent)}
            certificate = conclude_policy(surrogate, gather(surrogate, fresh), lookup, **settings)
        if watch is not None:
            watch(_line(n, left, certificate))
        if _may_be_refuted(solution) and (certificate is None or certificate.margin <= 0):
            own, last = delta / 2 ** (spent + 1), n >= max_samples
            refutation = absence.by_draws(solution, training, fresh, n, own, sure=last)
            spent += refutation is not None
            if refutation is not None and (last or refutation.holds):
                return _without_reward(replace(solution, samples=n, certificate=certificate), refutation)
        if n >= max_samples or (certificate is not None and certificate.margin > 0):
            status = "certified" if certificate is not None and certificate.holds else solution.status
            return replace(solution, status=status, samples=n, certificate=certificate)
        step = AFTER_FAILURE if certificate is not None else STEPS[0]
        needed = _needed(surrogate, seen, lookup, allowed, own / 2, number, n, max_samples)
        n = min(int(np.clip(needed, step * n, STEPS[1] * n)) + 1, max_samples)


def _spending(delta: float, attempt: int) -> dict[str, Any]:
    """δ of an attempt, and the parts that belong to others, made before or never."""
    earlier = {f"attempt {i}": delta / 2**i for i in range(1, attempt)}
    return {"delta": delta / 2**attempt, "others": earlier | {"later attempts": delta / 2**attempt}}


def _check_budget(max_samples: int, columns: int) -> None:
    if max_samples < 40 * columns:
        raise ValueError(f"max_samples must be at least {40 * columns} for {columns} columns, got {max_samples}")


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
    one_coordinate(log.domain, "a certificate is")
    policy = as_policy(expert, log.n_actions)
    chosen = _columns(columns, tail, log.domain, discount, log)
    training, fresh = divide(log, TRAINING_SHARE, as_generator(0 if rng is None else rng))
    solution = solve_policy(training, policy, discount=discount, rng=0, **form)
    lookup, allowed = look_up(policy, log.domain), allowed_tube(tube, log.domain)
    surrogate = _surrogate(solution, policy, pieces(training, CHUNK), chosen, lookup, allowed)
    evidence = gather(surrogate, pieces(fresh, CHUNK))
    doubt = _may_be_refuted(solution)
    shared: dict[str, Any] = {"delta": delta / 2, "others": {"refutation": delta / 2}} if doubt else {"delta": delta}
    certificate = conclude_policy(surrogate, evidence, lookup, allowed=allowed, tail=tail, **shared)
    status = "certified" if certificate.holds else solution.status
    found = replace(solution, status=status, samples=int(log.counts.min()), certificate=certificate)
    if not doubt or certificate.holds:
        return found
    absence = _Absence(policy, chosen, allowed, tail)
    plan = absence.settled(solution, pieces(training, CHUNK), delta / 2)
    return _without_reward(found, absence.weighed(plan, pieces(fresh, CHUNK), delta / 2))


def _may_be_refuted(solution: PolicySolution) -> bool:
    """Training data conflict, in a class that is small enough for cones."""
    return solution.conflict is not None and solution.value.basis.size <= MOST_REFUTED


class _Absence(NamedTuple):
    """The question whether any value function of the class explains the expert."""

    policy: Policy
    columns: Basis
    tube: float
    tail: TailLike

    @property
    def rivalry(self) -> Contests:
        """The rows that may conflict."""
        return contests(self.policy, self.columns, tube=self.tube)

    def settled(self, solution: PolicySolution, training: Iterable[Piece], delta: float) -> Plan:
        """What fresh data will be asked."""
        rows, number = solution.value.basis, tail_number(self.tail, self.columns) or 0.0
        assert isinstance(rows, Basis)  # V is an expansion; its reward need not be one
        return settle(training, rows, self.columns, self.rivalry, delta=delta, tail=number)

    def weighed(self, plan: Plan, stream: Iterable[Piece], delta: float) -> Refutation:
        """What they answer."""
        (sums,) = surprises([Expected(plan.rows, plan.columns, plan.fits)], stream)
        settings: dict[str, Any] = {"delta": delta, "tail": self.tail, "notes": self.rivalry.notes}
        return conclude(plan, sums, numbers=len(plan.which), **settings)

    def by_draws(
        self, solution: PolicySolution, training: Pool, fresh: Pool, n: int, delta: float, *, sure: bool
    ) -> Refutation | None:
        """The answer of n − training fresh draws; None if training data forecast that they will not do."""
        plan = self.settled(solution, training, delta)
        needed = self.weighed(plan, training.leading(FORECAST), delta).samples_needed
        if not sure and (needed is None or ENOUGH * needed > n - training.size):
            return None
        fresh.grow(n - training.size)
        return self.weighed(plan, fresh, delta)


def _without_reward(solution: PolicySolution, refutation: Refutation) -> PolicySolution:
    """With what was proved about the absence of a reward."""
    if not refutation.holds:
        return replace(solution, refutation=str(refutation))
    reason = f"no reward whose value lies in {refutation.plan.rows} makes the expert strictly optimal"
    proved: dict[str, Any] = {"conflict": refutation.conflict, "refutation": str(refutation)}
    return replace(solution, status="infeasible", reason=reason + refutation.plan.where, **proved)


def _columns(asked: Basis | int | None, tail: TailLike, domain: Domain, discount: float, simulator: Any) -> Basis:
    """What was asked for; else as few functions as make the tail cost little of the value's span."""
    family = Fourier if getattr(simulator, "periodic", ()) else Legendre
    if isinstance(asked, Basis):
        return asked.on(domain)
    if asked is not None or tail is None:
        return family(COLUMNS if asked is None else int(asked)).on(domain)
    if isinstance(tail, int | float):
        raise ValueError(f"the tail {tail} belongs to the columns it was computed for: pass columns, say Legendre(15)")
    for size in range(3, MOST_COLUMNS, 2):
        number = tail_number(tail, family(size).on(domain)) or 0.0
        if number * (1 + (2 * size) ** 0.5) / (1 - discount) < TOLERABLE:
            return family(size).on(domain)
    return family(MOST_COLUMNS).on(domain)


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


def _surrogate(
    solution: PolicySolution,
    policy: Policy,
    training: Iterable[Piece],
    columns: Basis,
    lookup: Lookup,
    allowed: float,
) -> PolicySurrogate:
    reward_range, _ = reward_bounds(solution.reward, columns.domain)
    settings: dict[str, Any] = {"columns": columns, "discount": solution.discount, "reward_range": reward_range}
    settings |= {"switches": lookup.switches, "widths": allowed * np.array(WIDTHS)}
    return fit_policy_surrogate(solution.reward, policy, training, **settings)


def share_left(
    surrogate: PolicySurrogate, evidence: PolicyEvidence, lookup: Lookup, allowed: float, delta: float, tail: float
) -> float:
    """The margin that a certificate from such evidence should leave, as a share of the estimated one."""
    found = bands(surrogate, evidence, delta=delta, tail=tail)
    widths, discount = surrogate.widths, surrogate.discount
    tube = read_tube(surrogate.columns, found, lookup, allowed=allowed, widths=widths, discount=discount)
    return tube.margin / max(tube.estimated, 1e-300)


def _needed(
    surrogate: PolicySurrogate,
    seen: PolicyEvidence,
    lookup: Lookup,
    allowed: float,
    delta: float,
    tail: float,
    n: int,
    most: int,
) -> int:
    """The next n whose forecast leaves enough; ``most`` if none does."""
    have = int(seen.counts.min())

    def enough(n: int) -> bool:
        evidence = seen.forecast((1 - TRAINING_SHARE) * n / have)
        return share_left(surrogate, evidence, lookup, allowed, delta, tail) > 1.3 * CONFIDENT

    return least_enough(enough, n, most) or most


def _line(n: int, left: float, certificate: PolicyCertificate | None) -> str:
    if certificate is not None:
        return f"{n:,} per action: margin {certificate.margin:.3g}, {certificate.word}"
    return f"{n:,} per action: a certificate would leave {left:.0%} of the margin"
