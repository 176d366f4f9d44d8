"""Certificates for experts who switch: never above the truth, tubes and regret included, exact about their words."""

import re
from dataclasses import replace

import numpy as np
import pytest

import certirl
import files
import switching as experiment
from certirl.cli import main
from certirl.data.dependence import EPISODES
from certirl.data.policy import as_policy, expert_grid
from certirl.data.simulator import Even
from certirl.functions.frame import CellAxes
from certirl.functions.spread import spread_points
from certirl.ground.status import two_digits
from certirl.problems import Steps, Truth, next_values, regret
from certirl.proof.bands import Bands
from certirl.proof.case import Case
from certirl.proof.certificate import read
from certirl.solver.solution import load
from exact import a_band
from sizes import sizes

GRID = np.linspace(-1, 1, 401)
COLUMNS = certirl.Legendre(3)


@pytest.fixture(scope="module")
def problem():
    return experiment.a_problem(11)


@pytest.fixture(scope="module")
def certificate(problem):
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "tail": 0, "tube": 0.2}
    return certirl.certify(problem.reward, problem.dynamics, samples=60_000, rng=0, **settings)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", [1, 3, *sizes(14, 2, 9, 11, 13, 19)])
def test_nothing_a_certificate_says_is_false(seed, monkeypatch):
    monkeypatch.setattr(experiment, "POLYNOMIAL", 15_000)
    run = experiment.run(seed)
    assert not any(run[name] for name in experiment.WRONG)


def test_the_thermostat_is_within_its_bands():
    room = experiment.comfort(noise=0.6, discount=0.7)
    found = certirl.certify(
        room.reward,
        room.dynamics,
        expert=room.expert,
        discount=0.7,
        columns=certirl.Legendre(9),
        tail=room.dynamics.tail,
        samples=20_000,
        rng=1,
    )
    (ground,) = found.grounds
    told, unit = ground.bands, ground.surrogate.unit
    truth = next_values(room.dynamics, room.reward, room.expert, GRID, discount=0.7) / unit
    for band in told.pairs:
        error = truth[band.pair[0]] - truth[band.pair[1]] - band.estimate(GRID[:, None])
        assert (-error <= band.radius(GRID[:, None], 0)).all() and (error <= band.radius(GRID[:, None], 1)).all()
    for width, visits in zip(ground.surrogate.widths, told.visits, strict=True):
        true = Truth(room.dynamics, cuts=room.expert.switches)
        tent = true.weights * np.maximum(0, 1 - room.expert.away(true.states) / width)
        assert visits >= max((room.dynamics.density(true.states, GRID, a) @ tent).max() for a in range(3)) - 1e-3
    assert told.span <= np.ptp(truth) * 10  # of the order of the value's span


def test_it_holds_says_where_and_is_told_in_words(certificate, problem):
    assert certificate.holds and certificate.word == "certified"
    assert 0 < certificate.tube.half_width <= 0.2 and 0 < certificate.tube.share < 0.4
    text = str(certificate)
    assert text.startswith(
        "Certified with probability 0.95: the expert's action is strictly best farther than 0.2 from its"
    )
    assert (
        "regret   at most" in text
        and "assumed: between neighbours of 4001 states of [-1, 1] the expert takes only" in text
    )
    assert sum(certificate.spending.values()) == pytest.approx(0.05)
    assert certificate.margin == pytest.approx(certificate.estimated - sum(certificate.losses.values()))


def test_the_tube_may_be_chosen_after_the_bounds_are_known(certificate, tmp_path):
    narrow, wide = certificate.with_tube(0.01), certificate.with_tube(0.3)
    assert not narrow.holds and narrow.margin < certificate.margin < wide.margin and wide.holds
    assert wide.delta == certificate.delta and wide.grounds is certificate.grounds
    assert np.array_equal(wide.tube.decided, certificate.tube.decided)  # only what is read of them differs
    assert certificate.with_tube(0.2).margin == certificate.margin
    assert certirl.check(wide.save(tmp_path / "wide")).verdict == "confirmed"
    assert "farther than 0.3 from its" in str(wide)
    assert narrow.with_tube(narrow.wider_tube).holds
    with pytest.raises(ValueError, match="half_width must be a half-width strictly between 0 and 2"):
        certificate.with_tube(0.0)
    narrow.save(tmp_path / "narrow")
    assert main(["show", str(tmp_path / "narrow.npz"), "--tube", "0.3"]) == 0
    assert (
        main(["show", str(certificate.grounds[0].surrogate.reward.function.save(tmp_path / "R")), "--tube", "1"]) == 2
    )


