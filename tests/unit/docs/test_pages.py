"""The documentation is true: the architecture page mirrors the tree."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def modules() -> set[str]:
    package = ROOT / "src" / "lcm"
    found = {".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")}
    return {name for name in found if not name.endswith("__init__") and name != "__main__"}


def test_every_module_is_on_the_architecture_page_and_every_row_is_a_module() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = set(re.findall(r"^\| `([a-z_.]+)` \|", page, flags=re.MULTILINE))
    assert rows == modules()


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text()
    decisions = {path.name for path in folder.glob("[0-9]*.md")}
    assert set(re.findall(r"\]\((\d[\w-]+\.md)\)", index)) == decisions
    for name in decisions:
        title = (folder / name).read_text().splitlines()[0]
        assert title.removeprefix("# ")[5:] in index


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_registry_address_is_written_down() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text()
