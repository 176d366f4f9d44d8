"""Bands for the rewards of soft experts: docs/notes/soft-experts.md, against dynamics that are known exactly."""

import functools

import numpy as np
import pytest

import certirl
from certirl.fit.logit import maximise
from certirl.ground.domain import as_domain
from certirl.proof.drift import Drift
from certirl.proof.known_noise import _Kernel
from certirl.proof.odds import Odds, gather_odds
from certirl.proof.soft import _first, prove_band
from certirl.proof.soft_noise import KnownEffects

GAMMA = 0.8


def chances_of(basis, theta, states):
    weights = np.exp(basis.values(states) @ theta.T)
    return weights / weights.sum(axis=1, keepdims=True)


def decide(chances, rng):
    return (rng.random(len(chances))[:, None] > np.cumsum(chances, axis=1)).sum(axis=1).clip(0, chances.shape[1] - 1)


class Clipped:
    """s' = clip(0.8 s + drift_a + 0.4 ξ) on [−1, 1], and a soft expert with these coefficients of the log-odds."""

    domain, std, pull = ((-1.0, 1.0),), 0.4, 0.8

    def __init__(self, theta, drifts):
        self.theta, self.drifts = np.asarray(theta), np.asarray(drifts)
        self.n_actions, self.basis = len(drifts), certirl.Legendre(self.theta.shape[1])

    def sample(self, states, action, rng):
        return np.clip(self.pull * states + self.drifts[action] + self.std * rng.normal(size=states.shape), -1.0, 1.0)

    def log(self, rng, episodes, steps):
        """The expert's own episodes, one after the other."""
        states, rows = rng.uniform(-1, 1, (episodes, 1)), []
        for _ in range(steps):
            actions = decide(chances_of(self.basis, self.theta, states), rng)
            noise = self.std * rng.normal(size=states.shape)
            after = np.clip(self.pull * states + self.drifts[actions, None] + noise, -1.0, 1.0)
            rows.append((states, actions, after))
            states = after
        states, actions, after = (
            np.stack(part, axis=1).reshape(-1, *part[0].shape[1:]) for part in zip(*rows, strict=True)
        )
        return certirl.Transitions(
            states, actions, after, episodes=np.repeat(np.arange(episodes), steps), domain=self.domain,
            n_actions=self.n_actions,
        )  # fmt: skip

    def rewards(self, nodes=801):
        """States and R_a − r_0 of every action ``[A, n]``, by a grid of its own."""
        lines = [[drift, self.pull] for drift in self.drifts]
        return identified(self.basis, self.theta, np.array(lines), self.std, nodes)


def identified(basis, theta, lines, std, nodes=801):
    """The rewards that (2) says, with the operators on functions that are linear between nodes."""
    places, operators = np.linspace(-1, 1, nodes), []
    for constant, slope in lines:
        table = _Kernel(constant + slope * places, places, std).mean()
        operator = np.zeros((nodes, nodes))
        operator[:, 0] = 1.0
        operator[:, 1:] += table
        operator[:, :-1] -= table
        operators.append(operator)
    odds = basis.values(places[:, None]) @ theta.T
    cost = np.log(np.exp(odds).sum(axis=1))
    value = np.linalg.solve(np.eye(nodes) - GAMMA * operators[0], cost)
    rewards = [odds[:, a] + GAMMA * (operators[0] - operators[a]) @ value for a in range(len(lines))]
    return places[::8], np.array(rewards)[:, ::8]


TWO = Clipped([[0, 0], [0.3, 0.6]], [0.2, -0.2])
THREE = Clipped([[0, 0, 0], [-0.2, 0.4, 0.2], [0.1, -0.5, 0.1]], [0.0, 0.3, -0.3])