@pytest.mark.parametrize("count", sizes(4, 12))
def test_all_tubes_together_are_false_as_rarely_as_one(problem, count):
    """Bounds at δ = ½ from few samples: in no run is the margin outside any tube above the truth."""
    asked = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "tail": 0, "tube": 0.2}
    values = next_values(problem.dynamics, problem.reward, problem.expert, GRID, discount=problem.discount)
    taken = problem.expert(GRID[:, None])
    least = np.where(np.arange(3)[:, None] == taken, np.inf, values[taken, np.arange(len(GRID))] - values).min(axis=0)
    tubes, wrong, positive = np.linspace(0.02, 0.5, 13), 0, 0
    for seed in range(count):
        found = certirl.certify(problem.reward, problem.dynamics, samples=4_000, rng=seed, delta=0.5, **asked)
        margins = np.array([found.with_tube(tube).margin for tube in tubes])
        truth = np.array([least[problem.expert.away(GRID[:, None]) > tube].min() for tube in tubes])
        wrong, positive = wrong + bool((margins > truth).any()), positive + bool((margins > 0).any())
    assert wrong == 0 and positive > count // 2


def test_saved_and_loaded_it_derives_the_same_verdict(certificate, tmp_path):
    again = load(certificate.save(tmp_path / "proof"))
    assert files.lines_of(again) == files.lines_of(certificate)
    assert again.margin == pytest.approx(certificate.margin, rel=1e-9)


@pytest.mark.fine
def test_without_a_tail_it_is_conditional_only(problem, certificate):
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "tube": 0.2}
    found = certirl.certify(problem.reward, problem.dynamics, samples=60_000, rng=0, **settings)
    assert not found.holds and found.word == "conditional" and "declare a tail" in str(found)
    assert found.margin == pytest.approx(certificate.margin)


def test_too_few_samples_are_forecast_and_the_reward_upside_down_is_never_certified(problem):
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "tail": 0, "tube": 0.2}
    few = certirl.certify(problem.reward, problem.dynamics, samples=3_000, rng=0, **settings)
    assert few.word == "not certified" and 2_400 < few.samples_needed < 60_000
    assert f"about {two_digits(few.samples_needed)} fresh transitions per action should suffice" in str(few)
    wrong = certirl.certify(lambda s: -problem.reward(s), problem.dynamics, samples=60_000, rng=0, **settings)
    assert wrong.word == "not certified" and wrong.samples_needed is None and wrong.margin < 0


def test_an_experts_assumption_becomes_the_certificates(problem):
    class Estimated:
        assumption = "the policy was estimated from 500 demonstrations"

        def __call__(self, states):
            return problem.expert(states)

    settings = {"expert": Estimated(), "discount": problem.discount, "columns": COLUMNS, "tail": 0}
    found = certirl.certify(problem.reward, problem.dynamics, samples=3_000, rng=0, **settings)
    assert "the policy was estimated from 500 demonstrations" in found.assumptions


def test_actions_that_the_expert_mixes_tie_within_a_bound():
    dynamics = certirl.problems.random_polynomial(seed=7)

    class Twin:
        """Actions 0 and 1 do the same, action 2 is the rival."""

        n_actions, domain, thread_safe = 3, dynamics.domain, True

        def sample(self, states, action, rng):
            return dynamics.sample(states, 0 if action < 2 else 1, rng)

    def expert(states):
        return np.tile([0.5, 0.5, 0.0], (len(states), 1))

    reward = certirl.solve(
        dynamics, expert=0, basis=certirl.Legendre(11), columns=3, discount=0.7, samples=9_000, rng=0
    )
    settings = {"expert": expert, "discount": 0.7, "columns": COLUMNS, "tail": 0}
    found = certirl.certify(reward.reward, Twin(), samples=60_000, rng=0, **settings)
    assert found.holds and len(found.tube.undecided) == 0
    assert 0 < found.tube.ties < 0.2 * found.estimated
    assert "ties     actions that the expert mixes differ by" in str(
        found
    ) and "takes is strictly better than all others everywhere" in str(found)


