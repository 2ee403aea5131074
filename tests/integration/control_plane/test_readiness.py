"""Readiness of a real control plane: etcd away, mongod dead or suspended, a disk without room."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

import pytest

from lcm.model.worker.requests import CreateWorkerRequest, HoldRequest
from tests.support.servers.control_plane import ControlPlaneProcess
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.mongod import MongoServer
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_ALPHA = CreateWorkerRequest(name="alpha", template_name="small")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path / "etcd").start()
    yield server
    server.kill()


@pytest.fixture
def make_plane(tmp_path: Path, etcd: EtcdServer) -> Iterator[Callable[..., ControlPlaneProcess]]:
    made: list[ControlPlaneProcess] = []

    def make(**settings: str) -> ControlPlaneProcess:
        plane = ControlPlaneProcess(tmp_path, etcd, "lcm-ready")
        plane.process.add_settings(**settings)
        made.append(plane)
        return plane.start()

    yield make
    for plane in made:
        plane.process.end()


def readiness(plane: ControlPlaneProcess) -> tuple[int, dict[str, Any]]:
    status, body = plane.process.get("/ready")
    return status, body or {}


def mirrored(etcd: EtcdServer) -> dict[str, str]:
    lines = etcd.ctl("get", "--prefix", "/lcm-ready/workers/").split()
    return dict(zip(lines[::2], lines[1::2], strict=True))


def test_without_etcd_people_still_look_hold_and_command(
    make_plane: Callable[..., ControlPlaneProcess], etcd: EtcdServer
) -> None:
    plane = make_plane()
    etcd.kill()
    wait_until(lambda: bool(readiness(plane)[1].get("degraded")), "the outage is reported")
    status, body = readiness(plane)
    assert (status, body["ready"], body["reasons"]) == (200, True, [])
    assert any(etcd.endpoint in text for text in body["degraded"])
    worker = plane.ask(lambda client: client.workers.create(_ALPHA))
    plane.ask(lambda client: client.workers.stop(worker.id))
    plane.ask(lambda client: client.fleet.hold(HoldRequest(reason="etcd is down")))
    assert plane.worker("alpha").desired_status == "STOPPED"
    system = plane.ask(lambda client: client.fleet.system())
    assert etcd.endpoint in system.plane.mirror.trouble
    etcd.launch()
    etcd.wait_ready()
    wait_until(lambda: '"desired_status":"STOPPED"' in str(mirrored(etcd)), "the command reaches the controllers")
    wait_until(lambda: readiness(plane) == (200, {"ready": True, "reasons": [], "degraded": []}), "all is well again")


def test_a_frozen_etcd_takes_no_control_plane_out_of_service(
    make_plane: Callable[..., ControlPlaneProcess], etcd: EtcdServer
) -> None:
    """A frozen etcd keeps its connections and answers nothing: no error says so."""
    plane = make_plane()
    etcd.pause()
    wait_until(lambda: bool(readiness(plane)[1].get("degraded")), "the outage is reported")
    status, body = readiness(plane)
    assert (status, body["ready"], body["reasons"]) == (200, True, [])
    plane.ask(lambda client: client.workers.create(_ALPHA))
    etcd.resume()
    wait_until(lambda: readiness(plane)[1].get("degraded") == [], "all is well again")
    wait_until(lambda: bool(mirrored(etcd)), "the worker reaches the controllers")


def test_it_starts_without_etcd(make_plane: Callable[..., ControlPlaneProcess], etcd: EtcdServer) -> None:
    etcd.kill()
    plane = make_plane()
    plane.ask(lambda client: client.workers.create(_ALPHA))
    etcd.launch()
    etcd.wait_ready()
    wait_until(lambda: len(mirrored(etcd)) == 1, "the worker is mirrored")


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_mongod_that_does_not_respond_is_known(
    make_plane: Callable[..., ControlPlaneProcess], tmp_path: Path, fault: str
) -> None:
    mongod = MongoServer(tmp_path / "mongod").start()
    try:
        plane = make_plane(STORE_URL=mongod.uri)
        getattr(mongod, fault)()
        wait_until(lambda: readiness(plane)[0] == 503, "the control plane is not ready")
        # The driver itself gives up only after its timeout of 20 s.
        assert readiness(plane)[1]["reasons"][0].startswith("store: no response to a write for ")
        if fault == "kill":
            mongod.launch()
        else:
            mongod.resume()
        wait_until(lambda: readiness(plane)[0] == 200, "the control plane is ready again")
        plane.ask(lambda client: client.workers.create(_ALPHA))
    finally:
        mongod.kill()


def test_a_disk_without_room_is_known(make_plane: Callable[..., ControlPlaneProcess]) -> None:
    """A limit on file sizes refuses what a full disk or a quota refuses: any file that must grow."""
    plane = make_plane()
    plane.ask(lambda client: client.workers.create(_ALPHA))
    unlimited = resource.prlimit(plane.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(plane.process.pid, resource.RLIMIT_FSIZE, (128 * 1024, unlimited[1]))
    wait_until(lambda: readiness(plane)[0] == 503, "the control plane is not ready")
    (reason,) = readiness(plane)[1]["reasons"]
    assert "Free disk space" in reason
    resource.prlimit(plane.process.pid, resource.RLIMIT_FSIZE, unlimited)
    wait_until(lambda: readiness(plane)[0] == 200, "the control plane is ready again")
    alpha = plane.worker("alpha")
    plane.ask(lambda client: client.workers.stop(alpha.id))
