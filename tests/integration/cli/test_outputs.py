"""Output for programs and pipes: stable JSON, plain tables, messages on standard error, exit codes.

The golden outputs are in tests/data/cli; LCM_WRITE_GOLDEN=1 rewrites them.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.servers.etcd import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.servers.control_plane import ControlPlaneProcess, FakeWorkerController

GOLDEN = Path(__file__).parents[2] / "data" / "cli"
OUTPUTS: dict[str, Sequence[str]] = {
    "workers-list": ("workers", "list"),
    "workers-get": ("workers", "get", "alpha"),
    "workers-explain": ("workers", "explain", "alpha"),
    "workers-history": ("workers", "history", "alpha"),
    "workers-stop-dry-run": ("workers", "stop", "alpha", "--dry-run", "--reason", "lunch"),
    "templates-list": ("templates", "list"),
    "templates-get": ("templates", "get", "metal"),
    "fleet": ("fleet",),
    "plan": ("plan",),
    "top": ("top",),
    "audit": ("audit", "--worker", "broken", "--oldest-first"),
    "settings": ("settings", "show"),
    "whoami": ("whoami",),
    "tokens-list": ("tokens", "list"),
}
_MOMENT = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")
_IDS = re.compile(r"\b(w|i|t)-[0-9a-z]{12}\b")
_SPANS = re.compile(r"\b\d+ (second|minute)s?\b|a moment")
_USE = re.compile(r"Used less than a minute ago|Idle for [^;]+")
_CLOCKS = re.compile(r"\b\d\d:\d\d UTC\b( on \d+ [A-Z][a-z]+)?")  # with the date if that is another day
_URL = re.compile(r"http://127\.0\.0\.1:\d+")


def steady(value: Any) -> Any:
    """The value without what changes from run to run."""
    if isinstance(value, dict):
        return {name: steady(each) for name, each in value.items()}
    if isinstance(value, list):
        return [steady(each) for each in value]
    if not isinstance(value, str):
        return value
    if _MOMENT.match(value):
        return "<moment>"
    for pattern, word in (
        (_IDS, r"\1-<id>"),
        (_USE, "<use>"),
        (_SPANS, "<span>"),
        (_CLOCKS, "<clock>"),
        (_URL, "<url>"),
    ):
        value = pattern.sub(word, value)
    return value


@pytest.fixture(scope="module", autouse=True)
def fleet(plane: ControlPlaneProcess, controller: FakeWorkerController) -> None:
    """One worker of each relevant kind."""
    plane.lcm("workers", "create", "alpha", "--template", "small", "--tag", "team=blue")
    plane.lcm("workers", "create", "broken", "--template", "metal", "--region", "us-east-1")
    plane.lcm("workers", "create", "gamma-1", "--template", "medium", "--stopped")
    plane.lcm("workers", "create", "gamma-2", "--template", "medium", "--stopped", "--if-lost", "replace")
    plane.lcm("workers", "create", "ended", "--template", "micro", "--stopped")
    controller.boot("alpha")
    controller.measure("alpha")
    controller.report("broken", WorkerStatus.FAILED, "EC2 refused the launch: quota exceeded")
    plane.lcm("workers", "terminate", "ended", "--yes", "--reason", "not needed")
    controller.report("ended", WorkerStatus.TERMINATED, "nothing was launched")
    plane.lcm("workers", "hold", "gamma-1", "--reason", "maintenance")
    plane.lcm("tokens", "create", "anna", "--role", "operator")


@pytest.fixture(scope="module", autouse=True)
def outputs(plane: ControlPlaneProcess, fleet: None) -> dict[str, str]:
    """Whichever test comes first: none has changed anything yet."""
    return {name: plane.lcm(*arguments, "-o", "json").stdout for name, arguments in OUTPUTS.items()}


@pytest.mark.parametrize("name", OUTPUTS)
def test_golden_json(outputs: dict[str, str], name: str) -> None:
    output = steady(json.loads(outputs[name]))
    path = GOLDEN / f"{name}.json"
    if os.environ.get("LCM_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(output, indent=2, ensure_ascii=False) + "\n")
    assert output == json.loads(path.read_text())


def test_yaml_says_the_same_as_json(plane: ControlPlaneProcess) -> None:
    as_json = json.loads(plane.lcm("workers", "list", "-o", "json").stdout)
    assert yaml.safe_load(plane.lcm("workers", "list", "-o", "yaml").stdout) == as_json


def test_names_for_scripts(plane: ControlPlaneProcess) -> None:
    names = plane.lcm("workers", "list", "-o", "name").stdout.split()
    of_other_tests = ("busy", "draft", "final", "seen-")
    assert [name for name in names if not name.startswith(of_other_tests)] == ["alpha", "broken", "gamma-1", "gamma-2"]
    assert "ended" in plane.lcm("workers", "list", "--all", "-o", "name").stdout.split()
    assert plane.lcm("workers", "list", "-s", "terminated", "-o", "name").stdout == "ended\n"


def test_a_pipe_gets_whole_lines_and_no_colours(plane: ControlPlaneProcess) -> None:
    output = plane.lcm("workers", "list", "-o", "wide").stdout
    assert "\x1b" not in output
    assert "…" not in output
    assert all(line == line.rstrip() for line in output.splitlines())
    assert plane.worker("alpha").id in output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("workers", "get", "alhpa"), 1, "there is no worker 'alhpa'; did you mean alpha?"),
        (("workers", "get", "gamma"), 1, "'gamma' matches 2 workers: gamma-1 (w-"),
        (("workers", "stop", "broken"), 1, "cannot stop: the worker has FAILED; retry or terminate it"),
        (("workers", "stop", "broken", "--dry-run"), 1, "this would be rejected: cannot stop"),
        (("workers", "stop", "alpha", "--until", "soon"), 2, "--until 'soon': must be a duration such as"),
        (("workers", "stop", "alpha", "--until", "2020-01-01T00:00Z"), 1, "is not in the future"),
        (("workers", "license", "alpha", "register", "--dry-run"), 1, "rejected: the worker has no license token"),
        (("workers", "terminate", "alpha"), 1, "pass --yes"),
        (("workers", "create", "alpha", "-t", "small"), 1, "alpha"),
        (("workers", "create", "beta", "-t", "smla"), 1, "did you mean small"),
        (("workers", "create", "no good", "-t", "small"), 2, "name: "),
        (("workers", "create", "b", "-t", "small", "--region", "Mars"), 2, "aws_region: must be an AWS region such as"),
        (("workers", "edit", "alpha"), 2, "nothing to change: give at least one option"),
        (("workers", "edit", "alpha", "--remove-tag", "x"), 2, "--remove-tag 'x': alpha has no such tag"),
        (("workers", "edit", "alpha", "--if-lost", "cry"), 2, "lost_instance_policy: must be terminate or replace"),
        (("workers", "wait", "alpha", "--for", "tea"), 2, "must be ready, license, or one of pending"),
        (("workers", "wait", "alpha", "--timeout", "soon"), 2, "must be a duration such as 90s, 10m"),
        (("workers", "hold", "alpha"), 2, "--reason"),
        (("workers", "hold", "alpha", "--reason", " "), 2, "reason: must not be empty"),
        (("login", "lcm.example.org"), 2, "must begin with http:// or https://"),
        (("whoami", "--server", "ftp://x"), 1, "--server: the address of the control plane must begin with"),
        (("workers", "lst"), 2, "Did you mean 'list'"),
        (("workers", "list", "-s", "rnning"), 2, "must be one of pending"),
        (("settings", "set", "min_wrkers", "2"), 2, "did you mean min_workers?"),
        (("settings", "set", "min_workers", "two"), 2, "must be a whole number"),
        (("settings", "set", "min_workers", "3"), 1, "pass --yes"),
        (("breaker", "reset"), 1, "no breaker is open"),
        (("leadership", "reset", "worker-controler"), 1, "did you mean worker-controller?"),
        (("tokens", "create", "anna", "--role", "king"), 2, "role: "),
        (("templates", "apply", "/nowhere.yaml"), 1, "/nowhere.yaml cannot be read"),
    ],
)
def test_errors_say_what_to_do(plane: ControlPlaneProcess, arguments: Sequence[str], code: int, words: str) -> None:
    done = plane.lcm(*arguments, check=False)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_says_until_when_a_stop_counts(plane: ControlPlaneProcess) -> None:
    """calendar.md#overrides"""
    done = plane.lcm("workers", "stop", "alpha", "--until", "3h", "--dry-run")
    assert "Policies will not change that until" in done.stdout
    assert '"until":' in done.stdout


