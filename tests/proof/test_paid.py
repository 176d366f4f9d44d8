"""Rewards of state and action: what an action pays at once enters value and comparison, and no bound on an error."""

import numpy as np
import pytest

import certirl
import switching as experiment
from certirl import Cells, Legendre, Reward
from certirl.problems import SwitchingProblem, Truth, Whirl, comfort, judge, optimal_policy, thermostat
from systems import Moving

DISCOUNT, COSTS = 0.7, (0.0, 0.1, 0.3)
PROBLEM = thermostat(noise=3.0)
ASKED = {"discount": DISCOUNT, "expert": 0, "columns": Legendre(7), "tail": PROBLEM.tail, "samples": 20_000, "rng": 1}
WARMTH = Reward(Legendre(2).on(PROBLEM.domain), [0.0, 1.0])
POINTS = np.linspace(*PROBLEM.domain[0], 41)


def forms():
    """Costs that mostly depend on the state, too, as rewards of every kind."""

    def paid(states, action):
        return WARMTH(states) - COSTS[action] * (1 + 0.02 * np.abs(states[:, 0] - 18))

    wide = np.zeros((3, 9))
    wide[:, 1], wide[:, 0], wide[:, 8] = 1.0, np.negative(COSTS), 0.1 * np.array(COSTS)
    hats = np.stack([paid(POINTS[:, None], action) for action in range(3)])
    return {
        "costs": WARMTH.with_costs(COSTS),
        "a longer expansion": Reward(Legendre(9).on(PROBLEM.domain), wide),
        "hats": Reward(Cells((41,)).on(PROBLEM.domain), hats),
        "a function": paid,
    }


@pytest.mark.parametrize("form", ["costs", "a longer expansion", "hats", "a function"])
def test_a_reward_of_actions_is_certified_in_every_form(form):
    reward = forms()[form]
    found, truth = certirl.certify(reward, PROBLEM, **ASKED), PROBLEM.true_margin(reward, discount=DISCOUNT)
    assert 0.7 * truth < found.margin < truth and found.holds
    assert abs(found.estimated - truth) < 0.05 * truth
    estimate, lower = found.advantage(POINTS)
    true = PROBLEM.margins(reward, POINTS, discount=DISCOUNT)
    assert (lower[1:] <= true).all() and np.abs(estimate[1:] - true).max() < 0.05 * np.ptp(true)
    said = "R(s, b) − R(s, a) changes by at most" in str(found)
    assert said == (form == "a function")


def test_a_reward_of_the_state_is_the_one_whose_action_is_ignored():
    def ignoring(states, action):
        return WARMTH(states)

    plain, ignored = (
        certirl.certify(reward, PROBLEM, reward_range=WARMTH.range, **ASKED)
        for reward in (lambda states: WARMTH(states), ignoring)
    )
    assert ignored.margin == pytest.approx(plain.margin, rel=1e-9) and ignored.regret == plain.regret
    assert "R(s, b) − R(s, a) is the same at all states (looked up)" in ignored.assumptions
    alike = Reward(WARMTH.basis, np.tile(WARMTH.coefficients, (3, 1)))
    assert certirl.certify(alike, PROBLEM, **ASKED).margin == certirl.certify(WARMTH, PROBLEM, **ASKED).margin


class Idle:
    """Actions that do nothing: they differ by what they pay alone."""

    n_actions, domain = 2, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(0.5 * states + 0.3 * rng.normal(size=states.shape), -1, 1)


def test_actions_of_the_same_effect_differ_by_what_they_pay():
    reward = Reward(Legendre(3), [0.0, 1.0, 0.3]).with_costs([0.0, 0.2])
    asked = {"discount": 0.8, "expert": 0, "columns": Legendre(9), "samples": 5_000, "rng": 0, "paired": True}
    noise = certirl.dynamics.GaussianNoise(std=0.3, slope=0.5)
    found = certirl.certify(reward, Idle(), tail=noise, **asked)
    assert found.estimated == pytest.approx(0.2 / 0.8, rel=1e-9)
    assert found.holds and found.margin < 0.25


def test_a_barely_wrong_cost_is_not_certified():
    least = PROBLEM.true_margins(WARMTH, discount=DISCOUNT)
    for more in (1e-6, 1e-3, 0.1):
        wrong = WARMTH.with_costs([DISCOUNT * least.min() * (1 + more), 0.0, 0.0])  # the expert's action costs this
        assert PROBLEM.true_margin(wrong, discount=DISCOUNT) <= 1e-9
        assert not certirl.certify(wrong, PROBLEM, **ASKED).holds


