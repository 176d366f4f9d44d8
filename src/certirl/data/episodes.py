"""Episodes: walks through states that end somewhere, and the transitions in them.

Within an episode every state is followed by the next; between two episodes nothing happens. The last state of an
episode that was terminated is terminal: it is made absorbing, by rows that lead from it to itself. One that was merely
cut off (truncated) is a state like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.transitions import Transitions
from certirl.ground.domain import (
    Array,
    Domain,
    as_actions,
    as_axes,
    as_domain,
    as_n_actions,
    as_rows,
    count_actions,
    describe,
    freeze,
)
from certirl.ground.doors import as_array, as_flag, as_flags, as_labels, as_reals, lend, setting, shown

OUTSIDE = ("refuse", "clip", "drop")


@dataclass(frozen=True, eq=False)
class Episode:
    """One walk ``s_0, a_0, s_1, …, s_T``.

    Attributes:
        states: ``[T + 1, d]``, the last one included.
        actions: ``[T]``, or controls ``[T, m]`` still to be told apart.
        terminated: the last state is terminal; False if the walk was merely cut off (truncated).
        rewards: the environment's own, ``[T]``; None if they were not kept.
    """

    states: Array
    actions: NDArray[Any]
    terminated: bool = False
    rewards: Array | None = None

    def __post_init__(self) -> None:
        states = np.array(as_array(self.states, "the states of an episode"))  # own arrays, that no caller can change
        actions = np.array(as_array(self.actions, "the actions of an episode", truth=True))
        if actions.ndim == 0 or states.ndim == 0 or len(states) != len(actions) + 1:
            found = [list(states.shape), list(actions.shape)]
            raise ValueError(
                f"an episode has one state more than actions, the last one included; got states and actions of {found}"
            )
        rewards = None if self.rewards is None else np.array(as_array(self.rewards, "the rewards of an episode"))
        if rewards is not None and rewards.shape != (len(actions),):
            raise ValueError(f"an episode of {len(actions)} actions has as many rewards, got {list(rewards.shape)}")
        number = isinstance(self.terminated, int | np.integer) and self.terminated in (0, 1)
        terminated = as_flag(bool(self.terminated) if number else self.terminated, "terminated")
        kept = {"states": states, "actions": actions, "terminated": terminated, "rewards": rewards}
        for name, value in kept.items():
            object.__setattr__(self, name, value)
        freeze(self)

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def total(self) -> float:
        """The undiscounted sum of the rewards."""
        if self.rewards is None:
            raise ValueError("this episode was kept without its rewards")
        return float(np.sum(self.rewards))


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps as they were logged, not yet checked.

    Attributes:
        states: ``[n, d]``.
        actions: ``[n]``, or controls ``[n, m]``.
        next_states: ``[n, d]``.
        terminal: which next states are ``[n]``.
        episodes: the number of the episode of each ``[n]``.
        notes: what was left out, in sentences.
    """

    states: Array
    actions: NDArray[Any]
    next_states: Array
    terminal: NDArray[np.bool_]
    episodes: NDArray[np.intp]
    notes: tuple[str, ...] = ()


