"""Pictures by matplotlib: every function takes axes or a figure, or makes them, and returns the axes.

With a ``path`` the picture is written to a file. What is drawn is decided in `certirl.show.charts`; one function here
draws a `Chart`, one a `Map`, one `Bars`, and all others arrange these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from certirl.ground.archive import replacing, target_of
from certirl.ground.doors import as_listed, shown, typed
from certirl.show import charts
from certirl.show.charts import (
    COLOURS,
    FIRST,
    LOOKS,
    MARK,
    SHADES,
    Bars,
    Chart,
    Curve,
    Intervals,
    Map,
    Picture,
    Plane,
    edges,
)

if TYPE_CHECKING:
    from certirl.data.coverage import Coverage
    from certirl.fit.features import FeaturePath
    from certirl.fit.ranges import WeightRanges
    from certirl.functions.reward import Reward
    from certirl.ground.status import Claim
    from certirl.problems import Problem
    from certirl.proof.cells import CellCertificate
    from certirl.proof.certificate import Certificate
    from certirl.solver.soft_solution import SoftSolution
    from certirl.solver.solution import Solution
    from certirl.solver.stability import Stability

__all__ = [
    "budget",
    "certificate",
    "coverage",
    "feature_path",
    "margins",
    "reward",
    "rounds",
    "solution",
    "stability",
    "value",
    "weight_ranges",
]
__dir__ = __all__.copy

# What pictures are written as; a name without one of these gets the first.
SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".eps", ".ps", ".tif", ".tiff", ".webp")
DPI = 150  # of pictures in files

INK = "0.15"  # the colour of text
EMPTY = "0.93"  # behind maps
COLUMNS = 4  # of panels, at most
LETTERS = 16  # of a title on each inch of a picture's width
LEGEND = 25  # letters of a legend on each inch, which it may exceed on both sides


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        raise ImportError('plots need matplotlib: pip install "certirl[plot]"') from None
    return pyplot


def written(figure: Any, axes: Any, path: Any) -> Any:
    """The axes; if there is a path, or an open file, the figure is written there first and closed."""
    if path is None:
        return axes
    try:
        if hasattr(path, "write"):
            figure.savefig(path, dpi=DPI)
        else:
            with replacing(target_of(path, SUFFIXES)) as temporary:
                figure.savefig(temporary, dpi=DPI)
    finally:
        _pyplot().close(figure)
    return axes


def panels(rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Any, Any]:
    """A figure without a window, to be written to files, and its axes ``[rows, columns]``.

    Settings are ``size`` in inches (4.2 by 3.2 each if left out) and what matplotlib's ``subplots`` takes.
    """
    _pyplot()
    from matplotlib.figure import Figure

    figure = Figure(figsize=settings.pop("size", (4.2 * columns, 3.2 * rows)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    for ax in axes.flat:
        ax.grid(alpha=0.25)
    return figure, axes


def with_errors(ax: Any, x: Any, y: Any, low: Any, high: Any, **look: Any) -> None:
    """Points with the intervals around them."""
    ax.errorbar(x, y, np.clip([y - low, high - y], 0, None), ms=4, lw=1.3, capsize=2, **look)


# Records -------------------------------------------------------------------------------------------------------------


@typed
def solution(
    solution: Solution | SoftSolution,
    *,
    problem: Problem | None = None,
    plane: Plane = FIRST,
    ax: Any = None,
    path: Any = None,
) -> Any:
    """Draw the reward, the margins behind it and, for an expert who depends on the state, the certificate.

    Of a soft expert the rewards of all actions, with their errors or bands, and how likely these make each action.

    Args:
        solution: what to draw.
        problem: a problem with known truth, for the true margins of an expert who always takes one action.
        plane: the two coordinates of maps, by number or name.
        ax: where: axes, one for each panel, or a figure; a new figure if left out.
        path: where to write the picture, if anywhere.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> axes = certirl.plots.solution(solution, path="solution.png")
        >>> len(axes)
        2
    """
    pictures, title = _pictures(solution, problem, plane)
    return np.atleast_1d(arrange(pictures, ax=ax, path=path, plane=plane, title=title))


def _pictures(solution: Any, problem: Any, plane: Plane) -> tuple[Sequence[Picture], str]:
    """What is drawn of an answer, and its title."""
    from certirl.solver.soft_solution import SoftSolution

    if not isinstance(solution, SoftSolution):
        return charts.solution_charts(solution, problem=problem, plane=plane), charts.heading(solution)
    if problem is not None:
        raise ValueError("margins of a problem are those of an exact expert: leave problem out")
    return charts.soft_charts(solution, plane=plane), charts.soft_heading(solution)


@typed
def reward(solution: Solution | Reward, *, plane: Plane = FIRST, ax: Any = None, path: Any = None) -> Any:
    """Draw R(s) of a solution or a reward; for an expert who depends on the state also which actions are best for it.

    Of a sum each component is drawn, and of a reward of actions each action. The other arguments are those of
    `solution`.

    Example:
        >>> reward = certirl.Reward(certirl.Legendre(2), [0.0, 1.0])
        >>> ax = certirl.plots.reward(reward, path="reward.png")
        >>> ax.get_ylabel()
        'reward R(s)'
    """
    return arrange(charts.reward_charts(solution, plane=plane), ax=ax, path=path, plane=plane)


@typed
def value(solution: Solution, *, plane: Plane = FIRST, ax: Any = None, path: Any = None) -> Any:
    """Draw V(s), the expert's value, as `reward` draws R(s).

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> ax = certirl.plots.value(solution, path="value.png")
        >>> ax.get_ylabel()
        'value V(s)'
    """
    return arrange(charts.value_charts(solution, plane=plane), ax=ax, path=path, plane=plane)


@typed
def margins(
    solution: Solution, *, problem: Problem | None = None, plane: Plane = FIRST, ax: Any = None, path: Any = None
) -> Any:
    """Draw by how much the expert's action is better than the others, as estimated, with the arguments of `solution`.

    Of an expert who always takes one action, with two standard errors; of a sum, what each component adds; of an expert
    who depends on the state, by how much it falls short of the margin that was asked for.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> ax = certirl.plots.margins(solution, problem=problem, path="margins.png")
        >>> ax.get_xlabel()
        'state s'
    """
    return arrange(charts.margin_charts(solution, problem=problem, plane=plane), ax=ax, path=path, plane=plane)


@typed
def certificate(proof: Certificate | CellCertificate, *, plane: Plane = FIRST, ax: Any = None, path: Any = None) -> Any:
    """Draw the advantage of the expert's action over its best alternative, down to what is proved, and the tube.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> ax = certirl.plots.certificate(certificate, path="certificate.png")
        >>> ax.get_xlabel()
        'state s'
    """
    return arrange(charts.certificate_charts(proof, plane=plane), ax=ax, path=path, plane=plane)


@typed
def budget(claim: Claim, *, ax: Any = None, path: Any = None) -> Any:
    """Draw the estimated margin of a certificate or a refutation, the losses subtracted from it, and what remains.

    Example:
        >>> room = certirl.problems.thermostat(noise=3.0)
        >>> asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail}
        >>> certificate = certirl.certify(lambda states: states[:, 0], room, samples=20_000, rng=1, **asked)
        >>> ax = certirl.plots.budget(certificate, path="budget.png")
        >>> ax.get_title()[:9]
        'certified'
    """
    return arrange((charts.budget(claim),), ax=ax, path=path)


@typed
def coverage(
    coverage: Coverage, *, action: int | None = None, plane: Plane = FIRST, ax: Any = None, path: Any = None
) -> Any:
    """Draw how many transitions start where, and where predictions are extrapolated.

    Args:
        coverage: what to draw.
        action: of one action only; if omitted, on a box the rarest in each cell.
        plane: the two coordinates of the map, by number or name.
        ax: where, as in `solution`.
        path: where to write the picture, if anywhere.

    Example:
        >>> states = np.random.default_rng(0).uniform(0, 5, 1000)
        >>> log = certirl.Transitions(states, np.arange(1000) % 2, states, domain=(0, 10))
        >>> ax = certirl.plots.coverage(certirl.diagnose.coverage(log), path="coverage.png")
        >>> ax.get_xlabel()
        'state s'
    """
    return arrange(charts.coverage_charts(coverage, action=action, plane=plane), ax=ax, path=path, plane=plane)


@typed
def stability(found: Stability, *, plane: Plane = FIRST, ax: Any = None, path: Any = None) -> Any:
    """Draw the reward of a whole log, and where nine in ten halves of the log have it; on a box how far apart.

    Args:
        found: what to draw.
        plane: the two coordinates of a map, by number or name.
        ax: where, as in `solution`.
        path: where to write the picture, if anywhere.

    Example:
        >>> log = certirl.problems.soft_walk().log(episodes=40, steps=50, rng=0)
        >>> found = certirl.stability(log, discount=0.9, expert=certirl.SoftExpert(reference=0), repeats=4, rng=0)
        >>> ax = certirl.plots.stability(found, path="stability.png")
        >>> ax.get_ylabel()
        'reward R'
    """
    return arrange(charts.stability_charts(found, plane=plane), ax=ax, path=path, plane=plane)


@typed
def feature_path(steps: FeaturePath, *, ax: Any = None, path: Any = None) -> Any:
    """Draw the states that rewards of features do not explain, and the regret, by the number of features.

    Example:
        >>> room = certirl.problems.comfort()
        >>> log = certirl.steps.sample(room.dynamics, basis=certirl.Legendre(5), samples=200, rng=0)
        >>> method = certirl.FeatureForm({"s²": lambda states: states[:, 0] ** 2})
        >>> solution = certirl.solve(log, discount=0.9, expert=room.expert, method=method)
        >>> ax = certirl.plots.feature_path(solution.path, path="features.png")
        >>> ax.get_xlabel()
        'features'
    """
    return arrange((charts.feature_path_chart(steps),), ax=ax, path=path)


@typed
def weight_ranges(ranges: WeightRanges, *, ax: Any = None, path: Any = None) -> Any:
    """Draw the ranges of weights, and of ratios, over all rewards that explain the expert as well as the one found.

    Weights are drawn as what the feature adds to the advantage, so that features of different size can be compared;
    the numbers beside them are the weights themselves.

    Example:
        >>> room = certirl.problems.comfort()
        >>> log = certirl.steps.sample(room.dynamics, basis=certirl.Legendre(5), samples=200, rng=0)
        >>> method = certirl.FeatureForm({"s²": lambda states: states[:, 0] ** 2})
        >>> solution = certirl.solve(log, discount=0.9, expert=room.expert, method=method)
        >>> ax = certirl.plots.weight_ranges(solution.ranges(), path="ranges.png")
        >>> ax.get_xlabel()
        'weight × size of the feature'
    """
    return arrange(charts.range_charts(ranges), ax=ax, path=path)


@typed
def rounds(solution: Solution, *, ax: Any = None, path: Any = None) -> Any:
    """Draw the share of the margin that a proof was expected to leave, or left, in every round of a search for it.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> asked = {"basis": certirl.Legendre(7), "columns": 3, "delta": 0.05, "tail": 0}
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, rng=0, **asked)
        >>> ax = certirl.plots.rounds(solution, path="rounds.png")
        >>> ax.get_xlabel()
        'transitions per action'
    """
    return arrange((charts.rounds_chart(solution),), ax=ax, path=path)


# Arrangement ---------------------------------------------------------------------------------------------------------


def arrange(
    pictures: Sequence[Picture], *, ax: Any = None, path: Any = None, plane: Plane = FIRST, title: str = ""
) -> Any:
    """Draw pictures side by side, or below each other if they share the states; returns axes, one or several.

    Axes for one of several pictures are replaced by a part of the figure. A plane is refused where no picture is a map.
    """
    is_chosen = plane is not FIRST and str(as_listed(plane, "plane")) != str(FIRST)
    if is_chosen and not any(isinstance(picture, Map) for picture in pictures):
        raise ValueError(f"plane is for maps, of two or more coordinates: leave it out, got {shown(plane)}")
    labels = {picture.x_label if isinstance(picture, Chart) else None for picture in pictures}
    is_stack = len(labels) == 1 and None not in labels
    rows = len(pictures) if is_stack else -(-len(pictures) // COLUMNS)
    columns = -(-len(pictures) // rows)
    figure, axes = _places(ax, pictures, rows, columns, is_stack)
    for number, (place, picture) in enumerate(zip(axes, pictures, strict=False)):
        draw(picture, place, is_labelled=not is_stack or ax is not None or number == len(pictures) - 1)
    if title and figure is not None:
        figure.suptitle(title, fontsize="medium")
    drawn = axes[0] if len(pictures) == 1 else axes[: len(pictures)]
    return written(_root(axes[0]), drawn, path)


def _places(ax: Any, pictures: Sequence[Picture], rows: int, columns: int, is_stack: bool) -> tuple[Any, Any]:
    """The part of a figure that is for these pictures alone, if there is one, and axes for all of them."""
    count = len(pictures)
    if ax is None:
        width, height = _size(pictures, is_stack)
        ax = _pyplot().figure(figsize=(width * columns, height * rows), layout="constrained")
    elif not hasattr(ax, "subplots"):
        axes = np.ravel(np.asarray(ax, dtype=object))
        if not all(hasattr(each, "get_subplotspec") for each in axes) or not len(axes):
            raise TypeError(f"ax must be axes of matplotlib, several of them, or a figure, got {shown(ax)}")
        if len(axes) >= count:
            return None, axes
        if len(axes) > 1 or axes[0].get_subplotspec() is None:
            raise ValueError(f"the picture has {count} panels: pass {count} axes or a figure, got {len(axes)} axes")
        ax = axes[0].figure.add_subfigure(axes[0].get_subplotspec())
        axes[0].remove()
    axes = ax.subplots(rows, columns, squeeze=False, sharex=is_stack).ravel()
    for place in axes[count:]:
        place.set_axis_off()
    return ax, axes


def _size(pictures: Sequence[Picture], is_stack: bool) -> tuple[float, float]:
    """Width and height of a panel in inches."""
    if is_stack:
        return 7.0, 3.4
    if len(pictures) > 3:
        return 3.5, 2.9
    return (5.0, 4.4) if isinstance(pictures[0], Map) else (6.0, 3.0)


def draw(picture: Picture, ax: Any, *, is_labelled: bool = True) -> None:
    """Draw one picture into axes; the horizontal axis may stay without its name."""
    inches = ax.get_position().width * _root(ax).get_figwidth()
    if isinstance(picture, Bars | Intervals):
        _bars(picture, ax)
    else:
        ax.set_xlabel(picture.x_label if is_labelled else "")
        ax.set_ylabel(picture.y_label)
        handles = _chart(picture, ax) if isinstance(picture, Chart) else _map(picture, ax)
        _legend(ax, handles, min(110, int(LEGEND * inches)) if isinstance(picture, Chart) else 50)
    lines = [line for text in picture.title.split("\n") for line in wrap(text, max(24, int(LETTERS * inches)))]
    ax.set_title("\n".join(lines), fontsize="small")
    ax.set_axisbelow(True)


def _root(ax: Any) -> Any:
    """The whole figure of axes, which may be in a part of it; `get_figure` knows that since matplotlib 3.10."""
    return ax.figure.figure


def _legend(ax: Any, handles: Sequence[Any], room: int) -> None:
    """A legend below the axes, where it covers no data; each label once, ``room`` characters beside each other."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.transforms import ScaledTranslation

    entries: dict[str, dict[Any, Any]] = {}  # of one label all kinds and colours, side by side
    for handle in handles:
        if handle.get_label() and not handle.get_label().startswith("_"):
            colour = handle.get_facecolor() if hasattr(handle, "get_facecolor") else handle.get_color()
            entries.setdefault(handle.get_label(), {}).setdefault(f"{type(handle)} {colour}", handle)
    if not entries:
        return
    widths = sorted(map(len, entries), reverse=True)
    columns = next((n for n in (3, 2) if n <= len(entries) and 6 * n + sum(widths[:n]) <= room), 1)
    lines = max((label.get_text().count("\n") for label in ax.get_xticklabels()), default=0)
    distance = (34 if ax.get_xlabel() else 6) + 10 * lines  # in points
    below = ScaledTranslation(0, -distance / 72, _root(ax).dpi_scale_trans)
    ax.legend(
        handles=[tuple(colours.values()) for colours in entries.values()],
        labels=list(entries),
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)},
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=ax.transAxes + below,
        ncols=columns,
        fontsize="small",
        frameon=False,
    )


