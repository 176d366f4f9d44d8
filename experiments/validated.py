"""What the word validated is worth: how planning on R alone fares where it is given, and where it is not.

    python experiments/validated.py [--fast] [--workers N] [--seed S] [--out DIR]

MountainCar-v0 and Pendulum-v1 with three torques, from few states to many: `certirl.solve` says how far planning on R
alone is from the expert, which no return enters; then the return of the plan is measured, on the scale random = 0 %,
expert = 100 %. Beside them an inventory with an atom at 0, whose return is that of a cost that neither the expert nor R
was made for.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import certirl
import study
from played import Setting, returns, setting

GOOD = 0.97  # of the expert's return


@dataclass(frozen=True)
class Arguments:
    """States from which planning on R fails, and from which it does not."""

    environments: tuple[str, ...] = ("MountainCar-v0", "Pendulum-v1")
    discounts: tuple[float, ...] = (0.9, 0.99)
    samples: tuple[int, ...] = (500, 1000, 3000, 10_000)
    seeds: int = 3
    inventories: int = 8
    episodes: int = 50
    seed: int = 0


FAST = Arguments(environments=("Pendulum-v1",), discounts=(0.9,), samples=(500, 3000), seeds=1, inventories=2)


class Inventory:
    """Stock on 20 places: order 0, 4 or 8, then sell an exponential amount."""

    n_actions, domain = 3, ((0.0, 20.0),)

    def sample(self, states: Any, action: int, rng: np.random.Generator) -> Any:
        """Next states ``[n, 1]``."""
        return np.clip(np.minimum(states + [0, 4, 8][action], 20) - rng.exponential(4, states.shape), 0, 20)


def orders(states: Any) -> Any:
    """The expert of the inventory."""
    return np.where(states[:, 0] < 4, 2, np.where(states[:, 0] < 5, 1, 0))


def costs(policy: Any, seed: int = 0) -> float:
    """The mean discounted cost of a policy over 60 days: 0.2 a day for stock, 3 for a sale missed, 0.5 for an order."""
    rng = np.random.default_rng(seed)
    stock, total, weight, quantity = rng.uniform(0, 20, 2000), 0.0, 1.0, np.array([0, 4, 8])
    for _ in range(60):
        taken = rng.integers(3, size=len(stock)) if policy is None else policy(stock[:, None])
        asked, have = rng.exponential(4, len(stock)), np.minimum(stock + quantity[taken], 20)
        stock = np.maximum(have - asked, 0)
        total += weight * float(np.mean(0.2 * stock + 3 * np.maximum(asked - have, 0) + 0.5 * quantity[taken]))
        weight *= 0.95
    return total


def trip(task: list[Any]) -> dict[str, Any]:
    """Learn a reward with one seed, plan on it, and compare the returns."""
    name, discount, samples, episodes, seed = task
    if name == "inventory":
        solution = certirl.solve(Inventory(), expert=orders, discount=discount, samples=samples, rng=seed)
        planned = certirl.planning.plan(Inventory(), solution.reward, discount=discount)
        environment, earned = Setting(Inventory(), orders, -costs(orders), -costs(None)), -costs(planned)
    else:
        environment = setting(name, discount, episodes)
        solution = certirl.solve(
            environment.simulator, expert=environment.expert, discount=discount, samples=samples, rng=seed
        )
        planned = certirl.planning.plan(environment.simulator, solution.reward, discount=discount)
        earned = float(returns(name, planned, episodes).mean())
    outside = solution.stats.outside_share
    return {
        "problem": name,
        "discount": discount,
        "samples": samples,
        "seed": seed,
        "status": solution.status,
        "regret": solution.stats.planned_regret,
        "loss": solution.stats.planned_loss,
        "gap": max(solution.stats.planned_regret, solution.stats.planned_loss),
        "agreement": solution.stats.planned_share.count / solution.stats.planned_share.n,
        "preferred outside the tube": outside.count / outside.n,
        "share": environment.share(earned),
    }


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All problems, numbers of states and seeds."""
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    tasks = [
        [name, discount, samples, arguments.episodes, seed]
        for name in arguments.environments
        for discount in arguments.discounts
        for samples in arguments.samples
        for seed in seeds
    ]
    tasks += [["inventory", 0.95, 10_000, 0, arguments.seed + number] for number in range(arguments.inventories)]
    runs = runner(trip, tasks, unit="round trips")
    played = [run for run in runs if run["problem"] != "inventory"]
    groups = {word: [run["share"] for run in played if run["status"] == word] for word in ("validated", "solved")}
    counts = {
        word: {
            "runs": len(shares),
            f"at least {GOOD:.0%} of the expert's return": sum(share >= GOOD for share in shares),
            "worst": min(shares, default=None),
            "mean": float(np.mean(shares)) if shares else None,
        }
        for word, shares in groups.items()
    }
    stock = [run for run in runs if run["problem"] == "inventory"]
    statuses = {word: sum(run["status"] == word for run in stock) for word in ("validated", "solved", "undetermined")}
    summary = {"environments": counts, "inventory": statuses, "inventory gaps": [run["gap"] for run in stock]}
    good = f"at least {GOOD:.0%} of the expert's return"
    sentence = "; ".join(
        f"{word}: {row[good]} of {row['runs']} runs earn {good}, the worst {row['worst']:.1%}"
        for word, row in counts.items()
        if row["runs"]
    )
    return study.Findings(summary, runs, None, f"{sentence}; inventory: {statuses}.")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
