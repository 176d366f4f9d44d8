"""Certificates for deterministic simulators by cells: nothing is random, so δ = 0.

The box of states is divided into cells. In each cell the next states of an action are bounded to first order, by
declared Lipschitz constants or by the derivatives of built-in physics. A guess V̂ of the value, multilinear on a grid,
is then bounded by affine functions of the state, and upper solutions on the cells bound V* − V̂ and V̂ − V^π. The proof
is in docs/notes/deterministic.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import itemgetter
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.policy import Policy, as_policy, steady_support
from certirl.data.simulator import as_generator, check_simulator, periodic_of, terminal_of
from certirl.data.source import Source, as_source
from certirl.data.transitions import as_names
from certirl.fit.bellman import check_problem
from certirl.fit.witness import place_of
from certirl.functions.cells import Cells
from certirl.functions.features import features_of
from certirl.functions.functions import of_actions
from certirl.functions.reward import Reward, values_alone
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Box, as_domain, as_rows, as_states, like_input, mesh
from certirl.ground.doors import as_count, as_reals, by_door, setting, shown
from certirl.ground.records import Record, internal
from certirl.ground.status import Claim, Seen, change, percent_up, rounded_down
from certirl.proof.case import CASES, Declaration, check_domain, no_case
from certirl.proof.contradictions import (
    INFLATION,
    PROBES,
    next_states,
    noise_in_words,
    numbers_in_words,
    of_images,
    of_terminal_cells,
    refuse,
)

MOST_CELLS = 4_000_000
ROUNDING = 2.0**-40  # of the largest |V̂| and |R|, for each cell along a coordinate: rounding of values
RELATIVE = 1e-12  # of terms: rounding of their sums
STEEPEST = 1e12  # of Lipschitz constants
SMALLEST, LARGEST = 1e-20, 1e20  # of values: numbers on cells are in single precision
FORM = "V̂ − γ max_a V̂∘f_a"
_BLOCK = 1 << 17  # cells at once
_KEPT = 8  # sizes of windows for which gradients are kept
_SMALL = 1e-6  # change of an upper solution, relative to its first bound, at which it is final


_Rows = TypeVar("_Rows", bound="tuple[Any, ...]")


def each_array(make: Callable[..., Array], *records: _Rows) -> _Rows:
    """A record of arrays, or of such records, each array made of those in the same place of several records."""
    places = zip(*records, strict=True)
    entries = (each_array(make, *each) if isinstance(each[0], tuple) else make(*each) for each in places)
    return type(records[0])(*entries)


@internal
class Image(NamedTuple):
    """Next states of cells: that of a state s is y + J·(s − m) for some |J − slopes| ≤ spreads, clipped to the box.

    m is the middle of the cell. A map that jumps has several images, which together contain every next state of each
    cell; where one is enough they are equal.
    """

    after: Array  # y ``[k, d]``
    slopes: Array  # the middles of the entries of J ``[k, d, d]``
    spreads: Array  # their largest deviations ``[k, d, d]``

    def at(self, rows: Any) -> Image:
        """Those of some cells."""
        return each_array(itemgetter(rows), self)

    def differs(self, other: Image) -> NDArray[np.bool_]:
        """In which cells it is not the other image ``[k]``."""
        each = zip(self, other, strict=True)
        return np.any([(mine != its).reshape(len(mine), -1).any(axis=1) for mine, its in each], axis=0)


def hull_with_zero(slopes: Array, spreads: Array) -> tuple[Array, Array]:
    """Middles and deviations of θx with 0 ≤ θ ≤ 1 and |x − slopes| ≤ spreads."""
    low, high = np.minimum(slopes - spreads, 0), np.maximum(slopes + spreads, 0)
    return (low + high) / 2, (high - low) / 2


@dataclass(frozen=True, eq=False)
class ValueReward(Record):
    """``R(s) = V(s) − γ max_a V(f_a(s))``, (1 − γ)V(s) at terminal states: the reward whose optimal value is V.

    Attributes:
        value: V, any function of states ``[n, d]``; of a plan or a solution its value is meant.
        simulator: f_a, deterministic.
        discount: γ.

    Example:
        >>> class Tray:
        ...     n_actions, domain = 2, ((0.0, 10.0),)
        ...     def sample(self, states, action, rng):
        ...         return np.clip(0.9 * states + (0.0, 1.0)[action], 0, 10)
        >>> reward = certirl.planning.ValueReward(lambda states: -abs(states[:, 0] - 6), Tray(), discount=0.5)
        >>> reward([[6.0], [7.0]])
        array([ 0.2 , -0.85])
    """

    value: Any
    simulator: Any
    discount: float

    def __call__(self, states: Any) -> Any:
        """R at a state or at states ``[n, d]``."""
        dimension = len(as_domain(self.simulator.domain))
        rows = as_rows(states, dimension)
        value = getattr(self.value, "value", self.value)
        after = [value(next_states(self.simulator, rows, action)) for action in range(self.simulator.n_actions)]
        here, ahead, terminal = value(rows), np.max(after, axis=0), terminal_of(self.simulator)
        ahead = np.where(terminal(rows), here, ahead) if terminal is not None else ahead
        return like_input(here - self.discount * ahead, states, dimension)


@archive.record
@dataclass(frozen=True, eq=False)
@internal
class Answers(Record):
    """The next states of the middles of all live cells, and declared Lipschitz constants."""

    next_states: Annotated[Array, Shape("A n d")]  # answers of the simulator ``[A, n, d]``
    lipschitz: Annotated[Array, Shape("A d d")]  # L ``[A, d, d]``

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.lipschitz)

    @internal
    def in_words(self) -> str:
        """The constants, and what a constant of 0 says."""
        alike = bool((self.lipschitz == self.lipschitz[0]).all())
        each = [f"L = {_matrix(own)}{'' if alike else f' of action {a}'}" for a, own in enumerate(self.lipschitz)]
        still = [a for a, own in enumerate(self.lipschitz) if not own.any()]
        zero = "under " + ("every action" if len(still) == self.n_actions else f"action {', '.join(map(str, still))}")
        zero = f"; L = 0 says that {zero} all states of a cell have the same next state" if still else ""
        bound = "|f_a(s)_i − f_a(m)_i| ≤ Σ_j L_ij |s_j − m_j|"
        return f"declared Lipschitz constants, {bound} with {', '.join(each[:1] if alike else each)}{zero}"

    @internal
    def images(self, rows: Any, action: int) -> tuple[Image, ...]:
        """The next states of some live cells."""
        after = self.next_states[action, rows]
        spreads = np.tile(self.lipschitz[action], (len(after), 1, 1))
        return (Image(after, np.zeros_like(spreads), spreads),)


def _matrix(numbers: Array) -> str:
    """A matrix as text; a single number as a number."""
    rows = [", ".join(f"{x:.6g}" for x in row) for row in numbers]
    return rows[0] if len(rows) == 1 else f"[{', '.join(f'[{row}]' for row in rows)}]"


@archive.record
@dataclass(frozen=True, eq=False)
class CellCertificate(Claim):
    """What is proved about a policy, a reward and a deterministic simulator, cell by cell.

    Attributes:
        grid: its cells are those of the proof.
        discount: γ.
        actions: the action of the policy in each cell ``[c]``; −1 in cells of terminal states.
        gaps: ``Q*(s, π(s)) − Q*(s, a)``, γ times the margin, is at least this at all states of a cell, for all
            a ≠ π(s) ``[c]``; 0 in cells of terminal states. In files they are called margins.
        above: ``V* − V̂`` is at most this at all states of a cell ``[c]``.
        below: ``V̂ − V^π`` is at most this at all states of a cell ``[c]``.
        value: V̂ on a grid whose lines are lines of the cells.
        paid: R on the same grid; None if R is ``V̂ − γ max_a V̂∘f_a``.
        terminal: the boxes of terminal states ``[b, d, 2]``.
        dynamics: what the next states are known by: a built-in simulator, or `Answers`.
        assumptions: what is not proved but declared.
        coordinate_names, action_names: of the simulator; empty if there are none.
        about: the call and what it was about, in words by name: data and code with their hashes, and versions.
        simulator: f_a; a file keeps it if it is built in.

    Example:
        >>> car = certirl.gym.simulator("MountainCar-v0")
        >>> plan = certirl.planning.plan(car, discount=0.9, points=(91, 71))
        >>> proof = certirl.certify(plan, car, dynamics=certirl.dynamics.Deterministic(refine=2))
        >>> proof.delta, proof.grid.shape, proof.decided_share > 0.8, proof.relative_regret < 0.1
        (0.0, (180, 140), True, True)
    """

    compressed: ClassVar[bool] = True
    replaces_reward: ClassVar[bool] = True
    bounds_regret: ClassVar[bool] = True  # type: ignore[misc]
    tube: ClassVar[None] = None
    # Nothing is random or estimated.
    delta: ClassVar[float] = 0.0  # type: ignore[misc]
    tail: ClassVar[float] = 0.0  # type: ignore[misc]
    spending: ClassVar[dict[str, float]] = {}  # type: ignore[misc]
    losses: ClassVar[dict[str, float]] = {}  # type: ignore[misc]
    samples_needed: ClassVar[None] = None  # type: ignore[misc]
    _derived: ClassVar[tuple[str, ...]] = ("word", "delta", "decided_share", "margin", "regret", "relative_regret")
    grid: Cells
    discount: float
    actions: Annotated[NDArray[np.integer[Any]], Shape("c")]
    gaps: Annotated[Array, Shape("c")] = field(metadata=archive.stored_as("margins"))
    above: Annotated[Array, Shape("c")]
    below: Annotated[Array, Shape("c")]
    value: Reward
    paid: Reward | None
    terminal: Annotated[Array, Shape("b d 2")]
    dynamics: Any
    assumptions: tuple[str, ...] = ()
    coordinate_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    about: dict[str, str] = field(default_factory=dict)
    simulator: Any = field(default=None, metadata=archive.UNSAVED)

    @internal
    def as_read(self, file: str) -> CellCertificate:
        """Refuse numbers of cells that contradict each other."""
        if len(self.actions) != prod(self.grid.shape):
            raise ValueError(f"actions must be those of {prod(self.grid.shape)} cells, got {len(self.actions)}")
        return self

    @property
    def estimated(self) -> float:  # type: ignore[override]
        """The margin, as it comes from no estimate."""
        return self.margin

    @property
    @internal
    def declared(self) -> dict[str, str]:
        """What the next states are known by."""
        return {"next states": _in_words(self.dynamics)}

    @property
    @internal
    def cells_in_words(self) -> str:
        """The numbers of cells along the coordinates."""
        return " × ".join(map(str, self.grid.shape))

    @property
    @internal
    def missing(self) -> str:
        """What keeps it from being certified, in words; empty if it is."""
        undecided = "cells without a switch beside them are undecided: use smaller cells or more points"
        return "" if self.holds else undecided

    @internal
    def change(self, tail: Any = None, seen: Seen | None = None) -> str:
        """As of a `Claim`: half as long cells."""
        parts = round(float(self.value.basis.sides[0] / self.grid.sides[0]))  # type: ignore[union-attr]
        return (
            ""
            if self.holds
            else change(
                dynamics=f"certirl.dynamics.Deterministic(…, refine={(2 if self.decided.any() else 4) * parts})"
            )
        )

    @property
    def domain(self) -> Box:
        """The box of states."""
        return self.grid.domain

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return int(self.dynamics.n_actions)

    @property
    def reward(self) -> Callable[[Array], Any]:
        """R, of which all this is proved."""
        if self.paid is not None:
            return self.paid
        simulator = self.dynamics if self.simulator is None else self.simulator
        if isinstance(simulator, Answers):
            raise ValueError(
                "R = V − γ max_a V∘f_a is evaluated through the simulator, which a file does not keep: call "
                "certirl.planning.ValueReward(proof.value, simulator, proof.discount)"
            )
        return ValueReward(self.value, simulator, self.discount)

    @internal
    def as_reward(self) -> Reward:
        """R as the reward of an answer; a file that does not keep the simulator does not keep it either."""
        if self.paid is not None:
            return self.paid
        return Reward(features_of({FORM: self.reward}, self.grid.domain), np.ones(1))

    def proves(self, states: ArrayLike) -> NDArray[np.bool_]:
        """Whether the policy's action is proved to be the only optimal one at each state ``[n]``.

        Example:
            >>> proof.proves([[-0.5, 0.0], [0.3, 0.03]])
            array([ True,  True])
        """
        return np.asarray(self.decided[self.grid.cell(as_states(states, self.grid.domain))])

    @property
    def regrets(self) -> Array:
        """``V*(s) − V^π(s)`` is at most this at all states of a cell ``[c]``."""
        return self.above.astype(float) + self.below

    @property
    def value_span(self) -> float:
        """How far V̂ reaches."""
        return float(np.ptp(self.value.coefficients))  # its extremes are at points of the grid

    @property
    def live(self) -> NDArray[np.bool_]:
        """Which cells have states that are not terminal ``[c]``."""
        return self.actions >= 0

    @property
    def margins(self) -> Array:
        """``V*(f_π(s)) − V*(f_a(s))`` is at least this at all states of a cell, for all a ≠ π(s) ``[c]``.

        Where it is positive, π(s) is the only optimal action; 0 in cells of terminal states.
        """
        return self.gaps.astype(np.float64) / self.discount

    @property
    def decided(self) -> NDArray[np.bool_]:
        """The cells at all of whose states the action of the policy is the only optimal one ``[c]``."""
        return self.gaps > 0

    @property
    def decided_share(self) -> float:
        """The share of live cells that are decided."""
        return float(self.decided[self.live].mean())

    @property
    @internal
    def share_in_words(self) -> str:
        """The share of live cells that are decided, rounded down."""
        decided, size = int(self.decided[self.live].sum()), int(self.live.sum())
        return "all" if decided == size else f"{1000 * decided // size / 1000:.1%}"

    @property
    def word(self) -> str:
        """What is proved: "certified", "certified in part" or "not certified"."""
        if not self._undecided.any():
            return "certified"
        return "certified in part" if self.decided.any() else "not certified"

    @property
    def holds(self) -> bool:  # type: ignore[override]
        """Whether every live cell is decided that has no switch of the policy beside it."""
        return not (self._undecided & ~self.beside).any()

    @property
    def beside(self) -> NDArray[np.bool_]:
        """The cells beside a switch: a neighbour, also across a corner, has another action ``[c]``."""
        from scipy.ndimage import maximum_filter, minimum_filter

        table = self.actions.reshape(self.grid.shape)
        modes = ["wrap" if axis in self.grid.periodic else "nearest" for axis in range(table.ndim)]
        live = np.where(table < 0, table.max(), table)  # terminal cells have no action that could differ
        largest = maximum_filter(table, size=3, mode=modes)
        return ((minimum_filter(live, size=3, mode=modes) < largest) & (table >= 0)).ravel()

    @property
    def margin(self) -> float:  # type: ignore[override]
        """The least margin of the decided cells; NaN if there are none."""
        return float(self.margins[self.decided].min()) if self.decided.any() else float("nan")

    @property
    def regret(self) -> float:
        """``V* − V^π`` is at most this at every state."""
        return float(self.regrets.max())

    @property
    def relative_regret(self) -> float:
        """The regret as a share of the value's span."""
        return self.regret / self.value_span

    def plot(self, *, ax: Any = None, path: Any = None) -> Any:
        """Draw the proved margins, the undecided cells and the switches; write it to ``path``.

        Example:
            >>> axes = proof.plot(path="proof.png")
        """
        from certirl import plots

        return plots.certificate(self, ax=ax, path=path)

    @internal
    def lines(self) -> list[tuple[str, str]]:
        """The margin, undecided cells, the regret, the cells and the assumptions, each in a line with its name."""
        live, lines = self.live, [("margin", self.proved)] if self.decided.any() else []
        counts, size = self.cells_in_words, int(live.sum())
        mean = f"mean of the bounds {self.regrets[live].mean() / self.value_span:.2%}"
        regret = f"at most {percent_up(self.relative_regret)} of the span of the value at every state, {mean}"
        form = FORM if self.paid is None else "R"
        cells = f"{counts}, {size:,} of them with states that are not terminal; γ = {self.discount:g}"
        lines += [("undecided", self._undecided_in_words()), ("regret", regret), ("cells", cells)]
        reward = f"{form}, {self.value.basis}, on {self.grid.domain.words}"
        return [("reward", reward), *lines, *(("assumed", sentence) for sentence in self.assumptions)]

    @property
    def proved(self) -> str:
        """The margins, in a line."""
        if not self.decided.any():
            return "positive in no cell"
        tenth, median = np.quantile(self.margins[self.decided], [0.1, 0.5])
        least = f"{rounded_down(tenth):.3g} or more in 90% of them"
        return f"positive in these cells: {least}, median {median:.3g}"

    @property
    def _undecided(self) -> NDArray[np.bool_]:
        return self.live & ~self.decided

    def _undecided_in_words(self) -> str:
        """The share of cells that are not decided, in parts that add up to what the headline leaves."""
        undecided, size = self._undecided, int(self.live.sum())
        if not undecided.any():
            return "no cell"
        # In thousandths, rounded up.
        total, elsewhere = (-(-1000 * int(which.sum()) // size) for which in (undecided, undecided & ~self.beside))
        beside = f"{(total - elsewhere) / 1000:.1%} beside a switch of the policy"
        return f"{total / 1000:.1%} of the cells: {beside}, {elsewhere / 1000:.1%} elsewhere"

    @property
    def statement(self) -> str:
        """What is proved, or not, in a sentence."""
        if not self.decided.any():
            return "Not certified: the policy's action is not proved to be the only optimal one in any of the cells"
        share = self.share_in_words
        return f"{self.word.capitalize()}, δ = 0: the policy's action is the only optimal one in {share} of the cells"

    def __str__(self) -> str:
        lines = [*self.lines(), *([("next", self.next)] if self.next else [])]
        return "\n".join([self.statement, *(f"  {name:<9} {line}" for name, line in lines)])


@dataclass(frozen=True, eq=False)
class Deterministic(Declaration):
    """Declares dynamics without noise, s' = f_a(s), in one or two coordinates, for `certify`: a proof by cells.

    It says where a policy takes the only optimal action, with δ = 0. The reward is that of a value V̂: of a
    `planning.Plan`, of a `Solution`, or of a `ValueReward`, and is ``V̂ − γ max_a V̂∘f_a``; or it is a `Reward` on
    `Cells`, the grid of V̂. Both must be 0 at terminal states, which are the boxes of the simulator's attribute
    ``terminal_boxes``; the grid must have lines at their faces. The expert takes at all states of a cell the action
    that it takes in the middle; left out, or the plan itself, the policy is greedy for V̂, with the best bound where
    actions are equal.

    Attributes:
        lipschitz: ``L[a, i, j]``, or ``L[i, j]`` for all actions, or in one coordinate a number, with
            ``|f_a(s)_i − f_a(m)_i| ≤ Σ_j L[a, i, j] |s_j − m_j|`` for the states s of a cell with the middle m, in
            wrapped distance along periodic coordinates. Left out, the derivatives that are built in for MountainCar and
            Pendulum. They are compared with the simulator at states that ``rng`` draws.
        points: of the grid of V̂ along each coordinate; left out, those of a plan, or of a function on `Cells`.
        refine: cells of the proof along each side of a cell of the grid.
        value: a guess of the value of a `Reward` on `Cells`; left out, it is computed.

    Example:
        >>> car = certirl.gym.simulator("MountainCar-v0")
        >>> plan = certirl.planning.plan(car, discount=0.9, points=(91, 71))
        >>> proof = certirl.certify(plan, car, dynamics=certirl.dynamics.Deterministic(refine=2))
        >>> 0.8 < proof.decided_share < 0.95, proof.margin > 0
        (True, True)
    """

    lipschitz: Any = None
    points: int | tuple[int, ...] | None = None
    refine: int = 1
    value: Any = None
    uses: ClassVar[tuple[str, ...]] = ("rng",)
    is_random: ClassVar[bool] = False

    @internal
    def check(self, source: Source) -> None:
        """Refuse states and data that no proof by cells exists for."""
        if source.is_log:
            raise ValueError(no_case("Deterministic", CASES[3]))
        if not getattr(source.data, "deterministic", True):
            raise ValueError(f"{source.data!r} is random: {noise_in_words()}")
        check_domain("Deterministic", source.domain, source.periodic)

    @internal
    def certify(self, reward: Any, source: Any, **settings: Any) -> CellCertificate:
        """What is proved by cells; settings are as in `certify`."""
        return prove_by_cells(reward, source, self, **settings)


def prove_by_cells(
    reward: Any, simulator: Any, declared: Deterministic, *, discount: float | None, expert: Any, rng: Any
) -> CellCertificate:
    """`certify` for a simulator without noise; settings are as there, and ``rng`` is 0 if left out."""
    declared.check(as_source(simulator))
    points, lipschitz, rng = declared.points, declared.lipschitz, 0 if rng is None else rng
    for record in (reward, declared.value):
        discount = getattr(record, "discount", None) if discount is None else discount
    expert = getattr(reward, "expert", None) if expert is None else expert
    guess, reward = _value_of(reward, declared.value, discount)
    check_simulator(simulator)
    domain, periodic = as_domain(simulator.domain), periodic_of(simulator)
    greedy = reward is None and (expert is None or expert is guess)
    discount = getattr(guess, "discount", None) if discount is None else discount
    _check_given(expert, guess, reward, discount)
    discount = check_problem(discount, 0, simulator.n_actions)
    coarse, coefficients = _on_grid(reward if guess is None else guess, points, domain, periodic)
    basis = getattr(reward, "basis", None)
    if reward is not None and not (isinstance(basis, Cells) and basis.on(domain) == coarse):
        raise ValueError(
            f"the reward must be a certirl.Reward on certirl.Cells with the points of the value, {_counts_of(coarse)}: "
            "make it so, or leave it out for the reward whose value this is"
        )
    grid = _refined(coarse, as_count(declared.refine, "refine"))
    boxes = _terminal_boxes(simulator, coarse)
    halves, centres = grid.sides / 2 * (1 + INFLATION), mesh(grid.middles())
    over = _terminal(grid, boxes)
    live = np.flatnonzero(~over)
    if not len(live):
        raise ValueError("all states are terminal")
    _check_ends(simulator, guess, reward, coarse, centres[live])
    actions = np.full(len(centres), -1)
    if not greedy:
        actions[live] = _one_action(as_policy(expert, simulator.n_actions), centres[live])
    if guess is None:
        coefficients = _evaluated(simulator, coarse, actions, grid, reward, discount)
    coefficients = np.where(_terminal(coarse, boxes, points=True), 0.0, coefficients)
    start = Reward(coarse, coefficients)
    table = start(grid.points())
    paid = None if reward is None else coarse.combined(grid.points(), reward.coefficients)
    _check_size(table, paid)
    if _places(grid) * 2.0**-45 > INFLATION:
        raise ValueError(
            f"double precision is too coarse for cells with sides {numbers_in_words(grid.sides)} on {domain.words}: "
            "subtract a constant from the coordinates, so that they are near 0"
        )
    rounding = _rounding(grid, table, paid)
    gradients, here = _Gradients.of(grid, table), None if paid is None else _in_cells(grid, paid - table, rounding)
    dynamics = _dynamics(simulator, centres[live], halves, lipschitz)
    generator, blocks = as_generator(rng, "certify_deterministic"), []
    constants = dynamics.lipschitz if isinstance(dynamics, Answers) else None
    refuse(of_terminal_cells(simulator, grid, np.flatnonzero(over), generator))
    for first in range(0, len(live), _BLOCK):
        rows = np.arange(first, min(first + _BLOCK, len(live)))
        probes = (rows[-1] + 1) * PROBES // len(live) - first * PROBES // len(live)
        each = [_images(dynamics, centres[live[rows]], halves, rows, action) for action in range(simulator.n_actions)]
        for action, images in enumerate(each):
            refuse(of_images(simulator, grid, live[rows], images, action, generator, probes, constants))
        several = np.zeros(len(rows), dtype=bool)
        for main, *others in each:
            several |= np.any([other.differs(main) for other in others], axis=0)
        for which in (np.flatnonzero(~several), np.flatnonzero(several)):
            parts = [
                [_Part.of(image.at(which), gradients, halves, rounding) for image in images[: 1 + several[which].any()]]
                for images in each
            ]
            cells = live[rows[which]]
            chosen = _greedy(parts, gradients, halves, rounding) if greedy else actions[cells]
            inside = here and each_array(itemgetter(cells), here)
            blocks.append(_Block.of(rows[which], parts, chosen, gradients, halves, discount, inside))
            actions[cells] = chosen
    order = np.argsort(np.concatenate([block.rows for block in blocks]))
    advantages = np.concatenate([block.advantages for block in blocks], axis=1)[:, order] - rounding
    reaches = [_Reach.of(blocks, number, grid) for number in range(len(blocks[0].parts))]
    gaps, above = np.zeros(len(centres)), np.zeros(len(centres), dtype=np.float32)
    if reward is None:  # V* = V̂
        gaps[live] = discount * advantages.min(axis=0) - rounding
        excess = discount * np.maximum(-advantages.min(axis=0), 0)
        below = _upper_solution(excess[None], reaches[:1], live, discount)
    else:
        excess = np.concatenate([block.excess for block in blocks], axis=1)[:, order] + rounding
        below = _upper_solution(excess[:1], reaches[:1], live, discount)
        above = _upper_solution(excess[1:], reaches[1:], live, discount)
        ahead = [each - reach.maximum(above) for each, reach in zip(advantages, reaches[1:], strict=True)]
        gaps[live] = discount * (np.min(ahead, axis=0) - reaches[0].maximum(below)) - rounding
    ties = ", of equal ones the one with the best bound" if greedy else ""
    assumptions = (
        f"{_in_words(dynamics)}: no contradiction at {simulator.n_actions * PROBES:,} states",
        *(f"coordinate {axis} is periodic: its two ends are one state" for axis in periodic),
        f"the policy takes one action in each cell, that in its middle{ties}",
        *(
            [f"terminal states are {' and '.join(as_domain(box).words for box in boxes)}: reward and value 0"]
            * bool(boxes)
        ),
        *(["the reward is evaluated through the simulator"] if reward is None else []),
    )
    return CellCertificate(
        grid,
        discount,
        actions.astype(np.int16),
        _single(gaps, down=True),
        above,
        below,
        start,
        reward,
        np.array(boxes).reshape(-1, len(domain), 2),
        dynamics,
        assumptions,
        as_names(getattr(simulator, "coordinate_names", ()), len(domain), "coordinates"),
        as_names(getattr(simulator, "action_names", ()), simulator.n_actions, "actions"),
        simulator=simulator,
    )


def _value_of(reward: Any, guess: Any, discount: Any) -> tuple[Any, Any]:
    """V̂ and R from what `certify` is asked about: R is None where it is that of V̂, and V̂ where it is computed."""
    if callable(reward) and of_actions(reward):
        raise ValueError(no_case("Deterministic", CASES[6]))
    if isinstance(reward, Reward):
        return guess, reward
    if guess is not None:
        raise ValueError(
            f"{setting('value')} is a guess of the value of a certirl.Reward on certirl.Cells: leave it out"
        )
    if isinstance(reward, ValueReward):
        if discount != reward.discount:
            raise ValueError(f"the reward is that of a value with discount={reward.discount}, got {discount}")
        return reward.value, None
    if not hasattr(reward, "value"):
        raise ValueError(
            "a proof by cells is about a certirl.Reward on certirl.Cells, or about the reward of a value: pass a plan, "
            "a solution, say certirl.solve(simulator, expert=expert, discount=0.9), or certirl.planning.ValueReward(V, "
            f"simulator, discount), got {shown(reward)}"
        )
    return reward, None


def _check_given(expert: Any, guess: Any, reward: Any, discount: Any) -> None:
    """Refuse calls that do not say which policy is proved, for which value, or with which discount."""
    if reward is not None and expert is None:
        raise ValueError("pass expert=…, the policy that is proved for this reward")
    if hasattr(guess, "value") and guess.value is None:
        raise ValueError(f"the reward is a solution without a value: {guess.reason}")
    if discount is None:
        raise ValueError("pass discount, say discount=0.9: the reward does not say it")


def _check_ends(simulator: Any, guess: Any, reward: Any, grid: Cells, states: Array) -> None:
    """Refuse a V̂ or an R that is not 0 at terminal states, and an R that is not its sum at the other states."""
    terminal, value = terminal_of(simulator), getattr(guess, "value", guess)
    pays = any(getattr(each, "ends", None) is not None for each in (value, reward))
    if hasattr(guess, "values") and terminal is not None:  # a plan knows what terminal states pay
        points = grid.points()
        pays = pays or bool(np.any(guess.value(points[terminal(points)])))
    if pays:
        raise ValueError(
            "a proof by cells is for values and rewards that are 0 at terminal states, and this one has other numbers "
            "there: pass a value that is 0 at all of them"
        )
    if reward is not None and reward.ended is not None and reward.ended(states).any():
        raise ValueError("the reward has terminal states that are not terminal in the simulator: pass one for it")


def _single(values: Array, *, down: bool = False) -> Any:
    """Numbers in single precision, none smaller than before, or none larger."""
    single = values.astype(np.float32)
    wrong = single > values if down else single < values
    return np.where(wrong, np.nextafter(single, np.float32(-np.inf if down else np.inf)), single)


def _on_grid(value: Any, points: Any, domain: Box, periodic: tuple[int, ...]) -> tuple[Cells, Array]:
    """The grid of a value or reward, and the numbers at its points."""
    if points is None:
        grid = getattr(value, "basis", None)
        if not isinstance(grid, Cells):
            raise ValueError("pass points=41, say, along each coordinate: the value has no grid of its own")
        if grid.periodic != periodic:
            raise ValueError(f"the simulator is periodic in coordinates {periodic}, the grid in {grid.periodic}")
        numbers = value.values if hasattr(value, "values") else value.coefficients
        return grid.on(domain), np.asarray(numbers, dtype=float)
    counts = (points,) * len(domain) if np.ndim(points) == 0 else points
    grid = Cells(counts, periodic, domain)
    _check_cells(grid)
    return grid, values_alone(getattr(value, "value", value), grid.points(), name="the value")


def _counts_of(grid: Cells) -> str:
    return " × ".join(f"{count:,}" for count in grid.counts)


def _check_cells(grid: Cells) -> None:
    if prod(grid.shape) > MOST_CELLS:
        raise ValueError(f"at most {MOST_CELLS:,} cells are possible, got {' × '.join(f'{n:,}' for n in grid.shape)}")


def _refined(grid: Cells, parts: int) -> Cells:
    counts = tuple(parts * steps + (axis not in grid.periodic) for axis, steps in enumerate(grid.shape))
    refined = Cells(counts, grid.periodic, grid.domain)
    _check_cells(refined)
    return refined


def _one_action(policy: Policy, states: Array) -> NDArray[np.intp]:
    """The action of an expert at each state ``[n]``; one that takes several at a state is refused."""
    support = steady_support(policy, states)
    several = support.sum(axis=1) > 1
    if several.any():
        place = place_of(states[several.argmax()])
        raise ValueError(no_case("Deterministic", CASES[2], f"several actions at {place}"))
    return np.asarray(support.argmax(axis=1))


def _terminal_boxes(simulator: Any, grid: Cells) -> tuple[Array, ...]:
    """The terminal boxes ``[d, 2]``; their faces must be on lines of the grid of V̂, which is 0 in them."""
    declared = getattr(simulator, "terminal_boxes", None)
    if declared is None:
        if terminal_of(simulator) is not None:
            raise ValueError("the simulator has terminal states: it must name them by terminal_boxes, () if none")
        return ()
    boxes = tuple(np.array(as_domain(box)) for box in declared)
    for box in boxes:
        lines = (box - np.array(grid.domain)[:, :1]) / grid.sides[:, None]
        inner = (lines > 0) & (lines < np.array(grid.shape)[:, None])
        if (np.abs(lines - np.round(lines))[inner] > INFLATION).any():
            raise ValueError(
                f"the terminal box {as_domain(box).words} must end on lines of the grid of the value, whose cells "
                f"have sides {numbers_in_words(grid.sides)}: choose other {setting('points')}"
            )
    return boxes


def _terminal(grid: Cells, boxes: tuple[Array, ...], *, points: bool = False) -> NDArray[np.bool_]:
    """Which cells of a grid with lines at the faces of the boxes are terminal ``[c]``, or which points ``[k]``."""
    over = np.zeros([count + points for count in grid.shape], dtype=bool)
    for box in boxes:
        lines = (box - grid.domain.low[:, None]) / grid.sides[:, None]
        first, last = np.ceil(lines[:, 0] - 1e-6).astype(int), np.floor(lines[:, 1] + 1e-6).astype(int)
        over[tuple(slice(max(a, 0), max(b + points, 0)) for a, b in zip(first, last, strict=True))] = True
    for axis in grid.periodic if points else ():  # the last point is the first
        first, others = over.take([0], axis=axis), over.take(range(1, grid.shape[axis]), axis=axis)
        over = np.concatenate([first | over.take([-1], axis=axis), others], axis=axis)
    return over.ravel()


def _dynamics(simulator: Any, centres: Array, halves: Array, lipschitz: Any) -> Any:
    """What the next states of the cells around the centres are known by."""
    if lipschitz is None:
        built_in = getattr(simulator, "images", None)
        if built_in is None or built_in(centres[:1], halves, 0) is None:
            write = by_door("pass lipschitz=L, numbers [d, d] or [A, d, d]", "write --lipschitz L …, bounds on slopes")
            raise ValueError(f"{write}: none are built in for this simulator")
        return simulator
    bounds, size = as_reals(lipschitz, "lipschitz").astype(float), len(halves)
    shapes = [(size, size), (simulator.n_actions, size, size)]
    if bounds.ndim < 2:  # a number, or all numbers row by row
        bounds = next((bounds.reshape(shape) for shape in shapes if bounds.size == prod(shape)), bounds)
    if bounds.shape not in shapes or not ((bounds >= 0) & (bounds <= STEEPEST)).all():
        each = "a number" if size == 1 else f"{size} × {size} numbers"
        raise ValueError(
            f"{setting('lipschitz')} must be {each} from 0 to {STEEPEST:g}, or {each} for each of "
            f"{simulator.n_actions} actions, got {shown(np.asarray(lipschitz).tolist())}"
        )
    after = np.stack([next_states(simulator, centres, action) for action in range(simulator.n_actions)])
    return Answers(after, np.broadcast_to(bounds, (simulator.n_actions, size, size)).copy())


def _in_words(dynamics: Any) -> str:
    """What the next states are known by, with every number."""
    words = getattr(dynamics, "in_words", None)
    return f"the built-in derivatives of {dynamics!r}" if words is None else str(words())


def _images(dynamics: Any, centres: Array, halves: Array, rows: NDArray[np.intp], action: int) -> tuple[Image, ...]:
    """The next states of the cells around the centres, the live cells of these numbers."""
    return tuple(
        dynamics.images(rows, action) if isinstance(dynamics, Answers) else dynamics.images(centres, halves, action)
    )


def _check_size(table: Array, paid: Array | None) -> None:
    """Refuse a V̂ and an R that are constant, or too small or large for numbers in single precision."""
    span, largest = float(np.ptp(table)), max(float(np.abs(each).max()) for each in (table, paid) if each is not None)
    if span == 0:
        raise ValueError("the value is the same at every state: no action is better than another")
    if span < SMALLEST or largest > LARGEST:
        raise ValueError(
            f"the value must differ by more than {SMALLEST:g} and be less than {LARGEST:g}, as the reward, got "
            f"{span:.3g} and {largest:.3g}: multiply both by a positive constant, which changes no policy"
        )


def _rounding(grid: Cells, table: Array, paid: Array | None) -> float:
    """What is allowed for rounding in a value of V̂ or R, or at a next state."""
    largest = float(np.abs(table).max() + (0.0 if paid is None else np.abs(paid).max()))
    return ROUNDING * (10 + _places(grid)) * largest


def _places(grid: Cells) -> float:
    """The largest coordinate of a state, in sides of cells."""
    return float((np.abs(grid.domain).max(axis=1) / grid.sides).max() + max(grid.shape))


class _Affine(NamedTuple):
    """A function of the state in each of k cells with middles m: value + slopes·(s − m) ± radius."""

    value: Array  # ``[k]``
    slopes: Array  # ``[k, d]``
    radius: Array  # ``[k]``

    def plus(self, other: _Affine, factor: float) -> _Affine:
        """The sum of this function and a factor times another."""
        value, slopes = self.value + factor * other.value, self.slopes + factor * other.slopes
        return _Affine(value, slopes, self.radius + abs(factor) * other.radius)

    def range(self, halves: Array) -> tuple[Array, Array]:
        """The least and largest value in each cell: two ``[k]``."""
        reach = np.abs(self.slopes) @ halves + self.radius
        return self.value - reach, self.value + reach


class _Window(NamedTuple):
    """Boxes of cells, each as the union of 2ᵈ boxes of equal size."""

    grid: Cells  # of the cells
    sizes: tuple[int, ...]  # of these along each coordinate
    numbers: NDArray[np.int32]  # of their first cells ``[2ᵈ, k]``

    @classmethod
    def of(cls, first: NDArray[np.int32], last: NDArray[np.int32], grid: Cells) -> _Window:
        """Of the boxes from one cell to another ``[k, d]``; along periodic coordinates numbers may be beyond the ends.

        The second of two boxes along a coordinate ends where the union does. Where the union is smaller than one box,
        it is enlarged.
        """
        sizes, numbers = [(int(count) + 2) // 2 for count in (last - first).max(axis=0, initial=0)], []
        for upper in np.ndindex((2,) * grid.dimension):
            number = np.zeros(len(first), dtype=np.int32)
            for axis, steps in enumerate(grid.shape):
                place = first[:, axis]
                if upper[axis]:
                    place = np.maximum(place, last[:, axis] - np.int32(sizes[axis] - 1))
                number = number * np.int32(steps) + (place % np.int32(steps) if axis in grid.periodic else place)
            numbers.append(number)
        return cls(grid, tuple(sizes), np.stack(numbers))

    def prepared(self, values: Array) -> Array:
        """The largest of numbers on cells ``[c]`` over the box of these sizes that starts at each cell ``[c]``."""
        from scipy.ndimage import maximum_filter1d

        table = values.reshape(self.grid.shape)
        for axis, size in enumerate(self.sizes):
            if size > 1:
                mode = "wrap" if axis in self.grid.periodic else "nearest"
                table = maximum_filter1d(table, size, axis=axis, mode=mode, origin=-(size // 2))
        return table.ravel()

    def maximum(self, values: Array) -> Array:
        """The largest of numbers on cells ``[c]`` over each box ``[k]``."""
        return self.of_prepared(self.prepared(values))

    def of_prepared(self, prepared: Array) -> Array:
        """The same of numbers that were prepared for boxes of this size."""
        total = prepared[self.numbers[0]]
        for number in self.numbers[1:]:
            np.maximum(total, prepared[number], out=total)
        return total


class _Gradients(NamedTuple):
    """V̂ and the ends of its partial derivatives."""

    grid: Cells  # of the cells
    table: Array  # V̂ at its points
    low: Array  # the least ∂V̂/∂s_j in each cell ``[d, c]``: on its edges
    high: Array  # the largest
    prepared: dict[tuple[int, ...], list[tuple[Array, Array]]]  # for windows of some sizes

    @classmethod
    def of(cls, grid: Cells, table: Array) -> _Gradients:
        corners = _corner_stack(grid, table)
        steps = [np.diff(corners, axis=axis).reshape(-1, corners.shape[-1]) for axis in range(grid.dimension)]
        low = np.stack([edges.min(axis=0) / side for edges, side in zip(steps, grid.sides, strict=True)])
        high = np.stack([edges.max(axis=0) / side for edges, side in zip(steps, grid.sides, strict=True)])
        return cls(grid, table, low, high, {})

    def over(self, first: NDArray[np.int32], last: NDArray[np.int32]) -> Iterator[tuple[Array, Array]]:
        """The least and largest ∂V̂/∂s_j over boxes of cells ``[k, d]``, for each coordinate: two ``[k]``."""
        window = _Window.of(first, last, self.grid)
        if window.sizes not in self.prepared:
            if len(self.prepared) > _KEPT:
                self.prepared.clear()
            self.prepared[window.sizes] = [
                (window.prepared(-low), window.prepared(high)) for low, high in zip(self.low, self.high, strict=True)
            ]
        for low, high in self.prepared[window.sizes]:
            yield -window.of_prepared(low), window.of_prepared(high)


class _Part(NamedTuple):
    """The image of k cells, and V̂ there."""

    image: Image  # clipped to the domain
    first: NDArray[np.int32]  # the first cell along each coordinate that they meet ``[k, d]``
    last: NDArray[np.int32]  # the last one
    affine: _Affine  # V̂ of the next states, as a function of the state

    @classmethod
    def of(cls, image: Image, gradients: _Gradients, halves: Array, rounding: float) -> _Part:
        grid = gradients.grid
        ends, sides, shape = np.array(grid.domain), grid.sides, np.array(grid.shape)
        after, slopes, spreads = image.after.copy(), image.slopes.copy(), image.spreads.copy()
        reach = (np.abs(slopes) + spreads) @ halves + INFLATION * sides
        low, high = after - reach, after + reach
        clips = [axis for axis in range(grid.dimension) if axis not in grid.periodic]
        for axis in clips:  # clip(x) − clip(y) = θ(x − y), 0 ≤ θ ≤ 1
            beyond = (low[:, axis] < ends[axis, 0]) | (high[:, axis] > ends[axis, 1])
            slopes[beyond, axis], spreads[beyond, axis] = hull_with_zero(slopes[beyond, axis], spreads[beyond, axis])
            for array in (after, low, high):
                np.clip(array[:, axis], *ends[axis], out=array[:, axis])
        first = np.floor((low - ends[:, 0]) / sides - INFLATION)
        last = np.floor((high - ends[:, 0]) / sides + INFLATION)
        for axis in grid.periodic:  # one turn is all there is
            turned = ~(last[:, axis] - first[:, axis] < shape[axis])
            first[turned, axis], last[turned, axis] = 0, shape[axis] - 1
        first, last = first.astype(np.int32), last.astype(np.int32)
        for axis in clips:
            for array in (first, last):
                np.clip(array[:, axis], 0, shape[axis] - 1, out=array[:, axis])
        gradient, radius = np.zeros(after.shape), np.full(len(after), rounding)
        for axis, (least, most) in enumerate(gradients.over(first, last)):
            middle, swing = (most + least) / 2, (most - least) / 2
            gradient += middle[:, None] * slopes[:, axis]
            radius += (np.abs(middle)[:, None] * spreads[:, axis]) @ halves
            radius += swing * ((np.abs(slopes[:, axis]) + spreads[:, axis]) @ halves)
            radius += INFLATION * sides[axis] * np.maximum(np.abs(most), np.abs(least))
        radius += RELATIVE * (radius + np.abs(gradient) @ halves)
        value = grid.combined(grid.domain.moved_into(after, grid.periodic), gradients.table)
        return cls(Image(after, slopes, spreads), first, last, _Affine(value, gradient, radius))

    def above(self, other: _Part, gradients: _Gradients, halves: Array) -> Array:
        """The least V̂(x) − V̂(y) in each cell, x being next states of this part and y of the other ``[k]``.

        The larger of two bounds: that of the two functions of the state, and g·(x − y), g being gradients of V̂ over a
        box of both.
        """
        grid, total = gradients.grid, np.zeros(len(self.first))
        shape, shift = np.array(grid.shape, dtype=np.int32), np.zeros(self.first.shape, dtype=np.int32)
        mine, its = self.image, other.image
        apart = mine.after - its.after
        for axis in grid.periodic:
            width = grid.domain[axis][1] - grid.domain[axis][0]
            turns = np.round(apart[:, axis] / width)
            apart[:, axis] -= turns * width
            shift[:, axis] = turns.astype(np.int32) * shape[axis]
        reach = (np.abs(mine.slopes - its.slopes) + mine.spreads + its.spreads) @ halves + 2 * INFLATION * grid.sides
        first = np.minimum(self.first, other.first + shift)
        last = np.minimum(np.maximum(self.last, other.last + shift), first + shape - 1)
        for axis, (least, most) in enumerate(gradients.over(first, last)):
            low, high = apart[:, axis] - reach[:, axis], apart[:, axis] + reach[:, axis]
            ends = [least * low, least * high, most * low, most * high]
            total += np.minimum.reduce(ends) - RELATIVE * np.maximum.reduce(np.abs(ends))
        return np.maximum(total, self.affine.plus(other.affine, -1.0).range(halves)[0])


_Parts = Sequence[_Part]  # what together contains the next states of an action, or of the policy


def _of_policy(actions: Sequence[_Parts], chosen: NDArray[np.intp]) -> list[_Part]:
    """Those of the action that is chosen in each cell ``[n]``."""

    def pick(*entries: Array) -> Array:
        return np.stack(entries)[chosen, np.arange(len(chosen))]

    return [each_array(pick, *each) for each in zip(*actions, strict=True)]


def _above(mine: _Parts, its: _Parts, gradients: _Gradients, halves: Array) -> Array:
    """The least V̂(x) − V̂(y) in each cell, x being next states of the one and y of the other ``[n]``."""
    return np.asarray(np.min([x.above(y, gradients, halves) for x in mine for y in its], axis=0))


class _Block(NamedTuple):
    """What follows from the next states of some live cells."""

    rows: NDArray[np.intp]  # the numbers of the live cells ``[n]``
    advantages: Array  # the least V̂(f_π(s)) − V̂(f_a(s)) of each action, ∞ for that of the policy ``[A, n]``
    excess: Array  # V̂ − R − γV̂∘f_π and R + γV̂∘f_a − V̂ at most ``[1 + A, n]``; empty without R
    parts: Sequence[_Parts]  # of the policy, and, with R, of each action

    @classmethod
    def of(
        cls,
        rows: NDArray[np.intp],
        actions: Sequence[_Parts],
        chosen: NDArray[np.intp],
        gradients: _Gradients,
        halves: Array,
        discount: float,
        here: _Affine | None,
    ) -> _Block:
        policy = _of_policy(actions, chosen)
        advantages = np.stack([_above(policy, parts, gradients, halves) for parts in actions])
        advantages[chosen, np.arange(len(chosen))] = np.inf
        if here is None:
            return cls(rows, advantages, np.zeros((0, len(chosen))), (policy,))

        def total(parts: _Parts, largest: bool) -> Array:
            """The largest or the least R − V̂ + γ V̂∘f in each cell."""
            each = [here.plus(part.affine, discount).range(halves)[largest] for part in parts]
            return np.asarray((np.max if largest else np.min)(each, axis=0))

        excess = [-total(policy, False), *(total(parts, True) for parts in actions)]
        return cls(rows, advantages, np.stack(excess), (policy, *actions))


def _greedy(actions: Sequence[_Parts], gradients: _Gradients, halves: Array, rounding: float) -> NDArray[np.intp]:
    """The action with the largest V̂ after it in the middle of a cell; of equal ones that of the best bound ``[n]``."""
    values = np.stack([main.affine.value for main, *_ in actions])
    best = values >= values.max(axis=0) - rounding
    chosen, rows = best.argmax(axis=0), np.flatnonzero(best.sum(axis=0) > 1)
    if len(rows):
        tied = [[each_array(itemgetter(rows), part) for part in parts] for parts in actions]
        least = [
            np.min([_above(parts, other, gradients, halves) for other in tied if other is not parts], axis=0)
            for parts in tied
        ]
        chosen[rows] = np.where(best[:, rows], least, -np.inf).argmax(axis=0)
    return chosen


class _Reach(NamedTuple):
    """The cells that the next states of all live cells meet."""

    window: _Window  # the boxes, those of one live cell after those of another
    starts: NDArray[np.intp]  # the first box of each live cell ``[n]``

    @classmethod
    def of(cls, blocks: Sequence[_Block], number: int, grid: Cells) -> _Reach:
        """Of the policy, or of an action, by its number among the parts of the blocks."""
        each = [(block.rows, part.first, part.last) for block in blocks for part in block.parts[number]]
        rows, first, last = (np.concatenate(entries) for entries in zip(*each, strict=True))
        order = np.argsort(rows, kind="stable")
        return cls(_Window.of(first[order], last[order], grid), np.unique(rows[order], return_index=True)[1])

    def maximum(self, values: Array) -> Array:
        """The largest of numbers on cells ``[c]`` over the next states of each live cell ``[n]``."""
        return np.asarray(np.maximum.reduceat(self.window.maximum(values), self.starts), dtype=float)


def _corner_stack(grid: Cells, table: Array) -> Array:
    """The values of a function at the corners of each cell ``[2, …, 2, c]``."""
    values = table.reshape(grid.counts)
    for axis in range(grid.dimension):
        if axis in grid.periodic:
            values = np.concatenate([values, values.take([0], axis=axis)], axis=axis)
    corners = np.stack(
        [
            values[tuple(slice(bit, bit + steps) for bit, steps in zip(bits, grid.shape, strict=True))].ravel()
            for bits in np.ndindex((2,) * grid.dimension)
        ]
    )
    return corners.reshape((2,) * grid.dimension + (-1,))


def _in_cells(grid: Cells, table: Array, rounding: float) -> _Affine:
    """A multilinear function in each cell: its expansion at the middle, with the mixed term as a radius."""
    corners, gradients = _corner_stack(grid, table), _Gradients.of(grid, table)
    value = corners.reshape(2**grid.dimension, -1).mean(axis=0)
    radius = np.full(len(value), rounding)
    if grid.dimension == 2:
        radius += np.abs(corners[0, 0] - corners[0, 1] - corners[1, 0] + corners[1, 1]) / 4
    return _Affine(value, ((gradients.low + gradients.high) / 2).T, radius)


def _upper_solution(excess: Array, reaches: Sequence[_Reach], live: NDArray[np.intp], discount: float) -> Array:
    """w on cells ``[c]`` with w ≥ excess_i + γ max w over the next states of reach i; 0 in terminal cells.

    Iterates start at a constant that is an upper solution, decrease, and are all upper solutions.

    ``excess`` ``[i, n]`` and the next states, ``reaches`` ``[i]``, are those of live cells, whose numbers are ``live``
    ``[n]``.
    """
    total = np.zeros(prod(reaches[0].window.grid.shape), dtype=np.float32)
    largest = max(float(excess.max()), 0.0) / (1 - discount)
    if largest == 0:
        return total
    total[live] = _single(np.array(largest * (1 + 1e-6 / (1 - discount))))  # larger than after a step and its rounding
    for _ in range(int(np.ceil(np.log(_SMALL) / np.log(discount))) if discount > 0 else 1):
        ahead = [more + discount * reach.maximum(total) for more, reach in zip(excess, reaches, strict=True)]
        improved = np.minimum(_single(np.maximum(np.max(ahead, axis=0), 0) * (1 + 1e-12)), total[live])
        change = float((total[live] - improved).max())
        total[live] = improved
        if change <= _SMALL * largest:
            break
    return total


def _evaluated(
    simulator: Any, grid: Cells, actions: NDArray[np.intp], cells: Cells, reward: Any, discount: float
) -> Array:
    """V̂ = R + γ V̂∘f_π at the points of the grid: a guess."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import spsolve

    points, terminal = grid.points(), terminal_of(simulator)
    chosen = np.maximum(actions[cells.cell(points)], 0)
    after = np.stack([next_states(simulator, points, action) for action in range(simulator.n_actions)])
    matrix = grid.matrix(after[chosen, np.arange(len(points))])
    total = reward.coefficients.copy()
    if terminal is not None:
        over = terminal(points)
        total[over] = 0
        matrix = matrix.multiply(~over[:, None]).tocsr()
    return np.asarray(spsolve((eye_array(grid.size) - discount * matrix).tocsc(), total))