@pytest.fixture(scope="module")
def frugal():
    """A room that is heated and cooled at a price."""
    room = comfort(noise=0.6)
    points = np.array([-1.0, 0.0, 1.0])
    alpha = np.linalg.solve(Legendre(3).values(points), room.reward(points[:, None]))
    reward = Reward(Legendre(3), alpha).with_costs([0.02, 0.0, 0.03])
    return SwitchingProblem(room.dynamics, reward, 0.9, optimal_policy(room.dynamics, reward, discount=0.9))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["costs", "a function"])
def test_nothing_said_of_an_expert_who_switches_is_false(form, frugal):
    reward = frugal.reward if form == "costs" else lambda s, a: frugal.reward(s, a)
    asked = {"columns": Legendre(11), "tail": frugal.dynamics.tail, "samples": 100_000, "rng": 1, "tube": 0.15}
    found = certirl.certify(reward, frugal.dynamics, expert=frugal.expert, discount=0.9, **asked)
    told = experiment.compared(found, frugal, reward, frugal.expert)
    assert found.holds and not any(told[name] for name in experiment.WRONG)
    if form == "costs":  # the known reward alone would have another expert
        assert not certirl.certify(
            frugal.reward.for_action(1), frugal.dynamics, expert=frugal.expert, discount=0.9, **asked
        ).holds


def test_a_reward_of_actions_is_certified_on_a_box():
    problem = Whirl(drift=((0.7, 0.7), (-0.7, -0.7)), angle=0.4, shrink=0.5, noise=0.7)
    basis = certirl.product(*[Legendre(5)] * 2)
    reward = Reward(basis, np.r_[0.0, 1.0, 1.0, np.zeros(basis.size - 3)]).with_costs([0.05, 0.0])
    asked = {"discount": 0.5, "columns": basis, "tail": problem.tail, "samples": 40_000, "rng": 0}
    truth = problem.true_margin(reward, discount=0.5)
    found = certirl.certify(reward, problem, expert=0, **asked)
    assert found.holds and 0 < found.margin < truth

    def expert(states):
        return (states.sum(axis=1) < 0.1).astype(int)

    # Who gains by being where an action of his pays: the margin follows from what is paid.
    def paid(states, action):
        return (0.5 - action) * (states.sum(axis=1) - 0.1)

    true = judge(Truth(problem, nodes=9, fine=61), paid, expert, discount=0.5)
    found = certirl.certify(paid, problem, expert=expert, tube=0.3, **asked)
    assert found.holds and found.relative_regret >= true.regret / true.span
    ahead = true.next_values(found.tube.grid.states)
    gap = np.abs(ahead[0] - ahead[1])
    outside = found.tube.grid.away > 0.3
    assert found.margin <= gap[outside].min()


def test_components_pay_by_the_action_each():
    room = certirl.problems.thermostat(noise=3.0)
    warm = Reward(Legendre(2).on(room.domain), [0.0, 1.0])
    total = Reward.sum([warm, warm], [[0], [1]]).with_costs([0.0, 0.1, 0.2])

    class Two:
        n_actions, domain = 3, room.domain + room.domain

        def sample(self, states, action, rng):
            return np.concatenate([room.sample(states[:, [j]], action, rng) for j in range(2)], axis=1)

    asked = {"discount": 0.7, "expert": 0, "columns": Legendre(7), "tail": room.tail, "samples": 20_000, "rng": 1}
    free = 2 * room.true_margins(warm, discount=0.7)
    found = certirl.certify(total, Two(), **asked)
    assert found.holds and found.margin < (free + np.array([0.1, 0.2]) / 0.7).min()
    assert found.margin > certirl.certify(Reward.sum([warm, warm], [[0], [1]]), Two(), **asked).margin + 0.1


def _changed(source, target, change):
    """A file whose arrays are changed."""
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    np.savez(target, **arrays)
    return target


