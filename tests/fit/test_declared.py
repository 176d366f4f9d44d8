"""Actions whose effect is declared: no transitions of theirs are needed, and answers are those of the true effect."""

import numpy as np
import pytest

import certirl
from certirl.data.policy import Policy
from certirl.data.source import as_source
from certirl.fit.declared import as_declared
from certirl.fit.estimates import estimate_effects
from certirl.fit.problem import ValueProblem
from certirl.ground.domain import as_domain

BOX = as_domain((0.0, 10.0))


class Machine:
    """Wear grows by about one a step (0); service sets it back to 1 (1); an upgrade halves it exactly (2)."""

    n_actions, domain = 3, BOX

    def sample(self, states, action, rng):
        start = (states, np.ones_like(states), None)[action] if action < 2 else states / 2
        grown = np.clip(start + rng.uniform(0.5, 1.5, states.shape), 0, 10)
        return start if action == 2 else grown


KNOWN = {1: certirl.dynamics.Resets(to=1.0, then=0), 2: lambda states: states / 2}


def worn_log(n, *, services, seed=0):
    rng, machine = np.random.default_rng(seed), Machine()
    states, actions = rng.uniform(0, 10, (n, 1)), np.zeros(n, int)
    actions[:services] = 1
    after = np.where(actions[:, None] == 1, machine.sample(states, 1, rng), machine.sample(states, 0, rng))
    return certirl.Transitions(states, actions, after, BOX, 3)


def effects_of(log, declared, seed=0):
    problem = ValueProblem(as_source(log), Policy(3, lambda s: s[:, 0] > 5), 0.9, (), declared=declared)
    return estimate_effects(problem, certirl.Legendre(7).on(BOX), 1000, np.random.default_rng(seed), None)


def test_declared_actions_need_no_rows_and_their_effects_are_exact_or_those_of_the_action_after_a_reset():
    log = worn_log(20_000, services=3)
    model = effects_of(log, as_declared(KNOWN, 3, BOX).moves)
    states = np.array([[0.5], [4.0], [9.0]])
    effects, basis = model.at(states), model.effects.basis
    assert model.counts == (19_997, 3, 0)
    assert effects.after(2, slice(None)) == pytest.approx(basis.values(states / 2))
    drawn = Machine().sample(np.ones((100_000, 1)), 0, np.random.default_rng(1))
    renewed = basis.values(drawn).mean(axis=0)
    assert np.abs(effects.after(1, slice(None)) - renewed).max() < 0.05
    w = np.arange(basis.size, dtype=float)
    each = np.stack([effects.after(action, slice(None)) @ w for action in range(3)])
    assert effects.ahead(w) == pytest.approx(each)
    assert effects.stored().ahead(w) == pytest.approx(each)
    mixed = effects.after(np.array([2, 0, 1]), slice(None)) @ w
    assert mixed == pytest.approx(each[[2, 0, 1], [0, 1, 2]])
    assert effects.at(np.array([False, True, True])).ahead(w) == pytest.approx(each[:, 1:])


@pytest.mark.parametrize("of_log", [True, False])
def test_walks_and_plans_of_declared_actions_follow_the_declaration(of_log):
    declared = as_declared(KNOWN, 3, BOX)
    made = effects_of(worn_log(5_000, services=0), declared.moves).dynamics if of_log else declared.over(Machine())
    states, rng = np.full((2_000, 1), 8.0), np.random.default_rng(2)
    assert made.n_actions == 3 and (made.sample(states, 2, rng) == 4.0).all()
    assert np.abs(made.sample(states, 1, rng).mean() - 2.0) < 0.05
    assert np.abs(made.sample(states, 0, rng).mean() - 9.0) < 0.05
    if of_log:
        branches, weights = made.outcomes(states[:1], 1)
        assert abs(weights @ branches[:, 0, 0] - 2.0) < 0.5 and (made.outcomes(states, 2)[0] == 4.0).all()
        assert not made.extrapolated(states, 2).any()
    else:
        assert made.outcomes(states, 1) is None


def price_of_service(states, action):
    return np.full(len(states), float(action == 1))


@pytest.mark.slow
@pytest.mark.parametrize("of_log", [True, False])
def test_an_expert_with_declared_actions_is_explained(of_log):
    class Shop(Machine):
        n_actions = 2

    log = worn_log(20_000, services=40)
    source = certirl.Transitions(log.states, log.actions, log.next_states, BOX, 2) if of_log else Shop()
    asked = {"discount": 0.9, "expert": lambda states: states[:, 0] > 6, "effects": {1: KNOWN[1]}, "rng": 0}
    asked |= {} if of_log else {"samples": 5_000}
    solution = certirl.solve(source, method=certirl.ValueForm(), **asked)
    assert solution.status in {"solved", "validated"} and solution.stats.unexplained < 0.05
    assert "the effect of action 1 as declared" in solution.stats.choice if of_log else True
    features = {"wear": lambda states: states[:, 0], "service": price_of_service}
    answer = certirl.solve(source, method=certirl.FeatureForm(features), **asked)
    wear, service = answer.path.weights[answer.path.row(2)]
    assert wear < 0 and service < 0 and answer.stats.unexplained < 0.05


@pytest.mark.parametrize(
    ("effects", "says"),
    [
        ([1], "effects must be what actions do"),
        ({}, "effects must be what actions do"),
        ({3: KNOWN[1]}, "names the action 3"),
        ({True: KNOWN[1]}, "names the action True"),
        ({1: 0.0}, "for action 1"),
        ({1: certirl.dynamics.Resets(to=11.0)}, "outside"),
        ({1: certirl.dynamics.Resets(to=(1.0, 2.0))}, "a number for each of 1 coordinates"),
        ({1: certirl.dynamics.Resets(then=1)}, "must be an action whose effect is not declared"),
        ({1: certirl.dynamics.Resets(then=7)}, "must be an action whose effect is not declared"),
        ({1: lambda states: states + 9}, "outside"),
        ({1: lambda states: states[:1]}, "an array of shape"),
        ({0: KNOWN[2], 1: KNOWN[2], 2: KNOWN[2]}, "names every action"),
    ],
)
def test_declarations_that_say_nothing_are_refused(effects, says):
    with pytest.raises((TypeError, ValueError), match=says):
        certirl.solve(worn_log(500, services=3), discount=0.9, expert=lambda s: s[:, 0] > 5, effects=effects)


def test_declared_effects_are_refused_where_they_would_be_without_effect():
    log, asked = worn_log(500, services=3), {"discount": 0.9, "effects": {1: KNOWN[1]}}
    with pytest.raises(ValueError, match="a proof covers declared effects that lead to one state"):
        certirl.solve(log, expert=lambda s: s[:, 0] > 5, delta=0.05, **asked)
    with pytest.raises(ValueError, match="the program needs transitions of every action"):
        certirl.solve(log, expert=0, **asked)
    with pytest.raises(ValueError, match=r"where its effect is known, pass effects=\{1: …\}"):
        certirl.solve(log, discount=0.9, expert=lambda s: s[:, 0] > 5, effects={2: KNOWN[2]})
