"""Certificates derived again: of experts of one action and of policies, on intervals and boxes, alone and as sums.

One derivation: an interval is a box with one coordinate, an expert of one action uses one, and a single reward is a sum
of one component. Nothing here is shared with the code that made the certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product as combinations
from typing import Any

import numpy as np

from certirl.checker.bands import SHARES, Derivation, Ground, TooLittleError
from certirl.checker.enclosures import Enclosure, Floats, enclosed
from certirl.checker.harmonics import Box, Functions
from certirl.checker.records import (
    ALIKE,
    DRAWS,
    FIXED_BEFORE,
    RELATIVE,
    SEPARATE,
    TIGHT,
    Claim,
    DamagedError,
    Finding,
    ImpossibleError,
    Record,
    Reward,
    at_least,
    at_most,
    probability,
    reward_of,
    short,
    spent,
    tail_in_words,
    terms_of,
    transitions,
)
from certirl.checker.tubes import LOSSES, Bounds, Expert, Parts, Side, Tube, read_tube, whole

_NAMED = 4  # switches that are listed
_OTHER = "the sums of action {} were made with another reward"


@dataclass(frozen=True, eq=False)
class Component:
    """A component of the reward, as a file holds it.

    Attributes:
        ground: what its bounds rest on.
        reward: R_j.
        name, number, coordinates: which one it is.
        places: two states that the span of V is taken from ``[2, d]``.
        marks: distances to the switches at the corners of a grid.
        reached: sums of the reward's functions over next states ``[A, K]``.
    """

    ground: Ground
    reward: Reward
    name: str
    number: int
    coordinates: tuple[int, ...] | None
    places: Floats
    marks: Floats
    reached: Floats

    @classmethod
    def of(cls, record: Record, actions: int | None) -> Component:
        """Read it strictly."""
        s, e = record.record("surrogate", "Surrogate"), record.record("evidence", "Evidence")
        columns = s.functions("columns")
        box, k, d = Box.of(columns), columns.size, columns.dimension
        if d > 3 or not columns.closed:
            raise ImpossibleError(f"{columns} are no functions that a certificate can rest on")
        counts = e.array("counts", (actions,), "iu").astype(float)
        A, used = len(counts), s.wholes("used")
        if A < 2 or not used or list(used) != sorted({*used} & {*range(A)}):
            raise DamagedError(f"used should name some of {A} actions in order, got {used!r:.60}")
        m, w, discount = k * len(used), len(s.array("widths", (None,))), s.number("discount")
        if not 0 < discount < 1:
            raise DamagedError(f"discount should lie between 0 and 1, got {discount:g}")
        unit, paired = s.number("unit"), e.flag("paired")
        if not unit > 0 or s.record("reward", "BoundedReward").number("unit") != unit:
            raise DamagedError(f"unit should be positive, and that of the reward, got {unit:g}")
        reward = reward_of(s.record("reward"), unit)
        pairs, wide = A + sum(c in used or d in used for c in range(A) for d in range(c + 1, A)), box.wide
        seen, r = (pairs if paired else A), s.whole("directions")
        if r not in (0, m - 1):
            raise DamagedError(f"directions should be 0 or {m - 1}, got {r}")
        before: dict[str, tuple[int | None, ...]] = {
            "fits": (A, k), "Z": (A, m, k), "mix": (m, m), "noise": (pairs, 2, *wide), "tent_fits": (A, w, k),
            "shares": (pairs - A, 2, *[None] * d), "widths": (w,), "drop": (m,),
        }  # fmt: skip
        sums: dict[str, tuple[int | None, ...]] = {
            "gram": (A, *wide), "residuals": (A, k), "residual_moments": (seen, *wide),
            "cross_moments": (seen, r, *wide), "operator_residuals": (A, m, k),
            "operator_moments": (seen, *wide), "visits": (A, w, k),
            "visit_moments": (A, w, *wide),
        }  # fmt: skip
        numbers = {name: s.array(name, shape) for name, shape in before.items()}
        numbers |= {name: e.array(name, shape) for name, shape in sums.items()}
        low, high = _range(reward, columns, used, numbers["fits"], discount)
        told = s.number("low"), s.number("high")
        ground = Ground(
            columns=columns, used=used, discount=discount, delta=record.number("delta"), tail=record.tail() or 0.0,
            low=min(low, told[0]), high=max(high, told[1]), dropped=s.number("dropped"), unit=unit, counts=counts,
            paired=paired, **numbers,
        )  # fmt: skip
        size = RELATIVE * max(high - low, TIGHT * max(abs(low), abs(high)))
        if not (abs(low - told[0]) <= size and abs(high - told[1]) <= size):
            least, most, *made = (short(unit * x, 6) for x in (low, high, *told))
            reached = f"the reward and the guesses of the file have values V from {least} to {most}"
            raise ImpossibleError(f"{reached}, but the sums were made with a V from {made[0]} to {made[1]}")
        coordinates = None if s.entry("coordinates") is None else s.wholes("coordinates")
        return cls(
            ground=ground,
            reward=reward,
            name=record.text("name"),
            number=s.whole("component"),
            coordinates=coordinates,
            places=s.array("places", (2, d)),
            marks=s.array("marks", (None,) * (d if w else 1), finite=False),
            reached=e.array("reached", (A, len(reward.coefficients))),
        )

    @property
    def words(self) -> str:
        """The reward in words."""
        if not len(self.reward.coefficients):
            return str(self.reward)
        norm = short(self.ground.unit * float(np.abs(self.reward.coefficients).sum()))
        return f"{self.reward}, ‖α‖₁ = {norm}"

    # What cannot be.

    def contradictions(self) -> list[str]:
        """What neither sums over data nor guesses can be, and what contradicts the reward."""
        g, wrong = self.ground, []
        first = (slice(None),) + (0,) * len(Box.of(g.columns).wide)
        diagonal = [g.pairs(g.paired).index((c, c)) for c in range(g.actions)]
        sizes = {  # Σ x_i f is at most √(n Σ f²), as no x_i exceeds 1
            "residuals": ((g.residuals**2).max(axis=1), g.residual_moments[diagonal][first]),
            "operator_residuals": (
                ((g.mix[1:] @ g.operator_residuals) ** 2).sum(axis=1).max(axis=1, initial=0.0),
                g.operator_moments[diagonal][first],
            ),
        }
        for w in range(len(g.widths)):
            sizes[f"visits {w}"] = (g.visits[:, w] ** 2).max(axis=1), g.visit_moments[:, w][first]
        for c, n in enumerate(g.counts):
            if n < g.columns.size:
                wrong.append(f"action {c} has {int(n)} transitions, too few for {g.columns.size} functions")
            if abs(g.gram[c].flat[0] - n) > TIGHT * n or np.abs(g.gram[c]).max() > n * (1 + TIGHT):
                wrong.append(f"the Gram matrix of action {c} is not one of {int(n)} states")
            if any(own[c] > n * squares[c] * (1 + TIGHT) + 1e-290 for own, squares in sizes.values()):
                wrong.append(f"the residuals of action {c} are larger than their second moments allow")
        if g.paired and any(
            (own != g.gram[0]).any() or n != g.counts[0] for own, n in zip(g.gram, g.counts, strict=True)
        ):
            wrong.append("paired actions have different states")
        k, constant = g.columns.size, np.zeros(g.Z.shape[1])
        constant[::k] = 1.0
        moved = g.Z[:, ::k].sum(axis=1) - np.eye(k)[0]
        if np.abs(moved).max() > TIGHT * (1 + np.abs(g.Z).max()):
            wrong.append("an operator moves constants")
        if np.abs(g.operator_residuals[:, ::k].sum(axis=1)).max() > TIGHT * g.counts.max() * (
            1 + np.abs(g.Z).sum(axis=2).max()
        ):
            wrong.append("constants have residuals")
        if (g.mix[0] != constant).any():
            wrong.append("the first of the functions that the error is made of is not constant")
        if (g.shares < 0).any() or not g.shares.sum() <= 1 + TIGHT:
            wrong.append(f"the shares of the points add up to {short(float(g.shares.sum()), 6)}, not to 1 at most")
        if g.low > g.high or (g.widths <= 0).any():
            wrong.append("V's bounds are the wrong way round, or a tent has no width")
        return wrong + self._other_reward()

    def _other_reward(self) -> list[str]:
        """Whether Σ Y_c and the sums of the reward's functions over next states contradict each other."""
        g, wrong = self.ground, []
        if not len(self.reward.coefficients):
            return []
        if self.reward.box != g.columns.box:
            return [f"the reward is {self.reward}, the columns are on {g.columns.domain}"]
        x = Box.of(g.columns).lifted(g.gram).middle[:, 0]
        fits = g.fits[list(g.used)].ravel()
        pieces = g.operator_residuals[:, :, 0] + np.einsum("cmk,ck->cm", g.Z, x)  # Σ π_d h_j over next states
        sums = self.reached @ self.reward.coefficients + g.discount * pieces @ fits - np.einsum("ck,ck->c", g.fits, x)
        size = np.abs(self.reached) @ np.abs(self.reward.coefficients) + g.counts * (
            np.abs(fits).sum() + np.abs(g.fits).sum(axis=1)
        )
        for c in range(g.actions):
            if not abs(sums[c] - g.residuals[c, 0]) <= TIGHT * size[c]:
                wrong.append(_OTHER.format(c))
        if g.constant and self.reward.functions is not None and self.reward.functions.kin(g.columns):
            same = min(g.columns.size, self.reward.functions.size)
            told = pieces @ g.columns.change.middle.T
            if (
                np.abs(told[:, :same] - self.reached[:, :same]).max()
                > TIGHT * g.counts.max() * g.columns.change.size.sum()
            ):
                wrong.append("the sums over next states contradict each other")
        return wrong

    def other_drop(self, expert: Expert) -> list[str]:
        """Whether V̂ and the functions π_dh_j do not differ as stated between the two places."""
        g, k = self.ground, self.ground.columns.size
        inside = [
            low <= x <= high for place in self.places for x, (low, high) in zip(place, g.columns.box, strict=True)
        ]
        if not all(inside):
            return [f"the states that the span of V is taken from lie outside {g.columns.domain}"]
        high, low = Box.of(g.columns).at(self.places).middle
        told, taken = g.drop.reshape(len(g.used), k), [expert.at(place)[list(g.used)] for place in self.places]
        if all(own.sum() == 1 for own in taken):
            each = np.outer(taken[0], high) - np.outer(taken[1], low)
        else:  # where the expert mixes its probabilities are not in the file, but they add up to one
            told, each = told.sum(axis=0, keepdims=True), (high - low)[None]
        if np.abs(told - each).max() > TIGHT:
            return ["the functions of the expert differ otherwise between the states that the span of V is taken from"]
        if not 0 <= g.dropped <= (g.high - g.low) * (1 + TIGHT):
            return ["V differs by more than its bounds allow"]
        if len(self.reward.coefficients):
            one, other = _values(self.reward, self.places)
            between = one - other + g.discount * float(g.fits[list(g.used)].ravel() @ g.drop)
            if abs(between - g.dropped) > TIGHT * (abs(g.low) + abs(g.high) + abs(one) + abs(other)):
                return [f"V differs by {short(g.unit * between, 6)} between the states that its span is taken from"]
        return []


