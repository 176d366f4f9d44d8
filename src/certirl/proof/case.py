"""What is to be proved, whatever the reward: the expert, the columns, the tail and the tube; decided once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from certirl.data.dependence import Sampling, rows_in_words
from certirl.data.policy import ExpertGrid, Policy, as_policy, compared, expert_grid
from certirl.data.simulator import Even, Near
from certirl.data.source import Source
from certirl.fit.bellman import check_expert
from certirl.fit.drifts import NO_PROOF, Drifts
from certirl.functions.bases import MOST_COLUMNS, MOST_FUNCTIONS, Basis
from certirl.functions.components import Component
from certirl.functions.reward import BoundedReward, Reward, bounded
from certirl.ground.domain import Array, Box
from certirl.ground.doors import as_number, by_door, setting, shown
from certirl.ground.records import Record, internal
from certirl.proof.contradictions import of_circle
from certirl.proof.suboptimality import as_share
from certirl.proof.surrogate import expands
from certirl.proof.tails import Tail, TailLike, is_number, least_columns, tail_in_numbers, tail_in_words, tail_number

MOST_ON_A_BOX = 16  # functions of V on a box up to which a search tries a refutation
# Of the domain's least width: the half-width of the tube if none is asked for, by the number of coordinates.
_TUBE = {1: 0.025, 2: 0.025, 3: 0.05}
SEPARATE = "given the action, each component's next state depends on its own state alone"
AS_READ = "the dynamics are those of the log as it was read: "
COUPLED = (
    "an expert whose action depends on the state couples the components, so that the advantage is no sum over "
    "them: leave components out, or name an expert of one action"
)
SHARE, BESIDE = 0.3, 2.0  # of fresh states drawn beside the switches, and their distance in half-widths of the tube
_WIDTHS = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2)  # of the tents, as shares of the tube


class Part(NamedTuple):
    """A component of the state."""

    number: int  # among all components
    name: str  # what to call it; empty for the only one
    coordinates: tuple[int, ...] | None  # of whole states; None for all
    columns: Basis  # φ, on the box of the component
    tail: float | None  # τ; None if none is declared

    @property
    def periodic(self) -> tuple[int, ...]:
        """The coordinates of whole states in which the columns are periodic."""
        axes = self.columns.periodic_axes
        return axes if self.coordinates is None else tuple(self.coordinates[axis] for axis in axes)


@dataclass(frozen=True, eq=False)
class Case(Record):
    """What is to be proved of a reward."""

    policy: Policy  # the expert
    used: tuple[int, ...]  # the actions that it takes with positive probability somewhere; one for a constant expert
    parts: tuple[Part, ...]  # the components of the state, one or more
    discount: float  # γ
    tail: TailLike  # as in `certify`
    grid: ExpertGrid | None = None  # the expert on a grid; None for a constant expert
    tube: float = 0.0  # the half-width by which states are drawn beside switches; 0 for a constant expert
    notes: tuple[str, ...] = ()  # what is assumed of the expert, in words
    sampling: Sampling = "independent"  # how fresh rows depend on each other
    action_names: tuple[str, ...] = ()  # of the actions, if the data have them
    log_notes: tuple[str, ...] = ()  # what was done to the log while it was read, in sentences
    logged: bool = False  # fresh rows are those of a log
    made: tuple[int, ...] = ()  # actions whose rows were made from what is declared of them
    suboptimality: float | None = None  # as in `certify`
    allowed: float = 0.0  # the half-width outside which everything must be proved; 0 for all states

    @classmethod
    def of(
        cls,
        expert: Any,
        columns: Basis | Sequence[Basis],
        *,
        n_actions: int,
        discount: float,
        tail: TailLike,
        tube: float | None = None,
        components: Sequence[Component] = (),
        source: Source | None = None,
        suboptimality: float | None = None,
    ) -> Case:
        """Look the expert up, and refuse what cannot be proved; arguments are those of `certify`.

        γ is nan for a refutation, in which it plays no part; with components there is one basis of columns for each. A
        tail that is too large for any bound, and periods of the columns that the data contradict, are refused where a
        source is given.
        """
        share = as_share(suboptimality)
        check_expert(0, n_actions)
        policy = as_policy(expert, n_actions)
        parts = _parts(columns, components, tail)
        asked: dict[str, Any] = {"parts": parts, "discount": discount, "tail": tail, "suboptimality": share}
        if source is not None:
            asked |= {"sampling": source.sampling, "action_names": source.action_names, "log_notes": source.notes}
            asked |= {"logged": source.is_log, "made": source.made}
            faults = [_too_large(tail, part, discount) for part in parts] if math.isfinite(discount) else []
            axes = sorted({axis for part in parts for axis in part.periodic})
            fault = next(filter(None, faults), "") or of_circle(tail, source, axes)
            if fault:
                raise ValueError(fault)
        if policy.constant is not None:
            if tube is not None:
                raise ValueError(without_switches("tube"))
            return cls(policy, (policy.constant,), **asked)
        if len(parts) > 1:
            raise ValueError(COUPLED)
        domain = parts[0].columns.domain
        grid, half_width = expert_grid(policy, domain), allowed_tube(tube, domain)
        asked["notes"] = (str(grid), *([policy.assumption] if policy.assumption else []))
        policy = compared(policy, grid)
        if len(grid.used) == 1:
            return cls(policy, grid.used, **asked)
        is_everywhere = share is not None and tube is None  # at a switch actions are alike, which an inexact expert may
        allowed = 0.0 if is_everywhere else half_width
        return cls(policy, grid.used, grid=grid, tube=half_width, allowed=allowed, **asked)

    @property
    def switching(self) -> ExpertGrid | None:
        """The grid of an expert that switches; None for any other."""
        return self.grid if self.grid is not None and len(self.grid.switches) else None

    @property
    def design(self) -> Even | Near:
        """Where to draw states: more beside the switches, where margins are thin."""
        if self.switching is None:
            return Even(tuple(part.columns for part in self.parts), tuple(part.coordinates for part in self.parts))
        columns = self.parts[0].columns
        return Near(columns, self.switching.switches, np.full(columns.dimension, BESIDE * self.tube), SHARE)

    @property
    def marks(self) -> Array:
        """Distances to the switches at the corners of the grid; empty without switches."""
        return np.zeros(0) if self.switching is None else self.switching.marks

    @property
    def widths(self) -> Array:
        """The half-widths of the tents ``[w]``; none without switches."""
        return self.tube * np.array(_WIDTHS) if len(self.marks) else np.zeros(0)

    def rewards(self, reward: Any) -> list[BoundedReward | None]:
        """The reward of every component, its range between 1 and 2; None where it is zero."""
        each = reward.parts if isinstance(reward, Reward) else (reward,)
        if len(each) != len(self.parts):
            raise ValueError(f"a reward of {len(each)} components does not fit {len(self.parts)} components")
        rewards: list[BoundedReward | None] = []
        for part, function in zip(self.parts, each, strict=True):
            ranged = bounded(function, part.columns.domain, actions=self.used).normalised()
            if ranged.of_actions and not expands(ranged, part.columns):
                ranged = ranged.told_apart(self.policy.n_actions)
            empty = len(each) > 1 and not function.coefficients.any()
            rewards.append(None if empty else ranged)
        return rewards

    def assumptions(self, components: Iterable[int], *, paired: bool, single: bool = False) -> list[str]:
        """What is assumed of the dynamics of these components and of the fresh data, in words.

        Paired states were tried with every action; ``single`` means that of every episode one step is used.
        """
        names: dict[str, list[str]] = {}
        for part in (self.parts[number] for number in components):
            names.setdefault(tail_in_words(self.tail, part.tail, part.columns), []).append(part.name)
        tails = list(names)
        if len(self.parts) > 1:
            alike = len(names) == 1
            tails = [f"in {'each component' if alike else ', '.join(names[words])} {words}" for words in tails]
            tails.insert(0, SEPARATE)
        rows = rows_in_words(self.sampling, logged=self.logged, paired=paired, single=single)
        return [*tails, rows, *(AS_READ + note for note in self.log_notes)]


class Declared(NamedTuple):
    """What a proof exists for where the dynamics are declared in one way."""

    written: str  # the declaration in a call
    option: str  # the same in a command
    where: str  # dynamics that it fits, in words
    coordinates: int  # of the states, at most
    lacks: tuple[str, ...]  # the cases of `CASES` that do not exist


CASES = (
    "periodic coordinates",
    "terminal states",
    "experts that mix actions",
    "logs: independent rows, episodes, trajectories",
    "sums over components",
    "`certirl.refute`",
    "rewards of state and action",
    "inexact experts: `suboptimality`",
)
DECLARED = {
    "columns": Declared("columns=…, tail=…", "--columns N --tail TAIL", "with noise", 3, CASES[1:2]),
    "AffineGaussian": Declared(
        "dynamics=certirl.dynamics.AffineGaussian(…)",
        "--known-noise STD",
        "with an affine drift and known noise",
        1,
        (*CASES[:3], *CASES[4:6]),
    ),
    "Deterministic": Declared(
        "dynamics=certirl.dynamics.Deterministic(…)", "certirl cells", "without noise", 2, CASES[2:]
    ),
}
MOST_COORDINATES = DECLARED["columns"].coordinates


@internal
class Declaration(Record):
    """What is declared of the dynamics in place of columns and a tail; its class is a key of `DECLARED`."""

    uses: ClassVar[tuple[str, ...]]  # the settings of `certify` and `solve` that a proof with it has a use for
    is_random: ClassVar[bool]  # whether there is noise, so that a proof rests on draws and fails with a probability

    def check(self, source: Source) -> None:
        """Refuse states and data that no such proof exists for."""
        raise NotImplementedError

    def certify(self, reward: Any, source: Any, **settings: Any) -> Any:
        """What is proved of a reward."""
        raise NotImplementedError

    @internal
    def theorem(self, source: Source, policy: Policy, **asked: Any) -> Any:
        """The theorem by which a search proves rewards, of dynamics with noise; γ, tube and share as in `certify`."""
        raise NotImplementedError


def check_declaration(dynamics: Any, given: Mapping[str, Any]) -> None:
    """Refuse what declares no dynamics, and settings, by name, that are of no use with it and were not left out."""
    if isinstance(dynamics, Drifts):
        raise ValueError(f"{NO_PROOF}: leave dynamics out, or declare what is known of the noise")
    if not isinstance(dynamics, Declaration):
        raise TypeError(
            "dynamics must be certirl.dynamics.AffineGaussian(std) or certirl.dynamics.Deterministic(L), say, in "
            f"place of columns and a tail, got {shown(dynamics)}"
        )
    for name, value in given.items():
        if value is not None and name not in dynamics.uses:
            declared = by_door(f"dynamics={type(dynamics).__name__}(…)", DECLARED[type(dynamics).__name__].option)
            raise ValueError(f"{declared} has no use for {setting(name)}: leave {setting(name)} out")


def no_case(declared: str, case: str, got: str = "") -> str:
    """That there is no proof of a case with dynamics declared in one way, and which declarations have one.

    The case is one of `CASES`, or a number of coordinates in words; ``got`` is what it was, in words.
    """
    named, coordinates = DECLARED[declared], int(case.split()[0]) if case[0].isdecimal() else 0
    others = [
        f"{by_door(other.written, other.option)} ({other.where})"
        for other in DECLARED.values()
        if case not in other.lacks and coordinates <= other.coordinates and other is not named
    ]
    instead = f"write {' or '.join(others)}" if others else "no other declaration has one either"
    here = by_door(named.written, named.option)
    return f"a proof with {here} does not exist for {case}{got and f', got {got}'}: {instead}"


def check_domain(declared: str, domain: Box, periodic: Sequence[int]) -> None:
    """Refuse more coordinates than a proof exists for, and periodic ones where it does not."""
    if len(domain) > DECLARED[declared].coordinates:
        raise ValueError(no_case(declared, f"{len(domain)} coordinates", domain.words))
    if periodic and CASES[0] in DECLARED[declared].lacks:
        raise ValueError(no_case(declared, CASES[0], domain.words))


def table() -> str:
    """The table of `DECLARED` as it is printed in docs/certificates.md."""
    rows = [["", *(f"`{each.written.removeprefix('dynamics=certirl.')}`" for each in DECLARED.values())]]
    rows += [["---"] * len(rows[0]), ["coordinates, at most", *(str(each.coordinates) for each in DECLARED.values())]]
    rows += [[case, *("no" if case in each.lacks else "yes" for each in DECLARED.values())] for case in CASES]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _parts(columns: Basis | Sequence[Basis], components: Sequence[Component], tail: TailLike) -> tuple[Part, ...]:
    each = [columns] if isinstance(columns, Basis) else list(columns)
    for basis in each:
        check_columns(basis)
    if len(each) == 1:
        return (Part(0, "", None, each[0], tail_number(tail, each[0])),)
    return tuple(
        Part(number, component.name, component.coordinates, basis, tail_number(tail, basis, component.coordinates))
        for number, (component, basis) in enumerate(zip(components, each, strict=True))
    )


def too_many_functions(classes: Sequence[Basis]) -> str:
    """Why a search does not try to refute these classes of V, one for each component; empty if it does."""
    sizes = [functions.size for functions in classes if functions.dimension > 1]
    if max(sizes, default=0) <= MOST_ON_A_BOX:
        return ""
    return f"in several coordinates it is tried with at most {MOST_ON_A_BOX} functions, and here are {max(sizes)}"


def without_switches(name: str) -> str:
    """Why a setting must be left out for an expert of one action."""
    return f"an expert who always takes one action never switches: leave {setting(name)} out"


def check_box(domain: Box) -> None:
    """Refuse, with a sentence, boxes over which nothing can be proved everywhere."""
    if len(domain) > MOST_COORDINATES:
        python = (
            "certirl.trials.scenario speaks of all but a small share of the states, and "
            f"components={[[c] for c in range(len(domain))]} of coordinates that move independently"
        )
        raise ValueError(
            f"a certificate over a whole box is for {MOST_COORDINATES} coordinates at most, got the domain "
            f"{domain.words}; " + by_door(python, "leave --delta out")
        )


def tail_too_large(
    tail: TailLike, columns: Basis, discount: float, coordinates: tuple[int, ...] | None = None, name: str = ""
) -> str:
    """Why no data can lead to a certificate with a tail and these columns; empty if some may.

    The columns are functions of the state, or of a component with these coordinates and this name.
    """
    return _too_large(tail, Part(0, name, coordinates, columns, tail_number(tail, columns, coordinates)), discount)


def bounding_tail(columns: Basis, discount: float) -> float:
    """What τ must be below for the tail to cost less than the span of V, which no margin exceeds.

    It costs τ(2 + (1 + γ)Ω)/(1 − γτ) of half the span, and Ω ≥ 1 + √k at some state: leverages of the alternative
    have the mean k, and the errors of the expert's action have weights whose sum is 1.
    """
    return 2 / ((1 + discount) * (3 + math.sqrt(columns.size)))


def _too_large(tail: TailLike, part: Part, discount: float) -> str:
    def limit(basis: Basis) -> float:
        return bounding_tail(basis, discount)

    most = limit(part.columns)
    if part.tail is None or part.tail < most:
        return ""
    needed = f"with {setting('discount', f'{discount:g}')} a proof needs τ < {most:.2g}"
    cure = more_columns(tail, part.columns, limit, part.coordinates) or f"declare a tail below {most:.2g}"
    return f"{tail_in_numbers(part.tail, part.columns, part.name)}; {needed}: {cure}"


def more_columns(
    tail: TailLike, columns: Basis, limit: Callable[[Basis], float], coordinates: Sequence[int] | None = None
) -> str:
    """What to do about a tail that is too large, if it is known for other columns; empty for a number.

    ``limit`` is what τ must be below, for any columns; ``coordinates`` are those of a component, None for all.
    """
    if tail is None or is_number(tail):
        return ""
    wider, number, is_enough = least_columns(tail, columns, limit, coordinates, most=MOST_FUNCTIONS)
    if is_enough:
        return f"use at least {wider.size} columns (τ = {number:.2g})"
    cure = tail.remedy(wider, limit(wider)) if isinstance(tail, Tail) else ""
    return f"no number of columns up to {MOST_FUNCTIONS} is enough{cure and f'; {cure}'}"


def enough_columns(
    tail: TailLike, columns: Basis, limit: Callable[[Basis], float], coordinates: Sequence[int] | None = None
) -> Basis | None:
    """The columns that `more_columns` names; None if there are none."""
    if tail is None or is_number(tail):
        return None
    wider, _, is_enough = least_columns(tail, columns, limit, coordinates, most=MOST_FUNCTIONS)
    return wider if is_enough else None


def check_columns(columns: Basis) -> None:
    """Refuse columns whose span depends on their family, and more than a certificate can be computed for."""
    check_box(columns.domain)
    if columns.size > MOST_COLUMNS:
        raise ValueError(
            f"columns must be at most {MOST_COLUMNS} functions for a proof, got {columns} with {columns.size:,}"
        )
    if columns._closed().size != columns.size:
        raise ValueError(
            f"a certificate needs columns that hold every simpler product of those they hold, got the first "
            f"{columns.size} of {columns}; take one of {columns.complete_sizes()[:-1]}"
        )


def allowed_tube(tube: float | None, domain: Box, name: str = "tube") -> float:
    """The half-width asked for, or a share of the domain."""
    width = min(high - low for low, high in domain)
    if tube is None:
        return _TUBE[len(domain)] * width
    return as_number(tube, name, least=0, most=width, strict=True, meaning="a half-width")
