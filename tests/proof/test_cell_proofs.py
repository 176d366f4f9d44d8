"""Deterministic simulators: what is proved of a cell is true at every state of it."""

import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import certirl
from cells import prove
from certirl.functions.ends import Ends

DISCOUNT, DEPTH = 0.3, 8


@dataclass(frozen=True)
class Toy:
    """x' = (…), two actions; periodic or with terminal states."""

    kind: str
    n_actions: int = 2

    @property
    def domain(self):
        first = (0.0, 1.0) if self.periodic else (-1.0, 1.0)
        return (first,) if self.kind == "line" else (first, (-1.0, 1.0))

    @property
    def periodic(self):
        return (0,) if self.kind in ("ring", "gate") else ()

    @property
    def terminal_boxes(self):
        return {"goal": (((0.5, 1.0), (-1.0, 1.0)),), "gate": (((0.75, 1.0), (0.0, 1.0)),)}.get(self.kind, ())

    def terminal(self, states):  # the gate reaches to the seam: the states at 0 are those at 1
        x, y = states[:, 0], states[:, -1]
        inside = {"goal": x >= 0.5, "gate": ((x >= 0.75) | (x == 0)) & (y >= 0)}
        return inside.get(self.kind, np.zeros(len(states), dtype=bool))

    @property
    def lipschitz(self):
        turning = [[1, 0.1], [0.2 * np.pi, 0.8]]
        return {"line": [[1.1]], "ring": turning, "gate": turning, "goal": [[1, 0], [0.05, 0.9]]}[self.kind]

    def sample(self, states, action, rng):
        push = 1.0 if action else -1.0
        if self.kind == "line":
            return np.clip(0.7 * states + 0.2 * np.sin(2 * states) + 0.15 * push, -1, 1)
        x, y = states.T
        if self.periodic:
            after = np.column_stack([(x + 0.1 * y + 0.05) % 1, 0.8 * y + 0.1 * np.cos(2 * np.pi * x) + 0.1 * push])
            after = np.clip(after, [0, -1], [1, 1])
        else:
            after = np.clip(np.column_stack([x + 0.2 * push, 0.9 * y + 0.05 * x]), -1, 1)
        return np.where(self.terminal(states)[:, None], states, after)


def tree(toy, reward, states):
    """V*(s) of a horizon ``[n]``, by all sequences of actions."""
    layers = [states]
    for _ in range(DEPTH):
        layers.append(np.concatenate([toy.sample(layers[-1], action, None) for action in range(2)]))
    paid = np.where(toy.terminal(np.concatenate(layers)), 0.0, reward(np.concatenate(layers)))
    paid = np.split(paid, np.cumsum([len(layer) for layer in layers])[:-1])
    value = paid[-1]
    for rewards in paid[-2::-1]:
        value = rewards + DISCOUNT * value.reshape(2, -1).max(axis=0)
    return value


def advantage(toy, reward, states, actions):
    """V* after an action less V* after the other ``[n]``."""
    ahead = np.stack([tree(toy, reward, toy.sample(states, action, None)) for action in range(2)])
    rows = np.arange(len(states))
    return ahead[actions, rows] - ahead[1 - actions, rows]


def returned(toy, reward, states, proof):
    """V^π(s) of the policy of the proof, by walking."""
    total, factor = np.zeros(len(states)), 1.0
    for _ in range(20):
        total, factor = total + factor * np.where(toy.terminal(states), 0.0, reward(states)), factor * DISCOUNT
        actions = np.maximum(proof.actions[proof.grid.cell(states)], 0)
        after = np.stack([toy.sample(states, action, None) for action in range(2)])
        states = after[actions, np.arange(len(states))]
    return total


def reward_of(toy, seed):
    rng = np.random.default_rng(seed)
    counts = {"line": (33,), "ring": (24, 25), "gate": (24, 25), "goal": (25, 25)}[toy.kind]
    grid = certirl.Cells(counts, toy.periodic, toy.domain)
    points, waves = grid.points(), rng.normal(size=3)
    turn = np.pi * (2 if toy.periodic else 1) * points[:, 0]
    values = waves[0] * np.cos(turn) + waves[1] * np.sin(turn) + waves[2] * points[:, -1] ** 2
    return certirl.Reward(grid, values, ended=toy.terminal)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", ["line", "ring", "goal", "gate"])
