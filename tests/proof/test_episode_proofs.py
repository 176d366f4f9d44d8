"""Certificates from rows that depend on each other: all steps of episodes, or of one trajectory."""

import numpy as np
import pytest

import certirl
import episodes as experiment
from certirl import dynamics
from certirl.data.dependence import EPISODES, IN_ORDER, one_of_each
from certirl_check import check


def test_a_step_drawn_beforehand_follows_the_dynamics_and_one_of_those_at_hand_does_not():
    """A symmetric walk that ends beyond 0.5: the mean of all steps is 0, also of those that lead there."""
    rng, rows = np.random.default_rng(0), []
    states, running = rng.uniform(-0.5, 0.5, 30_000), np.arange(30_000)
    for _ in range(20):
        after = states + rng.uniform(-0.2, 0.2, len(states))
        rows.append((states, after, running))
        states, running = after[after < 0.5], running[after < 0.5]
    before, after, numbers = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.argsort(numbers, kind="stable")
    actions, given = np.zeros(len(before), dtype=int), {"domain": (-9, 9), "episodes": numbers[order]}
    log = certirl.Transitions(before[order], actions, after[order], **given)
    training, fresh = log.divided(0.3, rng)
    groups, steps = fresh.groups()
    at_hand = fresh.where(steps == rng.integers(np.bincount(groups))[groups])
    errors = []
    for chosen in (one_of_each(fresh, training, rng), at_hand):
        moved = (chosen.next_states - chosen.states)[:, 0]
        errors.append(abs(moved.mean()) / (moved.std() / len(moved) ** 0.5))
        assert len(np.unique(chosen.episodes)) == len(chosen) > 9_000
    assert errors[0] < 4 < 15 < errors[1]


def test_a_certificate_from_episodes_says_what_it_assumes_and_is_confirmed(tmp_path):
    problem = certirl.problems.circle(homes=(0.0, 2.5), pull=0.4, noise=0.8)
    log = experiment.logged(problem, 3_000, np.random.default_rng(1))
    _, steps = log.groups()
    sines = np.sin(log.states[:, 0] - 1.25)
    followed = np.flatnonzero(steps[1:] > 0)
    assert np.corrcoef(sines[followed], sines[followed + 1])[0, 1] > 0.6  # neighbouring steps are strongly dependent
    asked = {"discount": 0.5, "expert": 0, "columns": certirl.Fourier(9), "tail": problem.tail}
    certificate = certirl.certify(lambda s: np.cos(s[:, 0]), log, reward_range=(-1, 1), **asked)
    assert certificate.holds and certificate.margin < problem.true_margin(lambda s: np.cos(s[:, 0]), discount=0.5)
    assert certificate.samples > 0.7 * min(log.counts) and EPISODES in certificate.assumptions
    path = certificate.save(tmp_path / "c.npz")
    assert certirl.load(path).margin == certificate.margin
    assert check(path).verdict == "confirmed"


@pytest.mark.slow
def test_no_certificate_from_dependent_rows_is_false():
    runs = [experiment.judge([seed, 60_000]) for seed in range(6)]
    assert sum(run["spoiled"] for run in runs) >= 3 and any(run["holds"] for run in runs)
    assert not any(run["false"] or run["above"] for run in runs)
    assert all(run["correlation"] > 0.9 for run in runs if run["kind"] != "circle")


def test_one_trajectory_of_a_slow_state_certifies_a_policy_too(tmp_path):
    """Bands, visits and the span of the value, from steps that are correlated by 0.9; derived again by the checker."""
    problem = experiment.Slow(shift=(0.06, -0.06), keep=0.87)
    log = experiment.trajectory(problem, 40_000, np.random.default_rng(0))
    assert experiment.correlation(log) > 0.87
    switch = certirl.problems.Steps((0.03,), (1, 0))
    asked = {"expert": switch, "discount": 0.5, "columns": certirl.Legendre(5), "tail": 0.0, "tube": 0.45}
    certificate = certirl.certify(lambda s: s[:, 0] ** 2, log, reward_range=(0, 1), **asked)
    truth = certirl.problems.judge(problem, lambda s: s[:, 0] ** 2, switch, discount=0.5)
    far = np.abs(truth.truth.states[:, 0] - 0.03) > 0.45
    assert certificate.holds and 0 < certificate.margin < truth.margins[far].min()
    assert truth.regret <= certificate.regret and 0 < certificate.value_span < truth.span
    assert IN_ORDER in certificate.assumptions
    assert check(certificate.save(tmp_path / "c.npz")).verdict == "confirmed"


def test_a_trajectory_that_stays_in_the_middle_is_refused_with_what_to_do():
    rng, path = np.random.default_rng(0), [20.0]
    actions, noise = rng.integers(2, size=3_000), rng.normal(scale=0.8, size=3_000)
    for action, step in zip(actions, noise, strict=True):
        path.append(0.9 * path[-1] + 1.2 + 1.5 * action + step)
    log = certirl.Transitions(path[:-1], actions, path[1:], domain=(10, 30))
    tail = dynamics.GaussianNoise(std=0.8, slope=0.9)
    asked = {"discount": 0.9, "columns": certirl.Legendre(56, (10, 30)), "tail": tail}
    with pytest.raises(
        ValueError, match=r"of action 0 cannot tell 56 functions apart .*certirl.diagnose.coverage shows where"
    ):
        certirl.certify(lambda s: s[:, 0] / 30, log, expert=0, **asked)
