"""Solve until it is proved, for experts who switch: a reward by the value form, then a certificate from fresh data.

As in `prove`, every draw goes for good to training or to the proof, attempt i may fail with probability δ/2^i, and an
attempt is made only when training data forecast success. Where training data conflict, and forecast that fresh data
would show it, the attempt is to prove that no value function of the class explains the expert.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np

from certirl.data.policy import as_policy
from certirl.data.simulator import Draws, as_generator, check_simulator, periodic_of
from certirl.data.source import as_source, divide
from certirl.data.transitions import CHUNK, Piece, Transitions, concatenate, pieces
from certirl.data.trials import can_pair
from certirl.functions.bases import MOST_FUNCTIONS, Basis, Fourier, Legendre, as_basis
from certirl.functions.boxes import of_degree
from certirl.ground.domain import Domain, as_domain
from certirl.ground.doors import as_count, as_number, by_door
from certirl.ground.progress import Report, Watch, watched_stream
from certirl.ground.status import Reason
from certirl.proof.case import Case
from certirl.proof.certify import check_delta, least_enough
from certirl.proof.certify_policies import SwitchingCase
from certirl.proof.policy_bounds import bands
from certirl.proof.policy_certificate import PolicyCertificate, read
from certirl.proof.policy_evidence import gather
from certirl.proof.refutation import Refutation
from certirl.proof.refute import Attempt, attempt
from certirl.proof.tail import TailLike, is_number, tail_number
from certirl.proof.weigh import check_box
from certirl.solver.prove import FORECAST, TRAINING_SHARE, Pace, Pool, check_budget, pursue
from certirl.solver.solution import Solution
from certirl.solver.solve_policy import FEWEST, solve_policy, try_out

FIRST = 4_000  # transitions per action and column in the first round: with fewer the second order has no bound
PACE = Pace(least=1.3, most=3.0, confident=0.2, aim=0.3)  # forecasts think too well of the second order
MOST_FOR_A_REWARD = 300_000  # transitions per action that the value form looks at
COLUMNS, MOST_COLUMNS = {1: 15, 2: 21, 3: 20}, 40
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
    regret: float | None = None,
    max_samples: int = 1_000_000,
    rng: Any = None,
    paired: bool | None = None,
    watch: Watch | None = None,
    **form: Any,
) -> Solution:
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
        watch: receives a line about every round.
        **form: of the value form: basis, reward_basis, margin and price.
    """
    delta = check_delta(delta)
    check_simulator(simulator)
    domain = as_domain(simulator.domain)
    check_box(domain)
    as_source(simulator).check_without_terminal()
    policy = as_policy(expert, simulator.n_actions)
    chosen = _columns(columns, tail, domain, discount, simulator)
    fewest = max(chosen.size + 2, FEWEST)
    check_budget(max_samples, chosen.size, max(40 * chosen.size, 4 * fewest))
    if regret is not None:
        regret = as_number(regret, "regret", least=0, most=1, strict=True, meaning="a share of the value's span")
    generator = as_generator(rng, "prove_policy")
    paired = can_pair(simulator, chosen, generator, asked=paired)
    case = SwitchingCase.of(policy, chosen, tube, discount, tail)
    training, fresh = (Pool(simulator, chosen, stream, paired, case.design) for stream in generator.spawn(2))
    quest = _Switching(training, fresh, case, form, regret)
    pace = PACE._replace(first=FIRST * chosen.size)
    found = pursue(quest, delta=delta, fewest=fewest, max_samples=max_samples, watch=watch, pace=pace)
    solution = _concluded(_of_samples(quest.solution, found.samples, found.samples), found.certificate)
    if solution.status in ("certified", "infeasible"):  # a proof overrules what trials would show
        return solution
    return try_out(solution, simulator, policy, margin=form.get("margin"), rng=generator.spawn(1)[0])


