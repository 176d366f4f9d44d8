"""The second opinion agrees with honest certificates, contradicts altered ones, and its arithmetic errs to one side."""

import ast
import importlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import files
from certirl.checker import actions as check_actions
from certirl.checker import rational
from certirl.checker.files import check, main
from certirl.data.simulator import sample
from certirl.functions.bases import Chebyshev, Fourier, Legendre
from certirl.functions.extrema import minimum
from certirl.functions.inequalities import empirical_bernstein, inflation
from certirl.functions.reward import Reward
from certirl.ground.status import Finding
from certirl.problems import circle, random_polynomial, thermostat
from certirl.proof.bounds import lower_bounds
from certirl.proof.certify import certify
from certirl.solver.solve import solve
from files import owner, place, write

REWARD = "reward.coefficients"
GRAM, GUESS = "certificate.evidence.gram", "certificate.surrogate.g"
KINDS = {"Legendre": Legendre, "Chebyshev": Chebyshev, "Fourier": Fourier}


def contents(solution, certificate, folder):
    """What a saved solution with a certificate holds."""
    found = Finding("certified" if certificate.holds else "solved", "as asked")
    return files.parts(replace(solution.judged(found), certificate=certificate).save(folder / "whole.npz"))


def make(problem, basis, columns, discount, tail, *, samples=50_000, log=False):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            importlib.import_module("certirl.proof.certify"), "samples_needed", lambda *_, **__: None
        )  # a forecast; slow, and not checked
        solution = solve(problem, basis=basis, columns=columns, discount=discount, rng=0, samples=20_000)
        source = sample(problem, basis=basis, samples=samples, rng=1, design=True) if log else problem
        proof = certify(solution, source, tail=tail, rng=1, samples=None if log else samples)
        with TemporaryDirectory() as folder:
            return contents(solution, proof, Path(folder))


@pytest.fixture(scope="module")
def polynomial():
    return make(random_polynomial(seed=7), Legendre(11), 3, 0.7, 0)


@pytest.fixture(scope="module")
def waves():
    return make(circle(), Fourier(15), 15, 0.9, circle().tail)


@pytest.fixture
def copy(polynomial):
    header, arrays = polynomial
    return json.loads(json.dumps(header)), {name: array.copy() for name, array in arrays.items()}


def agreed(tmp_path, made, verdict):
    found = check(write(tmp_path / "c.npz", *made))
    claimed = made[0]["certificate"]["margin"]
    assert found.verdict == verdict
    assert found.claimed == claimed
    losses = made[0]["certificate"]["losses"]
    scale = abs(made[0]["certificate"]["estimated"]) + sum(losses.values())
    assert found.margin == pytest.approx(claimed, abs=1e-6 * scale)
    return found


def test_confirms_polynomials(tmp_path, polynomial):
    found = agreed(tmp_path, polynomial, "confirmed")
    for part in (
        "Confirmed: with probability at least 0.95 action 0 is strictly optimal at every state of [-1, 1]: D_a(s) ≥ 0",
        "3 actions, the expert always takes 0; discount 0.7; states in [-1, 1]",
        "Legendre(11) on [-1, 1]",
        "40,000 fresh transitions of each action, every state tried with every action",
        "δ = 0.05: 0.0425 first order, 0.0075 second order",
        "trusted  every P_a f is exactly a combination of the first 3 Legendre functions of the state",
        "trusted  the stored sums are over fresh transitions of these dynamics, valued with this reward",
    ):
        assert part in str(found)


def test_confirms_waves(tmp_path, waves):
    agreed(tmp_path, waves, "confirmed")


@pytest.mark.slow
def test_agrees_where_nothing_is_claimed(tmp_path):
    room = thermostat()
    found = agreed(tmp_path, make(room, Legendre(13), 13, 0.9, room.tail), "nothing claimed")
    assert found.margin < 0 and "not positive" in str(found)