@pytest.mark.parametrize("problem", [TWO, THREE], ids=["two", "three"])
def test_the_set_of_log_odds_holds_the_true_ones(problem):
    # How far the truth is in units of the set, in the direction in which it is farthest.
    far = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        states = rng.uniform(-1, 1, (3000, 1))
        actions = decide(chances_of(problem.basis, problem.theta, states), rng)
        first = np.arange(len(states)) % 10 == 0
        odds = gather_odds(problem.basis, states, actions, problem.n_actions, first=first)
        reach = odds.reach(0.5)
        far.append(np.linalg.norm(np.linalg.solve(reach, (problem.theta - odds.coefficients)[1:].ravel())))
    assert np.mean(np.array(far) > 1) <= 0.5
    assert max(far) > 0.45


@pytest.mark.parametrize("tail", [0.0, 0.05])
@pytest.mark.parametrize("problem", [TWO, THREE], ids=["two", "three"])
def test_the_set_of_log_odds_is_that_of_the_note(problem, tail):
    """(3) to (6) once more, with loops over decisions and over r."""
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (6000, 1))
    actions = decide(chances_of(problem.basis, problem.theta, states), rng)
    first = np.arange(len(states)) % 10 == 0
    odds = gather_odds(problem.basis, states, actions, problem.n_actions, first=first, tail=tail)
    chances, x = chances_of(problem.basis, odds.coefficients, states[~first]), problem.basis.values(states[~first])
    apart = np.eye(problem.n_actions)[:, 1:]
    each = [
        np.kron(np.diag(p[1:]) - np.outer(p[1:], p[1:]), np.outer(row, row)) for p, row in zip(chances, x, strict=True)
    ]
    known, gram = sum(each), np.kron(np.eye(problem.n_actions - 1), x.T @ x)
    score = sum(np.kron(e - p[1:], row) for e, p, row in zip(apart[actions[~first]], chances, x, strict=True))
    inverse = np.linalg.inv(known)
    ways = [np.kron(c - d, x) for c in apart for d in apart]
    farthest = max(np.einsum("ni,ij,nj->n", way, inverse, way).max() for way in ways)
    assert odds.information.sum(axis=0) == pytest.approx(known) and odds.counts.sum() == len(x)
    assert odds.score == pytest.approx(score, abs=1e-6) and odds.leverages.max() == pytest.approx(farthest)
    half = np.linalg.inv(np.linalg.cholesky(known))
    slope = np.linalg.norm(half @ score) + tail * np.exp(tail) * np.sqrt(len(x))
    sets = []
    for prior in (scale * odds.prior for scale in (0.25, 0.06, 0.015)):
        more = np.expm1(2 * tail + odds.leverages / 2)
        inner = np.linalg.inv(prior + known)
        spread = sum(m * np.trace(inner @ part) for m, part in zip(more, odds.information, strict=True))
        grown = (np.eye(len(known)) + np.linalg.solve(prior, part) for part in (known, gram / 2))
        near, far = (np.linalg.slogdet(part)[1] / 2 for part in grown)
        near, far = np.log(3 / 0.1) + near + spread / 2, np.log(3 / 0.1) + far
        found = None
        for r in np.geomspace(1, 100, 1_000):
            z = -r * np.sqrt(odds.leverages)
            curved = np.tensordot(np.exp(-2 * tail) * (np.exp(z) - 1 - z) / z**2, odds.information, 1) - prior / 2
            gained = r**2 * np.linalg.eigvalsh(half @ curved @ half.T)[0] - r * slope
            if gained > near and found is None:
                found = (near + r * slope) * np.linalg.inv(curved)
            if gained > max(near, far):
                sets.append(found)
                break
    reach = odds.reach(0.1)
    smallest = min(sets, key=lambda square: np.trace(square @ known))
    assert reach @ reach.T == pytest.approx(smallest, rel=0.01, abs=0.01 * np.abs(smallest).max())


