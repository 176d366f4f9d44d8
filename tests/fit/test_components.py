"""solve(components=…): sums of rewards from simulators and logs, their certificates, files and errors."""

import numpy as np
import pytest

import certirl
import files
from certirl.data.moments import accumulate, measure
from certirl.data.simulator import draw
from certirl.data.transitions import Transitions
from certirl.functions.components import SumBasis, as_components
from certirl_check import check
from sizes import sizes

PROBLEM = certirl.problems.factorised(seed=0, components=3)
FULL = [certirl.Legendre(5), certirl.product(certirl.Legendre(3), certirl.Legendre(3), index="full")]
NAMED = {"place": [0], "speed": [1], "heat": [2]}
SETTINGS = {"components": NAMED, "discount": 0.7, "columns": 3, "rng": 0}


@pytest.fixture(scope="module")
def estimated_sum():
    return certirl.solve(PROBLEM, expert=0, samples=10_000, **SETTINGS)


@pytest.fixture(scope="module")
def certified_sum():
    return certirl.solve(PROBLEM, expert=0, delta=0.05, tail=0, samples=60_000, **SETTINGS)


def log_of(problem, samples, *, paired, seed=0):
    parts = as_components(problem.components, certirl.Legendre(11), problem.domain)
    stream = list(draw(problem, SumBasis(parts), samples, seed, design=True, paired=paired))
    return Transitions(
        np.concatenate([np.tile(p.states, (len(p.actions), 1)) for p in stream]),
        np.concatenate([np.repeat(p.actions, len(p.states)) for p in stream]),
        np.concatenate([p.next_states.reshape(-1, len(problem.domain)) for p in stream]),
        domain=problem.domain,
        n_actions=problem.n_actions,
        paired=paired,
    )


def test_the_contract(estimated_sum):
    assert estimated_sum.status == "solved" and estimated_sum.margin == pytest.approx(1)
    assert [own.name for own in estimated_sum.components] == list(NAMED) and estimated_sum.samples == 10_000
    states = np.random.default_rng(0).uniform(-1, 1, (5, 3))
    assert estimated_sum.reward(states).shape == (5,) and isinstance(estimated_sum.reward(states[0]), float)
    parts = [estimated_sum.reward[name](states[:, j]) for j, name in enumerate(NAMED)]
    np.testing.assert_allclose(estimated_sum.reward(states), np.sum(parts, axis=0))
    assert PROBLEM.true_margin(estimated_sum.reward, discount=0.7) > 0


def test_the_print_names_the_components_and_never_says_more_than_is_known(estimated_sum):
    lines = str(estimated_sum).splitlines()
    assert len(lines) == 7 and lines[0].startswith("Solved, not certified")
    assert "R(place) + R(speed) + R(heat)" in lines[1] and "speed" in lines[2]
    assert "components independent as far as 4,000 transitions tell" in lines[-1]


def test_a_certificate_is_true_and_prints_what_it_assumes(certified_sum):
    assert certified_sum.status == "certified" and certified_sum.certificate.word == "certified"
    truth = PROBLEM.true_margins(certified_sum.reward, discount=0.7)
    bounds = certified_sum.certificate.bounds.sum(axis=0)
    assert (bounds <= truth).all() and 0 < certified_sum.certificate.margin == pytest.approx(bounds.min())
    for j, part in enumerate(PROBLEM.parts):  # every component's own bound holds too
        own = part.true_margins(certified_sum.reward.parts[j], discount=0.7)
        assert (certified_sum.certificate.bounds[j] <= own + 1e-12).all()
    assert certified_sum.certificate.delta == pytest.approx(0.05)
    grounds = certified_sum.certificate.grounds
    assert len(grounds) > 1 and len({ground.delta for ground in grounds}) == 1  # evenly
    assert sum(ground.delta for ground in grounds) <= certified_sum.certificate.delta
    assert "depends on its own state alone" in str(certified_sum)
    losses = sum(certified_sum.certificate.losses.values())
    assert certified_sum.certificate.estimated - losses == pytest.approx(certified_sum.certificate.margin)


