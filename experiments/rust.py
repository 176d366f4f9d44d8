"""Bus engines of Rust (1987): costs by maximum likelihood without bins, and what 60 decisions determine.

    python experiments/rust.py [PATH] [--fast] [--workers N] [--seed S] [--out DIR]

PATH is the folder of the original files g870.asc, rt50.asc, t8h203.asc and a530875.asc; without it the simulated twin
`certirl.problems.buses()` is studied. R(s, keep) = −0.001·cost·s and R(s, replace) = −replacement, s the mileage since
the last replacement in 5,000 miles; the mileage of a month has the law that the log has, whatever s, and replacing
resets s to 0. Three answers for each group of buses and each discount:

- *full solution*: weights, standard errors and intervals of the likelihood ratio (`certirl.fit.structural`);
- *sure*: intervals that contain the weights with probability 0.95 for so many decisions as there are, if the law of the
  mileage is the one observed: the likelihood is at least that of a mixture over a law of weights that was fixed
  beforehand, times 0.05 (a martingale that begins at 1, by Markov's inequality);
- *free*: no weights. Log-odds are polynomials of s, in a set by the same argument (0.04); the law of the mileage is
  unknown (0.01, by the inequality of Dvoretzky, Kiefer and Wolfowitz). Statement and proof: docs/notes/resets.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import chi2, multivariate_normal

import certirl
import study
from certirl.fit.structural import Choices, StructuralFit, choices_of, fit_weights
from certirl.proof.odds import gather_odds

FILES = "the folder of the original files; without it the simulated twin is studied"
GROUPS = {"4": ("a530875",), "1 to 4": ("g870", "rt50", "t8h203", "a530875")}
PUBLISHED = {"4": (2.293, 10.075), "1 to 4": (2.628, 9.756)}  # cost and replacement of Table IX, by 90 bins
QUANTILES = 200  # of the mileage of a month
LAWS = 100  # quantiles that stand for this law in costs
MEANS = np.array([5.0, 20.0])  # of the law of the weights in the mixture, which is exponential
DELTA, LAW = 0.05, 0.01  # of the sure intervals, and of it for the law of the mileage
FARTHEST, PLACES = 80.0, (20.0, 40.0, 60.0)  # of log-odds that are polynomials; mileages at which costs are given
SPREAD = 6.0, 4.0  # mean and standard deviation of log-odds in the mixture, at as many mileages as there are functions
NAMES = ("cost", "replacement")


@dataclass(frozen=True)
class Arguments:
    """Which groups and discounts, polynomials of the log-odds, and draws of weights in a mixture."""

    groups: tuple[str, ...] = tuple(GROUPS)
    discounts: tuple[float, ...] = (0.99, 0.9999)
    sizes: tuple[int, ...] = (2, 3, 4)
    draws: int = 300
    directions: int = 1_500
    path: str = ""
    seed: int = 0


FAST = Arguments(groups=("4",), discounts=(0.9999,), sizes=(2,), draws=40, directions=100)


class Observed:
    """Buses that use what they used in some month of a log."""

    def __init__(self, logged: certirl.Transitions) -> None:
        self.used, self.most = (
            np.quantile(used_in(logged), (np.arange(QUANTILES) + 0.5) / QUANTILES),
            logged.domain[0][1],
        )

    def outcomes(self, states: Any, action: int) -> Any:
        """The mileage of a month by quantiles, after a reset the same."""
        kept = np.zeros_like(states) if action else states
        return np.minimum(kept + self.used[:, None, None], self.most), np.full(QUANTILES, 1 / QUANTILES)


def of_log(logged: certirl.Transitions, discount: float) -> Choices:
    """Decisions, their costs and effects."""
    costs = {
        "cost": lambda states, action: -0.001 * states[:, 0] * (action == 0),
        "replacement": lambda states, action: np.full(len(states), -float(action == 1)),
    }
    return choices_of(logged, Observed(logged), costs, discount)


def used_in(logged: certirl.Transitions) -> Any:
    """The mileage of months without a replacement ``[m]``."""
    states, after = logged.of_action(0)
    return (after - states)[:, 0]


def sure_intervals(choices: Choices, fit: StructuralFit, draws: int, seed: int) -> Any:
    """The weights at which the likelihood is at least DELTA times that of the mixture, each by itself ``[2, 2]``."""
    law = multivariate_normal(fit.weights, 1.5 * fit.covariance, seed=seed)
    points = law.rvs(draws)
    points, value = points[(points > 0).all(axis=1)], choices.value(fit.weights)
    totals = []
    for weights in points:
        value = choices.value(weights, value.chances)
        totals.append(choices.likelihood(weights, value).total)
    prior = -(points / MEANS).sum(axis=1) - np.log(MEANS).sum()
    mixture = logsumexp(np.array(totals) + prior - law.logpdf(points)) - log(draws)
    drop = fit.log_likelihood - mixture - log(DELTA)
    return fit_weights(choices, level=float(chi2.cdf(2 * drop, 1))).intervals


class FreeOdds:
    """Log-odds of keeping that are polynomials of the mileage: their likelihood, and a set that contains them."""

    def __init__(self, logged: certirl.Transitions, size: int) -> None:
        self.basis = certirl.Legendre(size, interval=(0, FARTHEST))
        self.x, self.keep = self.basis.values(logged.states), np.where(logged.actions == 0, 1.0, -1.0)
        self.best, ridge = np.zeros(size), 1e-9
        for _ in range(100):
            chance = 1 / (1 + np.exp(-self.x @ self.best))
            slope = self.x.T @ ((self.keep > 0) - chance)
            self.information = (self.x * (chance * (1 - chance))[:, None]).T @ self.x + ridge * np.eye(size)
            step = np.linalg.solve(self.information, slope)
            self.best = self.best + step * min(1.0, 3 / max(float(np.abs(self.x @ step).max()), 1e-300))
            if slope @ step < 1e-12:
                break
        self.total = float(self.likelihood(self.best[None])[0])

    def likelihood(self, each: Any) -> Any:
        """The log-likelihood of some coefficients ``[m, K]``."""
        return np.array([-np.logaddexp(0.0, -self.keep * (self.x @ weights)).sum() for weights in each])

    def limit(self, delta: float, draws: int, seed: int) -> float:
        """The likelihood below which coefficients are not in the set."""
        law, size = multivariate_normal(self.best, 1.5 * np.linalg.inv(self.information), seed=seed), self.basis.size
        points, (middle, deviation) = law.rvs(draws), SPREAD
        there = self.basis.values(FARTHEST * (np.arange(size) + 0.5) / size)  # from coefficients to log-odds
        prior = -0.5 * (((points @ there.T - middle) / deviation) ** 2).sum(axis=1) + np.linalg.slogdet(there)[1]
        prior -= size * log(deviation * sqrt(2 * np.pi))
        return float(logsumexp(self.likelihood(points) + prior - law.logpdf(points)) - log(draws) + log(delta))

    def around(self, limit: float, directions: int, seed: int) -> Any:
        """Coefficients of the set ``[m, K]``: on its boundary in some directions, and on the way there."""
        size, rng = self.basis.size, np.random.default_rng(seed)
        ways = rng.standard_normal((directions, size)) @ np.linalg.inv(np.linalg.cholesky(self.information))
        ways /= np.sqrt(np.einsum("ni,ij,nj->n", ways, self.information, ways))[:, None]
        low, high = np.zeros(directions), np.full(directions, sqrt(2 * (self.total - limit)))
        while (inside := self.likelihood(self.best + high[:, None] * ways) > limit).any():
            high[inside] *= 2
        for _ in range(20):
            middle = (low + high) / 2
            inside = self.likelihood(self.best + middle[:, None] * ways) > limit
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        shares = np.linspace(0.0, 1.0, 6)[:, None, None]
        return (self.best + shares * (high[:, None] * ways)).reshape(-1, size)


def free_costs(odds: FreeOdds, each: Any, used: Any, discount: float, away: float) -> tuple[Any, Any, Any]:
    """The replacement cost ``[m]``, and costs of keeping at `PLACES` ``[m, q]`` with what the unknown law adds."""
    law = np.quantile(used, (np.arange(LAWS) + 0.5) / LAWS, method="inverted_cdf")
    fine = np.linspace(0.0, used.max(), 60)
    costs, adds = [], []
    start = odds.basis.values([0.0]) @ each.T

    def surprise(mileage: Any) -> Any:
        return np.logaddexp(0.0, odds.basis.values(np.minimum(mileage, FARTHEST)) @ each.T)

    for place in PLACES:
        there = odds.basis.values([place]) @ each.T
        later = surprise(place + law).mean(axis=0) - surprise(law).mean(axis=0)
        costs.append((start - there)[0] + discount * later)
        rise = surprise(place + fine) - surprise(fine)
        adds.append(discount * away * np.abs(np.diff(rise, axis=0)).sum(axis=0))
    return start[0], np.stack(costs, axis=1), np.stack(adds, axis=1)


def free_bands(logged: certirl.Transitions, size: int, arguments: Arguments) -> dict[str, Any]:
    """What free log-odds say of the costs."""
    odds, used = FreeOdds(logged, size), used_in(logged)
    limit = odds.limit(DELTA - LAW, 5 * arguments.draws, arguments.seed)
    each = np.concatenate([odds.best[None], odds.around(limit, arguments.directions, arguments.seed)])
    n, least = len(logged.states), int(0.9 * len(logged.states))
    assert len(used) >= least
    away = sqrt(log(2 * (n - least + 1) / LAW) / (2 * least)) + 1 / (2 * LAWS) + 1 / n  # of the quantiles from the law
    first = np.arange(n) % 10 == 0
    gathered = gather_odds(odds.basis, logged.states, logged.actions, 2, first=first, reference=1)
    reach = gathered.reach(DELTA - LAW)
    width = None if reach is None else float(np.linalg.norm(gathered.functionals(np.zeros((1, 1)), 0) @ reach))
    record: dict[str, Any] = {"log-likelihood": odds.total, "fallen by": odds.total - limit}
    record["half-width of the replacement cost by the set of prove_band"] = width
    for discount in arguments.discounts:
        new, costs, adds = free_costs(odds, each, used, discount, away)
        bands = {f"{place:g}": (costs[0, i], (costs - adds)[:, i].min(), (costs + adds)[:, i].max())
                 for i, place in enumerate(PLACES)}  # fmt: skip
        record[f"{discount:g}"] = {
            "replacement": rounded((new[0], new.min(), new.max())),
            "cost of a month": {place: rounded(band) for place, band in bands.items()},
            "slope × 1000": rounded(1000 * np.array(bands[f"{PLACES[-1]:g}"]) / PLACES[-1]),
        }
    return record


def rounded(values: Any) -> list[float]:
    """Numbers with five digits."""
    return [float(f"{value:.5g}") for value in np.ravel(values)]


def trial(task: Sequence[Any]) -> dict[str, Any]:
    """All answers for a group of buses."""
    group, arguments = task[0], Arguments(**task[1])
    start = time.process_time()
    if arguments.path:
        logged = certirl.problems.read_buses(arguments.path, GROUPS[group])
    else:
        buses = {"4": 37, "1 to 4": 104}[group]
        logged = certirl.problems.buses().log(buses=buses, months=78, rng=arguments.seed)
    record: dict[str, Any] = {"group": group, "decisions": len(logged.states), "replacements": int(logged.counts[1])}
    record["published" if arguments.path else "true"] = list(PUBLISHED[group] if arguments.path else (2.5, 10.0))
    share = logged.counts[1] / len(logged.states)
    constant = len(logged.states) * (share * log(share) + (1 - share) * log(1 - share))
    for discount in arguments.discounts:
        choices = of_log(logged, discount)
        fit = fit_weights(choices)
        sure = sure_intervals(choices, fit, arguments.draws, arguments.seed)
        numbers = {
            name: {
                "weight": rounded(fit.weights[i])[0],
                "standard error": rounded(fit.standard_errors[i])[0],
                "likelihood ratio": rounded(fit.intervals[i]),
                "sure": rounded(sure[i]),
            }
            for i, name in enumerate(NAMES)
        }
        record[f"{discount:g}"] = numbers | {"log-likelihood": fit.log_likelihood, "error of V": fit.residual}
        for size in arguments.sizes:
            odds = FreeOdds(logged, size)
            chance = 1 / (1 + np.exp(-odds.basis.values(np.minimum(choices.nodes.states, FARTHEST)) @ odds.best))
            first = np.stack([chance, 1 - chance])
            steps = [rounded(fit_weights(choices, first=first, steps=steps).weights) for steps in (1, 5)]
            record[f"{discount:g}"][f"two steps, {size} functions"] = dict(
                zip(("once", "five times"), steps, strict=True)
            )
    record["log-likelihood of constant chances"] = constant
    record["free"] = {str(size): free_bands(logged, size, arguments) for size in arguments.sizes}
    record["processor seconds"] = time.process_time() - start
    return record


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """All groups."""
    settings = {name: getattr(arguments, name) for name in Arguments.__dataclass_fields__}
    runs = runner(trial, [[group, settings] for group in arguments.groups], unit="groups")
    summary = {record["group"]: record for record in runs}
    discount, sentences = f"{max(arguments.discounts):g}", []
    for record in runs:
        costs, known = record[discount], record.get("published", record.get("true"))
        each = "; ".join(
            f"{name} {costs[name]['weight']:.3f} ({'published' if arguments.path else 'true'} {value:g}; likelihood "
            f"ratio {costs[name]['likelihood ratio'][0]:.2f} to {costs[name]['likelihood ratio'][1]:.2f}, sure "
            f"{costs[name]['sure'][0]:.2f} to {costs[name]['sure'][1]:.2f})"
            for name, value in zip(NAMES, known, strict=True)
        )
        free = record["free"][str(max(arguments.sizes))][discount]
        sentences.append(
            f"groups {record['group']}, {record['decisions']:,} decisions, {record['replacements']} replacing: {each}; "
            f"with free log-odds of {max(arguments.sizes)} functions replacement {free['replacement'][1]:.3g} to "
            f"{free['replacement'][2]:.3g}, cost of a month at {PLACES[1]:g} {free['cost of a month']['40'][1]:.3g} to "
            f"{free['cost of a month']['40'][2]:.3g}; {record['processor seconds']:.0f} processor seconds"
        )
    return study.Findings(summary, [], None, "Discount " + discount + ". " + ". ".join(sentences) + ".")


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
