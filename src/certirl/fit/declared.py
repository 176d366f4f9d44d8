"""Actions whose effect is declared: no transition of theirs is needed, and nothing about them is estimated.

A declaration stands beside the estimates of the other actions: effects, and simulators made of data, ask the one of
both that knows the action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from certirl.data.dependence import sampling
from certirl.data.simulator import Terminal
from certirl.data.transitions import Transitions
from certirl.fit.effects import Effects, KnownEffects, MeanEffects, Rows
from certirl.functions.reward import trial_states
from certirl.ground.domain import Array, Box, as_domain, as_states
from certirl.ground.doors import as_array, as_reals, call, shown
from certirl.ground.records import Record, freeze

REPEATS = 512  # of a state at which an estimated effect is read off, where it rests on drawn residuals
_OF_ROWS = ("states", "actions", "next_states", "terminal", "episodes")  # what a log has of each row
TRIALS = 32  # states at which a declared function is tried

Moves = Callable[[Array], Any]  # states [n, d] to the next states, exactly


@dataclass(frozen=True, eq=False)
class Resets(Record):
    """An action that sets the state and then moves it on as another action does.

    Attributes:
        to: the state that is set, a number or one for each coordinate.
        then: the action as under which it moves on.

    Example:
        >>> certirl.dynamics.Resets(to=20.0, then=2)
        Resets(to=20.0, then=2)
    """

    to: Any = 0.0
    then: int = 0

    def __post_init__(self) -> None:
        as_array(self.to, "to")
        if isinstance(self.then, bool) or not isinstance(self.then, int | np.integer) or self.then < 0:
            raise TypeError(f"then must be the number of an action, got {shown(self.then)}")
        super().__post_init__()

    @property
    def _place(self) -> Array:
        """The state that is set, as an array ``[1, d]``."""
        return np.atleast_2d(np.asarray(self.to, dtype=float))

    def _check(self, declared: set[int], n_actions: int, domain: Box) -> None:
        """Refuse a state outside the domain, and an action that is not estimated."""
        if self._place.shape[1] != len(domain):
            raise ValueError(f"Resets(to=…) needs a number for each of {len(domain)} coordinates, got {shown(self.to)}")
        as_states(self._place, domain, name="to", instead="widen the domain")
        if not self.then < n_actions or self.then in declared:
            raise ValueError(f"Resets(then=…) must be an action whose effect is not declared, got {self.then}")


@dataclass(frozen=True, eq=False)
class Declared(Record):
    """The actions whose effect is declared."""

    moves: Mapping[int, Resets | Moves] = field(default_factory=dict)  # what is declared, by action

    def __bool__(self) -> bool:
        return bool(self.moves)

    def __str__(self) -> str:
        numbers = ", ".join(map(str, sorted(self.moves)))
        return f", the effect of action {numbers} as declared" if self else ""

    @property
    def resets(self) -> Declared:
        """The actions that set the state and move it on as others do."""
        return Declared({action: moves for action, moves in self.moves.items() if isinstance(moves, Resets)})

    def estimated(self, n_actions: int) -> list[int]:
        """The other actions, whose effects are estimated, in order."""
        return [action for action in range(n_actions) if action not in self.moves]

    def without(self, log: Transitions) -> Transitions:
        """The rows of the other actions, which are counted 0, 1, … in their order."""
        if not self:
            return log
        others = self.estimated(log.n_actions)
        rows = log.where(np.isin(log.actions, others))
        names = tuple(log.action_names[action] for action in others) if log.action_names else ()
        numbers = np.searchsorted(others, rows.actions)
        return replace(rows, actions=numbers, n_actions=len(others), action_names=names)

    def filled(self, log: Transitions) -> Transitions:
        """The log with rows of the declared actions in place of its own, for proofs: each has to lead to one state.

        docs/notes/certificate.md, section 15.
        """
        notes = list(log.notes)
        for action, moves in sorted(self.moves.items()):
            there = _one_state(action, moves, log.domain)
            named = log.action_names[action] if log.action_names else f"action {action}"
            at = ", ".join(f"{x:.6g}" for x in there)
            notes.append(f"{named} leads to s = {at} from every state, as was declared, and its rows were made")
        filled = replace(self.made(log), notes=tuple(notes))
        freeze(filled, domain_from_data=log.domain_from_data, made=tuple(sorted(self.moves)))
        return filled

    def made(self, log: Transitions) -> Transitions:
        """The log without rows of declared actions; where a function says what one does, as many as the most are made.

        They are at even places, of the box and of the log.
        """
        if log.paired:
            raise ValueError("paired transitions have rows of every action: leave effects out")
        count = max(int(log.counts[action]) for action in self.estimated(log.n_actions))
        rows = log.where(~np.isin(log.actions, list(self.moves)))
        kept = {name: getattr(rows, name) for name in _OF_ROWS}
        columns: dict[str, list[Array]] = {name: [column] for name, column in kept.items() if column is not None}
        first = 0 if log.episodes is None else int(log.episodes.max()) + 1  # a made row is an episode by itself
        places = [np.arange(len(rows)) + 0.5]
        functions = [(action, moves) for action, moves in sorted(self.moves.items()) if not isinstance(moves, Resets)]
        for number, (action, moves) in enumerate(functions):
            states = log.domain.uniform(count, np.random.default_rng(action))
            made = {
                "states": states,
                "actions": np.full(count, action),
                "next_states": moved(moves, states, log.domain),
                "terminal": np.zeros(count, dtype=bool),
                "episodes": first + number * count + np.arange(count),
            }
            for name, parts in columns.items():
                parts.append(made[name])
            places.append((np.arange(count) + 0.25) * len(rows) / count)
        order = np.argsort(np.concatenate(places), kind="stable")
        joined: dict[str, Any] = {name: np.concatenate(parts)[order] for name, parts in columns.items()}
        joined["independent"] = False if sampling(log) == "order" else log.independent
        return replace(log, **joined)

    def joined(self, estimate: Callable[[Array], Effects], states: Array, is_terminal: Terminal | None) -> Effects:
        """The effects of all actions at some states; ``estimate`` gives those of the others at any states."""
        found = estimate(states)
        if not self:
            return found
        others = self.estimated(found.n_actions + len(self.moves))
        basis, states, periodic = found.basis, found.states, found.periodic
        parts = [(found, index) for index in range(found.n_actions)]
        for action, moves in sorted(self.moves.items()):
            part: Effects
            if isinstance(moves, Resets):
                there = estimate(np.repeat(moves._place, REPEATS, axis=0)).after(others.index(moves.then), slice(None))
                rows = np.broadcast_to(there.mean(axis=0), (1, len(states), basis.size))
                part = KnownEffects(basis, states, periodic, rows)
            else:
                after = moved(moves, states, basis.domain)[None, None]
                part = MeanEffects.of(basis, states, after, is_terminal, periodic, observed=True)
            parts.insert(action, (part, 0))
        return JoinedEffects(basis, states, periodic, tuple(parts))

    def among(self, estimated: Any) -> Any:
        """A simulator of all actions from one of the others, which are counted 0, 1, … there."""
        n_actions = estimated.n_actions + len(self.moves)
        numbers = {action: index for index, action in enumerate(self.estimated(n_actions))}
        return DeclaredMoves(estimated, self.moves, numbers) if self else estimated

    def over(self, simulator: Any) -> Any:
        """A user's simulator, of which the declared actions are not asked for."""
        if not self:
            return simulator
        numbers = {action: action for action in self.estimated(simulator.n_actions)}
        return DeclaredMoves(simulator, self.moves, numbers)


