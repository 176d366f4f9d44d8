"""Declarations that data contradict: docs/notes/certificate.md, section 19."""

from math import log

import numpy as np
import pytest
from scipy.special import ndtri

import certirl
from certirl import Fourier, Legendre, product
from certirl.data.source import as_source
from certirl.proof import contradictions
from certirl.proof.contradictions import _chances, distance_from, excess
from certirl.proof.drift import Drift, DriftSums, fit_drift, rows_of, wall_of
from sizes import sizes
from systems import Moving

TANK = Moving(((0.0, 4.0),), (0.1, 0.7), keep=0.85, std=0.5, tail=certirl.dynamics.GaussianNoise(std=0.5, slope=0.85))


STILL = Moving(((0.0, 4.0),), (0.0, 0.4), keep=0.8)


def reward(states):
    return np.minimum(states[:, 0], 3.6) - 3 * np.maximum(states[:, 0] - 3.6, 0)


ASKED = {"expert": 1, "discount": 0.8, "rng": 1, "progress": False}


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_number_that_the_data_contradict_is_refused(columns):
    with pytest.raises(ValueError, match="the data contradict the declared tail: under action"):
        certirl.certify(reward, TANK, columns=Legendre(columns), tail=0, samples=20_000, **ASKED)


def test_a_log_without_noise_contradicts_every_small_tail():
    log_of = certirl.steps.sample(STILL, basis=Legendre(2), samples=20_000, rng=0)
    with pytest.raises(ValueError, match="the data contradict the declared tail"):
        certirl.certify(reward, log_of, columns=Legendre(5), tail=0, **ASKED)


def test_so_are_logs_solutions_and_densities_of_other_dynamics():
    log_of = certirl.steps.sample(TANK, basis=Legendre(3), samples=20_000, rng=0)
    with pytest.raises(ValueError, match="the data contradict the declared tail"):
        certirl.certify(reward, log_of, columns=Legendre(3), tail=0, **ASKED)
    with pytest.raises(ValueError, match="the data contradict the declared tail"):
        certirl.solve(TANK, basis=Legendre(5), columns=2, tail=0, delta=0.05, samples=20_000, **ASKED)

    def other(next_states, states, action):  # the next state does not depend on the state
        return np.full((len(states), len(next_states)), 0.25)

    declared = certirl.dynamics.tail_from_density(other, ((0.0, 4.0),), n_actions=2)
    with pytest.raises(ValueError, match="the data contradict the declared tail"):
        certirl.certify(reward, TANK, columns=Legendre(3), tail=declared, samples=20_000, **ASKED)


def test_what_is_true_is_not_refused():
    found = certirl.certify(reward, TANK, columns=Legendre(15), tail=TANK.tail, samples=20_000, **ASKED)
    assert found.tail < 1e-3
    undeclared = certirl.certify(reward, TANK, columns=Legendre(2), samples=20_000, **ASKED)
    assert undeclared.word != "certified"  # conditional on a tail of zero, whatever the data say


@pytest.mark.parametrize("columns", [Legendre(2), Fourier(3), product(Legendre(3), Legendre(3))], ids=str)
def test_the_distance_is_a_lower_bound_and_comes_near(columns):
    """Next states ±1, and the chance of 1 is the next function of the family: P f, f = sign, differs by that."""
    columns = columns.on(((-1.0, 1.0),) * columns.dimension)
    rng, beyond = np.random.default_rng(0), columns.resized(columns.size + 1)
    states = rng.uniform(-1, 1, (40_000, columns.dimension))
    waves = beyond.values(states)[:, -1]
    size = 0.4 / np.abs(waves).max()
    ends = np.where(rng.random(len(states)) < 0.5 + size * waves, 1.0, -1.0)[:, None].repeat(columns.dimension, axis=1)
    # P f = f(−1) + (f(1) − f(−1))(½ + size·waves): at most 2·size·max|waves| from a constant.
    seen = distance_from(columns, states, ends, log(2e6))
    assert 0.2 * 2 * 0.4 < seen <= 2 * 0.4
    even = np.where(rng.random(ends.shape) < 0.5, 1.0, -1.0)
    assert distance_from(columns, states, even, log(2e6)) == 0


