"""Ranges of weights that are proved: bands against exact advantages, refutations, and experts that are known."""

from functools import partial

import numpy as np
import pytest

import certirl
from certirl.fit.ranges import weight_ranges
from certirl.functions.features import features_of
from certirl.proof import ranges as proved
from certirl.proof.ranges import _bands, _Cone

ROOM = certirl.problems.comfort()  # R(s) = −(s − 0.1)²
NAMED = {"s²": lambda states: states[:, 0] ** 2, "s": lambda states: states[:, 0]}
RATIO = [("s", "s²")]  # −0.2
ASKED = {
    "source": ROOM.dynamics, "expert": ROOM.expert, "tail": ROOM.dynamics.tail, "columns": certirl.Legendre(13),
    "delta": 0.05, "rng": 1, "tube": 0.15,
}  # fmt: skip


def solve(features, expert=ROOM.expert, source=ROOM.dynamics, **fields):
    method = certirl.FeatureForm(features, **fields)
    return certirl.solve(source, expert=expert, discount=0.9, samples=2_000, rng=0, trials=0, method=method)


@pytest.fixture(scope="module")
def solution():
    return solve(NAMED)


@pytest.fixture(scope="module")
def ranges(solution):
    return solution.ranges(ratios=RATIO, samples=30_000, **ASKED)


@pytest.mark.slow
def test_ranges_that_are_proved_hold_the_truth_and_shrink_with_more_data(solution, ranges):
    assert ranges.delta == pytest.approx(0.05) and len(ranges.proofs) == 2
    assert -0.45 < ranges.low[2] < -0.2 < ranges.high[2] < -0.05
    true = np.array([-1.0, 0.2])
    true = true * (np.abs(ranges.found[:2]) @ ranges.sizes) / (np.abs(true) @ ranges.sizes)
    assert (ranges.low[:2] < true).all() and (true < ranges.high[:2]).all()
    more = solution.ranges(ratios=RATIO, samples=60_000, **ASKED)
    assert (more.low > ranges.low).all() and (more.high < ranges.high).all() and more.low[2] < -0.2 < more.high[2]


def test_the_print_says_what_is_proved_and_what_it_rests_on(ranges):
    lines = str(ranges).splitlines()
    assert lines[4] == "with probability 0.95 of all rewards of these features that make the expert optimal"
    assert lines[5:] == [f"assumed: {sentence}" for sentence in ranges.assumptions]
    assert sum("stays within" in line for line in lines) == 2  # one for each feature
    assert "with probability 0.95; line: the one found" in certirl.show.charts.range_charts(ranges)[0].title


def test_bands_hold_the_exact_advantages_of_every_feature(ranges):
    low, high = _bands(ranges.proofs, ROOM.dynamics, ROOM.expert)
    states = ROOM.dynamics.domain.mesh(1_001)
    taken, rows = ROOM.expert(states), []
    each = [
        certirl.problems.next_values(ROOM.dynamics, feature, ROOM.expert, states, discount=0.9)
        for feature in NAMED.values()
    ]
    for b, a in ((0, 1), (0, 2), (1, 2)):
        for better, other in ((b, a), (a, b)):
            rows.append(np.stack([ahead[better] - ahead[other] for ahead in each], axis=1)[taken == better])
    exact = np.concatenate(rows)
    assert exact.shape == low.shape == (2_002, 2)
    assert (low <= exact).all() and (exact <= high).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_ranges_of_random_rooms_hold_the_truth(seed):
    rng = np.random.default_rng(seed)
    target, discount = float(rng.uniform(-0.3, 0.3)), float(rng.choice([0.7, 0.9]))
    room = certirl.problems.comfort(target=target, discount=discount)
    asked = ASKED | {"source": room.dynamics, "expert": room.expert, "tail": room.dynamics.tail, "rng": seed}
    method = certirl.FeatureForm(NAMED | {"s³": lambda states: states[:, 0] ** 3})
    known = {"expert": room.expert, "discount": discount, "rng": seed, "samples": 2_000, "trials": 0}
    ranges = certirl.solve(room.dynamics, method=method, **known).ranges(ratios=RATIO, samples=20_000, **asked)
    true = np.array([-1.0, 2 * target, 0.0])
    true = true * (np.abs(ranges.found[:3]) @ ranges.sizes) / (np.abs(true) @ ranges.sizes)
    assert (ranges.low[:3] <= true).all() and (true <= ranges.high[:3]).all()
    assert ranges.low[3] <= -2 * target <= ranges.high[3]


