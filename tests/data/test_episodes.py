"""Logs with episodes: pairs, ends, what lies outside; and the records of other libraries, known by their attributes."""

import html
import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import certirl
from certirl import dynamics, logs
from certirl.cli import main
from certirl.data.episodes import Steps
from certirl.data.transitions import Bias
from certirl_check.known_noise import KINDS
from refusals import refused

WALKS = [
    ([0.0, 0.1, 0.2, 0.9], [0, 1, 1], True),
    ([0.5, 0.4], [0], False),
    ([0.3, 0.2, 0.95], [2, 0], True),
]
PAIRS = {(0.0, 0, 0.1), (0.1, 1, 0.2), (0.2, 1, 0.9), (0.5, 0, 0.4), (0.3, 2, 0.2), (0.2, 0, 0.95)}
STEP = [([0.0, 1.0], [0])]
ABSORBING = {(end, action, end) for end in (0.9, 0.95) for action in range(3)}


def pairs(log):
    return {(s, a, t) for s, a, t in zip(log.states[:, 0], log.actions.tolist(), log.next_states[:, 0], strict=True)}


@dataclass
class EpisodeData:  # as Minari has it
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


@dataclass
class Trajectory:  # as imitation has it
    obs: np.ndarray
    acts: np.ndarray
    infos: object
    terminal: bool


def minari_like():
    ends = [np.eye(len(a), dtype=bool)[-1] for _, a, _ in WALKS]
    return [
        EpisodeData(np.array(s), np.array(a), np.zeros(len(a)), end & over, end & (not over))
        for (s, a, over), end in zip(WALKS, ends, strict=True)
    ]


def imitation_flat():
    return SimpleNamespace(
        obs=np.concatenate([s[:-1] for s, _, _ in WALKS])[:, None],
        acts=np.concatenate([a for _, a, _ in WALKS]),
        next_obs=np.concatenate([s[1:] for s, _, _ in WALKS])[:, None],
        dones=np.array([False, False, True, False, False, True]),
    )


@pytest.mark.parametrize(
    "source",
    [
        [logs.Episode(np.array(s), np.array(a), over) for s, a, over in WALKS],
        [(np.array(s), np.array(a), over) for s, a, over in WALKS],
        minari_like(),
        [Trajectory(np.array(s)[:, None], np.array(a), None, over) for s, a, over in WALKS],
        imitation_flat(),
    ],
    ids=["episodes", "tuples", "minari", "imitation trajectories", "imitation transitions"],
)
def test_no_pair_reaches_across_episodes_and_only_terminated_ones_absorb(source):
    log = logs.from_episodes(source, domain=(0, 1), n_actions=3)
    assert pairs(log) == PAIRS | ABSORBING
    assert len(log) == 12
    assert log.terminal.sum() == 2 + 6
    assert log.episodes.tolist() == [0, 0, 0, 1, 2, 2] + [-1] * 6
    assert any("2 terminal states were made absorbing, by 6 rows" in note for note in log.notes)
    assert "absorbing" in str(log)
    plain = logs.from_episodes(source, domain=(0, 1), n_actions=3, absorb=False)
    assert pairs(plain) == PAIRS
    assert plain.terminal.sum() == 2


def test_what_was_noted_stays_with_parts_of_the_log():
    log = logs.from_episodes(minari_like(), domain=(0, 1), n_actions=3)
    part = log.where(log.actions == 1)
    assert part.notes == log.notes
    assert part.terminal.sum() == 3
    both = certirl.data.transitions.concatenate([log, part])
    assert both.terminal.sum() == log.terminal.sum() + 3
    assert both.episodes.tolist() == [*log.episodes, *part.episodes]  # parts of one log share its episodes


def rows(states, actions, episodes, terminated=None):
    terminal = None if terminated is None else np.array(terminated)
    return Steps(np.array(states)[:, None], np.array(actions, dtype=float), None, terminal, np.array(episodes))


def test_a_last_action_without_a_next_state_is_left_out_and_noted():
    steps = rows([0.0, 0.1, 0.5, 0.6], [0, 1, 1, 0], ["a", "a", "b", "b"], [False, True, False, False]).by_episode()
    assert steps.states.ravel().tolist() == [0.0, 0.5]
    assert not steps.terminal.any()
    cut, ended = steps.notes
    assert "last action of 1 episode has no next state" in cut and not isinstance(cut, Bias)
    assert "last action of 1 episode was left out because of where it led" in ended and isinstance(ended, Bias)
    with pytest.raises(ValueError, match="an episode continues after it was terminated in row"):
        rows([0.0, 0.1, 0.2], [0, 1, np.nan], ["a", "a", "a"], [True, False, False]).by_episode()
    with pytest.raises(ValueError, match="row 1 has no action, and is not the last of its episode"):
        rows([0.0, 0.1, 0.2], [0, np.nan, np.nan], [1, 1, 1]).by_episode()


