"""Reading and writing keys: what the port promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.core.coordination import CoordinationUnavailableError, KeyValue, LeaseNotFoundError

if TYPE_CHECKING:
    from lcm.core.coordination import Coordination
    from tests.contract.coordination.conftest import Deployment


async def test_a_key_that_is_not_there_is_none(client: Coordination, prefix: str) -> None:
    assert await client.get(prefix + "a") is None


async def test_put_returns_the_revision_that_get_shows(client: Coordination, prefix: str) -> None:
    first = await client.put(prefix + "a", b"1")
    second = await client.put(prefix + "a", b"2")
    assert second > first
    assert await client.get(prefix + "a") == KeyValue(prefix + "a", b"2", first, second)


async def test_values_are_bytes_of_any_kind(client: Coordination, prefix: str) -> None:
    for value in (b"", bytes(range(256)), b"x" * 1_000_000):
        await client.put(prefix + "a", value)
        found = await client.get(prefix + "a")
        assert found is not None
        assert found.value == value


async def test_keys_are_text_of_any_script(client: Coordination, prefix: str) -> None:
    await client.put(prefix + "wörker/日本", b"1")
    listing = await client.list_prefix(prefix + "wörker/")
    assert [item.key for item in listing.items] == [prefix + "wörker/日本"]


async def test_an_empty_key_is_a_mistake(client: Coordination) -> None:
    for call in (client.get(""), client.put("", b""), client.put_if_absent("", b""), client.delete("")):
        with pytest.raises(ValueError, match="empty"):
            await call


async def test_two_clients_see_the_same_keys(deployment: Deployment, prefix: str) -> None:
    await deployment.client().put(prefix + "a", b"1")
    found = await deployment.client().get(prefix + "a")
    assert found is not None
    assert found.value == b"1"


async def test_a_listing_is_sorted_and_keeps_to_the_prefix(client: Coordination, prefix: str) -> None:
    for key in ("p/b", "p/a", "pq", "p", "p0", "p/", "o/z"):
        await client.put(prefix + key, b"")
    revision = await client.put(prefix + "p/c", b"")
    listing = await client.list_prefix(prefix + "p/")
    assert [item.key for item in listing.items] == [prefix + key for key in ("p/", "p/a", "p/b", "p/c")]
    assert listing.revision >= revision


async def test_an_empty_prefix_lists_everything(client: Coordination, prefix: str) -> None:
    await client.put(prefix + "a", b"")
    assert prefix + "a" in [item.key for item in (await client.list_prefix("")).items]


async def test_a_listing_of_nothing_still_has_a_revision(client: Coordination, prefix: str) -> None:
    listing = await client.list_prefix(prefix)
    assert listing.items == ()
    assert await client.put(prefix + "a", b"") > listing.revision


async def test_a_long_listing_is_of_one_revision(deployment: Deployment, prefix: str) -> None:
    """The first and the last key are written in turn all the while, so at any one revision they are neighbours."""
    client, writer = deployment.client(), deployment.client()
    keys = [f"{prefix}{number:04}" for number in range(2500)]
    await asyncio.gather(*(client.put(key, b"") for key in keys))
    writing = asyncio.Event()

    async def rewrite() -> None:
        while True:
            await writer.put(keys[0], b"")
            await writer.put(keys[-1], b"")
            writing.set()

    task = asyncio.create_task(rewrite())
    await writing.wait()
    listings = [await client.list_prefix(prefix) for _ in range(3)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for listing in listings:
        assert [item.key for item in listing.items] == keys
        assert max(item.mod_revision for item in listing.items) <= listing.revision
        assert abs(listing.items[0].mod_revision - listing.items[-1].mod_revision) == 1


async def test_put_if_absent_has_one_winner_of_twenty(deployment: Deployment, prefix: str) -> None:
    clients = [deployment.client() for _ in range(4)]
    swaps = await asyncio.gather(
        *(clients[number % 4].put_if_absent(prefix + "a", str(number).encode()) for number in range(20))
    )
    winners = [number for number, swap in enumerate(swaps) if swap.succeeded]
    assert len(winners) == 1
    current = await clients[0].get(prefix + "a")
    assert current is not None
    assert current.value == str(winners[0]).encode()
    assert all(swap.current == current for swap in swaps)


async def test_put_if_absent_shows_what_was_written(client: Coordination, prefix: str) -> None:
    swap = await client.put_if_absent(prefix + "a", b"1")
    assert swap.succeeded
    assert swap.current == await client.get(prefix + "a")
    assert swap.current is not None
    assert swap.current.create_revision == swap.current.mod_revision


async def test_a_swap_at_the_right_revision_wins_and_keeps_the_creation(client: Coordination, prefix: str) -> None:
    created = await client.put(prefix + "a", b"1")
    swap = await client.compare_and_swap(prefix + "a", b"2", mod_revision=created)
    assert swap.succeeded
    assert swap.current is not None
    assert swap.current == KeyValue(prefix + "a", b"2", created, swap.current.mod_revision)
    assert swap.current.mod_revision > created
    assert swap.current == await client.get(prefix + "a")


async def test_a_swap_at_a_stale_revision_loses_and_shows_what_stands(client: Coordination, prefix: str) -> None:
    stale = await client.put(prefix + "a", b"1")
    await client.put(prefix + "a", b"2")
    swap = await client.compare_and_swap(prefix + "a", b"3", mod_revision=stale)
    assert not swap.succeeded
    assert swap.current == await client.get(prefix + "a")
    assert swap.current is not None
    assert swap.current.value == b"2"


async def test_a_swap_of_a_key_that_is_gone_loses_and_shows_none(client: Coordination, prefix: str) -> None:
    revision = await client.put(prefix + "a", b"1")
    await client.delete(prefix + "a")
    swap = await client.compare_and_swap(prefix + "a", b"2", mod_revision=revision)
    assert not swap.succeeded
    assert swap.current is None
    assert await client.get(prefix + "a") is None


async def test_delete_says_whether_it_did(client: Coordination, prefix: str) -> None:
    await client.put(prefix + "a", b"1")
    assert await client.delete(prefix + "a")
    assert not await client.delete(prefix + "a")
    assert await client.get(prefix + "a") is None


async def test_delete_takes_one_key_only(client: Coordination, prefix: str) -> None:
    await client.put(prefix + "a", b"1")
    await client.put(prefix + "ab", b"1")
    assert await client.delete(prefix + "a")
    assert await client.get(prefix + "ab") is not None


async def test_delete_with_a_revision_spares_a_newer_key(client: Coordination, prefix: str) -> None:
    old = await client.put(prefix + "a", b"1")
    new = await client.put(prefix + "a", b"2")
    assert not await client.delete(prefix + "a", mod_revision=old)
    assert await client.get(prefix + "a") is not None
    assert await client.delete(prefix + "a", mod_revision=new)
    assert not await client.delete(prefix + "a", mod_revision=new)
    assert not await client.delete(prefix + "a", mod_revision=0)


async def test_a_key_made_anew_has_a_new_creation(client: Coordination, prefix: str) -> None:
    first = await client.put(prefix + "a", b"1")
    await client.delete(prefix + "a")
    second = await client.put(prefix + "a", b"1")
    found = await client.get(prefix + "a")
    assert found is not None
    assert found.create_revision == second > first


async def test_a_failed_swap_does_not_check_the_lease(client: Coordination, prefix: str) -> None:
    await client.put(prefix + "a", b"1")
    assert not (await client.put_if_absent(prefix + "a", b"2", lease_id=12345)).succeeded
    with pytest.raises(LeaseNotFoundError):
        await client.put_if_absent(prefix + "b", b"2", lease_id=12345)


async def test_check_returns_while_all_is_well(client: Coordination) -> None:
    await client.check()


async def test_a_probe_counts_the_keys_of_its_prefix_and_names_the_cluster(deployment: Deployment, prefix: str) -> None:
    client, other = deployment.client(), deployment.client()
    empty = await client.probe(prefix)
    assert empty.keys == 0
    await client.put(prefix + "a", b"1")
    revision = await client.put(prefix + "b", b"1")
    await client.put(prefix[:-1] + "0", b"of another prefix")
    for each in (client, other):
        probed = await each.probe(prefix)
        assert (probed.keys, probed.cluster_id) == (2, empty.cluster_id)
        assert probed.revision >= revision > empty.revision
    await client.delete(prefix + "a")
    assert (await client.probe(prefix)).keys == 1


async def test_after_close_every_call_is_unavailable(client: Coordination, prefix: str) -> None:
    await client.put(prefix + "a", b"1")
    await client.close()
    for call in (
        client.get(prefix + "a"),
        client.list_prefix(prefix),
        client.put(prefix + "a", b""),
        client.grant_lease(5),
        client.keep_alive(1),
        client.check(),
        client.probe(prefix),
    ):
        with pytest.raises(CoordinationUnavailableError, match="closed"):
            await call
    await client.close()


async def test_closing_one_client_leaves_the_others(deployment: Deployment, prefix: str) -> None:
    one, other = deployment.client(), deployment.client()
    await one.put(prefix + "a", b"1")
    await one.close()
    assert await other.get(prefix + "a") is not None


def test_the_description_names_the_place(client: Coordination, deployment: Deployment) -> None:
    assert client.description.startswith(("memory", "etcd at 127.0.0.1:"))
    assert client.description.endswith(deployment.namespace)


async def test_a_namespace_stands_before_every_stored_key(deployment: Deployment, prefix: str) -> None:
    await deployment.client().put(prefix + "a", b"1")
    stored = await deployment.plain_client().get(deployment.namespace + prefix + "a")
    assert stored is not None
    assert stored.value == b"1"
