"""The report: one page about a solution, a certificate or a refutation, to be read offline, printed and signed.

The page claims what the record claims: its first sentence is the first line of the record's print. What it rests on
comes first, then the numbers and what the independent checker said, if it was asked, then the pictures, which are the
records of `charts`, drawn by `svg`. Text from outside (names of columns, actions and components, files) is escaped, and
the page forbids the browser every request and every other script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date as Date
from functools import cache
from html import escape
from importlib import metadata, resources
from math import inf, isfinite
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np

from certirl.data.coverage import Coverage
from certirl.fit.witness import Witness
from certirl.functions.reward import Reward
from certirl.ground.archive import replacing, target_of
from certirl.ground.doors import as_text, setting, shown
from certirl.ground.records import Record
from certirl.ground.status import Claim, chance, percent_up, rounded_down
from certirl.proof.refutation import Refutation
from certirl.show import charts, svg
from certirl.show.charts import Names, Picture
from certirl.show.mathml import mathml
from certirl.solver.answer import Answer
from certirl.solver.check import check
from certirl.solver.soft_solution import SoftSolution
from certirl.solver.solution import Solution

SUFFIXES = (".html", ".htm")
_MOST_ROWS = 12  # of a witness
_LONG = 120  # characters of a verdict that is set smaller
_MOST_TERMS = 12  # of a formula
_LONGEST_CODE = 60_000  # characters of Python that are shown
_KEPT = "A file keeps the answer and its proof, but neither the simulator or log nor the expert's function."
_ABOUT = ("simulator", "data", "reward", "states", "actions", "expert", "command", "call", "seed", "file", "versions")
_TO_BELIEVE = "What must be true besides, which no file and no program can show, and who can check it."
_SYSTEM = "Who knows the system, by its equations or its manual: data can contradict this and never prove it."
# What assumptions are about, by how they begin or by a word; who can check them, and how. The first that fits counts.
_CHECKED_BY = {
    "^declared": _SYSTEM,
    "^the dynamics are those of the log": "Who keeps the log, by comparing it with what was recorded.",
    "^(the stored sums|given (?!the action,)|the next states of different|episodes are|decisions and next|rows )": (
        "Who drew or recorded the data: by repeating the call with its seed, or by how the log was kept."
    ),
    "fixed before|chosen without looking": (
        "Who asked for the proof, by having made no other attempt with these data that δ does not count."
    ),
    r"^(the reward (stays|is)|the certificate is|the value that|R\(s|differences R|it differs)": (
        "Who gave the reward, by evaluating it."
    ),
    "P_a f": "Who knows the system; where a law is declared, tail.number(columns) computes this from it.",
    "s' =|next state|simulator|derivative|Lipschitz|terminal|periodic|drift": _SYSTEM,
    "expert|policy|logit|probabilit|reward": (
        "Who knows the expert: by reading its code, or by asking, also between the states that were looked at."
    ),
    "": "Nobody: only a proof, from more data, replaces it.",
}
_ADVANTAGE = (
    "By how much the expert's action is better than the others: the difference of the expected values of the next "
    "states."
)
_CELLS = "Where the policy's action is proved to be the only optimal one, at every state of a cell, and by how much."


class Section(NamedTuple):
    """A part of the page: its id, its heading, one sentence about it, and its HTML."""

    name: str
    heading: str
    lead: str
    body: str


def write(record: Any, path: Any, **words: Any) -> Path:
    """Write the report of a record and return the path; ".html" is added to one without it. Words are as of `page`."""
    target, text = target_of(path, SUFFIXES), page(record, **words)
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return target


def page(
    record: Any,
    *,
    title: str | None = None,
    author: str | None = None,
    date: Any = None,
    checked: bool = False,
    coverage: Coverage | None = None,
    file: Any = None,
) -> str:
    """The report of a record as HTML.

    Args:
        record: a solution, a certificate or a refutation.
        title: of the page; "certirl report" if left out.
        author: who wrote it.
        date: of the page, as "2026-12-31" or of `datetime`; today if left out.
        checked: derive the claim again by the independent checker and print its verdict.
        coverage: of the log, as `certirl.diagnose.coverage` returns it; drawn if given.
        file: what the record was read from; a solution knows it.
    """
    if not isinstance(record, Answer | Claim):
        kind = type(record).__name__
        raise TypeError(f"a report is about a solution, a certificate or a refutation, got {kind}")
    title, author = (
        "" if text is None else as_text(text, name) for name, text in (("title", title), ("author", author))
    )
    day, file, figures = _day(date), file or getattr(record, "file", None), _Figures()
    every = [*_front(record, file, checked), *_sections(record, figures, coverage, file)]
    sections = [section for section in every if section.body]
    status = record.status if isinstance(record, Answer) else record.word
    tone = svg.TONES[status]
    verdict = verdict_of(record)
    style, script = _shipped("report.css"), _shipped("report.js")
    return Template(_shipped("report.html")).substitute(
        version=escape(_version("certirl")),
        title=escape(f"{title or 'certirl report'}: {status}"),
        heading=f'<p class="title">{escape(title)}</p>' if title else "",
        written=escape(f"{author}, {day}" if author else day),
        author=escape(author),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        badge=escape(status),
        badge_class=tone.name,
        badge_sign=tone.sign,
        verdict=escape(verdict),
        verdict_class="long" if len(verdict) > _LONG else "",
        links="".join(f'<li><a href="#{section.name}">{escape(section.heading)}</a></li>' for section in sections),
        sections="\n".join(map(_section, sections)),
        footer=f"Written by certirl {escape(_version('certirl'))}. This page is one file and makes no request.",
        readings=figures.readings,
    )


def _day(date: Any) -> str:
    """A date as 2026-12-31; today if there is none."""
    try:
        return (Date.today() if date is None else Date.fromisoformat(str(date)[:10])).isoformat()
    except ValueError:
        raise ValueError(f"{setting('date')} must be a date such as 2026-12-31, got {shown(date)}") from None


def verdict_of(record: Record) -> str:
    """The first line of a record's print, as a sentence."""
    return str(record).splitlines()[0].removesuffix(".") + "."


