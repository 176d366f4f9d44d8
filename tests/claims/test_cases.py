"""The table of cases in docs/certificates.md is true: each exists, or is refused with the sentence of one table."""

import re

import numpy as np
import pytest

import certirl
from certirl import Legendre, dynamics, product, steps
from certirl.data.policy import CELLS_ALONG
from certirl.proof.case import CASES, COUPLED, DECLARED, table
from checker.saved_records import (
    MIDDLE,
    MIDDLE_PLANE,
    PLANE,
    PROVED,
    SETTINGS,
    STEADY,
    STEADY_PLANE,
    THREE,
    TORN,
    TORN_PLANE,
    Coins,
    away_from_zero,
    climb,
    to_and_fro,
)
from pages import ROOT
from systems import Moving

PAGE = (ROOT / "docs/certificates.md").read_text()
TABLE, REFUSAL = re.search(
    r"## Which cases exist\n(.*?)\nRefused with this sentence:\n(.*?)\nAlso", PAGE, re.S
).groups()
HEADER, _, *ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\|.*\|$", TABLE, re.M)]
CELLS = {(row[0].split(":")[0], case): cell for row in ROWS for case, cell in zip(HEADER[1:], row[1:], strict=True)}

LINE = Legendre(2)
SWITCHES = {"expert": away_from_zero, "tube": 0.4}
LINES, PLANES = [[0], [1]], [[0, 1], [2, 3]]
# In a sum each of two alternatives acts on one component; in a refuted sum no component prefers the expert.
SUM, SUM_OF_PLANES = Coins(THREE, (0.1,) * 3, 2), Coins(THREE.repeat(2, axis=1), (0.1,) * 3, 4)
NO_SUM, NO_SUM_OF_PLANES = (Coins([(0.5,) * d] * 3, (0.0, 0.4, -0.4), d) for d in (2, 4))
TORN_BOTH = Coins([(0.5, 0.5)] * 2, (0.4, -0.4), 2)


def certify(problem, columns, reward=climb, **settings):
    return certirl.certify(reward, problem, columns=columns, samples=40_000, **SETTINGS | {"expert": 0} | settings)


def certify_sum(problem, components, basis):
    climbs = certirl.Reward(basis.on(problem.domain[: basis.dimension]), np.array([0.0] + [1.0] * basis.dimension))
    return certify(problem, basis, certirl.Reward.sum([climbs, climbs], components))


def prove(problem, columns, *, tube=None, **settings):
    return certirl.solve(problem, columns=columns, samples=80_000, tube=tube, **SETTINGS | {"expert": 0} | settings)


def refute(problem, basis, **settings):
    asked = PROVED | {"expert": 0, "samples": 20_000} | settings
    return certirl.refute(problem, basis=basis, columns=basis.size, **asked)


EXISTS = {
    ("certify", "constant, interval"): lambda: certify(STEADY, LINE),
    ("certify", "constant, box"): lambda: certify(STEADY_PLANE, PLANE),
    ("certify", "policy, interval"): lambda: certify(TORN, LINE, **SWITCHES),
    ("certify", "policy, box"): lambda: certify(TORN_PLANE, PLANE, **SWITCHES | {"tube": 0.5}),
    ("certify", "sum, intervals"): lambda: certify_sum(SUM, LINES, LINE),
    ("certify", "sum, boxes"): lambda: certify_sum(SUM_OF_PLANES, PLANES, PLANE),
    ("prove", "constant, interval"): lambda: prove(STEADY, 2, basis=Legendre(4)),
    ("prove", "constant, box"): lambda: prove(STEADY_PLANE, 3, basis=PLANE),
    ("prove", "policy, interval"): lambda: prove(TORN, 2, **SWITCHES),
    ("prove", "policy, box"): lambda: prove(TORN_PLANE, 3, **SWITCHES | {"tube": 0.5}),
    ("prove", "sum, intervals"): lambda: prove(SUM, 2, basis=Legendre(4), components=LINES),
    ("prove", "sum, boxes"): lambda: prove(SUM_OF_PLANES, 3, basis=PLANE, components=PLANES),
    ("refute", "constant, interval"): lambda: refute(MIDDLE, LINE),
    ("refute", "constant, box"): lambda: refute(MIDDLE_PLANE, PLANE),
    ("refute", "policy, interval"): lambda: refute(TORN, LINE, expert=to_and_fro, tube=0.1),
    ("refute", "policy, box"): lambda: refute(TORN_BOTH, PLANE, expert=to_and_fro, tube=0.1),
    ("refute", "sum, intervals"): lambda: refute(NO_SUM, LINE, components=LINES),
    ("refute", "sum, boxes"): lambda: refute(NO_SUM_OF_PLANES, PLANE, components=PLANES),
}
REFUSES = {
    "certify": lambda: certify(
        SUM,
        LINE,
        certirl.solve(SUM, expert=0, discount=0.7, components=LINES, basis=LINE, rng=0).reward,
        expert=away_from_zero,
    ),
    "prove": lambda: prove(SUM, 2, components=LINES, **SWITCHES),
    "refute": lambda: refute(NO_SUM, LINE, components=LINES, expert=away_from_zero),
}


