import matplotlib as mpl
import numpy as np
import pytest

import certirl
from certirl import plots

mpl.use("Agg")
PROBLEM = certirl.problems.random_polynomial(seed=7)
SOLUTION = certirl.solve(PROBLEM, basis=certirl.Legendre(7), discount=0.7, rng=0, samples=5_000)


def test_axes_in_axes_out():
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert plots.margins(SOLUTION, ax=ax) is ax
    assert plots.reward(SOLUTION, ax=ax) is ax
    plt.close("all")


def test_the_curves_drawn_are_the_margins(tmp_path):
    import matplotlib.pyplot as plt

    axes = SOLUTION.plot(problem=PROBLEM)
    s, drawn = axes[1].lines[1].get_data()
    np.testing.assert_allclose(drawn, SOLUTION.margins(s)[0])
    s, drawn = axes[1].lines[2].get_data()
    np.testing.assert_allclose(drawn, PROBLEM.margins(SOLUTION.reward, s, discount=0.7)[0])
    plt.close("all")
    SOLUTION.plot(tmp_path / "picture.pdf")
    with pytest.raises(TypeError, match=r"plot\(\) got an unexpected keyword argument 'colour'"):
        SOLUTION.plot(colour="red")
    assert (tmp_path / "picture.pdf").stat().st_size > 1000


def test_without_a_reward_there_is_nothing_to_draw():
    from certirl.solver.solution import build

    operators = certirl.problems.unsolvable(seed=1).operators(certirl.Legendre(7))
    criterion = certirl.bellman(operators, discount=0.7)
    nothing = build([operators], [criterion], certirl.recover(criterion), choice="given")
    with pytest.raises(ValueError, match="no margins to draw"):
        plots.margins(nothing)


BOX = certirl.problems.whirl(dimension=3)
BASIS = certirl.product(*[certirl.Legendre(4)] * 3)
IN_A_BOX = certirl.solve(BOX, basis=BASIS, discount=0.7, rng=0, samples=2_000)


def test_on_a_box_maps_are_drawn_with_the_worst_state_marked(tmp_path):
    import matplotlib.pyplot as plt

    axes = IN_A_BOX.plot(problem=BOX)
    for ax in axes:
        assert "s[0]" in ax.get_xlabel() and "s[1]" in ax.get_ylabel() and "s[2]" in ax.get_title()
        np.testing.assert_array_equal(np.ravel(ax.lines[0].get_data()), IN_A_BOX.state[:2])
    assert len(axes[0].figure.axes) == 4  # two maps, two colour bars
    plt.close("all")
    IN_A_BOX.plot(path=tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000


def test_the_map_drawn_is_the_smallest_margin():
    import matplotlib.pyplot as plt

    ax = plots.margins(IN_A_BOX)
    values = ax.collections[0].get_array()
    states = np.tile(IN_A_BOX.state, (4, 1))
    states[:, :2] = [[-1, -1], [1, -1], [-1, 1], [1, 1]]
    corners = np.asarray(values).reshape(161, 161)[[0, 0, -1, -1], [0, -1, 0, -1]]
    np.testing.assert_allclose(corners, IN_A_BOX.margins(states).min(axis=0))
    with pytest.raises(ValueError, match="plane must name two"):
        plots.reward(IN_A_BOX, plane=(0, 3))
    plt.close("all")


SUM = certirl.problems.factorised(seed=11, components=3)
ADDED = certirl.solve(SUM, components=SUM.components, columns=3, discount=0.7, rng=0, samples=3_000)


def test_of_a_sum_every_reward_is_drawn_and_what_each_component_adds_to_the_margin(tmp_path):
    import matplotlib.pyplot as plt

    *rewards, bars = ADDED.plot()
    names = [component.name for component in ADDED.reward.components]
    assert sorted(ax.get_title() for ax in rewards) == sorted(f"R({name})" for name in names)
    heights = sorted(bar.get_height() for bar in bars.patches)
    np.testing.assert_allclose(heights, np.sort(ADDED.contributions.ravel()))
    words = [text.get_text() for text in bars.get_legend().get_texts()]
    totals = ADDED.contributions.sum(axis=0)
    assert words == [f"over action {action}: {total:.3g} in all" for action, total in zip((1, 2), totals, strict=True)]
    _, axes = plt.subplots(1, 3)
    assert list(plots.reward(ADDED.reward, ax=axes)) == list(axes)
    plt.close("all")


@pytest.mark.parametrize("picture", [plots.reward, plots.margins])
def test_every_picture_is_written_where_it_is_asked_for(picture, tmp_path):
    for number, solution in enumerate((SOLUTION, IN_A_BOX, ADDED)):
        picture(solution, path=tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