@cache
def _shipped(name: str) -> str:
    return resources.files("certirl.show").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _version(package: str) -> str:
    if package == "certirl":
        from certirl import __version__

        return __version__
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


# Pieces of HTML ------------------------------------------------------------------------------------------------------


class _Figures:
    """Numbers the pictures of a page and keeps what can be read in them."""

    def __init__(self) -> None:
        self._read: dict[str, dict[str, Any]] = {}
        self._count = 0

    @property
    def readings(self) -> str:
        """For the script; no element can begin in it."""
        return json.dumps(self._read, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")

    def drawn(self, pictures: Mapping[str, Sequence[Picture]]) -> str:
        """Figures side by side, where the page is wide enough, by the first words of their captions."""
        if max(map(len, pictures.values()), default=0) <= 2:
            return self._row([(words, picture) for words, group in pictures.items() for picture in group])
        return "".join(self._row([(words, picture) for picture in group]) for words, group in pictures.items())

    def _row(self, pictures: Sequence[tuple[str, Picture]]) -> str:
        kind = "figures small" if len(pictures) > 2 else "figures"
        each = [self._figure(picture, words) for words, picture in pictures]
        return f'<div class="{kind}">{"".join(each)}</div>' if each else ""

    def _figure(self, picture: Picture, caption: str) -> str:
        self._count += 1
        name = f"figure-{self._count}"
        words = f"{caption}: {svg.title_of(picture)}" if caption and picture.title else caption or svg.title_of(picture)
        words = words[:1].upper() + words[1:]
        numbers = svg.readings(picture)
        if numbers.x:
            self._read[name] = numbers._asdict()
        keys = "".join(f"<li>{key}<span>{escape(label)}</span></li>" for key, label in svg.legend(picture))
        head, rows, note = svg.table(picture)
        return (
            f"<figure><figcaption>{escape(words)}</figcaption>"
            f'<div class="plot" id="{name}" data-title="{escape(words)}">{svg.draw(picture, name)}</div>'
            + (f'<ul class="legend">{keys}</ul>' if keys else "")
            + f"<details><summary>Numbers of this picture</summary>{_table(head, rows, note)}</details></figure>"
        )


def _section(section: Section) -> str:
    lead = f'<p class="lead">{escape(section.lead)}</p>' if section.lead else ""
    heading = f'<h2 id="{section.name}-heading">{escape(section.heading)}</h2>'
    name = f'id="{section.name}" aria-labelledby="{section.name}-heading"'
    return f"<section {name}>{heading}{lead}{section.body}</section>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    body = f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody>"
    words = escape(caption)
    table = f"<table><caption>{words}</caption>{body}</table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{words}">{table}</div>'


def _items(texts: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="plain">{lines}</ul>' if lines else ""


def _pairs(pairs: Mapping[str, str]) -> str:
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs.items() if text)
    return f'<dl class="settings">{lines}</dl>' if lines else ""


def _code(text: str, kind: str = "") -> str:
    return f'<pre tabindex="0" class="{kind}"><code>{escape(text)}</code></pre>'


# What comes first ----------------------------------------------------------------------------------------------------


def _front(record: Any, file: Any, checked: bool) -> Iterable[Section]:
    """What the page is about, what must be believed, the numbers, and the checker's verdict."""
    yield Section("about", "What this is about", "", _pairs(_about(record, file)))
    item = '<li>{}<br><span class="who">{}</span></li>'
    believed = "".join(item.format(_sentence(text), escape(who_checks(text))) for text in _assumed(record))
    yield Section("assumptions", "Assumptions", _TO_BELIEVE, believed and f'<ol class="assumed">{believed}</ol>')
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in _facts(record))
    yield Section("numbers", "Numbers", "", f'<dl class="facts">{facts}</dl>')
    yield Section("checked", "Independent check", "", _checked(record, file, checked))


