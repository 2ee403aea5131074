"""Refusals become exceptions with the server's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.client import Leader
from lcm.client.errors import (
    FAMILIES,
    AttemptMismatch,
    ClientError,
    Conflict,
    Invalid,
    KeyReused,
    NameTaken,
    NotAllowed,
    NotFound,
    NotPossibleNow,
    ServerFault,
    StaleLeader,
    TransitionRefused,
    VersionConflict,
)
from lcm.model.access import Role
from lcm.model.problems import STATUS, ProblemCode
from lcm.model.worker.requests import CreateWorker, LaunchWrite, PatchWorker, StatusWrite
from lcm.model.worker.status import WorkerStatus
from tests.unit.client.fakes import Network, Server, problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import CollectorRegistry

    from lcm.client import Client
    from lcm.client.errors import Refused

NEW = CreateWorker(name="alpha", template_name="small")


async def refused(asking: Awaitable[object], kind: type[Refused]) -> Refused:
    """The refusal, which must be of exactly this kind."""
    with pytest.raises(ClientError) as caught:
        await asking
    assert type(caught.value) is kind, repr(caught.value)
    return caught.value


async def test_what_people_are_refused(as_role: Callable[[Role], Client]) -> None:
    operator = as_role(Role.OPERATOR).workers
    worker = await operator.create(NEW, key="k1")
    assert await operator.create(NEW, key="k1") == worker
    error = await refused(operator.create(NEW), NameTaken)
    assert (error.status, error.code) == (409, ProblemCode.NAME_TAKEN)
    assert "alpha" in str(error)
    await refused(operator.create(NEW.model_copy(update={"name": "beta"}), key="k1"), KeyReused)
    error = await refused(operator.patch(worker.id, PatchWorker(tags={}), version=99), VersionConflict)
    assert error.status == 412
    assert error.current is not None
    assert error.current["version"] == worker.version
    await refused(operator.get("w-none"), NotFound)
    await refused(operator.drain(worker.id), NotPossibleNow)
    error = await refused(as_role(Role.VIEWER).workers.start(worker.id), NotAllowed)
    assert "needs the role operator" in error.detail


async def test_what_controllers_are_refused(as_role: Callable[[Role], Client]) -> None:
    worker = await as_role(Role.OPERATOR).workers.create(NEW)
    inside, leader = as_role(Role.CONTROLLER).internal, Leader("worker-controller", 7)
    running = StatusWrite(status=WorkerStatus.RUNNING, version=worker.version, reason="seen")
    error = await refused(inside.write_status(leader, worker.id, running), TransitionRefused)
    assert error.current == {"status": "PENDING"}
    failed = StatusWrite(status=WorkerStatus.FAILED, version=worker.version + 3, reason="no")
    await refused(inside.write_status(leader, worker.id, failed), VersionConflict)
    launch = LaunchWrite(version=worker.version, attempt=4, parameters={"a": 1})
    await refused(inside.write_launch(leader, worker.id, launch), AttemptMismatch)


async def test_an_older_leader_is_told_and_changes_nothing(as_role: Callable[[Role], Client]) -> None:
    worker = await as_role(Role.OPERATOR).workers.create(NEW)
    inside = as_role(Role.CONTROLLER).internal
    await inside.announce_leadership(Leader("worker-controller", 8))
    failed = StatusWrite(status=WorkerStatus.FAILED, version=worker.version, reason="no")
    error = await refused(inside.write_status(Leader("worker-controller", 7), worker.id, failed), StaleLeader)
    assert error.current == {"term": 8}
    assert "lcm leadership reset" in error.detail
    assert await inside.worker(worker.id) == worker


async def test_a_wrong_field_is_named(as_role: Callable[[Role], Client]) -> None:
    inside = as_role(Role.CONTROLLER).internal
    error = await refused(inside.audit(Leader("worker-controller", 1), "Not An Action", "w-1"), Invalid)
    assert [problem.field for problem in error.errors] == ["action"]


@pytest.mark.parametrize("code", list(ProblemCode))
async def test_every_code_has_its_family(code: ProblemCode, connect: Callable[..., Client]) -> None:
    errors = [{"field": "name", "message": "is too long"}]
    server = Server(problem(STATUS.get(code, 409), code, "Sorry, no.", errors=errors, current={"version": 3}))
    error = await refused(connect(Network(server)).workers.get("w-1"), FAMILIES[code])
    assert (str(error), error.code, error.status) == ("Sorry, no.", code, STATUS.get(code, 409))
    assert error.errors[0].message == "is too long"
    assert error.current == {"version": 3}


@pytest.mark.parametrize(("status", "kind"), [(409, Conflict), (404, NotFound), (400, Invalid), (500, ServerFault)])
async def test_a_code_of_a_newer_server_is_told_by_its_status(
    status: int, kind: type[Refused], connect: Callable[..., Client]
) -> None:
    error = await refused(connect(Network(Server(problem(status, "moon_phase")))).workers.get("w-1"), kind)
    assert error.code == "moon_phase"


async def test_metrics_count_calls_by_outcome(as_role: Callable[[Role], Client], registry: CollectorRegistry) -> None:
    for client in (as_role(Role.OPERATOR), as_role(Role.OPERATOR)):
        await refused(client.workers.get("w-none"), NotFound)
    labels = {"operation": "workers.get", "outcome": "not_found"}
    assert registry.get_sample_value("lcm_client_calls_total", labels) == 2
    assert registry.get_sample_value("lcm_client_call_seconds_count", {"operation": "workers.get"}) == 2
