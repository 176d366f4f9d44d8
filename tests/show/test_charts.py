"""Charts hold the numbers of the records they are about; what draws them adds none."""

from dataclasses import astuple, replace

import numpy as np
import pytest
from scipy.ndimage import minimum_filter1d

import certirl
from certirl.show import charts
from refusals import refused
from solved import certified


def test_losses_are_subtracted_from_the_estimate_and_leave_the_margin():
    budget = charts.budget(certified().certificate)
    assert budget.parts[0] == ("estimated", certified().certificate.estimated)
    assert budget.value == certified().certificate.margin
    assert sum(value for _, value in budget.parts) == pytest.approx(budget.value, abs=5e-4 * budget.parts[0][1])
    nothing = charts.budget(replace(certified().certificate, margin=-np.inf, losses={"estimation": np.inf}))
    assert nothing.total == "" and "no bound" in nothing.title


def test_rounds_are_kept_with_forecasts_and_the_part_of_delta_they_spent(tmp_path):
    rounds = certified().stats.search
    attempts = [each.delta for each in rounds if each.delta]
    assert attempts == pytest.approx([0.05 * 0.75 * 0.25**number for number in range(len(attempts))])
    assert rounds[-1].samples == certified().samples and rounds[-1].delta == attempts[-1]
    assert rounds[-1].proved == pytest.approx(certified().certificate.margin / certified().certificate.estimated)
    assert all(each.proved < 0 if each.delta else np.isnan(each.proved) for each in rounds[:-1])
    certified().save(tmp_path / "rounds.npz")
    kept = certirl.load(tmp_path / "rounds.npz").stats.search
    np.testing.assert_array_equal([astuple(each) for each in kept], [astuple(each) for each in rounds])
    chart = charts.rounds_chart(certified())
    assert chart.curves[0].x.tolist() == [each.samples for each in rounds]
    refused("no rounds to draw", charts.rounds_chart, replace(certified(), stats=replace(certified().stats, search=())))


def test_the_proved_bound_is_below_the_estimate_and_above_the_margin():
    (chart,) = charts.certificate_charts(certified().certificate)
    estimate, least = certified().certificate.advantage(chart.curves[0].x)
    y, lower = (np.nanmin([getattr(curve, name) for curve in chart.curves], axis=0) for name in ("y", "lower"))
    np.testing.assert_array_equal(y, np.nanmin(estimate, axis=0))
    assert (lower <= y).all() and lower.min() >= certified().certificate.margin
    for curve in chart.curves:  # drawn without the teeth of its mesh, and nowhere above what is proved
        drawn = np.isfinite(curve.lower)
        assert (curve.lower[drawn] <= least[curve.colour][drawn]).all()
    near = minimum_filter1d(np.nanmin(least, axis=0), 4 * charts.TOOTH + 1)
    assert (lower >= near).all()
    assert chart.levels[1].value == certified().certificate.margin


def test_cells_without_transitions_are_empty_and_colours_follow_the_others():
    rng = np.random.default_rng(5)
    states = rng.normal(0, 0.3, (5000, 2)).clip(-1, 1)
    log = certirl.Transitions(states, rng.integers(2, size=5000), states, domain=((-1, 1), (-1, 1)))
    coverage = certirl.diagnose.coverage(log)
    for action in (0, 1):
        (chart,) = charts.coverage_charts(coverage, action=action, plane=(1, 0))
        counts = coverage.cells[action]  # rows of the map are the second coordinate of the plane, here the first
        np.testing.assert_array_equal(np.isnan(chart.values), counts == 0)
        np.testing.assert_array_equal(np.nan_to_num(chart.values), counts)
        middles = np.stack([np.repeat(chart.y, 25), np.tile(chart.x, 25)], axis=1)
        np.testing.assert_array_equal(chart.hatched.ravel(), coverage.leverage(middles)[action] > 1)
    assert chart.high == counts.max() and chart.empty_label


def test_colours_leave_out_what_is_extrapolated():
    grid = certirl.Cells((9, 9), (), ((0.0, 1.0), (0.0, 1.0)))
    heights = np.zeros((9, 9))
    heights[:4] = np.linspace(1, 2, 4)[:, None]
    heights[-1] = -1e6
    reward = certirl.Reward(grid, heights.ravel(), extrapolation=(np.arange(81) >= 63))
    (chart,) = charts.reward_charts(reward)
    assert chart.hatched_label == "no data" and 0.1 < chart.hatched.mean() < 0.3
    np.testing.assert_array_equal(np.isnan(chart.values), chart.hatched)
    kept = chart.values[~chart.hatched]
    assert (chart.low, chart.high) == (kept.min(), kept.max()) and chart.low > -1e6 / 2


