"""The value form against brute force, a general solver, and dynamics whose truth is known."""

import tracemalloc

import numpy as np
import pytest
from saved_records import Coins
from scipy.optimize import minimize

import certirl
from certirl.data.policy import as_policy
from certirl.fit.effects import (
    KnownEffects,
    drawn_effects,
    drawn_log,
    live_states,
    noise_ratio,
    observed_effects,
    richer,
    value_basis,
)
from certirl.fit.regression import RegressedEffects, regress
from certirl.fit.value_program import LeastSquares, comparisons, fit_value, profile_at
from certirl.functions.bases import of_degree
from certirl.functions.cells import Cells
from systems import Moving

EVERY = slice(None)


class Corridor:
    """Steps of 0.1 to the left, none, to the right, on [-1, 1]; the expert goes to the middle."""

    n_actions, domain = 3, ((-1.0, 1.0),)

    def __init__(self, noise=0.0):
        self.noise = noise

    def sample(self, states, action, rng):
        moved = states + 0.1 * (action - 1) + self.noise * rng.standard_normal(states.shape)
        return np.clip(moved, -1.0, 1.0)


class Ending(Corridor):
    """The same with an end: |s| > 0.9 is terminal."""

    def terminal(self, states):
        return np.abs(states[:, 0]) > 0.9


def home(states):
    return np.where(states[:, 0] < -0.05, 2, np.where(states[:, 0] > 0.05, 0, 1))


def effects_of(simulator, k=7, n=400, seed=0):
    rng = np.random.default_rng(seed)
    basis = certirl.Legendre(k).on(simulator.domain)
    return observed_effects(simulator, basis, live_states(simulator, n, rng), rng)


def test_newton_finds_what_a_general_solver_finds():
    effects = effects_of(Corridor())
    rows = comparisons(effects, as_policy(home, 3))
    cells = Cells((9,)).on(effects.basis.domain)
    found = fit_value(rows, discount=0.9, reward_basis=cells, price=10.0)
    now, expert, gains = effects.before(EVERY), effects.of_policy(rows.chances, EVERY), rows.gains(np.arange(len(rows)))
    target, hats = now - 0.9 * expert, cells.matrix(effects.states)
    rough, scale = cells._roughness().toarray(), np.mean(now**2, axis=0)

    def cost(x):
        w, rho = x[:7], x[7:]
        short = np.maximum(rows.margins - gains @ w, 0)
        missed = hats @ rho - target @ w
        penalty = 1e-2 / cells.size * rho @ rough @ rho
        return 10 * np.mean(short**2) + np.mean(missed**2) + penalty + 1e-6 * (scale * w**2).sum()

    reward = LeastSquares(cells, effects.states)(target @ found.value)
    ours = cost(np.concatenate([found.value, reward]))
    theirs = minimize(cost, np.zeros(16), method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 200_000})
    assert ours <= theirs.fun * (1 + 1e-4)


def test_comparisons_are_what_their_names_say():
    effects = effects_of(Corridor())
    rows = comparisons(effects, as_policy(home, 3))
    w = np.random.default_rng(1).normal(size=7)
    states, others, advantages = effects.states[rows.which], rows.alternatives, rows.advantages(w)
    for index in range(0, len(rows), 37):
        state, own = states[index], home(states[[index]])[0]
        value = [effects.basis.values(np.clip(state + 0.1 * (a - 1), -1, 1)) @ w for a in (own, others[index])]
        assert advantages[index] == pytest.approx(float((value[0] - value[1])[0]))
        assert rows.gains(np.array([index])) @ w == pytest.approx([advantages[index]])
        assert own != others[index]


def test_actions_that_do_the_same_are_left_out_and_counted():
    class Wall(Corridor):
        def sample(self, states, action, rng):
            return super().sample(states, 1 if action == 2 else action, rng)

    effects = effects_of(Wall())
    rows = comparisons(effects, as_policy(lambda s: np.ones(len(s), dtype=int), 3))
    assert rows.ties == len(effects) and set(rows.alternatives) == {0}


def test_margins_fall_to_zero_at_a_switch():
    effects, policy = effects_of(Corridor(), n=4000), as_policy(home, 3)
    at = np.array([[-0.9], [-0.3], [-0.1], [-0.051]])
    given = (at, effects.states, policy, effects.basis.domain, effects.periodic)
    profile = profile_at(*given, margin=0.1)  # 0.1 of a box of width 2
    assert profile == pytest.approx([1.0, 1.0, 0.25, 0.0], abs=0.02)
    assert profile_at(*given, margin=lambda s: np.abs(s[:, 0])) == pytest.approx([0.9, 0.3, 0.1, 0.051])
    with pytest.raises(ValueError, match="half-width"):
        profile_at(*given, margin=0.0)
    with pytest.raises(ValueError, match="one number"):
        profile_at(*given, margin=lambda s: np.ones(2))


