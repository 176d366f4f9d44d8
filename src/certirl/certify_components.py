"""Certificates for sums: the lower bounds of the components add up, and each may fail with its own part of δ.

For every rival a and whole state s, D_a(s) = Σ_j D_ja(s_j) ≥ Σ_j (lower bound of D_ja). A component's bound may be zero
or below, as where a rival acts on it like the expert; only the sums decide. A component without a reward has D_ja = 0
and needs no proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.bases import Basis
from certirl.bellman import Bellman, bellman
from certirl.bounds import BAND_SHARE, LowerBound, lower_bounds
from certirl.certify import LOSSES, independence
from certirl.components import AdditiveReward, Component, SideBySide
from certirl.decompose import AdditiveRecovery, recover_jointly
from certirl.domain import Array, freeze
from certirl.estimate import MAX_CONDITION, Operators, estimate
from certirl.evidence import Evidence, gather_views, surrogate_of
from certirl.moments import Moments, accumulate
from certirl.prove import FIRST, TRAINING_SHARE, Pool, Watch
from certirl.simulator import Simulator, as_generator, can_pair
from certirl.tail import TailLike, tail_in_words, tail_number
from certirl.transitions import Piece

FORECAST = 16_384  # training transitions per action that a forecast looks at again, at most
# An attempt is made when a forecast loses less than this share of the margin. Losses fall between 1/√n and 1/n.
CONFIDENT, FALL = 0.9, 0.75
STEPS, AFTER_FAILURE = (1.2, 4.0), 1.6

_WORDS = ("holds", "margin", "estimated", "losses", "delta", "spending", "tail", "samples", "worst_action")


@dataclass(frozen=True, eq=False)
class AdditiveCertificate:
    """With probability at least 1 − δ, Σ_j min D_ja is at least ``margin`` for every rival a.

    Attributes:
        holds: the margin is positive and the tail was declared: the expert is proved strictly optimal at every state.
        margin: the lower bound: ``estimated`` minus the losses. May be negative: then nothing is proved.
        estimated: the smallest estimated D_a(s), corrected by the fresh data.
        losses: what is taken off, by name, summed over the components.
        delta: the probability of a false statement.
        spending: how δ was split, by name; within each part evenly over the components that have a reward.
        assumptions: what must be true besides, in words.
        tail: τ, the largest of all components, or None if none was declared; then the word is "validated".
        bounds: the lower bounds on min D_ja ``[J, A − 1]``; zero for components without a reward.
        worst_action: the rival with the smallest sum.
        samples: fresh transitions per action.
    """

    holds: bool
    margin: float
    estimated: float
    losses: dict[str, float]
    delta: float
    spending: dict[str, float]
    assumptions: tuple[str, ...]
    tail: float | None
    bounds: Array
    worst_action: int
    samples: int

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def word(self) -> str:
        """One of "certified", "validated" (no tail declared) and "not certified"."""
        return "not certified" if not self.margin > 0 else "certified" if self.tail is not None else "validated"

    @property
    def samples_needed(self) -> int | None:
        """A guess at how many fresh transitions per action would do, as losses fall; None if none would."""
        fixed = self.losses["truncation tail"]
        falling, left = sum(self.losses.values()) - fixed, self.estimated - fixed
        if not (left > 0 and np.isfinite(falling)):
            return None
        return int(self.samples * (falling / left) ** (1 / FALL)) + 1

    @property
    def missing(self) -> str:
        """What keeps it from being certified, in words; empty if it is."""
        if self.holds:
            return ""
        if self.margin > 0:
            return "validated only: declare a tail to make it a certificate"
        if self.samples_needed is None:
            return "more data are needed, or the estimated margin is not positive, or the tail is too large"
        return f"about {self.samples_needed:,} fresh transitions per action should do"

    @property
    def taken(self) -> str:
        """The losses worth telling, in words."""
        telling = 5e-4 * abs(self.estimated)
        return ", ".join(f"{name} {value:.2g}" for name, value in self.losses.items() if value > telling) or "nothing"

    def packed(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Words for a JSON header and numbers for arrays."""
        words = {name: getattr(self, name) for name in _WORDS}
        return words | {"assumptions": list(self.assumptions)}, {"bounds": self.bounds}

    @staticmethod
    def unpacked(words: dict[str, Any], numbers: dict[str, Array]) -> AdditiveCertificate:
        """The inverse of `packed`."""
        given = {name: words[name] for name in _WORDS}
        return AdditiveCertificate(**given, assumptions=tuple(words["assumptions"]), bounds=numbers["bounds"])


