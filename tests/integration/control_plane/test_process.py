"""The control plane as a real process: kills during writes, leaked secrets, invalid settings."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.mongod import database_name
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ADMIN = "bootstrap-token-for-tests-0123456789"
CONTROLLER = "controller-token-for-tests-0123456789"
WRITERS = 32


class ControlPlane:
    """A control-plane process and requests to it."""

    def __init__(self, folder: Path, etcd: EtcdServer, namespace: str, **env: str) -> None:
        self.port = free_ports(1)[0]
        self.folder = folder
        settings = {
            "ETCD_ENDPOINTS": etcd.endpoint,
            "ETCD_NAMESPACE": f"/{namespace}",
            "CONTROL_PLANE_PORT": str(self.port),
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
            **env,
        }
        self.process = LcmProcess(folder, "plane", "control-plane", env=settings)

    def start(self) -> ControlPlane:
        self.process.start()
        wait_until(lambda: self.ask("GET", "/ready").status_code == 200, "the control plane is ready")
        return self

    def ask(self, method: str, path: str, token: str = ADMIN, **options: Any) -> httpx.Response:
        try:
            headers = {"Authorization": f"Bearer {token}", **options.pop("headers", {})}
            url = f"http://127.0.0.1:{self.port}{path}"
            return httpx.request(method, url, headers=headers, timeout=30, verify=False, **options)
        except httpx.TransportError:
            return httpx.Response(0)

    def events(self, after: str | None, until: str) -> str:
        """The events of the stream up to one that contains a text."""
        headers = {"Authorization": f"Bearer {ADMIN}"} | ({} if after is None else {"Last-Event-ID": after})
        url = f"http://127.0.0.1:{self.port}/api/events/stream"
        received = ""
        with httpx.stream("GET", url, headers=headers, timeout=30) as stream:
            for text in stream.iter_text():
                received += text
                if until in received and received.endswith("\n\n"):
                    break
        return received


@pytest.fixture
def make_plane(
    tmp_path: Path, etcd_server: EtcdServer, request: pytest.FixtureRequest
) -> Iterator[Callable[..., ControlPlane]]:
    made: list[ControlPlane] = []

    def make(**env: str) -> ControlPlane:
        made.append(ControlPlane(tmp_path, etcd_server, request.node.originalname, **env))
        return made[-1].start()

    yield make
    for plane in made:
        plane.process.end()


async def write_until_killed(plane: ControlPlane) -> dict[str, str]:
    """32 writers create workers until the server is killed; returns the acknowledged workers, name to id.

    A busy host may make the server too slow for a request: the writer repeats it.
    """
    acknowledged: dict[str, str] = {}

    async def write(client: httpx.AsyncClient, writer: int) -> None:
        number = 0
        while plane.process.running:
            name = f"w{writer}-{number}"
            body = {"name": name, "template_name": "small"}
            try:
                response = await client.post("/api/workers", json=body, headers={"Idempotency-Key": name})
            except httpx.TransportError:
                continue
            if response.status_code == 503:
                await asyncio.sleep(0.1)
                continue
            assert response.status_code == 201, response.text
            acknowledged[name] = response.json()["id"]
            number += 1

    limits = httpx.Limits(max_connections=WRITERS)
    headers = {"Authorization": f"Bearer {ADMIN}"}
    base = f"http://127.0.0.1:{plane.port}"
    async with httpx.AsyncClient(base_url=base, headers=headers, limits=limits, timeout=30) as client:
        writers = [asyncio.create_task(write(client, number)) for number in range(WRITERS)]
        while len(acknowledged) < 3 * WRITERS:
            done = [writer for writer in writers if writer.done()]
            assert not done, [writer.result() for writer in done]
            await asyncio.sleep(0.05)
        plane.process.signal(signal.SIGKILL)
        await asyncio.gather(*writers)
    plane.process.wait()
    return acknowledged


def all_workers(plane: ControlPlane) -> dict[str, str]:
    found: dict[str, str] = {}
    cursor = ""
    while True:
        page = plane.ask("GET", f"/api/workers?limit=500{cursor}").json()
        found |= {worker["name"]: worker["id"] for worker in page["items"]}
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def mirrored(etcd: EtcdServer, namespace: str) -> set[str]:
    prefix = f"/{namespace}/workers/"
    keys = etcd.ctl("get", "--prefix", "--keys-only", prefix).split()
    return {key.removeprefix(prefix) for key in keys}


def killed_and_started_again(
    plane: ControlPlane, etcd: EtcdServer, namespace: str, make: Callable[[], ControlPlane]
) -> None:
    term = {"X-LCM-Controller": "worker-controller", "X-LCM-Leader-Term": "9"}
    announced = plane.ask("POST", "/api/internal/leadership", CONTROLLER, json={"term": 9}, headers=term)
    assert announced.status_code == 200
    acknowledged = asyncio.run(write_until_killed(plane))
    again = make()
    there = all_workers(again)
    lost = {name for name, worker_id in acknowledged.items() if there.get(name) != worker_id}
    assert not lost, "an acknowledged write is gone"
    name, worker_id = next(iter(acknowledged.items()))
    repeated = again.ask(
        "POST", "/api/workers", json={"name": name, "template_name": "small"}, headers={"Idempotency-Key": name}
    )
    assert (repeated.status_code, repeated.json()["id"]) == (201, worker_id), "the idempotency key was forgotten"
    stale = {**term, "X-LCM-Leader-Term": "8"}
    refused = again.ask("POST", "/api/internal/leadership", CONTROLLER, json={"term": 8}, headers=stale)
    assert refused.json()["code"] == "stale_leader", "the term was forgotten"
    wait_until(lambda: mirrored(etcd, namespace) == set(there.values()), "the mirror has healed")


def test_kill_9_under_writers_on_sqlite(
    make_plane: Callable[..., ControlPlane], etcd_server: EtcdServer, request: pytest.FixtureRequest
) -> None:
    killed_and_started_again(make_plane(), etcd_server, request.node.originalname, make_plane)


def test_kill_9_under_writers_on_mongod(
    make_plane: Callable[..., ControlPlane],
    etcd_server: EtcdServer,
    request: pytest.FixtureRequest,
    mongodb_uri: str,
) -> None:
    again = partial(make_plane, STORE_URL=mongodb_uri.replace("/?", f"/{database_name()}?"))
    killed_and_started_again(again(), etcd_server, request.node.originalname, again)


def test_a_secret_is_nowhere_in_plain_text(
    make_plane: Callable[..., ControlPlane], etcd_server: EtcdServer, tmp_path: Path
) -> None:
    """Only the controller's response has it: no other response, log, event, etcd key or file, also after errors."""
    plane = make_plane(LOG_LEVEL="debug")
    place = plane.events(None, until="id: ").partition("id: ")[2].split()[0]
    canary = "CANARY" + "X9" * 10
    secrets = {"license_token": canary, "cml_password": canary, "cml_username": "u"}
    body: dict[str, Any] = {"name": "alpha", "template_name": "small", **secrets}
    created = plane.ask("POST", "/api/workers", json=body, headers={"Idempotency-Key": "once"})
    worker_id = created.json()["id"]
    again = {"operation": "register", "token": canary}
    responses = [created, plane.ask("POST", f"/api/workers/{worker_id}/license", json=again)]
    for wrong in ({"license_token": f"{canary} {canary}"}, {"cml_password": [canary]}, {"name": "x y"}):
        responses.append(plane.ask("POST", "/api/workers", json={**body, **wrong}))
        assert responses[-1].status_code == 422
    shown = ("/api/workers", f"/api/workers/{worker_id}", "/api/audit", f"/api/workers/{worker_id}/history")
    responses += [plane.ask("GET", path) for path in shown]
    received = plane.events(place, until=worker_id)
    secret = plane.ask("GET", f"/api/internal/workers/{worker_id}/license-token", CONTROLLER)
    assert secret.json() == {"token": canary}
    assert not any(canary in response.text for response in responses)
    assert canary not in received
    assert canary not in etcd_server.ctl("get", "--prefix", "/")
    files = [path for place in (tmp_path, etcd_server.folder) for path in place.rglob("*") if path.is_file()]
    assert any(path.name.endswith(".db") or ".db-" in path.name for path in files)
    assert not [path for path in files if canary.encode() in content_of(path)]


