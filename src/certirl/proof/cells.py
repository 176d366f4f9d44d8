"""Certificates for deterministic simulators by cells: nothing is random, so δ = 0.

The box of states is divided into cells. For each cell and action a box that contains all next states is known, from
declared Lipschitz constants or from the simulator itself. On these boxes a guess V̂ of the value, multilinear on a
grid, is bounded exactly, and upper solutions on the cells bound V* − V̂ and V̂ − V^π. The proof is in
docs/notes/deterministic.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import as_policy
from certirl.data.simulator import as_generator, ask, check_simulator, periodic_of, terminal_of
from certirl.fit.bellman import check_problem
from certirl.functions.cells import Cells
from certirl.functions.reward import Reward
from certirl.ground.domain import Array, Domain, as_domain, as_rows, like_input, mesh
from certirl.ground.doors import as_count, as_reals
from certirl.ground.records import Record
from certirl.ground.status import percent_up, rounded_down

Boxes = tuple[tuple[Array, Array], ...]

MOST_COORDINATES = 2
MOST_CELLS = 4_000_000
INFLATION = 1e-9  # of a side, by which cells and boxes are enlarged: rounding of places
ROUNDING = 1e-13  # of the largest |V̂| and |R|: rounding of their values
PROBES = 2000  # next states that are compared with the declared boxes, for each action
_BLOCK = 1 << 17  # cells at once
_SMALL = 1e-9  # change of an upper solution, relative to its first bound, at which it is final


@dataclass(frozen=True, eq=False)
class ValueReward(Record):
    """``R(s) = V(s) − γ max_a V(f_a(s))``: the reward whose optimal value is V, 0 at terminal states.

    Attributes:
        value: V on a grid.
        simulator: f_a, deterministic.
        discount: γ.

    Example:
        >>> car = certirl.gym.simulator("MountainCar-v0")
        >>> plan = certirl.planning.plan(car, discount=0.9, points=(55, 41))
        >>> reward = certirl.certify_deterministic(car, plan).reward
        >>> reward([[-0.5, 0.0]]).shape
        (1,)
    """

    value: Reward
    simulator: Any
    discount: float

    def __call__(self, states: Any) -> Any:
        """R at a state or at states ``[n, d]``."""
        rows = as_rows(states, self.value.basis.dimension)
        after = [self.value(_next(self.simulator, rows, action)) for action in range(self.simulator.n_actions)]
        total = self.value(rows) - self.discount * np.max(after, axis=0)
        total = np.where(self.value.ended(rows), 0.0, total) if self.value.ended is not None else total
        return like_input(total, states, self.value.basis.dimension)


@dataclass(frozen=True, eq=False)
class CellCertificate(Record):
    """What is proved about a policy, a reward and a deterministic simulator, cell by cell.

    Attributes:
        grid: its cells are those of the proof.
        discount: γ.
        actions: the action of the policy in each cell ``[c]``; −1 in cells of terminal states.
        margins: ``Q*(s, π(s)) − Q*(s, a)`` is at least this at all states of a cell, for all a ≠ π(s) ``[c]``; NaN in
            cells of terminal states. Where it is positive, π(s) is the only optimal action.
        regrets: ``V*(s) − V^π(s)`` is at most this at all states of a cell ``[c]``.
        reward: R, of which all this is proved.
        span: of the value V̂ on the grid.
        assumptions: what is not proved but declared.
        coordinate_names: of the simulator; empty if there are none.

    Example:
        >>> car = certirl.gym.simulator("MountainCar-v0")
        >>> plan = certirl.planning.plan(car, discount=0.9, points=(91, 71))
        >>> proof = certirl.certify_deterministic(car, plan, refine=4)
        >>> proof.delta, proof.grid.shape, 0.4 < proof.decided < 0.5
        (0.0, (360, 280), True)
    """

    grid: Cells
    discount: float
    actions: NDArray[np.intp]
    margins: Array
    regrets: Array
    reward: Callable[[Array], Any]
    span: float
    assumptions: tuple[str, ...] = ()
    coordinate_names: tuple[str, ...] = ()

    @property
    def delta(self) -> float:
        """The probability that the statement is wrong: nothing is random."""
        return 0.0

    @property
    def live(self) -> NDArray[np.bool_]:
        """Which cells have states that are not terminal ``[c]``."""
        return self.actions >= 0

    @property
    def proved(self) -> NDArray[np.bool_]:
        """The cells at all of whose states the action of the policy is the only optimal one ``[c]``."""
        return self.margins > 0

    @property
    def decided(self) -> float:
        """The share of live cells that are proved."""
        return float(self.proved[self.live].mean())

    @property
    def holds(self) -> bool:
        """Whether every live cell is proved that has no switch of the policy beside it."""
        return bool(self.proved[self.live & ~self.beside].all())

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
    def margin(self) -> float:
        """The least margin of the proved cells; NaN if there are none."""
        return float(self.margins[self.proved].min()) if self.proved.any() else float("nan")

    @property
    def regret(self) -> float:
        """A bound of V* − V^π at every state, as a share of the span of V̂."""
        return float(self.regrets.max() / self.span)

    def __str__(self) -> str:
        live, beside, proved = self.live, self.beside, self.proved
        counts, size = " × ".join(map(str, self.grid.shape)), int(live.sum())
        word = "Certified" if self.decided == 1 else "Certified in part" if proved.any() else "Not certified"
        lines = [f"{word}, δ = 0: the policy's action is the only optimal one in {_share(self.decided)} of the cells"]
        if proved.any():
            tenth, median = np.quantile(self.margins[proved], [0.1, 0.5])
            least = f"{rounded_down(tenth):.3g} or more in 90% of them"
            lines.append(f"  margin   positive in these cells: {least}, median {median:.3g}")
        switching, undecided = (
            percent_up(float(which.sum() / size), 1) for which in (beside, live & ~beside & ~proved)
        )
        lines.append(f"  tube     {switching} of the cells are beside a switch of the policy, and")
        lines.append(f"           {undecided} are undecided elsewhere")
        lines.append(
            f"  regret   at most {percent_up(self.regret)} of the span of the value at every state, "
            f"mean of the bounds {self.regrets[live].mean() / self.span:.2%}"
        )
        lines.append(f"  cells    {counts}, {size:,} of them with states that are not terminal; γ = {self.discount:g}")
        return "\n".join([*lines, *(f"  assumed: {assumption}" for assumption in self.assumptions)])


def certify_deterministic(
    simulator: Any,
    expert: Any = None,
    *,
    value: Any = None,
    reward: Reward | None = None,
    discount: float | None = None,
    lipschitz: Any = None,
    refine: int = 1,
    rng: Any = 0,
) -> CellCertificate:
    """Prove where a policy is optimal in a deterministic simulator s' = f_a(s), at every state, with δ = 0.

    Args:
        simulator: of one or two coordinates, deterministic. Its terminal states must be the boxes of its attribute
            ``terminal_boxes``, and the grid must have lines at their faces.
        expert: the policy; it takes at all states of a cell the action that it takes in the middle. Left out, the plan
            that ``value`` is.
        value: V̂ on a grid: a `planning.Plan`, or a `Reward` on `Cells` that stands for V̂. Left out, ``expert`` if it
            is a plan, else computed from ``reward`` on its grid.
        reward: R on `Cells`, on the grid of V̂. Left out, the reward ``R = V̂ − γ max_a V̂∘f_a``, whose value is V̂.
        discount: γ; known from a plan.
        lipschitz: ``L[a, i, j]`` (or ``L[i, j]`` for all actions) with ``|f_a(s)_i − f_a(t)_i| ≤ Σ_j L[a, i, j]
            |s_j − t_j|`` for states of a cell, in wrapped distance along periodic coordinates. Left out, the boxes of
            ``simulator.enclosure``, which MountainCar and Pendulum have.
        refine: cells of the proof along each side of a cell of the grid.
        rng: draws the states at which the declared boxes are compared with the simulator.

    Example:
        >>> car = certirl.gym.simulator("MountainCar-v0")
        >>> plan = certirl.planning.plan(car, discount=0.9, points=(91, 71))
        >>> proof = certirl.certify_deterministic(car, plan, refine=4)
        >>> round(proof.decided, 2), proof.margin > 0
        (0.45, True)
    """
    check_simulator(simulator)
    if not getattr(simulator, "deterministic", True):
        raise ValueError(f"{simulator!r} is random: certify it with certirl.solve and a tail")
    domain, periodic = as_domain(simulator.domain), periodic_of(simulator)
    if len(domain) > MOST_COORDINATES:
        raise ValueError(f"cells serve one or two coordinates, these states have {len(domain)}")
    guess = value if value is not None or not hasattr(expert, "values") else expert
    expert = guess if expert is None else expert
    discount = getattr(guess, "discount", None) if discount is None else discount
    if discount is None or expert is None:
        raise ValueError("pass expert, and discount, say discount=0.9")
    discount = check_problem(discount, 0, simulator.n_actions)
    policy = as_policy(expert, simulator.n_actions)
    coarse = _grid_of(reward if guess is None else guess, domain, periodic)
    grid = _refined(coarse, as_count(refine, "refine"))
    boxes = _terminal_boxes(simulator)
    sides, centres = grid.sides, mesh(grid.middles())
    over = _terminal_cells(grid, centres, boxes)
    live = np.flatnonzero(~over)
    actions = np.full(len(centres), -1)
    actions[live] = policy.actions(centres[live])
    if reward is not None and _grid_of(reward, domain, periodic) != coarse:
        raise ValueError("the reward and the value must be on the same grid")
    coefficients = _evaluated(simulator, coarse, actions, grid, reward, discount) if guess is None else _of(guess)
    ended = terminal_of(simulator)
    start = Reward(coarse, coefficients, ended=ended)
    table = coarse.combined(grid.points(), coefficients) if grid != coarse else np.asarray(coefficients)
    images = [
        _Images.of(_asked(simulator, centres[live], sides / 2 * (1 + INFLATION), action, lipschitz), grid, boxes)
        for action in range(simulator.n_actions)
    ]
    checked = _compare(simulator, grid, live, images, rng)
    slopes = _slopes(grid, table)
    paid = None if reward is None else coarse.combined(grid.points(), reward.coefficients)
    rounding = ROUNDING * float(np.abs(table).max() + (0.0 if paid is None else np.abs(paid).max()))
    ranges = [image.range(grid, table, slopes) for image in images]
    low = np.stack([least for least, _ in ranges]) - rounding
    high = np.stack([most for _, most in ranges]) + rounding
    chosen, rows = actions[live], np.arange(len(live))
    along, mine = _Images.of_policy(images, chosen), low[chosen, rows]
    others = high.copy()
    others[chosen, rows] = -np.inf
    named: Callable[[Array], Any]
    if reward is None or paid is None:  # V* = V̂
        above = below = np.zeros(len(centres))
        loss = _upper_solution(discount * np.maximum(others.max(axis=0) - mine, 0)[None], [along], grid, live, discount)
        named = ValueReward(start, simulator, discount)
    else:
        least, most = _corner_range(grid, paid - table)
        least, most = least[live] - rounding, most[live] + rounding
        above = _upper_solution(most + discount * high, images, grid, live, discount)
        below = _upper_solution(-(least + discount * mine)[None], [along], grid, live, discount)
        loss, named = above + below, reward
    margins = np.full(len(centres), np.nan)
    alternative = np.max(
        [other + image.maximum(above, grid) for other, image in zip(others, images, strict=True)], axis=0
    )
    margins[live] = discount * (mine - along.maximum(below, grid) - alternative) - rounding
    source = "declared Lipschitz constants" if lipschitz is not None else "the boxes of next states of the simulator"
    assumptions = (
        f"{source}: no contradiction at {checked:,} states",
        "the policy takes one action in each cell, that in its middle",
        *(["reward R = V̂ − γ max_a V̂∘f_a, evaluated through the simulator"] if reward is None else []),
    )
    span = float(np.ptp(table if not boxes else np.append(table, 0.0)))
    names = tuple(getattr(simulator, "coordinate_names", ()))
    if span == 0:
        raise ValueError("the value is the same at every state: no action is better than another")
    return CellCertificate(grid, discount, actions, margins, np.maximum(loss, 0), named, span, assumptions, names)


def _share(share: float) -> str:
    return "all" if share == 1 else f"{np.floor(share * 1000) / 1000:.1%}"  # never more than is proved


def _of(value: Any) -> Array:
    return np.asarray(value.values if hasattr(value, "values") else value.coefficients, dtype=float)


def _grid_of(value: Any, domain: Domain, periodic: tuple[int, ...]) -> Cells:
    grid = getattr(value, "basis", None)
    if not isinstance(grid, Cells):
        raise ValueError("the value and the reward must be multilinear on a grid: a plan on points, or certirl.Cells")
    if grid.periodic != periodic:
        raise ValueError(f"the simulator is periodic in coordinates {periodic}, the grid in {grid.periodic}")
    return grid.on(domain)


def _refined(grid: Cells, parts: int) -> Cells:
    counts = tuple(parts * steps + (axis not in grid.periodic) for axis, steps in enumerate(grid.shape))
    refined = Cells(counts, grid.periodic, grid.domain)
    if np.prod(refined.shape) > MOST_CELLS:
        raise ValueError(f"at most {MOST_CELLS:,} cells are possible, got {' × '.join(map(str, refined.shape))}")
    return refined


def _next(simulator: Any, states: Array, action: int) -> Array:
    rng = np.random.default_rng(0)
    return np.asarray(ask(simulator, states, action, rng, as_domain(simulator.domain)), dtype=float)


def _terminal_boxes(simulator: Any) -> tuple[Array, ...]:
    """The terminal boxes ``[d, 2]``."""
    declared = getattr(simulator, "terminal_boxes", None)
    if declared is None:
        if terminal_of(simulator) is not None:
            raise ValueError("the simulator has terminal states: it must name them by terminal_boxes, () if none")
        return ()
    if len(declared) and periodic_of(simulator):
        raise ValueError("terminal boxes are possible without periodic coordinates only")
    return tuple(np.array(as_domain(box)) for box in declared)


def _terminal_cells(grid: Cells, centres: Array, boxes: tuple[Array, ...]) -> NDArray[np.bool_]:
    """Which cells are terminal ``[c]``; faces of terminal boxes must be on lines of the grid."""
    over = np.zeros(len(centres), dtype=bool)
    for box in boxes:
        lines = (box - np.array(grid.domain)[:, :1]) / grid.sides[:, None]
        inner = (lines > 0) & (lines < np.array(grid.shape)[:, None])
        if (np.abs(lines - np.round(lines))[inner] > INFLATION).any():
            raise ValueError(
                f"the terminal box {box.tolist()} must end on lines of the grid, whose cells have sides "
                f"{grid.sides.tolist()}: choose other points"
            )
        over |= ((centres > box[:, 0]) & (centres < box[:, 1])).all(axis=1)
    return over


def _asked(simulator: Any, centres: Array, halves: Array, action: int, lipschitz: Any) -> Boxes:
    """Boxes that together contain all next states of the cells around the centres."""
    if lipschitz is None:
        enclosure = getattr(simulator, "enclosure", None)
        declared = None if enclosure is None else enclosure(centres, halves, action)
        if declared is None:
            raise ValueError("pass lipschitz=L, numbers [d, d] or [A, d, d]: this simulator declares none")
        return tuple(declared)
    slopes = as_reals(lipschitz, "lipschitz").astype(float)
    size = len(halves)
    if slopes.shape not in {(size, size), (simulator.n_actions, size, size)} or (slopes < 0).any():
        raise ValueError(
            f"lipschitz must be numbers of at least 0 of shape [{size}, {size}] or "
            f"[{simulator.n_actions}, {size}, {size}], got shape {list(slopes.shape)}"
        )
    reach = (slopes[action] if slopes.ndim == 3 else slopes) @ halves
    middle = _next(simulator, centres, action)
    return ((middle - reach, middle + reach),)


class _Image(NamedTuple):
    """Boxes of next states, one for each live cell.

    Attributes:
        low, high: their corners ``[n, d]``.
        first: the number of the first cell that each meets ``[n]``.
        counts: cells along each coordinate from there that are enough for all ``[d]``.
        meets: which of them meet terminal states ``[n]``.
        inside: which of them have terminal states alone ``[n]``.
    """

    low: Array
    high: Array
    first: NDArray[np.intp]
    counts: tuple[int, ...]
    meets: NDArray[np.bool_]
    inside: NDArray[np.bool_]


class _Images(NamedTuple):
    """The boxes of next states of one action."""

    parts: tuple[_Image, ...]

    @classmethod
    def of(cls, boxes: Boxes, grid: Cells, terminal: tuple[Array, ...]) -> _Images:
        return cls(tuple(_located(low, high, grid, terminal) for low, high in boxes))

    @classmethod
    def of_policy(cls, images: Sequence[_Images], chosen: NDArray[np.intp]) -> _Images:
        """Those of the action that is chosen in each live cell ``[n]``."""
        rows, number = np.arange(len(chosen)), max(len(image.parts) for image in images)
        parts = []
        for part in range(number):
            each = [image.parts[min(part, len(image.parts) - 1)] for image in images]
            low, high, first, meets, inside = (
                np.stack([getattr(image, name) for image in each])[chosen, rows]
                for name in ("low", "high", "first", "meets", "inside")
            )
            counts = tuple(np.max([image.counts for image in each], axis=0).tolist())
            parts.append(_Image(low, high, first, counts, meets, inside))
        return cls(tuple(parts))

    def maximum(self, values: Array, grid: Cells) -> Array:
        """The largest of numbers on cells ``[c]`` over the next states of each live cell ``[n]``; terminal: 0."""
        return np.maximum.reduce(
            [np.where(image.inside, 0.0, _windows(values, image.counts, grid)[image.first]) for image in self.parts]
        )

    def range(self, grid: Cells, table: Array, slopes: Array) -> tuple[Array, Array]:
        """The least and largest V̂ over the next states of each live cell: two ``[n]``."""
        lows, highs = [], []
        for image in self.parts:
            middle, reach = (image.low + image.high) / 2, (image.high - image.low) / 2
            values = np.concatenate(
                [grid.combined(middle[start : start + _BLOCK], table) for start in range(0, len(middle), _BLOCK)]
            )
            swing = np.zeros(len(middle))
            for axis, slope in enumerate(slopes):
                swing += reach[:, axis] * _windows(slope, image.counts, grid)[image.first]
            low, high = values - swing, values + swing
            low = np.where(image.inside, 0.0, np.where(image.meets, np.minimum(low, 0), low))
            high = np.where(image.inside, 0.0, np.where(image.meets, np.maximum(high, 0), high))
            lows.append(low)
            highs.append(high)
        return np.minimum.reduce(lows), np.maximum.reduce(highs)


def _located(low: Array, high: Array, grid: Cells, terminal: tuple[Array, ...]) -> _Image:
    """Boxes, slightly enlarged, within the domain, with the cells that they meet."""
    ends, sides, shape = np.array(grid.domain), grid.sides, np.array(grid.shape)
    low, high = low - INFLATION * sides, high + INFLATION * sides
    wraps = np.isin(np.arange(grid.dimension), grid.periodic)
    low = np.where(wraps, low, np.clip(low, *ends.T))
    high = np.where(wraps, high, np.clip(high, *ends.T))
    first = np.floor((low - ends[:, 0]) / sides - INFLATION).astype(np.intp)
    last = np.floor((high - ends[:, 0]) / sides + INFLATION).astype(np.intp)
    first = np.where(wraps, first, np.clip(first, 0, shape - 1))
    last = np.where(wraps, last, np.clip(last, 0, shape - 1))
    counts = np.minimum((last - first).max(axis=0, initial=0) + 1, shape)
    meets, inside = np.zeros(len(low), dtype=bool), np.zeros(len(low), dtype=bool)
    near = INFLATION * sides
    for box in terminal:
        meets |= ((high >= box[:, 0] - near) & (low <= box[:, 1] + near)).all(axis=1)
        edge = box[:, 1] >= ends[:, 1] - near  # the face of the domain: no state is beyond it
        start = box[:, 0] <= ends[:, 0] + near
        inside |= (((low >= box[:, 0] + near) | start) & ((high <= box[:, 1] - near) | edge)).all(axis=1)
    number = np.ravel_multi_index(tuple((first % shape).T), grid.shape)
    return _Image(low, high, np.asarray(number), tuple(counts.tolist()), meets, inside)


def _windows(values: Array, counts: tuple[int, ...], grid: Cells) -> Array:
    """The largest number over a window of cells that starts at each cell ``[c]``."""
    from scipy.ndimage import maximum_filter1d

    table = values.reshape(grid.shape)
    for axis, size in enumerate(counts):
        if size > 1:
            mode = "wrap" if axis in grid.periodic else "nearest"
            table = maximum_filter1d(table, size, axis=axis, mode=mode, origin=-(size // 2))
    return table.ravel()


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


def _corner_range(grid: Cells, table: Array) -> tuple[Array, Array]:
    """The least and largest value over each cell, slightly enlarged: two ``[c]``."""
    corners = _corner_stack(grid, table).reshape(2**grid.dimension, -1)
    least, most = corners.min(axis=0), corners.max(axis=0)
    beyond = (
        4
        * INFLATION
        * np.sum(
            [
                side * _windows(slope, (3,) * grid.dimension, grid)
                for side, slope in zip(grid.sides, _slopes(grid, table), strict=True)
            ],
            axis=0,
        )
    )
    return least - beyond, most + beyond


def _slopes(grid: Cells, table: Array) -> Array:
    """The largest |∂V̂/∂s_j| in each cell ``[d, c]``: on its edges."""
    corners = _corner_stack(grid, table)
    differences = [np.abs(np.diff(corners, axis=axis)).reshape(-1, corners.shape[-1]) for axis in range(grid.dimension)]
    return np.stack([edges.max(axis=0) / side for edges, side in zip(differences, grid.sides, strict=True)])


def _upper_solution(
    excess: Array, images: Sequence[_Images], grid: Cells, live: NDArray[np.intp], discount: float
) -> Array:
    """w on cells ``[c]`` with w ≥ excess_i + γ max w over the next states of images i; 0 in terminal cells.

    Iterates start at a constant that is an upper solution, decrease, and are all upper solutions.

    Args:
        excess: ``[i, n]`` in live cells.
        images: next states ``[i]``.
        grid: the cells.
        live: their numbers ``[n]``.
        discount: γ.
    """
    total, first = np.zeros(int(np.prod(grid.shape))), max(float(excess.max()), 0.0) / (1 - discount)
    if first == 0:
        return total
    total[live], rounding = first, 1e-14 * (first + float(np.abs(excess).max()))
    for _ in range(_rounds(discount)):
        ahead = [more + discount * image.maximum(total, grid) for more, image in zip(excess, images, strict=True)]
        improved = np.minimum(np.max(ahead, axis=0) + rounding, total[live])
        change = float((total[live] - improved).max())
        total[live] = improved
        if change <= _SMALL * first:
            break
    return total


def _rounds(discount: float) -> int:
    return int(np.ceil(np.log(_SMALL) / np.log(discount))) if discount > 0 else 1


def _evaluated(
    simulator: Any, grid: Cells, actions: NDArray[np.intp], cells: Cells, reward: Any, discount: float
) -> Array:
    """V̂ = R + γ V̂∘f_π at the points of the grid: a guess."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import spsolve

    points, terminal = grid.points(), terminal_of(simulator)
    chosen = np.maximum(actions[cells.cell(points)], 0)
    after = np.stack([_next(simulator, points, action) for action in range(simulator.n_actions)])
    matrix = grid.matrix(after[chosen, np.arange(len(points))])
    total = reward.coefficients.copy()
    if terminal is not None:
        over = terminal(points)
        total[over] = 0
        matrix = matrix.multiply(~over[:, None]).tocsr()
    return np.asarray(spsolve((eye_array(grid.size) - discount * matrix).tocsc(), total))


