"""The picture of a tube: curves and bands are those of the certificate, and the certificate's hold in truth."""

import re
from dataclasses import replace
from html import unescape
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest

import certirl
import switching as experiment
from cells import prove
from certirl import dynamics, plots, steps
from certirl.ground.status import percent_up, rounded_down
from certirl.problems import next_values
from certirl.show import charts, svg
from certirl.show.plots import arrange
from certirl.show.plots import certificate as draw
from systems import Coins, Moving

mpl.use("Agg")
GRID = np.linspace(-1, 1, 401)


@pytest.fixture(scope="module")
def problem():
    return experiment.a_problem(11)


@pytest.fixture(scope="module")
def proof(problem):
    settings = {"expert": problem.expert, "discount": problem.discount, "tail": 0, "tube": 0.2}
    return certirl.certify(
        problem.reward, problem.dynamics, columns=certirl.Legendre(3), samples=60_000, rng=0, **settings
    )


def test_advantages_are_estimated_and_bounded_as_the_truth_has_them(problem, proof):
    estimate, least = proof.advantage(GRID)
    ahead = next_values(problem.dynamics, problem.reward, problem.expert, GRID, discount=problem.discount)
    own = problem.expert(GRID)
    truth = ahead[own, np.arange(len(GRID))] - ahead
    rivals = np.isfinite(estimate)
    assert (rivals.sum(axis=0) == 2).mean() > 0.99  # two of three, but in the cells of the switches
    assert (np.arange(3)[:, None] != own)[rivals].all()
    assert (least[rivals] <= truth[rivals]).all()
    assert np.abs(estimate - truth)[rivals].max() <= (estimate - least)[rivals].max() < np.ptp(truth)


def test_outside_the_tube_every_lower_bound_is_positive_and_the_margin_is_below_them(proof):
    states = np.linspace(-1, 1, 1001)
    undecided = proof.tube.undecided[:, 0]
    in_tube = ((undecided[:, :1] <= states) & (states <= undecided[:, 1:])).any(axis=0)
    least = proof.advantage(states)[1]
    assert np.nanmin(least[:, ~in_tube]) > 0 and in_tube.any() and not in_tube.all()
    away = np.abs(states[:, None] - proof.tube.grid.switches[:, 0]).min(axis=1) > proof.tube.allowed
    assert proof.margin <= np.nanmin(least[:, away]) <= proof.margin + 0.02 * proof.estimated


def test_where_the_expert_mixes_the_advantage_is_the_least_of_its_actions(problem, proof):
    grid = proof.tube.grid
    support = grid.support.copy()
    support[:, 0] = True  # an expert who may always take action 0, too
    mixing = replace(proof, tube=replace(proof.tube, grid=replace(grid, support=support)))
    ours, alone = mixing.advantage(GRID)[0], proof.advantage(GRID)[0]
    assert np.isnan(ours[0]).all()
    where = np.isfinite(ours)
    assert (ours[where] <= np.nan_to_num(alone[where], nan=np.inf) + 1e-12).all()


def test_the_picture_shows_the_best_rival_its_band_the_tube_and_what_was_asked_for(proof):
    import matplotlib.pyplot as plt

    ax = proof.plot()
    s = np.linspace(-1, 1, 801)
    estimate, _ = proof.advantage(s)
    drawn = np.full_like(s, np.nan)
    for line in ax.lines:
        if len(line.get_xdata()) == len(s):
            drawn = np.where(np.isnan(line.get_ydata()), drawn, line.get_ydata())
    known = np.isfinite(estimate).any(axis=0)
    np.testing.assert_allclose(drawn[known], np.nanmin(estimate[:, known], axis=0))
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert any(word.startswith("tube: not decided") for word in words)
    assert f"half-width asked for, {proof.tube.allowed:.3g}" in words and "over action 0 (shaded: taken)" in words
    upright = [line for line in ax.lines if len(line.get_xdata()) == 2 and np.ptp(line.get_xdata()) == 0]
    dotted = sorted(line.get_xdata()[0] for line in upright)
    expected = np.sort(np.concatenate([proof.tube.grid.switches[:, 0] - 0.2, proof.tube.grid.switches[:, 0] + 0.2]))
    np.testing.assert_allclose(dotted, expected)
    assert "certified" in ax.get_title() and percent_up(proof.relative_regret, 1) in ax.get_title()
    plt.close("all")


def test_axes_in_axes_out_and_a_file_if_asked_for(proof, tmp_path):
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert draw(proof, ax=ax) is ax
    proof.plot(path=tmp_path / "tube.png")
    assert (tmp_path / "tube.png").read_bytes().startswith(b"\x89PNG")
    plt.close("all")


