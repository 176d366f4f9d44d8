"""Datasets as Minari writes and reads them, made here in a folder of the test: nothing is downloaded."""

import warnings

import gymnasium
import numpy as np
import pytest

import certirl

minari = pytest.importorskip("minari")
EpisodeBuffer = pytest.importorskip("minari.data_collector.episode_buffer").EpisodeBuffer


def swing(state):
    """Push the way the car rolls; now and then not at all."""
    return 1 if abs(state[1]) < 1e-3 else 2 if state[1] > 0 else 0


def recorded(folder, monkeypatch, data_format, limits=(300, 40)):
    """A dataset of episodes that end on the hill or are cut off before, read back; and what was played."""
    pytest.importorskip({"hdf5": "h5py", "arrow": "pyarrow"}[data_format])
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    env, played, buffers = gymnasium.make("MountainCar-v0", max_episode_steps=300), [], []
    for number, limit in enumerate(limits):
        seen, _ = env.reset(seed=number)
        states, actions, terminated = [seen], [], False
        while not terminated and len(actions) < limit:
            actions.append(swing(seen))
            seen, _, terminated, _, _ = env.step(actions[-1])
            states.append(seen)
        played.append((np.array(states, dtype=float), np.array(actions), terminated))
        last = np.arange(len(actions)) == len(actions) - 1
        ends = {"terminations": list(last & terminated), "truncations": list(last & (not terminated))}
        buffer = EpisodeBuffer(observations=states, actions=actions, rewards=[-1.0] * len(actions), **ends)
        buffers.append(buffer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dataset without author, e-mail and licence
        minari.create_dataset_from_buffers("car/swing-v0", buffer=buffers, env=env, data_format=data_format)
    return minari.load_dataset("car/swing-v0"), played


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_a_dataset_says_the_same_as_the_episodes_it_was_made_of(tmp_path, monkeypatch, data_format):
    dataset, played = recorded(tmp_path, monkeypatch, data_format)
    assert [terminated for _, _, terminated in played] == [True, False]
    box = ((-1.2, 0.6), (-0.07, 0.07))
    log, own = (certirl.logs.from_episodes(source, domain=box, n_actions=3) for source in (dataset, played))
    for name in ("states", "actions", "next_states", "terminal", "episodes"):
        assert np.array_equal(getattr(log, name), getattr(own, name)), name
    assert log.terminal.sum() == 1 + 3
    assert any("1 terminal state" in note for note in log.notes)


def test_an_expert_is_learned_from_a_dataset(tmp_path, monkeypatch):
    dataset, _ = recorded(tmp_path, monkeypatch, "hdf5", limits=(300,) * 8)
    log = certirl.logs.from_episodes(dataset, domain=((-1.2, 0.6), (-0.07, 0.07)), n_actions=3)
    found = certirl.policy_from(log)
    fast = np.array([[-0.5, -0.03], [-0.4, 0.03], [-0.6, 0.02]])
    assert found(fast).tolist() == [0, 2, 2]
