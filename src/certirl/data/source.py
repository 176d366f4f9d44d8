"""Sources of transitions: simulators, from which more can be drawn, and logs; `as_source` decides which one it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.data.dependence import Sampling, can_pair, dependence, is_noiseless, noise_fault, one_of_each, sampling
from certirl.data.simulator import (
    MOST_SAMPLES,
    NO_TERMINAL_STATES,
    Counted,
    Counts,
    Design,
    Draws,
    Purpose,
    Terminal,
    as_generator,
    as_samples,
    check_simulator,
    counted_as,
    device_of,
    draw,
    exogenous_of,
    periodic_of,
    terminal_of,
)
from certirl.data.tables import as_log
from certirl.data.terminal import TerminalBoxes, learn_terminal_boxes
from certirl.data.transitions import Bias, Chunk, Stream, Transitions, as_names, concatenate
from certirl.functions.bases import Basis
from certirl.ground.domain import Array, Box, as_domain, mesh
from certirl.ground.doors import as_flag, by_door, setting
from certirl.ground.records import Record, internal
from certirl.ground.status import call, is_complete, rounded_up

_SEARCHED = {1: 401, 2: 101, 3: 25}  # states along each coordinate among which terminal ones are searched for
_WITH_CORNERS = 8  # coordinates of a box whose corners are looked at
_DRAWN = 20_000  # states among which they are searched for in more coordinates, and by which they are described


class _Described(Record):
    """What a simulator and a log have in common; checks that one of them always passes do nothing here."""

    data: Any
    is_log: bool
    has_terminal_states: Any  # of each kind
    counts: Any

    @property
    def domain(self) -> Box:
        """The box of states."""
        return as_domain(self.data.domain)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return int(self.data.n_actions)

    @property
    def periodic(self) -> tuple[int, ...]:
        """The periodic coordinates."""
        return periodic_of(self.data)

    @property
    def exogenous(self) -> tuple[int, ...]:
        """The coordinates that no action moves."""
        return exogenous_of(self.data)

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions; empty if they have none."""
        return as_names(getattr(self.data, "action_names", ()), self.n_actions, "actions")

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The names of the coordinates; empty if they have none."""
        return as_names(getattr(self.data, "coordinate_names", ()), len(self.domain), "coordinates")

    def again(self, changed: str, function: str, rng: Any) -> str:
        """The call of a function with what `status.change` wrote, with other draws; empty if nothing changes."""
        if not changed or is_complete(changed):
            return changed
        if self.is_log:
            changed = re.sub(r"^samples=([\d_]+)(?:, )?(.*?)(?:  # (.*))?$", self._longer, changed)
        elif isinstance(rng, int | np.integer):
            settings, mark, note = changed.partition("  # ")
            changed = f"{settings}, rng={int(rng) + 1}{mark}{note}"
        return call(function, changed)

    def _longer(self, found: re.Match[str]) -> str:
        """The rows that a log should have, in place of transitions of each action."""
        rows = rounded_up(len(self.data) * int(found[1]) / max(self.per_action(0), 1))
        return f"{found[2]}  # {'; '.join(filter(None, [f'with a log of about {rows:,} rows', found[3]]))}"

    def check_without_terminal(self) -> None:
        """Refuse terminal states."""
        if self.has_terminal_states:
            raise ValueError(NO_TERMINAL_STATES)

    def check_noise(self) -> None:
        """Refuse random numbers on which no proof can rest."""
        fault = self.noise_fault()
        if fault:
            raise ValueError(fault)

    def per_action(self, samples: int) -> int:
        """Transitions of the action with fewest: those of a log, else as many as are drawn."""
        return int(self.counts(samples).min())

    def check_states(self, samples: int, least: int, most: int) -> None:
        """Refuse a simulator that cannot be asked about this many single states."""

    def check_declared(self) -> None:
        """Refuse a log whose domain comes from the data, and what `check_unbiased` refuses."""

    def check_unbiased(self) -> None:
        """Refuse a log whose rows are missing or changed because of where they lead."""

    def noise_fault(self, most: int | None = None) -> str:
        """A sentence about random numbers on which no proof can rest, as in `dependence.noise_fault`; or nothing."""
        return ""

    @property
    def made(self) -> tuple[int, ...]:
        """Actions whose rows were made from what is declared of them."""
        return ()

    def check_has_noise(self) -> None:
        """Refuse simulators without noise, of which draws certify nothing: where f jumps, so does E[f(s')|s, a]."""

    def check_enough(self, samples: int, columns: int, least: int) -> None:
        """Refuse so few draws of every action that no proof with these columns could come from them."""


@dataclass(frozen=True, eq=False)
@internal
class Simulated(_Described):
    """A simulator, checked and counted."""

    data: Counted
    is_log, noun = False, "the simulator"
    notes: ClassVar[tuple[str, ...]] = ()
    states: ClassVar[Array | None] = None  # any can be asked about
    sampling: ClassVar[Sampling] = "independent"

    @property
    def counts_of_rows(self) -> Counts:
        """The rows that it was asked about so far."""
        return self.data.counts

    def for_purpose(self, purpose: Purpose) -> Simulated:
        """The same with rows counted for another purpose."""
        return Simulated(counted_as(self.data, purpose))

    @cached_property
    def has_terminal_states(self) -> bool:
        """Whether some of many states are terminal."""
        terminal, domain = terminal_of(self.data), self.domain
        if terminal is None:
            return False
        along = _SEARCHED.get(len(domain))
        return bool(terminal(self._drawn_states() if along is None else domain.mesh(along)).any())

    def terminal(self) -> tuple[Terminal | None, TerminalBoxes | None]:
        """A function that says which states are terminal, and boxes that describe them; None where there is none."""
        terminal = terminal_of(self.data)
        if terminal is None:
            return None, None
        states = self._drawn_states()
        flags = terminal(states)
        return terminal, learn_terminal_boxes(states, flags) if flags.any() else None

    def _drawn_states(self) -> Array:
        return self.domain.uniform(_DRAWN, np.random.default_rng(0))

    def number_to_draw(self, asked: Any, *, usual: int, most: int = MOST_SAMPLES, paired: Any = None) -> int:
        """Draws of every action, the usual number if none is asked for."""
        if paired is not None:
            as_flag(paired, "paired")
        return as_samples(usual if asked is None else asked, most=most)

    def check_states(self, samples: int, least: int, most: int) -> None:
        """Refuse one on a device, and samples out of range."""
        if device_of(self.data) is not None:
            raise ValueError(
                "experts that depend on the state, and terminal states, need a simulator that works with NumPy arrays"
            )
        as_samples(samples, least=least, most=most)

    def noise_fault(self, most: int | None = None) -> str:
        """As in `dependence.noise_fault`."""
        return noise_fault(self.data, most)

    def check_has_noise(self) -> None:
        """Refuse a simulator whose answers to copies of a state are all equal."""
        if is_noiseless(self.data):
            instead = f"leave {setting('delta')} out"
            if len(self.domain) <= 2:
                instead = by_door("declare dynamics=certirl.dynamics.Deterministic(…)", "use certirl cells")
            raise ValueError(
                "the simulator has no noise: its answers to copies of a state are all equal, and no tail is small for "
                f"such dynamics, so that draws certify no reward; {instead}"
            )

    def check_enough(self, samples: int, columns: int, least: int) -> None:
        """Refuse fewer samples than the least."""
        if samples < least:
            raise ValueError(f"{setting('samples')} must be at least {least:,} for {columns} columns, got {samples:,}")

    def rows_for_trials(self, most: int) -> int:
        """The usual number of rows of each action by which an answer is tried: as many as it took."""
        return min(self.data.counts.most("answer"), most)

    def corners(self) -> Array:
        """The corners of the box where a reward is judged ``[m, d]``; of one of many coordinates none."""
        sides = [np.array(side) for side in self.domain]
        return mesh(sides) if len(sides) <= _WITH_CORNERS else np.empty((0, len(sides)))

    def generator(self, rng: Any, role: str = "", *, plain: bool = False) -> np.random.Generator:
        """The generator of a task, as in `as_generator`."""
        return as_generator(rng, role, plain=plain)

    def counts(self, drawn: int) -> NDArray[np.int64]:
        """Transitions of every action: as many as are drawn ``[1]``."""
        return np.array([drawn])

    def stream(
        self, samples: int, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> Draws:
        """Draws of every action, paired by a trial if that is not said; states as in `draw`."""
        pairs = can_pair(self.data, basis, rng, asked=paired)
        return draw(self.data, basis, samples, rng, design=design, paired=pairs)

    def pools(
        self, share: float, basis: Basis, rng: Any, *, samples: int = 0, paired: bool | None = None, **settings: Any
    ) -> tuple[Pool, Pool]:
        """Independent pools of draws, this share for training and the rest for a proof, in which there can be more.

        They have ``samples`` of every action together, or none before they grow; settings are as in `draw`.
        """
        generator = as_generator(rng)
        pairs = can_pair(self.data, basis, generator, asked=paired)
        settings = {"design": True, "refuse_terminal": True, "keeps": True, "paired": pairs} | settings
        more = partial(draw, self.data, basis, **settings)
        first, second = (Pool([], partial(more, rng=child)) for child in generator.spawn(2))
        if samples:
            first.grow(max(int(share * samples), 1))
            second.grow(max(samples - first.size, 1))
        return first, second


@dataclass(frozen=True, eq=False)
@internal
class Logged(_Described):
    """A log, which is used as it is."""

    data: Transitions
    is_log, noun = True, "the log"
    counts_of_rows: ClassVar[Counts | None] = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to it while it was read."""
        return self.data.notes

    @property
    def made(self) -> tuple[int, ...]:
        """As of the log."""
        return self.data.made

    @property
    def states(self) -> Array:
        """Those of its rows ``[n, d]``."""
        return self.data.states

    @cached_property
    def sampling(self) -> Sampling:
        """How its rows depend on each other."""
        return sampling(self.data)

    @property
    def has_terminal_states(self) -> bool:
        """Whether some next states are marked."""
        return self.data.terminal is not None and bool(self.data.terminal.any())

    def terminal(self) -> tuple[Terminal | None, TerminalBoxes | None]:
        """Boxes learned from the marks: a function, if they are reliable, and a description; None without marks."""
        if self.data.terminal is None or not self.data.terminal.any():
            return None, None
        boxes = learn_terminal_boxes(self.data.next_states, self.data.terminal)
        return (boxes if boxes.reliable else None), boxes

    def number_to_draw(self, asked: Any, *, usual: int, most: int = MOST_SAMPLES, paired: Any = None) -> int:
        """0; both settings are refused."""
        for name, value in {"samples": asked, "paired": paired}.items():
            if value is not None:
                raise ValueError(for_simulators(name))
        return 0

    def check_declared(self) -> None:
        """Refuse a domain that comes from the data, and what `check_unbiased` refuses."""
        if self.data.domain_from_data:  # fresh data would have placed the basis, and new states may lie outside
            raise ValueError(
                "a certificate needs a declared domain: write domain=(low, high) where the log is made, "
                "in certirl.logs.read(…) or Transitions(…)"
            )
        self.check_unbiased()

    def check_unbiased(self) -> None:
        """Refuse rows that are missing or changed because of where they lead."""
        for note in self.data.notes:
            if isinstance(note, Bias):
                raise ValueError(f"a proof needs rows as they were logged, and {note}: {note.cure}")

    def for_purpose(self, purpose: Purpose) -> Logged:
        """Itself: nothing is counted."""
        return self

    def rows_for_trials(self, most: int) -> int:
        """None."""
        return 0

    def corners(self) -> Array:
        """None: the log need not have been there ``[0, d]``."""
        return np.empty((0, len(self.domain)))

    def generator(self, rng: Any, role: str = "", *, plain: bool = False) -> np.random.Generator:
        """The generator of a task, of seed 0 if none is given."""
        return as_generator(0 if rng is None else rng, role, plain=plain)

    def counts(self, drawn: int) -> NDArray[np.int64]:
        """Its transitions of every action ``[A]``."""
        return self.data.counts

    def stream(self, samples: int, basis: Basis, rng: Any, **settings: Any) -> Transitions:
        """All of it."""
        return self.data

    def pools(self, share: float, basis: Basis, rng: Any, **settings: Any) -> tuple[Pool, Pool]:
        """Pools of two parts of it, for training and for a proof, and what can be known of the second beforehand."""
        training, fresh = self.divided(share, rng)
        if self.sampling == "independent":
            return Pool([training]), Pool([fresh])
        single: Callable[[], Transitions] = partial(_no_single_steps, self.data)
        ratio = len(fresh) / len(training)
        if self.sampling == "episodes":
            single = partial(one_of_each, fresh, training, rng.spawn(1)[0])
            ratio = (int(fresh.groups()[0].max()) + 1) / (int(training.groups()[0].max()) + 1)
        expected = max(int(ratio * training.per_action), 1)
        share = (int(training.groups()[0].max()) + 1) / len(training)
        return Pool([training]), Pool([fresh], expected=expected, single=single, single_share=share)

    def divided(self, share: float, rng: np.random.Generator) -> tuple[Transitions, Transitions]:
        """Two disjoint parts, this share of it and the rest; a log on which no proof can rest is refused.

        The parts are random, of whole episodes; the first is the beginning of a log whose rows are in the order of
        time.
        """
        self.check_declared()
        self.check_without_terminal()
        log, sentence = self.data, dependence(self.data, self.sampling)
        if sentence:
            raise ValueError(sentence)
        if self.sampling != "order":
            return log.divided(share, rng)
        first = np.arange(len(log)) < int(share * len(log))
        if not first.any():
            raise ValueError(f"{len(log)} transitions are too few to set some aside for a certificate")
        training = log.where(first)
        if not training.per_action:
            raise ValueError(
                f"the first {len(training):,} rows, which are set aside for training as rows are in the order of time, "
                f"hold none of action {int(training.counts.argmin())}: shuffle rows that are independent, or record "
                "more"
            )
        return training, log.where(~first)


Source = Simulated | Logged


def for_simulators(name: str) -> str:
    """Why ``samples`` or ``paired`` must be left out with a log."""
    reasons = {
        "samples": "data that were recorded are used as they are",
        "paired": "a log says itself whether its rows are paired",
        "trials": "a log is tried in the model of its next state, which draws nothing",
    }
    return f"{setting(name)} is for simulators: {reasons[name]}, leave {setting(name)} out"


def as_source(source: Any) -> Source:
    """A simulator, a log or a table as a source; anything else is refused."""
    if isinstance(source, Simulated | Logged):
        return source
    source = as_log(source)
    if isinstance(source, Transitions):
        return Logged(source)
    check_simulator(source)
    return Simulated(Counted(source))


@internal
class Pool(Stream):
    """Transitions for training or for a proof; of draws only seeds are kept.

    Args:
        parts: the transitions.
        more: draws this many of every action, ``more(n=…)``; None for a log, which does not grow.
        expected: those of the action with fewest that training data let us expect, where rows depend on each other.
        single: makes those of the rows that are independent; all are if left out.
        single_share: of the rows, which these are by training data.
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
    def grows(self) -> bool:
        """Whether more can be drawn."""
        return self._more is not None

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
