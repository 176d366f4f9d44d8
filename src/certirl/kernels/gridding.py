"""Sums of harmonics by gridding: points are spread over nodes and transformed.

The cost of a point does not depend on the number of harmonics. The error is bounded: with κ the window and κ̂ its
transform, a harmonic of ν periods per node is replaced, at a point a, by itself times
``Σ_l κ(l − a) e^{2πiν(l − a)} / κ̂(ν)``, a factor that depends only on ν ≤ 1/6 and on the position of a between two
nodes.

The compiled part needs numba. It indexes memory by the data: the caller must have checked that every t is a number in
[-1, 1].
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.polynomial import chebyshev
from scipy import fft

from certirl.ground.domain import Array
from certirl.kernels.fused import OPTIONS

NODES_PER_PERIOD = 6
# The factor is within 1.46e-8 of one on a fine grid of ν and a, and its slope allows 1.1e-9 more between
# (tests/kernels/test_sums.py). For cosines of arccos t, a position off by ARCCOS_ERROR adds at most 800 times that.
FACTOR_ERROR = 1.6e-8
# A node that receives r values has a rounding error of at most r · 2^-53 of their sum, times κ̂(0)/κ̂(1/6) < 1.51 per
# coordinate after the transform. The grid is read and cleared after this number of rows: below 2.2e-9.
FLUSH = 1 << 23
# |error| of an entry of Σ h(y) h(x)ᵀ or Σ h(x), divided by the number of rows; products of two errors are below 1e-15.
ERROR = 3.5e-8

_SLAB = 64  # rows transformed at a time

WIDTH = 8
# The Kaiser–Bessel window, its shape chosen for at least 6 nodes per period of the fastest harmonic, is
# tabulated as polynomials of degree 4 on 32 parts of the way from one node to the next: within 2e-12.
_BETA = 20.75
PARTS, _PART_BITS, _DEGREE = 32, 5, 4
_ROW = WIDTH * (_DEGREE + 1)
_BLOCK = 256
_ARCCOS_TERMS = 20
# arccos(u)/√(1 − u) is smooth on [0, 1]: expanded in 2u − 1, the remainder is below 1e-15 and rounding as large.
ARCCOS_ERROR = 5e-15


def _arccos_coefficients() -> tuple[float, ...]:
    def smooth(z: Array) -> Array:  # with u = 1 − v² it is 2 arcsin(v/√2)/v, which loses no digits
        v = np.sqrt((1.0 - z) / 2)
        return 2 * np.arcsin(v / np.sqrt(2)) / v

    series: Array = chebyshev.chebinterpolate(smooth, _ARCCOS_TERMS - 1)
    power = chebyshev.cheb2poly(series).tolist()
    return (*power, *[0.0] * (_ARCCOS_TERMS - len(power)))  # a last term that rounds to zero is dropped by NumPy


_ARCCOS = _arccos_coefficients()


def window(distance: Array) -> Array:
    """κ at a distance from the point, in nodes: zero from 4 on."""
    return np.i0(_BETA * np.sqrt(np.maximum(0.0, 1.0 - (2 * distance / WIDTH) ** 2))) / np.i0(_BETA)


def window_transform(frequency: Array) -> Array:
    """κ̂(ν) = ∫ κ(d) cos 2πνd dd, with ν in periods per node."""
    root = np.sqrt(_BETA**2 - (np.pi * WIDTH * frequency) ** 2)
    return WIDTH * np.sinh(root) / (root * np.i0(_BETA))


def _tabulate() -> Array:
    """Coefficients of the window at eight nodes: ``[parts, degree + 1, nodes]``, flat."""
    z = (1 + chebyshev.chebpts1(_DEGREE + 1)) / 2
    place = (np.arange(PARTS)[:, None, None] + z[:, None]) / PARTS
    values = window(np.arange(WIDTH) - (WIDTH // 2 - 1) - place)
    coefficients = np.linalg.solve(np.vander(z, increasing=True), values)
    return aligned(coefficients.size, coefficients.ravel())


def aligned(size: int, values: Array | float = 0.0) -> Array:
    """A flat array that starts at a cache line."""
    room = np.zeros(size + 8)
    start = -(room.ctypes.data // 8) % 8
    room[start : start + size] = values
    return room[start : start + size]


TABLE = _tabulate()

# LLVM does not recognise that eight neighbours form one vector; explicit vectors are 3 to 4 times as fast.
_VECTOR, _INDEX = ir.VectorType(ir.DoubleType(), WIDTH), ir.IntType(64)


def _broadcast(builder: Any, vector: Any, lane: int) -> Any:
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [lane] * WIDTH)
    return builder.shuffle_vector(vector, ir.Constant(_VECTOR, ir.Undefined), lanes)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    from numba.np import arrayobj

    return arrayobj.make_array(array_type)(context, builder, array).data


def _at(builder: Any, pointer: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(pointer, [offset]), _VECTOR.as_pointer())


def _weights(builder: Any, table: Any, part: Any, place: Any) -> Any:
    """The window at the eight nodes: a polynomial in the position within a part."""
    start = builder.mul(part, _INDEX(_ROW))
    scalar = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), place, ir.IntType(32)(0))
    z, value = _broadcast(builder, scalar, 0), None
    for power in range(_DEGREE, -1, -1):
        c = builder.load(_at(builder, table, builder.add(start, _INDEX(WIDTH * power))), align=8)
        value = c if value is None else _multiply_add(builder, value, z, c)
    return value


@intrinsic
def _spread_point(_, grid, offset, table, part, place):
    """grid[offset : offset + 8] += κ."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], arguments[0])
        weights = _pointer(context, builder, signature.args[2], arguments[2])
        at = _at(builder, to, arguments[1])
        value = _weights(builder, weights, arguments[3], arguments[4])
        builder.store(builder.fadd(value, builder.load(at, align=8)), at, align=8)
        return context.get_dummy_value()

    return types.void(grid, offset, table, part, place), generate


