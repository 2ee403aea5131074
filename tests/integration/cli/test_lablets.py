"""`lcm lablets` and `lcm definitions` against a real control plane, with a stand-in for the controllers."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lcm.client import Leader
from lcm.core import clock
from lcm.model.lablet.record import LabletStatusUpdate, NodeEndpoint, Placement, PlacementBatch, PlacementRequest
from lcm.model.lablet.status import LabletStatus
from tests.support.servers.control_plane import CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lcm.model.lablet.record import Lablet
    from tests.support.servers.control_plane import ControlPlaneProcess, FakeWorkerController

WORKERS = Leader("worker-controller", 7)
SCHEDULER = Leader("resource-scheduler", 1)
LABLETS = Leader("lablet-controller", 1)
TOPOLOGY = "lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1, tags: ['serial:${CON}']}\n"


class FakeControllers:
    """Does on request what the scheduler and the lablet controller would do."""

    def __init__(self, plane: ControlPlaneProcess) -> None:
        self._plane = plane

    def find(self, name: str) -> Lablet:
        async def find(client: Any) -> Lablet:
            found = client.lablets.list(q=name, sort="-created_at")
            return await anext(each async for each in found if each.name == name)

        return self._plane.ask(find)  # type: ignore[no-any-return]

    def place(self, name: str, worker: str) -> None:
        lablet, on = self.find(name), self._plane.worker(worker).id
        placement = Placement(at=clock.now(), worker_id=on, score=0.25, reason="the best of 1 (score 0.250)")
        item = PlacementRequest(lablet_id=lablet.id, version=lablet.version, worker_id=on, placement=placement)
        batch = PlacementBatch(items=(item,))
        (done,) = self._plane.ask(lambda client: client.internal.schedule(SCHEDULER, batch), CONTROLLER)
        assert done.placed, done.detail

    def report(self, name: str, status: str, **fields: Any) -> None:
        lablet = self.find(name)
        write = LabletStatusUpdate(status=LabletStatus(status), version=lablet.version, reason="seen on CML", **fields)
        self._plane.ask(lambda client: client.internal.lablet_status(LABLETS, lablet.id, write), CONTROLLER)


@pytest.fixture(scope="module")
def controllers(plane: ControlPlaneProcess) -> FakeControllers:
    return FakeControllers(plane)


@pytest.fixture(scope="module", autouse=True)
def fleet(
    plane: ControlPlaneProcess,
    controller: FakeWorkerController,
    controllers: FakeControllers,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A worker with a running lablet, a waiting lablet, and a terminated one."""
    folder = tmp_path_factory.mktemp("definitions")
    fields = {"name": "ospf", "version": 1, "description": "two areas", "requirements": {"license": False}}
    needs = {"license": False, "ports": ["CON"], "cpu_cores": 0.5}
    plain = {**fields, "topology": {"nodes": [{"id": "n0"}]}}
    (folder / "plain.yaml").write_text(yaml.safe_dump(plain))
    (folder / "ports.json").write_text(
        json.dumps({**fields, "version": "2", "topology": TOPOLOGY, "requirements": needs})
    )
    assert "ospf@1 created." in plane.lcm("definitions", "create", "-f", str(folder / "plain.yaml")).stdout
    plane.lcm("definitions", "create", "-f", str(folder / "ports.json"))
    plane.lcm("workers", "create", "alpha", "--template", "large")  # room for those that wait, too
    controller.boot("alpha")
    plane.ask(lambda client: client.internal.announce_leadership(WORKERS, startup_sweep_done=True), CONTROLLER)
    plane.lcm("lablets", "create", "ospf", "--name", "run", "--ends", "2h", "--owner", "anna")
    controllers.place("run", "alpha")
    controllers.report("run", "INSTANTIATING", lab_id="lab-1")
    controllers.report("run", "RUNNING", endpoints=(NodeEndpoint(node="R1", addresses=("10.0.0.7",)),))
    plane.lcm("lablets", "create", "ospf@1", "--name", "wait-1", "--if-lost", "fail", "--ttl", "90m")
    plane.lcm("lablets", "create", "ospf@1", "--name", "wait-2")
    plane.lcm("lablets", "create", "ospf@1", "--name", "over")
    plane.lcm("lablets", "terminate", "over", "--yes", "--reason", "not needed")


