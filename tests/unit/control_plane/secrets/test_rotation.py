"""Key rotation: every secret is re-encrypted, and none is lost, whatever else happens at the same time."""

from __future__ import annotations

import asyncio
import json

import pytest

from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.records.kinds import ALL_KINDS, AUDIT, WORKER_SECRETS
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.secrets.worker_secrets import (
    CML_PASSWORD,
    LICENSE_TOKEN,
    read_secret,
    rotate_secrets,
    store_secrets,
)
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.model.access import Role, SecretRotationResult
from tests.support.records.gated_store import GatedStore
from tests.support.records.worker_records import ANNA
from tests.support.virtual.control_plane import serving_plane

OLD, NEW = (parse_key(generate_key(), name) for name in ("old", "new"))
BEFORE, AFTER, ONLY_NEW = SecretBox([OLD]), SecretBox([NEW, OLD]), SecretBox([NEW])


async def a_plane(disk: MemoryDisk, box: SecretBox, store: MemoryStore | None = None) -> ControlPlaneContext:
    opened = store or MemoryStore(disk)
    await opened.open(ALL_KINDS)
    return ControlPlaneContext(opened, UnitOfWork(opened), box, ("eu-west-1",))


async def enter(plane: ControlPlaneContext, worker_id: str, **secrets: str | None) -> None:
    await plane.unit_of_work.run(ANNA, lambda tx: store_secrets(tx, plane.secret_box, worker_id, secrets))


async def secret(
    plane: ControlPlaneContext, worker_id: str, name: str = LICENSE_TOKEN, box: SecretBox = ONLY_NEW
) -> str:
    return (await read_secret(plane.store, box, worker_id, name)).reveal()


async def audit(plane: ControlPlaneContext) -> list[str]:
    return [line.body.decode() for line in await plane.store.read_journal(topics=[AUDIT], limit=1000)]


async def test_afterwards_the_old_key_is_not_needed_any_more() -> None:
    disk = MemoryDisk()
    before = await a_plane(disk, BEFORE)
    for number in range(230):
        await enter(before, f"w-{number}", license_token=f"tok-{number}", cml_password=f"pw-{number}")
    plane = await a_plane(disk, AFTER)
    await enter(plane, "w-new", license_token="fresh")
    assert await rotate_secrets(plane, ANNA) == SecretRotationResult(rotated=460, already=1)
    assert await rotate_secrets(plane, ANNA) == SecretRotationResult(rotated=0, already=461)
    for number in range(230):
        assert await secret(plane, f"w-{number}") == f"tok-{number}"
        assert await secret(plane, f"w-{number}", CML_PASSWORD) == f"pw-{number}"
    lines = [json.loads(line) for line in await audit(plane)]
    assert [line["action"] for line in lines] == ["secrets_rotated"] * 3
    assert sum(line["details"]["rotated"] for line in lines) == 460
    assert {line["actor"]["name"] for line in lines} == {"anna"}
    assert "tok-" not in "".join(await audit(plane))


async def test_an_empty_store_is_fine() -> None:
    assert await rotate_secrets(await a_plane(MemoryDisk(), AFTER), ANNA) == SecretRotationResult(rotated=0, already=0)


async def test_a_secret_that_is_entered_while_it_is_rotated_wins() -> None:
    """The old secret has been read when the new one is committed."""
    disk, read = MemoryDisk(), asyncio.Event()
    await enter(await a_plane(disk, BEFORE), "w-1", license_token="old", cml_password="kept")
    gated = GatedStore(disk)
    plane, other = await a_plane(disk, AFTER, gated), await a_plane(disk, AFTER)
    gated.gate = read
    rotating = asyncio.create_task(rotate_secrets(plane, ANNA))
    await asyncio.sleep(0.01)
    await enter(other, "w-1", license_token="entered")
    read.set()
    assert await rotating == SecretRotationResult(rotated=1, already=1)
    assert await secret(other, "w-1") == "entered"
    assert await secret(other, "w-1", CML_PASSWORD) == "kept"


async def test_a_secret_that_is_rotated_while_another_is_entered_is_not_brought_back() -> None:
    """The writer of a secret has read both under the old key when the rotation is committed."""
    disk, read = MemoryDisk(), asyncio.Event()
    await enter(await a_plane(disk, BEFORE), "w-1", license_token="old", cml_password="kept")
    gated = GatedStore(disk)
    slow, plane = await a_plane(disk, AFTER, gated), await a_plane(disk, AFTER)
    gated.gate = read
    entering = asyncio.create_task(enter(slow, "w-1", license_token="entered"))
    await asyncio.sleep(0.01)
    assert await rotate_secrets(plane, ANNA) == SecretRotationResult(rotated=2, already=0)
    read.set()
    await entering
    assert await secret(plane, "w-1") == "entered"
    assert await secret(plane, "w-1", CML_PASSWORD) == "kept"


async def test_two_rotations_at_once_do_it_once() -> None:
    disk = MemoryDisk()
    before = await a_plane(disk, BEFORE)
    for number in range(150):
        await enter(before, f"w-{number}", license_token=f"tok-{number}")
    planes = [await a_plane(disk, AFTER), await a_plane(disk, AFTER)]
    done = await asyncio.gather(*(rotate_secrets(plane, ANNA) for plane in planes))
    assert sum(each.rotated for each in done) == 150
    assert [await secret(planes[0], f"w-{number}") for number in (0, 149)] == ["tok-0", "tok-149"]


async def test_an_unreadable_secret_is_reported_and_the_others_are_rotated() -> None:
    disk = MemoryDisk()
    lost = await a_plane(disk, SecretBox([parse_key(generate_key(), "lost")]))
    await enter(lost, "w-1", license_token="gone")
    stored = await lost.store.get(WORKER_SECRETS, "w-1")
    await enter(await a_plane(disk, BEFORE), "w-2", license_token="fine")
    plane = await a_plane(disk, AFTER)
    done = await rotate_secrets(plane, ANNA)
    assert done == SecretRotationResult(rotated=1, already=0, unreadable=("license_token of worker_secrets w-1",))
    assert await plane.store.get(WORKER_SECRETS, "w-1") == stored
    assert await secret(plane, "w-2") == "fine"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.CONTROLLER])
async def test_only_an_admin_may(role: Role) -> None:
    async with serving_plane() as plane:
        assert (await plane.ask("POST", "/api/secrets/rotate", role=role)).status_code == 403


async def test_the_api_returns_counts_and_nothing_more() -> None:
    async with serving_plane() as plane:
        await plane.create(license_token="CANARY", cml_password="CANARY", cml_username="u")
        response = await plane.ask("POST", "/api/secrets/rotate", role=Role.ADMIN)
        assert response.json() == {"rotated": 0, "already": 3, "unreadable": []}
