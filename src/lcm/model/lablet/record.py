"""One lab run for one person, what it is made from, and what it takes of a worker."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from lcm.model.base import (
    WHOLE_NUMBER,
    LenientModel,
    Reason,
    ResourceName,
    SingleLineText,
    StrictBool,
    StrictModel,
    UtcDatetime,
)
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, LabletStatus, LostWorkerPolicy
from lcm.model.worker.requests import InstanceId, RecordVersion
from lcm.model.worker.template import Allocation as Allocation  # worker.py needs it without this module

MAX_TOPOLOGY_LENGTH = 1_000_000
MAX_PORTS = 64
MAX_REQUIRED_NODE_DEFINITIONS = 100
MAX_REJECTIONS = 200
MAX_PLACEMENTS = 1_000
MAX_ABANDONED_LABS = 20
_VERSION_COMPARISON = re.compile(r"(==|!=|>=|<=|>|<)\s*\d+(\.\d+){0,3}")

PortName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
"""The name of a port: `${NAME}` in a topology stands for the number that the worker gives it."""

PortNumber = Annotated[int, Field(ge=1, le=65535), WHOLE_NUMBER]
LabletId = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
DefinitionVersion = Annotated[str, Field(pattern=r"^[0-9A-Za-z]([0-9A-Za-z.+-]{0,31})$")]


def _check_version_range(text: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    if not all(_VERSION_COMPARISON.fullmatch(part) for part in parts):
        raise ValueError("must be comparisons with commas between them, such as >=2.6,<3")
    return ",".join(parts)


VersionRange = Annotated[
    str,
    Field(max_length=100),
    AfterValidator(_check_version_range),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 100,
            "pattern": f"^{_VERSION_COMPARISON.pattern}( *, *{_VERSION_COMPARISON.pattern})*$",
        }
    ),
]


def _require_unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("each name once")
    return names


class LabletRequirements(LenientModel):
    """What a lablet takes of a worker."""

    cpu_cores: Annotated[float, Field(ge=0, le=1024, strict=True)] = 1
    memory_gb: Annotated[float, Field(ge=0, le=65536, strict=True)] = 1
    storage_gb: Annotated[float, Field(ge=0, le=1_000_000, strict=True)] = 1
    nodes: Annotated[int, Field(ge=0, le=10_000), WHOLE_NUMBER] = 1
    license: StrictBool = Field(default=True, description="Whether the worker's CML must be registered.")
    cml_version: VersionRange | None = Field(default=None, description="Such as >=2.6,<3; None: any.")
    node_definitions: Annotated[tuple[ResourceName, ...], Field(max_length=MAX_REQUIRED_NODE_DEFINITIONS)] = ()
    ports: Annotated[
        tuple[PortName, ...],
        Field(max_length=MAX_PORTS, json_schema_extra={"uniqueItems": True}),
        AfterValidator(_require_unique),
    ] = ()


class LabletDefinitionSummary(LenientModel):
    """What lablets are made from, as it is listed: all but the topology, which may be large."""

    id: str = Field(description="name@version")
    name: ResourceName
    version: DefinitionVersion
    description: Annotated[SingleLineText, Field(max_length=500)] = ""
    requirements: LabletRequirements = LabletRequirements()
    time_to_live_minutes: Annotated[float, Field(gt=0, le=525_600, strict=True)] | None = None
    enabled: StrictBool = True
    created_at: UtcDatetime
    created_by: str


class LabletDefinition(LabletDefinitionSummary):
    """What lablets are made from. A version never changes; a change is another version."""

    topology: str = Field(max_length=MAX_TOPOLOGY_LENGTH)


class NodeEndpoint(LenientModel):
    """Where a node of a running lablet can be reached."""

    node: Annotated[SingleLineText, Field(max_length=128)]
    addresses: tuple[Annotated[str, Field(max_length=64)], ...] = ()


class Rejection(LenientModel):
    """Why a worker was not chosen."""

    worker_id: str
    worker_name: str
    reason: Annotated[SingleLineText, Field(max_length=300)]


class Placement(LenientModel):
    """How the last look for a worker went: who was chosen and by what score, or why nobody was."""

    at: UtcDatetime
    worker_id: str | None = None
    score: float | None = None
    reason: Annotated[SingleLineText, Field(max_length=1000)]
    rejections: Annotated[tuple[Rejection, ...], Field(max_length=MAX_REJECTIONS)] = ()
    rejected: int = Field(default=0, description="How many in all; the list may be cut.")
    scale_up_worker_id: str | None = Field(default=None, description="The worker that was launched or resumed for it.")


class AbandonedLab(LenientModel):
    """A lab that was given up on a worker out of reach: it is removed there once that can be done."""

    worker_id: str
    marker: str = Field(description="What it is found by: <lablet id>.<placement attempt>")
    lab_id: str | None = Field(default=None, description="None: it is not known whether it was made.")


class Lablet(LenientModel):
    """A lablet. `version` moves with each write of the record, `generation` when somebody asks for something else."""

    id: LabletId
    name: ResourceName
    owner: str
    definition: str = Field(description="name@version")
    requirements: LabletRequirements
    aws_region: str | None = None
    status: LabletStatus = LabletStatus.PENDING_SCHEDULING
    status_since: UtcDatetime
    wanted: StrictBool = Field(default=True, description="False: it is to end. Final once false.")
    ending: LabletStatus | None = Field(default=None, description="What it becomes once nothing of it is left.")
    ending_reason: str | None = None
    worker_id: str | None = None
    ports: dict[str, int] = Field(default_factory=dict)
    instance_id: str | None = Field(default=None, description="The worker's instance that its lab is made on.")
    lab_id: str | None = Field(default=None, description="The lab on CML, once it is known.")
    lab_started_at: UtcDatetime | None = Field(default=None, description="When its lab was last told to start.")
    endpoints: tuple[NodeEndpoint, ...] = ()
    lost_worker_policy: LostWorkerPolicy = LostWorkerPolicy.RESCHEDULE
    left_behind: tuple[AbandonedLab, ...] = Field(
        default=(), description="Labs on workers that it was moved away from."
    )
    placement_attempt: int = Field(default=0, description="How often it was given a worker: part of its marker.")
    placement: Placement | None = None
    starts_at: UtcDatetime | None = None
    ends_at: UtcDatetime | None = None
    time_to_live_minutes: float | None = None
    running_since: UtcDatetime | None = None
    message: str = ""
    version: int = 1
    generation: int = 1
    created_at: UtcDatetime
    updated_at: UtcDatetime

    @property
    def assigned(self) -> bool:
        """Whether it holds a reservation."""
        return self.status in ASSIGNED_LABLET_STATUSES

    @property
    def over_at(self) -> datetime | None:
        """When its time is over: at its end, or when it has lived long enough; None: not by itself."""
        ends = [] if self.ends_at is None else [self.ends_at]
        if self.running_since is not None and self.time_to_live_minutes is not None:
            ends.append(self.running_since + timedelta(minutes=self.time_to_live_minutes))
        return min(ends, default=None)


# What people ask


def _reject_unknown_requirements(value: Any) -> Any:
    """A need that is misspelt would not be met: here it is refused, where records pass over what they do not know."""
    if isinstance(value, dict) and (unknown := sorted(map(str, value.keys() - LabletRequirements.model_fields.keys()))):
        raise ValueError(f"{', '.join(unknown)} is not known; there are {', '.join(LabletRequirements.model_fields)}")
    return value


class CreateDefinitionRequest(StrictModel):
    """A new version of a definition."""

    name: ResourceName
    version: DefinitionVersion
    description: Annotated[SingleLineText, Field(max_length=500)] = ""
    topology: Annotated[str, Field(min_length=1, max_length=MAX_TOPOLOGY_LENGTH)]
    requirements: Annotated[LabletRequirements, BeforeValidator(_reject_unknown_requirements)] = LabletRequirements()
    time_to_live_minutes: Annotated[float, Field(gt=0, le=525_600, strict=True)] | None = None


class CreateLabletRequest(StrictModel):
    """A new lablet; without a version of the definition the newest that is enabled."""

    name: ResourceName | None = None
    definition: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,63}(@[0-9A-Za-z.+-]{1,32})?$")]
    owner: Annotated[SingleLineText, Field(min_length=1, max_length=128)] | None = None
    aws_region: str | None = None
    starts_at: UtcDatetime | None = None
    ends_at: UtcDatetime | None = None
    time_to_live_minutes: Annotated[float, Field(gt=0, le=525_600, strict=True)] | None = None
    lost_worker_policy: LostWorkerPolicy = LostWorkerPolicy.RESCHEDULE


# What controllers ask


class PlacementRequest(StrictModel):
    """A worker for a lablet: reserved in the commit that writes it, or refused."""

    lablet_id: LabletId
    version: RecordVersion
    worker_id: LabletId
    placement: Placement


class PlacementBatch(StrictModel):
    """Workers for many lablets; each is reserved or refused on its own."""

    items: Annotated[tuple[PlacementRequest, ...], Field(max_length=MAX_PLACEMENTS)]


class PlacementResult(LenientModel):
    """What became of one. Who asked knows the lablet; new to them are its ports."""

    lablet_id: str
    placed: bool
    code: str | None = None
    detail: str = ""
    ports: dict[str, int] = Field(default_factory=dict, description="The worker's ports that it was given, by name.")


class PlacementBatchResult(LenientModel):
    """What became of each, in the order asked."""

    items: tuple[PlacementResult, ...] = ()


class LabletStatusUpdate(StrictModel):
    """What a controller found or did: only fields that are given change, null clears."""

    status: LabletStatus
    version: RecordVersion
    reason: Reason
    instance_id: InstanceId | None = None
    lab_id: Annotated[SingleLineText, Field(max_length=64)] | None = None
    lab_started_at: UtcDatetime | None = None
    endpoints: Annotated[tuple[NodeEndpoint, ...], Field(max_length=10_000)] = ()
    ending: LabletStatus | None = None
    placement: Placement | None = None
    message: Annotated[SingleLineText, Field(max_length=1000)] = ""


class ReleaseLabletRequest(StrictModel):
    """Give the reservation back: the lablet looks for another worker, or ends.

    Its lab is known to be gone, or is left behind on a worker that is out of reach.
    """

    status: LabletStatus
    version: RecordVersion
    reason: Reason
    left_behind: StrictBool = Field(default=False, description="Whether its lab may still be on the worker.")
