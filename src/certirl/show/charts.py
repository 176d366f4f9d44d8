"""The numbers and words of every picture, without a drawing library: matplotlib and SVG draw the same records.

A function of the state is a `Chart` on an interval and a `Map` on a box. Of three coordinates and more two are drawn,
the ``plane``; the others are held where the margin is least, or in the middle of the box. A sum over components has one
chart for each of the components that vary most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import action_in_words
from certirl.functions.reward import Reward, values_of
from certirl.ground.domain import Array, Box
from certirl.ground.doors import as_count, as_listed
from certirl.ground.records import Record
from certirl.ground.status import chance, percent_up, rounded_down

if TYPE_CHECKING:
    from certirl.data.coverage import Coverage
    from certirl.fit.features import FeaturePath
    from certirl.fit.ranges import WeightRanges
    from certirl.ground.status import Claim
    from certirl.problems import Problem
    from certirl.proof.cells import CellCertificate
    from certirl.proof.certificate import Certificate
    from certirl.solver.soft_solution import SoftSolution
    from certirl.solver.solution import Solution
    from certirl.solver.stability import Stability

# Okabe and Ito's colours, distinguishable with every kind of colour vision and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GAIN, LOSS, SUM, MARK = 0, 1, 2, 1  # numbers of `COLOURS`: of bars, and of marked places
# Cividis, which reads the same with every kind of colour vision and in grey.
SHADES = (
    "#00224e", "#013271", "#2f426d", "#48526c", "#5e636f", "#727374",
    "#878478", "#9d9576", "#b6a96f", "#cebc63", "#e7d150", "#fee838",
)  # fmt: skip


class Look(NamedTuple):
    """How what has a role is drawn, by matplotlib and in SVG: opacity, and of lines the width and the dashes."""

    opacity: float = 1.0
    width: float = 0.0
    dashes: tuple[float, ...] = ()


LOOKS = {
    "line": Look(width=1.8),
    "steps": Look(width=1.8),
    "dashed": Look(width=1.4, dashes=(4, 2)),
    "band": Look(0.25),
    "shade": Look(0.14),  # a span of an action
    "grey": Look(0.22),  # a span without a colour
    "edge": Look(0.7, 1.2, (1, 2)),  # a span without width
    "axis": Look(0.6, 0.8),  # a level without a label
    "level": Look(0.9, 1.5, (1, 2)),
    "border": Look(width=1.3),
    "halo": Look(width=2.9),  # white around borders
    "bar": Look(),
    "dot": Look(width=8.0),  # in SVG
    "dots": Look(width=3.0),
}

MOST_PANELS = 12
MOST_POINTS = 2_000  # of a curve of points
ALONG_LINE, ALONG_MAP = 801, 160  # states along each coordinate
ALONG_PROOF = 240  # cells along each coordinate of a map of a proof by cells
SEVERAL = 3  # regions of an action that are named in a map
UNPROVED = "estimated, not proved"
SEEN = 0.02  # of a map: smaller regions are not named
TOOTH = 10  # points of a proved bound, between whose least ones it is drawn as a straight line
ALONG_CELLS = 40  # cells along each coordinate of a map of states
NO_DATA = "no data"  # where R of a log is only bounded, and not drawn

Plane = tuple[int | str, int | str]
FIRST: Plane = (0, 1)


class Span(NamedTuple):
    """A shaded interval of the horizontal axis; one without width is a vertical line."""

    # low, high: its ends
    low: float
    high: float
    label: str  # the same for all spans of one kind
    colour: int | None = None  # a number of `COLOURS`; None for grey


class Level(NamedTuple):
    """A horizontal line: its value and its label, which may be empty."""

    value: float
    label: str = ""


class Point(NamedTuple):
    """A marked place and its label, which may be empty."""

    x: float
    y: float
    label: str = ""


@dataclass(frozen=True, eq=False)
class Curve(Record):
    """A curve of a chart; NaN interrupts it."""

    label: str  # in the legend; empty for none
    # x, y: its points ``[n]``. A curve of steps has the n + 1 edges of its cells in ``x``
    x: Array = field(repr=False)
    y: Array = field(repr=False)
    # lower, upper: a band ``[n]``; None without any
    lower: Array | None = field(default=None, repr=False)
    upper: Array | None = field(default=None, repr=False)
    style: str = "line"  # "line", "dashed", "points" or "steps"
    colour: int | None = None  # a number of `COLOURS`; None for the colour of text
    band: str = ""  # what the band means; empty without any


@dataclass(frozen=True, eq=False)
class Chart:
    """Curves over an interval."""

    # title, x_label, y_label: in words; the title may be empty
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]  # in the order of the legend
    spans: tuple[Span, ...] = ()  # shaded behind the curves
    levels: tuple[Level, ...] = ()  # horizontal lines
    points: tuple[Point, ...] = ()  # marked places, with labels beside them
    # low, high: the range of the vertical axis, from what the data determine; curves and bands may exceed it
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, eq=False)
class Map(Record):
    """Numbers over cells of two coordinates."""

    # title, x_label, y_label, value_label: in words; the title may be empty
    title: str
    x_label: str
    y_label: str
    value_label: str
    # x, y: the middles of the cells, evenly spaced ``[n]`` and ``[m]``
    x: Array = field(repr=False)
    y: Array = field(repr=False)
    values: Array = field(repr=False)  # ``[m, n]``; NaN for an empty cell, which is drawn as empty
    # low, high: the range of colours, from what the data determine; values may exceed it
    low: float
    high: float
    borders: tuple[Array, ...] = field(default=(), repr=False)  # lines ``[k, 2]``, where the action changes
    words: tuple[Point, ...] = ()  # places and what is written there, such as the action that is taken around them
    # cells that are hatched ``[m, n]``; None without any
    hatched: NDArray[np.bool_] | None = field(default=None, repr=False)
    points: tuple[Point, ...] = ()  # marked places, with labels in the legend
    # border_label, hatched_label, empty_label: what these mean; empty if there are none
    border_label: str = ""
    hatched_label: str = ""
    empty_label: str = ""
    is_log: bool = False  # colours are logarithmic, and all values positive


class Bar(NamedTuple):
    """A bar: its label, where it starts and ends, the words beside it, and a number of `COLOURS`."""

    label: str
    start: float
    end: float
    words: str
    colour: int
    mark: float | None = None  # a place on it that is marked


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals, one below the other, each by itself."""

    # title, label: of the picture and of the axis of the numbers, in words
    title: str
    label: str
    rows: tuple[Bar, ...]
    joined = 0  # rows that each start where the one above ends


