"""Prints which branches the tests take: `python -m tools.coverage_map [TESTS]`, also as `make coverage`.

One line for each package; then every branch that no test takes in the modules where a forgotten one costs most: rules,
actions, the unit of work and the stores. Processes that a test starts are measured too, unless they are killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/lcm"

# Tests that run LCM in their own process: the others add minutes, and few branches.
TESTS = ("tests/unit", "tests/contract", "tests/platform")

# Below these, every branch that no test takes is listed.
LISTED = (
    "controllers/worker/decide/",
    "controllers/worker/act/",
    "controllers/lablet/decide/",
    "controllers/lablet/act.py",
    "control_plane/records/",
    "control_plane/store/",
)


@dataclass
class Tally:
    """How much of some code was run."""

    statements: int = 0
    statements_run: int = 0
    branches: int = 0
    branches_taken: int = 0

    def add(self, summary: Mapping[str, int]) -> None:
        """Count one module."""
        self.statements += summary["num_statements"]
        self.statements_run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_taken += summary["covered_branches"]

    def line(self, name: str) -> str:
        """One line of the table."""
        return (
            f"{name:<38}{_percent(self.statements_run, self.statements):>11}"
            f"{_percent(self.branches_taken, self.branches):>10}{self.branches - self.branches_taken:>11}"
        )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def packages(files: Mapping[str, Any]) -> list[str]:
    """The table: each package with the packages below it that are too small for a line of their own."""
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for path, found in files.items():
        parts = Path(path).relative_to(SOURCE).parts[:-1]
        tallies[".".join(("lcm", *parts[:2]))].add(found["summary"])
        tallies["total"].add(found["summary"])
    total = tallies.pop("total", Tally())
    heading = f"{'package':<38}{'statements':>11}{'branches':>10}{'not taken':>11}"
    return [heading, *(tally.line(name) for name, tally in sorted(tallies.items())), total.line("total")]


def branches_not_taken(files: Mapping[str, Any], listed: Sequence[str] = LISTED) -> list[str]:
    """One line for each branch that no test takes in the listed modules, with its condition."""
    lines: list[str] = []
    for path, found in sorted(files.items()):
        if not path.removeprefix(f"{SOURCE}/").startswith(tuple(listed)):
            continue
        source = (ROOT / path).read_text().splitlines()
        never_run = set(found["missing_lines"])
        for start, end in found["missing_branches"]:
            where = "never leaves the function here" if end < 0 else f"never goes on to line {end}"
            if start in never_run:
                where = "never run"
            line = f"{path}:{start}  {source[start - 1].strip()}  ({where})"
            if line not in lines:
                lines.append(line)
    return lines


def measure(tests: Iterable[str], folder: Path) -> tuple[dict[str, Any], int]:
    """Run the tests; returns what was measured, by file, and the exit code of the tests."""
    coverage = [sys.executable, "-m", "coverage"]
    data = f"--data-file={folder / 'coverage'}"
    pytest = ["-m", "pytest", "-q", "--workers", "2", *tests]
    tested = subprocess.run([*coverage, "run", data, *pytest], cwd=ROOT, check=False).returncode
    if not any(folder.iterdir()):
        return {}, tested  # no test was run
    subprocess.run([*coverage, "combine", "--quiet", data], cwd=ROOT, check=True)
    subprocess.run([*coverage, "json", "--quiet", data, "-o", folder / "coverage.json"], cwd=ROOT, check=True)
    files: dict[str, Any] = json.loads((folder / "coverage.json").read_text())["files"]
    return files, tested


def main(tests: Sequence[str]) -> int:
    """Print both parts; the exit code is that of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        files, tested = measure(tests or TESTS, Path(folder))
    print(*packages(files), "", sep="\n")
    missing = branches_not_taken(files)
    print(*missing, sep="\n")
    print(f"coverage_map: {len(missing)} branches not taken in {', '.join(LISTED)}")
    return tested


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
