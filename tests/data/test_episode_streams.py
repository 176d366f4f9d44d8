"""Tables of episodes as streams: the same steps as in memory, wherever the table is cut; never across episodes."""

import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import certirl
from certirl.data import tables
from certirl.data.tables import Chunks, read_episodes, stream_episodes
from sizes import sizes

BOX = {"domain": (0, 1), "n_actions": 3}


def walks(count=15, seed=0):
    """Episodes of none to six steps: terminated, cut off, and cut off with a last action that led nowhere known."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        length = int(rng.integers(0, 7))
        found.append((rng.random(length + 1), rng.integers(3, size=length + 1), ("over", "cut", "led")[number % 3]))
    return found


def columns(walks, *, after):
    """The walks as columns: the next states in a column, or the last state in a row of its own."""
    rows = []
    for number, (states, actions, end) in enumerate(walks):
        last = len(states) - 1
        for step in range(last if after else last + 1):
            final = step == (last - 1 if after else last)
            action = None if step == last and end != "led" else int(actions[step])
            over = end == "over" and final and last > 0
            rows.append((number, step, states[step], action, over, states[step + 1] if after else None))
    names = ["episode", "step", "state", "action", "terminated", "next_state"]
    found = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return found if after else {name: found[name] for name in names[:-1]}


def write(path, columns, group=None):
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=group)
    else:
        lines = [",".join("" if v is None else str(v) for v in row) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join([",".join(columns), *lines]) + "\n")
    return path


def steps_of(stream):
    found = [
        (s[0], piece.actions[0], t[0])
        for piece in stream
        for s, t in zip(piece.states, piece.next_states[0], strict=True)
    ]
    return sorted(found)


def told(walks):
    """The steps by hand, and the rows that keep terminal states where they are."""
    found = []
    for states, actions, end in walks:
        found += [(states[i], int(actions[i]), states[i + 1]) for i in range(len(states) - 1)]
        if end == "over" and len(states) > 1:
            found += [(states[-1], action, states[-1]) for action in range(3)]
    return sorted(found)


def steps_in(log):
    return sorted(zip(log.states[:, 0], log.actions.tolist(), log.next_states[:, 0], strict=True))


@pytest.mark.parametrize("after", [False, True], ids=["rows that follow", "next states"])
@pytest.mark.parametrize("group", [1, 2, 3, 5, 1000])
def test_wherever_a_parquet_table_is_cut_the_steps_are_those_of_the_walks(tmp_path, group, after):
    path, expected = write(tmp_path / "log.parquet", columns(walks(), after=after), group), told(walks())
    assert steps_in(read_episodes(path, **BOX)) == expected
    for rows in (1, 4, 1000):
        stream = stream_episodes(path, rows=rows, **BOX)
        assert steps_of(stream) == expected
    chunks = stream_episodes(path, rows=1, **BOX).chunks()
    assert len(chunks) == pq.ParquetFile(path).num_row_groups
    assert chunks == tuple(pickle.loads(pickle.dumps(chunk)) for chunk in chunks)


@pytest.mark.parametrize("count", sizes(3, 8))
def test_every_border_between_two_chunks_is_tried(tmp_path, count):
    """Two row groups, cut before every single row: each kind of row is the first of a chunk once."""
    whole, expected = pa.table(columns(walks(count), after=False)), told(walks(count))
    for cut in range(1, len(whole)):
        with pq.ParquetWriter(tmp_path / "cut.parquet", whole.schema) as writer:
            writer.write_table(whole.slice(0, cut))
            writer.write_table(whole.slice(0, 0))  # a row group without a row
            writer.write_table(whole.slice(cut))
        assert steps_of(stream_episodes(tmp_path / "cut.parquet", rows=1, **BOX)) == expected


@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
def test_csv_and_names_of_episodes_say_the_same(tmp_path, rows):
    found, expected = columns(walks(), after=False), told(walks())
    named = found | {"episode": [f"run {9 - n % 10}{n}" for n in found["episode"]]}
    for name, own in {"numbers.csv": found, "names.csv": named, "names.parquet": named}.items():
        path = write(tmp_path / name, own)
        assert steps_of(stream_episodes(path, rows=rows, **BOX)) == expected
        assert steps_in(read_episodes(path, **BOX)) == expected


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_without_numbers_the_ends_tell_episodes_apart(tmp_path, suffix):
    found = columns(walks(), after=True)
    numbers = found.pop("episode")
    last = [i + 1 == len(numbers) or numbers[i + 1] != number for i, number in enumerate(numbers)]
    found["truncated"] = [end and not over for end, over in zip(last, found["terminated"], strict=True)]
    path = write(tmp_path / f"log.{suffix}", found, 3)
    log = read_episodes(path, **BOX)
    assert steps_in(log) == told(walks())
    assert log.episodes[log.episodes >= 0].tolist() == np.unique(numbers, return_inverse=True)[1].tolist()
    for rows in (1, 4, 1000):
        assert steps_of(stream_episodes(path, rows=rows, **BOX)) == told(walks())


def test_several_files_are_one_stream_whose_episodes_end_with_their_file(tmp_path):
    for part in range(3):
        write(tmp_path / f"part{part}.csv", columns(walks(seed=part), after=False))
    assert steps_of(stream_episodes(tmp_path, rows=7, **BOX)) == steps_in(read_episodes(tmp_path, **BOX))


@pytest.mark.parametrize("workers", [1, 2])
def test_moments_of_a_stream_are_those_of_the_log(tmp_path, workers):
    path = write(tmp_path / "log.parquet", columns(walks(100), after=False), 50)
    basis = certirl.Legendre(3)
    streamed = tables.measure(stream_episodes(path, rows=60, **BOX), basis=basis, map=workers)
    loaded = certirl.measure(read_episodes(path, **BOX), basis=basis)
    for name in ("counts", "gram", "cross", "outer"):
        np.testing.assert_allclose(getattr(streamed, name), getattr(loaded, name), rtol=1e-12, atol=1e-9)
    assert [source.rows for source in streamed.sources] == [int(loaded.counts.sum())]
    with pytest.raises(ValueError, match="leave domain and n_actions out here"):
        tables.measure(stream_episodes(path, **BOX), basis=basis, domain=(0, 1))


def test_the_box_and_the_actions_are_found_by_reading_once(tmp_path):
    path = write(tmp_path / "log.parquet", columns(walks(), after=False), 5)
    log = read_episodes(path)
    stream = stream_episodes(path, rows=4)
    assert isinstance(stream, Chunks)
    assert (stream.parts[0].domain, stream.parts[0].n_actions) == (log.domain, log.n_actions)


def test_controls_and_other_names_are_read_as_in_memory(tmp_path):
    found = columns(walks(), after=False)
    found["action"] = [None if a is None else (-2.0, 0.0, 1.9)[a] for a in found["action"]]
    found["action"] = [a if a is None or a >= 0 else 0.1 for a in found["action"]]  # below 0 it would be missing
    found["run"] = found.pop("episode")
    path = write(tmp_path / "log.csv", found)
    asked = {"domain": (0, 1), "actions": [0, 2], "episode_column": "run", "absorb": False}
    assert steps_of(stream_episodes(path, rows=5, **asked)) == steps_in(read_episodes(path, **asked))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("episode,state,action\n0,0,0\n1,0,0\n1,0.5,\n0,1,\n", "row 3 belongs before the row above it"),
        ("episode,state,action\na,0,0\nb,0,0\na,1,\n", "row 2 belongs before the row above it"),
        ("episode,step,state,action\n0,1,0,0\n0,0,1,\n", "row 1 belongs before the row above it, and a stream takes"),
        ("episode,state,action,terminated\n0,0,0,1\n0,.1,1,0\n0,.2,,0\n", "goes on after it was terminated"),
        ("episode,state,action\n0,0,\n0,.1,1\n0,.2,\n", "has a row without an action before its last one"),
        ("episode,state,action\n0,0,0\n0,2,\n", "rows from 0 on: 1 of 1 transitions leave the domain"),
        ("episode,state,action\n0,0,0\n0,0.1,x\n", "the column action holds 'x', …, not numbers .row 1"),
        ("episode,state,action\n0,0,0\nb,0.1,\n", "the column episode holds 'b', …, not numbers .row 1"),
        ("trajectory,state,action\n0,0,0\n,0.1,\n", "trajectory is missing or not finite in row 1"),
    ],
)
@pytest.mark.parametrize("rows", [1, 100])
def test_what_no_stream_can_mend_is_refused_by_file_and_row(tmp_path, text, sentence, rows):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(ValueError, match="log.csv.*" + sentence):
        list(stream_episodes(tmp_path / "log.csv", rows=rows, **BOX))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state": [0.0, None, 0.2]}, "state is missing or not finite in row 1"),
        ({"state": [0.0, 0.1, float("nan")]}, "state is missing or not finite in row 2"),
        ({"state": ["a", "b", "c"]}, "the column state holds 'a', …, not numbers"),
        ({"episode": [0, None, 1]}, "episode is missing or not finite in row 1"),
        ({"episode": ["a", "b", "a"]}, "row 2 belongs before the row above it"),
        ({"action": ["left", "right", None]}, "the column action holds 'left', …, not numbers"),
    ],
)
@pytest.mark.parametrize("group", [1, 3])
def test_bad_cells_of_parquet_are_named_by_row(tmp_path, change, sentence, group):
    path = write(
        tmp_path / "log.parquet",
        {"episode": [0, 0, 0], "state": [0.0, 0.1, 0.2], "action": [0, 1, None]} | change,
        group,
    )
    with pytest.raises(ValueError, match="log.parquet: " + sentence):
        list(stream_episodes(path, rows=1, **BOX))


def test_an_end_is_noticed_across_row_groups(tmp_path):
    found = {"episode": [0, 0, 0], "state": [0.0, 0.1, 0.2], "action": [0, 1, None], "terminated": [True, False, False]}
    path = write(tmp_path / "log.parquet", found, 1)
    with pytest.raises(ValueError, match="episode 0 goes on after it was terminated"):
        list(stream_episodes(path, rows=1, **BOX))


def test_wrong_calls_are_refused(tmp_path):
    path = write(tmp_path / "log.csv", columns(walks(), after=False))
    with pytest.raises(ValueError, match="cannot say what it dropped"):
        stream_episodes(path, outside="drop", **BOX)
    with pytest.raises(ValueError, match="with state= the domain"):
        stream_episodes(path, state=lambda s: s)
    with pytest.raises(ValueError, match="needs the columns run, state"):
        stream_episodes(path, episode_column="run")


def test_demonstrations_are_read_from_whatever_holds_states_and_actions(tmp_path):
    found = columns(walks(), after=False)
    known = [row for row, action in enumerate(found["action"]) if action is not None]
    states, actions = np.array(found["state"])[known], np.array(found["action"], dtype=float)[known]
    numbers = np.unique(np.array(found["episode"])[known], return_inverse=True)[1]
    np.savez(tmp_path / "seen.npz", states=states, actions=actions.astype(int), episodes=numbers)
    np.savez(tmp_path / "bare.npz", states=states, actions=actions)
    for path in (write(tmp_path / "log.csv", found), write(tmp_path / "log.parquet", found), tmp_path / "seen.npz"):
        one, other, episodes = tables.read_demonstrations(path)
        np.testing.assert_array_equal(one[:, 0], states)
        np.testing.assert_array_equal(other, actions)
        np.testing.assert_array_equal(episodes, numbers)
    assert tables.read_demonstrations(tmp_path / "bare.npz")[2] is None
    np.savez(tmp_path / "wrong.npz", states=states)
    with pytest.raises(ValueError, match=r"wrong.npz: demonstrations need the arrays states and actions"):
        tables.read_demonstrations(tmp_path / "wrong.npz")
    (tmp_path / "wrong.csv").write_text("state,next_state\n0,1\n")
    with pytest.raises(ValueError, match=r"wrong.csv: demonstrations need the columns state"):
        tables.read_demonstrations(tmp_path / "wrong.csv")


PEAK = """
import sys
import certirl
chunks = certirl.tables.stream_episodes(sys.argv[1], domain=(-1, 1), n_actions=3)
certirl.tables.measure(chunks, basis=certirl.Legendre(5))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_episodes(tmp_path):
    peaks, rng = [], np.random.default_rng(0)
    for rows in (200_000, 2_000_000):
        file, episode = tmp_path / f"{rows}.parquet", np.arange(rows) // 1000
        table = {"episode": episode, "state": rng.uniform(-1, 1, rows), "action": rng.integers(3, size=rows)}
        pq.write_table(pa.table(table), file, row_group_size=2**16)
        done = subprocess.run([sys.executable, "-c", PEAK, str(file)], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 20, f"peak memory in MB: {peaks}"  # the larger table takes 48 MB
