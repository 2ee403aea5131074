"""What can be asked of the API. A field that is not listed is refused, not ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, WithJsonSchema, field_validator

from lcm.model.base import (
    WHOLE_NUMBER,
    Reason,
    RegionName,
    ResourceName,
    SingleLineText,
    StrictBool,
    StrictModel,
    UtcDatetime,
)
from lcm.model.decision import DecisionReport
from lcm.model.worker.conditions import Condition
from lcm.model.worker.idle import ActivityEvent
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Tags
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, LostInstancePolicy, WorkerStatus

MAX_METRICS_SAMPLES = 5_000
MAX_DECISIONS = 1_000
MAX_ACTIVITY_EVENTS = 20_000
MAX_OFFERED_NODE_DEFINITIONS = 2_000
MAX_SAFE_INTEGER = 2**53

RecordVersion = Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER), WHOLE_NUMBER]
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
    """CML's own rule: anything else it would refuse without saying why."""
    if token is not None:
        allowed = set("+/%=-")
        if not all(letter.isascii() and (letter.isalnum() or letter in allowed) for letter in token.get_secret_value()):
            raise ValueError("a licence token has letters, digits and + / % = - only")
    return token


def _check_initial_status(desired: DesiredStatus) -> DesiredStatus:
    if desired is DesiredStatus.TERMINATED:
        raise ValueError("a new worker can be wanted RUNNING or STOPPED")
    return desired


def _require_stopped(desired: DesiredStatus) -> DesiredStatus:
    if desired is not DesiredStatus.STOPPED:
        raise ValueError("a controller may only follow a drift to STOPPED")
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
    """A new worker."""

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
    """What may be changed of a worker by hand: only fields that are given; null withdraws a secret.

    The defaults stand for nothing: whoever applies a patch looks at `model_fields_set`.
    """

    name: ResourceName = ""
    tags: Tags = Field(default_factory=dict)
    idle_detection_enabled: StrictBool = True
    lost_instance_policy: LostInstancePolicy = LostInstancePolicy.TERMINATE
    license_token: LicenseToken | None = None
    cml_username: Annotated[SingleLineText, Field(min_length=1, max_length=64)] | None = None
    cml_password: Annotated[SecretStr, Field(min_length=1, max_length=256)] | None = None

    _token = field_validator("license_token")(_check_license_token)


class CommandRequest(StrictModel):
    """A command's reason; it is kept in the audit."""

    reason: Reason | None = None


class HoldRequest(StrictModel):
    """Stop all changes of a worker, or of the fleet."""

    reason: Reason
    until: UtcDatetime | None = None


class LicenseRequest(StrictModel):
    """Register or give back a licence. A token given here replaces the stored one."""

    operation: LicenseOperation
    token: LicenseToken | None = None
    reason: Reason | None = None

    _token = field_validator("token")(_check_license_token)


# What controllers ask


class LeadershipAnnouncement(StrictModel):
    """A controller's new term; later, that its start-up sweep is done."""

    term: Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER), WHOLE_NUMBER]
    startup_sweep_done: StrictBool = False


class WorkerStatusUpdate(StrictModel):
    """What a controller found or did: only fields that are given change, null clears."""

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
    terminated_by: Annotated[SingleLineText, Field(max_length=100)] | None = None
    terminated_reason: Annotated[SingleLineText, Field(max_length=500)] | None = None
    conditions: tuple[Condition, ...] | None = None
    decision: DecisionReport | None = None
    desired_status: StoppedOnly | None = None
    drift: StrictBool = Field(default=False, description="Whether somebody else stopped it: it is counted.")
    launch_intent: None = Field(
        default=None, description="Null: the intent is settled and nothing was launched. The next attempt is another."
    )


class LaunchIntentRequest(StrictModel):
    """The intent to launch, stored before the call."""

    version: RecordVersion
    attempt: Annotated[int, Field(ge=1, le=1_000_000), WHOLE_NUMBER]
    parameters: Annotated[dict[str, Any], Field(min_length=1, max_length=50)]


class MetricsBatch(StrictModel):
    """Figures of many workers at once."""

    items: Annotated[tuple[MetricsSample, ...], Field(max_length=MAX_METRICS_SAMPLES)]


class WorkerDecision(StrictModel):
    """What was decided for one worker."""

    worker_id: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    decision: DecisionReport


class DecisionBatch(StrictModel):
    """What was decided for many workers, without a change of their records."""

    items: Annotated[tuple[WorkerDecision, ...], Field(max_length=MAX_DECISIONS)]


class IdleDetectionRequest(StrictModel):
    """Telemetry of a worker; None: it could not be fetched, which is not idleness."""

    events: Annotated[tuple[ActivityEvent, ...], Field(max_length=MAX_ACTIVITY_EVENTS)] | None
    observed_at: UtcDatetime


class LicenseStatusUpdate(StrictModel):
    """What CML says about the licence."""

    status: LicenseStatus
    version: RecordVersion | None = None
    clear_pending: StrictBool = False
    leaked: StrictBool = Field(default=False, description="CML forgot it, but Cisco still counts it.")
    message: Annotated[SingleLineText, Field(max_length=1000)] = ""


class ImportWorkerRequest(StrictModel):
    """An instance that was found and is not ours yet."""

    instance_id: InstanceId
    aws_region: RegionName
    aws_account_id: AwsAccountId | None = None
    name: ResourceName | None = None
    instance_type: Annotated[SingleLineText, Field(max_length=64)] | None = None
    ami_id: Annotated[SingleLineText, Field(max_length=64)] | None = None
    status: WorkerStatus
    public_ip: IpAddress | None = None
    private_ip: IpAddress | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    cml_version: Annotated[SingleLineText, Field(max_length=64)] | None = None
    previous_worker_id: Annotated[SingleLineText, Field(max_length=64)] | None = None


class ScaleUpRequest(StrictModel):
    """A need for one more worker; `for` names it, so that one need never yields two."""

    template: ResourceName
    aws_region: RegionName | None = None
    reason: Reason
    requested_for: Annotated[SingleLineText, Field(max_length=128)] | None = Field(default=None, alias="for")


class BreakerReport(StrictModel):
    """What a sweep would have marked as lost, and why it did not."""

    region: RegionName
    open: StrictBool
    reason: Reason
    affected: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()
    only_a_person_closes: StrictBool = False


class CreateAuditEntryRequest(StrictModel):
    """A decision of a controller that changes no record."""

    action: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]
    subject: Annotated[SingleLineText, Field(min_length=1, max_length=128)]
    reason: Annotated[SingleLineText, Field(max_length=500)] = ""


class DrainRequest(StrictModel):
    """Why scale-down takes a worker out of service."""

    reason: Reason = "idle"
