"""Exit codes, JSON and silence: what a script that calls the commands can rely on."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import certirl
from certirl import dynamics, logs
from certirl.cli import main, verbs
from certirl.cli.parsing import CODES, build
from certirl.show.charts import certificate_charts

BOX = ["--domain", "-1", "1"]
NO_PICTURE = ["--plot", ""]
WALK = """
import numpy as np

class Walk:
    n_actions, domain = 2, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(states / 2 + (0.3, -0.3)[action] + 0.1 * rng.normal(size=states.shape), -1, 1)

def policy(states):
    return (states[:, 0] > 0).astype(int)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Logs that are certified, infeasible and too short; a simulator; what solve and certify make of them."""
    folder, rng = tmp_path_factory.mktemp("codes"), np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, 4_000), rng.integers(2, size=4_000)
    moved = np.clip(states / 2 + np.where(actions == 0, 0.3, -0.3) + 0.1 * rng.normal(size=4_000), -1, 1)
    table(folder / "log.csv", states, actions, moved)
    table(folder / "short.csv", states[:200], actions[:200], moved[:200])
    # Where action 0 goes up above zero and down below it, no monotone V can prefer it, and V of two functions is that.
    table(folder / "odd.csv", states, actions, np.where(actions == 0, states, -states))
    (folder / "walk.py").write_text(WALK)
    return folder


def table(path, states, actions, next_states):
    header = "state,action,next_state"
    np.savetxt(path, np.column_stack([states, actions, next_states]), delimiter=",", header=header, comments="")


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    for file in files.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


PROOF = ["--discount", "0.7", "--basis", "legendre", "--size", "5", "--columns", "4", "--delta", "0.05", "--tail", "0"]


def document(capsys, words, code):
    """The one document on standard output of a command with --json, after its exit code is compared."""
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_proof_is_code_0_and_is_checked_and_certified_again(folder, capsys):
    found = document(capsys, ["solve", "log.csv", *BOX, *PROOF, *NO_PICTURE], 0)
    saved = certirl.load("reward.npz")
    assert found["type"] == "Solution" and found["status"] == "certified" and found["margin"] == saved.margin
    assert found["certificate"]["margin"] == saved.certificate.margin > 0
    verdict = document(capsys, ["check", "reward.npz"], 0)
    assert verdict["verdict"] == "confirmed" and 0 < verdict["margin"] <= verdict["claimed"] == saved.certificate.margin
    # The discount, the expert, the columns and the domain are those of the solution.
    again = document(capsys, ["certify", "reward.npz", "log.csv", "--tail", "0", "--seed", "1"], 0)
    transitions = logs.read("log.csv", domain=(-1, 1), n_actions=2)
    expected = certirl.certify(saved, transitions, tail=0, rng=1)
    assert again["margin"] == expected.margin > 0 and certirl.load("certificate.npz").margin == expected.margin


def test_solved_without_the_proof_that_was_asked_for_is_code_3(folder, capsys):
    assert document(capsys, ["solve", "short.csv", *BOX, *PROOF, *NO_PICTURE], 3)["status"] == "solved"
    assert document(capsys, ["check", "reward.npz"], 3)["verdict"] == "nothing claimed"
    found = document(capsys, ["certify", "reward.npz", "short.csv"], 3)
    assert found["margin"] == "-Infinity" or found["margin"] <= 0 or found["tail"] is None
    asked = PROOF[: PROOF.index("--delta")]
    assert main(["solve", "short.csv", *BOX, *asked, *NO_PICTURE, "--quiet"]) == 0  # none was asked for


def test_no_reward_is_code_4_and_one_with_slack_code_5(folder, capsys):
    odd = ["solve", "odd.csv", *BOX, "--discount", "0.7", "--basis", "legendre", "--size", "2", *NO_PICTURE]
    assert document(capsys, odd, 4)["status"] == "infeasible"
    assert document(capsys, [*odd, "--slack", "10"], 5)["status"] == "undetermined"


def test_a_certificate_that_was_raised_is_refuted_with_code_5(folder, capsys):
    assert main(["solve", "log.csv", *BOX, *PROOF, *NO_PICTURE, "--quiet"]) == 0
    solution = certirl.load("reward.npz")
    replace(solution, certificate=replace(solution.certificate, margin=1.05)).save("raised.npz")
    assert document(capsys, ["check", "raised.npz"], 5)["verdict"] == "rejected"


def test_interrupts_are_code_130_and_json(folder, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("certirl.cli.inputs.solved", interrupted)
    assert document(capsys, ["solve", "log.csv", "--discount", "0.7"], 130) == {"error": "interrupted"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("solve log.csv --discount 0.7 --samplse 9", "arguments: --samplse 9 (is --samples meant?)"),
        ("solve log.csv --discount 0.7 --samples 9", "--samples is for simulators"),
        ("solve log.csv --discount 0.7 --delta 0.1 --regret 0.1 --domain -1 1", "leave --regret out"),
        ("solve log.csv --discount 0.7 --seed -1", "--seed must be"),
        ("solve log.csv --discount 0.7 --tail smooth:1", "or FILE.py:NAME, got 'smooth:1'"),
        ("solve log.csv --discount 0.7 --tail rough", "--tail must be a number, or gaussian:STD:SLOPE[:RATE]"),
        ("solve walk.py:Walk log.csv --discount 0.7", "walk.py:Walk is a simulator: name it alone, without log.csv"),
        ("solve walk.py:Run --discount 0.7", "walk.py:Run names nothing: walk.py has no Run"),
        ("solve none.py:Walk --discount 0.7", "there is no file none.py"),
        ("solve no.module:Walk --discount 0.7", "no.module:Walk cannot be imported: there is no module no"),
        ("solve walk.py:Walk --discount 0.7 --domain -1 1", "--domain belongs to transitions, and a simulator has its"),
        ("solve walk.py:Walk --discount 0.7 --expert observed", "--expert observed is for logs"),
        ("solve walk.py:np --discount 0.7", "walk.py:np is no simulator"),
        ("certify log.csv log.csv", "log.csv is not a certirl file"),
        ("certify reward.npz log.csv", "does not say all of the problem: write --discount and --expert, too"),
        ("certify reward.npz moments.npz", "name the transitions instead"),
        ("certify moments.npz log.csv", "moments.npz holds Moments, and no reward that could be certified"),
    ],
)  # fmt: skip
def test_mistakes_are_code_2_and_json(folder, capsys, words, sentence):
    if "reward.npz" in words:
        certirl.Reward(certirl.Legendre(3).on(((-1, 1),)), np.ones(3)).save("reward.npz")
    if "moments.npz" in words:
        assert main(["moments", "log.csv", *BOX, "--quiet"]) == 0
    assert main([*words.split(), "--json"]) == 2
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]
    assert sentence in error and printed.err.splitlines()[-1] == f"certirl: {error}"


ERRANT = """
import sys
import numpy as np

