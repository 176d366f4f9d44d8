"""Episodes: sequences of states and actions, and the transitions in them.

Within an episode every state is followed by the next; nothing connects two episodes. The last state of an episode that
was terminated is terminal: it becomes absorbing, by rows that lead from it to itself. The last state of an episode that
was cut off (truncated) is a state like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import Bias, Transitions, as_names
from certirl.ground.domain import (
    MOST_ACTIONS,
    Array,
    Box,
    as_actions,
    as_axes,
    as_domain,
    as_exogenous,
    as_n_actions,
    as_rows,
    check_coordinates,
    count_actions,
    names_among,
    number_of,
)
from certirl.ground.doors import as_array, as_count, as_flag, as_flags, as_reals, call, setting, shown
from certirl.ground.records import Record, freeze, internal

OUTSIDE, LAGS = ("refuse", "clip", "drop"), ("action", "state")
_BIASED, _WIDEN = "which biases the dynamics near the edge", "widen the domain"
SIGN, SIGNS = "sign", ("negative", "zero", "positive")
_LISTED = 8  # levels of controls in a note
_ROUNDS = 100  # in which levels of controls are moved to the means of those nearest
_ROUNDING = 1e-6  # of the width: single precision may round a state over the edge of the domain


@dataclass(frozen=True, eq=False)
class Episode(Record):
    """One sequence ``s_0, a_0, s_1, …, s_T``.

    Attributes:
        states: ``[T + 1, d]``, the last one included.
        actions: ``[T]``, or controls ``[T, m]``.
        terminated: the last state is terminal; False if the episode was cut off (truncated).
        rewards: those of the environment, ``[T]``; None if they were not kept.

    Example:
        >>> states = [[0.0], [0.5], [1.0]]  # one more than actions
        >>> episode = certirl.logs.Episode(states, actions=[1, 1], terminated=True, rewards=[-1.0, -1.0])
        >>> episode.states.shape, episode.total
        ((3, 1), -2.0)
    """

    states: Array
    actions: NDArray[Any]
    terminated: bool = False
    rewards: Array | None = None

    def __post_init__(self) -> None:
        states = np.array(as_array(self.states, "the states of an episode"))  # copies, which no caller can change
        actions = np.array(as_array(self.actions, "the actions of an episode", truth=True))
        if actions.ndim == 0 or states.ndim == 0 or len(states) != len(actions) + 1:
            shapes = [list(states.shape), list(actions.shape)]
            raise ValueError(
                f"an episode has one state more than actions, the last one included; got states and actions of {shapes}"
            )
        rewards = None if self.rewards is None else np.array(as_array(self.rewards, "the rewards of an episode"))
        if rewards is not None and rewards.shape != (len(actions),):
            raise ValueError(f"an episode of {len(actions)} actions has as many rewards, got {list(rewards.shape)}")
        is_number = isinstance(self.terminated, int | np.integer) and self.terminated in (0, 1)
        terminated = as_flag(bool(self.terminated) if is_number else self.terminated, "terminated")
        freeze(self, states=states, actions=actions, terminated=terminated, rewards=rewards)

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def total(self) -> float:
        """The undiscounted sum of the rewards."""
        if self.rewards is None:
            raise ValueError("this episode was kept without its rewards")
        return float(np.sum(self.rewards))


_COLUMNS = ("states", "actions", "next_states", "terminal", "episodes", "step", "rows", "gone")
# What is counted beside rows that lack a value of a column; no column's name ends with a blank.
_LONG, _IDLE = "long ", "idle "


@dataclass(frozen=True, eq=False)
@internal
class Steps(Record):
    """Logged steps before `Conversion`, or rows of a table before they are paired to steps."""

    states: Array  # ``[n, d]``
    actions: NDArray[Any]  # ``[n]``, or controls ``[n, m]``; nan where missing
    next_states: Any  # ``[n, d]``; None for rows whose next states are in the rows that follow
    # which next states are terminal, or which rows end a terminated episode ``[n]``; None if unknown
    terminal: NDArray[np.bool_] | None = None
    # the number of the episode of each, -1 for those of none ``[n]``; None if unknown
    episodes: NDArray[Any] | None = None
    step: NDArray[Any] | None = None  # the order of rows within an episode ``[n]``; None if they are in order
    # the row of the table that each begins in, for error messages ``[n]``; None if there is no table
    rows: NDArray[np.intp] | None = None
    # the rows that lack a value and are to be left out, of rows before they are paired ``[n]``; None if there are none
    gone: NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()  # what was left out, in sentences
    # how many rows lack each column, "" for any of them; and how many long steps there are
    left_out: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.actions)

    def where(self, chosen: Any) -> Steps:
        """Some of them, by a slice, an order or truth values."""
        columns: Any = {name: getattr(self, name) for name in _COLUMNS}
        for name, values in columns.items():
            columns[name] = None if values is None else values[chosen]
        return replace(self, **columns)

    def place(self, number: int) -> str:
        """The row of the table that one of them begins in, in words."""
        return f"row {number if self.rows is None else self.rows[number]}"

    def noted(self, *notes: str) -> Steps:
        """The same with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    @staticmethod
    def joined(parts: Sequence[Steps]) -> Steps:
        """Several one after the other; columns that some of them do not have are None."""
        columns: Any = {name: [getattr(part, name) for part in parts] for name in _COLUMNS}
        for name, values in columns.items():
            columns[name] = None if any(column is None for column in values) else np.concatenate(values)
        notes, counts = tuple(note for part in parts for note in part.notes), (part.left_out for part in parts)
        return Steps(**columns, notes=notes, left_out=sum(counts, Counter[str]()))

    def placed(self) -> Steps:
        """The same; rows whose place in an episode is not known follow the row before them."""
        if self.gone is None or not self.gone.any():
            return self
        kept: Any = {name: _carried(getattr(self, name)) for name in ("episodes", "step")}
        return replace(self, **kept)

    def told(self, longest: float | None = None, unit: str = "") -> Steps:
        """The same, with notes on rows that lack a value and on long steps, which ended episodes."""
        which = ", ".join(f"{name} {n:,}" for name, n in self.left_out.items() if name not in ("", _LONG, _IDLE))
        rows, idle, long = (self.left_out[name] for name in ("", _IDLE, _LONG))
        parts, alike = (
            "; episodes end there, and go on as others" * (self.episodes is not None),
            "as if it did not matter",
        )
        notes = [
            f"left out: {number_of(rows, 'row')} without a value ({which}), {alike} where they led{parts}",
            f"{number_of(idle, 'row')} without an action, taken for last states{parts}",
            f"left out: {number_of(long, 'step')} longer than {longest or 0:.6g} {unit}{parts}",
        ]
        return self.noted(*(note for note, count in zip(notes, (rows, idle, long), strict=True) if count))

    def _in_parts(self, longest: float | None, idle: NDArray[np.bool_], kept: NDArray[np.bool_]) -> Steps:
        """Rows in order; episodes end at rows that are gone, after those without an action, and at longer steps.

        Counted are those among the rows that are ``kept``.
        """
        gone = np.zeros(len(self), dtype=bool) if self.gone is None else self.gone
        same = np.asarray(self.episodes)[1:] == np.asarray(self.episodes)[:-1]
        long = np.zeros(len(same), dtype=bool)
        if longest is not None:
            long = same & (np.diff(np.asarray(self.step)) > longest)
        parts = np.append(0, np.cumsum(~same | long | (gone | idle)[:-1]))
        episodes = np.where(self.episodes == -1, -1, parts)
        kept = kept & ~gone
        counts = Counter({_LONG: int((long & kept[:-1]).sum()), _IDLE: int((idle & kept)[:-1][same].sum())})
        return replace(self, episodes=episodes, left_out=self.left_out + counts)

    def by_episode(
        self,
        *,
        begun: int | None = None,
        controls: bool = False,
        unit: str = "step",
        drops: bool = False,
        longest: float | None = None,
    ) -> Steps:
        """The steps of episodes, of rows of a table.

        Without next states, the next state is the one in the next row of the episode. An episode then ends with a row
        for its last state, without an action (nan, or below 0 unless it is a control). If there is an action, its next
        state is unknown: the row serves as the last state all the same.

        Kept are the steps that begin in the first ``begun`` rows, of rows whose episodes come one after the other; two
        more rows tell how these steps continue. ``unit`` is that of `step`, for the note that steps differ in length.
        ``drops``: an episode ends at rows that lack a value, an action among them; steps ``longest`` long are the last.
        """
        rows = self.where(np.lexsort([column for column in (self.step, self.episodes) if column is not None]))
        kept = np.arange(len(self)) < (len(self) if begun is None else begun)
        if drops or longest is not None:
            waits = ~has_action(rows.actions, controls=controls) & (drops and rows.next_states is None)
            rows = rows._in_parts(longest, waits, kept)
            present = np.ones(len(rows), dtype=bool) if rows.gone is None else ~rows.gone
            rows, kept = rows.where(present), kept[present]
        episodes = np.asarray(rows.episodes)
        over = np.zeros(len(rows), dtype=bool) if rows.terminal is None else rows.terminal
        last = np.append(episodes[1:] != episodes[:-1], True)
        rows = replace(rows, episodes=numbered(episodes), terminal=over, step=None).noted(*_uneven(rows, last, unit))
        if rows.next_states is not None:
            _check_ends(over & ~last & (episodes != -1), rows)
            return rows.where(kept)
        acted = has_action(rows.actions, controls=controls)
        idle = np.flatnonzero(~last & ~acted)
        if len(idle):
            more = f" ({number_of(len(idle) - 1, 'further row')} alike)" if len(idle) > 1 else ""
            raise ValueError(f"{rows.place(idle[0])} has no action, and is not the last of its episode{more}")
        unknown = last & acted
        start = np.flatnonzero(~last & kept)
        # Marked at the last state, or at the step that led to it; where the next state is unknown, it was terminal.
        ends = (over & last & ~unknown)[start + 1] | over[start]
        _check_ends(ends & ~last[start + 1], rows.where(start))
        steps = replace(rows.where(start), next_states=rows.states[start + 1], terminal=ends)
        return steps.noted(*_lost(int((unknown & kept & ~over).sum()), int((unknown & kept & over).sum())))


