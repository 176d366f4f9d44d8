"""Margins are at least those of the certificates that the one path replaced, on the same problems and seeds.

The recorded numbers are margins of the dedicated certificates (one action on an interval and on a box, policies, sums)
as they were before there was one path; the numbers of transitions are those of `certify`, training included.
"""

import numpy as np
import pytest

import box_switching
import certirl
from certirl import Fourier, Legendre, problems, product
from certirl.functions.bases import of_degree
from certirl.functions.components import as_components

SQUARE = ((-1.0, 1.0), (-1.0, 1.0))


def exact(problem, basis, columns, discount):
    """The reward that the exact operators lead to."""
    return certirl.steps.recover(certirl.steps.bellman(problem.operators(basis, columns), discount=discount)).reward


def polynomial(seed, **asked):
    problem = problems.random_polynomial(seed=seed)
    reward = exact(problem, Legendre(11), 3, 0.7)
    return problem, reward, {"expert": 0, "discount": 0.7, "columns": Legendre(3), "tail": 0, **asked}


def thermostat():
    problem = problems.thermostat()
    reward = exact(problem, Legendre(13), 13, 0.7)
    return problem, reward, {"expert": 0, "discount": 0.7, "columns": Legendre(13), "tail": problem.tail}


def warm():
    problem = problems.thermostat(noise=3.0)
    asked = {"expert": 0, "discount": 0.7, "columns": Legendre(7), "tail": problem.tail, "reward_range": (15, 25)}
    return problem, lambda s: s[:, 0], asked


def circle():
    problem = problems.circle()
    reward = exact(problem, Fourier(9), 9, 0.8)
    return problem, reward, {"expert": 0, "discount": 0.8, "columns": Fourier(9), "tail": problem.tail}


def whirl():
    problem, columns = problems.whirl(noise=1.0), of_degree(SQUARE, 5)
    reward = exact(problem, columns, 21, 0.5)
    return problem, reward, {"expert": 0, "discount": 0.5, "columns": columns, "tail": problem.tail}


def square():
    problem, columns = problems.random_independent(seed=1), product(Legendre(5), Legendre(5))
    return problem, exact(problem, columns, 15, 0.7), {"expert": 0, "discount": 0.7, "columns": columns, "tail": 0}


def room(columns, tube, **settings):
    found = problems.comfort(**settings)
    asked = {"expert": found.expert, "discount": found.discount, "columns": Legendre(columns), "tube": tube}
    return found.dynamics, found.reward, asked | {"tail": found.dynamics.tail}


def switching_whirl():
    problem = problems.Whirl(drift=((0.5, 0.5), (-0.5, -0.5)), angle=0.4, shrink=0.4, noise=0.8)
    asked = {"expert": box_switching.middle_line, "discount": 0.5, "columns": of_degree(SQUARE, 5), "tube": 0.5}
    return problem, lambda s: -(s**2).sum(axis=1), asked | {"tail": problem.tail}


def components():
    problem = problems.factorised(seed=0, components=3)
    parts = as_components(problem.components, Legendre(11), problem.domain)
    criteria = [certirl.steps.bellman(part.operators(Legendre(11), 3), discount=0.7) for part in problem.parts]
    reward = certirl.steps.recover(criteria, components=parts).reward
    return problem, reward, {"expert": 0, "discount": 0.7, "columns": Legendre(3), "tail": 0}


RECORDED = {
    "polynomial 1": (lambda: polynomial(1), 50_000, 0.5545),
    "polynomial 3": (lambda: polynomial(3), 50_000, -0.1842),
    "polynomial 7": (lambda: polynomial(7), 50_000, 0.4595),
    "polynomial 7, unpaired": (lambda: polynomial(7, paired=False), 150_000, 0.7252),
    "thermostat": (thermostat, 150_000, 0.7057),
    "thermostat, wide noise": (warm, 60_000, 0.5041),
    "circle": (circle, 60_000, 0.7770),
    "whirl": (whirl, 100_000, 0.6155),
    "polynomials on a square": (square, 200_000, 0.1239),
    "sum of three": (components, 80_000, 0.4152),
    "switching thermostat": (lambda: room(15, 0.05), 400_000, 0.00757),
    "switching thermostat, wide noise": (lambda: room(9, 0.1, noise=0.6, discount=0.7), 100_000, -0.00713),
    "switching whirl": (switching_whirl, 300_000, -0.0280),
}


# Policies at these sizes take seconds; one with wide noise stays among the fast tests.
SLOW = ("switching thermostat", "switching whirl")


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RECORDED])
def test_no_margin_is_smaller_than_before(name):
    make, samples, before = RECORDED[name]
    problem, reward, asked = make()
    found = certirl.certify(reward, problem, samples=samples, rng=1, progress=False, **asked)
    assert found.margin >= before - 1e-9
    assert np.isfinite(found.margin)
