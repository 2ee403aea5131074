"""The conformance suite's bed on AWS's API: the real adapter, real HTTP, and patched moto behind it."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.utils import random_ami_id
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from prometheus_client import CollectorRegistry

from lcm.cloud.aws import AwsConfig, AwsProvider, RegionConfig, Tuning
from lcm.cloud.aws.monitoring import METRICS
from lcm.cloud.types import HealthKind, LaunchParameters
from lcm.core import clock
from tests.support.aws import moto_patches, operations
from tests.support.aws.conformance_simulated import launch_of
from tests.support.aws.credentials import REGION, dummy_credentials
from tests.support.aws.ec2_rules import RULES
from tests.support.aws.server import THROTTLED, AwsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from lcm.cloud.types import InstanceMetrics
    from tests.support.aws.conformance import OutOfBand, Refusal

ACCOUNT = "123456789012"
PAGE = 5
# Pages are small and read in threads; a failed read is retried once, soon.
TUNING = Tuning(read_attempts=2, thread_page=PAGE, poller_above=1_000_000, gather_seconds=0.02, connect_timeout=2.0)

_PATIENCE = 180.0
_PERIOD = 300


def moto_server() -> AwsServer:
    """moto, patched and empty, served over HTTP."""
    moto_patches.apply()
    moto_api_backend.reset()
    RULES.reset()
    moto = DomainDispatcherApplication(create_backend_app)

    def serve(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with RULES.one_moment():
            return list(moto(environ, start_response))

    return AwsServer(serve)


class AwsBed:
    """One region of patched moto, pages of five."""

    def __init__(self, tuning: Tuning = TUNING, more_regions: Sequence[str] = ()) -> None:
        operations.record()
        self.server = moto_server()
        self.registry = CollectorRegistry()
        self.ec2: Any = ec2_backends[ACCOUNT][REGION]
        vpc = self.ec2.create_vpc("10.64.0.0/16")
        self._subnets = [
            self._subnet(vpc.id, f"10.64.{128 * number}.0/17", zone) for number, zone in enumerate(("a", "b"))
        ]
        self._image = self._add_image("lcm-bed", ACCOUNT, clock.now() - timedelta(days=3650), "available")
        url = self.server.url
        regions = {name: RegionConfig(region=name, endpoint_url=url) for name in (REGION, *more_regions)}
        self.config = AwsConfig(regions, tuning)
        self.cloud = AwsProvider(self.config, self.registry)
        self.metrics = self.cloud

    def _subnet(self, vpc_id: str, block: str, zone: str) -> str:
        subnet = self.ec2.create_subnet(vpc_id, block, availability_zone=f"{REGION}{zone}")
        subnet.map_public_ip_on_launch = True
        return str(subnet.id)

    @property
    def region(self) -> str:
        return REGION

    @property
    def account_id(self) -> str:
        return ACCOUNT

    @property
    def subnets(self) -> Sequence[str]:
        return tuple(self._subnets)

    @property
    def page_size(self) -> int:
        return PAGE

    def parameters(self, worker_id: str, attempt: int = 1) -> LaunchParameters:
        return launch_of(worker_id, attempt, region=REGION, image_id=self._image, subnet_id=self._subnets[0])

    async def eventually(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while loop.time() < deadline:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            # Ten reads a second stay below the adapter's own rate limit.
            await asyncio.sleep(0.1)
        raise AssertionError(f"not within {_PATIENCE:g} s: {what}")

    async def live_instances(self) -> list[str]:
        with RULES.lock:
            ended = ("shutting-down", "terminated")
            return sorted(instance.id for instance in RULES.instances.values() if instance.state not in ended)

    def calls(self) -> Mapping[str, int]:
        return self.server.calls()

    async def add_image(self, name: str, owner: str, created_at: datetime, state: str = "available") -> str:
        return self._add_image(name, owner, created_at, state)

    def _add_image(self, name: str, owner: str, created_at: datetime, state: str, region: str = REGION) -> str:
        image_id: str = random_ami_id()
        ec2: Any = ec2_backends[ACCOUNT][region]
        ec2.amis[image_id] = Ami(
            ec2,
            image_id,
            name=name,
            owner_id=owner,
            public=True,
            state=state,
            creation_date=created_at,
            region_name=f"{region}a",
            virtualization_type="hvm",
            architecture="x86_64",
        )
        return image_id

    async def put_metrics(self, figures: InstanceMetrics) -> None:
        dimensions = [{"Name": "InstanceId", "Value": figures.instance_id}]
        at = figures.at.astimezone(UTC).replace(tzinfo=None)  # moto uses naive UTC
        for metric in METRICS:
            value = getattr(figures, metric.field)
            if value is not None:
                # CloudWatch stores the bytes of a whole period.
                kept = value * _PERIOD if metric.per_second else value
                datum = {"MetricName": metric.name, "Dimensions": dimensions, "Value": kept, "Timestamp": at}
                cloudwatch_backends[ACCOUNT][REGION].put_metric_data(metric.namespace, [datum])

    async def out_of_band(self, action: OutOfBand, instance_id: str) -> None:
        moto_patches.change(self.ec2, action.value, [instance_id])

    async def impair(self, instance_id: str, kind: HealthKind) -> None:
        which = "instance" if kind is HealthKind.INSTANCE_IMPAIRED else "system"
        RULES.impaired.setdefault(instance_id, set()).add(which)

    async def announce_maintenance(self, instance_id: str, detail: str, not_before: datetime) -> None:
        RULES.announce(instance_id, detail, not_before)

    async def move_maintenance(self, instance_id: str, not_before: datetime) -> None:
        RULES.move_events(instance_id, not_before)

    async def cancel_maintenance(self, instance_id: str) -> None:
        RULES.end_events(instance_id, "[Canceled]")

    async def complete_maintenance(self, instance_id: str) -> None:
        RULES.end_events(instance_id, "[Completed]")

    async def heal(self, instance_id: str) -> None:
        RULES.heal(instance_id)

    async def forget_terminated(self) -> None:
        RULES.forget_terminated()

    def hold_transitions(self, on: bool) -> None:
        RULES.held = on

    def hide_new_instances(self, seconds: float) -> None:
        RULES.hide_seconds = seconds

    def reveal_instances(self) -> None:
        RULES.reveal()

    def throttle(self, operation: str, times: int) -> None:
        self.server.refuse(operation, THROTTLED, times)

    def refuse(self, operation: str, refusal: Refusal, times: int) -> None:
        self.server.refuse(operation, refusal.value, times)

    def lose_replies(self, times: int) -> None:
        self.server.lose_replies(times)

    def fail_page(self, number: int) -> None:
        self.server.fail_page(number)

    def outage(self, on: bool) -> None:
        self.server.outage(on)

    def clear_faults(self) -> None:
        self.server.clear()

    def state(self, instance_id: str) -> str:
        """Return the state of an instance at the server."""
        with RULES.lock:
            return str(RULES.instances[instance_id].state)

    def another_provider(self, **changes: Any) -> AwsProvider:
        """Return a second adapter of the same server, as in another process; `changes` apply to its region."""
        region = self.config.regions[REGION].model_copy(update=changes)
        return AwsProvider(replace(self.config, regions={REGION: region}), CollectorRegistry())

    async def close(self) -> None:
        self.server.clear()
        await self.cloud.close()
        self.server.close()


@asynccontextmanager
async def open_bed(tuning: Tuning = TUNING, more_regions: Sequence[str] = ()) -> AsyncIterator[AwsBed]:
    """A fresh bed."""
    with dummy_credentials():
        bed = AwsBed(tuning, more_regions)
        try:
            yield bed
        finally:
            await bed.close()
