"""`lcm whoami`: who you are to the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_app
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.model.access import WhoAmI

app = make_app("Who you are to the control plane.")


@command(app)
async def whoami(session: Session) -> None:
    """Who you are to the control plane, which role that is, and how it was found."""
    me = await session.client.access.whoami()
    session.screen.one(me, me.name, lambda each: _show(session, each))


def _show(session: Session, me: WhoAmI) -> None:
    from lcm.cli.output.durations import exact

    facts = [("name", me.name), ("role", me.role.value), ("by", me.kind.value)]
    if me.expires_at is not None:
        facts.append(("until", exact(me.expires_at)))
    session.screen.facts([*facts, ("at", f"{session.reach.url} (from {session.reach.source})")], indent=0)