def from_episodes(
    source: Any,
    *,
    domain: Any = None,
    n_actions: int | None = None,
    actions: Sequence[Any] | None = None,
    state: Callable[[Array], Any] | None = None,
    periodic: Sequence[int] = (),
    outside: str = "refuse",
    absorb: bool = True,
) -> Transitions:
    """Turn logged episodes into transitions: never across episodes, terminal states absorbing, nothing lost silently.

    Args:
        source: episodes: `Episode`, Minari's ``EpisodeData`` or a whole dataset, imitation's ``Trajectory``, pairs of
            states ``[T + 1, d]`` and actions ``[T]``, one of these or any iterable of them; imitation's flat
            ``Transitions``; or `Steps`. They are known by their attributes, so that neither library is needed.
        domain: the box the states live in; left out, the smallest box that holds the data.
        n_actions: the number of actions; left out, the largest one seen plus one.
        actions: the controls behind actions 0, 1, …, if the log holds controls: each is taken for the nearest one.
        state: observations ``[n, m]`` to states ``[n, d]``, if they differ.
        periodic: coordinates that go around the domain.
        outside: what to do with states beyond the domain: "refuse" with an account of them, "clip" to its edge, or
            "drop" their transitions; either is noted.
        absorb: add rows that lead from each terminal state to itself, one for every action.
    """
    if outside not in OUTSIDE:
        raise ValueError(f"{setting('outside')} must be one of {', '.join(map(repr, OUTSIDE))}, got {outside!r}")
    declared, absorb = None if n_actions is None else as_n_actions(n_actions), as_flag(absorb, "absorb")
    steps = gather(source)
    if len(steps.actions) == 0:
        raise ValueError("there are no steps in these episodes: each of them has a single state")
    if state is not None:
        steps = replace(steps, states=_mapped(state, steps.states), next_states=_mapped(state, steps.next_states))
    chosen, notes = _as_choices(steps.actions, actions, declared)
    steps = replace(steps, actions=chosen, notes=(*steps.notes, *notes))
    d = steps.states.shape[1]
    for name in ("states", "next_states"):
        checked: Any = {name: as_rows(getattr(steps, name), d, name=name)}
        steps = replace(steps, **checked)
    around = as_axes(periodic, d)
    if domain is not None:
        steps = _inside(steps, as_domain(domain), around, outside)
    elif around:
        raise ValueError(no_circle())
    count = (count_actions(chosen) if declared is None else declared) if actions is None else len(actions)
    if steps.terminal.any():
        steps = _absorbed(steps, count) if absorb else _noted(steps, f"{int(steps.terminal.sum())} terminal states")
    return Transitions(
        steps.states,
        steps.actions,
        steps.next_states,
        domain=domain,
        n_actions=count,
        terminal=steps.terminal,
        episodes=steps.episodes,
        notes=steps.notes,
    )


def no_circle() -> str:
    """Why a coordinate cannot go around."""
    box = setting("domain", "((low, high), …)")
    return f"a coordinate that goes around needs a domain to go around: write {box}"


def gather(source: Any) -> Steps:
    """The steps of whatever holds episodes."""
    if isinstance(source, Steps):
        return source
    if all(hasattr(source, name) for name in ("obs", "acts", "next_obs", "dones")):
        states, after, taken = _rows(source.obs), _rows(source.next_obs), np.asarray(source.acts)
        if states.shape != after.shape or len(taken) != len(states):
            shapes = [list(values.shape) for values in (states, taken, after)]
            raise ValueError(f"obs, acts and next_obs must be equally long, got shapes {shapes}")
        done = as_flags(source.dones, len(states), "dones")
        breaks = done[:-1] | (after[:-1] != states[1:]).any(axis=1)
        number = np.concatenate([[0], np.cumsum(breaks)]).astype(np.intp)
        return Steps(states, taken, after, done, number)
    found = [as_episode(source)] if _is_episode(source) else [as_episode(one) for one in _listed(source)]
    played = [(number, episode) for number, episode in enumerate(found) if len(episode)]
    if not played:
        raise ValueError(f"there are no steps in these {len(found)} episodes")
    empty = len(found) - len(played)
    _check_alike("states", {number: _rows(episode.states).shape[1:] for number, episode in played})
    _check_alike("actions", {number: _unboxed(episode.actions).shape[1:] for number, episode in played})
    return Steps(
        np.concatenate([_rows(episode.states)[:-1] for _, episode in played]),
        np.concatenate([_unboxed(episode.actions) for _, episode in played]),
        np.concatenate([_rows(episode.states)[1:] for _, episode in played]),
        np.concatenate([_last(len(episode), episode.terminated) for _, episode in played]),
        np.concatenate([np.full(len(episode), number, dtype=np.intp) for number, episode in played]),
        (f"{empty} episodes without a step were left out",) if empty else (),
    )


