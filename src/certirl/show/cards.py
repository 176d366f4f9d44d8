"""Records in notebooks: a card with the headline, small pictures and the lines of the print, as HTML without scripts.

A card has the colours of the page around it, so that it can be read in light and dark notebooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from html import escape
from textwrap import dedent
from typing import Any

from certirl.data.coverage import Coverage
from certirl.fit.features import FeaturePath
from certirl.fit.ranges import WeightRanges
from certirl.functions.reward import Reward
from certirl.ground.records import Record
from certirl.proof.cells import CellCertificate
from certirl.proof.certificate import Certificate
from certirl.proof.refutation import Refutation
from certirl.show import charts, svg
from certirl.show.charts import Picture
from certirl.solver.soft_solution import SoftSolution
from certirl.solver.solution import Solution
from certirl.solver.stability import Stability

MOST_PICTURES = 2
MOST_ROWS = 40  # of a table
_LONGEST = 120  # characters of a value in a table
_LISTED = 8  # entries of an array in a table
_CARD = "border:1px solid rgba(128,128,128,.45);border-radius:6px;padding:.6em .9em;max-width:62em;line-height:1.45"
_LINE = "padding-left:9ch;text-indent:-9ch;white-space:pre-wrap;overflow-wrap:anywhere"
_KEY = "text-align:left;vertical-align:top;font-weight:600;padding:.1em 1em .1em 0"
_VALUE = "text-align:left;overflow-wrap:anywhere;padding:.1em 0"

# Kinds of records that are drawn, and how.
_PICTURES: dict[type[Record], Callable[[Any], Sequence[Picture]]] = {
    Solution: lambda solution: () if solution.reward is None else charts.solution_charts(solution),
    SoftSolution: charts.soft_charts,
    Certificate: lambda proof: (*charts.certificate_charts(proof), charts.budget(proof)),
    CellCertificate: charts.certificate_charts,
    Refutation: lambda proof: (charts.budget(proof),),
    Reward: charts.reward_charts,
    Coverage: charts.coverage_charts,
    Stability: charts.stability_charts,
    FeaturePath: lambda path: (charts.feature_path_chart(path),),
    WeightRanges: charts.range_charts,
}


def card(record: Record) -> str:
    """A record as HTML."""
    kind = f'<span style="opacity:.75">{type(record).__name__}</span>'
    if type(record).__str__ is object.__str__:
        return f'<div style="{_CARD}">{kind}{_table(record.to_dict(entries=_LISTED))}</div>'
    headline, lines = record._headline(), str(record).splitlines()
    if lines[0].startswith(headline):
        headline, *lines = lines
    bold = f'<div style="font-weight:600;margin:.25em 0 .4em">{escape(headline)}</div>'
    return f'<div style="{_CARD}">{kind}{_badge(record, headline)}{bold}{_figures(record)}{_print(lines)}</div>'


def _badge(record: Record, headline: str) -> str:
    """What a record claims in a word, if its headline has it."""
    words = [getattr(record, name) for name in ("status", "word") if hasattr(record, name)] or headline.split(":")[:1]
    word = words[0].lower()
    if word not in svg.TONES or word not in headline.lower():
        return ""
    look = "color:#fff;border-radius:1em;padding:.05em .7em;font-size:.85em;margin-left:.6em"
    return f'<span style="background:{svg.TONES[word].colour};{look}">{word}</span>'


def _print(lines: Sequence[str]) -> str:
    each = "".join(f'<div style="{_LINE}">{escape(line)}</div>' for line in dedent("\n".join(lines)).splitlines())
    return f'<div style="font-family:monospace;font-size:.85em">{each}</div>' if lines else ""


def _figures(record: Record) -> str:
    try:
        pictures = next((draw(record) for kind, draw in _PICTURES.items() if isinstance(record, kind)), ())
    except ValueError:  # a file does not keep functions of features, nor which states are terminal
        return ""
    item = '<div style="flex:1 1 20em;max-width:29em;min-width:0">{}</div>'
    each = [item.format(figure(picture)) for picture in pictures[:MOST_PICTURES]]
    return f'<div style="display:flex;flex-wrap:wrap;gap:.6em 1.6em">{"".join(each)}</div>' if each else ""


def figure(picture: Picture) -> str:
    """A picture with its title and legend, as wide as what is around it."""
    drawn = svg.draw(picture, "certirl-picture")
    digest = sha256(drawn.encode()).hexdigest()[:12]  # ids of their own for all pictures of a notebook
    drawn = drawn.replace("certirl-picture", f"certirl-{digest}")
    keys = "".join(
        f'<span style="display:inline-flex;align-items:center;gap:.35em;margin-right:1em">{key}{escape(label)}</span>'
        for key, label in svg.legend(picture)
    )
    caption = f'<div style="font-size:.85em">{escape(picture.title)}</div>' if picture.title else ""
    legend = f'<div style="font-size:.8em">{keys}</div>' if keys else ""
    return f'<div style="max-width:40em">{caption}{drawn}{legend}</div>'


def _table(data: dict[str, Any]) -> str:
    rows = []
    for name, value in [(name, value) for name, value in data.items() if value not in (None, "")][1:MOST_ROWS]:
        text = _words(value)
        short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        rows.append(f'<tr><th style="{_KEY}">{escape(name)}</th><td style="{_VALUE}">{escape(short)}</td></tr>')
    return f'<table style="border-collapse:collapse;font-size:.9em">{"".join(rows)}</table>'


def _words(value: Any) -> str:
    """Plain data for a person."""
    if isinstance(value, dict) and value.keys() == {"shape", "dtype"}:
        return f"{value['dtype']} {value['shape']}"
    if isinstance(value, dict):
        inside = ", ".join(f"{name} {_words(item)}" for name, item in value.items() if name != "type")
        return f"{value['type']}: {inside}" if "type" in value else inside
    if isinstance(value, list):
        return f"[{', '.join(map(_words, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
