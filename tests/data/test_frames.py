"""Data frames, and files as they come: every kind gives the transitions that arrays give."""

import gzip
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import certirl
from certirl import diagnose, logs, steps
from certirl.cli import main
from certirl.data import tables
from refusals import refused

BASIS = certirl.Legendre(4)
NAMED = {"state": ("x", "v"), "action": "push", "next_state": ("x2", "v2")}


def pandas():
    return pytest.importorskip("pandas", reason="pandas is not installed")


def polars():
    return pytest.importorskip("polars", reason="polars is not installed")


class Stream:
    """Nothing but the Arrow C interface."""

    def __init__(self, columns):
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def structured(columns):
    return np.rec.fromarrays([np.asarray(values) for values in columns.values()], names=",".join(columns))


KINDS = {
    "mapping": dict,
    "structured array": structured,
    "arrow": pa.table,
    "record batches": lambda columns: pa.table(columns).to_reader(),
    "C stream": Stream,
    "pandas": lambda columns: pandas().DataFrame(columns),
    "pandas of arrow": lambda columns: pandas().DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda columns: polars().DataFrame(columns),
}


def rows(n=400, seed=0):
    """Two coordinates, three actions, with columns that nobody asks for."""
    rng = np.random.default_rng(seed)
    states, after, actions = rng.uniform(-1, 1, (n, 2)), rng.uniform(-1, 1, (n, 2)), rng.integers(3, size=n)
    names = np.array(["coast", "left", "right"])[actions].tolist()
    columns = {"note": ["a b"] * n, "x": states[:, 0], "v": states[:, 1], "push": actions, "x2": after[:, 0]}
    return columns | {"v2": after[:, 1], "name": names}, certirl.Transitions(states, actions, after)


def same(log, other):
    for name in ("states", "actions", "next_states"):
        np.testing.assert_array_equal(getattr(log, name), getattr(other, name))
    return log.domain == other.domain and log.n_actions == other.n_actions


@pytest.mark.parametrize("kind", KINDS)
def test_every_frame_is_a_log(kind):
    columns, log = rows()
    assert same(tables.read(KINDS[kind](columns), **NAMED), log)
    named = tables.read(KINDS[kind](columns), **NAMED | {"action": "name"})
    assert same(named, log) and named.action_names == ("coast", "left", "right")
    counts = ", ".join(f"{name} {count}" for name, count in zip(named.action_names, log.counts, strict=True))
    assert str(named) == f"{str(log).split(';')[0]}; per action: {counts}"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", ["mapping", "arrow", "pandas", "polars"])
def test_frames_go_straight_into_every_call(kind):
    rng = np.random.default_rng(1)
    problem, states, actions = certirl.problems.random_polynomial(seed=7), rng.uniform(-1, 1, 3000), np.arange(3000) % 3
    after = np.choose(actions, [problem.sample(states, action, rng) for action in range(3)])
    frame = KINDS[kind]({"state": states, "action": actions, "next_state": after})
    log = certirl.Transitions(states, actions, after)
    solutions = [certirl.solve(data, expert=0, discount=0.7, basis=BASIS, columns=3) for data in (frame, log)]
    assert str(solutions[0]) == str(solutions[1])
    assert str(steps.measure(frame, basis=BASIS)) == str(steps.measure(log, basis=BASIS))
    assert str(diagnose.coverage(frame)) == str(diagnose.coverage(log))
    policies = [certirl.policy_from(*data) for data in ((frame,), (states, actions))]
    np.testing.assert_array_equal(policies[0](states[:, None]), policies[1](states[:, None]))
    with pytest.raises(ValueError, match="a certificate needs a declared domain"):
        certirl.solve(frame, expert=0, discount=0.7, delta=0.1, basis=BASIS, columns=3)


def test_an_expert_may_be_named_as_its_action_is():
    columns, _ = rows(3000)
    log = tables.read(columns, **NAMED | {"action": "name"})
    asked = {"discount": 0.5, "components": [[0], [1]], "basis": certirl.Legendre(3), "columns": 2}
    assert certirl.solve(log, expert="left", **asked).expert == 1
    refused(r"expert must be one of the actions .* got 'up'", certirl.solve, log, expert="up", **asked)


