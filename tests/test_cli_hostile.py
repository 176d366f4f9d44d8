"""What is typed wrongly, cannot be written or is interrupted: one sentence in the command's words, nothing lost."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import certirl
from certirl import _interrupts, archive, doors
from certirl._map import fold, on
from certirl.cli import main

mpl.use("Agg")


def test_settings_are_named_as_the_user_writes_them():
    assert doors.setting("outside", "'clip'") == "outside='clip'" and doors.setting("tail") == "tail"
    with doors.options({"outside": "--outside", "domain": "--domain LOW HIGH", "n_actions": "--actions"}):
        assert doors.setting("outside", "'clip'") == "--outside clip" and doors.setting("outside") == "--outside"
        assert doors.setting("domain", "((low, high), …)") == "--domain LOW HIGH"
        assert doors.setting("tail", "0") == "tail=0"  # no option of this command
        with pytest.raises(ValueError, match=r"^--actions must be a whole number, at least 1, got -3$"):
            doors.as_count(-3, "n_actions")
    with pytest.raises(ValueError, match=r"^n_actions must be"):
        doors.as_count(-3, "n_actions")


def test_settings_are_named_alike_on_other_threads():
    with doors.options({"n_actions": "--actions"}), on(2):
        assert fold(lambda _: [doors.setting("n_actions")], range(4)) == ["--actions"] * 4
    assert fold(lambda _: np.array([doors.setting("n_actions")]), [0]) == ["n_actions"]


# Nothing is lost ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of all kinds, right and wrong ones."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, 600), rng.integers(2, size=600)
    after = np.clip(states / 2 + np.where(actions == 0, 0.3, -0.3) + 0.1 * rng.normal(size=600), -1, 1)
    rows = list(zip(states, actions, after, strict=True))
    write(folder / "log.csv", "state,action,next_state", rows)
    write(folder / "seen.csv", "state,action", [(s, int(s > 0)) for s in states[:200]])
    write(folder / "one_action.csv", "state,action,next_state", [(s, 0, t) for s, _, t in rows])
    write(folder / "huge_action.csv", "state,action,next_state", [*rows, (0.1, 10**6, 0.2)])
    write(
        folder / "box.csv", "state_0,state_1,action,next_state_0,next_state_1", [(*r[:2], r[1], *r[1:]) for r in rows]
    )
    episodes = [(e, s, a if k < 9 else "") for e in range(40) for k, (s, a, _) in enumerate(rows[10 * e : 10 * e + 10])]
    write(folder / "episodes.csv", "episode,state,action", episodes)
    write(folder / "mixed.csv", "episode,state,action", episodes[::-1])
    write(folder / "short_episodes.csv", "episode,state,action", [(e, s, a) for e, (s, a, _) in enumerate(rows)])
    write(folder / "commas.csv", "state;action;next_state", [("0,5;0;0", "25")])
    (folder / "empty.csv").write_text("")
    (folder / "binary.csv").write_bytes(bytes(range(256)))
    (folder / "binary.npz").write_bytes(bytes(range(256)))
    (folder / "notes.txt").write_text("nothing")
    (folder / "folder").mkdir()
    (folder / "folder.npz").mkdir()
    np.savez(folder / "log.npz", states=states, actions=actions, next_states=after)
    assert main(["moments", str(folder / "log.csv"), "--domain", "-1", "1", "-o", str(folder / "moments.npz")]) == 0
    return folder


def write(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows), ""]), encoding="utf-8")


@pytest.fixture
def folder(data, tmp_path, monkeypatch):
    target = tmp_path / "work"
    shutil.copytree(data, target)
    monkeypatch.chdir(target)
    return target


SOLVE = ["solve", "log.csv", "--domain", "-1", "1", "--discount", "0.9", "--basis", "legendre", "--size", "5"]
VERBS = {
    "solve": ([*SOLVE, "--plot", "", "-o", "out.npz"], "out.npz"),
    "moments": (["moments", "log.csv", "--domain", "-1", "1", "-o", "out.npz"], "out.npz"),
    "merge": (["merge", "moments.npz", "-o", "out.npz"], "out.npz"),
    "demo": (["demo", "--output", "out.npz", "--plot", ""], "out.npz"),
    "coverage": (["coverage", "log.csv", "--plot", "out.png"], "out.png"),
    "show": (["show", "reward.npz", "--plot", "out.png"], "out.png"),
}


class Stream(io.StringIO):
    """Standard output of which something is wrong."""

    def __init__(self, problem=None, encoding="utf-8"):
        super().__init__()
        self.problem, self.charset = problem, encoding

    @property
    def encoding(self):
        return self.charset

    def write(self, text):
        text.encode(self.charset)
        if self.problem is not None:
            raise self.problem
        return super().write(text)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("stream", "code", "said"),
    [
        (Stream(BrokenPipeError(32, "Broken pipe")), 0, ""),
        (Stream(OSError(28, "No space left on device")), 2, "standard output could not be written: no space left"),
        (Stream(encoding="ascii"), 0, ""),
    ],
    ids=["pipe", "full", "ascii"],
)
def test_whatever_becomes_of_the_output_the_result_is_written(folder, monkeypatch, capsys, verb, stream, code, said):
    if verb == "show":
        assert main([*SOLVE, "--plot", ""]) == 0
    words, written = VERBS[verb]
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(words) == code
    assert (folder / written).stat().st_size > 500
    error = capsys.readouterr().err
    assert error.startswith(f"certirl: {said}") and error.count("\n") == 1 if said else error == ""
    if stream.charset == "ascii":
        printed = stream.getvalue()
        assert printed and printed.isascii()


def test_a_reader_who_goes_away_and_a_full_disk_beyond_a_pipe(folder):
    """The same with a real pipe, of which only the first line is read, and with a device that is always full."""
    command = [sys.executable, "-u", "-m", "certirl", *SOLVE, "--plot", "", "-o"]
    full = open("/dev/full", "w") if Path("/dev/full").exists() else subprocess.DEVNULL  # noqa: SIM115
    piped = subprocess.Popen([*command, "piped.npz"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stuck = subprocess.Popen([*command, "stuck.npz"], stdout=full, stderr=subprocess.PIPE)
    piped.stdout.readline()
    piped.stdout.close()
    assert piped.stderr.read() == b"" and piped.wait() == 0
    if full is not subprocess.DEVNULL:
        full.close()
        assert stuck.communicate()[1] == b"certirl: standard output could not be written: no space left on device\n"
    assert stuck.wait() == (0 if full is subprocess.DEVNULL else 2)
    for name in ("piped.npz", "stuck.npz"):
        assert certirl.load(name).reward is not None
    for process in (piped, stuck):
        process.stderr.close()


@pytest.mark.parametrize("verb", ["solve", "moments", "merge", "demo"])
def test_a_disk_that_fills_up_while_the_result_is_written_does_not_lose_it(folder, monkeypatch, capsys, verb):
    words, _ = VERBS[verb]
    rescue = folder / "temporary"
    rescue.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(rescue))
    real, first = np.savez, []

    def savez(stream, **arrays):
        if not first:
            first.append(True)
            stream.write(b"half of it")
            raise OSError(28, "No space left on device")
        real(stream, **arrays)

    monkeypatch.setattr(np, "savez", savez)
    before = set(folder.iterdir())
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("certirl: cannot write out.npz: no space left on device; it was saved as ")
    assert printed.err.count("\n") == 1 and "transitions" in printed.out
    (saved,) = rescue.rglob("out.npz")
    assert str(saved) in printed.err and archive.read(saved)[0] in ("solution", "moments")
    assert set(folder.iterdir()) == before  # no half of a file, and nothing temporary


def test_if_nothing_can_be_written_anywhere_the_result_is_printed(folder, monkeypatch, capsys):
    def savez(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", savez)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "folder"))
    assert main(VERBS["solve"][0]) == 2
    printed = capsys.readouterr()
    assert (
        "it is only printed" in printed.err and printed.err.count("\n") == 1 and "reward   Legendre(5)" in printed.out
    )


def test_a_picture_that_cannot_be_written_loses_neither_the_result_nor_the_lines(folder, monkeypatch, capsys):
    from matplotlib.figure import Figure

    def savefig(self, path, **_):
        Path(path).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", savefig)
    assert main([*SOLVE, "--plot", "out.png", "-o", "out.npz"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "certirl: cannot write out.png: no space left on device\n"
    assert "Solution: out.npz" in printed.out and "Picture" not in printed.out
    assert not (folder / "out.png").exists() and certirl.load("out.npz").reward is not None


NOT_FILES = {
    ".": "cannot write .: it is a folder; name a file, such as name.",
    "..": "cannot write ..: it is a folder",
    "": "the name of a file must not be empty",
    "folder": "cannot write folder: it is a folder; name a file, such as folder/name.",
    "nowhere/x": "there is no folder nowhere to write x.",
    "log.csv/x": "there is no folder log.csv to write x.",
    "x" * 300: "file name too long",
}


@pytest.mark.parametrize("name", NOT_FILES)
def test_what_cannot_be_a_file_is_refused_before_the_work(folder, monkeypatch, capsys, name):
    monkeypatch.setattr("certirl.cli.solve", None)  # nothing is worked on
    monkeypatch.setattr("certirl.cli.solved", None)
    monkeypatch.setattr("certirl.tables.measure", None)
    monkeypatch.setattr(certirl.moments, "merge", None)
    before = sorted(folder.rglob("*"))
    commands = [
        [*SOLVE, "-o", name],
        ["moments", "log.csv", "-o", name],
        ["merge", "moments.npz", "-o", name],
        ["demo", "--output", name],
    ]
    if name:  # --plot '' asks for no picture
        commands += [[*SOLVE, "--plot", name], ["demo", "--plot", name], ["coverage", "log.csv", "--plot", name]]
    for words in commands:
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith("certirl: ") and NOT_FILES[name] in error and error.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_folders_that_cannot_be_written_to_are_found_before_the_work(folder, monkeypatch, capsys):
    monkeypatch.setattr("certirl.cli.solved", None)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "folder")
    assert main([*SOLVE, "-o", "folder/x"]) == 2
    assert capsys.readouterr().err == "certirl: cannot write folder/x.npz: folder is write-protected\n"
    (folder / "x.npz").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "x.npz")
    assert main([*SOLVE, "-o", "x"]) == 2
    assert capsys.readouterr().err == "certirl: cannot write x.npz: x.npz is write-protected\n"
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("certirl.cli.solved", None)

    def temporary(dir):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", temporary)
    assert main([*SOLVE, "-o", "y"]) == 2
    assert capsys.readouterr().err == "certirl: cannot write y.npz: read-only file system\n"
    for verb in ("reproduce figure1 --fast", "bench --fast"):
        for out in ("log.csv", "log.csv/x"):
            assert main([*verb.split(), "--out", out]) == 2
            assert capsys.readouterr().err.startswith(f"certirl: cannot write to {out}: ")


def test_a_result_never_takes_the_place_of_what_it_was_made_from(folder, capsys):
    for words in (
        ["solve", "log.npz", "--discount", "0.9", "-o", "log.npz"],
        ["solve", "moments.npz", "--discount", "0.9", "-o", "moments"],
        ["solve", "*og.npz", "--discount", "0.9", "-o", "folder/../log.npz"],
        ["merge", "moments.npz", "-o", "moments.npz"],
        ["moments", "log.npz", "-o", "./log.npz"],
    ):
        assert main(words) == 2
        assert "is an input; write the result elsewhere" in capsys.readouterr().err
    os.rename("log.npz", "expert.npz")
    assert main([*SOLVE, "--expert", "expert.npz", "-o", "expert.npz"]) == 2
    assert "expert.npz is an input" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "problem", "sentence"),
    [
        (".", OSError, "cannot write .: it is a folder; name a file, such as name"),
        ("", ValueError, "the name of a file must not be empty"),
        (None, TypeError, "a file is named by a string or a path, got None"),
        (5, TypeError, "a file is named by a string or a path, got 5"),
        (b"x.npz", TypeError, "a file is named by a string or a path, got b'x.npz'"),
        ("nowhere/x.npz", FileNotFoundError, "there is no folder nowhere to write x"),
        ("a\0b", ValueError, "must not be empty nor contain the character 0"),
    ],
)
def test_save_load_and_plot_refuse_what_names_no_file(folder, path, problem, sentence):
    solution = certirl.solve(certirl.tables.read_transitions("log.csv"), discount=0.9, basis=certirl.Legendre(5))
    before = sorted(folder.rglob("*"))
    with pytest.raises(problem, match=sentence):
        solution.save(path)
    if path is not None:
        with pytest.raises(problem, match=sentence):
            solution.plot(path=path)
    if not isinstance(path, str):
        with pytest.raises(problem, match=sentence):
            certirl.load(path)
    elif not issubclass(problem, ValueError):
        with pytest.raises(FileNotFoundError, match=r"is a folder|there is no file"):
            certirl.load(path)
    assert sorted(folder.rglob("*")) == before


def test_pictures_get_a_suffix_and_replace_what_a_link_leads_to(folder, capsys):
    assert main([*SOLVE, "--plot", "picture.v1", "-o", "r.v1"]) == 0
    assert "Solution: r.v1.npz\nPicture: picture.v1.png" in capsys.readouterr().out
    assert (folder / "picture.v1.png").read_bytes().startswith(b"\x89PNG")
    (folder / "link.npz").symlink_to(folder / "folder" / "there.npz")
    assert main([*SOLVE, "--plot", "x.svg", "-o", "link"]) == 0
    assert (folder / "link.npz").is_symlink() and certirl.load("folder/there.npz").reward is not None
    assert b"<svg" in (folder / "x.svg").read_bytes()


# Ctrl-C ---------------------------------------------------------------------------------------------------------------

ALARM = """
import os, signal, sys, threading, time

