"""Rewards R(s, a): expansions that can be called, calls of any reward function, and ranges.

A reward of the state alone, R(s), is the one that is the same for all actions.

Certificates and scenarios need bounds of R: proved for expansions, otherwise declared or estimated on a grid, and then
compared with every value. They also square numbers of the size of R, so that R is divided by a power of two that brings
its range near 1 first: nothing underflows or overflows, and no digit changes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.functions.components import Component, SumBasis
from certirl.functions.ends import Ends
from certirl.functions.features import Features
from certirl.functions.formulas import Formula, Group
from certirl.functions.functions import Actions, Functions, by_action, of_actions
from certirl.ground import archive
from certirl.ground.archive import Shape, Words
from certirl.ground.domain import Array, Box, as_actions, as_domain, as_states, like_input
from certirl.ground.doors import (
    as_count,
    as_flag,
    as_listed,
    as_number,
    as_reals,
    as_text,
    by_door,
    call,
    setting,
    shown,
    some_rows,
)
from certirl.ground.records import Record

RewardLike = Callable[..., Any]  # of states, or of states and an action

# States along each coordinate at which the range of a plain function is estimated, by the number of coordinates.
_ALONG = {1: 4001, 2: 301, 3: 61}
_DRAWN = 100_000  # states drawn for more coordinates
# Of the largest |R|: excess over a declared end that counts as rounding, less than certificates allow.
_ROUNDING = 1e-12
_ALIKE = 1e-4  # of the range: the largest difference of the answers of two calls, as in single precision
_SMALLEST, _LARGEST = 1e-250, 1e250  # ranges that can be normalised; margins may be far below them
OF_ACTIONS = "this is for rewards of states, and this one depends on the action: certirl.certify takes such rewards"
# Points at which rewards of actions are compared, by the number of coordinates: those at which experts are looked up.
_POINTS = {1: (4001,), 2: (401, 401), 3: (61, 61, 61)}
NOT_SQUARED = "which double precision cannot square: multiply it by a positive constant, which changes no policy"


def values_of(reward: RewardLike, states: Array, action: Actions = None, *, name: str = "the reward") -> Array:
    """R at states ``[n, d]``, and actions if it depends on them, as finite numbers ``[n]``.

    Every reward function is called here. It receives a copy of the states, which it may change, and one action at a
    time; its answer is copied.

    The action is one, or one for each state ``[n]``, unused by a function of states; ``name`` is that of the function,
    for errors.
    """
    if action is None or not of_actions(reward):
        return _asked(reward, states, name=name)
    return by_action(states, action, lambda rows, taken: _asked(reward, rows, taken, name=name))


def _asked(reward: RewardLike, states: Array, *action: int, name: str) -> Array:
    what = f"what {name} returns"
    answer = call(reward, states, *action, what=name, read=lambda answer: as_reals(answer, what, truth=True))
    if answer.shape not in {(len(states),), (len(states), 1)} and not answer.size == len(states) == 1:
        raise ValueError(
            f"{name} is asked about all states at once: for {len(states)} states it must return {len(states)} numbers, "
            f"got shape {list(answer.shape)}"
        )
    values = answer.reshape(len(states)).astype(np.float64)
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        place = ", ".join(f"{x:.6g}" for x in np.asarray(states[row], dtype=float).ravel())
        raise ValueError(f"{name} must be finite at every state of the domain, but it is {values[row]} at s = {place}")
    return values


@archive.record
@dataclass(frozen=True, eq=False)
class Reward(archive.Saved):
    """``R(s) = Σ α_i φ_i(s)`` or ``R(s, a) = Σ α_ai φ_i(s)``; callable on a state or an array.

    At terminal states it is another number, mostly 0. A sum over components, ``R(s) = Σ_j R_j(s_j)``, is a reward in a
    `SumBasis`; any other is a sum of one component.

    Attributes:
        basis: the functions φ.
        coefficients: α ``[k]``, or a row for each action ``[A, k]``; read-only.
        ended: states ``[n, d]`` to whether they are terminal ``[n]``; None if none is, or if that is not known.
        zero_at_terminal: whether R is not the sum at terminal states; True if ``ended`` or ``ends`` is given.
        extrapolation: the points of a grid without data, where R is a lower bound rather than an estimate ``[k]``; None
            if there are none.
        ends: R at terminal states, which pay it at every later step; None if it is 0 at all of them.

    Example:
        >>> reward = certirl.Reward(certirl.Legendre(2), np.array([0.0, 1.0]))
        >>> round(reward(0.5), 3), reward([-1.0, 1.0]).round(3)
        (0.612, array([-1.225,  1.225]))
        >>> round(reward.norm, 3), reward.domain
        (1.0, ((-1.0, 1.0),))
        >>> costly = reward.with_costs([0.0, 0.1])
        >>> round(costly(0.5, 1), 3), costly([0.5, 0.5], [0, 1]).round(3)
        (0.512, array([0.612, 0.512]))
    """

    _derived: ClassVar[tuple[str, ...]] = ("domain", "norm", "range")
    thread_safe: ClassVar[bool] = True
    basis: Functions | Cells | SumBasis | Features
    coefficients: Array
    ended: Callable[[Array], Any] | None = None
    zero_at_terminal: bool = False
    extrapolation: Annotated[NDArray[np.bool_], Shape("basis.size")] | None = None
    ends: Ends | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.basis, Functions):
            raise TypeError(f"the basis of a reward must be one such as certirl.Legendre(11), got {shown(self.basis)}")
        coefficients = as_reals(self.coefficients, "the coefficients of a reward").astype(np.float64)
        if coefficients.shape[-1:] != (self.basis.size,) or not 1 <= coefficients.ndim <= 2 or not coefficients.size:
            raise ValueError(
                f"{self.basis} needs {self.basis.size} coefficients, or a row of them for each action, "
                f"got shape {list(coefficients.shape)}"
            )
        coefficients = coefficients[0] if len(coefficients) == 1 and coefficients.ndim == 2 else coefficients
        if not np.isfinite(coefficients).all():
            raise ValueError("the coefficients of a reward must be finite")
        coefficients.flags.writeable = False
        object.__setattr__(self, "basis", self.basis.on(self.basis.domain))
        object.__setattr__(self, "coefficients", coefficients)
        if self.ended is not None and not callable(self.ended):
            raise TypeError(f"ended must be a function of states [n, d], got {shown(self.ended)}")
        as_flag(self.zero_at_terminal, "zero_at_terminal")
        if self.ends is not None and (
            not isinstance(self.ends, Ends) or self.ends.boxes.shape[1:] != (2, self.basis.dimension)
        ):
            raise TypeError(f"ends must be of states of {self.basis.dimension} coordinates, got {shown(self.ends)}")
        terminal = self.zero_at_terminal or self.ended is not None or self.ends is not None
        object.__setattr__(self, "zero_at_terminal", terminal)
        if terminal and len(self.components) > 1:
            raise ValueError("a sum of rewards is made of expansions in bases, without terminal states")

    @classmethod
    def sum(
        cls, rewards: Sequence[Reward], coordinates: Sequence[Sequence[int]], names: Sequence[str] | None = None
    ) -> Reward:
        """The sum of rewards of different coordinates; a single reward is returned as it is.

        Args:
            rewards: R_j, one for each component.
            coordinates: the columns of the states that each depends on.
            names: of the components; if omitted, made of their coordinates.

        Example:
            >>> warm = certirl.Reward(certirl.Legendre(2), np.array([0.0, 1.0]))
            >>> both = certirl.Reward.sum([warm, warm], coordinates=[[0], [1]], names=["kitchen", "hall"])
            >>> round(both([0.5, 0.5]), 3), [component.name for component in both.components]
            (1.225, ['kitchen', 'hall'])
        """
        rewards, groups = as_listed(rewards, "rewards"), as_listed(coordinates, "coordinates")
        coordinates = [
            [as_count(c, "coordinates", least=0) for c in as_listed(group, "coordinates")] for group in groups
        ]
        for reward in rewards:
            if not isinstance(reward, Reward):
                raise TypeError(f"a sum is made of rewards of certirl.Reward, got {shown(reward)}")
        labels = [" ".join(f"s{c}" for c in group) for group in coordinates]
        if names is not None:
            labels = [as_text(name, "names") for name in as_listed(names, "names")]
        if not len(labels) == len(coordinates) == len(rewards) >= 1:
            raise ValueError(
                "a sum of rewards needs as many names and groups of coordinates as rewards, "
                f"got {len(labels)}, {len(coordinates)} and {len(rewards)}"
            )
        if len(rewards) == 1:
            return rewards[0]
        bases = [reward.basis for reward in rewards if isinstance(reward.basis, Basis) and not reward.zero_at_terminal]
        if len(bases) < len(rewards):
            raise ValueError("a sum of rewards is made of expansions in bases, without terminal states")
        terms = zip(labels, coordinates, bases, strict=True)
        components = tuple(Component(name, tuple(group), basis) for name, group, basis in terms)
        basis = SumBasis(components).as_read("")
        counts = {reward.n_actions for reward in rewards} - {None}
        if len(counts) > 1:
            raise ValueError(f"a sum of rewards is of one number of actions, got {', '.join(map(str, sorted(counts)))}")
        each = [reward.coefficients for reward in rewards]
        if counts:
            each = [np.broadcast_to(rows, (*counts, rows.shape[-1])) for rows in each]
        return cls(basis, np.concatenate(each, axis=-1))

    def with_costs(self, costs: ArrayLike) -> Reward:
        """R(s, a) − c_a, in the same functions; terminal states cost nothing.

        Args:
            costs: c, one for each action ``[A]``.

        Example:
            >>> costly = reward.with_costs([0.0, 0.1, 0.2])
            >>> costly.of_actions, (reward(0.5) - costly([0.5, 0.5], [1, 2])).round(3)
            (True, array([0.1, 0.2]))
        """
        costs = np.atleast_1d(as_reals(costs, "costs"))
        if costs.ndim != 1 or self.n_actions not in (None, len(costs)):
            wanted = "one for each action" if self.n_actions is None else f"those of {self.n_actions} actions"
            raise ValueError(f"costs must be {wanted}, got shape {list(costs.shape)}")
        return replace(self, coefficients=self.coefficients - costs[:, None] * self.basis._constant())

    @property
    def costs(self) -> Array | None:
        """c with R(s, a) = R(s, b) + c_b − c_a at every state, 0 for the cheapest action ``[A]``; None without one."""
        if self.n_actions is None:
            return None
        apart, constant = self.coefficients[:1] - self.coefficients, self.basis._constant()
        costs = apart @ constant / (constant @ constant)
        rounding = _ROUNDING * float(np.abs(self.coefficients).max())
        if np.abs(apart - costs[:, None] * constant).max() > rounding:
            return None
        return np.asarray(costs - costs.min())

    def for_action(self, action: int) -> Reward:
        """R(·, a) as a reward of the state.

        Example:
            >>> still = costly.for_action(1)
            >>> still.of_actions, bool(still(0.5) == costly(0.5, 1))
            (False, True)
        """
        most = None if self.n_actions is None else self.n_actions - 1
        action = as_count(action, "action", least=0, most=most, meaning="the number of an action")
        coefficients = self.coefficients if self.n_actions is None else self.coefficients[action]
        return replace(self, basis=self.basis._for_action(action), coefficients=coefficients)

    def __call__(self, states: ArrayLike, action: Actions = None, *, extrapolated: str = "bound") -> Any:
        """R(s, a): a float for one state, ``[n]`` for many. States must lie in the domain.

        Args:
            states: one, or ``[n, d]``.
            action: one for all states, or one for each ``[n]``; left out for a reward of the state alone.
            extrapolated: what to give where a log has no data and R is only bounded: the "bound", or "nan".
        """
        if extrapolated not in ("bound", "nan"):
            raise ValueError(f'extrapolated must be "bound" or "nan", got {shown(extrapolated)}')
        if self._forgotten:
            raise ValueError(
                "a file keeps terminal states only where a few boxes describe them, and these it could not: pass them "
                "again, solution = solution.with_terminal(simulator.terminal)"
            )
        rows = as_states(states, self.domain, instead=f"the function is defined on {self.domain.words} only")
        values = self._values(rows, self._as_actions(action, len(rows)))
        if self.ended is not None:
            values = np.where(self.ended(rows), self._at_terminal(rows), values)
        if extrapolated == "nan":
            values = np.where(self.extrapolated(rows), np.nan, values)
        return like_input(values, states, self.basis.dimension)

    def _as_actions(self, action: Actions, count: int) -> NDArray[np.intp] | None:
        """Actions of ``count`` states."""
        if action is None:
            return None
        actions = as_actions(np.atleast_1d(action), n_actions=self.n_actions)
        if len(actions) not in (1, count):
            raise ValueError(f"reward(states, action) takes one action or one for each of {count} states")
        return np.broadcast_to(actions, count)

    def _values(self, rows: Array, actions: NDArray[np.intp] | None) -> Array:
        """R at states that are not terminal ``[n]``."""
        if self.n_actions is None:
            return self.basis._combined(rows, self.coefficients, actions)
        return self._by_action(rows, actions, lambda one, near: one._values(near, None))

    def _by_action(
        self, rows: Array, actions: NDArray[np.intp] | None, values: Callable[[Reward, Array], Array]
    ) -> Array:
        """Numbers of R(·, a) at each state ``[n]``."""
        if actions is None:
            raise ValueError("the reward depends on the action: call reward(states, action)")
        return by_action(rows, actions, lambda near, action: values(self.for_action(action), near))

    def _at_terminal(self, states: Array) -> Array:
        """R at terminal states ``[n]``; the caller selects them."""
        return np.zeros(len(states)) if self.ends is None else self.ends(states)

    def extrapolated(self, states: ArrayLike) -> Any:
        """Whether R rests on grid points without data: a bool for one state, ``[n]`` for many.

        Only a reward that was learned from a log has such points.

        Example:
            >>> empty = np.array([False, False, True])  # no data near the third grid point
            >>> reward = certirl.Reward(certirl.Cells((3,)), np.zeros(3), extrapolation=empty)
            >>> reward.extrapolated([-0.5, 0.9]), reward([-0.5, 0.9], extrapolated="nan")
            (array([False,  True]), array([ 0., nan]))
        """
        rows, weights = as_states(states, self.domain), np.zeros(1)
        if self.extrapolation is not None:
            weights = self.basis.combined(rows, self.extrapolation.astype(float))
        marks = like_input(np.broadcast_to(weights > 0.5, len(rows)), states, self.basis.dimension)
        return marks if isinstance(marks, np.ndarray) else bool(marks)

    def derivative(self, states: ArrayLike, axis: int = 0, action: Actions = None) -> Any:
        """∂R/∂s along one coordinate, in the same shapes; for expansions in bases and their sums.

        Args:
            states: as for the reward itself.
            axis: the coordinate.
            action: as for the reward itself.

        Example:
            >>> round(reward.derivative(0.5), 3)
            1.225
        """
        if not self.basis.has_derivatives or self.zero_at_terminal:
            raise ValueError(f"only an expansion in a basis, without terminal states, has a derivative, got {self}")
        axis = as_count(axis, "axis", least=0, most=self.basis.dimension - 1, meaning="the number of a coordinate")
        rows = as_states(states, self.domain, instead=f"the function is defined on {self.domain.words} only")
        component, reward = next(
            term for term in zip(self.components, self.parts, strict=True) if axis in term[0].coordinates
        )
        along, near = component.coordinates.index(axis), component.of(rows)
        if self.n_actions is None:
            slopes = component.basis.derivative(near, along) @ reward.coefficients
        else:
            actions = self._as_actions(action, len(rows))
            slopes = reward._by_action(near, actions, lambda one, some: one.derivative(some, along))
        return like_input(slopes, states, self.basis.dimension)

    @property
    def domain(self) -> Box:
        """The box of the states."""
        return as_domain(self.basis.domain)

    @property
    def components(self) -> tuple[Component, ...]:
        """Names, coordinates and functions of the terms; one for a reward that is no sum."""
        return self.basis.components

    @property
    def parts(self) -> tuple[Reward, ...]:
        """R_j for each component; the reward itself if it is no sum."""
        components = self.components
        if len(components) == 1:
            return (self,)
        pieces = SumBasis(components)._split(self.coefficients)
        return tuple(Reward(component.basis, piece) for component, piece in zip(components, pieces, strict=True))

    @property
    def n_actions(self) -> int | None:
        """The number of actions with coefficients of their own; None if they have all in common."""
        return None if self.coefficients.ndim == 1 else len(self.coefficients)

    def __getitem__(self, name: str | int) -> Reward:
        """R_j by name or number."""
        names = [component.name for component in self.components]
        if name not in names and not isinstance(name, int):
            raise KeyError(f"there is no component {name!r}; there are {', '.join(names)}")
        return self.parts[name if isinstance(name, int) else names.index(name)]

    @property
    def of_actions(self) -> bool:
        """Whether R depends on the action: by coefficients of its own for each, or by features that do."""
        return self.n_actions is not None or self.basis._acts(self.coefficients)

    @property
    def norm(self) -> float:
        """‖α‖₁, the paper's objective."""
        return float(np.abs(self.coefficients).sum())

    @property
    def range(self) -> tuple[float, float] | None:
        """Proved bounds of all values; None for a reward with terminal states or of features."""
        ranges = [self.basis.value_range(row) for row in np.atleast_2d(self.coefficients)]
        known = [ends for ends in ranges if ends is not None and not self.zero_at_terminal]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else None

    @property
    def _forgotten(self) -> bool:
        """Whether there are terminal states, but the file of the reward could not keep which."""
        return self.zero_at_terminal and self.ended is None

    def __str__(self) -> str:
        paid = "" if self.ends is None else f", {self.ends}"
        words = [self.basis._in_words(row) for row in np.atleast_2d(self.coefficients)]
        if words[0] is not None:
            terminal = paid or (", 0 at terminal states" if self.zero_at_terminal else "")
            arguments = [f"s, {action}" for action in range(self.n_actions or 0)] or [
                "s, a" if self.of_actions else "s"
            ]
            return "; ".join(f"R({of}) = {text}" for of, text in zip(arguments, words, strict=True)) + terminal
        names = [f"R({component.name})" for component in self.components]
        total = " + ".join(names) if len(names) <= 4 else f"{names[0]} + {names[1]} + … + {names[-1]}"
        where = f"{self.basis} on {self.domain.words}" if len(names) == 1 else f"{total}, {self.basis}"
        each = "" if self.n_actions is None else f", {self.n_actions} actions"
        return f"{where}{each}, ‖α‖₁ = {self.norm:.4g}{paid}"

    @property
    def _formula(self) -> Formula:
        """The terms of R, from which every writer goes."""
        components = self.components
        cases = [
            tuple(
                Group(component.name, component.coordinates, component._terms(piece))
                for component, piece in zip(components, SumBasis(components)._split(row), strict=True)
            )
            for row in np.atleast_2d(self.coefficients)
        ]
        boxes = getattr(self.ended, "boxes", None)
        return Formula(self.domain, tuple(cases), self.zero_at_terminal, boxes, self.ends, str(self))

    def to_latex(
        self,
        *,
        digits: int = 4,
        terms: int | None = None,
        names: Sequence[str] | None = None,
        symbol: str = "R",
    ) -> str:
        r"""R as a formula for LaTeX's mathematics mode.

        Args:
            digits: of the coefficients.
            terms: the most to write of an expansion, the largest ones; how many are left out is written. All if None.
            names: of the coordinates; s, or s_0, s_1, … if omitted.
            symbol: of the function, such as "V" for a value.

        Example:
            >>> print(certirl.Reward(certirl.Fourier(3), [0.0, 2.0, -0.5]).to_latex())
            R(s) = 2\,\sin(\pi s) - 0.5\,\cos(\pi s)
        """
        from certirl.functions.texts import latex

        return latex(self._formula, digits=digits, terms=terms, names=names, symbol=symbol)

    def to_python(self) -> str:
        """A module that defines ``reward(state)``, or ``reward(state, action)``, and needs NumPy alone.

        States, actions and values are as of the reward itself.

        Example:
            >>> text = certirl.Reward(certirl.Fourier(3), [0.0, 2.0, -0.5]).to_python()
            >>> exec(text, module := {})
            >>> module["reward"](0.5)
            2.0
        """
        from certirl.functions.texts import python

        return python(self._formula)

    def to_json(self) -> str:
        """The reward as JSON text; `from_json` reads it back, `certirl.load` a file of it. Functions are not kept.

        Example:
            >>> reward = certirl.Reward(certirl.Fourier(3), [0.0, 2.0, -0.5])
            >>> certirl.Reward.from_json(reward.to_json())(0.5) == reward(0.5)
            True
        """
        return archive.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Reward:
        """Read what `to_json` wrote; nothing in it is executed.

        Example:
            >>> text = certirl.Reward(certirl.Legendre(2), [0.0, 1.0]).to_json()
            >>> round(certirl.Reward.from_json(text)(0.5), 3)
            0.612
        """
        reward = archive.from_json(text)
        if not isinstance(reward, cls):
            raise ValueError(f"the text must be the JSON of a reward, got that of a {type(reward).__name__}")
        return reward

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write it in the format of the suffix: .py (added if missing), .tex, .json or .onnx.

        Example:
            >>> import certirl
            >>> certirl.Reward(certirl.Legendre(2), [0.0, 1.0]).export("reward.tex").name
            'reward.tex'
        """
        writers = {".py": self.to_python, ".tex": self.to_latex, ".json": self.to_json}
        target = archive.target_of(path, (*writers, ".onnx"))
        if Path(path).suffix not in ("", target.suffix):
            raise ValueError(f"the suffix chooses the format: .py, .tex, .json or .onnx, got {Path(path).name!r}")
        suffix = target.suffix.lower()
        if suffix == ".onnx":
            return self.to_onnx(target)
        text = writers[suffix]()
        with archive.replacing(target) as temporary:
            temporary.write_text(text.rstrip("\n") + "\n", encoding="utf-8", newline="\n")
        return target

    def to_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write it as an ONNX model of states ``[n, d]`` to values ``[n]`` in double precision; NaN off the domain.

        A reward of states and actions has a second input, the actions ``[n]`` as 64-bit whole numbers.

        Needs the package onnx: ``pip install "certirl[onnx]"``.

        Example:
            >>> reward = certirl.Reward(certirl.Legendre(2), [0.0, 1.0])
            >>> reward.to_onnx("reward").name
            'reward.onnx'
        """
        from certirl.functions.onnx import write

        return write(self._formula, path)

    def plot(self, *, ax: Any = None, path: Any = None) -> Any:
        """Draw the reward of every component into axes or a figure; write the picture to ``path`` if given.

        Example:
            >>> axes = reward.plot(path="reward.png")  # one panel for each component
        """
        from certirl import plots

        return plots.reward(self, ax=ax, path=path)


