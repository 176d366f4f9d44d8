"""Interval Markov decision processes: bands of the transition probabilities between cells, for model checkers.

The box of states is divided into cells C_0, C_1, …. For action a and cell i the row of probabilities is

    p_a(i, j) = the average of P_a(C_j | s) over states s of C_i:

over the whole cell, evenly, where a simulator is asked at states drawn so; over the states of its own rows for a log.
All bands hold together with probability 1 − δ: each has the share δ/(A·S·T) of A actions, S cells and T targets.

- Simulator: the next states of different rows are independent, so that the number of rows that end in C_j is binomial,
  and the band is that of Clopper and Pearson.
- Log: rows may depend on the rows before them, as in episodes. With p_n = P_a(C_j | s_n), X_n whether row n ends in
  C_j, and any fixed λ, the product of exp(λ X_n)/(1 + p_n(e^λ − 1)) over the rows is a martingale. By the inequality of
  Ville it stays below 1/η for all numbers of rows with probability 1 − η, and since log(1 + p(e^λ − 1)) is concave in
  p, λ Σ X_n − N log(1 + p̄(e^λ − 1)) < log 1/η, which bounds the average p̄ from below for λ > 0 and from above for
  λ < 0. The band is the best over a few λ, each with its part of the share.

If the kernel is declared to be Lipschitz in total variation, the bands are widened by its largest change within a cell
and hold for every state of the cell, not for averages alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.simulator import ask, terminal_of
from certirl.data.source import Logged, as_source
from certirl.data.transitions import Transitions
from certirl.functions.cells import MOST_COORDINATES, Cells
from certirl.functions.reward import values_of
from certirl.ground import archive
from certirl.ground.domain import Array, Box, as_states, mesh
from certirl.ground.doors import as_count, as_delta, as_flags, as_number, call, shown
from certirl.ground.records import Record

__all__ = ["IntervalMDP", "interval_mdp"]
__dir__ = __all__.copy

MOST_BANDS = 20_000_000
USUAL_SAMPLES = 1_000  # of each cell and action
TILTS = np.geomspace(0.01, 8.0, 15)  # λ
_ROUNDING = 1e-9  # of a probability: bands are widened by more than the error of the quantiles
_BLOCK = 1_000_000  # states that a simulator is asked about at once
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Marks = dict[str, NDArray[np.bool_]]  # which states have a label, by its name

SIMULATED = "the next states of different rows are independent of each other"
LOGGED = (
    "given its state and action, the next state of a row does not depend on the rows before it, and no row was left "
    "out because of its next state"
)
EVENLY = "bands are of averages over the states of a cell, drawn evenly; single states of it may differ"
OWN_STATES = "bands are of averages over the log's own states in a cell; other states of it may differ"


@dataclass(frozen=True, eq=False)
class IntervalMDP(Record):
    """Bands of the probabilities to go from cell to cell, which all hold with probability 1 − δ.

    Attributes:
        grid: the cells, between the points of this grid; numbered with the last coordinate varying fastest.
        lower: lower ends ``[A, S, T]``; with terminal states the last target is all of them together.
        upper: upper ends ``[A, S, T]``.
        visits: rows of each action in each cell ``[A, S]``; without any the band is [0, 1].
        delta: δ.
        assumptions: in words.
        action_names: of the actions; a0, a1, … if they have none that model checkers read.

    Example:
        >>> room = certirl.problems.thermostat()
        >>> model = certirl.export.interval_mdp(room, cells=10, samples=100, delta=0.05, rng=0)
        >>> model.lower.shape, bool((model.lower <= model.upper).all())
        ((3, 10, 10), True)
    """

    grid: Cells
    lower: Array
    upper: Array
    visits: NDArray[np.intp]
    delta: float
    assumptions: tuple[str, ...]
    action_names: tuple[str, ...]

    @property
    def has_terminal(self) -> bool:
        """Whether the last target is the terminal states."""
        return self.lower.shape[2] > self.lower.shape[1]

    @property
    def middles(self) -> Array:
        """The middle of each cell ``[S, d]``."""
        return mesh(self.grid.middles())

    def cell(self, states: ArrayLike) -> NDArray[np.intp]:
        """The number of the cell of each state ``[n]``.

        Example:
            >>> model.cell([15.5, 24.5]).tolist()
            [0, 9]
        """
        return self.grid.cell(as_states(states, self.grid.domain))

    def __str__(self) -> str:
        actions, cells, _ = self.lower.shape
        empty = int((self.visits == 0).sum())
        width = float((self.upper - self.lower)[self.visits > 0].mean()) if empty < self.visits.size else 1.0
        lines = [
            f"Interval MDP of {cells} cells of {self.grid.domain.words} and {actions} actions; all bands hold with "
            f"probability {1 - self.delta:g}.",
            f"  bands    {width:.3g} wide on average; {empty} of {self.visits.size} rows have no data",
            f"  data     {int(self.visits.sum()):,} transitions",
            f"  assumed  {'; '.join(self.assumptions)}",
        ]
        return "\n".join(lines)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        reward: Any = None,
        initial: ArrayLike | None = None,
        labels: Mapping[str, Callable[[Array], Any]] | None = None,
        floor: float = 0.0,
    ) -> tuple[Path, ...]:
        """Write the files of a model checker; returns their paths.

        A name that ends in .drn is one file in Storm's direct encoding, the format whose intervals Storm reads. Any
        other name gets the suffixes of PRISM's explicit files, which PRISM and IntervalMDP.jl read: .sta, .tra, .lab,
        and .srew for a reward.

        Args:
            path: the name.
            reward: a function of states; its value at the middle of a cell is that of the cell, 0 at terminal states.
            initial: the initial state; the middle of the box if omitted.
            labels: functions of states ``[n, d]`` to truth values by name; decided at the middle of each cell.
            floor: lower ends below it are raised to it, as PRISM refuses 0. The file then excludes transitions of
                probability 0: statements about T steps change by at most T·S·floor, those without a horizon may be
                wrong.

        Example:
            >>> [path.name for path in model.export("room", labels={"warm": lambda states: states[:, 0] > 20})]
            ['room.sta', 'room.tra', 'room.lab']
            >>> [path.name for path in model.export("room.drn", reward=lambda states: states[:, 0])]
            ['room.drn']
        """
        described = self._described(reward, initial, labels, floor)
        named = archive.as_path(path)
        if named.suffix == ".drn":
            files = {archive.target_of(named, (".drn",)): self._encoded(*described)}
        else:
            texts = self._explicit(*described)
            files = {archive.target_of(f"{named}{suffix}", (suffix,)): lines for suffix, lines in texts.items()}
        for target, lines in files.items():
            with archive.replacing(target) as temporary, temporary.open("w", encoding="ascii", newline="\n") as stream:
                stream.writelines(f"{line}\n" for line in lines)
        return tuple(files)

    def _described(
        self, reward: Any, initial: ArrayLike | None, labels: Mapping[str, Any] | None, floor: float
    ) -> tuple[Array, Marks, Array | None]:
        """Lower ends, labels and rewards as they are written."""
        floor = as_number(floor, "floor", least=0, most=1)
        lower = np.where(self.upper > 0, np.maximum(self.lower, floor), 0.0)
        if (lower > self.upper).any() or (lower.sum(axis=2) > 1 + _ROUNDING).any():
            raise ValueError(f"floor must leave room for a distribution in every row, got {floor}")
        cells, total, middles = self.lower.shape[1], self.lower.shape[2], self.middles
        low, high = self.grid.domain.ends
        marks = {name: np.zeros(total, dtype=bool) for name in ("init", "deadlock")}
        marks["init"][self.cell((low + high)[None] / 2 if initial is None else initial)[0]] = True
        if self.has_terminal:
            marks["terminal"] = np.arange(total) == cells
        for name, function in (labels or {}).items():
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name in marks:
                raise ValueError(f"the name of a label must be a word, and not one of {', '.join(marks)}: {name!r}")
            read = partial(as_flags, count=cells, what=f"what the label {name!r} returns")
            marks[name] = np.zeros(total, dtype=bool)
            marks[name][:cells] = call(function, middles, what=f"the label {name!r}", read=read)
        if self.has_terminal and getattr(reward, "ends", None) is not None:
            raise ValueError(
                "the terminal states are one state of the file, and this reward has a number of its own at some of "
                "them: pass one that is 0 at all of them"
            )
        values = None if reward is None else np.append(values_of(reward, middles), [0.0] * self.has_terminal)
        return lower, marks, values

    def _rows(self, lower: Array) -> Iterator[tuple[int, int, Iterator[tuple[int, float, float]]]]:
        """The bands of each cell and action: state, action and (target, lower, upper)."""
        actions, cells, total = lower.shape
        for state in range(total):
            for action in range(actions):
                if state == cells:  # terminal states stay where they are
                    yield state, action, iter([(state, 1.0, 1.0)])
                    continue
                ends = lower[action, state].tolist(), self.upper[action, state].tolist()
                yield state, action, ((j, *band) for j, band in enumerate(zip(*ends, strict=True)) if band[1] > 0)

    def _explicit(self, lower: Array, marks: Marks, values: Array | None) -> dict[str, Iterable[str]]:
        """PRISM's explicit files by their suffixes."""
        actions, cells, total = lower.shape
        places = np.stack(np.unravel_index(np.arange(cells), self.grid.shape), axis=1).tolist()
        places += [[-1] * self.grid.dimension] * self.has_terminal
        count = int((self.upper > 0).sum()) + actions * (total - cells)
        bands = (
            f"{state} {action} {target} [{low!r},{high!r}] {self.action_names[action]}"
            for state, action, row in self._rows(lower)
            for target, low, high in row
        )
        marked = np.stack(list(marks.values()), axis=1)
        labels = (
            f"{state}: {' '.join(map(str, np.flatnonzero(row)))}" for state, row in enumerate(marked) if row.any()
        )
        states = (f"{number}:({','.join(map(str, place))})" for number, place in enumerate(places))
        files: dict[str, Iterable[str]] = {
            ".sta": chain([f"({','.join(f'x{axis}' for axis in range(self.grid.dimension))})"], states),
            ".tra": chain([f"{total} {actions * total} {count}"], bands),
            ".lab": chain([" ".join(f'{number}="{name}"' for number, name in enumerate(marks))], labels),
        }
        if values is not None:
            nonzero = np.flatnonzero(values).tolist()
            rows = (f"{state} {float(values[state])!r}" for state in nonzero)
            files[".srew"] = chain([f"{total} {len(nonzero)}"], rows)
        return files

    def _encoded(self, lower: Array, marks: Marks, values: Array | None) -> Iterable[str]:
        """The lines of Storm's direct encoding."""
        actions, _, total = lower.shape
        yield from ("@type: MDP", "@value_type: double-interval", "@parameters", "", "@reward_models")
        yield "" if values is None else "reward"
        yield from ("@nr_states", str(total), "@nr_choices", str(actions * total), "@model")
        for state, action, bands in self._rows(lower):
            if action == 0:
                earned = "" if values is None else f" [{float(values[state])!r}]"
                yield f"state {state}{earned}{''.join(f' {name}' for name in marks if marks[name][state])}"
            yield f"\taction {self.action_names[action]}"
            yield from (f"\t\t{target} : [{low!r}, {high!r}]" for target, low, high in bands)


