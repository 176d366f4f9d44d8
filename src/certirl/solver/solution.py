"""The record a person reads: what was found, how sure it is, and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from certirl.data.transitions import counted
from certirl.fit.bellman import Bellman, rivals_of
from certirl.fit.estimate import Operators
from certirl.fit.recover import Recovery, Witness, findings_of
from certirl.functions.bases import Basis
from certirl.functions.boxes import from_spec
from certirl.functions.extrema import TIE, ranked
from certirl.functions.reward import Reward
from certirl.ground import archive
from certirl.ground.archive import Stored
from certirl.ground.domain import Array, as_actions, as_states, describe, freeze
from certirl.ground.status import NO_SUMS, chance, unverified, weakest
from certirl.proof.certify import Certificate, unpacked_state
from certirl.proof.evidence import Surrogate
from certirl.proof.refutation import Refutation

HEADLINES = {
    "certified": "Certified with probability {sure}: action {expert} is strictly optimal at every state.",
    "solved": "Solved, not certified{noise}: action {expert} is strictly optimal under the {origin} dynamics.",
    "infeasible": "Infeasible: no reward in this class explains action {expert} under the {origin} dynamics.",
    "undetermined": "Undetermined: {reason}.",
}
_ARRAYS = ("states", "actions", "weights", "slack", "curves", "error_forms")


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer of `solve`.

    Attributes:
        status: "solved", "infeasible" or "undetermined". Nothing is "certified" without a certificate.
        reason: the status in a sentence: what happened and what to change.
        reward: the reward found, callable; None if there is none.
        margin: the smallest estimated D_a(s) over all states and rivals, NaN without a reward.
        worst_state, worst_action: where the margin is reached.
        samples: transitions per action used (the fewest); 0 for exact operators.
        most_samples: of the action with most.
        discount, expert, n_actions: the problem: γ, the expert's action, how many there are.
        basis, columns: the functions of rewards and values, and how many of them describe the state.
        form, objective: how the operators were estimated and which program was solved.
        choice: how basis and columns came about.
        curves: coefficients of each D_a in the columns ``[A − 1, k_s]``, rivals in order.
        error_forms: Q_a with φ(s)ᵀQ_aφ(s) the variance of the estimated D_a(s) ``[A − 1, k_s, k_s]``.
        states, actions, weights, slack: the rows of the program, their weights and shortfalls ``[m, …]``.
        rounds: how often the program was solved.
        cover: the radius of the paper's cover, if one stood in for the continuum.
        condition, spectral_radius, gram_condition: of I − γT, of γT, of the states' Gram matrix.
        witness: the conflict, if infeasible.
        certificate: the proof, or the attempt at one; None if none was asked for.
        refutation: what was proved about the absence of any reward, in words; None if that was not tried.
        file: where it was read from, with a status and a certificate that the file claims; None if it was found here.
        verified: it was found here, or `certirl.check` confirmed its file.
    """

    status: str
    reason: str
    reward: Reward | None
    margin: float
    worst_state: Array | None
    worst_action: int | None
    samples: int
    most_samples: int
    discount: float
    expert: int
    n_actions: int
    basis: Basis
    columns: int
    form: str
    objective: str
    choice: str
    curves: Array
    error_forms: Array
    states: Array
    actions: Array
    weights: Array
    slack: Array
    rounds: int
    condition: float
    spectral_radius: float
    gram_condition: float
    cover: float | None = None
    witness: Witness | None = None
    certificate: Certificate | None = None
    refutation: str | None = None
    file: str | None = None
    verified: bool = True

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def rivals(self) -> tuple[int, ...]:
        """The actions the expert does not take, in order."""
        return rivals_of(self.expert, self.n_actions)

    def margins(self, states: ArrayLike) -> Array:
        """The estimated D_a(s) of each rival at states ``[n]``: ``[A − 1, n]``."""
        return self.curves @ self._features(states).T

    def standard_errors(self, states: ArrayLike) -> Array:
        """The standard error of each estimated D_a(s), to first order: ``[A − 1, n]``; zero for exact operators."""
        x = self._features(states)
        return np.sqrt(np.maximum(np.einsum("ni,aij,nj->an", x, self.error_forms, x), 0.0))

    @property
    def standard_error(self) -> float:
        """Of the margin, at its own place; NaN without a reward."""
        if self.worst_state is None or self.worst_action is None:
            return float("nan")
        return float(self.standard_errors(self.worst_state[None])[self.rivals.index(self.worst_action), 0])

    @property
    def within_noise(self) -> bool:
        """The margin is positive but below three of its standard errors: it may well be an accident of the data."""
        return bool(0 < self.margin < 3 * self.standard_error)

    def _features(self, states: ArrayLike) -> Array:
        return self.basis.resized(self.columns).values(as_states(states, self.basis.domain))

    def __str__(self) -> str:
        return "\n".join([self._headline(), *(f"  {name:<9}{text}" for name, text in self._lines())])

    def _headline(self) -> str:
        origin = "exact" if self.form == "exact" else "estimated"
        noise = ", within the noise" if self.within_noise else ""
        sure = chance(self.certificate.delta) if self.certificate else ""
        words = {"expert": self.expert, "origin": origin, "reason": self.reason, "noise": noise, "sure": sure}
        return headline(self, HEADLINES[self.status].format(**words))

    def _lines(self) -> list[tuple[str, str]]:
        counts = counted((self.samples, self.most_samples))
        data = f"{counts} transitions for each of" if self.samples else "exact operators of"
        where = "exact on the continuum" if self.cover is None else f"on a cover of radius {self.cover:.3g}"
        if self.slack.any():
            worst = ranked(self.slack, self.actions, self.states)[0]
            place = ", ".join(f"{x:.4g}" for x in self.states[worst])
            where += f", slack up to {self.slack[worst]:.3g} (action {self.actions[worst]} at s = {place})"
        radius = round(self.spectral_radius, 12)  # less is rounding
        return [
            ("reward", str(self.reward) if self.reward else f"none in {self.basis} on {describe(self.basis.domain)}"),
            self._margin_line() if self.certificate is None else ("margin", self.certificate.proved),
            ("data", f"{data} {self.n_actions} actions, discount {self.discount:g}, {self.form}"),
            ("basis", self.choice)
            if self.certificate is None
            else ("assumed", "; ".join(self.certificate.assumptions)),
            (
                "checks",
                f"{self.objective} program {where}, {self.rounds} solve{'s' * (self.rounds != 1)}, "
                f"{len(self.states)} rows; κ(I − γT) = "
                f"{self.condition:.3g}, γρ(T) = {radius:.3g}, κ(Gram) = {self.gram_condition:.3g}",
            ),
        ]

    def _margin_line(self) -> tuple[str, str]:
        if self.witness is not None:
            return "witness", str(self.witness)
        if self.worst_state is None:
            return "margin", "none"
        place = ", ".join(f"{x:.4g}" for x in self.worst_state)
        error = ""
        if self.standard_error > TIE * abs(self.margin):  # less is rounding
            error = f"; standard error {self.standard_error:.2g}"
            if self.within_noise:
                error += ": more samples are needed"
        return "margin", f"{self.margin:.4g} at worst, at s = {place} against action {self.worst_action}{error}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to an npz file (suffix added if missing); `certirl.load` reads it back."""
        header = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name
            not in (*_ARRAYS, "reward", "basis", "worst_state", "witness", "certificate", "file", "verified")
        }
        header["basis"] = self.basis.spec()
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.reward is not None:
            arrays["reward"] = self.reward.coefficients
        if self.worst_state is not None:
            arrays["worst_state"] = self.worst_state
        if self.witness is not None:
            header["witness_residual"] = self.witness.residual
            arrays |= {f"witness_{name}": getattr(self.witness, name) for name in ("states", "actions", "weights")}
        if self.certificate is not None:
            words, numbers = self.certificate.packed()
            header["certificate"] = words
            arrays |= {f"certificate_{name}": value for name, value in numbers.items()}
        return archive.write(path, "solution", header, arrays)

    def plot(self, **settings: Any) -> Any:
        """Draw the reward above its margin curves (see `certirl.plots.solution`)."""
        from certirl import plots

        return plots.solution(self, **settings)