def test_states_beyond_the_domain_are_accounted_for_never_lost():
    walk = [(np.array([[0.0, 0.0], [0.5, 3.0], [0.2, 0.1], [-1.5, 0.2]]), np.array([0, 1, 0]))]
    box = ((-1, 1), (-1, 1))
    with pytest.raises(
        ValueError, match=r"3 of 3 transitions leave the domain \[-1, 1\] × \[-1, 1\]: 1 in coordinate 0"
    ):
        logs.from_episodes(walk, domain=box)
    with pytest.raises(ValueError, match=r"2 in coordinate 1 \(farthest 3, row [01]\); widen the domain, or write"):
        logs.from_episodes(walk, domain=box)
    clipped = logs.from_episodes(walk, domain=box, outside="clip")
    assert clipped.next_states.tolist() == [[0.5, 1.0], [0.2, 0.1], [-1.0, 0.2]]
    assert "moved to its edge" in clipped.notes[0]
    dropped = logs.from_episodes(walk, domain=((-2, 1), (-1, 1)), outside="drop", n_actions=2)
    assert dropped.states.tolist() == [[0.2, 0.1]]
    assert "dropped" in dropped.notes[0]
    refused("without them nothing is left", logs.from_episodes, walk, domain=box, outside="drop")
    refused("outside must be one of", logs.from_episodes, walk, domain=box, outside="ignore")


