"""Moments on disk: saved, merged and solved, in Python and on the command line."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import certirl
from certirl.cli import main
from certirl.data import moments as m
from certirl.data import tables
from refusals import refused

PROBLEM = certirl.problems.random_polynomial(seed=7)
BASIS = certirl.Legendre(7)
ROWS = 5_000
SUMS = ("counts", "gram", "cross", "outer")


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    states, actions, next_states = rng.uniform(-1, 1, ROWS), rng.integers(3, size=ROWS), np.empty(ROWS)
    for action in range(3):
        next_states[actions == action] = PROBLEM.sample(states[actions == action], action, rng)
    return certirl.Transitions(states, actions, next_states, domain=(-1, 1), n_actions=3)


@pytest.fixture
def folder(log, tmp_path, monkeypatch):
    """A folder, gone to, with the log in three Parquet files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").mkdir()
    table = pa.table({"state": log.states[:, 0], "action": log.actions, "next_state": log.next_states[:, 0]})
    for i, (start, end) in enumerate([(0, 1_673), (1_673, 3_340), (3_340, ROWS)]):
        pq.write_table(table.slice(start, end - start), tmp_path / "log" / f"part-{i}.parquet")
    return tmp_path


def assert_same_sums(one, other, tolerance=1e-12):
    assert (one.rows, one.columns) == (other.rows, other.columns)
    for name in SUMS:
        scale = np.abs(getattr(other, name)).max()
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=tolerance * scale)


def measured(paths, **settings):
    stream = tables.stream(paths, domain=(-1, 1), n_actions=3, **settings)
    return certirl.steps.measure(stream, basis=BASIS, columns=3)


@pytest.fixture
def shards(folder):
    parts = [measured(file) for file in sorted((folder / "log").iterdir())]
    return measured(folder / "log"), parts


def test_saved_and_merged_shards_are_the_whole(shards, tmp_path):
    whole, parts = shards
    files = [part.save(tmp_path / f"shard-{i}") for i, part in enumerate(parts)]
    again = [m.load(file) for file in files]
    for one, other in zip(again, parts, strict=True):
        assert_same_sums(one, other, tolerance=0)
        assert (one.paired, one.files) == (other.paired, other.files) and str(one) == str(other)
    merged = m.merge(again)
    assert_same_sums(merged, whole)
    assert merged.files == whole.files and int(merged.counts.sum()) == ROWS
    exact = parts[0] + parts[1] + parts[2]
    assert_same_sums(merged, exact, tolerance=0)
    paired = m.Moments(*(getattr(whole, name) for name in ("rows", "columns", *SUMS)), paired=True)
    assert m.load(paired.save(tmp_path / "paired")).paired


def test_the_same_data_twice_is_refused_whatever_its_name(shards, log, tmp_path):
    _, (first, *_) = shards
    copy = tmp_path / "copy.parquet"
    copy.write_bytes((tmp_path / "log" / "part-0.parquet").read_bytes())
    second = measured(copy)
    refused(r"would count twice: part-0\.parquet and copy\.parquet, its copy", m.merge, [first, second])
    refused(r"would count twice: .*copy\.parquet and .*part-0\.parquet, its copy", measured, [copy, tmp_path / "log"])
    refused("no moments to merge", m.merge, [])


def test_data_in_memory_count_once_and_are_told_apart_without_growing(log, tmp_path):
    one = certirl.steps.measure(log, basis=BASIS)
    halves = [certirl.steps.measure(log.where(np.arange(len(log.states)) % 2 == part), basis=BASIS) for part in (0, 1)]
    both = halves[0] + halves[1]
    again = m.load(both.save(tmp_path / "both"))
    sentence = "the same data would count twice: transitions in memory; leave one out"
    for first, second in ((one, one), (both, halves[1]), (again, both), (halves[0], again)):
        with pytest.raises(ValueError, match=f"{sentence}$"):
            first + second
        refused(f"{sentence}$", m.merge, [first, second])
    rows = [replace(one, files=(m.File(m.IN_MEMORY, 1, f"{i:x}"),)) for i in range(2 * m.MOST_MARKS)]
    many = m.merge(rows)
    assert len(many.files) <= m.MOST_MARKS and sum(file.rows for file in many.files) == len(rows)
    with pytest.raises(ValueError, match=sentence):
        many + many


def test_moments_of_different_make_do_not_merge(log):
    one = certirl.steps.measure(log, basis=BASIS)
    wider = certirl.Transitions(log.states, log.actions, log.next_states, domain=(-2, 2))
    more = certirl.Transitions(log.states, log.actions, log.next_states, domain=(-1, 1), n_actions=4)
    others = [certirl.steps.measure(log, basis=certirl.Fourier(7)), certirl.steps.measure(log, basis=BASIS, columns=3)]
    for other in (*others, certirl.steps.measure(wider, basis=BASIS), certirl.steps.measure(more, basis=BASIS)):
        refused(r"only for the same bases .* not Legendre\(7\) on \[-1, 1\], 7 columns", m.merge, [one, other])


