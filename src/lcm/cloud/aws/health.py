"""Impaired instances and announced maintenance, in three calls whatever the size of the fleet."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import HealthKind, HealthNotice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lcm.cloud.aws.gateway import Gateway

OPERATION = "DescribeInstanceStatus"
_PAGE = 1000
_EVENT_CODES = ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"]
# EC2 goes on showing an event for a week after it happened.
_OVER = ("[Completed]", "[Canceled]")
_CHECKS = (
    ("instance-status.status", HealthKind.INSTANCE_IMPAIRED, "InstanceStatus"),
    ("system-status.status", HealthKind.SYSTEM_IMPAIRED, "SystemStatus"),
)


class Health:
    """The health of one region's instances."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def notices(self) -> Sequence[HealthNotice]:
        """All that is wrong or announced, in the order of instances."""
        found: list[HealthNotice] = []
        for status in await self._ask("event.code", _EVENT_CODES, everything=True):
            found.extend(_events(status))
        for filtered, kind, member in _CHECKS:
            found.extend(_impaired(status, kind, member) for status in await self._ask(filtered, ["impaired"]))
        return sorted(found, key=lambda notice: (notice.instance_id, notice.kind.value, notice.detail))

    async def _ask(self, name: str, values: list[str], *, everything: bool = False) -> list[Mapping[str, Any]]:
        request: dict[str, Any] = {"Filters": [{"Name": name, "Values": values}], "MaxResults": _PAGE}
        if everything:
            # Maintenance is announced for stopped instances too.
            request["IncludeAllInstances"] = True
        statuses: list[Mapping[str, Any]] = []
        while True:
            answer = await self._gateway.call(OPERATION, request)
            statuses.extend(answer.get("InstanceStatuses", ()))
            if not answer.get("NextToken"):
                return statuses
            request = {**request, "NextToken": answer["NextToken"]}


def _events(status: Mapping[str, Any]) -> Iterator[HealthNotice]:
    for event in status.get("Events", ()):
        description = event.get("Description", "")
        if not description.startswith(_OVER):
            detail = f"{event.get('Code', 'event')}: {description}" if description else event.get("Code", "event")
            begins = event.get("NotBefore")
            at = begins.astimezone(UTC) if begins else None
            yield HealthNotice(status["InstanceId"], HealthKind.MAINTENANCE, detail, at)


def _impaired(status: Mapping[str, Any], kind: HealthKind, member: str) -> HealthNotice:
    failed = [
        detail.get("Name", "check")
        for detail in status.get(member, {}).get("Details", ())
        if detail.get("Status") == "failed"
    ]
    return HealthNotice(status["InstanceId"], kind, f"failed: {', '.join(failed)}" if failed else "impaired")
