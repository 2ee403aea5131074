"""Long files run first; what waits runs beside as many files or tests that compute as there are processors."""

from __future__ import annotations

from pathlib import Path

from tests.support.run.order import COMPUTING, TEST_BY_TEST, WAITING, Batches, longest_first

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
        "tests/contract/store/test_a.py::test_1",
        "tests/platform/test_d.py::test_2",
        "tests/platform/test_d.py::test_1",
        "tests/unit/test_f.py::test_1",
    ]


def test_every_named_start_exists() -> None:
    named = (*WAITING, *COMPUTING, *TEST_BY_TEST)
    assert [start for start in named if not (ROOT / start).is_dir() and not (ROOT / f"{start}.py").is_file()] == []


UP, CLI = "tests/integration/up/test_a.py", "tests/integration/cli/test_b.py"
SEEDS, PLAN, UNIT = "tests/contract/test_c.py", "tests/integration/test_d.py", "tests/unit/test_e.py"


def test_a_file_that_computes_is_handed_out_while_a_processor_is_free() -> None:
    batches = Batches([f"{name}::test" for name in (UP, SEEDS, CLI, PLAN, UNIT)], in_order=False, processors=2)
    assert batches.take([]) == SEEDS
    assert batches.take([SEEDS]) == PLAN
    assert batches.take([SEEDS, PLAN]) == UP
    assert batches.take([SEEDS, UP]) == UNIT
    assert batches.take([SEEDS, UP]) == CLI  # nothing else is left
    assert batches.take([SEEDS, UP]) is None


def test_without_files_that_wait_all_workers_compute() -> None:
    batches = Batches([f"{name}::test" for name in (PLAN, UNIT)], in_order=False, processors=1)
    assert [batches.take([]), batches.take([PLAN])] == [PLAN, UNIT]


def test_a_shuffled_order_is_kept() -> None:
    names = (UNIT, UP, CLI, SEEDS)
    batches = Batches([f"{name}::test" for name in names], in_order=True, processors=1)
    assert [batches.take([*names]) for _ in names] == list(names)


def test_the_tests_of_a_file_are_found_wherever_they_stand() -> None:
    batches = Batches([f"{UNIT}::test_1", f"{UP}::test_1", f"{UNIT}::test_2"], in_order=True)
    assert batches.tests(UNIT) == [0, 2]


def test_tests_that_share_no_server_are_handed_out_one_by_one() -> None:
    first, second = "tests/platform/test_d.py::test_1", "tests/platform/test_d.py::test_2[case]"
    batches = Batches([first, f"{UNIT}::test_1", second, f"{UNIT}::test_2"], in_order=False, processors=2)
    assert [batches.take([]) for _ in range(4)] == [first, UNIT, second, None]
    assert [batches.tests(name) for name in (first, UNIT, second)] == [[0], [1, 3], [2]]