def test_files_go_straight_into_solve(tmp_path):
    columns, log = rows()
    path, order = tmp_path / "log.csv", ("x", "v", "push", "x2", "v2")
    text = [f"{a},{b},{c},{d},{e}" for a, b, c, d, e in zip(*(columns[n] for n in order), strict=True)]
    path.write_text("\n".join(["state_0,state_1,action,next_state_0,next_state_1", *text]))
    for source in (path, str(path)):
        solution = certirl.solve(
            source, expert=0, discount=0.5, components=[[0], [1]], basis=certirl.Legendre(3), columns=2
        )
        assert solution.n_actions == log.n_actions
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.csv"):
        certirl.solve(tmp_path / "none.csv", expert=0, discount=0.5)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", ["mapping", "arrow", "pandas", "polars"])
@pytest.mark.parametrize("size", [7, 1000])
def test_frames_are_streamed_as_they_are_read(kind, size):
    columns, log = rows(150_000)
    frame = KINDS[kind](columns)
    stream = tables.stream(frame, rows=size * 100, **NAMED)
    assert len(stream.chunks()) == (3 if size == 7 else 2) and stream.total == len(log)  # blocks of 2¹⁶ rows
    assert str(stream).startswith("150,000 rows in 1 data frame, states in [")
    measured = steps.measure(stream, basis=certirl.product(BASIS, BASIS))
    np.testing.assert_allclose(measured.gram, steps.measure(log, basis=certirl.product(BASIS, BASIS)).gram)
    refused("the same data would count twice", certirl.data.moments.merge, [measured, measured])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", ["mapping", "arrow", "pandas", "polars"])
def test_episodes_of_frames_continue_over_their_blocks(kind, monkeypatch):
    monkeypatch.setattr("certirl.data.formats._BLOCK", 5)
    rng, length = np.random.default_rng(0), 7
    states, actions = rng.random((9, length)), rng.integers(2, size=(9, length)).astype(float)
    actions[:, -1] = np.nan
    columns = {"run": np.repeat(np.arange(9), length), "state": states.ravel(), "action": actions.ravel()}
    log = logs.from_episodes([(s, a[:-1].astype(int)) for s, a in zip(states, actions, strict=True)])
    for episode in (columns["run"], [f"run {number}" for number in columns["run"]]):
        frame = KINDS[kind](columns | {"run": episode})
        assert same(tables.read(frame, episode="run"), log)
        stream = tables.stream(frame, episode="run", rows=4)
        assert len(stream.chunks()) == (1 if isinstance(episode, list) else 13)
        np.testing.assert_allclose(steps.measure(stream, basis=BASIS).gram, steps.measure(log, basis=BASIS).gram)


def test_types_of_columns_that_frames_have():
    pd = pandas()
    moments = pd.to_datetime(["2026-01-01 00:00:02", "2026-01-01 00:00:00", "2026-01-01 00:00:01"])
    frame = pd.DataFrame(
        {
            "episode": ["a", "a", "a"],
            "state": [Decimal("0.5"), Decimal("0.25"), Decimal("0")],
            "action": pd.array([None, 1, 0], dtype="Int64"),
            "terminated": pd.array([True, None, False], dtype="boolean"),
            "time": moments.tz_localize("Europe/Berlin"),
        }
    )
    log = tables.read(frame, step="time")
    assert log.states.ravel().tolist()[:2] == [0.25, 0.0] and log.actions.tolist()[:2] == [1, 0]
    assert log.terminal.tolist()[:2] == [False, True] and "1 terminal state was made absorbing" in str(log)
    frame["action"] = pd.Categorical([None, "up", "down"], categories=["up", "down"])
    assert tables.read(frame, step="time").action_names == ("down", "up")
    arrow = pa.table(frame)
    assert pa.types.is_dictionary(arrow["action"].type)  # whose missing values NumPy would give a name
    assert same(tables.read(arrow, step="time"), tables.read(frame, step="time"))


def test_the_index_of_pandas_may_hold_columns():
    frame = pandas().DataFrame(
        {"episode": [1, 1, 0, 0], "step": [1, 0, 1, 0], "state": [3.0, 2.0, 1.0, 0.0], "action": [0, 1, 0, 1]}
    )
    expected = tables.read(frame)
    assert expected.states.ravel().tolist() == [0.0, 2.0]
    assert same(tables.read(frame.set_index(["episode", "step"])), expected)
    assert same(tables.read(frame.set_index("episode", drop=False)), expected)


FRAME = {"state": [0.0, 0.5, 1.0], "action": [0, 1, 0], "next_state": [0.5, 1.0, 0.0]}