class Walk:
    n_actions, domain = 2, ((-1.0, 1.0),)
    def sample(self, states, action, rng):
        return np.clip(states + (0.2 if action else -0.2) + 0.1 * rng.standard_normal(states.shape), -1, 1)

def expert(states):
    return states[:, 0] > 0
"""
BODY = "return np.clip"


@pytest.mark.parametrize(
    ("name", "before", "line", "what", "said"),
    [
        ("end", "", "sys.exit(0)", "the import of end.py:expert", "<module> (end.py, line 12): it calls sys.exit(0): "),
        (
            "lack",
            "import sys",
            "import none",
            "lack.py:expert",
            "<module> (lack.py, line 2): ModuleNotFoundError: No mod",
        ),
        ("key", BODY, "{}[action]", "the simulator's sample", "Walk.sample (key.py, line 8): KeyError: 0"),
        ("out", BODY, "sys.exit()", "the simulator's sample", "Walk.sample (out.py, line 8): it calls sys.exit(): "),
        (
            "made",
            "n_actions",
            "def __init__(self): 1 / 0",
            "made.py:Walk",
            "Walk.__init__ (made.py, line 6): ZeroDivision",
        ),
        ("choose", "return states[", "states[:, 7]", "the expert", "expert (choose.py, line 11): IndexError: index 7"),
    ],
)
def test_code_of_the_user_that_fails_is_code_2_with_its_place_and_json(
    tmp_path, monkeypatch, capsys, name, before, line, what, said
):
    monkeypatch.chdir(tmp_path)
    indent = ERRANT.partition(before or "class")[0].rpartition("\n")[2]
    text = ERRANT.replace(before, f"{line}\n{indent}{before}", 1) if before else ERRANT + line
    (tmp_path / f"{name}.py").write_text(text)
    words = f"solve {name}.py:Walk --discount 0.7 --expert {name}.py:expert --samples 200 --json --quiet".split()
    assert main(words) == 2
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]
    assert f"{what} failed in {said}" in error and printed.err == f"certirl: {error}\n"
    assert not list(tmp_path.glob("*.npz"))


COMMANDS = {
    "demo": "demo --plot=",
    "solve": "solve log.csv --discount 0.7 --basis legendre --size 5 --plot=",
    "certify": "certify reward.npz log.csv --tail 0",
    "cells": "cells Pendulum-v1 --actions 3 --discount 0.9 --points 20 21 --refine 2",
    "show": "show reward.npz",
    "report": "report reward.npz",
    "export": "export reward.npz",
    "check": "check reward.npz",
    "coverage": "coverage log.csv --domain -1 1",
    "moments": "moments log.csv --domain -1 1",
    "merge": "merge moments.npz",
    "theorems": "theorems --discount 0.7 --beta 0.0377",
}
CODE = {"check": 3}  # the reward has no certificate
ELSEWHERE = {"reproduce"}  # tests/claims/test_reproduce.py


def test_no_command_is_left_out():
    assert {*COMMANDS} | ELSEWHERE == {verb.name for verb in verbs()}


def test_every_command_has_one_document_and_can_be_silent(folder, capsys):
    for verb, words in COMMANDS.items():
        if verb == "certify":
            main(["solve", "log.csv", *BOX, *PROOF[: PROOF.index("--delta")], *NO_PICTURE, "--quiet"])
            capsys.readouterr()
        assert main([*words.split(), "--json"]) == CODE.get(verb, 0), verb
        printed = capsys.readouterr()
        assert json.loads(printed.out)["type"], verb
        assert printed.err, verb  # the lines
        assert main([*words.split(), "--quiet"]) == CODE.get(verb, 0), verb
        assert capsys.readouterr() == ("", ""), verb
    assert main([*COMMANDS["theorems"].split(), "--quiet", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) and printed.err == ""


def test_a_simulator_is_solved_as_in_python(folder, capsys):
    asked = ["solve", "walk.py:Walk", "--discount", "0.7", "--samples", "3000", "--seed", "5", *NO_PICTURE]
    found = document(capsys, asked, 0)
    scope = {}
    exec(WALK, scope)
    walk = SimpleNamespace(**scope)
    expected = certirl.solve(walk.Walk(), expert=0, discount=0.7, samples=3_000, rng=5)
    assert found["margin"] == expected.margin and found["samples"] == 3_000


def test_options_of_a_search_arrive_in_solve(folder, capsys, monkeypatch):
    received = {}

    def solve(source, **asked):
        received.update(asked, source=source)
        raise ValueError("enough")

    monkeypatch.setattr("certirl.cli.inputs.solve", solve)
    words = "solve walk.py:Walk --discount 0.7 --expert walk.py:policy --delta 0.1 --columns 25 --tail smooth:2:0.5"
    assert main([*words.split(), "--regret", "0.2", "--tube", "0.3", "--samples", "800"]) == 2
    assert capsys.readouterr().err == "certirl: enough\n"
    assert received["source"].n_actions == 2 and received["expert"](np.array([[0.5], [-0.5]])).tolist() == [1, 0]
    assert received["tail"] == dynamics.Smooth(2, 0.5) and received["columns"] == 25 and received["delta"] == 0.1
    assert received["samples"] == 800 and received["rng"] == 0  # the default
    assert (received["regret"], received["tube"]) == (0.2, 0.3)


def test_noise_that_is_known_is_certified_as_in_python_checked_and_reported(folder, capsys):
    asked = ["solve", "log.csv", *BOX, "--actions", "up,down", *PROOF[: PROOF.index("--delta")], *NO_PICTURE, "--quiet"]
    assert main(asked) == 0
    words = ["certify", "reward.npz", "log.csv", "--actions", "up,down", "--known-noise"]
    found = document(capsys, [*words, "0.1"], 0)
    log = logs.read("log.csv", domain=[[-1, 1]], actions=("up", "down"))
    expected = certirl.certify(certirl.load("reward.npz"), log, dynamics=dynamics.AffineGaussian(0.1))
    assert found["type"] == "GaussianCertificate" and found["margin"] == expected.margin > 0
    assert "against down" in str(expected)
    assert document(capsys, ["check", "certificate.npz"], 0)["verdict"] == "confirmed"
    solved = [*asked[:-1], "-o", "proved.npz", "--delta", "0.05", "--known-noise", "0.1"]
    assert document(capsys, solved, 0)["certificate"]["margin"] > 0
    assert main(["report", "certificate.npz"]) == 0
    prints = (folder / "report.html").read_text(encoding="utf-8")
    assert "down" in prints and "transitions per action" in prints
    assert "fresh" not in prints and "<dt>tail</dt>" not in prints and "<dt>columns</dt>" not in prints
    for more, sentence in {
        "0.1 --tail 0": "a proof with --known-noise has no use for --tail: leave it out",
        "0.3": "(declare another --known-noise, or write --tail gaussian:STD:SLOPE in its place)",
        "-1": "--known-noise must be a number above 0, got -1.0",
    }.items():
        assert main([*words, *more.split()]) == 2
        assert sentence in capsys.readouterr().err


TRAY = """
import numpy as np
class Tray:
    n_actions, domain = 2, ((0.0, 10.0),)
    def sample(self, states, action, rng):
        return np.clip(0.9 * states + (0.0, 1.0)[action], 0, 10)
    def reward(self, states, action, next_states):
        return -abs(states[:, 0] - 6)
