"""Metrics of instances by GetMetricData, and health notices by DescribeInstanceStatus.

One GetMetricData call carries as many queries as CloudWatch accepts. Health takes three calls whatever the size of the
fleet.

Memory and disk metrics come from the CloudWatch agent, and are found only if it publishes them with the one dimension
`InstanceId`: GetMetricData requires the exact set of dimensions. In the configuration of the agent that is
`"aggregation_dimensions": [["InstanceId"]]` with `"append_dimensions": {"InstanceId": "${aws:InstanceId}"}`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import HealthKind, HealthNotice, InstanceMetrics
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from lcm.cloud.aws.gateway import AwsGateway


GET_METRIC_DATA = "GetMetricData"
MAX_QUERIES_PER_CALL = 500
MAX_DATAPOINTS_PER_CALL = 100_800

# Basic monitoring publishes every five minutes, a few minutes late.
_PERIOD_SECONDS = 300
_WINDOW = timedelta(minutes=20)
_DATAPOINTS_PER_QUERY = int(_WINDOW.total_seconds()) // _PERIOD_SECONDS + 2
# Leaves threads for mutations.
_MAX_CONCURRENT_CALLS = 4


@dataclass(frozen=True, slots=True)
class _Metric:
    field: str
    namespace: str
    name: str
    per_second: bool = False


METRICS = (
    _Metric("cpu_utilization", "AWS/EC2", "CPUUtilization"),
    _Metric("network_in", "AWS/EC2", "NetworkIn", per_second=True),
    _Metric("network_out", "AWS/EC2", "NetworkOut", per_second=True),
    _Metric("disk_read", "AWS/EC2", "EBSReadBytes", per_second=True),
    _Metric("disk_write", "AWS/EC2", "EBSWriteBytes", per_second=True),
    _Metric("memory_utilization", "CWAgent", "mem_used_percent"),
    _Metric("disk_utilization", "CWAgent", "disk_used_percent"),
)


class InstanceMetricsReader:
    """The metrics of one region's instances."""

    def __init__(self, gateway: AwsGateway) -> None:
        self._gateway = gateway
        self._turns = asyncio.Semaphore(_MAX_CONCURRENT_CALLS)

    async def wait_for_calls(self, instances: int) -> None:
        """Take the calls for so many instances from the rate limit."""
        for _ in range(ceil(instances * len(METRICS) / MAX_QUERIES_PER_CALL)):
            await self._gateway.wait_for_token(GET_METRIC_DATA)

    async def latest(self, instance_ids: Sequence[str], end: datetime | None = None) -> Mapping[str, InstanceMetrics]:
        """Return the latest metrics of each instance before `end`; instances without metrics are left out."""
        ids = list(dict.fromkeys(instance_ids))
        queries = [(instance_id, metric) for instance_id in ids for metric in METRICS]
        batches = [
            queries[start : start + MAX_QUERIES_PER_CALL] for start in range(0, len(queries), MAX_QUERIES_PER_CALL)
        ]
        # Periods are counted from the start time. So all periods up to the current minute are whole ones: a sum over a
        # partial period would be misleading.
        until = (end or clock.now()).replace(second=0, microsecond=0)
        readings: dict[str, _InstanceReading] = {}

        async def fetch(batch: list[tuple[str, _Metric]]) -> None:
            async with self._turns:
                await self._fetch(batch, until, readings)

        try:
            async with asyncio.TaskGroup() as group:
                for batch in batches:
                    group.create_task(fetch(batch))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {instance_id: readings[instance_id].result() for instance_id in ids if instance_id in readings}

    async def _fetch(
        self, batch: list[tuple[str, _Metric]], end: datetime, readings: dict[str, _InstanceReading]
    ) -> None:
        assert len(batch) <= MAX_QUERIES_PER_CALL
        assert len(batch) * _DATAPOINTS_PER_QUERY <= MAX_DATAPOINTS_PER_CALL
        request: dict[str, Any] = {
            "MetricDataQueries": [_metric_query(index, *query) for index, query in enumerate(batch)],
            "StartTime": end - _WINDOW,
            "EndTime": end,
            "ScanBy": "TimestampDescending",
        }
        while True:
            response = await self._gateway.call(GET_METRIC_DATA, request)
            for result in response.get("MetricDataResults", ()):
                if result.get("Timestamps"):
                    instance_id, metric = batch[int(result["Id"].removeprefix("q"))]
                    reading = readings.setdefault(instance_id, _InstanceReading(instance_id))
                    reading.take(metric, result["Timestamps"], result["Values"])
            if not response.get("NextToken"):
                return
            request = {**request, "NextToken": response["NextToken"]}


