"""`solve`: data or a simulator in, a solution out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from certirl.data.demonstrations import Demonstrated
from certirl.data.independence import FEWEST, MOST_COORDINATES, SAMPLES, independent
from certirl.data.inputs import moved_inputs
from certirl.data.memory import beside_declared, find_memory
from certirl.data.moments import Moments
from certirl.data.simulator import Simulator
from certirl.data.source import Logged, Pool
from certirl.data.transitions import Piece, Transitions
from certirl.fit.bellman import FORMS, Bellman, Operators, bellman, estimate
from certirl.fit.choose import Choice, as_asked, as_measured, cheapest, choose, places, widened
from certirl.fit.drifts import SharedDrift
from certirl.fit.recover import OBJECTIVES, Recovery, alike, balanced, between, inexact, recover, share_allowed
from certirl.functions.bases import Basis
from certirl.functions.components import Component, SumBasis
from certirl.ground.account import account
from certirl.ground.status import Finding, Reason, change
from certirl.ground.work import Report, announcer, on, speaker, watched_stream
from certirl.proof.case import Case, Declaration, bounding_tail, tail_too_large
from certirl.proof.cells import Deterministic, prove_by_cells
from certirl.proof.contradictions import of_tail, refuse
from certirl.proof.tails import TailLike, tail_number
from certirl.solver.answer import Answer
from certirl.solver.methods import FeatureForm, Method, Program, SoftExpert
from certirl.solver.request import Request, request
from certirl.solver.search import TRAINING_SHARE, ByColumns, Learned, Learner, Outcome, Theorem, least_budget, search
from certirl.solver.solution import Asked, Solution, build
from certirl.solver.value_form import ValueLearner, explain, proof_columns, with_proof

if TYPE_CHECKING:
    from certirl.solver.soft_solution import SoftSolution

TRIED = ("least-variance", "l1")  # objectives of a proof, if none is asked for: the forecast decides between them
WAYS = (0.2, 0.4, 0.6, 0.8)  # from one to the other, at which rewards are tried as well
PILOT = 4_000  # transitions per action that choose basis and columns before a proof is searched for


@overload
def solve(
    source: Simulator | Transitions,
    *,
    discount: float,
    expert: SoftExpert,
    method: FeatureForm | None = None,
    basis: Any = None,
    columns: Any = None,
    samples: int | None = None,
    delta: float | None = None,
    tail: TailLike = None,
    dynamics: Declaration | SharedDrift | None = None,
    rng: Any = None,
    progress: bool | Report | None = None,
    map: Any = None,
) -> SoftSolution: ...


@overload
def solve(
    source: Simulator | Transitions | Moments,
    *,
    discount: float,
    expert: Any,
    method: Method | None = None,
    basis: Any = None,
    columns: Any = None,
    components: Any = None,
    samples: int | None = None,
    trials: int | None = None,
    paired: bool | None = None,
    delta: float | None = None,
    tail: TailLike = None,
    dynamics: Declaration | SharedDrift | None = None,
    tube: float | None = None,
    regret: float | None = None,
    suboptimality: float | None = None,
    rng: Any = None,
    progress: bool | Report | None = None,
    map: Any = None,
) -> Solution: ...


def solve(
    source: Simulator | Transitions | Moments,
    *,
    discount: float,
    expert: Any,
    method: Method | None = None,
    basis: Any = None,
    columns: Any = None,
    components: Any = None,
    effects: Mapping[int, Any] | None = None,
    samples: int | None = None,
    trials: int | None = None,
    paired: bool | None = None,
    delta: float | None = None,
    tail: TailLike = None,
    dynamics: Declaration | SharedDrift | None = None,
    tube: float | None = None,
    regret: float | None = None,
    suboptimality: float | None = None,
    rng: Any = None,
    progress: bool | Report | None = None,
    map: Any = None,
) -> Answer:
    """Find a reward under which the expert's action is strictly optimal, and prove it if ``delta`` is given.

    Strictly optimal: the advantage D_a(s) = ((P_π − P_a)V)(s) is positive at all states s, for every alternative
    action a. For an expert of one action, without cover, slack or "max-margin", rewards are scaled to a smallest
    advantage of 1.

    Args:
        source: a simulator (anything with ``n_actions``, ``domain`` and ``sample(states, action, rng)``), logged
            `Transitions`, or `Moments` measured before, which keep no transitions that a proof could rest on.
        discount: γ, strictly between 0 and 1.
        expert: the action that is always taken, a function of states, or a model with ``predict``: docs/experts.md. A
            list of functions or models: several experts with one reward.
            With a `SoftExpert`, who errs the less the more it costs, the answer is a `SoftSolution`: the rewards of
            all actions with standard errors, or with ``delta`` with a band. ``basis`` is then that of the log-odds.
        method: `Program`, `ValueForm` or `FeatureForm`, with what few problems need; if left out the first for an
            expert of one action without terminal states, else the second.
        basis: the functions of rewards and values, say ``Legendre(11)`` or ``product(Fourier(9), Legendre(7))``; chosen
            by held-out data if left out. With components one for all or one for each.
        columns: the number of functions that describe the state; chosen by held-out data if left out. For a proof about
            an expert that depends on the state it may be a basis.
        components: groups of coordinates that move independently, ``[[0], [1]]``: the reward is a sum over them.
        effects: what some actions do, by their numbers: `dynamics.Resets`, or a function of states that gives the next
            states exactly. No transitions of these actions are needed. With ``delta``, for a log, a function that leads
            to one state from everywhere.
        samples: transitions to draw for each action, 10,000 if left out; with ``delta`` the most to draw, a million if
            left out. For simulators only.
        trials: for an expert that depends on the state, the most further transitions of each action by which the answer
            is tried; as many as the answer took if left out, 0 for no trial. For simulators only.
        paired: draw every action with the same states and random numbers, so that noise cancels; if left out a trial
            decides. For simulators only.
        delta: draw until the answer is proved, with at most this probability of a false proof; a log is divided once.
        tail: what is known of the dynamics beyond the columns (see `certify`); without it nothing is "certified".
        dynamics: for a log ``SharedDrift()``, if actions move the state by a vector each and share the rest: each then
            need only have been tried somewhere. For proofs as in `certify`, in place of a tail: with
            ``AffineGaussian(std)`` and ``delta`` proofs rest on known
            noise; with ``Deterministic(…)`` the answer is proved by cells, without ``delta``, as nothing is random.
            The reward of the answer is then the one that the proof is about.
        tube: with ``delta``, how far from a switch the expert must be proved strictly best, in units of the state.
        regret: with ``delta``, draw until following the expert is proved to cost at most this share of the span of the
            value.
        suboptimality: of an inexact expert: how much less than the best its actions may be worth, as a share of what
            the reward spans, as in `certify`. With ``delta``, or for an expert of one action.
        rng: a seed or Generator; needed with a simulator.
        progress: True, False, None for a line if standard error is a terminal, or a function ``(done, total)``.
        map: a number of threads, a Dask client or an executor; all cores if left out. Results do not depend on it.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> asked = {"discount": 0.7, "basis": certirl.Legendre(7), "columns": 3, "rng": 0}
        >>> certirl.solve(problem, expert=0, **asked).status
        'solved'
        >>> certirl.solve(problem, expert=0, delta=0.05, tail=0, **asked).status
        'certified'
    """
    given = dict(locals())
    if isinstance(expert, SoftExpert):
        from certirl.solver.soft import solve_soft

        with on(map):
            soft = solve_soft(
                source, expert, discount=discount, method=method, basis=basis, columns=columns, components=components,
                effects=effects, samples=samples, trials=trials, paired=paired, delta=delta, tail=tail,
                dynamics=dynamics, tube=tube, regret=regret, suboptimality=suboptimality, rng=rng, progress=progress,
            )  # fmt: skip
        return replace(soft, about=account("certirl.solve", given))
    asked = request(
        source, discount=discount, expert=expert, method=method, basis=basis, columns=columns, components=components,
        effects=effects, samples=samples, trials=trials, paired=paired, delta=delta, tail=tail, dynamics=dynamics,
        tube=tube, regret=regret, suboptimality=suboptimality, rng=rng, progress=progress,
    )  # fmt: skip
    with on(map):
        if isinstance(asked.method, Program):
            solve_by = _estimated if asked.delta is None else _proved_by_program
            solution = solve_by(asked, asked.method)
        else:
            solution = explain(asked) if asked.delta is None else _proved_by_value(asked)
        if asked.dynamics is not None:
            solution = _as_declared(solution, source, asked)
    seed = int(rng) if isinstance(rng, int | np.integer) else None
    names = (asked.moments or asked.origin).coordinate_names
    exogenous = () if asked.source is None else asked.source.exogenous
    sampling = "" if asked.delta is None else asked.origin.sampling
    stats = replace(solution.stats, seed=seed, coordinate_names=names, exogenous=exogenous, sampling=sampling)
    if isinstance(asked.source, Logged):
        found = find_memory(asked.source.data)
        declared = getattr(asked.tail if asked.dynamics is None else asked.dynamics, "std", None)
        seen = "" if declared is None else beside_declared(asked.source.data, declared)
        steps = f"steps: {found}" if found.pairs else ""
        stats = replace(stats, independence="; ".join(filter(None, [stats.independence, seen, steps])))
        if found.found:
            solution = solution.doubted(Reason.MEMORY.finding(test=found, cure=found.cure))
        moved = moved_inputs(asked.source.data)
        if moved:
            freed = "source=dataclasses.replace(source, exogenous=())"
            solution = solution.judged(Reason.MOVED.finding(freed, test=moved), *solution.findings)
    if isinstance(asked.policy, Demonstrated) and asked.policy.is_guess:
        errors, chance = asked.policy.errors, asked.policy.guessing
        solution = solution.noted(Reason.UNPREDICTABLE.finding(errors=errors, chance=chance))
    if asked.source is not None:
        stats = replace(stats, log_notes=asked.source.notes, asked=Asked.of(asked.source.counts_of_rows))
    about = account("certirl.solve", given)
    held = {name: getattr(solution, name) for name in ("certificate", "refutation")}
    proofs = {name: replace(proof, about=about) for name, proof in held.items() if proof is not None}
    findings = tuple(asked.completed(found) for found in solution.findings)
    return replace(solution, stats=stats, about=about, findings=findings, **proofs)


def _as_declared(solution: Solution, simulator: Any, asked: Request) -> Solution:
    """The answer by what was declared of the dynamics, its reward the one that is proved, where one is."""
    if isinstance(asked.dynamics, Deterministic):
        if solution.value is None:
            return solution
        problem: dict[str, Any] = {"discount": asked.discount, "expert": asked.policy, "rng": 0}
        solution = solution.proved_by(prove_by_cells(solution, simulator, asked.dynamics, **problem))
    proof = solution.certificate
    return solution if proof is None or not proof.holds else replace(solution, reward=proof.as_reward())


def _estimated(asked: Request, method: Program) -> Solution:
    """Solve for an expert of one action, with one pass over the data."""
    form = method.form
    independence, further = _tested(asked, asked.samples)
    if asked.moments is not None:
        choice = as_measured(asked.moments, asked.basis, asked.columns)
        moments = [asked.moments.leading(choice.bases[0].size, choice.columns[0])]
    else:
        columns = asked.columns
        if form == "mean" and columns is None and asked.basis is not None:
            columns = asked.basis.size  # the paper's square matrix
        stream = _stream(asked, asked.samples, asked.generator, is_design=form == FORMS[0])
        moments, choice = _chosen(asked, watched_stream(stream, stream.total, asked.progress), columns)
    fit = fitted(moments, choice, form=form, **asked.problem)
    recovery = recover(
        fit.criteria,
        components=choice.components,
        objective=method.objective or OBJECTIVES[0 if _is_interval(choice) and method.slack is None else 1],
        cover=method.cover,
        slack=method.slack,
    )
    recovery = _allowing(recovery, fit.criteria, asked.suboptimality)[0]
    names = (asked.moments or asked.origin).action_names
    return build(*fit, recovery, choice=choice.why, independence=independence, further=further, action_names=names)


def _allowing(recovery: Recovery, criteria: Sequence[Bellman], share: float | None) -> list[Recovery]:
    """In place of a conflict what an inexact expert may do: rewards for it, or that none was found."""
    if share is None or recovery.status != "infeasible" or len(criteria) > 1:
        return [recovery]
    if found := inexact(criteria[0], share):
        return found
    larger = share_allowed(criteria[0], share)
    changed = "basis=None" if larger is None else change(suboptimality=larger)
    missed = replace(recovery, finding=Reason.NOT_WITHIN.finding(changed, share=share), witness=None)
    return [missed]


def _stream(asked: Request, samples: int, rng: np.random.Generator, *, is_design: bool = True) -> Any:
    """The data in pieces."""
    # The paper's mean form needs independent states from the basis's weight; least squares has a better design.
    paired = asked.paired if is_design else False
    return asked.origin.stream(samples, _places(asked, asked.components), rng, design=is_design, paired=paired)


def _places(asked: Request, components: tuple[Component, ...]) -> Any:
    """Where a simulator is asked: by the design of the functions, of each component by itself."""
    if not components:
        return places(asked.domain)
    return components[0].basis if len(components) == 1 else SumBasis(components)


def _chosen(asked: Request, stream: Iterable[Piece], columns: Any) -> tuple[list[Moments], Choice]:
    return choose(
        stream,
        asked.domain,
        n_actions=asked.n_actions,
        components=asked.components,
        columns=columns,
        periodic=asked.origin.periodic,
        **asked.problem,
    )


def _tested(asked: Request, samples: int) -> tuple[str, tuple[Finding, ...]]:
    """The test of the components' independence in words, and a finding if it failed."""
    groups = {component.name: list(component.coordinates) for component in asked.components}
    if len(groups) < 2:
        return "", ()
    if max(map(len, groups.values())) > MOST_COORDINATES:
        return f"independence is not tested for components of more than {MOST_COORDINATES} coordinates", ()
    at_hand = asked.origin.per_action(samples)
    if at_hand < FEWEST:
        return "too few transitions to test the components' independence", ()
    outcome = independent(
        asked.origin.for_purpose("checks"), groups, samples=min(SAMPLES, at_hand), rng=asked.generator.spawn(1)[0]
    )
    if outcome.holds:
        return str(outcome), ()
    finding = Reason.DEPENDENT.finding(test=str(outcome))
    warnings.warn(finding.sentence, stacklevel=4)
    return str(outcome), (finding,)


