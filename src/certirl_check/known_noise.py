"""Certificates with known noise derived again from the sums of the transitions: docs/notes/known-noise.md.

Nothing here is shared with the code that made the certificate. The normal distribution function comes from a table that
is computed in decimal arithmetic, and Taylor's series between its points. Solutions of equations are guesses, whose
residuals are evaluated and count as losses; `numpy.linalg` is for guesses alone. Every evaluation at the nodes has a
bound on its rounding error; bounds that are products of few roundings are enlarged by one part in 10⁹.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl_check.claims import (
    DIFFERENCE,
    LikelyClaim,
    Within,
    at_least,
    at_most,
    claimed_within,
    failed,
    short,
    within_of,
)
from certirl_check.enclosures import U, enclosed, inverse, least_eigenvalue
from certirl_check.harmonics import Grid
from certirl_check.reading import Expert, Pair, Reading, compare_tube
from certirl_check.records import RELATIVE, TIGHT, DamagedError, Record, TooLittleError, components_of

STEP, TERMS, FARTHEST = 16, 11, 9  # of the table: points in a unit, terms of a series, the largest argument
ERROR = 4e-15  # of Φ and φ: 11 terms of sizes that add up to less than 2, each with two roundings
MORE = 1 + 1e-9
ROUNDS = 20
RIDGES = tuple(4.0 * 16**j for j in range(6))
_KEPT = "and each follows the dynamics of its action: no row is there, or missing, because of its next state"
KINDS = {
    "independent": f"given all their states and actions, next states are independent, {_KEPT}",
    "paired": f"given all their states and actions, next states from different states are independent, {_KEPT}",
    "dependent": "given everything before it, the noise of each row follows its law, and whether a row is in the log "
    "was decided before its next state was: no row or episode is missing because of where it led",
}
LARGE = 5.0  # walls that are farther away than this, in units of the noise, are treated by bounds
PEAK = 0.3989422804014327
Floats = NDArray[Any]
Ints = NDArray[np.int64]


@cache
def _table() -> Floats:
    """Taylor coefficients of Φ at k/16, |k| ≤ 144 ``[terms, points]``, each correct to a rounding.

    Φ − ½ = φ Σ x^n/(1·3···n) over odd n, and of the coefficients (j + 2)c_{j+2} = −x c_{j+1} − j c_j/(j + 1).
    """
    rows = []
    with localcontext() as context:
        context.prec = 60
        root = (2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494")).sqrt()
        for k in range(-FARTHEST * STEP, FARTHEST * STEP + 1):
            x, n = Decimal(k) / STEP, 1
            density, term, total = (-x * x / 2).exp() / root, x, x
            while abs(term) > Decimal(10) ** -50:
                n += 2
                term *= x * x / n
                total += term
            row = [Decimal("0.5") + density * total, density]
            for j in range(TERMS - 2):
                row.append(-(x * row[j + 1] + row[j] * j / (j + 1)) / (j + 2))
            rows.append([float(c) for c in row])
    return np.array(rows).T.copy()


def normal(u: Floats) -> tuple[Floats, Floats]:
    """Φ and φ with errors of `ERROR` at most; beyond ±9 they are 0 or 1 and 0 up to 10⁻¹⁸."""
    inside = np.clip(u, -FARTHEST, FARTHEST)
    k = np.rint(inside * STEP).astype(np.int64)
    rest, places, terms = inside - k / STEP, k + FARTHEST * STEP, _table()
    value, slope = np.zeros_like(rest), np.zeros_like(rest)
    for j in range(TERMS - 1, 0, -1):
        column = terms[j].take(places)
        value = value * rest + column
        slope = slope * rest + j * column
    value = np.where(np.abs(u) > FARTHEST, u > 0, value * rest + terms[0].take(places))
    return value, np.where(np.abs(u) > FARTHEST, 0.0, slope)


def _radius(q: int, delta: float) -> float:
    """r² with inf_b E(X − b)⁺/(r² − b) ≤ δ, X chi-square with an even number q of degrees."""

    def upper(half: int, x: Floats) -> Floats:
        return np.exp(-x) * sum(x**k / math.factorial(k) for k in range(half))

    low, high = float(q), 40 * (q - math.log(delta))
    for _ in range(80):
        square = (low + high) / 2
        b = square - np.linspace(0.5, min(square, 12.0), 400)
        chances = (q * upper(q // 2 + 1, b / 2) - b * upper(q // 2, b / 2)) / (square - b)
        low, high = (square, high) if float(chances.min()) * MORE > delta else (low, square)
    return high * MORE


class Set(NamedTuple):
    """Drifts: θ̂ ``[A, 2]`` and K ``[A, 2, 2]`` with |Σ v_a·(θ_a − θ̂_a)| ≤ (Σ v_aᵀK_av_a)^½."""

    theta: Floats
    shape: Floats

    def size(self, v: Floats) -> Floats:
        """The bound, for functionals ``[…, A, 2]``."""
        squares = (np.einsum("...ai,aij->...aj", v, self.shape) * v).sum(axis=(-1, -2))
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)) * MORE)


class Rows(NamedTuple):
    """The rows of one action: Σxxᵀ and Σxs' inside, x and next states at the walls, which begin at ``wall``."""

    gram: Floats
    crossed: Floats
    x: Floats
    after: Floats
    wall: float

    @property
    def full(self) -> Floats:
        """Σxxᵀ of all rows."""
        return np.asarray(self.gram + self.x.T @ self.x)

    def score(self, theta: Floats, std: float, shift: Any = 0.0) -> tuple[Floats, Floats, float]:
        """S(θ), w from below with the drift nearer to the walls by a shift, and the error of S."""
        c = (self.wall - self.after * (self.x @ theta + self.after * shift)) / std
        beyond, density = normal(-c)
        near = c <= LARGE
        safe = np.where(near, beyond, 1.0)
        ratio = np.where(near, density / safe, c)
        error = np.where(near, (ERROR + ratio * ERROR) / safe * 1.1, 1 / np.maximum(c, LARGE)) + 1e-14 * (1 + ratio)
        w = np.where(near, ratio * (ratio - c) - (2 * ratio + np.abs(c)) * error, 0.0)
        total = (self.crossed - self.gram @ theta) / std + self.x.T @ (self.after * ratio)
        size = np.abs(self.crossed).sum() + np.abs(self.gram).sum() * np.abs(theta).max()
        rest = math.sqrt(2) * float(error.sum()) + 1e-14 * float(size / std + (ratio + 1).sum())
        return total, np.clip(w, 0.0, 1.0), rest


