"""Files of proofs by cells: read back as they were, confirmed by the second derivation, rejected once altered."""

import copy
import functools
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import saved_records

import certirl
import files
from cells import prove
from certirl_check import check


class Drift:
    """A point on a strip whose ends are one place: to the left or to the right, until the gate is reached."""

    n_actions, domain, periodic = 2, ((0.0, 1.0), (-1.0, 1.0)), (0,)
    terminal_boxes = (((0.75, 1.0), (0.0, 1.0)),)

    def terminal(self, states):
        return ((states[:, 0] >= 0.75) | (states[:, 0] == 0)) & (states[:, 1] >= 0)

    def sample(self, states, action, rng):
        x, y = states.T
        after = np.column_stack([(x + 0.1 * y + 0.05) % 1, 0.8 * y + (0.1, -0.1)[action]])
        return np.where(self.terminal(states)[:, None], states, after)


def _drift(**changes):
    grid = certirl.Cells((12, 13), (0,), Drift.domain)
    x, y = grid.points().T
    function = certirl.Reward(grid, 0.1 * np.sin(2 * np.pi * x) + y, ended=Drift().terminal)
    asked = {"discount": 0.5, "lipschitz": [[1, 0.1], [0, 0.8]], "refine": 4} | changes
    expert = (lambda states: 0 * states[:, 0].astype(int)) if "reward" in asked else None
    return prove(Drift(), expert, **{k: v or function for k, v in asked.items()})


def _environment(name, points, **settings):
    simulator = certirl.gym.simulator(name, **settings)
    plan = certirl.planning.plan(simulator, discount=0.9, points=points)
    return prove(simulator, plan, refine=2)


MAKERS = {
    "value": lambda: _drift(value=None),
    "reward": lambda: _drift(reward=None),
    "car": lambda: _environment("MountainCar-v0", (37, 29)),
    "pendulum": lambda: _environment("Pendulum-v1", (30, 31), actions=3),
}


@functools.lru_cache
def saved(kind):
    proof = MAKERS[kind]()
    with TemporaryDirectory() as folder:
        return proof, *files.parts(proof.save(Path(folder) / "proof.npz"))


@pytest.mark.parametrize("kind", MAKERS)
def test_what_was_saved_is_confirmed_and_read_back(kind, tmp_path):
    proof, _, _ = saved(kind)
    path = proof.save(tmp_path / "proof")
    verdict = check(path)
    assert verdict.verdict == "confirmed", str(verdict)
    assert verdict.margin >= verdict.claimed == proof.margin > 0 and proof.decided_share > 0.4
    again = certirl.load(path)
    assert files.lines_of(again) == files.lines_of(proof) and again.assumptions == verdict.trusted
    states = np.random.default_rng(0).uniform(*np.array(proof.grid.domain).T, (100, 2))
    if kind == "value":
        with pytest.raises(ValueError, match="which a file does not keep"):
            again.reward(states)
    elif kind != "reward":
        assert (again.reward(states) == proof.reward(states)).all()


def test_the_numbers_that_a_proof_rests_on_are_printed_with_it(tmp_path):
    """Constants of the physics, Lipschitz constants and circles: in print, report and check, and 0 in plain words."""
    for kind, sentences in {
        "value": ("1 / 0 0.8", "[[1, 0.1], [0, 0.8]]", "coordinate 0 is periodic: its two ends are one state"),
        "car": ("force 0.001, gravity 0.0025, max_speed 0.07", "goal_position 0.5", "controls 0, 1, 2"),
        "pendulum": ("g 10, m 1, l 1, dt 0.05, max_speed 8, max_torque 2", "controls -2, 0, 2", "coordinate 0 is per"),
    }.items():
        proof, _, _ = saved(kind)
        trusted = " ".join(check(proof.save(tmp_path / kind)).trusted)
        page = proof.report(tmp_path / "page.html").read_text()
        for sentence in sentences:
            assert sentence in str(proof) + trusted
        assert sentences[-1] in trusted and sentences[-1] in str(proof) and sentences[-1] in page
        assert check(tmp_path / f"{kind}.npz").statement.startswith("if the constants below are those of the simulator")
    grid = certirl.Cells((9,), (), ((0.0, 1.0),))
    still = type("Still", (), {"n_actions": 2, "domain": ((0.0, 1.0),)})()
    still.sample = lambda states, action, rng: np.full(states.shape, 0.25 + 0.5 * action)
    value = certirl.Reward(grid, np.linspace(0, 1, 9))
    proof = prove(still, value=value, discount=0.5, lipschitz=0)
    said = "all states of a cell have the same next state"
    assert f"with L = 0; L = 0 says that under every action {said}" in str(proof)
    assert said in str(check(proof.save(tmp_path / "still")))


def test_a_file_has_a_few_bytes_for_each_cell(tmp_path):
    for kind in ("car", "pendulum"):
        proof, _, _ = saved(kind)
        size = proof.save(tmp_path / "proof").stat().st_size
        assert size < 10 * len(proof.actions) + 9 * len(proof.value.coefficients) + 4000


def entry(name, change):
    """Change an array at one decided cell."""

    def altered(header, arrays, row):
        arrays[name][row] = change(arrays[name][row])

    return altered


def constant(name, change):
    def altered(header, arrays, row):
        header["dynamics"]["physics"][name] = change(header["dynamics"]["physics"][name])

    return altered


def top(name, value):
    return lambda header, arrays, row: header.update({name: value})


