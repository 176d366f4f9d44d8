"""Experts that depend on the state: what is said of them is checked by planning and by counting."""

import numpy as np
import pytest

import certirl
from certirl.environments.planning import plan
from certirl.solver.solution import Share, Solution


class Room:
    """A thermostat: cool, rest or heat; the room drifts to 0 and is a little noisy."""

    n_actions, domain = 3, ((-1.0, 1.0),)

    def __init__(self, noise=0.05):
        self.noise = noise

    def sample(self, states, action, rng):
        moved = 0.8 * states + 0.15 * (action - 1) + self.noise * rng.standard_normal(states.shape)
        return np.clip(moved, -1.0, 1.0)


def comfort(states):
    """Heat below −0.1, cool above 0.1."""
    return np.where(states[:, 0] < -0.1, 2, np.where(states[:, 0] > 0.1, 0, 1))


@pytest.fixture(scope="module")
def noisy():
    return certirl.solve(Room(), expert=comfort, discount=0.9, rng=0)


@pytest.fixture(scope="module")
def still():
    return certirl.solve(Room(noise=0.0), expert=comfort, discount=0.9, samples=3000, rng=0)


def test_planning_on_the_reward_alone_gives_the_expert_back(noisy):
    states = np.linspace(-1, 1, 1001)[:, None]
    away = np.abs(np.abs(states[:, 0]) - 0.1) > 0.05
    chosen = plan(Room(), noisy.reward, discount=0.9, draws=200, points=401)(states)
    assert (chosen == comfort(states))[away].mean() > 0.99
    assert (noisy.greedy(states) == comfort(states))[away].mean() > 0.99


def test_without_noise_it_says_which_proof_there_is(still, noisy):
    assert still.status == "validated" and still.stats.noiseless and not noisy.stats.noiseless
    assert "without a proof; for dynamics without noise in one or two coordinates certify has" in str(still)
    assert "without noise" not in str(noisy)
    for one in (still, noisy):
        text = str(one)
        assert text.startswith("Validated, not certified") and len(text.splitlines()) == 7


def test_the_validated_share_counts_what_a_count_of_ones_own_finds(still):
    rng = np.random.default_rng(99)
    states = rng.uniform(-1, 1, (20_000, 1))
    moved = [still.value(Room(0.0).sample(states, action, rng)) for action in range(3)]
    best = np.argmax(moved, axis=0) == comfort(states)
    assert abs(best.mean() - still.stats.greedy_share.count / still.stats.greedy_share.n) < 0.02
    assert (
        still.stats.greedy_share.n == still.stats.asked.trials
        and still.stats.outside_share.n < still.stats.greedy_share.n
    )


def test_an_expert_that_errs_is_shown_where_it_errs():
    def errs(states):
        return np.sin(1e6 * states[:, 0]) > 0.98  # here and there, at 6 % of states

    def wrong(states):
        return np.where(errs(states), (comfort(states) + 1) % 3, comfort(states))

    found = certirl.solve(Room(), expert=wrong, discount=0.9, rng=0)
    far, erring = found.compared.target >= 1, errs(found.compared.states)  # beside a switch an error costs nothing
    assert far.mean() > 0.5 and (erring & far).sum() > 100
    assert np.quantile(found.compared.shortfall[far & erring], 0.05) > np.quantile(
        found.compared.shortfall[far & ~erring], 0.99
    )
    states, short = found.unexplained(100)
    assert errs(states).all() and (np.diff(short) <= 0).all()
    assert abs(found.stats.unexplained - erring.mean()) < 0.03
    right = np.linspace(-0.9, 0.9, 301)[:, None]
    assert (found.greedy(right) == comfort(right)).mean() > 0.9  # the errors did not carry it away


def test_a_log_is_enough(noisy):
    log = certirl.steps.sample(Room(), basis=certirl.Legendre(5), samples=10_000, rng=3)
    found = certirl.solve(log, expert=comfort, discount=0.9)
    assert found.status == "solved" and found.stats.greedy_share is None and "Solved, not validated" in str(found)
    assert max(
        found.stats.planned_regret, found.stats.planned_loss
    ) < 0.02 and "planning on R alone: agrees with the expert at" in str(found)
    states = np.linspace(-0.95, 0.95, 401)[:, None]
    away = np.abs(np.abs(states[:, 0]) - 0.1) > 0.05
    assert (found.greedy(states) == comfort(states))[away].mean() > 0.98
    assert found.stats.model_error < 0.1 and found.stats.uncovered == 0


