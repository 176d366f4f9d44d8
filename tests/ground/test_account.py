"""Records that are saved say who asked for what: the call, and the data and code behind it with their hashes."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

import certirl
from certirl.cli import main
from certirl.ground.account import identity
from systems import Moving

HASH = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
SYSTEMS = hashlib.sha256(Path(__file__).parents[1].joinpath("systems.py").read_bytes()).hexdigest()
LINE = Moving(((0.0, 10.0),), ([0.5], [-0.5]), std=np.array([0.5]))

_STATES, _ACTIONS = np.linspace(0.1, 9.9, 400), np.arange(400) % 2
LINE_ROWS = _STATES, _ACTIONS, np.clip(_STATES + np.sin(37 * _STATES) + 0.5 - _ACTIONS, 0, 10)


def _right(states):
    return (states[:, 0] > 5).astype(int)


class Switch:
    def predict(self, states):
        return _right(states)


def test_a_solution_names_its_call_and_the_files_of_simulator_and_expert(tmp_path):
    asked = {"discount": 0.8, "samples": 600, "trials": 0, "rng": 3, "map": 1}
    solution = certirl.solve(LINE, expert=_right, **asked)
    assert solution.about["call"].startswith("certirl.solve(Moving, discount=0.8, expert=_right, samples=600, trials=0")
    assert "rng=3" in solution.about["call"] and "map" not in solution.about["call"]  # results do not depend on it
    assert solution.about["simulator"] == f"Moving, systems.py, SHA-256 of the file {SYSTEMS}"
    assert solution.about["expert"] == f"_right, test_account.py, SHA-256 of the file {HASH}"
    assert solution.about["versions"] == f"certirl {certirl.__version__}, NumPy {np.__version__}"
    assert certirl.load(solution.save(tmp_path / "answer")).about == solution.about


def test_the_hash_of_a_log_is_that_of_its_rows():
    states, actions, after = np.array([0.0, 0.5, 1.0]), np.array([0, 1, 0]), np.array([0.5, 1.0, 0.0])
    rows = hashlib.sha256(states.tobytes() + actions.astype("<i8").tobytes() + after.tobytes()).hexdigest()
    assert identity(certirl.Transitions(states, actions, after)).endswith(f"SHA-256 of the rows {rows}")
    assert rows not in identity(certirl.Transitions(states, actions, [0.5, 1.0, 0.25]))
    log = certirl.Transitions(*LINE_ROWS, domain=LINE.domain)
    assert certirl.solve(log, discount=0.8, expert=0).about["data"] == identity(log)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, ""),
        (0.5, ""),
        (np.float64(2), ""),
        (Switch(), f"Switch, test_account.py, SHA-256 of the file {HASH}"),
        (Switch().predict, f"Switch.predict, test_account.py, SHA-256 of the file {HASH}"),
        ([_right, 3], f"_right, test_account.py, SHA-256 of the file {HASH}"),
        (eval("lambda states: states"), "<lambda>, which is in no file"),
        (certirl.problems.random_polynomial(seed=7), "random polynomial 7: 3 actions on [-1, 1]"),
        (certirl.dynamics.Smooth(2, 0.5), str(certirl.dynamics.Smooth(2, 0.5))),
    ],
)
def test_code_is_named_with_its_file(value, words):
    assert identity(value) == words


@pytest.mark.slow
def test_proofs_have_their_own_call_and_those_of_a_solution_its_call():
    room = certirl.problems.thermostat(noise=3.0)
    asked = {"discount": 0.7, "expert": 0, "columns": certirl.Legendre(7), "tail": room.tail, "samples": 9_000}
    proof = certirl.certify(lambda states: states[:, 0], room, rng=1, **asked)
    assert proof.about["call"].startswith("certirl.certify(test_proofs_have")
    assert ".<lambda>, Thermostat(noise=3.0), expert=0" in proof.about["call"] and "rng=1" in proof.about["call"]
    refuted = certirl.refute(room, expert=0, basis=certirl.Legendre(2), columns=7, tail=room.tail, samples=9_000, rng=1)
    assert refuted.about["call"].startswith("certirl.refute(") and "rng=1" in refuted.about["call"]
    problem = certirl.problems.random_polynomial(seed=7)
    asked = {"basis": certirl.Legendre(7), "columns": 3, "delta": 0.05, "tail": 0, "rng": 0}
    solution = certirl.solve(problem, expert=0, discount=0.7, **asked)
    assert solution.certificate.about == solution.about


def test_a_command_is_kept_and_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("room.py").write_text(
        "import numpy as np\n\n\nclass Room:\n    n_actions, domain = 2, ((10.0, 30.0),)\n\n"
        "    def sample(self, states, action, rng):\n"
        "        mean = states - 0.15 * (states - 10) + (3.0, 0.0)[action]\n"
        "        return np.clip(mean + rng.normal(0, 1, states.shape), 10, 30)\n"
    )
    words = ["solve", "room.py:Room", "--expert", "0", "--discount", "0.8", "--samples", "300", "-o", "my answer.npz"]
    assert main(words) in (0, 1, 3, 4)
    digest = hashlib.sha256(Path("room.py").read_bytes()).hexdigest()
    about = certirl.load("my answer.npz").about
    assert about["command"] == f"certirl {' '.join(words[:-1])} 'my answer.npz'"
    assert about["simulator"] == f"Room, room.py, SHA-256 of the file {digest}"
    capsys.readouterr()
    main(["show", "my answer.npz"])
    printed = capsys.readouterr().out
    assert all(f"  {name:<8} {text}\n" in printed for name, text in about.items())
