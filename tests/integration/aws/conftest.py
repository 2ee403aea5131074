"""AWS's API over real HTTP. The called operations are recorded and compared with the IAM policy at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.aws import operations
from tests.support.aws.conformance_aws import AwsBed, open_bed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LAST = "test_iam_policy.py"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The test of the policy runs after all other tests of the session."""
    items.sort(key=lambda item: item.path.name == _LAST)


@pytest.fixture(autouse=True, scope="session")
def _recording() -> None:
    operations.record()


@pytest.fixture
async def bed() -> AsyncIterator[AwsBed]:
    async with open_bed() as opened:
        yield opened