def test_true_declarations_are_refused_as_rarely_as_promised():
    columns, rng, refused = Legendre(3).on(((-1.0, 1.0),)), np.random.default_rng(1), 0
    for _ in range(150):
        states = rng.uniform(-1, 1, (400, 1))
        ends = np.where(rng.random(400) < 0.5 + 0.4 * states[:, 0] ** 2, 1.0, -1.0)[:, None]
        refused += distance_from(columns, states, ends, log(2 * 42 / 0.2)) > 0  # all 42 comparisons together: 0.2
    assert refused <= 30


def walk(n, std, rng, law="normal", state=0.5):
    """Steps of one trajectory of s' = clip(0.8 s + 0.05 + 0.1 a + ξ), actions at random."""
    states, actions = np.empty(n + 1), rng.integers(2, size=n)
    noise = std * getattr(rng, law)(*((-1, 1) if law == "uniform" else (0, 1)), n)
    states[0] = state
    for i in range(n):
        states[i + 1] = min(max(0.8 * states[i] + 0.05 + 0.1 * actions[i] + noise[i], 0.0), 1.0)
    return states, actions


def logs_of(std, law="normal"):
    rng = np.random.default_rng(0)
    states, actions = walk(24_000, std, rng, law)
    ordered = certirl.Transitions(states[:-1], actions, states[1:], domain=(0, 1), independent=False)
    mixed = rng.permutation(24_000)
    drawn = certirl.Transitions(
        states[:-1][mixed], actions[mixed], states[1:][mixed], domain=(0, 1), independent=True
    )  # each next state given its state is one draw; of the order nothing is used
    episodes = certirl.logs.from_episodes([walk(60, std, rng, law) for _ in range(400)], domain=(0, 1))
    start = rng.uniform(0, 1, 12_000)
    pairs = [np.clip(0.8 * start + 0.05 + 0.1 * a + std * rng.normal(size=12_000), 0, 1) for a in (0, 1)]
    paired = certirl.Transitions(
        np.tile(start, 2), np.repeat([0, 1], 12_000), np.concatenate(pairs), domain=(0, 1), paired=True
    )
    return {"order": ordered, "independent": drawn, "episodes": episodes, "paired": paired}


NOISE = {
    "normal": lambda std: certirl.dynamics.GaussianNoise(std, slope=0.8),
    "laplace": lambda scale: certirl.dynamics.LaplaceNoise(scale, slope=0.8),
    "uniform": lambda half: certirl.dynamics.UniformNoise(half, slope=0.8),
}


@pytest.mark.parametrize("law", NOISE)
def test_noise_below_what_is_declared_is_refused_from_rows_of_every_kind(law):
    """0.056 where 0.08 is declared: the standard deviation of the residuals says it at once."""
    asked = {"expert": 1, "discount": 0.2, "rng": 0, "progress": False, "reward_range": (0, 1)}
    columns = {"normal": 25, "laplace": 40, "uniform": 60}[law]
    for kind, data in logs_of(0.056, law).items():
        if law != "normal" and kind == "paired":
            continue  # its noise is normal
        with pytest.raises(ValueError, match="the data contradict the declared noise: if it is"):
            certirl.certify(lambda s: s[:, 0], data, columns=Legendre(columns), tail=NOISE[law](0.08), **asked)
    if law == "normal":
        true = certirl.certify(lambda s: s[:, 0], data, columns=Legendre(columns), tail=NOISE[law](0.056), **asked)
        assert true.tail is not None


