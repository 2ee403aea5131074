"""Lablets in a terminal: list, details, history, and placement preview."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.output.durations import (
    at_column_title,
    format_duration,
    format_minutes,
    format_time_with_zone,
    format_timestamp,
)
from lcm.cli.output.printer import status_style
from lcm.cli.output.tables import Column
from lcm.core import clock
from lcm.model.formatting import count_of
from lcm.model.lablet.access import unreachable_reason
from lcm.model.lablet.status import FINAL_LABLET_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.cli.output.printer import Printer
    from lcm.model.audit import LabletHistoryEntry
    from lcm.model.lablet.access import ForwardedPort, LabletAccess
    from lcm.model.lablet.placement import LabletPreview, PlacementCandidate
    from lcm.model.lablet.record import Lablet, LabletRequirements, Rejection
    from lcm.model.lablet.seats import SeatCost
    from lcm.model.worker.record import Worker

_MAX_ROWS = 20


def lablet_status_text(lablet: Lablet) -> str:
    """The status, with the final status if the lablet is ending."""
    ending = None if lablet.ending is None else lablet.ending.value
    if ending is None or ending == lablet.status.value:
        return lablet.status.value
    return f"{lablet.status.value} → {ending}"


def lablet_notes(lablet: Lablet) -> str:
    """The most important remarks, for the notes column."""
    if lablet.message:
        return lablet.message
    if lablet.status == "PENDING_SCHEDULING" and lablet.placement is not None:
        return lablet.placement.reason
    return lablet.ending_reason or ""


def lablet_columns(now: datetime, workers: Mapping[str, Worker]) -> list[Column[Lablet]]:
    """The columns of the lablet list; `workers` has known workers by id."""

    def unreachable(lablet: Lablet) -> str:
        return unreachable_reason(lablet, workers.get(lablet.worker_id or ""))

    def status(lablet: Lablet) -> str:
        return lablet_status_text(lablet) + (", not reachable" if unreachable(lablet) else "")

    def worker_name(lablet: Lablet) -> str:
        worker = workers.get(lablet.worker_id or "")
        return (lablet.worker_id or "") if worker is None else worker.name

    return [
        Column("NAME", lambda each: each.name, min_width=12, distinct=True),
        Column("STATUS", status, style=lambda each: "yellow" if unreachable(each) else status_style(each.status.value)),
        Column("DEFINITION", lambda each: each.definition, priority=3, min_width=12),
        Column("OWNER", lambda each: each.owner_name, priority=4, min_width=8),
        Column("WORKER", worker_name, priority=1, min_width=10),
        Column("FOR", lambda each: format_duration(now - each.status_since), priority=5, align_right=True),
        Column("ENDS", lambda each: _ends_text(each, now), priority=6, align_right=True),
        Column("NODES", lambda each: str(each.requirements.nodes), priority=8, wide_only=True, align_right=True),
        Column("CPU", lambda each: f"{each.requirements.cpu_cores:g}", priority=9, wide_only=True, align_right=True),
        Column(
            "MEMORY", lambda each: f"{each.requirements.memory_gb:g} GB", priority=10, wide_only=True, align_right=True
        ),
        Column("ID", lambda each: each.id, priority=11, wide_only=True),
        Column(
            "AGE", lambda each: format_duration(now - each.created_at), priority=12, wide_only=True, align_right=True
        ),
        Column(
            "NOTES",
            lambda each: unreachable(each) or lablet_notes(each),
            priority=2,
            min_width=16,
            style=lambda _: "yellow",
        ),
    ]


def _ends_text(lablet: Lablet, now: datetime) -> str:
    end = lablet.expires_at
    if end is None or lablet.status in FINAL_LABLET_STATUSES:
        return ""
    return f"in {format_duration(end - now)}" if end > now else "now"


def requirements_text(requirements: LabletRequirements) -> str:
    """Resource requirements on one line."""
    parts = [
        f"{requirements.cpu_cores:g} CPU",
        f"{requirements.memory_gb:g} GB memory",
        f"{requirements.storage_gb:g} GB disk",
        f"{requirements.nodes} node{'' if requirements.nodes == 1 else 's'}",
    ]
    if requirements.license:
        parts.append("a license")
    if requirements.cml_version is not None:
        parts.append(f"CML {requirements.cml_version}")
    if requirements.node_definitions:
        parts.append(f"node definitions {', '.join(requirements.node_definitions)}")
    if requirements.ports:
        parts.append(f"ports {', '.join(requirements.ports)}")
    return ", ".join(parts)


def show_lablet(printer: Printer, lablet: Lablet, access: LabletAccess | None) -> None:
    """Print the details of one lablet, and how to reach it."""
    now = clock.now()
    worker = (access.worker_name if access is not None else None) or lablet.worker_id or ""
    unreachable = ", but not reachable" if access is not None and access.state == "unreachable" else ""
    details = [
        ("status", f"{lablet_status_text(lablet)} for {format_duration(now - lablet.status_since)}{unreachable}"),
        ("notes", lablet_notes(lablet)),
        ("owner", lablet.owner_name),
        ("definition", lablet.definition),
        ("requirements", requirements_text(lablet.requirements)),
        ("worker", worker if worker == (lablet.worker_id or "") else f"{worker} ({lablet.worker_id})"),
        ("ports", ", ".join(f"{name}={number}" for name, number in sorted(lablet.ports.items()))),
        ("region", lablet.aws_region or ""),
        ("starts", format_time_with_zone(lablet.starts_at) if lablet.starts_at is not None else ""),
        ("ends", format_time_with_zone(lablet.expires_at) if lablet.expires_at is not None else ""),
        ("time limit", format_minutes(lablet.time_to_live_minutes)),
        ("on loss", lablet.lost_worker_policy.value),
        ("placement", _placement_text(lablet)),
        ("made anew", f"{count_of(lablet.retries, 'time')}, as it had failed" if lablet.retries else ""),
        ("created", f"{format_time_with_zone(lablet.created_at)} ({format_duration(now - lablet.created_at)} ago)"),
        ("id", f"{lablet.id} (version {lablet.version})"),
    ]
    printer.line(lablet.name, style="bold")
    printer.details([(name, text) for name, text in details if text])
    if access is not None:
        printer.line()
        _show_access(printer, access)
    if lablet.placement is not None and lablet.worker_id is None and lablet.placement.rejections:
        printer.line()
        show_rejections(printer, lablet.placement.rejections, lablet.placement.rejected)


def _show_access(printer: Printer, access: LabletAccess) -> None:
    """Print host, CML page, and each way to a node. Commands stand alone on their lines, to be copied."""
    if access.host is None:
        printer.line(access.message)
        return
    host = f"{access.host} (private address, reachable from its VPC)" if access.private else access.host
    printer.line(f"Access: {access.message}")
    printer.details([("host", host), ("lab in CML", access.lab_url or "the lab has no id yet")])
    for node in access.nodes:
        printer.line()
        printer.line(f"  {node.node}", style="bold")
        details = [(_port_text(port), port.command or port.address or "") for port in node.ports]
        if not node.ports:
            details.append(("connect", "in CML only: no port is forwarded to it"))
        if node.addresses:
            details.append(("in the lab", ", ".join(node.addresses)))
        printer.details(details, indent=4)
    if access.other_ports:
        printer.line()
        unused = ", ".join(f"{name} {access.host}:{port}" for name, port in access.other_ports.items())
        printer.line(f"Reserved, used by no tag of a node: {unused}")


def _port_text(port: ForwardedPort) -> str:
    if port.kind == "console":
        return f"console, line {port.inside}" if port.inside else "console"
    if port.kind == "vnc":
        return "screen (VNC)"
    return f"{port.kind.upper()} {port.inside}"


def _placement_text(lablet: Lablet) -> str:
    placement = lablet.placement
    if placement is None:
        return ""
    return placement.reason


def show_rejections(printer: Printer, rejections: Sequence[Rejection], total: int) -> None:
    """Print rejected workers with reasons."""
    columns: list[Column[Rejection]] = [
        Column("REJECTED", lambda each: each.worker_name, min_width=10),
        Column("REASON", lambda each: each.reason, min_width=20, wrap=True),
    ]
    shown = rejections[:_MAX_ROWS]
    printer.table(columns, shown)
    if total > len(shown):
        printer.line(f"and {total - len(shown)} more; -o json shows {len(rejections)}")


def preview_lines(preview: LabletPreview) -> list[tuple[str, str]]:
    """A placement preview in a few lines, for a dry run."""
    return [("then", preview.effect), *_cost_details(preview)]


def _cost_details(preview: LabletPreview) -> list[tuple[str, str]]:
    """The cost, which people with roles in teams only do not see."""
    return [("cost", preview.cost)] if preview.cost else []


def show_seat_costs(printer: Printer, costs: Sequence[SeatCost]) -> None:
    """Print what a seat costs on each template with KVM, the cheapest first."""
    columns: list[Column[SeatCost]] = [
        Column("TEMPLATE", lambda each: each.template, min_width=10),
        Column("TYPE", lambda each: each.instance_type),
        Column("KVM", lambda each: "nested" if each.nested_virtualization else "metal"),
        Column("SEATS", lambda each: str(each.seats), align_right=True),
        Column("$/H", lambda each: f"{each.cost_per_hour_usd:g}", align_right=True),
        Column("$/SEAT/H", lambda each: f"{each.cost_per_seat_usd:.4f}", align_right=True),
    ]
    printer.table(columns, costs)


def show_preview(printer: Printer, preview: LabletPreview) -> None:
    """Print a placement preview: the result first, then candidates and rejections."""
    printer.line(f"{preview.definition}: {preview.effect}")
    details = [("requirements", requirements_text(preview.requirements))]
    if preview.template is not None:
        details.append(("template", preview.template))
    printer.details([*details, *_cost_details(preview)])
    if preview.seat_costs:
        printer.line()
        show_seat_costs(printer, preview.seat_costs)
    if preview.candidates:
        columns: list[Column[PlacementCandidate]] = [
            Column("CANDIDATE", lambda each: each.worker_name, min_width=10),
            Column("SCORE", lambda each: f"{each.score:.3f}", align_right=True),
        ]
        printer.line()
        printer.table(columns, preview.candidates[:_MAX_ROWS])
    if preview.rejections:
        printer.line()
        show_rejections(printer, preview.rejections, preview.rejected)


def show_lablet_history(printer: Printer, name: str, steps: Sequence[LabletHistoryEntry]) -> None:
    """Print the status history, oldest first."""
    now = clock.now()
    if not steps:
        printer.line(f"{name} has no recorded history.")
        return
    columns: list[Column[LabletHistoryEntry]] = [
        Column("AGO", lambda step: format_duration(now - step.at), align_right=True),
        Column(at_column_title(now), lambda step: format_timestamp(step.at, now), priority=2),
        Column("STATUS", lambda step: step.to_status.value, style=lambda step: status_style(step.to_status.value)),
        Column("WORKER", lambda step: step.worker_id or "", priority=3),
        Column("BY", lambda step: step.actor.name, priority=1, min_width=17),
        Column("REASON", lambda step: step.reason, min_width=24, wrap=True),
    ]
    printer.table(columns, steps)