def _range(
    reward: Reward, columns: Functions, used: tuple[int, ...], fits: Floats, discount: float
) -> tuple[float, float]:
    """What V̂ = R + γ Σ π_d (fits_d·h) lies between, given the range of R if R is not in the file."""
    gamma = enclosed(discount)
    if reward.functions is not None and len(used) == 1 and reward.functions.kin(columns):
        wide, narrow = reward.functions, columns
        if wide.size < narrow.size:
            wide = narrow
        if wide.closed:
            box, padded = Box.of(wide), np.zeros(wide.size)
            padded[: len(reward.coefficients)] = reward.coefficients
            added = np.zeros(wide.size)
            added[: narrow.size] = fits[used[0]]
            curve = Enclosure(padded) @ wide.change + gamma * added
            return box.minimum(curve), -box.minimum(-curve)
    low, high = _reward_range(reward)
    box = Box.of(columns)
    ends = [(box.minimum(enclosed(fits[d])), -box.minimum(enclosed(-fits[d]))) for d in used]
    least, most = min(end for end, _ in ends), max(end for _, end in ends)
    return float((enclosed(low) + gamma * least).below), float((enclosed(high) + gamma * most).above)


def _reward_range(reward: Reward) -> tuple[float, float]:
    """The range of R in units: derived if it is in the file."""
    if reward.grid is not None:
        return float(reward.coefficients.min()), float(reward.coefficients.max())
    if reward.functions is None or not reward.functions.closed:
        return reward.low, reward.high
    curve, box = Enclosure(reward.coefficients) @ reward.functions.change, Box.of(reward.functions)
    return box.minimum(curve), -box.minimum(-curve)


