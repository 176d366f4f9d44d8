"""Experts that switch and contradict themselves: named where they do, and in the one call refuted."""

import numpy as np
import pytest

import certirl
import files
from certirl.fit.witness import Witness
from certirl.functions.bases import Legendre
from certirl.problems import Steps, Truth, comfort
from refuting import best_margin
from systems import Moving

ROOM = comfort()
OF_STATES = certirl.ValueForm(costs=False)  # costs of actions explain some of these experts
HEAT_REST_HEAT = Steps(ROOM.expert.switches, (0, 1, 0))
GRID = np.linspace(-1, 1, 401)[:, None]


def moved(problem, k, states):
    """(P_cφ_i)(s), i = 2 … k, by quadrature: ``[A, n, k − 1]``."""
    truth = Truth(problem)
    phi = Legendre(k, (-1, 1)).values(truth.states)[:, 1:] * truth.weights[:, None]
    return np.array([problem.density(truth.states, states, a) @ phi for a in range(problem.n_actions)])


def true_rows(problem, k, expert, tube, more=None):
    """ρ_a(s) at states farther than the tube from all switches, for every rival, by quadrature: ``[m, k − 1]``."""
    switches = np.array(expert.switches)
    states = GRID if more is None else np.concatenate([GRID, more])
    states = states[np.abs(states - switches).min(axis=1, initial=np.inf) > tube]
    after, own = moved(problem, k, states), expert(states)
    gains = after[own, np.arange(len(states))] - after
    return np.concatenate([gains[a][own != a] for a in range(problem.n_actions)])


def explained(problem, w):
    """The expert who does what is best for V = w·(φ_2 … φ_k): V explains it, by nothing at all at its switches."""
    states = np.linspace(-1, 1, 2_001)[:, None]  # half a cell is less than the least tube
    chosen = (moved(problem, len(w) + 1, states) @ w).argmax(axis=0)
    at = np.flatnonzero(np.diff(chosen))
    return Steps(tuple((states[at, 0] + states[at + 1, 0]) / 2), (int(chosen[0]), *map(int, chosen[at + 1])))


# On the data's own rows


STILL = Moving(((-1.0, 1.0),), (-0.15, 0.0, 0.15), keep=0.8)


def still_rows(solution, expert):
    """The rows outside the tube, from the dynamics themselves."""
    states = solution.compared.states[solution.compared.target >= 1]
    after = np.array([solution.value.basis.values(STILL.sample(states, a, None))[:, 1:] for a in range(3)])
    own = expert(states)
    gains = after[own, np.arange(len(states))] - after
    return np.concatenate([gains[a][own != a] for a in range(3)])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("k", [2, 3, 4, 6])
def test_a_conflict_is_named_exactly_if_there_is_one(k):
    found = 0
    for seed in range(8):
        rng = np.random.default_rng([seed, k])
        expert = Steps(tuple(np.sort(rng.uniform(-0.8, 0.8, 2))), tuple(rng.permutation(3)))
        asked = {"basis": Legendre(k), "samples": 300, "rng": seed, "method": OF_STATES}
        solution = certirl.solve(STILL, expert=expert, discount=0.9, **asked)
        rows = still_rows(solution, expert)
        rows = rows[np.linalg.norm(rows, axis=1) > 1e-9]
        rows = rows / np.linalg.norm(rows, axis=1).max()
        assert (solution.witness is None) == (best_margin(rows) > 1e-6)
        if solution.witness is None:
            continue
        found += 1
        conflict = solution.witness
        assert conflict.noiseless and "observed without noise" in str(solution) and len(conflict) <= k + 1
        assert (conflict.taken == expert(conflict.states)).all() and conflict.weights.sum() == pytest.approx(1)
        after = [solution.value.basis.values(STILL.sample(conflict.states, a, None)) for a in range(3)]
        m = np.arange(len(conflict))
        left = conflict.weights @ (np.array(after)[conflict.taken, m] - np.array(after)[conflict.actions, m])
        assert np.abs(left).max() < 1e-6
    assert found > 0


def test_it_is_told_kept_and_read_back(tmp_path):
    solution = certirl.solve(STILL, expert=HEAT_REST_HEAT, discount=0.9, basis=Legendre(3), samples=500, rng=0)
    assert isinstance(solution.witness, Witness)
    (line,) = [line for line in str(solution).splitlines() if line.startswith("  witness ")]
    assert " over " in line and "cancel (weights in brackets), whatever V in Legendre(3)" in line
    back = certirl.load(solution.save(tmp_path / "still"))
    assert str(back) == str(solution) and (back.witness.states == solution.witness.states).all()


# In the one call


@pytest.mark.slow
def test_solve_proves_that_no_reward_exists(tmp_path):
    settings = {"discount": 0.9, "basis": Legendre(3), "delta": 0.05, "tail": ROOM.dynamics.tail, "method": OF_STATES}
    found = certirl.solve(ROOM.dynamics, expert=HEAT_REST_HEAT, samples=30_000, rng=0, **settings)
    assert found.status == "infeasible" and (found.certificate is None or not found.certificate.holds)
    text = str(found)
    assert (
        text.startswith("Certified infeasible with probability 0.95:")
        and "no reward explains the expert; best fit" in text
    )
    assert "  witness  the advantages of action" in text and len(found.witness) >= 3
    assert files.lines_of(certirl.load(found.save(tmp_path / "none"))) == files.lines_of(found)
    log = certirl.steps.sample(ROOM.dynamics, basis=Legendre(13), samples=40_000, rng=1, design=True)
    from_log = certirl.solve(log, expert=HEAT_REST_HEAT, columns=13, **settings)
    assert from_log.status == "infeasible" and "with probability 0.95:" in str(from_log)


@pytest.mark.slow
def test_solve_does_not_say_so_of_an_expert_who_can_be_explained():
    expert = explained(ROOM.dynamics, np.array([0.3, -1.0]))  # two switches, and two coefficients to explain them with
    assert len(expert.switches) == 2
    for seed in range(2):
        settings = {"basis": Legendre(3), "delta": 0.5, "tail": ROOM.dynamics.tail, "samples": 6_000, "rng": seed}
        found = certirl.solve(ROOM.dynamics, expert=expert, discount=0.9, **settings)
        assert found.status != "infeasible"


def test_without_a_tail_or_enough_data_solve_does_not_call_it_infeasible():
    settings = {"discount": 0.9, "basis": Legendre(3), "delta": 0.05, "rng": 0, "method": OF_STATES}
    undeclared = certirl.solve(ROOM.dynamics, expert=HEAT_REST_HEAT, samples=20_000, **settings)
    assert undeclared.status != "infeasible" and undeclared.witness is not None
    assert "; estimated\n  proof    Not certified, but infeasible" in str(undeclared)
    few = certirl.solve(ROOM.dynamics, expert=HEAT_REST_HEAT, samples=900, tail=ROOM.dynamics.tail, **settings)
    assert few.status != "infeasible" and "; estimated\n  proof    Undetermined: with probability" in str(few)
