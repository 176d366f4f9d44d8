"""Costs of actions as unknowns of the program, and rewards r(s) − c_a where a reward of the state leaves a gap."""

import numpy as np
import pytest

import certirl
from certirl.data.policy import as_policy
from certirl.fit.costs import ChargedEffects, fit_with_costs, paid_fit, with_costs
from certirl.fit.effects import KnownEffects
from certirl.fit.value_program import comparisons, fit_value
from certirl.functions.bases import Legendre
from certirl.functions.cells import Cells
from certirl.problems import comfort, judge, optimal_policy

COST, DISCOUNT = 0.3, 0.9


@pytest.fixture(scope="module")
def room():
    return comfort(noise=0.2)


@pytest.fixture(scope="module")
def frugal(room):
    """The expert who pays for heating and cooling: it rests in a wide band, which no reward of the state explains."""

    def reward(states, action):
        return room.reward(states) - COST * (np.asarray(action) != 1)

    return optimal_policy(room.dynamics, reward, discount=DISCOUNT)


def effects_of(problem, n=400, degree=12):
    """Exact effects at even states."""
    basis, states = Legendre(degree).on(problem.domain), problem.domain.mesh(n)
    truth = certirl.problems.switching.Truth(problem)
    at_nodes = np.einsum("aiq,qk->aik", truth.kernels, basis.values(truth.states))
    rows = np.stack([truth.interpolation(states) @ of_action for of_action in at_nodes])
    return KnownEffects(basis, states, (), rows)


def test_effects_with_costs_are_those_of_v_less_what_the_action_costs(room):
    plain = effects_of(room.dynamics)
    charged, rng = ChargedEffects.of(plain), np.random.default_rng(0)
    w, costs = rng.normal(size=plain.size), np.array([0.0, 0.7, -0.2])
    both = np.concatenate([w, costs[1:]])
    np.testing.assert_allclose(charged.ahead(both), plain.ahead(w) - costs[:, None])
    np.testing.assert_allclose(charged.value(both), plain.value(w))
    np.testing.assert_allclose(charged.before(slice(None)) @ both, plain.value(w))
    actions, rows = np.array([2, 0, 1]), np.array([5, 7, 11])
    np.testing.assert_allclose(charged.after(actions, rows) @ both, plain.ahead(w)[actions, rows] - costs[actions])
    np.testing.assert_allclose(charged.after_each(rows) @ both, plain.ahead(w)[:, rows] - costs[:, None])
    kept = np.arange(len(plain)) % 3 == 0
    np.testing.assert_allclose(charged.at(kept).ahead(both), charged.ahead(both)[:, kept])
    np.testing.assert_allclose(charged.continuing, plain.continuing)


def test_a_fit_with_costs_explains_what_no_reward_of_the_state_does(room, frugal):
    effects = effects_of(room.dynamics)
    rows = comparisons(effects, as_policy(frugal, 3))
    program = {"discount": DISCOUNT, "reward_basis": Cells((100,)).on(room.dynamics.domain)}
    plain = fit_value(rows, **program)
    assert (rows.advantages(plain.value) < 0).mean() > 0.05
    fit = fit_with_costs(rows, plain, **program)
    costs = fit.prices.costs
    assert costs[1] == 0 < min(costs[0], costs[2])
    # The advantages by V and these costs are those that the fit minimised, and nearly all of them positive.
    ahead = rows.effects.ahead(fit.value) - costs[:, None] / DISCOUNT
    expert, at = frugal(effects.states), np.arange(len(effects))
    np.testing.assert_allclose(
        (rows.advantages(fit.value) + fit.costs)[rows.signs > 0],
        (ahead[expert, at][rows.which] - ahead[rows.alternatives, rows.which])[rows.signs > 0],
        atol=1e-9,
    )
    assert fit.prices.left < 0.02 < 0.1 < fit.prices.without
    # r is V less the best of γP_aV − c_a.
    wanted = effects.value(fit.value) - DISCOUNT * ahead.max(axis=0)
    np.testing.assert_allclose(fit.residuals, program["reward_basis"].combined(effects.states, fit.reward) - wanted)


def test_where_a_reward_of_the_state_explains_the_expert_there_are_no_costs(room):
    rows = comparisons(effects_of(room.dynamics), as_policy(room.expert, 3))
    program = {"discount": DISCOUNT, "reward_basis": Cells((100,)).on(room.dynamics.domain)}
    plain = fit_value(rows, **program)
    assert fit_with_costs(rows, plain, **program) is plain


def test_costs_that_leave_the_gap_open_are_not_used(room):
    """Whatever an expert that acts by chance is charged for, it is not explained."""
    effects = effects_of(room.dynamics)
    chosen = np.random.default_rng(0).integers(3, size=len(effects))
    expert = as_policy(lambda states: chosen[np.searchsorted(effects.states[:, 0], states[:, 0])], 3)
    rows = comparisons(effects, expert, margin=lambda states: np.ones(len(states)))
    program = {"discount": DISCOUNT, "reward_basis": Cells((100,)).on(room.dynamics.domain)}
    plain = fit_value(rows, **program)
    assert fit_with_costs(rows, plain, **program) is plain
    assert np.mean(paid_fit(rows, **program).shortfall ** 2) < np.mean(plain.shortfall**2)


