"""The house keeps its shape: imports go downward, `import certirl` is light, links lead somewhere."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lowest import lowest
from pages import folder_of, pictures

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "certirl"
CHECKER = "certirl_check"

# A room imports itself and rooms above it in this list, function-local imports included.
ROOMS = [
    "ground",
    "functions",
    "kernels",
    "data",
    "fit",
    "proof",
    "environments",
    "solver",
    "problems",
    "paper",
    "show",
    "cli",
]
# A record draws itself on demand.
DRAWN = ("certirl.plots", "certirl.show")


def imported(path: Path) -> set[str]:
    """Modules of certirl and of the checker that a file imports, without those for type checkers only."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in node.body
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and id(node) not in skipped:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return {module for module in found if module.split(".")[0] in ("certirl", CHECKER)}


def room_of(module: str) -> str:
    first, *inner = module.split(".")
    if first == CHECKER or not inner:
        return first
    return {"__main__": "cli"}.get(inner[0], inner[0])


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))[:-3])
def test_imports_go_to_rooms_above(path):
    if path.parent == PACKAGE and path.stem != "__main__":  # names for users
        return
    room = room_of("certirl." + str(path.relative_to(PACKAGE)).removesuffix(".py").replace("/", "."))
    assert room in ROOMS, f"{room} is not in the list of rooms"
    allowed = {*ROOMS[: ROOMS.index(room) + 1]} | ({CHECKER} if room == "solver" else set())
    rooms = {room_of(module) for module in imported(path) if not module.startswith(DRAWN)}
    assert {name for name in rooms & {*ROOMS, CHECKER} if name not in allowed} == set()


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("code", "further"),
    [
        ("import certirl", ("numpy", "argparse")),
        ("import certirl; certirl.solve", ("asyncio",)),
        ("import certirl.cli; certirl.cli.verbs()", ()),  # certirl --help
        ("import certirl.cli; certirl.cli.build((), '0')", ("certirl.solver", "certirl.data")),  # certirl --version
    ],
)
def test_importing_is_light(code, further):
    others = ("matplotlib", "torch", "pandas", "dask", "pyarrow", "numba", "gymnasium", "sklearn")
    heavy = ("scipy", "highspy", "clarabel", *others, *further)
    loaded = run(f"{code}; import sys; print([m for m in {heavy!r} if m in sys.modules])")
    assert loaded.strip() == "[]"
    code = """
import certirl, sys
log = certirl.Transitions([0.0, 0.3, 0.6, 1.0] * 9, [0, 1, 1, 0, 0, 1] * 6, [0.5, 1.0, 0.0, 0.2] * 9)
certirl.solve(log, discount=0.5, expert=0, basis=certirl.Legendre(2))
print("pyarrow" in sys.modules)
"""
    assert run(code).strip() == "False"  # arrays need none


def test_the_facade_shows_its_own_public_names_alone():
    code = """
import certirl
certirl.solve, certirl.plots, certirl.gym  # what they import stays out of sight
for name in dir(certirl):
    value = getattr(certirl, name)
    print(name, getattr(value, "__module__", None) or getattr(value, "__name__", "certirl"))
"""
    lines = dict(line.split() for line in run(code).splitlines())
    assert 25 <= len(lines) <= 37  # of them eleven namespaces
    assert [name for name in lines if name.startswith("_")] == ["__version__"]
    assert {name for name, module in lines.items() if module.split(".")[0] != "certirl"} == set()


def test_every_room_is_on_the_map():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert {room for room in ROOMS if f"| `{room}` |" not in text} == set()


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name)
def test_links_of_the_pages_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#\s]+)", re.sub(r"```.*?```", "", path.read_text(), flags=re.S))
    inside = [link for link in links if not link.startswith(("http", "mailto"))]
    assert [link for link in inside if not (path.parent / link).exists()] == []


def test_whatever_is_said_to_be_installed_is_an_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").glob("*.*")]
    named = set()
    for path in [*PACKAGE.rglob("*.py"), *pages]:
        for inside in re.findall(r"(?:certirl|\"\.)\[([a-z, ]+)\]", path.read_text()):
            named |= {name.strip() for name in inside.split(",")}
    assert {"gym", "plot", "fast", "gpu", "cluster", "demonstrations", "minari", "training"} <= named
    assert named <= set(extras)


PROOFS = [*(PACKAGE / "proof").glob("*.py"), *(PACKAGE.parent / CHECKER).glob("*.py")]


@pytest.mark.parametrize("path", PROOFS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_equations_and_lemmas_that_proofs_cite_are_in_the_notes_that_they_name(path):
    text, folder = path.read_text(), ROOT / "docs" / "notes"
    named = {name for name in re.findall(r"([\w-]+\.md)", text) if (folder / name).exists()}
    notes = "".join((folder / name).read_text() for name in named)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    documents = [ast.get_docstring(part) or "" for part in ast.walk(ast.parse(text)) if isinstance(part, kinds)]
    words = [document.split("Example:")[0] for document in documents] + re.findall(r"#.*", text)
    equations = {*re.findall(r"\\tag\{([^}]*)\}", notes), *re.findall(r"\((\d+)\)\$\$", notes)}
    cited = {number for said in words for number in re.findall(r"(?<!\w)\(([A-Z]?\d+'*|T)\)", said)}
    assert cited - equations == set()
    lemmas = {number for said in words for number in re.findall(r"Lemma (\d+[′']?)", said)}
    assert lemmas - {*re.findall(r"\*\*Lemma (\d+[′']?)", notes)} == set()


def test_pictures_of_the_pages_are_small_and_shown():
    pages = ["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    shown = {folder_of(page) / name for page in pages for name in pictures(page)}
    assert shown == {path for folder in (ROOT / "docs").rglob("pictures") for path in folder.iterdir()}
    assert len(shown) >= 12 and max(path.stat().st_size for path in shown) <= 80_000


def test_version_is_the_same_everywhere():
    version = run("import certirl; print(certirl.__version__)").strip()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert version in (ROOT / "CHANGELOG.md").read_text()


def test_every_test_on_the_page_about_attacks_exists():
    rows = re.findall(r"^\|(.*)\|$", (ROOT / "docs" / "notes" / "attacks.md").read_text(), re.M)
    named = [row.split("|")[-1].strip() for row in rows if "---" not in row and "attack" not in row.split("|")[0]]
    for name in named:
        file, _, test = name.strip("`").partition("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), name


def test_workflow_runs_on_every_version_of_python_that_is_promised():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    promised = [name.rsplit(" ", 1)[1] for name in classifiers if re.search(r":: 3\.\d+$", name)]
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert matrix is not None
    assert re.findall(r'"([\d.]+)"', matrix[1]) == promised
    assert len(promised) >= 4
    both = re.search(r"python-version: \|\s+([\d.]+)\s+([\d.]+)", (ROOT / ".github/workflows/tests.yml").read_text())
    assert both is not None and [both[1], both[2]] == [promised[-1], promised[0]]


def test_every_requirement_has_a_lowest_version_with_which_the_tests_run():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.split(r"[\[>=<]", name)[0] for name in listed} - {"certirl"}
    assert {constraint.split("==")[0] for constraint in lowest(project)} == names
    assert {"numpy==1.26", "scipy==1.16"} <= set(lowest(project))
