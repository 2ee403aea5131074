"""The token goes to the control plane and nowhere else."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
import structlog
from prometheus_client import CollectorRegistry

from lcm.client import Client, ClientError, Limits
from lcm.model.access import Role
from lcm.model.worker.requests import CreateWorkerRequest
from tests.support.network.httpx_transport import HttpxTransport
from tests.unit.client.fakes import URL, FakeResponse, FaultyNetwork, ScriptedServer, json_response, problem_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.virtual.control_plane import TestPlane

CANARY = "canary-3f9k2m"


@pytest.mark.parametrize(
    "url",
    [
        "lcm.test",
        "ftp://lcm.test",
        f"http://me:{CANARY}@lcm.test",
        "http://",
        "http://[::1",
        f"http://lcm.test/?t={CANARY}",
    ],
)
def test_an_address_that_cannot_be_right_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address of the control plane") as caught:
        Client(url)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("token", ["", f"{CANARY}\n", f"{CANARY} x", f"{CANARY}é"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_quoted(token: str) -> None:
    with pytest.raises(ValueError, match="token") as caught:
        Client(URL, token)
    assert CANARY not in str(caught.value)


async def test_a_closed_client_sends_nothing() -> None:
    server = ScriptedServer(json_response({}))
    async with Client(URL, wire=HttpxTransport(FaultyNetwork(server)), registry=CollectorRegistry()) as client:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await client.fleet.release()
    assert server.requests == []


def test_limits_must_make_sense() -> None:
    with pytest.raises(ValueError, match="at least one attempt"):
        Limits(attempts=0)


async def test_the_token_is_in_no_log_error_or_traceback(
    connect: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    responses = [
        problem_response(503, "unavailable"),
        problem_response(401, "unauthenticated"),
        FakeResponse(500, b"no"),
        json_response({"name": 1}),
    ]
    output = ""
    with structlog.testing.capture_logs() as logs:
        for response in responses:
            for fault in (None, "refused", "lost"):
                try:
                    await connect(FaultyNetwork(ScriptedServer(response), *[fault] * 3), CANARY).access.whoami()
                except ClientError as error:
                    output += "".join(traceback.format_exception(error)) + repr(error)
    assert "retrying a call to the control plane" in [line["event"] for line in logs]
    assert CANARY not in output + str(logs) + caplog.text


async def test_secrets_reach_the_server_and_show_nowhere_else(
    plane: TestPlane, as_role: Callable[[Role], Client]
) -> None:
    body = CreateWorkerRequest.model_validate({"name": "a", "template_name": "small", "license_token": CANARY})
    worker = await as_role(Role.OPERATOR).workers.create(body)
    token = await as_role(Role.CONTROLLER).internal.license_token(worker.id)
    assert token.get_secret_value() == CANARY
    assert CANARY not in repr(token) + repr(worker) + repr(body)


async def test_what_cannot_be_understood_is_not_quoted(connect: Callable[..., Client]) -> None:
    client = connect(FaultyNetwork(ScriptedServer(json_response({"token": [CANARY]}))))
    with pytest.raises(ClientError) as caught:
        await client.internal.license_token("w-1")
    assert CANARY not in "".join(traceback.format_exception(caught.value))
