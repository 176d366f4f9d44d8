#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox"]
# ///
"""Tests on other versions of Python and of the dependencies; `make` does the rest."""

from __future__ import annotations

from pathlib import Path

import nox

nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "uv|virtualenv"
PYTEST = ("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", "-m", "not slow")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # the tests run on all cores already


@nox.session(default=True)
def tests(session: nox.Session) -> None:
    """Run the fast tests with the newest dependencies; arguments after -- go to pytest."""
    session.install("--editable", ".[test]")
    session.run(*PYTEST, *session.posargs, env=ONE_THREAD)


@nox.session(python="3.11", default=False)
def lowest(session: nox.Session) -> None:
    """Run the fast tests with the lowest versions that pyproject.toml allows."""
    limits = session.run("python", "tests/lowest.py", silent=True)
    path = Path(session.create_tmp(), "lowest.txt").resolve()
    path.write_text(str(limits), encoding="utf-8")
    session.install("--constraint", str(path), "--editable", ".[test]")
    session.run(*PYTEST, *session.posargs, env=ONE_THREAD)


if __name__ == "__main__":
    nox.main()
