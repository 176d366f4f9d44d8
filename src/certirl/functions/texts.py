"""Writers of formulas as text: LaTeX to read, Python to run without certirl."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from certirl.functions.formulas import (
    CHEBYSHEV,
    FOURIER,
    HAT,
    LEGENDRE,
    PERIODIC_HAT,
    SATURATION,
    Axis,
    Expansion,
    Formula,
    Group,
    Named,
    Ridges,
    Term,
)
from certirl.ground.domain import Array
from certirl.ground.doors import (
    as_count,
    as_listed,
    as_text,
    shown,
)

_WIDTH, _PER_LINE = 80, 5  # letters of a short array, numbers on each line of a long one


# LaTeX.


def latex(
    formula: Formula,
    *,
    digits: int = 4,
    terms: int | None = None,
    names: Sequence[str] | None = None,
    symbol: str = "R",
) -> str:
    """A formula for LaTeX's mathematics mode; several lines are aligned.

    Args:
        formula: of the reward.
        digits: of the coefficients.
        terms: the most to write of an expansion, the largest ones; all if None.
        names: of the coordinates; s, or s_0, s_1, … if omitted.
        symbol: of the function.
    """
    digits, symbol = as_count(digits, "digits", most=17), as_text(symbol, "symbol")
    most = None if terms is None else as_count(terms, "terms")
    writer = _Latex(_coordinates(names, len(formula.domain)), digits, most)
    arguments, lines = formula.arguments, list[str]()
    for action, groups in enumerate(formula.cases):
        suffix = f", {action}" if len(formula.cases) > 1 else ""
        of = f"s{suffix}" if suffix else arguments
        if len(groups) > 1:
            heads = [_head(symbol, group, writer.names, suffix) for group in groups]
            lines.append(f"{symbol}({of}) &= {' + '.join(heads)}")
            lines += [f"{head} &= {writer.total(group)}" for head, group in zip(heads, groups, strict=True)]
        else:
            lines.append(f"{symbol}({of}) &= {writer.total(groups[0])}")
    lines += dict.fromkeys(writer.definitions(formula.terms))
    if formula.zero_at_terminal:
        where = r"\text{at terminal states}" if formula.boxes is None else writer.boxes(formula.boxes)
        lines.append(rf"{symbol}({arguments}) &= 0 \quad {where}")
        if formula.ends is not None:
            lines[-1] += r"\text{, but}"
            where = rf"\text{{at those of them }} {writer.boxes(formula.ends.boxes)}"
            lines.append(rf"{symbol}({arguments}) &= {writer.number(formula.ends.worth)} \quad {where}")
    if len(lines) == 1:
        return lines[0].replace("&= ", "= ")
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _coordinates(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The coordinates in LaTeX."""
    if names is None:
        return ("s",) if count == 1 else tuple(f"s_{{{axis}}}" for axis in range(count))
    if len(as_listed(names, "names")) != count:
        raise ValueError(f"names must be those of {count} coordinate{'s' * (count != 1)}, got {shown(names)}")
    return tuple(rf"\mathrm{{{_escaped(as_text(name, 'names'))}}}" for name in names)


def _escaped(text: str) -> str:
    """Any text as LaTeX has it, on one line."""
    special = {"\\": r"\backslash ", "^": r"\^{}", "~": r"\~{}"}
    return re.sub(r"[\\^~&%$#_{}]", lambda found: special.get(found[0], "\\" + found[0]), " ".join(text.split()))


def _head(symbol: str, group: Group, names: Sequence[str], suffix: str) -> str:
    return rf"{symbol}_{{\text{{{_escaped(group.name)}}}}}({', '.join(names[c] for c in group.coordinates)}{suffix})"


def _occurring(term: Term) -> tuple[Axis, ...]:
    """The axes of which functions other than the constant occur."""
    if isinstance(term, Named):
        return ()
    if isinstance(term, Expansion) and term.indices is not None:
        return tuple(axis for axis, numbers in zip(term.axes, term.indices.T, strict=True) if numbers.any())
    return term.axes


