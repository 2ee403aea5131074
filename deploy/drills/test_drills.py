"""What docs/operations.md promises: set-up, upgrade and rollback, loss of a host and of etcd, and restores."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from deploy.drills.site import ADMIN, BALANCER, CONTROLLERS, HOSTS, PATIENCE, ROOT, Site, wait_until
from lcm.cloud.instance_cache import VISIBILITY_GRACE_SECONDS
from lcm.core import clock
from tests.support.aws.conformance_aws import ACCOUNT, AwsBed
from tests.support.aws.credentials import REGION, dummy_credentials
from tests.support.network.http_gate import LoopThread
from tests.support.real.cml_on_moto import Machines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deploy.drills.site import Service

pytestmark = pytest.mark.timeout(1800)
REQUESTS = 2000
NEW = ROOT / "src"
RESULTS: list[tuple[str, str]] = []
CREATE = ("--template", "small", "--region", REGION)


def record(drill: str, result: str) -> None:
    """A row of the table that is printed at the end."""
    RESULTS.append((drill, result))
    print(f"\n{drill}: {result}")


@pytest.fixture(scope="module")
def old_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of another version, to upgrade from and to roll back to: that of the commit DRILL_FROM."""
    folder = tmp_path_factory.mktemp("old")
    commit = os.environ.get("DRILL_FROM", "HEAD~1")
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder / "src"


@pytest.fixture(scope="module")
def cloud() -> Iterator[tuple[AwsBed, Machines]]:
    with dummy_credentials(), LoopThread() as loop:
        aws = AwsBed()
        aws._add_image("cml-2.9.1", ACCOUNT, clock.now() - timedelta(days=1), "available")
        machines = Machines(speed=20.0)  # routers boot within seconds
        loop.run(machines.open())
        yield aws, machines
        loop.run(machines.close())
        asyncio.run(aws.close())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, cloud: tuple[AwsBed, Machines], old_version: Path) -> Iterator[Site]:
    aws, machines = cloud
    made = Site(tmp_path_factory.mktemp("site"), aws.server.url, machines.proxy.url, old_version)
    try:
        yield made
    finally:
        made.stop()
        print("\n\n| drill | result |\n|---|---|")
        for drill, result in RESULTS:
            print(f"| {drill} | {result} |")


class RequestLoop:
    """People who use the API through the balancer without a pause: nine reads, then a write."""

    def __init__(self, site: Site, people: int = 4) -> None:
        self.sent = 0
        self.failed: list[str] = []
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._context = ssl.create_default_context(cafile=site.folder / "ca.crt")
        self._threads = [threading.Thread(target=self._use, args=(number,)) for number in range(people)]

    def __enter__(self) -> RequestLoop:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _use(self, person: int) -> None:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        with httpx.Client(base_url=f"https://{BALANCER}", headers=headers, verify=self._context, timeout=60) as client:
            number = 0
            while not self._done.is_set():
                number += 1
                method = "GET" if number % 10 else "POST"
                try:
                    if method == "GET":
                        response = client.get("/api/workers", params={"limit": 5})
                    else:
                        name = f"drill-{time.time_ns()}-{person}"
                        response = client.post("/api/tokens", json={"name": name, "role": "viewer"})
                    problem = "" if response.status_code < 300 else f"{response.status_code} {response.text[:200]}"
                except httpx.TransportError as error:
                    problem = repr(error)
                with self._lock:
                    self.sent += 1
                    if problem:
                        self.failed.append(f"{method} {number}: {problem}")


def test_0_another_host_is_elected_before_the_first(tmp_path: Path) -> None:
    """Any member may win the first election, and only the first host lets the script create users."""
    hosts = Site(tmp_path, "", "", NEW)
    try:
        hosts.start_mongods()
        (first, *_) = hosts.of("mongod")
        with ThreadPoolExecutor() as pool, ExitStack() as clients:
            others = [clients.enter_context(mongo_client(tmp_path, host)) for host in HOSTS[1:]]
            script = pool.submit(hosts.make_replica_set)
            wait_until(lambda: all(hello(each).get("secondary") for each in others), "the others have its data")
            first.send(signal.SIGSTOP)
            seconds = wait_until(lambda: any(hello(each)["isWritablePrimary"] for each in others), "another is elected")
            first.send(signal.SIGCONT)
            assert script.result(PATIENCE), (tmp_path / "mongosh.log").read_text()
    finally:
        hosts.stop()
    record("another host is elected first", f"after {seconds:.0f} s; the set has its users nevertheless")