def certify_sum(
    components: Sequence[Component],
    reward: AdditiveReward,
    moments: Sequence[Moments],
    fresh: Iterable[Piece],
    *,
    discount: float,
    expert: int,
    delta: float,
    tail: TailLike,
    others: dict[str, float] | None = None,
) -> AdditiveCertificate:
    """Walk through fresh data once and add up the lower bounds of all components.

    Args:
        components: their coordinates and bases.
        reward: found without the fresh data.
        moments: of each component's training data.
        fresh: whole transitions that training did not see.
        discount: γ.
        expert: π.
        delta: for this certificate alone.
        tail: as in `certify`, for every component.
        others: parts of δ that belong to other attempts, by name.
    """
    case = _Case(components, reward, moments, discount, expert)
    active, evidence = case.active, gather_views(case.surrogates, fresh, case.views)
    numbers = [tail_number(tail, surrogate.columns) for surrogate in case.surrogates]
    for j, surrogate, seen in zip(active, case.surrogates, evidence, strict=True):
        if (seen.counts < surrogate.columns.size).any() or (np.linalg.cond(seen.gram) > MAX_CONDITION).any():
            name = components[j].name
            raise ValueError(
                f"the fresh states cannot tell the columns of {name} apart: use more data or fewer columns"
            )
    found = case.bounds(evidence, delta, tail)
    bounds = np.zeros((len(components), len(found[0])))
    bounds[active] = [[bound.margin for bound in own] for own in found]
    worst = int(bounds.sum(axis=0).argmin())
    decisive, declared = [own[worst] for own in found], tail is not None
    parts = f"{len(active)} component{'s' * (len(active) != 1)}, evenly"
    spending = {f"first order ({parts})": BAND_SHARE * delta, f"second order ({parts})": (1 - BAND_SHARE) * delta}
    spending |= others or {}
    largest = max((number or 0.0 for number in numbers), default=0.0) if declared else None
    margin = float(bounds[:, worst].sum())
    return AdditiveCertificate(
        holds=bool(margin > 0 and declared),
        margin=margin,
        estimated=sum(bound.estimated for bound in decisive),
        losses={name: sum(float(of(bound)) for bound in decisive) for name, of in LOSSES.items()},
        delta=sum(spending.values()),
        spending=spending,
        assumptions=(
            "given the action, each component's next state depends on its own state alone",
            "in each component " + tail_in_words(tail, largest, max((s.columns for s in case.surrogates), key=_size)),
            independence(paired=evidence[0].paired),
        ),
        tail=largest,
        bounds=bounds,
        worst_action=decisive[0].rival,
        samples=int(evidence[0].counts.min()),
    )


class _Case:
    """The surrogates of the components that have a reward."""

    def __init__(
        self,
        components: Sequence[Component],
        reward: AdditiveReward,
        moments: Sequence[Moments],
        discount: float,
        expert: int,
    ) -> None:
        self.active = [j for j, part in enumerate(reward.parts) if part.coefficients.any()]
        self.views = [components[j].coordinates for j in self.active]
        self.surrogates = [
            surrogate_of(reward.parts[j], moments[j], discount=discount, expert=expert) for j in self.active
        ]

    def bounds(self, evidence: Sequence[Evidence], delta: float, tail: TailLike) -> list[list[LowerBound]]:
        """The lower bounds of every component, rivals in order; all hold at once with probability 1 − δ."""
        return [
            lower_bounds(own, seen, delta=delta / len(self.active), tail=tail_number(tail, own.columns) or 0.0)
            for own, seen in zip(self.surrogates, evidence, strict=True)
        ]

    def forecast(self, stream: Iterable[Piece], fresh: int, delta: float, tail: TailLike) -> float:
        """The share of the margin that a certificate from ``fresh`` transitions should lose, from training data."""
        seen = gather_views(self.surrogates, stream, self.views)
        bounds = self.bounds([own.forecast(fresh / int(own.counts.min())) for own in seen], delta, tail)
        left = np.sum([[bound.margin for bound in own] for own in bounds], axis=0)
        whole = np.sum([[bound.estimated for bound in own] for own in bounds], axis=0)
        return float(np.max(1 - left / np.maximum(whole, 1e-300)))


