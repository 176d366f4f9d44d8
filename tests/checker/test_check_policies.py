"""The second opinion on experts who switch: it agrees with honest certificates and contradicts altered ones."""

import math
from fractions import Fraction

import numpy as np
import pytest

import certirl
from certirl import cli
from certirl.checker import bands as check_bands
from certirl.checker import enclosures, rational
from certirl.checker import policies as check_policies
from certirl.checker import records as check_records
from certirl.checker.files import check as check_policy
from certirl.checker.files import main
from certirl.data.expert_grid import CELLS_ALONG
from certirl.functions import inequalities as concentration
from certirl.functions.bases import Chebyshev, Fourier, Legendre
from certirl.functions.products import lifted, product_basis
from certirl.problems import comfort, optimal_policy
from certirl.proof.policy_bounds import bands
from files import owner, parts, place, write

CLAIMS = ("regret", "settled", "half_width", "share", "ties")


def wish(states):
    return -abs(states[:, 0] - 0.3)


@pytest.fixture(scope="module")
def dynamics():
    return certirl.problems.random_polynomial(seed=13)


@pytest.fixture(scope="module")
def expert(dynamics):
    return optimal_policy(dynamics, wish, discount=0.8)


def certify(dynamics, expert, cells=400, **changes):
    """A certificate whose tube is read off fewer cells than usual, to be quick."""
    settings = {"columns": Legendre(3), "tail": 0, "samples": 30_000, "rng": 1, "discount": 0.8, "tube": 0.2} | changes
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CELLS_ALONG, 1, cells)
        return certirl.certify(settings.pop("reward", wish), dynamics, expert=expert, **settings)


@pytest.fixture(scope="module")
def certificate(dynamics, expert):
    return certify(dynamics, expert)


@pytest.fixture
def copy(certificate, tmp_path):
    return parts(certificate.save(tmp_path / "whole"))


def agreed(path, certificate, verdict):
    """The verdict, and every number the same but for rounding."""
    conclude, seen = check_policies._conclude, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_policies, "_conclude", lambda *given: seen.append(given[3:5]) or conclude(*given))
        found = check_policy(path)
    ((tube, span),) = seen
    assert found.verdict == verdict, str(found)
    assert found.claimed == certificate.margin
    scale = certificate.value_span + abs(certificate.estimated) + sum(certificate.losses.values())
    assert found.margin == pytest.approx(certificate.margin, abs=1e-7 * scale)
    assert float(span) == pytest.approx(certificate.value_span, abs=1e-7 * scale)
    for name in CLAIMS:
        own = getattr(tube, name)
        told = pytest.approx(getattr(certificate, name), rel=1e-7, abs=1e-7 * scale)
        assert (math.inf if own is None else float(own)) == told, name
    return found


def test_confirms_what_is_proved_at_the_usual_number_of_cells(dynamics, expert, tmp_path):
    proof = certify(dynamics, expert, cells=CELLS_ALONG[1], samples=100_000, tube=0.05)
    found = agreed(proof.save(tmp_path / "c"), proof, "confirmed")
    assert proof.ties == 0 and 0 < proof.half_width < 0.05 and proof.value_span > 0
    for part in (
        "Confirmed: with probability at least 0.95, at every state of [-1, 1] farther than 0.05 from each of its 2 sw",
        "(P_b − P_a)V(s) ≥ 0.0",
        "3 actions, discount 0.8; states in [-1, 1]",
        "looked up at 4001 states",
        "trusted  the certificate is about your reward",
    ):
        assert part in str(found)


def mixed(states):
    """Cools or rests where it is warm, and rests where it is cold."""
    warm = states[:, 0] > 0.3
    return np.column_stack([~warm, 0.5 * warm, 0.5 * warm]).astype(float)


