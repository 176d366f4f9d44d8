"""Every public record converts itself to plain data and has a short repr."""

import dataclasses
import inspect
import json
from enum import Enum

import numpy as np
import pytest

import certirl
from certirl import diagnose, dynamics, paper, problems, steps, trials
from certirl.functions.extrema import Minimum
from certirl.ground.records import LISTED, LONGEST, Record, plain
from certirl.problems import comfort
from refusals import refused
from surface import surface


def test_every_public_class_with_fields_is_a_record():
    kinds = {name: value for name, value in surface().items() if inspect.isclass(value)}
    with_fields = {name: kind for name, kind in kinds.items() if {"__dataclass_fields__", "_fields"} & {*dir(kind)}}
    del with_fields["certirl_check.Verdict"]  # the checker shares no code; certirl.check returns a record
    assert len(with_fields) > 40
    assert [name for name, kind in with_fields.items() if not issubclass(kind, Record)] == []
    for kind in with_fields.values():
        names = {field.name for field in dataclasses.fields(kind)} | {*kind._derived}
        assert "type" not in names and all(hasattr(kind, name) or name in names for name in kind._derived)


class Colour(Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Point(Record):
    x: object
    y: object = None
    _hidden: int = 5
    z: float = float("nan")


@dataclasses.dataclass(frozen=True)
class Line(Point):
    def __str__(self):
        return f"a line  from {self.x}\nand more"


def test_plain_data_of_every_type():
    values = {
        "nothing": (None, None),
        "flag": (np.bool_(True), True),
        "count": (np.int64(3), 3),
        "number": (np.float32(0.5), 0.5),
        "nan": (float("nan"), None),
        "large": (np.inf, "Infinity"),
        "small": (-np.inf, "-Infinity"),
        "array": (np.array([[1.0, np.nan], [np.inf, 2.0]]), [[1.0, None], ["Infinity", 2.0]]),
        "none of them": (np.zeros((0, 2)), []),
        "long": (np.zeros((LISTED, 2), dtype=np.intp), {"shape": [LISTED, 2], "dtype": str(np.dtype(np.intp))}),
        "pairs": (((0, 1.0), [2]), [[0, 1.0], [2]]),
        "names": ({1: (2,), "b": {3}}, {"1": [2], "b": [3]}),
        "word": (Colour.RED, "RED"),
        "function": (np.linalg.solve, "solve"),
        "class": (Point, "Point"),
        "object": (object(), "object"),
        "record": (Point(1), {"type": "Point", "x": 1, "y": None, "z": None}),
        "named tuple": (Minimum(np.zeros(1), 2.0), {"type": "Minimum", "state": [0.0], "bound": 2.0}),
    }
    for name, (value, expected) in values.items():
        assert plain(value) == expected, name
    record = Point({name: value for name, (value, _) in values.items()}, np.arange(LISTED + 1))
    assert record.to_dict(entries=None)["y"] == list(range(LISTED + 1))
    assert record.to_dict(entries=5)["x"]["array"] == [[1.0, None], ["Infinity", 2.0]]
    assert record.to_dict(entries=3)["x"]["array"]["shape"] == [2, 2]
    json.dumps(record.to_dict(), allow_nan=False)
    refused("entries must be a whole number", record.to_dict, entries=-1)


def test_a_repr_is_the_call_if_that_is_short_and_else_the_first_line_of_the_print():
    assert repr(Point(np.float64(0.5), ("a", Point(1)))) == "Point(x=0.5, y=('a', Point(x=1)))"
    assert (
        repr(Point(1, None, z=-float("nan"))) == "Point(x=1)"
        and repr(Point((1,), {"a": 2})) == "Point(x=(1,), y={'a': 2})"
    )
    assert repr(Point(np.zeros((3, 4)), Point(np.zeros(2)))) == "Point(x=float64[3, 4], y=Point(x=float64[2]))"
    assert repr(Line(1)) == "Line(x=1)" and repr(Line(np.zeros(1))) == "<Line: a line from [0.]>"
    assert repr(Point(np.linalg.solve)) == "Point(x=solve)" and repr(Point(Line(np.zeros(1)))) == "Point(x=Line(…))"
    for long in (repr(Point("x" * 500)), repr(Line("y" * 500)), repr(Point(np.arange(3), ("z",) * 300))):
        assert len(long) == LONGEST and long[-2] == "…"


def test_arrays_of_records_are_read_only():
    operators = problems.random_polynomial(seed=7).operators(certirl.Legendre(4))
    criterion = steps.bellman(operators, discount=0.7)
    found = steps.recover(criterion)
    for array in (operators.Z, criterion.F, found.states, found.value, found.reward.coefficients):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def records():
    """One of every kind that a user gets from a cheap call."""
    problem = certirl.problems.random_polynomial(seed=7, actions=3, degree=10)
    log = steps.sample(problem, basis=certirl.Legendre(5), samples=200, rng=0)
    moments = steps.measure(log, basis=certirl.Legendre(5))
    operators = steps.estimate(moments)
    bellman = steps.bellman(operators, discount=0.7, expert=0)
    room = comfort()
    reward = certirl.Reward(certirl.Legendre(3), [0.0, 1.0, 2.0])
    yield from (problem, log, moments, operators, bellman, steps.recover(bellman), room, room.expert, room.dynamics)
    yield from (reward, certirl.Reward.sum([reward, reward], [[0], [1]]), reward.basis, certirl.Cells((4, 5)))
    yield certirl.product(certirl.Legendre(3), certirl.Fourier(5)).on(((0.0, 1.0), (0.0, 2.0)))
    yield from (certirl.FeatureForm({"x": lambda s: s[:, 0]}), dynamics.Smooth(1, 2.0))
    yield from (diagnose.coverage(log), diagnose.columns(log, most=3), certirl.policy_from(log))
    yield trials.rollout_check(reward, problem, expert=0, discount=0.7, states=[0.1], samples=50, rng=0)
    yield trials.scenario(reward, problem, expert=0, discount=0.7, share=0.5, delta=0.4, samples=20, rng=0)
    yield problems.judge(room.dynamics, room.reward, room.expert, discount=0.9)
    yield problems.judge(room.dynamics, room.reward, room.expert, discount=0.9).truth
    plan = certirl.planning.plan(room.dynamics, room.reward, discount=0.9, points=20, starts=[[0.1]])
    yield from (plan, plan.returns)
    yield paper.lemma7_corrected(b33=1.0, b30=1.0, discount=0.5)
    requirements = paper.requirements(discount=0.7, beta=0.01)
    yield from (requirements, requirements.literal, requirements.literal.conditions[0])


def test_records_of_every_kind():
    kinds = set()
    for record in records():
        kind = type(record).__name__
        kinds.add(kind)
        data = record.to_dict()
        assert data["type"] == kind and json.loads(json.dumps(data, allow_nan=False)) == data, kind
        assert len(json.dumps(data)) < 20_000, kind
        assert repr(record).startswith((f"{kind}(", f"<{kind}: ")) and "\n" not in repr(record), kind
        assert len(repr(record)) <= LONGEST and " at 0x" not in repr(record) + str(data), kind
    assert len(kinds) > 25
