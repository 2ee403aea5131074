"""A preview of what ending a lablet would do: for the dialogs of the dashboard, and for dry runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.records.readable import readable_records
from lcm.core import clock
from lcm.model.booking.failed_seats import can_be_made_anew
from lcm.model.change_preview import ChangePreview
from lcm.model.formatting import humanize_duration
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Store
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Hold

END_ACTION: Final = "end"


async def preview_terminations(store: Store, lablets: Sequence[Lablet]) -> list[tuple[Lablet, ChangePreview]]:
    """What ending each lablet would do now. A hold of the fleet or of its worker delays the removal of a lab."""
    now = clock.now()
    holders = await _holders(store, lablets, now)
    return [
        (lablet, preview_termination(lablet, worker_name, hold, now))
        for lablet, (worker_name, hold) in zip(lablets, holders, strict=True)
    ]


async def holder_of(store: Store, lablet: Lablet) -> tuple[str, Hold | None]:
    """The name of its worker, and the hold of that or of the fleet that delays what is done to its lab."""
    (found,) = await _holders(store, [lablet], clock.now())
    return found


async def _holders(store: Store, lablets: Sequence[Lablet], now: datetime) -> list[tuple[str, Hold | None]]:
    fleet_hold = (await read_fleet_state(store)).hold
    ids = sorted({each.worker_id for each in lablets if each.worker_id is not None})
    stored = (await store.get_many(WORKERS, ids)).values()
    workers = {each.id: each for each in readable_records(stored, Worker, "worker")}
    found = []
    for lablet in lablets:
        worker = workers.get(lablet.worker_id or "")
        holds = (fleet_hold, None if worker is None else worker.hold)
        hold = next((each for each in holds if each is not None and each.active(now)), None)
        found.append((worker.name if worker else "", hold))
    return found


def preview_termination(lablet: Lablet, worker_name: str, hold: Hold | None, now: datetime) -> ChangePreview:
    """What ending the lablet would do now. `hold` is the hold of its worker or of the fleet."""
    if can_be_made_anew(lablet):
        return ChangePreview(
            action=END_ACTION, effect="It has failed. After this it will not be made anew for its class."
        )
    if lablet.status in FINAL_LABLET_STATUSES:
        return ChangePreview(action=END_ACTION, changes=False, effect=f"It has already ended: {lablet.status}.")
    if not lablet.wanted:
        effect = "No change needed: it is already ending, and its lab is being removed."
        return ChangePreview(action=END_ACTION, changes=False, effect=effect)
    if lablet.status is LabletStatus.PENDING_SCHEDULING:
        return ChangePreview(
            action=END_ACTION,
            effect="It will be TERMINATED immediately, without a placement.",
            losses={"Lab": "none yet"},
        )
    worker_text = worker_name or "its worker"
    if lablet.status is LabletStatus.SCHEDULED:
        return ChangePreview(
            action=END_ACTION,
            effect=f"Its reserved capacity on {worker_text} will be released, and it will be TERMINATED immediately.",
            losses={"Lab": "none yet"},
        )
    effect = (
        f"the lab on {worker_text} will be stopped, wiped and deleted; then its reserved capacity will be released."
    )
    if hold is not None:
        effect = f"{hold.by} put {worker_text} or the fleet on hold. After the release, {effect}"
    else:
        effect = effect[0].upper() + effect[1:]
    return ChangePreview(action=END_ACTION, effect=effect, losses=lost_work(lablet, worker_text, now))


def lost_work(lablet: Lablet, worker_text: str, now: datetime) -> dict[str, str]:
    """What is lost with its lab."""
    nodes = f"{lablet.requirements.nodes} node{'' if lablet.requirements.nodes == 1 else 's'}"
    losses = {"Lab": f"{nodes} on {worker_text}, with all work of {lablet.owner_name} in them"}
    if lablet.running_since is not None:
        losses["In use for"] = humanize_duration(now - lablet.running_since)
    addresses = [address for each in lablet.endpoints for address in each.addresses]
    if addresses:
        losses["Addresses"] = ", ".join(addresses[:10]) + (" and more" if len(addresses) > 10 else "")
    if lablet.ports:
        losses["Ports"] = ", ".join(str(port) for port in sorted(lablet.ports.values()))
    return losses