@pytest.fixture(autouse=True)
def _coarse_grid(monkeypatch):
    for dimension, cells in ((1, 40), (2, 12)):
        monkeypatch.setitem(CELLS_ALONG, dimension, cells)


def test_the_table_names_every_case():
    exists = {cell for cell, word in CELLS.items() if word == "yes"}
    assert exists == {*EXISTS, *(("check", case) for _, case in EXISTS)}
    assert {cell for cell, word in CELLS.items() if word == "refused"} == {(verb, HEADER[-1]) for verb in REFUSES}
    assert " ".join(REFUSAL.replace(">", " ").split()) == COUPLED


@pytest.mark.thinned(4)
@pytest.mark.parametrize("case", HEADER[1:-1])
@pytest.mark.parametrize("verb", ["certify", "prove", "refute"])
def test_what_is_said_to_exist_holds_and_is_confirmed_by_the_checker(verb, case, tmp_path):
    record = EXISTS[verb, case]()
    proof = getattr(record, "certificate", record)
    assert proof.word == ("certified infeasible" if verb == "refute" else "certified") and proof.holds
    path = record.save(tmp_path / "record.npz")
    again = certirl.load(path)
    kept = getattr(again, "certificate", again)
    assert type(again) is type(record) and kept.margin == proof.margin and kept.spending == proof.spending
    verdict = certirl.check(path)
    assert verdict.verdict == "confirmed"
    assert verdict.margin == pytest.approx(proof.margin, rel=1e-6)
    assert verdict.margin <= proof.margin or verb == "refute"  # a refutation leaves more room for rounding
    if verb == "prove":
        states = np.random.default_rng(0).uniform(-1, 1, (20, len(record.domain)))
        assert np.array_equal(again.reward(states), record.reward(states))
        assert len(str(record).splitlines()) <= 6 + case.startswith("sum")  # a sum has a line of its components


@pytest.mark.parametrize("verb", REFUSES)
def test_what_is_said_to_be_refused_is_refused_in_that_sentence(verb):
    with pytest.raises(ValueError, match=re.escape(COUPLED)):
        REFUSES[verb]()


# Sums over components, and other verbs, have no dynamics that could be declared otherwise.
ASKED = ("coordinates", *CASES[:4])
SENTENCES = {
    ("columns", "coordinates"): "a certificate over a whole box is for 3 coordinates at most",
    **{
        (declared, CASES[1]): "a proof is for problems without terminal states"
        for declared in ("columns", "AffineGaussian")
    },
}


def still(coordinates=1, noise=0.0, **more):
    """A step to the right or to the left, without noise or with it."""
    return Moving(((-1.0, 1.0),) * coordinates, (0.3, -0.3), keep=0.5, std=noise, **more)


def _ended(states):
    return states[:, 0] > 0.5


def _mixes(states):
    return np.full((len(states), 2), 0.5)


def _declared(declared, case):
    """What is asked of a proof in a case that it lacks."""
    coordinates = DECLARED[declared].coordinates + (case == "coordinates")
    noise = 0.0 if declared == "Deterministic" else 0.3
    more = {CASES[0]: {"periodic": (0,)}, CASES[1]: {"terminal": _ended}}.get(case, {})
    source = still(coordinates, noise, **more)
    if case == CASES[3]:
        source = steps.sample(source, basis=product(*[LINE] * coordinates), samples=100, rng=0)
    asked = {"discount": 0.7, "expert": _mixes if case == CASES[2] else 0, "rng": 0}
    if declared == "columns":
        return climb, source, asked | {"columns": product(*[LINE] * coordinates), "tail": 0}
    if declared == "AffineGaussian":
        return climb, source, asked | {"dynamics": dynamics.AffineGaussian(0.3)}
    asked["dynamics"] = dynamics.Deterministic(0.5 * np.eye(coordinates), points=11)
    return certirl.planning.ValueReward(climb, source, 0.7), source, asked


def test_the_page_prints_the_table_of_declarations():
    assert f"\n\n{table()}\n\n" in PAGE


@pytest.mark.parametrize(
    ("declared", "case"),
    [(declared, case) for declared, has in DECLARED.items() for case in ("coordinates", *has.lacks) if case in ASKED],
)
def test_a_case_that_a_declaration_lacks_is_refused_with_those_that_have_it(declared, case):
    reward, source, asked = _declared(declared, case)
    with pytest.raises(ValueError, match=SENTENCES.get((declared, case), "does not exist for .*: (write|no other)")):
        certirl.certify(reward, source, **asked)


@pytest.mark.parametrize("declared", [dynamics.AffineGaussian(0.3), dynamics.Deterministic(0.5, points=11)])
def test_settings_without_use_to_a_declaration_are_refused(declared):
    for name, value in {"columns": LINE, "tail": 0, "reward_range": (0, 1), "paired": True}.items():
        sentence = rf"dynamics={type(declared).__name__}\(…\) has no use for {name}: leave {name} out"
        with pytest.raises(ValueError, match=sentence):
            certirl.certify(climb, still(noise=0.3), expert=0, discount=0.7, dynamics=declared, **{name: value})
    with pytest.raises(TypeError, match=r"dynamics must be certirl\.dynamics\.AffineGaussian\(std\) or"):
        certirl.certify(climb, still(), expert=0, discount=0.7, dynamics=0.3)