@pytest.mark.parametrize(
    ("change", "settings", "sentence"),
    [
        ({"state": [0.0, None, 1.0]}, {}, "the dict: state is missing or not finite in row 1"),
        ({"state": [0.0, "?", 1.0]}, {}, r"the dict: the column state holds '\?' in row 1, not a number"),
        ({"state": [True, False, True]}, {}, "the dict: the column state holds bool, not numbers"),
        ({"state": np.array([0.0, 1j, 1.0])}, {}, "the column state holds complex128, not numbers"),
        ({"next_state": np.zeros((3, 2))}, {}, "states have 1 coordinate, next states 2"),
        ({"state": [0.0, 1.0]}, {}, "its arrays must be equally long, got 2 state, 3 next_state, 3 action"),
        ({"state": np.zeros((3, 2, 2))}, {}, r"the column state has 3 dimensions: states are \[n\] or \[n, d\]"),
        ({}, {"state": "x"}, "the dict: state='x' names no column; it has state, action, next_state"),
        ({}, {"state": ("state", "y")}, "state='y' names no column"),
        ({}, {"next_state": ("state", "next_state")}, "it needs the columns state, action, next_state"),
        ({}, {"state": 5}, "state must name one or more columns, got 5"),
        ({}, {"state": []}, r"state must name one or more columns, got \[\]"),
        ({}, {"action": 0}, "action must name a column, got 0"),
        ({}, {"step": ""}, "step must name a column, got ''"),
        ({}, {"delimiter": ";;"}, "delimiter must be a single character of ASCII, got ';;'"),
        ({"action": ["a", "b", None]}, {}, "action is missing or not finite in row 2"),
        ({"action": ["a", "b", "c"]}, {"actions": ["a", "b"]}, "holds 'c' in row 2, which is none of the actions a, b"),
        ({}, {"actions": ["a", "a"]}, "actions must have 2 different names, one for each, got"),
        ({}, {"actions": "ab"}, "actions must list the controls behind actions 0, 1"),
        ({"action": ["a", "b", "a"]}, {"actions": [-1.0, 1.0]}, "the column action holds 'a' in row 0, not a number"),
        ({"action": [f"go to {i}" for i in range(3)]}, {"n_actions": 2}, "holds 3 names of actions, go to 0, go to 1"),
        ({"episode": [0, 0, 1], "done": [0, 0, 1]}, {}, "write terminated='done' if it was, or leave the column out"),
        ({"step": ["1", "soon", "2"], "episode": [0, 0, 1]}, {}, "holds 'soon' in row 1, neither a number nor a time"),
    ],
)
def test_wrong_frames_are_one_sentence(change, settings, sentence):
    for read in (tables.read, lambda frame, **given: list(tables.stream(frame, **given))):
        with pytest.raises((ValueError, TypeError), match=sentence) as caught:
            read(FRAME | change, **settings)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 350


def test_duplicated_names_and_what_is_no_frame():
    pd = pandas()
    frame = pd.DataFrame([[0.0, 0.1, 0, 1.0]], columns=["state", "state", "action", "next_state"])
    refused("the DataFrame: it has more than one column state", tables.read, frame)
    for source in (5, [5], np.zeros((3, 3)), None, b"log.csv", [["log.csv"]]):
        with pytest.raises(
            TypeError, match="files are named by a path, a pattern or a list of these, or are data frames"
        ):
            tables.read(source)
    with pytest.raises(ValueError, match="actions are names in the dict but numbers in the dict"):
        tables.read([FRAME, FRAME | {"state": [9.0, 9.5, 9.1], "action": ["a", "b", "c"]}])
    for given in ({"episodes": [0, 1, 0]}, {"actions": [0, 1, 0]}):
        with pytest.raises(TypeError, match="a table holds its actions and episodes: leave these arguments out"):
            certirl.policy_from(FRAME, **given)


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
def test_columns_of_frames_are_arrays_still(kind):
    columns, log = rows()
    frame = KINDS[kind]({name: columns[name] for name in ("x", "v", "push", "x2")})
    same_as = certirl.Transitions(log.states[:, 0], log.actions, log.next_states[:, 0])
    assert same(certirl.Transitions(frame["x"], frame["push"], frame["x2"]), same_as)
    policies = [certirl.policy_from(*data) for data in ((frame["x"], frame["push"]), (columns["x"], columns["push"]))]
    assert str(policies[0]) == str(policies[1])
    if kind != "arrow":
        both = frame[["x", "v"]]
        assert str(certirl.policy_from(both, frame["push"])) == str(certirl.policy_from(log.states, log.actions))
    with pytest.raises(TypeError, match="neither Transitions nor a simulator"):
        certirl.solve(frame["x"], expert=0, discount=0.5)


