"""Terminal states that are only estimated: learned from a log, avoided under noise, kept in files."""

import numpy as np
import pytest
from test_ending import DISCOUNT, Ridge, balance, leave, on_a_grid, surviving

import certirl
import certirl.functions.ends
from certirl.data.policy import as_policy
from certirl.data.source import as_source
from certirl.data.terminal import learn_terminal_boxes
from certirl.fit import action_values as ending
from certirl.fit.effects import drawn_effects, drawn_log, live_states, value_basis
from certirl.fit.ends import Episodes, Reached, avoided_ends, compare_ends, disturbed, follow, some_avoided, walked_ends
from certirl.fit.next_states import CLEARLY, held_out_errors, regress_next_states
from certirl.fit.regression import held_out_rows, regress
from certirl.fit.value_program import comparisons
from certirl.functions.bases import MOST_FUNCTIONS, of_degree
from certirl.functions.cells import Cells
from certirl.solver import value_form


class Shaken(Ridge):
    """The ridge with a little noise; what lies beyond the box is stopped at its edge, which is terminal."""

    def __init__(self, grip, noise=0.01):
        super().__init__(grip)
        self.noise = noise

    def sample(self, states, action, rng):
        moved = super().sample(states, action, rng) + self.noise * rng.standard_normal(states.shape)
        return np.clip(moved, -1.0, 1.0)


def episodes(simulator, policies, count, rng):
    found = []
    for policy in policies:
        for _ in range(count):
            walk, taken = [rng.uniform(-0.9, 0.9, 1)], []
            while abs(walk[-1][0]) <= 0.9 and len(taken) < 20:
                taken.append(int(rng.integers(3) if policy is None else policy(walk[-1][None])[0]))
                walk.append(simulator.sample(walk[-1][None], taken[-1], rng)[0])
            found.append(certirl.logs.Episode(np.array(walk), taken, terminated=bool(abs(walk[-1][0]) > 0.9)))
    return certirl.logs.from_episodes(found, domain=(-1, 1), n_actions=3)


@pytest.fixture(scope="module")
def log():
    return episodes(Shaken(5.0), (None, balance), 250, np.random.default_rng(0))


def test_boxes_are_found_and_read_out():
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (20_000, 3))
    truth = (states[:, 0] > 0.5) | ((states[:, 2] < -0.8) & (states[:, 1] > 0))
    found = learn_terminal_boxes(states, truth)
    fresh = rng.uniform(-1, 1, (20_000, 3))
    wrong = found(fresh) != ((fresh[:, 0] > 0.5) | ((fresh[:, 2] < -0.8) & (fresh[:, 1] > 0)))
    assert found.reliable and wrong.mean() < 0.002 and "s[0] > 0.5" in str(found)


def test_few_terminal_states_are_held_out_once_each():
    states = np.linspace(-1, 1, 2000)[:, None]
    ended = states[:, 0] > 0.96
    shift = int(ended.argmax()) % 5  # the state beside the border is held out in the first fold
    found = learn_terminal_boxes(states[shift:], ended[shift:])
    assert ended.sum() < 200 and found.missed == pytest.approx(1 / ended.sum()) and found.reliable


def test_what_no_boxes_describe_is_not_trusted():
    states = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    ended = np.random.default_rng(1).random(5000) < 0.3  # ends that the state does not explain
    assert not learn_terminal_boxes(states, ended).reliable


