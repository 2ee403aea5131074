"""Request bodies of the API for workers and the fleet. Unknown fields are rejected."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, WithJsonSchema, field_validator

from lcm.model.audit import DecisionReport
from lcm.model.base import (
    WHOLE_NUMBER,
    Reason,
    RegionName,
    RequestedTime,
    ResourceName,
    SingleLineText,
    StrictBool,
    StrictModel,
    UtcDatetime,
)
from lcm.model.worker.conditions import Condition
from lcm.model.worker.idle import ActivityEvent
from lcm.model.worker.maintenance import AnnouncedMaintenance
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Tags
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, LostInstancePolicy, WorkerStatus

MAX_METRICS_SAMPLES = 5_000
MAX_DECISIONS = 1_000
MAX_ACTIVITY_EVENTS = 20_000
MAX_OFFERED_NODE_DEFINITIONS = 2_000
MAX_SAFE_INTEGER = 2**53

RecordVersion = Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER), WHOLE_NUMBER]
WorkerId = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
InstanceId = Annotated[str, StringConstraints(pattern=r"^i-[0-9a-z]{1,40}$")]
IpAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F.:]{2,45}$")]
LicenseToken = Annotated[
    SecretStr,
    Field(min_length=1, max_length=256),
    WithJsonSchema({"type": "string", "pattern": "^[a-zA-Z0-9+/%=-]{1,256}$", "writeOnly": True}),
]
NodeDefinitions = Annotated[
    tuple[Annotated[SingleLineText, Field(min_length=1, max_length=64)], ...],
    Field(max_length=MAX_OFFERED_NODE_DEFINITIONS),
]
AwsAccountId = Annotated[str, StringConstraints(pattern=r"^[0-9]{12}$")]


def _check_license_token(token: SecretStr | None) -> SecretStr | None:
    """Check CML's own rule: CML would reject other tokens without a reason."""
    if token is not None:
        allowed = set("+/%=-")
        if not all(letter.isascii() and (letter.isalnum() or letter in allowed) for letter in token.get_secret_value()):
            raise ValueError("a license token may contain only letters, digits and + / % = -")
    return token


def _check_initial_status(desired: DesiredStatus) -> DesiredStatus:
    if desired is DesiredStatus.TERMINATED:
        raise ValueError("the initial status must be RUNNING or STOPPED")
    return desired


def _require_stopped(desired: DesiredStatus) -> DesiredStatus:
    if desired is not DesiredStatus.STOPPED:
        raise ValueError("a controller may only set STOPPED, to accept a drift")
    return desired


InitialStatus = Annotated[
    DesiredStatus,
    AfterValidator(_check_initial_status),
    WithJsonSchema({"type": "string", "enum": ["RUNNING", "STOPPED"]}),
]
StoppedOnly = Annotated[
    DesiredStatus, AfterValidator(_require_stopped), WithJsonSchema({"type": "string", "enum": ["STOPPED"]})
]


class CreateWorkerRequest(StrictModel):
    """Create a worker."""

    name: ResourceName
    template_name: ResourceName
    aws_region: RegionName | None = None
    desired_status: InitialStatus = DesiredStatus.RUNNING
    tags: Tags = Field(default_factory=dict)
    idle_detection_enabled: StrictBool = True
    lost_instance_policy: LostInstancePolicy = LostInstancePolicy.TERMINATE
    license_token: LicenseToken | None = None
    cml_username: Annotated[SingleLineText, Field(min_length=1, max_length=64)] | None = None
    cml_password: Annotated[SecretStr, Field(min_length=1, max_length=256)] | None = None

    _token = field_validator("license_token")(_check_license_token)


class UpdateWorkerRequest(StrictModel):
    """Update a worker: only the given fields change; null removes a secret.

    The defaults have no meaning: code that applies the update must use `model_fields_set`.
    """

    name: ResourceName = ""
    tags: Tags = Field(default_factory=dict)
    idle_detection_enabled: StrictBool = True
    lost_instance_policy: LostInstancePolicy = LostInstancePolicy.TERMINATE
    license_token: LicenseToken | None = None
    cml_username: Annotated[SingleLineText, Field(min_length=1, max_length=64)] | None = None
    cml_password: Annotated[SecretStr, Field(min_length=1, max_length=256)] | None = None
    team: ResourceName | None = Field(
        default=None, description="The name or id of the team whose lablets alone it takes; null for those of all."
    )

    _token = field_validator("license_token")(_check_license_token)


