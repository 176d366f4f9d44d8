"""Mutants of `proof`, `fit` and `checker`: is a small mistake in the source seen by a test?

    python tests/mutants.py --count 150 --seed 2 --processes 4 --out mutants.jsonl
    python tests/mutants.py --out mutants.jsonl --report                              # the share killed, and what lives

Each mutant is one change of one expression: a comparison turned round, + for −, a term left out, a factor 2, min for
max, … It becomes the code of its function in a fork of a process that has collected the tests (tests/traced.py); those
that run this line are run, the cheapest first, until one fails. Which mutants are made depends on the seed and the
source alone. Results are added to a file, and what is in that file is not run again. Which lines each test runs is
measured once and kept in a file until the source or the test changes. Needs Python 3.12.

A mutant that no test runs lives. It is "endless", which counts as killed, if one test takes five times and 30 s longer
than without the change, and "late", which does not, if all its tests together take longer than `--seconds`; all this is
time of the processor.

Left alone are words, checks of the input, constants and defaults, allowances for rounding, which are larger than need
be on purpose, and what may be anything: forecasts, choices that are made on training data, and the steps of iterations
that end where they end.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import math
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("proof", "fit", "checker")
FOLDERS = {room: f"certirl/{room}" for room in ROOMS} | {"checker": "certirl_check"}
# Tests that see something of these rooms: files and folders.
TESTS = [*ROOMS, "properties", "solver", "environments/test_rewarding.py", "environments/test_planning.py"]
TESTS += [f"claims/test_{name}.py" for name in ("contract", "margins", "attacks", "cases", "examples")]
# What is said in words or drawn is compared with pages and reports, which are not run here.
WORDS = {
    *("__str__", "_headline", "lines", "statement", "claim", "plot", "report", "trusted", "word"),
    *("remedy", "_undecided", "_rewards", "share_in_words", "_where", "assumption", "summary"),
    *("error_in_words", "tail_in_words", "tail_in_numbers", "words"),
}
ROUNDED = {
    *("short", "at_least", "at_most", "rounded", "rounded_down", "rounded_up", "describe", "lru_cache")
}  # prints
LEFT = {"proof/cost.py", "proof/training.py", "proof/value_cones.py"}  # chosen on training data
FREE = {
    *("_descend", "_newton", "_best_length"),  # iterations
    *(
        "_expected_length",
        "Expected",
        "expected_bands",
        "grown",
        "likely",
        "best_slope",
        "best_rate",
        "samples_needed",
        "forecast",
        "_divided",
    ),
    *("noise_ratio", "stored", "_check_different"),  # how to work
    *("rounding", "floating", "_cosine_below"),  # allowances
    "edges",  # of cells: any would be sound
}
ALLOWANCES = {
    "room",
    "more",
    "ALIKE",
    "_SLACK",
    "U",
    "MORE",
    "_MORE",
    "TIGHT",
    "_TINY",
    "_WIDER",
    "ERROR",
    "RELATIVE",
    "_ROUNDING",
    "_EVALUATION",
    "EPS",
}
TINY = set()  # of the module that is looked at
TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
OPPOSITE = {"min": "max", "minimum": "maximum", "argmin": "argmax", "floor": "ceil", "any": "all"}
OPPOSITE |= {value: key for key, value in OPPOSITE.items()}


def tiny_names(module):
    """The constants of a module that are tiny numbers, but probabilities."""
    given = (one for one in module.body if isinstance(one, ast.Assign) and is_allowance(one.value))
    return {one.targets[0].id for one in given if isinstance(one.targets[0], ast.Name)} - {"MISTAKEN"}


def is_allowance(node):
    """Whether an expression is an allowance for rounding: a tiny number, or a product with one."""
    if isinstance(node, ast.Constant):
        return type(node.value) is float and 0 < abs(node.value) < 1e-5
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.UnaryOp):  # 2.0**-53
        return ast.unparse(node.left) in ("2", "2.0") and getattr(node.right.operand, "value", 0) >= 20
    if isinstance(node, ast.BinOp):
        one = isinstance(node.left, ast.Constant) and node.left.value == 1  # 1 + 1e-14
        parts = [node.left, node.right] if isinstance(node.op, ast.Mult | ast.Div | ast.Pow) else [node.right] * one
        return any(map(is_allowance, parts))
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ALLOWANCES | TINY or name.endswith(("_error", "rounding", "slack", "floating"))


def changes(node):
    """The changes of one expression: what is changed, and the new expression."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
        new = copy.deepcopy(node)
        new.ops = [TURNED[type(node.ops[0])]()]
        yield "comparison turned", new
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED and not is_allowance(node):
        new = copy.deepcopy(node)
        new.op = SWAPPED[type(node.op)]()
        if isinstance(node.op, ast.Mult | ast.Div):
            yield "operation swapped", new
            yield "factor 2", ast.BinOp(ast.Constant(2), ast.Mult(), node)
        elif not (is_allowance(node.left) or is_allowance(node.right)):
            yield "operation swapped", new
            yield "second term left out", node.left
            if isinstance(node.op, ast.Add):
                yield "first term left out", node.right
    if isinstance(node, ast.Constant) and type(node.value) in (int, float) and not is_allowance(node):
        yield "constant", ast.Constant(2 * node.value if node.value else 1)
    if isinstance(node, ast.BoolOp):
        new = copy.deepcopy(node)
        new.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield "and, or", new
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign left out", node.operand
    if isinstance(node, ast.Name) and node.id in OPPOSITE and isinstance(node.ctx, ast.Load):
        yield "opposite", ast.Name(OPPOSITE[node.id], ast.Load())
    if isinstance(node, ast.Attribute) and node.attr in OPPOSITE and isinstance(node.ctx, ast.Load):
        new = copy.deepcopy(node)
        new.attr = OPPOSITE[node.attr]
        yield "opposite", new


