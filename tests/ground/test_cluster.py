"""Wherever the work is done, results are the same to the last bit; what goes wrong there is said in a sentence."""

import json
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import certirl
from certirl.cli import main
from certirl.data import tables
from certirl.data.moments import accumulate
from certirl.data.moments import load as load_moments
from certirl.data.simulator import draw
from certirl.data.transitions import CHUNK
from certirl.ground import work as _map
from certirl.paper import study
from certirl.paper.figures import figure3
from files import parts
from sizes import sizes

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

PROBLEM = certirl.problems.random_polynomial(seed=7)
BASIS = certirl.Legendre(7)
SUMS = ("counts", "gram", "cross", "outer")
PLACES = ["1", *sizes("2", "3", "threads", "processes", "client")]


@contextmanager
def local_cluster(workers=2):
    settings = {"threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(n_workers=workers, silence_logs=logging.CRITICAL, **settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    """A Dask cluster; what uses it is slow (see conftest.py)."""
    with local_cluster() as client:
        yield client


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(3) as pool:
        yield pool


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def place(request):
    """Where the work is done: a number of threads, an executor, or the client of a cluster."""
    return int(request.param) if request.param.isdigit() else request.getfixturevalue(request.param)


def logged(samples):
    return certirl.steps.sample(PROBLEM, basis=BASIS, samples=samples, rng=0)


@pytest.fixture(scope="module")
def log():
    return logged(100_000)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of Parquet files, of several chunks each."""
    folder, small = tmp_path_factory.mktemp("files"), logged(6_000)
    table = pa.table({"state": small.states[:, 0], "action": small.actions, "next_state": small.next_states[:, 0]})
    for i in range(3):
        pq.write_table(table.slice(6_000 * i, 6_000), folder / f"part-{i}.parquet", row_group_size=1_000)
    return folder


def assert_same(one, other):
    for name in SUMS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


# The same everywhere -------------------------------------------------------------------------------------------------


def itself(chunk):
    return chunk


def nested(one, other):
    return (one, other)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 11])
def test_sums_are_taken_in_one_order(client, count):
    found = []
    for place in (1, 3, client):
        with _map.on(place):
            found.append(_map.fold(itself, list(range(count)), nested))
    assert found[0] == found[1] == found[2]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.parametrize("paired", [True, False], ids=["paired", "unpaired"])
def test_moments_of_draws(place, paired):
    def moments(where):
        with _map.on(where):
            stream = draw(PROBLEM, BASIS, 3 * CHUNK + 7, 0, paired=paired)
            ((found,),) = accumulate(stream, [(BASIS, BASIS.resized(3))], n_actions=3)
        return found

    assert_same(moments(place), moments(1))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.parametrize("samples", [100_000, 5_000], ids=["sent a few at a time", "sent at once"])
def test_moments_of_a_log(place, samples, log):
    data = log if samples == 100_000 else logged(samples)
    assert _map.is_heavy(itself, data.chunks()) == (samples == 100_000)
    assert_same(certirl.steps.measure(data, basis=BASIS, map=place), certirl.steps.measure(data, basis=BASIS, map=1))


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_moments_of_files_named_from_here(place, files, monkeypatch):
    monkeypatch.chdir(files)  # where the workers of the cluster are not
    given = {"domain": (-1, 1), "n_actions": 3, "rows": 1_500}
    assert len(tables.stream("*.parquet", **given).chunks()) == 9
    found, expected = (
        certirl.steps.measure(tables.stream("*.parquet", **given), basis=BASIS, map=where) for where in (place, 1)
    )
    assert_same(found, expected)
    assert found.files == expected.files


def numbers_of(solution, folder):
    return parts(solution.save(folder / "solution"))