def _colour(number: int | None, default: str = INK) -> str:
    return default if number is None else COLOURS[number % len(COLOURS)]


def _look(role: str) -> dict[str, Any]:
    """What matplotlib calls the look of a role."""
    look = LOOKS[role]
    lines = {"linewidth": look.width, "linestyle": (0, look.dashes) if look.dashes else "solid"}
    return {"alpha": look.opacity, **(lines if look.width else {"lw": 0})}


# One picture ---------------------------------------------------------------------------------------------------------


def _chart(chart: Chart, ax: Any) -> list[Any]:
    """Curves with bands, spans, levels and marked places; returns what the legend explains."""
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for low, high, label, number in chart.spans:
        if low == high:
            handles.append(ax.axvline(low, color=_colour(number), label=label, **_look("edge")))
        else:
            role = "grey" if number is None else "shade"
            handles.append(ax.axvspan(low, high, color=_colour(number, "0.4"), label=label, **_look(role)))
    bands: list[Any] = []
    for curve in chart.curves:
        colour = _colour(curve.colour)
        if curve.lower is not None and curve.band:
            ax.fill_between(curve.x, curve.lower, curve.upper, color=colour, **_look("band"))
            bands.append(Patch(color=colour, label=curve.band, **_look("band")))
        handles += _curve(curve, ax, color=colour, label=curve.label)
    for level in chart.levels:
        look = _look("level" if level.label else "axis")
        handles.append(ax.axhline(level.value, color=INK, label=level.label, **look))
    _axes(chart, ax)
    left, right = ax.get_xlim()
    for point in chart.points if not _is_counted(chart) else ():
        is_left = point.x < (left + right) / 2  # labels reach towards the middle
        look = {"xytext": (6 if is_left else -6, 6), "ha": "left" if is_left else "right", "fontsize": "small"}
        ax.annotate(point.label, (point.x, point.y), textcoords="offset points", color=INK, **look)
    return [*handles, *bands]


