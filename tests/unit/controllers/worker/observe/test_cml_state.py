"""An observation of CML is one object as long as nothing changes, and shows every change."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from lcm.cml.types import LicenseState, SystemStats, Usage
from lcm.controllers.worker.observe.cml_state import CmlServerState, ServerOwner
from lcm.controllers.worker.observe.observation import CmlObservation
from lcm.core import clock
from tests.support.records.workers import NOW, a_worker

STATS = SystemStats(3, 12, 7, 16, 41.5, Usage(4_000, 16_000), Usage(10_000, 100_000))
LICENSE = LicenseState("NOT_REGISTERED", "EVAL", "CML_Enterprise", True, (), "", None, False)
CHANGES: dict[str, Any] = {
    "queried_at": NOW,
    "ready": True,
    "version": "2.9.0",
    "error": "no response",
    "refusal": "wrong password",
    "account_withheld": True,
    "certificate": "c0" * 32,
    "presented": "d0" * 32,
    "activity_error": "no events",
    "stats": STATS,
    "_last_running_nodes": 4,
    "_license_state": LICENSE,
    "kvm_enabled": True,
    "definitions": ("iosv",),
}


def test_it_is_made_anew_whenever_it_would_differ() -> None:
    state = CmlServerState(ServerOwner.of(a_worker()), "203.0.113.7")
    shown = state.observation
    assert state.observation is shown
    for name, value in CHANGES.items():
        setattr(state, name, value)
        assert state.observation != shown, name
        shown = state.observation
        assert state.observation is shown, name
    never = CmlObservation()
    assert [each.name for each in fields(shown) if getattr(shown, each.name) == getattr(never, each.name)] == []
    state.stats = replace(STATS, labs=9)
    assert state.observation.labs == 9
    state._license_state = replace(LICENSE, registration="IN_PROGRESS")
    state._license_call_began = clock.boottime()
    before = state.observation
    state.registration_requested()
    assert state.observation is not before
    state.license_released()
    assert state.observation.license is None