def test_without_a_tail_no_band_is_called_proved_and_without_a_bound_none_is_drawn(problem):
    import matplotlib.pyplot as plt

    few = certirl.certify(
        problem.reward,
        problem.dynamics,
        expert=problem.expert,
        discount=problem.discount,
        columns=certirl.Legendre(3),
        samples=150,
        rng=0,
    )
    assert not np.isfinite(few.relative_regret)
    ax = few.plot()
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert not any("proved" in word for word in words) and "regret unknown" in ax.get_title()
    plt.close("all")


def test_a_solution_with_a_proof_shows_it_below():
    import matplotlib.pyplot as plt

    room = certirl.problems.comfort(noise=0.6, discount=0.7)
    log = steps.sample(room.dynamics, basis=certirl.Legendre(9), samples=4_000, rng=0)
    solution = certirl.solve(log, expert=room.expert, discount=0.7, delta=0.05, columns=certirl.Legendre(5))
    axes = solution.plot()
    assert len(axes) == 3 and solution.certificate.word in axes[2].get_title()
    worst = solution.compared.shortfall.max()
    better = f"another action looks better at {solution.stats.unexplained:.1%} of the states"
    assert axes[1].get_title().replace("\n", " ") == f"estimated, not proved: {better}; largest shortfall: {worst:.2g}"
    assert len(replace(solution, certificate=None).plot()) == 2
    plt.close("all")


class Halving:
    """s' = s/2, a quarter more under action 0, on an interval with terminal states at its end."""

    n_actions, domain, terminal_boxes = 2, ((0.0, 1.0), (0.0, 1.0)), (((0.75, 1.0), (0.0, 1.0)),)

    def terminal(self, states):
        return states[:, 0] >= 0.75

    def sample(self, states, action, rng):
        after = 0.5 * states + np.array([0.3 * (action == 0), 0.0])
        return np.where(self.terminal(states)[:, None], states, after)


def test_a_picture_of_a_proof_by_cells_hides_no_undecided_cell(tmp_path):
    lipschitz, asked = np.eye(2) * 0.5, {"discount": 0.5, "points": 41, "refine": 8}
    proof = prove(Halving(), value=lambda states: -((states[:, 0] - 0.4) ** 2), lipschitz=lipschitz, **asked)
    (picture,) = charts.certificate_charts(proof)
    assert picture.values.shape == (240, 240) and proof.grid.shape == (320, 320)
    places = np.stack(np.meshgrid(picture.x, picture.y), axis=-1)[np.isfinite(picture.values)]
    assert len(places) and proof.decided[proof.grid.cell(places)].all()
    assert (picture.values[np.isfinite(picture.values)] <= proof.margins[proof.grid.cell(places)]).all()
    assert np.array_equal(picture.hatched[0], picture.x > 0.75)
    page = unescape(proof.report(tmp_path / "proof").read_text(encoding="utf-8"))
    assert str(proof).splitlines()[0] in page and "certirl check FILE.npz" in page
    assert all(sentence in page for sentence in proof.assumptions)
    proof.plot(path=tmp_path / "proof.png")
    assert (tmp_path / "proof.png").stat().st_size > 1000


@pytest.mark.parametrize(("low", "high"), [(2e-7, 0.3), (0.21, 22.0), (1.1, 1.6), (1.0, 50_000.0), (2.0, 2.0)])
def test_a_logarithmic_colour_bar_has_numbers(low, high):
    ticks = charts.log_ticks(low, high)
    assert (min(2, 1 + (low < high)) <= len(ticks) <= 7) and all(low <= tick <= high for tick in ticks)
    values = np.geomspace(low, high, 16).reshape(4, 4)
    chart = charts.Map("", "x", "y", "v", np.arange(4.0), np.arange(4.0), values, low, high, is_log=True)
    figure, axes = plots.panels()
    plots.draw(chart, axes[0, 0])
    (bar,) = (ax for ax in figure.axes if ax is not axes[0, 0])
    assert len([label for label in bar.get_yticklabels() if label.get_text()]) == len(ticks) > 0
    assert [label for _, label in svg._shade_ticks(chart)] == [label.get_text() for label in bar.get_yticklabels()]


