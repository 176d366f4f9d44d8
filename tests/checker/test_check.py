"""The second opinion confirms what was saved, agrees with it in every number, and refutes what was altered."""

import ast
import json
import math
import sys
import zipfile
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from saved_records import (
    CERTIFICATES,
    MAKERS,
    REFUTATIONS,
    SETTINGS,
    STEADY,
    claim_of,
    climb,
    contents,
    grounds,
    proof,
    saved,
)

import certirl
from certirl import cli
from certirl.functions import inequalities
from certirl.functions.bases import Chebyshev, Fourier, Legendre, product
from certirl.functions.frame import frame
from certirl_check import check, deviations, enclosures, harmonics
from certirl_check.__main__ import main as certirl_check_main
from certirl_check.enclosures import Enclosure
from files import write
from sizes import sizes

EVERY = tuple(MAKERS)


@pytest.fixture(params=EVERY)
def kind(request):
    return request.param


@pytest.mark.thinned(2)
def test_what_was_saved_is_confirmed(kind, tmp_path):
    found = proof(kind)
    assert found.holds == (kind != "open")
    verdict = check(saved(kind).save(tmp_path / "c.npz"))
    assert verdict.verdict == "confirmed", str(verdict)
    scale = abs(found.estimated) + sum(found.losses.values())
    assert verdict.margin == pytest.approx(found.margin, abs=1e-7 * scale)
    assert verdict.margin <= found.margin + 1e-7 * scale
    for part in (
        f"with probability at least {certirl.ground.status.chance(found.delta)}",
        "discount" if kind in REFUTATIONS else "discount 0.7",
        "[-1, 1] × [-1, 1]" if "box" in kind or "sum" in kind else "[-1, 1]",
        f"{found.samples:,} {'to' if kind == 'episodes' else 'fresh transitions of each action'}",
        f"{len(found.grounds[0].evidence.counts if kind in CERTIFICATES else found.grounds[0].sums.counts)} actions",
        f"δ = {found.delta:g}",
        "trusted",
        "every P_a f is exactly a combination of the first",
    ):
        assert part in str(verdict), part


@pytest.mark.parametrize("kind", ["action", "episodes", "refutation"])  # a solution, a certificate, a refutation
def test_a_record_is_checked_as_its_file(kind, tmp_path):
    assert certirl.check(saved(kind)) == certirl.check(saved(kind).save(tmp_path / "c.npz"))
    with pytest.raises(TypeError, match="a file is named by"):
        certirl.check(saved(kind).to_dict())


# Alterations


def scale(name, factor):
    return every(name, lambda x: (x * factor).astype(x.dtype))


def entry(name, index, value):
    def change(x):
        x[index] = value
        return x

    return every(name, change)


def every(name, change):
    """The arrays of this name that bounds rest on, in all components."""

    def alter(header, arrays):
        for own in [own for own in arrays if own.split(".")[-1] == name and "grounds." in own]:
            arrays[own] = change(arrays[own])

    return alter


def array(name, change):
    """An array of the certificate itself."""

    def alter(header, arrays):
        where = f"certificate.{name}" if header["type"] == "Solution" else name
        arrays[where] = change(arrays[where])

    return alter


def times(name, factor, *path):
    def alter(header, arrays):
        own = claim_of(header)
        for step in path:
            own = own[step]
        own[name] *= factor

    return alter


def ground(part, **changes):
    return lambda header, arrays: grounds(header, part)[0].update(changes)


def _function(header):
    return grounds(header, "surrogate")[0]["reward"]["function"]


def _ends(arrays):
    arrays["certificate.grounds.0.surrogate.reward.function.ends.boxes"] = np.zeros((0, 2, 1))
    return {"type": "Ends", "boxes": {"array": [0, 2, 1]}, "worth": -50.0}


