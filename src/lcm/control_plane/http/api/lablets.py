"""Lablets, for people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import WithJsonSchema

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.workers import Cursor, Limit, list_filter, parse_sort, versioned_response
from lcm.control_plane.http.deps import IdempotencyKeyDep, IfMatchDep, Operator, Viewer
from lcm.control_plane.http.pagination import LabletHistoryPage, LabletPage, error_responses, raw_journal_page, raw_page
from lcm.control_plane.lablets import preview
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import FieldValue, Where
from lcm.model.base import SingleLineText
from lcm.model.lablet.preview import LabletPreview
from lcm.model.lablet.record import CreateLabletRequest, Lablet
from lcm.model.lablet.status import LabletStatus
from lcm.model.problems import ProblemCode
from lcm.model.worker.requests import CommandRequest

router = APIRouter(prefix="/api/lablets", tags=["lablets"], responses=error_responses(401, 403, 422, 429))

SORT_FIELDS = ("name", "status", "owner", "definition", "created_at", "updated_at")
LabletIdPath = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The lablet's id, not its name")]
LabletStatuses = Annotated[
    list[str] | None,
    Query(description="Repeated, or with commas; in any case"),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(LabletStatus)}}),
]
WorkerIds = Annotated[list[str] | None, Query(description="Ids of workers; repeated, or with commas")]
SortBy = Annotated[
    str | None,
    Query(description="With - before it the other way round"),
    WithJsonSchema({"type": "string", "enum": [f"{sign}{name}" for name in SORT_FIELDS for sign in ("", "-")]}),
]


def parse_lablet_statuses(field: str, values: list[str] | None) -> list[str]:
    """Statuses of a filter, in any case."""
    try:
        return [LabletStatus(part).value for value in values or [] for part in value.split(",")]
    except ValueError as error:
        allowed = ", ".join(LabletStatus)
        raise ProblemError(ProblemCode.INVALID, f"{field}: {error}; there are {allowed}") from None


def _definition_filter(definitions: list[str]) -> dict[str, list[FieldValue]]:
    """The filter for names of definitions, or for versions."""
    versions = [asked for asked in definitions if "@" in asked]
    if versions and len(versions) < len(definitions):
        raise ProblemError(ProblemCode.INVALID, "definition: give either names or versions (name@version), not both")
    return {"definition" if versions else "definition_name": list(definitions)}


@router.get("", response_model=LabletPage)
async def list_lablets(
    request: Request,
    caller: Viewer,
    status: LabletStatuses = None,
    exclude_statuses: LabletStatuses = None,
    owner: Annotated[list[str] | None, Query(description="Whose; repeated, or with commas")] = None,
    worker: WorkerIds = None,
    definition: Annotated[
        list[str] | None, Query(description="Names, or versions as name@version; repeated, or with commas")
    ] = None,
    q: Annotated[SingleLineText | None, Query(max_length=100, description="Part of the name")] = None,
    sort: SortBy = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Lablets, filtered and page by page."""
    any_of: dict[str, list[FieldValue]] = {
        "status": list(parse_lablet_statuses("status", status)),
        "owner": list(list_filter("owner", owner)),
        "worker_id": list(list_filter("worker", worker)),
        **_definition_filter(list_filter("definition", definition)),
    }
    where = Where(
        any_of={name: values for name, values in any_of.items() if values},
        none_of={"status": excluded}
        if (excluded := parse_lablet_statuses("exclude_statuses", exclude_statuses))
        else {},
        contains={"name": q} if q else {},
    )
    return raw_page(await get_services(request).lablets.page(where, parse_sort(sort, SORT_FIELDS), cursor, limit))


@router.post("", status_code=201, response_model=Lablet, responses=error_responses(404, 409))
async def create_lablet(
    request: Request, caller: Operator, body: CreateLabletRequest, key: IdempotencyKeyDep
) -> Response:
    """A new lablet; it is placed as soon as a worker fits."""
    return versioned_response(await get_services(request).lablets.create(caller, body, key), 201)


@router.post("/preview", responses=error_responses(404, 409))
async def preview_lablet(request: Request, caller: Viewer, body: CreateLabletRequest) -> LabletPreview:
    """A dry run: who could take it, who could not and why, what would be launched and what that costs."""
    return await preview.preview_lablet(get_services(request).plane, body)


@router.get("/{lablet_id}", response_model=Lablet, responses=error_responses(404))
async def get_lablet(request: Request, caller: Viewer, lablet_id: LabletIdPath) -> Response:
    """One lablet."""
    return versioned_response((await get_services(request).lablets.get(lablet_id)).body)


@router.delete("/{lablet_id}", status_code=202, response_model=Lablet, responses=error_responses(404, 409, 412))
async def delete_lablet(
    request: Request, caller: Operator, lablet_id: LabletIdPath, if_match: IfMatchDep, key: IdempotencyKeyDep
) -> Response:
    """Want it ended. The record stays."""
    answer = await get_services(request).lablets.terminate(caller, lablet_id, if_match=if_match, key=key)
    return versioned_response(answer, 202)


@router.post("/{lablet_id}/terminate", status_code=202, response_model=Lablet, responses=error_responses(404, 409, 412))
async def terminate_lablet(
    request: Request,
    caller: Operator,
    lablet_id: LabletIdPath,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    body: CommandRequest | None = None,
) -> Response:
    """Want it ended: its lab is stopped, wiped and deleted."""
    reason = None if body is None else body.reason
    answer = await get_services(request).lablets.terminate(caller, lablet_id, reason=reason, if_match=if_match, key=key)
    return versioned_response(answer, 202)


@router.get("/{lablet_id}/history", response_model=LabletHistoryPage, responses=error_responses(404))
async def lablet_history(
    request: Request, caller: Viewer, lablet_id: LabletIdPath, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Its steps so far, oldest first."""
    return raw_journal_page(await get_services(request).lablets.history(lablet_id, cursor, limit), limit)
