"""Leases: what the port promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.core.coordination import NO_LEASE, EventKind, LeaseNotFoundError
from tests.support.network.coordination import take

if TYPE_CHECKING:
    from lcm.core.coordination import Coordination
    from tests.contract.coordination.conftest import Deployment


async def test_a_key_shows_its_lease(client: Coordination, prefix: str) -> None:
    lease = await client.grant_lease(60)
    assert lease.id != NO_LEASE
    assert lease.ttl >= 1
    await client.put(prefix + "a", b"1", lease_id=lease.id)
    swap = await client.put_if_absent(prefix + "b", b"1", lease_id=lease.id)
    assert swap.current is not None
    assert swap.current.lease_id == lease.id
    found = await client.get(prefix + "a")
    assert found is not None
    assert found.lease_id == lease.id
    await client.revoke_lease(lease.id)


async def test_leases_differ(client: Coordination) -> None:
    leases = [await client.grant_lease(60) for _ in range(3)]
    assert len({lease.id for lease in leases}) == 3
    for lease in leases:
        await client.revoke_lease(lease.id)


async def test_a_lease_lasts_a_second_at_least(client: Coordination) -> None:
    with pytest.raises(ValueError, match="at least 1 second"):
        await client.grant_lease(0)


async def test_an_expired_lease_takes_its_keys_along(deployment: Deployment, prefix: str) -> None:
    holder, other = deployment.client(), deployment.client()
    await holder.put(prefix + "free", b"")
    while True:
        lease = await holder.grant_lease(1)
        try:
            revision = await holder.put(prefix + "a", b"1", lease_id=lease.id)
            await holder.put(prefix + "b", b"1", lease_id=lease.id)
            break
        except LeaseNotFoundError:
            continue  # this host took longer than the lease lasts: once more
    async with other.watch(prefix, from_revision=revision + 2) as batches:
        events = await take(batches, 2)
    assert {(event.kind, event.key, event.value) for event in events} == {
        (EventKind.DELETE, prefix + "a", b""),
        (EventKind.DELETE, prefix + "b", b""),
    }
    assert [item.key for item in (await other.list_prefix(prefix)).items] == [prefix + "free"]
    with pytest.raises(LeaseNotFoundError):
        await holder.keep_alive(lease.id)
    with pytest.raises(LeaseNotFoundError):
        await holder.put(prefix + "a", b"1", lease_id=lease.id)


async def test_a_renewed_lease_outlives_its_ttl(client: Coordination, prefix: str) -> None:
    """Renewals further apart than the lease lasts prove nothing: on a host that is so busy it begins again."""
    while not await outlives_its_ttl(client, prefix):
        pass


async def outlives_its_ttl(client: Coordination, prefix: str) -> bool:
    loop = asyncio.get_running_loop()
    renewed = loop.time()
    lease = await client.grant_lease(3)
    try:
        await client.put(prefix + "a", b"1", lease_id=lease.id)
        end = loop.time() + lease.ttl + 0.3
        while loop.time() < end:
            started = loop.time()
            assert 0 < await client.keep_alive(lease.id) <= lease.ttl
            renewed = started
            await asyncio.sleep(0.2)
        assert await client.get(prefix + "a") is not None
    except (LeaseNotFoundError, AssertionError):
        if loop.time() - renewed < lease.ttl:
            raise
        return False
    await client.revoke_lease(lease.id)
    return True


async def test_revoking_deletes_the_keys_at_once(client: Coordination, prefix: str) -> None:
    lease = await client.grant_lease(60)
    revision = await client.put(prefix + "a", b"1", lease_id=lease.id)
    async with client.watch(prefix, from_revision=revision + 1) as batches:
        await client.revoke_lease(lease.id)
        (event,) = await take(batches, 1)
    assert (event.kind, event.key, event.value) == (EventKind.DELETE, prefix + "a", b"")
    assert await client.get(prefix + "a") is None
    with pytest.raises(LeaseNotFoundError) as caught:
        await client.keep_alive(lease.id)
    assert caught.value.lease_id == lease.id


async def test_revoking_twice_is_no_error(client: Coordination) -> None:
    lease = await client.grant_lease(60)
    await client.revoke_lease(lease.id)
    await client.revoke_lease(lease.id)


async def test_a_lease_that_never_was_is_not_found(client: Coordination, prefix: str) -> None:
    with pytest.raises(LeaseNotFoundError):
        await client.keep_alive(987654321)
    with pytest.raises(LeaseNotFoundError) as caught:
        await client.put(prefix + "a", b"1", lease_id=987654321)
    assert caught.value.lease_id == 987654321
    assert await client.get(prefix + "a") is None


async def test_a_key_written_anew_leaves_its_lease(client: Coordination, prefix: str) -> None:
    lease = await client.grant_lease(60)
    await client.put(prefix + "a", b"1", lease_id=lease.id)
    await client.put(prefix + "a", b"2")
    await client.revoke_lease(lease.id)
    found = await client.get(prefix + "a")
    assert found is not None
    assert found.lease_id == NO_LEASE


async def test_a_key_moves_from_lease_to_lease(client: Coordination, prefix: str) -> None:
    old, new = await client.grant_lease(60), await client.grant_lease(60)
    revision = await client.put(prefix + "a", b"1", lease_id=old.id)
    assert (await client.compare_and_swap(prefix + "a", b"2", mod_revision=revision, lease_id=new.id)).succeeded
    await client.revoke_lease(old.id)
    assert await client.get(prefix + "a") is not None
    await client.revoke_lease(new.id)
    assert await client.get(prefix + "a") is None


async def test_a_lease_outlives_the_client_that_created_it(deployment: Deployment, prefix: str) -> None:
    holder, other = deployment.client(), deployment.client()
    lease = await holder.grant_lease(60)
    await holder.put(prefix + "a", b"1", lease_id=lease.id)
    await holder.close()
    assert await other.get(prefix + "a") is not None
    await other.keep_alive(lease.id)
    await other.revoke_lease(lease.id)
