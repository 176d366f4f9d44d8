"""What must hold for all inputs, on inputs that hypothesis makes up; the same ones in every run."""

import functools
import operator
import shutil
from dataclasses import fields
from fractions import Fraction
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some
from saved_records import LINE, MAKERS, SETTINGS, STEADY, climb, contents, saved
from test_files import unsupported, verdict_on, write

import certirl
from certirl.data import tables
from certirl.data.simulator import draw
from certirl.proof.case import Case
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates
from certirl_check.enclosures import Enclosure, logarithm, smaller, turn

numbers = some.floats(-1e6, 1e6, allow_subnormal=False)
seeds = some.integers(0, 2**32 - 1)
families = some.sampled_from([certirl.Legendre, certirl.Chebyshev, certirl.Fourier])
intervals = some.tuples(some.floats(-1e3, 1e3), some.floats(0.01, 1e3)).map(lambda ends: (ends[0], ends[0] + ends[1]))


@some.composite
def rewards(make):
    basis = make(families)(make(some.integers(1, 9)), make(intervals))
    return certirl.Reward(basis, make(some.lists(numbers, min_size=basis.size, max_size=basis.size)))


def log_of(seed, rows=400, domain=((-1.0, 1.0),)):
    """Rows of a line with two columns and no tail."""
    rng = np.random.default_rng(seed)
    states, actions = rng.uniform(-1, 1, (rows, 1)), rng.integers(2, size=rows)
    ahead = np.stack([STEADY.sample(states, action, rng) for action in range(2)])
    return certirl.Transitions(states, actions, ahead[actions, np.arange(rows)], domain=domain)


def proved(reward, log, **changes):
    return certirl.certify(reward, log, columns=LINE, **SETTINGS | {"expert": 0} | changes)


# Files


@given(rewards())
def test_a_reward_comes_back_from_its_file_and_from_its_text(reward):
    with TemporaryDirectory() as folder:
        read = certirl.load(reward.save(f"{folder}/reward.npz"))
    states = reward.basis.grid(7)
    for other in (read, certirl.Reward.from_json(reward.to_json())):
        assert other.basis == reward.basis
        np.testing.assert_array_equal(other.coefficients, reward.coefficients)
        np.testing.assert_array_equal(other(states), reward(states))


@given(seeds, some.integers(2, 6), some.integers(1, 50))
def test_moments_come_back_from_their_file(seed, size, rows):
    moments = certirl.steps.measure(log_of(seed, rows), basis=certirl.Legendre(size))
    with TemporaryDirectory() as folder:
        read = certirl.load(moments.save(f"{folder}/moments.npz"))
    for name in ("counts", "gram", "cross", "outer"):
        np.testing.assert_array_equal(getattr(read, name), getattr(moments, name))


KINDS = ("action", "policy", "refutation", "open")


