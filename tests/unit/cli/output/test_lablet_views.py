"""Texts about lablets, and when waiting for one fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.cli.output.lablet_views import (
    lablet_columns,
    lablet_notes,
    lablet_status_text,
    requirements_text,
    show_lablet,
    show_lablet_history,
    show_preview,
    show_rejections,
)
from lcm.cli.output.printer import Printer
from lcm.cli.runtime.options import OutputFormat
from lcm.cli.runtime.waiting import lablet_wait_failure
from lcm.model.lablet.access import describe_access
from lcm.model.lablet.placement import LabletPreview, PlacementCandidate, PreviewOutcome
from lcm.model.lablet.record import LabletRequirements, NodeEndpoint, Placement, Rejection
from lcm.model.lablet.status import LabletStatus
from tests.support.records.lablet_records import a_lablet, a_ready_worker
from tests.support.records.workers import NOW

REJECTIONS = tuple(
    Rejection(worker_id=f"w-{number}", worker_name=f"lab-{number}", reason="it is DRAINING") for number in range(25)
)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "PENDING_SCHEDULING"),
        ({"status": "RUNNING", "ending": "EXPIRED"}, "RUNNING → EXPIRED"),
        ({"status": "FAILED", "ending": "FAILED"}, "FAILED"),
    ],
)
def test_the_status_says_how_it_ends(fields: dict[str, Any], words: str) -> None:
    assert lablet_status_text(a_lablet(**fields)) == words


def test_notes_say_what_one_line_should() -> None:
    waits = Placement(at=NOW, reason="3 workers are full")
    assert lablet_notes(a_lablet(placement=waits)) == "3 workers are full"
    assert lablet_notes(a_lablet(placement=waits, message="booting")) == "booting"
    assert lablet_notes(a_lablet(status="SCHEDULED", placement=waits)) == ""
    assert lablet_notes(a_lablet(status="FAILED", ending_reason="no boot")) == "no boot"


def test_a_line_of_the_list() -> None:
    lablet = a_lablet(status="RUNNING", worker_id="w-1", ends_at=NOW + timedelta(hours=2))
    cells = {
        column.title: column.cell(lablet)
        for column in lablet_columns(NOW, {"w-1": a_ready_worker(id="w-1", name="alpha")})
    }
    assert (cells["WORKER"], cells["ENDS"], cells["FOR"], cells["ID"]) == ("alpha", "in 2h", "0s", "l-1")
    unknown = {column.title: column.cell(lablet) for column in lablet_columns(NOW + timedelta(hours=3), {})}
    assert (unknown["WORKER"], unknown["ENDS"]) == ("w-1", "now")
    assert (unknown["STATUS"], unknown["NOTES"]) == ("RUNNING", ""), "nothing is known of its worker"


@pytest.mark.parametrize(
    ("worker", "status", "note"),
    [
        ("STOPPED", "RUNNING, not reachable", "The lab is stopped with its worker alpha, which has been STOPPED since"),
        ("UNKNOWN", "RUNNING, not reachable", "Whether the lab is running is not known: it is on alpha, which"),
        ("RUNNING", "RUNNING", ""),
        ("DRAINING", "RUNNING", ""),
    ],
)
def test_a_line_of_the_list_denies_that_a_lab_runs_whose_worker_does_not(worker: str, status: str, note: str) -> None:
    on = a_ready_worker(id="w-1", name="alpha", status=worker, public_ip="192.0.2.7")
    lablet = a_lablet(status="RUNNING", worker_id="w-1", instance_id=on.instance_id)
    cells = {column.title: column.cell(lablet) for column in lablet_columns(NOW, {"w-1": on})}
    assert cells["STATUS"] == status
    assert cells["NOTES"].startswith(note)
    assert bool(cells["NOTES"]) == bool(note)


def test_requirements_on_one_line() -> None:
    assert requirements_text(LabletRequirements(license=False)) == "1 CPU, 1 GB memory, 1 GB disk, 1 node"
    all_of_them = LabletRequirements(
        cpu_cores=0.5, nodes=3, cml_version=">=2.7", node_definitions=("iosv", "alpine"), ports=("CON",)
    )
    assert requirements_text(all_of_them) == (
        "0.5 CPU, 1 GB memory, 1 GB disk, 3 nodes, a license, CML >=2.7, node definitions iosv, alpine, ports CON"
    )


def test_a_waiting_lablet_lists_rejected_workers(capsys: pytest.CaptureFixture[str]) -> None:
    placement = Placement(at=NOW, reason="none fits", rejections=REJECTIONS, rejected=30)
    show_lablet(Printer(OutputFormat.TABLE), a_lablet(placement=placement), None)
    output = capsys.readouterr().out
    assert "none fits" in output
    assert "lab-19" in output
    assert "lab-20" not in output
    assert "and 10 more; -o json shows 25" in output


def test_a_running_lablet_shows_its_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    running = a_lablet(
        status="RUNNING",
        worker_id="w-1",
        lab_id="lab-1",
        ports={"CON": 20000, "WEB": 20001},
        endpoints=(NodeEndpoint(node="R1", addresses=("10.0.0.1",)), NodeEndpoint(node="R2")),
        placement=Placement(at=NOW, worker_id="w-1", score=0.5, reason="the best", rejections=REJECTIONS, rejected=25),
    )
    worker = a_ready_worker(name="alpha", public_ip="192.0.2.7")
    tags = [("R1", ("serial:${CON}", "pat:2022:22", "pat:udp:2161:161")), ("R3", ("vnc:2005", "serial:2006:1"))]
    show_lablet(Printer(OutputFormat.TABLE), running, describe_access(running, worker, tags))
    output = capsys.readouterr().out
    assert "alpha (w-1)" in output
    assert "the best" in output
    assert "lab-0" not in output
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert lines[lines.index("Access: The lab is running.") :] == [
        "Access: The lab is running.",
        "host 192.0.2.7",
        "lab in CML https://192.0.2.7/lab/lab-1",
        "",
        "R1",
        "console telnet 192.0.2.7 20000",
        "TCP 22 ssh -p 2022 192.0.2.7",
        "UDP 161 192.0.2.7:2161",
        "in the lab 10.0.0.1",
        "",
        "R2",
        "connect in CML only: no port is forwarded to it",
        "",
        "R3",
        "screen (VNC) vncviewer 192.0.2.7::2005",
        "console, line 1 telnet 192.0.2.7 2006",
        "",
        "Reserved, used by no tag of a node: WEB 192.0.2.7:20001",
    ]


def test_a_lab_whose_worker_is_stopped_is_not_said_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    running = a_lablet(status="RUNNING", worker_id="w-1")
    worker = a_ready_worker(name="alpha", status="STOPPED")
    show_lablet(Printer(OutputFormat.TABLE), running, describe_access(running, worker, ()))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert next(line for line in lines if line.startswith("status")).endswith(", but not reachable")
    assert "The lab is stopped with its worker alpha, which has been STOPPED since 2026-01-17 10:30:00 UTC." in lines


def test_a_lablet_without_an_address_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    ended = a_lablet(status="EXPIRED", worker_id="w-1")
    show_lablet(Printer(OutputFormat.TABLE), ended, describe_access(ended, None, ()))
    assert "Its addresses and ports are released." in capsys.readouterr().out
    hidden = a_lablet(status="RUNNING", worker_id="w-1")
    worker = a_ready_worker(private_ip="10.0.0.9")
    show_lablet(Printer(OutputFormat.TABLE), hidden, describe_access(hidden, worker, ()))
    output = capsys.readouterr().out
    assert "10.0.0.9 (private address" in output
    assert "the lab has no id yet" in output


@pytest.mark.parametrize(("retries", "shown"), [(0, None), (1, "1 time, as it had failed"), (3, "3 times, as it")])
def test_it_is_said_how_often_a_failed_seat_was_made_anew(
    retries: int, shown: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    show_lablet(Printer(OutputFormat.TABLE), a_lablet(retries=retries), None)
    output = capsys.readouterr().out
    assert ("made anew" in output) == bool(retries)
    assert shown is None or shown in output


def test_a_preview_begins_with_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    preview = LabletPreview(
        definition="ospf@1",
        requirements=LabletRequirements(),
        outcome=PreviewOutcome.LAUNCH,
        reason="a small would be launched",
        effect="A small would be launched. Nothing is placed at present: the fleet is on hold by bob: exam.",
        cost="$0.02 an hour more, for a small in eu-west-1.",
        candidates=(PlacementCandidate(worker_id="w-1", worker_name="alpha", score=0.5),),
        rejections=REJECTIONS[:1],
        rejected=1,
        template="small",
        cost_per_hour_usd=0.02,
    )
    show_preview(Printer(OutputFormat.TABLE), preview)
    output = capsys.readouterr().out
    assert output.startswith("ospf@1: A small would be launched. Nothing is placed at present: the fleet is on hold")
    assert "$0.02 an hour more, for a small in eu-west-1." in output
    assert "0.500" in output
    assert "it is DRAINING" in output


def test_nothing_more_is_said_where_all_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_rejections(Printer(OutputFormat.TABLE), REJECTIONS[:2], 2)
    assert "more" not in capsys.readouterr().out


def test_an_expired_history(capsys: pytest.CaptureFixture[str]) -> None:
    show_lablet_history(Printer(OutputFormat.TABLE), "mine", [])
    assert capsys.readouterr().out == "mine has no recorded history.\n"


@pytest.mark.parametrize(
    ("fields", "goal", "why"),
    [
        ({"status": "RUNNING"}, "TERMINATED", ""),
        ({"status": "SCHEDULED"}, "RUNNING", ""),
        ({"status": "FAILED"}, "RUNNING", "exercise is FAILED"),
        ({"status": "FAILED"}, "TERMINATED", "exercise is FAILED"),
        ({"status": "FAILED", "booking_id": "b-1"}, "RUNNING", ""),  # a seat is made anew
        ({"status": "FAILED", "booking_id": "b-1", "retries": 4}, "RUNNING", "exercise is FAILED"),
        ({"status": "FAILED", "booking_id": "b-1", "wanted": False}, "RUNNING", "exercise is FAILED"),
        ({"status": "FAILED", "booking_id": "b-1"}, "TERMINATED", "exercise is FAILED"),
        ({"status": "RUNNING", "wanted": False, "ending": "TERMINATED"}, "TERMINATED", ""),
        ({"status": "RUNNING", "wanted": False, "ending": "TERMINATED"}, "STOPPING", ""),
        ({"status": "INSTANTIATING", "wanted": False, "ending": "TERMINATED"}, "RUNNING", "ends as TERMINATED"),
        ({"status": "STOPPING", "ending": "FAILED"}, "TERMINATED", "ends as FAILED"),
    ],
)
def test_waiting_fails_if_the_goal_cannot_be_reached(fields: dict[str, Any], goal: str, why: str) -> None:
    failure = lablet_wait_failure(a_lablet(**fields), LabletStatus(goal))
    assert (why in failure, bool(failure)) == (True, bool(why))
