"""Data on an accelerator: torch tensors stay there, and only sums are transferred.

Function values are computed in single precision and added up over BLOCK rows in single precision; those sums are added
up in double precision. `TensorSums.error` bounds the rounding. The same code runs on torch's CPU device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import combinations, combinations_with_replacement, pairwise
from typing import Any

import numpy as np

from certirl.functions.bases import FAMILIES, Basis, Family
from certirl.ground.domain import Array, Box

# Rows whose products are added up in single precision; rows whose functions are in memory at once.
BLOCK, SLAB = 1024, 1 << 20
PIECE = 1 << 24  # rows per piece, of one coordinate: enough to keep a large device busy
MOST_FUSED = 32  # harmonics of two variables in total: more would not fit into registers


def torch() -> Any:
    """The module torch; one sentence if it is not installed."""
    try:
        import torch
    except ImportError:
        raise ImportError('tensors need torch: pip install "certirl[gpu]"') from None
    return torch


def is_tensor(values: Any) -> bool:
    """Whether an object is a tensor or a device of torch, without importing torch."""
    return type(values).__module__.partition(".")[0] == "torch"


def as_tensor_states(states: Any, domain: Box, *, name: str = "states") -> Any:
    """States as a tensor ``[n, d]`` on their device, each checked to lie in the box."""
    if not is_tensor(states):
        raise TypeError(f"{name} must be a torch tensor like the states they follow, got {type(states).__name__}")
    if not states.is_floating_point():
        raise ValueError(f"{name} must be floating-point numbers, got a tensor of {states.dtype}")
    rows = states[:, None] if states.ndim == 1 and len(domain) == 1 else states
    if rows.ndim != 2 or rows.shape[1] != len(domain):
        raise ValueError(f"{name} must have shape [n, {len(domain)}], got {list(states.shape)}")
    low, high = (rows.new_tensor(ends) for ends in zip(*domain, strict=True))
    slack = 1e-6 * (high - low)  # single precision rounds at the edges
    inside = ((rows >= low - slack) & (rows <= high + slack)).all()  # False for NaN
    if not bool(inside):
        raise ValueError(f"{name} must be numbers inside the domain {domain.words}; some are not")
    return rows.clamp(low, high)


def on_host(pieces: Iterable[Any], domain: Box, size: int) -> Iterator[Any]:
    """Pieces of data as NumPy arrays in double precision, of at most ``size`` rows.

    A state at an end of the domain may lie outside after rounding to single precision: states are clipped.
    """
    low, high = domain.ends
    for piece in pieces:
        for start in range(0, len(piece.states), size):
            parts = (piece.states[start : start + size], piece.next_states[:, start : start + size])
            if is_tensor(piece.states):
                parts = tuple(np.clip(part.double().cpu().numpy(), low, high) for part in parts)
            yield type(piece)(piece.actions, *parts)


def generator(seed: np.random.SeedSequence, device: Any) -> Any:
    """A random generator on the device with this seed."""
    (words,) = seed.generate_state(1, np.uint64)
    return torch().Generator(device=device).manual_seed(int(words >> np.uint64(1)))


def draw_states(basis: Basis, n: int, rng: Any, *, design: bool) -> Any:
    """Draw n states on a device from the weight of a basis or its design: ``[n, d]``."""
    u, columns = torch().rand(n, len(basis.parts), generator=rng, device=rng.device), []
    for uniform, part in zip(u.T, basis.parts, strict=True):
        ((low, high),) = part.domain
        t = torch().cos(np.pi * uniform) if part._arcsine(design=design) else 2 * uniform - 1
        columns.append(((low + high) / 2 + (high - low) / 2 * t).clamp(low, high))
    return torch().stack(columns, dim=1)


def _reference(basis: Basis, states: Any) -> Any:
    """t ∈ [-1, 1] in single precision for states ``[n, 1]`` of the domain."""
    ((low, high),) = basis.domain
    return ((states[:, 0] - (low + high) / 2) / ((high - low) / 2)).clamp(-1, 1).to(torch().float32)


def harmonics(points: Any, counts: Sequence[int], periodic: Sequence[bool]) -> Any:
    """The harmonics of all variables ``[H, n]`` at coordinates t ∈ [-1, 1] ``[v, n]``."""
    if can_fuse(points.device):
        from certirl.kernels.triton import harmonic_rows

        return harmonic_rows(points, tuple(counts), tuple(periodic))
    rows = points.new_empty((sum(counts), points.shape[1]))
    for t, table, is_periodic in zip(points, torch().split(rows, list(counts)), periodic, strict=True):
        table[0] = 1.0
        if len(table) > 1:
            (_fill_circle if is_periodic else _fill_cosines)(table, t)
    return rows


def _fill_circle(rows: Any, t: Any) -> None:
    sin, cos = torch().sin(np.pi * t), torch().cos(np.pi * t)
    rows[1], rows[2] = sin, cos
    for row in range(3, len(rows), 2):
        rows[row] = rows[row - 2] * cos + rows[row - 1] * sin
        rows[row + 1] = rows[row - 1] * cos - rows[row - 2] * sin


def _fill_cosines(rows: Any, t: Any) -> None:
    rows[1] = t
    for n in range(2, len(rows)):
        rows[n] = 2 * t * rows[n - 1] - rows[n - 2]


class TensorSums:
    """Σ φ_i(s_i) φ_j(s_j)ᵀ for every pair of several variables, on the device of the data.

    Attributes:
        bases: the family of each variable.
        kernels: {"fused"}, one kernel for each pair of variables, if the device and the sizes allow it; otherwise
            {"blocks"}, matrix products of blocks of harmonics.
        n: the number of rows.
        error: ``|error| ≤ error · n · sup|φ_i| · sup|φ_j|`` for every entry, from rounding to single precision.
    """

    def __init__(self, bases: Sequence[Any], device: Any) -> None:
        for basis in bases:
            if not isinstance(basis, Family):
                raise TypeError(f"on a device, sums are for {', '.join(FAMILIES)}; got {basis}")
        self.bases, self.n = tuple(bases), 0
        self._counts = [basis._harmonics for basis in bases]
        self._periodic = [basis.periodic for basis in bases]
        self._totals: dict[tuple[int, ...], Any] = {}
        self._fused = can_fuse(device) and sum(sorted(self._counts)[-2:]) <= MOST_FUSED
        self.kernels = {"fused" if self._fused else "blocks"}
        every = range(len(self.bases))
        self._groups = list(combinations(every, 2)) if self._fused else [tuple(every)]
        self.error = 2.0**-24 * (4 * max(self._counts) ** 2 + BLOCK)

    def add(self, *states: Any) -> None:
        """Add rows, for each variable the states ``[n, 1]`` of its domain."""
        points = torch().stack([_reference(basis, s) for basis, s in zip(self.bases, states, strict=True)])
        for group in self._groups:
            sums = self._sums(points if len(group) == len(points) else points[list(group)], group)
            self._totals[group] = self._totals[group] + sums if group in self._totals else sums
        self.n += points.shape[1]

    def _sums(self, points: Any, group: tuple[int, ...]) -> Any:
        """Σ h hᵀ over all rows, h the harmonics of the group's variables: ``[H, H]``, in double."""
        counts, periodic = tuple(self._counts[i] for i in group), tuple(self._periodic[i] for i in group)
        if self._fused:
            from certirl.kernels.triton import joint_products

            return joint_products(points, counts, periodic)
        slabs = (points[:, start : start + SLAB] for start in range(0, points.shape[1], SLAB))
        return sum(_products(harmonics(slab, counts, periodic)) for slab in slabs)

    def blocks(self) -> dict[tuple[int, int], Array]:
        """Σ φ_i φ_jᵀ of variables i ≤ j: ``[k_i, k_j]``, as NumPy arrays."""
        blocks: dict[tuple[int, int], Array] = {}
        for group, total in self._totals.items():
            whole = total.cpu().numpy()
            rows = [slice(start, end) for start, end in pairwise(np.cumsum([0, *(self._counts[i] for i in group)]))]
            for (i, first), (j, second) in combinations_with_replacement(zip(group, rows, strict=True), 2):
                blocks[i, j] = self.bases[j]._from_harmonics(self.bases[i]._from_harmonics(whole[first, second]).T).T
        return blocks


def can_fuse(device: Any) -> bool:
    """Whether Triton kernels run on the device."""
    return device.type == "cuda" and find_spec("triton") is not None


def _products(stack: Any) -> Any:
    """Σ h hᵀ of a slab ``[H, n]``: sums over BLOCK rows in single precision, then in double."""
    library, (size, n) = torch(), stack.shape
    whole = n // BLOCK * BLOCK
    total = stack.new_zeros((size, size), dtype=library.float64)
    with _exact_products(library.backends.cuda.matmul):
        if whole:
            blocks = stack[:, :whole].unflatten(1, (-1, BLOCK)).transpose(0, 1)
            total += library.bmm(blocks, blocks.transpose(1, 2)).sum(dim=0, dtype=library.float64)
        if whole < n:
            rest = stack[:, whole:]
            total += (rest @ rest.T).to(library.float64)
    return total


@contextmanager
def _exact_products(settings: Any) -> Iterator[None]:
    """Matrix products without TF32: tensor cores would round factors to ten bits."""
    before, settings.allow_tf32 = settings.allow_tf32, False
    try:
        yield
    finally:
        settings.allow_tf32 = before
