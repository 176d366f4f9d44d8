"""Inexact experts: an action may be worth less than the best, up to a share of what the reward spans."""

import numpy as np
import pytest

import certirl
import certirl_check
import files
from certirl import Legendre, Reward
from sizes import sizes
from systems import Coins

DISCOUNT = 0.5
COINS = Coins((0.5, 0.5), (0.4, -0.4))  # action 0 is the better one where s > 0, under a reward that rises
RISING = Reward(Legendre(2), [0.0, 1.0])
ASKED = {"discount": DISCOUNT, "columns": Legendre(2), "tail": 0, "samples": 5_000}
GRID = np.linspace(-1, 1, 2001)[:, None]


def switching(place):
    """Takes action 0 to the right of a place, and action 1 to the left of it."""

    def expert(states):
        return np.where(states[:, 0] > place, 0, 1)

    return expert


def shortfall(reward, actions, coins=COINS):
    """The most by which another action is better than these ``[n]`` at the states of the grid, in Q: exact."""
    chances = coins.shares[:, None] + coins.slopes[:, None] * GRID[:, 0]  # of 0.8, by action
    ends = [int(np.abs(GRID[:, 0] - end).argmin()) for end in (0.8, -0.8)]
    step = np.array([[chances[actions[i], i], 1 - chances[actions[i], i]] for i in ends])
    high, low = np.linalg.solve(np.eye(2) - DISCOUNT * step, reward(GRID[ends]))
    worth = DISCOUNT * chances * (high - low)
    return float((worth.max(axis=0) - worth[actions, np.arange(len(GRID))]).max())


def span(reward):
    return float(np.ptp(reward(np.linspace(-1, 1, 4001)[:, None])))


def certify(reward, expert, share, **changes):
    return certirl.certify(reward, COINS, expert=expert, suboptimality=share, **ASKED | {"rng": 0} | changes)


def experts(rng):
    """An expert that errs, as an argument and by its actions on the grid: of one action, or one that switches."""
    if rng.random() < 0.5:
        action = int(rng.integers(2))
        return action, np.full(len(GRID), action)
    expert = switching(float(rng.choice([-1, 1]) * rng.uniform(0.1, 0.7)))
    return expert, expert(GRID)


@pytest.mark.parametrize("count", sizes(8, 20))
def test_barely_too_little_is_never_certified_and_barely_enough_mostly_is(count):
    held = {0.999: 0, 1.5: 0}
    for seed in range(count):
        rng = np.random.default_rng(seed)
        expert, actions = experts(rng)
        reward = Reward(Legendre(3), [0.0, *rng.normal(size=2)])
        for factor in held:
            share = factor * shortfall(reward, actions) / span(reward)
            found = certify(reward, expert, share, rng=seed)
            held[factor] += found.holds
            assert found.margin < -shortfall(reward, actions) / DISCOUNT + 1e-9, seed
    assert held[0.999] == 0 and held[1.5] > 0.7 * count


@pytest.mark.parametrize("expert", [0, switching(0.2)], ids=["one action", "switches"])
def test_a_share_says_the_same_of_every_scale_of_the_reward(expert):
    proofs = [certify(Reward(Legendre(2), [0.0, scale]), expert, 0.7) for scale in (1.0, 64.0)]
    small, large = (proof.suboptimality for proof in proofs)
    assert large.amount == pytest.approx(64 * small.amount, rel=1e-12) and large.share == small.share == 0.7
    assert proofs[1].margin == pytest.approx(64 * proofs[0].margin, rel=1e-9)
    assert proofs[0].holds and proofs[1].holds


def test_regret_is_at_most_what_the_share_allows():
    found = certify(RISING, switching(0.2), 0.3)
    assert found.holds and 0 < found.regret <= found.suboptimality.amount / (1 - DISCOUNT)
    assert not certify(RISING, switching(0.2), None, tube=0.05).holds


def test_at_a_switch_actions_are_alike_so_that_no_tube_is_needed():
    exact, inexact = (certify(RISING, switching(0.0), share, tube=None) for share in (None, 0.05))
    assert exact.holds and exact.tube.share > 0
    assert inexact.holds and inexact.tube.share == 0 and inexact.tube.allowed == 0
    assert inexact.proves(GRID).all() and not exact.proves(GRID).all()
    narrow = certify(RISING, switching(0.0), 1e-4)
    assert not narrow.holds and 0 < narrow.tube.share < 1
    outside = certify(RISING, switching(0.0), 1e-4, tube=0.5)
    assert outside.holds and "farther than 0.5" in outside.statement


def test_it_is_never_called_strictly_optimal():
    for expert, where in ((0, "at every state"), (switching(0.0), "everywhere")):
        found = certify(RISING, expert, 0.9)
        said = f"{found}\n{certirl.check(found)}\n{found.lines()}\n{found.__doc__.splitlines()[0]}".split("\nWith")[0]
        assert f"{where} the expert's action is optimal within" in found.statement
        assert "strict" not in said and certirl.check(found).verdict == "confirmed"