def ring():
    while not {"certirl._interrupts", "numpy"} & set(sys.modules):
        time.sleep(0.001)
    time.sleep(float(os.environ["RING_AFTER"]))
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=ring, daemon=True).start()
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no signals to send")
def test_ctrl_c_is_one_line_from_the_first_import_on(tmp_path):
    """Delays are counted from the first import: before it, no package has a say."""
    (tmp_path / "sitecustomize.py").write_text(ALARM)
    script = tmp_path / "certirl"  # as pip writes it
    script.write_text("import sys\nfrom certirl.cli import main\nsys.exit(main())\n")
    paths = os.pathsep.join([str(tmp_path), str(Path(certirl.__file__).parents[1])])
    endless = ["demo", "--problem", "12", "--max-samples", "1000000000", "--output", "never.npz", "--plot", ""]
    running = []
    module = ["-m", "certirl"]
    for delay, start in ((0.05, module), (0.15, [str(script)]), (0.4, module), (1.0, [str(script)])):
        environment = os.environ | {"PYTHONPATH": paths, "RING_AFTER": str(delay)}
        given = {"env": environment, "cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(subprocess.Popen([sys.executable, *start, *endless], **given))
    for process in running:
        _, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (130, b"certirl: interrupted\n")
    assert not (tmp_path / "never.npz").exists()


def test_an_interrupt_that_a_library_turns_into_its_own_error_is_one_line(folder, monkeypatch, capsys):
    def misled(*_):
        with contextlib.suppress(KeyboardInterrupt):
            _interrupts.during_work()
        raise ImportError("numpy._core.multiarray failed to import")

    monkeypatch.setattr("certirl.cli.solved", misled)
    monkeypatch.setattr(_interrupts, "_seen", False)
    assert main([*SOLVE, "--plot", ""]) == 130
    assert capsys.readouterr().err == "certirl: interrupted\n"


@pytest.mark.skipif(os.name == "nt", reason="there are no signals to send")
def test_processes_never_see_the_interrupt_of_their_parent():
    with _interrupts.Deferred():
        code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('not seen')"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"not seen\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_the_lines_about_rounds_have_no_infinite_percentages(capsys):
    problem = certirl.problems.random_polynomial(seed=7)
    asked = {"basis": certirl.Legendre(11), "columns": 3, "delta": 0.05, "tail": 0, "max_samples": 40_000}
    certirl.solve(problem, discount=0.7, rng=0, progress=True, **asked)
    lines = capsys.readouterr().err.splitlines()
    assert any("too few for any bound" in line or "still wider than the margin" in line for line in lines)
    assert any(line.endswith("certified") for line in lines)
    assert not any("inf" in line or "-" in line for line in lines)