def content_of(path: Path) -> bytes:
    """The file's content; nothing if its server has removed it meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("STORE_URL", "postgres://x", "must be sqlite:///"),
        ("CONTROL_PLANE_PORT", "abc", "a whole number"),
        ("MIN_WORKERS", "-1", "MIN_WORKERS"),
        ("LCM_SECRET_KEY", "short", "LCM_SECRET_KEY"),
        ("LCM_INSTALLATION_ID", "Acme", "3 to 63 lower-case letters"),
        ("AWS_REGION_CONFIGS", "/none/regions.yaml", "AWS_REGION_CONFIGS"),
    ],
)
def test_an_invalid_setting_is_reported_in_one_line(
    tmp_path: Path, etcd_server: EtcdServer, variable: str, value: str, words: str
) -> None:
    plane = ControlPlane(tmp_path, etcd_server, "wrong", **{variable: value})
    plane.process.start()
    assert plane.process.wait() == 2
    lines = [line for line in plane.process.log_path.read_text().splitlines() if not line.startswith("{")]
    assert len(lines) == 1
    assert words in lines[0]
    assert json.dumps(value)[1:-1] in lines[0] or variable in lines[0]


def test_a_store_keeps_its_installation_and_rejects_a_start_as_another(
    make_plane: Callable[..., ControlPlane], tmp_path: Path, etcd_server: EtcdServer
) -> None:
    first = make_plane(LCM_INSTALLATION_ID="acme-prod")
    assert first.ask("GET", "/info").json()["installation_id"] == "acme-prod"
    received = first.ask("GET", "/api/internal/installation", CONTROLLER)
    assert received.json() == {"installation_id": "acme-prod"}
    first.process.end()
    other = ControlPlane(tmp_path, etcd_server, "other", LCM_INSTALLATION_ID="acme-test")
    other.process.log_path = tmp_path / "other.log"
    other.process.start()
    assert other.process.wait() == 2
    lines = [line for line in other.process.log_path.read_text().splitlines() if not line.startswith("{")]
    assert len(lines) == 1
    assert 'LCM_INSTALLATION_ID="acme-test"' in lines[0]
    assert "acme-prod" in lines[0]
    assert make_plane().ask("GET", "/info").json()["installation_id"] == "acme-prod"


def test_a_second_control_plane_on_one_file_is_rejected(
    make_plane: Callable[..., ControlPlane], tmp_path: Path, etcd_server: EtcdServer
) -> None:
    first = make_plane()
    second = ControlPlane(tmp_path, etcd_server, "second", WORKER_CONTROLLER_INSTANCE_ID="second")
    second.process.log_path = tmp_path / "second.log"
    second.process.start()
    assert second.process.wait() == 1
    lines = [line for line in second.process.log_path.read_text().splitlines() if not line.startswith("{")]
    assert len(lines) == 1
    assert "lcm.db" in lines[0]
    assert str(first.process.pid) in lines[0]
