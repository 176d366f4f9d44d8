"""One contract of the answer, for every kind of expert, of state, of component, of source and of proof."""

import functools
import json
import typing
from dataclasses import fields, replace
from xml.etree import ElementTree

import numpy as np
import pytest

import certirl
import files
from certirl import steps
from certirl.ground.status import STATUSES, Reason, rounded_down, weakest
from systems import Coins


class Glide:
    """Without noise, with states that are terminal if asked for."""

    n_actions = 3

    def __init__(self, dimension=1, ends=False):
        self.domain = ((-1.0, 1.0),) * dimension
        if ends:
            self.terminal = lambda states: states[:, 0] > 0.9

    def sample(self, states, action, rng):
        return np.clip(0.8 * states + 0.15 * (action - 1), -1, 1)


STEADY = Coins((0.7, 0.3), (0.1, 0.1))
TORN = Coins((0.5, 0.5), (0.4, -0.4))
PAIR = Coins([(0.7, 0.7), (0.3, 0.7), (0.7, 0.3)], (0.1, 0.1, 0.1), 2)
ALIKE = Coins((0.6, 0.6), (0.1, 0.1))
PROOF = {"delta": 0.05, "tail": 0, "progress": False}
FUNCTIONS = {"basis": certirl.Legendre(4), "columns": 2}
SOFT = certirl.Program(slack=0.1)
BOX = {"basis": certirl.product(certirl.Legendre(3), certirl.Legendre(3)), "columns": 3}


def middle(states):
    return np.where(states[:, 0] < -0.1, 2, np.where(states[:, 0] > 0.1, 0, 1))


def outward(states):
    return (states[:, 0] < 0).astype(int)


def log(source, n=2_000):
    return steps.sample(source, basis=certirl.product(*[certirl.Legendre(3)] * len(source.domain)), samples=n, rng=1)


CASES = {
    "an action": lambda: certirl.solve(STEADY, expert=0, discount=0.7, rng=0, samples=2_000, **FUNCTIONS),
    "an action, log": lambda: certirl.solve(log(STEADY), expert=0, discount=0.7, **FUNCTIONS),
    "an action, moments": lambda: certirl.solve(
        steps.measure(log(STEADY), basis=certirl.Legendre(4), columns=2), expert=0, discount=0.7
    ),
    "an action, box": lambda: certirl.solve(PAIR, expert=0, discount=0.7, rng=0, samples=2_000, **BOX),
    "an action, box, log": lambda: certirl.solve(log(PAIR), expert=0, discount=0.7, **BOX),
    "an action, slack": lambda: certirl.solve(
        STEADY, expert=0, discount=0.7, rng=0, samples=500, method=SOFT, **FUNCTIONS
    ),
    "an action, proved": lambda: certirl.solve(
        STEADY, expert=0, discount=0.7, rng=0, samples=20_000, **FUNCTIONS, **PROOF
    ),
    "an action, none": lambda: certirl.solve(ALIKE, expert=0, discount=0.7, rng=0, samples=2_000, **FUNCTIONS),
    "an action, terminal": lambda: certirl.solve(Glide(ends=True), expert=2, discount=0.8, rng=0, samples=500),
    "a sum": lambda: certirl.solve(
        PAIR, expert=0, components=[[0], [1]], discount=0.7, rng=0, samples=4_000, **FUNCTIONS
    ),
    "a sum, log": lambda: certirl.solve(
        log(PAIR), expert=0, components={"a": [0], "b": [1]}, discount=0.7, **FUNCTIONS
    ),
    "a sum, proved": lambda: certirl.solve(
        PAIR, expert=0, components=[[0], [1]], discount=0.7, rng=0, samples=40_000, **FUNCTIONS, **PROOF
    ),
    "a policy": lambda: certirl.solve(Glide(), expert=middle, discount=0.8, rng=0, samples=500),
    "a policy, log": lambda: certirl.solve(log(Glide(), 500), expert=middle, discount=0.8),
    "a policy, box": lambda: certirl.solve(Glide(2), expert=middle, discount=0.8, rng=0, samples=800),
    "a policy, terminal": lambda: certirl.solve(Glide(ends=True), expert=middle, discount=0.8, rng=0, samples=500),
    "a policy, proved": lambda: certirl.solve(
        TORN, expert=outward, tube=0.4, columns=2, discount=0.7, rng=0, samples=20_000, **PROOF
    ),
}


