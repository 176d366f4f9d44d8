"""What an answer says is next is a call that can be copied, and that leads to what was asked for."""

import ast
import dataclasses
import re
import shlex

import numpy as np
import pytest

import certirl
from certirl import Legendre
from certirl.cli import main
from certirl.ground.status import Reason, call, change, is_complete, rounded_up
from solved import POLYNOMIAL, THREE_ACTIONS

NOISE = certirl.dynamics.GaussianNoise(1, slope=0.85)
KNOWN = certirl.dynamics.AffineGaussian(std=1)
HEATED = certirl.problems.thermostat(noise=3.0)
COOLED = certirl.problems.thermostat(power=(0.0, 1.5, -1.5), noise=3.0)
NARROW = certirl.problems.thermostat(noise=1.5)


class Room:
    """A room that loses warmth."""

    n_actions, domain = 2, ((10.0, 30.0),)

    def sample(self, states, action, rng):
        mean = states - 0.15 * (states - 10) + (3.0, 0.0)[action]
        return np.clip(mean + rng.normal(0, 1, states.shape), 10, 30)


class Idle(Room):
    """Its heating does nothing."""

    def sample(self, states, action, rng):
        return super().sample(states, 1, rng)


class Tray:
    """A tray without noise."""

    n_actions, domain = 2, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(0.9 * states + (0.1, -0.1)[action], -1, 1)


def warm(states):
    return states[:, 0]


def cold(states):
    return -states[:, 0]


def thermostat(states):
    return (states[:, 0] > 20).astype(int)


def level(states):
    return (states[:, 0] > 0).astype(int)


def restless(states):
    return (np.sin(3 * states[:, 0]) > 0).astype(int)


def log(rows, *, expert=None, **settings):
    """Rows of the room, of actions by chance or of an expert."""
    rng = np.random.default_rng(0)
    states = rng.uniform(10, 30, (rows, 1))
    actions = rng.integers(2, size=rows) if expert is None else expert(states)
    after = [Room().sample(states, action, rng) for action in (0, 1)]
    ends = np.where(actions[:, None] == 0, *after)
    return certirl.Transitions(states, actions, ends, domain=(10, 30), n_actions=2, **settings)


def weather(rows):
    """Rows with a second coordinate that was called exogenous, and that actions move."""
    rng, drawn = np.random.default_rng(1), log(rows)
    other = rng.uniform(0, 1, (rows, 1))
    ends = np.clip(other + 0.3 * drawn.actions[:, None] - 0.15 + 0.05 * rng.normal(size=(rows, 1)), 0, 1)
    return dataclasses.replace(
        drawn,
        states=np.hstack([drawn.states, other]),
        next_states=np.hstack([drawn.next_states, ends]),
        domain=((10, 30), (0, 1)),
        exogenous=(1,),
    )