def _proved_by_program(asked: Request, method: Program) -> Solution:
    """An expert of one action, until its reward is proved, or that there is none."""
    choice = as_asked(asked.components, asked.columns)
    case = None if choice is None else _case(asked, choice)
    if choice is None and asked.tail is not None:
        _check_tail(asked)
    _check_draws(asked)
    independence, further = _tested(asked, asked.samples // 4)
    pools = _pools(asked, _places(asked, asked.components)) if asked.is_log else None
    pilot = 0 if pools is not None or choice is not None else min(PILOT, max(asked.samples // 4, 1))
    if choice is None:
        stream = _stream(asked, pilot, asked.generator.spawn(1)[0]) if pools is None else pools[0].newest()
        moments, choice = _chosen(asked, stream, asked.columns)
        if asked.columns is None and asked.tail is not None:
            choice = widened(moments, choice, partial(_tail_number, asked), **asked.problem)
    case = case or _case(asked, choice)
    learner = ProgramLearner(case, choice, method.objective)
    if pools is None:
        least = least_budget(max(choice.columns))
        asked.origin.check_enough(asked.samples, max(choice.columns), -(-4 * least // 3) if pilot else least)
        pools = _pools(asked, _places(asked, choice.components), case.design)
    outcome = _search(asked, case, learner, pools, asked.samples - pilot)
    (operators, criteria), recovery = outcome.learned.answer
    return build(
        operators,
        criteria,
        outcome.candidate or recovery,
        choice=choice.why,
        independence=independence,
        further=further,
        certificate=None if further else outcome.certificate,  # a proof would assume what the test contradicts
        refutation=None if further else outcome.refutation,
        drawn=asked.origin.counts(outcome.samples + pilot).tolist(),
        action_names=asked.origin.action_names,
        search=outcome.rounds,
        tail=asked.tail,
        log_rows=asked.log_rows,
        seen=asked.seen,
    )


def _case(asked: Request, choice: Choice) -> Case:
    """What is to be proved, with these columns; a tail that is too large for them is refused."""
    return Case.of(
        asked.policy,
        choice.spaces,
        n_actions=asked.n_actions,
        discount=asked.discount,
        tail=asked.tail,
        components=choice.components,
        source=asked.origin,
        suboptimality=asked.suboptimality,
    )


def _tail_number(asked: Request, component: Component, columns: Basis) -> float:
    """τ of a component with some columns; 0 where nothing is declared."""
    coordinates = component.coordinates if len(asked.components) > 1 else None
    return tail_number(asked.tail, columns, coordinates) or 0.0


def _check_tail(asked: Request) -> None:
    """Refuse a tail that is too large for all columns that can be chosen."""

    def cost(component: Component, columns: Basis) -> float:
        return _tail_number(asked, component, columns) / bounding_tail(columns, asked.discount)

    sentences = []
    for components in cheapest(asked.components, asked.columns, asked.domain, asked.origin.periodic, cost):
        places = [(each.coordinates, each.name) if len(components) > 1 else () for each in components]
        each = zip(components, places, strict=True)
        tails = (tail_too_large(asked.tail, part.basis, asked.discount, *place) for part, place in each)
        sentences.append(next(filter(None, tails), ""))
        if not sentences[-1]:
            return
    raise ValueError(sentences[0])


def _check_draws(asked: Request) -> None:
    """Refuse a simulator whose noise is not independent, and a tail that the data contradict."""
    if asked.dynamics is not None:
        return  # checked with the declaration
    asked.origin.check_noise()
    asked.origin.check_has_noise()
    refuse(of_tail(asked.tail, asked.origin))


class Fitted(NamedTuple):
    """The operators and criteria of every component."""

    operators: tuple[Operators, ...]
    criteria: tuple[Bellman, ...]


def fitted(moments: Sequence[Moments], choice: Choice, *, discount: float, expert: int, form: str) -> Fitted:
    """Operators by least squares, or in the paper's mean form, and their Bellman criteria."""
    operators = []
    for component, sums in zip(choice.components, moments, strict=True):
        try:
            operators.append(estimate(sums, form=form))
        except ValueError as problem:
            if len(choice.components) == 1:
                raise
            raise ValueError(f"component {component.name}: {problem}") from None
    criteria = tuple(bellman(each, discount=discount, expert=expert) for each in operators)
    return Fitted(tuple(operators), criteria)


def _is_interval(choice: Choice) -> bool:
    """Whether there is one coordinate: there the smoothest reward is found in little time, and looked at as a curve."""
    return len(choice.components) == 1 and choice.bases[0].dimension == 1


class ProgramLearner:
    """Learns rewards from training moments; see `search.Learner`."""

    def __init__(self, case: Case, choice: Choice, objective: str | None) -> None:
        self.case, self.fewest = case, max(choice.columns) + 2
        self._choice, self._objectives = choice, TRIED if objective is None else (objective,)
        self._moments: list[Moments] | None = None

    def learn(self, training: Pool) -> Learned:
        """The rewards of the program for each objective and between two, from all training data."""
        newest, before = self._choice.moments(training.newest(), self.case.policy.n_actions), self._moments
        moments = newest if before is None else [a + b for a, b in zip(before, newest, strict=True)]
        self._moments = moments
        discount, expert = self.case.discount, self.case.used[0]
        fit = fitted(moments, self._choice, discount=discount, expert=expert, form="least-squares")
        candidates: list[Recovery] = []
        for objective in self._objectives:
            recovery = recover(fit.criteria, components=self._choice.components, objective=objective)
            if recovery.status != "solved":  # for no objective
                allowed = _allowing(recovery, fit.criteria, self.case.suboptimality)
                candidates, recovery = [each for each in allowed if each.reward is not None], allowed[0]
                break
            candidates.append(recovery)
        if len(candidates) > 1 and candidates[0].margin > 0:
            first, second = candidates
            if len(fit.criteria[0].alternatives) > 1:
                first = balanced(fit.criteria, first)
                candidates += [first, between(fit.criteria, first, candidates[0], 0.5)]
            candidates += [between(fit.criteria, first, second, share) for share in WAYS]
        is_refutable = recovery.status == "infeasible" and self.case.suboptimality is None
        classes = self._choice.bases if is_refutable else ()
        return Learned(candidates, (fit, recovery), moments, classes, alike(fit.criteria) is not None)


def _proved_by_value(asked: Request) -> Solution:
    """An expert that depends on the state, until a reward is proved, or that there is none."""
    columns = proof_columns(asked.columns, asked.tail, asked.domain, asked.discount, asked.origin.periodic)
    case = Case.of(
        asked.policy,
        columns,
        n_actions=asked.n_actions,
        discount=asked.discount,
        tail=asked.tail,
        tube=asked.tube,
        source=asked.origin,
        suboptimality=asked.suboptimality,
    )
    _check_draws(asked)
    learner = ValueLearner(case, asked)
    asked.origin.check_enough(asked.samples, columns.size, max(40 * columns.size, 4 * learner.fewest))
    pools = _pools(asked, columns, case.design)
    outcome = _search(asked, case, learner, pools, asked.samples)
    return with_proof(outcome, asked)


def _pools(asked: Request, where: Any, design: Any = True) -> tuple[Pool, Pool]:
    """Training and fresh data: draws, or a log that is divided once."""
    if asked.dynamics is None:
        return asked.origin.pools(TRAINING_SHARE, where, asked.generator, design=design, paired=asked.paired)
    if isinstance(asked.origin, Logged):  # nothing has to be fresh where only drifts are learned
        return Pool([asked.origin.data]), Pool([asked.origin.data])
    return asked.origin.pools(TRAINING_SHARE, where, asked.generator, design=design, paired=False)


def _search(asked: Request, case: Case, learner: Learner, pools: tuple[Pool, Pool], budget: int) -> Outcome:
    assert asked.delta is not None
    training, fresh = pools
    theorem: Theorem = ByColumns(case)
    if asked.dynamics is not None:
        share: dict[str, Any] = {"tube": asked.tube, "suboptimality": asked.suboptimality}
        theorem = asked.dynamics.theorem(asked.origin, asked.policy, discount=asked.discount, **share)
    settings: dict[str, Any] = {"delta": asked.delta, "regret": asked.regret, "say": speaker(asked.progress)}
    if training.grows:
        return search(theorem, learner, training, fresh, budget=budget, watch=announcer(asked.progress), **settings)
    watched = watched_stream(fresh, fresh.total, asked.progress)  # in the only round
    return search(theorem, learner, training, watched, budget=training.size + fresh.expected, **settings)
