"""What tests of the control plane share."""

from __future__ import annotations

import pytest

from lcm.control_plane.kinds import ALL_KINDS
from tests.support.desk import Desk


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.store.open(ALL_KINDS)
    return desk