def test_noise_of_each_coordinate_of_a_box_is_compared():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(0, 1, (8_000, 2)), rng.integers(2, size=8_000)
    after = np.clip(0.3 * states + 0.3 + 0.1 * actions[:, None] + rng.normal(size=(8_000, 2)) * (0.2, 0.1), 0, 1)
    log_of = certirl.Transitions(states, actions, after, domain=((0, 1), (0, 1)))
    asked = {"expert": 1, "discount": 0.1, "columns": product(Legendre(7), Legendre(7)), "rng": 0, "progress": False}
    with pytest.raises(ValueError, match=r"Gaussian of standard deviation at least 0.15, .* in coordinate 1 can be"):
        certirl.certify(lambda s: s[:, 0], log_of, tail=certirl.dynamics.GaussianNoise((0.2, 0.15), slope=0.3), **asked)
    assert certirl.certify(
        lambda s: s[:, 0], log_of, tail=certirl.dynamics.GaussianNoise((0.2, 0.1), slope=0.3), **asked
    ).samples


@pytest.mark.parametrize("place", ["clip", "mirror", "wrap", "round", "order"])
def test_true_noise_is_refused_as_rarely_as_promised(place):
    """Counted at a level of 0.2 for each length of intervals, three of them, for three laws."""
    rng, columns, wrong = np.random.default_rng(1), Legendre(5, (0, 1)), 0
    for run in range(60):
        law = list(NOISE)[run % 3]
        scale = rng.choice([0.05, 0.2])
        if place == "order":
            states, _ = walk(600, scale, rng, law)
            states, ends = states[:-1], states[1:]
        else:
            states = rng.uniform(0, 1, 600)
            noise = scale * getattr(rng, law)(*((-1, 1) if law == "uniform" else (0, 1)), 600)
            ends = (
                0.3 + 0.4 * states**2 + noise + rng.choice([-0.1, 0.1], 600)
            )  # more noise, and a drift beyond columns
            ends = {"mirror": 1 - np.abs(1 - np.abs(ends) % 2), "wrap": ends % 1}.get(place, np.clip(ends, 0, 1))
            ends = np.round(ends * 40) / 40 if place == "round" else ends
        (declared,) = NOISE[law](scale).least_noise(1)
        wrong += excess(columns, states[:, None], ends, declared, (0.0, 1.0), log(1 / 0.2)) is not None
    assert wrong <= 60 * 0.6


def test_the_chance_of_an_interval_and_its_copies_is_bounded_wherever_the_drift_leads():
    """The copies are two gaps apart; the drift leads to some place between an interval and the middle of a gap."""
    (noise,) = certirl.dynamics.GaussianNoise(0.5, slope=1.0).least_noise(1)
    for length in (0.2, 0.6):
        gaps = np.linspace(length, 3, 8)
        places = np.linspace(0, 1, 201)[:, None] * gaps / 2
        ends = gaps - length / 2
        each = [noise.within_interval(place, length) for place in places]
        exact = np.array(each) + noise.beyond(np.maximum(ends - places, 0)) + noise.beyond(np.maximum(ends + places, 0))
        most, found = np.minimum(exact.max(axis=0), 1), _chances(noise, gaps, length)
        assert (most <= found + 1e-12).all() and (found <= 1.2 * most).all()


# What is declared of true systems: how often it is refused by tests that may be wrong with probability 0.3.


def _tail(seed):
    rng = np.random.default_rng(seed)
    states, actions = rng.uniform(0, 1, 8_400), np.repeat([0, 1], 4_200)
    ends = np.clip(0.8 * states + 0.1 * actions + 0.3 * rng.normal(size=8_400), 0, 1)
    log = certirl.Transitions(states, actions, ends, domain=(0, 1), independent=True)
    return contradictions.of_tail(certirl.dynamics.GaussianNoise(0.3, slope=0.8), as_source(log))


def _circle(seed):
    rng = np.random.default_rng(seed)
    states, actions = rng.uniform(0, 1, 8_400), np.repeat([0, 1], 4_200)
    ends = (states + 0.1 * actions + 0.3 * rng.normal(size=8_400)) % 1
    log = certirl.Transitions(states, actions, ends, domain=(0, 1), periodic=(0,), independent=True)
    return contradictions.of_circle(certirl.dynamics.GaussianNoise(0.3, slope=1.0), as_source(log), (0,))