@pytest.mark.parametrize("form", ["cells", "value"])
def test_no_cell_is_proved_falsely_even_of_barely_wrong_experts(kind, form):
    toy, proved, wrong = Toy(kind), 0, 0
    for seed in range(2):
        given, rng = reward_of(toy, seed), np.random.default_rng(seed)
        plan = certirl.planning.plan(toy, given, discount=DISCOUNT, points=given.basis.counts)
        shifts = (0.0, 0.04, 0.3)
        for shift in shifts:  # the switch of the expert is at the wrong place, by a few cells or by many

            def expert(states, plan=plan, shift=shift):
                return plan(states - shift * np.eye(len(toy.domain))[0])

            asked = {"reward": given} if form == "cells" else {"value": plan}
            proof = prove(toy, expert, discount=DISCOUNT, lipschitz=toy.lipschitz, refine=4, **asked)
            low, high = np.array(toy.domain).T
            states = low + (high - low) * rng.random((40, len(low)))
            cells = proof.grid.cell(states)
            alive = proof.live[cells]
            assert (alive == ~toy.terminal(states)).all()
            states, cells = states[alive], cells[alive]
            truth = advantage(toy, proof.reward, states, proof.actions[cells])
            error = 2 * DISCOUNT**DEPTH / (1 - DISCOUNT) * np.ptp(proof.reward(given.basis.points()))
            assert (truth >= proof.margins[cells] - error).all()
            assert not (proof.decided[cells] & (truth < -error)).any()
            missed = tree(toy, proof.reward, states) - returned(toy, proof.reward, states, proof)
            assert (missed <= proof.regrets[cells] + DISCOUNT * error).all()
            proved, wrong = proved + int(proof.decided[cells].sum()), wrong + int((truth < -error).sum())
    assert proved > 40 and wrong > 4


def test_lipschitz_constants_that_are_too_small_are_contradicted():
    toy, asked = Toy("ring"), {"discount": DISCOUNT, "refine": 4}
    half, enough = 0.5 * np.array(toy.lipschitz), np.array(toy.lipschitz)
    shown = r"L\[0\]\[0\] must be at least 1, not 0.5, L\[0\]\[1\] must be at least 0.1, not 0.05, L\[1\]\[0\] must "
    with pytest.raises(ValueError, match=f"Lipschitz constants are contradicted: {shown}be at least 0.62"):
        prove(toy, 0, reward=reward_of(toy, 0), lipschitz=half, **asked)
    one = np.stack([enough, np.where([[False, False], [False, True]], half, enough)])
    with pytest.raises(ValueError, match=r"contradicted: L\[1\]\[1\]\[1\] must be at least 0.8, not 0.4; declare"):
        prove(toy, 0, reward=reward_of(toy, 0), lipschitz=one, **asked)


def test_a_number_bounds_the_slope_of_one_coordinate():
    asked = {"value": lambda states: states[:, 0], "discount": 0.5, "points": 11}
    several = [prove(Shrinking(""), lipschitz=L, **asked) for L in (0.5, [0.5], [[0.5]])]
    assert all((proof.margins == several[0].margins).all() for proof in several) and several[0].decided_share == 1


@pytest.mark.parametrize("width", [0.5, 20.0])
def test_shares_of_cells_add_up_and_nothing_proved_is_not_certified(width):
    toy = Toy("goal")
    proof = prove(
        toy,
        value=lambda s: -(s[:, 1] ** 2) - s[:, 0] ** 2,
        discount=0.9,
        points=25,
        lipschitz=width * np.ones((2, 2)) + toy.lipschitz,
    )
    shares = [float(text) for text in re.findall(r"([\d.]+)% (?:of the cells:|beside|elsewhere)", str(proof))]
    decided = float(proof.share_in_words.rstrip("%"))
    assert sum(shares[1:]) == pytest.approx(shares[0]) and decided + shares[0] == pytest.approx(100)
    assert str(proof).startswith(
        "Certified in part, δ = 0" if width < 1 else "Not certified: the policy's action is not"
    )


class Shrinking:
    """s' = s/2, a quarter more under action 0; what is wrong is said by the name."""

    n_actions, domain, calls = 2, ((0.0, 1.0),), 0

    def __init__(self, wrong, terminal_boxes=()):
        self.wrong, self.terminal_boxes = wrong, terminal_boxes

    def terminal(self, states):
        return states[:, 0] > (0.85 if self.wrong == "terminal outside" else 2)

    def sample(self, states, action, rng):
        self.calls += 1
        after = 0.5 * states + 0.25 * (action == (self.wrong == "memory" and self.calls > 4))
        if self.wrong == "noise":
            after = after + 1e-6 * rng.normal(size=after.shape)
        if self.wrong == "batch":
            after = after + 1e-3 * (states[:1] - states)
        return np.clip(after, 0, 1)