@functools.lru_cache
def solved(case):
    return CASES[case]()


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def solution(case):
    return solved(case)


@pytest.mark.thinned(2)
def test_the_status_is_that_of_the_weakest_finding(case, solution):
    assert type(solution) is certirl.Solution and solution.status in STATUSES
    least = weakest(solution.findings)
    assert (solution.status, solution.reason) == (least.status, least.sentence)
    assert (solution.status == "certified") == ("proved" in case)
    judged = solution.judged(Reason.ROUNDS.finding())
    assert judged.status == "undetermined" and judged.reason.endswith("allow more rounds or a larger tolerance")


def test_the_print_has_few_lines_and_begins_with_the_status(solution):
    lines = str(solution).splitlines()
    most = (7 if solution.stats.terminal is None else 8) + bool(solution.next)
    assert 4 <= len(lines) <= most and lines[0].lower().startswith(solution.status) and lines[0].endswith(".")
    assert all(line.startswith("  ") and not line.startswith("   ") for line in lines[1:])
    assert [line.split()[0] for line in lines].count("data") == 1
    if not solution.stats.objective and solution.status != "certified":  # one cause first, the others below
        causes = [each.sentence for each in solution.findings if each.status == solution.status]
        assert lines[0].endswith(f": {causes[0]}.") and all(cause in "".join(lines) for cause in causes)
    assert len(repr(solution)) < 120 and "\n" not in repr(solution) and solution.status in repr(solution)
    assert str(solution.stats).startswith("functions ") and "nan" not in str(solution.stats)


@pytest.mark.thinned(2)
def test_plain_data_of_a_solution_are_json_and_say_what_it_says(solution):
    plain = solution.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain and len(json.dumps(plain)) < 50_000
    assert (plain["type"], plain["status"], plain["reason"]) == ("Solution", solution.status, solution.reason)
    assert (plain["reward"] is None) == (solution.reward is None) and plain["discount"] == solution.discount
    if solution.certificate is not None:
        assert plain["certificate"]["margin"] == solution.certificate.margin and plain["certificate"]["holds"]
        assert len(repr(solution.certificate)) <= 200
    if solution.reward is not None:
        whole = solution.to_dict(entries=None)["reward"]["coefficients"]
        assert whole == solution.reward.coefficients.tolist()
    assert all(len(repr(part)) <= 200 for part in (solution.stats, *solution.components, *solution.findings))


def test_the_card_in_a_notebook_is_well_formed_and_says_what_the_print_says(solution):
    card = ElementTree.fromstring(solution._repr_html_())  # every element is closed, every text escaped
    text = " ".join(" ".join(card.itertext()).split())
    assert text.startswith(f"Solution {solution.status} {str(solution).splitlines()[0]}")
    assert all(" ".join(line.split()) in text for line in str(solution).splitlines())
    drawn = [element for element in card.iter() if element.get("role") == "img"]
    assert len(drawn) == (0 if solution.reward is None else 2)


def test_the_answer_of_check_is_a_record(tmp_path):
    proved = solved("an action, proved")
    verdict = certirl.check(proved.save(tmp_path / "proved.npz"))
    assert verdict.to_dict()["verdict"] == "confirmed" and repr(verdict).startswith("<Verdict: Confirmed: with prob")
    assert 0 < verdict.to_dict()["margin"] <= proved.certificate.margin and len(repr(verdict)) <= 200
    json.dumps(verdict.to_dict(), allow_nan=False)


def test_functions_are_called_on_states(solution):
    states = np.random.default_rng(0).uniform(-0.8, 0.8, (7, len(solution.domain)))
    assert solution.action_values(states).shape == (solution.n_actions, 7)
    assert (solution.greedy(states) == solution.action_values(states).argmax(axis=0)).all()
    low, high = np.array(solution.domain).T
    if not any(component.basis.periodic_axes for component in solution.components):
        corners = solution.greedy(np.stack([low, high]))
        assert (solution.greedy(np.stack([low - 1, high + 1])) == corners).all()  # moved to the edge, like a plan
    for function in (solution.reward, solution.value):
        if solution.status == "infeasible":
            assert function is None
        else:
            assert function(states).shape == (7,) and function.domain == solution.domain
            assert isinstance(function(states[0] if len(solution.domain) > 1 else float(states[0, 0])), float)