@dataclass(frozen=True, eq=False)
class Bars:
    """A sum: bars of signed numbers, each starting where the one before ends, and the total."""

    # title, label: of the picture and of the axis of the numbers, in words
    title: str
    label: str
    # the name and the value of each term; terms too small to be seen may be left out
    parts: tuple[tuple[str, float], ...]
    # total, value: the name of the sum, empty if it is not drawn, and the sum
    total: str = ""
    value: float = 0.0

    @property
    def joined(self) -> int:
        """The rows that each start where the one above ends."""
        return len(self.parts)

    @property
    def rows(self) -> tuple[Bar, ...]:
        """One bar below the other: the parts, and the sum if it is drawn. What is not finite has no length."""
        bars, end = list[Bar](), 0.0
        for label, value in self.parts:
            start, end = end, end + (value if np.isfinite(value) else 0.0)
            bars.append(Bar(label, start, end, number(value, 3), GAIN if value >= 0 else LOSS))
        if self.total:
            total = self.value if np.isfinite(self.value) else end
            bars.append(Bar(self.total, 0.0, total, number(rounded_down(self.value), 3), SUM))
        smallest = 1e-9 * max((abs(bar.end - bar.start) for bar in bars), default=0.0)
        return tuple(
            bar._replace(words=number(0.0)) if 0 < abs(bar.end - bar.start) < smallest else bar for bar in bars
        )


Picture = Chart | Map | Bars | Intervals


def number(value: float, digits: int = 4) -> str:
    """A number for a person: few digits and a proper minus sign; a dash for NaN."""
    if not np.isfinite(value):
        return "–" if np.isnan(value) else "∞" if value > 0 else "−∞"
    text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value + 0.0:.{digits}g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


class Names(NamedTuple):
    """What the user calls coordinates and actions; empty where they have no names."""

    coordinates: tuple[str, ...] = ()  # of the state
    actions: tuple[str, ...] = ()  # 0, 1, …

    @classmethod
    def of(cls, record: Any) -> Names:
        """The names of a solution, or of coverage."""
        stats = getattr(record, "stats", record)
        return cls(getattr(stats, "coordinate_names", ()), getattr(stats, "action_names", ()))

    def among(self, coordinates: Iterable[int]) -> Names:
        """The same for some of several coordinates."""
        return self._replace(coordinates=tuple(self.coordinate(axis, 2) for axis in coordinates))

    def coordinate(self, axis: int, dimension: int) -> str:
        """The label of an axis."""
        if self.coordinates:
            return self.coordinates[axis]
        return "state s" if dimension == 1 else f"s[{axis}]"

    def action(self, number: int) -> str:
        """An action in words."""
        return action_in_words(number, self.actions)


# Whole records -------------------------------------------------------------------------------------------------------


def heading(solution: Solution) -> str:
    """The status, the expert and the data of a solution in a line."""
    who = "" if solution.expert is None else f"{Names.of(solution).action(solution.expert)} at every state, "
    data = f"{solution.samples:,} {'states' if solution.stats.noiseless else 'transitions per action'}"
    return f"{solution.status}: {who}γ = {solution.discount:g}, {data if solution.samples else 'exact operators'}"


def soft_heading(solution: SoftSolution) -> str:
    """The status and the data of the rewards of a soft expert in a line."""
    return f"{solution.status}: γ = {solution.discount:g}, {solution.likelihood.decisions:,} decisions"


def soft_charts(solution: SoftSolution, *, plane: Plane = FIRST) -> tuple[Picture, ...]:
    """The rewards of all actions, on an interval with errors or bands, and how likely these make each action."""
    names, reward = Names.of(solution), solution.reward
    if len(solution.domain) > 1:
        label = f"reward R({'s, a' if reward.of_actions else 's'})"
        charts = _single_charts("R", label, reward, None, plane, names)
        return tuple(replace(chart, title=_titled(standing(solution), chart.title)) for chart in charts)
    return _soft_line(solution, names), _soft_policy(solution, names)


def standing(answer: Any) -> str:
    """What is proved of a reward, or that it is not, for the title of its picture."""
    if answer.status == "bounded":
        return f"in its band with probability {chance(answer.proof.delta)}"
    if answer.status != "certified":
        words = {"infeasible": "infeasible: the best fit", "validated": "validated, not proved"}
        return words.get(answer.status, UNPROVED)
    proof = answer.certificate
    if not proof.delta:
        return f"certified in {proof.share_in_words} of the cells"
    sure = f"certified with probability {chance(proof.delta)}"
    return f"{sure} outside the tube" if proof.tube is not None and proof.tube.share else sure


def solution_charts(solution: Solution, *, problem: Problem | None = None, plane: Plane = FIRST) -> tuple[Picture, ...]:
    """The reward, the margins behind it and, for an expert who depends on the state, the certificate."""
    rewards = reward_charts(solution, plane=plane)
    proof = solution.certificate if solution.expert is None else None
    proofs = () if proof is None else certificate_charts(proof, plane=plane, names=Names.of(solution))
    return (*rewards, *margin_charts(solution, problem=problem, plane=plane), *proofs)


def reward_charts(solution: Any, *, plane: Plane = FIRST) -> tuple[Chart | Map, ...]:
    """R(s), and for an expert who depends on the state the actions that are best for it.

    Of a sum, the rewards of the components that vary most; of a reward that depends on the action, one for each.
    """
    if isinstance(solution, Reward):
        return _function_charts("R", "reward", solution, None, plane)
    if solution.reward is None:
        raise ValueError(f"there is no reward to draw: {solution.reason}")
    return _function_charts("R", "reward", solution.reward, solution, plane)


def value_charts(solution: Solution, *, plane: Plane = FIRST) -> tuple[Chart | Map, ...]:
    """V(s), the expert's value, as `reward_charts` draws R."""
    if solution.value is None:
        raise ValueError(f"there is no value to draw: {solution.reason}")
    return _function_charts("V", "value", solution.value, solution, plane)


