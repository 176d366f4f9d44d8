"""Bad input gets one clear sentence, and files are never guessed at."""

import json
from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl.data import tables

PROBLEM = certirl.problems.random_polynomial(seed=7)
FINE = np.linspace(-1, 1, 60)
ACTIONS = np.arange(60) % 3


@pytest.mark.parametrize(
    ("states", "actions", "next_states", "settings", "sentence"),
    [
        ([0.0, np.nan], [0, 1], [0, 1], {}, "states must be finite: row 1"),
        ([0.0, 1.0], [0, 1], [np.inf, 1], {}, "next_states must be finite"),
        ([0.0, 1.0], [0, 1], [0.0], {}, "equally long"),
        ([], [], [], {}, "no transitions"),
        ([0.0, 5.0], [0, 1], [0, 1], {"domain": (-1, 1)}, "1 of 2 states lie outside the domain"),
        ([0.0, 1.0], [0, 1], [0, 5], {"domain": (-1, 1)}, "next_states lie outside"),
        ([0.0, 1.0], [0, 0.5], [0, 1], {}, "whole numbers"),
        ([0.0, 1.0], [0, -1], [0, 1], {}, "whole numbers"),
        ([0.0, 1.0], ["a", "b"], [0, 1], {}, "whole numbers"),
        ([0.0, 1.0], [0, 3], [0, 1], {"n_actions": 2}, "not among the 2 actions"),
        (["x", "y"], [0, 1], [0, 1], {}, "must be real numbers"),
        (np.zeros((2, 2, 2)), [0, 1], [0, 1], {}, "shape"),
        ([0.0, 1.0], [[0, 1]], [0, 1], {}, "shape"),
        ([1.0, 1.0], [0, 1], [1.0, 1.0], {}, "never changes"),
        (np.zeros((2, 2)), [0, 1], np.ones((2, 2)), {"domain": (0, 1)}, "2 coordinates"),
    ],
)
def test_bad_transitions(states, actions, next_states, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        certirl.Transitions(states, actions, next_states, **settings)


def test_pairs_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="same states, in the same order"):
        certirl.Transitions(FINE, ACTIONS, FINE[::-1], paired=True)


def test_transitions_are_read_only_and_do_not_touch_the_callers_arrays():
    states = FINE.copy()
    data = certirl.Transitions(states, ACTIONS, FINE)
    with pytest.raises(ValueError):
        data.states[0] = 0
    states[0] = 0.5
    assert data.states[0, 0] == -1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"discount": 1.0}, "strictly between 0 and 1"),
        ({"discount": 0.0}, "strictly between 0 and 1"),
        ({"discount": 1.7}, "strictly between 0 and 1"),
        ({"delta": 0.7, "tail": 0}, "delta must be a probability of error between 1e-100 and 0.5"),
        ({"expert": 3}, "one of the actions"),
        ({"expert": -1}, "one of the actions"),
        ({"samples": 0}, "whole number of transitions per action"),
        ({"samples": -5}, "whole number of transitions per action"),
        ({"samples": 2}, "fewer columns, or states"),
        ({"columns": 12}, "columns must be a whole number of functions of the basis, at most 11, got 12"),
        ({"columns": 0}, "columns must be a whole number of functions of the state, at least 1, got 0"),
        ({"basis": certirl.Legendre(5, (0, 1))}, "without an interval"),
        ({"discount": "0.7"}, "strictly between 0 and 1"),
        ({"samples": 1e3}, "whole number"),
        (
            {"basis": None, "columns": 501},
            "columns must be a whole number of functions of the state, at most 500, got 501",
        ),
    ],
)
def test_bad_settings_of_solve(settings, sentence):
    given = {"expert": 0, "basis": certirl.Legendre(11), "discount": 0.7, "rng": 0, "samples": 500}
    with pytest.raises(ValueError, match=sentence):
        certirl.solve(PROBLEM, **given | settings)


@pytest.mark.parametrize("expert", [0.5, True, "0"])
def test_an_expert_is_an_action_or_a_function(expert):
    with pytest.raises(TypeError, match=r"expert must be an action \(a whole number\) or a function of states"):
        certirl.solve(PROBLEM, discount=0.7, expert=expert, rng=0, samples=500)


@pytest.mark.parametrize(("name", "value"), [("form", "median"), ("objective", "l2")])
def test_bad_names_of_programs(name, value):
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        certirl.Program(**{name: value})


@pytest.mark.parametrize("samples", [1, 2])
def test_too_few_samples_without_a_basis_is_one_sentence(samples):
    with pytest.raises(ValueError, match="fewer columns, or states"):
        certirl.solve(PROBLEM, expert=0, discount=0.7, rng=0, samples=samples)


