"""Processor seconds from transitions to a certificate on a box, step by step: all threads together.

    OPENBLAS_NUM_THREADS=1 python benchmarks/box_time.py [--share 1.0] [--out benchmarks/results/box_time.json]

Two coordinates, 190 functions, all of them columns; three coordinates, 286 functions; three actions. A third of the
transitions finds the reward, the rest proves it. The program is solved for ‖α‖₁ as well, and from a tenth of the data,
which makes it harder.
"""

from __future__ import annotations

import time
from typing import Any

import certirl
import harness
from certirl import Legendre, problems, product
from certirl.ground.work import cores
from certirl.proof.case import Case
from certirl.proof.certificate import conclude
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates

SAMPLES = {2: 333_334, 3: 250_000}  # by the number of coordinates


def case(dimension, factor, samples):
    problem = problems.whirl(dimension=dimension, noise=1.0)
    basis = product(*[Legendre(factor)] * dimension).on(problem.domain)
    few = samples // 3
    training = certirl.steps.sample(problem, basis=basis, samples=few, rng=1, design=True, paired=True)
    fresh = certirl.steps.sample(problem, basis=basis, samples=samples - few, rng=2, design=True, paired=True)
    hard = certirl.steps.sample(problem, basis=basis, samples=3_000, rng=3, design=True, paired=True)
    times, marks = {}, [time.process_time()]

    def note(step):
        marks.append(time.process_time())
        times[step] = round(marks[-1] - marks[-2], 2)

    moments = certirl.steps.measure(training, basis=basis)
    note("moments")
    criterion = certirl.steps.bellman(certirl.steps.estimate(moments), discount=0.7)
    note("operators")
    found = certirl.steps.recover(criterion)
    note("program")
    case = Case.of(0, basis.on(problem.domain), n_actions=problem.n_actions, discount=0.7, tail=problem.tail)
    surrogates = fit_surrogates(case, found.reward, training, moments=[moments]).surrogates
    note("surrogate")
    evidence = gather(surrogates, fresh)
    note("evidence")
    certificate = conclude(case, surrogates, evidence, delta=0.05)
    note("bounds, the tail included")
    whole = round(marks[-1] - marks[0], 1)
    short = certirl.steps.bellman(certirl.steps.estimate(hard, basis=basis), discount=0.7)
    note("")
    rows = {}
    for objective in ("least-variance", "l1"):
        rows[objective] = len(certirl.steps.recover(short, objective=objective).states)
        note(f"program from 3,000 transitions, {objective}")
    del times[""]
    words = {
        "coordinates": dimension,
        "functions": basis.size,
        "transitions per action": samples,
        "processor seconds": times,
    }
    return words | {"whole, processor seconds": whole, "rows": rows, "second order": certificate.losses["second order"]}


def run(*, share: float = 1.0, factors: tuple[int, ...] = (19, 11)) -> dict[str, Any]:
    """Two and three coordinates; ``factors`` functions of each coordinate; fewer transitions for a first look."""
    certirl.solve(problems.whirl(), expert=0, discount=0.5, basis=product(Legendre(3), Legendre(3)), samples=500, rng=0)
    cases = [case(d, factor, int(share * SAMPLES[d])) for d, factor in zip(SAMPLES, factors, strict=True)]
    record = {"cores": cores(), "cases": cases}
    print(record)
    return record


if __name__ == "__main__":
    harness.main(run)
