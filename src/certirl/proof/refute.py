"""Refute: prove from data that no value function of a class explains the expert, or bound the margin that it can have.

`refute` is the verb. Within a search, `attempt` chooses on training data what fresh data will be asked, forecasts the
outcome, and concludes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from certirl.data.moments import Moments, accumulate
from certirl.data.simulator import Simulator
from certirl.data.source import as_source
from certirl.data.transitions import Piece, Transitions
from certirl.fit.program import Rows, least_norm_of_sums
from certirl.functions.bases import MOST_FUNCTIONS, Basis, as_basis
from certirl.functions.components import Component, SumBasis, as_columns, as_components
from certirl.ground.domain import Array, Domain
from certirl.ground.doors import as_count, as_probability
from certirl.ground.progress import Report
from certirl.ground.work import on
from certirl.proof.case import Case
from certirl.proof.certify import check_draws, check_settings, planned, split
from certirl.proof.refutation import CEILING, Bounds, Outlook, Refutation, RefutationGround, derived
from certirl.proof.sums import gather_residuals
from certirl.proof.tail import TailLike
from certirl.proof.value_cones import Comparisons, Cover, Regression, comparisons, cover_of, obstacle, regression

MOST_ON_A_BOX = 16  # functions of V on a box up to which a search tries a refutation


def too_many_functions(classes: Sequence[Basis]) -> str:
    """Why a search does not try to refute these classes of V, one for each component; empty if it does."""
    sizes = [functions.size for functions in classes if functions.dimension > 1]
    if max(sizes, default=0) <= MOST_ON_A_BOX:
        return ""
    return f"in several coordinates it is tried with at most {MOST_ON_A_BOX} functions, and here are {max(sizes)}"


def refute(
    source: Simulator | Transitions,
    *,
    expert: Any,
    basis: Basis | Sequence[Basis],
    columns: Any = None,
    components: Any = None,
    delta: float = 0.05,
    tail: TailLike = None,
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
        samples: transitions per action to draw, those for choosing the cones included, 100,000 if left out; for
            simulators only.
        rng: as in `certify`.
        paired: as in `certify`.
        progress: as in `certify`.
        map: as in `certify`.
        tube: as in `certify`: states nearer to a switch, where margins are thin and a switch may be known only roughly,
            are not compared.
    """
    delta = as_probability(delta, "delta")
    origin = as_source(source)
    count = check_settings(origin, samples, tail=tail, paired=paired, progress=progress)
    whole, classes, narrow = _functions(basis, columns, components, origin.domain)
    problem: dict[str, Any] = {"n_actions": origin.n_actions, "discount": nan, "tail": tail, "tube": tube}
    case = Case.of(expert, narrow if whole else narrow[0], components=whole, **problem)
    check_draws(origin, count, case)
    places: Any = SumBasis(whole) if whole else narrow[0]
    training, fresh = split(origin, places, count, rng, progress, role="refute", paired=paired)
    with on(map):
        plan = attempt(case, classes, training, samples=planned(origin, count), delta=delta, only_conflicts=False)
        assert plan is not None
        return plan.conclude(fresh, delta=delta)


def _functions(
    basis: Any, columns: Any, components: Any, domain: Domain
) -> tuple[tuple[Component, ...] | None, list[Basis], list[Basis]]:
    """Components, if there are any, and the class and the columns of each."""
    whole = None if components is None else as_components(components, basis, domain)
    if whole is None:
        classes = [as_basis(basis, domain, like="certirl.Legendre(5)")]
    else:
        classes = [component.basis for component in whole]
    for functions in classes:
        if functions.size < 2:
            raise ValueError(f"{functions} holds constants only, which explain nothing: use at least two functions")
    if columns is None:
        return whole, classes, classes
    if isinstance(columns, Basis) and whole is None:
        return whole, classes, [as_basis(columns, domain, name="columns")]
    if whole is not None:
        sizes = as_columns(columns, whole)
    else:
        what = "a whole number of functions of the state"
        sizes = [as_count(columns, "columns", most=MOST_FUNCTIONS, meaning=what)]
    return whole, classes, [functions.resized(size) for functions, size in zip(classes, sizes, strict=True)]


