"""The answer of `solve`: a reward or the proof that there is none, the evidence for it, and how far to trust it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isnan, nan
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.data.simulator import Counts, as_terminal
from certirl.data.terminal import TerminalBoxes
from certirl.data.transitions import action_in_words, coordinates_in_words
from certirl.fit.action_values import Choices
from certirl.fit.bellman import FORMS, Bellman, Operators, alternatives_of
from certirl.fit.effects import error_in_words
from certirl.fit.ends import Reached
from certirl.fit.features import FeaturePath
from certirl.fit.ranges import WeightRanges, as_ratios
from certirl.fit.recover import BALANCED, BETWEEN, OBJECTIVES, Recovery, alike, joined, share_allowed
from certirl.fit.witness import Witness
from certirl.functions.bases import Basis
from certirl.functions.components import Component, SumBasis
from certirl.functions.extrema import minimum
from certirl.functions.functions import Functions
from certirl.functions.inequalities import binomial_interval
from certirl.functions.reward import Reward
from certirl.ground import archive
from certirl.ground.archive import UNSAVED, Shape, Words
from certirl.ground.domain import Array, Box, as_actions, as_n_actions, as_rows, as_states, number_of
from certirl.ground.doors import as_count, as_number, as_probability, by_door
from certirl.ground.records import Record, internal
from certirl.ground.status import (
    DECLARE_TAIL,
    Claim,
    Finding,
    Reason,
    Seen,
    chance,
    change,
    rounded_down,
    rounded_up,
    two_digits,
)
from certirl.proof.case import too_many_functions
from certirl.proof.cells import CellCertificate
from certirl.proof.certificate import Certificate
from certirl.proof.refutation import Refutation
from certirl.proof.tails import GaussianNoise, TailLike
from certirl.solver.answer import Answer
from certirl.solver.search import TRAINING_SHARE, Round
from certirl.solver.words import SAMPLED, words_of

NO_FEATURES = "only a reward of features has a path and ranges of weights: pass method=certirl.FeatureForm({…})"
FEWEST = 1_000  # transitions of an action: with fewer a conflict may be noise
FEW = 100  # transitions of an action: with fewer a margin counts as within the noise


@archive.record
@dataclass(frozen=True)
class Share(Record):
    """How often something held at some states, with an exact 95 % interval (Clopper and Pearson).

    Attributes:
        count: of states at which it held.
        n: states.
        kind: which states these are.

    Example:
        >>> from certirl.solver.solution import Share
        >>> share = Share(990, 1000)
        >>> round(share.low, 3), round(share.high, 3)
        (0.982, 0.995)
    """

    count: int
    n: int
    kind: Annotated[str, Words("fresh states", "states of the log")] = "fresh states"
    _derived: ClassVar[tuple[str, ...]] = ("low", "high")

    @property
    def low(self) -> float:
        """The lower end."""
        return binomial_interval(self.count, self.n)[0] if self.n else 0.0

    @property
    def high(self) -> float:
        """The upper end."""
        return binomial_interval(self.count, self.n)[1] if self.n else 1.0

    @internal
    def as_read(self, file: str) -> Share:
        """Refuse a count that is none."""
        as_count(self.count, "the count of a share", least=0, most=as_count(self.n, "the size of a share", least=0))
        return self

    def __str__(self) -> str:
        share = self.count / max(self.n, 1)
        return f"{share:.1%} of {self.n:,} {self.kind} (95% interval {self.low:.1%} to {self.high:.1%})"


@archive.record
@dataclass(frozen=True)
class Asked(Record):
    """The different rows that a simulator was asked about, of the action asked most.

    Up to 16 MB of transitions are kept; beyond that, and on other machines, those that are read a second time are
    drawn a second time, the same ones, and are not counted here again.

    Attributes:
        answer: what the answer is made of.
        trials: by which the answer was tried.
        checks: of how the simulator draws.

    Example:
        >>> walk = certirl.problems.thermostat()
        >>> solution = certirl.solve(walk, expert=0, discount=0.9, samples=500, columns=3, rng=0)
        >>> solution.stats.asked.answer, solution.stats.asked.trials
        (500, 0)
    """

    answer: int
    trials: int
    checks: int

    @classmethod
    @internal
    def of(cls, counts: Counts | None) -> Asked | None:
        """The counts so far; None without a simulator."""
        return None if counts is None else cls(counts.most("answer"), counts.most("trials"), counts.most("checks"))

    @internal
    def as_read(self, file: str) -> Asked:
        """These counts, each checked to be a whole number in its range."""
        for name in ("answer", "trials", "checks"):
            as_count(getattr(self, name), f"stats.asked.{name}", least=0)
        return self

    def __str__(self) -> str:
        purposes = f"{self.trials:,} to try it, {self.checks:,} to check how the simulator draws"
        return f"at most {self.answer:,} rows of an action for the answer, {purposes}"


@archive.record
@dataclass(frozen=True, eq=False)
class Estimate(Component):
    """What was estimated for one component, with its functions of V; a state without components is one component.

    Attributes:
        columns: the functions of the state in which effects of actions are described.
        action_values: (P̂_aV)(s) in the columns ``[A, k]``, up to a function that all actions share.
        variances: Q_a with φ(s)ᵀQ_aφ(s) the variance of the estimated D_a(s), for each alternative action
            ``[A − 1, k, k]``; None for an expert who depends on the state.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> estimate = solution.components[0]
        >>> estimate.coordinates, estimate.action_values.shape, estimate.columns.size
        ((0,), (3, 3), 3)
    """

    columns: Functions
    action_values: Annotated[Array, Shape("A columns.size")]
    variances: Annotated[Array, Shape("B columns.size columns.size")] | None = None

    @internal
    def as_read(self, file: str) -> Estimate:
        """Refuse functions of another domain."""
        if self.basis.domain != self.columns.domain:
            raise ValueError(f"the functions of component {self.name} must have one domain")
        return self


@archive.record
@dataclass(frozen=True, eq=False)
class Compared(Record):
    """Where the expert was compared with alternative actions, and by how much it fell short of the margin asked for.

    Attributes:
        states: ``[m, d]``; none for sums over components, whose rows belong to single components.
        shortfall: by how much the expert's advantage stays below the margin asked for ``[m]``.
        target: the margin asked for ``[m]``: 1, or less beside a switch.
        actions: the alternative action of each row ``[m]``; None if every row stands for all of them.
        weights: multipliers of the rows ``[m]``, positive where the margin is attained; None if not known.

    Example:
        >>> room = certirl.problems.comfort()
        >>> log = certirl.steps.sample(room.dynamics, basis=certirl.Legendre(5), samples=200, rng=0)
        >>> solution = certirl.solve(log, discount=0.9, expert=room.expert)
        >>> compared = solution.compared
        >>> compared.states.shape[1], bool((compared.shortfall >= 0).all())
        (1, True)
    """

    states: Annotated[Array, Shape("m d")]
    shortfall: Annotated[Array, Shape("m")]
    target: Annotated[Array, Shape("m")]
    actions: Annotated[NDArray[np.intp], Shape("m")] | None = None
    weights: Annotated[Array, Shape("m")] | None = None


_LINES = (
    *("functions", "program", "model", "growth", "coverage", "ties", "slack", "residual", "fresh states"),
    *("outside tube", "planning", "ends", "terminal", "exogenous"),
    *("independence", "assumed", "seed", "asked"),
)
_SHARES = ("uncovered", "extrapolated", "ties", "unexplained")
_LOSSES = ("residual", "largest_residual", "planned_loss")
_NOT_NEGATIVE = (*_SHARES, *_LOSSES, "rounds", "rows", "cover")


@archive.record
@dataclass(frozen=True, eq=False)
class Diagnostics(Record):
    """How an answer was found and how far to trust it; ``print(solution.stats)`` gives each number with its meaning.

    A number is NaN, and anything else None or empty, where it does not apply.

    Attributes:
        choice: how functions and their numbers were chosen.
        counts: transitions of each action, or one number for all of them; states where next states are observed.
        action_names: of the actions, if the data have them.
        objective, form: the program that was solved, and how operators were estimated; empty for the value form.
        rounds, rows: how often the program was solved, and its rows.
        cover: the radius of the cover, if one stood in for the whole domain.
        condition: the condition number of I − γT.
        gram_condition: that of the Gram matrix of the states.
        growth: γ·ρ(T̂); at 1 or more the value series diverges. The value form does not use that series.
        independence: of components, and of steps from the step before: the outcome of the tests, in words.
        model_error: error of estimated effects over the effect of an action, both as root mean squares of V: of the
            comparisons if these were regressed, else of the functions behind `Solution.greedy` alone.
        uncovered: the share of the box where the effect of some action is extrapolated from a log; 0 for a simulator.
        extrapolated: the share of the box where R is a lower bound, since a log has no states nearby (see
            `Reward.extrapolated`).
        staying: states of the log from which the expert stays within the data, in the model of the next state; None
            if R is extrapolated nowhere.
        ties: the share of comparisons left out since both actions have the same effect.
        unexplained: the share of states at which some action would be better than the expert's.
        residual, largest_residual: of R against V − γ max_a P_aV: root mean square, and at most.
        noiseless: next states were observed without noise.
        continuation: the least value of continuing over terminating, where it was chosen: the expert avoids
            termination and no comparison says by how much; None if it was not chosen.
        termination: mean probabilities, over all comparisons, of a termination that only the expert's action causes,
            and of one that only the alternative action causes; None without terminal states.
        greedy_share: fresh states at which no action has a better V than the expert's.
        outside_share: the same among states outside the tube.
        planned_share: states at which planning on R alone chooses the expert's action.
        planned_regret: the expert's loss against the plan on R alone, measured by R (negative where the plan is too
            coarse to be the best one), as a share of what acting at
            random loses (see `fit.compare.Comparison`).
        planned_loss: the plan's loss against the expert, measured by V, in the same unit.
        reached: the ends of episodes of the plan on R alone and of the expert, from the same states.
        terminal: the terminal states in boxes, learned from marked ones or from asking the simulator.
        periodic: coordinates that are periodic.
        exogenous: coordinates that no action moves.
        assumption: what must be believed of the expert.
        seed: the seed of the draws, if it was a number.
        search: the rounds of a search for a proof.
        coordinate_names: of the coordinates of the state, if the data have them.
        sampling: how rows count in a proof: "independent", within "episodes", or in the "order" of time; empty without
            a proof.
        log_notes: what was done to the log while it was read, in sentences.
        asked: the rows that a simulator was asked about; None for a log.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> solution.stats.objective, solution.stats.form, solution.stats.counts
        ('smoothest', 'least-squares', (10000, 10000, 10000))
        >>> solution.stats.growth < 1
        True
    """

    choice: str
    counts: tuple[int, ...]
    action_names: tuple[str, ...] = ()
    objective: Annotated[str, Words("", *OBJECTIVES, BETWEEN, BALANCED)] = ""
    form: Annotated[str, Words("", *FORMS, "exact")] = ""
    rounds: int = 0
    rows: int = 0
    cover: float | None = None
    condition: float = nan
    gram_condition: float = nan
    growth: float = nan
    independence: str = ""
    model_error: float = nan
    uncovered: float = nan
    extrapolated: float = nan
    staying: Share | None = None
    ties: float = nan
    unexplained: float = nan
    residual: float = nan
    largest_residual: float = nan
    noiseless: bool = False
    continuation: float | None = None
    termination: tuple[float, float] | None = None
    greedy_share: Share | None = None
    outside_share: Share | None = None
    planned_share: Share | None = None
    planned_regret: float | None = None
    planned_loss: float | None = None
    reached: Reached | None = None
    terminal: TerminalBoxes | None = None
    periodic: tuple[int, ...] = ()
    exogenous: tuple[int, ...] = ()
    assumption: str = ""
    seed: int | None = None
    search: tuple[Round, ...] = ()
    coordinate_names: tuple[str, ...] = ()
    sampling: Annotated[str, Words("", "independent", *SAMPLED)] = ""
    log_notes: tuple[str, ...] = ()
    asked: Asked | None = None

    @internal
    def as_read(self, file: str) -> Diagnostics:
        """Refuse numbers that these cannot be, and a value form without its own."""
        for name in _NOT_NEGATIVE:
            value, most = getattr(self, name) or 0, 1 if name in _SHARES else inf
            if value < 0 or value > most:
                raise ValueError(f"stats.{name} must be a number between 0 and {most}, got {value}")
        if not self.objective and isnan(self.ties + self.unexplained + self.residual + self.largest_residual):
            raise ValueError("stats must have ties, unexplained and residuals where no program was solved")
        return self

    def __str__(self) -> str:
        return "\n".join(f"{name:<13}{text}" for name, text in self.lines().items())

    def lines(self) -> dict[str, str]:
        """Each number with its meaning, by name; those that do not apply are left out.

        Example:
            >>> list(solution.stats.lines())[:3]
            ['functions', 'program', 'seed']
        """
        lines = {
            "functions": self.choice,
            **(self._of_the_program() if self.objective else self._of_the_value_form()),
            "terminal": "" if self.terminal is None else self._terminated(self.terminal),
            "exogenous": self._exogenous() if self.exogenous else "",
            "independence": self.independence,
            "assumed": "" if self.objective else self._assumed(),
            "seed": "" if self.seed is None else str(self.seed),
            "asked": "" if self.asked is None else str(self.asked),
        }
        return {name: lines[name] for name in _LINES if lines.get(name)}

    def _of_the_value_form(self) -> dict[str, str]:
        """Errors of the estimates, and how the trials of the reward went."""
        series = "would diverge" if self.growth >= 1 else "would converge"
        most = f"at most {self.largest_residual:.2g}"
        lines = {
            "growth": f"γ·ρ(T̂) = {self.growth:.3g}: the matrix form {series}; the value form needs no series",
            "coverage": self._covered(),
            "ties": f"{self.ties:.1%} of comparisons left out: both actions have the same effect there",
            "residual": f"R differs from V − γ max P_aV by {self.residual:.2g} (rms), {most}",
            "ends": str(self.reached or ""),
        }
        if self.all_alike:
            return lines
        what = "action values of solution.greedy" if self.noiseless else "estimated effects"
        prefers, everywhere, outside = "V prefers the expert's action at", self.greedy_share, self.outside_share
        return lines | {
            "model": f"{what}: error {error_in_words(self.model_error)}",
            "slack": f"at {self.unexplained:.1%} of states some other action looks better than the expert's",
            "fresh states": f"{prefers} {everywhere}, the switching tube included" if everywhere else "",
            "outside tube": f"{prefers} {outside}" if outside else "",
            "planning": self._planned(),
        }

    @property
    def all_alike(self) -> bool:
        """Whether all actions have the same effect at every state compared, so that shares of these say nothing."""
        return self.ties == 1

    def _of_the_program(self) -> dict[str, str]:
        where = "exact on the continuum" if self.cover is None else f"on a cover of radius {self.cover:.3g}"
        solves = f"{number_of(self.rounds, 'solve')}, {number_of(self.rows, 'row')}"
        numbers = {"κ(I − γT)": self.condition, "γρ(T)": self.growth, "κ(Gram)": self.gram_condition}
        # More than twelve digits of a spectral radius are rounding.
        known = [f"{name} = {round(x, 12):.3g}" for name, x in numbers.items() if not isnan(x)]
        return {"program": f"{self.objective} program {where}, {solves}; {', '.join(known)}"}

    def _covered(self) -> str:
        words = []
        if self.uncovered:
            words.append(f"the effect of some action is extrapolated at {self.uncovered:.1%} of the box")
        if self.extrapolated > 0:
            words.append(f"R is a lower bound at {self.extrapolated:.1%} of the box, where there are no data")
        if self.staying is not None:
            words.append(f"the expert stays within the data from {self.staying}")
        return "; ".join(words) or "data everywhere in the box"

    def _planned(self) -> str:
        if self.planned_share is None or self.planned_regret is None or self.planned_loss is None:
            return "on R alone: not tried"
        below = (
            "the expert is {:.1%} below the plan" if self.planned_regret >= 0 else "the plan is {:.1%} below the expert"
        )
        by_reward = f"measured by R, {below.format(abs(self.planned_regret))}"
        by_value = f"by V, the plan is {self.planned_loss:.1%} below the expert"
        share = f"on R alone: agrees with the expert at {self.planned_share}"
        return f"{share}; {by_reward}, {by_value} (acting at random: 100%)"

    def _assumed(self) -> str:
        """What none of the numbers covers."""
        expert = f"{self.assumption}; " if self.assumption else ""
        if self.noiseless:
            return (
                f"{expert}shares are of states as they were drawn, without a proof; for dynamics without noise in one "
                "or two coordinates certify has one for all states, by dynamics=certirl.dynamics.Deterministic(…)"
            )
        return f"{expert}estimated effects stand for the true ones; shares are of states as they were drawn"

    def _exogenous(self) -> str:
        """What no action moves, as the data declare."""
        plural = "s" * (len(self.exogenous) > 1)
        return f"no action moves coordinate{plural} {coordinates_in_words(self.exogenous, self.coordinate_names)}"

    def _terminated(self, boxes: TerminalBoxes) -> str:
        errors = f"missing {boxes.missed:.1%} and mistaking {boxes.mistaken:.1%} of held-out states"
        words = [f"states where {boxes}, learned from {boxes.n:,} states, {errors}"]
        if not boxes.reliable:
            words = [f"a few boxes do not describe the terminal states ({errors})"]
        if self.termination is not None:
            expert, other = self.termination
            words.append(
                f"where one of two actions terminates, it is the expert's in {expert:.2%} of comparisons and the "
                f"alternative in {other:.2%}"
            )
            if Choices(expert, other).mixed:
                words.append("the expert seeks some terminal states and avoids others")
        if self.continuation is not None:
            words.append(
                f"continuing is worth at least {rounded_down(self.continuation):.3g} more than terminating, by choice: "
                "the expert never terminates where it could continue, which leaves that open"
            )
        return "; ".join(words)


@archive.record
@dataclass(frozen=True, eq=False)
class Solution(Answer):
    """The answer of `solve`, for every kind of expert, source and state.

    Attributes:
        findings: the facts that decide `status` and `reason`.
        reward: R, callable on states; None if there is none. For an expert who depends on the state it is scaled so
            that the margin is 1 away from switches (of features: 1 on average), and 0 in terminal states.
        value: V, callable, the expert's value under R; for the value form up to the residual.
        components: what was estimated, for each component; one for a state without components.
        discount, n_actions: γ and the number of actions.
        expert: the action that the expert always takes; None if it depends on the state (the expert is not kept).
        margin: the smallest estimated D_a(s) over alternative actions a and all states, or, for an expert who depends
            on the state, over the states compared outside the tube; NaN without a reward.
        state, action: where the margin is reached; None without a reward.
        compared: the states at which the expert was compared, with shortfalls.
        samples: transitions per action (the fewest), or states at which every action was observed; 0 for exact
            operators.
        stats: how the answer was found and how far to trust it.
        witness: rows that cancel, for which no reward of the class exists as far as the data say; None without any.
        certificate: the proof, or the attempt at one; None if none was asked for.
        refutation: the proof that there is no reward in the class, or the attempt; None if that was not tried.
        path: rewards of fewer and of more features; None for a reward that is no sum of features.
        about: the call and what it was about, in words by name: data and code with their hashes, and versions.
        file: the file that the solution was read from, whose claims these are; None if it was found here.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> solution.status, solution.samples, round(solution.margin, 6)
        ('solved', 10000, 1.0)
        >>> solution.reward([-0.5, 0.5]).shape, solution.value([-0.5, 0.5]).shape
        ((2,), (2,))
        >>> room, method = certirl.problems.comfort(), certirl.FeatureForm({"s²": lambda states: states[:, 0] ** 2})
        >>> log = certirl.steps.sample(room.dynamics, basis=certirl.Legendre(5), samples=200, rng=0)
        >>> of_policy = certirl.solve(log, discount=0.9, expert=room.expert, method=method)
        >>> of_policy.path.names
        ('s²',)
    """

    findings: tuple[Finding, ...]
    reward: Reward | None
    value: Reward | None
    components: tuple[Estimate, ...]
    discount: float
    n_actions: int
    expert: int | None
    margin: float
    state: Annotated[Array, Shape("d")] | None
    action: int | None
    compared: Compared
    samples: int
    stats: Diagnostics
    witness: Witness | None = None
    certificate: Certificate | CellCertificate | None = None
    refutation: Refutation | None = None
    path: FeaturePath | None = None
    about: dict[str, str] = field(default_factory=dict)
    file: str | None = field(default=None, metadata=UNSAVED)

    _derived: ClassVar[tuple[str, ...]] = ("status", "reason", "next", "domain")

    @internal
    def proved_by(self, proof: CellCertificate) -> Solution:
        """The same with what is proved by cells: certified where that holds, else with what is missing."""
        solution = replace(self, certificate=proof)
        if proof.holds:
            return solution.judged(Reason.CERTIFIED.finding(proved=proof.proved))
        return solution.noted(Reason.UNPROVED.finding(proof.change(), what="the margin", missing=proof.missing))

    @property
    def domain(self) -> Box:
        """The box of states."""
        return SumBasis(self.components).domain

    @property
    def basis(self) -> Basis:
        """The functions of V; ``solution.components[j].basis`` where there are several components."""
        return self._only("basis").basis

    @property
    def columns(self) -> Functions:
        """The functions of the state; ``solution.components[j].columns`` where there are several components."""
        return self._only("columns").columns

    def _only(self, name: str) -> Estimate:
        if len(self.components) != 1:
            raise ValueError(f"there are {len(self.components)} components: write solution.components[0].{name}")
        return self.components[0]

    @property
    def alternatives(self) -> tuple[int, ...]:
        """The actions that an expert of one action does not take, in order."""
        return alternatives_of(self._one_action(), self.n_actions)

    def _one_action(self) -> int:
        if self.expert is None:
            raise ValueError(
                "margins are for experts who always take one action; for one who depends on the state see "
                "solution.greedy, solution.compared and solution.certificate.advantage"
            )
        return self.expert

    def action_values(self, states: ArrayLike) -> Array:
        """The estimated (P̂_aV)(s) of each action, up to a function that all actions share ``[A, n]``.

        With a reward that depends on the action, R(s, a)/γ is added.

        Example:
            >>> solution.action_values([-0.5, 0.0, 0.5]).shape
            (3, 3)
        """
        rows, total = as_states(states, self.domain), np.zeros((self.n_actions, 1))
        for component in self.components:
            near, columns = component.of(rows), component.columns
            total = total + np.stack([columns.combined(near, curve) for curve in component.action_values])
        if self.reward is not None and self.reward.of_actions:
            total = total + np.stack([self.reward(rows, action) for action in range(self.n_actions)]) / self.discount
        return total

    def greedy(self, states: ArrayLike) -> NDArray[np.intp]:
        """The action with the best estimated (P̂_aV)(s) at each state ``[n]``.

        States beyond the box are moved to its edge, as by `planning.plan`.

        Example:
            >>> solution.greedy([-0.5, 0.0, 0.5]).tolist()
            [0, 0, 0]
        """
        rows = self.domain.moved_into(as_rows(states, len(self.domain)), self.stats.periodic)
        return self.action_values(rows).argmax(axis=0)

    def margins(self, states: ArrayLike) -> Array:
        """The estimated D_a(s) of each alternative action at states ``[n]`` or ``[n, d]``: ``[A − 1, n]``.

        Example:
            >>> solution.alternatives, bool((solution.margins([-0.5, 0.0, 0.5]) > 0).all())
            ((1, 2), True)
        """
        if self.reward is None:
            raise ValueError(f"there is no reward: {self.reason}")
        alternatives, values = list(self.alternatives), self.action_values(states)
        return np.asarray(values[self._one_action()] - values[alternatives])

    def standard_errors(self, states: ArrayLike) -> Array:
        """The standard error of each estimated D_a(s), to first order: ``[A − 1, n]``; zero for exact operators.

        Example:
            >>> errors = solution.standard_errors([-0.5, 0.0, 0.5])
            >>> errors.shape, bool((errors > 0).all())
            ((2, 3), True)
        """
        rows, total = as_states(states, self.domain), np.zeros((len(self.alternatives), 1))
        for component in self.components:
            if component.variances is None:
                raise ValueError("the value form has no standard errors; print(solution.stats) shows its errors")
            x = component.columns.values(component.of(rows))
            total = total + np.maximum(np.einsum("ni,aij,nj->an", x, component.variances, x), 0.0)
        return np.sqrt(total)

    @property
    def standard_error(self) -> float:
        """The standard error of the margin; NaN without a reward, and for experts who depend on the state."""
        if self.state is None or self.action is None or self._by_value:
            return float("nan")
        return float(self.standard_errors(self.state[None])[self.alternatives.index(self.action), 0])

    @property
    def within_noise(self) -> bool:
        """The margin may be chance: it is below three standard errors, or an action has fewer than 100 transitions."""
        if self._by_value or not self.margin > 0:
            return False
        return bool(self.margin < 3 * self.standard_error or 0 < self.samples < FEW)

    @cached_property
    def contributions(self) -> Array:
        """min D_ja of every component and alternative action ``[J, A − 1]``; their sums over j are the margins."""
        expert, alternatives, minima = self._one_action(), list(self.alternatives), []
        for component in self.components:
            columns: Any = component.columns  # of a program: no grid
            curves = component.action_values[expert] - component.action_values[alternatives]
            minima.append([minimum(columns, curve)[1] for curve in curves])
        return np.array(minima)

    def unexplained(self, count: int = 10) -> tuple[Array, Array]:
        """The states where the expert is explained worst ``[m, d]``, and by how much it falls short there ``[m]``.

        Example:
            >>> states, shortfall = of_policy.unexplained(3)
            >>> states.shape, bool(shortfall[0] >= shortfall[-1])
            ((3, 1), True)
        """
        order = np.argsort(-self.compared.shortfall, kind="stable")[: as_count(count, "count")]
        order = order[self.compared.shortfall[order] > 0]
        return self.compared.states[order], self.compared.shortfall[order]

    def with_terminal(self, terminal: Callable[[Array], Any]) -> Solution:
        """A copy with the rule for terminal states, of which a file keeps boxes at most.

        Example:
            >>> hot = of_policy.with_terminal(lambda states: states[:, 0] > 0.9)
            >>> hot.reward(0.95)
            0.0
        """
        rule = terminal if isinstance(terminal, TerminalBoxes) else as_terminal(terminal)
        reward, value = (
            replace(function, ended=rule) if self._by_value and function is not None else function
            for function in (self.reward, self.value)
        )
        return replace(self, reward=reward, value=value)

    def at(self, *, features: int) -> Reward:
        """The reward of the path with this number of features, or of changes of a guess; it was not tested.

        Example:
            >>> of_policy.at(features=1)(0.0) == 0
            True
        """
        if self.path is None or self.reward is None:
            raise ValueError(NO_FEATURES)
        return replace(self.reward, coefficients=self.path.weights[self.path.row(features)])

    def ranges(
        self,
        *,
        ratios: Sequence[tuple[str, str]] = (),
        delta: float | None = None,
        source: Any = None,
        expert: Any = None,
        **settings: Any,
    ) -> WeightRanges:
        """How much the expert determines of a reward of features: the range of every weight, and of ratios.

        The ranges are over all rewards of these features that explain the expert as well as this one does, under the
        estimated effects. With ``delta`` they are proved: with probability 1 − δ every reward of these features under
        which the expert is optimal has its weights within.

        Args:
            ratios: of two weights each, by name: ``("a", "b")`` for a / b.
            delta: the probability of a false statement; ranges are estimated if left out.
            source: for a proof, a simulator or transitions, as in `certify`.
            expert: for a proof, as in `certify`; known for an expert of one action.
            settings: for a proof, ``tail``, ``columns``, ``samples``, ``rng``, ``tube`` and others of `certify`.

        Example:
            >>> print(of_policy.ranges().names)
            ('s²',)
        """
        if self.path is None or not isinstance(self.reward, Reward):
            raise ValueError(NO_FEATURES)
        found = self.path.ranges(ratios)
        given = {"source": source, "expert": expert} | settings
        if delta is None:
            for name in (name for name, value in given.items() if value is not None):
                raise ValueError(f"{name} is for ranges that are proved: pass delta too, or leave it out")
            return found
        if source is None:
            raise ValueError("ranges are proved by fresh data: pass source, a simulator or transitions")
        from certirl.proof.ranges import prove_ranges

        basis: Any = self.reward.basis
        return prove_ranges(
            found,
            basis,
            as_ratios(ratios, self.path.names),
            np.zeros(basis.size) if self.path.signs is None else self.path.signs,
            source,
            expert=self.expert if expert is None else expert,
            discount=self.discount,
            delta=delta,
            settings=settings,
        )

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        problem: Any = None,
        plane: tuple[int | str, int | str] = (0, 1),
        ax: Any = None,
    ) -> Any:
        """Draw the reward with its margins, or beside the states it does not explain, and write it to ``path``.

        Args:
            path: where to write the picture, if anywhere.
            problem: as in `certirl.plots.solution`.
            plane: the two coordinates of the maps, by number or name.
            ax: where to draw: several axes, or a figure or a part of one.

        Example:
            >>> axes = solution.plot("answer.png")
        """
        from certirl import plots

        return plots.solution(self, path=path, problem=problem, plane=plane, ax=ax)

    @internal
    def as_read(self, file: str) -> Solution:
        """Refuse a solution that contradicts itself; its claims are those of the file."""
        _check_read(self)
        read = replace(self, file=file)
        boxes = self.stats.terminal
        if self.reward is not None and self.reward._forgotten and boxes is not None and boxes.reliable:
            return read.with_terminal(boxes)
        return read

    @property
    def _by_value(self) -> bool:
        """It was found by the value form, with slack, rather than by a program whose constraints all hold."""
        return not self.stats.objective

    def __repr__(self) -> str:
        expert = (
            "an expert who depends on the state"
            if self.expert is None
            else action_in_words(self.expert, self.stats.action_names)
        )
        margin = "no margin" if isnan(self.margin) else f"estimated margin {self.margin:.3g}"
        if self.certificate is not None and self.certificate.holds:
            margin = f"margin >= {rounded_down(self.certificate.margin):.3g}"
        return f"<Solution: {self.status}, {expert}, {margin}, {number_of(self.samples, 'sample')}>"

    def __str__(self) -> str:
        return str(words_of(self))


def build(
    operators: Sequence[Operators],
    criteria: Sequence[Bellman],
    recovery: Recovery,
    *,
    choice: str,
    independence: str = "",
    further: Sequence[Finding] = (),
    certificate: Certificate | None = None,
    refutation: Refutation | None = None,
    drawn: Sequence[int] | None = None,
    action_names: tuple[str, ...] = (),
    search: tuple[Round, ...] = (),
    tail: TailLike = None,
    log_rows: int | None = None,
    seen: Seen | None = None,
) -> Solution:
    """The solution of a program for an expert who always takes one action.

    Args:
        operators: estimated for each component.
        criteria: the Bellman criterion of each.
        recovery: what the program found.
        choice: how functions and their numbers were chosen.
        independence: the outcome of the test of the components' independence, in words.
        further: findings besides those of the program and the proofs.
        certificate: the proof, or the attempt.
        refutation: the proof that there is no reward, or the attempt; without it an estimated conflict settles nothing.
        drawn: transitions of each action used in all, where a proof was asked for.
        action_names: of the actions, if the data have them.
        search: the rounds of the search for a proof.
        tail: the declaration behind τ.
        log_rows: of the log that was divided; None for draws.
        seen: what to declare in place of no tail.
    """
    first, counts = criteria[0], operators[0].counts if drawn is None else drawn
    named = recovery.components
    too_many = too_many_functions([component.basis for component in named])
    findings = findings_of(
        recovery,
        certificate,
        refutation,
        asked=drawn is not None,
        too_many=too_many,
        alike=alike(criteria),
        tail=tail,
        log_rows=log_rows,
        seen=seen,
        samples=int(min(counts)),
    )
    if recovery.status == "infeasible" and len(criteria) == 1:
        share = share_allowed(criteria[0])
        instead = "print(solution.witness)" if share is None else change(suboptimality=share)
        instead = change(samples=10 * FEWEST) if 0 < min(counts) < FEWEST else instead
        findings = [finding if finding.next else replace(finding, next=instead) for finding in findings]
    reward = recovery.reward
    rewards = () if reward is None else reward.parts
    values = [Reward(criterion.basis, w) for criterion, w in zip(criteria, recovery.values, strict=False)]
    value = joined(named, values) if values else None
    rows, lists = len(recovery.states), slice(None) if len(named) == 1 else slice(0)  # rows of components are no states
    compared = Compared(
        recovery.states[lists],
        recovery.slack[lists],
        np.ones(rows)[lists],
        actions=recovery.actions[lists],
        weights=recovery.weights[lists],
    )
    stats = Diagnostics(
        choice=choice,
        counts=tuple(map(int, counts)),
        action_names=action_names,
        objective=recovery.objective,
        form=operators[0].form,
        rounds=recovery.rounds,
        rows=rows,
        cover=recovery.cover,
        condition=max(criterion.condition for criterion in criteria),
        gram_condition=max(estimated.condition for estimated in operators),
        growth=max(criterion.spectral_radius for criterion in criteria),
        independence=independence,
        search=search,
        periodic=tuple(sorted(part.coordinates[axis] for part in named for axis in part.basis.periodic_axes)),
    )
    solution = Solution(
        findings=(*findings, *further),
        reward=reward,
        value=value,
        components=tuple(
            _estimate(component, criterion, rewards[j].coefficients if rewards else np.zeros(criterion.basis.size))
            for j, (component, criterion) in enumerate(zip(named, criteria, strict=True))
        ),
        discount=first.discount,
        n_actions=operators[0].n_actions,
        expert=first.expert,
        margin=recovery.margin,
        state=recovery.worst_state,
        action=recovery.worst_action,
        compared=compared,
        samples=int(min(counts)),
        stats=stats,
        witness=recovery.witness,
        certificate=certificate,
        refutation=refutation,
    )
    if solution.status != "solved" or certificate is not None or not solution.within_noise:
        return solution
    margin, error, samples = solution.margin, solution.standard_error, solution.samples
    enough = rounded_up(max(2 * samples * (3 * error / margin) ** 2, 4 * samples, 4 * FEW))
    noise = Reason.WITHIN_NOISE.finding(change(samples=enough), margin=margin, error=error, samples=samples)
    return solution.noted(noise)


def findings_of(
    recovery: Recovery,
    certificate: Certificate | None,
    refutation: Refutation | None,
    *,
    asked: bool,
    too_many: str,
    alike: int | None = None,
    tail: TailLike = None,
    log_rows: int | None = None,
    seen: Seen | None = None,
    samples: int = 0,
) -> list[Finding]:
    """The findings that follow from a program and from the proofs tried after it.

    Args:
        recovery: of the program.
        certificate: the proof of its reward, or the attempt; None if there was none.
        refutation: the proof that there is no reward, or the attempt; None if none was tried.
        asked: a proof was asked for.
        too_many: why no refutation is tried with this number of functions of V, in words; empty if one is.
        alike: an alternative action with the same estimated effect as the expert's; None without any.
        tail: the declaration behind τ.
        log_rows: of the log that was divided; None for draws.
        seen: what to declare in place of no tail.
        samples: transitions of each action used in all.
    """
    finding, more = recovery.finding, change(samples=rounded_up(4 * samples))
    if finding.status == "infeasible" and asked and alike is not None:
        return [Reason.ALIKE.finding("print(solution.action_values(solution.compared.states))", action=alike)]
    if finding.status == "infeasible" and asked:
        return [finding, *_undecided(refutation, too_many, more, tail, seen)]
    if finding.status != "solved" or certificate is None:
        return [finding]
    if certificate.estimated <= certificate.required:
        return [Reason.CONTRADICTED.finding(more, fresh=certificate.estimated, training=recovery.margin)]
    if certificate.holds:
        return [Reason.CERTIFIED.finding(proved=finding.sentence)]
    return [unproved(certificate, tail, log_rows, seen)]


def unproved(
    claim: Certificate | Refutation, tail: TailLike, rows: int | None = None, seen: Seen | None = None
) -> Finding:
    """Why an attempt at a proof gave none, and what to change."""
    changed = claim.change(tail, seen)
    changed = f"solution.{changed}" if changed.startswith("certificate.") else changed
    if isinstance(claim, Refutation):
        return Reason.UNPROVED.finding(changed, what="the absence of a reward", missing=claim.missing)
    if not 0 < claim.spare < inf:
        missing = claim.missing
        if missing and missing == claim.excessive_tail:
            missing = claim.enough_columns(tail)
        if rows is not None and claim.samples_needed is not None:
            missing = _rows_needed(claim, rows, claim.samples_needed)
        if claim.wider_in_words:
            missing += f"; {claim.wider_in_words}"
        elif claim.samples_needed is not None:
            missing += _known_noise(claim, tail)
        return Reason.UNPROVED.finding(changed, what="the margin", missing=missing)
    size = claim.grounds[0].surrogate.columns.size
    return Reason.NO_TAIL.finding(
        changed,
        columns=f"the {size} columns" if len(claim.grounds) == 1 else "the columns",
        where="" if claim.tube is None else " outside the tube",
        margin=rounded_down(claim.margin),
        sure=chance(claim.delta),
        write=by_door("tail=certirl.dynamics.GaussianNoise(…) or tail=0", "--tail"),
    )


def _rows_needed(claim: Certificate, rows: int, needed: int) -> str:
    """How many rows a log should have: the same share of them would be fresh."""
    once = "" if claim.tail is not None else " once a tail is declared"
    enough = two_digits(int(rows * needed / claim.samples))
    return (
        f"a log of about {enough} rows should suffice{once} ({TRAINING_SHARE:.0%} of them find the reward; another "
        "call spends its own δ)"
    )


def _known_noise(claim: Certificate, tail: TailLike) -> str:
    """That far less data are needed where the noise is known exactly; empty where that proof does not apply."""
    is_affine = isinstance(tail, GaussianNoise) and not (tail.rate or tail.derivatives or tail.truncated)
    if not is_affine or len(claim.domain) > 1 or claim.grounds[0].surrogate.columns.periodic_axes:
        return ""
    assert isinstance(tail, GaussianNoise)
    instead = by_door(
        "dynamics=certirl.dynamics.AffineGaussian(…) in certirl.certify", "certirl certify with --known-noise"
    )
    return f", or far fewer for {instead} if the standard deviation is exactly {tail.std:g}"


def _undecided(
    refutation: Refutation | None, too_many: str, more: str, tail: TailLike, seen: Seen | None
) -> list[Finding]:
    """Why an estimated conflict settles nothing where a proof was asked for; nothing if the conflict is proved."""
    but, cure = "but not beyond the sampling error", "allow more samples"
    if refutation is None and too_many:
        but, cure = f"and no proof was tried that the true ones do, since {too_many}", "use fewer functions"
        more = "print(solution.witness)"
    elif refutation is None:
        but = "and too few transitions remained to prove it"
    elif refutation.holds:
        return []
    elif refutation.refuted:
        but, cure = "beyond the sampling error, but no tail was declared", DECLARE_TAIL
        more = refutation.change(tail, seen)
    elif refutation.losses.get("truncation tail", 0.0) > 0.5 * sum(refutation.losses.values()):
        but = "but not beyond what the columns may miss"
        cure = "use a larger basis with more columns, or certirl.refute with more columns alone"
        more = change(columns=2 * max(ground.columns.size for ground in refutation.grounds) - 1)
    else:
        more = refutation.change(tail, seen) or more
    return [Reason.UNDECIDED.finding(more, but=but, cure=cure)]


def _estimate(component: Component, criterion: Bellman, coefficients: Array) -> Estimate:
    """The effects of the actions on the value of a component's reward; the expert's action is the zero."""
    values = np.zeros((len(criterion.alternatives) + 1, criterion.columns.size))
    values[list(criterion.alternatives)] = -criterion.margins(coefficients)
    variances = criterion.error_forms(coefficients)
    return Estimate(component.name, component.coordinates, criterion.basis, criterion.columns, values, variances)


def load(path: str | os.PathLike[str]) -> Any:
    """Read what certirl saved: a solution, a certificate, a refutation, a reward or moments.

    Fields that are missing, out of range or of the wrong shape are refused. `certirl.check` derives certificates,
    refutations and bands again, and what it rejects is refused too; a claim that it confirms has the assumptions that
    the check has to trust.

    Args:
        path: the file; ".npz" is added to its name if only that file exists.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> certirl.load(solution.save("answer")).status
        'solved'
    """
    import certirl.environments.simulators  # its records can be in files
    import certirl.solver.soft_solution  # noqa: F401
    from certirl.proof.soft import Band
    from certirl_check import check

    named = archive.as_path(path)
    if not named.exists() and named.with_name(f"{named.name}.npz").is_file():  # as `save` adds it
        path = named.with_name(f"{named.name}.npz")
    record: Any = archive.load(path)
    is_answer = isinstance(record, Answer)
    if not is_answer and not isinstance(record, Claim | Band):
        return record
    verdict = check(path)
    if verdict.verdict == "rejected":
        raise ValueError(f"{path} is damaged or was changed: {'; '.join(verdict.reasons)}")
    if verdict.verdict != "confirmed":
        return record
    if not is_answer:
        return replace(record, assumptions=verdict.trusted)
    held = [name for name in ("certificate", "refutation", "proof") if getattr(record, name, None) is not None]
    return replace(record, **{held[0]: replace(getattr(record, held[0]), assumptions=verdict.trusted)})


def _check_read(solution: Solution) -> None:
    """Refuse fields of a file that contradict each other or are out of range."""
    as_probability(solution.discount, "discount")
    actions = as_n_actions(solution.n_actions)
    SumBasis(solution.components).as_read("")
    if actions < 2 or any(len(component.action_values) != actions for component in solution.components):
        raise ValueError(f"action_values must be those of {actions} actions, two at least")
    as_count(solution.samples, "samples", least=0, most=max(solution.stats.counts, default=0))
    if solution.expert is not None:
        as_count(solution.expert, "expert", least=0, most=actions - 1)
        if any(
            component.variances is not None and len(component.variances) != actions - 1
            for component in solution.components
        ):
            raise ValueError(f"variances must be those of {actions - 1} alternative actions")
    for states in (solution.compared.states, *([] if solution.witness is None else [solution.witness.states])):
        as_states(states, solution.domain)
    for chosen in (
        solution.compared.actions,
        *([] if solution.witness is None else [solution.witness.actions, solution.witness.taken]),
    ):
        if chosen is not None:
            as_actions(chosen, n_actions=actions)
    _check_reward(solution)
    proof = solution.certificate
    if (proof is not None and proof.holds) != (solution.status == "certified"):
        bound = "no certificate that holds" if solution.status == "certified" else "a certificate that holds"
        raise ValueError(f"the status is {solution.status!r}, with {bound}")
    if proof is not None and solution.reward is None:
        raise ValueError("a certificate needs the reward that it is about, and there is none")


def _check_reward(solution: Solution) -> None:
    """Refuse a reward or a value of other states, and a margin without its place."""
    for name in ("reward", "value"):
        function = getattr(solution, name)
        if function is not None and function.domain != solution.domain:
            raise ValueError(f"{name} must be a function on {solution.domain.words}")
        if function is not None and len(solution.components) > 1:
            same = attrgetter("name", "coordinates", "basis")
            if list(map(same, solution.components)) != list(map(same, function.components)):
                raise ValueError(f"the components must be those of the {name}")
        elif name == "reward" and solution.certificate is not None and solution.certificate.replaces_reward:
            continue
        elif function is not None and (name == "value" or not solution._by_value) and function.basis != solution.basis:
            raise ValueError(f"{name} must be a function in {solution.basis}")
    if (solution.state is None) != (solution.action is None):
        raise ValueError("state and action must come together: they are where the margin is least")
    if solution.state is not None:
        as_states(solution.state[None], solution.domain, name="state")
        as_count(solution.action, "action", least=0, most=solution.n_actions - 1)
        as_number(solution.margin, "margin")
        if solution.action == solution.expert:
            raise ValueError(f"action must be another action than the expert's, got {solution.action}")
    if not solution._by_value and (solution.reward is None) != (solution.state is None):
        raise ValueError("a reward and the place where its margin is least must come together")
