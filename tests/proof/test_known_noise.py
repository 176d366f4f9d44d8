"""Certificates that use the law of the noise: docs/notes/known-noise.md, against an independent quadrature."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import certirl
from certirl.cli import main
from certirl.ground import archive
from certirl.proof.drift import RIDGES, Drift, DriftSums, _inside, fit_drift, radius
from certirl.proof.known_noise import prove
from certirl_check import known_noise as checker

THETA = np.array([[0.24, 0.9], [-0.36, 0.9]])


class Line:
    """s' = clip(m_a(s) + ξ) on [−1, 1]."""

    n_actions, domain = 2, ((-1.0, 1.0),)

    def __init__(self, theta=THETA, std=0.3, bend=0.0):
        self.theta, self.std, self.bend = theta, std, bend

    def sample(self, states, action, rng):
        drift = self.theta[action, 0] + self.theta[action, 1] * states + self.bend * states**2
        return self.placed(drift + rng.normal(scale=self.std, size=states.shape))

    def placed(self, after):
        return np.clip(after, -1, 1)


class Mirrored(Line):
    """The same, reflected at the ends in place of clipped."""

    def placed(self, after):
        return np.clip(np.where(np.abs(after) > 1, np.sign(after) * 2 - after, after), -1, 1)


class Single(Line):
    """On an interval whose ends are no numbers of single precision, in which it works."""

    domain = ((0.1, 0.7),)

    def sample(self, states, action, rng):
        after = 0.4 + 0.3 * super().sample((states - 0.4) / 0.3, action, rng)
        return np.clip(after.astype(np.float32), np.float32(0.1), np.float32(0.7)).astype(float).clip(0.1, 0.7)


def quadrature(theta, std, discount, reward, chosen, per_cell=4):
    """(P_aV)(nodes) [A, N + 1] and V(nodes) by Gauss and Legendre's rule on every cell, the ends apart."""
    nodes = np.linspace(-1, 1, len(reward))
    places, weights = np.polynomial.legendre.leggauss(per_cell)
    h = nodes[1] - nodes[0]
    inner = (nodes[:-1, None] + (places + 1) * h / 2).ravel()
    every = np.concatenate([[-1.0, 1.0], inner])
    rewards = np.interp(every, nodes, reward)
    policy = np.concatenate([chosen[[0, -1]], np.repeat(chosen[:-1], per_cell)])  # cells of the left end

    def operator(states, action):
        mean = theta[action, 0] + theta[action, 1] * states
        rows = (
            norm.pdf(every[None], mean[:, None], std)
            * np.concatenate([[0, 0], np.tile(weights, len(nodes) - 1)])
            * h
            / 2
        )
        rows[:, 0], rows[:, 1] = norm.cdf(-1, mean, std), norm.sf(1, mean, std)
        return rows

    moves = np.stack([operator(every, action) for action in range(len(theta))])
    value = np.linalg.solve(np.eye(len(every)) - discount * moves[policy, np.arange(len(every))], rewards)
    after = np.stack([operator(nodes, action) @ value for action in range(len(theta))])
    return after, reward + discount * after[chosen, np.arange(len(nodes))]


def certify(reward, source, *, std, cells=1000, **asked):
    return certirl.certify(reward, source, dynamics=certirl.dynamics.AffineGaussian(std, cells), **asked)


def setting(kind, cells=60):
    nodes = np.linspace(-1, 1, cells + 1)
    if kind == "switch":
        return -np.abs(nodes - 0.02), (nodes > 0.0).astype(int)
    return nodes + 0.2 * np.sin(4 * nodes), np.zeros(cells + 1, dtype=int)


def test_the_score_is_within_its_radius_as_often_as_promised():
    rng, runs, n, delta, std = np.random.default_rng(0), 4000, 8, 0.2, 0.5
    states = rng.uniform(-1, 1, (runs, 2, n))
    mean = THETA[:, :1] + THETA[:, 1:] * states
    after = np.clip(mean + std * rng.normal(size=mean.shape), -1, 1)
    low, high = (-1 - mean) / std, (1 - mean) / std
    at_wall = np.where(after <= -1, -norm.pdf(low) / norm.cdf(low), norm.pdf(high) / norm.sf(high))
    scores = np.where(np.abs(after) >= 1, at_wall, (after - mean) / std)
    x = np.stack([np.ones_like(states), states], axis=-1)
    total, gram = np.einsum("rani,ran->rai", x, scores), np.einsum("rani,ranj->raij", x, x)
    squares = np.einsum("rai,rai->r", total, np.linalg.solve(gram, total[..., None])[..., 0])
    share = np.mean(squares >= radius(4, delta) ** 2)
    assert share < delta and np.mean(squares >= radius(4, delta) ** 2 / 2) > delta / 2  # true, and not by far
    assert radius(4, 0.05) ** 2 == pytest.approx(11.836, abs=1e-3)


