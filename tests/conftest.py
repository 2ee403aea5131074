"""In CI nothing is skipped and nothing is expected to fail: what a test needs must be there."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped or expected to fail, which CI does not allow: {report.longrepr}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test a name of its own: of several that share one, only the first would be handed to a worker."""
    seen: Counter[str] = Counter()
    for item in items:
        seen[item.nodeid] += 1
        if seen[item.nodeid] > 1:
            item._id = type(item.id).parse(f"{item.nodeid}[{seen[item.nodeid]}]")
    assert len({item.nodeid for item in items}) == len(items)
