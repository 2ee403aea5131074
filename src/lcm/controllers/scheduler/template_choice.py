"""Which template a new worker for a lablet is made from, and what speaks against launching one now.

A machine that cannot hold the lablet is never launched. What workers of the same template turned out to be is taken
as a sign of what the next one would be: else a version that no image has would be launched again and again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.model.lablet.placement import (
    check_cml_version,
    check_node_definitions,
    check_template,
    no_template_reason,
)
from lcm.model.worker.status import LicenseStatus, WorkerOrigin, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import LabletRequirements
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import WorkerTemplate

FAILED_LAUNCH_WINDOW = timedelta(minutes=10)
"""For so long a worker that could not be launched speaks against another of the same template."""


def will_be_licensed(worker: Worker) -> bool:
    """Whether its CML is registered, or will be as far as can be known."""
    if worker.license_status is LicenseStatus.FAILED:
        return False
    return worker.has_license_token or worker.license_status is LicenseStatus.REGISTERED


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """The template, or why there is none: for good, or only as things are."""

    template: WorkerTemplate | None
    reason: str = ""
    hopeless: bool = False


class TemplateSelector:
    """The enabled templates, cheapest first, with what is known of their workers."""

    def __init__(
        self, templates: Iterable[WorkerTemplate], workers: Sequence[Worker], now: datetime, ports: PortRange
    ) -> None:
        self._all = tuple(templates)
        enabled = [template for template in self._all if template.enabled]
        self._enabled = sorted(enabled, key=lambda each: (each.cost_per_hour_usd, each.name))
        self._now = now
        self._ports = ports
        self._made_from: dict[str, list[Worker]] = defaultdict(list)
        for worker in sorted(workers, key=lambda each: (each.created_at, each.id), reverse=True):
            if worker.template_name is not None:
                self._made_from[worker.template_name].append(worker)
        launched = [worker for worker in workers if worker.origin is WorkerOrigin.SCALE_UP]
        self._newest = max(launched, key=lambda each: (each.created_at, each.id), default=None)

    @property
    def enabled(self) -> Sequence[WorkerTemplate]:
        """Those that may be launched."""
        return self._enabled

    def choose(self, requirements: LabletRequirements, aws_region: str | None) -> TemplateChoice:
        """The cheapest enabled template that holds the lablet, as far as can be known."""
        holding = [each for each in self._enabled if check_template(each, requirements, ports=self._ports) is None]
        if not holding:
            # One that is only disabled may be enabled again; a larger machine than there is does not come by waiting.
            hopeless = all(check_template(each, requirements, ports=self._ports) is not None for each in self._all)
            return TemplateChoice(
                None, no_template_reason(self._all, requirements, ports=self._ports), hopeless=hopeless
            )
        if (unlicensable := self._no_licence(requirements)) is not None:
            return TemplateChoice(None, unlicensable)
        doubts = []
        for template in holding:
            doubt = self._doubt(template, requirements, aws_region)
            if doubt is not None:
                doubts.append(f"template {template.name}: {doubt}")
                continue
            failed = self._failed_launch(template, aws_region)
            return TemplateChoice(template) if failed is None else TemplateChoice(None, failed)
        return TemplateChoice(None, f"a new worker would not do: {'; '.join(doubts)}"[:800])

    def _no_licence(self, requirements: LabletRequirements) -> str | None:
        """The newest that was launched has no licence and gets none: another would not either."""
        if not requirements.license or self._newest is None or will_be_licensed(self._newest):
            return None
        name = self._newest.name
        return (
            f"a new worker would not do: {name} was launched and has no licence; "
            "set SCALE_UP_LICENSE_TOKEN, or give it a licence token"
        )

    def _doubt(self, template: WorkerTemplate, requirements: LabletRequirements, aws_region: str | None) -> str | None:
        """What the newest worker of the template that is known turned out to be."""
        made = [w for w in self._made_from[template.name] if aws_region is None or w.aws_region == aws_region]
        by_version = next((worker for worker in made if worker.cml_version is not None), None)
        if by_version is not None and (wrong := check_cml_version(by_version, requirements)) is not None:
            return f"{by_version.name} was made from it; {wrong}"
        by_nodes = next((worker for worker in made if worker.node_definitions is not None), None)
        if by_nodes is not None and (missing := check_node_definitions(by_nodes, requirements)) is not None:
            return f"{by_nodes.name} was made from it; {missing}"
        return None

    def _failed_launch(self, template: WorkerTemplate, aws_region: str | None) -> str | None:
        """A launch that was refused for good would be refused again: somebody has to see to it first."""
        for worker in self._made_from[template.name]:
            if worker.origin is not WorkerOrigin.SCALE_UP or aws_region not in (None, worker.aws_region):
                continue
            if worker.status is WorkerStatus.FAILED and self._now - worker.status_since < FAILED_LAUNCH_WINDOW:
                return f"worker {worker.name} of template {template.name} was launched and failed; see its history"
            return None
        return None
