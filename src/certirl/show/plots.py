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
from certirl.ground.status import rounded_down
from certirl.show import charts, svg
from certirl.show.charts import COLOURS, FIRST, Bars, Chart, Map, Picture, Plane

if TYPE_CHECKING:
    from certirl.data.coverage import Coverage
    from certirl.fit.features import FeaturePath
    from certirl.functions.reward import Reward
    from certirl.ground.status import Claim
    from certirl.problems import Problem
    from certirl.proof.cells import CellCertificate
    from certirl.proof.certificate import Certificate
    from certirl.solver.solution import Solution

__all__ = [
    "budget",
    "certificate",
    "coverage",
    "feature_path",
    "margins",
    "reward",
    "rounds",
    "solution",
    "value",
]

# What pictures are written as; a name without one of these gets the first.
SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".eps", ".ps", ".tif", ".tiff", ".webp")
DPI = 150  # of pictures in files

INK = "0.15"  # the colour of text
EMPTY = "0.93"  # behind maps
COLUMNS = 4  # of panels, at most


def __dir__() -> list[str]:
    return __all__


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

    Args:
        rows: how many rows of axes.
        columns: how many in each.
        settings: ``size`` in inches (4.2 by 3.2 each if left out); the rest goes to matplotlib's ``subplots``.
    """
    _pyplot()
    from matplotlib.figure import Figure

    figure = Figure(figsize=settings.pop("size", (4.2 * columns, 3.2 * rows)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    for ax in axes.flat:
        ax.grid(alpha=0.25)
    return figure, axes


# Records -------------------------------------------------------------------------------------------------------------


@typed
def solution(
    solution: Solution, *, problem: Problem | None = None, plane: Plane = FIRST, ax: Any = None, path: Any = None
) -> Any:
    """Draw the reward, the margins behind it and, for an expert who depends on the state, the certificate.

    Args:
        solution: what to draw.
        problem: a problem with known truth, for the true margins of an expert who always takes one action.
        plane: the two coordinates of maps, by number or name.
        ax: where: axes, several axes, or a figure.
        path: where to write the picture, if anywhere.

    Example:
        >>> problem = certirl.problems.random_polynomial(seed=7)
        >>> solution = certirl.solve(problem, expert=0, discount=0.7, basis=certirl.Legendre(7), columns=3, rng=0)
        >>> axes = certirl.plots.solution(solution, path="solution.png")
        >>> len(axes)
        2
    """
    pictures = charts.solution_charts(solution, problem=problem, plane=plane)
    return np.atleast_1d(arrange(pictures, ax=ax, path=path, plane=plane, title=charts.heading(solution)))


@typed
def reward(solution: Solution | Reward, *, plane: Plane = FIRST, ax: Any = None, path: Any = None) -> Any:
    """Draw R(s), and for an expert who depends on the state the actions that are best for it.

    Args:
        solution: whose reward; or a reward alone.
        plane: the two coordinates of a map, by number or name.
        ax: where; of a sum, one for each component, or a figure.
        path: where to write the picture, if anywhere.

    Example:
        >>> reward = certirl.Reward(certirl.Legendre(2), [0.0, 1.0])
        >>> ax = certirl.plots.reward(reward, path="reward.png")
        >>> ax.get_ylabel()
        'reward R(s)'
    """
    return arrange(charts.reward_charts(solution, plane=plane), ax=ax, path=path, plane=plane)


@typed
def value(solution: Solution, *, plane: Plane = FIRST, ax: Any = None, path: Any = None) -> Any:
    """Draw V(s), the expert's value, with the arguments of `reward`.

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
    """Draw by how much the expert's action is better than the alternatives; `charts.margin_charts` says what.

    Args:
        solution: what to draw.
        problem: a problem with known truth, for the true margins.
        plane: the two coordinates of a map, by number or name.
        ax: where; of a sum, one for each alternative action, or a figure.
        path: where to write the picture, if anywhere.

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

    Args:
        proof: what to draw.
        plane: the two coordinates of a map.
        ax: where; of a sum, one for each alternative action, or a figure.
        path: where to write the picture, if anywhere.

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
    """Draw the estimated margin, the losses subtracted from it, and the margin that remains.

    Args:
        claim: a certificate or a refutation.
        ax: where.
        path: where to write the picture, if anywhere.

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
        ax: where.
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
def feature_path(steps: FeaturePath, *, ax: Any = None, path: Any = None) -> Any:
    """Draw the states that rewards of features do not explain, and the regret, by the number of features.

    Args:
        steps: the path of a solution.
        ax: where.
        path: where to write the picture, if anywhere.

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
def rounds(solution: Solution, *, ax: Any = None, path: Any = None) -> Any:
    """Draw the share of the margin that a proof was expected to leave, or left, in every round of draws.

    Args:
        solution: of a search for a proof.
        ax: where.
        path: where to write the picture, if anywhere.

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

    Args:
        pictures: what to draw.
        ax: axes for each of them, or a figure; axes for one of several pictures are replaced by a part of the figure.
        path: where to write the picture, if anywhere.
        plane: the two coordinates of maps; refused where none of the pictures is a map.
        title: above all of them.
    """
    if (
        plane is not FIRST
        and str(as_listed(plane, "plane")) != str(FIRST)
        and not any(isinstance(picture, Map) for picture in pictures)
    ):
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
    """Draw one picture into axes.

    Args:
        picture: the numbers and words.
        ax: where.
        is_labelled: the horizontal axis is named.
    """
    if isinstance(picture, Bars):
        _bars(picture, ax)
    else:
        ax.set_xlabel(picture.x_label if is_labelled else "")
        ax.set_ylabel(picture.y_label)
        handles = _chart(picture, ax) if isinstance(picture, Chart) else _map(picture, ax)
        _legend(ax, handles, 160 if isinstance(picture, Chart) else 50)
    ax.set_title(picture.title, fontsize="small")
    ax.set_axisbelow(True)


def _root(ax: Any) -> Any:
    """The whole figure of axes, which may be in a part of it; `get_figure` knows that since matplotlib 3.10."""
    return ax.figure.figure


def _legend(ax: Any, handles: Sequence[Any], room: int) -> None:
    """A legend below the axes, where it covers no data; each label once.

    Args:
        ax: the axes.
        handles: what has a label.
        room: characters beside each other.
    """
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.transforms import ScaledTranslation

    entries: dict[str, dict[Any, Any]] = {}  # of one label all colours, side by side
    for handle in handles:
        if handle.get_label() and not handle.get_label().startswith("_"):
            colour = handle.get_facecolor() if hasattr(handle, "get_facecolor") else handle.get_color()
            entries.setdefault(handle.get_label(), {}).setdefault(str(colour), handle)
    if not entries:
        return
    widths = sorted(map(len, entries))[-3:]
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
        ncols=min(len(entries), 3) if min(len(entries), 3) * 6 + sum(widths) <= room else 1,
        fontsize="small",
        frameon=False,
    )


def _colour(number: int | None, default: str = INK) -> str:
    return default if number is None else COLOURS[number % len(COLOURS)]


# One picture ---------------------------------------------------------------------------------------------------------


def _chart(chart: Chart, ax: Any) -> list[Any]:
    """Curves with bands, spans, levels and marked places; returns what the legend explains."""
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for span in chart.spans:
        if span.low == span.high:
            line = ax.axvline(span.low, color=_colour(span.colour, "0.35"), linewidth=1, linestyle=":")
            line.set_label(span.label)
            handles.append(line)
        else:
            look: dict[str, Any] = {
                "color": _colour(span.colour, "0.4"),
                "alpha": 0.3 if span.colour is None else 0.14,
                "lw": 0,
            }
            handles.append(ax.axvspan(span.low, span.high, label=span.label, **look))
    bands: list[Any] = []
    for curve in chart.curves:
        colour = _colour(curve.colour)
        if curve.lower is not None and curve.band:
            ax.fill_between(curve.x, curve.lower, curve.upper, color=colour, alpha=0.22, lw=0)
            bands.append(Patch(color=colour, alpha=0.3, lw=0, label=curve.band))
        if curve.style == "steps":
            handles.append(ax.stairs(curve.y, curve.x, color=colour, linewidth=1.6, label=curve.label))
            continue
        look = {"color": colour, "label": curve.label, "linewidth": 1.8}
        if curve.style == "points":
            few = len(curve.x) < 200
            edge: dict[str, Any] = {"markeredgecolor": "white"} if few else {"mew": 0, "rasterized": True}
            look |= {"linestyle": "none", "marker": "o", "markersize": 6 if few else 2.2, "zorder": 3} | edge
            look |= {"clip_on": not few}
        elif len(curve.x) < 30:
            look |= {"marker": "o", "markersize": 4}
        elif curve.style == "dashed":
            look |= {"linestyle": (0, (4, 2)), "linewidth": 1.2}
        handles += ax.plot(curve.x, curve.y, **look)
    for level in chart.levels:
        look = {"linestyle": ":", "linewidth": 1.4} if level.label else {"linewidth": 0.8}
        handles.append(ax.axhline(level.value, color=INK, label=level.label, **look))
    _axes(chart, ax)
    left, right = ax.get_xlim()
    for point in chart.points if not _is_counted(chart) else ():
        is_left = point.x < (left + right) / 2  # labels reach towards the middle
        look = {"xytext": (6 if is_left else -6, 6), "ha": "left" if is_left else "right", "fontsize": "small"}
        ax.annotate(point.label, (point.x, point.y), textcoords="offset points", color=INK, **look)
    return [*handles, *bands]


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
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.patches import Patch
    from matplotlib.patheffects import withStroke

    handles: list[Any] = []
    ax.set_facecolor(EMPTY)
    ax.locator_params(axis="x", nbins=5)
    norm = (LogNorm if chart.is_log else Normalize)(chart.low, chart.high)
    # Cividis reads the same with every kind of colour vision, and in grey.
    values = np.ma.masked_invalid(chart.values)
    sides = [(middles, _edges(middles)) for middles in (chart.x, chart.y)]
    image = ax.pcolormesh(*(edges for _, edges in sides), values, cmap="cividis", norm=norm, rasterized=True)
    slack = 1e-9 * (chart.high - chart.low)
    below, above = bool(values.min() < chart.low - slack), bool(values.max() > chart.high + slack)
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max"}.get((below, above), "both")
    bar = ax.figure.colorbar(image, ax=ax, label=chart.value_label, extend=extend)
    if chart.is_log:
        ticks = charts.log_ticks(chart.low, chart.high)
        bar.set_ticks(ticks, labels=[svg.number(tick, 3) for tick in ticks], minor=False)
        bar.minorticks_off()
    if chart.hatched is not None:
        look = {"levels": [0.5, 1.5], "colors": [(1, 1, 1, 0.5)], "hatches": ["////"]}
        ends = [np.concatenate([edges[:1], middles, edges[-1:]]) for middles, edges in sides]
        region = ax.contourf(*ends, np.pad(chart.hatched, 1, mode="edge").astype(float), **look)
        region.set_edgecolor("0.35")
        region.set_linewidth(0.0)
        handles.append(Patch(facecolor="white", edgecolor="0.35", hatch="////", lw=0, label=chart.hatched_label))
    if chart.borders:
        for colour, width in (("white", 2.6), ("black", 1.2)):
            lines = LineCollection(chart.borders, colors=colour, linewidths=width, label=chart.border_label)
            ax.add_collection(lines, autolim=False)
        handles.append(lines)
    if chart.empty_label and values.mask.any():
        handles.append(Patch(facecolor=EMPTY, edgecolor="0.7", label=chart.empty_label))
    for word in chart.words:
        halo = [withStroke(linewidth=2.5, foreground="white")]
        ax.text(*word, fontsize="small", color="black", ha="center", va="center", clip_on=True, path_effects=halo)
    for point in chart.points:
        look = {"markersize": 11, "markeredgecolor": "white", "markeredgewidth": 1.5, "clip_on": False, "zorder": 3}
        handles += ax.plot(point.x, point.y, "X", color=COLOURS[1], label=point.label, linestyle="none", **look)
    return handles


def _edges(middles: Any) -> Any:
    step = (middles[1] - middles[0]) / 2 if len(middles) > 1 else 0.5
    return np.concatenate([middles - step, middles[-1:] + step])


def _bars(bars: Bars, ax: Any) -> None:
    """Bars one below the other, each beginning where the one above ends, with their numbers."""
    numbers = [*bars.parts, *([(bars.total, bars.value)] if bars.total else [])]
    values = np.array(
        [number if np.isfinite(number) else 0.0 for _, number in numbers]
    )  # what has no length has no bar
    starts = np.cumsum(values) - values
    starts[len(bars.parts) :] = 0.0
    places = np.arange(len(numbers))
    ax.barh(places, values, left=starts, color=bars.colours, height=0.62)
    ends = [0.0, *starts, *(starts + values)]
    reach = float(max(ends) - min(ends)) or 1.0
    numbers[len(bars.parts) :] = [(bars.total, rounded_down(bars.value))] if bars.total else []
    for place, right, (_, number) in zip(places, np.maximum(starts, starts + values), numbers, strict=True):
        text = f"{0 if abs(number) <= 1e-9 * reach else number:.3g}".replace("-", "−").replace("inf", "∞")
        ax.text(right + 0.015 * reach, place, text, va="center", fontsize="small", color=INK)
    for place in places[1 : len(bars.parts)]:
        ax.plot([starts[place]] * 2, [place - 1, place], color="0.5", linewidth=0.8, zorder=0)
    ax.axvline(0.0, color=INK, linewidth=0.8)
    ax.set_xlim(min(ends) - 0.03 * reach, max(ends) + 0.22 * reach)
    ax.set_yticks(places, [name for name, _ in numbers], fontsize="small")
    ax.invert_yaxis()
    ax.set_xlabel(bars.label)
    ax.grid(axis="x", alpha=0.25)
