"""The certificate for an expert who switches: strictly best outside a tube, with a bound on regret inside it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.expert_grid import ExpertGrid
from certirl.data.transitions import counted
from certirl.fit.estimate import MAX_CONDITION
from certirl.functions.frames import frame
from certirl.ground import archive
from certirl.ground.archive import UNSAVED
from certirl.ground.domain import Array, as_states, describe
from certirl.ground.doors import as_number, as_probability
from certirl.ground.status import SAME, Claim, chance, unverified
from certirl.proof.certify import check_claim, independence, least_enough
from certirl.proof.policy_bounds import SHARES, Bands, bands
from certirl.proof.policy_evidence import PolicyEvidence, PolicySurrogate
from certirl.proof.tail import TailLike, tail_in_words, tail_number
from certirl.proof.tubes import Tube, read_tube, tent_marks


@archive.record
@dataclass(frozen=True, eq=False)
class PolicyCertificate(Claim):
    """With probability at least 1 − δ the expert's action is strictly best at every state outside the tube.

    Best: taking it and then following the expert is worth more than taking any other and then following the expert.

    Attributes:
        holds: the margin is positive and the tail was declared.
        margin: what every action the expert takes is better by than every other, divided by γ, farther than ``allowed``
            from all switches: a lower bound. If it is not positive, nothing is proved of that part as a whole.
        estimated: the same before the losses.
        losses: what is subtracted, by name; they add up.
        allowed: the half-width of the tube that was asked for.
        tube: intervals in which that is not proved ``[t, 2]``; on a box the boxes around its pieces ``[t, d, 2]``.
        decided: cell by cell, whether it is; `proves` asks about states ``[cells]``.
        half_width: the farthest that a state of the tube is from a switch.
        share: of the domain that the tube takes up.
        regret: the value lost at worst, at any state, by following the expert instead of the best policy.
        settled: farther than this from a switch every best policy, which need not follow the expert afterwards, takes
            only actions that the expert takes: where the expert is sure, the same one. Infinite if that is nowhere
            known.
        value_span: how far the expert's value reaches at least, from its lowest to its highest state.
        ties: how far actions that the expert mixes can differ, divided by γ; 0 if it never mixes.
        delta, spending: the probability of a false statement and how it was split, by name.
        assumptions: what must be true besides, in words.
        tail: τ, or None if none was declared; then the word is "conditional", never "certified".
        worst_state, worst_action: where the margin is lowest.
        samples: fresh transitions per action.
        surrogate, evidence, lookup: the numbers it rests on.
        goal: the regret that was asked for, as a share of the value's span; None if none was.
    """

    holds: bool
    margin: float
    estimated: float
    losses: dict[str, float]
    allowed: float
    tube: Array
    decided: NDArray[np.bool_]
    half_width: float
    share: float
    regret: float
    settled: float
    value_span: float
    ties: float
    delta: float
    spending: dict[str, float]
    assumptions: tuple[str, ...]
    tail: float | None
    worst_state: Array
    worst_action: int
    samples: int
    surrogate: PolicySurrogate
    evidence: PolicyEvidence
    lookup: ExpertGrid
    goal: float | None = None
    file: str | None = field(default=None, metadata=UNSAVED)
    verified: bool = field(default=True, metadata=UNSAVED)

    @property
    def relative_regret(self) -> float:
        """The regret as a share of the value's span; infinite where neither is known."""
        return self.regret / self.value_span if self.value_span > 0 else float("inf")

    @cached_property
    def bands(self) -> Bands:
        """What holds around (P_b − P_a)V for every pair of actions, derived from the evidence."""
        return bands(self.surrogate, self.evidence, delta=_own(self.spending), tail=self.tail or 0.0)

    def advantage(self, states: ArrayLike) -> tuple[Array, Array]:
        """D_a(s) of what the expert does over every action a, divided by γ: estimated, and at least; ``[A, n]`` each.

        The lower bounds hold at all states at once, with the probability and under the assumptions of the certificate.
        Where the expert may take several actions it is the least of theirs; nan for the actions that it takes, within a
        cell of the lookup.

        Args:
            states: ``[n, d]``; ``[n]`` for one coordinate.
        """
        rows = as_states(states, self.lookup.domain)
        taken = self.lookup.taken_at(rows)
        estimate = np.full((2, *taken.shape), np.inf)
        for band in self.bands.pairs:
            curve, radius = band.estimate(rows), band.radius(rows)
            for (b, a), sign in ((band.pair, 1.0), (band.pair[::-1], -1.0)):
                for found, value in zip(estimate, (sign * curve, sign * curve - radius), strict=True):
                    found[a] = np.where(taken[b], np.minimum(found[a], value), found[a])
        estimate[:, taken] = np.nan
        return self.surrogate.unit * estimate[0], self.surrogate.unit * estimate[1]

    def proves(self, states: ArrayLike) -> NDArray[np.bool_]:
        """Whether the expert's action is proved strictly best at each state ``[n]``: outside the tube it is."""
        return np.asarray(self.decided[self.lookup.cell(as_states(states, self.lookup.domain))])

    def plot(self, *, ax: Any = None, path: Any = None) -> Any:
        """Draw the advantage over the best rival with its proved band, and the tube; write it to ``path`` if given."""
        from certirl import plots

        return plots.certificate(self, ax=ax, path=path)

    @cached_property
    def samples_needed(self) -> int | None:  # type: ignore[override]  # worked out when asked for
        """How many fresh transitions per action should do, if the curves stay what they are; None if none would."""
        s, have, tail = self.surrogate, int(self.evidence.counts.min()), self.tail or 0.0

        def enough(n: int) -> bool:
            then = bands(s, self.evidence, delta=_own(self.spending), tail=tail, growth=n / have)
            same = [replace(later, curve=band.curve) for later, band in zip(then.pairs, self.bands.pairs, strict=True)]
            return read(s, replace(then, pairs=tuple(same)), self.lookup, self.allowed).margin > 0

        return least_enough(enough, 10 * s.columns.size, have * 2**12)

    def __str__(self) -> str:
        counts = f"{counted(self.evidence.counts)} fresh transitions per action"
        data = counts if self.holds else f"{counts}; {self.missing}"
        named = [*self.lines()[:-1], ("data", data)]
        lines = [f"  {name:<9}{text}" for name, text in named]
        return "\n".join([self._headline(), *lines, *(f"  assumed: {assumption}" for assumption in self.assumptions)])

    @property
    def statement(self) -> str:
        """What is proved, or how far it is from that, in a sentence."""
        return self._verified_headline()

    def lines(self) -> list[tuple[str, str]]:
        """The margin, the tube with the regret, and the assumptions, each in a line with its name."""
        place = ", ".join(f"{x:.4g}" for x in self.worst_state)
        margin = f"at least {self.margin:.3g} there: " if np.isfinite(self.margin) else "no bound yet: "
        compared = f"{margin}{self.account(f' at s = {place} against action {self.worst_action}')}"
        tube = f"{self.lookup.described(self.tube)}: half-width {self.half_width:.3g}, {self.share:.2%} of the domain"
        lines = [
            ("margin", compared if self.margin < np.inf else "none: the expert takes every action"),
            ("tube", tube),
            ("regret", f"{self._lost}{self._settled}"),
            ("assumed", "; ".join(self.assumptions)),
        ]
        if self.ties > 0:
            lines.insert(2, ("ties", f"actions that the expert mixes differ by {self.ties:.3g} at most"))
        return lines

    @property
    def _lost(self) -> str:
        if not np.isfinite(self.relative_regret):
            return "no bound yet"
        missed = self.goal is not None and self.relative_regret > self.goal
        asked = f" ({self.goal:.2%} was asked for: allow more samples)" if missed else ""
        return f"at most {self.relative_regret:.2%} of the span of the value, at every state{asked}"

    @property
    def _settled(self) -> str:
        least = min(high - low for low, high in self.lookup.domain)
        alike = "does as the expert" if self.ties == 0 else "takes only actions that the expert takes"
        known = f"; farther than {self.settled:.3g} from a switch the best policy {alike}"
        return known if 0 < self.settled < least / 2 else ""

    def _headline(self) -> str:
        headline = self._verified_headline()
        return headline if self.verified else unverified(headline, self.file)

    def _verified_headline(self) -> str:
        switches = len(self.lookup.switches) > 0
        where = f"farther than {self.allowed:.3g} from {self.lookup.where}" if switches else "everywhere"
        if self.holds:
            best = (
                "what the expert does is strictly best" if self.ties == 0 else "what the expert may do beats the rest"
            )
            return f"Certified with probability {chance(self.delta)}: {best} {where}"
        if self.margin == np.inf:
            return f"{self.word.capitalize()}: {self.missing} {where}"
        if not np.isfinite(self.margin):
            return f"{self.word.capitalize()}: too little data for any bound {where}"
        sure = f"with probability {chance(self.delta)}{self.condition}"
        known = f"{sure} the margin {where} is at least {self.margin:.3g}"
        return f"{self.word.capitalize()}: {known}"

    def as_read(self, file: str) -> PolicyCertificate:
        """What a file claims: derived from the sums again, and refused if the file tells other numbers."""
        check_switching_grounds(self.surrogate, self.evidence, self.lookup)
        check_claim(self, self.evidence.counts)
        as_number(self.allowed, "certificate allowed", least=0, strict=True)
        if self.goal is not None:
            as_number(self.goal, "certificate goal", least=0)
        with np.errstate(all="ignore"):  # a file that was changed can lead to anything
            found = bands(self.surrogate, self.evidence, delta=_own(self.spending), tail=self.tail or 0.0)
            tube = read(self.surrogate, found, self.lookup, self.allowed)
        derived = replace(
            self,
            **_of_tube(tube.times(self.surrogate.unit)),
            holds=_holds(tube.margin, self.tail),
            value_span=self.surrogate.unit * found.span,
            file=file,
            verified=False,
        )
        derived.sums_lead_to(vars(self))
        return derived

    def check_about(self, reward: Any, discount: float, actions: int, expert: int | None, columns: list[Any]) -> None:
        """Refuse to be the certificate of another problem or of another reward."""
        s, e = self.surrogate, self.evidence
        for name, own, told in (
            ("discount", discount, s.discount),
            ("number of actions", actions, s.n_actions),
            ("domain", describe(reward.domain), describe(s.columns.domain)),
        ):
            if own != told:
                raise ValueError(f"the solution has the {name} {own}, its certificate {told}")
        # Σ Y_c must follow from the sums of the reward's functions.
        if getattr(reward, "zero_at_terminal", False) or e.reached.shape[1] != len(reward.coefficients):
            raise ValueError(
                "the sums over next states must be those of the functions of the reward, without terminal states"
            )
        coefficients, gram = reward.coefficients / s.unit, e.gram[:, 0]
        pieces = np.linalg.solve(s.mix, e.drift[:, :, 0].T).T + np.einsum("aij,aj->ai", s.Z, gram)
        gained = s.columns.sup()[0] * e.reached @ coefficients
        sums = gained + s.discount * pieces @ s.fits.ravel() - np.einsum("ai,ai->a", s.fits, gram)
        size = np.abs(coefficients).max() * reward.basis.size + np.abs(s.fits).max() * s.columns.size**2
        if (np.abs(sums - e.surprise[:, 0]) > 1e-9 * size * e.counts).any():
            raise ValueError("the sums were made with another reward")

    def sums_lead_to(self, told: dict[str, Any]) -> None:
        """Refuse the numbers of a file that differ from this certificate; a tube may be off by a cell."""
        super().sums_lead_to(told)
        losses = sum(loss for loss in self.losses.values() if np.isfinite(loss))
        value = SAME * (abs(self.estimated) + losses + self.value_span) / (1 - self.surrogate.discount)
        reach, share = 1.5 * self.lookup.reach, 3 / len(self.decided) + 0.01 * self.share
        slacks = {"half_width": reach, "settled": reach, "share": share}
        slacks |= {"regret": value, "value_span": value, "ties": value}
        for name, slack in slacks.items():
            claimed, own = told[name], getattr(self, name)
            if not (claimed == own or abs(claimed - own) <= slack):
                label = name.replace("_", " ")
                raise ValueError(f"the certificate claims the {label} {claimed:.6g}, its sums lead to {own:.6g}")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything but the reward and the expert to an npz file; `certirl.load` reads it back."""
        return archive.save(self, path)


def check_switching_grounds(surrogate: PolicySurrogate, evidence: PolicyEvidence, lookup: ExpertGrid) -> None:
    """Refuse sums of other sizes than the columns, and an expert whom the sums are not about."""
    columns, counts, tents = surrogate.columns, evidence.counts, len(surrogate.widths)
    A, k = len(counts), columns.size
    if A < 2 or (counts < k).any() or counts.dtype.kind not in "iu":
        raise ValueError(f"counts must be those of two actions or more, {k} transitions each at least")
    m, wide = A * k, frame(columns).wide
    shapes: dict[str, tuple[int, ...]] = {"fits": (A, k), "Z": (A, m, k), "mix": (m, m), "widths": (tents,)}
    shapes |= {"tent_fits": (A, tents, k), "drop": (m,), "places": (2, columns.dimension)}
    arrays = {name: getattr(surrogate, name) for name in shapes}
    sums = {"gram": (A, k, k), "surprise": (A, k), "spread": (A, A, *wide), "drift": (A, m, k)}
    sums |= {"wobble": (A, A, m, *wide), "visits": (A, tents, k), "visit_spread": (A, tents, *wide)}
    sums |= {"reached": (A, *evidence.reached.shape[1:2])}
    arrays |= {name: getattr(evidence, name) for name in sums}
    for name, shape in (shapes | sums).items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} must have the shape {list(shape)}, got {list(arrays[name].shape)}")
    for name in ("low", "high", "dropped"):
        as_number(getattr(surrogate, name), name)
    as_number(surrogate.unit, "unit", least=0, strict=True)
    as_probability(surrogate.discount, "discount")
    support = lookup.support
    if lookup.domain != columns.domain or support.shape[-1] != A or support.ndim != columns.dimension + 1:
        raise ValueError(f"the expert must be known on {describe(columns.domain)}, one of {A} actions at least")
    if min(support.shape[:-1]) < 2 or not support.any(axis=-1).all():
        raise ValueError("support must name an action at every state")
    marks = tent_marks(lookup)
    if surrogate.switches.shape != marks.shape or not np.allclose(surrogate.switches, marks, rtol=1e-9):
        raise ValueError("visits were counted around other switches than its expert's")


def conclude_policy(
    surrogate: PolicySurrogate,
    evidence: PolicyEvidence,
    lookup: ExpertGrid,
    *,
    allowed: float,
    delta: float,
    tail: TailLike,
    notes: tuple[str, ...] = (),
    others: dict[str, float] | None = None,
    goal: float | None = None,
) -> PolicyCertificate:
    """Turn evidence into a certificate.

    Args:
        surrogate: what was fixed beforehand.
        evidence: what the fresh data said.
        lookup: the expert.
        allowed: the half-width of the tube asked for.
        delta: for this certificate alone.
        tail: as in `certify`.
        notes: further assumptions.
        others: parts of δ that belong to other attempts, by name.
        goal: the regret that was asked for.
    """
    number = tail_number(tail, surrogate.columns)
    if (evidence.counts < surrogate.columns.size).any() or (np.linalg.cond(evidence.gram) > MAX_CONDITION).any():
        raise ValueError("the fresh states cannot tell the columns apart: use more data or fewer columns")
    found = bands(surrogate, evidence, delta=delta, tail=number or 0.0)
    tube = read(surrogate, found, lookup, allowed)
    assumption = surrogate.policy.assumption if surrogate.policy is not None else ""
    spending = {name: share * delta for name, share in SHARES.items()} | (others or {})
    return PolicyCertificate(
        **_of_tube(tube.times(surrogate.unit)),
        holds=_holds(tube.margin, number),
        value_span=surrogate.unit * found.span,
        delta=sum(spending.values()),
        spending=spending,
        assumptions=(
            tail_in_words(tail, number, surrogate.columns),
            independence(paired=evidence.paired),
            *notes,
            str(lookup),
            *([assumption] if assumption else []),
        ),
        tail=number,
        samples=int(evidence.counts.min()),
        surrogate=surrogate,
        evidence=evidence,
        lookup=lookup,
        goal=goal,
    )


def read(surrogate: PolicySurrogate, found: Bands, lookup: ExpertGrid, allowed: float) -> Tube:
    """What the bands say about the expert, cell by cell."""
    widths, discount = surrogate.widths, surrogate.discount
    return read_tube(found, lookup, allowed=allowed, widths=widths, discount=discount)


def _of_tube(tube: Tube) -> dict[str, Any]:
    """The fields of a certificate that come from its tube."""
    return {
        "margin": tube.margin,
        "estimated": tube.estimated,
        "losses": tube.losses,
        "allowed": tube.allowed,
        "tube": tube.undecided,
        "decided": tube.decided,
        "half_width": tube.half_width,
        "share": tube.share,
        "regret": tube.regret,
        "settled": tube.settled,
        "ties": tube.ties,
        "worst_state": tube.state,
        "worst_action": tube.action,
    }


def _own(spending: dict[str, float]) -> float:
    """The part of δ that this certificate spends itself."""
    return sum(spending[name] for name in SHARES)


def _holds(margin: float, tail: float | None) -> bool:
    """A margin that is proved, of something: an expert who may do anything leaves nothing to prove."""
    return bool(0 < margin < np.inf and tail is not None)
