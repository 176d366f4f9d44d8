"""Formulas as ONNX models in double precision, of operations that every runtime has (opset 13).

Only products, sums, sines, hyperbolic tangents, minima, maxima, comparisons and matrix products occur: polynomials are
written by their recurrences and cosines as sines, since some runtimes have no cosine in double precision.
"""

from __future__ import annotations

import os
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from certirl.functions.formulas import (
    FOURIER,
    HAT,
    LEGENDRE,
    PERIODIC_HAT,
    REACH,
    SATURATION,
    Axis,
    Expansion,
    Formula,
    Ridges,
    Term,
)
from certirl.ground import archive

OPSET, IR_VERSION = 13, 7
_SLACK = 1e-9  # of the width of the domain: states outside by less are moved to its edge, as `Reward` does


def write(formula: Formula, path: str | os.PathLike[str]) -> Path:
    """Write a model ``state [n, d] → reward [n]``, or of actions ``[n]`` too (suffix added if missing)."""
    target = archive.target_of(path, (".onnx",))
    formula.check_writable()
    try:
        import onnx
    except ImportError:
        raise ImportError('writing ONNX needs the package onnx: pip install "certirl[onnx]"') from None
    model = _model(formula, onnx)
    with archive.replacing(target) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return target


def _model(formula: Formula, onnx: Any) -> Any:
    low, high = formula.domain.ends
    graph = _Graph(onnx, len(low))
    slack = _SLACK * (high - low)
    outside = graph("Max", graph("Sub", low - slack, "state"), graph("Sub", "state", high + slack), np.zeros(1))
    excess = graph("MatMul", outside, np.ones((len(low), 1)))  # 0 inside, and not a number for such states
    states = graph("Min", graph("Max", "state", low), high)
    double, helper = onnx.TensorProto.DOUBLE, onnx.helper
    inputs = [helper.make_tensor_value_info("state", double, ["n", len(low)])]
    sums = [graph.total(states, [term for group in groups for term in group.terms]) for groups in formula.cases]
    total = sums[0]
    if len(sums) > 1:
        inputs.append(helper.make_tensor_value_info("action", onnx.TensorProto.INT64, ["n"]))
        actions = graph("Reshape", "action", np.array([-1, 1]))
        total = graph("GatherElements", graph("Concat", *sums, axis=1), actions, axis=1)
    for (start, end), paid in formula.paid:
        sides = graph("And", graph("Greater", states, start), graph("Not", graph("Greater", states, end)))
        count = graph("MatMul", graph("Cast", sides, to=onnx.TensorProto.DOUBLE), np.ones((len(low), 1)))
        total = graph("Where", graph("Greater", count, np.array([len(low) - 0.5])), np.array([paid]), total)
    total = graph("Where", graph("Less", excess, np.array([np.finfo(float).tiny])), total, np.array([np.nan]))
    graph("Reshape", total, np.array([-1]), name="reward")
    model = helper.make_model(
        helper.make_graph(
            graph.nodes, "reward", inputs,
            [helper.make_tensor_value_info("reward", double, ["n"])], graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="certirl",
        doc_string=f"{formula.title}; NaN outside the domain",
    )  # fmt: skip
    onnx.checker.check_model(model)
    return model


class _Graph:
    """Nodes and constants of a model; a call adds a node and returns the name of its output."""

    def __init__(self, onnx: Any, dimension: int) -> None:
        self.nodes, self.constants = list[Any](), list[Any]()
        self._onnx, self._dimension = onnx, dimension

    def __call__(self, operation: str, *inputs: Any, name: str = "", **attributes: Any) -> str:
        output = name or f"{operation.lower()}_{len(self.nodes)}"
        names = [word if isinstance(word, str) else self._constant(word) for word in inputs]
        self.nodes.append(self._onnx.helper.make_node(operation, names, [output], **attributes))
        return output

    def _constant(self, values: Any) -> str:
        name, values = f"constant_{len(self.constants)}", np.asarray(values)
        values = values.astype(np.int64) if values.dtype.kind == "i" else values
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def table(self, states: str, axis: Axis) -> str:
        """The functions of an axis at all states ``[n, size]``."""
        column = self("Gather", states, np.array([axis.coordinate]), axis=1)
        t = self("Div", self("Sub", column, np.array([axis.centre])), np.array([axis.scale]))
        if axis.kind in (HAT, PERIODIC_HAT):
            distance = self("Abs", self("Sub", t, np.arange(float(axis.size))))
            if axis.kind == PERIODIC_HAT:
                distance = self("Min", distance, self("Sub", np.array([float(axis.size)]), distance))
            return self("Max", self("Sub", np.ones(1), distance), np.zeros(1))
        columns = [self("Add", self("Mul", t, np.zeros(1)), np.ones(1))]
        if axis.kind == SATURATION:
            columns.append(self("Mul", self("Tanh", t), np.array([REACH])))
        elif axis.kind == FOURIER:
            for number in range(1, axis.size):
                angle = self("Mul", t, np.array([(number + 1) // 2 * np.pi]))
                columns.append(self("Sin", angle if number % 2 else self("Add", angle, np.array([np.pi / 2]))))
        else:
            columns.append(t)
            for n in range(2, axis.size):  # P_n = a t P_{n−1} − b P_{n−2}
                a, b = ((2 * n - 1) / n, (n - 1) / n) if axis.kind == LEGENDRE else (2.0, 1.0)
                first = self("Mul", self("Mul", t, columns[-1]), np.array([a]))
                columns.append(self("Sub", first, self("Mul", columns[-2], np.array([b]))))
        return self("Concat", *columns[: axis.size], axis=1)

    def total(self, states: str, terms: list[Term]) -> str:
        """The sum of terms ``[n, 1]``."""
        values = [self("MatMul", states, np.zeros((self._dimension, 1)))]
        for term in terms:
            assert isinstance(term, Expansion | Ridges)
            tables = [self.table(states, axis) for axis in term.axes]
            values.append(self.ridges(term, tables) if isinstance(term, Ridges) else self.expansion(term, tables))
        return reduce(lambda first, second: self("Add", first, second), values)

    def expansion(self, term: Expansion, tables: list[str]) -> str:
        """Σ c_i Π_j φ_{i_j} ``[n, 1]``."""
        if not tables:
            return self._constant(term.coefficients.sum(keepdims=True))
        if term.indices is not None:
            chosen = zip(tables, term.indices.T, strict=True)
            factors = [self("Gather", table, numbers, axis=1) for table, numbers in chosen]
            return self("MatMul", reduce(lambda p, q: self("Mul", p, q), factors), term.coefficients[:, None])
        counts = [axis.size for axis in term.axes]
        total = self("MatMul", tables[0], term.coefficients.reshape(counts[0], -1))  # sum over one axis after the other
        for number, table in enumerate(tables[1:], start=1):
            rest = int(np.prod(counts[number + 1 :]))
            weights = self("Reshape", table, np.array([0, 1, counts[number]]))  # 0: as many states as before
            total = self("MatMul", weights, self("Reshape", total, np.array([0, counts[number], rest])))
            total = self("Reshape", total, np.array([0, rest]))
        return total

    def ridges(self, term: Ridges, tables: list[str]) -> str:
        """Σ w_i tanh(ω_i·u + b_i) ``[n, 1]``."""
        columns = [self("Gather", tables[axis], np.array([number]), axis=1) for axis, number in term.inputs]
        inputs = self("MatMul", self("Concat", *columns, axis=1), term.directions)
        return self("MatMul", self("Tanh", self("Add", inputs, term.offsets)), term.weights[:, None])