def _compare(simulator: Any, grid: Cells, live: NDArray[np.intp], images: Sequence[_Images], rng: Any) -> int:
    """Compare next states of states drawn in live cells with the boxes, and say how many; raise if one is outside."""
    generator, terminal = as_generator(rng, "certify_deterministic"), terminal_of(simulator)
    rows = generator.integers(len(live), size=PROBES)
    places = np.unravel_index(live[rows], grid.shape)
    shares = generator.random((PROBES, grid.dimension))
    shares[: PROBES // 2] = np.round(shares[: PROBES // 2])  # half of them at corners, where the deviation is largest
    inside = (np.stack(places, axis=1) + shares * (1 - 2e-9) + 1e-9) * grid.sides
    states = np.array(grid.domain)[:, 0] + inside
    width = np.diff(np.array(grid.domain), axis=1)[:, 0]
    if terminal is not None and terminal(states).any():
        raise ValueError(
            f"terminal_boxes are contradicted: {states[int(terminal(states).argmax())].tolist()} is outside of them "
            "and terminal"
        )
    for action, image in enumerate(images):
        after = _next(simulator, states, action)
        found = np.zeros(PROBES, dtype=bool)
        for part in image.parts:
            middle, reach = (part.low + part.high)[rows] / 2, (part.high - part.low)[rows] / 2
            apart = after - middle
            for axis in grid.periodic:
                apart[:, axis] = (apart[:, axis] + width[axis] / 2) % width[axis] - width[axis] / 2
            found |= (np.abs(apart) <= reach + 1e-12 * width).all(axis=1)
        if not found.all():
            row = int((~found).argmax())
            raise ValueError(
                f"the declared Lipschitz constants are contradicted: action {action} leads from {states[row].tolist()} "
                f"to {after[row].tolist()}, outside the box that they give for its cell"
            )
    return PROBES * len(images)
