"""What the etcd adapter makes of errors: above all, whether a write may have happened."""

from __future__ import annotations

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from lcm.coordination import Denied, Unavailable
from lcm.coordination.etcd.errors import MaybeDone, Meaning, NotDone, all_failed, in_words, meaning


def error(code: StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details=details)


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        # Sent, and then no word: only a look can tell.
        (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", Meaning.UNKNOWN),
        (StatusCode.UNAVAILABLE, "Socket closed", Meaning.UNKNOWN),
        (StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer", Meaning.UNKNOWN),
        (StatusCode.UNAVAILABLE, "etcdserver: request timed out", Meaning.UNKNOWN),
        (StatusCode.UNAVAILABLE, "etcdserver: leader changed", Meaning.UNKNOWN),
        (StatusCode.UNAVAILABLE, "etcdserver: server stopped", Meaning.UNKNOWN),
        (StatusCode.UNKNOWN, "raft proposal dropped", Meaning.UNKNOWN),
        (StatusCode.INTERNAL, "", Meaning.UNKNOWN),
        (StatusCode.CANCELLED, "", Meaning.UNKNOWN),
        # Never sent, or turned away at the door.
        (StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: x", Meaning.NOT_DONE),
        (StatusCode.UNAVAILABLE, "errors resolving a:1: [y]", Meaning.NOT_DONE),
        (StatusCode.UNAVAILABLE, "etcdserver: no leader", Meaning.NOT_DONE),
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests", Meaning.NOT_DONE),
        # Answers.
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Meaning.REFUSED),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large", Meaning.REFUSED),
        (StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max (9 vs. 8)", Meaning.TOO_LARGE),
        (StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", Meaning.COMPACTED),
        (StatusCode.NOT_FOUND, "etcdserver: requested lease not found", Meaning.LEASE_NOT_FOUND),
        (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", Meaning.DENIED),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password", Meaning.DENIED),
        (StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token", Meaning.SIGN_IN_AGAIN),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", Meaning.SIGN_IN_AGAIN),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", Meaning.SIGN_IN_AGAIN),
    ],
)
def test_what_an_error_means(code: StatusCode, details: str, expected: Meaning) -> None:
    assert meaning(error(code, details)) is expected


def test_an_error_without_words_is_told_by_its_code() -> None:
    assert in_words(error(StatusCode.INTERNAL, "")) == "internal"


def test_certificates_are_denied_only_if_they_are_all_that_is_wrong() -> None:
    refused = NotDone("etcd a:1: TLS", refused=True)
    assert isinstance(all_failed([refused, refused]), Denied)
    for other in (NotDone("etcd b:1: connection refused"), MaybeDone("etcd b:1: no answer in time")):
        failure = all_failed([refused, other])
        assert isinstance(failure, Unavailable)
        assert str(failure) == f"{refused}; {other}"