def reward_at_terminal(reward: RewardLike, states: Array) -> Array:
    """R at terminal states ``[n]``: mostly 0 for a reward with ``zero_at_terminal``.

    A file states what R is at terminal states, but not always which states are terminal: the caller selects them.
    """
    if isinstance(reward, Reward) and reward.zero_at_terminal:
        return reward._at_terminal(states)
    return np.zeros(len(states)) if getattr(reward, "zero_at_terminal", False) else values_of(reward, states)


def value_function(basis: Basis, coefficients: Array, ended: Callable[[Array], Any] | None) -> Reward:
    """V with these coefficients, which has numbers of its own at ends if its functions have."""
    functions = basis._without_ends
    return Reward(functions, coefficients[: functions.size], ended, ends=basis._ends(coefficients))


def known_expert(reward: Any, expert: Any) -> Any:
    """The argument ``expert``, or the expert of a solution; None if there is only a reward."""
    if expert is None and getattr(reward, "expert", 0) is None:
        raise ValueError(
            "a solution of an expert that depends on the state does not keep the expert: "
            + by_door("pass expert=…", "write --expert")
        )
    return getattr(reward, "expert", None) if expert is None else expert


# What can be written for what a reward alone does not say, in Python and in a command.
_SAY = {"discount": ("0.9", "0.9"), "expert": ("0", "0"), "columns": ("Legendre(7)", "7")}