@pytest.mark.parametrize("of_actions", [False, True])
def test_lines_stop_where_a_reward_is_only_bounded(of_actions):
    heights, empty = np.array([0.0, 1.0, 2.0, 1.0, -9.0]), np.arange(5) == 4
    reward = certirl.Reward(certirl.Cells((5,)), heights, extrapolation=empty)
    (chart,) = charts.reward_charts(reward.with_costs([0.0, 0.5]) if of_actions else reward)
    ((first, last, *_),) = [span for span in chart.spans if span.label == "no data"]
    for curve in chart.curves:
        np.testing.assert_array_equal(np.isnan(curve.y), reward.extrapolated(curve.x))
    assert len(chart.curves) == 1 + of_actions and chart.low > -6
    assert (first, last) == (pytest.approx(0.75, abs=0.01), 1.0)


def test_margins_within_the_noise_are_hatched_and_do_not_stretch_the_colours():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, (900, 2)), rng.integers(2, size=900)
    kept = states.sum(axis=1) < 0.4  # no data in a corner
    ahead = 0.6 * states + np.where(actions == 0, 0.3, -0.3)[:, None] + 0.1 * rng.normal(size=states.shape)
    rows = (states[kept], actions[kept], ahead[kept].clip(-1, 1))
    log = certirl.Transitions(*rows, domain=((-1, 1), (-1, 1)))
    bases = {"basis": certirl.product(certirl.Legendre(5), certirl.Legendre(5)), "columns": 15}
    solution = certirl.solve(log, discount=0.5, expert=0, **bases)
    (chart,) = charts.margin_charts(solution)
    assert 0 < chart.hatched.mean() < 0.5 and chart.hatched_label == "within 2 standard errors of 0"
    for row, column in ((0, 0), (159, 159), (80, 80), (159, 60)):
        state = np.array([[chart.x[column], chart.y[row]]])
        is_noise = (solution.margins(state) <= 2 * solution.standard_errors(state)).any()
        assert chart.hatched[row, column] == is_noise
    assert chart.low == chart.values[~chart.hatched].min() and chart.high == chart.values[~chart.hatched].max()


def test_borders_lie_between_cells_of_different_actions():
    sheet = charts.Sheet.of(((0.0, 4.0), (0.0, 4.0)), (0, 1), None, charts.Names(), along=4)
    actions = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, -1], [2, 2, 2, -1]])
    lines = {tuple(map(tuple, line)) for line in sheet.borders(actions.ravel())}
    assert lines == {((2, 0), (2, 2)), ((0, 2), (3, 2))}


def test_a_plane_is_named_by_numbers_or_by_names():
    names = charts.Names(("position", "velocity", "height"))
    box = ((0.0, 1.0), (2.0, 4.0), (5.0, 6.0))
    sheet = charts.Sheet.of(box, ("height", "position"), None, names)
    assert sheet.plane == (2, 0) and sheet.labels == ("height", "position") and sheet.held == "velocity = 3"
    for plane in ((0, 3), (1, 1), ("velocity", "speed")):
        with pytest.raises(ValueError, match=r"plane must name two of the coordinates 0 … 2, or position, velocity"):
            charts.Sheet.of(box, plane, None, names)


SUM = certirl.problems.factorised(seed=11, components=3)


def test_of_a_sum_the_terms_add_up_to_the_margin_over_each_alternative():
    added = certirl.solve(SUM, expert=0, components=SUM.components, columns=3, discount=0.7, rng=0, samples=3_000)
    bars = charts.margin_charts(added)
    assert len(bars) == len(added.alternatives) == 2
    for picture, total in zip(bars, added.contributions.sum(axis=0), strict=True):
        assert sum(value for _, value in picture.parts) == pytest.approx(total) == picture.value
    rewards = charts.reward_charts(added)
    assert [chart.title for chart in rewards] == [
        f"R({component.name}); estimated, not proved" for component in added.reward.components
    ]
    np.testing.assert_array_equal(rewards[1].curves[0].y, added.reward.parts[1](rewards[1].curves[0].x))
    assert [chart.x_label for chart in rewards] == ["s[0]", "s[1]", "s[2]"]


def test_an_action_has_one_colour_in_all_charts_of_an_answer():
    drawn = [*charts.margin_charts(certified()), *charts.certificate_charts(certified().certificate)]
    over = {(curve.label, curve.colour) for chart in drawn for curve in chart.curves if curve.label.startswith("over")}
    assert over == {("over action 1", 1), ("over action 2", 2)}