class _Latex:
    """Writes the parts of one formula."""

    def __init__(self, names: Sequence[str], digits: int, most: int | None) -> None:
        self.names, self.digits, self.most = names, digits, most
        self._single = len(names) == 1

    def number(self, value: float) -> str:
        """A number, with a power of ten where that is shorter."""
        mantissa, _, exponent = f"{value:.{self.digits}g}".partition("e")
        return mantissa if not exponent else rf"{mantissa} \cdot 10^{{{int(exponent)}}}"

    def total(self, group: Group) -> str:
        """The sum of the terms of a group."""
        summands = [summand for term in group.terms for summand in self.summands(term)]
        text = " ".join(f"{'-' if value < 0 else '+'} {body}" for value, body in summands)
        return f"-{text[2:]}" if text.startswith("- ") else text.removeprefix("+ ") or "0"

    def summands(self, term: Term) -> Iterator[tuple[float, str]]:
        """Signs and texts."""
        if isinstance(term, Named):
            arguments = "(s, a)" if term.acts else "(s)"
            yield term.weight, rf"{self.number(abs(term.weight))}\,\text{{{_escaped(term.name)}}}{arguments}"
        elif isinstance(term, Ridges):
            directions = rf"\sum_{{i=1}}^{{{len(term.weights)}}} w_i \tanh\bigl(\omega_i^\top u + b_i\bigr)"
            yield 1.0, directions
        elif term.indices is None:
            letters = [f"i_{{{axis.coordinate}}}" for axis in term.axes] if len(term.axes) > 1 else ["i"]
            hats = [rf"\Lambda({self._argument(axis)} - {i})" for axis, i in zip(term.axes, letters, strict=True)]
            yield 1.0, rf"\sum_{{{', '.join(letters)}}} c_{{{' '.join(letters)}}}\,{' '.join(hats)}"
        else:
            order = np.argsort(-np.abs(term.coefficients), kind="stable")[: self.most]
            for row in sorted(order.tolist()):
                value = float(term.coefficients[row])
                factors = [self._function(axis, int(i)) for axis, i in zip(term.axes, term.indices[row], strict=True)]
                yield value, r"\,".join([self.number(abs(value)), *filter(None, factors)])
            left_out = len(term.coefficients) - len(order)
            if left_out:
                yield 1.0, rf"\text{{{left_out} smaller term{'s' * (left_out != 1)}}}"

    def _argument(self, axis: Axis) -> str:
        if (axis.centre, axis.scale) == (0, 1) and axis.kind in (LEGENDRE, CHEBYSHEV, FOURIER, HAT):
            return self.names[axis.coordinate]
        letter = {SATURATION: "u", HAT: "x", PERIODIC_HAT: "x"}.get(axis.kind, "t")
        return letter if self._single else f"{letter}_{{{axis.coordinate}}}"

    def _function(self, axis: Axis, number: int) -> str:
        """φ of one number; nothing for the constant."""
        if number == 0:
            return ""
        argument = self._argument(axis)
        if axis.kind == SATURATION:
            return argument
        if axis.kind == FOURIER:
            frequency = (number + 1) // 2
            angle = rf"{frequency}\pi {argument}" if frequency > 1 else rf"\pi {argument}"
            return rf"\{'sin' if number % 2 else 'cos'}({angle})"
        return rf"{'P' if axis.kind == LEGENDRE else 'T'}_{{{number}}}({argument})"

    def definitions(self, terms: Sequence[Term]) -> Iterator[str]:
        """What the letters of the terms stand for, each once."""
        axes = sorted({axis for term in terms for axis in _occurring(term)})
        for axis in axes:
            argument, value = self._argument(axis), self._reference(axis)
            if axis.kind == SATURATION:
                value = rf"3 \tanh\left({value}\right)"
            elif axis.kind == PERIODIC_HAT:
                value = rf"{value} \bmod {axis.size}"
            if value != argument:
                yield f"{argument} &= {value}"
        kinds = {axis.kind for axis in axes}
        if kinds & {HAT, PERIODIC_HAT}:
            circle = r"\text{, with distances on the circle in periodic coordinates}" if PERIODIC_HAT in kinds else ""
            yield rf"\Lambda(x) &= \max(0, 1 - |x|){circle}"
            for term in terms:
                if isinstance(term, Expansion) and term.indices is None:
                    counts = r" \times ".join(str(axis.size) for axis in term.axes)
                    yield rf"c &\in \mathbb{{R}}^{{{counts}}} \quad \text{{values at the points of a grid}}"
        for term in terms:
            if isinstance(term, Ridges):
                inputs = ", ".join(self._function(term.axes[axis], number) for axis, number in term.inputs)
                yield rf"u &= ({inputs})"
        for kind, letter in ((LEGENDRE, "P"), (CHEBYSHEV, "T")):
            if kind in kinds:
                yield rf"& \text{{with {kind} polynomials }} {letter}_n"

    def _reference(self, axis: Axis) -> str:
        """t in terms of the state; it stands for itself on [-1, 1]."""
        name = self.names[axis.coordinate]
        shifted = name
        if axis.centre:
            shifted = f"{name} {'-' if axis.centre > 0 else '+'} {self.number(abs(axis.centre))}"
        return shifted if axis.scale == 1 else rf"\frac{{{shifted}}}{{{self.number(axis.scale)}}}"

    def boxes(self, boxes: Array) -> str:
        """Where the terminal states are."""
        if not len(boxes):
            return r"\text{nowhere}"
        conditions = []
        for low, high in boxes:
            sides = []
            for name, start, end in zip(self.names, low.tolist(), high.tolist(), strict=True):
                below = f"{self.number(start)} < " if np.isfinite(start) else ""
                above = rf" \le {self.number(end)}" if np.isfinite(end) else ""
                sides += [f"{below}{name}{above}"] if below or above else []
            conditions.append(r",\ ".join(sides) or r"\text{everywhere}")
        return r"\text{where } " + r" \text{ or } ".join(conditions)