def _drifts(rows: list[Rows], std: float, delta: float, kind: str) -> Set:
    """(K1), from a guess of the coefficients: the smallest of the sets that hold at once."""
    count = len(rows)
    if kind != "dependent":
        square = count * _radius(2, delta / count) if kind == "paired" else _radius(2 * count, delta)
        return _set(rows, std, square, 0.0)
    sets = []
    for ridge in RIDGES:
        square = 2 * math.log(len(RIDGES) / delta)
        for row in rows:
            (a, b), (_, d) = row.full
            square += math.log((1 + a / ridge) * (1 + d / ridge) - (b / ridge) ** 2)
        sets.append(_set(rows, std, square * MORE, ridge))
    return min(sets, key=lambda drifts: float(drifts.shape[:, [0, 1], [0, 1]].sum()))


def _set(rows: list[Rows], std: float, square: float, ridge: float) -> Set:
    """(K1) with r² and ν."""
    thetas, rest = [], 0.0
    for row in rows:
        if not _spread_out(row.gram):
            raise TooLittleError("the transitions inside the interval do not determine a drift")
        theta = np.linalg.solve(row.gram, row.crossed)  # a guess, as all that follows
        for _ in range(50):
            total, w, _ = row.score(theta, std)
            theta = theta + std * np.linalg.solve(row.gram + (row.x * w[:, None]).T @ row.x, total)
        total, _, error = row.score(theta, std)
        flat = inverse(enclosed(row.full + ridge * np.eye(2)))
        length = (enclosed(total) @ flat * total).sum().root() + enclosed(error) * flat.size.sum() ** 0.5
        rest += float(length.above) ** 2
        thetas.append(theta)
    rho = std * (math.sqrt(square) + math.sqrt(rest)) * MORE
    shapes = []
    for row, theta in zip(rows, thetas, strict=True):
        lower = row.gram
        for _ in range(ROUNDS + 1):
            flat = inverse(enclosed(lower))
            share = rho**2 * _ratio(lower, row.full + ridge * np.eye(2), flat.middle) * MORE
            shape = share * (flat.middle + 2 * flat.radius.max() * np.eye(2))
            spread = np.sqrt(np.einsum("ni,ij,nj->n", row.x, shape, row.x)) * MORE
            _, w, _ = row.score(theta, std, spread)
            lower = row.gram + (row.x * w[:, None]).T @ row.x
        shapes.append(shape)
    return Set(np.array(thetas), np.array(shapes))