# What no change of one field or array by a tenth does (those are in test_files.py).
ALL = {
    "margin raised": lambda h, a: claim_of(h).update(margin=claim_of(h)["margin"] + 0.001 * abs(claim_of(h)["margin"])),
    "residuals too large": scale("residuals", 1e4),
    "negative δ": lambda h, a: claim_of(h)["spending"].update(more=-0.02),
}
OF_CERTIFICATES = ALL | {
    "operator moves constants": entry("Z", (1, 0, 0), 0.9),
    "functions without an inverse": entry("mix", -1, 0.0),
    "V of a wider range": lambda h, a: grounds(h, "surrogate")[0].update(low=grounds(h, "surrogate")[0]["low"] - 1),
    "powers that nothing has": every("powers", lambda x: np.full(x.shape, 1e308)),
    "cubes without squares": every("powers", lambda x: np.concatenate([1e6 + x[: len(x) // 2], x[len(x) // 2 :]])),
    "fourth powers gone": scale("powers", 1e-6),
    "products that nothing has": scale("cross_moments", -1e6),
    "rows said to be independent": lambda h, a: [a.pop(name) for name in list(a) if name.endswith(".design")],
    "shapes that are not those": lambda h, a: grounds(h, "evidence")[0].update(counts={"array": [1]}),
    "other numbers than the header says": lambda h, a: grounds(h, "evidence")[0].update(counts=None),
}
OF_CONSTANT = OF_CERTIFICATES | {"an expert that there is not": ground("surrogate", used=[1])}
OF_REWARDS = {
    "other next states": scale("reached", 1.001),
    "numbers at terminal states": lambda h, a: _function(h).update(ends=_ends(a)),
}
OF_POLICIES = OF_CERTIFICATES | {
    "regret lowered": times("regret", 0.99),
    "span raised": times("value_span", 1.01),
    "a narrower tube asked for": lambda h, a: claim_of(h)["tube"].update(allowed=0.01),
    "all decided": array("tube.decided", np.ones_like),
    "nothing undecided": array("tube.undecided", lambda x: x[:0]),
    "switches elsewhere": array("tube.grid.support", lambda x: np.roll(x, 3, axis=0)),
    "no action somewhere": array("tube.grid.support", lambda x: x & (np.arange(x.size) >= 6).reshape(x.shape)),
    "narrower tents": scale("widths", 0.01),
    "visits certain": scale("visit_moments", 0.01),
}
OF_REFUTATIONS = ALL | {
    "other actions": every("actions", lambda x: (x + 1) % 2),
    "a negative weight": entry("mixtures", (0, 0), -0.1),
    "other mixtures": every("mixtures", lambda x: np.roll(x, 1, axis=0)),
    "a steep slope": entry("slopes", 0, 1.5),
    "a cone of another order": every("splits", lambda x: np.where(np.arange(4) == 3, np.iinfo(x.dtype).min, x)),
    "a smaller ceiling": lambda h, a: claim_of(h).update(ceiling=claim_of(h)["ceiling"] - 0.01),
    "all refuted": lambda h, a: claim_of(h).update(margin=abs(claim_of(h)["margin"]) * 1.01, ceiling=0.0),
}
TABLES = {
    "action": OF_CONSTANT | OF_REWARDS,
    "box": OF_CONSTANT | OF_REWARDS,
    "sum": OF_CONSTANT | OF_REWARDS,
    "policy": OF_POLICIES,
    "policy solution": OF_POLICIES | OF_REWARDS,
    "policy box": OF_POLICIES,
    "episodes": OF_CONSTANT,
    "policy at points": OF_POLICIES,
    **dict.fromkeys(REFUTATIONS, OF_REFUTATIONS),
}


# From what is so altered the same statement may follow, with room to spare.
IN_FAVOUR = dict.fromkeys(REFUTATIONS, ("other mixtures",)) | {"open": ("other mixtures", "other actions")}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("step", sizes(3, 1))
def test_refutes_what_was_altered(kind, step, tmp_path):
    passed, original = [], check(write(tmp_path / "whole.npz", *contents(kind)))
    for name, alter in list(TABLES[kind].items())[EVERY.index(kind) % step :: step]:
        header, arrays = contents(kind)
        before = json.dumps(header), {own: x.copy() for own, x in arrays.items()}
        alter(header, arrays)
        same = all(np.array_equal(x, arrays.get(own)) for own, x in before[1].items())
        if json.dumps(header) == before[0] and same:  # nothing to alter: no tents, no second component
            continue
        try:
            verdict = check(write(tmp_path / "altered.npz", header, arrays))
        except ValueError as problem:
            if "damaged" not in str(problem) or "\n" in str(problem):
                raise
        else:
            if name in IN_FAVOUR.get(kind, ()) and verdict.statement == original.statement:
                continue
            if verdict.verdict != "rejected" or not str(verdict).startswith("Rejected: "):
                passed.append((name, str(verdict)[:200]))
    assert passed == []


def _terminal(header, arrays):
    header["stats"]["terminal"] = {"type": "TerminalBoxes", "boxes": {"array": [0, 1, 2]}}
    arrays["stats.terminal.boxes"] = np.zeros((0, 1, 2))


def _flat(header, arrays):
    grounds(header, "surrogate")[0]["columns"]["factors"][0]["size"] = 1


SAID = {
    "an action that there is not": ("refutation", entry("actions", 0, 9), "actions are compared that there are not"),
    "an action below the first": ("refutation", entry("actions", 0, -1), "actions are compared that there are not"),
    "terminal boxes": ("action", _terminal, "the solution has terminal states"),
    "zero at the ends": ("action", lambda h, a: h["reward"].update(zero_at_terminal=True), "has terminal states"),
    "a factor of one function": ("box", _flat, "should be other functions"),
    "constants of an action": ("action", entry("operator_residuals", (1, 0, 0), 1e3), "constants have residuals"),
}


@pytest.mark.parametrize("how", SAID)
def test_what_was_altered_is_said(how, tmp_path):
    kind, alter, sentence = SAID[how]
    header, arrays = contents(kind)
    alter(header, arrays)
    path = write(tmp_path / "altered.npz", header, arrays)
    if sentence.startswith("should be"):
        with pytest.raises(ValueError, match=f"damaged: .* {sentence}"):
            check(path)
    else:
        assert sentence in str(check(path))


PRESENTED = {
    "estimate raised": times("estimated", 1.01),
    "losses gone": lambda h, a: claim_of(h).update(losses=dict.fromkeys(claim_of(h)["losses"], 0.0)),
    "other losses": lambda h, a: claim_of(h).update(losses={"luck": 1.0}),
    "least elsewhere": lambda h, a: a.update(
        {name: -x for name, x in a.items() if name in ("state", "certificate.state")}
    ),
}


@pytest.mark.thinned(2)
def test_what_is_only_shown_is_neither_read_nor_printed(kind, tmp_path):
    """How a margin is divided into an estimate and losses, and where it is least: the checker has its own numbers."""
    header, arrays = contents(kind)
    original = str(check(write(tmp_path / "c.npz", header, arrays)))
    for alter in PRESENTED.values():
        alter(header, arrays)
    assert str(check(write(tmp_path / "altered.npz", header, arrays))) == original


@pytest.mark.thinned(2)
def test_a_weaker_claim_is_confirmed_as_the_weaker_one(kind, tmp_path):
    header, arrays = contents(kind)
    found = claim_of(header)
    if kind == "open":
        pytest.skip("no margin is claimed")
    found["margin"] *= 0.5
    if kind in CERTIFICATES and found["tube"]:
        found["tube"].update(half_width=1.1 * found["tube"]["half_width"], settled=math.inf)
    verdict = check(write(tmp_path / "c.npz", header, arrays))
    assert verdict.verdict == "confirmed", str(verdict)
    assert verdict.margin > found["margin"]
    if kind in CERTIFICATES:
        assert float(verdict.statement.split("≥ ")[1].split()[0]) <= found["margin"]


def test_without_a_tail_or_a_margin_nothing_is_claimed(tmp_path):
    header, arrays = contents("action")
    claim_of(header)["tail"] = claim_of(header)["grounds"][0]["tail"] = None
    assert (
        check(write(tmp_path / "t.npz", header, arrays)).verdict == "rejected"
    )  # the solution says that it is certified
    header["findings"][0]["status"] = "solved"
    assert check(write(tmp_path / "t.npz", header, arrays)).verdict == "nothing claimed"
    alone = {name.removeprefix("certificate."): x for name, x in arrays.items() if name.startswith("certificate.")}
    verdict = check(write(tmp_path / "t.npz", header["certificate"], alone))
    assert verdict.verdict == "nothing claimed" and verdict.reasons == ("no tail was declared",)
    little = certirl.certify(climb, STEADY, columns=certirl.Legendre(2), samples=20, expert=0, **SETTINGS)
    assert little.margin == -math.inf
    verdict = check(little.save(tmp_path / "c.npz"))
    assert verdict.verdict == "nothing claimed" and verdict.margin == -math.inf and "too little data" in str(verdict)


def test_no_certificate_is_one_sentence(tmp_path, capsys):
    header, arrays = contents("action")
    header["certificate"] = None
    assert cli.main(["check", str(write(tmp_path / "c.npz", header, arrays))]) == 5
    assert capsys.readouterr().out == "Rejected: the file says that it is certified, and holds no certificate.\n"
    header["findings"][0]["status"] = "solved"
    assert cli.main(["check", str(write(tmp_path / "c.npz", header, arrays))]) == 3
    assert capsys.readouterr().out == "Nothing claimed: the file holds no certificate and no refutation.\n"
    for kind, fault in (("Refutation", "certificate should be Certificate or "), ("GaussianCertificate", "is missing")):
        with pytest.raises(ValueError, match=f"damaged: .*{fault}"):
            check(write(tmp_path / "k.npz", header | {"certificate": {"type": kind}}, arrays))
    other = header | {"type": "Sonnet", "certificate": {"type": "Verse"}}
    with pytest.raises(ValueError, match="holds a certirl 'Sonnet', which has no certificate to check"):
        check(write(tmp_path / "o.npz", other, arrays))


def test_foreign_and_cut_files_are_one_sentence(tmp_path):
    whole = write(tmp_path / "c.npz", *contents("action")).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"hello", whole[:100]):
        (tmp_path / "cut.npz").write_bytes(content)
        with pytest.raises(ValueError, match="damaged or cut short"):
            check(tmp_path / "cut.npz")
    np.savez(tmp_path / "pickle.npz", header=np.array([{"format": "certirl"}], dtype=object))
    np.savez(tmp_path / "foreign.npz", x=np.zeros(3))
    for name in ("pickle", "foreign"):
        with pytest.raises(ValueError, match="not a certirl file"):
            check(tmp_path / f"{name}.npz")
    np.savez(tmp_path / "other.npz", header=np.array(json.dumps({"format": "else", "version": 2})))
    with pytest.raises(ValueError, match="has format version None and this certirl reads"):
        check(tmp_path / "other.npz")
    header, arrays = contents("action")
    twice = json.dumps({"format": "certirl", "version": 4, "record": header})[:-1] + ', "version": 4}'
    np.savez(tmp_path / "twice.npz", header=np.array(twice), **arrays)
    path = write(tmp_path / "members.npz", header, arrays)
    with zipfile.ZipFile(path, "a") as stored, pytest.warns(UserWarning, match="Duplicate"):
        stored.writestr("reward.coefficients.npy", stored.read("reward.coefficients.npy"))
    for name in ("twice", "members"):
        with pytest.raises(ValueError, match="damaged: something in it is there twice"):
            check(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError, match="no file"):
        check(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("path", sorted(Path(enclosures.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_shares_no_code_with_what_it_checks(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in [node.module] if isinstance(node, ast.ImportFrom) else names:
            own = {"certirl_check"} if path.stem != "enclosures" else set()
            assert name.split(".")[0] in {"numpy", *sys.stdlib_module_names, *own}, name
        # Approximate inverses and eigenvalues are taken where their errors are proved, for free choices, and for the
        # bands of soft experts, which are confirmed up to a millionth.
        if isinstance(node, ast.Attribute) and node.attr == "linalg":
            assert path.stem in ("enclosures", "bands", "known_noise", "soft")


# The arithmetic


def encloses(found, truth):
    return bool((np.abs(found.middle - truth) <= found.radius).all())


def test_logarithms_and_sines_are_enclosed():
    with localcontext() as context:
        context.prec = 40
        for x in np.exp(np.random.default_rng(0).uniform(-60, 60, 300)):
            found = enclosures.logarithm(x)
            assert abs(Decimal(float(x)).ln() - Decimal(float(found.middle))) <= Decimal(float(found.radius)) < 1e-13
    sine, cosine = enclosures.turn(Enclosure(np.linspace(-1, 1, 9)))
    assert encloses(sine[[0, 2, 4, 6, 8]], [0, -1, 0, 1, 0]) and encloses(sine[[1, 3]] * sine[[1, 3]], 0.5)
    assert encloses(sine * sine + cosine * cosine, 1.0) and sine.radius.max() < 1e-13


@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e9])
def test_inverses_and_eigenvalues_are_bounded(size, unit):
    A = np.random.default_rng(size).normal(size=(size, size)) + 3 * np.eye(size)
    found = enclosures.inverse(Enclosure(A))
    assert encloses(Enclosure(A) @ found, np.eye(size)) and found.middle == pytest.approx(np.linalg.inv(A))
    M = unit * A @ A.T
    values = np.linalg.eigvalsh(M)
    assert values[-1] * (1 - 1e-12) <= enclosures.top_eigenvalue(Enclosure(M)) <= values[-1] * (1 + 1e-9)
    assert values[0] - 1e-9 * values[-1] <= enclosures.least_eigenvalue(Enclosure(M)) <= values[0] + 1e-12 * values[-1]
    assert np.linalg.norm(A, 2) * (1 - 1e-12) <= enclosures.norm(Enclosure(A)) <= np.linalg.norm(A, 2) * (1 + 1e-9)
    with pytest.raises(ZeroDivisionError):
        enclosures.inverse(Enclosure(np.ones((2, 2))))


def functions_of(basis):
    families = tuple(part.kind for part in basis.parts)
    indices = tuple(map(tuple, basis.indices.tolist()))
    if basis.dimension > 1:
        assert harmonics.ordered(families, basis._highest, basis.index, basis.size) == indices
    return harmonics.Functions(families, indices, basis.domain)


BASES = [
    Legendre(7),
    Legendre(1),
    Chebyshev(4),
    Fourier(5),
    Fourier(6),
    *sizes(
        product(Fourier(3), Legendre(3), index="full"),
        product(Legendre(6), Legendre(6)),
        product(Fourier(5), Legendre(4), index="full"),
        product(Legendre(4), Fourier(5), Legendre(3), index="hyperbolic"),
    ),
]


@pytest.mark.parametrize("basis", BASES, ids=str)
def test_harmonics_meshes_and_cells_match_in_floating_point(basis):
    basis = basis.on(((-2.0, 3.0),) * basis.dimension)
    box, own, rng = functions_of(basis), frame(basis), np.random.default_rng(0)
    states, curve = rng.uniform(-2, 3, (50, basis.dimension)), rng.normal(size=basis.size)
    assert (box.narrow, box.wide, box.dense, box.visited) == (
        own.narrow,
        own.wide,
        own.dense.counts,
        own.visited.counts,
    )
    assert box.at(states).middle == pytest.approx(own.values(states), abs=1e-12)
    assert box.mesh(box.dense, harmonics=False).middle == pytest.approx(basis.values(own.dense.states), abs=1e-11)
    assert box.change.middle == pytest.approx(own.change, abs=1e-12)
    for times, factor in ((1, own.dense.factor), (2, own.dense.double)):
        assert factor * (1 - 1e-13) <= box.inflation(box.dense, times) <= factor * (1 + 1e-12)
    sums = rng.normal(size=own.wide)
    assert box.lifted(sums).middle == pytest.approx(own.lifted(sums), abs=1e-12)
    cells, told = box.cells(), own.cells()
    for pair in ((box.fall(Enclosure(curve), cells), own.fall(curve, told)), (box.drift(cells), own.drift(told))):
        assert pair[0] == pytest.approx(pair[1], abs=1e-10)
    numbers = rng.uniform(size=own.band(4.0).counts)
    weights = box.weights(numbers.shape, box.places(cells))
    found = [harmonics.contracted(Enclosure(numbers), tables) for tables in ([x.absolute() for x in weights], weights)]
    assert np.stack([x.middle for x in found]) == pytest.approx(
        own.blended_on_axes(numbers[None], told.axes)[:, 0], abs=1e-9
    )
    assert box.peak(Enclosure(curve)) == pytest.approx(own.peak(curve))


@pytest.mark.parametrize("basis", BASES, ids=str)
def test_minima_are_bounded_from_below(basis):
    basis = basis.on(((-2.0, 3.0),) * basis.dimension)
    box, rng = functions_of(basis), np.random.default_rng(1)
    for curve in (
        rng.normal(size=basis.size),
        np.eye(basis.size)[0],
        1e9 * np.eye(basis.size)[0] + np.eye(basis.size)[-1],
    ):
        values = box.at(basis.grid(20_000)).middle @ curve
        (found, attained), reach = box.least(Enclosure(curve)), np.ptp(values)
        assert found <= attained <= values.min() + 1e-3 * reach + 1e-12 * np.abs(curve).max()
        assert values.min() - 1e-3 * reach - 1e-6 <= found <= values.min() + 1e-12 * np.abs(curve).max()
        assert found == pytest.approx(frame(basis).minimum(curve)[1], abs=3e-7 * reach + 1e-13 * np.abs(curve).sum())


def test_cells_end_where_they_are_cut():
    """An even cell that ends at 0 but for rounding must not replace the cut there, or it would belong to both sides."""
    box, cuts = functions_of(Legendre(15, (-0.4, 0.4))), np.linspace(-0.4, 0.4, 401)
    (edges,) = box.cells([cuts]).edges
    assert set(cuts) <= set(edges) and len(edges) > len(cuts) and np.diff(edges).min() > 1e-13


def test_deviation_bounds_match_in_floating_point():
    rng = np.random.default_rng(0)
    v, b, L = (10.0 ** rng.uniform(*ends, 200) for ends in ((-6, 2), (-4, 0), (0, 1.5)))
    slope = inequalities.best_slope(v, b, L)
    assert deviations.best_slope(v, b, L) == pytest.approx(slope, rel=1e-12)
    for share in (0.3, 1.0, 1.05):
        told = inequalities.sloped(v, b, L, share * slope)
        found = deviations.sloped(Enclosure(v), b, Enclosure(L), share * slope)
        finite = np.isfinite(found)
        assert found[finite] == pytest.approx(told[finite], rel=1e-9) and (found >= told * (1 - 1e-12)).all()
    for moment, bound, term in zip(v[:20], b[:20], L[:20], strict=True):
        told = inequalities.mixed_norm(moment, moment / 2, bound, term, 5, 1 / moment)
        found = deviations.mixed_norm((Enclosure(moment), moment / 2), 5, bound, Enclosure(term), np.array(1 / moment))
        assert float(found.above) == pytest.approx(told, rel=1e-12)
        told = inequalities.empirical_bernstein(moment, bound, term)
        assert float(deviations.bernstein(Enclosure(moment), bound, Enclosure(term)).above) == pytest.approx(told)


@pytest.mark.parametrize(("kind", "code"), [("action", 0), ("open", 0), ("altered", 5), ("nothing", 3), ("none", 2)])
def test_the_command_of_its_own_has_the_prints_and_exit_codes_of_certirl_check(kind, code, tmp_path, capsys):
    header, arrays = contents("open" if kind == "open" else "action")
    if kind == "altered":
        claim_of(header)["margin"] *= 2
    if kind == "nothing":
        header["certificate"], header["findings"][0]["status"] = None, "solved"
    path = tmp_path / "c.npz"
    if kind != "none":
        write(path, header, arrays)
    assert cli.main(["check", str(path)]) == certirl_check_main([str(path)]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
