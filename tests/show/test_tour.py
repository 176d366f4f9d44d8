"""The tour: the notebook runs from top to bottom, and the certificate appears as n grows."""

from importlib.util import find_spec

import pytest

import certirl
from certirl.cli import main
from certirl.cli.tour import NOTEBOOK

needs_marimo = pytest.mark.skipif(
    find_spec("marimo") is None, reason='the tour needs marimo: pip install "certirl[tour]"; make test-tour does'
)


@needs_marimo
@pytest.mark.parametrize(("n", "certified"), [(1_000, False), (20_000, True)])
def test_the_certificate_appears_as_n_grows(n, certified):
    from certirl.show.tour import app

    outputs, names = app.run(defs={"n": n, "k": 7, "discount": 0.7, "delta": 0.05})
    proof, text = names["proof"], "".join(getattr(output, "text", "") for output in outputs if output is not None)
    assert names["solution"].status == ("certified" if certified else "solved")
    assert (proof.margin > 0) is names["is_certified"] is certified and proof.delta == 0.05
    assert proof.margin < names["true_margin"]  # the truth, which the proof does not use
    assert min(names["panel"]["truth at least"]) < min(names["panel"]["truth"])
    assert ("<strong>Certified.</strong>" in text) is certified and text.count("<svg") >= 2
    assert any(output is names["solution"] for output in outputs)  # shown as a card


def test_figure_1_proves_the_margin_with_many_transitions():
    from certirl.paper.figures import figure1

    problem, basis = certirl.problems.random_polynomial(seed=0), certirl.Fourier(5)
    least = {}
    for n in (2_000, 200_000):
        moments = certirl.steps.measure(certirl.steps.sample(problem, basis=basis, samples=n, rng=0), basis=basis)
        panel = figure1.curves(problem, moments, discount=0.7, cover=0.05)
        least[n] = min(panel["truth at least"])
        chart = figure1.chart(panel)
        assert chart.title == figure1.verdict(panel) and len(chart.curves) == 5 and chart.low < 0 < chart.high
    assert least[2_000] < 0 < least[200_000]


def test_without_marimo_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("certirl.cli.tour.find_spec", lambda name: None)
    assert main(["tour"]) == 2
    assert 'certirl: the tour is a marimo notebook: pip install "certirl[tour]"' in capsys.readouterr().err


def test_the_command_starts_marimo_and_says_if_that_fails(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("certirl.cli.tour.find_spec", lambda name: name)
    monkeypatch.setattr("subprocess.call", lambda words, stdout: asked.append(words) or len(asked) - 1)
    assert main(["tour", "--no-browser", "--port", "2800"]) == 0 and main(["tour"]) == 2
    assert asked[0][1:] == ["-m", "marimo", "run", "--headless", "--port", "2800", "--include-code", str(NOTEBOOK)]
    assert asked[1][3:] == ["run", "--include-code", str(NOTEBOOK)]
    assert "marimo ended with exit code 1: its lines say why" in capsys.readouterr().err


def test_the_notebook_is_copied_to_a_file(tmp_path, capsys):
    assert main(["tour", "--copy", str(tmp_path / "mine")]) == 0 and "mine.py   (marimo edit" in capsys.readouterr().out
    assert (tmp_path / "mine.py").read_bytes() == NOTEBOOK.read_bytes()
    assert main(["tour", "--copy", str(tmp_path / "none" / "mine.py")]) == 2