def build(
    operators: Operators,
    bellman: Bellman,
    recovery: Recovery,
    *,
    choice: str,
    certificate: Certificate | None = None,
    refutation: Refutation | None = None,
    drawn: Sequence[int] | None = None,
) -> Solution:
    """Gather what the steps found into one record; a certificate that holds makes it certified.

    Args:
        operators: of Algorithm 1.
        bellman: the criterion.
        recovery: of Algorithm 2.
        choice: how basis and columns came about.
        certificate: the proof, or the attempt.
        refutation: the proof that there is none, or the attempt; without it an estimated conflict settles nothing.
        drawn: transitions of each action used in all, where a proof was asked for.
    """
    several = operators.basis.dimension > 1
    status, reason = weakest(findings_of(recovery, certificate, refutation, asked=drawn is not None, several=several))
    found = np.zeros(operators.basis.size) if recovery.reward is None else recovery.reward.coefficients
    return Solution(
        status=status,
        reason=reason,
        reward=recovery.reward,
        margin=recovery.margin,
        worst_state=recovery.worst_state,
        worst_action=recovery.worst_action,
        samples=int(min(operators.counts if drawn is None else drawn)),
        most_samples=int(max(operators.counts if drawn is None else drawn)),
        discount=bellman.discount,
        expert=bellman.expert,
        n_actions=operators.n_actions,
        basis=operators.basis,
        columns=operators.columns,
        form=operators.form,
        objective=recovery.objective,
        choice=choice,
        curves=bellman.margins(found),
        error_forms=bellman.error_forms(found),
        states=recovery.states,
        actions=recovery.actions,
        weights=recovery.weights,
        slack=recovery.slack,
        rounds=recovery.rounds,
        condition=bellman.condition,
        spectral_radius=bellman.spectral_radius,
        gram_condition=operators.condition,
        cover=recovery.cover,
        witness=recovery.witness,
        certificate=certificate,
        refutation=None if refutation is None else str(refutation),
    )


