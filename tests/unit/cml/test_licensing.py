"""A license is registered when CML reports COMPLETED, and with no other status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.client.responses import MalformedResponseError
from lcm.cml.client.system import parse_license
from lcm.cml.types import REGISTRATION_SETTLE_TIME, LicensePhase, LicenseProgress, LicenseState


def state(registration: str, *, authorization: str = "EVAL", failure: str = "") -> LicenseState:
    return LicenseState(registration, authorization, "CML_Enterprise", True, (), failure, None, reservation_mode=False)


@pytest.mark.parametrize(
    ("registration", "phase"),
    [
        ("COMPLETED", LicensePhase.REGISTERED),
        ("NOT_REGISTERED", LicensePhase.UNREGISTERED),
        ("IN_PROGRESS", LicensePhase.REGISTERING),
        ("RETRY_IN_PROGRESS", LicensePhase.REGISTERING),
        ("RESERVATION_IN_PROGRESS", LicensePhase.REGISTERING),
        ("FAILED", LicensePhase.FAILED),
        ("SOMETHING_NEW", LicensePhase.UNKNOWN),
    ],
)
def test_each_registration_status_maps_to_a_phase(registration: str, phase: LicensePhase) -> None:
    assert LicenseProgress.of(state(registration)).phase is phase


@given(st.text().filter(lambda status: status != "COMPLETED"))
def test_no_other_status_counts_as_registered(status: str) -> None:
    assert LicenseProgress.of(state(status)).phase is not LicensePhase.REGISTERED


@pytest.mark.parametrize("before", ["NOT_REGISTERED", "FAILED"])
def test_the_old_state_is_ignored_right_after_a_request(before: str) -> None:
    old = state(before, failure="an old reason")
    assert LicenseProgress.of(old, timedelta(seconds=1)).phase is LicensePhase.REGISTERING
    assert LicenseProgress.of(old, REGISTRATION_SETTLE_TIME).phase is not LicensePhase.REGISTERING


def test_failure_reasons_are_passed_on() -> None:
    assert LicenseProgress.of(state("FAILED", failure="revoked")).reason == "revoked"
    assert LicenseProgress.of(state("FAILED")).reason == "CML gives no reason"
    assert LicenseProgress.of(state("RETRY_IN_PROGRESS", failure="no response")).reason == "no response"
    assert "OUT_OF_COMPLIANCE" in LicenseProgress.of(state("COMPLETED", authorization="OUT_OF_COMPLIANCE")).reason
    assert LicenseProgress.of(state("COMPLETED", authorization="IN_COMPLIANCE")).reason == ""


def test_a_complete_response_is_parsed() -> None:
    payload = {
        "registration": {
            "status": "COMPLETED",
            "expires": "2026-08-20 17:25:30",
            "register_time": {"failure": None},
        },
        "authorization": {"status": "IN_COMPLIANCE"},
        "features": [{"id": "f", "name": "Nodes", "in_use": 7.0, "status": "IN_COMPLIANCE", "max": 300}],
        "product_license": {"active": "CML_Enterprise", "is_enterprise": True},
        "news": {"of": "tomorrow"},
    }
    read = parse_license(payload)
    assert read.expires == datetime(2026, 8, 20, 17, 25, 30, tzinfo=UTC)
    assert (read.features[0].in_use, read.product, read.reservation_mode) == (7, "CML_Enterprise", False)


@pytest.mark.parametrize("payload", [None, [], {}, {"registration": "COMPLETED"}, {"registration": {"status": None}}])
def test_a_response_without_a_status_is_rejected(payload: Any) -> None:
    with pytest.raises(MalformedResponseError):
        parse_license(payload)