@pytest.mark.parametrize("place", PLACES[1:], indirect=True)
@pytest.mark.parametrize("source", sizes("log", "simulator"))
def test_every_number_of_a_certificate(place, source, log, tmp_path):
    data = PROBLEM if source == "simulator" else log
    asked = {"discount": 0.7, "basis": certirl.Legendre(11), "columns": 3, "delta": 0.05, "tail": 0, "rng": 0}
    found, expected = (numbers_of(certirl.solve(data, expert=0, map=where, **asked), tmp_path) for where in (place, 1))
    assert found[0] == expected[0] and found[0]["findings"][0]["status"] == "certified"
    for name, values in expected[1].items():
        assert np.array_equal(found[1][name], values), name


TRIAL = """
import {helper}

LEAST = 0.25

def trial(task):
    return {{"answer": {helper}.root(task[0]) + LEAST}}
"""


def test_a_sweep_whose_files_the_workers_do_not_have(client, tmp_path, monkeypatch):
    (tmp_path / "helper_of_a_sweep.py").write_text("def root(x):\n    return x ** 0.5\n")
    (tmp_path / "trials_of_a_sweep.py").write_text(TRIAL.format(helper="helper_of_a_sweep"))
    monkeypatch.syspath_prepend(tmp_path)  # of this process alone: the workers run already
    import trials_of_a_sweep

    tasks = [[i] for i in range(12)]
    expected = study.Runner(None, 1, False)(trials_of_a_sweep.trial, tasks)
    seen = []
    with _map.on(client):
        runner = study.Runner(tmp_path / "memory", progress=lambda done, total: seen.append((done, total)))
        assert runner(trials_of_a_sweep.trial, tasks) == expected
    assert seen[-1] == (12, 12) and len(study._read_trials(tmp_path / "memory")) == 12
    assert client.submit(_can_import, "trials_of_a_sweep").result() is False


