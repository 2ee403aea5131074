"""What the end of a lablet means, told before anybody confirms it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.fleet.service import read_fleet_state
from lcm.control_plane.lablets.lifecycle import NOT_ON_CML_STATUSES
from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.web.auth import OperatorUser, form_field, form_version, read_form
from lcm.control_plane.web.bulk_actions import apply_to_each, render_bulk_confirmation, selected_ids
from lcm.control_plane.web.lablets.detail_page import read_lablet
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.control_plane.web.workers.action_preview import ActionPreview
from lcm.core import clock
from lcm.model.formatting import humanize_duration
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.model.worker.record import Hold


END_ACTION: Final = "end"
_MAX_OWNERS_NAMED = 5


def preview_termination(lablet: Lablet, worker_name: str, hold: Hold | None, now: datetime) -> ActionPreview:
    """What ending it would do now. `hold`: what keeps its worker's labs as they are."""
    if lablet.status in FINAL_LABLET_STATUSES:
        return ActionPreview(END_ACTION, changes=False, happens=f"It has ended: it is {lablet.status}.")
    if not lablet.wanted:
        happens = "It is so already: it is to end, and its lab is being removed."
        return ActionPreview(END_ACTION, changes=False, happens=happens)
    if lablet.status is LabletStatus.PENDING_SCHEDULING:
        return ActionPreview(
            END_ACTION,
            happens="No more worker is looked for, and it is TERMINATED at once.",
            losses=(("Its lab", "none yet"),),
        )
    place = worker_name or "its worker"
    if lablet.status is LabletStatus.SCHEDULED:
        return ActionPreview(
            END_ACTION,
            happens=f"What is reserved for it on {place} is given back, and it is TERMINATED at once.",
            losses=(("Its lab", "none yet"),),
        )
    held = f"{hold.by} holds {place} or the fleet: only after the release " if hold is not None else ""
    removed = f"its lab on {place} is stopped, wiped and deleted; then what is reserved for it there is given back."
    happens = f"{held}{removed}" if held else removed[0].upper() + removed[1:]
    return ActionPreview(END_ACTION, happens=happens, losses=_lost(lablet, place, now))


def bulk_loss_text(lablets: Sequence[Lablet]) -> str:
    """What the end of several takes from their owners; nothing where no lab was made yet."""
    made = [each for each in lablets if each.status not in NOT_ON_CML_STATUSES]
    nodes = sum(each.requirements.nodes for each in made)
    owners = sorted({each.owner for each in made})
    named = ", ".join(owners[:_MAX_OWNERS_NAMED]) + (
        f" and {len(owners) - _MAX_OWNERS_NAMED} more" if owners[_MAX_OWNERS_NAMED:] else ""
    )
    labs = "1 lab" if len(made) == 1 else f"{len(made)} labs"
    return f"{labs} with {nodes} node{'' if nodes == 1 else 's'}, and all that {named} did in them." if made else ""


def _lost(lablet: Lablet, place: str, now: datetime) -> tuple[tuple[str, str], ...]:
    nodes = f"{lablet.requirements.nodes} node{'' if lablet.requirements.nodes == 1 else 's'}"
    facts = [("Its lab", f"{nodes} on {place}, with all that {lablet.owner} did in them")]
    if lablet.running_since is not None:
        facts.append(("In use for", humanize_duration(now - lablet.running_since)))
    addresses = [address for each in lablet.endpoints for address in each.addresses]
    if addresses:
        facts.append(("Addresses", ", ".join(addresses[:10]) + (" and more" if len(addresses) > 10 else "")))
    if lablet.ports:
        facts.append(("Ports", ", ".join(str(port) for port in sorted(lablet.ports.values()))))
    return tuple(facts)


router = APIRouter(include_in_schema=False)


@router.get("/lablets/confirm-end")
async def confirm_bulk_termination(request: Request, who: OperatorUser) -> HTMLResponse:
    """What would become of those that somebody chose."""
    ids = selected_ids(request, "lablet")
    stored = await get_services(request).plane.store.get_many(LABLETS, ids)
    lablets = [Lablet.model_validate_json(stored[each].body) for each in ids if each in stored]
    foreseen = await _preview_each(get_services(request), lablets)
    lost = bulk_loss_text([lablet for lablet, found in foreseen if found.changes])
    return render_bulk_confirmation(foreseen, place="/lablets/end", name="End", noun="lablet", lost=lost)


@router.post("/lablets/end")
async def terminate_selected(request: Request, who: OperatorUser) -> HTMLResponse:
    """End each."""
    form = await read_form(request)

    async def change(lablet_id: str, version: int | None) -> None:
        await _terminate(get_services(request), who.caller, lablet_id, form, version)

    return await apply_to_each(form, "to end", change)


@router.get("/lablets/{lablet_id}/confirm-end")
async def confirm_termination(request: Request, who: OperatorUser, lablet_id: str) -> HTMLResponse:
    """What would be lost with it."""
    ((lablet, found),) = await _preview_each(
        get_services(request), [await read_lablet(get_services(request), lablet_id)]
    )
    return render_fragment(
        "shared/_confirm.html", place=f"/lablets/{lablet.id}/end", record=lablet, found=found, name="End"
    )


@router.post("/lablets/{lablet_id}/end")
async def terminate_lablet(request: Request, who: OperatorUser, lablet_id: str) -> HTMLResponse:
    """End it, unless it changed since it was looked at."""
    form = await read_form(request)
    lablet = await _terminate(get_services(request), who.caller, lablet_id, form, form_version(form))
    return render_toast(
        f"{lablet.name}: {'has ended' if lablet.status in FINAL_LABLET_STATUSES else 'is to end'}", triggers=DONE_EVENT
    )


async def _terminate(
    all_parts: Services, caller: Caller, lablet_id: str, form: dict[str, list[str]], version: int | None
) -> Lablet:
    await read_lablet(all_parts, lablet_id)
    reason = form_field(form, "reason")[:500] or None
    body = await all_parts.lablets.terminate(caller, lablet_id, reason=reason, if_match=version)
    return Lablet.model_validate_json(body)


async def _preview_each(all_parts: Services, lablets: Sequence[Lablet]) -> list[tuple[Lablet, ActionPreview]]:
    """What ending each would do now. A hold of the fleet, or of its worker, keeps a lab as it is."""
    store, now = all_parts.plane.store, clock.now()
    fleet = (await read_fleet_state(store)).hold
    ids = sorted({each.worker_id for each in lablets if each.worker_id is not None})
    workers = {
        each: Worker.model_validate_json(stored.body) for each, stored in (await store.get_many(WORKERS, ids)).items()
    }
    foreseen = []
    for lablet in lablets:
        worker = workers.get(lablet.worker_id or "")
        holds = (fleet, None if worker is None else worker.hold)
        hold = next((each for each in holds if each is not None and each.active(now)), None)
        foreseen.append((lablet, preview_termination(lablet, worker.name if worker else "", hold, now)))
    return foreseen
