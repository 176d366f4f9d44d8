"""The one call: data or simulator in, solution out."""

from __future__ import annotations

import warnings
from typing import Any

from certirl.data.moments import Moments
from certirl.data.simulator import Simulator, as_generator, as_samples, check_simulator
from certirl.data.source import as_source
from certirl.data.transitions import Transitions
from certirl.data.trials import noise_fault
from certirl.fit.bellman import check_problem
from certirl.fit.estimate import FORMS
from certirl.fit.recover import OBJECTIVES, as_radius, check_slack
from certirl.functions.bases import as_basis
from certirl.ground.domain import as_domain
from certirl.ground.doors import as_count, as_flag, by_door, setting, shown
from certirl.ground.progress import Report, announcer, check_progress
from certirl.ground.work import on
from certirl.proof.certify import check_delta
from certirl.proof.tail import TailLike, check_tail
from certirl.proof.weigh import check_box
from certirl.solver.prove_policy import prove_policy, prove_policy_by_log
from certirl.solver.solution import Solution
from certirl.solver.solve_action import estimated, proved_by_draws, proved_by_log
from certirl.solver.solve_components import solve_components
from certirl.solver.solve_policy import solve_policy

SAMPLES, MAX_SAMPLES = 10_000, 1_000_000  # transitions per action, where no number is given
NO_PROOF_FROM_MOMENTS = (
    "a certificate needs transitions, since it must look at data that the reward has not seen, and moments keep none"
)