def test_confirms_chebyshev_and_unpaired_logs(tmp_path):
    problem = random_polynomial(seed=7)
    agreed(tmp_path, make(problem, Chebyshev(11), 3, 0.7, 0), "confirmed")
    agreed(tmp_path, make(problem, Legendre(11), 3, 0.7, 0, samples=200_000, log=True), "confirmed")


def test_one_function_has_no_second_order(tmp_path):
    made = make(random_polynomial(seed=7), Legendre(11), 1, 0.7, 0.001)
    assert made[0]["certificate"]["losses"]["second order"] == 0
    agreed(tmp_path, made, "confirmed" if made[0]["certificate"]["holds"] else "nothing claimed")


def test_without_a_tail_nothing_is_claimed(tmp_path):
    made = make(random_polynomial(seed=7), Legendre(11), 3, 0.7, None)
    assert "no tail was declared" in agreed(tmp_path, made, "nothing claimed").reasons
    made[0]["certificate"]["holds"] = True
    assert check(write(tmp_path / "t.npz", *made)).verdict == "refuted"


def test_too_little_data_proves_nothing(tmp_path):
    made = make(random_polynomial(seed=7), Legendre(11), 3, 0.7, 0, samples=60)
    assert made[0]["certificate"]["margin"] == -math.inf
    found = check(write(tmp_path / "c.npz", *made))
    assert found.verdict == "nothing claimed" and found.margin == -math.inf and "too little data" in str(found)
    made[0]["certificate"] |= {"holds": True, "margin": 0.5}
    assert check(write(tmp_path / "t.npz", *made)).verdict == "refuted"


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


ALTERED = {
    "margin raised a little": lambda header, arrays: header["certificate"].update(
        margin=header["certificate"]["margin"] * 1.0001
    ),
    "margin raised": claim(margin=0.9),
    "spread halved": scale("spread", 0.5),
    "spread gone": scale("spread", 0.0),
    "wobble halved": scale("wobble", 0.5),
    "surprise gone": scale("surprise", 0.0),
    "surprise too large": scale("surprise", 1e4),
    "more states than there were": scale("counts", 2),
    "gram lopsided": entry("gram", (0, 0, 1), 1e3),
    "gram indefinite": entry("gram", (slice(None), 2, 2), -1.0),
    "gram larger": scale("gram", 2.0),
    "gram of one action": entry("gram", (1, 2, 2), 3e4),
    "fits better": entry("fits", (0, 0), 3.0),
    "operator moves constants": entry("Z", (1, 0, 0), 0.9),
    "operator without inverse": entry("Z", (0, slice(1, None)), 0.0),
    "another guess": scale("g", 0.5),
    "V elsewhere": claim(low=-1.0, high=1.0),
    "more of δ than there is": claim(spending={"first order": 0.5, "second order": 0.5}),
    "negative δ": claim(spending={"first order": 0.06, "second order": 0.01, "others": -0.02}),
    "no tail": claim(tail=None),
    "endless tail": claim(tail=math.inf),
    "negative tail": claim(tail=-1e-3),
    "larger tail": claim(tail=1e-3),
    "another unit": claim(unit=2.0),
    "not paired": claim(paired=False),
    "another reward": lambda header, arrays: arrays.update({REWARD: -2 * arrays[REWARD]}),
    "another expert": lambda header, arrays: header.update(expert=1),
    "more patient": lambda header, arrays: header.update(discount=0.9),
}


@pytest.mark.parametrize("name", ALTERED)
def test_refutes_what_was_altered(tmp_path, copy, name, capsys):
    ALTERED[name](*copy)
    path = write(tmp_path / "altered.npz", *copy)
    assert main(path) == 1
    assert capsys.readouterr().out.startswith("Refuted: ")


def test_refutes_a_tail_that_was_made_smaller(tmp_path, waves):
    header, arrays = json.loads(json.dumps(waves[0])), waves[1]
    header["certificate"]["tail"] /= 2
    found = check(write(tmp_path / "t.npz", header, arrays))
    assert found.verdict == "refuted" and any("tail" in reason for reason in found.reasons)


