"""Soft experts in `solve`: log-odds, dynamics, rewards, tests and the band."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import nan
from typing import Any, NamedTuple

import numpy as np

from certirl.data.memory import find_memory
from certirl.data.moments import Moments
from certirl.data.source import Logged, Source, as_source, for_simulators
from certirl.data.tables import as_log
from certirl.data.transitions import Transitions, action_in_words
from certirl.fit.declared import Declared, as_declared
from certirl.fit.drifts import Drifts
from certirl.fit.effects import value_basis
from certirl.fit.logit import (
    BEFORE,
    HIGHER,
    Fitted,
    FitTest,
    choose_logit,
    higher_degree_test,
    log_likelihood,
    memory_test,
)
from certirl.fit.projections import Projections
from certirl.fit.soft import Identified, TwoSteps, by_features, by_reference, embedded, project, wider
from certirl.functions.bases import Basis, as_basis, first_functions, of_degree
from certirl.functions.features import Features, check_no_terminal, features_of
from certirl.functions.reward import Reward, values_of
from certirl.ground.domain import Array
from certirl.ground.doors import as_count, as_probability, by_door, setting, shown
from certirl.ground.status import Finding, Reason, chance, change, rounded_up
from certirl.ground.work import announcer, check_progress
from certirl.proof.case import Declaration
from certirl.proof.known_noise import AffineGaussian
from certirl.proof.seen import tail_seen
from certirl.proof.soft import ColumnDynamics, prove_band
from certirl.proof.tails import TailLike, check_tail
from certirl.solver.methods import STATE, FeatureForm, SoftExpert
from certirl.solver.soft_solution import Likelihood, SoftSolution
from certirl.solver.value_form import larger_basis, proof_columns

SAMPLES = 10_000  # transitions per action that a simulator is asked for
LEVEL = 0.01  # of the tests: with a smaller chance a model is called wrong
LEAST_SHARE = 1e-3  # of a decision's log-likelihood: what the state must say of it at least
_STAGES = 4  # of which progress is reported
_DEGREES = {1: 13, 2: 7}  # of a reward of the state at most, by the number of coordinates; 4 for more


class SoftRequest(NamedTuple):
    """A call of `solve` with a soft expert, after all checks.

    Attributes:
        source: of the dynamics.
        decisions: of the expert.
        expert: who it is.
        reference: the action whose log-odds are 0; its reward is given unless rewards are of the state or features.
        given: its reward, a function of states or a number.
        features: of the rewards; None for others.
        discount: γ.
        basis, columns: asked for; None to be chosen.
        declared: the actions of a log whose effects are declared; a simulator does then so itself.
        samples: as in `solve`.
        delta, tail, dynamics: as in `solve`.
        rng: the same.
    """

    source: Source
    decisions: Transitions
    expert: SoftExpert
    reference: int
    given: Any
    features: Features | None
    discount: float
    basis: Basis | None
    columns: Basis | None
    declared: Declared
    samples: Any
    delta: float | None
    tail: TailLike
    dynamics: Declaration | None
    rng: Any

    @property
    def has_reference(self) -> bool:
        """Whether the reward of an action is given."""
        return self.features is None and self.expert.reward is None


def solve_soft(source: Any, expert: SoftExpert, *, progress: Any, **asked: Any) -> SoftSolution:
    """The rewards of a soft expert; arguments as for `solve`."""
    check_progress(progress)
    return _solved(_request(source, expert, **asked), announcer(progress))


def _request(
    source: Any,
    expert: SoftExpert,
    *,
    discount: Any,
    method: Any,
    basis: Any,
    columns: Any,
    effects: Any,
    samples: Any,
    delta: Any,
    tail: TailLike,
    dynamics: Any,
    rng: Any,
    **others: Any,
) -> SoftRequest:
    """The call after all checks, before anything is drawn."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{setting(name)} is for experts who are exact: leave it out for a SoftExpert")
    check_tail(tail)
    if isinstance(source := as_log(source), Moments):
        raise TypeError("a soft expert needs transitions or a simulator: moments keep no states")
    origin = as_source(source)
    declared = Declared() if effects is None else as_declared(effects, origin.n_actions, origin.domain)
    if declared and delta is not None and not (origin.is_log and dynamics is None):
        why = "known noise is that of every action" if origin.is_log else "a proof rests on draws of every action"
        raise ValueError(f"{why}: leave effects out, or delta")
    if declared and not origin.is_log:
        origin, declared = as_source(declared.over(source)), Declared()
    decisions = _decisions(expert, origin)
    if origin.n_actions < 2:
        raise ValueError("there is only one action, so nothing is chosen: at least two are needed")
    names = origin.action_names
    if isinstance(expert.reference, str) and expert.reference not in names:
        known = f"one of {', '.join(names)}" if names else "a number, as the data have no names of actions"
        raise ValueError(f"reference must be an action, {known}, got {shown(expert.reference)}")
    reference = names.index(expert.reference) if isinstance(expert.reference, str) else expert.reference
    reference = as_count(reference, "reference", least=0, most=origin.n_actions - 1, meaning="an action")
    if isinstance(dynamics, Drifts):
        raise ValueError("a soft expert tries every action sometimes, and a shared drift is for others: leave it out")
    if delta is None:
        for name, value in {"tail": tail, "dynamics": dynamics}.items():
            if value is not None:
                raise ValueError(f"{setting(name)} is for a band: pass {setting('delta')} too, or leave it out")
    if samples is not None and origin.is_log:
        raise ValueError(for_simulators("samples"))
    asked = SoftRequest(
        source=origin,
        decisions=decisions,
        expert=expert,
        reference=reference,
        given=expert.reference_reward,
        features=_features(method, origin),
        discount=as_probability(discount, "discount"),
        basis=None if basis is None else as_basis(basis, origin.domain, like="certirl.Legendre(5)"),
        columns=_columns(columns, origin),
        declared=declared,
        samples=samples,
        delta=delta,
        tail=tail,
        dynamics=dynamics,
        rng=rng,
    )
    _check_expert(asked)
    return asked