def check_known(**known: Any) -> None:
    """Refuse a call that leaves out what a reward alone does not say; by name, None where it is not known."""
    missing = [setting(name, by_door(*_SAY[name])) for name, value in known.items() if value is None]
    if missing:
        names = " and ".join(missing)
        raise ValueError(f"a reward alone does not know the problem: {by_door('pass', 'write')} {names}, say")


def unpack(reward: Any, discount: float | None) -> tuple[RewardLike, float | None]:
    """The reward function and γ: the arguments, or those of a solution or another record, which is no function."""
    if hasattr(reward, "reward") and not callable(reward):
        if reward.reward is None:
            raise ValueError(f"there is no reward to check: {reward.reason}")
        discount = getattr(reward, "discount", None) if discount is None else discount
        reward = reward.reward
    if not callable(reward):
        raise TypeError(f"the reward must be a function of states, a Reward or a Solution, got {type(reward).__name__}")
    return reward, discount


# Ranges.


@archive.record
@dataclass(frozen=True, eq=False)
class BoundedReward(Record):
    """``R/unit`` with ``low ≤ R/unit ≤ high``, callable on states ``[n, d]``, and an action if R depends on it."""

    thread_safe: ClassVar[bool] = True  # `values_of` calls the function
    function: RewardLike | None  # R; None in a file, unless it is an expansion
    low: float  # the lower bound, in units
    high: float  # the upper bound, in units
    unit: float  # a power of two
    # of the range: "proved", "declared" or "looked up"
    source: Annotated[str, Words("proved", "declared", "looked up")]
    domain: Box  # the box of states
    # For a reward of actions whose differences no expansion in the columns' family gives: R(s, a) at the points of a
    # grid up to a function of s, in units, and how fast differences of two actions change at most by each coordinate.
    apart: Reward | None = None
    slopes: Annotated[Array | None, Shape("d")] = None
    slopes_source: Annotated[str, Words("proved", "looked up")] = "proved"

    def __call__(self, states: Array, action: Actions = None) -> Array:
        """R at states ``[n]``, in units."""
        if self.function is None:
            raise ValueError("the reward is not in the file: certify it again, or keep the reward beside the file")
        values = values_of(self.function, states, action) / self.unit
        if self.source != "proved" and len(values):
            slack = _ROUNDING * max(abs(self.low), abs(self.high))
            outside = ~((values >= self.low - slack) & (values <= self.high + slack))
            if outside.any():
                row = int(outside.argmax())
                place = ", ".join(f"{x:.6g}" for x in np.asarray(states, dtype=float).reshape(len(values), -1)[row])
                low, high = self.range
                instead = "correct" if self.source == "declared" else "declare it: pass"
                raise ValueError(
                    f"the reward is {values[row] * self.unit:.6g} at s = {place}, outside its {self.source} range "
                    f"[{low:.6g}, {high:.6g}]: {instead} reward_range=(low, high)"
                )
        return values

    @property
    def basis(self) -> Functions | None:
        """The functions of which R is an expansion; None if it is none."""
        return getattr(self.function, "basis", None) if self.source == "proved" else None

    def coefficients(self, action: int) -> Array:
        """The coefficients of R(·, a) in its basis, in units ``[k]``."""
        return np.asarray(self.function.for_action(action).coefficients / self.unit)  # type: ignore[union-attr]

    @property
    def of_actions(self) -> bool:
        """Whether R depends on the action."""
        return self.apart is not None or (self.function is not None and of_actions(self.function))

    @property
    def range(self) -> tuple[float, float]:
        """The bounds of R."""
        return self.low * self.unit, self.high * self.unit

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions about range and slopes, in words; none if they are proved."""
        assumed = []
        if self.source != "proved":
            low, high = self.range
            assumed.append(f"the reward stays within [{low:.4g}, {high:.4g}] on {self.domain.words} ({self.source})")
        if self.slopes is not None and self.slopes_source != "proved":
            each = ", ".join(f"{self.unit * slope:.4g}" for slope in self.slopes)
            of = "" if len(self.slopes) == 1 else " of each coordinate"
            change = f"changes by at most {each} per unit of the state{of}"
            change = change if self.slopes.any() else "is the same at all states"
            assumed.append(f"R(s, b) − R(s, a) {change} ({self.slopes_source})")
        return tuple(assumed)

    def normalised(self) -> BoundedReward:
        """The same in a unit in which its range is between 1 and 2."""
        unit = unit_of(self.high - self.low, max(abs(self.low), abs(self.high)))
        return replace(
            self,
            low=self.low / unit,
            high=self.high / unit,
            unit=unit * self.unit,
            apart=None if self.apart is None else replace(self.apart, coefficients=self.apart.coefficients / unit),
            slopes=None if self.slopes is None else self.slopes / unit,
        )

    def told_apart(self, n_actions: int) -> BoundedReward:
        """The same with R(s, a) at the points of a grid, and bounds on how fast differences of actions change."""
        assert self.function is not None
        grid = Cells(_POINTS[len(self.domain)], (), self.domain)
        states = grid.points()
        values = np.stack([values_alone(self.function, states, action) for action in range(n_actions)]) / self.unit
        slopes, source = 1.05 * grid._steepest(values), "looked up"
        slopes[slopes * grid.sides <= _ROUNDING * float(np.abs(values).max())] = 0.0
        if isinstance(self.basis, Cells):
            rows = [self.coefficients(action) for action in range(n_actions)]
            slopes, source = self.basis._steepest(np.stack(rows)), "proved"
        return replace(self, apart=Reward(grid, values - values[:1]), slopes=slopes, slopes_source=source)


def bounded(
    reward: RewardLike, domain: Box, declared: Any = None, actions: Sequence[int] | None = None
) -> BoundedReward:
    """A reward with its range, proved if it is an expansion.

    A reward that has a range keeps it. Where it is neither proved nor declared, ``(low, high)``, it is estimated on a
    grid. Of a reward of actions the range is that under ``actions``; None refuses such rewards.
    """
    if declared is None and isinstance(reward, BoundedReward):
        return reward
    each: Sequence[int | None] = [None]
    if of_actions(reward):
        if actions is None:
            raise ValueError(OF_ACTIONS)
        each = actions
    proved = proved_range(reward, each)
    if declared is None:
        low, high = proved or _looked_up(reward, domain, each)
        return BoundedReward(reward, low, high, 1.0, "proved" if proved else "looked up", domain)
    low, high = as_range(declared)
    result = BoundedReward(reward, low, high, 1.0, "declared", domain)
    _trial_values(result, domain, each)
    return result if proved is None else replace(result, low=proved[0], high=proved[1], source="proved")


def as_range(declared: Any) -> tuple[float, float]:
    """Check a declared range: two finite numbers, the lower one first."""
    try:
        low, high = (as_number(end, "an end of reward_range") for end in declared)
    except (TypeError, ValueError):
        raise ValueError(f"reward_range must be two finite numbers (low, high), got {shown(declared)}") from None
    if not low <= high:
        raise ValueError(f"reward_range must be (low, high) with low ≤ high, got {shown(declared)}")
    return low, high


def unit_of(span: float, largest: float) -> float:
    """The largest power of two up to the range of a reward; 1 for a constant one."""
    if span == 0:
        return 1.0
    if not _SMALLEST <= span <= _LARGEST or not largest <= _LARGEST:
        raise ValueError(f"the reward has a range of {span:.3g} and values up to {largest:.3g}, {NOT_SQUARED}")
    return math.ldexp(1.0, math.frexp(span)[1] - 1)


def proved_range(reward: RewardLike, actions: Sequence[int | None] = (None,)) -> tuple[float, float] | None:
    """Bounds of an expansion, under some actions, that need no assumption; None for any other function."""
    if not isinstance(reward, Reward):
        return None
    largest = float(np.abs(reward.coefficients).max(initial=0.0))
    if largest > _LARGEST:
        raise ValueError(f"the reward has coefficients up to {largest:.3g}, {NOT_SQUARED}")
    if reward.n_actions is None:
        return reward.range
    ranges = [reward.for_action(action).range for action in actions if action is not None]
    known = [ends for ends in ranges if ends is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def _looked_up(reward: RewardLike, domain: Box, actions: Sequence[int | None]) -> tuple[float, float]:
    """The range over many states, enlarged by a twentieth on both sides."""
    values = _trial_values(reward, domain, actions)
    low, high = float(values.min()), float(values.max())
    more = 0.05 * (high - low) + 1e-12 * max(abs(low), abs(high))
    return low - more, high + more


def _trial_values(reward: RewardLike, domain: Box, actions: Sequence[int | None]) -> Array:
    states = trial_states(domain)
    return np.concatenate([values_alone(reward, states, action) for action in actions])


def values_alone(reward: RewardLike, states: Array, action: int | None = None, *, name: str = "the reward") -> Array:
    """R at states ``[n]``, as in `values_of`, checked to depend on one state alone by further calls."""
    if action is None and of_actions(reward):
        raise ValueError(OF_ACTIONS)
    values, rows = values_of(reward, states, action, name=name), some_rows(len(states))
    calls = [rows, *np.split(rows[:67], [1, 7])]  # of many states, and of 1, 6 and 60
    again = np.concatenate([values_of(reward, states[call], action, name=name) for call in calls if len(call)])
    rows = np.concatenate(calls)
    change = np.abs(again - values[rows])
    low, high = float(values.min()), float(values.max())
    if change.max() > _ALIKE * (high - low) + 1e-6 * max(abs(low), abs(high)):
        place = ", ".join(f"{x:.6g}" for x in states[rows][change.argmax()])
        raise ValueError(
            f"{name} at s = {place} changes by {change.max():.3g} with the other states of the call: it must "
            "depend on one state alone, without means, maxima or ranks over the states"
        )
    return values


def trial_states(domain: Box) -> Array:
    """States ``[n, d]`` for a trial: a mesh; random for more than three coordinates."""
    if len(domain) in _ALONG:
        return domain.mesh(_ALONG[len(domain)])
    return domain.uniform(_DRAWN, np.random.default_rng(0))