def solve(
    source: Simulator | Transitions | Moments,
    *,
    discount: float,
    expert: Any = 0,
    basis: Any = None,
    columns: Any = None,
    samples: int | None = None,
    rng: Any = None,
    objective: str | None = None,
    form: str | None = None,
    cover: float | None = None,
    slack: float | None = None,
    delta: float | None = None,
    tail: TailLike = None,
    max_samples: int | None = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
    components: Any = None,
    margin: Any = None,
    tube: float | None = None,
    regret: float | None = None,
) -> Solution:
    """Find a reward under which the expert's action is strictly optimal: ``min_s D_a(s) ≥ 1`` for every rival a.

    Args:
        source: a simulator (anything with ``n_actions``, ``domain`` and ``sample(states, action, rng)``), logged
            `Transitions`, or `Moments` measured before: these keep no transitions that a certificate could look at.
        discount: γ, strictly between 0 and 1.
        expert: the action it always takes, or a function of states, or a model that predicts: see docs/experts.md.
            With terminal states an action is treated like a function of states.
        basis: the functions φ, say ``Legendre(11)`` or ``product(Fourier(9), Legendre(7))``; by held-out data if None.
        columns: how many of them describe the state; chosen from held-out data if left out.
        samples: transitions to draw for each action without ``delta``, 10,000 if left out; for simulators only.
        rng: a seed or Generator; needed with a simulator.
        objective: "least-variance", the default but for proofs of sums, "l1" (the paper's) or "max-margin".
        form: "least-squares" (well-placed states), the default, or "mean" (the paper's: states from the weight of φ).
        cover: solve on the paper's cover of this radius instead of on the continuum.
        slack: soft form for experts that are only nearly optimal: the price of a shortfall.
        delta: go on until it is proved, with at most this probability of a false certificate; on boxes see `certify`.
        tail: what is known of the dynamics beyond the columns (see `certify`); without it nothing is "certified".
        max_samples: with ``delta``, transitions per action to stop at, a million if left out; for simulators only.
        paired: the same states and random numbers for every action, so that noise cancels; by a trial if left out.
        progress: True, False, None for a line if standard error is a terminal, or a function ``(done, total)``: of
            transitions per action with ``delta``, of transitions without, of stages for experts that depend on the
            state.
        map: a number of threads, a Dask client or an executor; all cores if left out. Results do not depend on it.
        components: groups of coordinates that move independently, ``[[0], [1]]``; basis and columns for all or each.
        margin: if the expert depends on the state, the half-width of the tube beside a switch; see `solve_policy`.
        tube: with ``delta``, how far from a switch that must be proved, in units of the state; see `certify`.
        regret: with ``delta``, go on until following the expert costs no more than this share of the value's span.
    """
    check_progress(progress)
    check_tail(tail)
    is_log, is_policy, is_proof = isinstance(source, Transitions), not _is_one_action(expert), delta is not None
    if not isinstance(source, Transitions | Moments):
        check_simulator(source)
    elif is_policy and isinstance(source, Moments):
        raise TypeError("an expert that depends on the state needs transitions or a simulator: moments keep no states")
    discount = check_problem(discount, 0 if is_policy else expert, source.n_actions)
    delta = None if delta is None else check_delta(delta)
    if paired is not None:
        as_flag(paired, "paired")
    by_value = is_policy or (not is_proof and not isinstance(source, Moments) and as_source(source).has_terminal_states)
    idle = _idle(is_simulator=not isinstance(source, Transitions | Moments), is_policy=is_policy, is_proof=is_proof)
    idle |= _without_program(is_policy=is_policy, is_proof=is_proof) if by_value else {}
    asked: dict[str, Any] = {"samples": samples, "max_samples": max_samples, "paired": paired, "tail": tail}
    asked |= {"objective": objective, "form": form, "cover": cover, "components": components, "columns": columns}
    asked |= {"margin": margin, "tube": tube, "regret": regret}
    for name, value in asked.items():
        if value is not None and name in idle:
            raise ValueError(idle[name])
    check_slack(slack)
    if not isinstance(source, Transitions | Moments):
        fault = noise_fault(source)
        if fault and is_proof:
            raise ValueError(fault)
        if fault:
            warnings.warn(fault, stacklevel=2)
    samples = SAMPLES if samples is None else as_samples(samples)
    max_samples = MAX_SAMPLES if max_samples is None else as_samples(max_samples, "max_samples")
    proof: dict[str, Any] = {"delta": delta, "tail": tail}
    if rng is not None:
        as_generator(rng)  # refused here, also where nothing is drawn
    given: dict[str, Any] = {"basis": basis, "columns": columns, "samples": samples, "rng": rng, "map": map}
    given |= {"max_samples": max_samples, "progress": progress, "paired": paired}
    if by_value:
        if is_log and regret is not None:
            raise ValueError("a log has no more to draw: leave regret out, its certificate says what it is")
        beside: dict[str, Any] = {"tube": tube, "regret": regret, "margin": margin, "price": slack}
        return _for_policy(source, expert, discount=discount, **given, **proof, **beside)
    form = FORMS[0] if form is None else form
    plain, several = form == FORMS[0] and cover is None and slack is None, components is not None
    _check(source, basis, columns, form, objective, cover, paired, several=several)
    if delta is not None:
        _check_proof(source, plain=plain, several=several)
    problem: dict[str, Any] = {"discount": discount, "expert": int(expert), "objective": objective}
    if several:
        _check_for_components(source, plain=plain)
        return solve_components(source, components, **given, **problem, **proof)
    problem |= {"objective": objective or OBJECTIVES[0]}
    return _for_action(source, form=form, program={"cover": cover, "slack": slack}, asked=problem, proof=proof, **given)


def _for_action(
    source: Any,
    *,
    basis: Any,
    columns: Any,
    samples: int,
    max_samples: int,
    rng: Any,
    map: Any,
    paired: bool | None,
    progress: Any,
    form: str,
    program: dict[str, Any],
    asked: dict[str, Any],
    proof: dict[str, Any],
) -> Solution:
    """One action at every state: by one pass, or until it is proved if that is asked for."""
    with on(map):
        if isinstance(source, Transitions) and proof["delta"] is not None:
            return proved_by_log(source, basis, columns, rng, progress, proof, asked)
        asked["paired"] = paired
        if proof["delta"] is None:
            return estimated(source, basis, columns, samples, rng, form, progress, asked, program)
        return proved_by_draws(source, basis, columns, rng, max_samples, progress, proof, asked)


def _is_one_action(expert: Any) -> bool:
    return not (callable(expert) or hasattr(expert, "predict"))