def test_without_a_tail_it_is_conditional_at_best():
    found = certirl.solve(PROBLEM, expert=0, delta=0.05, samples=60_000, **SETTINGS)
    assert found.status == "solved" and found.certificate.word == "conditional"
    assert "NOT DECLARED" in str(found) and "declare a tail" in str(found)


@pytest.mark.parametrize("count", sizes(1, 3))
def test_no_unsolvable_problem_is_certified(count):
    for seed in range(count):
        problem = certirl.problems.factorised(seed=seed, components=4, solvable=False)
        settings = SETTINGS | {"components": problem.components, "rng": seed}
        found = certirl.solve(problem, expert=0, delta=0.2, tail=0, samples=20_000, **settings)
        assert found.status in ("solved", "undetermined") and not (found.certificate and found.certificate.holds)


def test_too_little_data_says_how_much_would_do():
    found = certirl.solve(PROBLEM, expert=0, delta=0.05, tail=0, samples=3_000, **SETTINGS)
    assert found.status == "solved" and not found.certificate.holds
    assert found.certificate.samples_needed > 2_100 and "should suffice" in str(found)


@pytest.mark.parametrize("paired", sizes(True, False))
def test_a_log_is_as_good_as_the_simulator(paired):
    log = log_of(PROBLEM, 40_000, paired=paired)
    settings = {name: value for name, value in SETTINGS.items() if name != "rng"}
    plain = certirl.solve(log, expert=0, **settings)
    assert plain.samples == 40_000 and PROBLEM.true_margin(plain.reward, discount=0.7) > 0.5
    proved = certirl.solve(log, expert=0, delta=0.05, tail=PROBLEM.tail, **settings)
    assert proved.samples == 40_000 and proved.certificate.samples == pytest.approx(28_000, rel=0.01)
    assert proved.certificate.margin <= PROBLEM.true_margin(proved.reward, discount=0.7)
    assert (proved.status == "certified") == (proved.certificate.margin > 0) == paired  # pairs are worth that much


def test_a_short_log_is_solved_without_a_test_of_independence():
    found = certirl.solve(log_of(PROBLEM, 150, paired=True), expert=0, components=NAMED, columns=3, discount=0.7)
    assert found.status == "solved" and "too few transitions to test" in str(found)


def test_all_components_are_measured_in_one_walk_as_if_each_were_alone():
    log = log_of(PROBLEM, 3_000, paired=True)
    walks = []

    def counted():
        walks.append(1)
        yield from log

    pairs = [(certirl.Legendre(7), certirl.Legendre(3))] * 3
    together = accumulate(counted(), pairs, n_actions=3, views=[[0], [1], [2]])
    assert len(walks) == 1
    for j, (own,) in enumerate(together):
        alone = Transitions(
            log.states[:, j], log.actions, log.next_states[:, j], domain=(-1, 1), n_actions=3, paired=True
        )
        expected = measure(alone, basis=certirl.Legendre(7), columns=3)
        np.testing.assert_allclose(own.cross, expected.cross, atol=1e-9)
        np.testing.assert_allclose(own.outer, expected.outer, atol=1e-9)


def test_files_give_back_what_was_saved(estimated_sum, certified_sum, tmp_path):
    states = np.random.default_rng(0).uniform(-1, 1, (4, 3))
    reward = certirl.load(estimated_sum.reward.save(tmp_path / "reward"))
    np.testing.assert_array_equal(reward(states), estimated_sum.reward(states))
    problem = certirl.problems.factorised(seed=1, components=2, solvable=False)
    conflict = certirl.solve(Mirrored(problem), expert=0, components=[[0], [1]], discount=0.7, columns=3, rng=0)
    assert conflict.status == "infeasible" and conflict.reward is None
    for number, solution in enumerate((estimated_sum, certified_sum, conflict)):
        again = certirl.load(solution.save(tmp_path / str(number)))
        assert files.lines_of(again) == files.lines_of(solution)
    np.testing.assert_array_equal(certirl.load(tmp_path / "1.npz").certificate.bounds, certified_sum.certificate.bounds)
    np.testing.assert_array_equal(certirl.load(tmp_path / "0.npz").margins(states), estimated_sum.margins(states))
    (tmp_path / "0.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged"):
        certirl.load(tmp_path / "0.npz")


