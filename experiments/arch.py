"""Systems of drift and Gaussian noise from the literature on stochastic verification: certified from samples.

    python experiments/arch.py [--only PART] [--fast] [--workers N] [--seed S] [--out DIR]

For each system an expert is computed by value iteration on the model, for a reward that is named below. `solve` has
samples of the model and the declaration `GaussianNoise(std, slope)`, and certifies a reward of its own. The truth is
computed from the model by quadrature, with atoms at the walls, and compared: the certified margin with the least
advantage, and the bands on (P_b − P_a)V with its exact values, cell by cell. The saved certificate is checked by
`certirl check`. The part `known` certifies lines by `dynamics=AffineGaussian(…)`, which knows the noise and not only a
bound on it; the part `repeated` counts how often all exact values are within the bands.

Next states are clipped to the box. Tools for verification let a state that leaves the box be lost; here it stays at the
wall, since a reward is to be found for states of the box.

- building: two rooms and their radiators, the four-dimensional building automation system of ARCH-COMP, in degrees
  Celsius, a step of 15 minutes, air supplied at 17 to 20 °C. Given the action each room moves with its radiator alone:
  two components of two coordinates. Constants: Kiguli/IMPaCT, examples/ARCH-COMP/2025/BA/BA_4d.cpp (variances 0.0774,
  0.3872, 0.3098) and Zinoex/IntervalMDPAbstractions.jl, examples/systems/bas_4d.jl (the same as 1/12.9199, 1/2.5826,
  1/3.2276), cells of 0.5 and 1 degrees. Reward of the expert: the sum of both rooms' temperatures.
- thermostat: rayomaz/StochasticBarrier.jl, benchmarks/polynomial/systems/thermostat, sos_deg10.yaml:
  s' = 4.32 + 0.7455988625 s + 0.0017422475 s² + ξ, standard deviation 0.1, safe on [17, 23]. This is
  s + 0.06(−15 − s) + 0.145(45 − s)u with the controller u = 0.8 − 0.0120155 s built in (`test_arch.py`). Here u is the
  action, 0.66 or 0.5, and the drift is affine. (sos_deg4.yaml, sos_deg8.yaml and sos_deg12.yaml have −3.78 + 0.2056 s
  in place of 4.32 + 0.7456 s: the same with 0.6 for 0.06. From 20 degrees that goes to 1 in a step.)
  Reward of the expert: −|s − 20|.
- contraction: the same repository, benchmarks/linear/systems/contraction2: s' = 0.5 s + ξ, standard deviation 0.1, box
  [−1, 0.5]². (protect_benchmarks/experiments/linear/contractive.py has 0.95 and [−2, 3]² under the same name.) It has
  no input; the actions, a shift by ±0.1 of each coordinate, are ours. Reward of the expert: the sum of the coordinates.
- switching: the contraction on [−0.4, 0.4]² with two actions, shifts by ±(0.2, 0.1), in both coordinates at once, and
  an expert that switches along a curve. Reward of the expert: minus the distance to the origin.
- car: car parking of SySCoRe (CarPark2D) and IntervalMDPAbstractions.jl, examples/systems/car_parking.jl:
  s' = 0.9 s + 0.7 u + ξ, standard deviation 1, box [−10, 10]², u in {−1, 0, 1}². Reward of the expert: s_0 − s_1.
- robot: Kiguli/IMPaCT, examples/ex_2Drobot-RA-U/robot2D.cpp: s' = s + 2u(cos v, sin v) + ξ, variance 1/1.3333, box
  [−10, 10]², u = ±1, v in {−1, 0, 1}. (IntervalMDPAbstractions.jl, robot_2d.jl, has 10 for 2.) Reward of the expert:
  s_0 + 10 s_1.
- van_der_pol: Zinoex/ArchCompStochasticModels.jl, src/benchmarks/van_der_pol.jl: s_0' = s_0 + 0.1 s_1 + ξ,
  s_1' = s_1 + 0.1((1 − s_0²)s_1 − s_0) + u + ξ, variance 0.2, box [−5, 5]². (IMPaCT, VP.cpp, and
  IntervalMDPAbstractions.jl, van_der_pol.jl, have (1 − s_0)² for 1 − s_0².) Here u = ±0.5, and the box is [−0.5, 0.5]²:
  `needed` computes how many columns larger boxes take. Reward of the expert: s_1.
- room: our own, one room with a heater and a cooler. Reward of the expert: −|s − 20|.

Units: variances are turned into standard deviations here. In IMPaCT, examples/ex_5Droom-S/roomTemp5D.cpp, a standard
deviation is written sqrt(1/100), which is 0 in C++.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.interpolate import RegularGridInterpolator
from scipy.special import ndtr

import certirl
import study

Array = Any
STEPS = 2_000  # of value iteration at most
ATTEMPTS = (1_000, 2_000, 5_000, 10_000)  # transitions of each action tried with known noise, δ divided among them
FEW = 20_000  # transitions of each action from which a simple reward is found
WITHIN = 4  # steps of the mesh along a side of a cell


@dataclass(frozen=True, eq=False)
class System:
    """s' = clip(m_a(s) + ξ): a drift for each action, and Gaussian noise, independent from coordinate to coordinate.

    Attributes:
        drift: the means m_a(s) of next states, from states ``[n, d]`` and an action.
        n_actions: A.
        std: the standard deviation of each coordinate's noise.
        slope: bounds on |∂m_i/∂s_j| ``[d, d]``.
        domain: the box.
        components: groups of coordinates that move independently, given the action.
        columns: for each component the number of Legendre functions of each of its coordinates.
        goal: a reward for each component; the expert is the best policy under their sum.
        cells: along each coordinate, where bands are compared with exact values.
        switches: whether the expert's action depends on the state; if not it is action 0.
        rate: 0 for affine drifts, as in `certirl.dynamics.GaussianNoise`.
        nodes: Gauss points of the quadrature along each coordinate.
        index: which products of the functions of coordinates are columns, as in `certirl.product`.
        tube: how far from a switch the expert is to be proved best; the default of `solve` if None.
        simple: functions of each coordinate for a reward that is found first and then certified with all columns, where
            a program with as many functions as columns would take long; None if one call does both.
    """

    drift: Callable[[Array, int], Array]
    n_actions: int
    std: tuple[float, ...]
    slope: Array
    domain: tuple[tuple[float, float], ...]
    components: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    goal: tuple[Callable[[Array], Array], ...]
    cells: tuple[int, ...]
    switches: bool = False
    rate: float = 0.0
    nodes: int = 80
    index: str = "full"
    tube: float | None = None
    simple: int | None = None
    thread_safe: bool = True

    def sample(self, states: Array, action: int, rng: Any) -> Array:
        """One next state for each state."""
        low, high = np.array(self.domain).T
        return np.clip(self.drift(states, action) + self.std * rng.standard_normal(states.shape), low, high)

    @property
    def tail(self) -> certirl.dynamics.GaussianNoise:
        """What is declared."""
        return certirl.dynamics.GaussianNoise(std=self.std, slope=self.slope, rate=self.rate)

    def bases(self) -> list[Any]:
        """The columns of each component, on its box."""
        return [
            certirl.product(
                *(certirl.Legendre(size, self.domain[axis]) for size, axis in zip(sizes, group, strict=True)),
                index=self.index,
            )
            for sizes, group in zip(self.columns, self.components, strict=True)
        ]

    def component(self, number: int) -> System:
        """One component as a system of its own."""
        group = list(self.components[number])

        def drift(states: Array, action: int) -> Array:
            whole = np.tile(np.mean(self.domain, axis=1), (len(states), 1))
            whole[:, group] = states
            return self.drift(whole, action)[:, group]

        return System(
            drift=drift,
            n_actions=self.n_actions,
            std=tuple(self.std[axis] for axis in group),
            slope=np.asarray(self.slope)[np.ix_(group, group)],
            domain=tuple(self.domain[axis] for axis in group),
            components=(tuple(range(len(group))),),
            columns=(self.columns[number],),
            goal=(self.goal[number],),
            cells=tuple(self.cells[axis] for axis in group),
            switches=self.switches,
            rate=self.rate,
            nodes=self.nodes,
            index=self.index,
            tube=self.tube,
        )


def affine(matrices: Array, shifts: Array) -> Callable[[Array, int], Array]:
    """The drifts A_a s + b_a, from ``[d, d]`` or ``[A, d, d]`` and ``[A, d]``."""
    shifts = np.asarray(shifts, dtype=float)
    matrices = np.broadcast_to(np.asarray(matrices, dtype=float), (len(shifts), shifts.shape[1], shifts.shape[1]))
    return lambda states, action: states @ matrices[action].T + shifts[action]


def building() -> System:
    """Two rooms (zones) with radiators: temperatures of the zones, then of the water that leaves the radiators."""
    matrix = np.array(
        [[0.6682, 0, 0.02632, 0], [0, 0.6830, 0, 0.02096], [1.0005, 0, -0.000499, 0], [0, 0.8004, 0, 0.1996]]
    )
    control, constant = np.array([0.1320, 0.1402, 0.0, 0.0]), np.array([3.4378, 2.9272, 13.0207, 10.4166])
    return System(
        drift=affine(matrix, np.outer([20.0, 19.0, 18.0, 17.0], control) + constant),
        n_actions=4,
        std=tuple(np.sqrt([1 / 12.9199, 1 / 12.9199, 1 / 2.5826, 1 / 3.2276]).tolist()),
        slope=np.abs(matrix),
        domain=((19.0, 21.0), (19.0, 21.0), (30.0, 36.0), (30.0, 36.0)),
        components=((0, 2), (1, 3)),
        columns=((15, 5), (17, 9)),
        goal=(first, first),
        cells=(4, 4, 6, 6),
        nodes=60,
    )


def room() -> System:
    """One room: a tenth of the difference to 18 °C is lost in a step, an action adds or takes 1.5 degrees."""
    return System(
        drift=affine([[0.9]], [[1.8 + 1.5], [1.8 - 1.5]]),
        n_actions=2,
        std=(1.5,),
        slope=[[0.9]],
        domain=((15.0, 25.0),),
        components=((0,),),
        columns=((17,),),
        goal=(near_20,),
        cells=(100,),
        switches=True,
        nodes=400,
    )


def thermostat() -> System:
    """A room at −15 °C outside, heated by water of 45 °C with an input of 0.66 or 0.5."""
    inputs = np.array([0.66, 0.5])
    slopes = 1 - 0.06 - 0.145 * inputs
    return System(
        drift=affine(slopes[:, None, None], (0.06 * -15 + 0.145 * 45 * inputs)[:, None]),
        n_actions=2,
        std=(0.1,),
        slope=[[float(slopes.max())]],
        domain=((17.0, 23.0),),
        components=((0,),),
        columns=((121,),),
        goal=(near_20,),
        cells=(60,),
        switches=True,
        nodes=600,
    )


def contraction() -> System:
    """Half of the state, and a shift by ±0.1 of each coordinate."""
    return System(
        drift=affine(0.5 * np.eye(2), 0.1 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])),
        n_actions=4,
        std=(0.1, 0.1),
        slope=0.5 * np.eye(2),
        domain=((-1.0, 0.5), (-1.0, 0.5)),
        components=((0,), (1,)),
        columns=((20,), (20,)),
        goal=(first, first),
        cells=(15, 15),
    )


def switching() -> System:
    """The same in both coordinates at once, with shifts by (0.2, 0.1) or (−0.2, −0.1)."""
    return System(
        drift=affine(0.5 * np.eye(2), [[0.2, 0.1], [-0.2, -0.1]]),
        n_actions=2,
        std=(0.1, 0.1),
        slope=0.5 * np.eye(2),
        domain=((-0.4, 0.4), (-0.4, 0.4)),
        components=((0, 1),),
        columns=((15, 15),),
        goal=(lambda states: -np.linalg.norm(states, axis=1),),
        cells=(8, 8),
        switches=True,
        nodes=50,
        index="total",
        tube=0.1,
    )


def car() -> System:
    """A car on a plane, by its position; it is moved by 0.7 at most in each direction."""
    inputs = [(x, y) for x in (1, 0, -1) for y in (-1, 0, 1)]
    return System(
        drift=affine(0.9 * np.eye(2), 0.7 * np.array(inputs)),
        n_actions=9,
        std=(1.0, 1.0),
        slope=0.9 * np.eye(2),
        domain=((-10.0, 10.0), (-10.0, 10.0)),
        components=((0,), (1,)),
        columns=((41,), (41,)),
        goal=(first, lambda states: -states[:, 0]),
        cells=(20, 20),
    )


def robot() -> System:
    """A robot on a plane that moves by 2 in one of six directions."""
    inputs = [(u, v) for u in (1.0, -1.0) for v in (1.0, 0.0, -1.0)]
    return System(
        drift=affine(np.eye(2), [[2 * u * np.cos(v), 2 * u * np.sin(v)] for u, v in inputs]),
        n_actions=6,
        std=(float(np.sqrt(1 / 1.3333)),) * 2,
        slope=np.eye(2),
        domain=((-10.0, 10.0), (-10.0, 10.0)),
        components=((0,), (1,)),
        columns=((52,), (52,)),
        goal=(first, lambda states: 10 * states[:, 0]),
        cells=(40, 40),
    )


def van_der_pol(half_width: float = 0.5, columns: int = 20) -> System:
    """The oscillator on [−h, h]², with an input of 0.5 or −0.5."""
    h, step = half_width, 0.1
    slope = np.array([[1.0, step], [step * (1 + 2 * h**2), max(1 + step, abs(1 + step * (1 - h**2)))]])
    least = slope[1].min()

    def drift(states: Array, action: int) -> Array:
        x, y = states.T
        return np.stack([x + step * y, y + step * ((1 - x**2) * y - x) + (0.5, -0.5)[action]], axis=1)

    return System(
        drift=drift,
        n_actions=2,
        std=(float(np.sqrt(0.2)),) * 2,
        slope=slope,
        domain=((-h, h), (-h, h)),
        components=((0, 1),),
        columns=((columns, columns),),
        goal=(lambda states: states[:, 1],),
        cells=(10, 10),
        rate=max(2 * step * h / least, float(np.sqrt(2 * step / least))),
        nodes=40,
        index="total",
        simple=8,
    )


def first(states: Array) -> Array:
    """The first coordinate."""
    return states[:, 0]


def near_20(states: Array) -> Array:
    """Minus the distance to 20 degrees."""
    return -np.abs(states[:, 0] - 20)


SYSTEMS = {
    system.__name__: system for system in (room, thermostat, contraction, switching, car, robot, van_der_pol, building)
}


def grid_of(axes: Sequence[Array]) -> Array:
    """All points of a grid ``[n, d]``, the last coordinate varying fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


