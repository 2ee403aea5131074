"""botocore's exceptions and AWS's error codes, put into the errors of clouds.

What matters is what is known of the effect. A refusal is definite. A connection that never came about has done nothing.
A call that changes things, was sent and got no sensible answer may or may not have happened.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from lcm.cloud.errors import (
    CapacityLacking,
    CloudError,
    Denied,
    InstanceNotFound,
    InvalidRequest,
    OutcomeUnknown,
    QuotaExceeded,
    Refused,
    Throttled,
    TokenMismatch,
    TokenSpent,
    Unreachable,
    WrongState,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

THROTTLING = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)

_BY_CODE: Mapping[str, type[CloudError]] = {
    **dict.fromkeys(THROTTLING, Throttled),
    **dict.fromkeys(
        (
            "InsufficientCapacity",
            "InsufficientCapacityOnHost",
            "InsufficientFreeAddressesInSubnet",
            "InsufficientHostCapacity",
            "InsufficientInstanceCapacity",
            "InsufficientReservedInstanceCapacity",
            "InsufficientVolumeCapacity",
        ),
        CapacityLacking,
    ),
    **dict.fromkeys(
        (
            "AddressLimitExceeded",
            "InstanceLimitExceeded",
            "LimitExceeded",
            "LimitExceededException",
            "NetworkInterfaceLimitExceeded",
            "ResourceLimitExceeded",
            "TagLimitExceeded",
            "VcpuLimitExceeded",
            "VolumeLimitExceeded",
        ),
        QuotaExceeded,
    ),
    **dict.fromkeys(
        (
            "AccessDenied",
            "AccessDeniedException",
            "AccountDisabled",
            "AuthFailure",
            "Blocked",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidSecurity",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
            "NotAuthorized",
            "OperationNotPermitted",
            "OptInRequired",
            "PendingVerification",
            "RequestExpired",
            "SignatureDoesNotMatch",
            "UnauthorizedOperation",
            "UnrecognizedClientException",
        ),
        Denied,
    ),
    **dict.fromkeys(("FilterLimitExceeded", "Unsupported", "UnsupportedOperation", "ValidationError"), InvalidRequest),
    "IdempotentInstanceTerminated": TokenSpent,
    "IdempotentParameterMismatch": TokenMismatch,
    "IncorrectInstanceState": WrongState,
    "IncorrectState": WrongState,
    "InvalidInstanceID.NotFound": InstanceNotFound,
}
_WRONG_PARAMETER = ("Invalid", "Missing", "Malformed", "Unknown")
_SERVER_FAILED = frozenset({"InternalError", "InternalFailure", "RequestTimeout", "ServiceUnavailable", "Unavailable"})
_TOO_MANY = 429
_SERVER_ERRORS = 500

_NEVER_SENT = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
)
_NO_CREDENTIALS = (
    boto.CredentialRetrievalError,
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.SSOError,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
)

_OUTCOMES: tuple[tuple[type[CloudError], str], ...] = (
    (Throttled, "throttled"),
    (Unreachable, "unreachable"),
    (OutcomeUnknown, "outcome_unknown"),
    (CapacityLacking, "capacity"),
    (Denied, "denied"),
    (QuotaExceeded, "quota"),
    (InvalidRequest, "invalid"),
    (InstanceNotFound, "not_found"),
)


def outcome_of(error: BaseException) -> str:
    """One word for metrics."""
    return next((word for kind, word in _OUTCOMES if isinstance(error, kind)), "refused")


def code_of(answer: Mapping[str, Any]) -> str:
    """AWS's error code in a parsed answer; empty if it is no error."""
    return str(answer.get("Error", {}).get("Code", ""))


def is_throttling(answer: Mapping[str, Any]) -> bool:
    """Whether the answer says that there were too many calls."""
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status == _TOO_MANY or code_of(answer) in THROTTLING


def translate(error: Exception, *, operation: str, region: str, mutating: bool) -> CloudError:
    """The cloud error that says what is known after this exception."""
    if isinstance(error, boto.ClientError):
        # A role's credentials are fetched on the way to the call itself, which was then not sent.
        on_the_way = error.operation_name != operation
        kind = _refusal(error, mutating and not on_the_way)
        code = code_of(error.response)
        text = _without_encoding(str(error.response.get("Error", {}).get("Message", "")))
        reason = f"{error.operation_name}: {code}: {text}" if on_the_way else f"{code}: {text}"
    else:
        kind, code, reason = _of_botocore(error, mutating), type(error).__name__, " ".join(str(error).split())
    return kind(f"{operation} in {region}: {reason}", code=code, operation=operation)


def _refusal(error: boto.ClientError, mutating: bool) -> type[CloudError]:
    answer: Mapping[str, Any] = error.response
    code = code_of(answer)
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status == _TOO_MANY:
        return Throttled
    if status >= _SERVER_ERRORS or code in _SERVER_FAILED:
        return OutcomeUnknown if mutating else Unreachable
    return InvalidRequest if code.startswith(_WRONG_PARAMETER) else Refused


def _of_botocore(error: Exception, mutating: bool) -> type[CloudError]:
    if isinstance(error, _NO_CREDENTIALS):
        return Denied
    if isinstance(error, _NEVER_SENT) or _wrong_certificate(error):
        return Unreachable
    if isinstance(error, (boto.HTTPClientError, boto.IncompleteReadError, ResponseParserError, OSError)):
        return OutcomeUnknown if mutating else Unreachable
    # What is left is raised before anything is sent: parameters that do not fit the operation's model.
    return InvalidRequest


def _wrong_certificate(error: Exception) -> bool:
    """Refused during the handshake: not a byte of the request was sent."""
    if not isinstance(error, boto.SSLError):
        return False
    cause = error.kwargs.get("error")
    return isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(cause)


def _without_encoding(message: str) -> str:
    """EC2 appends kilobytes that only its own service can decode."""
    return " ".join(message.split("Encoded authorization failure message", maxsplit=1)[0].split())
