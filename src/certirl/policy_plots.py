"""Pictures of an expert that depends on the state: the learned reward, and where it does not explain the expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certirl.ground.domain import Array
from certirl.ground.status import word_of
from certirl.plots import COLOURS, _pyplot, written
from certirl.proof.policy_certificate import PolicyCertificate

if TYPE_CHECKING:
    from certirl.solver.solution import Solution

_FINE = 161


def policy(solution: Solution, *, path: Any = None, plane: tuple[int, int] = (0, 1)) -> Any:
    """Draw the reward, beside it the states at which the expert falls short, and the certificate if there is one.

    Args:
        solution: what to draw.
        path: where to write the picture, if anywhere.
        plane: with more than two coordinates, the two to draw; the others are held in the middle for the reward.
    """
    pyplot = _pyplot()
    alone, proof = len(solution.domain) == 1, solution.certificate
    draw: list[Any] = [_reward_line, _shortfall_line] if alone else [_reward_map, _shortfall_map]
    if isinstance(proof, PolicyCertificate) and len(solution.domain) <= 2:
        draw.append(lambda _, ax, __: certificate(proof, ax=ax))
    shape = {"nrows": len(draw), "sharex": True, "figsize": (7, 2.9 * len(draw))} if alone else {"ncols": len(draw)}
    figure, axes = pyplot.subplots(layout="constrained", **({"figsize": (5 * len(draw), 4)} | shape))
    for ax, one in zip(axes, draw, strict=True):
        one(solution, ax, plane)
    unit = "states" if solution.stats.noiseless else "transitions per action"
    figure.suptitle(f"{word_of(solution)}: {solution.samples:,} {unit}, γ = {solution.discount:g}", fontsize="medium")
    axes[-1].set_xlabel("state s" if alone else axes[-1].get_xlabel())
    return written(figure, axes, path)


def certificate(proof: PolicyCertificate, *, ax: Any = None, path: Any = None) -> Any:
    """Draw by how much the expert's action beats its best rival: estimated, with its proved band, and the tube.

    In two coordinates a map of what is proved of it at least, where that is more than nothing, and of the tube.

    Args:
        proof: what to draw.
        ax: where.
        path: where to write the picture, if anywhere.
    """
    if len(proof.lookup.domain) > 2:
        raise ValueError("a certificate is drawn in one or two coordinates; certificate.proves(states) tells of more")
    if len(proof.lookup.domain) == 2:
        return _certificate_map(proof, ax=ax, path=path)
    ax = ax or _pyplot().subplots(figsize=(7, 4.2), layout="constrained")[1]
    ((low, high),) = proof.lookup.domain
    s = np.linspace(low, high, 2001)
    estimate, least = proof.advantage(s)
    taken = np.isnan(estimate)
    _shade(ax, s, [taken[action] for action in range(len(taken))], "the expert takes action {}")
    rival = np.where(taken, np.inf, estimate).argmin(axis=0)
    band = "with its proved band" if proof.tail is not None else "with its band, if the tail is zero"
    for action, colour in enumerate(_colours(len(taken))):
        own = (rival == action) & ~taken[action]
        if own.any():
            middle = np.where(own, estimate[action], np.nan)
            lower = np.where(own & np.isfinite(least[action]), least[action], np.nan)  # without a bound, no band
            ax.fill_between(s, lower, 2 * middle - lower, color=colour, alpha=0.3, lw=0)
            ax.plot(s, middle, color=colour, linewidth=1.8, label=f"over action {action}, {band}")
    ax.axhline(0.0, color="0.2", linewidth=1)
    _mark_tube(proof, ax)
    lost = f"at most {proof.relative_regret:.1%} of the span" if np.isfinite(proof.relative_regret) else "unknown"
    where = f"farther than {proof.allowed:.3g} from a switch"
    told = f"{proof.word}: margin at least {proof.margin:.2g} {where}; regret {lost}"
    ax.set_title(told, fontsize="small")
    ax.set_xlabel("state s")
    ax.set_ylabel("advantage, divided by γ")
    # Bands fill the picture, so that no corner is free.
    ax.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3, frameon=False)
    ax.margins(x=0)
    ax.grid(alpha=0.25)
    return written(ax.figure, ax, path)


def _certificate_map(proof: PolicyCertificate, *, ax: Any, path: Any) -> Any:
    ax = ax or _pyplot().subplots(figsize=(5.6, 4.6), layout="constrained")[1]
    x, y = (np.linspace(*side, _FINE) for side in proof.lookup.domain)
    states = np.column_stack([np.tile(x, y.size), np.repeat(y, x.size)])
    _, least = proof.advantage(states)
    proved = np.where(proof.proves(states), np.nanmin(np.where(np.isnan(least), np.inf, least), axis=0), np.nan)
    ax.set_facecolor("0.85")  # the tube shows through
    image = ax.pcolormesh(x, y, proved.reshape(y.size, x.size), cmap="viridis", shading="nearest", rasterized=True)
    ax.figure.colorbar(image, ax=ax, label="advantage at least, divided by γ")
    taken = proof.lookup.taken_at(states).argmax(axis=0).reshape(y.size, x.size)
    ax.contour(x, y, taken, levels=np.arange(taken.max()) + 0.5, colors="black", linewidths=1.0)
    told = f"{proof.word}; black: the expert switches; grey: not decided, {proof.share:.1%} of the states"
    ax.set_title(told, fontsize="small")
    _name(ax, (0, 1))
    return written(ax.figure, ax, path)


def _mark_tube(proof: PolicyCertificate, ax: Any) -> None:
    """The states that are not decided, and how near to a switch that was allowed."""
    for number, (left, right) in enumerate(proof.tube):
        label = f"tube: not decided, {proof.share:.1%} of the states" if number == 0 else None
        ax.axvspan(left, right, color="0.3", alpha=0.3, lw=0, label=label)
    for number, switch in enumerate(proof.lookup.switches[:, 0]):
        for side in (-1, 1):
            label = f"half-width asked for, {proof.allowed:.3g}" if number == 0 and side < 0 else None
            ax.axvline(switch + side * proof.allowed, color="0.2", linewidth=1, linestyle=":", label=label)


def _shade(ax: Any, s: Array, chosen: list[Any], label: str) -> None:
    """The colour of an action behind the states where it is chosen."""
    for action, (where, colour) in enumerate(zip(chosen, _colours(len(chosen)), strict=True)):
        behind = {"transform": ax.get_xaxis_transform(), "color": colour, "alpha": 0.15, "lw": 0}
        ax.fill_between(s, 0, 1, where=where, label=label.format(action), **behind)


def _colours(actions: int) -> list[str]:
    return [COLOURS[action % len(COLOURS)] for action in range(actions)]


def _reward_line(solution: Solution, ax: Any, _: Any) -> None:
    ((low, high),) = solution.domain
    s = np.linspace(low, high, 801)
    assert solution.reward is not None
    ax.plot(s, solution.reward(s), color="black", linewidth=1.6)
    ax.set_ylabel("learned reward R(s)")
    chosen = solution.greedy(s)
    _shade(ax, s, [chosen == action for action in range(solution.n_actions)], "action {} is best")
    ax.legend(fontsize="small", framealpha=0.9)
    ax.margins(x=0)
    ax.grid(alpha=0.25)


def _shortfall_line(solution: Solution, ax: Any, _: Any) -> None:
    order = np.argsort(solution.compared.states[:, 0])
    s = solution.compared.states[order, 0]
    ax.plot(s, solution.compared.target[order], color="0.6", linewidth=1.2, label="margin asked for")
    ax.plot(s, solution.compared.shortfall[order], ".", color=COLOURS[1], markersize=3, label="shortfall of the expert")
    ax.set_ylabel("in units of the margin")
    ax.legend(fontsize="small", framealpha=0.9)
    ax.grid(alpha=0.25)


def _reward_map(solution: Solution, ax: Any, plane: tuple[int, int]) -> None:
    x, y, states = _sheet(solution, plane)
    assert solution.reward is not None
    z = np.asarray(solution.reward(states)).reshape(y.size, x.size)
    low, high = np.percentile(z, [1, 99])
    image = ax.pcolormesh(x, y, z, cmap="cividis", shading="gouraud", rasterized=True, vmin=low, vmax=high)
    ax.figure.colorbar(image, ax=ax, label="learned reward R(s)")
    best = solution.greedy(states).reshape(y.size, x.size)
    levels = np.arange(solution.n_actions - 1) + 0.5
    ax.contour(x, y, best, levels=levels, colors="white", linewidths=1.0)
    ax.set_title("reward; white: where the best action changes", fontsize="small")
    _name(ax, plane)


def _shortfall_map(solution: Solution, ax: Any, plane: tuple[int, int]) -> None:
    order = np.argsort(solution.compared.shortfall, kind="stable")
    points, short = solution.compared.states[order][:, list(plane)], solution.compared.shortfall[order]
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


def _sheet(solution: Solution, plane: tuple[int, int]) -> tuple[Array, Array, Array]:
    """A mesh over two coordinates, the others in the middle of the box."""
    domain = solution.domain
    if len(set(plane)) != 2 or not all(axis in range(len(domain)) for axis in plane):
        raise ValueError(f"plane must name two of the coordinates 0 … {len(domain) - 1}, got {plane}")
    x, y = (np.linspace(*domain[axis], _FINE) for axis in plane)
    states = np.tile(np.mean(domain, axis=1), (x.size * y.size, 1))
    states[:, plane[0]], states[:, plane[1]] = np.tile(x, y.size), np.repeat(y, x.size)
    return x, y, states


def _name(ax: Any, plane: tuple[int, int]) -> None:
    ax.set_xlabel(f"coordinate s[{plane[0]}] of the state")
    ax.set_ylabel(f"coordinate s[{plane[1]}] of the state")
