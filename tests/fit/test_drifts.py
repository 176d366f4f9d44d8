"""Shared drifts: fits are least squares over all actions together, and an action need only be tried somewhere."""

import warnings

import numpy as np
import pytest

import certirl
from certirl.fit.drifts import EACH_ITS_OWN, SharedDrift
from certirl.fit.effects import value_basis
from certirl.fit.next_states import against_own, regress_next_states
from certirl.fit.regression import Terms, best_columns, choices_of, held_out_rows

SQUARE = ((-1.0, 1.0), (-2.0, 2.0))
MATRIX, MOVES = np.array([[0.9, 0.1], [-0.2, 0.8]]), np.array([[0.0, 0.0], [0.1, 0.0], [0.0, -0.3]])


def moved(states, actions):
    return states @ MATRIX.T + MOVES[actions]


def rarely(n=600, *, noise=0.0, rare=12, seed=0):
    """A log in which action 2 is tried a few times, in one corner."""
    rng = np.random.default_rng(seed)
    states, actions = rng.uniform(-0.6, 0.6, (n, 2)), rng.integers(2, size=n)
    states[:rare], actions[:rare] = rng.uniform(0.4, 0.6, (rare, 2)), 2
    mixed = rng.permutation(n)
    after = moved(states, actions) + noise * rng.standard_normal((n, 2))
    return certirl.Transitions(states[mixed], actions[mixed], after[mixed], SQUARE, 3)


def model_of(log, drifts):
    basis, rng = value_basis(log.domain, log.periodic), np.random.default_rng(0)
    return regress_next_states(log, basis, is_terminal=None, periodic=log.periodic, rng=rng, drifts=drifts)


@pytest.mark.parametrize("shared", ["none", "slopes", "all"])
def test_weights_are_least_squares_over_all_actions_and_variances_those_of_the_design(shared):
    log, basis = rarely(noise=0.1), certirl.product(certirl.Legendre(3), certirl.Legendre(3)).on(SQUARE)
    held_out, terms = held_out_rows(log), Terms(shared=shared)
    columns, sums, weights, trial = best_columns(
        log, held_out, choices_of(basis, (1.0,), 1.0), lambda rows: log.next_states[rows], terms=(terms,)
    )
    own, common = terms.masks(columns, columns.size)
    values = columns.values(log.states)
    rare = {"none": 0.2, "slopes": 0.0, "all": 0.0}[shared]  # twelve rows do not determine six functions well
    for chosen, found in ((np.ones(len(log), bool), weights), (~held_out, trial)):
        taken = np.eye(3)[log.actions]
        design = np.hstack([*(values[:, own] * taken[:, [a]] for a in range(3)), values[:, common]])
        solved = np.linalg.lstsq(design[chosen], log.next_states[chosen], rcond=None)[0]
        for action in range(3):
            of_action = np.zeros((columns.size, 2))
            of_action[own] = solved[action * own.sum() : (action + 1) * own.sum()]
            of_action[common] = solved[3 * own.sum() :]
            assert found[action] == pytest.approx(of_action, rel=1e-3, abs=1e-4 + (rare if action == 2 else 0))
    inverse = np.linalg.pinv(design.T @ design)
    place = columns.values(np.array([[0.2, 0.3]]))[0]
    for action, matrix in enumerate(terms.inverses(sums, columns)[:2]):
        row = np.concatenate([np.concatenate([place[own] * (a == action) for a in range(3)]), place[common]])
        assert place @ matrix @ place == pytest.approx(row @ inverse @ row, rel=1e-4)


def test_an_action_tried_in_one_corner_is_known_everywhere_if_the_drift_is_shared():
    log, states = rarely(), np.random.default_rng(1).uniform(-0.59, 0.59, (50, 2))
    for drifts in (SharedDrift(degree=1), SharedDrift()):
        model = model_of(log, drifts)
        for action in range(3):
            assert model._mean(states, action) == pytest.approx(moved(states, np.full(50, action)), abs=1e-6)
    noisy = model_of(rarely(6000, noise=0.05), SharedDrift(degree=1))
    assert noisy._mean(states, 2) == pytest.approx(moved(states, np.full(50, 2)), abs=4 * 0.05 / np.sqrt(12))
    assert (
        not noisy.extrapolated(states, 2).any()
        and model_of(rarely(noise=0.05), EACH_ITS_OWN).extrapolated(states, 2).any()
    )


