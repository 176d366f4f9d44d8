"""How certificates are judged: rewards that are barely wrong, and counts of what was true of runs on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from certirl import Reward
from certirl.functions.inequalities import binomial_interval


def barely_wrong(
    reward: Any,
    other: Any,
    curves: Callable[[Any], Sequence[np.ndarray]],
    *,
    steps: int = 30,
    beyond: float = 1e-3,
    mix: Callable[[Any, Any, float], Any] | None = None,
) -> Any:
    """Mix a reward with another one until its least true margin is just below zero: the hardest reward to judge.

    For a given expert margins are linear in the reward, so that the curves of both are enough to find the mixture.

    Args:
        reward: whose margins are positive.
        other: what it is mixed with.
        curves: from a reward to its true margins at many states, for each component ``[actions, n]``; the least margin
            is the least sum over components of minima over states.
        steps: halvings of [0, 1] in which the share of the other reward is found.
        beyond: what is added to this share.
        mix: makes the mixture with a share; `mixed` if left out.
    """
    pairs = list(zip(curves(reward), curves(other), strict=True))
    low, high = 0.0, 1.0
    for _ in range(steps):
        share = (low + high) / 2
        least = np.sum([((1 - share) * ours + share * theirs).min(axis=-1) for ours, theirs in pairs], axis=0).min()
        low, high = (share, high) if least > 0 else (low, share)
    return (mix or mixed)(reward, other, min(high + beyond, 1.0))


def mixed(reward: Any, other: Any, share: float) -> Any:
    """(1 − share)·reward + share·other, an expansion or a sum of expansions."""
    return Reward(reward.basis, (1 - share) * reward.coefficients + share * other.coefficients)


def mixed_function(reward: Any, other: Any, share: float) -> Callable[[Any], np.ndarray]:
    """(1 − share)·reward + share·other as a function of states, whatever the two are."""
    return lambda states: (1 - share) * np.asarray(reward(states)) + share * np.asarray(other(states))


def noise_of(reward: Reward, rng: np.random.Generator) -> Reward:
    """A random reward in the same basis with coefficients of the same size."""
    return Reward(reward.basis, rng.normal(size=reward.basis.size) * np.abs(reward.coefficients).mean())


def bounds_by_delta(runs: Sequence[dict[str, Any]], more: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """How many certificates held, how many falsely, and how many bounds lay above the truth, by δ.

    Args:
        runs: with ``delta``, ``spoiled``, ``holds``, ``false`` and ``above``.
        more: further flags to count, by what to call them.
    """
    table = {}
    for delta in sorted({run["delta"] for run in runs}):
        selected = [run for run in runs if run["delta"] == delta]
        above = sum(run["above"] for run in selected)
        table[str(delta)] = {
            "runs": len(selected),
            "of which barely wrong rewards": sum(run["spoiled"] for run in selected),
            "certified": sum(run["holds"] for run in selected),
            "false certificates": sum(run["false"] for run in selected),
            "bounds above the truth": above,
            "95 % interval of the share of wrong bounds": binomial_interval(above, len(selected)),
        } | {words: sum(run[flag] for run in selected) for words, flag in more.items()}
    return table


def counted(runs: Sequence[dict[str, Any]], wrong: Sequence[str]) -> dict[str, Any]:
    """How many certificates held, and which of their statements the truth contradicted, by δ and by kind.

    Args:
        runs: with ``delta``, ``kind``, ``holds`` and one flag for every statement.
        wrong: the names of these flags.
    """
    by_delta: dict[str, Any] = {}
    for delta in sorted({run["delta"] for run in runs}):
        selected = [run for run in runs if run["delta"] == delta]
        counts = {name: sum(run[name] for run in selected) for name in wrong}
        interval = binomial_interval(sum(any(run[name] for name in wrong) for run in selected), len(selected))
        by_delta[str(delta)] = {"runs": len(selected), "certified": sum(run["holds"] for run in selected), **counts}
        by_delta[str(delta)]["95 % interval of the share with anything wrong"] = interval
    by_kind = {}
    for kind in sorted({run["kind"] for run in runs}):
        holds = [run["holds"] for run in runs if run["kind"] == kind]
        by_kind[kind] = [sum(holds), len(holds)]
    return {"by delta": by_delta, "certified, of runs, by kind": by_kind}