def _values(reward: Reward, states: Floats) -> list[float]:
    """R in units at states, to about the digits of the file."""
    if reward.functions is not None:
        curve = reward.coefficients @ reward.functions.change.middle
        return (Box.of(reward.functions).at(states).middle @ curve).tolist()
    assert reward.grid is not None
    counts, around, box = reward.grid
    found = []
    for state in states:
        index, shares = np.zeros(1, dtype=int), np.ones(1)
        for axis, (x, n, (low, high)) in enumerate(zip(state, counts, box, strict=True)):
            steps = n if axis in around else n - 1
            along = (x - low) / (high - low) * steps
            left = min(int(along), steps - 1)
            ends, parts = np.array([left, (left + 1) % n]), np.array([1 - (along - left), along - left])
            index, shares = (index[:, None] * n + ends).ravel(), (shares[:, None] * parts).ravel()
        found.append(float(reward.coefficients[index] @ shares))
    return found


# The derivation.


def claimed(record: Record) -> tuple[float, str]:
    """The margin that a file claims, and why it claims nothing if it does not."""
    margin = record.bound("margin")
    if record.entry("tail") is None:
        return margin, "no tail was declared"
    return margin, "" if 0 < margin < math.inf else "the margin is not positive"


def derive(record: Record, solution: Record | None) -> Finding:
    """What follows for a certificate, alone in its file or within a solution."""
    claim, tube = Claim.of(record), record.entry("tube")
    listed = record.records("grounds")
    if not listed:
        raise DamagedError("grounds should be those of one component or more")
    first = Component.of(listed[0], None)
    parts = [first, *(Component.of(own, first.ground.actions) for own in listed[1:])]
    g, expert = first.ground, None
    wrong = claim.contradictions(g.counts) + _split(claim, parts) + _together(parts, claim)
    for part in parts:
        problems = part.contradictions()
        wrong += [f"component {part.name}: {own}" for own in problems] if len(parts) > 1 else problems
    if tube is not None:
        expert = _expert(record.record("tube", "Tube"), first, wrong)
    elif not g.constant:
        wrong.append("the expert takes several actions, and there is no tube")
    if solution is not None:
        wrong += _of_solution(solution, claim, parts, expert)
    about = Finding(wrong, lines=_about(parts, claim, expert, solution), trusted=_trusted(parts, expert, solution))
    if wrong:
        return about
    try:
        if expert is None:
            _everywhere(about, record, claim, parts, solution)
        else:
            _outside(about, record.record("tube"), record, claim, first, expert)
    except TooLittleError as problem:
        wrong.append(str(problem))
    except ZeroDivisionError as problem:
        wrong.append(f"nothing can be derived from the sums: {problem}")
    return about


