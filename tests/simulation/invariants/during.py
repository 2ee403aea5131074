"""Invariants that hold at all times: checked with every commit and every call, and once more at the end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import WORKER_TAG, InstanceState
from lcm.control_plane.records.kinds import (
    AUDIT,
    BOOKINGS,
    DECISIONS,
    FLEET,
    LABLETS,
    LEADERSHIPS,
    SETTINGS,
    TEAMS,
    WORKER_CHANGED,
    WORKER_HISTORY,
    WORKERS,
    worker_fields,
    worker_unique_keys,
)
from lcm.control_plane.store.adapter_rules import Commit
from lcm.control_plane.store.memory.store import MemoryDisk
from lcm.control_plane.store.port import NewJournalEntry, Put
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus, is_allowed_transition
from tests.simulation.invariants.classes import ClassBooks
from tests.simulation.invariants.idle import CLOCK_GRACE, IdleBooks
from tests.simulation.invariants.lablets import LabletBooks
from tests.simulation.invariants.versions import CHANGED_BY_BOTH, erased, with_newer_fields
from tests.simulation.script import UNAUTHENTICATED
from tests.support.virtual.fleet import BOOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import Kind
    from tests.simulation.world.cloud_and_cml import Ec2
    from tests.simulation.world.loop import SeededLoop

_LIVE = (InstanceState.PENDING, InstanceState.RUNNING, InstanceState.STOPPING, InstanceState.STOPPED)
_SWITCHES = {
    "auto_paused": ("idle", "worker_auto_pause_enabled"),
    "scale_down_initiated": ("scaling", "scale_down_enabled"),
}
HIBERNATING = "HIBERNATING"
"""A status that only a newer version knows."""
CHANGING = ("RunInstances", "StartInstances", "StopInstances", "TerminateInstances")
_LOSS_WINDOW = 1790.0  # half an hour, by clocks that may run two percent fast and be seconds off
_DEADLINES = {"provisioning.timeout": 240.0, "starting.timeout": 240.0}
HELD_GRACE = 15.0
"""How long a call that was decided before a hold may still start: the maximum duration of a pass."""
MOST_DELAY = 30.0
"""How long after a user's request EC2 is called where nothing goes wrong but another region, or the CML servers of
other workers: a polling cycle."""
MOST_LAB_DELAY = 15.0
"""How long after a lablet got its worker its lab is created where nothing is slow but another worker's CML."""
SICKENING = ("swallow", "cml-slow")
"""Faults of one region or server, which must delay no other."""
_PROMPT_CHANGES = (("RUNNING", "RUNNING", "STOPPED"), ("STOPPED", "STOPPED", "RUNNING"))
"""Status before and after a user's request, and the desired status, where a call follows at once: no drain."""
MOST_RESTARTS = 2
"""How often a worker is stopped for maintenance before a person has to look."""
_NOT_OFFERED = " is not offered in the zone of "
_HOUR = 3600.0
_HOPELESS_SETBACKS = 30  # a worker in a hot loop: the rest of the run would take hours
_FITTING = {"RunInstances": "RUNNING", "StartInstances": "RUNNING", "StopInstances": "STOPPED"}
"""The desired status that justifies a call."""


class InvariantViolationError(AssertionError):
    """An invariant was violated."""


