"""What holds for all tests that use real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test answer for a socket that a driver of another test left to the garbage collector.

    The drivers of MongoDB and AWS do so when a server goes away while they connect. LCM itself connects by the event
    loop's transports, and one of those that is not closed still fails the test.
    """
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
