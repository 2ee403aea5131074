"""Lablets on a scripted control plane: the test acts as the users, the scheduler and the lablet controller."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lcm.core import clock
from tests.support.records.lablet_records import TOPOLOGY

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane

NEEDS = {"license": False, "cpu_cores": 0.1, "memory_gb": 0.1, "ports": ["SSH_PORT"]}


def define(plane: ScriptedControlPlane, name: str, version: str, **facts: Any) -> None:
    """Create a version of a definition."""
    body = {"name": name, "version": version, "topology": TOPOLOGY, "requirements": NEEDS, **facts}
    plane.ask("POST", "/api/lablet-definitions", body)


def make(plane: ScriptedControlPlane, name: str, definition: str = "ospf", **facts: Any) -> dict[str, Any]:
    """A lablet without a worker."""
    made: dict[str, Any] = plane.ask("POST", "/api/lablets", {"name": name, "definition": definition, **facts})
    return made


def report(plane: ScriptedControlPlane, lablet: dict[str, Any], status: str, **facts: Any) -> dict[str, Any]:
    """Write a status as the lablet controller or the scheduler."""
    update = {"status": status, "version": now(plane, lablet)["version"], "reason": "seen", **facts}
    written: dict[str, Any] = plane.controller("POST", f"/api/internal/lablets/{lablet['id']}/status", update)
    return written


def place(
    plane: ScriptedControlPlane, lablet: dict[str, Any], worker: dict[str, Any], text: str = "it is STOPPED"
) -> None:
    """Place a lablet as the scheduler; `text` is the reason of a rejection."""
    rejections = [{"worker_id": "w-9", "worker_name": "bravo", "reason": text[:300]}]
    placement = {"at": clock.now().isoformat(), "worker_id": worker["id"], "score": 0.5, "reason": "it is the fullest"}
    item = {"lablet_id": lablet["id"], "worker_id": worker["id"], "version": lablet["version"]}
    batch = {"items": [{**item, "placement": {**placement, "rejections": rejections, "rejected": 1}}]}
    result = plane.controller("POST", "/api/internal/lablets/schedule", batch)
    assert result["items"][0]["placed"], result


def runs(plane: ScriptedControlPlane, name: str, worker: dict[str, Any], definition: str = "ospf") -> dict[str, Any]:
    """A running lablet."""
    lablet = make(plane, name, definition)
    place(plane, lablet, worker)
    report(plane, lablet, "INSTANTIATING", lab_id="5a3f1c")
    return report(plane, lablet, "RUNNING", endpoints=[{"node": "R1", "addresses": ["10.0.0.5"]}])


def now(plane: ScriptedControlPlane, lablet: dict[str, Any]) -> dict[str, Any]:
    """The current record."""
    found: dict[str, Any] = plane.ask("GET", f"/api/lablets/{lablet['id']}")
    return found


def lablet_row(page: Page, lablet: dict[str, Any]) -> Locator:
    """The lablet's row in the list."""
    return page.locator(f"tr[data-lablet='{lablet['id']}']")


def furnish_lablets(plane: ScriptedControlPlane, worker: dict[str, Any], text: str) -> dict[str, dict[str, Any]]:
    """Lablets by name, one per kind of state; `text` is in every field that users, CML or controllers can set."""
    topology = json.dumps(
        {"lab": {"version": "0.2.2"}, "nodes": [{"id": "n0", "label": text, "tags": ["serial:${SSH_PORT}"]}]}
    )
    define(plane, "told", "1", description=text, topology=topology)
    made = {name: make(plane, name, "told", owner=text[:100]) for name in ("waits", "fails", "runs", "stuck", "ends")}
    looked = {"at": clock.now().isoformat(), "reason": text, "rejected": 1}
    rejections = [{"worker_id": text, "worker_name": text, "reason": text}]
    report(plane, made["waits"], "PENDING_SCHEDULING", placement={**looked, "rejections": rejections}, reason=text)
    report(plane, made["fails"], "FAILED", reason=text)
    for name in ("runs", "stuck"):
        place(plane, made[name], worker, text)
        report(plane, made[name], "INSTANTIATING", reason=text)
    seen = [{"node": text[:128], "addresses": [text[:64]]}]
    report(plane, made["runs"], "RUNNING", endpoints=seen, message=text, lab_id=text[:64])
    plane.ask("POST", f"/api/lablets/{made['stuck']['id']}/terminate", {"reason": text})
    report(plane, made["stuck"], "STOPPING", message=f"Stuck: {text}")
    plane.ask("POST", f"/api/lablets/{made['ends']['id']}/terminate", {"reason": text})
    return {name: now(plane, lablet) for name, lablet in made.items()}