def _can_import(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


def test_trials_of_the_paper(client):
    runner = study.Runner(progress=False, workers=1)
    tasks = [[method, 7, [5, 9], [500, 4_000], 0.7, 0.05, 0, 0] for method in ("the paper", "certirl")]
    expected = runner(figure3.trial, tasks)
    with _map.on(client):
        assert runner(figure3.trial, tasks) == expected


class Holding:
    """A simulator that holds something."""

    n_actions, domain, thread_safe = 3, PROBLEM.domain, True

    def __init__(self, held):
        self.held = held

    def sample(self, states, action, rng):
        if callable(self.held):
            self.held(states)
        return PROBLEM.sample(states, action, rng)


def test_what_all_chunks_share_travels_once(client):
    """A simulator with a large table: half a megabyte for all chunks together, not for each."""
    chunks = draw(Holding(np.ones(65_536)), BASIS, 8 * CHUNK, 0).chunks()
    assert len(chunks) == 8 and not _map.is_heavy(itself, chunks)
    assert len(_map.packed((itself, chunks))) < 600_000


def pid_of_the_worker(chunk):
    time.sleep(0.1)
    return [os.getpid()]


def test_everyone_has_something_to_do(client):
    with _map.on(client):
        assert len(set(_map.fold(pid_of_the_worker, [1, 2, 3, 4]))) == 2


def test_a_simulator_with_a_large_table_gives_the_same(client):
    assert_same(accumulated(Holding(np.ones(65_536)), client), accumulated(PROBLEM, 1))


def test_a_simulator_made_on_the_way_travels(client):
    held = []
    assert_same(accumulated(Holding(lambda states: held), client), accumulated(PROBLEM, 1))


# A worker that dies --------------------------------------------------------------------------------------------------


def slow_sum(array):
    time.sleep(0.15)
    return array.sum()


def slow_draws(place):
    slow = Holding((lambda states: time.sleep(0.05)) if place != 1 else None)
    ((found,),) = accumulate(draw(slow, BASIS, 100_000, 0), [(BASIS, BASIS)], n_actions=3)
    return np.concatenate([getattr(found, name).ravel() for name in SUMS])


def slow_data(place):
    return _map.fold(slow_sum, list(np.random.default_rng(0).normal(size=(16, 100_000))))


def kill_one_at_work(client, processes, killed):
    """As soon as a worker is at work, and something was done before."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not killed:
        at_work = [address for address, keys in client.processing().items() if any("_on_" in str(k) for k in keys)]
        if at_work and any("_on_" in str(key) for keys in client.has_what().values() for key in keys):
            os.kill(processes[at_work[0]], signal.SIGKILL)
            killed.append(processes[at_work[0]])
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("work", [slow_data, slow_draws])
def test_a_worker_killed_in_the_middle_changes_nothing(client, work):
    client.wait_for_workers(2, timeout=30)
    killed, before = [], client.run(os.getpid)
    killer = threading.Thread(target=kill_one_at_work, args=(client, before, killed))
    killer.start()
    with _map.on(client):
        found = work(client)
    killer.join()
    client.wait_for_workers(2, timeout=30)
    assert len(killed) == 1, "no worker was killed in the middle"
    assert killed[0] not in client.run(os.getpid).values()
    with _map.on(1):
        assert np.array_equal(found, work(1))


def deadly(chunk):
    os._exit(1)


@pytest.mark.slow
def test_a_task_that_kills_its_workers_is_a_sentence():
    sentence = pytest.raises(ChildProcessError, match="1 workers of the Dask cluster died at the same task")
    failing = dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with failing, local_cluster(1) as client, _map.on(client), sentence:
        _map.fold(deadly, [1, 2])


# Mistakes ------------------------------------------------------------------------------------------------------------


def accumulated(simulator, place):
    with _map.on(place):
        ((found,),) = accumulate(draw(simulator, BASIS, 20_000, 0), [(BASIS, BASIS)], n_actions=3)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "sentence"),
    [("client", "to the workers of a cluster .*lock"), ("processes", "to another process")],
    indirect=["place"],
)
def test_what_cannot_be_sent_is_a_sentence(place, sentence):
    with pytest.raises(TypeError, match=f"something cannot be sent {sentence}"):
        accumulated(Holding(threading.Lock()), place)


def outside(states):
    raise ValueError("the states are all wrong")


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_an_error_in_a_task_is_the_same_sentence(place):
    sentence = r"^the simulator's sample failed in outside \(.*\): ValueError: the states are all wrong$"
    with pytest.raises(certirl.UserCodeError, match=sentence):
        accumulated(Holding(outside), place)


def test_a_package_that_workers_lack_is_a_sentence(client, tmp_path, monkeypatch):
    (tmp_path / "not_installed_there").mkdir()
    (tmp_path / "not_installed_there" / "__init__.py").write_text("def look(states):\n    return states\n")
    monkeypatch.syspath_prepend(tmp_path)
    import not_installed_there

    with pytest.raises(ImportError, match=r"lacks what it needs \(No module named 'not_installed_there'\).*upload"):
        accumulated(Holding(not_installed_there.look), client)


def test_a_client_that_is_closed_or_alone_is_a_sentence(monkeypatch, client):
    settings = {"processes": False, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    monkeypatch.setattr(_map, "WAIT", 0.3)
    monkeypatch.setattr(_map, "LOOK", 0.05)
    with distributed.LocalCluster(n_workers=0, **settings) as cluster:
        with distributed.Client(cluster, set_as_default=False) as alone:
            with pytest.raises(ConnectionError, match="no workers for 0 seconds: start some"):
                accumulated(PROBLEM, alone)
            with pytest.raises(ConnectionError, match="no workers"), _map.on(alone):
                study.Runner(progress=False)(itself, [[1]])
        with pytest.raises(ConnectionError, match="the Dask client is closed: connect again"):
            accumulated(PROBLEM, alone)
        with pytest.raises(ConnectionError, match="closed"), _map.on(alone):
            _map.fold(itself, list(np.ones((2, 10**5))))
    with pytest.raises(ValueError, match="no data"), _map.on(client):
        _map.fold(itself, [])


@pytest.mark.parametrize("kind", ["draws", "data", "trials"])
def test_ctrl_c_leaves_nothing_behind(client, kind):
    work = {
        "draws": lambda: accumulated(Holding(lambda states: time.sleep(0.3)), client),
        "data": lambda: slow_data(client),
        "trials": lambda: study.Runner(progress=False)(slow_trial, [[i] for i in range(20)]),
    }
    before = signal.signal(signal.SIGINT, ctrl_c)
    interrupt = threading.Timer(0.6, signal.raise_signal, [signal.SIGINT])
    interrupt.start()
    try:
        with _map.on(client), pytest.raises(KeyboardInterrupt):
            work[kind]()
    finally:
        interrupt.cancel()  # or it would end another test
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 10
    while (left := client.run_on_scheduler(_tasks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == 0


def ctrl_c(number, frame):
    """Raise KeyboardInterrupt; where Python drops exceptions (callbacks of weak references, __del__) a moment later."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or "weakref" in frame.f_code.co_filename:
            threading.Timer(0.02, signal.raise_signal, [number]).start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def slow_trial(task):
    time.sleep(0.2)
    return task


def _tasks(dask_scheduler):
    return len(dask_scheduler.tasks)


# The command line ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").symlink_to(files)
    return tmp_path


GIVEN = ["--domain", "-1", "1", "--basis", "legendre", "--columns", "3"]


@pytest.mark.slow
def test_commands_at_a_scheduler_write_the_same(folder, client, capsys):
    address = client.scheduler.address
    for name, there in (("here", ["--workers", "1"]), ("there", ["--scheduler", address])):
        assert main(["moments", "log", *GIVEN, "-o", f"{name}.npz", *there]) == 0
        solving = ["solve", "log", "--discount", "0.7", *GIVEN, "--delta", "0.05", "--tail", "0", "--plot", ""]
        assert main([*solving, "-o", f"solved-{name}.npz", *there]) in (0, 5)
    assert capsys.readouterr().err == ""
    assert_same(load_moments("here.npz"), load_moments("there.npz"))
    with np.load("solved-here.npz") as here, np.load("solved-there.npz") as there:
        parts = [dict(here), dict(there)]
    headers = [json.loads(str(part.pop("header"))) for part in parts]
    commands = [header["record"]["about"].pop("command") for header in headers]
    assert commands[1].endswith(f"solved-there.npz --scheduler {address}") and headers[0] == headers[1]
    assert parts[0].keys() == parts[1].keys()
    assert all(np.array_equal(parts[0][name], parts[1][name]) for name in parts[0])


@pytest.mark.slow
def test_a_cluster_of_its_own_is_started_and_ended(folder, capsys):
    assert main(["moments", "log", *GIVEN, "--scheduler", "local", "--workers", "1"]) == 0
    assert "18,000 transitions" in (printed := capsys.readouterr()).out and printed.err == ""


@pytest.mark.slow
def test_an_error_in_a_cluster_of_its_own_is_one_sentence(folder, capsys):
    assert main(["moments", "log", "--domain", "0", "1", "--scheduler", "local", "--workers", "1"]) == 2
    assert "leave the domain [0, 1]" in (error := capsys.readouterr().err) and error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--scheduler", "tcp:/nowhere"], "must be an address such as tcp://host:8786, or local, got 'tcp:/nowhere'"),
        (["--scheduler", "tcp://127.0.0.1:1"], "there is no Dask scheduler at tcp://127.0.0.1:1"),
        (["--scheduler", "tcp://127.0.0.1:1", "--workers", "2"], "--workers is for this machine"),
        (["--scheduler", "local", "--workers", "0"], "--workers must be a whole number"),
        (["--workers", "-1"], "--workers must be a whole number"),
    ],
)
def test_wrong_places_are_one_sentence(folder, capsys, monkeypatch, options, sentence):
    monkeypatch.setattr(_map, "CONNECT", 0.2)
    assert main(["moments", "log", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("certirl: ") and sentence in error and error.count("\n") == 1
    assert not (folder / "moments.npz").exists()


def test_without_dask_a_scheduler_says_what_to_install(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["moments", "log", "--scheduler", "local"]) == 2
    assert 'pip install "certirl[cluster]"' in capsys.readouterr().err
