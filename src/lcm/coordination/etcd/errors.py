"""What a gRPC or etcd error means for the caller, and its description.

Two kinds of failure matter more than their many causes: `NotDoneError` (the request certainly had no effect) and
`MaybeDoneError` (it was handed to gRPC and no response tells whether it had an effect).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import grpc

from lcm.core.coordination import CoordinationDeniedError, CoordinationError, CoordinationUnavailableError

if TYPE_CHECKING:
    from grpc.aio import AioRpcError


class NotDoneError(Exception):
    """The request had no effect at this endpoint. `denied` marks a problem with certificates or files."""

    def __init__(self, text: str, *, denied: bool = False) -> None:
        super().__init__(text)
        self.denied = denied


class MaybeDoneError(Exception):
    """The request was sent to this endpoint and its response is missing."""


class MessageTooLargeError(CoordinationError):
    """The request or its response exceeds the message size limit."""


class FailureKind(Enum):
    """What an RPC error means."""

    SIGN_IN_AGAIN = "the token is missing or no longer known"
    DENIED = "denied, and it would be again"
    COMPACTED = "the revision is gone"
    LEASE_NOT_FOUND = "the lease is gone"
    TOO_LARGE = "a message does not fit"
    NOT_DONE = "no effect here, another endpoint may serve it"
    REJECTED = "etcd rejected the request"
    UNKNOWN = "the outcome is unknown"


# Texts of etcd; the status code alone is often ambiguous.
_REAUTHENTICATE_DETAILS = ("invalid auth token", "revision of auth store is old", "user name is empty")
_NOT_DONE_DETAILS = ("etcdserver: no leader", "etcdserver: too many requests")
_CONNECT_FAILURE_DETAILS = ("failed to connect to all addresses", "DNS resolution failed", "errors resolving")

_DEFINITE_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}


def is_connect_failure(error: AioRpcError) -> bool:
    """Whether the call failed while waiting for a connection: only gRPC's text says so."""
    return any(words in (error.details() or "") for words in _CONNECT_FAILURE_DETAILS)


def classify_error(error: AioRpcError) -> FailureKind:
    """What an RPC error means for the caller."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAUTHENTICATED or any(words in details for words in _REAUTHENTICATE_DETAILS):
        return FailureKind.SIGN_IN_AGAIN
    if code is grpc.StatusCode.PERMISSION_DENIED or "authentication failed" in details:
        return FailureKind.DENIED
    if "required revision has been compacted" in details:
        return FailureKind.COMPACTED
    if "requested lease not found" in details:
        return FailureKind.LEASE_NOT_FOUND
    if is_connect_failure(error) or any(details.startswith(words) for words in _NOT_DONE_DETAILS):
        return FailureKind.NOT_DONE
    if not details.startswith("etcdserver:") and code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return FailureKind.TOO_LARGE
    return FailureKind.REJECTED if code in _DEFINITE_CODES else FailureKind.UNKNOWN


# Part of gRPC's error text → description for the operator; the first match counts.
_DESCRIPTIONS = (
    ("Connection refused", "connection refused"),
    ("WRONG_VERSION_NUMBER", "TLS mismatch: we use TLS, the server does not"),
    ("Handshake read failed", "TLS mismatch: the server aborted the handshake (does it use TLS?)"),
    ("certificate has expired", "TLS: the server's certificate has expired"),
    ("CERTIFICATE_VERIFY_FAILED", "TLS: the server's certificate is not signed by our CA"),
    ("Hostname Verification Check failed", "TLS: the server's certificate is for another host name"),
    ("CERTIFICATE_REQUIRED", "TLS: the server requires a client certificate"),
    ("BAD_CERTIFICATE", "TLS: the server requires a client certificate it trusts"),
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
    ("Broken pipe", "the server closed the connection"),
    ("no leader", "the etcd cluster has no leader (quorum lost?)"),
    ("Deadline Exceeded", "no response in time"),
)

_CERTIFICATE_DETAILS = ("CERTIFICATE", "Hostname Verification", "UNKNOWN_CA", "create security handshaker")


def describe_error(error: AioRpcError) -> str:
    """The cause, for an operator."""
    details = error.details() or ""
    for part, words in _DESCRIPTIONS:
        if part in details:
            return words
    code = error.code().name.replace("_", " ").lower()
    return details.removeprefix("etcdserver: ") or code


def is_certificate_error(error: AioRpcError) -> bool:
    """Whether the server's or our certificate was rejected."""
    return any(words in (error.details() or "") for words in _CERTIFICATE_DETAILS)


def combine_failures(failures: list[NotDoneError | MaybeDoneError]) -> CoordinationError:
    """The error to raise when no endpoint served the request and nothing was changed."""
    text = "; ".join(str(failure) for failure in failures)
    if failures and all(isinstance(failure, NotDoneError) and failure.denied for failure in failures):
        return CoordinationDeniedError(text)
    return CoordinationUnavailableError(text)