VARIANTS = {
    "Chebyshev": {"columns": Chebyshev(3)},
    "no columns but one": {"columns": Legendre(1), "tail": 0.01},
    "a tail": {"tail": 1e-4},
    "not declared": {"tail": None},
    "unpaired": {"paired": False},
    "never switches": {"expert": lambda states: np.zeros(len(states), int)},
    "mixes": {"expert": mixed},
    "too few samples to be sure": {"samples": 3_000},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_agrees_in_every_number(dynamics, expert, tmp_path, name):
    settings = {"cells": 200, "expert": expert} | VARIANTS[name]
    proof = certify(dynamics, **settings)
    agreed(proof.save(tmp_path / "c"), proof, "confirmed" if proof.holds else "nothing claimed")


def test_agrees_on_the_circle_and_on_another_interval(tmp_path):
    waves = certirl.problems.circle()
    for size in (5, 4):
        settings = {"columns": Fourier(size), "tail": 0.0, "reward": lambda s: np.cos(s[:, 0]), "cells": 100}
        proof = certify(waves, lambda s: (s[:, 0] > 0).astype(int), **settings)
        assert proof.lookup.domain != ((-1.0, 1.0),)
        agreed(proof.save(tmp_path / "c"), proof, "confirmed" if proof.holds else "nothing claimed")


@pytest.mark.slow
def test_confirms_a_thermostat(tmp_path):
    room = comfort(noise=0.6, discount=0.5)
    settings = {"reward": room.reward, "columns": Legendre(7), "tail": room.dynamics.tail, "discount": 0.5}
    proof = certify(room.dynamics, room.expert, samples=200_000, **settings)
    assert proof.tail > 0
    agreed(proof.save(tmp_path / "c"), proof, "confirmed")


def test_every_band_agrees_at_every_point(certificate, copy):
    fields, arrays = check_records.grounds(*copy, "")
    claim, columns = check_records.Claim.of(copy[0]), check_records.functions(fields, "columns")
    numbers = check_policies._record(fields, arrays, claim, columns)
    work = check_bands.Derivation(numbers)
    told = bands(certificate.surrogate, certificate.evidence, delta=certificate.delta, tail=0.0)
    for own, band in zip(work.bands(), told.pairs, strict=True):
        assert own.pair == band.pair
        assert np.array(own.estimation, float) == pytest.approx(band.estimation, rel=1e-9)
        assert np.array(own.second, float) == pytest.approx(band.second_order, rel=1e-7)
        assert (np.array(own.second, float) >= band.second_order * (1 - 1e-9)).all()
        assert [x / rational.ONE for x in own.curve.rows[0]] == pytest.approx(band.curve, abs=1e-10)
    assert np.array(work.visits(), float) == pytest.approx(told.visits, rel=1e-7)


def scale(name, factor):
    def alter(header, arrays):
        arrays[place(arrays, name)] = arrays[place(arrays, name)] * factor

    return alter


def entry(name, index, value):
    def alter(header, arrays):
        arrays[place(arrays, name)][index] = value

    return alter


def claim(**changes):
    def alter(header, arrays):
        for name, value in changes.items():
            owner(header, name)[name] = value

    return alter


def larger(name, factor):
    def alter(header, arrays):
        owner(header, name)[name] *= factor

    return alter


def array(name, change):
    def alter(header, arrays):
        arrays[place(arrays, name)] = change(arrays[place(arrays, name)])

    return alter


ALTERED = {
    "margin raised": larger("margin", 1.01),
    "regret lowered": larger("regret", 0.99),
    "span raised": larger("value_span", 1.01),
    "tube narrowed": larger("half_width", 0.8),
    "share lowered": larger("share", 0.8),
    "settled nearer": larger("settled", 0.8),
    "no tie": claim(ties=-1.0),
    "spread halved": scale("spread", 0.5),
    "wobble halved": scale("wobble", 0.5),
    "wobble gone": scale("wobble", 0.0),
    "surprise gone": scale("surprise", 0.0),
    "surprise too large": scale("surprise", 1e4),
    "drift gone": scale("drift", 0.0),
    "visits turned round": scale("visits", -1.0),
    "visits certain": scale("visit_spread", 0.01),
    "more states than there were": scale("counts", 2),
    "gram lopsided": entry("gram", (0, 0, 1), 1e3),
    "gram indefinite": entry("gram", (slice(None), 2, 2), -1.0),
    "gram larger": scale("gram", 2.0),
    "fits better": entry("fits", (0, 0), 3.0),
    "another operator": scale("Z", 0.9),
    "functions without inverse": entry("mix", 0, 0.0),
    "other functions": scale("mix", 0.5),
    "V elsewhere": claim(low=-0.1, high=0.1),
    "more of δ than there is": claim(spending={"first order": 0.5, "second order": 0.4, "regret": 0.05}),
    "negative δ": claim(spending={"first order": 0.05, "second order": 0.01, "regret": 0.01, "others": -0.02}),
    "no tail": claim(tail=None),
    "endless tail": claim(tail=math.inf),
    "negative tail": claim(tail=-1e-3),
    "larger tail": claim(tail=1e-2),
    "not paired": lambda header, arrays: header["evidence"].update(paired=not header["evidence"]["paired"]),
    "more patient": claim(discount=0.9),
    "a narrower tube asked for": claim(allowed=0.01),
    "switches elsewhere": array("support", lambda x: np.roll(x, 3, axis=0)),
    "tents elsewhere": array("switches", lambda x: x + 0.1),
    "a switch fewer": array("switches", lambda x: x[:1]),
    "wider tents": scale("widths", 1.5),
    "another action": array("support", lambda x: x[:, [1, 2, 0]]),
    "no action": entry("support", (100, slice(None)), False),
    "every action": array("support", np.ones_like),
    "a lower valley": larger("dropped", 0.5),
}


@pytest.mark.parametrize("name", ALTERED)
def test_refutes_what_was_altered(tmp_path, copy, name, capsys):
    ALTERED[name](*copy)
    assert main(write(tmp_path / "altered.npz", *copy)) == 1
    assert capsys.readouterr().out.startswith("Refuted: ")


def test_a_smaller_claim_is_confirmed(tmp_path, copy, capsys):
    copy[0].update(margin=copy[0]["margin"] * 0.9, half_width=1.1 * copy[0]["half_width"], settled=math.inf)
    assert main(write(tmp_path / "c.npz", *copy)) == 0
    assert capsys.readouterr().out.startswith("Confirmed: ")


def test_too_little_data_prove_nothing(dynamics, expert, tmp_path):
    proof = certify(dynamics, expert, samples=200)
    header, arrays = parts(proof.save(tmp_path / "c"))
    found = check_policy(tmp_path / "c.npz")
    assert found.verdict == "nothing claimed" and found.margin == -math.inf and "too little data" in str(found)
    header |= {"holds": True, "margin": 0.1}
    assert check_policy(write(tmp_path / "t.npz", header, arrays)).verdict == "refuted"


DAMAGED = {
    "missing sums": lambda header, arrays: arrays.pop(place(arrays, "wobble")),
    "missing expert": lambda header, arrays: arrays.pop(place(arrays, "support")),
    "expert of two actions": array("support", lambda x: x[:, :2]),
    "wrong shape": array("gram", lambda x: x[:, :2]),
    "not a number": entry("surprise", (0, 0), math.nan),
    "text": array("drop", lambda x: np.array(["a"] * 9)),
    "no spending": claim(spending={}),
    "no regret": lambda header, arrays: header.pop("regret"),
    "margin is text": claim(margin="large"),
    "unknown functions": lambda header, arrays: header["surrogate"]["columns"].update(type="Wavelet"),
    "two intervals": lambda header, arrays: header["surrogate"]["columns"].update(interval=[[-1, 1], [-1, 1]]),
    "discount of one": claim(discount=1.0),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_one_sentence(tmp_path, copy, name):
    DAMAGED[name](*copy)
    with pytest.raises(ValueError, match=r"damaged|not a certirl file") as caught:
        check_policy(write(tmp_path / "d.npz", *copy))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def solution(dynamics, expert):
    settings = {"expert": expert, "discount": 0.8, "delta": 0.1, "tail": 0, "columns": 3, "tube": 0.2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CELLS_ALONG, 1, 400)
        return certirl.solve(dynamics, rng=0, max_samples=100_000, progress=False, **settings)


def test_a_solution_is_recognised_and_the_range_of_its_value_derived(solution, tmp_path, capsys):
    assert solution.certificate.holds
    path = solution.save(tmp_path / "s")
    assert cli.main(["check", str(path)]) == 0
    assert capsys.readouterr().out.startswith("Confirmed: with probability at least 0.9, at every state of [-1, 1]")
    header, arrays = parts(path)
    header["certificate"]["surrogate"]["low"] += 0.1
    found = check_policy(write(tmp_path / "t.npz", header, arrays))
    assert found.verdict == "refuted" and "have values V from" in found.reasons[0]
    other = header | {"certificate": header["certificate"] | {"type": "Certificate"}}
    with pytest.raises(ValueError, match="damaged"):
        check_policy(write(tmp_path / "o.npz", other, arrays))
    other = header | {"type": "Sonnet", "certificate": {"type": "Verse"}}
    with pytest.raises(ValueError, match="holds a certirl 'Sonnet', which has no certificate to check"):
        check_policy(write(tmp_path / "o.npz", other, arrays))
    header["certificate"] = None
    assert cli.main(["check", str(write(tmp_path / "n.npz", header, arrays))]) == 1
    assert "says that it is certified, and holds no certificate" in capsys.readouterr().out
    header["findings"][0]["status"] = "solved"
    assert cli.main(["check", str(write(tmp_path / "n.npz", header, arrays))]) == 0
    assert capsys.readouterr().out == "Nothing claimed: the file holds no certificate.\n"


# The arithmetic.


def floats(table):
    return np.array([[x / rational.ONE for x in row] for row in table.rows])


def test_inverses_are_enclosed():
    A = np.random.default_rng(0).normal(size=(6, 6))
    table = rational.Table.of(A)
    found = enclosures.inverse(table)
    assert floats(found) == pytest.approx(np.linalg.inv(A))
    one, worst = table @ found, Fraction(0)
    for i, row in enumerate(one.rows):
        for j, x in enumerate(row):
            worst = max(worst, abs(Fraction(x, rational.ONE) - (i == j)))
    assert worst <= Fraction(one.error, rational.ONE) < Fraction(1, 2**200)
    assert enclosures.inverse(rational.Table.of([[1, 2], [2, 4]])) is None


@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e9])
def test_largest_eigenvalues_from_above(size, scale):
    A = np.random.default_rng(size).normal(size=(size, size + 1))
    table = rational.Table.of(A)
    above = float(enclosures.top_eigenvalue_above((table @ table.T).scaled(Fraction(scale))))
    truth = scale * np.linalg.eigvalsh(A @ A.T)[-1]
    assert truth * (1 - 1e-12) <= above <= truth * (1 + 1e-7)