def test_the_regions_of_actions_are_named_inside_of_them(tmp_path):
    class Named(Halving):
        action_names, coordinate_names = ("push", "rest"), ("level", "speed")

    proof = prove(
        Named(), value=lambda s: -((s[:, 0] - 0.4) ** 2), lipschitz=np.eye(2) / 2, discount=0.5, points=21, refine=2
    )
    (picture,) = charts.certificate_charts(certirl.load(proof.save(tmp_path / "proof")))
    assert picture.x_label == "level" and {word.label for word in picture.words} == {"push", "rest"}
    for word in picture.words:
        assert Named.action_names[proof.actions[proof.grid.cell(np.array([[word.x, word.y]]))[0]]] == word.label
    assert "the policy switches" in [words for _, words in svg.legend(picture)]
    (steady,) = charts.certificate_charts(replace(proof, actions=np.minimum(proof.actions, 0)))
    assert [word.label for word in steady.words] == ["push"] and steady.border_label == ""
    ax = proof.plot()
    assert {text.get_text() for text in ax.texts} == {"push", "rest"}
    assert all(f">{word.label}</text>" in svg.draw(picture, "p") for word in picture.words)
    bounds = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(bounds))


def test_a_line_of_cells_shows_actions_and_what_is_not_decided():
    class Line(Halving):
        domain, terminal_boxes = ((0.0, 1.0),), (((0.75, 1.0),),)

        def sample(self, states, action, rng):
            return np.where(self.terminal(states)[:, None], states, 0.5 * states + 0.3 * (action == 0))

    proof = prove(Line(), value=lambda s: -((s[:, 0] - 0.4) ** 2), lipschitz=0.5, discount=0.5, points=21)
    (chart,) = charts.certificate_charts(proof)
    kinds = {"the policy takes action 0": proof.actions == 0, "the policy takes action 1": proof.actions == 1}
    kinds |= {"not decided": proof.live & ~proof.decided, "terminal": ~proof.live}
    middles = proof.grid.middles()[0]
    for label, cells in kinds.items():
        shaded = [(span.low <= middles) & (middles <= span.high) for span in chart.spans if span.label == label]
        assert cells.any() and np.array_equal(np.any(shaded, axis=0), cells)


def test_a_map_of_estimates_has_no_title_of_a_proof():
    plane = certirl.product(certirl.Legendre(2), certirl.Legendre(2))
    asked = {"basis": plane, "columns": plane, "delta": 0.05, "tail": 0, "rng": 0, "progress": False}
    solution = certirl.solve(Coins((0.7, 0.3), (0.1, 0.1), 2), expert=0, discount=0.7, **asked)
    assert solution.status == "certified"
    (estimated,), (proved,) = charts.margin_charts(solution), charts.certificate_charts(solution.certificate)
    assert (estimated.title, estimated.value_label) == ("estimated, not proved", "smallest advantage")
    assert proved.title == f"certified: margin at least {rounded_down(solution.certificate.margin):.3g}"


def test_a_certified_page_says_that_doubtful_states_lie_in_the_tube_and_titles_keep_their_breaks():
    DRIFTING = Moving(((0.0, 10.0),), (1.0, 0.0), keep=0.9, std=1.5)
    asked = {"tail": dynamics.GaussianNoise(1.5, 0.9), "delta": 0.05, "tube": 0.5, "rng": 0}
    solution = certirl.solve(DRIFTING, discount=0.7, expert=lambda s: (s[:, 0] > 5).astype(int), **asked)
    compared = solution.compared
    near = np.abs(compared.states[:, 0] - 5) < 0.1
    doubtful = replace(compared, shortfall=np.where(near, compared.target + 0.1, 0.0))
    found = replace(solution, compared=doubtful, stats=replace(solution.stats, unexplained=float(near.mean())))
    (chart,) = charts.margin_charts(found)
    assert solution.status == "certified" and near.any()
    assert "of the states, all of them inside the tube, where no action is proved to be best;" in chart.title
    (band,) = charts.certificate_charts(solution.certificate)
    assert "from a switch\nregret at most" in band.title and "from a switch; regret at most" in svg.title_of(band)


def test_bars_have_the_same_colours_in_every_picture():
    import matplotlib.pyplot as plt
    from matplotlib.colors import to_hex

    bars = charts.Bars("", "margin", (("estimated", 2.0), ("noise", -1.5)), "what remains", 0.5)
    ax = arrange([bars])
    drawn = [to_hex(bar.get_facecolor()).upper() for bar in ax.patches]
    assert drawn == re.findall(r'<rect[^>]*fill="(#\w+)"', svg.draw(bars, "b"))
    assert drawn == [charts.COLOURS[bar.colour] for bar in bars.rows]
    plt.close("all")
