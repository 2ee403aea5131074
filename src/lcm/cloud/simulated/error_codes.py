"""The refusals of the simulated EC2: its codes, and what each means to a caller."""

from __future__ import annotations

from typing import Final

from lcm.cloud.errors import (
    CapacityLacking,
    CloudError,
    Denied,
    InstanceNotFound,
    InvalidRequest,
    OutcomeUnknown,
    QuotaExceeded,
    Throttled,
    TokenMismatch,
    TokenSpent,
    Unreachable,
    WrongState,
)

THROTTLED: Final = "RequestLimitExceeded"
INTERNAL: Final = "InternalError"
NO_CAPACITY: Final = "InsufficientInstanceCapacity"
NOT_FOUND: Final = "InvalidInstanceID.NotFound"
WRONG_STATE: Final = "IncorrectInstanceState"
MISMATCH: Final = "IdempotentParameterMismatch"
SPENT: Final = "IdempotentInstanceTerminated"
BAD_IMAGE: Final = "InvalidAMIID.NotFound"
BAD_SUBNET: Final = "InvalidSubnetID.NotFound"

CHANGING: Final = frozenset({"RunInstances", "StartInstances", "StopInstances", "TerminateInstances"})

_KINDS: Final[dict[str, type[CloudError]]] = {
    THROTTLED: Throttled,
    INTERNAL: Unreachable,
    NO_CAPACITY: CapacityLacking,
    NOT_FOUND: InstanceNotFound,
    WRONG_STATE: WrongState,
    MISMATCH: TokenMismatch,
    SPENT: TokenSpent,
    "InsufficientHostCapacity": CapacityLacking,
    "VcpuLimitExceeded": QuotaExceeded,
    "InstanceLimitExceeded": QuotaExceeded,
    "UnauthorizedOperation": Denied,
    "AuthFailure": Denied,
    "RequestExpired": Denied,
    "ExpiredToken": Denied,
}


def refusal(code: str, message: str, operation: str) -> CloudError:
    """The error that a refusal with this code becomes; a code that is not known names a wrong parameter."""
    kind = _KINDS.get(code, InvalidRequest)
    if code == INTERNAL and operation in CHANGING:
        # Where the server broke down, nobody outside can tell.
        kind = OutcomeUnknown
    return kind(f"{operation}: {message} ({code})", code=code, operation=operation)
