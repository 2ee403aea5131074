"""Errors of cloud calls, by what is known about the effect of the call and what a caller may do next."""

from __future__ import annotations

from typing import ClassVar


class CloudError(Exception):
    """A cloud call failed. `code` is the provider's error code, `operation` the name of the call.

    `condition_reason` appears in the conditions of workers. It is part of the API, whatever the class is called.
    """

    condition_reason: ClassVar[str] = "CloudError"

    def __init__(self, message: str, *, code: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.operation = operation


class CloudThrottledError(CloudError):
    """Too many calls. Nothing changed; the same call may be made later."""

    condition_reason = "Throttled"


class CloudUnreachableError(CloudError):
    """No connection, or no response to a read. Certainly nothing changed."""

    condition_reason = "Unreachable"


class CloudOutcomeUnknownError(CloudError):
    """A mutating call was sent and got no response: it may or may not have taken effect. Observe before acting."""

    condition_reason = "OutcomeUnknown"


class InsufficientCapacityError(CloudError):
    """The provider has no capacity for the instance. Nothing changed; another attempt may use another subnet."""

    condition_reason = "CapacityLacking"


class UnsupportedInZoneError(CloudError):
    """The zone of the subnet does not offer the instance type. Nothing changed; another subnet may offer it."""

    condition_reason = "UnsupportedInZone"


class CloudAuthenticationError(CloudError):
    """The provider could not authenticate LCM, or no credentials were found. Nothing changed.

    That is no answer to the call itself, and usually ends without a change of the request: credentials are renewed, a
    clock is set, a metadata service responds again.
    """

    condition_reason = "NotAuthenticated"


class LaunchTokenSpentError(CloudError):
    """The client token belongs to a terminated instance: only a new attempt can launch."""

    condition_reason = "TokenSpent"


class LaunchTokenMismatchError(CloudError):
    """The client token was used with other parameters: find the instance of that launch by its tags."""

    condition_reason = "TokenMismatch"


class InstanceNotFoundError(CloudError):
    """The provider does not know the id at this time. That alone does not mean that the instance is gone."""

    condition_reason = "InstanceNotFound"


class IncorrectInstanceStateError(CloudError):
    """The instance is in a state that does not allow the call, such as starting a terminated instance."""

    condition_reason = "WrongState"


class CloudRefusedError(CloudError):
    """The call was rejected, and will be rejected again until a person changes something."""

    condition_reason = "Refused"


class CloudAccessDeniedError(CloudRefusedError):
    """The caller is known, and does not have the permission for this call."""

    condition_reason = "Denied"


class InstanceProtectedError(CloudAccessDeniedError):
    """The instance exists and is protected against this call, for example against termination."""


class QuotaExceededError(CloudRefusedError):
    """A quota of the account is reached."""

    condition_reason = "QuotaExceeded"


class InvalidCloudRequestError(CloudRefusedError):
    """A parameter is invalid, such as an unknown image, instance type, subnet or key."""

    condition_reason = "InvalidRequest"


def condition_reason(error: Exception) -> str:
    """Return the condition reason of an error of a cloud call."""
    return str(getattr(error, "condition_reason", type(error).__name__))
