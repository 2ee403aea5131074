"""Fixtures of the auth tests: a store, and services on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.auth.session_record import SESSIONS
from lcm.control_plane.auth.tokens import TOKENS, TokenService
from lcm.control_plane.records.kinds import SIGN_IN_LINKS
from tests.support.records.gated_store import GatedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def store() -> GatedStore:
    opened = GatedStore()
    await opened.open([TOKENS, SESSIONS, SIGN_IN_LINKS])
    return opened


@pytest.fixture
async def tokens(store: GatedStore) -> AsyncIterator[TokenService]:
    made = TokenService(store)
    yield made
    await made.close()