def _drift(seed, order=False):
    rng = np.random.default_rng(seed)
    states, actions = walk(3_000, 0.3, rng) if order else (rng.uniform(0, 1, 3_001), rng.integers(2, size=3_000))
    before = states[:-1]
    after = states[1:] if order else np.clip(0.8 * before + 0.1 * actions + 0.3 * rng.normal(size=3_000), 0, 1)
    log = certirl.Transitions(before, actions, after, domain=(0, 1), independent=not order)
    rows, kind = rows_of(log), "dependent" if order else "independent"
    drift = fit_drift(DriftSums.of(*rows, 2, kind), 0.6, 0.1, wall_of(log.domain))
    return contradictions.of_drift(drift, *rows, rng, dependent=order)


TRUE = {"tail": _tail, "circle": _circle, "drift": _drift, "drift in order": lambda seed: _drift(seed, order=True)}


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "most"), sizes((30, 15), (60, 26)))
@pytest.mark.parametrize("name", TRUE)
def test_what_is_true_is_refused_at_most_at_the_stated_rate(name, runs, most, monkeypatch):
    monkeypatch.setattr(contradictions, "MISTAKEN", 0.3)
    refused = sum(bool(TRUE[name](seed)) for seed in range(runs))
    assert refused <= most  # at 0.3 it is more with probability 0.01


def test_all_say_nothing_or_one_sentence_and_refuse_raises_it():
    contradictions.refuse("")
    with pytest.raises(ValueError, match="one sentence"):
        contradictions.refuse("one sentence")


@pytest.mark.parametrize(("share", "refused"), [(0.9, False), (1.15, True)])
def test_known_noise_is_refused_from_the_inequality_of_dvoretzky_kiefer_and_wolfowitz_on(share, refused):
    """Ranks of noise that bend by D around the median, the same in all quarters: five groups of rows, both sides."""
    n = 4_000
    most = np.sqrt(log(2 * 5 * 2 / contradictions.MISTAKEN) / (2 * n))
    ranks = (np.arange(n) + 0.5) / n
    bent = ranks - share * most * np.maximum(1 - np.abs(ranks - 0.5) / 0.3, 0)
    order = np.random.default_rng(0).permutation(n)
    drift = Drift(np.zeros((1, 2)), np.zeros((1, 2, 2)), 0.1)
    states = np.arange(n) % 4 / 2 - 0.75 + 1e-3 * np.random.default_rng(1).uniform(size=n)
    rows = states[order], np.zeros(n, dtype=int), 0.1 * ndtri(bent)[order]
    assert bool(contradictions.of_drift(drift, *rows, np.random.default_rng(0))) == refused


def test_the_levels_of_all_intervals_add_up_to_what_may_be_wrong(monkeypatch):
    """Three lengths and five λ for each action: together they refuse true noise with half of the stated probability."""
    levels, plain = [], contradictions.excess
    monkeypatch.setattr(contradictions, "excess", lambda *asked: levels.append(asked[-1]) or plain(*asked))
    certirl.certify(reward, TANK, columns=Legendre(15), tail=TANK.tail, samples=20_000, **ASKED)
    assert len(levels) == 2 and len(contradictions._HALVES) * len(contradictions._RATIOS) == 15
    assert sum(15 * np.exp(-level) for level in levels) == pytest.approx(contradictions.MISTAKEN / 2)


@pytest.mark.parametrize(("ratio", "rows"), [(0.6, 600), (0.8, 2_500), (0.9, 9_000), (1.0, 9_000)])
def test_more_noise_than_there_is_is_refused_at_few_rows(ratio, rows):
    """A test that knows the drift, of the sum of squares, sees it at 60, 270 and 1,100 rows."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        states = rng.uniform(0, 10, rows)
        ends = np.clip(0.6 * states + 2 + rng.normal(size=rows), 0, 10)
        (noise,) = certirl.dynamics.GaussianNoise(1 / ratio, slope=0.6).least_noise(1)
        level = log(15 * 2 / contradictions.MISTAKEN)
        found = contradictions.excess(Legendre(9, (0, 10)), states[:, None], ends, noise, (0.0, 10.0), level)
        assert (found is not None) == (ratio < 1)