@pytest.mark.parametrize("samples", [5, 20])
def test_a_handful_of_samples_is_answered_honestly(samples):
    solution = certirl.solve(PROBLEM, expert=0, discount=0.7, rng=0, samples=samples)
    assert solution.status != "certified" and solution.samples == samples


def test_a_missing_rng_is_one_sentence():
    with pytest.raises(TypeError, match="rng is needed"):
        certirl.solve(PROBLEM, expert=0, discount=0.7)
    with pytest.raises(TypeError, match="seed or a numpy Generator"):
        certirl.solve(PROBLEM, expert=0, discount=0.7, rng="dice")


class Broken:
    n_actions, domain = 2, ((-1.0, 1.0),)

    def __init__(self, answer):
        self.answer = answer

    def sample(self, states, action, rng):
        return self.answer(states)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda s: s * np.nan, "must be finite"),
        (lambda s: s + 5, "outside the domain"),
        (lambda s: s[:-1], "returned"),
        (lambda s: np.zeros((len(s), 2)), "shape"),
        (lambda s: "soon", "must be real numbers"),
    ],
)
def test_a_broken_simulator_is_named(answer, sentence):
    with pytest.raises(ValueError, match=sentence):
        certirl.solve(Broken(answer), expert=0, discount=0.7, rng=0, samples=100)


def test_what_is_not_a_simulator_is_told_what_is_missing():
    with pytest.raises(TypeError, match="it has no n_actions, domain, sample"):
        certirl.solve(object(), expert=0, discount=0.7, rng=0)


@pytest.mark.parametrize("basis", ["Legendre", certirl.Legendre, 11])
def test_what_is_not_a_basis_is_refused(basis):
    with pytest.raises(TypeError, match=r"such as certirl\.Legendre"):
        certirl.solve(PROBLEM, expert=0, discount=0.7, rng=0, basis=basis)


def test_the_mean_form_is_refused_for_a_log():
    with pytest.raises(ValueError, match="use least-squares for a log"):
        certirl.solve(
            certirl.Transitions(FINE, ACTIONS, FINE[::-1]),
            expert=0,
            discount=0.7,
            method=certirl.Program(form="mean"),
        )


def test_what_is_not_proved_in_several_coordinates_is_refused_in_words():
    data = certirl.Transitions(np.random.default_rng(0).random((50, 2)), np.arange(50) % 2, np.zeros((50, 2)))
    with pytest.raises(ValueError, match="a certificate needs a declared domain"):
        certirl.solve(data, expert=0, discount=0.7, delta=0.05)
    many = certirl.Transitions(np.zeros((50, 4)), np.arange(50) % 2, np.zeros((50, 4)), domain=((-1, 1),) * 4)
    with pytest.raises(ValueError, match="3 coordinates at most"):
        certirl.solve(many, expert=0, discount=0.7, delta=0.05)
    with pytest.raises(ValueError, match=r"certirl.product\(…\) takes one family for each coordinate"):
        certirl.refute(replace(data, domain=((0, 1),) * 2), expert=0, basis=certirl.Legendre(5), delta=0.05)


