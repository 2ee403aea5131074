"""Metrics of workers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from lcm.model.base import WHOLE_NUMBER, LenientModel, UtcDatetime

Percentage = Annotated[float, Field(ge=0, le=100, strict=True)]
NonNegativeFloat = Annotated[float, Field(ge=0, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**53), WHOLE_NUMBER]


class MetricsSample(LenientModel):
    """The metrics of one worker at one time; values of a source that failed are missing."""

    worker_id: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    instance_id: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    collected_at: UtcDatetime
    cpu_utilization: Percentage | None = None
    memory_utilization: Percentage | None = None
    disk_utilization: Percentage | None = None
    network_in: NonNegativeFloat | None = None
    network_out: NonNegativeFloat | None = None
    disk_read: NonNegativeFloat | None = None
    disk_write: NonNegativeFloat | None = None
    labs_count: NonNegativeInt | None = None
    nodes_count: NonNegativeInt | None = None
    running_nodes: NonNegativeInt | None = None
    system_info: dict[str, Any] | None = None
    cml_version: Annotated[str, Field(max_length=64)] | None = None


class BatchResult(LenientModel):
    """The result of a batch: how many items were stored and how many were dropped."""

    kept: int
    dropped: int
