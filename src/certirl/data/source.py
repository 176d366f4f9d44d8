"""Sources of transitions: simulators, from which more can be drawn, and logs.

`as_source` decides once which of the two it is; nothing that works on a `Source` asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

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
from certirl.data.transitions import Chunk, Piece, Record, Transitions, concatenate
from certirl.data.trials import can_pair, noise_fault
from certirl.functions.bases import Basis
from certirl.ground.domain import Array, Domain, as_domain, mesh
from certirl.ground.doors import as_flag, setting

_SEARCHED = {1: 401, 2: 101, 3: 25}  # states along each coordinate among which terminal ones are searched for
_DRAWN = 20_000  # states among which they are searched for in more coordinates, and by which they are described


@dataclass(frozen=True, eq=False)
class Source:
    """Where transitions come from: a simulator or a log.

    Attributes:
        simulator: the simulator, checked; None for a log.
        log: the log; None for a simulator.
    """

    simulator: Simulator | None = None
    log: Transitions | None = None

    @property
    def domain(self) -> Domain:
        """The box of states."""
        return as_domain(self._any.domain)

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self._any.n_actions

    @property
    def periodic(self) -> tuple[int, ...]:
        """The periodic coordinates that a simulator names; none for a log."""
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
        states = self._even_states() if along is None else mesh([np.linspace(*side, along) for side in domain])
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
        states = self._even_states()
        over = terminal(states)
        return terminal, learn_terminal_boxes(states, over) if over.any() else None

    def _even_states(self) -> Array:
        low, high = np.array(self.domain).T
        return np.asarray(low + (high - low) * np.random.default_rng(0).random((_DRAWN, len(low))))

    def check_without_terminal(self) -> None:
        """Refuse terminal states."""
        if self.has_terminal_states:
            raise ValueError(NO_TERMINAL_STATES)

    def check_settings(self, *, samples: Any = None, paired: Any = None) -> None:
        """Refuse settings that are wrong, or without effect on a log."""
        reasons = {"samples": "a log is used as it is", "paired": "a log says itself whether its rows are paired"}
        for name, value in {"samples": samples, "paired": paired}.items():
            if value is not None and self.log is not None:
                raise ValueError(f"{setting(name)} is for simulators: {reasons[name]}, leave {setting(name)} out")
        if samples is not None:
            as_samples(samples)
        if paired is not None:
            as_flag(paired, "paired")

    def check_noise(self) -> None:
        """Refuse simulators on whose random numbers no proof can rest."""
        fault = "" if self.simulator is None else noise_fault(self.simulator)
        if fault:
            raise ValueError(fault)

    def generator(self, rng: Any, role: str = "", *, plain: bool = False) -> np.random.Generator:
        """The generator of a task, as in `as_generator`; for a log of seed 0 if none is given."""
        return as_generator(0 if rng is None and self.log is not None else rng, role, plain=plain)

    def per_action(self, samples: int) -> int:
        """Transitions of the action with fewest: those of a log, else as many as are drawn."""
        return samples if self.log is None else int(self.log.counts.min())

    def stream(
        self, samples: int, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> Draws | Record:
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
            return self.log.stream()
        pairs = can_pair(self.simulator, basis, rng, asked=paired)
        return draw(self.simulator, basis, samples, rng, design=design, paired=pairs)

    def pools(
        self, share: float, basis: Basis, rng: Any, *, design: bool | Design = True, paired: bool | None = None
    ) -> tuple[Pool, Pool]:
        """Independent pools for training and for a proof, empty or of a divided log.

        The first ``share`` of a log is for training; the other arguments are those of `stream`.
        """
        if self.simulator is None:
            assert self.log is not None
            training, fresh = divide(self.log, share, rng)
            return Pool([training.stream()]), Pool([fresh.stream()])
        generator = as_generator(rng)
        settings: dict[str, Any] = {"design": design, "refuse_terminal": True}
        settings["paired"] = can_pair(self.simulator, basis, generator, asked=paired)
        first, second = (partial(draw, self.simulator, basis, rng=child, **settings) for child in generator.spawn(2))
        return Pool([], first), Pool([], second)

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
        """Independent streams for training and for a proof, of ``samples`` draws or of a log."""
        training, fresh = self.pools(share, basis, rng, design=design, paired=paired)
        few = max(int(share * samples), 1)
        training.grow(few)
        fresh.grow(max(samples - few, 1))
        return training.newest(), fresh.newest()


def as_source(source: Any) -> Source:
    """A simulator or a log as a source; anything else is refused."""
    if isinstance(source, Source):
        return source
    if isinstance(source, Transitions):
        return Source(log=source)
    check_simulator(source)
    return Source(simulator=source)


class Pool:
    """Transitions for training or for a proof; of draws only seeds are kept.

    Args:
        parts: the transitions.
        more: draws this many transitions of every action, ``more(n=…)``; None for a log, which does not grow.
    """

    def __init__(self, parts: Sequence[Draws | Record], more: Callable[..., Draws] | None = None) -> None:
        self.parts, self._more = list(parts), more

    @property
    def size(self) -> int:
        """Transitions of the action with fewest."""
        return sum(part.per_action for part in self.parts)

    def grow(self, size: int) -> None:
        """Enlarge to this size, where more can be drawn; nothing is drawn before the pool is read."""
        if self._more is not None and size > self.size:
            self.parts.append(self._more(n=size - self.size))

    def newest(self) -> Draws | Record:
        """The transitions that the last `grow` added; all of a log."""
        return self.parts[-1]

    def leading(self, size: int) -> Pool:
        """The first draws, at most this many of every action; all of a log."""
        parts, kept = list[Draws | Record](), 0
        for part in self.parts:
            if kept < size:
                parts.append(part.leading(size - kept))
                kept += part.per_action
        return Pool(parts)

    def log(self, most: int) -> Transitions:
        """The first draws as a record, at most this many of every action; all of a log."""
        return concatenate([part.record() for part in self.leading(most).parts])

    def __iter__(self) -> Iterator[Piece]:
        return (piece for part in self.parts for piece in part)

    def chunks(self) -> list[Chunk]:
        """Those of all parts, in order."""
        return [chunk for part in self.parts for chunk in part.chunks()]


def divide(log: Transitions, share: float, rng: np.random.Generator) -> tuple[Transitions, Transitions]:
    """Two disjoint random parts of a log on which a proof can rest; any other log is refused."""
    if log.domain_from_data:  # fresh data would have placed the basis, and new states may lie outside
        raise ValueError("a certificate needs a declared domain: write Transitions(…, domain=(low, high))")
    Source(log=log).check_without_terminal()
    sign = dependence(log)
    if sign is not None:
        raise ValueError(f"{sign}, or {sign.declaration or 'solve without delta'}")
    return log.divided(share, rng)
