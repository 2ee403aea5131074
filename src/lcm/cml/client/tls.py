"""How a CML server proves who it is.

CML comes with a certificate that it signed itself and that names no host. So a certificate can be pinned: then it, and
no other, is accepted, whatever name it bears. Where nobody handed over the certificate, the first one that a worker
shows is pinned for that worker.
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
    """Where certificates seen first are kept, by the worker's address. Whoever replaces a worker removes its pin."""

    def get(self, address: str) -> str | None:
        """The certificate (PEM) of a worker, if one is known."""

    def put(self, address: str, pem: str) -> None:
        """Keep the certificate that a worker showed first."""


class MemoryPinStore:
    """Pins in memory."""

    def __init__(self) -> None:
        self._pems: dict[str, str] = {}

    def get(self, address: str) -> str | None:
        return self._pems.get(address)

    def put(self, address: str, pem: str) -> None:
        self._pems[address] = pem

    def drop(self, address: str) -> None:
        """The worker was replaced: its successor shows a certificate of its own."""
        self._pems.pop(address, None)


@dataclass(frozen=True)
class CaBundle:
    """Signed by a CA of this file, or of the machine's own when there is none, and for the name that is dialled."""

    path: Path | None = None


@dataclass(frozen=True)
class PinnedCertificate:
    """Exactly this certificate (PEM)."""

    pem: str


@dataclass(frozen=True)
class TrustOnFirstUse:
    """Whatever the worker showed first, and from then on nothing else."""

    pins: PinStore


@dataclass(frozen=True)
class Insecure:
    """Nothing is proven. For laboratories."""


TrustPolicy = CaBundle | PinnedCertificate | TrustOnFirstUse | Insecure
ResolvedTrust = CaBundle | PinnedCertificate | Insecure
TlsConnector = Callable[[str, int, ssl.SSLContext], Awaitable[asyncio.StreamWriter]]


def make_tls_context(trust: ResolvedTrust) -> ssl.SSLContext:
    """The TLS context of a mode; raises ValueError when its certificates cannot be used."""
    if isinstance(trust, Insecure):
        return _unverified_context()
    if isinstance(trust, PinnedCertificate):
        try:
            context = ssl.create_default_context(cadata=trust.pem)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"the pinned certificate is not in PEM form: {error}") from None
        context.check_hostname = False
        # The pin may have been signed by a CA that we do not have, and CML's own lacks extensions that newer
        # versions of Python ask for; it is compared as a whole, so neither matters.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context
    try:
        return ssl.create_default_context(cafile=trust.path)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"the CA bundle {trust.path} cannot be used: {error}") from None


async def open_tls_connection(host: str, port: int, context: ssl.SSLContext) -> asyncio.StreamWriter:
    """A TLS connection without anybody in between."""
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    return writer


async def fetch_certificate(
    address: str, host: str, port: int, timeout: float, open_tls: TlsConnector = open_tls_connection
) -> str:
    """The certificate (PEM) that a server shows. Nothing but the handshake is exchanged."""
    try:
        async with asyncio.timeout(timeout):
            writer = await open_tls(host, port, _unverified_context())
    except ssl.SSLError as error:
        raise CMLTlsError(address, f"no certificate to be had: {error}") from error
    except (OSError, TimeoutError) as error:
        raise CMLNotReadyError(
            address, f"no connection to look at its certificate ({str(error) or 'timeout'})"
        ) from error
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    return ssl.DER_cert_to_PEM_cert(der)


def fingerprint(pem: str) -> str:
    """SHA-256 of a certificate, for people to compare."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def _unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
