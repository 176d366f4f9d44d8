r"""Formulas for browsers: MathML from the LaTeX that `Reward.to_latex` writes.

A line is several ``<math>`` elements, one for each summand, so that long sums are broken into lines as text is. Only
what the writer of formulas uses is known: ``\frac``, ``\text``, sums, functions, letters, indices and aligned lines.
"""

from __future__ import annotations

import re
from html import escape

NO_BREAK = "\N{NO-BREAK SPACE}"
_FUNCTIONS = ("tanh", "sin", "cos", "max")
_LETTERS = {"pi": "π", "omega": "ω", "Lambda": "Λ", "top": "⊤"}
_OPERATORS = {"cdot": "⋅", "times": "×", "le": "≤", "in": "∈", "bmod": "mod", "sum": "∑"}
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\S")


def mathml(latex: str) -> list[str]:
    """The lines of a formula, each as ``<math>`` elements."""
    body = latex.replace(r"\begin{aligned}", "").replace(r"\end{aligned}", "")
    return [_Line(line).pieces() for line in body.split("\\\\\n")]


class _Line:
    """Reads one line of LaTeX from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def pieces(self) -> str:
        """One ``<math>`` for what stands before each sign at the outermost level."""
        pieces, current, depth = list[str](), list[str](), 0
        while (token := self._peek()) is not None:
            depth += {"(": 1, ")": -1}.get(token, 0)
            is_sign = token in "+-" and depth == 0 and bool(current)
            if is_sign:
                pieces.append("".join(current))
                current = []
            element = self._scripted()
            current.append(element.replace("<mo>", '<mo form="infix">') if is_sign else element)
            if token == "=":
                pieces.append("".join(current))
                current = []
        pieces += ["".join(current)] if current else []
        return " ".join(f"<math>{piece}</math>" for piece in pieces if piece)

    def _peek(self) -> str | None:
        match = _TOKEN.match(self._text, self._skipped())
        return match[0] if match else None

    def _skipped(self) -> int:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at

    def _next(self) -> str:
        match = _TOKEN.match(self._text, self._skipped())
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _scripted(self) -> str:
        """An element with its indices."""
        is_sum = self._peek() == r"\sum"
        base, scripts = self._element(), dict[str, str]()
        while (token := self._peek()) in ("_", "^"):
            self._next()
            scripts[str(token)] = self._element()
        if not scripts:
            return base
        names = ("munder", "mover", "munderover") if is_sum else ("msub", "msup", "msubsup")
        name = names[2] if len(scripts) == 2 else names["^" in scripts]
        return f"<{name}>{base}{''.join(scripts[mark] for mark in '_^' if mark in scripts)}</{name}>"

    def _element(self) -> str:
        token = self._next()
        name = token[1:] if token.startswith("\\") else ""
        if token == "{":
            inner = list[str]()
            while self._peek() not in ("}", None):
                inner.append(self._scripted())
            self._next()
            return f"<mrow>{''.join(inner)}</mrow>"
        if name == "frac":
            return f"<mfrac>{self._element()}{self._element()}</mfrac>"
        if name == "text":
            return f"<mtext>{escape(self._raw().replace(' ', NO_BREAK))}</mtext>"
        if name in ("mathrm", "mathbb"):
            words = self._raw()
            return f"<mi>{escape(words if name == 'mathrm' else words.replace('R', 'ℝ'))}</mi>"
        if name in ("left", "right", "bigl", "bigr", "quad", ",", " "):
            return "" if name[0] in "lrb" else f'<mspace width="{"1em" if name == "quad" else "0.17em"}"></mspace>'
        if name in _FUNCTIONS or name in _LETTERS:
            return f"<mi>{_LETTERS.get(name, name)}</mi>"
        if token == "&":
            return ""
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        tight = ' stretchy="false" lspace="0" rspace="0"' if token in "()|" else ""
        return f"<mo{tight}>{escape(_OPERATORS.get(name, name or token).replace('-', '−'))}</mo>"

    def _raw(self) -> str:
        """The words between the next braces, without LaTeX's escapes."""
        start = self._text.index("{", self._at) + 1
        end, depth = start, 1
        while depth:
            step = 2 if self._text[end] == "\\" else 1
            depth += {"{": 1, "}": -1}.get(self._text[end], 0)
            end += step
        self._at = end
        words = self._text[start : end - 1].replace(r"\backslash ", "\\\\").replace(r"\^{}", "^").replace(r"\~{}", "~")
        return re.sub(r"\\(.)", r"\1", words)