def who_checks(assumption: str) -> str:
    """Who can check an assumption, and how."""
    return next(who for about, who in _CHECKED_BY.items() if re.search(about, assumption))


def _about(record: Any, file: Any) -> dict[str, str]:
    """The system, the expert and the call of a record."""
    about, names = dict(record.about), Names.of(record)
    names = names._replace(actions=names.actions or getattr(record, "action_names", ()))
    constant, domain, count = (getattr(record, name, None) for name in ("expert", "domain", "n_actions"))
    if constant is not None:
        about["expert"] = f"{names.action(constant)}, always"
    elif "expert" not in about and isinstance(record, Answer):
        about["expert"] = "depends on the state"
    if not record.about:
        about["call"] = "not kept: the record is of an earlier version, or was made in parts"
    each = enumerate(names.actions or [""] * (count or 0))
    about["actions"] = ", ".join(f"{number} {name}".rstrip() for number, name in each)
    if domain is not None:
        sides = zip(names.coordinates or [""] * len(domain), domain, strict=True)
        about["states"] = ", ".join(f"{name} [{low:g}, {high:g}]".lstrip() for name, (low, high) in sides)
    seed = getattr(getattr(record, "stats", record), "seed", None)
    about["seed"] = "" if seed is None else str(seed)
    about["file"] = _file(Path(file)) if file else ""
    return {name: about[name] for name in _ABOUT if about.get(name)}


def _checked(record: Any, file: Any, is_asked: bool) -> str:
    """The verdict of the independent checker, if it was asked."""
    if _claim_of(record) is None:
        return ""
    if not is_asked:
        name = Path(file).name if file else "FILE.npz"
        return f"<p>Not run for this page: {_command(f'certirl-check {name}')} does it.</p>"
    verdict, by = check(file or record), f"certirl_check {_version('certirl')}, which shares no code with certirl"
    first, *more = [verdict.statement] if verdict.verdict == "confirmed" else verdict.reasons
    lines = {name: _minus(text) for name, text in verdict.lines}
    words = f"<p><strong>{escape(verdict.verdict.capitalize())}</strong>: {escape(first)}.</p>{_items(more)}"
    return f"{words}<p>Derived again from the stored sums by {escape(by)}.</p>{_pairs(lines)}"


def _command(text: str) -> str:
    return f"<code>{escape(text)}</code>"


# Sections ------------------------------------------------------------------------------------------------------------


