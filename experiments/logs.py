"""Simulated twins of recorded logs: what certirl says of them as they come, and once it is told what was missing.

    python experiments/logs.py [--only PART] [--fast] [--workers N] [--seed S] [--out DIR]

Every log is of its people or controllers alone; experts are estimated from it (`certirl.policy_from`).

- tracker: people hold a cursor at 0 with three pushes, late and in error now and then, while a sum of five sines pushes
  it, too. Whether the first line names memory, with the sines and without; and where R is largest along the place, once
  their value is a column that no action moves.
- thermostat: 3,000 rows of 15 minutes of a heating that switches 0.3 degrees beside set points by the hour. Where R is
  largest along the indoor temperature, by day and by night, with the set point or the hour as a column, the outdoor
  temperature and a shared drift; and what the first line says without these.
- reservoir: releases in three levels by a storage that is aimed at by season; 3,000 rows of three days.
- drivers: three people follow a leader by a noisy intelligent-driver model, two of them alike. The gap at which R is
  largest beside the one they desire, and which pairs `certirl.compare` tells apart.
- shuffled: the same logs with their actions in random order.
- memory: a room from one trajectory with known noise, of which a proof is asked, where the noise or the last action is
  remembered, and where nothing is.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

import certirl
import study

SAID = "depends on the step before"
SHARED = certirl.dynamics.SharedDrift(degree=1)


@dataclass(frozen=True)
class Arguments:
    """Runs of each kind, and rows of a log."""

    runs: int = 10
    memory_runs: int = 200
    rows: int = 3_000
    proof_rows: int = 20_000
    seed: int = 0


FAST = Arguments(runs=1, memory_runs=2, rows=1_000, proof_rows=2_000)
REPEATED = ("runs",)


def tracker(seed: int, rows: int, *, hidden: bool) -> dict[str, Any]:
    """Ten runs of a person who holds a cursor at 0."""
    rng, table = np.random.default_rng([seed, 1]), Table("run", "step", "place", "speed", "wave", "push")
    frequency, phase = rng.uniform(0.01, 0.06, 5), rng.uniform(0, 2 * np.pi, (10, 5))
    for run in range(10):
        place, speed = rng.uniform(-0.5, 0.5), 0.0
        seen = [(place, speed)] * 3  # two steps late
        for step in range(rows // 10 + 1):
            seen = [*seen[1:], (place, speed)]
            wave = 0.006 * hidden * np.sin(2 * np.pi * frequency * step + phase[run]).sum()
            aim = seen[0][0] + 4 * seen[0][1] + 0.05 * rng.normal()
            push = int(rng.integers(-1, 2)) if rng.random() < 0.05 else -int(np.sign(aim)) * (abs(aim) > 0.15)
            table.add(run, step, place, speed, wave, push)
            speed = 0.9 * speed + 0.03 * push + wave + 0.01 * rng.normal()
            place += speed
    return table.columns()


def thermostat(seed: int, rows: int) -> dict[str, Any]:
    """A heating that switches 0.3 degrees above and below the set point of the hour."""
    rng, table = np.random.default_rng([seed, 2]), Table("step", "indoor", "outdoor", "set_point", "hour", "heating")
    indoor, weather, heats = 19.0, 0.0, 0
    for step in range(rows + 1):
        hour, weather = step % 96 / 4, 0.99 * weather + 0.3 * rng.normal()
        set_point = 20.5 if 6 <= hour < 22 else 17.0
        outdoor = 4 + 3 * np.sin(2 * np.pi * (hour - 9) / 24) + weather
        heats = heats if abs(indoor - set_point) < 0.3 else int(indoor < set_point)
        table.add(step, indoor, outdoor, set_point, hour, heats)
        indoor += 0.02 * (outdoor - indoor) + 0.5 * heats + 0.05 * rng.normal()
    return table.columns()


def aimed_at(day: Any) -> Any:
    """The storage that is aimed at on a day of the year."""
    return 60 + 15 * np.cos(2 * np.pi * (day - 210) / 365)


def reservoir(seed: int, rows: int) -> dict[str, Any]:
    """A reservoir with inflow by season, of which more or less is released beside a band around the aim."""
    rng, table = np.random.default_rng([seed, 3]), Table("step", "storage", "inflow", "day", "release")
    storage, wet = 60.0, 0.0
    for step in range(rows + 1):
        day, wet = 3.0 * step % 365, 0.8 * wet + 0.2 * rng.normal()
        inflow = 1.5 * np.exp(0.5 * np.sin(2 * np.pi * (day - 60) / 365) + wet)
        off = storage - aimed_at(day) + 1.5 * rng.normal()
        release = 1 + int(off > 3) - int(off < -3)
        table.add(step, storage, inflow, day, release)
        storage += inflow - (0.5, 1.5, 4.0)[release] - 0.002 * storage + 0.2 * rng.normal()
    return table.columns()


STANDING, FREE = 2.0, 33.0  # the gap at rest, and the speed on a free road
PEOPLE = {"ann": 1.0, "ben": 1.0, "cid": 1.4}  # seconds of distance


def desired(seconds: float, speed: float) -> float:
    """The gap at which the intelligent-driver model neither accelerates nor brakes behind a leader of this speed."""
    return (STANDING + speed * seconds) / np.sqrt(1 - (speed / FREE) ** 4)


def drivers(seed: int, rows: int) -> dict[str, Any]:
    """Ten runs of each of three people behind a leader, in steps of half a second."""
    rng = np.random.default_rng([seed, 4])
    table = Table("run", "step", "gap", "speed", "leader", "pedal", "person")
    for number, (person, seconds) in enumerate(PEOPLE.items()):
        for run in range(10):
            leader = speed = rng.uniform(10, 20)
            gap = desired(seconds, speed) * rng.uniform(0.8, 1.2)
            for step in range(rows // 20 + 1):
                wanted = STANDING + speed * seconds + speed * (speed - leader) / (2 * np.sqrt(1.2 * 1.8))
                wish = 1.2 * (1 - (speed / FREE) ** 4 - (wanted / gap) ** 2) + 0.25 * rng.normal()
                pedal = 1 + int(wish > 0.3) - int(wish < -0.3)
                table.add(10 * number + run, step, gap, speed, leader, pedal, person)
                gap = max(gap + 0.5 * (leader - speed) + 0.1 * rng.normal(), 1.0)
                speed = float(np.clip(speed + 0.5 * (pedal - 1) + 0.05 * rng.normal(), 0, FREE))
                leader = float(np.clip(leader + 0.025 * (15 - leader) + 0.35 * rng.normal(), 3, 28))
    return table.columns()


class Table:
    """Rows of named columns."""

    def __init__(self, *names: str) -> None:
        self.names, self.rows = names, list[tuple[Any, ...]]()

    def add(self, *row: Any) -> None:
        """One more row."""
        self.rows.append(row)

    def columns(self) -> dict[str, Any]:
        """The columns by name."""
        return dict(zip(self.names, map(np.array, zip(*self.rows, strict=True)), strict=True))


READ: dict[str, dict[str, Any]] = {
    "tracker": {"state": ("place", "speed"), "action": "push", "episode": "run", "step": "step"},
    "thermostat": {"state": ("indoor",), "action": "heating", "step": "step"},
    "reservoir": {"state": ("storage", "inflow", "day"), "action": "release", "step": "step"},
    "drivers": {"state": ("gap", "speed", "leader"), "action": "pedal", "episode": "run", "step": "step"},
}
BOXES = {"indoor": (14, 24), "set_point": (16, 22), "outdoor": (-20, 25), "hour": (0, 24)}
BOXES |= {"storage": (25, 95), "inflow": (0, 20), "day": (0, 365)}


def read(name: str, table: dict[str, Any], *inputs: str, **settings: Any) -> certirl.Transitions:
    """The log of a table, with further columns that no action moves."""
    asked = READ[name] | settings
    asked["state"] = (*asked["state"], *inputs)
    if inputs:
        asked["exogenous"] = inputs
    if any(column in BOXES for column in asked["state"]):
        asked["domain"] = tuple(BOXES[column] for column in asked["state"])
        asked["periodic"] = tuple(column for column in asked["state"] if column in ("hour", "day"))
    action = asked["action"]
    lowest = table[action].min()
    return certirl.logs.read(table | {action: table[action] - lowest}, **asked)


def solved(log: certirl.Transitions, **asked: Any) -> Any:
    """The answer for the people of the log."""
    return certirl.solve(log, expert=certirl.policy_from(log), discount=0.9, rng=0, **asked)


def largest(solution: Any, log: certirl.Transitions, along: int, **others: float) -> float:
    """Where R is largest along a coordinate, the others being given, among all but the outer rows; NaN without R."""
    if solution.reward is None:
        return float("nan")
    reward, places = solution.reward, np.linspace(*np.quantile(log.states[:, along], (0.01, 0.99)), 801)
    states = np.stack([np.full(801, others.get(name, 0.0)) for name in log.coordinate_names], axis=1)
    states[:, along] = places
    values = np.array(reward(states, 0) if reward.of_actions else reward(states))  # costs move every place alike
    known = ~reward.extrapolated(states)
    return float(places[np.where(known, values, -np.inf).argmax()]) if known.any() else float("nan")


def told(solution: Any) -> dict[str, Any]:
    """What an answer says first."""
    return {"status": solution.status, "first line": str(solution).splitlines()[0]}


def track(task: list[Any]) -> dict[str, Any]:
    """One log of a tracker: without the sines, with them, and with their value as a column."""
    kind, rows, seed = task
    inputs = ("wave",) if kind == "column" else ()
    log = read("tracker", tracker(seed, rows, hidden=kind != "control"), *inputs)
    method = certirl.ValueForm(of=("place",))
    solution = solved(log, method=method)
    return {"kind": kind, "seed": seed, "peak": largest(solution, log, 0)} | told(solution)


def alarm(task: list[Any]) -> dict[str, Any]:
    """Whether memory is found in one log of a tracker."""
    kind, rows, seed = task
    log = read("tracker", tracker(seed, rows, hidden=kind == "hidden"))
    return {"kind": kind, "seed": seed, "found": certirl.diagnose.memory(log).found}


def heat(task: list[Any]) -> dict[str, Any]:
    """One log of a thermostat: as it is, or with what was missing."""
    kind, rows, seed = task
    table = thermostat(seed, rows)
    if kind == "nothing added":
        return {"kind": kind, "seed": seed} | told(solved(read("thermostat", table)))
    column = kind.replace(" ", "_")
    log = read("thermostat", table, column, "outdoor")
    solution = solved(log, dynamics=SHARED, method=certirl.ValueForm(of=("indoor", column)))
    off = {
        f"off at {aim:g}": largest(solution, log, 0, outdoor=4, set_point=aim, hour=hour) - aim
        for aim, hour in ((17.0, 2.0), (20.5, 14.0))
    }
    return {"kind": kind, "seed": seed} | off | told(solution)


def release(task: list[Any]) -> dict[str, Any]:
    """One log of a reservoir."""
    rows, seed = task
    log = read("reservoir", reservoir(seed, rows), exogenous=("inflow", "day"))
    solution = solved(log, dynamics=SHARED, method=certirl.ValueForm(of=("storage", "day")))
    days = (30.0, 120.0, 210.0, 300.0)
    off = [largest(solution, log, 0, inflow=1.5, day=day) - float(aimed_at(day)) for day in days]
    return {"seed": seed, "off": off} | told(solution)


def follow(task: list[Any]) -> dict[str, Any]:
    """One log of three drivers."""
    rows, seed = task
    table = drivers(seed, rows)
    log = read("drivers", table, exogenous=("leader",))
    ends = np.append(table["run"][1:] != table["run"][:-1], True)  # the last row of a run is no transition
    method = certirl.ValueForm(of=("gap", "speed"))
    who = table["person"][~ends]
    found = certirl.compare(log, by=who, discount=0.9, dynamics=SHARED, method=method, rng=0)
    gaps = {
        name: float("nan") if answer is None else largest(answer, log.where(who == name), 0, speed=15.0, leader=15.0)
        for name, answer in found.each.items()
    }
    return {
        "seed": seed,
        "gaps": gaps,
        "off": {name: gap / desired(PEOPLE[name], 15.0) - 1 for name, gap in gaps.items()},
        "told apart": {" and ".join(pair.names): pair.differs for pair in found.pairs},
        "statuses": {name: "refused" if answer is None else answer.status for name, answer in found.each.items()},
    }


def shuffle(task: list[Any]) -> dict[str, Any]:
    """One log whose actions are in random order."""
    name, rows, seed = task
    table = tracker(seed, rows, hidden=False) if name == "tracker" else thermostat(seed, rows)
    action = READ[name]["action"]
    table[action] = np.random.default_rng(seed).permutation(table[action])
    inputs = () if name == "tracker" else ("set_point", "outdoor")
    return {"log": name, "seed": seed} | told(solved(read(name, table, *inputs)))


REMEMBERED = ("noise", "action", "nothing")


def remember(task: list[Any]) -> dict[str, Any]:
    """A room in one trajectory: a proof is asked for a thermostat, and the system may remember."""
    kind, rows, seed = task
    rng = np.random.default_rng([seed, 5])
    share = float(rng.uniform(0.3, 0.9))  # of the noise, or of an action's effect, that comes from the step before
    before, noise, states, actions = 0.0, 0.0, np.empty(rows + 1), rng.integers(2, size=rows)
    states[0] = 20.0
    for step in range(rows):
        fresh = rng.normal()
        noise = share * noise + np.sqrt(1 - share**2) * fresh if kind == "noise" else fresh
        acts = (1 - share) * actions[step] + share * before if kind == "action" else float(actions[step])
        before = float(actions[step])
        states[step + 1] = np.clip(states[step] - 0.15 * (states[step] - 10) + 3 * acts + noise, 4, 36)
    log = certirl.Transitions(states[:-1], actions, states[1:], domain=(4, 36))
    known = certirl.dynamics.AffineGaussian(std=1)
    asked: dict[str, Any] = {"discount": 0.8, "delta": 0.05, "dynamics": known, "rng": 0}
    try:
        solution = certirl.solve(log, expert=lambda rows: (rows[:, 0] < 20).astype(int), **asked)
    except ValueError as refusal:
        return {"remembers": kind, "share": share, "seed": seed, "status": "refused", "first line": str(refusal)}
    return {"remembers": kind, "share": share, "seed": seed} | told(solution)


def counted(of: list[bool]) -> str:
    """How many, of how many."""
    return f"{sum(of)} of {len(of)}"


def tracked(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Trackers with sines that are hidden, none, and a column."""
    kinds, seeds = ("hidden", "control", "column"), range(arguments.seed, arguments.seed + arguments.runs)
    runs = runner(track, [[kind, 2 * arguments.rows, seed] for kind in kinds for seed in seeds], unit="logs")
    more = [[kind, 2 * arguments.rows, 100 + seed] for kind in kinds[:2] for seed in range(10 * arguments.runs)]
    found = runner(alarm, more, unit="logs")
    alarms = {kind: counted([each["found"] for each in found if each["kind"] == kind]) for kind in kinds[:2]}
    of = {kind: [run for run in runs if run["kind"] == kind] for kind in kinds}
    said = {kind: counted([SAID in run["first line"] for run in of[kind]]) for kind in ("hidden", "control")}
    near = counted([abs(run["peak"]) <= 0.15 for run in of["column"]])
    without = counted([abs(run["peak"]) <= 0.15 for run in of["hidden"]])
    summary = {
        "memory in the first line": said,
        "memory found in further logs": alarms,
        "peak within 0.15 of the target": {"column": near, "hidden": without},
    }
    sentence = (
        f"memory is in the first line in {said['hidden']} logs with hidden sines and {said['control']} without, and "
        f"found in {alarms['hidden']} and {alarms['control']} further ones; with their value as a column R is largest "
        f"within 0.15 of the target in {near}, without it in {without}."
    )
    return study.Findings(summary, runs, None, sentence)


