"""How a CML server proves its identity.

CML comes with a self-signed certificate that names no host. Therefore a certificate can be pinned: only that
certificate is accepted, whatever its name. If the certificate is not known in advance, the first one that a worker
presents is pinned for that worker (trust on first use).
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lcm.cml.errors import CMLNotReadyError, CMLTlsError

if TYPE_CHECKING:
    from pathlib import Path


class PinStore(Protocol):
    """Stores pinned certificates by the worker's address. Whoever replaces a worker removes its pin."""

    def get(self, address: str) -> str | None:
        """The pinned certificate (PEM) of a worker, if there is one."""

    def put(self, address: str, pem: str) -> None:
        """Pin the first certificate of a worker."""


class MemoryPinStore:
    """Pins kept in memory."""

    def __init__(self) -> None:
        self._pems: dict[str, str] = {}

    def get(self, address: str) -> str | None:
        return self._pems.get(address)

    def put(self, address: str, pem: str) -> None:
        self._pems[address] = pem

    def drop(self, address: str) -> None:
        """Remove a pin: the worker was replaced, and its successor has another certificate."""
        self._pems.pop(address, None)


@dataclass(frozen=True)
class CaBundle:
    """Signed by a CA of this file, or of the system if no file is given, and issued for the host name."""

    path: Path | None = None


@dataclass(frozen=True)
class PinnedCertificate:
    """Exactly this certificate (PEM)."""

    pem: str


@dataclass(frozen=True)
class TrustOnFirstUse:
    """Only the certificate that the worker presented first."""

    pins: PinStore


@dataclass(frozen=True)
class Insecure:
    """No verification. For test environments."""


TrustPolicy = CaBundle | PinnedCertificate | TrustOnFirstUse | Insecure
ResolvedTrust = CaBundle | PinnedCertificate | Insecure
TlsConnector = Callable[[str, int, ssl.SSLContext], Awaitable[asyncio.StreamWriter]]


def make_tls_context(trust: ResolvedTrust) -> ssl.SSLContext:
    """The TLS context for a trust policy; raises ValueError if its certificates cannot be used."""
    if isinstance(trust, Insecure):
        return _unverified_context()
    if isinstance(trust, PinnedCertificate):
        try:
            context = ssl.create_default_context(cadata=trust.pem)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"the pinned certificate is not in PEM form: {error}") from None
        context.check_hostname = False
        # The pinned certificate may be signed by an unknown CA, and CML's own lacks extensions that newer
        # versions of Python require; the whole certificate is compared, so neither matters.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context
    try:
        return ssl.create_default_context(cafile=trust.path)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"the CA bundle {trust.path} cannot be used: {error}") from None


async def open_tls_connection(host: str, port: int, context: ssl.SSLContext) -> asyncio.StreamWriter:
    """Open a direct TLS connection."""
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    return writer


async def fetch_certificate(
    address: str, host: str, port: int, timeout: float, open_tls: TlsConnector = open_tls_connection
) -> str:
    """The certificate (PEM) that a server presents. Nothing is exchanged but the handshake."""
    try:
        async with asyncio.timeout(timeout):
            writer = await open_tls(host, port, _unverified_context())
    except ssl.SSLError as error:
        raise CMLTlsError(address, f"the certificate could not be read: {error}") from error
    except (OSError, TimeoutError) as error:
        raise CMLNotReadyError(
            address, f"cannot connect to read its certificate ({str(error) or 'timeout'})"
        ) from error
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    return ssl.DER_cert_to_PEM_cert(der)


def fingerprint(pem: str) -> str:
    """The SHA-256 fingerprint of a certificate, for manual comparison."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def _unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
