"""`lcm audit`: who changed or decided what, when and why."""

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

app = make_command_group("Who changed or decided what, when and why.")


@command(app, lists=True)
async def audit(
    session: Session,
    worker: Annotated[
        list[str] | None, typer.Option("--worker", metavar="NAME", help="Only what is about these workers.")
    ] = None,
    subject: Annotated[
        list[str] | None, typer.Option("--subject", metavar="ID", help="Only what is about these: an id, or fleet.")
    ] = None,
    actor: Annotated[
        list[str] | None, typer.Option("--actor", metavar="NAME", help="Only what these did: people, controllers.")
    ] = None,
    by: Annotated[
        list[ActorKind] | None, typer.Option("--by", help="Only what people, or controllers, policies, the system did.")
    ] = None,
    action: Annotated[
        list[str] | None, typer.Option("--action", metavar="WORD", help="Only these, such as stop or auto_paused.")
    ] = None,
    since: SinceOption = None,
    until: BeforeOption = None,
    text: Annotated[
        str | None, typer.Option("--text", "-q", metavar="TEXT", help="Only lines in which this is found.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="How many lines at most.")] = 50,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="From the beginning on.")] = False,
) -> None:
    """Every change and decision: who, what, why, when. The newest come first."""
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
        session.screen.many(lines, _columns(names), lambda line: line.action, "Nothing is kept about that.")

    await show_or_watch(session, show)


async def _worker_names(session: Session, lines: list[AuditEntry]) -> dict[str, str]:
    """Names that people know, for the ids in the lines; only where people read them."""
    if not session.screen.for_people or not any(line.subject.startswith("w-") for line in lines):
        return {}
    return {worker.id: worker.name async for worker in session.client.workers.list(page_size=500)}


def _columns(names: dict[str, str]) -> list[Column[AuditEntry]]:
    from lcm.cli.output.durations import format_duration, format_timestamp
    from lcm.core import clock

    now = clock.now()
    return [
        Column("AGO", lambda line: format_duration(now - line.at), right=True),
        Column("AT (UTC)", lambda line: format_timestamp(line.at), rank=3),
        Column("WHO", lambda line: line.actor.name, least=17),
        Column("DID", lambda line: line.action),
        Column("TO", lambda line: names.get(line.subject, line.subject), least=16),
        Column("WHY", lambda line: line.reason, rank=1, least=24),
        Column("ROLE", lambda line: line.actor.kind.value, rank=4, wide=True),
        Column("ID", lambda line: line.subject, rank=5, wide=True),
        Column("DETAILS", _details, rank=2, least=18),
    ]


def _details(line: AuditEntry) -> str:
    return ", ".join(f"{name}={value}" for name, value in line.details.items())
