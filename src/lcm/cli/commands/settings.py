"""`lcm settings`: automation settings of the fleet, changeable at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcm.cli.errors import UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_change, parse_value

if TYPE_CHECKING:
    from lcm.model.fleet.settings import FleetSettings

app = make_command_group("Automation settings of the fleet, changeable at run time.")

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Such as min_workers; `lcm settings show` lists all.")]


@command(app, "show")
async def show_settings(session: Session) -> None:
    """Show the effective settings."""
    settings = await session.client.fleet.settings()
    session.printer.item(settings, "settings", lambda each: _show_settings(session, each))


@command(app, "set", mutates=True)
async def set_setting(
    session: Session,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="New value.")],
    yes: YesOption = False,
) -> None:
    """Store a value. It overrides the startup configuration until it is unset. Asks for confirmation."""
    group, name = _find_setting(key)
    await _change_setting(session, group, name, parse_value(value), yes=yes)


@command(app, "unset", mutates=True)
async def unset_setting(session: Session, key: KeyArgument, yes: YesOption = False) -> None:
    """Remove a stored value. The startup configuration or the default applies again. Asks for confirmation."""
    group, name = _find_setting(key)
    await _change_setting(session, group, name, None, yes=yes)


async def _change_setting(session: Session, group: str, name: str, value: Any, *, yes: bool) -> None:
    from lcm.cli.runtime.options import validate
    from lcm.model.fleet.settings import FleetSettingsPatch

    patch = validate(FleetSettingsPatch, {group: {name: value}})
    before = _format_setting(await session.client.fleet.settings(), group, name)
    preview = await session.client.fleet.preview_settings(patch)
    effects = preview.effects
    change = next((each for each in preview.changes if each.name == name), None)
    if change is not None:
        text = f"{before} → {_format_value(change.after)}"
        confirm_change(session, [f"{name}: {text}", *effects], f"Change {name}?", yes=yes)
    else:
        text = f"{before} (no change)"
    session.forecast = [(name, text), *(("then", effect) for effect in effects)]
    after = await session.client.fleet.change_settings(patch)
    lines = "\n".join([f"{name} is {_format_setting(after, group, name)} (was {before}).", *effects])
    session.printer.item(after, name, lambda _: session.printer.line(lines))


def _find_setting(key: str) -> tuple[str, str]:
    """The group and name of a setting; the key may be in any case, with or without its group."""
    from difflib import get_close_matches

    normalized = key.strip().lower().replace("-", "_").split(".")[-1]
    groups = {name: group for group, names in _setting_names().items() for name in names}
    if normalized in groups:
        return groups[normalized], normalized
    close = get_close_matches(normalized, groups, n=1)
    hint = f"did you mean {close[0]}?" if close else "`lcm settings show` lists all"
    raise UsageError(f"there is no setting {key!r}; {hint}")


def _setting_names() -> dict[str, list[str]]:
    from lcm.model.fleet.settings import FleetSettings

    empty = FleetSettings()
    return {group: list(type(getattr(empty, group)).model_fields) for group in FleetSettings.model_fields}


def _format_setting(settings: FleetSettings, group: str, name: str) -> str:
    return _format_value(getattr(getattr(settings, group), name))


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return "not set" if value in (None, "") else str(value)


def _show_settings(session: Session, settings: FleetSettings) -> None:
    for number, (group, names) in enumerate(_setting_names().items()):
        if number:
            session.printer.line()
        session.printer.line(group, style="bold")
        session.printer.details([(name, _format_setting(settings, group, name)) for name in names])