def _check_alike(name: str, shapes: dict[int, tuple[int, ...]]) -> None:
    """Refuse episodes, by their numbers, whose states or actions have different shapes."""
    first = next(iter(shapes))
    other = next((number for number, shape in shapes.items() if shape != shapes[first]), None)
    if other is not None:
        sizes = [int(np.prod(shapes[number])) for number in (first, other)]
        raise ValueError(
            f"the {name} of episodes differ in their number of coordinates: {sizes[0]} in episode {first}, {sizes[1]} "
            f"in episode {other}"
        )


def as_episode(thing: Any) -> Episode:
    """An episode from what other libraries call one."""
    if isinstance(thing, Episode):
        return thing
    if all(hasattr(thing, name) for name in ("observations", "actions", "terminations")):  # Minari
        marked = np.atleast_1d(np.asarray(thing.terminations))
        ends = as_flags(marked, len(marked), "terminations")
        if ends[:-1].any():
            raise ValueError(f"an episode is marked as terminated at step {int(ends.argmax())} of {len(ends)}")
        over = bool(ends.size and ends[-1])
        return Episode(_plain(thing.observations), _plain(thing.actions), over, getattr(thing, "rewards", None))
    if all(hasattr(thing, name) for name in ("obs", "acts", "terminal")):  # imitation
        return Episode(_plain(thing.obs), _plain(thing.acts), thing.terminal, getattr(thing, "rews", None))
    if isinstance(thing, tuple) and len(thing) in (2, 3):
        return Episode(*thing)
    raise TypeError(
        f"{type(thing).__name__} is no episode: it needs states, the last one included, and actions; write "
        "certirl.Episode(states, actions, terminated)"
    )


def split(
    states: ArrayLike,
    actions: ArrayLike,
    episodes: ArrayLike,
    *,
    terminated: ArrayLike | None = None,
    next_states: ArrayLike | None = None,
    own: int | None = None,
) -> Steps:
    """Rows of a table as steps, each with the number of its episode ``[n]``, in order within each episode.

    Without ``next_states`` the next state is the one in the next row of the episode. An episode then ends with a row
    for its last state, whose action is missing (nan, or below 0); if it is there, nobody knows where it led, and the
    row serves as the last state all the same.

    Args:
        states: ``[n]`` or ``[n, d]``.
        actions: ``[n]``.
        episodes: the number of the episode of each row ``[n]``; rows of different episodes may come mixed.
        terminated: where an episode was terminated: at its last step or its last state ``[n]``.
        next_states: like states, if the table has them; every row is then a step.
        own: give the steps from the first so many rows only, of rows whose episodes come one after the other; two more
            are enough to tell how they go on.
    """
    rows, number = _rows(states), as_labels(episodes, "episodes")
    given = _with_gaps(actions, "actions")
    over = (
        np.zeros(len(rows), dtype=bool)
        if terminated is None
        else np.nan_to_num(_with_gaps(terminated, "terminated")) != 0
    )
    if not rows.shape[0] == len(given) == len(number) == len(over):
        raise ValueError(f"states, actions, episodes and terminated must be equally long, got {len(rows)}, …")
    order = np.argsort(number, kind="stable")
    rows, given, number, over = rows[order], given[order], number[order], over[order]
    same, mine = number[1:] == number[:-1], np.arange(len(rows)) < (len(rows) if own is None else own)
    if next_states is not None:
        if (over[:-1] & same).any():
            raise ValueError(f"episode {number[:-1][over[:-1] & same][0]} goes on after it was terminated")
        after = _rows(next_states)[order]
        return Steps(rows[mine], given[mine], after[mine], over[mine], _numbered(number)[mine])
    last = np.append(~same, True)
    notes = []
    unknown = last & np.isfinite(given) & (given >= 0)
    if unknown[mine].any():
        notes.append(
            f"the last action of {int(unknown[mine].sum())} episodes has no next state in the data and was left out"
        )
    missing = ~last & ~(np.isfinite(given) & (given >= 0))
    if missing.any():
        raise ValueError(f"episode {number[missing.argmax()]} has a row without an action before its last one")
    start = np.flatnonzero(same & mine[:-1])
    # Marked at the last state, or at the step that led to it; an unknown next state was terminal, not this one.
    ends = (over[1:] & last[1:] & ~unknown[1:])[start] | (over[:-1] & ~unknown[:-1])[start]
    if (ends & ~last[1:][start]).any():
        raise ValueError(f"episode {number[start][(ends & ~last[1:][start]).argmax()]} goes on after it was terminated")
    return Steps(rows[start], given[start], rows[start + 1], ends, _numbered(number)[start], tuple(notes))


