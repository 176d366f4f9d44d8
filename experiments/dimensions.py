"""What coordinates cost: functions, seconds and samples against d and against the index set.

    python experiments/dimensions.py [--fast] [--workers 1] [--seed S] [--out DIR]

Turning and drifting dynamics in two to six coordinates, products of five polynomials of each taken over full sets,
total degree and hyperbolic crosses. Cost: the time to estimate and to solve, against the number of functions. Samples:
how many fresh transitions a certificate of one reward should take, against the number of columns, in two and three
coordinates. Times are processor seconds of one thread. Sums over independent components are another matter:
`components.py`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import highspy  # noqa: F401  # loaded here, so that the first trial does not pay for it
import numpy as np
import scipy.optimize
import scipy.spatial  # noqa: F401

import certirl
import study
from certirl import plots, product
from certirl.functions.bases import INDEX_SETS
from certirl.ground.work import on, one_blas_thread
from certirl.paper.trial_statistics import fit_power_law


@dataclass(frozen=True)
class Arguments:
    """The full size; ``--fast`` shrinks it."""

    coordinates: tuple[int, ...] = (2, 3, 4, 5, 6)
    factor: int = 5
    most: int = 300
    samples: int = 20_000
    certified: tuple[int, ...] = (2, 3)
    sizes: tuple[int, ...] = (3, 4, 5, 6)
    seed: int = 0


FAST = Arguments(coordinates=(2, 3), most=100, samples=2_000, certified=(2,), sizes=(3, 4))
FRESH = 60_000  # transitions per action that a forecast of a certificate looks at


class Turning:
    """s' = 0.5 Q_a s + drift_a + noise, clipped to the box: every coordinate turns into the next.

    Action 0 drifts to the corner (1, 1, …), the others half as far, each away from it in its own coordinates.
    """

    n_actions, thread_safe = 3, True

    def __init__(self, dimension: int) -> None:
        self.domain = ((-1.0, 1.0),) * dimension
        self.drift = np.full((3, dimension), 0.3)
        self.drift[1, ::2] *= -1
        self.drift[2, 1::2] *= -1

    def sample(self, states: Any, action: int, rng: np.random.Generator) -> Any:
        """Draw s' for each state."""
        turned = 0.8 * states + 0.6 * np.roll(states, 1, axis=1) * np.where(np.arange(states.shape[1]) % 2, 1, -1)
        return np.clip(0.5 * turned + self.drift[action] + 0.5 * rng.normal(size=states.shape), -1.0, 1.0)


def cost(task: list[Any]) -> dict[str, Any] | None:
    """Seconds to estimate and to solve in one basis; None where it is larger than allowed."""
    dimension, index, factor, most, samples, seed = task
    basis, simulator = product(*[certirl.Legendre(factor)] * dimension, index=index), Turning(dimension)
    if basis.size > most:
        return None
    data = certirl.steps.sample(simulator, basis=basis, samples=samples, rng=seed, design=True, paired=True)
    with one_blas_thread, on(1):
        start = time.process_time()
        operators = certirl.steps.estimate(data, basis=basis)
        middle = time.process_time()
        found = certirl.steps.recover(certirl.steps.bellman(operators, discount=0.7))
        end = time.process_time()
    return {
        "d": dimension,
        "index": index,
        "functions": basis.size,
        "grid": (2 * factor - 1) ** dimension,
        "estimate": middle - start,
        "program": end - middle,
        "rows": len(found.states),
        "solves": found.rounds,
        "status": found.status,
    }


def corner(states: Any) -> Any:
    """A reward for the corner (1, 1, …)."""
    return 3 * np.asarray(states).sum(axis=1)


