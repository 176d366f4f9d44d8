"""Signs of dependent draws: rows of a log that depend on others, shared random numbers.

A proof counts independent draws. Files lose what was known of the rows of a log (episodes, copies, steps of a walk),
and a simulator may draw its random numbers for several rows at once. docs/notes/attacks.md says what is noticed.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from certirl.data.memory import continuations, find_memory, keys_of
from certirl.data.simulator import Simulator, ask, ask_all, check_simulator, counted_as, device_of, draw
from certirl.data.transitions import Transitions, steps_within
from certirl.functions.bases import Basis
from certirl.ground.domain import Array, as_domain
from certirl.ground.doors import as_flag, by_door
from certirl.ground.records import freeze
from certirl.kernels import tensors

INDEPENDENT = "a certificate needs independent transitions, or rows in the order of time"
# What a proof assumes of the rows that it rests on: docs/notes/certificate.md, assumptions 1 and 1′.
_UNPAIRED = "given the states, the fresh transitions are independent of each other"
_PAIRED = (
    "the next states of different rows are independent of each other; within a row all actions may share random numbers"
)
_LOGGED = (
    "given all states and actions of the rows, their next states are independent, and each follows the dynamics of its "
    "action: no row is in the log, or missing, because of its next state"
)
_LOGGED_PAIRED = (
    _LOGGED.replace("their next states", "next states from different states")
    + "; the actions tried at one state may share random numbers"
)
_PAST = (
    "given everything before it, each next state follows the dynamics of its action; whether a step is in the log was "
    "decided before its next state was: no step or episode is missing because of where it led"
)
EPISODES = (
    f"episodes are independent of each other, and their number was fixed beforehand; {_PAST}; neither reward nor "
    "expert was learned from the episodes of the proof"
)
IN_ORDER = (
    f"rows are in the order of time, and their number was fixed beforehand; {_PAST}; neither reward nor expert was "
    "learned from the later rows, on which the proof rests"
)
SINGLE_STEPS = (
    f"episodes are independent of each other; of each one step is used, its number drawn beforehand; {_PAST}; neither "
    "reward nor expert was learned from the episodes of the proof"
)
Sampling = Literal["independent", "episodes", "order"]
_DECLARE = "write Transitions(…, independent=True) if each of them was drawn by itself"
_DECLARE_EPISODES = _DECLARE.replace("them", "the episodes")
_COINCIDENCE = 1e-6  # probabilities below this are not taken for chance
_FEWEST = 20  # different rows that must all be repeated to show copies
_FEWEST_EPISODES = 20  # that are divided at random; fewer are one sequence of rows
_NEARER = 30  # neighbouring states share a next state at most this many times as often as any two states

# States, copies of each, calls, and the ratio of variances above which rows are not independent; independent rows
# exceed it with a probability below 1e-15.
_STATES, _ROWS, _CALLS, _RATIO = 4, 64, 8, 6.0
_COPIES, _MOVED = 4096, 64  # rows of one state, and how many of them must differ from the most common answer
_CORRELATION = 0.25  # of ranks, at a shift: sixteen standard deviations
_ROUNDING = 1e-6  # of the width: smaller differences are those of single precision
_FEW = 256  # states at which pairs are tried


def sampling(log: Transitions) -> Sampling:
    """How the rows of a log depend on each other: not at all, within "episodes" only, or on all earlier ones.

    Rows that continue others, or episodes that do, are in the "order" of time; so are all that are declared not to be
    independent, and few episodes. docs/notes/certificate.md, section 18.
    """
    episodic = has_episodes(log)
    if log.paired or log.independent:
        return "episodes" if episodic else "independent"
    if log.independent is False:
        return "order"
    if not episodic:
        return "order" if continued_rows(log) else "independent"
    whole = _whole_episodes(log)
    return "order" if len(whole) < _FEWEST_EPISODES or continued_rows(whole) else "episodes"


def rows_in_words(kind: Sampling, *, logged: bool, paired: bool, single: bool = False) -> str:
    """What a proof assumes of its rows: those of a log, else of draws at states that were chosen before.

    Paired states were tried with every action; ``single`` means that of every episode one step is used.
    """
    if kind == "order":
        return IN_ORDER
    if kind == "episodes":
        return SINGLE_STEPS if single else EPISODES
    if logged:
        return _LOGGED_PAIRED if paired else _LOGGED
    return _PAIRED if paired else _UNPAIRED


def dependence(log: Transitions, kind: Sampling | None = None) -> str:
    """The first sign that no proof can rest on the rows of a log, as a sentence; empty if none.

    ``kind`` is how they depend on each other, where `sampling` has been asked.
    """
    kind = kind or sampling(log)
    if log.paired and (kind == "episodes" or log.independent is False):
        return _refusal("rows that depend on each other are paired with others", "leave paired out")
    if log.independent:
        return ""
    if kind != "independent":
        groups = log.groups()[0] if kind == "episodes" else np.zeros(len(log), dtype=np.intp)
        first, second = continuations(log)
        inside = groups[first] == groups[second]
        backwards = int((first > second)[inside].sum())
        if 10 * backwards > inside.sum():
            finding = f"in {backwards:,} places a step comes after the one that continues it"
            return _refusal(f"the rows are not in the order of time: {finding}", "sort them by episode and step")
    rows, what = (_whole_episodes(log), "episodes have the rows of") if kind == "episodes" else (log, "rows repeat")
    repeated = repeated_rows(rows)
    if repeated and kind == "episodes":  # these begin and end alike; a copy has every row of the other
        numbers, _ = log.groups()
        first = originals(numbers, *log.states.T, log.actions, *log.next_states.T)
        repeated = len(np.unique(numbers)) - len(np.unique(first))
    if repeated:
        another = "another" if kind == "episodes" else "the state, action and next state of another"
        finding = f"{repeated:,} of {len(rows):,} {what} {another}, as copies do"
        declare = {"independent": _DECLARE, "episodes": _DECLARE_EPISODES}.get(kind, "solve without delta")
        return _refusal(finding, "keep one of each", declare)
    found = find_memory(log, _COINCIDENCE)
    return _refusal(f"the next state depends on the step before: {found}", found.cure) if found.found else ""


def has_episodes(log: Transitions) -> bool:
    """Whether some rows of a log are steps of one episode."""
    return log.episodes is not None and _has_repeats(log.episodes[log.in_episodes])


def _whole_episodes(log: Transitions) -> Transitions:
    """Every episode as one row, from its first state to its last."""
    groups, steps = log.groups()
    starts = np.flatnonzero(steps == 0)
    ends = np.empty(len(starts), dtype=np.intp)
    ends[groups] = np.arange(len(log))  # the last row of each group is written last
    whole = log.where(steps == 0)
    freeze(whole, next_states=log.next_states[ends[groups[starts]]], episodes=None)
    return whole


def originals(episodes: NDArray[Any], *columns: NDArray[Any]) -> NDArray[Any]:
    """The episode of each row, or the first one whose rows hold the same columns, of which it is then a copy ``[n]``.

    Rows of one episode are in their order.
    """
    labels, which = np.unique(episodes, return_inverse=True)
    which = which.reshape(-1)
    contents = np.zeros(len(labels), dtype=np.uint64)
    np.add.at(contents, which, keys_of(steps_within(which), *columns))  # modulo 2⁶⁴
    _, first, same = np.unique(contents, return_index=True, return_inverse=True)
    return np.asarray(labels[first[same.reshape(-1)]][which])


def one_of_each(log: Transitions, training: Transitions, rng: np.random.Generator) -> Transitions:
    """One row of every episode of a log, by a number that is drawn beforehand; rows of no episode are kept.

    The numbers are those of random rows of ``training``, other episodes. An episode that ends before gives no row: to
    choose among the rows that it has would favour what makes episodes end. docs/notes/certificate.md, section 15.
    """
    if not has_episodes(log):
        return log
    groups, steps = log.groups()
    numbers = training.groups()[1]
    if has_episodes(training):
        numbers = numbers[training.in_episodes]
    drawn = numbers[rng.integers(len(numbers), size=int(groups.max()) + 1)]
    chosen = (steps == drawn[groups]) | ~log.in_episodes
    if not chosen.any():
        raise ValueError(f"{len(drawn)} episodes are too few for a refutation: it uses one step of each")
    return log.where(chosen)


def _refusal(finding: str, remedy: str, otherwise: str = "solve without delta") -> str:
    return f"{INDEPENDENT}, and {finding}: {remedy}, or {by_door(otherwise, 'leave --delta out')}"


def repeated_rows(log: Transitions) -> int:
    """The number of rows that repeat an earlier row, if they look like copies; else 0.

    Independent draws repeat a row only where states repeat (a grid) and next states do (points of positive probability,
    edges at which states are clipped, rounded data). Three signs tell copies from them:

    - more rows are repeated than would be if next states agreed after equal states no more than 30 times as often as
      after different ones; a single repeated row is too many where next states never agree after different states;
    - every row is repeated a multiple of the same number of times;
    - of the states tried more than once with an action, more lead to one and the same next state than of pairs of
      neighbouring states do.
    """
    from scipy.special import gammainc

    keys = keys_of(*log.states.T, log.actions)
    if not _has_repeats(keys):
        return 0
    order = np.argsort(keys, kind="stable")
    keys, actions, after = keys[order], log.actions[order], keys_of(*log.next_states.T)[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))  # of groups of rows with one state and action
    _, distinct, counts = np.unique(keys_of(keys, after), return_index=True, return_counts=True)
    repeated = len(log) - len(distinct)
    if not repeated:
        return 0
    sizes = np.diff(np.append(starts, len(log)))
    _, same_end = np.unique(keys_of(actions, after)[distinct], return_inverse=True)
    # Of pairs of rows with one action and different states, the share with one next state; copies do not change it.
    agreeing_pairs = _pairs(np.bincount(same_end.reshape(-1), counts)) - _pairs(counts)
    rate = agreeing_pairs / max(_pairs(np.bincount(actions)) - _pairs(sizes), 1)
    expected = min(_NEARER * rate, 1.0) * (_pairs(sizes) - len(log) / 2)
    if gammainc(repeated, expected) <= _COINCIDENCE:  # that a Poisson number of this mean is as large
        return repeated
    if len(counts) >= _FEWEST and int(np.gcd.reduce(counts)) > 1:
        return repeated
    several = sizes > 1
    one_end = np.minimum.reduceat(after, starts) == np.maximum.reduceat(after, starts)
    chance = _neighbours_agree(log.states[order[starts]], actions[starts], after[starts])
    tail = _binomial_tail(int((several & one_end).sum()), int(several.sum()), chance)
    if one_end.all():  # no state ever led to two next states: each repeated row is one more coincidence
        tail = chance**repeated
    return repeated if tail <= _COINCIDENCE else 0


def continued_rows(log: Transitions) -> int:
    """The number of rows that continue another row, if they look like a walk; else 0.

    A row continues another if it starts in the very state in which that one, and no other, ends. Such rows look like a
    walk if most rows are such, or if the row that follows comes later in the log much more often than earlier. States
    that occur often (rounded data, grids) leave few such rows: then most rows must start where the one before ends,
    and far more than if the order of the rows were random.
    """
    follow = _following_rows(log)
    if follow:
        return follow
    first, second = continuations(log)
    lag = second - first
    later, links = int((lag > 0).sum()), int((lag != 0).sum())
    return links if links > len(log) / 2 or _binomial_tail(later, links, 0.5) <= _COINCIDENCE else 0


def _following_rows(log: Transitions) -> int:
    """The number of rows that start where the row before ends, if most rows do and chance does not explain it."""
    after, states = keys_of(*log.next_states.T), keys_of(*log.states.T)
    follow = int((after[:-1] == states[1:]).sum())
    if 2 * follow <= len(log):
        return 0
    (ends, end_counts), (starts, start_counts) = (np.unique(keys, return_counts=True) for keys in (after, states))
    _, first, second = np.intersect1d(ends, starts, assume_unique=True, return_indices=True)
    chance = float((end_counts[first] / len(log)) @ (start_counts[second] / len(log)))
    return follow if _binomial_tail(follow, len(log) - 1, chance) <= _COINCIDENCE else 0


def _has_repeats(keys: NDArray[Any]) -> bool:
    """Whether some number occurs more than once."""
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


def _neighbours_agree(states: Array, actions: NDArray[np.intp], after: NDArray[np.uint64]) -> float:
    """The share of neighbouring states of one action that have one next state."""
    order = np.lexsort((*states.T[::-1], actions))
    actions, after = actions[order], after[order]
    agree = (after[1:] == after[:-1])[actions[1:] == actions[:-1]]
    return (int(agree.sum()) + 1) / (len(agree) + 1)


def _pairs(counts: NDArray[Any]) -> float:
    """The number of pairs within groups of m rows, each row with itself included: Σ m²/2."""
    return float((counts.astype(np.float64) ** 2).sum() / 2)


def _binomial_tail(count: int, trials: int, chance: float) -> float:
    """The probability that at least ``count`` of ``trials`` independent trials succeed."""
    from scipy.special import betainc

    return 1.0 if count == 0 else float(betainc(count, trials - count + 1, chance))


def noise_fault(simulator: Simulator, most: int | None = None) -> str:
    """A sentence about faulty random numbers of a simulator; empty if a trial finds none.

    A few states, each repeated in many rows, are passed in several calls with generators of fixed seeds, so that no
    generator of the user is used. The same seed must give the same answers. If rows are independent, the mean over the
    rows of a state varies from call to call by 1/√rows of the variation among rows: the ratio of both variances is then
    about 1, an average of F(calls − 1, …), and far above 1 if rows share random numbers. If random numbers are used
    again for later rows of a call, the answers to copies of one state repeat after a shift. At ``most`` so many
    rows of each action are asked about, or as many as a proof needs, 6,400.
    """
    rows, copies = _ROWS, _COPIES
    if most is not None:
        copies = min(most // 2, _COPIES) if most >= 2 * _MOVED**2 // 16 else 0
        rows = min((most - copies) // (_STATES * (_CALLS + 1)), _ROWS)
    states = as_domain(simulator.domain).uniform(_STATES, np.random.default_rng(0))
    for action in range(simulator.n_actions):
        if rows < 2:
            return ""
        several = np.repeat(states, rows, axis=0)
        calls = np.stack([answers(simulator, several, action, seed) for seed in range(_CALLS)])
        if np.abs(calls[0] - answers(simulator, several, action, 0)).max() > _ROUNDING:
            return (
                f"the simulator does not draw from the rng it is given: asked twice about the same states and action "
                f"{action} with the same rng, it answers differently; take every random number from rng, keep no state"
            )
        calls = calls.reshape(_CALLS, _STATES, rows, -1)
        within = calls.var(axis=2, ddof=1).mean(axis=0)
        between = rows * calls.mean(axis=2).var(axis=0, ddof=1)
        ratios = np.where(between > _ROUNDING**2, between / np.maximum(within, _ROUNDING**2), 0.0)
        if (ratios.mean(axis=0) > _RATIO).any():
            return (
                "the rows of one call share random numbers: of copies of one state the simulator's answers for action "
                f"{action} vary together from call to call; draw for every row by itself, say rng.random(len(states))"
            )
        repeated = answers(simulator, np.repeat(states[:1], copies, axis=0), action, 0) if copies else states[:0]
        shift = _repeated_after(repeated)
        if shift:
            return (
                f"rows of one call share random numbers: the simulator's answers to {copies:,} copies of one state "
                f"for action {action} repeat after {shift} rows; draw for every row by itself, say "
                "rng.random(len(states))"
            )
    return ""


def is_noiseless(simulator: Simulator) -> bool:
    """Whether answers to copies of some states never differ, and depend on the state."""
    states = as_domain(simulator.domain).uniform(_ROWS, np.random.default_rng(0))
    spreads = []
    for action in range(simulator.n_actions):
        calls = answers(simulator, np.repeat(states, _CALLS, axis=0), action, 0).reshape(_ROWS, _CALLS, -1)
        if np.ptp(calls, axis=1).max() > 0:
            return False
        spreads.append(np.ptp(calls[:, 0], axis=0).max())
    return bool(max(spreads) > _ROUNDING)


def answers(simulator: Simulator, states: Any, action: int, number: int) -> Array:
    """Next states as shares of the widths ``[n, d]``, with a generator of this seed."""
    domain, device, seed = as_domain(simulator.domain), device_of(simulator), np.random.SeedSequence(number)
    simulator = counted_as(simulator, "checks")
    if device is None:
        answer = ask(simulator, states, action, np.random.default_rng(seed), domain)
    else:
        rows = tensors.torch().tensor(states, device=device, dtype=tensors.torch().float32)
        answer = ask(simulator, rows, action, tensors.generator(seed, device), domain).double().cpu().numpy()
    return domain.shares(answer)


def _repeated_after(values: Array) -> int:
    """The shift after which the ranks in a column of values ``[n, d]`` repeat, or 0.

    For independent rows the correlation of ranks at each shift is about N(0, 1/n), whatever their distribution. Where
    fewer than ``_MOVED`` rows differ from the most common value, a few coincidences would look like a repetition.
    """
    for column in values.T if len(values) else ():
        _, ranks, counts = np.unique(column.round(12), return_inverse=True, return_counts=True)
        if len(column) - counts.max() < _MOVED:
            continue
        middle = (np.cumsum(counts) - (counts + 1) / 2)[ranks]
        spectrum = np.fft.rfft(middle - middle.mean(), 2 * len(column))
        sums = np.fft.irfft(np.abs(spectrum) ** 2)[: len(column) // 2]
        shifts = np.abs(sums) > max(_CORRELATION, 10 / np.sqrt(len(column))) * sums[0]
        if shifts[1:].any():
            return int(shifts[1:].argmax()) + 1
    return 0


def can_pair(simulator: Simulator, basis: Basis, rng: Any, *, asked: bool | None = None, count: int = _FEW) -> bool:
    """Whether rows keep their random numbers from action to action, by a trial.

    If not, a row of one action shares its random numbers with another row of the next (as in rejection sampling), rows
    are no longer independent of each other, and pairs must not be formed. Every action must use equally many random
    numbers, and distribute them alike: row by row, so that the first states get the same answers when they are asked
    about alone, or column by column, but not one action this way and one that. Nothing is tried if the user ``asked``;
    else two fifths of ``count`` states, from the basis's design, are asked about twice.
    """
    check_simulator(simulator)
    if asked is not None:
        return as_flag(asked, "paired")
    simulator = counted_as(simulator, "checks")
    draws = draw(simulator, basis, count, rng, design=True)
    generator = draws.generator_of(0)
    states = draws.states(count, generator)
    answers, aligned = ask_all(simulator, states, generator)
    if draws.on_device:
        return aligned
    few = 2 * count // 5
    fewer, _ = ask_all(simulator, states[:few].copy(), generator)
    row_by_row = {np.array_equal(some, many[:few]) for some, many in zip(fewer, answers, strict=True)}
    return aligned and len(row_by_row) == 1
