"""What is known about the effect of a call after each kind of failure."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from lcm.cloud import errors
from lcm.cloud.aws.error_mapping import is_throttling, outcome_label, translate_error

URL = "https://ec2.eu-central-1.amazonaws.com"

CODES: list[tuple[str, int, type[errors.CloudError]]] = [
    ("RequestLimitExceeded", 503, errors.CloudThrottledError),
    ("Throttling", 400, errors.CloudThrottledError),
    ("ThrottlingException", 400, errors.CloudThrottledError),
    ("TooManyRequestsException", 429, errors.CloudThrottledError),
    ("SomethingNew", 429, errors.CloudThrottledError),
    ("InsufficientInstanceCapacity", 500, errors.InsufficientCapacityError),
    ("InsufficientHostCapacity", 400, errors.InsufficientCapacityError),
    ("InsufficientFreeAddressesInSubnet", 400, errors.InsufficientCapacityError),
    ("IdempotentInstanceTerminated", 400, errors.LaunchTokenSpentError),
    ("IdempotentParameterMismatch", 400, errors.LaunchTokenMismatchError),
    ("InvalidInstanceID.NotFound", 400, errors.InstanceNotFoundError),
    ("InvalidInstanceID.Malformed", 400, errors.InvalidCloudRequestError),
    ("IncorrectInstanceState", 400, errors.IncorrectInstanceStateError),
    ("UnauthorizedOperation", 403, errors.CloudAccessDeniedError),
    ("AuthFailure", 401, errors.CloudAuthenticationError),
    ("ExpiredToken", 403, errors.CloudAuthenticationError),
    ("RequestExpired", 400, errors.CloudAuthenticationError),
    ("InvalidClientTokenId", 403, errors.CloudAuthenticationError),
    ("SignatureDoesNotMatch", 403, errors.CloudAuthenticationError),
    ("OperationNotPermitted", 400, errors.InstanceProtectedError),
    ("OptInRequired", 401, errors.CloudAccessDeniedError),
    ("Blocked", 400, errors.CloudAccessDeniedError),
    ("ExpiredTokenException", 403, errors.CloudAuthenticationError),
    ("IncompleteSignature", 403, errors.CloudAuthenticationError),
    ("InvalidSignatureException", 403, errors.CloudAuthenticationError),
    ("MissingAuthenticationToken", 403, errors.CloudAuthenticationError),
    ("RequestTimeTooSkewed", 403, errors.CloudAuthenticationError),
    ("UnrecognizedClientException", 403, errors.CloudAuthenticationError),
    ("PendingVerification", 400, errors.CloudAuthenticationError),
    ("VcpuLimitExceeded", 400, errors.QuotaExceededError),
    ("InstanceLimitExceeded", 400, errors.QuotaExceededError),
    ("VolumeLimitExceeded", 400, errors.QuotaExceededError),
    ("InvalidAMIID.NotFound", 400, errors.InvalidCloudRequestError),
    ("InvalidSubnetID.NotFound", 400, errors.InvalidCloudRequestError),
    ("InvalidParameterValue", 400, errors.InvalidCloudRequestError),
    ("InvalidKeyPair.NotFound", 400, errors.InvalidCloudRequestError),
    ("MissingParameter", 400, errors.InvalidCloudRequestError),
    ("UnknownParameter", 400, errors.InvalidCloudRequestError),
    ("Unsupported", 400, errors.UnsupportedInZoneError),
    ("FilterLimitExceeded", 400, errors.InvalidCloudRequestError),
    ("NobodyHasHeardOfIt", 400, errors.CloudRefusedError),
]
SERVER_FAILURES = [("InternalError", 500), ("Unavailable", 503), ("ServiceUnavailable", 503), ("NewOne", 502)]


def refusal(code: str, status: int, operation: str = "RunInstances", message: str = "no") -> boto.ClientError:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(answer, operation)


def kind_of(error: Exception, *, mutating: bool) -> type[errors.CloudError]:
    return type(translate_error(error, operation="RunInstances", region="eu-central-1", mutating=mutating))


@pytest.mark.parametrize(("code", "status", "kind"), CODES)
@pytest.mark.parametrize("mutating", [True, False])
def test_a_refusal_is_definite(code: str, status: int, kind: type[errors.CloudError], mutating: bool) -> None:
    assert kind_of(refusal(code, status), mutating=mutating) is kind


@pytest.mark.parametrize(("code", "status"), SERVER_FAILURES)
def test_a_server_that_failed_may_have_done_it(code: str, status: int) -> None:
    assert kind_of(refusal(code, status), mutating=True) is errors.CloudOutcomeUnknownError
    assert kind_of(refusal(code, status), mutating=False) is errors.CloudUnreachableError


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
def test_a_call_that_was_never_sent_changed_nothing(error: Exception) -> None:
    assert kind_of(error, mutating=True) is errors.CloudUnreachableError
    assert kind_of(error, mutating=False) is errors.CloudUnreachableError


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
def test_a_call_without_a_response_has_an_unknown_outcome(error: Exception) -> None:
    assert kind_of(error, mutating=True) is errors.CloudOutcomeUnknownError
    assert kind_of(error, mutating=False) is errors.CloudUnreachableError


@pytest.mark.parametrize(
    "error",
    [
        boto.NoCredentialsError(),
        boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        boto.CredentialRetrievalError(provider="process", error_msg="no"),
        boto.ProfileNotFound(profile="absent"),
    ],
)
def test_missing_credentials_are_no_refusal(error: Exception) -> None:
    assert kind_of(error, mutating=True) is errors.CloudAuthenticationError


@pytest.mark.parametrize(
    "code", ["RequestExpired", "ExpiredToken", "AuthFailure", "SignatureDoesNotMatch", "InvalidClientTokenId"]
)
def test_a_caller_who_cannot_prove_who_he_is_was_not_refused(code: str) -> None:
    assert not issubclass(kind_of(refusal(code, 400), mutating=True), errors.CloudRefusedError)


def test_an_image_that_is_not_shared_is_denied_for_good() -> None:
    error = refusal("AuthFailure", 400, message="Not authorized for images: [ami-1]")
    assert kind_of(error, mutating=True) is errors.CloudAccessDeniedError


def test_only_a_launch_has_other_zones_to_try() -> None:
    error = translate_error(
        refusal("Unsupported", 400, operation="StopInstances"), operation="StopInstances", region="r", mutating=True
    )
    assert type(error) is errors.InvalidCloudRequestError


def test_a_role_that_cannot_be_assumed_is_no_answer_to_the_call() -> None:
    """Nobody has judged the launch, so it is not refused."""
    error = translate_error(
        refusal("AccessDenied", 403, operation="AssumeRole"), operation="RunInstances", region="r", mutating=True
    )
    assert type(error) is errors.CloudAuthenticationError


def test_parameters_that_do_not_fit_are_invalid() -> None:
    assert kind_of(boto.ParamValidationError(report="no"), mutating=True) is errors.InvalidCloudRequestError


def test_a_failure_before_the_call_is_not_a_failure_of_the_call() -> None:
    """A role could not be assumed because of a server error: the launch itself was never sent."""
    error = translate_error(
        refusal("InternalError", 500, operation="AssumeRole"), operation="RunInstances", region="r", mutating=True
    )
    assert type(error) is errors.CloudUnreachableError
    assert "AssumeRole" in str(error)


def test_the_message_says_what_where_and_why_on_one_line() -> None:
    message = "You are not authorized.\nEncoded authorization failure message: " + "x" * 5000
    error = translate_error(
        refusal("UnauthorizedOperation", 403, operation="StopInstances", message=message),
        operation="StopInstances",
        region="eu-central-1",
        mutating=True,
    )
    assert str(error) == "StopInstances in eu-central-1: UnauthorizedOperation: You are not authorized."
    assert error.code == "UnauthorizedOperation"
    assert error.operation == "StopInstances"


def test_throttling_is_recognized_in_a_response() -> None:
    assert is_throttling({"Error": {"Code": "RequestLimitExceeded"}})
    assert is_throttling({"ResponseMetadata": {"HTTPStatusCode": 429}})
    assert not is_throttling({"ResponseMetadata": {"HTTPStatusCode": 200}})
    assert not is_throttling({"Error": {"Code": "InternalError"}})


def test_every_error_has_a_word_for_metrics() -> None:
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.CloudError)
    ]
    assert {outcome_label(kind("x")) for kind in kinds} >= {"throttled", "unreachable", "outcome_unknown", "refused"}