def _split(claim: Claim, parts: list[Component]) -> list[str]:
    """How δ is divided among components and statements."""
    shares, total = SHARES[parts[0].ground.constant], math.fsum(part.ground.delta for part in parts)
    if any(not part.ground.delta > 0 for part in parts) or total > claim.delta * (1 + TIGHT):
        return ["the components spend more of δ than there is"]
    if any(abs(claim.spending.get(name, 0.0) - share * total) > TIGHT * total for name, share in shares.items()):
        return ["the parts of δ are not those of the components"]
    return []


def _together(parts: list[Component], claim: Claim) -> list[str]:
    """Where the components are not those of one problem."""
    wrong, first = [], parts[0].ground
    coordinates = [c for part in parts for c in part.coordinates or ()]
    alone = len(parts) == 1 and parts[0].coordinates is None
    several = [part.ground for part in parts[1:]]
    if not alone and (
        any(part.coordinates is None or len(part.coordinates) != part.ground.columns.dimension for part in parts)
        or len(set(coordinates)) != len(coordinates)
        or len({part.number for part in parts}) != len(parts)
        or not first.constant
    ):
        wrong.append("the components are not groups of different coordinates")
    if any((own.used, own.discount, own.paired) != (first.used, first.discount, first.paired) for own in several):
        wrong.append("the components are not of one problem")
    if any((own.counts != first.counts).any() for own in several):
        wrong.append("the components were not looked at in the same transitions")
    if claim.tail is not None and max(part.ground.tail for part in parts) != claim.tail:
        wrong.append("the tail is not the largest of the components")
    return wrong


def _expert(record: Record, part: Component, wrong: list[str]) -> Expert:
    """The expert on its grid."""
    g, grid = part.ground, record.record("grid", "ExpertGrid")
    box, d = grid.box("domain"), part.ground.columns.dimension
    support = grid.array("support", (*[None] * d, g.actions), "b")
    expert = Expert(box, support)
    if min(expert.shape) < 1:
        raise DamagedError("support should say what the expert does at the corners of cells")
    if box != g.columns.box:
        wrong.append(f"the expert is on {box!r:.60}, the columns are on {g.columns.domain}")
    if not support.any(axis=-1).all():
        wrong.append("the expert takes no action at some state")
    if tuple(np.flatnonzero(support.reshape(-1, g.actions).any(axis=0)).tolist()) != g.used:
        wrong.append(f"the expert takes other actions somewhere than {', '.join(map(str, g.used))}")
    switches = not expert.steady.all()
    marks = expert.marks if switches else np.zeros(0)
    if part.marks.shape != marks.shape or not np.allclose(part.marks, marks, rtol=TIGHT, atol=0):
        wrong.append("the tents do not stand where the expert switches")
    elif not switches and len(g.widths):
        wrong.append("there are tents, and the expert never switches")
    if not wrong:
        wrong += part.other_drop(expert)
    return expert