class Shifts:
    """From s to 0.8 with probability ½ + ε_a(s), else to −0.8: V(0.8) − V(−0.8) = 1 makes D_ba = ε_b − ε_a."""

    n_actions, domain, thread_safe = 3, ((-1.0, 1.0),), True
    chances = staticmethod(lambda s: (0.5 + 0.2 * s + 0.05, 0.5 + 0.2 * s, 0.5 - 0.2 * s))

    def sample(self, states, action, rng):
        return np.where(rng.random(len(states)) < self.chances(states[:, 0])[action], 0.8, -0.8)


def test_a_mixing_expert_takes_what_the_best_policy_may_not_take_and_no_more_is_said():
    def expert(states):  # action 1 is worse than action 0 by 0.05 wherever both are mixed
        return np.where(states > 0, [0.5, 0.5, 0.0], [0.0, 0.0, 1.0])

    # V(0.8) − V(−0.8) = 1, for R = V − γP_πV at the two places, up to a constant
    gained = 1 - 0.3 * (0.5 * 0.71 + 0.5 * 0.66 - 0.66)
    settings = {"expert": expert, "discount": 0.3, "columns": certirl.Legendre(2), "tail": 0, "tube": 0.3}
    found = certirl.certify(lambda s: gained * (s[:, 0] > 0), Shifts(), samples=400_000, rng=0, **settings)
    assert found.holds and 0 < found.tube.settled < 1
    assert "the best policy takes only actions that the expert takes" in str(found)
    assert "takes the expert's action" not in str(found)


def test_an_expert_that_takes_every_action_is_not_certified_in_any_word():
    settings = {"expert": lambda s: np.full((len(s), 3), 1 / 3), "discount": 0.5, "columns": certirl.Legendre(2)}
    found = certirl.certify(lambda s: s[:, 0], Shifts(), tail=0, samples=3_000, rng=0, **settings)
    assert not found.holds and found.word == "not certified"
    assert str(found).startswith("Not certified: no action is left to compare")
    assert "declare a tail" not in str(found) and "too little data" not in str(found)


class Led:
    """Next states are given places; action 0 leads to the first half of them more often."""

    n_actions, domain, thread_safe = 2, ((-1.0, 1.0),), True

    def __init__(self, *places):
        self.places = np.array(places)

    def sample(self, states, action, rng):
        half, u = len(self.places) // 2, rng.random(len(states))
        first = u < (0.7 if action == 0 else 0.3)
        return self.places[np.where(first, 0, half) + (1e6 * u).astype(int) % half]


def test_a_switch_within_a_cell_that_the_data_show_is_refused():
    """The expert errs within a hundred-thousandth of a state that is met all the time: its regret was understated."""

    def expert(states):
        return np.abs(states[:, 0] - 0.50025) < 1e-5

    settings = {"expert": expert, "discount": 0.9, "columns": certirl.Legendre(1), "tail": 0, "tube": 0.1}
    with pytest.raises(
        ValueError, match=r"takes action 1 at s = 0.50025 and nowhere around it .* within a cell.*policy_from"
    ):
        certirl.certify(lambda s: s[:, 0], Led(0.50025, -0.5), samples=4_000, rng=0, **settings)
    found = certirl.certify(lambda s: s[:, 0], Led(0.7, -0.5), samples=4_000, rng=0, **settings)
    assert found.holds  # what no data show is assumed, and said so
    assert any("takes only what it takes at one of the two" in said for said in found.assumptions)


def test_states_beside_a_switch_at_the_end_of_a_cell_are_not_taken_for_a_hidden_one():
    places = [place for i in (1, 700, 1333, 2000, 2001, 3999) for place in _beside(-1 + 2 * i / 4000)]
    for switch in (-1 + 2 * 700 / 4000, 0.0, np.linspace(-1, 1, 4001)[1333]):
        settings = {"discount": 0.5, "columns": certirl.Legendre(1), "tail": 0, "tube": 0.1, "samples": 4_000, "rng": 0}
        for expert in (lambda s, at=switch: s[:, 0] >= at, lambda s, at=switch: s[:, 0] > at):
            found = certirl.certify(lambda s: s[:, 0], Led(*places), expert=expert, **settings)
            assert len(found.tube.grid.switches) == 1