def _sections(record: Any, figures: _Figures, coverage: Coverage | None, file: Any) -> Iterable[Section]:
    """All parts of the page in order; those without a body are left out."""
    if isinstance(record, SoftSolution):
        yield from _soft_sections(record, figures, coverage, file)
        return
    solution = record if isinstance(record, Solution) else None
    proof, names = _proof_of(record), Names.of(record)
    if solution is not None:
        yield Section("findings", "Findings", "", _findings(solution))
    conflict = _witness(getattr(record, "witness", None), names, solution)
    if solution is None or solution.status != "certified":
        yield Section("conflict", "Conflict", *conflict)
    if solution is not None and solution.reward is not None:
        lead = "R(s), and V(s), the expert's value under it."
        if solution.status == "infeasible":
            lead += " No reward of the class explains the expert; this one is the best fit."
        yield Section("reward", "Reward and value", lead, _reward(solution, figures))
    yield Section("margins", "Margins", *_margins(solution, proof, figures, names))
    if proof is not None and proof.losses:
        what = "The estimate, what the errors can take away from it at most, and what remains."
        yield Section("budget", "Loss budget", what, _budget(proof, figures))
    if solution is not None:
        yield Section("data", "Data", "", _data(solution, figures, names, coverage))
    if proof is not None and proof.spending:
        lead = (
            f"The probability that the proof is false is at most δ = {proof.delta:g}; attempts not made are included."
        )
        yield Section("delta", "Samples and δ", lead, _spending(proof, figures, solution))
    if solution is None:
        yield Section("print", "The whole print", "", _code(str(record), "wrap"))
    else:
        if solution.reward is not None:
            yield Section("formula", "Formula and code", _standing(solution), _formula(solution.reward, names))
        yield Section("diagnostics", "Details", "", _diagnostics(solution))
    yield Section("reproduce", "Reproduce", "" if solution is None else _KEPT, _reproduce(record, proof, file))


def _soft_sections(
    solution: SoftSolution, figures: _Figures, coverage: Coverage | None, file: Any
) -> Iterable[Section]:
    """The parts of a page about a soft expert."""
    names, likelihood = Names.of(solution), solution.likelihood
    yield Section("findings", "Findings", "", _findings(solution))
    lead = "The rewards of the actions in units of the noise, and how likely they make each action."
    if solution.reference is not None:
        lead += f" That of {names.action(solution.reference)} is given."
    yield Section("reward", "Rewards", lead, figures.drawn({"": charts.soft_charts(solution)}))
    lead = "The mean log-likelihood of a decision, and whether more than these models say is in the decisions."
    models = {"constant probabilities": likelihood.constant, "free log-odds": likelihood.free}
    rows = [(name, f"{value:.5f}") for name, value in (models | {"the rewards": likelihood.reward}).items()]
    tests = [(test.what, f"{test.statistic:.3g}", str(test.freedom), f"{test.chance:.2g}") for test in solution.tests]
    body = _table(["model", "per decision"], rows, f"{likelihood.decisions:,} decisions")
    body += _table(["what might be missing", "χ²", "degrees of freedom", "p"], tests, "Tests")
    groups = [[f"{mean:.4f}", f"{share:.4f}", f"{int(count):,}"] for mean, share, count in solution.calibration.T]
    body += _table(["predicted", "taken", "number"], groups, "Probabilities of held-out decisions")
    yield Section("fit", "The expert's decisions", lead, body)
    counts = [[names.action(action), f"{count:,}"] for action, count in enumerate(solution.counts)]
    drawn = figures.drawn({"transitions": charts.coverage_charts(coverage)}) if coverage is not None else ""
    rests = _items(solution.log_notes)
    yield Section("data", "Data", "", drawn + _table(["action", "transitions"], counts, "Transitions") + rests)
    if solution.proof is not None:
        rows = [(name, f"{part:.3g}") for name, part in solution.proof.spending.items()]
        lead = f"The probability that the band is false is at most δ = {solution.proof.delta:g}."
        yield Section("delta", "δ", lead, _table(["part", "δ"], rows, "Parts of δ"))
    yield Section("formula", "Formula and code", _standing(solution), _formula(solution.reward, names))
    yield Section("print", "The whole print", "", _code(str(solution), "wrap"))
    yield Section("reproduce", "Reproduce", _KEPT, _reproduce(solution, None, file))