def test_components_hold_every_coordinate_once(case, solution):
    assert len(solution.components) == (2 if "a sum" in case else 1)
    coordinates = [c for own in solution.components for c in own.coordinates]
    assert sorted(coordinates) == list(range(len(solution.domain)))
    for own in solution.components:
        assert own.action_values.shape == (solution.n_actions, own.columns.size)
        assert own.basis.dimension == own.columns.dimension == len(own.coordinates)
    if len(solution.components) == 1:
        assert solution.basis is solution.components[0].basis and solution.columns is solution.components[0].columns
    else:
        assert len(solution.reward.parts) == len(solution.value.parts) == 2
        with pytest.raises(ValueError, match=r"there are 2 components: write solution.components\[0\].basis"):
            _ = solution.basis


def test_the_margin_is_the_least_advantage(case, solution):
    if solution.expert is None:
        with pytest.raises(ValueError, match="margins are for experts who always take one action"):
            solution.margins(np.zeros((1, len(solution.domain))))
        return
    assert solution.alternatives == tuple(a for a in range(solution.n_actions) if a != solution.expert)
    if solution.reward is None:
        assert np.isnan(solution.margin) and solution.state is None and solution.action is None
        assert solution.witness.weights.sum() == pytest.approx(1) and "witness" in str(solution)
        with pytest.raises(ValueError, match="there is no reward"):
            solution.margins(np.zeros((1, len(solution.domain))))
        return
    states = np.random.default_rng(0).uniform(-1, 1, (500, len(solution.domain)))
    margins = solution.margins(states)
    assert margins.shape == (solution.n_actions - 1, 500)
    if "terminal" in case:  # the value form: where it is compared, and up to the fit of the functions behind greedy
        assert np.isnan(solution.standard_error)
        return
    at = solution.margins(solution.state[None])[solution.alternatives.index(solution.action), 0]
    assert at == pytest.approx(solution.margin, abs=1e-6) and margins.min() >= solution.margin - 1e-6
    assert solution.contributions.sum(axis=0).min() == pytest.approx(solution.margin, abs=1e-6)
    assert solution.standard_errors(states).shape == margins.shape and solution.standard_error > 0
    assert (solution.greedy(states) == solution.expert).all() or solution.margin <= 0


def test_shortfalls_are_listed_from_the_largest(solution):
    compared = solution.compared
    assert compared.states.shape == (len(compared.shortfall), len(solution.domain))
    assert compared.target.shape == compared.shortfall.shape and (compared.shortfall >= 0).all()
    states, shortfall = solution.unexplained(5)
    assert len(states) == len(shortfall) <= 5 and (np.diff(shortfall) <= 0).all() and (shortfall > 0).all()


@pytest.mark.thinned(2)
def test_a_saved_solution_comes_back_whole(solution, tmp_path):
    path = solution.save(tmp_path / "saved")
    again = certirl.load(path)
    assert again.file == str(path) and solution.file is None
    kept = [field.name for field in fields(solution) if field.metadata.get("saved", True)]
    for name in ("findings", "discount", "n_actions", "expert", "samples", "action"):
        assert getattr(again, name) == getattr(solution, name) and name in kept
    if solution.status == "certified":
        assert again.certificate.margin == solution.certificate.margin
    assert files.lines_of(again)[0] == files.lines_of(solution)[0]
    if solution.stats.terminal is None:
        assert files.lines_of(again) == files.lines_of(solution)
    else:
        assert "with_terminal(simulator.terminal) gives it back" in str(again)
        given = again.with_terminal(lambda states: states[:, 0] > 0.9)
        assert str(given).splitlines()[1:] == str(solution).splitlines()[1:]
    states = np.random.default_rng(0).uniform(-0.8, 0.8, (7, len(solution.domain)))
    np.testing.assert_array_equal(again.action_values(states), solution.action_values(states))
    if solution.components[0].variances is not None:
        np.testing.assert_array_equal(again.standard_errors(states), solution.standard_errors(states))
    if not solution.stats.objective:
        assert again.with_terminal(lambda states: states[:, 0] > 0.5).reward(np.full(len(solution.domain), 0.7)) == 0
    for own, other in ((again.reward, solution.reward), (again.value, solution.value)):
        assert own is other is None or np.array_equal(own(states), other(states))
    assert str(again.stats) == str(solution.stats)