def margin_charts(solution: Solution, *, problem: Problem | None = None, plane: Plane = FIRST) -> tuple[Picture, ...]:
    """By how much the expert's action is better than the alternatives, as estimated.

    For an expert who always takes one action: D_a(s) of each alternative with two standard errors, the states where the
    margin is attained, and the truth if a problem is given; on a box a map of the smallest; of a sum what each
    component adds to the margin. For the value form: the margin asked for and the shortfall at the states compared.
    """
    if solution.reward is None:
        raise ValueError(f"there are no margins to draw: {solution.reason}")
    is_interval = len(solution.domain) == 1
    if not solution.stats.objective:
        return (_shortfall_line(solution) if is_interval else _shortfall_map(solution, plane),)
    if len(solution.components) > 1:
        names = [component.name for component in solution.components]
        return _sums(solution.contributions, names, solution.alternatives, Names.of(solution), "")
    return (_margin_lines(solution, problem) if is_interval else _margin_map(solution, problem, plane),)


def certificate_charts(
    certificate: Certificate | CellCertificate, *, plane: Plane = FIRST, names: Names | None = None
) -> tuple[Picture, ...]:
    """The advantage of the expert's action over its best alternative, estimated and at least; the tube.

    In several coordinates a map of the proved lower bound, where that is positive; of a sum over components the lower
    bounds of each, which add up to the margin.
    """
    from certirl.proof.cells import CellCertificate

    names = Names.of(certificate) if names is None else names
    if isinstance(certificate, CellCertificate):
        return (_cell_picture(certificate, names),)
    if len(certificate.grounds) > 1:
        return _proved_sums(certificate, names)
    if len(certificate.domain) == 1:
        return (_band(certificate, names),)
    return (_proved_map(certificate, plane, names),)


def budget(certificate: Claim) -> Bars:
    """The estimated margin, the losses that matter, and what remains: the margin that is proved."""
    matter, title = 5e-4 * abs(certificate.estimated), _claimed(certificate)
    losses = [(name, -loss) for name, loss in certificate.losses.items() if matter < loss < np.inf]
    parts = (("estimated", certificate.estimated), *losses)
    if not np.isfinite(certificate.margin):
        return Bars(title, "margin", parts)
    label, total = ("margin", "margin, at least") if certificate.spare > 0 else ("estimate and losses", "what remains")
    return Bars(title, label, parts, total, certificate.margin)


def _claimed(proof: Claim) -> str:
    """What is proved of the margin, or why nothing is."""
    if not np.isfinite(proof.margin):
        return f"{proof.word}: {proof.without_bound}"
    if proof.spare > 0 and proof.required < 0:
        return f"{proof.word}: optimal {getattr(proof, 'suboptimality', '')}"
    if proof.spare > 0:
        return f"{proof.word}: margin at least {number(rounded_down(proof.margin), 3)}"
    return f"{proof.word}: the {'losses exceed the estimate' if proof.estimated > 0 else 'estimate is not positive'}"


def coverage_charts(coverage: Coverage, *, action: int | None = None, plane: Plane = FIRST) -> tuple[Chart | Map, ...]:
    """How many transitions start where, and where predictions are extrapolated.

    On an interval the transitions of each action in each cell; on a box a map, for one action or, in each cell, for
    the rarest one. Further coordinates are summed over, and then extrapolation is not shown.
    """
    if action is not None:
        as_count(action, "action", least=0, most=coverage.n_actions - 1)
    if len(coverage.domain) == 1:
        return (_coverage_line(coverage, range(coverage.n_actions) if action is None else [action]),)
    return (_coverage_map(coverage, action, plane),)


def feature_path_chart(steps: FeaturePath) -> Chart:
    """The states that rewards of features do not explain, and the regret, by the number of features."""
    counts, chosen = np.asarray(steps.counts), float(steps.counts[steps.chosen])
    shares = {"states not explained": 100 * steps.unexplained, "regret": 100 * steps.regret}
    places = zip(counts.tolist(), shares["states not explained"].tolist(), steps.formulas, strict=True)
    return Chart(
        UNPROVED,
        "changes of the guess" if steps.guessed else "features",
        "share in %",
        tuple(Curve(label, counts, share, colour=colour) for colour, (label, share) in enumerate(shares.items())),
        spans=(Span(chosen, chosen, "chosen"),),
        points=tuple(Point(float(x), y, formula) for x, y, formula in places),
        low=0.0,
        high=max(_range(shares.values())[1], 5.0),
    )


def range_charts(ranges: WeightRanges) -> tuple[Intervals, ...]:
    """The ranges of the weights, as what the features add to the advantage, and those of the ratios."""
    count = len(ranges.sizes)
    scale = np.concatenate([np.where(ranges.sizes > 0, ranges.sizes, 1.0), np.ones(len(ranges.names) - count)])
    values = scale * np.array([ranges.low, ranges.high, ranges.found])
    parts = {"weight × size of the feature": slice(count), "ratio of weights": slice(count, None)}
    which = f"{UNPROVED}: all rewards that explain the expert as well"
    if ranges.delta is not None:
        which = f"all rewards that explain the expert, with probability {chance(ranges.delta)}"
    return tuple(
        _intervals(f"{which}; line: the one found", label, ranges.names[part], values[:, part], ranges.texts[part])
        for label, part in parts.items()
        if ranges.names[part]
    )


def _intervals(title: str, label: str, names: Sequence[str], values: Array, texts: Sequence[str]) -> Intervals:
    """Intervals from the first to the second value, the third one marked; infinite ones reach beyond all others."""
    beyond = 1.2 * float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    low, high = np.nan_to_num(np.clip(values[:2], -beyond, beyond)).tolist()
    marks = [None if np.isnan(found) else found for found in values[2].tolist()]
    rows = [
        Bar(name, first, last, text, GAIN, mark)
        for name, first, last, text, mark in zip(names, low, high, texts, marks, strict=True)
    ]
    return Intervals(title, label, tuple(rows))


def rounds_chart(solution: Solution) -> Chart:
    """The share of the margin that a proof was forecast to leave, or left, in every round of draws."""
    rounds = solution.stats.search
    if not rounds:
        raise ValueError("there are no rounds to draw: these are of a search for a proof with a simulator")
    samples = np.array([each.samples for each in rounds])
    forecast, attempted = (np.array([100 * getattr(each, name) for each in rounds]) for name in ("forecast", "proved"))
    tried = zip(samples.tolist(), attempted.tolist(), rounds, strict=True)
    points = tuple(Point(n, y, f"δ = {each.delta:.3g}") for n, y, each in tried if np.isfinite(y))
    proved = Curve("proved", samples, attempted, style="points", colour=1)
    low, high = _range([*np.maximum([forecast, attempted], -100.0), np.array([0.0, 10.0])])
    return Chart(
        f"{len(rounds)} round{'s' * (len(rounds) != 1)}",
        "transitions per action",
        "% of the margin that remains",
        (Curve("forecast", samples, forecast, colour=0), *([proved] if points else [])),
        levels=(Level(0.0),),
        points=points,
        low=low,
        high=high + 0.1 * (high - low),  # space for the words
    )