def test_steps_that_were_stopped_at_the_ends_do_not_bias_what_an_action_does():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(0, 1, (20_000, 1)), rng.integers(2, size=20_000)
    free = 0.9 * states + np.where(actions == 1, 0.25, 0.0)[:, None] + 0.05 * rng.standard_normal((20_000, 1))
    log = certirl.Transitions(states, actions, np.clip(free, 0, 1), (0, 1))
    assert (log.next_states == 1).mean() > 0.08
    model, place = model_of(log, SharedDrift(degree=1)), np.array([[0.2], [0.9]])
    assert (model._mean(place, 1) - model._mean(place, 0)).ravel() == pytest.approx(0.25, abs=0.003)
    assert model._mean(place, 1).ravel() == pytest.approx([0.43, 1.06], abs=0.005)
    assert model.residuals.std() == pytest.approx(0.05, rel=0.05)


def test_residuals_of_periodic_coordinates_are_on_the_circle():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(0, 24, (4000, 1)), rng.integers(2, size=4000)
    after = states + np.where(actions == 1, 1.5, 0.5)[:, None] + 0.2 * rng.standard_normal((4000, 1))
    log = certirl.Transitions(states, actions, after % 24, (0, 24), periodic=(0,))
    model = model_of(log, SharedDrift())
    late = np.array([[23.9]])
    assert (model._mean(late, 1) - late).item() == pytest.approx(1.5, abs=0.03)
    assert np.abs(model.residuals).max() < 1.2 and model.residuals.std() == pytest.approx(0.2, rel=0.1)


