"""Error codes of the simulated EC2, and the error that each becomes for a caller."""

from __future__ import annotations

from typing import Final

from lcm.cloud.error_codes import error_class
from lcm.cloud.errors import CloudError, CloudOutcomeUnknownError, CloudUnreachableError, InvalidCloudRequestError

THROTTLED: Final = "RequestLimitExceeded"
INTERNAL: Final = "InternalError"
NO_CAPACITY: Final = "InsufficientInstanceCapacity"
NOT_FOUND: Final = "InvalidInstanceID.NotFound"
WRONG_STATE: Final = "IncorrectInstanceState"
TOKEN_MISMATCH: Final = "IdempotentParameterMismatch"  # noqa: S105
TOKEN_SPENT: Final = "IdempotentInstanceTerminated"  # noqa: S105
BAD_IMAGE: Final = "InvalidAMIID.NotFound"
BAD_SUBNET: Final = "InvalidSubnetID.NotFound"
UNSUPPORTED: Final = "Unsupported"
BAD_COMBINATION: Final = "InvalidParameterCombination"

MUTATING_OPERATIONS: Final = frozenset({"RunInstances", "StartInstances", "StopInstances", "TerminateInstances"})


def error_for_code(code: str, message: str, operation: str) -> CloudError:
    """Return the error for a code; an unknown code means an invalid parameter."""
    kind = error_class(code, operation, message) or InvalidCloudRequestError
    if code == INTERNAL:
        # The client cannot know at which point the server failed.
        kind = CloudOutcomeUnknownError if operation in MUTATING_OPERATIONS else CloudUnreachableError
    return kind(f"{operation}: {message} ({code})", code=code, operation=operation)
