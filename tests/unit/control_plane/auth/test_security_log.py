"""The security log: what is in the audit, and that nobody can fill the store through it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.security_log import (
    FLUSH_SECONDS,
    MAX_LISTED_ADDRESSES,
    MAX_PERSON_LINES,
    SecurityLog,
    SecurityLogWriter,
)
from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.store.port import StoreUnavailableError
from lcm.control_plane.teams.service import MAX_ROLES_LISTED
from lcm.model.access import CallerKind, Role
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from tests.support.records.gated_store import GatedStore

ANN = Caller(name="ann", kind=CallerKind.TOKEN, role=Role.ADMIN, token_id="t-1")
WORKER_CONTROLLER = Caller(name="controller", kind=CallerKind.TOKEN, role=Role.CONTROLLER, token_id="c-1")


@pytest.fixture
def security_log(store: GatedStore) -> SecurityLog:
    return SecurityLog(store)


async def audit(store: Any) -> list[dict[str, Any]]:
    page = await store.read_journal(topics=(AUDIT,), limit=1000)
    return [json.loads(entry.body) for entry in page]


async def test_a_million_refusals_are_one_line_a_minute_with_the_busiest_addresses(
    store: GatedStore, security_log: SecurityLog
) -> None:
    for number in range(30_000):
        security_log.refused(f"198.51.{number % 100}.{number % 250}", f"t-{number}", "/api/workers")
    for _ in range(50):
        security_log.refused("192.0.2.66", None, "/sign-in")
        security_log.limited("192.0.2.66", None, 60)
    await security_log.flush()
    [entry] = await audit(store)
    assert entry["action"] == "sign_ins_refused"
    assert entry["reason"] == "30050 refused, 50 limited"
    assert len(entry["details"]["addresses"]) == MAX_LISTED_ADDRESSES
    assert sum(entry["details"]["addresses"].values()) + entry["details"]["elsewhere"] == 30_050
    assert len(entry["details"]["token_ids"]) == MAX_LISTED_ADDRESSES
    await security_log.flush()
    assert len(await audit(store)) == 1, "nothing happened since"


async def test_many_sign_ins_of_one_person_are_one_line_and_those_of_many_are_bounded(
    store: GatedStore, security_log: SecurityLog
) -> None:
    for _ in range(500):
        security_log.signed_in(ANN, "192.0.2.1")
    security_log.signed_out(ANN, "192.0.2.1")
    await security_log.flush()
    first, second = await audit(store)
    assert (first["action"], first["actor"]["name"], first["actor"]["identity"]) == ("signed_in", "ann", "token:t-1")
    assert first["details"] == {"address": "192.0.2.1", "times": 500}
    assert second["action"] == "signed_out"
    for number in range(MAX_PERSON_LINES + 50):
        security_log.signed_in(ANN, f"2001:db8::{number:x}")
    await security_log.flush()
    entries = (await audit(store))[2:]
    assert len(entries) == MAX_PERSON_LINES + 1
    assert entries[-1]["reason"].startswith("50 more sign-ins")


async def test_the_first_read_of_each_secret_in_a_day_is_there_whatever_the_size_of_the_fleet(
    store: GatedStore, security_log: SecurityLog
) -> None:
    for _ in range(3):
        for number in range(250):
            security_log.secret_read(WORKER_CONTROLLER, f"w-{number}", "cml_password")
        await security_log.flush()
    entries = await audit(store)
    assert [len(entry["details"]["workers"]) for entry in entries] == [100, 100, 50]
    assert {worker for entry in entries for worker in entry["details"]["workers"]} == {f"w-{n}" for n in range(250)}
    await asyncio.sleep(24 * 3600)
    security_log.secret_read(WORKER_CONTROLLER, "w-1", "cml_password")
    await security_log.flush()
    assert (await audit(store))[-1]["details"] == {"secret": "cml_password", "workers": ["w-1"]}


async def test_what_a_sick_store_did_not_take_is_written_later(store: GatedStore, security_log: SecurityLog) -> None:
    commit, store.commit = store.commit, _unavailable  # type: ignore[method-assign]
    security_log.refused("192.0.2.1", None, "/")
    await security_log.flush()
    security_log.refused("192.0.2.1", None, "/")
    store.commit = commit  # type: ignore[method-assign]
    await security_log.flush()
    assert [entry["reason"] for entry in await audit(store)] == ["2 refused, 0 limited"]


async def _unavailable(*_: object, **__: object) -> Any:
    raise StoreUnavailableError("no store")


async def test_the_log_is_written_within_a_minute_and_at_the_end(store: GatedStore, security_log: SecurityLog) -> None:
    writer = SecurityLogWriter(security_log)
    await writer.start()
    security_log.refused("192.0.2.1", None, "/")
    await asyncio.sleep(FLUSH_SECONDS + 1)
    assert len(await audit(store)) == 1
    security_log.refused("192.0.2.1", None, "/")
    await writer.stop()
    assert len(await audit(store)) == 2


async def actions(plane: TestPlane) -> list[tuple[str, str]]:
    await plane.services.authenticator.security_log.flush()
    return [(entry["action"], entry["actor"]["name"]) for entry in await audit(plane.services.context.store)]


async def test_the_audit_has_sign_ins_refusals_and_reads_of_secrets() -> None:
    async with serving_plane() as plane:
        token = plane.tokens[Role.VIEWER]
        signed_in = await plane.ask("POST", "/api/session", role=None, json={"token": token})
        assert signed_in.status_code == 201
        refused = await plane.ask("POST", "/api/session", role=None, json={"token": "wrong"})
        assert refused.status_code == 401
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        await plane.ask("POST", "/sign-out", role=None, headers={"Cookie": cookie})
        worker = await plane.create(license_token="lic-1")
        path = f"/api/internal/workers/{worker['id']}/license-token"
        assert (await plane.ask("GET", path, role=Role.CONTROLLER)).status_code == 200
        found = await actions(plane)
    assert {("signed_in", "viewer"), ("signed_out", "viewer"), ("sign_ins_refused", "sign-in")} <= set(found)
    assert ("secrets_read", "controller") in found


async def test_who_gets_and_who_loses_a_role_in_a_team_is_in_audit_and_log() -> None:
    async with serving_plane() as plane:
        teacher, ann = {"role": "instructor", "group": "teachers"}, {"role": "learner", "email": "ann@example.org"}
        many = [{"role": "learner", "email": f"p{number}@example.org"} for number in range(MAX_ROLES_LISTED + 5)]
        with capture_logs() as logged:
            body = {"name": "blue", "members": [teacher]}
            for _ in range(2):  # a repetition is no second team
                made = await plane.ask(
                    "POST", "/api/teams", role=Role.ADMIN, json=body, headers={"Idempotency-Key": "one"}
                )
                assert made.status_code == 201
            for members in ([ann | {"role": "instructor"}, teacher], [ann], [ann, *many]):
                await plane.ask("PATCH", "/api/teams/blue", role=Role.ADMIN, json={"members": members})
            await plane.ask("PATCH", "/api/teams/blue", role=Role.ADMIN, json={"limits": {"max_lablets": 3}})
            await plane.ask("DELETE", "/api/teams/blue", role=Role.ADMIN)
        entries = [each for each in await audit(plane.services.context.store) if each["action"].startswith("team_")]
    roles = [
        (["instructor group teachers"], []),
        (["instructor ann@example.org"], []),
        (["learner ann@example.org"], ["instructor ann@example.org", "instructor group teachers"]),
        ([*(f"learner p{number}@example.org" for number in range(MAX_ROLES_LISTED)), "and 5 more"], []),
        ([], []),
        ([], []),
    ]
    said = [each for each in logged if each["event"].startswith("team ")]
    for found in ([each["details"] for each in entries], said):
        assert [(each.get("granted", []), each.get("withdrawn", [])) for each in found] == roles
    assert {each["by"] for each in said} == {"admin"}