def test_the_checker_refuses_other_payments_than_those_of_the_reward_in_the_file(tmp_path):
    reward = forms()["hats"]
    path = certirl.certify(reward, PROBLEM, **ASKED).save(tmp_path / "paid.npz")
    assert certirl.check(path).verdict == "confirmed"
    place = "grounds.0.surrogate.reward."

    def slower(arrays):
        arrays[place + "slopes"] = arrays[place + "slopes"] / 2

    def richer(arrays):
        arrays[place + "apart.coefficients"][1] -= 0.1

    def cheaper(arrays):
        arrays[place + "function.coefficients"][2] -= 0.1

    for name, change in {"slower": slower, "richer": richer, "cheaper": cheaper}.items():
        assert certirl.check(_changed(path, tmp_path / f"{name}.npz", change)).verdict != "confirmed", name


LINE = Moving(((-1.0, 1.0),), (0.4, -0.4), keep=0.5, std=0.3)  # a drift that is affine, and noise that is known


def test_known_noise_takes_rewards_of_actions_and_cells_name_who_does():
    def paid(states, action):
        return -np.abs(states[:, 0]) - 0.3 * (action == 0) * (1 + states[:, 0])

    def expert(states):
        return (states[:, 0] > -0.25).astype(int)

    known = certirl.dynamics.AffineGaussian(0.3, cells=200)
    asked = {"dynamics": known, "discount": 0.7, "samples": 20_000, "rng": 0, "expert": expert, "tube": 0.4}
    found = certirl.certify(paid, LINE, **asked)
    assert found.holds and found.reward.of_actions and certirl.check(found).verdict == "confirmed"
    ignoring = certirl.certify(lambda states: -np.abs(states[:, 0]), LINE, **asked)
    alike = certirl.certify(lambda states, action: -np.abs(states[:, 0]), LINE, **asked)
    assert alike.margin == ignoring.margin != found.margin
    with pytest.raises(ValueError, match=r"does not exist for rewards of state and action: write columns=…, tail=…"):
        certirl.certify(paid, LINE, discount=0.7, expert=0, dynamics=certirl.dynamics.Deterministic(1.0))


def effort(states, action):
    return np.full(len(states), float(action != 1))


NAMED = {"s²": lambda states: states[:, 0] ** 2, "s": lambda states: states[:, 0], "effort": effort}


@pytest.mark.slow
def test_weights_of_named_costs_are_proved_and_nothing_said_is_false(frugal):
    asked = {"discount": 0.9, "delta": 0.05, "tail": frugal.dynamics.tail, "tube": 0.25, "rng": 0}
    found = certirl.solve(frugal.dynamics, expert=frugal.expert, method=certirl.FeatureForm(NAMED), **asked)
    assert found.status == "certified" and found.reward.coefficients[2] < 0
    told = experiment.compared(found.certificate, frugal, found.reward, frugal.expert)
    assert not any(told[name] for name in experiment.WRONG)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_named_costs_of_one_action_are_below_the_truth(seed):
    def lever(states, action):
        return np.full(len(states), COSTS[action])

    named, guess = {"warm": lambda states: states[:, 0] / 20, "lever": lever}, {"warm": 1.0, "lever": -1.0}
    asked = {"discount": DISCOUNT, "delta": 0.05, "tail": PROBLEM.tail, "samples": 50_000, "rng": seed}
    found = certirl.solve(PROBLEM, expert=0, method=certirl.FeatureForm(named, guess=guess), **asked)
    truth = PROBLEM.true_margin(found.reward, discount=DISCOUNT)
    assert found.reward.of_actions
    assert found.certificate.margin < truth
    assert found.status == ("certified" if found.certificate.margin > 0 else "solved")


def test_no_value_is_refuted_where_an_action_pays():
    room = thermostat(power=(0.0, 1.5, -1.5), noise=3.0)  # action 0 is a mixture of the others
    asked = {"basis": Legendre(2), "columns": 7, "delta": 0.05, "tail": room.tail, "samples": 20_000, "rng": 1}
    plain = certirl.solve(room, expert=0, discount=DISCOUNT, method=certirl.ValueForm(), **asked)
    assert plain.status == "infeasible" and "no reward of the state" in str(plain)
    still = certirl.FeatureForm({
        "moved": lambda states, action: np.full(len(states), float(action != 0)),
        "warm": lambda states: states[:, 0],
    })  # fmt: skip
    paid = certirl.solve(room, expert=0, discount=DISCOUNT, method=still, **asked)
    assert paid.refutation is None and paid.status == "certified"
    assert paid.certificate.margin < room.true_margin(paid.reward, discount=DISCOUNT)
