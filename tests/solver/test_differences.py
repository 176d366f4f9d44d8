"""Several people in one log: their policies pooled, a reward for each, and what differs."""

import numpy as np
import pytest

import certirl
from certirl.data.policy import as_policy
from certirl.solver.differences import _of_actions

SOFT = certirl.SoftExpert(reference=0)


def decisions(switches, rng, count=1_500, errors=0.02):
    """A log of people who switch at these places, and the person of each row."""
    person = np.repeat([f"person {number}" for number in range(len(switches))], count)
    states = rng.uniform(-1, 1, len(person))
    actions = (states > np.repeat(switches, count)).astype(int)
    actions = np.where(rng.random(len(person)) < errors, 1 - actions, actions)
    after = np.clip(0.5 * states + np.where(actions, -0.4, 0.4) + 0.1 * rng.normal(size=len(person)), -1, 1)
    return certirl.Transitions(states, actions, after, domain=(-1, 1)), person


@pytest.fixture(scope="module")
def found():
    log, person = decisions([0.0, 0.0, 0.4], np.random.default_rng(0))
    return certirl.compare(log, by=person, discount=0.5, rng=0)


def test_those_who_act_differently_are_told_from_those_who_err(found):
    differing = {pair.names for pair in found.pairs if pair.differs}
    assert differing == {("person 0", "person 2"), ("person 1", "person 2")}
    assert [pair.differs for pair in found.pairs] == [True, True, False]
    for pair in found.pairs[:2]:
        assert 0.15 < pair.size < 0.27 and 0.1 < pair.state[0] < 0.3 and pair.action is None
    said = str(found)
    assert said.startswith("3 people; actions of 2 of 3 pairs differ beyond chance") and "person 2  1,500" in said
    assert said.endswith("assumed  actions do the same for everyone")


@pytest.mark.slow
def test_people_who_err_often_are_told_apart_by_few_episodes_and_no_two_alike():
    apart, alike = 0, 0
    for seed in range(6):
        log, person = decisions([0.0, 0.0, 0.3], np.random.default_rng(seed), count=800, errors=0.25)
        runs = certirl.Transitions(
            log.states, log.actions, log.next_states, domain=(-1, 1), episodes=np.arange(2_400) // 100
        )
        people = {str(name): person == name for name in np.unique(person)}
        policies = {name: certirl.policy_from(runs.where(rows)) for name, rows in people.items()}
        assert min(policy.interval[1] for policy in policies.values()) > 0.5  # two episodes are held out
        differs = {pair.names: pair.differs for pair in _of_actions(policies, runs, people, log.states[::6])}
        alike += differs.pop(("person 0", "person 1"))
        apart += sum(differs.values())
    assert apart == 12 and alike <= 1


def test_each_reward_is_largest_where_its_person_steers(found):
    s = np.linspace(-1, 1, 201)
    peaks = [s[answer.reward(s).argmax()] for answer in found.each.values()]
    assert np.abs(np.array(peaks) - [0.0, 0.0, 0.4]).max() < 0.15
    assert found.rows == {f"person {number}": 1_500 for number in range(3)} and not found.refused


def test_one_reward_for_all_is_of_a_policy_that_takes_what_any_of_them_takes(found):
    together = as_policy(list(found.experts.values()), 2)
    chances = together.probabilities(np.array([[-0.5], [0.2], [0.7]]))
    assert chances == pytest.approx(np.array([[1, 0], [1 / 3, 2 / 3], [0, 1]]))
    s = np.linspace(-1, 1, 201)
    assert -0.1 < s[found.together.reward(s).argmax()] < 0.5


