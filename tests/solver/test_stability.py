"""Halves of a log, solved again."""

import re

import numpy as np
import pytest

import certirl

SOFT = {"discount": 0.9, "expert": certirl.SoftExpert(reference=0), "rng": 0}


@pytest.fixture(scope="module")
def log():
    return certirl.problems.soft_walk().log(episodes=200, steps=50, rng=0)


@pytest.mark.slow
def test_halves_differ_from_the_whole_by_about_its_standard_error(log):
    found = certirl.stability(log, **SOFT, repeats=40)
    solution, s = certirl.solve(log, **SOFT), np.array([-0.4, 0.0, 0.4])
    moved = found.rewards(s) - np.concatenate([solution.reward(s, action) for action in range(3)])
    errors = np.concatenate([solution.standard_error(s, action) for action in (1, 2)])
    ratios = np.sqrt((moved[:, 3:] ** 2).mean(axis=0)) / errors
    assert ((ratios > 0.6) & (ratios < 1.7)).all()
    middle, low, high = found.band(s)
    assert (low <= high).all() and np.mean((low[3:] <= middle[3:]) & (middle[3:] <= high[3:])) > 0.6
    assert found.statuses == {"estimated": 40} and found.groups == 200 and found.kind == "episodes"
    assert 0 < found.spread < 0.5 and found.peaks().shape == (40, 1)


def test_results_do_not_depend_on_workers_and_progress_counts_halves(log):
    reports = []
    one, other = (
        certirl.stability(log, **SOFT, repeats=6, map=workers, progress=lambda *done: reports.append(done))
        for workers in (1, 3)
    )
    assert np.array_equal(one.rewards(one.states), other.rewards(other.states)) and reports[-1] == (6, 6)


def test_whole_people_are_drawn():
    """Two people switch at .6 and two at −.6: which of them are in a half moves the reward, which episodes does not."""
    rng = np.random.default_rng(1)
    states, person = rng.uniform(-1, 1, 8_000), np.repeat(["ann", "ben", "cyd", "dee"], 2_000)
    switch = np.array([0.6, 0.6, -0.6, -0.6])[np.unique(person, return_inverse=True)[1]]
    actions = rng.uniform(size=8_000) < 1 / (1 + np.exp(-4 * (states - switch)))
    after = np.clip(0.8 * states + np.where(actions, -0.2, 0.2) + 0.2 * rng.normal(size=8_000), -1, 1)
    people = certirl.Transitions(states, actions.astype(int), after, domain=(-1, 1), episodes=np.arange(8_000) // 20)
    by_person = certirl.stability(people, **SOFT, by=person, repeats=12)
    by_episode = certirl.stability(people, **SOFT, repeats=12)
    assert by_person.groups == 4 and by_person.kind == "groups" and by_person.spread > 2 * by_episode.spread


def test_a_log_in_the_order_of_time_is_divided_into_parts(log):
    trail = certirl.Transitions(log.states, log.actions, log.next_states, domain=log.domain, independent=False)
    found = certirl.stability(trail, **SOFT, repeats=3)
    assert (found.groups, found.kind) == (40, "parts of the time")


def test_the_expert_is_estimated_from_each_half_and_its_reward_has_no_scale():
    rng = np.random.default_rng(2)
    states, actions = rng.uniform(-1, 1, 2_000), rng.integers(2, size=2_000)
    actions = np.where(rng.uniform(size=2_000) < 0.9, (states > 0).astype(int), actions)
    after = np.clip(states + np.where(actions == 1, -0.3, 0.3) + 0.2 * rng.normal(size=2_000), -1, 1)
    watched = certirl.Transitions(states, actions, after, domain=(-1, 1))
    found = certirl.stability(watched, discount=0.8, repeats=4, rng=0)
    assert sum(found.statuses.values()) == 4 and found.kind == "rows"
    for rewards in found.rewards(found.states):
        assert rewards.mean() == pytest.approx(0, abs=1e-9) and rewards.std() == pytest.approx(1)


def test_a_half_that_is_refused_is_counted_and_said(log):
    """One episode alone took action 2: halves without it are refused by `solve`, and the sentence is printed."""
    rare = log.where((log.actions != 2) | (log.episodes == log.episodes[np.flatnonzero(log.actions == 2)[0]]))
    found = certirl.stability(rare, discount=0.9, expert=0, columns=2, rng=0, repeats=8)
    refused = [half for half in found.halves if half.status == "refused"]
    assert 0 < len(refused) < 8 and found.statuses["refused"] == len(refused) and "action 2" in refused[0].sentence
    assert f"  refused  {refused[0].sentence}" in str(found)
    never = log.where(log.actions != 2)
    with pytest.raises(ValueError, match="action 2"):
        certirl.stability(never, discount=0.9, expert=0, columns=2, rng=0, repeats=2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"by": "person"}, "by must be \"episode\" or a label for each row, such as the column itself, got 'person'"),
        ({"by": [1, 2]}, 'by must be "episode" or 10000 labels, one for each row'),
        ({"by": np.zeros(10_000)}, "1 groups are too few to draw halves of: at least 4 are needed"),
        ({"repeats": 1}, "repeats must be"),
    ],
)
def test_what_cannot_be_drawn_is_refused(log, change, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        certirl.stability(log, **SOFT | change)
    with pytest.raises(TypeError, match="log must be"):
        certirl.stability(certirl.problems.soft_walk(), **SOFT)


def test_people_are_drawn_by_the_name_of_their_column():
    rng, person = np.random.default_rng(0), np.repeat([f"p{k}" for k in range(8)], 250)
    states, actions = rng.uniform(0, 10, 2_000), rng.integers(2, size=2_000)
    after = np.clip(0.5 * states + np.where(actions == 0, 4.0, 1.0) + 2 * rng.normal(size=2_000), 0, 10)
    frame = {"state": states, "action": actions, "next_state": after, "person": person}
    asked = {"discount": 0.9, "expert": 0, "columns": 5, "repeats": 2, "rng": 0}
    by_name = certirl.stability(frame, by="person", **asked)
    assert (by_name.groups, by_name.kind) == (8, "groups")
    assert str(by_name) == str(certirl.stability(frame, by=person, **asked))


def test_the_band_is_drawn_and_a_map_on_a_box(log, tmp_path):
    found = certirl.stability(log, **SOFT, repeats=3)
    assert certirl.plots.stability(found, path=tmp_path / "band.png").get_ylabel() == "reward R"
    assert "nine in ten halves" in found._repr_html_()
    assert str(found).splitlines()[0] == "3 halves of 200 episodes: estimated 3; the whole log: estimated"
    rng = np.random.default_rng(3)
    states = rng.uniform(-1, 1, (4_000, 2))
    actions = (states[:, 0] + 0.5 * rng.normal(size=4_000) > 0).astype(int)
    after = np.clip(
        0.8 * states + np.where(actions[:, None] == 1, -0.2, 0.2) + 0.2 * rng.normal(size=(4_000, 2)), -1, 1
    )
    box = certirl.Transitions(states, actions, after, domain=[(-1, 1)] * 2, coordinate_names=("x", "v"))
    found = certirl.stability(box, discount=0.8, expert=certirl.SoftExpert(reference=0), repeats=3, rng=0)
    assert certirl.plots.stability(found, path=tmp_path / "map.png") is not None
    assert "x = " in str(found) and "v = " in str(found)
