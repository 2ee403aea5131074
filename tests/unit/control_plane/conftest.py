"""Fixtures of the control plane tests."""

from __future__ import annotations

import pytest

from lcm.control_plane.records.kinds import ALL_KINDS
from tests.support.records.worker_records import Desk


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.store.open(ALL_KINDS)
    return desk
