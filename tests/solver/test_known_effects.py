"""What is declared of the dynamics chooses the theorem by which `solve` proves its answer."""

import numpy as np
import pytest

import certirl
from certirl.dynamics import AffineGaussian, Deterministic
from systems import Moving

NOISE = AffineGaussian(std=1.5)
CELLS = Deterministic(lipschitz=0.9, points=201)


class Room:
    """A room that is heated or cooled, with noise."""

    n_actions, domain = 2, ((15.0, 25.0),)

    def drift(self, states, action):
        return states + 0.1 * (18.0 - states) + (1.5, -1.5)[action]

    def sample(self, states, action, rng):
        noise = rng.normal(scale=1.5, size=states.shape)
        return np.clip(self.drift(states, action) + noise, 15.0, 25.0)


TRAY = Moving(((0.0, 10.0),), (0.0, 1.0), keep=0.9)


def warm(states):
    return (states[:, 0] > 20).astype(int)


def filling(states):
    return (states[:, 0] < 6).astype(int)


@pytest.mark.parametrize("expert", [0, warm])
def test_known_noise_proves_a_reward_that_is_found_and_spends_delta_in_the_open(expert, tmp_path):
    asked = {"discount": 0.7, "expert": expert, "delta": 0.05, "dynamics": NOISE}
    solution = certirl.solve(Room(), rng=0, **asked)
    proof = solution.certificate
    assert solution.status == "certified" and proof.holds and 0 < proof.margin < proof.estimated
    assert proof.delta == pytest.approx(0.05) == sum(proof.spending.values())
    assert proof.spending["drift"] < 0.05 and "later attempts" in proof.spending
    assert np.array_equal(solution.reward.coefficients, proof.reward.coefficients)  # that of the proof
    again = certirl.load(solution.save(tmp_path / "answer"))
    assert again.status == "certified" and np.array_equal(again.reward.coefficients, solution.reward.coefficients)


@pytest.mark.slow
def test_it_proves_more_than_with_a_tail():
    asked = {"discount": 0.7, "expert": 0, "delta": 0.05, "rng": 0}
    known = certirl.solve(Room(), dynamics=NOISE, **asked)
    tail = certirl.solve(Room(), tail=certirl.dynamics.GaussianNoise(1.5, slope=0.9), **asked)
    assert known.status == tail.status == "certified" and known.samples <= tail.samples
    assert known.certificate.margin > 2 * tail.certificate.margin


@pytest.mark.slow
def test_of_a_log_all_rows_prove_and_all_of_delta_is_spent():
    log = certirl.steps.sample(Room(), basis=certirl.Legendre(2), samples=8_000, rng=1)
    solution = certirl.solve(log, discount=0.7, expert=0, delta=0.05, dynamics=NOISE)
    assert solution.status == "certified" and solution.certificate.samples == 8_000
    assert solution.certificate.spending == {"drift": 0.05}


def test_data_that_contradict_the_noise_prove_nothing():
    with pytest.raises(ValueError, match="the data contradict"):
        certirl.solve(Room(), discount=0.7, expert=0, delta=0.05, dynamics=AffineGaussian(std=1.0), rng=0)


def test_too_few_draws_leave_it_unproved_with_what_is_missing():
    asked = {"discount": 0.9, "expert": warm, "delta": 0.05, "dynamics": NOISE, "samples": 3_000, "rng": 0}
    solution = certirl.solve(Room(), **asked)
    assert solution.status != "certified" and not solution.certificate.holds
    assert solution.certificate.spending == {"drift": 0.05}
    assert "should suffice" in str(solution)


@pytest.mark.parametrize("expert", [1, filling])
def test_cells_prove_a_solution_of_a_simulator_without_noise(expert, tmp_path):
    solution = certirl.solve(TRAY, discount=0.8, expert=expert, dynamics=CELLS, rng=0)
    proof = solution.certificate
    assert solution.status == "certified" and proof.holds and proof.delta == 0
    states = np.linspace(0, 10, 50)[:, None]
    assert np.allclose(solution.reward(states), proof.reward(states))
    assert proof.proves(states).mean() > 0.9
    again = certirl.load(solution.save(tmp_path / "answer"))
    assert again.status == "certified" and certirl.check(tmp_path / "answer.npz").verdict == "confirmed"


def test_cells_that_are_too_large_leave_it_unproved():
    coarse = Deterministic(lipschitz=5.0, points=11)
    solution = certirl.solve(TRAY, discount=0.8, expert=filling, dynamics=coarse, rng=0)
    assert solution.status != "certified" and not solution.certificate.holds
    assert "use smaller cells or more points" in str(solution)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"dynamics": NOISE}, "dynamics=AffineGaussian(…) is for a certificate: pass delta too, or leave it out"),
        ({"dynamics": NOISE, "delta": 0.05, "tail": 0}, "has no use for tail: leave tail out"),
        ({"dynamics": NOISE, "delta": 0.05, "paired": True}, "has no use for paired: leave paired out"),
        ({"dynamics": CELLS, "delta": 0.05}, "has no use for delta: leave delta out"),
        ({"dynamics": Deterministic(lipschitz=1)}, "points=41"),
        ({"dynamics": 1.5}, "dynamics must be certirl.dynamics.AffineGaussian"),
    ],
)
def test_settings_that_prove_nothing_are_refused(asked, sentence):
    with pytest.raises((ValueError, TypeError)) as refused:
        certirl.solve(Room(), discount=0.7, expert=0, rng=0, **asked)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("dynamics", [NOISE, CELLS])
def test_only_columns_refute(dynamics):
    sentence = "does not exist for `certirl.refute`: write columns=…, tail=…"
    with pytest.raises(ValueError, match=sentence):
        certirl.refute(Room(), expert=0, basis=certirl.Legendre(2), dynamics=dynamics, rng=0)