# Functions of the state ----------------------------------------------------------------------------------------------


def _titled(*parts: str) -> str:
    """Parts of a title, without those that are empty."""
    return "; ".join(filter(None, parts))


def _function_charts(
    letter: str, word: str, function: Reward, solution: Solution | None, plane: Plane
) -> tuple[Chart | Map, ...]:
    """A reward or a value: one chart, or one for each component that is worth drawing."""
    names = Names() if solution is None else Names.of(solution)
    claim = "" if solution is None else standing(solution) if letter == "R" else UNPROVED
    if len(function.components) == 1:
        label = f"{word} {letter}({'s, a' if function.of_actions else 's'})"
        charts = _single_charts(letter, label, function, solution, plane, names)
        return tuple(replace(chart, title=_titled(claim, chart.title)) for chart in charts)
    several, drawn = list[Chart | Map](), _most_varied(function)
    for number in drawn:
        component, term = function.components[number], function.parts[number]
        label, own = f"{letter}({component.name})", names.among(component.coordinates)
        for chart in _single_charts(letter, label, term, None, FIRST, own):
            action = f", {chart.title}" if len(component.coordinates) > 1 and term.of_actions else ""
            several.append(replace(chart, title=_titled(f"{letter}({component.name}{action})", claim)))
    missing = len(function.parts) - len(drawn)
    if missing:
        several[-1] = replace(several[-1], title=_titled(several[-1].title, f"{missing} more are not drawn"))
    return tuple(several)


def _most_varied(function: Reward) -> list[int]:
    """The components that vary most, in their order in the sum."""
    rng = np.random.default_rng(0)
    ranges = []
    for term in function.parts:
        states = term.domain.uniform(500, rng)
        ranges.append(float(np.ptp([values_of(term, states, action) for action in range(term.n_actions or 1)])))
    return sorted(np.argsort(-np.array(ranges), kind="stable")[:MOST_PANELS].tolist())


def _single_charts(
    letter: str, label: str, function: Reward, solution: Solution | None, plane: Plane, names: Names
) -> tuple[Chart | Map, ...]:
    """A function without components; one picture for each action on a box if it depends on the action."""
    policy = solution if solution is not None and solution.expert is None else None
    calls: dict[str, Callable[[Array], Any]] = {
        "" if function.ends is None else f"{letter} is {function.ends.worth:.4g} at some terminal states": function
    }
    count = function.n_actions if solution is None else solution.n_actions
    if function.of_actions and count is not None:
        calls = {names.action(a): partial(values_of, function, action=a) for a in range(count)}
    reward = function if solution is None or solution.reward is None else solution.reward  # a value rests on its data
    if len(function.domain) == 1:
        return (_function_line(label, calls, function, reward, policy, names),)
    held = solution.state if solution is not None and policy is None else None
    sheet = Sheet.of(function.domain, plane, held, names)
    mask, charts = np.asarray(reward.extrapolated(sheet.states)), list[Map]()
    for name, call in calls.items():
        values = np.where(mask, np.nan, call(sheet.states))
        chart = sheet.map(name, label, values, hatched=mask, hatched_label=NO_DATA, is_robust=policy is not None)
        if policy is not None:
            best = np.where(mask, -1, policy.greedy(sheet.states))
            chart = sheet.divided(chart, best, names, "the best action changes")
        charts.append(chart if held is None else sheet.marked(chart, held))
    return tuple(charts)


def _function_line(
    label: str,
    calls: dict[str, Callable[[Array], Any]],
    function: Reward,
    reward: Reward,
    policy: Solution | None,
    names: Names,
) -> Chart:
    s = _line(function.domain)
    mask, is_single = np.asarray(reward.extrapolated(s)), len(calls) == 1
    curves = tuple(
        Curve("" if is_single else name, s, np.where(mask, np.nan, call(s)), colour=None if is_single else number)
        for number, (name, call) in enumerate(calls.items())
    )
    spans = list[Span]()
    if policy is not None:
        best = policy.greedy(s)
        for action in range(policy.n_actions):
            spans += _spans(_borders(s), (best == action) & ~mask, f"{names.action(action)} is best", action)
        spans += _undecided(policy.certificate)
    spans += _spans(_borders(s), mask, NO_DATA)
    low, high = _range([curve.y for curve in curves])
    title = "" if function.ends is None else next(iter(calls))
    return Chart(title, names.coordinate(0, 1), label, curves, tuple(spans), low=low, high=high)


def _soft_line(solution: SoftSolution, names: Names) -> Chart:
    """R(s, a) with the band, or else with two standard errors."""
    s, reward, curves = _line(solution.domain), solution.reward, list[Curve]()
    has_band = solution.proof is not None and solution.status == "bounded"
    actions = range(solution.n_actions) if reward.of_actions or solution.reference is not None else [0]
    for action in actions:
        middle, error = values_of(reward, s, action), 2 * solution.standard_error(s, action)
        low, high = solution.band(s, action) if has_band else (middle - error, middle + error)
        label, words = "" if len(actions) == 1 else names.action(action), "band" if has_band else "± 2 standard errors"
        finite = np.isfinite(low) & np.isfinite(high)
        low, high = (np.where(finite, side, np.nan) for side in (low, high))
        curves.append(Curve(label, s, middle, low, high, colour=action, band=words if finite.any() else ""))
    low, high = _with_bands(curves)
    letters = "s" if len(actions) == 1 else "s, a"
    return Chart(standing(solution), names.coordinate(0, 1), f"reward R({letters})", tuple(curves), low=low, high=high)


