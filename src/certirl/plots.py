"""Pictures. Every function takes axes or makes them, and gives them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from certirl.functions.boxes import mesh
from certirl.ground.archive import replacing, target_of
from certirl.ground.domain import Array
from certirl.ground.status import word_of

if TYPE_CHECKING:
    from certirl.data.coverage import Coverage
    from certirl.functions.components import AdditiveReward
    from certirl.problems import Problem
    from certirl.solver.solution import Solution

# Okabe and Ito's colours: told apart by every eye, and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


MOST_PANELS = 12

# What pictures are written as; a name without one of these gets the first.
SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".eps", ".ps", ".tif", ".tiff", ".webp")


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
    """A figure that no window knows of, to be written to files, and its axes ``[rows, columns]``.

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


def _grid(solution: Solution, count: int = 801) -> Array:
    ((low, high),) = solution.domain
    return np.linspace(low, high, count)


def reward(solution: Solution, *, ax: Any = None) -> Any:
    """Draw R(s) over the interval; on a box, a map of it (see `field`)."""
    if solution.reward is None:
        raise ValueError(f"there is no reward to draw: {solution.reason}")
    if len(solution.domain) > 1:
        return field(solution, solution.reward, label="reward R(s)", ax=ax)
    ax = ax or _pyplot().subplots(figsize=(7, 3), layout="constrained")[1]
    s = _grid(solution)
    ax.plot(s, solution.reward(s), color="black", linewidth=1.6)
    ax.set_ylabel("reward R(s)")
    ax.margins(x=0)
    ax.grid(alpha=0.25)
    return ax


def margins(solution: Solution, *, problem: Problem | None = None, ax: Any = None) -> Any:
    """Draw the advantage D_a(s) over each rival: estimate, two standard errors, binding states, the truth if known.

    On a box, a map of the smallest of them (see `field`); of the true ones if a problem is given.

    Args:
        solution: what to draw.
        problem: a problem with known truth, for the true curves.
        ax: where.
    """
    if solution.reward is None:
        raise ValueError(f"there are no margins to draw: {solution.reason}")
    if len(solution.domain) > 1:
        return _margin_field(solution, problem, ax)
    ax = ax or _pyplot().subplots(figsize=(7, 4), layout="constrained")[1]
    s = _grid(solution)
    curves, errors = solution.margins(s), solution.standard_errors(s)
    truth = None
    if problem is not None and solution.expert is not None:
        truth = problem.margins(solution.reward, s, discount=solution.discount, expert=solution.expert)
    ax.axhline(0.0, color="0.2", linewidth=1)
    for index, rival in enumerate(solution.alternatives):
        colour = COLOURS[index % len(COLOURS)]
        ax.fill_between(
            s, curves[index] - 2 * errors[index], curves[index] + 2 * errors[index], color=colour, alpha=0.15, lw=0
        )
        ax.plot(s, curves[index], color=colour, linewidth=1.8, label=f"over action {rival}")
        if truth is not None:
            ax.plot(s, truth[index], color=colour, linewidth=1.2, linestyle=(0, (4, 2)))
        compared = solution.compared
        assert compared.actions is not None and compared.weights is not None
        attained = compared.weights > 1e-9 * max(compared.weights.max(initial=0.0), 1e-300)
        places = compared.states[attained & (compared.actions == rival), 0]
        if not places.size:  # an empty unclipped line would upset the layout
            continue
        ax.plot(
            places,
            solution.margins(places)[index],
            "o",
            color=colour,
            markersize=5,
            markeredgecolor="white",
            clip_on=False,
            zorder=3,
        )
    if solution.certificate is not None and solution.certificate.holds:
        level, word = solution.certificate.margin, "certified" if solution.verified else "claimed"
        ax.axhline(level, color="black", linewidth=1.2, linestyle=":", label=f"{word} margin {level:.2g}")
    handles, _ = ax.get_legend_handles_labels()
    handles += _legend_marks(truth is not None)
    ax.legend(handles=handles, loc="best", fontsize="small", framealpha=0.9)
    ax.set_ylabel("advantage D(s)")
    ax.margins(x=0)
    ax.grid(alpha=0.25)
    return ax