# Python.

_TABLES = {
    LEGENDRE: (
        "legendre",
        '''\
def legendre(t, count):
    """P_0(t), P_1(t), ...: [n, count]."""
    return np.polynomial.legendre.legvander(t, count - 1)
''',
    ),
    CHEBYSHEV: (
        "chebyshev",
        '''\
def chebyshev(t, count):
    """T_0(t), T_1(t), ...: [n, count]."""
    return np.polynomial.chebyshev.chebvander(t, count - 1)
''',
    ),
    FOURIER: (
        "fourier",
        '''\
def fourier(t, count):
    """1, sin(pi t), cos(pi t), sin(2 pi t), ...: [n, count]."""
    columns = [np.ones_like(t)]
    for number in range(1, count):
        angle = (number + 1) // 2 * np.pi * t
        columns.append(np.sin(angle) if number % 2 else np.cos(angle))
    return np.stack(columns, axis=1)
''',
    ),
    SATURATION: (
        "saturation",
        '''\
def saturation(t, count):
    """1 and 3 tanh(t): [n, count]."""
    return np.stack([np.ones_like(t), 3 * np.tanh(t)], axis=1)[:, :count]
''',
    ),
}
_PRODUCTS = '''\
def products(tables, index):
    """Products of one column of each table: [n, len(index)]."""
    total = np.ones((len(tables[0]), len(index)))
    for table, column in zip(tables, index.T):
        total *= table[:, column]
    return total
'''
_INTERPOLATED = '''\
def interpolated(values, places, periodic):
    """Values between the points of a grid, linear along every axis, at places counted in steps: [n]."""
    index, weight = np.zeros((len(places[0]), 1), dtype=int), np.ones((len(places[0]), 1))
    for place, count, wraps in zip(places, values.shape, periodic):
        steps = count if wraps else count - 1
        place = place % steps if wraps else np.clip(place, 0, steps)
        before = np.minimum(place.astype(int), steps - 1)
        ends = np.stack([before, (before + 1) % count], axis=1)
        shares = np.stack([1 - (place - before), place - before], axis=1)
        index = (index[:, :, None] * count + ends[:, None, :]).reshape(len(place), -1)
        weight = (weight[:, :, None] * shares[:, None, :]).reshape(len(place), -1)
    return (values.ravel()[index] * weight).sum(axis=1)
'''
_REWARD = '''\
def reward(state):
    """R at one state, a number, or at states [n, d], an array; a state outside the domain is an error."""
    states = np.asarray(state, dtype=float)
    rows = states.reshape(-1, len(DOMAIN))
    low, high = DOMAIN.T
    if not ((rows >= low - 1e-9 * (high - low)) & (rows <= high + 1e-9 * (high - low))).all():
        raise ValueError(f"states must lie in the domain {DOMAIN.tolist()}")
    rows = np.clip(rows, low, high)
    values = np.concatenate([total(rows[start : start + 2048]) for start in range(0, max(len(rows), 1), 2048)])
    single = states.ndim == (0 if len(DOMAIN) == 1 else 1)
    return float(values[0]) if single else values
'''
_WITH_ACTIONS = {  # in the text above, for a reward of states and actions
    "(state)": "(state, action)",
    "one state, a number, or at states [n, d], an array": "one state and action, a number, or at many, an array",
    "    rows = np.clip(": """\
    actions = np.broadcast_to(action, len(rows))
    if not np.isin(actions, range(COUNT)).all():
        raise ValueError("actions must be whole numbers below COUNT")
    rows = np.clip(""",
    "total(rows[start : start + 2048])": "total(rows[start : start + 2048], actions[start : start + 2048])",
}


