"""Saved certificates and refutations of every kind, each small enough to be checked in a fraction of a second."""

import copy
import functools
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import certirl
import files
from certirl import Legendre, product
from certirl.data.policy import CELLS_ALONG
from certirl.proof import certify as certify_module
from certirl.proof.certify import refute
from certirl.proof.training import fit_surrogates
from systems import Coins

PROVED = {"delta": 0.05, "tail": 0, "rng": 0, "progress": False}
SETTINGS = PROVED | {"discount": 0.7}
LINE, PLANE = Legendre(2), product(Legendre(2), Legendre(2))


STEADY, TORN = Coins((0.7, 0.3), (0.1, 0.1)), Coins((0.5, 0.5), (0.4, -0.4))
STEADY_PLANE = Coins([(0.7, 0.7), (0.3, 0.3)], (0.1, 0.1), 2)
TORN_PLANE = Coins([(0.5, 0.5), (0.5, 0.5)], [(0.4, 0.0), (-0.4, 0.0)], 2)
MIDDLE = Coins([(0.5,), (0.8,), (0.2,)], (0.1, 0.1, 0.1))  # action 0 lies between the two others
MIDDLE_PLANE = Coins([(0.5, 0.5), (0.8, 0.6), (0.2, 0.7), (0.5, 0.2)], (0.1,) * 4, 2)
THREE = np.array([(0.7, 0.7), (0.3, 0.7), (0.7, 0.3)])  # one alternative acts on each coordinate


def climb(states):
    return states[:, 0]


def away_from_zero(states):
    return (states[:, 0] < 0).astype(int)


def to_and_fro(states):
    return (np.abs(states[:, 0]) < 0.5).astype(int)


def _policy_solution():
    return certirl.solve(TORN, columns=2, samples=20_000, expert=away_from_zero, tube=0.4, **SETTINGS)


def _certify(reward, dynamics, columns, samples=20_000, **changes):
    return certirl.certify(reward, dynamics, columns=columns, samples=samples, **SETTINGS | {"expert": 0} | changes)


def _episodes(dynamics, episodes=12_000):
    """Two steps of each, from states all over the domain."""
    rng = np.random.default_rng(0)
    states, actions = [rng.uniform(-1, 1, (episodes, 1))], rng.integers(2, size=(2, episodes))
    for taken in actions:
        ahead = np.stack([dynamics.sample(states[-1], action, rng) for action in range(2)])
        states.append(ahead[taken, np.arange(episodes)])
    rows = np.concatenate(states[:-1]), actions.ravel(), np.concatenate(states[1:])
    return certirl.Transitions(*rows, domain=dynamics.domain, episodes=np.tile(np.arange(episodes), 2))


def at_points(make):
    """A certificate with the error of the value bounded at points, which so few columns do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify_module, "fit_surrogates", functools.partial(fit_surrogates, pointwise=True))
        return make()


def _plane_reward():
    return certirl.Reward(PLANE.on(STEADY_PLANE.domain), np.array([0.0, 1.0, 1.0]))


def _refute(dynamics, basis=LINE, columns=2, samples=20_000, **changes):
    return refute(dynamics, **PROVED | {"expert": 0, "basis": basis, "columns": columns, "samples": samples} | changes)


MAKERS = {
    "action": lambda: certirl.solve(STEADY, expert=0, basis=Legendre(4), columns=2, samples=20_000, **SETTINGS),
    "box": lambda: _certify(_plane_reward(), STEADY_PLANE, PLANE),
    "sum": lambda: certirl.solve(
        Coins(THREE, (0.1,) * 3, 2), expert=0, basis=Legendre(4), columns=2, samples=40_000,
        components={"left": [0], "right": [1]}, **SETTINGS,
    ),
    "policy": lambda: _certify(climb, TORN, Legendre(2), expert=away_from_zero, tube=0.4),
    "policy solution": _policy_solution,
    "policy box": lambda: _certify(climb, TORN_PLANE, PLANE, samples=40_000, expert=away_from_zero, tube=0.5),
    "episodes": lambda: _certify(climb, _episodes(STEADY), Legendre(2), None),
    "policy at points": lambda: at_points(MAKERS["policy"]),
    "refutation": lambda: _refute(MIDDLE),
    "refuted box": lambda: _refute(MIDDLE_PLANE, PLANE, 3),
    "refuted sum": lambda: _refute(Coins([(0.5, 0.5)] * 3, (0.0, 0.4, -0.4), 2), components=[[0], [1]]),
    "refuted policy": lambda: _refute(TORN, expert=to_and_fro, tube=0.1),
    "open": lambda: _refute(STEADY),
}  # fmt: skip
CERTIFICATES, REFUTATIONS = tuple(MAKERS)[:8], tuple(MAKERS)[8:]


@functools.lru_cache
def saved(kind):
    """The record of a kind: a solution, a certificate or a refutation."""
    with pytest.MonkeyPatch.context() as patch:
        for dimension, cells in ((1, 40), (2, 12)):
            patch.setitem(CELLS_ALONG, dimension, cells)
        return MAKERS[kind]()


def proof(kind):
    """Its certificate or refutation."""
    found = saved(kind)
    return getattr(found, "certificate", found)


@functools.lru_cache
def _stored(kind):
    with TemporaryDirectory() as folder:
        return files.parts(saved(kind).save(f"{folder}/whole.npz"))


def contents(kind):
    """The header and the arrays of its file, to be changed at will."""
    header, arrays = _stored(kind)
    return copy.deepcopy(header), {name: array.copy() for name, array in arrays.items()}


def claim_of(header):
    """The certificate or refutation in a header."""
    return header["certificate"] if header["type"] == "Solution" else header


def place(arrays, name, number=0):
    """The place of the array of this name that a bound rests on."""
    found = [place for place in arrays if place.split(".")[-1] == name and "grounds." in place]
    return found[number]


def grounds(header, part):
    """What the bounds rest on: the surrogates, the sums …"""
    return [own[part] for own in claim_of(header)["grounds"]]