def test_too_little_data_is_distrusted_and_missing_data_are_told():
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 0.2, (330, 1))
    actions = np.arange(330) % 3
    moved = np.concatenate([Room(0.9).sample(states[[i]], actions[i], rng) for i in range(330)])
    log = certirl.Transitions(states, actions, moved, domain=(-1, 1))
    with pytest.raises(ValueError, match="action 0 has 30 transitions: too few to estimate its effect, at least 100"):
        certirl.solve(log.where(np.arange(330) < 90), expert=comfort, discount=0.9)
    found = certirl.solve(log, expert=comfort, discount=0.9)
    assert found.status == "undetermined" and "more transitions" in found.reason
    assert found.stats.uncovered > 0.1 and "extrapolated" in str(found)


@pytest.mark.slow
def test_an_angle_in_a_log_is_known_by_its_basis():
    class Wheel(Room):
        def sample(self, states, action, rng):
            moved = states + 0.2 * (action - 1) + 0.05 * rng.standard_normal(states.shape)
            return (moved + 1) % 2 - 1

    def home(states):
        return np.where(states[:, 0] < 0, 2, 0)  # the shorter way to 0: it switches at 0 and at ±1

    log = certirl.steps.sample(Wheel(), basis=certirl.Fourier(5), samples=4000, rng=0)
    found = certirl.solve(log, expert=home, discount=0.9, basis=certirl.Fourier(15))
    assert found.stats.periodic == (0,) and found.reward(-1.0, 0) == pytest.approx(found.reward(1.0, 0))
    states = np.linspace(-0.9, 0.9, 181)[:, None]
    away = np.abs(states[:, 0]) > 0.12  # nearer than half a step, resting is as good
    assert (found.greedy(states) == home(states))[away].mean() > 0.97


def test_a_log_without_an_action_is_refused():
    log = certirl.Transitions([0.0, 0.1], [0, 1], [0.1, 0.2], domain=(-1, 1), n_actions=3)
    with pytest.raises(ValueError, match="action 2 was never taken"):
        certirl.solve(log, expert=comfort, discount=0.9)


def test_terminal_states_end_it():
    class Cliff(Room):
        def terminal(self, states):
            return states[:, 0] > 0.8

    def away(states):
        return np.zeros(len(states), dtype=int)

    found = certirl.solve(Cliff(0.0), expert=away, discount=0.9, samples=3000, rng=0)
    assert found.reward(0.9) == 0 and found.value(0.95) == 0 and found.compared.states.max() <= 0.8
    assert found.stats.greedy_share.low > 0.97


def test_terminal_rows_of_a_log_are_worth_nothing():
    episodes = []
    rng = np.random.default_rng(0)
    for _ in range(1500):
        walk, chosen = [np.array([rng.uniform(-1, 0.8)])], []
        while walk[-1][0] <= 0.8 and len(chosen) < 6:
            chosen.append(int(rng.integers(3)))
            walk.append(np.clip(0.95 * walk[-1] + 0.3 * (chosen[-1] - 1) + 0.05 * rng.standard_normal(1), -1, 1))
        episodes.append(certirl.logs.Episode(np.array(walk), chosen, terminated=walk[-1][0] > 0.8))
    log = certirl.logs.from_episodes(episodes, domain=(-1, 1), n_actions=3)
    found = certirl.solve(log, expert=lambda s: np.zeros(len(s), dtype=int), discount=0.9)
    assert found.compared.states.max() <= 0.8 + 1e-9  # rows that stand in terminal states are no states to compare at


def test_a_saved_solution_comes_back(still, tmp_path):
    again = certirl.load(still.save(tmp_path / "found"))
    states = np.linspace(-1, 1, 51)
    assert isinstance(again, Solution) and str(again) == str(still)
    assert np.array_equal(again.reward(states), still.reward(states))
    assert np.array_equal(again.greedy(states), still.greedy(states))
    ended = again.with_terminal(lambda s: s[:, 0] > 0.5)
    assert ended.reward(0.7) == 0 != again.reward(0.7)


def test_pictures_are_drawn(still, tmp_path):
    pytest.importorskip("matplotlib")
    still.plot(path=tmp_path / "found.png")
    assert (tmp_path / "found.png").stat().st_size > 5000


