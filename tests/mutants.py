"""Mutants of `proof`, `fit` and `checker`: is a small mistake in the source seen by a test?

    python tests/mutants.py --count 200 --processes 16 --out mutants.jsonl            # all of them
    python tests/mutants.py --count 200 --slice 1/4 --out mutants.1.jsonl             # a quarter
    python tests/mutants.py --out mutants.jsonl --report                              # the share killed, and what lives

Each mutant is one change of one expression: a comparison turned round, + for −, a term left out, a factor 2, min for
max, … It is written to a copy of the package, which the tests of its room are run on until one fails. Which mutants are
made depends on the seed and the source alone. Results are added to a file, and what is in that file is not run again.

Left alone are words, checks of the input, allowances for rounding, which are larger than need be on purpose, and what
may be anything: forecasts, choices that are made on training data, and the steps of iterations that end where they end.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("proof", "fit", "checker")
# Tests of each room, those first that see most in the least time.
TESTS = {
    "proof": """
        claims/test_contract.py proof checker/test_check.py checker/test_cell_files.py solver/test_proved.py properties
        fit/test_components.py claims/test_margins.py claims/test_attacks.py solver/test_status.py
        """,
    "fit": """
        fit properties solver claims/test_contract.py environments/test_rewarding.py functions/test_boxes.py
        proof/test_refute.py paper claims/test_tabular.py environments/test_planning.py
        """,
    "checker": """
        checker/test_check.py checker/test_cell_files.py claims/test_contract.py checker proof/test_known_noise.py
        proof/test_cell_proofs.py properties proof solver/test_proved.py
        """,
}
# What is said in words or drawn is compared with pages and reports, which are not run here.
WORDS = {
    *("__str__", "__repr__", "_headline", "lines", "statement", "claim", "plot", "report", "said", "trusted", "word"),
    *("remedy", "_undecided", "_rewards", "share_in_words", "_where", "describe", "assumption", "summary"),
    *("error_in_words", "tail_in_words", "tail_in_numbers"),
}
ROUNDED = [
    "short",
    "at_least",
    "at_most",
    "rounded",
    "rounded_down",
    "rounded_up",
    "describe",
    "lru_cache",
]  # what prints call
LEFT = {"proof/cost.py", "proof/training.py"}
FREE = {
    *("_descend", "_newton", "_best_length"),  # iterations
    *(
        "_expected",
        "_forecast_sizes",
        "best_scale",
        "best_slope",
        "best_rate",
        "samples_needed",
        "forecast",
        "_divided",
    ),
    *("noise_ratio", "stored", "_check_different"),  # how to work
}
ALLOWANCES = {"U", "MORE", "_MORE", "TIGHT", "_TINY", "_WIDER", "ERROR", "RELATIVE", "_ROUNDING", "_EVALUATION", "EPS"}
TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
OPPOSITE = {"min": "max", "minimum": "maximum", "argmin": "argmax", "floor": "ceil", "any": "all", "below": "above"}
OPPOSITE |= {value: key for key, value in OPPOSITE.items()}


def is_allowance(node):
    """Whether an expression is an allowance for rounding: a tiny number, or a product with one."""
    if isinstance(node, ast.Constant):
        return type(node.value) is float and 0 < abs(node.value) < 1e-5
    if isinstance(node, ast.BinOp):
        one = isinstance(node.left, ast.Constant) and node.left.value == 1  # 1 + 1e-14
        parts = [node.left, node.right] if isinstance(node.op, ast.Mult | ast.Div | ast.Pow) else [node.right] * one
        return any(map(is_allowance, parts))
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ALLOWANCES or name.endswith(("_error", "rounding", "slack", "floating"))


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
    """The expressions of a module that are computed with, and the functions that they are in."""

    def __init__(self):
        self.found, self.inside = [], []

    def visit_FunctionDef(self, node):
        if node.name in WORDS or node.name in FREE:
            return
        self.inside.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.inside.pop()

    def visit_ClassDef(self, node):
        if node.name in FREE:
            return
        self.inside.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.inside.pop()

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
        self.generic_visit(node)

    def visit_BinOp(self, node):
        if not is_allowance(node):
            self.generic_visit(node)

    def generic_visit(self, node):
        if isinstance(node, ast.expr) and self.inside and next(changes(node), None):
            self.found.append((node, ".".join(self.inside)))
        super().generic_visit(node)


def mutants(count, seed):
    """So many changes, in equal numbers of each room, and no two of the same expression."""
    chosen = []
    for place, room in enumerate(ROOMS):
        everything = []
        for file in sorted((ROOT / "src/certirl" / room).glob("*.py")):
            if f"{room}/{file.name}" in LEFT:
                continue
            text = file.read_text()
            visitor = _Places()
            visitor.visit(ast.parse(text))
            for node, function in visitor.found:
                for kind, new in changes(node):
                    where = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
                    old = ast.get_source_segment(text, node)
                    everything.append((f"{room}/{file.name}", where, function, kind, old, ast.unparse(new)))
        generator, taken = random.Random(f"{seed} {room}"), set()
        generator.shuffle(everything)
        for one in everything:
            if one[:2] not in taken and len(taken) < (count + place) // len(ROOMS):
                taken.add(one[:2])
                chosen.append(one)
    names = ("file", "where", "function", "kind", "old", "new")
    each = [dict(zip(names, one, strict=True)) for one in chosen]
    for one in each:
        one["id"] = f"{one['file']}:{':'.join(map(str, one['where']))}:{one['kind']}"
    random.Random(seed).shuffle(each)
    return each


def changed(text, mutant):
    """The source with the change of a mutant: the expression is replaced where it stands, in brackets."""
    lines = text.encode().splitlines(keepends=True)
    first, start, last, end = mutant["where"]
    before = b"".join(lines[: first - 1]) + lines[first - 1][:start]
    after = lines[last - 1][end:] + b"".join(lines[last:])
    return (before + f"({mutant['new']})".encode() + after).decode()


def _selected(room, file):
    """The modules to run, the one named after the file first."""
    named = [path for path in sorted((ROOT / "tests").rglob(f"test_{Path(file).stem}*.py")) if path.parent.name == room]
    modules = list(named)
    for name in TESTS[room].split():
        path = ROOT / "tests" / name
        modules += sorted(path.glob("test_*.py")) if path.is_dir() else [path]
    return [str(path.relative_to(ROOT)) for path in dict.fromkeys(modules) if path.exists()]


def _pytest(source, modules, folder, seconds, *more):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--tb=line",
    ]
    command += [f"--basetemp={folder}/files", *more, *modules]
    threads = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLCONFIGDIR": folder,
    }
    paths = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **threads, "PYTHONPATH": paths}, timeout=seconds, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


def _failures(output):
    lines = (line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return [line.split(" ", 1)[1].split(" - ")[0] for line in lines]


def unharmed(room, seconds):
    """The modules of a room that can be run here, and the tests of them that fail without any change."""
    if not seconds:
        return []
    with tempfile.TemporaryDirectory() as folder:
        modules = _selected(room, "")
        code, output = _pytest(ROOT / "src", modules, folder, seconds, "--continue-on-collection-errors")
    if code is None:
        raise SystemExit(f"the tests of {room} take more than {seconds} s without any change: raise --baseline")
    return _failures(output)


def run(task):
    """Whether a test fails on this mutant: "killed", "lives", "late" past the limit of time, or "not Python"."""
    mutant, broken, seconds = task
    began, room = time.monotonic(), mutant["file"].split("/")[0]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src/certirl", f"{folder}/certirl", ignore=shutil.ignore_patterns("__pycache__"))
        file = Path(folder, "certirl", mutant["file"])
        text = changed(file.read_text(), mutant)
        try:
            compile(text, str(file), "exec")
        except SyntaxError:
            return mutant | {"result": "not Python", "by": "", "seconds": 0.0}
        file.write_text(text)
        ignored = [name for name in broken if "::" not in name]
        modules = [name for name in _selected(room, mutant["file"]) if name not in ignored]
        more = [f"--deselect={name}" for name in broken if "::" in name]
        code, output = _pytest(folder, modules, folder, seconds, "-x", *more)
    result = {None: "late", 0: "lives"}.get(code, "killed")
    by = (_failures(output) or [output[-300:]])[0] if result == "killed" else ""
    return mutant | {"result": result, "by": by, "seconds": round(time.monotonic() - began, 1)}


def results(path):
    """What is in the file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(found):
    """The share of mutants that a test kills, by room, and those that live."""
    counted = [one for one in found if one["result"] != "not Python"]
    for room in (*ROOMS, ""):
        mine = [one for one in counted if one["file"].startswith(room)]
        dead = sum(one["result"] != "lives" for one in mine)
        print(f"{room or 'together'}: {dead} of {len(mine)} killed ({dead / max(len(mine), 1):.0%})")
    for one in counted:
        if one["result"] == "lives":
            old, new = (" ".join(one[name].split()) for name in ("old", "new"))
            print(f"  {one['file']}:{one['where'][0]} {one['function']}, {one['kind']}: {old} → {new}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mutants, divided among the rooms")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--slice", default="0/1", help="i/n: every n-th mutant from the i-th on")
    parser.add_argument("--out", type=Path, required=True, help="results, a line of JSON for each mutant")
    parser.add_argument("--seconds", type=float, default=600, help="for the tests of one mutant")
    parser.add_argument(
        "--baseline", type=float, default=1500, help="seconds for the tests of a room without any change"
    )
    parser.add_argument("--again", action="store_true", help="run those again that lived")
    parser.add_argument("--report", action="store_true", help="print the results and run nothing")
    asked = parser.parse_args()
    before = results(asked.out)
    if asked.report:
        return report(before)
    if asked.again:
        before = [one for one in before if one["result"] != "lives"]
        asked.out.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in before))
    first, every = map(int, asked.slice.split("/"))
    known = {one["id"] for one in before}
    waiting = [one for one in mutants(asked.count, asked.seed)[first::every] if one["id"] not in known]
    rooms = sorted({one["file"].split("/")[0] for one in waiting})
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        broken = dict(zip(rooms, pool.starmap(unharmed, [(room, asked.baseline) for room in rooms]), strict=True))
        for room, names in broken.items():
            print(f"{room}: {len(names)} tests fail without any change and are left out: {names}", flush=True)
        tasks = [(one, broken[one["file"].split("/")[0]], asked.seconds) for one in waiting]
        for number, one in enumerate(pool.imap_unordered(run, tasks), 1):
            with asked.out.open("a") as stream:
                stream.write(json.dumps(one, ensure_ascii=False) + "\n")
            print(
                f"{number}/{len(tasks)} {one['result']} in {one['seconds']:.0f} s: {one['id']} {one['by'][:120]}",
                flush=True,
            )
    report(results(asked.out))


if __name__ == "__main__":
    main()
