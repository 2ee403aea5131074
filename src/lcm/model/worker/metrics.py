"""Figures of one worker at one moment."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from lcm.model.base import WHOLE, Answer, Moment

Share = Annotated[float, Field(ge=0, le=100, strict=True)]
Amount = Annotated[float, Field(ge=0, strict=True)]
Count = Annotated[int, Field(ge=0, le=2**53), WHOLE]


class MetricsSample(Answer):
    """What was measured; a source that failed leaves its figures out."""

    worker_id: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    instance_id: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
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


class BatchResult(Answer):
    """What became of a batch, such as of figures."""

    kept: int
    dropped: int