def mongo_client(folder: Path, host: str) -> MongoClient[dict[str, Any]]:
    """A client of one member, whatever the others are."""
    authority = str(folder / "ca.crt")
    return MongoClient(host, directConnection=True, tls=True, tlsCAFile=authority, serverSelectionTimeoutMS=2000)


def hello(client: MongoClient[dict[str, Any]]) -> dict[str, Any]:
    """What MongoDB says of itself to anybody; nothing while it does not respond."""
    try:
        return client.admin.command("hello")
    except PyMongoError:
        return {"isWritablePrimary": False}


def test_1_a_site_from_nothing(site: Site) -> None:
    began = time.monotonic()
    site.start_stores()
    site.start_balancers()
    for host in (1, 2):
        site.add_lcm(host, "control-plane")
    for service in site.of("control-plane"):
        wait_until(lambda each=service: site.is_ready(each), "the control plane is ready")  # type: ignore[misc]
    for host in (1, 2):
        for kind in CONTROLLERS:
            site.add_lcm(host, kind)
    wait_until(lambda: '"degraded":[]' in site.get(f"https://{BALANCER}/ready"), "the balancer serves, etcd is trusted")
    site.lcm("workers", "create", "first", *CREATE)
    wait_until(lambda: site.status("first") == "RUNNING", "the first worker runs")
    record("a site with TLS from nothing", f"{time.monotonic() - began:.0f} s to a running worker")
    site.define_lablets()
    record("its first lablet", f"runs after {site.run_lablet('first'):.0f} s")


def schema(source: Path) -> int:
    """The version of MongoDB's schema that a version of LCM writes."""
    script = "from lcm.control_plane.store.mongo.database import MIGRATIONS; print(len(MIGRATIONS))"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(source)}, check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def test_2_upgrade_and_rollback(site: Site, old_version: Path, tmp_path: Path) -> None:
    if schema(old_version) == schema(NEW):
        upgrade_and_back_fail_no_request(site, old_version)
    else:
        back_across_a_new_schema_by_a_backup(site, old_version, tmp_path)
    assert site.status("first") == "RUNNING"


def upgrade_and_back_fail_no_request(site: Site, old_version: Path) -> None:
    with RequestLoop(site) as people:
        for version, name in ((NEW, "upgrade"), (old_version, "rollback")):
            before = people.sent
            # Control planes first; back in the other order. Of each kind of controllers, standbys before the leader.
            kinds = ("control-plane", *CONTROLLERS)
            for kind in kinds if version == NEW else reversed(kinds):
                for service in sorted(site.of(kind), key=site.leads):
                    site.restart(service, version)
            lablet = site.run_lablet(f"after-{name}")
            target = before + REQUESTS
            wait_until(lambda wanted=target: people.sent >= wanted, f"{REQUESTS} requests")  # type: ignore[misc]
            result = f"{people.sent - before} requests, {len(people.failed)} failed; a lablet ran after {lablet:.0f} s"
            record(name, result)
    assert people.failed == []


