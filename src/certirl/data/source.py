"""Sources of transitions: simulators, from which more can be drawn, and logs.

`as_source` decides which of the two it is. A log marks the next
states in which its episodes were terminated; no function says which other states are terminal. Mostly it is a
coordinate beyond a threshold: `learn_terminal_boxes` finds such boxes by greedy splits along the coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.dependence import Sampling, can_pair, dependence, is_noiseless, noise_fault, one_of_each, sampling
from certirl.data.simulator import (
    NO_TERMINAL_STATES,
    Counted,
    Counts,
    Design,
    Draws,
    Purpose,
    Simulator,
    Terminal,
    as_generator,
    as_samples,
    check_simulator,
    counted_as,
    draw,
    periodic_of,
    terminal_of,
)
from certirl.data.tables import as_log
from certirl.data.transitions import Bias, Chunk, Stream, Transitions, as_names, concatenate
from certirl.functions.bases import Basis
from certirl.functions.ends import in_words, inside
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Domain, as_domain, even_mesh, uniform_states
from certirl.ground.doors import as_count, as_flag, as_number, by_door, setting
from certirl.ground.records import Record

_SEARCHED = {1: 401, 2: 101, 3: 25}  # states along each coordinate among which terminal ones are searched for
_DRAWN = 20_000  # states among which they are searched for in more coordinates, and by which they are described
FEWEST = 5  # states on either side of a split
FOLDS = 5  # of the states, held out in turn
ENOUGH = 200  # terminal states held out: further folds would tell little more
DEEPEST = 10  # splits one below the other
RELIABLE = 0.05  # the largest share of terminal states outside the boxes, and of other states inside


@dataclass(frozen=True, eq=False)
class Source(Record):
    """Where transitions come from: a simulator or a log.

    Attributes:
        simulator: the simulator, checked and counted; None for a log.
        log: the log; None for a simulator.

    :meta private:
    """

    simulator: Simulator | None = None
    log: Transitions | None = None

    @property
    def counts_of_rows(self) -> Counts | None:
        """The rows that a simulator was asked about so far; None for a log."""
        return self.simulator.counts if isinstance(self.simulator, Counted) else None

    def rows_asked(self, purpose: Purpose) -> int:
        """The rows that a simulator was asked about for a purpose, of the action with most; 0 for a log."""
        return 0 if self.counts_of_rows is None else self.counts_of_rows.most(purpose)

    def for_purpose(self, purpose: Purpose) -> Source:
        """The same with rows counted for another purpose."""
        return self if self.simulator is None else Source(simulator=counted_as(self.simulator, purpose))

    @property
    def domain(self) -> Domain:
        """The box of states."""
        return as_domain(self._any.domain)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self._any.n_actions

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions; empty if they have none."""
        return as_names(getattr(self._any, "action_names", ()), self.n_actions, "actions")

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The names of the coordinates; empty if they have none."""
        return as_names(getattr(self._any, "coordinate_names", ()), len(self.domain), "coordinates")

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to a log while it was read; none for a simulator."""
        return () if self.log is None else self.log.notes

    @property
    def periodic(self) -> tuple[int, ...]:
        """The periodic coordinates that a simulator or a log names."""
        return periodic_of(self._any)

    @property
    def _any(self) -> Any:
        return self.simulator if self.log is None else self.log

    @cached_property
    def has_terminal_states(self) -> bool:
        """Whether some states are terminal: marked in a log, or among many states of a simulator."""
        if self.log is not None:
            return self.log.terminal is not None and bool(self.log.terminal.any())
        terminal, domain = terminal_of(self.simulator), self.domain
        if terminal is None:
            return False
        along = _SEARCHED.get(len(domain))
        states = self._drawn_states() if along is None else even_mesh(domain, along)
        return bool(terminal(states).any())

    def terminal(self) -> tuple[Terminal | None, TerminalBoxes | None]:
        """A function that says which states are terminal, and boxes that describe them.

        Each is None where there is none. Boxes learned from a log are a function only if they are reliable.
        """
        if self.log is not None:
            if self.log.terminal is None or not self.has_terminal_states:
                return None, None
            boxes = learn_terminal_boxes(self.log.next_states, self.log.terminal)
            return (boxes if boxes.reliable else None), boxes
        terminal = terminal_of(self.simulator)
        if terminal is None:
            return None, None
        states = self._drawn_states()
        flags = terminal(states)
        return terminal, learn_terminal_boxes(states, flags) if flags.any() else None

    def _drawn_states(self) -> Array:
        return uniform_states(self.domain, _DRAWN, np.random.default_rng(0))

    def check_without_terminal(self) -> None:
        """Refuse terminal states."""
        if self.has_terminal_states:
            raise ValueError(NO_TERMINAL_STATES)

    def check_settings(self, *, samples: Any = None, paired: Any = None) -> None:
        """Refuse settings that are wrong, or without effect on a log."""
        for name, value in {"samples": samples, "paired": paired}.items():
            if value is not None and self.log is not None:
                raise ValueError(for_simulators(name))
        if samples is not None:
            as_samples(samples)
        if paired is not None:
            as_flag(paired, "paired")

    def check_noise(self) -> None:
        """Refuse simulators on whose random numbers no proof can rest."""
        fault = "" if self.simulator is None else noise_fault(self.simulator)
        if fault:
            raise ValueError(fault)

    def check_has_noise(self) -> None:
        """Refuse simulators without noise, of which draws certify nothing: where f jumps, so does E[f(s')|s, a]."""
        if self.simulator is not None and is_noiseless(self.simulator):
            instead = f"leave {setting('delta')} out"
            if len(self.domain) <= 2:
                instead = by_door("declare dynamics=certirl.Deterministic(…)", "use certirl cells")
            raise ValueError(
                "the simulator has no noise: its answers to copies of a state are all equal, and no tail is small for "
                f"such dynamics, so that draws certify no reward; {instead}"
            )

    def generator(self, rng: Any, role: str = "", *, plain: bool = False) -> np.random.Generator:
        """The generator of a task, as in `as_generator`; for a log of seed 0 if none is given."""
        return as_generator(0 if rng is None and self.log is not None else rng, role, plain=plain)

    def per_action(self, samples: int) -> int:
        """Transitions of the action with fewest: those of a log, else as many as are drawn."""
        return int(self.counts(samples).min())

    def counts(self, drawn: int) -> NDArray[np.int64]:
        """Transitions of every action of a log; of a simulator the number that is drawn of each ``[1]``."""
        return np.array([drawn]) if self.log is None else self.log.counts

    @cached_property
    def sampling(self) -> Sampling:
        """How the rows of a log depend on each other; those of a simulator do not."""
        return "independent" if self.log is None else sampling(self.log)

    def stream(
        self, samples: int, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> Draws | Transitions:
        """All transitions of a log, or draws.

        Args:
            samples: draws of every action.
            basis: its design or its weight gives the states.
            rng: a seed or Generator.
            design: as in `draw`.
            paired: draw with the same random numbers for every action; by a trial if None.
        """
        if self.simulator is None:
            assert self.log is not None
            return self.log
        pairs = can_pair(self.simulator, basis, rng, asked=paired)
        return draw(self.simulator, basis, samples, rng, design=design, paired=pairs)

    def pools(
        self,
        share: float,
        basis: Basis,
        rng: Any,
        *,
        samples: int = 0,
        design: bool | Design = True,
        paired: bool | None = None,
    ) -> tuple[Pool, Pool]:
        """Independent pools for training and for a proof: of draws, or of a divided log.

        Args:
            share: the part for training.
            basis: as in `stream`, like design and paired.
            rng: a seed or Generator.
            samples: draws of every action in both pools together; none before the pools grow if left out.
            design: of the states.
            paired: draw with the same random numbers for every action.
        """
        if self.simulator is None:
            assert self.log is not None
            training, fresh = divide(self.log, share, rng, self.sampling)
            if self.sampling == "independent":
                return Pool([training]), Pool([fresh])
            single: Callable[[], Transitions] = partial(_no_single_steps, self.log)
            ratio = len(fresh) / len(training)
            if self.sampling == "episodes":
                single = partial(one_of_each, fresh, training, rng.spawn(1)[0])
                ratio = (int(fresh.groups()[0].max()) + 1) / (int(training.groups()[0].max()) + 1)
            expected = max(int(ratio * training.per_action), 1)
            share = (int(training.groups()[0].max()) + 1) / len(training)
            return Pool([training]), Pool([fresh], expected=expected, single=single, single_share=share)
        generator = as_generator(rng)
        settings: dict[str, Any] = {"design": design, "refuse_terminal": True, "keeps": True}
        settings["paired"] = can_pair(self.simulator, basis, generator, asked=paired)
        first, second = (
            Pool([], partial(draw, self.simulator, basis, rng=child, **settings)) for child in generator.spawn(2)
        )
        if samples:
            first.grow(max(int(share * samples), 1))
            second.grow(max(samples - first.size, 1))
        return first, second


def for_simulators(name: str) -> str:
    """Why ``samples`` or ``paired`` must be left out with a log."""
    reasons = {
        "samples": "data that were recorded are used as they are",
        "paired": "a log says itself whether its rows are paired",
        "trials": "a log is tried in the model of its next state, which draws nothing",
    }
    return f"{setting(name)} is for simulators: {reasons[name]}, leave {setting(name)} out"


def check_enough(samples: int, columns: int, least: int) -> None:
    """Refuse so few draws of every action that no proof with these columns could come from them."""
    if samples < least:
        raise ValueError(f"{setting('samples')} must be at least {least:,} for {columns} columns, got {samples:,}")


def as_source(source: Any) -> Source:
    """A simulator, a log or a table as a source; anything else is refused."""
    if isinstance(source, Source):
        return source
    source = as_log(source)
    if isinstance(source, Transitions):
        return Source(log=source)
    check_simulator(source)
    return Source(simulator=Counted(source))


class Pool(Stream):
    """Transitions for training or for a proof; of draws only seeds are kept.

    Args:
        parts: the transitions.
        more: draws this many transitions of every action, ``more(n=…)``; None for a log, which does not grow.
        expected: transitions of the action with fewest that training data let us expect, where rows depend on each
            other and their number on where they lead.
        single: makes those of the rows that are independent; all are if left out.
        single_share: of the rows, which these are by training data.

    :meta private:
    """

    def __init__(
        self,
        parts: Sequence[Draws | Transitions],
        more: Callable[..., Draws] | None = None,
        *,
        expected: int | None = None,
        single: Callable[[], Transitions] | None = None,
        single_share: float = 1.0,
    ) -> None:
        self.parts, self._more, self._expected, self._single = list(parts), more, expected, single
        self.single_share = single_share

    @property
    def expected(self) -> int:
        """The size, if nothing but training data may be known of it."""
        return self.size if self._expected is None else self._expected

    def independent(self) -> Pool:
        """The rows that are independent of each other."""
        return self if self._single is None else Pool([self._single()])

    @property
    def size(self) -> int:
        """Transitions of the action with fewest."""
        return sum(part.per_action for part in self.parts)

    @property
    def total(self) -> int:
        """The number of transitions."""
        return sum(part.total for part in self.parts)

    def grow(self, size: int) -> None:
        """Enlarge to this size, where more can be drawn; nothing is drawn before the pool is read."""
        if self._more is not None and size > self.size:
            self.parts.append(self._more(n=size - self.size))

    def newest(self) -> Draws | Transitions:
        """The transitions that the last `grow` added; all of a log."""
        return self.parts[-1]

    def leading(self, size: int) -> Pool:
        """The first draws, at most this many of every action; all of a log."""
        parts, kept = list[Draws | Transitions](), 0
        for part in self.parts:
            if kept < size:
                parts.append(part.leading(size - kept))
                kept += part.per_action
        return Pool(parts)

    def log(self, most: int) -> Transitions:
        """The first draws as a record, at most this many of every action; all of a log."""
        return concatenate([part.record() for part in self.leading(most).parts])

    def chunks(self) -> list[Chunk]:
        """Those of all parts, in order."""
        return [chunk for part in self.parts for chunk in part.chunks()]


def _no_single_steps(log: Transitions) -> Transitions:
    raise ValueError(f"a refutation needs rows or episodes that are independent, and these {len(log):,} rows are not")


def check_declared(log: Transitions) -> None:
    """Refuse a log whose domain comes from the data, and what `check_unbiased` refuses."""
    if log.domain_from_data:  # fresh data would have placed the basis, and new states may lie outside
        raise ValueError("a certificate needs a declared domain: write Transitions(…, domain=(low, high))")
    check_unbiased(log)


def check_unbiased(log: Transitions) -> None:
    """Refuse a log whose rows are missing or changed because of where they lead."""
    for note in log.notes:
        if isinstance(note, Bias):
            raise ValueError(f"a proof needs rows as they were logged, and {note}: {note.cure}")


def divide(
    log: Transitions, share: float, rng: np.random.Generator, kind: Sampling | None = None
) -> tuple[Transitions, Transitions]:
    """Two disjoint parts of a log, for training and for a proof; a log on which no proof can rest is refused.

    The parts are random, of whole episodes; the first is the beginning of a log whose rows are in the order of time.

    Args:
        log: the rows.
        share: of the rows or episodes, for training.
        rng: for the division.
        kind: how rows depend on each other, as in `sampling`; looked up if left out.
    """
    check_declared(log)
    Source(log=log).check_without_terminal()
    kind = kind or sampling(log)
    sentence = dependence(log, kind)
    if sentence:
        raise ValueError(sentence)
    if kind != "order":
        return log.divided(share, rng)
    first = np.arange(len(log)) < int(share * len(log))
    if not first.any():
        raise ValueError(f"{len(log)} transitions are too few to set some aside for a certificate")
    training = log.where(first)
    if not training.per_action:
        raise ValueError(
            f"the first {len(training):,} rows, which are set aside for training as rows are in the order of time, "
            f"hold none of action {int(training.counts.argmin())}: shuffle rows that are independent, or record more"
        )
    return training, log.where(~first)


@archive.record
@dataclass(frozen=True, eq=False)
class TerminalBoxes(Record):
    """Boxes of terminal states: a function of states ``[n, d]`` to truth values ``[n]``.

    Attributes:
        boxes: low and high ends ``[b, 2, d]``, infinite where a coordinate does not matter.
        missed: the share of held-out terminal states that lie in no box.
        mistaken: the share of other held-out states that lie in one.
        n: states that it was learned from.

    :meta private:
    """

    boxes: Annotated[Array, Shape("b 2 d", infinite=True)]
    missed: float
    mistaken: float
    n: int

    def as_read(self, file: str) -> TerminalBoxes:
        """Refuse shares and counts that are none."""
        for share in (self.missed, self.mistaken):
            as_number(share, "a share of terminal states", least=0, most=1)
        as_count(self.n, "the states that terminal ones were learned from")
        return self

    @property
    def reliable(self) -> bool:
        """Both kinds of errors are rare."""
        return max(self.missed, self.mistaken) <= RELIABLE

    def __call__(self, states: ArrayLike) -> NDArray[np.bool_]:
        """Which states lie in a box ``[n]``."""
        return inside(self.boxes, states)

    def __str__(self) -> str:
        return in_words(self.boxes)


def learn_terminal_boxes(states: Array, terminal: NDArray[np.bool_]) -> TerminalBoxes:
    """Find boxes that hold the terminal states and few others, by splits along coordinates.

    Args:
        states: ``[n, d]``.
        terminal: which of them are terminal ``[n]``.
    """
    fold, predicted, truth = np.arange(len(states)) % FOLDS, np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
    for number in range(FOLDS):  # a log may have few terminal states: then each is held out once
        held_out = fold == number
        trial = TerminalBoxes(boxes_of(states[~held_out], terminal[~held_out]), 0.0, 0.0, 0)
        predicted = np.concatenate([predicted, trial(states[held_out])])
        truth = np.concatenate([truth, terminal[held_out]])
        if truth.sum() >= ENOUGH:
            break
    missed, mistaken = (float(e.mean()) if e.size else 0.0 for e in (~predicted[truth], predicted[~truth]))
    return TerminalBoxes(boxes_of(states, terminal), missed, mistaken, len(states))


def boxes_of(states: Array, marked: NDArray[np.bool_], *, deepest: int = DEEPEST, fewest: int = FEWEST) -> Array:
    """Boxes in which most states are marked ``[b, 2, d]``, by splits where both sides are purest (Gini).

    Args:
        states: ``[n, d]``.
        marked: ``[n]``.
        deepest: splits one below the other, at most.
        fewest: states on either side of a split.
    """
    d = states.shape[1]

    def split(rows: NDArray[np.bool_], box: Array, depth: int) -> list[Array]:
        share = marked[rows].mean() if rows.any() else 0.0
        cut = _best_cut(states[rows], marked[rows], fewest) if 0 < share < 1 and depth else None
        if cut is None:
            return [box] if share > 0.5 else []
        (axis, place), boxes, whole = cut, list[Array](), 0
        for side, end in ((states[:, axis] <= place, 1), (states[:, axis] > place, 0)):
            smaller = box.copy()
            smaller[end, axis] = place
            found = split(rows & side, smaller, depth - 1)
            boxes, whole = boxes + found, whole + (len(found) == 1 and found[0] is smaller)
        return [box] if whole == 2 else boxes  # both sides belong to it as a whole

    boxes = split(np.ones(len(states), dtype=bool), np.stack([np.full(d, -np.inf), np.full(d, np.inf)]), deepest)
    return np.array(boxes).reshape(-1, 2, d)


def _best_cut(states: Array, terminal: NDArray[np.bool_], fewest: int) -> tuple[int, float] | None:
    """Coordinate and place of the cut with the largest gain; None if none gains."""
    n, total, best = len(states), int(terminal.sum()), (0.0, 0, 0.0)
    left = np.arange(1, n)
    right = n - left
    for axis in range(states.shape[1] if n > 1 else 0):
        order = np.argsort(states[:, axis], kind="stable")
        along, hits = states[order, axis], np.cumsum(terminal[order])[:-1]
        impurity = hits * (left - hits) / left + (total - hits) * (right - total + hits) / right
        gain = total * (n - total) / n - impurity
        gain[(along[1:] == along[:-1]) | (left < fewest) | (right < fewest)] = 0.0
        at = int(gain.argmax())
        if gain[at] > best[0] * (1 + 1e-9):
            best = (float(gain[at]), axis, float((along[at] + along[at + 1]) / 2))
    return (best[1], best[2]) if best[0] > 1e-9 * n else None