def test_the_set_of_drifts_holds_the_true_one():
    rng, runs, n, delta = np.random.default_rng(1), 60, 60, 0.2
    outside, widths = 0, []
    for _ in range(runs):
        states = rng.uniform(-1, 1, (2, n))
        after = np.clip(THETA[:, :1] + THETA[:, 1:] * states + 0.3 * rng.normal(size=states.shape), -1, 1)
        sums = DriftSums.of(states.ravel(), np.repeat([0, 1], n), after.ravel(), 2, "independent")
        drift = fit_drift(sums, 0.3, delta, 1.0)
        error = THETA - drift.coefficients
        outside += np.einsum("ai,aij,aj", error, np.linalg.inv(drift.shape), error) > 1
        widths.append(drift.spread(np.zeros(1))[0, 0])
    assert outside <= delta * runs
    assert np.median(widths) < 1.4 * 0.3 * radius(4, delta) / np.sqrt(n)  # as if nothing had been clipped, nearly


def test_next_states_in_single_precision_are_seen_to_be_at_the_ends():
    asked, outside = {"std": 0.09, "discount": 0.7, "expert": 0, "samples": 150, "cells": 50, "delta": 0.2}, 0
    for seed in range(12):
        proof = certify(lambda states: states[:, 0], Single(), rng=seed, **asked)
        states = np.linspace(0.1, 0.7, 7)
        estimated, error = proof.drifts(states)
        truth = 0.4 + 0.3 * (THETA[:, :1] + THETA[:, 1:] * (states - 0.4) / 0.3)
        outside += (np.abs(estimated - truth) > error).any()
        at_ends = len(proof.noise.sums.walls)
        assert at_ends > 20  # also those that single precision puts inside
    assert outside <= 3


def test_what_depends_on_other_states_or_is_no_number_gets_a_sentence():
    reward, asked = (lambda states: states[:, 0]), {"std": 0.3, "discount": 0.7, "expert": 0, "samples": 500, "rng": 0}
    for change, message in (
        ({"expert": lambda s: s[:, 0] > s.mean()}, "changes from call to call"),
        ({"std": 1e-9}, "too narrow"),
        ({"delta": 0.6}, "between 1e-100 and 0.5"),
        ({"samples": 10**9}, "samples must be"),
    ):
        with pytest.raises(ValueError, match=message):
            certify(reward, Line(), **asked | change)
    for wrong, message in (
        (lambda s: -np.abs(s[:, 0] - s.mean()), "depend on one state alone"),
        (lambda s: 1e250 * s[:, 0], "double precision cannot square"),
        (certirl.Reward(certirl.Cells((20_001,), box=((-1, 1),)), np.linspace(0, 1, 20_001)), "at most 4,000"),
    ):
        with pytest.raises(ValueError, match=message):
            certify(wrong, Line(), **asked)


def test_a_large_constant_in_the_reward_is_paid_for_and_every_lower_bound_is_below_the_margin():
    grid = certirl.Cells((51,), box=((-1, 1),))
    plain = certirl.Reward(grid, np.round(grid.points()[:, 0] * 64) / 64)
    raised = certirl.Reward(grid, plain.coefficients + 2.0**44)
    asked = {"std": 0.3, "discount": 0.7, "expert": 0, "samples": 2000, "rng": 0, "cells": 50}
    proofs = [certify(reward, Line(), **asked) for reward in (plain, raised)]
    assert proofs[1].losses["floating point"] > 2.0**44 * 2.0**-50 and proofs[1].margin < proofs[0].margin
    for proof in proofs:
        assert np.nanmin(proof.advantage(np.linspace(-1, 1, 201))[1]) == pytest.approx(proof.margin, rel=1e-12)


def walk(runs, steps, rng, std=0.3):
    """Trajectories with actions that depend on the state: states, actions and next states [steps, runs]."""
    states, rows = rng.uniform(-1, 1, runs), []
    for _ in range(steps):
        actions = (rng.uniform(-1, 1, runs) < states).astype(int)
        after = np.clip(THETA[actions, 0] + THETA[actions, 1] * states + std * rng.normal(size=runs), -1, 1)
        rows.append((states, actions, after))
        states = after
    return (np.array(column) for column in zip(*rows, strict=True))