@pytest.mark.parametrize("basis", [Legendre(7), Legendre(1), Chebyshev(4), Fourier(5), Fourier(6)])
@pytest.mark.parametrize("cells", [37, 48])  # 48 middles of cells on the circle, and some are points themselves
def test_cells_match_in_floating_point(basis, cells):
    degree, kind = concentration.degree(basis), basis.kind
    count = 8 * max(degree, 1)
    middles = np.array([float(t) for t in enclosures.middles(cells)])[:, None]
    weights = np.array(enclosures.blending_above(kind, degree, count, cells), float) / 2**enclosures.SHORT
    assert weights == pytest.approx(np.abs(concentration.blending(basis, count, middles)), abs=1e-12)
    steep = np.array(enclosures.steepness_above(kind, degree, cells), float)
    assert steep == pytest.approx(concentration.steepest(basis, middles, 1 / cells))
    assert pytest.approx(basis.values(middles), abs=1e-12) == floats(enclosures.at_middles(kind, basis.size, cells)).T
    c = np.random.default_rng(0).normal(size=basis.size)
    dense = np.abs(basis.derivative(np.linspace(-1, 1, 4001)) @ c).max()
    slope = float(enclosures.slope_above(kind, degree, rational.Table.of([c])))
    assert dense * (1 - 1e-12) <= slope <= dense * 1.02 + 1e-12


