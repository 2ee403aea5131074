"""Assembly of a worker controller: settings reach their components, and missing ones are reported."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from lcm.client.client import Client
from lcm.client.transport import Limits
from lcm.cloud.aws import RegionConfig
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider
from lcm.cloud.types import RegionLaunchSettings
from lcm.cml.client.tls import CaBundle, Insecure, PinPerServer
from lcm.cml.types import Credentials
from lcm.controllers.worker.deps import Policy
from lcm.controllers.worker.observe.launch_resolver import ImageFilter
from lcm.coordination.memory.client import MemoryCoordination
from lcm.model.access import Role
from lcm.settings import SettingsError, load
from lcm.wiring.connections import CmlConnection, InvalidSettingsError, connect_cml
from lcm.wiring.controllers import CloseOnStop, ControllerRuntime, ControlPlaneCheck, make_control_plane_client
from lcm.wiring.up import UpSettings
from lcm.wiring.worker_controller import (
    CloudConnection,
    MissingExtraError,
    WorkerControllerAssembly,
    WorkerControllerComponentSettings,
    WorkerControllerProcessSettings,
    connect_aws,
    controller_config,
    make_worker_controller,
    region_launch_settings,
)
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.control_plane import serving_plane
from tests.support.virtual.fake_cml import FakeCml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKEN = "controller-token-for-tests-0123456789"


def load_settings(**env: str) -> WorkerControllerProcessSettings:
    return load(WorkerControllerProcessSettings, env={"LCM_CONTROLLER_TOKEN": TOKEN, **env}).settings


def parts(**values: Any) -> WorkerControllerComponentSettings:
    return WorkerControllerComponentSettings(**values)


# Settings


def test_without_a_token_it_does_not_start() -> None:
    with pytest.raises(SettingsError) as caught:
        load(WorkerControllerProcessSettings, env={})
    assert str(caught.value).startswith("LCM_CONTROLLER_TOKEN (not set): must be set")


@pytest.mark.parametrize("token", ["a b", "umläut", "line\nline"])
def test_an_unusable_token_is_reported_without_its_value(token: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(LCM_CONTROLLER_TOKEN=token)
    assert str(caught.value) == ('LCM_CONTROLLER_TOKEN="***" (environment): must be printable ASCII without spaces')


def test_alone_it_has_no_simulated_cloud_and_no_memory_to_elect_in() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(CLOUD_PROVIDER="simulated", COORDINATION="memory")
    first, second = sorted(caught.value.problems)
    assert first == ('CLOUD_PROVIDER="simulated" (environment): must be aws here: only `lcm up` has a simulated cloud')
    assert second.startswith('COORDINATION="memory" (environment): must be etcd here')


def test_every_setting_reaches_the_controller() -> None:
    rules = controller_config(
        load_settings(
            PROVISIONING_TIMEOUT="1",
            STARTING_TIMEOUT="2",
            STUCK_AFTER="3",
            CML_READY_TIMEOUT="4",
            CAPACITY_WAIT_LIMIT="8",
            DRAIN_TIMEOUT="0",
            LICENSE_RELEASE_TIMEOUT="6",
            TELEMETRY_MISSING_AFTER="5",
            METRICS_COLLECT_INTERVAL="7",
            AMI_NAME_PATTERN="lab-?",
            AMI_OWNERS="self, 123456789012",
            CML_DEFAULT_USERNAME="lcm",
            CML_DEFAULT_PASSWORD="pw",
            CML_USE_PRIVATE_ADDRESS="true",
        )
    )
    assert rules.account == Credentials("lcm", "pw")
    assert rules.policy == Policy(
        provisioning_timeout=1,
        starting_timeout=2,
        stuck_after=3,
        cml_ready_timeout=4,
        capacity_wait_limit=8,
        drain_timeout=0,
        license_release_timeout=6,
        telemetry_missing_after=5,
    )
    assert rules.images == ImageFilter("lab-?", ("self", "123456789012"))
    assert (rules.metrics_interval, rules.private_addresses) == (7, True)


def test_config_defaults_match_the_settings() -> None:
    rules = controller_config(load_settings())
    assert rules.policy == Policy()
    assert rules.images == ImageFilter()
    assert (rules.metrics_interval, rules.private_addresses) == (60.0, False)
    assert rules.account == Credentials("admin", "")


# The cloud


async def test_regions_become_places_to_launch_in() -> None:
    regions = {
        "eu-west-1": {
            "security_group_ids": ["sg-1"],
            "subnet_ids": ["subnet-1", "subnet-2"],
            "key_name": "ops",
            "default_tags": {"team": "labs"},
            "instance_profile": "cml",
        },
        "us-east-1": None,
    }
    cloud = connect_aws(load_settings(AWS_REGION_CONFIGS=json.dumps(regions)), CollectorRegistry())
    assert list(cloud.sites) == ["eu-west-1", "us-east-1"]
    assert tuple(cloud.provider.regions) == ("eu-west-1", "us-east-1")
    config = RegionConfig(region="eu-west-1", **regions["eu-west-1"])  # type: ignore[arg-type]
    site = cloud.sites["eu-west-1"]
    assert site == region_launch_settings(config)
    assert (site.subnet_ids, site.key_name, site.instance_profile) == (("subnet-1", "subnet-2"), "ops", "cml")
    assert (site.security_group_ids, site.default_tags) == (("sg-1",), {"team": "labs"})
    await cloud.close()


async def test_without_regions_the_default_one_is_used() -> None:
    cloud = connect_aws(load_settings(AWS_DEFAULT_REGION="eu-central-1"), CollectorRegistry())
    assert list(cloud.sites) == ["eu-central-1"]
    await cloud.close()


@pytest.mark.parametrize("value", ["/none/regions.yaml", '{"eu-west-1": {"subnet": "x"}}', "{"])
async def test_wrong_regions_are_one_line(value: str) -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        connect_aws(load_settings(AWS_REGION_CONFIGS=value), CollectorRegistry())
    assert "AWS_REGION_CONFIGS" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


async def test_an_endpoint_from_a_file_is_handed_on_and_a_regions_own_counts_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    regions = {"eu-west-1": {"endpoint_url": "http://own"}, "us-east-1": {}}
    settings = parts(aws_region_configs=json.dumps(regions), aws_endpoint_url="http://all")
    cloud = connect_aws(settings, CollectorRegistry())
    config = cloud.provider.config  # type: ignore[attr-defined]
    assert [region.endpoint_url for region in config.regions.values()] == ["http://own", "http://all"]
    await cloud.close()


async def test_an_endpoint_from_the_environment_is_left_to_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore also knows variables for single services, which take precedence."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all")
    cloud = connect_aws(parts(aws_endpoint_url="http://all"), CollectorRegistry())
    assert cloud.provider.config.regions["us-east-1"].endpoint_url is None  # type: ignore[attr-defined]
    await cloud.close()


NO_BOTO = """
import sys
for name in ("boto3", "botocore"):
    sys.modules[name] = None
