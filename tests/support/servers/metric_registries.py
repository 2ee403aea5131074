"""Every metric that the platform's processes have, from real parts in a process of its own.

Run as `python -m tests.support.servers.metric_registries`: prints name, type and labels of each as JSON. A
process of its own, because parts register themselves in the one registry of a process, and only once.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx
from prometheus_client import REGISTRY, disable_created_metrics
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from lcm.coordination.memory.client import MemoryCoordination
from lcm.http.network import NetworkTransport
from lcm.wiring.connections import connect_cml, connect_coordination
from lcm.wiring.control_plane import ControlPlaneComponentSettings, make_control_plane
from lcm.wiring.controllers import ControllerRuntime, StandaloneControllerSettings, make_control_plane_client
from lcm.wiring.lablet_controller import LabletControllerProcessSettings, make_lablet_controller
from lcm.wiring.resource_scheduler import ResourceSchedulerProcessSettings, make_resource_scheduler
from lcm.wiring.worker_controller import WorkerControllerProcessSettings, connect_aws, make_worker_controller
from tests.support.run.once import once
from tests.support.servers.processes import ROOT

if TYPE_CHECKING:
    from fastapi import FastAPI

Metrics: TypeAlias = dict[str, dict[str, Any]]

_TOKEN = "controller-token-for-tests-0123456789"
_MARK = "metrics: "  # components may log on the same stream
# Metrics of the Prometheus library itself, the same in every Python program.
_OF_THE_LIBRARY = ("python_", "process_")


@cache
def platform_metrics(run_folder: Path) -> Metrics:
    """`type` and `labels` by name, collected once for the run. Counters have their scraped name, with `_total`."""
    found: Metrics = json.loads(once(run_folder / "platform-metrics.json", _run))
    return found


def _run() -> str:
    command = [sys.executable, "-m", "tests.support.servers.metric_registries"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith(_MARK)).removeprefix(_MARK)


def sample_names(metrics: Metrics) -> set[str]:
    """The names for queries: a histogram has three."""
    names = set()
    for name, facts in metrics.items():
        histogram = facts["type"] == "histogram"
        names |= {f"{name}{part}" for part in ("_bucket", "_sum", "_count")} if histogram else {name}
    return names


async def _collect(folder: Path) -> Metrics:
    """Assemble a control plane and controllers as processes do, without starting them, and scrape all metrics."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    etcd = connect_coordination(StandaloneControllerSettings())
    settings = WorkerControllerProcessSettings(
        lcm_controller_token=SecretStr(_TOKEN),
        aws_default_region="eu-west-1",
        cml_poller_processes=1,
        cml_reader_url="http://127.0.0.1:8083",
    )
    async with aclosing(NetworkTransport(idle_seconds=0.0, max_idle=0)) as http:
        stored = ControlPlaneComponentSettings(lcm_data_dir=folder, store_url="mongodb://127.0.0.1/")
        plane = make_control_plane(stored, MemoryCoordination(), http)
        cloud, cml, control = connect_aws(settings), connect_cml(settings), make_control_plane_client(settings)
        controller = make_worker_controller(
            ControllerRuntime(MemoryCoordination(), settings), settings, control, cloud, cml
        )
        placing = ResourceSchedulerProcessSettings(lcm_controller_token=SecretStr(_TOKEN))
        scheduler = make_resource_scheduler(ControllerRuntime(MemoryCoordination(), placing), placing, control)
        labs_told = LabletControllerProcessSettings(lcm_controller_token=SecretStr(_TOKEN))
        labs = make_lablet_controller(ControllerRuntime(MemoryCoordination(), labs_told), labs_told, control, cml)
        shown = [await _scrape(app) for app in (plane.server.app, controller.app, scheduler.app, labs.app)]
    found = _labelled()
    for text in shown:
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            found.setdefault(name, {"labels": labels})["type"] = family.type
    for close in (cloud.close, cml.close, control.aclose, etcd.close):
        await close()
    ours = {name: facts for name, facts in found.items() if not name.startswith(_OF_THE_LIBRARY)}
    unseen = [name for name, facts in ours.items() if "type" not in facts]
    assert not unseen, f"registered, and on no surface: {unseen}"
    return dict(sorted(ours.items()))


def _labelled() -> Metrics:
    """The declared labels: a metric without a value shows none."""
    found: Metrics = {}
    for collector in list(REGISTRY._collector_to_names):
        declared = getattr(collector, "_labelnames", None)
        for family in collector.collect():
            labels = getattr(family, "_labelnames", ()) if declared is None else declared
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = {"labels": sorted(labels)}
    return found


async def _scrape(app: FastAPI) -> str:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lcm.test") as client:
        return (await client.get("/metrics")).text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        collected = asyncio.run(_collect(Path(place)))
    sys.stdout.write(f"{_MARK}{json.dumps(collected)}\n")
