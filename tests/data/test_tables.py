"""Tables of transitions and of episodes: every format and every way of reading gives the same transitions."""

import decimal
import gzip
import os
import pickle
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import certirl
from certirl.data import tables
from certirl.data.formats import _Parquet
from certirl.data.transitions import concatenate
from certirl.ground import unpacking
from refusals import refused
from sizes import sizes

FORMATS = ("parquet", "csv", "npz")
KINDS = ("transitions", "rows that follow", "next states", "ends")
BOX = {"domain": (0, 1), "n_actions": 3}
BASIS = certirl.Legendre(5)
ARRAYS = {
    "state": "states",
    "action": "actions",
    "next_state": "next_states",
    "episode": "episodes",
    "terminated": "terminal",
}


def walks(count=15, seed=0):
    """Episodes of up to six steps: terminated, cut off, and cut off with a last action without a next state."""
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        length = int(rng.integers(0, 7))
        ending = ("terminated", "cut off", "action at the end")[number % 3]
        found.append((rng.random(length + 1), rng.integers(3, size=length + 1), ending))
    return found


def columns_of(walks, kind):
    """The episodes as columns of a table of one kind."""
    after, rows = kind != "rows that follow", []
    for number, (states, actions, ending) in enumerate(walks):
        last = len(states) - 1
        for step in range(last if after else last + 1):
            final = step == (last - 1 if after else last)
            action = None if step == last and ending != "action at the end" else int(actions[step])
            over = ending == "terminated" and final and last > 0
            next_state = states[step + 1] if after else None
            rows.append((number, step, states[step], action, next_state, over, final and not over))
    names = ["episode", "step", "state", "action", "next_state", "terminated", "truncated"]
    every = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    left_out = {
        "transitions": {"episode", "step", "terminated", "truncated"},
        "rows that follow": {"next_state", "truncated"},
        "next states": {"truncated"},
        "ends": {"episode", "step"},
    }
    return {name: values for name, values in every.items() if name not in left_out[kind]}


