"""Memory of logs: found where it was planted, false alarms as stated, and no proof rests on such a log."""

from __future__ import annotations

import numpy as np
import pytest

import certirl
from certirl.data.memory import find_memory, residual_deviations


def tracker(seed, *, hidden=0.0, delay=0, steps=3_000):
    """A cursor with a speed, pushed by someone who holds it at 0, and by hidden sines."""
    rng = np.random.default_rng(seed)
    frequency, phase = rng.uniform(0.02, 0.1, 4), rng.uniform(0, 2 * np.pi, 4)
    rows, place, speed, pushes = [], 0.0, 0.0, [1] * 4
    for t in range(steps):
        aim = place + 0.8 * speed
        action = int(rng.integers(3)) if rng.random() < 0.2 else 1 + int(aim < -0.1) - int(aim > 0.1)
        pushes.append(action)
        wave = 0.05 * hidden * np.sin(2 * np.pi * frequency * t + phase).sum()
        after = np.clip(0.95 * speed + 0.12 * (pushes[-1 - delay] - 1) + wave + 0.03 * rng.normal(), -1, 1)
        moved = np.clip(place + 0.2 * after, -1, 1)
        rows.append((place, speed, action, moved, after))
        place, speed = moved, after
    values = np.array(rows)
    settings = {"domain": ((-1, 1), (-1, 1)), "coordinate_names": ("place", "speed")}
    return certirl.Transitions(values[:, :2], values[:, 2].astype(int), values[:, 3:], **settings)


def episodes(simulator, seed, *, number=40, steps=60, expert=None):
    """Episodes of a simulator under random actions, or those of an expert three times in four."""
    rng, box = np.random.default_rng(seed), np.array(simulator.domain)
    states, rows = rng.uniform(*box.T, (number, len(box))), []
    for _ in range(steps):
        actions = rng.integers(simulator.n_actions, size=number)
        if expert is not None:
            actions = np.where(rng.random(number) < 0.25, actions, expert(states))
        each = np.stack([simulator.sample(states, action, rng) for action in range(simulator.n_actions)])
        after = each[actions, np.arange(number)].reshape(number, -1)
        rows.append((states, actions, after))
        states = after
    states, actions, after = (np.concatenate([row[part] for row in rows]) for part in range(3))
    order = np.argsort(np.tile(np.arange(number), steps), kind="stable")
    numbers = np.repeat(np.arange(number), steps)
    settings = {"domain": simulator.domain, "n_actions": simulator.n_actions, "episodes": numbers}
    return certirl.Transitions(states[order], actions[order], after[order], **settings)


@pytest.mark.parametrize("kind", [{"hidden": 1.0}, {"hidden": 0.4}, {"delay": 1}])
def test_memory_that_was_planted_is_found(kind):
    for seed in range(10):
        found = find_memory(tracker(seed, **kind))
        assert found.found and str(found).startswith("the step before")


ROOM = certirl.problems.comfort()


def clocked(seed, steps=2_500):
    """A room by the hour in slow weather: states that are near each other are often near in time, too."""
    rng = np.random.default_rng(seed)
    hours, room, weather, heats, rows = np.arange(steps + 1) % 96 / 4, 19.0, 0.0, 0, []
    for t in range(steps):
        aim = 20.0 if 6 <= hours[t] < 22 else 17.0
        heats = heats if abs(room - aim) < 0.3 else int(room < aim)
        after = room + 0.02 * (weather - room) + 0.5 * heats + 0.05 * rng.normal(), 0.99 * weather + 0.3 * rng.normal()
        rows.append((room, hours[t], weather, heats, after[0], hours[t + 1], after[1]))
        room, weather = after
    values, box = np.array(rows), ((10, 30), (0, 24), (-20, 20))
    settings = {"domain": box, "periodic": (1,), "exogenous": (1, 2)}
    return certirl.Transitions(values[:, :3], values[:, 3].astype(int), values[:, 4:], **settings)


