"""Texts for people: notes, costs, plans, losses, loads, settings and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from lcm.cli.commands.plan import UNDECIDED, group_by_action, other_sections, overview_lines
from lcm.cli.errors import CommandError, UsageError
from lcm.cli.live.top import WorkerLoad, sort_key, usage_bar, usage_style
from lcm.cli.output.durations import format_time_with_zone
from lcm.cli.output.printer import Printer
from lcm.cli.output.worker_views import show_explanation, show_worker, worker_notes, worker_status_text
from lcm.cli.runtime.client_factory import DryRunStopError, ReadOnlyTransport, describe_error
from lcm.cli.runtime.options import OutputFormat, validate
from lcm.cli.runtime.target import Target
from lcm.cli.runtime.waiting import WorkerGoal, parse_goal, progress_line
from lcm.client.errors import (
    ClientTimeoutError,
    InvalidRequestError,
    NotPossibleNowError,
    OutcomeUnknownError,
    UnauthenticatedError,
    UnreachableError,
)
from lcm.core import clock
from lcm.http.transport import HttpRequest
from lcm.model.audit import ActionType, PlannedAction
from lcm.model.booking.record import BookingStatus
from lcm.model.fleet.plan import (
    FleetPlan,
    LabletPlan,
    PlannedBookingBoundary,
    PlannedBoundary,
    PlannedPlacement,
    PlannedScaleUp,
    PlannedWorker,
)
from lcm.model.problems import FieldProblem
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.cost import describe_license_release, describe_running_nodes
from lcm.model.worker.explain import Explanation
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Hold
from lcm.model.worker.requests import CreateWorkerRequest
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

TARGET = Target("http://lcm.test", "secret", "LCM_URL")


def condition(kind: ConditionType, status: str = "True", message: str = "") -> Condition:
    return Condition(type=kind, status=ConditionStatus(status), message=message, since=NOW)


def test_notes_say_what_one_line_should() -> None:
    held = a_worker(hold=Hold(reason="maintenance", by="anna", since=NOW))
    assert worker_notes(held, NOW) == "on hold: maintenance"
    assert worker_notes(a_worker(status="FAILED"), NOW) == "lcm workers explain alpha"
    stuck = a_worker(conditions=(condition(ConditionType.STUCK, message="CML is silent"),))
    assert worker_notes(stuck, NOW) == "stuck: CML is silent"
    assert worker_notes(a_worker(), NOW) == ""
    over = a_worker(hold=Hold(reason="x", by="anna", since=NOW, until=NOW + timedelta(minutes=1)))
    assert worker_notes(over, NOW + timedelta(minutes=2)) == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"status": "RUNNING"}, "RUNNING"),
        ({"status": "RUNNING", "desired_status": "STOPPED"}, "RUNNING → STOPPED"),
        ({"status": "FAILED"}, "FAILED"),
        ({"status": "FAILED", "desired_status": "TERMINATED"}, "FAILED → TERMINATED"),
    ],
)
def test_status_text(fields: dict[str, str], words: str) -> None:
    assert worker_status_text(a_worker(**fields)) == words


def planned(name: str, instance: str = "", note: str = "") -> PlannedWorker:
    actions = (PlannedAction(type=ActionType.STOP_INSTANCE, text="stop the instance"),) if instance else ()
    return PlannedWorker(
        worker_id=f"w-{name}",
        name=name,
        status=WorkerStatus.RUNNING,
        desired_status=DesiredStatus.STOPPED,
        actions=actions,
        summary=f"Instance {instance} will be stopped." if instance else "",
        note=note,
    )


def test_a_plan_is_grouped_by_what_will_be_done() -> None:
    items = [planned("a", "i-0abc12"), planned("b"), planned("c", "i-0def34"), planned("d", note="not decided yet")]
    assert [(heading, [item.name for item in group]) for heading, group in group_by_action(items)] == [
        ("Its instance will be stopped", ["a", "c"]),
        (UNDECIDED, ["d"]),
    ]
    assert overview_lines(FleetPlan(items=()), items) == [
        "2 workers will change; 1 worker not decided yet; 1 worker as desired or in progress."
    ]
    held = FleetPlan(items=(), hold=Hold(reason="exam", by="anna", since=NOW), evaluation="no worker controller leads")
    assert overview_lines(held, []) == [
        "The fleet is on hold by anna (exam): all of this waits for its release.",
        "Workers are not evaluated at present: no worker controller leads.",
        "No worker will change.",
    ]


def test_a_plan_has_lines_for_lablets_and_automation() -> None:
    lablets = LabletPlan(
        blocked="the fleet is on hold",
        placements=(PlannedPlacement(lablet_id="l-1", lablet_name="bgp", worker_id="w-1", worker_name="alpha"),),
        placements_total=12,
        scale_ups=(PlannedScaleUp(template="large", aws_region="eu-west-1", cost_per_hour_usd=0.5, lablets=2),),
        scale_ups_total=1,
    )
    sections = dict(other_sections(FleetPlan(items=(), lablets=lablets)))
    assert sections == {
        "Lablets to be placed (12) (waits: the fleet is on hold)": ["bgp on alpha", "and 11 more"],
        "Workers for lablets (1) (waits: the fleet is on hold)": [
            "a large will be launched in eu-west-1 for 2 lablets ($0.5 an hour)"
        ],
    }


def sample(**figures: Any) -> MetricsSample:
    return MetricsSample(worker_id="w-1", instance_id="i-1", collected_at=NOW, **figures)


def test_losses() -> None:
    running = a_worker(status="RUNNING")
    assert (
        describe_running_nodes(sample(labs_count=2, nodes_count=9, running_nodes=5), running)
        == "5 of 9 nodes, in 2 labs"
    )
    assert "unknown" in describe_running_nodes(None, running)
    assert describe_running_nodes(None, a_worker(status="STOPPED")) == "nothing; it is not running"
    assert "deregistered" in describe_license_release(a_worker(license_status="registered"))
    stopped = describe_license_release(
        a_worker(license_status="registered", status="STOPPED", desired_status="STOPPED", instance_id="i-1")
    )
    assert "for 47 minutes at most with the default timeouts, at " in stopped
    assert "at most three instances per region are started at once, so it may first wait for its turn" in stopped


def test_loads_are_sorted_with_the_unknown_last() -> None:
    loads = [
        WorkerLoad(a_worker(name="idle"), sample(cpu_utilization=3.0)),
        WorkerLoad(a_worker(name="unknown"), None),
        WorkerLoad(a_worker(name="busy"), sample(cpu_utilization=97.0)),
    ]
    assert [load.worker.name for load in sorted(loads, key=lambda load: sort_key(load, "cpu"))] == [
        "busy",
        "idle",
        "unknown",
    ]
    assert (usage_bar(0), usage_bar(55), usage_bar(130)) == ("░" * 10, "█████░░░░░"[:5] + "█" + "░" * 4, "█" * 10)
    assert [usage_style(share) for share in (None, 10, 75, 95)] == ["dim", "green", "yellow", "red"]


@pytest.mark.parametrize(
    ("text", "fields", "met", "fails"),
    [
        ("ready", {"status": "STARTING"}, False, False),
        ("ready", {"status": "FAILED"}, False, True),
        ("ready", {"status": "RUNNING", "desired_status": "STOPPED"}, False, True),
        ("ready", {"status": "RUNNING", "conditions": (condition(ConditionType.CML_READY),)}, True, False),
        ("license", {"status": "RUNNING", "license_status": "registered"}, True, False),
        ("licence", {"status": "RUNNING", "license_status": "failed"}, False, True),  # the other spelling
        ("Stopped", {"status": "STOPPED"}, True, False),
        ("terminated", {"status": "FAILED", "desired_status": "TERMINATED"}, False, False),
        ("failed", {"status": "FAILED"}, True, False),
    ],
)
def test_goals(text: str, fields: dict[str, Any], met: bool, fails: bool) -> None:
    goal, worker = parse_goal(text), a_worker(**fields)
    assert goal.is_met(worker) is met
    assert met or bool(goal.wait_failure(worker)) is fails


def test_progress_is_one_line() -> None:
    worker: Worker = a_worker(status="RUNNING", conditions=(condition(ConditionType.CML_READY, "False"),))
    line = progress_line(worker, timedelta(seconds=65), WorkerGoal("ready"))
    assert line == "1:05  alpha  RUNNING (CmlReady=False)  waiting for ready"


def test_error_messages_quote_the_server() -> None:
    assert describe_error(
        NotPossibleNowError(409, "not_possible_now", "only a FAILED worker can be retried"), TARGET
    ) == ("only a FAILED worker can be retried")
    wrong = InvalidRequestError(422, "invalid", "not right", errors=[FieldProblem(field="name", message="too long")])
    assert describe_error(wrong, TARGET) == "name: too long"
    wrong_token = UnauthenticatedError(401, "unauthenticated", "no such token.")
    assert describe_error(wrong_token, replace(TARGET, token="wrong")) == (
        "no such token. Sign in: lcm login http://lcm.test"
    )
    none = UnauthenticatedError(
        401, "unauthenticated", "Sign in: send Authorization: Bearer <token>, or use lcm login."
    )
    assert describe_error(none, replace(TARGET, token=None)) == (
        "you are not signed in to http://lcm.test. Sign in: lcm login http://lcm.test"
    )
    message = describe_error(UnreachableError("x"), TARGET)
    assert message is not None
    assert all(words in message for words in ("http://lcm.test", "LCM_URL", "lcm up", "lcm login"))
    late = describe_error(ClientTimeoutError("x"), TARGET)
    assert late is not None
    assert "in time" in late
    doubt = describe_error(OutcomeUnknownError("it may have happened"), TARGET)
    assert doubt is not None
    assert "Check the current state before" in doubt
    assert describe_error(KeyError("a bug"), TARGET) is None


def test_invalid_values_are_named_and_secrets_are_not_quoted() -> None:
    fields = {"name": "no good", "template_name": "small", "license_token": "s3cret with spaces"}
    with pytest.raises(UsageError) as caught:
        validate(CreateWorkerRequest, fields)
    assert "name: " in str(caught.value)
    assert "license_token: a license token may" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_dry_run_lets_reads_pass_and_nothing_else() -> None:
    answered = httpx.MockTransport(lambda _: httpx.Response(200, json={}))
    wire = ReadOnlyTransport(HttpxTransport(answered))
    assert (await wire.send(HttpRequest("GET", "http://x/api/workers", {}))).status == 200
    body = json.dumps({"cml_password": "s3cret", "name": "a"}).encode()
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(DryRunStopError) as caught:
            await wire.send(HttpRequest(method, "http://x/api/workers?a=b", {}, body))
        assert (caught.value.method, caught.value.path) == (method, "/api/workers?a=b")
        assert caught.value.body == {"cml_password": "***", "name": "a"}
    await wire.aclose()


def test_an_explanation_begins_with_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    explanation = Explanation(
        worker_id="w-1",
        summary="alpha has been RUNNING for 3 minutes but is not ready. It takes lablets.",
        next="It takes lablets.",
        status=WorkerStatus.RUNNING,
        desired_status=DesiredStatus.RUNNING,
        ready=False,
    )
    show_explanation(Printer(), "alpha", explanation)
    assert capsys.readouterr().out == (
        "alpha: RUNNING\n\n"
        "alpha has been RUNNING for 3 minutes but is not ready.\n\n"
        "What happens next\n"
        "It takes lablets.\n\n"
        "decision  none yet: no controller has evaluated it\n"
    )


def test_data_forms(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(OutputFormat.JSON).data({"name": "ü"})
    Printer(OutputFormat.YAML).data({"name": "ü"})
    json_text, yaml_text = capsys.readouterr().out.rsplit("name: ", 1)
    assert json.loads(json_text) == {"name": "ü"}
    assert yaml_text == "ü\n"


def test_a_wrong_goal_names_what_is_possible() -> None:
    with pytest.raises(CommandError, match="ready, license, or one of pending"):
        parse_goal("tea")


def test_the_plan_shows_when_classes_and_schedules_change() -> None:
    opens = PlannedBoundary(schedule_id="s-1", name="office", opens=True, at=NOW + timedelta(hours=1))
    begins = PlannedBookingBoundary(
        booking_id="bk-1", name="bgp", number=2, status=BookingStatus.ACTIVE, at=NOW + timedelta(hours=2), workers=3
    )
    plan = FleetPlan(items=(), schedule_boundaries=(opens,), booking_boundaries=(begins,), booking_boundaries_total=1)
    sections = dict(other_sections(plan))
    (line,) = sections["Schedules (1)"]
    assert line.startswith(f"office opens at {format_time_with_zone(opens.at)}, ")
    (line,) = sections["Bookings (1)"]
    assert line.startswith(f"bgp, class 2: begins at {format_time_with_zone(begins.at)}, ")


def test_a_worker_is_shown_with_its_team_and_its_booking(capsys: pytest.CaptureFixture[str]) -> None:
    until = clock.now() + timedelta(hours=1)
    show_worker(Printer(), a_worker(team="team-1", booking_id="bk-1", booked_until=until))
    shown = capsys.readouterr().out
    assert "team-1" in shown
    assert f"for bk-1 until {format_time_with_zone(until)}" in shown
    show_worker(Printer(), a_worker())
    assert not {"team", "booked"} & set(capsys.readouterr().out.split())
