"""The documentation is true: what it names and links to exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_functions_on_the_path_of_a_change_are_where_the_page_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    links = re.findall(r"\[`([\w.]+)`\]\(\.\./src/([\w/]+)\.py\)", page)
    assert len(links) >= 10
    for name, path in links:
        module = path.replace("/", ".").removesuffix(".__init__")
        if f"lcm.{name}" == module:
            continue
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)


def test_every_path_on_the_page_about_extending_exists() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    paths = re.findall(r"`((?:src|tests|docs|deploy)/[\w/.-]+)`", page)
    assert len(paths) > 25
    for path in paths:
        assert (ROOT / path).exists(), path


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text()
    decisions = {path.name for path in folder.glob("[0-9]*.md")}
    assert set(re.findall(r"\]\((\d[\w-]+\.md)\)", index)) == decisions
    for name in decisions:
        text = (folder / name).read_text()
        assert text.splitlines()[0].removeprefix("# ")[5:] in index
        for heading in ("Context", "Decision", "Why", "Alternatives", "Consequences"):
            assert f"\n## {heading}\n" in text, f"{name} lacks {heading}"
        assert re.search(r"^- Date: \d{4}-\d\d-\d\d\n- Status: \w+", text, re.MULTILINE), name


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_registry_address_is_written_down() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text()