def test_bounds_from_below_are_those_that_the_certificates_give(ranges):
    low, high = _bands(ranges.proofs, ROOM.dynamics, ROOM.expert)
    states = ROOM.dynamics.domain.mesh(1_001)
    taken = ROOM.expert(states)
    for index, proof in enumerate(ranges.proofs):
        _, least = proof.advantage(states)
        order = [(better, other) for b, a in ((0, 1), (0, 2), (1, 2)) for better, other in ((b, a), (a, b))]
        given = np.concatenate([least[other, taken == better] for better, other in order])
        known = ~np.isnan(given)  # beside a switch either action counts as taken
        assert (given[known] <= low[known, index] + 1e-12).all()
        assert np.isclose(given, low[:, index], rtol=1e-12).mean() > 0.99 and (low < high).all()


@pytest.mark.slow
def test_on_a_box_all_rewards_that_explain_the_expert_lie_within():
    whirl = certirl.problems.whirl()
    features = {"x": lambda states: states[:, 0], "y": lambda states: states[:, 1]}
    method = certirl.FeatureForm(features)
    asked = {"expert": 1, "discount": 0.7, "rng": 0, "samples": 2_000, "trials": 0}
    solution = certirl.solve(whirl, method=method, **asked)
    known = {"source": whirl, "tail": whirl.tail, "columns": 28, "samples": 50_000, "rng": 1, "delta": 0.05}
    ranges = solution.ranges(ratios=[("y", "x")], **known)
    assert ranges.high[0] < 0 and np.isfinite(ranges.low).all() and np.isfinite(ranges.high).all()
    states, explaining = whirl.domain.mesh(41), 0
    margins = np.stack([whirl.margins(feature, states, discount=0.7, expert=1) for feature in features.values()])
    for angle in np.linspace(0, 2 * np.pi, 24, endpoint=False):
        weights = np.array([np.cos(angle), np.sin(angle)])
        if np.tensordot(weights, margins, axes=1).min() < 0:
            continue
        scaled = weights * (np.abs(ranges.found[:2]) @ ranges.sizes) / (np.abs(weights) @ ranges.sizes)
        assert (ranges.low[:2] <= scaled).all() and (scaled <= ranges.high[:2]).all()
        assert ranges.low[2] <= np.tan(angle) <= ranges.high[2]
        explaining += 1
    assert explaining > 3


def test_beyond_the_ends_another_policy_is_optimal(ranges):
    def switches(ratio):
        reward = lambda states: -(states[:, 0] ** 2) - ratio * states[:, 0]  # noqa: E731
        return np.array(certirl.problems.optimal_policy(ROOM.dynamics, reward, discount=0.9).switches)

    assert switches(-0.2) == pytest.approx(np.array(ROOM.expert.switches), abs=1e-3)
    for end in (ranges.low[2], ranges.high[2]):
        assert np.abs(switches(end) - ROOM.expert.switches).max() > 0.01


def test_features_that_explain_nothing_are_refuted():
    estimated = weight_ranges(("s",), np.ones((3, 1)), np.zeros(1), np.ones(1))
    features = features_of({"s": NAMED["s"]}, ROOM.dynamics.domain)
    asked = {name: value for name, value in ASKED.items() if name not in ("source", "expert", "delta")}
    none = proved.prove_ranges(
        estimated, features, [], np.zeros(1), ROOM.dynamics,
        expert=ROOM.expert, discount=0.9, delta=0.05, settings=asked | {"samples": 30_000},
    )  # fmt: skip
    assert np.isnan(none.low).all() and np.isnan(none.high).all()
    assert "with probability 0.95 no reward of these features makes the expert optimal" in str(none)


def test_signs_leave_out_the_weights_that_they_forbid(ranges):
    signed = solve(NAMED, signs={"s²": -1, "s": -1}).ranges(samples=30_000, **ASKED)
    assert np.isnan(signed.low).all() and not np.isnan(ranges.low).any()


@pytest.mark.slow
def test_experts_of_one_action_and_conditional_tails():
    room = certirl.problems.thermostat(noise=3.0)
    features = {"warmth": lambda states: states[:, 0] - 20, "comfort": lambda states: -((states[:, 0] - 22) ** 2)}
    asked = {"delta": 0.05, "source": room, "columns": certirl.Legendre(7), "samples": 50_000, "rng": 1}
    solution = certirl.solve(
        room, expert=0, discount=0.7, rng=0, samples=2_000, trials=0, method=certirl.FeatureForm(features)
    )
    ranges = solution.ranges(tail=room.tail, **asked)
    mixed = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    kept = 0
    for weights in mixed:
        margin = room.true_margin(
            lambda states, w=weights: sum(w * f(states) for w, f in zip(w, features.values(), strict=True)),
            discount=0.7,
        )
        scaled = weights * (np.abs(ranges.found) @ ranges.sizes) / (np.abs(weights) @ ranges.sizes)
        inside = ((ranges.low <= scaled) & (scaled <= ranges.high)).all()
        assert inside or margin < 0
        kept += margin > 0
    assert kept and "if the tail is zero" in str(solution.ranges(**asked | {"samples": 5_000}))


