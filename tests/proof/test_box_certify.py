"""Certificates on boxes: solved, saved, refused, and nothing false is certified."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl import Legendre, Reward, problems, product
from certirl.functions.inequalities import SELF_EVENTS, log_term, self_bounded
from certirl.ground.domain import mesh
from mixed import Mixed
from sizes import sizes
from systems import Moving


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.97])
def test_self_bounded_sums_fail_as_rarely_as_promised(rate):
    rng, n = np.random.default_rng(4), 80
    weight = np.cos(np.linspace(0, 3, n))
    Z = weight * (rng.random((20_000, n)) < rate)
    deviation = np.abs(Z.sum(axis=1) - rate * weight.sum())
    for delta in (0.5, 0.05):
        radius = self_bounded((Z**2).sum(axis=1), 1.0, log_term(SELF_EVENTS, delta))
        assert (deviation >= radius).mean() <= delta
    # many small terms: the observed second moment decides
    assert self_bounded(np.array(100.0), 0.01, 6.0) < 1.1 * np.sqrt(2 * 6.0 * 100.0)


PROBLEM = problems.random_independent(seed=1)
BASIS = product(Legendre(5), Legendre(5))


@pytest.fixture(scope="module")
def solved():
    return certirl.solve(PROBLEM, expert=0, discount=0.7, basis=BASIS, columns=15, delta=0.05, tail=0, rng=0)


@pytest.mark.slow
def test_solve_draws_until_a_box_is_certified(solved):
    """The exact condition: the certified margin lies below the true one, which is positive."""
    assert solved.status == "certified" and "at every state" in str(solved)
    certificate = solved.certificate
    assert 0 < certificate.margin <= PROBLEM.true_margin(solved.reward, discount=0.7)
    assert sum(certificate.spending.values()) == pytest.approx(0.05)
    assert certificate.margin == pytest.approx(certificate.estimated - sum(certificate.losses.values()))


@pytest.mark.slow
def test_a_saved_certificate_of_a_box_comes_back(solved, tmp_path):
    path = solved.save(tmp_path / "box")
    again = certirl.load(path).certificate
    assert (again.margin, again.holds, again.spending) == (
        solved.certificate.margin,
        True,
        solved.certificate.spending,
    )
    raised = replace(solved, certificate=replace(solved.certificate, margin=123.0)).save(tmp_path / "raised")
    with pytest.raises(ValueError, match="larger than what follows from the sums"):
        certirl.load(raised)


@pytest.mark.slow
def test_certificates_of_logs_and_functions_never_lie(solved):
    """The same reward as a plain function, paired and not; turned upside down; and with a wrong tail left out."""
    asked = {"discount": 0.7, "expert": 0, "columns": BASIS.resized(15)}
    for paired in (True, False):
        log = certirl.steps.sample(PROBLEM, basis=BASIS, samples=6_000, rng=3, design=True, paired=paired)
        found = certirl.certify(lambda s: solved.reward(s), log, tail=0, **asked)
        assert found.grounds[0].evidence.paired == paired
        assert found.margin <= PROBLEM.true_margin(solved.reward, discount=0.7)
        assert any("stays within" in note for note in found.assumptions)
        turned = certirl.certify(lambda s: -solved.reward(s), log, tail=0, **asked)
        assert not turned.holds and turned.samples_needed is None
    assert certirl.certify(solved, PROBLEM, samples=60_000, rng=5).word == "conditional"


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(2, 6))
def test_no_false_certificate_on_a_box(count):
    """Rewards that are right or barely wrong, at δ = 0.5: a bound above the truth is rarer than that."""
    held = above = 0
    for seed in range(count):
        problem, rng = problems.whirl(noise=1.0 + 0.1 * seed), np.random.default_rng(seed)
        reward = certirl.steps.recover(certirl.steps.bellman(problem.operators(BASIS, 15), discount=0.5)).reward
        if seed % 2:
            noise = Reward(reward.basis, rng.normal(size=reward.basis.size) - reward.coefficients)
            reward = barely_wrong(problem, reward, noise, 0.5)
        truth = problem.true_margin(reward, discount=0.5)
        assert (truth > 0) == (seed % 2 == 0)
        found = certirl.certify(
            reward,
            problem,
            discount=0.5,
            expert=0,
            columns=BASIS,
            tail=problem.tail,
            delta=0.5,
            samples=30_000,
            rng=seed,
        )
        assert not (found.holds and truth <= 0)
        held, above = held + found.holds, above + (found.margin > truth)
    assert held >= count // 3 and above == 0


def barely_wrong(problem, reward, noise, discount):
    """The mixture whose true margin is just below zero: margins are linear in the reward."""
    states = mesh([np.linspace(low, high, 17) for low, high in problem.domain])
    ours, theirs = (problem.margins(r, states, discount=discount) for r in (reward, noise))
    shares = np.linspace(0, 1, 2001)
    margins = np.array([((1 - share) * ours + share * theirs).min() for share in shares])
    share = shares[np.argmax(margins < -1e-2)]
    return Reward(reward.basis, (1 - share) * reward.coefficients + share * noise.coefficients)


def test_wrong_calls_are_refused_in_a_sentence():
    full = product(Legendre(3), Legendre(3), index="full")
    with pytest.raises(ValueError, match="every simpler product"):
        certirl.solve(PROBLEM, expert=0, discount=0.7, basis=full, columns=8, delta=0.05, rng=0)
    with pytest.raises(ValueError, match="a tail from derivatives is for one coordinate"):
        certirl.certify(
            lambda s: s[:, 0],
            PROBLEM,
            discount=0.7,
            expert=0,
            columns=full,
            tail=certirl.dynamics.Smooth(1, 1.0),
            reward_range=(-1, 1),
            samples=900,
            rng=0,
        )


@pytest.mark.parametrize("expert", [0, lambda states: states[:, 0] > 0], ids=["one action", "switching"])
def test_more_than_three_coordinates_are_sent_to_scenarios(expert):
    four = Moving(((-1.0, 1.0),) * 4, (0.1, -0.1), keep=0.5, std=0.2)
    asked = {"expert": expert, "discount": 0.7, "rng": 0, "delta": 0.05}
    with pytest.raises(ValueError, match=r"for 3 coordinates at most.*certirl\.trials\.scenario"):
        certirl.certify(lambda states: states[:, 0], four, columns=product(*[Legendre(2)] * 4), **asked)
    for components in (None, [[0, 1, 2, 3]])[: 2 - callable(expert)]:
        with pytest.raises(ValueError, match=r"for 3 coordinates at most.*certirl\.trials\.scenario"):
            certirl.solve(four, components=components, **asked)


@pytest.mark.slow
def test_an_estimated_conflict_on_a_box_settles_nothing():
    problem = Mixed(PROBLEM)
    found = certirl.solve(
        problem, expert=0, discount=0.7, basis=BASIS, columns=15, delta=0.05, tail=0, samples=4_000, rng=0
    )
    assert found.status in ("undetermined", "solved")


@pytest.mark.slow
def test_three_coordinates_are_certified():
    """The corner reward of a whirl with much noise; the tail is that of the problem."""
    problem, columns = problems.whirl(dimension=3, noise=1.5), product(*[Legendre(4)] * 3)

    def corner(states):
        return 3 * states.sum(axis=1)

    found = certirl.certify(
        corner,
        problem,
        discount=0.5,
        expert=0,
        columns=columns,
        tail=problem.tail,
        samples=150_000,
        rng=0,
        reward_range=(-9, 9),
    )
    assert found.holds and 0 < found.tail < 1e-3
    assert found.margin <= problem.true_margin(corner, discount=0.5)
