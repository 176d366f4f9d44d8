"""The checker derives bands of soft experts again: the same numbers as the library's, and no narrower ones pass."""

import copy
import functools
import re
from tempfile import TemporaryDirectory

import golden_files
import numpy as np
import pytest
from test_files import alterations, verdict_on, with_array, with_field
from test_soft import DECLARED, GAMMA, THREE, TWO, Clipped, chances_of, decide, odds_around

import certirl
import certirl_check
import files
from certirl import Fourier, Legendre, product
from certirl.ground import archive
from certirl.problems import circle
from certirl.proof import soft_columns, soft_noise
from certirl.proof.odds import Odds, gather_odds
from certirl.proof.soft import ColumnDynamics, prove_band
from certirl_check import soft
from certirl_check.records import read
from sizes import sizes
from systems import Coins


def episodes(problem, count, **changes):
    """By the expert's own episodes and known noise."""
    log = problem.log(np.random.default_rng(3), count, 20)
    return prove_band(problem.basis, log, discount=GAMMA, dynamics=DECLARED, **changes)


def rows(system, basis, theta, count, *, independent=True):
    """Decisions at even states, and where they lead."""
    rng, theta = np.random.default_rng(4), np.asarray(theta)
    states = np.random.default_rng(5).uniform(*np.transpose(system.domain), (count, len(system.domain)))
    actions = decide(chances_of(basis, theta, states), rng)
    ends = np.stack([system.sample(states, action, rng) for action in range(len(theta))])
    taken = ends[actions, np.arange(count)]
    return certirl.Transitions(states, actions, taken, domain=system.domain, independent=independent)


def columns(system, basis, theta, count, drawn=0, **settings):
    """By columns, from rows of their own or from as many transitions of the simulator."""
    asked = {"discount": GAMMA, "columns": Legendre(9), "rng": 0} | settings
    log = rows(system, basis, theta, count)
    return prove_band(basis, log, *[system] * (drawn > 0), **asked, **{"samples": drawn} if drawn else {})


SMOOTH = {"tail": certirl.dynamics.GaussianNoise(0.4, slope=0.8)}
LINE, BOX = Coins((0.7, 0.4), (0.1, 0.2)), Coins([(0.6, 0.5), (0.4, 0.3)], [(0.1, 0.3), (0.2, -0.1)], 2)
PLANE = product(Legendre(2), Legendre(2))
FULL = {"columns": product(Legendre(2), Legendre(2), index="full"), "tail": 0.002, "discount": 0.6}
FEW = {"columns": Legendre(2), "tail": 0.002, "discount": 0.6}
TILTED = [[0.0, 0.0], [0.3, 0.6]]
WAVES = [[0.0] * 3, [0.2, 0.3, -0.2], [-0.1, 0.0, 0.3]]

MAKERS = {
    "known noise": lambda: episodes(TWO, 200),
    "three actions": lambda: episodes(THREE, 1500, reference_reward=2.0),
    "a tail of the odds": lambda: episodes(TWO, 600, odds_tail=0.01),
    "another reference": lambda: episodes(THREE, 1500, reference=1),
    "independent rows": lambda: prove_band(
        TWO.basis, rows(TWO, TWO.basis, TWO.theta, 6000), discount=GAMMA, dynamics=DECLARED, delta=0.1
    ),
    "simulator": lambda: prove_band(
        TWO.basis, rows(TWO, TWO.basis, TWO.theta, 6000), TWO, discount=0.5, dynamics=DECLARED, samples=2000, rng=0
    ),
    "a longer interval": lambda: prove_band(
        TWO.basis.on(Long.domain), rows(Long, TWO.basis.on(Long.domain), TWO.theta, 6000), discount=GAMMA,
        dynamics=certirl.dynamics.AffineGaussian(1.2),
    ),
    "columns": lambda: columns(LINE, Legendre(2), TILTED, 20_000, 10_000, **FEW),
    "columns by own rows": lambda: columns(LINE, Legendre(2), TILTED, 40_000, **FEW),
    "smooth columns": lambda: columns(TWO, TWO.basis, TWO.theta, 60_000, 40_000, odds_tail=0.005, **SMOOTH),
    "columns of three actions": lambda: columns(
        THREE, THREE.basis, THREE.theta, 60_000, 40_000, reference=2, odds_tail=0.005, reference_reward=-1.0, **SMOOTH
    ),
    "three actions, own rows": lambda: columns(THREE, THREE.basis, THREE.theta, 200_000, **SMOOTH),
    "box": lambda: columns(BOX, PLANE.on(BOX.domain), [[0.0] * 3, [0.2, 0.3, -0.4]], 40_000, 20_000, **FULL),
    "box by own rows": lambda: columns(BOX, PLANE.on(BOX.domain), [[0.0] * 3, [0.2, 0.3, -0.4]], 80_000, **FULL),
    "circle": lambda: columns(
        circle(), Fourier(3).on(circle().domain), WAVES[: circle().n_actions], 60_000, 40_000,
        columns=Fourier(9), tail=circle().tail,
    ),
}  # fmt: skip
QUICK = ("known noise", "columns")


