"""Ranges of weights: against a search of all directions, against the truth, in words and in pictures."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl.fit.ranges import outward, weight_ranges
from certirl.show import charts, svg

NAMED = {"s²": lambda states: states[:, 0] ** 2, "s": lambda states: states[:, 0]}
ROOM = certirl.problems.comfort()  # R(s) = −(s − 0.1)²


def solve(samples=2_000, rng=0, features=NAMED, **fields):
    method = certirl.FeatureForm(features, **fields)
    asked = {"expert": ROOM.expert, "discount": 0.9, "samples": samples, "rng": rng, "trials": 0}
    return certirl.solve(ROOM.dynamics, method=method, **asked)


@pytest.fixture(scope="module")
def solution():
    return solve()


def cone(seed, p):
    """Comparisons that weights explain, but for three of them."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=p)
    gains = rng.normal(size=(12, p)) * np.geomspace(1, 100, p)
    gains[gains @ weights < 0] *= -1
    gains[:3] *= -1
    return gains, weights


def directions(p):
    """Unit vectors, evenly spaced."""
    angles = np.linspace(0, 2 * np.pi, {2: 400_001, 3: 1_001}[p])
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if p == 2:
        return circle
    heights = np.linspace(-1, 1, 801)[:, None, None]
    return np.concatenate(np.broadcast_arrays(np.sqrt(1 - heights**2) * circle, heights), axis=2)[..., :3].reshape(
        -1, 3
    )


@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_ranges_are_those_of_a_search_in_all_directions(seed, p):
    gains, weights = cone(seed, p)
    ranges = weight_ranges(("a", "b", "c")[:p], gains, np.zeros(p), weights, [(0, 1), (1, 0)])
    kept = gains[gains @ weights >= 0]
    assert ranges.compared == len(kept) == 9 and ranges.left_out == 3
    each = directions(p) / ranges.sizes
    each = each[(each @ kept.T >= 0).all(axis=1)]
    assert len(each) > 500
    each *= ((kept @ weights).sum() / (each @ kept.sum(axis=0)))[:, None]
    for index in range(p):
        low, high = each[:, index].min(), each[:, index].max()
        width = ranges.high[index] - ranges.low[index]
        assert ranges.low[index] == pytest.approx(low, abs=0.03 * width)
        assert ranges.high[index] == pytest.approx(high, abs=0.03 * width)
        assert ranges.low[index] <= low + 1e-6 * width and high - 1e-6 * width <= ranges.high[index]
    for place, (upper, lower) in ((p, (0, 1)), (p + 1, (1, 0))):
        if np.ptp(np.sign(each[:, lower])):  # the ratio has a pole
            assert (ranges.low[place], ranges.high[place]) == (-np.inf, np.inf)
            continue
        ratio = each[:, upper] / each[:, lower]
        assert np.arctan(ranges.low[place]) == pytest.approx(np.arctan(ratio.min()), abs=0.02)
        assert np.arctan(ranges.high[place]) == pytest.approx(np.arctan(ratio.max()), abs=0.02)


def test_signs_narrow_the_ranges():
    gains, weights = cone(1, 3)
    free = weight_ranges(("a", "b", "c"), gains, np.zeros(3), weights)
    signed = weight_ranges(("a", "b", "c"), gains, np.sign(weights), weights)
    assert (signed.low >= free.low - 1e-9).all() and (signed.high <= free.high + 1e-9).all()
    assert (np.sign(weights) * np.where(weights > 0, signed.low, signed.high) >= 0).all()


def test_what_is_not_determined_is_infinite():
    gains = np.array([[1.0, 0.0, 2.0], [2.0, 0.0, 1.0]])  # nothing depends on the second, and the third is free to be 0
    ranges = weight_ranges(("a", "b", "c"), gains, np.zeros(3), np.array([1.0, 0.0, 0.0]), [(0, 2), (2, 0), (0, 1)])
    np.testing.assert_allclose(ranges.low[:3], [-1.0, -np.inf, -1.0])  # of 3a + 3c = 3, a + 2c ≥ 0 and 2a + c ≥ 0
    np.testing.assert_allclose(ranges.high[:3], [2.0, np.inf, 2.0])
    assert np.isnan(ranges.found[[3, 5]]).all() and ranges.found[4] == 0
    assert (ranges.low[[3, 5]] == -np.inf).all() and (ranges.high[[3, 5]] == np.inf).all()
    assert "−∞ to ∞" in ranges.texts and "–" in str(ranges)


@pytest.mark.parametrize(
    ("value", "side", "text"),
    [
        (0.12345, 1, "0.124"),
        (0.12345, -1, "0.123"),
        (-0.12345, 1, "−0.123"),
        (-0.12345, -1, "−0.124"),
        (250.0, 1, "250"),
        (0.0, -1, "0"),
        (np.inf, 1, "∞"),
        (-np.inf, -1, "−∞"),
    ],
)
def test_ends_are_rounded_away_from_the_range(value, side, text):
    assert outward(value, side) == text


