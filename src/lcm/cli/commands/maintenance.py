"""`lcm secrets`: the key that stored secrets are encrypted with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.errors import CommandError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_app
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.model.answers import SecretsRotated

app = make_app("The key that stored secrets are encrypted with.")


@app.callback()
def noun() -> None:
    """The key that stored secrets are encrypted with."""


@command(app, "rotate", changes=True)
async def rotate(session: Session) -> None:
    """Encrypt all stored secrets with the first key, after one was put in front. It can be run again at any time."""
    session.forecast = [("then", "every licence token and password is encrypted with the first key")]
    done = await session.client.access.rotate_secrets()
    session.screen.one(done, "secrets", lambda each: _show(session, each))
    if done.unreadable:
        raise CommandError(
            f"{len(done.unreadable)} secrets cannot be read, as their key is missing or they were altered:"
            f" {', '.join(done.unreadable)}"
        )


def _show(session: Session, done: SecretsRotated) -> None:
    session.screen.say(f"{done.rotated} secrets were encrypted anew, {done.already} had the first key already.")
