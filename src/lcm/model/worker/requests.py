"""What can be asked of the API. A field that is not listed is refused, not ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, WithJsonSchema, field_validator

from lcm.model.base import WHOLE, Data, Flag, Moment, Name, Reason, Region, Text
from lcm.model.decision import DecisionReport
from lcm.model.worker.conditions import Condition
from lcm.model.worker.idle import ActivityEvent
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Tags
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, LostInstancePolicy, WorkerStatus

MOST_SAMPLES = 5_000
MOST_DECISIONS = 1_000
MOST_EVENTS = 20_000
MOST_NODE_DEFINITIONS = 2_000
MOST = 2**53

Version = Annotated[int, Field(ge=1, le=MOST), WHOLE]
InstanceId = Annotated[str, StringConstraints(pattern=r"^i-[0-9a-z]{1,40}$")]
Address = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F.:]{2,45}$")]
LicenseToken = Annotated[
    SecretStr,
    Field(min_length=1, max_length=256),
    WithJsonSchema({"type": "string", "pattern": "^[a-zA-Z0-9+/%=-]{1,256}$", "writeOnly": True}),
]
NodeDefinitions = Annotated[
    tuple[Annotated[Text, Field(min_length=1, max_length=64)], ...], Field(max_length=MOST_NODE_DEFINITIONS)
]
Account = Annotated[str, StringConstraints(pattern=r"^[0-9]{12}$")]


def _plain_token(token: SecretStr | None) -> SecretStr | None:
    """CML's own rule: anything else it would refuse without saying why."""
    if token is not None:
        allowed = set("+/%=-")
        if not all(letter.isascii() and (letter.isalnum() or letter in allowed) for letter in token.get_secret_value()):
            raise ValueError("a licence token has letters, digits and + / % = - only")
    return token


def _to_begin_with(desired: DesiredStatus) -> DesiredStatus:
    if desired is DesiredStatus.TERMINATED:
        raise ValueError("a new worker can be wanted RUNNING or STOPPED")
    return desired


def _only_stopped(desired: DesiredStatus) -> DesiredStatus:
    if desired is not DesiredStatus.STOPPED:
        raise ValueError("a controller may only follow a drift to STOPPED")
    return desired


BeginStatus = Annotated[
    DesiredStatus, AfterValidator(_to_begin_with), WithJsonSchema({"type": "string", "enum": ["RUNNING", "STOPPED"]})
]
OnlyStopped = Annotated[
    DesiredStatus, AfterValidator(_only_stopped), WithJsonSchema({"type": "string", "enum": ["STOPPED"]})
]


class CreateWorker(Data):
    """A new worker."""

    name: Name
    template_name: Name
    aws_region: Region | None = None
    desired_status: BeginStatus = DesiredStatus.RUNNING
    tags: Tags = Field(default_factory=dict)
    idle_detection_enabled: Flag = True
    lost_instance_policy: LostInstancePolicy = LostInstancePolicy.TERMINATE
    license_token: LicenseToken | None = None
    cml_username: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    cml_password: Annotated[SecretStr, Field(min_length=1, max_length=256)] | None = None

    _token = field_validator("license_token")(_plain_token)


class PatchWorker(Data):
    """What may be changed of a worker by hand: only fields that are given; null withdraws a secret.

    The defaults stand for nothing: whoever applies a patch looks at `model_fields_set`.
    """

    name: Name = ""
    tags: Tags = Field(default_factory=dict)
    idle_detection_enabled: Flag = True
    lost_instance_policy: LostInstancePolicy = LostInstancePolicy.TERMINATE
    license_token: LicenseToken | None = None
    cml_username: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    cml_password: Annotated[SecretStr, Field(min_length=1, max_length=256)] | None = None

    _token = field_validator("license_token")(_plain_token)


class Because(Data):
    """A command's reason; it is kept in the audit."""

    reason: Reason | None = None


class HoldRequest(Data):
    """Stop all changes of a worker, or of the fleet."""

    reason: Reason
    until: Moment | None = None