class Bare:
    n_actions, domain, sample = 2, Tray.domain, Tray.sample
def keep(states):
    return (states[:, 0] < 5) * 1
"""


def test_a_simulator_with_declared_slopes_is_proved_by_cells_checked_shown_and_reported(folder, capsys):
    (folder / "tray.py").write_text(TRAY)
    words = ["cells", "tray.py:Tray", "--discount", "0.9", "--points", "41"]
    found = document(capsys, [*words, "--lipschitz", "0.9"], 0)
    scope = {}
    exec(TRAY, scope)
    tray = scope["Tray"]()
    plan = certirl.planning.plan(tray, discount=0.9, points=41)
    expected = certirl.certify(plan, tray, dynamics=dynamics.Deterministic([[0.9]], refine=4))
    assert found["decided_share"] == expected.decided_share > 0.9 and found["margin"] == expected.margin
    assert document(capsys, [*words, "--lipschitz", "0.9", "0.95"], 0)["decided_share"] <= expected.decided_share
    assert document(capsys, ["check", "proof.npz"], 0)["verdict"] == "confirmed"
    assert main(["show", "proof.npz", "--plot", "proof.png"]) == main(["report", "proof.npz"]) == 0
    assert "Picture: proof.png" in capsys.readouterr().out
    (picture,) = certificate_charts(expected)
    assert picture.high == expected.margins.max() > 1  # margins are not cut off at 1
    assert ">certified in part</span>" in expected._repr_html_()
    for more, sentence in {
        "": "write --lipschitz L …, bounds on slopes: none are built in",
        "--lipschitz 1 2 3": "--lipschitz must be a number from 0 to 1e+12, or a number for each of 2 actions, got [1",
        "--lipschitz -1": "--lipschitz must be a number from 0 to 1e+12",
        "--lipschitz 0.5": "contradicted: L[0][0] must be at least 0.9, not 0.5; declare bounds on the derivatives",
        "--lipschitz 1 --expert tray.py": "tray.py is a Python file: write tray.py:NAME",
        "--lipschitz 1 --expert left": "--expert must be an action, a whole number, or a function, FILE.py:NAME, got",
        "--lipschitz 1 --value proof.npz -o new.npz": "--value must be a file of a solution, and proof.npz",
        "--lipschitz 1 --value proof.npz --learned -o new.npz": "leave --learned out",
        "--lipschitz 1 --actions 3": "--actions is for environments, and tray.py:Tray has its own: leave it out",
    }.items():
        assert main([*words, *more.split()]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["cells", "tray.py:Bare", *words[2:], "--lipschitz", "0.9"]) == 2
    assert "Bare has no reward of its own: give it a method reward(states, action, next_s" in capsys.readouterr().err
    assert main(["cells", "tray.py:Tray", "--discount", "0.9", "--lipschitz", "0.9"]) == 2
    assert "write --points 41, say" in capsys.readouterr().err


def test_an_expert_of_your_own_is_proved_by_cells_for_a_learned_or_a_saved_value(folder, capsys):
    (folder / "tray.py").write_text(TRAY)
    words = ["cells", "tray.py:Bare", "--discount", "0.9", "--points", "41", "--lipschitz", "0.9"]
    found = document(capsys, [*words, "--expert", "tray.py:keep"], 0)
    scope = {}
    exec(TRAY, scope)
    solution = certirl.solve(scope["Bare"](), expert=scope["keep"], discount=0.9, rng=0, progress=False)
    solution.save("learned.npz")
    asked = {"dynamics": dynamics.Deterministic(0.9, points=41, refine=4)}
    expected = certirl.certify(solution, scope["Bare"](), expert=scope["keep"], **asked)
    assert found["decided_share"] == expected.decided_share > 0.9
    again = document(capsys, [*words, "--expert", "tray.py:keep", "--value", "learned.npz"], 0)
    assert again["decided_share"] == expected.decided_share
    greedy = certirl.certify(solution, scope["Bare"](), **asked)
    assert document(capsys, [*words, "--value", "learned.npz"], 0)["decided_share"] == greedy.decided_share
    assert main([*words[:-1], "1000", "--refine", "1", "--expert", "1", "--value", "learned.npz"]) == 3
    assert "Result: proof.npz (replaced)" in capsys.readouterr().out


def test_a_tail_that_cannot_work_is_refused_before_anything_is_read(folder, capsys, monkeypatch):
    monkeypatch.setattr("certirl.cli.inputs.read", None)
    words = ["solve", "log.csv", *BOX, "--discount", "0.9", "--columns", "13", "--delta", "0.05", "--tail"]
    assert main([*words, "0.2"]) == 2
    sentence = "13 columns give τ = 0.2; with --discount 0.9 a proof needs τ < 0.16: declare a tail below 0.16"
    assert sentence in capsys.readouterr().err
    assert main([*words, "smooth:2:20"]) == 2
    assert "a proof needs τ < 0.16: use at least 20 columns" in capsys.readouterr().err


def test_a_tail_may_be_an_object_in_a_file(folder, capsys):
    (folder / "noise.py").write_text("import certirl\ntail = certirl.dynamics.GaussianNoise(0.2, slope=0.9)\n")
    words = ["solve", "walk.py:Walk", "--discount", "0.9", "--columns", "3", "--delta", "0.05", "--tail"]
    assert main([*words, "noise.py:tail"]) == 2
    assert (
        "3 columns give τ = 1; with --discount 0.9 a proof needs τ < 0.22: use at least 11 columns"
        in capsys.readouterr().err
    )
    for word, sentence in {"noise.py:law": "noise.py has no law", "none.py:tail": "there is no file none.py"}.items():
        assert main([*words, word]) == 2
        assert sentence in capsys.readouterr().err


def test_a_tail_that_cannot_work_with_the_columns_of_a_solution_is_refused(folder, capsys, monkeypatch):
    assert main(["solve", "log.csv", *BOX, *PROOF, *NO_PICTURE, "--quiet"]) == 0
    monkeypatch.setattr("certirl.cli.inputs.read", None)
    assert main(["certify", "reward.npz", "log.csv", "--tail", "5"]) == 2
    assert "4 columns give τ = 5; with --discount 0.7 a proof needs τ < 0.24" in capsys.readouterr().err


def test_help_names_the_exit_codes_and_begins_with_examples(capsys):
    parser = build(verbs(), "0")
    for name, command in parser.commands.items():
        verb = next(verb for verb in verbs() if verb.name == name)
        text = command.format_help()
        assert text.index("examples:") < text.index("output:") < text.index("exit codes:")
        codes = re.search(r"exit codes: ([\d, ]+) \(", text)[1]
        assert {*map(int, codes.split(", "))} == {0, 2, 130, *verb.codes}
        assert max(map(len, text.splitlines())) <= 100
        assert len(text.splitlines()) <= 96
    assert all(f"  {code:<4} {words}" in parser.format_help() for code, words in CODES.items())
    for command in ("", "solve"):
        with pytest.raises(SystemExit) as left:
            main([*command.split(), "--help"])
        assert left.value.code == 0
    assert "certirl solve log.csv --discount 0.9 --expert observed" in capsys.readouterr().out