def test_lists_for_people_and_for_scripts(plane: ControlPlaneProcess) -> None:
    table = plane.lcm("lablets", "list").stdout
    assert table.splitlines()[0].split() == ["NAME", "STATUS", "DEFINITION", "OWNER", "WORKER", "FOR", "ENDS", "NOTES"]
    line = next(line for line in table.splitlines() if line.startswith("run"))
    assert line.split()[1:5] == ["RUNNING", "ospf@2", "anna", "alpha"]
    assert plane.lcm("lablets", "list", "-o", "name").stdout.split() == ["run", "wait-1", "wait-2"]
    assert "over" in plane.lcm("lablets", "list", "--all", "-o", "name").stdout.split()
    assert plane.lcm("lablets", "list", "-s", "running", "-o", "name").stdout == "run\n"
    assert plane.lcm("lablets", "list", "-s", "pending", "-o", "name").stdout.split() == ["wait-1", "wait-2"]
    assert plane.lcm("lablets", "list", "--worker", "alp", "-o", "name").stdout == "run\n"
    assert plane.lcm("lablets", "list", "--owner", "anna", "-o", "name").stdout == "run\n"
    assert plane.lcm("lablets", "list", "-d", "ospf@1", "--sort", "-name", "-o", "name").stdout.split() == [
        "wait-2", "wait-1",
    ]  # fmt: skip
    assert plane.lcm("lablets", "list", "-q", "nothing").stdout == "No matching lablets.\n"
    as_json = json.loads(plane.lcm("lablets", "list", "-o", "json").stdout)
    assert [each["status"] for each in as_json] == ["RUNNING", "PENDING_SCHEDULING", "PENDING_SCHEDULING"]
    assert yaml.safe_load(plane.lcm("lablets", "list", "-o", "yaml").stdout) == as_json
    assert as_json[0]["id"] in plane.lcm("lablets", "list", "-o", "wide").stdout
    assert "lablets   3: 2 PENDING_SCHEDULING, 1 RUNNING\n" in plane.lcm("fleet").stdout


def test_one_lablet_and_its_history(plane: ControlPlaneProcess) -> None:
    output = plane.lcm("lablets", "get", "ru").stdout
    assert "alpha (w-" in output
    assert "10.0.0.7" in output
    assert "CON=20000" in output
    assert "telnet 192.0.2.7 20000" in output
    assert "https://192.0.2.7/lab/lab-1" in output
    assert "the best of 1 (score 0.250)" in output
    waiting = json.loads(plane.lcm("lablets", "get", "wait-1", "-o", "json").stdout)
    assert (waiting["lost_worker_policy"], waiting["time_to_live_minutes"]) == ("fail", 90)
    history = plane.lcm("lablets", "history", "run").stdout
    assert [line.split()[3] for line in history.splitlines()[1:]] == [
        "PENDING_SCHEDULING", "SCHEDULED", "INSTANTIATING", "RUNNING",
    ]  # fmt: skip
    steps = json.loads(plane.lcm("lablets", "history", "over", "-o", "json").stdout)
    assert (steps[-1]["to_status"], steps[-1]["reason"]) == ("TERMINATED", "not needed")
    assert "lablets" in plane.lcm("workers", "get", "alpha").stdout
    assert "1 lablet is assigned to it." in plane.lcm("workers", "explain", "alpha").stdout


def test_definitions(plane: ControlPlaneProcess) -> None:
    names = plane.lcm("definitions", "list", "-o", "name").stdout.split()
    assert [name for name in names if name.startswith("ospf")] == ["ospf@1", "ospf@2"]
    assert "two areas" in plane.lcm("definitions", "list").stdout
    newest = json.loads(plane.lcm("definitions", "get", "os", "-o", "json").stdout)
    assert (newest["id"], newest["topology"]) == ("ospf@2", TOPOLOGY)
    output = plane.lcm("definitions", "get", "ospf@1").stdout
    assert "also 2" in output
    assert "- id: n0" in output
    assert "Dry run" in plane.lcm("definitions", "disable", "ospf@1", "--dry-run").stdout
    refused = plane.lcm("definitions", "disable", "ospf@1", check=False)
    assert "pass --yes" in refused.stderr
    assert "ospf@1 is disabled" in plane.lcm("definitions", "disable", "ospf@1", "--yes").stdout
    assert "ospf@1 is enabled" in plane.lcm("definitions", "enable", "ospf@1").stdout


