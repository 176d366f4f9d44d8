"""Certified infeasibility for experts that switch: never false, and only outside their tubes."""

import numpy as np
import pytest
from test_conflicts import HEAT_REST_HEAT, ROOM, explained, moved, true_rows

import certirl
from certirl.functions.bases import Legendre
from certirl.functions.frame import frame
from certirl.problems import Steps, comfort, random_polynomial
from certirl.proof import refutation, value_cones
from certirl.proof.case import Case
from certirl.proof.certify import refute
from certirl.proof.sums import gather_residuals
from certirl.proof.value_cones import comparisons
from refuting import best_margin, numbers, runs_beyond
from sizes import sizes


def compared(expert, columns, tube):
    """The comparisons of an expert with three actions."""
    case = Case.of(expert, Legendre(columns, (-1, 1)), n_actions=3, discount=np.nan, tail=None, tube=tube)
    return comparisons(case, case.parts[0])


def some_problem(seed):
    if seed % 3:
        return random_polynomial(seed=seed, actions=2 + seed % 2)
    rng = np.random.default_rng(seed)
    return comfort(power=float(rng.uniform(0.3, 0.7)), noise=float(rng.uniform(0.5, 0.7)), discount=0.5).dynamics


# Soundness


@pytest.mark.thinned(3)
@pytest.mark.parametrize("count", sizes(4, 27))
@pytest.mark.parametrize(("k", "tube"), [(2, 0.001), (3, 0.001), (4, 0.05)])
def test_experts_who_can_be_explained_are_never_refuted(k, tube, count, monkeypatch):
    monkeypatch.setattr(value_cones, "CONES", 24)  # fewer cones are quicker, and no less sound
    switched = estimated = 0
    for seed in range(count):
        problem, rng = some_problem(seed), np.random.default_rng([seed, k])
        expert = explained(problem, rng.normal(size=k - 1))
        for _ in range(20 * (k > 2)):
            expert = expert if len(expert.switches) > 1 else explained(problem, rng.normal(size=k - 1))
        switched += len(expert.switches) > 1
        columns, tail = (9, problem.tail) if hasattr(problem, "tail") else (3, 0.0)
        settings = {"basis": Legendre(k), "columns": columns, "tail": tail, "delta": 0.5, "tube": tube}
        samples = (100, 400, 1600)[seed // 3 % 3]
        found = refute(problem, expert=expert, samples=max(samples, 12 * columns), rng=seed, **settings)
        assert not found.holds and found.margin <= 0
        estimated += found.estimated > 0
        assert found.ceiling >= best_margin(true_rows(problem, k, expert, tube, found.grounds[0].cover.states)) - 1e-9
    assert switched > count * (20 if k > 2 else 3) // 27
    assert estimated > 0 or k > 3 or count < 27  # estimates alone would have refuted now and then


@pytest.mark.parametrize("count", sizes(6, 30))
def test_a_refuted_expert_cannot_be_explained(count, monkeypatch):
    monkeypatch.setattr(value_cones, "CONES", 60)
    refuted, wrong = 0, []
    for seed in range(count):
        problem, rng = some_problem(seed), np.random.default_rng([seed, 9])
        switches = tuple(np.sort(rng.uniform(-0.8, 0.8, 1 + seed % 3)))
        actions = [int(rng.integers(problem.n_actions))]
        for _ in switches:
            actions.append((actions[-1] + int(rng.integers(1, problem.n_actions))) % problem.n_actions)
        expert, k = Steps(switches, tuple(actions)), 2 + seed % 2
        columns, tail = (9, problem.tail) if hasattr(problem, "tail") else (3, 0.0)
        found = refute(
            problem, expert=expert, basis=Legendre(k), columns=columns, tail=tail, delta=0.5, samples=8_000, rng=seed
        )
        if found.holds:
            refuted += 1
            best = best_margin(true_rows(problem, k, expert, found.tube))
            wrong += [seed] if best > 1e-9 else []
    assert not wrong
    assert refuted > count // 3


@pytest.mark.parametrize("runs", sizes(8, 60))
def test_all_numbers_of_a_plan_lie_below_their_bounds(runs):
    problem, k, expert = random_polynomial(seed=5), 4, Steps((-0.3, 0.2), (0, 1, 2))
    cover = (
        refute(problem, expert=expert, basis=Legendre(k), columns=3, samples=2000, delta=0.5, rng=99).grounds[0].cover
    )
    truth = numbers(cover, moved(problem, k, cover.states), expert)
    misses, short, *_ = runs_beyond(problem, cover, truth, 1600, [seed % 2 == 0 for seed in range(runs)])
    assert misses <= runs // 2  # δ = ½; in fact none
    assert short > 0


@pytest.mark.parametrize("paired", [True, False])
def test_no_term_exceeds_the_bound_on_terms(paired):
    problem, expert = random_polynomial(seed=8), Steps((-0.3, 0.2), (0, 1, 2))
    cover = refute(problem, expert=expert, basis=Legendre(4), columns=3, samples=2000, rng=1).grounds[0].cover
    data = certirl.steps.sample(problem, basis=cover.columns, samples=3_000, rng=2, design=True, paired=True)
    (sums,) = gather_residuals([cover], data)
    own, n, which = frame(cover.columns), 3_000, cover.which
    q = np.linalg.solve(own.lifted(sums.gram), cover.pulls[..., None])[..., 0]
    states, ends = data.states.reshape(3, n, 1)[0], data.next_states.reshape(3, n, 1)
    x, middle, half = own.values(states), *refutation._ranges(cover)
    largest = refutation._largest_terms(cover, q, middle, half, paired=paired)
    terms = [
        (q[which, c] @ x.T) * (cover.directions @ (cover.functions.values(ends[c])[:, 1:] - x @ cover.fits[c].T).T)
        for c in range(3)
    ]
    worst = np.abs(sum(terms) if paired else terms).reshape(-1, len(which), n).max(axis=(0, 2))
    assert (worst <= largest * (1 + 1e-9)).all() and (worst > 0.3 * largest).any()


# Power


@pytest.mark.parametrize(
    ("expert", "k", "samples"),
    [
        (ROOM.expert, 2, 600),  # one slope cannot heat here and cool there
        *sizes(
            (HEAT_REST_HEAT, 3, 8_000),  # right at the first switch, wrong at the second
            (Steps(ROOM.expert.switches, (2, 1, 0)), 4, 15_000),
            (Steps((0.0,), (0, 1)), 3, 8_000),
        ),
    ],
)
def test_experts_who_contradict_themselves_are_refuted(expert, k, samples):
    assert best_margin(true_rows(ROOM.dynamics, k, expert, 0.05)) < 1e-9  # the truth
    for seed in range(3):
        settings = {"basis": Legendre(k), "columns": 13, "tail": ROOM.dynamics.tail, "samples": samples, "rng": seed}
        found = refute(ROOM.dynamics, expert=expert, **settings)
        assert found.holds and found.ceiling == 0
    lines = str(found).splitlines()
    assert lines[0] == (
        f"Certified infeasible with probability 0.95: no reward of the state whose value lies in Legendre({k}) makes "
        "the expert strictly optimal farther than 0.05 from its switches"
    )
    assert lines[3].startswith("  conflict: the advantages of action ") and " over " in lines[3]
    conflict = found.witness
    assert (conflict.taken == expert(conflict.states)).all() and (conflict.taken != conflict.actions).all()
    after, m = moved(ROOM.dynamics, k, conflict.states), np.arange(len(conflict))
    left = conflict.weights @ (after[conflict.taken, m] - after[conflict.actions, m])
    assert np.abs(left).max() <= conflict.residual and conflict.weights.sum() == pytest.approx(1)


def test_a_richer_class_explains_and_a_log_is_enough():
    settings = {"expert": ROOM.expert, "columns": 13, "tail": ROOM.dynamics.tail}
    assert best_margin(true_rows(ROOM.dynamics, 4, ROOM.expert, 0.05)) > 0
    log = certirl.steps.sample(ROOM.dynamics, basis=Legendre(13), samples=8_000, rng=0, design=True)
    assert not refute(log, basis=Legendre(4), **settings).holds
    found = refute(log, basis=Legendre(2), **settings)
    assert found.holds and found.tube == pytest.approx(0.05)


def test_a_function_that_never_switches_is_an_action():
    asked = {"basis": Legendre(3), "columns": 13, "tail": ROOM.dynamics.tail, "samples": 4_000, "rng": 0}
    action = refute(ROOM.dynamics, expert=1, **asked)
    function = refute(ROOM.dynamics, expert=lambda states: np.ones(len(states), dtype=int), **asked)
    assert action.holds and function.holds and function.estimated == pytest.approx(action.estimated, rel=1e-6)
    assert str(function).splitlines()[0].endswith("makes action 1 strictly optimal")


def test_an_expert_who_mixes_must_be_indifferent():
    def mixes(states):
        return np.tile([0.5, 0.0, 0.5], (len(states), 1))  # heats or cools by a coin, and never rests

    found = refute(
        ROOM.dynamics, expert=mixes, basis=Legendre(3), columns=13, tail=ROOM.dynamics.tail, samples=8_000, rng=0
    )
    # V = w_2 s + w_3 s²: P_0V = P_2V at all states asks for w_3 = 0 and w_2 = 0.
    assert found.holds
    rows = compared(mixes, 5, 0.05)
    assert set(rows.actions) == {0, 1, 2} and np.abs(rows.contrast.sum(axis=1)).max() == 0


@pytest.mark.fine
def test_states_in_the_tube_are_left_alone_and_nothing_left_is_a_sentence():
    rows = compared(HEAT_REST_HEAT, 9, 0.1)
    away = np.abs(rows.states - np.array(HEAT_REST_HEAT.switches)).min(axis=1)
    assert 0.1 < away.min() < 0.101
    assert len(compared(HEAT_REST_HEAT, 9, 1.9).states) == 0
    with pytest.raises(ValueError, match="leaves no state to compare"):
        refute(ROOM.dynamics, expert=HEAT_REST_HEAT, basis=Legendre(3), tube=1.9, samples=500, rng=0)
    with pytest.raises(ValueError, match="never switches: leave tube out"):
        refute(ROOM.dynamics, expert=1, basis=Legendre(3), tube=0.1, rng=0)
    with pytest.raises(ValueError, match="tube must be a half-width strictly between 0 and 2"):
        refute(ROOM.dynamics, expert=HEAT_REST_HEAT, basis=Legendre(3), tube=-0.1, rng=0)
