"""Problems with known truth as simulators of torch tensors on a device, say "cuda"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from certirl.kernels import tensors
from certirl.problems import Independent, PolynomialProblem, Problem
from certirl.problems.dynamics import STEPS, Chords, chords


def on_device(problem: Problem, device: Any) -> Any:
    """The same problem as a simulator of tensors; of polynomial problems, alone or as independent components."""
    if isinstance(problem, Independent):
        return DeviceIndependent(problem, [on_device(part, device) for part in problem.parts], device)
    if not isinstance(problem, PolynomialProblem) or problem.bits is not None:
        raise ValueError(f"a device draws polynomial problems, and exactly: leave bits out; got {problem}")
    return DevicePolynomial(problem, device)


class DevicePolynomial:
    """A polynomial problem whose states are torch tensors on a device; draws and tables in single precision.

    Attributes:
        problem: the problem, which knows the truth.
        device: where tensors live.
    """

    thread_safe = True

    def __init__(self, problem: PolynomialProblem, device: Any) -> None:
        self.problem, self.device = problem, device
        self.n_actions, self.domain = problem.n_actions, problem.domain
        pairs = zip(problem.centre, problem.edge, strict=True)
        self._tables = [DeviceChords(chords(*pair), device) for pair in pairs]

    def __str__(self) -> str:
        return f"{self.problem} on {self.device}"

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """As `PolynomialProblem.sample`, with a torch Generator."""
        return self._tables[action].draw(states[:, 0], rng)


class DeviceIndependent:
    """Independent components whose states are torch tensors on a device.

    Attributes:
        problem: the problem, which knows the truth.
        device: where tensors live.
    """

    thread_safe = True

    def __init__(self, problem: Independent, parts: Sequence[Any], device: Any) -> None:
        self.problem, self.device, self._parts = problem, device, parts
        self.n_actions, self.domain = problem.n_actions, problem.domain

    def __str__(self) -> str:
        return f"{self.problem} on {self.device}"

    def sample(self, states: Any, action: int, rng: Any) -> Any:
        """As `Independent.sample`, with a torch Generator."""
        pairs = zip(self._parts, self.problem.components, strict=True)
        drawn = [part.sample(states[:, own], action, rng).reshape(-1, len(own)) for part, own in pairs]
        return tensors.torch().cat(drawn, dim=1)


class DeviceChords:
    """The same table as torch tensors: within a step of u single precision is enough.

    Args:
        table: of NumPy arrays.
        device: where draws are made.
    """

    def __init__(self, table: Chords, device: Any) -> None:
        library = tensors.torch()
        cuts = table.scale / STEPS
        steps = np.tile(np.arange(STEPS + 1), len(table.scale) // (STEPS + 1))
        first = np.rint(table.offset + cuts * steps).astype(np.int64)
        self._cuts = library.tensor(cuts, dtype=library.float32, device=device)
        self._first = library.tensor(first, dtype=library.int32, device=device)
        self._low = library.tensor(table.low, dtype=library.float32, device=device)
        self._width = library.tensor(table.width, dtype=library.float32, device=device)

    def draw(self, states: Any, rng: Any) -> Any:
        """One draw of (1 − s²)F_0 + s²F_1 for each state ``[n]``; one uniform number picks and is inverted."""
        library = tensors.torch()
        if tensors.can_fuse(states.device):
            from device_chords import draw_chords

            seed = int(library.randint(2**62, (1,), generator=rng, device=rng.device))
            tables = (self._cuts, self._first, self._low, self._width)
            return draw_chords(states.contiguous(), seed, tables, STEPS)
        square = (states**2).clamp(max=1.0)
        uniform = library.rand(len(square), generator=rng, device=rng.device)
        at_edge = uniform < square
        uniform = (uniform - square * ~at_edge) / library.where(at_edge, square, 1 - square)
        return self._invert(uniform.clamp(0.0, 1.0 - 2.0**-24), at_edge)

    def _invert(self, uniform: Any, which: Any) -> Any:
        scaled = uniform * STEPS
        step = scaled.int()
        place = step + which * (STEPS + 1)
        along = (scaled - step) * self._cuts[place]
        chord = along.int()
        where = self._first[place] + chord
        return self._low[where] + (along - chord) * self._width[where]