class Stretched(Clipped):
    """The same in units of a third."""

    domain, std = ((-2.0, 4.0),), 1.2

    def sample(self, states, action, rng):
        middle, noise = 1 + self.pull * (states - 1) + 3 * self.drifts[action], rng.normal(size=states.shape)
        return np.clip(middle + self.std * noise, -2.0, 4.0)


Long = Stretched(TWO.theta, TWO.drifts)


@functools.lru_cache
def made(kind):
    return MAKERS[kind]()


@functools.lru_cache
def _stored(kind):
    with TemporaryDirectory() as folder:
        return files.parts(made(kind).save(f"{folder}/whole.npz"))


def contents(kind):
    """The header and the arrays of its file, to be changed at will."""
    header, arrays = _stored(kind)
    return copy.deepcopy(header), {name: array.copy() for name, array in arrays.items()}


def same(one, other):
    """Whether two W of (6) say the same: what they are turned by says nothing."""
    one, other = one @ one.T, other @ other.T
    return np.allclose(one, other, rtol=1e-7, atol=1e-8 * np.abs(other).max())


def derive_again(band, path):
    """The checker's numbers are those of the library."""
    assert band.holds
    claim = soft.BandClaim(read(band.save(path)), None)
    part = band.spending["log-odds"]
    assert same(claim.odds.sets(part), band.odds.reach(part))
    assert claim.contradictions() == claim.conclude() == []
    assert [*claim.found] == band.odds.others
    share = 1e-8 if isinstance(band.dynamics, ColumnDynamics) else 3e-7  # the set of drifts rests on a search
    for action, parts in claim.found.items():
        middle, room = band.reference_reward + parts.estimate, share * (band.high[action] - band.low[action]).max()
        assert middle - parts.below == pytest.approx(band.low[action], abs=room, rel=0)
        assert middle + parts.above == pytest.approx(band.high[action], abs=room, rel=0)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_checker_derives_the_band_that_the_library_has(kind, tmp_path):
    derive_again(made(kind), tmp_path / "band.npz")


@pytest.mark.unchecked  # later, in cells of the usual size
@pytest.mark.parametrize("kind", [*QUICK, "three actions", "columns of three actions", "box"])
def test_what_cells_miss_is_the_same(kind, tmp_path, monkeypatch):
    """In the cells of other tests it is too little to be seen."""
    monkeypatch.setattr(soft_noise, "CELLS", 60)
    monkeypatch.setattr(soft_noise, "_FINER", 2)
    monkeypatch.setattr(soft, "CELLS", 60)
    monkeypatch.setattr(soft, "PARTS", 2)
    monkeypatch.setattr(soft_columns, "_CELLS", {1: 30, 2: 30})
    monkeypatch.setattr(soft, "ALONG", {1: 30, 2: 30})
    derive_again(MAKERS[kind](), tmp_path / "band.npz")


