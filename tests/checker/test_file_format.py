"""The page about the file format names every field of every record, and says which the checker reads."""

import re
from pathlib import Path

import golden_files
import pytest

import certirl_check
from certirl.ground import archive
from certirl_check import records

PAGE = (Path(__file__).parents[2] / "docs/file-format.md").read_text(encoding="utf-8")
GOLDEN = sorted((golden_files.FOLDER / str(archive.VERSION)).glob("*.npz"))
# What of records in the last table a few checks look at, as the page says of the fields that hold them.
BESIDE = {"Diagnostics.terminal", "Estimate.basis", "Features.box"}


def section(kind):
    found = re.search(rf"^### {kind}\n(.*?)(?=^##)", PAGE, re.M | re.S)
    return found[1] if found else ""


def rows(text):
    return re.findall(r"^\| `(\w+)` \|", text, re.M)


def test_every_field_of_every_record_is_on_the_page():
    others = PAGE.split("## Records that the checker does not read")[1]
    last = dict(re.findall(r"^\| `(\w+)` \| (`.*) \|$", others, re.M))
    for kind, cls in golden_files.records().items():
        text = section(kind)
        shown = re.findall(r"`(\w+)`", text.split("*Shown*")[1] if "*Shown*" in text else last.get(kind, ""))
        assert sorted([*rows(text), *shown]) == sorted(archive._saved_fields(cls)), kind
    assert {*re.findall(r"^### (\w+)$", PAGE, re.M), *last} == {*golden_files.records()}


def test_the_checker_reads_the_fields_that_the_page_says_and_no_others(monkeypatch):
    read, entry, array = set(), records.Record.entry, records.Record.array

    def noting(method):
        def noted(self, name, *values, **settings):
            if "type" in self.fields:
                read.add(f"{self.kind}.{name}")
            return method(self, name, *values, **settings)

        return noted

    for name, method in (("entry", entry), ("array", array)):
        monkeypatch.setattr(records.Record, name, noting(method))
    for path in GOLDEN:
        if not path.name.startswith(("moments", "reward-")):
            certirl_check.check(path)
    kinds = re.findall(r"^### (\w+)$", PAGE, re.M)
    named = {f"{kind}.{field}" for kind in kinds for field in rows(section(kind))}
    assert read - named <= BESIDE
    rare = ("SumBasis.", "Component.", "Fourier.", "Chebyshev.", "Solution.components")  # in no golden claim
    assert {place for place in named - read if not place.startswith(rare)} == set()


def test_the_limits_on_the_page_are_those_of_the_checker():
    versions = re.findall(r"^\| (\d+) \|", PAGE, re.M)
    assert list(map(int, versions)) == list(records.VERSIONS)
    assert f"{records.MOST:,} functions" in PAGE and f"{records.UNPACKED / 1e6:.0f} MB" in PAGE


@pytest.mark.parametrize("page", ["docs/index.md", "docs/certificates.md", "SECURITY.md", "packaging/check/README.md"])
def test_the_page_is_found(page):
    assert "file-format.md" in (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
