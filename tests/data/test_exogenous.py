"""Coordinates that no action moves: every reader, source and file remembers them, and data may contradict them."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl.cli import main
from certirl.data.inputs import moved_inputs
from certirl.data.source import as_source
from certirl.data.transitions import concatenate
from refusals import refused


def rooms(n=1500, seed=0):
    """A room heated or not, the weather and the hour, which no action moves."""
    rng = np.random.default_rng(seed)
    room, outdoor, hour, action = (
        rng.uniform(15, 25, n),
        rng.uniform(-5, 5, n),
        rng.uniform(0, 24, n),
        rng.integers(2, size=n),
    )
    return {
        **{"room": room, "outdoor": outdoor, "hour": hour, "heat": action},
        "room_next": np.clip(room + np.where(action, 0.8, -0.8) + 0.02 * outdoor + 0.2 * rng.normal(size=n), 15, 25),
        "outdoor_next": np.clip(0.9 * outdoor + 0.3 * rng.normal(size=n), -5, 5),
        "hour_next": hour + 0.25,
    }


BOX = {"domain": ((15, 25), (-5, 5), (0, 24)), "periodic": ("hour",)}
WHO = {"state": ("room", "outdoor", "hour"), "action": "heat", "next_state": ("room_next", "outdoor_next", "hour_next")}


@pytest.mark.parametrize("kind", ["table", "file", "episodes", "arrays", "simulator"])
def test_every_reader_remembers_exogenous_coordinates_by_their_names(kind, tmp_path):
    table, asked = rooms(60), {**BOX, "exogenous": ("hour", "outdoor")}
    states, after = (np.column_stack([table[name] for name in WHO[part]]) for part in ("state", "next_state"))
    if kind == "episodes":
        pairs = [(np.stack(pair), [action]) for *pair, action in zip(states, after, table["heat"], strict=True)]
        log = certirl.logs.from_episodes(pairs, coordinate_names=WHO["state"], **asked)
    elif kind == "arrays":
        log = certirl.Transitions(states, table["heat"], after, coordinate_names=WHO["state"], **asked)
    elif kind == "simulator":
        log = certirl.steps.sample(
            House(), basis=certirl.product(*[certirl.Legendre(2)] * 3), samples=30, rng=0
        ).record()
        assert as_source(House()).exogenous == (1, 2)
    else:
        source = table if kind == "table" else tmp_path / "rooms.npz"
        np.savez(tmp_path / "rooms.npz", **table)
        log = certirl.logs.read(source, **WHO, **asked)
        assert certirl.logs.stream(source, **WHO, **asked).exogenous == (1, 2)
    assert log.exogenous == (1, 2) and log.periodic == (2,) and as_source(log).exogenous == (1, 2)
    assert "periodic in coordinate hour, exogenous in coordinate outdoor and hour; per action" in str(log)
    parts = [log.where(log.actions == action) for action in range(2)]
    assert concatenate(parts).exogenous == parts[0].exogenous == log.divided(0.5, np.random.default_rng(0))[0].exogenous
    refused("joined only on the same domain", concatenate, [log, replace(log, exogenous=(1,))])


class House:
    n_actions, domain, periodic, exogenous = 2, BOX["domain"], ("hour",), ["outdoor", 2]
    coordinate_names = WHO["state"]

    def sample(self, states, action, rng):
        after = (
            states
            + np.array([0.8 if action else -0.8, 0, 0.25])
            + np.array([0.2, 0.3, 0]) * rng.normal(size=states.shape)
        )
        after[:, 2] %= 24
        return np.clip(after, *np.transpose(self.domain))


def test_an_answer_says_what_no_action_moves_and_says_so_when_it_is_loaded(tmp_path):
    log = certirl.logs.read(rooms(), **WHO, **BOX, exogenous=("outdoor", 2))
    solution = certirl.solve(log, discount=0.9, expert=lambda s: (s[:, 0] < 20).astype(int))
    solution.save(tmp_path / "rooms.npz")
    for each in (solution, certirl.load(tmp_path / "rooms.npz")):
        assert each.stats.exogenous == (1, 2)
        assert each.stats.lines()["exogenous"] == "no action moves coordinates outdoor and hour"


@pytest.mark.parametrize(
    ("exogenous", "sentence"),
    [
        (("room", "outdoor", "hour"), "exogenous names every coordinate, and actions must move something: leave out"),
        ((0, 1, 2), "exogenous names every coordinate"),
        (("rain",), r"coordinates 0 … 2 \(room, outdoor, hour\); got \('rain',\)"),
        ("rain", r"exogenous must be a tuple of coordinates, .* got 'rain'"),
        ((3,), "exogenous must be a tuple of coordinates"),
        (1, "exogenous must be a tuple of coordinates"),
        (
            ("heat",),
            r"exogenous='heat' names a column that is no coordinate of the state: add it to state, and its next",
        ),
    ],
)
def test_coordinates_that_cannot_be_exogenous_are_refused(exogenous, sentence):
    refused(sentence, certirl.logs.read, rooms(60), **WHO, **BOX, exogenous=exogenous)
    refused(sentence, certirl.logs.stream, rooms(60), **WHO, **BOX, exogenous=exogenous)
    if exogenous != ("heat",):
        arrays = [np.zeros((4, 3)), [0, 1, 0, 1], np.ones((4, 3))]
        names = {"coordinate_names": WHO["state"], "domain": ((0, 1),) * 3}
        refused(sentence, certirl.Transitions, *arrays, exogenous=exogenous, **names)
        refused(sentence, certirl.logs.from_episodes, [(np.zeros((4, 3)), [0, 1, 0])], exogenous=exogenous, **names)


def test_one_name_is_a_list_of_one_and_arrays_without_names_have_numbers():
    log = certirl.logs.read(rooms(60), **WHO, **BOX, exogenous="outdoor")
    assert log.exogenous == (1,)
    refused(r"coordinates 0 … 1; got \('x',\)", certirl.Transitions, np.eye(2), [0, 1], np.eye(2), exogenous=("x",))
    named = [(log.states, log.actions[:-1])]
    refused("exogenous must be a tuple", certirl.logs.from_episodes, named, domain=log.domain, exogenous=("outdoor",))


def test_the_command_takes_names_and_numbers_of_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("rooms.npz", **rooms())
    np.savez("seen.npz", **{"state": np.linspace(15, 25, 99), "action": np.repeat([1, 0], [50, 49])})
    box = [word for low, high in BOX["domain"] for word in ("--domain", str(low), str(high))]
    columns = ["--state", *WHO["state"], "--action", "heat", "--next-state", *WHO["next_state"]]
    asked = [
        "solve",
        "rooms.npz",
        *box,
        *columns,
        "--periodic",
        "2",
        "--discount",
        "0.9",
        "--expert",
        "1",
        "--plot",
        "",
    ]
    main([*asked, "--exogenous", "outdoor", "2"])
    assert "exogenous in coordinate outdoor and hour" in capsys.readouterr().out
    assert certirl.load("reward.npz").stats.exogenous == (1, 2)
    assert main([*asked, "--exogenous", "rain"]) == 2
    assert "--exogenous must be a tuple of coordinates" in capsys.readouterr().err


def heated(seed, *, moved=0.0, trend=0.0, n=2_000):
    """A room that an expert keeps at 20 °C, one time in ten by chance; heating moves the weather by ``moved``."""
    rng, rows, room, outdoor, drift = np.random.default_rng(seed), [], 20.0, 0.0, 0.0
    for _ in range(n + 1):
        heat = rng.integers(2) if rng.random() < 0.1 else int(room < 20 - 0.2 * outdoor)
        rows.append((room, outdoor, heat))
        drift = 0.95 * drift + trend * rng.normal()
        outdoor = np.clip(0.9 * outdoor + drift + 0.2 * rng.normal() + moved * heat, -5, 5)
        room = np.clip(room + (0.3 if heat else -0.3) + 0.02 * outdoor + 0.1 * rng.normal(), 15, 25)
    values = np.array(rows)
    settings = {"domain": ((15, 25), (-5, 5)), "coordinate_names": ("room", "outdoor"), "exogenous": ("outdoor",)}
    return certirl.Transitions(values[:-1, :2], values[:-1, 2].astype(int), values[1:, :2], **settings)


def test_actions_that_move_what_was_declared_exogenous_are_found():
    for seed in range(10):
        found = moved_inputs(heated(seed, moved=0.3))
        assert "of the next outdoor" in found and moved_inputs(replace(heated(seed, moved=0.3), exogenous=())) == ""


@pytest.mark.slow
@pytest.mark.parametrize("trend", [0.0, 0.02])
def test_inputs_that_nobody_moves_are_not_doubted(trend):
    assert not any(moved_inputs(heated(seed, trend=trend)) for seed in range(40))
    assert sum(bool(moved_inputs(heated(seed, trend=trend, n=1_000), 0.05)) for seed in range(60)) <= 8


def test_too_few_rows_or_one_action_say_nothing():
    assert moved_inputs(heated(0, moved=0.3, n=60)) == ""
    log = heated(0, moved=0.3)
    assert moved_inputs(log.where(log.actions == 0)) == ""


def test_the_first_line_says_that_an_input_is_moved():
    asked = {"discount": 0.9, "expert": lambda states: (states[:, 0] < 20 - 0.2 * states[:, 1]).astype(int)}
    first = str(certirl.solve(heated(0, moved=0.3), **asked)).splitlines()[0]
    assert "actions seem to move an exogenous coordinate" in first and "do not declare it exogenous" in first
    assert "exogenous coordinate" not in str(certirl.solve(heated(0), **asked)).splitlines()[0]
