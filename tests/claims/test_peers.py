"""The methods that certirl is compared with do what their papers say, on a line where the answer is known."""

import numpy as np
import pytest

import certirl
import peers


@pytest.fixture(scope="module")
def log():
    """Forty demonstrations that go right until 0.95 and stay there, and two hundred random episodes."""
    rng, rows = np.random.default_rng(0), []
    for episode in range(240):
        state = rng.uniform(0, 1)
        for _ in range(20):
            action = int(state < 0.95) if episode < 40 else int(rng.integers(2))
            after = np.clip(state + (0.1 if action else -0.1) + rng.normal(0, 0.01), 0, 1)
            rows.append((state, action, after, episode))
            state = after
    states, actions, following, episodes = (np.array(column) for column in zip(*rows, strict=True))
    return certirl.Transitions(states, actions, following, ((0, 1),), 2, episodes=episodes)


def test_demonstrations_are_the_first_episodes_in_order(log):
    shown = peers.demonstrated(log)
    assert len(shown.states) == 40 * 20 and shown.step.tolist() == list(range(20)) * 40
    assert (shown.actions == (shown.states[:, 0] < 0.95)).all()
    inside = shown.step[1:] > 0
    np.testing.assert_array_equal(shown.states[1:][inside], shown.next_states[:-1][inside])


def test_neighbours_copy_the_demonstrations(log):
    shown, states = peers.demonstrated(log), np.linspace(0.02, 0.9, 40)[:, None]
    assert (peers.neighbours(shown.states, shown.actions, log.domain)(states) == 1).all()


@pytest.mark.slow
def test_a_network_copies_the_demonstrations(log, monkeypatch):
    pytest.importorskip("torch", reason="the network needs torch")
    monkeypatch.setattr(peers, "STEPS", 300)
    shown, states = peers.demonstrated(log), np.linspace(0.02, 0.9, 40)[:, None]
    copied = peers.network(shown.states, shown.actions, log.domain, 2, seed=0)
    assert (copied(states) == 1).mean() > 0.95


def test_maximum_entropy_visits_what_the_demonstrations_visit(log, monkeypatch):
    monkeypatch.setattr(peers, "CLIMBS", 60)
    entropy = peers.MaxEnt(peers.demonstrated(log), log, 0.9)
    low, high = entropy(np.array([[0.1], [0.3]])), entropy(np.array([[0.93], [0.97]]))
    assert high.min() > low.max()
    assert (entropy.most_likely(np.linspace(0.05, 0.85, 17)[:, None]) == 1).mean() > 0.9