def test_records_are_read_only():
    operators = PROBLEM.operators(certirl.Legendre(4))
    criterion = certirl.steps.bellman(operators, discount=0.7)
    found = certirl.steps.recover(criterion)
    for array in (operators.Z, criterion.F, found.states, found.value):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_missing_folder_is_named(solution, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        solution.save(tmp_path / "no" / "reward.npz")


def test_saved_files_can_be_read_by_others(solution, tmp_path):
    assert solution.save(tmp_path / "reward.npz").stat().st_mode & 0o444 == 0o444


def test_one_action_is_not_enough():
    with pytest.raises(ValueError, match="at least two"):
        certirl.solve(certirl.Transitions(FINE, np.zeros(60), FINE[::-1]), expert=0, discount=0.7)


def test_a_reward_outside_its_domain_is_refused():
    reward = certirl.Reward(certirl.Legendre(3, (0, 1)), np.ones(3))
    assert reward(1 + 1e-12) == pytest.approx(reward(1.0))  # rounding at the edge is not a mistake
    for bad, sentence in ((1.5, "outside"), (np.nan, "finite"), (np.zeros((2, 2)), "shape")):
        with pytest.raises(ValueError, match=sentence):
            reward(bad)
    with pytest.raises(ValueError, match="needs 3 coefficients"):
        certirl.Reward(certirl.Legendre(3), np.ones(4))
    with pytest.raises(ValueError):
        reward.coefficients[0] = 2


@pytest.fixture(scope="module")
def solution():
    return certirl.solve(PROBLEM, expert=0, basis=certirl.Legendre(7), discount=0.7, rng=0, samples=2_000)


def test_damaged_and_foreign_files_are_one_sentence(solution, tmp_path):
    path = solution.save(tmp_path / "reward.npz")
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="damaged or cut short"):
            certirl.load(tmp_path / "cut.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match="not a certirl file"):
        certirl.load(tmp_path / "text.npz")
    np.savez(tmp_path / "foreign.npz", a=np.ones(3))
    with pytest.raises(ValueError, match="not a certirl file"):
        certirl.load(tmp_path / "foreign.npz")
    np.savez(tmp_path / "newer.npz", header=np.array(json.dumps({"format": "certirl", "version": 99})))
    with pytest.raises(ValueError, match="version 99"):
        certirl.load(tmp_path / "newer.npz")
    with pytest.raises(FileNotFoundError, match="no file"):
        certirl.load(tmp_path / "nothing.npz")


def test_pickles_are_never_opened(tmp_path):
    np.savez(tmp_path / "trap.npz", header=np.array({"format": "certirl"}, dtype=object))
    with pytest.raises(ValueError, match="not a certirl file"):
        certirl.load(tmp_path / "trap.npz")
    np.savez(tmp_path / "data.npz", states=np.array([{}], dtype=object), actions=[0], next_states=[0.0])
    with pytest.raises(ValueError, match="not an npz file of plain arrays"):
        tables.read(tmp_path / "data.npz")


def test_a_missing_field_is_damage(solution, tmp_path):
    path = solution.save(tmp_path / "reward.npz")
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "compared.states"}
    np.savez(tmp_path / "less.npz", **arrays)
    with pytest.raises(ValueError, match="damaged"):
        certirl.load(tmp_path / "less.npz")


def test_a_failed_save_keeps_the_old_file(solution, tmp_path, monkeypatch):
    path = solution.save(tmp_path / "reward.npz")
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        solution.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["reward.npz"]


def write_csv(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_csv_and_npz_hold_the_same_data(tmp_path):
    data = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(3), samples=20, rng=0)
    rows = list(zip(data.next_states[:, 0], data.actions, data.states[:, 0], range(60), strict=True))
    csv = tables.read(write_csv(tmp_path / "d.csv", "next_state, action,state,note", rows), domain=(-1, 1))
    np.savez(tmp_path / "d.npz", states=data.states, actions=data.actions, next_states=data.next_states)
    npz = tables.read(tmp_path / "d.npz", domain=(-1, 1))
    for name in ("states", "actions", "next_states"):
        np.testing.assert_array_equal(getattr(csv, name), getattr(data, name))
        np.testing.assert_array_equal(getattr(npz, name), getattr(data, name))


def test_several_coordinates_are_read_in_order(tmp_path):
    path = write_csv(
        tmp_path / "d.csv", "state_1,state_0,action,next_state_0,next_state_1", [(1, 2, 0, 3, 4), (5, 6, 1, 7, 8)]
    )
    data = tables.read(path)
    assert data.states.tolist() == [[2, 1], [6, 5]] and data.next_states.tolist() == [[3, 4], [7, 8]]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", "x,y\n1,2\n", "needs the columns state, action, next_state"),
        ("b.csv", "", "no header"),
        ("c.csv", "state,action,next_state\n0,0,zero\n", "the column next_state holds 'zero' in row 0, not a number"),
        ("d.csv", "state,action,next_state\n0,0\n", "row 0 has 2 fields, the header 3: .0,0.; the line is cut short"),
        ("e.csv", "state,action,next_state\n0,0,nan\n", "next_state is missing or not finite in row 0"),
        ("f.csv", "state,action,next_state\n", "there are no rows in it"),
        ("g.txt", "0", "transitions come as .parquet, .csv, .tsv or .npz"),
        ("h.npz", "0", "damaged or cut short"),
        ("i.csv", b"state,action,next_state\xff\n0,0,0\n", "UTF-8"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path, name, text, sentence):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=sentence):
        tables.read(tmp_path / name)


def test_an_npz_without_the_arrays_says_what_it_holds(tmp_path):
    np.savez(tmp_path / "d.npz", observations=np.zeros(3))
    with pytest.raises(ValueError, match=r"needs .* arrays states, actions, next_states, .*; it has observations"):
        tables.read(tmp_path / "d.npz")
