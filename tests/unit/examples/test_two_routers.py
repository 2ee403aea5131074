"""The definition of `examples/` is accepted, and its routers are reached as the guide says."""

from __future__ import annotations

from pathlib import Path

import yaml

from lcm.control_plane.lablets.access import LabletAccessReader
from lcm.model.lablet.record import CreateDefinitionRequest
from tests.support.records.lablet_records import LabletDesk, a_ready_worker

ROOT = Path(__file__).resolve().parents[3]


async def test_a_lablet_of_the_example_is_reached_on_its_two_consoles() -> None:
    fields = yaml.safe_load((ROOT / "examples" / "two-routers.yaml").read_text())
    fields["topology"] = yaml.safe_dump(fields["topology"])
    request = CreateDefinitionRequest.model_validate(fields)
    capacity = {"cpu_cores": 4, "memory_gb": 8.0, "storage_gb": 100.0, "max_nodes": 15}
    worker = a_ready_worker(public_ip="192.0.2.7", capacity=capacity)
    desk = await LabletDesk().open(worker)
    needs = {**request.requirements.model_dump(), "license": False, "cml_version": None, "node_definitions": ()}
    await desk.define(request.name, request.version, request.topology, **needs)
    lablet = await desk.placed(definition="two-routers@2.0")
    access = await LabletAccessReader(desk.store).read(await desk.report(lablet, "INSTANTIATING"))
    assert [(node.node, [port.command for port in node.ports]) for node in access.nodes] == [
        ("r1", ["telnet 192.0.2.7 20000"]),
        ("r2", ["telnet 192.0.2.7 20001"]),
    ]
