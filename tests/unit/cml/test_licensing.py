"""A licence is registered when CML says COMPLETED, and at no other word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.client.json_values import MalformedResponseError
from lcm.cml.licensing import REGISTRATION_SETTLE_TIME, LicensePhase, LicenseProgress, parse_license
from lcm.cml.types import LicenseState


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
def test_each_status_has_one_meaning(registration: str, phase: LicensePhase) -> None:
    assert LicenseProgress.of(state(registration)).phase is phase


@given(st.text().filter(lambda status: status != "COMPLETED"))
def test_no_other_word_is_taken_for_registered(status: str) -> None:
    assert LicenseProgress.of(state(status)).phase is not LicensePhase.REGISTERED


@pytest.mark.parametrize("before", ["NOT_REGISTERED", "FAILED"])
def test_right_after_asking_the_old_state_proves_nothing(before: str) -> None:
    old = state(before, failure="an old reason")
    assert LicenseProgress.of(old, timedelta(seconds=1)).phase is LicensePhase.REGISTERING
    assert LicenseProgress.of(old, REGISTRATION_SETTLE_TIME).phase is not LicensePhase.REGISTERING


def test_reasons_are_handed_on() -> None:
    assert LicenseProgress.of(state("FAILED", failure="revoked")).reason == "revoked"
    assert LicenseProgress.of(state("FAILED")).reason == "CML gives no reason"
    assert LicenseProgress.of(state("RETRY_IN_PROGRESS", failure="no answer")).reason == "no answer"
    assert "OUT_OF_COMPLIANCE" in LicenseProgress.of(state("COMPLETED", authorization="OUT_OF_COMPLIANCE")).reason
    assert LicenseProgress.of(state("COMPLETED", authorization="IN_COMPLIANCE")).reason == ""


def test_a_whole_answer_is_read() -> None:
    answer = {
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
    read = parse_license(answer)
    assert read.expires == datetime(2026, 8, 20, 17, 25, 30, tzinfo=UTC)
    assert (read.features[0].in_use, read.product, read.reservation_mode) == (7, "CML_Enterprise", False)


@pytest.mark.parametrize("answer", [None, [], {}, {"registration": "COMPLETED"}, {"registration": {"status": None}}])
def test_an_answer_without_a_status_is_refused(answer: Any) -> None:
    with pytest.raises(MalformedResponseError):
        parse_license(answer)
