"""The report: what its text claims and contains, and that a real browser shows it to mouse, keyboard and reader."""

import base64
import datetime
import functools
import hashlib
import itertools
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from saved_records import MAKERS, saved

import certirl
import certirl_check
from certirl.cli import main
from certirl.ground import archive
from certirl.show import charts, report, svg
from certirl.show.mathml import mathml
from certirl.solver.solution import Solution
from systems import Moving

GOLDEN = Path(__file__).parents[1] / "checker" / "golden" / str(archive.VERSION)
VOID = {"meta", "link", "br", "img", "input", "hr"}
HOSTILE = '<script>alert("1")</script>&amp;</title>'


WALK = Moving(((0.0, 10.0), (0.0, 1.0)), ([0.5, 0.0], [-0.5, 0.0]), std=np.array([0.5, 0.1]))


def _log():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(0, [8, 1], (3_000, 2)), rng.integers(2, size=3_000)
    step = np.where(actions == 0, 0.5, -0.5)[:, None] * [1, 0]
    after = np.clip(states + step + rng.normal(size=states.shape) * [0.5, 0.1], 0, [10, 1])
    names = {"action_names": ("<b>up</b>", "down"), "domain": WALK.domain}
    return certirl.Transitions(states, actions, after, **names)


def _sum():
    components = {HOSTILE: [0], "speed": [1]}
    return certirl.solve(
        certirl.problems.factorised(seed=11, components=2), components=components, discount=0.7, expert=0, rng=0,
        samples=2_000,
    )  # fmt: skip


def _features():
    room = certirl.problems.comfort()
    features = {"s²": lambda states: states[:, 0] ** 2, "<i>s</i>": lambda states: states[:, 0]}
    asked = certirl.FeatureForm(features)
    return certirl.solve(room.dynamics, expert=room.expert, discount=0.9, rng=0, samples=2_000, method=asked)


MORE = {
    "three coordinates": lambda: certirl.solve(
        certirl.problems.whirl(dimension=3), expert=0, basis=certirl.product(*[certirl.Legendre(4)] * 3), columns=10,
        discount=0.7, rng=0, samples=2_000,
    ),
    "log": lambda: certirl.solve(_log(), discount=0.9, expert=lambda states: (states[:, 0] > 5).astype(int)),
    "hostile sum": _sum,
    "features": _features,
    "conflict": lambda: certirl.solve(
        certirl.problems.unsolvable(seed=1), expert=0, basis=certirl.Legendre(3), discount=0.7, rng=0, samples=2_000
    ),
    "few samples": lambda: certirl.solve(
        certirl.problems.random_polynomial(seed=1), expert=0, basis=certirl.Legendre(7), columns=3, delta=0.05, tail=0,
        discount=0.7, rng=0, samples=1_000,
    ),
}  # fmt: skip


@functools.lru_cache
def record(kind):
    return MORE[kind]() if kind in MORE else saved(kind)


@functools.lru_cache
def page(kind):
    return report.page(record(kind))