def _carried(column: NDArray[Any] | None) -> NDArray[Any] | None:
    """A column with the value of the row before where one is missing; at its beginning the first that is there."""
    if column is None or column.dtype.kind != "f" or np.isfinite(column).all():
        return column
    there = np.isfinite(column)
    return np.asarray(
        column[np.maximum(np.maximum.accumulate(np.where(there, np.arange(len(column)), 0)), there.argmax())]
    )


def _lost(cut: int, ended: int) -> list[str]:
    """Notes about last actions without a next state, of episodes that were cut off and that were terminated."""
    of_cut, of_ended = (f"the last action of {number_of(count, 'episode')}" for count in (cut, ended))
    why = "has no next state in the data and was left out, as if a time limit had cut the episode off"
    biased = Bias(
        f"{of_ended} was left out because of where it led: to a terminal state that is not in the data",
        "add a last row to each of these episodes, with its last state and without an action",
    )
    return [f"{of_cut} {why}"] * bool(cut) + [biased] * bool(ended)


def _uneven(rows: Steps, last: NDArray[np.bool_], unit: str) -> list[str]:
    """A note if the steps of episodes are not equally long."""
    lengths = np.array([]) if rows.step is None else np.diff(rows.step)[~last[:-1]]
    alike = int((lengths == 0).sum())
    if alike:
        return [f"{alike:,} rows have the same {unit} as the one before them, and are in the order of the table"]
    usual = float(np.median(lengths)) if len(lengths) else 0.0
    low, high = (float(end) for end in (lengths.min(initial=usual), lengths.max(initial=usual)))
    if usual / 1.5 <= low and high <= 1.5 * usual:
        return []
    return [f"steps are {low:.4g} to {high:.4g} {unit} apart, {usual:.4g} in the median, and count alike"]