def test_moves_are_preferred_where_functions_jump_and_not_where_noise_rules():
    rng, phi = np.random.default_rng(0), certirl.Legendre(25).on(((-1.0, 1.0),))
    for noise, better in ((0.001, True), (0.5, False)):
        simulator = Shaken(5.0, noise)
        drawn = drawn_log(simulator, 2000, rng, paired=True)
        moves = regress_next_states(drawn, phi, is_terminal=simulator.terminal, periodic=(), rng=rng)
        regression = regress(drawn, phi, is_terminal=simulator.terminal)
        errors = held_out_errors(moves, regression, drawn, held_out_rows(drawn), rng)
        assert (errors.relative < CLEARLY) == better


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_jumps_at_a_wall_are_left_out_of_the_next_states_but_noise_is_not(noise):
    rng, low, high = np.random.default_rng(0), np.array([-1.0, -0.1]), np.array([1.0, 0.1])
    states, actions = rng.uniform(low, high, (4000, 2)), rng.integers(2, size=4000)
    speed = states[:, 1] + np.where(actions == 1, 0.02, -0.02) * (1 + 0.3 * states[:, 0])
    after = np.stack([states[:, 0] + 0.2 * speed, speed], axis=1) + noise * rng.standard_normal((4000, 2))
    hit = after[:, 0] < -1
    after = np.where(hit[:, None], [-1.0, 0.09], np.clip(after, low, high))  # bounces back from one end
    log = certirl.Transitions(states, actions, after, domain=tuple(zip(low, high, strict=True)))
    edge = (np.abs(log.next_states) == high).any(axis=1)
    log, basis = log.where(~edge | hit), value_basis(log.domain, most=60)
    model = regress_next_states(log, basis, is_terminal=None, periodic=(), rng=rng)
    if noise:
        assert model.jumps == 0
    else:
        assert model.noiseless and model.jumps == pytest.approx(hit.sum() / len(log))
        pairs = [np.concatenate([rows] * 2) for rows in (log.states, log.next_states)]
        paired = certirl.Transitions(pairs[0], np.repeat([0, 1], len(log)), pairs[1], domain=log.domain, paired=True)
        assert regress_next_states(paired, basis, is_terminal=None, periodic=(), rng=rng).jumps >= 0
        regression, held_out, jumped = regress(log, basis), held_out_rows(log), hit[~edge | hit]
        assert held_out_errors(model, regression, log, held_out & jumped, rng).relative > 1
        assert held_out_errors(model, regression, log, held_out & ~jumped, rng).relative < 1


def test_moves_go_on_as_often_as_the_dynamics():
    simulator, rng = Shaken(5.0, 0.05), np.random.default_rng(0)
    phi, states = certirl.Legendre(11).on(((-1.0, 1.0),)), np.linspace(0.6, 0.89, 30)[:, None]
    drawn = drawn_log(simulator, 5000, rng, paired=True)
    moves = regress_next_states(drawn, phi, is_terminal=simulator.terminal, periodic=(), rng=rng)
    found = (
        np.mean([moves.effects(phi, states, rng).ahead(np.eye(11)[0]) for _ in range(40)], axis=0)
        / phi.values(states)[0, 0]
    )
    many = np.repeat(states, 2000, axis=0)
    for action in range(3):
        over = simulator.terminal(simulator.sample(many, action, rng)).reshape(30, 2000).mean(axis=1)
        assert np.abs(1 - found[action] - over).max() < 0.1  # both are counts: 320 and 2,000 of them


@pytest.mark.slow
def test_planning_avoids_termination_under_noise(monkeypatch):
    def solved():
        with on_a_grid(8):
            return certirl.solve(Shaken(5.0), expert=balance, discount=DISCOUNT, samples=2000, rng=0)

    found = solved()
    assert found.stats.continuation is not None and surviving(5.0, found.reward) == 1
    monkeypatch.setattr(value_form, "avoids_termination", lambda *_: False)
    assert surviving(5.0, solved().reward) < 1


@pytest.mark.slow
def test_a_log_with_marks_is_enough_to_shun_its_end(log, tmp_path):
    with on_a_grid(8):
        found = certirl.solve(log, expert=balance, discount=DISCOUNT)
    assert found.stats.continuation is not None and "s[0] > 0.9" in str(found)
    assert found.reward(0.95) == 0 and surviving(5.0, found.reward) == 1
    again = certirl.load(found.save(tmp_path / "found"))
    assert str(again) == str(found) and again.reward(0.95) == 0  # learned boxes are all there is, and a file keeps them


