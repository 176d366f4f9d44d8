"""What an answer says is next is a call that can be copied, and that leads to what was asked for."""

import ast
import dataclasses
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import certirl
from certirl import Legendre
from certirl.cli import main
from solved import POLYNOMIAL

NOISE = certirl.dynamics.GaussianNoise(1, slope=0.85)
KNOWN = certirl.dynamics.AffineGaussian(std=1)
QUARTER = certirl.dynamics.AffineGaussian(std=0.25)
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


def comfort(states):
    return -((states[:, 0] - 20) ** 2)


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


def uneven(rows):
    """Rows in which heating moves the state the less, the warmer it is."""
    drawn = log(rows)
    heated = np.where(drawn.actions[:, None] == 0, drawn.next_states - 0.3 * (drawn.states - 20), drawn.next_states)
    return dataclasses.replace(drawn, next_states=np.clip(heated, 10, 30))


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
    return "." if isinstance(record, str) else LETTERS[getattr(record, "status", "") or record.word]


def words(name, given):
    """The words of the answers along the lines, at most four of them."""
    record = asked_for(name, given)
    found = [word(record)]
    while len(found) < 4 and given is not None and record.next:
        lines = [line.strip() for line in str(record).splitlines()]
        assert re.sub(r"^next:? +", "", lines[-1]) == record.next, "it is the last line of the print"
        record, given = followed(record, given)
        found.append(word(record))
    return "".join(found)


THREE_ACTIONS = certirl.problems.random_polynomial(seed=7, actions=3, degree=10)
FOUR = certirl.problems.random_polynomial(seed=4, actions=4)
CUT = certirl.dynamics.GaussianNoise(1.5, slope=0.9, truncated=True)
P = {"source": POLYNOMIAL, "expert": 0, "discount": 0.7, "basis": Legendre(7), "rng": 0}
P3 = {"source": THREE_ACTIONS, "expert": 0, "discount": 0.7, "basis": Legendre(11), "columns": 3, "rng": 0}
PF = {**P, "source": FOUR, "basis": Legendre(3), "columns": 3}
ROOM = {"source": Room(), "expert": thermostat, "discount": 0.8, "rng": 0}
TRIED = {**ROOM, "samples": 3_000}
LOG = {"source": log(4_000), "more": log, "expert": thermostat, "discount": 0.8}
SEEN = {"source": log(4_000, expert=thermostat), "expert": thermostat, "discount": 0.8}
HEAT = {"source": HEATED, "reward": warm, "expert": 0, "discount": 0.7, "columns": Legendre(7), "rng": 1}
COOL = {"source": COOLED, "expert": 0, "columns": 7, "rng": 1}
SOFT = {"source": certirl.problems.soft_walk().log(episodes=400, steps=50, rng=0), "discount": 0.9}
ERRS = {"more": decisions, "discount": 0.9, "expert": certirl.SoftExpert(), "basis": Legendre(4), "delta": 0.05}
TRAY = {"source": Tray(), "expert": level, "discount": 0.9, "rng": 0, "samples": 2_000}

