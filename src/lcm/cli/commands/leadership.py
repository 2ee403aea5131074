"""`lcm leadership`: for an etcd that was replaced and counts from the beginning."""

from __future__ import annotations

from typing import Annotated

import typer

from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import Yes, make_app
from lcm.cli.runtime.session import Session, ask_yes

app = make_app("Believe leaders again after etcd was replaced.")


@app.callback()
def noun() -> None:
    """Believe leaders again after etcd was replaced."""


@command(app, "reset", changes=True)
async def reset(
    session: Session,
    controller: Annotated[str, typer.Argument(metavar="CONTROLLER", help="Such as worker-controller.")],
    yes: Yes = False,
) -> None:
    """Forget the newest term of a controller, so that a leader of a new etcd is not taken for an old one.

    Only after etcd was replaced: it lets an older leader write again. It asks first.
    """
    from lcm.cli.errors import CommandError
    from lcm.cli.runtime.lookup import Candidate, pick

    fleet = await session.client.fleet.summary()
    seen = {leader.controller: leader for leader in fleet.leaders}
    name = pick(controller, [Candidate(each, each) for each in seen], "controller", "lcm fleet")
    session.forecast = [(name, f"term {seen[name].term}"), ("then", "the next leader's term counts, whatever it is")]
    if not yes and not session.dry_run:
        session.screen.say(f"The newest term of {name} is {seen[name].term}.")
        if not ask_yes("Forget it? Only after etcd was replaced."):
            raise CommandError("nothing was changed")
    done = await session.client.fleet.reset_leadership(name)
    if session.screen.for_people:
        session.screen.say(f"The term of {done} is forgotten: its next leader is believed.")
    else:
        session.screen.data({"controller": done})
