"""The benchmark says what it measured, in words, numbers and a picture; how fast this machine is, is not tested."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

import bench
import policy_cost

SIZE = {"pairs": 2_000, "sizes": (5,), "families": ("Fourier", "Legendre"), "repeats": 1}

COMPILED = {"fused", "gridding"} if find_spec("numba") else set()


def numbers_in(record):
    if isinstance(record, dict):
        return [number for value in record.values() for number in numbers_in(value)]
    return [record] if isinstance(record, int | float) else []


@pytest.mark.slow
def test_everything_is_printed_returned_and_drawn(tmp_path, capsys):
    record = bench.run(**SIZE, transitions=2_000)
    printed = capsys.readouterr().out
    speeds = record["million pairs per CPU second"]
    assert set(speeds) == {"Fourier", "Legendre"}
    for row in (row for rows in speeds.values() for row in rows.values()):
        assert {"naive", "numpy", *COMPILED, "self_sums", "automatic", bench.DGEMM, bench.MEMORY} <= set(row)
    assert set(record["whole passes"]["CPU seconds per million transitions"]) == {
        "sampling",
        "estimation",
        "certificate",
    }
    assert record["whole passes"]["CPU seconds, whatever their number"]["recover"] > 0
    for part in ("machine", "million pairs per CPU second", "whole passes", "two threads"):
        found = numbers_in(record[part])
        assert len(found) > 2 and np.isfinite(found).all() and min(found) > 0
    bench.picture(record, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    for words in ("Fourier: million pairs", "times naive", "dgemm limit", "Whole passes over", "Two threads are"):
        assert words in printed


@pytest.mark.slow
def test_what_is_not_installed_is_left_out_with_a_sentence(monkeypatch, capsys):
    for name in ("finufft", "deeptime", "deeptime.covariance"):
        monkeypatch.setitem(sys.modules, name, None)
    found = bench.kernels(**SIZE)
    said = capsys.readouterr().out
    assert "finufft is not installed and left out." in said and "deeptime is not installed and left out." in said
    assert not any("finufft" in name for name in found["million pairs per CPU second"]["Fourier"][5])


def test_contenders_compute_the_same_sums():
    y, x = np.random.default_rng(0).uniform(-1, 1, (2, 500))
    for family in ("Fourier", "Legendre", "Chebyshev"):
        expected = bench.naive(family, 9)(y, x)
        for kernel in (kernel for kernel in bench.KERNELS if kernel in {"numpy", *COMPILED}):
            np.testing.assert_allclose(bench._ours(family, 9, kernel)(y, x), expected, atol=1e-6 * 500)
        np.testing.assert_allclose(bench._alone(family, 9)(y, x), bench.naive(family, 9)(x, x), atol=1e-6 * 500)


def test_a_slow_contender_gets_fewer_pairs(monkeypatch):
    asked = []
    monkeypatch.setattr(bench, "ENOUGH_SECONDS", 0.0)
    y = np.zeros(1_000)
    found = bench.speeds({"slow": lambda y, x: asked.append(y.size) or sum(range(20_000))}, y, y, 1)
    assert max(asked) <= 1_000 and found["slow"] > 0


def test_without_numba_only_numpy_is_measured(monkeypatch, capsys):
    for name in ("numba", "certirl.kernels.fused", "certirl.kernels.gridding"):
        monkeypatch.setitem(sys.modules, name, None)
    found = bench.kernels(500, (5,), ("Chebyshev",), 1)
    row = found["million pairs per CPU second"]["Chebyshev"][5]
    assert not {"fused", "gridding"} & set(row) and row["automatic"] == row["numpy"]
    assert "certirl[fast]" in capsys.readouterr().out


@pytest.mark.slow
def test_a_policy_solve_is_measured():
    found = policy_cost.measured(400, 1)
    assert found["cpu"] > 0 and found["MB"] >= 0 and found["functions of V"] == 25
    assert found["V prefers the expert's action"] > 0.9 and found["status"] in {"validated", "solved"}