@pytest.mark.parametrize("outside", ["drop", "clip"])
def test_rows_that_were_dropped_or_moved_at_the_edge_are_no_ground_of_a_proof(outside):
    """Action 0 leaves the domain downwards three times in ten: without these rows it seems to be the better one."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, 8_000), rng.integers(2, size=8_000)
    falls = (actions == 0) & (rng.random(8_000) < 0.3)
    after = np.where(falls, -3.0, 0.1 - 0.1 * actions)
    walks = [([s, after_, 0.0], [a, 1]) for s, after_, a in zip(states, after, actions, strict=True)]
    log = logs.from_episodes(walks, domain=(-1, 1), outside=outside)
    asked = {"discount": 0.5, "expert": 0, "columns": certirl.Legendre(2), "tail": 0, "rng": 0}
    with pytest.raises(ValueError, match=r"a proof needs rows as they were logged, and .* leave the domain"):
        certirl.certify(lambda s: s[:, 0], log, reward_range=(-1, 1), **asked)
    ends = [([s, after_], [a]) for s, after_, a in zip(states, after, actions, strict=True)]
    log = logs.from_episodes(ends, domain=(-1, 1), outside="clip")  # next states alone are moved: so do the dynamics
    clipped = certirl.certify(lambda s: s[:, 0], log, reward_range=(-1, 1), **asked)
    assert not clipped.holds and "they were moved to its edge" in clipped.assumptions[2]


def test_no_proof_rests_on_episodes_whose_last_steps_are_missing_because_of_where_they_led(tmp_path, capsys):
    """Action 0 leads up or down; after some steps up the episode is terminated, in a state that the table lacks.

    What is left of action 0 leads down more often than action 0 does: the worse action seemed to be the better one.
    """
    rng, table = np.random.default_rng(0), {name: [] for name in ("episode", "state", "action", "terminated")}
    for episode in range(60):
        state = rng.uniform(2, 8)
        for step in range(4):
            action = int(rng.integers(2))
            after = np.clip(0.9 * state + (1.0, 0.85)[action] + 2 * rng.normal(), 0, 10)
            over = action == 0 and after > state
            for name, value in zip(table, (episode, state, action, over), strict=True):
                table[name].append(value)
            if over or step == 3:
                break
            state = after
    log = logs.read(table, domain=(0, 10))
    asked = {"expert": 1, "tail": dynamics.GaussianNoise(2.0, slope=0.9)}
    sentence = r"a proof needs rows as they were logged, and .* because of where it led: to a terminal state"
    for proof in (
        lambda: certirl.certify(lambda s: s[:, 0], log, discount=0.7, columns=certirl.Legendre(5), **asked),
        lambda: certirl.solve(log, discount=0.7, delta=0.05, **asked),
        lambda: certirl.solve(log, discount=0.7, delta=0.05, expert=lambda s: s[:, 0] > 5, tail=asked["tail"]),
        lambda: certirl.refute(log, basis=certirl.Legendre(2), columns=5, **asked),
        lambda: certirl.certify(lambda s: s[:, 0], log, discount=0.7, expert=1, dynamics=dynamics.AffineGaussian(2.0)),
        lambda: certirl.export.interval_mdp(log, cells=4, delta=0.05),
    ):
        refused(sentence, proof)
    refused("add a last row to each of these episodes", certirl.solve, log, discount=0.7, delta=0.05, **asked)
    assert "left out because of where it led" in str(certirl.solve(log, discount=0.7, expert=1))
    path = tmp_path / "log.csv"
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]))
    command = f"solve {path} --discount 0.7 --expert 1 --domain 0 10 --tail gaussian:2:0.9 --delta 0.05"
    assert main(command.split()) == 2
    assert "a proof needs rows as they were logged" in capsys.readouterr().err


def test_what_was_done_to_a_log_is_printed_with_every_proof_and_answer(tmp_path, capsys):
    """A motor that runs backwards beyond 0.9, and controls that are taken for the nearest of −1 and 1."""
    rng = np.random.default_rng(0)
    controls, states = rng.uniform(-1, 1, 6_000), rng.uniform(-1, 1, 6_000)
    after = np.where(np.abs(controls) > 0.9, -1.0, 1.0) * controls / 2 + rng.uniform(-0.5, 0.5, 6_000)
    steps = [([s, n], [c]) for s, n, c in zip(states, after, controls, strict=True)]
    log = logs.from_episodes(steps, domain=(-1, 1), actions=[-1.0, 1.0])
    (note,) = log.notes
    assert "controls were taken for the nearest of 2 actions" in note
    assumed = f"the dynamics are those of the log as it was read: {note}"
    asked = {"expert": 1, "tail": 0, "columns": certirl.Legendre(1), "rng": 0}
    proof = certirl.certify(lambda s: s[:, 0], log, discount=0.5, reward_range=(-1, 1), **asked)
    assert proof.holds and assumed in proof.assumptions and assumed in str(proof)
    assert assumed in certirl.check(proof.save(tmp_path / "proof")).trusted
    assert assumed in certirl.load(tmp_path / "proof.npz").assumptions
    assert html.escape(note) in proof.report(tmp_path / "proof.html").read_text()
    actions = rng.integers(2, size=600)
    moved = np.clip((-0.3, 0.3) @ np.eye(2)[:, actions] + 0.3 * rng.normal(size=600), -1, 1)
    gaussian = certirl.Transitions(states[:600], actions, moved, domain=(-1, 1), notes=log.notes)
    known = certirl.certify(
        lambda s: s[:, 0], gaussian, discount=0.5, expert=1, dynamics=dynamics.AffineGaussian(0.3, cells=40)
    )
    assert assumed in known.assumptions and assumed in certirl.check(known.save(tmp_path / "known")).trusted
    refuted = certirl.refute(log, basis=certirl.Legendre(2), **{**asked, "columns": 2})
    assert assumed in refuted.assumptions and assumed in certirl.check(refuted.save(tmp_path / "refuted")).trusted
    for delta in (None, 0.05):
        declared = {"tail": 0, "columns": 2} if delta else {}
        solved = certirl.solve(log, discount=0.5, expert=1, basis=certirl.Legendre(2), delta=delta, rng=0, **declared)
        assert note in str(solved) and note in certirl.load(solved.save(tmp_path / "solved")).stats.log_notes
        assert html.escape(note) in solved.report(tmp_path / "solved.html").read_text()
        assert note in str(certirl.load(tmp_path / "solved.npz"))
    assert main(["check", str(tmp_path / "solved.npz")]) == 0
    assert assumed in capsys.readouterr().out
    assert note in str(certirl.export.interval_mdp(log, cells=2, delta=0.05))


def test_an_assumption_of_a_log_says_that_no_row_is_missing_because_of_its_next_state():
    """Rows that are kept by their outcome are independent of each other: that alone was assumed, and not enough."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, 4_000), np.repeat([0, 1], 2_000)
    after = rng.uniform(-1, 1, 4_000)
    log = certirl.Transitions(states, actions, after, domain=(-1, 1))
    asked = {"discount": 0.5, "expert": 1, "columns": certirl.Legendre(1), "tail": 0, "rng": 0}
    paired = certirl.Transitions(np.tile(states[:2000], 2), actions, after, domain=(-1, 1), paired=True)
    for each in (log, paired):
        proof = certirl.certify(lambda s: s[:, 0], each, reward_range=(-1, 1), **asked)
        assert "no row is in the log, or missing, because of its next state" in str(proof)
    for row in ("independent", "paired", "dependent"):
        assert "missing, because of" in KINDS[row] or "missing because of where it led" in KINDS[row]
    drawn = certirl.certify(lambda s: s[:, 0], certirl.problems.thermostat(), samples=400, **{**asked, "tail": None})
    assert "log" not in str(drawn)


