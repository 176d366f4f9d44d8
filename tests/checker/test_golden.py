"""Files that were written once stay readable, with the verdict that they had; see golden_files.py."""

import json
import math

import golden_files
import numpy as np
import pytest

import certirl
import certirl_check
import files
from certirl.ground import archive
from certirl_check import records

CHANGED = (
    "the records in files have changed: run python tests/checker/golden_files.py; where the version was released, "
    "raise archive.VERSION and records.VERSIONS first and say in both tables GAINED what older files stand for"
)


def golden(version):
    return golden_files.FOLDER / str(version)


def test_every_version_has_golden_files():
    versions = list(range(archive.OLDEST, archive.VERSION + 1))
    assert sorted(int(folder.name) for folder in golden_files.FOLDER.iterdir()) == versions == list(records.VERSIONS)
    assert list(archive._GAINED) == list(records.GAINED) == versions[:-1]
    for version in versions:
        assert sum(path.stat().st_size for path in golden(version).iterdir()) < 450_000


def test_the_present_version_has_every_record_with_the_fields_that_it_has_now():
    found = {}
    for path in sorted(golden(archive.VERSION).iterdir()):
        if path.name != golden_files.VERDICTS:
            found |= golden_files.fields(files.parts(path)[0])
    known = {name: sorted(archive._saved_fields(cls)) for name, cls in golden_files.records().items()}
    assert found == known, CHANGED


def same(said, expected):
    if isinstance(expected, float):
        return math.isnan(said) if math.isnan(expected) else said == pytest.approx(expected, rel=1e-12)
    return said == expected


@pytest.mark.parametrize("version", range(archive.OLDEST, archive.VERSION + 1))
def test_golden_files_say_what_they_said(version):
    expected = json.loads((golden(version) / golden_files.VERDICTS).read_text(encoding="utf-8"))
    names = {path.name for path in golden(version).iterdir()} - {golden_files.VERDICTS}
    assert names == set(expected)
    for name, words in expected.items():
        said = golden_files.verdict(golden(version) / name)
        assert said.keys() >= words.keys(), name
        assert {key: said[key] for key in words if not same(said[key], words[key])} == {}, name


def test_what_older_files_lack_is_added_and_nothing_else(tmp_path, monkeypatch):
    reward = certirl.Reward(certirl.Legendre(2), np.array([0.0, 1.0]))
    record, arrays = files.parts(reward.save(tmp_path / "reward"))
    del record["zero_at_terminal"]
    header = {"format": archive.FORMAT, "version": archive.OLDEST, "record": record}
    np.savez(tmp_path / "old.npz", header=np.array(json.dumps(header)), **arrays)
    with pytest.raises(ValueError, match="Reward lacks the field zero_at_terminal"):
        certirl.load(tmp_path / "old.npz")
    gained = {"Reward": {"zero_at_terminal": reward.zero_at_terminal}}
    monkeypatch.setitem(archive._GAINED, archive.OLDEST, gained)
    monkeypatch.setitem(records.GAINED, archive.OLDEST, gained)
    assert certirl.load(tmp_path / "old.npz")(0.5) == reward(0.5)
    assert records.read(tmp_path / "old.npz").flag("zero_at_terminal") is reward.zero_at_terminal
    with pytest.raises(ValueError, match="lacks the field zero_at_terminal"):  # of a file of the present version
        certirl.load(files.write(tmp_path / "new.npz", record, arrays))


def texts(part, place=()):
    """The place of every text in a header but the names of records."""
    for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(inner, dict | list):
            yield from texts(inner, (*place, key))
        elif isinstance(inner, str) and key != "type":
            yield (*place, key)


# Texts with known words; others are free, but printable.
KNOWN = {"status", "objective", "form", "sampling", "kind", "source", "rows", "index"}
FORGED = "\x1b[2K\x1b[1GCertified with probability 0.95: the expert is strictly optimal\x1b[8m"


@pytest.mark.parametrize("name", ["action", "policy-solution", "solution-policy", "known-noise", "reward-product"])
def test_no_text_of_a_file_can_forge_a_print(name, tmp_path):
    path = golden(archive.VERSION) / f"{name}.npz"
    places = list(texts(files.parts(path)[0]))
    known = [place for place in places if place[-1] in KNOWN]
    assert known and (name == "reward-product" or len(places) > len(known))
    for place, text in [*((place, FORGED) for place in places), *((place, "certified now") for place in known)]:
        record, arrays = files.parts(path)
        part = record
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = text
        changed = files.write(tmp_path / "changed.npz", record, arrays)
        with pytest.raises(ValueError, match=r"changed\.npz is damaged or was changed: .* must be") as caught:
            archive.load(changed)
        assert str(caught.value).isprintable()
        if text == FORGED and name != "reward-product":
            with pytest.raises(ValueError, match=r"changed\.npz is damaged: the text .* is not printable"):
                certirl_check.check(changed)


@pytest.mark.parametrize(("version", "instead"), [(99, "update certirl"), (1, "make it again with"), ("2", "make it")])
def test_files_of_other_versions_get_one_sentence(version, instead, tmp_path):
    np.savez(tmp_path / "other.npz", header=np.array(json.dumps({"format": "certirl", "version": version})))
    for read in (certirl_check.check, certirl.load):
        with pytest.raises(ValueError, match=f"other.npz has format version {version!r} and .*: {instead}") as caught:
            read(tmp_path / "other.npz")
        assert "\n" not in str(caught.value)
