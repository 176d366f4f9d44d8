"""Every page runs and prints what it shows; the comparison is tested too."""

import importlib
import inspect
import json
import re
import runpy

import pytest

import certirl
from certirl.ground.status import Claim, Reason
from certirl.proof import case, certificate, tails
from pages import ROOT, check, find, parts, same_line, same_number, script
from shapes import extrema

FOLDERS = ("docs", "docs/how_to", "docs/tutorials")
PROSE = {f"docs/{name}.md" for name in ("comparison", "file-format", "glossary", "index", "troubleshooting")}  # no code
PAGES = [
    "README.md",
    *sorted({f"{folder}/{path.name}" for folder in FOLDERS for path in (ROOT / folder).glob("*.md")} - PROSE),
]
NEEDS = {"docs/how_to/gpu.md": "torch"}  # a package that the extra for tests leaves out
QUICK = {"docs/how_to/frame.md", "docs/next.md"}
MARKED = [pytest.param(page, marks=[pytest.mark.slow] * (page not in QUICK)) for page in PAGES]


@pytest.mark.parametrize("page", MARKED)
def test_code_of_the_pages_runs_and_prints_what_they_say(page, tmp_path):
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    check(page, tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_code_of_the_pages_is_read_without_scrolling_sideways(page):
    code = [body for kind, body in parts((ROOT / page).read_text()) if kind == "python"]
    assert [line for body in code for line in body.splitlines() if len(line) > 88] == []


SWITCHING = ["experts", "certificates", "how_to/simulator", "tutorials/cold_store", "tutorials/thermostat"]
WITH_POLICIES = ["README.md", *(f"docs/{name}.md" for name in SWITCHING)]


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.slow) for page in WITH_POLICIES])
def test_rewards_of_experts_that_switch_have_at_most_three_extrema(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.py").write_text(script(parts((ROOT / page).read_text())))
    made = runpy.run_path("page.py").values()
    found = [each for each in made if isinstance(each, certirl.Solution) and each.expert is None]
    rewards = [each.reward.for_action(0) if each.reward.of_actions else each.reward for each in found]
    assert found and all(extrema(reward) <= 3 for reward in rewards)


WRITTEN = [path for folder in (".", "docs", "experiments") for path in sorted((ROOT / folder).glob("*.md"))]
WRITTEN += sorted((ROOT / "docs").glob("*/*.md"))


def prose(path):
    """A page without its code."""
    return re.sub(r"^```.*?^```|^    .*?$|`[^`\n]+`", "", path.read_text(), flags=re.M | re.S)


def anchors(path):
    """The anchors of a page's headings, as GitHub and the site name them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_to_files_and_headings_that_exist():
    links = [(path, target) for path in WRITTEN for target in re.findall(r"\]\(([^)\s]+)\)", prose(path))]
    inside = [(path, *target.partition("#")[::2]) for path, target in links if not target.startswith("http")]
    assert len(inside) > 150  # others: make links
    missing = [
        (str(path.relative_to(ROOT)), name, anchor)
        for path, name, anchor in inside
        for page in [(path.parent / name).resolve() if name else path]
        if not page.exists() or ROOT not in page.parents or (anchor and anchor not in anchors(page))
    ]
    assert missing == []


def test_every_reason_is_explained_in_its_own_words():
    page = (ROOT / "docs/troubleshooting.md").read_text()
    entries = re.findall(r"^> (.+)\n\n`(\w+)`, at best \*(\w+)\*\. (?=\S)", page, re.M)
    assert sorted(name for _, name, _ in entries) == sorted(reason.name for reason in Reason)
    for shown, name, status in entries:
        finding = Reason[name].finding()
        sentence = re.sub(r"\{.*?\}", "…", finding.sentence)
        assert (shown == sentence or sentence == "…") and status == finding.status, name
    # What a proof lacks: the words of a claim and of a tail that is too large.
    lacks = re.findall(r"^\| ([^|]+) \|", page.split("### What a proof lacks")[1].split("\n## ")[0], re.M)[1:]
    code = "".join(map(inspect.getsource, (Claim, certificate, case, tails)))
    code = code.replace("{self.rows_in_words}", Claim.rows_in_words)
    phrases = {phrase for words in lacks for phrase in re.split(" ?… ?", words) if phrase}
    assert len(phrases) > 6 and {phrase for phrase in phrases if phrase not in code} == set()


def test_numbers_of_the_comparison_are_those_of_the_study():
    result = json.loads((ROOT / "experiments/results/peers.json").read_text())["result"]
    page = (ROOT / "docs/comparison.md").read_text()
    for method in {method for task in result.values() for method in task}:
        cells = [
            f"{task[method]['worst']:.1%} ({task[method]['mean'] * 100:.1f})" if method in task else ""
            for task in result.values()
        ]
        assert f"| {method} | {' | '.join(cells)} |".replace("%", " %").replace("|  |", "| |") in page, method


def counts(name):
    """Of a study of soundness: runs, with spoiled rewards, certified, falsely, and with a bound above the truth."""
    found = json.loads((ROOT / f"experiments/results/{name}.json").read_text())["result"]
    words = [
        ("runs",),
        ("of which barely wrong rewards", "barely wrong rewards", "of which wrong rewards"),
        ("certified",),
        ("false certificates", "certified falsely", "false"),
        ("bounds above the truth", "some bound exceeds the truth", "margin above the truth"),
    ]
    rows = [found["all"]] if "all" in found else list(found.get("by delta", {"": found}).values())
    if name == "episodes":
        rows = [row for kind in found.values() for row in kind["all steps"].values() if isinstance(row, dict)]
    numbers = [sum(next((row[word] for word in each if word in row), 0) for row in rows) for each in words]
    kinds = found.get("certified, of runs, by kind", {})  # of experts who switch
    numbers[1] += found.get("spoiled", {"runs": 0})["runs"]
    numbers[1] += sum(count for kind, (_, count) in kinds.items() if kind.startswith("barely"))
    return numbers


def test_no_certificate_of_the_studies_was_false_and_their_table_counts_them():
    table = (ROOT / "experiments/README.md").read_text().split("| study | results | runs |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert len(rows) == 10
    for _, name, *numbers in rows[:-1]:
        assert numbers == [f"{number:,}" for number in counts(name.strip("`"))], name
    total = [sum(int(row[place].replace(",", "")) for row in rows[:-1]) for place in range(2, 7)]
    assert rows[-1][2:] == [f"{number:,}" for number in total] and total[-2:] == [0, 0]


def resolved(name):
    """The object of a dotted name, imported as far as its modules go."""
    if name in importlib.import_module("certirl").__all__ or "." not in name:
        return getattr(importlib.import_module("certirl"), name)
    owner, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(f"certirl.{name}")
    except ModuleNotFoundError:
        return getattr(resolved(owner), attribute)


def test_names_in_the_glossary_exist():
    rows = re.findall(r"^\|.*\| (.*) \|$", (ROOT / "docs/glossary.md").read_text(), re.M)
    names = {
        (name, fields) for row in rows for name, fields in re.findall(r"`certirl\.([\w.]+)`(?: \((`.*?`)\))?", row)
    }
    assert len(names) > 40
    for name, fields in names:
        found = resolved(name)
        listed = {*dir(found), *getattr(found, "__annotations__", ())}
        assert {field for field in re.findall(r"`(\w+)`", fields) if field not in listed} == set(), name
    fields = {pair for row in rows for pair in re.findall(r"`(Program|ValueForm)\((\w+)=", row)}
    assert len(fields) > 4 and all(field in resolved(method).__annotations__ for method, field in fields)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("3", "3", True),
        ("3", "4", False),
        ("35,309", "35,309", True),
        ("35,309", "35,310", False),
        ("0.354", "0.355", True),
        ("0.354", "0.356", False),
        ("0.7", "0.71", True),
        ("0.7", "0.72", False),
        ("1", "1.001", True),  # printed with four digits, of which the last are zeros
        ("1", "1.002", False),
        ("-0.2588", "-0.3917", False),
        ("-0.2588", "0.2588", False),
        ("−1.5", "-1.5", True),
        ("0", "-0", True),
        ("7.4e-07", "7.5e-07", True),
        ("7.4e-07", "7.4e-06", False),
        ("1e-05", "9.9e-06", True),
        ("1e-147", "4e-147", False),
    ],
)
def test_numbers_agree_to_a_unit_of_their_last_digit(shown, printed, same):
    assert same_number(shown, printed) is same and same_number(printed, shown) is same


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("margin 0.21 at s = -1", "margin 0.21 at s = -1", True),
        ("margin 0.21 at s = -1", "margin 0.22 at s = -1", True),
        ("margin 0.21 at s = -1", "margin 0.21 at s = 1", False),
        ("margin 0.21 at s = -1", "margin 0.21 near s = -1", False),
        ("margin 0.21 at s = -1", "  margin 0.21 at s = -1", False),
        ("Legendre(11) on [-1, 1]", "Legendre(12) on [-1, 1]", False),
        ("99.4% of 5,000 fresh states", "99.5% of 5,000 fresh states", True),
        ("99.4% of 5,000 fresh states", "99.4% of 5,001 fresh states", False),
        ("80×80 cells, s0", "80×80 cells, s1", False),
        ("exact, 3 solves, 12 rows; κ = 1.04", "exact, 1 solve, 8 rows; κ = 1.04", True),
        ("exact, 3 solves, 12 rows; κ = 1.04", "exact, 3 solves, 12 rows; κ = 1.14", False),
        ("γ = 0.99: 21 rounds, residual 7.4e-07", "γ = 0.99: 22 rounds, residual 6.2e-07", True),
    ],
)
def test_lines_agree_in_all_words(shown, printed, same):
    assert same_line(shown, printed) is same


def test_a_block_is_found_whole_and_in_order_unless_it_says_that_it_is_cut():
    printed = ["One: 0.5", "  two", "  three", "Four", "Five"]
    assert find("One: 0.5\n  two\n  three\n", printed) == 3
    assert find("One: 0.5\n  …\n  three\nFour\n", printed) == 4
    assert find("One: 0.5\n…\n", printed) == 1
    assert find("Four\n", printed, 3) == 4 and find("Four\n", printed, 4) is None
    assert find("One: 0.5\n  three\n", printed) is None  # a line is missing
    assert find("One: 0.5\n  two\n", printed) is None  # the last one
    assert find("  three\nFour\n", printed) is None  # the first one
    assert find("Five\nFour\n", printed) is None
    assert find("One: 0.7\n  two\n  three\n", printed) is None


PAGE = """Text.

```python
x = 1
print(f"x = {x / 3:.3f}")
```

```text
x = 0.333
```

    $ certirl merge none.npz -o all.npz
    certirl: there is no file none.npz
    $ certirl demo
    $ certirl show

    not output
"""


def test_a_page_is_code_commands_and_output(tmp_path, monkeypatch):
    assert [kind for kind, _ in parts(PAGE)] == ["python", "text"] + ["command", "text"] * 3
    assert parts(PAGE)[3] == ("text", "certirl: there is no file none.npz\n") and parts(PAGE)[-1] == ("text", "")
    assert "_certirl(['merge'," in script(parts(PAGE)) and "demo" not in script(parts(PAGE))
    monkeypatch.setattr("pages.ROOT", tmp_path)
    (tmp_path / "wrong.md").write_text(PAGE.replace("no file", "a file"))
    with pytest.raises(AssertionError, match="but what was printed then is\ncertirl: there is no file"):
        check("wrong.md", tmp_path)
