"""Workers, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import WithJsonSchema
from pydantic_core import from_json

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.deps import IdempotencyKeyDep, IfMatchDep, Operator, Viewer
from lcm.control_plane.http.pagination import (
    HistoryPage,
    MetricsPage,
    WorkerPage,
    error_responses,
    raw_journal_page,
    raw_page,
    raw_samples,
)
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.model.base import SingleLineText, UtcDatetime
from lcm.model.problems import ProblemCode
from lcm.model.worker.explain import Explanation
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import (
    CommandRequest,
    CreateWorkerRequest,
    HoldRequest,
    LicenseRequest,
    UpdateWorkerRequest,
)
from lcm.model.worker.status import WorkerStatus

router = APIRouter(prefix="/api/workers", tags=["workers"], responses=error_responses(401, 403, 422, 429))

SORT_FIELDS = ("name", "status", "aws_region", "created_at", "updated_at", "cost_per_hour_usd")
WorkerIdPath = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The worker's id, not its name")]
Regions = Annotated[list[str] | None, Query(description="Regions, such as eu-west-1; repeated, or with commas")]
Statuses = Annotated[
    list[str] | None,
    Query(description="Repeated, or with commas; in any case"),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(WorkerStatus)}}),
]
SortBy = Annotated[
    str | None,
    Query(description="With - before it the other way round"),
    WithJsonSchema({"type": "string", "enum": [f"{sign}{name}" for name in SORT_FIELDS for sign in ("", "-")]}),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most")]
Cursor = Annotated[str | None, Query(max_length=500, description="The next_cursor of the page before")]


def split_values(values: list[str] | None) -> list[str]:
    """List filters repeat or take commas."""
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]


def list_filter(field: str, values: list[str] | None) -> list[str]:
    """The values of a list filter; those that no record can have are refused."""
    found = split_values(values)
    if not all(part.isprintable() for part in found):
        raise ProblemError(ProblemCode.INVALID, f"{field}: must not contain control characters")
    return found


def parse_worker_statuses(field: str, values: list[str] | None) -> list[str]:
    """Statuses of a filter, in any case."""
    try:
        return [WorkerStatus(part).value for value in values or [] for part in value.split(",")]
    except ValueError as error:
        allowed = ", ".join(WorkerStatus)
        raise ProblemError(ProblemCode.INVALID, f"{field}: {error}; there are {allowed}") from None


def parse_sort(sort: str | None, allowed: Sequence[str] = SORT_FIELDS) -> Sort:
    """`name`, or `-name` for the other way round."""
    if sort is None:
        return Sort()
    name = sort.removeprefix("-")
    if name not in allowed:
        raise ProblemError(
            ProblemCode.INVALID, f"sort: must be one of {', '.join(allowed)}, with - before it to turn it round"
        )
    return Sort(name, descending=sort.startswith("-"))


def versioned_response(body: bytes, status: int = 200) -> Response:
    """A record with its version as ETag."""
    version = from_json(body)["version"]
    return Response(body, status, {"ETag": f'"{version}"'}, media_type="application/json")


@router.get("", response_model=WorkerPage)
async def list_workers(
    request: Request,
    caller: Viewer,
    status: Statuses = None,
    exclude_statuses: Statuses = None,
    aws_region: Regions = None,
    template: Annotated[list[str] | None, Query(description="Names of templates; repeated, or with commas")] = None,
    q: Annotated[SingleLineText | None, Query(max_length=100, description="Part of the name")] = None,
    sort: SortBy = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Workers, filtered and page by page."""
    any_of = {
        "status": parse_worker_statuses("status", status),
        "aws_region": list_filter("aws_region", aws_region),
        "template_name": list_filter("template", template),
    }
    where = Where(
        any_of={name: values for name, values in any_of.items() if values},
        none_of={"status": excluded}
        if (excluded := parse_worker_statuses("exclude_statuses", exclude_statuses))
        else {},
        contains={"name": q} if q else {},
    )
    return raw_page(await get_services(request).workers.page(where, parse_sort(sort), cursor, limit))