def back_across_a_new_schema_by_a_backup(site: Site, old_version: Path, folder: Path) -> None:
    """An older control plane does not start on the newer schema: it needs the backup from before the upgrade."""
    place = {"STORE_URL": site.settings["STORE_URL"], "COPY": str(folder / "copy")}
    site.script("backup-mongodb.sh", **place)
    planes, controllers = site.of("control-plane"), site.of(*CONTROLLERS)
    with RequestLoop(site) as people:
        for service in (*planes, *controllers):
            site.restart(service, NEW)
        wait_until(lambda: people.sent >= REQUESTS, f"{REQUESTS} requests")
    reads = [each for each in people.failed if each.startswith("GET")]
    result = f"{people.sent} requests; {len(people.failed) - len(reads)} writes and {len(reads)} reads failed"
    record("upgrade to a newer schema", result)
    # On a busy host the store may respond so late that the balancer has no control plane for a moment.
    assert [each for each in reads if ": 503 " not in each] == []

    for service in (*controllers, *planes):
        assert service.end() == 0
        service.env["PYTHONPATH"] = str(old_version)
    log = site.folder / "control-plane-1.log"
    before = len(log.read_text())
    assert planes[0].start().wait() != 0
    assert "was written by a newer LCM" in log.read_text()[before:]

    site.script("restore-mongodb.sh", **place)
    planes[0].start()
    wait_until(lambda: site.is_ready(planes[0]), "the older control plane is ready")
    wait_until(lambda: hold(site), "the fleet is on hold")
    for service in (*planes[1:], *controllers):
        service.start()
    for service in (*planes[1:], *controllers):
        wait_until(lambda each=service: site.is_ready(each), f"{service.name} is ready")  # type: ignore[misc]
    site.lcm("fleet", "release")
    site.lcm("workers", "create", "after-going-back", *CREATE)
    seconds = wait_until(lambda: site.status("after-going-back") == "RUNNING", "work goes on")
    record("back by a backup", f"a worker runs {seconds:.0f} s after the release")


def hold(site: Site, url: str = f"https://{BALANCER}") -> bool:
    """The balancer needs a moment to notice the control plane."""
    try:
        site.lcm("fleet", "hold", "--reason", "restored a backup", url=url)
    except RuntimeError:
        return False
    return True


def test_3_the_loss_of_a_host(site: Site) -> None:
    lost = [each for each in site.services if each.host == 1]
    for service in lost:
        service.end(signal.SIGKILL)
    first = wait_until(lambda: created(site, "after-loss"), "the API takes changes")
    seconds = wait_until(lambda: site.status("after-loss") == "RUNNING", "another controller leads")
    lablet = site.run_lablet("after-loss")
    result = (
        f"first change after {first:.0f} s, its worker runs {seconds:.0f} s later, then a lablet after {lablet:.0f} s"
    )
    record("loss of a host", result)
    for service in lost:
        service.start()
    (plane,) = [each for each in lost if each.name == "control-plane"]
    wait_until(lambda: site.is_ready(plane), "the host is back")


def created(site: Site, name: str) -> bool:
    try:
        site.lcm("workers", "create", name, *CREATE)
    except RuntimeError as error:
        return "already" in str(error)
    return True


def test_4_the_loss_of_the_leaders_control_plane(site: Site) -> None:
    """Nothing else of its host is gone: the controllers there use another control plane."""
    controllers = site.of("worker-controller")
    wait_until(lambda: any(map(site.leads, controllers)), "a controller leads")
    (leader,) = filter(site.leads, controllers)
    (plane,) = [each for each in site.of("control-plane") if each.host == leader.host]
    plane.end(signal.SIGKILL)
    first = wait_until(lambda: created(site, "without-its-plane"), "the API takes changes")
    seconds = wait_until(lambda: site.status("without-its-plane") == "RUNNING", "a controller acts")
    record(
        "loss of the leader's control plane", f"first change after {first:.0f} s, its worker runs {seconds:.0f} s later"
    )
    plane.start()
    wait_until(lambda: site.is_ready(plane), "the control plane is back")


def test_5_the_loss_of_etcd(site: Site) -> None:
    members = site.of("etcd")
    for member in members:
        member.end(signal.SIGKILL)
    wait_until(lambda: "coordination" in site.get(f"https://{BALANCER}/ready"), "the control planes say so")
    assert '"ready":true' in site.get(f"https://{BALANCER}/ready")
    site.lcm("workers", "create", "without-etcd", *CREATE)
    assert site.status("without-etcd") == "PENDING"
    for member in members:
        member.start()
    seconds = wait_until(lambda: site.status("without-etcd") == "RUNNING", "work goes on by itself")
    record("loss of etcd", f"a worker that was created meanwhile runs {seconds:.0f} s after etcd is back")