def _check_expert(asked: SoftRequest) -> None:
    """Refuse rewards that are asked for in two ways, and a band of rewards that it is not about."""
    if asked.features is not None and asked.expert.reward is not None:
        raise ValueError('rewards are of features, or reward="state": leave one of them out')
    if not asked.has_reference and asked.given != 0:
        raise ValueError("rewards of features give no action a reward of its own: leave reference_reward out")
    if asked.delta is None:
        if asked.expert.tail:
            raise ValueError(f"the tail of log-odds is for a band: pass {setting('delta')} too, or leave it out")
        return
    if not asked.has_reference:
        raise ValueError("a band needs the reward of one action: name a reference alone, or leave delta out")
    if callable(asked.given):
        raise ValueError("a band needs a reference whose reward is a number: shift it, or leave delta out")
    if asked.basis is None:
        raise ValueError(
            f"a band needs the functions of the log-odds, which data must not choose: pass "
            f"{by_door('basis=certirl.Legendre(5), say', '--basis Legendre, --size 5, say')}; without delta held-out "
            "decisions choose them"
        )
    if asked.dynamics is not None and not isinstance(asked.dynamics, AffineGaussian):
        raise ValueError("a band rests on columns with a tail, or on dynamics=certirl.dynamics.AffineGaussian(…)")
    if asked.dynamics is not None and (asked.tail is not None or asked.columns is not None):
        raise ValueError("dynamics stand in place of columns and a tail: leave these out, or dynamics")


def _decisions(expert: SoftExpert, origin: Source) -> Transitions:
    """The log of the expert's decisions, with the actions and the box of the dynamics."""
    log = origin.data if expert.decisions is None else as_log(expert.decisions)
    if not isinstance(log, Transitions):
        if expert.decisions is None:
            raise TypeError("a simulator takes no decisions: pass a log of the expert's, SoftExpert(decisions=log)")
        raise TypeError(
            f"decisions must be transitions of the expert or a table of them, got {shown(expert.decisions)}"
        )
    if log is origin.data:
        return _chosen_ones(log)
    if len(log.domain) != len(origin.domain):
        raise ValueError(
            f"decisions are at states of {len(log.domain)} coordinates, the dynamics have {len(origin.domain)}"
        )
    if log.n_actions > origin.n_actions:
        raise ValueError(f"decisions are among {log.n_actions} actions, the dynamics have {origin.n_actions}")
    if log.action_names and origin.action_names and log.action_names != origin.action_names:
        raise ValueError(
            f"decisions number the actions as {', '.join(log.action_names)}, the dynamics as "
            f"{', '.join(origin.action_names)}: give both the same order"
        )
    inside = replace(log, domain=origin.domain, n_actions=origin.n_actions, action_names=origin.action_names)
    return _chosen_ones(inside)