@pytest.mark.slow
def test_rewards_of_soft_experts_differ_where_they_do_and_seldom_otherwise():
    walk, count = certirl.problems.soft_walk(), 0
    for seed in range(20):
        log = walk.log(episodes=60, steps=40, rng=seed)
        one = certirl.compare(log, by=np.arange(len(log)) // 40 % 2, discount=0.9, expert=SOFT, rng=0)
        (pair,) = one.pairs
        count += pair.differs
        assert list(one.each) == ["0", "1"] and pair.differs == (pair.beside < 0.05)
    assert count <= 3  # at most one in twenty is expected
    rng = np.random.default_rng(1)
    states, person = rng.uniform(-1, 1, 8_000), np.repeat(["ann", "ben"], 4_000)
    taken = rng.uniform(size=8_000) < 1 / (1 + np.exp(-4 * (states - np.where(person == "ann", 0.3, -0.3))))
    after = np.clip(0.8 * states + np.where(taken, -0.2, 0.2) + 0.2 * rng.normal(size=8_000), -1, 1)
    people = certirl.Transitions(states, taken.astype(int), after, domain=(-1, 1), action_names=("up", "down"))
    found = certirl.compare(people, by=person, discount=0.9, expert=SOFT, rng=0)
    assert found.pairs[0].differs and found.pairs[0].action == 1 and not found.experts
    assert "ann and ben: rewards differ: R of down by" in str(found)


@pytest.mark.slow
def test_all_proofs_share_one_delta():
    log = certirl.problems.soft_walk(clipped=True).log(episodes=400, steps=25, rng=0)
    asked = {"discount": 0.9, "expert": SOFT, "basis": certirl.Legendre(4), "rng": 0}
    asked |= {"dynamics": certirl.dynamics.AffineGaussian(std=0.25)}
    found = certirl.compare(log, by=np.arange(len(log)) // 5_000, delta=0.06, **asked)
    proofs = [found.together.proof, *(answer.proof for answer in found.each.values())]
    assert [proof.delta for proof in proofs] == pytest.approx([0.02] * 3)


def test_a_column_of_a_table_names_the_people():
    pandas = pytest.importorskip("pandas")
    log, person = decisions([0.0, 0.5], np.random.default_rng(2), count=600)
    columns = {"state": log.states[:, 0], "action": log.actions, "next_state": log.next_states[:, 0], "who": person}
    found = certirl.compare(pandas.DataFrame(columns), by="who", discount=0.5, rng=0)
    assert list(found.rows) == ["person 0", "person 1"] and found.pairs[0].differs


def test_who_cannot_be_solved_for_is_named_with_the_reason():
    log, person = decisions([0.0, 0.2], np.random.default_rng(3), count=600)
    few = np.arange(len(log)) < 605
    asked = {"discount": 0.9, "expert": SOFT, "rng": 0}
    found = certirl.compare(log.where(few), by=person[few], **asked)
    assert found.each["person 1"] is None and found.refused["person 1"] in str(found) and found.pairs == ()


def test_what_cannot_be_compared_is_refused():
    log, person = decisions([0.0, 0.2], np.random.default_rng(4), count=50)
    asked = {"discount": 0.5, "rng": 0}
    with pytest.raises(ValueError, match="by must be a label for each row: transitions keep no column 'who'"):
        certirl.compare(log, by="who", **asked)
    with pytest.raises(ValueError, match="by must be 100 labels, one for each transition, got 3"):
        certirl.compare(log, by=[1, 2, 3], **asked)
    with pytest.raises(ValueError, match="by must name 2 to 50 people, got 1"):
        certirl.compare(log, by=np.zeros(100), **asked)
    with pytest.raises(ValueError, match=r'expert must be "observed" or a certirl\.SoftExpert'):
        certirl.compare(log, by=person, expert=0, **asked)
    with pytest.raises(TypeError, match=r"log must be certirl\.Transitions or a table"):
        certirl.compare(3, by=person, **asked)


# Several experts, one reward, in `solve`.


def test_the_comparisons_of_several_experts_add_up():
    """Where two disagree each says that its own action is no worse: together, that both are worth the same."""
    room = certirl.problems.comfort()
    early, late = (certirl.problems.Steps((a, b), (0, 1, 2)) for a, b in ((-0.2, 0.4), (0.1, 0.6)))

    def mixed(states):
        return (np.eye(3)[early(states)] + np.eye(3)[late(states)]) / 2

    asked = {"discount": 0.5, "samples": 4_000, "rng": 0}
    answer = certirl.solve(room.dynamics, expert=[early, late], **asked)
    s = np.linspace(-1, 1, 201)
    assert np.array_equal(answer.reward(s), certirl.solve(room.dynamics, expert=mixed, **asked).reward(s))
    assert answer.expert is None and 0.0 < s[answer.reward(s).argmax()] < 0.4 and answer.stats.unexplained < 0.05


def test_a_proof_is_about_whatever_one_of_them_does():
    room = certirl.problems.comfort(noise=0.6)
    early, late = (certirl.problems.Steps((a, b), (0, 1, 2)) for a, b in ((-0.1, 0.4), (0.05, 0.5)))
    asked = {"discount": 0.5, "columns": certirl.Legendre(7), "tail": room.dynamics.tail, "rng": 1, "samples": 40_000}
    found = certirl.certify(room.reward, room.dynamics, expert=[early, late], suboptimality=0.15, **asked)
    assert found.holds and "optimal within" in found.statement
    apart = found.tube.grid.taken_at(np.array([[0.0]]))[:, 0]
    assert apart.tolist() == [True, True, False]
    share = 0.5 * -found.margin / found.suboptimality.span * 0.9
    assert not certirl.certify(room.reward, room.dynamics, expert=[early, late], suboptimality=share, **asked).holds


def test_a_list_of_actions_is_no_list_of_experts():
    with pytest.raises(TypeError, match="a list of experts must hold functions of states or models, got 1 in it"):
        as_policy([1, 0], 2)
