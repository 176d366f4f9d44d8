"""Logs with episodes: pairs, ends, what lies outside; and the records of other libraries, known by their attributes."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import certirl
from certirl.data.episodes import Steps

WALKS = [
    ([0.0, 0.1, 0.2, 0.9], [0, 1, 1], True),
    ([0.5, 0.4], [0], False),
    ([0.3, 0.2, 0.95], [2, 0], True),
]
PAIRS = {(0.0, 0, 0.1), (0.1, 1, 0.2), (0.2, 1, 0.9), (0.5, 0, 0.4), (0.3, 2, 0.2), (0.2, 0, 0.95)}
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
        [certirl.Episode(np.array(s), np.array(a), over) for s, a, over in WALKS],
        [(np.array(s), np.array(a), over) for s, a, over in WALKS],
        minari_like(),
        [Trajectory(np.array(s)[:, None], np.array(a), None, over) for s, a, over in WALKS],
        imitation_flat(),
    ],
    ids=["episodes", "tuples", "minari", "imitation trajectories", "imitation transitions"],
)
def test_no_pair_reaches_across_episodes_and_only_terminated_ones_absorb(source):
    log = certirl.from_episodes(source, domain=(0, 1), n_actions=3)
    assert pairs(log) == PAIRS | ABSORBING
    assert len(log) == 12
    assert log.terminal.sum() == 2 + 6
    assert log.episodes.tolist() == [0, 0, 0, 1, 2, 2] + [-1] * 6
    assert any("2 terminal states were made absorbing, by 6 rows" in note for note in log.notes)
    assert "absorbing" in str(log)
    plain = certirl.from_episodes(source, domain=(0, 1), n_actions=3, absorb=False)
    assert pairs(plain) == PAIRS
    assert plain.terminal.sum() == 2


def test_what_was_noted_stays_with_parts_of_the_log():
    log = certirl.from_episodes(minari_like(), domain=(0, 1), n_actions=3)
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
    assert "last action of 2 episodes" in steps.notes[0]
    with pytest.raises(ValueError, match="episode a continues after it was terminated"):
        rows([0.0, 0.1, 0.2], [0, 1, np.nan], ["a", "a", "a"], [True, False, False]).by_episode()
    with pytest.raises(ValueError, match="has a row without an action before its last one"):
        rows([0.0, 0.1, 0.2], [0, np.nan, np.nan], [1, 1, 1]).by_episode()


def test_states_beyond_the_domain_are_accounted_for_never_lost():
    walk = [(np.array([[0.0, 0.0], [0.5, 3.0], [0.2, 0.1], [-1.5, 0.2]]), np.array([0, 1, 0]))]
    box = ((-1, 1), (-1, 1))
    with pytest.raises(
        ValueError, match=r"3 of 3 transitions leave the domain \[-1, 1\] × \[-1, 1\]: 1 in coordinate 0"
    ):
        certirl.from_episodes(walk, domain=box)
    with pytest.raises(ValueError, match=r"2 in coordinate 1 \(farthest 3, row [01]\); widen the domain, or write"):
        certirl.from_episodes(walk, domain=box)
    clipped = certirl.from_episodes(walk, domain=box, outside="clip")
    assert clipped.next_states.tolist() == [[0.5, 1.0], [0.2, 0.1], [-1.0, 0.2]]
    assert "moved to its edge" in clipped.notes[0]
    dropped = certirl.from_episodes(walk, domain=((-2, 1), (-1, 1)), outside="drop", n_actions=2)
    assert dropped.states.tolist() == [[0.2, 0.1]]
    assert "dropped" in dropped.notes[0]
    with pytest.raises(ValueError, match="without them nothing is left"):
        certirl.from_episodes(walk, domain=box, outside="drop")
    with pytest.raises(ValueError, match="outside must be one of"):
        certirl.from_episodes(walk, domain=box, outside="ignore")


@pytest.mark.parametrize("outside", ["drop", "clip"])
def test_rows_that_were_dropped_or_moved_at_the_edge_are_no_ground_of_a_proof(outside):
    """Action 0 leaves the domain downwards three times in ten: without these rows it seems to be the better one."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, 8_000), rng.integers(2, size=8_000)
    falls = (actions == 0) & (rng.random(8_000) < 0.3)
    after = np.where(falls, -3.0, 0.1 - 0.1 * actions)
    walks = [([s, after_, 0.0], [a, 1]) for s, after_, a in zip(states, after, actions, strict=True)]
    log = certirl.from_episodes(walks, domain=(-1, 1), outside=outside)
    asked = {"discount": 0.5, "expert": 0, "columns": certirl.Legendre(2), "tail": 0, "rng": 0}
    with pytest.raises(ValueError, match=r"a certificate needs rows as they were logged, and .* leave the domain"):
        certirl.certify(lambda s: s[:, 0], log, reward_range=(-1, 1), **asked)
    ends = [([s, after_], [a]) for s, after_, a in zip(states, after, actions, strict=True)]
    log = certirl.from_episodes(ends, domain=(-1, 1), outside="clip")  # next states alone are moved: so do the dynamics
    assert not certirl.certify(lambda s: s[:, 0], log, reward_range=(-1, 1), **asked).holds


