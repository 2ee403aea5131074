"""`lcm subscriptions` against a real control plane."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers.control_plane import ControlPlaneProcess


def test_a_subscription_from_creation_to_deletion(plane: ControlPlaneProcess, tmp_path: Path) -> None:
    url_file = tmp_path / "url.txt"
    url_file.write_text("http://127.0.0.1:9/s3cret\n")
    plane.lcm("teams", "create", "blue")
    options = ("--type", "worker_failed", "--tag", "course=bgp", "--team", "blue", "--severity", "critical")
    made = plane.lcm("subscriptions", "create", "on-call", "--target", "webhook", "--url-file", str(url_file), *options)
    assert made.stdout.startswith("whsec_")
    assert "shown only once" in made.stderr
    [listed] = json.loads(plane.lcm("subscriptions", "list", "-o", "json").stdout)
    assert (listed["name"], listed["address"]) == ("on-call", "http://127.0.0.1:9/…")
    assert listed["filter"]["selector"]["tags"] == {"course": "bgp"}
    assert "on-call" in plane.lcm("subscriptions", "list").stdout
    narrowed = "sends critical alerts: worker failed; only of team blue, tag course=bgp"
    assert narrowed in plane.lcm("subscriptions", "get", "on-call").stdout

    plane.lcm("subscriptions", "edit", "on-call", "--name", "alpha", "--severity", "warning", "--type", "breaker_open")
    edited = "sends alerts: breaker open; only of name alpha, team blue, tag course=bgp"
    assert edited in plane.lcm("subscriptions", "get", "on-call").stdout
    plane.lcm("subscriptions", "edit", "on-call", "--all", "--name", "beta", "--rename", "night")
    assert "sends all alerts; only of name beta" in plane.lcm("subscriptions", "get", "night").stdout
    assert "then" in plane.lcm("subscriptions", "edit", "night", "--all", "--dry-run").stdout
    plane.lcm("subscriptions", "edit", "night", "--all", "--rename", "on-call")
    nothing = plane.lcm("subscriptions", "edit", "on-call", check=False)
    assert (nothing.returncode, "name at least one option to change" in nothing.stderr) == (2, True)

    tested = plane.lcm("subscriptions", "test", "on-call", check=False)
    assert tested.returncode == 1
    assert "127.0.0.1 is at 127.0.0.1, which is not public; add it to NOTIFY_ALLOWED_HOSTS" in tested.stderr
    assert "s3cret" not in tested.stdout + tested.stderr

    rotated = plane.lcm("subscriptions", "rotate-secret", "on-call")
    assert rotated.stdout.startswith("whsec_")
    assert rotated.stdout != made.stdout
    assert "disabled" in plane.lcm("subscriptions", "disable", "on-call").stdout
    assert "disabled" in plane.lcm("subscriptions", "get", "on-call").stdout
    assert "enabled" in plane.lcm("subscriptions", "enable", listed["id"][:8]).stdout
    assert "No dead letters." in plane.lcm("subscriptions", "dead-letters", "on-call").stdout
    resent = plane.lcm("subscriptions", "resend", "on-call", "sub-none.ev-none", check=False)
    assert resent.returncode == 1
    assert "there is no dead letter sub-none.ev-none" in resent.stderr

    assert "then" in plane.lcm("subscriptions", "delete", "on-call", "--dry-run").stdout
    assert json.loads(plane.lcm("subscriptions", "list", "-o", "json").stdout) != []
    plane.lcm("subscriptions", "delete", "on-call", "--yes")
    assert json.loads(plane.lcm("subscriptions", "list", "-o", "json").stdout) == []


def test_what_does_not_fit_is_refused_with_the_field_and_the_remedy(plane: ControlPlaneProcess) -> None:
    for arguments, code, text in [
        (("--target", "pigeon"), 2, "target: must be"),
        (("--target", "slack"), 1, "url: a slack target needs a url"),
        (("--target", "email"), 1, "recipients: an email target needs recipients"),
        (("--target", "email", "--to", "nobody"), 2, "must be an e-mail address such as"),
        (("--target", "email", "--to", "a@b.test", "--type", "nothing"), 2, "nothing is unknown; types are"),
        (("--target", "email", "--to", "a@b.test", "--tag", "course"), 2, "must be KEY=VALUE"),
    ]:
        done = plane.lcm("subscriptions", "create", "x", *arguments, check=False)
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr
