"""Examples of lablets and their definitions for the OpenAPI document, by the name of the model."""

from __future__ import annotations

from typing import Any

_NOW = "2026-01-17T10:30:00Z"
_WORKER_ID = "w-3f9k2m1xq0ab"
_LABLET_ID = "l-5h1c8r2vt7ze"
_TOPOLOGY = (
    "lab:\n  title: OSPF basics\n  version: 0.1.0\nnodes:\n"
    "  - id: n0\n    label: R1\n    node_definition: iosv\n    tags: ['serial:${CONSOLE_1}']\n"
)
_REQUIREMENTS = {
    "cpu_cores": 1.0,
    "memory_gb": 2.0,
    "storage_gb": 4.0,
    "nodes": 1,
    "license": True,
    "cml_version": ">=2.7,<3",
    "node_definitions": ["iosv"],
    "ports": ["CONSOLE_1"],
}
_SUMMARY = {
    "id": "ospf-basics@1.2",
    "name": "ospf-basics",
    "version": "1.2",
    "description": "Two areas, one router",
    "requirements": _REQUIREMENTS,
    "time_to_live_minutes": 240.0,
    "enabled": True,
    "created_at": _NOW,
    "created_by": "anna",
}
_REJECTION = {"worker_id": "w-7k2p0s4fd9qm", "worker_name": "lab-007", "reason": "needs 1 CPU core, 0.5 are left"}
_PLACEMENT = {
    "at": "2026-01-17T10:30:01Z",
    "worker_id": _WORKER_ID,
    "score": 0.61,
    "reason": "the fullest of 3 workers that fit",
    "rejections": [_REJECTION],
    "rejected": 1,
}
_LABLET_RECORD: dict[str, Any] = {
    "id": _LABLET_ID,
    "name": "ospf-anna",
    "owner": "anna",
    "definition": "ospf-basics@1.2",
    "requirements": _REQUIREMENTS,
    "status": "RUNNING",
    "status_since": "2026-01-17T10:32:40Z",
    "wanted": True,
    "worker_id": _WORKER_ID,
    "ports": {"CONSOLE_1": 20000},
    "lab_id": "5a3f1c",
    "endpoints": [{"node": "R1", "addresses": ["10.10.0.7"]}],
    "lost_worker_policy": "reschedule",
    "placement_attempt": 1,
    "placement": _PLACEMENT,
    "ends_at": "2026-01-17T14:30:00Z",
    "time_to_live_minutes": 240.0,
    "running_since": "2026-01-17T10:32:40Z",
    "version": 4,
    "generation": 1,
    "created_at": _NOW,
    "updated_at": "2026-01-17T10:32:40Z",
}
_TRANSITION = {
    "at": "2026-01-17T10:32:40Z",
    "lablet_id": _LABLET_ID,
    "from_status": "INSTANTIATING",
    "to_status": "RUNNING",
    "reason": "all nodes have booted",
    "actor": {"kind": "controller", "name": "lablet-controller"},
    "version": 4,
    "worker_id": _WORKER_ID,
}


def lablet_examples() -> dict[str, Any]:
    """All of them."""
    return {**_requests(), **_responses()}


def _requests() -> dict[str, Any]:
    return {
        "CreateDefinitionRequest": {
            "name": "ospf-basics",
            "version": "1.2",
            "description": _SUMMARY["description"],
            "topology": _TOPOLOGY,
            "requirements": _REQUIREMENTS,
            "time_to_live_minutes": 240.0,
        },
        "CreateLabletRequest": {"name": "ospf-anna", "definition": "ospf-basics", "time_to_live_minutes": 240.0},
        "PlacementBatch": {
            "items": [{"lablet_id": _LABLET_ID, "version": 1, "worker_id": _WORKER_ID, "placement": _PLACEMENT}]
        },
        "LabletStatusUpdate": {
            "status": "RUNNING",
            "version": 3,
            "reason": _TRANSITION["reason"],
            "lab_id": "5a3f1c",
            "endpoints": _LABLET_RECORD["endpoints"],
        },
        "ReleaseLabletRequest": {"status": "PENDING_SCHEDULING", "version": 4, "reason": "its worker was terminated"},
    }


def _responses() -> dict[str, Any]:
    return {
        "Lablet": _LABLET_RECORD,
        "LabletPage": {"items": [_LABLET_RECORD], "next_cursor": None},
        "LabletHistoryPage": {"items": [_TRANSITION], "next_cursor": None},
        "LabletDefinition": {**_SUMMARY, "topology": _TOPOLOGY},
        "DefinitionPage": {"items": [_SUMMARY], "next_cursor": None},
        "PlacementBatchResult": {"items": [{"lablet_id": _LABLET_ID, "placed": True, "lablet": _LABLET_RECORD}]},
        "LabletPreview": {
            "definition": "ospf-basics@1.2",
            "requirements": _REQUIREMENTS,
            "outcome": "launch",
            "reason": "no worker fits now; a small would be launched in us-east-1",
            "rejections": [_REJECTION],
            "rejected": 1,
            "template": "small",
            "aws_region": "us-east-1",
            "cost_per_hour_usd": 0.0208,
        },
    }