from lcm.cli.processes.services import run_worker_controller
sys.exit(run_worker_controller(None, None))
"""


def test_without_boto3_it_says_what_to_install() -> None:
    env = {"LCM_CONTROLLER_TOKEN": TOKEN, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", NO_BOTO], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "lcm: CLOUD_PROVIDER is aws, whose library is missing: install lcm-fleet[aws]\n"


def test_another_module_that_is_missing_is_not_taken_for_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lcm.cloud.aws", None)
    with pytest.raises(ModuleNotFoundError):
        connect_aws(load_settings(), CollectorRegistry())
    assert not issubclass(ModuleNotFoundError, MissingExtraError)


# CML


def trust_of(servers: CmlConnection) -> Any:
    return servers.system._session._transport._trust  # type: ignore[attr-defined]


async def test_trust_in_cml_servers(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    assert isinstance(trust_of(connect_cml(load_settings(), registry)), PinPerServer)
    assert trust_of(connect_cml(load_settings(CML_TLS="insecure"), registry)) == Insecure()
    assert trust_of(connect_cml(load_settings(CML_TLS="ca"), registry)) == CaBundle()
    wrong = tmp_path / "ca.pem"
    wrong.write_text("no certificate")
    with pytest.raises(InvalidSettingsError, match="CML_CA_FILE"):
        connect_cml(load_settings(CML_TLS="ca", CML_CA_FILE=str(wrong)), registry)


# The control plane


async def test_readiness_follows_the_control_plane() -> None:
    async with serving_plane() as plane:
        wire = httpx.ASGITransport(plane.app)
        switch = Switch(wire)
        client = Client(
            "http://lcm.test",
            plane.tokens[Role.CONTROLLER],
            wire=HttpxTransport(switch),
            limits=Limits(attempts=1),
            registry=CollectorRegistry(),
        )
        check = ControlPlaneCheck(client)
        assert check.readiness() == ["control plane: not checked yet"]
        await check.start()
        await asyncio.sleep(1)
        assert check.readiness() == []
        switch.off = True
        await asyncio.sleep(6)
        [reason] = check.readiness()
        assert reason.startswith("control plane: access.whoami: http://lcm.test cannot be reached")
        switch.off = False
        await asyncio.sleep(6)
        assert check.readiness() == []
        await check.stop()
        await client.aclose()


@pytest.mark.parametrize("role", [Role.ADMIN, None])
async def test_a_token_of_another_role_or_an_unknown_one_is_not_ready(role: Role | None) -> None:
    async with serving_plane() as plane:
        token = "wrong" if role is None else plane.tokens[role]
        wire = httpx.ASGITransport(plane.app)
        async with Client("http://lcm.test", token, wire=HttpxTransport(wire), registry=CollectorRegistry()) as client:
            check = ControlPlaneCheck(client)
            await check.start()
            await asyncio.sleep(1)
            [reason] = check.readiness()
            assert token not in reason
            if role is not None:
                assert "whose role is admin, not controller" in reason
            await check.stop()


class Switch(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.off = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.off:
            raise httpx.ConnectError("switched off", request=request)
        return await self._inner.handle_async_request(request)


def test_an_invalid_address() -> None:
    with pytest.raises(InvalidSettingsError, match="CONTROL_PLANE_API_URL"):
        make_control_plane_client(parts(control_plane_api_url="http://[::1"), CollectorRegistry())


# All together


async def test_all_connections_are_closed_even_if_one_fails() -> None:
    closed: list[str] = []

    async def fail() -> None:
        closed.append("cloud")
        raise OSError("no")

    async def close() -> None:
        closed.append("cml")

    await CloseOnStop({"cloud": fail, "cml": close}).stop()
    assert closed == ["cloud", "cml"]


@asynccontextmanager
async def a_part(
    registry: CollectorRegistry | None = None, **settings: Any
) -> AsyncIterator[tuple[WorkerControllerAssembly, list[str]]]:
    """A worker controller on a simulated cloud with a control plane, and the connections it closed."""
    closed: list[str] = []

    async def close_cloud() -> None:
        closed.append("cloud")

    async def close_cml() -> None:
        closed.append("cml")

    world = SimulatedCloud(seed=1)
    for region in ("eu-west-1", "us-east-1"):
        world.add_region(region, subnets={})
    provider, registry = SimulatedProvider(world), registry or CollectorRegistry()
    sites = {region: RegionLaunchSettings(region) for region in provider.regions}
    async with serving_plane() as plane:
        wire = httpx.ASGITransport(plane.app, raise_app_exceptions=False)
        made = make_worker_controller(
            ControllerRuntime(MemoryCoordination(), UpSettings()),
            parts(cloud_provider="simulated", **settings),
            Client("http://lcm.test", plane.tokens[Role.CONTROLLER], wire=HttpxTransport(wire), registry=registry),
            CloudConnection(provider, provider, sites, close_cloud),
            CmlConnection(FakeCml(), close_cml),
            registry=registry,
        )
        yield made, closed


async def test_a_simulated_cloud_which_only_its_own_process_knows_is_read_by_the_leader() -> None:
    """scaling.md#several-replicas: another process would find nothing, which is not the same as no load."""
    registry = CollectorRegistry()
    async with a_part(registry, cml_reader_url="http://127.0.0.1:8083", lcm_controller_token=SecretStr(TOKEN)):
        names = {family.name for family in registry.collect()}
    assert "lcm_cml_reads" in names
    assert "lcm_cloudwatch_reads" not in names


async def test_it_can_be_a_part_of_a_process_with_another_cloud() -> None:
    async with a_part() as (made, closed):
        assert made.reconciler.name == "worker-controller"
        assert made.reconciler.watch.prefix == "/workers/"
        assert made.reconciler.election.election_key == "/lcm/worker-controller/leader"
        assert made.services[-1] is made.reconciler, "who uses the connections stops before they are closed"
        for service in made.services:
            await service.start()
        await asyncio.sleep(10)
        assert made.reconciler.is_leader
        assert not any(service.readiness() for service in made.services)
        for service in reversed(made.services):
            await service.stop()
        assert closed == ["cloud", "cml"]
        assert made.about["regions"] == ["eu-west-1", "us-east-1"]
