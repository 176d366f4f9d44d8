"""Policies: one action, actions or probabilities by state; where an expert switches; many walks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from inspect import signature
from itertools import product as combinations
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from certirl.data.simulator import Simulator, ask, terminal_of
from certirl.functions.cells import Cells
from certirl.ground import archive
from certirl.ground.domain import Array, Box, as_actions, as_domain, as_n_actions, mesh
from certirl.ground.doors import as_reals, by_door, call, closest, setting, shown, some_rows, takes, users
from certirl.ground.records import Record, internal

ROUNDING = 1e-6  # how far the sum of probabilities may be from one
CELLS_ALONG = {1: 4000, 2: 400, 3: 60}  # cells along each coordinate, by the number of coordinates
_ALIKE = 0.01  # share of the answers that may differ in a second call, at ties decided by rounding


@dataclass(frozen=True, eq=False)
class Policy(Record):
    """A policy π: for every state the probabilities of the actions.

    Attributes:
        n_actions: A.
        rule: a function from states ``[n, d]`` to actions ``[n]`` or to probabilities ``[n, A]``.
        constant: the action it always takes; None if it depends on the state.
        assumption: what a statement about it rests on, in words; empty if the policy is known exactly.
        compare: a function of states and their probabilities, called with every answer: raises if they contradict
            what is known of the policy.
        names: of actions 0, 1, … where they have any; the rule may return them.

    Example:
        >>> from certirl.data.policy import Policy
        >>> policy = Policy(n_actions=2, rule=lambda states: states[:, 0] > 0)
        >>> policy([[-0.5], [0.5]]).tolist()
        [0, 1]
    """

    n_actions: int
    rule: Callable[[Array], Any]
    constant: int | None = None
    assumption: str = ""
    compare: Callable[[Array, Array], None] | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        as_n_actions(self.n_actions)

    def __call__(self, states: Array) -> NDArray[np.intp]:
        """The action at each state."""
        return self.actions(states)

    def actions(self, states: Array) -> NDArray[np.intp]:
        """The action at each state ``[n]``; the likeliest of several, the first on a tie.

        Example:
            >>> policy.actions([[-0.5], [0.5]]).tolist()
            [0, 1]
        """
        answer = self._answer(states)
        return answer if answer.ndim == 1 else answer.argmax(axis=1)

    def probabilities(self, states: Array) -> Array:
        """The probability of each action at each state ``[n, A]``.

        Example:
            >>> policy.probabilities([[-0.5], [0.5]])
            array([[1., 0.],
                   [0., 1.]])
        """
        answer = self._answer(states)
        probabilities = np.eye(self.n_actions)[answer] if answer.ndim == 1 else answer
        if self.compare is not None:
            self.compare(np.asarray(states, dtype=float), probabilities)
        return probabilities

    def support(self, states: Array) -> NDArray[np.bool_]:
        """Which actions have a positive probability at each state ``[n, A]``: all must be best.

        Example:
            >>> policy.support([[-0.5], [0.5]])
            array([[ True, False],
                   [False,  True]])
        """
        return self.probabilities(states) > 0

    def _read(self, answer: Any) -> NDArray[Any]:
        """Numbers as they are, and names of actions as their numbers."""
        is_numeric = getattr(getattr(answer, "dtype", None), "kind", "O") in "biuf"
        texts = np.empty(0) if is_numeric else np.asarray(answer, dtype=object).ravel()
        if not texts.size or not all(isinstance(text, str) for text in texts):
            return as_reals(answer, "the expert's answer", truth=True)
        if not self.names:
            raise ValueError(
                f"the expert must return numbers of actions, 0 … {self.n_actions - 1}, got {shown(texts[0])}: the "
                "actions have no names"
            )
        taken, places = np.unique(texts.astype(str), return_inverse=True)
        for text in taken.tolist():
            if text not in self.names:
                raise ValueError(
                    f"the expert must return some of the actions {', '.join(self.names)}, or their numbers, got "
                    f"{text!r}{closest(text, self.names)}"
                )
        return np.array([self.names.index(text) for text in taken.tolist()])[places]

    def _answer(self, states: Array) -> NDArray[Any]:
        """Actions ``[n]`` or probabilities ``[n, A]``, checked."""
        states = np.asarray(states, dtype=float)
        if self.constant is not None:
            return np.full(len(states), self.constant, dtype=np.intp)
        answer = call(self.rule, states, what="the expert", read=self._read)
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


def as_policy(expert: Any, n_actions: int, names: tuple[str, ...] = ()) -> Policy:
    """A policy from an action, a function of states, or a model that predicts actions.

    The expert is a whole number, or one of the names of actions in the data; a function of states ``[n, d]``; or an
    object with ``predict(states)``, as reinforcement learning libraries and classifiers have it, which may return a
    tuple with the actions first, and is called with ``deterministic=True`` if it has that argument. A list of such
    functions and models stands for several experts with one reward: whatever one of them does is best, so that the
    policy takes every action that one of them takes, with the share of them that take it.
    """
    if isinstance(expert, list | tuple) and len(expert):
        return _pooled(expert, n_actions, names)
    if isinstance(expert, str) and expert in names:
        return as_policy(names.index(expert), n_actions)
    if isinstance(expert, Policy):
        others = getattr(expert, "action_names", ())
        if names and others and others != names:
            listed = f"{', '.join(others)}, the data as {', '.join(names)}"
            raise ValueError(
                f"the demonstrations number the actions as {listed}: write policy_from(…, actions={list(names)})"
            )
        if expert.n_actions != n_actions:
            raise ValueError(f"the expert chooses among {expert.n_actions} actions, the data have {n_actions}")
        return expert
    if isinstance(expert, int | np.integer) and not isinstance(expert, bool):
        if not 0 <= expert < n_actions:
            raise ValueError(no_action(expert, n_actions))
        return Policy(n_actions, partial(_same_action, int(expert)), constant=int(expert))
    if isinstance(expert, type):
        raise TypeError(f"expert must be an object, got the class {expert.__name__}: write {expert.__name__}(…)")
    rule = expert if callable(expert) else getattr(expert, "predict", None)
    if rule is not None:
        if not callable(rule) or not takes(rule, None):
            what = "the expert's predict" if rule is not expert else "expert"
            raise TypeError(f"{what} must be a function of states [n, d] alone, got {shown(rule)}")
        if rule is not expert:
            rule = partial(_predicted, rule, {"deterministic": True} if _has_deterministic(rule) else {})
        return Policy(n_actions, rule, assumption=str(getattr(expert, "assumption", "")), names=names)
    if isinstance(expert, str) and names:
        raise ValueError(
            f"expert must be one of the actions {', '.join(names)}, got {expert!r}{closest(expert, names)}"
        )
    raise TypeError(
        f"expert must be an action (a whole number) or a function of states [n, d] that returns actions [n], "
        f"got {shown(expert)}"
    )


def _pooled(experts: Sequence[Any], n_actions: int, names: tuple[str, ...]) -> Policy:
    """The policy of several experts together."""
    for each in experts:
        if not callable(each) and not hasattr(each, "predict"):
            raise TypeError(f"a list of experts must hold functions of states or models, got {shown(each)} in it")
    policies = tuple(as_policy(each, n_actions, names) for each in experts)
    assumed = "; ".join(dict.fromkeys(policy.assumption for policy in policies if policy.assumption))
    return Policy(n_actions, partial(_shares, policies), assumption=assumed)


def _shares(policies: tuple[Policy, ...], states: Array) -> Array:
    """The mean probability of each action ``[n, A]``."""
    return np.mean([policy.probabilities(states) for policy in policies], axis=0)


def _has_deterministic(predict: Any) -> bool:
    """Whether the exploration of a learner can be switched off."""
    try:
        return "deterministic" in signature(predict).parameters
    except (TypeError, ValueError):  # compiled functions have no signature
        return False


def _same_action(action: int, states: Array) -> NDArray[np.intp]:
    """One action at every state ``[n]``."""
    return np.full(len(states), action)


def _predicted(predict: Any, settings: dict[str, bool], states: Array) -> Any:
    """What a model predicts, the first part of a tuple."""
    with users("the expert's predict", predict, (states,)):
        answer = predict(states, **settings)
    return answer[0] if isinstance(answer, tuple) and answer else answer


def _as_probabilities(answer: NDArray[Any]) -> Array:
    values = np.asarray(answer, dtype=float)
    wrong = ~np.isfinite(values).all(axis=1) | (values < 0).any(axis=1) | (abs(values.sum(axis=1) - 1) > ROUNDING)
    if wrong.any():
        row = int(wrong.argmax())
        listed = ", ".join(f"{value:.6g}" for value in values[row])
        raise ValueError(f"the expert's probabilities must be non-negative and add up to 1, got {listed} in row {row}")
    return values / values.sum(axis=1, keepdims=True)  # proofs assume a sum of exactly 1


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class ExpertGrid(Record):
    """The expert's actions at the corners of the cells of a box.

    A cell is steady if the expert takes the same actions at all its corners; every other cell holds a switch. An
    interval is a box with one coordinate. Distances are Euclidean, in units of the state.
    """

    domain: Box  # one (low, high) pair for each coordinate
    support: NDArray[np.bool_]  # which actions it takes at each corner ``[c_1 + 1, …, c_d + 1, A]``

    @cached_property
    def cells(self) -> Cells:
        """The grid."""
        return Cells(self.support.shape[:-1], (), self.domain)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each coordinate."""
        return self.cells.shape

    @property
    def reach(self) -> float:
        """The diagonal of a cell: `away` misses a distance to a switch by that at most."""
        return float(np.linalg.norm(self.cells.sides))

    @cached_property
    def states(self) -> Array:
        """The middles of the cells ``[cells, d]``, the last coordinate varying fastest."""
        return mesh(self.cells.middles())

    @cached_property
    def steady(self) -> NDArray[np.bool_]:
        """The cells whose corners agree ``[cells]``."""
        corners = self._corners(self.support)
        return np.asarray((corners == corners[0]).all(axis=(0, -1)).ravel())

    @cached_property
    def taken(self) -> NDArray[np.bool_]:
        """The actions that the expert takes at any corner ``[A, cells]``.

        In several coordinates, where corners disagree, those at the corners of the neighbouring cells too: three
        regions may meet in a cell of which only two reach a corner.
        """
        at_corners = np.moveaxis(np.asarray(self._corners(self.support).any(axis=0)), -1, 0)
        if len(self.domain) == 1:
            return at_corners
        from scipy.ndimage import maximum_filter

        at_neighbours = np.array([maximum_filter(action, size=3) for action in at_corners])
        return np.where(self.steady.reshape(self.shape), at_corners, at_neighbours).reshape(len(at_corners), -1)

    def _corners(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values at the points, corner by corner of the cells ``[2ᵈ, c_1, …, c_d, …]``."""
        return np.stack([values[side] for side in self._sides])

    @property
    def _sides(self) -> list[tuple[slice, ...]]:
        return list(combinations((slice(None, -1), slice(1, None)), repeat=len(self.domain)))

    @property
    def used(self) -> tuple[int, ...]:
        """The actions that the expert takes somewhere."""
        return tuple(np.flatnonzero(self.support.reshape(-1, self.support.shape[-1]).any(axis=0)).tolist())

    @cached_property
    def switches(self) -> Array:
        """The middles of the cells whose corners do not agree ``[z, d]``."""
        return self.states[~self.steady]

    @cached_property
    def away(self) -> Array:
        """Distance of every middle to that of the nearest cell with a switch ``[cells]``.

        Infinite if the expert never switches.
        """
        if self.steady.all():
            return np.full(len(self.steady), np.inf)
        from scipy.ndimage import distance_transform_edt

        distances = distance_transform_edt(self.steady.reshape(self.shape), sampling=self.cells.sides)
        return np.asarray(distances, dtype=float).ravel()

    @cached_property
    def marks(self) -> Array:
        """At every corner the least distance `away` of a cell around it ``[c_1 + 1, …, c_d + 1]``."""
        nearest, away = np.full(self.support.shape[:-1], np.inf), self.away.reshape(self.shape)
        for side in self._sides:
            np.minimum(nearest[side], away, out=nearest[side])
        return np.minimum(nearest, 2 * np.linalg.norm(np.diff(np.array(self.domain), axis=1)))  # finite at any rate

    def tents(self, widths: Array) -> Array:
        """A lower bound of every tent on every cell ``[w, cells]``."""
        # A multilinear distance is largest at a corner.
        farthest = self._corners(self.marks).max(axis=0).ravel()
        return np.maximum(0.0, 1 - farthest / widths[:, None])

    def taken_at(self, states: Array) -> NDArray[np.bool_]:
        """The actions that the expert takes in the cells of states ``[n, d]``: ``[A, n]``."""
        return self.taken[:, self.cells.cell(states)]

    def pieces(self, chosen: NDArray[np.bool_]) -> Array:
        """The boxes around connected cells ``[t, d, 2]``."""
        from scipy.ndimage import find_objects, label

        low, sides = self.domain.low, self.cells.sides
        joined, _ = label(chosen.reshape(self.shape), structure=np.ones((3,) * len(low)))
        ends = [[(side.start, side.stop) for side in piece] for piece in find_objects(joined)]
        return low[:, None] + sides[:, None] * np.array(ends, dtype=float).reshape(-1, len(low), 2)

    @property
    def where(self) -> str:
        """The expert's switches in words."""
        if len(self.domain) > 1:
            return "where it switches"
        count = len(self.switches)
        return "its switch" if count == 1 else f"its {count} switches"

    def described(self, pieces: Array) -> str:
        """Pieces in words."""
        if len(self.domain) > 1:
            return f"{len(pieces)} connected piece{'s' * (len(pieces) != 1)}" if len(pieces) else "empty"
        places = ", ".join(f"[{low:.3f}, {high:.3f}]" for low, high in pieces.reshape(-1, 2)[:6])
        return f"{places or 'empty'}" + f" and {len(pieces) - 6} more" * (len(pieces) > 6)

    def __str__(self) -> str:
        if len(self.domain) == 1:
            between = f"between neighbours of {len(self.support)} states of {self.domain.words}"
            return f"{between} the expert takes only what it takes at one of the two"
        cells = " × ".join(map(str, self.shape))
        return (
            f"within each of {cells} cells of {self.domain.words} the expert takes what it takes at the corners, "
            "of the cells beside it too where these disagree"
        )


def expert_grid(policy: Policy, domain: Box) -> ExpertGrid:
    """Ask the expert about the corners of all cells, and about some of them twice."""
    cells = Cells((CELLS_ALONG[len(domain)] + 1,) * len(domain), (), domain)
    corners = cells.points()
    return ExpertGrid(domain, steady_support(policy, corners).reshape(*cells.counts, -1))


def steady_support(policy: Policy, states: Array) -> NDArray[np.bool_]:
    """Which actions an expert takes at states ``[n, A]``, checked by a second call to depend on one state alone."""
    support, rows = policy.support(states), some_rows(len(states))
    differs = (policy.support(states[rows]) != support[rows]).any(axis=1)
    if differs.mean() > _ALIKE:
        place = ", ".join(f"{x:.6g}" for x in states[rows][differs.argmax()])
        raise ValueError(
            f"the expert's answer at s = {place} changes from call to call: it must depend on one state alone, without "
            "random numbers and without means, maxima or ranks over the states"
        )
    return support


def compared(policy: Policy, grid: ExpertGrid) -> Policy:
    """The same expert, its answers compared with those at the corners of the cells."""
    return replace(policy, compare=partial(_compare, grid))


def _compare(grid: ExpertGrid, states: Array, probabilities: Array) -> None:
    """Refuse an expert that takes an action which no corner of the cell shows."""
    hidden = (probabilities > 0) & ~grid.taken_at(states).T
    rows = np.flatnonzero(hidden.any(axis=1))
    if not len(rows):
        return
    for shift in (-1, 1):  # rounding may count a state to the neighbouring cell
        low, high = grid.domain.ends
        shifted = np.clip(states[rows] + shift * 1e-9 * (high - low), low, high)
        hidden[rows] &= ~grid.taken_at(shifted).T
    if hidden.any():
        row, action = (int(i) for i in np.argwhere(hidden)[0])
        place, sides = (", ".join(f"{x:.6g}" for x in numbers) for numbers in (states[row], grid.cells.sides))
        raise ValueError(
            f"the expert takes action {action} at s = {place} and nowhere around it on a grid of steps {sides}: it "
            "switches within a cell, and a certificate needs pieces that are wider; name an expert without such "
            + by_door("spots, say certirl.policy_from(states, actions)", "spots, or a file of its demonstrations")
        )


class Step(NamedTuple):
    """One step of the walks that have not ended."""

    rows: NDArray[np.intp]  # the numbers of these walks ``[m]``
    states: Array  # where they are ``[m, d]``
    actions: NDArray[np.intp]  # what they take ``[m]``
    next_states: Array  # where that leads ``[m, d]``
    over: NDArray[np.bool_]  # which of them end there ``[m]``


class World(Protocol):
    """Where walks take place."""

    def step(self, rows: NDArray[np.intp], states: Array, policy: Policy) -> Step:
        """One step of some walks under a policy."""


def walk(
    world: World, states: Array, policies: Iterable[Policy], rows: NDArray[np.intp] | None = None
) -> Iterator[Step]:
    """The steps of one walk from each state ``[n, d]``, until all walks or the policies of all steps have ended.

    ``rows`` are the numbers of the walks that start ``[m]``; all if left out.
    """
    rows = np.arange(len(states)) if rows is None else rows
    states = states[rows]
    for policy in policies:
        if not len(rows):
            return
        step = world.step(rows, states, policy)
        yield step
        rows, states = rows[~step.over], step.next_states[~step.over]


class Dynamics:
    """A simulator as a world: terminal states end a walk.

    The simulator is asked about all walks at every step, those that have ended included, and in a step of several
    actions about all walks for each action, with equal random numbers: the noise that a walk meets depends neither on
    what the others do nor on how long they last. Walks of two policies with equal generators therefore share noise.
    """

    def __init__(self, simulator: Simulator, states: Array, rng: np.random.Generator) -> None:
        self.simulator, self.rng, self._domain = simulator, rng, as_domain(simulator.domain)
        self.places = np.array(states, dtype=float)  # where each walk is ``[n, d]``

    def step(self, rows: NDArray[np.intp], states: Array, policy: Policy) -> Step:
        """One step of some walks."""
        if policy.constant is not None:
            actions = policy.actions(states)
            next_states = self._asked(policy.constant, self.rng)[rows]
        else:
            actions = choose(policy, states, self.rng.random(len(self.places))[rows])
            next_states, seed = np.empty_like(states), int(self.rng.integers(2**31))
            for action in np.unique(actions).tolist():
                chosen = actions == action
                next_states[chosen] = self._asked(action, np.random.default_rng(seed))[rows[chosen]]
        self.places[rows] = next_states
        return Step(rows, states, actions, next_states, terminal_states(self.simulator, next_states))

    def _asked(self, action: int, rng: np.random.Generator) -> Array:
        return np.asarray(ask(self.simulator, self.places, action, rng, self._domain))


def simulate(
    simulator: Simulator, states: Array, policies: Iterable[Policy], rng: np.random.Generator
) -> Iterator[Step]:
    """Walk in a simulator from all states ``[n, d]`` but terminal ones."""
    world = Dynamics(simulator, states, rng)
    return walk(world, states, policies, np.flatnonzero(~terminal_states(simulator, states)))


def returns(
    simulator: Simulator,
    states: Array,
    policies: Sequence[Policy],
    reward: Callable[[Array, bool], Array],
    *,
    discount: float,
    rng: np.random.Generator,
) -> Array:
    """Σ_{t=1}^T γ^{t−1} R(s_t) of one walk from each state ``[n]``, with a policy for each of the T steps.

    Terminal states are absorbing, and pay R until step T. The reward is a function of states ``[m, d]`` and of whether
    these are terminal.
    """
    total, over = np.zeros(len(states)), terminal_states(simulator, states)
    rest = (1 - discount ** np.arange(len(policies), -1, -1)) / (1 - discount)  # 1 + γ + … from step t to step T
    if over.any():
        total[over] = rest[0] * reward(states[over], True)
    for number, step in enumerate(simulate(simulator, states, policies, rng)):
        for terminal, share in ((False, 1.0), (True, rest[number])):
            chosen = step.over == terminal
            if chosen.any():
                total[step.rows[chosen]] += discount**number * share * reward(step.next_states[chosen], terminal)
    return total


def terminal_states(simulator: Simulator, states: Array) -> NDArray[np.bool_]:
    """Which states are terminal ``[n]``: none if the simulator has no such rule."""
    terminal = terminal_of(simulator)
    return np.zeros(len(states), dtype=bool) if terminal is None else terminal(states)


def choose(policy: Policy, states: Array, uniform: Array) -> NDArray[np.intp]:
    """Draw an action for each state ``[n]`` by a uniform number for each."""
    if policy.constant is not None:
        return policy.actions(states)
    return np.asarray((policy.probabilities(states).cumsum(axis=1)[:, :-1] <= uniform[:, None]).sum(axis=1))


def uniform_policy(n_actions: int) -> Policy:
    """The policy that takes every action with the same probability, everywhere."""
    return Policy(n_actions, lambda states: np.full((len(states), n_actions), 1 / n_actions))
