"""`lcm plan`: the actions that controllers plan, grouped by action."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lcm.model.fleet.state import PlannedWorker

app = make_command_group("Actions that controllers plan for each worker, and why.")

NOT_EVALUATED = "Not evaluated yet"
NO_ACTION = "No action required"
_INSTANCE_ID = re.compile(r"(\binstance )?\bi-[0-9a-z]+\b")


@command(app, watchable=True)
async def plan(session: Session) -> None:
    """Show planned actions and reasons for each worker that is changing, grouped by action."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.output.printer import to_json_data

    async def show() -> None:
        items = [item async for item in session.client.fleet.plan(page_size=500)]
        if not session.printer.for_people:
            session.printer.data([to_json_data(item) for item in items])
            return
        if not items:
            session.printer.line("No changes planned: every worker is in its desired state.")
        for number, (heading, group) in enumerate(group_by_action(items)):
            session.printer.line("" if number else f"{_summary(items)}\n")
            session.printer.line(f"{heading} ({len(group)})", style="bold")
            session.printer.table(_columns(), group)

    await show_or_watch(session, show)


def group_by_action(items: Iterable[PlannedWorker]) -> list[tuple[str, list[PlannedWorker]]]:
    """Group by planned action: changes first, then workers without action, then those not evaluated yet."""
    groups: dict[str, list[PlannedWorker]] = {}
    for item in items:
        groups.setdefault(group_heading(item), []).append(item)
    return sorted(groups.items(), key=lambda group: (group[0] == NOT_EVALUATED, group[0] == NO_ACTION, group[0]))


def group_heading(item: PlannedWorker) -> str:
    """The planned actions without worker-specific ids."""
    if item.decision is None:
        return NOT_EVALUATED
    if not item.decision.actions:
        return NO_ACTION
    words = "; ".join(_INSTANCE_ID.sub("its instance", action) for action in item.decision.actions)
    return words[0].upper() + words[1:]


def _summary(items: Sequence[PlannedWorker]) -> str:
    changing = sum(1 for item in items if item.decision is not None and item.decision.actions)
    evaluated = sum(1 for item in items if item.decision is not None)
    parts = [f"Planned changes: {changing} {'worker' if changing == 1 else 'workers'}"]
    parts += [f"no action required: {evaluated - changing}"] if evaluated > changing else []
    parts += [f"not evaluated yet: {len(items) - evaluated}"] if len(items) > evaluated else []
    return "; ".join(parts) + "."


def _columns() -> list[Column[PlannedWorker]]:
    from lcm.cli.output.durations import format_duration
    from lcm.cli.output.printer import status_style
    from lcm.core import clock

    now = clock.now()

    def when(item: PlannedWorker) -> str:
        at = None if item.decision is None else item.decision.next_look_at
        if at is None:
            return ""
        return f"in {format_duration(at - now)}" if at > now else "now"

    return [
        Column("  NAME", lambda item: f"  {item.name}", min_width=12),
        Column("STATUS", lambda item: item.status.value, style=lambda item: status_style(item.status.value)),
        Column("DESIRED", lambda item: item.desired_status.value, priority=2),
        Column("REASON", lambda item: item.decision.reason if item.decision else "no decision yet", min_width=20),
        Column("NEXT CHECK", when, priority=1, align_right=True),
    ]
