"""Workers in a terminal: list, details, explanation and history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.output.durations import (
    at_column_title,
    format_duration,
    format_time_with_zone,
    format_timestamp,
)
from lcm.cli.output.printer import status_style
from lcm.cli.output.tables import Column
from lcm.core import clock
from lcm.model.formatting import format_usd
from lcm.model.worker.cost import (
    cost_if,
    cost_so_far,
    instance_runs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.cli.output.printer import Printer
    from lcm.model.audit import WorkerHistoryEntry
    from lcm.model.worker.conditions import Condition
    from lcm.model.worker.explain import Explanation
    from lcm.model.worker.record import Worker


_POSITIVE_CONDITIONS = ("InstanceReady", "CmlReady", "Licensed")
_NEGATIVE_CONDITIONS = ("Stuck",)


def format_age(moment: datetime | None, now: datetime) -> str:
    """The time since a moment, in short form."""
    return "" if moment is None else format_duration(now - moment)


def worker_notes(worker: Worker, now: datetime) -> str:
    """The most important remarks, for the notes column."""
    notes = []
    if worker.hold is not None and worker.hold.active(now):
        notes.append(f"on hold: {worker.hold.reason}")
    if worker.override is not None and worker.override.active(now) and worker.override.until is not None:
        notes.append(f"{worker.override.desired.value} until {format_time_with_zone(worker.override.until)}")
    notes += [f"stuck: {each.message or each.reason}" for each in worker.conditions if _is_true(each, "Stuck")]
    if worker.status == "FAILED" and not notes:
        notes.append(f"lcm workers explain {worker.name}")
    if worker.drifted:
        notes.append("drifted")
    if worker.license_status == "failed":
        notes.append("license rejected")
    if worker.paused_by_policy and worker.desired_status == "STOPPED":
        notes.append(f"paused: {worker.pause_reason or 'idle'}")
    if any(_is_true(each, "Idle") for each in worker.conditions):
        notes.append("idle")
    return "; ".join(notes)


def _is_true(condition: Condition, kind: str) -> bool:
    return condition.type == kind and condition.status == "True"


def worker_status_text(worker: Worker) -> str:
    """The status, with the desired status if it differs. A worker that waits for its first start is not launched."""
    desired = worker.desired_status.value
    if worker.is_not_launched:
        return "NOT LAUNCHED"
    settled = worker.status.value == desired or (worker.status == "FAILED" and desired == "RUNNING")
    return worker.status.value if settled else f"{worker.status.value} → {desired}"


def worker_columns(now: datetime) -> list[Column[Worker]]:
    """The columns of the worker list."""
    return [
        Column("NAME", lambda worker: worker.name, min_width=12, distinct=True),
        Column("STATUS", worker_status_text, style=lambda worker: status_style(worker.status.value)),
        Column("READY", lambda worker: "yes" if worker.ready else "no", priority=1, style=_ready_style),
        Column("REGION", lambda worker: worker.aws_region, priority=4),
        Column("TEMPLATE", lambda worker: worker.template_name or "", priority=5),
        Column("ADDRESS", lambda worker: worker.public_ip or worker.private_ip or "", priority=7),
        Column("FOR", lambda worker: format_age(worker.status_since, now), priority=3, align_right=True),
        Column("LICENSE", lambda worker: worker.license_status.value, priority=6),
        Column("LABLETS", lambda worker: str(worker.allocation.lablets), priority=10, wide_only=True, align_right=True),
        Column("INSTANCE", lambda worker: worker.instance_id or "", priority=8, wide_only=True),
        Column("TYPE", lambda worker: worker.instance_type or "", priority=10, wide_only=True),
        Column("CML", lambda worker: worker.cml_version or "", priority=11, wide_only=True),
        Column("$/H", _hourly_text, priority=9, wide_only=True, align_right=True),
        Column("ID", lambda worker: worker.id, priority=12, wide_only=True),
        Column("AGE", lambda worker: format_age(worker.created_at, now), priority=13, wide_only=True, align_right=True),
        Column("NOTES", lambda worker: worker_notes(worker, now), priority=2, min_width=16, style=lambda _: "yellow"),
    ]


def _ready_style(worker: Worker) -> str:
    return "green" if worker.ready else ""


def format_money(amount: float | None) -> str:
    """An amount in dollars, with more decimal places for small amounts."""
    return "" if amount is None else format_usd(amount).removeprefix("$")


def show_worker(printer: Printer, worker: Worker) -> None:
    """Print the details of one worker."""
    now = clock.now()
    cost = cost_so_far(worker, now)
    created = format_time_with_zone(worker.created_at)
    addresses = [each for each in (worker.public_ip, worker.private_ip and f"{worker.private_ip} (private)") if each]
    details = [
        (
            "status",
            f"{worker.status} for {format_duration(now - worker.status_since)}, desired {worker.desired_status}",
        ),
        ("ready", "yes" if worker.ready else "no"),
        ("region", worker.aws_region),
        ("template", worker.template_name or "none"),
        ("instance", _instance_text(worker)),
        ("address", ", ".join(addresses) or "none"),
        ("CML", worker.cml_version or "unknown"),
        ("license", _license_text(worker)),
        ("lablets", _lablets_text(worker)),
        ("team", worker.team),
        ("booked", _booked_text(worker, now)),
        ("cost", _cost_text(worker, cost)),
        ("on loss", worker.lost_instance_policy.value),
        ("notes", worker_notes(worker, now)),
        ("tags", ", ".join(f"{key}={value}" for key, value in sorted(worker.tags.items()))),
        ("created", f"{created} ({format_duration(now - worker.created_at)} ago), {worker.origin}"),
        ("id", f"{worker.id} (version {worker.version})"),
    ]
    printer.line(worker.name, style="bold")
    printer.details([(name, text) for name, text in details if text])
    if worker.conditions:
        printer.line()
        show_conditions(printer, worker.conditions, now)


def _booked_text(worker: Worker, now: datetime) -> str:
    if not worker.is_booked(now) or worker.booked_until is None:
        return ""
    return f"for {worker.booking_id} until {format_time_with_zone(worker.booked_until)}"


def _instance_text(worker: Worker) -> str:
    if worker.instance_id is None:
        return "none"
    about = ", ".join(each for each in (worker.instance_type, worker.ami_id) if each)
    return f"{worker.instance_id} ({about})" if about else worker.instance_id


def _license_text(worker: Worker) -> str:
    token = "" if worker.has_license_token else ", no token"
    pending = worker.pending_license_operation
    request = f", {pending.operation} requested by {pending.requested_by}" if pending is not None else ""
    return f"{worker.license_status}{token}{request}"


def _lablets_text(worker: Worker) -> str:
    used = worker.allocation
    if not used.lablets:
        return ""
    return f"{used.lablets}, using {used.cpu_cores:g} CPU, {used.memory_gb:g} GB memory, {used.nodes} nodes"


def _hourly_text(worker: Worker) -> str:
    """What it costs an hour now."""
    cost = worker.current_cost_per_hour_usd
    return "unknown" if cost is None else format_money(cost)


def _cost_text(worker: Worker, total: float | None) -> str:
    text = _now_text(worker)
    running = cost_if(worker, running=True)
    if running is not None and not instance_runs(worker) and worker.status.value != "TERMINATED":
        text += f", ${format_money(running)} while it runs"
    return text + (f", about ${total:.2f} so far" if total is not None else "")


def _now_text(worker: Worker) -> str:
    cost = worker.current_cost_per_hour_usd
    return "unknown" if cost is None else f"${format_money(cost)} per hour now"


def show_conditions(printer: Printer, conditions: Sequence[Condition], now: datetime) -> None:
    """Print the conditions with age and reason."""
    columns: list[Column[Condition]] = [
        Column("CONDITION", lambda each: each.type.value),
        Column("STATUS", lambda each: each.status.value, style=_condition_style),
        Column("SINCE", lambda each: f"{format_duration(now - each.since)} ago", align_right=True),
        Column(
            "REASON",
            lambda each: ": ".join(part for part in (each.reason, each.message) if part),
            min_width=20,
            wrap=True,
        ),
    ]
    printer.table(columns, conditions)


def _condition_style(condition: Condition) -> str:
    status = condition.status.value
    if condition.type.value in _POSITIVE_CONDITIONS:
        return {"True": "green", "False": "red"}.get(status, "yellow")
    if condition.type.value in _NEGATIVE_CONDITIONS:
        return "bold red" if status == "True" else ""
    return "yellow" if status == "True" else ""


def show_explanation(printer: Printer, name: str, explanation: Explanation) -> None:
    """Print an explanation: summary and next step first, then the details."""
    now = clock.now()
    ready = ", ready" if explanation.ready else ""
    desired = (
        ""
        if explanation.status.value == explanation.desired_status.value
        else f", desired {explanation.desired_status}"
    )
    printer.line(f"{name}: {explanation.status}{ready}{desired}", style=status_style(explanation.status.value))
    printer.line()
    printer.line(explanation.summary.removesuffix(explanation.next).strip())
    printer.line()
    printer.line("What happens next", style="bold")
    printer.line(explanation.next)
    if explanation.conditions:
        printer.line()
        show_conditions(printer, explanation.conditions, now)
    printer.line()
    printer.details(_explanation_details(explanation, now), indent=0)


def _explanation_details(explanation: Explanation, now: datetime) -> list[tuple[str, str]]:
    details = []
    last, decision = explanation.last_transition, explanation.decision
    if last is not None:
        came = f"{last.from_status} → {last.to_status}" if last.from_status else f"created as {last.to_status}"
        when = f"{format_duration(now - last.at)} ago, {format_time_with_zone(last.at)}"
        details.append(("last change", f"{came} by {last.actor.name} ({when}): {last.reason or 'no reason given'}"))
    if decision is None:
        details.append(("decision", "none yet: no controller has evaluated it"))
        return details
    details.append(
        ("decision", f"{decision.reason} ({decision.rule}, {format_duration(now - decision.decided_at)} ago)")
    )
    if decision.actions:
        details.append(("planned actions", "; ".join(decision.actions)))
    if decision.next_look_at is not None:
        late = decision.next_look_at <= now
        span = (
            f"was due {format_duration(now - decision.next_look_at)} ago"
            if late
            else f"in {format_duration(decision.next_look_at - now)}"
        )
        details.append(("next check", f"{span} ({format_time_with_zone(decision.next_look_at)})"))
    return details


def show_worker_history(printer: Printer, name: str, steps: Sequence[WorkerHistoryEntry]) -> None:
    """Print the status history, oldest first."""
    now = clock.now()
    if not steps:
        printer.line(f"{name} has no recorded history.")
        return
    lasted = {
        each.version: (steps[number + 1].at if number + 1 < len(steps) else now) - each.at
        for number, each in enumerate(steps)
    }
    columns: list[Column[WorkerHistoryEntry]] = [
        Column("AGO", lambda step: format_duration(now - step.at), align_right=True),
        Column(at_column_title(now), lambda step: format_timestamp(step.at, now), priority=2),
        Column("STATUS", lambda step: step.to_status.value, style=lambda step: status_style(step.to_status.value)),
        Column("FOR", lambda step: format_duration(lasted[step.version]), priority=3, align_right=True),
        Column("BY", lambda step: step.actor.name, priority=1, min_width=17),
        Column("REASON", lambda step: step.reason, min_width=24, wrap=True),
    ]
    printer.table(columns, steps)