def test_a_conflict_with_costs_cancels_in_v_and_in_the_costs(room):
    from certirl.fit.witness import find_conflict

    effects = effects_of(room.dynamics, degree=3)
    policy = as_policy(certirl.problems.Steps((-0.6, -0.2, 0.2, 0.6), (0, 2, 0, 2, 0)), 3)
    rows = with_costs(comparisons(effects, policy))
    program = {"discount": DISCOUNT, "reward_basis": Cells((100,)).on(room.dynamics.domain)}
    witness = find_conflict(policy, rows, fit_value(rows, **program).shortfall)
    charged = rows.effects
    at = [int(np.abs(effects.states - state).argmin()) for state in witness.states]
    pairs = zip(witness.weights, witness.taken, witness.actions, at, strict=True)
    total = sum(w * (charged.after(t, [i]) - charged.after(a, [i]))[0] for w, t, a, i in pairs)
    size = np.abs(charged.after_each(np.array(at))).max()
    assert np.abs(total).max() < 1e-5 * size
    assert "whatever each action costs" in str(witness)


def test_a_frugal_expert_is_explained_by_costs_alone(room, frugal):
    asked = {"expert": frugal, "discount": DISCOUNT, "rng": 0, "samples": 5_000}
    of_states = certirl.solve(room.dynamics, **asked, method=certirl.ValueForm(costs=False))
    solution = certirl.solve(room.dynamics, **asked)
    assert not of_states.reward.of_actions
    assert of_states.status != "validated"
    assert solution.status == "validated"
    costs = solution.reward.costs
    assert costs[1] == 0 < min(costs[0], costs[2])
    first = str(solution).splitlines()[0]
    assert f"reward of the state less a cost of each action: action 0 costs {costs[0]:.3g}" in first
    assert "R(s) alone" in solution.stats.choice

    def lost(reward):
        judgement = judge(room.dynamics, reward, frugal, discount=DISCOUNT)
        return judgement.regret / judgement.span

    assert lost(solution.reward) < 0.02 < 0.1 < lost(of_states.reward)


def test_a_log_of_a_frugal_expert_is_explained_with_costs(room, frugal):
    log = certirl.steps.sample(room.dynamics, basis=Legendre(7), samples=4_000, rng=1)
    solution = certirl.solve(log, expert=frugal, discount=DISCOUNT)
    plan = certirl.planning.plan(room.dynamics, solution, points=201)
    states = np.linspace(-0.9, 0.9, 181)
    away = frugal.away(states) > 0.06
    assert solution.reward.costs[1] == 0
    np.testing.assert_array_equal(plan(states[:, None])[away], frugal(states)[away])


def test_no_costs_where_the_expert_always_takes_one_action(room):
    asked = {"expert": 1, "discount": DISCOUNT, "rng": 0, "samples": 2_000}
    solution = certirl.solve(room.dynamics, **asked, method=certirl.ValueForm())
    assert not solution.reward.of_actions


def test_costs_of_a_reward(room):
    plain = certirl.Reward(Legendre(3), [0.1, 1.0, -0.5])
    assert plain.costs is None
    np.testing.assert_allclose(plain.with_costs([0.3, 0.1, 0.4]).costs, [0.2, 0.0, 0.3], atol=1e-12)
    assert certirl.Reward(Legendre(2), [[0.0, 1.0], [0.0, 1.1]]).costs is None
    with pytest.raises(ValueError, match="costs"):
        certirl.ValueForm(costs="yes")


@pytest.mark.slow
def test_a_reward_with_learned_costs_is_certified_checked_and_kept(tmp_path):
    room = comfort(noise=0.3)

    def reward(states, action):
        return room.reward(states) - COST * (np.asarray(action) != 1)

    expert = optimal_policy(room.dynamics, reward, discount=DISCOUNT)
    asked = {"delta": 0.05, "tail": room.dynamics.tail, "samples": 100_000, "trials": 1_000, "tube": 0.1, "rng": 0}
    solution = certirl.solve(room.dynamics, expert=expert, discount=DISCOUNT, **asked)
    assert solution.status == "certified" and solution.reward.of_actions
    assert "a cost of each action: " in str(solution).splitlines()[0]
    truth = judge(room.dynamics, solution.reward, expert, discount=DISCOUNT)
    away = expert.away(truth.truth.states) > 0.1
    assert truth.margins[away].min() >= solution.certificate.margin > 0
    path = solution.save(tmp_path / "frugal")
    assert certirl.check(path).verdict == "confirmed"
    np.testing.assert_array_equal(certirl.load(path).reward.costs, solution.reward.costs)
    exported = solution.reward.export(tmp_path / "frugal.py").read_text()
    names: dict = {}
    exec(exported, names)
    states = np.linspace(-1, 1, 11)
    for action in range(3):
        np.testing.assert_allclose(names["reward"](states[:, None], action), solution.reward(states, action), rtol=1e-9)
