"""Every experiment and every benchmark runs, at a small size, and writes what it says."""

import importlib
import json
import sys
from dataclasses import fields, replace

import pytest

import harness
import study
from certirl.paper import study as study_of_paper

PARTS = {
    "arch": ("lines", "known", "repeated"),
    "certificates": ("theorems",),
    "costs": ("harvest",),
    "ends": ("trips", "kinds"),
    "components": ("solvable", "time", "certified", "soundness"),
    "known_noise": ("truth",),
    "logs": ("tracker", "thermostat", "reservoir", "drivers", "shuffled", "memory"),
    "soft": ("coverage", "width", "accuracy"),
    "switching": ("soundness", "inexact", "recovered"),
    "box_switching": ("proved",),
}
SMALL = {
    "components": {"problems": 2, "timed": (5,), "repeats": 1, "certified": {"3": 1}, "unsolvable": 1, "runs": 2},
    "switching": {"runs": 2, "recovered": 1},
    "soft": {"runs": 2},
    "episodes": {"runs": 3, "rows": 20_000, "sizes": (10_000,)},
}
RUNS = [(name, part) for name, parts in PARTS.items() for part in parts]
RUNS += [
    (name, None)
    for name in (
        "box_certificates",
        "deterministic",
        "dimensions",
        "environments",
        "episodes",
        "many_coordinates",
        "rust",
        "tasks",
        "transfer",
        "validated",
    )
]


SOUNDNESS = [(name, "soundness") for name in ("certificates", "components", "switching", "box_switching")]
SOUNDNESS += [(name, None) for name in ("attacks", "box_certificates", "episodes")]
SOUNDNESS += [("certificates", "paid"), ("switching", "inexact"), ("known_noise", "truth")]


@pytest.mark.parametrize("name", sorted({name for name, _ in RUNS} | {"attacks"}))
def test_seeds_and_trials_of_a_command_reach_what_is_run(name):
    experiment = importlib.import_module(name)
    known = {field.name for field in fields(experiment.Arguments)}
    assert "seed" in known and known.issuperset(getattr(experiment, "REPEATED", ()))
    assert study_of_paper.chosen(experiment, fast=True, seed=7, trials=3).seed == 7


@pytest.mark.parametrize(("name", "part"), SOUNDNESS, ids=str)
def test_other_seeds_are_other_trials(name, part):
    experiment, asked = importlib.import_module(name), {}

    def runner(function, tasks, unit="trials"):
        asked.setdefault(seed, []).extend(json.dumps([function.__name__, task]) for task in tasks)
        raise KeyError(unit)  # the first trials will do

    for seed in (0, 1_000):
        arguments = study_of_paper.chosen(experiment, fast=True, seed=seed, trials=None)
        with pytest.raises(KeyError):
            (experiment.PARTS[part] if part else experiment.run)(arguments, runner)
    assert asked[0] and len(asked[0]) == len(asked[1_000]) and not {*asked[0]} & {*asked[1_000]}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), RUNS, ids=str)
def test_an_experiment_runs_and_writes_its_numbers(name, part, tmp_path, monkeypatch, capsys):
    experiment = importlib.import_module(name)
    monkeypatch.setattr(experiment, "FAST", replace(experiment.FAST, **SMALL.get(name, {})))
    words = ["--fast", "--workers", "1", "--out", str(tmp_path), *(["--only", part] if part else [])]
    assert study.main(experiment, words) == 0
    file = name if part is None else f"{name}_{part}"
    record = json.loads((tmp_path / f"{file}.json").read_text())
    assert (
        record["result"] and record["what it shows"] and record["command"].startswith(f"python experiments/{name}.py")
    )
    assert f"{file}.json" in capsys.readouterr().out and not list(tmp_path.glob(".*"))


BENCHMARKS = {
    "accuracy": "--seeds 1 --workers 1 --most 1000",
    "bench": "--pairs 2000 --sizes 5 --families Legendre --transitions 2000 --repeats 1",
    "box_time": "--share 0.01 --factors 5 4",
    "columns": "--constant 4 --policy 4",
    "cost": "--rows 3000 --repeats 1",
    "policy_cost": "--states 400 --coordinates 1",
    "evidence": "--samples 2000 --repeats 1 --columns 3",
    "solve_time": "--samples 20000",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), BENCHMARKS.items(), ids=BENCHMARKS)
def test_a_benchmark_runs_and_writes_its_numbers(name, words, tmp_path, monkeypatch, capsys):
    benchmark = importlib.import_module(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words.split(), "--out", str(tmp_path / "numbers.json")])
    measured, written = harness.main(benchmark.run)
    record = json.loads(written.read_text())
    if name == "bench":
        benchmark.picture(measured, tmp_path / "bench.png")
        assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert record["command"].startswith(f"python benchmarks/{name}.py {words}") and record["versions"]["numpy"]
    assert len(record) > 2 and "numbers.json" in capsys.readouterr().out
