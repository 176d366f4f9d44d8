"""Pictures of an expert that depends on the state: the learned reward, and where it does not explain the expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certirl.domain import Array
from certirl.plots import COLOURS, _pyplot

if TYPE_CHECKING:
    from certirl.policy_solution import PolicySolution

_FINE = 161


def policy(solution: PolicySolution, *, path: Any = None, plane: tuple[int, int] = (0, 1)) -> Any:
    """Draw the reward, and beside it the states at which the expert falls short; returns the two axes.

    Args:
        solution: what to draw.
        path: where to write the picture, if anywhere.
        plane: with more than two coordinates, the two to draw; the others are held in the middle for the reward.
    """
    pyplot = _pyplot()
    alone = solution.states.shape[1] == 1
    shape = {"nrows": 2, "ncols": 1, "sharex": True, "figsize": (7, 5.6)} if alone else {"ncols": 2, "figsize": (10, 4)}
    figure, axes = pyplot.subplots(layout="constrained", **shape)
    draw = (_reward_line, _shortfall_line) if alone else (_reward_map, _shortfall_map)
    for ax, one in zip(axes, draw, strict=True):
        one(solution, ax, plane)
    figure.suptitle(f"{solution.status}: {solution.samples:,} states, γ = {solution.discount:g}", fontsize="medium")
    if path is not None:
        figure.savefig(path, dpi=150)
        pyplot.close(figure)
    return axes


def _reward_line(solution: PolicySolution, ax: Any, _: Any) -> None:
    ((low, high),) = solution.reward.domain
    s = np.linspace(low, high, 801)
    ax.plot(s, solution.reward(s), color="black", linewidth=1.6)
    ax.set_ylabel("learned reward R(s)")
    chosen = solution.greedy(s)
    for action in range(solution.n_actions):
        ax.fill_between(
            s, 0, 1, where=chosen == action, transform=ax.get_xaxis_transform(), color=COLOURS[action % len(COLOURS)],
            alpha=0.15, lw=0, label=f"action {action} is best",
        )  # fmt: skip
    ax.legend(fontsize="small", framealpha=0.9)
    ax.margins(x=0)
    ax.grid(alpha=0.25)


def _shortfall_line(solution: PolicySolution, ax: Any, _: Any) -> None:
    order = np.argsort(solution.states[:, 0])
    s = solution.states[order, 0]
    ax.plot(s, solution.profile[order], color="0.6", linewidth=1.2, label="margin asked for")
    ax.plot(s, solution.shortfall[order], ".", color=COLOURS[1], markersize=3, label="shortfall of the expert")
    ax.set_xlabel("state s")
    ax.set_ylabel("in units of the margin")
    ax.legend(fontsize="small", framealpha=0.9)
    ax.grid(alpha=0.25)


def _reward_map(solution: PolicySolution, ax: Any, plane: tuple[int, int]) -> None:
    x, y, states = _sheet(solution, plane)
    z = np.asarray(solution.reward(states)).reshape(y.size, x.size)
    low, high = np.percentile(z, [1, 99])
    image = ax.pcolormesh(x, y, z, cmap="cividis", shading="gouraud", rasterized=True, vmin=low, vmax=high)
    ax.figure.colorbar(image, ax=ax, label="learned reward R(s)")
    best = solution.greedy(states).reshape(y.size, x.size)
    levels = np.arange(solution.n_actions - 1) + 0.5
    ax.contour(x, y, best, levels=levels, colors="white", linewidths=1.0)
    ax.set_title("reward; white: where the best action changes", fontsize="small")
    _name(ax, plane)


def _shortfall_map(solution: PolicySolution, ax: Any, plane: tuple[int, int]) -> None:
    order = np.argsort(solution.shortfall, kind="stable")
    points, short = solution.states[order][:, list(plane)], solution.shortfall[order]
    fine = short <= 1e-9
    ax.plot(*points[fine].T, ",", color="0.75", rasterized=True)
    top = float(np.percentile(short[~fine], 98)) if (~fine).any() else 1.0
    drawn = ax.scatter(
        *points[~fine].T, c=short[~fine], s=5, cmap="plasma", vmin=0, vmax=top, linewidths=0, rasterized=True
    )
    ax.figure.colorbar(drawn, ax=ax, label="shortfall, in units of the margin", extend="max")
    share = float((~fine).mean())
    ax.set_title(f"{share:.1%} of states fall short of the margin asked for", fontsize="small")
    _name(ax, plane)


def _sheet(solution: PolicySolution, plane: tuple[int, int]) -> tuple[Array, Array, Array]:
    """A mesh over two coordinates, the others in the middle of the box."""
    domain = solution.reward.domain
    if len(set(plane)) != 2 or not all(axis in range(len(domain)) for axis in plane):
        raise ValueError(f"plane must name two of the coordinates 0 … {len(domain) - 1}, got {plane}")
    x, y = (np.linspace(*domain[axis], _FINE) for axis in plane)
    states = np.tile(np.mean(domain, axis=1), (x.size * y.size, 1))
    states[:, plane[0]], states[:, plane[1]] = np.tile(x, y.size), np.repeat(y, x.size)
    return x, y, states


def _name(ax: Any, plane: tuple[int, int]) -> None:
    ax.set_xlabel(f"coordinate s[{plane[0]}] of the state")
    ax.set_ylabel(f"coordinate s[{plane[1]}] of the state")
