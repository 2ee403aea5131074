"""Routes for workers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import WithJsonSchema

from lcm.control_plane.http.deps import IdempotencyKeyDep, IfMatchDep, Operator, Viewer
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import (
    Cursor,
    HistoryPage,
    Limit,
    MetricsPage,
    WorkerPage,
    raw_journal_page,
    raw_page,
    raw_samples,
    versioned_response,
)
from lcm.control_plane.http.query_params import (
    REPEATABLE,
    Regions,
    WorkerIdPath,
    WorkerStatuses,
    list_filter,
    parse_sort,
    parse_worker_statuses,
)
from lcm.control_plane.records.search_text import search_condition
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Where
from lcm.model.base import RequestedTime, SingleLineText
from lcm.model.change_preview import ChangePreview, PreviewWorkerRequest
from lcm.model.worker.explain import Explanation
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import (
    AdoptWorkerRequest,
    CommandRequest,
    CreateWorkerRequest,
    HoldRequest,
    LicenseRequest,
    StartStopRequest,
    TerminateRequest,
    UpdateWorkerRequest,
)

router = APIRouter(prefix="/api/workers", tags=["workers"], responses=error_responses(401, 403, 422, 429))

SEARCH_HELP = "Words that all occur in the name, id, instance id, addresses, region, template or tags (key=value)."
SORT_FIELDS = ("name", "status", "aws_region", "created_at", "updated_at", "cost_per_hour_usd")
SortBy = Annotated[
    str | None,
    Query(description="The field to sort by; a leading - means descending order."),
    WithJsonSchema({"type": "string", "enum": [f"{sign}{name}" for name in SORT_FIELDS for sign in ("", "-")]}),
]


@router.get("", response_model=WorkerPage)
async def list_workers(
    request: Request,
    caller: Viewer,
    status: WorkerStatuses = None,
    exclude_statuses: WorkerStatuses = None,
    aws_region: Regions = None,
    template: Annotated[list[str] | None, Query(description=f"Template names. {REPEATABLE}")] = None,
    q: Annotated[SingleLineText | None, Query(max_length=100, description=SEARCH_HELP)] = None,
    sort: SortBy = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List workers."""
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
        contains_all=search_condition(q or ""),
    )
    return raw_page(await get_services(request).workers.page(where, parse_sort(sort, SORT_FIELDS), cursor, limit))


@router.post("", status_code=201, response_model=Worker, responses=error_responses(404, 409))
async def create_worker(
    request: Request, caller: Operator, body: CreateWorkerRequest, key: IdempotencyKeyDep
) -> Response:
    """Create a worker. The worker controller launches it."""
    return versioned_response(await get_services(request).workers.create(caller, body, key), 201)


async def _stored_worker(request: Request, worker_id: str) -> Worker:
    """The worker that a preview is about."""
    return Worker.model_validate_json((await get_services(request).workers.get(worker_id)).body)


@router.post("/preview")
async def preview_new_worker(request: Request, caller: Viewer, body: CreateWorkerRequest) -> ChangePreview:
    """Preview the creation of a worker: whether it would be accepted, and what it would cost. Nothing is changed."""
    return await get_services(request).previews.create(body)


@router.post("/{worker_id}/preview", responses=error_responses(404))
async def preview_worker_action(
    request: Request, caller: Viewer, worker_id: WorkerIdPath, body: PreviewWorkerRequest
) -> ChangePreview:
    """Preview an action: what would happen, how long that takes, what it costs, and what would be lost."""
    return await get_services(request).previews.preview(await _stored_worker(request, worker_id), body)


@router.get("/{worker_id}", response_model=Worker, responses=error_responses(404))
async def get_worker(request: Request, caller: Viewer, worker_id: WorkerIdPath) -> Response:
    """Get one worker."""
    return versioned_response((await get_services(request).workers.get(worker_id)).body)


@router.patch("/{worker_id}", response_model=Worker, responses=error_responses(404, 409, 412))
async def patch_worker(
    request: Request, caller: Operator, worker_id: WorkerIdPath, body: UpdateWorkerRequest, if_match: IfMatchDep
) -> Response:
    """Change the editable fields of a worker."""
    return versioned_response(await get_services(request).workers.patch(caller, worker_id, body, if_match))


