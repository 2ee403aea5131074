"""Examples for the OpenAPI document, by the name of the model. Each one is taken by the API as it stands here."""

from __future__ import annotations

from typing import Any

from lcm.control_plane.http.examples.lablets import lablet_examples
from lcm.control_plane.http.examples.system import system_examples

_NOW = "2026-01-17T10:30:00Z"
_WORKER_ID = "w-3f9k2m1xq0ab"
_INSTANCE_ID = "i-0f3a91c2d4e5b6a78"
_ANNA = {"kind": "person", "name": "anna"}
_CONTROLLER = {"kind": "controller", "name": "worker-controller"}
_HOLD = {"reason": "exam in room 4", "by": "anna", "since": _NOW, "until": "2026-01-17T14:00:00Z"}
_CONDITION = {
    "type": "CmlReady",
    "status": "True",
    "reason": "answers",
    "message": "CML 2.9.0 answers",
    "since": "2026-01-17T09:04:10Z",
}
_DECISION = {
    "rule": "running.steady",
    "reason": "it runs as wanted and CML answers",
    "inputs": {"ec2_state": "running"},
    "actions": [],
    "decided_at": _NOW,
    "next_look_at": "2026-01-17T10:30:30Z",
}
_TRANSITION = {
    "at": "2026-01-17T09:01:42Z",
    "worker_id": _WORKER_ID,
    "from_status": "STARTING",
    "to_status": "RUNNING",
    "reason": "the instance is running and has an address",
    "actor": _CONTROLLER,
    "version": 4,
}
_CAPACITY = {"cpu_cores": 2, "memory_gb": 4.0, "storage_gb": 100.0, "max_nodes": 15}
_WORKER_RECORD: dict[str, Any] = {
    "id": _WORKER_ID,
    "name": "lab-042",
    "template_name": "medium",
    "aws_region": "us-east-1",
    "aws_account_id": "123456789012",
    "status": "RUNNING",
    "status_since": "2026-01-17T09:01:42Z",
    "desired_status": "RUNNING",
    "ready": True,
    "conditions": [_CONDITION],
    "instance_id": _INSTANCE_ID,
    "instance_type": "t3.medium",
    "public_ip": "192.0.2.7",
    "private_ip": "10.0.1.23",
    "launch_attempt": 1,
    "tags": {"course": "ccna"},
    "license_status": "registered",
    "has_license_token": True,
    "last_activity_at": "2026-01-17T10:11:05Z",
    "last_resumed_at": "2026-01-17T09:01:42Z",
    "capacity": _CAPACITY,
    "cost_per_hour_usd": 0.0416,
    "cml_version": "2.9.0",
    "version": 6,
    "generation": 1,
    "created_at": "2026-01-17T08:58:30Z",
    "updated_at": "2026-01-17T09:04:10Z",
}
_TEMPLATE = {
    "name": "medium",
    "description": "2 CPU, 4 GB memory, 100 GB disk, up to 15 nodes",
    "instance_type": "t3.medium",
    "ami_name_pattern": "cml-2.9*",
    "capacity": _CAPACITY,
    "cost_per_hour_usd": 0.0416,
    "enabled": True,
}
_TOKEN = {
    "id": "t-8h2k5m9xq1cd",
    "name": "ci",
    "role": "operator",
    "created_at": _NOW,
    "created_by": "anna",
    "expires_at": "2036-01-17T10:30:00Z",
}
_SAMPLE = {
    "worker_id": _WORKER_ID,
    "instance_id": _INSTANCE_ID,
    "collected_at": _NOW,
    "cpu_utilization": 12.5,
    "memory_utilization": 48.0,
    "disk_utilization": 31.0,
    "labs_count": 3,
    "nodes_count": 11,
    "running_nodes": 7,
    "cml_version": "2.9.0",
}
_AUDIT = {
    "at": _NOW,
    "actor": _ANNA,
    "action": "stop",
    "subject": _WORKER_ID,
    "reason": "evening",
    "details": {},
}
_BREAKER = {
    "region": "us-east-1",
    "open": True,
    "reason": "9 of 20 workers would be marked as lost at once",
    "since": _NOW,
    "affected": 9,
}
_LEADER = {"controller": "worker-controller", "term": 4711, "announced_at": _NOW, "startup_sweep_done": True}


def worker_examples() -> dict[str, Any]:
    """All of them."""
    ours = {**_people_requests(), **_controller_requests(), **_worker_responses(), **_fleet_responses()}
    return {**ours, **system_examples(), **lablet_examples()}


def _page(*items: object) -> dict[str, object]:
    return {"items": list(items), "next_cursor": None}


def _people_requests() -> dict[str, Any]:
    """What people ask."""
    return {
        "CreateWorkerRequest": {"name": "lab-042", "template_name": "medium", "tags": {"course": "ccna"}},
        "UpdateWorkerRequest": {"tags": {"course": "ccnp"}, "idle_detection_enabled": False},
        "CommandRequest": {"reason": "evening"},
        "HoldRequest": {"reason": "exam in room 4"},
        "LicenseRequest": {"operation": "register", "token": "ZWJjM2Y5azJtMXhxMGFi"},
        "WorkerTemplate": _TEMPLATE,
        "FleetSettingsPatch": {"idle": {"worker_idle_timeout_minutes": 90}, "scaling": {"min_workers": 2}},
        "CreateTokenRequest": {"name": "ci", "role": "operator", "expires_at": _TOKEN["expires_at"]},
        "SignInRequest": {"token": "lcm_t-8h2k5m9xq1cd_made-up"},
    }


