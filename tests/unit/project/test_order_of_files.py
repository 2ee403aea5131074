"""Long files run first; files that wait run beside as many files that compute as there are processors."""

from __future__ import annotations

from pathlib import Path

from tests.support.run.order import COMPUTING, WAITING, Files, longest_first

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


UP, CLI = "tests/integration/up/test_a.py", "tests/integration/cli/test_b.py"
SEEDS, PLAN, UNIT = "tests/simulation/test_c.py", "tests/platform/test_d.py", "tests/unit/test_e.py"


def test_a_file_that_computes_is_handed_out_while_a_processor_is_free() -> None:
    files = Files([f"{name}::test" for name in (UP, SEEDS, CLI, PLAN, UNIT)], in_order=False, processors=2)
    assert files.take([]) == SEEDS
    assert files.take([SEEDS]) == PLAN
    assert files.take([SEEDS, PLAN]) == UP
    assert files.take([SEEDS, UP]) == UNIT
    assert files.take([SEEDS, UP]) == CLI  # nothing else is left
    assert files.take([SEEDS, UP]) is None


def test_without_files_that_wait_all_workers_compute() -> None:
    files = Files([f"{name}::test" for name in (PLAN, UNIT)], in_order=False, processors=1)
    assert [files.take([]), files.take([PLAN])] == [PLAN, UNIT]


def test_a_shuffled_order_is_kept() -> None:
    names = (UNIT, UP, CLI, SEEDS)
    files = Files([f"{name}::test" for name in names], in_order=True, processors=1)
    assert [files.take([*names]) for _ in names] == list(names)


def test_the_tests_of_a_file_are_found_wherever_they_stand() -> None:
    files = Files([f"{UNIT}::test_1", f"{UP}::test_1", f"{UNIT}::test_2"], in_order=True)
    assert files.tests(UNIT) == [0, 2]
