"""Queries of CML in the background: one that fails is logged once, by us and not by asyncio."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs

from lcm.controllers.worker.observe.observation import CmlObservation
from lcm.controllers.worker.observe.observer import WorkerObserver
from tests.support.records.workers import a_worker


async def fail(*_: object, **__: object) -> CmlObservation:
    raise RuntimeError("this transport is closed")


async def test_a_query_that_ends_with_an_error_is_not_left_to_asyncio() -> None:
    parts: dict[str, Any] = dict.fromkeys(("regions", "license_tasks", "launch_resolver", "settings", "on_cml_changed"))
    monitor = SimpleNamespace(query=fail, last_observation=lambda _worker: CmlObservation())
    observer = WorkerObserver(cml_monitor=cast("Any", monitor), **parts)
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
    with capture_logs() as logs:
        observer._query_soon(a_worker(), with_license=False)
        while observer._queries:
            await asyncio.sleep(0)
        gc.collect()
    assert unhandled == []
    assert [(each["event"], each["error"]) for each in logs] == [
        ("a query of CML failed", "RuntimeError: this transport is closed")
    ]
