"""The certificate: a reward in hand, fresh data, and a lower bound on its true margin with probability 1 − δ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from certirl.data.simulator import Simulator
from certirl.data.source import as_source
from certirl.data.transitions import Transitions, counted
from certirl.fit.bellman import check_problem
from certirl.fit.estimate import MAX_CONDITION
from certirl.functions.bases import Basis, as_basis
from certirl.functions.bounded import bounded, scaled_expansion
from certirl.functions.box_products import level
from certirl.functions.boxes import ProductBasis
from certirl.functions.reward import Reward, RewardLike, unpack
from certirl.ground import archive
from certirl.ground.archive import UNSAVED
from certirl.ground.domain import Array, as_domain, as_states, describe
from certirl.ground.doors import as_count, as_number, as_probability
from certirl.ground.progress import Report
from certirl.ground.status import Claim, chance, unverified
from certirl.ground.work import on
from certirl.proof.bounds import LowerBound
from certirl.proof.box_evidence import BoxEvidence
from certirl.proof.evidence import Evidence, Surrogate, check_reward, fit_surrogate, same_family
from certirl.proof.source import FIT_SHARE as FIT_SHARE
from certirl.proof.source import SAMPLES as SAMPLES
from certirl.proof.source import check_delta as check_delta
from certirl.proof.source import check_enough as check_enough
from certirl.proof.source import check_settings as check_settings
from certirl.proof.source import split as split
from certirl.proof.tail import TailLike, tail_in_words, tail_number
from certirl.proof.weigh import (
    AnyEvidence,
    check_box,
    check_columns,
    forecast_bounds,
    gather,
    lower_bounds,
    spending_of,
    well_determined,
)


@archive.record
@dataclass(frozen=True, eq=False)
class Certificate(Claim):
    """With probability at least 1 − δ, min over states and rivals of D_a(s) is at least ``margin``.

    Attributes:
        holds: the margin is positive and the tail was declared: the expert is proved strictly optimal at every state.
        margin: the lower bound: ``estimated`` minus the losses. May be negative: then nothing is proved.
        estimated: the smallest estimated D_a(s), corrected by the fresh data.
        losses: what is subtracted, by name; they add up.
        delta: the probability of a false statement.
        spending: how δ was split, by name.
        assumptions: what must be true besides, in words.
        tail: τ, or None if none was declared; then the word is "conditional", never "certified".
        worst_state, worst_action: where the bound is lowest.
        samples: fresh transitions per action.
        samples_needed: an estimate of how many would do; None if no number would.
        level: how the operators acting on the residual were bounded: 1, to all orders through their estimates.
        surrogate, evidence: the numbers it rests on; `certirl check` derives the verdict from them again.
    """

    holds: bool
    margin: float
    estimated: float
    losses: dict[str, float]
    delta: float
    spending: dict[str, float]
    assumptions: tuple[str, ...]
    tail: float | None
    worst_state: Array
    worst_action: int
    samples: int
    samples_needed: int | None
    level: int
    surrogate: Surrogate
    evidence: AnyEvidence
    file: str | None = field(default=None, metadata=UNSAVED)
    verified: bool = field(default=True, metadata=UNSAVED)

    def as_read(self, file: str) -> Certificate:
        """What a file claims, refused if its sums lead to other numbers."""
        check_grounds(self.surrogate, self.evidence)
        check_claim(self, self.evidence.counts)
        as_states(self.worst_state[None], self.surrogate.columns.domain, name="certificate worst_state")
        as_count(self.worst_action, "certificate worst_action", least=0, most=len(self.evidence.counts) - 1)
        as_count(self.level, "certificate level", most=1)
        if self.samples_needed is not None:
            as_count(self.samples_needed, "certificate samples_needed")
        if self.worst_action == self.surrogate.expert:
            raise ValueError(f"certificate worst_action must be another action than {self.surrogate.expert}")
        delta = sum(self.spending.get(name, 0.0) for name in spending_of(self.evidence, 1.0))
        delta = as_probability(delta, "the certificate's own part of delta")
        with np.errstate(all="ignore"):  # a file that was changed can lead to anything
            lowest = lowest_bound(self.surrogate, self.evidence, delta=delta, tail=self.tail)
        replace(self, **_of_bound(lowest.times(self.surrogate.unit))).sums_lead_to(vars(self))
        return replace(self, file=file, verified=False)

    def check_about(self, reward: Any, discount: float, actions: int, expert: int | None, columns: list[Any]) -> None:
        """Refuse to be the certificate of another problem or of another reward."""
        check_about(self.surrogate, reward, discount, actions, expert, columns[0])

    @property
    def statement(self) -> str:
        """What is proved, or how far it is from that, in a sentence."""
        return self._verified_headline()

    def lines(self) -> list[tuple[str, str]]:
        """The margin, the data and the assumptions, each in a line with its name."""
        return [("margin", self.proved), ("assumed", "; ".join(self.assumptions))]

    def _headline(self) -> str:
        headline = self._verified_headline()
        return headline if self.verified else unverified(headline, self.file)

    def _verified_headline(self) -> str:
        if self.holds:
            return f"Certified with probability {chance(self.delta)}: margin at least {self.margin:.4g}"
        known = f"with probability {chance(self.delta)}{self.condition} the margin is at least {self.margin:.4g}"
        return f"{self.word.capitalize()}: {known}"

    def __str__(self) -> str:
        place = ", ".join(f"{x:.4g}" for x in self.worst_state)
        lines = [
            self._headline(),
            f"  {self.account(f' at s = {place} against action {self.worst_action}', digits=4)}",
            f"  from {counted(self.evidence.counts)} fresh transitions per action"
            + ("" if self.holds else f"; {self.missing}"),
        ]
        lines += [f"  assumed: {assumption}" for assumption in self.assumptions]
        return "\n".join(lines)


def check_grounds(surrogate: Surrogate, evidence: AnyEvidence) -> None:
    """Refuse sums of other sizes than the columns, and sums that were made with another reward."""
    columns, reward = surrogate.columns, surrogate.reward
    k, counts = columns.size, evidence.counts
    A = len(counts)
    if A < 2 or (counts < k).any() or counts.dtype.kind not in "iu":
        raise ValueError(f"counts must be those of two actions or more, {k} transitions each at least")
    shapes: dict[str, tuple[int, ...]] = {"surprise": (A, k), "drift": (A, k, k)}
    if isinstance(columns, ProductBasis) != isinstance(evidence, BoxEvidence):
        raise ValueError("the sums must be those of the kind of columns")
    if not isinstance(reward, Reward):
        raise ValueError("the reward of a certificate must be an expansion")
    if isinstance(columns, ProductBasis):
        wide = level(columns).doubled
        shapes |= {"gram": (A, *wide), "spread": (A, A, *wide), "wobble": (A, A, *wide), "noise": (k, k)}
    else:
        shapes |= {"gram": (A, k, k), "spread": (A, A, k, k), "wobble": (A, k, k, k)}
        shapes |= {"reached": (A, max(k, reward.basis.size))}
    arrays = {name: getattr(evidence, name) for name in shapes}
    shapes |= {"fits": (A, k), "Z": (A, k, k), "g": (k,)}
    arrays |= {name: getattr(surrogate, name) for name in ("fits", "Z", "g")}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} must have the shape {list(shape)}, got {list(arrays[name].shape)}")
    as_number(surrogate.unit, "unit", least=0, strict=True)
    as_probability(surrogate.discount, "discount")
    as_count(surrogate.expert, "expert", least=0, most=A - 1)
    for end in (surrogate.low, surrogate.high):
        as_number(end, "an end of the range of V")
    if isinstance(evidence, Evidence):
        check_reward(surrogate, evidence)


def check_claim(claim: Any, counts: Array) -> None:
    """Refuse numbers of a certificate that are out of range, or parts of δ that do not add up to it."""
    delta = as_probability(claim.delta, "certificate delta")
    spent = sum(as_number(share, "a part of delta", least=0, most=1) for share in claim.spending.values())
    if abs(spent - delta) > 1e-9 * delta:
        raise ValueError(f"the parts of delta must add up to {delta:g}, got {spent:g}")
    if claim.samples != counts.min():
        raise ValueError(f"certificate samples must be {counts.min()}, as many as its sums are of")
    if claim.tail is not None and not claim.tail >= 0:
        raise ValueError(f"certificate tail must not be negative, got {claim.tail}")
    if any(map(np.isnan, [claim.margin, claim.estimated, *claim.losses.values()])):
        raise ValueError("the parts of a margin must be numbers, got NaN")


def check_about(
    surrogate: Surrogate, reward: Any, discount: float, actions: int, expert: int | None, columns: Any
) -> None:
    """Refuse a certificate that is about another problem or another reward than its solution."""
    for name, own, told in (
        ("discount", discount, surrogate.discount),
        ("expert", expert, surrogate.expert),
        ("number of actions", actions, len(surrogate.Z)),
        (
            "columns",
            f"{columns} on {describe(columns.domain)}",
            f"{surrogate.columns} on {describe(surrogate.columns.domain)}",
        ),
    ):
        if own != told:
            raise ValueError(f"the solution has the {name} {own}, its certificate {told}")
    proved: Any = surrogate.reward
    if proved.basis != reward.basis or not np.array_equal(proved.coefficients, reward.coefficients / surrogate.unit):
        raise ValueError("the certificate is about another reward than that of its solution")


def certify(
    reward: Any,
    source: Simulator | Transitions,
    *,
    delta: float = 0.05,
    tail: TailLike = None,
    discount: float | None = None,
    expert: int | None = None,
    columns: Basis | None = None,
    samples: int | None = None,
    rng: Any = None,
    reward_range: tuple[float, float] | None = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
) -> Certificate:
    """Prove, from data the reward has not seen, that the expert is strictly optimal under it: D_a(s) ≥ margin > 0.

    Args:
        reward: a `Solution`, a `Reward`, or any bounded function of states ``[n, d]``: also what another library gave.
        source: a simulator, or transitions that were not used to find the reward.
        delta: the probability of a false certificate.
        tail: how far P_a f, |f| ≤ 1, can lie outside the span of the columns: a number (0 if exactly representable), a
            `Smooth` bound on derivatives, or a function of the column basis. Without it nothing is "certified".
        discount: γ; known from a solution.
        expert: the expert's action; known from a solution.
        columns: the functions of the state, for example ``Legendre(3)``; known from a solution.
        samples: fresh transitions per action to draw, 100,000 if left out; for simulators only.
        rng: a seed or Generator; needed with a simulator, and for splitting a log.
        reward_range: bounds on a plain function; looked up on a grid, and added to the assumptions, if left out.
        paired: ask a simulator with the same states and random numbers for every action, so that noise cancels between
            actions; left out, it is done where a trial shows that rows keep their random numbers.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
        map: where to work through data: a number of threads, a Dask client or an executor; threads on all cores if
            left out. Results do not depend on it.
    """
    delta = check_delta(delta)
    samples = check_settings(source, samples, tail=tail, paired=paired, progress=progress)
    reward, discount, expert, columns = _what_is_asked(reward, discount, expert, columns)
    n_actions, domain = source.n_actions, as_domain(source.domain)
    check_box(domain)
    discount = check_problem(discount, expert, n_actions)
    columns = as_basis(columns, domain, name="columns", like="certirl.Legendre(3)")
    check_columns(columns)
    as_source(source).check_without_terminal()
    check_enough(source, samples, columns.size)
    notes: tuple[str, ...] = ("the reward was chosen without looking at these transitions",)
    ends: dict[str, Any] = {}
    if same_family(reward, columns):
        if reward_range is not None:
            bounded(reward, domain, reward_range)
        reward, ends["unit"] = scaled_expansion(reward)
    else:
        reward = found = bounded(reward, domain, reward_range).normalised()
        notes += found.assumptions
        ends = {"reward_range": (found.low, found.high), "unit": found.unit}
    training, fresh = split(source, columns, samples, rng, FIT_SHARE, progress, role="certify", paired=paired)
    problem: dict[str, Any] = {"n_actions": n_actions, "discount": discount, "expert": expert}
    with on(map):
        surrogate = fit_surrogate(reward, training, columns=columns, **ends, **problem)
        evidence = gather(surrogate, fresh)
    return conclude(surrogate, evidence, delta=delta, tail=tail, notes=notes)


def conclude(
    surrogate: Surrogate,
    evidence: AnyEvidence,
    *,
    delta: float,
    tail: TailLike,
    notes: tuple[str, ...] = (),
    others: dict[str, float] | None = None,
) -> Certificate:
    """Turn evidence into a certificate.

    Args:
        surrogate: what was fixed beforehand.
        evidence: what the fresh data said.
        delta: for this certificate alone.
        tail: as in `certify`.
        notes: further assumptions.
        others: parts of δ that belong to other attempts, by name.
    """
    number = tail_number(tail, surrogate.columns)
    if not well_determined(surrogate, evidence, MAX_CONDITION):
        raise ValueError("the fresh states cannot tell the columns apart: use more data or fewer columns")
    lowest = lowest_bound(surrogate, evidence, delta=delta, tail=number)
    spending = {**spending_of(evidence, delta), **(others or {})}
    return Certificate(
        **_of_bound(lowest.times(surrogate.unit)),
        holds=bool(lowest.margin > 0 and number is not None),
        delta=sum(spending.values()),
        spending=spending,
        assumptions=(tail_in_words(tail, number, surrogate.columns), independence(paired=evidence.paired), *notes),
        tail=number,
        worst_state=lowest.state,
        worst_action=lowest.rival,
        samples=int(evidence.counts.min()),
        samples_needed=samples_needed(surrogate, evidence, lowest, delta=delta, tail=number or 0.0),
        level=1,
        surrogate=surrogate,
        evidence=evidence,
    )


def lowest_bound(surrogate: Surrogate, evidence: AnyEvidence, *, delta: float, tail: float | None) -> LowerBound:
    """The bound against the rival that it is lowest for, in the surrogate's units."""
    return min(lower_bounds(surrogate, evidence, delta=delta, tail=tail or 0.0), key=lambda bound: bound.margin)


