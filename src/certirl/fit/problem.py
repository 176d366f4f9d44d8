"""What a reward is sought for, as the value form sees it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from certirl.data.policy import Policy
from certirl.data.simulator import Terminal
from certirl.data.source import Source
from certirl.data.terminal import TerminalBoxes
from certirl.fit.drifts import EACH_ITS_OWN, Drifts
from certirl.ground.domain import Box


class ValueProblem(NamedTuple):
    """The dynamics, the expert and the discount.

    Attributes:
        source: a simulator or a log.
        policy: the expert.
        discount: γ.
        periodic: coordinates that are periodic.
        is_terminal: states to whether they are terminal; None if none is.
        terminal_boxes: the terminal states in boxes; None without any.
        declared: what actions do whose effect is declared, for logs: see `declared.Declared`.
        drifts: how the drifts of a log's actions are related.
    """

    source: Source
    policy: Policy
    discount: float
    periodic: tuple[int, ...]
    is_terminal: Terminal | None = None
    terminal_boxes: TerminalBoxes | None = None
    declared: Mapping[int, Any] = MappingProxyType({})
    drifts: Drifts = EACH_ITS_OWN

    @property
    def domain(self) -> Box:
        """The box of states."""
        return self.source.domain
