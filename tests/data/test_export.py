"""Bands of transition probabilities between cells: they hold together, and files of them are read as written."""

import numpy as np
import pytest

import certirl
from certirl.data.export import clopper_pearson, martingale_band
from refusals import refused

DELTA = 0.1


def exact(problem, grid, points=24):
    """P_a(C_j | s) at Gauss points s of every cell, and their averages over the cell: [A, S, points, S], [A, S, S]."""
    t, w = np.polynomial.legendre.leggauss(points)
    edges = np.linspace(*problem.domain[0], grid.shape[0] + 1)
    nodes = ((edges[:-1] + edges[1:])[:, None] + np.diff(edges)[:, None] * t) / 2
    kernel = np.stack([problem.density(nodes.ravel(), nodes.ravel(), a) for a in range(problem.n_actions)])
    kernel = kernel.reshape(problem.n_actions, len(nodes), points, len(nodes), points)
    into = np.einsum("aiqjp,p,j->aiqj", kernel, w, np.diff(edges) / 2)
    return into, np.einsum("aiqj,q->aij", into, w) / 2


@pytest.fixture(scope="module")
def problem():
    return certirl.problems.random_polynomial(seed=1, actions=2)


def held(model, truth):
    return bool(((model.lower <= truth) & (truth <= model.upper)).all())


def check_rows(lower, upper):
    """Every row holds a distribution, and no end is out of reach of one."""
    assert (lower >= 0).all() and (upper <= 1 + 1e-9).all() and (lower <= upper).all()
    assert (lower.sum(axis=-1) <= 1 + 1e-9).all() and (upper.sum(axis=-1) >= 1 - 1e-9).all()


def test_bands_of_a_simulator_hold_together_as_often_as_stated(problem):
    runs, failures = 60, 0
    for seed in range(runs):
        model = certirl.export.interval_mdp(problem, cells=4, delta=DELTA, samples=40, rng=seed)
        if seed == 0:
            truth = exact(problem, model.grid)[1]
            np.testing.assert_allclose(truth.sum(axis=2), 1.0, atol=1e-9)
            check_rows(model.lower, model.upper)
        failures += not held(model, truth)
    assert failures <= DELTA * runs  # of discrete counts: exact bands fail more rarely than stated
    narrow = (model.lower + model.upper)[..., None] / 2 + (model.upper - model.lower)[..., None] * [-0.2, 0.2]
    assert not ((narrow[..., 0] <= truth) & (truth <= narrow[..., 1])).all()  # two fifths of the width would not do


def walk(problem, rng, steps):
    """Episodes in which the action depends on everything before, and which end as soon as some target was reached."""
    rows = []
    while len(rows) < steps:
        state, lucky = np.array([[rng.uniform(-1, 1)]]), 0
        for _ in range(20):
            action = int(lucky % 2)
            after = problem.sample(state, action, rng)
            rows.append((state[0, 0], action, after[0, 0]))
            lucky += int(after[0, 0] > 0)
            state = after
            if lucky > 4:
                break
    return certirl.Transitions(*np.array(rows).T, domain=problem.domain, n_actions=2)


def test_bands_of_episodes_hold_for_the_average_over_their_own_states(problem):
    rng, failures, runs = np.random.default_rng(0), 0, 30
    for _ in range(runs):
        log = walk(problem, rng, 300)
        model = certirl.export.interval_mdp(log, cells=3, delta=DELTA)
        check_rows(model.lower, model.upper)
        cell, edges = model.cell(log.states), np.linspace(-1, 1, 4)
        t, w = np.polynomial.legendre.leggauss(24)
        nodes = ((edges[:-1] + edges[1:])[:, None] + np.diff(edges)[:, None] * t) / 2
        for action in range(2):
            kernel = problem.density(nodes.ravel(), log.states[:, 0], action).reshape(-1, 3, 24)
            into = kernel @ w / 3
            for start in range(3):
                rows = (cell == start) & (log.actions == action)
                assert rows.sum() == model.visits[action, start]
                mean = into[rows].mean(axis=0) if rows.any() else np.full(3, 1 / 3)
                inside = (model.lower[action, start] <= mean) & (mean <= model.upper[action, start])
                failures += not inside.all()
    assert failures <= DELTA * runs
    often = model.visits > 100
    assert often.any() and (model.upper - model.lower)[often].mean() < 0.3