def test_observations_become_states_controls_become_actions_and_angles_go_around():
    angles = np.array([3.0, 3.3, 6.5])
    seen = np.column_stack([np.cos(angles), np.sin(angles), [0.1, 0.2, 0.3]])
    controls = np.array([[-2.0], [1.9]])
    asked = {"state": lambda o: np.column_stack([np.arctan2(o[:, 1], o[:, 0]), o[:, 2]]), "actions": [-2, 0, 2]}
    log = certirl.from_episodes([(seen, controls)], domain=((-np.pi, np.pi), (-8, 8)), **asked)
    assert log.actions.tolist() == [0, 2]
    assert log.n_actions == 3
    assert log.next_states[:, 0] == pytest.approx([3.3 - 2 * np.pi, 6.5 - 2 * np.pi])
    assert "nearest of 3 actions: 0.05 away on average, 0.1 at most" in log.notes[0]
    walk = (np.column_stack([angles, [0.1, 0.2, 0.3]]), np.array([0, 1]))
    around = certirl.from_episodes([walk], domain=((-np.pi, np.pi), (-8, 8)), periodic=[0])
    assert np.allclose(around.next_states, log.next_states)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ([(np.zeros(3), np.zeros(3, int))], "one state more than actions"),
        ([SimpleNamespace(observations={"a": 1}, actions=[0], terminations=[0])], "must be arrays, got a dict"),
        ([np.zeros((3, 2))], "is no episode"),
        (7, "holds no episodes"),
        ([(np.zeros(1), np.zeros(0, int))], "there are no steps"),
        ([(np.array([0.0, np.nan]), np.array([0]))], "must be finite"),
        ([(np.zeros((2, 1)), np.array([0.5]))], "actions must be whole numbers"),
    ],
)
def test_wrong_calls_are_told_what_to_write_instead(source, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        certirl.from_episodes(source, domain=(-1, 1))


def test_a_real_minari_dataset_is_read():
    minari = pytest.importorskip("minari")
    real = minari.dataset.episode_data.EpisodeData
    data = [
        real(i, e.observations, e.actions, e.rewards, e.terminations, e.truncations, {})
        for i, e in enumerate(minari_like())
    ]
    assert pairs(certirl.from_episodes(data, domain=(0, 1), n_actions=3)) == PAIRS | ABSORBING


def test_least_squares_on_episodes_learns_that_terminal_states_stay():
    episodes = certirl.gym.rollouts(
        "MountainCar-v0",
        certirl.planning.plan(certirl.gym.simulator("MountainCar-v0"), discount=0.99, points=61),
        episodes=3,
        rng=0,
    )
    log = certirl.from_episodes(episodes, domain=((-1.2, 0.6), (-0.07, 0.07)), n_actions=3)
    assert all(episode.terminated for episode in episodes)
    ends = log.terminal & (log.episodes < 0)
    assert ends.sum() == 9
    assert np.array_equal(log.states[ends], log.next_states[ends])
