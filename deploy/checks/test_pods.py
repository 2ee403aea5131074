"""The containers of the chart as processes, with the commands, environments and probes that Helm renders for them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from deploy.checks.conftest import program
from tests.support.aws.conformance_aws import AwsBed
from tests.support.aws.credentials import CREDENTIALS, REGION, dummy_credentials
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.mongod import MongoServer
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deploy.checks.conftest import Chart

PORTS = ("CONTROL_PLANE_PORT", "WORKER_CONTROLLER_PORT", "RESOURCE_SCHEDULER_PORT", "LABLET_CONTROLLER_PORT")
TOKEN = "b" * 32


class Node:
    """Runs pods on this host: their volumes are folders, their ports free ones, their secrets given."""

    def __init__(self, folder: Path, secrets: dict[str, dict[str, str]]) -> None:
        self._folder = folder
        self._secrets = secrets
        self.ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self._running: list[Pod] = []

    def run(self, deployment: dict[str, Any]) -> Pod:
        spec = deployment["spec"]["template"]["spec"]
        folder = self._folder / deployment["metadata"]["name"]
        folder.mkdir(exist_ok=True)
        for volume in spec["volumes"]:
            self._make(folder / volume["name"], volume.get("secret"))
        for container in spec.get("initContainers", ()):
            command = [self._on_host(each, folder, container) for each in container["command"]]
            subprocess.run(command, check=True, capture_output=True)
        (container,) = spec["containers"]
        env = {name: self._on_host(value, folder, container) for name, value in self._environment(container).items()}
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen([program("lcm"), *container["args"]], env=env, stdout=log, stderr=log)
        self._running.append(Pod(process, container, self.port_of(container), folder / "log"))
        return self._running[-1]

    def _make(self, volume: Path, secret: dict[str, Any] | None) -> None:
        volume.mkdir(exist_ok=True)
        content = self._secrets[secret["secretName"]] if secret else {}
        for item in secret["items"] if secret else ():
            (volume / item["path"]).write_text(content[item["key"]])

    def _on_host(self, text: str, folder: Path, container: dict[str, Any]) -> str:
        for mount in container["volumeMounts"]:
            if text == mount["mountPath"] or text.startswith(f"{mount['mountPath']}/"):
                return f"{folder / mount['name']}{text.removeprefix(mount['mountPath'])}"
        return text

    def _environment(self, container: dict[str, Any]) -> dict[str, str]:
        given = {
            name: key
            for each in container.get("envFrom", ())
            for name, key in self._secrets[each["secretRef"]["name"]].items()
        }
        for each in container["env"]:
            reference = each.get("valueFrom", {}).get("secretKeyRef")
            if reference is None:
                given[each["name"]] = each.get("value", "pod-name")
            elif reference["key"] in self._secrets[reference["name"]] or not reference.get("optional"):
                given[each["name"]] = self._secrets[reference["name"]][reference["key"]]
        assert given["BIND_HOST"] == "0.0.0.0"
        host = {"BIND_HOST": "127.0.0.1", **self.ports, "PATH": os.environ["PATH"]}
        if "CONTROL_PLANE_API_URL" in given:
            host["CONTROL_PLANE_API_URL"] = f"http://127.0.0.1:{self.ports['CONTROL_PLANE_PORT']}"
        return {**given, **host}

    def port_of(self, container: dict[str, Any]) -> str:
        names = {f"{name.lower().replace('_', '-').removesuffix('-port')}": port for name, port in self.ports.items()}
        return names.get(container["name"], self.ports["CONTROL_PLANE_PORT"])

    def close(self) -> None:
        for pod in self._running:
            pod.process.kill()
            pod.process.wait()


class Pod:
    """The process of a container."""

    def __init__(self, process: subprocess.Popen[bytes], container: dict[str, Any], port: str, log: Path) -> None:
        self.process = process
        self._container = container
        self._url = f"http://127.0.0.1:{port}"
        self._log = log

    def until_ready(self) -> Pod:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = self._container[probe]["httpGet"]["path"]
            wait_until(lambda path=path: self._succeeds(path), f"{probe} of {self._container['name']}")  # type: ignore[misc]
        return self

    def _succeeds(self, path: str) -> bool:
        assert self.process.poll() is None, self._log.read_text()[-3000:]
        try:
            return self.get(path) is not None
        except (urllib.error.URLError, OSError):
            return False

    def get(self, path: str, token: str = "", body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} if token else {}
        content = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(
            urllib.request.Request(f"{self._url}{path}", content, headers), timeout=30
        ) as response:
            return json.load(response)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(180) == 0, self._log.read_text()[-3000:]


@pytest.fixture
def cloud() -> Iterator[AwsBed]:
    with dummy_credentials():
        made = AwsBed()
        yield made
        asyncio.run(made.close())


def only(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def test_the_demo_serves_and_keeps_its_records(chart: Chart, tmp_path: Path) -> None:
    objects = chart.render({"demo": True, "settings": {"ETCD_ENDPOINTS": None}})
    (secret,), (deployment,) = only(objects, "Secret"), only(objects, "Deployment")
    token = secret["stringData"]["bootstrap-token"]
    node = Node(tmp_path, {secret["metadata"]["name"]: secret["stringData"]})
    try:
        first = node.run(deployment).until_ready()
        first.get("/api/workers", token, {"name": "mine", "template_name": "small"})
        first.stop()
        again = node.run(deployment).until_ready()
        wanted = {"alpha", "mine"}  # of the demo fleet, and what was created before the restart
        wait_until(
            lambda: wanted <= {worker["name"] for worker in again.get("/api/workers", token)["items"]}, "both are there"
        )
        again.stop()
    finally:
        node.close()


def test_every_component_becomes_ready_and_ends_on_sigterm(chart: Chart, tmp_path: Path, cloud: AwsBed) -> None:
    etcd = EtcdServer(tmp_path / "etcd").start()
    mongod = MongoServer(tmp_path / "mongod").start()
    secrets = {
        "lcm": {
            "store-url": mongod.uri,
            "controller-token": "c" * 32,
            "bootstrap-token": TOKEN,
            "secret-keys": "a" * 43 + "=",
        },
        "aws": {**CREDENTIALS, "AWS_ENDPOINT_URL": cloud.server.url},
        "cml": {"username": "admin", "password": "simulated"},
    }
    changes = {
        "settings": {"ETCD_ENDPOINTS": etcd.endpoint},
        "awsDefaultRegion": REGION,
        "workerController": {"awsCredentialsSecret": "aws", "cmlAccountSecret": "cml"},
        "labletController": {"cmlAccountSecret": "cml"},
    }
    node = Node(tmp_path, secrets)
    try:
        found = {each["metadata"]["name"]: each for each in only(chart.render(changes), "Deployment")}
        plane = node.run(found.pop("lcm-control-plane")).until_ready()
        others = [node.run(each) for each in found.values()]
        assert len(others) == 3
        for each in others:
            each.until_ready()
        assert plane.get("/api/workers", TOKEN)["items"] == []
        for each in (*others, plane):
            each.stop()
    finally:
        node.close()
        mongod.kill()
        etcd.kill()
