"""Condition reasons of cloud errors: they are part of the API and must not change with the names of classes."""

from __future__ import annotations

import pytest

from lcm.cloud import errors
from lcm.core.controller.effects import EffectTimeoutError

REASONS = {
    errors.CloudThrottledError: "Throttled",
    errors.CloudUnreachableError: "Unreachable",
    errors.CloudOutcomeUnknownError: "OutcomeUnknown",
    errors.InsufficientCapacityError: "CapacityLacking",
    errors.UnsupportedInZoneError: "UnsupportedInZone",
    errors.CloudAuthenticationError: "NotAuthenticated",
    errors.LaunchTokenSpentError: "TokenSpent",
    errors.LaunchTokenMismatchError: "TokenMismatch",
    errors.InstanceNotFoundError: "InstanceNotFound",
    errors.IncorrectInstanceStateError: "WrongState",
    errors.CloudRefusedError: "Refused",
    errors.CloudAccessDeniedError: "Denied",
    errors.QuotaExceededError: "QuotaExceeded",
    errors.InvalidCloudRequestError: "InvalidRequest",
}


@pytest.mark.parametrize(("kind", "reason"), REASONS.items())
def test_condition_reasons_are_stable(kind: type[errors.CloudError], reason: str) -> None:
    assert errors.condition_reason(kind("failed")) == reason


def test_other_errors_have_the_name_of_their_class() -> None:
    assert errors.condition_reason(TimeoutError()) == "TimeoutError"
    assert errors.condition_reason(EffectTimeoutError()) == "EffectTimeout"