@pytest.mark.parametrize(
    ("wrong", "boxes", "message"),
    [
        ("noise", (), r"not a function of state .* differs by 1?.\S*e-0\S*; with noise, pass a tail to certirl.solve"),
        ("memory", (), "not a function of state and action|Lipschitz constants are contradicted"),
        ("batch", (), "not a function of state and action|Lipschitz constants are contradicted"),
        ("terminal inside", (((0.5, 1.0),),), "is in one of them and not terminal"),
        ("terminal outside", (), "is outside of them and terminal"),
        ("between lines", (((0.55, 1.0),),), "must end on lines of the grid of the value"),
    ],
)
def test_simulators_that_are_not_what_they_declare_are_refused(wrong, boxes, message):
    grid = certirl.Cells((11,), box=((0, 1),))
    value = certirl.Reward(grid, grid.points()[:, 0] + 1)
    with pytest.raises(ValueError, match=message):
        prove(Shrinking(wrong, boxes), 0, value=value, discount=0.5, lipschitz=[[0.6]], refine=10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"discount": None}, "pass discount, say discount=0.9"),
        ({"value": SimpleNamespace(value=None, reason="no V explains it")}, "without a value: no V explains it"),
        ({"lipschitz": [[np.inf]]}, "lipschitz must be a number from 0"),
        ({"lipschitz": [[1e200]]}, "to 1e\\+12"),
        ({"lipschitz": [[[0.5]]]}, r"a number for each of 2 actions, got \[\[\[0.5\]\]\]"),
        ({"value": lambda states: 1e-300 * states[:, 0]}, "multiply both by a positive constant"),
        ({"value": lambda states: 0 * states[:, 0]}, "the value is the same at every state"),
        ({"points": None}, "pass points=41, say, along each coordinate"),
        ({"points": 10**9}, "at most 4,000,000 cells"),
        (
            {"reward": lambda states: states[:, 0], "value": None},
            r"planning.ValueReward\(V, simulator, discount\), got",
        ),
        ({"reward": certirl.Reward(certirl.Cells((11,), box=((0, 1),)), np.arange(11.0)), "expert": None}, "pass exp"),
        ({"reward": SimpleNamespace(value=np.sin)}, "value is a guess of the value of a certirl.Reward on"),
        (
            {"reward": certirl.Reward(certirl.Legendre(11), np.linspace(0, 1, 11))},
            "the reward must be a certirl.Reward",
        ),
        (
            {"reward": certirl.Reward(certirl.Cells((6,), box=((0, 1),)), np.linspace(0, 1, 6))},
            "with the points of the value, 11",
        ),
        (
            {"expert": lambda states: np.full((len(states), 2), 0.5)},
            "not exist for experts that mix actions, got several actions at s",
        ),
        ({"expert": lambda states: states[:, 0] > states.mean()}, "changes from call to call"),
        ({"value": lambda states: states[:, 0] - states.mean()}, "depend on one state alone"),
    ],
)
def test_wrong_calls_get_a_sentence(changes, message):
    asked = {"value": lambda states: states[:, 0], "discount": 0.5, "lipschitz": [[0.5]], "points": 11, "refine": 10}
    with pytest.raises(ValueError, match=message):
        prove(Shrinking(""), **{"expert": 0} | asked | changes)


def _paid_at_the_goal(worth=-50.0):
    """A function on a grid of the toy with a goal, with a number of its own at the upper half of the goal."""
    grid = certirl.Cells((9, 9), (), Toy("goal").domain)
    ends = Ends(np.array([[[-np.inf, 0.0], [np.inf, np.inf]]]), worth)
    return certirl.Reward(grid, grid.points()[:, 0], Toy("goal").terminal, ends=ends)


def _planned():
    return certirl.planning.plan(Toy("goal"), _paid_at_the_goal(), discount=0.5, points=9)


@pytest.mark.parametrize(
    "given",
    [
        lambda: {"value": _paid_at_the_goal()},
        lambda: {"value": _paid_at_the_goal(), "points": 5},
        lambda: {"value": SimpleNamespace(value=_paid_at_the_goal(), discount=0.5), "points": 9},
        lambda: {"value": _planned()},
        lambda: {"expert": _planned()},
        lambda: {"reward": _paid_at_the_goal(), "expert": 1},
    ],
    ids=["value", "points", "solution", "plan", "plan as expert", "reward"],
)
def test_values_of_their_own_at_terminal_states_are_refused_and_not_taken_as_0(given):
    with pytest.raises(ValueError, match="a proof by cells is for values and rewards that are 0 at terminal states"):
        prove(Toy("goal"), **{"discount": 0.5, "lipschitz": Toy("goal").lipschitz} | given())


def test_a_reward_of_other_terminal_states_is_refused_and_not_taken_as_its_sum_there():
    grid = certirl.Cells((9, 9), (), Toy("goal").domain)
    reward = certirl.Reward(grid, grid.points()[:, 0], lambda states: states[:, 0] > 0)
    with pytest.raises(ValueError, match="terminal states that are not terminal in the simulator"):
        prove(Toy("goal"), 1, reward=reward, discount=0.5, lipschitz=Toy("goal").lipschitz)


