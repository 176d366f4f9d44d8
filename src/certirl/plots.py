"""Pictures. Every function takes axes or makes them, and gives them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certirl.domain import Array

if TYPE_CHECKING:
    from certirl.problems import Problem
    from certirl.solution import Solution

# Okabe and Ito's colours: told apart by every eye, and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        raise ImportError('plots need matplotlib: pip install "certirl[plot]"') from None
    return pyplot


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
    ((low, high),) = solution.basis.domain
    return np.linspace(low, high, count)


def reward(solution: Solution, *, ax: Any = None) -> Any:
    """Draw R(s) over the interval."""
    if solution.reward is None:
        raise ValueError(f"there is no reward to draw: {solution.reason}")
    ax = ax or _pyplot().subplots(figsize=(7, 3), layout="constrained")[1]
    s = _grid(solution)
    ax.plot(s, solution.reward(s), color="black", linewidth=1.6)
    ax.set_ylabel("reward R(s)")
    ax.margins(x=0)
    ax.grid(alpha=0.25)
    return ax


def margins(solution: Solution, *, problem: Problem | None = None, ax: Any = None) -> Any:
    """Draw the advantage D_a(s) over each rival: estimate, two standard errors, binding states, the truth if known.

    Args:
        solution: what to draw.
        problem: a problem with known truth, for the true curves.
        ax: where.
    """
    if solution.reward is None:
        raise ValueError(f"there are no margins to draw: {solution.reason}")
    ax = ax or _pyplot().subplots(figsize=(7, 4), layout="constrained")[1]
    s = _grid(solution)
    curves, errors = solution.margins(s), solution.standard_errors(s)
    truth = None
    if problem is not None:
        truth = problem.margins(solution.reward, s, discount=solution.discount, expert=solution.expert)
    ax.axhline(0.0, color="0.2", linewidth=1)
    for index, rival in enumerate(solution.rivals):
        colour = COLOURS[index % len(COLOURS)]
        ax.fill_between(
            s, curves[index] - 2 * errors[index], curves[index] + 2 * errors[index], color=colour, alpha=0.15, lw=0
        )
        ax.plot(s, curves[index], color=colour, linewidth=1.8, label=f"over action {rival}")
        if truth is not None:
            ax.plot(s, truth[index], color=colour, linewidth=1.2, linestyle=(0, (4, 2)))
        own = solution.actions == rival
        held = own & (solution.weights > 1e-9 * max(solution.weights.max(initial=0.0), 1e-300))
        places = solution.states[held, 0]
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
        level = solution.certificate.margin
        ax.axhline(level, color="black", linewidth=1.2, linestyle=":", label=f"certified margin {level:.2g}")
    handles, _ = ax.get_legend_handles_labels()
    handles += _legend_marks(truth is not None)
    ax.legend(handles=handles, loc="best", fontsize="small", framealpha=0.9)
    ax.set_ylabel("advantage D(s)")
    ax.margins(x=0)
    ax.grid(alpha=0.25)
    return ax


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


def solution(solution: Solution, *, problem: Problem | None = None, path: Any = None) -> Any:
    """Draw the reward above its margin curves; write the picture to ``path`` if given. Returns the two axes."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(2, 1, figsize=(7, 6.4), sharex=True, height_ratios=(2, 3), layout="constrained")
    reward(solution, ax=axes[0])
    margins(solution, problem=problem, ax=axes[1])
    axes[1].set_xlabel("state s")
    data = f"{solution.samples:,} transitions per action" if solution.samples else "exact operators"
    axes[0].set_title(
        f"{solution.status}: action {solution.expert} at every state, γ = {solution.discount:g}, {data}",
        fontsize="medium",
    )
    if path is not None:
        figure.savefig(path, dpi=150)
        pyplot.close(figure)
    return axes