def test_refutes_unpaired_sums_called_paired(tmp_path):
    made = make(random_polynomial(seed=7), Legendre(11), 3, 0.7, 0, samples=200_000, log=True)
    owner(made[0], "paired")["paired"] = True
    assert check(write(tmp_path / "c.npz", *made)).verdict == "refuted"


def test_a_smaller_claim_with_its_parts_is_confirmed(tmp_path, copy, capsys):
    copy[0]["certificate"]["margin"] -= 0.1
    assert main(write(tmp_path / "c.npz", *copy)) == 0
    assert capsys.readouterr().out.startswith("Confirmed: ")


def test_a_reward_of_another_family_is_refuted(tmp_path, copy):
    copy[0]["reward"]["basis"]["type"] = "Chebyshev"
    found = check(write(tmp_path / "c.npz", *copy))
    assert found.verdict == "refuted" and "not of the family of the reward" in found.reasons[0]


def test_a_large_constant_in_the_reward_costs_digits(tmp_path, polynomial):
    problem, plain = random_polynomial(seed=7), check(write(tmp_path / "c.npz", *polynomial))
    raised = polynomial[1][REWARD] + 1e12 * np.eye(11)[0]
    reward = Reward(Legendre(11).on(problem.domain), raised)
    certificate = certify(reward, problem, tail=0, rng=1, samples=50_000, discount=0.7, columns=Legendre(3))
    solution = solve(problem, basis=Legendre(11), columns=3, discount=0.7, rng=0, samples=20_000)
    found = check(write(tmp_path / "r.npz", *contents(replace(solution, reward=reward), certificate, tmp_path)))
    assert found.margin < plain.margin - 0.01  # V(s') has lost twelve digits, and the sums with it


def test_no_certificate_is_one_sentence(tmp_path, copy, capsys):
    copy[0]["certificate"] = None
    assert main(write(tmp_path / "c.npz", *copy)) == 1
    assert capsys.readouterr().out == "Refuted: the file says that it is certified, and holds no certificate.\n"
    copy[0]["findings"][0]["status"] = "solved"
    assert main(write(tmp_path / "c.npz", *copy)) == 0
    assert capsys.readouterr().out == "Nothing claimed: the file holds no certificate.\n"


def without(name):
    return lambda header, arrays: arrays.pop(place(arrays, name))


