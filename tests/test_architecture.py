"""The house keeps its shape: imports go downward, `import certirl` is light, links lead somewhere."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "certirl"

# From the ground up; a room may import rooms on lower lines only, function-local imports included.
LAYERS = [
    ["doors", "_interrupts"],
    ["domain", "archive", "claim", "progress", "_cluster"],
    ["_map"],
    ["laws", "scheduler"],
    ["bases"],
    ["boxes", "_harmonics", "_triton"],
    ["extrema_boxes", "tensors", "cells"],
    ["extrema", "inverse", "reward", "transitions", "_blocked", "_fused", "classic"],
    ["_spread", "_fused_residuals", "episodes", "environments"],
    ["_gridding"],
    ["sums"],
    ["simulator", "components", "policies", "placing"],
    ["moments", "independence", "playing", "effects", "demonstrations", "ends"],
    ["estimate", "concentration", "tallies", "moves"],
    ["bellman", "program", "products", "tail", "surprises", "factorised", "value_program"],
    ["tabular"],
    ["residuals", "blocks", "planning", "box_products", "cones", "ending"],
    ["bounded", "evidence", "frames"],
    ["bounds", "box_evidence", "policy_evidence"],
    ["policy_sums", "box_bounds", "lookups"],
    ["policy_bounds", "weigh", "conflicts"],
    ["tubes"],
    ["recover"],
    ["choose", "apriori", "decompose"],
    ["diagnose", "coverage"],
    ["trigonometric"],
    ["theorems"],
    ["certify", "rational", "rollout"],
    ["prove", "scenario", "policy_certificate", "enclosures", "check_records"],
    ["certify_policies", "check_bands", "check_actions"],
    ["refute", "check_tubes"],
    ["solution", "certify_components", "check_policies"],
    ["policy_checks", "policy_solution", "check"],
    ["additive", "prove_components", "refute_components", "solve_policy", "solve_action"],
    ["prove_policy"],
    ["advise"],
    ["solve_components"],
    ["solve"],
    ["readers"],
    ["episode_readers", "rewarding"],
    ["episode_tables"],
    ["problems", "tables", "plots", "study", "gym"],
    ["box_problems", "switching_problems", "reproduce", "bench", "policy_plots"],
    ["box_switching"],
    ["__init__", "inputs"],
    ["solve_files"],
    ["cli"],
    ["__main__"],
]
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
# A convenience that opens a surface from a record, on demand.
ALLOWED = {
    ("solution", "plots"),
    ("components", "plots"),
    ("policy_solution", "policy_plots"),
    ("policy_certificate", "policy_plots"),
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def type_checking_only(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for inner in node.body:
                if isinstance(inner, ast.ImportFrom) and inner.module:
                    found |= {inner.module} | {f"{inner.module}.{name.name}" for name in inner.names}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda p: p.stem)
def test_imports_go_downward(path):
    room = path.stem
    assert room in HEIGHT, f"{room} has no place in the layers"
    for module in imports(path) - type_checking_only(path):
        parts = module.split(".")
        if parts[0] == "certirl" and len(parts) > 1 and parts[1] in HEIGHT and (room, parts[1]) not in ALLOWED:
            assert HEIGHT[parts[1]] < HEIGHT[room], f"{room} imports {parts[1]}, which is not below it"


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_is_light():
    heavy = ("scipy", "highspy", "matplotlib", "torch", "pandas", "dask", "pyarrow", "numba", "gymnasium", "sklearn")
    loaded = run(f"import certirl, sys; print([m for m in {heavy!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_everything_promised_is_there():
    code = "import certirl; print([name for name in certirl.__all__ if not hasattr(certirl, name)])"
    assert run(code).strip() == "[]"


def test_every_room_is_on_the_map():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert {room for room in rooms if f"`{room}`" not in text} == set()


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name)
def test_links_of_the_pages_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#\s]+)", re.sub(r"```.*?```", "", path.read_text(), flags=re.S))
    inside = [link for link in links if not link.startswith(("http", "mailto"))]
    assert [link for link in inside if not (path.parent / link).exists()] == []


def test_whatever_is_said_to_be_installed_is_an_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").glob("*.*")]
    named = set()
    for path in [*PACKAGE.glob("*.py"), *pages]:
        for inside in re.findall(r"(?:certirl|\"\.)\[([a-z, ]+)\]", path.read_text()):
            named |= {name.strip() for name in inside.split(",")}
    assert {"gym", "plot", "parquet", "fast", "gpu", "cluster", "demonstrations", "minari", "training"} <= named
    assert named <= set(extras)


def test_pictures_of_the_tutorials_are_small():
    pictures = list((ROOT / "docs" / "tutorials" / "pictures").iterdir())
    assert len(pictures) == 4
    assert max(path.stat().st_size for path in pictures) <= 120_000


def test_version_is_the_same_everywhere():
    version = run("import certirl; print(certirl.__version__)").strip()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert version in (ROOT / "CHANGELOG.md").read_text()


def test_every_test_on_the_page_about_attacks_exists():
    rows = re.findall(r"^\|(.*)\|$", (ROOT / "docs" / "notes" / "attacks.md").read_text(), re.M)
    named = [row.split("|")[-1].strip() for row in rows if "---" not in row and "attack" not in row.split("|")[0]]
    for name in named:
        file, _, test = name.strip("`").partition("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), name
