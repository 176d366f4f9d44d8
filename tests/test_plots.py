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
    SOLUTION.plot(path=tmp_path / "picture.pdf")
    assert (tmp_path / "picture.pdf").stat().st_size > 1000


def test_without_a_reward_there_is_nothing_to_draw():
    from certirl.solution import build

    operators = certirl.problems.unsolvable(seed=1).operators(certirl.Legendre(7))
    criterion = certirl.bellman(operators, discount=0.7)
    nothing = build(operators, criterion, certirl.recover(criterion), choice="given")
    with pytest.raises(ValueError, match="no margins to draw"):
        plots.margins(nothing)