# Text as programs write it.

LOG = [(0.5, "left", 0.25), (0.25, "right", -1.5), (-1.5, "right", 0.5)]


def text(delimiter=",", comma=False, quote="", end="\n"):
    lines = [delimiter.join(f"{quote}{name}{quote}" for name in ("pos", "move", "pos after"))]
    for row in LOG:
        lines.append(delimiter.join(str(cell).replace(".", "," if comma else ".") for cell in row))
    return end.join(lines) + end


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.csv", text()),
        ("log.csv", text(quote='"', end="\r\n")),
        ("log.csv", "\ufeff" + text()),
        ("log.csv", text(";")),
        ("log.csv", text("|")),
        ("log.csv", text(";", comma=True)),
        ("log.tsv", text("\t", comma=True, end="\r\n")),
        ("log.csv", text("\t")),
        ("log.csv", text(";", comma=True).replace("pos after", "pos, after").replace('"', "")),
    ],
    ids=["comma", "quotes and CRLF", "BOM", "semicolon", "bar", "decimal comma", "tsv", "tab", "comma in a name"],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_text_is_read_whatever_separates_it(tmp_path, name, content, zipped):
    path = tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    after = "pos, after" if "pos, after" in content else "pos after"
    names = {"state": "pos", "action": "move", "next_state": after}
    log = tables.read(path, **names)
    rows = zip(log.states, log.actions, log.next_states, strict=True)
    assert [(s, log.action_names[a], t) for (s,), a, (t,) in rows] == LOG
    assert next(iter(tables.stream(path, rows=1, **names))).states.tolist() == [[0.5]]
    has_commas, only_commas = "0,5" in content, "," in text() and content.lstrip("\ufeff").startswith(("pos,", '"pos"'))
    assert ("commas in numbers as decimal points" in str(log)) == has_commas
    assert ("columns separated by" in str(log)) == (not only_commas)


def test_the_delimiter_can_be_given_and_gzip_is_checked(tmp_path):
    (tmp_path / "log.csv").write_text("state;a,action,next_state\n0,0,1\n")
    refused(r"its columns may be separated by|needs the columns", tables.read, tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text("state:action:next_state\n0:0:1\n1:1:0\n")
    assert len(tables.read(tmp_path / "log.csv", delimiter=":")) == 2
    whole = gzip.compress(text().encode())
    for content in (whole[:-12], b"pos,move\n", b""):
        (tmp_path / "log.csv.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"not a gzip file, or it is damaged or cut short|no header"):
            tables.read(tmp_path / "log.csv.gz", state="pos", action="move", next_state="pos after")


def test_missing_values_have_many_names(tmp_path):
    for word in ("", "NA", "NaN", "null", "None", " n/a "):
        (tmp_path / "log.csv").write_text(f"episode,state,action\n0,0,up\n0,1,down\n0,2,{word}\n")
        assert len(tables.read(tmp_path / "log.csv")) == 2
        (tmp_path / "log.csv").write_text(f"state,action,next_state\n0,1,1\n{word},0,1\n")
        refused("state is missing or not finite in row 1", tables.read, tmp_path / "log.csv")


def test_none_may_be_the_name_of_an_action():
    log = tables.read({"state": [0.0, 0.5, 1.0], "action": ["none", "push", "none"], "next_state": [0.5, 1.0, 0.0]})
    assert str(log).endswith("per action: none 2, push 1")


def test_names_of_actions_are_the_same_in_all_files_and_ways(tmp_path):
    for number, moves in enumerate((["up", "down"], ["left", "up"], ["up", "up"])):
        lines = [f"0.{number}{row},{move},0.{row}" for row, move in enumerate(moves)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["state,action,next_state", *lines]))
    log, stream = tables.read(tmp_path), tables.stream(tmp_path)
    assert log.action_names == stream.conversion.action_names == ("down", "left", "up")
    assert log.actions.tolist() == [2, 0, 1, 2, 2, 2] and "per action: down 1, left 1, up 4" in str(log)
    assert "actions down, left, up" in str(stream)
    assert [piece.actions for piece in stream] == [(0,), (2,), (1,), (2,), (2,)]
    given = tables.read(tmp_path, actions=("up", "left", "down", "wait"))
    assert given.actions.tolist() == [0, 2, 1, 0, 0, 0] and given.n_actions == 4
    assert str(given).endswith("per action: up 4, left 1, down 1, wait 0")
    assert log.where(log.actions == 2).action_names == log.action_names
    numbers = tables.read(FRAME, actions=("stay", "go"))  # numbers get names, too
    assert str(numbers).endswith("per action: stay 2, go 1")


@pytest.mark.parametrize("zone", ["", "Z", "+02:00"])
def test_times_order_the_rows_and_unequal_ones_are_noted(tmp_path, zone):
    start = datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC)
    seconds = [0, 1, 2, 3, 63, 64]
    times = [(start + timedelta(seconds=s)).strftime("%Y-%m-%dT%H:%M:%S") + zone for s in seconds]
    order = [3, 1, 5, 0, 2, 4]
    lines = [f"{times[i]},{i / 10},{i % 2}" for i in order]
    (tmp_path / "log.csv").write_text("\n".join(["t,state,action", *lines]))
    log = tables.read(tmp_path / "log.csv", step="t")
    assert log.states.ravel().tolist() == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert "steps are 1 to 60 seconds in t apart, 1 in the median, and count alike" in log.notes
    even = tables.read({"t": np.array(times[:4]), "state": np.arange(4.0), "action": [0, 1, 0, 1]}, step="t")
    assert not any("apart" in note for note in even.notes)
    exact = np.array([t.removesuffix(zone) for t in times], dtype="datetime64[ns]")
    array = tables.read({"t": exact[order], "state": np.array(order) / 10, "action": np.array(order) % 2}, step="t")
    assert same(array, log)