def _of_solution(solution: Record, claim: Claim, parts: list[Component], expert: Expert | None) -> list[str]:
    """Where a solution is about something else than its certificate."""
    g, wrong, status = parts[0].ground, [], solution.status
    if claim.holds != (status == "certified"):
        wrong.append(f"the solution says {status!r}, its certificate {'holds' if claim.holds else 'does not hold'}")
    if (own := solution.number("discount")) != g.discount:
        wrong.append(f"the certificate has discount {g.discount:g}, the solution {own:g}")
    if (count := solution.whole("n_actions", 2)) != g.actions:
        wrong.append(f"the certificate has {g.actions} actions, the solution {count}")
    if solution.entry("expert") is not None and (action := solution.whole("expert"),) != g.used:
        wrong.append(f"the certificate is about expert {g.used[0]}, the solution about {action}")
    if solution.entry("expert") is not None and expert is not None:
        wrong.append("the solution is about an expert of one action, its certificate about a policy")
    reward, components = solution.record("reward", "Reward"), solution.records("components")
    if solution.record("stats").entry("terminal") is not None or reward.flag("zero_at_terminal"):
        wrong.append("the solution has terminal states, and no certificate is for problems with any")
    every, groups = terms_of(reward), [own.wholes("coordinates") for own in components]
    if sorted(c for own in groups for c in own) != list(range(sum(map(len, groups)))) or len(every) != len(groups):
        return [*wrong, "the components do not hold every coordinate once"]
    named = [(own.text("name"), group) for own, group in zip(components, groups, strict=True)]
    if len(every) > 1 and [own[:2] for own in every] != named:
        return [*wrong, "the components of the solution are not those of its reward"]
    told = {part.number: part for part in parts}
    for j, ((*_, (functions, grid, coefficients)), estimate) in enumerate(zip(every, components, strict=True)):
        if j not in told:
            if coefficients.any():
                wrong.append("a component with a reward has no bound")
            continue
        part = told.pop(j)
        known = part.coordinates if part.coordinates is not None else tuple(range(part.ground.columns.dimension))
        if known != groups[j]:
            wrong.append("the certificate is about other coordinates than its solution")
        same = (functions, grid) == (part.reward.functions, part.reward.grid)
        if not same or not np.array_equal(coefficients / part.ground.unit, part.reward.coefficients):
            wrong.append("the certificate is about another reward than its solution")
        if solution.entry("expert") is not None:
            if (columns := estimate.functions("columns")) != part.ground.columns:
                wrong.append(f"the certificate has the columns {part.ground.columns}, the solution {columns}")
            if estimate.functions("basis") != functions:
                wrong.append(f"the reward has the functions {functions}, the solution {estimate.functions('basis')}")
    if told:
        wrong.append("the certificate has components that the solution does not have")
    return wrong


# What is printed.


def _domain(parts: list[Component], solution: Record | None) -> str:
    if solution is not None and len(components := solution.records("components")) > 1:
        return " × ".join(own.functions("basis").domain for own in components)
    return " × ".join(part.ground.columns.domain for part in parts)


def _about(
    parts: list[Component], claim: Claim, expert: Expert | None, solution: Record | None
) -> list[tuple[str, str]]:
    """What is claimed of which problem, from how much."""
    g, does = parts[0].ground, f", the expert always takes {parts[0].ground.used[0]};"
    asked = f"{g.actions} actions{does if expert is None else ','} discount {g.discount:g}"
    lines = [("problem", f"{asked}; states in {_domain(parts, solution)}")]
    if len(parts) == 1 and parts[0].coordinates is None:
        lines.append(("reward", parts[0].words))
    else:
        lines.append(("reward", "a sum over components: " + "; ".join(f"{part.name} {part.words}" for part in parts)))
    if expert is not None:
        lines.append(("expert", _switches(expert)))
    return [*lines, ("data", transitions(g.counts, paired=g.paired)), ("spent", spent(claim.delta, claim.spending))]


def _switches(expert: Expert) -> str:
    cells = np.argwhere(~expert.steady)
    corners = " × ".join(str(n + 1) for n in expert.shape)
    if not len(cells):
        return f"looked up at {corners} states; never switches"
    if len(expert.shape) > 1:
        return f"looked up at {corners} states; switches in {len(cells):,} cells between them"
    (low, _), side = expert.box[0], expert.sides[0]
    places = [short(low + side * (cell + 0.5)) for (cell,) in cells[:_NAMED]] + ["…"] * (len(cells) > _NAMED)
    return f"looked up at {corners} states; switches at {', '.join(places)} ({len(cells)} in all)"


