"""The one call: data or simulator in, solution out."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from certirl._map import on
from certirl.additive import AdditiveSolution
from certirl.bases import as_basis
from certirl.bellman import check_problem
from certirl.certify import check_delta
from certirl.domain import as_domain
from certirl.estimate import FORMS
from certirl.moments import Moments
from certirl.policy_solution import PolicySolution
from certirl.progress import Report, announcer
from certirl.prove_policy import prove_policy, prove_policy_by_log
from certirl.recover import OBJECTIVES
from certirl.simulator import Simulator, check_simulator
from certirl.solution import Solution
from certirl.solve_action import estimated, proved_by_draws, proved_by_log
from certirl.solve_components import solve_components
from certirl.solve_policy import solve_policy
from certirl.tail import TailLike
from certirl.transitions import Transitions
from certirl.weigh import check_box

NO_PROOF_FROM_MOMENTS = (
    "a certificate needs transitions, since it must look at data that the reward has not seen, and moments keep none"
)


@overload
def solve(source: Any, *, components: None = None, **settings: Any) -> Solution: ...
@overload
def solve(source: Any, *, components: Any, **settings: Any) -> AdditiveSolution: ...


def solve(  # type: ignore[misc]  # a wrong keyword is an error here
    source: Simulator | Transitions | Moments,
    *,
    discount: float,
    expert: Any = 0,
    basis: Any = None,
    columns: Any = None,
    samples: int = 10_000,
    rng: Any = None,
    objective: str | None = None,
    form: str = "least-squares",
    cover: float | None = None,
    slack: float | None = None,
    delta: float | None = None,
    tail: TailLike = None,
    max_samples: int = 1_000_000,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
    components: Any = None,
    margin: Any = None,
    tube: float | None = None,
    regret: float | None = None,
) -> Solution | AdditiveSolution | PolicySolution:
    """Find a reward under which the expert's action is strictly optimal: ``min_s D_a(s) ≥ 1`` for every rival a.

    Args:
        source: a simulator (anything with ``n_actions``, ``domain`` and ``sample(states, action, rng)``), logged
            `Transitions`, or `Moments` measured before: these keep no transitions that a certificate could look at.
        discount: γ, strictly between 0 and 1.
        expert: the action it always takes, or a function of states, or a model that predicts: see docs/experts.md.
        basis: the functions φ, say ``Legendre(11)`` or ``product(Fourier(9), Legendre(7))``; by held-out data if None.
        columns: how many of them describe the state; chosen from held-out data if left out.
        samples: transitions to draw for each action without ``delta``; for simulators only.
        rng: a seed or Generator; needed with a simulator.
        objective: "least-variance", the default but for proofs of sums, "l1" (the paper's) or "max-margin".
        form: "least-squares" (well-placed states) or "mean" (the paper's: states from the weight of the basis).
        cover: solve on the paper's cover of this radius instead of on the continuum.
        slack: soft form for experts that are only nearly optimal: the price of a shortfall.
        delta: go on until it is proved, with at most this probability of a false certificate; on boxes see `certify`.
        tail: what is known of the dynamics beyond the columns (see `certify`); without it nothing is "certified".
        max_samples: transitions per action to stop at.
        paired: the same states and random numbers for every action, so that noise cancels; by a trial if left out.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
        map: a number of threads, a Dask client or an executor; all cores if left out. Results do not depend on it.
        components: groups of coordinates that move independently, ``[[0], [1]]``; basis and columns for all or each.
        margin: if the expert depends on the state, the half-width of the tube beside a switch; see `solve_policy`.
        tube: with ``delta``, how far from a switch that must be proved, in units of the state; see `certify`.
        regret: with ``delta``, go on until following the expert costs no more than this share of the value's span.
    """
    proof: dict[str, Any] = {"delta": delta, "tail": tail}
    given: dict[str, Any] = {"basis": basis, "columns": columns, "samples": samples, "rng": rng, "map": map}
    given |= {"max_samples": max_samples, "progress": progress, "paired": paired}
    beside: dict[str, Any] = {"tube": tube, "regret": regret}
    if not _is_one_action(expert):
        _check_for_policy(delta, {"columns": columns, "tail": tail} | beside, components=components, cover=cover)
        return _for_policy(source, expert, discount=discount, price=slack, margin=margin, **given, **proof, **beside)
    asked: dict[str, Any] = {"discount": discount, "expert": expert, "objective": objective}
    plain, several = form == "least-squares" and cover is None and slack is None, components is not None
    beside |= {"several": several, "margin": margin}
    _check(source, discount, expert, basis, samples, form, objective or OBJECTIVES[0], **beside)
    if delta is not None:
        _check_proof(source, delta, plain=plain, several=several)
    if several:
        _check_for_components(source, plain=plain)
        return solve_components(source, components, **given, **asked, **proof)
    asked |= {"objective": objective or OBJECTIVES[0]}
    return _for_action(source, form=form, program={"cover": cover, "slack": slack}, asked=asked, proof=proof, **given)


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
            return proved_by_log(source, basis, columns, rng, proof, asked)
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
) -> PolicySolution:
    """The value form, until it is proved if that is asked for."""
    with on(map):
        if delta is None:
            return solve_policy(source, expert, samples=samples, **form)
        form |= {"columns": columns, "tail": tail, "tube": tube}
        if isinstance(source, Transitions):
            if regret is not None:
                raise ValueError("a log has no more to draw: leave regret out, its certificate says what it is")
            return prove_policy_by_log(source, expert, delta=delta, **form)
        form |= {"regret": regret, "max_samples": max_samples, "paired": paired, "watch": announcer(progress)}
        return prove_policy(source, expert, delta=delta, **form)


def _check_for_policy(delta: float | None, of_proof: dict[str, Any], **others: Any) -> None:
    """Refuse what an expert that depends on the state has no use for."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name} is for experts that always take one action: leave it out for a policy")
    if delta is None:
        for name, value in of_proof.items():
            if value is not None:
                raise ValueError(f"{name} is for the certificate of a policy: pass delta too, or leave it out")


def _check_proof(source: Any, delta: float, *, plain: bool, several: bool) -> None:
    """Refuse what cannot be certified, whatever the data say."""
    check_delta(delta)
    if isinstance(source, Moments):
        raise ValueError(f"{NO_PROOF_FROM_MOMENTS}: leave delta out or pass the transitions")
    if not several:
        check_box(as_domain(source.domain))
    if not plain:
        raise ValueError("a certificate is for the hard program on the continuum: leave form, cover and slack out")


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
    discount: float,
    expert: int,
    basis: Any,
    samples: Any,
    form: str,
    objective: str,
    *,
    several: bool,
    margin: Any,
    tube: float | None,
    regret: float | None,
) -> None:
    """Refuse before drawing anything what would be refused after."""
    for name, value in {"tube": tube, "regret": regret}.items():
        if value is not None:
            raise ValueError(f"an expert who always takes one action never switches: leave {name} out")
    if margin is not None:
        raise ValueError("margin is for experts that depend on the state; of one action it is 1 at every state")
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}, got {form!r}")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}")
    if basis is not None and not several:
        as_basis(basis)
    if isinstance(source, Transitions | Moments):
        if form == "mean":
            raise ValueError("the mean form needs states drawn from the basis's weight: use least-squares for a log")
    else:
        check_simulator(source)
        if not isinstance(samples, int | np.integer):
            raise ValueError(f"samples must be a whole number of transitions per action, got {samples!r}")
    check_problem(discount, expert, source.n_actions)
    domain = source.rows.domain if isinstance(source, Moments) else as_domain(source.domain)
    if basis is not None and not several:
        basis.on(domain)