def _soft_policy(solution: SoftSolution, names: Names) -> Chart:
    """The probabilities that the rewards give each action, beside those of the log-odds."""
    s = _line(solution.domain)
    by_reward, by_odds = solution.probabilities(s), solution.odds.at(s).chances
    curves = [
        Curve(names.action(action), s, by_reward[:, action], colour=action) for action in range(solution.n_actions)
    ]
    if solution.reference is None:
        curves += [
            Curve("" if action else "log-odds", s, by_odds[:, action], style="dashed", colour=action)
            for action in range(solution.n_actions)
        ]
    return Chart(UNPROVED, names.coordinate(0, 1), "probability π(a | s)", tuple(curves), low=0.0, high=1.0)


class Sheet(NamedTuple):
    """Cells of two coordinates, the other coordinates held."""

    plane: tuple[int, int]  # the two coordinates
    # x, y: the middles of the cells along each
    x: Array
    y: Array
    states: Array  # of all cells ``[m·n, d]``, x varying fastest
    labels: tuple[str, str]  # of the two coordinates
    held: str  # the other coordinates and their values, in words

    @classmethod
    def of(cls, domain: Box, plane: Plane, at: Array | None, names: Names, *, along: int = ALONG_MAP) -> Sheet:
        """The cells of a plane of a box; other coordinates are those of a state, or in the middle."""
        d = len(domain)
        named = as_listed(plane, "plane")
        axes = [names.coordinates.index(axis) if axis in names.coordinates else axis for axis in named]
        if len(axes) != 2 or axes[0] == axes[1] or not all(axis in range(d) for axis in axes):
            known = f", or {', '.join(names.coordinates)}" if names.coordinates else ""
            raise ValueError(f"plane must name two of the coordinates 0 … {d - 1}{known}, got {plane}")
        first, second = (int(axis) for axis in axes)
        x, y = (_middles(domain[axis], along) for axis in (first, second))
        rest = np.mean(domain, axis=1) if at is None else np.asarray(at, dtype=float)
        states = np.tile(rest, (x.size * y.size, 1))
        states[:, first], states[:, second] = np.tile(x, y.size), np.repeat(y, x.size)
        others = [axis for axis in range(d) if axis not in (first, second)]
        held = ", ".join(f"{names.coordinate(axis, d)} = {rest[axis]:.3g}" for axis in others)
        return cls((first, second), x, y, states, (names.coordinate(first, d), names.coordinate(second, d)), held)

    def map(
        self,
        title: str,
        label: str,
        values: Array,
        *,
        hatched: NDArray[np.bool_] | None = None,
        hatched_label: str = "",
        is_robust: bool = False,
        **words: Any,
    ) -> Map:
        """A map of values ``[m·n]``, NaN where empty, its colours from cells that are neither empty nor hatched.

        What is held is added to the title. A robust range of colours leaves out a hundredth of the values at each end.
        """
        shape, hatched = (self.y.size, self.x.size), hatched if hatched is not None and hatched.any() else None
        seen = np.isfinite(values) if hatched is None or hatched.all() else np.isfinite(values) & ~hatched
        low, high = np.percentile(values[seen] if seen.any() else 0.0, [1, 99] if is_robust else [0, 100])
        if hatched is not None:
            words |= {"hatched": hatched.reshape(shape), "hatched_label": hatched_label}
        heading = _titled(title, self.held and f"at {self.held}")
        ends = {"low": float(low), "high": float(high)}
        return Map(heading, *self.labels, label, self.x, self.y, values.reshape(shape), **ends | words)

    def borders(self, numbers: NDArray[Any]) -> tuple[Array, ...]:
        """Lines between neighbouring cells of different numbers ``[m·n]``; cells with −1 have none."""
        table, lines = numbers.reshape(self.y.size, self.x.size), list[Array]()
        for across, grid in enumerate((table, table.T)):  # upright lines, then lying ones
            places, ends = (edges(axis) for axis in ((self.x, self.y), (self.y, self.x))[across])
            differs = (grid[:, 1:] != grid[:, :-1]) & (grid[:, 1:] >= 0) & (grid[:, :-1] >= 0)
            for column in np.flatnonzero(differs.any(axis=0)):
                for run in runs(differs[:, column]):
                    line = np.array([[places[column + 1], ends[end]] for end in run])
                    lines.append(line[:, ::-1] if across else line)
        return tuple(lines)

    def divided(self, chart: Map, actions: NDArray[Any], names: Names, label: str) -> Map:
        """A map with borders between cells of different actions ``[m·n]``, −1 for none, and the actions beside them."""
        from scipy.ndimage import distance_transform_edt
        from scipy.ndimage import label as connected

        table, words = actions.reshape(self.y.size, self.x.size), list[tuple[float, Point]]()
        for action in np.unique(table[table >= 0]).tolist():
            regions, _ = connected(table == action)
            sizes = np.bincount(regions.ravel())[1:]
            for number in np.argsort(-sizes)[:SEVERAL].tolist():
                share = float(sizes[number]) / table.size
                if share >= SEEN:
                    depth = distance_transform_edt(np.pad(regions == number + 1, 1))[1:-1, 1:-1]
                    places = np.argwhere(depth > 0.8 * depth.max())  # far from the borders, and central
                    middle = np.argwhere(depth > 0).mean(axis=0)
                    row, column = places[((places - middle) ** 2).sum(axis=1).argmin()]
                    word, (left, right) = names.action(action), (float(self.x[0]), float(self.x[-1]))
                    room = min(0.01 * len(word), 0.5) * (right - left)  # for half of the word
                    x = min(max(float(self.x[column]), left + room), right - room)
                    words.append((share, Point(x, float(self.y[row]), word)))
        borders = self.borders(actions)
        return replace(
            chart,
            borders=borders,
            border_label=label if borders else "",
            words=tuple(point for _, point in sorted(words, reverse=True)),
        )

    def marked(self, chart: Map, state: Array) -> Map:
        """A map with the state of the least margin marked."""
        x, y = (float(state[axis]) for axis in self.plane)
        return replace(chart, points=(Point(x, y, "least margin, as estimated"),))


# Margins -------------------------------------------------------------------------------------------------------------