def test_of_dependent_rows_the_bound_holds_at_every_time_at_once():
    runs, delta, std = 600, 0.3, 0.3
    states, actions, after = walk(runs, 80, np.random.default_rng(3), std)
    mean = THETA[actions, 0] + THETA[actions, 1] * states
    low, high = (-1 - mean) / std, (1 - mean) / std
    at_wall = np.where(after <= -1, -norm.pdf(low) / norm.cdf(low), norm.pdf(high) / norm.sf(high))
    scores = np.where(np.abs(after) >= 1, at_wall, (after - mean) / std)
    x = np.eye(2)[actions][..., None] * np.stack([np.ones_like(states), states], axis=-1)[..., None, :]
    total = np.cumsum(x * scores[..., None, None], axis=0)
    gram = np.cumsum(x[..., :, None] * x[..., None, :], axis=0)
    exceeded = np.zeros(runs, dtype=bool)
    for ridge in RIDGES:
        squares = (total * np.linalg.solve(gram + ridge * np.eye(2), total[..., None])[..., 0]).sum(axis=(-1, -2))
        limit = 2 * np.log(len(RIDGES) / delta) + np.log(np.linalg.det(np.eye(2) + gram / ridge)).sum(axis=-1)
        exceeded |= (squares >= limit).any(axis=0)
    assert exceeded.mean() < delta


def test_a_trajectory_is_ground_for_a_certificate(tmp_path):
    states, actions, after = (column.ravel() for column in walk(1, 12_000, np.random.default_rng(4)))
    log = certirl.Transitions(states, actions, after, domain=(-1, 1))
    asked = {"std": 0.3, "discount": 0.7, "expert": 0, "cells": 100}
    proof = certify(lambda s: s[:, 0], log, **asked)
    alone = certify(lambda s: s[:, 0], replace(log, independent=True), **asked)
    assert proof.holds and 0.5 * alone.margin < proof.margin < alone.margin
    assert "given everything before it" in str(proof)
    assert certirl.check(proof.save(tmp_path / "proof")).verdict == "confirmed"


@pytest.mark.parametrize("kind", ["switch", "constant"])
def test_bounds_are_the_true_values_where_the_drift_is_certain(kind):
    reward, chosen = setting(kind, cells=300)
    bounds = prove(Drift(THETA, np.full((2, 2, 2), 0.0) + 1e-22 * np.eye(2), 0.3), 0.8, reward, chosen)
    after, value = quadrature(THETA, 0.3, 0.8, reward, chosen)
    true = after[0] - after[1]
    assert np.abs(bounds.pairs[0, 1].curve - true[bounds.pairs[0, 1].node]).max() < 2e-3
    assert (bounds.pairs[0, 1].lower <= np.minimum(true[:-1], true[1:]) + 1e-9).all()
    assert bounds.pairs[0, 1].lower.max() > true.max() - 0.03
    assert 0.97 * np.ptp(value) < bounds.span <= np.ptp(value) + 1e-9


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", ["switch", "constant"])
@pytest.mark.parametrize("spread", [0.01, 0.03])
def test_no_bound_exceeds_the_truth(kind, spread):
    reward, chosen = setting(kind, cells=60 if kind == "constant" else 120)
    shape = spread**2 * np.array([[[1.0, 0.3], [0.3, 2.0]], [[0.8, -0.2], [-0.2, 1.5]]])
    bounds = prove(Drift(THETA, shape, 0.3), 0.7, reward, chosen)
    root, rng, tightest = np.linalg.cholesky(shape), np.random.default_rng(2), np.inf
    for _ in range(15):  # drifts on the edge of the set
        direction = rng.normal(size=(2, 2))
        tau = np.einsum("aij,aj->ai", root, direction / np.linalg.norm(direction))
        after, value = quadrature(THETA + tau, 0.3, 0.7, reward, chosen)
        assert bounds.span <= np.ptp(value)
        for (b, a), loss in bounds.pairs.items():
            true = after[b] - after[a]
            slack = np.minimum(true[:-1], true[1:]) - loss.lower
            assert slack.min() >= -1e-9
            tightest = min(tightest, float((slack / (loss.estimation + loss.second)).min()))
    assert tightest < 0.75  # the bounds are not much too wide either


