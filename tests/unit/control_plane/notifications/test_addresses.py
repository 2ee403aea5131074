"""Which hosts notifications may go to."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.notifications.addresses import (
    AddressDeniedError,
    AllowedHosts,
    NameLookups,
    look_up_addresses,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PUBLIC = "93.184.216.34"


def allowed(*entries: str, at: Sequence[str] = (PUBLIC,)) -> AllowedHosts:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return at

    return AllowedHosts(entries, resolve)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.9",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::10.1.2.3",  # behind a translator (NAT64)
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a01:203",
        "2002:a01:203::1",  # behind a tunnel (6to4)
        "::10.1.2.3",
        "fec0::1",
    ],
)
async def test_without_a_list_only_public_addresses_are_allowed(address: str) -> None:
    with pytest.raises(AddressDeniedError):
        await allowed(at=[address]).resolve("example.com", 443)
    with pytest.raises(AddressDeniedError):  # one of several is enough to deny the host
        await allowed(at=[PUBLIC, address]).resolve("example.com", 443)


async def test_public_hosts_are_allowed_without_a_list() -> None:
    public = [PUBLIC, "2606:4700::1111", "64:ff9b::5db8:d822"]
    assert await allowed(at=public).resolve("example.com", 443) == public


async def test_with_a_list_only_its_hosts_are_allowed_also_at_private_addresses() -> None:
    hosts = allowed("hooks.internal", "*.example.com", at=["10.1.2.3"])
    assert await hosts.resolve("HOOKS.internal.", 443) == ["10.1.2.3"]
    assert await hosts.resolve("a.example.com", 443) == ["10.1.2.3"]
    for host in ("example.com.evil.test", "evilexample.com", "other.test"):
        with pytest.raises(AddressDeniedError, match=r"not in NOTIFY_ALLOWED_HOSTS"):
            await hosts.resolve(host, 443)


async def test_networks_are_allowed_by_address() -> None:
    assert await allowed("10.0.0.0/8", at=["10.1.2.3"]).resolve("x.test", 443) == ["10.1.2.3"]
    with pytest.raises(AddressDeniedError):
        await allowed("10.0.0.0/8", at=["11.1.2.3"]).resolve("x.test", 443)


async def test_the_metadata_service_must_be_listed_by_address() -> None:
    with pytest.raises(AddressDeniedError):
        await allowed("metadata.test", at=["169.254.169.254"]).resolve("metadata.test", 80)
    assert await allowed("169.254.169.254", at=["169.254.169.254"]).resolve("x.test", 80) == ["169.254.169.254"]


async def test_a_host_without_addresses_is_an_error_of_the_network() -> None:
    with pytest.raises(OSError, match="no address"):
        await allowed(at=[]).resolve("example.com", 443)


def test_a_name_that_cannot_be_resolved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(OSError, match=r"^hooks\.internal cannot be resolved: Name or service not known$"):
        look_up_addresses("hooks.internal", 443)


def test_names_whose_servers_hang_delay_no_other_and_keep_one_thread_each() -> None:
    """On a real loop: the thread is what is tested. It is red by a name that is never resolved, not by a slow one."""
    released, begun = threading.Event(), list[str]()

    def look_up(host: str, port: int) -> Sequence[str]:
        begun.append(host)
        if host.startswith("hangs"):
            released.wait()
        if host == "unknown":
            raise OSError("unknown cannot be resolved")
        return [PUBLIC]

    async def scenario() -> None:
        lookups = NameLookups(look_up, limit=101)
        callers = [asyncio.create_task(lookups.resolve(f"hangs-{number}", 443)) for number in range(100)]
        assert await lookups.resolve("healthy", 443) == [PUBLIC]
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        again = asyncio.create_task(lookups.resolve("hangs-0", 443))  # waits for the call that runs already
        with pytest.raises(OSError, match="unknown cannot be resolved"):
            await lookups.resolve("unknown", 443)
        assert begun.count("hangs-0") == 1
        assert len(begun) == 102
        last = asyncio.create_task(lookups.resolve("hangs-too", 443))
        await asyncio.wait({last}, timeout=0)
        with pytest.raises(OSError, match="name servers of 101 others do not respond"):
            await lookups.resolve("healthy", 443)
        released.set()
        assert await again == await last == [PUBLIC]

    try:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(asyncio.wait_for(scenario(), 60))
    finally:
        released.set()


async def test_a_host_whose_lookup_finds_no_thread_is_resolved_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name must not be taken for one that is being resolved: nobody would ever end that."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups = NameLookups(lambda *_: [PUBLIC])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match=r"^example\.com cannot be resolved now: can't start new thread$"):
            await asyncio.wait_for(lookups.resolve("example.com", 443), 60)
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.run)
    assert await asyncio.wait_for(lookups.resolve("example.com", 443), 60) == [PUBLIC]
