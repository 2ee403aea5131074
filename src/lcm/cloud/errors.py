"""What can go wrong with a cloud call, told apart by what is known of its effect and by what may follow."""

from __future__ import annotations


class CloudError(Exception):
    """A cloud call failed. `code` is the provider's own word for it, `operation` the call."""

    def __init__(self, message: str, *, code: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.operation = operation


class CloudThrottledError(CloudError):
    """Too many calls. Nothing happened; the same call may be made later."""


class CloudUnreachableError(CloudError):
    """No connection, or a read without an answer. Certainly nothing changed."""


class CloudOutcomeUnknownError(CloudError):
    """A call that changes things was sent and no answer came: it may or may not have happened. Look before acting."""


class InsufficientCapacityError(CloudError):
    """The provider has no such machine there now. A definite refusal: another attempt may choose another place."""


class LaunchTokenSpentError(CloudError):
    """The launch token belongs to an instance that has terminated: only a new attempt can launch."""


class LaunchTokenMismatchError(CloudError):
    """The launch token was used with other parameters: find that launch's instance by its tags."""


class InstanceNotFoundError(CloudError):
    """The provider does not know the id now. That alone does not mean that it is gone."""


class IncorrectInstanceStateError(CloudError):
    """The instance is in a state in which this cannot be done, such as starting a terminated one."""


class CloudRefusedError(CloudError):
    """Refused for good: the same call will be refused again until a person changes something."""


class CloudAccessDeniedError(CloudRefusedError):
    """Credentials or permissions do not allow it."""


class QuotaExceededError(CloudRefusedError):
    """A limit of the account is reached."""


class InvalidCloudRequestError(CloudRefusedError):
    """A parameter is wrong: an unknown image, type, subnet or key."""
