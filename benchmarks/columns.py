"""Time, memory and transitions of certificates on a box of two coordinates, against the number of columns.

    OPENBLAS_NUM_THREADS=1 python benchmarks/columns.py [--constant 8 16 23 37 48] [--policy 8 16 23] [--out FILE]

s' = clip(s/2 + push_a + noise) on [−1, 1]², two actions that push along the diagonal, Gaussian noise. The narrower the
noise, the more columns the declared tail needs: all polynomials up to a degree. The expert of one action has the reward
s_1 + s_2; the one that switches pushes towards the diagonal s_1 + s_2 = 0, under −(s_1 + s_2)²/4, and is proved farther
than 0.3 from it. Each case runs on one thread of a process of its own: CPU seconds of what training data fix, of the
sums over fresh data and of the bounds, then of `certirl.check`; the peak memory of the process, before the check and
after it.

`least` is the number of transitions per action from which on training data forecast a certificate, with the error of
the value bounded at points and, up to 300 functions, by its length.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import certirl
import harness
from certirl import Legendre, product
from certirl.data.source import as_source
from certirl.functions.reward import bounded
from certirl.ground.domain import as_domain
from certirl.ground.work import on
from certirl.proof.case import Case
from certirl.proof.certificate import conclude, forecast, least_enough
from certirl.proof.certify import planned, split
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates

DISCOUNT, DELTA, TUBE, MOST = 0.7, 0.05, 0.3, 100_000_000
BOX = as_domain(((-1.0, 1.0), (-1.0, 1.0)))
FEW = 300  # functions up to which both bounds on the error of the value are compared
# By degree: the standard deviation of the noise, and the transitions per action of each kind of expert.
CASES = {
    4: (0.9, 5_000, 20_000),
    8: (0.6, 40_000, 300_000),
    16: (0.25, 80_000, 1_000_000),
    23: (0.16, 160_000, 2_000_000),
    37: (0.1, 400_000, 0),
    48: (0.08, 1_000_000, 0),
}


class Push:
    """s' = clip(s/2 ± 0.4 + noise) in both coordinates."""

    domain, n_actions, thread_safe = BOX, 2, True

    def __init__(self, std: float) -> None:
        self.std = std

    def sample(self, states: Any, action: int, rng: np.random.Generator) -> Any:
        """One next state for each state."""
        return np.clip(states / 2 + (0.4, -0.4)[action] + self.std * rng.standard_normal(states.shape), -1, 1)

    @property
    def tail(self) -> certirl.dynamics.GaussianNoise:
        """What is declared."""
        return certirl.dynamics.GaussianNoise(std=np.full(2, self.std), slope=np.eye(2) / 2)


def towards_the_diagonal(states: Any) -> Any:
    """Push down above the diagonal, up below it."""
    return (states.sum(axis=1) > 0).astype(int)


def upwards(states: Any) -> Any:
    """The reward of the expert of one action."""
    return states.sum(axis=1)


def middle(states: Any) -> Any:
    """The reward of the expert that switches."""
    return -(states.sum(axis=1) ** 2) / 4


def megabytes() -> float:
    """The peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measured(degree: int, switching: bool, std: float, samples: int, seed: int) -> dict[str, Any]:
    """One certificate: time, memory, margin, and from how many transitions on one is forecast."""
    before, problem = megabytes(), Push(std)
    columns = product(Legendre(degree + 1), Legendre(degree + 1)).on(BOX)
    settings: dict[str, Any] = {"n_actions": 2, "discount": DISCOUNT, "tail": problem.tail}
    settings |= {"tube": TUBE} if switching else {}
    case = Case.of(towards_the_diagonal if switching else 0, [columns], **settings)
    reward = bounded(middle, BOX, (-1.0, 0.0)) if switching else bounded(upwards, BOX, (-2.0, 2.0))
    source = as_source(problem)
    with on(1):
        training, fresh = split(source, columns, samples, seed, False, role="certify", paired=True, design=case.design)
        plan = {"samples": planned(source, samples, fresh), "delta": DELTA}
        fixed, fit = harness.clock(lambda: fit_surrogates(case, reward, training, **plan))
        summed, evidence = harness.clock(lambda: gather(fit.surrogates, fresh))
        bound, certificate = harness.clock(lambda: conclude(case, fit.surrogates, evidence, delta=DELTA))
        most = megabytes()
        with TemporaryDirectory() as folder:
            file = Path(folder) / "certificate.npz"
            certificate.save(file)
            size = os.path.getsize(file) / 1e6
            checked, answer = harness.clock(lambda: certirl.check(file))
    used = len(fit.surrogates[0].mix)
    fits = {"at points": fit}
    if used <= FEW:
        fits = {
            name: fit_surrogates(case, reward, training, **plan, pointwise=pointwise)
            for name, pointwise in (("at points", True), ("by its length", False))
        }
    least = {
        name: least_enough(lambda n, fit=fit: forecast(case, *fit, samples=n, delta=DELTA).margin > 0, 1_000, MOST)
        for name, fit in fits.items()
    }
    return {
        "columns": columns.size,
        "functions": used,
        "noise": std,
        "tail": case.parts[0].tail,
        "transitions per action": samples,
        "margin": certificate.margin,
        "estimated": float(certificate.estimated),
        "losses": certificate.losses,
        "certified": bool(certificate.margin > 0),
        "at points": fit.surrogates[0].pointwise,
        "least": least,
        "CPU seconds": {"fixed": fixed["cpu"], "sums": summed["cpu"], "bounds": bound["cpu"], "check": checked["cpu"]},
        "CPU nanoseconds of the sums over n·A·k·m": 1e9 * summed["cpu"] / (0.8 * samples * 2 * columns.size * used),
        "confirmed by the check": "Confirmed" in str(answer),
        "MB": most - before,
        "MB, with the check": megabytes() - before,
        "MB of the file": size,
    }


def run(
    *, constant: tuple[int, ...] = (8, 16, 23, 37, 48), policy: tuple[int, ...] = (8, 16, 23), seed: int = 1
) -> dict[str, Any]:
    """Measure every degree in a process of its own."""
    rows: dict[str, list[dict[str, Any]]] = {"constant": [], "policy": []}
    for name, degrees in (("constant", constant), ("policy", policy)):
        for degree in degrees:
            std, *samples = CASES[degree]
            asked = degree, name == "policy", std, samples[name == "policy"], seed
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                row = pool.apply(measured, asked)
            rows[name].append(row)
            seconds = sum(row["CPU seconds"].values())
            words = f"{name}, {row['columns']} columns, {row['transitions per action']:,} transitions per action"
            print(f"{words}: margin {row['margin']:.3g}, {seconds:.0f} s, {row['MB']:.0f} MB; least {row['least']}")
    return rows


if __name__ == "__main__":
    harness.main(run)
