"""How a CML server proves its identity.

CML comes with a self-signed certificate that names no host. Therefore a certificate can be pinned: only that
certificate is accepted, whatever its name. The one with which a worker's CML first says that it is ready is pinned for
that worker: a server that still boots may present another one. Pins are SHA-256 fingerprints, kept with the worker.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.cml.errors import CMLNotReadyError, CMLTlsError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class CaBundle:
    """Signed by a CA of this file, or of the system if no file is given, and issued for the host name."""

    path: Path | None = None


@dataclass(frozen=True)
class PinnedCertificate:
    """Exactly this certificate (PEM)."""

    pem: str


@dataclass(frozen=True)
class PinPerServer:
    """For each server only the certificate that was pinned for it.

    Before that a server may be asked whether it is ready, but nothing secret is sent to it.
    """


@dataclass(frozen=True)
class Insecure:
    """No verification. For test environments."""


TrustPolicy = CaBundle | PinnedCertificate | PinPerServer | Insecure
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
