"""Records in notebooks: cards that are well-formed, escaped, without scripts, and say no more than the print."""

from dataclasses import dataclass, field
from xml.etree import ElementTree

import numpy as np
import pytest

import certirl
from certirl.fit.features import FeaturePath
from certirl.ground.records import Record
from systems import Coins

SVG = "{http://www.w3.org/2000/svg}svg"
REWARD = certirl.Reward(certirl.Legendre(3), [0.0, 1.0, 2.0])


@dataclass(frozen=True)
class Plain(Record):
    name: str
    numbers: object = None
    nothing: str = ""
    inner: object = None


@dataclass(frozen=True)
class Printed(Record):
    word: str
    text: str = field(default="")

    def __str__(self):
        return self.text


def card_of(record):
    """The card, parsed: its elements are balanced and all its text is escaped."""
    text = record._repr_html_()
    assert "<script" not in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")
    card = ElementTree.fromstring(text)
    pictures = [element for element in card.iter() if element.tag in ("svg", SVG) and element.get("role") == "img"]
    return card, " ".join(" ".join(card.itertext()).split()), pictures


@pytest.mark.parametrize(("delta", "status"), [(1e-30, "solved"), (0.05, "certified")])
def test_the_card_of_a_solution_has_its_status_its_print_and_two_pictures(delta, status):
    functions = {"basis": certirl.Legendre(4), "columns": 2, "delta": delta, "tail": 0, "progress": False}
    solution = certirl.solve(Coins((0.7, 0.3), (0.1, 0.1)), expert=0, discount=0.7, rng=0, samples=400, **functions)
    assert solution.status == status
    card, text, pictures = card_of(solution)
    assert text.startswith(f"Solution {status} ") and len(pictures) == 2
    assert all(" ".join(line.split()) in text for line in str(solution).splitlines())
    card, text, pictures = card_of(solution.certificate)
    assert text.startswith(f"Certificate {solution.certificate.word} ") and len(pictures) == 2
    assert [badge.text for badge in card.iter("span") if "background" in badge.get("style", "")] == [
        solution.certificate.word
    ]
    names = {element.get("id") for picture in pictures for element in picture.iter() if element.get("id")}
    assert len(names) == len([e for p in pictures for e in p.iter() if e.get("id")])  # no two have the same


def test_rewards_are_drawn_unless_a_file_lost_their_functions(tmp_path):
    assert len(card_of(REWARD)[2]) == 1
    box = certirl.Reward(certirl.product(certirl.Legendre(2), certirl.Legendre(2)), [0.0, 1.0, 2.0])
    assert len(card_of(box)[2]) == 1
    log = certirl.Transitions(np.linspace(0, 1, 50), np.arange(50) % 2, np.linspace(1, 0, 50))
    assert len(card_of(certirl.diagnose.coverage(log))[2]) == 1
    one = np.array([0.5])
    path = FeaturePath(("x",), np.ones((1, 1)), np.array([1]), one, one, one, one, 0, ("x",))
    _, text, pictures = card_of(path)
    assert text.startswith(f"FeaturePath {path.summary}") and "R(s)" in text and len(pictures) == 1
    assert repr(path).startswith("<FeaturePath: 1 feature of 1, the simplest")
    features = certirl.FeatureForm({"x": lambda states: states[:, 0]})
    middle = certirl.solve(Coins((0.7, 0.3), (0.1, 0.1)), discount=0.7, expert=0, rng=0, samples=200, method=features)
    lost = certirl.load(middle.save(tmp_path / "lost.npz")).reward
    assert card_of(middle.reward)[2] and card_of(lost)[1].startswith("Reward R(s) = ") and not card_of(lost)[2]


def test_a_record_without_a_print_is_a_table_of_what_is_not_empty():
    _, text, pictures = card_of(Plain("<b>&", np.arange(9.0), inner=Plain("in", (1.0, np.pi, True))))
    inner = "Plain: name in, numbers [1, 3.14159, True], nothing , inner None"
    assert text == f"Plain name <b>& numbers float64 [9] inner {inner}"
    assert not pictures and len(card_of(Plain("x" * 1000))[1]) < 200


def test_text_is_escaped_and_a_word_is_a_badge_only_if_the_headline_has_it():
    hostile = Printed("certified", "Certified <script>alert(1)</script>\n  and \"more\" & 'less'")
    _, text, _ = card_of(hostile)
    assert "<script>alert(1)</script>" in text and text.startswith("Printed certified Certified")
    assert card_of(Printed("certified", "Nothing is proved\n  at all"))[1] == "Printed Nothing is proved at all"
    assert card_of(Printed("anything", "Anything goes"))[1] == "Printed Anything goes"
