"""The value form: data and an expert that depends on the state in, a reward and what it explains out.

No setting belongs to an environment. The number of functions of V is set by their cost; effects are observed where two
draws agree and regressed where they do not, with columns chosen by held-out data; the reward is piecewise linear on a
grid whose size is set by the number of states; margins fall to 0 beside a switch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import takewhile
from math import ceil, isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy, as_policy, simulate, uniform_policy
from certirl.data.simulator import terminal_of
from certirl.data.source import Logged, Pool
from certirl.fit.action_values import (
    RARELY,
    LiftedFit,
    action_values,
    avoids_termination,
    choices,
    fit_lifted_value,
    spectral_radius,
)
from certirl.fit.choose import tail_factor
from certirl.fit.compare import compare
from certirl.fit.costs import fit_with_costs, with_costs
from certirl.fit.drifts import FEWEST
from certirl.fit.effects import DISTRUST, live_states, several_next_states, value_basis
from certirl.fit.ends import (
    FEWEST_STEPS,
    MANY_WALKS,
    MOST_STARTS,
    PAIRS,
    Reached,
    compare_ends,
    disturbed,
    some_avoided,
    walked_ends,
)
from certirl.fit.estimates import EffectModel, LogModel, RegressionModel, estimate_effects
from certirl.fit.features import MARGIN, FeaturePath, Preference, cost_differences, feature_path
from certirl.fit.next_states import CLEARLY, Nearby
from certirl.fit.plan import Plan
from certirl.fit.problem import ValueProblem
from certirl.fit.program import SolverFailed
from certirl.fit.rewards import JudgedStates, judged_states, read_reward
from certirl.fit.value_program import (
    PRICE,
    SIGMOID_PRICE,
    SMOOTHNESS,
    Comparisons,
    ValueFit,
    choose_width,
    comparisons,
    fit_value,
    profile_at,
)
from certirl.fit.witness import find_conflict
from certirl.functions import bases
from certirl.functions.bases import Basis, Fourier, Legendre, as_basis, fewest, first_functions, of_degree
from certirl.functions.cells import MOST_COORDINATES, Cells
from certirl.functions.features import features_of
from certirl.functions.reward import Reward, value_function
from certirl.functions.sigmoids import Sigmoids
from certirl.ground.domain import Array, Box
from certirl.ground.doors import as_count, by_door
from certirl.ground.status import Finding, Reason, change, rounded_down, rounded_up
from certirl.ground.work import announcer, one_blas_thread
from certirl.proof.case import Case, bounding_tail
from certirl.proof.tails import TailLike, least_columns, tail_number
from certirl.solver.methods import MOST_STATES, FeatureForm, Method, ValueForm
from certirl.solver.request import Request
from certirl.solver.search import Learned, Outcome
from certirl.solver.solution import Compared, Diagnostics, Estimate, Share, Solution, unproved

STAGES = 3  # of which progress is reported
EXPLAINED = 0.05  # of the states are not explained, at most: then more samples may help
UNEXPLAINED_AT = "print(solution.unexplained())"
UNEXPLAINED = 0.3  # of the states: from here on nothing is called explained
PREFERRED = 0.9  # share of the fresh states outside the tube, lower end of its interval: validated from here on
GAP = 0.02  # between planning on R alone and the expert, in units of what acting at random loses: validated up to here
UNUSABLE = 0.3  # the same: from here on nothing is called solved
COARSE = 0.1  # the same, by which the plan on R is worse than the expert under R: from here on it judges nothing
MOST_POINTS, MOST_ALONE = 6_400, 200  # of the reward's grid, in all and along one coordinate
STATES_PER_POINT = 1.5
UNSURE = 0.3  # error of next states between observed ones over the effect of an action: from here on no plan is made
DRAWS = 16  # next states of each fresh state, where they are random
WALKS, LONGEST = 1_000, 300  # rollouts of the expert in the model of a log, and their most steps
FEWEST_STAYING = 50  # of them: with fewer that stay within the data nothing is compared


def explain(asked: Request, *, tried: bool = True) -> Solution:
    """Find R under which the expert's actions are best where possible: ``(P_π − P_a)V(s) ≥ m(s) − ξ(s)``.

    The functions of V that are asked for say which coordinates are periodic. R is tried out as far as that is possible.
    """
    source, watch = asked.origin, announcer(asked.progress)
    generator = source.generator(asked.rng, "solve_policy")
    basis = value_basis(asked.domain, source.periodic, states=source.states) if asked.basis is None else asked.basis
    periodic = source.periodic if asked.basis is None else basis.periodic_axes
    problem = ValueProblem(
        source, asked.policy, asked.discount, periodic, *source.terminal(), asked.declared, asked.drifts
    )
    # Threads of a matrix library would cost more than they gain: the products are many and small.
    with one_blas_thread:
        model = estimate_effects(problem, basis, asked.samples, generator, asked.paired)
        watch(f"1 of {STAGES}: the effects of the actions are known at {len(model.effects):,} states", 1, STAGES)
        solution, model = _found(asked, problem, model, generator)
        watch(f"2 of {STAGES}: V and R are found", 2, STAGES)
        if tried and solution.reward is not None and source.is_log:
            solution = _tried_in_a_model(solution, model, asked.policy)
        elif tried and solution.reward is not None:
            solution = try_out(solution, asked, rng=generator, known=model.dynamics)
        watch(f"3 of {STAGES}: errors are estimated and the reward is tried", 3, STAGES)
        return solution


def _found(
    asked: Request, problem: ValueProblem, model: EffectModel, rng: np.random.Generator
) -> tuple[Solution, EffectModel]:
    """The answer before it is tried, and the effects behind it; comparisons, which are many numbers, are let go."""
    method, domain = asked.by_states, problem.domain
    rows = comparisons(model.effects, problem.policy, margin=method.margin)
    is_lifted = False
    if problem.is_terminal is not None and not isinstance(method, FeatureForm):
        boxes = _avoided_boxes(problem, model, rows)
        if boxes is None:
            chance = uniform_policy(rows.effects.n_actions)
            walked = partial(walked_ends, model.dynamics, problem.policy, chance, problem.discount)
            is_lifted = avoids_termination(rows, walked)
        else:
            model = model.with_ends(problem, boxes, rng)
            rows = comparisons(model.effects, problem.policy, margin=method.margin)
    sigmoids, is_regressed = isinstance(model.effects.basis, Sigmoids), isinstance(model, RegressionModel)
    is_modelled = isinstance(model, LogModel) and not is_regressed and not problem.source.is_log
    price = (SIGMOID_PRICE if sigmoids else PRICE) if method.slack is None else method.slack
    of = tuple(range(len(domain))) if isinstance(method, FeatureForm) else method.coordinates(problem.source)
    reward_basis = _reward_basis(domain, problem.periodic, len(rows.effects), problem.source.states, of)
    program: dict[str, Any] = {"discount": problem.discount, "reward_basis": reward_basis, "price": price}
    if sigmoids:
        rows, program["reward_basis"] = choose_width(rows, **program)
        model = replace(model, effects=rows.effects)
    usual = SMOOTHNESS if is_regressed and not sigmoids else 0.0
    judged = judged_states(problem, model)
    program["further"] = model.at(judged.states)
    if isinstance(method, FeatureForm):
        return _by_features(problem, model, rows, method, judged, program), model
    program["smoothness"] = usual if method.smoothness is None else method.smoothness
    if is_lifted:
        lifted = fit_lifted_value(rows, **program)
        return _concluded(problem, model, rows, lifted.fit, judged, lifted), model
    is_open = is_modelled and model.effects.basis.has_ends and method.smoothness is None
    prices = (SMOOTHNESS, 0.0) if is_open else (program["smoothness"],)
    fits = [_fit(problem, rows, method, program | {"smoothness": price}) for price in prices]
    made = [
        _concluded(problem, model, rows, fit, judged, smooth=price > 0) for fit, price in zip(fits, prices, strict=True)
    ]
    if len(made) == 1:
        return made[0], model
    return min(made, key=lambda each: _distance(each, model.dynamics, problem.policy)), model


def _fit(problem: ValueProblem, rows: Comparisons, method: ValueForm, program: dict[str, Any]) -> ValueFit:
    """V and R, a reward of the state; with costs of actions where these close a gap that such a reward leaves."""
    plain = fit_value(rows, **program)
    can_pay = method.costs and problem.policy.constant is None
    return fit_with_costs(rows, plain, **program) if can_pay else plain


def _avoided_boxes(problem: ValueProblem, model: EffectModel, rows: Comparisons) -> Array | None:
    """Boxes of the ends that the expert avoids while it seeks others; None if V needs no number for them."""
    if choices(rows).avoided <= RARELY or len(problem.domain) > MOST_COORDINATES:
        return None
    policy = problem.policy
    return some_avoided(*walked_ends(model.dynamics, policy, disturbed(policy), problem.discount, MANY_WALKS))


def _by_features(
    problem: ValueProblem,
    model: EffectModel,
    rows: Comparisons,
    method: FeatureForm,
    judged: JudgedStates,
    program: dict[str, Any],
) -> Solution:
    """The answer in features; without a reward if none favours the expert."""
    reason = Reason.NO_FEATURES
    try:
        fit, path = _fit_features(problem, model, rows, method, program)
    except SolverFailed:
        fit, path, reason = fit_value(rows, **program), None, Reason.SOLVER
    solution = _concluded(problem, model, rows, fit, judged, path=path)
    if path is not None:
        return solution
    changed = "" if reason is Reason.NO_FEATURES else "method=None"
    finding = Reason.ALL_ALIKE.finding() if solution.stats.all_alike else reason.finding(changed)
    return replace(solution, reward=None, witness=None).judged(finding)


def _fit_features(
    problem: ValueProblem, model: EffectModel, rows: Comparisons, method: FeatureForm, program: Any
) -> tuple[ValueFit, FeaturePath | None]:
    """V and R for a reward of features, with the path of such rewards; without one if none favours the expert.

    R is scaled to a mean advantage of 1. V is what comes nearest to the value of R in its functions and prefers the
    expert's actions.
    """
    effects, features = model.effects, features_of(method.features, problem.domain)
    preference = Preference.of(features.names, method.signs, method.guess)
    path = feature_path(problem, model, rows, features, preference)
    if path is None:
        return fit_value(rows, **program), None
    weights = path.weights[path.chosen]
    reward, costs = Reward(features, weights), cost_differences(rows, features, problem.discount) @ weights
    if reward.of_actions:  # the unit of R is that of the costs, and is not fitted
        expert = features_of({"R": lambda states: _paid(reward, states, problem.policy)}, problem.domain)
        asked = replace(rows, margins=MARGIN * rows.margins - costs)
        value = fit_value(asked, **program | {"reward_basis": expert}).value
    else:
        fit = fit_value(rows, **program | {"reward_basis": features_of({"R": reward}, problem.domain)})
        value = fit.value / (fit.reward[0] if fit.reward[0] > 0 else 1.0)
    paid = np.stack([features.combined(effects.states, weights, action) for action in range(effects.n_actions)])
    residuals = (paid + problem.discount * effects.ahead(value)).max(axis=0) - effects.value(value)
    shortfall = np.maximum(-rows.advantages(value) - costs, 0.0)
    return ValueFit(value, weights, features, shortfall, residuals, costs), path


def _paid(reward: Reward, states: Array, policy: Policy) -> Array:
    """R of the expert's actions ``[n]``."""
    chances = policy.probabilities(states)
    return np.sum([chances[:, action] * reward(states, action) for action in range(chances.shape[1])], axis=0)