def test_a_log_of_an_expert_that_seeks_the_end_is_left_alone(log):
    found = certirl.solve(log, expert=leave, discount=0.9)
    assert found.stats.continuation is None and found.stats.termination[0] > 10 * found.stats.termination[1]


class Dock:
    """Distance and speed: docking is soft up to a speed of 0.25, and a crash beyond."""

    n_actions, domain = 3, ((-0.2, 2.0), (-1.0, 1.0))

    def sample(self, states, action, rng):
        speed = np.clip(states[:, 1] + 0.12 * (action - 1) + 0.03 * rng.standard_normal(len(states)), -1, 1)
        return np.stack([np.clip(states[:, 0] + 0.15 * speed, -0.2, 2), speed], axis=1)

    def terminal(self, states):
        return states[:, 0] <= 0


def docks(states):
    """Approaches at a speed that falls with the distance."""
    wanted = -np.clip(0.15 + 0.4 * states[:, 0], 0.15, 0.6)
    return np.where(states[:, 1] < wanted - 0.06, 2, np.where(states[:, 1] > wanted + 0.06, 0, 1))


def crashes(states):
    return np.zeros(len(states), dtype=int)


SOFT, HARD = as_policy(docks, 3), as_policy(crashes, 3)


def test_ends_that_an_expert_avoids_are_found_and_those_that_it_seeks_are_not():
    boxes = some_avoided(*walked_ends(Dock(), SOFT, disturbed(SOFT), 0.97))
    inside = certirl.functions.ends.inside
    speeds = np.array([[-0.05, -0.9], [-0.05, -0.5], [-0.02, -0.15], [-0.01, -0.2]])
    assert inside(boxes, speeds).tolist() == [True, True, False, False]
    assert some_avoided(*walked_ends(Ridge(5.0), *[as_policy(leave, 3)] * 2, 0.9)) is None  # alike: none is avoided


def ended_at(counts):
    """Episodes with so many ends, evenly, in each interval of one coordinate."""
    last = np.concatenate([np.linspace(*ends, count) for ends, count in counts.items()])[:, None]
    n = len(last)
    return Episodes(last, np.ones(n, dtype=bool), np.ones(n, dtype=int), np.zeros(n), last, np.zeros(n, dtype=bool))


def test_ends_that_an_expert_reaches_half_as_often_by_itself_have_no_number_of_their_own():
    hard, firm, soft = (-1.0, -0.41), (-0.4, -0.21), (-0.2, 0.0)
    expert, others = ended_at({hard: 10, firm: 200, soft: 600}), ended_at({hard: 400, firm: 400, soft: 200})
    (wide,), (narrow,) = avoided_ends(expert, others).boxes, some_avoided(expert, others)
    assert -0.22 < wide[1, 0] < -0.19 and -0.42 < narrow[1, 0] < -0.39  # beside the gaps


def test_a_plan_that_crashes_is_told_from_one_that_docks():
    asked = {"rows": 3000, "discount": 0.97, "avoided": None}
    states = live_states(Dock(), 200, np.random.default_rng(0))
    source = as_source(Dock()).for_purpose("trials")
    same, hard = (
        compare_ends(source.data, plan, SOFT, states, rng=np.random.default_rng(1), **asked) for plan in (SOFT, HARD)
    )
    assert same.more == same.fewer == 0 and same.plan == same.expert and same.most < 0.03  # they share all noise
    assert hard.excess > 0.5 and hard.lengths[0] < hard.lengths[1] and "s[1] ≤" in hard.avoided
    assert source.counts_of_rows.most("trials") <= 2 * 3000
    assert compare_ends(Dock(), HARD, SOFT, states, rng=np.random.default_rng(1), **asked | {"rows": 1000}) is None


