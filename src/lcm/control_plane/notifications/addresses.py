"""Which hosts notifications may be sent to. Names are resolved once, and the connection goes to a checked address."""

from __future__ import annotations

import asyncio
import fnmatch
import ipaddress
import socket
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_SITE_LOCAL = ipaddress.IPv6Network("fec0::/10")  # private, although `is_global` says otherwise


_MAX_LOOKUPS: Final = 250
"""More than there may be subscriptions."""


class AddressDeniedError(OSError):
    """Notifications must not be sent to this host; the message says what to do."""


class AllowedHosts:
    """Without entries, every host with public addresses only. With entries, only these, also with private addresses.

    An entry is a host name, a pattern such as *.example.com, an address, or a network such as 10.0.0.0/8. Link-local
    addresses, of which one is the cloud's metadata service, must be listed as address or network.
    """

    def __init__(self, entries: Sequence[str] = (), resolver: Resolver | None = None) -> None:
        self._names: list[str] = []
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                self._names.append(entry.lower().rstrip("."))
        self._resolver = resolver or NameLookups().resolve

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host that may be connected to; raises `AddressDeniedError` if one of them may not."""
        listed = self._is_listed(host)
        found = [ipaddress.ip_address(address.partition("%")[0]) for address in await self._resolver(host, port)]
        if not found:
            raise OSError(f"{host} has no address")
        for address in found:
            self._check(host, address, listed=listed)
        return [str(address) for address in found]

    def _is_listed(self, host: str) -> bool:
        name = host.lower().rstrip(".")
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._names)

    def _check(self, host: str, address: _Address, *, listed: bool) -> None:
        checked = _carried_ipv4(address) or address
        if any(checked in network for network in self._networks):
            return
        if checked.is_link_local or checked.is_multicast or checked.is_unspecified:
            raise AddressDeniedError(f"{host} is at {checked}, an address that notifications are not sent to")
        if listed:
            return
        if self._names or self._networks:
            raise AddressDeniedError(
                f"{host} is not in NOTIFY_ALLOWED_HOSTS, which names all hosts that are allowed; add it there"
            )
        if not checked.is_global or checked.is_reserved or checked in _SITE_LOCAL:
            raise AddressDeniedError(f"{host} is at {checked}, which is not public; add it to NOTIFY_ALLOWED_HOSTS")


def _carried_ipv4(address: _Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address at which packets to an IPv6 address end: a mapped one, or that behind a translator or tunnel."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


class NameLookups:
    """Names that the system resolves, each in a thread of its own.

    The system's call cannot be ended: a name whose server does not respond keeps its thread when nobody waits any more.
    Whoever asks for the name meanwhile waits for the same call. So a name takes one thread at a time, and delays no
    other name, as it would in the few threads that the loop has for this.
    """

    def __init__(self, look_up: Callable[[str, int], Sequence[str]] | None = None, limit: int = _MAX_LOOKUPS) -> None:
        self._look_up = look_up or look_up_addresses
        self._limit = limit
        self._running: dict[str, asyncio.Future[Sequence[str]]] = {}

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host; raises `OSError`."""
        found = self._running.get(host)
        if found is None:
            if len(self._running) >= self._limit:
                raise OSError(f"{host} cannot be resolved now: the name servers of {self._limit} others do not respond")
            loop = asyncio.get_running_loop()
            found = self._running[host] = loop.create_future()
            # A daemon: the process must be able to end while a name server hangs.
            thread = Thread(target=self._work, args=(loop, found, host, port), name=f"lookup {host}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no thread is left
                del self._running[host]
                raise OSError(f"{host} cannot be resolved now: {error}") from error
        return await asyncio.shield(found)

    def _work(
        self, loop: asyncio.AbstractEventLoop, found: asyncio.Future[Sequence[str]], host: str, port: int
    ) -> None:
        addresses: Sequence[str] = ()
        problem: OSError | None = OSError(f"{host} cannot be resolved")
        try:
            addresses, problem = self._look_up(host, port), None
        except OSError as error:
            problem = error
        finally:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._finish, host, found, addresses, problem)

    def _finish(
        self, host: str, found: asyncio.Future[Sequence[str]], addresses: Sequence[str], problem: OSError | None
    ) -> None:
        self._running.pop(host, None)
        if problem is None:
            found.set_result(addresses)
        else:
            found.set_exception(problem)
            found.exception()  # retrieved: perhaps nobody waits any more


def look_up_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses of a host as the system resolves it, which may block for long; raises `OSError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host} is not a host name") from error
    except socket.gaierror as error:
        raise OSError(f"{host} cannot be resolved: {error.strerror}") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))
