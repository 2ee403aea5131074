"""The worker controller as a real process, with a real control plane, etcd and a mock of the AWS API."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from lcm.core import clock
from tests.support.aws.conformance_aws import ACCOUNT, AwsBed
from tests.support.aws.credentials import CREDENTIALS, REGION, dummy_credentials
from tests.support.aws.ec2_rules import RULES
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ADMIN = "bootstrap-token-for-tests-0123456789"
CONTROLLER = "controller-token-for-tests-0123456789"
HEALTH = {"status", "is_leader", "instance_id", "last_reconciliation", "workers_managed", "workers_with_drift"}


@pytest.fixture
def aws() -> Iterator[AwsBed]:
    """AWS with an image to launch from."""
    with dummy_credentials():
        bed = AwsBed()
        bed._add_image("cml-2.9.1", ACCOUNT, clock.now() - timedelta(days=1), "available")
        yield bed
        asyncio.run(bed.close())


class Platform:
    """One control plane and any number of worker controllers, each a process."""

    def __init__(self, folder: Path, etcd: EtcdServer, namespace: str, aws: AwsBed) -> None:
        self.folder = folder
        self.etcd = etcd
        self.namespace = namespace
        self.port = free_ports(1)[0]
        self.env = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": aws.server.url,
            "AWS_DEFAULT_REGION": REGION,
            "ETCD_ENDPOINTS": etcd.endpoint,
            "ETCD_NAMESPACE": f"/{namespace}",
            "CONTROL_PLANE_PORT": str(self.port),
            "CONTROL_PLANE_API_URL": f"http://127.0.0.1:{self.port}",
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
            # Here every leader hands over: a long lease costs nothing, and a busy host does not lose it.
            "LEADER_LEASE_TTL": "60",
            "RETRY_INTERVAL": "1",
            "RECONCILE_INTERVAL": "2",
            "INITIAL_DELAY": "0.1",
        }
        self.plane = LcmProcess(folder, "plane", "control-plane", env=self.env)
        self.processes = [self.plane]

    def start_plane(self) -> Platform:
        self.plane.start()
        wait_until(lambda: self.ask("GET", "/ready").status_code == 200, "the control plane is ready")
        return self

    def controller(self, name: str, **env: str) -> LcmProcess:
        return self._start(name, env, forked=True)

    def leader(self, name: str, **env: str) -> LcmProcess:
        """A process as people start it: also how it ends is tested."""
        process = self._start(name, env, forked=False)
        wait_until(lambda: process.is_leader and process.get("/ready")[0] == 200, f"{name} leads and is ready")
        return process

    def _start(self, name: str, env: Mapping[str, str], *, forked: bool) -> LcmProcess:
        process = LcmProcess(self.folder, name, "worker-controller", env={**self.env, **env}, forked=forked)
        self.processes.append(process)
        return process.start()

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            url = f"http://127.0.0.1:{self.port}{path}"
            return httpx.request(
                method, url, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60, verify=False, **options
            )
        except httpx.TransportError:
            return httpx.Response(0)

    def create(self, name: str) -> str:
        response = self.ask("POST", "/api/workers", json={"name": name, "template_name": "small"})
        assert response.status_code == 201, response.text
        worker_id: str = response.json()["id"]
        return worker_id

    def worker(self, worker_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/api/workers/{worker_id}").json()
        return found

    def until_status(self, worker_id: str, status: str) -> dict[str, Any]:
        try:
            wait_until(lambda: self.worker(worker_id)["status"] == status, f"{worker_id} is {status}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.worker(worker_id)}") from error
        return self.worker(worker_id)

    def election_key(self) -> str:
        return self.etcd.ctl("get", "--prefix", f"/{self.namespace}/lcm/worker-controller/").strip()


@pytest.fixture
def platform(
    tmp_path: Path, etcd_server: EtcdServer, aws: AwsBed, request: pytest.FixtureRequest
) -> Iterator[Platform]:
    made = Platform(tmp_path, etcd_server, request.node.originalname, aws)
    yield made
    for process in made.processes:
        process.end()


def admin(process: LcmProcess, method: str, path: str, token: str = ADMIN) -> httpx.Response:
    url = f"http://127.0.0.1:{process.port}/admin/{path}"
    return httpx.request(method, url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=False)


def stop(process: LcmProcess) -> None:
    """Send SIGTERM; the process must end cleanly."""
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def metrics(process: LcmProcess) -> str:
    return httpx.get(f"http://127.0.0.1:{process.port}/metrics", timeout=60, verify=False).text


def plain_lines(process: LcmProcess) -> list[str]:
    return [line for line in process.log_path.read_text().splitlines() if not line.startswith("{")]


def test_a_worker_is_brought_up_and_down_and_the_process_stops_in_good_order(platform: Platform, aws: AwsBed) -> None:
    first = platform.start_plane().leader("one")
    status, health = first.get("/health")
    assert (status, set(health)) == (200, HEALTH)
    assert (health["status"], health["is_leader"], health["instance_id"]) == ("healthy", True, "one")
    assert first.get("/info")[1]["regions"] == [REGION]
    worker_id = platform.create("alpha")
    worker = platform.until_status(worker_id, "RUNNING")
    assert worker["public_ip"]
    history = platform.ask("GET", f"/api/workers/{worker_id}/history").json()["items"]
    steps = sorted((entry["at"], entry["to_status"]) for entry in history)
    assert [step for _, step in steps if step != "PENDING"] == ["PROVISIONING", "STARTING", "RUNNING"]
    assert asyncio.run(aws.live_instances()) == [worker["instance_id"]]
    tags = {tag["key"]: tag["value"] for tag in RULES.instances[worker["instance_id"]].get_tags()}
    assert (tags["lcm:worker_id"], tags["lcm:managed_by"], tags["Name"]) == (worker_id, "lcm", "alpha")
    wait_until(lambda: first.get("/health")[1]["workers_managed"] == 1, "it manages its worker")

    def counted() -> bool:
        stats = admin(first, "GET", "stats").json()
        return (stats["provisioned_count"], stats["started_count"]) == (1, 1)

    def swept() -> bool:
        sweep = admin(first, "GET", "stats").json()["regions"][REGION]["last_sweep"]
        return sweep is not None and sweep["complete"]

    wait_until(counted, "the launch and the start are counted once each")
    wait_until(swept, "a sweep of the region is complete")
    assert admin(first, "GET", "stats", CONTROLLER).status_code == 403
    assert admin(first, "GET", "stats", "wrong").status_code == 401
    assert admin(first, "POST", "trigger-reconcile").status_code == 202
    state = f'worker_ec2_state{{state="running",worker_id="{worker_id}"}} 1.0'
    wait_until(lambda: state in metrics(first), "the metrics show its instance")
    assert "lcm_worker_controller_provisioned_count 1.0" in metrics(first)
    platform.ask("POST", f"/api/workers/{worker_id}/terminate")
    platform.until_status(worker_id, "TERMINATED")
    assert asyncio.run(aws.live_instances()) == []
    assert platform.election_key()
    stop(first)
    assert platform.election_key() == "", "it did not resign"
    assert first.logged("leadership handed over")
    assert not [line for line in plain_lines(first) if "Traceback" in line]
    assert CONTROLLER not in first.log_path.read_text()


def test_a_second_one_stands_by_and_takes_over(platform: Platform, aws: AwsBed) -> None:
    first = platform.start_plane().leader("one")
    worker_id = platform.create("alpha")
    instance_id = platform.until_status(worker_id, "RUNNING")["instance_id"]
    second = platform.controller("two")
    wait_until(lambda: second.get("/ready")[0] == 200 and bool(second.logged("standing by")), "two stands by")
    assert not second.is_leader
    refused = admin(second, "POST", "resign-leadership")
    assert (refused.status_code, refused.json()["current"]) == (409, {"leader": "one"})
    stop(first)
    wait_until(lambda: second.is_leader, "two leads")
    wait_until(lambda: bool(second.logged("startup sweep done")), "two has verified all")
    stopped = platform.ask("POST", f"/api/workers/{worker_id}/stop")
    assert stopped.status_code < 300, stopped.text
    assert platform.until_status(worker_id, "STOPPED")["instance_id"] == instance_id
    assert asyncio.run(aws.live_instances()) == [instance_id]
    third = platform.controller("three")
    wait_until(lambda: bool(third.get("/ready")[0] == 200 and third.logged("standing by")), "three stands by")
    assert admin(second, "POST", "resign-leadership").status_code == 202
    wait_until(lambda: third.is_leader, "three leads")


def test_it_stops_also_while_aws_does_not_respond(platform: Platform, aws: AwsBed) -> None:
    """The process ends without the response. One that waited for it would send the call several times."""
    first = platform.start_plane().leader("one")
    platform.until_status(platform.create("alpha"), "RUNNING")
    hold = aws.server.hold("DescribeInstances")
    wait_until(lambda: hold.arrived > 0, "a call hangs")
    sent = hold.arrived
    stop(first)
    assert hold.arrived <= sent + 1
    assert platform.election_key() == "", "it did not resign"


def test_not_ready_without_the_control_plane_or_etcd(platform: Platform) -> None:
    alone = platform.controller("alone")
    wait_until(lambda: alone.get("/ready")[0] == 503, "it reports not ready")
    wait_until(lambda: any("cannot be reached" in why for why in alone.get("/ready")[1]["reasons"]), "it reports why")
    assert alone.get("/health")[0] == 200
    platform.start_plane()
    wait_until(lambda: alone.get("/ready")[0] == 200, "it is ready once the control plane is up")
    lonely = platform.controller("lonely", ETCD_ENDPOINTS=f"127.0.0.1:{free_ports(1)[0]}")
    wait_until(lambda: lonely.get("/ready")[0] == 503, "it reports not ready")
    wait_until(
        lambda: [why.split(":")[0] for why in lonely.get("/ready")[1]["reasons"]] == ["worker-controller"],
        "only coordination is missing",
    )
    assert not lonely.is_leader
    stop(lonely)


def test_a_token_of_another_role_is_reported(platform: Platform) -> None:
    platform.start_plane()
    wrong = platform.controller("wrong", LCM_CONTROLLER_TOKEN=ADMIN)
    wait_until(
        lambda: any("not controller" in why for why in (wrong.get("/ready")[1] or {}).get("reasons", ())),
        "it says that its token is another's",
    )


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("PROVISIONING_TIMEOUT", "0", "must be a number greater than 0"),
        ("CML_TLS", "none", "must be one of pin, ca, insecure"),
        ("CML_PROXY_URL", "socks5://x", "must be http:// and the host and port of a proxy"),
        ("CONTROL_PLANE_API_URL", "localhost:8080", "must be an address that starts with http:// or https://"),
        ("CLOUD_PROVIDER", "simulated", "only `lcm up` has a simulated cloud"),
        ("COORDINATION", "memory", "must be etcd here"),
        ("AMI_OWNERS", "everybody", "12 digits of an account"),
        ("AWS_REGION_CONFIGS", "/none/regions.yaml", "must be JSON or a readable YAML file"),
        ("LCM_CONTROLLER_TOKEN", "", "must be set"),
        ("WORKER_CONTROLLER_PORT", "abc", "must be a whole number"),
    ],
)
def test_an_invalid_setting_is_reported_in_one_line(platform: Platform, variable: str, value: str, words: str) -> None:
    process = platform.controller("wrong", **{variable: value})
    assert process.wait() == 2
    [line] = plain_lines(process)
    assert variable in line
    assert words in line


def test_a_port_that_is_taken_is_one_line(platform: Platform) -> None:
    first = platform.start_plane().leader("one")
    second = platform.controller("two", WORKER_CONTROLLER_PORT=str(first.port))
    assert second.wait() == 1
    [line] = plain_lines(second)
    assert "WORKER_CONTROLLER_PORT" in line
