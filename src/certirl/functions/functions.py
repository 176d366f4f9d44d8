"""What all functions of states have in common, whether they are a basis, hats on a grid, components or features.

Features may depend on the action, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.ground.domain import Array, Box, Domain
from certirl.ground.doors import takes
from certirl.ground.records import Record

Actions = (
    int | NDArray[np.intp] | None
)  # one, one for each state ``[n]``, or None for functions that do not depend on it

if TYPE_CHECKING:
    from certirl.functions.components import Component
    from certirl.functions.formulas import Term


class Functions(Record):
    """Functions f_1 … f_k of states, of which rewards and values are sums ``Σ c_i f_i(s)``.

    Functions of your own are a frozen dataclass with ``size``, ``domain`` and ``values``. What the other methods return
    holds of all functions; a subclass that knows more overrides them, as `value_range` where it can prove one.

    Attributes:
        size: the number of functions, k.
        dimension: the number of coordinates of a state, d.
        domain: the box on which they are defined, one (low, high) for each coordinate.

    Example:
        >>> from dataclasses import dataclass
        >>> from certirl.functions.functions import Functions
        >>> @dataclass(frozen=True)
        ... class Powers(Functions):
        ...     size: int
        ...     domain = ((-1.0, 1.0),)
        ...
        ...     def values(self, states):
        ...         return np.reshape(states, (-1, 1)) ** np.arange(self.size)
        >>> certirl.Reward(Powers(3), [1.0, 0.0, -1.0])([0.0, 0.5])
        array([1.  , 0.75])
    """

    has_derivatives: ClassVar[bool] = False

    if TYPE_CHECKING:  # what every kind of functions states

        @property
        def size(self) -> int:
            """k."""

        @property
        def domain(self) -> Box:
            """The box."""

        def values(self, states: ArrayLike) -> Array:
            """f_i(s) for each state ``[n, k]``."""

    def combined(self, states: ArrayLike, coefficients: Array) -> Array:
        """Σ c_i f_i(s) for each state ``[n]``.

        Example:
            >>> certirl.Cells((3,)).combined([0.5], np.array([0.0, 2.0, 1.0]))
            array([1.5])
        """
        return np.asarray(self.values(states) @ coefficients)

    def _terms(self, coefficients: Array) -> tuple[Term, ...]:
        """Σ c_i f_i for writers of formulas."""
        from certirl.functions.formulas import Named

        return (Named(f"a sum of functions of {type(self).__name__}", 1.0),)

    @property
    def dimension(self) -> int:
        """The number of coordinates of a state, d."""
        return len(self.domain)

    def on(self, domain: Domain) -> Self:
        """The functions on a domain; those that have one must agree with it.

        Example:
            >>> certirl.Cells((5,)).on(((0.0, 10.0),)).domain
            ((0.0, 10.0),)
        """
        return self

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The one component of a state that is not divided."""
        from certirl.functions.components import Component

        return (Component("state", tuple(range(self.dimension)), self),)  # type: ignore[arg-type]

    def value_range(self, coefficients: Array) -> tuple[float, float] | None:
        """Proved bounds of all values of Σ c_i f_i; None of functions that can only be called.

        Example:
            >>> certirl.Cells((3,)).value_range(np.array([0.0, 2.0, 1.0]))
            (0.0, 2.0)
        """
        return None

    def _acts(self, coefficients: Array) -> bool:
        """Whether Σ c_i f_i depends on the action."""
        return False

    def _combined(self, states: Array, coefficients: Array, action: Actions) -> Array:
        """Σ c_i f_i(s, a) for each state ``[n]``."""
        return self.combined(states, coefficients)

    def _for_action(self, action: int) -> Self:
        """f_1(·, a) … f_k(·, a) as functions of the state."""
        return self

    def _constant(self) -> Array:
        """c with Σ c_i f_i = 1 at every state ``[k]``."""
        raise ValueError(f"no sum of {self} is constant: write costs of actions as features of states and an action")

    def _summed(self, states: ArrayLike) -> Array:
        """Σ_n f_i(s_n) over states, for every function ``[k]``."""
        return np.asarray(self.values(states).sum(axis=0))

    def _in_words(self, coefficients: Array) -> str | None:
        """Σ c_i f_i as it is read; None of functions without names."""
        return None


def of_actions(function: Any) -> bool:
    """Whether a function of the state depends on the action, too: it says so, or takes states and an action."""
    says = getattr(function, "of_actions", None)
    return bool(says) if says is not None else takes(function, None, 0) and not takes(function, None)


def by_action(states: Array, actions: Actions, values: Callable[[Array, int], Array]) -> Array:
    """f(s, a) for each state and its action ``[n]``, from f of all states with the same action."""
    total, each = np.empty(len(states)), np.broadcast_to(np.asarray(actions), len(states))
    for action in np.unique(each).tolist():
        chosen = each == action
        total[chosen] = values(states[chosen], action)
    return total