def test_observations_become_states_controls_become_actions_and_angles_go_around():
    angles = np.array([3.0, 3.3, 6.5])
    seen = np.column_stack([np.cos(angles), np.sin(angles), [0.1, 0.2, 0.3]])
    controls = np.array([[-2.0], [1.9]])
    asked = {"state": lambda o: np.column_stack([np.arctan2(o[:, 1], o[:, 0]), o[:, 2]]), "actions": [-2, 0, 2]}
    log = logs.from_episodes([(seen, controls)], domain=((-np.pi, np.pi), (-8, 8)), **asked)
    assert log.actions.tolist() == [0, 2]
    assert log.n_actions == 3
    assert log.next_states[:, 0] == pytest.approx([3.3 - 2 * np.pi, 6.5 - 2 * np.pi])
    assert "nearest of 3 actions (-2, 0, 2): 0.05 away on average, 0.1 at most" in log.notes[0]
    with pytest.raises(ValueError, match="the log holds 0 to 1, nowhere near the controls in actions, 5 to 6: leave"):
        logs.from_episodes([(seen, np.array([0, 1]))], actions=[5, 6])  # the numbers of actions were all action 0
    walk = (np.column_stack([angles, [0.1, 0.2, 0.3]]), np.array([0, 1]))
    around = logs.from_episodes([walk], domain=((-np.pi, np.pi), (-8, 8)), periodic=[0])
    assert np.allclose(around.next_states, log.next_states)


@pytest.mark.parametrize(
    ("source", "settings", "sentence"),
    [
        (7, {}, "holds no episodes"),
        ([np.zeros((3, 2))], {}, "is no episode"),
        ([SimpleNamespace(observations={"a": 1}, actions=[0], terminations=[0])], {}, "must be arrays, got a dict"),
        ([(np.zeros(3), np.zeros(3, int))], {}, "one state more than actions"),
        ([([0.0], []), ([1.0], [])], {}, "there are no steps in these 2 episodes"),
        ([([0.0, None], [0])], {}, "the states of an episode must be real numbers, got None in row 1"),
        ([([[0.0], [0.0, 1.0]], [0])], {}, "equally many in every row"),
        ([([0.0, np.nan], [0])], {}, "must be finite"),
        ([([0.0, 1.0], ["left"])], {}, "the actions of an episode must be real numbers, got an array of <U4"),
        ([([0.0, 1.0], [0.5])], {}, "actions must be whole numbers"),
        ([([0.0, 1.0], [10**6])], {}, "action 1000000 in row 0 is above 999"),
        ([([0.0, 1.0], [0], "no")], {}, "terminated must be True or False, got 'no'"),
        ([([0.0, 1.0], [0]), ([[0.0, 1.0], [1.0, 1.0]], [0])], {}, "1 in episode 0, 2 in episode 1"),
        ([([0.0, 1.0], [0]), ([0.0, 1.0], [[0.5, 0.5]])], {}, "actions of episodes differ .* 1 in episode 0, 2 in"),
        (STEP, {"n_actions": 2.5}, "n_actions must be a whole number"),
        (STEP, {"domain": (0, 1), "periodic": (3,)}, "periodic must be a tuple of coordinates"),
        (STEP, {"domain": (0, 1), "periodic": "yes"}, "periodic must be a tuple .* got 'yes'"),
        (STEP, {"absorb": "yes"}, "absorb must be True or False"),
        (STEP, {"state": 5}, "state must be a function of observations"),
        (STEP, {"state": lambda s: None}, "must be real numbers, got None"),
        ([([0.0, 1.0], [0.3])], {"actions": 3}, "the log holds 1 different control, and actions asks"),
        ([([0.0, 1.0], [0.3])], {"actions": 0.5}, "actions must list the controls"),
        ([([0.0, 1.0], [0.3])], {"actions": [0.0, 1.0], "n_actions": 3}, "leave n_actions out"),
        ([([0.0, 1.0], [np.nan])], {"actions": [0.0, 1.0]}, "actions must be finite: row 0"),
    ],
)
def test_wrong_calls_are_told_what_to_write_instead(source, settings, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence) as caught:
        logs.from_episodes(source, **settings)
    assert "\n" not in str(caught.value)


