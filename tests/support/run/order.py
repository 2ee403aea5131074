"""What is handed out to workers, and in which order: the longest first, what waits beside what computes.

Some files wait for processes and leases most of the time, others need a processor for themselves. If the waiting ones
ran side by side, processors would idle, and later be too few. A file whose tests share no server is handed out test by
test: at the end of a run no worker is left with a long one while the others idle.
"""

from __future__ import annotations

import os
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

WAITING = (
    "tests/integration/controllers/lablet/test_fifty_lablets",
    "tests/integration/controllers/worker/test_whole_path",
    "tests/integration/controllers/worker/test_shared_reads",
    "tests/integration/controllers",
    "tests/integration/up",
    "tests/soak",
    "tests/integration/core",
    "tests/integration/cli",
    "tests/integration/run",
    "tests/integration/store",
    "tests/integration/coordination",
)
COMPUTING = (
    "tests/integration/control_plane/test_schemathesis",
    "tests/integration/browser/test_accessibility",
    "tests/simulation/test_seeds",
    "tests/simulation",
    "tests/platform/test_fifty_lablets",
    "tests/integration/browser",
    "tests/integration",
    "tests/contract",
    "tests/platform",
)
TEST_BY_TEST = ("tests/simulation", "tests/platform")


class Batches:
    """Files and single tests of a run, handed out so that there is something to compute while others wait."""

    def __init__(self, node_ids: Sequence[str], *, in_order: bool, processors: int | None = None) -> None:
        self._tests: dict[str, list[int]] = {}
        for number, node_id in enumerate(node_ids):
            self._tests.setdefault(_batch(node_id), []).append(number)
        self._processors = processors or len(os.sched_getaffinity(0))
        self._is_waiting = {} if in_order else {name: name.startswith(WAITING) for name in self._tests}
        self._left = list(self._tests)

    def take(self, under_way: Sequence[str]) -> str | None:
        """The next batch: one that computes while a processor is free, else one that waits."""
        computing = sum(not self._is_waiting.get(name, False) for name in under_way)
        wanted = computing >= self._processors
        fitting = (name for name in self._left if self._is_waiting.get(name, wanted) == wanted)
        taken = next(fitting, self._left[0] if self._left else None)
        if taken is not None:
            self._left.remove(taken)
        return taken

    def tests(self, name: str) -> list[int]:
        """The positions of a batch's tests in the run."""
        return self._tests[name]


def _batch(node_id: str) -> str:
    return node_id if node_id.startswith(TEST_BY_TEST) else _file(node_id)


def _file(node_id: str) -> str:
    return node_id.partition("::")[0]


def longest_first(items: Sequence[T], node_id: Callable[[T], str]) -> list[T]:
    """Waiting and computing files in turn, then the rest: unit tests are many and short, and fill what is left."""
    files: dict[str, list[T]] = {}
    for item in items:
        files.setdefault(_file(node_id(item)), []).append(item)
    waiting = _ranked(list(files), WAITING)
    computing = _ranked([name for name in files if name not in waiting], COMPUTING)
    in_turn = [name for pair in zip_longest(waiting, computing) for name in pair if name is not None]
    rest = [name for name in files if name not in in_turn]
    return [item for name in (*in_turn, *rest) for item in files[name]]


def _ranked(files: Sequence[str], starts: tuple[str, ...]) -> list[str]:
    """The files that start like this, in this order."""
    ranks = {name: next((rank for rank, start in enumerate(starts) if name.startswith(start)), None) for name in files}
    return [name for _, name in sorted((rank, name) for name, rank in ranks.items() if rank is not None)]
