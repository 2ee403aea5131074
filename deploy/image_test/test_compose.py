"""The whole compose file: a worker is created, each container is killed once, and all go down and up again."""

from __future__ import annotations

import gzip
import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.image_test.downloads import FOLDER, ROOT, CommandFailedError, site
from deploy.image_test.engine import SERVERS, wait_until
from tests.support.aws.credentials import CREDENTIALS, REGION

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.image_test.engine import Engine

pytestmark = pytest.mark.timeout(3600)

NETWORK = "lcm-internal"
PUBLIC_URL = "https://lcm.example.org"
TOKEN = "b" * 32
SETTINGS = {
    "ETCD_IMAGE": SERVERS,
    "MONGO_IMAGE": SERVERS,
    "LCM_BOOTSTRAP_TOKEN": TOKEN,
    "LCM_CONTROLLER_TOKEN": "c" * 32,
    "LCM_SECRET_KEY": "a" * 43 + "=",
    "CML_DEFAULT_PASSWORD": "simulated",
}
AWS = {**CREDENTIALS, "AWS_ENDPOINT_URL": "http://cloud:5000", "CML_PROXY_URL": "http://cloud:3128"}
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
SERVICES, VOLUMES = COMPOSE["services"], COMPOSE["volumes"]
OURS = [name for name, each in SERVICES.items() if each["image"].startswith("lcm:")]
ONCE = "mongo-initiate"
PORTS = {"control-plane": 8080, "worker-controller": 8083, "resource-scheduler": 8081, "lablet-controller": 8082}


