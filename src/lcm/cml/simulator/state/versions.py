"""In what the versions of CML differ, as far as clients can see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VersionProfile:
    """One version of CML."""

    name: str
    version: str
    schema: str
    session_check: str = "authok"
    diagnostics_by_category: bool = True
    opt_in_as_word: bool = False
    reports_features: bool = False
    stamp_fraction: bool = False
    stamp_zone: bool = False
    lab_event_names: tuple[str, str] = ("CREATED", "state")
    element_name: str = "Node"


VERSION_PROFILES: dict[str, VersionProfile] = {
    profile.name: profile
    for profile in (
        VersionProfile("2.7", "2.7.2+build.26", "0.2.2", diagnostics_by_category=False),
        VersionProfile("2.8", "2.8.1+build.14", "0.3.0", diagnostics_by_category=False, stamp_fraction=True),
        VersionProfile("2.9", "2.9.1+build.7", "0.3.0", lab_event_names=("ADD", "STATE_CHANGED"), element_name="NODE"),
        VersionProfile(
            "2.10",
            "2.10.0+build.3",
            "0.3.1",
            session_check="authentication",
            opt_in_as_word=True,
            reports_features=True,
            stamp_fraction=True,
            stamp_zone=True,
        ),
    )
}