@dataclass(frozen=True, eq=False)
class JoinedEffects(Effects):
    """The effects of each action from effects of their own."""

    parts: tuple[tuple[Effects, int], ...]  # for every action the effects, at the same states, and its number there

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.parts)

    @property
    def noise(self) -> Array | float:
        """The mean squared error ``[k, k]`` of a difference of two estimated actions' rows."""
        return next((part.noise for part, _ in self.parts if np.any(part.noise)), 0.0)

    def after(self, actions: int | NDArray[np.intp], rows: Rows) -> Array:
        """(P_aφ)(s) ``[r, k]`` at some of the states, for one action or for one action of each row."""
        if isinstance(actions, int | np.integer):
            part, index = self.parts[actions]
            return part.after(index, rows)
        numbers = np.arange(len(self))[rows]
        total = np.empty((len(numbers), self.basis.size))
        for action in np.unique(actions).tolist():
            chosen = actions == action
            total[chosen] = self.after(action, numbers[chosen])
        return total

    def ahead(self, w: Array) -> Array:
        """(P_aV)(s) for each action ``[A, n]``."""
        each = {id(part): part.ahead(w) for part, _ in self.parts}
        return np.stack([each[id(part)][index] for part, index in self.parts])

    def at(self, kept: NDArray[np.bool_]) -> Self:
        """The effects at some of the states."""
        each = {id(part): part.at(kept) for part, _ in self.parts}
        parts = tuple((each[id(part)], index) for part, index in self.parts)
        return replace(self, states=self.states[kept], parts=parts)

    def stored(self) -> Effects:
        """The same with numbers kept that would be computed often."""
        each = {id(part): part.stored() for part, _ in self.parts}
        return replace(self, parts=tuple((each[id(part)], index) for part, index in self.parts))