def _curve(curve: Curve, ax: Any, **look: Any) -> list[Any]:
    if curve.style == "steps":
        return [ax.stairs(curve.y, curve.x, **look, **_look("steps"))]
    if curve.style == "points":
        few = len(curve.x) < 200
        look |= {"linestyle": "none", "marker": "o", "markersize": 6 if few else 2.2, "zorder": 3, "clip_on": not few}
        look |= {"markeredgecolor": "white"} if few else {"mew": 0, "rasterized": True}
    else:
        look |= _look(curve.style) | ({"marker": "o", "markersize": 4} if len(curve.x) < 30 else {})
    return list(ax.plot(curve.x, curve.y, **look))


def _is_counted(chart: Chart) -> bool:
    """Whether every place along the axis is a small whole number with a label."""
    return _is_whole(chart) and all(len(curve.x) == len(chart.points) and curve.x.max() < 100 for curve in chart.curves)


def _is_whole(chart: Chart) -> bool:
    return bool(chart.curves) and all(np.issubdtype(curve.x.dtype, np.integer) for curve in chart.curves)


def _axes(chart: Chart, ax: Any) -> None:
    ends = [end for curve in chart.curves for end in (curve.x.min(), curve.x.max())]
    ends = ends or [end for span in chart.spans for end in span[:2]] or [0.0, 1.0]
    low, high, is_whole = float(min(ends)), float(max(ends)), _is_whole(chart)
    space = 0.05 * (high - low) * is_whole if high > low else 1.0
    ax.set_xlim(low - space, high + space)
    ax.set_ylim(chart.low, chart.high)
    if _is_counted(chart):  # words below the axis cover no curve
        width = max(90 // len(chart.points), 12)
        texts = [re.sub(" (?![+−])", "\N{NO-BREAK SPACE}", point.label) for point in chart.points]
        labels = [
            "\n".join([f"{x:g}", *wrap(text, width)]) for (x, _, _), text in zip(chart.points, texts, strict=True)
        ]
        ax.set_xticks([point.x for point in chart.points], labels, fontsize="small")
    elif is_whole:
        ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.grid(alpha=0.25)


def _map(chart: Map, ax: Any) -> list[Any]:
    """Coloured cells with a colour bar, hatching, borders and marked places; returns what the legend explains."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
    from matplotlib.patches import Patch
    from matplotlib.patheffects import withStroke

    handles: list[Any] = []
    ax.set_facecolor(EMPTY)
    ax.locator_params(axis="x", nbins=5)
    norm = (LogNorm if chart.is_log else Normalize)(chart.low, chart.high)
    values, colours = np.ma.masked_invalid(chart.values), LinearSegmentedColormap.from_list("shades", SHADES)
    sides = [(middles, edges(middles)) for middles in (chart.x, chart.y)]
    image = ax.pcolormesh(*(borders for _, borders in sides), values, cmap=colours, norm=norm, rasterized=True)
    slack = 1e-9 * (chart.high - chart.low)
    below, above = bool(values.min() < chart.low - slack), bool(values.max() > chart.high + slack)
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max"}.get((below, above), "both")
    bar = ax.figure.colorbar(image, ax=ax, label=chart.value_label, extend=extend)
    if chart.is_log:
        ticks = charts.log_ticks(chart.low, chart.high)
        bar.set_ticks(ticks, labels=[charts.number(tick, 3) for tick in ticks], minor=False)
        bar.minorticks_off()
    if chart.hatched is not None:
        look = {"levels": [0.5, 1.5], "colors": [(1, 1, 1, 0.5)], "hatches": ["////"]}
        ends = [np.concatenate([borders[:1], middles, borders[-1:]]) for middles, borders in sides]
        region = ax.contourf(*ends, np.pad(chart.hatched, 1, mode="edge").astype(float), **look)
        region.set_edgecolor("0.35")
        region.set_linewidth(0.0)
        handles.append(Patch(facecolor="white", edgecolor="0.35", hatch="////", lw=0, label=chart.hatched_label))
    if chart.borders:
        for colour, role in (("white", "halo"), ("black", "border")):
            lines = LineCollection(chart.borders, colors=colour, label=chart.border_label, **_look(role))
            ax.add_collection(lines, autolim=False)
        handles.append(lines)
    if chart.empty_label and values.mask.any():
        handles.append(Patch(facecolor=EMPTY, edgecolor="0.7", label=chart.empty_label))
    for word in chart.words:
        halo = [withStroke(linewidth=2.5, foreground="white")]
        ax.text(*word, fontsize="small", color="black", ha="center", va="center", clip_on=True, path_effects=halo)
    for point in chart.points:
        look = {"markersize": 9, "markeredgecolor": "white", "markeredgewidth": 1.5, "clip_on": False, "zorder": 3}
        handles += ax.plot(point.x, point.y, "o", color=COLOURS[MARK], label=point.label, linestyle="none", **look)
    return handles


def _bars(bars: Bars | Intervals, ax: Any) -> None:
    """Bars one below the other, with their words and marks."""
    ends = [0.0, *(end for bar in bars.rows for end in (bar.start, bar.end))]
    reach = max(ends) - min(ends) or 1.0
    for place, bar in enumerate(bars.rows):
        ax.barh(place, bar.end - bar.start, left=bar.start, color=_colour(bar.colour), height=0.62)
        words = {"va": "center", "fontsize": "small", "color": INK}
        ax.text(max(bar.start, bar.end) + 0.015 * reach, place, bar.words, **words)
        if 0 < place < bars.joined:
            ax.plot([bar.start] * 2, [place - 1, place], color="0.5", linewidth=0.8, zorder=0)
        if bar.mark is not None:
            ax.plot([bar.mark] * 2, [place - 0.4, place + 0.4], color=INK, linewidth=1.8)
    ax.axvline(0.0, color=INK, zorder=0, **_look("axis"))
    longest = max((len(bar.words) for bar in bars.rows), default=0)
    ax.set_xlim(min(ends) - 0.03 * reach, max(ends) + (0.1 + 0.02 * longest) * reach)
    ax.set_yticks(range(len(bars.rows)), [bar.label for bar in bars.rows], fontsize="small")
    ax.invert_yaxis()
    ax.set_xlabel(bars.label)
    ax.grid(axis="x", alpha=0.25)
