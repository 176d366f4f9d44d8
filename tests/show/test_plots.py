import functools

import matplotlib as mpl
import numpy as np
import pytest

import certirl
from certirl import plots
from certirl.show import charts
from certirl.show.plots import arrange
from refusals import refused
from solved import POLYNOMIAL as PROBLEM
from solved import certified
from systems import Moving

mpl.use("Agg")


@functools.cache
def solution():
    return certirl.solve(PROBLEM, expert=0, basis=certirl.Legendre(7), discount=0.7, rng=0, samples=5_000)


@functools.cache
def in_a_box():
    basis = certirl.product(*[certirl.Legendre(4)] * 3)
    return certirl.solve(certirl.problems.whirl(dimension=3), expert=0, basis=basis, discount=0.7, rng=0, samples=2_000)


@functools.cache
def of_a_sum():
    return certirl.solve(SUM, expert=0, components=SUM.components, columns=3, discount=0.7, rng=0, samples=3_000)


def test_the_curves_drawn_are_the_margins(tmp_path):
    import matplotlib.pyplot as plt

    axes = solution().plot(problem=PROBLEM)
    s, drawn = axes[1].lines[0].get_data()
    np.testing.assert_allclose(drawn, solution().margins(s)[0])
    s, drawn = axes[1].lines[1].get_data()
    np.testing.assert_allclose(drawn, PROBLEM.margins(solution().reward, s, discount=0.7)[0])
    plt.close("all")
    solution().plot(tmp_path / "picture.pdf")
    with pytest.raises(TypeError, match=r"plot\(\) got an unexpected keyword argument 'colour'"):
        solution().plot(colour="red")
    assert (tmp_path / "picture.pdf").stat().st_size > 1000


def test_without_a_reward_there_is_nothing_to_draw():
    from certirl.solver.solution import build

    operators = certirl.problems.unsolvable(seed=1).operators(certirl.Legendre(7))
    criterion = certirl.steps.bellman(operators, discount=0.7)
    nothing = build([operators], [criterion], certirl.steps.recover(criterion), choice="given")
    refused("no margins to draw", plots.margins, nothing)


def test_on_a_box_maps_are_drawn_with_the_worst_state_marked(tmp_path):
    import matplotlib.pyplot as plt

    axes = in_a_box().plot()
    for ax in axes:
        assert "s[0]" in ax.get_xlabel() and "s[1]" in ax.get_ylabel() and "s[2]" in ax.get_title()
        np.testing.assert_array_equal(np.ravel(ax.lines[0].get_data()), in_a_box().state[:2])
    assert len(axes[0].figure.axes) == 4  # two maps, two colour bars
    plt.close("all")
    in_a_box().plot(path=tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_true_margins_of_a_box_are_drawn_if_the_problem_is_known():
    flat = certirl.problems.whirl(dimension=2)
    basis = certirl.product(certirl.Legendre(4), certirl.Legendre(4))
    solution = certirl.solve(flat, expert=0, basis=basis, discount=0.7, rng=0, samples=2_000)
    (chart,) = charts.margin_charts(solution, problem=flat)
    places = np.stack([chart.x[[0, 80, 159]], chart.y[[159, 3, 40]]], axis=1)
    truth = flat.margins(solution.reward, places, discount=0.7).min(axis=0)
    np.testing.assert_allclose(chart.values[[159, 3, 40], [0, 80, 159]], truth, rtol=1e-9)
    assert chart.value_label == "smallest advantage, true"


def test_the_map_drawn_is_the_smallest_margin():
    import matplotlib.pyplot as plt

    ax = plots.margins(in_a_box())
    values = ax.collections[0].get_array()
    states = np.tile(in_a_box().state, (4, 1))
    middle = 1 - 1 / 160  # of the last cell
    states[:, :2] = np.multiply(middle, [[-1, -1], [1, -1], [-1, 1], [1, 1]])
    corners = np.asarray(values).reshape(160, 160)[[0, 0, -1, -1], [0, -1, 0, -1]]
    np.testing.assert_allclose(corners, in_a_box().margins(states).min(axis=0))
    refused("plane must name two", plots.reward, in_a_box(), plane=(0, 3))
    plt.close("all")


SUM = certirl.problems.factorised(seed=11, components=3)


def test_pictures_of_several_panels_take_axes_a_figure_or_the_place_of_axes():
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, layout="constrained")
    assert list(plots.reward(of_a_sum().reward, ax=axes)) == list(axes)
    with pytest.raises(ValueError, match="the picture has 3 panels: pass 3 axes or a figure, got 2 axes"):
        plots.reward(of_a_sum().reward, ax=axes[:2])
    refused("got 1 axes", plots.margins, of_a_sum(), ax=figure.add_axes((0, 0, 1, 1)))
    left, right = plt.figure(figsize=(16, 6), layout="constrained").subfigures(1, 2)
    drawn = [*plots.solution(of_a_sum(), ax=left), *plots.solution(solution(), ax=right)]
    assert [ax.figure for ax in drawn] == [left] * 5 + [right] * 2
    figure, (first, second) = plt.subplots(1, 2, figsize=(12, 6), layout="constrained")
    inside = plots.solution(solution(), ax=second)
    figure.canvas.draw()
    assert second not in figure.axes and first in figure.axes
    boxes = [ax.get_window_extent() for ax in inside]
    assert all(box.x0 > first.get_window_extent().x1 for box in boxes)
    plt.close("all")