@pytest.mark.parametrize("basis", [Legendre(4), Chebyshev(4), Fourier(5), Fourier(4)])
def test_sums_of_products_are_sums_over_nodes(basis):
    rng = np.random.default_rng(0)
    sums, p, q = (rng.normal(size=n) for n in (product_basis(basis).size, basis.size, basis.size))
    nodes = enclosures.Nodes(basis.kind, basis.size, concentration.degree(basis))
    at = [floats(rational.Table.of([x]) @ nodes.phi)[0] for x in (p, q)]
    found = (at[0] * at[1]) @ floats(nodes.weights(rational.Table.of([sums])))[0]
    assert found == pytest.approx(p @ lifted(sums, basis) @ q)


def test_vector_radii_match_in_floating_point():
    for trace, largest, bound, L in ((3.0, 1.0, 0.2, 7.25), (0.0, 0.0, 0.1, 3.0), (1e-4, 1e-5, 1e-6, 12.0)):
        exact = [Fraction(x) for x in (trace, largest, bound, L)]
        norm = float(enclosures.norm_radius_above(*exact))
        assert norm == pytest.approx(concentration.empirical_norm_bernstein(trace, largest, bound, L), rel=1e-12)
        vector = float(enclosures.vector_radius_above(exact[0], *exact[2:]))
        assert vector == pytest.approx(concentration.empirical_vector_bernstein(trace, bound, L), rel=1e-12)