def _trusted(parts: list[Component], expert: Expert | None, solution: Record | None) -> list[str]:
    """What no file can show."""
    trusted = [DRAWS]
    if len(parts) > 1 or parts[0].coordinates is not None:
        trusted.append(SEPARATE)
        trusted += [f"in {part.name} {tail_in_words(part.ground.tail, part.ground.columns)}" for part in parts]
    else:
        trusted.append(tail_in_words(parts[0].ground.tail, parts[0].ground.columns))
    trusted.append(FIXED_BEFORE)
    if expert is not None:
        corners = " × ".join(str(n + 1) for n in expert.shape)
        within = "between two neighbours only what it takes at one of them"
        if len(expert.shape) > 1:
            within = (
                "within a cell only what it takes at its corners, or at those of cells beside it where these disagree"
            )
        trusted.append(f"the expert takes what the file says at {corners} evenly spaced states, and {within}")
    for part in parts:
        unit, reward = part.ground.unit, part.reward
        if not len(reward.coefficients):
            low, high = short(unit * reward.low), short(unit * reward.high)
            trusted.append(
                f"the certificate is about your reward, which is not in the file and stays within [{low}, {high}]"
            )
            if expert is not None:
                dropped = short(unit * part.ground.dropped)
                trusted.append(f"the value that was guessed for it differs by {dropped} between two states of the file")
    return trusted


# What is compared.


def _unlike(claim: Claim, parts: Parts) -> list[str]:
    """Names of the parts of a margin that are not what a file claims."""
    if set(claim.losses) != set(LOSSES):
        raise DamagedError(f"losses should be {', '.join(LOSSES)}")
    own = dict(zip(LOSSES, parts.losses, strict=True))
    slack = RELATIVE * parts.scale + 2 * own["floating point"]
    band = own["estimation"] + own["grid"], claim.losses["estimation"] + claim.losses["grid"]
    pairs = {"estimate": (parts.estimated, claim.estimated), "band": band} | {
        name: (own[name], claim.losses[name]) for name in LOSSES if name != "grid"
    }
    return [name for name, (a, b) in pairs.items() if not abs(a - b) <= ALIKE * abs(a) + slack]


def _objections(claim: Claim, margin: float, candidates: list[Parts]) -> list[str]:
    """Why a claimed margin does not follow; candidates are the parts that it may have."""
    wrong = []
    if not candidates:
        return ["the bound is not lowest where the file says"]
    nearest = min(candidates, key=lambda own: len(_unlike(claim, own)))
    slack = RELATIVE * nearest.scale + 2 * nearest.losses[-1]
    if claim.tail is None:
        wrong.append("no tail was declared")
    if not margin > 0:
        wrong.append("the margin that follows from the sums is not positive")
    if not claim.margin <= margin + slack:
        wrong.append(f"the claimed margin is larger than what follows from the sums, {short(margin)}")
    if not claim.margin > 0:
        wrong.append("the claimed margin is not positive")
    if not claim.margin <= claim.estimated - math.fsum(claim.losses.values()) + slack:
        wrong.append("the claimed margin is larger than its parts allow")
    if unlike := _unlike(claim, nearest):
        wrong.append(f"these parts of the margin are not what follows from the sums: {', '.join(unlike)}")
    return wrong


def _everywhere(about: Finding, record: Record, claim: Claim, parts: list[Component], solution: Record | None) -> None:
    """The margin of an expert of one action: minima over components add up, alternative by alternative."""
    (expert,) = parts[0].ground.used
    others = [a for a in range(parts[0].ground.actions) if a != expert]
    found: list[dict[int, list[tuple[Parts, Bounds | None]]]] = []
    curves: list[dict[int, Enclosure]] = []
    for part in parts:
        box, sides = Box.of(part.ground.columns), {}
        for band in Derivation(part.ground).bands():
            side = Side(band, 0 if band.pair[0] == expert else 1, box)
            sides[side.pair[1]] = side
        found.append({a: whole(sides[a]) for a in others})
        curves.append({a: sides[a].curve for a in others})
    units = [part.ground.unit for part in parts]
    bounds = {a: [unit * _margin(own[a][0]) for own, unit in zip(found, units, strict=True)] for a in others}
    sums = {a: float(np.nextafter(math.fsum(own), -np.inf)) for a, own in bounds.items()}
    worst = min(sums, key=lambda a: sums[a])
    about.margin = sums[worst]
    account = _summed([own[worst][0][0].times(unit) for own, unit in zip(found, units, strict=True)])
    about.lines.insert(2, ("margin", f"{account} = {short(about.margin)}; the file says {short(claim.margin)}"))
    if not claim.holds:
        return
    action, state = record.whole("action"), record.array("state", (None,))
    candidates = []
    if action in sums and sums[action] <= about.margin + RELATIVE * account.scale:
        near = [
            _near(part, own[action], curve[action], state)
            for part, own, curve in zip(parts, found, curves, strict=True)
        ]
        candidates = [_summed(list(choice)) for choice in combinations(*near)]
    about.wrong += _objections(claim, about.margin, candidates)
    _compare_bounds(about, record, parts, bounds, others, account.scale)
    if record.bound("regret") != 0.0:
        about.wrong.append("an expert that is optimal loses nothing, and the file claims another regret")
    about.statement = (
        f"with probability at least {probability(claim.delta)} action {expert} is strictly optimal at every state of "
        f"{_domain(parts, solution)}: D_a(s) ≥ {at_least(min(about.margin, claim.margin))} for every other action a, "
        "D_a being its advantage over a divided by the discount"
    )