def thermostat(n=2000, *, slope=0.0, seed=0):
    """A log of a thermostat alone, which heats below 20: heating was never tried where it is warm."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(15, 25, n)
    heats = (states < 20).astype(int)
    cools = 0.9 + slope * heats
    after = np.clip(20 + cools * (states - 20) - 0.4 + heats + 0.2 * rng.normal(size=n), 15, 25)
    return certirl.Transitions(states, heats, after, domain=(15, 25), action_names=("off", "heat"))


def switches(states):
    return states[:, 0] < 20


ASKED = {"discount": 0.9, "expert": switches}


@pytest.mark.parametrize("seed", range(3))
def test_a_log_of_the_expert_alone_is_enough_with_a_shared_drift_and_says_what_is_missing_without(seed, tmp_path):
    log = thermostat(seed=seed)
    alone = certirl.solve(log, **ASKED)
    assert alone.status == "undetermined" and "dynamics=certirl.dynamics.SharedDrift()" in str(alone).splitlines()[0]
    assert "some action was never tried nearby" in str(alone).splitlines()[0]
    solution = certirl.solve(log, dynamics=SharedDrift(degree=1), **ASKED)
    grid = np.linspace(15, 25, 401)
    assert solution.status == "solved" and abs(grid[solution.reward(grid).argmax()] - 20) < 0.5
    assert solution.stats.planned_share.low > 0.95 and solution.stats.model_error < 0.1
    text = str(solution)
    assert "the shared drift predicts" in text and "on held-out rows" in text
    assert "beside a drift that all actions share" in text.split("assumed")[1]
    assert certirl.load(solution.save(tmp_path / "shared")).stats.independence == solution.stats.independence


def test_features_of_a_log_of_the_expert_alone_are_weighed_by_walks_in_the_shared_model():
    method = certirl.FeatureForm({"warm": lambda states: states[:, 0], "warm²": lambda states: states[:, 0] ** 2})
    solution = certirl.solve(thermostat(), method=method, dynamics=SharedDrift(degree=1), **ASKED)
    weights = solution.path.weights[solution.path.row(2)]
    assert -weights[0] / (2 * weights[1]) == pytest.approx(20, abs=0.5)


def test_a_drift_that_is_not_shared_is_said_to_be_contradicted_and_no_drift_that_is():
    crossed = certirl.Transitions(*_crossed(), domain=(-1, 1))
    solution = certirl.solve(crossed, discount=0.9, expert=lambda s: s[:, 0] > 0, dynamics=SharedDrift())
    assert solution.status == "undetermined"
    assert "worse than one for each action on held-out rows: the actions do not share it" in str(solution)
    for seed in range(20):
        log = rarely(2000, noise=0.1, seed=seed)
        model, basis, rng = model_of(log, SharedDrift(degree=1)), value_basis(log.domain), np.random.default_rng(0)
        against = against_own(model, log, held_out_rows(log), basis, rng)
        assert not against.contradicted and abs(against.worse) < 0.05


def _crossed():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, 3000), rng.integers(2, size=3000)
    return states, actions, np.where(actions == 1, 0.5, -0.5) * states + 0.1 * rng.standard_normal(3000).clip(-3, 3)


def test_too_few_rows_of_an_action_are_refused_with_what_to_declare():
    log = rarely(noise=0.05)
    with pytest.raises(ValueError, match=r"at least 100 are needed.*dynamics=certirl\.dynamics\.SharedDrift\(\)"):
        certirl.solve(log, discount=0.9, expert=lambda s: s[:, 0] < 0, method=certirl.ValueForm())
    asked = {"discount": 0.9, "expert": lambda s: (s[:, 0] < 0).astype(int)}
    assert certirl.solve(log, dynamics=SharedDrift(degree=1), **asked).reward is not None
    with pytest.raises(ValueError, match="has 9 transitions: too few to estimate its effect, at least 10"):
        certirl.solve(rarely(noise=0.05, rare=9), dynamics=SharedDrift(), **asked)


class Still:
    n_actions, domain = 2, ((0.0, 1.0),)

    def sample(self, states, action, rng):
        return states


def test_a_shared_drift_is_refused_where_it_means_nothing():
    log, shared = thermostat(), SharedDrift()
    with pytest.raises(ValueError, match="is for logs, and a simulator is asked what every action does"):
        certirl.solve(Still(), discount=0.9, expert=0, dynamics=shared, rng=0)
    with pytest.raises(ValueError, match=r"no proof does: leave .*SharedDrift.* out"):
        certirl.solve(log, delta=0.05, tail=0, dynamics=shared, **ASKED)
    with pytest.raises(ValueError, match="no proof does: leave dynamics out"):
        certirl.certify(lambda states: states[:, 0], log, dynamics=shared, **ASKED)
    with pytest.raises(ValueError, match="regresses each action by itself"):
        certirl.solve(log, discount=0.9, expert=0, method=certirl.Program(), dynamics=shared)
    with pytest.raises(ValueError, match="a shared drift is for others"):
        certirl.solve(log, discount=0.9, expert=certirl.SoftExpert(), dynamics=shared)
    moments = certirl.steps.measure(log, basis=certirl.Legendre(5))
    with pytest.raises(ValueError, match="moments keep no transitions"):
        certirl.solve(moments, discount=0.9, expert=0, dynamics=shared)
    for degree in (0, 1.5, "two", 100):
        with pytest.raises((ValueError, TypeError), match="degree"):
            SharedDrift(degree=degree)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert certirl.solve(log, discount=0.9, expert=0, dynamics=SharedDrift(degree=1)).status != "certified"


def aimed(n=3_000, seed=0):
    """A thermostat alone, whose set point jumps between two values: no action moves it."""
    rng = np.random.default_rng(seed)
    aim = np.where(np.cumsum(rng.random(n + 1) < 0.05) % 2, 20.5, 17.0)
    room, heats = np.full(n + 1, 18.0), np.zeros(n, dtype=int)
    for t in range(n):
        heats[t] = room[t] + 0.3 * rng.normal() < aim[t]
        room[t + 1] = room[t] - 0.3 + 0.6 * heats[t] + 0.05 * rng.normal()
    states, names = np.stack([room, aim], axis=1), ("room", "aim")
    settings = {"domain": ((15, 23), (16, 22)), "exogenous": ("aim",), "coordinate_names": names}
    return certirl.Transitions(states[:-1], heats, states[1:], **settings)


def test_inputs_that_jump_do_so_in_the_model_as_in_the_log():
    log = aimed()
    model = model_of(log, SharedDrift(degree=1))
    outcomes, weights = model.outcomes(log.states, 0)
    assert np.abs(outcomes[..., 1, None] - [17.0, 20.5]).min(axis=-1).max() < 0.01
    jumped = (np.abs(outcomes[..., 1] - log.states[:, 1]) > 1).mean(axis=1) @ weights
    assert jumped == pytest.approx((log.states[:, 1] != log.next_states[:, 1]).mean(), rel=0.2)
    drawn = model.sample(log.states, 1, np.random.default_rng(0))
    assert np.abs(drawn[:, 1, None] - [17.0, 20.5]).min(axis=-1).max() < 0.01


def test_a_reward_of_some_coordinates_is_the_same_along_the_others():
    log, asked = aimed(500), {"discount": 0.5, "dynamics": SharedDrift(degree=1), "rng": 0}
    asked["expert"] = lambda states: states[:, 0] < states[:, 1]
    reward = certirl.solve(log, method=certirl.ValueForm(of=("room",)), **asked).reward
    states = np.stack([np.linspace(15, 23, 91), np.full(91, 20.5)], axis=1)
    assert reward(states) == pytest.approx(reward(states - [0, 3.5])) and np.ptp(reward(states)) > 0
    for of, sentence in ((("rain",), "of must be a tuple of coordinates"), ((), "of must name a coordinate")):
        with pytest.raises(ValueError, match=sentence):
            certirl.solve(log, method=certirl.ValueForm(of=of), **asked)
    with pytest.raises(ValueError, match="a proof is of a reward of all coordinates: leave of or delta out"):
        certirl.solve(
            log, method=certirl.ValueForm(of=(0,)), delta=0.05, tail=0.0, discount=0.9, expert=asked["expert"]
        )
