"""What the checker derives from sums, part by part: the same as the library, in another way."""

import math
import re
from decimal import Decimal, localcontext

import golden_files
import numpy as np
import pytest
import test_cell_files
from saved_records import (
    LINE,
    PLANE,
    REFUTATIONS,
    STEADY,
    STEADY_PLANE,
    TORN,
    TORN_PLANE,
    _certify,
    _episodes,
    _plane_reward,
    at_points,
    away_from_zero,
    claim_of,
    climb,
    contents,
    proof,
    saved,
)

import certirl
import files
from certirl import Chebyshev, Fourier, Legendre, product
from certirl.problems import circle, random_polynomial
from certirl.proof import refutation as first
from certirl.proof import training
from certirl_check import bands as second
from certirl_check import check, harmonics, known_noise, refutations
from certirl_check.cells import CellCertificate
from certirl_check.certificates import Certificate
from certirl_check.enclosures import Enclosure
from certirl_check.reading import Expert
from certirl_check.records import read
from systems import Coins


class Returning(Coins):
    """Half of the next states lie beside the state where the expert switches."""

    def sample(self, states, action, rng):
        return np.where(super().sample(states, action, rng) > 0, 0.1, -0.8)


TAIL = {"tail": 0.003}
THREE_ACTIONS = Coins([(0.7,), (0.3,), (0.55,)], (0.1, 0.2, -0.1))
BACK = Returning((0.5, 0.5), (0.4, -0.4))
SWITCHING = {"expert": away_from_zero, "tube": 0.4}


THREE = Coins((0.7, 0.3), (0.1, 0.1), 3)


def _solved(problem, basis, columns, tail, samples=50_000, **changes):
    """Of a learned reward, under another basis, other columns and data."""
    solution = certirl.solve(problem, basis=basis, columns=columns, expert=0, discount=0.7, rng=0, samples=20_000)
    return certirl.certify(solution, problem, tail=tail, rng=1, samples=samples, **changes)


def _without_powers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "MOST_POWERS", 0)
        return MAKERS["policy"]()


