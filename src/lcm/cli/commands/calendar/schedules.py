"""`lcm schedules`: when workers are up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_change

if TYPE_CHECKING:
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.calendar.schedule_preview import SchedulePreview, ScheduleStatus

app = make_command_group("Schedules: stop workers outside office hours, and start them again.")

_NOTHING_GIVEN: dict[str, object] = {"windows": [], "selector": {}}
"""What a new schedule needs: the error then says what may be given, not only that it is required."""

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a schedule, or a unique prefix.")]
ZoneOption = Annotated[
    str | None, typer.Option("--zone", metavar="ZONE", help="Time zone of the windows, such as Europe/Brussels.")
]
WindowOption = Annotated[
    list[str] | None,
    typer.Option("--window", metavar="WINDOW", help="Days and times, such as 'mon-fri 08:00-18:00'; repeatable."),
]
ExceptionOption = Annotated[
    list[str] | None,
    typer.Option("--except", metavar="DATES", help="Dates that differ, such as '2026-12-25 closed'; repeatable."),
]
WorkerOption = Annotated[
    list[str] | None, typer.Option("--worker", metavar="NAME", help="Name of a worker that it is for; repeatable.")
]
TemplateOption = Annotated[
    list[str] | None, typer.Option("--template", metavar="NAME", help="Workers of this template; repeatable.")
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="Workers with this tag; repeatable.")
]
TeamOption = Annotated[
    list[str] | None,
    typer.Option("--team", metavar="NAME", help="Workers that are dedicated to this team; repeatable."),
]
OutsideOption = Annotated[
    str | None, typer.Option("--outside", metavar="stop|nothing", help="What is done while no window is open.")
]


def _columns() -> list[Column[ScheduleStatus]]:
    return [
        Column("NAME", lambda each: each.schedule.name),
        Column("STATE", lambda each: each.state),
        Column("NEXT", _next_boundary, priority=1),
        Column("WINDOWS", lambda each: "; ".join(each.schedule.windows), priority=1),
        Column("ZONE", lambda each: each.schedule.zone, priority=2),
        Column("WORKERS", lambda each: each.workers_text, priority=2),
        Column("OUTSIDE", lambda each: each.schedule.outside.value, priority=3),
        Column("ID", lambda each: each.schedule.id, priority=4),
    ]


@command(app, "list", watchable=True)
async def list_schedules(session: Session) -> None:
    """List schedules, whether each is open now, and when that changes."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        found = await session.client.schedules.list()
        session.printer.items(list(found), _columns(), lambda each: each.schedule.name, "No schedules.")

    await show_or_watch(session, show)