class CommandRequest(StrictModel):
    """The body of a command: a reason for the audit log."""

    reason: Reason | None = None


class StartStopRequest(CommandRequest):
    """The body of a start or stop: a reason, and until when policies leave the worker so."""

    until: RequestedTime | None = Field(
        default=None,
        description="Until when policies such as auto-pause and scale-down do not change what is requested.",
    )


class TerminateRequest(CommandRequest):
    """The body of a termination: a reason, and whether the license is deregistered first."""

    release_license: StrictBool = Field(
        default=True,
        description="Whether a registered license is deregistered first; once false, always false.",
    )


class HoldRequest(StrictModel):
    """Place a worker or the fleet on hold: nothing is changed until the hold ends."""

    reason: Reason
    until: RequestedTime | None = None


class LicenseRequest(StrictModel):
    """Register or deregister a license. A token in the request replaces the stored one."""

    operation: LicenseOperation
    token: LicenseToken | None = None
    reason: Reason | None = None

    _token = field_validator("token")(_check_license_token)


# Requests of controllers


class LeadershipAnnouncement(StrictModel):
    """Announce a controller's new term, and later the end of its startup sweep."""

    term: Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER), WHOLE_NUMBER]
    startup_sweep_done: StrictBool = False


CertificateFingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


UnlessHeld = Annotated[
    StrictBool,
    Field(description="Whether the write announces an action: it is rejected (code held) while the fleet is on hold."),
]


class WorkerStatusUpdate(StrictModel):
    """The result of a reconciliation: only the given fields change; null clears a field."""

    status: WorkerStatus
    version: RecordVersion
    reason: Reason
    instance_id: InstanceId | None = None
    instance_type: Annotated[SingleLineText, Field(max_length=64)] | None = None
    ami_id: Annotated[SingleLineText, Field(max_length=64)] | None = None
    aws_account_id: AwsAccountId | None = None
    public_ip: IpAddress | None = None
    private_ip: IpAddress | None = None
    cml_version: Annotated[SingleLineText, Field(max_length=64)] | None = None
    node_definitions: NodeDefinitions | None = None
    cml_certificate: CertificateFingerprint | None = None
    cml_certificate_presented: CertificateFingerprint | None = None
    terminated_by: Annotated[SingleLineText, Field(max_length=100)] | None = None
    terminated_reason: Annotated[SingleLineText, Field(max_length=500)] | None = None
    conditions: tuple[Condition, ...] | None = None
    decision: DecisionReport | None = None
    desired_status: StoppedOnly | None = None
    drift: StrictBool = Field(
        default=False, description="Whether the instance was stopped outside LCM; such stops are counted."
    )
    instance_absent: StrictBool = Field(
        default=False,
        description="Whether the instance is given up because EC2 no longer lists it; false if EC2 shows it as ended.",
    )
    license_release_started_at: RequestedTime | None = None
    license_release_ready_at: RequestedTime | None = None
    maintenance: AnnouncedMaintenance | None = None
    health_verified: StrictBool = Field(
        default=False,
        description=(
            "Whether EC2 has announced no maintenance and all status checks pass; earlier restarts are then forgotten."
        ),
    )
    launch_intent: None = Field(
        default=None,
        description="Null if the launch attempt was resolved and launched nothing. The next attempt has a new number.",
    )
    unless_held: UnlessHeld = False


class LaunchIntentRequest(StrictModel):
    """Store a launch attempt before the call is made."""

    version: RecordVersion
    attempt: Annotated[int, Field(ge=1, le=1_000_000), WHOLE_NUMBER]
    parameters: Annotated[dict[str, Any], Field(min_length=1, max_length=50)]
    unless_held: UnlessHeld = False


class MetricsBatch(StrictModel):
    """Metrics of many workers."""

    items: Annotated[tuple[MetricsSample, ...], Field(max_length=MAX_METRICS_SAMPLES)]


class WorkerDecision(StrictModel):
    """The decision for one worker."""

    worker_id: WorkerId
    decision: DecisionReport


class DecisionBatch(StrictModel):
    """Decisions for many workers that did not change their records."""

    items: Annotated[tuple[WorkerDecision, ...], Field(max_length=MAX_DECISIONS)]