def has_action(actions: NDArray[Any], *, controls: bool = False) -> NDArray[np.bool_]:
    """Which rows have an action: numbers, and not below 0 unless they are controls ``[n]``."""
    acted = np.isfinite(actions) & (controls | (actions >= 0))
    return acted if acted.ndim == 1 else acted.all(axis=1)


def numbered(labels: NDArray[Any]) -> NDArray[np.intp]:
    """Numbers 0, 1, … for labels, in their order; -1 stays -1, which belongs to no episode."""
    names, numbers = np.unique(labels, return_inverse=True)
    return numbers.reshape(len(labels)).astype(np.intp) - int(len(names) > 0 and names[0] == -1)


def _check_ends(wrong: NDArray[np.bool_], rows: Steps) -> None:
    if wrong.any():
        raise ValueError(f"an episode continues after it was terminated in {rows.place(int(wrong.argmax()))}")


def from_episodes(
    source: Any,
    *,
    domain: Any = None,
    n_actions: int | None = None,
    actions: Sequence[Any] | None = None,
    state: Callable[[Array], Any] | None = None,
    periodic: Sequence[int | str] = (),
    exogenous: Sequence[int | str] = (),
    outside: str = "refuse",
    absorb: bool = True,
    lag: int | str | Sequence[str] = (),
    coordinate_names: Sequence[str] = (),
) -> Transitions:
    """Turn logged episodes into transitions: never across episodes, terminal states absorbing.

    Args:
        source: episodes: `Episode`, Minari's ``EpisodeData`` or a whole dataset, imitation's ``Trajectory``, pairs of
            states ``[T + 1, d]`` and actions ``[T]``, one of these or any iterable of them; imitation's flat
            ``Transitions``; or `Steps`. They are recognised by their attributes: neither library is needed.
        domain: the box of states; the smallest box around the data if left out.
        n_actions: the number of actions; the largest in the data plus one if left out.
        actions: what is behind actions 0, 1, …: their names; or, if the log holds controls, numbers, each control being
            taken for the nearest one; how many such levels there are, chosen so that they keep most of the variance of
            the controls; or "sign". How much of the variance is kept is noted.
        state: a function from observations ``[n, m]`` to states ``[n, d]``, if they differ.
        periodic: periodic coordinates, which are mapped into the domain; the transitions remember them.
        exogenous: coordinates that no action moves; the transitions remember them.
        outside: what to do with states outside the domain: "refuse" with an account of them, "clip" to its edge, or
            "drop" their transitions; the last two are noted.
        absorb: add rows that lead from each terminal state to itself, one for every action.
        lag: "action", or 1, makes the action of the step before a coordinate, "state" its state; both may be listed.
            Steps without one before are then left out.
        coordinate_names: the name of each coordinate of the state, which ``periodic`` and ``exogenous`` may use.

    Example:
        >>> episode = certirl.logs.Episode(states=[0.0, 0.5, 1.0], actions=[1, 1], terminated=True)
        >>> log = certirl.logs.from_episodes([episode, ([0.0, 0.4], [0])])
        >>> print(log)
        5 transitions on [0, 1]; per action: 2, 3
          1 terminal state was made absorbing, by 2 rows from each to itself
    """
    settings: Any = (domain, n_actions, actions, state, periodic, exogenous, outside, absorb, lag)
    steps = source if isinstance(source, Steps) else steps_in(source)
    conversion, names = Conversion(*settings), as_names(coordinate_names, len(coordinate_names), "coordinates")
    return conversion.located(len(names), names).transitions(steps, names) if names else conversion.transitions(steps)


