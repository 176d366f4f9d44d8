"""Certify a reward, or refute that there is one, for any expert, interval or box, one component or a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from certirl.data.policy import as_policy
from certirl.data.simulator import Design, Simulator
from certirl.data.source import Pool, Source, as_source
from certirl.data.transitions import Transitions
from certirl.functions.bases import MOST_COLUMNS, Basis, as_basis, first_functions
from certirl.functions.components import Component, SumBasis, as_columns, as_components
from certirl.functions.reward import Reward, bounded, check_known, known_expert, unpack
from certirl.ground.account import account
from certirl.ground.domain import Box
from certirl.ground.doors import as_count, as_delta, as_probability
from certirl.ground.work import Report, check_progress, on, speaker, watched_stream
from certirl.proof.case import CASES, Case, Declaration, check_declaration, no_case
from certirl.proof.cells import CellCertificate, Deterministic
from certirl.proof.certificate import Certificate, conclude
from certirl.proof.contradictions import of_tail, refuse
from certirl.proof.cost import cost
from certirl.proof.refutation import Refutation, attempt
from certirl.proof.seen import tail_seen
from certirl.proof.sums import gather
from certirl.proof.tails import TailLike, check_tail
from certirl.proof.training import fit_surrogates

if TYPE_CHECKING:
    from certirl.proof.known_noise import AffineGaussian, GaussianCertificate

FIT_SHARE = 0.2  # of the data, for what is fixed beforehand; the proof rests on the others
SAMPLES = 100_000  # transitions per action that are drawn for a proof, where no number is given
UNSEEN = "reward, columns and samples were chosen without looking at these transitions"


@overload
def certify(
    reward: Any,
    source: Simulator | Transitions,
    *,
    expert: Any = None,
    discount: float | None = None,
    dynamics: Deterministic,
    rng: Any = None,
) -> CellCertificate: ...


@overload
def certify(
    reward: Any,
    source: Simulator | Transitions,
    *,
    expert: Any = None,
    discount: float | None = None,
    delta: float | None = None,
    dynamics: AffineGaussian,
    samples: int | None = None,
    rng: Any = None,
    tube: float | None = None,
    suboptimality: float | None = None,
) -> GaussianCertificate: ...


@overload
def certify(
    reward: Any,
    source: Simulator | Transitions,
    *,
    expert: Any = None,
    discount: float | None = None,
    delta: float | None = None,
    dynamics: None = None,
    tail: TailLike = None,
    columns: Basis | int | Sequence[Basis] | None = None,
    samples: int | None = None,
    rng: Any = None,
    reward_range: tuple[float, float] | None = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
    tube: float | None = None,
    suboptimality: float | None = None,
) -> Certificate: ...


def certify(
    reward: Any,
    source: Simulator | Transitions,
    *,
    expert: Any = None,
    discount: float | None = None,
    delta: float | None = None,
    dynamics: AffineGaussian | Deterministic | None = None,
    tail: TailLike = None,
    columns: Basis | int | Sequence[Basis] | None = None,
    samples: int | None = None,
    rng: Any = None,
    reward_range: tuple[float, float] | None = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
    tube: float | None = None,
    suboptimality: float | None = None,
) -> Certificate | GaussianCertificate | CellCertificate:
    """Prove, from data the reward has not seen, that the expert is strictly optimal under it: D_a(s) ≥ margin > 0.

    At every state for an expert of one action; for any other farther than ``tube`` from the states where it switches,
    with a bound on what it can lose nearer to them. A sum of rewards of components is certified component by component.
    What is declared of the dynamics chooses the theorem: ``columns`` with a ``tail``, or ``dynamics`` in their place.

    Args:
        reward: a `Solution`, a `Reward`, a sum of rewards of components, or any bounded function of states ``[n, d]``:
            also what another library gave. For `Deterministic` dynamics as it says.
        source: a simulator, or transitions that were not used to find the reward.
        expert: an action, or a function of states ``[n, d]`` to actions ``[n]`` or to probabilities ``[n, A]``; known
            from a solution.
        discount: γ; known from a solution.
        delta: the probability of a false certificate, 0.05 if left out.
        dynamics: `AffineGaussian` (an affine drift and Gaussian noise, known exactly) or `Deterministic` (no noise),
            in place of columns and a tail.
        tail: how far P_a f, |f| ≤ 1, can lie outside the span of the columns: a number (0 if exactly representable), a
            `Smooth` bound on derivatives, or a function of the column basis. Without it nothing is "certified".
        columns: the functions of the state, for example ``Legendre(3)``, or their number; for a sum one basis for each
            component; known from a solution.
        samples: fresh transitions per action to draw, 100,000 if left out, 10,000 for `AffineGaussian`; for simulators
            only.
        rng: a seed or Generator; needed with a simulator, and for splitting a log.
        reward_range: bounds on a plain function; looked up on a grid, and added to the assumptions, if left out.
        paired: ask a simulator with the same states and random numbers for every action, so that noise cancels between
            actions; left out, it is done where a trial shows that rows keep their random numbers.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
        map: where to work through data: a number of threads, a Dask client or an executor; threads on all cores if
            left out. Results do not depend on it.
        tube: a half-width, for experts that switch; 1/40 of the domain's least width if left out, 1/20 in three
            coordinates.
        suboptimality: of an inexact expert, how much less than the best an action of its own may be worth, as a share
            of what the reward spans: 0.1 proves that Q(s, π(s)) ≥ max_a Q(s, a) − 0.1 (max R − min R) at every state,
            Q being what an action is worth if the expert is followed afterwards. "Strictly optimal" if left out.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> certificate.holds, certificate.margin < room.true_margin(lambda states: states[:, 0], discount=0.7)
        (True, True)
    """
    asked = dict(locals())
    if dynamics is not None:
        given: dict[str, Any] = {
            "delta": delta, "tail": tail, "columns": columns, "samples": samples, "rng": rng, "tube": tube,
            "reward_range": reward_range, "paired": paired, "progress": progress, "map": map,
            "suboptimality": suboptimality,
        }  # fmt: skip
        check_declaration(dynamics, given)
        used = {name: value for name, value in given.items() if name in dynamics.uses}
        declared: Any = dynamics.certify(reward, source, expert=expert, discount=discount, **used)
        return cast(
            Certificate,
            _advised(replace(declared, about=account("certirl.certify", asked)), as_source(source), None, rng),
        )
    delta = as_delta(0.05 if delta is None else delta)
    origin = as_source(source)
    count = check_settings(origin, samples, tail=tail, paired=paired, progress=progress)
    expert = known_expert(reward, expert)
    function, discount = unpack(reward, discount)
    domain = origin.domain
    components, spaces = _columns(reward, function, columns, domain, origin.periodic)
    check_known(discount=discount, expert=expert, columns=spaces)
    assert discount is not None and spaces is not None
    case = Case.of(
        as_policy(expert, origin.n_actions, origin.action_names),
        spaces,
        n_actions=origin.n_actions,
        discount=as_probability(discount, "discount"),
        tail=tail,
        tube=tube,
        components=components,
        source=origin,
        suboptimality=suboptimality,
    )
    if len(components) <= 1:
        function = bounded(function, domain, reward_range, case.used)
    elif reward_range is not None:
        raise ValueError("reward_range is for plain functions: the ranges of a sum of expansions are known")
    check_draws(origin, count, case)
    origin.check_has_noise()
    places = _places(components, spaces)
    training, fresh = split(origin, places, count, rng, progress, role="certify", paired=paired, design=case.design)
    say = speaker(progress)
    with on(map):
        if say is not None:
            say(cost(case, training, origin.per_action(count), FIT_SHARE))
        fit = fit_surrogates(case, function, training, samples=planned(origin, count, fresh), delta=delta)
        concluded = conclude(case, fit.surrogates, gather(fit.surrogates, fresh), delta=delta, notes=(UNSEEN,))
        concluded = replace(concluded, about=account("certirl.certify", asked))
    return cast(Certificate, _advised(concluded, origin, tail, rng))


def _advised(proof: Any, source: Source, tail: TailLike, rng: Any) -> Any:
    """The same claim, which knows the call to try next."""
    changed = proof.change(tail, partial(tail_seen, source))
    return proof.advised(source.again(changed, f"certirl.{proof.verb}", rng if proof.delta else None))


def _columns(
    record: Any, function: Any, columns: Any, domain: Box, periodic: Sequence[int]
) -> tuple[Sequence[Component], list[Basis] | None]:
    """The components of a reward, and the columns of each: those of the call or of a solution; None without any."""
    components = function.components if isinstance(function, Reward) else ()
    if columns is None and getattr(record, "expert", None) is not None:
        columns = [component.columns for component in getattr(record, "components", ())] or None
    if columns is None:
        return components, None
    boxes = [component.basis.domain for component in components] if len(components) > 1 else [domain]
    each = list(columns) if isinstance(columns, list | tuple) else [columns] * len(boxes)
    if len(each) != len(boxes):
        raise ValueError(f"there are {len(boxes)} components but {len(each)} bases of columns")
    if len(boxes) == 1 and isinstance(each[0], int | np.integer) and not isinstance(each[0], bool):
        size = as_count(each[0], "columns", most=MOST_COLUMNS, meaning="a basis, or a whole number of functions")
        return components, [first_functions(size, domain, periodic)]
    placed = zip(each, boxes, strict=True)
    return components, [
        as_basis(basis, box, name="columns", like="certirl.Legendre(3)", most=MOST_COLUMNS) for basis, box in placed
    ]


def _places(components: Sequence[Component], spaces: Sequence[Basis]) -> Any:
    """The functions that states are drawn for."""
    return SumBasis(tuple(components)) if len(components) > 1 else spaces[0]


def check_settings(source: Source, samples: Any, *, tail: Any, paired: Any, progress: Any) -> int:
    """How many transitions per action to draw for a proof; refuse, before any work, settings without effect or sense.

    Settings are as in `certify`; of a log nothing is drawn.
    """
    check_progress(progress)
    check_tail(tail)
    count = source.number_to_draw(samples, usual=SAMPLES, paired=paired)
    source.check_without_terminal()
    source.check_declared()
    return count


def check_draws(source: Source, samples: int, case: Case) -> None:
    """Refuse draws that are dependent or contradict the tail, and too few to determine the columns."""
    source.check_noise()
    refuse(of_tail(case.tail, source))
    columns = max(part.columns.size for part in case.parts)
    least = next(n for n in range(columns + 1, 2 * columns + 2) if n - max(int(FIT_SHARE * n), 1) >= columns)
    source.check_enough(samples, columns, least)


def planned(source: Source, samples: int, fresh: Pool) -> int:
    """Fresh transitions per action that a proof will rest on, about."""
    if source.sampling != "independent":
        return fresh.expected
    return max(int((1 - FIT_SHARE) * source.per_action(samples)), 1)


def split(
    source: Source,
    columns: Basis,
    samples: int,
    rng: Any,
    progress: bool | Report | None,
    *,
    role: str,
    paired: bool | None,
    design: bool | Design = True,
) -> tuple[Pool, Pool]:
    """Independent data for training and for the proof: two streams of draws, or a random division of a log."""
    generator = source.generator(rng, role)
    training, fresh = source.pools(FIT_SHARE, columns, generator, samples=samples, design=design, paired=paired)
    return training, watched_stream(fresh, fresh.total, progress)


def refute(
    source: Simulator | Transitions,
    *,
    expert: Any,
    basis: Basis | Sequence[Basis],
    columns: Any = None,
    components: Any = None,
    delta: float = 0.05,
    tail: TailLike = None,
    dynamics: Declaration | None = None,
    samples: int | None = None,
    rng: Any = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
    tube: float | None = None,
) -> Refutation:
    """Prove that no V = w·ψ has (P_π − P_a)V > 0 at all states for all actions a ≠ π, or bound the margin it can have.

    The discount plays no part: the rewards V − γP_πV have V for the expert's value, whatever γ.

    Args:
        source: a simulator, or transitions, which are divided at random.
        expert: the action π that the expert always takes; or a function of states ``[n, d]`` to actions ``[n]`` or to
            probabilities ``[n, A]``.
        basis: the functions ψ of V, the first constant; with components one for all or one for each.
        columns: functions of the state: a basis, or how many of the family of ψ; with components one for all or one
            for each. As many as ψ if left out; more are often better.
        components: groups of coordinates that move independently, as for `solve`: V is a sum over them, and the expert
            takes one action.
        delta: the probability of a false statement.
        tail: as in `certify`.
        dynamics: refused, as only columns and a tail refute.
        samples: transitions per action to draw, those for choosing the cones included, 100,000 if left out; for
            simulators only.
        rng: as in `certify`.
        paired: as in `certify`.
        progress: as in `certify`.
        map: as in `certify`.
        tube: as in `certify`: states nearer to a switch, where margins are thin and a switch may be known only roughly,
            are not compared.

    Example:
        >>> room = certirl.problems.thermostat(power=(0.0, 1.5, -1.5), noise=3.0)
        >>> asked = {"basis": certirl.Legendre(2), "columns": 7, "tail": room.tail, "samples": 20_000}
        >>> refutation = certirl.refute(room, expert=0, rng=1, **asked)
        >>> print(refutation.claim)
        no reward of the state whose value lies in Legendre(2) makes action 0 strictly optimal
    """
    asked = dict(locals())
    if dynamics is not None:
        check_declaration(dynamics, {})
        raise ValueError(no_case(type(dynamics).__name__, CASES[5]))
    delta = as_delta(delta)
    origin = as_source(source)
    count = check_settings(origin, samples, tail=tail, paired=paired, progress=progress)
    groups, classes, spaces = _functions(basis, columns, components, origin.domain)
    problem: dict[str, Any] = {"n_actions": origin.n_actions, "discount": nan, "tail": tail, "tube": tube}
    problem["source"] = origin
    policy = as_policy(expert, origin.n_actions, origin.action_names)
    case = Case.of(policy, spaces, components=groups, **problem)
    check_draws(origin, count, case)
    training, fresh = split(origin, _places(groups, spaces), count, rng, progress, role="refute", paired=paired)
    fresh = fresh.independent()
    samples_planned = planned(origin, count, fresh)
    with on(map):
        plan = attempt(case, classes, training, samples=samples_planned, delta=delta, only_conflicts=False)
        assert plan is not None
        proof = replace(plan.conclude(fresh, delta=delta), about=account("certirl.refute", asked))
    return cast(Refutation, _advised(proof, origin, tail, rng))


def _functions(
    basis: Any, columns: Any, components: Any, domain: Box
) -> tuple[Sequence[Component], list[Basis], list[Basis]]:
    """Components, and the class and the columns of each; none and one of each where the state is not divided."""
    groups = () if components is None else as_components(components, basis, domain)
    classes = [group.basis for group in groups] or [as_basis(basis, domain, like="certirl.Legendre(5)")]
    for functions in classes:
        if functions.size < 2:
            raise ValueError(f"{functions} holds constants only, which explain nothing: use at least two functions")
    if columns is None:
        return groups, classes, classes
    if isinstance(columns, Basis) and len(classes) == 1:
        return groups, classes, [as_basis(columns, domain, name="columns", most=MOST_COLUMNS)]
    sizes = zip(classes, as_columns(columns, classes), strict=True)
    return groups, classes, [functions.resized(size) for functions, size in sizes]
