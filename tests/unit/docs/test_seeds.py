"""`docs/seeds.md` is true: what it names is there, every section has its rows, and their tests name the section."""

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
    """One line of a table: which section asks for what, who does it, and what shows it."""

    seed: str
    section: str
    asks: str
    code: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """What stands on the page."""

    titles: dict[str, str]
    sections: list[tuple[str, str]]
    rows: list[Row]
    differences: list[list[str]]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def quoted(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", text))


def read(text: str) -> Page:
    page = Page({}, [], [], [])
    seed = section = chapter = ""
    for line in text.splitlines():
        if line.startswith("## "):
            chapter, seed, section = line[3:], "", ""
            if told := re.fullmatch(r"## Seed (\d{3}): (.+)", line):
                seed = told[1]
                page.titles[seed] = told[2]
        elif line.startswith("### "):
            section = line[4:].partition(":")[0].lower()
            page.sections.append((seed, section))
        elif line.startswith("|") and not line.startswith("|---"):
            row = cells(line)
            if seed and row[0] != "what it asks":
                assert len(row) == 3, line
                page.rows.append(Row(seed, section, row[0], quoted(row[1]), quoted(row[2])))
            elif chapter == DIFFERENCES and row[0] != "seed":
                page.differences.append(row)
    return page


@pytest.fixture(scope="module")
def page() -> Page:
    return read(PAGE.read_text())


@cache
def found_in(path: str) -> dict[str, str]:
    """The tests of a file, by name, with the docstring of each; those of a class by `Class::test`."""
    file = ROOT / path
    if not file.is_file():
        return {}
    found: dict[str, str] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{name}": text for name, text in functions(node.body).items()}
    return found | functions(ast.parse(file.read_text()).body)


def functions(body: list[ast.stmt]) -> dict[str, str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    tests = [node for node in body if isinstance(node, kinds) and node.name.startswith("test_")]
    return {node.name: ast.get_docstring(node) or "" for node in tests}


def docstring(test: str) -> str | None:
    """What a test says of itself; None: there is no such test."""
    path, _, name = test.partition("::")
    return found_in(path).get(name)


def named(text: str) -> set[tuple[str, str]]:
    """The sections that a docstring names: each after the number of its seed, up to the next seed or SPEC."""
    found: set[tuple[str, str]] = set()
    parts = re.split(r"\b(seed \d{3}|spec)\b", " ".join(text.lower().split()))
    for who, what in zip(parts[1::2], parts[2::2], strict=True):
        number = who.removeprefix("seed ")
        if number in SECTIONS:
            numbers = {f"§{one}" for one in re.findall(r"(?:§|section )(\d+)", what)}
            words = {
                word for word in SECTIONS[number][1] if not word.startswith("§") and word in what.partition(":")[0]
            }
            found |= {(number, section) for section in numbers | words}
    return found


def test_the_five_documents_stand_there_by_their_titles(page: Page) -> None:
    assert page.titles == {seed: title for seed, (title, _) in SECTIONS.items()}


def test_every_section_stands_there_once_and_has_a_row(page: Page) -> None:
    expected = [(seed, section) for seed, (_, sections) in SECTIONS.items() for section in sections]
    assert page.sections == expected
    assert {(row.seed, row.section) for row in page.rows} == set(expected)


def test_every_module_is_there(page: Page) -> None:
    for row in page.rows:
        assert row.code, row
        for module in row.code:
            path = ROOT / "src" / "lcm" / Path(*module.split("."))
            assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), f"{row.asks}: {module}"


def test_every_test_is_there(page: Page) -> None:
    for row in page.rows:
        assert row.tests, row
        for test in row.tests:
            assert docstring(test) is not None, f"{row.asks}: {test}"


def test_of_every_row_a_test_names_the_section(page: Page) -> None:
    for row in page.rows:
        sections = {section for test in row.tests for section in named(docstring(test) or "")}
        assert (row.seed, row.section) in sections, f"{row.asks}: no test names seed {row.seed} {row.section}"


def test_no_test_names_a_section_that_no_seed_has() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name, text in found_in(str(path.relative_to(ROOT))).items():
            for seed, section in named(text):
                assert section in SECTIONS[seed][1], f"{path.name}::{name}: seed {seed} has no {section}"


def test_every_difference_says_of_what_and_by_which_rule(page: Page) -> None:
    assert len(page.differences) > 10
    for seed, what, why in page.differences:
        assert named(f"seed {seed}") <= {(number, one) for number, (_, all_) in SECTIONS.items() for one in all_}
        assert named(f"seed {seed}"), seed
        assert what
        assert re.search(r"SPEC §\d", why), what


def test_the_reader_notices_what_is_not_there() -> None:
    told = read(
        "## Seed 000: X\n### §1: y\n| what it asks | code | tests |\n|---|---|---|\n| a | `b.c` | `t.py::test_x` |\n"
    )
    assert told.rows == [Row("000", "§1", "a", ("b.c",), ("t.py::test_x",))]
    assert docstring("t.py::test_x") is None
    assert docstring("tests/unit/docs/test_seeds.py::test_not_there") is None
    assert docstring("tests/unit/docs/test_seeds.py::test_every_test_is_there") == ""
    assert docstring("tests/unit/control_plane/secrets/test_box.py::TestBox::test_there_and_back") is not None
    assert named("Seed 000 §3 and §10: x; SPEC §1.5. Seed 004 no grace period and design: alternatives") == {
        ("000", "§3"),
        ("000", "§10"),
        ("004", "no grace period"),
        ("004", "design"),
    }