def _spread_out(gram: Floats) -> bool:
    """Whether a matrix of order two has a condition number below 10⁴, so that forms keep twelve digits."""
    det = gram[0, 0] * gram[1, 1] - gram[0, 1] ** 2
    return bool(det > 0 and (gram[0, 0] + gram[1, 1]) ** 2 < 1e4 * det)


def _ratio(lower: Floats, full: Floats, flat: Floats) -> float:
    """λ with λ·lower − full ≥ 0, nearly the least."""
    product = flat @ full
    half, det = (product[0, 0] + product[1, 1]) / 2, product[0, 0] * product[1, 1] - product[0, 1] * product[1, 0]
    guess = float(half + math.sqrt(max(half**2 - det, 0.0)))
    for slack in (1e-9, 1e-7, 1e-5, 1e-3):
        ratio = guess * (1 + slack)
        if least_eigenvalue(enclosed(ratio) * lower - full) >= 0:
            return ratio
    raise TooLittleError("the transitions do not determine the drifts")


class Noise:
    """E f(clip(y + ξ)) and its derivatives at points y, for f linear between nodes, and bounds on their errors."""

    def __init__(self, points: Floats, nodes: Floats, std: float) -> None:
        self.h, size = float(nodes[1] - nodes[0]), len(nodes)
        u = (points[:, None] - nodes) / std
        below, density = normal(u)
        place = 16 * U * (1 + float(np.abs(points).max())) / std  # of u
        each = (size + 8) * 2 * U
        self.means = self._over(std * (u * below + density))
        self.slopes = self._over(below)
        self.bends = self._over(density / std)
        self.below, self.density = below, density / std  # Φ and the density of y + ξ, at the nodes
        self.errors = (
            2 * std * (12 * ERROR + place + 8 * U * float(np.abs(u).max())) / self.h + each,
            2 * (ERROR + place) / self.h + each / std,
            2 * (ERROR + place) / (std * self.h) + each / std**2,
        )

    def _over(self, values: Floats) -> Floats:
        return (values[:, :-1] - values[:, 1:]) / self.h


def _variation(f: Floats) -> Floats:
    """Σ|f(t_{k+1}) − f(t_k)| along the nodes."""
    return np.abs(np.diff(f, axis=0)).sum(axis=0)


