"""The walk for states with independent components: data in, a sum of rewards out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from certirl.data.independence import FEWEST, MOST_COORDINATES, SAMPLES, independent
from certirl.data.moments import Moments, accumulate, total
from certirl.data.simulator import as_generator, draw
from certirl.data.source import divide
from certirl.data.transitions import CHUNK, Transitions, pieces
from certirl.data.trials import can_pair
from certirl.fit.bellman import Bellman, bellman
from certirl.fit.choose import FOLDS, MOST_COLUMNS, MOST_COLUMNS_ON_A_BOX, as_asked, best_columns
from certirl.fit.estimate import Operators, estimate
from certirl.fit.recover import OBJECTIVES, Recovery, recover
from certirl.functions.bases import Basis
from certirl.functions.components import Component, SumBasis, as_columns, as_components, as_groups
from certirl.ground.domain import as_domain
from certirl.ground.progress import Report, announcer, watched_stream
from certirl.ground.status import Reason
from certirl.ground.work import on
from certirl.proof import weigh
from certirl.proof.certify_components import AdditiveCertificate, certify_sum
from certirl.proof.refutation import Refutation
from certirl.proof.refute import refute
from certirl.proof.tail import TailLike
from certirl.solver.prove import TRAINING_SHARE, left_for_refutation
from certirl.solver.prove_components import best_of, candidates, measure_components, prove_sum
from certirl.solver.solution import Solution, build

PILOT = 4_000  # transitions per action that choose columns before a certificate is sought


def solve_components(
    source: Any,
    components: Any,
    *,
    discount: float,
    expert: int,
    basis: Basis | Sequence[Basis] | None,
    columns: int | Sequence[int] | None,
    samples: int,
    rng: Any,
    objective: str | None,
    delta: float | None,
    tail: TailLike,
    max_samples: int,
    paired: bool | None,
    progress: bool | Report | None,
    map: Any,
) -> Solution:
    """Find R = Σ_j R_j with ``Σ_j min D_ja(s_j) ≥ 1`` for every rival a; the arguments are those of `solve`.

    ``basis`` and ``columns`` are one for all components or one for each; if left out, Legendre polynomials (see
    `as_components`) and as many columns as predict held-out data best.
    """
    parts = as_components(components, basis, as_domain(source.domain))
    sizes = _as_columns(columns, parts)
    if delta is not None:
        _check_sizes(parts)
    if delta is not None and tail is not None and sizes is None:
        raise ValueError("a tail belongs to the columns it was computed for: pass columns as well")
    problem: dict[str, Any] = {"discount": discount, "expert": expert}
    walk = _Walk(source, parts, sizes, objective, problem, paired, progress)
    is_log = isinstance(source, Transitions)
    generator = as_generator(0 if is_log and rng is None else rng)
    with on(map):
        tested = _tested(source, components, samples if delta is None else max_samples // 4, generator.spawn(1)[0])
        if not tested.holds:
            warnings.warn(Reason.DEPENDENT.finding(test=tested.words).sentence, stacklevel=3)
        if delta is None:
            return walk.plain(samples, generator, tested)
        proof: dict[str, Any] = {"delta": delta, "tail": tail}
        if is_log:
            return walk.log(generator, proof, tested)
        return walk.until_proved(max_samples, generator, proof, tested)


def _check_sizes(components: Sequence[Component]) -> None:
    for component in components:
        if len(component.coordinates) > weigh.MOST_COORDINATES:
            raise ValueError(
                f"a certificate is for components of {weigh.MOST_COORDINATES} coordinates at most, but "
                f"{component.name} has {len(component.coordinates)}: leave delta out"
            )


class _Tested(NamedTuple):
    """What is known of the components' independence."""

    holds: bool
    words: str


def _tested(source: Any, components: Any, samples: int, rng: np.random.Generator) -> _Tested:
    """The test on rows of a log, or on as many fresh draws as the rest of the work can bear."""
    if max(map(len, as_groups(components, len(as_domain(source.domain))).values())) > MOST_COORDINATES:
        return _Tested(True, f"independence is not tested for components of more than {MOST_COORDINATES} coordinates")
    at_hand = int(source.counts.min()) if isinstance(source, Transitions) else samples
    if at_hand < FEWEST:
        return _Tested(True, "too few transitions to test the components' independence")
    found = independent(source, components, samples=min(SAMPLES, at_hand), rng=rng)
    return _Tested(found.holds, str(found))


def _as_columns(columns: Any, components: Sequence[Component]) -> list[int] | None:
    if columns is None:
        return None
    pairs = zip(components, as_columns(columns, components), strict=True)
    return [as_asked(component.basis, size).columns for component, size in pairs]


