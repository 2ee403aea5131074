"""What a licence's state means. CML takes a bad token as readily as a good one: only what it says later counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from lcm.cml.client.json_values import (
    as_list,
    as_object,
    get_text,
    nested_object,
    optional_bool,
    optional_int,
    optional_text,
    parse_time,
)
from lcm.cml.types import LicenseFeature, LicenseState

REGISTRATION_SETTLE_TIME = timedelta(seconds=10)

_IN_PROGRESS = ("IN_PROGRESS", "RETRY_IN_PROGRESS", "RESERVATION_IN_PROGRESS")
_COMPLIANT = ("", "INIT", "IN_COMPLIANCE")


class LicensePhase(StrEnum):
    """How far a registration is."""

    UNREGISTERED = "unregistered"
    REGISTERING = "registering"
    REGISTERED = "registered"
    FAILED = "failed"
    UNKNOWN = "unknown"  # a status nobody has heard of: neither registered nor a reason to register again


@dataclass(frozen=True, slots=True)
class LicenseProgress:
    """A phase and, where there is something to say, why."""

    phase: LicensePhase
    reason: str = ""

    @classmethod
    def of(cls, state: LicenseState, asked_ago: timedelta | None = None) -> LicenseProgress:
        """Read the phase off a state. `asked_ago` is how long ago a registration was asked for, if one was.

        Shortly after asking, the state may still be the one from before: then it neither failed nor is it missing.
        """
        status = state.registration
        if status == "COMPLETED":
            return cls(LicensePhase.REGISTERED, _compliance_problem(state))
        if status in _IN_PROGRESS:
            return cls(LicensePhase.REGISTERING, state.failure)
        if status not in ("NOT_REGISTERED", "FAILED"):
            return cls(LicensePhase.UNKNOWN, f"CML says {status!r}")
        if asked_ago is not None and asked_ago < REGISTRATION_SETTLE_TIME:
            return cls(LicensePhase.REGISTERING)
        if status == "FAILED":
            return cls(LicensePhase.FAILED, state.failure or "CML gives no reason")
        return cls(LicensePhase.UNREGISTERED, state.failure)


def _compliance_problem(state: LicenseState) -> str:
    return "" if state.authorization in _COMPLIANT else f"authorization is {state.authorization}"


def parse_license(answer: Any) -> LicenseState:
    """The state of `GET /licensing`."""
    whole = as_object(answer, "the licence")
    registration = as_object(whole.get("registration"), "registration")
    product = nested_object(whole, "product_license")
    return LicenseState(
        registration=get_text(registration, "status"),
        authorization=get_text(nested_object(whole, "authorization"), "status", ""),
        product=get_text(product, "active", ""),
        is_enterprise=optional_bool(product, "is_enterprise"),
        features=tuple(_parse_feature(entry) for entry in as_list(whole.get("features") or [], "features")),
        failure=optional_text(nested_object(registration, "register_time"), "failure") or "",
        expires=parse_time(registration.get("expires")),
        reservation_mode=optional_bool(whole, "reservation_mode") or False,
    )


def _parse_feature(entry: Any) -> LicenseFeature:
    feature = as_object(entry, "a feature")
    return LicenseFeature(
        id=get_text(feature, "id"),
        name=get_text(feature, "name", ""),
        in_use=optional_int(feature, "in_use") or 0,
        status=get_text(feature, "status", ""),
    )
