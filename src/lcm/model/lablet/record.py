"""Lablets, the definitions that they are created from, and the requests about both.

A lablet is one lab that runs for one person.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from lcm.model.base import (
    CARRIED,
    WHOLE_NUMBER,
    LenientModel,
    Reason,
    Record,
    RequestedTime,
    ResourceName,
    SingleLineText,
    StrictBool,
    StrictModel,
    UtcDatetime,
)
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, LabletStatus, LostWorkerPolicy
from lcm.model.validation import text_like
from lcm.model.worker.requests import InstanceId, RecordVersion

REQUESTED_TEAM = "The name or id of its team. Default: the only team of an instructor; for others, none."
NO_TEAM = "Empty if it has none: then only roles of the whole fleet see it."
MAX_TOPOLOGY_LENGTH = 1_000_000
MAX_PORTS = 64
MAX_REQUIRED_NODE_DEFINITIONS = 100
MAX_REJECTIONS = 200
MAX_PLACEMENTS = 1_000
MAX_ABANDONED_LABS = 20
_VERSION_COMPARISON = re.compile(r"(==|!=|>=|<=|>|<)\s*\d+(\.\d+){0,3}")

PortName = Annotated[
    str, text_like(r"^[A-Z][A-Z0-9_]{0,63}$", "capital letters, digits and underscores, such as SSH_PORT")
]
"""The name of a port: `${NAME}` in a topology is replaced by the port number on the worker."""

PortNumber = Annotated[int, Field(ge=1, le=65535), WHOLE_NUMBER]
LabletId = Annotated[str, text_like(r"^[a-z0-9-]{1,64}$", "an id of 1 to 64 small letters, digits and dashes")]
DefinitionVersion = Annotated[
    str,
    text_like(
        r"^[0-9A-Za-z]([0-9A-Za-z.+-]{0,31})$",
        "1 to 32 letters, digits, dots, pluses and dashes, such as 1.2",
    ),
]

DefinitionReference = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9._-]{1,63}(@[0-9A-Za-z.+-]{1,32})?$",
        "the name of a definition, with @ and its version if not the newest, such as bgp@1.2",
    ),
]
"""What a request names a definition by."""


def _check_version_range(text: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    if not all(_VERSION_COMPARISON.fullmatch(part) for part in parts):
        raise ValueError("must be comparisons separated by commas, such as >=2.6,<3")
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
        raise ValueError("names must be unique")
    return names


class LabletRequirements(Record):
    """The resources that a lablet needs on a worker."""

    cpu_cores: Annotated[float, Field(ge=0, le=1024, strict=True)] = 1
    memory_gb: Annotated[float, Field(ge=0, le=65536, strict=True)] = 1
    storage_gb: Annotated[float, Field(ge=0, le=1_000_000, strict=True)] = 1
    nodes: Annotated[int, Field(ge=0, le=10_000), WHOLE_NUMBER] = 1
    license: StrictBool = Field(default=True, description="Whether the worker's CML must be registered.")
    cml_version: VersionRange | None = Field(default=None, description="Such as >=2.6,<3; null for any version.")
    node_definitions: Annotated[tuple[ResourceName, ...], Field(max_length=MAX_REQUIRED_NODE_DEFINITIONS)] = ()
    ports: Annotated[
        tuple[PortName, ...],
        Field(max_length=MAX_PORTS, json_schema_extra={"uniqueItems": True}),
        AfterValidator(_require_unique),
    ] = ()


class LabletDefinitionSummary(Record):
    """A lablet definition without its topology, which may be large."""

    id: str = Field(description="name@version; in a team, with the id of the team and a colon before it.")
    team: str = Field(default="", description=f"The id of its team. {NO_TEAM}")
    name: ResourceName
    version: DefinitionVersion
    description: Annotated[SingleLineText, Field(max_length=500)] = ""
    requirements: LabletRequirements = LabletRequirements()
    time_to_live_minutes: Annotated[float, Field(gt=0, le=525_600, strict=True)] | None = None
    enabled: StrictBool = True
    created_at: UtcDatetime
    created_by: str

    @property
    def reference(self) -> str:
        """name@version, by which people of its team name it."""
        return f"{self.name}@{self.version}"


class LabletDefinition(LabletDefinitionSummary):
    """What lablets are created from. A version never changes; a change needs a new version."""

    topology: str = Field(max_length=MAX_TOPOLOGY_LENGTH)


class NodeEndpoint(Record):
    """The addresses of a node of a running lablet."""

    node: Annotated[SingleLineText, Field(max_length=128)]
    addresses: tuple[Annotated[str, Field(max_length=64)], ...] = ()


class Rejection(Record):
    """Why a worker was rejected."""

    worker_id: str
    worker_name: str
    reason: Annotated[SingleLineText, Field(max_length=300)]


class Placement(Record):
    """The result of the last placement: the chosen worker and its score, or why no worker was chosen."""

    at: UtcDatetime
    worker_id: str | None = None
    score: float | None = None
    reason: Annotated[SingleLineText, Field(max_length=1000)]
    rejections: Annotated[tuple[Rejection, ...], Field(max_length=MAX_REJECTIONS)] = ()
    rejected: int = Field(default=0, description="Total number of rejected workers; the list may be truncated.")
    scale_up_worker_id: str | None = Field(
        default=None, description="The worker that was launched or resumed for this lablet."
    )


LabMarker = Annotated[str, Field(max_length=80)]


class AbandonedLab(Record):
    """A lab that a lablet no longer uses, and that is removed: its worker was unreachable, or a reset replaces it."""

    worker_id: str
    marker: LabMarker = Field(description="Identifies the lab on CML: <lablet id>.<placement attempt>")
    lab_id: str | None = Field(default=None, description="Null if it is not known whether the lab was created.")


class Lablet(Record):
    """A lablet. `version` changes with each write of the record, `generation` when the desired state changes."""

    id: LabletId
    name: ResourceName
    team: str = Field(default="", description=f"The id of its team. {NO_TEAM}")
    owner: str = Field(
        default="",
        description="What proves the owner: token: and its id, oidc: with issuer and subject, or email: with the"
        " address of a member of its team. Empty if an admin has to assign it.",
    )
    owner_name: str = Field(default="", description="The owner's name as people read it; it grants nothing.")
    definition: str = Field(description="name@version")
    definition_id: str = Field(default="", description="The id of the definition; empty if it is `definition`.")
    requirements: LabletRequirements
    aws_region: str | None = None
    status: Annotated[LabletStatus, CARRIED] = LabletStatus.PENDING_SCHEDULING
    status_since: UtcDatetime
    wanted: StrictBool = Field(
        default=True, description="Whether the lablet should exist. False means that it is to end, and is final."
    )
    ending: Annotated[LabletStatus, CARRIED] | None = Field(
        default=None, description="The final status that it gets after cleanup."
    )
    ending_reason: str | None = None
    worker_id: str | None = None
    ports: dict[str, int] = Field(default_factory=dict)
    instance_id: str | None = Field(default=None, description="The worker's instance on which its lab was created.")
    lab_id: str | None = Field(default=None, description="The id of the lab on CML, once known.")
    lab_started_at: UtcDatetime | None = Field(default=None, description="When its lab was last started.")
    endpoints: tuple[NodeEndpoint, ...] = ()
    lost_worker_policy: Annotated[LostWorkerPolicy, CARRIED] = LostWorkerPolicy.RESCHEDULE
    left_behind: tuple[AbandonedLab, ...] = Field(
        default=(), description="Labs that it no longer uses and that are still to be removed."
    )
    placement_attempt: int = Field(
        default=0, description="How often it was placed on a worker or reset; part of the marker of its lab."
    )
    placement: Placement | None = None
    starts_at: UtcDatetime | None = None
    ends_at: UtcDatetime | None = None
    time_to_live_minutes: float | None = None
    booking_id: str | None = Field(default=None, description="The booking whose seat it is; null: of none.")
    booking_occurrence: int | None = Field(default=None, description="The class of that booking, 1 for the first.")
    retries: int = Field(
        default=0, description="How often LCM has made this failed seat anew since its warm-up or its last reset."
    )
    running_since: UtcDatetime | None = None
    message: str = ""
    version: int = 1
    generation: int = 1
    created_at: UtcDatetime
    updated_at: UtcDatetime

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_owner(cls, stored: Any) -> Any:
        """Before there were teams, `owner` was any text, which proved nothing: it is the owner's name."""
        if isinstance(stored, dict) and "owner_name" not in stored and "owner" in stored and "team" not in stored:
            return {**stored, "owner": "", "owner_name": stored["owner"]}
        return stored

    @property
    def topology_id(self) -> str:
        """The id of the definition that its lab is made from."""
        return self.definition_id or self.definition

    @property
    def unknown_words(self) -> tuple[str, ...]:
        """Words that only a newer version knows: this version must not decide about the lablet."""
        deciding = {"status": self.status, "ending": self.ending, "lost_worker_policy": self.lost_worker_policy}
        return tuple(f"{name} {word}" for name, word in deciding.items() if word is not None and not word.is_known)

    @property
    def assigned(self) -> bool:
        """Whether it has a reservation on a worker."""
        return self.status in ASSIGNED_LABLET_STATUSES

    @property
    def expires_at(self) -> datetime | None:
        """When it expires: at its end time or at the end of its time to live; None: never."""
        ends = [] if self.ends_at is None else [self.ends_at]
        if self.running_since is not None and self.time_to_live_minutes is not None:
            ends.append(self.running_since + timedelta(minutes=self.time_to_live_minutes))
        return min(ends, default=None)