class _Walk:
    """The same problem by three ways: one draw, a log that is divided, draws until it is proved."""

    def __init__(
        self,
        source: Any,
        components: tuple[Component, ...],
        columns: list[int] | None,
        objective: str | None,
        problem: dict[str, Any],
        paired: bool | None,
        progress: Any,
    ) -> None:
        self.source, self.components, self.columns = source, components, columns
        self.objective, self.problem, self.paired, self.progress = objective, problem, paired, progress
        self.why = "as asked" if columns is not None else "by held-out prediction"

    def plain(self, samples: int, rng: np.random.Generator, tested: _Tested) -> Solution:
        """One pass over the data, all of it for the estimate."""
        count = samples * self.source.n_actions
        stream = self._draws(samples, rng)
        if isinstance(self.source, Transitions):
            stream, count = pieces(self.source, CHUNK), len(self.source)
        moments = self._measured(watched_stream(stream, count, self.progress))
        operators, criteria = self._criteria(moments)
        recovery = recover(criteria, components=self.components, objective=self.objective or OBJECTIVES[0])
        return self._built(operators, criteria, recovery, tested)

    def log(self, rng: np.random.Generator, proof: dict[str, Any], tested: _Tested) -> Solution:
        """One part of a log finds the reward, the other proves it."""
        training, fresh = divide(self.source, TRAINING_SHARE, rng)
        moments = self._measured(pieces(training, CHUNK))
        self._check_columns()
        operators, criteria = self._criteria(moments)
        found = candidates(self.components, criteria, moments, self.objective, **self.problem)
        best = best_of(found, pieces(training, CHUNK), int(fresh.counts.min()), **proof)
        given: dict[str, Any] = {"drawn": self.source.counts.tolist()}
        if best.case is not None:
            given["certificate"] = certify_sum(
                best.case, watched_stream(pieces(fresh, CHUNK), len(fresh), self.progress), **proof
            )
        elif best.recovery.status == "infeasible":
            given["refutation"] = self._refuted(fresh, rng=rng, **proof)
        return self._built(operators, criteria, best.recovery, tested, **given)

    def until_proved(
        self, max_samples: int, rng: np.random.Generator, proof: dict[str, Any], tested: _Tested
    ) -> Solution:
        """A pilot settles the columns if they were left open; then draw until it is proved."""
        pilot = 0
        if self.columns is None:
            pilot = min(PILOT, max(max_samples // 4, 1))
            self._measured(self._draws(pilot, rng.spawn(1)[0]))
        assert self.columns is not None
        self._check_columns()
        found = prove_sum(
            self.source,
            self.components,
            columns=self.columns,
            max_samples=max(max_samples - pilot, 1),
            rng=rng,
            objective=self.objective,
            paired=self.paired,
            watch=announcer(self.progress),
            **self.problem,
            **proof,
        )
        given: dict[str, Any] = {"certificate": found.certificate, "drawn": [found.samples + pilot]}
        rest = left_for_refutation(max_samples - pilot, found.samples, max(self.columns))
        if found.recovery.status == "infeasible" and rest:
            # The attempts spent δ(1 − 2^−i); half of what they left pays for the proof that there is no reward.
            left = proof | {"delta": proof["delta"] / 2 ** (found.attempts + 1)}
            given["refutation"] = self._refuted(self.source, rng=rng, samples=rest, paired=self.paired, **left)
            given["drawn"] = [given["drawn"][0] + rest]
        return self._built(found.operators, found.criteria, found.recovery, tested, **given)

    def _refuted(self, source: Any, **asked: Any) -> Refutation | None:
        """Whether the conflict is robust to the sampling error, on data of its own; None where boxes forbid to tell."""
        if any(len(component.coordinates) > 1 for component in self.components):
            return None
        groups = {component.name: list(component.coordinates) for component in self.components}
        asked |= {"basis": [component.basis for component in self.components], "columns": self.columns}
        return refute(source, components=groups, expert=self.problem["expert"], progress=False, **asked)

    def _draws(self, samples: int, rng: np.random.Generator) -> Any:
        if isinstance(self.source, Transitions):
            return None
        places: Any = SumBasis(self.components)
        paired = can_pair(self.source, places, rng, asked=self.paired)
        return draw(self.source, places, samples, rng, design=True, paired=paired)

    def _measured(self, stream: Any) -> list[Moments]:
        """The moments of every component in one walk; columns that were left open are chosen by the way."""
        n_actions = self.source.n_actions
        if self.columns is not None:
            return measure_components(stream, self.components, self.columns, n_actions=n_actions)
        pairs = [(c.basis, c.basis.resized(min(c.basis.size, _most_columns(c.basis)))) for c in self.components]
        views = [component.coordinates for component in self.components]
        folds = accumulate(stream, pairs, n_actions=n_actions, folds=FOLDS, views=views)
        self.columns = [best_columns(own) for own in folds]
        wide = [total(own) for own in folds]
        return [own.leading(own.rows.size, size) for own, size in zip(wide, self.columns, strict=True)]

    def _criteria(self, moments: list[Moments]) -> tuple[tuple[Operators, ...], tuple[Bellman, ...]]:
        operators = tuple(_named(component, own) for component, own in zip(self.components, moments, strict=True))
        return operators, tuple(bellman(own, **self.problem) for own in operators)

    def _check_columns(self) -> None:
        for component, size in zip(self.components, self.columns or (), strict=True):
            weigh.check_columns(component.basis.resized(size))

    def _choice(self) -> str:
        assert self.columns is not None
        bases = sorted({str(component.basis) for component in self.components})
        sizes = sorted(set(self.columns))
        spread = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        return f"{', '.join(bases)} for each component, {spread} columns {self.why}"

    def _built(
        self,
        operators: tuple[Operators, ...],
        criteria: tuple[Bellman, ...],
        recovery: Recovery,
        tested: _Tested,
        *,
        certificate: AdditiveCertificate | None = None,
        refutation: Refutation | None = None,
        drawn: Sequence[int] | None = None,
    ) -> Solution:
        """The solution; status and reason are those of the weakest finding."""
        further = () if tested.holds else (Reason.DEPENDENT.finding(test=tested.words),)
        return build(
            operators,
            criteria,
            recovery,
            choice=self._choice(),
            components=self.components,
            independence=tested.words,
            further=further,
            certificate=certificate,
            refutation=refutation,
            drawn=drawn,
        )


def _most_columns(basis: Basis) -> int:
    return MOST_COLUMNS_ON_A_BOX if basis.dimension > 1 else MOST_COLUMNS


def _named(component: Component, moments: Moments) -> Operators:
    try:
        return estimate(moments)
    except ValueError as problem:
        raise ValueError(f"component {component.name}: {problem}") from None
