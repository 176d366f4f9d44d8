"""The record a person reads: what was found, how sure it is, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from certirl import archive
from certirl.bases import Basis
from certirl.bellman import Bellman, rivals_of
from certirl.boxes import from_spec
from certirl.certify import Certificate
from certirl.domain import Array, as_states, describe, freeze
from certirl.estimate import Operators
from certirl.extrema import ranked
from certirl.recover import Recovery, Witness, undecided
from certirl.refute import Refutation
from certirl.reward import Reward

HEADLINES = {
    "certified": "Certified with probability {sure:g}: action {expert} is strictly optimal at every state.",
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
        sure = 1 - self.certificate.delta if self.certificate else 0.0
        words = {"expert": self.expert, "origin": origin, "reason": self.reason, "noise": noise, "sure": sure}
        if self.status == "infeasible" and self.refutation is not None:
            return self.refutation.splitlines()[0] + "."
        return HEADLINES[self.status].format(**words)

    def _lines(self) -> list[tuple[str, str]]:
        counts = f"{self.samples:,}" + (f" to {self.most_samples:,}" if self.most_samples > self.samples else "")
        data = f"{counts} transitions for each of" if self.samples else "exact operators of"
        where = "exact on the continuum" if self.cover is None else f"on a cover of radius {self.cover:.3g}"
        if self.slack.any():
            worst = ranked(self.slack, self.actions, self.states)[0]
            place = ", ".join(f"{x:.4g}" for x in self.states[worst])
            where += f", slack up to {self.slack[worst]:.3g} (action {self.actions[worst]} at s = {place})"
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
                f"{self.condition:.3g}, γρ(T) = {self.spectral_radius:.3g}, κ(Gram) = {self.gram_condition:.3g}",
            ),
        ]

    def _margin_line(self) -> tuple[str, str]:
        if self.witness is not None:
            return "witness", str(self.witness)
        if self.worst_state is None:
            return "margin", "none"
        place = ", ".join(f"{x:.4g}" for x in self.worst_state)
        error = ""
        if self.standard_error > 0:
            error = f"; standard error {self.standard_error:.2g}"
            if self.within_noise:
                error += ": more samples are needed"
        return "margin", f"{self.margin:.4g} at worst, at s = {place} against action {self.worst_action}{error}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to an npz file (suffix added if missing); `certirl.load` reads it back."""
        header = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in (*_ARRAYS, "reward", "basis", "worst_state", "witness", "certificate")
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
    drawn: int | None = None,
) -> Solution:
    """Gather what the steps found into one record; a certificate that holds makes it certified.

    Args:
        operators: of Algorithm 1.
        bellman: the criterion.
        recovery: of Algorithm 2.
        choice: how basis and columns came about.
        certificate: the proof, or the attempt.
        refutation: the proof that there is none, or the attempt; without it an estimated conflict settles nothing.
        drawn: transitions per action used in all, where a proof was asked for.
    """
    status, reason = recovery.status, recovery.reason
    if certificate is not None and certificate.holds and status == "solved":
        status = "certified"
    elif status == "infeasible" and drawn is not None:
        doubt = undecided(refutation, several=operators.basis.dimension > 1)
        status, reason = (status, reason) if doubt is None else ("undetermined", doubt)
    found = np.zeros(operators.basis.size) if recovery.reward is None else recovery.reward.coefficients
    return Solution(
        status=status,
        reason=str(reason),
        reward=recovery.reward,
        margin=recovery.margin,
        worst_state=recovery.worst_state,
        worst_action=recovery.worst_action,
        samples=int(operators.counts.min()) if drawn is None else drawn,
        most_samples=int(operators.counts.max()) if drawn is None else drawn,
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


def load(path: str | os.PathLike[str]) -> Solution:
    """Read a solution that `Solution.save` wrote."""
    kind, header, arrays = archive.read(path)
    if kind != "solution":
        raise ValueError(f"{path} holds a certirl {kind}, not a solution")
    try:
        basis = from_spec(header["basis"])
        reward = Reward(basis, arrays["reward"]) if "reward" in arrays else None
        witness = None
        if "witness_states" in arrays:
            parts = {name: arrays[f"witness_{name}"] for name in ("states", "actions", "weights")}
            witness = Witness(**parts, residual=header["witness_residual"])
        certificate = None
        if "certificate" in header:
            numbers = {name[12:]: value for name, value in arrays.items() if name.startswith("certificate_")}
            certificate = Certificate.unpacked(header["certificate"], numbers, reward)
        known = {field.name for field in fields(Solution)}
        given = {name: value for name, value in (header | arrays).items() if name in known}
        given |= {"basis": basis, "reward": reward, "witness": witness, "worst_state": arrays.get("worst_state")}
        given["certificate"] = certificate
        return Solution(**given)
    except (KeyError, TypeError) as problem:
        raise ValueError(f"{path} is damaged: a field is missing or wrong ({problem})") from None
