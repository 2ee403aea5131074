"""Maps exceptions of botocore and error codes of AWS to `lcm.cloud.errors`.

What matters is what is known about the effect. A rejection is definite. A connection that was never established has
changed nothing. A mutating call that was sent and got no valid response may or may not have taken effect.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from lcm.cloud.error_codes import THROTTLING_CODES, error_class
from lcm.cloud.errors import (
    CloudAccessDeniedError,
    CloudAuthenticationError,
    CloudError,
    CloudOutcomeUnknownError,
    CloudRefusedError,
    CloudThrottledError,
    CloudUnreachableError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    InvalidCloudRequestError,
    QuotaExceededError,
    UnsupportedInZoneError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_INVALID_PARAMETER_PREFIXES = ("Invalid", "Missing", "Malformed", "Unknown")
_SERVER_FAILURE_CODES = frozenset(
    {"InternalError", "InternalFailure", "RequestTimeout", "ServiceUnavailable", "Unavailable"}
)
_HTTP_TOO_MANY_REQUESTS = 429
_HTTP_SERVER_ERROR = 500

_NEVER_SENT_ERRORS = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
)
_CREDENTIAL_ERRORS = (
    boto.CredentialRetrievalError,
    boto.MetadataRetrievalError,
    boto.NoAuthTokenError,
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.SSOError,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
)

_OUTCOME_LABELS: tuple[tuple[type[CloudError], str], ...] = (
    (CloudThrottledError, "throttled"),
    (CloudUnreachableError, "unreachable"),
    (CloudOutcomeUnknownError, "outcome_unknown"),
    (InsufficientCapacityError, "capacity"),
    (UnsupportedInZoneError, "unsupported"),
    (CloudAuthenticationError, "unauthenticated"),
    (CloudAccessDeniedError, "denied"),
    (QuotaExceededError, "quota"),
    (InvalidCloudRequestError, "invalid"),
    (InstanceNotFoundError, "not_found"),
)


def outcome_label(error: BaseException) -> str:
    """Return the label of the outcome for metrics."""
    return next((word for kind, word in _OUTCOME_LABELS if isinstance(error, kind)), "refused")


def error_code(response: Mapping[str, Any]) -> str:
    """Return the error code of a parsed response; empty if it is not an error."""
    return str(response.get("Error", {}).get("Code", ""))


def is_throttling(response: Mapping[str, Any]) -> bool:
    """Whether the response reports throttling."""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status == _HTTP_TOO_MANY_REQUESTS or error_code(response) in THROTTLING_CODES


def translate_error(error: Exception, *, operation: str, region: str, mutating: bool) -> CloudError:
    """Translate an exception to the cloud error that says what is known about the effect of the call."""
    if isinstance(error, boto.ClientError):
        # The credentials of a role are fetched before the call itself, which was then not sent: whatever STS says is
        # no answer to the call.
        on_the_way = error.operation_name != operation
        kind = _class_of_client_error(error, mutating and not on_the_way)
        if on_the_way and issubclass(kind, CloudRefusedError):
            kind = CloudAuthenticationError
        code = error_code(error.response)
        text = _strip_encoded_message(str(error.response.get("Error", {}).get("Message", "")))
        reason = f"{error.operation_name}: {code}: {text}" if on_the_way else f"{code}: {text}"
    else:
        kind, code, reason = (
            _class_of_botocore_error(error, mutating),
            type(error).__name__,
            " ".join(str(error).split()),
        )
    return kind(f"{operation} in {region}: {reason}", code=code, operation=operation)


def _class_of_client_error(error: boto.ClientError, mutating: bool) -> type[CloudError]:
    response: Mapping[str, Any] = error.response
    code = error_code(response)
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    known = error_class(code, error.operation_name, str(response.get("Error", {}).get("Message", "")))
    if known is not None:
        return known
    if status == _HTTP_TOO_MANY_REQUESTS:
        return CloudThrottledError
    if status >= _HTTP_SERVER_ERROR or code in _SERVER_FAILURE_CODES:
        return CloudOutcomeUnknownError if mutating else CloudUnreachableError
    return InvalidCloudRequestError if code.startswith(_INVALID_PARAMETER_PREFIXES) else CloudRefusedError


def _class_of_botocore_error(error: Exception, mutating: bool) -> type[CloudError]:
    if isinstance(error, _CREDENTIAL_ERRORS):
        return CloudAuthenticationError
    if isinstance(error, _NEVER_SENT_ERRORS) or _is_certificate_error(error):
        return CloudUnreachableError
    if isinstance(error, (boto.HTTPClientError, boto.IncompleteReadError, ResponseParserError, OSError)):
        return CloudOutcomeUnknownError if mutating else CloudUnreachableError
    # The rest is raised before anything is sent: parameters that do not match the service model.
    return InvalidCloudRequestError


def _is_certificate_error(error: Exception) -> bool:
    """Rejected during the TLS handshake: nothing of the request was sent."""
    if not isinstance(error, boto.SSLError):
        return False
    cause = error.kwargs.get("error")
    return isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(cause)


def _strip_encoded_message(message: str) -> str:
    """Remove the encoded authorization message, kilobytes of text that only AWS can decode."""
    return " ".join(message.split("Encoded authorization failure message", maxsplit=1)[0].split())