def test_a_plan_that_stands_still_where_the_expert_makes_for_an_end_is_told_by_its_unfinished_episodes():
    ridge, asked = Ridge(5.0), {"rows": 30_000, "discount": 0.7, "avoided": None}
    states = np.linspace(-0.8, 0.8, 100)[:, None]
    still, away = as_policy(balance, 3), as_policy(leave, 3)
    slow = as_policy(lambda s: np.where(np.abs(s[:, 0]) < 0.1, 1, leave(s)), 3)
    idle, same, eager = (
        compare_ends(ridge, plan, expert, states, rng=np.random.default_rng(0), **asked)
        for plan, expert in ((still, slow), (away, away), (away, still))
    )
    n, (plan, expert) = (
        idle.episodes,
        idle.unfinished,
    )  # all of the plan go on: they differ where those of the expert end
    assert plan == n > 10 * expert > 0 and idle.idle == pytest.approx((n - expert - 1.645 * (n - expert) ** 0.5) / n)
    assert same.unfinished == (0, 0) and same.idle == eager.idle == 0
    assert idle.returns is None and idle.loss == 0


class Paid:
    """Nothing moves; a step pays by the action, more on the right."""

    n_actions, domain = 3, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return states

    def reward(self, states, action, next_states):
        return (0.5, 1.0, 3.0)[action] * (1 + next_states[:, 0])


def test_returns_are_discounted_and_what_a_plan_loses_is_a_share_of_what_the_expert_gains():
    places, nowhere = np.linspace(-0.8, 0.4, 100)[:, None], np.empty((0, 2, 1))
    plan, expert = (as_policy(lambda s, kind=kind: np.full(len(s), kind), 3) for kind in (1, 2))
    asked = {"rows": 30_000, "discount": 0.7, "avoided": nowhere, "rng": np.random.default_rng(0)}
    found = compare_ends(Paid(), plan, expert, places, **asked)
    worth = (1 - 0.7**10) / (1 - 0.7) * (1 + places[:, 0])  # of 1 a step: so many steps are followed
    made, shown, random = found.returns
    assert (made, shown) == pytest.approx((worth.mean(), 3 * worth.mean()))
    assert random == pytest.approx(1.5 * worth.mean(), rel=0.1)
    assert found.loss == pytest.approx(2 * (worth.mean() - 1.645 * worth.std() / 10) / (shown - random), rel=1e-3)


def test_episodes_go_on_from_where_they_end_and_no_farther():
    starts, limits = np.array([[1.0, 0.0], [0.1, -0.5], [-0.1, 0.0]]), np.array([3, 50, 50])
    (found,) = follow(Dock(), [HARD], starts, limits, np.random.default_rng(0), at=np.array([2, 1, 1]))
    assert found.steps.tolist() == [3, 2, 0] or found.steps.tolist() == [3, 1, 0]
    assert found.over.tolist() == [False, True, True] and found.alive[0] and not found.alive[2]
    (found,) = follow(Dock(), [HARD], starts, limits, np.random.default_rng(0))  # states are kept before the first step
    assert found.alive.tolist() == [True, True, False] and np.array_equal(found.midway, starts)


@pytest.mark.slow
def test_good_and_bad_ends_are_told_apart_and_a_file_keeps_them(tmp_path):
    found = certirl.solve(Dock(), expert=docks, discount=0.97, rng=0)
    slow, fast = [-0.01, -0.15], [-0.05, -0.7]
    assert found.value(slow) == 0 > found.value(fast) and found.stats.continuation is None
    assert found.reward(fast) == pytest.approx(0.03 * found.value(fast))  # paid at every later step
    plan = certirl.planning.plan(Dock(), found, points=101, rng=0)
    assert plan.value(fast) == pytest.approx(found.value(fast))
    again = certirl.load(found.save(tmp_path / "found"))
    assert again.reward(fast) == found.reward(fast) and again.reward(slow) == 0
    exec(again.reward.to_python(), module := {})
    states = np.array([slow, fast, [1.0, 0.0]])
    assert module["reward"](states) == pytest.approx(again.reward(states))
    starts = np.stack([np.linspace(1.0, 1.9, 300), np.zeros(300)], axis=1)
    (ended,) = follow(Dock(), [as_policy(plan, 3)], starts, np.full(300, 200), np.random.default_rng(0))
    assert ended.over.all() and (ended.last[:, 1] < -0.3).mean() < 0.02


