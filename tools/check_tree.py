"""Keeps the tree easy to read: `python -m tools.check_tree`, part of `make check`.

Four rules: folders stay small, exceptions end in `Error`, `docs/architecture.md` has a paragraph for every package, and
license has one spelling.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
MAX_MODULES = 12

# Folders that may be larger, each with the reason.
LARGE_FOLDERS: dict[str, str] = {}

# Files in which the other spelling is right, each with the reason.
OTHER_SPELLING = {
    "CHANGELOG.md": "quotes texts of earlier versions",
    "tools/check_tree.py": "names the spelling it forbids",
}
_WRONG_SPELLING = re.compile("licence", re.IGNORECASE)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module below `src/`, parsed, by its path from there."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in paths}


def large_folders(found: dict[str, ast.Module]) -> list[str]:
    """Folders with more modules than a reader takes in at a glance; `__init__.py` does not count."""
    counts = Counter(str(Path(name).parent) for name in found if not name.endswith("__init__.py"))
    return [
        f"src/{folder} has {count} modules, at most {MAX_MODULES} are allowed: split it, or list it in LARGE_FOLDERS"
        for folder, count in sorted(counts.items())
        if count > MAX_MODULES and folder not in LARGE_FOLDERS
    ]


def misnamed_exceptions(found: dict[str, ast.Module]) -> list[str]:
    """Exceptions whose names do not end in `Error`."""
    bases: dict[str, set[str]] = {}
    places: dict[str, str] = {}
    for name, tree in found.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(ast.unparse(base).rpartition(".")[2] for base in node.bases)
                places[node.name] = f"src/{name}:{node.lineno}"
    exceptions = {"Exception", "BaseException"}
    while added := {name for name, of in bases.items() if name not in exceptions and _any_exception(of, exceptions)}:
        exceptions |= added
    wrong = sorted(name for name in exceptions & bases.keys() if not name.endswith("Error"))
    return [f"{places[name]} {name} is an exception: let its name end in Error" for name in wrong]


def _any_exception(bases: set[str], known: set[str]) -> bool:
    return bool(bases & known) or any(base.endswith("Error") for base in bases)


def undocumented_packages(found: dict[str, ast.Module]) -> list[str]:
    """Packages that `docs/architecture.md` does not describe, and packages it describes that do not exist."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    described = set(re.findall(r"^#+ `(lcm(?:\.\w+)*)`", page, re.MULTILINE))
    packages = {str(Path(name).parent).replace("/", ".") for name in found}
    # A package is described by a heading of its own or by that of a package above it, in which it is then named.
    missing = sorted(
        package
        for package in packages - {"lcm"}
        if package not in described and not _named_above(package, described, page)
    )
    return [f"docs/architecture.md does not describe the package {package}" for package in missing] + [
        f"docs/architecture.md describes {package}, which does not exist" for package in sorted(described - packages)
    ]


def _named_above(package: str, described: set[str], page: str) -> bool:
    parts = package.split(".")
    for depth in range(len(parts) - 1, 1, -1):
        above = ".".join(parts[:depth])
        if above in described:
            section = page.split(f"`{above}`", 1)[1].split("\n### ", 1)[0]
            return f"`{'/'.join(parts[depth:])}/`" in section
    return False


def misspellings() -> list[str]:
    """Lines that spell license otherwise."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = []
    for name in names.splitlines():
        path = ROOT / name
        if name in OTHER_SPELLING or name.startswith("tests/data/") or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if _WRONG_SPELLING.search(line) and "spelling" not in line:
                found.append(f"{name}:{number} spells license with a c: {line.strip()[:80]}")
    return found


def main() -> int:
    """Print every violation; the exit code says whether there was one."""
    found = modules()
    problems = large_folders(found) + misnamed_exceptions(found) + undocumented_packages(found) + misspellings()
    for problem in problems:
        print(problem)
    print(f"check_tree: {len(problems)} problems in {len(found)} modules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
