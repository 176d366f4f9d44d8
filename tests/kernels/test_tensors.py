"""Data on a device give the same sums as data in NumPy, to the stated error. Run here on torch's CPU device."""

import numpy as np
import pytest

import certirl
from certirl.data.dependence import can_pair
from certirl.data.moments import accumulate
from certirl.data.simulator import draw
from certirl.data.transitions import TensorTransitions
from certirl.functions.components import SumBasis, as_components
from certirl.kernels import tensors
from certirl.kernels.sums import StackedSums
from certirl.problems import random_polynomial
from devices import on_device
from refusals import refused

torch = pytest.importorskip("torch")
PROBLEM = random_polynomial(seed=3)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FAMILIES = [certirl.Fourier, certirl.Legendre, certirl.Chebyshev]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("k", "ks", "n"), [(1, 1, 5), (5, 3, 1), (6, 4, 700), (11, 11, 5000), (25, 25, 3000)])
def test_sums_agree_with_double_precision_to_the_stated_error(family, k, ks, n):
    rng = np.random.default_rng(0)
    bases = [family(k).on(((2.0, 5.0),)), family(ks).on(((2.0, 5.0),))]
    states = [np.clip(rng.uniform(1.9, 5.1, (n, 1)), 2, 5).astype(np.float32) for _ in bases]
    sums, exact = tensors.TensorSums(bases, DEVICE), StackedSums(bases)
    sums.add(*(torch.tensor(s, device=DEVICE) for s in states))
    exact.add(*(s.astype(float) for s in states))
    for (i, j), block in exact.blocks().items():
        reach = sums.error * n * np.outer(bases[i].sup(), bases[j].sup())
        assert (np.abs(sums.blocks()[i, j] - block) <= reach).all()
    assert sums.n == n


def test_adding_in_parts_is_adding_at_once():
    basis = certirl.Legendre(7).on(PROBLEM.domain)
    s = torch.rand(3000, 1, device=DEVICE) * 2 - 1
    parts, whole = tensors.TensorSums([basis, basis], DEVICE), tensors.TensorSums([basis, basis], DEVICE)
    whole.add(s, -s)
    for part in torch.split(s, 999):
        parts.add(part, -part)
    for pair, block in whole.blocks().items():
        assert np.allclose(block, parts.blocks()[pair], atol=2 * whole.error * 3000 * 6)


def test_the_law_drawn_on_a_device_is_the_problem_s():
    ours = on_device(PROBLEM, DEVICE)
    for action in range(3):
        for state in (0.0, 0.3, -0.8, 1.0):
            rng = torch.Generator(DEVICE).manual_seed(action)
            drawn = ours.sample(torch.full((200_000, 1), state, device=DEVICE), action, rng)
            drawn = np.sort(drawn.double().cpu().numpy())
            y, w = np.polynomial.legendre.leggauss(30)
            points = drawn[:: len(drawn) // 50]
            half = (points + 1) / 2
            density = PROBLEM.density((np.outer(half, y) + half[:, None] - 1).ravel(), np.array([state]), action)
            F = half * (density.reshape(len(points), -1) @ w)
            observed = np.searchsorted(drawn, points, side="right") / len(drawn)
            assert np.abs(F - observed).max() < 1.95 / np.sqrt(len(drawn))  # Kolmogorov's bound, 1 in 1000


def test_the_table_of_a_device_is_within_a_millionth_of_the_law():
    from certirl.problems.dynamics import chords, distribution
    from devices import DeviceChords

    u = np.linspace(0, 1, 20_001, dtype=np.float32)[:-1]
    for seed in range(5):
        problem = random_polynomial(seed=seed)
        table = DeviceChords(chords(problem.centre[0], problem.edge[0]), DEVICE)
        for which, density in enumerate((problem.centre[0], problem.edge[0])):
            chosen = torch.full((len(u),), bool(which), device=DEVICE)
            x = table._invert(torch.tensor(u, device=DEVICE), chosen).double().cpu().numpy()
            assert np.abs(distribution(density, x) - u).max() < 1e-6


@pytest.mark.parametrize("paired", [False, True])
def test_moments_of_draws_on_a_device_are_within_the_sampling_error(paired):
    basis, n = certirl.Legendre(5).on(PROBLEM.domain), 400_000
    ours = on_device(PROBLEM, DEVICE)
    assert can_pair(ours, basis, 0)
    ((moments,),) = accumulate(draw(ours, basis, n, 0, paired=paired), [(basis, basis)], n_actions=3)
    assert moments.counts.tolist() == [n] * 3 and moments.paired == paired
    Z = certirl.steps.estimate(moments, form="mean").Z
    assert np.abs(Z - PROBLEM.operators(basis).Z).max() < 6 * 4.5 / np.sqrt(n)


@pytest.mark.slow
def test_solve_takes_a_simulator_on_a_device():
    solution = certirl.solve(on_device(PROBLEM, DEVICE), expert=0, discount=0.7, samples=100_000, rng=0)
    assert solution.status == "solved"
    assert PROBLEM.true_margin(solution.reward, discount=0.7) > 0


def test_on_the_host_states_lie_in_the_domain_to_the_last_bit():
    from certirl.data.transitions import Piece
    from certirl.ground.domain import as_domain

    edge = torch.full((2500, 1), 0.3, device=DEVICE)  # above 0.3 in double precision
    pieces = list(tensors.on_host([Piece((0,), edge, edge[None])], as_domain((0.0, 0.3)), 1000))
    assert [len(piece.states) for piece in pieces] == [1000, 1000, 500]
    assert max(piece.states.max() for piece in pieces) == 0.3 == max(piece.next_states.max() for piece in pieces)


def test_draws_are_the_same_each_time_and_in_chunks():
    ours, basis = on_device(PROBLEM, DEVICE), certirl.Legendre(3)
    stream = draw(ours, basis, 1000, 7, paired=True)
    first, again = list(stream), [piece for chunk in stream.chunks() for piece in chunk.pieces()]
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.states, other.states) and torch.equal(one.next_states, other.next_states)