@router.post("", status_code=201, response_model=Worker, responses=error_responses(404, 409))
async def create_worker(
    request: Request, caller: Operator, body: CreateWorkerRequest, key: IdempotencyKeyDep
) -> Response:
    """A new worker; it is launched as soon as a controller sees it."""
    return versioned_response(await get_services(request).workers.create(caller, body, key), 201)


@router.get("/{worker_id}", response_model=Worker, responses=error_responses(404))
async def get_worker(request: Request, caller: Viewer, worker_id: WorkerIdPath) -> Response:
    """One worker."""
    return versioned_response((await get_services(request).workers.get(worker_id)).body)


@router.patch("/{worker_id}", response_model=Worker, responses=error_responses(404, 409, 412))
async def patch_worker(
    request: Request, caller: Operator, worker_id: WorkerIdPath, body: UpdateWorkerRequest, if_match: IfMatchDep
) -> Response:
    """Change what may be changed by hand."""
    return versioned_response(await get_services(request).workers.patch(caller, worker_id, body, if_match))


@router.delete("/{worker_id}", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def delete_worker(
    request: Request, caller: Operator, worker_id: WorkerIdPath, if_match: IfMatchDep, key: IdempotencyKeyDep
) -> Response:
    """Want it terminated. The record stays."""
    answer = await get_services(request).workers.command(caller, worker_id, "terminate", if_match=if_match, key=key)
    return versioned_response(answer, 202)


@router.get("/{worker_id}/history", response_model=HistoryPage, responses=error_responses(404))
async def worker_history(
    request: Request, caller: Viewer, worker_id: WorkerIdPath, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Its steps so far, oldest first."""
    lines = await get_services(request).workers.history(worker_id, cursor, limit)
    return raw_journal_page(lines, limit)


@router.post("/{worker_id}/hold", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def hold_worker(
    request: Request,
    caller: Operator,
    worker_id: WorkerIdPath,
    body: HoldRequest,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
) -> Response:
    """Stop all changes of this worker."""
    return versioned_response(await get_services(request).workers.hold(caller, worker_id, body, if_match, key), 202)


@router.post("/{worker_id}/license", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def license_worker(
    request: Request,
    caller: Operator,
    worker_id: WorkerIdPath,
    body: LicenseRequest,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
) -> Response:
    """Register a licence, or give it back."""
    return versioned_response(await get_services(request).workers.license(caller, worker_id, body, if_match, key), 202)


@router.get("/{worker_id}/metrics", response_model=MetricsPage, responses=error_responses(404))
async def worker_metrics(
    request: Request,
    caller: Viewer,
    worker_id: WorkerIdPath,
    since: Annotated[UtcDatetime | None, Query(description="Without it the last hour")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many at most")] = 1000,
) -> Response:
    """Its figures, oldest first."""
    return raw_samples(await get_services(request).metrics.series(worker_id, since, limit))


@router.get("/{worker_id}/explain", responses=error_responses(404))
async def explain_worker(request: Request, caller: Viewer, worker_id: WorkerIdPath) -> Explanation:
    """Why it is as it is, and what happens next."""
    return await get_services(request).workers.explain(worker_id)


def _add_command_route(name: str, text: str) -> None:
    async def route(
        request: Request,
        caller: Operator,
        worker_id: WorkerIdPath,
        if_match: IfMatchDep,
        key: IdempotencyKeyDep,
        body: CommandRequest | None = None,
    ) -> Response:
        reason = None if body is None else body.reason
        answer = await get_services(request).workers.command(
            caller, worker_id, name, reason=reason, if_match=if_match, key=key
        )
        return versioned_response(answer, 202)

    route.__doc__ = text
    router.add_api_route(
        f"/{{worker_id}}/{name}",
        route,
        methods=["POST"],
        status_code=202,
        response_model=Worker,
        name=f"{name.replace('-', '_')}_worker",
        responses=error_responses(404, 409, 412),
    )


for _name, _text in (
    ("start", "Want it running; a drain under way is cancelled."),
    ("stop", "Want it stopped, without waiting for lablets."),
    ("terminate", "Want it gone for good."),
    ("drain", "Take no new lablets, wait for those there, then stop."),
    ("cancel-drain", "Take lablets again."),
    ("retry", "Try a failed worker again."),
    ("release", "Let changes go on after a hold."),
):
    _add_command_route(_name, _text)