CONTROLS = {
    "clock": clocked,
    "tracker": tracker,
    "room": lambda seed: episodes(ROOM.dynamics, seed, expert=ROOM.expert),
    "thermostat": lambda seed: episodes(certirl.problems.thermostat(), seed),
    "two coordinates": lambda seed: episodes(certirl.problems.whirl(), seed),
    "no noise": lambda seed: episodes(certirl.gym.simulator("MountainCar-v0"), seed),
}


def lattice(seed, wave=0.0, steps=4_000):
    """A place in tenths, which a hidden wave may move."""
    rng, place, rows = np.random.default_rng(seed), 0.0, []
    for t in range(steps):
        action = int(rng.integers(3))
        drift = 0.8 * place + 0.2 * (action - 1) + wave * np.sin(0.3 * t)
        after = float(np.clip(np.round(drift + 0.1 * rng.normal(), 1), -1, 1))
        rows.append((place, action, after))
        place = after
    states, actions, after = np.array(rows).T
    return certirl.Transitions(states, actions.astype(int), after, domain=(-1, 1))


def test_states_that_occur_many_times_tell_of_memory_as_others_do():
    """None of them was its only nearest: two neighbours were hardly ever found among rounded states."""
    for seed in range(10):
        assert find_memory(lattice(seed, wave=0.15)).found
        control = find_memory(lattice(seed))
        assert control.pairs > 500 and not control.found


@pytest.mark.parametrize("name", CONTROLS)
def test_no_memory_is_found_where_there_is_none(name):
    chances = [find_memory(CONTROLS[name](seed)).p_value for seed in range(10)]
    assert min(chances) > 1e-4 and sum(chance < 0.05 for chance in chances) <= 4


@pytest.mark.slow
def test_false_alarms_are_as_frequent_as_stated():
    chances = np.array([find_memory(episodes(ROOM.dynamics, seed, number=20, steps=40)).p_value for seed in range(200)])
    assert (chances < 0.1).mean() < 0.2 and chances.min() > 1e-4


def test_rows_by_themselves_say_nothing_of_memory():
    log = certirl.steps.sample(ROOM.dynamics, basis=certirl.Legendre(3), samples=500, rng=0)
    assert find_memory(log).pairs == 0 and not find_memory(log).found
    assert "memory is not known" in str(find_memory(log))


def test_an_answer_from_a_log_with_memory_says_so_first():
    def holding(states):
        return np.digitize(-(states[:, 0] + 0.8 * states[:, 1]), (-0.1, 0.1))

    asked = {"discount": 0.9, "expert": holding, "rng": 0}
    first = str(certirl.solve(tracker(0, hidden=1.0), **asked)).splitlines()[0]
    assert first.startswith(("Solved", "Undetermined")) and "depends on the step before" in first
    plain = str(certirl.solve(tracker(0), **asked))
    assert "depends on the step before" not in plain and "no memory found" in plain


def test_rewards_of_soft_experts_say_first_that_there_is_memory():
    asked = {"discount": 0.9, "expert": certirl.SoftExpert(reference=1)}
    found = certirl.solve(tracker(0, hidden=1.0, steps=2_000), **asked)
    assert found.status == "estimated" and "depends on the step before" in str(found).splitlines()[0]


def test_no_proof_rests_on_a_log_with_memory():
    reward, asked = (lambda states: -(states[:, 0] ** 2)), {"discount": 0.9, "expert": 1, "delta": 0.05}
    asked |= {"columns": certirl.product(certirl.Legendre(3), certirl.Legendre(3)), "reward_range": (-1, 0)}
    with pytest.raises(ValueError, match=r"depends on the step before: the step before explains .* of (place|speed)"):
        certirl.certify(reward, tracker(0, hidden=1.0), **asked)
    assert certirl.certify(reward, tracker(0), **asked).word == "not certified"


