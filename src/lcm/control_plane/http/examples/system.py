"""Examples for the OpenAPI document about the manager itself, by the name of the model."""

from __future__ import annotations

from typing import Any

_NOW = "2026-01-17T10:30:00Z"
_STARTED_AT = "2026-01-16T22:30:00Z"
_REPORT: dict[str, Any] = {
    "instance_id": "worker-controller-4k2m",
    "version": "1.0.0",
    "started_at": _STARTED_AT,
    "queue_depth": 2,
    "queue_delayed": 14,
    "queue_wait_seconds": 0.004,
    "in_progress": 3,
    "resources": 210,
    "last_resync_at": "2026-01-17T10:29:48Z",
    "resync_seconds": 0.41,
    "resync_every_seconds": 30.0,
    "watching": True,
    "calls": {"aws": {"DescribeInstances": {"ok": 5760, "throttled": 1}}},
    "throttled": {"aws": 1},
    "counters": {"auto_pause_count": 12},
    "regions": [
        {
            "name": "us-east-1",
            "last_sweep_at": "2026-01-17T10:29:50Z",
            "complete": True,
            "instances": 213,
            "breaker_open": False,
            "trouble": "",
        }
    ],
    "leaks": [],
    "leaks_total": 0,
}


def system_examples() -> dict[str, Any]:
    """What the manager says of itself, and of a night."""
    return {
        "ControllerReport": _REPORT,
        "SystemHealth": {
            "plane": {
                "version": "1.0.0",
                "installation_id": "lcm-3f9k2m1xq0ab",
                "store": "SQLite, lcm.db",
                "coordination": "etcd",
                "regions": ["us-east-1"],
                "started_at": _STARTED_AT,
                "uptime_seconds": 43200.0,
                "mirror": {"lag_seconds": 0.0, "pending": 0, "written": 4120},
                "stream": {"clients": 3, "opened": 41, "events": 9210},
            },
            "controllers": [
                {
                    "name": "worker-controller",
                    "verdict": "healthy",
                    "said": "it reports in time",
                    "term": 4711,
                    "leads_since": _STARTED_AT,
                    "startup_sweep_done": True,
                    "reported_at": "2026-01-17T10:29:52Z",
                    "age_seconds": 8.0,
                    "report": _REPORT,
                }
            ],
            "hold": None,
            "held_workers": 1,
            "breakers": [],
            "leaks": [],
            "leaks_total": 0,
        },
        "ActivitySummary": {
            "since": _STARTED_AT,
            "until": _NOW,
            "complete": True,
            "automation": [
                {"what": "auto_paused", "count": 12, "concerned": [{"id": "w-3f9k2m1xq0ab", "name": "lab-042"}]}
            ],
            "people": [{"what": "stop", "count": 2, "concerned": [{"id": "w-8h2k5m9xq1cd", "name": "lab-007"}]}],
            "saved_usd": 5.92,
            "saved_by_policy_usd": 4.77,
            "saved_by_people_usd": 1.15,
            "stopped_throughout": 31,
            "savers": [
                {"worker_id": "w-3f9k2m1xq0ab", "name": "lab-042", "stopped_seconds": 30600.0, "saved_usd": 0.3536}
            ],
        },
    }
