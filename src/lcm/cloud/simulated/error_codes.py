"""Error codes of the simulated EC2, and the error that each becomes for a caller."""

from __future__ import annotations

from typing import Final

from lcm.cloud.errors import (
    CloudAccessDeniedError,
    CloudError,
    CloudOutcomeUnknownError,
    CloudThrottledError,
    CloudUnreachableError,
    IncorrectInstanceStateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    InvalidCloudRequestError,
    LaunchTokenMismatchError,
    LaunchTokenSpentError,
    QuotaExceededError,
)

THROTTLED: Final = "RequestLimitExceeded"
INTERNAL: Final = "InternalError"
NO_CAPACITY: Final = "InsufficientInstanceCapacity"
NOT_FOUND: Final = "InvalidInstanceID.NotFound"
WRONG_STATE: Final = "IncorrectInstanceState"
TOKEN_MISMATCH: Final = "IdempotentParameterMismatch"  # noqa: S105
TOKEN_SPENT: Final = "IdempotentInstanceTerminated"  # noqa: S105
BAD_IMAGE: Final = "InvalidAMIID.NotFound"
BAD_SUBNET: Final = "InvalidSubnetID.NotFound"

MUTATING_OPERATIONS: Final = frozenset({"RunInstances", "StartInstances", "StopInstances", "TerminateInstances"})

_ERROR_BY_CODE: Final[dict[str, type[CloudError]]] = {
    THROTTLED: CloudThrottledError,
    INTERNAL: CloudUnreachableError,
    NO_CAPACITY: InsufficientCapacityError,
    NOT_FOUND: InstanceNotFoundError,
    WRONG_STATE: IncorrectInstanceStateError,
    TOKEN_MISMATCH: LaunchTokenMismatchError,
    TOKEN_SPENT: LaunchTokenSpentError,
    "InsufficientHostCapacity": InsufficientCapacityError,
    "VcpuLimitExceeded": QuotaExceededError,
    "InstanceLimitExceeded": QuotaExceededError,
    "UnauthorizedOperation": CloudAccessDeniedError,
    "AuthFailure": CloudAccessDeniedError,
    "RequestExpired": CloudAccessDeniedError,
    "ExpiredToken": CloudAccessDeniedError,
}


def error_for_code(code: str, message: str, operation: str) -> CloudError:
    """Return the error for a code; an unknown code means an invalid parameter."""
    kind = _ERROR_BY_CODE.get(code, InvalidCloudRequestError)
    if code == INTERNAL and operation in MUTATING_OPERATIONS:
        # The client cannot know at which point the server failed.
        kind = CloudOutcomeUnknownError
    return kind(f"{operation}: {message} ({code})", code=code, operation=operation)