def field(solution: Solution, values: Any, *, label: str, plane: tuple[int, int] = (0, 1), ax: Any = None) -> Any:
    """Draw a function of the state over two coordinates, with level lines and the worst state marked.

    Further coordinates are held at the worst state.

    Args:
        solution: whose box and worst state.
        values: the function, from states ``[n, d]`` to ``[n]``.
        label: what it is, for the colour bar.
        plane: the two coordinates.
        ax: where.
    """
    ax = ax or _pyplot().subplots(figsize=(5, 4), layout="constrained")[1]
    domain, worst = solution.domain, solution.state
    if worst is None or len(set(plane)) != 2 or not all(axis in range(len(domain)) for axis in plane):
        raise ValueError(f"plane must name two of the coordinates 0 … {len(domain) - 1}, got {plane}")
    x, y = (np.linspace(*domain[axis], 101) for axis in plane)
    states = np.tile(worst, (x.size * y.size, 1))
    states[:, plane[0]], states[:, plane[1]] = np.tile(x, y.size), np.repeat(y, x.size)
    z = np.asarray(values(states)).reshape(y.size, x.size)
    # Cividis reads the same to every eye, and in grey.
    image = ax.pcolormesh(x, y, z, cmap="cividis", shading="gouraud", rasterized=True)
    ax.contour(x, y, z, levels=8, colors="white", linewidths=0.6, alpha=0.7)
    ax.figure.colorbar(image, ax=ax, label=label)
    mark = {"markersize": 11, "markeredgecolor": "white", "markeredgewidth": 1.5, "clip_on": False, "zorder": 3}
    ax.plot(*worst[list(plane)], "X", color=COLOURS[1], label="worst state, as estimated", **mark)
    ax.set_xlabel(f"coordinate s[{plane[0]}] of the state")
    ax.set_ylabel(f"coordinate s[{plane[1]}] of the state")
    held = [f"s[{axis}] = {worst[axis]:.3g}" for axis in range(len(domain)) if axis not in plane]
    if held:
        ax.set_title("at " + ", ".join(held), fontsize="small")
    return ax


def _margin_field(solution: Solution, problem: Any, ax: Any) -> Any:
    if problem is None:
        return field(solution, lambda s: solution.margins(s).min(axis=0), label="smallest advantage, estimated", ax=ax)
    asked = {"discount": solution.discount, "expert": solution.expert}
    true = lambda s: problem.margins(solution.reward, s, **asked).min(axis=0)  # noqa: E731
    return field(solution, true, label="smallest advantage, true", ax=ax)


def _legend_marks(with_truth: bool) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Any] = [
        Line2D([], [], color="0.4", marker="o", linestyle="none", markersize=5, label="states that bind"),
        Patch(color="0.4", alpha=0.2, label="± 2 standard errors"),
    ]
    if with_truth:
        marks.insert(0, Line2D([], [], color="0.4", linewidth=1.2, linestyle=(0, (4, 2)), label="truth"))
    return marks


def solution(
    solution: Solution, *, problem: Problem | None = None, path: Any = None, plane: tuple[int, int] = (0, 1)
) -> Any:
    """Draw the reward above its margin curves; write the picture to ``path`` if given. Returns the axes.

    On a box, maps of the reward and of the smallest margin, side by side. Of a sum, the rewards of the components. For
    the value form, the reward beside the states that it does not explain (see `policy_plots.policy`).

    Args:
        solution: what to draw.
        problem: a problem with known truth, for the true curves; for experts who always take one action.
        path: where to write the picture, if anywhere.
        plane: the two coordinates to draw, for the value form.
    """
    if not solution.stats.objective:
        from certirl import policy_plots

        return policy_plots.policy(solution, path=path, plane=plane)
    if len(solution.components) > 1:
        if solution.reward is None:
            raise ValueError(f"there is no reward to draw: {solution.reason}")
        return additive(cast("AdditiveReward", solution.reward), path=path)
    pyplot = _pyplot()
    data = f"{solution.samples:,} transitions per action" if solution.samples else "exact operators"
    title = f"{word_of(solution)}: action {solution.expert} at every state, γ = {solution.discount:g}, {data}"
    if len(solution.domain) > 1:
        figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
        figure.suptitle(title, fontsize="medium")
    else:
        figure, axes = pyplot.subplots(2, 1, figsize=(7, 6.4), sharex=True, height_ratios=(2, 3), layout="constrained")
        axes[1].set_xlabel("state s")
        axes[0].set_title(title, fontsize="medium")
    reward(solution, ax=axes[0])
    margins(solution, problem=problem, ax=axes[1])
    if len(solution.domain) > 1:
        axes[1].legend(loc="lower left", fontsize="small", framealpha=0.9)
    return written(figure, axes, path)