def test_a_real_minari_dataset_is_read():
    minari = pytest.importorskip("minari")
    real = minari.dataset.episode_data.EpisodeData
    data = [
        real(i, e.observations, e.actions, e.rewards, e.terminations, e.truncations, {})
        for i, e in enumerate(minari_like())
    ]
    assert pairs(logs.from_episodes(data, domain=(0, 1), n_actions=3)) == PAIRS | ABSORBING


def test_least_squares_on_episodes_learns_that_terminal_states_stay():
    episodes = certirl.gym.rollouts(
        "MountainCar-v0",
        certirl.planning.plan(certirl.gym.simulator("MountainCar-v0"), discount=0.99, points=61),
        episodes=3,
        rng=0,
    )
    log = logs.from_episodes(episodes, domain=((-1.2, 0.6), (-0.07, 0.07)), n_actions=3)
    assert all(episode.terminated for episode in episodes)
    ends = log.terminal & (log.episodes < 0)
    assert ends.sum() == 9
    assert np.array_equal(log.states[ends], log.next_states[ends])


def pushed(seed=0, n=2_000):
    """Pushes about −1, 0 or 1, three in ten of them exactly 0."""
    rng = np.random.default_rng(seed)
    states, pushes = rng.uniform(-1, 1, n), rng.choice([-1, 0, 1], n) + rng.normal(0, 0.1, n)
    pushes[rng.random(n) < 0.3] = 0.0
    after = np.clip(0.8 * states + 0.2 * pushes + 0.1 * rng.normal(size=n), -1, 1)
    return {"state": states, "action": pushes, "next_state": after}


@pytest.mark.parametrize("actions", [3, "sign", [-1.0, 0.0, 1.0], [[-1.0], [0.0], [1.0]]])
def test_controls_become_levels_or_signs_in_every_reader_with_the_variance_they_keep(actions, tmp_path):
    table = pushed()
    states, pushes, after = table.values()
    episodes = [([s, n], [push]) for s, n, push in zip(states, after, pushes, strict=True)]
    logs_of = [logs.read(table, actions=actions), logs.from_episodes(episodes, actions=actions)]
    np.savez(tmp_path / "log.npz", **table)
    streamed = logs.stream(tmp_path / "log.npz", actions=actions)
    for log in logs_of:
        expected = np.sign(pushes).astype(int) + 1 if actions == "sign" else np.digitize(pushes, [-0.5, 0.5])
        assert log.n_actions == 3 == streamed.n_actions and (log.actions == expected).mean() > 0.99
        assert log.action_names == (("negative", "zero", "positive") if actions == "sign" else ())
        means = np.array([pushes[log.actions == action].mean() for action in range(3)])
        kept = 1 - ((pushes - means[log.actions]) ** 2).sum() / ((pushes - pushes.mean()) ** 2).sum()
        (note,) = log.notes
        assert f"which keeps {kept:.0%} of their variance" in note and kept > (0.6 if actions == "sign" else 0.97)
    found = certirl.steps.measure(streamed, basis=certirl.Legendre(2))
    assert np.abs(found.counts - logs_of[0].counts).max() <= 2
    assert bool(streamed.notes) == (not isinstance(actions, list))