def _for_policy(
    source: Any,
    expert: Any,
    *,
    delta: float | None,
    samples: int,
    max_samples: int,
    progress: Any,
    map: Any,
    columns: Any,
    tail: TailLike,
    tube: float | None,
    regret: float | None,
    paired: bool | None,
    **form: Any,
) -> Solution:
    """The value form, until it is proved if that is asked for."""
    with on(map):
        if delta is None:
            return solve_policy(source, expert, samples=samples, paired=paired, progress=progress, **form)
        form |= {"columns": columns, "tail": tail, "tube": tube}
        if isinstance(source, Transitions):
            return prove_policy_by_log(source, expert, delta=delta, progress=progress, **form)
        form |= {"regret": regret, "max_samples": max_samples, "paired": paired, "watch": announcer(progress)}
        return prove_policy(source, expert, delta=delta, **form)


def _idle(*, is_simulator: bool, is_policy: bool, is_proof: bool) -> dict[str, str]:
    """Keywords that would be without effect, with the sentence that says so."""
    found = {}
    if not is_simulator:
        for name, why in {
            "samples": "a log is used as it is",
            "paired": "a log says itself whether its rows are paired",
            "max_samples": "a log has no more to draw",
        }.items():
            found[name] = f"{setting(name)} is for simulators: {why}, leave {setting(name)} out"
    elif is_proof:
        found["samples"] = "with delta, transitions are drawn until max_samples: leave samples out"
    if not is_proof:
        for name in ("max_samples", "tail", *(("tube", "regret") if is_policy else ())):
            given, delta = setting(name), setting("delta")
            found[name] = f"{given} is for a certificate: pass {delta} too, or leave {given} out"
    if not is_policy:
        for name in ("tube", "regret"):
            found[name] = f"an expert who always takes one action never switches: leave {setting(name)} out"
        given = setting("margin")
        found["margin"] = f"{given} is for experts that depend on the state; of one action it is 1 at every state"
    return found


def _without_program(*, is_policy: bool, is_proof: bool) -> dict[str, str]:
    """Keywords of the program for experts of one action, which the value form does without."""
    names = ("objective", "form", "cover", "components")
    if not is_policy:
        why = "is not for problems with terminal states, for which V is sought with values of 0 there"
        return {name: f"{setting(name)} {why}: leave {setting(name)} out" for name in (*names, "columns")}
    why = "is for experts that always take one action: leave it out for a policy"
    found = {name: f"{setting(name)} {why}" for name in names}
    if not is_proof:
        given, delta = setting("columns"), setting("delta")
        found["columns"] = f"{given} is for the certificate of a policy: pass {delta} too, or leave it out"
    return found


def _check_proof(source: Any, *, plain: bool, several: bool) -> None:
    """Refuse what cannot be certified, whatever the data say."""
    if isinstance(source, Moments):
        raise ValueError(f"{NO_PROOF_FROM_MOMENTS}: leave {setting('delta')} out, or give the transitions instead")
    if not several:
        check_box(as_domain(source.domain))
    as_source(source).check_without_terminal()
    if not plain:
        names = f"{by_door('form, cover', setting('cover'))} and {setting('slack')}"
        raise ValueError(f"a certificate is for the hard program on the continuum: leave {names} out")


def _check_for_components(source: Any, *, plain: bool) -> None:
    """Refuse what the joint program has not learnt."""
    if isinstance(source, Moments):
        raise ValueError("components need transitions or a simulator: moments keep one coordinate alone")
    if not plain:
        raise ValueError(
            "components are solved by least squares, hard and on the continuum: leave form, cover and slack out"
        )


def _check(
    source: Any,
    basis: Any,
    columns: Any,
    form: Any,
    objective: Any,
    cover: Any,
    paired: bool | None,
    *,
    several: bool,
) -> None:
    """Refuse before drawing anything what would be refused after."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}, got {shown(form)}")
    if objective is not None and objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {shown(objective)}")
    if form == "mean":
        if isinstance(source, Transitions | Moments):
            raise ValueError("the mean form needs states drawn from the basis's weight: use least-squares for a log")
        if paired:
            raise ValueError("the mean form draws the states of every action by themselves: leave paired out")
    if several:
        return
    domain = source.rows.domain if isinstance(source, Moments) else as_domain(source.domain)
    if basis is not None:
        as_basis(basis, domain)
    if cover is not None:
        as_radius(cover, domain)
    if columns is not None:
        as_count(columns, "columns", meaning="a whole number of functions of the state")