def test_the_sum_over_components_spans_the_sum_of_what_they_span():
    pair = Coins((0.5, 0.5), (0.4, -0.4), dimension=2)
    each = [Reward(Legendre(2), [0.0, size]) for size in (1.0, 2.0)]
    reward = Reward.sum(each, [(0,), (1,)])
    asked = ASKED | {"expert": 0, "rng": 0}
    found = certirl.certify(reward, pair, suboptimality=0.9, **asked)
    assert found.suboptimality.span == pytest.approx(span(each[0]) + span(each[1]), rel=1e-12)
    assert found.suboptimality.places.tolist() == [[1, 1], [-1, -1]]
    assert found.holds and certirl.check(found).verdict == "confirmed"


def test_of_rewards_of_actions_the_span_is_over_the_actions_that_the_expert_takes():
    found = certify(RISING.with_costs([0.1, 0.0]), switching(0.0), 0.3)
    assert found.suboptimality.span == pytest.approx(span(RISING) + 0.1, rel=1e-12)
    assert found.suboptimality.actions == (1, 0) and certirl.check(found).verdict == "confirmed"
    alone = certify(RISING.with_costs([0.1, 0.0]), 0, 0.9)
    assert alone.suboptimality.span == pytest.approx(span(RISING), rel=1e-12) and alone.suboptimality.actions == (0, 0)


@pytest.mark.parametrize("share", [0, 1, -0.1, "a", np.nan, True])
def test_shares_are_between_0_and_1(share):
    with pytest.raises(ValueError, match="suboptimality must be a share of what the reward spans strictly between"):
        certify(RISING, 0, share)


def test_other_declarations_of_the_dynamics_have_no_such_proof():
    with pytest.raises(ValueError, match="has no use for suboptimality"):
        certirl.certify(
            RISING, COINS, expert=0, discount=0.5, dynamics=certirl.dynamics.Deterministic(1.0), suboptimality=0.1
        )


# What a file says.

FORGED = {
    "a smaller share": ("share", 1e-6, "rejected"),
    "a larger span": ("span", 9.0, "rejected"),
    "actions that are not taken": ("actions", [0, 5], "rejected"),
}


@pytest.mark.parametrize("change", FORGED)
def test_a_changed_file_is_not_confirmed(change, tmp_path):
    field, value, verdict = FORGED[change]
    record, arrays = files.parts(certify(RISING, switching(0.2), 0.3).save(tmp_path / "proof"))
    record["suboptimality"][field] = value
    found = certirl_check.check(files.write(tmp_path / "changed.npz", record, arrays))
    assert found.verdict == verdict, found.reasons


def test_no_file_has_another_share(tmp_path):
    record, arrays = files.parts(certify(RISING, switching(0.2), 0.3).save(tmp_path / "proof"))
    record["suboptimality"]["share"] = 1.5
    changed = files.write(tmp_path / "changed.npz", record, arrays)
    for read in (certirl_check.check, certirl.load):
        with pytest.raises(ValueError, match=r"changed\.npz is damaged"):
            read(changed)


def test_a_certificate_of_an_inexact_expert_is_none_of_an_exact_one(tmp_path):
    record, arrays = files.parts(certify(RISING, switching(0.2), 0.3).save(tmp_path / "proof"))
    record["suboptimality"] = None
    arrays = {name: array for name, array in arrays.items() if not name.startswith("suboptimality")}
    assert certirl_check.check(files.write(tmp_path / "changed.npz", record, arrays)).verdict != "confirmed"


def test_a_function_that_is_not_in_the_file_is_trusted_to_span_what_is_said(tmp_path):
    found = certify(lambda states: states[:, 0], 0, 0.9)
    checked = certirl.check(found)
    assert checked.verdict == "confirmed"
    assert "it differs by 2 between two states of the file" in checked.trusted


# Searches.


def test_solve_proves_what_was_declared(tmp_path):
    asked = {"discount": DISCOUNT, "expert": switching(0.2), "columns": Legendre(2), "tail": 0, "delta": 0.05, "rng": 0}
    solution = certirl.solve(COINS, suboptimality=0.3, samples=20_000, basis=Legendre(3), **asked)
    assert solution.status == "certified" and str(solution).startswith("Certified with probability 0.95: everywhere")
    assert "strict" not in str(solution).split("assumed")[0]
    assert certirl.load(solution.save(tmp_path / "answer")).certificate.suboptimality.share == 0.3


def test_without_a_proof_it_is_for_experts_of_one_action():
    with pytest.raises(ValueError, match="suboptimality is for a certificate: pass delta too"):
        certirl.solve(COINS, expert=switching(0.1), discount=DISCOUNT, rng=0, suboptimality=0.1)
    asked = {"expert": 0, "discount": DISCOUNT, "columns": 2, "basis": Legendre(2), "samples": 20_000, "rng": 0}
    assert certirl.solve(NEARLY, **asked).status == "infeasible"
    found = certirl.solve(NEARLY, suboptimality=0.2, **asked)
    assert found.status == "solved" and "optimal within" in str(found) and "strict" not in str(found)
    assert found.margin < 0 and DISCOUNT * found.margin / span(found.reward) > -0.2
    assert certirl.solve(NEARLY, suboptimality=0.01, **asked).status == "undetermined"


