"""Sources of transitions: a simulator, from which more can be drawn, or a log, which is used as it is.

`as_source` decides once which of the two it is; both answer the same questions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from certirl.data.dependence import dependence
from certirl.data.simulator import (
    NO_TERMINAL_STATES,
    Design,
    Draws,
    Simulator,
    Terminal,
    as_generator,
    as_samples,
    check_simulator,
    draw,
    periodic_of,
    terminal_of,
)
from certirl.data.terminal import TerminalBoxes, learn_terminal_boxes
from certirl.data.transitions import Chunk, Piece, Record, Stream, Transitions, concatenate
from certirl.data.trials import can_pair, noise_fault
from certirl.functions.bases import Basis
from certirl.ground.domain import Domain, as_domain, mesh
from certirl.ground.doors import as_flag, setting

_SEARCHED = {1: 401, 2: 101, 3: 25}  # states along each coordinate among which terminal ones are searched for
_DESCRIBED = 20_000  # states drawn to find terminal states in more coordinates, and to describe them by boxes


class Pool(Protocol):
    """Transitions for one purpose, training or proof, which can be read again."""

    @property
    def size(self) -> int:
        """Transitions per action, of the action with fewest."""
        ...

    def grow(self, size: int) -> None:
        """Enlarge to this size, where more can be drawn."""

    def newest(self) -> Stream:
        """The transitions that the last `grow` added."""
        ...

    def leading(self, size: int) -> Stream:
        """The first transitions, about this many per action."""
        ...

    def log(self, most: int) -> Transitions:
        """The first transitions as a record, at most this many per action if they are drawn."""
        ...

    def __iter__(self) -> Iterator[Piece]: ...

    def chunks(self) -> Sequence[Chunk]:
        """Of all transitions."""
        ...


class Source(ABC):
    """Where transitions come from.

    Attributes:
        simulator: the simulator; None for a log.
        log: the log; None for a simulator.
    """

    simulator: Simulator | None = None
    log: Transitions | None = None

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The box of states."""

    @property
    @abstractmethod
    def n_actions(self) -> int:
        """The number of actions."""

    @property
    def periodic(self) -> tuple[int, ...]:
        """The periodic coordinates, as far as the source names them."""
        return ()

    @property
    @abstractmethod
    def has_terminal_states(self) -> bool:
        """Whether some states are terminal."""

    @abstractmethod
    def terminal(self) -> tuple[Terminal | None, TerminalBoxes | None]:
        """A function that says which states are terminal, None if there is none to trust; and boxes that hold them."""

    @abstractmethod
    def check_settings(self, *, samples: Any = None, paired: Any = None) -> None:
        """Refuse settings that are wrong, or without effect."""

    @abstractmethod
    def check_noise(self) -> None:
        """Refuse random numbers on which no proof can rest."""

    def check_without_terminal(self) -> None:
        """Refuse terminal states."""
        if self.has_terminal_states:
            raise ValueError(NO_TERMINAL_STATES)

    @abstractmethod
    def generator(self, rng: Any, role: str = "") -> np.random.Generator:
        """The generator of a task; a log needs none to be given."""

    @abstractmethod
    def per_action(self, samples: int) -> int:
        """Transitions of the action with fewest: ``samples`` if they are drawn."""

    @abstractmethod
    def stream(
        self, samples: int, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> Draws | Record:
        """The transitions of a log, or ``samples`` draws of every action.

        Args:
            samples: transitions per action.
            basis: its design or weight gives the states.
            rng: a generator.
            design: as in `draw`.
            paired: draw with the same random numbers for every action; by a trial if None.
        """

    @abstractmethod
    def pools(
        self, share: float, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> tuple[Pool, Pool]:
        """Independent pools for training and for a proof: empty ones to draw into, or a log divided at random.

        The first ``share`` of a log is for training; the other arguments are those of `stream`.
        """

    def divided(
        self,
        share: float,
        samples: int,
        basis: Basis,
        rng: Any,
        *,
        design: bool | Design = True,
        paired: bool | None = None,
    ) -> tuple[Draws | Record, Draws | Record]:
        """Independent streams for training and for a proof, of ``samples`` draws in all or of a log."""
        training, fresh = self.pools(share, basis, rng, design=design, paired=paired)
        few = max(int(share * samples), 1)
        training.grow(few)
        fresh.grow(max(samples - few, 1))
        return training.newest(), fresh.newest()  # type: ignore[return-value]


def as_source(source: Any) -> Source:
    """A simulator or a log as a source; anything else is refused."""
    if isinstance(source, Source):
        return source
    return LogSource(source) if isinstance(source, Transitions) else SimulatorSource(source)


@dataclass(frozen=True, eq=False)
class LogSource(Source):
    """A log as a source."""

    log: Transitions

    @property
    def domain(self) -> Domain:
        """The box of states."""
        return self.log.domain

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self.log.n_actions

    @property
    def has_terminal_states(self) -> bool:
        """Whether some next states are marked as terminal."""
        return self.log.terminal is not None and bool(self.log.terminal.any())

    def terminal(self) -> tuple[Terminal | None, TerminalBoxes | None]:
        """Boxes learned from the marks, as a function only if they are reliable."""
        if self.log.terminal is None or not self.has_terminal_states:
            return None, None
        boxes = learn_terminal_boxes(self.log.next_states, self.log.terminal)
        return (boxes if boxes.reliable else None), boxes

    def check_settings(self, *, samples: Any = None, paired: Any = None) -> None:
        """Refuse settings of draws."""
        reasons = {
            "samples": (samples, "a log is used as it is"),
            "paired": (paired, "a log says itself whether its rows are paired"),
        }
        for name, (value, why) in reasons.items():
            if value is not None:
                raise ValueError(f"{setting(name)} is for simulators: {why}, leave {setting(name)} out")

    def check_noise(self) -> None:
        """Do nothing: `pools` looks for signs of dependence in a log."""

    def generator(self, rng: Any, role: str = "") -> np.random.Generator:
        """The generator of a task, of seed 0 if none is given."""
        return as_generator(0 if rng is None else rng, role)

    def per_action(self, samples: int) -> int:
        """Transitions of the action with fewest."""
        return int(self.log.counts.min())

    def stream(
        self, samples: int, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> Record:
        """All of its transitions."""
        return self.log.stream()

    def pools(
        self, share: float, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> tuple[Pool, Pool]:
        """The log divided at random, if a proof can rest on it."""
        training, fresh = divide(self.log, share, rng)
        return LogPool(training), LogPool(fresh)


def divide(log: Transitions, share: float, rng: np.random.Generator) -> tuple[Transitions, Transitions]:
    """Two disjoint random parts of a log on which a proof can rest; any other log is refused."""
    if log.domain_from_data:  # fresh data would have placed the basis, and new states may lie outside
        raise ValueError("a certificate needs a declared domain: write Transitions(…, domain=(low, high))")
    LogSource(log).check_without_terminal()
    sign = dependence(log)
    if sign is not None:
        raise ValueError(f"{sign}, or {sign.declaration or 'solve without delta'}")
    return log.divided(share, rng)


@dataclass(frozen=True, eq=False)
class SimulatorSource(Source):
    """A simulator as a source."""

    simulator: Simulator

    def __post_init__(self) -> None:
        check_simulator(self.simulator)

    @property
    def domain(self) -> Domain:
        """The box of states."""
        return as_domain(self.simulator.domain)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self.simulator.n_actions

    @property
    def periodic(self) -> tuple[int, ...]:
        """The periodic coordinates."""
        return periodic_of(self.simulator)

    @cached_property
    def has_terminal_states(self) -> bool:
        """Whether some states of a grid, or of many drawn states, are terminal."""
        terminal, domain = terminal_of(self.simulator), self.domain
        if terminal is None:
            return False
        if len(domain) in _SEARCHED:
            return bool(terminal(mesh([np.linspace(*side, _SEARCHED[len(domain)]) for side in domain])).any())
        return bool(terminal(self._even_states()).any())

    def terminal(self) -> tuple[Terminal | None, TerminalBoxes | None]:
        """The simulator's own function, described by boxes."""
        terminal = terminal_of(self.simulator)
        if terminal is None:
            return None, None
        states = self._even_states()
        over = terminal(states)
        return terminal, learn_terminal_boxes(states, over) if over.any() else None

    def _even_states(self) -> Any:
        low, high = np.array(self.domain).T
        return low + (high - low) * np.random.default_rng(0).random((_DESCRIBED, len(low)))

    def check_settings(self, *, samples: Any = None, paired: Any = None) -> None:
        """Refuse what is no number of transitions, or no answer."""
        if samples is not None:
            as_samples(samples)
        if paired is not None:
            as_flag(paired, "paired")

    def check_noise(self) -> None:
        """Refuse simulators whose rows share random numbers."""
        fault = noise_fault(self.simulator)
        if fault:
            raise ValueError(fault)

    def generator(self, rng: Any, role: str = "") -> np.random.Generator:
        """The generator of a task."""
        return as_generator(rng, role)

    def per_action(self, samples: int) -> int:
        """``samples``."""
        return samples

    def stream(
        self, samples: int, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> Draws:
        """Draws, none of them before they are read."""
        pairs = can_pair(self.simulator, basis, rng, asked=paired)
        return draw(self.simulator, basis, samples, rng, design=design, paired=pairs)

    def pools(
        self, share: float, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> tuple[Pool, Pool]:
        """Empty pools, with independent random numbers."""
        generator = as_generator(rng)
        pairs = can_pair(self.simulator, basis, generator, asked=paired)
        training, fresh = (DrawnPool(self.simulator, basis, stream, design, pairs) for stream in generator.spawn(2))
        return training, fresh


class DrawnPool:
    """A pool of draws: only seeds and numbers are kept."""

    def __init__(
        self, simulator: Simulator, basis: Basis, rng: np.random.Generator, design: bool | Design, paired: bool
    ) -> None:
        self._simulator, self._basis, self._rng = simulator, basis, rng
        self._settings: dict[str, Any] = {"design": design, "paired": paired, "refuse_terminal": True}
        self.parts: list[Draws] = []

    @property
    def size(self) -> int:
        """Transitions per action."""
        return sum(part.n for part in self.parts)

    def grow(self, size: int) -> None:
        """Enlarge to this size; nothing is drawn before the pool is read."""
        if size > self.size:
            self.parts.append(draw(self._simulator, self._basis, size - self.size, self._rng, **self._settings))

    def newest(self) -> Draws:
        """The draws that the last `grow` added."""
        return self.parts[-1]

    def leading(self, size: int) -> Draws:
        """The first draws, at most this many."""
        return replace(self.parts[0], n=min(self.parts[0].n, size))

    def log(self, most: int) -> Transitions:
        """The first draws as a record."""
        records, left = [], most
        for part in self.parts:
            kept = min(part.n, left)
            left -= kept
            if kept:
                records.append(replace(part, n=kept).log())
        return concatenate(records)

    def __iter__(self) -> Iterator[Piece]:
        return (piece for part in self.parts for piece in part)

    def chunks(self) -> list[Chunk]:
        """Those of all parts, in order."""
        return [chunk for part in self.parts for chunk in part.chunks()]


class LogPool:
    """A part of a divided log as a pool, which does not grow."""

    def __init__(self, log: Transitions) -> None:
        self._log = log

    @property
    def size(self) -> int:
        """Transitions of the action with fewest."""
        return int(self._log.counts.min())

    def grow(self, size: int) -> None:
        """Do nothing: a log holds all that there is."""

    def newest(self) -> Record:
        """All transitions."""
        return self._log.stream()

    def leading(self, size: int) -> Record:
        """All transitions."""
        return self._log.stream()

    def log(self, most: int) -> Transitions:
        """The record."""
        return self._log

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._log.stream())

    def chunks(self) -> Sequence[Chunk]:
        """Of all transitions, in order."""
        return self._log.stream().chunks()