def test_6_a_restored_sqlite_file_waits_for_a_person(
    site: Site, cloud: tuple[AwsBed, Machines], tmp_path: Path
) -> None:
    url = f"http://{HOSTS[2]}:8080"
    env = {
        "STORE_URL": "",
        "ETCD_NAMESPACE": "/restored",
        "LCM_INSTALLATION_ID": "sqlite",
        "CONTROL_PLANE_API_URL": url,
    }
    plane = site.add_lcm(3, "control-plane", **env)
    controllers = [site.add_lcm(3, kind, **env) for kind in CONTROLLERS]
    wait_until(lambda: site.is_ready(plane), "the control plane is ready")
    place = {"DATA": str(site.data[2] / "lcm"), "COPY": str(tmp_path / "copy.db")}
    drill = RestoreDrill(site, cloud[0], url, [plane], controllers)
    drill.run("sqlite", **place)
    for service in (*controllers, plane):
        site.remove(service)


def test_7_a_restored_mongodb_waits_for_a_person(site: Site, cloud: tuple[AwsBed, Machines], tmp_path: Path) -> None:
    assert not may_read_oplog(site, "lcm"), "LCM's own user needs less than mongodump --oplog"
    assert may_read_oplog(site, "backup")
    place = {"STORE_URL": site.settings["STORE_URL"], "COPY": str(tmp_path / "copy")}
    planes, controllers = site.of("control-plane"), site.of(*CONTROLLERS)
    RestoreDrill(site, cloud[0], f"https://{BALANCER}", planes, controllers).run("mongodb", **place)


def may_read_oplog(site: Site, user: str) -> bool:
    url = site.settings["STORE_URL"].replace("lcm:lcm-password@", f"{user}:{user}-password@")
    with MongoClient[dict[str, Any]](url) as client:
        try:
            client["local"]["oplog.rs"].find_one()
        except OperationFailure:
            return False
    return True


class RestoreDrill:
    """A backup, changes after it, and its restore: controllers act on the older records only after a person said so."""

    def __init__(self, site: Site, aws: AwsBed, url: str, planes: list[Service], controllers: list[Service]) -> None:
        self._site = site
        self._aws = aws
        self._url = url
        self._planes = planes
        self._controllers = controllers

    def run(self, store: str, **place: str) -> None:
        """The steps of docs/operations.md, with the scripts of this store."""
        kept, later = f"{store}-kept", f"{store}-later"
        self._lcm("workers", "create", kept, *CREATE)
        self._until(kept, "RUNNING")
        self._site.script(f"backup-{store}.sh", **place)
        self._lcm("workers", "create", later, *CREATE)
        self._until(later, "RUNNING")
        self._lcm("workers", "stop", kept)
        self._until(kept, "STOPPED")
        before = asyncio.run(self._aws.live_instances())

        began = time.monotonic()
        for service in (*self._controllers, *self._planes):
            assert service.end() == 0
        self._site.script(f"restore-{store}.sh", **place)
        self._start(self._planes[0])
        wait_until(lambda: hold(self._site, self._url), "the fleet is on hold")
        starts = self._starts()
        for service in self._planes[1:]:
            self._start(service)
        for service in self._controllers:
            service.start()
        # worker-lifecycle.md#drift: a leader accepts no stop until the last start is some minutes ago.
        self._until(kept, "STOPPED", PATIENCE + VISIBILITY_GRACE_SECONDS)
        assert self._lcm("plan")
        assert (asyncio.run(self._aws.live_instances()), self._starts()) == (before, starts), "it waits for a person"
        self._lcm("fleet", "release")
        self._until(kept, "RUNNING")
        assert asyncio.run(self._aws.live_instances()) == before, (
            "an instance that the backup does not know is not ended"
        )
        record(
            f"restore, {store}", f"{time.monotonic() - began:.0f} s from the stop to the desired status of the backup"
        )

    def _lcm(self, *arguments: str) -> Any:
        return self._site.lcm(*arguments, url=self._url)

    def _until(self, name: str, status: str, patience: float = PATIENCE) -> None:
        wait_until(lambda: self._site.status(name, url=self._url) == status, f"{name} is {status}", patience)

    def _start(self, plane: Service) -> None:
        plane.start()
        wait_until(lambda: self._site.is_ready(plane), "the control plane is ready")

    def _starts(self) -> int:
        return self._aws.calls().get("StartInstances", 0)