@pytest.mark.parametrize("size", [400, 800])
def test_sets_of_log_odds_exist_for_the_checker_where_they_do_for_the_library(size, tmp_path):
    """Of an expert with rare actions: what is far away decides from which δ on there is a set."""
    rare = Clipped([[0.0, 0.0, 0.0], [-2.0, 0.4, 0.2], [-3.0, -0.5, 0.1]], [0.0] * 3)
    odds = odds_around(rare, size)
    odds = Odds(**{**vars(odds), "basis": odds.basis.on(rare.domain)})
    again, there = soft.LogOdds(read(archive.save(odds, tmp_path / "odds.npz"))), []
    for delta in np.geomspace(1e-10, 0.5, 25):
        reach = odds.reach(delta)
        there.append(reach is not None)
        if reach is None:
            with pytest.raises(soft.TooLittleError, match="too few decisions"):
                again.sets(delta)
        else:
            assert same(again.sets(delta), reach)
    assert 3 < sum(there) < 25


@pytest.mark.parametrize("n_actions", [2, 3, 12])
def test_what_the_second_order_leaves_is_the_same_where_the_set_is_wide(n_actions, tmp_path):
    """(8) is the smaller of two bounds: bands rest on one, and where little is known it is the other."""
    rng, tail = np.random.default_rng(0), 0.1
    states, first = rng.uniform(-1, 1, (5000, 1)), np.arange(5000) % 20 == 0
    basis, actions = Legendre(2).on(((-1.0, 1.0),)), rng.integers(n_actions, size=5000)
    odds = gather_odds(basis, states, actions, n_actions, first=first, tail=tail)
    again = soft.LogOdds(read(archive.save(odds, tmp_path / "odds.npz")))
    assert again.contradictions() == []
    chances, apart = rng.dirichlet(np.ones(n_actions), 200), np.geomspace(0.01, 30, 200)
    far = apart[:, None] * rng.uniform(0.1, 1.0, (200, n_actions))
    spread, wide = apart * rng.uniform(0.1, 0.5, 200), apart + 2 * tail
    for rise in (0.0, 0.2):
        bound = odds.bound_remainder(chances, spread, far[:, odds.others], apart, rise)
        found = again.remainder(chances, soft.Sizes(far**2, apart**2, spread**2), rise)
        assert found == pytest.approx(bound, rel=1e-9)
        more = spread * np.exp(rise / 2)
        third = ((np.expm1(wide) - wide) / wide**2 - 0.5) * (more + tail) ** 2 + tail * more + tail**2 / 2
        assert 0 < (bound < 0.99 * third).sum() < 200
    here, W = again.at(states[:50]), 0.1 * rng.normal(size=odds.prior.shape)
    sizes = again.sizes(here.each, W, here.chances)
    assert again.remainder(here.chances, sizes) == pytest.approx(odds.remainder(W, states[:50]), rel=1e-9)


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("place", "share"), [(0, 1e-4), (50, 1e-5), (100, 1e-4)])
@pytest.mark.parametrize(("name", "sign"), [("low", 1), ("high", -1)])
@pytest.mark.parametrize("kind", QUICK)
def test_no_narrower_band_is_confirmed(kind, name, sign, place, share, tmp_path):
    band, (header, arrays) = made(kind), contents(kind)
    arrays[name][1, place] += sign * share * (band.high - band.low)[1, place]
    verdict = certirl_check.check(files.write(tmp_path / "n.npz", header, arrays))
    assert verdict.verdict == "rejected"
    assert verdict.reasons == ("the band of action 1 is narrower than what follows from the sums",)


@pytest.mark.parametrize("kind", QUICK)
def test_a_wider_band_is_confirmed_as_wide_as_it_is(kind, tmp_path):
    band, (header, arrays) = made(kind), contents(kind)
    width = band.high - band.low
    wider = arrays | {"low": band.low - width, "high": band.high + width}
    header["reference_reward"], wider["low"][0], wider["high"][0] = 1e-9, 1e-9, 1e-9  # far less than the room
    verdict = certirl_check.check(files.write(tmp_path / "w.npz", header, wider))
    assert verdict.verdict == "confirmed"
    assert float(verdict.statement.split("±")[1].split()[0]) == pytest.approx(3 * band.half_width, rel=2e-3)


