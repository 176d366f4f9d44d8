"""Certified infeasibility on boxes: never false, for experts of one action and for experts that switch."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import certirl
import files
from certirl.functions.bases import Fourier, Legendre, product
from certirl.functions.frame import frame
from certirl.ground.domain import mesh
from certirl.ground.status import Reason, weakest
from certirl.problems import Problem, Whirl, independent, random_independent, thermostat
from certirl.proof import value_cones
from certirl.proof.case import too_many_functions
from certirl.proof.certify import refute
from certirl.solver.solution import findings_of
from mixed import Mixed
from refuting import best_margin, numbers, runs_beyond
from sizes import sizes

# Four ways to drift and an expert that never does: each explanation prefers some drift.
STILL = Whirl(drift=((0.0, 0.0), (0.4, 0.1), (-0.3, 0.3), (-0.1, -0.4)))
STILL_3D = Whirl(
    drift=((0.0, 0.0, 0.0), (0.4, 0.1, 0.2), (-0.3, 0.3, 0.1), (-0.1, -0.4, 0.2), (0.0, 0.0, -0.5)), noise=0.8
)
PLANE, BENT = product(Legendre(2), Legendre(2)), product(Legendre(3), Legendre(3))
COLUMNS = product(Legendre(8), Legendre(8))
TAIL = 1e-3  # above that of these problems, with 36 columns
# Of random polynomial problems every P_cf is a polynomial of degree 2 in each coordinate.
EXACT = product(Legendre(3), Legendre(3), index="full")
CLASSES = {3: PLANE, 4: product(Legendre(2), Legendre(2), index="full"), 6: BENT}
GRID = mesh([np.linspace(-1, 1, 41)] * 2)


def moved(problem, functions, states):
    """(P_cψ_i)(s), i = 2 … K, by quadrature: ``[A, n, K − 1]``."""
    nodes, _ = problem._quadrature()
    phi = functions.on(problem.domain).values(nodes)[:, 1:]
    return np.array([problem._kernel(states, action) @ phi for action in range(problem.n_actions)])


def true_rows(problem, functions, expert, states):
    """ρ_a(s) of all alternatives: ``[m, K − 1]``."""
    after, own = moved(problem, functions, states), expert(states)
    gains = after[own, np.arange(len(states))] - after
    return np.concatenate([gains[a][own != a] for a in range(problem.n_actions)])


def always(action):
    return lambda states: np.full(len(states), action)


class Explained:
    """The expert who does what is best for V = w·ψ: V explains it, by nothing at all at its switches."""

    thread_safe = True

    def __init__(self, problem, functions, w):
        self.columns = EXACT.on(problem.domain)
        states, weights = self.columns.quadrature(6)
        self.gains = (moved(problem, functions, states) @ w * weights) @ self.columns.values(states)  # [A, k]

    def __call__(self, states):
        return (self.columns.values(states) @ self.gains.T).argmax(axis=1)


@dataclass(frozen=True, eq=False)
class Nearly(Problem):
    """Action 0 is the even mixture of the two others but for a share of something else: solvable, by very little."""

    others: Problem
    else_: Problem
    share: float
    name: str = "nearly unsolvable"
    n_actions = 3

    @property
    def domain(self):
        return self.others.domain

    def density(self, next_states, states, action):
        if action:
            return self.others.density(next_states, states, action - 1)
        mixed = sum(self.others.density(next_states, states, a) for a in (0, 1)) / 2
        return (1 - self.share) * mixed + self.share * self.else_.density(next_states, states, 0)

    def sample(self, states, action, rng):
        if action:
            return self.others.sample(states, action - 1, rng)
        toss = rng.random((len(states), 1))
        drawn = [self.others.sample(states, a, rng) for a in (0, 1)]
        mixed = np.where(toss < (1 - self.share) / 2, *drawn)
        return np.where(toss < 1 - self.share, mixed, self.else_.sample(states, 0, rng))


# Soundness


@pytest.mark.thinned(3)
@pytest.mark.parametrize("count", sizes(2, 40))
@pytest.mark.parametrize(("K", "share"), [(4, 0.3), (4, 0.7), (6, 0.3)])
def test_boxes_with_a_reward_are_never_refuted(K, share, count, monkeypatch):
    monkeypatch.setattr(value_cones, "CONES", 24)  # fewer cones are quicker, and no less sound
    functions, solvable = CLASSES[K], 0
    for seed in range(count):
        problem = Nearly(
            random_independent(seed=seed, actions=2), random_independent(seed=1000 + seed, actions=2), share
        )
        best = best_margin(true_rows(problem, functions, always(0), GRID))
        asked = {"basis": functions, "columns": EXACT, "tail": 0, "delta": 0.5, "rng": seed}
        found = refute(
            problem, expert=0, samples=(100, 400, 1600)[seed % 3], paired=None if seed % 2 else False, **asked
        )
        assert found.ceiling >= best - 1e-9
        solvable += best > 1e-6
        assert not found.holds or best <= 1e-6
    assert solvable >= count // 4


@pytest.mark.thinned(3)
@pytest.mark.parametrize("count", sizes(2, 40))
@pytest.mark.parametrize(("K", "tube"), [(3, 0.02), (4, 0.05), (6, 0.05)])
def test_experts_on_boxes_who_can_be_explained_are_never_refuted(K, tube, count, monkeypatch):
    monkeypatch.setattr(value_cones, "CONES", 24)
    switched = estimated = 0
    for seed in range(count):
        problem, rng = random_independent(seed=seed, actions=2 + seed % 2), np.random.default_rng([seed, K])
        functions = CLASSES[K]
        expert = Explained(problem, functions, rng.normal(size=K - 1))
        for _ in range(20):
            expert = expert if len(set(expert(GRID))) > 1 else Explained(problem, functions, rng.normal(size=K - 1))
        switched += len(set(expert(GRID))) > 1
        asked = {"basis": functions, "columns": EXACT, "tail": 0, "delta": 0.5, "rng": seed}
        if len(set(expert(GRID))) > 1:
            asked["tube"] = tube
        found = refute(problem, expert=expert, samples=(100, 400, 1600)[seed % 3], **asked)
        assert not found.holds and found.margin <= 0
        estimated += found.estimated > 0
        named = moved(problem, functions, found.witness.states)
        m = np.arange(len(found.witness))
        rows = named[found.witness.taken, m] - named[found.witness.actions, m]
        assert np.abs(found.witness.weights @ rows).max() <= found.witness.residual + 1e-9
    assert switched > count // 2
    assert estimated > 0 or K > 3 or count < 40  # estimates alone would have refuted now and then


@pytest.mark.parametrize("count", sizes(3, 30))
def test_an_expert_refuted_on_a_box_cannot_be_explained(count, monkeypatch):
    monkeypatch.setattr(value_cones, "CONES", 60)
    refuted, functions = 0, PLANE
    for seed in range(count):
        problem, rng = random_independent(seed=seed, actions=3), np.random.default_rng([seed, 9])
        normal, level = rng.normal(size=2), rng.uniform(-0.3, 0.3)
        first, second = rng.permutation(3)[:2]

        def expert(states, normal=normal, level=level, first=first, second=second):
            return np.where(states @ normal > level, first, second)

        found = refute(
            problem, expert=expert, basis=functions, columns=EXACT, tail=0, delta=0.5, samples=8_000, rng=seed
        )
        if found.holds:
            refuted += 1
            away = np.abs(GRID @ normal - level) / np.linalg.norm(normal) > found.tube
            states = np.concatenate([GRID[away], found.grounds[0].cover.states])
            assert best_margin(true_rows(problem, functions, expert, states)) <= 1e-9
    assert refuted > count // 4


@pytest.mark.parametrize("paired", sizes(True, False))
def test_all_numbers_lie_below_their_bounds_and_no_term_above_its_own(paired):
    problem, n = random_independent(seed=5), 1_600
    expert = Explained(problem, CLASSES[4], np.array([1.0, -0.5, 0.7]))
    asked = {"basis": CLASSES[4], "columns": EXACT, "delta": 0.5, "tube": 0.05}
    cover = refute(problem, expert=expert, samples=2_000, rng=99, paired=paired, **asked).grounds[0].cover
    truth = numbers(cover, moved(problem, cover.functions, cover.states), expert)
    misses, short, data, sums, bounds = runs_beyond(problem, cover, truth, n, [paired] * 20)
    assert misses <= 10 and short > 0  # δ = ½; in fact no misses
    own = frame(cover.columns)
    q = np.linalg.solve(own.lifted(sums.gram), cover.pulls[..., None])[..., 0][cover.which]
    terms = []
    for c in range(problem.n_actions):
        states, ends = data.states[data.actions == c], data.next_states[data.actions == c]
        x = own.values(states)
        residuals = cover.functions.values(ends)[:, 1:] - x @ cover.fits[c].T
        terms.append((q[:, c] @ x.T) * (cover.directions @ residuals.T))
    whole = np.sum(terms, axis=0)[None] if paired else np.array(terms)
    worst = np.abs(whole).max(axis=(0, 2))
    assert (worst <= bounds.bound * (1 + 1e-9)).all() and (paired or (worst > 0.3 * bounds.bound).any())
    np.testing.assert_allclose(bounds.observed, (whole**2).sum(axis=(0, 2)), rtol=1e-6)


# Power


@pytest.mark.parametrize(
    ("problem", "functions", "columns", "samples"),
    [
        *sizes(
            (STILL, PLANE, COLUMNS, 2_000),
            (STILL, BENT, COLUMNS, 20_000),
            (STILL_3D, product(*[Legendre(2)] * 3), product(*[Legendre(6)] * 3), 20_000),
        ),
    ],
)
def test_an_expert_that_stays_still_is_refuted(problem, functions, columns, samples):
    count = 41 if len(problem.domain) == 2 else 11
    states = mesh([np.linspace(-1, 1, count)] * len(problem.domain))
    assert best_margin(true_rows(problem, functions, always(0), states)) < 1e-9  # the truth
    found = refute(problem, expert=0, basis=functions, columns=columns, tail=problem.tail, samples=samples, rng=0)
    assert found.holds and found.ceiling == 0 and found.tube == 0
    claim = "no reward of the state whose value lies in Legendre("
    assert str(found).startswith(f"Certified infeasible with probability 0.95: {claim}")
    after, m = moved(problem, functions, found.witness.states), np.arange(len(found.witness))
    rows = after[found.witness.taken, m] - after[found.witness.actions, m]
    assert np.abs(found.witness.weights @ rows).max() <= found.witness.residual


def towards(states):
    """Drift to the right on the left half and to the left on the right half."""
    return np.where(states[:, 0] < 0, 0, 1)


def test_an_expert_that_switches_on_a_box_is_refuted_outside_its_tube():
    problem = Whirl()
    settings = {"columns": COLUMNS, "tail": TAIL, "rng": 0}
    away = GRID[np.abs(GRID[:, 0]) > 0.05]
    assert best_margin(true_rows(problem, PLANE, towards, away)) < 1e-9
    found = refute(problem, expert=towards, basis=PLANE, samples=20_000, **settings)
    assert found.holds and found.tube == pytest.approx(0.05)
    assert "makes the expert strictly optimal farther than 0.05 from its switches" in str(found)
    cover = found.grounds[0].cover
    assert np.abs(cover.states[:, 0]).min() > 0.05
    np.testing.assert_array_equal(cover.probabilities.argmax(axis=1), towards(cover.states))
    log = certirl.steps.sample(problem, basis=COLUMNS, samples=20_000, rng=1, design=True, paired=True)
    assert refute(log, expert=towards, basis=PLANE, columns=COLUMNS, tail=TAIL).holds


def test_a_box_beside_an_interval_is_refuted_as_a_sum():
    room = thermostat(power=(0.0, 1.5, -1.5, 0.75))
    problem = independent(STILL, room)
    found = refute(
        problem,
        expert=0,
        basis=[PLANE, Legendre(3)],
        components=[[0, 1], [2]],
        columns=[36, 12],
        tail=lambda columns: TAIL if columns.dimension == 2 else room.tail(columns),
        samples=10_000,
        rng=0,
    )
    assert found.holds and [ground.cover.coordinates for ground in found.grounds] == [(0, 1), (2,)]
    assert "no sum of rewards" in str(found)


# In the one call


def test_solve_proves_on_a_box_that_no_reward_exists(tmp_path):
    problem = Whirl(drift=STILL.drift, shrink=0.3, noise=1.5)
    settings = {"discount": 0.7, "basis": PLANE, "delta": 0.05, "rng": 0}
    found = certirl.solve(problem, expert=0, columns=3, tail=problem.tail, samples=100_000, **settings)
    assert found.status == "infeasible" and found.refutation.holds
    back = certirl.load(found.save(tmp_path / "none"))
    assert back.refutation.holds and files.lines_of(back) == files.lines_of(found)


@pytest.mark.slow
def test_solve_proves_on_a_box_that_no_reward_explains_an_expert_who_switches():
    settings = {"discount": 0.7, "basis": PLANE, "delta": 0.05, "rng": 0}
    switching = certirl.solve(Whirl(), expert=towards, columns=COLUMNS, tail=TAIL, samples=300_000, **settings)
    assert switching.status == "infeasible" and "farther than 0.05 from its switches" in str(switching)


def test_a_search_says_how_many_functions_are_too_many_to_refute():
    many = product(Legendre(6), Legendre(6))
    assert too_many_functions([PLANE, Legendre(30)]) == ""
    why = too_many_functions([PLANE, many])
    assert why.endswith("at most 16 functions, and here are 21")
    conflict = SimpleNamespace(finding=Reason.CONFLICT.finding())
    reasons = findings_of(conflict, None, None, asked=True, too_many=why)
    assert weakest(reasons).status == "undetermined" and why in weakest(reasons).cause


# Identities


def test_one_component_is_the_plain_case_and_a_constant_function_is_an_action(monkeypatch):
    monkeypatch.setattr(value_cones, "CONES", 30)
    settings = {"basis": PLANE, "columns": 36, "tail": TAIL, "samples": 1_500, "rng": 3}
    plain = refute(STILL, expert=0, **settings)
    component = refute(STILL, expert=0, components=[[0, 1]], **settings)
    function = refute(STILL, expert=always(0), **settings)
    for other in (component, function):
        assert other.estimated == pytest.approx(plain.estimated, rel=1e-9) and other.holds == plain.holds
        assert other.margin == pytest.approx(plain.margin, rel=1e-9)


def test_a_circle_and_a_speed_without_noise_are_refuted():
    class Turn:
        n_actions, domain = 3, ((-np.pi, np.pi), (-1.0, 1.0))

        def sample(self, states, action, rng):
            angle = np.mod(states[:, 0] + (0.4, 1.3, 2.1)[action] + np.pi, 2 * np.pi) - np.pi
            return np.column_stack([angle, 0.5 * states[:, 1] + (0.0, 0.3, -0.3)[action]])

    # On average over the circle no angle gains anything; one alternative raises the speed, the other lowers it.
    basis = product(Fourier(3), Legendre(2))
    assert refute(Turn(), expert=0, basis=basis, columns=basis, tail=0, samples=3_000, rng=0).holds


# Between


@pytest.mark.slow
def test_a_conflict_on_a_box_that_noise_could_hide_has_a_shrinking_ceiling():
    problem, ceilings = Mixed(random_independent(seed=3, actions=2)), []
    assert best_margin(true_rows(problem, CLASSES[4], always(0), GRID)) == pytest.approx(0, abs=1e-9)
    for samples in (1_000, 16_000):
        found = refute(problem, expert=0, basis=CLASSES[4], columns=EXACT, tail=0, samples=samples, rng=1)
        assert not found.holds and "Undetermined" in str(found)
        ceilings.append(found.ceiling)
    assert ceilings[0] > 3 * ceilings[1] > 0


@pytest.mark.parametrize(
    ("problem", "settings", "sentence"),
    [
        (STILL, {"columns": EXACT.resized(3)}, "hold every simpler product"),
        (independent(STILL, STILL), {"basis": product(*[Legendre(2)] * 4)}, "3 coordinates at most"),
    ],
)
def test_what_cannot_be_refuted_is_a_sentence(problem, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        refute(problem, **{"expert": 0, "basis": PLANE, "samples": 500, "rng": 0} | settings)


def test_a_component_may_name_its_coordinates_in_any_order(monkeypatch):
    monkeypatch.setattr(value_cones, "CONES", 30)
    settings = {"expert": 0, "basis": PLANE, "columns": 36, "tail": TAIL, "samples": 2_000, "rng": 0}
    assert all(refute(STILL, components=[order], **settings).holds for order in ([0, 1], [1, 0]))