@intrinsic
def _spread_pair(_, grid, offset, stride, table, row_part, row_place, part, place):
    """grid[offset + stride i : … + 8] += κ_i κ for i = 0 … 7."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], arguments[0])
        weights = _pointer(context, builder, signature.args[3], arguments[3])
        rows = _weights(builder, weights, arguments[4], arguments[5])
        columns = _weights(builder, weights, arguments[6], arguments[7])
        offset = arguments[1]
        for row in range(WIDTH):
            at = _at(builder, to, offset)
            old = builder.load(at, align=8)
            builder.store(_multiply_add(builder, _broadcast(builder, rows, row), columns, old), at, align=8)
            offset = builder.add(offset, arguments[2])
        return context.get_dummy_value()

    return types.void(grid, offset, stride, table, row_part, row_place, part, place), generate


@njit(**OPTIONS)
def arccos_into(t, out, scale):
    """Write scale · arccos t, within ARCCOS_ERROR · scale."""
    for i in range(t.size):
        u = abs(t[i])
        z, value = 2.0 * u - 1.0, _ARCCOS[19]
        value = (value * z + _ARCCOS[18]) * z + _ARCCOS[17]
        value = (value * z + _ARCCOS[16]) * z + _ARCCOS[15]
        value = (value * z + _ARCCOS[14]) * z + _ARCCOS[13]
        value = (value * z + _ARCCOS[12]) * z + _ARCCOS[11]
        value = (value * z + _ARCCOS[10]) * z + _ARCCOS[9]
        value = (value * z + _ARCCOS[8]) * z + _ARCCOS[7]
        value = (value * z + _ARCCOS[6]) * z + _ARCCOS[5]
        value = (value * z + _ARCCOS[4]) * z + _ARCCOS[3]
        value = (value * z + _ARCCOS[2]) * z + _ARCCOS[1]
        value = (value * z + _ARCCOS[0]) * np.sqrt(1.0 - u)
        out[i] = (value if t[i] > 0.0 else np.pi - value) * scale


@njit(**OPTIONS)
def _place(t, out, parts, periodic):
    """Write the positions of points on the axis in units of 1/PARTS of a node: 0 … ``parts``."""
    if periodic:
        for i in range(t.size):
            out[i] = (t[i] + 1.0) * (0.5 * parts)
    else:
        arccos_into(t, out, parts / np.pi)
        for i in range(t.size):
            out[i] = min(max(out[i], 0.0), parts)


@njit(**OPTIONS)
def add_pairs(points, parts, periodic, table, grid, stride):
    """Spread pairs over a grid, in the order they come."""
    y, x = points
    rows, columns = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, y.size, _BLOCK):
        length = min(_BLOCK, y.size - start)
        _place(y[start : start + length], rows, parts[0], periodic[0])
        _place(x[start : start + length], columns, parts[1], periodic[1])
        for i in range(length):
            a, b = np.int64(rows[i]), np.int64(columns[i])
            offset = (a >> _PART_BITS) * stride + (b >> _PART_BITS)
            _spread_pair(grid, offset, stride, table, a % PARTS, rows[i] - a, b % PARTS, columns[i] - b)


@njit(**OPTIONS)
def add_singles(points, parts, periodic, table, grid, _):
    """Spread points over a line."""
    places = np.empty(_BLOCK)
    for start in range(0, points[0].size, _BLOCK):
        length = min(_BLOCK, points[0].size - start)
        _place(points[0][start : start + length], places, parts[0], periodic[0])
        for i in range(length):
            a = np.int64(places[i])
            _spread_point(grid, a >> _PART_BITS, table, a % PARTS, places[i] - a)


def error(count: int) -> float:
    """|error| of an entry, divided by the number of rows."""
    return ERROR


class Axis:
    """The nodes of one variable: on a circle, or on its upper half, since cosines are even."""

    def __init__(self, count: int, periodic: bool) -> None:
        self.count, self.periodic = count, periodic
        fastest = count // 2 if periodic else count - 1
        half = fft.next_fast_len(max(WIDTH, NODES_PER_PERIOD * fastest // 2), real=True)
        self._around = 2 * half
        self._nodes = 2 * half if periodic else half
        self.length = self._nodes + WIDTH  # the points between the last two nodes reach over the end
        self.parts = float(PARTS * self._nodes)
        self._gain = 1.0 / window_transform(np.arange(fastest + 1) / self._around)

    def transform(self, values: Array) -> Array:
        """Σ h along the last axis, ``[…, count]``, from the values at the nodes ``[…, length]``."""
        before, last = WIDTH // 2 - 1, self._nodes
        low, nodes, high = np.split(values, [before, before + last + 1], axis=-1)
        if self.periodic:
            return self._circle(nodes, low, high)
        nodes = nodes.copy()
        nodes[..., 1 : before + 1] += low[..., ::-1]
        nodes[..., last - high.shape[-1] : last] += high[..., ::-1]
        nodes[..., [0, last]] *= 2.0  # the transform counts the inner nodes twice
        return fft.dct(nodes, type=1, axis=-1)[..., : self.count] * (self._gain / 2)

    def _circle(self, nodes: Array, low: Array, high: Array) -> Array:
        around = nodes[..., :-1].copy()
        around[..., 0] += nodes[..., -1]
        around[..., 1 : high.shape[-1] + 1] += high
        around[..., -low.shape[-1] :] += low
        spectrum = fft.rfft(around, axis=-1)[..., : self._gain.size]
        gain = self._gain * (-1.0) ** np.arange(self._gain.size)  # the first node is t = −1
        sums = np.empty((*around.shape[:-1], self.count))
        np.multiply(spectrum.real, gain, out=sums[..., 0::2])
        np.multiply(spectrum.imag[..., 1:], -gain[1:], out=sums[..., 1::2])
        return sums


class Sums:
    """Σ h(y) h(x)ᵀ for two sets of harmonics, or Σ h(x) for one, within ERROR per row."""

    def __init__(self, counts: tuple[int, ...], periodic: tuple[bool, ...]) -> None:
        self._axes = [Axis(*axis) for axis in zip(counts, periodic, strict=True)]
        self._parts, self._periodic = tuple(axis.parts for axis in self._axes), periodic
        self._grid = aligned(prod(axis.length for axis in self._axes))
        self._total, self._waiting = np.zeros(counts), 0

    def add(self, *points: Array) -> None:
        """Add rows: coordinates t ∈ [-1, 1] of each variable ``[n]``."""
        spread = add_pairs if len(points) == 2 else add_singles
        for start in self._stretches(points[0].size):
            stretch = tuple(t[start] for t in points)
            spread(stretch, self._parts, self._periodic, TABLE, self._grid, self._axes[-1].length)

    def _stretches(self, size: int) -> Iterator[slice]:
        """Stretches of rows; the grid is read and cleared after every FLUSH rows."""
        start = 0
        while start < size:
            stop = min(size, start + FLUSH - self._waiting)
            yield slice(start, stop)
            self._waiting, start = self._waiting + stop - start, stop
            if self._waiting == FLUSH:
                self._total += self._read()
                self._grid[:], self._waiting = 0.0, 0

    def sums(self) -> Array:
        """The sums over all rows so far."""
        return self._total + self._read()

    def _read(self) -> Array:
        values = self._grid.reshape(-1, self._axes[-1].length)
        for axis in reversed(self._axes):
            slabs = (values[start : start + _SLAB] for start in range(0, len(values), _SLAB))
            values = np.concatenate([axis.transform(slab) for slab in slabs]).T
        return values.reshape(self._total.shape)
