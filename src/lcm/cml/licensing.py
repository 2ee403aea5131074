"""What a licence's state means. CML takes a bad token as readily as a good one: only what it says later counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from lcm.cml.client.json_values import items, maybe_count, maybe_flag, maybe_text, moment, part, record, text
from lcm.cml.types import LicenseFeature, LicenseState

SETTLING = timedelta(seconds=10)

_UNDER_WAY = ("IN_PROGRESS", "RETRY_IN_PROGRESS", "RESERVATION_IN_PROGRESS")
_IN_ORDER = ("", "INIT", "IN_COMPLIANCE")


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
            return cls(LicensePhase.REGISTERED, _compliance(state))
        if status in _UNDER_WAY:
            return cls(LicensePhase.REGISTERING, state.failure)
        if status not in ("NOT_REGISTERED", "FAILED"):
            return cls(LicensePhase.UNKNOWN, f"CML says {status!r}")
        if asked_ago is not None and asked_ago < SETTLING:
            return cls(LicensePhase.REGISTERING)
        if status == "FAILED":
            return cls(LicensePhase.FAILED, state.failure or "CML gives no reason")
        return cls(LicensePhase.UNREGISTERED, state.failure)


def _compliance(state: LicenseState) -> str:
    return "" if state.authorization in _IN_ORDER else f"authorization is {state.authorization}"


def read_license(answer: Any) -> LicenseState:
    """The state of `GET /licensing`."""
    whole = record(answer, "the licence")
    registration = record(whole.get("registration"), "registration")
    product = part(whole, "product_license")
    return LicenseState(
        registration=text(registration, "status"),
        authorization=text(part(whole, "authorization"), "status", ""),
        product=text(product, "active", ""),
        is_enterprise=maybe_flag(product, "is_enterprise"),
        features=tuple(_feature(entry) for entry in items(whole.get("features") or [], "features")),
        failure=maybe_text(part(registration, "register_time"), "failure") or "",
        expires=moment(registration.get("expires")),
        reservation_mode=maybe_flag(whole, "reservation_mode") or False,
    )


def _feature(entry: Any) -> LicenseFeature:
    feature = record(entry, "a feature")
    return LicenseFeature(
        id=text(feature, "id"),
        name=text(feature, "name", ""),
        in_use=maybe_count(feature, "in_use") or 0,
        status=text(feature, "status", ""),
    )