# On the command line.


def test_columns_are_named_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    states, moves = rng.uniform(-1, 1, 4000), rng.integers(2, size=4000)
    after = np.clip(0.5 * states + np.where(moves == 1, 0.3, -0.3) + 0.1 * rng.standard_normal(4000), -1, 1)
    lines = [
        f"{s:.6f};{('left', 'right')[a]};{t:.6f}".replace(".", ",")
        for s, a, t in zip(states, moves, after, strict=True)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["pos;move;then", *lines]))
    columns = ["--state", "pos", "--action", "move", "--next-state", "then"]
    asked = ["solve", "log.csv", *columns, "--discount", "0.7", "--basis", "legendre", "--size", "4", "--plot", ""]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    counts = np.bincount(moves)
    assert f"per action: left {counts[0]:,}, right {counts[1]:,}" in printed
    assert "columns separated by ';', commas in numbers as decimal points in log.csv" in printed
    assert main([*asked, "--actions", "left,right", "--expert", "right"]) == 0
    assert "right is strictly optimal" in capsys.readouterr().out
    assert main([*asked, "--errors", "0.1"]) == 2
    assert "--errors is for experts who are known by demonstrations" in capsys.readouterr().err
    for more, sentence in (
        (["--state", "x"], "log.csv: --state x names no column; it has pos, move, then"),
        (["--actions", "left,up"], "which is none of the actions left, up"),
        (["--delimiter", "tab"], "names no column; it has pos;move;then"),
    ):
        kept = [word for word in columns if more[0] == "--state" and word not in ("--state", "pos")] or columns
        assert main(["coverage", "log.csv", *kept, *more]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["coverage", "--action", "move", "--next-state", "then", "--state", "pos", "log.csv"]) == 2
    assert "--state takes names of columns, and log.csv is a file: write files before" in capsys.readouterr().err
    assert main(["moments", "log.csv", *columns, "--domain", "-1", "1", "--actions", "right,left"]) == 0
    assert "4,000 transitions" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["arrow", "fixed", "objects", "parquet"])
def test_states_may_be_lists_in_one_column(tmp_path, kind):
    states, after = np.arange(6.0).reshape(3, 2), np.arange(6.0).reshape(3, 2)[::-1]
    lists = {"state": list(states), "action": [0, 1, 0], "next_state": list(after)}
    table = pa.table(lists)
    if kind == "fixed":
        flat = {
            name: pa.FixedSizeListArray.from_arrays(values.ravel(), 2)
            for name, values in zip(("state", "next_state"), (states, after), strict=True)
        }
        table = pa.table(lists | flat)
    source: object = table
    if kind == "objects":
        source = {name: np.array([*values, None], dtype=object)[:-1] for name, values in lists.items()}
    if kind == "parquet":
        source = tmp_path / "log.parquet"
        pq.write_table(table, source)
    log = tables.read(source)
    assert log.states.tolist() == states.tolist() and log.next_states.tolist() == after.tolist()
    ragged = pa.table(lists | {"state": [[0.0, 1.0], [2.0], [3.0, 4.0]]})
    refused("its lists must be equally long", tables.read, ragged)