def test_what_is_no_log_is_refused():
    with pytest.raises(TypeError, match=r"log must be certirl.Transitions, in the order of time, got"):
        certirl.diagnose.memory(ROOM.dynamics)


def table_of(log, **further):
    """A log in the order of time as a table of one episode, its last state without an action."""
    states = np.concatenate([log.states, log.next_states[-1:]])
    actions = np.append(log.actions.astype(float), np.nan)
    columns = {name: np.append(values, 0.0) for name, values in further.items()}
    return {"place": states[:, 0], "speed": states[:, 1], "push": actions, "t": np.arange(len(states)), **columns}


def test_a_column_of_the_table_that_explains_what_is_left_open_is_named():
    read = {"state": ("place", "speed"), "action": "push", "step": "t", "domain": ((-1, 1), (-1, 1))}
    holding = {"discount": 0.9, "expert": lambda s: np.digitize(-(s[:, 0] + 0.8 * s[:, 1]), (-0.1, 0.1)), "rng": 0}
    for seed in range(3):
        log = tracker(seed, hidden=1.0)
        wave = log.next_states[:, 1] - 0.95 * log.states[:, 1] - 0.12 * (log.actions - 1)  # beside the noise
        further = {"wind": wave, "junk": np.random.default_rng(seed).normal(size=len(log))}
        found = certirl.diagnose.memory(certirl.logs.read(table_of(log, **further), **read))
        assert found.column == "wind" and found.column_share > 0.6
        junk = certirl.logs.read(table_of(log, junk=further["junk"]), **read)
        found = certirl.diagnose.memory(junk)
        assert found.column == "" and "such as the state or the action of the step before (lag=" in found.cure
        assert certirl.logs.read(table_of(tracker(seed), **further), **read).where(log.actions >= 0).further is None
    log = certirl.logs.read(table_of(tracker(2, hidden=1.0), wind=further["wind"]), **read)
    first = str(certirl.solve(log, **holding)).splitlines()[0]
    assert "depends on the step before" in first and "add wind of the table to the state, which explains" in first
    asked = {"discount": 0.9, "expert": 1, "delta": 0.05, "reward_range": (-1, 0)}
    asked |= {"columns": certirl.product(certirl.Legendre(3), certirl.Legendre(3))}
    with pytest.raises(ValueError, match="add wind of the table to the state"):
        certirl.certify(lambda states: -(states[:, 0] ** 2), log, **asked)


@pytest.mark.parametrize("std", [0.2, 2.0])
def test_residual_deviations_are_those_of_the_noise_although_next_states_are_clipped(std):
    rng, sizes = np.random.default_rng(0), (std, 1.2 * std)
    states, actions = rng.uniform(0, 10, 20_000), rng.integers(2, size=20_000)
    noise = np.where(actions == 0, *sizes) * rng.normal(size=20_000)
    log = certirl.Transitions(states, actions, np.clip(0.5 * states + 3 + noise, 0, 10), domain=(0, 10))
    np.testing.assert_allclose(residual_deviations(log)[:, 0], sizes, rtol=0.05)


@pytest.mark.slow
def test_residual_deviations_are_printed_beside_a_declared_one():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(0, 10, 30_000), rng.integers(2, size=30_000)
    after = np.clip(0.5 * states + np.where(actions == 0, 4.0, 1.0) + 2.0 * rng.normal(size=30_000), 0, 10)
    log = certirl.Transitions(states, actions, after, domain=(0, 10), action_names=("up", "down"))
    asked = {"discount": 0.7, "expert": 0, "delta": 0.05}
    said = str(certirl.solve(log, dynamics=certirl.dynamics.AffineGaussian(std=2.0), **asked))
    seen = residual_deviations(log)[:, 0]
    assert f"standard deviation up {seen[0]:.3g}, down {seen[1]:.3g} where 2 is declared" in said
    assert "is declared" not in str(certirl.solve(log, discount=0.7, expert=0))