@router.delete("/{worker_id}", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def delete_worker(
    request: Request,
    caller: Operator,
    worker_id: WorkerIdPath,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    release_license: Annotated[
        bool, Query(description="Whether a registered license is deregistered first; once false, always false.")
    ] = True,
) -> Response:
    """Request termination of a worker. Its record is kept."""
    record = await get_services(request).workers.command(
        caller, worker_id, "terminate", release_license=release_license, if_match=if_match, key=key
    )
    return versioned_response(record, 202)


@router.get("/{worker_id}/history", response_model=HistoryPage, responses=error_responses(404))
async def worker_history(
    request: Request, caller: Viewer, worker_id: WorkerIdPath, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """List the worker's status changes, oldest first."""
    return raw_journal_page(await get_services(request).workers.history(worker_id, cursor, limit), limit)


@router.post("/{worker_id}/hold", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def hold_worker(
    request: Request,
    caller: Operator,
    worker_id: WorkerIdPath,
    body: HoldRequest,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
) -> Response:
    """Hold a worker: it is not changed until release."""
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
    """Register or deregister the worker's license."""
    return versioned_response(await get_services(request).workers.license(caller, worker_id, body, if_match, key), 202)


@router.post("/{worker_id}/license/preview", responses=error_responses(404))
async def preview_license_operation(
    request: Request, caller: Operator, worker_id: WorkerIdPath, body: LicenseRequest
) -> ChangePreview:
    """Preview a license operation: what CML would do, and when. A token is only compared. Nothing is changed."""
    return await get_services(request).previews.license(await _stored_worker(request, worker_id), body)


@router.get("/{worker_id}/metrics", response_model=MetricsPage, responses=error_responses(404))
async def worker_metrics(
    request: Request,
    caller: Viewer,
    worker_id: WorkerIdPath,
    since: Annotated[RequestedTime | None, Query(description="The start of the period. Default: one hour ago.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="The maximum number of samples.")] = 1000,
) -> Response:
    """List the worker's metrics samples, oldest first."""
    return raw_samples(await get_services(request).metrics.series(worker_id, since, limit))


@router.get("/{worker_id}/explain", responses=error_responses(404))
async def explain_worker(request: Request, caller: Viewer, worker_id: WorkerIdPath) -> Explanation:
    """Explain the worker's status and what happens next."""
    return await get_services(request).workers.explain(worker_id)


@router.post("/{worker_id}/adopt", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def adopt_worker(
    request: Request,
    caller: Operator,
    worker_id: WorkerIdPath,
    body: AdoptWorkerRequest,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
) -> Response:
    """Adopt an imported worker: it gets a template, and takes lablets if it is schedulable."""
    record = await get_services(request).workers.adopt(caller, worker_id, body, if_match, key)
    return versioned_response(record, 202)


@router.post("/{worker_id}/adopt/preview", responses=error_responses(404))
async def preview_adoption(
    request: Request, caller: Viewer, worker_id: WorkerIdPath, body: AdoptWorkerRequest
) -> ChangePreview:
    """Preview the adoption of an imported worker: its template, capacity and cost. Nothing is changed."""
    return await get_services(request).previews.adopt(await _stored_worker(request, worker_id), body)


@router.post("/{worker_id}/terminate", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def terminate_worker(
    request: Request,
    caller: Operator,
    worker_id: WorkerIdPath,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    body: TerminateRequest | None = None,
) -> Response:
    """Request termination of the worker. Its license is deregistered first, unless `release_license` is false."""
    body = body or TerminateRequest()
    record = await get_services(request).workers.command(
        caller,
        worker_id,
        "terminate",
        reason=body.reason,
        release_license=body.release_license,
        if_match=if_match,
        key=key,
    )
    return versioned_response(record, 202)


@router.post("/{worker_id}/start", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def start_worker(
    request: Request,
    caller: Operator,
    worker_id: WorkerIdPath,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    body: StartStopRequest | None = None,
) -> Response:
    """Request that the worker runs, until a time if one is given. An ongoing drain is cancelled."""
    body = body or StartStopRequest()
    record = await get_services(request).workers.command(
        caller, worker_id, "start", reason=body.reason, until=body.until, if_match=if_match, key=key
    )
    return versioned_response(record, 202)


@router.post("/{worker_id}/stop", status_code=202, response_model=Worker, responses=error_responses(404, 409, 412))
async def stop_worker(
    request: Request,
    caller: Operator,
    worker_id: WorkerIdPath,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    body: StartStopRequest | None = None,
) -> Response:
    """Request that the worker stops, until a time if one is given, without waiting for lablets."""
    body = body or StartStopRequest()
    record = await get_services(request).workers.command(
        caller, worker_id, "stop", reason=body.reason, until=body.until, if_match=if_match, key=key
    )
    return versioned_response(record, 202)


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
        record = await get_services(request).workers.command(
            caller, worker_id, name, reason=reason, if_match=if_match, key=key
        )
        return versioned_response(record, 202)

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
    ("drain", "Drain the worker: it takes no new lablets, waits for those on it, then stops."),
    ("cancel-drain", "Cancel the drain: the worker takes lablets again."),
    ("retry", "Retry a failed worker."),
    ("trust", "Accept the certificate that the worker's CML presents instead of the pinned one."),
    ("release", "Release the hold on the worker."),
):
    _add_command_route(_name, _text)