def _is_episode(thing: Any) -> bool:
    attributes = ("observations", "acts", "states")
    return isinstance(thing, Episode) or any(hasattr(thing, name) for name in attributes)


def _listed(source: Any) -> Iterable[Any]:
    try:
        return iter(source)
    except TypeError:
        raise TypeError(f"{type(source).__name__} holds no episodes: it cannot be walked through") from None


def _rows(states: Any) -> Array:
    values = as_array(states, "states")
    if values.ndim == 0:
        raise ValueError(f"states must have shape [n, d], got the number {values}")
    return values[:, None] if values.ndim == 1 else values.reshape(len(values), -1) if values.ndim > 2 else values


def _plain(values: Any) -> Any:
    if isinstance(values, dict | tuple):
        raise TypeError(
            f"observations and actions must be arrays, got a {type(values).__name__}; make episodes of the part that "
            "is the state: certirl.Episode(states, actions, terminated)"
        )
    return np.asarray(values)


def _with_gaps(column: Any, name: str) -> Array:
    """Numbers of which some may be missing: nan or None."""
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, nan where one is missing, got {shown(column)}") from None


def _unboxed(actions: NDArray[Any]) -> NDArray[Any]:
    return actions[:, 0] if actions.ndim == 2 and actions.shape[1] == 1 else actions


def _last(length: int, flag: bool) -> NDArray[np.bool_]:
    flags = np.zeros(length, dtype=bool)
    flags[-1] = flag
    return flags


def _numbered(labels: NDArray[Any]) -> NDArray[np.intp]:
    return np.unique(labels, return_inverse=True)[1].reshape(len(labels)).astype(np.intp)


def _mapped(state: Callable[[Array], Any], seen: Array) -> Array:
    if not callable(state):
        raise TypeError(f"state must be a function of observations [n, m], got {shown(state)}")
    found = as_reals(state(lend(seen)), "state(observations)").astype(np.float64)
    if found.ndim == 0 or len(found) != len(seen):
        raise ValueError(f"state(observations) got {len(seen)} observations and returned shape {list(found.shape)}")
    return _rows(found)


def _as_choices(
    logged: NDArray[Any], controls: Sequence[Any] | None, n_actions: int | None
) -> tuple[NDArray[np.intp], list[str]]:
    """Actions ``[n]``: as logged, or the nearest of the controls."""
    if controls is None:
        return as_actions(logged, n_actions=n_actions), []
    if isinstance(controls, str) or not isinstance(controls, Sequence | np.ndarray) or not len(controls):
        raise ValueError(
            f"actions must list the controls behind actions 0, 1, …, say [-1.0, 1.0], got {shown(controls)}"
        )
    levels = _rows(as_array([np.ravel(control) for control in controls], "actions")).astype(np.float64)
    if n_actions is not None and n_actions != len(controls):
        raise ValueError(f"actions lists {len(controls)} controls and n_actions is {n_actions}: leave n_actions out")
    given = _rows(logged)
    given = as_rows(given, given.shape[1], name="actions")
    if levels.shape[1] != given.shape[1]:
        raise ValueError(f"the log holds controls of {given.shape[1]} numbers, actions lists {levels.shape[1]} each")
    apart = np.stack([np.linalg.norm(given - level, axis=1) for level in levels], axis=1)
    nearest, gap = apart.argmin(axis=1), apart.min(axis=1)
    if gap.max() <= 1e-6 * max(float(np.ptp(levels)), 1e-300):
        return nearest, []
    told = f"controls were taken for the nearest of {len(levels)} actions: {gap.mean():.3g} away on average"
    return nearest, [f"{told}, {gap.max():.3g} at most, as if that made no difference"]


