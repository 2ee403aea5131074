"""The app conforms to its OpenAPI document, also for generated requests."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from itertools import count, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
import structlog
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from lcm.model.access import Role
from lcm.model.audit import ActionType
from tests.support.virtual.control_plane import LEADER, TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import Case, Response
    from schemathesis.checks import CheckFunction
    from schemathesis.schemas import BaseSchema
    from starlette.types import Receive, Scope, Send

EXAMPLES = 6
LEADERSHIP = "/api/internal/leadership"
SIGN_IN = "POST /api/session"

NO_SCHEMA_SAYS = {
    "cursor": "only the server can validate its cursors",
    "aws_region": "which regions there are is configured",
    "since": "time goes on",
    "until": "time goes on",
    "expires_at": "time goes on",
    "name": "the body must name what the path names",
    "starts_at": "the calendar is longer than any plan",
    "ends_at": "time goes on",
    "topology": "it is YAML in a text, and what it uses must be listed elsewhere",
    "definition": "names and versions cannot be mixed",
    "url": "which URLs are valid is more than a pattern, and e-mail has none",
    "recipients": "only e-mail has any",
    "filter": "records pass over names that they do not know, requests do not",
    "requirements": "records pass over names that they do not know, requests do not",
    "start": "clocks skip some times and show others twice",
    "zone": "which time zones there are is in a database",
    "windows": "what a window can be is more than a pattern",
    "exceptions": "what an exception can be is more than a pattern",
    "selector": "one of its lists must have an entry, whichever",
    "members": "two may not be the same person or group",
    "learners": "their number depends on the seats",
    "team": "which teams there are is in the records",
    "selector.teams": "which teams there are is in the records",
    "filter.selector.teams": "which teams there are is in the records",
}
"""Fields that can be rejected although they fit the document, and why the document cannot express it."""
NO_SCHEMA_WORDS = {
    "must not contain control characters": "patterns have ranges, not Unicode categories",
    "must be a date from the year 1970 to 2999": "a format has no bounds",
    "give either minutes or ends_at": "either of two fields, not both",
}
"""Messages of rejections that the document cannot express, and why."""


class Served:
    """One control plane for all requests, created on first use on the loop that serves it."""

    plane: TestPlane

    def __init__(self) -> None:
        self._open = AsyncExitStack()
        self._pairs: Iterator[tuple[str, str]] | None = None
        self._aims: dict[str, Iterator[str | None]] = {}
        self._numbers = count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            # Failed sign-ins are rate-limited by address. Every route is tried with and without a token here, and one
            # attempt must not block the others.
            number = next(self._numbers)
            address = f"198.18.{number // 256 % 256}.{number % 256}"
            await self.plane.app({**scope, "client": (address, 1)}, receive, send)
            return
        # It starts and ends with each test; the control plane stays.
        await receive()
        if self._pairs is None:
            self.plane = await self._open.enter_async_context(serving_plane())
            self._pairs = iter(await self._populated())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def credentials(self, case: Case[Any]) -> dict[str, str]:
        """The credentials of a request: a leading controller on internal routes, an admin on the others.

        It is handed over apart from the request: then it is also tried whether the same is refused without it.
        """
        internal = case.path.startswith("/api/internal/")
        token = self.plane.tokens[Role.CONTROLLER if internal else Role.ADMIN]
        if internal and not _is_wrong(case, ParameterLocation.HEADER):
            # An announced term must not make the terms of other requests stale.
            case.headers.update({**LEADER, "X-LCM-Controller": "announcer"} if case.path == LEADERSHIP else LEADER)
        return {"Authorization": f"Bearer {token}"}

    def aim(self, case: Case[Any]) -> None:
        """Let two of three requests find a worker, pending or running: a generated id is always 404."""
        if "worker_id" in case.path_parameters and not _is_wrong(case, ParameterLocation.PATH):
            assert self._pairs is not None
            label = case.operation.label
            if label not in self._aims:
                self._aims[label] = cycle([*next(self._pairs), None])
            case.path_parameters["worker_id"] = next(self._aims[label]) or case.path_parameters["worker_id"]
        if "controller" in case.path_parameters and not _is_wrong(case, ParameterLocation.PATH):
            # After a reset a leader has to announce itself: the one that makes the other requests does not.
            case.path_parameters["controller"] = "announcer"

    async def _populated(self) -> list[tuple[str, str]]:
        """Two workers for each operation, so that an operation that terminates them does not affect others."""
        paths = self.plane.app.openapi()["paths"]
        operations = sum(len(methods) for path, methods in paths.items() if "{worker_id}" in path)
        return [
            ((await self.plane.create(f"waiting{number}"))["id"], (await self.plane.running(f"run{number}"))["id"])
            for number in range(operations)
        ]


def _is_wrong(case: Case[Any], where: ParameterLocation) -> bool:
    """Whether this part of the request violates the document on purpose."""
    return case.meta is not None and case.meta.is_negative_at(where)


def _query_reads_as_valid(case: Case[Any], document: dict[str, Any]) -> bool:
    """Whether a wrong query looks right on the wire: a query has only text, and one value is a list of one."""
    documented = document["paths"][case.operation.path][case.operation.method.lower()].get("parameters", [])
    lists = {one["name"] for one in documented if "'array'" in str(one["schema"])}
    texts = {one["name"] for one in documented if "'string'" in str(one["schema"])}

    def reads_as_valid(name: str, value: object) -> bool:
        if isinstance(value, str):
            return name in lists
        # A number, a truth value or nothing is a text once it is sent.
        return isinstance(value, dict) or (name in texts and not isinstance(value, list))

    return any(reads_as_valid(name, value) for name, value in (case.query or {}).items())


def _has_word_of_a_newer_version(body: Any) -> bool:
    """Whether a planned action has a type that only a newer controller knows: it is kept, not rejected."""
    if isinstance(body, list):
        return any(map(_has_word_of_a_newer_version, body))
    if not isinstance(body, dict):
        return False
    planned = [each for name in ("held_actions", "next_actions") for each in _list(body.get(name))]
    known = {word.value for word in ActionType}
    types = [each.get("type") for each in planned if isinstance(each, dict)]
    newer = any(isinstance(word, str) and word.strip().lower() not in known for word in types)
    return newer or any(map(_has_word_of_a_newer_version, body.values()))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _refused_for_its_meaning(response: Response) -> bool:
    """Whether it was rejected for a reason that only the server can know."""
    if response.status_code in (412, 413):
        return True
    if response.status_code != 422:
        return False
    problem = response.json()
    errors = problem["errors"] or [dict(zip(("field", "message"), problem["detail"].split(": ", 1), strict=False))]
    return all(
        re.sub(r"\.\d+$", "", error["field"]) in NO_SCHEMA_SAYS or error.get("message") in NO_SCHEMA_WORDS
        for error in errors
    )


served = Served()
_ROW = re.compile(r"^\| `([A-Z]+ /\S+)` \|", re.MULTILINE)
ENDLESS = "GET /api/events/stream"
OPERATIONS = sorted({*_ROW.findall(Path("docs/api.md").read_text())} - {ENDLESS})


@pytest.fixture(scope="module")
def schema() -> BaseSchema:
    """The document of the app. Every pytest worker reads this file and one runs it: nothing is made when it is read."""
    load_all_checks()
    return schemathesis.openapi.from_asgi("/openapi.json", served)


@pytest.fixture(scope="module")
def feedback(schema: BaseSchema) -> FeedbackSources:
    return FeedbackSources(constants_value_source=make_constants_value_source(schema))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The failing request is enough; rendering the whole stack takes longer than the test."""
    with structlog.testing.capture_logs():
        yield


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def conforms(case: Case[Any]) -> None:
    sign_in = served.credentials(case)
    served.aim(case)
    response = case.call(headers=sign_in)
    # Otherwise authentication would reject every request, and nothing would be tested.
    assert case.operation.label == SIGN_IN or response.status_code not in (401, 403, 429), response.text
    assert case.path == LEADERSHIP or b"stale_leader" not in response.content
    beside_the_point: list[CheckFunction] = [positive_data_acceptance] if _refused_for_its_meaning(response) else []
    rejected_or_fine = (
        response.status_code == 413,  # a rejection that the check does not know
        _query_reads_as_valid(case, served.plane.app.openapi()),
        _has_word_of_a_newer_version(case.body),
    )
    if any(rejected_or_fine):
        beside_the_point.append(negative_data_rejection)
    case.validate_response(response, excluded_checks=beside_the_point)


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_operation_conforms_to_its_document(schema: BaseSchema, feedback: FeedbackSources, label: str) -> None:
    method, path = label.split()
    test = build_operation_test(
        config=schema.config, operation=schema[path][method], test_func=conforms, given_kwargs={}, feedback=feedback
    )
    test()


def test_every_operation_is_tried(schema: BaseSchema) -> None:
    documented = {result.ok().label for result in schema.get_all_operations() if isinstance(result, Ok)}
    assert documented == {*OPERATIONS, ENDLESS}
