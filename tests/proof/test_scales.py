"""Certificates do not depend on the scale of a reward, and ranges of rewards are compared with what is seen."""

import math

import numpy as np
import pytest

import certirl
from certirl import trials
from certirl.functions.reward import bounded, unit_of
from certirl.ground.domain import as_domain
from systems import Coins

BOX = as_domain((-1.0, 1.0))
ATOMS = np.array([-0.5, 0.5, 0.95])


COIN = Coins((0.5, 0.5), (0.5, -0.5))


class Atoms:
    """Next states are three atoms, with probabilities that do not depend on the state."""

    n_actions, domain = 2, BOX
    laws = ((0.2, 0.8, 0.0), (0.798, 0.2, 0.002))

    def sample(self, states, action, rng):
        return ATOMS[np.searchsorted(np.cumsum(self.laws[action])[:2], rng.random(len(states)), side="right")]


class Push:
    """A walk that action 0 pushes right: R(s) = s makes it strictly best."""

    n_actions, domain = 2, BOX

    def sample(self, states, action, rng):
        right = 0.5 + 0.2 * states[:, 0] + (0.25 if action == 0 else -0.25)
        return np.where(rng.random(len(states)) < right, 0.7, -0.7)


def switching(states):
    return (states[:, 0] > 0).astype(int)


def certificate(reward, **settings):
    given = {
        "discount": 0.7,
        "expert": 0,
        "columns": certirl.Legendre(2),
        "tail": 0,
        "samples": 20_000,
        "rng": 1,
    } | settings
    return certirl.certify(reward, given.pop("source", Push()), **given)


FAMILIES = {
    "expansion": lambda unit: certirl.Reward(certirl.Legendre(2).on(BOX), np.array([0.3, 1.0]) * unit),
    "other family": lambda unit: certirl.Reward(certirl.Fourier(3).on(BOX), np.array([0.1, 1.0, 0.0]) * unit),
    "function": lambda unit: lambda s: unit * (s[:, 0] + 0.2 * np.sign(s[:, 0])),
}


@pytest.mark.thinned(5)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("power", [-700, -540, 540, 700])  # squares leave the range from 2^±538 on
def test_a_certificate_scales_with_the_reward_to_the_last_bit(family, power):
    unit = math.ldexp(1.0, power)
    plain, scaled = (certificate(FAMILIES[family](u)) for u in (1.0, unit))
    assert plain.holds and scaled.holds
    assert scaled.margin == plain.margin * unit and scaled.estimated == plain.estimated * unit
    assert {name: value * unit for name, value in plain.losses.items()} == scaled.losses
    assert scaled.samples_needed == plain.samples_needed


@pytest.mark.thinned(2)
@pytest.mark.parametrize("power", [-700, 700])
def test_a_policys_certificate_scales_with_the_reward(power, tmp_path):
    unit = math.ldexp(1.0, power)
    # Action 1 where s > 0 is best for a reward that falls: both push towards the atom −0.8 then.
    settings = {"source": COIN, "expert": switching, "tube": 0.3, "samples": 40_000}
    plain, scaled = (certificate(lambda s, u=u: -u * s[:, 0], **settings) for u in (1.0, unit))
    assert plain.holds and scaled.holds and scaled.margin == plain.margin * unit
    assert scaled.regret == plain.regret * unit and scaled.relative_regret == plain.relative_regret
    states = np.linspace(-1, 1, 9)
    for one, other in zip(plain.advantage(states), scaled.advantage(states), strict=True):
        assert np.array_equal(one * unit, other, equal_nan=True)
    read = certirl.load(scaled.save(tmp_path / "scaled.npz"))
    assert read.margin == scaled.margin and read.value_span == scaled.value_span


@pytest.mark.thinned(3)
@pytest.mark.parametrize("unit", [1e-170, 1e-200, 1e-240])
def test_a_barely_wrong_reward_of_tiny_scale_is_not_certified(unit):
    """The true margin is negative: both actions do the same but for a shift against action 0."""

    class Against(Push):
        def sample(self, states, action, rng):
            right = 0.5 + 0.2 * states[:, 0] + (-0.0005 if action == 0 else 0.0005)
            return np.where(rng.random(len(states)) < right, 0.7, -0.7)

    reward = certirl.Reward(certirl.Legendre(2).on(BOX), np.array([0.0, unit]))
    found = [certificate(reward, source=Against(), delta=1e-6, paired=False, rng=seed) for seed in range(5)]
    assert not any(one.holds for one in found) and all(one.losses["estimation"] > 0 for one in found)


