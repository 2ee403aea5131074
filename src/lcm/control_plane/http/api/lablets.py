"""Routes for lablets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import WithJsonSchema

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.deps import (
    Admin,
    IdempotencyKeyDep,
    IfMatchDep,
    Instructor,
    InstructorWriter,
    Member,
    MemberWriter,
)
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import (
    Cursor,
    LabletHistoryPage,
    LabletPage,
    Limit,
    raw_journal_page,
    raw_page,
    versioned_response,
)
from lcm.control_plane.http.query_params import (
    REPEATABLE,
    LabletIdPath,
    LabletStatuses,
    WorkerIds,
    list_filter,
    parse_lablet_statuses,
    parse_sort,
)
from lcm.control_plane.lablets import preview
from lcm.control_plane.lablets.change_previews import preview_lablet_action
from lcm.control_plane.records.search_text import search_condition
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import FieldValue, Where
from lcm.control_plane.teams.visibility import shown_lablet
from lcm.model.base import SingleLineText
from lcm.model.change_preview import ChangePreview
from lcm.model.lablet.access import LabletAccess
from lcm.model.lablet.placement import LabletPreview
from lcm.model.lablet.record import AssignLabletRequest, CreateLabletRequest, Lablet
from lcm.model.lablet.requests import ExtendLabletRequest, PreviewLabletRequest
from lcm.model.problems import ProblemCode
from lcm.model.worker.requests import CommandRequest

router = APIRouter(prefix="/api/lablets", tags=["lablets"], responses=error_responses(401, 403, 422, 429))

SEARCH_HELP = "Words that all occur in the name, id, owner, definition, worker id, instance id, region or addresses."
SORT_FIELDS = ("name", "status", "owner", "definition", "created_at", "updated_at")
SortBy = Annotated[
    str | None,
    Query(description="The field to sort by; a leading - means descending order."),
    WithJsonSchema({"type": "string", "enum": [f"{sign}{name}" for name in SORT_FIELDS for sign in ("", "-")]}),
]


def _definition_filter(definitions: list[str]) -> dict[str, list[FieldValue]]:
    """The filter for definition names or for versions."""
    versions = [each for each in definitions if "@" in each]
    if versions and len(versions) < len(definitions):
        raise ProblemError(ProblemCode.INVALID, "definition: use either names or versions (name@version), not both")
    return {"definition" if versions else "definition_name": list(definitions)}


@router.get("", response_model=LabletPage)
async def list_lablets(
    request: Request,
    caller: Member,
    status: LabletStatuses = None,
    exclude_statuses: LabletStatuses = None,
    owner: Annotated[list[str] | None, Query(description=f"Names of owners. {REPEATABLE}")] = None,
    team: Annotated[list[str] | None, Query(description=f"Ids of teams. {REPEATABLE}")] = None,
    worker: WorkerIds = None,
    definition: Annotated[
        list[str] | None, Query(description=f"Definitions, as name or name@version. {REPEATABLE}")
    ] = None,
    q: Annotated[SingleLineText | None, Query(max_length=100, description=SEARCH_HELP)] = None,
    sort: SortBy = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List lablets."""
    any_of: dict[str, list[FieldValue]] = {
        "status": list(parse_lablet_statuses("status", status)),
        "owner": list(list_filter("owner", owner)),
        "team": list(list_filter("team", team)),
        "worker_id": list(list_filter("worker", worker)),
        **_definition_filter(list_filter("definition", definition)),
    }
    where = Where(
        any_of={name: values for name, values in any_of.items() if values},
        none_of={"status": excluded}
        if (excluded := parse_lablet_statuses("exclude_statuses", exclude_statuses))
        else {},
        contains_all=search_condition(q or ""),
    )
    page = await get_services(request).lablets.page(caller, where, parse_sort(sort, SORT_FIELDS), cursor, limit)
    return raw_page(page)


@router.post("", status_code=201, response_model=Lablet, responses=error_responses(404, 409))
async def create_lablet(
    request: Request, caller: InstructorWriter, body: CreateLabletRequest, key: IdempotencyKeyDep
) -> Response:
    """Create a lablet. It is placed as soon as a worker has enough free capacity."""
    return versioned_response(
        shown_lablet(caller.scope, await get_services(request).lablets.create(caller, body, key)), 201
    )


