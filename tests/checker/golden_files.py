"""The golden files: one of every kind of record, in every version of the format since they are kept readable.

    python tests/checker/golden_files.py

writes those of the present version to tests/checker/golden/<version>, with what `certirl.load` and `certirl.check` must
say about each in verdicts.json. Files of earlier versions are never written again: they stand for those of users.
"""

import json
import pkgutil
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import saved_records
import test_cell_files

import certirl
import certirl_check
from certirl.ground import archive
from certirl.ground.domain import as_domain
from certirl.proof.soft import prove_band

FOLDER = Path(__file__).resolve().parent / "golden"
VERDICTS = "verdicts.json"
BOX = ((0.0, 1.0), (-2.0, 2.0))


class Line:
    """s' = clip(0.5 s ± 0.4 + 0.3 ξ): a drift that is affine, and noise that is known."""

    n_actions, domain = 2, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(0.5 * states + (0.4, -0.4)[action] + 0.3 * rng.normal(size=states.shape), -1, 1)


class Shore(Line):
    """The same, where the left end is terminal."""

    def terminal(self, states):
        return states[:, 0] < -0.9


def _switch(states):
    return (states[:, 0] > 0).astype(int)


def _height(states):
    return states[:, 0]


def _known_noise(source, reward=_height, **changes):
    asked = {"dynamics": certirl.dynamics.AffineGaussian(0.3, cells=30), "discount": 0.7, "expert": 0} | changes
    return certirl.certify(reward, source, **asked)


def _steps(count):
    """A trajectory of `Line`, with names."""
    rng, states = np.random.default_rng(0), [np.zeros(1)]
    actions = rng.integers(2, size=count)
    for action in actions:
        states.append(Line().sample(states[-1], action, rng))
    path = np.array(states)
    names = {"action_names": ("up", "down"), "coordinate_names": ("height",)}
    return certirl.Transitions(path[:-1], actions, path[1:], domain=Line.domain, **names)


def _table(count=40):
    log = _steps(count)
    columns = {"state": log.states[:, 0], "action": log.actions, "next_state": log.next_states[:, 0]}
    np.savez("steps.npz", **columns)
    return certirl.logs.stream("steps.npz", domain=Line.domain)


def _solve(source, **changes):
    return certirl.solve(source, **{"expert": 0, "discount": 0.7, "rng": 0, "progress": False} | changes)


def _features():
    features = {"height": _height, "up": lambda states, action: 0.0 * states[:, 0] + (action == 0)}
    return _solve(Line(), expert=_switch, samples=400, method=certirl.FeatureForm(features))


def _reward(basis, **more):
    return certirl.Reward(basis, np.linspace(-1.0, 1.0, basis.size), **more)


def _choices():
    """Rows of a soft expert who takes action 1 with probability 1/(1 + e^−s)."""
    log, rng = _steps(3000), np.random.default_rng(1)
    chances = 1 / (1 + np.exp(-log.states[:, 0]))
    taken = (rng.random(len(log)) < chances).astype(int)
    noise = 0.3 * rng.normal(size=(len(log), 1))
    ends = np.clip(0.5 * log.states + np.where(taken, -0.4, 0.4)[:, None] + noise, -1, 1)
    return certirl.Transitions(log.states, taken, ends, domain=Line.domain, independent=True)


def _band(columns=None, **declared):
    return prove_band(certirl.Legendre(2), _choices(), discount=0.5, columns=columns, **declared)


def _ends():
    """A reward of terminal states: -3 at the left end, which is terminal."""
    boxes = np.array([[[-np.inf], [-0.9]]])
    ended = certirl.data.source.TerminalBoxes(boxes, 0.0, 0.0, 10)
    return _reward(certirl.Legendre(3).on(Line.domain), ended=ended, ends=certirl.functions.ends.Ends(boxes, -3.0))


def _sigmoids():
    states = np.random.default_rng(0).uniform((0.0, -2.0), (1.0, 2.0), (100, 2))
    return certirl.functions.sigmoids.Sigmoids.of_data(6, states, as_domain(BOX), periodic=(0,))


def _sum():
    component = certirl.functions.components.Component
    parts = (component("a", (0,), certirl.Legendre(3, (0, 1))), component("b", (1,), certirl.Chebyshev(2, (-2, 2))))
    return certirl.functions.components.SumBasis(parts)


def _paid(reward, **changes):
    """A certificate of a reward of state and action, of coins."""
    asked = {"discount": 0.5, "expert": saved_records.away_from_zero, "tube": 0.4, "columns": certirl.Legendre(2)}
    coins = saved_records.Coins((0.5, 0.5), (0.4, -0.4))
    return certirl.certify(reward, coins, **asked | {"tail": 0.003, "samples": 40_000, "rng": 0} | changes)