class Derivation:
    """The theorem of the note for one problem: bounds on D_ba in every cell, by pair, and what they are made of."""

    def __init__(self, drifts: Set, std: float, discount: float, reward: Floats, chosen: Ints) -> None:
        g, size, count = discount, reward.shape[-1], len(drifts.theta)
        evaluation = 2.0**-50 * float(np.abs(reward).max())
        reward = np.broadcast_to(reward - (reward.max() + reward.min()) / 2, (count, size))  # constants do not matter
        nodes = np.linspace(-1.0, 1.0, size)
        h, each = float(nodes[1] - nodes[0]), np.arange(size)
        x = np.stack([np.ones(size), nodes], axis=1)
        k1, k2 = PEAK / std * MORE, 2 * PEAK * math.exp(-0.5) / std**2 * MORE
        k3 = PEAK * (1 + 4 * math.exp(-1.5)) / std**3 * MORE
        lines, steep = drifts.theta @ x.T, np.abs(drifts.theta[:, 1])
        units = np.zeros((count, size, count, 2))
        for c in range(count):
            units[c, :, c] = x
        spread, turning = drifts.size(units), math.sqrt(float(drifts.shape[:, 1, 1].max())) * MORE
        widest, largest = float(spread.max()), float(drifts.size(np.eye(2 * count).reshape(-1, count, 2)).sum())
        noises = [Noise(line, nodes, std) for line in lines]
        mean_error, slope_error = (max(noise.errors[i] for noise in noises) for i in (0, 1))

        def forward(f: Floats) -> Floats:
            return np.stack([f[0] + np.tensordot(noise.means, np.diff(f, axis=0), axes=(1, 0)) for noise in noises])

        system = np.eye(size) - g * forward(np.eye(size))[chosen, each]  # for guesses
        value = np.linalg.solve(system, reward[chosen, each])
        rises = np.stack([noise.slopes @ np.diff(value) for noise in noises])
        direct = rises[..., None, None] * units
        effects = np.linalg.solve(system, (g * direct[chosen, each]).reshape(size, -1)).reshape(size, count, 2)
        height = float(np.ptp(value)) * MORE
        value_after, effects_after = forward(value), forward(effects)
        middle = (effects.max(axis=0) + effects.min(axis=0)) / 2
        wide = 2 * float(drifts.size(effects - middle).max())
        value_error = mean_error * float(_variation(value)) + 8 * U * float(np.abs(value).max())
        first_error = slope_error * float(_variation(value))
        effect_error = mean_error * float(_variation(effects).max()) + 8 * U * float(np.abs(effects).max())
        vector_error = largest * (first_error + 2 * effect_error)

        points = np.linspace((lines - spread).min() - 1e-9, (lines + spread).max() + 1e-9, 2 * size)
        apart, noise = float(points[1] - points[0]) / 2 * MORE, Noise(points, nodes, std)
        h2 = float(np.abs(noise.bends @ np.diff(value)).max()) + noise.errors[2] * float(_variation(value))
        h2 += apart * k3 * height
        moved = np.tensordot(noise.slopes, np.diff(effects, axis=0), axes=(1, 0))
        lift = float(drifts.size(moved).max()) + largest * noise.errors[1] * float(_variation(effects).max())
        lift += apart * k2 * wide

        bent = steep**2 * (h2 + k3 * height * widest + k2 * wide) + 2 * steep * h2 * turning
        curved = g * h**2 / 8 * float(bent.max()) * MORE
        residual = np.abs(reward + g * value_after - value) + drifts.size(g * direct + g * effects_after - effects)
        residual += 2 * value_error + vector_error
        sources = g * np.stack([h2 * spread**2 / 2 + lift * spread, k1 * spread]) * MORE
        bounds = np.linalg.solve(system, sources[:, chosen, each].T)
        bounds_after = forward(bounds)
        slack = mean_error * _variation(bounds) + 8 * U * np.abs(bounds).max(axis=0)
        excess = np.moveaxis(g * bounds_after - bounds, -1, 0) + slack[:, None, None]
        missed = np.maximum((sources + excess)[:, chosen, each].max(axis=1), 0.0)
        tall = np.ptp(bounds, axis=0)
        switch = np.flatnonzero(chosen[1:] != chosen[:-1])
        rare, over, visits = np.zeros(2), np.zeros(2), 0.0
        if len(switch):
            visits = 1.0 if switch[0] == 0 or switch[-1] == size - 2 else min(1.0, k1 * h * len(switch) * MORE)
            if not 2 * g * visits < 1:
                raise TooLittleError("the expert switches too close to an end of the interval")
            here = [(c, node) for k in switch for c in (chosen[k], chosen[k + 1]) for node in (k, k + 1)]
            most = max((residual + sources[0])[at] for at in here) + curved, max(sources[1][at] for at in here)
            rare = np.array(most) / (1 - 2 * g * visits)
            over = np.array([max(0.0, *(excess[i][at] for at in here)) for i in range(2)])
        f2 = np.array([float(residual[chosen, each].max()) + curved, 0.0]) + missed + 2 * g * visits * rare
        f2 += g * h**2 / 8 * float((steep**2).max()) * k2 * tall
        sup = (bounds.max(axis=0) + (f2 + g * visits * (rare + over)) / (1 - g) + over) * MORE
        if not 2 * sup[1] < 1:
            raise TooLittleError("the drifts are too uncertain for any bound")
        self.growth = 1 / float(1 - 2 * sup[1])  # of the second order, and of the last digits of the drifts
        omega = float(2 * sup[0]) * self.growth * MORE
        scale = np.array([1.0, omega])
        constant, jump = float((f2 + (rare + over) * visits) @ scale) / (1 - g), 2 * visits * float(rare @ scale)
        later = bounds_after @ scale + float(slack @ scale)

        self.lower, self.values = dict[Pair, Floats](), dict[Pair, Floats]()
        self.rough = dict[Pair, Floats]()  # the second order that is lost
        self.rounding = 2 * value_error + 2 * vector_error + 2 * evaluation / (1 - g)
        for b, a in ((b, a) for b in range(count) for a in range(count) if a != b):
            paid = (reward[b] - reward[a]) / g
            curve = value_after[b] - value_after[a] + paid
            estimation = drifts.size(direct[b] - direct[a] + effects_after[b] - effects_after[a])
            node = each[:-1] + ((curve - estimation)[1:] < (curve - estimation)[:-1])
            shift = np.abs(lines[b] - lines[a]) / (2 * std)
            distance = np.minimum(2 * normal(shift)[0] - 1 + 4 * ERROR, 1.0)
            second = h2 * (spread[b] ** 2 + spread[a] ** 2) / 2 + (lift + k1 * omega) * (spread[b] + spread[a])
            moved_by = np.minimum(_ends(omega * distance) + jump, _ends(later[b] + later[a]) + 2 * constant)
            second_order = (_ends(second) + moved_by + 2 * jump) * MORE
            grid = h**2 / 8 * float((bent + steep**2 * k2 * float(tall @ scale))[[b, a]].sum()) * MORE
            self.values[b, a], self.rough[b, a] = curve[node], second_order
            rounding = self.rounding + evaluation / g * bool(paid.any())
            self.lower[b, a] = curve[node] - estimation[node] - grid - second_order - rounding
        free = np.ones(size, dtype=bool)
        free[switch] = free[switch + 1] = False
        top, bottom = int(np.where(free, value, -np.inf).argmax()), int(np.where(free, value, np.inf).argmin())
        between = float(drifts.size(effects[top] - effects[bottom]))
        self.span = float(value[top] - value[bottom]) - between - omega - self.rounding


