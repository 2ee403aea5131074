"""A leader that is suspended in the middle of its calls sends nothing after it wakes up.

The full drill, twenty stops and twenty launches, is `python -m benchmarks suspended_leader`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.support.real.suspended_leader import SuspensionDrill
from tests.support.real.worker_platform import real_platform

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuspensionDrill]:
    with real_platform(tmp_path_factory.mktemp("suspension"), "one", "two") as platform:
        yield SuspensionDrill(platform, random.Random("suspension"))


def test_a_suspended_leader_stops_nothing_after_it_wakes_up(drill: SuspensionDrill) -> None:
    """controllers.md#authorization: the worker is to run again, and its instance does."""
    worker_id = drill._platform.create()
    rounds = [drill.stop(worker_id) for _ in range(3)]
    assert [each.after_its_lease for each in rounds] == [0, 0, 0], rounds


def test_a_suspended_leader_launches_nothing_after_it_wakes_up(drill: SuspensionDrill) -> None:
    """controllers.md#authorization: the workers are to be terminated, and get no instances."""
    rounds = [drill.launch()[0] for _ in range(2)]
    assert [each.after_its_lease for each in rounds] == [0, 0], rounds
