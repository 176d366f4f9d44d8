"""`devices.DeviceChords.draw` in one pass, written in Triton, which comes with torch for an NVIDIA or AMD device."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _chords(states, drawn, n, seed, cuts, first, low, width, steps, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < n
    s = tl.load(states + at, mask=there, other=0.5)
    square = tl.minimum(s * s, 1.0)
    u = tl.rand(seed, at)
    edge = u < square
    u = tl.where(edge, u / square, (u - square) / (1 - square))
    u = tl.minimum(tl.maximum(u, 0.0), 0.99999994)
    scaled = u * steps
    step = scaled.to(tl.int32)
    place = step + tl.where(edge, steps + 1, 0)
    along = (scaled - step) * tl.load(cuts + place)
    chord = along.to(tl.int32)
    where = tl.load(first + place) + chord
    x = tl.load(low + where) + (along - chord) * tl.load(width + where)
    tl.store(drawn + at, x, mask=there)


def draw_chords(states: torch.Tensor, seed: int, tables: tuple[torch.Tensor, ...], steps: int) -> torch.Tensor:
    """One next state for each state ``[n]`` of a polynomial problem, from the tables of `DeviceChords`."""
    drawn = torch.empty_like(states)
    grid = (triton.cdiv(len(states), 1024),)
    _chords[grid](states, drawn, len(states), seed, *tables, steps, BLOCK=1024)
    return drawn