def _soft_facts(solution: SoftSolution) -> Iterable[tuple[str, str]]:
    """The numbers at the top of a page about a soft expert."""
    yield "decisions", f"{solution.likelihood.decisions:,}"
    yield "transitions", f"{sum(solution.counts):,}"
    yield "standard error, median", f"{solution.median_error:.2g}"
    if solution.likelihood.share < 1:
        yield "explained of the decisions", f"{solution.likelihood.share:.1%}"
    if solution.proof is not None and solution.proof.holds:
        yield "probability", f"at least {chance(solution.proof.delta)}"
        yield "band, median half-width", f"{solution.proof.half_width:.2g}"
    yield "discount γ", f"{solution.discount:g}"


def _facts(record: Any) -> Iterable[tuple[str, str]]:
    """The numbers at the top of the page."""
    if isinstance(record, SoftSolution):
        yield from _soft_facts(record)
        return
    solution, proof = record if isinstance(record, Solution) else None, _proof_of(record)
    holds, margin = proof is not None and proof.holds, getattr(proof, "margin", inf)
    is_random = proof is not None and proof.delta > 0
    is_bounded = is_random and not isinstance(proof, Refutation) and 0 < proof.spare < inf
    if proof is not None and not is_random:
        yield "probability of error", "0"
        yield "cells decided", proof.share_in_words
    elif proof is not None and holds:
        yield "probability", f"at least {chance(proof.delta)}"
    if is_bounded:
        condition = "proved" if holds else "if the tail is zero"
        yield f"margin, {condition}", f"at least {charts.number(rounded_down(margin), 3)}"
    elif solution is not None and isfinite(solution.margin) and solution.stats.objective:
        yield "margin, estimated", charts.number(solution.margin, 3)
    if proof is not None and proof.bounds_regret:
        yield "regret, of the value's span", f"at most {percent_up(proof.relative_regret)}"
    if solution is not None:
        kind = "states, every action at each" if solution.stats.noiseless else "transitions per action"
        yield "discount γ", f"{solution.discount:g}"
        yield (kind, _counted(solution)) if solution.samples else ("data", "exact operators")
    elif proof is not None and not is_random:
        yield "discount γ", f"{proof.discount:g}"
        yield "cells", proof.cells_in_words
    elif proof is not None:
        yield proof.rows_in_words, f"{proof.samples:,}"


def _counted(solution: Solution) -> str:
    """Transitions per action, and how many the most frequent action has if they are not equally many."""
    most = max(solution.stats.counts, default=solution.samples)
    return f"{solution.samples:,}" if most == solution.samples else f"{solution.samples:,} to {most:,}"


def _proof_of(record: Any) -> Any:
    """The certificate or refutation of a record; None if it has none."""
    return (record.certificate or record.refutation) if isinstance(record, Solution) else record


def _claim_of(record: Any) -> Any:
    """What the independent checker derives again: a proof, or a band; None if there is none."""
    return record.proof if isinstance(record, SoftSolution) else _proof_of(record)


def _findings(solution: Solution | SoftSolution) -> str:
    """Why the status is no better; what is proved, and a single finding, the verdict says."""
    is_proved = solution.status == "certified" or (
        isinstance(solution, Solution) and solution.status == "infeasible" and solution.refutation is not None
    )
    if is_proved or (len(solution.findings) == 1 and solution.reason in verdict_of(solution)):
        return ""
    lines = "".join(
        f'<li><span class="status">{escape(finding.status)}</span>{escape(finding.sentence)}</li>'
        for finding in solution.findings
    )
    return f'<ul class="plain">{lines}</ul>'


def _witness(witness: Witness | None, names: Names, solution: Solution | None) -> tuple[str, str]:
    """What comparisons cancel, and which."""
    if witness is None:
        return "", ""
    lead = "Comparisons that nearly cancel, for every value function of the class."
    if solution is not None:
        lead = (
            "Comparisons that cancel: no value function of the class makes the expert's action better in all of them."
        )
    order, d = np.argsort(-witness.weights, kind="stable")[:_MOST_ROWS], witness.states.shape[1]
    head = [*(names.coordinate(axis, d) for axis in range(d)), "the expert takes", "rather than", "weight"]
    rows = [
        [
            *map(charts.number, witness.states[row]),
            *(names.action(int(actions[row])) for actions in (witness.taken, witness.actions)),
            charts.number(witness.weights[row], 2),
        ]
        for row in order
    ]
    note = f"{len(rows)} of {len(witness)} comparisons, by weight"
    return lead, f"<p>{_sentence(str(witness))}</p>{_table(head, rows, note)}"