def test_with_a_lipschitz_constant_the_bands_hold_for_every_state(problem):
    model = certirl.export.interval_mdp(problem, cells=6, delta=DELTA, rng=0)
    into, _ = exact(problem, model.grid)
    states = np.linspace(-1, 1, 2_001)
    densities = np.stack([problem.density(states, states, a) for a in range(2)])
    slope = np.abs(np.diff(densities, axis=1)).sum(axis=2).max() / 2  # of the total variation: ½ ∫ |∂p/∂s| ds'
    wide = certirl.export.interval_mdp(problem, cells=6, delta=DELTA, lipschitz=1.01 * slope, rng=0)
    check_rows(wide.lower, wide.upper)
    every = (wide.lower[:, :, None] <= into) & (into <= wide.upper[:, :, None])
    assert every.all()
    assert not ((model.lower[:, :, None] <= into) & (into <= model.upper[:, :, None])).all()  # averages alone
    assert "declared" in wide.assumptions[1] and "averages" in model.assumptions[1]


@pytest.mark.parametrize("ends", [clopper_pearson, martingale_band])
def test_bands_of_a_coin_are_left_at_most_as_often_as_stated(ends):
    rng, share = np.random.default_rng(0), 0.05
    for n, p in ((5, 0.5), (50, 0.02), (400, 0.97)):
        lower, upper = ends(rng.binomial(n, p, 20_000), np.array([n]), share)
        assert ((p < lower) | (p > upper)).mean() <= share
    assert [float(end[0]) for end in ends(np.array([0]), np.array([0]), share)] == [0.0, 1.0]
    lower, upper = ends(np.array([0, 10**6]), np.array([10**6]), 1e-9)
    assert lower[0] == 0 and upper[1] == 1 and upper[0] < 5e-5 and lower[1] > 1 - 5e-5


def test_clopper_pearson_is_exact():
    from scipy.special import bdtr, bdtrc

    (lower,), (upper,) = clopper_pearson(np.array([7]), np.array([30]), 0.02)
    assert bdtrc(6, 30, lower) == pytest.approx(0.01, rel=1e-5)
    assert bdtr(7, 30, upper) == pytest.approx(0.01, rel=1e-5)


