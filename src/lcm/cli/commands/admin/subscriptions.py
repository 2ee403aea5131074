"""`lcm subscriptions`: which alerts are sent where, and what was delivered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm

if TYPE_CHECKING:
    from lcm.model.notification.subscription import (
        CreatedSubscription,
        DeadLetter,
        DeliveryResult,
        RotatedSecret,
        Subscription,
        SubscriptionStatus,
    )

app = make_command_group("Notifications: which alerts are sent where.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a subscription, or a unique prefix.")]


UrlFileOption = Annotated[
    str | None, typer.Option("--url-file", metavar="FILE", help="File with the URL of the target.")
]
ToOption = Annotated[list[str] | None, typer.Option("--to", metavar="ADDRESS", help="Recipient; repeatable.")]
TypeOption = Annotated[
    list[str] | None, typer.Option("--type", metavar="TYPE", help="Only alerts of this type; repeatable.")
]
SubjectOption = Annotated[
    list[str] | None, typer.Option("--name", metavar="NAME", help="Only subjects with this name; repeatable.")
]
TemplateOption = Annotated[
    list[str] | None, typer.Option("--template", metavar="NAME", help="Only workers of this template; repeatable.")
]
RegionOption = Annotated[
    list[str] | None, typer.Option("--region", metavar="REGION", help="Only subjects in this region; repeatable.")
]
TeamOption = Annotated[
    list[str] | None, typer.Option("--team", metavar="NAME", help="Only subjects of this team; repeatable.")
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="Only workers with this tag; repeatable.")
]


def _columns() -> list[Column[Subscription]]:
    return [
        Column("NAME", lambda each: each.name),
        Column("TARGET", lambda each: each.target.value),
        Column("ADDRESS", lambda each: each.address, priority=1),
        Column("ALERTS", lambda each: ",".join(each.filter.types) or "all", priority=2),
        Column("SEVERITY", lambda each: each.filter.severity.value, priority=3),
        Column("ENABLED", lambda each: "yes" if each.enabled else "no", priority=1),
        Column("ID", lambda each: each.id, priority=4),
    ]


@command(app, "list", watchable=True)
async def list_subscriptions(session: Session) -> None:
    """List subscriptions. URLs and signing secrets are never shown."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        found = [each async for each in session.client.subscriptions.list()]
        session.printer.items(found, _columns(), lambda each: each.name, "No subscriptions.")

    await show_or_watch(session, show)