def needed(task: list[Any]) -> dict[str, Any]:
    """How many fresh transitions a certificate of the corner reward should take, were the tail zero."""
    dimension, index, factor, seed = task
    columns = product(*[certirl.Legendre(factor)] * dimension, index=index)
    problem = certirl.problems.whirl(dimension=dimension, noise=1.0)
    reach = 3.0 * dimension
    given = {"discount": 0.7, "expert": 0, "columns": columns, "reward_range": (-reach, reach)}
    found = certirl.certify(corner, problem, samples=FRESH, rng=seed, map=1, **given)
    return {"d": dimension, "index": index, "columns": columns.size, "needed": found.samples_needed}


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Run both parts and fit what grows."""
    setting = [arguments.factor, arguments.most, arguments.samples, arguments.seed]
    costs = runner(cost, [[d, index, *setting] for d in arguments.coordinates for index in INDEX_SETS], unit="bases")
    costs = [row for row in costs if row is not None]
    tasks = [
        [d, index, size, arguments.seed]
        for d in arguments.certified
        for index in INDEX_SETS
        for size in arguments.sizes
        if product(*[certirl.Legendre(size)] * d, index=index).size <= arguments.most
    ]
    samples = [row for row in runner(needed, tasks, unit="certificates") if row["needed"] is not None]
    K, seconds = (np.array([row[name] for row in costs], dtype=float) for name in ("functions", "estimate"))
    growth = fit_power_law(K, seconds)
    proofs = fit_power_law([row["columns"] for row in samples], [row["needed"] for row in samples])
    widest = max(costs, key=lambda row: row["grid"])
    summary = {
        "costs": costs,
        "samples of a certificate": samples,
        "estimation grows as functions to the power": growth.slope,
        "samples of a certificate grow as columns to the power": proofs.slope,
        "functions of a full set, by d": {str(d): arguments.factor**d for d in arguments.coordinates},
    }
    spent = widest["estimate"] + widest["program"]
    sentence = (
        f"Estimation grows as K^{growth.slope:.2f} in the number K of functions, whatever d; in {widest['d']} "
        f"coordinates {widest['functions']} functions ({widest['index']}) took {spent:.1f} s, where a grid of the same "
        f"fineness has {widest['grid']:,} points; a certificate takes k_s^{proofs.slope:.2f} samples."
    )
    table = [{"part": "cost", **row} for row in costs] + [{"part": "samples", **row} for row in samples]
    every = sorted({key for row in table for key in row})
    table = [{key: row.get(key, "") for key in every} for row in table]
    return study.Findings(summary, table, draw(costs, samples, arguments), sentence)


def draw(costs: list[dict[str, Any]], samples: list[dict[str, Any]], arguments: Arguments) -> Any:
    """Functions against d, seconds against functions, samples against columns."""
    figure, axes = plots.panels(1, 3)
    sizes, time_, proof = axes[0]
    d = np.array(arguments.coordinates)
    for index, colour, marker in zip(INDEX_SETS, plots.COLOURS[:3], "osD", strict=True):
        sets = [product(*[certirl.Legendre(arguments.factor)] * int(n), index=index).size for n in d]
        sizes.plot(d, sets, color=colour, marker=marker, label=index)
        own = [row for row in costs if row["index"] == index]
        K = [row["functions"] for row in own]
        for name, filled in (("estimate", colour), ("program", "none")):
            label = f"{'estimation' if name == 'estimate' else 'program'}, {index}"
            time_.plot(K, [row[name] for row in own], color=colour, mfc=filled, marker=marker, ls="", label=label)
        mine = [row for row in samples if row["index"] == index]
        for n, filled in zip(arguments.certified, (colour, "none"), strict=False):
            here = [row for row in mine if row["d"] == n]
            places = [row["columns"] for row in here], [row["needed"] for row in here]
            proof.plot(*places, color=colour, mfc=filled, marker=marker, ls="", label=f"{index}, d = {n}")
    sizes.plot(d, (2.0 * arguments.factor - 1) ** d, color="0.5", ls=":", label="grid as fine")
    sizes.set(yscale="log", xlabel="coordinates d", ylabel="functions", xticks=d)
    time_.set(xscale="log", yscale="log", xlabel="functions K", ylabel="processor seconds")
    proof.set(xscale="log", yscale="log", xlabel="columns", ylabel="fresh transitions per action")
    for ax in axes[0]:
        ax.legend(fontsize="xx-small", loc="upper left")
    return figure


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
