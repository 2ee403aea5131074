"""Error codes of EC2 and STS, and the error that each becomes for a caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.cloud.errors import (
    CloudAccessDeniedError,
    CloudAuthenticationError,
    CloudThrottledError,
    IncorrectInstanceStateError,
    InstanceNotFoundError,
    InstanceProtectedError,
    InsufficientCapacityError,
    InvalidCloudRequestError,
    LaunchTokenMismatchError,
    LaunchTokenSpentError,
    QuotaExceededError,
    UnsupportedInZoneError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.cloud.errors import CloudError

RUN_INSTANCES: Final = "RunInstances"

THROTTLING_CODES: Final = frozenset(
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

_CAPACITY_CODES = (
    "InsufficientCapacity",
    "InsufficientCapacityOnHost",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "InsufficientVolumeCapacity",
)
_QUOTA_CODES = (
    "AddressLimitExceeded",
    "InstanceLimitExceeded",
    "LimitExceeded",
    "LimitExceededException",
    "NetworkInterfaceLimitExceeded",
    "ResourceLimitExceeded",
    "TagLimitExceeded",
    "VcpuLimitExceeded",
    "VolumeLimitExceeded",
)
_AUTHENTICATION_CODES = (
    "AuthFailure",  # see `_NOT_AUTHORIZED_FOR_IMAGES`
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    # A key that was just created or renewed is unknown in other regions for a while.
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidSignatureException",
    "InvalidToken",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    # AWS verifies a new account, or its first use of a region: minutes, at most hours.
    "PendingVerification",
    # The clock of this host is off by more than AWS accepts, as for the next two.
    "RequestExpired",
    "RequestInTheFuture",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
# The caller is known, and a person has to grant something before the answer changes.
_DENIED_CODES = (
    "AccessDenied",
    "AccessDeniedException",
    "AccountDisabled",
    "Blocked",
    "NotAuthorized",
    "OptInRequired",
    "UnauthorizedOperation",
)

_ERROR_BY_CODE: Final[Mapping[str, type[CloudError]]] = {
    **dict.fromkeys(THROTTLING_CODES, CloudThrottledError),
    **dict.fromkeys(_CAPACITY_CODES, InsufficientCapacityError),
    **dict.fromkeys(_QUOTA_CODES, QuotaExceededError),
    **dict.fromkeys(_AUTHENTICATION_CODES, CloudAuthenticationError),
    **dict.fromkeys(_DENIED_CODES, CloudAccessDeniedError),
    **dict.fromkeys(("FilterLimitExceeded", "UnsupportedOperation", "ValidationError"), InvalidCloudRequestError),
    "IdempotentInstanceTerminated": LaunchTokenSpentError,
    "IdempotentParameterMismatch": LaunchTokenMismatchError,
    "IncorrectInstanceState": IncorrectInstanceStateError,
    "IncorrectState": IncorrectInstanceStateError,
    "InvalidInstanceID.NotFound": InstanceNotFoundError,
    "OperationNotPermitted": InstanceProtectedError,
}
_UNSUPPORTED: Final = "Unsupported"
_AUTH_FAILURE: Final = "AuthFailure"
# EC2 uses AuthFailure for two things: it does not know the caller, or an image is not shared with the account.
_NOT_AUTHORIZED_FOR_IMAGES: Final = "not authorized for images"


def error_class(code: str, operation: str, message: str) -> type[CloudError] | None:
    """Return the class of the error with this code; None if the code is not known."""
    if code == _UNSUPPORTED:
        return UnsupportedInZoneError if operation == RUN_INSTANCES else InvalidCloudRequestError
    if code == _AUTH_FAILURE and _NOT_AUTHORIZED_FOR_IMAGES in message.lower():
        return CloudAccessDeniedError
    return _ERROR_BY_CODE.get(code)