@pytest.mark.parametrize("size", [1e-310, 1e-260, 1e260, 1.7e308])
def test_scales_that_cannot_be_squared_are_refused_in_a_sentence(size):
    with pytest.raises(ValueError, match="multiply it by a positive constant"):
        certificate(lambda s: size * np.sign(s[:, 0]))
    with pytest.raises(ValueError, match="multiply it by a positive constant"):
        certificate(certirl.Reward(certirl.Legendre(2).on(BOX), np.array([0.0, size])))


def test_a_constant_reward_is_not_certified():
    assert not certificate(lambda s: np.full(len(s), 3.0)).holds


def test_a_large_constant_costs_digits_and_nothing_else():
    plain, lifted = certificate(lambda s: s[:, 0]), certificate(lambda s: s[:, 0] + 1e6)
    assert lifted.holds and lifted.margin == pytest.approx(plain.margin, rel=1e-3)
    assert lifted.losses["floating point"] > plain.losses["floating point"]


@pytest.mark.parametrize(
    "given", [(1e6, -1e6), (0, np.nan), (-np.inf, np.inf), "ab", 5, (1,), (1, 2, 3), ("0", "1"), (True, 2), None]
)
@pytest.mark.parametrize("expert", [0, switching])
def test_a_range_is_two_finite_numbers_in_order(given, expert):
    if given is None:
        assert certificate(lambda s: s[:, 0], expert=expert, reward_range=None).samples > 0
        return
    with pytest.raises(ValueError, match="reward_range must be"):
        certificate(lambda s: s[:, 0], expert=expert, reward_range=given)
    with pytest.raises(ValueError, match="reward_range must be"):
        trials.scenario(lambda s: s[:, 0], Push(), discount=0.7, reward_range=given, samples=10, share=0.5, rng=0)


def test_a_reversed_range_certifies_nothing():
    problem = certirl.problems.random_polynomial(seed=7, actions=3, degree=10)
    settings = {"columns": certirl.Legendre(3), "discount": 0.7, "tail": 0, "samples": 2_000, "rng": 1}
    with pytest.raises(ValueError, match="low ≤ high"):
        certirl.certify(lambda s: -s[:, 0], problem, expert=0, reward_range=(1e6, -1e6), **settings)


@pytest.mark.parametrize("expert", [0, switching])
def test_a_range_that_is_too_narrow_is_contradicted_by_the_reward(expert):
    with pytest.raises(ValueError, match=r"outside its declared range \[-0.5, 0.5\]"):
        certificate(lambda s: s[:, 0], expert=expert, reward_range=(-0.5, 0.5))


def test_a_range_is_compared_with_every_value_seen():
    """R is large at one atom alone, which no grid hits; it is seen when the dynamics lead there."""
    spike = lambda s: np.where(s[:, 0] == 0.95 - 0.00003, 2000.0, s[:, 0])  # noqa: E731

    class Hidden(Atoms):
        def sample(self, states, action, rng):
            found = super().sample(states, action, rng)
            return np.where(found == 0.95, 0.95 - 0.00003, found)

    with pytest.raises(ValueError, match=r"the reward is 2000 at s = 0.94997, outside its declared range \[-1, 1\]"):
        certificate(spike, source=Hidden(), reward_range=(-1, 1), samples=20_000)
    with pytest.raises(ValueError, match="outside its looked up range"):
        certificate(spike, source=Hidden(), samples=20_000)
    with pytest.raises(ValueError, match="outside its declared range"):
        trials.scenario(spike, Hidden(), discount=0.7, reward_range=(-1, 1), samples=300, share=0.1, rng=0)


def test_no_certificate_rests_on_a_narrow_range_of_a_reward_that_can_be_looked_up():
    """Attack: R(0.95) = 2000, declared within (−1, 1); 7 of 100 were certified with a true margin of −3.4."""
    reward = lambda s: np.where(s[:, 0] > 0.9, 2000.0, s[:, 0])  # noqa: E731
    for seed in range(20):
        with pytest.raises(ValueError, match="outside its declared range"):
            certificate(reward, source=Atoms(), reward_range=(-1, 1), samples=1_500, rng=seed)


@pytest.mark.parametrize("expert", [0, switching])
def test_declared_and_looked_up_ranges_are_among_the_assumptions(expert):
    declared = certificate(lambda s: s[:, 0], expert=expert, reward_range=(-2, 2))
    assert "the reward stays within [-2, 2] on [-1, 1] (declared)" in declared.assumptions
    looked_up = certificate(lambda s: s[:, 0], expert=expert)
    assert "the reward stays within [-1.1, 1.1] on [-1, 1] (looked up)" in looked_up.assumptions