class _Switching:
    """The quest for a certificate of an expert who switches; see `prove.Quest`."""

    solution: Solution
    _absence: Attempt | None = None

    def __init__(
        self, training: Pool, fresh: Pool, case: SwitchingCase, form: dict[str, Any], regret: float | None
    ) -> None:
        self.training, self.fresh, self.status = training, fresh, "undetermined"
        self._case, self._form, self._regret = case, form, regret
        self._number = tail_number(case.tail, case.columns) or 0.0

    def learn(self) -> None:
        """A reward by the value form."""
        log = _log(self.training)
        asked: dict[str, Any] = {"discount": self._case.discount, "rng": 0, "progress": False, "tried": False}
        self.solution = solve_policy(log, self._case.policy, **asked, **self._form)
        self.status = "solved"  # whatever it explains, a certificate says what of it is true

    def forecast(self, fresh: int, delta: float) -> float:
        """From some of the training draws, seen again."""
        self._absence = _absence(self.solution, self._case, self.training.leading(FORECAST), fresh, delta)
        if self._absence is not None:
            return self._absence.forecast(fresh, delta)
        assert self.solution.reward is not None
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

    def certify(self, delta: float, others: dict[str, float]) -> PolicyCertificate | Refutation:
        """From all fresh draws."""
        if self._absence is not None:
            return self._absence.conclude(self.fresh, delta=delta, others=others)
        return self._case.conclude(self._surrogate, self.fresh, delta, others=others, goal=self._regret)

    def is_enough(self, certificate: PolicyCertificate | Refutation) -> bool:
        """A positive margin, and no more regret than is allowed; or that there is none."""
        if isinstance(certificate, Refutation):
            return certificate.refuted
        return certificate.margin > 0 and (self._regret is None or certificate.relative_regret <= self._regret)

    def needed(self, n: int, most: int, delta: float) -> int:
        """By forecasts for other n."""
        if self._absence is not None:
            more = self._absence.needed(delta, PACE.aim)
            return most if more is None else int(more / (1 - TRAINING_SHARE))

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
    progress: bool | Report | None = None,
    **form: Any,
) -> Solution:
    """The same from a log, which is divided once: one part finds the reward, the other proves it."""
    delta = check_delta(delta)
    check_box(log.domain)
    policy = as_policy(expert, log.n_actions)
    chosen = _columns(columns, tail, log.domain, discount, log)
    training, fresh = divide(log, TRAINING_SHARE, as_generator(0 if rng is None else rng))
    solution = solve_policy(training, policy, discount=discount, rng=0, progress=False, **form)
    solution = _of_samples(solution, int(log.counts.min()), int(log.counts.max()))
    case = SwitchingCase.of(policy, chosen, tube, discount, tail)
    absence = _absence(solution, case, pieces(training, CHUNK), int(fresh.counts.min()), delta)
    proving = watched_stream(pieces(fresh, CHUNK), len(fresh), progress)
    if absence is not None:
        return _concluded(solution, absence.conclude(proving, delta=delta))
    assert solution.reward is not None
    surrogate = case.surrogate(solution.reward, pieces(training, CHUNK))
    return _concluded(solution, case.conclude(surrogate, proving, delta))


def _of_samples(solution: Solution, fewest: int, most: int) -> Solution:
    """With the numbers of all transitions, those of the proof included."""
    return replace(solution, samples=fewest, stats=replace(solution.stats, most_samples=most))


def _absence(
    solution: Solution, case: SwitchingCase, training: Iterable[Piece], samples: int, delta: float
) -> Attempt | None:
    """None if training data do not conflict, or not so that more would show it."""
    functions = solution.basis
    if solution.witness is None or functions.size > MOST_REFUTED:
        return None
    problem: dict[str, Any] = {"n_actions": case.policy.n_actions, "discount": case.discount, "tail": case.tail}
    asked = Case.of(case.policy, case.columns, tube=case.allowed, **problem)
    plan = attempt(asked, [functions], training, samples=samples, delta=delta)
    return plan if plan is not None and plan.needed(delta) is not None else None


def _concluded(solution: Solution, proof: PolicyCertificate | Refutation | None) -> Solution:
    """With what fresh data proved, of the reward or of the absence of any, and what that allows it to be called."""
    if proof is None:
        return solution
    if isinstance(proof, PolicyCertificate):
        solution = replace(solution, certificate=proof)
        return solution.judged(Reason.CERTIFIED.finding(proved=proof.proved)) if proof.holds else solution
    solution = replace(solution, refutation=proof)
    if proof.holds:
        return replace(solution, witness=proof.witness).judged(Reason.REFUTED.finding(claim=proof.claim))
    if proof.refuted:
        return solution.judged(*solution.findings, Reason.REFUTED_WITHOUT_TAIL.finding(claim=proof.claim))
    return solution


def _columns(asked: Basis | int | None, tail: TailLike, domain: Domain, discount: float, simulator: Any) -> Basis:
    """What was asked for; else as few functions as make the tail cost little of the value's span."""
    if isinstance(asked, Basis):
        return as_basis(asked, domain, name="columns")
    choices = _choices(domain, periodic_of(simulator))
    if asked is not None or tail is None:
        what = by_door("a basis such as Legendre(15), or a whole number of functions", "a whole number of functions")
        size = COLUMNS[len(domain)] if asked is None else as_count(asked, "columns", most=MOST_FUNCTIONS, meaning=what)
        return next((own for own in choices if own.size >= size), choices[-1]).resized(size)
    if is_number(tail):
        like = "Legendre(15)" if len(domain) == 1 else f"product({', '.join(['Legendre(6)'] * len(domain))})"
        write = by_door(f"pass columns, say {like}", "write --columns N, too")
        raise ValueError(f"the tail {tail} belongs to the columns it was computed for: {write}")
    for own in choices:
        number = tail_number(tail, own) or 0.0
        if number * (1 + (2 ** len(domain) * own.size) ** 0.5) / (1 - discount) < TOLERABLE:
            return own
    return choices[-1]


def _choices(domain: Domain, periodic: tuple[int, ...]) -> list[Basis]:
    """Columns to choose from, fewest first: of one coordinate any odd number, on a box all of a total degree."""
    if len(domain) > 1:
        found = (of_degree(domain, degree, periodic) for degree in range(1, MOST_COLUMNS))
        return list(takewhile(lambda own: own.size <= MOST_COLUMNS, found))
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