def write(path, columns, group=None):
    """A table in the format that the suffix names."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=group)
    elif path.suffix == ".csv":
        lines = [",".join("" if v is None else str(v) for v in row) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join([",".join(columns), *lines]) + "\n")
    else:
        arrays = {name: [np.nan if v is None else v for v in values] for name, values in columns.items()}
        np.savez(path, **{ARRAYS.get(name, name): values for name, values in arrays.items()})
    return path


def expected(walks, kind="next states"):
    """The transitions by hand, with the rows that keep terminal states where they are."""
    found = []
    for states, actions, ending in walks:
        found += [(states[i], int(actions[i]), states[i + 1]) for i in range(len(states) - 1)]
        if ending == "terminated" and len(states) > 1 and kind != "transitions":
            found += [(states[-1], action, states[-1]) for action in range(3)]
    return sorted(found)


def in_stream(stream):
    rows = [(piece, s, t) for piece in stream for s, t in zip(piece.states, piece.next_states[0], strict=True)]
    return sorted((s[0], piece.actions[0], t[0]) for piece, s, t in rows)


def in_log(log):
    return sorted(zip(log.states[:, 0], log.actions.tolist(), log.next_states[:, 0], strict=True))


def assert_same_sums(one, other, tolerance=1e-12):
    assert (one.rows, one.columns) == (other.rows, other.columns)
    for name in ("counts", "gram", "cross", "outer"):
        scale = np.abs(getattr(other, name)).max()
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=tolerance * scale)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_every_way_of_reading_gives_the_same_transitions(tmp_path, format, kind):
    rows, truth = columns_of(walks(), kind), expected(walks(), kind)
    path = write(tmp_path / f"log.{format}", rows, 2)
    log = tables.read(path, **BOX)
    assert in_log(log) == truth
    for size in (1, 4, 1000):
        stream = tables.stream(path, rows=size, **BOX)
        assert in_stream(stream) == truth
        assert stream.chunks() == tuple(pickle.loads(pickle.dumps(chunk)) for chunk in stream.chunks())
        pieces = [piece for chunk in stream.chunks() for piece in chunk.pieces()]
        assert [piece.actions for piece in pieces] == [piece.actions for piece in stream]
        assert all(len(piece.actions) == 1 for piece in pieces)
    for workers in (1, 2):
        measured = certirl.steps.measure(tables.stream(path, rows=4, **BOX), basis=BASIS, columns=3, map=workers)
        assert_same_sums(measured, certirl.steps.measure(log, basis=BASIS, columns=3))
        assert [file.rows for file in measured.files] == [len(truth)] and not measured.paired
    if kind == "transitions":
        assert log.episodes is None and log.terminal is None
    else:
        numbers = [number for number, (states, _, _) in enumerate(walks()) for _ in states[1:]]
        assert log.episodes[log.episodes >= 0].tolist() == np.unique(numbers, return_inverse=True)[1].tolist()
        assert len(tables.read(path, absorb=False, **BOX)) == len(numbers)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_stream_finds_the_box_the_actions_and_the_rows(tmp_path, format, kind):
    columns = columns_of(walks(), kind)
    path = write(tmp_path / f"log.{format}", columns, 5)
    log, stream = tables.read(path, absorb=False), tables.stream(path, rows=4, absorb=False)
    assert (stream.domain, stream.n_actions, len(in_stream(stream))) == (log.domain, log.n_actions, len(log))
    assert log.domain_from_data and str(stream).startswith(f"{len(columns['state'])} rows in 1 file, states in [")


@pytest.mark.thinned(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_several_files_are_one_log_whose_episodes_end_with_their_file(tmp_path, format, kind):
    parts = [walks(seed=part) for part in range(3)]
    for number, part in enumerate(parts):
        write(tmp_path / f"part-{number}.{format}", columns_of(part, kind), 7)
    (tmp_path / "_SUCCESS").write_text("")
    truth = sorted(row for part in parts for row in expected(part, kind))
    names = [str(tmp_path / f"part-{number}.{format}") for number in (2, 0, 1)]
    logs = [tables.read(paths, **BOX) for paths in (tmp_path, str(tmp_path / "part-*"), names)]
    for log in logs:
        np.testing.assert_array_equal(log.states, logs[0].states)
    assert in_log(logs[0]) == in_stream(tables.stream(tmp_path, rows=7, **BOX)) == truth
    assert len(tables.stream(tmp_path).files) == 3
    if kind != "transitions":
        steps = [[len(states) > 1 for states, _, _ in part] for part in parts]
        assert len(np.unique(logs[0].episodes[logs[0].episodes >= 0])) == np.sum(steps)


@pytest.mark.parametrize("kind", KINDS[1:3])
@pytest.mark.parametrize("format", FORMATS)
def test_tables_that_are_not_sorted_are_sorted_in_memory(tmp_path, format, kind):
    rows = columns_of(walks(), kind)
    order = np.random.default_rng(0).permutation(len(rows["state"]))
    path = write(tmp_path / f"log.{format}", {name: [values[i] for i in order] for name, values in rows.items()})
    assert in_log(tables.read(path, **BOX)) == expected(walks())
    refused(r"belongs before the row above it, and a stream takes", lambda: list(tables.stream(path, **BOX)))


NUMBERS = ["0.5", "+1e-1", ".5", "5.", " 0.25 ", "0.1\t", "-0.125", "1E-3"]
NO_NUMBERS = ["1_0", "٣", "0x1", "1,5", "nan(1)x", "--1", "1e", "2026-01-31", "True"]
TIMES = [
    "2026-01-31T12:00:00",
    "2026-01-31",
    "2026-01-31 12:00:00.25Z",
    "20260131T120001",
    "2026-01-31T13:00:02+01:00",
    "7",
]


@pytest.mark.parametrize("format", ["csv", "npz", "mapping", "objects"])
def test_a_cell_is_read_alike_whatever_stands_around_it(tmp_path, format):
    """Arrow converts a column of numbers or times at once; where a cell is neither, each is looked at by itself."""
    rng, wide = np.random.default_rng(0), {"domain": (-1, 6), "n_actions": 3}

    def source(columns):
        if format in ("csv", "npz"):
            return write(tmp_path / f"log.{format}", columns)
        return {
            name: np.array(values, dtype=object if format == "objects" else None) for name, values in columns.items()
        }

    texts = rng.choice(NUMBERS, 40).tolist()
    table = {"state": texts, "action": rng.choice(["0", "1", "True", "false"], 40).tolist(), "next_state": texts[::-1]}
    log = tables.read(source(table), **wide)
    assert log.states[:, 0].tolist() == [float(text) for text in texts]
    assert log.actions.tolist() == [
        {"True": 1, "false": 0}.get(action) or int(action == "1") for action in table["action"]
    ]
    for size in (1, 7):
        assert in_stream(tables.stream(source(table), rows=size, **wide)) == in_log(log)
    for text in NO_NUMBERS:
        if format == "csv" and "," in text:
            text = f'"{text}"'
        with pytest.raises(ValueError, match=r"the column states? holds '.*' in row 3, not a number") as caught:
            tables.read(source(table | {"state": [*texts[:3], text, *texts[4:]]}), **wide)
        assert text.strip('"') in str(caught.value)
    rows = {"state": np.linspace(0, 1, 5).tolist(), "action": [0, 1, 0, 1, 0], "episode": [0] * 5}
    orders = [tables.read(source(rows | {"step": times}), **wide) for times in (TIMES[:5], sorted(TIMES[1:]))]
    assert orders[0].states[:, 0].tolist() == [0.25, 0.0, 0.5, 0.75]  # all within three seconds, but a date is midnight
    assert len(orders[1]) == 4


def test_lines_that_are_no_rows_are_left_out_and_the_others_are_counted(tmp_path):
    path = tmp_path / "log.csv"
    lines = ["#state,action,next_state", "# 0,0,0", "", "0.5,a#b,0.25", "   ", " # 1,1,1"]
    lines += ['"0.25","a#b",0', '1,"x,y",0.5']
    path.write_text("\n".join(lines))
    log = tables.read(path)
    assert in_log(log) == [(0.25, 0, 0.0), (0.5, 0, 0.25), (1.0, 1, 0.5)] and log.action_names == ("a#b", "x,y")
    for size in (1, 2):
        assert in_stream(tables.stream(path, rows=size)) == in_log(log)
    for line, sentence in (
        ("0,0", "row 3 has 2 fields, the header 3: '0,0'; the line is cut short"),
        ('0,"0,0', "row 3 has a quote that is not closed: '0,\"0,0'"),
        ("0,0,0,", "row 3 has 4 fields, the header 3: '0,0,0,'; write decimal points, not commas"),
    ):
        path.write_text("\n".join([*lines, line, "0,0,0"]))
        for size in (1, 2, 100):
            refused(sentence, lambda size=size: list(tables.stream(path, rows=size)))


def test_columns_are_found_by_name_in_any_order_and_named_if_they_lack(tmp_path):
    (tmp_path / "d.csv").write_text("state_1, state_0,action,x,next_state_0,next_state_1\n1,2,0,x,3,4\n5,6,1,y,7,8\n")
    data = tables.read(tmp_path / "d.csv")
    assert data.states.tolist() == [[2, 1], [6, 5]] and data.next_states.tolist() == [[3, 4], [7, 8]]
    np.savez(tmp_path / "d.npz", observations=np.zeros(3))
    refused(r"needs .* arrays states, actions, next_states, .*; it has observations", tables.read, tmp_path / "d.npz")


def test_all_rows_without_a_value_are_counted_and_named_by_their_episodes():
    rows = {"episode": ["a", "a", "b", "b"], "state": [0.0, np.nan, 0.5, np.nan], "action": ["x", None, "y", None]}
    with pytest.raises(
        ValueError, match=r"state is missing or not finite in row 1 \(episode a\) and 1 further row: corr"
    ):
        tables.read_demonstrations(rows)
    with pytest.raises(
        ValueError, match=r"action is missing before the end of an episode in row 0 \(episode a\) and 1 further row: c"
    ):
        tables.read(rows | {"state": [0.0, 1.0, 0.5, 1.0], "action": [None, "x", None, "y"]})


@pytest.mark.parametrize("count", sizes(3, 8))
def test_every_border_between_two_chunks_is_tried(tmp_path, count):
    """Two row groups, cut before every single row: each kind of row is the first of a chunk once."""
    whole = pa.table(columns_of(walks(count), "rows that follow"))
    for cut in range(1, len(whole)):
        with pq.ParquetWriter(tmp_path / "cut.parquet", whole.schema) as writer:
            writer.write_table(whole.slice(0, cut))
            writer.write_table(whole.slice(0, 0))  # a row group without a row
            writer.write_table(whole.slice(cut))
        assert in_stream(tables.stream(tmp_path / "cut.parquet", rows=1, **BOX)) == expected(walks(count))


@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
@pytest.mark.parametrize("format", FORMATS)
def test_episodes_may_have_names(tmp_path, format, rows):
    table = columns_of(walks(), "rows that follow")
    named = table | {"episode": [f"run {9 - number % 10}{number}" for number in table["episode"]]}
    path = write(tmp_path / f"names.{format}", named, 4)
    assert in_stream(tables.stream(path, rows=rows, **BOX)) == in_log(tables.read(path, **BOX)) == expected(walks())


def test_controls_other_names_and_periodic_coordinates_are_read_alike(tmp_path):
    table = columns_of(walks(), "rows that follow")
    table["action"] = [None if a is None else (-2.0, 0.1, 1.9)[a] for a in table["action"]]
    table["run"], table["state"] = table.pop("episode"), [state + 3 for state in table["state"]]
    settings = {"actions": [-2, 0, 2], "episode": "run", "absorb": False, "periodic": [0], "domain": (0, 1)}
    for path in (write(tmp_path / "log.csv", table), write(tmp_path / "log.npz", table)):
        log = tables.read(path, **settings)
        assert in_stream(tables.stream(path, rows=5, **settings)) == in_log(log)
        np.testing.assert_allclose(in_log(log), [row for row in expected(walks()) if row[0] != row[2]], atol=1e-9)
        assert log.n_actions == 3 and "nearest of 3 actions" in str(log)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_by_themselves_may_leave_the_domain_where_that_is_asked_for(tmp_path, format):
    path = write(tmp_path / f"log.{format}", {"state": [0.5, 1.5], "action": [0, 1], "next_state": [-0.6, 0.5]})
    refused(r"2 of 2 .* leave the domain \[0, 1\]: 2 in .* \(farthest -0.6, row 0\)", tables.read, path, domain=(0, 1))
    clipped = tables.read(path, domain=(0, 1), outside="clip")
    assert in_log(clipped) == [(0.5, 0, 0.0), (1.0, 1, 0.5)] and "moved to its edge" in clipped.notes[0]
    assert in_stream(tables.stream(path, domain=(0, 1), outside="clip")) == in_log(clipped)
    assert len(tables.read(path, domain=(-1, 1), outside="drop", n_actions=2)) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_rows_taken_by_themselves_keep_their_order_and_what_is_known_of_episodes(tmp_path, format):
    path = write(tmp_path / f"log.{format}", columns_of(walks(), "next states"))
    log = tables.read(path, episode="", **BOX)
    table = columns_of(walks(), "next states")
    assert log.states[:, 0].tolist() == table["state"] and log.terminal.tolist() == table["terminated"]
    assert log.episodes.tolist() == np.unique(table["episode"], return_inverse=True)[1].tolist()
    pieces = [piece for piece in tables.stream(path, episode="", rows=7, **BOX) if piece.actions == (1,)]
    np.testing.assert_array_equal(np.concatenate([piece.states for piece in pieces]), log.of_action(1)[0])


def test_demonstrations_are_read_from_whatever_holds_states_and_actions(tmp_path):
    table = columns_of(walks(), "rows that follow")
    acted = [row for row, action in enumerate(table["action"]) if action is not None]
    states, actions = np.array(table["state"])[acted], np.array(table["action"], dtype=float)[acted]
    numbers = np.unique(np.array(table["episode"])[acted], return_inverse=True)[1]
    for format in FORMATS:
        found, _ = tables.read_demonstrations(write(tmp_path / f"log.{format}", table))
        for values, truth in zip(found, (states[:, None], actions, numbers), strict=True):
            np.testing.assert_array_equal(values, truth)
    np.savez(tmp_path / "bare.npz", states=states, actions=actions)
    assert tables.read_demonstrations(tmp_path / "bare.npz")[0][2] is None
    np.savez(tmp_path / "wrong.npz", states=states)
    write(tmp_path / "wrong.csv", {"state": [0], "next_state": [1]})
    for name in ("wrong.npz", "wrong.csv"):
        with pytest.raises(ValueError, match=rf"{name}: demonstrations need the columns state .* and action"):
            tables.read_demonstrations(tmp_path / name)


def test_a_stream_of_parquet_reads_no_rows_for_its_box_if_there_are_statistics(tmp_path, monkeypatch):
    table = pa.table(columns_of(walks(), "transitions"))
    pq.write_table(table, tmp_path / "with.parquet", row_group_size=5)
    pq.write_table(table, tmp_path / "without.parquet", write_statistics=False)
    slow = tables.stream(tmp_path / "without.parquet")
    monkeypatch.setattr(_Parquet, "batches", lambda *_: pytest.fail("rows were read"))
    fast = tables.stream(tmp_path / "with.parquet")
    assert (fast.domain, fast.n_actions, fast.total) == (slow.domain, slow.n_actions, slow.total)


@pytest.mark.parametrize(
    ("real", "whole"),
    [
        (pa.float32(), pa.int8()),
        (pa.float64(), pa.float64()),
        (pa.decimal128(12, 6), pa.uint32()),
        (pa.int64(), pa.int64()),
    ],
    ids=str,
)
def test_numbers_of_all_kinds_are_read(tmp_path, real, whole):
    states = [0, 1, 1, 0] if pa.types.is_integer(real) else [0.5, 0.25, -0.125, 1.0]
    if pa.types.is_decimal(real):
        states = [decimal.Decimal(str(value)) for value in states]
    column = pa.array(states, real)
    table = pa.table({"state": column, "action": pa.array([0, 1, 0, 1]).cast(whole), "next_state": column})
    pq.write_table(table, tmp_path / "d.parquet")
    data = tables.read(tmp_path / "d.parquet", domain=(-1, 1))
    np.testing.assert_array_equal(data.states[:, 0], np.array(states, dtype=float))
    assert data.actions.tolist() == [0, 1, 0, 1]
    assert tables.stream(tmp_path / "d.parquet").n_actions == 2


@pytest.mark.parametrize("edge", [0.1, 1000.4])
def test_single_precision_at_the_edge_is_not_outside(tmp_path, edge):
    states = np.array([edge - 0.1, edge], dtype=np.float32)  # as doubles they may lie outside
    assert float(np.float32(0.1)) > 0.1 * (1 + 1e-9)
    pq.write_table(pa.table({"state": states, "action": [0, 1], "next_state": states}), tmp_path / "d.parquet")
    assert tables.read(tmp_path / "d.parquet", domain=(edge - 0.1, edge)).states.max() == edge
    refused("leave the domain", tables.read, tmp_path / "d.parquet", domain=(edge - 0.1, edge - 0.001))


# What is bad gets a sentence that names the file and the row.

GOOD = {"state": [0.0, 0.5, -0.5], "action": [0, 1, 0], "next_state": [0.1, 0.2, 0.3]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state": [0.0, None, 0.1]}, "states? is missing or not finite in row 1"),
        ({"action": [0, 1, None]}, "actions? is missing or not finite in row 2"),
        ({"next_state": [0.0, np.nan, 0.1]}, "next_states? is missing or not finite in row 1"),
        ({"state": [0.0, 0.1, np.inf]}, "states? is missing or not finite in row 2"),
        (
            {"action": ["left", "right", "up"]},
            "holds 3 names of actions, left, right, up, and n_actions is 2: list all names in actions instead",
        ),
        ({"state": ["left", "0", "1"]}, "the column states? holds 'left' in row 0, not a number"),
        (
            {"state": [[0.0], None, [0.5]]},
            "lists must be equally long, and none missing|missing or not finite in row 1",
        ),
        ({"state": [True, False, True]}, "holds bool, not numbers|holds 'True' in row 0|got an array of bool"),
        ({"action": [0.0, 0.5, 1.0]}, "whole numbers 0, 1, …, got 0.5 in row 1"),
        ({"action": [0, 1, -1]}, "whole numbers 0, 1, …, got -1 in row 2"),
        ({"action": [0, 1, 5]}, "action 5 in row 2 is not among the 2 actions"),
        ({"action": [0.0, 1.0, 1e300]}, "whole numbers"),
        ({"state": [0.0, 7.0, 0.1]}, r"1 of [123] transitions leave the domain \[-1, 1\]: .* \(farthest 7, row 1\)"),
        ({"state": None, "s": [0, 1, 2]}, "needs the columns .*; it has .*actions?, next_states?"),
        ({"state": None, "state_0": [0, 1, 2], "state_1": [0, 1, 2]}, "needs the columns"),
    ],
)
@pytest.mark.parametrize("episodes", [False, True], ids=["transitions", "episodes"])
@pytest.mark.parametrize("format", FORMATS)
def test_bad_rows_are_named(tmp_path, format, episodes, change, sentence):
    columns = {name: values for name, values in (GOOD | change).items() if values is not None}
    columns |= {"episode": [0, 0, 1]} if episodes else {}
    if format != "parquet" and any(isinstance(value, list) for values in columns.values() for value in values):
        pytest.skip("only Parquet has lists")
    file = write(tmp_path / f"bad.{format}", columns)
    for read in (tables.read, lambda *paths, **given: list(tables.stream(*paths, **given, rows=1))):
        with pytest.raises(ValueError, match=sentence) as caught:
            read(file, domain=(-1, 1), n_actions=2)
        assert str(file) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"state": [0.0, None, 0.1]}, {"state": [0.0, np.inf, 0.1]}, {"action": [0, 1, -1]}])
def test_a_stream_without_a_box_finds_bad_rows(tmp_path, change):
    refused(r"bad\.parquet: .* row", lambda: list(tables.stream(write(tmp_path / "bad.parquet", GOOD | change))))


EPISODES = {"episode": [0, 0, 0], "state": [0.0, 0.1, 0.2], "action": [0, 1, None]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state": [0.0, None, 0.2]}, "states? is missing or not finite in row 1"),
        ({"state": [0.0, 0.1, float("nan")]}, "states? is missing or not finite in row 2"),
        ({"state": [0.0, 0.1, 2.0]}, r"1 of [12] transitions leave the domain .* \(farthest 2, row 1\)"),
        ({"episode": [0, None, 1]}, "episodes? is missing or not finite in row 1"),
        ({"episode": ["a", "", "b"]}, "episodes? is missing or not finite in row 1"),
        ({"episode": [1, 1, 0]}, "row 2 belongs before the row above it"),
        ({"episode": ["a", "b", "a"]}, "row 2 belongs before the row above it"),
        ({"step": [1, 0, 2]}, "row 1 belongs before the row above it, and a stream takes"),
        ({"terminated": [True, False, False]}, "an episode continues after it was terminated in row 0"),
        ({"terminated": [0, 0, 7]}, "(terminated|terminal) must be True or False, got 7 in row 2"),
        (
            {"action": [None, 1, None]},
            "actions? is missing (or not|before the end)|row 0 has no action, and is not the last",
        ),
        ({"action": [0, 10**6, None]}, "action 1000000 in row 1 is"),
        ({"action": [0, 0.5, None]}, "actions must be whole numbers 0, 1, …, got 0.5 in row 1"),
    ],
)
@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("format", FORMATS)
def test_episodes_that_no_stream_can_read_are_refused_by_file_and_row(tmp_path, format, change, sentence, rows):
    path = write(tmp_path / f"log.{format}", EPISODES | change, rows)
    refused(rf"log.{format}: {sentence}", lambda: list(tables.stream(path, rows=rows, **BOX)))


HEADER = "state,action,next_state\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEADER + "0.1,0,0.2\n6,4,1,4,6\n", "row 1 has 5 fields, the header 3: '6,4,1,4,6'; write decimal points, not"),
        (HEADER + "0.1,0,0.2\n\n0.3,1\n", "row 1 has 2 fields, the header 3: '0.3,1'; the line is cut short"),
        (
            HEADER + '"0,5",0,"0,7"\n',
            "the column state holds '0,5' in row 0, not a number; write decimal points, not commas",
        ),
        ("state;action,next_state\n0,5;0;0,7\n", "columns may be separated by ',' or ';': write delimiter=','"),
        ("state;action;next_state\n0,5;0;1.000,7\n", "the column next_state holds '1.000,7' in row 0, not a number"),
        (HEADER + "0.1,0,0.2\n0.3,1,1e999\n", "next_state is missing or not finite in row 1"),
        ("0.1,0,0.2\n0.3,1,0.1\n", "the first row holds numbers: add a header line such as state,action,next_state"),
        ("note," + HEADER + '"a,0.1,0,0.2\nb",0.3,1,0.4\n', "row 0 has a quote that is not closed"),
        ("state_0,state_2,action,next_state_0,next_state_2\n0,1,0,1,0\n", "a column state_2 but none state_1"),
        ("state,state_0,action,next_state\n0,1,0,1\n", "both a column state and a column state_0"),
        ("episode,state,action\n0,0.5,0,1\n", "row 0 has 4 fields, the header 3"),
        ("episode;state;action\n0;0,5;0\n0;x;\n", "the column state holds 'x' in row 1, not a number"),
        ("state,action\n0,0\n", "needs the columns state, action, next_state .* a column episode or, .* step='t'"),
        ("state,action,terminated\n0,0,1\n", "a table of episodes needs the columns episode"),
        ("episode,state,action,done\n0,0,0,1\n0,1,,1\n", "does not say whether an episode was terminated or cut off"),
        ("episode,state,action\n0,left,0\n0,1,0\n", "the column state holds 'left' in row 0, not a number"),
        ("episode,state,action\n0,0,0\n0,0.1,x\n", "the column action holds 'x' in row 1, not a number"),
        ("episode,state,action\n0,0,0\nb,0.1,\n", "the column episode holds 'b' in row 1, not a number"),
        ("trajectory,state,action\n0,0,0\n,0.1,\n", "trajectory is missing or not finite in row 1"),
        ("episode,state,state,action\n0,0,0,0\n", "more than one column state"),
    ],
)
def test_columns_and_cells_that_are_wrong_are_refused_by_file(tmp_path, text, sentence):
    (tmp_path / "log.csv").write_text(text)
    for read in (tables.read, tables.stream, lambda path: list(tables.stream(path, rows=1, **BOX))):
        with pytest.raises(ValueError, match="log.csv: .*" + sentence) as caught:
            read(tmp_path / "log.csv")
        assert "\n" not in str(caught.value)


def test_wrong_calls_are_refused(tmp_path):
    path = write(tmp_path / "log.csv", columns_of(walks(), "rows that follow"))
    for settings, sentence in (
        ({"outside": "drop", **BOX}, "cannot say what it dropped"),
        ({"state": lambda s: s}, "with state= the domain"),
        ({"episode": "run"}, "log.csv: episode='run' names no column; it has episode, step, state, action, terminated"),
        ({"domain": ((0, 1), (0, 1))}, r"log.csv: states have 1 coordinates but the domain \[0, 1\] × \[0, 1\] has 2"),
        ({"periodic": [0]}, "a periodic coordinate needs a domain"),
        ({"rows": 0}, "rows must be a positive whole number"),
        ({"rows": 1.5}, "rows must be a positive whole number"),
        ({"rows": True}, "rows must be a positive whole number"),
    ):
        refused(sentence, tables.stream, path, **settings)
    for read in (tables.read, tables.stream):
        with pytest.raises(TypeError, match=r"tables have no setting 'domian' \(perhaps 'domain'\)"):
            read(path, domian=(0, 1))


def test_files_that_are_cut_short_or_something_else(tmp_path):
    file = write(tmp_path / "whole.parquet", columns_of(walks(300), "transitions"))
    whole, cut = file.read_bytes(), tmp_path / "cut.parquet"
    for content in (b"", b"PAR1", whole[: len(whole) // 2], whole[:-5], b"state,action,next_state\n0,0,0\n"):
        cut.write_bytes(content)
        with pytest.raises(ValueError, match=r"cut\.parquet: it is not a Parquet file, or it is damaged or cut short"):
            list(tables.stream(cut, domain=(-1, 1)))


def test_files_that_unpack_to_too_much_are_refused_with_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "FREELY", 10**6)
    with gzip.open(tmp_path / "bomb.csv.gz", "wb") as stream:
        stream.write(b"state,action,next_state\n" + b"0.5,0,0.5\n" * 400_000)
    np.savez_compressed(tmp_path / "bomb.npz", **dict.fromkeys(["states", "actions", "next_states"], np.zeros(500_000)))
    for name in ("bomb.csv.gz", "bomb.npz"):
        limit = "it unpacks to more than 1 MB and more than 100 times its own size: unpack it first if that is meant"
        refused(f"{name}: {limit}", tables.read, tmp_path / name, domain=(0, 1))
    rng = np.random.default_rng(0)
    rows = b"".join(b"%.9f,0,%.9f\n" % tuple(rng.random(2)) for _ in range(60_000))
    with gzip.open(tmp_path / "log.csv.gz", "wb") as stream:
        stream.write(b"state,action,next_state\n" + rows)
    log = tables.read(tmp_path / "log.csv.gz", domain=(0, 1), n_actions=1)
    assert len(rows) > unpacking.FREELY and len(log.states) == 60_000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_pipes_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for source in (tmp_path / "pipe.csv", tmp_path, str(tmp_path / "*.csv")):
        for read in (tables.read, tables.stream, certirl.policy_from):
            with pytest.raises(FileNotFoundError, match=r"pipe\.csv is a pipe, not a file: write what it gives"):
                read(source)


@pytest.mark.parametrize("where", [0, 2_000], ids=["page header", "page"])
def test_damage_inside_a_parquet_file_is_found(tmp_path, where):
    file = tmp_path / "spoiled.parquet"
    table = pa.table(columns_of(walks(300), "transitions"))
    pq.write_table(table, file, use_dictionary=False, write_page_checksum=True)
    place = pq.ParquetFile(file).metadata.row_group(0).column(2).data_page_offset + where
    content = bytearray(file.read_bytes())
    content[place : place + 8] = b"\xff" * 8
    file.write_bytes(content)
    refused(r"spoiled\.parquet: it is not a Parquet file, or it is damaged", lambda: list(tables.stream(file, **BOX)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_empty_files_are_refused_even_among_others(tmp_path, format, kind):
    table = columns_of(walks(), kind)
    write(tmp_path / f"a.{format}", table)
    write(tmp_path / f"b.{format}", {name: [] for name in table})
    if format == "parquet":
        pq.write_table(pa.table(table).slice(0, 0), tmp_path / "b.parquet")
    for read in (tables.read, tables.stream, lambda paths: list(tables.stream(paths, **BOX))):
        refused(rf"b\.{format}: there are no rows in it", read, tmp_path)


def test_what_is_not_there_or_there_twice(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    file = write(folder / "a.csv", GOOD)
    for paths, sentence in (
        (tmp_path / "none.parquet", "there is no file .*none.parquet"),
        (str(tmp_path / "*.parquet"), r"no file that matches .*\*\.parquet"),
        (tmp_path, "there is no .parquet, .csv, .tsv or .npz file in the folder"),
    ):
        with pytest.raises(FileNotFoundError, match=sentence):
            tables.stream(paths)
    (folder / "list.txt").write_text("x")
    for paths, sentence in (
        ([], "no files to read"),
        ([file, str(file)], "a.csv is named twice"),
        ([folder, str(folder / "a*.csv")], "a.csv is named twice"),
        (str(folder / "*"), "cannot read .*list.txt: transitions come as"),
    ):
        refused(sentence, tables.stream, paths)
    write(folder / "b.npz", GOOD)
    refused(r"holds \.csv and \.npz files: name those to read", tables.stream, folder)


@pytest.mark.parametrize("format", FORMATS)
def test_files_of_different_shape_are_not_mixed(tmp_path, format):
    for name, d in (("a", 1), ("b", 2)):
        if format == "npz":
            np.savez(tmp_path / f"{name}.npz", states=np.eye(2)[:, :d], actions=[0, 1], next_states=np.eye(2)[:, :d])
        else:
            columns = {f"{which}_{i}": [0.0, 1.0] for which in ("state", "next_state") for i in range(d)}
            write(tmp_path / f"{name}.{format}", columns | {"action": [0, 1]})
    for read in (tables.read, tables.read_demonstrations, tables.stream):
        refused(rf"1 coordinate in .*a\.{format} but 2 in .*b\.{format}", read, tmp_path)
    with pytest.raises(ValueError, match=rf"b\.{format}: states have 2 coordinates but the domain \[0, 1\] has 1"):
        tables.read(tmp_path / f"b.{format}", domain=(0, 1))


def test_a_box_or_actions_that_make_no_sense_are_refused(tmp_path):
    write(tmp_path / "d.parquet", {"state": [1.0, 1.0], "action": [0, 7], "next_state": [1.0, 1.0]})
    refused("some coordinate never changes", tables.stream, tmp_path)
    refused("an action 7 in only 2 transitions", tables.stream, tmp_path, domain=(0, 2))
    states = np.linspace(0, 1, 1_000)
    write(tmp_path / "d.parquet", {"state": states, "action": [0] * 999 + [900], "next_state": states})
    refused("the largest action is 900 but only 2 different actions occur", tables.stream, tmp_path)


@pytest.mark.parametrize("format", FORMATS)
def test_progress_reaches_the_number_of_rows(tmp_path, format):
    table, calls = columns_of(walks(300), "transitions"), []
    for part in range(3):
        write(tmp_path / f"{part}.{format}", {name: values[part::3] for name, values in table.items()}, 100)
    stream = tables.stream(tmp_path, rows=100)
    certirl.steps.measure(stream, basis=BASIS, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (len(table["state"]),) * 2 and len(calls) > 3


PEAK = """
import sys
import certirl
stream = certirl.logs.stream(sys.argv[1], domain=(-1, 1), n_actions=3, rows=2**16)
certirl.steps.measure(stream, basis=certirl.Legendre(5))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def large_table(rows, kind):
    rng = np.random.default_rng(0)
    table = {"state": rng.uniform(-1, 1, rows), "action": rng.integers(3, size=rows)}
    more = {"episode": np.arange(rows) // 100} if kind == "episodes" else {"next_state": table["state"][::-1]}
    return pa.table(table | more)


def test_arrays_do_not_grow_with_the_data(tmp_path):
    peaks = []
    for rows in (2**15, 2**18):
        for kind in ("transitions", "episodes"):
            file = tmp_path / f"{rows} {kind}.parquet"
            pq.write_table(large_table(rows, kind), file, row_group_size=2**13)
            tracemalloc.start()
            certirl.steps.measure(tables.stream(file, domain=(-1, 1), n_actions=3, rows=2**13), basis=BASIS)
            peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
            tracemalloc.stop()
    assert max(peaks[2:]) < min(peaks[:2]) + 2, f"peak memory in MB: {peaks}"  # the larger table takes 6 MB


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("kind", ["transitions", "episodes"])
@pytest.mark.parametrize("groups", [2**16, 10**7, None], ids=["small row groups", "one row group", "CSV"])
def test_memory_does_not_grow_with_the_data(tmp_path, groups, kind):
    peaks = []
    for rows in (200_000, 2_000_000) if groups else (100_000, 1_000_000):  # text is slower to read and takes as much
        table, file = large_table(rows, kind), tmp_path / f"{rows}.{'parquet' if groups else 'csv'}"
        if groups:
            pq.write_table(table, file, row_group_size=groups)
        else:
            pacsv.write_csv(table, file)
        done = subprocess.run([sys.executable, "-c", PEAK, str(file)], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 20, f"peak memory in MB: {peaks}"  # the larger table takes 48 MB, as text even more


def turns(n=1500, seed=0):
    """Steps on a circle of 360 degrees, beyond both ends of which the table goes on counting."""
    rng = np.random.default_rng(seed)
    angle, action = rng.uniform(-90, 450, n), rng.integers(2, size=n)
    return {"state": angle, "action": action, "next_state": angle + np.where(action, 20, -20) + rng.normal(size=n)}


@pytest.mark.parametrize("kind", ["table", "episodes", "arrays"])
def test_every_reader_remembers_periodic_coordinates(kind):
    table, asked = turns(60), {"domain": (0, 360), "periodic": (0,)}
    if kind == "episodes":
        pairs = zip(table["state"], table["next_state"], table["action"], strict=True)
        log = certirl.logs.from_episodes([([start, end], [action]) for start, end, action in pairs], **asked)
    elif kind == "arrays":
        log = certirl.Transitions(table["state"], table["action"], table["next_state"], **asked)
    else:
        log = certirl.logs.read(table, **asked)
        assert certirl.logs.stream(table, **asked).periodic == (0,)
    assert log.periodic == (0,) and "on [0, 360], periodic in coordinate 0" in str(log)
    assert np.allclose(log.states[:, 0], table["state"] % 360)
    parts = [log.where(log.actions == action) for action in range(2)]
    assert concatenate(parts).periodic == parts[0].periodic == (0,)
    refused("joined only on the same domain", concatenate, [log, replace(log, periodic=())])


def test_an_answer_from_a_periodic_log_is_periodic_and_stays_so_in_a_file(tmp_path):
    log = certirl.logs.read(turns(), domain=(0, 360), periodic=(0,))
    solution = certirl.solve(log, discount=0.9, expert=lambda s: (s[:, 0] < 180).astype(int))
    solution.save(tmp_path / "turns.npz")
    for each in (solution, certirl.load(tmp_path / "turns.npz")):
        assert each.stats.periodic == (0,) and "periodic in coordinate 0" in str(each)
        for function in (each.value, each.reward):
            start, end = function([0.0, 360.0])
            assert start == pytest.approx(end, abs=1e-9)
        assert each.greedy([10.0]) == each.greedy([370.0])
    assert certirl.diagnose.coverage(log).basis.periodic_axes == (0,)
    assert certirl.solve(log, discount=0.9, expert=0).basis.periodic_axes == (0,)


def test_a_periodic_coordinate_needs_a_period():
    refused("a periodic coordinate needs a domain", certirl.Transitions, [0.0, 1.0], [0, 1], [1.0, 0.0], periodic=(0,))
    with pytest.raises(ValueError, match="transitions name their periodic coordinates"):
        certirl.policy_from(certirl.logs.read(turns(), domain=(0, 360), periodic=(0,)), periodic=(0,))


GAPS = {
    "run": ["m"] * 6 + ["t"] * 6,
    "time": [
        f"2026-01-0{day}T{time}:00Z"
        for day in (5, 6)
        for time in ("12:00", "12:15", "12:30", "12:45", "13:00", "15:00")
    ],
    "x": [0.0, 0.1, None, 0.3, 0.4, 0.5, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4],
    "push": ["r", "r", "r", "r", None, "r", "l", "l", "l", "l", "l", "l"],
}
ENDED = {
    "missing": [(0, 0.1), (0.3, 0.4), (0.9, 0.8), (0.8, 0.7), (0.7, 0.6), (0.6, 0.5), (0.5, 0.4)],
    "both": [(0, 0.1), (0.3, 0.4), (0.9, 0.8), (0.8, 0.7), (0.7, 0.6), (0.6, 0.5)],
}


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("order", ["sorted", "mixed"])
def test_gaps_end_episodes_wherever_they_are_and_are_counted(kind, order, tmp_path):
    mixed = np.random.default_rng(0).permutation(12) if order == "mixed" else np.arange(12)
    table: Any = pa.table({name: [column[row] for row in mixed] for name, column in GAPS.items()})
    if kind != "frame":
        table, rows = tmp_path / f"gaps.{kind}", table
        pq.write_table(rows, table, row_group_size=4) if kind == "parquet" else rows.to_pandas().to_csv(
            table, index=False
        )
    asked = {"state": "x", "action": "push", "episode": "run", "step": "time", "domain": (0, 1), "missing": "drop"}
    told = {
        "missing": ["left out: 1 row without a value (x 1)", "1 row without an action, taken for last states"],
        "both": ["left out: 1 row", "1 row without an action", "left out: 2 steps longer than 1800 seconds in time"],
    }
    for which, more in (("missing", {}), ("both", {"longest_step": timedelta(minutes=30)})):
        log = tables.read(table, **asked, **more)
        steps = sorted(zip(log.states[:, 0].tolist(), log.next_states[:, 0].tolist(), strict=True))
        assert steps == sorted(ENDED[which]) and log.independent is False
        assert all(
            note.startswith(start) for note, start in zip(log.notes[-len(told[which]) :], told[which], strict=True)
        )
        assert len(set(log.episodes)) == 3 and ("7200" in str(log)) == (which == "missing")
        for size in (1, 2, 5, 100) if order == "sorted" else ():
            stream = tables.stream(table, rows=size, **asked, **more)
            assert [note[:30] for note in stream.notes] == [note[:30] for note in log.notes[-len(stream.notes) :]]
            pieces = [piece for chunk in stream.chunks() for piece in chunk.pieces()]
            read = [
                (s, e) for piece in pieces for s, e in zip(piece.states[:, 0], piece.next_states[0, :, 0], strict=True)
            ]
            assert sorted(read) == sorted(ENDED[which]) and len(stream.notes) == len(told[which])


def test_rows_by_themselves_and_demonstrations_lose_those_without_a_value():
    rows = {"state": [0.1, None, 0.3, 0.4], "action": ["a", "b", None, "b"], "next_state": [0.2, 0.3, 0.4, 0.5]}
    log = tables.read(rows, missing="drop", domain=(0, 1))
    assert log.states[:, 0].tolist() == [0.1, 0.4] and log.independent is None
    assert log.notes == (
        "left out: 2 rows without a value (state 1, action 1), as if it did not matter where they led",
    )
    (states, actions, _), names = tables.read_demonstrations(rows, missing="drop")
    assert states[:, 0].tolist() == [0.1, 0.4] and actions.tolist() == [0, 1] and names == ("a", "b")
    refused("missing='drop'", tables.read, rows, domain=(0, 1))
    refused(
        "every row of it lacks a value",
        tables.read,
        {"state": [None], "action": [0], "next_state": [0.5]},
        missing="drop",
    )


def test_no_proof_takes_the_parts_of_an_episode_for_episodes(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 4_000)
    x[::50] = np.nan
    table = {"episode": np.arange(4_000) // 100, "state": x, "action": rng.integers(2, size=4_000)}
    assert certirl.data.dependence.sampling(tables.read(table, missing="drop", domain=(0, 1))) == "order"


def test_where_episodes_end_is_asked_for_in_one_sentence():
    refused("missing must be 'refuse' or 'drop', got 'ignore'", tables.read, GAPS, missing="ignore")
    refused("longest_step must be a length .*, got -1", tables.read, GAPS, longest_step=-1)
    named = {"state": "x", "action": "push", "episode": "run", "longest_step": 3}
    refused(r"longest_step needs the column that orders .*: write step='time'", tables.read, GAPS, **named)
    refused(
        "longest_step needs rows of episodes",
        tables.read,
        {"state": [0.0, 1.0], "action": [0, 1], "next_state": [1.0, 0.0]},
        longest_step=3,
    )


@pytest.mark.parametrize("kind", ["csv", "pandas", "polars"])
def test_a_messy_table_is_told_all_of_its_faults_at_once_by_the_names_of_its_episodes(kind, tmp_path):
    """The first of them alone was told, in three runs one after the other, and gh-14 was called episode 14.0."""
    x, moves = np.linspace(0, 1, 200), ["up", "down"] * 100
    x[[5, 7, 11, 12, 50, 51, 52, 53, 54, 60, 61, 99]], x[[20, 30, 31]], moves[143] = np.nan, 1.5, None
    frame = pd.DataFrame({"run": np.repeat([f"gh-{n}" for n in range(20)], 10), "t": [*range(10)] * 20, "x": x})
    frame["move"] = moves
    path = tmp_path / "messy.csv"
    frame.to_csv(path, index=False)
    table = {"csv": path, "pandas": frame, "polars": pl.from_pandas(frame)}[kind]
    with pytest.raises(ValueError) as caught:
        certirl.logs.read(table, state="x", action="move", episode="run", step="t", domain=(0, 1))
    assert str(caught.value).endswith(
        ": x is missing or not finite in row 5 (run gh-0, t 5) and 11 further rows; move is missing before the end of "
        "an episode in row 143 (run gh-14, t 3); a state lies outside the domain in row 20 (run gh-2, t 0) and 2 "
        "further rows: correct these rows, remove them, or write missing='drop'"
    )
