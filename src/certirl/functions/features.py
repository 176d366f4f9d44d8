"""Features: functions of the state that a person names, in which a reward is a sum that can be read and transferred.

    R(s) = Σ θ_i f_i(s), 0 at terminal states

The built-in feature "terminal" is 1 at terminal states and 0 elsewhere. As R is 0 at terminal states, and a constant
changes no policy, it enters R as ``terminal − 1``: a positive weight is what every step before termination costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Domain, as_rows, freeze, uniform_states
from certirl.ground.doors import shown, takes

if TYPE_CHECKING:
    from certirl.functions.components import Component

TERMINAL = "terminal"
MOST = 50  # features of a reward
TRIALS = 32  # states at which functions that are given back to a file are compared with those that were saved
SAME = 1e-6  # of the largest value: the largest difference that counts as none

Feature = Callable[[Array], Any] | str


def check_features(features: Any) -> None:
    """Refuse, with a sentence, what is no mapping of names to functions of states."""
    example = 'features={"terminal": "terminal", "speed²": lambda states: states[:, 1] ** 2}'
    if not isinstance(features, Mapping) or not features:
        raise TypeError(f"features must be functions of states by name, say {example}, got {shown(features)}")
    if len(features) > MOST:
        raise ValueError(f"features must be at most {MOST} functions, got {len(features)}")
    for name, function in features.items():
        if not isinstance(name, str) or not name.strip():
            raise TypeError(f"the name of a feature must be a text that is not empty, got {shown(name)}")
        if isinstance(function, str):
            if function != TERMINAL:
                raise ValueError(f"the only built-in feature is {TERMINAL!r}, got {shown(function)} for {name!r}")
        elif not callable(function) or isinstance(function, type) or not takes(function, None):
            raise TypeError(f"the feature {name!r} must be a function of states [n, d], got {shown(function)}")
    if sum(function == TERMINAL for function in features.values() if isinstance(function, str)) > 1:
        raise ValueError(f"{TERMINAL!r} must be one feature alone, got it under several names")


def check_no_terminal(features: Any) -> None:
    """Refuse the feature "terminal" where no state is terminal."""
    for name, function in features.items():
        if isinstance(function, str):
            raise ValueError(f"no state of this source is terminal: leave the feature {name!r} out")


@archive.record
@dataclass(frozen=True, eq=False)
class Features:
    """Named functions f_i of the state, as the functions of a `Reward`.

    Attributes:
        names: of the functions.
        functions: of states ``[n, d]`` to numbers ``[n]``, or "terminal"; None where a file did not keep it.
        box: the domain.
        trials: the values at some states ``[m, p]``, by which functions that are given back are recognised.
    """

    names: tuple[str, ...]
    functions: tuple[Callable[[Array], Any] | str | None, ...]
    box: Domain
    trials: Annotated[Array, Shape("m size")]

    def __post_init__(self) -> None:
        freeze(self)

    @classmethod
    def of(cls, features: Mapping[str, Feature], domain: Domain) -> Features:
        """Evaluate the functions at a few states of the domain, which refuses those that are none."""
        functions = tuple(features.values())
        empty = cls(tuple(features), functions, domain, np.zeros((0, len(functions))))
        return replace(empty, trials=empty.values(_trial_states(domain)))

    def as_read(self, file: str) -> Features:
        """Refuse numbers of names, functions and values that differ."""
        if not len(self.names) == len(self.functions) == self.trials.shape[1]:
            raise ValueError("features must have as many functions as names")
        return self

    def __str__(self) -> str:
        return ", ".join(self.names)

    @property
    def size(self) -> int:
        """The number of features."""
        return len(self.names)

    @property
    def dimension(self) -> int:
        """The number of coordinates of a state, d."""
        return len(self.box)

    @property
    def domain(self) -> Domain:
        """The box of states."""
        return self.box

    @property
    def components(self) -> tuple[Component, ...]:
        """The one component of a state that is not divided."""
        from certirl.functions.components import Component

        return (Component("state", tuple(range(self.dimension)), self),)  # type: ignore[arg-type]

    def on(self, domain: Domain) -> Features:
        """The same functions: they have their box already."""
        return self

    def values(self, states: ArrayLike) -> Array:
        """f_i(s) at states that are not terminal ``[n, p]``."""
        return np.stack([self._value(index, as_rows(states, self.dimension)) for index in range(self.size)], axis=1)

    def combined(self, states: ArrayLike, coefficients: Array) -> Array:
        """Σ θ_i f_i(s) at states that are not terminal ``[n]``; functions of weight 0 are not called."""
        rows = as_rows(states, self.dimension)
        total = np.zeros(len(rows))
        for index in np.flatnonzero(coefficients):
            total += coefficients[index] * self._value(int(index), rows)
        return total

    def _value(self, index: int, rows: Array) -> Array:
        from certirl.functions.reward import values_of

        function, name = self.functions[index], self.names[index]
        if function is None:
            raise ValueError(
                f"a file keeps no functions, and the reward needs the feature {name!r}: pass it again, solution = "
                f"solution.with_features({{{name!r}: …}})"
            )
        if isinstance(function, str):
            return np.full(len(rows), -1.0)
        return values_of(function, rows, name=f"the feature {name!r}")

    def value_range(self, coefficients: Array) -> None:
        """None: nothing is proved of functions that can only be called."""

    def with_functions(self, features: Mapping[str, Feature]) -> Features:
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
            values, saved = complete._value(index, states), self.trials[:, index]
            error = np.abs(values - saved)
            if error.max() > SAME * max(float(np.abs(saved).max()), 1e-300):
                row = int(error.argmax())
                place = ", ".join(f"{x:.6g}" for x in states[row])
                raise ValueError(
                    f"the feature {name!r} is {values[row]:.6g} at s = {place}, and the saved one was {saved[row]:.6g} "
                    "there: pass the function that the reward was learned with"
                )
        return complete

    def formula(self, coefficients: Array) -> str:
        """The sum as it is read: ``−1.02 s² + 0.204 s``."""
        terms = []
        for index in np.flatnonzero(coefficients):
            name = f"({self.names[index]} − 1)" if self.functions[index] == TERMINAL else self.names[index]
            sign = "−" if coefficients[index] < 0 else "+"
            terms.append(f"{sign} {abs(coefficients[index]):.3g} {name}")
        text = " ".join(terms).removeprefix("+ ")
        return f"−{text.removeprefix('− ')}" if text.startswith("− ") else text or "0"


def _trial_states(domain: Domain) -> Array:
    return uniform_states(domain, TRIALS, np.random.default_rng(0))