class _Places(ast.NodeVisitor):
    """The expressions of a module that are computed with, the functions they are in, and the lines that run them."""

    def __init__(self):
        self.found, self.inside, self.line = [], [], 0

    def visit_FunctionDef(self, node):
        if node.name not in WORDS | FREE:
            self.inside.append(node)
            for statement in node.body:
                self.visit(statement)
            self.inside.pop()

    visit_ClassDef = visit_FunctionDef

    def visit_AnnAssign(self, node):
        if node.value is not None and self.inside:
            self.visit(node.value)

    def _leave(self, node):
        """Neither messages nor what reads an index are changed."""

    visit_Raise = visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Assert = _leave

    def visit_If(self, node):
        if isinstance(node.body[0], ast.Raise):  # a check of the input: its table of bad values is elsewhere
            return
        self.generic_visit(node)

    def visit_Subscript(self, node):
        self.visit(node.value)

    def visit_keyword(self, node):
        if node.arg not in ("axis", "dtype", "ndmin", "maxsize", "most", "least", "meaning", "name", "like", "places"):
            self.visit(node.value)

    def visit_Call(self, node):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in ROUNDED:
            return
        if name == "reshape":  # any negative number stands for what is left
            self.visit(node.func)
            return
        self.generic_visit(node)

    def visit_BinOp(self, node):
        words = any(isinstance(part, ast.JoinedStr) for part in ast.walk(node))
        if not (words or is_allowance(node)):
            self.generic_visit(node)

    def generic_visit(self, node):
        if isinstance(node, ast.stmt):
            self.line = node.lineno
        computed = self.inside and not isinstance(self.inside[-1], ast.ClassDef)
        if isinstance(node, ast.expr) and computed and next(changes(node), None):
            self.found.append((node, ".".join(one.name for one in self.inside), (self.line, node.end_lineno + 1)))
        super().generic_visit(node)


def mutants(count, seed):
    """So many changes, in equal numbers of each room, and no two of the same expression."""
    each = []
    for place, room in enumerate(ROOMS):
        everything = []
        for file in sorted((ROOT / "src" / FOLDERS[room]).glob("*.py")):
            if f"{room}/{file.name}" in LEFT:
                continue
            visitor, module = _Places(), ast.parse(file.read_text())
            TINY.clear()
            TINY.update(tiny_names(module))
            visitor.visit(module)
            everything += [(file, *found, *change) for found in visitor.found for change in changes(found[0])]
        generator, taken = random.Random(f"{seed} {room}"), set()
        generator.shuffle(everything)
        for file, node, function, lines, kind, new in everything:
            where = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            if (file, where) not in taken and len(taken) < (count + place) // len(ROOMS):
                taken.add((file, where))
                name, old = f"{FOLDERS[room]}/{file.name}", ast.get_source_segment(file.read_text(), node)
                one = {"file": name, "where": where, "function": function, "kind": kind, "old": old}
                one |= {"new": ast.unparse(new), "lines": lines}
                each.append(one | {"id": f"{name}:{':'.join(map(str, where))}:{kind}"})
    random.Random(seed).shuffle(each)
    return each


def changed(text, mutant):
    """The source with the change of a mutant: the expression is replaced where it stands, on as many lines."""
    lines = text.encode().splitlines(keepends=True)
    first, start, last, end = mutant["where"]
    before = b"".join(lines[: first - 1]) + lines[first - 1][:start]
    after, lines_more = lines[last - 1][end:] + b"".join(lines[last:]), "\n" * (last - first)
    return (before + f"({mutant['new']}{lines_more})".encode() + after).decode()


