"""What is known after each way in which a call can fail."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from lcm.cloud import errors
from lcm.cloud.aws.error_mapping import is_throttling, outcome_of, translate

URL = "https://ec2.eu-central-1.amazonaws.com"

CODES: list[tuple[str, int, type[errors.CloudError]]] = [
    ("RequestLimitExceeded", 503, errors.Throttled),
    ("Throttling", 400, errors.Throttled),
    ("ThrottlingException", 400, errors.Throttled),
    ("TooManyRequestsException", 429, errors.Throttled),
    ("SomethingNew", 429, errors.Throttled),
    ("InsufficientInstanceCapacity", 500, errors.CapacityLacking),
    ("InsufficientHostCapacity", 400, errors.CapacityLacking),
    ("InsufficientFreeAddressesInSubnet", 400, errors.CapacityLacking),
    ("IdempotentInstanceTerminated", 400, errors.TokenSpent),
    ("IdempotentParameterMismatch", 400, errors.TokenMismatch),
    ("InvalidInstanceID.NotFound", 400, errors.InstanceNotFound),
    ("InvalidInstanceID.Malformed", 400, errors.InvalidRequest),
    ("IncorrectInstanceState", 400, errors.WrongState),
    ("UnauthorizedOperation", 403, errors.Denied),
    ("AuthFailure", 401, errors.Denied),
    ("ExpiredToken", 403, errors.Denied),
    ("RequestExpired", 400, errors.Denied),
    ("InvalidClientTokenId", 403, errors.Denied),
    ("SignatureDoesNotMatch", 403, errors.Denied),
    ("OperationNotPermitted", 400, errors.Denied),
    ("OptInRequired", 401, errors.Denied),
    ("VcpuLimitExceeded", 400, errors.QuotaExceeded),
    ("InstanceLimitExceeded", 400, errors.QuotaExceeded),
    ("VolumeLimitExceeded", 400, errors.QuotaExceeded),
    ("InvalidAMIID.NotFound", 400, errors.InvalidRequest),
    ("InvalidSubnetID.NotFound", 400, errors.InvalidRequest),
    ("InvalidParameterValue", 400, errors.InvalidRequest),
    ("InvalidKeyPair.NotFound", 400, errors.InvalidRequest),
    ("MissingParameter", 400, errors.InvalidRequest),
    ("UnknownParameter", 400, errors.InvalidRequest),
    ("Unsupported", 400, errors.InvalidRequest),
    ("FilterLimitExceeded", 400, errors.InvalidRequest),
    ("NobodyHasHeardOfIt", 400, errors.Refused),
]
SERVER_FAILURES = [("InternalError", 500), ("Unavailable", 503), ("ServiceUnavailable", 503), ("NewOne", 502)]


def refusal(code: str, status: int, operation: str = "RunInstances", message: str = "no") -> boto.ClientError:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(answer, operation)


def kind_of(error: Exception, *, mutating: bool) -> type[errors.CloudError]:
    return type(translate(error, operation="RunInstances", region="eu-central-1", mutating=mutating))


@pytest.mark.parametrize(("code", "status", "kind"), CODES)
@pytest.mark.parametrize("mutating", [True, False])
def test_a_refusal_is_definite(code: str, status: int, kind: type[errors.CloudError], mutating: bool) -> None:
    assert kind_of(refusal(code, status), mutating=mutating) is kind


@pytest.mark.parametrize(("code", "status"), SERVER_FAILURES)
def test_a_server_that_failed_may_have_done_it(code: str, status: int) -> None:
    assert kind_of(refusal(code, status), mutating=True) is errors.OutcomeUnknown
    assert kind_of(refusal(code, status), mutating=False) is errors.Unreachable


@pytest.mark.parametrize(
    "error",
    [
        boto.EndpointConnectionError(endpoint_url=URL),
        boto.ConnectTimeoutError(endpoint_url=URL),
        boto.ProxyConnectionError(proxy_url="http://proxy"),
        boto.SSLError(endpoint_url=URL, error=ssl.SSLCertVerificationError("wrong certificate")),
        boto.SSLError(endpoint_url=URL, error=OSError("[SSL: CERTIFICATE_VERIFY_FAILED]")),
    ],
)
def test_what_was_never_sent_has_changed_nothing(error: Exception) -> None:
    assert kind_of(error, mutating=True) is errors.Unreachable
    assert kind_of(error, mutating=False) is errors.Unreachable


@pytest.mark.parametrize(
    "error",
    [
        boto.ReadTimeoutError(endpoint_url=URL),
        boto.ConnectionClosedError(endpoint_url=URL),
        boto.HTTPClientError(error=OSError("gone")),
        boto.SSLError(endpoint_url=URL, error=OSError("unexpected end")),
        boto.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        ResponseParserError("not XML"),
        ConnectionResetError("reset"),
    ],
)
def test_what_was_sent_and_not_answered_may_have_happened(error: Exception) -> None:
    assert kind_of(error, mutating=True) is errors.OutcomeUnknown
    assert kind_of(error, mutating=False) is errors.Unreachable


@pytest.mark.parametrize(
    "error",
    [
        boto.NoCredentialsError(),
        boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        boto.CredentialRetrievalError(provider="process", error_msg="no"),
        boto.ProfileNotFound(profile="absent"),
    ],
)
def test_missing_credentials_are_a_denial(error: Exception) -> None:
    assert kind_of(error, mutating=True) is errors.Denied


def test_parameters_that_do_not_fit_are_invalid() -> None:
    assert kind_of(boto.ParamValidationError(report="no"), mutating=True) is errors.InvalidRequest


def test_a_failure_on_the_way_to_the_call_is_not_the_calls() -> None:
    """A role that cannot be assumed because its server failed: the launch itself was never sent."""
    error = translate(
        refusal("InternalError", 500, operation="AssumeRole"), operation="RunInstances", region="r", mutating=True
    )
    assert type(error) is errors.Unreachable
    assert "AssumeRole" in str(error)


def test_the_message_says_what_where_and_why_on_one_line() -> None:
    message = "You are not authorized.\nEncoded authorization failure message: " + "x" * 5000
    error = translate(
        refusal("UnauthorizedOperation", 403, operation="StopInstances", message=message),
        operation="StopInstances",
        region="eu-central-1",
        mutating=True,
    )
    assert str(error) == "StopInstances in eu-central-1: UnauthorizedOperation: You are not authorized."
    assert error.code == "UnauthorizedOperation"
    assert error.operation == "StopInstances"


def test_throttling_is_recognised_in_an_answer() -> None:
    assert is_throttling({"Error": {"Code": "RequestLimitExceeded"}})
    assert is_throttling({"ResponseMetadata": {"HTTPStatusCode": 429}})
    assert not is_throttling({"ResponseMetadata": {"HTTPStatusCode": 200}})
    assert not is_throttling({"Error": {"Code": "InternalError"}})


def test_every_error_has_a_word_for_metrics() -> None:
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.CloudError)
    ]
    assert {outcome_of(kind("x")) for kind in kinds} >= {"throttled", "unreachable", "outcome_unknown", "refused"}