# What is asked, and the words of its answer and of those along the lines, by letters.
LETTERS = {
    "undetermined": "U", "infeasible": "I", "solved": "S", "validated": "V", "certified": "C", "estimated": "E",
    "bounded": "B", "not certified": "N", "conditional": "T", "certified infeasible": "R",
}  # fmt: skip
CASES = {
    # an expert of one action
    "few draws": ("solve", {**P3, "delta": 0.05, "tail": 0, "samples": 4_000}, "SC"),
    "no tail": ("solve", {**P, "columns": 3, "delta": 0.05}, "SC"),
    "few draws, no tail": ("solve", {**P3, "delta": 0.05, "samples": 4_000}, "SC"),
    "within the noise": ("solve", {**P3, "samples": 60}, "SS"),
    "slack": ("solve", {**P, "expert": 1, "method": certirl.Program(slack=0.1, objective="l1")}, "US"),
    "coarse cover": (
        "solve",
        {**P3, "columns": None, "samples": 900, "method": certirl.Program(cover=1.9)},
        "USS",
    ),
    "mean form": (
        "solve",
        {**P, "samples": 200, "discount": 0.95, "method": certirl.Program(form="mean")},
        "IS",
    ),
    "tiny data": ("solve", {**P, "columns": 7, "samples": 9}, "ISS"),
    "conflict": ("solve", {**PF, "samples": 20_000}, "IS"),
    "conflict, proved": ("solve", {**PF, "delta": 0.05, "samples": 200_000, "tail": 0}, "IC"),
    "conflict, open": (
        "solve",
        {**PF, "delta": 0.05, "samples": 1_500, "tail": 0},
        "UUIC",
    ),
    "conflict, no tail": (
        "solve",
        {**PF, "delta": 0.05, "samples": 200_000},
        "UIUC",
    ),
    "too exact": ("solve", {**PF, "samples": 20_000, "suboptimality": 0.001}, "US"),
    "idle action": ("solve", {**PF, "source": Idle(), "delta": 0.05, "tail": 0}, "U."),
    # of a policy
    "not tried": ("solve", {**TRIED, "trials": 0}, "SV"),
    "few states": ("solve", {**ROOM, "samples": 200}, "SSV"),
    "idle actions": ("solve", {**TRIED, "source": Idle()}, "U."),
    "restless expert": ("solve", {**TRIED, "expert": restless}, "U."),
    "signs": ("solve", {**TRIED, "method": certirl.FeatureForm({"s": warm}, signs={"s": 1})}, "IV"),
    "wide margin": ("solve", {**TRIED, "method": certirl.ValueForm(margin=0.9)}, "UV"),
    "policy without tail": ("solve", {**ROOM, "delta": 0.05, "samples": 100_000}, "VC"),
    "policy with few draws": ("solve", {**ROOM, "delta": 0.05, "tail": NOISE, "samples": 5_000}, "VC"),
    "known noise, few": ("solve", {**ROOM, "delta": 0.05, "dynamics": KNOWN, "samples": 600}, "SC"),
    "narrow tube": (
        "solve",
        {**TRIED, "delta": 0.05, "dynamics": KNOWN, "tube": 0.1, "samples": 8_000},
        "VC",
    ),
    # logs
    "short log": ("solve", {**LOG, "delta": 0.05, "dynamics": KNOWN, "source": log(900)}, "SC"),
    "log without tail": ("solve", {**LOG, "delta": 0.05}, "SSC"),
    "log of a controller": ("solve", SEEN, "US"),
    "drift of its own": (
        "solve",
        {**LOG, "source": uneven(4_000), "dynamics": certirl.dynamics.SharedDrift(1)},
        "US",
    ),
    "moved input": ("solve", {**LOG, "source": weather(6_000)}, "SS"),
    # soft experts
    "rewards of the state": ("solve", {**SOFT, "expert": certirl.SoftExpert(reward="state")}, "EE"),
    "rough log-odds": ("solve", {**SOFT, "expert": certirl.SoftExpert(), "basis": Legendre(2)}, "EE"),
    "few decisions": (
        "solve",
        {**ERRS, "source": decisions(1_000), "dynamics": QUARTER},
        "EEB",
    ),
    # without noise
    "coarse cells": (
        "solve",
        {**TRAY, "dynamics": certirl.dynamics.Deterministic(0.9, points=5)},
        "VC",
    ),
    # certificates of one's own rewards, and refutations
    "certify, few draws": ("certify", {**HEAT, "tail": HEATED.tail, "samples": 1_000}, "NC"),
    "certify, no tail": ("certify", {**HEAT, "samples": 9_000}, "TNC"),
    "certify, few columns": (
        "certify",
        {**HEAT, "source": NARROW, "columns": 11, "tail": CUT, "samples": 50_000},
        "NC",
    ),
    "certify, wrong reward": (
        "certify",
        {**HEAT, "tail": HEATED.tail, "reward": cold, "samples": 9_000},
        "NC",
    ),
    "certify, known noise": (
        "certify",
        {**ROOM, "reward": comfort, "dynamics": KNOWN, "samples": 300},
        "NC",
    ),
    "refute, few draws": (
        "refute",
        {**COOL, "basis": Legendre(3), "tail": COOLED.tail, "samples": 300},
        "UR",
    ),
    "refute, no tail": ("refute", {**COOL, "basis": Legendre(2), "samples": 20_000}, "IR"),
}