def _margin_lines(solution: Solution, problem: Problem | None) -> Chart:
    s, compared, names = _line(solution.domain), solution.compared, Names.of(solution)
    margins, errors = solution.margins(s), solution.standard_errors(s)
    truth = None if problem is None else _true_margins(solution, problem, s)
    weights = np.zeros(len(compared.states)) if compared.weights is None else np.asarray(compared.weights)
    attained = weights > 1e-9 * max(weights.max(initial=0.0), 1e-300)
    curves, binding = list[Curve](), list[Curve]()
    for index, action in enumerate(solution.alternatives):
        band = (margins[index] - 2 * errors[index], margins[index] + 2 * errors[index])
        label = f"over {names.action(action)}"
        curves.append(Curve(label, s, margins[index], *band, colour=action, band="± 2 standard errors"))
        if truth is not None:
            label = "" if index else "truth"
            curves.append(Curve(label, s, truth[index], style="dashed", colour=action))
        places = compared.states[attained & (compared.actions == action), 0]
        if places.size:
            label = "" if binding else "states that bind"
            binding.append(Curve(label, places, solution.margins(places)[index], style="points", colour=action))
    proof = solution.certificate
    levels = [Level(0.0)]
    if proof is not None and proof.holds:
        levels.append(Level(proof.margin, f"certified margin {rounded_down(proof.margin):.3g}"))
    drawn = [margins, *([] if truth is None else [truth]), np.array([level.value for level in levels])]
    low, high = _range_with(drawn, [margins - 2 * errors, margins + 2 * errors])
    labels = names.coordinate(0, 1), "advantage D(s)"
    return Chart(UNPROVED, *labels, (*curves, *binding), levels=tuple(levels), low=low, high=high)


def _true_margins(solution: Any, problem: Problem, states: Array) -> Array:
    return problem.margins(solution.reward, states, discount=solution.discount, expert=solution.expert)


def _margin_map(solution: Solution, problem: Problem | None, plane: Plane) -> Map:
    sheet = Sheet.of(solution.domain, plane, solution.state, Names.of(solution))
    if problem is None:
        margins, noise = solution.margins(sheet.states), 2 * solution.standard_errors(sheet.states)
        words, within = "smallest advantage", (margins <= noise).any(axis=0)
        chart = sheet.map(
            UNPROVED, words, margins.min(axis=0), hatched=within, hatched_label="within 2 standard errors of 0"
        )
    else:
        margins = _true_margins(solution, problem, sheet.states)
        chart = sheet.map("", "smallest advantage, true", margins.min(axis=0))
    return chart if solution.state is None else sheet.marked(chart, solution.state)


def _sums(
    added: Array, terms: Sequence[str], alternatives: Sequence[int], names: Names, bound: str
) -> tuple[Bars, ...]:
    """What each component adds to the margin over every alternative ``[J, A − 1]``: one picture for each of these."""
    order, bars = np.argsort(-np.abs(added).max(axis=1), kind="stable"), []
    for column, action in zip(added.T, alternatives, strict=True):
        drawn = [(terms[number], float(column[number])) for number in order[:MOST_PANELS]]
        rest = order[MOST_PANELS:]
        if len(rest):
            drawn.append((f"{len(rest)} more", float(column[rest].sum())))
        title = f"margin over {names.action(action)}, by component{'' if bound else f': {UNPROVED}'}"
        bars.append(Bars(title, f"margin{bound}", tuple(drawn), "sum", float(column.sum())))
    return tuple(bars)


