"""Experts that shun the end: planning on the learned reward must not run into it, whatever R misses."""

from math import e
from unittest.mock import patch

import numpy as np
import pytest

import certirl
from certirl.data.policy import as_policy, uniform_policy
from certirl.environments.planning import plan
from certirl.fit.ends import walked_ends
from certirl.ground.status import rounded_down
from certirl.solver import value_form
from sizes import sizes

DISCOUNT = 0.99


class Ridge:
    """A ball on a ridge rolls away from 0 and is lost beyond ±0.9; with little grip a push near it does nothing."""

    n_actions, domain = 3, ((-1.0, 1.0),)

    def __init__(self, grip):
        self.grip = grip

    def sample(self, states, action, rng):
        push = 0.2 * (action - 1) * np.maximum(1 - (states / self.grip) ** 2, 0.0)
        return np.clip(1.1 * states + push, -1.0, 1.0)

    def terminal(self, states):
        return np.abs(states[:, 0]) > 0.9


def balance(states):
    """Push back to the middle."""
    return np.where(states[:, 0] < -0.1, 2, np.where(states[:, 0] > 0.1, 0, 1))


def leave(states):
    """Push to the nearer end."""
    return np.where(states[:, 0] < 0, 0, 2)


def solved(grip, cells=8, expert=balance):
    """With a reward too coarse for the expert, so that its error over a hundred steps exceeds every margin."""
    with on_a_grid(cells):
        return certirl.solve(Ridge(grip), expert=expert, discount=DISCOUNT, samples=2_500, rng=0)


def on_a_grid(cells):
    """Rewards are sought on a grid of this many points."""
    return patch.object(value_form, "_reward_basis", lambda domain, *_: certirl.Cells((cells,)).on(domain))


def surviving(grip, reward):
    """The share of 21 starts from which the plan on the reward goes on for 200 steps."""
    ridge, chosen = Ridge(grip), plan(Ridge(grip), reward, discount=DISCOUNT, points=501)
    states = np.linspace(-0.4, 0.4, 21)[:, None]
    for _ in range(200):
        moved = np.stack([ridge.sample(states, action, None) for action in range(3)])
        moved = moved[chosen(states), np.arange(len(states))]
        states = np.where(ridge.terminal(states)[:, None], states, moved)
    return 1 - ridge.terminal(states).mean()


@pytest.mark.parametrize("grip", sizes(0.6, 5.0))  # no comparison has an end on one side only; some have
def test_planning_on_the_reward_does_not_run_into_the_end(grip, monkeypatch):
    found = solved(grip)
    assert surviving(grip, found.reward) == 1
    monkeypatch.setattr(value_form, "avoids_termination", lambda *_: False)
    assert surviving(grip, solved(grip).reward) < 0.8  # which is what the rule is for


@pytest.mark.thinned(2)
@pytest.mark.parametrize("grip", [0.6, 5.0])
def test_the_end_costs_more_than_the_error_of_the_reward_can_earn(grip):
    found = solved(grip)
    enough = (2 * e - 1) * found.stats.largest_residual / (1 - DISCOUNT)
    states = np.linspace(-0.9, 0.9, 721)[:, None]
    moved = [Ridge(grip).sample(states, action, None) for action in range(3)]
    doomed = np.all([Ridge(grip).terminal(own) for own in moved], axis=0)
    slack = 0.02 * enough  # between the states that were looked at
    assert found.value(states).min() > enough - slack
    assert (found.value(states) - found.reward(states))[doomed].min(initial=np.inf) > enough - slack
    ahead = np.max([found.value(own) for own in moved], axis=0)
    missed = found.reward(states) - (found.value(states) - DISCOUNT * ahead)
    assert np.abs(missed[~doomed]).max() < 1.05 * found.stats.largest_residual


def test_it_says_what_was_chosen_and_keeps_saying_it(tmp_path):
    found = solved(0.6)
    sentence = (
        f"continuing is worth at least {rounded_down(found.stats.continuation):.3g} more than terminating, by choice"
    )
    assert sentence in str(found) and found.stats.planned_share.n < found.stats.greedy_share.n
    again = certirl.load(found.save(tmp_path / "found"))
    assert "not the simulator's own rule" in str(again)
    assert str(again.with_terminal(Ridge(0.6).terminal)) == str(found)


@pytest.mark.parametrize("grip", sizes(0.6, 5.0))
def test_an_expert_that_seeks_the_end_is_left_alone(grip):
    found = solved(grip, cells=200, expert=leave)
    assert found.stats.continuation is None and "continuing" not in str(found)
    assert surviving(grip, found.reward) == 0


def test_lives_are_counted_from_the_same_states():
    def lives(other):
        expert, others = walked_ends(Ridge(5.0), as_policy(balance, 3), other, 0.95)
        return expert.steps, others.steps

    own, chance = lives(uniform_policy(3))
    _, sought = lives(as_policy(leave, 3))
    assert (own == 60).all() and (sought <= chance).mean() > 0.95 and sought.max() < 10
