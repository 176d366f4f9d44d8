"""What is typed wrongly, cannot be written or is interrupted: one sentence in the command's words, nothing lost."""

import contextlib
import importlib
import io
import os
import re
import shlex
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
import files
from certirl.cli import interrupts, main
from certirl.ground import archive, doors
from certirl.ground.work import deferred_interrupts, fold, on
from refusals import refused

mpl.use("Agg")


def test_settings_are_named_as_the_user_writes_them():
    assert doors.setting("outside", "'clip'") == "outside='clip'" and doors.setting("tail") == "tail"
    with doors.options({"outside": "--outside", "domain": "--domain LOW HIGH", "n_actions": "--actions"}):
        assert doors.setting("outside", "'clip'") == "--outside clip" and doors.setting("outside") == "--outside"
        assert doors.setting("domain", "((low, high), …)") == "--domain LOW HIGH"
        assert doors.setting("tail", "0") == "tail=0"  # no option of this command
        refused(r"^--actions must be a whole number, at least 1, got -3$", doors.as_count, -3, "n_actions")
    refused(r"^n_actions must be", doors.as_count, -3, "n_actions")


def test_settings_are_named_alike_on_other_threads():
    with doors.options({"n_actions": "--actions"}), on(2):
        assert fold(lambda _: [doors.setting("n_actions")], range(4)) == ["--actions"] * 4
    assert fold(lambda _: np.array([doors.setting("n_actions")]), [0]) == ["n_actions"]


# Nothing is lost ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of all kinds, right and wrong ones."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, 1_000), rng.integers(2, size=1_000)
    after = np.clip(states / 2 + np.where(actions == 0, 0.3, -0.3) + 0.1 * rng.normal(size=1_000), -1, 1)
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
    write(folder / "commas.csv", "state;action;next_state", [("0,5;0;1.000", "25")])
    write(folder / "one_row.csv", "state,action", [(0.5, 0)])
    write(folder / "-dash.csv", "state,action,next_state", rows)
    names = [f"state_{i}" for i in range(4)]
    header = ",".join([*names, "action", *(f"next_{name}" for name in names)])
    write(folder / "four.csv", header, [(s, t, s, t, a, t, s, t, s) for s, a, t in rows])
    (folder / "empty.csv").write_text("")
    (folder / "binary.csv").write_bytes(bytes(range(256)))
    (folder / "binary.npz").write_bytes(bytes(range(256)))
    (folder / "notes.txt").write_text("nothing")
    np.savez(folder / "nested.npz", header=np.array("[" * 50_000 + "]" * 50_000))
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
    "report": (["report", "reward.npz", "-o", "out.html"], "out.html"),
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


@pytest.mark.thinned(4)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("stream", "code", "said"),
    [
        (lambda: Stream(BrokenPipeError(32, "Broken pipe")), 0, ""),
        (
            lambda: Stream(OSError(28, "No space left on device")),
            2,
            "standard output could not be written: no space left",
        ),
        (lambda: Stream(encoding="ascii"), 0, ""),
    ],
    ids=["pipe", "full", "ascii"],
)
def test_whatever_becomes_of_the_output_the_result_is_written(folder, monkeypatch, capsys, verb, stream, code, said):
    if verb in ("show", "report"):
        assert main([*SOLVE, "--plot", ""]) == 0
    words, written = VERBS[verb]
    capsys.readouterr()
    stream = stream()  # of this test alone
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(words) == code
    assert (folder / written).stat().st_size > 500
    error = capsys.readouterr().err
    assert error.startswith(f"certirl: {said}") and error.count("\n") == 1 if said else error == ""
    if stream.charset == "ascii":
        printed = stream.getvalue()
        assert printed and printed.isascii()


@pytest.mark.slow
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
    assert str(saved) in printed.err and archive.kind_of(saved) in ("Solution", "Moments")
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
    "x" * 300: "name of a file is too long",
}