MAKERS = {
    "without powers": _without_powers,
    "action": lambda: _certify(climb, STEADY, Legendre(2), **TAIL),
    "three actions": lambda: _certify(climb, THREE_ACTIONS, Legendre(2), **TAIL),
    "visits": lambda: _certify(climb, BACK, Legendre(2), **SWITCHING, **TAIL),
    "visits in episodes": lambda: _certify(climb, _episodes(BACK), Legendre(2), None, **SWITCHING, **TAIL),
    "box": lambda: _certify(_plane_reward(), STEADY_PLANE, PLANE, **TAIL),
    "sum": lambda: proof("sum"),
    "policy": lambda: _certify(climb, TORN, Legendre(2), **SWITCHING, **TAIL),
    "policy box": lambda: _certify(climb, TORN_PLANE, PLANE, samples=40_000, **SWITCHING | {"tube": 0.5}, **TAIL),
    "policy at points": lambda: at_points(MAKERS["policy"]),
    "episodes": lambda: _certify(climb, _episodes(STEADY), Legendre(2), None, **TAIL),
    "Chebyshev, unpaired": lambda: _solved(random_polynomial(seed=7), Chebyshev(11), 3, 0, 100_000, paired=False),
    "one column": lambda: _solved(random_polynomial(seed=7), Legendre(11), 1, None),
    "a circle": lambda: _solved(circle(), Fourier(9), 9, circle().tail),
    "unpaired, at points": lambda: at_points(
        lambda: _solved(random_polynomial(seed=7), Legendre(11), 3, 0.001, 200_000, paired=False)
    ),
    "three coordinates": lambda: _certify(lambda s: s.sum(axis=1), THREE, product(*[LINE] * 3)),
    "episodes of a policy": lambda: _certify(climb, _episodes(TORN), Legendre(2), None, **SWITCHING, **TAIL),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_checker_derives_every_part_of_the_bands_that_the_library_has(kind, tmp_path):
    made = MAKERS[kind]()
    derived = Certificate(read(made.save(tmp_path / "made.npz")), None)
    for ground, other in zip(made.grounds, derived.grounds, strict=True):
        work, here = second.Derivation(other), ground.bands
        there = {band.pair: band for band in work.bands()}
        for band in here.pairs:
            same = there[band.pair]
            scale = float((band.estimation + band.second_order).max() + band.tail)
            assert same.curve.middle == pytest.approx(band.curve, abs=1e-9 * scale + band.floating)
            for own, again in (
                (band.estimation, same.estimation),
                (band.second_order, same.second),
                (np.array(band.tail), np.array(same.tail)),
            ):
                assert own.shape == again.shape and own.ravel() == pytest.approx(again.ravel(), rel=1e-7)
                assert (again >= own * (1 - 1e-12)).all()  # rounded to the safe side
            assert 0.2 * band.floating < same.rounding < 5 * band.floating
        if here.visits.size:
            assert work.visits() == pytest.approx(here.visits, rel=1e-7) and (here.visits < 1).any()
            assert work.span() == pytest.approx(here.span, rel=1e-7) and here.span > 0


@pytest.mark.parametrize("kind", REFUTATIONS)
def test_the_checker_derives_every_number_of_a_refutation_that_the_library_has(kind, tmp_path):
    made = proof(kind)
    derived = refutations.Refutation(read(saved(kind).save(tmp_path / "made.npz")), None)
    for ground, cover in zip(made.grounds, derived.covers, strict=True):
        cover.tail = 0.01  # so that there is that part too
        there, here = first.Bounds(ground.cover, ground.sums, 0.01), refutations.numbers(cover, 0.05)
        errors = there.errors(ground.cover, 0.05)
        assert here.estimate == pytest.approx(there.estimate, abs=1e-9)
        assert here.errors[:2] == pytest.approx(errors[:2], rel=1e-7)
        assert (here.errors[:2] >= errors[:2] * (1 - 1e-12)).all() and (here.cones == there.cones).all()
        assert (here.errors[2] > 0.2 * errors[2]).all() and (here.errors[2] < 5 * errors[2]).all()
        assert (here.above >= here.estimate + here.errors.sum(axis=0)).all()


LEAST = {"half_width": 0.0, "share": 0.0, "settled": 0.0, "shortfall": 0.0, "ties": 0.0}


@pytest.mark.parametrize("kind", ["policy", "policy solution", "policy box", "policy at points", "known noise", "open"])
def test_what_is_claimed_is_all_that_follows(kind, tmp_path):
    """Where what is claimed is too good to be true, the checker says the number that the library had."""
    golden = golden_files.FOLDER / "4" / "known-noise-policy.npz"
    header, arrays = files.parts(golden) if kind == "known noise" else contents(kind)
    own = claim_of(header)
    if kind == "open":
        named = {"the ceiling": own["ceiling"]}
        own["ceiling"] = 0.0
    else:
        named = {"regret": own["regret"], "the value span": own["value_span"]} | {
            name: own["tube"][name] for name in LEAST
        }
        own["tube"] |= LEAST
        own |= {"regret": 0.0, "value_span": 1e300}
    reasons = "; ".join(check(files.write(tmp_path / "least.npz", header, arrays)).reasons)
    found = re.findall(r"([a-z ]+) (?:may be|that follows from the sums is) ([-0-9.e]+)", reasons)
    expected = {name.replace("_", " "): x for name, x in named.items() if x}
    assert {name.strip(): float(x) for name, x in found} == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("kind", test_cell_files.MAKERS)
def test_what_cells_claim_is_all_that_follows(kind, tmp_path):
    made = test_cell_files.saved(kind)[0]
    derived = CellCertificate(read(made.save(tmp_path / "made.npz")), None)
    assert derived.contradictions() == derived.conclude() == []
    margins, gained, lost = derived.follows
    for smaller, larger in ((derived.margins, margins), (gained, derived.above), (lost, derived.below)):
        ratios = smaller[smaller > 0] / larger[smaller > 0]
        assert (ratios <= 1).all() and (not len(ratios) or np.median(ratios) > 1 - 1e-5)


@pytest.mark.parametrize("basis", [Legendre(7), Fourier(5), product(Legendre(3), Fourier(3), index="full")], ids=str)
def test_the_parts_of_divided_boxes_cover_them(basis, monkeypatch):
    """The least value is sought by dividing boxes: if all are divided, their middles are those of a finer mesh."""
    families, indices = tuple(part.kind for part in basis.parts), tuple(map(tuple, basis.indices.tolist()))
    functions, levels, plain = harmonics.Functions(families, indices, basis.domain), [], harmonics.Functions.at_places

    def floors(below, *rest):
        return np.full(len(below), -np.inf if len(levels) < 2 else np.inf), -1e9

    monkeypatch.setattr(harmonics, "_floors", floors)
    monkeypatch.setattr(harmonics.Functions, "at_places", lambda self, t: levels.append(t) or plain(self, t))
    functions.least(Enclosure(np.ones(basis.size)))
    for level, places in enumerate(levels, 1):
        counts = [n * harmonics._PARTS[basis.dimension > 1] ** level for n in functions.counts(8.0, 1)]
        numbers = []
        for axis, t, count in zip(functions.axes, places, counts, strict=True):
            angles = (t.middle + 1) / 2 if axis.periodic else np.arccos(-t.middle) / np.pi
            numbers.append(angles * count - 0.5)
            assert np.abs(numbers[-1] - np.rint(numbers[-1])).max() < 1e-9
        met = np.ravel_multi_index([np.rint(n).astype(int) for n in numbers], counts)
        assert np.array_equal(np.sort(met), np.arange(math.prod(counts)))
    assert len(levels) == 2


def exact(x):
    return Decimal(float(x))


def exact_normal(x):
    """Φ and φ, to forty digits."""
    n, term, total = 1, x, x
    while abs(term) > Decimal(10) ** -45:
        n += 2
        term *= x * x / n
        total += term
    density = (-x * x / 2).exp() / (2 * Decimal("3.14159265358979323846264338327950288419716939937510")).sqrt()
    return Decimal("0.5") + density * total, density


@pytest.fixture
def _digits():
    with localcontext() as context:
        context.prec = 70
        yield


@pytest.mark.usefixtures("_digits")
def test_the_normal_distribution_function_is_within_its_error():
    points = np.append(np.random.default_rng(0).uniform(-8.9, 8.9, 100), np.arange(-144, 144, 7) / 16 + 1 / 32)
    for x, value, slope in zip(points, *known_noise.normal(points), strict=True):
        below, density = exact_normal(exact(x))
        assert abs(exact(value) - below) <= known_noise.ERROR >= abs(exact(slope) - density)


@pytest.mark.usefixtures("_digits")
@pytest.mark.parametrize(("slope", "near"), [(0.2, True), (-1.5, False), (-2.2, False)])
def test_scores_of_rows_at_the_walls_are_within_their_errors(slope, near):
    """By the table if the walls are near, and by bounds if they are far: then 1/c for each row, times √2."""
    states, std, crossed = np.ones(40), 0.25, np.array([0.3, -0.1])
    x = np.stack([states, np.random.default_rng(0).uniform(-1, 1, 40) if near else states], axis=1)
    drift = np.array([slope, 0.125])
    found, w, error = known_noise.Rows(np.eye(2), crossed, x, states, 1.0).score(drift, std)
    total = [exact(a) / exact(std) for a in crossed - drift]
    for row, least in zip(x, w, strict=True):
        c = (1 - exact(row[0]) * exact(slope) - exact(row[1]) * exact(0.125)) / exact(std)
        below, density = exact_normal(-c)
        ratio = density / below
        total = [sum + exact(z) * ratio for sum, z in zip(total, row, strict=True)]
        assert 0 <= least <= float(ratio * (ratio - c)) < (least + 1e-6 if near else 1)
    off = math.hypot(*(float(exact(a) - b) for a, b in zip(found, total, strict=True)))
    assert 0 < off <= error < (1e-8 if near else 1.1 * off)


@pytest.mark.usefixtures("_digits")
@pytest.mark.parametrize("order", [0, 1, 2])
def test_means_and_their_derivatives_are_within_their_errors(order):
    nodes, std, rng = np.linspace(-1, 1, 12), 0.3, np.random.default_rng(1)
    points, f = rng.uniform(-1.5, 1.5, 20), rng.normal(size=12)
    noise, h = known_noise.Noise(points, nodes, std), exact(nodes[1]) - exact(nodes[0])
    found = (noise.means, noise.slopes, noise.bends)[order] @ np.diff(f)
    allowed = noise.errors[order] * float(known_noise._variation(f))
    for y, value in zip(points, found, strict=True):
        each = []
        for node in nodes:
            u = (exact(y) - exact(node)) / exact(std)
            below, density = exact_normal(u)
            each.append((exact(std) * (u * below + density), below, density / exact(std))[order])
        true = sum((each[k] - each[k + 1]) / h * (exact(f[k + 1]) - exact(f[k])) for k in range(11))
        assert abs(exact(value) - true) <= allowed < 1e-9


@pytest.mark.parametrize("kind", ["policy", "policy box"])
def test_an_expert_takes_at_a_corner_what_the_corner_says_and_elsewhere_what_its_cell_says(kind):
    tube = proof(kind).tube
    expert = Expert(tube.grid.domain, tube.grid.support)
    states = np.random.default_rng(0).uniform(-1, 1, (200, len(expert.box)))
    assert np.array_equal([expert.at(state) for state in states], tube.grid.taken_at(states).T)
    axes = [np.linspace(-1, 1, n + 1) for n in expert.shape]
    corners = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    taken = np.eye(2, dtype=bool)[away_from_zero(corners)]
    assert np.array_equal([expert.at(state) for state in corners], taken)
    assert np.array_equal([expert.at(state) for state in corners * (1 - 1e-9)], taken)


@pytest.mark.parametrize("kind", ["refutation", "refuted sum"])
def test_ranges_of_many_numbers_hold_what_these_take_anywhere(kind, tmp_path):
    (cover, *_) = refutations.Refutation(read(saved(kind).save(tmp_path / "made.npz")), None).covers
    rows = np.random.default_rng(0).normal(size=(700, len(cover.corners)))
    middle, half = refutations._ranges(cover, Enclosure(rows))
    states = np.linspace(-1, 1, 2001)[:, None]
    values = rows @ cover.functions.at(states).middle[:, 1:].T
    assert (np.abs(values - middle[:, None]).max(axis=1) <= half.above).all()
    assert half.above == pytest.approx(np.ptp(values, axis=1) / 2, rel=0.25)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_is_lost_is_a_share_of_the_span_that_is_claimed(share, tmp_path):
    header, arrays = contents("policy")
    own = claim_of(header)
    own["value_span"] *= share
    verdict = check(files.write(tmp_path / "span.npz", header, arrays))
    (said,) = re.findall(r"of the span of V, at least ([0-9.]+)", str(verdict))
    assert verdict.verdict == "confirmed" and float(said) == pytest.approx(own["value_span"], rel=1e-3)


def test_a_margin_that_is_not_positive_leaves_the_regret_that_follows_from_it(tmp_path):
    made = _certify(lambda states: -states[:, 0], STEADY, Legendre(2))
    header, arrays = files.parts(made.save(tmp_path / "made.npz"))
    assert made.margin < 0 and made.regret == pytest.approx(0.7 / 0.3 * -made.margin, rel=1e-3)
    for share, verdict in ((1.0, "nothing claimed"), (0.99, "rejected")):
        header["regret"] = share * made.regret
        found = check(files.write(tmp_path / "regret.npz", header, arrays))
        assert found.verdict == verdict
    assert "the regret that follows is" in str(found)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("basis", [Legendre(9), Fourier(7), product(Legendre(4), Fourier(5), index="full")], ids=str)
def test_the_least_value_is_sought_between_bounds_that_are_true_and_close(basis, sign, monkeypatch):
    """Of a peak, up or down: its values are far from even about 0, and it is steep where they are."""
    families, indices = tuple(part.kind for part in basis.parts), tuple(map(tuple, basis.indices.tolist()))
    functions, seen, plain = harmonics.Functions(families, indices, basis.domain), [], harmonics._floors
    monkeypatch.setattr(harmonics, "_floors", lambda *asked: seen.append(asked[2:4]) or plain(*asked))
    axes = [np.linspace(low, high, 4001 if len(basis.domain) == 1 else 201) for low, high in basis.domain]
    states = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    values = functions.at(states).middle
    curve = sign * functions.at(np.array([[0.3] * len(axes)])).middle[0]
    peak = values @ curve
    lower, upper = functions.least(Enclosure(curve))
    assert lower <= peak.min() + 1e-12 and peak.min() - 1e-3 * np.ptp(peak) < lower <= upper
    for floor, ceiling in seen:
        assert floor <= (peak - curve[0]).min() + 1e-12 and ceiling >= (peak - curve[0]).max() - 1e-12
        assert ceiling - floor < 1.7 * np.ptp(peak)


@pytest.mark.parametrize("periodic", [(), (1,)])
def test_a_table_has_the_same_values_at_states_and_on_axes(periodic):
    """Those of the library, and of a plane where there is one."""
    box, rng = ((0.0, 2.0), (-1.0, 1.0)), np.random.default_rng(0)
    grid, cells = harmonics.Grid((5, 6), (False, 1 in periodic), box), certirl.Cells((5, 6), periodic, box)
    axes, values = [np.sort(rng.uniform(*ends, 7)) for ends in box], rng.normal(size=30)
    states = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    expected = cells.values(states) @ values
    assert grid.values(values, states) == pytest.approx(expected)
    assert grid.on_axes(values, axes).ravel() == pytest.approx(expected)
    if not periodic:
        x, y = grid.points.T
        assert grid.on_axes(2 * x - 3 * y + 1, axes).ravel() == pytest.approx(states @ [2, -3] + 1)
