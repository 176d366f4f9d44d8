"""The benchmark says what it measured, in words, numbers and a picture; how fast this machine is, is not tested."""

import sys
from importlib.util import find_spec

import numpy as np

import bench

COMPILED = {"fused", "gridding"} if find_spec("numba") else set()


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