def test_actions_that_the_expert_mixes_tie():
    effects = effects_of(Corridor(), k=9)

    def mixed(states):
        sure = np.eye(3)[home(states)]
        return np.where(np.abs(states) < 0.3, np.array([0.5, 0.0, 0.5]), sure)

    rows = comparisons(effects, as_policy(mixed, 3))
    found = fit_value(rows, discount=0.9, reward_basis=Cells((60,)).on(effects.basis.domain))
    inner = np.abs(effects.states[:, 0]) < 0.25
    left, _, right = effects.ahead(found.value)
    outer = effects.states[:, 0] < -0.4
    assert np.abs(left - right)[inner].max() < 0.3 * (right - left)[outer].min()


def test_the_reward_has_the_value_it_was_made_for():
    effects = effects_of(Corridor(), n=3000)
    rows = comparisons(effects, as_policy(home, 3))
    found = fit_value(rows, discount=0.9, reward_basis=Cells((200,)).on(effects.basis.domain))
    wanted = effects.value(found.value) - 0.9 * effects.ahead(found.value).max(axis=0)
    reward = found.reward_basis.combined(effects.states, found.reward)
    assert np.allclose(found.residuals, reward - wanted)
    assert found.residual < 0.05 * np.ptp(wanted)


def test_terminal_states_are_worth_nothing():
    effects = effects_of(Ending(), n=2000)
    moved = effects.states[:, 0] + 0.1
    right = effects.after(2, EVERY)
    assert np.all(right[moved > 0.9] == 0) and np.all(right[moved <= 0.9][:, 0] > 0)
    assert np.abs(effects.states).max() <= 0.9


def test_regressed_effects_come_close_to_the_true_ones():
    simulator, rng = Corridor(noise=0.1), np.random.default_rng(0)
    basis = certirl.Legendre(6).on(simulator.domain)
    log = certirl.steps.sample(simulator, basis=basis, samples=20_000, rng=0)
    found = regress(log, basis).effects(live_states(simulator, 300, rng))
    truth = np.stack(
        [np.mean([basis.values(simulator.sample(found.states, a, rng)) for _ in range(400)], axis=0) for a in range(3)]
    )
    effect = np.sqrt(np.mean((truth[2] - truth[0]) ** 2))
    after = np.stack([found.after(action, EVERY) for action in range(3)])
    assert np.sqrt(np.mean((after - truth) ** 2)) < 0.1 * effect
    assert found.regression is not None and not found.noiseless


@pytest.mark.parametrize("paired", [False, True])
def test_the_noise_of_a_row_is_what_repetition_shows(paired):
    simulator, basis = Corridor(noise=0.2), certirl.Legendre(4).on(((-1.0, 1.0),))
    states = np.linspace(-0.95, 0.95, 41)[:, None]
    rows, claims = [], []
    for seed in range(60):
        log = certirl.steps.sample(simulator, basis=basis, samples=600, rng=seed, paired=paired)
        found = regress(log, basis, degrees=(1.5,))
        effects = found.effects(states)
        rows.append(effects.after(2, EVERY) - effects.after(0, EVERY))
        claims.append(found.noise)
    seen = np.mean(np.var(rows, axis=0), axis=0)
    claimed = np.mean([np.diag(noise) for noise in claims], axis=0)
    assert np.all(claimed[1:] < 4 * seen[1:]) and np.all(claimed[1:] > seen[1:] / 4)


def test_noise_is_noticed():
    rng, basis = np.random.default_rng(0), certirl.Legendre(4).on(((-1.0, 1.0),))
    assert noise_ratio(Corridor(), basis, rng) == 0 < noise_ratio(Corridor(noise=0.01), basis, rng)


def test_bases_grow_with_what_they_may_cost():
    square, circle = ((-1.0, 1.0),) * 2, ((-3.0, 3.0), (0.0, 1.0))
    assert value_basis(square).size == 210 and value_basis(circle, (0,)).size == 196
    assert value_basis(((-1.0, 1.0),) * 4).size == 210
    assert richer(value_basis(square), 0.5).size < 210 < richer(value_basis(square), 1.6).size <= 600