def interval_mdp(
    source: Any,
    *,
    cells: Any,
    delta: float,
    samples: int | None = None,
    lipschitz: float | None = None,
    rng: Any = None,
) -> IntervalMDP:
    """Bands of the transition probabilities between cells of the state space, by a simulator or a log.

    Args:
        source: a simulator, `Transitions`, or a table of them; states of up to four coordinates.
        cells: how many along each coordinate: a number, or one for each.
        delta: δ: all bands hold together with probability 1 − δ.
        samples: transitions to draw from each cell by each action, 1,000 if omitted. For simulators only.
        lipschitz: L, if it is known that |P_a(C | s) − P_a(C | s')| ≤ L ‖s − s'‖ for all sets C: the bands then hold
            for every state of a cell. Without it they are of averages over a cell.
        rng: a seed or Generator; needed with a simulator.

    Example:
        >>> room = certirl.problems.thermostat()
        >>> model = certirl.export.interval_mdp(room, cells=10, delta=0.05, rng=0)
        >>> model.lower.shape, bool((model.lower.sum(axis=2) <= 1).all())
        ((3, 10, 10), True)
    """
    origin = as_source(source)
    each = origin.number_to_draw(samples, usual=USUAL_SAMPLES)
    delta = as_delta(delta)
    lipschitz = None if lipschitz is None else as_number(lipschitz, "lipschitz", least=0)
    grid = _divided(cells, origin.domain)
    size, actions = int(np.prod(grid.shape)), origin.n_actions
    if isinstance(origin, Logged):
        is_ended, ends, assumed = origin.has_terminal_states, martingale_band, (LOGGED, OWN_STATES)
        count = partial(_logged, origin.data, grid)
    else:
        is_ended, ends, assumed = terminal_of(origin.data) is not None, clopper_pearson, (SIMULATED, EVENLY)
        count = partial(_drawn, origin.data, grid, rng=origin.generator(rng), each=each)
    targets = size + is_ended
    bands = actions * size * targets
    if bands > MOST_BANDS:
        raise ValueError(f"{size} cells and {actions} actions have {bands:,} bands: use fewer cells")
    origin.check_noise()
    origin.check_unbiased()
    counts = count(targets)
    visits = counts.sum(axis=2)
    lower, upper = ends(counts, visits[:, :, None], delta / bands)
    if lipschitz is not None:
        widening = lipschitz * float(np.linalg.norm(grid.sides))
        lower, upper = np.maximum(lower - widening, 0.0), np.minimum(upper + widening, 1.0)
        change = f"the kernel changes by at most {lipschitz:g} for each unit of distance, in total variation (declared)"
        assumed = (assumed[0], change)
    lower, upper = _tightened(lower, upper)
    assumptions = (*assumed, *origin.notes)
    names = origin.action_names or tuple(f"a{action}" for action in range(actions))
    names = tuple(name if _NAME.fullmatch(name) else f"a{action}" for action, name in enumerate(names))
    return IntervalMDP(grid, lower, upper, visits, delta, assumptions, names)


