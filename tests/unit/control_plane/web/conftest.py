"""A control plane with its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.virtual.control_plane import TestPlane


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane
