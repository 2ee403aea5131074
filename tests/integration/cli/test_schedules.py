"""`lcm schedules` against a real control plane."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.servers.control_plane import ControlPlaneProcess

ALWAYS = ("--window", "daily 00:00-24:00")
NEVER = ("--window", "daily 00:00-24:00", "--except", "1970-01-01..2999-12-31 closed")


def test_a_schedule_from_preview_to_deletion(plane: ControlPlaneProcess) -> None:
    plane.lcm("workers", "create", "scheduled", "--template", "small")
    options = ("--zone", "Europe/Brussels", *NEVER, "--worker", "scheduled")
    preview = json.loads(plane.lcm("schedules", "preview", *options, "-o", "json").stdout)
    assert (preview["workers"][0]["change_to"], preview["stops_now"]) == ("STOPPED", 1)
    planned = plane.lcm("schedules", "create", "office", *options, "--dry-run").stdout
    assert "1 worker will be stopped as soon as nobody uses it." in planned
    assert "No schedules." in plane.lcm("schedules", "list").stdout
    assert "Schedule office created." in plane.lcm("schedules", "create", "office", *options).stdout
    [listed] = json.loads(plane.lcm("schedules", "list", "-o", "json").stdout)
    assert (listed["schedule"]["name"], listed["is_open"]) == ("office", False)
    plan = plane.lcm("plan").stdout
    assert "scheduled will be stopped now: schedule office is closed" in plan
    assert "schedule office is closed" in plane.lcm("workers", "explain", "scheduled").stdout

    assert "It is open for 1 worker." in plane.lcm("schedules", "edit", "office", "--no-exceptions", "--dry-run").stdout
    plane.lcm("schedules", "edit", "office", "--no-exceptions")
    shown = plane.lcm("schedules", "get", "office").stdout
    assert "daily 00:00-24:00" in shown
    assert "scheduled is PENDING" in shown
    assert "It is disabled" in plane.lcm("schedules", "disable", "office", "--dry-run").stdout
    assert "disabled" in plane.lcm("schedules", "disable", "office").stdout
    assert "disabled" in plane.lcm("schedules", "list").stdout
    assert "enabled" in plane.lcm("schedules", "enable", "office").stdout
    assert "they stay as they are" in plane.lcm("schedules", "delete", "office", "--dry-run").stdout
    plane.lcm("schedules", "delete", "office", "--yes")
    assert json.loads(plane.lcm("schedules", "list", "-o", "json").stdout) == []


def test_what_does_not_fit_is_refused_with_the_field_and_the_remedy(plane: ControlPlaneProcess) -> None:
    for arguments, text in [
        (("--zone", "europe/brussels", *ALWAYS, "--worker", "a"), "zone: must be a time zone such as"),
        (("--zone", "UTC", "--window", "9 to 5", "--worker", "a"), "such as mon-fri 08:00-18:00"),
        (("--zone", "UTC", "--worker", "a"), "windows: must have at least one window, such as"),
        (("--zone", "UTC", *ALWAYS), "selector: must have names, templates, teams or tags"),
        (("--zone", "UTC", *ALWAYS, "--tag", "course"), "must be KEY=VALUE"),
        (("--zone", "UTC", *ALWAYS, "--worker", "a", "--outside", "sleep"), "outside: must be stop or nothing"),
    ]:
        done = plane.lcm("schedules", "create", "x", *arguments, check=False)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
