"""Selects the template for a new worker, or gives the reason not to launch one.

An instance on which the lablet does not fit is never launched. The newest workers of a template show what the next one
would be like: otherwise a version that no image has would be launched again and again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.model.calendar.schedule import closed_template_reason
from lcm.model.lablet.placement import (
    check_cml_version,
    check_node_definitions,
    check_template,
    no_template_reason,
)
from lcm.model.worker.conditions import (
    CAPACITY_LACKING,
    LICENSE_PENDING,
    TYPE_NOT_OFFERED,
    ConditionType,
    find_condition,
    overdue_wait,
)
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerOrigin, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.model.calendar.schedule import Schedule
    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import LabletRequirements
    from lcm.model.worker.conditions import Condition
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import WorkerTemplate

_UNLAUNCHED_STATUSES = (WorkerStatus.PENDING, WorkerStatus.STOPPED)
_MAX_CAUSE = 200

FAILED_LAUNCH_WINDOW = timedelta(minutes=10)
"""A failed launch prevents another launch from the same template for this time."""


def will_be_licensed(worker: Worker) -> bool:
    """Whether its CML is registered, or is expected to be."""
    if worker.license_status is LicenseStatus.FAILED:
        return False
    return worker.has_license_token or worker.license_status is LicenseStatus.REGISTERED


def lacks_license(worker: Worker) -> bool:
    """Whether scale-up launched the worker and it will get no license."""
    return worker.origin is WorkerOrigin.SCALE_UP and not will_be_licensed(worker)


def failed_launch(workers: Iterable[Worker], template_name: str, aws_region: str | None, now: datetime) -> str | None:
    """A launch that failed permanently would fail again: an operator has to resolve it first.

    Only the newest worker that LCM itself launched from the template shows it: after it, one has succeeded or is tried.
    """
    launched = [
        worker
        for worker in workers
        if worker.template_name == template_name
        and worker.origin is WorkerOrigin.SCALE_UP
        and aws_region in (None, worker.aws_region)
    ]
    newest = max(launched, key=lambda each: (each.created_at, each.id), default=None)
    if newest is None or newest.status is not WorkerStatus.FAILED or now - newest.status_since >= FAILED_LAUNCH_WINDOW:
        return None
    return f"worker {newest.name} of template {template_name} was launched and failed; see its history"


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """The template, or why there is none: permanently, or only at present."""

    template: WorkerTemplate | None
    reason: str = ""
    is_permanent: bool = False


class TemplateSelector:
    """The enabled templates, cheapest first, and the workers launched from them."""

    def __init__(
        self,
        templates: Iterable[WorkerTemplate],
        workers: Sequence[Worker],
        now: datetime,
        ports: PortRange,
        schedules: Sequence[Schedule] = (),
        *,
        launches_licensed: bool | None = None,
    ) -> None:
        self._all = tuple(templates)
        enabled = [template for template in self._all if template.enabled]
        self._enabled = sorted(enabled, key=lambda each: (each.cost_per_hour_usd, each.name))
        self._now = now
        self._ports = ports
        self._schedules = schedules
        self._launches_licensed = launches_licensed
        self._made_from: dict[str, list[Worker]] = defaultdict(list)
        for worker in sorted(workers, key=lambda each: (each.created_at, each.id), reverse=True):
            if worker.template_name is not None:
                self._made_from[worker.template_name].append(worker)
        self._overdue = [
            (worker, wait)
            for worker in workers
            if worker.desired_status is DesiredStatus.RUNNING
            and worker.status in _UNLAUNCHED_STATUSES
            and (wait := overdue_wait(worker.conditions)) is not None
        ]
        launched = [
            worker
            for worker in workers
            if worker.origin is WorkerOrigin.SCALE_UP and (worker.has_license_token or not launches_licensed)
        ]
        self._newest = max(launched, key=lambda each: (each.created_at, each.id), default=None)

    @property
    def enabled(self) -> Sequence[WorkerTemplate]:
        """The enabled templates."""
        return self._enabled

    def choose(self, requirements: LabletRequirements, aws_region: str | None) -> TemplateChoice:
        """The cheapest enabled template on which the lablet fits, as far as known."""
        holding = [each for each in self._enabled if check_template(each, requirements, ports=self._ports) is None]
        if not holding:
            # A disabled template may be enabled again, but waiting does not provide a larger instance.
            hopeless = all(check_template(each, requirements, ports=self._ports) is not None for each in self._all)
            return TemplateChoice(
                None, no_template_reason(self._all, requirements, ports=self._ports), is_permanent=hopeless
            )
        if (license_problem := self._license_problem(requirements)) is not None:
            return TemplateChoice(None, license_problem)
        problems, summary = [], "a new worker would not be suitable"
        for template in holding:
            problem = self._suitability_problem(template, requirements, aws_region)
            if problem is None:
                problem = closed_template_reason(template.name, self._schedules, self._now)
            if problem is None and (problem := self.wait_problem(template.name, aws_region)) is not None:
                summary = "another worker would wait as well"
            if problem is not None:
                problems.append(f"template {template.name}: {problem}")
                continue
            failed = failed_launch(self._made_from[template.name], template.name, aws_region, self._now)
            return TemplateChoice(template) if failed is None else TemplateChoice(None, failed)
        return TemplateChoice(None, f"{summary}: {'; '.join(problems)}"[:800])

    def wait_problem(self, template_name: str, aws_region: str | None) -> str | None:
        """Why another worker of the template would wait as well: one has waited there for too long.

        Missing capacity concerns one instance type. Whatever else keeps a worker from being launched or started, such
        as credentials, concerns the whole region.
        """
        for worker, wait in self._overdue:
            if aws_region not in (None, worker.aws_region):
                continue
            if wait.reason != CAPACITY_LACKING or worker.template_name == template_name:
                return (
                    f"{worker.name} has waited in {worker.aws_region} since {_since(wait)}: {wait.message[:_MAX_CAUSE]}"
                )
        return None

    def _license_problem(self, requirements: LabletRequirements) -> str | None:
        """A new worker would get no license: none is configured, or the newest shows it.

        One without a token shows nothing once there is one for new workers.
        """
        if not requirements.license:
            return None
        if self._launches_licensed is False:
            return (
                "a new worker would not be suitable: it would have no license; "
                "set SCALE_UP_LICENSE_TOKEN, or give a worker a license token"
            )
        if self._newest is None:
            return None
        name = self._newest.name
        wait = overdue_wait(self._newest.conditions)
        if wait is not None and wait.reason == LICENSE_PENDING:
            cause = wait.message[:_MAX_CAUSE]
            return (
                f"a new worker would not be suitable: {name} has waited for its license since {_since(wait)}: {cause}"
            )
        if will_be_licensed(self._newest):
            return None
        if self._newest.license_status is LicenseStatus.FAILED:
            return (
                f"a new worker would not be suitable: the license registration of {name}, which was launched, failed; "
                "give it a valid license token"
            )
        return (
            f"a new worker would not be suitable: {name} was launched and has no license; "
            "set SCALE_UP_LICENSE_TOKEN, or give it a license token"
        )

    def _suitability_problem(
        self, template: WorkerTemplate, requirements: LabletRequirements, aws_region: str | None
    ) -> str | None:
        """Why another worker would not be suitable, as those of the template show."""
        without = next((worker for worker in self._made_from[template.name] if _proves_no_kvm(worker, template)), None)
        if without is not None:
            return (
                f"{without.name} was launched from it, and its CML has no KVM; change the template's instance type or"
                f" nested_virtualization, or terminate {without.name}"
            )
        made = [w for w in self._made_from[template.name] if aws_region is None or w.aws_region == aws_region]
        failed = next((worker for worker in made if _proves_type_missing(worker, template)), None)
        if failed is not None:
            return (
                f"no configured zone in {failed.aws_region} offers {template.instance_type}, as {failed.name} shows;"
                f" change the template's instance type, or add a subnet and terminate {failed.name}"
            )
        by_version = next((worker for worker in made if worker.cml_version is not None), None)
        if by_version is not None and (wrong := check_cml_version(by_version, requirements)) is not None:
            return f"{by_version.name} was launched from it; {wrong}"
        by_nodes = next((worker for worker in made if worker.node_definitions is not None), None)
        if by_nodes is not None and (missing := check_node_definitions(by_nodes, requirements)) is not None:
            return f"{by_nodes.name} was launched from it; {missing}"
        return None


def _proves_no_kvm(worker: Worker, template: WorkerTemplate) -> bool:
    """Whether another worker of the template would lack KVM as this one does: the template was not changed since."""
    return (
        worker.lacks_kvm
        and template.requires_kvm
        and worker.instance_type == template.instance_type
        and worker.nested_virtualization == template.nested_virtualization
        and worker.ami_name_pattern == template.ami_name_pattern
    )


def _proves_type_missing(worker: Worker, template: WorkerTemplate) -> bool:
    """Whether a launch of the template's type has failed because no zone there offers it."""
    instance = find_condition(worker.conditions, ConditionType.INSTANCE_READY)
    refused = instance is not None and instance.reason == TYPE_NOT_OFFERED
    return refused and worker.status is WorkerStatus.FAILED and worker.instance_type == template.instance_type


def _since(wait: Condition) -> str:
    return f"{wait.since:%Y-%m-%d %H:%M} UTC"