class _InstanceReading:
    """The metrics of an instance that were received so far."""

    def __init__(self, instance_id: str) -> None:
        self._instance_id = instance_id
        self._latest: dict[str, tuple[datetime, float]] = {}

    def take(self, metric: _Metric, timestamps: Sequence[datetime], values: Sequence[float]) -> None:
        at, value = max(zip(timestamps, values, strict=True), key=lambda point: point[0])
        known = self._latest.get(metric.field)
        if known is None or known[0] < at:
            self._latest[metric.field] = (at, value / _PERIOD_SECONDS if metric.per_second else value)

    def result(self) -> InstanceMetrics:
        at = max(timestamp for timestamp, _ in self._latest.values()).astimezone(UTC)
        values = {field: value for field, (_, value) in self._latest.items()}
        return InstanceMetrics(instance_id=self._instance_id, at=at, **values)


def _metric_query(place: int, instance_id: str, metric: _Metric) -> dict[str, Any]:
    return {
        "Id": f"q{place}",
        "MetricStat": {
            "Metric": {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": [{"Name": "InstanceId", "Value": instance_id}],
            },
            "Period": _PERIOD_SECONDS,
            "Stat": "Sum" if metric.per_second else "Average",
        },
    }


DESCRIBE_INSTANCE_STATUS = "DescribeInstanceStatus"
_PAGE_SIZE = 1000
_EVENT_CODES = ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"]
# EC2 lists an event for a week after it is over.
_FINISHED_PREFIXES = ("[Completed]", "[Canceled]")
_IMPAIRED = "impaired"
# What is not `ok`. A stopped instance, which has no checks, is not among them.
_NOT_PASSED = [_IMPAIRED, "initializing", "insufficient-data"]
_STATUS_CHECKS = (
    ("instance-status.status", HealthKind.INSTANCE_IMPAIRED, "InstanceStatus"),
    ("system-status.status", HealthKind.SYSTEM_IMPAIRED, "SystemStatus"),
)


class InstanceHealthReader:
    """The health of one region's instances."""

    def __init__(self, gateway: AwsGateway) -> None:
        self._gateway = gateway

    async def notices(self) -> Sequence[HealthNotice]:
        """Return all notices, sorted by instance."""
        found: list[HealthNotice] = []
        for status in await self._describe_status("event.code", _EVENT_CODES, everything=True):
            found.extend(_maintenance_notices(status))
        for filtered, kind, member in _STATUS_CHECKS:
            found.extend(
                _check_notice(status, kind, member) for status in await self._describe_status(filtered, _NOT_PASSED)
            )
        return sorted(found, key=lambda notice: (notice.instance_id, notice.kind.value, notice.detail))

    async def _describe_status(
        self, name: str, values: list[str], *, everything: bool = False
    ) -> list[Mapping[str, Any]]:
        request: dict[str, Any] = {"Filters": [{"Name": name, "Values": values}], "MaxResults": _PAGE_SIZE}
        if everything:
            # Maintenance is scheduled for stopped instances too.
            request["IncludeAllInstances"] = True
        statuses: list[Mapping[str, Any]] = []
        while True:
            response = await self._gateway.call(DESCRIBE_INSTANCE_STATUS, request)
            statuses.extend(response.get("InstanceStatuses", ()))
            if not response.get("NextToken"):
                return statuses
            request = {**request, "NextToken": response["NextToken"]}


def _maintenance_notices(status: Mapping[str, Any]) -> Iterator[HealthNotice]:
    for event in status.get("Events", ()):
        description = event.get("Description", "")
        if not description.startswith(_FINISHED_PREFIXES):
            begins = event.get("NotBefore")
            at = begins.astimezone(UTC) if begins else None
            code = event.get("Code", "event")
            yield HealthNotice(status["InstanceId"], HealthKind.MAINTENANCE, description, at, code)


def _check_notice(status: Mapping[str, Any], kind: HealthKind, member: str) -> HealthNotice:
    result = status.get(member, {}).get("Status", "")
    if result != _IMPAIRED:
        return HealthNotice(status["InstanceId"], HealthKind.CHECKS_PENDING, result)
    failed = [
        detail.get("Name", "check")
        for detail in status.get(member, {}).get("Details", ())
        if detail.get("Status") == "failed"
    ]
    return HealthNotice(status["InstanceId"], kind, f"failed: {', '.join(failed)}" if failed else "impaired")