def _sentence(words: str) -> str:
    is_word = words[:2].isascii() and words[:2].replace(" ", "a").isalpha()  # s' and δ stay small
    return escape(f"{words[:1].upper() if is_word else words[:1]}{words[1:]}.")


def _reward(solution: Solution, figures: _Figures) -> str:
    assert solution.reward is not None
    value = figures.drawn({"value": charts.value_charts(solution)}) if _is_callable(solution.value) else ""
    value = f"<details><summary>The expert's value V(s)</summary>{value}</details>" if value else ""
    if not _is_callable(solution.reward):
        why = "features are functions, which a file does not keep"
        if solution.reward._forgotten:
            why = "a file does not keep which states are terminal"
        return (
            f"<p>The reward is not drawn: {why}. A report written by solution.report before saving shows it.</p>{value}"
        )
    pictures: dict[str, tuple[Picture, ...]] = {"reward": charts.reward_charts(solution)}
    if solution.path is not None:
        pictures["rewards of fewer and of more features"] = (charts.feature_path_chart(solution.path),)
        if solution.path.gains is not None:
            pictures["how much the expert determines"] = charts.range_charts(solution.ranges())
    return figures.drawn(pictures) + value


def _is_callable(function: Reward | None) -> bool:
    """Whether it can be evaluated: a reward of features that was read from a file cannot."""
    if function is None or function._forgotten:
        return False
    try:
        function(np.mean(function.domain, axis=1)[None])
    except ValueError:
        return False
    return True


def _margins(solution: Solution | None, proof: Any, figures: _Figures, names: Names) -> tuple[str, str]:
    """What the section is about; the estimated margins, and the pictures and lines of a certificate."""
    pictures, lead = dict[str, Sequence[Picture]](), "The advantage of the expert's action, estimated and at least."
    lines = dict[str, str]()
    if solution is not None and solution.reward is not None:
        lead, words = _ADVANTAGE, "estimated" if solution.stats.objective else "comparisons"
        pictures[words] = charts.margin_charts(solution)
    if proof is not None and not isinstance(proof, Refutation):
        lead = lead if proof.delta else _CELLS
        pictures[""] = charts.certificate_charts(proof, names=names)
        lines = {name: _minus(text) for name, text in proof.lines() if name != "assumed"}
    return lead, figures.drawn(pictures) + _pairs(lines)


def _minus(text: str) -> str:
    """A text with proper signs before negative numbers."""
    return re.sub(r"(?<![\w.-])-(?=[\d.])", "−", text)


def _budget(proof: Claim, figures: _Figures) -> str:
    body = figures.drawn({"": (charts.budget(proof),)})
    if isinstance(proof, Refutation):
        return f"<p>{escape(proof.statement)}.</p>{body}{_items(proof.lines()[:2])}"
    return f"{body}<p>{_sentence(proof.missing)}</p>" if proof.missing else body