@pytest.mark.parametrize("rows", ["independent", "paired", "dependent"])
def test_the_checker_has_the_same_set_of_drifts(rows):
    rng, n = np.random.default_rng(3), 400
    states, actions = rng.uniform(-1, 1, 2 * n), np.repeat([0, 1], n)
    after = np.clip(THETA[actions, 0] + THETA[actions, 1] * states + 0.3 * rng.normal(size=2 * n), -1, 1)
    sums = DriftSums.of(states, actions, after, 2, rows)
    assert len(sums.walls) > 50
    drift = fit_drift(sums, 0.3, 0.1, 1.0)
    own = [checker.Rows(*_inside(sums, action), *sums.at_wall(action), 1.0) for action in range(2)]
    again = checker._drifts(own, 0.3, 0.1, rows)
    assert again.theta == pytest.approx(drift.coefficients, abs=1e-7)
    assert again.shape == pytest.approx(drift.shape, rel=1e-5)
    functionals = rng.normal(size=(5, 2, 2))
    assert again.size(functionals) == pytest.approx(drift.size(functionals), rel=1e-5)


@pytest.mark.parametrize("kind", ["switch", "switches near an end", "constant"])
@pytest.mark.parametrize("spread", [0.003, 0.03])
def test_the_checker_derives_every_part_of_the_bounds(kind, spread):
    reward, chosen = setting(kind, cells=120)
    if "near" in kind:
        chosen = (np.arange(121) > 0).astype(int)
    shape = spread**2 * np.array([[[1.0, 0.3], [0.3, 2.0]], [[0.8, -0.2], [-0.2, 1.5]]])
    discount = 0.3 if "near" in kind else 0.7  # the tents beside an end count as met always
    bounds = prove(Drift(THETA, shape, 0.3), discount, reward, chosen)
    again = checker.Derivation(checker.Set(THETA, shape), 0.3, discount, reward, chosen)
    for pair, loss in bounds.pairs.items():
        assert again.values[pair] == pytest.approx(loss.curve, abs=1e-9)
        assert again.rough[pair] == pytest.approx(loss.second, rel=1e-5)
        assert again.lower[pair] == pytest.approx(loss.lower, rel=1e-5, abs=1e-7) and 0 < again.rounding < 1e-6
    assert again.span == pytest.approx(bounds.span, rel=1e-5)


def test_a_certificate_is_saved_and_checked_and_a_changed_one_rejected(tmp_path):
    expert, reward = (lambda states: states[:, 0] > 0), (lambda states: -np.abs(states[:, 0] - 0.02))
    asked = {"std": 0.3, "discount": 0.7, "rng": 0, "cells": 250}
    proof = certify(reward, Line(), expert=expert, samples=8000, tube=0.15, **asked)
    assert proof.holds and proof.tube.half_width < 0.15 and "ξ Gaussian with standard deviation 0.3" in str(proof)
    path = proof.save(tmp_path / "proof")
    verdict = certirl.check(path)
    assert verdict.verdict == "confirmed" and verdict.margin == pytest.approx(proof.margin, rel=1e-5)
    assert certirl.load(path).margin == proof.margin
    estimate, least = proof.advantage([-0.5, 0.5])
    assert np.nanmin(estimate - least) > 0 and proof.proves([-0.5, 0.0, 0.5]).tolist() == [True, False, True]
    changes = {
        "margin": lambda header, arrays: header["record"].update(margin=header["record"]["margin"] * 1.01),
        "half-width": lambda header, arrays: header["record"]["tube"].update(half_width=0.01),
        "regret": lambda header, arrays: header["record"].update(regret=header["record"]["regret"] * 0.9),
        "sums": lambda header, arrays: arrays["noise.sums.inside"].__imul__(2),
        "std": lambda header, arrays: header["record"]["noise"].update(std=0.25),
        "actions": lambda header, arrays: arrays["noise.actions"].__setitem__(5, 1),
    }
    for change in changes.values():
        header, arrays = archive.read(path)
        arrays = {name: np.array(array) for name, array in arrays.items()}
        change(header, arrays)
        np.savez(tmp_path / "changed.npz", header=np.array(json.dumps(header)), **arrays)
        assert certirl.check(tmp_path / "changed.npz").verdict == "rejected"