class Truth:
    """A component of a system by quadrature: Gauss points along each coordinate, and both walls with their atoms."""

    def __init__(self, system: System, group: Sequence[int], refined: float = 1.0) -> None:
        self.system, self.group = system, list(group)
        self.sides = [system.domain[axis] for axis in group]
        self.points, self.weights = np.polynomial.legendre.leggauss(int(refined * system.nodes))
        self.axes = [np.concatenate([[a], (a + b) / 2 + (b - a) / 2 * self.points, [b]]) for a, b in self.sides]
        self.states = grid_of(self.axes)
        self._kernels = [self.kernel(self.states, action) for action in range(system.n_actions)]

    def kernel(self, states: Array, action: int) -> list[Array]:
        """The probabilities of the nodes along each coordinate, from states of the component."""
        whole = np.tile(np.mean(self.system.domain, axis=1), (len(states), 1))
        whole[:, self.group] = states
        means, answer = self.system.drift(whole, action), []
        for axis, nodes, (low, high) in zip(self.group, self.axes, self.sides, strict=True):
            mean, std = means[:, [axis]], self.system.std[axis]
            density = np.exp(-(((nodes[1:-1] - mean) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi))
            inner = density * self.weights * (high - low) / 2
            answer.append(np.hstack([ndtr((low - mean) / std), inner, ndtr((mean - high) / std)]))
        return answer

    def ahead(self, values: Array, kernel: Sequence[Array]) -> Array:
        """P_a of a function with these values at the nodes."""
        if len(kernel) == 1:
            return kernel[0] @ values
        return np.einsum("nj,nj->n", kernel[0] @ values.reshape([len(axis) for axis in self.axes]), kernel[1])

    def value(self, reward: Array, discount: float, actions: Array | None) -> Array:
        """The value, at the nodes, of taking these actions there; of the best policy if None."""
        value = reward
        for _ in range(STEPS):
            ahead = np.stack([self.ahead(value, kernel) for kernel in self._kernels])
            taken = ahead.max(axis=0) if actions is None else np.take_along_axis(ahead, actions[None], axis=0)[0]
            value, before = reward + discount * taken, value
            if np.abs(value - before).max() < 1e-12 * (1 + np.abs(value).max()):
                return value
        raise RuntimeError(f"value iteration did not converge in {STEPS} steps")

    def ahead_at(self, value: Array, states: Array) -> Array:
        """P_aV at states, for every action ``[A, n]``."""
        return np.stack([self.ahead(value, self.kernel(states, a)) for a in range(self.system.n_actions)])


class Best:
    """The best action under a reward, by value iteration on the model: of the P_aV*, interpolated, the largest."""

    def __init__(self, system: System, discount: float) -> None:
        truth = Truth(system, range(len(system.domain)))
        axes = [np.linspace(low, high, 2_001 if len(truth.sides) == 1 else 201) for low, high in truth.sides]
        value = truth.value(system.goal[0](truth.states), discount, None)
        tables = truth.ahead_at(value, grid_of(axes)).reshape(-1, *map(len, axes))
        self.tables = [RegularGridInterpolator(axes, table) for table in tables]

    def __call__(self, states: Array) -> Array:
        """The actions at states."""
        return np.argmax([table(states) for table in self.tables], axis=0)


def least_advantage(system: System, rewards: Sequence[Any], discount: float) -> float:
    """The least advantage of always taking action 0, over all states and other actions: minima of components add."""
    total = np.zeros(system.n_actions)
    for group, reward in zip(system.components, rewards, strict=True):
        truth = Truth(system, group)
        mesh = grid_of([np.linspace(*side, 41 if len(group) > 1 else 1_001) for side in truth.sides])
        ahead = truth.ahead_at(truth.value(reward(truth.states), discount, np.zeros(len(truth.states), int)), mesh)
        total += (ahead[0] - ahead).min(axis=1)
    return float(total[1:].min())


def least_outside(system: System, reward: Any, discount: float, expert: Any, tube: Any) -> float:
    """The least advantage of an expert's actions at states farther from its switches than the tube."""
    truth = Truth(system, system.components[0])
    states = tube.grid.states[tube.grid.away > tube.allowed]
    ahead = truth.ahead_at(truth.value(reward(truth.states), discount, expert(truth.states)), states)
    taken = np.arange(system.n_actions)[:, None] == expert(states)
    return float((ahead[taken] - np.where(taken, -np.inf, ahead)).min())


def beside(system: System, certificate: Any, rewards: Sequence[Any], discount: float, expert: Any) -> dict[str, Any]:
    """The bands of a certificate on (P_b − P_a)V beside its exact values, in cells of the box, for every pair."""
    rows, errors = [], []
    for ground in certificate.grounds:
        group = ground.surrogate.coordinates or tuple(range(len(system.domain)))
        reward = rewards[system.components.index(tuple(group))]
        axes = [np.linspace(*system.domain[axis], system.cells[axis] * WITHIN + 1) for axis in group]
        mesh, exact = grid_of(axes), []
        for refined in (1.0, 1.4):
            truth = Truth(system, group, refined)
            actions = expert(truth.states) if callable(expert) else np.full(len(truth.states), expert)
            exact.append(truth.ahead_at(truth.value(reward(truth.states), discount, actions), mesh))
        errors.append(float(np.abs(exact[0] - exact[1]).max()))
        for band in ground.bands.pairs:
            b, a = band.pair
            unit, difference = ground.surrogate.unit, exact[1][b] - exact[1][a]
            low = unit * (band.estimate(mesh) - band.radius(mesh, 0))
            high = unit * (band.estimate(mesh) + band.radius(mesh, 1))
            numbers = [_by_cells(values, axes) for values in (difference, low, high)]
            inside = (_by_cells((low <= difference) & (difference <= high), axes)).all(axis=1)
            least, most = numbers[0].min(axis=1), numbers[0].max(axis=1)
            rows.append(np.stack([least, most, numbers[1].min(axis=1), numbers[2].max(axis=1), inside], axis=1))
    table = np.concatenate(rows)
    width = table[:, 3] - table[:, 2]
    return {
        "cells": len(table),
        "contained": float(table[:, 4].mean()),
        "finite": float(np.isfinite(width).mean()),
        "width of the band, median": float(np.median(width)),
        "exact values, least and largest": [float(table[:, 0].min()), float(table[:, 1].max())],
        "largest distance of an exact value from the middle of the band, in half-widths": float(
            (np.abs(table[:, :2] - table[:, 2:4].mean(axis=1)[:, None]).max(axis=1) / (width / 2)).max()
        ),
        "error of the quadrature": max(errors),
        "first pair, cell by cell: exact least and largest, band": rows[0][:, :4].tolist() if len(rows[0]) < 30 else [],
    }


def _by_cells(values: Array, axes: Sequence[Array]) -> Array:
    """Values at the points of a mesh, cell by cell, the edges with both cells ``[cells, points]``."""
    windows = sliding_window_view(values.reshape([len(axis) for axis in axes]), [WITHIN + 1] * len(axes))
    chosen = windows[tuple(slice(None, None, WITHIN) for _ in axes)]
    return chosen.reshape(int(np.prod(chosen.shape[: len(axes)])), -1)


def peak() -> float:
    """Gigabytes of memory that this process has used at most; on Linux since `forget` was called."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1e6
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def forget() -> None:
    """Let `peak` begin anew, where the system allows it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def checked(certificate: Any) -> dict[str, Any]:
    """The verdict of `certirl.check` on the saved certificate, in a process of its own, and what it takes."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        path = certificate.save(Path(folder) / "saved.npz")
        return pool.submit(_check, str(path)).result() | {"megabytes of the file": path.stat().st_size / 1e6}


def _check(path: str) -> dict[str, Any]:
    used = time.process_time()
    verdict = certirl.check(path)
    return {
        "verdict": verdict.verdict,
        "margin": verdict.margin,
        "processor seconds": time.process_time() - used,
        "gigabytes": peak(),
    }


@dataclass(frozen=True)
class Arguments:
    """Which systems, how many seeds of each, the most transitions of each action; what is repeated and how often."""

    lines: tuple[str, ...] = ("room", "thermostat", "contraction", "car", "robot")
    boxes: tuple[str, ...] = ("switching", "van_der_pol")
    building: tuple[str, ...] = ("building",)
    known: tuple[str, ...] = ("room", "thermostat")
    seeds: int = 2
    samples: int = 1_000_000
    discount: float = 0.7
    delta: float = 0.05
    repeated: tuple[tuple[str, int, int], ...] = (
        ("room", 25_000, 500),
        ("contraction", 20_000, 500),
        ("building", 900_000, 8),
    )
    seed: int = 0


FAST = Arguments(
    lines=("room",),
    boxes=(),
    building=(),
    known=("room",),
    seeds=1,
    samples=100_000,
    repeated=(("contraction", 15_000, 2),),
)
SENTENCE = "certified rewards of systems of drift and Gaussian noise, beside the truth by quadrature"


def proved(system: System, samples: int, discount: float, delta: float, seed: int) -> tuple[Any, Any, int]:
    """A reward, its certificate (None if there is none) and the transitions of each action that both took."""
    bases = system.bases()
    asked: dict[str, Any] = {"discount": discount, "rng": seed, "expert": 0}
    certify: dict[str, Any] = {"delta": delta, "samples": samples, "tail": system.tail}
    if system.simple is not None:
        basis = certirl.product(*(certirl.Legendre(system.simple) for _ in system.domain))
        found = certirl.solve(system, basis=basis, columns=basis.size, samples=FEW, **asked)
        certify |= {"columns": bases[0], "samples": samples // 2 - FEW, "rng": [seed, 1]}
        return found.reward, certirl.certify(found, system, **certify), samples // 2
    if system.switches:
        asked |= {"expert": Best(system, discount), "tube": system.tube, "columns": bases[0]}
    else:
        families = [certirl.product(*map(certirl.Legendre, sizes), index=system.index) for sizes in system.columns]
        asked |= {"basis": families, "columns": [basis.size for basis in families]}
        asked |= {"components": [list(group) for group in system.components]}
    solution = certirl.solve(system, **asked, **certify)
    return solution.reward, solution.certificate, solution.samples


def trial(task: Sequence[Any]) -> dict[str, Any]:
    """Find and certify a reward, compute the truth about it, and check the saved certificate."""
    name, seed, samples, discount, delta = task
    system = SYSTEMS[name]()
    forget()
    start, used = time.perf_counter(), time.process_time()
    reward, certificate, drawn = proved(system, samples, discount, delta, seed)
    seconds, processor, memory = time.perf_counter() - start, time.process_time() - used, peak()
    facts: dict[str, Any] = {"certified": certificate is not None and certificate.holds}
    if facts["certified"]:
        expert = Best(system, discount) if system.switches else 0
        rewards, tube = reward.parts if len(system.components) > 1 else [reward], certificate.tube
        facts |= {
            "tail": certificate.tail,
            "margin": certificate.margin,
            "true margin": least_advantage(system, rewards, discount)
            if tube is None
            else least_outside(system, reward, discount, expert, tube),
            "tube": None if tube is None else tube.allowed,
            "share not decided": 0.0 if tube is None else tube.share,
            "bands": beside(system, certificate, rewards, discount, expert),
            "check": checked(certificate),
        }
    return {
        "system": name,
        "seed": seed,
        "columns": [basis.size for basis in system.bases()],
        "switches": system.switches,
        "transitions per action": drawn,
        "seconds": seconds,
        "processor seconds": processor,
        "gigabytes": memory,
        **facts,
        "printed": str(certificate).splitlines(),
    }


def knowing(task: Sequence[Any]) -> dict[str, Any]:
    """Find a reward and certify it with known noise from as few transitions, of those tried, as it takes."""
    name, seed, discount, delta = task
    system = SYSTEMS[name]()
    expert = Best(system, discount)
    asked: dict[str, Any] = {"discount": discount, "expert": expert, "rng": seed}
    for samples in ATTEMPTS:
        used = time.process_time()
        found = certirl.solve(system, samples=samples, **asked)
        declared, share = certirl.dynamics.AffineGaussian(system.std[0]), delta / len(ATTEMPTS)
        certificate = certirl.certify(found, system, dynamics=declared, delta=share, samples=samples, **asked)
        if certificate.holds:
            break
    return {
        "system": name,
        "certified": certificate.holds,
        "transitions per action": 2 * samples,
        "margin": certificate.margin,
        "true margin": least_outside(system, found.reward, discount, expert, certificate.tube),
        "share not decided": certificate.tube.share,
        "processor seconds": time.process_time() - used,
        "printed": str(certificate).splitlines(),
    }


def repeat(task: Sequence[Any]) -> dict[str, Any]:
    """Certify the goal of the last component of a system from data of its own, and compare bands and exact values."""
    name, seed, samples, discount, delta = task
    whole = SYSTEMS[name]()
    system = whole.component(len(whole.components) - 1)
    expert = Best(system, discount) if system.switches else 0
    certificate = certirl.certify(
        system.goal[0],
        system,
        discount=discount,
        expert=expert,
        columns=system.bases()[0],
        tail=system.tail,
        samples=samples,
        delta=delta,
        rng=[seed, 1],
        tube=system.tube,
    )
    bands = beside(system, certificate, system.goal, discount, expert)
    return {"system": name, "seed": seed, "margin": certificate.margin, **bands}


def needed() -> dict[str, Any]:
    """How many columns of total degree hold the van der Pol oscillator, for boxes of several sizes."""
    rows = {}
    for half in (0.5, 0.75, 1.0, 2.0, 5.0):
        tails = {}
        for columns in (20, 28, 36, 50):
            system = van_der_pol(half, columns)
            (basis,) = system.bases()
            tails[basis.size] = system.tail.number(basis)
        rows[f"[−{half:g}, {half:g}]²"] = tails
    return rows


def certified(names: Sequence[str], arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """What is proved of these systems, for all seeds."""
    tasks = [
        [name, arguments.seed + number, arguments.samples, arguments.discount, arguments.delta]
        for name in names
        for number in range(arguments.seeds)
    ]
    runs = runner(trial, tasks, unit="certificates")
    return {name: _summary([run for run in runs if run["system"] == name]) for name in names}


def known(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """What is proved of lines if the noise is known."""
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    tasks = [[name, seed, arguments.discount, arguments.delta] for name in arguments.known for seed in seeds]
    runs = runner(knowing, tasks, unit="certificates")
    return {name: [run for run in runs if run["system"] == name] for name in arguments.known}


def repeated(arguments: Arguments, runner: study.Runner) -> dict[str, Any]:
    """In how many runs all exact values are within the bands."""
    tasks = [
        [name, arguments.seed + number, samples, arguments.discount, arguments.delta]
        for name, samples, count in arguments.repeated
        for number in range(count)
    ]
    runs = runner(repeat, tasks, unit="certificates")
    return {
        name: _counted([run for run in runs if run["system"] == name], samples)
        for name, samples, _ in arguments.repeated
    }


PARTS: dict[str, Callable[[Arguments, study.Runner], dict[str, Any]]] = {
    "lines": lambda arguments, runner: certified(arguments.lines, arguments, runner),
    "boxes": lambda arguments, runner: (
        certified(arguments.boxes, arguments, runner) | {"van der Pol, tail by columns": needed()}
    ),
    "building": lambda arguments, runner: certified(arguments.building, arguments, runner),
    "known": known,
    "repeated": repeated,
}


def page(result: dict[str, Any]) -> str:
    """The table of the documentation: of each system the worst of its seeds."""
    heads = ("system", "columns", "τ", "transitions per action", "processor s", "GB", "margin proved", "true margin")
    heads += ("not decided", "exact within bands", "check, s and GB")
    rows = [heads, ("---",) * len(heads)]
    for name, row in result.items():
        if "check" not in row or None in row["check"]:
            continue
        worst = int(np.argmin(row["margin"]))
        slowest = max(row["check"], key=lambda check: check["processor seconds"])
        rows.append(
            (
                name.replace("_", " "),
                " + ".join(map(str, row["columns"])),
                f"{row['tail'][worst]:.1e}",
                f"{max(row['transitions per action']):,}",
                f"{row['processor seconds, most']:.0f}",
                f"{row['gigabytes, most']:.1f}",
                f"{np.floor(1_000 * row['margin'][worst]) / 1_000:.3f}",
                f"{row['true margin'][worst]:.3f}",
                f"{max(row['share not decided']):.1%}" if row["switches"] else "–",
                f"{min(bands['contained'] for bands in row['bands']):.0%} of {row['bands'][0]['cells']} cells",
                f"{slowest['processor seconds']:.0f}, {slowest['gigabytes']:.1f}",
            )
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _summary(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a reader quotes of the runs of one system."""
    proofs = [t for t in trials if t["certified"]]
    each = ("transitions per action", "tail", "margin", "true margin", "share not decided", "bands", "check")
    return {
        "seeds": len(trials),
        "certified": len(proofs),
        "false": sum(t["true margin"] < t["margin"] for t in proofs),
        "columns": trials[0]["columns"],
        "switches": trials[0]["switches"],
        "processor seconds, most": max(t["processor seconds"] for t in trials),
        "gigabytes, most": max(t["gigabytes"] for t in trials),
        **{name: [t.get(name) for t in trials] for name in each},
        "printed, first seed": trials[0]["printed"],
    }


def _counted(repeats: Sequence[dict[str, Any]], samples: int) -> dict[str, Any]:
    """In how many repeated runs all exact values are within the bands."""
    farthest = "largest distance of an exact value from the middle of the band, in half-widths"
    return {
        "transitions per action": samples,
        "runs": len(repeats),
        "runs with finite bands": sum(r["finite"] == 1 for r in repeats),
        "runs with an exact value outside": sum(r["contained"] < 1 for r in repeats),
        "cells of each run": repeats[0]["cells"],
        "width of the band, median": float(np.median([r["width of the band, median"] or np.inf for r in repeats])),
        "exact values, least and largest": repeats[0]["exact values, least and largest"],
        farthest: max(r[farthest] or 0.0 for r in repeats),
    }


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