def test_no_legend_covers_data_and_no_label_leaves_the_picture():
    import matplotlib.pyplot as plt

    for axes in (
        solution().plot(problem=PROBLEM),
        in_a_box().plot(),
        plots.rounds(certified()),
        certified().certificate.plot(),
    ):
        figure = np.ravel(axes)[0].figure
        figure.canvas.draw()
        page = figure.bbox
        for ax in np.ravel(axes):
            legend = ax.get_legend()
            assert legend is None or legend.get_window_extent().y1 <= ax.get_window_extent().y0
            box = ax.get_tightbbox()
            assert box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1 and box.y0 >= page.y0 - 1 and box.y1 <= page.y1 + 1
    plt.close("all")


def test_empty_cells_have_no_colour_and_extrapolated_ones_are_hatched():
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(5)
    states = rng.normal(0, 0.3, (5000, 2)).clip(-1, 1)
    log = certirl.Transitions(states, rng.integers(2, size=5000), states, domain=((-1, 1), (-1, 1)))
    coverage = certirl.diagnose.coverage(log)
    cells, hatched = plots.coverage(coverage, action=1).collections[:2]
    mask = np.ma.getmaskarray(cells.get_array())
    np.testing.assert_array_equal(mask, coverage.cells[1].T == 0)
    assert cells.get_clim() == (1, coverage.cells.max(where=np.array([False, True])[:, None, None], initial=0))
    assert hatched.hatches == ["////"]
    plt.close("all")


@pytest.mark.parametrize("picture", [plots.reward, plots.margins])
def test_every_picture_is_written_where_it_is_asked_for(picture, tmp_path):
    for number, found in enumerate((solution(), in_a_box(), of_a_sum())):
        picture(found, path=tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_without_numbers_with_infinite_ones_or_one_cell_are_drawn():
    import matplotlib.pyplot as plt
    from test_report import ODD

    for picture in ODD.values():
        ax = arrange((picture,))
        ax.figure.canvas.draw()
        assert np.isfinite([*ax.get_xlim(), *ax.get_ylim()]).all()
        plt.close("all")


def test_a_reward_of_actions_has_a_curve_for_each():
    ROOM = Moving(((-1, 1),), (-0.15, 0.0, 0.15), keep=0.8)

    def own_reward(states, action, next_states):
        return -((states[:, 0] - 0.1) ** 2) - 0.05 * abs(action - 1)

    features = {"s²": lambda states: states[:, 0] ** 2, "s": lambda states: states[:, 0]}
    features["effort"] = lambda states, action: 0 * states[:, 0] + abs(action - 1)
    expert = certirl.planning.plan(ROOM, step_reward=own_reward, discount=0.9)
    asked = {"samples": 800, "method": certirl.FeatureForm(features), "rng": 0}
    learned = certirl.solve(ROOM, expert=expert, discount=0.9, **asked)
    assert learned.reward.of_actions
    (chart,) = charts.reward_charts(learned)
    assert chart.y_label == "reward R(s, a)" and len(chart.curves) == 3
    for action, curve in enumerate(chart.curves):
        np.testing.assert_array_equal(curve.y, learned.reward(curve.x, action))
    low, high = chart.low, chart.high
    assert low < min(curve.y.min() for curve in chart.curves) and high > max(curve.y.max() for curve in chart.curves)


def test_a_reward_of_actions_alone_has_a_curve_or_a_map_for_each():
    line = certirl.Reward(certirl.Legendre(2), [0.0, 1.0]).with_costs([0.0, 0.5])
    box = certirl.product(certirl.Legendre(2), certirl.Legendre(2))
    maps = charts.reward_charts(certirl.Reward(box, np.arange(6.0).reshape(2, 3)))
    assert [chart.title for chart in maps] == ["action 0", "action 1"]
    pair = certirl.Reward.sum([line, certirl.Reward(box, [0.0, 1.0, 2.0])], [[1], [0, 2]], ["x", "y"])
    pictures = charts.reward_charts(pair)
    assert [chart.title for chart in pictures] == ["R(x)", "R(y, action 0)", "R(y, action 1)"]
    np.testing.assert_allclose(pictures[0].curves[0].y - pictures[0].curves[1].y, 0.5)


def test_a_picture_is_written_as_it_is_named_or_refused(tmp_path):
    reward = certirl.Reward(certirl.Legendre(2), [0.0, 1.0])
    refused(r"cannot write x\.xyz: its name must end in \.png, \.pdf", plots.reward, reward, path=tmp_path / "x.xyz")
    plots.reward(reward, path=tmp_path / "noise0.5")
    assert [file.name for file in tmp_path.iterdir()] == ["noise0.5.png"]