def test_weights_within_explain_the_expert_and_those_beyond_do_not():
    """Without noise: policies planned for rewards at the ends and beyond."""

    class Room:
        n_actions, domain = 3, ((-1.0, 1.0),)

        def sample(self, states, action, rng):
            return np.clip(0.8 * states + 0.15 * (action - 1), -1.0, 1.0)

    def policy(ratio):
        planned = certirl.planning.plan(Room(), lambda s: -(s[:, 0] ** 2) - ratio * s[:, 0], discount=0.9)
        return planned(np.linspace(-0.999, 0.999, 500)[:, None])

    expert = certirl.planning.plan(Room(), lambda s: -((s[:, 0] - 0.1) ** 2), discount=0.9)
    method = certirl.FeatureForm(NAMED)
    learned = certirl.solve(Room(), expert=expert, discount=0.9, samples=2_000, rng=0, method=method)
    ranges = learned.ranges(ratios=[("s", "s²")])
    low, high = ranges.low[-1], ranges.high[-1]
    assert low < -0.2 < high < 0
    away = {share: np.mean(policy(-0.2) != policy(low + share * (high - low))) for share in (0.0, 1.0, -1.0, 2.0)}
    # Within they differ beside the switches alone: the tube has a fifth of the states.
    assert max(away[0.0], away[1.0]) < 0.15 < min(away[-1.0], away[2.0])


@pytest.mark.slow
@pytest.mark.parametrize("named", [NAMED, NAMED | {"s³": lambda states: states[:, 0] ** 3}], ids=len)
def test_ranges_hold_the_true_ratio(named):
    for seed in range(5):
        ranges = solve(5_000, seed, named).ranges(ratios=[("s", "s²")])
        assert ranges.low[-1] < -0.2 < ranges.high[-1]


def test_the_print_and_the_record_say_what_is_determined(solution):
    ranges = solution.ranges(ratios=[("s", "s²")])
    np.testing.assert_array_equal(ranges.found[:2], solution.reward.coefficients)
    assert ranges.names == ("s²", "s", "s / s²") and ranges.found[2] == ranges.found[1] / ranges.found[0]
    line = next(line for line in str(solution).splitlines() if line.startswith("  weights"))
    assert line == f"  weights  determined: {solution.ranges().summary} (estimated; print(solution.ranges()))"
    assert [name in line for name in (f"s² {ranges.texts[0]}", f"s {ranges.texts[1]}", "s / s²")] == [True, True, False]
    rows = [line.split() for line in str(ranges).splitlines()]
    assert rows[0] == ["weight", "least", "found", "largest"] and len(rows) == 5
    assert rows[1] == ["s²", *ranges.texts[0].split(" to ")[:1], f"{ranges.found[0]:.3g}".replace("-", "−"), rows[1][3]]
    assert f"at {ranges.compared:,} comparisons outside the switching tube; not a proof" in str(ranges)
    assert "at 7 more this reward does not explain it" in str(replace(ranges, left_out=7))
    ordered = solve(signs={"s²": -1, "s": -1}).ranges()
    assert (ordered.high <= 0).all()


def test_a_file_keeps_the_comparisons_and_an_old_one_has_none(solution, tmp_path):
    read = certirl.load(solution.save(tmp_path / "room.npz"))
    assert str(read.ranges(ratios=[("s", "s²")])) == str(solution.ranges(ratios=[("s", "s²")]))
    old = replace(solution, path=replace(solution.path, gains=None, signs=None))
    assert "  weights" not in str(old)
    with pytest.raises(ValueError, match="a file of an earlier version keeps no comparisons"):
        old.ranges()


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([("s", "t")], "ratios names 't'.*; the features are 's²', 's'"),
        ([("s", "s")], r"each of ratios must be two features, \(\"a\", \"b\"\) for a / b, got"),
        ([("s",)], "each of ratios must be two features"),
        ("s", "ratios must be a list or a tuple"),
        (["s²"], "each of ratios must be a list or a tuple"),
    ],
)
def test_what_is_no_ratio_is_refused_in_a_sentence(solution, ratios, words):
    with pytest.raises((ValueError, TypeError), match=words):
        solution.ranges(ratios=ratios)


def test_only_rewards_of_features_have_ranges():
    plain = certirl.solve(ROOM.dynamics, expert=ROOM.expert, discount=0.9, samples=500, rng=0, trials=0)
    with pytest.raises(ValueError, match="only a reward of features has a path and ranges"):
        plain.ranges()


def test_ranges_are_drawn_with_what_was_found(solution, tmp_path):
    ranges = solution.ranges(ratios=[("s", "s²")])
    weights, ratios = charts.range_charts(ranges)
    assert [bar.label for bar in weights.rows + ratios.rows] == list(ranges.names)
    for bar, index in zip(weights.rows, range(2), strict=True):
        scaled = ranges.sizes[index] * np.array([ranges.low[index], ranges.high[index], ranges.found[index]])
        assert (bar.start, bar.end, bar.mark) == pytest.approx(tuple(scaled)) and bar.words == ranges.texts[index]
    assert (ratios.rows[0].start, ratios.rows[0].end) == (ranges.low[2], ranges.high[2])
    drawn = svg.draw(weights, "ranges")
    assert drawn.count("<rect") == 2 and ranges.texts[1] in drawn and ranges.texts[1] in svg.description(weights)
    assert svg.readings(weights).rows == [["s²", ranges.texts[0]], ["s", ranges.texts[1]]]
    first, second = ranges.plot(path=tmp_path / "ranges.png")
    assert len(first.patches) == 2 and [text.get_text() for text in second.texts] == ranges.texts[2:]
    assert (tmp_path / "ranges.png").stat().st_size > 5_000


def test_an_infinite_range_reaches_beyond_the_others_and_has_no_mark_where_nothing_was_found(solution):
    ranges = solution.ranges(ratios=[("s", "s²"), ("s²", "s")])
    endless = np.array([*ranges.low[:3], -np.inf]), np.array([*ranges.high[:3], np.inf])
    open_ended = replace(ranges, low=endless[0], high=endless[1], found=np.array([*ranges.found[:3], np.nan]))
    closed, free = charts.range_charts(open_ended)[1].rows
    assert free.start < closed.start < closed.end < free.end and free.mark is None and free.words == "−∞ to ∞"