class Parsed(HTMLParser):
    """Elements with their attributes and text; wrong nesting is an error."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", **dict(attributes)})

    def handle_endtag(self, tag):
        assert self._open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def all(self, tag):
        return [element for element in self.elements if element["tag"] == tag]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", [*MAKERS, *MORE])
def test_a_page_is_whole_and_claims_what_the_record_claims(kind):
    answer, parsed = record(kind), Parsed(page(kind))
    (verdict,) = parsed.all("h1")
    assert verdict["text"] == str(answer).splitlines()[0].removesuffix(".") + "."
    ids = [element["id"] for element in parsed.elements if "id" in element]
    assert len(ids) == len(set(ids))
    named = " ".join(element.get("aria-labelledby", "") for element in parsed.elements).split()
    assert set(named) <= set(ids)
    links = [element["href"] for element in parsed.elements if "href" in element]
    assert all(link.startswith("data:image/png;base64,") or link.removeprefix("#") in ids for link in links)
    assert re.findall(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)\w+\.", page(kind)) == []
    assert not any(element.keys() & {"src", "style", "onclick", "onload"} for element in parsed.elements)
    assert len(page(kind).encode()) < 300_000
    for picture in (element for element in parsed.all("svg") if element.get("role") == "img"):
        assert picture["text"].strip() != ""
    tables = [each for each in parsed.all("details") if each["text"].startswith("Numbers of this picture")]
    assert len(parsed.all("figure")) == len(tables)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_proof_is_shown_with_its_assumptions_and_its_budget(kind):
    text = Parsed(page(kind)).all("main")[0]["text"]
    proof = getattr(record(kind), "certificate", record(kind))
    assert all(assumption in text for assumption in proof.assumptions)
    assert all(name in text for name in proof.spending)
    budget = charts.budget(proof)
    for _, value in budget.parts:
        assert svg.number(value, 3) in text
    assert abs(budget.value - proof.margin) < 1e-12


def test_a_conflict_names_states_and_actions_and_an_open_answer_its_reason():
    text = Parsed(page("conflict")).all("main")[0]["text"]
    witness = record("conflict").witness
    assert str(witness)[1:] in text
    assert svg.number(witness.states[witness.weights.argmax(), 0]) in text
    answer = record("few samples")
    assert answer.status == "solved"
    assert answer.reason in Parsed(page("few samples")).all("main")[0]["text"]


def test_names_from_outside_stay_text():
    for kind, name in (("hostile sum", HOSTILE), ("log", "<b>up</b>"), ("features", "<i>s</i>")):
        parsed = Parsed(page(kind))
        assert name in parsed.all("main")[0]["text"]
        assert len(parsed.all("script")) == 2 and len(parsed.all("title")) >= 1
        assert parsed.all("b") == parsed.all("i") == []
        assert parsed.elements[0]["tag"] == "html"
    data = Parsed(page("hostile sum")).all("script")[0]["text"]
    assert "<" not in data and json.loads(data)


@pytest.mark.parametrize("kind", ["action", "sum", "policy solution", "three coordinates", "hostile sum", "features"])
def test_the_formula_of_the_page_is_the_one_in_latex(kind):
    reward = record(kind).reward
    latex = reward.to_latex()
    elements = ElementTree.fromstring(f"<all>{''.join(mathml(latex))}</all>")
    numbers = [element.text for element in elements.iter("mn")]
    words = re.sub(r"\\text\{[^{}]*\}", "", latex)
    assert numbers == re.findall(r"\d+(?:\.\d+)?", words)
    text = "".join(elements.itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert "\\" not in text and "{" not in text
    assert all(component.name in text for component in reward.components if len(reward.components) > 1)
    if kind == "features":
        assert "is a Python function, which cannot be written" in page(kind)
    else:
        code = next(each["text"] for each in Parsed(page(kind)).all("code") if "def reward(" in each["text"])
        exec(code, shown := {})
        middle = np.mean(reward.domain, axis=1)
        assert shown["reward"](middle[None])[0] == pytest.approx(float(reward(middle[None])[0]), abs=1e-9)


def test_the_browser_may_run_the_page_s_own_style_and_script_alone():
    parsed = Parsed(page("action"))
    policy = next(element["content"] for element in parsed.all("meta") if element.get("http-equiv"))
    for tag in ("style", "script"):
        digest = hashlib.sha256(parsed.all(tag)[-1]["text"].encode()).digest()
        assert f"{tag}-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_readings_are_the_numbers_of_the_record():
    solution = record("action")
    (chart,) = charts.margin_charts(solution)
    numbers = svg.readings(chart)
    places = np.linspace(-1, 1, len(numbers.rows))
    assert numbers.head[:2] == ["state s", "over action 1"]
    for row, margin, error in zip(
        numbers.rows, solution.margins(places)[0], solution.standard_errors(places)[0], strict=True
    ):
        middle, low, high = (float(word.replace("−", "-")) for word in re.findall(r"[−\d.e]+", row[1]))
        np.testing.assert_allclose([middle, low, high], [margin, margin - 2 * error, margin + 2 * error], rtol=1e-3)
    (height,) = charts.reward_charts(record("three coordinates"))
    cells = svg.readings(height)
    states = np.tile(record("three coordinates").state, (len(cells.x), 1))
    states[:, 0] = height.x[:: len(height.x) // len(cells.x) + (len(height.x) % len(cells.x) > 0)]
    states[:, 1] = height.y[0]
    np.testing.assert_allclose(
        [float(word.replace("−", "-")) for word in cells.rows[0]],
        record("three coordinates").reward(states),
        rtol=5e-3,
        atol=5e-3,
    )


def test_a_map_is_a_picture_of_its_values_with_empty_cells(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    values = np.array([[0.0, 1.0, np.nan], [0.5, 0.25, 0.75]])
    (tmp_path / "map.png").write_bytes(base64.b64decode(svg._png(values).partition(",")[2]))
    pixels = image.imread(tmp_path / "map.png")
    assert pixels.shape == (2, 3, 4)
    np.testing.assert_array_equal(pixels[..., 3], [[1, 1, 0], [1, 1, 1]])
    brightness = pixels[..., :3].sum(axis=2)
    assert brightness[0, 0] < brightness[1, 1] < brightness[1, 0] < brightness[1, 2] < brightness[0, 1]


LINE = np.linspace(-1, 1, 50)
ODD = {
    "no curve": charts.Chart("", "x", "y", (), (charts.Span(0, 1, "shaded"),)),
    "nothing": charts.Chart("", "x", "y", ()),
    "not a number": charts.Chart("", "x", "y", (charts.Curve("c", LINE, np.full(50, np.nan)),)),
    "infinite": charts.Chart("", "x", "y", (charts.Curve("c", LINE, np.copysign(np.inf, LINE)),)),
    "one point": charts.Chart("", "x", "y", (charts.Curve("c", LINE[:1], LINE[:1]),)),
    "half a band": charts.Chart("", "x", "y", (charts.Curve("c", LINE, LINE, LINE - 1, np.full(50, np.nan)),)),
    "empty map": charts.Map("", "x", "y", "v", LINE[:3], LINE[:2], np.full((2, 3), np.nan), 0, 1),
    "constant map": charts.Map("", "x", "y", "v", LINE[:3], LINE[:2], np.ones((2, 3)), 1, 1),
    "one cell": charts.Map(
        "", "x", "y", "v", LINE[:1], LINE[:1], np.ones((1, 1)), 1, 9, hatched=np.ones((1, 1), dtype=bool), is_log=True
    ),
    "no bars": charts.Bars("", "l", ()),
    "infinite bars": charts.Bars("", "l", (("a", np.inf), ("b", np.nan), ("c", -1.0)), "sum"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_odd_pictures_are_drawn_without_odd_numbers(kind):
    svg.legend(ODD[kind])
    head, rows, _ = svg.table(ODD[kind])
    assert all(len(row) == len(head) for row in rows)
    assert len(svg.readings(ODD[kind]).x) <= 200
    for element in ElementTree.fromstring(svg.draw(ODD[kind], "odd")).iter():
        for name, value in element.attrib.items():
            assert name == "href" or not re.search(r"\b(nan|inf)\b", value), (element.tag, name)


def test_ticks_are_round_and_inside():
    for low, high in ((-1, 1), (0.1234, 0.1239), (-3e7, 8e7), (1e-9, 3e-9), (99.5, 100.5)):
        ticks = svg._ticks(low, high)
        assert 3 <= len(ticks) <= 8
        rounding = 1e-6 * (high - low)
        assert all(low - rounding <= value <= high + rounding for value, _ in ticks)
        assert len({label for _, label in ticks}) == len(ticks)
        for value, label in ticks:
            shown = float(label.replace("−", "-").replace(",", ""))
            assert abs(shown - value) < rounding


def test_reports_are_written_whole_or_not_at_all(tmp_path):
    written = record("action").report(tmp_path / "answer")
    assert written == tmp_path / "answer.html"
    assert written.read_text(encoding="utf-8") == page("action")
    refuted = record("refutation").report(tmp_path / "refuted")
    assert refuted.read_text(encoding="utf-8") == page("refutation")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        record("action").report(tmp_path)
    with pytest.raises(TypeError, match="a report is about a solution, a certificate or a refutation, got Reward"):
        report.write(record("action").reward, tmp_path / "none.html")
    assert {*tmp_path.iterdir()} == {written, refuted}


def test_a_file_gives_the_same_report_but_for_its_name(tmp_path):
    path = record("policy solution").save(tmp_path / "policy.npz")
    text = report.page(certirl.load(path))
    assert Parsed(text).all("h1") == Parsed(page("policy solution")).all("h1")
    assert "certirl check policy.npz" in text and "policy.npz, SHA-256" in text
    proof = certirl.load(path).certificate
    assert f"<dt>columns</dt><dd>{proof.grounds[0].surrogate.columns}</dd>" in text  # that the tail belongs to
    assert "<dt>functions of effects</dt>" in text and "certirl check FILE.npz" in report.page(proof)
    features = report.page(certirl.load(record("features").save(tmp_path / "features.npz")))
    assert "features are functions, which a file does not keep" in features


def test_the_command_writes_and_opens_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    record("refutation").save("refuted.npz")
    words = ["--title", "Refuted", "--author", "A. Auditor", "--date", "2026-12-31", "--checked"]
    assert main(["report", "refuted.npz", "-o", "page.html", "--open", *words]) == 0
    written = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(text in written for text in ("Refuted", "A. Auditor, 2026-12-31", "<strong>Confirmed</strong>"))
    assert "certirl check refuted.npz" in (tmp_path / "page.html").read_text(encoding="utf-8")
    verdict = str(record("refutation")).splitlines()[0]
    assert capsys.readouterr().out == f"{verdict}.\nReport: page.html\n"
    assert opened == [(tmp_path / "page.html").as_uri()]
    assert Parsed((tmp_path / "page.html").read_text(encoding="utf-8")).all("h1")[0]["text"] == f"{verdict}."
    record("action").reward.save("reward.npz")
    assert main(["report", "reward.npz"]) == 2
    assert "a report is about a solution, a certificate or a refutation, got Reward" in capsys.readouterr().err
    assert main(["report", "refuted.npz", "-o", "."]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "refuted.npz", "reward.npz"]


def test_title_author_and_date_are_on_the_page_as_text_and_in_the_signature_lines():
    words = {"title": "Room <3>", "author": "A. & B.", "date": "2026-12-31"}
    parsed = Parsed(report.page(record("action"), **words))
    assert next(each["text"] for each in parsed.all("title")) == "Room <3>: certified"
    named = {each.get("class"): each["text"] for each in parsed.all("p")}
    assert (named["title"], named["written"]) == ("Room <3>", "A. & B., 2026-12-31")
    (signed,) = (each["text"] for each in parsed.all("section") if each.get("class") == "signatures")
    assert signed.split("\n")[1:4] == ["Written by A. & B.", "Checked by", "Approved by"]
    assert report.page(record("action"), **words) == report.page(record("action"), **words)
    assert report.page(record("action"), date=datetime.date(2026, 12, 31)) == report.page(
        record("action"), date="2026-12-31"
    )
    for wrong, sentence in (({"date": "tomorrow"}, "date must be a date such as"), ({"title": "\n"}, "title must be")):
        with pytest.raises(ValueError, match=sentence):
            report.page(record("action"), **wrong)


def test_the_page_names_system_expert_call_and_file_before_what_is_assumed_and_the_numbers(tmp_path):
    solution = certirl.load(record("policy solution").save(tmp_path / "policy.npz"))
    parsed = Parsed(report.page(solution))
    about = next(each["text"] for each in parsed.all("section") if each.get("id") == "about")
    for name in ("simulator", "expert", "call", "versions"):
        assert solution.about[name] in about
    assert "systems.py, SHA-256 of the file" in about and "saved_records.py, SHA-256 of the file" in about
    assert "certirl.solve(Coins, discount=0.7" in about and "actions0, 1" in about
    assert hashlib.sha256((tmp_path / "policy.npz").read_bytes()).hexdigest() in about
    order = [each["id"] for each in parsed.all("section") if "id" in each]
    assert order[:5] == ["about", "assumptions", "numbers", "checked", "reward"]
    with_names = Parsed(page("log")).all("section")[0]["text"]
    assert "0 <b>up</b>, 1 down" in with_names and "SHA-256 of the rows" in with_names


def test_assumptions_are_in_the_words_of_the_declaration_and_say_who_can_check_them(tmp_path):
    declared = certirl.dynamics.GaussianNoise(0.25, slope=0.8)
    solution = replace(record("action"), about={**record("action").about, "tail": str(declared)})
    again = certirl.load(solution.save(tmp_path / "declared.npz"))
    (first, *others) = (each["text"] for each in Parsed(report.page(again)).all("li") if "Who " in each["text"])
    assert first.startswith("Declared: the noise ξ is Gaussian of standard deviation at least 0.25, independent of s,")
    assert "drift m_a affine with slope at most 0.8" in first and "by its equations or its manual" in first
    assert len(others) == len(again.certificate.assumptions)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.npz")), ids=lambda path: path.stem)
def test_of_every_assumption_there_is_the_page_says_who_can_check_it(path):
    whole = archive.load(path)
    proofs = [whole, *(getattr(whole, name, None) for name in ("certificate", "refutation", "proof"))]
    sentences = [text for proof in proofs for text in getattr(proof, "assumptions", getattr(proof, "assumed", ()))]
    if isinstance(whole, Solution):
        sentences += report._assumed(whole)
    if sentences and not path.name.startswith(("moments", "reward")):
        sentences += certirl_check.check(path).trusted
    nobody = {text for text in sentences if report.who_checks(text).startswith("Nobody")}
    assert all(text.startswith(("estimated effects", "shares are of states")) for text in nobody), nobody


def test_the_verdict_of_the_checker_is_there_only_if_it_ran(monkeypatch):
    section = functools.partial(_section_of, "checked")
    assert section(page("action")).startswith("Independent checkNot run for this page")
    verdict = certirl.check(record("action"))
    text = section(report.page(record("action"), checked=True))
    assert f"Confirmed: {verdict.statement}." in text and f"certirl_check {certirl.__version__}" in text
    rejected = replace(record("action").certificate, margin=10.0)
    assert "Rejected: " in section(report.page(rejected, checked=True))
    assert "checked" not in [each.get("id") for each in Parsed(page("conflict")).all("section")]


def _section_of(name, text):
    return next(each["text"] for each in Parsed(text).all("section") if each.get("id") == name)


@pytest.mark.parametrize("kind", ["action", "policy solution", "log", "three coordinates", "hostile sum", "conflict"])
def test_no_picture_or_formula_claims_more_than_the_solution(kind):
    solution, parsed = record(kind), Parsed(page(kind))
    captions = [each["text"] for each in parsed.all("figcaption")]
    certified = [caption for caption in captions if "ertified" in caption and "not certified" not in caption]
    assert bool(certified) == (solution.status == "certified")
    marks = ("estimated, not proved", "not proved", "infeasible: the best fit", "rounds", "transitions")
    assert all(any(mark in caption.lower() for mark in marks) for caption in captions if caption not in certified)
    if solution.reward is not None:
        formula = _section_of("formula", page(kind))
        assert ("Certified with probability" in formula) == (solution.status == "certified")
        assert solution.status == "certified" or "ot proved." in formula


@pytest.mark.parametrize("name", ["solution-soft", "solution-soft-band", "cells-car"])
def test_pages_of_soft_experts_and_of_cells_claim_what_is_proved(name):
    answer = certirl.load(GOLDEN / f"{name}.npz")
    parsed = Parsed(report.page(answer, checked=True))
    captions, text = [each["text"] for each in parsed.all("figcaption")], parsed.all("main")[0]["text"]
    marks = {"solution-soft": "estimated, not proved", "cells-car": "certified in part"}
    band = f"in its band with probability {1 - getattr(getattr(answer, 'proof', None), 'delta', 0):g}"
    assert captions and any(marks.get(name, band) in caption.lower() for caption in captions), captions
    assert ("Confirmed: " in text) == ("Independent check" in text) == (name != "solution-soft")
    assert "Δ" not in text and "S' =" not in text  # symbols are no words that begin a sentence


def test_coverage_is_drawn_if_it_is_given():
    log = _log()
    text = report.page(record("log"), coverage=certirl.diagnose.coverage(log))
    assert "transitions of the rarest action" in text
    assert "transitions of the rarest action" not in page("log")


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window, for all tests of this file."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    names = ("google-chrome", "google-chrome-stable", "chromium", "chromium-browser")
    binary, driver = next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("there is no Chromium with its chromedriver: install the packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture
def shown(chromium, tmp_path):
    """Opens the page of a kind, on a screen of some width, light or dark; no error and no request is left unnoticed."""

    opened = set()

    def show(kind, width=1200, scheme="light", media=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        path = tmp_path / f"{kind.replace(' ', '-')}.html"
        path.write_text(page(kind), encoding="utf-8")
        chromium.get(path.as_uri())
        opened.add(path.as_uri())
        return chromium

    yield show
    assert [line for line in chromium.get_log("browser") if line["level"] != "INFO"] == []
    events = [json.loads(line["message"])["message"] for line in chromium.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert {url for url in asked if url.startswith("file:")} == opened


def _readout(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('.readout')].filter(e => !e.hidden).map(e => e.innerText).join()"
    )


def test_numbers_appear_under_the_pointer(shown):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    browser = shown("policy solution")
    assert browser.find_element(By.TAG_NAME, "h1").text.startswith("Certified with probability 0.95")
    probe = browser.find_element(By.CSS_SELECTOR, "#margins .probe")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", probe)
    ActionChains(browser).move_to_element(probe).perform()
    first = _readout(browser)
    assert re.search(r"state s: [\d.−]+\nmargin asked for: [\d.]+\nshortfall of the expert: [\d.]+", first)
    ActionChains(browser).move_by_offset(60, 0).perform()
    assert _readout(browser) != first
    map_page = shown("box")
    probe = map_page.find_element(By.CSS_SELECTOR, ".probe")
    map_page.execute_script("arguments[0].scrollIntoView({block: 'center'})", probe)
    ActionChains(map_page).move_to_element(probe).perform()
    assert re.search(r"s\[0\]: .*\ns\[1\]: .*\nadvantage D\(s\), at least: [\d.]+", _readout(map_page))


def test_numbers_are_read_by_keyboard_and_screen_reader(shown):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser = shown("box")
    probe = browser.find_element(By.CSS_SELECTOR, ".probe")
    for _ in range(30):  # the keyboard reaches it
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element == probe:
            break
    assert browser.switch_to.active_element == probe
    heard = [probe.get_attribute("aria-valuetext")]
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.END):
        probe.send_keys(key)
        heard.append(probe.get_attribute("aria-valuetext"))
        assert _readout(browser).replace(": ", " ").replace("\n", "; ") == heard[-1]
    assert len(set(heard)) == 4
    probe.send_keys(Keys.ESCAPE)
    assert _readout(browser) == ""


@pytest.mark.parametrize("kind", ["action", "hostile sum", "log", "refuted policy", "conflict"])
def test_a_phone_shows_the_page_without_scrolling_sideways(shown, kind):
    browser = shown(kind, width=360)
    unreached = """document.querySelectorAll('details').forEach(e => e.open = true);
        return [...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1)
        .filter(e => /auto|scroll/.test(getComputedStyle(e).overflowX) && !e.matches('[tabindex]') &&
            !e.querySelector('a, [tabindex]')).map(e => e.tagName + '.' + e.className)"""
    assert browser.execute_script(unreached) == []  # what scrolls is scrolled by keyboard, too
    browser.execute_script("document.querySelectorAll('details').forEach(e => e.open = false)")
    wide = """return [...document.querySelectorAll('body *')]
        .filter(e => !e.closest('.scroll, nav ul, pre, svg, .skip, math'))
        .filter(e => e.getBoundingClientRect().right > 361).map(e => e.tagName + '.' + e.className)"""
    assert browser.execute_script(wide) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    sizes = browser.execute_script(
        """return [...document.querySelectorAll('.plot text')].map(e => e.getBoundingClientRect().height)"""
    )
    assert min(sizes, default=12) >= 10  # pixels, line included


def _luminance(colour):
    channels = [float(number) / 255 for number in re.findall(r"[\d.]+", colour)[:3]]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_light_and_on_dark(shown, scheme):
    browser = shown("policy solution", scheme=scheme)
    script = """
        const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
            if (!/, 0\\)|transparent/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
        return ['h1', 'h2', '.badge', '.facts dt', '.facts dd', 'nav a', '.lead', 'summary', 'pre', 'dt', 'td',
            'footer p', '.legend li'].map(s => { const e = document.querySelector(s);
            return [s, getComputedStyle(e).color, ground(e)]; })"""
    for name, ink, ground in browser.execute_script(script):
        light, dark = sorted((_luminance(ink), _luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, name
    is_dark = _luminance(browser.execute_script("return getComputedStyle(document.body).backgroundColor")) < 0.2
    assert is_dark == (scheme == "dark")


@pytest.mark.parametrize("kind", ["policy solution", "log", "refutation"])
def test_a_screen_reader_finds_landmarks_headings_and_names(shown, kind):
    browser = shown(kind)
    browser.execute_cdp_cmd("Accessibility.enable", {})
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    read = [(node["role"]["value"], node["name"]["value"]) for node in nodes if not node["ignored"] and "name" in node]
    roles = [role for role, _ in read]
    assert all(roles.count(role) == 1 for role in ("banner", "main", "contentinfo"))
    assert roles.count("navigation") == 1 and roles.count("region") >= 4
    kinds = ("image", "img", "slider", "heading", "link", "navigation", "table")
    assert [role for role, name in read if role in kinds and not name] == []
    levels = browser.execute_script("return [...document.querySelectorAll('h1,h2,h3')].map(e => +e.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert browser.execute_script("return document.documentElement.lang") == "en"


def test_paper_has_signature_lines_and_neither_navigation_nor_a_dark_ground(shown):
    browser = shown("action", scheme="dark", media="print")
    display = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert browser.execute_script(display, "nav") == "none"
    assert browser.execute_script(display, ".signatures") == "grid"
    shown("action")
    assert browser.execute_script(display, ".signatures") == "none"
    shown("action", scheme="dark", media="print")
    assert _luminance(browser.execute_script("return getComputedStyle(document.body).color")) < 0.2