def python(formula: Formula) -> str:
    """A module that defines ``reward(state)`` and needs NumPy alone."""
    formula.check_writable()
    module, acts = _Module(), len(formula.cases) > 1
    for action, groups in enumerate(formula.cases):
        module.body.append("values = np.zeros(len(s))")
        for group in groups:
            names = [f"action {action}"] * acts + [group.name] * (len(groups) > 1)
            module.body += [f"# {', '.join(names)!a}"] if names else []
            for term in group.terms:
                summand = module.ridges(term) if isinstance(term, Ridges) else module.expansion(term)
                module.body.append(f"values = values + {summand}")
        module.body += ["each.append(values)"] * acts
    if acts:
        module.body.append("values = np.stack(each)[a, np.arange(len(s))]")
    if formula.paid:
        boxes, paid = zip(*formula.paid, strict=True)
        module.body += [
            f"for (low, high), paid in zip({module.constant('TERMINAL', np.stack(boxes))}, "
            f"{module.constant('PAID', paid)}):  # at terminal states",
            "    values = np.where(((s > low) & (s <= high)).all(axis=1), paid, values)",
        ]
    lines = "\n    ".join([*["each = []"] * acts, *module.body, "return values"])
    taken, at = (", a", "states [n, d] and actions [n]") if acts else ("", "states [n, d]")
    total = f'def total(s{taken}):\n    """The sum of all terms at {at}."""\n    {lines}\n'
    title = re.sub(r'[\\"]', "", " ".join(formula.title.split()))
    usage = "reward(state) takes one state or an array of them; only NumPy is needed."
    reward = _REWARD
    if acts:
        usage = "reward(state, action) takes one of each or an array of them; only NumPy is needed."
        for words, instead in _WITH_ACTIONS.items():
            reward = reward.replace(words, instead)
        reward = reward.replace("COUNT", str(len(formula.cases)))
    head = f'"""{title}\n\n{usage}\n"""\n\nimport numpy as np\n'
    domain = f"DOMAIN = {_array(np.array(formula.domain))}  # (low, high) of each coordinate"
    return "\n\n".join(["\n".join([head, domain, *module.constants, ""]), *module.helpers, total, reward])