@dataclass(frozen=True, eq=False)
class AdditiveProof:
    """What the search for a certificate ended with.

    Attributes:
        operators, criteria: of every component, from the training pool.
        recovery: the joint program's.
        certificate: of the last attempt; None if none was worth making.
        samples: transitions per action drawn in all.
    """

    operators: tuple[Operators, ...]
    criteria: tuple[Bellman, ...]
    recovery: AdditiveRecovery
    certificate: AdditiveCertificate | None
    samples: int


def measure_components(
    stream: Iterable[Piece], components: Sequence[Component], columns: Sequence[int], *, n_actions: int
) -> list[Moments]:
    """The moments of every component, in one walk through whole transitions."""
    pairs = [(c.basis, c.basis.resized(size)) for c, size in zip(components, columns, strict=True)]
    views = [component.coordinates for component in components]
    return [own for (own,) in accumulate(stream, pairs, n_actions=n_actions, views=views)]


def prove_sum(
    simulator: Simulator,
    components: Sequence[Component],
    *,
    columns: Sequence[int],
    discount: float,
    expert: int,
    delta: float,
    tail: TailLike,
    max_samples: int,
    rng: Any,
    objective: str,
    paired: bool | None,
    watch: Watch,
) -> AdditiveProof:
    """Draw, recover, certify; more data until the certificate holds or ``max_samples`` per action are used up.

    Every draw goes for good to training or to the proof. Attempt i may fail with probability δ/2^i, so that all of them
    together fail with δ at most; one is made when the training pool forecasts success.
    """
    fewest = 20 * max(columns) + 100
    if max_samples < fewest:
        raise ValueError(f"max_samples must be at least {fewest} for {max(columns)} columns, got {max_samples}")
    generator, places = as_generator(rng), _places(components)
    paired = can_pair(simulator, places, generator, asked=paired)
    training, fresh = (Pool(simulator, places, stream, paired) for stream in generator.spawn(2))
    moments: list[Moments] | None = None
    spent, n = 0, min(FIRST, max_samples)
    while True:
        training.grow(max(int(TRAINING_SHARE * n), max(columns) + 2))
        new = measure_components(training.parts[-1], components, columns, n_actions=simulator.n_actions)
        moments = new if moments is None else [one + other for one, other in zip(moments, new, strict=True)]
        operators = tuple(map(estimate, moments))
        criteria = tuple(bellman(own, discount=discount, expert=expert) for own in operators)
        recovery = recover_jointly(components, criteria, objective=objective)
        certificate, growth = None, STEPS[1]
        if recovery.reward is not None:
            case = _Case(components, recovery.reward, moments, discount, expert)
            lost = case.forecast(training.leading(FORECAST), n - training.size, delta / 2 ** (spent + 1), tail)
            growth = float(np.clip((lost / CONFIDENT) ** (1 / FALL), *STEPS)) if np.isfinite(lost) else STEPS[1]
            if lost < CONFIDENT or n >= max_samples:
                spent, growth = spent + 1, max(growth, AFTER_FAILURE)
                fresh.grow(n - training.size)
                given: dict[str, Any] = {"discount": discount, "expert": expert, "tail": tail}
                earlier = {f"attempt {i}": delta / 2**i for i in range(1, spent)}
                given |= {"delta": delta / 2**spent, "others": earlier | {"later attempts": delta / 2**spent}}
                certificate = certify_sum(components, recovery.reward, moments, fresh, **given)
        watch(f"{n:,} per action: {'no certificate yet' if certificate is None else certificate.word}")
        if n >= max_samples or (certificate is not None and certificate.margin > 0):
            return AdditiveProof(operators, criteria, recovery, certificate, n)
        n = min(int(growth * n) + 1, max_samples)


def _places(components: Sequence[Component]) -> Any:
    return SideBySide(tuple(components))


def _size(columns: Basis) -> int:
    return columns.size