def test_levels_of_controls_are_where_they_keep_most_and_signs_those_that_occur():
    table = pushed()
    (note,) = logs.read(table, actions=2).notes
    assert "nearest of 2 actions" in note and int(note.split("keeps ")[1].split("%")[0]) < 80
    signs = logs.from_episodes([(np.arange(4.0), [0.5, -2.0, 1.0])], actions="sign")
    assert signs.action_names == ("negative", "positive") and signs.actions.tolist() == [1, 0, 1]
    exact = logs.from_episodes([([0.0, 0.5, 1.0], [-2.0, 7.0])], actions=2)
    assert exact.actions.tolist() == [0, 1] and not exact.notes


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        (1, "actions must be a number of levels of controls, at least 2"),
        ("signs", "or be a number of levels, or \"sign\", got 'signs'"),
        (4, "the log holds 3 different controls, and actions asks for 4 levels"),
        (None, "got 0.5 in row 1; readers of logs cut controls into three levels by actions=3"),
    ],
)
def test_controls_that_cannot_be_cut_are_refused(actions, sentence):
    refused(re.escape(sentence), logs.from_episodes, [(np.zeros(4), [0.0, 0.5, -1.0])], actions=actions)
    if actions == 4:
        several = [(np.zeros(4), np.ones((3, 2)))]
        refused("actions must list controls, of 2 numbers each as in the log", logs.from_episodes, several, actions=4)


@pytest.mark.parametrize(("option", "counts"), [("levels:2", 2), ("levels:-1,0,1", 3), ("sign", 3)])
def test_the_command_cuts_controls_too(option, counts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("log.npz", **pushed())
    asked = ["solve", "log.npz", "--domain", "-1", "1", "--discount", "0.5", "--expert", "0", "--plot", ""]
    assert main([*asked, "--actions", option]) in (0, 1)
    assert f"{counts} actions" in str(certirl.load("reward.npz")).replace("(negative", "3 actions")
    assert "of their variance" in capsys.readouterr().out


def test_what_came_before_becomes_a_coordinate_of_each_step_that_follows_one():
    walks = [([[0.1, 5.0], [0.2, 6.0], [0.3, 7.0], [0.4, 8.0]], [1, 0, 2], True), ([[0.5, 5.0], [0.6, 5.5]], [1])]
    asked = {"domain": ((0, 1), (0, 10)), "periodic": ["angle"], "exogenous": ["angle"]}
    asked |= {"coordinate_names": ["place", "angle"], "n_actions": 3}
    log = logs.from_episodes(walks, lag=1, **asked)
    assert log.coordinate_names == ("place", "angle", "previous action") and log.domain == ((0, 1), (0, 10), (0, 2))
    assert log.states[:2].tolist() == [[0.2, 6.0, 1.0], [0.3, 7.0, 0.0]]
    assert log.next_states[:2].tolist() == [[0.3, 7.0, 0.0], [0.4, 8.0, 2.0]] and log.actions[:2].tolist() == [0, 2]
    assert log.states[2:].tolist() == [[0.4, 8.0, 2.0]] * 3 and log.terminal.tolist() == [False] + [True] * 4
    assert "the action of the step before is a coordinate; 2 steps without one before left out" in log.notes
    older = logs.from_episodes(walks, lag=("state", "action"), absorb=False, **asked)
    assert older.states[0].tolist() == [0.2, 6.0, 0.1, 5.0, 1.0] and older.next_states[0, 2:].tolist() == [
        0.2,
        6.0,
        0.0,
    ]
    assert older.periodic == older.exogenous == (1, 3) and older.coordinate_names[2:4] == (
        "previous place",
        "previous angle",
    )
    plain = logs.from_episodes(walks, lag="state")
    assert plain.domain_from_data and plain.coordinate_names == ()


@pytest.mark.parametrize(
    ("lag", "sentence"),
    [(2, 'lag must be "action", "state" or both, got 2'), ("speed", "got 'speed'"), (["state", "state"], "or both")],
)
def test_a_lag_is_of_the_action_or_the_state(lag, sentence):
    refused(sentence, logs.from_episodes, WALKS, lag=lag)
    refused("lag leaves nothing: no step follows another", logs.from_episodes, STEP, lag=1)
    table = {"state": [0.0, 0.5], "action": [0, 1], "next_state": [0.5, 1.0]}
    refused("lag needs rows of episodes, in their order", logs.read, table, lag=1)
    refused("a stream has no steps before: leave lag out, or use read", logs.stream, table, lag=1)


def test_the_command_takes_a_lag(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    states, actions = np.random.default_rng(0).uniform(-1, 1, 300), np.arange(300) % 2
    rows = np.column_stack([np.arange(300), states, actions])
    np.savetxt("log.csv", rows, delimiter=",", header="time,state,action", comments="")
    main(["coverage", "log.csv", "--domain", "-1", "1", "--step", "time", "--lag", "action"])
    assert "[-1, 1] × [0, 1]" in (said := capsys.readouterr().out) and "1 step without one before left out" in said
