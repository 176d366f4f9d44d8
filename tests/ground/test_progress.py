"""Progress: a line for long commands on a terminal, with the time left where it is known, and silence elsewhere."""

import time
from contextlib import redirect_stderr

import pytest

from certirl.ground import work


class Terminal:
    """Standard error of a terminal."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


class Forecast:
    seconds = 100.0

    def __str__(self):
        return "this takes about 2 min"


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(work, "LONG", 0.1)
    return Terminal()


def test_a_long_command_says_how_long_it_has_worked_and_what_is_left(terminal):
    with redirect_stderr(terminal), work.clocked("solve"):
        work.speaker(None)(Forecast())
        time.sleep(0.6)
    assert terminal.text.startswith("certirl: this takes about 2 min\n")
    assert "\r\033[Kcertirl: solve, 1 s, about 2 min left" in terminal.text
    assert terminal.text.endswith("\r\033[K")  # nothing remains of it


def test_a_short_or_silent_command_says_nothing(terminal):
    with redirect_stderr(terminal), work.clocked("solve"):
        pass
    with redirect_stderr(terminal), work.shown_progress(False), work.clocked("solve"):
        assert work.speaker(None) is None
        time.sleep(0.6)
        list(work.watched(iter([1, 2]), lambda: pytest.fail("nothing need be counted"), int, None))
    assert terminal.text == ""


def test_nothing_is_said_on_a_pipe(capsys, monkeypatch):
    monkeypatch.setattr(work, "LONG", 0.0)
    with work.clocked("solve"):
        time.sleep(0.6)
        assert work.speaker(None) is None
    assert capsys.readouterr() == ("", "")


def test_counts_come_with_the_time_left(terminal):
    with redirect_stderr(terminal):
        for item in work.watched(iter(range(3)), lambda: 3, lambda _: 1, None, unit="rows"):
            time.sleep(0.6 if item == 0 else 0.0)
    assert terminal.text == "\r\033[Kcertirl: 1 of 3 rows, 1 s left\r\033[K"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (59.6, "60 s"), (89.9, "90 s"), (120, "2 min"), (5_390, "90 min"), (9_000, "2.5 h")],
)
def test_durations_have_few_digits(seconds, words):
    assert work.duration(seconds) == words
