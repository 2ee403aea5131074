"""The coverage map adds up packages, and lists branches that were not taken with their conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools import coverage_map

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def measured(statements: int, run: int, branches: int, taken: int, **more: Any) -> dict[str, Any]:
    summary = {
        "num_statements": statements,
        "covered_lines": run,
        "num_branches": branches,
        "covered_branches": taken,
    }
    return {"summary": summary, "missing_lines": [], "missing_branches": [], **more}


def test_modules_are_added_up_by_package() -> None:
    files = {
        "src/lcm/core/clock.py": measured(10, 10, 4, 3),
        "src/lcm/controllers/worker/controller.py": measured(10, 5, 0, 0),
        "src/lcm/controllers/worker/decide/running.py": measured(30, 30, 20, 10),
    }
    lines = [line.split() for line in coverage_map.packages(files)]
    assert lines == [
        ["package", "statements", "branches", "not", "taken"],
        ["lcm.controllers.worker", "87.5", "%", "50.0", "%", "10"],
        ["lcm.core", "100.0", "%", "75.0", "%", "1"],
        ["total", "90.0", "%", "54.2", "%", "11"],
    ]


def test_branches_are_listed_with_their_condition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_map, "ROOT", tmp_path)
    source = tmp_path / "src" / "lcm" / "rules" / "one.py"
    source.parent.mkdir(parents=True)
    source.write_text("def f(a):\n    if a:\n        g()\n    if b:\n        h()\n")
    found = measured(5, 4, 4, 1, missing_branches=[[2, 4], [4, -1], [4, 5]], missing_lines=[4, 5])
    files = {"src/lcm/rules/one.py": found, "src/lcm/other.py": found}
    assert coverage_map.branches_not_taken(files, ["rules/"]) == [
        "src/lcm/rules/one.py:2  if a:  (never goes on to line 4)",
        "src/lcm/rules/one.py:4  if b:  (never run)",
    ]