def test_a_box_without_living_states_is_refused():
    class Dead(Corridor):
        def terminal(self, states):
            return np.ones(len(states), dtype=bool)

    with pytest.raises(ValueError, match="were not terminal"):
        live_states(Dead(), 10, np.random.default_rng(0))


def test_effects_of_a_policy_are_mixed_by_its_probabilities():
    effects = effects_of(Corridor())
    chances = np.tile([0.2, 0.3, 0.5], (len(effects), 1))
    after = [effects.after(action, EVERY) for action in range(3)]
    assert np.allclose(effects.of_policy(chances, EVERY), 0.2 * after[0] + 0.3 * after[1] + 0.5 * after[2])


PLANE = Moving(((-1.0, 1.0),) * 2, 0.2 * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]]), std=0.05)


def to_the_middle(states):
    axis = np.abs(states).argmax(axis=1)
    return 1 + 2 * axis + (states[np.arange(len(states)), axis] > 0)


def test_beyond_what_is_stored_memory_does_not_grow_with_states_times_functions(monkeypatch):
    monkeypatch.setattr("certirl.fit.effects.MOST_STORED", 0)
    simulator, policy = PLANE, as_policy(to_the_middle, 5)
    basis, cells = of_degree(simulator.domain, 12), Cells((15, 15)).on(simulator.domain)
    peaks = []
    for n in (1_000, 6_000):
        tracemalloc.start()
        log = drawn_log(simulator, n, np.random.default_rng(0), paired=True)
        effects = regress(log, basis, degrees=(1.0,)).effects(log.states[:n])
        fit_value(comparisons(effects, policy), discount=0.9, reward_basis=cells)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 5_000 * basis.size * 8  # of one action; there are five, and three arrays of each


def test_stored_effects_are_the_same():
    simulator, rng = Ending(noise=0.1), np.random.default_rng(0)
    basis = certirl.Legendre(5).on(simulator.domain)
    lazy = drawn_effects(simulator, basis, live_states(simulator, 2_000, rng), 4, rng)
    regressed = regress(drawn_log(simulator, 500, rng, paired=True), basis).effects(lazy.states)
    some, actions = np.arange(0, 2_000, 7), rng.integers(3, size=286)
    w, half = rng.normal(size=5), rng.random(2_000) < 0.5
    for effects, kind in ((lazy, KnownEffects), (regressed, RegressedEffects)):
        kept = effects.stored()
        assert isinstance(kept, kind) and kept.n_actions == 3 and getattr(kept, "values", kept) is not None
        assert np.allclose(kept.after(actions, some), effects.after(actions, some))
        assert np.allclose(kept.after_each(slice(9)), effects.after_each(slice(9)))
        assert np.allclose(kept.ahead(w), effects.ahead(w))
        assert np.allclose(kept.at(half).ahead(w), effects.at(half).ahead(w))


@pytest.mark.parametrize("paired", [False, True])
def test_the_stated_noise_of_regressed_effects_is_their_spread_over_repeated_logs(paired):
    coins, basis = Coins((0.7, 0.4), (0.1, -0.1)), certirl.Legendre(3).on(((-1.0, 1.0),))
    found, stated = [], []
    for seed in range(120):
        regression = regress(drawn_log(coins, 300, np.random.default_rng(seed), paired=paired), basis, degrees=(1.0,))
        first, second = regression.columns.values(np.linspace(-1, 1, 41)) @ regression.weights
        found.append((second - first)[:, 1])
        stated.append(regression.noise[1, 1])
    assert np.mean(stated) == pytest.approx(np.var(found, axis=0).mean(), rel=0.25)


def test_margins_are_one_away_from_switches_and_shortfalls_are_what_is_missing_of_them():
    effects = effects_of(Corridor())
    rows = comparisons(effects, as_policy(home, 3))
    places = effects.states[rows.which, 0]
    assert (rows.margins == rows.profile[rows.which]).all() and (rows.margins[np.abs(places) > 0.6] == 1).all()
    assert 0 <= rows.margins.min() < 0.5 and rows.margins.max() == 1
    found = fit_value(rows, discount=0.9, reward_basis=Cells((9,)).on(effects.basis.domain), price=0.1)
    missing = np.maximum(rows.margins - rows.gains(np.arange(len(rows))) @ found.value, 0)
    assert found.shortfall == pytest.approx(missing) and (missing > 0).any()