class Mirrored:
    """A simulator whose rival does exactly as the expert does: common random numbers show it exactly."""

    n_actions = 2

    def __init__(self, problem):
        self.problem, self.domain = problem, problem.domain

    def sample(self, states, action, rng):
        return self.problem.sample(states, 0, rng)


def _forget_a_component(header, arrays):
    header["certificate"]["grounds"].pop()


def _count_one_twice(header, arrays):
    grounds = header["certificate"]["grounds"]
    own, again = "certificate.grounds.0.", f"certificate.grounds.{len(grounds)}."
    grounds.append(grounds[0])
    arrays |= {again + name.removeprefix(own): array for name, array in arrays.items() if name.startswith(own)}


def _share_a_coordinate(header, arrays):
    header["reward"]["basis"]["components"][1]["coordinates"] = [0]


def _change_it_everywhere(header, arrays):
    for ground in range(len(header["certificate"]["grounds"])):
        arrays[f"certificate.grounds.{ground}.surrogate.reward.function.coefficients"] *= 2
    arrays["reward.coefficients"] = arrays["reward.coefficients"] * 2


def _look_at_less(header, arrays):
    arrays["certificate.grounds.0.evidence.counts"] = arrays["certificate.grounds.0.evidence.counts"] * 2


TAMPERED = [  # of one component alone; what is altered in all of them is in tests/checker
    (_forget_a_component, "has no bound"),
    (_count_one_twice, "not groups of different coordinates"),
    (_share_a_coordinate, "is about another reward than its solution"),
    (_change_it_everywhere, "the sums were made with a V from"),
    (_look_at_less, "not looked at in the same transitions"),
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("change", "reason"), TAMPERED, ids=[change.__name__ for change, _ in TAMPERED])
def test_no_changed_sum_is_confirmed(certified_sum, change, reason, tmp_path):
    record, arrays = files.parts(certified_sum.save(tmp_path / "sum"))
    change(record, arrays)
    found = check(files.write(tmp_path / "changed.npz", record, arrays))
    assert found.verdict == "rejected" and reason in str(found)


def test_dependent_components_are_warned_about_and_never_certified():
    class Leaking(Mirrored):
        def sample(self, states, action, rng):
            return np.clip(self.problem.sample(states, action, rng) * 0.8 + 0.2 * states[:, ::-1], -1, 1)

    problem = certirl.problems.factorised(seed=0, components=2)
    settings = SETTINGS | {"components": [[0], [1]]}
    with pytest.warns(UserWarning, match="NOT independent"):
        found = certirl.solve(Leaking(problem), expert=0, delta=0.5, tail=0, samples=60_000, **settings)
    assert found.status == "undetermined" and "see certirl.diagnose.components" in found.reason
    assert str(found).startswith("Undetermined: components NOT independent")


def test_columns_and_bases_may_differ():
    bases = [certirl.Legendre(9), certirl.Chebyshev(7), certirl.Legendre(11)]
    found = certirl.solve(
        PROBLEM, expert=0, components=[[2], [0], [1]], basis=bases, columns=[3, 4, 3], discount=0.7, rng=0
    )
    sizes = [own.columns.size for own in found.components]
    assert sizes == [3, 4, 3] and [own.name for own in found.components] == ["s2", "s0", "s1"]
    assert [part.basis.kind for part in found.reward.parts] == ["Legendre", "Chebyshev", "Legendre"]
    states = np.random.default_rng(0).uniform(-1, 1, (3, 3))
    np.testing.assert_allclose(found.reward(states), sum(found.reward[f"s{c}"](states[:, c]) for c in range(3)))
    free = certirl.solve(PROBLEM, expert=0, components=[[0], [1], [2]], discount=0.7, samples=3_000, rng=0)
    assert "held-out" in free.stats.choice and PROBLEM.true_margin(free.reward, discount=0.7) > 0


