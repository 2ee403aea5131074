"""A test with virtual time leaves the clock of the machine to later tests, also if it fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]

LEAVES_A_TASK = """
import asyncio
from lcm.core import clock
from tests.support.virtual.time import VirtualClock, START

left = []

async def test_leaves_a_task_running():
    assert clock.now().date() == START.date()
    left.append(asyncio.ensure_future(asyncio.sleep(3600)))
"""
LATER = """
from lcm.core import clock

def test_has_the_clock_of_the_machine():
    assert isinstance(clock._current.get().clock, clock.SystemClock)
"""


def test_a_failed_test_leaves_no_virtual_clock_behind(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("virtual")
    pytester.makeconftest(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.conftest import *\n")
    folder.joinpath("conftest.py").write_text("from tests.platform.conftest import *\n")
    folder.joinpath("test_first.py").write_text(LEAVES_A_TASK)
    pytester.makepyfile(test_later=LATER)
    options = (
        *("-p", "no:cacheprovider", "-p", "no:schemathesis"),
        *("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"),
    )
    result = pytester.runpytest_subprocess(*options, "virtual/test_first.py", "test_later.py")
    result.assert_outcomes(passed=2, errors=1)
