"""The record of a worker, which is one CML server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, computed_field

from lcm.model.base import (
    CARRIED,
    CaseInsensitiveEnum,
    Reason,
    Record,
    RegionName,
    ResourceName,
    SingleLineText,
    UtcDatetime,
    has_carried_words,
)
from lcm.model.worker.conditions import Condition, ConditionType, is_condition_true
from lcm.model.worker.cost import current_cost
from lcm.model.worker.maintenance import MAINTENANCE, AnnouncedMaintenance
from lcm.model.worker.status import (
    STATUSES,
    DesiredStatus,
    LicenseOperation,
    LicenseStatus,
    LostInstancePolicy,
    WorkerOrigin,
    WorkerStatus,
)
from lcm.model.worker.template import Allocation, Capacity

if TYPE_CHECKING:
    from datetime import datetime

MAX_TAGS = 40
_RESERVED_TAG_PREFIXES = ("lcm:", "aws:")


def _check_tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > MAX_TAGS:
        raise ValueError(f"at most {MAX_TAGS} tags, not {len(tags)}")
    for key in tags:
        if key.lower().startswith(_RESERVED_TAG_PREFIXES):
            raise ValueError(f"tag {key!r}: names that start with lcm: or aws: are reserved")
    return tags


TagKey = Annotated[SingleLineText, Field(min_length=1, max_length=127)]
TagValue = Annotated[SingleLineText, Field(max_length=255)]
Tags = Annotated[dict[TagKey, TagValue], AfterValidator(_check_tags)]
"""The user's tags of a worker. Tags of the platform and of AWS cannot be overridden."""


class Hold(Record):
    """A hold placed by a person: nothing is changed until it is released or expires."""

    reason: Reason
    by: str
    since: UtcDatetime
    until: UtcDatetime | None = None

    def active(self, now: datetime) -> bool:
        """Whether the hold has not expired."""
        return self.until is None or now < self.until


class Override(Record):
    """A status requested by a person: until its end, schedules, maintenance and policies do not change it."""

    desired: Annotated[DesiredStatus, CARRIED]
    until: UtcDatetime | None = Field(default=None, description="Its end; null: until a person starts or stops it.")
    by: str
    since: UtcDatetime
    reason: str = ""

    def active(self, now: datetime) -> bool:
        """Whether it has not ended."""
        return self.until is None or now < self.until


class PendingLicenseOperation(Record):
    """A license operation that a person requested."""

    operation: Annotated[LicenseOperation, CARRIED]
    deregister_first: bool = Field(
        default=False, description="Whether CML is registered with a former token, which is deregistered first."
    )
    requested_at: UtcDatetime
    requested_by: str


class LaunchIntent(Record):
    """A launch attempt, stored before the call is made."""

    attempt: Annotated[int, Field(ge=1)]
    parameters: dict[str, Any]
    stored_at: UtcDatetime


