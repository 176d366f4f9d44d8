"""The benchmark says what it measured, in words, numbers and a picture; how fast this machine is, is not tested."""

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import bench
import policy_cost
from certirl.cli import main
from sizes import sizes

SMALL = bench.Extent(pairs=2_000, sizes=(5,), families=("Fourier", "Legendre"), transitions=2_000, repeats=1)


COMPILED = {"fused", "gridding"} if find_spec("numba") else set()


def numbers_in(record):
    if isinstance(record, dict):
        return [number for value in record.values() for number in numbers_in(value)]
    return [record] if isinstance(record, int | float) else []


@pytest.mark.slow
@pytest.mark.parametrize("extent", sizes(SMALL, bench.FAST), ids=["small", "fast"])
def test_the_command_prints_and_writes_everything(tmp_path, capsys, monkeypatch, extent):
    monkeypatch.setattr(bench, "FAST", extent)
    assert main(["bench", "--fast", "--out", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    record = json.loads((tmp_path / "new" / "bench.json").read_text())
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
    assert record["command"] == "certirl bench --fast" and record["versions"]["numpy"] == np.__version__
    for part in ("machine", "million pairs per CPU second", "whole passes", "two threads"):
        found = numbers_in(record[part])
        assert len(found) > 2 and np.isfinite(found).all() and min(found) > 0
    assert (tmp_path / "new" / "bench.png").read_bytes().startswith(b"\x89PNG")
    for words in ("Fourier: million pairs", "times naive", "dgemm limit", "Whole passes over", "Two threads are"):
        assert words in printed


@pytest.mark.slow
def test_what_is_not_installed_is_left_out_with_a_sentence(monkeypatch, tmp_path):
    said = []
    for name in ("finufft", "deeptime", "deeptime.covariance"):
        monkeypatch.setitem(sys.modules, name, None)
    found = bench.kernels(SMALL, said.append)
    assert "finufft is not installed and left out." in said and "deeptime is not installed and left out." in said
    assert not any("finufft" in name for name in found["million pairs per CPU second"]["Fourier"][5])
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setattr(bench, "FAST", SMALL)
    bench.run(tmp_path, fast=True, say=said.append)
    assert any('pip install "certirl[plot]"' in line for line in said)
    assert (tmp_path / "bench.json").exists() and not (tmp_path / "bench.png").exists()


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


def test_without_numba_only_numpy_is_measured(monkeypatch):
    said = []
    for name in ("numba", "certirl.kernels.fused", "certirl.kernels.gridding"):
        monkeypatch.setitem(sys.modules, name, None)
    found = bench.kernels(bench.Extent(pairs=500, sizes=(5,), families=("Chebyshev",), repeats=1), said.append)
    row = found["million pairs per CPU second"]["Chebyshev"][5]
    assert not {"fused", "gridding"} & set(row) and row["automatic"] == row["numpy"]
    assert any("certirl[fast]" in line for line in said)


@pytest.mark.slow
def test_a_policy_solve_is_measured():
    found = policy_cost.measured(400, 1)
    assert found["cpu"] > 0 and found["MB"] >= 0 and found["functions of V"] == 25
    assert found["V prefers the expert's action"] > 0.9 and found["status"] in {"validated", "solved"}