def test_the_likeliest_log_odds_are_found_from_afar():
    # Whole steps of Newton's method go ever farther from there, to odds that no number holds.
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (3000, 1))
    actions = decide(chances_of(THREE.basis, THREE.theta, states), rng)
    near, far = (maximise(THREE.basis, states, actions, size * THREE.theta, 0) for size in (1, 20))
    assert far == pytest.approx(near, abs=1e-6)


def test_of_dependent_decisions_too():
    # The next state goes where the rarer action was seen less often than expected: the worst a past can do.
    theta, runs, far = np.array([[0.0, 0.0], [-0.5, 0.8]]), 40, []
    basis, rng, debt, rows = certirl.Legendre(2), np.random.default_rng(0), np.zeros(runs), []
    for _ in range(2000):
        states = np.sign(debt) * rng.uniform(0, 1, runs)
        chances = chances_of(basis, theta, states[:, None])[:, 1]
        actions = (rng.random(runs) < chances).astype(int)
        debt += chances - actions
        rows.append((states, actions))
    every = (np.stack(part, axis=1) for part in zip(*rows, strict=True))
    for states, actions in zip(*every, strict=True):
        odds = gather_odds(basis, states[:, None], actions, 2, first=np.arange(2000) < 200)
        far.append(np.linalg.norm(np.linalg.solve(odds.reach(0.5), (theta - odds.coefficients)[1].ravel())))
    assert np.mean(np.array(far) > 1) <= 0.5
    assert max(far) > 0.45


def test_a_tail_of_the_log_odds_is_allowed_for():
    basis, rng = certirl.Legendre(2), np.random.default_rng(0)
    states = rng.uniform(-1, 1, (20_000, 1))
    wave = 0.05 * np.sign(np.sin(9 * states[:, 0]))
    weight = np.exp(basis.values(states) @ [0.2, 0.5] + wave)
    actions = (rng.random(len(states)) < weight / (1 + weight)).astype(int)
    first = np.arange(len(states)) % 10 == 0
    plain, allowed = (gather_odds(basis, states, actions, 2, first=first, tail=tail) for tail in (0.0, 0.05))
    error = [0.2, 0.5] - allowed.coefficients[1]
    assert np.linalg.norm(np.linalg.solve(allowed.reach(0.05), error)) < 1
    assert (np.linalg.norm(allowed.reach(0.05)) > 1.5 * np.linalg.norm(plain.reach(0.05))).all()


def odds_around(problem, size):
    """Log-odds that are known as from ``size`` decisions at even states."""
    states = np.linspace(-1, 1, size)[:, None]
    actions = decide(chances_of(problem.basis, problem.theta, states), np.random.default_rng(0))
    return gather_odds(problem.basis, states, actions, problem.n_actions, first=np.arange(size) % 10 == 0)