SLOW = {
    "policy without tail", "policy with few draws", "known noise, few", "narrow tube", "short log", "log without tail",
    "moved input", "rewards of the state", "few decisions", "few draws", "few draws, no tail", "no tail",
    "conflict, proved", "conflict, no tail", "certify, no tail", "certify, few columns", "certify, few draws",
    "certify, known noise", "certify, wrong reward", "rough log-odds",
}  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES])
@pytest.mark.filterwarnings("ignore")
def test_following_the_line_leads_to_what_was_asked_for(case):
    function, given, expected = CASES[case]
    assert words(f"certirl.{function}", given) == expected


def test_answers_that_are_what_was_asked_for_say_nothing():
    walk = certirl.problems.soft_walk()
    answers = [
        certirl.solve(**P, columns=3),
        certirl.solve(**TRIED),
        certirl.solve(walk.log(episodes=100, steps=50, rng=0), discount=0.9, expert=certirl.SoftExpert()),
    ]
    assert [word(answer) for answer in answers] == ["S", "V", "E"]
    assert not any(answer.next or re.search(r"^ +next:? ", str(answer), re.M) for answer in answers)


def test_the_line_is_kept_in_files_and_in_json(tmp_path):
    first = certirl.solve(**P3, samples=60)
    again = certirl.load(first.save(tmp_path / "first.npz"))
    assert again.next == first.next == again.to_dict()["next"] and str(again) == str(first)


FILES = """
import certirl
import numpy as np

ONE = certirl.problems.random_polynomial(seed=7)
THREE_ACTIONS = certirl.problems.random_polynomial(seed=7, actions=3, degree=10)
FOUR = certirl.problems.random_polynomial(seed=4, actions=4)

class Room:
    n_actions, domain = 2, ((10.0, 30.0),)

    def sample(self, states, action, rng):
        mean = states - 0.15 * (states - 10) + (3.0, 0.0)[action]
        return np.clip(mean + rng.normal(0, 1, states.shape), 10, 30)

class Tray:
    n_actions, domain = 2, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(0.9 * states + (0.1, -0.1)[action], -1, 1)

def thermostat(states):
    return (states[:, 0] > 20).astype(int)

def level(states):
    return (states[:, 0] > 0).astype(int)
"""
ASKED = "--expert room.py:thermostat --discount 0.8 --plot ''"
COMMANDS = {
    "trials": (f"solve room.py:Room {ASKED} --samples 3000 --trials 0", 0, 0),
    "columns and a tail": (f"solve room.py:Room {ASKED} --max-samples=100000 --delta 0.05", 3, 0),
    "known noise": (f"solve room.py:Room {ASKED} --samples 600 --known-noise 1 --delta 0.05 --seed 3", 3, 0),
    "a wider tube": (f"solve room.py:Room {ASKED} --sampl 8000 --known-noise 1 --delta 0.05 --tube 0.1", 3, 0),
    "slack": ("solve room.py:ONE --discount 0.7 --expert 1 --slack 0.1 --objective l1 --basis legendre --size 7", 5, 0),
    "a conflict": ("solve room.py:FOUR --discount 0.7 --basis legendre --size 3 --columns 3 --samples 20000", 4, 0),
    "a controller": (f"solve seen.csv --domain 10 30 {ASKED}", 5, 0),
    "cells": ("cells room.py:Tray --discount 0.9 --points 5 --refine 1 --lipschitz 0.9 --expert room.py:level", 3, 0),
    "a certificate": ("certify room.npz room.py:Room --samples 300 --known-noise 1 --expert room.py:thermostat", 3, 0),
}


def write_files():
    """A simulator, its logs and a reward, in the working folder."""
    Path("room.py").write_text(FILES)
    for name, drawn in {"few.csv": log(4_000), "seen.csv": log(4_000, expert=thermostat)}.items():
        rows = np.column_stack([drawn.states, drawn.actions, drawn.next_states])
        np.savetxt(name, rows, delimiter=",", header="state,action,next_state", comments="", fmt="%.9g")
    certirl.solve(**TRIED).save("room.npz")


FAST = ("trials", "a controller")


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] * (c not in FAST)) for c in COMMANDS])
def test_commands_print_commands(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_files()
    command, code, then = COMMANDS[case]
    assert main(shlex.split(command)) == code
    line = next(line for line in capsys.readouterr().out.splitlines() if re.match(" +next:? ", line))
    program, *again = shlex.split(line.partition("next")[2].lstrip(": "), comments=True)
    assert program == "certirl" and main(again) == then