def everywhere(name, change):
    def altered(header, arrays, row):
        arrays[name] = change(arrays[name])

    return altered


def ends(name):
    """Numbers of its own at terminal states, for a function of the file."""

    def altered(header, arrays, row):
        arrays[f"{name}.ends.boxes"] = np.full((1, 2, 2), np.inf) * [[[-1], [1]]]
        header[name]["ends"] = {"type": "Ends", "boxes": {"array": [1, 2, 2]}, "worth": -50.0}

    return altered


ALTERATIONS = {
    "ends of V": (("car",), ends("value"), "value has numbers of its own at terminal states"),
    "ends of R": (("reward",), ends("paid"), "paid has numbers of its own at terminal states"),
    "margin": (
        ("value", "reward", "car", "pendulum"),
        entry("margins", lambda x: 1.05 * x + 1e-4),
        "a margin is larger",
    ),
    "action": (("value", "reward", "car", "pendulum"), entry("actions", lambda x: 1 - min(x, 1)), "larger than|upper"),
    "regret": (("value", "reward", "car", "pendulum"), everywhere("below", lambda x: 0.97 * x), "no upper solution"),
    "discount": (("value", "reward", "car", "pendulum"), top("discount", 0.97), "upper solution|larger than"),
    "negative": (("value",), everywhere("below", lambda x: x - 1), "is negative"),
    "above": (("reward",), everywhere("above", lambda x: 0.9 * x), "V\\* − V̂ is no upper solution"),
    "above of V": (
        ("value",),
        everywhere("above", lambda x: x + 1),
        "something is claimed in cells of terminal|V\\* is V̂",
    ),
    "value": (("value", "car"), everywhere("value.coefficients", lambda x: x + 1), "not 0 at terminal states"),
    "terminal": (("value",), everywhere("terminal", lambda x: x - [[[0.25, 0.25], [0, 0]]]), "not those of terminal"),
    "goal": (("car",), everywhere("terminal", lambda x: x * 0.9), "lines of the grid|not those"),
    "lipschitz": (("value",), everywhere("dynamics.lipschitz", lambda x: 1.2 * x), "upper solution|larger than"),
    "endless": (("value",), everywhere("dynamics.lipschitz", lambda x: np.full(x.shape, 1e308)), "upper solution"),
    "answers": (("value",), everywhere("dynamics.next_states", lambda x: x * [1, 0.9]), "upper solution|larger than"),
    "gravity": (("car",), constant("gravity", lambda x: 1.1 * x), "upper solution|larger than"),
    "length": (("pendulum",), constant("l", lambda x: 1.1 * x), "upper solution|larger than"),
    "speed": (("pendulum",), constant("max_speed", lambda x: 0.9 * x), "not within that of the simulator"),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for name, (kinds, *_) in ALTERATIONS.items() for kind in kinds]
)
def test_what_was_altered_is_rejected_and_not_loaded(kind, name, tmp_path):
    proof, header, arrays = saved(kind)
    header, arrays = copy.deepcopy(header), {place: array.copy() for place, array in arrays.items()}
    _, alter, reason = ALTERATIONS[name]
    alter(header, arrays, int(np.flatnonzero(proof.decided)[len(proof.actions) // 5]))
    path = files.write(tmp_path / "altered.npz", header, arrays)
    verdict = check(path)
    assert verdict.verdict == "rejected", name
    assert any(re.search(reason, sentence) for sentence in verdict.reasons), verdict.reasons
    with pytest.raises(ValueError, match="damaged or was changed"):
        certirl.load(path)


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (everywhere("margins", lambda x: x[:-1]), "margins is an array of shape"),
        (everywhere("below", lambda x: x * np.nan), "should hold numbers of shape"),
        (lambda header, arrays, row: header["dynamics"].update(type="Walk"), "should be Answers or EnvSimulator"),
        (lambda header, arrays, row: header["grid"].update(counts=[3, 3]), "should|damaged"),
        (lambda header, arrays, row: header["dynamics"].update(controls=["left"]), "should be a finite number"),
    ],
)
def test_a_damaged_file_gets_a_sentence(alter, reason, tmp_path):
    _, header, arrays = saved("car")
    header, arrays = copy.deepcopy(header), dict(arrays)
    alter(header, arrays, 0)
    with pytest.raises(ValueError, match=reason):
        check(files.write(tmp_path / "damaged.npz", header, arrays))


@pytest.mark.parametrize(
    ("kind", "expert"), [("reward", 0), ("reward", 1), ("reward", None), ("car", 0), ("car", None)]
)
def test_a_proof_in_cells_is_about_the_expert_of_its_solution(kind, expert, tmp_path):
    proof, header, arrays = copy.deepcopy(saved(kind))
    solution, others = saved_records.contents("action")
    solution |= {"certificate": header, "discount": proof.discount, "expert": expert}
    solution |= {"n_actions": 2 if kind == "reward" else 3}
    solution["findings"][0]["status"] = "solved"
    others = {name: x for name, x in others.items() if not name.startswith("certificate.")}
    others |= {f"certificate.{name}": x for name, x in arrays.items()}
    found = check(files.write(tmp_path / "solution.npz", solution, others))
    right = expert is None or {expert} == set(proof.actions[proof.actions >= 0].tolist())
    assert found.verdict == ("confirmed" if right else "rejected"), str(found)
    assert right or found.reasons == (f"the solution is about expert {expert}, its certificate about another",)
