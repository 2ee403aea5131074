"""Processor time of a request in the control plane: the app called in this process, on SQLite, without a network.

The time that people wait depends on what else the host does, processor time hardly does. Each figure stands beside that
of the same request through the framework's own routes: both take turns, in one run.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.store import REGIONS, fill
from benchmarks.support.control_plane import STATUSES, record, worker_id
from benchmarks.support.output import report
from lcm.control_plane.app import make_app
from lcm.control_plane.http import routing
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.core.hosting import run_process
from lcm.model.access import Role
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.control_plane import LEADER, VERSION, serving_plane

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from starlette.types import ASGIApp

    Ask: TypeAlias = Callable[["Caller"], Awaitable[None]]

WORKERS = 2_000
REQUESTS = 200
ROUNDS = 12
PAGE = 100
_RUNNING = STATUSES.index(WorkerStatus.RUNNING)


class Caller:
    """Calls an app as a server does, and keeps nothing of the response but its body."""

    def __init__(self, app: ASGIApp, tokens: dict[Role, str]) -> None:
        self._app = app
        self._tokens = tokens

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of the response, which must be a success."""
        path, _, query = path.partition("?")
        role = Role.CONTROLLER if path.startswith("/api/internal") else Role.VIEWER
        headers = {"host": "lcm.test", "authorization": f"Bearer {self._tokens[role]}", "accept": "*/*"}
        if body:
            headers |= {"content-type": "application/json", "content-length": str(len(body)), **LEADER}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("192.0.2.1", 40_000),
            "server": ("192.0.2.2", 80),
        }
        parts: list[bytes] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            assert message.get("status", 200) < 300, message
            parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return b"".join(parts)


class Requests:
    """The requests that are measured, each to another worker than the one before."""

    def __init__(self) -> None:
        self._numbers = count()
        self._versions: dict[str, int] = {}

    async def page(self, caller: Caller) -> None:
        region = REGIONS[next(self._numbers) % len(REGIONS)]
        body = await caller.ask("GET", f"/api/workers?status=RUNNING,STOPPED&limit={PAGE}&aws_region={region}")
        assert len(body) > PAGE * 1_000

    async def one(self, caller: Caller) -> None:
        await caller.ask("GET", f"/api/workers/{worker_id(next(self._numbers) % WORKERS)}")

    async def context(self, caller: Caller) -> None:
        await caller.ask("GET", f"/api/internal/workers/{worker_id(next(self._numbers) % WORKERS)}/context")

    async def status(self, caller: Caller) -> None:
        """What a controller saw: another address of a running worker."""
        number = next(self._numbers)
        worker = worker_id((number * len(STATUSES) + _RUNNING) % WORKERS)
        version = self._versions.get(worker, 1)
        address = f"192.0.2.{number * len(STATUSES) // WORKERS % 256}"
        update = {"status": "RUNNING", "version": version, "reason": "seen", "public_ip": address}
        written = await caller.ask("POST", f"/api/internal/workers/{worker}/status", json.dumps(update).encode())
        self._versions[worker] = json.loads(written)["version"]


async def compare(name: str, ask: Ask, ours: Caller, framework: Caller) -> None:
    """Microseconds of processor time in all threads."""
    took: dict[Caller, list[float]] = {ours: [], framework: []}
    for _ in range(ROUNDS):
        for caller, each in took.items():
            began = time.process_time()
            for _ in range(REQUESTS):
                await ask(caller)
            each.append((time.process_time() - began) * 1e6 / REQUESTS)
    mine, theirs = statistics.median(took[ours]), statistics.median(took[framework])
    beside = f"{theirs:.0f} µs by the framework's own routes: {theirs / mine:.2f} times as much"
    report(f"processor time: {name}", mine, "µs", beside=beside)


async def measure() -> int:
    requests = Requests()
    kinds: dict[str, Ask] = {
        f"page of {PAGE} from {WORKERS:,} workers": requests.page,
        "one worker": requests.one,
        "one worker with holds and settings": requests.context,
        "status write of a controller": requests.status,
    }
    with tempfile.TemporaryDirectory() as folder:
        async with serving_plane(store=SqliteStore(Path(folder) / "lcm.db")) as plane:
            await fill(plane.services.context.store, record, WORKERS)
            with patch.object(routing, "plan_route", return_value=None):
                framework = make_app(plane.services, VERSION)
            ours, theirs = Caller(plane.app, plane.tokens), Caller(framework, plane.tokens)
            for name, ask in kinds.items():
                await compare(name, ask, ours, theirs)
    return 0


def main() -> None:
    if status := run_process(measure()):
        sys.exit(status)