@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_those_of_many_weights(seed):
    rng = np.random.default_rng(seed)
    inside = np.abs(rng.normal(size=3))
    rows = rng.normal(size=(30, 3))
    rows[rows @ inside < 0] *= -1
    signs = rng.choice([-1.0, 1.0], 3)
    cone = _Cone(signs, rows)
    z = np.abs(inside + 0.5 * rng.normal(size=(200_000, 3)))
    z = z[(z @ rows.T >= 0).all(axis=1)]
    z /= z.sum(axis=1, keepdims=True)
    assert len(z) > 200 and not cone.refutes(np.zeros(3))
    for index in range(3):
        values = signs[index] * z[:, index]
        low, high = (cone.weight(index=index, side=side) for side in (-1, 1))
        assert low <= values.min() and values.max() <= high
        assert low > values.min() - 0.1 and high < values.max() + 0.1
    values = signs[0] * z[:, 0] / (signs[1] * z[:, 1])
    low, high = (cone.ratio(pair=(0, 1), side=side) for side in (-1, 1))
    assert low <= values.min() and values.max() <= high


def test_an_end_that_no_mixture_refutes_stays_where_nothing_is_known():
    free = _Cone(np.array([1.0, -1.0]), np.array([[1.0, 1.0]]))  # every weight with these signs
    assert [free.weight(index=index, side=side) for index in (0, 1) for side in (-1, 1)] == [0.0, 1.0, -1.0, 0.0]
    assert free.ratio(pair=(0, 1), side=-1) == -np.inf and free.ratio(pair=(0, 1), side=1) <= 0.1
    assert _Cone(np.ones(2), np.array([[-1.0, -2.0]])).refutes(np.zeros(2))
    assert not _Cone(np.ones(2), np.array([[-1.0, 0.0]])).refutes(np.zeros(2))  # the second weight alone


def test_a_wrong_answer_of_the_solver_refutes_nothing(monkeypatch):
    import scipy.optimize

    cone = _Cone(np.ones(2), np.array([[1.0, -1.0], [-1.0, 2.0]]))
    plain = scipy.optimize.linprog
    for wrong in (lambda x: x * 0 + 1, lambda x: x[:-1], lambda x: x * np.nan, lambda x: -x):

        def linprog(*values, change=wrong, **settings):
            answer = plain(*values, **settings)
            answer.x = change(answer.x)
            return answer

        monkeypatch.setattr(scipy.optimize, "linprog", linprog)
        assert not cone.refutes(np.zeros(2))
        assert cone.weight(index=0, side=1) >= 2 / 3


def test_what_cannot_be_proved_is_refused_in_a_sentence(solution, ranges, monkeypatch):
    asked = partial(solution.ranges, delta=0.05)
    with pytest.raises(ValueError, match="ranges are proved by fresh data: pass source"):
        asked()
    with pytest.raises((ValueError, TypeError), match="expert"):
        asked(source=ROOM.dynamics)
    with pytest.raises(ValueError, match="tail is for ranges that are proved: pass delta too"):
        solution.ranges(tail=0)
    with pytest.raises(TypeError, match=r"ranges with delta take source and expert, .* got 'cells'"):
        asked(source=ROOM.dynamics, expert=ROOM.expert, cells=3)
    with pytest.raises(ValueError, match="delta must"):
        solution.ranges(source=ROOM.dynamics, expert=ROOM.expert, delta=2)
    paid = NAMED | {"effort": lambda states, action: 0 * states[:, 0] + abs(action - 1)}
    features, known = features_of(paid, ROOM.dynamics.domain), {"discount": 0.9, "delta": 0.05, "settings": {}}
    with pytest.raises(ValueError, match="features of the state alone"):
        proved.prove_ranges(ranges, features, [], np.zeros(3), ROOM.dynamics, expert=ROOM.expert, **known)
    monkeypatch.setattr(proved, "MOST_FEATURES", 1)
    with pytest.raises(ValueError, match="ranges are proved for at most 1 features, got 2"):
        asked(source=ROOM.dynamics, expert=ROOM.expert)
