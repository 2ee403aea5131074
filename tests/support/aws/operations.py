"""Records which operations the adapter calls, from botocore's events before each call."""

from __future__ import annotations

from typing import Any

from lcm.cloud.aws import clients

RECORDED: set[str] = set()

_PREFIXES = {"EC2": "ec2", "CloudWatch": "cloudwatch", "STS": "sts"}
_new_session = clients._base_session


def record() -> None:
    """From now on, record the operations of every session that the adapter creates in this process."""
    clients._base_session = _recording_session


def _recording_session() -> Any:
    session = _new_session()
    session.register("before-call", _note)
    return session


def _note(**announced: Any) -> None:
    model = announced["model"]
    RECORDED.add(f"{_PREFIXES[model.service_model.service_id]}:{model.name}")