class Falling:
    """Steps to the left or right on [0, 1]; the game is over above 0.9."""

    n_actions, domain = 2, ((0.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(states + (0.2, -0.2)[action] * rng.random(states.shape), 0, 1)

    def terminal(self, states):
        return states[:, 0] > 0.9


def parsed_prism(path):
    """The files as PRISM and IntervalMDP.jl read them: bands [A, T, T], labels, rewards."""
    sta = (path.with_suffix(".sta")).read_text().splitlines()
    assert sta[0].startswith("(") and [int(line.split(":")[0]) for line in sta[1:]] == list(range(len(sta) - 1))
    header, *lines = path.with_suffix(".tra").read_text().splitlines()
    states, choices, transitions = map(int, header.split())
    assert states == len(sta) - 1 and transitions == len(lines) and choices % states == 0
    bands, last = np.zeros((choices // states, states, states, 2)), (-1, -1, -1)
    for line in lines:
        start, action, end, band, name = line.split(" ")
        key = (int(start), int(action), int(end))
        assert key > last and name.isidentifier()  # in order, none twice
        last = key
        bands[key[1], key[0], key[2]] = [float(x) for x in band.removeprefix("[").removesuffix("]").split(",")]
    header, *lines = path.with_suffix(".lab").read_text().splitlines()
    names = dict(word.split("=") for word in header.split())
    labels = {name.strip('"'): set() for name in names.values()}
    for line in lines:
        state, numbers = line.split(": ")
        for number in numbers.split():
            labels[names[number].strip('"')].add(int(state))
    header, *lines = path.with_suffix(".srew").read_text().splitlines()
    assert [int(x) for x in header.split()] == [states, len(lines)]
    rewards = np.zeros(states)
    for line in lines:
        state, value = line.split()
        rewards[int(state)] = float(value)
    return bands, labels, rewards


def parsed_drn(path):
    """Bands [A, T, T] and rewards of Storm's format."""
    head, _, body = path.read_text().partition("@model\n")
    assert "@type: MDP\n@value_type: double-interval\n" in head
    words = head.split()
    states, choices = (int(words[words.index(name) + 1]) for name in ("@nr_states", "@nr_choices"))
    bands, rewards, state, action = np.zeros((choices // states, states, states, 2)), np.zeros(states), -1, 0
    for line in body.splitlines():
        word, *rest = line.split()
        if word == "state":
            state, action = state + 1, -1
            rewards[state] = float(rest[1].strip("[]"))
        elif word == "action":
            action += 1
        else:
            bands[action, state, int(word)] = [float(x.strip("[],")) for x in rest[1:]]
    return bands, rewards


def test_files_hold_what_the_record_holds(tmp_path):
    model = certirl.export.interval_mdp(Falling(), cells=10, delta=0.05, samples=200, rng=0)
    assert model.has_terminal and model.lower.shape == (2, 10, 11) and model.visits[:, 9].tolist() == [0, 0]
    settings = {"reward": lambda s: s[:, 0] - 0.5, "labels": {"low": lambda s: s[:, 0] < 0.25}, "initial": 0.31}
    files = model.export(tmp_path / "model.v1", **settings)
    assert [path.name for path in files] == ["model.v1.sta", "model.v1.tra", "model.v1.lab", "model.v1.srew"]
    bands, labels, rewards = parsed_prism(tmp_path / "model.v1.tra")
    np.testing.assert_array_equal(bands[:, :10], np.stack([model.lower, model.upper], axis=-1))
    assert bands[:, 10, 10].tolist() == [[1, 1], [1, 1]] and not bands[:, 10, :10].any()
    check_rows(bands[..., 0], bands[..., 1])
    assert labels == {"init": {3}, "deadlock": set(), "terminal": {10}, "low": {0, 1}}
    np.testing.assert_allclose(rewards, [*(np.arange(10) / 10 - 0.45), 0.0], atol=1e-12)
    again, earned = parsed_drn(*model.export(tmp_path / "model.drn", **settings))
    np.testing.assert_array_equal(again, bands)
    np.testing.assert_array_equal(earned, rewards)
    model.export(tmp_path / "model.v1", reward=lambda s: s[:, 0], floor=1e-6)
    raised, _, _ = parsed_prism(tmp_path / "model.v1.tra")
    assert raised[..., 0][raised[..., 1] > 0].min() == 1e-6  # PRISM refuses transitions that may not exist


def test_wrong_settings_are_refused_with_a_sentence(problem, tmp_path):
    log = certirl.steps.sample(problem, basis=certirl.Legendre(3), samples=50, rng=0)
    calls = [
        (lambda: certirl.export.interval_mdp(problem, cells=0, delta=0.1, rng=0), "cells"),
        (lambda: certirl.export.interval_mdp(problem, cells=(3, 3), delta=0.1, rng=0), "one for each of 1 coord"),
        (lambda: certirl.export.interval_mdp(problem, cells=3, delta=1.5, rng=0), "delta"),
        (lambda: certirl.export.interval_mdp(problem, cells=10**5, delta=0.1, rng=0), "use fewer cells"),
        (lambda: certirl.export.interval_mdp(problem, cells=3, delta=0.1, lipschitz=-1, rng=0), "lipschitz"),
        (lambda: certirl.export.interval_mdp(log, cells=3, delta=0.1, samples=5), "samples"),
    ]
    model = certirl.export.interval_mdp(log, cells=3, delta=0.1)
    calls += [
        (lambda: model.export(tmp_path / "m", labels={"a b": lambda s: s[:, 0] > 0}), "must be a word"),
        (lambda: model.export(tmp_path / "m", floor=0.9), "floor"),
        (lambda: model.export(tmp_path / "m.drn", initial=7.0), "outside the domain"),
    ]
    ends = certirl.functions.ends.Ends(np.array([[[0.95], [np.inf]]]), -3.0)
    paid = certirl.Reward(certirl.Legendre(2, (0, 1)), [0.0, 1.0], Falling().terminal, ends=ends)
    over = certirl.export.interval_mdp(Falling(), cells=3, delta=0.1, samples=20, rng=0)
    calls.append((lambda: over.export(tmp_path / "m", reward=paid), "a number of its own at some of them"))
    for call, words in calls:
        refused(words, call)
    assert list(tmp_path.iterdir()) == []
