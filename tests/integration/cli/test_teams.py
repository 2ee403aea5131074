"""Teams from the command line: a worker of a team, and the classes of an instructor."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers.control_plane import ControlPlaneProcess

START = f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}T12:00"


def test_a_worker_is_dedicated_to_a_team_and_to_none_again(plane: ControlPlaneProcess) -> None:
    plane.lcm("teams", "create", "blue")
    plane.lcm("workers", "create", "alpha", "--template", "micro")
    assert "team: blue" in plane.lcm("workers", "edit", "alpha", "--team", "blue", "--dry-run").stdout
    plane.lcm("workers", "edit", "alpha", "--team", "blue")
    team = json.loads(plane.lcm("teams", "get", "blue", "-o", "json").stdout)["id"]
    assert json.loads(plane.lcm("workers", "get", "alpha", "-o", "json").stdout)["team"] == team
    plane.lcm("workers", "edit", "alpha", "--no-team")
    assert json.loads(plane.lcm("workers", "get", "alpha", "-o", "json").stdout)["team"] == ""
    both = plane.lcm("workers", "edit", "alpha", "--team", "blue", "--no-team", check=False)
    assert "give only one of --team and --no-team" in both.stderr
    absent = plane.lcm("workers", "edit", "alpha", "--team", "absent", check=False)
    assert (absent.returncode, "there is no team absent" in absent.stderr) == (1, True)


def test_an_instructor_books_a_class_and_sees_no_other(plane: ControlPlaneProcess, tmp_path: Path) -> None:
    file = tmp_path / "plain.json"
    topology = {"nodes": [{"id": "n0"}]}
    needs = {"license": False, "cpu_cores": 1}
    file.write_text(json.dumps({"name": "bgp", "version": "1", "requirements": needs, "topology": topology}))
    plane.lcm("teams", "create", "red")
    plane.lcm("definitions", "create", "-f", str(file))
    made = plane.lcm("tokens", "create", "grader", "--role", "instructor", "--team", "red", "-o", "json")
    grader = {"LCM_TOKEN": json.loads(made.stdout)["token"]}
    when = ("-d", "bgp", "--seats", "2", "--start", START, "--zone", "UTC", "--duration", "2h")
    plane.lcm("bookings", "create", "secret", *when)
    plane.lcm("definitions", "create", "-f", str(file), env=grader)
    assert plane.lcm("bookings", "list", env=grader).stdout.strip() == "No bookings."
    assert "It fits" in plane.lcm("bookings", "preview", *when, env=grader).stdout.capitalize()
    plane.lcm("bookings", "create", "mine", *when, env=grader)
    assert [each["name"] for each in json.loads(plane.lcm("bookings", "list", "-o", "json", env=grader).stdout)] == [
        "mine"
    ]
    early = plane.lcm("bookings", "seat-links", "mine", check=False, env=grader)
    assert (early.returncode, "has no labs yet" in early.stderr) == (1, True)
    revoked = plane.lcm("bookings", "seat-links", "mine", "--revoke", "--yes", env=grader)
    assert "Seat links of mine, class 1, revoked: 0." in revoked.stdout
    foreign = plane.lcm("bookings", "cancel", "secret", "--yes", check=False, env=grader)
    assert foreign.returncode == 1