def _ends(f: Floats) -> Floats:
    return np.maximum(f[:-1], f[1:])


class DriftSums:
    """The noise and the sums over transitions that a record holds; names as in a file."""

    def __init__(self, record: Record) -> None:
        box, sums, self.std = record.box("domain"), record.record("sums", "DriftSums"), record.number("std")
        if len(box) != 1:
            raise DamagedError("the domain should be one interval")
        self.low, self.high = box[0]
        self.half = (self.high - self.low) / 2
        self.inside, self.walls = sums.array("inside", (None, 5)), sums.array("walls", (None, 3))
        self.kind, self.actions = sums.text("rows"), len(self.inside)
        if self.kind not in KINDS:
            raise DamagedError(f"rows should be {' or '.join(KINDS)}, got {self.kind!r:.60}")
        actions, ends = self.walls[:, 0], self.walls[:, 1]
        known = np.isin(actions, np.arange(self.actions)).all() and np.isin(ends, (-1, 1)).all()
        if self.actions < 2 or not known:
            raise DamagedError("the file names actions or walls that there are not")
        self.counts = self.inside[:, 0] + np.bincount(actions.astype(int), minlength=self.actions)

    def contradictions(self) -> list[str]:
        """What sums over transitions cannot be."""
        n = self.inside[:, 0]
        squares = self.inside[:, 2] * n - self.inside[:, 1] ** 2
        whole = (n == np.rint(n)).all() and (n >= 0).all()
        small = (np.abs(self.inside[:, 1:]) <= n[:, None] * (1 + TIGHT)).all()
        return failed(
            (self.std > 0, f"the standard deviation {self.std:g} is not positive"),
            (whole, "numbers of transitions are not whole"),
            ((squares >= -TIGHT * n**2).all(), "the sums of squares are smaller than squares of sums allow"),
            (small, "sums are larger than states allow"),
            ((np.abs(self.walls[:, 2]) <= 1 + TIGHT).all(), "some states are outside the domain"),
        )

    def drifts(self, delta: float) -> Set:
        """(K1), but for a probability."""
        wall = 1 - min(2.0**-22 * max(abs(self.low), abs(self.high)) / self.half, 1e-3)  # single precision, four times
        rows = []
        for action, (n, s, ss, after, crossed) in enumerate(self.inside):
            walls = self.walls[self.walls[:, 0] == action]
            x = np.stack([np.ones(len(walls)), walls[:, 2]], axis=1)
            rows.append(Rows(np.array([[n, s], [s, ss]]), np.array([after, crossed]), x, walls[:, 1], wall))
        try:
            return _drifts(rows, self.std / self.half, delta, self.kind)
        except np.linalg.LinAlgError:
            raise TooLittleError("the transitions do not determine the drifts") from None

    def trusted(self) -> list[str]:
        """What no file can show of the transitions, and what is assumed of the dynamics."""
        return [
            f"the stored sums are over transitions of these dynamics; {KINDS[self.kind]}",
            f"s' = clip(m_a(s) + ξ) into [{self.low:g}, {self.high:g}], m_a affine, ξ Gaussian with standard deviation "
            f"{self.std:g}, known exactly",
        ]