def _beside(place):
    return np.nextafter(place, -2), place, np.nextafter(place, 2), place - 1e-12, place + 1e-12


def test_the_span_of_a_value_is_bounded_with_its_rounding():
    """On a circle V differs at the two ends by R alone: a large constant leaves few digits of that difference."""
    settings = {"expert": lambda s: s[:, 0] > 0, "discount": 0.97, "columns": certirl.Fourier(3), "tail": 0}
    for constant in (0.0, 2e8):
        found = certirl.certify(
            lambda s, large=constant: 1.7666 * (s[:, 0] < 0.5) + large, Led(0.7, -0.5), samples=4_000, rng=0, **settings
        )
        assert found.value_span <= 1.7666 and (found.value_span > 1.766) == (constant == 0)


@pytest.mark.fine
def test_the_tube_is_what_brute_force_finds():
    columns = certirl.Legendre(3).on(((-1.0, 1.0),))
    line = np.linalg.solve(columns.values(np.array([[-1.0], [0.0], [1.0]])), [1.0, 0.0, -1.0])  # −s
    expert = Steps((0.1,), (0, 1))
    grid, widths = expert_grid(as_policy(expert, 2), columns.domain), np.array([0.5])
    told = Bands((a_band(columns, line, np.full(40, 0.25)),), np.array([0.2]), 1.0)
    asked = {"expert": 0, "widths": widths, "discount": 0.5}
    first = read(told, grid, allowed=0.3, **asked)
    (margin,), tube = first.margins, first.tube
    # Action 0 is proved where −s > 0.25, action 1 where s > 0.25.
    assert tube.undecided == pytest.approx(np.array([[[-0.25, 0.25]]]), abs=2e-3)
    assert tube.half_width == pytest.approx(0.35, abs=2e-3) and tube.share == pytest.approx(0.25, abs=2e-3)
    assert margin.value < 0  # at −0.2 the expert takes 0, by 0.2 ± 0.25
    assert tube.shortfall == pytest.approx(0.35, abs=2e-3)  # at 0.1 from below
    wider = read(told, grid, allowed=0.4, **asked)
    (margin,) = wider.margins
    assert margin.value == pytest.approx(0.05, abs=2e-3)
    assert margin.state == pytest.approx(-0.3, abs=2e-3) and margin.pair == (0, 1)
    assert margin.value == pytest.approx(margin.estimated - sum(margin.losses.values()))
    covered = np.linspace(-1, 1, 100_001)
    short = np.maximum(0, 0.25 - np.where(covered < 0.1, -covered, covered))
    tent = np.maximum(1e-300, 1 - np.abs(covered - 0.1) / 0.5)
    stretched = (short / tent)[short > 0].max() * 0.2
    assert wider.regret == pytest.approx(0.5 * (0.35 + min(stretched, 0.35)), rel=2e-2)
    beyond = covered[np.abs(covered) - 0.25 <= wider.regret]  # where the margin is no larger than the regret
    assert wider.tube.settled == pytest.approx(np.abs(beyond - 0.1).max(), abs=3e-3)


def test_an_expert_of_one_action_is_read_over_all_states():
    columns = certirl.Legendre(3).on(((-1.0, 1.0),))
    curve = np.linalg.solve(columns.values(np.array([[-1.0], [0.0], [1.0]])), [3.0, 1.0, 3.0])  # 1 + 2s²
    points = spread_points(columns, 40)[:, 0]
    told = Bands((a_band(columns, curve, 0.1 + 0.9 * points**2),), np.zeros(0), 0.0)
    asked = {"allowed": 0.0, "widths": np.zeros(0), "discount": 0.5}
    mine = read(told, None, expert=0, **asked)
    assert mine.tube is None and mine.regret == 0
    # The least of the curve less the largest radius is 0; state by state it is 0.9.
    assert mine.margins[0].value == pytest.approx(0.9, abs=0.05)
    other = read(told, None, expert=1, **asked)
    assert other.margins[0].pair == (1, 0) and other.margins[0].value == pytest.approx(-4.0, abs=0.05)
    assert other.regret == pytest.approx(0.5 / 0.5 * -other.margins[0].value)