NEARLY = Coins((0.65, 0.35), (0.25, -0.25))  # action 0 is better under a rising reward but where s < −0.6


def test_an_action_that_no_reward_makes_best_everywhere_is_certified_within_what_was_declared():
    asked = {"discount": DISCOUNT, "expert": 0, "columns": 2, "basis": Legendre(2), "tail": 0, "delta": 0.05}
    asked |= {"samples": 50_000, "rng": 0}
    assert certirl.solve(NEARLY, **asked).status == "infeasible"
    solution = certirl.solve(NEARLY, suboptimality=0.2, **asked)
    proof = solution.certificate
    assert solution.status == "certified" and proof.margin < 0 < solution.reward.coefficients[1]
    assert str(solution).startswith("Certified with probability 0.95: at every state the expert's action is optimal")
    chances = NEARLY.shares[:, None] + NEARLY.slopes[:, None] * GRID[:, 0]
    step = np.array([[chances[0, i], 1 - chances[0, i]] for i in (1800, 200)])
    high, low = np.linalg.solve(np.eye(2) - DISCOUNT * step, solution.reward(GRID[[1800, 200]]))
    assert DISCOUNT * ((chances[0] - chances[1]) * (high - low)).min() > -0.2 * span(solution.reward)
    too_little = certirl.solve(NEARLY, suboptimality=1e-3, **asked | {"samples": 5_000})
    assert too_little.status == "undetermined" and "no reward was found" in too_little.reason


# Known noise.

KNOWN = {"discount": 0.6, "dynamics": certirl.dynamics.AffineGaussian(1.5, cells=60)}


class Room:
    """A room that is heated or cooled, with noise; everyone wants 20 degrees."""

    n_actions, domain = 2, ((15.0, 25.0),)

    def sample(self, states, action, rng):
        return np.clip(states + (1.0, -1.0)[action] + 1.5 * rng.normal(size=states.shape), 15.0, 25.0)


WISH = Reward(certirl.Cells((3,)).on(((15.0, 25.0),)), [-5.0, 0.0, -5.0])


def cools_above(place):
    def expert(states):
        return (states[:, 0] > place).astype(int)

    return expert


def test_known_noise_proves_inexact_experts_everywhere(tmp_path):
    asked = {"expert": cools_above(21.0), "samples": 6_000, "rng": 0} | KNOWN
    assert not certirl.certify(WISH, Room(), **asked).holds
    found = certirl.certify(WISH, Room(), suboptimality=0.3, **asked)
    assert found.holds and found.margin < 0 and found.suboptimality.span == 5 and found.tube.allowed == 0
    verdict = certirl.check(found)
    assert verdict.verdict == "confirmed" and "worth at most 1.5 less than any other" in verdict.statement
    assert "strict" not in f"{found}{verdict}"
    share = 0.6 * -found.estimated / 5 * 0.99  # what is estimated to be short is more than that
    little = certirl.certify(WISH, Room(), suboptimality=share, **asked)
    assert not little.holds and certirl.check(little).verdict == "nothing claimed" and little.samples_needed is None
    outside = certirl.certify(WISH, Room(), suboptimality=share, tube=2.5, **asked)
    assert outside.holds and "farther than 2.5" in outside.statement
    record, arrays = files.parts(found.save(tmp_path / "proof"))
    for field, value in (("span", 6.0), ("share", 0.01), ("actions", [0, 2])):
        forged = record | {"suboptimality": record["suboptimality"] | {field: value}}
        changed = certirl_check.check(files.write(tmp_path / "changed.npz", forged, arrays))
        assert changed.verdict != "confirmed", field


def test_a_search_by_known_noise_keeps_to_the_share():
    asked = {"expert": cools_above(20.5), "delta": 0.05, "rng": 0, "samples": 60_000} | KNOWN
    solution = certirl.solve(Room(), suboptimality=0.2, **asked)
    assert solution.status == "certified" and solution.certificate.suboptimality.share == 0.2
    assert str(solution).startswith("Certified with probability 0.95: everywhere the expert's action is optimal within")


def test_one_action_is_certified_by_known_noise_within_what_it_lacks():
    rising = Reward(certirl.Cells((2,)).on(((15.0, 25.0),)), [0.0, 1.0])
    asked = {"samples": 6_000, "rng": 0} | KNOWN
    found = certirl.certify(rising, Room(), expert=1, suboptimality=0.5, **asked)
    assert found.holds and found.margin < 0 and certirl.check(found).verdict == "confirmed"
    assert not certirl.certify(rising, Room(), expert=1, suboptimality=0.05, **asked).holds