def _divided(cells: Any, domain: Box) -> Cells:
    """The cells of a box, between the points of a grid."""
    if len(domain) > MOST_COORDINATES:
        raise ValueError(f"cells are for at most {MOST_COORDINATES} coordinates, got {len(domain)}")
    along = list(cells) if isinstance(cells, tuple | list) else [cells] * len(domain)
    if len(along) != len(domain):
        raise ValueError(f"cells must be a number, or one for each of {len(domain)} coordinates, got {shown(cells)}")
    return Cells(tuple(as_count(count, "cells") + 1 for count in along)).on(domain)


def _drawn(simulator: Any, grid: Cells, targets: int, *, each: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """How often each action went from cell to cell ``[A, S, T]``, from even states that are not terminal."""
    low, is_terminal = grid.domain.low, terminal_of(simulator)
    size = int(np.prod(grid.shape))
    places = np.stack(np.unravel_index(np.arange(size), grid.shape), axis=1)
    counts = np.zeros((simulator.n_actions, size * targets), dtype=np.intp)
    for action in range(simulator.n_actions):
        for chosen in np.array_split(np.repeat(np.arange(size), each), -(-size * each // _BLOCK)):
            states = low + grid.sides * (places[chosen] + rng.random((len(chosen), grid.dimension)))
            states = as_states(states, grid.domain)
            live = slice(None) if is_terminal is None else ~is_terminal(states)
            ahead = ask(simulator, states[live], action, rng, grid.domain)
            ended = None if is_terminal is None else is_terminal(ahead)
            counts[action] += _counted(chosen[live], grid, ahead, ended, targets)
    return counts.reshape(simulator.n_actions, size, targets)


def _logged(log: Transitions, grid: Cells, targets: int) -> NDArray[np.intp]:
    """How often each action went from cell to cell ``[A, S, T]``, in a log."""
    size, counts = int(np.prod(grid.shape)), []
    for action in range(log.n_actions):
        rows = log.actions == action
        ended = None if targets == size or log.terminal is None else log.terminal[rows]
        counts.append(_counted(grid.cell(log.states[rows]), grid, log.next_states[rows], ended, targets))
    return np.stack(counts).reshape(log.n_actions, size, targets)


def _counted(
    start: NDArray[np.intp], grid: Cells, ahead: Array, ended: NDArray[np.bool_] | None, targets: int
) -> NDArray[np.intp]:
    """Rows from cell to cell ``[S·T]``; rows that ended go to the last target."""
    end = grid.cell(ahead) if ended is None else np.where(ended, targets - 1, grid.cell(ahead))
    return np.bincount(start * targets + end, minlength=int(np.prod(grid.shape)) * targets)


def clopper_pearson(counts: NDArray[np.intp], total: NDArray[np.intp], share: float) -> tuple[Array, Array]:
    """Ends of the exact band of the probability of independent trials, left with at most the probability ``share``.

    Without trials it is [0, 1].
    """
    from scipy.special import betaincinv

    missed = total - counts
    lower = np.where(counts > 0, betaincinv(np.maximum(counts, 1), missed + 1, share / 2), 0.0)
    upper = np.where(missed > 0, 1 - betaincinv(np.maximum(missed, 1), counts + 1, share / 2), 1.0)
    return np.maximum(lower - _ROUNDING, 0.0), np.minimum(upper + _ROUNDING, 1.0)


def martingale_band(counts: NDArray[np.intp], total: NDArray[np.intp], share: float) -> tuple[Array, Array]:
    """Ends of a band of an average of probabilities, of trials that may depend on those before them."""
    cost, trials = np.log(2 * len(TILTS) / share), np.maximum(total, 1)
    lower, upper = np.zeros(counts.shape), np.ones(counts.shape)
    for tilt in TILTS:
        lower = np.maximum(lower, np.expm1((tilt * counts - cost) / trials) / np.expm1(tilt))
        upper = np.minimum(upper, np.expm1((-tilt * counts - cost) / trials) / np.expm1(-tilt))
    lower, upper = np.where(total > 0, lower, 0.0), np.where(total > 0, upper, 1.0)
    return np.maximum(lower - _ROUNDING, 0.0), np.minimum(upper + _ROUNDING, 1.0)


def _tightened(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Bands without the values that no distribution within the row's bands has."""
    low, high = lower.sum(axis=2, keepdims=True), upper.sum(axis=2, keepdims=True)
    least, most = 1 - (high - upper) - _ROUNDING, 1 - (low - lower) + _ROUNDING
    return np.maximum(lower, least), np.minimum(upper, most)
