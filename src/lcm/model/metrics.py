"""Figures of one worker at one moment."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from lcm.model.base import Answer, Moment

Share = Annotated[float, Field(ge=0, le=100)]
Amount = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class MetricsSample(Answer):
    """What was measured; a source that failed leaves its figures out."""

    worker_id: str
    instance_id: str
    collected_at: Moment
    cpu_utilization: Share | None = None
    memory_utilization: Share | None = None
    disk_utilization: Share | None = None
    network_in: Amount | None = None
    network_out: Amount | None = None
    disk_read: Amount | None = None
    disk_write: Amount | None = None
    labs_count: Count | None = None
    nodes_count: Count | None = None
    running_nodes: Count | None = None
    system_info: dict[str, Any] | None = None
    cml_version: Annotated[str, Field(max_length=64)] | None = None
