"""The files of Rust (1987) are read as they are meant: a simulated log, written in their format, comes back."""

import numpy as np
import pytest

import certirl
from certirl.problems.soft import _FILES, _HEADER, _MILES, _REPLACED

ROWS, BUSES = _FILES["rt50"]


def written(log, folder):
    """The log of four buses as a file; months of replacements and mileages at them."""
    columns = []
    for bus in range(BUSES):
        rows = log.where(log.episodes == bus)
        since, renewed = _MILES * np.append(rows.states[:, 0], rows.next_states[-1, 0]), np.flatnonzero(rows.actions)
        reading, replaced, begun = since.copy(), [0.0, 0.0], 0.0
        for number, month in enumerate(renewed):
            replaced[number] = begun = reading[month] + 0.5
            reading[month + 1 :] = begun + since[month + 1 :]
        header = np.zeros(_HEADER)
        header[list(_REPLACED)] = replaced
        columns.append(np.concatenate([header, reading]))
    np.savetxt(folder / "rt50.asc", np.concatenate(columns))


@pytest.mark.parametrize("seed", range(3))
def test_files_are_read_as_decisions(seed, tmp_path):
    buses = certirl.problems.buses(cost=60.0, replacement=8.0, discount=0.9)
    log = buses.log(buses=BUSES, months=ROWS - _HEADER - 1, rng=seed)
    assert log.counts[1] >= 1 and np.bincount(log.episodes[log.actions == 1]).max() <= 2
    written(log, tmp_path)
    read = certirl.problems.read_buses(tmp_path, ["rt50"])
    assert (read.actions == log.actions).all() and (read.episodes == log.episodes).all()
    for mileage, true in ((read.states, log.states), (read.next_states, log.next_states)):
        assert np.abs(mileage - true).max() < 1 / _MILES


def test_files_that_are_not_these_are_refused_in_a_sentence(tmp_path):
    read = certirl.problems.read_buses
    with pytest.raises(ValueError, match=r"files must be some of 'g870', .*, got 'g871'"):
        read(tmp_path, ["g871"])
    with pytest.raises(ValueError, match="files must name one file at least"):
        read(tmp_path, [])
    with pytest.raises(FileNotFoundError):
        read(tmp_path)
    (tmp_path / "rt50.asc").write_text("1 2 x")
    with pytest.raises(ValueError, match=r"rt50\.asc has what is no number"):
        read(tmp_path, ["rt50"])
    np.savetxt(tmp_path / "rt50.asc", np.zeros(7))
    with pytest.raises(ValueError, match=r"rt50\.asc must have 60 numbers of each of 4 buses, got 7 numbers"):
        read(tmp_path, ["rt50"])