class Worker(Record):
    """A worker. `version` changes with each write of the record, `generation` when the desired state changes."""

    id: str
    name: ResourceName
    template_name: str | None
    aws_region: RegionName
    aws_account_id: str | None = None
    status: Annotated[WorkerStatus, CARRIED] = WorkerStatus.PENDING
    status_since: UtcDatetime
    desired_status: Annotated[DesiredStatus, CARRIED] = DesiredStatus.RUNNING
    conditions: tuple[Condition, ...] = ()
    instance_id: str | None = None
    instance_since: UtcDatetime | None = None
    instance_type: str | None = None
    instance_cpu_cores: int | None = Field(
        default=None, description="CPU cores of an imported instance, as EC2 reports them; null if not known."
    )
    instance_memory_gb: float | None = Field(
        default=None, description="Memory of an imported instance, as EC2 reports it; null if not known."
    )
    ami_id: str | None = None
    ami_name_pattern: str | None = Field(
        default=None, description="The image name pattern of its template when it was created; null: the default."
    )
    nested_virtualization: bool = Field(
        default=False, description="Whether its instance is launched with nested virtualization."
    )
    requires_kvm: bool = Field(
        default=False, description="Whether it is not ready while its CML reports that it has no KVM."
    )
    public_ip: str | None = None
    private_ip: str | None = None
    launch_attempt: int = 0
    launch_intent: LaunchIntent | None = None
    replaced_at: tuple[UtcDatetime, ...] = ()
    drifted: bool = False
    drifted_at: tuple[UtcDatetime, ...] = ()
    origin: Annotated[WorkerOrigin, CARRIED] = WorkerOrigin.CREATED
    adopted_at: UtcDatetime | None = Field(
        default=None, description="When a person adopted this imported worker; null: not yet, or not imported."
    )
    schedulable: bool = Field(default=True, description="Whether lablets may be placed on it once it is ready.")
    previous_worker_id: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    team: str = Field(default="", description="The id of the team that it is dedicated to; empty for all.")
    hold: Hold | None = None
    override: Override | None = Field(
        default=None, description="The status that a person requested for a time; it overrides schedules and policies."
    )
    license_status: Annotated[LicenseStatus, CARRIED] = LicenseStatus.UNREGISTERED
    license_failed_generation: int | None = None
    has_license_token: bool = False
    has_cml_credentials: bool | None = Field(
        default=None, description="Whether it has CML credentials of its own; null if that was not recorded."
    )
    license_token_replaced: bool = Field(
        default=False, description="Whether the token was replaced while CML was registered with the former one."
    )
    release_license: bool = Field(
        default=True,
        description="Whether its license is deregistered before it is terminated; once false, always false.",
    )
    license_release_started_at: UtcDatetime | None = Field(
        default=None, description="When its stopped instance was started only to deregister its license."
    )
    license_release_ready_at: UtcDatetime | None = Field(
        default=None, description="When CML responded after that start."
    )
    pending_license_operation: PendingLicenseOperation | None = None
    lost_instance_policy: Annotated[LostInstancePolicy, CARRIED] = LostInstancePolicy.TERMINATE
    idle_detection_enabled: bool = True
    booking_id: str | None = Field(default=None, description="The booking that it is booked for; null: for none.")
    booked_until: UtcDatetime | None = Field(default=None, description="When that class ends.")
    measured_instance_id: str | None = Field(
        default=None, description="The instance whose time from launch to readiness was measured last."
    )
    last_activity_at: UtcDatetime | None = None
    last_idle_check_at: UtcDatetime | None = None
    last_resumed_at: UtcDatetime | None = None
    last_paused_at: UtcDatetime | None = None
    pause_reason: str | None = None
    paused_by_policy: bool = False
    stopped_by_policy: bool = False
    stopped_seconds: float = 0.0
    maintenance: AnnouncedMaintenance | None = Field(
        default=None, description="What EC2 has announced for its instance; null if nothing."
    )
    maintenance_restarts: tuple[UtcDatetime, ...] = Field(
        default=(),
        description="When it was stopped to move to another host, until EC2 reports its instance as healthy again.",
    )
    auto_pause_count: int = 0
    manual_pause_count: int = 0
    auto_resume_count: int = 0
    manual_resume_count: int = 0
    capacity: Capacity | None = None
    cost_per_hour_usd: float | None = Field(
        default=None, description="The price of its instance, in dollars an hour, while it runs; null if not known."
    )
    storage_price_per_gb_month_usd: float | None = Field(
        default=None, description="The price of disk space, which a stopped worker costs too."
    )
    cml_version: str | None = None
    node_definitions: tuple[str, ...] | None = Field(
        default=None, description="Node definitions that its CML offers; null if not known yet."
    )
    cml_certificate: str | None = Field(
        default=None, description="SHA-256 fingerprint of the certificate that its CML must present."
    )
    cml_certificate_presented: str | None = Field(
        default=None, description="Another certificate that its CML presents; null if it presents the right one."
    )
    allocation: Allocation = Allocation()
    terminated_by: str | None = None
    terminated_reason: str | None = None
    requested_for: str | None = None
    version: int = 1
    generation: int = 1
    created_at: UtcDatetime
    updated_at: UtcDatetime

    def model_post_init(self, context: Any) -> None:
        """Drop the stored values of fields that are computed."""
        if self.__pydantic_extra__:
            for name in ("ready", "current_cost_per_hour_usd"):
                self.__pydantic_extra__.pop(name, None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ready(self) -> bool:
        """Whether lablets may be placed on it: RUNNING, desired to be RUNNING, CML responds, and KVM is not missing."""
        return (
            self.status is WorkerStatus.RUNNING
            and self.desired_status is DesiredStatus.RUNNING
            and is_condition_true(self.conditions, ConditionType.CML_READY)
            and not self.lacks_kvm
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def current_cost_per_hour_usd(self) -> float | None:
        """What it costs an hour now, in dollars: its instance while that runs, and its disks; null if not known."""
        return current_cost(self)

    def is_booked(self, now: datetime) -> bool:
        """Whether it is booked for a class that has not ended."""
        return self.booking_id is not None and self.booked_until is not None and now < self.booked_until

    @property
    def lacks_kvm(self) -> bool:
        """Whether it requires KVM, and its CML reported that it has none."""
        return self.requires_kvm and is_condition_true(self.conditions, ConditionType.NO_KVM)

    @property
    def is_in_maintenance(self) -> bool:
        """Whether it is stopped only to be started again on another host."""
        stopped = self.desired_status is DesiredStatus.STOPPED
        return stopped and self.paused_by_policy and self.pause_reason == MAINTENANCE

    @property
    def known_end(self) -> datetime | None:
        """When announced maintenance of its instance may begin; None if none is announced."""
        if self.maintenance is None:
            return None
        return self.maintenance.not_before or self.updated_at

    @property
    def is_impaired(self) -> bool:
        """Whether EC2 reports that its instance fails a status check."""
        return is_condition_true(self.conditions, ConditionType.IMPAIRED)

    @property
    def is_adopted(self) -> bool:
        """Whether it is ours: created here, or imported and then adopted by a person."""
        return self.origin is not WorkerOrigin.IMPORTED or self.adopted_at is not None

    @property
    def can_sign_in(self) -> bool:
        """Whether there are credentials for its CML: its own, or the default ones, which only our workers may have."""
        return self.is_adopted or self.has_cml_credentials is not False

    @property
    def unknown_words(self) -> tuple[str, ...]:
        """Words that only a newer version knows: this version must not decide about the worker."""
        if not has_carried_words():
            return ()
        pending = self.pending_license_operation
        deciding: dict[str, CaseInsensitiveEnum | None] = {
            "status": self.status,
            "desired_status": self.desired_status,
            "lost_instance_policy": self.lost_instance_policy,
            "license_status": self.license_status,
            "pending_license_operation": None if pending is None else pending.operation,
            "override": None if self.override is None else self.override.desired,
        }
        return tuple(f"{name} {word}" for name, word in deciding.items() if word is not None and not word.is_known)

    @property
    def is_not_launched(self) -> bool:
        """Whether it was created stopped and no launch has begun: lists then say so instead of PENDING."""
        stopped = self.desired_status is DesiredStatus.STOPPED
        return self.status is WorkerStatus.PENDING and stopped and self.launch_intent is None

    @property
    def at_rest(self) -> bool:
        """Whether no change is pending. Polling skips such a worker; a sweep that disagrees wakes it."""
        if self.status is WorkerStatus.PENDING and self.launch_intent is not None:
            return False
        if self.status is WorkerStatus.STOPPED and self.is_in_maintenance:
            return False
        return self.desired_status in STATUSES[self.status].settled_for