def test_a_log_of_tensors_has_the_moments_of_the_same_log_in_numpy():
    rng, n = np.random.default_rng(1), 20_000
    log = certirl.Transitions(
        rng.uniform(-1, 1, n).astype(np.float32),
        rng.integers(0, 2, n),
        rng.uniform(-1, 1, n).astype(np.float32),
        domain=(-1, 1),
        n_actions=2,
    )
    tensor_log = TensorTransitions(
        *(torch.tensor(x, device=DEVICE) for x in (log.states, log.actions, log.next_states)),
        domain=(-1, 1),
        n_actions=2,
    )
    ours, theirs = (certirl.steps.measure(x, basis=certirl.Legendre(6)) for x in (tensor_log, log))
    for name in ("counts", "gram", "cross", "outer"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name), atol=1e-6 * n)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"states": torch.zeros(3)}, "equally long"),
        ({"actions": torch.tensor([0, 5])}, "whole numbers 0 … 1"),
        ({"actions": torch.tensor([0.0, 1.0])}, "whole numbers 0 … 1"),
        ({"next_states": torch.tensor([0.0, float("nan")])}, "inside the domain"),
        ({"states": [0.0, 1.0]}, "must be a torch tensor"),
    ],
)
def test_a_wrong_log_of_tensors_is_a_sentence(change, sentence):
    good = {"states": torch.zeros(2), "actions": torch.tensor([0, 1]), "next_states": torch.zeros(2)}
    with pytest.raises((ValueError, TypeError), match=sentence):
        TensorTransitions(**{**good, **change}, domain=(-1, 1), n_actions=2)


def test_a_certificate_of_a_simulator_on_a_device_is_true():
    solution = certirl.solve(
        on_device(random_polynomial(seed=7), DEVICE),
        expert=0,
        discount=0.7,
        basis=certirl.Legendre(11),
        columns=3,
        delta=0.05,
        tail=0,
        samples=200_000,
        rng=0,
    )
    assert solution.status == "certified"
    assert random_polynomial(seed=7).true_margin(solution.reward, discount=0.7) >= solution.certificate.margin


class Broken:
    n_actions, domain, device = 2, ((-1.0, 1.0),), DEVICE

    def __init__(self, answer):
        self.answer = answer

    def sample(self, states, action, rng):
        return self.answer(states)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda s: s * float("nan"), "must be numbers inside the domain"),
        (lambda s: s + 3, "must be numbers inside the domain"),
        (lambda s: s.cpu().numpy(), "must be a torch tensor"),
        (lambda s: s[:5], "returned 5"),
        (lambda s: torch.cat([s, s], dim=1), "must have shape"),
    ],
)
def test_a_wrong_answer_is_a_sentence(answer, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        next(iter(draw(Broken(answer), certirl.Legendre(3), 100, 0)))


def test_bits_and_other_bases_are_refused_on_a_device():
    refused("leave bits out", on_device, random_polynomial(seed=0, bits=8), DEVICE)
    with pytest.raises(TypeError, match="on a device, sums are for"):
        tensors.TensorSums([object()], DEVICE)


SUMS = certirl.problems.factorised(seed=2, components=3)


def test_states_of_several_coordinates_are_drawn_from_the_law_of_each():
    bases = [certirl.Legendre(5), certirl.Fourier(5), certirl.Chebyshev(5)]
    places = SumBasis(as_components([[2], [0], [1]], bases, ((0.0, 1.0), (2.0, 4.0), (-1.0, 1.0))))
    rng = torch.Generator(DEVICE).manual_seed(0)
    drawn = tensors.draw_states(places, 200_000, rng, design=True).double().cpu().numpy()
    expected = places.design(200_000, np.random.default_rng(0))
    for own, other in zip(drawn.T, expected.T, strict=True):
        assert np.abs(np.quantile(own, np.linspace(0, 1, 21)) - np.quantile(other, np.linspace(0, 1, 21))).max() < 0.02
    assert np.abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 0.01


@pytest.mark.slow
def test_components_are_solved_and_certified_on_a_device():
    settings = {"components": SUMS.components, "columns": 3, "discount": 0.7, "rng": 0}
    plain = certirl.solve(on_device(SUMS, DEVICE), expert=0, samples=10_000, **settings)
    assert plain.status == "solved" and SUMS.true_margin(plain.reward, discount=0.7) > 0
    assert "components independent" in str(plain)
    proved = certirl.solve(on_device(SUMS, DEVICE), expert=0, delta=0.05, tail=0, samples=60_000, **settings)
    truth = SUMS.true_margins(proved.reward, discount=0.7)
    assert proved.status == "certified" and (proved.certificate.bounds.sum(axis=0) <= truth).all()


def test_a_component_of_two_coordinates_is_measured_on_the_host():
    class Drift:
        n_actions, domain, device = 2, ((-1.0, 1.0),) * 3, DEVICE

        def sample(self, states, action, rng):
            noise = torch.randn(states.shape, generator=rng, device=rng.device)
            return (0.5 * states + 0.2 * (1 - 2 * action) + 0.3 * noise).clamp(-1, 1)

    found = certirl.solve(
        Drift(), expert=0, components=[[0], [1, 2]], discount=0.7, samples=5_000, columns=[3, 6], rng=0
    )
    assert found.status == "solved" and found.reward([1.0, 1.0, 1.0]) > found.reward([-1.0, -1.0, -1.0])
