"""Workers for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lcm.model.worker.record import Worker

NOW = datetime(2026, 1, 17, 10, 30, tzinfo=UTC)


def a_worker(**changes: Any) -> Worker:
    """A newly created worker, with these changes."""
    facts: dict[str, Any] = {
        "id": "w-1",
        "name": "alpha",
        "template_name": "small",
        "aws_region": "eu-west-1",
        "status_since": NOW,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Worker(**{**facts, **changes})
