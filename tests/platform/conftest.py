"""The whole platform in one process. Time is virtual, but hours of it take seconds: too long for unit tests."""

from __future__ import annotations

from tests.unit.conftest import (
    clock_is_reset,
    pytest_asyncio_loop_factories,
    registry,
    virtual_clock,
)

__all__ = ["clock_is_reset", "pytest_asyncio_loop_factories", "registry", "virtual_clock"]
