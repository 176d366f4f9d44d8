"""Settings chosen by the diagnostics: cases in which the answer is known beforehand."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl.solver.advise import LADDER, Advice, Trial, _best_discount, _best_noise, advise
from certirl.solver.solution import Share


class Room:
    """Cool, rest or heat; noise as a share of the width, mirrored at the edges."""

    n_actions, domain = 3, ((-1.0, 1.0),)

    def __init__(self, noise):
        self.noise = 2 * noise

    def sample(self, states, action, rng):
        moved = 0.9 * states + 0.2 * (action - 1) + self.noise * rng.standard_normal(states.shape)
        return np.clip(np.where(np.abs(moved) > 1, 2 * np.sign(moved) - moved, moved), -1, 1)


def comfort(states):
    return np.where(states[:, 0] < -0.1, 2, np.where(states[:, 0] > 0.1, 0, 1))


def three_places(states):
    """Goes to the nearest of −0.6, 0 and 0.6: a value with three peaks has degree 6 at least."""
    places = np.array([-0.6, 0.0, 0.6])
    away = states[:, 0] - places[np.abs(states - places).argmin(axis=1)]
    return np.where(away < -0.1, 2, np.where(away > 0.1, 0, 1))


@pytest.fixture(scope="module")
def advice():
    return advise(Room, comfort, discounts=[0.9], bases=[certirl.Legendre(5), certirl.Legendre(9)], rng=0)


def test_too_low_a_degree_is_seen_and_a_higher_one_recommended():
    found = advise(Room(0.0), three_places, discounts=[0.9], rng=0, samples=2_000)
    five, nine = found.trials[0], found.trials[1]
    assert five.basis.size == 5 and five.unexplained > 0.2 > 0.1 > nine.unexplained
    assert found.best.basis.size >= 9 and "left" in found.reasons[0] and found.best.certificate == "no density"
    solved = certirl.solve(found.simulator, expert=three_places, rng=1, **found.settings)
    assert solved.stats.unexplained < 0.1 and solved.value.basis.size == found.best.basis.size


def test_fewest_functions_are_taken_where_more_gain_nothing(advice):
    assert advice.best.basis == certirl.Legendre(5, (-1, 1)) and "more functions gain less than 1%" in advice.reasons[0]


def test_without_noise_nothing_can_be_certified_and_it_says_which_noise_would_do(advice):
    by_noise = {trial.noise: trial for trial in advice.trials if trial.basis.size == 5}
    assert by_noise[0.0].certificate == "no density"
    assert abs(int(by_noise[0.03].certificate.removeprefix("needs ").removesuffix(" columns")) - 72) < 6
    assert by_noise[0.1].forecast in LADDER and advice.best is by_noise[0.1]
    assert advice.simulator.noise == 0.2
    assert any("Without noise there is no density" in reason for reason in advice.reasons)
    assert any("Noise 0.1 puts a certificate within reach" in reason for reason in advice.reasons)


def test_it_is_a_table_with_a_mark_and_a_sentence(advice):
    first, *rest = str(advice).splitlines()
    assert first == "Take Legendre(5), noise 0.1, γ = 0.9."
    assert sum(line.startswith("* ") for line in rest) == 1 and len(rest) == len(advice.reasons) + 1 + 4
    (marked,) = [line for line in rest if line.startswith("* ")]
    assert marked.split()[1:4] == ["Legendre(5)", "0.1", "0.9"]


def _trial(gamma, planned, residual=0.001):
    """A trial with numbers of our own."""
    solution = certirl.solve(Room(0.0), expert=comfort, discount=gamma, samples=200, rng=0)
    share = None if planned is None else Share(planned, 1000)
    told = replace(solution.stats, residual=residual, planned_share=share)
    return Trial(certirl.Legendre(5, (-1, 1)), 0.0, replace(solution, stats=told))


def test_the_largest_discount_that_keeps_planning_right():
    trials = [_trial(0.7, 990), _trial(0.9, 988), _trial(0.99, 800)]
    assert _best_discount(trials)[0] is trials[1]
    trials = [_trial(0.7, None, 0.01), _trial(0.9, None, 0.01), _trial(0.99, None, 0.01)]
    best, (why,) = _best_discount(trials)
    assert best is trials[1] and "adds up to 0.1 of the margin" in why


def test_the_noise_of_a_simulator_is_measured():
    # σ = 0.02 of half the width: 4.3/σ columns leave 10⁻⁴, and 215 are too many to certify.
    found = advise(Room(0.01), comfort, discounts=[0.9], bases=[certirl.Legendre(5)], samples=1_000, rng=0)
    words = found.best.certificate.split()
    assert words[0] == "needs" and abs(int(words[1]) - 215) < 20 and found.best.noise is None


def test_nothing_within_reach_keeps_the_first():
    trials = [_trial(0.9, 990), _trial(0.9, 990)]
    best, reasons = _best_noise(trials)
    assert best is trials[0] and reasons[-1] == "No noise that was tried puts a certificate within reach."


def test_an_environment_changes_its_noise_itself():
    pytest.importorskip("gymnasium")
    simulator = certirl.gym.simulator("MountainCar-v0")
    noisy = simulator.with_noise(0.01)
    assert noisy.noise == pytest.approx((0.018, 0.0014)) and noisy.with_noise(0) == simulator
    with pytest.raises(ValueError, match="noise must be a share ≥ 0"):
        simulator.with_noise(-1)
    found = advise(
        simulator,
        lambda states: np.where(states[:, 1] < 0, 0, 2),
        discounts=[0.9],
        bases=[certirl.product(certirl.Legendre(4), certirl.Legendre(4))],
        samples=400,
        rng=0,
    )
    assert isinstance(found, Advice) and len(found.trials) == 1
    assert any("nothing can be certified" in reason for reason in found.reasons)


def test_wrong_calls_get_a_sentence():
    with pytest.raises(ValueError, match="Room cannot change its noise"):
        advise(Room(0.1), comfort, noises=[0.1], rng=0)
    with pytest.raises(ValueError, match="at least one discount"):
        advise(Room(0.1), comfort, discounts=[], rng=0)
    with pytest.raises(TypeError, match="rng is needed"):
        advise(Room(0.1), comfort)


def test_a_log_cannot_be_tried_out():
    log = certirl.Transitions([0.0, 0.1], [0, 1], [0.1, 0.2], domain=(-1, 1))
    with pytest.raises(TypeError, match=r"needs a simulator; certirl.coverage says what a log can tell"):
        certirl.advise(log, lambda s: np.zeros(len(s), int), rng=0)