@router.post("/preview", responses=error_responses(404, 409))
async def preview_lablet(request: Request, caller: Instructor, body: CreateLabletRequest) -> LabletPreview:
    """Preview a placement: matching workers, rejected workers with reasons, and the instance that would be launched."""
    return await preview.preview_lablet(get_services(request).context, get_services(request).directory, caller, body)


@router.post("/{lablet_id}/preview", responses=error_responses(404))
async def preview_lablet_change(
    request: Request, caller: Member, lablet_id: LabletIdPath, body: PreviewLabletRequest | None = None
) -> ChangePreview:
    """Preview an action on a lablet (without a body, its termination): what it does and loses. Nothing is changed."""
    services = get_services(request)
    lablet = Lablet.model_validate_json((await services.lablets.get(caller, lablet_id)).body)
    return await preview_lablet_action(services.context, lablet, body or PreviewLabletRequest())


@router.get("/{lablet_id}", response_model=Lablet, responses=error_responses(404))
async def get_lablet(request: Request, caller: Member, lablet_id: LabletIdPath) -> Response:
    """Get one lablet."""
    return versioned_response((await get_services(request).lablets.get(caller, lablet_id)).body)


@router.delete("/{lablet_id}", status_code=202, response_model=Lablet, responses=error_responses(404, 409, 412))
async def delete_lablet(
    request: Request, caller: MemberWriter, lablet_id: LabletIdPath, if_match: IfMatchDep, key: IdempotencyKeyDep
) -> Response:
    """Request termination of a lablet. Its record is kept."""
    record = await get_services(request).lablets.terminate(caller, lablet_id, if_match=if_match, key=key)
    return versioned_response(shown_lablet(caller.scope, record), 202)


@router.post("/{lablet_id}/terminate", status_code=202, response_model=Lablet, responses=error_responses(404, 409, 412))
async def terminate_lablet(
    request: Request,
    caller: MemberWriter,
    lablet_id: LabletIdPath,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    body: CommandRequest | None = None,
) -> Response:
    """Request termination of a lablet: its lab is stopped, wiped and deleted."""
    reason = None if body is None else body.reason
    record = await get_services(request).lablets.terminate(caller, lablet_id, reason=reason, if_match=if_match, key=key)
    return versioned_response(shown_lablet(caller.scope, record), 202)


@router.post("/{lablet_id}/assign", response_model=Lablet, responses=error_responses(404, 409))
async def assign_lablet(
    request: Request, caller: Admin, lablet_id: LabletIdPath, body: AssignLabletRequest
) -> Response:
    """Assign a lablet to a team, and to a person in it. Its lab goes on."""
    return versioned_response(await get_services(request).lablets.assign(caller, lablet_id, body))


@router.post("/{lablet_id}/extend", response_model=Lablet, responses=error_responses(404, 409, 412))
async def extend_lablet(
    request: Request,
    caller: MemberWriter,
    lablet_id: LabletIdPath,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    body: ExtendLabletRequest,
) -> Response:
    """Move the end of a lablet to a later time, by some minutes or to a time, up to the maximum lifetime."""
    record = await get_services(request).lablets.extend(caller, lablet_id, body, if_match=if_match, key=key)
    return versioned_response(shown_lablet(caller.scope, record))


@router.post("/{lablet_id}/reset", status_code=202, response_model=Lablet, responses=error_responses(404, 409, 412))
async def reset_lablet(
    request: Request,
    caller: MemberWriter,
    lablet_id: LabletIdPath,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    body: CommandRequest | None = None,
) -> Response:
    """Request a new lab in place of the lablet's: its worker, ports and end stay, and all work in it is lost.

    A FAILED seat is made anew on a worker of its class, while that is under way.
    """
    reason = None if body is None else body.reason
    record = await get_services(request).lablets.reset(caller, lablet_id, reason=reason, if_match=if_match, key=key)
    return versioned_response(shown_lablet(caller.scope, record), 202)


@router.get("/{lablet_id}/access", responses=error_responses(404))
async def lablet_access(request: Request, caller: Member, lablet_id: LabletIdPath) -> LabletAccess:
    """Get how to reach the lablet: host, forwarded ports of each node with commands, and CML's page of the lab."""
    return await get_services(request).lablets.access(caller, lablet_id)


@router.get("/{lablet_id}/history", response_model=LabletHistoryPage, responses=error_responses(404))
async def lablet_history(
    request: Request, caller: Member, lablet_id: LabletIdPath, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """List the lablet's status changes, oldest first."""
    return raw_journal_page(await get_services(request).lablets.history(caller, lablet_id, cursor, limit), limit)