# Requests of people


def _reject_unknown_requirements(value: Any) -> Any:
    """Reject misspelled requirements, which would not be met. Records, unlike requests, ignore unknown fields."""
    if isinstance(value, dict) and (unknown := sorted(map(str, value.keys() - LabletRequirements.model_fields.keys()))):
        raise ValueError(f"unknown: {', '.join(unknown)}; allowed are {', '.join(LabletRequirements.model_fields)}")
    return value


class CreateDefinitionRequest(StrictModel):
    """Create a version of a lablet definition."""

    name: ResourceName
    version: DefinitionVersion
    description: Annotated[SingleLineText, Field(max_length=500)] = ""
    topology: Annotated[str, Field(min_length=1, max_length=MAX_TOPOLOGY_LENGTH)]
    team: ResourceName | None = Field(default=None, description=REQUESTED_TEAM)
    requirements: Annotated[LabletRequirements, BeforeValidator(_reject_unknown_requirements)] = LabletRequirements()
    time_to_live_minutes: Annotated[float, Field(gt=0, le=525_600, strict=True)] | None = None


class CreateLabletRequest(StrictModel):
    """Create a lablet. Without a version, the newest enabled version of the definition is used."""

    name: ResourceName | None = None
    definition: DefinitionReference
    team: ResourceName | None = Field(default=None, description=REQUESTED_TEAM)
    owner: Annotated[SingleLineText, Field(min_length=1, max_length=300)] | None = Field(
        default=None,
        description="Whose lablet it is: the address of a member of the team, or token: and the id of a token. Another"
        " text is only a name. Default: the caller.",
    )
    aws_region: str | None = None
    starts_at: RequestedTime | None = None
    ends_at: RequestedTime | None = None
    time_to_live_minutes: Annotated[float, Field(gt=0, le=525_600, strict=True)] | None = None
    lost_worker_policy: LostWorkerPolicy = LostWorkerPolicy.RESCHEDULE