@command(app, "get", watchable=True)
async def get_schedule(session: Session, name: NameArgument) -> None:
    """Show a schedule, its workers, and when it is open within seven days."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.runtime.lookup import find_schedule

    found = await find_schedule(session.client, name)

    async def show() -> None:
        preview = await session.client.schedules.preview_saved(found.id)
        session.printer.item(preview, found.name, lambda each: _show_preview(session, each))

    await show_or_watch(session, show)


@command(app, "create", mutates=True)
async def create_schedule(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")],
    zone: ZoneOption = None,
    window: WindowOption = None,
    exception: ExceptionOption = None,
    worker: WorkerOption = None,
    template: TemplateOption = None,
    team: TeamOption = None,
    tag: TagOption = None,
    outside: OutsideOption = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Create it disabled.")] = False,
) -> None:
    """Create a schedule. Workers that it selects follow it within a cycle."""
    from lcm.cli.runtime.options import validate
    from lcm.model.calendar.schedule_requests import CreateScheduleRequest

    fields = _fields(zone, window, exception, worker, template, team, tag, outside)
    request = validate(CreateScheduleRequest, {**_NOTHING_GIVEN, "name": name, "enabled": not disabled, **fields})
    if session.dry_run:
        await _forecast(session, {**request.model_dump(mode="json")})
    created = await session.client.schedules.create(request)
    _print_result(session, created, "created")


@command(app, "preview")
async def preview_schedule(
    session: Session,
    zone: ZoneOption = None,
    window: WindowOption = None,
    exception: ExceptionOption = None,
    worker: WorkerOption = None,
    template: TemplateOption = None,
    team: TeamOption = None,
    tag: TagOption = None,
    outside: OutsideOption = None,
) -> None:
    """Show which workers a schedule would select, what it would do with them, and its week. Nothing is saved."""
    from lcm.cli.runtime.options import validate
    from lcm.model.calendar.schedule_requests import PreviewScheduleRequest

    fields = _fields(zone, window, exception, worker, template, team, tag, outside)
    preview = await session.client.schedules.preview(validate(PreviewScheduleRequest, {**_NOTHING_GIVEN, **fields}))
    session.printer.item(preview, preview.status.schedule.name, lambda each: _show_preview(session, each))


@command(app, "edit", mutates=True)
async def edit_schedule(
    session: Session,
    name: NameArgument,
    rename: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Another name.")] = None,
    zone: ZoneOption = None,
    window: WindowOption = None,
    exception: ExceptionOption = None,
    no_exceptions: Annotated[bool, typer.Option("--no-exceptions", help="Remove all exceptions.")] = False,
    worker: WorkerOption = None,
    template: TemplateOption = None,
    team: TeamOption = None,
    tag: TagOption = None,
    outside: OutsideOption = None,
) -> None:
    """Change a schedule. Windows, exceptions and the selector replace the present ones as a whole."""
    from lcm.cli.errors import UsageError
    from lcm.cli.runtime.lookup import find_schedule
    from lcm.cli.runtime.options import validate
    from lcm.model.calendar.schedule_requests import EditScheduleRequest

    found = await find_schedule(session.client, name)
    fields = _fields(zone, window, exception, worker, template, team, tag, outside)
    if no_exceptions:
        fields["exceptions"] = []
    if rename is not None:
        fields["name"] = rename
    if not fields:
        raise UsageError("nothing to change; pass at least one option, such as --window")
    request = validate(EditScheduleRequest, fields)
    if session.dry_run:
        await _forecast(session, _as_request(request.apply_to(found)))
    _print_result(session, await session.client.schedules.edit(found.id, request), "changed")


@command(app, "enable", mutates=True)
async def enable_schedule(session: Session, name: NameArgument) -> None:
    """Enable a schedule. Workers that it selects follow it within a cycle."""
    await _set_enabled(session, name, enabled=True)


@command(app, "disable", mutates=True)
async def disable_schedule(session: Session, name: NameArgument) -> None:
    """Disable a schedule. Workers that it stopped stay stopped."""
    await _set_enabled(session, name, enabled=False)


@command(app, "delete", mutates=True)
async def delete_schedule(session: Session, name: NameArgument, yes: YesOption = False) -> None:
    """Delete a schedule. Workers that it stopped stay stopped. Asks for confirmation."""
    from lcm.cli.runtime.lookup import find_schedule

    found = await find_schedule(session.client, name)
    effect = (await session.client.schedules.preview_saved(found.id, remove=True)).effect
    session.forecast = [("then", effect)]
    confirm_change(session, [effect], f"Delete {found.name}?", yes=yes)
    _print_result(session, await session.client.schedules.delete(found.id), "deleted")


async def _set_enabled(session: Session, name: str, *, enabled: bool) -> None:
    from lcm.cli.runtime.lookup import find_schedule
    from lcm.model.calendar.schedule_requests import EditScheduleRequest

    found = await find_schedule(session.client, name)
    request = EditScheduleRequest(enabled=enabled)
    if session.dry_run:
        await _forecast(session, _as_request(request.apply_to(found)))
    edited = await session.client.schedules.edit(found.id, request)
    _print_result(session, edited, "enabled" if enabled else "disabled")


def _fields(
    zone: str | None,
    window: list[str] | None,
    exception: list[str] | None,
    worker: list[str] | None,
    template: list[str] | None,
    team: list[str] | None,
    tag: list[str] | None,
    outside: str | None,
) -> dict[str, object]:
    """What the options say; those that were not given are left out."""
    from lcm.cli.runtime.options import parse_tags

    given = {"zone": zone, "windows": window, "exceptions": exception, "outside": outside}
    fields: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if worker or template or team or tag:
        named = {"names": worker or [], "templates": template or [], "teams": team or []}
        fields["selector"] = {**named, "tags": parse_tags(tag or [])}
    return fields


def _as_request(schedule: Schedule) -> dict[str, object]:
    from lcm.model.calendar.schedule_requests import CreateScheduleRequest

    fields = schedule.model_dump(mode="json", include=set(CreateScheduleRequest.model_fields))
    return {**fields, "schedule_id": schedule.id}


async def _forecast(session: Session, fields: dict[str, object]) -> None:
    from lcm.cli.runtime.options import validate
    from lcm.model.calendar.schedule_requests import PreviewScheduleRequest

    preview = await session.client.schedules.preview(validate(PreviewScheduleRequest, fields))
    workers = [("worker", line) for line in _worker_lines(preview)]
    session.forecast = [("then", preview.effect), *workers]


def _next_boundary(status: ScheduleStatus) -> str:
    from lcm.cli.output.durations import format_time_with_zone

    if status.next_boundary is None or not status.schedule.enabled:
        return "-"
    return f"{'closes' if status.is_open else 'opens'} {format_time_with_zone(status.next_boundary)}"


def _worker_lines(preview: SchedulePreview) -> list[str]:
    from lcm.cli.output.durations import format_time_with_zone
    from lcm.model.worker.status import DesiredStatus

    lines = []
    for each in preview.workers:
        text = f"{each.name} is {each.status}"
        if each.change_to is not None and each.change_at is not None:
            verb = "started" if each.change_to is DesiredStatus.RUNNING else "stopped"
            at_once = each.change_at <= preview.previewed_at
            text += f", and will be {verb} {'now' if at_once else f'at {format_time_with_zone(each.change_at)}'}"
            if verb == "stopped":
                text += ", or as soon as it is not in use"
        lines.append(text)
    more = preview.workers_total - len(preview.workers)
    return [*lines, f"and {more} more"] if more else lines


def _show_preview(session: Session, preview: SchedulePreview) -> None:
    from lcm.cli.output.durations import format_time_with_zone

    schedule, line = preview.status.schedule, session.printer.line
    line(schedule.name, style="bold")
    session.printer.details(
        [
            ("state", preview.status.state),
            ("next", _next_boundary(preview.status)),
            ("windows", "; ".join(schedule.windows)),
            ("exceptions", "; ".join(schedule.exceptions) or "none"),
            ("zone", schedule.zone),
            ("workers", preview.status.workers_text),
            ("outside", schedule.outside.value),
        ]
    )
    line(preview.effect)
    for opening in preview.openings:
        line(f"  open {format_time_with_zone(opening.start)} to {format_time_with_zone(opening.end)}  ({opening.rule})")
    for text in _worker_lines(preview):
        line(f"  {text}")


def _print_result(session: Session, schedule: Schedule, word: str) -> None:
    session.printer.item(schedule, schedule.name, lambda each: session.printer.line(f"Schedule {each.name} {word}."))
