"""How workers look in a terminal: in a list, alone, explained, and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.output.durations import format_duration, format_timestamp, format_timestamp_utc
from lcm.cli.output.printer import status_style
from lcm.cli.output.tables import Column
from lcm.core import clock
from lcm.model.worker.cost import METRICS_MAX_AGE, cost_so_far, describe_license_release, describe_running_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.cli.output.printer import Printer
    from lcm.cli.runtime.session import Session
    from lcm.model.audit import WorkerHistoryEntry
    from lcm.model.worker.conditions import Condition
    from lcm.model.worker.explain import Explanation
    from lcm.model.worker.record import Worker


_POSITIVE_CONDITIONS = ("InstanceReady", "CmlReady", "Licensed")
_NEGATIVE_CONDITIONS = ("Stuck",)


def format_age(moment: datetime | None, now: datetime) -> str:
    """How long ago, in as few letters as say enough."""
    return "" if moment is None else format_duration(now - moment)


def worker_notes(worker: Worker, now: datetime) -> str:
    """What somebody should know who sees only one line of it."""
    said = []
    if worker.hold is not None and worker.hold.active(now):
        said.append(f"on hold: {worker.hold.reason}")
    said += [f"stuck: {each.message or each.reason}" for each in worker.conditions if _is_true(each, "Stuck")]
    if worker.status == "FAILED" and not said:
        said.append(f"lcm workers explain {worker.name}")
    if worker.drifted:
        said.append("drifted")
    if worker.license_status == "failed":
        said.append("licence refused")
    if worker.paused_by_policy and worker.desired_status == "STOPPED":
        said.append(f"paused: {worker.pause_reason or 'idle'}")
    if any(_is_true(each, "Idle") for each in worker.conditions):
        said.append("idle")
    return "; ".join(said)


def _is_true(condition: Condition, kind: str) -> bool:
    return condition.type == kind and condition.status == "True"


def worker_status_text(worker: Worker) -> str:
    """The status, and where it is going if that is elsewhere."""
    wanted = worker.desired_status.value
    settled = worker.status.value == wanted or (worker.status == "FAILED" and wanted == "RUNNING")
    return worker.status.value if settled else f"{worker.status.value} → {wanted}"


def worker_columns(now: datetime) -> list[Column[Worker]]:
    """The columns of a list."""
    return [
        Column("NAME", lambda worker: worker.name, least=12),
        Column("STATUS", worker_status_text, style=lambda worker: status_style(worker.status.value)),
        Column("READY", lambda worker: "yes" if worker.ready else "no", rank=1, style=_ready_style),
        Column("REGION", lambda worker: worker.aws_region, rank=4),
        Column("TEMPLATE", lambda worker: worker.template_name or "", rank=5),
        Column("ADDRESS", lambda worker: worker.public_ip or worker.private_ip or "", rank=7),
        Column("FOR", lambda worker: format_age(worker.status_since, now), rank=3, right=True),
        Column("LICENCE", lambda worker: worker.license_status.value, rank=6),
        Column("LABLETS", lambda worker: str(worker.allocation.lablets), rank=10, wide=True, right=True),
        Column("INSTANCE", lambda worker: worker.instance_id or "", rank=8, wide=True),
        Column("TYPE", lambda worker: worker.instance_type or "", rank=10, wide=True),
        Column("CML", lambda worker: worker.cml_version or "", rank=11, wide=True),
        Column("$/H", lambda worker: format_money(worker.cost_per_hour_usd), rank=9, wide=True, right=True),
        Column("ID", lambda worker: worker.id, rank=12, wide=True),
        Column("AGE", lambda worker: format_age(worker.created_at, now), rank=13, wide=True, right=True),
        Column("NOTES", lambda worker: worker_notes(worker, now), rank=2, least=16, style=lambda _: "yellow"),
    ]


def _ready_style(worker: Worker) -> str:
    return "green" if worker.ready else ""


def format_money(amount: float | None) -> str:
    """Dollars, with as many places as say something."""
    if amount is None:
        return ""
    return f"{amount:.4f}" if 0 < amount < 0.1 else f"{amount:.2f}"


def show_worker(screen: Printer, worker: Worker) -> None:
    """One worker, all that a person asks for."""
    now = clock.now()
    cost = cost_so_far(worker, now)
    addresses = [each for each in (worker.public_ip, worker.private_ip and f"{worker.private_ip} (private)") if each]
    facts = [
        ("status", f"{worker.status} for {format_duration(now - worker.status_since)}, wanted {worker.desired_status}"),
        ("ready", "yes" if worker.ready else "no"),
        ("region", worker.aws_region),
        ("template", worker.template_name or "none"),
        ("instance", _instance_text(worker)),
        ("address", ", ".join(addresses) or "none"),
        ("CML", worker.cml_version or "not known"),
        ("licence", _license_text(worker)),
        ("lablets", _lablets_text(worker)),
        ("cost", _cost_text(worker.cost_per_hour_usd, cost)),
        ("if lost", worker.lost_instance_policy.value),
        ("notes", worker_notes(worker, now)),
        ("tags", ", ".join(f"{key}={value}" for key, value in sorted(worker.tags.items()))),
        (
            "created",
            f"{format_timestamp_utc(worker.created_at)} ({format_duration(now - worker.created_at)} ago), {worker.origin}",
        ),
        ("id", f"{worker.id} (version {worker.version})"),
    ]
    screen.say(worker.name, style="bold")
    screen.facts([(name, text) for name, text in facts if text])
    if worker.conditions:
        screen.say()
        show_conditions(screen, worker.conditions, now)


def _instance_text(worker: Worker) -> str:
    if worker.instance_id is None:
        return "none"
    about = ", ".join(each for each in (worker.instance_type, worker.ami_id) if each)
    return f"{worker.instance_id} ({about})" if about else worker.instance_id


def _license_text(worker: Worker) -> str:
    token = "" if worker.has_license_token else ", no token"
    pending = worker.pending_license_operation
    asked = f", {pending.operation} asked by {pending.requested_by}" if pending is not None else ""
    return f"{worker.license_status}{token}{asked}"


def _lablets_text(worker: Worker) -> str:
    taken = worker.allocation
    if not taken.lablets:
        return ""
    return f"{taken.lablets}, taking {taken.cpu_cores:g} CPU, {taken.memory_gb:g} GB memory, {taken.nodes} nodes"


def _cost_text(rate: float | None, total: float | None) -> str:
    if rate is None:
        return "not known"
    return f"${format_money(rate)} an hour" + (f", about ${total:.2f} so far" if total is not None else "")


def show_conditions(screen: Printer, conditions: Sequence[Condition], now: datetime) -> None:
    """What else is true of it, since when and why."""
    columns: list[Column[Condition]] = [
        Column("CONDITION", lambda each: each.type.value),
        Column("HOLDS", lambda each: each.status.value, style=_condition_style),
        Column("SINCE", lambda each: f"{format_duration(now - each.since)} ago", right=True),
        Column(
            "WHY", lambda each: ": ".join(part for part in (each.reason, each.message) if part), least=20, wrap=True
        ),
    ]
    screen.table(columns, conditions)


def _condition_style(condition: Condition) -> str:
    holds = condition.status.value
    if condition.type.value in _POSITIVE_CONDITIONS:
        return {"True": "green", "False": "red"}.get(holds, "yellow")
    if condition.type.value in _NEGATIVE_CONDITIONS:
        return "bold red" if holds == "True" else ""
    return "yellow" if holds == "True" else ""


def show_explanation(screen: Printer, name: str, told: Explanation) -> None:
    """Why it is as it is: first the answer, then what it rests on."""
    now = clock.now()
    ready = ", ready" if told.ready else ""
    wanted = "" if told.status.value == told.desired_status.value else f", wanted {told.desired_status}"
    screen.say(f"{name}: {told.status}{ready}{wanted}", style=status_style(told.status.value))
    screen.say()
    screen.say(told.summary.removesuffix(told.next).strip())
    screen.say()
    screen.say("What happens next", style="bold")
    following = told.next.removeprefix("Next, ")
    screen.say(following[:1].upper() + following[1:])
    if told.conditions:
        screen.say()
        show_conditions(screen, told.conditions, now)
    screen.say()
    screen.facts(_explanation_details(told, now), indent=0)


def _explanation_details(told: Explanation, now: datetime) -> list[tuple[str, str]]:
    facts = []
    last, decision = told.last_transition, told.decision
    if last is not None:
        came = f"{last.from_status} → {last.to_status}" if last.from_status else f"created as {last.to_status}"
        when = f"{format_duration(now - last.at)} ago, {format_timestamp_utc(last.at)}"
        facts.append(("last step", f"{came} by {last.actor.name} ({when}): {last.reason or 'no reason given'}"))
    if decision is None:
        facts.append(("decision", "none yet: no controller has looked at it"))
        return facts
    facts.append(("decision", f"{decision.reason} ({decision.rule}, {format_duration(now - decision.decided_at)} ago)"))
    if decision.actions:
        facts.append(("to do", "; ".join(decision.actions)))
    if decision.next_look_at is not None:
        late = decision.next_look_at <= now
        span = (
            f"was due {format_duration(now - decision.next_look_at)} ago"
            if late
            else f"in {format_duration(decision.next_look_at - now)}"
        )
        facts.append(("next look", f"{span} ({format_timestamp_utc(decision.next_look_at)})"))
    return facts


def show_worker_history(screen: Printer, name: str, steps: Sequence[WorkerHistoryEntry]) -> None:
    """Its life so far, oldest first."""
    now = clock.now()
    if not steps:
        screen.say(f"{name} has no history that is still kept.")
        return
    lasted = {
        each.version: (steps[number + 1].at if number + 1 < len(steps) else now) - each.at
        for number, each in enumerate(steps)
    }
    columns: list[Column[WorkerHistoryEntry]] = [
        Column("AGO", lambda step: format_duration(now - step.at), right=True),
        Column("AT (UTC)", lambda step: format_timestamp(step.at), rank=2),
        Column("STATUS", lambda step: step.to_status.value, style=lambda step: status_style(step.to_status.value)),
        Column("FOR", lambda step: format_duration(lasted[step.version]), rank=3, right=True),
        Column("BY", lambda step: step.actor.name, rank=1, least=17),
        Column("WHY", lambda step: step.reason, least=24, wrap=True),
    ]
    screen.table(columns, steps)


async def show_termination_losses(session: Session, worker: Worker) -> None:
    """The worker, and what goes with it."""
    now = clock.now()
    samples = await session.client.workers.metrics(worker.id, since=now - METRICS_MAX_AGE)
    session.screen.say(f"{worker.name} ({worker.id}) in {worker.aws_region}, {worker.status}", style="bold")
    facts = [
        (
            "instance",
            worker.instance_id or "none",
        ),
        ("running", describe_running_nodes(samples[-1] if samples else None, worker)),
        ("licence", describe_license_release(worker)),
    ]
    cost = cost_so_far(worker, now)
    if cost is not None:
        rate = format_money(worker.cost_per_hour_usd)
        facts.append(("cost", f"about ${cost:.2f} so far, ${rate} an hour; its disks and all on them are deleted"))
    if worker.last_activity_at is not None:
        facts.append(("last used", f"{format_duration(now - worker.last_activity_at)} ago"))
    session.screen.facts(facts)
