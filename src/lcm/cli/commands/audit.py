"""`lcm audit`: every change and decision, with actor, time and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import BeforeOption, SinceOption, make_command_group
from lcm.cli.runtime.session import Session
from lcm.model.audit import ActorKind

if TYPE_CHECKING:
    from lcm.model.audit import AuditEntry

app = make_command_group("Audit log: every change and decision, with actor and reason.")


@command(app, watchable=True)
async def audit(
    session: Session,
    worker: Annotated[
        list[str] | None, typer.Option("--worker", metavar="NAME", help="Only entries about these workers.")
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", metavar="ID", help="Only entries about these subjects: an id, or fleet."),
    ] = None,
    actor: Annotated[
        list[str] | None, typer.Option("--actor", metavar="NAME", help="Only entries by these people or controllers.")
    ] = None,
    by: Annotated[list[ActorKind] | None, typer.Option("--by", help="Only entries by actors of this kind.")] = None,
    action: Annotated[
        list[str] | None,
        typer.Option("--action", metavar="WORD", help="Only these actions, such as stop or auto_paused."),
    ] = None,
    since: SinceOption = None,
    until: BeforeOption = None,
    text: Annotated[
        str | None, typer.Option("--text", "-q", metavar="TEXT", help="Only entries that contain this text.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of entries.")] = 50,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Oldest entries first.")] = False,
) -> None:
    """List changes and decisions with actor, reason and time, newest first."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.output.durations import parse_past_time
    from lcm.cli.runtime.lookup import find_worker
    from lcm.core import clock

    now = clock.now()
    begin = None if since is None else parse_past_time(since, now, "--since")
    end = None if until is None else parse_past_time(until, now, "--until")

    found = {name: await find_worker(session.client, name) for name in worker or []}
    subjects = [*(subject or []), *(each.id for each in found.values())]

    async def show() -> None:
        lines: list[AuditEntry] = []
        pages = session.client.fleet.audit(
            subject=subjects,
            actor=actor or (),
            actor_kind=by or (),
            action=action or (),
            since=begin,
            until=end,
            q=text,
            newest_first=not oldest_first,
            page_size=min(limit, 500),
        )
        async for line in pages:
            lines.append(line)
            if len(lines) >= limit:
                break
        names = await _worker_names(session, lines)
        session.printer.items(lines, _columns(names), lambda line: line.action, "No matching audit entries.")

    await show_or_watch(session, show)


async def _worker_names(session: Session, lines: list[AuditEntry]) -> dict[str, str]:
    """Worker names for the ids in the entries; only for output to people."""
    if not session.printer.for_people or not any(line.subject.startswith("w-") for line in lines):
        return {}
    return {worker.id: worker.name async for worker in session.client.workers.list(page_size=500)}


def _columns(names: dict[str, str]) -> list[Column[AuditEntry]]:
    from lcm.cli.output.durations import at_column_title, format_duration, format_timestamp
    from lcm.core import clock
    from lcm.model.fleet.activity_summary import action_label

    now = clock.now()
    return [
        Column("AGO", lambda line: format_duration(now - line.at), align_right=True),
        Column(at_column_title(now), lambda line: format_timestamp(line.at, now), priority=3),
        Column("ACTOR", lambda line: line.actor.name, min_width=17),
        Column("ACTION", lambda line: action_label(line.action)),
        Column("SUBJECT", lambda line: names.get(line.subject, line.subject), min_width=16),
        Column("REASON", lambda line: line.reason, priority=1, min_width=24),
        Column("NAME", lambda line: line.action, priority=4, wide_only=True),
        Column("KIND", lambda line: line.actor.kind.value, priority=4, wide_only=True),
        Column("ID", lambda line: line.subject, priority=5, wide_only=True),
        Column("DETAILS", _details, priority=2, min_width=18),
    ]


def _details(line: AuditEntry) -> str:
    return ", ".join(f"{name}={value}" for name, value in line.details.items())