@pytest.mark.parametrize("name", NOT_FILES)
def test_what_cannot_be_a_file_is_refused_before_the_work(folder, monkeypatch, capsys, name):
    monkeypatch.setattr("certirl.cli.solving.solve", None)  # nothing is worked on
    monkeypatch.setattr("certirl.cli.inputs.solved", None)
    monkeypatch.setattr(certirl.data.moments, "measure", None)
    monkeypatch.setattr(certirl.data.moments, "merge", None)
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
    monkeypatch.setattr("certirl.cli.inputs.solved", None)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "folder")
    assert main([*SOLVE, "-o", "folder/x"]) == 2
    assert capsys.readouterr().err == "certirl: cannot write folder/x.npz: folder is write-protected\n"
    (folder / "x.npz").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "x.npz")
    assert main([*SOLVE, "-o", "x"]) == 2
    assert capsys.readouterr().err == "certirl: cannot write x.npz: x.npz is write-protected\n"
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("certirl.cli.inputs.solved", None)

    def temporary(dir):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", temporary)
    assert main([*SOLVE, "-o", "y"]) == 2
    assert capsys.readouterr().err == "certirl: cannot write y.npz: read-only file system\n"
    for out in ("log.csv", "log.csv/x"):
        assert main(["reproduce", "figure1", "--fast", "--out", out]) == 2
        assert capsys.readouterr().err.startswith(f"certirl: cannot use {out}: ")


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


@pytest.mark.thinned(2)
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
    solution = certirl.solve(certirl.logs.read("log.csv"), expert=0, discount=0.9, basis=certirl.Legendre(5))
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


# One sentence, in the words of the command ----------------------------------------------------------------------------

LOG = "solve log.csv --discount 0.9"
POLICY = f"{LOG} --expert seen.csv"
PROOF = f"{LOG} --domain -1 1 --delta 0.05"
PLAN = "theorems --discount 0.9 --beta 0.1"

