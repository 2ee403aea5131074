"""What an error of gRPC or etcd means for the caller, and how to say it.

Two kinds of failure matter more than their many causes: `NotDone` (the request certainly had no effect) and `MaybeDone`
(it was handed to gRPC and no answer of etcd says what became of it).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import grpc

from lcm.core.coordination import CoordinationError, Denied, Unavailable

if TYPE_CHECKING:
    from grpc.aio import AioRpcError


class NotDone(Exception):
    """One endpoint could not be asked; nothing happened there. `refused` marks certificates and files at fault."""

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class MaybeDone(Exception):
    """One endpoint was asked and its answer is missing."""


class TooLarge(CoordinationError):
    """The request or its answer is longer than a message may be."""


class Meaning(Enum):
    """What an RPC's error says."""

    SIGN_IN_AGAIN = "the token is missing or no longer known"
    DENIED = "refused, and it would be again"
    COMPACTED = "the revision is gone"
    LEASE_NOT_FOUND = "the lease is gone"
    TOO_LARGE = "a message does not fit"
    NOT_DONE = "nothing happened here, another endpoint may do it"
    REFUSED = "etcd understood and said no"
    UNKNOWN = "no word on what happened"


# etcd's own words; the status code alone often fits several cases.
_SIGN_IN_AGAIN = ("invalid auth token", "revision of auth store is old", "user name is empty")
_NOT_DONE = ("etcdserver: no leader", "etcdserver: too many requests")
_CONNECT_FAILED = ("failed to connect to all addresses", "DNS resolution failed", "errors resolving")

_DEFINITE = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}


def connect_failed(error: AioRpcError) -> bool:
    """Whether the call died waiting for a connection: gRPC tells this by text alone."""
    return any(words in (error.details() or "") for words in _CONNECT_FAILED)


def meaning(error: AioRpcError) -> Meaning:
    """Sort an RPC's error."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAUTHENTICATED or any(words in details for words in _SIGN_IN_AGAIN):
        return Meaning.SIGN_IN_AGAIN
    if code is grpc.StatusCode.PERMISSION_DENIED or "authentication failed" in details:
        return Meaning.DENIED
    if "required revision has been compacted" in details:
        return Meaning.COMPACTED
    if "requested lease not found" in details:
        return Meaning.LEASE_NOT_FOUND
    if connect_failed(error) or any(details.startswith(words) for words in _NOT_DONE):
        return Meaning.NOT_DONE
    if not details.startswith("etcdserver:") and code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Meaning.TOO_LARGE
    return Meaning.REFUSED if code in _DEFINITE else Meaning.UNKNOWN


# Parts of gRPC's error texts → what to tell the operator; the first that fits.
_IN_WORDS = (
    ("Connection refused", "connection refused"),
    ("WRONG_VERSION_NUMBER", "TLS mismatch: we speak TLS, the server answers without it"),
    ("Handshake read failed", "TLS mismatch: the server broke off the handshake (does it speak TLS?)"),
    ("certificate has expired", "TLS: the server's certificate has expired"),
    ("CERTIFICATE_VERIFY_FAILED", "TLS: the server's certificate is not signed by our CA"),
    ("Hostname Verification Check failed", "TLS: the server's certificate is for another host name"),
    ("CERTIFICATE_REQUIRED", "TLS: the server wants a client certificate"),
    ("BAD_CERTIFICATE", "TLS: the server wants a client certificate it trusts"),
    ("UNKNOWN_CA", "TLS: the server does not trust the CA of our client certificate"),
    ("handshake failed", "TLS handshake failed"),
    ("create security handshaker", "TLS: the CA, certificate or key file has no usable content"),
    ("DNS resolution failed", "the host name cannot be resolved"),
    ("Domain name not found", "the host name cannot be resolved"),
    ("No route to host", "no route to host"),
    ("Network is unreachable", "network unreachable"),
    ("Connection reset by peer", "the server reset the connection"),
    ("Socket closed", "the server closed the connection"),
    ("End of TCP stream", "the server closed the connection"),
    ("no leader", "the etcd cluster has no leader (quorum lost?)"),
    ("Deadline Exceeded", "no answer in time"),
)

_CERTIFICATE_WORDS = ("CERTIFICATE", "Hostname Verification", "UNKNOWN_CA", "create security handshaker")


def in_words(error: AioRpcError) -> str:
    """The cause, for a tired operator."""
    details = error.details() or ""
    for part, words in _IN_WORDS:
        if part in details:
            return words
    code = error.code().name.replace("_", " ").lower()
    return details.removeprefix("etcdserver: ") or code


def blames_certificate(error: AioRpcError) -> bool:
    """Whether a certificate, theirs or ours, was refused."""
    return any(words in (error.details() or "") for words in _CERTIFICATE_WORDS)


def all_failed(failures: list[NotDone | MaybeDone]) -> CoordinationError:
    """The error to raise when no endpoint did what was asked and nothing has changed."""
    text = "; ".join(str(failure) for failure in failures)
    if failures and all(isinstance(failure, NotDone) and failure.refused for failure in failures):
        return Denied(text)
    return Unavailable(text)
