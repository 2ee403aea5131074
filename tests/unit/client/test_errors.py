"""Problem documents become exceptions with the server's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.client import Leader
from lcm.client.errors import (
    ERRORS_BY_CODE,
    AttemptMismatchError,
    ClientError,
    ConflictError,
    IdempotencyKeyReusedError,
    IllegalTransitionError,
    InvalidRequestError,
    NameTakenError,
    NotFoundError,
    NotPossibleNowError,
    PermissionDeniedError,
    ServerError,
    StaleLeaderError,
    VersionConflictError,
)
from lcm.core.controller.leader_election import StaleTermError
from lcm.model.access import Role
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode
from lcm.model.worker.requests import CreateWorkerRequest, LaunchIntentRequest, UpdateWorkerRequest, WorkerStatusUpdate
from lcm.model.worker.status import WorkerStatus
from tests.unit.client.fakes import FaultyNetwork, ScriptedServer, problem_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import CollectorRegistry

    from lcm.client import Client
    from lcm.client.errors import ApiError

NEW = CreateWorkerRequest(name="alpha", template_name="small")


async def refused(request: Awaitable[object], kind: type[ApiError]) -> ApiError:
    """The error, which must be of exactly this type."""
    with pytest.raises(ClientError) as caught:
        await request
    assert type(caught.value) is kind, repr(caught.value)
    return caught.value


async def test_errors_of_user_requests(as_role: Callable[[Role], Client]) -> None:
    operator = as_role(Role.OPERATOR).workers
    worker = await operator.create(NEW, key="k1")
    assert await operator.create(NEW, key="k1") == worker
    error = await refused(operator.create(NEW), NameTakenError)
    assert (error.status, error.code) == (409, ProblemCode.NAME_TAKEN)
    assert "alpha" in str(error)
    await refused(operator.create(NEW.model_copy(update={"name": "beta"}), key="k1"), IdempotencyKeyReusedError)
    error = await refused(operator.patch(worker.id, UpdateWorkerRequest(tags={}), version=99), VersionConflictError)
    assert error.status == 412
    assert error.current is not None
    assert error.current["version"] == worker.version
    await refused(operator.get("w-none"), NotFoundError)
    await refused(operator.drain(worker.id), NotPossibleNowError)
    error = await refused(as_role(Role.VIEWER).workers.start(worker.id), PermissionDeniedError)
    assert "needs the role operator" in error.detail


async def test_errors_of_controller_requests(as_role: Callable[[Role], Client]) -> None:
    worker = await as_role(Role.OPERATOR).workers.create(NEW)
    inside, leader = as_role(Role.CONTROLLER).internal, Leader("worker-controller", 7)
    running = WorkerStatusUpdate(status=WorkerStatus.RUNNING, version=worker.version, reason="seen")
    error = await refused(inside.write_status(leader, worker.id, running), IllegalTransitionError)
    assert error.current == {"status": "PENDING"}
    failed = WorkerStatusUpdate(status=WorkerStatus.FAILED, version=worker.version + 3, reason="no")
    await refused(inside.write_status(leader, worker.id, failed), VersionConflictError)
    launch = LaunchIntentRequest(version=worker.version, attempt=4, parameters={"a": 1})
    await refused(inside.write_launch(leader, worker.id, launch), AttemptMismatchError)


async def test_an_older_leader_gets_stale_term_error_and_changes_nothing(as_role: Callable[[Role], Client]) -> None:
    worker = await as_role(Role.OPERATOR).workers.create(NEW)
    inside = as_role(Role.CONTROLLER).internal
    await inside.announce_leadership(Leader("worker-controller", 8))
    failed = WorkerStatusUpdate(status=WorkerStatus.FAILED, version=worker.version, reason="no")
    with pytest.raises(StaleTermError) as caught:
        await inside.write_status(Leader("worker-controller", 7), worker.id, failed)
    error = caught.value.__cause__
    assert isinstance(error, StaleLeaderError)
    assert error.current == {"term": 8}
    assert "lcm leadership reset" in error.detail
    assert await inside.worker(worker.id) == worker


async def test_a_wrong_field_is_named(as_role: Callable[[Role], Client]) -> None:
    inside = as_role(Role.CONTROLLER).internal
    error = await refused(inside.audit(Leader("worker-controller", 1), "Not An Action", "w-1"), InvalidRequestError)
    assert [problem_response.field for problem_response in error.errors] == ["action"]


@pytest.mark.parametrize("code", list(ProblemCode))
async def test_every_code_has_its_family(code: ProblemCode, connect: Callable[..., Client]) -> None:
    errors = [{"field": "name", "message": "is too long"}]
    server = ScriptedServer(
        problem_response(HTTP_STATUS_BY_CODE.get(code, 409), code, "Sorry, no.", errors=errors, current={"version": 3})
    )
    error = await refused(connect(FaultyNetwork(server)).workers.get("w-1"), ERRORS_BY_CODE[code])
    assert (str(error), error.code, error.status) == ("Sorry, no.", code, HTTP_STATUS_BY_CODE.get(code, 409))
    assert error.errors[0].message == "is too long"
    assert error.current == {"version": 3}


@pytest.mark.parametrize(
    ("status", "kind"), [(409, ConflictError), (404, NotFoundError), (400, InvalidRequestError), (500, ServerError)]
)
async def test_an_unknown_code_falls_back_to_the_status(
    status: int, kind: type[ApiError], connect: Callable[..., Client]
) -> None:
    error = await refused(
        connect(FaultyNetwork(ScriptedServer(problem_response(status, "moon_phase")))).workers.get("w-1"), kind
    )
    assert error.code == "moon_phase"


async def test_metrics_count_calls_by_outcome(as_role: Callable[[Role], Client], registry: CollectorRegistry) -> None:
    for client in (as_role(Role.OPERATOR), as_role(Role.OPERATOR)):
        await refused(client.workers.get("w-none"), NotFoundError)
    labels = {"operation": "workers.get", "outcome": "not_found"}
    assert registry.get_sample_value("lcm_client_calls_total", labels) == 2
    assert registry.get_sample_value("lcm_client_call_seconds_count", {"operation": "workers.get"}) == 2