def _reward_basis(
    domain: Box, periodic: tuple[int, ...], n: int, states: Array | None, of: tuple[int, ...]
) -> Cells | Basis:
    """Piecewise linear on a grid with some states for each point; beyond four coordinates random sigmoids."""
    if len(domain) > MOST_COORDINATES:
        return value_basis(domain, periodic, MOST_POINTS // 10, states)
    points = min(MOST_POINTS, n / STATES_PER_POINT)
    along = min(max(int(points ** (1 / len(of))), 3), MOST_ALONE)
    return Cells(tuple(along if axis in of else 1 for axis in range(len(domain))), periodic).on(domain)


def _concluded(
    problem: ValueProblem,
    model: EffectModel,
    rows: Comparisons,
    fit: ValueFit,
    judged: JudgedStates,
    lifted: LiftedFit | None = None,
    path: FeaturePath | None = None,
    *,
    smooth: bool = False,
) -> Solution:
    """The solution with all that the data say of it, before it is tried."""
    effects, n = model.effects, len(model.effects)
    reward, residuals = read_reward(problem, model, fit, judged, lifted=lifted is not None, smooth=smooth)
    reward = reward if fit.prices is None else reward.with_costs(fit.prices.costs)
    value = value_function(effects.basis, fit.value, problem.is_terminal)
    basis = effects.basis._without_ends
    columns, ahead, model_error = action_values(problem, model, fit, lifted)
    advantages = rows.advantages(fit.value) + fit.costs
    missing = np.maximum(rows.margins - advantages, 0.0)
    worse, short = np.zeros(n, dtype=bool), np.zeros(n)
    worse[rows.which[(advantages < 0) & (rows.margins > 0)]] = True
    np.maximum.at(short, rows.which, fit.shortfall)
    compared = max(len(rows) + rows.ties, 1)
    functions = f"V has {effects.basis if isinstance(effects.basis, Sigmoids) else f'{effects.basis.size} functions'}"
    stats = Diagnostics(
        choice=f"{functions}{model.words}{model.declared}{'' if fit.prices is None else f'; {fit.prices.words}'}",
        counts=model.counts,
        action_names=problem.source.action_names,
        model_error=model_error,
        growth=problem.discount * spectral_radius(rows),
        independence=model.compared,
        uncovered=model.uncovered(problem),
        extrapolated=0.0 if reward.extrapolation is None else float(reward.extrapolation.mean()),
        ties=rows.ties / compared,
        unexplained=float(worse.mean()) if path is None else float(path.unexplained[path.chosen]),
        residual=float(np.sqrt(np.mean(residuals**2))),
        largest_residual=float(np.abs(residuals).max(initial=0.0)),
        noiseless=effects.noiseless,
        continuation=None if lifted is None else lifted.least,
        termination=None if problem.is_terminal is None else choices(rows),
        terminal=problem.terminal_boxes,
        periodic=problem.periodic,
        assumption="; ".join(filter(None, [problem.policy.assumption, model.assumption])),
    )
    unknown = rows if fit.prices is None else with_costs(rows)
    outside = np.flatnonzero(rows.margins >= 1.0)
    least = outside[advantages[outside].argmin()] if len(outside) else None
    name, coordinates = "state", tuple(range(len(problem.domain)))
    return Solution(
        findings=(*model.findings(problem), *_of_the_data(len(rows), stats), Reason.UNTRIED.finding()),
        reward=reward,
        value=value,
        components=(Estimate(name, coordinates, basis, columns, ahead),),
        discount=problem.discount,
        n_actions=effects.n_actions,
        expert=problem.policy.constant,
        margin=float("nan") if least is None else float(advantages[least]),
        state=None if least is None else effects.states[rows.which[least]],
        action=None if least is None else int(rows.alternatives[least]),
        compared=Compared(effects.states, short, rows.profile if path is None else np.zeros(n)),
        samples=min(model.counts),
        stats=stats,
        witness=None if path is not None else find_conflict(problem.policy, unknown, missing),
        path=path,
    )


def _of_the_data(comparisons: int, stats: Diagnostics) -> list[Finding]:
    """The findings that follow from estimates and comparisons."""
    findings = []
    if not comparisons:
        findings.append(Reason.ALL_ALIKE.finding())
    if stats.model_error > DISTRUST:
        reason = Reason.INEXACT_GREEDY if stats.noiseless else Reason.INEXACT_EFFECTS
        more = _more(min(stats.counts), 1.3 * (stats.model_error / DISTRUST) ** 2)
        findings.append(reason.finding(more, error=stats.model_error))
    if stats.unexplained > UNEXPLAINED:
        findings.append(Reason.UNEXPLAINED.finding(share=stats.unexplained))
    return findings


def _more(samples: int, factor: float = 4.0, name: str = "samples") -> str:
    """More transitions of each action, as far as they are kept, as `status.change` writes it."""
    enough = int(min(rounded_up(max(factor, 2.0) * samples), MOST_STATES)) if isfinite(factor) else MOST_STATES
    return change(**{name: enough}) if enough > samples else ""


def _narrower(asked: Request, tube: Array) -> str:
    """A margin with a tube that leaves half of the states outside, as `status.change` writes it."""
    method = asked.by_states
    if not isinstance(method.margin, int | float):
        return ""
    return change(
        method=f"certirl.{type(method).__name__}(…, margin={rounded_down(method.margin * float(np.median(tube)), 2):g})"
    )


def _trials(asked: Request) -> int:
    """The rows of each action by which the answer is tried: as many as it took, if the call does not say."""
    return asked.origin.rows_for_trials(asked.samples) if asked.trials is None else asked.trials


class Fresh(NamedTuple):
    """Transitions by which an answer is tried.

    Attributes:
        states: at which V is compared with the expert ``[n, d]``.
        next_states: several of every action at each of them ``[J, A, n, d]``.
        others: further states, from which plan and expert are compared ``[m, d]``.
        model: made of all transitions at hand, to plan in.
        error: of that model where there is no noise, over the effect of an action: a median; else 0.
    """

    states: Array
    next_states: Array
    others: Array
    model: Nearby
    error: float


def _fresh(asked: Request, rows: int, known: Nearby | None, periodic: tuple[int, ...], rng: Any) -> Fresh:
    """Draw the transitions of a trial: so many of each action that the simulator is asked about ``rows`` states.

    With noise, `DRAWS` next states of each fresh state are drawn. Where no transitions are known before, half of the
    rows, of one coordinate a quarter, are spread instead, for the model.
    """
    simulator: Any = asked.origin.for_purpose("trials").data
    problem = ValueProblem(asked.origin, asked.policy, asked.discount, periodic, terminal_of(simulator))
    noiseless = known is not None and known.noiseless
    share, draws = 1.0 if known is not None else 0.75 if len(asked.domain) == 1 else 0.5, 1 if noiseless else DRAWS
    states = live_states(simulator, int(share * rows) // draws, rng)
    moved = several_next_states(simulator, states, draws, rng)
    model = Nearby.of(states, moved, problem, noiseless=noiseless)
    if known is not None and noiseless:
        return Fresh(states, moved, states[:0], known + model, known.error(states, moved[0]))
    spread = live_states(simulator, rows - draws * len(states), rng)
    model += Nearby.of(spread, several_next_states(simulator, spread, 1, rng), problem, noiseless=False)
    if known is None:
        return Fresh(states, moved, spread, model, 0.0)
    return Fresh(states, moved, live_states(simulator, MOST_STARTS, rng), known + model, 0.0)


def try_out(solution: Solution, asked: Request, *, rng: np.random.Generator, known: Any = None) -> Solution:
    """Try a reward on fresh states of a simulator and by planning on R alone; status and reason say how that went."""
    trials, policy, periodic, value = _trials(asked), asked.policy, solution.stats.periodic, solution.value
    assert value is not None
    if not trials:
        return solution
    simulator: Any = asked.origin.for_purpose("trials").data
    follows = terminal_of(simulator) is not None or callable(getattr(simulator, "reward", None))
    followed = trials * (2 if known is None or known.noiseless else 3) // 4 if follows else 0
    drawn = trials - followed  # few, where the transitions of the answer are enough for a model with noise
    states, moved, others, model, error = _fresh(asked, drawn, known, periodic, rng)
    ahead = np.mean([[value(rows) for rows in of_draw] for of_draw in moved], axis=0)
    if solution.reward is not None and solution.reward.of_actions:
        ahead += np.stack([solution.reward(states, action) for action in range(len(ahead))]) / solution.discount
    best = ahead >= ahead.max(axis=0) - 1e-9 * np.ptp(ahead)
    good = (best.T | ~policy.support(states)).all(axis=1)  # every action that the expert may take is among the best
    margin = asked.by_states.margin
    tube = profile_at(states, solution.compared.states, policy, value.domain, periodic, margin=margin)
    outside = tube >= 1.0
    everywhere, away = Share(int(good.sum()), len(states)), Share(int(good[outside].sum()), int(outside.sum()))
    # V is positive at states that are not terminal: where every action terminates there is nothing to agree on.
    judged = np.ones(len(states), dtype=bool) if solution.stats.continuation is None else ahead.max(axis=0) > 0
    every, counted = np.concatenate([states, others]), np.append(judged, np.zeros(len(others), dtype=bool))
    if error > UNSURE:
        why = f"the transitions determine a next state to {error:.0%} of an action's effect: more trials are needed"
        more = _more(max(trials, 1), 1.3 * (error / UNSURE) ** 2, "trials")
        planned, finding, best = solution, Reason.NOT_PLANNED.finding(more, why=why), None
    else:
        planned, finding, best = _planned(solution, model, policy, every, judged=counted)
    more = _more(solution.samples)
    narrower = _narrower(asked, tube) if not outside.any() else ""
    findings = [finding, *_before_trials(solution), _of_fresh_states(away, more if outside.any() else narrower)]
    if best is not None:
        termination = solution.stats.termination
        rows = dict[str, Any](rows=followed, discount=solution.discount)
        avoided = None if value.ends is None else value.ends.boxes
        if solution.stats.continuation is not None:  # it avoids all ends
            avoided = np.full((1, 2, len(solution.domain)), np.array([[-np.inf], [np.inf]]))
        elif termination is None or termination[1] <= RARELY:  # it never continues where it could end
            avoided = np.zeros((0, 2, len(solution.domain)))
        reached = compare_ends(
            simulator, as_policy(best, best.n_actions), policy, every, avoided=avoided, rng=rng, **rows
        )
        planned = replace(planned, stats=replace(planned.stats, reached=reached))
        if reached is not None:
            findings.insert(1, _of_ends(reached, more, trials, of_features=solution.path is not None))
        elif solution.stats.terminal is not None or any(termination or ()):  # some state is terminal
            needed = ceil(PAIRS * FEWEST_STEPS * trials / followed)
            more = change(trials=rounded_up(needed))
            findings.insert(1, Reason.NOT_FOLLOWED.finding(more, trials=trials, needed=needed))
    stats = replace(planned.stats, greedy_share=everywhere, outside_share=away)
    return replace(planned, stats=stats).judged(*findings)


def _distance(solution: Solution, dynamics: Any, policy: Policy) -> float:
    """How far the plan on R alone is from the expert in a model: the largest of the shares that a trial limits."""
    assert solution.value is not None and solution.value.ends is not None
    rng = np.random.default_rng(0)
    states = live_states(dynamics, WALKS // 2, rng)
    planned, _, best = _planned(solution, dynamics, policy, states)
    assert best is not None
    asked: dict[str, Any] = {"rows": PAIRS * LONGEST, "discount": solution.discount, "rng": rng}
    plan, boxes = as_policy(best, best.n_actions), solution.value.ends.boxes
    reached = compare_ends(dynamics, plan, policy, states, avoided=boxes, **asked)
    stats = planned.stats
    return max(stats.planned_regret or 0.0, stats.planned_loss or 0.0, 0.0 if reached is None else reached.excess)


def _of_ends(reached: Reached, more: str, trials: int, *, of_features: bool) -> Finding:
    """What the ends of the plan's episodes, their steps and their returns allow."""
    shares = {"plan": reached.plan / reached.episodes, "expert": reached.expert / reached.episodes}
    numbers: dict[str, Any] = {"episodes": reached.episodes, "limit": GAP, **shares}
    if reached.avoided and reached.excess > GAP:
        reason = Reason.FEATURES_REACH_AVOIDED if of_features else Reason.REACHES_AVOIDED
        return reason.finding("" if of_features else more, **numbers)
    if reached.avoided and reached.most > GAP:
        factor = 1.3 * ((reached.most - reached.excess) / max(GAP - reached.excess, GAP / 10)) ** 2
        return Reason.TOO_FEW_EPISODES.finding(_more(trials, factor, "trials"), most=reached.most, **numbers)
    if reached.idle > GAP:
        left = [count / reached.episodes for count in reached.unfinished]
        return Reason.REACHES_NO_END.finding(
            more, steps=reached.steps, **numbers | {"plan": left[0], "expert": left[1]}
        )
    if reached.loss > GAP:
        return Reason.EARNS_LESS.finding(more, loss=reached.loss, **numbers)
    ended = min(reached.unfinished) < reached.episodes
    compared = ["ends"] * (ended or reached.returns is None) + ["returns"] * (reached.returns is not None)
    return Reason.REACHES_THE_SAME.finding(what=" and ".join(compared))


def _before_trials(solution: Solution) -> list[Finding]:
    """The findings, without the one that nothing was tried."""
    return [finding for finding in solution.findings if finding != Reason.UNTRIED.finding()]


def _of_fresh_states(outside: Share, more: str) -> Finding:
    """What the count of fresh states outside the tube allows."""
    if not outside.n:
        return Reason.ALL_IN_TUBE.finding(more)
    if outside.low < PREFERRED:
        return Reason.PREFERRED_TOO_SELDOM.finding(more, share=outside, least=PREFERRED)
    return Reason.PREFERRED.finding(share=outside)


def _planned(
    solution: Solution,
    simulator: Any,
    policy: Policy,
    states: Array,
    *,
    judged: NDArray[np.bool_] | None = None,
    in_model: bool = False,
    decisive: bool = True,
) -> tuple[Solution, Finding, Plan | None]:
    """Plan on R alone, in a simulator or in the model of a log: the solution with the outcome, a finding, the plan.

    Args:
        solution: with R and V.
        simulator: to plan in.
        policy: the expert.
        states: at which the plan is compared with the expert ``[n, d]``.
        judged: which of them count ``[n]``; all if left out.
        in_model: the simulator is the next-state model of a log.
        decisive: a failure is one of R, and not of the simulator.
    """
    assert solution.reward is not None and solution.value is not None
    asked: dict[str, Any] = {"discount": solution.discount, "judged": judged}
    asked["rollouts"] = in_model
    comparison, best = compare(simulator, solution.reward, solution.value, policy, states, **asked)
    regret, loss = comparison.shares
    gap = max(regret, loss)
    reason = Reason.PLANNED_IN_MODEL if in_model else Reason.PLANNED_AWAY if gap > GAP else Reason.PLANNED
    # Nothing earns more than the best plan: where the expert does, the plan is not the best one.
    failure = -comparison.regret / comparison.chance if comparison.chance > 0 else 0.0
    if failure > COARSE:
        reason, gap, regret = Reason.PLANNED_TOO_COARSELY, failure, -failure
    elif decisive and gap > UNUSABLE:
        reason = Reason.PLANNED_FAR_AWAY
    model = ", in the model of the next state," if in_model else ""
    share = Share(comparison.agreed, comparison.judged, "states of the log" if in_model else "fresh states")
    stats = replace(solution.stats, planned_share=share, planned_regret=regret, planned_loss=loss)
    changes = {
        Reason.PLANNED_AWAY: _more(solution.samples),
        Reason.PLANNED_FAR_AWAY: _more(solution.samples) if solution.stats.unexplained < EXPLAINED else UNEXPLAINED_AT,
        Reason.PLANNED_TOO_COARSELY: "" if in_model else _more(solution.samples, name="trials"),
    }
    return replace(solution, stats=stats), reason.finding(changes.get(reason, ""), model=model, gap=gap, most=GAP), best


def _tried_in_a_model(solution: Solution, model: EffectModel, policy: Policy) -> Solution:
    """Try planning on R alone in the model of the next state of a log, if its error is small.

    Where R is a bound, nothing is known of the expert: plan and expert are compared from states of the log from which
    the expert stays within the data.
    """
    findings = [*_before_trials(solution), Reason.NO_FRESH_STATES.finding(share=1 - solution.stats.unexplained)]
    assert isinstance(model, LogModel)
    if not model.errors.is_model:
        return solution.judged(Reason.NO_MODEL.finding(misfit=model.errors.misfit, most=1 / CLEARLY), *findings)
    states, reward = solution.compared.states, solution.reward
    assert reward is not None
    if reward.extrapolation is not None:
        states = states[:WALKS]
        stays = _stays(reward, model.dynamics, policy, states, solution.discount)
        staying = Share(int(stays.sum()), len(states), "states of the log")
        solution = replace(solution, stats=replace(solution.stats, staying=staying))
        if staying.count < FEWEST_STAYING:
            why = f"the expert stays within the data from only {staying}"
            return solution.judged(Reason.NOT_PLANNED.finding(why=why), *findings)
        states = states[stays]
    planned, finding, _ = _planned(
        solution, model.dynamics, policy, states, in_model=True, decisive=not isinstance(model, RegressionModel)
    )
    near = max(planned.stats.planned_regret or 0.0, planned.stats.planned_loss or 0.0) <= GAP
    return planned.judged(*(*findings, finding) if near else (finding, *findings))


def _stays(reward: Reward, dynamics: Any, policy: Policy, states: Array, discount: float) -> NDArray[np.bool_]:
    """From which states the expert reaches no state where R is extrapolated, for three times the horizon ``[n]``."""
    stays, steps = np.ones(len(states), dtype=bool), min(ceil(3 / (1 - discount)), LONGEST)
    for step in simulate(dynamics, states, [policy] * steps, np.random.default_rng(0)):
        left = reward.extrapolated(step.next_states) & ~step.over
        stays[step.rows[left]] = False
    return stays


MOST_FOR_A_REWARD = 300_000  # transitions per action from which a reward is learned during a search
COLUMNS, MOST_COLUMNS = {1: 15, 2: 21, 3: 20}, 40
MOST_FOR_A_TAIL, TOO_COSTLY = 300, 10  # columns, where 40 have a tail that costs this many times what is tolerable
MOST_REFUTED = 9  # functions of V up to which a proof that there is no reward is tried
TOLERABLE = 1e-3  # of the value's span: the cost of a tail up to which columns are enough


class ValueLearner:
    """Learns rewards by the value form; see `search.Learner`."""

    def __init__(self, case: Case, asked: Request) -> None:
        self.case, self.fewest = case, max(case.parts[0].columns.size + 2, FEWEST)
        self._asked = asked

    def learn(self, training: Pool) -> Learned:
        """Rewards from the first training transitions; whatever they explain, a certificate says what is true of it.

        A smooth reward takes the fewest transitions for a margin; a rough one may have less regret beside switches.
        """
        log = Logged(training.log(MOST_FOR_A_REWARD))
        asked = replace(self._asked, source=log, policy=self.case.policy, rng=0, progress=False)
        methods: list[Method] = [asked.method]
        if asked.regret is not None and isinstance(asked.method, ValueForm) and asked.method.smoothness is None:
            methods.append(replace(asked.method, smoothness=0.0))
        answers = [explain(replace(asked, method=method), tried=self._asked.is_log) for method in methods]
        candidates = [answer for answer in answers if answer.reward is not None]
        # A refutation is of rewards of the state: what an action pays can explain what these do not.
        of_states = not any(answer.reward.of_actions for answer in answers if answer.reward is not None)
        is_refutable = of_states and self.case.suboptimality is None
        classes = (answers[0].basis,) if is_refutable and answers[0].basis.size <= MOST_REFUTED else ()
        return Learned(candidates, answers[0], classes=classes, is_alike=answers[0].stats.all_alike)


def with_proof(outcome: Outcome, asked: Request) -> Solution:
    """The solution with what fresh data proved; without a proof of a simulator's reward, with trials of it."""
    solution: Solution = outcome.learned.answer if outcome.candidate is None else outcome.candidate
    counts = asked.origin.counts(outcome.samples)
    stats = replace(solution.stats, counts=tuple(counts.tolist()), search=outcome.rounds)
    certificate, refutation = outcome.certificate, outcome.refutation
    solution = replace(solution, samples=int(counts.min()), stats=stats, certificate=certificate, refutation=refutation)
    if solution.reward is None:  # by estimates, which prove nothing
        return solution.judged(replace(solution.findings[0], status="undetermined"))
    if certificate is not None and certificate.holds:
        return solution.judged(Reason.CERTIFIED.finding(proved=certificate.proved))
    if refutation is not None and refutation.holds:
        refuted = Reason.REFUTED.finding(
            larger_basis(solution.basis) or "print(solution.witness)", claim=refutation.claim
        )
        return replace(solution, witness=refutation.witness).judged(refuted)
    if refutation is not None and refutation.refuted:
        declared = Reason.REFUTED_WITHOUT_TAIL.finding(
            refutation.change(asked.tail, asked.seen), claim=refutation.claim
        )
        solution = solution.judged(*solution.findings, declared)
    if not asked.is_log:
        rng = asked.generator.spawn(1)[0]
        solution = try_out(solution, asked, rng=rng)
    claim = certificate or refutation
    if claim is None or (refutation is not None and refutation.refuted):  # there are findings that say why
        return solution
    return solution.noted(unproved(claim, asked.tail, asked.log_rows, asked.seen))


def larger_basis(basis: Basis) -> str:
    """About twice as many functions on an interval, as `status.change` writes it; empty for others."""
    if basis.dimension > 1 or not isinstance(basis, Legendre | Fourier):
        return ""
    return change(basis=f"certirl.{type(basis).__name__}({2 * basis.size + 1})")


def proof_columns(
    asked: Basis | int | None, tail: TailLike, domain: Box, discount: float, periodic: tuple[int, ...]
) -> Basis:
    """The functions of the state asked for; else as few as make the tail cost little of the value's span."""
    if isinstance(asked, Basis):
        return as_basis(asked, domain, name="columns", most=bases.MOST_COLUMNS)
    if asked is not None or tail is None:
        meaning = by_door("a basis such as Legendre(15), or a whole number of functions", "a whole number of functions")
        most, usual = bases.MOST_COLUMNS, COLUMNS[len(domain)]
        size = usual if asked is None else as_count(asked, "columns", most=most, meaning=meaning)
        return first_functions(size, domain, periodic)

    choices = _column_choices(domain, periodic)

    def limit(basis: Basis) -> float:
        return TOLERABLE / tail_factor(basis, discount)

    def cost(basis: Basis) -> float:
        return (tail_number(tail, basis) or 0.0) / limit(basis)

    few, is_enough = fewest(choices, cost)
    if is_enough or cost(few) < TOO_COSTLY:
        return few
    wider, _, is_enough = least_columns(tail, choices[-1], limit, most=MOST_FOR_A_TAIL)
    return wider if is_enough or (tail_number(tail, few) or 0.0) >= bounding_tail(few, discount) else few


def _column_choices(domain: Box, periodic: tuple[int, ...]) -> list[Basis]:
    """Columns to choose from, fewest first: of one coordinate any odd number, on a box all of a total degree."""
    if len(domain) > 1:
        degrees = (of_degree(domain, degree, periodic) for degree in range(1, MOST_COLUMNS))
        return list(takewhile(lambda basis: basis.size <= MOST_COLUMNS, degrees))
    family = Fourier if periodic else Legendre
    return [family(size).on(domain) for size in (*range(3, MOST_COLUMNS, 2), MOST_COLUMNS)]
