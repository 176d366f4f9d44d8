"""Tables larger than memory: every way of reading them gives the same sums, and bad ones give a sentence."""

import decimal
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import certirl
from certirl.data import tables

PROBLEM = certirl.problems.random_polynomial(seed=7)
BASIS = certirl.Legendre(7)
ROWS = 5_000
SUMS = ("counts", "gram", "cross", "outer")


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    states, actions, next_states = rng.uniform(-1, 1, ROWS), rng.integers(3, size=ROWS), np.empty(ROWS)
    for action in range(3):
        next_states[actions == action] = PROBLEM.sample(states[actions == action], action, rng)
    return certirl.Transitions(states, actions, next_states, domain=(-1, 1), n_actions=3)


def as_table(log, part=slice(None)):
    states, next_states = log.states[part, 0], log.next_states[part, 0]
    return pa.table(
        {"note": ["x"] * len(states), "next_state": next_states, "action": log.actions[part], "state": states}
    )


def write(folder, log, kind, parts=3):
    """The log in several files of one kind, cut unevenly."""
    folder.mkdir(exist_ok=True)
    cuts = [0, *np.linspace(0, len(log), parts + 1).astype(int)[1:-1] + 7, len(log)]
    for i in range(parts):
        part, file = slice(cuts[i], cuts[i + 1]), folder / f"part-{i}.{kind}"
        if kind == "npz":
            np.savez(file, states=log.states[part], actions=log.actions[part], next_states=log.next_states[part])
        elif kind == "csv":
            pacsv.write_csv(as_table(log, part), file)
        else:
            pq.write_table(as_table(log, part), file, row_group_size=300)
    return folder


def assert_same_sums(one, other, tolerance=1e-12):
    assert (one.rows, one.columns) == (other.rows, other.columns)
    for name in SUMS:
        scale = np.abs(getattr(other, name)).max()
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
@pytest.mark.parametrize("rows", [1, 700, 2**18])
def test_every_reader_agrees_with_memory(log, tmp_path, kind, rows):
    if rows == 1:  # slow: one row at a time
        log = log.where(np.arange(len(log)) < 200)
    folder = write(tmp_path / "log", log, kind)
    measured = tables.measure(folder, basis=BASIS, columns=3, domain=(-1, 1), n_actions=3, rows=rows)
    assert_same_sums(measured, certirl.measure(log, basis=BASIS, columns=3))
    assert sum(source.rows for source in measured.sources) == len(log) and not measured.paired
    loaded = tables.read_transitions(folder, domain=(-1, 1))
    for name in ("states", "actions", "next_states"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(log, name))


def test_a_folder_a_pattern_a_list_and_one_file_are_the_same(log, tmp_path):
    folder = write(tmp_path / "log", log, "parquet")
    (folder / "_SUCCESS").write_text("")
    names = [str(folder / f"part-{i}.parquet") for i in (2, 0, 1)]
    one = tmp_path / "one.parquet"
    pq.write_table(as_table(log), one)
    found = [tables.read_transitions(paths) for paths in (folder, str(folder / "part-*"), names, one)]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].states, other.states)
    assert found[0].domain_from_data


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
def test_chunks_one_after_the_other_are_the_stream(log, tmp_path, kind):
    folder = write(tmp_path / "log", log, kind)
    found = tables.chunks(folder, domain=(-1, 1), n_actions=3, rows=500)
    assert len(found) == (9 if kind == "parquet" else 3)
    assert found == [pickle.loads(pickle.dumps(chunk)) for chunk in found]
    chunked = [piece for chunk in found for piece in chunk.pieces()]
    streamed = list(tables.stream(folder, domain=(-1, 1), n_actions=3, rows=500))
    assert len(chunked) == len(streamed)
    for one, other in zip(chunked, streamed, strict=True):
        assert one.actions == other.actions and len(one.actions) == 1
        np.testing.assert_array_equal(one.states, other.states)
        np.testing.assert_array_equal(one.next_states, other.next_states)
    assert sum(piece.size for piece in streamed) == ROWS
    assert max(piece.size for piece in streamed) <= 500 or kind == "npz"