def test_a_file_that_lost_the_terminal_states_refuses_to_guess(tmp_path):
    class Checkered(Ridge):
        def terminal(self, states):
            return np.sin(1e4 * states[:, 0]) > 0.9

    found = certirl.solve(Checkered(5.0), expert=balance, discount=0.9, samples=500, rng=0)
    again = certirl.load(found.save(tmp_path / "found"))
    with pytest.raises(ValueError, match="with_terminal"):
        again.reward(0.0)
    assert "with_terminal" in str(again)
    assert again.with_terminal(Checkered(5.0).terminal).reward(0.0) == found.reward(0.0)


class Slope(Shaken):
    """Outwards, and from |s| > 0.8 beyond the end whatever is done, more likely than not."""

    def sample(self, states, action, rng):
        moved = 1.2 * states + 0.05 * (action - 1) + self.noise * rng.standard_normal(states.shape)
        return np.clip(moved, -1.0, 1.0)


def test_comparisons_where_every_action_terminates_have_a_shortfall_too():
    simulator, rng, phi = Slope(5.0, 0.1), np.random.default_rng(0), certirl.Legendre(9).on(((-1.0, 1.0),))
    effects = drawn_effects(simulator, phi, live_states(simulator, 500, rng), 8, rng)
    rows = comparisons(effects, as_policy(lambda s: np.where(s[:, 0] > 0, 0, 2), 3))
    found = ending.fit_lifted_value(rows, discount=0.9, reward_basis=Cells((20,)).on(phi.domain), price=10.0)
    assert found.terminating[rows.which].any() and not found.terminating.all()
    assert found.fit.shortfall == pytest.approx(np.maximum(rows.margins - rows.advantages(found.fit.value), 0))


def walk_log(noise, episodes=40, steps=50, seed=0, clock=False):
    """Episodes of a behaviour that mixes; ``noise(mean, state, rng)`` makes next states of their mean."""
    rng = np.random.default_rng(seed)
    states = np.empty((episodes, steps + 1, 2))
    actions = np.empty((episodes, steps), dtype=int)
    states[:, 0] = rng.uniform(-1, 1, (episodes, 2))
    for t in range(steps):
        now = states[:, t]
        actions[:, t] = np.where(rng.random(episodes) < 0.6, now[:, 0] > 0, rng.integers(2, size=episodes))
        mean = 0.9 * now + np.where(actions[:, t], -0.15, 0.15)[:, None] * [1.0, 0.5]
        states[:, t + 1] = np.clip(noise(mean, now, rng), -1, 1)
    if clock:
        states[:, :, 1] = np.arange(steps + 1)
    rows = [np.concatenate(part) for part in (states[:, :-1], actions, states[:, 1:])]
    box = ((-1.0, 1.0), (0.0, steps) if clock else (-1.0, 1.0))
    return certirl.Transitions(*rows, domain=box, n_actions=2, episodes=np.repeat(np.arange(episodes), steps))


def same_everywhere(mean, now, rng):
    return mean + 0.1 * rng.standard_normal(mean.shape)


def either_way(mean, now, rng):
    return np.where(rng.random((len(mean), 1)) < 0.5, mean, -mean)


@pytest.mark.parametrize(("noise", "is_model"), [(same_everywhere, True), (either_way, False)])
def test_the_true_dynamics_are_a_model_of_the_next_state_and_others_are_not(noise, is_model):
    log = walk_log(noise, episodes=100)
    found = certirl.solve(log, discount=0.9, expert=lambda s: (s[:, 0] > 0).astype(int))
    told = " ".join(finding.sentence for finding in found.findings)
    assert ("drift plus noise that is the same everywhere" in told) != is_model
    assert ("or plan in a simulator" in told) != is_model
    assert ("planning on R alone, in the model" in told) == is_model


