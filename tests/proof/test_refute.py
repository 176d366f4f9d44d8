"""Certified infeasibility: never false, often true, and honest in between."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
import files
import refuting
from certirl.functions.bases import Fourier, Legendre
from certirl.ground.status import two_digits
from certirl.problems import PolynomialProblem, random_polynomial, thermostat, unsolvable
from certirl.proof import value_cones
from certirl.proof.certify import refute
from certirl.proof.tails import Smooth
from sizes import sizes

ROOM = thermostat()


def nearly_unsolvable(seed, share):
    """Action 0 is the even mixture of its rivals but for a share of something else: solvable, by very little."""
    base, other = unsolvable(seed=seed), random_polynomial(seed=1000 + seed, actions=2)
    centre, edge = base.centre.copy(), base.edge.copy()
    centre[0] = (1 - share) * centre[0] + share * other.centre[0]
    edge[0] = (1 - share) * edge[0] + share * other.edge[0]
    return PolynomialProblem(f"nearly unsolvable {seed}", centre, edge)


def exact_rows(problem, k, expert, states):
    """ρ_a(s) by quadrature, rival by rival: the truth, for polynomial problems."""
    operators = problem.operators(Legendre(max(k, 3)), 3)
    features = operators.basis.resized(3).values(states)
    others = [a for a in range(problem.n_actions) if a != expert]
    return np.concatenate([features @ (operators.Z[expert] - operators.Z[a])[1:k].T for a in others])


def best_margin(problem, k, expert=0):
    """The largest min of w·ρ over ‖w‖₁ ≤ 1, by a linear program on many exact rows."""
    return refuting.best_margin(exact_rows(problem, k, expert, np.linspace(-1, 1, 401)))


class Turn:
    """A circle on which action a turns by a fixed angle, without noise: no expert can be explained."""

    n_actions, domain = 2, ((-np.pi, np.pi),)

    def sample(self, states, action, rng):
        return np.mod(states + (0.4, 1.3)[action] + np.pi, 2 * np.pi) - np.pi


# Soundness


@pytest.mark.thinned(4)
@pytest.mark.parametrize("count", sizes(3, 51))
@pytest.mark.parametrize(("k", "share"), [(3, 0.3), (4, 0.02), (4, 0.3), (5, 0.1)])
def test_solvable_problems_are_never_refuted(k, share, count, monkeypatch):
    monkeypatch.setattr(value_cones, "CONES", 24)  # fewer cones are quicker, and no less sound
    candidates = [nearly_unsolvable(seed, share) for seed in range(8)]
    problems = [problem for problem in candidates if best_margin(problem, k) > 1e-6]
    best = [best_margin(problem, k) for problem in problems]
    assert len(problems) >= 2
    for seed in range(count):
        problem, samples = problems[seed % len(problems)], (100, 400, 1600)[seed % 3]
        found = refute(problem, expert=0, basis=Legendre(k), columns=3, delta=0.5, tail=0, samples=samples, rng=seed)
        assert not found.holds and found.margin <= 0
        assert found.ceiling >= best[seed % len(problems)]


@pytest.mark.parametrize("count", sizes(8, 48))
def test_a_heater_that_heats_a_little_more_is_refuted_no_more_often_than_delta_allows(monkeypatch, count):
    monkeypatch.setattr(value_cones, "CONES", 24)
    room, estimated, false = thermostat(power=(0.05, 0.0, -1.5), noise=3.0), 0, 0
    assert room.true_margin(lambda s: s[:, 0], discount=1e-9) > 0  # V = s, which is in the class, explains it
    for seed in range(count):
        data = certirl.steps.sample(room, basis=Legendre(7), samples=400, rng=seed, design=True)
        found = refute(data, expert=0, basis=Legendre(2), columns=7, tail=room.tail, delta=0.5)
        false += found.holds
        estimated += found.estimated > 0
    assert false <= count // 8  # δ = ½; in fact 1 of 48
    assert estimated > 0  # the estimates alone would have refuted now and then: the errors are what prevents it


@pytest.mark.parametrize("runs", sizes(8, 100))
def test_all_numbers_of_a_plan_lie_below_their_bounds(runs):
    problem, k = random_polynomial(seed=5), 4
    cover = refute(problem, expert=0, basis=Legendre(k), columns=3, samples=500, delta=0.5, rng=99).grounds[0].cover
    rows = np.array([exact_rows(problem, k, 0, s)[a - 1] for s, a in zip(cover.states, cover.actions, strict=True)])
    truth = ((cover.mixtures @ rows)[cover.which] * cover.directions).sum(axis=1)
    assert cover.shares.min() > 0 and cover.shares.sum() == pytest.approx(1, rel=1e-6) and cover.shares.sum() <= 1
    pairs = [seed % 2 == 0 for seed in range(runs)]
    misses, short, *_ = refuting.runs_beyond(problem, cover, truth, 400, pairs)
    assert misses <= runs // 2  # δ = ½; in fact none
    assert short > 0


def test_the_cones_cover_all_directions():
    cover = refute(ROOM, expert=1, basis=Legendre(5), columns=12, tail=ROOM.tail, samples=5000, rng=0).grounds[0].cover
    cones = cover.directions[: -2 * 4].reshape(-1, 4, 4)
    assert len(cones) == cover.cones == len(cover.splits) + 5 > 5
    np.testing.assert_allclose(cover.mixtures.sum(axis=1), 1)
    assert cover.mixtures.min() >= 0 and not np.isin(cover.actions, 1).any()
    w = np.random.default_rng(0).standard_normal((2000, 4))
    coordinates = np.einsum("fij,ni->fnj", np.linalg.inv(cones), w)
    assert (coordinates.min(axis=2) >= -1e-9).any(axis=0).all()


def test_the_first_cones_are_the_same_on_every_machine():
    """Any rotation of a simplex is as good; it must not be one that rounding chooses."""
    nothing = np.zeros((1, 1))
    for p in (2, 3, 8):
        rows = np.vstack([np.eye(p), -np.eye(p)])  # which cancel out: no reward
        search = value_cones.ConeSearch(rows, nothing, nothing, nothing, nothing, 0.0, 1.0, 1.0, np.ones(1), 1)
        corners, j, i = search._simplex(), np.arange(1, p + 1), np.arange(p + 1)[:, None]
        np.testing.assert_allclose(corners @ corners.T, (np.eye(p + 1) * (p + 1) - 1) / p, atol=1e-12)
        known = np.where(i < j, 1.0, np.where(i == j, -1.0 * j, 0.0)) / np.sqrt(j * (j + 1) * p / (p + 1))
        np.testing.assert_allclose(corners, known, atol=1e-12)


def test_fewer_comparisons_than_directions_have_a_mixture():
    rows = np.vstack([np.eye(5)[:1], -np.eye(5)[:1]])
    contrast, lever = np.array([[1.0, -1.0], [1.0, -1.0]]), np.eye(2)
    noise = np.tile(np.eye(5), (2, 2, 1, 1)) * np.eye(2)[:, :, None, None]
    search = value_cones.ConeSearch(rows, contrast, lever, noise, np.eye(5), 0.0, 100.0, 1.0, np.ones(1), 1)
    mixture = search.vanishing(np.eye(5))
    np.testing.assert_allclose(mixture, [0.5, 0.5], atol=1e-6)


# Power


@pytest.mark.parametrize(
    ("k", "columns", "samples"), sizes((2, 12, 600), (3, 12, 2_000), (4, 12, 4_000), (5, 13, 15_000))
)
def test_the_thermostat_that_stays_off_is_refuted(k, columns, samples):
    for seed in range(3):
        found = refute(ROOM, expert=1, basis=Legendre(k), columns=columns, tail=ROOM.tail, samples=samples, rng=seed)
        assert found.holds and found.estimated > found.margin > 0 and found.ceiling == 0
        assert found.samples == samples - int(0.2 * samples) and found.samples_needed <= found.samples
        assert sum(found.losses.values()) == pytest.approx(found.estimated - found.margin)
    lines = str(found).splitlines()
    assert lines[0] == (
        f"Certified infeasible with probability 0.95: no reward of the state whose value lies in Legendre({k}) "
        "makes action 1 strictly optimal"
    )
    assert (
        len(lines) == 6
        and all("assumed" in line for line in lines[4:])
        and "conflict: the advantages of action 1 over" in lines[3]
    )


def test_logged_transitions_are_as_good_paired_and_enough_unpaired():
    for paired, samples in ((True, 4_000), (False, 20_000)):
        data = certirl.steps.sample(ROOM, basis=Legendre(12), samples=samples, rng=0, design=True, paired=paired)
        found = refute(data, expert=1, basis=Legendre(4), columns=12, tail=ROOM.tail)
        assert found.holds
        assert ("share random numbers" in str(found)) == paired


def test_deterministic_dynamics_are_refuted_too():
    # A turn maps every frequency to itself, so V never leaves the columns; on average over the circle V(s') = V(s).
    for k in (3, 5):
        found = refute(Turn(), expert=0, basis=Fourier(k), columns=k, tail=0, samples=3_000, rng=0)
        assert found.holds


# Honesty


def test_a_conflict_that_noise_could_hide_stays_undetermined_with_a_shrinking_ceiling():
    problem, ceilings = unsolvable(seed=3), []
    assert best_margin(problem, 4) == pytest.approx(0, abs=1e-9)
    for samples in (1_000, 16_000, 64_000):
        found = refute(problem, expert=0, basis=Legendre(4), columns=3, tail=0, samples=samples, rng=1)
        assert not found.holds and found.margin < 0
        assert str(found).startswith(
            "Undetermined: with probability 0.95 no reward of the state whose value lies in Legendre(4) has"
        )
        ceilings.append(found.ceiling)
    assert ceilings[0] > 4 * ceilings[1] > 0 and ceilings[1] > 1.8 * ceilings[2] > 0
    witness = found.witness
    assert witness.weights.sum() == pytest.approx(1) and len(witness.states) == len(witness.actions) == len(witness)
    residual = witness.weights @ np.where(
        (witness.actions == 1)[:, None], *np.split(exact_rows(problem, 4, 0, witness.states), 2)
    )
    assert np.abs(residual).max() <= found.ceiling


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_the_ceiling_is_above_the_best_margin_and_not_far(seed):
    problem, best = random_polynomial(seed=seed), best_margin(random_polynomial(seed=seed), 5)
    found = refute(problem, expert=0, basis=Legendre(5), columns=3, tail=0, samples=30_000, rng=0)
    assert best <= found.ceiling <= 2 * best + 0.03


def test_nothing_is_certified_without_a_tail():
    settings = {"expert": 1, "basis": Legendre(4), "columns": 12, "samples": 4_000, "rng": 0}
    found = refute(ROOM, **settings)
    assert found.margin > 0 and found.tail is None and not found.holds
    assert (
        str(found).startswith("Not certified")
        and "NOT DECLARED" in str(found)
        and "(if the tail is zero)" in str(found)
    )
    assert "truncation tail" in str(refute(ROOM, **settings, tail=0.2))
    assert not refute(ROOM, **settings, tail=0.2).holds
    hopeless = refute(ROOM, **settings, tail=Smooth(order=20, bound=1.0))
    assert not hopeless.holds and hopeless.tail == 1 and hopeless.samples_needed is None


def test_more_data_is_asked_for_where_it_would_help():
    found = refute(ROOM, expert=1, basis=Legendre(5), columns=13, tail=ROOM.tail, samples=2_000, rng=0)
    assert not found.holds and found.samples < found.samples_needed < 100_000
    assert f"about {two_digits(found.samples_needed)} would" in str(found)


def test_the_same_seed_gives_the_same_answer():
    settings = {"expert": 1, "basis": Legendre(3), "columns": 9, "tail": 0.01, "samples": 2_000}
    first, second, other = (refute(ROOM, **settings, rng=seed) for seed in (3, 3, 4))
    assert first.estimated == second.estimated != other.estimated
    with pytest.raises(ValueError):
        first.witness.weights[0] = 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"expert": 3}, "expert must be one of the actions 0 … 2, or a function of states, got 3"),
        ({"delta": 0.0}, "delta must be a probability of error between 1e-100 and 0.5"),
        ({"basis": Legendre(1)}, "holds constants only"),
        ({"columns": 0}, "columns must be a whole number of functions of the state, at least 1"),
        ({"tail": -1.0}, "tail must be .* not below 0"),
        ({"samples": 30}, "cannot tell 12 functions apart"),
        ({"basis": Legendre(4, (0.0, 1.0))}, "the basis is defined on"),
    ],
)
def test_bad_values_get_a_sentence(change, words):
    settings = {"expert": 1, "basis": Legendre(4), "columns": 12, "samples": 2_000, "rng": 0} | change
    with pytest.raises(ValueError, match=words):
        refute(ROOM, **settings)


def test_bad_types_get_a_sentence():
    with pytest.raises(TypeError, match="neither Transitions nor a simulator"):
        refute(object(), expert=0, basis=Legendre(4), rng=0)
    with pytest.raises(TypeError, match="rng is needed"):
        refute(ROOM, expert=0, basis=Legendre(4))
    with pytest.raises(TypeError, match="basis must be a basis such as"):
        refute(ROOM, expert=0, basis=4, rng=0)


# Files


@pytest.fixture(scope="module")
def refuted():
    return refute(ROOM, expert=1, basis=Legendre(3), columns=12, tail=ROOM.tail, samples=2_000, rng=0)


def test_a_saved_refutation_is_derived_from_its_sums_again(refuted, tmp_path):
    back = certirl.load(refuted.save(tmp_path / "none"))
    assert back.holds and back.margin == pytest.approx(refuted.margin, rel=1e-9)
    assert files.lines_of(back) == files.lines_of(refuted)
    np.testing.assert_array_equal(back.witness.states, refuted.witness.states)


def changed(refutation, **fields):
    """The refutation with other fields of its cover, or of its sums."""
    ground = refutation.grounds[0]
    part = "cover" if hasattr(ground.cover, next(iter(fields))) else "sums"
    return replace(refutation, grounds=(replace(ground, **{part: replace(getattr(ground, part), **fields)}),))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: replace(r, margin=r.margin + 0.01), "larger than what follows from the sums"),
        (lambda r: replace(r, delta=0.01), "parts of δ"),
        (lambda r: replace(r, spending={"cones": 0.02, "ceiling": 0.02}), "parts of δ"),
        (lambda r: changed(r, shares=2 * r.grounds[0].cover.shares), "add up to more than there is"),
        (lambda r: changed(r, slopes=r.grounds[0].cover.slopes + 1), "a slope is not between 0 and 1"),
        (lambda r: changed(r, mixtures=-r.grounds[0].cover.mixtures), "do not add up to 1"),
        (lambda r: changed(r, corners=np.ones((2, 2))), "has no inverse"),
        (lambda r: changed(r, splits=r.grounds[0].cover.splits[:-1]), "should hold numbers of shape"),
        (lambda r: changed(r, splits=0 * r.grounds[0].cover.splits), "not every direction is refuted"),
        (lambda r: changed(r, states=r.grounds[0].cover.states + 100), "compared outside"),
        (lambda r: changed(r, actions=r.grounds[0].cover.actions + 5), "actions are compared that there are not"),
        (lambda r: changed(r, counts=r.grounds[0].sums.counts // 1000), "is not one of as many states"),
        (lambda r: changed(r, residuals=1.01 * r.grounds[0].sums.residuals), "larger than what follows from the sums"),
        (lambda r: changed(r, moments=r.grounds[0].sums.moments[:5]), "should hold numbers of shape"),
    ],
)
def test_files_that_were_changed_are_refused(refuted, tmp_path, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        certirl.load(change(refuted).save(tmp_path / "changed"))
