"""Long files run first; files that wait alternate with files that compute."""

from __future__ import annotations

from pathlib import Path

from tests.support.run.order import COMPUTING, WAITING, longest_first

ROOT = Path(__file__).parents[3]


def test_waiting_and_computing_files_take_turns_and_unit_tests_come_last() -> None:
    collected = [
        "tests/contract/store/test_a.py::test_1",
        "tests/integration/controllers/worker/test_b.py::test_1",
        "tests/integration/up/test_c.py::test_1",
        "tests/platform/test_d.py::test_2",
        "tests/platform/test_d.py::test_1",
        "tests/simulation/test_e.py::test_1",
        "tests/unit/test_f.py::test_1",
    ]
    assert longest_first(collected, str) == [
        "tests/integration/controllers/worker/test_b.py::test_1",
        "tests/simulation/test_e.py::test_1",
        "tests/integration/up/test_c.py::test_1",
        "tests/platform/test_d.py::test_2",
        "tests/platform/test_d.py::test_1",
        "tests/contract/store/test_a.py::test_1",
        "tests/unit/test_f.py::test_1",
    ]


def test_every_named_start_exists() -> None:
    named = (*WAITING, *COMPUTING)
    assert [start for start in named if not (ROOT / start).is_dir() and not (ROOT / f"{start}.py").is_file()] == []