def test_a_declared_range_of_an_expansion_must_be_right_and_is_not_needed():
    reward = certirl.Reward(certirl.Legendre(2).on(BOX), np.array([0.0, 1.0]))
    assert certificate(reward, reward_range=(-9, 9)).margin == certificate(reward).margin
    with pytest.raises(ValueError, match="outside its declared range"):
        certificate(reward, reward_range=(-0.1, 0.1))


@pytest.mark.parametrize(
    ("reward", "sentence"),
    [
        (lambda s: 1.0, r"must return \d+ numbers, got shape \[\]"),
        (lambda s: s[:-1, 0], r"must return \d+ numbers, got shape"),
        (lambda s: np.full(len(s), "x"), "must be real numbers, got an array of <U1"),
        (lambda s: s[:, 0] * 1j, "must be real numbers, got an array of complex128"),
        (lambda s: np.array([None] * len(s)), "must be real numbers, got None in row 0"),
        (lambda s: np.where(s[:, 0] > 0.5, np.nan, 0), "must be finite at every state of the domain, but it is nan"),
    ],
)
@pytest.mark.parametrize("expert", [0, switching])
def test_a_reward_that_is_none_is_one_sentence(reward, sentence, expert):
    with pytest.raises(ValueError, match=sentence):
        certificate(reward, expert=expert)
    with pytest.raises(ValueError, match=sentence):
        trials.rollout_check(reward, Push(), discount=0.7, states=3, samples=10, rng=0)
    with pytest.raises(ValueError, match=sentence):
        trials.scenario(reward, Push(), discount=0.7, reward_range=(-1, 1), samples=10, share=0.5, rng=0)


def in_place(s):
    s *= -1
    return -s[:, 0]


@pytest.mark.parametrize("expert", [0, switching])
def test_a_reward_that_changes_its_argument_in_place_changes_nothing(expert):
    clean = lambda s: s[:, 0]  # noqa: E731
    one, other = (certificate(reward, expert=expert) for reward in (clean, in_place))
    assert one.margin == other.margin and one.losses == other.losses
    tests = {"discount": 0.7, "samples": 50, "rng": 0}
    first, second = (trials.rollout_check(reward, Push(), states=5, **tests) for reward in (clean, in_place))
    assert np.array_equal(first.advantage, second.advantage)
    first, second = (
        trials.scenario(reward, Push(), reward_range=(-1, 1), share=0.5, **tests) for reward in (clean, in_place)
    )
    assert first.margin == second.margin


@pytest.mark.parametrize("few", [1, 5, 50])
@pytest.mark.parametrize("expert", [0, switching])
def test_a_reward_that_depends_on_the_number_of_states_of_a_call_is_refused(few, expert):
    with pytest.raises(ValueError, match="it must depend on one state alone"):
        certificate(lambda s: s[:, 0] * (1 if len(s) > few else -1), expert=expert)
    assert certificate(lambda s: np.squeeze(s[:, 0]), expert=expert).samples > 0


def test_a_reward_that_answers_with_one_buffer_again_and_again_is_copied():
    buffer = np.zeros(1 << 20)

    def reward(states):
        buffer[: len(states)] = states[:, 0]
        return buffer[: len(states)]

    assert certificate(reward).margin == certificate(lambda s: s[:, 0]).margin


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_scenarios_and_rollouts_scale_with_the_reward(unit):
    unit = 2.0 ** round(math.log2(unit))
    given = {"discount": 0.7, "samples": 200, "rng": 0}
    plain, scaled = (trials.rollout_check(lambda s, u=u: u * s[:, 0], Push(), states=5, **given) for u in (1, unit))
    assert np.array_equal(plain.advantage * unit, scaled.advantage)
    assert np.array_equal(plain.standard_error * unit, scaled.standard_error) and (scaled.standard_error > 0).all()
    plain, scaled = (
        trials.scenario(lambda s, u=u: u * s[:, 0], Push(), share=0.3, reward_range=(-u, u), **given) for u in (1, unit)
    )
    assert scaled.margin == plain.margin * unit and scaled.truncation == plain.truncation * unit


def test_units_are_powers_of_two():
    for spread in (1e-200, 0.3, 1.0, 7.0, 1e200):
        unit = unit_of(spread, spread)
        assert math.frexp(unit)[0] == 0.5 and 1 <= spread / unit < 2
    assert bounded(lambda s: s[:, 0], BOX).normalised().range == pytest.approx((-1.1, 1.1))
