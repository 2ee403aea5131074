"""How lablets look in a terminal: in a list, alone, over time, and before they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.output.durations import format_duration, format_timestamp, format_timestamp_utc
from lcm.cli.output.printer import status_style
from lcm.cli.output.tables import Column
from lcm.core import clock
from lcm.model.lablet.status import FINAL_LABLET_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.cli.output.printer import Printer
    from lcm.model.audit import LabletHistoryEntry
    from lcm.model.lablet.preview import LabletPreview, PlacementCandidate
    from lcm.model.lablet.record import Lablet, LabletRequirements, Rejection

_MAX_ROWS = 20


def lablet_status_text(lablet: Lablet) -> str:
    """The status, and how it ends if it is to."""
    ending = None if lablet.ending is None else lablet.ending.value
    if ending is None or ending == lablet.status.value:
        return lablet.status.value
    return f"{lablet.status.value} → {ending}"


def lablet_notes(lablet: Lablet) -> str:
    """What somebody should know who sees only one line of it."""
    if lablet.message:
        return lablet.message
    if lablet.status == "PENDING_SCHEDULING" and lablet.placement is not None:
        return lablet.placement.reason
    return lablet.ending_reason or ""


def lablet_columns(now: datetime, workers: Mapping[str, str]) -> list[Column[Lablet]]:
    """The columns of a list; `workers` are names by id, as far as they are known."""
    return [
        Column("NAME", lambda each: each.name, least=12),
        Column("STATUS", lablet_status_text, style=lambda each: status_style(each.status.value)),
        Column("DEFINITION", lambda each: each.definition, rank=3, least=12),
        Column("OWNER", lambda each: each.owner, rank=4, least=8),
        Column("WORKER", lambda each: workers.get(each.worker_id or "", each.worker_id or ""), rank=1, least=10),
        Column("FOR", lambda each: format_duration(now - each.status_since), rank=5, right=True),
        Column("ENDS", lambda each: _ends_text(each, now), rank=6, right=True),
        Column("NODES", lambda each: str(each.requirements.nodes), rank=8, wide=True, right=True),
        Column("CPU", lambda each: f"{each.requirements.cpu_cores:g}", rank=9, wide=True, right=True),
        Column("MEMORY", lambda each: f"{each.requirements.memory_gb:g} GB", rank=10, wide=True, right=True),
        Column("ID", lambda each: each.id, rank=11, wide=True),
        Column("AGE", lambda each: format_duration(now - each.created_at), rank=12, wide=True, right=True),
        Column("NOTES", lablet_notes, rank=2, least=16, style=lambda _: "yellow"),
    ]


def _ends_text(lablet: Lablet, now: datetime) -> str:
    over = lablet.over_at
    if over is None or lablet.status in FINAL_LABLET_STATUSES:
        return ""
    return f"in {format_duration(over - now)}" if over > now else "now"


def requirements_text(needs: LabletRequirements) -> str:
    """What it takes of a worker, on one line."""
    said = [
        f"{needs.cpu_cores:g} CPU",
        f"{needs.memory_gb:g} GB memory",
        f"{needs.storage_gb:g} GB disk",
        f"{needs.nodes} node{'' if needs.nodes == 1 else 's'}",
    ]
    if needs.license:
        said.append("a licence")
    if needs.cml_version is not None:
        said.append(f"CML {needs.cml_version}")
    if needs.node_definitions:
        said.append(f"node definitions {', '.join(needs.node_definitions)}")
    if needs.ports:
        said.append(f"ports {', '.join(needs.ports)}")
    return ", ".join(said)


def show_lablet(screen: Printer, lablet: Lablet, worker: str) -> None:
    """One lablet, all that a person asks for; `worker` is the name of its worker."""
    now = clock.now()
    facts = [
        ("status", f"{lablet_status_text(lablet)} for {format_duration(now - lablet.status_since)}"),
        ("notes", lablet_notes(lablet)),
        ("owner", lablet.owner),
        ("definition", lablet.definition),
        ("needs", requirements_text(lablet.requirements)),
        ("worker", worker if worker == (lablet.worker_id or "") else f"{worker} ({lablet.worker_id})"),
        ("ports", ", ".join(f"{name}={number}" for name, number in sorted(lablet.ports.items()))),
        ("region", lablet.aws_region or ""),
        ("starts", format_timestamp_utc(lablet.starts_at) if lablet.starts_at is not None else ""),
        ("ends", format_timestamp_utc(lablet.over_at) if lablet.over_at is not None else ""),
        ("lives", f"{lablet.time_to_live_minutes:g} minutes" if lablet.time_to_live_minutes is not None else ""),
        ("if lost", lablet.lost_worker_policy.value),
        ("placed", _placement_text(lablet)),
        ("created", f"{format_timestamp_utc(lablet.created_at)} ({format_duration(now - lablet.created_at)} ago)"),
        ("id", f"{lablet.id} (version {lablet.version})"),
    ]
    screen.say(lablet.name, style="bold")
    screen.facts([(name, text) for name, text in facts if text])
    if lablet.endpoints:
        screen.say()
        screen.facts([(each.node, ", ".join(each.addresses) or "no address yet") for each in lablet.endpoints])
    if lablet.placement is not None and lablet.worker_id is None and lablet.placement.rejections:
        screen.say()
        show_rejections(screen, lablet.placement.rejections, lablet.placement.rejected)


def _placement_text(lablet: Lablet) -> str:
    placement = lablet.placement
    if placement is None:
        return ""
    return placement.reason


def show_rejections(screen: Printer, rejections: Sequence[Rejection], in_all: int) -> None:
    """Who was not chosen, and why."""
    columns: list[Column[Rejection]] = [
        Column("NOT ON", lambda each: each.worker_name, least=10),
        Column("BECAUSE", lambda each: each.reason, least=20, wrap=True),
    ]
    shown = rejections[:_MAX_ROWS]
    screen.table(columns, shown)
    if in_all > len(shown):
        screen.say(f"and {in_all - len(shown)} more; -o json shows {len(rejections)}")


def show_preview(screen: Printer, preview: LabletPreview) -> None:
    """What would become of it: the answer first, then what it rests on."""
    screen.say(f"{preview.definition}: {preview.reason}.")
    facts = [("needs", requirements_text(preview.requirements))]
    if preview.template is not None:
        facts.append(("template", preview.template))
    if preview.cost_per_hour_usd:
        facts.append(("cost", f"${preview.cost_per_hour_usd:g} an hour more than now"))
    screen.facts(facts)
    if preview.candidates:
        columns: list[Column[PlacementCandidate]] = [
            Column("COULD BE ON", lambda each: each.worker_name, least=10),
            Column("SCORE", lambda each: f"{each.score:.3f}", right=True),
        ]
        screen.say()
        screen.table(columns, preview.candidates[:_MAX_ROWS])
    if preview.rejections:
        screen.say()
        show_rejections(screen, preview.rejections, preview.rejected)


def show_lablet_history(screen: Printer, name: str, steps: Sequence[LabletHistoryEntry]) -> None:
    """Its life so far, oldest first."""
    now = clock.now()
    if not steps:
        screen.say(f"{name} has no history that is still kept.")
        return
    columns: list[Column[LabletHistoryEntry]] = [
        Column("AGO", lambda step: format_duration(now - step.at), right=True),
        Column("AT (UTC)", lambda step: format_timestamp(step.at), rank=2),
        Column("STATUS", lambda step: step.to_status.value, style=lambda step: status_style(step.to_status.value)),
        Column("WORKER", lambda step: step.worker_id or "", rank=3),
        Column("BY", lambda step: step.actor.name, rank=1, least=17),
        Column("WHY", lambda step: step.reason, least=24, wrap=True),
    ]
    screen.table(columns, steps)