def _set(*path, value):
    return lambda header, arrays: (with_field(header, path, value(field_of(header, path))), arrays)


def field_of(header, path):
    return functools.reduce(lambda part, name: part[name], path, header)


def _array(name, change):
    return lambda header, arrays: (header, arrays | {name: change(arrays[name])})


def _spent(name):
    """All of δ on one event."""

    def change(header, arrays):
        spending = {key: header["delta"] * (0.9 if key == name else 0.1) for key in header["spending"]}
        return header | {"spending": spending}, arrays

    return change


def _entry(place, change):
    def changed(array):
        array = array.copy()
        array[place] = change(array[place])
        return array

    return changed


BOTH = {
    "a larger discount": (_set("discount", value=lambda x: x + 0.05), "discount|narrower"),
    "more decisions": (_array("odds.counts", lambda x: 2 * x), "another number of decisions"),
    "less information": (_array("odds.information", lambda x: 0.8 * x), "narrower"),
    "far more information": (_array("odds.information", lambda x: 100 * x), "not symmetric, or too large"),
    "smaller leverages": (_array("odds.leverages", lambda x: x / 3), "leverages are too small"),
    "a slope": (_array("odds.score", lambda x: x + 20.0), "narrower"),
    "a steep slope": (_array("odds.score", lambda x: x + 1e6), "the slope is larger than decisions allow"),
    "other log-odds": (_array("odds.coefficients", _entry((1, 0), lambda x: x + 0.1)), "narrower|another reward"),
    "log-odds of the reference": (_array("odds.coefficients", _entry((0, 0), lambda x: 0.1)), "are not 0"),
    "a tail of the log-odds": (_set("odds", "tail", value=lambda x: 0.01), "narrower"),
    "a tail below 0": (_set("odds", "tail", value=lambda x: -0.01), "the tail of the log-odds is below 0"),
    "no symmetry": (_array("odds.information", _entry((0, 0, 1), lambda x: x + 1.0)), "not symmetric"),
    "a smaller delta": (_set("delta", value=lambda x: x / 2), "the parts of δ are not probabilities that add up"),
    "all of delta on the log-odds": (_spent("log-odds"), "narrower|the parts of δ are not those of the band"),
    "other parts": (_set("spending", value=lambda x: {"luck": 0.05}), "the parts of δ are not d"),
    "another reward of the reference": (_set("reference_reward", value=lambda x: 1.0), "the reward of the reference"),
    "another bound of it": (_array("low", _entry((0, 3), lambda x: x - 1.0)), "the reward of the reference"),
    "states outside": (_array("states", _entry((0, 0), lambda x: -7.0)), "outside the domain"),
    "no decisions in a group": (_array("odds.counts", _entry(0, lambda x: 0)), "groups without decisions"),
}  # fmt: skip
ALTERED = {
    "known noise": BOTH | {
        "a tail": (_set("tail", value=lambda x: 0.1), "known noise has no tail"),
        "less noise": (_set("dynamics", "std", value=lambda x: 0.9 * x), "narrower"),
        "other drifts": (_array("dynamics.sums.inside", _entry((0, 3), lambda x: x + 20.0)), "narrower"),
        "larger sums": (_array("dynamics.sums.inside", _entry((0, 3), lambda x: x + 1e4)), "larger than states allow"),
        "more steps": (_array("dynamics.sums.inside", _entry((0, 0), lambda x: x + 0.5)), "not whole"),
    },
    "columns": BOTH | {
        "another tail": (_set("tail", value=lambda x: 0.0), "another tail than its columns"),
        "other changes": (_array("dynamics.changes", lambda x: 0.9 * x), "narrower"),
        "large changes": (_array("dynamics.changes", lambda x: 1e6 * x), "larger than log-odds allow"),
        "another reward": (
            _set("dynamics", "ground", "surrogate", "reward", "high", value=lambda x: x - 0.1), "have values V"
        ),
        "some coordinates": (
            _set("dynamics", "ground", "surrogate", "coordinates", value=lambda x: [0]), "of some coordinates alone"
        ),
        "another part of delta": (_set("dynamics", "ground", "delta", value=lambda x: 2 * x), "the parts of δ are not"),
    },
}  # fmt: skip


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in QUICK for name in ALTERED[kind]])
def test_what_was_changed_is_rejected(kind, name, tmp_path):
    change, reason = ALTERED[kind][name]
    verdict = certirl_check.check(files.write(tmp_path / "changed.npz", *change(*contents(kind))))
    assert verdict.verdict == "rejected" and re.search(reason, "; ".join(verdict.reasons)), verdict.reasons


