"""Pictures of records: every function takes axes, or makes them, and returns them; with a path it writes the picture.

A function of the state is a curve on an interval and a map on a box. Of three coordinates and more two are drawn, the
``plane``; the others are held where the margin is least, or in the middle for an expert who depends on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from certirl.functions.reward import Reward
from certirl.ground.archive import replacing, target_of
from certirl.ground.domain import Array, Domain, mesh

if TYPE_CHECKING:
    from certirl.data.coverage import Coverage
    from certirl.fit.features import FeaturePath
    from certirl.problems import Problem
    from certirl.proof.certificate import Certificate
    from certirl.solver.solution import Solution

# Okabe and Ito's colours, distinguishable with every kind of colour vision and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

MOST_PANELS = 12

# What pictures are written as; a name without one of these gets the first.
SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".eps", ".ps", ".tif", ".tiff", ".webp")

Plane = tuple[int, int]
_FIRST: Plane = (0, 1)
_ALONG = 161  # points along each coordinate of a map


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
            figure.savefig(path, dpi=150)
        else:
            with replacing(target_of(path, SUFFIXES)) as temporary:
                figure.savefig(temporary, dpi=150)
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


def _axes(ax: Any, width: float, height: float) -> Any:
    return _pyplot().subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


# Whole records -------------------------------------------------------------------------------------------------------


def solution(solution: Solution, *, problem: Problem | None = None, plane: Plane = _FIRST, path: Any = None) -> Any:
    """Draw the reward, the margins behind it and, for an expert who depends on the state, the certificate.

    Returns the axes. On an interval the pictures share the states and stand below each other, on a box side by side;
    of a sum there is one for the reward of each component.

    Args:
        solution: what to draw.
        problem: a problem with known truth, for the true margins of an expert who always takes one action.
        plane: the two coordinates of the maps.
        path: where to write the picture, if anywhere.
    """
    settings: dict[str, Any] = {"plane": plane}
    if len(solution.components) > 1:
        total = _reward_of(solution)
        drawn = _worth_drawing(total)
        figure, axes = _grid(len(drawn) + 1)
        _rewards(total, drawn, axes)
        margins(solution, ax=axes[len(drawn)])
    else:
        pictures: list[Callable[..., Any]] = [reward, margins]
        proof, interval = solution.certificate, len(solution.domain) == 1
        if proof is not None and solution.expert is None and len(solution.domain) <= 2:
            pictures.append(lambda _, ax, **__: certificate(proof, ax=ax))
        shape = {"nrows": len(pictures), "sharex": True} if interval else {"ncols": len(pictures)}
        size = (7, 3.2 * len(pictures)) if interval else (5 * len(pictures), 4.2)
        figure, axes = _pyplot().subplots(figsize=size, layout="constrained", **shape)
        for ax, picture in zip(axes, pictures, strict=True):
            picture(solution, ax=ax, **settings | ({"problem": problem} if picture is margins else {}))
        for ax in axes[:-1] if interval else ():
            ax.set_xlabel("")
    figure.suptitle(_title(solution), fontsize="medium")
    return written(figure, axes, path)


def _title(solution: Solution) -> str:
    who = "" if solution.expert is None else f"action {solution.expert} at every state, "
    data = f"{solution.samples:,} {'states' if solution.stats.noiseless else 'transitions per action'}"
    return f"{solution.status}: {who}γ = {solution.discount:g}, {data if solution.samples else 'exact operators'}"


def _reward_of(solution: Solution) -> Any:
    if solution.reward is None:
        raise ValueError(f"there is no reward to draw: {solution.reason}")
    return solution.reward


def reward(solution: Any, *, plane: Plane = _FIRST, ax: Any = None, path: Any = None) -> Any:
    """Draw R(s), and for an expert who depends on the state the actions that are best for it.

    Of a sum, the rewards of the twelve components that vary most, those of three coordinates and more left out.

    Args:
        solution: whose reward; or a reward alone.
        plane: the two coordinates of a map.
        ax: where; of a sum, one for each component.
        path: where to write the picture, if anywhere.
    """
    function = solution if isinstance(solution, Reward) else _reward_of(solution)
    if function is solution or len(function.components) > 1:
        drawn = _worth_drawing(function)
        figure, axes = (None, np.ravel(ax)) if ax is not None else _grid(len(drawn))
        _rewards(function, drawn, axes)
        return written(figure or axes[0].figure, axes, path)
    if len(solution.domain) == 1:
        ax, s = _axes(ax, 7, 3), _line(solution.domain)
        ax.plot(s, function(s), color="black", linewidth=1.6)
        if solution.expert is None:
            best = solution.greedy(s)
            _shade(ax, s, [best == action for action in range(solution.n_actions)], "action {} is best")
            _behind(ax, s, function.extrapolated(s), label="extrapolated", color="0.5", alpha=0.35)
            ax.legend(fontsize="small", framealpha=0.9)
        _finish(ax, "reward R(s)")
        return written(ax.figure, ax, path)
    ax = _axes(ax, 5, 4)
    x, y, states = _sheet(solution.domain, plane, solution.state if solution.expert is not None else None)
    robust = solution.expert is None  # the reward of a value form may be extreme at single states
    _map(ax, x, y, np.asarray(function(states)), "reward R(s)", robust=robust, levels=not robust)
    if solution.expert is None:
        extrapolated = function.extrapolated(states)
        _borders(ax, x, y, np.ma.masked_where(extrapolated, solution.greedy(states)), "white")
        _hatch(ax, x, y, extrapolated)
        ax.set_title("reward; white: where the best action changes", fontsize="small")
    else:
        _mark(ax, solution, plane)
    _name(ax, plane)
    return written(ax.figure, ax, path)


def margins(
    solution: Solution, *, problem: Problem | None = None, plane: Plane = _FIRST, ax: Any = None, path: Any = None
) -> Any:
    """Draw by how much the expert's action is better than the alternatives, as estimated.

    For an expert who always takes one action: D_a(s) of each alternative with two standard errors, the states where the
    margin is attained, and the truth if a problem is given; on a box a map of the smallest; of a sum what each
    component adds to the margin. For the value form: the margin asked for and the shortfall at the states compared.

    Args:
        solution: what to draw.
        problem: a problem with known truth, for the true margins.
        plane: the two coordinates of a map.
        ax: where.
        path: where to write the picture, if anywhere.
    """
    if solution.reward is None:
        raise ValueError(f"there are no margins to draw: {solution.reason}")
    interval = len(solution.domain) == 1
    if not solution.stats.objective:
        ax = _shortfall_line(solution, ax) if interval else _shortfall_map(solution, plane, ax)
    elif len(solution.components) > 1:
        ax = _contributions(solution, ax)
    else:
        ax = _margin_lines(solution, problem, ax) if interval else _margin_map(solution, problem, plane, ax)
    return written(ax.figure, ax, path)


def certificate(proof: Certificate, *, ax: Any = None, path: Any = None) -> Any:
    """Draw the advantage of the expert's action over its best alternative, estimated with its proved band; the tube.

    In two coordinates a map of the proved lower bound, where that is positive, and of the tube.

    Args:
        proof: what to draw.
        ax: where.
        path: where to write the picture, if anywhere.
    """
    if len(proof.domain) > 2:
        raise ValueError("a certificate is drawn in one or two coordinates; certificate.proves(states) has the others")
    ax = _band(proof, ax) if len(proof.domain) == 1 else _proved_map(proof, ax)
    return written(ax.figure, ax, path)


def feature_path(steps: FeaturePath, *, ax: Any = None, path: Any = None) -> Any:
    """Draw the states that rewards of features do not explain, and the regret, by the number of features.

    Args:
        steps: the path of a solution.
        ax: where.
        path: where to write the picture, if anywhere.
    """
    ax = _axes(ax, 6, 3.4)
    for values, label, colour in ((steps.unexplained, "states not explained", 0), (steps.regret, "regret", 1)):
        ax.plot(steps.counts, 100 * values, "o-", color=_colour(colour), label=label)
    ax.axvline(steps.counts[steps.chosen], color="0.5", lw=1, ls=":", label="chosen")
    for row, formula in enumerate(steps.formulas):
        place = (steps.counts[row], 100 * steps.unexplained[row])
        ax.annotate(formula, place, xytext=(4, 6), textcoords="offset points", fontsize="x-small")
    ax.set_xticks(steps.counts)
    ax.set_xlabel("changes of the guess" if steps.guessed else "features")
    ax.set_ylabel("%")
    ax.legend(fontsize="small")
    return written(ax.figure, ax, path)


def coverage(
    coverage: Coverage, *, action: int | None = None, plane: Plane = _FIRST, ax: Any = None, path: Any = None
) -> Any:
    """Draw how many transitions start where, and where predictions are extrapolated.

    On an interval the transitions of each action in each cell; on a box a map, for one action or, in each cell, for
    the rarest one. Further coordinates are summed over, and then extrapolation is not shown.

    Args:
        coverage: what to draw.
        action: of one action only.
        plane: the two coordinates of the map.
        ax: where.
        path: where to write the picture, if anywhere.
    """
    if coverage.cells.ndim == 2:
        ax = _coverage_line(coverage, range(coverage.n_actions) if action is None else [action], ax)
    else:
        ax = _coverage_map(coverage, action, plane, ax)
    return written(ax.figure, ax, path)


# Parts of pictures ---------------------------------------------------------------------------------------------------


def _finish(ax: Any, label: str) -> None:
    """Name the axes of a curve over an interval."""
    ax.set_xlabel("state s")
    ax.set_ylabel(label)
    ax.margins(x=0)
    ax.grid(alpha=0.25)


def _line(domain: Domain, count: int = 801) -> Array:
    ((low, high),) = domain
    return np.linspace(low, high, count)


def _name(ax: Any, plane: Plane) -> None:
    ax.set_xlabel(f"coordinate s[{plane[0]}] of the state")
    ax.set_ylabel(f"coordinate s[{plane[1]}] of the state")


def _sheet(domain: Domain, plane: Plane, at: Array | None) -> tuple[Array, Array, Array]:
    """Points along two coordinates and the states of their mesh, the other coordinates at a state or in the middle."""
    if len(set(plane)) != 2 or not all(axis in range(len(domain)) for axis in plane):
        raise ValueError(f"plane must name two of the coordinates 0 … {len(domain) - 1}, got {plane}")
    x, y = (np.linspace(*domain[axis], _ALONG) for axis in plane)
    states = np.tile(np.mean(domain, axis=1) if at is None else at, (x.size * y.size, 1))
    states[:, plane[0]], states[:, plane[1]] = np.tile(x, y.size), np.repeat(y, x.size)
    return x, y, states


def _map(ax: Any, x: Array, y: Array, values: Array, label: str, *, robust: bool = False, levels: bool = False) -> None:
    """A map with a colour bar; with ``robust`` its colours leave out a hundredth of the values at each end."""
    z = values.reshape(y.size, x.size)
    low, high = np.percentile(z, [1, 99]) if robust else (z.min(), z.max())
    # Cividis reads the same with every kind of colour vision, and in grey.
    image = ax.pcolormesh(x, y, z, cmap="cividis", shading="gouraud", rasterized=True, vmin=low, vmax=high)
    if levels:
        ax.contour(x, y, z, levels=8, colors="white", linewidths=0.6, alpha=0.7)
    ax.figure.colorbar(image, ax=ax, label=label)


def _borders(ax: Any, x: Array, y: Array, actions: Array, colour: str) -> None:
    """Lines where the action changes."""
    chosen = actions.reshape(y.size, x.size)
    ax.contour(x, y, chosen, levels=np.arange(chosen.max()) + 0.5, colors=colour, linewidths=1.0)


def _mark(ax: Any, solution: Solution, plane: Plane) -> None:
    """The state where the margin is least, and which coordinates are held there."""
    if solution.state is None:
        return
    look = {"markersize": 11, "markeredgecolor": "white", "markeredgewidth": 1.5, "clip_on": False, "zorder": 3}
    ax.plot(*solution.state[list(plane)], "X", color=COLOURS[1], label="least margin, as estimated", **look)
    held = [f"s[{axis}] = {value:.3g}" for axis, value in enumerate(solution.state) if axis not in plane]
    if held:
        ax.set_title("at " + ", ".join(held), fontsize="small")


def _colour(action: int) -> str:
    return COLOURS[action % len(COLOURS)]


def _shade(ax: Any, s: Array, chosen: Iterable[Array], label: str) -> None:
    """The colour of an action behind the states where it is chosen."""
    for action, where in enumerate(chosen):
        _behind(ax, s, where, label=label.format(action), color=_colour(action), alpha=0.15)


def _behind(ax: Any, s: Array, where: Array, **look: Any) -> None:
    """A strip of colour over the whole height behind some of the states."""
    if where.any():
        ax.fill_between(s, 0, 1, where=where, transform=ax.get_xaxis_transform(), lw=0, **look)


def _grid(count: int) -> tuple[Any, Any]:
    """A figure with this number of panels, four in a row at most, and its axes ``[count]``."""
    columns = min(count, 4)
    rows = -(-count // columns)
    figure, axes = panels(rows, columns, size=(3.2 * columns, 2.6 * rows))
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    return figure, axes.flat[:count]


def _worth_drawing(reward: Reward) -> list[int]:
    """The components of one or two coordinates whose rewards vary most, in order."""
    spans = {
        number: float(np.ptp(component(mesh([np.linspace(*side, 41) for side in component.domain]))))
        for number, component in enumerate(reward.parts)
        if len(component.domain) <= 2
    }
    if not spans:
        raise ValueError("components of three coordinates and more have no picture")
    return sorted(spans, key=lambda number: -spans[number])[:MOST_PANELS]


def _rewards(reward: Reward, drawn: Sequence[int], axes: Any) -> None:
    """The rewards of some components, one in each panel."""
    for ax, number in zip(axes, drawn, strict=False):
        component = reward.parts[number]
        if len(component.domain) == 1:
            s = _line(component.domain)
            ax.plot(s, component(s), color="black", linewidth=1.4)
            ax.margins(x=0)
        else:
            x, y, states = _sheet(component.domain, _FIRST, None)
            _map(ax, x, y, np.asarray(component(states)), "")
        ax.set_title(f"R({reward.components[number].name})", fontsize="small")
    left_out = len(reward.parts) - len(drawn)
    if left_out:
        axes[len(drawn) - 1].set_xlabel(f"{left_out} more components are not drawn", fontsize="x-small")


# Margins -------------------------------------------------------------------------------------------------------------


def _margin_lines(solution: Solution, problem: Problem | None, ax: Any) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ax, s, compared = _axes(ax, 7, 4), _line(solution.domain), solution.compared
    curves, errors = solution.margins(s), solution.standard_errors(s)
    truth = None if problem is None else _true_margins(solution, problem, s)
    marks: list[Any] = [
        Line2D([], [], color="0.4", marker="o", linestyle="none", markersize=5, label="states that bind"),
        Patch(color="0.4", alpha=0.2, label="± 2 standard errors"),
    ]
    if truth is not None:
        marks.insert(0, Line2D([], [], color="0.4", linewidth=1.2, linestyle=(0, (4, 2)), label="truth"))
    ax.axhline(0.0, color="0.2", linewidth=1)
    weights = np.asarray(compared.weights)
    attained = weights > 1e-9 * max(weights.max(initial=0.0), 1e-300)
    for index, action in enumerate(solution.alternatives):
        curve, error, colour = curves[index], errors[index], _colour(index)
        ax.fill_between(s, curve - 2 * error, curve + 2 * error, color=colour, alpha=0.15, lw=0)
        ax.plot(s, curve, color=colour, linewidth=1.8, label=f"over action {action}")
        if truth is not None:
            ax.plot(s, truth[index], color=colour, linewidth=1.2, linestyle=(0, (4, 2)))
        places = compared.states[attained & (compared.actions == action), 0]
        if places.size:  # an empty line that is not clipped would upset the layout
            look = {"color": colour, "markersize": 5, "markeredgecolor": "white", "clip_on": False, "zorder": 3}
            ax.plot(places, solution.margins(places)[index], "o", **look)
    proof = solution.certificate
    if proof is not None and proof.holds:
        ax.axhline(
            proof.margin, color="black", linewidth=1.2, linestyle=":", label=f"certified margin {proof.margin:.2g}"
        )
    handles, _ = ax.get_legend_handles_labels()
    ax.legend(handles=handles + marks, loc="best", fontsize="small", framealpha=0.9)
    _finish(ax, "advantage D(s)")
    return ax


def _true_margins(solution: Any, problem: Problem, states: Array) -> Array:
    return problem.margins(solution.reward, states, discount=solution.discount, expert=solution.expert)


def _margin_map(solution: Solution, problem: Problem | None, plane: Plane, ax: Any) -> Any:
    ax = _axes(ax, 5, 4)
    x, y, states = _sheet(solution.domain, plane, solution.state)
    values = solution.margins(states) if problem is None else _true_margins(solution, problem, states)
    label = f"smallest advantage, {'estimated' if problem is None else 'true'}"
    _map(ax, x, y, values.min(axis=0), label, levels=True)
    _mark(ax, solution, plane)
    ax.legend(loc="lower left", fontsize="small", framealpha=0.9)
    _name(ax, plane)
    return ax


def _contributions(solution: Solution, ax: Any) -> Any:
    """What every component adds to the margin over each alternative: these numbers add up to it."""
    ax = _axes(ax, 5, 3.4)
    added, names = solution.contributions, [component.name for component in solution.components]
    order = np.argsort(-np.abs(added).max(axis=1), kind="stable")[:MOST_PANELS]
    width = 0.8 / added.shape[1]
    for index, action in enumerate(solution.alternatives):
        places = np.arange(len(order)) + width * (index - (added.shape[1] - 1) / 2)
        label = f"over action {action}: {added[:, index].sum():.3g} in all"
        ax.bar(places, added[order, index], width, color=_colour(index), label=label)
    ax.axhline(0.0, color="0.2", linewidth=1)
    ax.set_xticks(np.arange(len(order)), [names[number] for number in order], fontsize="small")
    ax.set_title("what each adds to the margin", fontsize="small")
    ax.legend(fontsize="x-small", framealpha=0.9, loc="upper right")
    ax.margins(y=0.3)  # space for the legend
    ax.grid(alpha=0.25)
    return ax


def _shortfall_line(solution: Solution, ax: Any) -> Any:
    ax = _axes(ax, 7, 3)
    order, compared = np.argsort(solution.compared.states[:, 0]), solution.compared
    s = compared.states[order, 0]
    ax.plot(s, compared.target[order], color="0.6", linewidth=1.2, label="margin asked for")
    ax.plot(s, compared.shortfall[order], ".", color=COLOURS[1], markersize=3, label="shortfall of the expert")
    ax.legend(fontsize="small", framealpha=0.9)
    _finish(ax, "in units of the margin")
    return ax


def _shortfall_map(solution: Solution, plane: Plane, ax: Any) -> Any:
    ax = _axes(ax, 5, 4)
    order = np.argsort(solution.compared.shortfall, kind="stable")
    points, short = solution.compared.states[order][:, list(plane)], solution.compared.shortfall[order]
    met = short <= 1e-9
    ax.plot(*points[met].T, ",", color="0.75", rasterized=True)
    top = float(np.percentile(short[~met], 98)) if (~met).any() else 1.0
    look = {"s": 5, "cmap": "plasma", "vmin": 0, "vmax": top, "linewidths": 0, "rasterized": True}
    drawn = ax.scatter(*points[~met].T, c=short[~met], **look)
    ax.figure.colorbar(drawn, ax=ax, label="shortfall, in units of the margin", extend="max")
    share = float((~met).mean())
    ax.set_title(f"{share:.1%} of states fall short of the margin asked for", fontsize="small")
    _name(ax, plane)
    return ax


# Certificates --------------------------------------------------------------------------------------------------------


def _band(proof: Certificate, ax: Any) -> Any:
    ax, s, tube = _axes(ax, 7, 4.2), _line(proof.domain, 2001), proof.tube
    estimate, least = proof.advantage(s)
    taken = np.isnan(estimate)
    _shade(ax, s, taken, "the expert takes action {}")
    nearest = np.where(taken, np.inf, estimate).argmin(axis=0)
    band = "with its proved band" if proof.tail is not None else "with its band, if the tail is zero"
    for action in range(len(taken)):
        here = (nearest == action) & ~taken[action]
        if here.any():
            middle = np.where(here, estimate[action], np.nan)
            lower = np.where(here & np.isfinite(least[action]), least[action], np.nan)  # without a bound, no band
            ax.fill_between(s, lower, 2 * middle - lower, color=_colour(action), alpha=0.3, lw=0)
            ax.plot(s, middle, color=_colour(action), linewidth=1.8, label=f"over action {action}, {band}")
    ax.axhline(0.0, color="0.2", linewidth=1)
    title = f"{proof.word}: margin at least {proof.margin:.2g}"
    if tube is not None:
        for number, (left, right) in enumerate(tube.undecided[:, 0]):
            label = f"tube: not decided, {tube.share:.1%} of the states" if number == 0 else None
            ax.axvspan(left, right, color="0.3", alpha=0.3, lw=0, label=label)
        for number, place in enumerate(np.add.outer(tube.grid.switches, [-tube.allowed, tube.allowed]).flat):
            label = f"half-width asked for, {tube.allowed:.3g}" if number == 0 else None
            ax.axvline(place, color="0.2", linewidth=1, linestyle=":", label=label)
        lost = f"at most {proof.relative_regret:.1%} of the span" if np.isfinite(proof.relative_regret) else "unknown"
        title += f" farther than {tube.allowed:.3g} from a switch; regret {lost}"
    ax.set_title(title, fontsize="small")
    _finish(ax, "advantage D(s)")
    # Bands fill the picture, so that no corner is free.
    ax.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3, frameon=False)
    return ax


def _proved_map(proof: Certificate, ax: Any) -> Any:
    ax, tube = _axes(ax, 5.6, 4.6), proof.tube
    x, y, states = _sheet(proof.domain, _FIRST, None)
    _, least = proof.advantage(states)
    proved = np.where(proof.proves(states), np.nanmin(np.where(np.isnan(least), np.inf, least), axis=0), np.nan)
    ax.set_facecolor("0.85")  # the tube is left transparent
    image = ax.pcolormesh(x, y, proved.reshape(y.size, x.size), cmap="viridis", shading="nearest", rasterized=True)
    ax.figure.colorbar(image, ax=ax, label="advantage D(s), at least")
    title = f"{proof.word}: margin at least {proof.margin:.2g}"
    if tube is not None:
        _borders(ax, x, y, tube.grid.taken_at(states).argmax(axis=0), "black")
        title = f"{proof.word}; grey: not decided, {tube.share:.1%} of the states\nblack: where the expert switches"
    ax.set_title(title, fontsize="small")
    _name(ax, _FIRST)
    return ax


# Coverage ------------------------------------------------------------------------------------------------------------


def _coverage_line(coverage: Coverage, actions: Sequence[int], ax: Any) -> Any:
    ax, s, edges = _axes(ax, 7, 3.2), _line(coverage.domain), _line(coverage.domain, coverage.cells.shape[1] + 1)
    for action in actions:
        ax.stairs(coverage.cells[action], edges, color=_colour(action), linewidth=1.6, label=f"action {action}")
    extrapolated = coverage.leverage(s)[list(actions)].max(axis=0) > 1
    _behind(ax, s, extrapolated, label="extrapolated", color="0.5", alpha=0.25)
    ax.legend(fontsize="small")
    _finish(ax, "transitions in a cell")
    return ax


def _coverage_map(coverage: Coverage, action: int | None, plane: Plane, ax: Any) -> Any:
    others = tuple(1 + axis for axis in range(len(coverage.domain)) if axis not in plane)
    counts = coverage.cells.sum(axis=others) if others else coverage.cells
    counts = counts if plane[0] < plane[1] else counts.swapaxes(1, 2)
    shown = counts.min(axis=0) if action is None else counts[action]
    ax = _axes(ax, 5.4, 4.2)
    x, y = (np.linspace(*coverage.domain[axis], shown.shape[0] + 1) for axis in plane)
    image = ax.pcolormesh(x, y, np.log10(np.maximum(shown, 0.5)).T, cmap="cividis", rasterized=True)
    label = "transitions of the rarest action" if action is None else "transitions"
    bar = ax.figure.colorbar(image, ax=ax, label=label)
    top = int(np.log10(max(int(shown.max()), 1)))
    bar.set_ticks([np.log10(0.5), *range(top + 1)], labels=["0", *(f"{10**power:,}" for power in range(top + 1))])
    if not others:
        x, y, states = _sheet(coverage.domain, plane, None)
        leverage = coverage.leverage(states)
        _hatch(ax, x, y, (leverage.max(axis=0) if action is None else leverage[action]) > 1)
    _name(ax, plane)
    return ax


def _hatch(ax: Any, x: Array, y: Array, where: Array) -> None:
    """Hatch the states where something is extrapolated, and say so in a legend."""
    from matplotlib.patches import Patch

    if where.any():
        height = where.reshape(y.size, x.size).astype(float)
        region = ax.contourf(x, y, height, levels=[0.5, np.inf], colors="none", hatches=["///"])
        region.set_edgecolor("white")
        region.set_linewidth(0.0)
        patch = Patch(facecolor="#00224e", edgecolor="white", hatch="///", label="extrapolated")
        ax.legend(handles=[patch], fontsize="small", loc="best")