def test_rows_of_an_action_keep_their_order(log, tmp_path):
    folder = write(tmp_path / "log", log, "parquet")
    for action in range(3):
        pieces = [piece for piece in tables.stream(folder, rows=500) if piece.actions == (action,)]
        np.testing.assert_array_equal(np.concatenate([piece.states for piece in pieces]), log.of_action(action)[0])


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
def test_the_survey_finds_box_and_actions(log, tmp_path, kind):
    seen = tables.survey(write(tmp_path / "log", log, kind))
    ends = np.concatenate([log.states, log.next_states])
    assert seen.domain == ((ends.min(), ends.max()),) and seen.n_actions == 3 and seen.rows == ROWS
    assert len(seen.files) == len(seen.counts) == 3 and str(seen).startswith("5,000 transitions in 3 files")


def test_the_survey_of_parquet_reads_no_rows_if_it_has_statistics(log, tmp_path, monkeypatch):
    pq.write_table(as_table(log), tmp_path / "with.parquet")
    pq.write_table(as_table(log), tmp_path / "without.parquet", write_statistics=False)
    slow = tables.survey(tmp_path / "without.parquet")
    monkeypatch.setattr(tables, "batches", lambda *_: pytest.fail("rows were read"))
    fast = tables.survey(tmp_path / "with.parquet")
    assert (fast.domain, fast.n_actions, fast.counts) == (slow.domain, slow.n_actions, slow.counts)


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
    data = tables.read_transitions(tmp_path / "d.parquet", domain=(-1, 1))
    np.testing.assert_array_equal(data.states[:, 0], np.array(states, dtype=float))
    assert data.actions.tolist() == [0, 1, 0, 1]
    assert tables.survey(tmp_path / "d.parquet").n_actions == 2


def test_single_precision_at_the_edge_is_not_outside(tmp_path):
    states = np.array([0.0, 0.1], dtype=np.float32)  # as a double, this 0.1 is beyond 0.1
    assert float(states[1]) > 0.1 * (1 + 1e-9)
    pq.write_table(pa.table({"state": states, "action": [0, 1], "next_state": states}), tmp_path / "d.parquet")
    assert tables.read_transitions(tmp_path / "d.parquet", domain=(0, 0.1)).states.max() == 0.1
    with pytest.raises(ValueError, match="outside"):
        tables.read_transitions(tmp_path / "d.parquet", domain=(0, 0.0999))


def test_several_coordinates_are_streamed_in_order(tmp_path):
    columns = {
        "state_1": [1.0, 5.0],
        "action": [0, 1],
        "state_0": [2.0, 6.0],
        "next_state_0": [3, 7],
        "next_state_1": [4, 8],
    }
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    first, second = tables.stream(tmp_path / "d.parquet")
    assert first.states.tolist() == [[2, 1]] and second.next_states.tolist() == [[[7, 8]]]


# What is bad gets a sentence that names the file.

GOOD = {"state": [0.0, 0.5, -0.5], "action": [0, 1, 0], "next_state": [0.1, 0.2, 0.3]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state": [0.0, None, 0.1]}, "state is missing .null. in row 1"),
        ({"action": [0, 1, None]}, "action is missing .null. in row 2"),
        ({"next_state": [0.0, np.nan, 0.1]}, "next_states must be finite: row 1"),
        ({"state": [0.0, 0.1, np.inf]}, "states must be finite: row 2"),
        ({"action": ["left", "right", "left"]}, "the column action holds string, not numbers"),
        ({"state": [[0.0], [1.0], [2.0]]}, "the column state holds list.* not numbers"),
        ({"action": [0.0, 0.5, 1.0]}, "whole numbers 0, 1, …, got 0.5 in row 1"),
        ({"action": [0, 1, -1]}, "whole numbers 0, 1, …, got -1 in row 2"),
        ({"action": [0, 1, 5]}, "action 5 in row 2 is not among the 2 actions"),
        ({"action": [0.0, 1.0, 1e300]}, "whole numbers"),
        ({"state": [0.0, 7.0, 0.1]}, r"1 of 3 states lie outside the domain \[-1, 1\]: row 1 is \[7.0\]"),
        (
            {"state": None, "s": [0, 1, 2]},
            "needs the columns state, action, next_state .* it has action, next_state, s",
        ),
        ({"state": None, "state_0": [0, 1, 2], "state_1": [0, 1, 2]}, "needs the columns"),
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_bad_rows_are_named(tmp_path, kind, change, sentence):
    columns = {name: values for name, values in (GOOD | change).items() if values is not None}
    file = tmp_path / f"bad.{kind}"
    if kind == "csv":
        if any(isinstance(value, list) for values in columns.values() for value in values):
            pytest.skip("CSV has no lists")
        pacsv.write_csv(pa.table(columns), file)
        if "null" in sentence or "string" in sentence:
            sentence = "not all numbers: row"
    else:
        pq.write_table(pa.table(columns), file)
    for read in (tables.read_transitions, lambda *paths, **given: list(tables.stream(*paths, **given, rows=1))):
        with pytest.raises(ValueError, match=sentence.replace("1 of 3", "1 of [13]")) as caught:
            read(file, domain=(-1, 1), n_actions=2)
        assert str(file) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"state": [0.0, None, 0.1]}, {"state": [0.0, np.inf, 0.1]}, {"action": [0, 1, -1]}])