def additive(reward: AdditiveReward, *, path: Any = None) -> Any:
    """Draw the reward of every component, of the twelve that matter most if there are more; returns the axes.

    A component matters by how far its reward reaches. Those of three coordinates and more have no picture.

    Args:
        reward: what to draw.
        path: where to write the picture, if anywhere.
    """
    drawn = []
    for name, part in zip(reward.names, reward.parts, strict=True):
        if part.basis.dimension <= 2:
            grid = mesh([np.linspace(*side, 201 if part.basis.dimension == 1 else 61) for side in part.basis.domain])
            drawn.append((name, part.basis.domain, grid, np.asarray(part(grid))))
    if not drawn:
        raise ValueError("components of three coordinates and more have no picture")
    drawn = sorted(drawn, key=lambda one: -np.ptp(one[3]))[:MOST_PANELS]
    columns = min(len(drawn), 4)
    figure, axes = panels(-(-len(drawn) // columns), columns, size=(3.2 * columns, 2.5 * -(-len(drawn) // columns)))
    for ax in axes.flat[len(drawn) :]:
        ax.set_axis_off()
    for ax, (name, domain, grid, values) in zip(axes.flat, drawn, strict=False):
        ax.set_title(f"R({name})", fontsize="small")
        if len(domain) == 1:
            ax.plot(grid[:, 0], values, color="black", linewidth=1.4)
            ax.margins(x=0)
        else:
            x, y = (np.unique(grid[:, axis]) for axis in (0, 1))
            z = values.reshape(x.size, y.size).T
            figure.colorbar(ax.pcolormesh(x, y, z, cmap="cividis", shading="gouraud", rasterized=True), ax=ax)
    left = len(reward.parts) - len(drawn)
    figure.suptitle(f"the rewards that add up{f', {left} more of them' if left else ''}", fontsize="medium")
    return written(figure, axes, path)


def coverage(
    coverage: Coverage, *, action: int | None = None, plane: tuple[int, int] = (0, 1), ax: Any = None, path: Any = None
) -> Any:
    """Draw how many transitions start where, and where predictions are extrapolated.

    Over an interval the transitions of each action in each cell; on a box a map, for one action or, in each cell, for
    the one seen least. Further coordinates are summed over, and then nothing is said about extrapolation.

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


def _coverage_map(coverage: Coverage, action: int | None, plane: tuple[int, int], ax: Any) -> Any:
    others = tuple(1 + axis for axis in range(len(coverage.domain)) if axis not in plane)
    counts = coverage.cells.sum(axis=others) if others else coverage.cells
    counts = counts if plane[0] < plane[1] else counts.swapaxes(1, 2)
    shown = counts.min(axis=0) if action is None else counts[action]
    ax = ax or _pyplot().subplots(figsize=(5.4, 4.2), layout="constrained")[1]
    x, y = (np.linspace(*coverage.domain[axis], shown.shape[0] + 1) for axis in plane)
    image = ax.pcolormesh(x, y, np.log10(np.maximum(shown, 0.5)).T, cmap="cividis", rasterized=True)
    bar = ax.figure.colorbar(image, ax=ax, label=f"transitions {'of the rarest action' if action is None else 'seen'}")
    top = int(np.log10(max(int(shown.max()), 1)))
    bar.set_ticks([np.log10(0.5), *range(top + 1)], labels=["0", *(f"{10**power:,}" for power in range(top + 1))])
    if not others:
        _hatched(coverage, action, plane, ax)
    ax.set_xlabel(f"coordinate s[{plane[0]}] of the state")
    ax.set_ylabel(f"coordinate s[{plane[1]}] of the state")
    return ax


def _coverage_line(coverage: Coverage, actions: Any, ax: Any) -> Any:
    ax = ax or _pyplot().subplots(figsize=(7, 3.2), layout="constrained")[1]
    ((low, high),) = coverage.domain
    s = np.linspace(low, high, 801)
    edges = np.linspace(low, high, coverage.cells.shape[1] + 1)
    for action in actions:
        colour = COLOURS[action % len(COLOURS)]
        ax.stairs(coverage.cells[action], edges, color=colour, linewidth=1.6, label=f"action {action}")
    blind = coverage.leverage(s)[list(actions)].max(axis=0) > 1
    if blind.any():
        ax.fill_between(
            s,
            0,
            1,
            where=blind,
            transform=ax.get_xaxis_transform(),
            color="0.5",
            alpha=0.25,
            lw=0,
            label="extrapolated",
        )
    ax.set_ylabel("transitions in a cell")
    ax.set_xlabel("state s")
    ax.legend(fontsize="small")
    ax.margins(x=0)
    ax.grid(alpha=0.25)
    return ax


def _hatched(coverage: Coverage, action: int | None, plane: tuple[int, int], ax: Any) -> None:
    """Hatch where a prediction is worse than one transition."""
    from matplotlib.patches import Patch

    u, v = (np.linspace(*coverage.domain[axis], 121) for axis in plane)
    states = np.empty((u.size * v.size, 2))
    states[:, plane[0]], states[:, plane[1]] = np.tile(u, v.size), np.repeat(v, u.size)
    leverage = coverage.leverage(states)
    height = (leverage.max(axis=0) if action is None else leverage[action]).reshape(v.size, u.size)
    if (height > 1).any():
        region = ax.contourf(u, v, height, levels=[1.0, np.inf], colors="none", hatches=["///"])
        region.set_edgecolor("white")
        region.set_linewidth(0.0)
        patch = Patch(facecolor="#00224e", edgecolor="white", hatch="///", label="extrapolated")
        ax.legend(handles=[patch], fontsize="small", loc="best")