def _shortfall_line(solution: Solution) -> Chart:
    compared = solution.compared
    order = np.argsort(compared.states[:, 0], kind="stable")
    order = order[:: -(-len(order) // MOST_POINTS)]
    s, target, short = compared.states[order, 0], compared.target[order], compared.shortfall[order]
    (low, high), gap = solution.domain[0], np.array([np.nan])
    return Chart(
        _falling_short(solution),
        Names.of(solution).coordinate(0, 1),
        "in units of the margin",
        (
            Curve("margin asked for", np.array([low, *s, high]), np.concatenate([gap, target, gap])),  # over the domain
            Curve("shortfall of the expert", s, short, style="points", colour=1),
        ),
        low=0.0,
        high=_range([target, short])[1],
    )


def _falling_short(solution: Solution) -> str:
    largest = float(solution.compared.shortfall.max(initial=0.0))
    better = f"another action looks better at {solution.stats.unexplained:.1%} of the states{_of_these(solution)}"
    return f"{UNPROVED}: {better}; largest shortfall: {largest:.2g}"


def _of_these(solution: Solution) -> str:
    """How many of the states at which another action looks better lie in the tube of a certificate."""
    compared, proof = solution.compared, solution.certificate
    states = compared.states[(compared.shortfall > compared.target) & (compared.target > 0)]
    if proof is None or not proof.holds or not len(states):
        return ""
    inside = int((~proof.proves(states)).sum())
    many = "all" if inside == len(states) else f"{inside:,} of {len(states):,}"
    return f", {many} of them inside the tube, where no action is proved to be best"


def _shortfall_map(solution: Solution, plane: Plane) -> Map:
    compared, domain = solution.compared, solution.domain
    sheet = Sheet.of(domain, plane, None, Names.of(solution), along=ALONG_CELLS)
    turned = sheet.plane[::-1]  # rows of the map are the second coordinate
    sides, places = [tuple(domain[axis]) for axis in turned], compared.states[:, turned].T
    tables = [
        np.histogram2d(places[0], places[1], ALONG_CELLS, sides, weights=weights)[0].ravel()
        for weights in (None, compared.shortfall)
    ]
    means = np.divide(tables[1], tables[0], out=np.full(ALONG_CELLS**2, np.nan), where=tables[0] > 0)
    label, high = "mean shortfall, in units of the margin", max(float(np.nanmax(means)), 1e-9)
    sheet, title = sheet._replace(held=""), _falling_short(solution)
    return sheet.map(title, label, means, low=0.0, high=high, empty_label="no states compared")


# Certificates --------------------------------------------------------------------------------------------------------


def _band(proof: Certificate, names: Names) -> Chart:
    s, tube = _line(proof.domain), proof.tube
    estimate, least = proof.advantage(s)
    taken, spans, curves = np.isnan(estimate), list[Span](), list[Curve]()
    nearest = np.where(taken, np.inf, estimate).argmin(axis=0)
    bound = "down to the proved bound" if proof.tail is not None else "down to the bound, if the tail is zero"
    for action in range(len(taken)):
        here, name = (nearest == action) & ~taken[action], names.action(action)
        over = f"over {name}"
        if tube is not None and taken[action].any():
            over = f"{over} (shaded: taken)" if here.any() else f"the expert takes {name}"
            spans += _spans(_borders(s), taken[action], over, action)
        if here.any():
            middle = np.where(here, estimate[action], np.nan)
            lower = _envelope(s, np.where(here & np.isfinite(least[action]), least[action], np.nan))
            band = bound if np.isfinite(lower).any() else ""
            curves.append(Curve(over, s, middle, lower, middle, colour=action, band=band))
    if tube is not None:
        spans += _undecided(proof)
        ends = np.add.outer(tube.grid.switches[:, 0], [-tube.allowed, tube.allowed]).ravel().tolist()
        spans += [Span(end, end, f"half-width asked for, {tube.allowed:.3g}") for end in ends]
    levels = [Level(0.0)]
    if 0 < proof.spare < np.inf:
        levels.append(Level(proof.margin, f"{proof.word} margin {rounded_down(proof.margin):.3g}"))
    bands = [curve.lower for curve in curves if curve.lower is not None]
    low, high = _range_with([*(curve.y for curve in curves), np.zeros(1)], bands, above=False)
    labels = names.coordinate(0, 1), "advantage D(s)"
    return Chart(_proved_title(proof), *labels, tuple(curves), tuple(spans), tuple(levels), low=low, high=high)


def _undecided(proof: Any) -> list[Span]:
    """The intervals in which a proof leaves open which action is best; none of a proof without a tube."""
    tube = getattr(proof, "tube", None)
    words = "" if tube is None else f"tube: not decided, {tube.share:.1%} of the states"
    return [] if tube is None else [Span(float(low), float(high), words) for low, high in tube.undecided[:, 0]]


def _proved_title(proof: Certificate) -> str:
    title, regret = _claimed(proof), proof.relative_regret
    if proof.tube is None:
        return title
    lost = f"at most {percent_up(regret, 1)} of the span" if np.isfinite(regret) else "unknown"
    is_outside = proof.spare > 0 and proof.tube.allowed > 0
    where = f" farther than {proof.tube.allowed:.3g} from a switch" if is_outside else ""
    return f"{title}{where}\nregret {lost}"


def _proved_map(proof: Certificate, plane: Plane, names: Names) -> Map:
    sheet, tube = Sheet.of(proof.domain, plane, proof.state, names), proof.tube
    _, least = proof.advantage(sheet.states)
    bounds = np.nanmin(np.where(np.isnan(least), np.inf, least), axis=0)
    proved = np.where(proof.proves(sheet.states) & np.isfinite(bounds), bounds, np.nan)
    empty = "" if np.isfinite(proved).all() else "not decided"
    empty = empty if tube is None else f"not decided, {tube.share:.1%} of the states"
    chart = sheet.map(_proved_title(proof), "advantage D(s), at least", proved, empty_label=empty)
    if tube is None:
        return chart
    return sheet.divided(chart, tube.grid.taken_at(sheet.states).argmax(axis=0), names, "the expert switches")


def _cell_picture(proof: CellCertificate, names: Names) -> Chart | Map:
    """The proved margins of a deterministic simulator, the switches of the policy, undecided and terminal cells.

    Where there are more than `ALONG_PROOF` cells along a coordinate, several are drawn as one, which is undecided if
    one of them is.
    """
    title, live = f"{proof.word}: {proof.share_in_words} of the cells, δ = 0", proof.live
    numbers, axes = (np.where(live, proof.margins, np.inf), live, proof.actions), []
    tables: list[NDArray[Any]] = [values.reshape(proof.grid.shape) for values in numbers]
    for axis, (count, ends) in enumerate(zip(proof.grid.shape, proof.grid.domain, strict=True)):
        along = min(count, ALONG_PROOF)
        borders = np.arange(along + 1) * count  # of pixels, in cells, times their number
        pixels = np.stack([borders[:-1] // along, -(-borders[1:] // along)], axis=1).ravel()
        for number, reduce in enumerate((np.minimum, np.logical_or, np.maximum)):
            longer = np.concatenate([tables[number], tables[number].take([-1], axis=axis)], axis=axis)
            tables[number] = reduce.reduceat(longer, pixels, axis=axis).take(np.arange(0, 2 * along, 2), axis=axis)
        axes.append(_middles(ends, along))
    least, live, actions = tables
    least = np.where(live & (least > 0), least, np.nan)
    if proof.grid.dimension == 1:
        groups = [
            (live & (actions == a), f"the policy takes {names.action(a)}", a) for a in np.unique(actions[live]).tolist()
        ]
        groups += [(live & np.isnan(least), "not decided", None), (~live, "terminal", None)]
        spans = [span for mask, words, colour in groups for span in _spans(edges(axes[0]), mask, words, colour)]
        curve, high = Curve("proved", edges(axes[0]), least, style="steps"), float(np.nanmax([0.0, *least])) or 1.0
        return Chart(title, names.coordinate(0, 1), "margin, at least", (curve,), tuple(spans), high=high)
    decided = least[np.isfinite(least)]
    low, high = (float(np.quantile(decided, 0.02)), float(decided.max())) if decided.size else (1.0, 10.0)
    sheet = Sheet((0, 1), axes[0], axes[1], np.zeros((0, 2)), (names.coordinate(0, 2), names.coordinate(1, 2)), "")
    label, values = "margin of the policy's action, at least", least.T.ravel()
    words: dict[str, Any] = {"low": low, "high": high, "is_log": True, "empty_label": "not decided"}
    chart = sheet.map(title, label, values, hatched=~live.T.ravel(), hatched_label="terminal", **words)
    return sheet.divided(chart, np.where(live, actions, -1).T, names, "the policy switches")


def _proved_sums(proof: Certificate, names: Names) -> tuple[Bars, ...]:
    """The lower bounds of all components over every alternative action."""
    expert = proof.grounds[0].surrogate.used[0]
    alternatives = [action for action in range(proof.grounds[0].surrogate.n_actions) if action != expert]
    terms = [ground.name for ground in proof.grounds]
    rows = proof.bounds[[ground.surrogate.component for ground in proof.grounds]]
    return _sums(rows, terms, alternatives, names, ", at least")


# Coverage ------------------------------------------------------------------------------------------------------------


def _coverage_line(coverage: Coverage, actions: Sequence[int]) -> Chart:
    s, names = _line(coverage.domain), Names.of(coverage)
    edges = _line(coverage.domain, coverage.cells.shape[1] + 1)
    curves = tuple(
        Curve(names.action(action), edges, coverage.cells[action].astype(float), style="steps", colour=action)
        for action in actions
    )
    spans = _spans(_borders(s), coverage.leverage(s)[list(actions)].max(axis=0) > 1, "extrapolated")
    labels, high = (names.coordinate(0, 1), "transitions in a cell"), _range([curve.y for curve in curves])[1]
    return Chart("", *labels, curves, tuple(spans), low=0.0, high=high)


def _coverage_map(coverage: Coverage, action: int | None, plane: Plane) -> Map:
    d, names = len(coverage.domain), Names.of(coverage)
    sheet = Sheet.of(coverage.domain, plane, None, names, along=coverage.cells.shape[1])
    others = tuple(1 + axis for axis in range(d) if axis not in sheet.plane)
    counts = coverage.cells.sum(axis=others) if others else coverage.cells
    counts = counts.swapaxes(1, 2) if sheet.plane[0] < sheet.plane[1] else counts  # rows are the second coordinate
    shown = (counts.min(axis=0) if action is None else counts[action]).astype(float)
    leverage = np.zeros((coverage.n_actions, 1)) if others else coverage.leverage(sheet.states)
    hatched = (leverage.max(axis=0) if action is None else leverage[action]) > 1
    label = "transitions of the rarest action" if action is None else f"transitions of {names.action(action)}"
    words: dict[str, Any] = {"empty_label": "some action was not taken" if action is None else "not taken"}
    words |= {"low": 1.0, "high": max(float(shown.max()), 2.0), "is_log": True}
    words |= {"hatched": hatched, "hatched_label": "extrapolated"}
    return sheet._replace(held="").map("", label, np.where(shown > 0, shown, np.nan).ravel(), **words)


def stability_charts(found: Stability, *, plane: Plane = FIRST) -> tuple[Chart | Map, ...]:
    """R of the whole log and where nine in ten halves have it; on a box how far they are apart."""
    if found.whole.reward is None or all(half.reward is None for half in found.halves):
        raise ValueError("there is no reward to draw: neither halves nor the whole log have one")
    names, reward = Names.of(found), found.whole.reward
    sheet = None if len(found.domain) == 1 else Sheet.of(found.domain, plane, None, names)
    states = _line(found.domain)[:, None] if sheet is None else sheet.states
    mask = np.asarray(reward.extrapolated(states))
    labels = [names.action(action) for action in range(reward.n_actions or 1)] if reward.of_actions else [""]
    drawn = (np.where(mask, np.nan, part.reshape(len(labels), -1)) for part in found.band(states))
    each = zip(labels, *drawn, strict=True)
    if sheet is not None:
        words: dict[str, Any] = {"hatched": mask, "hatched_label": NO_DATA}
        bands = ((name, high - low) for name, _, low, high in each if (high > low).any())
        label = "width of the band of nine in ten halves"
        return tuple(sheet.map(_titled(name, UNPROVED), label, width, is_robust=True, **words) for name, width in bands)
    curves = tuple(
        Curve(name, states[:, 0], middle, low, high, colour=number, band="nine in ten halves")
        for number, (name, middle, low, high) in enumerate(each)
    )
    low, high = _with_bands(curves)
    spans = tuple(_spans(_borders(states[:, 0]), mask, NO_DATA))
    return (Chart(UNPROVED, names.coordinate(0, 1), "reward R", curves, spans, low=low, high=high),)


def _envelope(x: Array, y: Array) -> Array:
    """A curve that is nowhere above another, without the teeth that its mesh gives it; NaN where that is NaN."""
    smooth = y.copy()
    for start, stop in runs(np.isfinite(y)):
        blocks = np.array_split(np.arange(start, stop), max((stop - start) // TOOTH, 1))
        knots = np.unique([start, *(block[y[block].argmin()] for block in blocks), stop - 1])
        smooth[start:stop] = np.minimum(y[start:stop], np.interp(x[start:stop], x[knots], y[knots]))
    return smooth


# Numbers -------------------------------------------------------------------------------------------------------------


def _line(domain: Box, count: int = ALONG_LINE) -> Array:
    ((low, high),) = domain
    return np.linspace(low, high, count)


def _middles(side: tuple[float, float], count: int) -> Array:
    edges = np.linspace(*side, count + 1)
    return (edges[1:] + edges[:-1]) / 2


def edges(middles: Array) -> Array:
    """The borders of evenly spaced cells ``[n + 1]``."""
    half = (middles[1] - middles[0]) / 2 if len(middles) > 1 else 0.5
    return np.concatenate([middles - half, middles[-1:] + half])


def runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The beginnings and ends of uninterrupted runs of True."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(int)))
    return list(zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True))


def _spans(borders: Array, mask: NDArray[np.bool_], label: str, colour: int | None = None) -> list[Span]:
    """The intervals between borders ``[n + 1]`` where a mask ``[n]`` is true."""
    return [Span(float(borders[start]), float(borders[stop]), label, colour) for start, stop in runs(mask)]


def _borders(s: Array) -> Array:
    """The ends of a line and the middles between its states ``[n + 1]``."""
    return np.concatenate([s[:1], (s[1:] + s[:-1]) / 2, s[-1:]])


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two positive ones, at most 7, for a logarithmic scale; the ends if there are none."""
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.floor(np.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        every = np.multiply.outer(powers, steps).ravel()
        ticks = every[(every >= low) & (every <= high)].tolist()
        if len(ticks) > 2:
            return ticks[:: -(-len(ticks) // 7)]
    return sorted({low, high})


def _with_bands(curves: Iterable[Curve]) -> tuple[float, float]:
    """The range of curves, and of their bands as far as another such height above and below."""
    each = tuple(curves)
    bands = [side for curve in each for side in (curve.lower, curve.upper) if side is not None]
    return _range_with([curve.y for curve in each], bands)


def _range(arrays: Iterable[Array]) -> tuple[float, float]:
    """The ends of an axis around all finite numbers."""
    numbers = np.concatenate([np.ravel(array) for array in arrays])
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return 0.0, 1.0
    low, high = float(numbers.min()), float(numbers.max())
    space = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return low - space, high + space


def _range_with(arrays: Iterable[Array], bands: Iterable[Array], *, above: bool = True) -> tuple[float, float]:
    """The same, with bands as far as another such height below, and perhaps above."""
    low, high = _range(arrays)
    least, most = _range(bands)
    height = high - low
    return min(low, max(least, low - height)), max(high, min(most, high + height)) if above else high