def _noted(steps: Steps, note: str) -> Steps:
    return replace(steps, notes=(*steps.notes, note))


def _inside(steps: Steps, domain: Domain, periodic: tuple[int, ...], outside: str) -> Steps:
    """Angles brought around; what lies beyond the domain refused, clipped or dropped."""
    if len(domain) != steps.states.shape[1]:
        raise ValueError(f"states have {steps.states.shape[1]} coordinates, the domain {describe(domain)} does not")
    low, high = np.array(domain).T
    ends = []
    for values in (steps.states, steps.next_states):
        turned = np.array(values, dtype=np.float64)
        for axis in periodic:
            turned[:, axis] = low[axis] + (turned[:, axis] - low[axis]) % (high[axis] - low[axis])
        ends.append(turned)
    # Single precision may round a state over the edge: that is no state beyond it.
    slack = 1e-6 * (high - low)
    beyond = np.stack([np.maximum(np.maximum(low - values, values - high) - slack, 0.0) for values in ends])
    rows = np.asarray((beyond > 0).any(axis=(0, 2)))
    inside = [np.clip(values, low, high) for values in ends]
    steps = replace(steps, states=inside[0], next_states=inside[1])
    if not rows.any():
        return steps
    account = _account(beyond, ends, domain, rows)
    if outside == "refuse":
        instead = " or ".join(setting("outside", repr(word)) for word in OUTSIDE[1:])
        raise ValueError(f"{account}; widen the domain, or write {instead}")
    if outside == "clip":
        return _noted(steps, f"{account}; they were put on its edge")
    if rows.all():
        raise ValueError(f"{account}; without them nothing is left")
    kept: Any = {
        name: getattr(steps, name)[~rows] for name in ("states", "actions", "next_states", "terminal", "episodes")
    }
    return _noted(replace(steps, **kept), f"{account}; these transitions were dropped")


def _account(beyond: Array, ends: list[Array], domain: Domain, rows: NDArray[np.bool_]) -> str:
    """How many transitions leave the domain, by which coordinates, and how far."""
    told = []
    for axis in np.flatnonzero((beyond > 0).any(axis=(0, 1))):
        end, row = np.unravel_index(int(beyond[:, :, axis].argmax()), beyond.shape[:2])
        count = int((beyond[:, :, axis] > 0).any(axis=0).sum())
        told.append(f"{count:,} in coordinate {axis} (farthest {ends[end][row, axis]:.6g}, step {row})")
    return f"{int(rows.sum()):,} of {len(rows):,} transitions leave the domain {describe(domain)}: {', '.join(told)}"


def _absorbed(steps: Steps, n_actions: int) -> Steps:
    final = np.repeat(steps.next_states[steps.terminal], n_actions, axis=0)
    count = int(steps.terminal.sum())
    told = f"{count:,} terminal state{'s were' if count > 1 else ' was'} made absorbing"
    return Steps(
        np.concatenate([steps.states, final]),
        np.concatenate([steps.actions, np.tile(np.arange(n_actions), count)]),
        np.concatenate([steps.next_states, final]),
        np.concatenate([steps.terminal, np.ones(len(final), dtype=bool)]),
        np.concatenate([steps.episodes, np.full(len(final), -1)]),
        (*steps.notes, f"{told}, by {len(final):,} rows from each to itself"),
    )