def test_intervals_and_families_of_each_component_are_its_own():
    class Mixed:
        n_actions, domain = 2, ((0.0, 10.0), (-np.pi, np.pi))

        def sample(self, states, action, rng):
            warm = np.clip(5 + (1.5 - 3 * action) + rng.normal(size=len(states)), 0, 10)
            angle = np.mod(0.3 * rng.normal(size=len(states)) + np.pi, 2 * np.pi) - np.pi
            return np.stack([warm, angle], axis=1)

    bases = [certirl.Legendre(7), certirl.Fourier(5)]
    found = certirl.solve(
        Mixed(), expert=0, components={"heat": [0], "angle": [1]}, basis=bases, columns=3, discount=0.9, rng=0
    )
    assert found.status == "solved" and found.reward["heat"](9.0) > found.reward["heat"](1.0)
    heat, angle = found.contributions  # the angle does not tell the actions apart
    assert abs(angle).max() < 0.2 * heat.min()


def test_the_truth_of_a_factorised_problem_is_the_minimum_over_whole_states(estimated_sum):
    reward, states = estimated_sum.reward, np.linspace(-1, 1, 41)
    curves = [part.margins(own, states, discount=0.7) for part, own in zip(PROBLEM.parts, reward.parts, strict=True)]
    whole = curves[0][:, :, None, None] + curves[1][:, None, :, None] + curves[2][:, None, None, :]
    truth = PROBLEM.true_margin(reward, discount=0.7)
    assert truth <= whole.min() + 1e-12 and whole.min() - truth < 5e-3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"components": [[0], [0, 1], [2]]}, "coordinate 0 belongs to two components, s0 and s0 s1"),
        ({"components": [[0], [1]]}, "coordinate 2 belongs to no component"),
        ({"components": [[0], [1], [3]]}, "component s3 names coordinate 3, but states have 0 … 2"),
        ({"components": [[0], [1], ["x"]]}, "names coordinate 'x'"),
        ({"components": []}, "components must be lists of coordinates"),
        ({"components": [0, 1, 2]}, "a component is a list of coordinates such as"),
        ({"components": [[0], [1, 2]], "basis": FULL, "columns": [3, 8], "delta": 0.1}, "hold every simpler product"),
        ({"components": [[0], [1, 2]], "basis": certirl.Legendre(5, (-1, 1))}, "is for one coordinate, but the domain"),
        ({"basis": [certirl.Legendre(5)] * 2}, "3 components but 2 bases"),
        ({"columns": [3, 3]}, "3 components but 2 numbers of columns"),
        ({"columns": 30}, "columns must be a whole number of functions of the basis, at most 11"),
        ({"basis": certirl.Legendre(5, (0, 1))}, "the basis is defined on"),
        ({"method": certirl.Program(cover=0.1)}, "leave form, cover and slack out"),
        ({"delta": 0.05, "samples": 10}, "samples must be at least 160"),
    ],
)
def test_wrong_calls_are_sentences(settings, sentence):
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        certirl.solve(PROBLEM, expert=0, **SETTINGS | settings)


def test_wrong_types_are_sentences(estimated_sum):
    with pytest.raises(TypeError, match="basis must be a basis"):
        certirl.solve(PROBLEM, expert=0, **SETTINGS, basis=["Legendre"] * 3)
    with pytest.raises(ValueError, match=r"components=\[\[0\], \[1\], \[2\], \[3\]\]"):
        certirl.solve(certirl.problems.factorised(seed=0, components=4), expert=0, discount=0.7, rng=0, delta=0.05)
    data = certirl.steps.sample(PROBLEM.parts[0], basis=certirl.Legendre(5), samples=500, rng=0)
    moments = certirl.steps.measure(data, basis=certirl.Legendre(5))
    with pytest.raises(ValueError, match="moments keep one coordinate alone"):
        certirl.solve(moments, expert=0, components=[[0]], discount=0.7)
    with pytest.raises(KeyError, match="no component 'light'"):
        estimated_sum.reward["light"]
    with pytest.raises(ValueError, match="computed for one to three coordinates at once, not 4"):
        certirl.problems.factorised(seed=0, components=4).true_margin(lambda s: s[:, 0], discount=0.7)
