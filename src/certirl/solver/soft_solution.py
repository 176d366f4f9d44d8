"""The answer of `solve` for a soft expert."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from math import nan
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.fit.logit import FitTest, Logit, softmax
from certirl.functions.bases import Basis
from certirl.functions.functions import Actions, by_action
from certirl.functions.reward import Reward, values_of
from certirl.ground import archive
from certirl.ground.archive import UNSAVED, Shape
from certirl.ground.domain import Array, Box, as_actions, as_rows, as_states, like_input
from certirl.ground.doors import as_count, as_probability
from certirl.ground.records import Record, internal
from certirl.ground.status import Finding
from certirl.proof.soft import Band
from certirl.solver.answer import Answer


@archive.record
@dataclass(frozen=True)
class Likelihood(Record):
    """The mean log-likelihood of a decision under three models.

    Attributes:
        decisions: how many.
        constant: with the same probabilities at every state.
        free: with log-odds that are any functions in their basis.
        reward: with the policy of the rewards found.

    Example:
        >>> from certirl.solver.soft_solution import Likelihood
        >>> Likelihood(1000, constant=-1.0, free=-0.8, reward=-0.85).share
        0.75
    """

    _derived: ClassVar[tuple[str, ...]] = ("share",)
    decisions: int
    constant: float
    free: float
    reward: float

    @property
    def share(self) -> float:
        """How much of what the state says of the decisions the rewards explain; NaN where it says nothing."""
        known = self.free - self.constant
        return round((self.reward - self.constant) / known, 12) if known > 0 else nan


@archive.record
@dataclass(frozen=True, eq=False)
class SoftSolution(Answer):
    """The answer of `solve` for a `SoftExpert`: rewards of all actions in units of the noise, and how sure they are.

    Attributes:
        findings: the facts that decide `status` and `reason`.
        reward: R(s, a), callable on states and an action, or R(s).
        value: V, the expert's value, callable on states.
        odds: the log-odds of the decisions.
        columns: the functions of the state that describe (P_aV)(s).
        effects: (P̂_aV)(s) in the columns ``[A, k]``.
        covariances: of the coefficients of the reward, of each action ``[A, p, p]``, or of all ``[1, p, p]``.
        discount: γ.
        reference: the action whose reward is given; None for rewards of the state and of features.
        counts: transitions of each action ``[A]``.
        likelihood: of the decisions under the rewards and under other models.
        calibration: predicted probabilities of held-out decisions and how often these were taken, in groups of similar
            ones: means, shares and numbers ``[3, g]``.
        tests: of the log-odds and of the rewards.
        assumed: what the rewards rest on, in sentences.
        proof: bounds of all rewards with probability 1 − δ, or the attempt; None if none was asked for.
        seed: of the draws, if it was a number.
        action_names, coordinate_names: if the data have them.
        log_notes: what was done to the logs while they were read, in sentences.
        about: the call and what it was about, in words by name: data and code with their hashes, and versions.
        file: the file that the solution was read from; None if it was found here.

    Example:
        >>> walk = certirl.problems.soft_walk()
        >>> log = walk.log(episodes=100, steps=50, rng=0)
        >>> solution = certirl.solve(log, discount=0.9, expert=certirl.SoftExpert(reference=0))
        >>> solution.status, solution.reward([0.1, 0.2], 1).shape
        ('estimated', (2,))
    """

    _derived: ClassVar[tuple[str, ...]] = ("status", "reason", "next", "domain", "n_actions")
    findings: tuple[Finding, ...]
    reward: Reward
    value: Reward
    odds: Logit
    columns: Basis
    effects: Annotated[Array, Shape("A columns.size")]
    covariances: Annotated[Array, Shape("b p p")]
    discount: float
    reference: int | None
    counts: tuple[int, ...]
    likelihood: Likelihood
    calibration: Annotated[Array, Shape("3 g")]
    tests: tuple[FitTest, ...]
    assumed: tuple[str, ...]
    proof: Band | None = None
    seed: int | None = None
    action_names: tuple[str, ...] = ()
    coordinate_names: tuple[str, ...] = ()
    log_notes: tuple[str, ...] = ()
    about: dict[str, str] = field(default_factory=dict)
    file: str | None = field(default=None, metadata=UNSAVED)

    @property
    def domain(self) -> Box:
        """The box of states."""
        return self.odds.basis.domain

    @property
    def n_actions(self) -> int:
        """A."""
        return self.odds.n_actions

    def standard_error(self, states: ArrayLike, action: Actions = None) -> Any:
        """The standard error of R(s, a), to first order in the errors of log-odds and regressions.

        Args:
            states: one, or ``[n, d]``.
            action: one, or one for each state ``[n]``; left out for a reward of the state alone.

        Returns:
            A float for one state, ``[n]`` for many. It holds for many data, and says nothing of functions that the
            bases lack.

        Example:
            >>> bool(solution.standard_error(0.0, 1) > 0), solution.standard_error([0.0, 0.5], 0)
            (True, array([0., 0.]))
        """
        rows, reward = as_states(states, self.domain), self.reward
        if action is None and (reward.of_actions or len(self.covariances) > 1):
            raise ValueError("the reward depends on the action: call standard_error(states, action)")
        asked = np.zeros(1) if action is None else np.atleast_1d(action)
        actions = np.broadcast_to(as_actions(asked, n_actions=self.n_actions), len(rows))

        def errors(near: Array, taken: int) -> Array:
            phi = reward.basis._for_action(taken).values(near)
            covariance = self.covariances[taken if len(self.covariances) > 1 else 0]
            return np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", phi, covariance, phi), 0.0))

        return like_input(by_action(rows, actions, errors), states, len(self.domain))

    def band(self, states: ArrayLike, action: int) -> tuple[Array, Array]:
        """Bounds of R(s, a) that hold at all states and for all actions with probability 1 − δ: ``(low, high)``.

        Args:
            states: ``[n, d]``.
            action: whose reward is meant.

        Example:
            >>> clipped = certirl.problems.soft_walk(clipped=True)
            >>> log, known = clipped.log(episodes=800, steps=25, rng=0), certirl.dynamics.AffineGaussian(std=0.25)
            >>> asked = {"basis": certirl.Legendre(4), "delta": 0.05, "dynamics": known}
            >>> bounded = certirl.solve(log, discount=0.9, expert=certirl.SoftExpert(reference=0), **asked)
            >>> low, high = bounded.band([0.0, 0.3], 1)
            >>> bounded.status, bool((low < bounded.reward([0.0, 0.3], 1)).all())
            ('bounded', True)
        """
        if self.proof is None:
            raise ValueError("no band was asked for: pass delta to solve, with what is known of the dynamics")
        return self.proof(states, as_count(action, "action", least=0, most=self.n_actions - 1))

    def action_values(self, states: ArrayLike) -> Array:
        """The estimated (P_aV)(s) + R(s, a)/γ of each action ``[A, n]``: Q_a/γ.

        Example:
            >>> solution.action_values([-0.5, 0.0, 0.5]).shape
            (3, 3)
        """
        rows = as_states(states, self.domain)
        paid = np.stack([values_of(self.reward, rows, action) for action in range(self.n_actions)])
        return np.asarray(self.effects @ self.columns.values(rows).T + paid / self.discount)

    def probabilities(self, states: ArrayLike) -> Array:
        """How likely the rewards make each action at each state ``[n, A]``.

        Example:
            >>> solution.probabilities([0.0, 0.5]).sum(axis=1).round(6)
            array([1., 1.])
        """
        return softmax(self.discount * self.action_values(states).T)[0]

    def greedy(self, states: ArrayLike) -> NDArray[np.intp]:
        """The likeliest action at each state ``[n]``; states beyond the box are moved to its edge.

        Example:
            >>> solution.greedy([-0.9, 0.9]).tolist()
            [2, 1]
        """
        rows = self.domain.moved_into(as_rows(states, len(self.domain)), self.odds.basis.periodic_axes)
        return self.action_values(rows).argmax(axis=0)

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        plane: tuple[int | str, int | str] = (0, 1),
        ax: Any = None,
    ) -> Any:
        """Draw the rewards with their errors or bands, and the policy they make, and write it to ``path``.

        Args:
            path: where to write the picture, if anywhere.
            plane: the two coordinates of the maps, by number or name.
            ax: where to draw: several axes, or a figure or a part of one.

        Example:
            >>> axes = solution.plot("rewards.png")
        """
        from certirl import plots

        return plots.solution(self, path=path, plane=plane, ax=ax)

    @property
    def median_error(self) -> float:
        """The median standard error, over the box and over the actions whose reward is not given."""
        states = self.domain.uniform(1_000, np.random.default_rng(0))
        actions = [action for action in range(self.n_actions) if action != self.reference]
        return float(np.median([self.standard_error(states, action) for action in actions]))

    @internal
    def as_read(self, file: str) -> SoftSolution:
        """Refuse a solution that contradicts itself."""
        as_probability(self.discount, "discount")
        A, (rows, size, _) = self.n_actions, self.covariances.shape
        if {len(self.effects), len(self.counts)} != {A} or rows not in (1, A) or size != self.reward.basis.size:
            raise ValueError(f"a soft expert of {A} actions needs effects, counts and covariances of as many")
        if any(function.domain != self.domain for function in (self.reward, self.value, self.columns)):
            raise ValueError("reward, value and columns must be functions of the same states as the log-odds")
        if self.reference is not None:
            as_count(self.reference, "reference", least=0, most=A - 1)
        if (self.proof is not None and self.proof.holds) != (self.status == "bounded"):
            raise ValueError(f"the status is {self.status!r}, and the band says otherwise")
        return replace(self, file=file)

    def __repr__(self) -> str:
        rests = f"{self.likelihood.decisions:,} decisions, standard error {self.median_error:.2g} in the median"
        return f"<SoftSolution: {self.status}, {self.n_actions} actions, {rests}>"

    def __str__(self) -> str:
        from certirl.solver.words import SoftWords

        return str(SoftWords(self))