def headline(record: Any, usual: str) -> str:
    """The first line of a solution: what was proved of its absence, or the usual; what a file claims as such.

    Args:
        record: the solution.
        usual: for its status.
    """
    if record.status == "infeasible" and record.refutation is not None:
        proved = record.refutation.splitlines()[0] + "."
        return proved if record.file is None else unverified(proved, record.file, NO_SUMS)
    return usual if record.verified or record.status != "certified" else unverified(usual, record.file)


def unpacked(stored: Stored, file: str) -> Solution:
    """What `Solution.save` wrote, every field within its range; refused where it contradicts itself."""
    basis, columns = from_spec(stored.field("basis")), stored.count("columns", least=1)
    reward = Reward(basis, stored.array("reward", (basis.size,))) if "reward" in stored.arrays else None
    A, own = stored.count("n_actions", least=2), basis.resized(columns)
    states = as_states(stored.array("states", (None, basis.dimension)), basis.domain)
    certificate = None
    if "certificate" in stored:
        if reward is None:
            raise ValueError("a certificate needs the reward that it is about, and reward is missing")
        certificate = Certificate.unpacked(stored.part("certificate"), reward, file)
    texts: dict[str, Any] = {name: stored.text(name) for name in ("form", "objective", "choice")}
    names = ("condition", "spectral_radius", "gram_condition")
    numbers: dict[str, Any] = {name: stored.number(name, infinite=True, undefined=True) for name in names}
    found = Solution(
        status=stored.text("status", HEADLINES),
        reason=stored.text("reason"),
        reward=reward,
        margin=stored.number("margin", undefined=reward is None),
        worst_state=None if "worst_state" not in stored.arrays else unpacked_state(stored, basis),
        worst_action=stored.maybe("count", "worst_action", most=A - 1),
        samples=stored.count("samples"),
        most_samples=stored.count("most_samples", least=stored.count("samples")),
        discount=stored.number("discount", least=0, most=1, strict=True),
        expert=stored.count("expert", most=A - 1),
        n_actions=A,
        basis=basis,
        columns=columns,
        **texts,
        curves=stored.array("curves", (A - 1, columns)),
        error_forms=stored.array("error_forms", (A - 1, columns, columns)),
        states=states,
        actions=as_actions(stored.array("actions", (len(states),), kinds="iu"), n_actions=A),
        weights=stored.array("weights", (len(states),)),
        slack=stored.array("slack", (len(states),)),
        rounds=stored.count("rounds"),
        **numbers,
        cover=stored.maybe("number", "cover", least=0),
        witness=_unpacked_witness(stored, basis, A),
        certificate=certificate,
        refutation=stored.maybe("text", "refutation"),
        file=file,
        verified=False,
    )
    check_statuses(found)
    if certificate is not None:
        check_about(found, certificate.surrogate, own)
    return found


def check_statuses(found: Any) -> None:
    """Refuse a status that its certificate does not bear out."""
    holds = found.certificate is not None and found.certificate.holds
    if holds != (found.status == "certified"):
        bound = "no certificate that holds" if found.status == "certified" else "a certificate that holds"
        raise ValueError(f"the status is {found.status!r}, with {bound}")
    if found.worst_action == found.expert:
        raise ValueError(f"worst_action must be another action than the expert's, got {found.worst_action}")
    if (found.reward is None) != (found.worst_action is None) or (found.reward is None) != (found.worst_state is None):
        raise ValueError("a reward and the place where its margin is least must come together")


def check_about(found: Any, surrogate: Surrogate, columns: Basis) -> None:
    """Refuse a certificate that is about another problem than its solution."""
    for name, own, told in (
        ("discount", found.discount, surrogate.discount),
        ("expert", found.expert, surrogate.expert),
        ("number of actions", found.n_actions, len(surrogate.Z)),
        (
            "columns",
            f"{columns} on {describe(columns.domain)}",
            f"{surrogate.columns} on {describe(surrogate.columns.domain)}",
        ),
    ):
        if own != told:
            raise ValueError(f"the solution has the {name} {own}, its certificate {told}")


def _unpacked_witness(stored: Stored, basis: Basis, n_actions: int) -> Witness | None:
    if "witness_residual" not in stored:
        return None
    states = as_states(stored.array("witness_states", (None, basis.dimension)), basis.domain)
    actions = as_actions(stored.array("witness_actions", (len(states),), kinds="iu"), n_actions=n_actions)
    weights = stored.array("witness_weights", (len(states),))
    return Witness(states, actions, weights, stored.number("witness_residual", least=0))