def test_actions_that_never_differ_leave_it_undetermined():
    class Idle(Room):
        def sample(self, states, action, rng):
            return 0.5 * states

    found = certirl.solve(Idle(), expert=comfort, discount=0.9, samples=500, rng=0)
    assert found.status == "undetermined" and "all actions have the same effect" in str(found)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"method": certirl.Program(cover=0.1)}, "Program.* is for experts that always take one action"),
        ({"tail": 0.0}, "tail is for a certificate: pass delta too"),
        ({"components": [[0]]}, "couples the components"),
        ({"columns": 3}, "columns is for the certificate of a policy"),
        ({"rng": None}, "rng is needed"),
        ({"samples": 2.5}, "whole number of transitions per action"),
        ({"samples": 10}, "at least 200"),
        ({"discount": 1.5}, "discount"),
    ],
)
def test_wrong_calls_are_refused(given, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        certirl.solve(Room(0.0), **({"expert": comfort, "discount": 0.9, "rng": 0, "samples": 200} | given))


@pytest.mark.slow
def test_a_price_on_roughness_makes_the_value_smoother():
    problem, expert, asked, roughness = Room(0.2), comfort, {"discount": 0.9, "samples": 2_000, "rng": 0}, []
    for price in (0.0, 1e-4, 1.0):
        found = certirl.solve(problem, expert=expert, method=certirl.ValueForm(smoothness=price), **asked)
        weights = found.value.coefficients / np.ptp(found.value(np.linspace(-1, 1, 201)))
        roughness.append(float(np.sum((np.arange(len(weights)) ** 2 * weights) ** 2)))
    assert roughness[0] > 2 * roughness[1] > 4 * roughness[2]
    usual = certirl.solve(problem, expert=expert, **asked)
    named = certirl.solve(problem, expert=expert, method=certirl.ValueForm(smoothness=3e-4), **asked)
    np.testing.assert_array_equal(usual.value.coefficients, named.value.coefficients)


def test_a_wrong_margin_is_refused():
    with pytest.raises(ValueError, match="half-width of a tube"):
        certirl.solve(Room(0.0), expert=comfort, discount=0.9, rng=0, method=certirl.ValueForm(margin=-1.0))


def test_a_margin_for_one_action_is_refused():
    with pytest.raises(ValueError, match="depend on the state"):
        certirl.solve(Room(), expert=0, discount=0.9, rng=0, method=certirl.ValueForm(margin=0.1))


def test_a_policy_of_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="asked about all states at once"):
        certirl.solve(Room(), expert=lambda states: 0, discount=0.9, rng=0, samples=300)


def test_shares_have_exact_intervals():
    assert Share(0, 100).low == 0 and Share(100, 100).high == 1
    assert Share(95, 100).low == pytest.approx(0.8872, abs=1e-3)  # from tables of Clopper and Pearson
    assert Share(95, 100).high == pytest.approx(0.9836, abs=1e-3)


def test_an_expert_whom_nothing_explains_is_not_called_validated():
    def fickle(states):
        return (np.abs(np.sin(1e4 * states[:, 0])) * 3).astype(int)

    found = certirl.solve(Room(0.05), expert=fickle, discount=0.9, samples=2_000, rng=0)
    assert found.status == "undetermined"
    assert any("the expert may follow no reward" in finding.sentence for finding in found.findings)


@pytest.mark.parametrize(("expert", "status"), [(0, "infeasible"), (lambda s: s[:, 0] > 20, "undetermined")])
def test_actions_that_do_the_same_in_a_log_are_told_apart_by_nothing(expert, status):
    rng = np.random.default_rng(0)
    log = certirl.Transitions(
        rng.uniform(15, 25, 3000), rng.integers(2, size=3000), np.full(3000, 20.0), domain=(15, 25)
    )
    found = certirl.solve(log, expert=expert, discount=0.9)
    assert found.status == status
    if status == "infeasible":
        assert "has exactly the effect of action 0, which the expert takes" in str(found.witness)
    else:
        assert "nothing distinguishes the expert's" in found.reason


def test_a_basis_that_is_none_gets_a_sentence():
    with pytest.raises(TypeError, match=r"basis must be a basis such as certirl.Legendre\(11\), got 'legendre'"):
        certirl.solve(Room(0.05), expert=comfort, discount=0.9, basis="legendre", rng=0)