def _chosen_ones(log: Transitions) -> Transitions:
    """The decisions without rows that keep terminal states where they are; all actions must have been taken."""
    log = log.where(log.in_episodes) if log.episodes is not None and not log.in_episodes.all() else log
    if log.counts.min() == 0:
        never = action_in_words(int(log.counts.argmin()), log.action_names)
        raise ValueError(
            f"the expert never takes {never}, so that its reward may be arbitrarily low: leave that action out of the "
            "data, or record more decisions"
        )
    return log


def _features(method: Any, origin: Source) -> Features | None:
    if method is None:
        return None
    if not isinstance(method, FeatureForm):
        raise TypeError(f"the method for a soft expert is certirl.FeatureForm(…), or None, got {shown(method)}")
    for name in ("signs", "guess", "margin", "slack"):
        if getattr(method, name) is not None:
            raise ValueError(f"the weights of a soft expert's features are the likeliest ones: leave {name} out")
    if not origin.has_terminal_states:
        check_no_terminal(method.features)
    return features_of(method.features, origin.domain)


def _columns(columns: Any, origin: Source) -> Basis | None:
    if columns is None or isinstance(columns, Basis):
        return None if columns is None else as_basis(columns, origin.domain, name="columns")
    return first_functions(
        as_count(columns, "columns", meaning="a basis, or a whole number of functions of the state"),
        origin.domain,
        origin.periodic,
    )


def _solved(asked: SoftRequest, watch: Any) -> SoftSolution:
    """Log-odds, dynamics, rewards, tests and the band."""
    source, decisions = asked.source, asked.decisions
    fitted = choose_logit(decisions, source.domain, asked.basis, reference=asked.reference, periodic=source.periodic)
    watch(f"1 of {_STAGES}: log-odds are found in {fitted.logit.basis}", 1, _STAGES)
    log = source.data if isinstance(source, Logged) else _drawn(asked)
    dynamics = project(source, log, asked.columns, fitted.logit, asked.discount, asked.declared)
    watch(f"2 of {_STAGES}: the effects of the actions are found in {dynamics.columns}", 2, _STAGES)
    found, reward = _rewards(asked, dynamics, fitted)
    watch(f"3 of {_STAGES}: the rewards are found", 3, _STAGES)
    solution = _concluded(asked, dynamics, fitted, found, reward)
    if isinstance(source, Logged) and (memory := find_memory(source.data)).found:
        solution = solution.noted(Reason.MEMORY.finding(test=memory, cure=memory.cure))
    if asked.delta is not None:
        solution = _bounded(asked, solution)
    rng = None if asked.delta is None else asked.rng
    again = partial(asked.source.again, function="certirl.solve", rng=rng)
    solution = solution.judged(*(replace(found, next=again(found.next)) for found in solution.findings))
    watch(f"4 of {_STAGES}: the rewards are bounded", 4, _STAGES)
    return solution


def _drawn(asked: SoftRequest) -> Transitions:
    """Transitions of a simulator, those of each action by themselves, without steps from terminal states."""
    count = asked.source.number_to_draw(asked.samples, usual=SAMPLES)
    where = value_basis(asked.source.domain, asked.source.periodic)
    rng = asked.source.generator(asked.rng, "solve_soft")
    log = asked.source.stream(count, where, rng, design=True, paired=False).record()
    is_terminal, _ = asked.source.terminal()
    return log if is_terminal is None else log.where(~is_terminal(log.states))