def test_data_that_contradict_the_noise_or_the_drift_are_refused():
    asked = {"discount": 0.7, "expert": 0, "rng": 0, "cells": 50}
    reward = lambda states: states[:, 0]  # noqa: E731
    for line, std, word in (
        (Line(), 0.22, "times as large"),
        (Line(), 0.4, "times as large"),
        (Line(bend=-0.3), 0.3, "drift"),
        (Mirrored(), 0.3, "under action 0, 0 of 10,000 next states are at the lower end"),
    ):
        with pytest.raises(ValueError, match=word):
            certify(reward, line, std=std, samples=10_000, **asked)
    for std in (0.27, 0.33):  # as docs/certificates.md says of a tenth
        with pytest.raises(ValueError, match="times as large") as refused:
            certify(reward, Line(), std=std, samples=20_000, **asked)
        numbers = re.search(r"is (\S+) times .* where (\S+) to (\S+)", str(refused.value))
        size, low, high = map(float, numbers.groups())
        assert not low <= size <= high
    constant = certify(reward, Line(), std=0.3, samples=3000, **asked)
    assert constant.holds and constant.tube is None and "at every" not in constant.missing
    with pytest.raises(ValueError, match="does not exist for experts that mix actions"):
        certify(reward, Line(), std=0.3, **(asked | {"expert": lambda s: np.full((len(s), 2), 0.5)}))
    log = certirl.steps.sample(Line(), basis=certirl.Legendre(2), samples=3000, rng=0)
    assert certify(reward, log, std=0.3, **asked).holds
    assert certify(reward, log, std=0.3, **asked).margin < constant.estimated


def test_too_few_rows_are_said_without_a_number_that_does_not_exist(tmp_path):
    asked = {"std": 0.3, "discount": 0.99, "samples": 20, "rng": 0, "cells": 100}
    for expert in (0, lambda states: states[:, 0] > 0):
        certificate = certify(lambda states: states[:, 0], Line(), expert=expert, **asked)
        assert "no estimate" in str(certificate) and "inf" not in str(certificate)
        assert "no estimate" in certificate.report(tmp_path / "few.html").read_text()


def test_an_action_that_was_never_taken_is_named():
    log = certirl.Transitions([0.1, 0.2, 0.3], [1, 1, 1], [0.25, 0.15, 0.4], domain=(-1, 1), n_actions=2)
    with pytest.raises(ValueError, match="action 0 was never taken"):
        certify(lambda states: states[:, 0], log, std=0.3, discount=0.7, expert=1)


def test_the_reward_of_the_proof_can_be_had_and_proved_again(tmp_path):
    asked = {"std": 0.3, "discount": 0.7, "expert": 0, "samples": 3000, "rng": 0, "cells": 50}
    proof = certify(lambda states: np.sin(states[:, 0]), Line(), **asked)
    assert proof.reward.basis.counts == (51,) and proof.reward(0.2) == pytest.approx(np.sin(0.2))
    saved = str(proof.save(tmp_path / "proof"))
    assert main(["export", saved, "-o", str(tmp_path / "reward.py")]) == 0 and (tmp_path / "reward.py").exists()
    assert certify(proof.reward, Line(), **asked).margin == pytest.approx(proof.margin)
    assert certify(proof, Line(), std=0.3, expert=0, cells=50, rng=1).discount == 0.7


def test_a_reward_that_jumps_at_terminal_states_is_said_to_be_taken_as_linear():
    grid = certirl.Cells((61,), box=Line.domain)
    ends = certirl.functions.ends.Ends(np.array([[[0.9], [np.inf]]]), -2.0)
    plain = certirl.Reward(grid, grid.points()[:, 0])
    jumps = certirl.Reward(grid, grid.points()[:, 0], lambda states: states[:, 0] > 0.5, ends=ends)
    asked = {"std": 0.3, "discount": 0.5, "expert": 0, "samples": 2000, "rng": 0, "cells": 60}
    proofs = [certify(reward, Line(), **asked) for reward in (plain, jumps)]
    said = ["the reward is linear between its values" in " ".join(proof.assumptions) for proof in proofs]
    assert said == [False, True] and proofs[1].reward(1.0) == -2.0 and proofs[1].reward(0.7) == 0.0


def test_next_states_at_an_end_that_no_noise_reaches_are_refused():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-0.1, 0.1, 400), np.tile([0, 1], 200)
    after = states / 2 + 0.01 * rng.standard_normal(400)
    after[:2] = 1.0
    log = certirl.Transitions(states, actions, after, domain=((-1.0, 1.0),), independent=True)
    asked = {"std": 0.01, "discount": 0.7, "expert": 0, "cells": 50, "rng": 0}
    with pytest.raises(ValueError, match="the data contradict"):
        certify(lambda s: s[:, 0], log, **asked)