DAMAGED = {
    "missing sums": without("wobble"),
    "missing g": without("g"),
    "wrong shape": lambda header, arrays: arrays.update({GRAM: arrays[GRAM][:, :2]}),
    "not a number": entry("surprise", (0, 0), math.nan),
    "text": lambda header, arrays: arrays.update({GUESS: np.array(["a", "b", "c"])}),
    "no spending": claim(spending={}),
    "margin is text": claim(margin="large"),
    "claim is a list": lambda header, arrays: header.update(certificate=[1]),
    "unknown functions": lambda header, arrays: owner(header, "columns")["columns"].update(type="Wavelet"),
    "discount of one": lambda header, arrays: header.update(discount=1.0),
    "reward cut short": lambda header, arrays: arrays.update({REWARD: arrays[REWARD][:4]}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_one_sentence(tmp_path, copy, name):
    DAMAGED[name](*copy)
    with pytest.raises(ValueError, match=r"damaged|not a certirl file") as caught:
        check(write(tmp_path / "d.npz", *copy))
    assert "\n" not in str(caught.value)


def test_foreign_and_cut_files_are_one_sentence(tmp_path, polynomial):
    whole = write(tmp_path / "c.npz", *polynomial).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"hello", whole[:100]):
        (tmp_path / "cut.npz").write_bytes(content)
        with pytest.raises(ValueError, match="damaged or cut short"):
            check(tmp_path / "cut.npz")
    np.savez(tmp_path / "pickle.npz", header=np.array([{"format": "certirl"}], dtype=object))
    np.savez(tmp_path / "foreign.npz", x=np.zeros(3))
    for name in ("pickle", "foreign"):
        with pytest.raises(ValueError, match="not a certirl file"):
            check(tmp_path / f"{name}.npz")
    for changed in ({"version": 99}, {"format": "else"}):
        np.savez(tmp_path / "other.npz", header=np.array(json.dumps({"format": "certirl", "version": 2} | changed)))
        with pytest.raises(ValueError, match="not a certirl file of version 2"):
            check(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError, match="no file"):
        check(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("path", sorted(Path(rational.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_shares_no_code_with_what_it_checks(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
            assert names <= {"json", "math", "os", "zipfile", "numpy"}
            assert "numpy" not in names or path.stem in ("records", "policies")  # to read arrays
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("certirl"):
            assert node.module.startswith("certirl.checker") and path.stem != "rational"
        assert not (isinstance(node, ast.Attribute) and node.attr == "linalg")


# The arithmetic.


def encloses(table, truth):
    return all(
        abs(x - Fraction(m, rational.ONE)) <= Fraction(table.error, rational.ONE)
        for row, exact in zip(table.rows, truth, strict=True)
        for m, x in zip(row, exact, strict=True)
    )


def test_tables_enclose_exact_results():
    rng = np.random.default_rng(0)
    A, B = ([[Fraction(int(x), 7) for x in row] for row in rng.integers(-50, 50, (4, 4))] for _ in range(2))
    a, b = rational.Table.of(A), rational.Table.of(B)
    product = [[sum(A[i][k] * B[k][j] for k in range(4)) for j in range(4)] for i in range(4)]
    assert encloses(a @ b, product)
    assert encloses((a @ b) @ b, [[sum(p[k] * B[k][j] for k in range(4)) for j in range(4)] for p in product])
    pairs = [[(x, y) for x, y in zip(p, q, strict=True)] for p, q in zip(A, B, strict=True)]
    assert encloses(a - b, [[x - y for x, y in row] for row in pairs])
    assert encloses(a.times(b), [[x * y for x, y in row] for row in pairs])
    assert encloses(a.larger(b), [[max(x, y) for x, y in row] for row in pairs])
    assert encloses(a.scaled(Fraction(-3, 11)), [[x * Fraction(-3, 11) for x in row] for row in A])
    assert encloses(a.absolute().sums(), [[sum(map(abs, row)) for row in A]])
    inverse, _ = rational.eliminate(A, rational.identity(4))
    assert encloses(a @ inverse, rational.identity(4))


def test_elimination_knows_singular_and_positive_matrices():
    F = Fraction
    assert rational.eliminate([[F(1), F(2)], [F(2), F(4)]], rational.identity(2)) is None
    assert rational.eliminate([[F(2), F(1)], [F(1), F(2)]], rational.identity(2))[1]
    assert not rational.eliminate([[F(1), F(2)], [F(2), F(1)]], rational.identity(2))[1]
    swapped, positive = rational.eliminate([[F(0), F(1)], [F(1), F(0)]], [[F(3)], [F(5)]])
    assert encloses(swapped, [[5], [3]]) and not positive


def test_series_converge_or_are_refused():
    K, u = [[Fraction(1, 5), Fraction(1, 3)], [Fraction(1, 4), Fraction(1, 2)]], [Fraction(1), Fraction(2)]
    truth = np.linalg.solve(np.eye(2) - np.array(K, float), np.array(u, float))
    assert np.array(rational.series_above(K, u), float) == pytest.approx(truth, rel=1e-12)
    assert rational.series_above([[Fraction(3, 2)]], [Fraction(1)]) is None
    assert rational.series_above([[Fraction(1)]], [Fraction(1)]) is None
    assert rational.series_above([[Fraction(0), Fraction(2)], [Fraction(2), Fraction(0)]], u) is None


@pytest.mark.parametrize("x", [1e-30, 1e-3, 0.5, 1.0, 2.0, 12345.678, 1e25])
def test_roots_and_logarithms_are_above(x):
    exact = Fraction(x)
    assert exact <= rational.root_above(exact) ** 2 <= exact * (1 + Fraction(1, 10**40))
    if x >= 1:
        assert float(rational.log_above(exact)) == pytest.approx(math.log(x), rel=1e-14, abs=1e-40)
        # e^L ≥ x, by a partial sum of the exponential series, which is below e^L
        L, term, total = rational.log_above(exact), Fraction(1), Fraction(1)
        for k in range(1, 250):
            term = term * L / k
            total += term
        assert total * (1 + Fraction(1, 10**30)) >= exact


def test_circle_closes():
    places = [Fraction(n, 97) for n in range(-97, 98)]
    sines, cosines = rational.circle(places)
    angles = np.pi * np.array([float(v) for v in places])
    for table, truth in ((sines, np.sin(angles)), (cosines, np.cos(angles))):
        assert np.array([m / rational.ONE for m in table.rows[0]]) == pytest.approx(truth, abs=1e-15)
    one = sines.times(sines) + cosines.times(cosines)
    assert one.error < 10_000 and encloses(one, [[1] * len(places)])
    third, _ = rational.circle([Fraction(1, 6)])
    assert encloses(third, [[Fraction(1, 2)]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 5, 14])
def test_functions_and_their_minima(kind, size):
    basis, rng = KINDS[kind](size), np.random.default_rng(size)
    places = rational.spread_places(9)
    v = np.array([float(x) for x in places])
    t = 2 * v - 1 if kind == "Fourier" else -np.cos(np.pi * v)
    found = rational.values(kind, size, places)
    assert np.array(found.rows, float) / rational.ONE == pytest.approx(basis.values(t), abs=1e-14)
    for coefficients in (rng.standard_normal(size), np.eye(size)[-1], -np.eye(size)[-1], np.zeros(size)):
        below = float(rational.minimum_below(kind, rational.Table.of([coefficients])))
        dense = (basis.values(np.linspace(-1, 1, 2001)) @ coefficients).min()
        assert below <= dense
        assert below == pytest.approx(minimum(basis, coefficients)[1], abs=1e-9)
    for n in range(size):
        low, high = rational.column_range(kind, n)
        if n:
            assert (float(low), float(high)) == pytest.approx(
                (minimum(basis, np.eye(size)[n])[1], -minimum(basis, -np.eye(size)[n])[1]), abs=1e-9
            )


def test_bounds_match_in_floating_point():
    for kind, degree, count in (("Legendre", 4, 9), ("Fourier", 7, 30), ("Chebyshev", 0, 1)):
        above = float(rational.inflation_above(kind, degree, count))
        assert above == pytest.approx(inflation(kind, degree, count), rel=1e-14)
    observed, bounds = [0.0, 1e-4, 3.0], [0.1, 0.0, 2.0]
    table, L = rational.Table.of([observed]), Fraction(7.25)
    radii = rational.radii_above(table, [Fraction(b) for b in bounds], L)
    truth = empirical_bernstein(np.array(observed), np.array(bounds), 7.25)
    assert np.array([float(r) for r in radii]) == pytest.approx(truth, rel=1e-12)


def test_every_rival_agrees(polynomial):
    header, arrays = polynomial
    with pytest.MonkeyPatch.context() as patch:
        seen = []
        derivation = check_actions.Derivation
        patch.setattr(check_actions, "Derivation", lambda record: seen.append(derivation(record)) or seen[0])
        assert not check_actions.derive(header, arrays).wrong
    margins = sorted(float(bound.parts.margin) for bound in seen[0].bounds())
    problem = random_polynomial(seed=7)
    solution = solve(problem, basis=Legendre(11), columns=3, discount=0.7, rng=0, samples=20_000)
    certificate = certify(solution, problem, tail=0, rng=1, samples=50_000)
    bounds = lower_bounds(certificate.surrogate, certificate.evidence, delta=certificate.delta, tail=0.0)
    assert margins == pytest.approx(sorted(certificate.surrogate.unit * bound.margin for bound in bounds), rel=1e-6)
