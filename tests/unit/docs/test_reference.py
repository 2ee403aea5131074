"""The headings of `docs/reference/` that tests and pages cite exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
PAGES = {page.name: page for page in REFERENCE.glob("*.md") if page.name != "README.md"}
CITATION = re.compile(rf"\b({'|'.join(re.escape(name) for name in PAGES)})(?:#([a-z0-9-]+))?")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def citations() -> set[tuple[str, str, str]]:
    found = set()
    for file in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.md")):
        for name, anchor in CITATION.findall(file.read_text()):
            found.add((str(file.relative_to(ROOT)), name, anchor))
    return found


def test_every_cited_heading_exists() -> None:
    known = {name: anchors(page) for name, page in PAGES.items()}
    missing = [f"{file}: {name}#{anchor}" for file, name, anchor in citations() if anchor and anchor not in known[name]]
    assert not missing, "\n".join(sorted(missing))


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_page_is_cited_by_a_test(name: str) -> None:
    files = {file for file, cited, _ in citations() if cited == name}
    assert any(file.startswith("tests/") for file in files - {"tests/unit/docs/test_reference.py"})