def test_a_preview_and_a_dry_run_change_nothing(plane: ControlPlaneProcess) -> None:
    before = plane.lcm("lablets", "list", "--all", "-o", "json").stdout
    output = plane.lcm("lablets", "preview", "ospf").stdout
    assert "It would be placed on alpha" in output
    assert "0.5 CPU" in output
    elsewhere = json.loads(plane.lcm("lablets", "preview", "ospf", "--region", "us-east-1", "-o", "json").stdout)
    assert (elsewhere["outcome"], elsewhere["template"]) == ("launch", "micro")
    rejected = plane.lcm("lablets", "preview", "ospf", "--region", "us-east-1").stdout
    assert "it is in eu-west-1, not in us-east-1" in rejected
    assert "$0.0104 an hour more, for a micro in us-east-1." in rejected
    for command in (("create", "ospf", "--name", "dry"), ("terminate", "run"), ("terminate", "wait-1")):
        output = plane.lcm("lablets", *command, "--dry-run").stdout
        assert output.startswith("Dry run: no changes made."), output
        assert "would send" in output
    assert "It would be placed on alpha" in plane.lcm("lablets", "create", "ospf", "--dry-run").stdout
    assert "with all work of anna in them" in plane.lcm("lablets", "terminate", "run", "--dry-run").stdout
    assert plane.lcm("lablets", "list", "--all", "-o", "json").stdout == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("lablets", "get", "wiat-1"), 1, "there is no lablet 'wiat-1'; did you mean wait-1"),
        (("lablets", "get", "wait"), 1, "'wait' matches 2 lablets: wait-1 (l-"),
        (("lablets", "create", "rip"), 1, "there is no definition rip"),
        (("lablets", "create", "ospf", "--name", "run"), 1, "name: run is already used by lablet"),
        (("lablets", "create", "ospf", "--name", "no good"), 2, "name: "),
        (("lablets", "create", "ospf", "--if-lost", "cry"), 2, "lost_worker_policy: "),
        (("lablets", "create", "ospf", "--ends", "soon"), 2, "--ends 'soon': must be a duration such as"),
        (("lablets", "terminate", "run"), 1, "pass --yes"),
        (("lablets", "list", "-s", "asleep"), 2, "must be one of pending_scheduling"),
        (("lablets", "wait", "run", "--for", "tea"), 2, "--for tea: must be one of pending_scheduling"),
        (("lablets", "wait", "over", "--for", "running"), 1, "over is TERMINATED"),
        (("lablets", "wait", "wait-2", "--timeout", "1s"), 1, "wait-2 is not RUNNING after 1s"),
        (("definitions", "get", "opsf"), 1, "did you mean ospf?"),
        (("definitions", "disable", "ospf"), 1, "ospf has 2 versions: ospf@"),
        (("definitions", "create", "-f", "/nowhere.yaml"), 1, "/nowhere.yaml cannot be read"),
    ],
)
def test_errors_say_what_to_do(plane: ControlPlaneProcess, arguments: Sequence[str], code: int, words: str) -> None:
    done = plane.lcm(*arguments, check=False)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_topology_of_its_own_file_and_what_is_wrong_with_it(plane: ControlPlaneProcess, tmp_path: Path) -> None:
    file, topology = tmp_path / "bgp.yaml", tmp_path / "lab.yaml"
    file.write_text("name: bgp\nversion: 1.5\nrequirements: {license: false}\n")
    topology.write_text(TOPOLOGY)
    create = ("definitions", "create", "-f", str(file), "--topology", str(topology))
    refused = plane.lcm(*create, check=False)
    assert (refused.returncode, "not listed in requirements.ports; add CON there" in refused.stderr) == (1, True)
    topology.write_text("nodes: [{id: n0}]\n")
    assert "bgp@1.5 created." in plane.lcm(*create).stdout
    assert "bgp@1.5 created." in plane.lcm(*create).stdout
    topology.write_text("nodes: [{id: n1}]\n")
    changed = plane.lcm(*create, check=False)
    assert (changed.returncode, "versions never change" in changed.stderr) == (1, True)
    file.write_text("name: bgp\nversion: 2\nrequirements: {cpu: 2}\n")
    wrong = plane.lcm(*create, check=False)
    assert (wrong.returncode, "unknown: cpu; allowed are cpu_cores" in wrong.stderr) == (2, True)


def test_termination_and_waiting(plane: ControlPlaneProcess, controllers: FakeControllers) -> None:
    plane.lcm("lablets", "create", "ospf", "--name", "short")
    assert "short is TERMINATED; it was not on a worker." in (
        plane.lcm("lablets", "terminate", "short", "--yes").stdout
    )
    plane.lcm("lablets", "create", "ospf", "--name", "long")
    controllers.place("long", "alpha")
    controllers.report("long", "INSTANTIATING")
    assert "Wait for it: lcm lablets wait long --for terminated" in (
        plane.lcm("lablets", "terminate", "long", "--yes").stdout
    )
    failed = plane.lcm("lablets", "wait", "long", check=False)
    assert (failed.returncode, "long ends as TERMINATED" in failed.stderr) == (1, True)
    controllers.report("long", "TERMINATED")
    assert "long is TERMINATED after" in plane.lcm("lablets", "wait", "long", "--for", "terminated").stdout
    assert "No change needed" in plane.lcm("lablets", "terminate", "long", "--yes").stdout


def test_a_list_is_shown_again_when_it_changes(plane: ControlPlaneProcess) -> None:
    command = [sys.executable, "-m", "lcm", "lablets", "list", "--watch", "-o", "name", "-q", "watched"]
    with subprocess.Popen(command, env=plane.environment(), stdout=subprocess.PIPE, text=True) as watching:
        try:
            plane.lcm("lablets", "create", "ospf@1", "--name", "watched")
            assert watching.stdout is not None
            assert select.select([watching.stdout], [], [], 180)[0]
            assert watching.stdout.readline() == "watched\n"
        finally:
            watching.send_signal(signal.SIGINT)
        assert watching.wait(180) == 130
    plane.lcm("lablets", "terminate", "watched", "--yes")  # lists in other tests are as before