class Platform:
    """The containers of the compose file, and the cloud beside them, which outlives them."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._folder = folder
        shutil.copy(ROOT / "deploy" / "compose.yaml", folder)
        (folder / "regions.yaml").write_text(f"{REGION}: {{}}\n")
        (folder / "aws.env").write_text("".join(f"{name}={value}\n" for name, value in AWS.items()))
        (folder / "lcm.env").write_text(f"LCM_PUBLIC_URL={PUBLIC_URL}\nMAINTENANCE_POLICY=plan\n")
        network = {"networks": {"default": {"external": True, "name": NETWORK}}}
        (folder / "internal.yaml").write_text(yaml.safe_dump(network))

    def start_cloud(self) -> None:
        """EC2 and CML servers, in a container on the same network."""
        self._engine.podman("network", "create", "--internal", NETWORK)
        env = ("-e", "PYTHONPATH=/site:/repo/src:/repo", "-e", "PYTHONDONTWRITEBYTECODE=1", "-w", "/repo")
        where = ("--name", "cloud", "--network", NETWORK, "-v", f"{ROOT}:/repo:ro", "-v", f"{site()}:/site:ro", *env)
        serve = ("python3", "-m", "deploy.image_test.cloud", "5000", "3128")
        self._engine.podman("run", "-d", *where, SERVERS, *serve)
        wait_until(lambda: "ready" in self._engine.podman("logs", "cloud"), "the cloud serves")

    def up(self) -> float:
        """Start all at once, without the order that the file asks for: each waits for the others by itself."""
        # podman 4.3 cannot start a container whose dependency has dependencies.
        self._engine.compose(self._folder, SETTINGS, "up", "--detach", "--no-build", "--no-deps")
        return wait_until(self.is_ready, "all services are ready")

    def down(self) -> None:
        """Remove the containers; their volumes stay."""
        self._engine.compose(self._folder, SETTINGS, "down")

    def volumes(self) -> set[str]:
        return set(self._engine.podman("volume", "ls", "--format", "{{.Name}}").split())

    def is_ready(self) -> bool:
        """Whether every health check that the file gives its services succeeds."""
        return all(self.is_healthy(service) for service in SERVICES if service != ONCE)

    def is_healthy(self, service: str) -> bool:
        try:
            self._engine.podman("healthcheck", "run", self.container(service))
        except CommandFailedError:
            return False
        return True

    def container(self, service: str) -> str:
        return f"lcm_{service}_1"

    def started_at(self, service: str) -> str:
        return self._engine.podman("inspect", "--format", "{{.State.StartedAt}}", self.container(service))

    def kill(self, service: str) -> None:
        """As the kernel does when memory runs out: no signal that the process could handle, and a new start."""
        before = self.started_at(service)
        pid = self._engine.podman("inspect", "--format", "{{.State.Pid}}", self.container(service)).strip()
        self._engine.inside("kill", "-KILL", pid)
        wait_until(lambda: self.started_at(service) != before, f"{service} is started again")

    def leader(self, kind: str) -> str:
        """The service of this kind that leads."""
        for number in (1, 2):
            with suppress(CommandFailedError, ValueError, KeyError):
                script = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{PORTS[kind]}/health').read().decode())"
                shown = self._engine.podman("exec", self.container(f"{kind}-{number}"), "python", "-c", script)
                if json.loads(shown)["is_leader"]:
                    return f"{kind}-{number}"
        return ""

    def setting(self, service: str, name: str) -> str:
        return self._engine.podman("exec", self.container(service), "printenv", name).strip()

    def readers(self) -> float:
        """How many replicas the leader lets read CML servers."""
        leader = self.leader("worker-controller")
        if not leader:
            return 0
        script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8083/metrics').read().decode())"
        shown = self._engine.podman("exec", self.container(leader), "python", "-c", script)
        return sum(float(line.split()[1]) for line in shown.splitlines() if line.startswith("lcm_cml_readers "))

    def lcm(self, *arguments: str) -> Any:
        """A command of LCM, in the container of the control plane."""
        env = ("-e", f"LCM_TOKEN={TOKEN}", "-e", "HOME=/tmp")
        return json.loads(
            self._engine.podman("exec", *env, self.container("control-plane"), "lcm", *arguments, "-o", "json")
        )

    def workers(self) -> dict[str, tuple[str, str | None]]:
        """Status and instance of every worker, by name; empty while no control plane responds."""
        with suppress(CommandFailedError):
            return {each["name"]: (each["status"], each["instance_id"]) for each in self.lcm("workers", "list")}
        return {}

    def backup(self) -> None:
        """By the script that docs/operations.md quotes; the file is whole and only the owner reads it."""
        copy = self._folder / "copy"
        env = {"RUN": f"podman exec {self.container('control-plane')}", "COPY": str(copy)}
        self._engine.inside("bash", "-euo", "pipefail", ROOT / "deploy" / "drills" / "backup-container.sh", env=env)
        with gzip.open(copy) as file:
            assert b"first" in file.read()
        assert copy.stat().st_mode & 0o777 == 0o600

    def is_running(self, name: str) -> bool:
        return self.workers().get(name, ("", None))[0] == "RUNNING"


@pytest.fixture
def platform(engine: Engine) -> Platform:
    engine.build_servers()
    folder = FOLDER / "compose"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    made = Platform(engine, folder)
    made.start_cloud()
    return made


def test_nothing_is_lost(platform: Platform) -> None:
    print(f"\nready {platform.up():.0f} s after `up`")
    assert {platform.setting(service, "LCM_PUBLIC_URL") for service in OURS} == {PUBLIC_URL}
    assert platform.setting("worker-controller-2", "MAINTENANCE_POLICY") == "plan"
    wait_until(lambda: platform.readers() == 2, "both worker controllers read CML servers")
    platform.lcm("workers", "create", "first", "--template", "small", "--region", REGION)
    wait_until(lambda: platform.is_running("first"), "the worker runs")
    first = platform.workers()["first"]

    led = platform.leader("worker-controller")
    assert led
    platform.kill(led)
    platform.lcm("workers", "create", "second", "--template", "small", "--region", REGION)
    seconds = wait_until(lambda: platform.is_running("second"), "a worker runs after the leader was killed")
    print(f"a worker that was created after the kill of the leader runs after {seconds:.0f} s")

    for service in SERVICES:
        if service != ONCE:
            platform.kill(service)
            seconds = wait_until(platform.is_ready, f"all services are ready after the kill of {service}")
            print(f"{service} was killed: all are ready after {seconds:.0f} s")
    assert platform.workers().keys() == {"first", "second"}
    platform.backup()

    before = platform.workers()
    platform.down()
    assert platform.volumes() == {f"lcm_{name}" for name in VOLUMES}, "no volume without a name remains"
    print(f"down, and up again: ready after {platform.up():.0f} s")
    wait_until(lambda: platform.workers() == before, "the same workers as before")
    assert platform.workers()["first"] == first
    platform.lcm("workers", "create", "third", "--template", "small", "--region", REGION)
    wait_until(lambda: platform.is_running("third"), "work goes on")