def _of_bound(worst: LowerBound) -> dict[str, Any]:
    """The fields of a certificate that a bound gives."""
    losses = {name: of(worst) for name, of in LOSSES.items()}
    return {"margin": float(worst.margin), "estimated": worst.estimated, "losses": losses}


def samples_needed(
    surrogate: Surrogate, evidence: AnyEvidence, now: LowerBound, *, delta: float, tail: float
) -> int | None:
    """How many fresh transitions per action should do, if the estimate stays what it is; None if none would.

    Forecast evidence has no surprises, so the present corrected estimate stands in for the margin.
    """
    if now.estimated <= 0:
        return None
    have = int(evidence.counts.min())

    def enough(n: int) -> bool:
        bounds = forecast_bounds(surrogate, evidence, n / have, delta=delta, tail=tail)
        return now.estimated > max(bound.estimated - bound.margin for bound in bounds)

    return least_enough(enough, 10 * surrogate.columns.size, have * 2**20)


def least_enough(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The least n between low and high, to a tenth, that is enough; None if not even high is."""
    if not enough(high):
        return None
    while high > 1.1 * low + 1:
        middle = int((low * high) ** 0.5)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# What is taken off an estimate, by the name it is printed with.
LOSSES: dict[str, Callable[[LowerBound], float]] = {
    "estimation": lambda bound: bound.estimation,
    "grid": lambda bound: bound.grid,
    "second order": lambda bound: bound.second_order,
    "truncation tail": lambda bound: bound.tail,
    "solver": lambda bound: 0.0,  # the reward is taken as it is; no optimality of any program is used
    "floating point": lambda bound: bound.floating,
}


def independence(*, paired: bool) -> str:
    """What is assumed of the fresh data, as a certificate prints it."""
    if paired:
        return "what happens at different states is independent, across actions too (rows do not share random numbers)"
    return "given the states, the fresh transitions are independent of each other"


def _what_is_asked(
    reward: Any, discount: float | None, expert: int | None, columns: Basis | None
) -> tuple[RewardLike, float, int, Basis]:
    """Take γ, π and the columns from a solution where they are not given."""
    if columns is None and hasattr(reward, "reward"):
        columns = getattr(reward, "columns", None)
    function, discount, expert = unpack(reward, discount, expert)
    if discount is None or columns is None:
        raise ValueError("a reward alone does not know the problem: pass discount and columns, say columns=Legendre(7)")
    return function, discount, expert, columns
