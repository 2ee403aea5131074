"""What leader and readers send each other arrives as it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from lcm.cloud.types import InstanceMetrics
from lcm.cml.errors import (
    CMLAuthenticationError,
    CMLCertificateChangedError,
    CMLNotReadyError,
    CMLPollerError,
)
from lcm.cml.reading import ServerQuery, ServerReading
from lcm.cml.types import (
    CMLActivity,
    CMLActivityEvent,
    Credentials,
    LicenseFeature,
    LicenseState,
    SystemInformation,
    SystemStats,
    Usage,
)
from lcm.controllers.worker.readers.messages import (
    AnyRequest,
    InvalidMessageError,
    MetricsRequest,
    ReadFailedError,
    ReadRequest,
    ReadResult,
    decode_requests,
    decode_result,
    encode_requests,
    encode_result,
)

ADDRESS = "198.18.0.2"
LICENSE = LicenseState(
    "COMPLETED",
    "IN_COMPLIANCE",
    "CML_Enterprise",
    True,
    (LicenseFeature("regid.1", "nodes", 7, "OK"),),
    "",
    datetime(2027, 1, 2, tzinfo=UTC),
    False,
)
READINGS = {
    "nothing": ServerReading(timed_out=True),
    "information": ServerReading(SystemInformation("2.9.0", True, "ab" * 32)),
    "everything": ServerReading(
        SystemInformation("2.9.0", True),
        stats=SystemStats(1, 2, None, 4, 5.5, Usage(1, 2), None),
        labs_counted=True,
        license_state=LICENSE,
        license_began=0.0,
        kvm_enabled=False,
        definitions=("iosv", "nxosv"),
    ),
    "errors": ServerReading(
        information_error=CMLCertificateChangedError(ADDRESS, "aa", "bb"),
        stats_error=CMLAuthenticationError(ADDRESS, "no such user"),
        license_error=CMLNotReadyError(ADDRESS, "HTTP 503"),
        license_began=0.0,
    ),
}


def plain(reading: ServerReading) -> dict[str, object]:
    """The parts of a reading; errors of the same type and content are equal."""
    parts = {name: getattr(reading, name) for name in ServerReading.__dataclass_fields__}
    return {name: part.__reduce__() if isinstance(part, Exception) else part for name, part in parts.items()}


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_arrives_as_it_was(name: str) -> None:
    result = decode_result(encode_result(ReadResult(7, READINGS[name])))
    assert (result.number, result.error) == (7, None)
    assert isinstance(result.value, ServerReading)
    assert plain(result.value) == plain(READINGS[name])


@pytest.mark.parametrize(
    "activity",
    [
        CMLActivity((), 0, 0),
        CMLActivity(
            (
                CMLActivityEvent("lab", datetime(2026, 1, 1, 9, 30, 0, 250, tzinfo=UTC), "user", "lab-1"),
                CMLActivityEvent("node", datetime(2026, 1, 1, 9, 31)),  # noqa: DTZ001 - a server that names no zone
            ),
            2,
            1,
        ),
    ],
)
def test_activity_arrives_as_it_was(activity: CMLActivity) -> None:
    assert decode_result(encode_result(ReadResult(1, activity))).value == activity


def test_texts_and_errors_arrive_as_they_were() -> None:
    assert decode_result(encode_result(ReadResult(1, "user-1"))).value == "user-1"
    failed = decode_result(encode_result(ReadResult(2, error=CMLPollerError(ADDRESS, "no response"))))
    assert isinstance(failed.error, CMLPollerError)
    assert str(failed.error) == "CML at 198.18.0.2: no response"


def test_metrics_and_their_errors_arrive_as_they_were() -> None:
    at = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)
    metrics = {"i-1": InstanceMetrics("i-1", at, 41.5, network_in=120_000.0), "i-2": InstanceMetrics("i-2", at)}
    assert decode_result(encode_result(ReadResult(1, metrics))).value == metrics
    assert decode_result(encode_result(ReadResult(1, {}))).value == {}
    failed = decode_result(encode_result(ReadResult(2, error=ReadFailedError("no response within 30 s"))))
    assert isinstance(failed.error, ReadFailedError)
    assert str(failed.error) == "no response within 30 s"


def test_an_error_of_a_newer_version_says_nothing_about_the_server() -> None:
    line = b'{"number":1,"text":null,"error":{"kind":"CMLMelted","arguments":["198.18.0.2","too hot"]}}'
    error = decode_result(line).error
    assert isinstance(error, CMLPollerError)
    assert error.cause == "the reader reports CMLMelted: too hot"


def test_requests_arrive_as_they_were() -> None:
    account = Credentials("admin", "secret")
    full = ServerQuery(
        ADDRESS, account, information=False, nodes_before=(3, None), license=True, definitions=True, instance_id="i-1"
    )
    requests: list[AnyRequest] = [
        ReadRequest(1, "i-1", "ab", 44.5, full),
        ReadRequest(2, "", None, 10.0, ServerQuery(ADDRESS)),
        ReadRequest(3, "i-1", None, 145.0, ServerQuery(ADDRESS, account), "get_activity_events"),
        MetricsRequest(4, "eu-west-1", "123456789012", ("i-1", "i-2"), datetime(2026, 1, 1, 9, 31, tzinfo=UTC), 30.0),
    ]
    assert decode_requests(encode_requests(requests)) == requests


def request_for(seconds: bytes) -> bytes:
    """A request with this number of seconds."""
    (known,) = json.loads(encode_requests([ReadRequest(1, "", None, 7.5, ServerQuery(ADDRESS))]))
    return json.dumps([known]).encode().replace(b"7.5", seconds)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"null", b"[3]", b'{"a":1}', b'[{"method":"deregister_license","query":{}}]'),
        *(b"[" * 100_000, b"[" + b"9" * 5_000 + b"]", b'[{"number":1,"query":{}}]'),
    ],
)
def test_other_requests_are_invalid(body: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        decode_requests(body)


@pytest.mark.parametrize("seconds", [b"0", b"-0.01", b"1e999", b"NaN", b"1" + b"0" * 400])
def test_one_request_that_is_invalid_is_its_own_result(seconds: bytes) -> None:
    """Before, the whole body was: up to fifty reads of other servers."""
    good = ReadRequest(2, "", None, 10.0, ServerQuery(ADDRESS))
    body = json.dumps([json.loads(request_for(seconds))[0], json.loads(encode_requests([good]))[0]]).encode()
    failed, decoded = decode_requests(body)
    assert decoded == good
    assert isinstance(failed, ReadResult)
    assert (failed.number, type(failed.error)) == (1, CMLPollerError)
    assert decode_result(encode_result(failed)).number == 1


def test_a_request_for_metrics_that_is_invalid_is_its_own_result() -> None:
    (failed,) = decode_requests(b'[{"number":1}]')
    assert isinstance(failed, ReadResult)
    assert isinstance(failed.error, ReadFailedError)
    assert "KeyError: 'seconds'" in str(failed.error)


@pytest.mark.parametrize(
    "line", [b"", b"3", b"{}", b'{"number":1,"error":null,"reading":{"stats":3}}', b"\xff", b"[" * 100_000]
)
def test_other_results_are_invalid(line: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        decode_result(line)