def test_the_survey_or_the_stream_after_it_finds_bad_rows(tmp_path, change):
    pq.write_table(pa.table(GOOD | change), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"bad\.parquet: .* row"):
        list(tables.stream(tmp_path / "bad.parquet"))


def test_files_that_are_cut_short_or_something_else(log, tmp_path):
    file = tmp_path / "whole.parquet"
    pq.write_table(as_table(log), file)
    whole, cut = file.read_bytes(), tmp_path / "cut.parquet"
    for content in (b"", b"PAR1", whole[: len(whole) // 2], whole[:-5], b"state,action,next_state\n0,0,0\n"):
        cut.write_bytes(content)
        with pytest.raises(ValueError, match=r"cut\.parquet is not a Parquet file, or it is damaged or cut short"):
            list(tables.stream(cut, domain=(-1, 1)))


@pytest.mark.parametrize("where", [0, 2_000], ids=["page header", "page"])
def test_damage_inside_a_parquet_file_is_found(log, tmp_path, where):
    file = tmp_path / "spoiled.parquet"
    pq.write_table(as_table(log), file, use_dictionary=False, write_page_checksum=True)
    place = pq.ParquetFile(file).metadata.row_group(0).column(3).data_page_offset + where
    content = bytearray(file.read_bytes())
    content[place : place + 8] = b"\xff" * 8
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"spoiled\.parquet is not a Parquet file, or it is damaged"):
        list(tables.stream(file, domain=(-1, 1), n_actions=3))


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
def test_empty_files_are_refused_even_among_others(log, tmp_path, kind):
    folder = write(tmp_path / "log", log, kind)
    none = log.states[:0]
    if kind == "npz":
        np.savez(folder / "part-9.npz", states=none, actions=none, next_states=none)
    elif kind == "csv":
        (folder / "part-9.csv").write_text("state,action,next_state\n\n")
    else:
        pq.write_table(as_table(log, slice(0, 0)), folder / "part-9.parquet")
    for read in (tables.read_transitions, tables.survey, lambda paths: list(tables.stream(paths, domain=(-1, 1)))):
        with pytest.raises(ValueError, match=rf"part-9\.{kind}: there are no transitions"):
            read(folder)


def test_what_is_not_there_or_there_twice(log, tmp_path):
    folder = write(tmp_path / "log", log, "csv")
    one = folder / "part-0.csv"
    for paths, sentence in (
        (tmp_path / "none.parquet", "there is no file .*none.parquet"),
        (str(tmp_path / "*.parquet"), r"no file that matches .*\*\.parquet"),
        (tmp_path, "there is no .parquet, .csv or .npz file in the folder"),
    ):
        with pytest.raises(FileNotFoundError, match=sentence):
            tables.survey(paths)
    (folder / "list.txt").write_text("x")
    for paths, sentence in (
        ([], "no files to read"),
        ([one, str(one)], "part-0.csv is named twice"),
        ([folder, str(folder / "*-0.csv")], "part-0.csv is named twice"),
        (str(folder / "*"), "cannot read .*list.txt: transitions come as"),
    ):
        with pytest.raises(ValueError, match=sentence):
            tables.survey(paths)
    write(folder, log, "npz")
    with pytest.raises(ValueError, match=r"holds \.csv and \.npz files: name those to read"):
        tables.survey(folder)
    for rows in (0, 1.5, True):
        with pytest.raises(ValueError, match="rows must be a positive whole number"):
            tables.chunks(one, rows=rows)


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
def test_files_of_different_shape_are_not_mixed(tmp_path, kind):
    for name, d in (("a", 1), ("b", 2)):
        if kind == "npz":
            np.savez(tmp_path / f"{name}.npz", states=np.eye(2)[:, :d], actions=[0, 1], next_states=np.eye(2)[:, :d])
            continue
        columns = {f"{which}_{i}": [0.0, 1.0] for which in ("state", "next_state") for i in range(d)}
        table = pa.table(columns | {"action": [0, 1]})
        (pq.write_table if kind == "parquet" else pacsv.write_csv)(table, tmp_path / f"{name}.{kind}")
    with pytest.raises(ValueError, match=rf"1 coordinate in .*a\.{kind} but 2 in .*b\.{kind}"):
        tables.survey(tmp_path)
    with pytest.raises(ValueError, match=r"b\.|coordinates"):
        list(tables.stream(tmp_path, domain=(0, 1), n_actions=2))
    with pytest.raises(ValueError, match="coordinate"):
        tables.read_transitions(tmp_path)
    with pytest.raises(ValueError, match=r"coordinates but the domain|shape"):
        tables.read_transitions(tmp_path / f"b.{kind}", domain=(0, 1))


def test_a_box_or_actions_that_make_no_sense_are_refused(tmp_path):
    pq.write_table(pa.table({"state": [1.0, 1.0], "action": [0, 7], "next_state": [1.0, 1.0]}), tmp_path / "d.parquet")
    seen = tables.survey(tmp_path)
    with pytest.raises(ValueError, match="some coordinate never changes"):
        _ = seen.domain
    with pytest.raises(ValueError, match="an action 7 in only 2 transitions"):
        _ = seen.n_actions


def test_without_pyarrow_csv_works_and_parquet_says_what_to_install(log, tmp_path, monkeypatch):
    csv, parquet = write(tmp_path / "csv", log, "csv"), write(tmp_path / "parquet", log, "parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert_same_sums(tables.measure(csv, basis=BASIS, domain=(-1, 1)), certirl.measure(log, basis=BASIS))
    with pytest.raises(ImportError, match=r'pip install "certirl\[parquet\]"'):
        tables.survey(parquet)


def test_progress_reaches_the_number_of_rows(log, tmp_path):
    for kind in ("parquet", "csv", "npz"):
        seen = []
        folder = write(tmp_path / kind, log, kind)
        tables.measure(
            folder, basis=BASIS, rows=500, progress=lambda done, total, seen=seen: seen.append((done, total))
        )
        assert seen[-1] == (ROWS, ROWS) and len(seen) > 3


PEAK = """
import sys
import certirl
certirl.tables.measure(sys.argv[1], basis=certirl.Legendre(5), domain=(-1, 1), n_actions=3, rows=2**16)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_arrays_do_not_grow_with_the_data(tmp_path):
    peaks, rng, given = [], np.random.default_rng(0), {"domain": (-1, 1), "n_actions": 3}
    for rows in (2**15, 2**18):
        file, episodes = tmp_path / f"{rows}.parquet", tmp_path / f"{rows} episodes.parquet"
        table = {"state": rng.uniform(-1, 1, rows), "action": rng.integers(3, size=rows)}
        pq.write_table(pa.table(table | {"next_state": table["state"][::-1]}), file, row_group_size=2**13)
        pq.write_table(pa.table(table | {"episode": np.arange(rows) // 100}), episodes, row_group_size=2**13)
        stream = certirl.tables.stream_episodes(episodes, rows=2**13, **given)
        for data, asked in ((file, given | {"rows": 2**13}), (stream, {})):
            tracemalloc.start()
            certirl.tables.measure(data, basis=certirl.Legendre(5), **asked)
            peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
            tracemalloc.stop()
    assert max(peaks[2:]) < min(peaks[:2]) + 2, f"peak memory in MB: {peaks}"  # the larger table takes 6 MB


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("groups", [2**16, 10**7, None], ids=["small row groups", "one row group", "CSV"])
def test_memory_does_not_grow_with_the_data(tmp_path, groups):
    peaks, rng = [], np.random.default_rng(0)
    for rows in (200_000, 2_000_000) if groups else (100_000, 1_000_000):  # text is slower to read and takes as much
        states, file = rng.uniform(-1, 1, rows), tmp_path / f"{rows}.{'parquet' if groups else 'csv'}"
        table = pa.table({"state": states, "action": rng.integers(3, size=rows), "next_state": states[::-1]})
        if groups:
            pq.write_table(table, file, row_group_size=groups)
        else:
            pacsv.write_csv(table, file)
        done = subprocess.run([sys.executable, "-c", PEAK, str(file)], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 20, f"peak memory in MB: {peaks}"  # the larger table takes 48 MB, as text even more