def _controller_requests() -> dict[str, Any]:
    """What controllers report and ask."""
    return {
        "LeadershipAnnouncement": {"term": 4711},
        "WorkerStatusUpdate": {
            "status": "RUNNING",
            "version": 4,
            "reason": "the instance is running and has an address",
            "public_ip": "192.0.2.7",
            "conditions": [_CONDITION],
            "decision": _DECISION,
        },
        "LaunchIntentRequest": {"version": 1, "attempt": 1, "parameters": {"ImageId": "ami-0a1b2c3d", "SubnetId": "subnet-1"}},
        "MetricsBatch": {"items": [_SAMPLE]},
        "DecisionBatch": {"items": [{"worker_id": _WORKER_ID, "decision": _DECISION}]},
        "IdleDetectionRequest": {
            "events": [{"category": "start_lab", "at": "2026-01-17T10:11:05Z", "user_id": "u-1"}],
            "observed_at": _NOW,
        },
        "DrainRequest": {"reason": "idle for 90 minutes"},
        "LicenseStatusUpdate": {"status": "registered", "clear_pending": True, "message": "Registration completed"},
        "ImportWorkerRequest": {
            "instance_id": _INSTANCE_ID,
            "aws_region": "us-east-1",
            "name": "found-by-tag",
            "instance_type": "t3.medium",
            "status": "RUNNING",
            "public_ip": "192.0.2.7",
        },
        "ScaleUpRequest": {"template": "medium", "reason": "lablet l-7 fits nowhere", "for": "l-7"},
        "CreateAuditEntryRequest": {"action": "skipped_not_idle", "subject": _WORKER_ID, "reason": "used 4 minutes ago"},
        "BreakerReport": {
            "region": "us-east-1",
            "open": True,
            "reason": _BREAKER["reason"],
            "affected": [_WORKER_ID],
        },
    }


def _worker_responses() -> dict[str, Any]:
    """Answers about workers, templates and access."""
    return {
        "Worker": _WORKER_RECORD,
        "WorkerPage": _page(_WORKER_RECORD),
        "HistoryPage": _page(_TRANSITION),
        "MetricsPage": _page(_SAMPLE),
        "Explanation": {
            "worker_id": _WORKER_ID,
            "summary": (
                "lab-042 has been RUNNING for 1 hour 28 minutes and is ready. For 12 seconds the controller has"
                " said: it runs as wanted and CML answers. Nobody has used it for 19 minutes; it is paused at about"
                " 11:11 UTC, in 41 minutes, unless somebody uses it."
            ),
            "next": (
                "Nobody has used it for 19 minutes; it is paused at about 11:11 UTC, in 41 minutes, unless somebody"
                " uses it."
            ),
            "status": "RUNNING",
            "desired_status": "RUNNING",
            "ready": True,
            "conditions": [_CONDITION],
            "hold": None,
            "last_transition": _TRANSITION,
            "decision": _DECISION,
        },
        "TemplatePage": _page(_TEMPLATE),
        "CallerIdentity": {"name": "anna", "role": "admin", "kind": "token", "expires_at": None},
        "TokenInfo": _TOKEN,
        "TokenList": _page(_TOKEN),
        "SignInLink": {"path": "/sign-in#made-up", "expires_at": "2026-01-17T10:40:00Z"},
        "CreatedToken": {"token": "lcm_t-8h2k5m9xq1cd_made-up", "info": _TOKEN},
        "SignInResponse": {"name": "anna", "role": "admin", "csrf": "made-up"},
        "SecretRotationResult": {"rotated": 214, "already": 12, "unreadable": []},
        "RevealedLicenseToken": {"token": "ZWJjM2Y5azJtMXhxMGFi"},
        "CmlCredentials": {"username": "lcm", "password": "made-up"},
        "BatchResult": {"kept": 998, "dropped": 2},
        "IdleDetectionResult": {
            "worker_id": _WORKER_ID,
            "checked_at": _NOW,
            "telemetry_fetched": True,
            "activity_updated": True,
            "idle_check_performed": True,
            "idle_minutes": 18.9,
        },
        "Ack": {"kept": True},
    }


def _fleet_responses() -> dict[str, Any]:
    return {
        "FleetSummary": {
            "workers": 21,
            "ready": 17,
            "problems": 1,
            "by_status": {"RUNNING": 18, "STOPPED": 3},
            "by_region": {"us-east-1": {"RUNNING": 18, "STOPPED": 3}},
            "lablets_by_status": {"RUNNING": 54, "PENDING_SCHEDULING": 2},
            "capacity": {"cpu_cores": 34, "memory_gb": 68.0, "storage_gb": 1700.0, "max_nodes": 255},
            "cost_per_hour_usd": 0.7488,
            "saved_per_hour_usd": 0.1248,
            "saved_total_usd": 91.34,
            "hold": None,
            "held_workers": 1,
            "breakers": [],
            "leaders": [_LEADER],
        },
        "FleetPlan": _page(
            {
                "worker_id": _WORKER_ID,
                "name": "lab-042",
                "status": "RUNNING",
                "desired_status": "RUNNING",
                "decision": _DECISION,
            }
        ),
        "FleetState": {
            "hold": _HOLD,
            "breakers": {"us-east-1": _BREAKER},
            "last_scale_down_at": None,
            "departures": 37,
        },
        "AuditPage": _page(_AUDIT),
        "FleetSettings": {
            "idle": {"worker_idle_timeout_minutes": 90.0, "worker_auto_pause_enabled": True},
            "discovery": {"drift_policy": "restore"},
            "scaling": {"min_workers": 2},
        },
        "LeadershipTerm": _LEADER,
        "LeaderPage": _page(_LEADER),
        "LeadershipReset": {"controller": "worker-controller"},
        "Installation": {"installation_id": "lcm-3f9k2m1xq0ab"},
    }
