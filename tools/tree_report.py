"""Prints the size and shape of `src/` at two commits side by side: `python -m tools.tree_report BEFORE [AFTER]`.

AFTER defaults to the working tree. The numbers show how easy it is to find one's way: modules, modules per folder,
length of modules and functions, and how much of the code only imports other code.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG_FUNCTION = 50


@dataclass
class Report:
    """What one tree looks like."""

    lines: list[int] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    import_lines: int = 0
    functions: int = 0
    long_functions: list[str] = field(default_factory=list)
    public_names: set[str] = field(default_factory=set)

    def add(self, path: str, text: str) -> None:
        """Count one module. An `__init__.py` counts as a module only if it holds code."""
        tree = ast.parse(text)
        if path.endswith("__init__.py") and not any(not isinstance(node, ast.Expr) for node in tree.body):
            return
        self.lines.append(text.count("\n"))
        folder = str(Path(path).parent)
        self.folders[folder] = self.folders.get(folder, 0) + 1
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.import_lines += (node.end_lineno or node.lineno) - node.lineno + 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._add_function(path, node)
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        self.public_names |= {n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")}

    def _add_function(self, path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.functions += 1
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        if size > LONG_FUNCTION:
            self.long_functions.append(f"{path}:{node.lineno} {node.name} ({size})")

    def rows(self) -> list[tuple[str, str]]:
        """Each figure with its name, in the order in which they are printed."""
        total = sum(self.lines)
        largest = max(self.folders, key=lambda name: self.folders[name])
        return [
            ("modules", f"{len(self.lines)}"),
            ("folders with modules", f"{len(self.folders)}"),
            ("modules per folder, mean", f"{len(self.lines) / len(self.folders):.1f}"),
            ("modules per folder, largest", f"{self.folders[largest]} ({largest.removeprefix('src/lcm/')})"),
            ("lines per module, median", f"{statistics.median(self.lines):g}"),
            ("lines per module, p90", f"{statistics.quantiles(self.lines, n=10)[-1]:.0f}"),
            ("lines in src", f"{total:,}"),
            ("import lines, share of all", f"{100 * self.import_lines / total:.1f} %"),
            ("functions", f"{self.functions:,}"),
            (f"functions over {LONG_FUNCTION} lines", f"{len(self.long_functions)}"),
            ("public names", f"{len(self.public_names):,}"),
        ]


def report_of(revision: str | None) -> Report:
    """The report of a commit, or of the working tree."""
    report = Report()
    if revision is None:
        for path in sorted((ROOT / "src").rglob("*.py")):
            report.add(str(path.relative_to(ROOT)), path.read_text())
        return report
    for name in _git("ls-tree", "-r", "--name-only", revision, "src").splitlines():
        if name.endswith(".py"):
            report.add(name, _git("show", f"{revision}:{name}"))
    return report


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Print both reports as one table."""
    parser = argparse.ArgumentParser(description="Compare the shape of src/ at two commits.")
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", help="a commit; the working tree if left out")
    chosen = parser.parse_args()
    before, after = report_of(chosen.before), report_of(chosen.after)
    print(f"{'':<30}{'before':>34}{'after':>34}")
    for (name, old), (_, new) in zip(before.rows(), after.rows(), strict=True):
        print(f"{name:<30}{old:>34}{new:>34}")
    gone, added = before.public_names - after.public_names, after.public_names - before.public_names
    print(f"{'public names renamed or gone':<30}{'':>34}{len(gone):>34}")
    print(f"{'public names new':<30}{'':>34}{len(added):>34}")
    for line in after.long_functions:
        print(f"  over {LONG_FUNCTION} lines: {line}")


if __name__ == "__main__":
    main()