def _margin(bound: tuple[Parts, Bounds | None]) -> float:
    """Of one component, the bound as it was rounded down."""
    parts, cells = bound
    return parts.margin if cells is None else float(cells.lower.min())


def _summed(parts: list[Parts]) -> Parts:
    return sum(parts[1:], parts[0])


def _near(part: Component, bounds: list[tuple[Parts, Bounds | None]], curve: Enclosure, state: Floats) -> list[Parts]:
    """What a component's margin may be made of, if it is least at the state that a file names."""
    g, found = part.ground, []
    place = state if part.coordinates is None else state[list(part.coordinates)]
    if len(place) != g.columns.dimension or any(
        not low <= x <= high for x, (low, high) in zip(place, g.columns.box, strict=True)
    ):
        return []
    best = _margin(bounds[0])
    for parts, cells in bounds:
        close = RELATIVE * parts.scale
        if _margin((parts, cells)) < best - close:
            continue
        if cells is None:
            reached = float((Box.of(g.columns).at(place[None]) @ curve).middle[0])
            if abs(reached - parts.estimated) <= 1e-5 * (float(curve.size.sum()) + parts.scale):
                found.append(parts)
        else:
            own = cells.cells.at(place)
            if cells.lower[own] <= best + close:
                found.append(cells.at(own))
    return [own.times(g.unit) for own in found]


def _compare_bounds(
    about: Finding,
    record: Record,
    parts: list[Component],
    bounds: dict[int, list[float]],
    others: list[int],
    scale: float,
) -> None:
    """Whether a file shows other bounds for its components than follow."""
    shown = record.array("bounds", (None, len(others)), finite=False)
    numbers = [part.number for part in parts]
    if len(shown) <= max(numbers):
        raise DamagedError("bounds should be those of all components")
    for j, row in enumerate(shown):
        own = [bounds[a][numbers.index(j)] for a in others] if j in numbers else [0.0] * len(others)
        if any(not abs(told - x) <= ALIKE * abs(x) + RELATIVE * scale for told, x in zip(row, own, strict=True)):
            about.wrong.append("the bounds of the components are not what follows from their sums")
            return


def _outside(about: Finding, told: Record, record: Record, claim: Claim, part: Component, expert: Expert) -> None:
    """The margin of a policy outside its tube, and the tube."""
    g, allowed, work = part.ground, told.number("allowed"), Derivation(part.ground)
    width = min(high - low for low, high in expert.box)
    if not expert.reach * (1 - TIGHT) <= allowed < width * (1 + TIGHT):
        about.wrong.append(
            f"a tube of half-width {short(allowed)} is none between a cell and the domain {g.columns.domain}"
        )
        return
    box = Box.of(g.columns)
    sides = [Side(band, side, box) for band in work.bands() for side in (0, 1)]
    visits, span = work.visits(), g.unit * work.span()
    tube = read_tube(sides, expert, allowed, visits, part.marks, g.widths, g.discount)
    about.margin = g.unit * tube.margin if math.isfinite(tube.margin) else None
    if about.margin is None:
        about.wrong.append("no state is left outside the tube at which actions are compared")
        return
    state, action = record.array("state", (box.indices.shape[1],)), record.whole("action")
    candidates = _in_cell(tube, expert, action, state, g.unit)
    names = ("half_width", "share", "shortfall", "settled", "ties")
    scale = (candidates[0].scale if candidates else abs(about.margin)) + span
    factors = {"shortfall": g.unit, "ties": g.unit}
    derived = {name: factors.get(name, 1.0) * getattr(tube, name) for name in names} | {"regret": g.unit * tube.regret}
    claimed = {name: told.bound(name) for name in names} | {"regret": record.bound("regret")}
    claimed_span = record.bound("value_span")
    if claim.holds:
        about.wrong += _objections(claim, about.margin, candidates)
        floating = g.unit * max(side.band.rounding for side in sides)
        about.wrong += _other_tube(derived, claimed, span, claimed_span, RELATIVE * scale + floating, g.discount, width)
        about.wrong += _other_cells(told, tube, expert, RELATIVE * scale / g.unit)
        if len(record.array("bounds", (None, g.actions - 1), finite=False)):
            about.wrong.append("bounds of components are shown, and a policy has none")
    weaker = {name: max(claimed[name], x) if claim.holds else x for name, x in derived.items()}
    _describe(about, claim, weaker, min(span, claimed_span) if claim.holds else span, candidates, expert)
    if claim.holds:
        count = int((~expert.steady).sum())
        each = (
            "its switch"
            if count == 1
            else f"each of its {count} switches"
            if len(expert.shape) == 1
            else "where it switches"
        )
        where = f" farther than {short(allowed)} from {each}" if count else ""
        about.statement = (
            f"with probability at least {probability(claim.delta)}, at every state of {g.columns.domain}{where}, every "
            "action that the expert takes is strictly better than every action that it does not take, if it is "
            f"followed afterwards: (P_b − P_a)V(s) ≥ {at_least(min(about.margin, claim.margin))}"
        )


