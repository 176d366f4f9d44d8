"""Policies: one action, one action for every state, or actions with probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array, as_actions, as_n_actions
from certirl.ground.doors import alone, as_reals, by_door, lend, setting, shown, takes

ROUNDING = 1e-6  # how far the sum of probabilities may be from one


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy π: for every state the probabilities of the actions.

    Attributes:
        n_actions: A.
        rule: a function from states ``[n, d]`` to actions ``[n]`` or to probabilities ``[n, A]``.
        constant: the action it always takes; None if it depends on the state.
        assumption: what a statement about it rests on, in words; empty if the policy is known exactly.
        compare: a function of states and their probabilities, called with every answer: raises if they contradict
            what is known of the policy.
    """

    n_actions: int
    rule: Callable[[Array], Any]
    constant: int | None = None
    assumption: str = ""
    compare: Callable[[Array, Array], None] | None = None

    def __post_init__(self) -> None:
        as_n_actions(self.n_actions)

    def __call__(self, states: Array) -> NDArray[np.intp]:
        """The action at each state."""
        return self.actions(states)

    def actions(self, states: Array) -> NDArray[np.intp]:
        """The action at each state ``[n]``; the likeliest of several, the first on a tie."""
        answer = self._answer(states)
        return answer if answer.ndim == 1 else answer.argmax(axis=1)

    def probabilities(self, states: Array) -> Array:
        """The probability of each action at each state ``[n, A]``."""
        answer = self._answer(states)
        probabilities = np.eye(self.n_actions)[answer] if answer.ndim == 1 else answer
        if self.compare is not None:
            self.compare(np.asarray(states, dtype=float), probabilities)
        return probabilities

    def support(self, states: Array) -> NDArray[np.bool_]:
        """Which actions have a positive probability at each state ``[n, A]``: all must be best."""
        return self.probabilities(states) > 0

    def _answer(self, states: Array) -> NDArray[Any]:
        """Actions ``[n]`` or probabilities ``[n, A]``, checked."""
        states = np.asarray(states, dtype=float)
        if self.constant is not None:
            return np.full(len(states), self.constant, dtype=np.intp)
        with alone(self.rule):
            answer = as_reals(self.rule(lend(states)), "the expert's answer", truth=True)
        if answer.dtype == bool:  # a condition on the state chooses between two actions
            answer = answer.astype(np.intp)
        if answer.shape == (len(states), self.n_actions) and self.n_actions > 1:
            return _as_probabilities(answer)
        if answer.shape not in {(len(states),), (len(states), 1)}:
            raise ValueError(
                f"the expert is asked about all states at once: for {len(states)} states it must return "
                f"{len(states)} actions, or probabilities of shape [{len(states)}, {self.n_actions}], "
                f"got shape {list(answer.shape)}"
            )
        try:
            return as_actions(answer, n_actions=self.n_actions)
        except ValueError as problem:
            raise ValueError(f"the expert's answer is no choice of actions: {problem}") from None


def no_action(expert: Any, n_actions: int, *, of_states: bool = True) -> str:
    """The sentence about an expert that is no action, nor a policy ``of_states``."""
    other = by_door(", or a function of states", ", or a file of demonstrations") if of_states else ""
    return f"{setting('expert')} must be one of the actions 0 … {n_actions - 1}{other}, got {shown(expert)}"


def as_policy(expert: Any, n_actions: int) -> Policy:
    """A policy from an action, a function of states, or a model that predicts actions.

    Args:
        expert: a whole number; a function of states ``[n, d]``; or an object with ``predict(states)``, as reinforcement
            learning libraries and classifiers have it, which may return a tuple with the actions first, and is called
            with ``deterministic=True`` if it has that argument.
        n_actions: A.
    """
    if isinstance(expert, Policy):
        if expert.n_actions != n_actions:
            raise ValueError(f"the expert chooses among {expert.n_actions} actions, the data have {n_actions}")
        return expert
    if isinstance(expert, int | np.integer) and not isinstance(expert, bool):
        if not 0 <= expert < n_actions:
            raise ValueError(no_action(expert, n_actions))
        return Policy(n_actions, partial(_same_action, int(expert)), constant=int(expert))
    assumption = str(getattr(expert, "assumption", ""))
    if isinstance(expert, type):
        raise TypeError(f"expert must be an object, got the class {expert.__name__}: write {expert.__name__}(…)")
    if callable(expert):
        if not takes(expert, None):
            raise TypeError(f"expert must be a function of states [n, d] alone, got {shown(expert)}")
        return Policy(n_actions, expert, assumption=assumption)
    if hasattr(expert, "predict"):
        if not callable(expert.predict) or not takes(expert.predict, None):
            raise TypeError("the expert's predict must be a function of states [n, d]")
        settings = {"deterministic": True} if _has_deterministic(expert.predict) else {}
        return Policy(n_actions, lambda states: _first(expert.predict(states, **settings)), assumption=assumption)
    raise TypeError(
        f"expert must be an action (a whole number) or a function of states [n, d] that returns actions [n], "
        f"got {shown(expert)}"
    )


def _has_deterministic(predict: Any) -> bool:
    """Whether the exploration of a learner can be switched off."""
    try:
        return "deterministic" in signature(predict).parameters
    except (TypeError, ValueError):  # compiled functions have no signature
        return False


def _same_action(action: int, states: Array) -> NDArray[np.intp]:
    """One action at every state ``[n]``."""
    return np.full(len(states), action)


def _first(answer: Any) -> Any:
    return answer[0] if isinstance(answer, tuple) else answer


def _as_probabilities(answer: NDArray[Any]) -> Array:
    values = np.asarray(answer, dtype=float)
    wrong = ~np.isfinite(values).all(axis=1) | (values < 0).any(axis=1) | (abs(values.sum(axis=1) - 1) > ROUNDING)
    if wrong.any():
        row = int(wrong.argmax())
        listed = ", ".join(f"{value:.6g}" for value in values[row])
        raise ValueError(f"the expert's probabilities must be non-negative and add up to 1, got {listed} in row {row}")
    return values / values.sum(axis=1, keepdims=True)  # proofs assume a sum of exactly 1
