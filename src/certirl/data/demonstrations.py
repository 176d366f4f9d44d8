"""Policies estimated from demonstrations, with an interval for their share of errors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.dependence import originals
from certirl.data.formats import is_table
from certirl.data.policy import Policy
from certirl.data.simulator import as_generator
from certirl.data.tables import read_demonstrations
from certirl.data.transitions import Transitions
from certirl.functions.inequalities import binomial_interval
from certirl.ground.domain import (
    MOST_ACTIONS,
    WIDEN_OR_REMOVE,
    Array,
    Box,
    as_actions,
    as_axes,
    as_domain,
    as_n_actions,
    as_rows,
    as_states,
    count_actions,
)
from certirl.ground.doors import as_array, as_count, as_labels, as_number, as_probability, as_reals, call, setting
from certirl.kernels.tensors import is_tensor

NEIGHBOURS = (1, 3, 9, 27)  # numbers tried, where none is given
LEVEL = 0.05
FOLDS = 5  # of the demonstrations, each held out once, where one leaves open whether states predict actions
PARTS = 50  # of consecutive rows, where there are fewer episodes than folds
# A demonstration is set aside if at most `AGREEING` of the `WITNESSES` nearest others took its action; beside a switch
# about half of them do.
WITNESSES, AGREEING = 9, 2
MOST_ERRORS = 0.3  # the largest share of mistakes that can be declared: above it neighbours are no witnesses


@dataclass(frozen=True, eq=False)
class Demonstrated(Policy):
    """A policy estimated from demonstrations: a `Policy`, to be passed as ``expert=``.

    It was fitted to one part of the demonstrations, and its errors were counted on the other. The interval is about
    this fitted policy, at states distributed as in the demonstrations. Elsewhere nothing is known of the expert.

    Attributes:
        demonstrations: how many it was fitted to.
        held_out: how many its errors were counted on.
        errors: the share of errors among these; the mean of the shares of all episodes, where episodes are known.
        interval: that holds the true share with probability 95 %: exact for single demonstrations that are independent
            (Clopper and Pearson), and for whole episodes that are (Chernoff's bound, with one number for each).
        guessing: the share of errors of the most frequent action, whatever the state, among those held out.
        gain: an interval for the share of errors that are avoided beside guessing. It is from all episodes, each
            predicted without it, where those held out leave open whether there is any (Student's t, of the numbers of
            episodes, with confidence 95 %).
        groups: the number of episodes, or of different states, held out; None if demonstrations count singly.
        method: how it was estimated.
        mistakes: the share of demonstrated actions that were declared to be possibly mistaken. The interval is then
            about the expert without its mistakes, and wider by this share on both sides.
        set_aside: the demonstrations that were taken for mistakes, by their rows ``[m]``.
        action_names: of actions 0, 1, …, if the demonstrations name them.

    Example:
        >>> states = np.random.default_rng(0).uniform(-1, 1, 400)
        >>> policy = certirl.policy_from(states, (states > 0).astype(int), domain=(-1, 1))
        >>> low, high = policy.interval
        >>> policy.demonstrations, low <= policy.errors <= high, policy.is_guess
        (320, True, False)
    """

    demonstrations: int = 0
    held_out: int = 0
    errors: float = 0.0
    interval: tuple[float, float] = (0.0, 1.0)
    guessing: float = 1.0
    gain: tuple[float, float] = (0.0, 1.0)
    groups: int | None = None
    method: str = ""
    mistakes: float = 0.0
    set_aside: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    action_names: tuple[str, ...] = ()

    @property
    def is_guess(self) -> bool:
        """The errors may be as frequent as those of guessing: states do not predict the actions."""
        return self.errors > 0 and self.gain[0] <= 0

    def __str__(self) -> str:
        return f"{self.assumption[0].upper()}{self.assumption[1:]}."


def policy_from(
    states: ArrayLike | Transitions,
    actions: ArrayLike | None = None,
    *,
    method: Any = "neighbours",
    n_actions: int | None = None,
    episodes: ArrayLike | None = None,
    domain: Any = None,
    periodic: Sequence[int] = (),
    neighbours: int | None = None,
    held_out: float = 0.2,
    errors: float | None = None,
    rng: Any = 0,
    **columns: Any,
) -> Demonstrated:
    """Estimate the expert's policy from demonstrations; count its errors on held-out ones.

    Args:
        states: ``[n]`` or ``[n, d]``; or `Transitions`, whose actions, episodes and domain are then used; or a table,
            as in `certirl.logs.read`.
        actions: ``[n]``, numbers, or names, which are numbered in sorted order. For a table the names of actions
            0, 1, …; those that occur, in sorted order, if left out.
        method: "neighbours", the majority of the nearest demonstrations; or a classifier with ``fit`` and ``predict``,
            as in scikit-learn, which is copied and given coordinates scaled to [-1, 1], periodic ones as cosine and
            sine.
        n_actions: the number of actions; the largest in the data plus one if left out.
        episodes: the number of the episode of each demonstration ``[n]``: whole episodes are then held out, since the
            states of one are no independent tests; of fewer than five, parts of consecutive rows. Left out,
            demonstrations at one and the same state stay together.
        domain: its widths are the units of distances; that of the data if left out.
        periodic: periodic coordinates; transitions name their own.
        neighbours: how many vote; chosen among 1, 3, 9 and 27 by leaving one out of the fitted part, if left out.
        held_out: the share to count errors on.
        errors: the share of the demonstrated actions that may be mistakes, at most 0.3. Before the policy is fitted,
            demonstrations that their neighbours contradict are set aside, the most contradicted first and no more than
            this share; and the interval allows for mistakes among those held out.
        rng: a seed or Generator, for what is held out.
        **columns: which columns of a table to read, as in `certirl.logs.read`.

    Example:
        >>> states = np.random.default_rng(0).uniform(-1, 1, 400)
        >>> policy = certirl.policy_from(states, (states > 0).astype(int), domain=(-1, 1))
        >>> policy([[-0.5], [0.5]]).tolist(), policy.held_out, policy.errors < 0.05
        ([0, 1], 80, True)
    """
    data = _checked(states, actions, episodes, domain, n_actions, periodic, columns)
    test, *others = _held_out(data, held_out, as_generator(rng, "policy_from"))
    share = 0.0 if errors is None else as_number(errors, "errors", least=0, most=MOST_ERRORS, meaning="a share")
    fit = np.flatnonzero(~test)
    doubted = fit[_contradicted(data, fit, share)]
    fit = np.setdiff1d(fit, doubted)
    rule, name = _fit(method, data, fit, neighbours)
    wrong = Policy(data.n_actions, rule)(data.states[test]) != data.actions[test]
    gains = [_gains(data, test, wrong)]
    for fold in others if _student(gains[0])[0] <= 0 else ():
        again, _ = _fit(method, data, np.flatnonzero(~fold), neighbours)
        gains.append(_gains(data, fold, Policy(data.n_actions, again)(data.states[fold]) != data.actions[fold]))
    missed, interval, count = _counted(wrong, data.groups[test], single=not data.unit)
    interval = max(interval[0] - share, 0.0), min(interval[1] + share, 1.0)
    of = f" {data.unit.format(count)}, which count alike" if data.unit else ""
    without = f", without {data.copies:,} copies of episodes" if data.copies else ""
    if len(doubted):
        listed = ", ".join(map(str, data.rows[doubted[:5]])) + " …" * (len(doubted) > 5)
        without += f", without {len(doubted):,} that their neighbours contradict (rows {listed})"
    allowed = f" if up to {share:.3g} of the actions are mistakes" if share else ""
    assumption = (
        f"the expert's policy was estimated from {len(fit):,} demonstrations{without} ({name}): "
        f"{'different' if share else 'wrong'} at {missed:.2%} of {int(test.sum()):,} held out{of}, "
        f"{'wrong ' * bool(share)}at {interval[0]:.2%} to {interval[1]:.2%} of states like these with confidence "
        f"{1 - LEVEL:.0%}{allowed}; of other states nothing is known"
    )
    return Demonstrated(
        data.n_actions,
        rule,
        assumption=assumption,
        demonstrations=len(fit),
        held_out=int(test.sum()),
        errors=missed,
        interval=interval,
        guessing=float((data.actions[test] != np.bincount(data.actions[fit]).argmax()).mean()),
        gain=_student(np.concatenate(gains)),
        groups=count if data.unit else None,
        method=name,
        mistakes=share,
        set_aside=data.rows[doubted],
        action_names=data.action_names,
    )


class _Data(NamedTuple):
    """Demonstrations, checked."""

    states: Array  # ``[n, d]``
    actions: NDArray[np.intp]  # ``[n]``
    groups: NDArray[Any]  # demonstrations of the same group are held out together ``[n]``
    unit: str  # the groups in words; empty if each is one demonstration
    domain: Box
    periodic: tuple[int, ...]
    n_actions: int  # A
    rows: NDArray[np.intp]  # the row of each in the data ``[n]``
    action_names: tuple[str, ...] = ()  # of actions 0, 1, …, if they have any
    copies: int = 0  # episodes that were left out, as they have the same rows as others


def _checked(
    states: Any,
    actions: Any,
    episodes: Any,
    domain: Any,
    n_actions: int | None,
    periodic: Sequence[int],
    columns: Mapping[str, Any],
) -> _Data:
    are_names = actions is None or (isinstance(actions, list | tuple) and all(isinstance(a, str) for a in actions))
    names: tuple[str, ...] = ()
    rows = None
    if is_table(states) and (are_names or not hasattr(states, "__array__")):  # a frame beside actions holds states
        if episodes is not None or not are_names:
            raise TypeError(
                "a table holds its actions and episodes: leave these arguments out, or pass arrays, states and actions"
            )
        (states, actions, episodes), names = read_demonstrations(
            states, actions=actions, n_actions=n_actions, **columns
        )
        n_actions = len(names) or n_actions
    elif columns:
        raise TypeError(f"{next(iter(columns))} is for demonstrations in a table: leave it out, or pass a table")
    elif isinstance(states, Transitions):
        if actions is not None:
            raise TypeError("transitions hold their actions: leave actions out")
        if len(periodic):
            raise ValueError("transitions name their periodic coordinates: write Transitions(…, periodic=…)")
        log, names, rows = states, states.action_names, np.flatnonzero(states.in_episodes)
        if episodes is None and log.episodes is not None:
            episodes = log.episodes[rows]
        states, actions, periodic = log.states[rows], log.actions[rows], log.periodic
        domain = log.domain if domain is None else domain
        n_actions = log.n_actions if n_actions is None else n_actions
    if actions is None:
        raise TypeError("policy_from needs states and the actions taken there")
    declared = None if n_actions is None else as_n_actions(n_actions)
    found, actions = _numbered(actions)
    if found and declared not in (None, len(found)):
        listed = f"{', '.join(found)}, and n_actions is {declared}"
        raise ValueError(f"actions are {len(found)} names, {listed}: leave n_actions out, or write numbers for names")
    values = as_array(states, "states")
    states = as_rows(values, values.shape[1] if values.ndim == 2 else 1)
    taken = as_actions(actions, n_actions=declared)
    if len(states) != len(taken):
        raise ValueError(f"states and actions must be equally long, got {len(states)} and {len(taken)}")
    if len(states) < 2:
        raise ValueError(f"a policy needs two demonstrations or more, got {len(states)}")
    if len(periodic) and domain is None:
        raise ValueError(f"{setting('periodic')} needs a domain: write {setting('domain', '(low, high)')}")
    ends = np.stack([states.min(axis=0), states.max(axis=0)], axis=1)
    ends[ends[:, 0] == ends[:, 1]] += [-0.5, 0.5]  # a coordinate that never changes
    box = as_domain(ends if domain is None else domain)
    axes = as_axes(periodic, len(box))
    inside, rows = as_states(states, box, instead=WIDEN_OR_REMOVE), np.arange(len(states)) if rows is None else rows
    groups, unit, kept, copies = _grouped(inside, taken, episodes)
    count = count_actions(taken) if declared is None else declared
    return _Data(inside[kept], taken[kept], groups[kept], unit, box, axes, count, rows[kept], names or found, copies)


def _grouped(
    states: Array, actions: NDArray[np.intp], episodes: Any
) -> tuple[NDArray[Any], str, NDArray[np.bool_], int]:
    """Groups held out together ``[n]``, these in words, rows of no copied episode ``[n]``, and the number of copies."""
    kept = np.ones(len(states), dtype=bool)
    if episodes is None:  # a state that occurs twice is one test, and none if the policy was fitted to it
        different, which = np.unique(states, axis=0, return_inverse=True)
        if len(different) == len(states):
            return np.arange(len(states)), "", kept, 0
        return which.reshape(-1), "at {} different states", kept, 0
    groups = as_labels(episodes, "episodes")
    if groups.shape != actions.shape:
        raise ValueError(f"episodes must have one number for each of {len(actions)} demonstrations, got {groups.shape}")
    first = originals(groups, *states.T, actions)  # an episode that was fitted is no test of its copy
    _, which, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    first = np.where(sizes[which.reshape(-1)] > 1, first, groups)  # single steps from one start are no copies
    kept, copies = first == groups, len(np.unique(groups[first != groups]))
    if len(np.unique(first)) < FOLDS:
        return np.arange(len(groups)) * PARTS // len(groups), "in {} parts of few episodes", kept, copies
    return groups, "in {} episodes", kept, copies


def _numbered(actions: Any) -> tuple[tuple[str, ...], Any]:
    """The names of actions in sorted order, and their numbers ``[n]``; actions without names as they are."""
    if is_tensor(actions):
        return (), actions
    values = actions if isinstance(actions, np.ndarray) else np.asarray(actions, dtype=object)
    if values.dtype.kind not in "UO" or values.ndim != 1 or not all(isinstance(action, str) for action in values):
        return (), actions
    names, numbers = np.unique(values.astype(str), return_inverse=True)
    return tuple(names.tolist()), numbers.reshape(-1)


def _held_out(data: _Data, share: float, rng: np.random.Generator) -> list[NDArray[np.bool_]]:
    """Which demonstrations are held out, those of some groups ``[n]``; then those of other groups, up to five times."""
    names, which = np.unique(data.groups, return_inverse=True)
    count = round(len(names) * as_probability(share, "held_out"))
    if not 1 <= count < len(names):
        what = "episodes or different states" if data.unit else "demonstrations"
        raise ValueError(f"held_out must leave some of {len(names)} {what} on either side, got {share!r}")
    order = rng.permutation(len(names))
    starts = range(0, min(len(names) - count + 1, FOLDS * count), count)
    return [np.isin(which.reshape(-1), order[start : start + count]) for start in starts]


def _gains(data: _Data, test: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> Array:
    """By how much the most frequent action errs more often, in each group that is held out ``[g]``."""
    guessed = data.actions[test] != np.bincount(data.actions[~test]).argmax()
    _, which = np.unique(data.groups[test], return_inverse=True)
    which = which.reshape(-1)
    return np.bincount(which, guessed.astype(float) - wrong) / np.bincount(which)


def _student(numbers: Array) -> tuple[float, float]:
    """A 95 % interval for the mean of independent numbers, by Student's t."""
    from scipy.special import stdtrit

    if len(numbers) < 2:
        return -1.0, 1.0
    half = float(stdtrit(len(numbers) - 1, 1 - LEVEL / 2) * numbers.std(ddof=1) / np.sqrt(len(numbers)))
    return float(numbers.mean()) - half, float(numbers.mean()) + half


def _fit(method: Any, data: _Data, fit: NDArray[np.intp], count: int | None) -> tuple[Callable[[Array], Any], str]:
    """A function of states to actions, fitted to some of the data, and the name of the method."""
    if isinstance(method, str) and method == "neighbours":
        return _nearest(data, fit, count)
    if isinstance(method, str) or not (hasattr(method, "fit") and hasattr(method, "predict")):
        raise TypeError(
            f'method must be "neighbours" or a classifier with fit and predict, got {method!r}; scikit-learn has many: '
            'pip install "certirl[demonstrations]"'
        )
    around = list(data.periodic)

    def features(rows: Array) -> Array:
        scaled = 2 * data.domain.shares(rows) - 1
        angles = np.pi * scaled[:, around]
        return np.hstack([np.delete(scaled, around, axis=1), np.cos(angles), np.sin(angles)])

    fitted, name = copy.deepcopy(method), type(method).__name__
    call(fitted.fit, features(data.states[fit]), data.actions[fit], what=f"{name}.fit")

    def predicted(rows: Array) -> NDArray[np.intp]:
        read = partial(as_reals, what=f"{name}.predict", truth=True)
        answer = call(fitted.predict, features(rows), what=f"{name}.predict", read=read)
        if answer.size != len(rows) or not np.isin(answer, np.arange(MOST_ACTIONS)).all():
            raise ValueError(f"{name}.predict must give one action 0, 1, … for each of {len(rows)} states")
        return answer.reshape(len(rows)).astype(np.intp)

    return predicted, name


def _search(data: _Data, fit: NDArray[np.intp]) -> Callable[[Array, int], NDArray[np.intp]]:
    """A function of states ``[n, d]`` and k to the actions of the nearest k demonstrations ``[n, k]``, by shares."""
    from scipy.spatial import cKDTree

    around = np.isin(np.arange(len(data.domain)), data.periodic)

    def scaled(rows: Array) -> Array:
        unit = data.domain.shares(rows)
        return np.where(around, unit % 1.0 % 1.0, unit)  # twice: -1e-17 % 1 is 1.0

    tree = cKDTree(scaled(data.states[fit]), boxsize=around.astype(float) if around.any() else None)
    actions = data.actions[fit]
    return lambda rows, k: actions[tree.query(scaled(rows), k=range(1, k + 1))[1]].reshape(len(rows), k)


def _contradicted(data: _Data, fit: NDArray[np.intp], share: float) -> NDArray[np.intp]:
    """The demonstrations, of these, whose neighbours took other actions, no more than this share of all."""
    if not share or len(fit) <= WITNESSES:
        return np.empty(0, dtype=np.intp)
    taken = _search(data, fit)(data.states[fit], WITNESSES + 1)[:, 1:]  # the nearest is the state itself
    agreeing = (taken == data.actions[fit][:, None]).sum(axis=1)
    rows = np.argsort(agreeing, kind="stable")[: int(np.ceil(share * len(fit)))]
    return np.sort(rows[agreeing[rows] <= AGREEING])


def _nearest(data: _Data, fit: NDArray[np.intp], count: int | None) -> tuple[Callable[[Array], NDArray[np.intp]], str]:
    """The majority of the nearest demonstrations, of these."""
    nearest, n_actions = _search(data, fit), int(data.actions[fit].max()) + 1

    def vote(taken: NDArray[np.intp]) -> NDArray[np.intp]:
        rows = np.arange(len(taken))
        places = (rows[:, None] * n_actions + taken).ravel()
        votes = np.bincount(places, minlength=len(rows) * n_actions).reshape(-1, n_actions).astype(float)
        votes[rows, taken[:, 0]] += 0.5  # on a tie the nearest demonstration decides
        return votes.argmax(axis=1)

    if count is None:
        numbers = [k for k in NEIGHBOURS if k < len(fit)]
        others = nearest(data.states[fit], numbers[-1] + 1)[:, 1:]  # the nearest is the state itself
        count = min(numbers, key=lambda k: float((vote(others[:, :k]) != data.actions[fit]).mean()))
    chosen = as_count(count, "neighbours", most=len(fit))

    def majority(rows: Array) -> NDArray[np.intp]:
        return vote(nearest(as_rows(rows, len(data.domain)), chosen))

    majority.thread_safe = True  # type: ignore[attr-defined]
    return majority, "nearest neighbour" if chosen == 1 else f"{chosen} nearest neighbours"


def _counted(wrong: NDArray[np.bool_], groups: NDArray[Any], *, single: bool) -> tuple[float, tuple[float, float], int]:
    """The share of errors, an interval for it, and the number of groups.

    The interval is exact if each group is a ``single`` demonstration.
    """
    names, which = np.unique(groups, return_inverse=True)
    shares = np.bincount(which.reshape(-1), wrong) / np.bincount(which.reshape(-1))
    mean, count = float(shares.mean()), len(names)
    interval = binomial_interval(int(wrong.sum()), count) if single else chernoff_interval(mean, count)
    return mean, interval, count


def chernoff_interval(mean: float, n: int) -> tuple[float, float]:
    """All p with n·kl(mean, p) ≤ log(2/0.05): a 95 % interval for n numbers in [0, 1]."""
    limit = float(np.log(2 / LEVEL)) / n

    def divergence(p: float) -> float:
        terms = [a * np.log(a / b) if a > 0 else 0.0 for a, b in ((mean, p), (1 - mean, 1 - p))]
        return float(sum(terms))

    ends = []
    for far in (0.0, 1.0):
        inner, outer = mean, far
        for _ in range(60):
            middle = (inner + outer) / 2
            inside = 0 < middle < 1 and divergence(middle) <= limit
            inner, outer = (middle, outer) if inside else (inner, middle)
        ends.append(outer)
    return ends[0], ends[1]