@command(app, "get", watchable=True)
async def get_subscription(session: Session, name: NameArgument) -> None:
    """Show a subscription with its last deliveries."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.runtime.lookup import find_subscription

    found = await find_subscription(session.client, name)

    async def show() -> None:
        status = await session.client.subscriptions.get(found.id)
        session.printer.item(status, status.subscription.name, lambda each: _show_status(session, each))

    await show_or_watch(session, show)


@command(app, "create", mutates=True)
async def create_subscription(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the subscription.")],
    target: Annotated[str, typer.Option("--target", metavar="webhook|slack|teams|webex|email", help="Kind of target.")],
    url_file: UrlFileOption = None,
    to: ToOption = None,
    types: TypeOption = None,
    severity: Annotated[
        str, typer.Option("--severity", metavar="warning|critical", help="Lowest severity.")
    ] = "warning",
    subject: SubjectOption = None,
    template: TemplateOption = None,
    region: RegionOption = None,
    team: TeamOption = None,
    tag: TagOption = None,
) -> None:
    """Create a subscription. The signing secret of a webhook is shown only once.

    The URL is read from a file, because it may be a credential and commands are visible to others.
    """
    from lcm.cli.runtime.options import parse_tags, validate
    from lcm.cli.runtime.target import read_secret_file
    from lcm.model.notification.subscription import CreateSubscriptionRequest

    selector = {
        "names": subject or [],
        "templates": template or [],
        "regions": region or [],
        "teams": team or [],
        "tags": parse_tags(tag or []),
    }
    fields: dict[str, object] = {
        "name": name,
        "target": target,
        "recipients": to or [],
        "filter": {"types": types or [], "severity": severity, "selector": selector},
    }
    if url_file is not None:
        fields["url"] = read_secret_file("--url-file", url_file)
    request = validate(CreateSubscriptionRequest, fields)
    session.forecast = [("then", f"alerts that come after it are sent to {target}")]
    created = await session.client.subscriptions.create(request)
    session.printer.item(created, created.subscription.name, _show_created)


@command(app, "edit", mutates=True)
async def edit_subscription(
    session: Session,
    name: NameArgument,
    new_name: Annotated[str | None, typer.Option("--rename", metavar="NAME", help="New name.")] = None,
    url_file: UrlFileOption = None,
    to: ToOption = None,
    all_alerts: Annotated[
        bool, typer.Option("--all", help="Remove all filters first; the filters given here then apply.")
    ] = False,
    types: TypeOption = None,
    severity: Annotated[
        str | None, typer.Option("--severity", metavar="warning|critical", help="Lowest severity.")
    ] = None,
    subject: SubjectOption = None,
    template: TemplateOption = None,
    region: RegionOption = None,
    team: TeamOption = None,
    tag: TagOption = None,
) -> None:
    """Change a subscription. Each option replaces what it names; what is left out stays as it is."""
    from lcm.cli.runtime.lookup import find_subscription
    from lcm.cli.runtime.options import parse_tags, validate
    from lcm.cli.runtime.target import read_secret_file
    from lcm.model.notification.subscription import EditSubscriptionRequest

    given = {"names": subject, "templates": template, "regions": region, "teams": team}
    selector: dict[str, object] = {field: value for field, value in given.items() if value is not None}
    selector |= {} if tag is None else {"tags": parse_tags(tag)}
    narrowed: dict[str, object] = {
        field: value for field, value in (("types", types), ("severity", severity)) if value is not None
    }
    changes = {"name": new_name, "recipients": to}
    fields: dict[str, object] = {field: value for field, value in changes.items() if value is not None}
    if url_file is not None:
        fields["url"] = read_secret_file("--url-file", url_file)
    if not fields and not narrowed and not selector and not all_alerts:
        raise UsageError("name at least one option to change")
    found = await find_subscription(session.client, name)
    if narrowed or selector or all_alerts:
        before = {"selector": {}} if all_alerts else found.filter.model_dump(mode="json")
        fields["filter"] = {**before, **narrowed, "selector": {**before["selector"], **selector}}
    request = validate(EditSubscriptionRequest, fields)
    session.forecast = [("then", "alerts that are waiting will be selected and sent by the new settings")]
    edited = await session.client.subscriptions.edit(found.id, request)
    session.printer.item(edited, edited.name, lambda each: session.printer.line(f"Subscription {each.name} changed."))


@command(app, "test", mutates=True)
async def send_test(session: Session, name: NameArgument) -> None:
    """Send a test notification now and show what the target responded."""
    from lcm.cli.runtime.lookup import find_subscription

    found = await find_subscription(session.client, name)
    session.forecast = [("then", f"a test notification is sent to {found.address}")]
    result = await session.client.subscriptions.send_test(found.id)
    _show_result(session, found, result)


@command(app, "enable", mutates=True)
async def enable_subscription(session: Session, name: NameArgument) -> None:
    """Send notifications again, including the alerts since it was disabled."""
    await _set_enabled(session, name, enabled=True)


@command(app, "disable", mutates=True)
async def disable_subscription(session: Session, name: NameArgument) -> None:
    """Send no notifications until it is enabled."""
    await _set_enabled(session, name, enabled=False)


@command(app, "rotate-secret", mutates=True)
async def rotate_secret(session: Session, name: NameArgument) -> None:
    """Replace the signing secret of a webhook. Messages are signed with both for 24 hours."""
    from lcm.cli.runtime.lookup import find_subscription

    found = await find_subscription(session.client, name)
    session.forecast = [("then", "messages are signed with both secrets for 24 hours, then with the new one")]
    rotated = await session.client.subscriptions.rotate_secret(found.id)
    session.printer.item(rotated, found.name, _show_rotated)


@command(app, "dead-letters")
async def list_dead_letters(session: Session, name: NameArgument) -> None:
    """List the notifications that could not be delivered, the newest first."""
    from lcm.cli.output.durations import format_time_with_zone
    from lcm.cli.runtime.lookup import find_subscription

    found = await find_subscription(session.client, name)
    letters = [each async for each in session.client.subscriptions.dead_letters(found.id)]
    columns: list[Column[DeadLetter]] = [
        Column("ID", lambda each: each.id),
        Column("SUMMARY", lambda each: each.summary, priority=1),
        Column("ANSWER", lambda each: each.answer, priority=2),
        Column("ATTEMPTS", lambda each: str(each.attempts), priority=3),
        Column("AT", lambda each: format_time_with_zone(each.at), priority=4),
    ]
    session.printer.items(letters, columns, lambda each: each.id, "No dead letters.")


@command(app, "resend", mutates=True)
async def resend_dead_letter(
    session: Session,
    name: NameArgument,
    letter: Annotated[str, typer.Argument(metavar="ID", help="Id of a dead letter.")],
) -> None:
    """Send a dead letter again, with the same id. It is removed once it is delivered."""
    from lcm.cli.runtime.lookup import find_subscription

    found = await find_subscription(session.client, name)
    session.forecast = [("then", f"the notification is sent to {found.address}")]
    _show_result(session, found, await session.client.subscriptions.send_dead_letter(found.id, letter))


@command(app, "delete", mutates=True)
async def delete_subscription(session: Session, name: NameArgument, yes: YesOption = False) -> None:
    """Delete a subscription with its dead letters. Asks for confirmation."""
    from lcm.cli.runtime.lookup import find_subscription

    found = await find_subscription(session.client, name)
    session.forecast = [("then", f"nothing more is sent to {found.address}; its dead letters are deleted")]
    if not yes and not session.dry_run:
        session.printer.line(f"{found.name} ({found.id}), {found.target} {found.address}")
        if not confirm("Delete it? Alerts that wait for it are not sent, and its dead letters are deleted."):
            raise CommandError("no changes made")
    deleted = await session.client.subscriptions.delete(found.id)
    session.printer.item(deleted, deleted.name, lambda each: session.printer.line(f"Subscription {each.name} deleted."))


async def _set_enabled(session: Session, name: str, *, enabled: bool) -> None:
    from lcm.cli.runtime.lookup import find_subscription
    from lcm.model.notification.subscription import EditSubscriptionRequest

    found = await find_subscription(session.client, name)
    effect = "alerts since it was disabled are sent now" if enabled else "alerts wait until it is enabled"
    session.forecast = [("then", effect)]
    edited = await session.client.subscriptions.edit(found.id, EditSubscriptionRequest(enabled=enabled))
    text = f"{'enabled' if enabled else 'disabled'}: {effect}."
    session.printer.item(edited, edited.name, lambda each: session.printer.line(f"Subscription {each.name} {text}"))


def _show_status(session: Session, status: SubscriptionStatus) -> None:
    from lcm.cli.output.durations import format_time_with_zone

    subscription, line = status.subscription, session.printer.line
    line(f"{subscription.name} ({subscription.id}): {subscription.target} {subscription.address}")
    waiting = f"{status.pending}{' or more' if status.more_pending else ''}"
    line(f"delivered {status.delivered}, waiting {waiting}, dead letters {status.dead_letters}")
    line(f"sends {subscription.filter.describe(status.team_names)}")
    if not subscription.enabled:
        line("disabled")
    if status.problem:
        line(f"nothing is delivered: {status.problem}")
    if status.failing_since is not None:
        line(f"failing since {format_time_with_zone(status.failing_since)}")
    for each in status.recent:
        line(f"{format_time_with_zone(each.at)}  {each.outcome.value:9}  {each.summary}  ({each.answer})")


def _show_result(session: Session, subscription: Subscription, result: DeliveryResult) -> None:
    word = "delivered" if result.delivered else "not delivered"
    text = f"{subscription.name}: {word} in {result.seconds:.1f} s; answer: {result.answer}"
    session.printer.item(result, subscription.name, lambda _: session.printer.line(text))
    if not result.delivered:
        raise CommandError(f"the notification was not delivered: {result.answer}")


def _show_created(created: CreatedSubscription) -> None:
    """Print only the signing secret to standard output, so that it can be piped; the rest goes to standard error."""
    sys.stderr.write(f"Subscription {created.subscription.name} created.\n")
    if created.signing_secret is not None:
        sys.stderr.write("Signing secret, shown only once:\n")
        sys.stderr.flush()
        sys.stdout.write(f"{created.signing_secret.get_secret_value()}\n")


def _show_rotated(rotated: RotatedSecret) -> None:
    sys.stderr.write(
        f"Signing secret, shown only once; the one before is used until {rotated.previous_secret_until}:\n"
    )
    sys.stderr.flush()
    sys.stdout.write(f"{rotated.signing_secret.get_secret_value()}\n")