SENTENCES = [
    # Words that are no command, no option or no value of one.
    ("foo", "got 'foo'; certirl --help explains"),
    ("sovle log.csv", "got 'sovle' (is solve meant?); certirl --help explains"),
    ("--foo", "the following arguments are required: command"),
    ("solve log.csv", "required: --discount; certirl solve --help explains"),
    ("solve --discount 0.9", "required: DATA"),
    ("check", "required: FILE"),
    (f"{LOG} --wrong 5", "unrecognized arguments: --wrong 5"),
    (f"{LOG} --o x", "ambiguous option: --o could match"),
    (f"{LOG} --discount 0.8", "--discount is given twice"),
    (f"{LOG} -o a --output b", "--output is given twice"),
    (f"{LOG} --domain -1", "--domain: expected 2 arguments"),
    (f"{LOG} --objective best", "--objective must be one of smoothest, least-variance, l1, max-margin, got 'best'"),
    # Numbers.
    ("solve log.csv --discount 0,9", "--discount must be a number, got '0,9': write a decimal point"),
    ("solve log.csv --discount nine", "--discount must be a number, got 'nine'"),
    ("solve log.csv --discount 1", "--discount must be a number strictly between 0 and 1, got 1.0"),
    ("solve log.csv --discount nan", "--discount must be a number strictly between 0 and 1, got nan"),
    ("solve log.csv --discount -inf", "--discount must be a number strictly between 0 and 1, got -inf"),
    (f"{LOG} --domain -1,5 1", "--domain must be a number, got '-1,5': write a decimal point"),
    (f"{LOG} --domain 1 -1", "needs low < high"),
    (f"{LOG} --domain nan 1", "--domain must have finite ends"),
    (f"{LOG} --domain -inf inf", "--domain must have finite ends"),
    (f"{LOG} --domain -1e308 1e308", "measure the states in other units"),
    (f"{LOG} --domain -1e-3 1e-3", "transitions leave the domain [-0.001, 0.001]"),
    (f"{LOG} --domain -1 1 --domain -1 1", "states have 1 coordinate"),
    (f"{LOG} --actions 2.0", "--actions must be a whole number, got '2.0'"),
    (f"{LOG} --actions 1", "is not the only action, 0"),
    *((f"{verb} --actions {n}", f"--actions must be a whole number of actions, at {end}, got {n}")
      for verb in (LOG, "coverage log.csv", "moments log.csv")
      for n, end in ((-3, "least 1"), (0, "least 1"), (10**6, "most 1,000"), (10**26, "most 1,000"))),
    (f"{LOG} --actions {'9' * 5000}", "--actions must be a whole number, got '9999"),
    (f"{LOG} --actions 5", "action 2 was never seen"),
    (f"{LOG} --cover 0", "--cover must be a radius above 0, got 0.0"),
    (f"{LOG} --cover 1e-12", "leave --cover out"),
    (f"{LOG} --slack nan", "--slack must be a price above 0, got nan"),
    (f"{LOG} --columns 0", "--columns must be a whole number of functions of the state, at least 1, got 0"),
    (f"{LOG} --size 5", "--size goes with --basis"),
    (f"{LOG} --basis legendre --size 0", "--size must be a whole number, at least 1, got 0"),
    (f"{LOG} --basis legendre --size {10**9}", "--size must be a whole number, at most 500, got 1000000000"),
    ("solve box.csv --discount 0.9 --basis legendre --size 100", "--basis must have at most 500 functions"),
    (f"{LOG} --periodic 1 --basis fourier", "--periodic 1 names no coordinate"),
    (f"{LOG} --periodic 0 --basis legendre", "a periodic coordinate needs a domain"),
    (f"{LOG} --workers 0", "--workers must be a whole number, at least 1, got 0"),
    (f"{LOG} --workers {10**9}", "--workers must be a whole number, at most 4,096, got 1000000000"),
    (f"{LOG} --scheduler here", "--scheduler must be an address such as tcp://host:8786, or local, got 'here'"),
    # Experts.
    (f"{LOG} --expert ''", "or a file of demonstrations; it is empty"),
    (f"{LOG} --expert 1.5", "or a file of demonstrations; there is no file 1.5"),
    (f"{LOG} --expert 99", "--expert must be one of the actions 0 … 1, or a file of demonstrations, got 99"),
    (f"{LOG} --expert -1", "--expert must be one of the actions 0 … 1, or a file of demonstrations, got -1"),
    (f"{LOG} --expert folder", "in the folder folder"),
    (f"{LOG} --expert notes.txt", "cannot read notes.txt"),
    (f"{LOG} --expert empty.csv", "empty.csv: demonstrations need the columns state"),
    (f"{LOG} --expert box.csv", "box.csv: states have 2 coordinates, those of the log 1"),
    (f"{LOG} --expert one_row.csv", "one_row.csv: a policy needs two demonstrations or more, got 1"),
    (f"{LOG} --expert moments.npz", "--expert must be a file of demonstrations, and moments.npz is a file of certirl"),
    (f"{LOG} --expert log.csv", "is the log itself: write --expert observed"),
    (f"{LOG} --expert nobody.csv", "a file of demonstrations; there is no file nobody.csv"),
    (f"{LOG} --expert observed --delta 0.1", "had no part in saying who the expert is"),
    (f"{POLICY} --delta 0.1", "declared domain: write --domain LOW HIGH"),
    (f"{POLICY} --cover 0.1", "--cover is for experts"),
    (f"{POLICY} --objective l1", "--objective is for experts"),
    (f"{POLICY} --columns 3", "--columns is for the certificate of a policy: pass --delta"),
    (f"{POLICY} --tube 0.1", "--tube is for a certificate: pass --delta"),
    (f"{POLICY} --margin nan", "--margin must be the half-width of a tube as a share of the box strictly between"),
    (f"{POLICY} --slack -1", "--slack must be a price above 0, got -1.0"),
    (f"{POLICY} --domain -1 1 --delta 2", "--delta must be a probability of error between 1e-100 and 0.5, got 2.0"),
    (f"{POLICY} --domain -1 1 --delta 0.05 --tube -1", "--tube must be a half-width above 0, got -1"),
    (f"{POLICY} --domain -1 1 --delta 0.05 --tube 5", "--tube must be a half-width strictly between 0 and 2, got 5"),
    (f"{POLICY} --domain -1 1 --delta 0.05 --tail 0", "write --columns N, too"),
    (f"{POLICY} --domain -1 1 --delta 0.05 --columns 2000", "--columns must be a whole number of functions, at most 1"),
    # Settings that would have no effect.
    (f"{LOG} --tail 0", "--tail is for a certificate: pass --delta too, or leave --tail out"),
    (f"{LOG} --margin 0.1", "--margin is for experts that depend on the state"),
    (f"{LOG} --tube 0.1", "leave --tube out"),
    ("coverage log.csv --outside drop", "--outside drop needs a domain: write --domain LOW HIGH"),
    ("moments log.npz --outside clip", "--outside clip needs a domain: write --domain LOW HIGH"),
    # Certificates.
    (f"{LOG} --delta 0.05", "declared domain: write --domain LOW HIGH"),
    (f"{PROOF} --cover 0.1", "leave --cover and --slack out"),
    (f"{PROOF} --columns 3 --tail -1", "--tail must be a number not below 0, got -1.0"),
    (f"{PROOF} --columns 3 --tail nan", "--tail must be a number not below 0, got nan"),
    (
        f"solve four.csv --discount 0.9 --delta 0.05{' --domain -9 9' * 4}",
        "a certificate over a whole box is for 3 coordinates at most",
    ),
    ("solve moments.npz --discount 0.9 --delta 0.05", "moments keep none: leave --delta out"),
    # Files.
    ("solve '' --discount 0.9", "empty"),
    ("solve missing.csv --discount 0.9", "there is no file missing.csv"),
    ("solve *.xyz --discount 0.9", "there is no file that matches *.xyz"),
    ("solve -dash.csv --discount 0.9", "begins with a dash and would be taken for an option: write ./-dash.csv"),
    ("solve folder --discount 0.9", "in the folder folder"),
    ("solve notes.txt --discount 0.9", "cannot read notes.txt: transitions come as .parquet, .csv, .tsv or .npz"),
    ("solve log.csv ./log.csv --discount 0.9", "log.csv is named twice"),
    ("solve log.csv box.csv --discount 0.9", "states have 2 coordinates in box.csv but 1 in log.csv"),
    *((f"{verb} {name}{more}", sentence)
      for verb, more in (("solve", " --discount 0.9"), ("coverage", ""), ("moments", ""))
      for name, sentence in (
          ("empty.csv", "empty.csv: it needs the columns state, action, next_state"),
          ("binary.csv", "binary.csv: it is not a text file in UTF-8"),
          ("binary.npz", "binary.npz: it is not an npz file of plain arrays, or it is damaged"),
          ("commas.csv", "the column next_state holds '1.000,25' in row 0, not a number"),
          ("huge_action.csv", "huge_action.csv: action 1000000 in row 1000 is above 999"),
          ("short_episodes.csv", "short_episodes.csv: there are no steps in these episodes"),
          ("episodes.csv --domain 0 0.1", "widen the domain, or write --outside clip or --outside drop"),
          ("episodes.csv --periodic 0", "needs a domain, whose width is its period: write --domain LOW HIGH"),
          ("missing.parquet", "there is no file missing.parquet"),
      )),
    ("solve one_action.csv --discount 0.9", "there is only one action"),
    ("solve seen.csv --discount 0.9", "needs the columns state, action, next_state"),
    ("solve log.npz --discount 0.9 --episode run", "log.npz: --episode run names no column"),
    *((words, "write --domain once for each coordinate")
      for words in ("coverage a.csv --domain -1 1 -1 1", "coverage --domain -1 1 -1 1 a.csv")),
    ("solve episodes.csv --discount 0.9 --episode run", "--episode run names no column; it has"),
    ("moments episodes.csv --domain 0 0.1 --outside drop", "write --outside clip, or remove those rows before"),
    ("moments mixed.csv", "sort the table by episode and step"),
    ("moments log.csv --columns 100", "--columns must lie between 1 and the 11 functions of the basis, got 100"),
    ("moments moments.npz -o x", "moments.npz is a file of certirl (Moments), not a table of transitions"),
    ("coverage moments.npz", "moments.npz is a file of certirl (Moments), not a table of transitions"),
    ("solve moments.npz log.csv --discount 0.9", "one moments file can be solved"),
    ("solve moments.npz --discount 0.9 --domain -1 1", "--domain belongs to transitions"),
    ("solve moments.npz --discount 0.9 --episode x", "--episode belongs to transitions"),
    ("solve moments.npz --discount 0.9 --outside clip", "--outside belongs to transitions"),
    ("solve moments.npz --discount 0.9 --expert seen.csv", "moments keep no states"),
    ("solve moments.npz --discount 0.9 --basis fourier", "measure again to use Fourier(11)"),
    ("merge moments.npz moments.npz", "the same data would count twice: log.csv; leave one out"),
    ("merge log.csv", "log.csv is not a certirl file"),
    *((f"{verb} {name}", sentence)
      for verb in ("show", "merge")
      for name, sentence in (
          ("missing.npz", "there is no file missing.npz"),
          ("folder", "folder is a folder"),
          ("''", "must not be empty"),
          ("binary.npz", "binary.npz is not a certirl file, or it is damaged"),
          ("log.npz", "log.npz is not a certirl file, or it is damaged"),
      )),
    ("show moments.npz --plot x.png", "there is no picture of Moments: leave --plot out"),
    ("check missing.npz", "there is no file missing.npz"),
    ("check binary.npz", "binary.npz is not a certirl file, or it is damaged"),
    ("check folder", "folder is no file: it is a folder, a pipe or a device"),
    *((f"{verb} nested.npz", "nested.npz is not a certirl file, or it is damaged") for verb in ("check", "show")),
    *((f"{verb} -o -", "cannot write to standard output: name a file, such as result.")
      for verb in (LOG, "moments log.csv", "merge moments.npz", "report moments.npz", "demo")),
    # Calculators, demonstrations, studies.
    ("theorems --discount 0.999999 --beta 1e-300", "the theorem would ask for more than 1e308 transitions"),
    ("theorems --discount 0.9 --beta 1e308", "--rho is needed"),
    (f"{PLAN} --delta 1e-320", "the theorem would ask for more than 1e308 transitions"),
    ("theorems --discount 1.2 --beta 0.1", "--discount must be a number strictly between 0 and 1, got 1.2"),
    (f"{PLAN} --size 1", "--size must be a whole number, at least 2, got 1"),
    (f"{PLAN} --actions -3", "--actions must be a whole number, at least 2, got -3"),
    (f"{PLAN} --columns 100", "--columns must be at most --size = 11, got 100"),
    (f"{PLAN} --inner-norm nan", "--inner-norm must be a number not below 0, got nan"),
    ("demo --problem -1", "--problem must be a whole number, at least 0, got -1"),
    ("demo --seed -1", "--seed must be a whole number, at least 0, got -1"),
    ("demo --samples 0", "--samples must be a whole number, at least 1, got 0"),
    ("demo --samples 10", "--samples must be at least 160 for 3 columns, got 10"),
    ("cells NoSuch-v0 --discount 0.9", "no environment can be made of 'NoSuch-v0': Environment `NoSuch`"),
    ("cells Pendulum-v1 --discount 0.9", "has a continuum of actions: write --actions 3, say"),
    ("cells CartPole-v1 --discount 0.9", "CartPole-v1 has 4 coordinates"),
    ("cells cart.py --discount 0.9", "cart.py is a Python file: write cart.py:NAME"),
    ("solve tank.py --discount 0.9", "tank.py is a Python file: write tank.py:NAME"),
    ("demo --plot demo.doc", "cannot write demo.doc: its name must end in .png, .pdf"),
    ("reproduce figure9", "got 'figure9' (is figure"),
    ("reproduce figure3 --trials 1", "--trials must be a whole number, at least 2, got 1"),
    ("reproduce figure3 --seed -1", "--seed must be a whole number, at least 0, got -1"),
    ("reproduce figure3 --out ''", "--out: the name of the folder is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), SENTENCES, ids=lambda value: value[:60])
def test_mistakes_are_one_sentence_in_the_words_of_the_command(folder, capsys, words, sentence):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    try:
        code = main(shlex.split(words))
    except SystemExit as left:  # what argparse finds
        code = left.code
    error = capsys.readouterr().err
    assert code == 2 and error.startswith("certirl: ") and error.count("\n") == 1 and error.endswith("\n")
    assert sentence in error
    assert not re.search(PYTHON_WORDS, error)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


# Keywords with their equals sign, names of calls, and what Python or NumPy say by themselves.
PYTHON_WORDS = (
    r"\b\w+=|\bcertirl\.[a-z]|Transitions|\bn_actions\b|\brng\b|Errno|object at|Legendre\(size\)"
    r"|a function of|PosixPath|zero-size|Unable to allocate|codec"
)


def test_files_that_may_not_be_read_are_named(folder, capsys, monkeypatch):
    real = Path.open

    def refused(self, *arguments, **settings):
        if self.name == "log.csv":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *arguments, **settings)

    monkeypatch.setattr(Path, "open", refused)
    for verb in ("coverage log.csv", "moments log.csv", LOG):
        assert main(verb.split()) == 2
        assert capsys.readouterr().err == "certirl: cannot use log.csv: permission denied\n"


def test_too_little_memory_is_a_sentence(folder, capsys, monkeypatch):
    def measure(*_, **__):
        np.empty(2**57)

    monkeypatch.setattr(certirl.data.moments, "measure", measure)
    assert main(["moments", "log.csv"]) == 2
    assert capsys.readouterr().err.startswith("certirl: there is not enough memory: 1.00 EiB in one piece; use fewer")


def test_strange_names_of_files_are_read_and_printed(folder, capsys):
    undecodable = [os.fsdecode(b"\xff.csv")] if sys.platform == "linux" else []  # elsewhere there are no such names
    for name in ("müß γ—∞.csv", "a b'c.csv", *undecodable):
        shutil.copy("log.csv", name)
        assert main(["moments", name, "-o", f"{name}.npz"]) == 0
        assert main(["show", f"{name}.npz"]) == 0
        assert main(["merge", f"{name}.npz", "-o", "sum.npz"]) == 0
    assert ("Moments: \\udcff.csv.npz" in capsys.readouterr().out) == bool(undecodable)
    shutil.copy("log.csv", "-dash.csv")
    assert main(["moments", "./-dash.csv", "-o", "x.npz"]) == main(["moments", "-o", "y.npz", "--", "-dash.csv"]) == 0


# Ctrl-C ---------------------------------------------------------------------------------------------------------------

ALARM = """
import os, signal, sys, threading, time

def ring():
    while not {"certirl.cli.interrupts", "numpy"} & set(sys.modules):
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
    endless = ["demo", "--problem", "13", "--samples", "1000000000", "--output", "never.npz", "--plot", ""]
    running = []
    module = ["-m", "certirl"]
    for delay, start in ((0.05, module), (0.15, [str(script)]), (0.4, module), (1.0, [str(script)])):
        environment = os.environ | {"PYTHONPATH": paths, "RING_AFTER": str(delay)}
        given = {"env": environment, "cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(subprocess.Popen([sys.executable, *start, *endless], **given))
    errors = [process.communicate(timeout=60)[1] for process in running]
    assert errors == [b"certirl: interrupted\n"] * len(running)
    by_module, by_script = ({process.returncode for process in running[first::2]} for first in (0, 1))
    # With -m Python itself ends by the signal, which a shell reports as 130 too, if the interrupt passed through code
    # that was compiled from a string, such as that of a compiler.
    assert by_script == {130} and by_module <= {130, -signal.SIGINT}
    assert not (tmp_path / "never.npz").exists()


def test_an_interrupt_in_an_import_ends_the_command_at_once(tmp_path, monkeypatch):
    """Compiled modules that import others may print the exception, and go on."""
    (tmp_path / "interrupted_import.py").write_text(
        "import sys\nfrom certirl.cli import interrupts\ninterrupts.during_work(2, sys._getframe())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(interrupts, "_interrupted", False)
    monkeypatch.setattr(interrupts, "during_imports", lambda: sys.exit("at once"))
    with pytest.raises(SystemExit, match="at once"):
        importlib.import_module("interrupted_import")
    with pytest.raises(KeyboardInterrupt):
        interrupts.during_work(2, sys._getframe())


def test_an_interrupt_that_a_library_turns_into_its_own_error_is_one_line(folder, monkeypatch, capsys):
    def misled(*_):
        with contextlib.suppress(KeyboardInterrupt):
            interrupts.during_work()
        raise ImportError("numpy._core.multiarray failed to import")

    monkeypatch.setattr("certirl.cli.inputs.solved", misled)
    monkeypatch.setattr(interrupts, "_interrupted", False)
    assert main([*SOLVE, "--plot", ""]) == 130
    assert capsys.readouterr().err == "certirl: interrupted\n"


@pytest.mark.skipif(os.name == "nt", reason="there are no signals to send")
def test_processes_never_see_the_interrupt_of_their_parent():
    with deferred_interrupts():
        code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('not seen')"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"not seen\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_the_lines_about_rounds_have_no_infinite_percentages(capsys):
    problem = certirl.problems.random_polynomial(seed=7)
    asked = {"basis": certirl.Legendre(11), "columns": 3, "delta": 0.05, "tail": 0, "samples": 40_000}
    certirl.solve(problem, expert=0, discount=0.7, rng=0, progress=True, **asked)
    lines = capsys.readouterr().err.splitlines()
    assert any("too few for any bound" in line or "still wider than the margin" in line for line in lines)
    assert any(line.endswith("certified") for line in lines)
    assert not any("inf" in line or "-" in line for line in lines)


@pytest.mark.parametrize("text", ["(((", "1", "certificate.with_tube()", "certirl.solve(…, samples=f())", "(" * 10_000])
def test_what_a_file_says_is_next_is_printed_whatever_it_is(text, tmp_path, capsys):
    problem = certirl.problems.random_polynomial(seed=7)
    asked = {"discount": 0.7, "expert": 0, "basis": certirl.Legendre(5), "columns": 3}
    record, arrays = files.parts(certirl.solve(problem, samples=300, rng=0, **asked).save(tmp_path / "own"))
    for finding in record["findings"]:
        finding["next"] = text
    path = files.write(tmp_path / "changed.npz", record, arrays)
    assert main(["show", str(path)]) == 0 and f"in Python: {text}\n" in capsys.readouterr().out