def test_a_dry_run_changes_nothing(plane: ControlPlaneProcess) -> None:
    before, tokens = plane.worker("alpha"), plane.lcm("tokens", "list", "-o", "json").stdout
    for command in (
        ("workers", "stop", "alpha"),
        ("workers", "drain", "alpha"),
        ("workers", "terminate", "alpha"),
        ("workers", "hold", "alpha", "--reason", "why"),
        ("workers", "license", "alpha", "deregister"),
        ("workers", "create", "dry", "--template", "small"),
        ("workers", "retry", "broken"),
        ("workers", "edit", "alpha", "--tag", "team=red"),
        ("templates", "disable", "small"),
        ("settings", "set", "min_workers", "3"),
        ("fleet", "hold", "--reason", "why"),
        ("fleet", "release"),
        ("tokens", "create", "dry", "--role", "viewer"),
        ("tokens", "revoke", "anna"),
        ("secrets", "rotate"),
        ("leadership", "reset", "worker-controller"),
    ):
        output = plane.lcm(*command, "--dry-run").stdout
        assert output.startswith("Dry run: no changes made."), output
        assert "would send" in output
    assert plane.worker("alpha") == before
    assert plane.lcm("settings", "show", "-o", "json").stdout.count('"min_workers": 0') == 1
    assert [token["name"] for token in json.loads(plane.lcm("tokens", "list", "-o", "json").stdout)] == [
        token["name"] for token in json.loads(tokens)
    ]
    assert json.loads(plane.lcm("fleet", "-o", "json").stdout)["hold"] is None