def test_solutions_are_frozen(solution):
    with pytest.raises(AttributeError):
        solution.margin = 2.0
    with pytest.raises(ValueError, match="read-only"):
        solution.components[0].action_values[0] = 1.0


def test_a_policy_that_takes_one_action_has_the_functions_of_that_action():
    one = certirl.solve(Glide(ends=True), expert=2, discount=0.8, rng=0, samples=500)
    same = certirl.solve(Glide(ends=True), expert=lambda s: np.full(len(s), 2), discount=0.8, rng=0, samples=500)
    states = np.linspace(-1, 0.8, 50)
    assert (one.expert, same.expert) == (2, None) and one.margins(states).shape == (2, 50)
    np.testing.assert_allclose(one.reward(states), same.reward(states))


def test_of_a_rule_that_ends_no_episode_no_ends_are_asked_for():
    endless = Glide()
    endless.terminal = lambda states: np.zeros(len(states), dtype=bool)
    found = certirl.solve(endless, expert=middle, discount=0.8, rng=0, samples=500)
    assert found.status == "validated" and found.stats.reached is None
    assert "449 trials are too few to follow the plan" in solved("a policy, terminal").reason


def test_one_component_is_the_plain_problem():
    plain = solved("an action")
    alone = certirl.solve(STEADY, expert=0, components=[[0]], discount=0.7, rng=0, samples=2_000, **FUNCTIONS)
    assert len(alone.components) == len(plain.components) == 1 and alone.columns == plain.columns
    assert alone.margin == pytest.approx(plain.margin, abs=1e-6)


def test_a_seed_that_is_a_number_is_kept():
    assert solved("an action").stats.seed == 0 and "seed         0" in str(solved("an action").stats)
    assert solved("an action, log").stats.seed is None
    again = certirl.solve(STEADY, expert=0, discount=0.7, rng=np.random.default_rng(0), samples=200, **FUNCTIONS)
    assert again.stats.seed is None


def test_type_checkers_know_what_solve_returns():
    assert typing.get_type_hints(certirl.solve)["return"] in certirl.Solution.__mro__
    assert (certirl.solver.solve.__file__).endswith("solve.py")


def test_every_reason_has_a_status_a_cause_and_a_cure():
    texts = "which but cure reason test claim proved missing model why what columns sure write where action basis band"
    counts = "fresh training error share least gap most margin samples errors chance plan expert episodes limit"
    words = dict.fromkeys([*texts.split(), "instead", "compared"], "x")
    numbers = dict.fromkeys(f"{counts} steps actions loss trials needed misfit".split(), 0.5)
    for reason in Reason:
        finding = reason.finding(**words, **numbers)
        assert finding.status in STATUSES and finding.cause and "{" not in finding.sentence, reason
        assert not finding.cause.endswith(".") and finding.sentence.count("\n") == 0
    assert Reason.COVER.finding().cure == "leave cover out to solve on the whole domain"


def test_repr_names_the_proved_margin(tmp_path):
    proved = solved("an action, proved")
    assert f"certified, action 0, margin >= {rounded_down(proved.certificate.margin):.3g}, " in repr(proved)
    read = certirl.load(proved.save(tmp_path / "kept").with_suffix(""))  # as save adds the suffix
    assert read.file.endswith("kept.npz") and "<Solution: certified, action 0, margin >= " in repr(read)
    assert "estimated margin 1, " in repr(solved("an action"))


def test_a_certificate_of_another_problem_is_refused(tmp_path):
    proved = solved("an action, proved")
    for change, sentence in (
        ({"discount": 0.6}, "the certificate has discount 0.7, the solution 0.6"),
        ({"expert": 1, "action": 0}, "about expert 1, its certificate about another"),
        ({"certificate": solved("a policy, proved").certificate}, "about expert 0, its certificate about another"),
        ({"reward": solved("an action").reward}, "about another reward"),
        ({"findings": (Reason.SOLVED.finding(),)}, "the status is 'solved', with a certificate that holds"),
    ):
        path = replace(proved, **change).save(tmp_path / "other")
        with pytest.raises(ValueError, match=sentence):
            certirl.load(path)