def test_a_band_keeps_to_its_points_and_to_its_cells():
    columns = certirl.Legendre(4).on(((-1.0, 1.0),))
    narrow = 0.1 + 0.9 * spread_points(columns, 60)[:, 0] ** 2  # known best in the middle
    band = replace(a_band(columns, np.zeros(4), narrow), tail=0.01)
    radius, errors = band.radius(GRID[:, None], 0), np.random.default_rng(0).standard_normal((4000, 4))
    assert radius[len(GRID) // 2] < 0.25 < 0.9 < radius[0]  # far from the largest
    at_points = errors @ columns.values(spread_points(columns, 60)).T
    scaled = errors / (np.abs(at_points) / narrow).max(axis=1, keepdims=True)  # as large as the points allow
    values = np.abs(scaled @ columns.values(GRID[:, None]).T)
    assert (values <= radius - 0.01 + 1e-9).all() and (values / radius).max() > 0.9
    near = np.stack([values[:, i : len(GRID) - 8 + i] for i in range(9)]).max(axis=0)
    half = np.array([4 * (GRID[1] - GRID[0])])
    within = sum(band.losses_in_cells(CellAxes([GRID[4:-4]], [np.full(len(GRID) - 8, half[0])]), 0).values())
    assert (near <= within).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tube": 3.0}, "tube must be a half-width strictly between 0 and 2"),
        ({"columns": None}, r"pass columns=Legendre\(7\), say"),
        ({"delta": 2.0}, "delta must be a probability of error between 1e-100 and 0.5"),
        ({"expert": lambda s: (np.sin(300 * s[:, 0]) > 0).astype(int)}, "every state is within 0.05 of a state where"),
        ({"expert": lambda s: np.zeros(3)}, "asked about all states at once"),
        ({"reward_range": None, "reward": lambda s: np.full(len(s), np.nan)}, "finite at every state"),
    ],
)
def test_what_cannot_be_certified_gets_a_sentence(problem, change, sentence):
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "tail": 0} | change
    reward = settings.pop("reward", problem.reward)
    with pytest.raises(ValueError, match=sentence):
        certirl.certify(reward, problem.dynamics, samples=2_000, rng=0, **settings)


@pytest.mark.slow
def test_solve_goes_on_until_the_regret_is_as_small_as_asked(problem):
    settings = {"expert": problem.expert, "discount": problem.discount, "delta": 0.1, "tail": 0, "columns": 3}
    settings |= {"rng": 0, "samples": 400_000, "progress": False}
    any_regret, little = (certirl.solve(problem.dynamics, **settings, tube=0.2, regret=share) for share in (None, 0.01))
    assert any_regret.certificate.holds and any_regret.certificate.relative_regret > 0.01
    assert little.certificate.holds and little.certificate.relative_regret <= 0.01
    assert little.samples > any_regret.samples
    true = regret(problem.dynamics, little.reward, problem.expert, discount=problem.discount)
    assert true <= little.certificate.relative_regret
    with pytest.raises(ValueError, match="regret must be a share of the value's span strictly between 0 and 1, got 5"):
        certirl.solve(problem.dynamics, **settings, tube=0.2, regret=5)


def test_states_are_drawn_beside_the_switches_and_everywhere(problem):
    columns, asked = COLUMNS.on(problem.dynamics.domain), {"n_actions": 3, "discount": 0.9, "tail": 0, "tube": 0.05}
    states = Case.of(problem.expert, columns, **asked).design(20_000, np.random.default_rng(0))
    plain = Even((columns,))(20_000, np.random.default_rng(0))
    beside, expected = ((problem.expert.away(one) < 0.1).mean() for one in (states, plain))
    assert beside == pytest.approx(0.3 + 0.7 * expected, abs=0.02)
    assert np.abs(states).max() <= 1 and np.ptp(states) > 1.99
    assert isinstance(Case.of(lambda s: np.zeros(len(s), int), columns, **asked).design, Even)