@internal
class Signs(tuple[str, ...]):
    """Names of those signs that controls have, which are the actions."""


@dataclass(frozen=True)
@internal
class Conversion(Record):
    """How logged steps become transitions: the arguments of `from_episodes`, checked."""

    domain: Box | None = None
    n_actions: int | None = None
    actions: tuple[tuple[float, ...], ...] | tuple[str, ...] | int | str | None = None
    state: Callable[[Array], Any] | None = None
    periodic: tuple[int, ...] = ()  # numbers or names, and numbers once they are located
    exogenous: tuple[int, ...] = ()
    outside: str = "refuse"
    absorb: bool = True
    lag: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.outside not in OUTSIDE:
            raise ValueError(
                f"{setting('outside')} must be one of {', '.join(map(repr, OUTSIDE))}, got {shown(self.outside)}"
            )
        if self.state is not None and not callable(self.state):
            raise TypeError(f"state must be a function of observations [n, m], got {shown(self.state)}")
        domain = None if self.domain is None else as_domain(self.domain)
        count = None if self.n_actions is None else as_n_actions(self.n_actions)
        actions = None if self.actions is None else _as_names_or_controls(self.actions)
        if isinstance(actions, tuple):
            if count not in (None, len(actions)):
                raise ValueError(f"actions lists {len(actions)} of them, n_actions is {count}: leave n_actions out")
            count = as_n_actions(len(actions))
        box = setting("domain", "((low, high), …)")
        if domain is None and np.size(self.periodic):
            raise ValueError(f"a periodic coordinate needs a domain, whose width is its period: write {box}")
        if domain is None and self.outside != OUTSIDE[0]:
            raise ValueError(f"{setting('outside', repr(self.outside))} needs a domain: write {box}")
        absorb = as_flag(self.absorb, "absorb")
        freeze(self, domain=domain, n_actions=count, actions=actions, absorb=absorb, lag=_as_lag(self.lag))
        if domain is not None and not names_among(self.periodic) + names_among(self.exogenous):
            freeze(self, **self._located(len(domain), ()))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions; empty if they have none."""
        return tuple(name for name in self.actions if isinstance(name, str)) if isinstance(self.actions, tuple) else ()

    @property
    def takes_controls(self) -> bool:
        """Whether the log holds controls rather than actions."""
        return self.actions is not None and (isinstance(self.actions, Signs) or not self.action_names)

    @property
    def needs_levels(self) -> bool:
        """Whether the levels of controls are still to be found in the data."""
        return isinstance(self.actions, int | str)

    def with_levels(self, logged: NDArray[Any]) -> Conversion:
        """The same with levels for the logged controls, where only their number is known, or that signs count."""
        if not isinstance(self.actions, int | str):
            return self
        controls = _columns(logged)[has_action(logged, controls=True)]
        if controls.shape[1] != 1:
            each = f"{setting('actions')} must list controls, of {controls.shape[1]} numbers each as in the log"
            raise ValueError(f"{each}, got {shown(self.actions)}")
        if isinstance(self.actions, str):
            return replace(self, actions=Signs(SIGNS[int(sign) + 1] for sign in np.unique(np.sign(controls))))
        return replace(self, actions=tuple((level,) for level in _levels(controls[:, 0], self.actions).tolist()))

    def located(self, dimension: int, names: Sequence[str]) -> Conversion:
        """The same with the numbers of coordinates for their names; unknown ones are refused."""
        return replace(self, **self._located(dimension, names))

    def _located(self, dimension: int, names: Sequence[str]) -> dict[str, Any]:
        return {
            "periodic": as_axes(self.periodic, dimension, names=names),
            "exogenous": as_exogenous(self.exogenous, dimension, names=names),
        }

    @property
    def controls(self) -> Array | None:
        """The controls behind the actions ``[A, m]``; None if the log holds actions."""
        return np.array(self.actions) if isinstance(self.actions, tuple) and not self.action_names else None

    def transitions(self, steps: Steps, coordinate_names: tuple[str, ...] = ()) -> Transitions:
        """The record of all steps; the names are those of the coordinates before a function of observations."""
        levelled = self.with_levels(steps.actions)
        steps = levelled.apply(steps)
        n_actions = count_actions(steps.actions) if levelled.n_actions is None else levelled.n_actions
        names = () if self.state is not None else coordinate_names
        return Transitions(
            steps.states,
            steps.actions,
            steps.next_states,
            n_actions=n_actions,
            terminal=steps.terminal,
            episodes=steps.episodes,
            action_names=levelled.action_names,
            **self._described(steps.states.shape[1], n_actions, names),
            notes=steps.notes,
            # The parts of an episode depend on each other: no proof may take them for episodes that do not.
            independent=False if steps.episodes is not None and any(steps.left_out.values()) else None,
        )

    def apply(self, steps: Steps) -> Steps:
        """The steps with states in the domain ``[n, d]`` and actions 0, 1, … ``[n]``, checked."""
        if not len(steps):
            raise ValueError("there are no steps in these episodes: each of them has a single state")
        if self.state is not None:
            states, after = (_mapped(self.state, values) for values in (steps.states, steps.next_states))
            steps = replace(steps, states=states, next_states=after)
        actions, notes = self.choices(steps.actions)
        is_single = steps.states.dtype == np.float32
        d = steps.states.shape[1] if steps.states.ndim == 2 else 1
        states, after = (as_rows(getattr(steps, name), d, name=name) for name in ("states", "next_states"))
        steps = replace(steps, states=states, actions=actions, next_states=after).noted(*notes)
        if self.domain is not None:
            steps = self._inside(steps, self.domain, is_single)
        if self.lag:
            steps = self._lagged(steps)
        if steps.terminal is None or not steps.terminal.any():
            return steps
        if not self.absorb:
            return steps.noted(f"{int(steps.terminal.sum()):,} next states are terminal")
        return _absorbed(steps, count_actions(actions) if self.n_actions is None else self.n_actions)

    def choices(self, logged: NDArray[Any]) -> tuple[NDArray[np.intp], list[str]]:
        """Actions ``[n]``: as logged, or the signs of controls, or the nearest of some; and notes."""
        if not self.takes_controls:
            return as_actions(logged, n_actions=self.n_actions), []
        self = self.with_levels(logged)
        controls, levels = _columns(logged), self.controls
        controls = as_rows(controls, controls.shape[1], name="actions")
        if levels is None:
            signs = np.searchsorted([SIGNS.index(name) - 1 for name in self.action_names], np.sign(controls[:, 0]))
            return signs, [f"controls were taken for their signs, {_kept(controls, signs)}"]
        if levels.shape[1] != controls.shape[1]:
            raise ValueError(
                f"the log holds controls of {controls.shape[1]} numbers, actions lists {levels.shape[1]} each"
            )
        distances = np.stack([np.linalg.norm(controls - level, axis=1) for level in levels], axis=1)
        nearest, gap = distances.argmin(axis=1), distances.min(axis=1)
        apart = max(float(np.linalg.norm(levels - level, axis=1).max()) for level in levels)
        if gap.min() > apart > 0:
            raise ValueError(
                f"the log holds {controls.min():.6g} to {controls.max():.6g}, nowhere near the controls in actions, "
                f"{levels.min():.6g} to {levels.max():.6g}: leave actions out if these are numbers of actions"
            )
        if gap.max() <= 1e-6 * max(float(np.ptp(levels)), 1e-300):
            return nearest, []
        listed = ", ".join(" ".join(f"{number:.3g}" for number in level) for level in levels[:_LISTED])
        nearby = f"{len(levels)} actions ({listed}{', …' * (len(levels) > _LISTED)})"
        away = f"{gap.mean():.3g} away on average, {gap.max():.3g} at most"
        return nearest, [f"controls were taken for the nearest of {nearby}: {away}, {_kept(controls, nearest)}"]

    def _axes(self, d: int) -> list[int]:
        """Which coordinate of a step each coordinate is, -1 for its action, those of the step before after its own."""
        older = {"state": [*range(d)], "action": [-1]}
        return [*range(d), *(axis for kind in self.lag for axis in older[kind])]

    def _lagged(self, steps: Steps) -> Steps:
        """The steps that follow another of their episode, with what came before as coordinates."""
        if steps.episodes is None:
            raise ValueError(f"{setting('lag')} needs rows of episodes, in their order: name the column of the episode")
        follows = (steps.episodes[1:] == steps.episodes[:-1]) & (steps.episodes[1:] != -1)
        rows = np.flatnonzero(follows & (steps.next_states[:-1] == steps.states[1:]).all(axis=1)) + 1
        if not len(rows):
            raise ValueError(f"{setting('lag')} leaves nothing: no step follows another of its episode")
        d = steps.states.shape[1]
        own = np.column_stack([steps.states, steps.actions])[:, self._axes(d)[d:]]
        kept, left = steps.where(rows), number_of(len(steps) - len(rows), "step")
        states, after = np.hstack([kept.states, own[rows - 1]]), np.hstack([kept.next_states, own[rows]])
        what = f"the {' and the '.join(self.lag)} of the step before {'is a' if len(own.T) == 1 else 'are'} coordinate"
        lost = f"{left} without one before left out"
        return replace(kept, states=states, next_states=after).noted(f"{what}{'s' * (len(own.T) > 1)}; {lost}")

    def _described(self, total: int, n_actions: int, names: tuple[str, ...]) -> dict[str, Any]:
        """The domain, periodic and exogenous coordinates and the names of ``total`` coordinates."""
        d = (total - self.lag.count("action")) // (1 + self.lag.count("state"))
        axes, named = self._axes(d), (*names, "action")
        sides = None if self.domain is None else (*self.domain, (0.0, max(n_actions - 1.0, 1.0)))
        return {
            "domain": None if sides is None else [sides[axis] for axis in axes],
            **{
                kind: [n for n, axis in enumerate(axes) if axis in own] for kind, own in self._located(d, names).items()
            },
            "coordinate_names": names and ["previous " * (n >= d) + named[axis] for n, axis in enumerate(axes)],
        }

    def _inside(self, steps: Steps, domain: Box, is_single: bool) -> Steps:
        """Map periodic coordinates into the domain; refuse, clip or drop what lies outside it."""
        check_coordinates(steps.states.shape[1], domain)
        around = as_axes(self.periodic, len(domain))
        low, high = domain.ends
        slack = _ROUNDING * (high - low)
        if is_single:
            slack = np.maximum(slack, np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32)))
        slack[list(around)] = np.inf  # any number stands for a state in the domain
        ends = np.stack([steps.states, steps.next_states])
        moved = domain.moved_into(ends, around)
        inside = replace(steps, states=moved[0], next_states=moved[1])
        beyond = np.maximum(np.abs(ends - moved) - slack, 0.0)
        leaving = np.asarray((beyond > 0).any(axis=(0, 2)))
        if not leaving.any():
            return inside
        account = _account(beyond, ends, domain, steps.rows)
        if self.outside == "refuse":
            instead = " or ".join(setting("outside", repr(word)) for word in OUTSIDE[1:])
            raise ValueError(f"{account}; widen the domain, or write {instead}")
        if self.outside == "clip":
            if (beyond[0] > 0).any():  # where a state leads is known beyond the edge only
                return inside.noted(Bias(f"{account}; they were moved to its edge, {_BIASED}", _WIDEN))
            return inside.noted(f"{account}; they were moved to its edge")
        if leaving.all():
            raise ValueError(f"{account}; without them nothing is left")
        return inside.where(~leaving).noted(Bias(f"{account}; these transitions were dropped, {_BIASED}", _WIDEN))


def _kept(controls: Array, actions: NDArray[np.intp]) -> str:
    """Which share of the variance of controls ``[n, m]`` lies between those of different actions."""
    counts = np.maximum(np.bincount(actions), 1)
    means = np.stack([np.bincount(actions, column) for column in controls.T], axis=1) / counts[:, None]
    total = float(((controls - controls.mean(axis=0)) ** 2).sum())
    kept = 1 - float(((controls - means[actions]) ** 2).sum()) / total if total else 1.0
    return f"which keeps {kept:.0%} of their variance, as if the rest made no difference"


def _levels(controls: Array, count: int) -> Array:
    """Levels, in order, each the mean of the controls ``[n]`` nearest to it, so that they keep much of the variance."""
    different, counts = np.unique(controls, return_counts=True)
    if len(different) < count:
        there = number_of(len(different), "different control")
        raise ValueError(f"the log holds {there}, and actions asks for {count} levels")
    rows, sums = (np.append(0, np.cumsum(weights)) for weights in (counts, counts * different))
    levels = different[((np.arange(count) + 0.5) / count * len(different)).astype(int)]
    for _ in range(_ROUNDS):
        ends = np.concatenate([[0], np.searchsorted(different, (levels[1:] + levels[:-1]) / 2), [len(different)]])
        near = np.diff(rows[ends])
        levels = np.where(near > 0, np.diff(sums[ends]) / np.maximum(near, 1), levels)
    return levels


def _account(beyond: Array, ends: Array, domain: Box, rows: NDArray[np.intp] | None) -> str:
    """How many transitions leave the domain, by which coordinates, and how far."""
    count, parts = beyond.shape[1], []
    for axis in np.flatnonzero((beyond > 0).any(axis=(0, 1))):
        end, place = np.unravel_index(int(beyond[:, :, axis].argmax()), beyond.shape[:2])
        number = int((beyond[:, :, axis] > 0).any(axis=0).sum())
        row = place if rows is None else rows[place]
        parts.append(f"{number:,} in coordinate {axis} (farthest {ends[end, place, axis]:.6g}, row {row})")
    leaving = int((beyond > 0).any(axis=(0, 2)).sum())
    return f"{leaving:,} of {count:,} transitions leave the domain {domain.words}: {', '.join(parts)}"


def _absorbed(steps: Steps, n_actions: int) -> Steps:
    """The steps, and rows from every terminal state to itself, which belong to no episode."""
    terminal = np.asarray(steps.terminal)
    final, count = np.repeat(steps.next_states[terminal], n_actions, axis=0), int(terminal.sum())
    actions, none = np.tile(np.arange(n_actions), count), np.full(len(final), -1)
    standing = Steps(final, actions, final, np.ones(len(final), dtype=bool), none, None, none)
    states = f"{count:,} terminal state{'s were' if count > 1 else ' was'} made absorbing"
    return Steps.joined([steps, standing]).noted(f"{states}, by {len(final):,} rows from each to itself")


def steps_in(source: Any) -> Steps:
    """The steps of episodes in memory."""
    if all(hasattr(source, name) for name in ("obs", "acts", "next_obs", "dones")):  # imitation's flat record
        return _flat_steps(source)
    is_single = isinstance(source, Episode) or any(hasattr(source, name) for name in ("observations", "acts", "states"))
    if not is_single and not isinstance(source, Iterable):
        raise TypeError(f"{type(source).__name__} holds no episodes: it cannot be iterated over")
    episodes = [as_episode(episode) for episode in ([source] if is_single else source)]
    played = {number: episode for number, episode in enumerate(episodes) if len(episode)}
    if not played:
        raise ValueError(f"there are no steps in these {len(episodes)} episodes")
    states = {number: _columns(episode.states) for number, episode in played.items()}
    actions = {number: flat(episode.actions) for number, episode in played.items()}
    _check_alike("states", states)
    _check_alike("actions", actions)
    lengths = [len(episode) for episode in played.values()]
    terminal = np.zeros(sum(lengths), dtype=bool)
    terminal[np.cumsum(lengths) - 1] = [episode.terminated for episode in played.values()]
    steps = Steps(
        np.concatenate([values[:-1] for values in states.values()]),
        np.concatenate(list(actions.values())),
        np.concatenate([values[1:] for values in states.values()]),
        terminal,
        np.repeat(list(played), lengths),
    )
    empty = len(episodes) - len(played)
    return steps.noted(f"{empty} episodes without a step were left out") if empty else steps


def _flat_steps(source: Any) -> Steps:
    states, after, actions = _columns(source.obs), _columns(source.next_obs), np.asarray(source.acts)
    if states.shape != after.shape or len(actions) != len(states):
        shapes = [list(values.shape) for values in (states, actions, after)]
        raise ValueError(f"obs, acts and next_obs must be equally long, got shapes {shapes}")
    done = as_flags(source.dones, len(states), "dones")
    breaks = done[:-1] | (after[:-1] != states[1:]).any(axis=1)
    return Steps(states, actions, after, done, np.concatenate([[0], np.cumsum(breaks)]).astype(np.intp))


def _check_alike(name: str, values: dict[int, NDArray[Any]]) -> None:
    """Refuse episodes, by their numbers, whose states or actions differ in shape."""
    first = next(iter(values))
    for number, rows in values.items():
        if rows.shape[1:] != values[first].shape[1:]:
            sizes = [int(np.prod(values[episode].shape[1:])) for episode in (first, number)]
            raise ValueError(
                f"the {name} of episodes differ in their number of coordinates: {sizes[0]} in episode {first}, "
                f"{sizes[1]} in episode {number}"
            )


def as_episode(source: Any) -> Episode:
    """An episode from what other libraries call one."""
    if isinstance(source, Episode):
        return source
    if all(hasattr(source, name) for name in ("observations", "actions", "terminations")):  # Minari
        marks = np.atleast_1d(np.asarray(source.terminations))
        ends = as_flags(marks, len(marks), "terminations")
        if ends[:-1].any():
            raise ValueError(f"an episode is marked as terminated at step {int(ends.argmax())} of {len(ends)}")
        over = bool(ends.size and ends[-1])
        return Episode(_plain(source.observations), _plain(source.actions), over, getattr(source, "rewards", None))
    if all(hasattr(source, name) for name in ("obs", "acts", "terminal")):  # imitation
        return Episode(_plain(source.obs), _plain(source.acts), source.terminal, getattr(source, "rews", None))
    if isinstance(source, tuple) and len(source) in (2, 3):
        return Episode(*source)
    raise TypeError(
        f"{type(source).__name__} is no episode: it needs states, the last one included, and actions; write "
        "certirl.logs.Episode(states, actions, terminated)"
    )


def _columns(values: Any, name: str = "states") -> Array:
    """Numbers as ``[n, d]``."""
    rows = as_array(values, name)
    if rows.ndim == 0:
        raise ValueError(f"{name} must have shape [n, d], got the number {rows}")
    return rows.reshape(len(rows), -1) if rows.ndim != 2 else rows


def flat(actions: NDArray[Any]) -> NDArray[Any]:
    """Actions ``[n]`` from ``[n]`` or ``[n, 1]``; controls ``[n, m]`` stay as they are."""
    return actions[:, 0] if actions.ndim == 2 and actions.shape[1] == 1 else actions


def _plain(values: Any) -> Any:
    if isinstance(values, dict | tuple):
        raise TypeError(
            f"observations and actions must be arrays, got a {type(values).__name__}; make episodes of the part that "
            "is the state: certirl.logs.Episode(states, actions, terminated)"
        )
    return np.asarray(values)


def _mapped(state: Callable[[Array], Any], observations: Array) -> Array:
    states = call(state, observations, what="state", read=lambda answer: as_reals(answer, "state(observations)"))
    states = states.astype(np.float64)
    if states.ndim == 0 or len(states) != len(observations):
        raise ValueError(
            f"state(observations) got {len(observations)} observations and returned shape {list(states.shape)}"
        )
    return _columns(states)


def _as_lag(lag: Any) -> tuple[str, ...]:
    """What of the step before becomes coordinates."""
    listed = ("action",) if lag == 1 and not isinstance(lag, bool) else (lag,) if isinstance(lag, str) else lag
    if not isinstance(listed, list | tuple) or not {*listed} <= {*LAGS} or len({*listed}) < len(listed):
        raise ValueError(f'{setting("lag")} must be "action", "state" or both, got {shown(lag)}')
    return tuple(listed)


def _as_names_or_controls(actions: Any) -> Any:
    """Names of actions, all different; controls, each of one or more numbers; their number, or that signs count."""
    if isinstance(actions, Signs) or (isinstance(actions, str) and actions == SIGN):
        return actions
    if isinstance(actions, int | np.integer) and not isinstance(actions, bool):
        return as_count(actions, "actions", least=2, most=MOST_ACTIONS, meaning="a number of levels of controls")
    if isinstance(actions, str) or not isinstance(actions, Sequence | np.ndarray) or not len(actions):
        raise ValueError(
            "actions must list the controls behind actions 0, 1, …, say [-1.0, 1.0], or their names, say "
            f'["left", "right"], or be a number of levels, or "{SIGN}", got {shown(actions)}'
        )
    if all(isinstance(action, str) for action in actions):
        return as_names(actions, len(actions), "actions")
    levels = _columns(as_array([np.ravel(control) for control in actions], "actions")).astype(np.float64)
    return tuple(map(tuple, levels.tolist()))