@pytest.mark.parametrize("tail", [0.0, 0.02])
def test_what_the_second_order_leaves_is_below_its_bound(tail):
    odds, rng = odds_around(THREE, 20_000), np.random.default_rng(1)
    odds = Odds(**{**vars(odds), "tail": tail})
    reach, states = odds.reach(0.05), np.linspace(-1, 1, 50)[:, None]
    here, bends, bound, largest = odds.at(states), odds.bends(states), odds.remainder(reach, states), np.zeros(50)
    for _ in range(300):
        moved = reach @ (lambda z: z / np.linalg.norm(z))(rng.normal(size=len(reach)))
        change = np.zeros((50, 3))
        change[:, 1:] = here.x @ moved.reshape(2, -1).T + tail * rng.choice([-1, 1], (50, 2))
        exact = np.log(np.exp(here.odds + change).sum(axis=1)) - here.cost
        left = exact - (here.chances * change).sum(axis=1) - np.einsum("i,nij,j->n", moved, bends, moved)
        largest = np.maximum(largest, np.abs(left))
    assert (largest <= bound).all()
    assert (largest > 0.2 * bound).any()


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "size", "rows"), [(TWO, 4000, 4000), (THREE, 20_000, 3000)], ids=["two", "three"])
def test_errors_of_drift_and_log_odds_stay_within_what_is_allowed_for_them(problem, size, rows):
    # Every error on the boundary of its set; the bound of what is of second order is deterministic.
    odds, A, rng, shares = odds_around(problem, size), problem.n_actions, np.random.default_rng(2), []
    reach, spread = odds.reach(0.05), 3 * problem.std / np.sqrt(rows)
    lines = np.array([[drift, problem.pull] for drift in problem.drifts])
    shape = np.tile(spread**2 * np.diag([1.0, 3.0]), (A, 1, 1))
    effects = KnownEffects(Drift(lines, shape, problem.std), as_domain(problem.domain), GAMMA, odds, reach)
    for turn in range(6):
        z = rng.normal(size=len(reach))
        z = [np.eye(len(reach))[turn % len(reach)], z / np.linalg.norm(z)][turn % 2]
        theta = odds.coefficients.copy()
        theta[odds.others] += (reach @ z).reshape(len(odds.others), -1)
        y = rng.normal(size=(A, 2))
        true = lines + y / np.linalg.norm(y) * spread * np.sqrt([1.0, 3.0])
        places, rewards = identified(problem.basis, theta, true, problem.std, 401)
        for action in odds.others:
            parts = effects.parts(places[:, None], action)
            error = np.abs(rewards[action] - parts.estimate)
            allowed = parts.odds + parts.dynamics[0] + parts.rest[0]
            assert np.isfinite(allowed).all()
            assert (error <= allowed).all()
            shares.append(float((error / allowed).max()))
    assert max(shares) > 0.3


def test_the_band_of_known_effects_shrinks_to_the_truth():
    odds = odds_around(TWO, 4000)
    odds = Odds(**{**vars(odds), "coefficients": TWO.theta})
    lines = np.array([[drift, TWO.pull] for drift in TWO.drifts])
    drift = Drift(lines, 1e-14 * np.tile(np.eye(2), (2, 1, 1)), TWO.std)
    effects = KnownEffects(drift, as_domain(TWO.domain), GAMMA, odds, 1e-7 * np.eye(2))
    places, rewards = TWO.rewards()
    parts = effects.parts(places[:, None], 1)
    assert np.abs(parts.estimate - rewards[1]).max() < 1e-5
    assert (parts.odds + parts.dynamics + parts.rest).max() < 2e-3


DECLARED = certirl.dynamics.AffineGaussian(std=0.4)


@functools.cache
def from_episodes(problem, episodes):
    log = problem.log(np.random.default_rng(3), episodes, 20)
    return prove_band(problem.basis, log, discount=GAMMA, dynamics=DECLARED, reference_reward=2.0)


@pytest.mark.parametrize(("problem", "episodes"), [(TWO, 200), (THREE, 1500)], ids=["two", "three"])
def test_bands_from_the_experts_own_episodes_hold_the_identified_reward(problem, episodes):
    band = from_episodes(problem, episodes)
    places, rewards = problem.rewards()
    assert band.holds
    for action in range(1, problem.n_actions):
        low, high = band(places, action)
        assert (low <= 2 + rewards[action]).all()
        assert (2 + rewards[action] <= high).all()
        assert np.median(high - low) < 3 * np.ptp(rewards[action])
        parts = band.losses(places, action)
        assert np.allclose(sum(parts.values()), (high - low) / 2)
    assert (band(places, 0)[0] == 2.0).all()