@pytest.mark.parametrize("count", sizes(12, 30))
@pytest.mark.parametrize("kind", QUICK)
def test_no_altered_band_is_confirmed_beyond_what_it_supports(kind, count, tmp_path):
    header, arrays = contents(kind)
    original, every = (
        certirl_check.check(files.write(tmp_path / "whole.npz", header, arrays)),
        alterations(header, arrays),
    )
    half = float(original.statement.split("±")[1].split()[0])
    for what, place, change in every[3 :: len(every) // count]:
        words = with_field(header, place, change) if what == "field" else header
        numbers = with_array(arrays, place, change) if what == "array" else arrays
        verdict = verdict_on(files.write(tmp_path / "altered.npz", words, numbers))
        if verdict is not None and verdict.verdict == "confirmed":
            assert float(verdict.statement.split("±")[1].split()[0]) >= half, place
            assert verdict.trusted == original.trusted and verdict.lines[0] == original.lines[0], place


def test_a_solution_is_what_its_band_proves(tmp_path):
    path = golden_files.FOLDER / str(archive.VERSION) / "solution-soft-band.npz"
    header, arrays = files.parts(path)
    assert certirl_check.check(path).verdict == "confirmed"
    for change, reason in [
        ({"discount": 0.8}, "the band has discount 0.5, the solution 0.8"),
        ({"reference": 1}, "the solution has another reference than its band"),
        ({"counts": header["counts"][:1]}, "the solution has other actions than its band"),
        ({"proof": None}, "the file says that it is bounded, and holds no band"),
    ]:
        verdict = certirl_check.check(files.write(tmp_path / "changed.npz", header | change, arrays))
        assert (verdict.verdict, verdict.reasons) == ("rejected", (reason,))
    for finding in header["findings"]:
        finding["status"] = "certified"
    verdict = certirl_check.check(files.write(tmp_path / "changed.npz", header, arrays))
    assert verdict.reasons == ("the file says that it is certified, by what is a band",)


@pytest.mark.slow
def test_no_band_claims_nothing(tmp_path):
    band = episodes(TWO, 10)
    header, arrays = files.parts(band.save(tmp_path / "band.npz"))
    verdict = certirl_check.check(tmp_path / "band.npz")
    assert (verdict.verdict, verdict.reasons) == ("nothing claimed", ("the band is not bounded",))
    arrays["low"][1, 0] = -100.0
    verdict = certirl_check.check(files.write(tmp_path / "some.npz", header, arrays))
    assert verdict.verdict == "rejected"
    assert verdict.reasons[0].startswith("no band follows from the sums: ")
    open_ended = columns(LINE, Legendre(2), TILTED, 20_000, 10_000, **FEW | {"tail": None})
    verdict = certirl_check.check(open_ended.save(tmp_path / "open.npz"))
    assert (verdict.verdict, verdict.reasons) == ("nothing claimed", ("no tail was declared",))


def test_loading_a_band_runs_the_check(tmp_path):
    band = made("columns")
    path = band.save(tmp_path / "band.npz")
    read_again, verdict = certirl.load(path), certirl.check(band)
    assert read_again.assumptions == verdict.trusted == certirl_check.check(path).trusted
    header, arrays = contents("columns")
    arrays["low"][1, 50] += 0.01
    with pytest.raises(ValueError, match="damaged or was changed: the band of action 1 is narrower than what follows"):
        certirl.load(files.write(tmp_path / "narrower.npz", header, arrays))