def test_solve_draws_until_it_is_proved_and_keeps_the_proof(problem, tmp_path):
    settings = {"expert": problem.expert, "discount": problem.discount, "delta": 0.1, "tail": 0, "columns": 3}
    solution = certirl.solve(problem.dynamics, tube=0.2, rng=0, samples=100_000, progress=False, **settings)
    assert solution.status == "certified" and solution.certificate.holds
    truth = experiment.advantages(problem, solution.reward, problem.expert)
    assert truth[problem.expert.away(experiment.GRID) > 0.2].min() > solution.certificate.margin > 0
    assert sum(solution.certificate.spending.values()) == pytest.approx(0.1)
    again = certirl.load(solution.save(tmp_path / "s"))
    assert files.lines_of(again) == files.lines_of(solution)
    with pytest.raises(ValueError, match="belongs to the columns it was computed for"):
        certirl.solve(problem.dynamics, rng=0, **settings | {"columns": None})
    assert replace(solution, certificate=None).certificate is None


@pytest.mark.parametrize("paired", [True, False])
def test_a_log_is_divided_and_certified_too(problem, paired):
    columns = COLUMNS.on(problem.dynamics.domain)
    log = certirl.steps.sample(problem.dynamics, basis=columns, samples=60_000, rng=3, design=True, paired=paired)
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": columns, "tail": 0, "tube": 0.2}
    found = certirl.certify(problem.reward, log, **settings)
    assert found.grounds[0].evidence.paired == paired and found.samples in range(47_000, 48_500)
    truth = experiment.advantages(problem, problem.reward, problem.expert)
    assert found.margin < truth[problem.expert.away(experiment.GRID) > 0.2].min()
    assert found.holds


def test_solve_finds_with_one_part_of_a_log_and_proves_with_the_other(problem):
    columns = COLUMNS.on(problem.dynamics.domain)
    log = certirl.steps.sample(problem.dynamics, basis=columns, samples=90_000, rng=3, design=True, paired=True)
    settings = {"expert": problem.expert, "discount": problem.discount, "delta": 0.1, "tail": 0, "columns": 3}
    solution = certirl.solve(log, tube=0.2, **settings)
    assert solution.status == "certified" and solution.certificate.samples == 63_000
    truth = experiment.advantages(problem, solution.reward, problem.expert)
    assert truth[problem.expert.away(experiment.GRID) > 0.2].min() > solution.certificate.margin > 0


def test_a_log_with_ends_is_no_ground_for_a_proof(problem):
    log = certirl.Transitions(
        [0.0, 0.1, 0.2], [0, 1, 2], [0.1, 0.2, 0.3], domain=(-1, 1), terminal=[True, False, False]
    )
    with pytest.raises(ValueError, match="for problems without terminal states"):
        certirl.certify(problem.reward, log, expert=problem.expert, discount=0.9, columns=COLUMNS, tail=0)


def test_all_steps_of_episodes_are_ground_for_a_proof(problem):
    drawn = certirl.steps.sample(problem.dynamics, basis=COLUMNS, samples=3_000, rng=3, design=True)
    given = {"domain": drawn.domain, "n_actions": 3}
    settings = {"expert": problem.expert, "discount": 0.9, "columns": COLUMNS, "tail": 0}
    rows = (drawn.states, drawn.actions, drawn.next_states)
    halves = certirl.Transitions(*rows, episodes=np.arange(len(drawn)) // 2, **given)
    certificate = certirl.certify(problem.reward, halves, **settings)
    assert certificate.samples > 0.7 * 3_000 and EPISODES in certificate.assumptions
    apart = certirl.Transitions(*rows, episodes=np.arange(len(drawn)), **given)
    plain = certirl.Transitions(*rows, **given)
    one, other = (certirl.certify(problem.reward, log, **settings) for log in (apart, plain))
    assert one.margin == other.margin


@pytest.mark.slow
def test_the_regret_that_was_asked_for_is_mentioned_where_it_was_missed(problem):
    settings = {"expert": problem.expert, "discount": problem.discount, "delta": 0.1, "tail": 0, "columns": 3}
    settings |= {"rng": 0, "samples": 40_000, "progress": False}
    missed = certirl.solve(problem.dynamics, **settings, tube=0.2, regret=1e-4)
    assert missed.certificate.holds and "(0.01% was asked for: allow more samples)" in str(missed)
    met = certirl.solve(problem.dynamics, **settings, tube=0.2, regret=0.5)
    assert "was asked for" not in str(met)


def test_no_bound_is_no_number(problem):
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "tail": 0, "tube": 0.2}
    few = certirl.certify(problem.reward, problem.dynamics, samples=60, rng=0, **settings)
    assert not np.isfinite(few.margin) and not few.holds
    assert str(few).startswith("Not certified: too little data for any bound farther than 0.2 from its")
    assert "regret   no bound yet" in str(few) and "inf" not in str(few)
    assert few.value_span == 0 and few.regret == few.relative_regret == np.inf