MAKERS = {kind.replace(" ", "-"): lambda kind=kind: saved_records.saved(kind) for kind in saved_records.MAKERS} | {
    "paid": lambda: _paid(certirl.Reward(certirl.Legendre(2), [[0.0, 0.5], [0.0, -0.5]])),
    "paid-function": lambda: _paid(lambda states, action: (1 - action) * (2 + states[:, 0]), expert=0, tube=None),
    "inexact": lambda: _paid(_reward(certirl.Legendre(2)), suboptimality=0.2, tube=None),
    "cells-value": test_cell_files.MAKERS["value"],
    "cells-reward": test_cell_files.MAKERS["reward"],
    "cells-car": lambda: test_cell_files._environment("MountainCar-v0", (37, 21)),
    "cells-pendulum": lambda: test_cell_files._environment("Pendulum-v1", (20, 21), actions=3),
    "known-noise": lambda: _known_noise(Line(), samples=600, rng=0),
    "known-noise-log": lambda: _known_noise(_steps(6000)),
    "known-noise-policy": lambda: _known_noise(
        Line(), lambda states: -np.abs(states[:, 0]), samples=3000, rng=0, expert=_switch, tube=0.5
    ),
    "band-known-noise": lambda: _band(dynamics=certirl.dynamics.AffineGaussian(0.3, cells=30)),
    "band-columns": lambda: _band(certirl.Legendre(2), tail=0.05, rng=0),
    "solution": lambda: _solve(_steps(600), basis=certirl.Legendre(4), columns=3),
    "solution-policy": lambda: _solve(Shore(), expert=_switch, samples=4000, basis=certirl.Legendre(5)),
    "solution-features": _features,
    "solution-infeasible": lambda: _solve(saved_records.MIDDLE, basis=certirl.Legendre(2), columns=2, samples=2000),
    "solution-soft": lambda: _solve(
        certirl.problems.soft_walk().log(episodes=20, steps=30, rng=0), expert=certirl.SoftExpert()
    ),
    "solution-soft-band": lambda: certirl.solve(
        _choices(), expert=certirl.SoftExpert(reference=0), discount=0.5, basis=certirl.Legendre(2), delta=0.05,
        dynamics=certirl.dynamics.AffineGaussian(0.3),
    ),
    "moments": lambda: certirl.steps.measure(_steps(40), basis=certirl.Legendre(3)),
    "moments-file": lambda: certirl.steps.measure(_table(), basis=certirl.Legendre(3)),
    "reward-product": lambda: _reward(certirl.product(certirl.Legendre(3), certirl.Fourier(3)).on(BOX)),
    "reward-sigmoids": lambda: _reward(_sigmoids()),
    "reward-cells": lambda: _reward(certirl.Cells((4, 3), (0,), BOX)),
    "reward-sum": lambda: _reward(_sum()),
    "reward-ends": _ends,
}  # fmt: skip
AS_TEXT = ("reward-product",)  # written as JSON too


def records():
    """Every class that a file can hold, by name."""
    for module in pkgutil.walk_packages(certirl.__path__, "certirl."):
        if module.name.split(".")[1] in ("functions", "data", "fit", "proof", "environments", "solver", "ground"):
            import_module(module.name)
    return {name: cls for name, cls in archive._RECORDS.items() if cls.__module__.startswith("certirl.")}


def fields(header):
    """The fields of every record in a header, by the name of its class."""
    found = {}
    for part in header.values() if isinstance(header, dict) else header if isinstance(header, list) else ():
        found |= fields(part)
    if isinstance(header, dict) and "type" in header:
        found[header["type"]] = sorted(set(header) - {"type"})
    return found


def verdict(path):
    """What is said about a file: in words and numbers that no later version may change."""
    record = certirl.load(path)
    said = {"kind": type(record).__name__}
    for name in ("status", "holds", "margin", "delta", "discount", "samples"):
        if hasattr(record, name):
            said[name] = getattr(record, name)
    if said["kind"] in certirl_check.KINDS or said["kind"] in certirl_check.PROOFS:
        checked = certirl.check(path)
        said |= {"verdict": checked.verdict, "claimed": checked.claimed}
        if said["kind"] == "CellCertificate":  # the unit of such files: values, γ times the margin
            said |= {name: said["discount"] * said[name] for name in ("margin", "claimed")}
    if said["kind"] == "Moments":
        said |= {"counts": record.counts.tolist(), "files": [file.name for file in record.files]}
    if said["kind"] == "Reward":
        box = np.array(record.domain).T
        said["first"], said["middle"] = np.ravel(record(np.stack([box[0], box.mean(axis=0)]))).tolist()
    return said


def _packed(path):
    """The same file with its members compressed, as those of the repository should be small."""
    with zipfile.ZipFile(path) as stored:
        members = {name: stored.read(name) for name in stored.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


def write():
    """Write the golden files of the present version."""
    folder = FOLDER / str(archive.VERSION)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    paths = []
    for name, make in MAKERS.items():
        made = make()
        paths.append(_packed(made.save(folder / name)))
        if name in AS_TEXT:
            paths.append(made.export(folder / f"{name}.json"))
    said = {path.name: verdict(path) for path in paths}
    (folder / VERDICTS).write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{len(paths)} golden files of format version {archive.VERSION}, {size / 1000:.0f} kB")


if __name__ == "__main__":
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        write()
