"""Rewards for an expert who always takes one action: operators from moments, then the program of `recover`.

One component and several are solved in the same way: rewards of components add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from certirl.data.moments import Moments, accumulate
from certirl.data.source import Pool
from certirl.data.transitions import Piece
from certirl.fit.bellman import Bellman, bellman
from certirl.fit.choose import Choice
from certirl.fit.estimate import Operators, estimate
from certirl.fit.recover import Recovery, recover
from certirl.functions.bases import Basis
from certirl.proof.case import Case
from certirl.solver.search import Candidate

TRIED = ("least-variance", "l1")  # objectives of a proof, if none is asked for: the forecast decides between them


class Fitted(NamedTuple):
    """The operators and criteria of every component."""

    operators: tuple[Operators, ...]
    criteria: tuple[Bellman, ...]


def fitted(moments: Sequence[Moments], choice: Choice, *, discount: float, expert: int, form: str) -> Fitted:
    """Operators by least squares, or in the paper's mean form, and their Bellman criteria."""
    operators = []
    for index, sums in enumerate(moments):
        try:
            operators.append(estimate(sums, form=form))
        except ValueError as problem:
            if choice.components is None:
                raise
            raise ValueError(f"component {choice.components[index].name}: {problem}") from None
    criteria = tuple(bellman(own, discount=discount, expert=expert) for own in operators)
    return Fitted(tuple(operators), criteria)


class ProgramForm:
    """Learns rewards from training moments; see `search.Learner`.

    Args:
        case: what is to be proved.
        choice: the functions of rewards and of the state.
        objective: of the program; those in `TRIED` if None.
    """

    fitted: Fitted
    recovery: Recovery

    def __init__(self, case: Case, choice: Choice, objective: str | None) -> None:
        self.case, self._choice, self.fewest = case, choice, max(choice.columns) + 2
        self.classes: Sequence[Basis] = ()
        self._objectives = TRIED if objective is None else (objective,)
        self._moments: list[Moments] | None = None

    def moments(self) -> Sequence[Moments] | None:
        """Of all training data."""
        return self._moments

    def learn(self, training: Pool) -> Sequence[Candidate]:
        """Add the newest training data to the moments and solve the program for each objective."""
        newest = measured(training.newest(), self._choice, n_actions=self.case.policy.n_actions)
        before = self._moments
        self._moments = newest if before is None else [a + b for a, b in zip(before, newest, strict=True)]
        expert = self.case.used[0]
        self.fitted = fitted(
            self._moments, self._choice, discount=self.case.discount, expert=expert, form="least-squares"
        )
        candidates: list[Candidate] = []
        for objective in self._objectives:
            self.recovery = recover(self.fitted.criteria, components=self._choice.components, objective=objective)
            if self.recovery.status != "solved":  # for no objective
                candidates = []
                break
            candidates.append(Candidate(self.recovery.reward, self._moments, self.recovery))
        self.classes = self._choice.bases if self.recovery.status == "infeasible" else ()
        return candidates


def measured(stream: Iterable[Piece], choice: Choice, *, n_actions: int) -> list[Moments]:
    """The moments of every component, in one walk."""
    sums = accumulate(stream, choice.pairs, n_actions=n_actions, views=choice.views)
    return [own for (own,) in sums]