class _Module:
    """Constants, helpers and lines of a module, and the terms as expressions of them."""

    def __init__(self) -> None:
        self.constants, self.body, self.helpers = list[str](), list[str](), dict[str, None]()

    def constant(self, name: str, values: Any, dtype: str = "") -> str:
        """The name of a new array."""
        name = f"{name}_{len(self.constants)}"
        self.constants.append(f"{name} = {_array(np.asarray(values), dtype)}")
        return name

    def table(self, axis: Axis) -> str:
        """The functions of an axis."""
        name, source = _TABLES[axis.kind]
        self.helpers[source] = None
        return f"{name}({_place(axis)}, {axis.size})"

    def tables(self, axes: Sequence[Axis]) -> str:
        """The name of a list of the functions of all axes."""
        self.body.append(_listed("tables", map(self.table, axes)))
        return "tables"

    def ridges(self, term: Ridges) -> str:
        """Σ w_i tanh(ω_i·u + b_i)."""
        tables = self.tables(term.axes)
        columns = ", ".join(f"{tables}[{axis}][:, {number}]" for axis, number in term.inputs)
        self.body.append(f"inputs = np.stack([{columns}], axis=1)")
        directions, offsets = self.constant("DIRECTIONS", term.directions), self.constant("OFFSETS", term.offsets)
        return f"np.tanh(inputs @ {directions} + {offsets}) @ {self.constant('WEIGHTS', term.weights)}"

    def expansion(self, term: Any) -> str:
        """Σ c_i Π_j φ_{i_j}."""
        if not term.axes:
            return repr(float(term.coefficients.sum()))
        if term.indices is None:
            self.helpers[_INTERPOLATED] = None
            self.body.append(_listed("places", map(_place, term.axes)))
            values = self.constant("VALUES", term.coefficients.reshape([axis.size for axis in term.axes]))
            return f"interpolated({values}, places, {[axis.kind == PERIODIC_HAT for axis in term.axes]})"
        if len(term.axes) == 1:
            weights = np.zeros(term.axes[0].size)
            weights[term.indices[:, 0]] = term.coefficients
            return f"{self.table(term.axes[0])} @ {self.constant('COEFFICIENTS', weights)}"
        self.helpers[_PRODUCTS] = None
        tables, index = self.tables(term.axes), self.constant("INDEX", term.indices, "int")
        return f"products({tables}, {index}) @ {self.constant('COEFFICIENTS', term.coefficients)}"


def _place(axis: Axis) -> str:
    """t as Python."""
    if (axis.centre, axis.scale) == (0, 1):
        return f"s[:, {axis.coordinate}]"
    return f"(s[:, {axis.coordinate}] - {axis.centre!r}) / {axis.scale!r}"


def _listed(name: str, entries: Iterable[str]) -> str:
    """An assignment of a list, one entry on each line."""
    lines = ",\n        ".join(entries)
    return f"{name} = [\n        {lines},\n    ]"


def _array(values: Array, dtype: str = "") -> str:
    """An array that reads back with the same bits."""
    numbers = ", ".join(map(repr, values.ravel().tolist())).replace("inf", "np.inf")
    kind = f", dtype={dtype}" if dtype else ""
    shape = "" if values.ndim == 1 else f".reshape({', '.join(map(str, values.shape))})"
    text = f"np.array([{numbers}]{kind}){shape}"
    if len(text) <= _WIDTH:
        return text
    words = numbers.split(" ")
    columns = values.shape[-1] if values.ndim > 1 and values.shape[-1] <= 2 * _PER_LINE else _PER_LINE
    lines = "\n    ".join(" ".join(words[start : start + columns]) for start in range(0, len(words), columns))
    return f"np.array([\n    {lines}\n]{kind}){shape}"
