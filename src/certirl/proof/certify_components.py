"""Certificates for sums: the lower bounds of the components add up, and each may fail with its own part of δ.

For every rival a and whole state s, D_a(s) = Σ_j D_ja(s_j) ≥ Σ_j (lower bound of D_ja). A component's bound may be zero
or below, as where a rival acts on it like the expert; only the sums decide. A component without a reward has D_ja = 0
and needs no proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from certirl.data.moments import Moments
from certirl.data.transitions import Chunk, Piece, chunks_of
from certirl.fit.estimate import MAX_CONDITION
from certirl.functions.boxes import ProductBasis
from certirl.functions.components import Component
from certirl.functions.reward import Reward
from certirl.ground import archive
from certirl.ground.archive import UNSAVED, Shape
from certirl.ground.domain import Array, freeze
from certirl.ground.doors import as_count, as_number, as_probability
from certirl.ground.status import SAME, Claim, chance
from certirl.proof.bounds import LowerBound
from certirl.proof.certify import LOSSES, check_about, check_claim, check_grounds, independence
from certirl.proof.evidence import Surrogate, gather_views, surrogate_of
from certirl.proof.tail import TailLike, tail_in_words, tail_number
from certirl.proof.weigh import AnyEvidence, forecast_bounds, gather, lower_bounds, spending_of, well_determined

FALL = 0.75  # losses fall about as n to minus this: between 1/√n and 1/n
SEPARATE = "given the action, each component's next state depends on its own state alone"


@archive.record
@dataclass(frozen=True, eq=False)
class Grounds:
    """What the bound of one component rests on.

    Attributes:
        component: its number.
        spending: its own part of δ, by name.
        tail: its τ; None if none was declared.
        surrogate, evidence: as in `Certificate`.
    """

    component: int
    spending: dict[str, float]
    tail: float | None
    surrogate: Surrogate
    evidence: AnyEvidence

    def as_read(self, file: str) -> Grounds:
        """Refuse sums of other sizes than the columns, and shares of δ that are none."""
        check_grounds(self.surrogate, self.evidence)
        for share in self.spending.values():
            as_number(share, "a part of delta", least=0, most=1)
        if self.tail is not None and not self.tail >= 0:
            raise ValueError(f"a component's tail must not be negative, got {self.tail}")
        return self

    def bounds(self) -> list[LowerBound]:
        """The lower bounds that the sums lead to, rivals in order."""
        delta = as_probability(sum(self.spending.values()), "a component's part of delta")
        found = lower_bounds(self.surrogate, self.evidence, delta=delta, tail=self.tail or 0.0)
        return [bound.times(self.surrogate.unit) for bound in found]


@archive.record
@dataclass(frozen=True, eq=False)
class AdditiveCertificate(Claim):
    """With probability at least 1 − δ, Σ_j min D_ja is at least ``margin`` for every rival a.

    Attributes:
        holds: the margin is positive and the tail was declared: the expert is proved strictly optimal at every state.
        margin: the lower bound: ``estimated`` minus the losses. May be negative: then nothing is proved.
        estimated: the smallest estimated D_a(s), corrected by the fresh data.
        losses: what is subtracted, by name, summed over the components.
        delta: the probability of a false statement.
        spending: how δ was split, by name; within each part evenly over the components that have a reward.
        assumptions: what must be true besides, in words.
        tail: τ, the largest of all components, or None if none was declared; then the word is "conditional".
        bounds: the lower bounds on min D_ja ``[J, A − 1]``; zero for components without a reward.
        worst_action: the rival with the smallest sum.
        samples: fresh transitions per action.
        grounds: the numbers that the bounds rest on, of components with a reward; `certirl check` starts from them.
    """

    holds: bool
    margin: float
    estimated: float
    losses: dict[str, float]
    delta: float
    spending: dict[str, float]
    assumptions: tuple[str, ...]
    tail: float | None
    bounds: Annotated[Array, Shape("J B", infinite=True)]
    worst_action: int
    samples: int
    grounds: tuple[Grounds, ...]
    file: str | None = field(default=None, metadata=UNSAVED)
    verified: bool = field(default=True, metadata=UNSAVED)

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def samples_needed(self) -> int | None:  # type: ignore[override]
        """A guess at how many fresh transitions per action would do, as losses fall; None if that cannot be told."""
        fixed = self.losses["truncation tail"]
        falling, left = sum(self.losses.values()) - fixed, self.estimated - fixed
        if not (left > 0 and np.isfinite(falling)):
            return None
        return int(self.samples * (falling / left) ** (1 / FALL)) + 1

    def as_read(self, file: str) -> AdditiveCertificate:
        """What a file claims, refused if its sums lead to other numbers."""
        numbers = [own.component for own in self.grounds]
        if not numbers or len(set(numbers)) != len(numbers) or not set(numbers) <= set(range(len(self.bounds))):
            raise ValueError("a certificate of a sum needs the sums of different components")
        tails = [own.tail for own in self.grounds]
        if self.tail != (None if None in tails else max(tail for tail in tails if tail is not None)):
            raise ValueError("certificate tail must be the largest of its components")
        counts = self.grounds[0].evidence.counts
        check_claim(self, counts)
        if self.bounds.ndim != 2 or self.bounds.shape[1] != len(counts) - 1:
            raise ValueError(f"certificate bounds must be those of {len(counts) - 1} alternative actions")
        as_count(self.worst_action, "certificate worst_action", least=0, most=len(counts) - 1)
        if self.worst_action == self.grounds[0].surrogate.expert:
            raise ValueError("certificate worst_action must be another action than the expert's")
        with np.errstate(all="ignore"):  # a file that was changed can lead to anything
            bounds = [own.bounds() for own in self.grounds]
        derived = _of_bounds(bounds, numbers, len(self.bounds))
        replace(self, **derived).sums_lead_to(vars(self))
        if not np.allclose(self.bounds, derived["bounds"], rtol=SAME, atol=SAME * abs(self.estimated)):
            raise ValueError("the bounds of the components are not what their sums lead to")
        return replace(self, file=file, verified=False)

    def check_about(self, reward: Any, discount: float, actions: int, expert: int | None, columns: list[Any]) -> None:
        """Refuse to be the certificate of another problem or of another reward."""
        if len(columns) != len(self.bounds):
            raise ValueError(f"the certificate is about {len(self.bounds)} components, its solution has {len(columns)}")
        proved = {own.component for own in self.grounds}
        if any(part.coefficients.any() for j, part in enumerate(reward.parts) if j not in proved):
            raise ValueError("a component with a reward has no bound")
        for own in self.grounds:
            part = reward.parts[own.component]
            check_about(own.surrogate, part, discount, actions, expert, columns[own.component])

    @property
    def statement(self) -> str:
        """What is proved, or how far it is from that, in a sentence."""
        sure = f"with probability {chance(self.delta)}{self.condition}"
        return f"{self.word.capitalize()} {sure}: the margin is at least {self.margin:.4g}"

    def lines(self) -> list[tuple[str, str]]:
        """The margin and the assumptions, each in a line with its name."""
        return [("margin", self.proved), ("assumed", "; ".join(self.assumptions))]


@dataclass(frozen=True, eq=False)
class _Viewed:
    """A stream of which some coordinates are seen."""

    stream: Iterable[Piece]
    coordinates: tuple[int, ...]

    def __iter__(self) -> Iterator[Piece]:
        return (piece.view(self.coordinates) for piece in self.stream)

    def chunks(self) -> list[_ViewedChunk]:
        return [_ViewedChunk(chunk, self.coordinates) for chunk in chunks_of(self.stream)]


@dataclass(frozen=True, eq=False)
class _ViewedChunk:
    chunk: Chunk
    coordinates: tuple[int, ...]

    def pieces(self) -> Iterator[Piece]:
        return (piece.view(self.coordinates) for piece in self.chunk.pieces())


def gather_all(
    surrogates: Sequence[Surrogate], views: Sequence[tuple[int, ...]], stream: Iterable[Piece]
) -> list[AnyEvidence]:
    """What the data say about every component: one walk for those of one coordinate, one for each of the others."""
    found: dict[int, AnyEvidence] = {}
    boxes = [i for i, own in enumerate(surrogates) if isinstance(own.columns, ProductBasis)]
    lines = [i for i in range(len(surrogates)) if i not in boxes]
    if lines:
        seen = gather_views([surrogates[i] for i in lines], stream, [views[i] for i in lines])
        found |= dict(zip(lines, seen, strict=True))
    for i in boxes:
        found[i] = gather(surrogates[i], _Viewed(stream, views[i]))
    return [found[i] for i in range(len(surrogates))]


class Case:
    """A sum of rewards to be judged: the surrogates of the components that have a reward.

    Attributes:
        components: all of them.
        active: the numbers of those with a reward.
        views: their coordinates.
        surrogates: fixed before any fresh data are seen.
    """

    def __init__(
        self, components: Sequence[Component], reward: Reward, moments: Sequence[Moments], **problem: Any
    ) -> None:
        self.components = components
        self.active = [j for j, part in enumerate(reward.parts) if part.coefficients.any()]
        self.views = [components[j].coordinates for j in self.active]
        self.surrogates = [surrogate_of(reward.parts[j], moments[j], **problem) for j in self.active]

    def bounds(
        self, evidence: Sequence[AnyEvidence], delta: float, tail: TailLike, growth: float | None = None
    ) -> list[list[LowerBound]]:
        """The lower bounds of every component, rivals in order; all hold at once with probability 1 − δ.

        With ``growth`` they are what so many times as much data would give, for planning only.
        """
        found = []
        for own, seen in zip(self.surrogates, evidence, strict=True):
            asked = {"delta": delta / len(self.active), "tail": tail_number(tail, own.columns) or 0.0}
            if growth is None:
                found.append(lower_bounds(own, seen, **asked))
            else:
                found.append(forecast_bounds(own, seen, growth, **asked))
        return found

    def left(self, seen: Sequence[AnyEvidence], fresh: int, delta: float, tail: TailLike) -> float:
        """The share of the margin that a certificate from ``fresh`` transitions should leave, from training data."""
        bounds = self.bounds(seen, delta, tail, growth=fresh / int(seen[0].counts.min()))
        left = np.sum([[bound.margin for bound in own] for own in bounds], axis=0)
        whole = np.sum([[bound.estimated for bound in own] for own in bounds], axis=0)
        return float(np.min(left / whole)) if (whole > 0).all() else -np.inf


def certify_sum(
    case: Case, fresh: Iterable[Piece], *, delta: float, tail: TailLike, others: dict[str, float] | None = None
) -> AdditiveCertificate:
    """Walk through fresh data once and add up the lower bounds of all components.

    Args:
        case: the reward, found without the fresh data.
        fresh: whole transitions that training did not see.
        delta: for this certificate alone.
        tail: as in `certify`, for every component.
        others: parts of δ that belong to other attempts, by name.
    """
    evidence = gather_all(case.surrogates, case.views, fresh)
    for j, surrogate, seen in zip(case.active, case.surrogates, evidence, strict=True):
        if not well_determined(surrogate, seen, MAX_CONDITION):
            name = case.components[j].name
            raise ValueError(
                f"the fresh states cannot tell the columns of {name} apart: use more data or fewer columns"
            )
    found = case.bounds(evidence, delta, tail)
    derived = _of_bounds(found, case.active, len(case.components))
    tails = [tail_number(tail, surrogate.columns) for surrogate in case.surrogates]
    number = None if tail is None else max(own or 0.0 for own in tails)
    each = [spending_of(seen, delta / len(found)) for seen in evidence]
    parts = f"{len(found)} component{'s' * (len(found) != 1)}, evenly"
    names = dict.fromkeys(name for own in each for name in own)
    spending = {f"{name} ({parts})": sum(own.get(name, 0.0) for own in each) for name in names} | (others or {})
    grounds = map(Grounds, case.active, each, tails, case.surrogates, evidence)
    return AdditiveCertificate(
        **derived,
        holds=bool(derived["margin"] > 0 and number is not None),
        delta=sum(spending.values()),
        spending=spending,
        assumptions=(SEPARATE, *_tails_in_words(case, tail, tails), independence(paired=evidence[0].paired)),
        tail=number,
        samples=int(evidence[0].counts.min()),
        grounds=tuple(grounds),
    )


def _of_bounds(found: list[list[LowerBound]], active: list[int], components: int) -> dict[str, Any]:
    """The fields of a certificate that the bounds of the active components give."""
    bounds = np.zeros((components, len(found[0])))
    bounds[active] = [[bound.margin for bound in own] for own in found]
    worst = int(bounds.sum(axis=0).argmin())
    decisive = [own[worst] for own in found]
    return {
        "margin": float(bounds[:, worst].sum()),
        "estimated": sum(bound.estimated for bound in decisive),
        "losses": {name: sum(float(of(bound)) for bound in decisive) for name, of in LOSSES.items()},
        "bounds": bounds,
        "worst_action": decisive[0].rival,
    }


def _tails_in_words(case: Case, tail: TailLike, tails: Sequence[float | None]) -> list[str]:
    """What is assumed of the components' dynamics: once for all of which the same is assumed."""
    told: dict[str, list[str]] = {}
    for j, number, surrogate in zip(case.active, tails, case.surrogates, strict=True):
        told.setdefault(tail_in_words(tail, number, surrogate.columns), []).append(case.components[j].name)
    if len(told) == 1:
        return [f"in each component {words}" for words in told]
    return [f"in {', '.join(names)} {words}" for words, names in told.items()]