def _in_cell(tube: Tube, expert: Expert, action: int, state: Floats, unit: float) -> list[Parts]:
    """What the margin may be made of, if it is least in the cell and against the action that a file names."""
    if any(not low <= x <= high for x, (low, high) in zip(state, expert.box, strict=True)):
        return []
    cell, small, found = expert.cell(state), tube.every[0].cells.at(state), []
    for own in tube.every:
        b, a = own.pair
        if a == action and expert.taken[cell][b] and not expert.taken[cell][a]:
            parts = own.at(small)
            off = float(own.lower[small]) - tube.margin
            if abs(off) <= RELATIVE * parts.scale or (tube.ties_with_end[cell] and off <= 0):
                found.append(parts.times(unit))
    return found


def _other_tube(
    derived: dict[str, float],
    claimed: dict[str, float],
    span: float,
    told: float,
    slack: float,
    discount: float,
    width: float,
) -> list[str]:
    """Why what is claimed of the tube does not follow."""
    wrong, ahead = [], 10 * slack / (1 - discount)
    for name, own, value in (("regret", derived["regret"], claimed["regret"]), ("value span", span, told)):
        if not abs(own - value) <= ALIKE * abs(own) + ahead:
            wrong.append(f"{name} is not what follows from the sums: {short(own, 6)}")
    room = {
        "half_width": RELATIVE * width,
        "share": RELATIVE,
        "settled": RELATIVE * width,
        "shortfall": ahead,
        "ties": ahead,
    }
    for name, most in room.items():
        if not claimed[name] >= derived[name] - most:
            wrong.append(f"{name.replace('_', ' ')} may be {short(derived[name], 6)}, more than is claimed")
    return wrong


def _other_cells(told: Record, tube: Tube, expert: Expert, slack: float) -> list[str]:
    """Whether a file calls cells decided that are not, or leaves undecided ones out of its boxes."""
    decided = told.array("decided", (expert.steady.size,), "b").reshape(expert.shape)
    boxes = told.array("undecided", (None, len(expert.shape), 2))
    wrong = []
    if (decided & ~(expert.steady & (tube.least > -slack))).any():
        wrong.append("cells are called decided that are not")
    outside = ~decided
    for box in boxes:
        inside: Any = True
        for axis, ((low, high), (start, _), side, n) in enumerate(
            zip(box, expert.box, expert.sides, expert.shape, strict=True)
        ):
            middles = start + side * (np.arange(n) + 0.5)
            shape = [n if i == axis else 1 for i in range(len(expert.shape))]
            inside = inside & ((middles > low) & (middles < high)).reshape(shape)
        outside = outside & ~inside
    if outside.any():
        wrong.append("the boxes around the tube leave undecided cells out")
    return wrong


def _describe(
    about: Finding, claim: Claim, weaker: dict[str, float], span: float, candidates: list[Parts], expert: Expert
) -> None:
    """The margin, the tube and the regret, in lines."""
    assert about.margin is not None
    share = f", {at_most(weaker['regret'] / span, 3)} of the span of V, at least {at_least(span)}" if span > 0 else ""
    away = f"farther than {at_most(weaker['settled'])} from a switch " if not expert.steady.all() else ""
    beyond = f"; {away}every best policy takes an action that the expert takes"
    account = f"{candidates[0]} = " if candidates else ""
    lines = [
        ("margin", f"{account}{short(about.margin)}; the file says {short(claim.margin)}"),
        (
            "tube",
            f"half-width at most {at_most(weaker['half_width'])}, {at_most(weaker['share'] * 100, 3)} % of the domain",
        ),
        ("regret", f"at most {at_most(weaker['regret'])}{share}{beyond * (weaker['settled'] < math.inf)}"),
    ]
    if weaker["ties"] > 0:
        lines.append(("ties", f"actions that the expert mixes differ by {at_most(weaker['ties'])} at most"))
    about.lines[2:2] = lines