def _rewards(asked: SoftRequest, dynamics: Projections, fitted: Fitted) -> tuple[Identified, Reward]:
    """What is found of the rewards, and R as a function of state and action."""
    logit = fitted.logit
    if asked.has_reference:
        given = partial(values_of, asked.given, name="reference_reward") if callable(asked.given) else None
        found = by_reference(dynamics, logit, asked.discount, given)
        if given is None:
            constant = found.basis._constant() * float(asked.given)
            return found, Reward(found.basis, found.coefficients + constant)
        basis = wider(_fine(asked), wider(logit.basis, found.columns))
        into = embedded(found.basis, basis)
        found = found._replace(
            basis=basis,
            coefficients=found.coefficients @ into.T + _in_basis(given, basis),
            covariances=into @ found.covariances @ into.T,
        )
        return found, Reward(basis, found.coefficients)
    settings: dict[str, Any] = {"discount": asked.discount}
    if asked.features is not None:
        features = asked.features
        found = by_features(dynamics, logit, asked.decisions, features.values, features, **settings)
        return found, Reward(features, found.coefficients)
    basis = _state_basis(asked, dynamics, fitted)
    found = by_features(dynamics, logit, asked.decisions, _varying(basis), basis.resized(basis.size - 1), **settings)
    padded = np.pad(found.covariances, ((1, 0), (1, 0)))
    reward = Reward(basis, np.append(0.0, found.coefficients))
    return found._replace(basis=basis, coefficients=reward.coefficients, covariances=padded), reward


def _fine(asked: SoftRequest) -> Basis:
    return value_basis(asked.source.domain, asked.source.periodic)


def _in_basis(function: Callable[[Array], Array], basis: Basis) -> Array:
    """A function of states in a basis, by least squares ``[k]``."""
    states = basis.design(20 * basis.size, np.random.default_rng(0))
    return np.linalg.lstsq(basis.values(states), function(states), rcond=None)[0]


def _varying(basis: Basis) -> Callable[[Array, int], Array]:
    """All functions of a basis but the constant, for every action."""
    return lambda states, action: basis.values(states)[:, 1:]


def _state_basis(asked: SoftRequest, dynamics: Projections, fitted: Fitted) -> Basis:
    """The functions of a reward of the state under which held-out decisions are likeliest."""
    box, periodic = asked.source.domain, asked.source.periodic
    best, most, free = of_degree(box, 1, periodic), -np.inf, (fitted.logit.n_actions - 1) * fitted.logit.basis.size
    for degree in range(1, _DEGREES.get(len(box), 4)):
        basis = of_degree(box, degree, periodic)
        if basis.size > max(free, best.size):
            break
        try:
            steps = TwoSteps(dynamics, fitted.logit, asked.decisions, _varying(basis), basis.size - 1, asked.discount)
            theta = steps.likeliest([])
        except ValueError:  # these decisions do not tell as many functions apart
            break
        reached = steps.held_out_likelihood(theta, fitted.folds)
        if reached <= most:
            break
        best, most = basis, reached
    return best


def _concluded(
    asked: SoftRequest, dynamics: Projections, fitted: Fitted, found: Identified, reward: Reward
) -> SoftSolution:
    """The answer without a band."""
    logit, decisions, source = fitted.logit, asked.decisions, asked.source
    n, shares = len(decisions), decisions.counts / len(decisions)
    counts = dict(zip(dynamics.regressed, dynamics.log.counts, strict=True)) | dict.fromkeys(asked.declared.moves, 0)
    free = log_likelihood(logit.basis, decisions.states, decisions.actions, logit.coefficients)
    likelihood = Likelihood(
        decisions=n,
        constant=float((shares * np.log(shares)).sum()),
        free=free / n,
        reward=(free if found.fit is None else found.likelihood) / n,
    )
    tests = [higher_degree_test(logit, decisions), memory_test(logit, decisions), found.fit]
    names = source.action_names or decisions.action_names
    covariances = found.covariances if found.covariances.ndim == 3 else found.covariances[None]
    seed = int(asked.rng) if isinstance(asked.rng, int | np.integer) else None
    solution = SoftSolution(
        findings=(Reason.ESTIMATED.finding(actions=logit.n_actions, error=nan),),
        reward=reward,
        value=Reward(_fine(asked), _in_basis(found.value, _fine(asked))),
        odds=logit,
        columns=found.columns,
        effects=found.effects,
        covariances=covariances,
        discount=asked.discount,
        reference=asked.reference if asked.has_reference else None,
        counts=tuple(int(counts[action]) for action in range(logit.n_actions)),
        likelihood=likelihood,
        calibration=_calibration(fitted, decisions),
        tests=tuple(test for test in tests if test is not None and test.freedom),
        assumed=tuple(_assumed(asked, names)),
        seed=seed,
        action_names=names,
        coordinate_names=source.coordinate_names or decisions.coordinate_names,
        log_notes=tuple(dict.fromkeys((*source.notes, *decisions.notes))),
    )
    estimated = Reason.ESTIMATED.finding(actions=logit.n_actions, error=solution.median_error)
    return solution.judged(*_found_wrong(solution, found.fit), estimated)