@some.composite
def altered(make):
    """A file with one number of an array or one byte changed: its kind, its path within a folder, and how."""
    return make(some.sampled_from(KINDS)), make(some.floats(0, 1, exclude_max=True)), make(numbers)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Of each kind its file and what the checker says about it."""
    folder = tmp_path_factory.mktemp("originals")
    paths = {kind: saved(kind).save(folder / f"{kind}.npz") for kind in KINDS}
    return {kind: (path, certirl.check(path)) for kind, path in paths.items()}


@given(altered())
def test_a_number_changed_in_a_file_is_refused_or_changes_no_claim(originals, change):
    kind, place, number = change
    header, arrays = contents(kind)
    assert {*KINDS} <= {*MAKERS}
    starts = np.cumsum([0, *(array.size for array in arrays.values())])
    entry = int(place * starts[-1])
    which = int(np.searchsorted(starts, entry, side="right")) - 1
    name = list(arrays)[which]
    assume(arrays[name].dtype.kind in "fi" and arrays[name].flat[entry - starts[which]] != number)
    arrays[name].flat[entry - starts[which]] = number
    with TemporaryDirectory() as folder:
        assert unsupported(verdict_on(write(f"{folder}/altered.npz", header, arrays)), originals[kind][1]) == ""


@given(altered())
def test_a_byte_changed_in_a_file_is_refused_or_changes_no_claim(originals, change):
    kind, place, number = change
    path, verdict = originals[kind]
    contents_of_file = bytearray(path.read_bytes())
    contents_of_file[int(place * len(contents_of_file))] ^= 1 + int(abs(number)) % 255
    with TemporaryDirectory() as folder:
        other = shutil.copy(path, folder)
        with open(other, "wb") as stream:
            stream.write(contents_of_file)
        assert unsupported(verdict_on(other), verdict) == ""


# Readers


@given(some.lists(some.tuples(some.floats(0, 1), some.integers(0, 2), some.floats(0, 1)), min_size=3, max_size=12))
def test_a_table_is_read_to_the_last_bit_in_every_format(rows):
    states, actions, after = (np.array(column) for column in zip(*rows, strict=True))
    with TemporaryDirectory() as folder:
        lines = [f"{state!r},{action},{ahead!r}" for state, action, ahead in rows]
        with open(f"{folder}/log.csv", "w") as stream:
            stream.write("\n".join(["state,action,next_state", *lines]) + "\n")
        np.savez(f"{folder}/log.npz", states=states, actions=actions, next_states=after)
        logs = [tables.read(f"{folder}/log.{suffix}", domain=(0, 1), n_actions=3) for suffix in ("csv", "npz")]
    for log in logs:
        np.testing.assert_array_equal(log.states[:, 0], states)
        np.testing.assert_array_equal(log.actions, actions)
        np.testing.assert_array_equal(log.next_states[:, 0], after)


@given(some.integers(0, 2), some.sampled_from(["", "x", "nan", "inf", "1e999", "0.5.5", "1.5", "-3"]), seeds)
def test_a_cell_that_is_no_number_or_outside_is_one_sentence(column, text, seed):
    rows = [[f"{x:.3f}", "1", f"{x:.3f}"] for x in np.random.default_rng(seed).random(4)]
    rows[2][column] = text
    with TemporaryDirectory() as folder:
        with open(f"{folder}/log.csv", "w") as stream:
            stream.write("\n".join(["state,action,next_state", *(",".join(row) for row in rows)]) + "\n")
        with pytest.raises(ValueError) as caught:
            tables.read(f"{folder}/log.csv", domain=(0, 1), n_actions=3)
    assert "\n" not in str(caught.value)


# Monoids


def close(one, other, names):
    for name in names:
        first, second = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-12 * np.abs(second).max(initial=1.0), err_msg=name)


def pieces_of(log, *cuts):
    places = [slice(*ends) for ends in zip((0, *cuts), (*cuts, len(log)), strict=True)]
    return [
        certirl.Transitions(log.states[p], log.actions[p], log.next_states[p], domain=log.domain, n_actions=2)
        for p in places
    ]


@given(seeds, some.integers(5, 30), some.integers(31, 55))
def test_moments_of_parts_add_up_in_any_order(seed, first, second):
    log, basis = log_of(seed, 60), certirl.Legendre(4)
    a, b, c = (certirl.steps.measure(part, basis=basis) for part in pieces_of(log, first, second))
    names = ("counts", "gram", "cross", "outer")
    close((a + b) + c, a + (b + c), names)
    close(a + b, b + a, names)
    close(a + b + c, certirl.steps.measure(log, basis=basis), names)


@functools.cache
def line_surrogates():
    columns = LINE.on(STEADY.domain)
    case = Case.of(0, columns, n_actions=2, discount=0.7, tail=0)
    return fit_surrogates(case, climb, draw(STEADY, columns, 200, 1, design=True, paired=True)).surrogates


@given(seeds, some.integers(40, 120))
def test_evidence_of_parts_adds_up_in_any_order(seed, cut):
    log, surrogates = log_of(seed, 160), line_surrogates()
    ((a,), (b,)), (both,) = (gather(surrogates, part) for part in pieces_of(log, cut)), gather(surrogates, log)
    names = [field.name for field in fields(both)]
    close(a + b, both, names)
    close(a + b, b + a, names)


# What a certificate does not depend on


@given(seeds, some.floats(1e-6, 1e6))
@settings(max_examples=4)
def test_a_certificate_scales_with_the_reward(seed, factor):
    log = log_of(seed, 3_000)
    plain, scaled = proved(climb, log), proved(lambda states: factor * states[:, 0], log)
    assert scaled.holds == plain.holds and np.isfinite(plain.margin)
    assert scaled.margin == pytest.approx(factor * plain.margin, rel=1e-6)
    assert scaled.estimated == pytest.approx(factor * plain.estimated, rel=1e-6)


@given(seeds)
@settings(max_examples=4)
def test_a_certificate_does_not_depend_on_the_numbers_of_the_actions(seed):
    log = log_of(seed, 3_000)
    other = certirl.Transitions(log.states, 1 - log.actions, log.next_states, domain=log.domain)
    plain, renamed = proved(climb, log), proved(climb, other, expert=1)
    assert renamed.holds == plain.holds and renamed.margin == pytest.approx(plain.margin, rel=1e-6)
    assert (plain.action, renamed.action) == (1, 0)


@given(seeds, some.floats(-1e3, 1e3), some.floats(1e-3, 1e3))
@settings(max_examples=4)
def test_a_certificate_does_not_depend_on_the_units_of_the_state(seed, origin, unit):
    log = log_of(seed, 3_000)
    places = [origin + unit * states for states in (log.states, log.next_states, np.array([[-1.0], [1.0]]))]
    domain = (float(places[2][0, 0]), float(places[2][1, 0]))
    moved = certirl.Transitions(np.clip(places[0], *domain), log.actions, np.clip(places[1], *domain), domain=(domain,))
    plain, other = proved(climb, log), proved(lambda states: (states[:, 0] - origin) / unit, moved)
    assert other.holds == plain.holds and other.margin == pytest.approx(plain.margin, rel=1e-4)


# Enclosures


def inside(enclosure, exact):
    middle, radius = (Fraction(float(x)) for x in (enclosure.middle, enclosure.radius))
    return abs(exact - middle) <= radius


@given(some.lists(some.tuples(some.sampled_from("+-*/"), numbers), min_size=1, max_size=12), numbers)
def test_an_enclosure_holds_the_exact_result(steps, start):
    found, exact = Enclosure(start), Fraction(start)
    for operation, number in steps:
        assume(operation != "/" or abs(number) > 1e-3)
        other = Fraction(number)
        found, exact = {
            "+": lambda a, b, x, y: (a + x, b + y),
            "-": lambda a, b, x, y: (x - a, y - b),
            "*": lambda a, b, x, y: (a * x, b * y),
            "/": lambda a, b, x, y: (a / x, b / y),
        }[operation](found, exact, number, other)
    assert inside(found, exact)


@given(some.integers(1, 5), seeds)
def test_enclosures_of_matrices_hold_exact_products_and_sums(size, seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, size, size)) * 10.0 ** rng.integers(-8, 8, size=(2, size, size))
    product, total = Enclosure(A) @ B, Enclosure(A).sum()
    for i in range(size):
        assert inside(total[i], sum(map(Fraction, A[i])))
        for j in range(size):
            assert inside(product[i, j], sum(Fraction(A[i, k]) * Fraction(B[k, j]) for k in range(size)))


@given(seeds)
def test_wide_enclosures_reach_the_ends_of_what_their_results_can_be(seed):
    rng = np.random.default_rng(seed)
    (x, y), (r, s) = 1 + rng.exponential(size=(2, 3, 3)), rng.uniform(0.1, 0.9, size=(2, 3, 3))
    x, y = (numbers * rng.choice([-1, 1], size=(3, 3)) for numbers in (x, y))
    one, other, positive = Enclosure(x, r), Enclosure(y, s), Enclosure(np.abs(x), r)
    corners = [(x + i * r, y + j * s) for i in (-1, 1) for j in (-1, 1)]
    for operation in (operator.add, operator.sub, operator.mul, operator.truediv):
        found, farthest = operation(one, other), max_over(corners, operation, operation(x, y))
        assert found.middle == pytest.approx(operation(x, y)) and found.radius == pytest.approx(farthest)
    terms = max_over(corners, lambda a, b: a[:, :, None] * b, x[:, :, None] * y)
    assert (one @ other).radius == pytest.approx(terms.sum(axis=1))
    assert one.sum(axis=0).radius == pytest.approx(r.sum(axis=0)) and one.absolute().radius == pytest.approx(r)
    size, square = np.abs(x), x**2 - 2 * np.abs(x) * r - r**2
    for found, low, high in (
        (positive.root(), np.sqrt(size - r), np.sqrt(size + r)),
        (smaller(one, other), np.minimum(x - r, y - s), np.minimum(x + r, y + s)),
        (positive.length(), np.sqrt(square.sum(axis=1).clip(0)), np.linalg.norm(size + r, axis=1)),
    ):
        assert found.above == pytest.approx(high) and found.below == pytest.approx(low, abs=1e-7)


def max_over(corners, operation, middle):
    return np.max([np.abs(operation(*corner) - middle) for corner in corners], axis=0)


@given(some.floats(-1, 1), some.floats(1e-300, 1e300))
def test_enclosures_of_sines_and_logarithms_hold_the_true_ones(share, x):
    sine, cosine = turn(Enclosure(np.array([share])))
    assert inside((sine * sine + cosine * cosine)[0], Fraction(1))
    assert abs(sine.middle[0] - np.sin(np.pi * share)) < 1e-14 > sine.radius[0]
    assert abs(cosine.middle[0] - np.cos(np.pi * share)) < 1e-14 > cosine.radius[0]
    found = logarithm(x)
    assert abs(found.middle - np.log(x)) <= found.radius + 4e-16 * abs(np.log(x)) and found.radius < 1e-12
