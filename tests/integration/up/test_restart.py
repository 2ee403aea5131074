"""A restart of `lcm up` keeps the simulated CML servers, after a stop and after a kill."""

from __future__ import annotations

import json
import signal
import urllib.parse
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cml.client.labs import marker_in_title
from lcm.model.worker.idle import ACTIVITY_CATEGORIES
from tests.support.servers.lcm_up import LcmUpProcess, ready
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BRISK = {
    "RECONCILE_INTERVAL": "2",
    "METRICS_COLLECT_INTERVAL": "1",
    "IDLE_DETECTION_INTERVAL": "1",
    "WORKER_IDLE_TIMEOUT_MINUTES": "60",
    "CML_DEDICATED_ACCOUNT": "true",  # so that lablets after the restart do not count as activity
}
WHO = ("alpha", "bravo", "charlie")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., LcmUpProcess]]:
    made: list[LcmUpProcess] = []

    def start(name: str, *arguments: str) -> LcmUpProcess:
        made.append(LcmUpProcess(tmp_path, name, *arguments, "--speed", "10", **BRISK))
        return made[-1].start()

    yield start
    for up in made:
        up.process.end()


class Kept:
    """What the first run left on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "data"
        picture = json.loads((self._folder / "simulated-cloud.json").read_text())
        self.machines = {each["id"]: each for region in picture["regions"].values() for each in region["machines"]}

    def file(self, name: str) -> Any:
        return json.loads((self._folder / "simulated-cml" / f"{name}.json").read_text())

    def nodes_up(self, instance_id: str) -> int:
        """The number of running or starting nodes; none if the machine was stopped."""
        if self.machines[instance_id]["state"] != "running":
            return 0
        return sum(node["aim"] == "BOOTED" for lab in self.labs(instance_id) for node in lab["nodes"].values())

    def labs(self, instance_id: str) -> list[dict[str, Any]]:
        """Labs of users: those of lablets also change after the restart."""
        return [lab for lab in self.file(instance_id)["labs"] if marker_in_title(lab["plan"]["title"]) is None]

    def last_activity(self, instance_id: str) -> datetime | None:
        """The time of the last activity by anyone but the controller."""
        kept = self.file(instance_id)
        people = {account["id"] for account in kept["accounts"] if account["username"] != "admin"}
        counted = [each for each in kept["events"] if each["category"] in ACTIVITY_CATEGORIES]
        moments = [each["timestamp"] for each in counted if each["data"].get("user_id") in people]
        return datetime.fromisoformat(max(moments)).replace(tzinfo=UTC) if moments else None


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_labs_licenses_and_activity_survive_a_restart(
    start: Callable[..., LcmUpProcess], tmp_path: Path, end: signal.Signals
) -> None:
    first = start("first")
    first.until(ready(*WHO), "the demo's workers are ready")
    first.until(lambda now: all(now[name]["license_status"] == "registered" for name in WHO[:2]), "two are licensed")
    before = first.until(lambda now: sum(bool(now[name]["last_activity_at"]) for name in WHO) >= 2, "people come")
    ids = {name: before[name]["instance_id"] for name in WHO}

    def on_disk() -> bool:
        """A kill loses what is not written yet, which is up to half a second of the simulated world."""
        try:
            kept = Kept(tmp_path)
            return len(kept.file("account")["holders"]) >= 2 and sum(len(kept.labs(ids[name])) for name in WHO) >= 2
        except FileNotFoundError:
            return False

    wait_until(on_disk, "their licenses and labs are on disk")
    first.process.signal(end)
    first.process.wait()
    ended = datetime.now(UTC)
    kept = Kept(tmp_path)
    account = kept.file("account")
    labs = {name: len(kept.labs(ids[name])) for name in WHO}
    up = {name: kept.nodes_up(ids[name]) for name in WHO}
    activity = {name: kept.last_activity(ids[name]) for name in WHO}
    assert sum(labs.values()) >= 2
    assert len(account["holders"]) >= 2

    second = start("second", "--empty")  # without simulated users
    after = second.until(ready(*WHO), "they are ready again")
    assert {name: after[name]["instance_id"] for name in WHO} == ids
    for name in WHO:
        wait_until(partial(as_many, second, after[name], ended, labs[name], up[name]), f"{name} is as before")
    again = Kept(tmp_path)
    assert {name: len(again.labs(ids[name])) for name in WHO} == labs
    assert {name: again.nodes_up(ids[name]) for name in WHO} == up
    after = second.until(
        lambda now: all(_moment(now[name]["last_idle_check_at"]) > ended for name in WHO), "idle detection goes on"
    )
    for name in WHO:
        latest = activity[name]
        if latest is not None:
            # Labs that were stopping at the end have stopped by now.
            assert latest <= _moment(after[name]["last_activity_at"]) <= latest + timedelta(seconds=2)
        assert after[name]["license_status"] == before[name]["license_status"]
    second.process.signal(signal.SIGINT)
    assert second.process.wait() == 0
    now = kept.file("account")
    added = set(now["holders"]) - set(account["holders"])  # workers that were launched meanwhile
    assert set(account["holders"]) <= set(now["holders"])
    assert now["ever"] == account["ever"] + len(added), "no registration was repeated"


def as_many(up: LcmUpProcess, worker: dict[str, Any], since: datetime, labs: int, nodes: int) -> bool:
    """Whether metrics of this run show that many labs and running nodes; those of lablets are extra."""
    query = urllib.parse.urlencode({"since": since.isoformat()})
    found = up.ask("GET", f"/api/workers/{worker['id']}/metrics?{query}")["items"]
    samples = [(each["labs_count"], each["running_nodes"]) for each in found if each.get("labs_count") is not None]
    return bool(samples) and samples[-1][0] >= labs and samples[-1][1] >= nodes


def _moment(text: str | None) -> datetime:
    return datetime.min.replace(tzinfo=UTC) if text is None else datetime.fromisoformat(text)


@pytest.mark.parametrize("given", [True, False])
def test_the_source_of_the_admin_token_is_shown(tmp_path: Path, given: bool) -> None:
    up = LcmUpProcess(tmp_path, "up", "--empty", **({} if given else {"LCM_BOOTSTRAP_TOKEN": ""}))
    up.process.start()
    try:
        wait_until(lambda: "admin token" in up.process.log_path.read_text(), "it says so")
    finally:
        up.process.end()
    (line,) = [line for line in up.process.log_path.read_text().splitlines() if "admin token" in line]
    file = tmp_path / "data" / "admin.token"
    assert file.exists() is not given
    assert line.endswith("environment LCM_BOOTSTRAP_TOKEN" if given else str(file))