class AssignLabletRequest(StrictModel):
    """Assign a lablet to a team and, within it, to a person. What is left out stays as it is."""

    team: ResourceName
    owner: Annotated[SingleLineText, Field(min_length=1, max_length=300)] | None = Field(
        default=None, description="The address of a member of the team, or token: and the id of a token."
    )


class AssignDefinitionRequest(StrictModel):
    """Assign a version of a definition to a team, or to none."""

    team: ResourceName | None = None


# Requests of controllers


class PlacementRequest(StrictModel):
    """Place a lablet on a worker: reserved in the same commit, or refused."""

    lablet_id: LabletId
    version: RecordVersion
    worker_id: LabletId
    placement: Placement


class PlacementBatch(StrictModel):
    """Place many lablets; each placement succeeds or fails on its own."""

    items: Annotated[tuple[PlacementRequest, ...], Field(max_length=MAX_PLACEMENTS)]


class PlacementResult(LenientModel):
    """The result of one placement. It contains the ports, which are the only values the caller does not know yet."""

    lablet_id: str
    placed: bool
    code: str | None = None
    detail: str = ""
    ports: dict[str, int] = Field(default_factory=dict, description="The allocated ports of the worker, by name.")


class PlacementBatchResult(LenientModel):
    """The results of a batch, in the order of the requests."""

    items: tuple[PlacementResult, ...] = ()


class LabletStatusUpdate(StrictModel):
    """The result of a reconciliation: only the given fields change; null clears a field."""

    status: LabletStatus
    version: RecordVersion
    reason: Reason
    instance_id: InstanceId | None = None
    lab_id: Annotated[SingleLineText, Field(max_length=64)] | None = None
    lab_started_at: UtcDatetime | None = None
    endpoints: Annotated[tuple[NodeEndpoint, ...], Field(max_length=10_000)] = ()
    removed_labs: Annotated[tuple[LabMarker, ...], Field(max_length=MAX_ABANDONED_LABS)] = Field(
        default=(), description="Markers of labs left behind on its worker that are gone."
    )
    ending: LabletStatus | None = None
    placement: Placement | None = None
    message: Annotated[SingleLineText, Field(max_length=1000)] = ""


class ReleaseLabletRequest(StrictModel):
    """Release the reservation of a lablet, which is then rescheduled or ends.

    Its lab is known to be gone, or is abandoned on an unreachable worker.
    """

    status: LabletStatus
    version: RecordVersion
    reason: Reason
    left_behind: StrictBool = Field(default=False, description="Whether its lab may still exist on the worker.")
