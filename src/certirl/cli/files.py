"""The commands about data and saved files: coverage, moments, merge, show, report, export, check."""

from __future__ import annotations

import argparse
import webbrowser
from typing import Any

from certirl.cli import inputs
from certirl.cli import options as table
from certirl.cli.output import Answer, check_outputs, deliver
from certirl.cli.parsing import DONE, NOT_PROVED, UNDETERMINED, Verb
from certirl.data import moments
from certirl.data.formats import find_tables
from certirl.functions.reward import Reward
from certirl.ground import archive
from certirl.ground.work import place
from certirl.proof.certificate import Certificate
from certirl.solver.solution import load

VERDICTS = {"confirmed": DONE, "rejected": UNDETERMINED, "nothing claimed": NOT_PROVED}


def cover(options: argparse.Namespace) -> Answer:
    """Say where in the state space a log can support a statement, and where it cannot."""
    from certirl import plots
    from certirl.data.coverage import coverage

    check_outputs(options, find_tables(options.data))
    log = inputs.read_log(options)
    covered = coverage(log, basis=inputs.basis_of(options, len(log.domain)))
    return deliver(covered, options, draw=lambda path: plots.coverage(covered, path=path))


def measure_files(options: argparse.Namespace) -> Answer:
    """Sum up tables of any length into moments."""
    from certirl.data import tables

    check_outputs(options, find_tables(options.data))
    basis: Any = inputs.basis_of(options, inputs.columns_of(options).dimension)
    with place(options.workers, options.scheduler) as where:
        log = tables.stream(options.data, **inputs.reading(options))
        measured = moments.measure(log, basis=basis, columns=options.columns, progress=None, map=where)
    lines: list[Any] = [measured]
    if options.domain is None:
        lines += ["The domain was taken from the data; shards that are to be merged need the same --domain LOW HIGH."]
    return deliver(measured, options, lines=lines, label="Moments", hint="   (certirl solve and certirl merge read it)")


def merge_files(options: argparse.Namespace) -> Answer:
    """Add up moments of different data."""
    check_outputs(options, options.files)
    merged = moments.merge(map(moments.load, options.files))
    return deliver(merged, options, label="Moments")


def show(options: argparse.Namespace) -> Answer:
    """Print, and with --plot draw, a file that certirl saved."""
    check_outputs(options, [options.file])
    record: Any = load(options.file)
    if options.tube is not None:
        record = getattr(record, "certificate", record)
        if not isinstance(record, Certificate):
            raise ValueError(f"{options.file} holds no certificate: leave --tube out")
        record = record.with_tube(options.tube)
    if options.plot and not hasattr(record, "plot"):
        raise ValueError(f"there is no picture of {type(record).__name__}: leave --plot out")
    about = getattr(record, "about", {})
    return deliver(
        record, options, lines=[record, *(f"  {name:<8} {text}" for name, text in about.items() if name != "next")]
    )


def report_file(options: argparse.Namespace) -> Answer:
    """Write a page about a file that certirl saved."""
    from certirl.show import report

    target = archive.check_writable(options.output, report.SUFFIXES)
    record: Any = load(options.file)
    is_replaced = target.exists()
    words = {name: getattr(options, name) for name in ("title", "author", "date", "checked")}
    written = report.write(record, target, file=options.file, **words)
    verdict = report.verdict_of(record)
    print(f"{verdict}\nReport: {written}{' (replaced)' * is_replaced}")
    if options.open:
        webbrowser.open(written.resolve().as_uri())
    return Answer({"type": "Report", "path": str(written), "verdict": verdict})


def export_file(options: argparse.Namespace) -> Answer:
    """Write the reward of a file, or its value function, for other programs."""
    record: Any = load(options.file)
    name = "value" if options.value else "reward"
    function = record if isinstance(record, Reward) and not options.value else getattr(record, name, None)
    if not isinstance(function, Reward):
        raise ValueError(f"{options.file} holds no {name} that can be exported")
    written = function.export(options.output)
    print(f"{name.capitalize()}: {written}")
    return Answer({"type": "Export", "path": str(written)})


def check_file(options: argparse.Namespace) -> Answer:
    """Derive a saved certificate again, with other arithmetic."""
    from certirl import check

    verdict = check(options.file)
    print(verdict)
    return Answer(verdict, VERDICTS[verdict.verdict])


VERBS = (
    Verb(
        "show",
        "print and draw what certirl saved",
        "FILE [options]",
        [
            ("certirl show reward.npz --plot again.png", "a solution, a certificate, a reward, moments"),
            ("certirl show reward.npz --tube 0.3", "what the same data prove outside a wider tube"),
        ],
        {
            "": {**table.SAVED, "--tube WIDTH": "what the file's certificate proves outside another tube, same δ"},
            "output": table.PLOT,
        },
        show,
    ),
    Verb(
        "report",
        "write a page about what certirl saved, for any browser",
        "FILE [options]",
        [("certirl report reward.npz -o report.html", "verdict, pictures, assumptions, formula; works offline")],
        {
            "": table.SAVED,
            "output": {
                "-o --output PAGE": "where the page goes (default report.html)",
                "--title TEXT": "of the page",
                "--author NAME": "who wrote it",
                "--date DATE": "of the page, as 2026-12-31 (default today)",
                "--checked": "derive the proof again, independently, and print the verdict",
                "--open": "open it in the browser",
            },
        },
        report_file,
        defaults={"output": "report.html"},
    ),
    Verb(
        "export",
        "write a saved reward as Python, LaTeX, JSON or ONNX",
        "FILE [options]",
        [
            ("certirl export reward.npz -o reward.py", "a module that needs NumPy alone"),
            ("certirl export reward.npz --value -o value.onnx", "the value function, for other runtimes"),
        ],
        {
            "": {**table.SAVED, "--value": "the expert's value function in place of the reward"},
            "output": {"-o --output FILE": ".py, .tex, .json or .onnx (default reward.py)"},
        },
        export_file,
        defaults={"output": "reward.py"},
    ),
    Verb(
        "check",
        "prove a saved certificate again, independently",
        "FILE [options]",
        [("certirl check reward.npz", "confirmed, rejected, or nothing claimed")],
        {"": table.SAVED},
        check_file,
        (NOT_PROVED, UNDETERMINED),
    ),
    Verb(
        "coverage",
        "say where in the state space a log has enough data",
        "DATA … [options]",
        [
            ("certirl coverage log.csv --domain 0 10", "shares of the box in which every action was tried"),
            ("certirl coverage log.csv --domain 0 10 --plot seen.png", "with a picture"),
        ],
        {
            **table.log(),
            "functions": table.basis("moderate ones, for the number of coordinates"),
            "output": table.PLOT,
        },
        cover,
    ),
    Verb(
        "moments",
        "sum up tables of any length, for solve and merge",
        "DATA … [options]",
        [('certirl moments "*.parquet" --domain -1 1 --size 11 -o all.npz', "in batches, whatever their length")],
        {
            **table.log(),
            "functions": {
                **table.basis("legendre"),
                "--columns N": "functions of the state (default: as many)",
            },
            **table.result("sums go (default moments.npz)"),
            **table.THREADS,
        },
        measure_files,
        defaults={"basis": "legendre", "output": "moments.npz"},
    ),
    Verb(
        "merge",
        "add up moments of different data",
        "FILE … [options]",
        [("certirl merge early.npz late.npz -o all.npz", "as if all were measured at once")],
        {
            "": {"files FILE …": "what certirl moments wrote (.npz)"},
            **table.result("sums go (default merged.npz)"),
        },
        merge_files,
        defaults={"output": "merged.npz"},
    ),
)
