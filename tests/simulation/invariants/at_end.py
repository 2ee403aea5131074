"""Invariants after the last fault: everything is in its desired state, and all records agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.cloud.types import InstanceState
from lcm.core import clock
from lcm.model.calendar.schedule import due_change
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.simulation.invariants.during import live_instances

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lcm.cloud.simulated.machine import Machine
    from lcm.model.calendar.schedule import Schedule
    from tests.simulation.invariants.during import Ledger
    from tests.simulation.world.platform import Platform

MOST_REQUESTS_A_MINUTE = 900
MOST_REQUESTS_OF_A_LABLET = 10  # more in the minute in which a class begins or ends
MOST_CALLS_A_MINUTE = 240
MOST_CHANGES_A_MINUTE = 20
MOST_SETBACKS_AN_HOUR = 6

_FITTING = {
    "RUNNING": ("RUNNING", "TERMINATED"),
    "STOPPED": ("STOPPED", "TERMINATED"),
    "TERMINATED": ("TERMINATED",),
}


def complaints(platform: Platform, ledger: Ledger, schedules: Sequence[Schedule], *, leaks_end: bool) -> list[str]:
    """The violations; `leaks_end`: whether leaked instances are to be terminated."""
    machines = [machine for region in platform.ec2.regions.values() for machine in region.live(platform.ec2.time())]
    running = {machine.id for machine in machines if machine.state is InstanceState.RUNNING}
    found = [said for record in ledger.records.values() for said in _not_converged(record)]
    found += _stray_instances(platform, ledger, leaks_end=leaks_end)
    found += _unreported_maintenance(ledger, machines)
    found += _against_schedules(platform, ledger, schedules)
    found += _licenses(platform, ledger, {machine.id for machine in machines})
    found += ledger.lablets.complaints(ledger.records, platform.cml.labs.labs_of, running)
    found += ledger.classes.complaints()
    for worker_id, version, desired in ledger.confirmed:
        if version not in ledger.versions[worker_id]:
            found.append(f"{worker_id}: version {version} ({desired}) was acknowledged and is lost")
    return found + list(_hot_loops(ledger))


def _not_converged(record: dict[str, Any]) -> Iterator[str]:
    status, desired, name = record["status"], record["desired_status"], record["name"]
    conditions = {each["type"]: each["status"] for each in record["conditions"]}
    if status == "FAILED":
        if desired == "TERMINATED":
            yield f"{name} is FAILED with the desired status TERMINATED"
        return
    if conditions.get("Stuck") == "True":
        return
    if record.get("pause_reason") == "maintenance":
        yield f"{name} is {status}, stopped for maintenance and not started again, long after the last fault"
    never = status == "PENDING" and desired == "STOPPED"
    if status not in _FITTING[desired] and not never:
        yield f"{name} is {status} with the desired status {desired}, long after the last fault"
    elif status == "RUNNING" and not record["ready"]:
        yield f"{name} runs and is not ready, long after the last fault: {conditions}"


def _unreported_maintenance(ledger: Ledger, machines: list[Machine]) -> Iterator[str]:
    """What EC2 has announced for an instance that runs is on the record of its worker, and nothing else is."""
    coming = {each.id: each.next_event_at is not None for each in machines if each.state is InstanceState.RUNNING}
    for record in ledger.records.values():
        announced = coming.get(record["instance_id"])
        if record["status"] != "RUNNING" or announced is None:
            continue
        if announced and record["maintenance"] is None:
            yield f"{record['name']}: EC2 has announced maintenance, and the record does not say so"
        elif not announced and record["maintenance"] is not None:
            yield f"{record['name']}: its record shows maintenance that EC2 does not announce"


def _against_schedules(platform: Platform, ledger: Ledger, schedules: Sequence[Schedule]) -> Iterator[str]:
    """Outside its windows a worker that nobody uses is stopped; a window starts those that its schedule stopped."""
    for record in ledger.records.values():
        worker = Worker.model_validate(record)
        claim = due_change(worker, schedules, clock.now())
        if claim is None or worker.status not in (WorkerStatus.RUNNING, WorkerStatus.STOPPED):
            continue
        server = platform.cml.by_machine.get(worker.instance_id or "")
        used = worker.allocation.lablets or (server is not None and server.stats.running_nodes != 0)
        if claim.desired is DesiredStatus.RUNNING or not used:
            yield f"{worker.name} is {worker.status}, desired {worker.desired_status}, although {claim.reason}"


def _stray_instances(platform: Platform, ledger: Ledger, *, leaks_end: bool) -> Iterator[str]:
    owned = {record["instance_id"] for record in ledger.records.values() if record["status"] != "TERMINATED"}
    for worker_id, instances in live_instances(platform.ec2).items():
        for instance_id in instances:
            if instance_id in owned:
                continue
            if instance_id not in ledger.leaks_told:
                yield f"{instance_id} of {worker_id} is running, belongs to no worker and was never reported as leaked"
            elif leaks_end and _is_in_excess(ledger.records.get(worker_id)):
                yield f"{instance_id} of {worker_id} was reported as leaked, is to be terminated and still exists"


def _is_in_excess(record: dict[str, Any] | None) -> bool:
    """Whether an unrecorded instance of this worker is acceptable: the worker has another one, or was to end."""
    if record is None:
        return False
    if record["status"] == "TERMINATED":
        return bool(record["desired_status"] == "TERMINATED")
    return record["instance_id"] is not None


def _licenses(platform: Platform, ledger: Ledger, there: set[str]) -> Iterator[str]:
    cml = platform.cml
    held = sum(
        machine_id in there and server.license.registration == "COMPLETED"
        for machine_id, server in cml.by_machine.items()
    )
    taken, forgotten, leaked = cml.registered_total, cml.forgotten_total, ledger.leaked_licenses
    # A license whose deregistration got no response may be reported as leaked: it is not confirmed. So may one that CML
    # dropped without deregistering, and one that was requested if the instance ended before its state was read.
    in_doubt = sum(
        cml.by_machine[machine_id].license.registration != "COMPLETED"
        for machine_id in ledger.leaked_in_doubt - there
        if machine_id in cml.by_machine
    )
    more = cml.given_back_total + held + leaked + forgotten - taken
    if not 0 <= more <= cml.unconfirmed_total + forgotten + in_doubt:
        yield (
            f"licenses: {taken} taken, {cml.given_back_total} deregistered, {held} held, {leaked} reported as leaked,"
            f" {forgotten} forgotten by CML"
        )


def _hot_loops(ledger: Ledger) -> Iterator[str]:
    requests = MOST_REQUESTS_A_MINUTE + MOST_REQUESTS_OF_A_LABLET * len(ledger.lablets.records)
    for what, worst, most in (
        ("requests", max(ledger.requests.values(), default=0), requests),
        ("calls of EC2", max(ledger.calls.values(), default=0), MOST_CALLS_A_MINUTE),
        ("changes of one worker", max(ledger.changes.values(), default=0), MOST_CHANGES_A_MINUTE),
    ):
        if worst > most:
            yield f"{worst} {what} within a minute"
    if ledger.most_setbacks > MOST_SETBACKS_AN_HOUR:
        yield f"{ledger.most_setbacks} times within an hour a worker that was STARTING became STOPPED again"