def test_damaged_moments_are_one_sentence(shards, log, tmp_path):
    whole, _ = shards
    file, bad = whole.save(tmp_path / "m.npz"), tmp_path / "bad.npz"
    content = file.read_bytes()
    for cut in (0, 10, len(content) // 2, len(content) - 5):
        bad.write_bytes(content[:cut])
        refused("damaged or cut short", m.load, bad)
    with np.load(file) as stored:
        arrays = dict(stored)
    header = json.loads(str(arrays["header"]))

    def of_record(**changes):
        return {"header": np.array(json.dumps(header | {"record": header["record"] | changes}))}

    for change, sentence in (
        ({"gram": arrays["gram"][:2]}, r"gram must be an array of numbers of shape \[3, 3, 3\]"),
        ({"cross": arrays["cross"] * np.nan}, "cross must hold numbers, got NaN"),
        ({"cross": arrays["cross"] * np.inf}, "cross must hold numbers, got NaN|cross must hold finite numbers"),
        ({"counts": arrays["counts"] - 1}, "counts do not add up"),
        (of_record(rows={"type": "Haar"}), "rows must be Basis, got 'Haar'"),
        (of_record(columns=header["record"]["columns"] | {"type": "Fourier"}), "columns must be the first of"),
        (of_record(files=[1]), "files.0 must be File, got 1"),
        ({"header": np.array(json.dumps(header | {"version": 99}))}, "version 99"),
    ):
        np.savez(bad, **arrays | change)
        refused(sentence, m.load, bad)
    reward = certirl.Reward(certirl.Legendre(2, (0, 1)), np.ones(2))
    refused("holds a certirl Reward, not moments", m.load, reward.save(tmp_path / "reward"))
    assert str(certirl.load(file)) == str(whole)


def test_solving_from_moments_is_solving_from_the_data(log):
    whole = certirl.steps.measure(log, basis=certirl.Legendre(11), columns=5)
    found = certirl.solve(whole, expert=0, discount=0.7, columns=3)
    expected = certirl.solve(log, expert=0, discount=0.7, basis=certirl.Legendre(11), columns=3)
    np.testing.assert_allclose(found.reward.coefficients, expected.reward.coefficients, rtol=1e-6)
    assert certirl.solve(whole, expert=0, discount=0.7, basis=certirl.Legendre(7)).columns.size == 5
    for settings, sentence in (
        ({"delta": 0.05, "tail": 0}, "a certificate needs transitions"),
        ({"basis": certirl.Fourier(7)}, "measured in Legendre"),
        ({"basis": certirl.Legendre(12)}, "measured in Legendre"),
        ({"columns": 6}, "functions measured, at most 5"),
        ({"method": certirl.Program(form="mean")}, "use least-squares for a log"),
        ({"expert": 3}, "one of the actions"),
    ):
        refused(sentence, certirl.solve, whole, **{"expert": 0, "discount": 0.7} | settings)


# The command line.


def test_from_tables_to_moments_to_a_reward(folder, log, capsys):
    given = ["--size", "11", "--columns", "3", "--domain", "-1", "1", "--actions", "3"]
    for i in range(3):
        assert main(["moments", f"log/part-{i}.parquet", *given, "-o", f"m{i}.npz"]) == 0
    assert main(["moments", "log/*.parquet", *given, "-o", "whole"]) == 0
    assert main(["merge", "m0.npz", "m1.npz", "m2.npz", "-o", "all.npz"]) == 0
    printed = capsys.readouterr()
    assert "5,000 transitions: Legendre(11) on [-1, 1], 3 columns, 3 actions" in printed.out and printed.err == ""
    assert_same_sums(m.load("all.npz"), m.load("whole.npz"))
    assert main(["solve", "all.npz", "--discount", "0.7", "--plot", ""]) == 0
    assert "A certificate needs transitions that the reward was not computed from" in capsys.readouterr().out
    expected = certirl.solve(log, expert=0, discount=0.7, basis=certirl.Legendre(11), columns=3)
    found = certirl.load("reward.npz").reward.coefficients
    np.testing.assert_allclose(found, expected.reward.coefficients, rtol=1e-6)


def test_a_domain_from_the_data_is_announced(folder, capsys):
    assert main(["moments", "log"]) == 0
    assert "domain was taken from the data" in capsys.readouterr().out
    assert m.load("moments.npz").rows.size == 11