@pytest.mark.parametrize("drawn", [True, False], ids=["simulator", "own rows"])
def test_bands_by_columns_hold_the_identified_reward(drawn):
    problem, tail = TWO, certirl.dynamics.GaussianNoise(0.4, slope=0.8)
    rng = np.random.default_rng(4)
    states = rng.uniform(-1, 1, (60_000, 1))
    actions = decide(chances_of(problem.basis, problem.theta, states), rng)
    after = np.clip(0.8 * states + problem.drifts[actions, None] + 0.4 * rng.normal(size=states.shape), -1, 1)
    log = certirl.Transitions(states, actions, after, domain=problem.domain)
    asked = {"discount": GAMMA, "columns": certirl.Legendre(9), "tail": tail, "rng": 0}
    band = prove_band(
        problem.basis, log, *([problem] if drawn else []), **asked, **({"samples": 40_000} if drawn else {})
    )
    places, rewards = problem.rewards()
    low, high = band(places, 1)
    assert band.holds
    assert (low <= rewards[1]).all()
    assert (rewards[1] <= high).all()
    assert np.median(high - low) < np.ptp(rewards[1])


def test_another_reference_turns_the_band_around():
    # r_0 = 0 for one action, or the other: both bands are about one expert, each with a reward of its own.
    log = TWO.log(np.random.default_rng(5), 400, 20)
    band = prove_band(TWO.basis, log, discount=GAMMA, dynamics=DECLARED, reference=1)
    swapped = Clipped(TWO.theta[::-1] - TWO.theta[1], TWO.drifts[::-1])
    places, rewards = swapped.rewards()
    low, high = band(places, 0)
    assert (low <= rewards[1]).all()
    assert (rewards[1] <= high).all()


def test_a_band_is_what_was_saved(tmp_path):
    band = from_episodes(TWO, 200)
    again = certirl.load(band.save(tmp_path / "band"))
    assert (again.low == band.low).all()
    assert all((one == two).all() for one, two in zip(again([0.1, 0.2], 1), band([0.1, 0.2], 1), strict=True))


def test_too_few_decisions_give_no_band():
    band = prove_band(TWO.basis, TWO.log(np.random.default_rng(6), 10, 10), discount=GAMMA, dynamics=DECLARED)
    low, high = band([0.0], 1)
    assert not band.holds
    assert (low == -np.inf).all()
    assert (high == np.inf).all()
    assert str(band).startswith("No band: ")


def test_what_no_band_exists_for_is_refused():
    log = TWO.log(np.random.default_rng(6), 100, 10)
    with pytest.raises(ValueError, match="declare one thing of the dynamics"):
        prove_band(TWO.basis, log, discount=GAMMA)
    with pytest.raises(ValueError, match="needs independent rows"):
        prove_band(TWO.basis, log, discount=GAMMA, columns=certirl.Legendre(5), tail=0.0, rng=0)
    with pytest.raises(TypeError, match="a simulator takes none"):
        prove_band(TWO.basis, TWO, discount=GAMMA, dynamics=DECLARED)
    with pytest.raises(ValueError, match="must be polynomials"):
        prove_band(certirl.Fourier(3), log, discount=GAMMA, dynamics=DECLARED)
    with pytest.raises(ValueError, match=r"about 2 actions on \[-1, 1\], the dynamics about 3 on"):
        prove_band(TWO.basis, log, THREE, discount=GAMMA, dynamics=DECLARED)


def test_what_fixes_the_prior_depends_on_no_later_decision():
    # Episodes end where their steps lead: later ones that go on for longer change no expectation.
    log, rows = TWO.log(np.random.default_rng(6), 80, 10), np.arange(800)

    def of(kept):
        columns = (log.states[kept], log.actions[kept], log.next_states[kept])
        return certirl.Transitions(*columns, episodes=log.episodes[kept], domain=log.domain, n_actions=2)

    short = of((log.episodes % 20 == 0) | (rows % 10 < 4))
    chosen = [_first(each, "episodes") for each in (log, short)]
    assert [first.sum() for first, _, _ in chosen] == [40, 40]
    assert chosen[0][1:] == chosen[1][1:]
    assert chosen[0][1] == 19.0
    assert _first(log, "order")[0].sum() == 40
    assert _first(of(rows < 50), "episodes")[2] == "the number of decisions was fixed beforehand"