class DeclaredMoves:
    """A simulator in which some actions are declared; its other attributes are those of a simulator of the others.

    Args:
        estimated: the simulator of the others.
        declared: what the declared actions do.
        numbers: of the others there.
    """

    def __init__(self, estimated: Any, declared: Mapping[int, Resets | Moves], numbers: Mapping[int, int]) -> None:
        self._estimated, self._declared, self._numbers = estimated, declared, numbers
        self.n_actions, self.domain = len(declared) + len(numbers), estimated.domain

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._estimated, name)

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Any:
        """Next states ``[n, d]``."""
        return self._answer(states, action, lambda rows, number: self._estimated.sample(rows, number, rng), lambda x: x)

    def outcomes(self, states: Array, action: int) -> Any:
        """Next states ``[m, n, d]`` with weights ``[m]``; None where the simulator of the others has none."""
        if not hasattr(self._estimated, "outcomes"):
            return None
        return self._answer(states, action, self._estimated.outcomes, lambda after: (after[None], np.ones(1)))

    def extrapolated(self, states: Array, action: int) -> Any:
        """Where the next state of an action is extrapolated ``[n]``."""
        return self._answer(
            states, action, self._estimated.extrapolated, lambda after: np.zeros(len(after), dtype=bool)
        )

    def _answer(
        self, states: Array, action: int, ask: Callable[[Array, int], Any], known: Callable[[Array], Any]
    ) -> Any:
        """What the simulator of the others says, or what follows from the next states where they are declared."""
        moves = self._declared.get(action)
        if isinstance(moves, Resets):
            return ask(np.repeat(moves._place, len(states), axis=0), self._numbers[moves.then])
        if moves is None:
            return ask(states, self._numbers[action])
        return known(moved(moves, np.asarray(states), as_domain(self.domain)))


def _one_state(action: int, moves: Resets | Moves, domain: Box) -> Array:
    """The state to which a declared action leads from everywhere ``[d]``."""
    known = "a proof covers declared effects that lead to one state, wherever the action is taken"
    if isinstance(moves, Resets):
        raise ValueError(f"{known}, and {moves!r} moves on at random: leave effects, or delta, out")
    after = moved(moves, trial_states(domain), domain)
    if (after != after[0]).any():
        raise ValueError(f"{known}, and action {action} leads to several: leave effects, or delta, out")
    return np.asarray(after[0])


def moved(moves: Moves, states: Array, domain: Box) -> Array:
    """The next states of a declared action ``[n, d]``, checked."""
    what = "the declared effect of an action"
    answer = call(moves, states, what=what, read=lambda answer: as_reals(answer, f"what {what} returns"))
    if answer.shape not in {states.shape, states.shape[:1]}:
        raise ValueError(
            f"{what} must return the next state of each state, for {len(states)} states an array of shape "
            f"{list(states.shape)}, got {list(answer.shape)}"
        )
    return as_states(answer, domain, name=f"the states that {what} returns", instead="clip them in the function")


def as_declared(effects: Any, n_actions: int, domain: Box) -> Declared:
    """The actions whose effect is declared, checked."""
    if effects is None:
        return Declared()
    example = "effects={1: certirl.dynamics.Resets(to=0.0, then=0)} or {1: a function of states}"
    if not isinstance(effects, Mapping) or not effects:
        raise TypeError(f"effects must be what actions do, by their numbers, say {example}, got {shown(effects)}")
    for action, moves in effects.items():
        if isinstance(action, bool) or not isinstance(action, int | np.integer) or not 0 <= action < n_actions:
            raise ValueError(f"effects names the action {shown(action)}; actions are 0, …, {n_actions - 1}")
        if isinstance(moves, Resets):
            moves._check({int(each) for each in effects}, n_actions, domain)
        elif not callable(moves) or isinstance(moves, type):
            raise TypeError(f"effects must be {example}, got {shown(moves)} for action {action}")
        else:
            moved(moves, domain.uniform(TRIALS, np.random.default_rng(0)), domain)
    if len(effects) == n_actions:
        raise ValueError(
            "effects names every action: leave out one whose effect is in the data, or plan with a simulator"
        )
    return Declared({int(action): moves for action, moves in effects.items()})
