"""`docs/seeds.md` is true: the modules and tests it names exist, and every section of every seed has a row."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "seeds.md"

ADR_043 = ("decision 1", "decision 2", "decision 3", "decision 4", "start-up sequence")
ADR_014 = (
    "problem",
    "design",
    "soft delete",
    "no grace period",
    "component 1",
    "component 2",
    "component 3",
    "alternatives",
    "consequences",
)
SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "000": ("Worker Lifecycle & Reconciliation", tuple(f"§{number}" for number in range(1, 12))),
    "001": ("Worker Controller Architecture", tuple(f"§{number}" for number in range(1, 12))),
    "002": ("Worker Discovery & Observation", tuple(f"§{number}" for number in range(1, 10))),
    "003": ("ADR-043: Startup State Reconciliation and Discovery Separation", ADR_043),
    "004": ("ADR-014: Worker Orphan Detection and Garbage Collection", ADR_014),
}
DIFFERENCES = "Where we differ, and why"


@dataclass(frozen=True)
class Row:
    """One table row: what a section asks for, the modules that implement it, and the tests that show it."""

    seed: str
    section: str
    asks: str
    code: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """The parsed page."""

    titles: dict[str, str]
    sections: list[tuple[str, str]]
    rows: list[Row]
    differences: list[list[str]]


def parse(text: str) -> Page:
    page = Page({}, [], [], [])
    seed = section = chapter = ""
    for line in text.splitlines():
        if line.startswith("## "):
            chapter, seed, section = line[3:], "", ""
            if heading := re.fullmatch(r"## Seed (\d{3}): (.+)", line):
                seed = heading[1]
                page.titles[seed] = heading[2]
        elif line.startswith("### "):
            section = line[4:].partition(":")[0].lower()
            page.sections.append((seed, section))
        elif line.startswith("|") and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if seed and cells[0] != "what it asks":
                assert len(cells) == 3, line
                page.rows.append(Row(seed, section, cells[0], quoted(cells[1]), quoted(cells[2])))
            elif chapter == DIFFERENCES and cells[0] != "seed":
                page.differences.append(cells)
    return page


def quoted(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", text))


@pytest.fixture(scope="module")
def page() -> Page:
    return parse(PAGE.read_text())


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests in a file; those of a class as `Class::test`."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    body = ast.parse(file.read_text()).body
    names = set(functions_in(body))
    for node in body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{name}" for name in functions_in(node.body)}
    return frozenset(names)


def functions_in(body: list[ast.stmt]) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node.name for node in body if isinstance(node, kinds) and node.name.startswith("test_")]


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return name in names_in(path)


def test_the_page_has_all_five_seeds(page: Page) -> None:
    assert page.titles == {seed: title for seed, (title, _) in SECTIONS.items()}


def test_every_section_has_a_row(page: Page) -> None:
    expected = [(seed, section) for seed, (_, sections) in SECTIONS.items() for section in sections]
    assert page.sections == expected
    assert {(row.seed, row.section) for row in page.rows} == set(expected)


def test_every_module_exists(page: Page) -> None:
    for row in page.rows:
        assert row.code, row
        for module in row.code:
            path = ROOT / "src" / "lcm" / Path(*module.split("."))
            assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), f"{row.asks}: {module}"


def test_every_test_exists(page: Page) -> None:
    for row in page.rows:
        assert row.tests, row
        for test in row.tests:
            assert exists(test), f"{row.asks}: {test}"


def test_every_difference_links_to_the_reference(page: Page) -> None:
    assert len(page.differences) > 10
    for seed, what, why in page.differences:
        assert seed[:3] in SECTIONS
        assert what
        assert "](reference/" in why or "](settings.md" in why, what


@pytest.mark.parametrize(
    "name",
    ["lcm:worker_id", "_handle_", "instance_id", "INITIAL_DELAY", "MAX_CONCURRENT_RECONCILES", "001 §7"],
)
def test_every_renamed_or_reshaped_thing_is_listed_as_a_difference(page: Page, name: str) -> None:
    assert any(name in seed or name in what for seed, what, _ in page.differences)


def test_the_parser_finds_what_does_not_exist() -> None:
    parsed = parse(
        "## Seed 000: X\n### §1: y\n| what it asks | code | tests |\n|---|---|---|\n| a | `b.c` | `t.py::test_x` |\n"
    )
    assert parsed.rows == [Row("000", "§1", "a", ("b.c",), ("t.py::test_x",))]
    assert not exists("t.py::test_x")
    assert not exists("tests/unit/docs/test_seeds.py::test_not_there")
    assert exists("tests/unit/docs/test_seeds.py::test_every_test_exists")
    assert exists("tests/unit/control_plane/secrets/test_encryption.py::TestBox::test_there_and_back")