def test_a_dry_run_masks_secrets(plane: ControlPlaneProcess, tmp_path: Path) -> None:
    token = tmp_path / "license"
    token.write_text("c2VjcmV0LWxpY2VuY2U=\n")
    output = plane.lcm("workers", "license", "alpha", "register", "--license-token-file", str(token), "--dry-run")
    assert '"token": "***"' in output.stdout
    assert "c2VjcmV0" not in output.stdout


def test_the_rest_of_the_changes(plane: ControlPlaneProcess, controller: FakeWorkerController, tmp_path: Path) -> None:
    plane.lcm("workers", "create", "busy", "--template", "small")
    controller.boot("busy")
    assert "busy is DRAINING, desired state STOPPED." in plane.lcm("workers", "drain", "busy").stdout
    assert "busy is RUNNING, desired state RUNNING." in plane.lcm("workers", "cancel-drain", "busy").stdout
    assert "on hold" in plane.lcm("workers", "hold", "busy", "--reason", "look", "--until", "2h").stdout
    assert "No change needed" not in plane.lcm("workers", "release", "busy").stdout
    assert plane.worker("busy").hold is None
    assert "No change needed." in plane.lcm("workers", "start", "busy").stdout
    plane.lcm("workers", "retry", "broken")
    assert plane.worker("broken").status is WorkerStatus.PENDING
    controller.report("broken", WorkerStatus.FAILED, "EC2 refused the launch: quota exceeded")
    plane.lcm("workers", "terminate", "busy", "--yes")
    assert plane.worker("busy").desired_status is DesiredStatus.TERMINATED

    file = tmp_path / "templates.yaml"
    file.write_text(
        "- name: tiny\n  instance_type: t3.nano\n  cost_per_hour_usd: 0.0052\n"
        "  capacity: {cpu_cores: 2, memory_gb: 0.5, storage_gb: 10, max_nodes: 1}\n"
    )
    assert plane.lcm("templates", "apply", str(file)).stdout == "tiny created.\n"
    assert "no changes made" in plane.lcm("templates", "apply", str(file)).stdout
    refused = plane.lcm("templates", "disable", "tiny", check=False)
    assert "confirmation required" in refused.stderr
    assert "is disabled" in plane.lcm("templates", "disable", "tiny", "--yes").stdout
    assert "is enabled" in plane.lcm("templates", "enable", "tiny").stdout

    assert "The fleet is on hold" in plane.lcm("fleet", "hold", "--reason", "storm").stdout
    assert "on hold   by bootstrap: storm" in plane.lcm("fleet").stdout
    plane.lcm("fleet", "release")
    assert (
        plane.lcm("settings", "set", "min-workers", "2", "--yes").stdout
        == "min_workers is 2 (was 0).\nNo worker will be stopped within 5 minutes.\n"
    )
    assert plane.lcm("settings", "unset", "MIN_WORKERS", "--yes").stdout.startswith("min_workers is 0 (was 2).\n")
    made = plane.lcm("tokens", "create", "ben", "--role", "viewer", "--expires", "30d")
    assert plane.lcm("whoami", "-o", "name", env={"LCM_TOKEN": made.stdout.strip()}).stdout == "ben\n"
    plane.lcm("tokens", "revoke", "ben", "--yes")
    turned_away = plane.lcm("whoami", check=False, env={"LCM_TOKEN": made.stdout.strip()})
    assert turned_away.returncode == 1
    assert "Sign in: lcm login" in turned_away.stderr
    assert "secrets re-encrypted" in plane.lcm("secrets", "rotate").stdout
    assert "was reset" in plane.lcm("leadership", "reset", "worker-controller", "--yes").stdout


