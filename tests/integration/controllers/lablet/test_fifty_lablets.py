"""Fifty lablets from an empty fleet and back, on real parts: processes, etcd, SQLite, AWS and CML over real HTTP."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lcm.cml.client.labs import marker_in_title
from tests.support.real.full_platform import RealWhole, real_whole
from tests.support.records.packing import first_fit_decreasing
from tests.support.records.placement import needs
from tests.support.virtual.full_platform import topology

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)

SIZES = {
    "tiny": (35, needs(cpu=0.05, memory=0.5, storage=2, nodes=1, license=False)),
    "wide": (10, needs(cpu=0.25, memory=1.5, storage=40, nodes=2, license=False)),
    "heavy": (5, needs(cpu=0.5, memory=2, storage=110, nodes=3, license=False)),
}
MIN_WORKERS = 2


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[RealWhole]:
    with real_whole(tmp_path) as whole:
        yield whole


def test_fifty_lablets_from_an_empty_fleet_and_back(whole: RealWhole) -> None:
    """At most one worker more than first-fit-decreasing needs; all lablets run and end, MIN_WORKERS stay.

    Reference: lablets.md, idle-and-scaling.md.
    """
    for name, (count, requirements) in SIZES.items():
        body = {"name": name, "version": "1", "topology": topology(requirements.nodes)}
        whole.ask("POST", "/api/lablet-definitions", json={**body, "requirements": requirements.model_dump()})
        for number in range(count):
            short = {"time_to_live_minutes": 0.25} if number % 2 else {}
            whole.ask("POST", "/api/lablets", json={"definition": name, **short})
    whole.start_controllers()
    staying = {each["id"] for each in whole.lablets() if each["time_to_live_minutes"] is None}

    def all_stay() -> bool:
        return staying == {each["id"] for each in whole.lablets() if each["status"] == "RUNNING"} & staying

    whole.until(all_stay, "all run that do not end by themselves")
    machines = len(whole.workers())
    requirements_list = [requirements for count, requirements in SIZES.values() for _ in range(count)]
    assert machines <= first_fit_decreasing(requirements_list) + 1
    assert len({worker["template_name"] for worker in whole.workers()}) > 1, "workers of several sizes"
    markers = Counter(marker_in_title(lab.plan.title) for lab in whole.loop.run(whole.machines.labs()))
    assert all(markers[f"{lablet_id}.1"] == 1 for lablet_id in staying)

    for lablet_id in sorted(staying):
        whole.ask("POST", f"/api/lablets/{lablet_id}/terminate")
    whole.until(lambda: {each["status"] for each in whole.lablets()} == {"TERMINATED", "EXPIRED"}, "all have ended")
    for lablet in whole.lablets():
        steps = whole.steps(lablet["id"])
        end = "TERMINATED" if lablet["id"] in staying else "EXPIRED"
        assert (steps.count("RUNNING"), steps[-2:]) == (1, ["STOPPING", end])
    taken = {(each["allocation"]["lablets"], each["allocation"]["memory_gb"]) for each in whole.workers()}
    assert taken == {(0, 0.0)}
    assert whole.loop.run(whole.machines.labs()) == []

    scaling = {"min_workers": MIN_WORKERS}
    idle = {"worker_auto_pause_enabled": True, "worker_idle_timeout_minutes": 1}
    whole.ask("PATCH", "/api/settings", json={"scaling": scaling, "idle": idle})

    def shrunk() -> bool:
        statuses = Counter(worker["status"] for worker in whole.workers())
        return statuses == {"RUNNING": MIN_WORKERS, "STOPPED": machines - MIN_WORKERS}

    whole.until(shrunk, "only as many run as must")
    time.sleep(3)
    assert shrunk(), "and stays so"
    assert whole.aws.server.calls()["RunInstances"] == machines == len(whole.workers())
