"""Features: functions of the state that a person names, in which a reward is a sum that can be read and transferred.

    R(s) = Σ θ_i f_i(s), 0 at terminal states

The built-in feature "terminal" is 1 at terminal states and 0 elsewhere. As R is 0 at terminal states, and a constant
changes no policy, it enters R as ``terminal − 1``: a positive weight is what every step before termination costs. A
feature of two arguments, states and an action, makes a reward of states and actions, ``R(s, a)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from certirl.functions.formulas import Expansion, Formula, Named, Term
from certirl.functions.functions import Actions, Functions, of_actions
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Box, as_rows
from certirl.ground.doors import as_text, shown, takes
from certirl.ground.records import internal

TERMINAL = "terminal"
MOST = 50  # features of a reward
TRIALS = 32  # states at which functions that are given back to a file are compared with those that were saved
SAME = 1e-6  # of the largest value: the largest difference that counts as none

Feature = Callable[..., Any] | str


def check_features(features: Any) -> None:
    """Refuse, with a sentence, what is no mapping of names to functions of states."""
    example = 'features={"terminal": "terminal", "speed²": lambda states: states[:, 1] ** 2}'
    if not isinstance(features, Mapping) or not features:
        raise TypeError(f"features must be functions of states by name, say {example}, got {shown(features)}")
    if len(features) > MOST:
        raise ValueError(f"features must be at most {MOST} functions, got {len(features)}")
    for name, function in features.items():
        as_text(name, "the name of a feature")
        if isinstance(function, str):
            if function != TERMINAL:
                raise ValueError(f"the only built-in feature is {TERMINAL!r}, got {shown(function)} for {name!r}")
        elif (
            not callable(function) or isinstance(function, type) or not (takes(function, None) or of_actions(function))
        ):
            of = "states [n, d], or of states and an action"
            raise TypeError(f"the feature {name!r} must be a function of {of}, got {shown(function)}")
    if sum(function == TERMINAL for function in features.values() if isinstance(function, str)) > 1:
        raise ValueError(f"{TERMINAL!r} must be one feature alone, got it under several names")


def check_no_terminal(features: Any) -> None:
    """Refuse the feature "terminal" where no state is terminal."""
    for name, function in features.items():
        if isinstance(function, str):
            raise ValueError(f"no state of this source is terminal: leave the feature {name!r} out")


def _for_action(function: Any, action: int) -> Callable[[Array], Any]:
    """A feature of the action as a function of states, for one action."""
    return lambda states: function(states, action)


@archive.record
@dataclass(frozen=True, eq=False)
class Features(Functions):
    """Named functions f_i of the state, as the functions of a `Reward`.

    Attributes:
        names: of the functions.
        functions: of states ``[n, d]`` to numbers ``[n]``, or of states and an action, or "terminal"; None where a file
            did not keep it.
        acting: which of them depend on the action.
        box: the domain.
        trials: the values at some states ``[m, p]``, for action 1 where they depend on it, by which functions that are
            given back are recognised.

    Example:
        >>> room = certirl.problems.comfort()
        >>> log = certirl.steps.sample(room.dynamics, basis=certirl.Legendre(5), samples=200, rng=0)
        >>> method = certirl.FeatureForm({"s²": lambda states: states[:, 0] ** 2})
        >>> features = certirl.solve(log, discount=0.9, expert=room.expert, method=method).reward.basis
        >>> features.names, features.size
        (('s²',), 1)
    """

    names: tuple[str, ...]
    functions: tuple[Callable[..., Any] | str | None, ...]
    acting: tuple[bool, ...]
    box: Box
    trials: Annotated[Array, Shape("m p")] = field(repr=False)

    @internal
    def as_read(self, file: str) -> Features:
        """Refuse numbers of names, functions and values that differ."""
        if not len(self.names) == len(self.functions) == len(self.acting) == self.trials.shape[1]:
            raise ValueError("features must have as many functions as names")
        return self

    def __str__(self) -> str:
        return ", ".join(self.names)

    @property
    def size(self) -> int:
        """The number of features."""
        return len(self.names)

    @property
    def domain(self) -> Box:
        """The box of states."""
        return self.box

    def values(self, states: ArrayLike, action: Actions = None) -> Array:
        """f_i(s), or f_i(s, a), at states that are not terminal ``[n, p]``; of one action or one for each state.

        Example:
            >>> features.values([-1.0, 0.5])
            array([[1.  ],
                   [0.25]])
        """
        rows = as_rows(states, self.dimension)
        return np.stack([self._value(index, rows, action) for index in range(self.size)], axis=1)

    def combined(self, states: ArrayLike, coefficients: Array, action: Actions = None) -> Array:
        """Σ θ_i f_i at states that are not terminal ``[n]``; functions of weight 0 are not called.

        Example:
            >>> features.combined([-1.0, 0.5], np.array([-2.0]))
            array([-2. , -0.5])
        """
        rows = as_rows(states, self.dimension)
        total = np.zeros(len(rows))
        for index in np.flatnonzero(coefficients):
            total += coefficients[index] * self._value(int(index), rows, action)
        return total

    def _terms(self, coefficients: Array) -> tuple[Term, ...]:
        """Σ θ_i f_i for writers: features that are rewards as these, other functions by name."""
        terms = list[Term]()
        for index in np.flatnonzero(coefficients).tolist():
            function, weight = self.functions[index], float(coefficients[index])
            if isinstance(function, str):
                terms.append(Expansion((), np.array([-weight]), np.zeros((1, 0), dtype=np.intp)))
                continue
            inner = getattr(function, "_formula", None)
            if isinstance(inner, Formula) and not inner.zero_at_terminal and len(inner.cases) == 1:
                terms += [term.scaled(weight) for term in inner.terms]
            else:
                terms.append(Named(self.names[index], weight, self.acting[index]))
        return tuple(terms)

    def _value(self, index: int, rows: Array, action: Actions) -> Array:
        from certirl.functions.reward import values_of

        function, name = self.functions[index], self.names[index]
        if function is None:
            raise ValueError(
                f"a file keeps no functions, and the reward needs the feature {name!r}: pass it again, solution = "
                f"solution.with_features({{{name!r}: …}})"
            )
        if isinstance(function, str):
            return np.full(len(rows), -1.0)
        if not self.acting[index]:
            return values_of(function, rows, name=f"the feature {name!r}")
        if action is None:
            raise ValueError(f"the feature {name!r} depends on the action: call reward(states, action)")
        return values_of(function, rows, action, name=f"the feature {name!r}")

    def _acts(self, coefficients: Array) -> bool:
        return any(acts and weight for acts, weight in zip(self.acting, coefficients, strict=True))

    def _combined(self, states: Array, coefficients: Array, action: Actions) -> Array:
        return self.combined(states, coefficients, action)

    def _for_action(self, action: int) -> Features:
        pairs = zip(self.functions, self.acting, strict=True)
        functions = tuple(_for_action(function, action) if acts else function for function, acts in pairs)
        bound = replace(self, functions=functions, acting=(False,) * self.size)
        return replace(bound, trials=bound.values(_trial_states(self.box)))

    def _with_functions(self, features: Mapping[str, Feature]) -> Features:
        """The same with functions that a file did not keep; each must have the values that were saved."""
        check_features(features)
        unknown = [name for name in features if name not in self.names]
        if unknown:
            raise ValueError(f"there is no feature {unknown[0]!r}; there are {', '.join(map(repr, self.names))}")
        pairs = zip(self.names, self.functions, strict=True)
        complete = replace(self, functions=tuple(features.get(name, function) for name, function in pairs))
        states = _trial_states(self.box)
        for name in features:
            index = self.names.index(name)
            if callable(features[name]) and of_actions(features[name]) != self.acting[index]:
                of = "states and an action" if self.acting[index] else "states"
                raise ValueError(f"the feature {name!r} must be a function of {of}, got {shown(features[name])}")
            values, saved = complete._value(index, states, 1), self.trials[:, index]
            error = np.abs(values - saved)
            if error.max() > SAME * max(float(np.abs(saved).max()), 1e-300):
                row = int(error.argmax())
                place = ", ".join(f"{x:.6g}" for x in states[row])
                raise ValueError(
                    f"the feature {name!r} is {values[row]:.6g} at s = {place}, and the saved one was {saved[row]:.6g} "
                    "there: pass the function that the reward was learned with"
                )
        return complete

    def _in_words(self, coefficients: Array) -> str:
        """The sum as it is read: ``−1.02 s² + 0.204 s``."""
        terms = []
        for index in np.flatnonzero(coefficients):
            name = f"({self.names[index]} − 1)" if self.functions[index] == TERMINAL else self.names[index]
            sign = "−" if coefficients[index] < 0 else "+"
            terms.append(f"{sign} {abs(coefficients[index]):.3g} {name}")
        text = " ".join(terms).removeprefix("+ ")
        return f"−{text.removeprefix('− ')}" if text.startswith("− ") else text or "0"


def _trial_states(domain: Box) -> Array:
    return domain.uniform(TRIALS, np.random.default_rng(0))


def features_of(features: Mapping[str, Feature], domain: Box) -> Features:
    """These functions as `Features`: evaluated at a few states of the domain, which refuses those that are none."""
    from certirl.functions.reward import values_alone

    functions, states = tuple(features.values()), _trial_states(domain)
    for name, function in features.items():
        if not isinstance(function, str):
            of_states = _for_action(function, 1) if of_actions(function) else function
            values_alone(of_states, states, name=f"the feature {name!r}")
    acting = tuple(callable(function) and of_actions(function) for function in functions)
    empty = Features(tuple(features), functions, acting, domain, np.zeros((0, len(functions))))
    return replace(empty, trials=empty.values(states, 1))
