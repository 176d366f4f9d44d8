"""The table of evidence on the first page has the numbers of the result files."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "README.md").read_text(encoding="utf-8").split("## Evidence")[1].split("## Limits")[0]

PAPER = " ".join((ROOT / "paper" / "paper.md").read_text(encoding="utf-8").split())


def result(name, folder="experiments"):
    read = json.loads((ROOT / folder / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return read.get("result", read)


def test_no_certificate_was_false():
    cells = [
        *result("certificates_soundness")["by delta"].values(),
        *result("components_soundness")["by delta"].values(),
        *result("switching_soundness")["by delta"].values(),
        *result("switching_inexact")["by delta"].values(),
        *result("box_switching_soundness")["by delta"].values(),
        *(
            each
            for kind in result("episodes").values()
            for each in kind["all steps"].values()
            if isinstance(each, dict)
        ),
        result("certificates_paid")["all"],
        result("box_certificates")["all"],
        result("known_noise_truth"),
    ]
    wrong = [
        cell[name] for cell in cells for name in ("false certificates", "false", "certified falsely") if name in cell
    ]
    assert wrong == [0] * len(cells)
    certified = f"{sum(cell['certified'] for cell in cells):,} certified"
    assert f"{certified} [runs]" in TABLE and f"{certified} runs" in PAPER
    attacks = [result("attacks")["by delta"][delta] for delta in ("0.01", "0.05")]
    assert [attack["false"] for attack in attacks] == [0, 0]
    tried, wrong = (sum(attack[name] for attack in attacks) for name in ("runs", "in truth wrong"))
    assert f"{tried:,} [attacks]" in TABLE and f"{wrong:,} of them on wrong rewards" in TABLE


def test_what_proofs_and_rewards_take():
    power, theorems = result("certificates_power"), result("certificates_theorems")
    proved = sum(run["n"] is not None for run in power["runs"])
    assert f"{proved} of {len(power['runs'])} problems" in TABLE
    assert f"median {round(power['median n'], -3):,.0f} transitions" in TABLE
    asked = [problem["deflated"] for problem in theorems["problems"]]
    assert "10⁸ to 10⁹" in TABLE and 1e8 <= min(asked) <= max(asked) < 2e9
    shares = result("accuracy", "benchmarks")["shares"]
    assert f"{shares['nothing given, defaults of solve']['100000']:.0%} of the paper".replace("%", " %") in TABLE
    assert f"linear program: {shares['20 bins + tabular L1 program']['100000']:.0%}".replace("%", " %") in TABLE


def test_plans_and_large_data():
    shares = [task["share, mean and worst"][1] for task in result("environments").values()]
    assert len(shares) == 6 and f"earns {min(shares):.1%}".replace("%", " %") in TABLE
    large = result("gpu", "benchmarks")["large"]
    assert large["pairs"] == 10**10 and f"{large['seconds, median of later calls']:.1f} s" in TABLE