@dataclass(frozen=True, eq=False)
class Attempt:
    """A refutation that training data suggest: what fresh data will be asked, and what they should answer.

    Attributes:
        case: the expert and the components.
        covers: fixed before fresh data, one for each component.
        outlook: bounds on training data.
    """

    case: Case
    covers: tuple[Cover, ...]
    outlook: Outlook

    def forecast(self, samples: int, delta: float) -> float:
        """Forecast 1 − error/κ for a number of fresh transitions; −inf if no bound is finite."""
        return 1 - self.outlook.ratio(samples, delta)

    def conclude(self, fresh: Iterable[Piece], *, delta: float, others: dict[str, float] | None = None) -> Refutation:
        """What fresh data prove.

        Args:
            fresh: data that nothing was chosen on.
            delta: for this refutation alone.
            others: parts of δ that belong to other attempts, by name.
        """
        case, each = self.case, gather_residuals(self.covers, fresh)
        grounds = tuple(
            RefutationGround(cover, sums, part.tail)
            for cover, sums, part in zip(self.covers, each, case.parts, strict=True)
        )
        spending = {"cones": (1 - CEILING) * delta, "ceiling": CEILING * delta, **(others or {})}
        return Refutation(
            **derived(grounds, delta),
            delta=sum(spending.values()),
            spending=spending,
            assumptions=(*case.assumptions(range(len(case.parts)), paired=each[0].paired), *case.notes),
            tube=case.tube if case.grid is not None and len(case.grid.switches) else 0.0,
            grounds=grounds,
        )


def attempt(
    case: Case,
    classes: Sequence[Basis],
    training: Iterable[Piece],
    *,
    samples: int,
    delta: float,
    moments: Sequence[Moments] | None = None,
    only_conflicts: bool = True,
) -> Attempt | None:
    """Choose on training data what fresh data will be asked.

    Args:
        case: the expert, the columns, the tail, the tube.
        classes: the functions of V, one basis for each component of the case.
        training: data that may be looked at; walked through again.
        samples: fresh transitions per action that are planned.
        delta: of this attempt.
        moments: of all training data, in rows that begin with the classes, and the columns of the case; measured on
            ``training`` if left out.
        only_conflicts: return None if some value function obeys all comparisons on training data, if these are too few,
            or if the classes are too rich.
    """
    if only_conflicts and too_many_functions(classes):
        return None
    measured = _measured(case, classes, training) if moments is None else moments
    rows = [comparisons(case, part) for part in case.parts]
    reason = obstacle(case, rows, measured)
    if reason and only_conflicts:
        return None
    if reason:
        raise ValueError(reason)
    fitted = [regression(sums, functions.size) for sums, functions in zip(measured, classes, strict=True)]
    most, alternatives = None, None
    if len(case.parts) > 1:
        alternatives = _alternatives(case, rows, fitted)
        if alternatives is None and only_conflicts:
            return None
        if alternatives is None:  # fresh data will hardly show a conflict that training data do not
            most, alternatives = 1, np.full(case.policy.n_actions - 1, 1 / (case.policy.n_actions - 1))
    covers = []
    for part, functions, compared, fit in zip(case.parts, classes, rows, fitted, strict=True):
        cover = cover_of(
            part,
            functions,
            compared,
            fit,
            samples=samples,
            delta=delta / len(case.parts),
            alternatives=alternatives,
            most=most,
            only_conflicts=only_conflicts,
        )
        if cover is None:
            return None
        covers.append(cover)
    each = zip(covers, gather_residuals(covers, training), case.parts, strict=True)
    outlook = Outlook(tuple(Bounds(cover, sums, part.tail or 0.0) for cover, sums, part in each))
    return Attempt(case, outlook.planned(covers, samples, delta), outlook)


def _measured(case: Case, classes: Sequence[Basis], training: Iterable[Piece]) -> list[Moments]:
    pairs = [(functions, part.columns) for functions, part in zip(classes, case.parts, strict=True)]
    views = None if case.parts[0].coordinates is None else [part.coordinates or () for part in case.parts]
    return [sums for (sums,) in accumulate(training, pairs, n_actions=case.policy.n_actions, views=views)]


def _alternatives(case: Case, rows: Sequence[Comparisons], fitted: Sequence[Regression]) -> Array | None:
    """The weights ν of the alternatives in the conflict of the training data; None if there is no conflict."""
    others = [a for a in range(case.policy.n_actions) if a not in case.used]
    block = Rows.empty(max(fit.fits.shape[1] for fit in fitted))
    for j, (part, compared, fit) in enumerate(zip(case.parts, rows, fitted, strict=True)):
        points = compared.rows(fit.fits, part.columns)
        for i, action in enumerate(others):
            block = block.with_rows(j, i, points[compared.actions == action])
    status, _, weights = least_norm_of_sums(block)
    if status != "infeasible":
        return None
    first = block.component == 0
    shares = np.bincount(block.alternative[first], weights[first], minlength=len(others))
    return np.asarray(shares / shares.sum())
