"""One contract over experts, states, components and sources: proved, printed, saved, read, checked."""

import itertools

import numpy as np
import pytest

import certirl
import files
from certirl import Legendre, product
from certirl.proof.case import REFUSED


class Coins:
    """Every coordinate goes to ±0.8, to the right with a probability that is linear in it: two columns, tail 0."""

    n_actions = 2

    def __init__(self, right, slopes, dimension):
        self.right, self.slopes = right, slopes
        self.domain = ((-1.0, 1.0),) * dimension

    def sample(self, states, action, rng):
        return np.where(rng.random(states.shape) < self.right[action] + self.slopes[action] * states, 0.8, -0.8)


def away_from_zero(states):
    return (states[:, 0] < 0).astype(int)


EXPERTS, DIMENSIONS, COMPONENTS, SOURCES = ("constant", "policy"), (1, 2), (1, 2), ("simulator", "log")
CELLS, SLOW = list(itertools.product(EXPERTS, DIMENSIONS, COMPONENTS, SOURCES)), [("policy", 2, 1, "log")]
SENTENCES = {
    ("constant", 1, 2): "component s1 names coordinate 1, but states have 0 … 0",
    ("policy", 1, 2): REFUSED["policy", "sum"],
    ("policy", 2, 2): REFUSED["policy", "sum"],
}


def source_of(expert, dimension, source):
    """The coins of the expert, or a log of them."""
    first = np.arange(dimension) == 0  # a policy acts on the first coordinate
    constant, policy = ((0.7, 0.3), (0.1, 0.1)), ((0.5, 0.5), (0.4 * first, -0.4 * first))
    coins = Coins(*(constant if expert == "constant" else policy), dimension)
    if source == "simulator":
        return coins
    return certirl.steps.sample(coins, basis=product(*[Legendre(3)] * dimension), samples=8_000, rng=1)


def solved(expert, dimension, components, source):
    asked = {"discount": 0.7, "delta": 0.05, "tail": 0, "progress": False}
    if expert == "policy":
        asked |= {"expert": away_from_zero, "tube": 0.5}
        asked["columns"] = product(*[Legendre(2)] * dimension)
    else:
        factors = dimension if components == 1 else 1
        asked |= {"expert": 0, "columns": 1 + factors, "basis": product(*[Legendre(3)] * factors)}
    if components == 2:
        asked["components"] = [[0], [1]]
    if source == "simulator":
        asked |= {"samples": 20_000, "rng": 0}
    return certirl.solve(source_of(expert, dimension, source), **asked)


def contents(path):
    """The record of a file, and its arrays as lists; without what a certificate assumes, which reading replaces."""
    record, arrays = files.parts(path)
    del record["certificate"]["assumptions"]
    return record, {place: array.tolist() for place, array in arrays.items()}


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=[pytest.mark.slow] * (cell in SLOW)) for cell in CELLS], ids=str
)
def test_every_cell_is_proved_printed_saved_read_and_checked_or_refused(cell, tmp_path):
    if cell[:3] in SENTENCES:
        with pytest.raises(ValueError, match=SENTENCES[cell[:3]]):
            solved(*cell)
        return
    solution = solved(*cell)
    assert type(solution) is certirl.Solution and solution.status == "certified"
    assert solution.certificate.margin > 0
    assert len(str(solution).splitlines()) <= (7 if cell[2] > 1 else 6)  # a sum has a line of its components
    path = solution.save(tmp_path / "first")
    again = certirl.load(path)
    assert contents(again.save(tmp_path / "second")) == contents(path)
    states = np.random.default_rng(0).uniform(-1, 1, (20, len(solution.domain)))
    assert np.array_equal(again.reward(states), solution.reward(states))
    assert again.certificate.margin == solution.certificate.margin
    verdict = certirl.check(path)
    assert verdict.verdict == "confirmed"
    assert verdict.margin == pytest.approx(solution.certificate.margin, rel=1e-6)
    assert verdict.margin <= solution.certificate.margin


def margin(dimension, reward=lambda s: s.sum(axis=1), **changes):
    asked = {"discount": 0.7, "columns": product(*[Legendre(2)] * dimension), "tail": 0, "samples": 8_000, "rng": 0}
    coins = source_of("constant", dimension, "simulator")
    return certirl.certify(reward, coins, progress=False, **asked | {"expert": 0} | changes).margin


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_an_action_and_a_function_that_takes_it_everywhere_have_the_same_margin(dimension):
    by_function = margin(dimension, expert=lambda s: np.zeros(len(s), dtype=int))
    assert margin(dimension) == pytest.approx(by_function, abs=1e-9)
    assert by_function > 0


def test_one_component_and_a_product_of_one_factor_have_the_margin_of_the_plain_problem():
    line = certirl.Reward(Legendre(2).on(((-1.0, 1.0),)), np.array([0.0, 1.0]))
    plain = margin(1, line)
    assert plain > 0
    assert margin(1, certirl.Reward.sum([line], [[0]])) == pytest.approx(plain, abs=1e-9)
    assert margin(1, line, columns=product(Legendre(2)).on(line.domain)) == pytest.approx(plain, abs=1e-9)


def test_solve_proves_the_same_of_one_component_as_of_the_plain_problem():
    problem = certirl.problems.random_polynomial(seed=3)
    asked = {"basis": Legendre(7), "columns": 3, "discount": 0.7, "delta": 0.05, "tail": 0.0, "rng": 0}
    plain, alone = (
        certirl.solve(problem, expert=0, samples=200_000, **asked, **more) for more in ({}, {"components": [[0]]})
    )
    assert plain.certificate.holds and plain.samples == alone.samples
    assert alone.certificate.margin == pytest.approx(plain.certificate.margin, abs=1e-9)
