"""Sums of harmonics on an NVIDIA or AMD device, in Triton, which comes with torch.

`joint_products` computes the harmonics of a few hundred rows in registers and multiplies them with themselves in one
pass. Memory is indexed by row numbers alone.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS = 64  # per product
FLUSH = 16  # products in single precision before their sum joins the total in double
_PROGRAMS = 16  # per multiprocessor


@triton.jit
def _joint(points, n, stride, out, per_program, sizes: tl.constexpr, periodic: tl.constexpr, H: tl.constexpr,
           ROWS: tl.constexpr, FLUSH: tl.constexpr):  # fmt: skip
    row = tl.arange(0, H)[:, None]
    total = tl.zeros([H, H], dtype=tl.float64)
    begin = tl.program_id(0).to(tl.int64) * per_program
    for flush in range(0, per_program, ROWS * FLUSH):
        sums = tl.zeros([H, H], dtype=tl.float32)
        for step in range(FLUSH):
            at = begin + flush + step * ROWS + tl.arange(0, ROWS)
            there = (at < n) & (at < begin + per_program)
            ones = there.to(tl.float32)
            tile = tl.zeros([H, ROWS], dtype=tl.float32)
            for v in tl.static_range(len(sizes)):
                t = tl.load(points + v * stride + at, mask=there, other=0.0)
                first = 0
                for w in tl.static_range(v):
                    first += sizes[w]
                tile += tl.where(row == first, ones[None, :], 0.0)
                if periodic[v]:
                    sin, cos = tl.sin(3.141592653589793 * t), tl.cos(3.141592653589793 * t)
                    s, c = sin * ones, cos * ones
                    for m in tl.static_range((sizes[v] - 1) // 2):
                        tile += tl.where(row == first + 2 * m + 1, s[None, :], 0.0)
                        tile += tl.where(row == first + 2 * m + 2, c[None, :], 0.0)
                        s, c = s * cos + c * sin, c * cos - s * sin
                else:
                    older, old = ones, t * ones
                    for m in tl.static_range(sizes[v] - 1):
                        tile += tl.where(row == first + m + 1, old[None, :], 0.0)
                        older, old = old, 2 * t * old - older
            sums = tl.dot(tile, tl.trans(tile), sums, input_precision="tf32x3")
        total += sums.to(tl.float64)
    place = tl.arange(0, H)[:, None] * H + tl.arange(0, H)[None, :]
    tl.store(out + tl.program_id(0) * H * H + place, total)


def joint_products(points: torch.Tensor, sizes: tuple[int, ...], periodic: tuple[bool, ...]) -> torch.Tensor:
    """Σ h hᵀ over rows, h the harmonics of all variables: ``[H, H]``, double precision.

    Args:
        points: coordinates t ∈ [-1, 1], one row for each variable ``[v, n]``, single precision.
        sizes: harmonics of each variable, an odd number if periodic; few enough for the registers of a program.
        periodic: sines and cosines of πt, or Chebyshev polynomials of t.
    """
    n, whole = points.shape[1], sum(sizes)
    H = max(16, triton.next_power_of_2(whole))
    programs = _PROGRAMS * torch.cuda.get_device_properties(points.device).multi_processor_count
    unit = ROWS * FLUSH
    per_program = -(-n // (programs * unit)) * unit
    programs = -(-n // per_program)
    out = torch.empty((programs, H, H), dtype=torch.float64, device=points.device)
    _joint[(programs,)](points, n, points.stride(0), out, per_program, sizes, periodic, H, ROWS, FLUSH)
    return out.sum(dim=0)[:whole, :whole]


@triton.jit
def _rows(points, n, out, place, size, periodic: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < n
    t = tl.load(points + at, mask=there, other=0.0)
    first = out + place * n + at
    tl.store(first, tl.full([BLOCK], 1.0, tl.float32), mask=there)
    if periodic:
        sin, cos = tl.sin(3.141592653589793 * t), tl.cos(3.141592653589793 * t)
        s, c = sin, cos
        for m in range(1, size, 2):
            tl.store(first + m * n, s, mask=there)
            tl.store(first + (m + 1) * n, c, mask=there)
            s, c = s * cos + c * sin, c * cos - s * sin
    else:
        older, old = tl.full([BLOCK], 1.0, tl.float32), t
        for m in range(1, size):
            tl.store(first + m * n, old, mask=there)
            older, old = old, 2 * t * old - older


def harmonic_rows(points: torch.Tensor, sizes: tuple[int, ...], periodic: tuple[bool, ...]) -> torch.Tensor:
    """The harmonics of all variables as rows ``[H, n]``; arguments as for `joint_products`."""
    n, place = points.shape[1], 0
    out = torch.empty((sum(sizes), n), dtype=torch.float32, device=points.device)
    for t, size, is_periodic in zip(points, sizes, periodic, strict=True):
        _rows[(triton.cdiv(n, 512),)](t.contiguous(), n, out, place, size, is_periodic, BLOCK=512)
        place += size
    return out
