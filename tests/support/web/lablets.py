"""Lablets for tests of pages: requested over HTTP, placed and reported as controllers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.core import clock
from lcm.model.access import Role
from tests.support.records.lablet_records import READY, TOPOLOGY

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane


class LabletWorld:
    """Users and controllers of a control plane in this process."""

    def __init__(self, plane: TestPlane) -> None:
        self.plane = plane

    async def open(self) -> LabletWorld:
        """Report that the worker controller completed its startup sweep, so that lablets may be placed."""
        swept = {"term": 5, "startup_sweep_done": True}
        await self.plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json=swept)
        return self

    async def define(self, name: str = "ospf", version: str = "1", **facts: Any) -> str:
        """Create a definition."""
        body = {"name": name, "version": version, "topology": TOPOLOGY, "requirements": {"license": False}, **facts}
        answer = await self.plane.ask("POST", "/api/lablet-definitions", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def make(self, name: str, definition: str = "ospf", **facts: Any) -> dict[str, Any]:
        """Create a lablet that waits for a worker."""
        answer = await self.plane.ask("POST", "/api/lablets", json={"name": name, "definition": definition, **facts})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    async def worker(self, name: str = "alpha") -> dict[str, Any]:
        """Create a worker that accepts lablets."""
        ready = [{**READY[0], "since": clock.now().isoformat()}]
        return await self.plane.report(await self.plane.running(name), "RUNNING", conditions=ready)

    async def place(self, lablet: dict[str, Any], worker: dict[str, Any], **placement: Any) -> dict[str, Any]:
        """Assign a lablet to a worker, as the scheduler does."""
        result = {"at": _now(), "worker_id": worker["id"], "score": 0.5, "reason": "the best", **placement}
        item = {"lablet_id": lablet["id"], "version": lablet["version"], "worker_id": worker["id"], "placement": result}
        path = "/api/internal/lablets/schedule"
        answer = await self.plane.ask("POST", path, role=Role.CONTROLLER, json={"items": [item]})
        assert answer.json()["items"][0]["placed"], answer.text
        read = await self.plane.ask("GET", f"/api/internal/lablets/{lablet['id']}", role=Role.CONTROLLER)
        placed: dict[str, Any] = read.json()
        return placed

    async def waits(self, lablet: dict[str, Any], reason: str, **placement: Any) -> dict[str, Any]:
        """Report that the scheduler found no worker."""
        return await self.report(
            lablet, "PENDING_SCHEDULING", placement={"at": _now(), "reason": reason, **placement}, reason=reason[:400]
        )

    async def report(self, lablet: dict[str, Any], status: str, **facts: Any) -> dict[str, Any]:
        """Report a status, as a controller does."""
        body = {"status": status, "version": lablet["version"], "reason": "seen", **facts}
        path = f"/api/internal/lablets/{lablet['id']}/status"
        answer = await self.plane.ask("POST", path, role=Role.CONTROLLER, json=body)
        assert answer.status_code == 200, answer.text
        written: dict[str, Any] = answer.json()
        return written

    async def runs(self, name: str, worker: dict[str, Any], **facts: Any) -> dict[str, Any]:
        """Create a running lablet."""
        lablet = await self.report(await self.place(await self.make(name), worker), "INSTANTIATING")
        return await self.report(lablet, "RUNNING", **facts)

    async def now(self, lablet: dict[str, Any]) -> dict[str, Any]:
        """The current record."""
        found: dict[str, Any] = (await self.plane.ask("GET", f"/api/lablets/{lablet['id']}")).json()
        return found


def _now() -> str:
    return clock.now().isoformat()