class GaussianCertificate(LikelyClaim):
    """A certificate with known noise as a file holds it; names as in a file."""

    def __init__(self, record: Record, solution: Record | None) -> None:
        super().__init__(record, solution)
        noise = record.record("noise", "KnownNoise")
        self.sums, self.discount = DriftSums(noise), noise.number("discount")
        self.low, self.high, self.actions = self.sums.low, self.sums.high, self.sums.actions
        self.reward = noise.array("reward", (None,) * noise.rank("reward"))  # [n]; of every action [A, n]
        if not 1 <= self.reward.ndim <= 2:
            raise DamagedError("the reward should be numbers at the nodes, or those of every action")
        self.nodes = self.reward.shape[-1]
        self.chosen: Ints = noise.array("actions", (self.nodes,), "iu").astype(np.int64)
        possible = self.nodes >= 3 and np.isin(self.chosen, np.arange(self.actions)).all()
        if not possible or not (self.reward.ndim == 1 or len(self.reward) == self.actions):
            raise DamagedError("the file names actions that there are not, or too few nodes")
        self.samples = int(self.sums.counts.min())
        self.tube = record.optional("tube", "Tube")
        self.expert = Expert(((self.low, self.high),), np.eye(self.actions, dtype=bool)[self.chosen])
        self.within = within_of(record)  # of an inexact expert
        self.required = 0.0 if self.within is None else self.within.required(self.discount)

    @staticmethod
    def claimed(record: Record) -> tuple[float, str]:
        """The margin that a file claims, and why it claims nothing if it does not."""
        return claimed_within(record, record.record("noise", "KnownNoise").number("discount"))

    def contradictions(self) -> list[str]:
        """What cannot be in the certificate."""
        samples, switches = self.record.whole("samples"), bool((self.chosen != self.chosen[0]).any())
        wrong = super().contradictions() + self.sums.contradictions()
        wrong += failed(
            (self.spending.get("drift", 0.0) > 0, "the parts of δ are not those of this theorem"),
            (0 < self.discount < 1, f"the discount {self.discount:g} is not between 0 and 1"),
            (samples == self.samples, f"{samples:,} transitions are claimed, the sums are of {self.samples:,}"),
            (switches == (self.tube is not None), "there is a tube, or none, where the expert says otherwise"),
        )
        if self.within is not None:
            wrong += self._other_span(self.within)
        if self.tube is not None:
            grid = self.tube.record("grid", "ExpertGrid")
            same = np.array_equal(grid.array("support", self.expert.support.shape, "b"), self.expert.support)
            wrong += failed((same and grid.box("domain") == self.expert.box, "the tube is of another expert"))
        return wrong + ([] if self.solution is None else self._other_solution(self.solution, switches))

    def _other_span(self, within: Within) -> list[str]:
        """Whether the reward differs by less than stated between the two places that its span is taken from."""
        nodes, places = np.linspace(self.low, self.high, self.nodes), within.places
        inside = places.shape[1] == 1 and ((places >= self.low) & (places <= self.high)).all()
        if not inside or not np.isin(within.actions, self.chosen).all():
            return ["the span of the reward is taken from states, or actions, that there are not"]
        rows = [self.reward if self.reward.ndim == 1 else self.reward[action] for action in within.actions]
        high, low = (float(np.interp(place[0], nodes, row)) for place, row in zip(places, rows, strict=True))
        less = f"the reward differs by {short(high - low, 6)} between the places that its span is taken from"
        return failed((within.span <= high - low + TIGHT * (abs(high) + abs(low)), less))

    def _other_solution(self, solution: Record, switches: bool) -> list[str]:
        """Where a solution has another problem than its certificate, or is certified for another reward."""
        proved = self.required < self.margin < math.inf
        expert = None if switches else int(self.chosen[0])
        wrong = self.other_problem(solution, (self.discount, self.actions), expert, proved)
        if not proved or wrong:
            return wrong
        (term,), own = components_of(reward := solution.record("reward", "Reward")), (self.nodes,)
        same = term.basis == Grid(own, (False,), self.expert.box) and np.array_equal(term.coefficients, self.reward)
        plain = same and not reward.has_terminal
        return failed((plain, "the certificate is about another reward than its solution"))

    def conclude(self) -> list[str]:
        """Derive the margin, the tube and the regret, and say what of the file does not follow."""
        drifts, std = self.sums.drifts(self.spending["drift"]), self.sums.std
        work = Derivation(drifts, std / self.sums.half, self.discount, self.reward, self.chosen)
        reading = Reading(self.expert, work.lower, self.required)
        allowed = 0.0 if self.tube is None else self.tube.number("allowed")
        # Rounding may decide whether a cell that ends at the tube is outside: either is what the file may claim.
        options = [_least(reading, reading.outside(allowed, room)) for room in (TIGHT, -TIGHT)]
        self.derived, pair, place = min(options, key=lambda option: abs(option[0] - self.margin))
        estimate, rough = float(work.values[pair][place]), float(work.rough[pair][place])
        # Rounding enters the second order again and again, and more the nearer this is to having no bound. What is
        # confirmed is the weaker of both bounds, whatever the room between them.
        room, lost = 10 * RELATIVE * work.growth, estimate - self.derived
        slack = RELATIVE * (abs(estimate) + lost) + room * rough + 2 * work.rounding
        holds = self.margin > self.required
        wrong = self.compare_margin(estimate, slack, holds=holds, required=self.required)
        short_by = reading.shortfall
        met = float(short_by.sum()) * PEAK * float(self.expert.sides[0]) / std + float(max(short_by[[0, -1]]))
        regret, stated = reading.regret(self.discount, met), self.record.bound("regret")
        least, where = regret * (1 - room) - slack, f"at every state of [{self.low:g}, {self.high:g}]"
        if self.tube is None:
            wrong += failed((stated >= least, f"the regret that follows is {short(regret)}"))
            self.account.append(("regret", f"at most {at_most(max(regret, stated))}"))
        else:
            where += f" farther than {short(allowed)} from each state where it switches" if allowed else ""
            span = max(work.span, 0.0)
            wrong += compare_tube(self, self.tube, reading, (regret, least), (span, span + slack), room=slack)
        best = "the action that the expert takes is strictly better than every other, if it is followed afterwards:"
        best = best if self.within is None else f"{self.within}; so"
        self.statement = (
            f"with probability at least {at_least(1 - self.delta, 6)}, {where}, {best} "
            f"{DIFFERENCE[self.reward.ndim == 2]} ≥ {at_least(min(self.derived, self.margin))}"
        )
        return wrong

    def lines(self) -> list[tuple[str, str]]:
        """What is claimed of which problem, from how much."""
        expert = "," if self.tube is not None else f", the expert always takes {self.chosen[0]};"
        states = f"states in [{self.low:g}, {self.high:g}], noise of standard deviation {self.sums.std:g}"
        return [
            ("problem", f"{self.actions} actions{expert} discount {self.discount:g}; {states}"),
            ("reward", f"linear between its values at {self.nodes:,} evenly spaced states"),
            *self.account,
            ("cells", f"{self.nodes - 1:,}"),
            ("data", f"{self.samples:,} transitions per action or more, {len(self.sums.walls):,} of all at the ends"),
            ("spent", self.spent),
        ]

    def trusted(self) -> list[str]:
        """What no file can show."""
        return [
            *self.sums.trusted(),
            *self.notes,
            "δ was fixed before these transitions were seen; other attempts count in δ",
            self.expert.assumption,
            "the certificate is about the reward of the file, which is linear between these states",
        ]


def _least(reading: Reading, outside: Any) -> tuple[float, Pair, int]:
    """The least bound in these cells, of actions that are taken against others: its value, pair and cell."""
    best: tuple[float, Pair, int] = (math.inf, (0, 1), 0)
    for pair, lower in reading.lower.items():
        asked = np.where(reading.asked(pair) & outside, lower, np.inf)
        best = min(best, (float(asked.min()), pair, int(asked.argmin())))
    return best