class IdleDetectionRequest(StrictModel):
    """Activity events of a worker; null if they could not be fetched, which does not mean that it is idle."""

    events: Annotated[tuple[ActivityEvent, ...], Field(max_length=MAX_ACTIVITY_EVENTS)] | None
    observed_at: UtcDatetime


class LicenseStatusUpdate(StrictModel):
    """The license status that CML reports."""

    status: LicenseStatus
    version: RecordVersion | None = None
    clear_pending: StrictBool = False
    leaked: StrictBool = Field(
        default=False, description="Whether CML lost the registration while Cisco still counts it."
    )
    deregistered: StrictBool = Field(
        default=False, description="Whether the registration with the former token has ended; the new one follows."
    )
    message: Annotated[SingleLineText, Field(max_length=1000)] = ""
    unless_held: UnlessHeld = False


class ImportWorkerRequest(StrictModel):
    """Import an existing instance as a worker."""

    instance_id: InstanceId
    aws_region: RegionName
    aws_account_id: AwsAccountId | None = None
    name: ResourceName | None = None
    instance_type: Annotated[SingleLineText, Field(max_length=64)] | None = None
    cpu_cores: Annotated[int, Field(ge=1, le=1024), WHOLE_NUMBER] | None = Field(
        default=None, description="What its instance type offers; null if that is not known yet."
    )
    memory_gb: Annotated[float, Field(gt=0, le=65536)] | None = None
    ami_id: Annotated[SingleLineText, Field(max_length=64)] | None = None
    status: WorkerStatus
    public_ip: IpAddress | None = None
    private_ip: IpAddress | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    cml_version: Annotated[SingleLineText, Field(max_length=64)] | None = None
    previous_worker_id: Annotated[SingleLineText, Field(max_length=64)] | None = None


class AdoptWorkerRequest(StrictModel):
    """Adopt an imported worker: from then on it is treated like one that LCM created."""

    template_name: ResourceName | None = Field(
        default=None, description="Its template; if unset, the one with its instance type."
    )
    schedulable: StrictBool = Field(description="Whether lablets may be placed on it.")
    idle_detection_enabled: StrictBool | None = Field(
        default=None, description="Whether it is stopped when idle; null leaves it as it is."
    )
    license_token: LicenseToken | None = Field(default=None, description="A token with which its CML is registered.")

    _token = field_validator("license_token")(_check_license_token)


class ScaleUpRequest(StrictModel):
    """Request one more worker. `for` identifies the need, so that a repeated request creates no second worker."""

    template: ResourceName
    aws_region: RegionName | None = None
    reason: Reason
    requested_for: Annotated[SingleLineText, Field(max_length=128)] | None = Field(default=None, alias="for")
    worker_id: Annotated[SingleLineText, Field(max_length=64)] | None = Field(
        default=None, description="The worker to resume, if a policy stopped it and it is still stopped."
    )
    resume: StrictBool = Field(
        default=True, description="Whether a worker that a policy stopped may be resumed instead of launching one."
    )
    until: UtcDatetime | None = Field(
        default=None, description="When the lablets that need it have ended; null: not known, so it counts as never."
    )


class BreakerReport(StrictModel):
    """The state of a region's breaker: which workers a sweep would have marked as lost, and why it did not."""

    region: RegionName
    open: StrictBool
    reason: Reason
    affected: Annotated[tuple[WorkerId, ...], Field(max_length=10_000)] = ()
    only_a_person_closes: StrictBool = False


class CreateAuditEntryRequest(StrictModel):
    """Record a controller's decision in the audit log without changing a record."""

    action: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]
    subject: Annotated[SingleLineText, Field(min_length=1, max_length=128)]
    reason: Annotated[SingleLineText, Field(max_length=500)] = ""


class MaintenanceRequest(StrictModel):
    """Stop a worker for maintenance, or start it again after it."""

    step: Literal["stop", "start"]
    version: RecordVersion
    reason: Reason


class ScheduleStepRequest(StrictModel):
    """What the worker controller has decided: a schedule stops a worker, or starts it again."""

    step: Literal["stop", "start"]
    version: RecordVersion
    reason: Reason


class DrainRequest(StrictModel):
    """Drain a worker for scale-down."""

    reason: Reason = "idle"