def heated(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Thermostats with the set point, with the hour, and with nothing added."""
    kinds, seeds = ("set point", "hour", "nothing added"), range(arguments.seed, arguments.seed + arguments.runs)
    runs = runner(heat, [[kind, arguments.rows, seed] for kind in kinds for seed in seeds], unit="logs")
    of = {kind: [run for run in runs if run["kind"] == kind] for kind in kinds}
    near = {
        kind: counted([max(abs(run["off at 17"]), abs(run["off at 20.5"])) <= 0.5 for run in of[kind]])
        for kind in kinds[:2]
    }
    said = counted([SAID in run["first line"] or "predicted" in run["first line"] for run in of["nothing added"]])
    statuses = {kind: Counter(run["status"] for run in of[kind]) for kind in kinds}
    sentence = (
        f"by day and by night R is largest within 0.5 degrees of the set point in {near['set point']} logs with the "
        f"set point, in {near['hour']} with the hour; with neither the first line says so in {said}."
    )
    return study.Findings({"within 0.5": near, "said": said, "statuses": statuses}, runs, None, sentence)


def released(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Reservoirs."""
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    runs = runner(release, [[arguments.rows, seed] for seed in seeds], unit="logs")
    off = np.abs([run["off"] for run in runs])
    near = counted([bool(row.mean() <= 6) for row in off])
    statuses = Counter(run["status"] for run in runs)
    sentence = (
        f"in four seasons R is largest within 6 of the storage aimed at (45 to 75), on average, in {near} logs; the "
        f"median distance is {np.median(off):.1f}."
    )
    return study.Findings(
        {"within 6": near, "median": float(np.median(off)), "statuses": statuses}, runs, None, sentence
    )


def followed(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Drivers."""
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    runs = runner(follow, [[arguments.rows, seed] for seed in seeds], unit="logs")
    near = {name: counted([abs(run["off"][name]) <= 0.15 for run in runs]) for name in PEOPLE}
    apart = {pair: counted([run["told apart"][pair] for run in runs]) for pair in sorted(runs[0]["told apart"])}
    sentence = (
        f"at 15 m/s R is largest within 15 % of the gap desired in {', '.join(f'{x} ({n})' for n, x in near.items())}; "
        f"told apart: {', '.join(f'{pair} {x}' for pair, x in apart.items())}; ann and ben are alike."
    )
    return study.Findings({"within 15 %": near, "told apart": apart}, runs, None, sentence)


def shuffled(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Logs with actions in random order."""
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    tasks = [[name, arguments.rows, seed] for name in ("tracker", "thermostat") for seed in seeds]
    runs = runner(shuffle, tasks, unit="logs")
    statuses = Counter(run["status"] for run in runs)
    sentence = f"with actions in random order {statuses['undetermined']} of {len(runs)} logs are undetermined."
    return study.Findings({"statuses": statuses}, runs, None, sentence)


def remembered(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Proofs from trajectories that remember, and from some that do not."""
    half, more = arguments.memory_runs // 2, arguments.memory_runs // 20 + 1
    counts = dict(zip(REMEMBERED, (half, half, more), strict=True))
    tasks = [[kind, arguments.proof_rows, arguments.seed + i] for kind, count in counts.items() for i in range(count)]
    runs = runner(remember, tasks, unit="proofs")
    statuses = {kind: Counter(run["status"] for run in runs if run["remembers"] == kind) for kind in REMEMBERED}
    proved = {kind: f"{statuses[kind]['certified']} of {counts[kind]}" for kind in REMEMBERED}
    sentence = (
        f"where noise is remembered {proved['noise']} proofs succeed, where actions are {proved['action']}; where "
        f"nothing is {proved['nothing']}."
    )
    return study.Findings({"statuses": statuses}, runs, None, sentence)


PARTS = {
    "tracker": tracked,
    "thermostat": heated,
    "reservoir": released,
    "drivers": followed,
    "shuffled": shuffled,
    "memory": remembered,
}


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