class LicenseRequest(Data):
    """Register or give back a licence. A token given here replaces the stored one."""

    operation: LicenseOperation
    token: LicenseToken | None = None
    reason: Reason | None = None

    _token = field_validator("token")(_plain_token)


# What controllers ask


class LeadershipAnnouncement(Data):
    """A controller's new term; later, that its start-up sweep is done."""

    term: Annotated[int, Field(ge=1, le=MOST), WHOLE]
    startup_sweep_done: Flag = False


class StatusWrite(Data):
    """What a controller found or did: only fields that are given change, null clears."""

    status: WorkerStatus
    version: Version
    reason: Reason
    instance_id: InstanceId | None = None
    instance_type: Annotated[Text, Field(max_length=64)] | None = None
    ami_id: Annotated[Text, Field(max_length=64)] | None = None
    aws_account_id: Account | None = None
    public_ip: Address | None = None
    private_ip: Address | None = None
    cml_version: Annotated[Text, Field(max_length=64)] | None = None
    node_definitions: NodeDefinitions | None = None
    terminated_by: Annotated[Text, Field(max_length=100)] | None = None
    terminated_reason: Annotated[Text, Field(max_length=500)] | None = None
    conditions: tuple[Condition, ...] | None = None
    decision: DecisionReport | None = None
    desired_status: OnlyStopped | None = None
    drift: Flag = Field(default=False, description="Whether somebody else stopped it: it is counted.")
    launch_intent: None = Field(
        default=None, description="Null: the intent is settled and nothing was launched. The next attempt is another."
    )


class LaunchWrite(Data):
    """The intent to launch, stored before the call."""

    version: Version
    attempt: Annotated[int, Field(ge=1, le=1_000_000), WHOLE]
    parameters: Annotated[dict[str, Any], Field(min_length=1, max_length=50)]


class MetricsBatch(Data):
    """Figures of many workers at once."""

    items: Annotated[tuple[MetricsSample, ...], Field(max_length=MOST_SAMPLES)]


class DecisionItem(Data):
    """What was decided for one worker."""

    worker_id: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    decision: DecisionReport


class DecisionsBatch(Data):
    """What was decided for many workers, without a change of their records."""

    items: Annotated[tuple[DecisionItem, ...], Field(max_length=MOST_DECISIONS)]


class DetectIdle(Data):
    """Telemetry of a worker; None: it could not be fetched, which is not idleness."""

    events: Annotated[tuple[ActivityEvent, ...], Field(max_length=MOST_EVENTS)] | None
    observed_at: Moment


class LicenseStatusWrite(Data):
    """What CML says about the licence."""

    status: LicenseStatus
    version: Version | None = None
    clear_pending: Flag = False
    leaked: Flag = Field(default=False, description="CML forgot it, but Cisco still counts it.")
    message: Annotated[Text, Field(max_length=1000)] = ""


class ImportWorker(Data):
    """An instance that was found and is not ours yet."""

    instance_id: InstanceId
    aws_region: Region
    aws_account_id: Account | None = None
    name: Name | None = None
    instance_type: Annotated[Text, Field(max_length=64)] | None = None
    ami_id: Annotated[Text, Field(max_length=64)] | None = None
    status: WorkerStatus
    public_ip: Address | None = None
    private_ip: Address | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    cml_version: Annotated[Text, Field(max_length=64)] | None = None
    previous_worker_id: Annotated[Text, Field(max_length=64)] | None = None


class ScaleUp(Data):
    """A need for one more worker; `for` names it, so that one need never yields two."""

    template: Name
    aws_region: Region | None = None
    reason: Reason
    requested_for: Annotated[Text, Field(max_length=128)] | None = Field(default=None, alias="for")


class BreakerReport(Data):
    """What a sweep would have marked as lost, and why it did not."""

    region: Region
    open: Flag
    reason: Reason
    affected: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()
    only_a_person_closes: Flag = False


class AuditWrite(Data):
    """A decision of a controller that changes no record."""

    action: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]
    subject: Annotated[Text, Field(min_length=1, max_length=128)]
    reason: Annotated[Text, Field(max_length=500)] = ""


class DrainWrite(Data):
    """Why scale-down takes a worker out of service."""

    reason: Reason = "idle"