def decisions(rows):
    """Of an expert who errs, in episodes."""
    return certirl.problems.soft_walk(clipped=True).log(episodes=max(rows // 25, 1), steps=25, rng=0)


def again(given, name, value):
    """The value of a setting as it is printed: … stands for what it was."""
    if isinstance(value, ast.Call) and any(ast.unparse(each) == "..." for each in value.args):
        changed = {each.arg: ast.literal_eval(each.value) for each in value.keywords}
        kind = eval(ast.unparse(value.func))
        return kind(**changed) if given.get(name) is None else dataclasses.replace(given[name], **changed)
    return eval(ast.unparse(value), {"certirl": certirl, "dataclasses": dataclasses, **given})


def followed(record, given):
    """What the line leads to, and the settings of that call."""
    code, _, note = record.next.partition("  # ")
    asked = ast.parse(code.replace("…", "..."), mode="eval").body
    name = ast.unparse(asked.func)
    if not any(ast.unparse(each) == "..." for each in asked.args):  # a call of something that is there
        return eval(code, {"print": str, "solution": record, "certificate": record}), None
    given = given | {each.arg: again(given, each.arg, each.value) for each in asked.keywords}
    rows = re.search(r"with a log of about ([\d,]+) rows", note)
    if rows:
        given |= {"source": given["more"](int(rows[1].replace(",", "")))}
    return asked_for(name, given), given


def asked_for(name, given):
    return eval(name)(**{each: value for each, value in given.items() if each != "more"})


def word(record):
    return record if isinstance(record, str) else getattr(record, "status", None) or record.word


def words(name, given):
    """The words of the answers along the lines, at most four of them."""
    record = asked_for(name, given)
    found = [word(record)]
    while len(found) < 4 and given is not None and record.next:
        lines = [line.strip() for line in str(record).splitlines()]
        assert re.sub(r"^next:? +", "", lines[-1]) == record.next, "it is the last line of the print"
        record, given = followed(record, given)
        found.append("states" if isinstance(record, str) and "[" in record else word(record))
    return found


P = {"source": POLYNOMIAL, "expert": 0, "discount": 0.7, "basis": Legendre(7), "rng": 0}
P3 = {"source": THREE_ACTIONS, "expert": 0, "discount": 0.7, "basis": Legendre(11), "columns": 3, "rng": 0}
ROOM = {"source": Room(), "expert": thermostat, "discount": 0.8, "rng": 0}
TRIED = {**ROOM, "samples": 3_000}
LOG = {"source": log(4_000), "more": log, "expert": thermostat, "discount": 0.8}
SEEN = {"source": log(4_000, expert=thermostat), "expert": thermostat, "discount": 0.8}
Q = {"source": COOLED, "expert": 0, "discount": 0.7, "rng": 1}
HEAT = {"source": HEATED, "reward": warm, "expert": 0, "discount": 0.7, "columns": Legendre(7), "rng": 1}
SOFT = {"source": certirl.problems.soft_walk().log(episodes=400, steps=50, rng=0), "discount": 0.9}
TRAY = {"source": Tray(), "expert": level, "discount": 0.9, "rng": 0, "samples": 2_000}

CASES = {
    # an expert of one action
    "few draws": ("solve", {**P3, "delta": 0.05, "tail": 0, "samples": 4_000}, "solved certified"),
    "no tail": ("solve", {**P, "columns": 3, "delta": 0.05}, "solved certified"),
    "few draws, no tail": ("solve", {**P3, "delta": 0.05, "samples": 4_000}, "solved certified"),
    "within the noise": ("solve", {**P3, "samples": 60}, "solved solved"),
    "slack": ("solve", {**P, "expert": 1, "method": certirl.Program(slack=0.1, objective="l1")}, "undetermined solved"),
    "coarse cover": ("solve", {**P3, "columns": None, "samples": 900, "method": certirl.Program(cover=1.9)}, "?"),
    "diverging": ("solve", {**P, "columns": 7, "samples": 9, "discount": 0.99}, "?"),
    "conflict": ("solve", {**Q, "basis": Legendre(2), "samples": 20_000}, "?"),
    "conflict, proved": ("solve", {**Q, "basis": Legendre(7), "columns": 7, "delta": 0.05, "samples": 40_000, "tail": COOLED.tail}, "?"),
    "less exact": ("solve", {**Q, "basis": Legendre(2), "samples": 20_000, "suboptimality": 0.01}, "?"),
    "idle action": ("solve", {**TRIED, "source": Idle(), "expert": 0, "delta": 0.05, "tail": 0, "columns": 5, "basis": Legendre(5)}, "?"),
    # of a policy
    "not tried": ("solve", {**TRIED, "trials": 0}, "?"),
    "few states": ("solve", {**ROOM, "samples": 200}, "?"),
    "idle actions": ("solve", {**TRIED, "source": Idle()}, "?"),
    "restless expert": ("solve", {**TRIED, "expert": restless}, "?"),
    "signs": ("solve", {**TRIED, "method": certirl.FeatureForm({"s": warm}, signs={"s": 1})}, "?"),
    "wide margin": ("solve", {**TRIED, "method": certirl.ValueForm(margin=0.9)}, "?"),
    "policy without tail": ("solve", {**ROOM, "delta": 0.05, "samples": 100_000}, "?"),
    "policy with few draws": ("solve", {**ROOM, "delta": 0.05, "tail": NOISE, "samples": 5_000}, "?"),
    "known noise, few draws": ("solve", {**ROOM, "delta": 0.05, "dynamics": KNOWN, "samples": 600}, "?"),
    "narrow tube": ("solve", {**ROOM, "delta": 0.05, "dynamics": KNOWN, "samples": 8_000, "tube": 0.05}, "?"),
    # logs
    "short log": ("solve", {**LOG, "delta": 0.05, "dynamics": KNOWN, "source": log(900)}, "?"),
    "log without tail": ("solve", {**LOG, "delta": 0.05}, "?"),
    "log of a controller": ("solve", SEEN, "?"),
    "drift that is not shared": ("solve", {**LOG, "dynamics": certirl.dynamics.SharedDrift(degree=1)}, "?"),
    "moved input": ("solve", {**LOG, "source": weather(6_000)}, "?"),
    # soft experts
    "rewards of the state": ("solve", {**SOFT, "expert": certirl.SoftExpert(reward="state")}, "?"),
    "rough log-odds": ("solve", {**SOFT, "expert": certirl.SoftExpert(), "basis": Legendre(2)}, "?"),
    "short decisions": ("solve", {"source": decisions(1_000), "more": decisions, "discount": 0.9, "expert": certirl.SoftExpert(), "basis": Legendre(4), "delta": 0.05, "dynamics": certirl.dynamics.AffineGaussian(0.25)}, "?"),
    # without noise
    "coarse cells": ("solve", {**TRAY, "dynamics": certirl.dynamics.Deterministic(0.9, points=5)}, "?"),
    # certificates
    "certify, few draws": ("certify", {**HEAT, "tail": HEATED.tail, "samples": 1_000}, "?"),
    "certify, no tail": ("certify", {**HEAT, "samples": 9_000}, "?"),
    "certify, too few columns": ("certify", {**HEAT, "source": NARROW, "columns": Legendre(11), "tail": certirl.dynamics.GaussianNoise(1.5, slope=0.9, truncated=True), "samples": 50_000}, "?"),
    "certify, wrong reward": ("certify", {**HEAT, "tail": HEATED.tail, "reward": cold, "samples": 9_000}, "?"),
    "certify, known noise": ("certify", {**ROOM, "reward": lambda s: -(s[:, 0] - 20) ** 2, "dynamics": KNOWN, "samples": 300}, "?"),
    "refute, few draws": ("refute", {"source": COOLED, "expert": 0, "basis": Legendre(3), "columns": 7, "tail": COOLED.tail, "samples": 300, "rng": 1}, "?"),
    "refute, no tail": ("refute", {"source": COOLED, "expert": 0, "basis": Legendre(2), "columns": 7, "samples": 20_000, "rng": 1}, "?"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_following_the_line_leads_to_what_was_asked_for(case):
    function, given, expected = CASES[case]
    assert words(f"certirl.{function}", given) == expected.split()
