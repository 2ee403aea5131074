"""How the etcd adapter classifies errors: above all, whether a write may have happened."""

from __future__ import annotations

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from lcm.coordination.etcd.errors import (
    FailureKind,
    MaybeDoneError,
    NotDoneError,
    classify_error,
    combine_failures,
    describe_error,
)
from lcm.core.coordination import CoordinationDeniedError, CoordinationUnavailableError


def error(code: StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details=details)


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        # Sent without a response: the outcome is unknown.
        (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", FailureKind.UNKNOWN),
        (StatusCode.UNAVAILABLE, "Socket closed", FailureKind.UNKNOWN),
        (StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer", FailureKind.UNKNOWN),
        (StatusCode.UNAVAILABLE, "etcdserver: request timed out", FailureKind.UNKNOWN),
        (StatusCode.UNAVAILABLE, "etcdserver: leader changed", FailureKind.UNKNOWN),
        (StatusCode.UNAVAILABLE, "etcdserver: server stopped", FailureKind.UNKNOWN),
        (StatusCode.UNKNOWN, "raft proposal dropped", FailureKind.UNKNOWN),
        (StatusCode.INTERNAL, "", FailureKind.UNKNOWN),
        (StatusCode.CANCELLED, "", FailureKind.UNKNOWN),
        # Never sent, or rejected without an effect.
        (StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: x", FailureKind.NOT_DONE),
        (StatusCode.UNAVAILABLE, "errors resolving a:1: [y]", FailureKind.NOT_DONE),
        (StatusCode.UNAVAILABLE, "etcdserver: no leader", FailureKind.NOT_DONE),
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests", FailureKind.NOT_DONE),
        # Definite responses.
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", FailureKind.REJECTED),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large", FailureKind.REJECTED),
        (StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max (9 vs. 8)", FailureKind.TOO_LARGE),
        (StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", FailureKind.COMPACTED),
        (StatusCode.NOT_FOUND, "etcdserver: requested lease not found", FailureKind.LEASE_NOT_FOUND),
        (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", FailureKind.DENIED),
        (
            StatusCode.INVALID_ARGUMENT,
            "etcdserver: authentication failed, invalid user ID or password",
            FailureKind.DENIED,
        ),
        (StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token", FailureKind.SIGN_IN_AGAIN),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", FailureKind.SIGN_IN_AGAIN),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", FailureKind.SIGN_IN_AGAIN),
    ],
)
def test_what_an_error_means(code: StatusCode, details: str, expected: FailureKind) -> None:
    assert classify_error(error(code, details)) is expected


def test_an_error_without_details_is_described_by_its_code() -> None:
    assert describe_error(error(StatusCode.INTERNAL, "")) == "internal"


def test_certificates_are_denied_only_if_they_are_all_that_is_wrong() -> None:
    refused = NotDoneError("etcd a:1: TLS", denied=True)
    assert isinstance(combine_failures([refused, refused]), CoordinationDeniedError)
    for other in (NotDoneError("etcd b:1: connection refused"), MaybeDoneError("etcd b:1: no response in time")):
        failure = combine_failures([refused, other])
        assert isinstance(failure, CoordinationUnavailableError)
        assert str(failure) == f"{refused}; {other}"