def test_a_tail_that_is_too_large_is_said_to_be_so_and_ends_the_search(problem):
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "rng": 0}
    asked = settings | {"samples": 20_000, "tube": 0.2}
    with pytest.raises(ValueError, match=f"^{COLUMNS.size} columns give τ = 0.5; with discount="):
        certirl.certify(problem.reward, problem.dynamics, tail=0.5, **asked)
    proof = certirl.certify(problem.reward, problem.dynamics, tail=0.01, **asked)
    assert np.isfinite(proof.margin) and not proof.holds and 0 < proof.tail_needed < 0.01
    words = f"{COLUMNS.size} columns give τ = 0.01; this margin needs τ < "
    assert proof.missing.startswith(words) and proof.missing.endswith("declare a smaller tail, or use more columns")
    assert certirl.certify(problem.reward, problem.dynamics, tail=0.5 * proof.tail_needed, **asked).samples_needed
    solution = certirl.solve(problem.dynamics, tail=0.03, delta=0.05, tube=0.2, **settings)
    assert words[:16] in str(solution) and solution.samples < 10_000 and not solution.certificate.holds
    known = certirl.solve(
        problem.dynamics,
        tail=lambda columns: 0.03 * 0.5 ** (columns.size - COLUMNS.size),
        delta=0.05,
        tube=0.2,
        **settings,
    )
    assert re.search(r"needs τ < .*: use at least \d+ columns \(τ = ", known.reason)


def test_the_verdict_of_a_file_is_derived_not_read(problem, tmp_path):
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "tail": 0, "tube": 0.2}
    wrong = certirl.certify(lambda s: -problem.reward(s), problem.dynamics, samples=6_000, rng=0, **settings)
    claimed = replace(wrong, margin=1.0).save(tmp_path / "claimed")
    with pytest.raises(ValueError, match="larger than what follows from the sums, -"):
        load(claimed)
    assert load(wrong.save(tmp_path / "wrong")).word == "not certified"


@pytest.mark.fine
def test_the_tube_must_be_as_large_as_a_cell(problem):
    settings = {"expert": problem.expert, "discount": problem.discount, "columns": COLUMNS, "tail": 0}
    with pytest.raises(ValueError, match=r"tube must be at least 0.0005, the size of the cells"):
        certirl.certify(problem.reward, problem.dynamics, samples=6_000, rng=0, tube=1e-5, **settings)


def test_probabilities_add_up_exactly(problem):
    policy = as_policy(lambda s: np.tile([0.5, 0.5 + 9e-7, 0.0], (len(s), 1)), 3)
    assert np.abs(policy.probabilities(GRID[:, None]).sum(axis=1) - 1).max() < 1e-15


@pytest.mark.thinned(3)
@pytest.mark.parametrize("budget", [120, 200, 250])
def test_a_budget_too_small_for_any_policy_is_refused_at_once(budget):
    room = certirl.problems.comfort()
    asked = {"expert": room.expert, "discount": 0.9, "columns": 3, "tail": 0, "delta": 0.05, "rng": 0}
    with pytest.raises(ValueError, match="samples must be at least 400 for 3 columns"):
        certirl.solve(room.dynamics, samples=budget, **asked)
    assert certirl.solve(room.dynamics, samples=400, **asked).status != "certified"


def test_tents_are_as_wide_in_tubes_whatever_the_unit_of_the_state(problem):
    """They must cover the tube: a wide tube has wide tents."""
    asked = {"n_actions": 3, "discount": 0.9, "tail": 0.0}
    one, two = (Case.of(problem.expert, COLUMNS, tube=tube, **asked) for tube in (0.1, 0.2))
    assert two.widths == pytest.approx(2 * one.widths) and two.widths.max() >= 0.2