class Ledger:
    """Records what happens and reports violations at once."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop
        self.violations: list[str] = []
        self.log: list[str] = []
        self.records: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, set[int]] = defaultdict(set)
        self.confirmed: list[tuple[str, int, str]] = []
        self._terms: dict[str, int] = {}
        self._held_since: float | None = None
        self._worker_holds: dict[str, float] = {}
        self._wanted_until: dict[tuple[str, str], float] = {}
        self.wanted_since: dict[str, float] = {}  # by worker: when its desired status last changed
        self._settings: dict[str, Any] = {}
        self.requests: Counter[int] = Counter()
        self.calls: Counter[int] = Counter()
        self.changes: Counter[tuple[int, str]] = Counter()
        self.tries: dict[str, list[float]] = defaultdict(list)  # by worker: when launches and starts were called
        self.most_setbacks = 0  # starts of one worker within an hour that ended STOPPED
        self._setbacks: dict[str, list[float]] = defaultdict(list)
        self.leaked_licenses = 0
        self.leaked_in_doubt: set[str] = set()  # instances that ended before their license state was known
        self.leaks_told: set[str] = set()
        self.breakers: set[str] = set()
        self.ec2: Ec2 | None = None
        self._accepted: dict[str, set[str]] = {}  # by region: workers whose loss a closed breaker has accepted
        self._losses: dict[str, dict[str, float]] = defaultdict(dict)  # by region: when a worker was last lost
        self.sick_regions: set[str] = set()  # they never respond at the moment
        self.omitted_types: set[tuple[str, str, str | None]] = set()  # by region, type and subnet, in this run
        self.stopped_outside: set[str] = set()  # instances that were stopped in this run, and not by us
        self.launched_outside: set[str] = set()  # instances that people launched, with tags of ours or not
        self.sick_servers: set[str] = set()  # instances whose CML takes long for each response at the moment
        self.other_faults = True  # whether anything else goes wrong in this run
        self._runs_since: dict[str, float] = {}  # workers that are not ready yet, while CML servers of others are slow
        self._placed_at: dict[str, float] = {}  # lablets whose lab is to be created, while another server is slow
        self._asked: dict[str, float] = {}  # workers that a user wants to start or stop, until EC2 is called
        self._untrusted: set[str] = set()  # instances whose new certificate no user has trusted
        self._reinstalled: set[str] = set()
        self.covered: Counter[str] = Counter()
        self._entered: dict[str, float] = {}  # when each worker got its status
        self._left: dict[str, float] = {}  # when each got the status before
        self.idle = IdleBooks(self.violated, lambda: loop.now)
        self.lablets = LabletBooks(self.violated, self.note, self.covered)
        self.classes = ClassBooks(loop, self.violated, self.note, self.covered, self.records, self.lablets.records)

    @property
    def _now(self) -> float:
        return self._loop.now

    def note(self, line: str) -> None:
        """Add a line to the log of the run."""
        entry = f"{(self._now - 1000) / 60:7.3f} {line}"
        self.log.append(entry)
        self._loop.record(entry)

    def violated(self, what: str) -> None:
        """Record a violation. The run continues, because later events may explain it."""
        self.note(f"VIOLATION {what}")
        self.violations.append(what)

    # Confirmed requests

    def acknowledged(self, worker: Worker) -> None:
        """A user received the confirmation of a write."""
        self.confirmed.append((worker.id, worker.version, worker.desired_status.value))

    def fleet_held(self) -> None:
        """A user received the confirmation of a hold."""
        self._held_since = self._now

    def fleet_released(self) -> None:
        """A user requests the end of a hold: calls are allowed from now on."""
        self._held_since = None

    # Commits

    def committed(self, commit: Commit, disk: MemoryDisk) -> None:
        """Check a commit before it is applied."""
        entries = [(entry.topic, json.loads(entry.body)) for entry in commit.entries]
        puts = [write for write in commit.writes if isinstance(write, Put)]
        for write in sorted(puts, key=lambda put: put.kind is DECISIONS):  # a decision is checked with its effect
            self._written(write, json.loads(write.body), entries, disk)
        for topic, entry in entries:
            if topic == AUDIT:
                self._audited(entry)

    def _written(
        self, write: Put, body: dict[str, Any], entries: Sequence[tuple[str, dict[str, Any]]], disk: MemoryDisk
    ) -> None:
        self._newer_fields_kept(disk, write.kind, write.id, body)
        if write.kind is WORKERS:
            self._worker(body, entries)
            self._newer_kept(disk, body)
        elif write.kind is LABLETS:
            self.classes.lablet(self.lablets.records.get(body["id"]), body)
            self._placed(self.lablets.records.get(body["id"]), body)
            self.lablets.committed(body, entries)
        elif write.kind is BOOKINGS:
            self.classes.booking(body, [entry for topic, entry in entries if topic == AUDIT])
        elif write.kind is TEAMS:
            self.classes.teams[write.id] = body
        elif write.kind is SETTINGS:
            self._settings = body
            self.idle.settings(body.get("idle", {}))
            self.classes.scaling = body.get("scaling", {})
        elif write.kind is LEADERSHIPS:
            self._leadership(body, entries)
        elif write.kind is FLEET:
            self._fleet(body)
        elif write.kind is DECISIONS:
            self._deadline(write.id, body["rule"])

    def _worker(self, after: dict[str, Any], entries: Sequence[tuple[str, dict[str, Any]]]) -> None:
        worker_id = after["id"]
        before = self.records.get(worker_id)
        self.records[worker_id] = after
        self.versions[worker_id].add(after["version"])
        self.lablets.worker(after)
        actors = [
            {**entry["actor"], "action": entry["action"]}
            for topic, entry in entries
            if topic == AUDIT and entry["subject"] == worker_id
        ]
        self.classes.worker(before, after, {actor["action"] for actor in actors}, {actor["kind"] for actor in actors})
        if before is None:
            self._entered[worker_id] = self._now
            return
        if before["instance_id"] is not None and _gives_up_instance(before, after):
            self._given_up(after, before["instance_id"])
            if before["desired_status"] != "TERMINATED":
                self._lost(after)
        if before["license_status"] == "registering" and any(actor["action"] == "license_leaked" for actor in actors):
            self.leaked_in_doubt.add(before["instance_id"])
        self._transition(before, after, entries)
        self.idle.worker(before, after, actors)
        if before["desired_status"] != after["desired_status"]:
            self._wish(before, after, actors)
        if after["version"] < before["version"]:
            self.violated(f"{worker_id}: version went from {before['version']} to {after['version']}")
        self._certificates(before, after)
        self._check_ready(before, after)
        if after["hold"] is not None and after["hold"]["until"] is None:
            self._worker_holds.setdefault(worker_id, self._now)
        else:
            self._worker_holds.pop(worker_id, None)

    def _transition(
        self, before: dict[str, Any], after: dict[str, Any], entries: Sequence[tuple[str, dict[str, Any]]]
    ) -> None:
        if before["status"] == after["status"]:
            return
        worker_id, old, new = after["id"], before["status"], after["status"]
        self._left[worker_id], self._entered[worker_id] = self._entered[worker_id], self._now
        if HIBERNATING in (old, new):
            if any(topic == AUDIT for topic, _ in entries):  # ours always write one, the newer version here does not
                self.violated(f"{worker_id}: {old} became {new}, which only a newer version may change")
            return
        self.covered[f"step {old} {new}"] += 1
        self.note(f"{after['name']} {old} -> {new}")
        if not is_allowed_transition(WorkerStatus(old), WorkerStatus(new)):
            self.violated(f"{worker_id}: {old} became {new}, which is not legal")
        if (old, new) == ("STARTING", "STOPPED") and after["desired_status"] == "RUNNING":
            self._set_back(worker_id)
        steps = [entry for topic, entry in entries if topic == WORKER_HISTORY and entry["worker_id"] == worker_id]
        if not any(step["to_status"] == new and step["reason"] and step["actor"]["name"] for step in steps):
            self.violated(f"{worker_id}: {old} became {new} without a line of history that says who and why")
        if new == "FAILED" and steps:
            self._failed(before, after, steps[-1]["reason"])
        lost_by_scan = after.get("terminated_by") == "discovery-gc" and new == "TERMINATED"
        if lost_by_scan and after["aws_region"] in self.breakers:
            self.violated(f"{worker_id}: marked as lost while the breaker of {after['aws_region']} is open")

    def _failed(self, before: dict[str, Any], after: dict[str, Any], reason: str) -> None:
        """A worker is FAILED: not for something that passes by itself, or that another zone does not lack."""
        worker_id = after["id"]
        if any(code in reason for code in UNAUTHENTICATED):
            self.violated(f"{worker_id}: FAILED although nobody has judged the call: {reason}")
        if self._another_zone_offers(after, reason):
            self.violated(f"{worker_id}: FAILED although another zone offers its type: {reason}")
        waits = {each["reason"] for each in before["conditions"] if each["type"] == "Waiting"}
        if before["status"] == "STARTING" and "NotObserved" in waits and reason.endswith("stopped"):
            self.violated(f"{worker_id}: FAILED although nobody could read EC2 and the instance was never started")

    def _another_zone_offers(self, record: dict[str, Any], reason: str) -> bool:
        """Whether a worker fails because the zone of one subnet does not offer its type, and that of another does."""
        if _NOT_OFFERED not in reason:
            return False
        assert self.ec2 is not None
        region, kind = record["aws_region"], reason.split(_NOT_OFFERED)[0].split()[-1]
        lacking = {(region, kind, subnet) for subnet in self.ec2.regions[region].subnets}
        return (region, kind, None) not in self.omitted_types and not lacking <= self.omitted_types

    def _set_back(self, worker_id: str) -> None:
        """A start ended STOPPED. An hour ends now, and not on the clock: else half of them would be counted."""
        recent = [at for at in self._setbacks[worker_id] if self._now - at < _HOUR]
        self._setbacks[worker_id] = [*recent, self._now]
        self.most_setbacks = max(self.most_setbacks, len(recent) + 1)
        if self.most_setbacks > _HOPELESS_SETBACKS:
            self._loop.halted = f"{worker_id} became STARTING and STOPPED {self.most_setbacks} times within an hour"

    def _given_up(self, after: dict[str, Any], instance_id: str) -> None:
        """A worker ends or gives up its instance: EC2 must not run it any more."""
        assert self.ec2 is not None
        region = self.ec2.regions[after["aws_region"]]
        machine = region.machines.get(instance_id)
        if machine is not None and region.settle(machine, self.ec2.time()).state in _LIVE:
            self.violated(
                f"{after['id']}: {after['status']} without {instance_id}, which EC2 still runs ({machine.state.value})"
            )

    def _lost(self, after: dict[str, Any]) -> None:
        """Of the live workers and those lost within half an hour, no more than one or a fifth may be lost."""
        region, worker_id = after["aws_region"], after["id"]
        if worker_id in self._accepted.get(region, ()):
            return
        recent = {each: at for each, at in self._losses[region].items() if self._now - at < _LOSS_WINDOW}
        recent[worker_id] = self._now
        self._losses[region] = recent
        live = {each["id"] for each in self.records.values() if _is_live(each, region)}
        if len(recent) > max(1, len(live | recent.keys()) / 5):
            self.violated(f"{worker_id}: loss number {len(recent)} of {region} within half an hour, {len(live)} live")

    def _fleet(self, state: dict[str, Any]) -> None:
        was_open, self.breakers = self.breakers, {name for name, each in state["breakers"].items() if each["open"]}
        self._accepted = {name: set(each["accepted"]) for name, each in state["losses"].items()}
        for region in was_open - self.breakers:
            self._losses[region].clear()

    def _wish(self, before: dict[str, Any], after: dict[str, Any], actors: Sequence[dict[str, Any]]) -> None:
        worker_id, desired = after["id"], after["desired_status"]
        self._wanted_until[worker_id, before["desired_status"]] = self._now
        self.wanted_since[worker_id] = self._now
        kinds = {actor["kind"] for actor in actors}
        if before["desired_status"] == "TERMINATED":
            self.violated(f"{worker_id}: desired status {desired} after TERMINATED")
        if "person" in kinds:
            change = (before["status"], after["status"], desired)
            others = (self.sick_regions or self.sick_servers) and not self._is_sick(after)
            if others and change in _PROMPT_CHANGES and after["hold"] is None and self._held_since is None:
                self._asked[worker_id] = self._now
            return
        accepted = after["drifted_at"] != before["drifted_at"] or after.get("pause_reason") == "stopped from outside"
        if accepted and "policy" not in kinds:
            self._accepted_stop(after)
        booked = desired == "RUNNING" and any(actor["action"] == "booked" for actor in actors)
        if "policy" not in kinds and not booked and not (desired == "STOPPED" and accepted):
            self.violated(
                f"{worker_id}: desired status is now {desired}, requested neither by a user nor by a policy: {actors}"
            )
            return
        self.covered[f"wish {desired} by {sorted(actor['action'] for actor in actors)[0] if actors else '?'}"] += 1
        for actor in actors:
            group, switch = _SWITCHES.get(actor["action"], ("", ""))
            if switch and not self._settings.get(group, {}).get(switch):
                self.violated(f"{worker_id}: {actor['action']} though {switch} is off")
        if desired == "STOPPED" and "policy" in kinds:
            self._stopped_by_policy(before, after)

    def _accepted_stop(self, record: dict[str, Any]) -> None:
        """What is accepted as a stop outside LCM has taken place: an old state is none."""
        assert self.ec2 is not None
        region = self.ec2.regions[record["aws_region"]]
        machine = region.machines.get(record["instance_id"])
        if machine is None or machine.id in self.stopped_outside or machine.events:
            return
        state = region.settle(machine, self.ec2.time()).state
        if state in (InstanceState.PENDING, InstanceState.RUNNING):
            self.violated(f"{record['id']}: a stop outside LCM is accepted, and {machine.id} is {state.value}")

    def _stopped_by_policy(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        worker_id = after["id"]
        if after["allocation"]["lablets"]:
            self.violated(f"{worker_id}: a policy stops it with {after['allocation']['lablets']} lablets on it")
        left = sum(
            1 for each in self.records.values() if each["status"] == "RUNNING" and each["desired_status"] == "RUNNING"
        )
        floor = self._settings.get("scaling", {}).get("min_workers", 0)
        if left < floor and not str(after.get("pause_reason")).startswith("schedule:"):
            self.violated(f"{worker_id}: a policy left {left} running, below {floor}")
        if after.get("pause_reason") == "maintenance":
            self._moves(before, after)

    def _moves(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """A worker is stopped to move to another host: for a reason on its record, at most twice, one at a time."""
        worker_id, region = after["id"], after["aws_region"]
        self.covered["a worker moves"] += 1
        impaired = any(each["type"] == "Impaired" and each["status"] == "True" for each in before["conditions"])
        if before.get("maintenance") is None and not impaired:
            self.violated(f"{worker_id}: stopped for maintenance though nothing was announced and it is not impaired")
        if len(before.get("maintenance_restarts", ())) >= MOST_RESTARTS:
            self.violated(f"{worker_id}: stopped for maintenance for the third time")
        if _is_held(after):
            self.violated(f"{worker_id}: stopped for maintenance while it is on hold")
        for other in self.records.values():
            same = other["id"] != worker_id and other["aws_region"] == region
            stopping = other["desired_status"] == "STOPPED" and other["status"] not in ("FAILED", "TERMINATED")
            if same and stopping and other.get("pause_reason") == "maintenance":
                self.violated(f"{worker_id}: stopped for maintenance while {other['id']} is")

    def _deadline(self, worker_id: str, rule: str) -> None:
        """Whatever the clocks show: nothing fails by a deadline that has not passed."""
        record = self.records.get(worker_id)
        if rule not in _DEADLINES or record is None or self._entered[worker_id] != self._now:
            return
        lasted = self._now - self._left[worker_id]
        if lasted < _DEADLINES[rule] - CLOCK_GRACE:
            self.violated(f"{worker_id}: {rule} after {lasted:.0f} s, not {_DEADLINES[rule]:.0f}")

    def _newer_kept(self, disk: MemoryDisk, worker: dict[str, Any]) -> None:
        """No version erases what a newer one has written."""
        if isinstance(disk, WatchedDisk) and worker["id"] in disk.newer:
            conditions = {condition["type"] for condition in worker["conditions"]}
            if not worker.get("added_by_newer") or "Frozen" not in conditions:
                self.violated(f"{worker['id']}: what a newer version wrote was erased")

    def _newer_fields_kept(self, disk: MemoryDisk, kind: Kind, record_id: str, body: dict[str, Any]) -> None:
        """No version erases the fields that a newer one has added to any other kind of record."""
        if isinstance(disk, WatchedDisk) and (kind.name, record_id) in disk.newer_bodies:
            self.covered["a record with fields of a newer version was written again"] += 1
            newer = disk.newer_bodies[kind.name, record_id]
            if kind is LEADERSHIPS and newer["term"] != body["term"]:
                return  # what was known of a term ends with it
            for field in erased(newer, body):
                self.violated(f"{kind.name} {record_id}: {field}, which a newer version wrote, was erased")

    def certificate_changes(self, instance_id: str) -> bool:
        """A server is reinstalled; returns whether its worker was ready, so that the new certificate needs a user."""
        pinned = any(record["instance_id"] == instance_id and record["ready"] for record in self.records.values())
        if pinned:
            self._untrusted.add(instance_id)
            self._reinstalled.add(instance_id)
        return pinned

    def signed_in(self, instance_id: str) -> None:
        """Credentials were sent to a server."""
        if instance_id in self._untrusted:
            self.violated(f"credentials were sent to {instance_id}, whose new certificate nobody trusts")

    def _certificates(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        instance = after["instance_id"]
        if after["cml_certificate_presented"] and instance not in self._reinstalled:
            self.violated(f"{after['id']}: its certificate is said to have changed, and has not")
        if before["cml_certificate"] != after["cml_certificate"] and before["cml_certificate_presented"]:
            self.covered["a new certificate is trusted"] += 1
            self._untrusted.discard(instance)

    def must_not_be_ready(self, instance_id: str) -> None:
        """A server has refused our account for minutes: its worker must not be ready, and say why."""
        for record in self.records.values():
            if record["instance_id"] == instance_id and record["ready"]:
                self.violated(f"{record['id']} is ready though its CML refuses our account")

    def _leadership(self, seen: dict[str, Any], entries: Sequence[tuple[str, dict[str, Any]]]) -> None:
        known = self._terms.get(seen["controller"], 0)
        if any(topic == AUDIT and entry["action"] == "leadership_reset" for topic, entry in entries):
            known = 0
        if seen["term"] < known:
            self.violated(f"the term of {seen['controller']} went from {known} to {seen['term']}")
        self._terms[seen["controller"]] = max(known, seen["term"])

    def _audited(self, entry: dict[str, Any]) -> None:
        action = entry["action"]
        self.covered[f"audit {action}"] += 1
        if action == "license_leaked":
            self.note(f"reported: a license of {self._name(entry['subject'])} is leaked: {entry['reason']}")
            self.leaked_licenses += 1
        elif action == "leaked_instance":
            self.leaks_told.add(entry["subject"])

    # Requests of leaders

    def arrived(self, term: str | None, controller: str | None) -> int | None:
        """A request of a leader arrives. Returns the newest known term, for the check at its end."""
        self.requests[int(self._now // 60)] += 1
        return self._terms.get(controller or "") if term else None

    def version_of(self, record_id: str) -> int | None:
        """The current version of a worker or lablet."""
        record = self.records.get(record_id) or self.lablets.records.get(record_id)
        return None if record is None else record["version"]

    def responded(self, path: str, term: str | None, known: int | None, status: int, *, outdated: bool) -> None:
        """The response was sent: no request of an older term or based on an older version may have been accepted."""
        if status >= 300:
            return
        if term is not None and known is not None and int(term) < known:
            self.violated(f"POST {path} of term {term} was accepted, though {known} was known when it arrived")
        if outdated:
            self.violated(f"POST {path} was accepted, though its writer had not seen what was on record")

    # Calls to EC2

    def called(self, operation: str, worker_id: str | None, instance_id: str, node: str, *, leads: bool) -> None:
        """A call has reached EC2, for an instance if there is already one."""
        minute = int(self._now // 60)
        self.calls[minute] += 1
        if operation not in CHANGING:
            return
        self.note(f"EC2 {operation} for {self._name(worker_id)} by {node}")
        self.changes[minute, worker_id or ""] += 1
        self._check_delay(worker_id or "")
        self.tries[worker_id or ""] += [self._now] * (operation in ("RunInstances", "StartInstances"))
        if not leads:
            self.violated(f"{operation} for {worker_id} by {node}, which does not lead")
        if self._held_since is not None and self._now - self._held_since > HELD_GRACE:
            self.violated(f"{operation} for {worker_id} {self._now - self._held_since:.1f} s after the fleet was held")
        since = self._worker_holds.get(worker_id or "")
        if since is not None and self._now - since > HELD_GRACE:
            self.violated(f"{operation} for {worker_id} {self._now - since:.1f} s after it was held")
        record = self.records.get(worker_id or "")
        if record is None:
            return
        if record["status"] == HIBERNATING and self._now - self._entered[record["id"]] > HELD_GRACE:
            self.violated(f"{operation} for {worker_id}, whose status only a newer version knows")
        for_license = operation == "StartInstances" and _deregisters_license_first(record)
        if operation in _FITTING and not for_license and not self._is_wanted(record, _FITTING[operation]):
            self.violated(f"{operation} for {worker_id}, whose desired status is {record['desired_status']}")
        if operation == "TerminateInstances" and record["desired_status"] != "TERMINATED":
            if record["instance_id"] == instance_id:
                self.violated(f"{operation} for {worker_id}, whose desired status is {record['desired_status']}")
            self.covered["terminated another instance of a live worker"] += 1

    def _check_delay(self, worker_id: str) -> None:
        asked, record = self._asked.pop(worker_id, None), self.records.get(worker_id)
        if asked is None or record is None or self.other_faults or self._is_sick(record):
            return
        self.covered["call beside a sick region"] += bool(self.sick_regions)
        self.covered["call beside sick CML servers"] += bool(self.sick_servers)
        if self._now - asked > MOST_DELAY:
            self.violated(f"{record['name']}: EC2 was called {self._now - asked:.1f} s after a user's request")

    def _check_ready(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """A worker becomes ready as soon as its CML is, although those of others take long to respond."""
        worker_id = after["id"]
        if after["status"] != "RUNNING" or self.other_faults or self._is_sick(after):
            self._runs_since.pop(worker_id, None)
        elif before["status"] != "RUNNING" and self.sick_servers:
            self._runs_since[worker_id] = self._now
        elif after["ready"] and (since := self._runs_since.pop(worker_id, None)) is not None:
            self.covered["ready beside sick CML servers"] += 1
            if self._now - since > BOOT + MOST_DELAY:
                self.violated(f"{after['name']} was ready only {self._now - since:.1f} s after it ran")

    def _placed(self, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        """A lablet gets a worker: no impaired one, nor one that EC2 will stop before the end of the lablet."""
        worker = self.records.get(after["worker_id"] or "")
        if before is None or before["worker_id"] == after["worker_id"] or worker is None:
            return
        if any(each["type"] == "Impaired" and each["status"] == "True" for each in worker["conditions"]):
            self.violated(f"lablet {after['name']} is placed on {worker['name']}, which is impaired")
        ends = after["time_to_live_minutes"] is not None or after["ends_at"] is not None
        if worker.get("maintenance") is not None and worker["maintenance"]["not_before"] is not None and not ends:
            self.violated(f"lablet {after['name']} has no end and is placed on {worker['name']}, which EC2 will stop")
        if len(self.sick_servers) == 1 and worker["ready"] and not self.other_faults and not self._is_sick(worker):
            self._placed_at[after["id"]] = self._now

    def lab_made(self, marker: str, alike: int, node: str) -> None:
        """A lab was created: soon after its lablet got its worker, although another CML server is slow."""
        self.lablets.lab_made(marker, alike, node)
        placed = self._placed_at.pop(marker.rsplit(".", 1)[0], None)
        if placed is None:
            return
        self.covered["lab beside a sick CML server"] += 1
        if self._now - placed > MOST_LAB_DELAY:
            self.violated(f"{marker}: its lab was created {self._now - placed:.1f} s after it got its worker")

    def _is_sick(self, record: dict[str, Any]) -> bool:
        """Whether the region of a worker never responds at the moment, or its CML takes long to."""
        return record["aws_region"] in self.sick_regions or record["instance_id"] in self.sick_servers

    def landed(self, operation: str, node: str, *, leads: bool) -> None:
        """A delayed call has reached EC2."""
        self.covered["slow call"] += 1
        if not leads:
            self.violated(f"{operation} by {node} lands when it does not lead any more")

    def _is_wanted(self, record: dict[str, Any], wish: str) -> bool:
        """Whether this is the desired status, or was until a moment ago."""
        until = self._wanted_until.get((record["id"], wish), float("-inf"))
        return record["desired_status"] == wish or self._now - until <= HELD_GRACE

    def launched(self, ec2: Ec2, worker_id: str) -> None:
        """LCM launched an instance: it must be the only one of its worker that LCM launched."""
        live = [each for each in live_instances(ec2).get(worker_id, []) if each not in self.launched_outside]
        if len(live) > 1:
            self.violated(f"{worker_id} has {len(live)} live instances: {', '.join(sorted(live))}")

    def _name(self, worker_id: str | None) -> str:
        record = self.records.get(worker_id or "")
        return record["name"] if record else (worker_id or "unknown")


def _deregisters_license_first(record: dict[str, Any]) -> bool:
    """Whether a worker that is to end is started for its license, which is recorded before the call."""
    ends = record["desired_status"] == "TERMINATED" and record["status"] == "TERMINATING"
    return bool(ends and record["release_license"] and record["license_release_started_at"])


def _is_held(record: dict[str, Any]) -> bool:
    """Whether its hold was in force when it was written; the record keeps one that is over until it is next changed."""
    worker = Worker.model_validate(record)
    return worker.hold is not None and worker.hold.active(worker.updated_at)


def _is_live(record: dict[str, Any], region: str) -> bool:
    return bool(record["aws_region"] == region and record["status"] != "TERMINATED")


def _gives_up_instance(before: dict[str, Any], after: dict[str, Any]) -> bool:
    ended = after["status"] == "TERMINATED" and before["status"] != "TERMINATED"
    return ended or bool(after["instance_id"] != before["instance_id"])


class WatchedDisk(MemoryDisk):
    """A disk whose commits are checked."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self.newer: set[str] = set()  # workers that a newer version has written
        self.newer_bodies: dict[tuple[str, str], dict[str, Any]] = {}  # likewise of other kinds, as it wrote them

    def commit(self, commit: Commit) -> Sequence[str]:
        cursors = super().commit(commit)
        try:
            self._ledger.committed(commit, self)
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:  # it would look like a 500 of the control plane
            self._ledger.violated(f"a commit could not be checked: {error!r}")
        return cursors

    def write_as_newer(self, worker_id: str, status: str | None = None) -> bool:
        """Write a worker as a control plane of the next version would: with fields and words that ours do not know."""
        stored = self.get(WORKERS, worker_id)
        assert stored is not None
        body = json.loads(stored.body)
        if body["status"] == "TERMINATED":
            return False
        frozen = {"type": "Frozen", "status": "Melting", "since": body["created_at"], "depth": 3}
        others = [condition for condition in body["conditions"] if condition["type"] != "Frozen"]
        body |= {"added_by_newer": {"gpus": 2}, "conditions": [*others, frozen], "version": body["version"] + 1}
        after = status or body["status"]
        # Our model is not asked about the new word: the newer version knows it.
        worker = Worker.model_validate({**body, "status": body["status"] if after == HIBERNATING else after})
        body["status"] = after
        fields = {**worker_fields(worker), "status": after, "ready": worker.ready and after != HIBERNATING}
        written = json.dumps(body).encode()
        put = Put(WORKERS, worker_id, written, stored.revision, fields, worker_unique_keys(worker))
        self.newer.add(worker_id)
        self.commit(Commit((put,), (NewJournalEntry(WORKER_CHANGED, worker_id, written, worker.updated_at),), ()))
        return True

    def add_newer_fields(self) -> int:
        """Add fields to all records but workers, as a control plane of the next version would; returns how many."""
        written = 0
        for kind in CHANGED_BY_BOTH:
            for record_id, stored in sorted(self._documents.get(kind.name, {}).items()):
                body = with_newer_fields(json.loads(stored.body))
                self.newer_bodies[kind.name, record_id] = body
                put = Put(kind, record_id, json.dumps(body).encode(), stored.revision, stored.fields, stored.unique)
                super().commit(Commit((put,), (), ()))
                written += 1
        return written


def live_instances(ec2: Ec2) -> dict[str, list[str]]:
    """Instances that are not terminating, by the worker they were launched for."""
    now = ec2.time()
    found: dict[str, list[str]] = {}
    for region in ec2.regions.values():
        for machine in region.machines.values():
            region.settle(machine, now)
            worker_id = machine.tags.get(WORKER_TAG)
            if worker_id is not None and machine.state in _LIVE:
                found.setdefault(worker_id, []).append(machine.id)
    return found
