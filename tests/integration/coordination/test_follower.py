"""The follower on a real etcd: its copy equals the server's state after every failure."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from lcm.core.controller.follower import Follower
from lcm.core.coordination import EventKind
from tests.support.network.coordination import eventually, until_served, write_once
from tests.support.network.tcp_proxy import Mode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.coordination.etcd import EtcdCoordination
    from lcm.core.coordination import Listing, WatchEvent
    from tests.integration.coordination.conftest import Connect
    from tests.support.network.tcp_proxy import TcpProxy
    from tests.support.servers.etcd import EtcdServer


class Copy:
    """A copy of the keys, built by the follower; every change must be delivered once."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] | None = None
        self.delivered: list[tuple[str, int]] = []

    def listed(self, listing: Listing) -> None:
        assert self.keys is None, "only the first list is delivered as a list"
        self.keys = {item.key: item.value for item in listing.items}

    def changed(self, event: WatchEvent) -> None:
        assert self.keys is not None
        assert (event.key, event.revision) not in self.delivered, "a change was delivered twice"
        self.delivered.append((event.key, event.revision))
        if event.kind is EventKind.PUT:
            self.keys[event.key] = event.value
        else:
            self.keys.pop(event.key, None)


@asynccontextmanager
async def copied(client: EtcdCoordination, prefix: str) -> AsyncIterator[Copy]:
    copy = Copy()
    follower = Follower(client, prefix, on_list=copy.listed, on_change=copy.changed, reconnect_delay=0.2)
    task = asyncio.create_task(follower.run())
    try:
        await eventually(lambda: follower.connected, "the follower watches")
        yield copy
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def agree(copy: Copy, client: EtcdCoordination, prefix: str) -> None:
    listing = await until_served(lambda: client.list_prefix(prefix))
    actual = {item.key: item.value for item in listing.items}
    await eventually(lambda: copy.keys == actual, f"the copy equals what is there: {actual}")


async def test_a_restart_of_the_server_loses_and_doubles_nothing(
    etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    user = connect(etcd.endpoint)
    await user.put(f"{prefix}before", b"1")
    async with copied(connect(etcd.endpoint), prefix) as copy:
        for number in range(3):
            await write_once(user, f"{prefix}up{number}", b"1")
            etcd.restart()
            await write_once(user, f"{prefix}again{number}", b"1")
        await until_served(lambda: user.get(f"{prefix}before"))
        await user.delete(f"{prefix}before")
        await agree(copy, user, prefix)


async def test_compaction_while_the_stream_is_down_is_mended_by_listing_again(
    etcd: EtcdServer, connect: Connect, proxy: TcpProxy, prefix: str
) -> None:
    user = connect(etcd.endpoint)
    for key in ("same", "changed", "deleted"):
        await user.put(prefix + key, b"1")
    async with copied(connect(proxy.endpoint), prefix) as copy:
        proxy.set_mode(Mode.REFUSE)
        proxy.cut()
        await user.put(f"{prefix}changed", b"2")
        await user.delete(f"{prefix}deleted")
        revision = await user.put(f"{prefix}new", b"1")
        etcd.compact(revision)
        proxy.set_mode(Mode.FORWARD)
        await agree(copy, user, prefix)
    assert f"{prefix}same" not in {key for key, _ in copy.delivered}
