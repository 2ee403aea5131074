"""Invariants of lablets: legal transitions, no overbooked worker, one lab per placement, nothing left behind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lcm.cml.client.labs import marker_in_title
from lcm.control_plane.records.kinds import LABLET_HISTORY
from lcm.model.lablet.status import (
    ASSIGNED_LABLET_STATUSES,
    FINAL_LABLET_STATUSES,
    LABLET_STATUSES,
    LabletStatus,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lcm.cml.simulator.state.labs import Lab

_SIZES = (
    ("cpu_cores", "cpu_cores"),
    ("memory_gb", "memory_gb"),
    ("storage_gb", "storage_gb"),
    ("nodes", "max_nodes"),
)

_LIMIT = re.compile(r"workers are in (?P<region>\S+) and MAX_WORKERS_PER_REGION is (?P<limit>\d+)")
WAITS_FOR_CLASS = "a lablet without a booking waits for room that is booked"


class LabletBooks:
    """Records lablets and reports violations."""

    def __init__(self, violated: Callable[[str], None], note: Callable[[str], None], covered: Counter[str]) -> None:
        self._violated = violated
        self._note = note
        self._covered = covered
        self.records: dict[str, dict[str, Any]] = {}
        self.touched: set[str] = set()  # labs that a user stopped
        self.confirmed: set[str] = set()  # lablets whose creation was confirmed

    def committed(self, after: dict[str, Any], entries: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Check a write of a lablet."""
        before = self.records.get(after["id"])
        self.records[after["id"]] = after
        if "booked from" in str(after["placement"]):
            self._covered[WAITS_FOR_CLASS] += 1
        if before is None or before["status"] == after["status"]:
            return
        old, new, name = before["status"], after["status"], after["name"]
        self._covered[f"lablet {old} {new}"] += 1
        self._note(f"lablet {name} {old} -> {new}  {after['ending_reason'] or after['message']}")
        if LabletStatus(new) not in LABLET_STATUSES[LabletStatus(old)].next:
            self._violated(f"lablet {name}: {old} became {new}, which is not legal")
        steps = [entry for topic, entry in entries if topic == LABLET_HISTORY and entry["lablet_id"] == after["id"]]
        if not any(step["to_status"] == new and step["reason"] and step["actor"]["name"] for step in steps):
            self._violated(f"lablet {name}: {old} became {new} without a line of history that says who and why")
        if not before["wanted"] and after["wanted"]:
            self._violated(f"lablet {name}: desired again after its end was requested")

    def worker(self, after: dict[str, Any]) -> None:
        """Check a write of a worker: its allocation must not exceed its capacity."""
        taken, size = after["allocation"], after["capacity"]
        if size is None or not taken["lablets"]:
            return
        for what, most in _SIZES:
            if taken[what] > size[most] + 1e-6:
                self._violated(f"{after['name']} gave {taken[what]} {what} and has {size[most]}")

    def lab_made(self, marker: str, count: int, node: str) -> None:
        """A lab was created; `alike` is the number of labs with its marker on its server."""
        self._note(f"CML import of {marker} by {node}")
        if count > 1:
            self._violated(f"{count} labs carry the marker {marker}")

    def complaints(
        self, workers: Mapping[str, dict[str, Any]], labs_of: Callable[[str], Sequence[Lab]], running: set[str]
    ) -> list[str]:
        """The violations after everything had time to converge; `running` are the running instances."""
        found = [
            said
            for lablet in self.records.values()
            if lablet["lab_id"] not in self.touched
            for said in _not_converged(lablet, workers, labs_of)
        ]
        found += [
            f"lablet {each} was acknowledged and is lost" for each in sorted(self.confirmed - self.records.keys())
        ]
        for worker in workers.values():
            found += self._books_differ(worker)
            if worker["status"] == "RUNNING" and worker["ready"] and worker["instance_id"] in running:
                found += self._left_over(worker, labs_of(worker["instance_id"]))
        return found

    def _books_differ(self, worker: dict[str, Any]) -> Iterator[str]:
        mine = [
            each
            for each in self.records.values()
            if each["worker_id"] == worker["id"] and LabletStatus(each["status"]) in ASSIGNED_LABLET_STATUSES
        ]
        if worker["status"] != "TERMINATED" and worker["allocation"]["lablets"] != len(mine):
            yield f"{worker['name']} counts {worker['allocation']['lablets']} lablets and has {len(mine)}"

    def _left_over(self, worker: dict[str, Any], labs: Sequence[Lab]) -> Iterator[str]:
        ours = {each["lab_id"] for each in self.records.values() if each["worker_id"] == worker["id"]}
        for lab in labs:
            marker = marker_in_title(lab.plan.title)
            if marker is not None and lab.id not in ours:
                yield f"a lab of {marker} is left on {worker['name']}"


def _not_converged(
    lablet: dict[str, Any], workers: Mapping[str, dict[str, Any]], labs_of: Callable[[str], Sequence[Lab]]
) -> Iterator[str]:
    status, name = LabletStatus(lablet["status"]), lablet["name"]
    if status in FINAL_LABLET_STATUSES:
        return
    if status is LabletStatus.PENDING_SCHEDULING and _region_is_full(lablet, workers.values()):
        return
    if status is not LabletStatus.RUNNING or not lablet["wanted"]:
        said = lablet["message"] or (lablet["placement"] or {}).get("reason")
        yield f"lablet {name} is {status} long after the last fault: {said}"
        return
    worker = workers[lablet["worker_id"]]
    labs = [lab for lab in labs_of(worker["instance_id"] or "") if lab.id == lablet["lab_id"]]
    if not labs or labs[0].state != "STARTED":
        yield f"lablet {name} is RUNNING, and its lab on {worker['name']} is not"


def _region_is_full(lablet: dict[str, Any], workers: Collection[dict[str, Any]]) -> bool:
    """Whether it waits as it says: as many workers as there may be, and none of those that are ready has room."""
    said = _LIMIT.search(str(lablet["placement"]))
    live = [worker for worker in workers if worker["status"] != "TERMINATED"]
    if said is None or sum(worker["aws_region"] == said["region"] for worker in live) < int(said["limit"]):
        return False
    needs = lablet["requirements"]
    return not any(
        all(worker["capacity"][most] - worker["allocation"][what] >= needs[what] for what, most in _SIZES)
        for worker in live
        if worker["ready"] and worker["capacity"] is not None and worker["booking_id"] is None
    )
