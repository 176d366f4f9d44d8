"""Commands for experts who depend on the state and for logs with episodes do what the Python calls do."""

import matplotlib as mpl
import numpy as np
import pytest

import certirl
from certirl import diagnose, logs, steps
from certirl.cli import main
from certirl.cli.output import code_of
from certirl.data.tables import read_demonstrations
from sizes import sizes

mpl.use("Agg")
ROOM = certirl.problems.comfort()
BOX = ["--domain", "-1", "1"]


def write(name, header, *columns):
    lines = [",".join("" if value is None else str(value) for value in row) for row in zip(*columns, strict=True)]
    with open(name, "w", encoding="utf-8") as file:
        file.write("\n".join([header, *lines, ""]))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A log that tries everything, demonstrations, and walks of the expert: now and then curious, and never."""
    folder, rng = tmp_path_factory.mktemp("room"), np.random.default_rng(0)
    log = steps.sample(ROOM.dynamics, basis=certirl.Legendre(9), samples=4_000, rng=0)
    write(folder / "log.csv", "state,action,next_state", log.states[:, 0], log.actions, log.next_states[:, 0])
    states = rng.uniform(-1, 1, 1_500)
    write(folder / "seen.csv", "state,action", states, ROOM.expert(states[:, None]))
    np.savez(folder / "seen.npz", states=states, actions=ROOM.expert(states[:, None]))
    for name, curiosity in {"curious.csv": 0.3, "pure.csv": 0.0}.items():
        table, x = [], rng.uniform(-1, 1, (200, 1))
        for step in range(61):
            chosen = np.where(rng.random(200) < curiosity, rng.integers(3, size=200), ROOM.expert(x))
            table += [(e, step, x[e, 0], chosen[e] if step < 60 else None, step == 60) for e in range(200)]
            moved = np.stack([ROOM.dynamics.sample(x, action, rng).reshape(-1) for action in range(3)])
            x = moved[chosen, np.arange(200)][:, None]
        write(folder / name, "episode_id,step,state,action,truncated", *zip(*sorted(table), strict=True))
    return folder


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    for file in files.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log():
    return logs.read("log.csv", domain=(-1, 1))


@pytest.mark.parametrize("seen", sizes("seen.csv", "seen.npz"))
def test_demonstrations_in_a_file_are_the_expert(folder, capsys, seen):
    assert main(["solve", "log.csv", *BOX, "--discount", "0.9", "--expert", seen, "--plot", "r.png"]) == 0
    (states, actions, _), _ = read_demonstrations(seen)
    policy = certirl.policy_from(states, actions, domain=(-1, 1), n_actions=3)
    solution = certirl.solve(log(), expert=policy, discount=0.9)
    assert str(solution) in capsys.readouterr().out
    saved = certirl.load("reward.npz")
    np.testing.assert_array_equal(saved.reward.coefficients, solution.reward.coefficients)
    assert policy.assumption in saved.stats.assumption
    assert (folder / "r.png").read_bytes().startswith(b"\x89PNG")


def test_a_log_of_the_expert_itself_is_enough_if_it_is_curious(folder, capsys):
    asked = ["--discount", "0.9", "--expert", "observed", "--margin", "0.1", "--slack", "500", "--plot", ""]
    assert main(["solve", "curious.csv", *BOX, *asked]) == 0
    printed = capsys.readouterr().out
    assert "Read as episodes: one episode for each value of the column episode_id; next states from the rows" in printed
    walks = logs.read("curious.csv", domain=(-1, 1))
    policy = certirl.policy_from(walks)
    assert (
        str(certirl.solve(walks, expert=policy, discount=0.9, method=certirl.ValueForm(margin=0.1, slack=500.0)))
        in printed
    )
    s = np.linspace(-0.9, 0.9, 181)[:, None]
    far = ROOM.expert.away(s) > 0.15
    assert (certirl.load("reward.npz").greedy(s) == ROOM.expert(s))[far].mean() > 0.95


def test_an_expert_who_never_tries_anything_else_is_told_what_is_missing(folder, capsys):
    assert main(["solve", "pure.csv", *BOX, "--discount", "0.9", "--expert", "observed"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "action 0 was taken only with coordinate 0 in [" in error
    assert "add transitions in which every action is tried" in error and "--shared-drift needs it tried" in error
    assert main(["solve", "pure.csv", *BOX, "--discount", "0.9", "--expert", "observed", "--actions", "4"]) == 2
    assert "action 3 was never taken in the log" in capsys.readouterr().err


@pytest.mark.parametrize("degree", ["1", "0"])
def test_a_log_of_an_expert_alone_is_solved_with_a_shared_drift(degree, folder, capsys):
    asked = ["--discount", "0.9", "--expert", "observed", "--plot", "", "--shared-drift", degree]
    assert main(["solve", "pure.csv", *BOX, *asked]) == 0
    printed = capsys.readouterr().out
    assert "the shared drift predicts" in printed and "one for each action on held-out episodes" in printed
    assert main(["solve", "pure.csv", *BOX, *asked[:-1], "two"]) == 2
    assert "--shared-drift" in capsys.readouterr().err


def test_what_a_curious_log_shows_too_rarely_is_said(folder, capsys):
    rows = (folder / "curious.csv").read_text().splitlines()
    cold = [row for row in rows[1:] if float(row.split(",")[2]) < 0.3]
    states, actions = (np.array([row.split(",")[i] or "nan" for row in cold], dtype=float) for i in (2, 3))
    known = np.isfinite(actions)
    write("cold.csv", "state,action,next_state", states[known], actions[known].astype(int), states[known])
    code = main(["solve", "cold.csv", *BOX, "--discount", "0.9", "--expert", "observed", "--plot", ""])
    assert code == code_of(certirl.load("reward.npz").status, proof=False)
    printed = capsys.readouterr().out
    assert "What the log does not show:\n" in printed and "of the state space was never visited" in printed


@pytest.mark.slow
def test_a_policy_is_certified_as_in_python(folder, capsys):
    proof = ["--delta", "0.05", "--tail", "0", "--columns", "5", "--tube", "0.2"]
    main(["solve", "log.csv", *BOX, "--discount", "0.9", "--expert", "seen.csv", *proof, "-o", "p.npz", "--plot", ""])
    printed = capsys.readouterr().out
    (states, actions, _), _ = read_demonstrations("seen.csv")
    policy = certirl.policy_from(states, actions, domain=(-1, 1), n_actions=3)
    asked = {"delta": 0.05, "tail": 0.0, "columns": 5, "tube": 0.2}
    solution = certirl.solve(log(), expert=policy, discount=0.9, **asked)
    said, _, call = str(solution).rpartition("  next     certirl.solve(…)")
    assert said in printed and call in printed  # a command says what is next as a command
    assert "the expert's policy was estimated from 1,200 demonstrations" in printed
    assert solution.certificate.tube.allowed == 0.2
    solution.certificate.save("proof.npz")
    for name in ("p.npz", "proof.npz"):
        assert main(["show", name, "--plot", f"{name}.png"]) == 0
        assert str(certirl.load(name)).partition("\n  next")[0] in capsys.readouterr().out
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert main(["check", name]) == (0 if solution.certificate.holds else 3)
        verdict = "Confirmed" if solution.certificate.holds else "Nothing claimed"
        assert capsys.readouterr().out.startswith(f"{verdict}: ")


def test_angles_go_around(folder, capsys):
    rng = np.random.default_rng(1)
    states, actions = rng.uniform(-np.pi, np.pi, 6_000), rng.integers(2, size=6_000)
    turned = states + np.where(actions == 0, 0.3, -0.3) + 0.2 * rng.normal(size=6_000)
    turned = (turned + np.pi) % (2 * np.pi) - np.pi
    write("ring.csv", "state,action,next_state", states, actions, turned)
    write("goal.csv", "state,action", states, (np.sin(states) < 0).astype(int))  # to ±π, over the edge of the chart
    box = ["--domain", str(-np.pi), str(np.pi), "--periodic", "0"]
    assert main(["solve", "ring.csv", *box, "--discount", "0.9", "--expert", "goal.csv", "--plot", ""]) == 0
    ring = logs.read("ring.csv", domain=(-np.pi, np.pi))
    policy = certirl.policy_from(states, (np.sin(states) < 0).astype(int), domain=ring.domain, periodic=[0])
    basis = certirl.Fourier(certirl.fit.effects.value_basis(ring.domain, (0,)).size)
    assert str(certirl.solve(ring, expert=policy, discount=0.9, basis=basis)) in capsys.readouterr().out
    reward = certirl.load("reward.npz").reward
    assert reward(3.0) > reward(0.0) and reward(-3.0) > reward(0.0)
    code = main(["solve", "ring.csv", *box, "--discount", "0.9", "--basis", "legendre", "--size", "5"])
    assert code == code_of(certirl.load("reward.npz").status, proof=False)
    assert "Fourier(5)" in capsys.readouterr().out


def test_coverage_is_printed_and_drawn(folder, capsys):
    assert main(["coverage", "curious.csv", *BOX, "--plot", "seen.png"]) == 0
    expected = diagnose.coverage(logs.read("curious.csv", domain=(-1, 1)))
    assert str(expected) in capsys.readouterr().out
    assert (folder / "seen.png").read_bytes().startswith(b"\x89PNG")
    assert main(["coverage", "log.csv", "--domain", "0", "1", "--outside", "drop"]) == 0
    assert "these transitions were dropped" in capsys.readouterr().out
    assert main(["coverage", "log.csv", *BOX, "--basis", "fourier", "--size", "5"]) == 0
    assert str(diagnose.coverage(log(), basis=certirl.Fourier(5))) in capsys.readouterr().out


def test_moments_of_episodes_are_streamed(folder, capsys):
    assert main(["moments", "curious.csv", *BOX, "--size", "7", "-o", "m.npz"]) == 0
    assert "Read as episodes" in capsys.readouterr().out
    walks = logs.read("curious.csv", domain=(-1, 1))
    np.testing.assert_allclose(
        certirl.data.moments.load("m.npz").cross, steps.measure(walks, basis=certirl.Legendre(7)).cross, atol=1e-9
    )
    assert main(["show", "m.npz"]) == 0
    assert "12,000 transitions: Legendre(7)" in capsys.readouterr().out


def test_ends_and_other_names_of_columns_are_told(folder, capsys):
    rows = [("a", 0.0, 0, 0.5, False), ("a", 0.5, 1, 0.9, True), ("b", 0.2, 1, 0.1, False), ("b", 0.1, 0, 0.3, False)]
    write("ends.csv", "run,state,action,next_state,terminated", *zip(*rows, strict=True))
    told = {
        (): "a new episode after each row with terminated",
        ("--episode", "run"): "one episode for each value of the column run",
    }
    for asked, sentence in told.items():
        assert main(["coverage", "ends.csv", "--domain", "0", "1", *asked]) == 0
        printed = capsys.readouterr().out
        assert sentence in printed and "1 terminal state was made absorbing, by 2 rows" in printed
        assert "--episode '' takes every row by itself" in printed
    assert main(["coverage", "ends.csv", "--domain", "0", "1", "--episode", ""]) == 0
    printed = capsys.readouterr().out
    assert "episodes" not in printed and "4 transitions" in printed


def test_an_action_is_named_as_in_the_data(folder, capsys):
    rows = log()
    write("named.csv", "state,action,next_state", rows.states[:, 0], [("off", "on", "up")[a] for a in rows.actions],
          rows.next_states[:, 0])  # fmt: skip
    asked = ["solve", "named.csv", *BOX, "--discount", "0.9", "--plot", ""]
    assert main([*asked, "--expert", "on"]) in (0, 4, 5)
    assert certirl.load("reward.npz").expert == 1
    assert main([*asked, "--expert", "of"]) == 2
    assert "a whole number, or one of off, on, up)" in capsys.readouterr().err
    write("t.csv", "t,state,action", range(3), [0.1, 0.2, 0.3], [0, 1, 0])
    assert main(["solve", "t.csv", *BOX, "--discount", "0.9"]) == 2
    assert "one trajectory, --step t; it has t, state, action" in capsys.readouterr().err


def test_the_reward_of_a_policy_needs_no_columns_in_a_command(folder, capsys):
    (folder / "room.py").write_text("import certirl\n\nROOM = certirl.problems.comfort()\nkeep = ROOM.expert\n")
    certirl.solve(log(), expert=ROOM.expert, discount=0.9).save("found.npz")
    assert main(["certify", "found.npz", "log.csv", "--expert", "room.py:keep"]) == 3
    out, err = capsys.readouterr()
    assert "Not certified" in out and err == ""


def test_a_trajectory_is_announced(folder, capsys):
    rng, path = np.random.default_rng(0), [0.0]
    actions = rng.integers(3, size=600)
    for action in actions:
        path.append(float(ROOM.dynamics.sample(np.array([[path[-1]]]), action, rng).item()))
    write("path.csv", "state,action,next_state", path[:-1], actions, path[1:])
    asked = ["--discount", "0.7", "--delta", "0.1", "--columns", "3", "--plot", ""]
    main(["solve", "path.csv", *BOX, *asked])
    out, _ = capsys.readouterr()
    assert "The rows count in the order of time, as steps of a trajectory." in out
    assert "600 transitions (action 0: " in out and ") in the order of time, discount 0.7" in out