def _pytest(files, *more):
    command = [sys.executable, "-m", "pytest", "-q", "--capture=no", "--tb=line", "-m", "not slow", *more, *files]
    command += [word for name in ("traced", "no:cacheprovider", "no:xdist") for word in ("-p", name)]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLCONFIGDIR": folder}
        paths = [str(ROOT / "src"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        settings["PYTHONPATH"] = os.pathsep.join(paths)
        command.append(f"--basetemp={folder}/files")
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, stdout=subprocess.DEVNULL).returncode


def _trace(files):
    with tempfile.TemporaryDirectory() as folder:
        code = _pytest(files, f"--lines-to={folder}/lines")
        return json.loads(Path(folder, "lines").read_text()), code


def traced(path, processes):
    """The tests, each with its seconds and the lines that it runs; those of new or changed files are run for it."""
    source = b"".join(
        file.read_bytes() for folder in FOLDERS.values() for file in sorted((ROOT / "src" / folder).glob("*.py"))
    )
    asked = [ROOT / "tests" / name for name in TESTS]
    files = [file for one in asked for file in (sorted(one.glob("test_*.py")) if one.is_dir() else [one])]
    now = {str(one.relative_to(ROOT)): hashlib.sha256(source + one.read_bytes()).hexdigest() for one in files}
    known = json.loads(path.read_text()) if path.exists() else {}
    known = {name: one for name, one in known.items() if one["of"] == now.get(name)}
    missing = [name for name in now if name not in known]
    known |= {name: {"of": now[name], "tests": {}} for name in missing}
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for lines, code in pool.imap_unordered(_trace, filter(None, (missing[i::processes] for i in range(processes)))):
            print(f"{len(lines)} tests pass; pytest ended with {code}", flush=True)
            for test, one in lines.items():
                known[test.split("::")[0]]["tests"][test] = one
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(known))
    return {test: one for each in known.values() for test, one in each["tests"].items()}


def selected(mutant, tests):
    """The tests that run a mutant, the cheapest first, and how long each may take.

    Those of the file named after the module, and those that compare the checker with the library, are put before others
    of 16 times their cost. Tests of one file and about the same cost stay together, for the sake of what they share.
    """
    lines, first, found = range(*mutant["lines"]), (f"/test_{Path(mutant['file']).stem}", "/test_derived"), []
    for name, test in tests.items():
        if any(line in lines for line in test["lines"].get(mutant["file"], ())):
            cost, file = test["seconds"], name.split("::")[0]
            found.append((round(math.log2(cost)) - 4 * any(one in file for one in first), file, cost, name))
    return {name: 30 + 5 * cost for _, _, cost, name in sorted(found)}


def run(mutants, tests, processes, seconds, out):
    """Run the tests of mutants, whose results are added to a file."""
    tasks = []
    for mutant in mutants:
        text = (ROOT / "src" / mutant["file"]).read_text()
        tasks.append(mutant | {"texts": [text, changed(text, mutant)], "tests": selected(mutant, tests)})
    files = sorted({name.split("::")[0] for task in tasks for name in task["tests"]})
    with tempfile.TemporaryDirectory() as folder:
        asked = {"mutants": tasks, "processes": processes, "seconds": seconds, "out": str(out.resolve())}
        Path(folder, "asked.json").write_text(json.dumps(asked))
        _pytest(files, f"--mutants={folder}/asked.json")


def results(path):
    """What is in the file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(found):
    """The share of mutants that a test kills, by room, and those that live or are not decided."""
    counted = [one for one in found if one["result"] not in ("not Python", "no result")]
    for room in (*ROOMS, ""):
        mine = [one["result"] for one in counted if one["file"].startswith(FOLDERS.get(room, ""))]
        endless, dead = mine.count("endless"), mine.count("endless") + mine.count("killed")
        share = f"{dead} of {len(mine)} killed ({dead / max(len(mine), 1):.0%})"
        print(f"{room or 'together'}: {share}, {endless} of them endless; {mine.count('late')} late")
    for one in counted:
        if one["result"] in ("lives", "late"):
            old, new = (" ".join(one[name].split()) for name in ("old", "new"))
            place = f"{one['file']}:{one['where'][0]} {one['function']}, {one['kind']}"
            print(f"  {one['result']} after {one['tests']} tests: {place}: {old} → {new}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150, help="mutants, divided among the rooms")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="results, a line of JSON for each mutant")
    parser.add_argument("--lines", type=Path, default=ROOT / "build/lines.json", help="which lines each test runs")
    parser.add_argument("--seconds", type=int, default=300, help="for the tests of one mutant")
    parser.add_argument("--again", action="store_true", help="run those again that were not killed")
    parser.add_argument("--report", action="store_true", help="print the results and run nothing")
    asked = parser.parse_args()
    before = results(asked.out)
    if asked.report:
        return report(before)
    if asked.again:
        before = [one for one in before if one["result"] not in ("lives", "late")]
        asked.out.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in before))
    known, tests = {one["id"] for one in before}, traced(asked.lines, asked.processes)
    waiting = [one for one in mutants(asked.count, asked.seed) if one["id"] not in known]
    run(waiting, tests, asked.processes, asked.seconds, asked.out)
    report(results(asked.out))


if __name__ == "__main__":
    main()