def test_the_reward_of_a_value_pays_what_makes_it_the_value_at_terminal_states_too():
    value, states = _paid_at_the_goal(), np.array([[0.7, 0.5], [0.7, -0.5], [0.0, 0.5]])
    paid = certirl.proof.cells.ValueReward(value, Toy("goal"), 0.5)(states)
    ahead = max(float(value(Toy("goal").sample(states[2:], action, None))[0]) for action in range(2))
    np.testing.assert_allclose(paid, [-25.0, 0.0, value(states[2]) - 0.5 * ahead], atol=1e-12)


class Turning:
    """s' = 10¹¹·s, a tenth more under action 1, on a circle: next states of any cell are anywhere."""

    n_actions, domain, periodic = 2, ((0.0, 1.0),), (0,)

    def sample(self, states, action, rng):
        return (1e11 * states + 0.1 * action) % 1.0


@pytest.mark.parametrize("constant", [1e11, 1e12])
def test_next_states_anywhere_on_a_circle_prove_nothing(constant, tmp_path):
    grid = certirl.Cells((40,), (0,), ((0.0, 1.0),))
    value = certirl.Reward(grid, np.sin(2 * np.pi * grid.points()[:, 0]))
    proof = prove(Turning(), 0, value=value, discount=0.9, lipschitz=[[constant]])
    assert proof.decided_share == 0 and not proof.holds
    assert certirl.check(proof.save(tmp_path / "circle")).verdict != "confirmed"


def test_most_of_pendulum_is_proved_and_planning_agrees():
    swing = certirl.gym.simulator("Pendulum-v1", actions=[[-2.0], [0.0], [2.0]])
    plan = certirl.planning.plan(swing, discount=0.9, points=(60, 61))
    proof = prove(swing, plan, refine=2)
    states = np.random.default_rng(0).uniform(*np.array(swing.domain).T, (500, 2))
    cells = proof.grid.cell(states)
    ahead = np.stack([proof.value(swing.step(states, action)[0]) for action in range(3)], axis=1)
    gaps = np.take_along_axis(ahead, proof.actions[cells][:, None], axis=1) - ahead
    gaps[np.arange(500), proof.actions[cells]] = np.inf
    assert (gaps.min(axis=1) >= proof.margins[cells]).all()
    assert proof.decided_share > 0.85 and proof.relative_regret < 0.1 and proof.delta == 0


def test_mountain_car_is_proved_with_its_wall_and_its_goal():
    car = certirl.gym.simulator("MountainCar-v0")
    plan = certirl.planning.plan(car, discount=0.9, points=(91, 71))
    proof = prove(car, plan, refine=2)
    states = np.random.default_rng(0).uniform(*np.array(car.domain).T, (5000, 2))
    states[:2000] = [-1.2, -0.07] + np.random.default_rng(1).random((2000, 2)) * [0.09, 0.14]  # beside the wall
    states = states[~car.terminal(states)]
    cells, rows = proof.grid.cell(states), np.arange(len(states))
    ahead = np.stack([proof.value(car.step(states, action)[0]) for action in range(3)], axis=1)
    gaps = ahead[rows, proof.actions[cells]][:, None] - ahead
    gaps[rows, proof.actions[cells]] = np.inf
    assert (gaps.min(axis=1) >= proof.margins[cells]).all()
    assert proof.decided_share > 0.8 and proof.relative_regret < 0.05
    with pytest.raises(ValueError, match="must end on lines of the grid"):
        prove(car, certirl.planning.plan(car, discount=0.9, points=(50, 50)))


@pytest.mark.slow
def test_a_reward_that_solve_finds_is_proved_for_its_expert():
    swing = certirl.gym.simulator("Pendulum-v1", actions=3)
    expert = certirl.planning.plan(swing, discount=0.9, points=(60, 61))
    solution = certirl.solve(swing, expert=expert, discount=0.9, samples=4000, rng=0, progress=False)
    proof = prove(swing, expert, value=solution, points=(60, 61), refine=2)
    states = np.random.default_rng(0).uniform(*np.array(swing.domain).T, (500, 2))
    assert (proof.actions == expert(certirl.ground.domain.mesh(proof.grid.middles()))).all()
    assert proof.decided_share > 0.85 and proof.relative_regret < 0.2
    ahead = np.stack([proof.value(swing.step(states, action)[0]) for action in range(3)])
    assert np.allclose(proof.reward(states), proof.value(states) - 0.9 * ahead.max(axis=0))
