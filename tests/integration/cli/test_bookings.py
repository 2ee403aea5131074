"""`lcm bookings` against a real control plane."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.support.servers.control_plane import ControlPlaneProcess

START = f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}T12:00"  # no zone skips noon
ZONE = "Europe/Brussels"


@pytest.fixture(scope="module", autouse=True)
def definition(plane: ControlPlaneProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("definitions") / "plain.yaml"
    needs = {"license": False, "cpu_cores": 1}
    fields = {"name": "bgp", "version": 1, "requirements": needs, "topology": {"nodes": [{"id": "n0"}]}}
    file.write_text(yaml.safe_dump(fields))
    plane.lcm("definitions", "create", "-f", str(file))


def options(start: str = START, *, seats: int = 4, duration: str = "2h") -> tuple[str, ...]:
    return ("-d", "bgp", "--seats", str(seats), "--start", start, "--zone", ZONE, "--duration", duration)


def test_a_booking_from_preview_to_cancellation(plane: ControlPlaneProcess) -> None:
    assert "class 1" in plane.lcm("bookings", "preview", *options()).stdout
    preview = json.loads(plane.lcm("bookings", "preview", *options(), "-o", "json").stdout)
    assert preview["confirmed"] is True
    assert preview["reason"] in plane.lcm("bookings", "create", "class", *options(), "--dry-run").stdout
    assert plane.lcm("bookings", "list").stdout.strip() == "No bookings."
    created = plane.lcm("bookings", "create", "class", *options(), "--weeks", "2", "--learner", "anna@example.com")
    assert f"Booking class confirmed: {START.replace('T', ' ')} {ZONE}." in created.stdout
    [listed] = json.loads(plane.lcm("bookings", "list", "-o", "json").stdout)
    assert (listed["name"], listed["status"], len(listed["occurrences"])) == ("class", "CONFIRMED", 2)
    shown = plane.lcm("bookings", "get", "class").stdout
    assert "class 2:" in shown
    assert "anna@example.com" in shown

    before = listed["occurrences"][0]["ends_at"]
    extend = ("bookings", "extend", "class", "--by", "30m")
    assert "it fits: class 1 would take place from" in plane.lcm(*extend, "--dry-run").stdout
    assert "Booking class extended: class 1 ends at" in plane.lcm(*extend).stdout
    moved = f"{datetime.now(UTC) + timedelta(days=50):%Y-%m-%d}T13:00"
    text = plane.lcm("bookings", "move", "class", "--class", "2", "--start", moved).stdout
    assert f"Booking class changed: class 2 begins at {moved.replace('T', ' ')} {ZONE}" in text
    [booking] = json.loads(plane.lcm("bookings", "list", "-o", "json").stdout)
    first, second = booking["occurrences"]
    longer = datetime.fromisoformat(first["ends_at"]) - datetime.fromisoformat(before)
    assert (longer, second["start"]["at"][:16]) == (timedelta(minutes=30), moved)

    assert "will be cancelled" in plane.lcm("bookings", "cancel", "class", "--dry-run").stdout
    assert (
        "Booking class changed: class 2 is cancelled."
        in plane.lcm("bookings", "cancel", "class", "--class", "2", "--yes").stdout
    )
    assert "Booking class cancelled." in plane.lcm("bookings", "cancel", "class", "--yes").stdout
    over = plane.lcm("bookings", "cancel", "class", "--yes", check=False)
    assert (over.returncode, "is over" in over.stderr) == (1, True)
    assert json.loads(plane.lcm("bookings", "list", "-o", "json").stdout) == []
    assert len(json.loads(plane.lcm("bookings", "list", "--all", "-o", "json").stdout)) == 1


def test_a_booking_that_does_not_fit_is_refused_with_what_is_short(plane: ControlPlaneProcess) -> None:
    refused = plane.lcm("bookings", "create", "crowd", *options(seats=1000), check=False)
    assert (refused.returncode, "workers" in refused.stderr) == (1, True), refused.stderr
    assert "14 days" in refused.stderr
    assert plane.lcm("bookings", "preview", *options(seats=1000)).stdout.splitlines()[0] in refused.stderr


def test_what_is_typed_wrong_is_named_with_the_remedy(plane: ControlPlaneProcess) -> None:
    for arguments, text in [
        (options("tomorrow"), "start: must be a date and time without a zone, such as"),
        (options("2027-03-28T02:30"), "2027-03-28 02:30 does not exist in Europe/Brussels"),
        (options("2027-10-31T02:30"), "occurs twice in Europe/Brussels"),
        (options(seats=0), "seats: "),
        (options(duration="90s"), "--duration '90s': must be whole minutes, such as 90m"),
        (options(duration="1m"), "duration_minutes: "),
    ]:
        done = plane.lcm("bookings", "create", "x", *arguments, check=False)
        assert (done.returncode != 0, text in done.stderr) == (True, True), done.stderr
