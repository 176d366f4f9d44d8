"""The small wheel has the checker of the large one, and checks files where there is neither certirl nor SciPy."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import golden_files
import pytest

from certirl.cli.files import VERDICTS
from certirl.ground import archive

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[2]
ALONE = """
import sys
sys.modules |= dict.fromkeys(("certirl", "scipy", "highspy", "threadpoolctl"))  # importing them fails
sys.path.insert(0, sys.argv[1])
import certirl_check
from certirl_check.__main__ import main
assert certirl_check.__file__.startswith(sys.argv[1])
for path in sys.argv[2:]:
    print("code", main([path]))
"""


def run(*command, cwd=ROOT):
    return subprocess.run([sys.executable, *command], cwd=cwd, check=True, capture_output=True, text=True).stdout


def built(folder, target):
    """The wheel of the project in a folder."""
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(target), cwd=folder)
    (wheel,) = target.glob("*.whl")
    return wheel


def checker_in(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if name.startswith("certirl_check/") and "LICENSE" not in name]
        return {name: packed.read(name) for name in names}, packed.namelist()


def test_both_wheels_have_the_checker_and_the_small_one_works_alone(tmp_path):
    small, large = built(ROOT / "packaging/check", tmp_path / "small"), built(ROOT, tmp_path / "large")
    (inside, names), (same, _) = checker_in(small), checker_in(large)
    assert inside == same and "certirl_check/LICENSE" in names and len(inside) > 8
    assert not [name for name in names if not name.startswith(("certirl_check/", "certirl_check-"))]
    assert small.name.split("-")[1] == large.name.split("-")[1]
    target, golden = tmp_path / "installed", golden_files.FOLDER / str(archive.VERSION)
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(small))
    said = json.loads((golden / golden_files.VERDICTS).read_text(encoding="utf-8"))
    verdicts = {name: words["verdict"] for name, words in said.items() if "verdict" in words}
    assert {*verdicts.values()} >= {"confirmed", "nothing claimed"}
    printed = run("-c", ALONE, str(target), *(str(golden / name) for name in verdicts)).splitlines()
    codes = [int(line.split()[1]) for line in printed if line.startswith("code ")]
    assert codes == [VERDICTS[verdict] for verdict in verdicts.values()]
