"""Writers of formulas as text: LaTeX to read, Python to run without certirl."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
from certirl.ground.doors import as_count, as_listed, as_text, shown

# LaTeX.


# Of each kind of functions the letter of their argument, what it stands for (t, or t and the number of functions), and
# one function of the argument.
_KINDS = {
    LEGENDRE: ("t", "{0}", "P_{{{number}}}({0})"),
    CHEBYSHEV: ("t", "{0}", "T_{{{number}}}({0})"),
    FOURIER: ("t", "{0}", r"\{wave}({times}\pi {0})"),
    SATURATION: ("u", r"3 \tanh\left({0}\right)", "{0}"),
    HAT: ("x", "{0}", ""),
    PERIODIC_HAT: ("x", r"{0} \bmod {1}", ""),
}


def latex(
    formula: Formula,
    *,
    digits: int = 4,
    terms: int | None = None,
    names: Sequence[str] | None = None,
    symbol: str = "R",
) -> str:
    """A formula for LaTeX's mathematics mode; several lines are aligned."""
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
        letter, value, _ = _KINDS[axis.kind]
        if (axis.centre, axis.scale) == (0, 1) and value == "{0}":
            return self.names[axis.coordinate]
        return letter if self._single else f"{letter}_{{{axis.coordinate}}}"

    def _function(self, axis: Axis, number: int) -> str:
        """φ of one number; nothing for the constant."""
        if number == 0:
            return ""
        frequency, wave = (number + 1) // 2, "sin" if number % 2 else "cos"
        words = {"number": number, "times": "" if frequency == 1 else frequency, "wave": wave}
        return _KINDS[axis.kind][2].format(self._argument(axis), **words)

    def definitions(self, terms: Sequence[Term]) -> Iterator[str]:
        """What the letters of the terms stand for, each once."""
        axes = sorted({axis for term in terms for axis in _occurring(term)})
        for axis in axes:
            argument = self._argument(axis)
            value = _KINDS[axis.kind][1].format(self._reference(axis), axis.size)
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

_MODULE = '''\
"""{title}

reward(state) takes one state or an array of them, reward(state, action) an action or an array of them, too; where R has
one sum of terms alone, it is the same for all actions. Only NumPy is needed.
"""

import numpy as np


def angles(t, count):
    """0, pi t, pi t, 2 pi t, ...: [n, count]."""
    return np.pi * np.outer(t, (np.arange(count) + 1) // 2)


KINDS = {{  # functions of one coordinate t [n]: [n, count]
    "Legendre": lambda t, count: np.polynomial.legendre.legvander(t, count - 1),
    "Chebyshev": lambda t, count: np.polynomial.chebyshev.chebvander(t, count - 1),
    "Fourier": lambda t, count: np.where(np.arange(count) % 2, np.sin(angles(t, count)), np.cos(angles(t, count))),
    "saturation": lambda t, count: np.stack([np.ones_like(t), 3 * np.tanh(t)], axis=1)[:, :count],
    "hat": lambda t, count: np.maximum(1 - abs(t[:, None] - np.arange(count)), 0),
    "periodic hat": lambda t, n: np.maximum(1 - abs((t[:, None] - np.arange(n) + n / 2) % n - n / 2), 0),
}}


def tables(s, axes):
    """The functions of each axis: of a coordinate of states [n, d], less a centre, in a unit."""
    return [KINDS[kind]((s[:, j] - centre) / unit, count) for j, kind, centre, unit, count in axes]


def expansion(s, axes, coefficients, indices):
    """The sum of some products of one function of each axis; of all products if there are no indices."""
    if indices is None:
        total = coefficients[None]
        for table in tables(s, axes):
            total = (table[:, None] @ total.reshape(len(total), table.shape[1], -1))[:, 0]
        return total[:, 0]
    total = np.ones((len(s), len(indices)))
    for table, column in zip(tables(s, axes), indices.T):
        total *= table[:, column]
    return total @ coefficients


def ridges(s, axes, inputs, directions, offsets, weights):
    """The sum of hyperbolic tangents along some directions of some functions of the axes."""
    functions = tables(s, axes)
    inputs = np.stack([functions[axis][:, number] for axis, number in inputs], axis=1)
    return np.tanh(inputs @ directions + offsets) @ weights


DOMAIN = {domain}  # (low, high) of each coordinate
TERMS = [  # the terms of R, one sum alone or one for each action
{terms}]
TERMINAL = [  # boxes of terminal states, low < s <= high, and R there
{terminal}]


def total(s, actions):
    """R at states [n, d] and actions [n]."""
    sums = [sum((term(s, *given) for term, *given in terms), np.zeros(len(s))) for terms in TERMS]
    values = np.stack(sums)[actions, np.arange(len(s))]
    for low, high, paid in TERMINAL:
        values = np.where(((s > low) & (s <= high)).all(axis=1), paid, values)
    return values


def reward(state, action=None):
    """R at one state, a number, or at states [n, d], an array; a state outside the domain is an error."""
    states = np.asarray(state, dtype=float)
    rows = states.reshape(-1, len(DOMAIN))
    low, high = DOMAIN.T
    if not ((rows >= low - 1e-9 * (high - low)) & (rows <= high + 1e-9 * (high - low))).all():
        raise ValueError(f"states must lie in the domain {{DOMAIN.tolist()}}")
    actions = np.broadcast_to(action if len(TERMS) > 1 else 0, len(rows))
    if not np.isin(actions, range(len(TERMS))).all():
        raise ValueError(f"actions must be whole numbers below {{len(TERMS)}}")
    rows, blocks = np.clip(rows, low, high), np.split(np.arange(len(rows)), range(256, len(rows), 256))
    values = np.concatenate([total(rows[block], actions[block]) for block in blocks])
    single = states.ndim == (0 if len(DOMAIN) == 1 else 1)
    return float(values[0]) if single else values
'''


def python(formula: Formula) -> str:
    """A module that defines ``reward(state, action)`` and needs NumPy alone."""
    formula.check_writable()
    cases = (",\n      ".join(_code(term) for group in groups for term in group.terms) for groups in formula.cases)
    boxes = (f"({_array(low)}, {_array(high)}, {paid!r})" for (low, high), paid in formula.paid)
    return _MODULE.format(
        title=re.sub(r'[\\"]', "", " ".join(formula.title.split())),
        domain=_array(np.array(formula.domain)),
        terms="".join(f"    [{terms}],\n" for terms in cases),
        terminal="".join(f"    {box},\n" for box in boxes),
    )


def _code(term: Term) -> str:
    """A term as a tuple of a function and its arguments."""
    assert isinstance(term, Expansion | Ridges)
    axes = [tuple(axis) for axis in term.axes]
    if isinstance(term, Ridges):
        arrays = ", ".join(map(_array, (term.directions, term.offsets, term.weights)))
        return f"(ridges, {axes!r}, {list(term.inputs)!r}, {arrays})"
    indices = term.indices if term.indices is None else _array(term.indices)
    return f"(expansion, {axes!r}, {_array(term.coefficients)}, {indices})"


_PER_LINE, _BREAK = 5, ",\n        "  # numbers on a line


def _array(values: Array) -> str:
    """An array that reads back with the same bits."""
    numbers = [repr(number).replace("inf", "np.inf") for number in values.ravel().tolist()]
    lines = (", ".join(numbers[start : start + _PER_LINE]) for start in range(0, len(numbers), _PER_LINE))
    shape = "" if values.ndim == 1 else f".reshape({', '.join(map(str, values.shape))})"
    return f"np.array([{_BREAK.join(lines)}], dtype={values.dtype.name!r}){shape}"