def _found_wrong(solution: SoftSolution, fit: FitTest | None) -> list[Finding]:
    """What the tests say against the answer."""
    findings, known = list[Finding](), solution.likelihood.free - solution.likelihood.constant
    if known < LEAST_SHARE / 10:
        findings.append(Reason.UNEXPLAINED_CHOICES.finding())
    if fit is not None and fit.chance < LEVEL:
        cure = "take another class of rewards, with a reference or with more features"
        instead = "expert=certirl.SoftExpert(…, reward=None, reference=0), method=None"
        findings.append(Reason.REJECTED.finding(instead, chance=fit.chance, cure=cure))
    for test in solution.tests:
        if test.chance < LEVEL and test.what == HIGHER:
            finer = larger_basis(solution.odds.basis)
            findings.append(Reason.ROUGH_ODDS.finding(finer, basis=solution.odds.basis, chance=test.chance))
        if test.chance < LEVEL and test.what == BEFORE:
            findings.append(Reason.REMEMBERS.finding(chance=test.chance))
    return findings


def _calibration(fitted: Fitted, decisions: Transitions, groups: int = 10) -> Array:
    """Means of predicted probabilities of held-out decisions, shares of these taken, and their numbers ``[3, g]``."""
    chances = fitted.chances.ravel()
    taken = (decisions.actions[:, None] == np.arange(fitted.logit.n_actions)).ravel()
    parts = np.array_split(np.argsort(chances, kind="stable"), groups)
    return np.array([[chances[part].mean(), taken[part].mean(), len(part)] for part in parts if len(part)]).T


def _assumed(asked: SoftRequest, names: tuple[str, ...]) -> list[str]:
    """What identification rests on, in sentences."""
    which = action_in_words(asked.reference, names)
    if asked.features is not None:
        rests = f"rewards are sums of {asked.features}"
    elif asked.expert.reward == STATE:
        rests = "rewards do not depend on the action, and their constant is chosen"
    else:
        known = "known" if callable(asked.given) else f"{float(asked.given):g} at every state"
        rests = f"the reward of {which} is {known}"
    moved = (f"the effect of {action_in_words(action, names)} is as declared" for action in asked.declared.moves)
    return [
        "logit noise: actions have probabilities proportional to exp Q_a(s), and its scale is the unit of the rewards",
        rests,
        f"the expert's discount is {asked.discount:g}",
        "decisions and next states depend on the past through the state alone",
        *moved,
    ]


def _bounded(asked: SoftRequest, solution: SoftSolution) -> SoftSolution:
    """The same with a band, where there is one."""
    source, columns = asked.source, asked.columns
    if asked.declared:
        assert isinstance(source.data, Transitions)
        source = as_source(asked.declared.filled(source.data))
    if asked.dynamics is None and columns is None:
        columns = proof_columns(None, asked.tail, source.domain, asked.discount, source.periodic)
    assert asked.basis is not None
    band = prove_band(
        asked.basis,
        asked.decisions,
        source,
        discount=asked.discount,
        reference=asked.reference,
        reference_reward=float(asked.given),
        delta=asked.delta,  # type: ignore[arg-type]  # checked there
        odds_tail=asked.expert.tail,
        dynamics=asked.dynamics if isinstance(asked.dynamics, AffineGaussian) else None,
        columns=columns,
        tail=asked.tail,
        samples=asked.samples,
        rng=asked.rng,
    )
    solution = replace(solution, proof=band)
    if band.holds:
        wrong = [replace(finding, status="bounded") for finding in solution.findings[:-1]]
        return solution.judged(*wrong, Reason.BOUNDED.finding(sure=chance(band.delta)))
    cure = "declare a tail" if band.tail is None else "record more, or name fewer functions of the log-odds"
    more = change(samples=rounded_up(4 * min(solution.counts)))
    if band.tail is None and isinstance(band.dynamics, ColumnDynamics):
        more = tail_seen(source, [band.dynamics.ground.columns], asked.discount, chosen=asked.columns is None)
    finding = Reason.NO_BAND.finding(more, band="the band is not bounded", cure=cure)
    return solution.judged(finding, *solution.findings)