def test_a_misspelt_column_or_setting_names_the_closest_one():
    refused(r"state='Sate' names no column \(perhaps 'state'\); it has state", tables.read, FRAME, state="Sate")
    with pytest.raises(TypeError, match=r"tables have no setting 'nextstate' \(perhaps 'next_state'\)"):
        tables.read(FRAME, nextstate="then")


def test_a_column_has_one_role_and_frames_may_have_numbered_columns():
    for names in ({"next_state": "state"}, {"state": "action"}, {"state": "next_state"}):
        refused("is named twice", tables.read, FRAME, **names)
    numbered = {0: [0.0, 0.5], 1: [0, 1], 2: [0.5, 1.0]}
    assert len(tables.read(numbered, state="0", action="1", next_state="2")) == 2
    with pytest.raises(ValueError, match="action is missing or not finite in row 1"):
        tables.read({"state": [0.0, 1.0], "action": [0, np.nan], "next_state": [1.0, 0.0]})


def test_equal_steps_and_terminal_states_that_are_not_there_are_noted():
    rows = {"episode": [0, 0, 0], "state": [0.0, 0.1, 0.2], "action": [0, 1, 0]}
    assert "2 rows have the same step as the one before" in str(tables.read({**rows, "step": [1, 1, 1]}))
    ended = str(tables.read({**rows, "terminated": [False, False, True]}))
    assert "the last action of 1 episode was left out because of where it led" in ended
    assert "the last action of 1 episode has no next state" in str(tables.read(rows))


def square(states):
    return -(states[:, 0] ** 2)


def test_demonstrations_in_a_table_have_columns_by_name_and_the_actions_of_the_log():
    rng = np.random.default_rng(0)
    x, move = rng.uniform(-1, 1, 300), rng.choice(["coast", "left", "right"], 300)
    after = np.clip(0.8 * x + np.select([move == "left", move == "right"], [-0.2, 0.2]), -1, 1)
    rows = {"x": x, "move": move, "y": after}
    log = tables.read(rows, state="x", action="move", next_state="y", domain=(-1, 1))
    seen = {"x": x, "move": np.where(x > 0, "left", "right")}  # without "coast": left would be action 0
    policy = certirl.policy_from(seen, state="x", action="move")
    assert policy.action_names == ("left", "right") and policy([-0.5, 0.5]).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"number the actions as left, right, the data as coast, left, right: write"):
        certirl.solve(log, expert=policy, discount=0.9)
    with pytest.raises(ValueError, match=r"one of the actions coast, left, right, got 'Left' \(perhaps 'left'\)"):
        certirl.solve(log, expert="Left", discount=0.9)
    assert "without" not in certirl.policy_from(x, np.zeros(300, int), errors=0.01).assumption
    swapped = tables.read(
        rows | {"move": seen["move"]},
        state="x",
        action="move",
        next_state="y",
        actions=["right", "left"],
        domain=(-1, 1),
    )
    with pytest.raises(
        ValueError, match=r"the data as right, left: write policy_from\(…, actions=\['right', 'left'\]\)"
    ):
        certirl.solve(swapped, expert=policy, discount=0.9)
    with pytest.raises(ValueError, match="the data as right, left"):  # nor is anything proved of other actions
        certirl.certify(square, swapped, expert=policy, discount=0.9, delta=0.05, columns=BASIS, tail=0.1)
    refused("the data as right, left", certirl.refute, swapped, expert=policy, basis=BASIS, delta=0.05, tail=0.1)
    for taken in (seen["move"], seen["move"].astype(object), seen["move"].tolist()):
        named = certirl.policy_from(x, taken)
        assert named.action_names == ("left", "right") and named([-0.5, 0.5]).tolist() == [1, 0]
    with pytest.raises(ValueError, match="actions are 2 names, left, right, and n_actions is 3: leave n_actions out"):
        certirl.policy_from(x, seen["move"], n_actions=3)
    policy = certirl.policy_from(seen, log.action_names, state="x", action="move")
    assert policy.n_actions == 3 and policy([-0.5, 0.5]).tolist() == [2, 1]
    refused(r"name others by certirl.policy_from\(…, state=", certirl.policy_from, seen)
    with pytest.raises(TypeError, match="state is for demonstrations in a table"):
        certirl.policy_from(x, move == "left", state="x")
    refused("periodic needs a domain", certirl.policy_from, seen, state="x", action="move", periodic=[0])