def test_whole_episodes_are_held_out():
    log = walk_log(same_everywhere, episodes=30, steps=10)
    held_out = held_out_rows(log)
    shares = held_out.reshape(30, 10).mean(axis=1)
    assert set(shares) == {0.0, 1.0} and shares.mean() == 0.2
    few = walk_log(same_everywhere, episodes=2, steps=100)
    assert held_out_rows(few).mean() == 0.2 and np.diff(held_out_rows(few).astype(int)).astype(bool).sum() <= 10


@pytest.mark.parametrize("second", ["clock", "constant"])
def test_a_coordinate_that_moves_alike_in_every_row_is_solved(second):
    log = walk_log(same_everywhere, clock=True)
    if second == "constant":
        rows = [np.stack([states[:, 0], np.full(len(states), 0.3)], axis=1) for states in (log.states, log.next_states)]
        log = certirl.Transitions(rows[0], log.actions, rows[1], domain=((-1, 1), (0, 1)), episodes=log.episodes)
    found = certirl.solve(log, discount=0.9, expert=lambda s: (s[:, 0] > 0).astype(int))
    assert found.status == "solved" and found.stats.unexplained < 0.1
    assert 0 < found.stats.model_error < 0.5


def test_columns_that_held_out_data_chose_may_be_more_than_those_of_a_program():
    rng = np.random.default_rng(0)
    states, actions = rng.integers(0, 16, (700, 2)), rng.integers(2, size=700)
    after = np.clip(states + rng.poisson(0.5, states.shape) - np.eye(2, dtype=int)[actions], 0, 15)
    log = certirl.Transitions(states, actions, after, domain=((0, 15), (0, 15)))
    covered = certirl.diagnose.coverage(log, basis=of_degree(log.domain, 33), cells=4)
    assert covered.basis.size == 595 > MOST_FUNCTIONS and covered.extrapolated_share.max() > 0


def test_the_error_of_a_model_of_the_next_state_does_not_depend_on_units():
    rng, errors = np.random.default_rng(0), []
    states, actions = rng.uniform(-1, 1, (600, 2)), np.arange(600) % 2
    ahead = np.clip(0.8 * states + 0.1 * (2 * actions[:, None] - 1) + 0.05 * rng.normal(size=(600, 2)), -1, 1)
    for unit in (1.0, 1000.0):
        scale, box = np.array([1.0, unit]), ((-1.0, 1.0), (-unit, unit))
        log = certirl.Transitions(states * scale, actions, ahead * scale, domain=box)
        basis = certirl.product(certirl.Legendre(3), certirl.Legendre(3)).on(box)
        moves = regress_next_states(log, basis, is_terminal=None, periodic=(), rng=np.random.default_rng(1))
        errors.append(moves.error)
    assert errors[1] == pytest.approx(errors[0], rel=1e-6) and errors[0] > 0


@pytest.mark.parametrize(("chance", "gap"), [(0.05, 0.0), (0.05, 0.04), (0.2, 0.1)])
def test_how_much_more_often_a_plan_ends_badly_is_below_its_bound_as_often_as_promised(chance, gap):
    """In each episode the plan alone, the expert alone, both or neither have an end that the expert avoids."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        expert, worse = rng.random(200) < chance, rng.random(200) < gap
        plan = (rng.random(200) < chance) | worse
        counts = {
            "plan": plan.sum(),
            "expert": expert.sum(),
            "more": (plan & ~expert).sum(),
            "fewer": (expert & ~plan).sum(),
        }
        others = {"unfinished": (0, 0), "idle": 0.0, "lengths": (1.0, 1.0), "returns": None, "loss": 0.0, "avoided": ""}
        found = Reached(episodes=200, steps=1, **{name: int(count) for name, count in counts.items()}, **others)
        assert found.excess == pytest.approx(plan.mean() - expert.mean()) and found.excess <= found.most
        covered += chance + (1 - chance) * gap - chance <= found.most
    assert covered >= 0.93 * 400