def test_a_worker_is_edited(plane: ControlPlaneProcess, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hidden\n")
    plane.lcm("workers", "create", "draft", "--template", "small", "--stopped", "--tag", "team=blue", "--tag", "old=1")
    edited = plane.lcm("workers", "edit", "draft", "--tag", "team=red", "--remove-tag", "old", "--name", "final")
    assert edited.stdout == "final updated.\n"
    options = ("--no-idle-detection", "--if-lost", "replace", "--cml-username", "me", "--cml-password-file")
    plane.lcm("workers", "edit", "final", *options, str(secret))
    worker = plane.worker("final")
    assert worker.tags == {"team": "red"}
    assert (worker.idle_detection_enabled, worker.lost_instance_policy) == (False, "replace")
    same = plane.lcm("workers", "edit", "final", "--no-idle-detection")
    assert same.stdout == "final is up to date; no change needed.\n"
    plane.lcm("workers", "terminate", "final", "--yes")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("lcm workers stop al", ["alpha"]),
        ("lcm workers get gam", ["gamma-1", "gamma-2"]),
        ("lcm templates get me", ["medium", "metal"]),
        ("lcm workers create new --template sm", ["small"]),
        ("lcm workers get nothing", []),
    ],
)
def test_a_shell_completes_names(plane: ControlPlaneProcess, words: str, names: list[str]) -> None:
    asked = {"_LCM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    asked["LCM_COMPLETION_SECONDS"] = "120"  # a loaded host may take longer than a user would wait
    assert sorted(plane.lcm(env=asked, check=False).stdout.split()) == names


def test_completion_is_silent_without_a_control_plane(plane: ControlPlaneProcess) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    asked = {"_LCM_COMPLETE": "complete_bash", "COMP_WORDS": "lcm workers get a", "COMP_CWORD": "3"}
    done = plane.lcm(env=asked | {"LCM_URL": nowhere}, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_version_and_short_help(plane: ControlPlaneProcess) -> None:
    assert plane.lcm("--version").stdout == plane.lcm("version").stdout
    assert plane.lcm("workers", "stop", "-h").stdout == plane.lcm("workers", "stop", "--help").stdout


def test_an_unreachable_server_is_one_line_with_remedies(plane: ControlPlaneProcess) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    done = plane.lcm("workers", "list", "--server", nowhere, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert all(words in done.stderr for words in (nowhere, "lcm up", "lcm login"))


def test_a_token_is_not_shown_to_another_address(plane: ControlPlaneProcess) -> None:
    """The token belongs to LCM_URL; --server names another server."""
    done = plane.lcm("whoami", "--server", plane.url.replace("127.0.0.1", "localhost"), check=False)
    assert done.returncode == 1
    assert "Sign in" in done.stderr


def test_contexts(plane: ControlPlaneProcess, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(plane.environment()["LCM_TOKEN"])
    away = {"LCM_URL": "", "LCM_TOKEN": "", "XDG_CONFIG_HOME": str(tmp_path)}
    assert "No contexts" in plane.lcm("contexts", "list", env=away).stdout
    plane.lcm("login", plane.url, "--name", "one", "--token-file", str(token), env=away)
    plane.lcm("login", plane.url, "--name", "two", "--token-file", str(token), "--keep-current", env=away)
    listed = json.loads(plane.lcm("contexts", "list", "-o", "json", env=away).stdout)
    assert listed == [
        {"name": "one", "url": plane.url, "current": True},
        {"name": "two", "url": plane.url, "current": False},
    ]
    plane.lcm("contexts", "use", "tw", env=away)
    assert "context two" in plane.lcm("whoami", env=away).stdout
    plane.lcm("contexts", "remove", "two", env=away)
    assert plane.lcm("contexts", "list", "-o", "name", env=away).stdout == "one\n"
    missed = plane.lcm("contexts", "use", "onne", check=False, env=away)
    assert (missed.returncode, "did you mean one?" in missed.stderr) == (1, True)


def test_without_a_terminal_each_change_is_a_line(plane: ControlPlaneProcess) -> None:
    command = [sys.executable, "-m", "lcm", "watch"]
    with subprocess.Popen(command, env=plane.environment(), stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        # Without a terminal nothing shows that the stream is connected: make changes until one appears.
        for number in range(20):
            plane.lcm("workers", "create", f"seen-{number}", "--template", "micro", "--stopped")
            if select_line(watching.stdout, 1.0):
                break
        line = watching.stdout.readline()
        assert re.match(r"\d\d:\d\d:\d\d UTC  seen-\d+  new: PENDING  by bootstrap: created", line)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(180) == 130


def select_line(stream: Any, seconds: float) -> bool:
    return bool(select.select([stream], [], [], seconds)[0])


def test_the_audit_is_filtered(plane: ControlPlaneProcess) -> None:
    output = json.loads(
        plane.lcm("audit", "--by", "person", "--action", "created", "--since", "1h", "-o", "json").stdout
    )
    assert {line["action"] for line in output} == {"created"}
    assert {line["actor"]["kind"] for line in output} == {"person"}
    assert len(output) >= 3
    found = json.loads(plane.lcm("audit", "-q", "QUOTA", "--actor", "worker-controller", "-o", "json").stdout)
    assert found
    assert all("quota" in line["reason"] for line in found)
    assert json.loads(plane.lcm("audit", "--until", "2020-01-01T00:00Z", "-o", "json").stdout) == []


def test_activity_is_summarized(plane: ControlPlaneProcess) -> None:
    night = json.loads(plane.lcm("fleet", "overnight", "--since", "1h", "-o", "json").stdout)
    steps = json.loads(plane.lcm("workers", "history", "broken", "-o", "json").stdout)
    failures = [step for step in steps if step["to_status"] == "FAILED"]
    assert {"what": "failed", "count": len(failures)} in [
        {name: done[name] for name in ("what", "count")} for done in night["automation"]
    ]
    assert "created" in [done["what"] for done in night["people"]]
    shown = plane.lcm("fleet", "overnight").stdout
    assert "by policies" in shown
    assert "broken" in shown


def test_sessions_are_listed_and_ended(plane: ControlPlaneProcess) -> None:
    made = plane.lcm("tokens", "create", "carla", "--role", "viewer").stdout.strip()
    for _ in range(2):
        assert httpx.post(f"{plane.url}/api/session", json={"token": made}, timeout=60).status_code == 201
    table = plane.lcm("sessions", "list").stdout
    assert re.search(r"^NAME +ROLE +", table)
    listed = json.loads(plane.lcm("sessions", "list", "-o", "json").stdout)
    first, second = (each["id"] for each in listed if each["name"] == "carla")
    assert first[:12] in table
    several = plane.lcm("sessions", "end", "carla", "--yes", check=False)
    assert (several.returncode, "matches 2 sessions" in several.stderr) == (1, True)
    dry = plane.lcm("sessions", "end", first[:12], "--dry-run").stdout
    assert dry.startswith("Dry run: no changes made.")
    assert "carla has to sign in again there" in dry
    assert plane.lcm("sessions", "end", first[:12], "--yes").stdout == "The session of carla has ended.\n"
    assert plane.lcm("sessions", "end", "carla", "--yes", "-o", "name").stdout == f"{second}\n"
    gone = plane.lcm("sessions", "end", "carla", "--yes", check=False)
    assert (gone.returncode, "no session 'carla'" in gone.stderr) == (1, True)
    left = json.loads(plane.lcm("sessions", "list", "-o", "json").stdout)
    assert "carla" not in [each["name"] for each in left]
    plane.lcm("tokens", "revoke", "carla", "--yes")