def _data(solution: Solution, figures: _Figures, names: Names, coverage: Coverage | None) -> str:
    stats, lines = solution.stats, solution.stats.lines()
    counts = stats.counts * (solution.n_actions // max(len(stats.counts), 1))
    rows = [[names.action(action), f"{count:,}"] for action, count in enumerate(counts)]
    what = "states" if stats.noiseless else "transitions"
    body = _table(["action", what], rows, f"{what.capitalize()} of each action") if solution.samples else ""
    words = {"coverage": lines.get("coverage", ""), "terminal states": lines.get("terminal", "")}
    if "coverage" not in lines and coverage is None:
        words["coverage"] = (
            "not kept in a solution; for a log, report(path, coverage=certirl.diagnose.coverage(log)) draws it"
        )
    drawn = figures.drawn({"transitions": charts.coverage_charts(coverage)}) if coverage is not None else ""
    return f"{_pairs(words)}{drawn}{body}"


def _assumed(record: Any) -> list[str]:
    """What must be believed: first what was declared of the dynamics, in its own words."""
    proof = _claim_of(record)
    declared = [f"declared: {record.about[name]}" for name in ("tail", "dynamics") if name in record.about]
    if proof is not None:
        return [*declared, *proof.assumptions]
    if isinstance(record, SoftSolution):
        return [*declared, *record.assumed]
    return [*declared, *filter(None, record.stats.lines().get("assumed", "").split("; "))]


def _standing(answer: Answer) -> str:
    words = charts.standing(answer)
    return f"{words[:1].upper()}{words[1:]}."


def _spending(proof: Claim, figures: _Figures, solution: Solution | None) -> str:
    rows = [[name, charts.number(part, 3), f"{part / proof.delta:.1%}"] for name, part in proof.spending.items()]
    rounds = (charts.rounds_chart(solution),) if solution is not None and len(solution.stats.search) > 1 else ()
    return _table(["part", "δ", "share"], rows, "Parts of δ") + figures.drawn({"": rounds})


def _formula(reward: Reward, names: Names) -> str:
    """R for a person and R for a program; a reward with parts that are Python functions has no text of its own."""
    latex = reward.to_latex(terms=_MOST_TERMS, names=names.coordinates or None)
    lines = "".join(
        f'<p class="formula" tabindex="0" role="group" aria-label="Formula">{line}</p>' for line in mathml(latex)
    )
    written = f"{lines}<details><summary>The formula in LaTeX</summary>{_code(latex)}</details>"
    try:
        code = reward.to_python()
    except ValueError as problem:
        return f"{written}<p>There is no Python of this reward: {escape(str(problem))}.</p>"
    if len(code) > _LONGEST_CODE:
        return f"{written}<p>As Python: <code>solution.reward.to_python()</code>, {len(code):,} characters.</p>"
    heading = "Python, which needs NumPy alone"
    return f"{written}<details><summary>{heading}</summary>{_code(code)}</details>"


def _diagnostics(solution: Solution) -> str:
    printed = _code(str(solution), "wrap")
    elsewhere = ("assumed", "coverage", "terminal")
    lines = {name: text for name, text in solution.stats.lines().items() if name not in elsewhere}
    return f"{_pairs(lines)}<details><summary>The whole print</summary>{printed}</details>"


def _reproduce(record: Any, proof: Any, file: Any) -> str:
    versions = [f"{name} {_version(name)}" for name in ("certirl", "numpy", "scipy", "highspy", "clarabel")]
    settings = _settings(record, proof)
    settings["this report was written with"] = ", ".join([*versions, f"Python {platform.python_version()}"])
    name = Path(file).name if file else "FILE.npz"
    checked = [f"certirl check {name}    # derives the proof again, with code of its own"] if proof is not None else []
    commands = [f"certirl show {name}", *checked, f"certirl report {name} -o report.html"]
    return _pairs(settings) + _code("\n".join(commands))


def _settings(record: Any, proof: Any) -> dict[str, str]:
    settings = {}
    if isinstance(record, SoftSolution):
        settings = {"log-odds": str(record.odds.basis), "functions of effects": str(record.columns)}
    if isinstance(record, Solution):
        settings["functions of V"] = _each(component.basis for component in record.components)
        columns = "columns" if record.stats.objective else "functions of effects"
        settings[columns] = _each(component.columns for component in record.components)
        if len(record.components) > 1:
            named = [f"{component.name}: {list(component.coordinates)}" for component in record.components]
            settings["components"] = ", ".join(named)
        settings["program"] = record.stats.objective
    if proof is not None:
        settings |= {"δ": f"{proof.delta:g}"} | proof.declared
        tube = getattr(proof, "tube", None)
        settings["tube, half-width"] = f"{getattr(tube, 'allowed', tube):g}" if tube else ""
    return settings


def _each(parts: Iterable[Any]) -> str:
    """All that differ."""
    return "; ".join(dict.fromkeys(map(str, parts)))


def _file(path: Path) -> str:
    """The name of a file and, where it still is, what identifies its contents."""
    if not path.is_file():
        return path.name
    return f"{path.name}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
