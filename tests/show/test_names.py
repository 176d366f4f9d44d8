"""Names of coordinates and actions come from tables, frames and simulators, and arrive on the axes."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl.show import charts

RNG = np.random.default_rng(0)
ANGLE, SPEED = RNG.uniform(-1, 1, (2, 900))
MOVES = np.array(["brake", "go"])[RNG.integers(2, size=900)]
TABLE = {
    "angle": ANGLE,
    "speed": SPEED,
    "move": MOVES,
    "next angle": np.clip(ANGLE + 0.1 * SPEED, -1, 1),
    "next speed": np.clip(SPEED + np.where(MOVES == "go", 0.2, -0.2) + 0.1 * RNG.normal(size=900), -1, 1),
}
NAMED = {"state": ["angle", "speed"], "action": "move", "next_state": ["next angle", "next speed"]}


def test_columns_of_a_table_name_the_axes_of_every_picture_also_from_a_file(tmp_path):
    log = certirl.logs.read(TABLE, domain=((-1, 1), (-1, 1)), **NAMED)
    assert log.coordinate_names == ("angle", "speed") and log.action_names == ("brake", "go")
    solution = certirl.solve(log, discount=0.5, expert="go", basis=certirl.product(*[certirl.Legendre(3)] * 2))
    solution.save(tmp_path / "named.npz")
    for record in (solution, certirl.load(tmp_path / "named.npz")):
        pictures = (*charts.reward_charts(record), *charts.margin_charts(record), *charts.value_charts(record))
        assert {(picture.x_label, picture.y_label) for picture in pictures} == {("angle", "speed")}
        assert "go at every state" in charts.heading(record)
    (turned,) = charts.reward_charts(solution, plane=("speed", "angle"))
    assert (turned.x_label, turned.y_label) == ("speed", "angle")
    assert certirl.plots.coverage(certirl.diagnose.coverage(log)).get_ylabel() == "speed"
    halves = certirl.logs.read([TABLE, {**TABLE, "angle": -ANGLE}], domain=((-1, 1), (-1, 1)), **NAMED)
    assert halves.where(halves.actions == 0).coordinate_names == ("angle", "speed")


def test_prints_name_actions_where_the_data_do_also_from_moments(tmp_path):
    log = certirl.logs.read(TABLE, domain=((-1, 1), (-1, 1)), **NAMED)
    basis = certirl.product(*[certirl.Legendre(3)] * 2)
    moments = certirl.steps.measure(log, basis=basis)
    moments.save(tmp_path / "moments.npz")
    mirrored = certirl.logs.read({**TABLE, "angle": -ANGLE}, domain=((-1, 1), (-1, 1)), **NAMED)
    both = moments.leading(4, 4) + certirl.steps.measure(mirrored, basis=basis).leading(4, 4)
    for source in (log, moments, certirl.load(tmp_path / "moments.npz"), both):
        solution = certirl.solve(source, discount=0.5, expert="go", basis=basis.resized(3))
        assert "against brake" in str(solution) and "action 0" not in str(solution)
        assert solution.stats.coordinate_names == ("angle", "speed")
    assert certirl.steps.measure(certirl.logs.stream(TABLE, **NAMED), basis=basis).action_names == ("brake", "go")
    with pytest.raises(ValueError, match="the same action names, got brake, go and go, brake"):
        moments + replace(moments, action_names=("go", "brake"))
    narrow = certirl.diagnose.coverage(log.where((MOVES == "go") | (ANGLE > 0)))
    assert "  brake was taken only with angle in [" in str(narrow) and "  go: " in str(narrow)
    with pytest.raises(ValueError, match=r"^go was never taken in the log, so that its effect is unknown$"):
        certirl.solve(log.where(MOVES == "brake"), discount=0.5, expert=lambda s: s[:, 0] > 0)


def test_a_conflict_names_actions_if_it_is_asked_to():
    operators = certirl.problems.unsolvable(seed=1).operators(certirl.Legendre(7))
    conflict = certirl.steps.recover(certirl.steps.bellman(operators, discount=0.7, expert=0)).witness
    assert "the advantages of stay over " in conflict.in_words(("stay", "left", "right"))
    assert "the advantages of action 0 over " in str(conflict)


def test_usual_names_of_columns_are_no_names():
    log = certirl.logs.read({"state": ANGLE, "action": MOVES, "next_state": TABLE["next angle"]})
    assert log.coordinate_names == ()
    (chart,) = charts.coverage_charts(certirl.diagnose.coverage(log))
    assert chart.x_label == "state s" and [curve.label for curve in chart.curves] == ["brake", "go"]


def test_a_frame_of_states_brings_its_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE)
    actions, ahead = (frame["move"] == "go").astype(int), frame[NAMED["next_state"]]
    assert certirl.Transitions(frame[["angle", "speed"]], actions, ahead).coordinate_names == ("angle", "speed")
    assert certirl.Transitions(frame[["angle", "speed"]].to_numpy(), actions, ahead).coordinate_names == ()


def test_simulators_may_name_coordinates_and_actions():
    class Walk:
        n_actions, domain = 2, ((0.0, 10.0),)
        coordinate_names, action_names = ("height",), ("up", "down")

        def sample(self, states, action, rng):
            return np.clip(states + (0.5, -0.5)[action] + rng.normal(size=states.shape), 0, 10)

    solution = certirl.solve(Walk(), discount=0.9, expert=0, samples=500, basis=certirl.Legendre(5), columns=3, rng=0)
    (chart,) = charts.margin_charts(solution)
    assert chart.x_label == "height" and chart.curves[0].label == "over down"
    assert certirl.steps.sample(Walk(), basis=certirl.Legendre(3), samples=10, rng=0).coordinate_names == ("height",)
    Walk.coordinate_names = ("height", "width")
    with pytest.raises(ValueError, match="coordinates must have 1 different names, one for each, got"):
        certirl.solve(Walk(), expert=0, discount=0.9, samples=500, basis=certirl.Legendre(5), columns=3, rng=0)


def test_environments_name_their_coordinates():
    pytest.importorskip("gymnasium")
    assert certirl.gym.simulator("MountainCar-v0").coordinate_names == ("position", "velocity")
    assert certirl.gym.simulator("CartPole-v1").coordinate_names[2:] == ("angle", "angular velocity")


def test_certificates_and_refutations_name_actions_also_from_a_file(tmp_path):
    log = certirl.logs.read(TABLE, domain=((-1, 1), (-1, 1)), **NAMED)
    plane, asked = certirl.product(*[certirl.Legendre(2)] * 2), {"expert": "go", "tail": 0.05, "rng": 0}
    certificate = certirl.certify(lambda states: states[:, 1], log, discount=0.5, columns=plane, **asked)
    assert "against brake" in str(certificate) and "action" not in str(certificate).splitlines()[1]
    assert str(certirl.load(certificate.save(tmp_path / "proof"))).splitlines()[:3] == str(certificate).splitlines()[:3]
    refutation = certirl.refute(log, basis=plane, **asked)
    assert refutation.claim.endswith("makes go strictly optimal")
    assert certirl.load(refutation.save(tmp_path / "refuted")).claim == refutation.claim
    assert charts.budget(refutation).title == "undetermined: the estimate is not positive"
    unproved = charts.budget(replace(certificate, margin=-4.9, estimated=1.0))
    assert (unproved.title, unproved.total) == ("not certified: the losses exceed the estimate", "what remains")
